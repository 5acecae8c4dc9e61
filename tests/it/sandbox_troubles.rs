//! What is wrong with a simulated node, as whoever asks it sees it, and what creditd calls it.

use std::time::Duration;

use creditd::clock::Clock;
use creditd::sandbox::evm::EvmSandbox;
use creditd::sandbox::{Sandbox, Trouble};
use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::http;
use crate::common::wait::{PATIENCE, wait_until};

/// A call for a whole list may take a minute before the node is given up.
const HANG_MAX: Duration = Duration::from_secs(100);

const QUESTION: &str = r#"{"jsonrpc": "2.0", "id": 1, "method": "METHOD", "params": []}"#;

fn ask(url: &str, method: &str, credentials: &str) -> (u16, Value) {
    let request = http::Request {
        verb: "POST".to_owned(),
        path: "/".to_owned(),
        authorization: None,
        body: QUESTION.replace("METHOD", method).into_bytes(),
    };
    let port = url.rsplit_once(':').unwrap().1.parse().unwrap();
    let (status, _, body) = http::forward(port, &request, credentials).unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn a_troubled_node_answers_as_such_a_node_does() {
    let folder = tempfile::tempdir().unwrap();
    let bitcoin = Sandbox::at_genesis(folder.path(), Clock::real()).unwrap();
    let evm = EvmSandbox::at_genesis(31_337, Clock::real()).unwrap();
    let cookie = std::fs::read_to_string(bitcoin.cookie_file()).unwrap();
    let port = bitcoin.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let header = format!("/rest/headers/{}.bin?count=1", bitcoin.tip());
    let both = || {
        [
            ask(bitcoin.url(), "getblockcount", &cookie),
            ask(&evm.url(), "eth_blockNumber", "nobody:"),
        ]
    };
    // Trouble, status of both, the error's code of each, status of a header by REST.
    let rows = [
        (Trouble::Down, 503, [None, None], 503),
        (Trouble::Limit, 429, [None, None], 429),
        (Trouble::Login, 401, [None, None], 401),
        (Trouble::Warming, 200, [Some(-28), Some(-32_000)], 503),
    ];
    for (trouble, status, codes, rest) in rows {
        bitcoin.set_trouble(Some(trouble), None);
        evm.set_trouble(Some(trouble), None);
        for ((got, body), code) in both().iter().zip(codes) {
            assert_eq!(
                (*got, body["error"]["code"].as_i64()),
                (status, code),
                "{trouble:?}"
            );
        }
        assert_eq!(
            http::get(port, &header).unwrap_or((rest, String::new())).0,
            rest,
            "{trouble:?}"
        );
        assert_eq!((bitcoin.trouble(), evm.trouble()), (Some(trouble), Some(trouble)));
    }
    bitcoin.set_trouble(None, None);
    evm.set_trouble(None, None);
    let [(_, height), (_, number)] = both();
    assert_eq!((&height["result"], &number["result"]), (&json!(0), &json!("0x0")));
}

#[test]
fn a_trouble_for_a_span_ends_by_itself() {
    let evm = EvmSandbox::at_genesis(31_337, Clock::real()).unwrap();
    for trouble in Trouble::ALL {
        evm.set_trouble(Some(trouble), Some(Duration::from_millis(200)));
        // A hanging node answers once it is over.
        wait_until("the node answers", PATIENCE, || {
            let (_, answer) = ask(&evm.url(), "eth_chainId", "nobody:");
            (answer["result"] == "0x7a69").then_some(())
        });
        assert_eq!(evm.trouble(), None);
        assert_eq!(Trouble::of_word(trouble.word()), Some(trouble));
    }
}

#[test]
fn each_trouble_of_a_node_is_a_named_state() {
    let folder = tempfile::tempdir().unwrap();
    let bitcoin = Sandbox::start(folder.path(), Clock::real()).unwrap();
    let evm = EvmSandbox::start(31_337, Clock::real()).unwrap();
    let setup = Setup {
        tables: format!(
            "[[evm]]\nalias = \"evm\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 50\npending_ms = 50\n\
             [[evm.endpoint]]\nname = \"sandbox\"\nurl = \"{}\"\n[evm.native]\nsymbol = \"ETH\"\n\
             inner = \"none\"\npolicy = [ {{ confirmations = 3 }} ]\n",
            evm.url()
        ),
        ..Setup::new(bitcoin.url().to_owned(), bitcoin.cookie_file().to_owned())
    };
    let daemon = Daemon::start(&setup);
    let wait = |state: &str, words: [&str; 2]| {
        wait_until(&format!("{state} {words:?}"), HANG_MAX, || {
            let output = daemon.cli(&["chain", "status", "--json"]);
            let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
            let chains = answer["chains"].as_array()?;
            let is_so = |chain: &Value| {
                let reason = chain["reason"].as_str().unwrap_or_default();
                let word = if chain["chain"] == "btc" {
                    words[0]
                } else {
                    words[1]
                };
                chain["state"] == state && reason.contains(word)
            };
            (chains.len() == 2 && chains.iter().all(is_so)).then_some(())
        });
    };
    wait("following", ["", ""]);
    // A node that hangs is given up by the deadline of a call.
    for (trouble, words) in [
        (Trouble::Down, ["503", "503"]),
        (Trouble::Limit, ["429", "429"]),
        (Trouble::Login, ["unauthorized", "unauthorized"]),
        (Trouble::Warming, ["warming up", "starting"]),
        (Trouble::Hang, ["", ""]),
    ] {
        bitcoin.set_trouble(Some(trouble), None);
        evm.set_trouble(Some(trouble), None);
        wait("unreachable", words);
        bitcoin.set_trouble(None, None);
        evm.set_trouble(None, None);
        wait("following", ["", ""]);
    }
}

/// The branch that gave way came earlier, and stays the worse one: `118-119-120` / `118-119'-120'-121'`.
#[test]
fn a_node_that_lags_after_a_reorg_is_still_on_its_best_branch() {
    let folder = tempfile::tempdir().unwrap();
    let bitcoin = Sandbox::start(folder.path(), Clock::real()).unwrap();
    let evm = EvmSandbox::start(31_337, Clock::real()).unwrap();
    bitcoin.reorg(2, &[]).unwrap();
    evm.reorg(2, &[]).unwrap();
    let (tip, other) = ((bitcoin.height(), bitcoin.tip()), (evm.height(), evm.tip()));
    for blocks in 1..=3_u32 {
        let [at, beside] = [tip.0, other.0].map(|height| height - u64::from(blocks));
        let [hash, below] = [bitcoin.block_hash(at), evm.block_hash(beside)].map(Option::unwrap);
        bitcoin.lag(blocks);
        evm.lag(blocks.into());
        assert_eq!((bitcoin.height(), bitcoin.tip()), (at, hash), "lag {blocks}");
        assert_eq!((evm.height(), evm.tip()), (beside, below), "lag {blocks}");
        bitcoin.catch_up();
        evm.catch_up();
        assert_eq!((bitcoin.height(), bitcoin.tip()), tip, "after lag {blocks}");
        assert_eq!((evm.height(), evm.tip()), other, "after lag {blocks}");
    }
}
