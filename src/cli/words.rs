//! Words that are typed and kept: merchants, references, reasons. Read here once, with one limit each,
//! whether they come from an argument or from a line of a file.

use crate::config::is_name;
use crate::telemetry::is_unsafe;

/// The longest reference that is kept.
const REFERENCE_CHARS_MAX: usize = 200;

/// The longest reason that is kept.
const REASON_CHARS_MAX: usize = 500;

/// A merchant's slug.
pub(super) fn merchant(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a merchant is 1 to 32 of a-z, 0-9 and -, such as \"shop-1\"".to_owned()),
    }
}

/// What a key is used by.
pub(super) fn key_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a name is 1 to 32 of a-z, 0-9 and -, such as \"web-1\"".to_owned()),
    }
}

/// What an address is for; may be empty.
pub(super) fn reference(text: &str) -> Result<String, String> {
    line("a reference", text, REFERENCE_CHARS_MAX)
}

/// Why an operator did something.
pub(super) fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("say why: it is kept in the audit".to_owned());
    }
    line("a reason", text, REASON_CHARS_MAX)
}

fn line(what: &str, text: &str, chars_max: usize) -> Result<String, String> {
    let count = text.chars().count();
    if count > chars_max {
        return Err(format!(
            "{what} has at most {chars_max} characters, and this one has {count}"
        ));
    }
    if text.chars().any(is_unsafe) {
        return Err(format!("{what} is one line without control characters"));
    }
    Ok(text.to_owned())
}
