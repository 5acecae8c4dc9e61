//! The steps of docs/operations.md, taken one after the other.

use std::net::Ipv4Addr;
use std::path::Path;

use creditd::rules::chain_state::ChainState;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::asks::{D1, D2, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::metrics::Scrape;
use crate::common::receiver::{Receiver, answer};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Every `creditd ...` that a page shows, in a block or within a line.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.lines().map(str::trim).filter(|line| !line.contains('`'));
    let inline = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_command = |line: &&str| line.starts_with("creditd ");
    let all = blocks.chain(inline).filter(is_command);
    all.map(|line| line.split(" # ").next().unwrap().to_owned())
        .collect()
}

/// The words of a command line, single quotes respected.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in command.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn every_command_that_the_pages_show_exists_with_its_options() {
    let node = FakeNode::regtest(0);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    let mut count = 0;
    for name in [
        "docs/operations.md",
        "docs/callbacks.md",
        "docs/monitoring/README.md",
        "README.md",
    ] {
        for command in commands(&page(name)) {
            // Tables name several subcommands at once, and leave out what is required.
            if command.contains(',') || command.contains("...") || command.contains('[') {
                continue;
            }
            let words = words(&command);
            // The README says H for a height.
            let height = |word| if word == "H" { "840000" } else { word };
            let mut arguments: Vec<&str> = words.iter().skip(1).map(|word| height(word)).collect();
            // An unknown word or option is refused before this is read.
            arguments.push("--help");
            let output = daemon.cli(&arguments);
            assert!(
                output.status.success(),
                "{name}: {command}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

#[test]
fn the_page_names_every_state_of_a_chain() {
    let page = page("docs/operations.md");
    for state in ChainState::ALL {
        let halt = if state.is_halt() { " (halt)" } else { "" };
        let row = format!("| `{}`{halt} |", state.word());
        assert_eq!(page.matches(&row).count(), 1, "{row}");
    }
}

/// Makes a node so that its chain gets into a state.
type Spoil = Box<dyn Fn(&FakeNode)>;

/// State, words of its reason, and how to get there.
fn spoilers() -> Vec<(&'static str, &'static str, Spoil)> {
    let info = |fields: Value| move |node: &FakeNode| node.state().info = fields.clone();
    let refuse_blocks = |code, words: &'static str| {
        move |node: &FakeNode| {
            node.state()
                .overrides
                .insert("getblock".to_owned(), Reply::Error(code, words));
            node.mine(Vec::new());
        }
    };
    vec![
        (
            "syncing",
            "catching up",
            Box::new(info(json!({ "initialblockdownload": true }))),
        ),
        (
            "wrong_network",
            "wrong network",
            Box::new(info(json!({ "chain": "test" }))),
        ),
        (
            "unreachable",
            "warming up: Loading block index",
            Box::new(|node: &FakeNode| {
                let warming = Reply::Error(-28, "Loading block index…");
                node.state()
                    .overrides
                    .insert("getblockchaininfo".to_owned(), warming);
            }),
        ),
        (
            "missing_data",
            "is not there yet",
            Box::new(refuse_blocks(-1, "Block not available (not fully downloaded)")),
        ),
        (
            "pruned_gap",
            "has pruned blocks",
            Box::new(refuse_blocks(-1, "Block not available (pruned data)")),
        ),
        (
            "bad_block",
            "bad block",
            Box::new(|node: &FakeNode| {
                let block = node.mine(Vec::new());
                let mut spoilt = block.clone();
                spoilt.txdata[0].output[0].value = bitcoincore_rpc::bitcoin::Amount::from_sat(1);
                let hex = bitcoincore_rpc::bitcoin::consensus::encode::serialize_hex(&spoilt);
                node.state()
                    .overrides
                    .insert("getblock".to_owned(), Reply::Result(json!(hex)));
            }),
        ),
        (
            "behind",
            "the node is at height",
            Box::new(|node: &FakeNode| {
                let height = node.state().height();
                node.back_to(height - 2);
            }),
        ),
    ]
}

/// One row of the table of states: how a node gets a chain there, and that the chain leaves it by itself.
#[test]
fn every_state_is_told_with_its_reason_and_ends_once_the_node_is_right_again() {
    let (node, other) = (FakeNode::regtest(6), FakeNode::regtest(1));
    let mut daemon = Daemon::start(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        chain_lines: "reorg_window = 6\n".to_owned(),
        ..Setup::for_stub(&node.stub).beside(&other.stub)
    });
    daemon.wait_height(6);
    for (state, words, spoil) in spoilers() {
        spoil(&node);
        let status = daemon.wait_state(state, words);
        assert_eq!(
            status["is_halted"],
            ChainState::from_word(state).unwrap().is_halt(),
            "{state}"
        );
        let told: Value = serde_json::from_str(&daemon.ops("/readyz").1).unwrap();
        assert_eq!(told["chains"][0]["state"], state);
        assert_eq!(
            told["chains"][1]["ready"], true,
            "{state}: the other chain goes on"
        );
        {
            let mut node = node.state();
            node.info = json!({});
            node.overrides.clear();
            // The same blocks again, and none new.
            let stale = std::mem::take(&mut node.stale);
            node.chain.extend(stale);
        }
        let height = node.state().height();
        daemon.wait_height(height as u64);
    }
    daemon.stop();
}

/// A daemon at height 3 that watches one address and credits at the first confirmation.
fn crediting_at_once(node: &FakeNode) -> Daemon {
    let mut daemon = Daemon::prepare(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        confirmations: 1,
        ..Setup::for_stub(&node.stub)
    });
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(3);
    daemon
}

