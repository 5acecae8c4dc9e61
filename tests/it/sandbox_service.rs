//! The sandbox as a service: its control over HTTP, scenarios, and who is refused.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use creditd::clock::Clock;
use creditd::sandbox::scenario;
use creditd::sandbox::service::{Service, Settings};
use creditd::sandbox::step::Step;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::http;
use crate::common::wait::{PATIENCE, wait_until};

struct Box {
    service: Service,
    _folder: TempDir,
}

/// On free ports.
fn settings(folder: &TempDir) -> Settings {
    Settings {
        folder: folder.path().to_owned(),
        control: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        bitcoin_port: 0,
        evm_port: 0,
        block_every: None,
    }
}

impl Box {
    fn start() -> Box {
        Box::with(Clock::real())
    }

    fn with(clock: Clock) -> Box {
        let folder = tempfile::tempdir().unwrap();
        Box {
            service: Service::start(&settings(&folder), clock).unwrap(),
            _folder: folder,
        }
    }

    fn port(&self) -> u16 {
        let url = self.service.url();
        url.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn send(&self, verb: &str, path: &str, body: &str) -> (u16, String) {
        let request = http::Request {
            verb: verb.to_owned(),
            path: path.to_owned(),
            authorization: None,
            body: body.as_bytes().to_vec(),
        };
        let (status, _, body) = http::forward(self.port(), &request, "nobody:").unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, text) = self.send("POST", path, &body.to_string());
        (status, serde_json::from_str(&text).unwrap())
    }

    /// A step that must be done.
    #[track_caller]
    fn step(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, body.clone());
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    /// A step that must be refused: why, and what to do.
    #[track_caller]
    fn refused(&self, path: &str, body: Value) -> [String; 2] {
        let (status, answer) = self.post(path, body.clone());
        assert_eq!(status, 422, "{path} {body}: {answer}");
        ["error", "next"].map(|key| answer[key].as_str().unwrap().to_owned())
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.send("GET", "/v1/state", "").1).unwrap()
    }

    /// Where the transaction of a name is.
    fn place(&self, name: &str) -> Value {
        let named = &self.state()["names"][name];
        json!([named["place"], named["depth"]])
    }
}

/// Steps on one chain of a sandbox.
struct Hand<'a> {
    sandbox: &'a Box,
    chain: &'a str,
}

impl Hand<'_> {
    #[track_caller]
    fn act(&self, verb: &str, body: Value) -> Value {
        self.sandbox.step(&format!("/v1/{}/{verb}", self.chain), body)
    }

    fn state(&self, key: &str) -> Value {
        self.sandbox.state()[self.chain][key].clone()
    }

    fn height(&self) -> u64 {
        self.state("height").as_u64().unwrap()
    }
}

#[test]
fn each_trigger_moves_the_node() {
    let sandbox = Box::start();
    for (chain, coin) in [("btc", "BTC"), ("evm", "ETH")] {
        let sandbox = &sandbox;
        let hand = Hand { sandbox, chain };
        waits_and_is_mined(&hand, coin);
        leaves_and_comes_back(&hand);
        is_spent_twice(&hand);
        hand.act("node", json!({"trouble": "limit", "for_ms": 60_000}));
        assert_eq!(hand.state("trouble"), "limit");
        hand.act("node", json!({"trouble": "up"}));
        assert_eq!(hand.state("trouble"), Value::Null);
    }
}

fn waits_and_is_mined(hand: &Hand<'_>, coin: &str) {
    let begin = hand.height();
    let did = hand.act(
        "deposit",
        json!({"to": "order-1", "amount": "0.29", "as": "first"}),
    );
    let words = did["did"].as_str().unwrap();
    assert!(words.starts_with(&format!("sent 0.29 {coin} to ")), "{words}");
    assert_eq!(
        (hand.sandbox.place("first"), &did["height"]),
        (json!(["waits", null]), &json!(begin))
    );
    assert_eq!(hand.state("waiting"), json!([did["txid"]]));
    hand.act("replace", json!({"tx": "first", "as": "second"}));
    assert_eq!(hand.sandbox.place("first"), json!(["gone", null]));
    let mined = hand.act("mine", json!({"blocks": 2}));
    assert_eq!(mined["block"], hand.state("tip"));
    assert_eq!(hand.sandbox.place("second"), json!(["mined", 2]));
}

