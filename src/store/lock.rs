//! The lock that keeps a second daemon out: an OS lock on a file of its own beside the database. The file is
//! never unlinked, because unlinking would let two daemons lock two files of one name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::StoreError;

/// How often the lock is tried before somebody holds it for good.
const TRIES: u32 = 1000;

/// Held for the life of a daemon; the OS releases it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
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
        let mut file = options
            .open(&path)
            .map_err(|error| StoreError::file("open the lock file", &path, error))?;
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
        let mut file = File::open(lock_path(database)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(StoreError::Locked {
                holder: read_pid(&mut file),
            }),
            Ok(()) | Err(TryLockError::Error(_)) => None,
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

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}
