//! Reading one table of a TOML file key by key, and collecting every fault on the way instead of stopping at
//! the first.

use crate::address::holds_private_key;
use crate::telemetry::escaped;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing that is wrong with a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line in the file, counted from 1; `None` for a key that is missing from the file as a whole.
    pub line: Option<usize>,
    /// The key's full path, such as `bitcoin[0].policy[1].below`; empty where the file is not even TOML.
    pub path: String,
    /// What was found and what is allowed.
    pub text: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}

/// All faults of one file.
pub(super) struct Faults<'a> {
    text: &'a str,
    found: RefCell<Vec<Fault>>,
    /// Every key that the code knows, so that a test can hold the documentation against it.
    known: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(text: &'a str) -> Faults<'a> {
        Faults {
            text,
            found: RefCell::default(),
            known: RefCell::default(),
        }
    }

    pub(super) fn add(&self, offset: Option<usize>, path: String, text: String) {
        let line = offset.map(|offset| {
            let before = self.text.as_bytes().get(..offset).unwrap_or_default();
            1 + before.iter().filter(|byte| **byte == b'\n').count()
        });
        self.found.borrow_mut().push(Fault { line, path, text });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// All faults in the order of their lines.
    pub(super) fn into_sorted(self) -> Vec<Fault> {
        let mut faults = self.found.into_inner();
        faults.sort_by_key(|fault| fault.line.unwrap_or(0));
        faults
    }

    #[cfg(test)]
    pub(super) fn known_keys(&self) -> BTreeSet<&'static str> {
        self.known.borrow().clone()
    }
}

/// One table of the file. Every key is asked for by name; [`close`](Section::close) then reports those that
/// nobody asked for.
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    path: String,
    offset: usize,
    asked: RefCell<Vec<&'static str>>,
    faults: &'a Faults<'a>,
}

impl<'a> Section<'a> {
    pub(super) fn root(table: &'a DeTable<'a>, faults: &'a Faults<'a>) -> Section<'a> {
        Section {
            table,
            path: String::new(),
            offset: 0,
            asked: RefCell::default(),
            faults,
        }
    }

    /// Its own path, such as `bitcoin[0]`.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The full path of one of its keys.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        if !self.asked.borrow().contains(&key) {
            self.asked.borrow_mut().push(key);
        }
        self.faults.known.borrow_mut().insert(key);
        self.table.get(key)
    }

    /// Reports a fault at one of its keys: at the key's line if it is there, else at the table's.
    pub(super) fn fault(&self, key: &str, text: impl Into<String>) {
        match self.table.get(key) {
            Some(value) => self
                .faults
                .add(Some(value.span().start), self.path_of(key), text.into()),
            None => self.missing(key, text),
        }
    }

    /// Reports a key that should be there, at the line of its table.
    pub(super) fn missing(&self, key: &str, text: impl Into<String>) {
        let offset = (!self.path.is_empty()).then_some(self.offset);
        self.faults.add(offset, self.path_of(key), text.into());
    }

    /// True if the key is there, good or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of a key, read by `read`; a value that `read` does not take is a fault naming what is
    /// `allowed`.
    pub(super) fn optional<T>(
        &self,
        key: &'static str,
        allowed: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?.get_ref();
        let read = read(value);
        if read.is_none() {
            self.fault(key, format!("found {}, allowed: {allowed}", show(value)));
        }
        read
    }

    /// Like [`optional`](Self::optional), and its absence is a fault too.
    pub(super) fn required<T>(
        &self,
        key: &'static str,
        allowed: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        if self.get(key).is_none() {
            self.missing(key, format!("missing, allowed: {allowed}"));
            return None;
        }
        self.optional(key, allowed, read)
    }

    /// A whole number inside a range, or its default.
    pub(super) fn number(&self, key: &'static str, range: RangeInclusive<u64>, default: u64) -> u64 {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        self.optional(key, &allowed, |value| {
            whole(value).filter(|number| range.contains(number))
        })
        .unwrap_or(default)
    }

    /// A table below this one; an absent one reads as empty.
    pub(super) fn table(&self, key: &'static str) -> Option<Section<'a>> {
        let value = self.get(key)?;
        let Some(table) = value.get_ref().as_table() else {
            self.fault(
                key,
                format!("found {}, allowed: a table [{key}]", show(value.get_ref())),
            );
            return None;
        };
        Some(self.below(table, value.span().start, self.path_of(key)))
    }

    /// The tables of an array such as `[[bitcoin]]`: none if it is absent, `None` if it is something else.
    pub(super) fn tables(&self, key: &'static str) -> Option<Vec<Section<'a>>> {
        let Some(value) = self.get(key) else {
            return Some(Vec::new());
        };
        let Some(array) = value.get_ref().as_array() else {
            let path = self
                .path_of(key)
                .replace(|c: char| c == '[' || c == ']' || c.is_ascii_digit(), "");
            self.fault(
                key,
                format!("found {}, allowed: tables [[{path}]]", show(value.get_ref())),
            );
            return None;
        };
        let mut sections = Vec::new();
        for (at, item) in array.iter().enumerate() {
            let path = format!("{}[{at}]", self.path_of(key));
            match item.get_ref().as_table() {
                Some(table) => sections.push(self.below(table, item.span().start, path)),
                None => self.faults.add(
                    Some(item.span().start),
                    path,
                    format!("found {}, allowed: a table", show(item.get_ref())),
                ),
            }
        }
        Some(sections)
    }

    fn below(&self, table: &'a DeTable<'a>, offset: usize, path: String) -> Section<'a> {
        Section {
            table,
            path,
            offset,
            asked: RefCell::default(),
            faults: self.faults,
        }
    }

    /// Reports every key that was not asked for. Its value is not shown: it may be a secret in the wrong
    /// place.
    pub(super) fn close(&self) {
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            if asked.contains(&name) {
                continue;
            }
            let hint = match closest(name, &asked) {
                Some(known) => format!("unknown key, did you mean {known}?"),
                None => format!("unknown key, allowed here: {}", asked.join(", ")),
            };
            self.faults
                .add(Some(key.span().start), self.path_of(&escaped(name)), hint);
        }
    }
}