/// `second` is in the last block but one.
fn leaves_and_comes_back(hand: &Hand<'_>) {
    let (begin, second) = (hand.height(), || hand.sandbox.place("second"));
    hand.act("reorg", json!({"depth": 2, "keep": ["all"]}));
    assert_eq!((second(), hand.height()), (json!(["mined", 3]), begin + 1));
    hand.act("reorg", json!({"depth": 3}));
    assert_eq!((second(), hand.height()), (json!(["waits", null]), begin + 2));
    hand.act("evict", json!({"tx": "second"}));
    assert_eq!(second(), json!(["gone", null]));
    let resend = || hand.act("resend", json!({"tx": "second"}))["did"].clone();
    assert_eq!(resend(), "second waits again");
    assert_eq!(resend(), "second waits already");
    hand.act("mine", json!({"blocks": 1}));
    hand.act("lag", json!({"blocks": 2}));
    assert_eq!((hand.height(), hand.state("lags")), (begin + 1, json!(true)));
    hand.act("lag", json!({"blocks": 0}));
    assert_eq!((hand.height(), second()), (begin + 3, json!(["mined", 1])));
}

/// `second` is in the last block.
fn is_spent_twice(hand: &Hand<'_>) {
    let place = |name: &str| hand.sandbox.place(name);
    let spent = hand.act("double-spend", json!({"tx": "second", "as": "other"}));
    let words = spent["did"].as_str().unwrap();
    assert!(words.contains("by a reorg of 1 block: 0.29"), "{words}");
    assert_eq!(
        (place("second"), place("other")),
        (json!(["gone", null]), json!(["mined", 2]))
    );
    hand.act("deposit", json!({"to": "order-2", "amount": "1", "as": "third"}));
    let theft = json!({"tx": "third", "to": "thief", "amount": "0.5", "as": "theft"});
    hand.act("double-spend", theft);
    assert_eq!(
        (place("third"), place("theft")),
        (json!(["gone", null]), json!(["mined", 1]))
    );
}

#[test]
fn evm_triggers_pay_tokens_fail_and_move_tags() {
    let sandbox = Box::start();
    let act = |verb: &str, body: Value| sandbox.step(&format!("/v1/evm/{verb}"), body);
    let to = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
    let pay = json!({"to": to, "amount": "5.5", "token": "TUSD", "as": "pay"});
    assert_eq!(act("deposit", pay)["did"], format!("sent 5.5 TUSD to {to}"));
    let replaced = act("replace", json!({"tx": "pay", "amount": "5", "as": "again"}));
    assert_eq!(
        replaced["did"],
        format!("replaced pay: 5 TUSD to {to}, with a higher price")
    );
    act("fail", json!({"tx": "again"}));
    act("mine", json!({"blocks": 1}));
    let txid = replaced["txid"].as_str().unwrap();
    let place = sandbox.state();
    assert_eq!(place["names"]["again"]["txid"], txid);
    assert_eq!(sandbox.place("again"), json!(["mined", 1]));
    let height = sandbox.state()["evm"]["height"].as_u64().unwrap();
    let tags = act("tags", json!({"safe": "1", "finalized": "@70"}));
    assert_eq!(tags["did"], format!("safe is at {}, finalized at 70", height - 1));
    act("tags", json!({"finalized": "none"}));
    assert_eq!(sandbox.state()["evm"]["finalized"], Value::Null);
}

