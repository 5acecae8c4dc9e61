//! `/docs`: the page says all that `/openapi.json` says, all codes that there are, and loads nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::api::{Client, Reply, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;

fn ask() -> (Value, Reply) {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let stranger = Client {
        port: daemon.api_port(),
        key: String::new(),
    };
    (stranger.get("/openapi.json").expect(200), stranger.get("/docs"))
}

/// Every text under a key of this name.
fn texts<'v>(value: &'v Value, name: &str, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key == name
                    && let Some(text) = value.as_str()
                {
                    found.insert(text);
                }
                texts(value, name, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, name, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is escaped on the page, as it was.
fn plain(page: &str) -> String {
    let page = page.replace("<code>", "`").replace("</code>", "`");
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(page, |page, (from, to)| page.replace(from, to))
}

#[test]
fn the_page_says_all_that_the_description_says() {
    let (described, page) = ask();
    assert_eq!(page.status, 200);
    let shown = plain(&page.body);
    let mut operations = 0;
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, said) in item.as_object().unwrap() {
            let method = method.to_uppercase();
            let heading = format!(">{method}</b> `{path}`</h3>");
            let (_, rest) = shown.split_once(&heading).unwrap_or_else(|| panic!("{heading}"));
            let article = rest.split("</article>").next().unwrap();
            let mut names = BTreeSet::new();
            texts(&said["parameters"], "name", &mut names);
            for name in names {
                assert!(article.contains(&format!("`{name}`")), "{method} {path}: {name}");
            }
            for status in said["responses"].as_object().unwrap().keys() {
                assert!(
                    article.contains(&format!(">{status}</th>")),
                    "{method} {path}: {status}"
                );
            }
            operations += 1;
        }
    }
    assert!(operations >= 20, "{operations}");
    for (name, schema) in described["components"]["schemas"].as_object().unwrap() {
        let (_, rest) = shown.split_once(&format!("id=\"shape-{name}\"")).unwrap();
        let article = rest.split("</article>").next().unwrap();
        for field in schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(|map| map.keys())
        {
            assert!(article.contains(&format!("`{field}`")), "{name}: {field}");
        }
    }
    let mut said = BTreeSet::new();
    texts(&described["paths"], "description", &mut said);
    texts(&described["paths"], "summary", &mut said);
    texts(&described["components"]["schemas"], "description", &mut said);
    for text in said {
        assert!(shown.contains(&text.replace('\n', " ")), "{text}");
    }
    // Every link within the page leads somewhere.
    for target in page.body.split("href=\"#").skip(1) {
        let target = target.split('"').next().unwrap();
        assert!(page.body.contains(&format!("id=\"{target}\"")), "{target}");
    }
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let (_, page) = ask();
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; img-src data:; style-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("script-src"), "{policy}");
    assert_eq!(page.header("cache-control"), Some("no-store"));
    for part in [
        "<script",
        "src=",
        "url(",
        "@import",
        "href=\"http",
        "href=\"//",
        " style=",
        "action=",
        "<iframe",
        "onclick",
    ] {
        assert!(!page.body.contains(part), "{part}");
    }
    assert_eq!(page.body.matches("<link").count(), 1);
    assert!(page.body.contains("<link rel=\"icon\" href=\"data:,\">"));
}

/// Words of that form in the API's sources that are no codes.
const NO_CODES: [&str; 8] = [
    "amount_state",
    "callback_types",
    "callback_url",
    "expires_in",
    "overlap_hours",
    "set_aside",
    "tolerance_percent",
    "address",
];

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => {
                found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
            false => {}
        }
    }
}

/// The texts in a source that look like codes: words with `_` between, and whatever a problem is made with.
fn codes_in(source: &str) -> BTreeSet<&str> {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let source = source.split("#[cfg(test)]").next().unwrap();
    let long = source.split('"').skip(1).step_by(2);
    let long = long.filter(|text| is_word(text) && text.trim_matches('_').contains('_'));
    let first = source.split("Problem::").skip(1).filter_map(|rest| {
        let (before, rest) = rest.split_once('"')?;
        let is_argument = before.len() < 60 && !before.contains(')');
        rest.split('"').next().filter(|text| is_argument && is_word(text))
    });
    long.chain(first)
        .filter(|text| !NO_CODES.contains(text))
        .collect()
}

#[test]
fn every_code_that_there_is_stands_on_the_page() {
    let (described, page) = ask();
    let (_, table) = page.body.split_once("id=\"errors\"").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src/api"), &mut files);
    files.retain(|(name, _)| !name.ends_with("api/codes.rs") && !name.ends_with("api/faults.rs"));
    let mut used = BTreeSet::new();
    for (name, source) in &files {
        // Its quotes are those of HTML.
        if name.contains("/reference/") || name.contains("/pay/words.rs") || name.ends_with("api/html.rs") {
            continue;
        }
        used.extend(codes_in(source));
    }
    assert!(used.len() > 35, "{used:?}");
    let answers = described["paths"].to_string();
    for codes in answers.split("\"code\":{\"enum\":[").skip(1) {
        let codes = codes.split(']').next().unwrap().split(',');
        used.extend(codes.map(|code| code.trim_matches('"')));
    }
    let mut routes = BTreeSet::new();
    texts(&described["paths"], "operationId", &mut routes);
    for code in used.difference(&routes) {
        assert!(
            table.contains(&format!("<code>{code}</code></th>")),
            "{code} is not documented"
        );
    }
    files.push((
        "address.rs".to_owned(),
        fs::read_to_string(root.join("src/address.rs")).unwrap(),
    ));
    for row in table.split("<th scope=\"row\"><code>").skip(1) {
        let code = row.split('<').next().unwrap();
        let is_used = files
            .iter()
            .any(|(_, source)| source.contains(&format!("\"{code}\"")));
        assert!(is_used, "{code} is said by nobody");
    }
}
