//! `watch import`: many addresses from a file, a chunk per transaction. Each line is either taken or named as
//! a fault with its number; a second run finds everything known.

use super::Outcome;
use super::args::ChainArg;
use super::open;
use super::out::{self, Out};
use super::words;
use crate::address;
use crate::config::{BitcoinChain, Config};
use crate::daemon;
use crate::rules::Script;
use crate::store::{AddressAdded, AddressKind, ChainKey, Database, NewAddress};
use anyhow::Context as _;
use serde::Serialize;
use std::borrow::Cow;
use std::io::BufRead;
use std::path::Path;

/// Rows per transaction: enough that the disk's sync costs little, few enough that the daemon gets its turn.
const CHUNK_ROWS: usize = 10_000;
/// Lines between two words of progress.
const PROGRESS_LINES: u64 = 100_000;
/// The longest line that is read: a file that is no list must not fill the memory.
const LINE_BYTES_MAX: usize = 4096;

/// So many faults are named; of more only the number is told: a wrong file must not fill memory or terminal.
const FAULTS_NAMED_MAX: u64 = 10_000;

/// What an import is told beside its file.
pub(super) struct Import<'a> {
    pub(super) file: &'a Path,
    pub(super) merchant: Option<&'a str>,
    pub(super) kind: AddressKind,
    pub(super) chain: &'a ChainArg,
}

/// One good line.
struct Row {
    line: u64,
    script: Script,
    merchant: String,
    reference: String,
}

#[derive(Default, Serialize)]
struct Summary {
    lines: u64,
    added: u64,
    known: u64,
    faulty: u64,
    faults: Vec<FaultJson>,
    /// Of the chunk that is being read.
    #[serde(skip)]
    pending: Vec<FaultJson>,
    /// How many were named so far.
    #[serde(skip)]
    named: u64,
}

#[derive(Serialize)]
struct FaultJson {
    line: u64,
    text: String,
}

/// Reads the file and adds what it names.
pub(super) fn import(out: &mut Out, config: &Config, import: &Import<'_>) -> anyhow::Result<Outcome> {
    let chain = open::chosen(config, import.chain)?;
    let mut input = source(import.file)?;
    let mut database = open::maker(config)?;
    let key = database.write(open::now_ms(), |tx| {
        Ok(tx.ensure_chain(&daemon::new_chain(chain))?.key)
    })?;
    let mut intake = Intake {
        config,
        database,
        chain: key,
        kind: import.kind,
        is_json: out.json,
        chunk: Vec::with_capacity(CHUNK_ROWS),
        summary: Summary::default(),
    };
    let mut line = Vec::new();
    while read_line(&mut input, &mut line).with_context(|| format!("read {}", import.file.display()))? {
        let number = intake.summary.lines + 1;
        intake.take(number, parse_line(&line, number, chain, import.merchant))?;
    }
    intake.store()?;
    let Intake {
        database, summary, ..
    } = intake;
    database.close()?;
    if out.json {
        out.json(&summary)?;
    } else {
        out.line(summary.text())?;
        out.done()?;
    }
    Ok(if summary.faulty == 0 {
        Outcome::Done
    } else {
        Outcome::Found
    })
}

/// The lines on their way into the database.
struct Intake<'a> {
    config: &'a Config,
    database: Database,
    chain: ChainKey,
    kind: AddressKind,
    is_json: bool,
    chunk: Vec<Row>,
    summary: Summary,
}

impl Intake<'_> {
    /// Takes what was read of a line.
    fn take(&mut self, number: u64, read: Result<Option<Row>, String>) -> anyhow::Result<()> {
        self.summary.lines = number;
        match read {
            Ok(Some(row)) => self.chunk.push(row),
            Ok(None) => {}
            Err(text) => self.summary.fault(number, text),
        }
        if self.chunk.len() + self.summary.pending.len() >= CHUNK_ROWS {
            self.store()?;
        }
        if number.is_multiple_of(PROGRESS_LINES) {
            out::note(&self.summary.text());
        }
        Ok(())
    }

    /// Adds the chunk in one transaction.
    fn store(&mut self) -> anyhow::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        let rules: Vec<NewAddress<'_>> = chunk
            .iter()
            .map(|row| NewAddress {
                script: row.script.clone(),
                kind: self.kind,
                merchant: &row.merchant,
                internal: self.config.internal_rule(&row.merchant).word(),
                reference: &row.reference,
            })
            .collect();
        let chain = self.chain;
        let outcomes = self
            .database
            .write(open::now_ms(), |tx| tx.add_addresses(chain, &rules))?;
        for (row, outcome) in chunk.iter().zip(outcomes) {
            match outcome {
                AddressAdded::Added => self.summary.added += 1,
                AddressAdded::Known => self.summary.known += 1,
                AddressAdded::Conflict(conflict) => self.summary.fault(row.line, conflict.to_string()),
            }
        }
        self.summary.tell(self.is_json);
        Ok(())
    }
}

