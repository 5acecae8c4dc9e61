//! The folder of a seed, and the faults of its disk. The database in it is watched by `creditd_vfs`; what
//! the daemon writes past SQLite (the high-water file) is followed by the points that it passes.

use crate::marks::hit;
use crate::script::DiskAct;
use creditd::points;
use creditd::store::{Database, Existing, OpenMode};
use creditd_vfs::{self as vfs, Hit, Op};
use rusqlite::ffi;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder in memory with a fresh database, and slots for backups. One at a time is watched on a thread.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    is_watched: bool,
}

/// What a loss of power took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub writes: u32,
    pub torn: u32,
    pub reordered: u32,
    pub highwater: bool,
}

thread_local! {
    /// The high-water file of the watched folder, and what of it a power loss leaves.
    static HIGH_WATER: RefCell<Option<(PathBuf, Option<Vec<u8>>)>> = const { RefCell::new(None) };
    /// A fault of the disk met the daemon since it started.
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
    /// Failures of the log that another process was told of while the daemon ran.
    static OTHERS: Cell<u64> = const { Cell::new(0) };
}

/// An empty database with all its tables, and its high-water file.
static TEMPLATE: OnceLock<(Vec<u8>, Option<Vec<u8>>)> = OnceLock::new();

static FOLDERS: AtomicU64 = AtomicU64::new(0);

/// Beside a database in use: its log, and the index of that.
const LOGS: [&str; 2] = ["-wal", "-shm"];

impl Folder {
    /// Clones the template, which is made once per process, and watches it on this thread.
    pub fn fresh(name: &str) -> Folder {
        let mut folder = Folder::plain(name);
        vfs::install_alone();
        vfs::begin(&folder.path);
        OTHERS.set(0);
        folder.is_watched = true;
        let high_water = folder.beside(".highwater");
        let durable = std::fs::read(&high_water).ok();
        HIGH_WATER.set(Some((high_water, durable)));
        folder
    }

    /// The same on a disk without faults, for databases beside the one of the seed.
    pub fn plain(name: &str) -> Folder {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let folder = Folder {
            path: PathBuf::from(format!("/dev/shm/creditd-sim-{process}-{number}-{name}")),
            is_watched: false,
        };
        std::fs::create_dir_all(&folder.path).unwrap();
        let (database, high_water) = TEMPLATE.get_or_init(|| make_template(&folder));
        std::fs::write(folder.database(), database).unwrap();
        if let Some(bytes) = high_water {
            std::fs::write(folder.beside(".highwater"), bytes).unwrap();
        }
        folder
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("ledger.db")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.path.join(format!("ledger.db{suffix}"))
    }

    fn slot(&self, slot: u8) -> PathBuf {
        self.path.join(format!("slot-{slot}.db"))
    }

    /// Makes a backup as `creditd backup` does, beside the daemon.
    pub fn back_up(&self, slot: u8) -> io::Result<()> {
        let made = vfs::aside(|| {
            let database = Database::open(&self.database(), OpenMode::ReadOnly)?;
            database.backup(&self.slot(slot), Existing::Replace, |_| {})
        });
        made.map(drop).map_err(io::Error::other)
    }

    /// Copies the backup of a slot over the database, with the daemon gone. `wal`: its log is left lying
    /// there, as whoever forgets it does. False: there is none.
    pub fn restore(&self, slot: u8, wal: bool) -> bool {
        if !self.slot(slot).exists() {
            return false;
        }
        assert!(vfs::open_handles() == 0, "the daemon runs");
        std::fs::copy(self.slot(slot), self.database()).unwrap();
        if !wal {
            self.remove_log();
        }
        vfs::settle();
        true
    }

    /// An operator does what a refused start says. False: it does not name what has to go.
    pub fn is_cured(&self, why: &str) -> bool {
        let log = self.beside("-wal").display().to_string();
        let is_named = why.contains(&format!("remove {log}")) && why.contains("-shm");
        if is_named {
            self.remove_log();
        }
        is_named
    }

    /// Removes the log of the database that a backup was copied over.
    pub fn remove_log(&self) {
        for suffix in LOGS {
            let _ = std::fs::remove_file(self.beside(suffix));
        }
        vfs::settle();
    }

    /// All open handles are dead, as after `kill -9`.
    pub fn kill(&self) {
        vfs::kill();
    }