#[test]
fn a_restored_backup_is_noticed_and_ends_at_the_same_credits() {
    let node = FakeNode::regtest(3);
    let mut daemon = crediting_at_once(&node);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000)])]);
    daemon.wait_height(4);
    let backups = TempDir::new().unwrap();
    let backup = backups.path().join("creditd-2026-01-31.db");
    daemon.json(&["backup", backup.to_str().unwrap()]);
    // Since then: a payment, and an address with a payment of its own.
    node.mine(vec![tx(&[coin(2)], &[(script(D1), 2_000)])]);
    daemon.wait_height(5);
    daemon.watch(D2);
    node.mine(vec![tx(&[coin(3)], &[(script(D2), 3_000)])]);
    daemon.wait_height(6);
    let ids = |daemon: &Daemon| {
        let created = daemon.events_of("credit.created");
        created
            .into_iter()
            .map(|event| (event.subject, event.id))
            .collect::<Vec<_>>()
    };
    let before = ids(&daemon);
    assert_eq!(before.len(), 3);
    daemon.stop();

    shell(
        daemon.folder(),
        "mkdir old && { mv creditd.db creditd.db-* old/ 2>mv.log || true; }",
    );
    std::fs::copy(&backup, daemon.database()).unwrap();
    daemon.start_again();
    daemon.wait_height(6);
    assert!(
        daemon
            .log()
            .contains("the cursor is 2 blocks behind the high-water file"),
        "{}",
        daemon.log()
    );
    assert_eq!(findings(&daemon), 1.0);
    assert_eq!(
        ids(&daemon),
        before[..2],
        "what the chain tells is back under the same ids"
    );

    daemon.watch(D2);
    let rescan = [
        "rescan",
        "--from",
        "5",
        "--backfill",
        "all",
        "--reason",
        "restored the backup",
        "--apply",
    ];
    daemon.json(&rescan);
    wait_until("the other payment is back", PATIENCE, || {
        (ids(&daemon).len() == 3).then_some(())
    });
    assert_eq!(ids(&daemon), before);
    daemon.assert_sound();
    daemon.stop();
    daemon.start_again();
    daemon.wait_height(6);
    assert_eq!(findings(&daemon), 0.0);
    daemon.stop();
}

