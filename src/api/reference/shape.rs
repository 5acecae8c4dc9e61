//! Schemas of OpenAPI in words: what a value may be, in a line, and the fields of an object, in a table.

use crate::api::html::Escaped;
use serde_json::Value;
use std::fmt::{self, Write as _};

/// Text in which backticks set off code.
pub(super) struct Prose<'a>(pub(super) &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.split('`').enumerate() {
            match at % 2 {
                0 => write!(f, "{}", Escaped(part))?,
                _ => write!(f, "<code>{}</code>", Escaped(part))?,
            }
        }
        Ok(())
    }
}

/// What a value may be.
pub(super) fn inline(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let name = Escaped(name);
        return format!("<a href=\"#shape-{name}\">{name}</a>");
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(all) = schema[key].as_array() {
            let all: Vec<String> = all.iter().map(inline).collect();
            return all.join(if key == "allOf" { " and " } else { " or " });
        }
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let mut html = String::new();
    for (at, kind) in kinds.iter().enumerate() {
        html.push_str(if at > 0 { " or " } else { "" });
        match *kind {
            "array" => {
                let _ = write!(html, "list of {}", inline(&schema["items"]));
            }
            "object" if schema["properties"].is_object() => html.push_str(&fields(schema)),
            "string" => html.push_str("text"),
            "integer" => html.push_str("whole number"),
            "boolean" => html.push_str("true or false"),
            kind => {
                let _ = write!(html, "{}", Escaped(kind));
            }
        }
    }
    html.push_str(&bounds(schema));
    match html.is_empty() {
        true => "anything".to_owned(),
        false => html,
    }
}

/// What narrows a value, behind its kind.
fn bounds(schema: &Value) -> String {
    let mut html = String::new();
    for (least, most, noun) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ] {
        let _ = match (schema[least].as_number(), schema[most].as_number()) {
            (Some(least), Some(most)) => write!(html, ", {least} to {most}{noun}"),
            (Some(least), None) => write!(html, ", at least {least}{noun}"),
            (None, Some(most)) => write!(html, ", at most {most}{noun}"),
            (None, None) => Ok(()),
        };
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let _ = write!(html, ", <code>{}</code>", Escaped(pattern));
    }
    let words: Vec<&str> = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !words.is_empty() {
        let _ = write!(html, ": {}", Escaped(&words.join(", ")));
    }
    html
}

/// What is said of a field: with itself, or with one of the things that it may be.
fn about(field: &Value) -> &str {
    let alternatives = field["oneOf"].as_array().into_iter().flatten();
    let mut said = std::iter::once(field).chain(alternatives);
    said.find_map(|schema| schema["description"].as_str())
        .unwrap_or_default()
}

/// The fields of an object; of anything else what it may be.
pub(super) fn fields(schema: &Value) -> String {
    let Some(properties) = schema["properties"].as_object() else {
        return format!("<p>{}</p>", inline(schema));
    };
    let is_required = |name: &str| {
        let required = schema["required"].as_array().into_iter().flatten();
        required.filter_map(Value::as_str).any(|known| known == name)
    };
    let mut html = String::from("<table><tbody>");
    for (name, field) in properties {
        let needed = if is_required(name) { ", always" } else { "" };
        let about = about(field);
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}{needed}</td><td>{}</td></tr>",
            Escaped(name),
            inline(field),
            Prose(about)
        );
    }
    html.push_str("</tbody></table>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_said_in_words() {
        let link = "<a href=\"#shape-Money\">Money</a>";
        let reference = json!({"$ref": "#/components/schemas/Money"});
        for (schema, said) in [
            (reference.clone(), link.to_owned()),
            (
                json!({"type": "array", "items": reference}),
                format!("list of {link}"),
            ),
            (
                json!({"type": ["string", "null"], "maxLength": 200}),
                "text or null, at most 200 characters".to_owned(),
            ),
            (
                json!({"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/Money"}]}),
                format!("null or {link}"),
            ),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 9}),
                "whole number, 1 to 9".to_owned(),
            ),
            (
                json!({"type": "string", "enum": ["a", "<b>"]}),
                "text: a, &lt;b&gt;".to_owned(),
            ),
            (json!({}), "anything".to_owned()),
        ] {
            assert_eq!(inline(&schema), said);
        }
        assert_eq!(
            Prose("see `a<b` & c").to_string(),
            "see <code>a&lt;b</code> &amp; c"
        );
    }
}
