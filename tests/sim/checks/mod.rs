//! What must always hold, asked from outside of the store as well as of its tables.

mod delivery;
mod ledger;
mod outside;
mod rest;
mod step;

use crate::disk::{Folder, observing};
use crate::naive::Moment;
use crate::receivers::Receivers;
use crate::script::Terms;
use crate::tables::Tables;
use crate::world::World;
use creditd::store::{Database, LedgerSnapshot, OpenMode};
use delivery::{Queue, Told};
use std::fmt;
use step::Tails;

/// So many steps between two looks at everything.
const WHOLE_EVERY: u32 = 64;

/// After a clean stop, the books are gone through at one start of so many; after any other end, at each.
const STOPPED_EVERY: u32 = 4;

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

/// Handles for looking.
struct Eyes {
    database: Database,
    tables: Tables,
}

pub struct Checks {
    eyes: Option<Eyes>,
    window: u64,
    steps: u32,
    /// What was in the ledger when it was last looked at as a whole.
    ledger: Option<LedgerSnapshot>,
    /// Changes that SQLite counted at the last look.
    version: i64,
    tails: Tails,
    told: Told,
    queue: Queue,
    is_api: bool,
    /// What a restore loses is not told apart yet from what must not be lost.
    is_restored: bool,
    is_upgraded: bool,
    /// Its first start is still to come.
    is_new_version: bool,
    /// The daemon may have forgotten what it answered.
    is_forgotten: bool,
    /// The answer that told a secret was lost, and the request would be another one by now.
    are_secrets_lost: bool,
    old_policies: Vec<u8>,
    evict_after_ms: i64,
    generation: i64,
    /// A generation begins with a restore, or by an operator's word; never by itself.
    may_begin: bool,
    /// The last life ended by a clean stop.
    was_stopped: bool,
    /// How many have.
    stops: u32,
}

impl Checks {
    pub fn new(terms: &Terms) -> Checks {
        Checks {
            eyes: None,
            window: terms.window.into(),
            steps: 0,
            ledger: None,
            version: -1,
            tails: Tails::default(),
            told: Told::default(),
            queue: Queue::default(),
            is_api: terms.api,
            is_restored: false,
            is_upgraded: false,
            is_new_version: false,
            is_forgotten: false,
            are_secrets_lost: false,
            old_policies: Vec::new(),
            evict_after_ms: i64::from(terms.evict_s) * 1_000,
            generation: 0,
            may_begin: false,
            was_stopped: false,
            stops: 0,
        }
    }

    /// The life that ended now did so by a clean stop.
    pub fn stopped(&mut self) {
        self.was_stopped = true;
        self.stops += 1;
    }

    /// The life that is looked at ends. The handles only look, so they may stay for the next one.
    pub fn life_ended(&mut self) {
        self.version = -1;
        self.was_stopped = false;
    }

    /// Handles are closed: other files take the place of those that they look at.
    pub fn let_go(&mut self) {
        self.disturbed();
        self.eyes = None;
        self.life_ended();
    }

    fn eyes(&mut self, folder: &Folder) -> &Eyes {
        self.eyes.get_or_insert_with(|| {
            let path = folder.database();
            observing(|| {
                let database = Database::open(&path, OpenMode::ReadOnly).unwrap();
                database.read(|tx| tx.chains().map(drop)).unwrap();
                let tables = Tables::open(&path);
                tables.version();
                Eyes { database, tables }
            })
        })
    }

    /// Where the chains stand, for the trace.
    pub fn place(&mut self, folder: &Folder) -> String {
        let sql = "SELECT group_concat(alias || ' ' || state || ' ' || coalesce(cursor_height, '-'), ', ') \
                   FROM chains";
        let place = self
            .eyes(folder)
            .tables
            .rows(sql, |row| row.get::<_, Option<String>>(0));
        place.into_iter().flatten().flatten().collect()
    }

    /// After every span of time. `policy` is the number of the one that applies.
    pub fn step(
        &mut self,
        (folder, world): (&Folder, &World),
        heard: &Receivers,
        policy: u8,
    ) -> Result<(), Fault> {
        self.hear(heard)?;
        let version = self.eyes(folder).tables.version();
        if version == self.version {
            return Ok(());
        }
        self.version = version;
        self.steps += 1;
        self.follow(folder, world)?;
        match self.steps % WHOLE_EVERY {
            0 => self.whole((folder, world), policy),
            _ => Ok(()),
        }
    }

