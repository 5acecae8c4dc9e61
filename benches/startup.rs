//! The daemon with many addresses: how long it takes to follow, the memory that it holds, and what it costs
//! while nothing happens. `cargo bench --bench startup`; see docs/speed.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench stops at the first surprise"
)]
#![allow(clippy::float_arithmetic, reason = "a ratio is not money")]

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::fs;
use std::time::Duration;

use common::daemon::{Daemon, Setup};
use common::node::RegtestNode;
use common::wait::wait_until;
use creditd::clock::Clock;
use support::addresses::{self, ALIAS, INSTANCE};
use support::table::{Table, Target, best};
use support::timed;

const WATCHED: u32 = 1_000_000;
const BLOCKS: u32 = 110;
const STARTS: usize = 3;
const IDLE: Duration = Duration::from_secs(20);

/// A first start on a slow disk.
const PATIENCE: Duration = Duration::from_secs(120);

/// How `/proc` counts processor time: on Linux always in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    let node = RegtestNode::start();
    node.mine(BLOCKS);
    let mut daemon = Daemon::prepare(&Setup::for_node(&node));
    fs::write(daemon.config_file(), config(&node)).unwrap();
    addresses::seed(&daemon.database(), 0..WATCHED);
    // The first start sets the cursor, as every later one finds it.
    start(&mut daemon);
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        daemon.stop();
        starts.push(start(&mut daemon));
    }
    let rss = memory_mb(daemon.pid(), "VmRSS");
    let began = processor_secs(daemon.pid());
    sleep(IDLE);
    let idle = 100.0 * (processor_secs(daemon.pid()) - began) / IDLE.as_secs_f64();
    let mut table = Table::new("figure");
    table.absolute(
        "start to following, seconds",
        best(&starts).as_secs_f64(),
        Target::AtMost(2.0),
    );
    table.absolute("resident memory once following, MB", rss, Target::AtMost(150.0));
    let after = memory_mb(daemon.pid(), "VmRSS");
    table.absolute("resident memory at the end, MB", after, Target::AtMost(150.0));
    let most = memory_mb(daemon.pid(), "VmHWM");
    table.absolute("most resident memory so far, MB", most, Target::None);
    table.absolute("processor while idle, % of a core", idle, Target::AtMost(1.0));
    table.print(&format!(
        "the daemon with {WATCHED} watched addresses, best of {STARTS} starts, idle for {} s",
        IDLE.as_secs()
    ));
    daemon.stop();
}

/// Nothing but what has no default.
fn config(node: &RegtestNode) -> String {
    format!(
        "[[bitcoin]]\nalias = \"{ALIAS}\"\nnetwork = \"regtest\"\ninstance = \"{INSTANCE}\"\nrpc_url = \
         \"{}\"\n\
         cookie_file = \"{}\"\n[[bitcoin.policy]]\nconfirmations = 6\n",
        node.url(),
        node.cookie_file().display()
    )
}

/// Starts the daemon and waits until it stands at the node's tip.
fn start(daemon: &mut Daemon) -> Duration {
    let following = format!("{ALIAS} is following");
    let count = |daemon: &Daemon| daemon.log().matches(&following).count();
    let before = count(daemon);
    let start = timed(|| {
        daemon.start_again();
        wait_until("the daemon follows", PATIENCE, || {
            (count(daemon) > before).then_some(())
        });
    });
    start.0
}

fn memory_mb(pid: u32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kb: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kb / 1024.0
}

/// Processor time of all threads so far.
fn processor_secs(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in brackets may hold blanks; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().unwrap());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

fn sleep(span: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(Clock::real().sleep(span));
}
