//! The copy that a drill works on: in a folder of its own, open to its owner alone, without what is secret,
//! and gone when the drill ends. A folder that a kill left behind is cleared away by the next drill.

use super::DrillError;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::store::{Database, Existing, OpenMode, Store, StoreError, WriteTx};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Before sixteen digits that nobody else has in the folder's name: processes of two containers may have one
/// number.
const PREFIX: &str = "creditd-drill-";

/// What is done where the database, or the backup, is not what it should be.
pub const OPENING: &str = "open the database";

/// Random bytes of the name.
const NAME_BYTES: usize = 8;

/// Locked while a drill works in the folder: one that can be locked is nobody's any more. A folder that was
/// to be kept has none.
const RUNNING: &str = "running";

/// How often it is tried to remove a folder in which somebody may just be making a file.
const REMOVE_TRIES: u32 = 20;

/// How often a folder is made that another drill takes for one that a kill left empty.
const MAKE_TRIES: u32 = 5;

/// The room that a drill takes, in sizes of the database: the copy, and what it was before ...
const COPIES: u64 = 2;

/// ... and for what the copy writes meanwhile.
const LOG_BYTES: u64 = 64 << 20;

/// The folder of a drill.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    is_kept: bool,
    _running: File,
}

impl Folder {
    /// Makes one in `parent`.
    pub(super) fn make(parent: &Path, is_kept: bool) -> Result<Folder, DrillError> {
        Folder::make_over(parent, is_kept, || {})
    }

    /// With `meanwhile`, what others do before it is locked.
    fn make_over(parent: &Path, is_kept: bool, mut meanwhile: impl FnMut()) -> Result<Folder, DrillError> {
        let mut tries = 1;
        loop {
            match Folder::try_make(parent, is_kept, &mut meanwhile) {
                Err(DrillError::Folder { source, .. })
                    if source.kind() == ErrorKind::NotFound && parent.is_dir() && tries < MAKE_TRIES =>
                {
                    tries += 1;
                }
                made => return made,
            }
        }
    }

