//! The high-water file beside the database: how far each chain was followed, as of the last commit that moved
//! a cursor. It is not part of a backup, so a database that is behind it was restored from one. It is written
//! after the commit, never before: behind the database it is harmless, ahead of it it would cry wolf.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::codec::uint;
use super::database::generation;
use super::lock::beside;
use super::transact::{Writer, transact};
use super::{AddressTake, CursorMove, StoreError, address_sources};

/// A larger file is not one that we wrote.
const BYTES_MAX: u64 = 1 << 20;

/// So many indexes are reserved at a time. A kill loses what is left of them; wallets that look for coin only
/// so far ahead of the last used address must not be led further than needed.
const RESERVED_AHEAD: u64 = 64;

/// Something noticed while opening that is no error, but that somebody must hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The cursor is below the high-water mark of its generation, and no reorg took it there: a restore.
    BehindHighWater {
        /// The chain.
        caip: String,
        /// Where the database is; `None` if it does not know the chain or has read no block.
        cursor: Option<u64>,
        /// Where it was.
        high_water: u64,
    },
    /// The database is of an earlier generation than the one that last ran here: it was restored.
    OlderGeneration {
        /// The database's.
        database: i64,
        /// The high-water file's.
        high_water: i64,
    },
    /// The high-water file cannot be read, so that a restored backup would not be noticed. It is written
    /// anew.
    HighWaterUnreadable {
        /// Why.
        reason: String,
    },
}

impl Finding {
    /// True when the database was restored from a backup.
    pub(super) fn is_restore(&self) -> bool {
        match self {
            Finding::BehindHighWater { .. } | Finding::OlderGeneration { .. } => true,
            Finding::HighWaterUnreadable { .. } => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::BehindHighWater {
                caip,
                cursor: Some(cursor),
                high_water,
            } => {
                let behind = high_water.saturating_sub(*cursor);
                write!(
                    f,
                    "{caip}: the cursor is {behind} blocks behind the high-water file: restored from \
                     a backup?"
                )
            }
            Finding::BehindHighWater { caip, high_water, .. } => {
                write!(
                    f,
                    "{caip}: no cursor, but the high-water file has {high_water}: restored from a backup?"
                )
            }
            Finding::OlderGeneration { database, high_water } => {
                write!(
                    f,
                    "generation {database} of the database, {high_water} ran here: restored from a backup"
                )
            }
            Finding::HighWaterUnreadable { reason } => {
                write!(
                    f,
                    "the high-water file is unreadable ({reason}): a restored backup would go unnoticed"
                )
            }
        }
    }
}

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
}

/// The file, and what it should say.
#[derive(Debug)]
pub(super) struct HighWater {
    path: PathBuf,
    marks: Marks,
    /// Where the database is.
    cursors: BTreeMap<String, u64>,
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
    let mut text = String::new();
    let file = match File::open(beside(database, ".highwater")) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Reading::Absent,
        Err(error) => return Reading::Broken(error.to_string()),
    };
    if let Err(error) = file.take(BYTES_MAX).read_to_string(&mut text) {
        return Reading::Broken(error.to_string());
    }
    match serde_json::from_str(&text) {
        Ok(marks) => Reading::Marks(marks),
        Err(error) => Reading::Broken(error.to_string()),
    }
}

impl HighWater {
    /// Goes on from `marks`.
    fn new(database: &Path, marks: Marks, cursors: BTreeMap<String, u64>) -> HighWater {
        HighWater {
            path: beside(database, ".highwater"),
            marks,
            cursors,
        }
    }

    /// Takes in what a committed transaction did.
    pub(super) fn note(&mut self, generation: i64, moves: &[CursorMove]) {
        if generation != self.marks.generation {
            self.marks.generation = generation;
            self.marks.cursors.clear();
        }
        for step in moves {
            let before = self.cursors.insert(step.caip.clone(), step.height);
            let mark = self.marks.cursors.entry(step.caip.clone()).or_insert(step.height);
            // One that was not behind goes lower by a reorg, to fewer blocks with more work. One that is
            // behind stays so until it has caught up.
            let was_behind = before.is_none_or(|before| before < *mark);
            *mark = if was_behind && !step.is_reanchor {
                step.height.max(*mark)
            } else {
                step.height
            };
        }
    }

    /// Makes sure, before they are handed out, that these addresses are never handed out again by an older
    /// state of the database. Some more are reserved with them, so that not every one costs a sync.
    pub(super) fn reserve(&mut self, takes: &[AddressTake]) -> Result<(), StoreError> {
        let before = self.marks.reserved.clone();
        for take in takes {
            let mark = self.marks.reserved.entry(take.source.clone()).or_insert(0);
            if take.number >= *mark {
                *mark = take.number + RESERVED_AHEAD;
            }
        }
        if self.marks.reserved == before {
            return Ok(());
        }
        let saved = self.save_durably();
        if saved.is_err() {
            self.marks.reserved = before;
        }
        saved
    }

    /// Gives back what was reserved ahead and not used, at a stop at which the database is whole.
    pub(super) fn settle_reserved(&mut self, conn: &Connection) -> Result<(), StoreError> {
        for (source, first_free) in address_sources::first_free(conn)? {
            if let Some(mark) = self.marks.reserved.get_mut(&source) {
                *mark = first_free.min(*mark);
            }
        }
        Ok(())
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
    /// the restored database tells from now on must not carry version numbers that were told before. Done at
    /// each start until it has caught up; a number too many harms nobody.
    pub(super) fn begin_generation(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let next = generation(conn)?.max(self.marks.generation) + 1;
        conn.execute("UPDATE meta SET generation = ?1 WHERE id = 1", [next])?;
        self.marks.generation = next;
        self.save_durably()
    }

    /// Writes the file: whole under another name first, so that a crash leaves the old or the new one.
    pub(super) fn save(&self) -> Result<(), StoreError> {
        self.put(false)
    }

    /// Writes the file so that it survives a power loss. Too slow for every commit, and not needed then: a
    /// file that is a little behind finds a restored backup all the same.
    pub(super) fn save_durably(&self) -> Result<(), StoreError> {
        self.put(true)
    }

    fn put(&self, is_durable: bool) -> Result<(), StoreError> {
        let failed = |error| StoreError::file("write", &self.path, error);
        let mut text = serde_json::to_string(&self.marks).map_err(|error| failed(error.into()))?;
        text.push('\n');
        let temporary = beside(&self.path, ".new");
        let mut file = File::create(&temporary).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        if is_durable {
            file.sync_all().map_err(failed)?;
        }
        std::fs::rename(&temporary, &self.path).map_err(failed)?;
        if is_durable {
            sync_folder(&self.path)?;
        }
        Ok(())
    }
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
    Ok((HighWater::new(path, marks, cursors), findings))
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

/// Makes a rename inside the folder of `path` survive a power loss.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| StoreError::file("sync the folder of", path, error))
}
