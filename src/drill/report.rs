//! What a drill found, in JSON and in words.

use super::words::{
    changed_line, counted, input_words, restored_line, settled_words, size, untried_words, well_words,
    what_words,
};
use crate::clock::rfc3339;
use crate::rules::invariants::Invariant;
use crate::store::{CHECKS, Compared, RowDiff, Violation};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is fed again, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Blocks.
    Blocks,
    /// A node that is behind and comes back.
    Node,
    /// Lists of the mempool.
    Mempool,
    /// Requests with an idempotency key.
    Idempotency,
    /// Webhooks of others.
    Inbox,
    /// The jobs that run by the clock.
    Jobs,
    /// Callbacks.
    Deliveries,
    /// A start of the daemon.
    Start,
}

impl Input {
    /// Every one.
    pub const ALL: [Input; 8] = [
        Input::Blocks,
        Input::Node,
        Input::Mempool,
        Input::Idempotency,
        Input::Inbox,
        Input::Jobs,
        Input::Deliveries,
        Input::Start,
    ];

    /// As it is named in the report.
    pub fn word(self) -> &'static str {
        match self {
            Input::Blocks => "blocks",
            Input::Node => "node",
            Input::Mempool => "mempool",
            Input::Idempotency => "idempotency",
            Input::Inbox => "inbox",
            Input::Jobs => "jobs",
            Input::Deliveries => "deliveries",
            Input::Start => "start",
        }
    }
}

/// What one pass fed of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub count: u64,
    pub refused: u64,
}

/// One input of one chain, or of none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fed {
    /// Which.
    pub input: Input,
    /// The chain's short name.
    pub chain: Option<String>,
    /// The first block.
    pub from: Option<u64>,
    /// The last one.
    pub to: Option<u64>,
    /// How many, in each pass.
    pub count: u64,
    /// How often all of them were fed.
    pub passes: u32,
    /// How many were refused, as they have to be.
    pub refused: u64,
    /// Why it could not be fed, if so.
    pub why_not: Option<String>,
}

/// What moved before anything was fed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// The table.
    pub table: String,
    /// Rows that were added, changed or removed.
    pub rows: u64,
}

/// What restoring a backup did on a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The chain's short name.
    pub chain: String,
    /// Where the backup stood; `None` = it had read no block.
    pub from: Option<u64>,
    /// The tip that ended the catch-up; `None` = it was not reached.
    pub to: Option<u64>,
    /// Credits that are told anew, in absolutes.
    pub credits_told: u64,
    /// Invoices likewise.
    pub invoices_told: u64,
    /// Nothing of it is left to do.
    pub is_done: bool,
}

/// A row that an input changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// In which pass.
    pub pass: u32,
    /// Which input; `None` where it was not found out.
    pub input: Option<Input>,
    /// Of which chain.
    pub chain: Option<String>,
    /// The table.
    pub table: String,
    /// The row.
    pub key: String,
    /// How it was; `None` = it was not there.
    pub was: Option<String>,
    /// How it is; `None` = it is gone.
    pub is: Option<String>,
}

/// An answer that is not the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unexpected {
    /// In which pass.
    pub pass: u32,
    /// To which input.
    pub input: Input,
    /// Of which chain.
    pub chain: Option<String>,
    /// What came.
    pub what: String,
}

/// A property of the books that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// After which pass; 0 = before anything was fed again.
    pub pass: u32,
    /// Which.
    pub invariant: &'static str,
    /// What it is about.
    pub subject: String,
    /// What is wrong with it.
    pub what: String,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The moment of the copy.
    pub at: String,
    /// The size of the database.
    pub bytes: u64,
    /// Its generation.
    pub generation: i64,
    /// So many days were fed.
    pub days: u32,
    /// So often.
    pub passes: u32,
    /// What restoring the backup did, where one was drilled.
    pub restored: Vec<Restored>,
    /// What moved before.
    pub settled: Vec<Settled>,
    /// What was fed.
    pub fed: Vec<Fed>,
    /// What that changed; the first of it.
    pub changed: Vec<Changed>,
    /// How many rows were changed in all.
    pub changed_rows: u64,
    /// Answers that were not as the first ones.
    pub unexpected: Vec<Unexpected>,
    /// What does not hold of the books.
    pub violations: Vec<Broken>,
    /// Rows that were compared after each pass.
    pub rows: u64,
    /// Tables that were.
    pub tables: u64,
    /// Checks of the books that were made after each.
    pub checks: usize,
    /// Nothing was changed, and everything holds.
    pub is_clean: bool,
    /// Everything could be fed.
    pub is_complete: bool,
    /// Something that came in was there to be fed.
    pub is_tried: bool,
    /// Blocks and lists were left out because somebody said so.
    #[serde(skip)]
    pub is_without_nodes: bool,
    /// Where the copy is, if it was to be kept.
    pub kept: Option<String>,
}

