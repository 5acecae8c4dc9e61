//! The world of one thread: what is planned, what was counted, who is dead, and for each file what it takes
//! to undo what was not synced. Nothing here calls SQLite.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ffi;

use crate::index::Index;
use crate::{Hit, OPS, Op};

/// A change of a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// Its table.
    pub table: &'static str,
    /// What was done to it.
    pub op: RowOp,
    /// Its row id.
    pub rowid: i64,
}

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOp {
    /// It is new.
    Insert,
    /// It has other values.
    Update,
    /// It is gone.
    Delete,
}

/// What happened to a file and was not synced yet, with what it takes to undo it.
#[derive(Debug)]
pub(crate) enum Step {
    Write {
        offset: u64,
        len: usize,
        /// What stood there, as far as the file reached.
        old: Vec<u8>,
        old_size: u64,
        /// A sync of it failed: no later one saves it.
        is_stuck: bool,
    },
    Truncate {
        size: u64,
        tail: Vec<u8>,
    },
    Create,
    Delete {
        content: Vec<u8>,
    },
}

impl Step {
    fn is_stuck(&self) -> bool {
        matches!(self, Step::Write { is_stuck: true, .. })
    }

    fn is_to_be_synced(&self) -> bool {
        matches!(self, Step::Write { is_stuck: false, .. })
    }

    /// Whether both are writes to a byte that they share.
    fn overlaps(&self, other: &Step) -> bool {
        let range = |step: &Step| match step {
            Step::Write { offset, len, .. } => Some(*offset..*offset + *len as u64),
            Step::Truncate { size, .. } => Some(*size..u64::MAX),
            Step::Create | Step::Delete { .. } => None,
        };
        match (range(self), range(other)) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            _ => true,
        }
    }
}

/// A watched file, by its name: it may come and go.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) steps: Vec<Step>,
    /// Of its log, if it is a database.
    pub(crate) index: Index,
}

impl Watched {
    fn is_log(&self) -> bool {
        self.path.to_string_lossy().ends_with("-wal")
    }

    /// All that was not lost already is on disk from now on.
    fn synced(&mut self) {
        let steps = std::mem::take(&mut self.steps);
        let mut kept = Vec::new();
        let mut later: Vec<Step> = Vec::new();
        for step in steps.into_iter().rev() {
            // What was written over it since is what the disk holds there.
            if step.is_stuck() && !later.iter().any(|newer| newer.overlaps(&step)) {
                kept.push(step);
            } else if !step.is_stuck() {
                later.push(step);
            }
        }
        kept.reverse();
        self.steps = kept;
    }

    /// Its entry in the folder is on disk, and that of nothing that had the name before.
    fn folder_synced(&mut self) {
        let is_entry = |step: &Step| matches!(step, Step::Create | Step::Delete { .. });
        if let Some(last) = self.steps.iter().rposition(is_entry) {
            self.steps.drain(..=last);
        }
    }
}

/// The world of a thread.
pub(crate) struct Seed {
    pub(crate) id: u64,
    folder: PathBuf,
    pub(crate) files: Vec<Watched>,
    pub(crate) open: usize,
    pub(crate) plans: Vec<(Op, u64, Hit)>,
    pub(crate) counts: [u64; OPS],
    pub(crate) waits: u64,
    pub(crate) is_dead: bool,
    pub(crate) is_full: bool,
    pub(crate) busy_left: u64,
    pub(crate) log_failures: u64,
    pub(crate) rows: Vec<RowChange>,
    /// Of the transaction that is open.
    pub(crate) rows_open: Vec<RowChange>,
    pub(crate) random: u64,
    /// Rises when a name may have become that of another file.
    pub(crate) epoch: u64,
}

thread_local! {
    static SEED: RefCell<Option<Seed>> = const { RefCell::new(None) };
    static ON_HIT: RefCell<Option<OnHit>> = const { RefCell::new(None) };
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
    static IS_OBSERVING: Cell<bool> = const { Cell::new(false) };
}

