//! Callbacks of the real daemon with many addresses and many endpoints: how long after its block a receiver
//! is told, and how many callbacks go out in a second. `cargo bench --bench callbacks`; see docs/speed.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench stops at the first surprise"
)]
#![allow(clippy::float_arithmetic, reason = "a ratio is not money")]

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use common::daemon::{Daemon, Setup};
use common::net::free_port;
use common::wait::wait_until;
use creditd::clock::Clock;
use creditd::sandbox::Sandbox;
use creditd::store::{Database, OpenMode};
use creditd::webhook::Key;
use support::addresses::{self, ALIAS, INSTANCE};
use support::table::{Table, Target, per_second};
use tokio::time::Instant;

const WATCHED: u32 = 1_000_000;
const BLOCKS: usize = 60;
const ENDPOINTS: u32 = 1_000;
/// Every so many refuses connections.
const DEAD_EVERY: u32 = 10;
/// In one block; each makes several events for every endpoint.
const PAYMENTS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::start(folder.path(), Clock::real()).unwrap();
    let receiver = Receiver::start();
    let mut daemon = Daemon::prepare(&Setup::new(
        sandbox.url().to_owned(),
        sandbox.cookie_file().to_owned(),
    ));
    std::fs::write(daemon.config_file(), config(&sandbox)).unwrap();
    addresses::seed(&daemon.database(), 0..WATCHED);
    let address = Sandbox::address("order");
    daemon.json(&["watch", "add", &address, "--merchant", "shop"]);
    add_endpoints(&daemon, 1, |_| receiver.url(1));
    daemon.start_again();
    let following = format!("{ALIAS} is following");
    wait_until("the daemon follows", PATIENCE, || {
        daemon.log().contains(&following).then_some(())
    });
    let mut spans: Vec<Duration> = (0..BLOCKS)
        .map(|_| block_to_callback(&sandbox, &receiver, &address))
        .collect();
    spans.sort();
    add_endpoints(&daemon, ENDPOINTS, |number| {
        match number.is_multiple_of(DEAD_EVERY) {
            true => format!("http://{}:{}/", local(number), free_port()),
            false => receiver.url(number),
        }
    });
    let (sent, took) = all_at_once(&sandbox, &receiver, &address);
    let mut table = Table::new("figure");
    let ms = |place: usize| spans[place].as_secs_f64() * 1_000.0;
    table.absolute(
        "block to callback, median, ms",
        ms(BLOCKS / 2),
        Target::AtMost(100.0),
    );
    table.absolute(
        "block to callback, slowest of 20, ms",
        ms(BLOCKS * 19 / 20),
        Target::None,
    );
    table.absolute(
        "callbacks per second to those who answer",
        per_second(sent, took),
        Target::AtLeast(500.0),
    );
    table.print(&format!(
        "the daemon with {WATCHED} watched addresses: {BLOCKS} blocks to one endpoint; then {PAYMENTS} \
         payments told to {ENDPOINTS} endpoints, every {DEAD_EVERY}th of them dead"
    ));
    daemon.stop();
}

/// Nothing but what has no default, and a receiver on this machine.
fn config(sandbox: &Sandbox) -> String {
    format!(
        "[ops]\nlisten = \"off\"\n[api]\nlisten = \"off\"\n[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n\
         [[bitcoin]]\nalias = \"{ALIAS}\"\n\
         network = \"regtest\"\ninstance = \"{INSTANCE}\"\nrpc_url = \"{}\"\ncookie_file = \"{}\"\n\
         [[bitcoin.policy]]\nconfirmations = 1\n",
        sandbox.url(),
        sandbox.cookie_file().display()
    )
}

/// An address of this machine; each is a host of its own to the daemon.
fn local(number: u32) -> String {
    format!("127.1.{}.{}", number / 250, number % 250 + 1)
}

fn add_endpoints(daemon: &Daemon, count: u32, url: impl Fn(u32) -> String) {
    let mut database = Database::open(&daemon.database(), OpenMode::Write).unwrap();
    let key = Key::shared(&[7; 32]).unwrap();
    let now = Clock::real().now_ms();
    let add = |tx: &mut creditd::store::WriteTx<'_>| {
        (1..=count).try_for_each(|number| tx.add_endpoint(Some("shop"), &url(number), "*", &key).map(|_| ()))
    };
    database.write(now, add).unwrap();
}

/// From the moment at which the node begins to have a block to the arrival of the callback.
fn block_to_callback(sandbox: &Sandbox, receiver: &Receiver, address: &str) -> Duration {
    receiver.forget();
    sandbox.pay(address, 10_000).unwrap();
    receiver.wait_for("deposit.seen", 1);
    let began = Clock::real().instant();
    sandbox.mine(1).unwrap();
    receiver.wait_for("credit.created", 1);
    receiver.last_of("credit.created") - began
}

/// How many callbacks the living endpoints got, and the time from the first to the last of them.
fn all_at_once(sandbox: &Sandbox, receiver: &Receiver, address: &str) -> (u32, Duration) {
    receiver.forget();
    let began = Clock::real().instant();
    for number in 0..PAYMENTS {
        sandbox.pay(address, 20_000 + u64::from(number)).unwrap();
    }
    sandbox.mine(1).unwrap();
    let living = ENDPOINTS - ENDPOINTS / DEAD_EVERY;
    receiver.wait_for("credit.created", usize::try_from(living * PAYMENTS).unwrap());
    let arrived = receiver.count.load(Ordering::SeqCst);
    (u32::try_from(arrived).unwrap(), receiver.last() - began)
}

/// When, and the body.
type Arrival = (Instant, Vec<u8>);

/// Answers 200 to everything, on every address of this machine.
struct Receiver {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<Arrival>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Receiver {
    fn start() -> Receiver {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("0.0.0.0:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (count, heard) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (theirs, counted) = (heard.clone(), count.clone());
        let hear = move |body: axum::body::Bytes| {
            theirs
                .lock()
                .unwrap()
                .push((Clock::real().instant(), body.to_vec()));
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(())
        };
        let router = Router::new().fallback(hear);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Receiver {
            address,
            count,
            heard,
            _runtime: runtime,
        }
    }

    fn url(&self, number: u32) -> String {
        format!("http://{}:{}/", local(number), self.address.port())
    }

    fn forget(&self) {
        self.heard.lock().unwrap().clear();
        self.count.store(0, Ordering::SeqCst);
    }

    fn arrivals(&self, kind: &str) -> Vec<Instant> {
        let start = format!("{{\"type\":\"{kind}\"");
        let heard = self.heard.lock().unwrap();
        let fitting = heard
            .iter()
            .filter(|(_, body)| body.starts_with(start.as_bytes()));
        fitting.map(|(at, _)| *at).collect()
    }

    fn wait_for(&self, kind: &str, count: usize) {
        wait_until(kind, PATIENCE, || {
            (self.arrivals(kind).len() >= count).then_some(())
        });
    }

    fn last_of(&self, kind: &str) -> Instant {
        *self.arrivals(kind).last().unwrap()
    }

    fn last(&self) -> Instant {
        self.heard.lock().unwrap().last().unwrap().0
    }
}
