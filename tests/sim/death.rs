//! Death of the daemon: a flag that every part looks at, so that nothing it does afterwards has an effect.
//! It dies at an await of its parts, at a point of the code, at a statement, a write or a sync of its
//! database; from then on its disk takes no change and its points let no file be written.

use crate::dice::Dice;
use crate::disk;
use crate::marks::hit;
use crate::script::CrashAt;
use creditd::points;
use creditd_vfs::{self as vfs, Hit, Op};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// Points of the code by number, for [`CrashAt::Named`].
pub const NAMES: &[&str] = &[
    "begin.before",
    "begin.after",
    "commit.before",
    "commit.after",
    "highwater.append",
    "highwater.appended",
    "highwater.create",
    "highwater.written",
    "highwater.synced",
    "highwater.renamed",
    "highwater.folder",
    "open.locked",
    "open.made",
    "open.checked",
    "open.compared",
    "api.committed",
    "job.leased",
    "job.ran",
    "backup.create",
    "backup.copied",
    "backup.synced",
    "backup.renamed",
    "backup.folder",
    "close.before",
    "close.folded",
    "lock.take",
];

/// A death in the time that a start takes: at a point, a statement, a write or a sync of it.
pub fn in_recovery(dice: &mut Dice) -> CrashAt {
    let nth = 1 + dice.roll(40) as u32;
    match dice.roll(4) {
        0 => CrashAt::Point(nth),
        1 => CrashAt::Statement(nth),
        2 => CrashAt::Write(1 + nth / 4),
        _ => CrashAt::Sync(1 + nth / 10),
    }
}

/// Is the daemon alive? Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Alive(Arc<State>);

#[derive(Debug, Default)]
struct State {
    armed: Mutex<Option<Armed>>,
    dead: Mutex<Option<CrashAt>>,
    died: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    at: CrashAt,
    /// How many more awaits or points.
    left: u32,
}

impl Alive {
    /// A life that begins, on a disk whose dead handles are closed. From now on this thread's points and the
    /// disk's kills are its own.
    pub fn new() -> Alive {
        let alive = Alive::default();
        vfs::clear_kills();
        let (of_points, of_disk) = (alive.clone(), alive.clone());
        points::hook(Some(Box::new(move |name| of_points.pass(name))));
        vfs::on_hit(Some(Box::new(move |op, what| {
            disk::took_effect(what);
            if matches!(what, Hit::Kill | Hit::TornThenKill { .. }) {
                of_disk.die_at_disk(op);
            }
        })));
        alive
    }

    /// It dies there.
    pub fn arm(&self, at: CrashAt) {
        vfs::clear_kills();
        let kill = |op, nth: u32, what| vfs::plan(op, u64::from(nth.max(1)), what);
        let left = match at {
            CrashAt::Await(nth) | CrashAt::Point(nth) | CrashAt::Named(_, nth) => nth.max(1),
            CrashAt::Statement(nth) => return self.armed_on_disk(at, || kill(Op::Statement, nth, Hit::Kill)),
            CrashAt::Sync(nth) => return self.armed_on_disk(at, || kill(Op::Sync, nth, Hit::Kill)),
            CrashAt::Write(nth) => {
                // Every other one gets a part of its bytes to the file.
                let bytes = u16::try_from(nth.wrapping_mul(769) % 4096).unwrap_or(0);
                let torn = Hit::TornThenKill { bytes };
                let what = if nth % 2 == 0 { torn } else { Hit::Kill };
                return self.armed_on_disk(at, || kill(Op::Write, nth, what));
            }
        };
        *self.0.armed.lock().unwrap() = Some(Armed { at, left });
    }

    /// It does not die by itself: of two daemons on one disk, whose kill meets both.
    pub fn disarm(&self) {
        vfs::clear_kills();
        *self.0.armed.lock().unwrap() = None;
    }

    fn armed_on_disk(&self, at: CrashAt, plan: impl FnOnce()) {
        *self.0.armed.lock().unwrap() = Some(Armed { at, left: 0 });
        plan();
    }

    pub fn is_dead(&self) -> bool {
        self.0.dead.lock().unwrap().is_some()
    }

    /// Kills it now.
    pub fn die(&self) {
        self.die_at(CrashAt::Await(0));
    }

    fn die_at(&self, at: CrashAt) {
        let was_dead = self.0.dead.lock().unwrap().replace(at);
        if let Some(first) = was_dead {
            *self.0.dead.lock().unwrap() = Some(first);
            return;
        }
        *self.0.armed.lock().unwrap() = None;
        vfs::kill();
        self.0.died.notify_waiters();
    }

    fn die_at_disk(&self, op: Op) {
        let armed = *self.0.armed.lock().unwrap();
        self.die_at(armed.map_or(CrashAt::Await(0), |armed| armed.at));
        match op {
            Op::Statement => hit("killed_statement"),
            Op::Sync => hit("killed_sync"),
            _ => hit("killed_write"),
        }
    }

    /// Waits for its death.
    pub async fn died(&self) -> CrashAt {
        loop {
            let died = self.0.died.notified();
            if let Some(at) = *self.0.dead.lock().unwrap() {
                return at;
            }
            died.await;
        }
    }

    /// What `work` gives, or nothing for ever if it is dead by then.
    pub async fn or_never<T>(&self, work: impl Future<Output = T>) -> T {
        let done = work.await;
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        done
    }

    /// One fewer to go: is it this one?
    fn is_now(&self, counts: impl Fn(CrashAt) -> bool) -> Option<CrashAt> {
        let mut armed = self.0.armed.lock().unwrap();
        let armed = armed
            .as_mut()
            .filter(|armed| armed.left > 0 && counts(armed.at))?;
        armed.left -= 1;
        (armed.left == 0).then_some(armed.at)
    }

    /// A point of the code is passed.
    fn pass(&self, name: &str) -> Option<io::Error> {
        let gone = || io::Error::other("the process is dead");
        if self.is_dead() {
            return Some(gone());
        }
        if let Some(failed) = disk::at_point(name) {
            return Some(failed);
        }
        let counts = |at| match at {
            CrashAt::Point(_) => true,
            CrashAt::Named(number, _) => NAMES[usize::from(number) % NAMES.len()] == name,
            CrashAt::Await(_) | CrashAt::Statement(_) | CrashAt::Write(_) | CrashAt::Sync(_) => false,
        };
        let at = self.is_now(counts)?;
        self.die_at(at);
        match name.split_once('.') {
            Some(("begin", _)) => hit("killed_begin"),
            Some(("highwater", _)) => hit("killed_highwater"),
            Some(("backup", _)) => hit("killed_backup"),
            _ if name == "commit.before" => hit("killed_commit_before"),
            _ if name == "commit.after" => hit("killed_commit_after"),
            _ => hit("killed_elsewhere"),
        }
        Some(gone())
    }
}

/// A part whose awaits are counted; at the armed one the daemon dies.
#[derive(Debug)]
pub struct Counted<F> {
    pub inner: Pin<Box<F>>,
    pub alive: Alive,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.alive.is_dead() {
            return Poll::Pending;
        }
        let polled = self.inner.as_mut().poll(cx);
        if polled.is_pending()
            && let Some(at) = self.alive.is_now(|at| matches!(at, CrashAt::Await(_)))
        {
            self.alive.die_at(at);
            hit("killed_await");
        }
        match self.alive.is_dead() {
            true => Poll::Pending,
            false => polled,
        }
    }
}
