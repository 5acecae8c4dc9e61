//! A backup: one file that holds one state of the database, under its name only once it is whole. A plain
//! copy of the file is none, because part of the database is in its log.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::database::set_journal_mode;
use super::lock::{COMPANIONS, beside};
use super::marks_file::sync_folder;
use super::migrate::APPLICATION_ID;
use super::open::{FORMAT_VERSIONS, ROLLBACK, check_pages};
use super::transact::diagnose_growing;
use super::{Database, StoreError};
use crate::clock::rfc3339;
use crate::points;

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
    /// Replace it if it is a backup, once the new one is whole.
    Replace,
}

/// The backups of a schedule: where they go, and how many stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPlan {
    /// The folder; it must be there.
    pub folder: PathBuf,
    /// The name of this one, see [`BackupPlan::name`].
    pub name: String,
    /// So many of the newest stay.
    pub keep: usize,
}

/// Before and after the time in a scheduled backup's name.
const NAME: (&str, &str) = ("creditd-", "Z.db");

/// Between the name of a copy that is being made and the number of its process.
const PARTIAL: &str = ".partial-";

impl BackupPlan {
    /// The name of the backup of a moment: two runs for the same one make one file, and names are in the
    /// order of time.
    pub fn name(at_ms: i64) -> String {
        let time = rfc3339(at_ms).replace(':', "-");
        let (seconds, _) = time.split_once('.').unwrap_or((&time, ""));
        format!("{}{seconds}{}", NAME.0, NAME.1)
    }

    /// Whether a file has a name of ours: nothing else is ever removed.
    fn is_name(name: &str) -> bool {
        let time = name
            .strip_prefix(NAME.0)
            .and_then(|rest| rest.strip_suffix(NAME.1));
        let shape = |time: &str| -> String {
            let letter = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
            time.chars().map(letter).collect()
        };
        time.is_some_and(|time| shape(time) == "0000-00-00T00-00-00")
    }