    /// After every start.
    pub fn restarted(&mut self, at: (&Folder, &World), policy: u8) -> Result<(), Fault> {
        self.generations(at.0)?;
        self.versions(at.0)?;
        match std::mem::take(&mut self.was_stopped) && !self.stops.is_multiple_of(STOPPED_EVERY) {
            true => self.scan(at, policy, Moment::Cursor),
            false => self.whole(at, policy),
        }
    }

    /// From now on the daemon is of the next version. True if it was before.
    pub fn upgraded(&mut self) -> bool {
        creditd::store::next_version::begin();
        let was_before = std::mem::replace(&mut self.is_upgraded, true);
        self.is_new_version = !was_before;
        was_before
    }

    /// I23: what started is wholly of its version. The next one has a table that is filled from the credits.
    fn versions(&mut self, folder: &Folder) -> Result<(), Fault> {
        let (is_upgraded, is_new) = (self.is_upgraded, std::mem::take(&mut self.is_new_version));
        let tables = &self.eyes(folder).tables;
        let version = tables.count("PRAGMA user_version");
        if version != 1 + i64::from(is_upgraded) {
            return Err(Fault::new("I23", format!("it runs on version {version}")));
        }
        if !is_upgraded {
            return Ok(());
        }
        crate::marks::hit("upgraded");
        let absent = "SELECT count(*) FROM credits WHERE id NOT IN (SELECT id FROM next_credits)";
        let foreign = "SELECT count(*) FROM next_credits n \
                       WHERE NOT EXISTS (SELECT 1 FROM credits WHERE id = n.id AND merchant = n.merchant)";
        match (is_new && tables.count(absent) > 0, tables.count(foreign)) {
            (false, 0) => Ok(()),
            (_, foreign) => Err(Fault::new(
                "I23",
                format!("half an upgrade: {foreign} rows of nobody"),
            )),
        }
    }

    /// I24: a generation begins where an older file was put in place, and nowhere else.
    fn generations(&mut self, folder: &Folder) -> Result<(), Fault> {
        let sql = "SELECT generation FROM meta";
        let now = self
            .eyes(folder)
            .tables
            .rows(sql, |row| row.get::<_, i64>(0).unwrap())[0];
        let before = std::mem::replace(&mut self.generation, now);
        let may_begin = std::mem::take(&mut self.may_begin);
        match now < before || (now > before && !may_begin) {
            true => Err(Fault::new("I24", format!("generation {now} after {before}"))),
            false => Ok(()),
        }
    }

    /// An operator says that an older file was put in place.
    pub fn declared(&mut self) {
        self.may_begin = true;
    }

    /// A part of a daemon that is alive ended: only a disk that failed it is a good reason, and one that is
    /// full has not failed.
    pub fn ended(&mut self, name: &str, why: &str) -> Result<(), Fault> {
        let is_of_disk = ["disk", "I/O", "database file"]
            .iter()
            .any(|word| why.contains(word));
        match is_of_disk && crate::disk::has_failed() && !why.contains("is full") {
            true => Ok(()),
            false => Err(Fault::new("I30", format!("the {name} ended by itself: {why}"))),
        }
    }

    /// I30: whoever writes on after the disk failed the log has nothing to go by any more.
    pub fn ran(&mut self, log_failures: u64) -> Result<(), Fault> {
        match log_failures {
            0 => Ok(()),
            _ => Err(Fault::new("I30", "it goes on though the disk failed its log")),
        }
    }

    /// The time of answers is over, or an older database is back.
    pub fn may_forget(&mut self) {
        self.is_forgotten = true;
    }

    /// Nobody can tell some receivers what they are signed with.
    pub fn secrets_lost(&mut self) {
        self.are_secrets_lost = true;
    }

    /// Another policy applies once the follower of each chain has begun; until then, this one.
    pub fn policy_edited(&mut self, old: u8) {
        self.old_policies.push(old);
    }
}
