//! `watch import`: many addresses from a file, a chunk per transaction. Each line is either taken or named as
//! a fault with its number; a second run finds everything known.

mod columns;
mod fields;

use super::args::ChainArg;
use super::open;
use super::out::{self, Out};
use super::watch;
use super::words;
use super::{Outcome, Problem};
use crate::config::{ChainConfig, Config};
use crate::rules::Script;
use crate::store::{AddressAdded, AddressKind, ChainKey, Database, NewAddress};
use crate::telemetry::counted;
use anyhow::Context as _;
use columns::Columns;
use fields::fields;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeSet;
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

/// So many new merchants are named at the end.
const NEW_MERCHANTS_NAMED_MAX: usize = 100;

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
    /// Merchants of whom nothing was entered before: a name may be misspelt.
    new_merchants: BTreeSet<String>,
    /// Known addresses whose line has another reference.
    kept_references: Vec<FaultJson>,
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
    let mut reading = Reading {
        chain,
        merchant: import.merchant,
        columns: None,
    };
    let mut line = Vec::new();
    let (mut leading, mut first) = (0, Ok(None));
    // A header that is refused is so before anything is made or written.
    let doing = || format!("read {}", import.file.display());
    while reading.columns.is_none() && read_line(&mut input, &mut line).with_context(doing)? {
        leading += 1;
        first = reading.parse(&line, leading)?;
    }
    let mut database = open::plain_maker(config)?;
    let key = database.write(open::now_ms(), |tx| open::known_or_made(tx, chain))?;
    let mut intake = Intake {
        config,
        database,
        chain: key,
        kind: import.kind,
        is_json: out.json,
        chunk: Vec::with_capacity(CHUNK_ROWS),
        summary: Summary::default(),
    };
    intake.take(leading, first)?;
    while read_line(&mut input, &mut line).with_context(doing)? {
        let number = intake.summary.lines + 1;
        intake.take(number, reading.parse(&line, number)?)?;
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
        for merchant in summary.new_merchants.iter().take(NEW_MERCHANTS_NAMED_MAX) {
            out.line(format!("merchant {merchant} is new"))?;
        }
        let unnamed = summary
            .new_merchants
            .len()
            .saturating_sub(NEW_MERCHANTS_NAMED_MAX);
        if unnamed > 0 {
            out.line(format!("and {} more", counted(unnamed as u64, "new merchant")))?;
        }
        out.done()?;
    }
    match summary.faulty {
        0 => Ok(Outcome::Done),
        _ => Err(summary.not_all().into()),
    }
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
        let merchants: BTreeSet<&str> = chunk.iter().map(|row| row.merchant.as_str()).collect();
        let (outcomes, new) = self.database.write(open::now_ms(), |tx| {
            let mut new = Vec::new();
            for merchant in &merchants {
                if !tx.has_merchant(merchant)? {
                    new.push((*merchant).to_owned());
                }
            }
            let mut outcomes = Vec::with_capacity(chunk.len());
            for (row, outcome) in chunk.iter().zip(tx.add_addresses(chain, &rules)?) {
                let known = match outcome {
                    AddressAdded::Known if !row.reference.is_empty() => tx.address(chain, &row.script)?,
                    AddressAdded::Known | AddressAdded::Added | AddressAdded::Conflict(_) => None,
                };
                let kept = known.map(|known| known.reference);
                outcomes.push((outcome, kept.filter(|kept| *kept != row.reference)));
            }
            // One whose lines were all refused was not made.
            let mut made = Vec::new();
            for merchant in new {
                if tx.has_merchant(&merchant)? {
                    made.push(merchant);
                }
            }
            Ok((outcomes, made))
        })?;
        self.summary.new_merchants.extend(new);
        for (row, (outcome, kept)) in chunk.iter().zip(outcomes) {
            match outcome {
                AddressAdded::Added => self.summary.added += 1,
                AddressAdded::Known => {
                    self.summary.known += 1;
                    let kept = kept.map(|kept| watch::kept_reference(&kept, &row.reference));
                    self.summary.kept(row.line, kept, self.is_json);
                }
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

/// How lines are read.
struct Reading<'a> {
    chain: ChainConfig<'a>,
    /// Of lines that name none.
    merchant: Option<&'a str>,
    /// `None` before the first line that says something.
    columns: Option<Columns>,
}

/// A line that names an address; `None` for one that says nothing, or why it cannot be taken.
type ReadLine = Result<Option<Row>, String>;

impl Reading<'_> {
    /// Reads a line. The first one that says something may be a header, and one that is not understood is
    /// refused with the whole file.
    fn parse(&mut self, line: &[u8], number: u64) -> Result<ReadLine, Problem> {
        let fields = match line_fields(line, number) {
            Ok(Some(fields)) => fields,
            Ok(None) => return Ok(Ok(None)),
            // It may have been a header.
            Err(fault) if self.columns.is_none() => return Err(unreadable(number, &fault)),
            Err(fault) => return Ok(Err(fault)),
        };
        let columns = match self.columns {
            Some(columns) => columns,
            None => {
                let is_address = |text: &str| self.chain.script(text).is_ok();
                let header = columns::of_first_line(&fields, is_address)
                    .map_err(|fault| unreadable(number, &fault))?;
                let columns = header.unwrap_or(columns::DOCUMENTED);
                self.columns = Some(columns);
                if header.is_some() {
                    return Ok(Ok(None));
                }
                columns
            }
        };
        Ok(self.row(number, &fields, columns).map(Some))
    }

    fn row(&self, number: u64, fields: &[Cow<'_, str>], columns: Columns) -> Result<Row, String> {
        let field = |at: usize| fields.get(at).map_or("", |field| field.trim());
        if fields.len() > columns.count {
            let allowed = match columns == columns::DOCUMENTED {
                true => "at most address,merchant,reference".to_owned(),
                false => format!("the header names {}", columns.count),
            };
            return Err(format!("{}, {allowed}", counted(fields.len() as u64, "column")));
        }
        let text = field(columns.address);
        if let Some(separator) = columns::foreign_separator(text) {
            return Err(format!(
                "separated by {separator}: columns are separated by commas"
            ));
        }
        let merchant = match (columns.merchant.map_or("", field), self.merchant) {
            ("", None) => {
                return Err("no merchant: add it to the line or name one with --merchant".to_owned());
            }
            ("", Some(merchant)) => merchant,
            (merchant, _) => merchant,
        };
        let merchant =
            words::merchant(merchant).map_err(|error| format!("{:?}: {error}", short(merchant)))?;
        let reference = words::reference(columns.reference.map_or("", field))?;
        let script = self
            .chain
            .script(text)
            .map_err(|error| format!("{} ({}): {:?}", error, error.code(), short(text)))?;
        Ok(Row {
            line: number,
            script,
            merchant,
            reference,
        })
    }
}

/// Why a file is refused: its first line that says something.
fn unreadable(number: u64, fault: &str) -> Problem {
    let next = "separate columns by commas, and name them address, merchant, reference in the first line if \
                they are in another order";
    Problem::found(format!("line {number}: {fault}; nothing was imported"), next)
}

/// The fields of a line; `None` for those that say nothing: blank ones and comments.
fn line_fields(line: &[u8], number: u64) -> Result<Option<Vec<Cow<'_, str>>>, String> {
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
    fields(text).map(Some)
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

    /// Notes that a known address keeps another reference than that of its line.
    fn kept(&mut self, line: u64, text: Option<String>, is_json: bool) {
        let Some(text) = text.filter(|_| self.named < FAULTS_NAMED_MAX) else {
            return;
        };
        self.named += 1;
        match is_json {
            true => self.kept_references.push(FaultJson { line, text }),
            false => out::note(&format!("line {line}: {text}")),
        }
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

    /// What became of a file with faults.
    fn not_all(&self) -> Problem {
        let (faulty, lines) = (self.faulty, counted(self.lines, "line"));
        let others = match self.added + self.known {
            0 => "nothing was imported",
            _ => "the others were",
        };
        Problem::found(
            format!("{faulty} of {lines} not imported, {others}"),
            "correct these lines and import the file again: what is known already stays as it is",
        )
    }

    fn text(&self) -> String {
        let Summary {
            lines,
            added,
            known,
            faulty,
            ..
        } = self;
        let lines = counted(*lines, "line");
        format!("{lines}: {added} added, {known} known already, {faulty} faulty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