    /// Whether it is the rest of a copy of the schedule that a kill of its process cut off: the daemon makes
    /// one at a time, and each is as large as the database.
    fn is_cut_off(name: &str) -> bool {
        let Some((name, process)) = name.split_once(PARTIAL) else {
            return false;
        };
        let process = process.strip_suffix("-journal").unwrap_or(process);
        let other = |process: u32| process != std::process::id();
        BackupPlan::is_name(name) && process.parse().is_ok_and(other)
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error| StoreError::file("read the folder", &self.folder, error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes what is left of copies that were cut off.
    fn clear_away(&self) -> Result<(), StoreError> {
        for name in self.names()? {
            let file = self.folder.join(&name);
            if BackupPlan::is_cut_off(&name) && file.symlink_metadata().is_ok_and(|found| found.is_file()) {
                std::fs::remove_file(&file).map_err(|error| StoreError::file("remove", &file, error))?;
            }
        }
        Ok(())
    }

    /// Removes the oldest backups of the schedule that are too many, and says how many that were.
    fn thin_out(&self) -> Result<usize, StoreError> {
        let mut names = self.names()?;
        names.retain(|name| BackupPlan::is_name(name));
        let old = names.len().saturating_sub(self.keep);
        let mut removed = 0;
        for name in &names[..old] {
            let file = self.folder.join(name);
            // Under such a name there may be something else that somebody put there.
            if file.symlink_metadata().is_ok_and(|found| found.is_file()) && is_backup(&file) {
                std::fs::remove_file(&file).map_err(|error| StoreError::file("remove", &file, error))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Database {
    /// Makes the backup of a schedule, unless it is there, and removes those that are too many. Says what it
    /// did.
    ///
    /// # Errors
    /// As [`Database::backup`].
    pub fn back_up(&self, plan: &BackupPlan) -> Result<String, StoreError> {
        plan.clear_away()?;
        let target = plan.folder.join(&plan.name);
        let made = match target.is_file() && is_backup(&target) {
            true => format!("{} is there", plan.name),
            false => {
                let made = self.backup(&target, Existing::Refuse, |_| {})?;
                format!("{}: {} bytes", plan.name, made.bytes)
            }
        };
        match plan.thin_out()? {
            0 => Ok(made),
            removed => Ok(format!("{made}; {removed} older removed")),
        }
    }

    /// Copies the database as it is now to `target`, while a daemon may be writing. The copy is checked
    /// before it gets its name, and both survive a power loss when this returns.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the name is taken, by anything but an earlier backup that may be replaced;
    /// otherwise why the copy is not there.
    pub fn backup(
        &self,
        target: &Path,
        existing: Existing,
        progress: impl FnMut(BackupProgress),
    ) -> Result<BackupMade, StoreError> {
        self.refuse_target(target, existing)?;
        // The process id keeps two backups at once apart.
        let partial = beside(target, &format!("{PARTIAL}{}", std::process::id()));
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

    /// Nothing but a backup of ours is ever replaced, and nothing that belongs to the database is a backup's
    /// name, whether it is there now or not.
    fn refuse_target(&self, target: &Path, existing: Existing) -> Result<(), StoreError> {
        let refused = |what: &str| Err(StoreError::Refused(format!("{} {what}", target.display())));
        if let Some(suffix) = self.companion(target) {
            return match suffix {
                "" => refused("is the database itself: name another file"),
                _ => refused("belongs to the database: name another file"),
            };
        }
        let found = match target.symlink_metadata() {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StoreError::file("look at", target, error)),
        };
        if found.is_symlink() {
            return refused("is a link: name a file");
        }
        if found.is_dir() {
            return refused("is a folder: name a file in it");
        }
        if !found.is_file() {
            return refused("is no regular file: name one");
        }
        match existing {
            Existing::Refuse => refused("is there already: name another file, or replace it with --replace"),
            Existing::Replace if is_backup(target) => Ok(()),
            Existing::Replace => refused(
                "is no backup made by `creditd backup`, so it is not replaced: name another file, or move \
                 this one away",
            ),
        }
    }

    /// Which file of the database it is, by its suffix.
    fn companion(&self, target: &Path) -> Option<&'static str> {
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let place = folder.canonicalize().ok()?.join(target.file_name()?);
        let is_it = |suffix: &&str| beside(&self.path, suffix) == place;
        COMPANIONS.into_iter().find(is_it)
    }

    /// Returns the size of the copy.
    fn copy_to(&self, partial: &Path, progress: impl FnMut(BackupProgress)) -> Result<u64, StoreError> {
        let failed = |error| StoreError::file("write", partial, error);
        // Whatever the umask says: the copy holds what the database holds.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        points::io("backup.create").map_err(failed)?;
        let file = options.open(partial).map_err(failed)?;
        let mut copy = Connection::open(partial)?;
        let whole = self.path.metadata().map_or(0, |metadata| metadata.len());
        self.copy_pages(&mut copy, progress)
            .and_then(|()| finish(&copy, partial))
            .map_err(|error| match diagnose_growing(&copy, whole, error) {
                // The copy is as the database is, and gone when somebody reads of it.
                StoreError::Damaged { what, .. } => StoreError::Damaged {
                    path: self.path.clone(),
                    what,
                },
                other => other,
            })?;
        drop(copy);
        points::io("backup.copied").map_err(failed)?;
        file.sync_all().map_err(failed)?;
        points::io("backup.synced").map_err(failed)?;
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

/// By its header: an SQLite file of ours without a log. One that a daemon was ever started on has a log, and
/// is somebody's database.
fn is_backup(file: &Path) -> bool {
    let mut header = [0; 72];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok()
        && header.starts_with(b"SQLite format 3\0")
        && header[FORMAT_VERSIONS] == [ROLLBACK, ROLLBACK]
        && i64::from(u32::from_be_bytes([
            header[68], header[69], header[70], header[71],
        ])) == APPLICATION_ID
}

/// Makes one file of the copy, and checks it.
fn finish(copy: &Connection, path: &Path) -> Result<(), StoreError> {
    // The pages say "has a log"; without one the copy can be read anywhere, and `open` tells it from a live
    // file.
    set_journal_mode(copy, "DELETE")?;
    check_pages(copy, path, "quick_check(1)")
}

fn name(partial: &Path, target: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::file("rename to", target, error);
    std::fs::rename(partial, target).map_err(failed)?;
    points::io("backup.renamed").map_err(failed)?;
    sync_folder(target)?;
    points::io("backup.folder").map_err(failed)
}
