//! What must always hold, asked from outside of the store as well as of its tables.

mod ledger;
mod rest;

use crate::disk::{Folder, looking};
use crate::receivers::Receivers;
use crate::script::Terms;
use crate::world::World;
use creditd::store::{Database, LedgerSnapshot, OpenMode};
use rusqlite::{Connection, OpenFlags};
use std::fmt;

/// So many steps between two looks at everything.
const WHOLE_EVERY: u32 = 64;

/// Something that does not hold, by the name of what must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub name: &'static str,
    pub what: String,
}

impl Fault {
    pub fn new(name: &'static str, what: impl Into<String>) -> Fault {
        Fault {
            name,
            what: what.into(),
        }
    }

    /// The name, and the words without what differs from seed to seed.
    pub fn class(&self) -> String {
        let words = self.what.split_whitespace();
        let words = words.filter(|word| {
            let is_plain = word
                .chars()
                .all(|c| c.is_ascii_lowercase() || ",;:'.".contains(c));
            is_plain && word.len() < 16
        });
        let words: Vec<&str> = words.take(8).collect();
        format!("{} {}", self.name, words.join(" "))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

/// Handles for looking, of one life.
struct Eyes {
    database: Database,
    conn: Connection,
}

pub struct Checks {
    eyes: Option<Eyes>,
    window: u64,
    steps: u32,
    /// What was in the ledger when it was last looked at as a whole.
    ledger: Option<LedgerSnapshot>,
    /// Changes that SQLite counted at the last look.
    version: i64,
}

impl Checks {
    pub fn new(terms: &Terms) -> Checks {
        Checks {
            eyes: None,
            window: terms.window.into(),
            steps: 0,
            ledger: None,
            version: -1,
        }
    }

    /// Handles are closed: the life that they look at ends.
    pub fn let_go(&mut self) {
        self.eyes = None;
        self.version = -1;
    }

    fn eyes(&mut self, folder: &Folder) -> &Eyes {
        self.eyes.get_or_insert_with(|| {
            let path = folder.database();
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            looking(|| {
                let database = Database::open(&path, OpenMode::ReadOnly).unwrap();
                database.read(|tx| tx.chains().map(drop)).unwrap();
                let conn = Connection::open_with_flags(&path, flags).unwrap();
                let version = conn.query_row("PRAGMA schema_version", [], |row| row.get::<_, i64>(0));
                version.unwrap();
                Eyes { database, conn }
            })
        })
    }

    /// Where the chains stand, for the trace.
    pub fn place(&mut self, folder: &Folder) -> String {
        let sql = "SELECT group_concat(alias || ' ' || state || ' ' || coalesce(cursor_height, '-'), ', ') \
                   FROM chains";
        let place: Option<String> = self
            .eyes(folder)
            .conn
            .query_row(sql, [], |row| row.get(0))
            .unwrap();
        place.unwrap_or_default()
    }

    /// After every span of time.
    pub fn step(&mut self, folder: &Folder, world: &World, _heard: &Receivers) -> Result<(), Fault> {
        let eyes = self.eyes(folder);
        let version: i64 = eyes
            .conn
            .query_row("PRAGMA data_version", [], |row| row.get(0))
            .unwrap();
        if version == self.version {
            return Ok(());
        }
        self.version = version;
        self.steps += 1;
        match self.steps % WHOLE_EVERY {
            0 => self.whole(folder, world),
            _ => Ok(()),
        }
    }

    /// After every start.
    pub fn restarted(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        self.whole(folder, world)
    }

    /// A part of a daemon that is alive ended: only some reasons are good ones.
    pub fn ended(&mut self, name: &str, why: &str) -> Result<(), Fault> {
        let is_good = why.contains("disk") || why.contains("I/O") || why.contains("epoch");
        match is_good {
            true => Ok(()),
            false => Err(Fault::new("I30", format!("the {name} ended by itself: {why}"))),
        }
    }

    pub fn before_power_loss(&mut self) {}

    /// What outsiders were told is still there.
    pub fn after_power_loss(&mut self, _folder: &Folder) -> Result<(), Fault> {
        Ok(())
    }
}