/// Told what took effect.
type OnHit = Box<dyn FnMut(Op, Hit)>;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

pub(crate) fn begin(folder: &Path) {
    let seed = Seed {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        folder: folder.to_owned(),
        files: Vec::new(),
        open: 0,
        plans: Vec::new(),
        counts: [0; OPS],
        waits: 0,
        is_dead: false,
        is_full: false,
        busy_left: 0,
        log_failures: 0,
        rows: Vec::new(),
        rows_open: Vec::new(),
        random: 0,
        epoch: 0,
    };
    SEED.with(|slot| *slot.borrow_mut() = Some(seed));
}

pub(crate) fn end() {
    SEED.with(|slot| *slot.borrow_mut() = None);
    on_hit(None);
}

pub(crate) fn on_hit(told: Option<OnHit>) {
    ON_HIT.with(|slot| *slot.borrow_mut() = told);
}

pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let was_aside = IS_ASIDE.replace(true);
    let done = work();
    IS_ASIDE.set(was_aside);
    done
}

pub(crate) fn observing<T>(work: impl FnOnce() -> T) -> T {
    let was_observing = IS_OBSERVING.replace(true);
    let done = work();
    IS_OBSERVING.set(was_observing);
    done
}

/// Whether what is opened now is an observer's.
pub(crate) fn is_observing() -> bool {
    IS_OBSERVING.get()
}

/// Whether what is opened now is watched by nobody.
pub(crate) fn is_aside() -> bool {
    IS_ASIDE.get()
}

/// The world of this thread, which has one.
pub(crate) fn with<T>(work: impl FnOnce(&mut Seed) -> T) -> T {
    let done = try_with(work);
    assert!(done.is_some(), "nothing is watched on this thread: begin first");
    done.unwrap_or_else(|| unreachable!("just looked"))
}

/// The world of this thread, if it has one.
pub(crate) fn try_with<T>(work: impl FnOnce(&mut Seed) -> T) -> Option<T> {
    // A thread that ends closes what it has open after its world is gone.
    SEED.try_with(|slot| slot.borrow_mut().as_mut().map(work)).ok()?
}

/// What becomes of an operation.
pub(crate) enum Verdict {
    Go,
    Refuse(c_int),
    /// Only so many bytes of it.
    Cut(usize),
    /// As much, and the rest is missing.
    Short,
}

/// Counts an operation on a handle of the world `seed`, and says what becomes of it.
pub(crate) fn meet(op: Op, seed: u64) -> Verdict {
    let verdict = try_with(|world| {
        if world.id != seed || world.is_dead {
            return None;
        }
        world.counts[op as usize] += 1;
        let count = world.counts[op as usize];
        let due = |(planned, at, _): &(Op, u64, Hit)| *planned == op && *at == count;
        let hit = world
            .plans
            .iter()
            .position(due)
            .map(|at| world.plans.swap_remove(at).2);
        if matches!(hit, Some(Hit::Kill | Hit::TornThenKill { .. })) {
            world.is_dead = true;
        }
        Some(hit)
    });
    // Reads of a dead handle harm nobody, and a lock that it has is let go of.
    let Some(Some(hit)) = verdict else {
        let is_harmless = matches!(op, Op::Read | Op::ShmMap | Op::Statement | Op::Commit);
        return match is_harmless {
            true => Verdict::Go,
            false => Verdict::Refuse(ffi::SQLITE_IOERR),
        };
    };
    if let Some(hit) = hit {
        tell(op, hit);
    }
    match hit {
        None => Verdict::Go,
        Some(Hit::Error(code)) => Verdict::Refuse(code),
        Some(Hit::Full) => Verdict::Refuse(ffi::SQLITE_FULL),
        Some(Hit::Busy) => Verdict::Refuse(ffi::SQLITE_BUSY),
        Some(Hit::Short) => Verdict::Short,
        Some(Hit::Kill) => Verdict::Refuse(ffi::SQLITE_IOERR),
        Some(Hit::TornThenKill { bytes }) => Verdict::Cut(usize::from(bytes)),
    }
}