    /// After `kill`: what was not synced may be gone. `next(n)` draws a number below `n`.
    pub fn lose_power(&self, next: &mut dyn FnMut(u64) -> u64) -> Lost {
        let lost = vfs::lose_power(next);
        let highwater = HIGH_WATER.with_borrow(|file| {
            let (path, durable) = file.as_ref().unwrap();
            lose_high_water(path, durable.as_deref(), next).unwrap()
        });
        vfs::revive();
        Lost {
            writes: lost.writes + lost.entries,
            torn: lost.torn,
            reordered: lost.reordered,
            highwater,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_watched {
            vfs::end();
            points::hook(None);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn make_template(folder: &Folder) -> (Vec<u8>, Option<Vec<u8>>) {
    let path = folder.beside(".template");
    // Whatever this thread is in the middle of is not in the middle of this.
    points::hook(None);
    let made = vfs::aside(|| Database::open(&path, OpenMode::Daemon).and_then(Database::close));
    made.unwrap();
    let high_water = std::fs::read(folder.beside(".template.highwater")).ok();
    (std::fs::read(&path).unwrap(), high_water)
}

/// The file was replaced by one that was synced before, or has grown by lines that were not.
fn lose_high_water(
    path: &Path,
    durable: Option<&[u8]>,
    next: &mut dyn FnMut(u64) -> u64,
) -> io::Result<bool> {
    let now = std::fs::read(path).ok();
    if now.as_deref() == durable || next(3) == 0 {
        return Ok(false);
    }
    let grown = |now: &Vec<u8>| durable.is_some_and(|durable| now.starts_with(durable));
    match (&now, durable) {
        (Some(now), Some(durable)) if grown(now) => {
            let more = (now.len() - durable.len()) as u64;
            let kept = durable.len() + next(more) as usize;
            let mut left = now[..kept].to_vec();
            if next(2) == 1 {
                // The length was written, the bytes were not.
                left.resize(now.len(), 0);
            }
            std::fs::write(path, left)?;
        }
        (_, Some(durable)) => std::fs::write(path, durable)?,
        (_, None) => std::fs::remove_file(path)?,
    }
    Ok(true)
}

/// What the disk of this thread says at a point that is passed.
pub fn at_point(name: &str) -> Option<io::Error> {
    if name == "highwater.folder" {
        HIGH_WATER.with_borrow_mut(|file| {
            if let Some((path, durable)) = file {
                *durable = std::fs::read(&*path).ok();
            }
        });
    }
    let grows = ["highwater.create", "highwater.append", "backup.create"];
    if vfs::is_full() && grows.contains(&name) {
        took_effect(Hit::Full);
        return Some(io::ErrorKind::StorageFull.into());
    }
    None
}

/// A fault of the disk begins or ends. It is full from now on, or for one of the next writes.
pub fn act(what: DiskAct, dice: Option<u64>) {
    let failing = |op, nth: u32, code| vfs::plan(op, u64::from(nth.max(1)), Hit::Error(code));
    match what {
        DiskAct::Power { .. } => unreachable!("a power loss needs the daemon dead: Folder::lose_power"),
        DiskAct::Full => match dice.filter(|dice| dice.is_multiple_of(3)) {
            Some(dice) => vfs::plan(Op::Write, 1 + dice / 3 % 40, Hit::Full),
            None => vfs::set_full(true),
        },
        DiskAct::Freed => vfs::set_full(false),
        DiskAct::EioRead(nth) => failing(Op::Read, nth, ffi::SQLITE_IOERR_READ),
        DiskAct::EioWrite(nth) => failing(Op::Write, nth, ffi::SQLITE_IOERR_WRITE),
        DiskAct::EioSync(nth) => failing(Op::Sync, nth, ffi::SQLITE_IOERR_FSYNC),
        DiskAct::Busy(times) => vfs::set_busy(u64::from(times)),
        DiskAct::Short(nth) => vfs::plan(Op::Write, u64::from(nth.max(1)), Hit::Short),
    }
}

/// A fault took effect.
pub fn took_effect(what: Hit) {
    if matches!(what, Hit::Error(_) | Hit::Short | Hit::Full) {
        HAS_FAILED.set(true);
    }
    match what {
        Hit::Error(ffi::SQLITE_IOERR_READ) => hit("eio_read"),
        Hit::Error(ffi::SQLITE_IOERR_FSYNC) => hit("eio_sync"),
        Hit::Error(_) | Hit::Short => hit("eio_write"),
        Hit::Full => hit("full_write"),
        Hit::Busy => hit("busy_retried"),
        Hit::Kill | Hit::TornThenKill { .. } => {}
    }
}

/// Did the disk fail since this was asked last? A database that is busy is no fault of it.
pub fn has_failed() -> bool {
    HAS_FAILED.take()
}

/// Is there no room?
pub fn is_full() -> bool {
    vfs::is_full()
}

/// How often the disk failed the log of the database so far, so that whoever committed was told.
pub fn log_failures() -> u64 {
    vfs::log_failures() - OTHERS.get()
}

/// Does `work` as another process, whose failures are its own.
pub fn as_others<T>(work: impl FnOnce() -> T) -> T {
    let before = vfs::log_failures();
    let done = work();
    OTHERS.set(OTHERS.get() + vfs::log_failures() - before);
    done
}

/// The disk is a good one from now on.
pub fn heal() {
    vfs::clear_plans();
    vfs::set_full(false);
    vfs::set_busy(0);
}

/// A new process may open the files of a dead one, whose handles are closed.
pub fn revive() {
    vfs::revive();
}

/// As [`looking`], with handles that stay while the daemon dies and is started again.
pub fn observing<T>(work: impl FnOnce() -> T) -> T {
    vfs::observing(work)
}

/// Looks at the files of the seed as somebody else: what `work` opens, and has read from, meets no fault and
/// dies of none.
pub fn looking<T>(work: impl FnOnce() -> T) -> T {
    vfs::aside(work)
}
