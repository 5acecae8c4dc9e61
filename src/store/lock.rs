//! The lock that keeps a second daemon out: an OS lock on a file of its own beside the database. The file is
//! never unlinked, because unlinking would let two daemons lock two files of one name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::StoreError;
use crate::points;

/// How often the lock is tried before somebody holds it for good.
const TRIES: u32 = 1000;

/// Held for the life of a daemon; the OS releases it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Who runs on a database, as far as that can be seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runner {
    /// No daemon does.
    Nobody,
    /// A daemon does.
    Daemon {
        /// Its process.
        pid: Option<u32>,
        /// What it has left with `note`; empty when it has not yet.
        note: String,
    },
    /// The lock file cannot be read.
    Unknown,
}

/// `ledger.db` -> `ledger.db.lock`.
pub(super) fn lock_path(database: &Path) -> PathBuf {
    beside(database, ".lock")
}

/// The suffixes of all that lies beside a database file, and of the file itself.
pub(super) const COMPANIONS: [&str; 8] = [
    "",
    "-wal",
    "-shm",
    "-journal",
    ".lock",
    ".highwater",
    ".highwater.new",
    ".space",
];

/// The path of a companion of the database file.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Lock {
    /// Takes the lock, or says who holds it.
    pub(super) fn take(database: &Path) -> Result<Lock, StoreError> {
        let path = lock_path(database);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let opened = points::io("lock.take").and_then(|()| options.open(&path));
        let mut file = opened.map_err(|error| StoreError::file("open the lock file", &path, error))?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked {
                    holder: read_pid(&mut file),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::file("lock the lock file", &path, error));
            }
        }
        // The pid is for people. Not having it, for want of space say, is no reason to refuse.
        let _ = write_pid(&mut file);
        Ok(Lock { _file: file })
    }

    /// Who holds the lock, as the error that [`Lock::take`] would give.
    pub(super) fn holder(database: &Path) -> Option<StoreError> {
        match Lock::runner(database) {
            Runner::Daemon { pid, .. } => Some(StoreError::Locked { holder: pid }),
            Runner::Nobody | Runner::Unknown => None,
        }
    }

    /// Who holds the lock. Takes and changes nothing.
    pub(super) fn runner(database: &Path) -> Runner {
        let mut file = match File::open(lock_path(database)) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Runner::Nobody,
            Err(_) => return Runner::Unknown,
        };
        match file.try_lock_shared() {
            Ok(()) => Runner::Nobody,
            Err(TryLockError::WouldBlock) => {
                let text = read_text(&mut file);
                let (pid, note) = text.split_once('\n').unwrap_or((&text, ""));
                Runner::Daemon {
                    pid: pid.trim().parse().ok(),
                    note: note.trim().to_owned(),
                }
            }
            Err(TryLockError::Error(_)) => Runner::Unknown,
        }
    }

    /// Whether nobody holds the lock right now. A missing lock file is a free lock: no daemon ever ran beside
    /// it.
    pub(super) fn is_free(database: &Path) -> bool {
        match File::open(lock_path(database)) {
            Ok(file) => file.try_lock_shared().is_ok(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

/// A command that looks whether the lock is free holds it for an instant; that is no daemon.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            settled => return settled,
        }
    }
    file.try_lock()
}

/// Leaves a line for whoever looks who runs on the database. Only the daemon that holds the lock may.
pub(super) fn note(database: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(lock_path(database))?;
    writeln!(file, "{line}")
}

fn read_text(file: &mut File) -> String {
    let mut text = String::new();
    // Whatever stands there, no more of it is read than a daemon writes.
    let _ = file.take(256).read_to_string(&mut text);
    text
}

fn read_pid(file: &mut File) -> Option<u32> {
    read_text(file).lines().next()?.trim().parse().ok()
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}