#[test]
fn what_cannot_be_done_is_refused_with_the_next_step() {
    let sandbox = Box::start();
    sandbox.step(
        "/v1/btc/deposit",
        json!({"to": "order-1", "amount": "1", "as": "first"}),
    );
    sandbox.step("/v1/btc/lag", json!({"blocks": 1}));
    let rows = [
        ("/v1/btc/mine", json!({"blocks": 1})),
        ("/v1/btc/mine", json!({"blocks": 10_001})),
        ("/v1/btc/mine", json!({"blocks": 0})),
        ("/v1/btc/mine", json!({"blocks": -1})),
        ("/v1/btc/reorg", json!({"depth": 0})),
        ("/v1/evm/mine", json!({"blocks": 0})),
        ("/v1/evm/reorg", json!({"depth": 0})),
        ("/v1/evm/lag", json!({"blocks": 4_000_000_000_u32})),
        ("/v1/evm/node", json!({"trouble": "limit", "for_ms": u64::MAX})),
        ("/v1/btc/mine", json!({"block": 1})),
        ("/v1/btc/fail", json!({"tx": "first"})),
        ("/v1/btc/tags", json!({"safe": "1"})),
        ("/v1/evm/evict", json!({"tx": "first"})),
        ("/v1/btc/evict", json!({"tx": "frist"})),
        (
            "/v1/btc/deposit",
            json!({"to": "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "amount": "1"}),
        ),
        (
            "/v1/evm/deposit",
            json!({"to": "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "amount": "1"}),
        ),
        ("/v1/btc/deposit", json!({"to": "a", "amount": "0.000000001"})),
        ("/v1/btc/deposit", json!({"to": "a", "amount": "20000000"})),
        (
            "/v1/btc/deposit",
            json!({"to": "a", "amount": "1", "token": "TUSD"}),
        ),
        (
            "/v1/evm/deposit",
            json!({"to": "a", "amount": "1", "token": "USDT"}),
        ),
        ("/v1/evm/deposit", json!({"to": "a", "amount": "1", "as": "all"})),
        ("/v1/evm/reorg", json!({"depth": 81})),
        ("/v1/evm/tags", json!({"safe": "far"})),
        ("/v1/evm/tags", json!({})),
        ("/v1/evm/node", json!({"trouble": "asleep"})),
    ];
    let told = rows.map(|(path, body)| {
        let [error, next] = sandbox.refused(path, body.clone());
        format!("{path} {body}\n  {error}\n  -> {next}\n")
    });
    insta::assert_snapshot!(told.join("\n"));
    assert_eq!(
        sandbox.place("first"),
        json!(["waits", null]),
        "nothing has changed"
    );
    let (status, answer) = sandbox.post("/v1/doge/mine", json!({"blocks": 1}));
    assert_eq!(status, 404);
    for verb in Step::VERBS {
        assert!(answer["next"].as_str().unwrap().contains(verb), "{answer}");
    }
}

#[test]
fn a_browser_is_refused() {
    let sandbox = Box::start();
    let height = sandbox.service.bitcoin().height();
    let status = |headers: &str| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, sandbox.port())).unwrap();
        let body = "{\"blocks\": 1}";
        write!(
            stream,
            "POST /v1/btc/mine HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let line = answer.lines().next().unwrap().to_owned();
        (line.split(' ').nth(1).unwrap().to_owned(), answer)
    };
    for headers in [
        "Host: 127.0.0.1:18555\r\nOrigin: http://127.0.0.1:18555\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: rebound.example:18555\r\n",
        "Host: 127.0.0.1.rebound.example\r\n",
        "Host: [::2]:18555\r\n",
    ] {
        let (code, answer) = status(headers);
        assert_eq!(code, "403", "{headers}{answer}");
        assert!(answer.contains("not for browsers"), "{answer}");
    }
    assert_eq!(sandbox.service.bitcoin().height(), height);
    for headers in [
        "Host: localhost:1\r\n",
        "Host: 127.0.0.1\r\n",
        "Host: [::1]:18555\r\n",
    ] {
        assert_eq!(status(headers).0, "200", "{headers}");
    }
    assert_eq!(sandbox.service.bitcoin().height(), height + 3);
}

#[test]
fn a_second_sandbox_in_a_folder_is_refused_until_the_first_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Service::start(&settings(&folder), Clock::real());
    let files = || [".cookie", "sandbox.json"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    let first = start().unwrap();
    let held = files();
    let refused = start().err().unwrap();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.starts_with("another sandbox runs in "), "{why}");
    assert_eq!(files(), held, "the first is as it was");
    drop(first);
    assert!(start().is_ok());
}

#[test]
fn a_sandbox_listens_on_loopback_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        control: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        ..settings(&folder)
    };
    let error = Service::start(&settings, Clock::real()).err().unwrap();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        why,
        "0.0.0.0:0 is no loopback address: the sandbox is for this machine alone"
    );
}

const STORY: &str = "\
btc deposit order-1 0.29 as first   # paid
btc mine 1
btc deposit order-2 1 as second
btc replace second amount 0.9 as bumped
btc mine 2
btc double-spend first to elsewhere as theft
evm deposit order-3 5 TUSD as pay
evm fail pay
evm mine 2
evm reorg 2 keep pay
";

