//! Starts that cannot succeed: each says what to do next, and none ends a daemon that runs.

use std::net::TcpListener;
use std::path::Path;

use creditd::store::{Database, OpenMode};

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::stub::StubNode;

/// Changes what is wrong with a start, and holds what must stay.
type Spoil = Box<dyn Fn(&Daemon) -> Box<dyn std::any::Any>>;

fn edit(daemon: &Daemon, from: &str, to: &str) {
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    assert!(config.contains(from), "{config}");
    std::fs::write(daemon.config_file(), config.replace(from, to)).unwrap();
}

fn database_at(path: &'static str) -> Spoil {
    Box::new(move |daemon| {
        edit(
            daemon,
            "database = \"creditd.db\"",
            &format!("database = \"{path}\""),
        );
        Box::new(())
    })
}

fn lock(daemon: &Daemon) -> Database {
    Database::open(&daemon.database(), OpenMode::Daemon).unwrap()
}

fn take_port(daemon: &Daemon) -> TcpListener {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("[ops]\nlisten = \"{}\"", taken.local_addr().unwrap());
    edit(daemon, "[ops]\nlisten = \"off\"", &listen);
    taken
}

/// What is wrong, words of the next step, and how to get there.
fn spoilers() -> Vec<(&'static str, &'static [&'static str], Spoil)> {
    vec![
        (
            "the database is a folder",
            &["is a folder", "name a file in it"],
            database_at("."),
        ),
        (
            "its folder is missing",
            &["there is no folder", "make it"],
            database_at("missing/creditd.db"),
        ),
        (
            "its folder takes no file",
            &["/sys/creditd.db", "next: run it as the account"],
            database_at("/sys/creditd.db"),
        ),
        (
            "the lock is held",
            &["another creditd daemon", "stop it first"],
            Box::new(|daemon| Box::new(lock(daemon))),
        ),
        (
            "the port is taken",
            &["listen on 127.0.0.1:", "name a free address", "`[ops] listen`"],
            Box::new(|daemon| Box::new(take_port(daemon))),
        ),
        (
            "both, as with a second daemon of one config",
            &["another creditd daemon", "stop it first"],
            Box::new(|daemon| Box::new((take_port(daemon), lock(daemon)))),
        ),
        (
            "the node's password is in no place",
            &["credential:nowhere", "next: set CREDENTIALS_DIRECTORY"],
            Box::new(|daemon| {
                let cookie = std::fs::read_to_string(daemon.config_file()).unwrap();
                let line = cookie
                    .lines()
                    .find(|line| line.starts_with("cookie_file"))
                    .unwrap();
                edit(
                    daemon,
                    line,
                    "rpc_user = \"creditd\"\nrpc_password_file = \"credential:nowhere\"",
                );
                Box::new(())
            }),
        ),
        (
            "the certificates are missing",
            &["nowhere.pem", "callbacks.ca_file"],
            Box::new(|daemon| {
                edit(
                    daemon,
                    "\n[ops]",
                    "\n[callbacks]\nca_file = \"nowhere.pem\"\n\n[ops]",
                );
                Box::new(())
            }),
        ),
    ]
}

#[test]
fn a_start_that_cannot_succeed_says_what_to_do() {
    let stub = StubNode::alone();
    for (what, words, spoil) in spoilers() {
        let daemon = Daemon::prepare(&Setup::for_stub(&stub));
        let kept = spoil(&daemon);
        let output = daemon.cli(&["run"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{what}: {told}");
        for words in words {
            assert!(told.contains(words), "{what}: {words}: {told}");
        }
        drop(kept);
    }
}

/// The lock would keep the second one out; here it was removed by somebody who cleans up.
#[test]
fn a_start_that_cannot_succeed_does_not_end_a_daemon_that_runs() {
    for (what, _, spoil) in spoilers() {
        if !["the port", "the node's", "the certificates"]
            .iter()
            .any(|of| what.starts_with(of))
        {
            continue;
        }
        let node = FakeNode::regtest(1);
        let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
        daemon.wait_height(1);
        std::fs::remove_file(Path::new(&format!("{}.lock", daemon.database().display()))).unwrap();
        let kept = spoil(&daemon);
        let output = daemon.cli(&["run"]);
        assert_eq!(output.status.code(), Some(2), "{what}");
        node.mine(Vec::new());
        daemon.wait_height(2);
        daemon.stop();
        drop(kept);
    }
}
