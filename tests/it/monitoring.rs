//! Alert rules, dashboard and their description, held against the metrics of a running daemon.

use std::collections::BTreeSet;

use creditd::clock::Clock;
use creditd::sandbox::evm::EvmSandbox;
use serde_json::Value;

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::metrics::Scrape;

/// Words of the query language that the expressions use.
const LANGUAGE: [&str; 11] = [
    "absent",
    "by",
    "changes",
    "histogram_quantile",
    "increase",
    "label_values",
    "rate",
    "sum",
    "time",
    "chain",
    "le",
];

fn file(name: &str) -> String {
    let path = format!("{}/docs/monitoring/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// One `name{label="value"}` of an expression.
#[derive(Debug)]
struct Selector {
    name: String,
    /// Name, operator, value.
    matchers: Vec<(String, String, String)>,
}

/// The selectors of an expression; every other word must be one of the language.
#[track_caller]
fn selectors(expr: &str) -> Vec<Selector> {
    let mut found: Vec<Selector> = Vec::new();
    let mut rest = expr;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            let word = &rest[..end];
            rest = &rest[end..];
            if word.starts_with("creditd_") {
                found.push(Selector {
                    name: word.to_owned(),
                    matchers: Vec::new(),
                });
            } else {
                assert!(LANGUAGE.contains(&word), "{word} in {expr}");
            }
        } else if first == '{' {
            let (inside, after) = rest[1..].split_once('}').unwrap();
            let matchers = inside.split(',').map(matcher);
            found.last_mut().unwrap().matchers.extend(matchers);
            rest = after;
        } else if first == '[' {
            // A span, or the width of a range.
            let (span, after) = rest[1..].split_once(']').unwrap();
            let (number, unit) = span.split_at(span.len() - 1);
            assert!(
                number.parse::<u32>().is_ok() && "smhd".contains(unit),
                "{span} in {expr}"
            );
            rest = after;
        } else {
            assert!("()<>=-+*/ .,0123456789".contains(first), "{first:?} in {expr}");
            rest = &rest[1..];
        }
    }
    found
}

fn matcher(text: &str) -> (String, String, String) {
    let at = text.find(['=', '!']).unwrap();
    let (name, rest) = text.split_at(at);
    let (operator, value) = rest.split_once('"').unwrap();
    (
        name.to_owned(),
        operator.to_owned(),
        value.trim_end_matches('"').to_owned(),
    )
}

/// Every metric exists, with the labels, and in exact matches the values, that the expression names.
#[track_caller]
fn check(scrape: &Scrape, expr: &str) {
    let selectors = selectors(expr);
    let mut labels = BTreeSet::new();
    for selector in &selectors {
        let mut series: Vec<_> = scrape
            .values
            .keys()
            .filter(|series| series.name == selector.name)
            .collect();
        assert!(!series.is_empty(), "there is no {} for: {expr}", selector.name);
        for (name, operator, value) in &selector.matchers {
            series.retain(|series| match series.labels.get(name) {
                Some(known) if operator == "=" => known == value,
                Some(_) => true,
                None => false,
            });
            assert!(
                !series.is_empty(),
                "nothing has {name}{operator}{value} for: {expr}"
            );
        }
        labels.extend(series[0].labels.keys().map(String::as_str));
    }
    for (at, words) in expr.match_indices("by (") {
        let by = &expr[at + words.len()..];
        for label in by.split_once(')').unwrap().0.split(", ") {
            assert!(labels.contains(label), "nothing has {label} for: {expr}");
        }
    }
}

#[track_caller]
fn scrape() -> Scrape {
    let node = FakeNode::regtest(3);
    let evm = EvmSandbox::start(31_337, Clock::real()).unwrap();
    let tables = format!(
        "[[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 20\n\
         [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ {{ confirmations = 3 }} ]\n",
        evm.url()
    );
    let mut daemon = Daemon::start(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        tables,
        ..Setup::for_stub(&node.stub)
    });
    daemon.wait_height(3);
    daemon.wait_for("both follow", &["chain", "status"], |status| {
        let chains = status["chains"].as_array()?;
        let is_following = |chain: &Value| chain["state"] == "following";
        (chains.len() == 2 && chains.iter().all(is_following)).then_some(())
    });
    let (status, page) = daemon.ops("/metrics");
    assert_eq!(status, 200);
    daemon.stop();
    Scrape::parse(&page)
}