/// The lines of a run that was asked for over HTTP.
fn lines(sandbox: &Box, text: &str) -> Vec<Value> {
    let (status, answer) = sandbox.send("POST", "/v1/run", text);
    assert_eq!(status, 200, "{answer}");
    // Between them stand the sizes of the pieces in which they came.
    let lines = answer.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_scenario_twice_gives_the_same_chain() {
    let ends = [0, 1].map(|_| {
        let sandbox = Box::with(Clock::simulated(1_764_000_000_000));
        let ended = lines(&sandbox, STORY);
        assert_eq!(ended.len(), STORY.lines().count());
        assert!(ended.iter().all(|line| line["did"].is_string()), "{ended:?}");
        let state = sandbox.state();
        json!([ended, state["names"], state["btc"]["tip"], state["evm"]["tip"]])
    });
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn a_refused_line_ends_a_scenario_and_a_faulty_one_begins_none() {
    let sandbox = Box::start();
    let height = sandbox.service.bitcoin().height();
    let step = format!("btc evict {}", "ab".repeat(32));
    let ended = lines(&sandbox, &format!("btc mine 1\n# here\n{step}\nbtc mine 1\n"));
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert_eq!((&ended[1]["line"], &ended[1]["step"]), (&json!(3), &json!(step)));
    assert!(ended[1]["next"].is_string());
    assert_eq!(sandbox.service.bitcoin().height(), height + 1);
    let (status, answer) = sandbox.send(
        "POST",
        "/v1/run",
        "btc mine 1\nbtc mine\nwait long\nbtc mine 0\nwait 2000m",
    );
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (status, &answer["faults"]),
        (
            422,
            &json!([
                "line 2: write `mine BLOCKS`",
                "line 3: \"long\" is no time: write 250ms, 2s or 1m",
                "line 4: \"0\" is no number of blocks: take 1 to 10000",
                "line 5: \"2000m\" is longer than a day"
            ])
        )
    );
    assert_eq!(sandbox.service.bitcoin().height(), height + 1);
}

#[test]
fn a_scenario_pauses_until_it_is_told_to_go_on() {
    let sandbox = Box::start();
    let height = sandbox.service.evm().height();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| lines(&sandbox, "evm mine 1\npause\nwait 1ms\nevm mine 1\n"));
        wait_until("the first block", PATIENCE, || {
            (sandbox.service.evm().height() == height + 1).then_some(())
        });
        assert!(!run.is_finished());
        sandbox.step("/v1/go", json!({}));
        assert_eq!(run.join().unwrap().len(), 4);
    });
    assert_eq!(sandbox.service.evm().height(), height + 2);
}

#[test]
fn a_reset_begins_both_chains_anew() {
    let sandbox = Box::start();
    let start = sandbox.state();
    lines(&sandbox, STORY);
    sandbox.step("/v1/evm/node", json!({"trouble": "down"}));
    sandbox.step("/v1/reset", json!({}));
    let now = sandbox.state();
    for key in ["height", "waiting", "lags", "trouble", "url"] {
        for chain in ["btc", "evm"] {
            assert_eq!(now[chain][key], start[chain][key], "{chain} {key}");
        }
    }
    assert_eq!(now["names"], json!({}));
    let same = sandbox.service.evm().block_hash(0);
    lines(&sandbox, STORY);
    assert_eq!(sandbox.service.evm().block_hash(0), same);
}

#[test]
fn blocks_come_by_the_clock_if_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        block_every: Some(std::time::Duration::from_millis(50)),
        ..settings(&folder)
    };
    let service = Service::start(&settings, Clock::real()).unwrap();
    let (bitcoin, evm) = (service.bitcoin().height(), service.evm().height());
    wait_until("blocks on both chains", PATIENCE, || {
        let is_so = service.bitcoin().height() > bitcoin + 1 && service.evm().height() > evm + 1;
        is_so.then_some(())
    });
}

#[test]
fn the_config_of_a_sandbox_is_one_that_creditd_takes() {
    let sandbox = Box::start();
    let file = sandbox.service.folder().join("creditd.toml");
    std::fs::write(&file, sandbox.service.config()).unwrap();
    let config = creditd::config::Config::load(Some(&file)).unwrap();
    assert_eq!(config.file, file);
    assert!(scenario::parse(STORY).is_ok());
    assert!(sandbox.service.config().contains(sandbox.service.bitcoin().url()));
}

#[test]
fn a_name_that_is_given_again_says_what_it_was_and_tags_stand_in_their_order() {
    let sandbox = Box::start();
    let pay = json!({"to": "order-1", "amount": "1", "as": "first"});
    let first = sandbox.step("/v1/btc/deposit", pay.clone());
    let again = sandbox.step("/v1/btc/deposit", pay);
    let moved = format!("; first was {} before", first["txid"].as_str().unwrap());
    assert!(again["did"].as_str().unwrap().ends_with(&moved), "{again}");
    let [error, next] = sandbox.refused("/v1/evm/tags", json!({"finalized": "0"}));
    assert!(
        error.contains("would be above safe") && next.contains("both at once"),
        "{error}"
    );
    sandbox.step("/v1/evm/tags", json!({"safe": "0", "finalized": "0"}));
}
