//! The signals that would end the process, and leave the copy behind.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The limit of CPU time, `ulimit -t`: tokio has no name for it. The number is that of x86, ARM and RISC-V.
const CPU_LIMIT: i32 = 24;

/// SIGHUP, in the mask of what is ignored.
const HANGUP_BIT: u64 = 1;

/// From now on these signals do not end the process by themselves.
pub(super) struct Ends(Vec<Signal>);

impl Ends {
    /// Within a runtime.
    pub(super) fn new() -> io::Result<Ends> {
        let mut kinds = vec![
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::quit(),
            SignalKind::alarm(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::from_raw(CPU_LIMIT),
        ];
        // Under nohup it goes on when its terminal is closed.
        if !is_hangup_ignored() {
            kinds.push(SignalKind::hangup());
        }
        let signals = kinds.into_iter().map(signal);
        signals.collect::<io::Result<_>>().map(Ends)
    }

    /// Waits for the first of them.
    pub(super) async fn any(&mut self) {
        poll_fn(|context| {
            let is_here = |signal: &mut Signal| signal.poll_recv(context).is_ready();
            match self.0.iter_mut().any(is_here) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Where that cannot be seen it is taken to end us.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & HANGUP_BIT != 0)
}
