//! A disk that fails, fills up and loses power on demand: a file system of SQLite's (a VFS) that writes
//! through to real files, keeps what it takes to undo all that was not synced, and does what a plan says.
//! One thread is one world: [`begin`] names the folder that is watched on it, and everything else passes
//! straight to the operating system. Start at `state`.

mod beside;
mod file;
mod index;
mod names;
mod power;
mod state;
mod watch;

pub use power::{Lost, lose_power};
pub use state::{RowChange, RowOp};

use std::ffi::c_int;
use std::path::Path;

/// What is asked of the disk, or of SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A file is opened.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is to survive a power loss.
    Sync,
    /// A file is cut.
    Truncate,
    /// A file is removed.
    Delete,
    /// A part of the log's index is asked for.
    ShmMap,
    /// A lock on the log's index is taken.
    ShmLock,
    /// A statement begins, those of triggers included.
    Statement,
    /// A transaction that wrote is about to commit.
    Commit,
}

/// How many kinds of [`Op`] there are.
pub const OPS: usize = 10;

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The process dies just before it.
    Kill,
    /// It fails with this (extended) code of SQLite's, without an effect.
    Error(c_int),
    /// There is no room for it.
    Full,
    /// Somebody else is in the way.
    Busy,
    /// What is to be read comes in two parts, and of what is to be written half gets to the file before the
    /// disk fails.
    Short,
    /// So many bytes of what is to be written get to the file, then the process dies.
    TornThenKill {
        /// How many.
        bytes: u16,
    },
}

/// Makes this the file system of every connection that the process opens from now on.
pub fn install() {
    names::register(Users::Many);
}

/// The same, where this process alone opens databases: the operating system is asked for no lock, and the
/// log's index is plain memory. Connections of this process still keep out of each other's way.
pub fn install_alone() {
    names::register(Users::One);
}

/// How many processes open the databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    One,
    Many,
}

/// Watches the files in `folder` on this thread. Whatever is there counts as synced.
pub fn begin(folder: &Path) {
    state::begin(folder);
}

/// Watches nothing more on this thread. Handles that are still open change nothing any more.
pub fn end() {
    state::end();
}

/// The `nth` operation of this kind from now on meets this; 1 is the next.
pub fn plan(op: Op, nth: u64, hit: Hit) {
    state::with(|seed| {
        let at = seed.counts[op as usize] + nth;
        seed.plans.push((op, at, hit));
    });
}

/// Forgets what was planned.
pub fn clear_plans() {
    state::with(|seed| seed.plans.clear());
}

/// Forgets at what the process was to die.
pub fn clear_kills() {
    let kills = |hit: &Hit| matches!(hit, Hit::Kill | Hit::TornThenKill { .. });
    state::with(|seed| seed.plans.retain(|(_, _, hit)| !kills(hit)));
}

/// While it is so, no file grows.
pub fn set_full(is_full: bool) {
    state::with(|seed| seed.is_full = is_full);
}

/// Whether no file grows.
pub fn is_full() -> bool {
    state::with(|seed| seed.is_full)
}

/// Somebody else is writing to the database: the writer's lock cannot be had so many times.
pub fn set_busy(times: u64) {
    state::with(|seed| seed.busy_left = times);
}

/// How often each kind of operation was asked for since [`begin`], in their order above.
pub fn counts() -> [u64; OPS] {
    state::with(|seed| seed.counts)
}

/// How often somebody waited because another was in the way. Nobody really did.
pub fn waits() -> u64 {
    state::with(|seed| seed.waits)
}

/// How often the disk failed a write or a sync of a database's log that would have kept something: whoever
/// committed was told. Of what fails while the log is folded into the file, nobody is.
pub fn log_failures() -> u64 {
    state::with(|seed| seed.log_failures)
}

/// How many bytes of writes are not synced.
pub fn unsynced_bytes() -> u64 {
    state::with(|seed| seed.unsynced_bytes())
}

/// The process is dead: all that is open stays as it is, and is refused every change until [`revive`].
pub fn kill() {
    state::with(|seed| seed.is_dead = true);
}

/// Whether it is.
pub fn is_dead() -> bool {
    state::with(|seed| seed.is_dead)
}

/// Who is told of everything that took effect: plans, a full disk, a busy one.
pub fn on_hit(told: Option<Box<dyn FnMut(Op, Hit)>>) {
    state::on_hit(told);
}

/// Does `work` as somebody else on the machine: what it opens is watched by nobody and meets nothing. SQLite
/// opens the log at the first read, so `work` should read.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    state::aside(work)
}

/// Does `work` as somebody who only looks at the watched databases, also where others die and files are
/// replaced meanwhile: what it opens can stay open, and keeps nobody from anything. Not where another
/// database is put in place of one: nobody could tell then what was read of which. Needs [`install_alone`].
pub fn observing<T>(work: impl FnOnce() -> T) -> T {
    state::aside(|| state::observing(work))
}

/// How many handles are open.
pub fn open_handles() -> usize {
    state::with(|seed| seed.open)
}

/// A new process: files may be opened and written again.
///
/// # Panics
/// If the handles of the dead one are still open.
pub fn revive() {
    state::with(|seed| {
        assert!(seed.open == 0, "{} handles of the dead are open", seed.open);
        seed.is_dead = false;
        seed.epoch += 1;
    });
}

/// Everything that stands in the watched files now counts as synced: they were put there from outside.
pub fn settle() {
    state::with(|seed| {
        seed.epoch += 1;
        seed.files.iter_mut().for_each(|file| file.steps.clear());
    });
}

/// The rows that transactions changed since the last call, those of committed ones only. Tables without row
/// ids are not reported, and what a savepoint took back is reported all the same.
pub fn rows() -> Vec<RowChange> {
    state::with(|seed| std::mem::take(&mut seed.rows))
}
