//! The signals that would end the process, for what has something to clear away or to say before. One that
//! whoever started us has us ignore (`nohup`, `trap '' INT`) stays ignored.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The limit of CPU time, `ulimit -t`: tokio has no name for it. The number is that of x86, ARM and RISC-V.
const CPU_LIMIT: i32 = 24;

/// From now on these signals do not end the process by themselves.
#[derive(Debug)]
pub struct Ends(Vec<(SignalKind, Signal)>);

impl Ends {
    /// What people, terminals and service managers send. Within a runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn usual() -> io::Result<Ends> {
        Ends::of(vec![
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ])
    }

    /// Whatever can be heard. Within a runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn all() -> io::Result<Ends> {
        Ends::of(vec![
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::alarm(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::from_raw(CPU_LIMIT),
        ])
    }

    fn of(kinds: Vec<SignalKind>) -> io::Result<Ends> {
        let ignored = ignored();
        let is_ours = |kind: &SignalKind| ignored & bit(*kind) == 0;
        let heard = |kind| signal(kind).map(|signal| (kind, signal));
        let signals = kinds.into_iter().filter(is_ours).map(heard);
        signals.collect::<io::Result<_>>().map(Ends)
    }

    /// Waits for the first of them.
    pub async fn any(&mut self) -> SignalKind {
        poll_fn(|context| {
            let heard = self.0.iter_mut().find_map(|(kind, signal)| {
                let is_here = signal.poll_recv(context).is_ready();
                is_here.then_some(*kind)
            });
            heard.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// From now on they end the process again, by its exit code: nothing is left to be cleared away. What the
    /// system was told cannot be taken back, so somebody has to wait for them as long as the process lives.
    pub fn end_the_process(mut self, runtime: Runtime) {
        let waits = move || {
            let kind = runtime.block_on(self.any());
            std::process::exit(128 + kind.as_raw_value());
        };
        // Without a thread for it only a kill ends us, and we are about to end.
        drop(std::thread::Builder::new().name("ends".to_owned()).spawn(waits));
    }
}

/// Its place in the mask of what is ignored.
fn bit(kind: SignalKind) -> u64 {
    let place = u32::try_from(kind.as_raw_value() - 1).unwrap_or(u32::MAX);
    1_u64.checked_shl(place).unwrap_or_default()
}

/// What is ignored now, as a mask. Where that cannot be seen all of them are taken to end us.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
