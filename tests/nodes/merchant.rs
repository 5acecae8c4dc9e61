//! docs/merchant-guide.md by its own lines: both shops of docs/examples against the real daemon and a real
//! bitcoind, with lost replies, kills, repeated and forged callbacks, and a reorg. Every order ships once.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use creditd::chance::Chance;
use creditd::clock::Clock;
use creditd::webhook::{self, Key, Scheme};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::api::{Client, Reply};
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::foreign_webhooks::fetched;
use crate::lossy::LossyLine;
use crate::pools::descriptor;

/// The shell blocks of the guide, a command a line.
fn block(number: usize) -> Vec<&'static str> {
    let guide = include_str!("../../docs/merchant-guide.md");
    let block = guide.split("```sh\n").nth(number).unwrap();
    block.split_once("```").unwrap().0.lines().collect()
}

const SET_UP: usize = 1;
const START: usize = 2;
const ORDER: usize = 3;

/// Which of the two shops.
#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    JavaScript,
}

impl Language {
    /// How the guide starts it, and by which program here.
    fn started(self) -> (&'static str, PathBuf) {
        match self {
            Language::Python => (
                "python3",
                fetched("WEBHOOKS_PYTHON", "webhooks/python/bin/python"),
            ),
            Language::JavaScript => ("node", "node".into()),
        }
    }
}

/// A shop by the guide, with the lines that lead to it and from it.
struct Shop {
    language: Language,
    folder: TempDir,
    /// From the shop to creditd.
    asks: LossyLine,
    /// From creditd to the shop.
    told: LossyLine,
    secret: String,
    child: Option<Child>,
    starts: usize,
    port: u16,
}

impl Shop {
    /// Sets it up beside a running daemon.
    fn set_up(language: Language, daemon: &Daemon) -> Shop {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("orders")).unwrap();
        let (asks, told) = (LossyLine::new(daemon.api_port()), LossyLine::new(0));
        let mut said = Vec::new();
        for line in block(SET_UP) {
            let line = line.replace(
                "https://shop.example/",
                &format!("http://127.0.0.1:{}/", told.port()),
            );
            let words: Vec<&str> = line.strip_prefix("creditd ").unwrap().split(' ').collect();
            let output = daemon.cli(&words);
            assert!(output.status.success(), "{line}: {output:?}");
            said.push(String::from_utf8(output.stdout).unwrap());
        }
        let shown = |said: &String, prefix: &str| {
            let mut words = said.split_whitespace();
            words.find(|word| word.starts_with(prefix)).unwrap().to_owned()
        };
        let secret = shown(&said[2], "whsec_");
        std::fs::write(folder.path().join("key"), shown(&said[1], "ck_")).unwrap();
        std::fs::write(folder.path().join("webhook-secret"), format!("{secret}\n")).unwrap();
        Shop {
            language,
            folder,
            asks,
            told,
            secret,
            child: None,
            starts: 0,
            port: 0,
        }
    }

    /// Starts it, as often as it was killed before.
    #[track_caller]
    fn start(&mut self) {
        let (program, here) = self.language.started();
        let folder = self.folder.path().display().to_string();
        let is_ours = |line: &&str| line.starts_with("export ") || line.contains(&format!(" {program} "));
        let script: Vec<String> = block(START)
            .into_iter()
            .filter(is_ours)
            .map(|line| {
                let line = line
                    .replace("/etc/shop", &folder)
                    .replace("/var/lib/shop", &folder);
                let line = line.replace("SHOP_PORT=8080", "SHOP_PORT=0");
                let line = line.replace("127.0.0.1:9334", &format!("127.0.0.1:{}", self.asks.port()));
                // The shell becomes the shop, which can be killed then.
                line.replace(&format!(" {program} "), &format!(" exec '{}' ", here.display()))
            })
            .collect();
        let log = OpenOptions::new().create(true).append(true).open(self.log_file());
        let log: File = log.unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &script.join("\n")]);
        command.env(
            "NODE_PATH",
            fetched("WEBHOOKS_NODE_MODULES", "webhooks/node_modules"),
        );
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
        self.starts += 1;
        self.port = wait_until("the shop is open", PATIENCE, || {
            let log = self.log();
            let mut opened = log
                .lines()
                .filter_map(|line| line.strip_prefix("open at http://127.0.0.1:"));
            opened.nth(self.starts - 1)?.parse().ok()
        });
        self.told.lead_to(self.port);
    }

    fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap()
    }

    /// Places an order and asks for it, by the lines of the guide; the answers.
    #[track_caller]
    fn order(&self, id: &str) -> [Value; 2] {
        let answers = block(ORDER).into_iter().map(|line| {
            let line = line.replace("1001", id).replace("8080", &self.port.to_string());
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}\n{}", self.log());
            serde_json::from_slice(&output.stdout).unwrap()
        });
        answers.collect::<Vec<Value>>().try_into().unwrap()
    }

    fn ask(&self, verb: &str, path: &str, headers: &[(&str, &str)], body: &str) -> std::io::Result<Reply> {
        let client = Client {
            port: self.port,
            key: String::new(),
        };
        client.try_send(verb, path, headers, body)
    }

    fn status(&self, id: &str) -> Option<Value> {
        let reply = self.ask("GET", &format!("/orders/{id}"), &[], "").ok()?;
        (reply.status == 200).then(|| reply.json())
    }

    #[track_caller]
    fn wait_status(&self, id: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_until(&format!("order {id} {what}"), PATIENCE, || {
            self.status(id).filter(&is_so)
        })
    }

    #[track_caller]
    fn wait_shipped(&self, id: &str) {
        self.wait_status(id, "is shipped", |order| {
            order["shipments"] == 1 && order["note"].is_null()
        });
    }

    /// How often the shop said that it ships an order, in all its lives.
    fn ships(&self, id: &str) -> usize {
        let said = format!("ships order {id}");
        self.log().lines().filter(|line| *line == said).count()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("---- what the shop said ----\n{}", self.log());
        }
    }
}