/// Tells of something that took effect. Whoever is told may ask this crate things.
pub(crate) fn tell(op: Op, hit: Hit) {
    let told = ON_HIT.with(|slot| slot.borrow_mut().take());
    if let Some(mut told) = told {
        told(op, hit);
        ON_HIT.with(|slot| {
            slot.borrow_mut().get_or_insert(told);
        });
    }
}

impl Seed {
    /// Whether a path is one of the world's files.
    pub(crate) fn watches(&self, path: &Path) -> bool {
        path.starts_with(&self.folder)
    }

    /// The number of the file of this name.
    pub(crate) fn file(&mut self, path: &Path) -> usize {
        let known = self.files.iter().position(|file| file.path == path);
        known.unwrap_or_else(|| {
            self.files.push(Watched {
                path: path.to_owned(),
                size: 0,
                steps: Vec::new(),
                index: Index::default(),
            });
            self.files.len() - 1
        })
    }

    /// A handle was opened. A new process may open files once nothing of the dead one is open.
    pub(crate) fn opened(&mut self, path: &Path, is_new: bool, size: u64) -> usize {
        self.open += 1;
        let number = self.file(path);
        let file = &mut self.files[number];
        file.size = size;
        if is_new {
            file.steps.push(Step::Create);
        }
        number
    }

    pub(crate) fn deleted(&mut self, path: &Path, content: Vec<u8>) {
        let number = self.file(path);
        self.files[number].steps.push(Step::Delete { content });
        self.files[number].size = 0;
        self.epoch += 1;
    }

    pub(crate) fn wrote(&mut self, number: usize, offset: u64, len: usize, old: Vec<u8>) {
        let file = &mut self.files[number];
        let old_size = file.size;
        file.size = old_size.max(offset + len as u64);
        file.steps.push(Step::Write {
            offset,
            len,
            old,
            old_size,
            is_stuck: false,
        });
    }

    pub(crate) fn truncated(&mut self, number: usize, size: u64, tail: Vec<u8>) {
        self.files[number].size = size;
        self.files[number].steps.push(Step::Truncate { size, tail });
    }

    /// A sync of a file: of its bytes and of its entry in the folder.
    pub(crate) fn synced(&mut self, number: usize) {
        self.files[number].synced();
    }

    pub(crate) fn folder_synced(&mut self) {
        self.files.iter_mut().for_each(Watched::folder_synced);
    }

    /// What is said of a write, which may have failed: by the disk, and not for want of room.
    pub(crate) fn write_failed(&mut self, number: usize, code: c_int) {
        let is_failed = code & 0xff == ffi::SQLITE_IOERR && !self.is_dead;
        self.log_failures += u64::from(is_failed && self.files[number].is_log());
    }

    /// The operating system has dropped what it could not write, and will not try again.
    pub(crate) fn sync_failed(&mut self, number: usize) {
        let file = &self.files[number];
        let is_loss = file.is_log() && file.steps.iter().any(Step::is_to_be_synced);
        self.log_failures += u64::from(is_loss);
        for step in &mut self.files[number].steps {
            if let Step::Write { is_stuck, .. } = step {
                *is_stuck = true;
            }
        }
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let bytes = |step: &Step| match step {
            Step::Write { len, .. } => *len as u64,
            Step::Truncate { .. } | Step::Create | Step::Delete { .. } => 0,
        };
        self.files.iter().flat_map(|file| &file.steps).map(bytes).sum()
    }
}

/// The name of a table, kept for good: there are few.
pub(crate) fn table(name: &str) -> &'static str {
    TABLES.with(|all| {
        let mut all = all.borrow_mut();
        let known = all.iter().find(|known| **known == name).copied();
        known.unwrap_or_else(|| {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            all.push(kept);
            kept
        })
    })
}

thread_local! {
    /// Of all worlds of this thread.
    static TABLES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}
