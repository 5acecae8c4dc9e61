//! Holds JSON against `docs/events.schema.json`, by the words of JSON Schema that it uses. Any other word or
//! pattern fails, so that nothing in the schema goes unchecked.

use serde_json::Value;

/// What is wrong with a callback's body; empty when nothing is.
pub fn faults_of(body: &[u8]) -> Vec<String> {
    let schema = include_str!("../../docs/events.schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let mut faults = Vec::new();
    if body.len() > 20_000 {
        faults.push(format!("{} bytes", body.len()));
    }
    match serde_json::from_slice(body) {
        Ok(value) => check(&schema, &schema, &value, "body", &mut faults),
        Err(error) => faults.push(error.to_string()),
    }
    faults
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let words = schema.as_object().unwrap();
    for (word, rule) in words {
        let is_good = match word.as_str() {
            "$schema" | "title" | "$defs" | "then" => true,
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                check(root, &root["$defs"][name], value, at, faults);
                true
            }
            "type" => is_of_type(rule, value),
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "minimum" => value
                .as_i64()
                .is_none_or(|number| number >= rule.as_i64().unwrap()),
            "pattern" => value
                .as_str()
                .is_none_or(|text| fits(rule.as_str().unwrap(), text)),
            "required" => has_all(rule, value),
            "additionalProperties" => *rule == false && has_no_others(&schema["properties"], value),
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(inner) = value.get(name) {
                        check(root, rule, inner, &format!("{at}.{name}"), faults);
                    }
                }
                true
            }
            "anyOf" => rule
                .as_array()
                .unwrap()
                .iter()
                .any(|rule| is_good(root, rule, value)),
            "allOf" => {
                let all = rule.as_array().unwrap();
                all.iter().for_each(|rule| check(root, rule, value, at, faults));
                true
            }
            "if" => {
                if is_good(root, rule, value) {
                    check(root, &schema["then"], value, at, faults);
                }
                true
            }
            other => panic!("the schema has a word that is not checked: {other}"),
        };
        if !is_good {
            faults.push(format!("{at}: {value} against {word} {rule}"));
        }
    }
}

fn is_good(root: &Value, schema: &Value, value: &Value) -> bool {
    let mut faults = Vec::new();
    check(root, schema, value, "", &mut faults);
    faults.is_empty()
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("the schema has a type that is not checked: {other}"),
    };
    rule.as_array()
        .map_or_else(|| is(rule), |names| names.iter().any(is))
}

fn has_all(names: &Value, value: &Value) -> bool {
    let mut names = names.as_array().unwrap().iter();
    names.all(|name| value.get(name.as_str().unwrap()).is_some())
}

fn has_no_others(properties: &Value, value: &Value) -> bool {
    let mut names = value.as_object().into_iter().flatten();
    names.all(|(name, _)| properties.get(name).is_some())
}

fn fits(pattern: &str, text: &str) -> bool {
    let hex =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b"0123456789abcdef".contains(&b));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let whole = |text: &str| digits(text) && (text == "0" || !text.is_empty() && !text.starts_with('0'));
    match pattern {
        r"^deposit\." => text.starts_with("deposit."),
        r"^credit\." => text.starts_with("credit."),
        r"^invoice\." => text.starts_with("invoice."),
        r"^chain\." => text.starts_with("chain."),
        r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$" => {
            let shape: String = text
                .chars()
                .map(|c| if c.is_ascii_digit() { '0' } else { c })
                .collect();
            shape == "0000-00-00T00:00:00.000Z"
        }
        r"^(0|[1-9]\d*)$" => whole(text),
        r"^(0|[1-9]\d*)(\.\d*[1-9])?$" => match text.split_once('.') {
            None => whole(text),
            Some((units, rest)) => whole(units) && digits(rest) && rest.ends_with(|c| c != '0'),
        },
        "^(0x)?[0-9a-f]{64}$" => hex(text.strip_prefix("0x").unwrap_or(text), 64),
        "^0x[0-9a-fA-F]{40}$" => text
            .strip_prefix("0x")
            .is_some_and(|rest| hex(&rest.to_ascii_lowercase(), 40)),
        "^dep_[0-9a-f]{40}$" => text.strip_prefix("dep_").is_some_and(|rest| hex(rest, 40)),
        "^cr_[0-9a-f]{40}$" => text.strip_prefix("cr_").is_some_and(|rest| hex(rest, 40)),
        "^in_[0-9a-f]{40}$" => text.strip_prefix("in_").is_some_and(|rest| hex(rest, 40)),
        "^un_[0-9a-f]{40}$" => text.strip_prefix("un_").is_some_and(|rest| hex(rest, 40)),
        "^inv_[0-9a-f]{40}$" => text.strip_prefix("inv_").is_some_and(|rest| hex(rest, 40)),
        other => panic!("the schema has a pattern that is not checked: {other}"),
    }
}

#[test]
fn bodies_that_break_the_schema_are_found() {
    let good = r#"{"type":"chain.halted","timestamp":"2026-01-01T00:00:00.000Z","data":{"chain":"c",
        "alias":"btc","sequence":1,"state":"pruned","reason":"r"}}"#;
    assert_eq!(faults_of(good.as_bytes()), [""; 0]);
    for (from, to) in [
        ("chain.halted", "chain.closed"),
        ("00:00.000Z", "00:00Z"),
        (r#""sequence":1"#, r#""sequence":0"#),
        (r#""alias":"btc","#, ""),
        (r#""reason":"r""#, r#""reason":"r","more":1"#),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(faults_of(bad.as_bytes()), [""; 0], "{bad}");
    }
}
