//! The JSON answers and their documentation name the same keys.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::sample::{D1, Sample, txid};

const DOCUMENT: &str = include_str!("../../docs/cli-json.md");

fn collect(value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                keys.insert(key.clone());
                collect(value, keys);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_key_is_documented() {
    let sample = Sample::filled();
    let rescan = ["rescan", "--from", "101", "--reason", "x", "--apply"];
    sample.files.json(&rescan);
    let (first, second, third) = (txid(1).to_string(), txid(2).to_string(), txid(3).to_string());
    let mut keys = BTreeSet::new();
    for args in [
        &["watch", "add", D1, "--merchant", "shop"][..],
        &["watch", "list"],
        &["deposits", "list", "--limit", "2"],
        &["deposits", "hold", &format!("{first}:0"), "--reason", "x"],
        &["tx", &first],
        &["tx", &second],
        &["tx", &third],
        &["credits"],
        &["balances"],
        &["chain", "status"],
        &["backup", "copy.db"],
    ] {
        collect(&sample.files.json(args), &mut keys);
    }
    std::fs::write(sample.files.folder().join("list"), "x\n").unwrap();
    for args in [&["watch", "import", "list", "--json"][..], &["check", "--json"]] {
        let output = sample.files.cli(args);
        collect(&serde_json::from_slice(&output.stdout).unwrap(), &mut keys);
    }
    assert!(keys.len() > 70, "{keys:?}");
    for key in keys {
        assert!(
            DOCUMENT.contains(&format!("`{key}`")) || DOCUMENT.contains(&format!("\"{key}\"")),
            "{key}"
        );
    }
}
