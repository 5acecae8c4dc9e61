//! Whether a daemon runs on the config's database, and with this config: what no row of the database can
//! tell, because it stays as it was when a daemon is killed.

use super::{Line, Verdict, line};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::{Database, Runner, StoreError};
use std::io::ErrorKind;
use std::net::SocketAddr;
use tokio::net::TcpSocket;

/// What starts a daemon.
pub const START: &str = "`systemctl start creditd`, or `creditd run`";

/// Who runs on the config's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Running {
    /// No daemon.
    No,
    /// A daemon, with what the config says now.
    Current(String),
    /// A daemon that has not said with which config.
    Silent(String),
    /// A daemon that has read another config, and when (RFC 3339).
    Outdated(String, String),
    /// It cannot be seen.
    Unknown,
}

/// Leaves, for [`running`], what a daemon has just started with.
///
/// # Errors
/// Those of the lock file.
pub fn note(config: &Config, now_ms: i64) -> Result<(), StoreError> {
    Database::note_runner(&config.database, &format!("{} {now_ms}", config.mark))
}

/// Looks who runs on the config's database.
pub fn running(config: &Config) -> Running {
    let (pid, note) = match Database::runner(&config.database) {
        Runner::Nobody => return Running::No,
        Runner::Unknown => return Running::Unknown,
        Runner::Daemon { pid, note } => (pid, note),
    };
    let who = pid.map_or_else(|| "a daemon".to_owned(), |pid| format!("the daemon (pid {pid})"));
    let read = note
        .split_once(' ')
        .and_then(|(mark, at)| Some((mark, at.parse().ok()?)));
    match read {
        None => Running::Silent(who),
        Some((mark, _)) if mark == config.mark => Running::Current(who),
        Some((_, at)) => Running::Outdated(who, rfc3339(at)),
    }
}

impl Running {
    /// Whether a daemon runs; `None` = it cannot be seen.
    pub fn is_running(&self) -> Option<bool> {
        match self {
            Running::No => Some(false),
            Running::Current(_) | Running::Silent(_) | Running::Outdated(..) => Some(true),
            Running::Unknown => None,
        }
    }

    /// Whether a daemon runs with what the config says now; `None` = none runs, or it has not said.
    pub fn is_config_in_force(&self) -> Option<bool> {
        match self {
            Running::Current(_) => Some(true),
            Running::Outdated(..) => Some(false),
            Running::No | Running::Silent(_) | Running::Unknown => None,
        }
    }

    /// What is wrong, and what to do about it; `None` if nothing is.
    pub fn trouble(&self) -> Option<(String, String)> {
        match self {
            Running::Current(_) | Running::Silent(_) => None,
            Running::No => Some((
                "no daemon runs on this database".to_owned(),
                format!("start it: {START}"),
            )),
            Running::Outdated(who, at) => Some((
                format!("{who} runs with an older config, read at {at}"),
                "restart it: `systemctl restart creditd`, or stop it and `creditd run`".to_owned(),
            )),
            Running::Unknown => Some((
                "whether a daemon runs cannot be seen: its lock file cannot be read".to_owned(),
                "run it as the account that owns the database (sudo -u creditd)".to_owned(),
            )),
        }
    }
}

/// The line about the daemon. It never fails the check, which is also run before a start.
pub(super) fn daemon_line(running: &Running) -> Line {
    match (running.trouble(), running) {
        (Some((found, next)), _) => line("daemon", Verdict::Warning, found, next),
        (None, Running::Current(who)) => {
            let found = format!("{who} runs on this database, with this config");
            line("daemon", Verdict::Good, found, "")
        }
        (None, Running::Silent(who)) => {
            let found = format!("{who} runs on this database");
            line("daemon", Verdict::Good, found, "")
        }
        (None, Running::No | Running::Outdated(..) | Running::Unknown) => {
            unreachable!("these have a trouble")
        }
    }
}

/// The line about a listener: the table of the config that names it, and what is said where it is off.
pub(super) fn listen_line(
    table: &'static str,
    off: &str,
    listen: Option<SocketAddr>,
    running: &Running,
) -> Line {
    let good = |found: String| line(table, Verdict::Good, found, "");
    let Some(address) = listen else {
        return good(off.to_owned());
    };
    let error = match try_bind(address) {
        Ok(()) => return good(format!("{address} is free")),
        Err(error) => error,
    };
    let is_taken = error.kind() == ErrorKind::AddrInUse;
    match running {
        Running::Current(who) if is_taken => good(format!("{address} is taken by {who}")),
        Running::Silent(who) | Running::Outdated(who, _) if is_taken => {
            good(format!("{address} is taken, probably by {who}"))
        }
        Running::No | Running::Unknown | Running::Current(_) | Running::Silent(_) | Running::Outdated(..) => {
            let found = format!("{address} cannot be had: {error}");
            let next = format!(
                "name a free address of this machine as `[{table}] listen`, or stop what listens there"
            );
            line(table, Verdict::Bad, found, next)
        }
    }
}

/// Binds and does not listen: that is in nobody's way, not even of a daemon that starts right now.
fn try_bind(address: SocketAddr) -> std::io::Result<()> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)
}
