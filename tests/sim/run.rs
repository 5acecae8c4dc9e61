//! How a seed is run, and how it ended: a thread of its own, panics caught, everything that happened as text.

use crate::checks::Fault;
use crate::marks::{self, Marks};
use crate::script::Script;
use crate::seed::Seed;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Fine = 0,
    Wrong = 1,
    CouldNotRun = 2,
    Stuck = 3,
    Crashed = 4,
    NothingTookEffect = 5,
    Differs = 6,
    /// The time was over before all seeds had run, and nothing was found in those that did.
    Cut = 7,
}

/// How a seed ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// Something that must hold does not.
    Wrong(Fault),
    /// Something that must come does not.
    Stuck(Fault),
    /// A panic.
    Crashed(String),
}

impl Verdict {
    pub fn exit(&self) -> Exit {
        match self {
            Verdict::Fine => Exit::Fine,
            Verdict::Wrong(_) => Exit::Wrong,
            Verdict::Stuck(_) => Exit::Stuck,
            Verdict::Crashed(_) => Exit::Crashed,
        }
    }

    /// Two failures of one class are taken for one fault.
    pub fn class(&self) -> String {
        match self {
            Verdict::Fine => "fine".to_owned(),
            Verdict::Wrong(fault) => format!("wrong {}", fault.class()),
            Verdict::Stuck(fault) => format!("stuck {}", fault.class()),
            Verdict::Crashed(panic) => format!("crash {}", panic.split(": ").next().unwrap_or_default()),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fine => write!(f, "fine"),
            Verdict::Wrong(fault) => write!(f, "WRONG {fault}"),
            Verdict::Stuck(fault) => write!(f, "STUCK {fault}"),
            Verdict::Crashed(panic) => write!(f, "CRASHED {panic}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub marks: Marks,
    /// A line for each act.
    pub trace: Vec<String>,
    /// Of the trace, and of all tables at the end.
    pub digest: [u8; 32],
    pub lives: u32,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Once per process, before the first seed.
pub fn prepare() -> Result<(), String> {
    if !Path::new("/dev/shm").is_dir() {
        return Err("there is no /dev/shm: a disk in memory is needed".to_owned());
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("a panic without text");
        PANIC.with(|slot| *slot.borrow_mut() = Some(format!("{place}: {text}")));
    }));
    creditd_vfs::install_alone();
    Ok(())
}

/// What is checked out, for the line that repeats a failure.
pub fn commit() -> &'static str {
    static COMMIT: OnceLock<String> = OnceLock::new();
    COMMIT.get_or_init(|| {
        let asked = std::process::Command::new("git")
            .args(["rev-parse", "--short=12", "HEAD"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        let said = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).trim().to_owned());
        said.unwrap_or_default()
    })
}

/// Runs a script on a thread of its own, so that nothing of another seed is left there.
pub fn seed(script: &Script) -> Outcome {
    std::thread::scope(|threads| {
        let thread = std::thread::Builder::new().stack_size(16 << 20);
        let running = thread.spawn_scoped(threads, || on_its_thread(script)).unwrap();
        running.join().unwrap()
    })
}

fn on_its_thread(script: &Script) -> Outcome {
    marks::take();
    let mut seed = Seed::new(script);
    let ended = catch_unwind(AssertUnwindSafe(|| seed.whole()));
    let verdict = match ended {
        Ok(Ok(())) => Verdict::Fine,
        Ok(Err(verdict)) => verdict,
        Err(_) => {
            let text = PANIC.with(|slot| slot.borrow_mut().take());
            Verdict::Crashed(text.unwrap_or_default())
        }
    };
    let (trace, lives) = (std::mem::take(&mut seed.trace), seed.lives);
    let mut hash = Sha256::new();
    trace.iter().for_each(|line| hash.update(line));
    seed.last.iter().for_each(|line| hash.update(line));
    // What a panic left behind may panic once more.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(seed)));
    Outcome {
        verdict,
        marks: marks::take(),
        trace,
        digest: hash.finalize().into(),
        lives,
    }
}