    fn try_make(parent: &Path, is_kept: bool, meanwhile: &mut impl FnMut()) -> Result<Folder, DrillError> {
        let mut bytes = [0; NAME_BYTES];
        let chosen = Chance::real().fill(&mut bytes);
        chosen.map_err(|error| DrillError::System(std::io::Error::other(error)))?;
        let path = parent.join(format!("{PREFIX}{}", const_hex::encode(bytes)));
        let failed = |doing: &'static str| {
            let path = path.clone();
            move |source| DrillError::Folder { doing, path, source }
        };
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(failed("make the folder"))?;
        let running = File::create(path.join(RUNNING)).and_then(|file| {
            meanwhile();
            file.lock()?;
            // Until it was locked another drill could take the folder for one that a kill had left.
            is_there(&file, &path.join(RUNNING)).map(|()| file)
        });
        match running {
            Ok(_running) => Ok(Folder {
                path,
                is_kept,
                _running,
            }),
            Err(error) => {
                remove(&path);
                Err(failed("make a file in")(error))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// For people, from the root on.
    pub(super) fn place(&self) -> String {
        let place = std::path::absolute(&self.path);
        place.as_deref().unwrap_or(&self.path).display().to_string()
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

/// Is this still the file of that name? Otherwise [`ErrorKind::NotFound`].
fn is_there(file: &File, path: &Path) -> std::io::Result<()> {
    let (ours, named) = (file.metadata()?, std::fs::symlink_metadata(path)?);
    match (ours.dev(), ours.ino()) == (named.dev(), named.ino()) {
        true => Ok(()),
        false => Err(ErrorKind::NotFound.into()),
    }
}

/// Is there room beside a folder for a drill of this database? What cannot be asked is not refused.
///
/// # Errors
/// [`DrillError::NoRoom`].
pub(super) fn check_room(parent: &Path, database: &Path) -> Result<(), DrillError> {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    let bytes = size(database).saturating_add(size(Path::new(&log)));
    let needed = bytes.saturating_mul(COPIES).saturating_add(LOG_BYTES);
    let Ok(disk) = rustix::fs::statvfs(parent) else {
        return Ok(());
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match free >= needed {
        true => Ok(()),
        false => Err(DrillError::NoRoom {
            folder: parent.to_owned(),
            free,
            needed,
        }),
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        match self.is_kept {
            // Should that fail, the next drill clears it away.
            true => drop(std::fs::remove_file(self.path.join(RUNNING))),
            false => self.remove(),
        }
    }
}

fn remove(folder: &Path) {
    for _ in 0..REMOVE_TRIES {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {}
            Ok(()) | Err(_) => return,
        }
    }
}

/// Clears away what killed drills have left in a folder.
pub(super) fn clear_away(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_digits = |digits: &str| const_hex::decode(digits).is_ok_and(|bytes| bytes.len() == NAME_BYTES);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !digits.is_some_and(is_digits) || !is_folder {
            continue;
        }
        match File::open(entry.path().join(RUNNING)) {
            Ok(file) if file.try_lock().is_ok() => remove(&entry.path()),
            Ok(_) => {}
            // Killed before it had made a file; one that is kept is not empty.
            Err(_) => drop(std::fs::remove_dir(entry.path())),
        }
    }
}

/// The copy, opened, with what it was when it was settled beside it.
pub(super) struct Bench {
    folder: PathBuf,
    pub(super) store: Store,
    pub(super) clock: Clock,
    /// The moment of the copy, Unix milliseconds: time stands there.
    pub(super) at_ms: i64,
    /// The size of the database.
    pub(super) bytes: u64,
}

impl Bench {
    /// Copies the database at `live` as it is now, and takes out of the copy what is secret.
    pub(super) async fn make(
        live: &Path,
        folder: &Path,
        clock: Clock,
        told: &mut (dyn FnMut(String) + Send),
    ) -> Result<Bench, DrillError> {
        let failed = |doing| move |source| DrillError::Store { doing, source };
        let at_ms = clock.now_ms();
        let (raw, work) = (folder.join("raw.db"), folder.join("creditd.db"));
        remove_beside(&raw);
        remove_beside(&work);
        let live = Database::open(live, OpenMode::ReadOnly).map_err(failed(OPENING))?;
        let mut told_percent = 0;
        let made = live.backup(&raw, Existing::Refuse, |progress| {
            let percent = progress.done_pages.saturating_mul(100) / progress.total_pages.max(1);
            if percent >= told_percent + 10 && percent < 100 {
                told_percent = percent;
                told(format!("{percent} % copied"));
            }
        });
        let bytes = made.map_err(failed("copy the database"))?.bytes;
        drop(live);
        told("taking out what is secret".to_owned());
        // Pages that are free hold what once stood there: only what is in use goes on.
        let scrubbed = Database::scrub(&raw, &work, at_ms);
        remove_beside(&raw);
        scrubbed.map_err(failed("take out what is secret"))?;
        Ok(Bench {
            folder: folder.to_owned(),
            store: open(&work, Clock::standing(at_ms))?,
            clock: Clock::standing(at_ms),
            at_ms,
            bytes,
        })
    }

    /// Folds the copy into one file. It need not outlive anything: a failure is nobody's.
    pub(super) async fn close(&self) {
        let _ = self.store.close().await;
    }

    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("creditd.db")
    }

    /// The copy as it was before it was settled.
    pub(super) fn before(&self) -> PathBuf {
        self.folder.join("before.db")
    }

    /// The copy once it was settled: nothing that is fed again may change it.
    pub(super) fn baseline(&self) -> PathBuf {
        self.folder.join("baseline.db")
    }

    /// Keeps the copy as it is now under another name.
    pub(super) fn keep_as(&self, to: &Path) -> Result<(), DrillError> {
        let failed = |source| DrillError::Store {
            doing: "copy the copy",
            source,
        };
        let now = Database::open(&self.work(), OpenMode::ReadOnly).map_err(failed)?;
        now.backup(to, Existing::Replace, |_| {}).map_err(failed)?;
        Ok(())
    }

    /// Closes the copy and opens it again, as a daemon that is started anew.
    pub(super) async fn restart(&mut self) -> Result<(), DrillError> {
        let doing = "close the copy";
        let closed = self.store.close().await;
        closed.map_err(|source| DrillError::Store { doing, source })?;
        self.store = open(&self.work(), self.clock)?;
        Ok(())
    }

    /// Makes the copy what it was when it was settled.
    pub(super) async fn go_back(&mut self) -> Result<(), DrillError> {
        let doing = "close the copy";
        let closed = self.store.close().await;
        closed.map_err(|source| DrillError::Store { doing, source })?;
        let work = self.work();
        // With its marks, which would take it for a restored backup.
        remove_beside(&work);
        std::fs::copy(self.baseline(), &work).map_err(|source| DrillError::Folder {
            doing: "copy to",
            path: work.clone(),
            source,
        })?;
        self.store = open(&work, self.clock)?;
        Ok(())
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&crate::store::ReadTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, DrillError> {
        let read = self.store.read(work).await;
        read.map_err(|source| DrillError::Store { doing, source })
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, DrillError> {
        let written = self.store.write(work).await;
        written.map_err(|source| DrillError::Store { doing, source })
    }
}

fn open(path: &Path, clock: Clock) -> Result<Store, DrillError> {
    let opened = Database::open_scratch(path);
    let opened = opened.map_err(|source| DrillError::Store {
        doing: "open the copy",
        source,
    })?;
    Ok(Store::inline(opened, clock))
}

/// Removes a database and all that lies beside it.
fn remove_beside(database: &Path) {
    let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else {
        return;
    };
    let name = name.to_string_lossy().into_owned();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&name) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parent: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(parent).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_goes_with_its_drill_and_a_killed_one_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::make(parent.path(), false).unwrap();
        std::fs::write(folder.path().join("creditd.db"), "x").unwrap();
        // As another process of the same number in another container.
        let other = Folder::make(parent.path(), false).unwrap();
        assert_ne!(folder.path(), other.path());
        assert!(
            folder.path().join("creditd.db").exists(),
            "nobody clears a running one away"
        );
        drop((folder, other));
        assert_eq!(names(parent.path()), [] as [&str; 0]);
        let of = |digits: &str| parent.path().join(format!("{PREFIX}{digits}"));
        // Killed at work, killed as it began, and kept.
        let [killed, begun, kept] = ["00000000000000aa", "00000000000000bb", "00000000000000cc"].map(of);
        for folder in [&killed, &begun, &kept] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(killed.join(RUNNING), "").unwrap();
        std::fs::write(kept.join("creditd.db"), "x").unwrap();
        std::fs::create_dir(of("notes")).unwrap();
        let last = Folder::make(parent.path(), true).unwrap();
        std::fs::write(last.path().join("creditd.db"), "x").unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = vec![name(&kept), name(last.path()), name(&of("notes"))];
        expected.sort();
        drop(last);
        clear_away(parent.path());
        assert_eq!(names(parent.path()), expected);
    }

    #[test]
    fn a_folder_that_another_drill_clears_away_before_it_is_locked_is_made_anew() {
        let parent = tempfile::tempdir().unwrap();
        let mut others = 0;
        let folder = Folder::make_over(parent.path(), false, || {
            others += 1;
            if others == 1 {
                clear_away(parent.path());
            }
        });
        let folder = folder.unwrap();
        assert_eq!(others, 2);
        assert!(folder.path().join(RUNNING).exists());
        clear_away(parent.path());
        assert!(folder.path().join(RUNNING).exists(), "nobody clears it away now");
        drop(folder);
        assert_eq!(names(parent.path()), [] as [&str; 0]);
    }
}
