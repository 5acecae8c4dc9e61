//! `/docs`: the description of the API for people, made from what `/openapi.json` says, with nothing that
//! is loaded from elsewhere. Start at [`body`].

mod shape;

use super::codes::CODES;
use super::html::Escaped;
use super::problem::PROBLEM_JSON;
use crate::config::ApiConfig;
use serde_json::{Map, Value};
use shape::{Prose, fields, inline};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The methods that a path of OpenAPI may have, in the order in which they are shown.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// One method of one path.
struct Operation<'a> {
    method: &'static str,
    path: &'a str,
    said: &'a Value,
}

impl Operation<'_> {
    fn id(&self) -> String {
        format!("{}-{}", self.method, self.path.replace(['{', '}'], ""))
    }

    fn text(&self, key: &str) -> &str {
        self.said[key].as_str().unwrap_or_default()
    }
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// All of the page that is seen.
pub(super) fn body(openapi: &Value, config: &ApiConfig) -> String {
    let operations = by_tag(openapi);
    let mut html = String::from("<body>\n<header><h1>creditd: the HTTP API</h1>\n");
    let about = openapi["info"]["description"].as_str().unwrap_or_default();
    let _ = writeln!(
        html,
        "<p>{} <a href=\"openapi.json\">openapi.json</a> says the same for programs.</p></header>",
        Prose(about)
    );
    html.push_str("<nav aria-label=\"Contents\"><ul><li><a href=\"#asking\">How to ask</a></li>");
    for (tag, of_tag) in &operations {
        let _ = write!(html, "<li>{}<ul>", Escaped(tag));
        for operation in of_tag {
            let _ = writeln!(
                html,
                "<li><a href=\"#{}\"><b>{}</b> {}</a></li>",
                Escaped(&operation.id()),
                operation.method.to_uppercase(),
                Escaped(operation.path)
            );
        }
        html.push_str("</ul></li>");
    }
    html.push_str(
        "<li><a href=\"#shapes\">Shapes</a></li><li><a href=\"#errors\">Errors</a></li></ul></nav>\n<main>",
    );
    asking(&mut html, config);
    for (tag, of_tag) in &operations {
        let _ = writeln!(html, "<section><h2>{}</h2>", Escaped(tag));
        of_tag.iter().for_each(|operation| show(&mut html, operation));
        html.push_str("</section>\n");
    }
    shapes(&mut html, openapi);
    errors(&mut html);
    html.push_str("</main>\n</body>\n");
    html
}

fn by_tag(openapi: &Value) -> BTreeMap<&str, Vec<Operation<'_>>> {
    let mut tags: BTreeMap<&str, Vec<Operation<'_>>> = BTreeMap::new();
    for (path, item) in object(&openapi["paths"]) {
        for method in METHODS {
            let Some(said) = item.get(method) else { continue };
            let tag = said["tags"][0].as_str().unwrap_or("other");
            tags.entry(tag)
                .or_default()
                .push(Operation { method, path, said });
        }
    }
    tags
}

/// What holds for every route.
fn asking(html: &mut String, config: &ApiConfig) {
    let days = config.idempotency_keep.as_secs() / 86_400;
    let (rate, connections) = (config.rate_per_sec, config.connections_max);
    let limits = super::limits();
    let _ = writeln!(
        html,
        "<section id=\"asking\"><h2>How to ask</h2>\n\
         <h3>Keys</h3><p>Send <code>Authorization: Bearer ck_...</code> with every request but those that \
         say that they need none. A key belongs to one merchant and has scopes; what is another's is \
         answered as if it were not there.</p>\n\
         <h3>The same request again</h3><p>A POST that creates or changes needs an \
         <code>Idempotency-Key</code> of yours. The same request under the same key acts once and has the \
         same answer again, byte for byte, with <code>Idempotent-Replayed: true</code>, for {days} days and \
         never shorter than its invoice lives. Another request under it is 422 \
         (<code>idempotency_key_reused</code>), one that still runs 409 (<code>in_progress</code>). A key \
         counts for one merchant and one path. What was not done and may be next time uses no key up.</p>\n\
         <h3>Amounts</h3><p>Texts, never numbers: <code>amount</code> in whole units (\"0.29\"), exact, and \
         in answers <code>amount_base</code> in base units beside it.</p>\n\
         <h3>Pages</h3><p>Lists are newest first. Send <code>next</code> of a page as <code>after</code> to \
         get the one behind it; it is null on the last.</p>\n\
         <h3>Limits</h3><ul>{limits}<li>{connections} connections, and {rate} requests a second of one key, \
         on average; twice as many at once. Then 429 with <code>Retry-After</code>.</li></ul></section>"
    );
}

