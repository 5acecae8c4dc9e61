//! The high-water file beside the database: how far each chain was followed, and how many events were told,
//! as of the last commit that changed that. It is not part of a backup, so a database that is behind it was
//! restored from one. It is written after the commit, and before it only where a mark goes down: behind the
//! database it is harmless, ahead of it it would cry wolf.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::codec::{int, uint};
use super::database::{generation, last_event};
use super::finding::Finding;
use super::lock::beside;
use super::owners::Owners;
use super::restore::{self, Begin, Reserved};
use super::transact::{Writer, transact};
use super::{AddressTake, CursorMove, StoreError, address_sources, marks_file, restored_ranges};

/// So many indexes are reserved at a time. A kill loses what is left of them; wallets that look for coin only
/// so far ahead of the last used address must not be led further than needed.
const RESERVED_AHEAD: u64 = 64;

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// Generation of the database that wrote it.
    generation: i64,
    /// Where each chain's cursor was last in this generation; while a restored database catches up, where it
    /// had been before.
    cursors: BTreeMap<String, u64>,
    /// Of each source of addresses: below this index any may have been handed out, which a restored database
    /// must not hand out again.
    #[serde(default)]
    reserved: BTreeMap<String, u64>,
    /// Who took which of them.
    #[serde(default)]
    owners: BTreeMap<String, Owners>,
    /// Of each source: below this index all were handed out, as of the last commit that did.
    #[serde(default)]
    handed: BTreeMap<String, u64>,
    /// The number of the last event, as of the last commit of a daemon.
    #[serde(default)]
    event: u64,
}

/// The file, and what it should say.
#[derive(Debug)]
pub(super) struct HighWater {
    path: PathBuf,
    marks: Marks,
    /// Where the database is.
    cursors: BTreeMap<String, u64>,
    /// The file ends with a whole line of ours, so that another may be added.
    may_grow: bool,
    /// A mark went down, and the file that a power loss leaves may still have the higher one.
    is_lower_unsynced: bool,
}

/// What was found when the file was read.
#[derive(Debug)]
enum Reading {
    /// There is none: a new database, or a folder it was moved to without it.
    Absent,
    /// It cannot be read; why.
    Broken(String),
    /// It says this.
    Marks(Marks),
}

/// `ledger.db` -> `ledger.db.highwater`.
fn read_marks(database: &Path) -> Reading {
    let lines = match marks_file::read(&beside(database, ".highwater")) {
        Ok(lines) => lines,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Reading::Absent,
        Err(error) => return Reading::Broken(error.to_string()),
    };
    let mut why = "it has no whole line".to_owned();
    for line in lines.iter().rev() {
        match serde_json::from_slice(line) {
            Ok(marks) => return Reading::Marks(marks),
            Err(error) => why = error.to_string(),
        }
    }
    Reading::Broken(why)
}

impl HighWater {
    /// Goes on from `marks`.
    fn new(database: &Path, marks: Marks, cursors: BTreeMap<String, u64>) -> HighWater {
        HighWater {
            path: beside(database, ".highwater"),
            marks,
            cursors,
            may_grow: false,
            is_lower_unsynced: false,
        }
    }

    /// Takes in what a committed transaction did. True where the file should say so: what an event told is
    /// never told under the same number in other words, also where no cursor moved by it.
    pub(super) fn note(
        &mut self,
        (generation, event): (i64, u64),
        moves: &[CursorMove],
        takes: &[AddressTake],
    ) -> bool {
        let is_news = event != self.marks.event || !(moves.is_empty() && takes.is_empty());
        self.marks.event = event;
        for take in takes {
            let handed = self.marks.handed.entry(take.source.clone()).or_insert(0);
            *handed = (take.number + 1).max(*handed);
        }
        if generation != self.marks.generation {
            self.marks.generation = generation;
            self.marks.cursors.clear();
        }
        follow(&mut self.marks.cursors, &mut self.cursors, moves);
        is_news
    }

    /// Before the commit of a transaction that takes a mark down: a file that is ahead of the database, be
    /// it after a kill or a power loss, would tell of a restore. If the commit comes to nothing, the mark is
    /// too low until the next one, which is harmless.
    pub(super) fn lower(&mut self, moves: &[CursorMove]) {
        if moves.is_empty() {
            return;
        }
        let mut marks = self.marks.cursors.clone();
        follow(&mut marks, &mut self.cursors.clone(), moves);
        for (caip, mark) in &mut self.marks.cursors {
            if let Some(next) = marks.get(caip).filter(|next| *next < mark) {
                *mark = *next;
                self.is_lower_unsynced = true;
            }
        }
        if self.is_lower_unsynced {
            // What fails is tried again after the commit, and told then.
            let _ = self.save_durably();
        }
    }