/// Why nothing could be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untried {
    /// Something could not be fed, and nothing else was there.
    NotFed,
    /// Blocks and lists were left out, and nothing else was there.
    LeftOut,
    /// Nothing was there.
    Nothing,
}

/// More of these say nothing new.
const UNEXPECTED_MAX: usize = 100;

impl Report {
    pub(super) fn settle(&mut self, compared: &Compared) {
        let mut tables: BTreeMap<&str, u64> = BTreeMap::new();
        for diff in &compared.diffs {
            *tables.entry(&diff.table).or_default() += 1;
        }
        let settled = |(table, rows): (&str, u64)| Settled {
            table: table.to_owned(),
            rows,
        };
        self.settled = tables.into_iter().map(settled).collect();
    }

    /// The line of an input.
    pub(super) fn of(&mut self, input: Input, chain: Option<&str>) -> &mut Fed {
        let is_it = |fed: &Fed| fed.input == input && fed.chain.as_deref() == chain;
        let place = self.fed.iter().position(is_it).unwrap_or_else(|| {
            self.fed.push(Fed {
                input,
                chain: chain.map(str::to_owned),
                from: None,
                to: None,
                count: 0,
                passes: 0,
                refused: 0,
                why_not: None,
            });
            self.fed.len() - 1
        });
        &mut self.fed[place]
    }

    pub(super) fn note(&mut self, input: Input, chain: Option<&str>, step: Step) {
        let fed = self.of(input, chain);
        (fed.from, fed.to, fed.count) = (step.from, step.to, step.count);
        fed.passes += 1;
        fed.refused += step.refused;
    }

    pub(super) fn change(&mut self, pass: u32, fed: Option<(Input, Option<&str>)>, diff: &RowDiff) {
        self.changed.push(Changed {
            pass,
            input: fed.map(|(input, _)| input),
            chain: fed.and_then(|(_, chain)| chain.map(str::to_owned)),
            table: diff.table.clone(),
            key: diff.key.clone(),
            was: diff.was.clone(),
            is: diff.is.clone(),
        });
    }

    pub(super) fn wonder(&mut self, pass: u32, (input, chain): (Input, Option<&str>), what: String) {
        if self.unexpected.len() < UNEXPECTED_MAX {
            self.unexpected.push(Unexpected {
                pass,
                input,
                chain: chain.map(str::to_owned),
                what,
            });
        }
    }

    pub(super) fn hold_against(&mut self, pass: u32, violations: Vec<Violation>) {
        for violation in violations {
            let known = |broken: &Broken| {
                broken.invariant == violation.invariant.name()
                    && broken.subject == violation.subject
                    && broken.what == violation.what
            };
            if !self.violations.iter().any(known) {
                self.violations.push(Broken {
                    pass,
                    invariant: Invariant::name(violation.invariant),
                    subject: violation.subject,
                    what: violation.what,
                });
            }
        }
    }

    pub(super) fn conclude(&mut self) {
        self.is_clean = self.changed.is_empty() && self.unexpected.is_empty() && self.violations.is_empty();
        // Jobs, and a start, are there in an empty database too.
        let came_in = |fed: &Fed| match fed.input {
            Input::Jobs | Input::Start => false,
            Input::Blocks
            | Input::Node
            | Input::Mempool
            | Input::Idempotency
            | Input::Inbox
            | Input::Deliveries => fed.count > 0,
        };
        self.is_tried = self.fed.iter().any(came_in);
        self.is_complete = self.is_tried && self.fed.iter().all(|fed| fed.why_not.is_none());
    }

    /// Why nothing was tried; `None` where something was.
    pub fn untried(&self) -> Option<Untried> {
        let is_unfed = self.fed.iter().any(|fed| fed.why_not.is_some());
        match (self.is_tried, is_unfed, self.is_without_nodes) {
            (true, _, _) => None,
            (false, true, _) => Some(Untried::NotFed),
            (false, false, true) => Some(Untried::LeftOut),
            (false, false, false) => Some(Untried::Nothing),
        }
    }