/// The node, the daemon, the shop, and a client that asks for events.
struct Play {
    node: RegtestNode,
    daemon: Daemon,
    shop: Shop,
    client: Client,
}

impl Play {
    fn open(language: Language) -> Play {
        let node = RegtestNode::start();
        node.fund();
        node.split_coin(10);
        let daemon = Daemon::start(&Setup {
            api: "listen = \"127.0.0.1:0\"".to_owned(),
            tables: format!(
                "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n[[addresses]]\nname = \"shop\"\n\
                 chain = \"btc\"\npool = 5\ndescriptor = {}\n",
                json!(descriptor(&node)),
            ),
            ..Setup::for_node(&node)
        });
        daemon.wait_height(node.height());
        let mut shop = Shop::set_up(language, &daemon);
        shop.start();
        let client = daemon.client("shop", "events:read");
        Play {
            node,
            daemon,
            shop,
            client,
        }
    }

    /// Pays an order and mines until it is deep enough; the block that holds the payment.
    #[track_caller]
    fn pay(&self, order: &Value) -> String {
        assert_eq!(order["amount"], "0.0005", "{order}");
        let paid = self.node.payment(order["address"].as_str().unwrap(), 50_000);
        let block = self.node.generateblock(&[&paid.hex]);
        self.node.mine(2);
        block
    }

