//! C37: the daemon is killed anywhere between a block and the end of its callbacks, again and again. Every
//! payment ends with one credit, one event and at least one callback of it, always the same bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use creditd::clock::Clock;
use creditd::rules::Txid;
use creditd::sandbox::Sandbox;
use creditd::webhook::{Headers, VerifyKey, Window, verify};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::receiver::{Heard, Receiver, answer};
use crate::common::wait::{PATIENCE, let_pass, wait_until};
use crate::market::Draw;
use crate::shop::{assert_sound, read, text};

/// At least so many kills at random moments, or the test has failed.
const KILLS: u32 = 200;

/// Kills beside a real node, which is slower.
const KILLS_BESIDE_A_NODE: u32 = 12;

/// Kills while the receiver has a callback and has not answered it.
const KILLS_UNANSWERED: u32 = 20;

/// What the receiver has got, by event.
#[derive(Default)]
struct Inbox {
    messages: Mutex<BTreeMap<String, Vec<Heard>>>,
    /// It answers after so many milliseconds.
    slow_ms: AtomicU64,
    /// It answers no `credit.created` at all.
    is_holding: AtomicBool,
    held: AtomicUsize,
}

impl Inbox {
    fn take(&self, heard: &Heard) {
        let id = heard.header("webhook-id").unwrap().to_owned();
        self.messages
            .lock()
            .unwrap()
            .entry(id)
            .or_default()
            .push(heard.clone());
        if self.is_holding.load(Ordering::SeqCst) && kind_of(heard) == "credit.created" {
            self.held.fetch_add(1, Ordering::SeqCst);
            while self.is_holding.load(Ordering::SeqCst) {
                let_pass(Duration::from_millis(2));
            }
        }
        let_pass(Duration::from_millis(self.slow_ms.load(Ordering::SeqCst)));
    }

    /// How often the receiver has been told that a payment is credited.
    fn told(&self, txid: &Txid) -> usize {
        let messages = self.messages.lock().unwrap();
        let about = |heard: &&Vec<Heard>| {
            let body: Value = serde_json::from_slice(&heard[0].body).unwrap();
            kind_of(&heard[0]) == "credit.created"
                && body["data"]["deposit"]["txid"] == txid.to_string().as_str()
        };
        messages.values().filter(about).map(Vec::len).sum()
    }
}

fn kind_of(heard: &Heard) -> String {
    let body: Value = serde_json::from_slice(&heard.body).unwrap();
    text(&body["type"])
}

/// Who mines and pays: the sandbox, quick enough for hundreds of blocks, or a real node.
enum Miner {
    Sandbox { chain: Sandbox, _folder: TempDir },
    Node(RegtestNode),
}

impl Miner {
    fn sandbox() -> Miner {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::start(folder.path(), Clock::real()).unwrap();
        Miner::Sandbox {
            chain: sandbox,
            _folder: folder,
        }
    }

    fn node() -> Miner {
        let node = RegtestNode::start();
        node.fund();
        node.split_coin(40);
        Miner::Node(node)
    }

    fn setup(&self) -> Setup {
        match self {
            Miner::Sandbox { chain, .. } => {
                Setup::new(chain.url().to_owned(), chain.cookie_file().to_owned())
            }
            Miner::Node(node) => Setup::for_node(node),
        }
    }

    fn tip(&self) -> String {
        match self {
            Miner::Sandbox { chain, .. } => chain.tip().to_string(),
            Miner::Node(node) => node.tip(),
        }
    }

    /// Pays, and mines until it is deep enough.
    fn pay(&self, address: &str, sat: u64) -> Txid {
        match self {
            Miner::Sandbox { chain, .. } => {
                let txid = chain.pay(address, sat).unwrap();
                chain.mine(3).unwrap();
                txid
            }
            Miner::Node(node) => {
                let paid = node.payment(address, sat);
                node.broadcast(&paid);
                node.mine(3);
                Txid::from_hex(&paid.txid).unwrap()
            }
        }
    }
}