    /// For people, one line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "copied {}: generation {}, at {}",
            size(self.bytes),
            self.generation,
            self.at
        )];
        lines.extend(self.restored.iter().map(restored_line));
        if !self.settled.is_empty() {
            let settled: Vec<String> = self.settled.iter().map(settled_words).collect();
            let first = match self.restored.is_empty() {
                true => "settled first",
                false => "the restore brought",
            };
            lines.push(format!("{first}: {}", settled.join(", ")));
        }
        lines.extend(self.fed.iter().map(|fed| self.fed_line(fed)));
        lines.extend(self.violations.iter().map(|broken| {
            let when = match broken.pass {
                0 => "before anything was fed again".to_owned(),
                pass => format!("after pass {pass}"),
            };
            let Broken {
                invariant,
                subject,
                what,
                ..
            } = broken;
            format!("BROKEN   {when}: {invariant} {subject}: {what}")
        }));
        lines.extend(self.unexpected.iter().map(|other| {
            let input = input_words(Some(other.input), other.chain.as_deref());
            format!("OTHER    pass {}, {input}: {}", other.pass, other.what)
        }));
        lines.extend(self.changed.iter().map(changed_line));
        let left = self.changed_rows.saturating_sub(self.changed.len() as u64);
        if left > 0 {
            lines.push(format!("and {} more", counted(left, "row")));
        }
        if let Some(kept) = &self.kept {
            lines.push(format!("{:<12} {kept}, as confidential as a backup", "kept"));
        }
        lines.push(self.last_line());
        lines
    }

    fn fed_line(&self, fed: &Fed) -> String {
        let chain = fed
            .chain
            .as_ref()
            .map_or(String::new(), |chain| format!("{chain} "));
        let head = format!("{:<12} {chain}", fed.input.word());
        if let Some(why) = &fed.why_not {
            return format!("{head}NOT FED: {why}");
        }
        let what = what_words(fed);
        let is_changed = |change: &Changed| change.input == Some(fed.input) && change.chain == fed.chain;
        let is_other = |other: &Unexpected| other.input == fed.input && other.chain == fed.chain;
        let changed = self.changed.iter().filter(|change| is_changed(change)).count() as u64;
        let others = self.unexpected.iter().filter(|other| is_other(other)).count() as u64;
        let outcome = match (changed, others) {
            (0, 0) => well_words(fed),
            (0, others) => format!("{} not as the first time", counted(others, "answer")),
            (changed, 0) => format!("{} CHANGED", counted(changed, "row")),
            (changed, others) => format!(
                "{} CHANGED, {} not as the first time",
                counted(changed, "row"),
                counted(others, "answer")
            ),
        };
        let passes = counted(fed.passes.into(), "pass");
        format!("{:<50} {passes:<8}  {outcome}", format!("{head}{what}"))
    }

    fn last_line(&self) -> String {
        let compared = format!(
            "{} of {}, {}",
            counted(self.rows, "row"),
            counted(self.tables, "table"),
            counted(self.checks as u64, "check")
        );
        match (self.is_clean, self.is_complete) {
            (true, true) => format!("nothing changed: {compared}"),
            (true, false) => match self.untried() {
                Some(why) => {
                    let why = untried_words(why, &counted(self.days.into(), "day"));
                    format!("nothing could be tried: {why}; {compared}")
                }
                None => format!("nothing changed of what was fed: {compared}; not everything could be"),
            },
            (false, _) => {
                let mut found = Vec::new();
                if self.changed_rows > 0 {
                    found.push(format!(
                        "{} would have changed",
                        counted(self.changed_rows, "row")
                    ));
                }
                if !self.unexpected.is_empty() {
                    let count = self.unexpected.len() as u64;
                    found.push(format!("{} would have been another", counted(count, "answer")));
                }
                if !self.violations.is_empty() {
                    let count = self.violations.len() as u64;
                    found.push(format!(
                        "{} of the books {} not hold",
                        counted(count, "property"),
                        if count == 1 { "does" } else { "do" }
                    ));
                }
                format!(
                    "{}; production was not touched: this was a copy",
                    found.join(", ")
                )
            }
        }
    }
}

/// A report without anything in it yet.
pub(super) fn begin(at_ms: i64, bytes: u64, generation: i64, (days, passes): (u32, u32)) -> Report {
    Report {
        at: rfc3339(at_ms),
        bytes,
        generation,
        days,
        passes,
        checks: CHECKS,
        ..Report::default()
    }
}