#[track_caller]
fn findings(daemon: &Daemon) -> f64 {
    Scrape::parse(&daemon.ops("/metrics").1).value("creditd_start_findings", &[])
}

#[track_caller]
fn shell(folder: &Path, script: &str) {
    let status = std::process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success(), "{script}");
}

#[test]
fn another_node_of_the_same_chain_takes_over_and_one_of_another_chain_is_refused() {
    // Both mine the same blocks.
    let (old, new, foreign) = (FakeNode::regtest(3), FakeNode::regtest(5), FakeNode::regtest(9));
    foreign.state().info = json!({ "chain": "main" });
    let mut daemon = Daemon::watching(&Setup::for_stub(&old.stub), D1, 3);
    let events = daemon.events();
    for (node, is_good) in [(&foreign, false), (&new, true)] {
        daemon.write_config(&Setup::for_stub(&node.stub));
        assert_eq!(daemon.cli(&["check"]).status.success(), is_good);
        daemon.stop();
        daemon.start_again();
        if is_good {
            daemon.wait_height(5);
        } else {
            daemon.wait_state("wrong_network", "");
        }
    }
    assert_eq!(daemon.events()[..events.len()], events);
    let halts: Vec<String> = daemon.events().iter().map(|event| event.kind.clone()).collect();
    assert_eq!(halts, ["chain.halted", "chain.resumed"]);
    daemon.stop();
}

#[test]
fn held_deposits_are_listed_told_and_released() {
    let node = FakeNode::regtest(3);
    let mut daemon = crediting_at_once(&node);
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    let id = daemon.wait_deposit(&txid, 0, "credited")["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let hold = ["deposits", "hold", &id, "--reason", "customer disputes it"];
    daemon.json(&hold);
    assert_eq!(daemon.net_sum(), 1_000_000, "dry until --apply");
    daemon.json(&[&hold[..], &["--apply"]].concat());
    let held = daemon.json(&["deposits", "list", "--held"]);
    assert_eq!(held["deposits"][0]["id"], id.as_str());
    assert_eq!(daemon.net_sum(), 0);
    let story = String::from_utf8(daemon.cli(&["tx", &txid]).stdout).unwrap();
    assert!(story.contains("customer disputes it"), "{story}");
    daemon.json(&["deposits", "release", &id, "--reason", "settled", "--apply"]);
    daemon.wait_deposit(&txid, 0, "credited");
    assert_eq!(daemon.net_sum(), 1_000_000);
    daemon.stop();
}

/// A daemon with one callback to `receiver` that waits while its endpoint is paused; the endpoint's id.
fn with_a_paused_endpoint(node: &FakeNode, receiver: &Receiver) -> (Daemon, String) {
    let mut daemon = Daemon::prepare(&Setup {
        tables: "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    let url = format!("http://{}/hook", receiver.address);
    let added = daemon.json(&[
        "endpoint",
        "add",
        &url,
        "--merchant",
        "shop",
        "--types",
        "deposit.*",
    ]);
    let endpoint = added["endpoint"]["id"].as_str().unwrap().to_owned();
    daemon.json(&["endpoint", "pause", &endpoint, "--reason", "moving", "--apply"]);
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(3);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000_000)])]);
    wait_until("its event waits", PATIENCE, || {
        let list = daemon.ask(&["callbacks", "list", "--state", "waiting"])?;
        (list["callbacks"].as_array()?.len() == 1).then_some(())
    });
    wait_polls(&node.stub, 2);
    assert!(receiver.heard().is_empty(), "paused");
    (daemon, endpoint)
}

/// How many signatures the callback of this number carried, once it has arrived.
#[track_caller]
fn signatures(receiver: &Receiver, number: usize) -> usize {
    let heard = wait_until("a callback arrives", PATIENCE, || {
        receiver.heard().get(number).cloned()
    });
    heard.header("webhook-signature").unwrap().split(' ').count()
}

