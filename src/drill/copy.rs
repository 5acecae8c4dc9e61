//! The copy that a drill works on: in a folder of its own, open to its owner alone, without what is secret,
//! and gone when the drill ends. A folder that a kill left behind is cleared away by the next drill.

use super::DrillError;
use crate::clock::Clock;
use crate::store::{Database, Existing, OpenMode, Store, StoreError, WriteTx};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Before the number of the process in the folder's name.
const PREFIX: &str = "creditd-drill-";

/// Locked while a drill works in the folder: one that can be locked is nobody's any more. A folder that was
/// to be kept has none.
const RUNNING: &str = "running";

/// How often it is tried to remove a folder in which somebody may just be making a file.
const REMOVE_TRIES: u32 = 20;

/// The folder of a drill.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    is_kept: bool,
    _running: File,
}

impl Folder {
    /// Makes one in `parent`, and clears away what killed drills have left there.
    pub(super) fn make(parent: &Path, is_kept: bool) -> Result<Folder, DrillError> {
        clear_away(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let failed = |doing: &'static str| {
            let path = path.clone();
            move |source| DrillError::Folder { doing, path, source }
        };
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(failed("make the folder"))?;
        let running = File::create(path.join(RUNNING)).and_then(|file| file.lock().map(|()| file));
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

    /// Removes it with all that is in it.
    pub(super) fn remove(&self) {
        remove(&self.path);
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

fn clear_away(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_ours = process.is_some_and(|process| process.parse::<u32>().is_ok());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_left = || File::open(entry.path().join(RUNNING)).is_ok_and(|file| file.try_lock().is_ok());
        if is_ours && is_folder && is_left() {
            remove(&entry.path());
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
        let work = folder.join("creditd.db");
        remove_beside(&work);
        let live = Database::open(live, OpenMode::ReadOnly).map_err(failed("open the database"))?;
        let mut told_percent = 0;
        let made = live.backup(&work, Existing::Refuse, |progress| {
            let percent = progress.done_pages.saturating_mul(100) / progress.total_pages.max(1);
            if percent >= told_percent + 10 && percent < 100 {
                told_percent = percent;
                told(format!("{percent} % copied"));
            }
        });
        let bytes = made.map_err(failed("copy the database"))?.bytes;
        let bench = Bench {
            folder: folder.to_owned(),
            store: open(&work, Clock::standing(at_ms))?,
            clock: Clock::standing(at_ms),
            at_ms,
            bytes,
        };
        bench.write("scrub the copy", |tx| tx.scrub()).await?;
        Ok(bench)
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

    #[test]
    fn a_folder_goes_with_its_drill_and_a_killed_one_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let there = || std::fs::read_dir(parent.path()).unwrap().count();
        let folder = Folder::make(parent.path(), false).unwrap();
        std::fs::write(folder.path().join("creditd.db"), "x").unwrap();
        assert!(matches!(
            Folder::make(parent.path(), false),
            Err(DrillError::Folder { .. })
        ));
        assert!(
            folder.path().join("creditd.db").exists(),
            "nobody clears a running one away"
        );
        drop(folder);
        assert_eq!(there(), 0);
        // Of processes that are gone, and of a kept one.
        for process in ["1", "2"] {
            std::fs::create_dir(parent.path().join(format!("{PREFIX}{process}"))).unwrap();
        }
        std::fs::write(parent.path().join(format!("{PREFIX}1/{RUNNING}")), "").unwrap();
        std::fs::create_dir(parent.path().join("creditd-drill-notes")).unwrap();
        drop(Folder::make(parent.path(), true).unwrap());
        let mut left: Vec<String> = std::fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let kept = format!("{PREFIX}{}", std::process::id());
        let mut expected = vec![format!("{PREFIX}2"), kept, "creditd-drill-notes".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