fn show(html: &mut String, operation: &Operation<'_>) {
    let _ = write!(
        html,
        "<article id=\"{}\"><h3><b class=\"{}\">{}</b> <code>{}</code></h3>\n<p class=\"summary\">{}</p>",
        Escaped(&operation.id()),
        operation.method,
        operation.method.to_uppercase(),
        Escaped(operation.path),
        Prose(operation.text("summary"))
    );
    if !operation.text("description").is_empty() {
        let _ = write!(html, "<p>{}</p>", Prose(operation.text("description")));
    }
    let mut parameters = list(&operation.said["parameters"]).peekable();
    if parameters.peek().is_some() {
        html.push_str("<h4>Parameters</h4><table><tbody>");
        for parameter in parameters {
            row(html, parameter, parameter["required"] == true);
        }
        html.push_str("</tbody></table>");
    }
    for (media, content) in object(&operation.said["requestBody"]["content"]) {
        let _ = write!(
            html,
            "<h4>Body</h4><p>{}: {}",
            Escaped(media),
            inline(&content["schema"])
        );
        if let Some(text) = operation.said["requestBody"]["description"].as_str() {
            let _ = write!(html, ". {}", Prose(text));
        }
        html.push_str("</p>");
    }
    html.push_str("<h4>Answers</h4><table><tbody>");
    for (status, answer) in object(&operation.said["responses"]) {
        answers(html, status, answer);
    }
    html.push_str("</tbody></table></article>\n");
}

fn row(html: &mut String, parameter: &Value, is_required: bool) {
    let text = |key: &str| parameter[key].as_str().unwrap_or_default();
    let needed = if is_required { ", required" } else { "" };
    let _ = write!(
        html,
        "<tr><th scope=\"row\"><code>{}</code></th><td>{}{needed}</td><td>{}</td><td>{}</td></tr>",
        Escaped(text("name")),
        Escaped(text("in")),
        inline(&parameter["schema"]),
        Prose(text("description"))
    );
}

fn answers(html: &mut String, status: &str, answer: &Value) {
    let about = answer["description"].as_str().unwrap_or_default();
    let _ = write!(
        html,
        "<tr><th scope=\"row\">{}</th><td>{}",
        Escaped(status),
        Prose(about)
    );
    for (media, content) in object(&answer["content"]) {
        let shape = match media == PROBLEM_JSON {
            true => "<a href=\"#shape-Problem\">Problem</a>".to_owned(),
            false => inline(&content["schema"]),
        };
        let _ = write!(html, " <code>{}</code> {shape}", Escaped(media));
    }
    for (name, header) in object(&answer["headers"]) {
        let about = header["description"].as_str().unwrap_or_default();
        let _ = write!(html, "<br><code>{}</code>: {}", Escaped(name), Prose(about));
    }
    html.push_str("</td></tr>");
}

fn shapes(html: &mut String, openapi: &Value) {
    html.push_str("<section id=\"shapes\"><h2>Shapes</h2>\n");
    for (name, schema) in object(&openapi["components"]["schemas"]) {
        let name = Escaped(name);
        let _ = write!(html, "<article id=\"shape-{name}\"><h3>{name}</h3>");
        if let Some(about) = schema["description"].as_str() {
            let _ = write!(html, "<p>{}</p>", Prose(about));
        }
        html.push_str(&fields(schema));
        html.push_str("</article>\n");
    }
    html.push_str("</section>\n");
}

fn errors(html: &mut String) {
    html.push_str(
        "<section id=\"errors\"><h2>Errors</h2><p><code>application/problem+json</code>: programs go by \
         <code>code</code>. 4xx: change something. 409 <code>in_progress</code>, 429 and 503: send the same \
         request again after <code>Retry-After</code> seconds.</p>\
         <table><thead><tr><th>Code</th><th>Status</th><th>What it means</th></tr></thead>\
         <tbody>",
    );
    for (code, status, meaning) in CODES {
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><code>{code}</code></th><td>{status}</td><td>{}</td></tr>",
            Prose(meaning)
        );
    }
    html.push_str("</tbody></table></section>\n");
}
