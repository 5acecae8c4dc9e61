//! The folder of a seed, and the faults of its disk.

use std::path::PathBuf;

/// A folder in memory with a fresh database, and slots for backups.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// What a loss of power took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub writes: u32,
    pub torn: u32,
    pub reordered: u32,
    pub highwater: bool,
}

impl Folder {
    /// Clones the template, which is made once per process.
    pub fn fresh(_name: &str) -> Folder {
        unreachable!("not built yet")
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("ledger.db")
    }

    pub fn back_up(&self, _slot: u8) -> std::io::Result<()> {
        unreachable!("not built yet")
    }

    /// Puts the copy of a slot back; `wal`: with its write-ahead log. False: there is none.
    pub fn restore(&self, _slot: u8, _wal: bool) -> bool {
        unreachable!("not built yet")
    }

    /// All open handles are dead, as after `kill -9`.
    pub fn kill(&self) {
        unreachable!("not built yet")
    }

    /// After `kill`: what was not synced may be gone.
    pub fn lose_power(&self, _next: &mut dyn FnMut(u64) -> u64) -> Lost {
        unreachable!("not built yet")
    }
}