struct Play {
    draw: Draw,
    miner: Miner,
    daemon: Daemon,
    inbox: Arc<Inbox>,
    key: VerifyKey,
    paid: Vec<(Txid, u64)>,
    kills: u32,
    _receiver: Receiver,
}

impl Play {
    fn start(seed: u64, miner: Miner) -> Play {
        let mut setup = miner.setup();
        setup.tables = "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n".to_owned();
        let inbox = Arc::new(Inbox::default());
        let theirs = Arc::clone(&inbox);
        let receiver = Receiver::http([127, 0, 0, 1].into(), move |heard, to| {
            theirs.take(heard);
            answer(to, 200, b"")
        });
        let mut daemon = Daemon::prepare(&setup);
        let file = daemon.folder().join("addresses.txt");
        let addresses: Vec<String> = (0..KILLS + KILLS_UNANSWERED).map(address).collect();
        std::fs::write(&file, addresses.join("\n")).unwrap();
        daemon.json(&["watch", "import", file.to_str().unwrap(), "--merchant", "shop"]);
        let url = format!("http://{}/hook", receiver.address);
        let added = daemon.json(&["endpoint", "add", &url, "--merchant", "shop"]);
        daemon.start_again();
        let mut play = Play {
            draw: Draw::new(seed),
            miner,
            daemon,
            inbox,
            key: VerifyKey::parse(&text(&added["secret"])).unwrap(),
            paid: Vec::new(),
            kills: 0,
            _receiver: receiver,
        };
        play.await_following();
        play
    }

    fn await_following(&mut self) {
        let tip = self.miner.tip();
        self.daemon
            .wait_for("it follows", &["chain", "status"], |status| {
                (status["chains"][0]["hash"] == tip.as_str()).then_some(())
            });
    }

    /// Pays and mines until it is deep enough.
    fn pay(&mut self) -> Txid {
        let number = u32::try_from(self.paid.len()).unwrap();
        let sat = 10_000 + u64::from(number);
        let txid = self.miner.pay(&address(number), sat);
        self.paid.push((txid, sat));
        txid
    }

    fn kill(&mut self) {
        assert!(
            self.daemon.is_running(),
            "it ended by itself:\n{}",
            self.daemon.log()
        );
        self.daemon.kill9();
        self.kills += 1;
        if self.kills.is_multiple_of(10) {
            self.assert_nothing_untold();
        }
        self.daemon.start_again();
    }

    #[track_caller]
    fn await_told(&self, txid: &Txid, times: usize) {
        wait_until("the receiver is told", PATIENCE, || {
            (self.inbox.told(txid) >= times).then_some(())
        });
    }

