//! The commands on a ledger of an EVM chain, in a config that has a Bitcoin chain too.

use creditd::rules::chain_state::ChainState;
use creditd::store::{Database, OpenMode};
use serde_json::{Value, json};

use crate::sample::D1;
use crate::sample_evm::{DAI, E1, E2, EvmSample, PAYER, USDC, WALLET, script, shown};
use crate::schema;

#[track_caller]
fn told(sample: &EvmSample, args: &[&str]) -> String {
    let output = sample.files.cli(args);
    let (stdout, stderr) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr:?}");
    stdout.unwrap()
}

#[track_caller]
fn refused(sample: &EvmSample, args: &[&str], code: i32, expected: &str) {
    let output = sample.files.cli(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(stderr.contains(expected), "{args:?}: {stderr}");
}

/// How many rows a list has.
fn count(sample: &EvmSample, args: &[&str]) -> usize {
    let answer = sample.files.json(args);
    let list = answer.as_object().unwrap().values().find_map(Value::as_array);
    list.unwrap().len()
}

#[test]
fn lists_and_stories_of_an_evm_ledger() {
    let sample = EvmSample::filled();
    for (name, args) in [
        ("evm_deposits", &["deposits", "list"][..]),
        ("evm_deposits_csv", &["deposits", "list", "--csv"]),
        ("evm_credits", &["credits"]),
        ("evm_balances", &["balances"]),
        ("evm_balances_csv", &["balances", "--csv"]),
        ("evm_addresses", &["watch", "list"]),
        ("evm_chain_status", &["chain", "status"]),
        ("evm_tx_final", &["tx", &shown(1)]),
        ("evm_tx_tokens", &["tx", &shown(2)]),
        ("evm_tx_inner", &["tx", &shown(3)]),
        ("evm_tx_executed_again", &["tx", &shown(5)]),
        ("evm_tx_nonce_used", &["tx", &shown(6)]),
        ("evm_tx_json", &["tx", &shown(3), "--json"]),
        ("evm_status_json", &["chain", "status", "--json"]),
    ] {
        insta::assert_snapshot!(name, told(&sample, args));
    }
}

#[test]
fn hashes_are_printed_with_their_prefix_and_read_with_and_without() {
    let sample = EvmSample::filled();
    let with = shown(2);
    let whole = sample.files.json(&["tx", &with]);
    assert_eq!(whole["transactions"][0]["txid"], json!(with));
    for typed in [
        with[2..].to_owned(),
        with.to_uppercase().replace("0X", "0x"),
        with.to_uppercase(),
        format!("{with}:1"),
        format!("{}:3", &with[2..]),
    ] {
        assert_eq!(sample.files.json(&["tx", &typed]), whole, "{typed}");
    }
    assert_eq!(count(&sample, &["credits", "--txid", &with]), 2);
    assert_eq!(count(&sample, &["credits", "--txid", &with[2..]]), 2);
    let hold = ["deposits", "hold", &format!("{with}:3"), "--reason", "x"];
    assert_eq!(
        sample.files.json(&hold)["deposits"][0]["position"],
        json!("log 2")
    );
    // Frozen in the bodies of events too.
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    let bare: i64 = raw
        .query_row(
            "SELECT count(*) FROM events WHERE body NOT LIKE '%\"txid\":\"0x%' OR body LIKE '%_hash\":\"e%'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(bare, 0);
    let causes: i64 = raw
        .query_row(
            "SELECT count(*) FROM audit WHERE cause LIKE '%block e%'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(causes, 0);
}

#[test]
fn event_bodies_are_those_of_the_schema() {
    let sample = EvmSample::filled();
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    let mut statement = raw.prepare("SELECT body FROM events").unwrap();
    let bodies: Vec<String> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(bodies.len() > 10);
    for body in &bodies {
        assert_eq!(schema::faults_of(body.as_bytes()), Vec::<String>::new(), "{body}");
    }
    let is_told = |what: &str| bodies.iter().any(|body| body.contains(what));
    assert!(is_told("\"finality_required\":\"finalized\"") && is_told("\"payer\":\"0xD1220A0c"));
}

#[test]
fn a_payment_that_waits_for_finality_is_not_overdue() {
    let sample = EvmSample::filled();
    let next_due = || {
        let database = Database::open(&sample.files.database(), OpenMode::ReadOnly).unwrap();
        let readings = database.read(|tx| tx.readings()).unwrap();
        readings.chains[0].next_due_height
    };
    assert_eq!(next_due(), None, "block 101 is deep enough, and not final yet");
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    raw.execute_batch("UPDATE chains SET finalized_height = 101")
        .unwrap();
    drop(raw);
    assert_eq!(next_due(), Some(101));
}

#[test]
fn c23_every_right_spelling_of_an_evm_address_is_one_address() {
    let sample = EvmSample::empty();
    let add = |address: &str| {
        let add = ["watch", "add", address, "--chain", "dev", "--merchant", "shop"];
        sample.files.json(&add)
    };
    let (lower, upper) = (E1.to_lowercase(), E1.to_uppercase().replace("0X", "0x"));
    assert_eq!(add(&upper)["outcome"], json!("added"));
    for spelling in [E1, &lower, &upper, &upper.replace("0x", "0X")] {
        let added = add(spelling);
        assert_eq!(
            (&added["outcome"], &added["address"]),
            (&json!("known"), &json!(E1))
        );
        assert_eq!(
            count(&sample, &["watch", "list", "--address", spelling]),
            1,
            "{spelling}"
        );
    }
    // One letter in the other case.
    let flipped = E1.replace("BeAed", "Beaed");
    for args in [
        &["watch", "add", &flipped, "--chain", "dev", "--merchant", "shop"][..],
        &["watch", "own", &flipped, "--chain", "dev", "--merchant", "shop"],
        &["watch", "list", "--address", &flipped],
        &["deposits", "list", "--address", &flipped],
        &[
            "rescan",
            "--from",
            "1",
            "--backfill",
            &flipped,
            "--chain",
            "dev",
            "--reason",
            "x",
        ],
        &["deposits", "list", "--asset", &USDC.replace("A0b", "a0b")],
    ] {
        refused(&sample, args, 2, "(bad_address_checksum)");
    }
    let on_bitcoin = ["watch", "add", E1, "--chain", "btc", "--merchant", "shop"];
    refused(&sample, &on_bitcoin, 2, "not a Bitcoin address (unknown_address)");
    let on_evm = ["watch", "add", D1, "--chain", "dev", "--merchant", "shop"];
    refused(&sample, &on_evm, 2, "not an address of an EVM chain");
    let short = ["watch", "add", &E1[..41], "--chain", "dev", "--merchant", "shop"];
    refused(
        &sample,
        &short,
        2,
        "says that dev is an EVM chain, chain id 31337",
    );
}

#[test]
fn an_address_is_watched_on_each_chain_by_itself() {
    let sample = EvmSample::empty();
    refused(
        &sample,
        &["watch", "add", E1, "--merchant", "shop"],
        2,
        "--chain with one of btc, dev, bsc",
    );
    for chain in ["dev", "bsc"] {
        let add = ["watch", "add", E1, "--chain", chain, "--merchant", "shop"];
        assert_eq!(sample.files.json(&add)["chain"], json!(chain));
    }
    assert_eq!(count(&sample, &["watch", "list", "--address", E1]), 2);
    assert_eq!(
        count(&sample, &["watch", "list", "--address", E1, "--chain", "bsc"]),
        1
    );
    let own = ["watch", "own", E2, "--chain", "bsc", "--merchant", "shop"];
    assert_eq!(sample.files.json(&own)["kind"], json!("own"));
}

#[test]
fn a_command_lists_no_token_before_the_daemon_watches_it() {
    let sample = EvmSample::filled();
    let listed = || -> Vec<String> {
        let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
        let mut statement = raw
            .prepare("SELECT symbol FROM assets WHERE is_listed = 1 ORDER BY symbol")
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    assert_eq!(listed(), ["DAI", "ETH", "USDC"]);
    // One token more and one less than the daemon that runs has read.
    let config = std::fs::read_to_string(sample.files.config_file()).unwrap();
    let config = config.replace(DAI, "0x1111111111111111111111111111111111111111");
    std::fs::write(sample.files.config_file(), config.replace("\"DAI\"", "\"NEW\"")).unwrap();
    let add = [
        "watch",
        "add",
        &PAYER.to_lowercase(),
        "--chain",
        "dev",
        "--merchant",
        "shop",
    ];
    sample.files.json(&add);
    std::fs::write(sample.files.folder().join("list.csv"), format!("{WALLET},shop\n")).unwrap();
    sample
        .files
        .json(&["watch", "import", "list.csv", "--chain", "dev"]);
    assert_eq!(
        listed(),
        ["DAI", "ETH", "USDC"],
        "payments are told by what is watched"
    );
}

#[test]
fn lists_of_evm_addresses_are_imported_for_one_chain() {
    let sample = EvmSample::empty();
    let flipped = E1.replace("BeAed", "Beaed");
    let list = format!(
        "address,reference\n{E1},a\n{},b\n{flipped},c\n{D1},d\n0x1234,e\n{}\n",
        E1.to_lowercase(),
        E2.to_uppercase().replace("0X", "0x")
    );
    std::fs::write(sample.files.folder().join("list.csv"), list).unwrap();
    let import = [
        "watch",
        "import",
        "list.csv",
        "--merchant",
        "shop",
        "--chain",
        "dev",
        "--json",
    ];
    let output = sample.files.cli(&import);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&answer["added"], &answer["known"], &answer["faulty"]),
        (&json!(2), &json!(1), &json!(3)),
        "{answer}"
    );
    let faults = answer["faults"].as_array().unwrap();
    let is_named = |at: usize, line: u64, code: &str| {
        faults[at]["line"] == json!(line) && faults[at]["text"].as_str().unwrap().contains(code)
    };
    assert!(is_named(0, 4, "(bad_address_checksum)"), "{answer}");
    assert!(
        is_named(1, 5, "(unknown_address)") && is_named(2, 6, "(unknown_address)"),
        "{answer}"
    );
    refused(
        &sample,
        &["watch", "import", "list.csv", "--merchant", "shop"],
        2,
        "which chain?",
    );
    // A list without a header, whose first line is an address.
    std::fs::write(
        sample.files.folder().join("bare.csv"),
        format!("{E1},shop,x\n{E2},shop,y\n"),
    )
    .unwrap();
    let bare = ["watch", "import", "bare.csv", "--chain", "bsc"];
    assert_eq!(sample.files.json(&bare)["added"], json!(2));
}

#[test]
fn payments_are_found_by_asset() {
    let sample = EvmSample::filled();
    let (caip, ether) = (
        format!("eip155:31337/erc20:{}", USDC.to_lowercase()),
        "eip155:31337/slip44:60",
    );
    for (asset, deposits, credits, balances) in [
        (USDC, 3, 2, 2),
        (&USDC.to_lowercase(), 3, 2, 2),
        ("USDC", 3, 2, 2),
        ("usdc", 3, 2, 2),
        (&caip, 3, 2, 2),
        (&caip.replace(&USDC.to_lowercase(), USDC), 3, 2, 2),
        (DAI, 1, 1, 1),
        ("ETH", 4, 2, 1),
        (ether, 4, 2, 1),
    ] {
        let of = |command: &[&str]| count(&sample, &[command, &["--asset", asset]].concat());
        assert_eq!(of(&["deposits", "list"]), deposits, "{asset}");
        assert_eq!(of(&["credits"]), credits, "{asset}");
        assert_eq!(of(&["balances"]), balances, "{asset}");
    }
    let both = [
        "deposits",
        "list",
        "--asset",
        "USDC",
        "--address",
        E1,
        "--chain",
        "dev",
    ];
    assert_eq!(count(&sample, &both), 1);
    refused(
        &sample,
        &["credits", "--asset", "TUSD"],
        1,
        "there is no asset TUSD",
    );
    let of_bsc = "0x8AC76a51cc950d9822D68b83fE1Ad97B32Cd580d";
    refused(
        &sample,
        &["balances", "--asset", of_bsc],
        1,
        "of: ETH (eip155:31337/slip44:60), USDC",
    );
}

#[test]
fn a_backfill_names_an_address_a_token_or_all() {
    let sample = EvmSample::filled();
    let rescan = |backfill: &str, more: &[&str]| {
        let args = [
            "rescan",
            "--from",
            "50",
            "--chain",
            "dev",
            "--reason",
            "x",
            "--backfill",
            backfill,
        ];
        let answer = sample.files.json(&[&args[..], more].concat());
        answer["text"].as_str().unwrap().to_owned()
    };
    let read = "read dev again from height 50";
    for (backfill, expected) in [
        (E1, "; 1 address would count from there"),
        (USDC, "; 1 token would count from there"),
        (&USDC.to_lowercase(), "; 1 token would count from there"),
        ("dai", "; 1 token would count from there"),
        ("all", "; 4 addresses and tokens would count from there"),
    ] {
        assert_eq!(rescan(backfill, &[]), format!("{read}{expected}"), "{backfill}");
    }
    assert_eq!(
        rescan("USDC", &["--apply"]),
        format!("{read}; 1 token counts from there")
    );
    let status = sample.files.json(&["chain", "status"]);
    assert_eq!(
        status["chains"][0]["rescans"].as_array().unwrap().len(),
        1,
        "{status}"
    );
    let unknown = "0x8AC76a51cc950d9822D68b83fE1Ad97B32Cd580d";
    let args = [
        "rescan",
        "--from",
        "50",
        "--chain",
        "dev",
        "--reason",
        "x",
        "--backfill",
        unknown,
    ];
    refused(&sample, &args, 1, "this address is not watched");
}

#[test]
fn a_deep_reorg_of_an_evm_chain_is_accepted_by_its_own_names() {
    let sample = EvmSample::filled();
    sample.edit(|tx, key| tx.set_chain_state(key, ChainState::ReorgTooDeep, "x"));
    let args = [
        "chain",
        "accept-reorg",
        "--chain",
        "dev",
        "--fork",
        "102",
        "--reason",
        "x",
    ];
    let answer = sample.files.json(&args);
    let text = answer["text"].as_str().unwrap();
    let hash = format!("(0xe0{}66)", "00".repeat(30));
    assert!(
        text.contains(&hash) && text.contains("`eth_getBlockByNumber 0x66`"),
        "{text}"
    );
    assert_eq!(answer["deposits"].as_array().unwrap().len(), 2, "{answer}");
}

#[test]
fn an_address_given_for_a_transaction_is_said_to_be_one() {
    let sample = EvmSample::filled();
    refused(
        &sample,
        &["tx", E1],
        2,
        &format!("`creditd deposits list --address {E1}`"),
    );
    assert!(sample.edit(|tx, key| tx.address(key, &script(E1))).is_some());
}