    /// The ids of all events of a type.
    fn events(&self, kind: &str) -> Vec<String> {
        let listed = self.client.get("/v1/events?limit=1000").expect(200);
        let events = listed["events"].as_array().unwrap().iter();
        let of_kind = events.filter(|event| event["type"] == kind);
        of_kind
            .map(|event| event["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Has every callback so far sent three times more, and answered each time.
    #[track_caller]
    fn replay_all(&self) {
        const UNDELIVERED: &str = "SELECT count(*) FROM deliveries WHERE state <> 'delivered'";
        wait_until("all is told", PATIENCE, || {
            (self.daemon.count(UNDELIVERED) == 0).then_some(())
        });
        for kind in ["invoice.settled", "invoice.reversed"] {
            for event in self.events(kind) {
                for turn in 1..=3 {
                    let before = self.shop.told.passed();
                    let key = format!("{event}-{before}-{turn}");
                    let path = format!("/v1/events/{event}/replay");
                    self.client.post(&path, &key, "{}").expect(202);
                    // Noted too: one that is being sent is not sent once more.
                    wait_until("it is told again", PATIENCE, || {
                        let is_told = self.shop.told.passed() > before;
                        (is_told && self.daemon.count(UNDELIVERED) == 0).then_some(())
                    });
                }
            }
        }
    }

    fn invoices(&self) -> i64 {
        self.daemon.count("SELECT count(*) FROM invoices")
    }
}

/// A callback that nobody but creditd can make, made by somebody else.
fn forged(shop: &Shop, order: &Value) {
    let body = json!({
        "type": "invoice.settled", "timestamp": "2026-01-01T00:00:00.000Z",
        "data": {"invoice": order["invoice"], "reference": order["id"], "life": "settled", "version": 9}
    })
    .to_string();
    let signed = |key: &Key, late_secs: i64, body: &str| {
        let at_secs = Clock::real().now_ms() / 1000 - late_secs;
        webhook::headers("evt_forged", at_secs, body.as_bytes(), std::slice::from_ref(key)).unwrap()
    };
    let theirs = webhook::fresh_key(Scheme::V1, Chance::real()).unwrap();
    let ours = Key::parse(&shop.secret).unwrap();
    let mut unsigned = signed(&ours, 0, &body);
    unsigned[2].1 = "nothing".to_owned();
    for (name, headers) in [
        ("another key", signed(&theirs, 0, &body)),
        ("of another body", signed(&ours, 0, "{}")),
        ("a recording", signed(&ours, 330, &body)),
        ("no signature", unsigned),
    ] {
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let reply = shop.ask("POST", "/hook", &headers, &body).unwrap();
        assert_eq!(reply.status, 401, "{name}: {reply:?}");
    }
    assert_eq!(shop.ask("POST", "/hook", &[], &body).unwrap().status, 401);
    let order = shop.status(order["id"].as_str().unwrap()).unwrap();
    assert_eq!(order["shipments"], 0, "{order}");
}

fn every_order_is_invoiced_and_shipped_once(language: Language) {
    let mut play = Play::open(language);
    // The replies to the first two requests are lost, then the order itself comes twice more.
    play.shop.asks.lose(2);
    let [first, asked] = play.shop.order("1001");
    assert_eq!((play.shop.asks.lost(), &first), (2, &asked));
    for _ in 0..2 {
        assert_eq!(play.shop.order("1001"), [first.clone(), first.clone()]);
    }
    assert_eq!(play.invoices(), 1);

    // The invoice is made, and the shop dies before it knows.
    play.shop.asks.lose(usize::MAX);
    let (port, lost) = (play.shop.port, play.shop.asks.lost());
    let customer = std::thread::spawn(move || {
        let key = String::new();
        Client { port, key }.try_send("POST", "/orders/1002", &[], "{\"item\":\"tea\"}")
    });
    wait_until("the second invoice is made", PATIENCE, || {
        (play.shop.asks.lost() > lost).then_some(())
    });
    play.shop.kill9();
    assert!(customer.join().unwrap().is_err(), "nobody answered the customer");
    play.shop.asks.lose(0);
    play.shop.start();
    let second = play
        .shop
        .wait_status("1002", "has an invoice", |order| order["invoice"].is_string());
    assert_eq!(play.invoices(), 2);

    // Told once, and the shop's answer is lost: it comes again.
    play.shop.told.lose(1);
    let block = play.pay(&first);
    play.shop.wait_shipped("1001");
    wait_until("it is told again", PATIENCE, || {
        (play.shop.told.passed() == 1).then_some(())
    });
    play.replay_all();

    // Nobody is there when the second is paid.
    play.shop.kill9();
    let failed = "SELECT count(*) FROM attempts WHERE status IS NULL";
    let before = play.daemon.count(failed);
    play.pay(&second);
    wait_until("it was told in vain", PATIENCE, || {
        (play.daemon.count(failed) > before).then_some(())
    });
    play.shop.start();
    play.shop.wait_shipped("1002");
    play.replay_all();

    let [third, _] = play.shop.order("1003");
    forged(&play.shop, &third);
    reorg(&play, &block);
    play.replay_all();
    for (id, ships) in [("1001", 1), ("1002", 1), ("1003", 0)] {
        assert_eq!(play.shop.ships(id), ships, "{id}: {}", play.shop.log());
        assert_eq!(play.shop.status(id).unwrap()["shipments"], ships, "{id}");
    }
    assert_eq!(play.invoices(), 3);
    play.daemon.assert_sound();
}

/// The block of a payment leaves the chain, and the payment comes back in another one.
#[track_caller]
fn reorg(play: &Play, block: &str) {
    let height = play.node.height();
    play.node.invalidate(block);
    for _ in play.node.height()..=height {
        play.node.generateblock(&[]);
    }
    for id in ["1001", "1002"] {
        let order = play
            .shop
            .wait_status(id, "is for a person", |order| order["note"].is_string());
        assert_eq!(order["shipments"], 1, "{order}");
    }
    play.replay_all();
    // What was paid before is in the mempool again.
    play.node.mine(3);
    play.shop.wait_shipped("1001");
    play.shop.wait_shipped("1002");
}

#[test]
fn the_shop_of_the_guide_in_python_ships_every_order_once() {
    every_order_is_invoiced_and_shipped_once(Language::Python);
}

#[test]
fn the_shop_of_the_guide_in_javascript_ships_every_order_once() {
    every_order_is_invoiced_and_shipped_once(Language::JavaScript);
}

/// What the guide sends readers to is what was run above.
#[test]
fn the_guide_names_the_shops_that_are_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    for shop in ["shop.py", "shop.js"] {
        let started = block(START).iter().filter(|line| line.ends_with(shop)).count();
        assert!(started == 1 && folder.join(shop).is_file(), "{shop}");
    }
}