    /// No credit without its event, no event without its delivery.
    #[track_caller]
    fn assert_nothing_untold(&self) {
        let file =
            Connection::open_with_flags(self.daemon.database(), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        for untold in [
            "SELECT count(*) FROM credits c WHERE 1 <> (SELECT count(*) FROM events e \
             WHERE e.subject = c.id AND e.type = 'credit.created')",
            "SELECT count(*) FROM events e WHERE e.merchant IS NOT NULL AND 1 <> \
             (SELECT count(*) FROM deliveries d WHERE d.event = e.seq)",
        ] {
            let count: i64 = file.query_row(untold, [], |row| row.get(0)).unwrap();
            assert_eq!(count, 0, "{untold}");
        }
    }

    /// Every payment has one credit, one event, and the receiver has it, always in the same frozen bytes,
    /// signed at the time of each attempt.
    fn assert_books(&self) {
        assert_sound(&self.daemon);
        self.assert_nothing_untold();
        let answer = self.daemon.json(&["credits", "--limit", "100000"]);
        let mut credits: BTreeMap<String, u64> = BTreeMap::new();
        for credit in answer["credits"].as_array().unwrap() {
            let sat = text(&credit["net_base"]).parse().unwrap();
            assert_eq!(
                credits.insert(text(&credit["txid"]), sat),
                None,
                "credited twice: {credit}"
            );
        }
        let paid: BTreeMap<String, u64> = self
            .paid
            .iter()
            .map(|(txid, sat)| (txid.to_string(), *sat))
            .collect();
        assert_eq!(credits, paid);
        let events = read(&self.daemon, |tx| tx.events_after(0, 100_000));
        let created = events
            .iter()
            .filter(|event| event.kind == "credit.created")
            .count();
        assert_eq!(created, paid.len());
        let messages = self.inbox.messages.lock().unwrap();
        assert_eq!(
            messages.len(),
            events.len(),
            "every event has arrived, and nothing else"
        );
        for event in events {
            for heard in &messages[&event.id] {
                assert_eq!(heard.body, event.body.as_bytes());
                let headers = Headers {
                    id: heard.header("webhook-id"),
                    timestamp: heard.header("webhook-timestamp"),
                    signature: heard.header("webhook-signature"),
                };
                let window = Window {
                    now_secs: headers.timestamp.unwrap().parse().unwrap(),
                    tolerance_secs: 0,
                };
                verify(headers, &heard.body, std::slice::from_ref(&self.key), window).unwrap();
            }
        }
    }

    /// Waits until nothing is on its way any more.
    fn settle(&mut self) {
        self.await_following();
        for state in ["waiting", "leased"] {
            let none = ["callbacks", "list", "--state", state];
            self.daemon.wait_for("all are delivered", &none, |list| {
                list["callbacks"].as_array()?.is_empty().then_some(())
            });
        }
    }
}

fn address(number: u32) -> String {
    Sandbox::address(&format!("order-{number}"))
}

#[test]
fn c37_daemon_killed_between_block_and_callback_two_hundred_times_tells_each_credit() {
    let seed = std::env::var("CREDITD_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("seed {seed}; another one with CREDITD_TEST_SEED");
    killed_at_random_moments(seed, Miner::sandbox(), KILLS);
}

/// The same beside a real node, whose blocks and answers take their own time.
#[test]
fn c37_daemon_killed_beside_a_real_node_tells_each_credit() {
    killed_at_random_moments(1, Miner::node(), KILLS_BESIDE_A_NODE);
}

fn killed_at_random_moments(seed: u64, miner: Miner, kills: u32) {
    let mut play = Play::start(seed, miner);
    while play.kills < kills {
        let slow_ms = play.draw.below(40);
        play.inbox.slow_ms.store(slow_ms, Ordering::SeqCst);
        let txid = play.pay();
        let moment = play.draw.below(250);
        let_pass(Duration::from_millis(moment));
        play.kill();
        // Again while it recovers, one time of three.
        if play.draw.below(3) == 0 {
            let moment = play.draw.below(150);
            let_pass(Duration::from_millis(moment));
            play.kill();
        }
        // Mostly it comes to rest; else it finds several payments at its next start.
        if play.draw.below(4) != 0 {
            play.await_told(&txid, 1);
        }
    }
    play.settle();
    let messages = play.inbox.messages.lock().unwrap();
    let repeated = messages.values().filter(|heard| heard.len() > 1).count();
    eprintln!(
        "{} kills, {} events, {repeated} of them sent more than once",
        play.kills,
        messages.len()
    );
    drop(messages);
    play.assert_books();
}

#[test]
fn c37_killed_after_the_receiver_got_it_and_before_it_is_marked_sends_the_same_again() {
    let mut play = Play::start(1, Miner::sandbox());
    for _ in 0..KILLS_UNANSWERED {
        let held = play.inbox.held.load(Ordering::SeqCst);
        play.inbox.is_holding.store(true, Ordering::SeqCst);
        let txid = play.pay();
        wait_until("the receiver has it", PATIENCE, || {
            (play.inbox.held.load(Ordering::SeqCst) > held).then_some(())
        });
        play.kill();
        play.inbox.is_holding.store(false, Ordering::SeqCst);
        play.await_told(&txid, 2);
    }
    play.settle();
    play.assert_books();
}
