//! Invoices over the API of the real daemon: how many a second are made, durably and once, for many clients
//! at a time, and how many requests a second are answered again. `cargo bench --bench invoices`; see
//! docs/speed.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench stops at the first surprise"
)]
#![allow(clippy::float_arithmetic, reason = "a ratio is not money")]

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use common::api::{Client, fill_pool, with_api};
use common::daemon::{Daemon, Setup};
use common::fake_chain::FakeNode;
use rusqlite::{Connection, params};
use support::table::{Table, Target, per_second};
use support::timed;
use support::wire::Wire;

const CLIENTS: u32 = 64;
/// By each client, one after the other.
const INVOICES: u32 = 150;
/// Of one row each.
const COMMITS: u32 = 500;

/// What a flush costs beyond what it costs here, in microseconds. The disk of a virtual machine may promise
/// what it has not done, and then a commit costs next to nothing; an honest one takes from one to ten
/// milliseconds.
const FLUSHES: [u32; 3] = [0, 2_000, 5_000];

/// Makes this program only commit, into a database in the folder that it names.
const COMMIT_IN: &str = "BENCH_COMMIT_IN";

fn main() {
    if let Some(folder) = std::env::var_os(COMMIT_IN) {
        println!("{}", commit_one_by_one(Path::new(&folder)).as_micros());
        return;
    }
    let tools = tempfile::tempdir().unwrap();
    let library = build(tools.path());
    let mut table = Table::new("a second");
    for micros in FLUSHES {
        measure(&mut table, &library, micros);
    }
    let requests = CLIENTS * INVOICES;
    table.print(&format!(
        "{requests} invoices for {CLIENTS} clients, then the same requests again"
    ));
}

fn measure(table: &mut Table, library: &Path, micros: u32) {
    let environment = vec![
        ("LD_PRELOAD".to_owned(), library.display().to_string()),
        ("SLOW_FLUSH_US".to_owned(), micros.to_string()),
    ];
    let node = FakeNode::regtest(1);
    let setup = Setup {
        api: "listen = \"127.0.0.1:0\"\nrate_per_second = 100000".to_owned(),
        environment: environment.clone(),
        ..with_api(&node.stub)
    };
    let mut daemon = Daemon::start(&setup);
    daemon.wait_height(1);
    fill_pool(&daemon, CLIENTS * INVOICES);
    let client = daemon.client("shop", "all");
    let single = single_commits(daemon.folder(), &environment);
    let (made, answers) = timed(|| ask_all(&client, "HTTP/1.1 201"));
    let (replayed, again) = timed(|| ask_all(&client, "HTTP/1.1 201"));
    assert!(answers == again, "a repeat is answered as the first was");
    daemon.stop();
    let disk = match micros {
        0 => "the disk as it is".to_owned(),
        _ => format!("a flush of {} ms more", micros / 1_000),
    };
    let rate = |count, span| (per_second(count, span), format!("{:.0}", per_second(count, span)));
    let (single, figure) = rate(COMMITS, single);
    table.figure(&format!("{disk}: commits of one row, one by one"), figure);
    let (made, figure) = rate(CLIENTS * INVOICES, made);
    // Where a flush is free there is nothing to share, and what is left is work.
    let target = match micros {
        0 => Target::None,
        _ => Target::AtLeast(5.0),
    };
    table.ratio(
        &format!("{disk}: invoices made, by that"),
        figure,
        made / single,
        target,
    );
    let (replayed, figure) = rate(CLIENTS * INVOICES, replayed);
    let what = format!("{disk}: requests answered again, by invoices made");
    table.ratio(&what, figure, replayed / made, Target::AtLeast(3.0));
}

/// Builds what slows a flush down.
fn build(folder: &Path) -> PathBuf {
    let library = folder.join("slow_flush.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/support/slow_flush.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library);
    assert!(compiler.args([source, "-ldl"]).status().unwrap().success());
    library
}

/// How long the commits take on the same disk: this program again, which is told of the library as the daemon
/// is.
fn single_commits(folder: &Path, environment: &[(String, String)]) -> Duration {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let output = command.env(COMMIT_IN, folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let micros = String::from_utf8(output.stdout).unwrap();
    Duration::from_micros(micros.trim().parse().unwrap())
}

/// One row in each commit, as durable as ours are.
fn commit_one_by_one(folder: &Path) -> Duration {
    let conn = Connection::open(folder.join("single.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT)",
    )
    .unwrap();
    let body = "x".repeat(200);
    let mut insert = conn.prepare("INSERT INTO rows (body) VALUES (?1)").unwrap();
    let (span, ()) = timed(|| {
        for _ in 0..COMMITS {
            insert.execute(params![body]).unwrap();
        }
    });
    span
}

/// The answers, by client.
fn ask_all(client: &Client, status: &str) -> Vec<Vec<Vec<u8>>> {
    let barrier = Barrier::new(CLIENTS as usize);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut wire = Wire::open(client.port, Some(&format!("Bearer {}", client.key)));
                    barrier.wait();
                    (0..INVOICES)
                        .map(|nth| ask(&mut wire, status, number, nth))
                        .collect()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn ask(wire: &mut Wire, status: &str, number: u32, nth: u32) -> Vec<u8> {
    let body = format!(r#"{{"asset":"BTC","amount":"0.01","reference":"order-{number}-{nth}"}}"#);
    let headers = format!("Idempotency-Key: order-{number}-{nth}\r\n");
    wire.send("/v1/invoices", &headers, &body, status).to_vec()
}