    /// Makes sure, before they are handed out, that these addresses are never handed out again by an older
    /// state of the database. Some more are reserved with them, so that not every one costs a sync; who took
    /// which is written without one, and what a power loss takes of that is not known any more.
    pub(super) fn reserve(&mut self, takes: &[AddressTake]) -> Result<(), StoreError> {
        let before = (self.marks.reserved.clone(), self.marks.owners.clone());
        for take in takes {
            let mark = self.marks.reserved.entry(take.source.clone()).or_insert(0);
            if take.number >= *mark {
                *mark = take.number + RESERVED_AHEAD;
            }
            let owners = self.marks.owners.entry(take.source.clone()).or_default();
            owners.take(take.number, &take.merchant);
        }
        let saved = match self.marks.reserved == before.0 {
            true if self.marks.owners == before.1 => return Ok(()),
            true => self.save(),
            false => self.save_durably(),
        };
        if saved.is_err() {
            (self.marks.reserved, self.marks.owners) = before;
        }
        saved
    }

    /// Gives back what was reserved ahead and not used, at a stop at which the database is whole, and writes
    /// the file with what is exact then.
    pub(super) fn settle(&mut self, conn: &Connection) -> Result<(), StoreError> {
        for (source, first_free) in address_sources::first_free(conn)? {
            if let Some(mark) = self.marks.reserved.get_mut(&source) {
                *mark = first_free.min(*mark);
            }
        }
        self.marks.event = last_event(conn)?;
        self.save_durably()
    }

    /// Skips, at a start, every address that may have been handed out: by a later state of the database, or
    /// by this one before it was killed, which cannot be told apart.
    pub(super) fn skip_reserved(&self, conn: &Connection, epoch: i64) -> Result<(), StoreError> {
        if self.marks.reserved.is_empty() {
            return Ok(());
        }
        transact(conn, Writer::Daemon { epoch }, |conn| {
            address_sources::skip_reserved(conn, &self.marks.reserved)
        })
    }

    /// Begins a new generation, in a transaction of its own and before anything is read from a chain: what
    /// the restored database tells from now on must not carry version numbers that were told before. What is
    /// to be done stands in the database from then on, and a start in the middle of it begins nothing anew.
    pub(super) fn begin_generation(
        &mut self,
        conn: &Connection,
        epoch: i64,
        findings: &[Finding],
    ) -> Result<(), StoreError> {
        if !is_news(conn, findings)? {
            return Ok(());
        }
        let next = generation(conn)?.max(self.marks.generation) + 1;
        let (marks, reserved) = (self.marks.cursors.clone(), reserved(&self.marks));
        let restores = findings.iter().filter(|finding| finding.is_restore());
        let reason: Vec<String> = restores.map(ToString::to_string).collect();
        let begin = Begin {
            generation: next,
            actor: "daemon",
            reason: reason.join("; "),
            at: None,
            marks,
            reserved,
        };
        transact(conn, Writer::Daemon { epoch }, |conn| {
            restore::begin(conn, &begin)
        })?;
        self.marks.generation = next;
        self.marks.event = last_event(conn)?;
        self.save_durably()
    }

    /// Writes what is to be said as far as the operating system: a power loss may take it, and no more than
    /// that. Not needed at every commit: a file that is a little behind finds a restored backup all the same.
    pub(super) fn save(&mut self) -> Result<(), StoreError> {
        if self.is_lower_unsynced {
            return self.save_durably();
        }
        let line = self.line()?;
        if std::mem::take(&mut self.may_grow) {
            let added = marks_file::append(&self.path, &line);
            self.may_grow = added.map_err(|error| StoreError::file("write", &self.path, error))?;
        }
        match self.may_grow {
            true => Ok(()),
            false => self.replace(&line),
        }
    }

    /// Writes it so that it survives a power loss.
    pub(super) fn save_durably(&mut self) -> Result<(), StoreError> {
        let line = self.line()?;
        self.replace(&line)
    }

    fn line(&self) -> Result<String, StoreError> {
        let failed = |error: serde_json::Error| StoreError::file("write", &self.path, error.into());
        serde_json::to_string(&self.marks).map_err(failed)
    }

    fn replace(&mut self, line: &str) -> Result<(), StoreError> {
        self.may_grow = false;
        marks_file::replace(&self.path, line)?;
        (self.may_grow, self.is_lower_unsynced) = (true, false);
        Ok(())
    }
}

/// Where the marks are, and the cursors themselves, after these moves.
fn follow(marks: &mut BTreeMap<String, u64>, cursors: &mut BTreeMap<String, u64>, moves: &[CursorMove]) {
    for step in moves {
        let before = cursors.insert(step.caip.clone(), step.height);
        let mark = marks.entry(step.caip.clone()).or_insert(step.height);
        // One that was not behind goes lower by a reorg, to fewer blocks with more work. One that is behind
        // stays so until it has caught up.
        let was_behind = before.is_none_or(|before| before < *mark);
        *mark = match was_behind && !step.is_reanchor {
            true => step.height.max(*mark),
            false => step.height,
        };
    }
}