fn source(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = std::fs::File::open(file).with_context(|| format!("read {}", file.display()))?;
    Ok(Box::new(std::io::BufReader::with_capacity(1 << 16, opened)))
}

/// Reads one line without its end; of one that is too long only as much as shows that. False at the end.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let mut is_any = false;
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(is_any);
        }
        is_any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = (LINE_BYTES_MAX + 1).saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// `Ok(None)` for lines that say nothing: blank ones, comments, and a heading in the first.
fn parse_line(
    line: &[u8],
    number: u64,
    chain: &BitcoinChain,
    merchant: Option<&str>,
) -> Result<Option<Row>, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("longer than {LINE_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8 text".to_owned())?;
    let text = if number == 1 {
        text.trim_start_matches('\u{feff}')
    } else {
        text
    };
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let fields = fields(text)?;
    let field = |at: usize| fields.get(at).map_or("", |field| field.trim());
    if number == 1 && field(0).eq_ignore_ascii_case("address") {
        return Ok(None);
    }
    if fields.len() > 3 {
        return Err(format!(
            "{} columns, at most address,merchant,reference",
            fields.len()
        ));
    }
    let merchant = match (field(1), merchant) {
        ("", None) => return Err("no merchant: add it to the line or name one with --merchant".to_owned()),
        ("", Some(merchant)) => merchant,
        (merchant, _) => merchant,
    };
    let merchant = words::merchant(merchant).map_err(|error| format!("{:?}: {error}", short(merchant)))?;
    let reference = words::reference(field(2))?;
    let script = address::parse(chain.network, field(0))
        .map_err(|error| format!("{} ({}): {:?}", error, error.code(), short(field(0))))?;
    Ok(Some(Row {
        line: number,
        script,
        merchant,
        reference,
    }))
}

/// The fields of one line of comma-separated values. A quoted field ends on its line: a quote that is not
/// closed must not swallow the lines after it.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, String> {
    if !line.contains('"') {
        return Ok(line.split(',').map(Cow::Borrowed).collect());
    }
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let trimmed = rest.trim_start();
        let Some(quoted) = trimmed.strip_prefix('"') else {
            let (field, after) = rest
                .split_once(',')
                .map_or((rest, None), |(field, after)| (field, Some(after)));
            fields.push(Cow::Borrowed(field));
            match after {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let (field, after) = unquote(quoted)?;
        fields.push(Cow::Owned(field));
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None if after.is_empty() => return Ok(fields),
            None => return Err("text after a closing quote".to_owned()),
        }
    }
}

/// The text up to the closing quote, where two quotes stand for one, and what follows.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Ok((field, after)),
        }
    }
}

/// The beginning of what was found where an address should be.
fn short(text: &str) -> String {
    text.chars().take(100).collect()
}

impl Summary {
    fn fault(&mut self, line: u64, text: String) {
        self.faulty += 1;
        self.pending.push(FaultJson { line, text });
    }

    /// Names the faults of a chunk in the order of their lines.
    fn tell(&mut self, is_json: bool) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|fault| fault.line);
        for fault in pending {
            if self.named == FAULTS_NAMED_MAX {
                out::note(&format!(
                    "line {}: faulty too; further ones are only counted",
                    fault.line
                ));
            }
            self.named += 1;
            if self.named > FAULTS_NAMED_MAX {
                continue;
            }
            match is_json {
                true => self.faults.push(fault),
                false => out::note(&format!("line {}: {}", fault.line, fault.text)),
            }
        }
    }

    fn text(&self) -> String {
        let Summary {
            lines,
            added,
            known,
            faulty,
            ..
        } = self;
        format!("{lines} lines: {added} added, {known} known already, {faulty} faulty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_split_into_fields() {
        let cases: &[(&str, Result<&[&str], &str>)] = &[
            ("a", Ok(&["a"])),
            ("a,b,c", Ok(&["a", "b", "c"])),
            ("a,,", Ok(&["a", "", ""])),
            ("\"a\",\"b,c\"", Ok(&["a", "b,c"])),
            ("\"a\"\"b\" , c", Ok(&["a\"b", " c"])),
            ("a, \"b\"", Ok(&["a", "b"])),
            ("\"a", Err("a quote is not closed")),
            ("\"a\"b", Err("text after a closing quote")),
        ];
        for (line, expected) in cases {
            let got = fields(line);
            let got = got
                .as_ref()
                .map(|fields| fields.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
            assert_eq!(got.as_deref().map_err(|text| text.as_str()), *expected, "{line}");
        }
    }

    #[test]
    fn an_endless_line_is_cut_and_the_next_is_whole() {
        let text = [vec![b'x'; 100_000], b"\nshort\n\nlast".to_vec()].concat();
        let mut input = std::io::BufReader::new(&text[..]);
        let mut line = Vec::new();
        let mut lengths = Vec::new();
        while read_line(&mut input, &mut line).unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [LINE_BYTES_MAX + 1, 5, 0, 4]);
    }
}
