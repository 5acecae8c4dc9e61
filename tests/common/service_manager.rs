//! A stand-in for the service manager: the socket that a daemon tells its state on, and the watchdog.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::daemon::Setup;
use super::wait::{now, wait_until};

/// Listens from its making on.
pub struct ServiceManager {
    dir: TempDir,
    told: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl ServiceManager {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("creditd-manager-")
            .tempdir()
            .unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let lines = text.lines().map(|line| (now(), line.to_owned()));
                heard.lock().unwrap().extend(lines);
            }
        });
        Self { dir, told }
    }

    /// What the daemon needs to find us, and the watchdog's time.
    pub fn environment(&self, watchdog: Duration) -> Vec<(String, String)> {
        let socket = self.dir.path().join("notify").display().to_string();
        vec![
            ("NOTIFY_SOCKET".to_owned(), socket),
            ("WATCHDOG_USEC".to_owned(), watchdog.as_micros().to_string()),
        ]
    }

    /// Starts a daemon of `setup` under us.
    pub fn manage(&self, setup: Setup, watchdog: Duration) -> Setup {
        let mut setup = setup;
        setup.environment.extend(self.environment(watchdog));
        setup
    }

    /// Everything that was told, in order.
    pub fn told(&self) -> Vec<String> {
        self.told
            .lock()
            .unwrap()
            .iter()
            .map(|(_, line)| line.clone())
            .collect()
    }

    /// How many lines of this text were told.
    pub fn count(&self, line: &str) -> usize {
        self.told().iter().filter(|told| *told == line).count()
    }

    /// Waits until a line that holds `words` was told.
    #[track_caller]
    pub fn wait_told(&self, words: &str, deadline: Duration) {
        wait_until(&format!("told {words}"), deadline, || {
            self.told().iter().any(|line| line.contains(words)).then_some(())
        });
    }

    /// The last status line.
    pub fn status(&self) -> String {
        let told = self.told();
        let status = told.iter().rev().find_map(|line| line.strip_prefix("STATUS="));
        status.unwrap_or_default().to_owned()
    }

    /// Time since the last sign of life.
    pub fn silence(&self) -> Duration {
        let told = self.told.lock().unwrap();
        let last = told.iter().rev().find(|(_, line)| line == "WATCHDOG=1");
        last.map_or(Duration::ZERO, |(at, _)| at.elapsed())
    }

    /// Waits until the watchdog would end the daemon.
    #[track_caller]
    pub fn wait_silence(&self, span: Duration, deadline: Duration) {
        wait_until("no sign of life", deadline, || {
            (self.silence() > span).then_some(())
        });
    }
}