/// What the file beside a database says, for somebody who does not write it.
#[derive(Default)]
pub(super) struct Told {
    /// Of the database that wrote it.
    pub generation: i64,
    /// Where each chain was.
    pub cursors: BTreeMap<String, u64>,
    /// Addresses that may have been handed out.
    pub reserved: Vec<Reserved>,
}

/// Reads it; nothing where there is none, or none that can be read.
pub(super) fn told(path: &Path) -> Told {
    match read_marks(path) {
        Reading::Marks(marks) => Told {
            generation: marks.generation,
            reserved: reserved(&marks),
            cursors: marks.cursors,
        },
        Reading::Absent | Reading::Broken(_) => Told::default(),
    }
}

fn reserved(marks: &Marks) -> Vec<Reserved> {
    let of = |(source, end): (&String, &u64)| Reserved {
        source: source.clone(),
        end: *end,
        owners: marks.owners.get(source).cloned().unwrap_or_default(),
    };
    marks.reserved.iter().map(of).collect()
}

/// Compares the database with the file beside it, and goes on from both.
pub(super) fn compare(conn: &Connection, path: &Path) -> Result<(HighWater, Vec<Finding>), StoreError> {
    let database = generation(conn)?;
    let mut findings = Vec::new();
    let mut marks = match read_marks(path) {
        Reading::Marks(marks) => marks,
        Reading::Absent => Marks::default(),
        Reading::Broken(reason) => {
            findings.push(Finding::HighWaterUnreadable { reason });
            Marks::default()
        }
    };
    if marks.generation > database {
        findings.push(Finding::OlderGeneration {
            database,
            high_water: marks.generation,
        });
    }
    if marks.generation < database {
        // A restore was noticed and the program ended before it wrote the file: the marks are of a former
        // life.
        marks.cursors.clear();
        marks.generation = database;
        marks.event = 0;
        marks.handed.clear();
    }
    let cursors = cursors(conn)?;
    for (caip, &high_water) in &marks.cursors {
        let cursor = cursors.get(caip).copied();
        if cursor.is_none_or(|cursor| cursor < high_water) {
            findings.push(Finding::BehindHighWater {
                caip: caip.clone(),
                cursor,
                high_water,
            });
        }
    }
    // These tell what the others do not: an older state that is told already is told by one of them alone.
    if !is_news(conn, &findings)? {
        let event = last_event(conn)?;
        if event < marks.event {
            findings.push(Finding::FewerEvents {
                database: event,
                high_water: marks.event,
            });
        } else {
            findings.extend(fewer_addresses(conn, &marks)?);
        }
    }
    Ok((HighWater::new(path, marks, cursors), findings))
}

/// Does any of these tell of a restore that does not stand in the database yet?
fn is_news(conn: &Connection, findings: &[Finding]) -> Result<bool, StoreError> {
    for finding in findings {
        let is_known = match finding {
            Finding::BehindHighWater { caip, high_water, .. } => {
                restore::is_catching_up(conn, caip, int(*high_water)?)?
            }
            other => !other.is_restore(),
        };
        if !is_known {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Addresses that were handed out here and not by the database. What was reserved ahead of a kill is no sign
/// of that; a source that the database does not know is.
fn fewer_addresses(conn: &Connection, marks: &Marks) -> Result<Vec<Finding>, StoreError> {
    let known: BTreeMap<String, u64> = address_sources::first_free(conn)?.into_iter().collect();
    let mut found = Vec::new();
    for (source, &reserved) in &marks.reserved {
        let (first_free, handed) = (known.get(source).copied(), marks.handed.get(source).copied());
        let (is_fewer, high_water) = match first_free {
            Some(first_free) => (Some(first_free) < handed, handed.unwrap_or_default()),
            None => (!restored_ranges::has(conn, source, reserved)?, reserved),
        };
        if is_fewer {
            found.push(Finding::FewerAddresses {
                source: source.clone(),
                database: first_free.unwrap_or_default(),
                high_water,
            });
        }
    }
    Ok(found)
}

/// The height of each chain that has read a block.
fn cursors(conn: &Connection) -> Result<BTreeMap<String, u64>, StoreError> {
    let known = "SELECT caip, cursor_height FROM chains WHERE cursor_height IS NOT NULL";
    let mut statement = conn.prepare(known)?;
    let mut rows = statement.query([])?;
    let mut cursors = BTreeMap::new();
    while let Some(row) = rows.next()? {
        cursors.insert(row.get(0)?, uint(row.get(1)?)?);
    }
    Ok(cursors)
}