/// The rules, read as strictly as they are written: each line is one of these, in this order.
#[track_caller]
fn rules() -> Vec<(String, String)> {
    let text = file("creditd.rules.yml");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    for expected in ["groups:", "  - name: creditd", "    rules:"] {
        assert_eq!(lines.next(), Some(expected));
    }
    let mut rules = Vec::new();
    let mut value = |start: &str| {
        let line = lines.next()?;
        Some(
            line.strip_prefix(start)
                .unwrap_or_else(|| panic!("{line}"))
                .to_owned(),
        )
    };
    while let Some(alert) = value("      - alert: ") {
        let expr = value("        expr: ").unwrap();
        value("        for: ").unwrap();
        value("        labels:").unwrap();
        let severity = value("          severity: ").unwrap();
        assert!(severity == "page" || severity == "ticket", "{alert}: {severity}");
        value("        annotations:").unwrap();
        let summary = value("          summary: \"").unwrap();
        assert!(
            summary.ends_with(['"']) && !summary.contains("  "),
            "{alert}: {summary}"
        );
        rules.push((alert, expr));
    }
    rules
}

fn walk(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" => found.push(text.clone()),
                    Value::String(text) if name == "query" && text.contains("creditd_") => {
                        found.push(text.clone());
                    }
                    _ => walk(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
        _ => {}
    }
}

#[test]
fn every_metric_that_an_alert_or_a_panel_names_exists() {
    let scrape = scrape();
    let rules = rules();
    assert!(rules.len() >= 20, "{}", rules.len());
    for (alert, expr) in &rules {
        assert!(alert.starts_with("Creditd"), "{alert}");
        assert!(!selectors(expr).is_empty(), "{alert} asks nothing");
        check(&scrape, expr);
    }
    let mut panels = Vec::new();
    walk(
        &serde_json::from_str(&file("dashboard.json")).unwrap(),
        &mut panels,
    );
    assert!(panels.len() >= 25, "{}", panels.len());
    for expr in &panels {
        check(&scrape, expr);
    }
}

#[test]
fn the_description_names_every_metric_and_label_and_no_other() {
    let scrape = scrape();
    let text = file("README.md");
    let mut described = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| `creditd_")) {
        let columns: Vec<&str> = row.split(" | ").collect();
        let labels: BTreeSet<&str> = columns[1].split('`').filter(|part| is_word(part)).collect();
        for name in columns[0].split('`').filter(|part| part.starts_with("creditd_")) {
            let part = if labels.contains("le") { "_bucket" } else { "" };
            let series = scrape
                .values
                .keys()
                .find(|series| series.name == format!("{name}{part}"));
            let series = series.unwrap_or_else(|| panic!("there is no {name}"));
            assert_eq!(
                series.labels.keys().map(String::as_str).collect::<BTreeSet<_>>(),
                labels,
                "{name}"
            );
            described.insert(name);
        }
    }
    for name in scrape.names() {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| name.strip_suffix(part));
        assert!(
            described.contains(name) || family.is_some_and(|family| described.contains(family)),
            "{name}"
        );
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_lowercase())
}

/// The check finds what it is for.
#[test]
fn a_name_that_does_not_exist_is_found() {
    let scrape = Scrape::parse(
        "# TYPE creditd_x gauge\ncreditd_x{chain=\"btc\",state=\"ok\"} 1\n# HELP creditd_x x\n",
    );
    check(
        &scrape,
        "sum by (chain) (increase(creditd_x{state=\"ok\"}[5m])) > 0",
    );
    for wrong in [
        "creditd_y > 0",
        "creditd_x{state=\"bad\"} > 0",
        "creditd_x{kind=\"ok\"} > 0",
        "sum by (le) (creditd_x)",
        "maximum(creditd_x)",
        "creditd_x[5]",
    ] {
        let found = std::panic::catch_unwind(|| check(&scrape, wrong));
        assert!(found.is_err(), "{wrong}");
    }
}