#[test]
fn parked_callbacks_are_sent_again_and_a_rotated_secret_signs_beside_the_old_one() {
    let node = FakeNode::regtest(3);
    let receiver = Receiver::http(Ipv4Addr::LOCALHOST, |_, to| answer(to, 204, b""));
    let (mut daemon, endpoint) = with_a_paused_endpoint(&node, &receiver);
    let endpoint = endpoint.as_str();
    // Three days of failures in a moment.
    let database = Connection::open(daemon.database()).unwrap();
    let park = "UPDATE deliveries SET state = 'parked', attempts = 10, settled_at = next_at";
    assert_eq!(database.execute(park, []).unwrap(), 1);
    daemon.json(&["endpoint", "resume", endpoint, "--reason", "moved", "--apply"]);
    let parked = daemon.json(&["callbacks", "list", "--state", "parked"]);
    let event = parked["callbacks"][0]["event"].as_str().unwrap().to_owned();
    let shown = daemon.json(&["callbacks", "show", &event]);
    assert!(shown.to_string().contains("deposit.confirming"), "{shown}");

    let rotate = |reason, hours| {
        let command = ["endpoint", "rotate-secret", endpoint, "--reason", reason];
        [&command[..], &["--overlap-hours", hours]].concat()
    };
    let applied = |reason, hours| [&rotate(reason, hours)[..], &["--apply"]].concat();
    let outcome = |args: &[&str]| {
        let done = daemon.json(args);
        (
            done["outcome"].as_str().unwrap().to_owned(),
            done["secret"].is_null(),
        )
    };
    assert_eq!(outcome(&rotate("yearly", "48")), ("dry".to_owned(), true));
    assert_eq!(outcome(&applied("yearly", "48")), ("rotated".to_owned(), false));
    assert_eq!(outcome(&applied("yearly", "48")), ("nothing".to_owned(), true));
    let retry = ["callbacks", "retry", &event, "--reason", "receiver is mended"];
    daemon.json(&retry);
    assert!(receiver.heard().is_empty(), "dry until --apply");
    daemon.json(&[&retry[..], &["--apply"]].concat());
    assert_eq!(signatures(&receiver, 0), 2);
    assert_eq!(receiver.heard()[0].header("webhook-id"), Some(event.as_str()));
    let told = daemon.cli(&rotate("leaked", "0"));
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("the old signature ends at once"), "{told}");
    assert_eq!(daemon.json(&applied("leaked", "0"))["outcome"], "rotated");
    assert_eq!(
        daemon.json(&applied("leaked", "0"))["outcome"],
        "nothing",
        "given twice it makes one key"
    );
    daemon.json(&["endpoint", "test", endpoint]);
    assert_eq!(signatures(&receiver, 1), 1);
    daemon.stop();
}

/// The books are spoilt so that a payment seems to be credited: its credit is refused, the chain stops, and
/// the payment's own story says so.
#[test]
fn refused_second_credit_stops_the_chain_and_is_counted_with_its_payment() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::watching(&Setup::for_stub(&node.stub), D1, 3);
    let paid = tx(&[coin(1)], &[(script(D1), 5_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    daemon.wait_deposit(&txid, 0, "confirming");
    assert_eq!(daemon.tx(&txid).unwrap()["outputs"][0]["refused_credits"], 0);
    let spoil = "INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at) \
         SELECT 'cr_other', t.chain, t.txid, o.vout, o.id, d.merchant, d.asset, o.amount, 0 FROM deposits d \
         JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx";
    let database = Connection::open(daemon.database()).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    assert_eq!(database.execute(spoil, []).unwrap(), 1);
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_state("bad_block", &format!("{txid}:0 cannot be credited"));
    assert_eq!(daemon.count("SELECT count(*) FROM credits"), 1);
    assert_eq!(daemon.tx(&txid).unwrap()["outputs"][0]["refused_credits"], 1);
    let told = String::from_utf8(daemon.cli(&["tx", &txid]).stdout).unwrap();
    assert!(told.contains("a second credit 1 times"), "{told}");
    daemon.stop();
}
