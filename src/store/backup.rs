//! A backup: one file that holds one state of the database, under its name only once it is whole. A plain
//! copy of the file is none, because part of the database is in its log.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::highwater::sync_folder;
use super::lock::beside;
use super::open::check_pages;
use super::transact::diagnose;
use super::{Database, StoreError};

/// Pages between two reports of progress (16 MiB).
const STEP_PAGES: i32 = 4096;

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages copied.
    pub done_pages: u64,
    /// Pages in all.
    pub total_pages: u64,
}

/// A backup that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupMade {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// What to do with a file that has the backup's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep it and refuse.
    Refuse,
    /// Replace it, once the new backup is whole.
    Replace,
}

impl Database {
    /// Copies the database as it is now to `target`, while a daemon may be writing. The copy is checked
    /// before it gets its name, and both survive a power loss when this returns.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the name is taken; otherwise why the copy is not there.
    pub fn backup(
        &self,
        target: &Path,
        existing: Existing,
        progress: impl FnMut(BackupProgress),
    ) -> Result<BackupMade, StoreError> {
        self.refuse_target(target, existing)?;
        // The process id keeps two backups at once apart.
        let partial = beside(target, &format!(".partial-{}", std::process::id()));
        let made = self
            .copy_to(&partial, progress)
            .and_then(|bytes| self.refuse_target(target, existing).map(|()| bytes))
            .and_then(|bytes| name(&partial, target).map(|()| bytes));
        if made.is_err() {
            // It never was a backup. If it cannot be removed, its name still says so.
            let _ = std::fs::remove_file(&partial);
        }
        Ok(BackupMade {
            path: target.to_owned(),
            bytes: made?,
        })
    }

    fn refuse_target(&self, target: &Path, existing: Existing) -> Result<(), StoreError> {
        if !target.exists() {
            return Ok(());
        }
        let is_same = target.canonicalize().ok() == self.path.canonicalize().ok();
        if is_same || existing == Existing::Refuse {
            let what = if is_same {
                "the database itself"
            } else {
                "there already"
            };
            return Err(StoreError::Refused(format!("{} is {what}", target.display())));
        }
        Ok(())
    }

    /// Returns the size of the copy.
    fn copy_to(&self, partial: &Path, progress: impl FnMut(BackupProgress)) -> Result<u64, StoreError> {
        let failed = |error| StoreError::file("write", partial, error);
        // Whatever the umask says: the copy holds what the database holds.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(partial).map_err(failed)?;
        let mut copy = Connection::open(partial)?;
        self.copy_pages(&mut copy, progress)
            .and_then(|()| finish(&copy, partial))
            .map_err(|error| diagnose(&copy, error))?;
        drop(copy);
        file.sync_all().map_err(failed)?;
        Ok(file.metadata().map_err(failed)?.len())
    }

    fn copy_pages(
        &self,
        copy: &mut Connection,
        mut progress: impl FnMut(BackupProgress),
    ) -> Result<(), StoreError> {
        // We sync the file ourselves, once; nobody trusts it before.
        copy.pragma_update(None, "synchronous", "OFF")?;
        // Inside a read transaction all steps copy the same state, whatever is written meanwhile. Steps
        // outside of one would start over at each write, and never end under a busy daemon.
        // The inner result is about the copy and says nothing against the database.
        self.read(|tx| Ok(copy_steps(tx.conn(), copy, &mut progress)))?
    }
}

fn copy_steps(
    source: &Connection,
    copy: &mut Connection,
    progress: &mut impl FnMut(BackupProgress),
) -> Result<(), StoreError> {
    let backup = Backup::new(source, copy)?;
    loop {
        let step = backup.step(STEP_PAGES)?;
        let (left, total) = (backup.progress().remaining, backup.progress().pagecount);
        progress(BackupProgress {
            done_pages: u64::try_from(total - left).unwrap_or(0),
            total_pages: u64::try_from(total).unwrap_or(0),
        });
        match step {
            StepResult::More => {}
            StepResult::Done => return Ok(()),
            other => {
                return Err(StoreError::Refused(format!(
                    "the copy cannot be written: {other:?}"
                )));
            }
        }
    }
}

/// Makes one file of the copy, and checks it.
fn finish(copy: &Connection, path: &Path) -> Result<(), StoreError> {
    // The pages say "has a log"; without one the copy can be read anywhere, and `open` tells it from a live
    // file.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    check_pages(copy, path, "quick_check(1)")
}

fn name(partial: &Path, target: &Path) -> Result<(), StoreError> {
    std::fs::rename(partial, target).map_err(|error| StoreError::file("rename to", target, error))?;
    sync_folder(target)
}
