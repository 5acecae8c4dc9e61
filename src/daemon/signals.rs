//! The signals that a daemon is sent.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From now on these signals do not end the process by themselves.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, io::Error> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until the daemon is told to stop.
    pub(super) async fn stop(&mut self) {
        loop {
            tokio::select! { biased;
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP changes nothing: settings are read at the start, restart to \
                     apply them");
                }
            }
        }
    }
}