/// A whole number that is not negative.
pub(super) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A value as it stands in the file, shortened. URLs lose what may be a password.
fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.contains("://") && text.contains('@') => {
            "a URL with a user name or password (not shown)".to_owned()
        }
        DeValue::String(text) if holds_private_key(text) => {
            "what looks like a private key (not shown)".to_owned()
        }
        DeValue::String(text) if text.chars().count() > 80 => {
            format!("a text of {} characters", text.chars().count())
        }
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => format!("{} (not a whole number)", number.as_str()),
        DeValue::Boolean(fact) => fact.to_string(),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The known key that a misspelt one most likely means: at most two letters off, or one the beginning of the
/// other.
fn closest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let near = known
        .iter()
        .map(|known| (distance(name, known), *known))
        .filter(|(distance, known)| *distance <= 2 && *distance < known.len())
        .min();
    let begins =
        |known: &&&'static str| name.len() >= 4 && (known.starts_with(name) || name.starts_with(**known));
    near.map(|(_, known)| known)
        .or_else(|| known.iter().find(begins).copied())
}

/// How many letters must be added, dropped, changed or swapped with their neighbour to get from one to the
/// other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().take(64).collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let change = usize::from(from[i - 1] != to[j - 1]);
                    let step = (rows[i - 1][j] + 1)
                        .min(rows[i][j - 1] + 1)
                        .min(rows[i - 1][j - 1] + change);
                    let is_swap = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
                    if is_swap {
                        step.min(rows[i - 2][j - 2] + 1)
                    } else {
                        step
                    }
                }
            };
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_find_their_neighbour() {
        let known = [
            "alias",
            "poll_ms",
            "mempool_ms",
            "rpc_url",
            "rpc_password_file",
            "start",
        ];
        let cases = [
            ("pol_ms", Some("poll_ms")),
            ("polls_ms", Some("poll_ms")),
            ("opll_ms", Some("poll_ms")),
            ("rpcurl", Some("rpc_url")),
            ("rpc_password", Some("rpc_password_file")),
            ("start_height", Some("start")),
            ("zmq", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(closest(name, &known), expected, "{name}");
        }
    }
}
