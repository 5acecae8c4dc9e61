//! The EVM node itself: it starts, pays, reorganises and comes back; and what the contracts of the tests do
//! on it.

use ruint::aliases::U256;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::common::accounts::TRANSFER_TOPIC;
use crate::common::anvil::{AnvilNode, hex, quantity};
use crate::common::contracts::{
    Arg, Contract, Token, address, address_word, contracts_folder, payments, uint,
};

const CHAIN_ID: u64 = 73_571;

/// Addresses that nobody has the key of.
const D1: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
const D2: &str = "0xd2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2";
const D3: &str = "0xd3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3";

/// The frame of a call: kind, receiver, value.
type Frame<'a> = (&'a str, &'a str, u128);

#[track_caller]
fn receipt(node: &AnvilNode, hash: &str) -> Value {
    let receipt = node.receipt(hash);
    receipt.unwrap_or_else(|| panic!("no receipt of {hash}"))
}

#[track_caller]
fn logs(receipt: &Value) -> &[Value] {
    receipt["logs"].as_array().unwrap()
}

/// A `Transfer` log: contract, receiver, amount.
fn is_transfer(log: &Value, token: &Token, to: &str, value: u128) -> bool {
    log["address"] == json!(token.address)
        && log["topics"][0] == TRANSFER_TOPIC
        && log["topics"].as_array().is_some_and(|topics| topics.len() == 3)
        && log["topics"][2] == json!(format!("0x{}", address_word(to)))
        && log["data"] == json!(format!("0x{value:064x}"))
}

#[test]
fn node_pays_and_mines() {
    let node = AnvilNode::start(CHAIN_ID);
    let (a, b) = (node.account(0), node.account(1));
    let first = node.pay(&a, D1, 7);
    let second = node.pay(&b, D1, 8);
    assert_eq!(node.pending(), [first.clone(), second.clone()]);
    assert_eq!(
        (node.height(), node.balance(D1)),
        (0, 0),
        "nothing is mined unasked"
    );
    let blocks = node.mine(2);
    assert_eq!((node.height(), node.balance(D1)), (2, 15));
    let block = node.block_by_hash(&blocks[0]).unwrap();
    assert_eq!(block["transactions"], json!([first, second]), "in the order sent");
    assert_eq!(node.tip(), blocks[1]);
    assert_eq!(node.block(2)["parentHash"], json!(blocks[0]));
    let receipts = node.receipts(&blocks[0]).unwrap();
    assert!(receipts.iter().all(|r| r["status"] == "0x1"), "{receipts:?}");
    node.mine(70);
    assert_eq!(quantity(&node.tagged("safe")["number"]), 72 - 32);
    assert_eq!(quantity(&node.tagged("finalized")["number"]), 72 - 64);
}

#[test]
fn any_address_can_pay() {
    let node = AnvilNode::start(CHAIN_ID);
    node.set_balance(D1, 1_000_000_000_000_000_000);
    let payment = json!({ "from": D1, "to": D2, "value": "0x5" });
    let refusal = node
        .try_call("eth_sendTransaction", json!([payment]))
        .unwrap_err();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (-32602, "No Signer available")
    );
    node.impersonate(D1);
    let paid = node.pay(D1, D2, 5);
    node.mine(1);
    assert_eq!(receipt(&node, &paid)["from"], D1);
    assert_eq!(node.balance(D2), 5);
}

#[test]
fn token_pays_with_logs() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "TST", 6);
    let a = node.account(0);
    let decimals = node.view(&token.address, &token.contract.call_data("decimals", &[]));
    assert_eq!(decimals, format!("0x{:064x}", 6));
    let symbol = node.view(&token.address, &token.contract.call_data("symbol", &[]));
    assert!(symbol.contains(&const_hex::encode("TST")), "{symbol}");

    token.mint(&node, &a, 1_000);
    let batch = token.pay(&node, &a, &[(D1, 10), (D2, 20), (D1, 30)]);
    let late = token.invoke(&node, &a, "transferAfterNotes", &[uint(2), address(D3), uint(40)]);
    let too_much = token.transfer(&node, &a, D3, 5_000);
    let block = node.mine(1).remove(0);

    let receipts = node.receipts(&block).unwrap();
    let statuses: Vec<&Value> = receipts.iter().map(|receipt| &receipt["status"]).collect();
    assert_eq!(statuses, ["0x1", "0x1", "0x1", "0x0"]);
    assert_eq!(receipts[1]["transactionHash"], json!(batch));
    let paid = logs(&receipts[1]);
    for (log, (to, value)) in paid.iter().zip([(D1, 10), (D2, 20), (D1, 30)]) {
        assert!(is_transfer(log, &token, to, value), "{log}");
    }
    assert_eq!(paid.len(), 3);
    let noted = receipt(&node, &late);
    assert_eq!(logs(&noted).len(), 3);
    assert!(is_transfer(&logs(&noted)[2], &token, D3, 40), "{noted}");
    assert_eq!(
        logs(&noted)[2]["logIndex"],
        hex(6),
        "one, three, and two notes before it"
    );
    assert_eq!(logs(&receipt(&node, &too_much)), [] as [Value; 0]);
    assert_eq!(token.balance(&node, D1), U256::from(40));

    let to_d1 = format!("0x{}", address_word(D1));
    let filter = json!({ "blockHash": block, "topics": [TRANSFER_TOPIC, null, to_d1] });
    assert_eq!(node.logs(filter).len(), 2);
}

#[test]
fn fee_is_taken_openly_or_in_secret() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "FEE", 18);
    let a = node.account(0);
    token.mint(&node, &a, 10_000);
    let set_fee = |is_hidden| {
        let args = [uint(100), address(D3), Arg::Bool(is_hidden)];
        token.invoke(&node, &a, "setFee", &args);
    };
    set_fee(false);
    let open = token.transfer(&node, &a, D1, 1_000);
    set_fee(true);
    let secret = token.transfer(&node, &a, D2, 1_000);
    node.mine(1);
    let (open, secret) = (receipt(&node, &open), receipt(&node, &secret));
    assert!(is_transfer(&logs(&open)[0], &token, D1, 990), "{open}");
    assert!(is_transfer(&logs(&open)[1], &token, D3, 10), "{open}");
    assert!(is_transfer(&logs(&secret)[0], &token, D2, 1_000), "{secret}");
    assert_eq!(logs(&secret).len(), 1);
    assert_eq!(
        token.balance(&node, D2),
        U256::from(990),
        "less than the log says"
    );
}

#[test]
fn logs_come_in_other_shapes() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    // Contract, method, arguments; topics and bytes of data of the log.
    let transfer = U256::from_str_radix(TRANSFER_TOPIC.trim_start_matches("0x"), 16).unwrap();
    let table = [
        ("NftLike", "give", vec![address(D1), uint(9)], 4, 0),
        ("OldToken", "mint", vec![address(D1), uint(9)], 1, 96),
        (
            "Logger",
            "write",
            vec![Arg::Uints(vec![]), Arg::Bytes(vec![7; 5])],
            0,
            5,
        ),
        (
            "Logger",
            "write",
            vec![Arg::Uints(vec![transfer; 3]), Arg::Bytes(vec![7; 31])],
            3,
            31,
        ),
    ];
    for (name, method, args, topics, bytes) in table {
        let contract = Contract::named(name);
        let at = node.deploy(&contract.creation(&[]), 0);
        let hash = node.invoke(&a, &at, &contract.call_data(method, &args), 0);
        node.mine(1);
        let receipt = receipt(&node, &hash);
        let log = &logs(&receipt)[0];
        let found = log["topics"].as_array().unwrap();
        assert_eq!(found.len(), topics, "{name}: {log}");
        assert!(
            found.first().is_none_or(|topic| topic == TRANSFER_TOPIC),
            "{name}: {log}"
        );
        assert_eq!(
            log["data"].as_str().unwrap().len(),
            2 + 2 * bytes,
            "{name}: {log}"
        );
    }
}

#[test]
fn reorg_moves_a_log_and_the_old_block_is_unknown() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "TST", 6);
    let first = token.mint(&node, D1, 10);
    let from_b = token.invoke(&node, &node.account(1), "mint", &[address(D2), uint(20)]);
    let old = node.mine(1).remove(0);
    node.mine(1);
    let log_index = |hash: &str| logs(&receipt(&node, hash))[0]["logIndex"].clone();
    assert_eq!(
        (log_index(&first), log_index(&from_b)),
        (json!("0x0"), json!("0x1"))
    );

    // A - (first, from_b) - ()   becomes   A - (from_b, first) - ()
    let new = node.reorg(2, &[(node.raw(&from_b), 0), (node.raw(&first), 0)]);
    assert_eq!(node.height(), 3);
    assert_ne!(new[0], old);
    assert_eq!(
        (log_index(&first), log_index(&from_b)),
        (json!("0x1"), json!("0x0"))
    );
    assert_eq!(receipt(&node, &first)["blockHash"], json!(new[0]));

    assert_eq!(node.block_by_hash(&old), None);
    assert_eq!(node.receipts(&old), None);
    let unknown = node
        .try_call("eth_getLogs", json!([{ "blockHash": old }]))
        .unwrap_err();
    assert_eq!(
        (unknown.code, unknown.message.as_str()),
        (-32000, "unknown block")
    );
}

#[test]
fn reorg_executes_the_same_transaction_with_another_amount() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "FEE", 6);
    let (a, b) = (node.account(0), node.account(1));
    token.mint(&node, &a, 1_000);
    node.mine(1);
    let payment = token.transfer(&node, &a, D1, 100);
    node.mine(1);
    let raw = node.raw(&payment);
    let args = [uint(1_000), address(D3), Arg::Bool(false)];
    let fee = json!({ "from": b, "to": token.address, "data": token.contract.call_data("setFee", &args) });
    node.reorg(1, &[(fee, 0), (raw, 0)]);
    let paid = receipt(&node, &payment);
    assert!(is_transfer(&logs(&paid)[0], &token, D1, 90), "{paid}");
}

#[test]
fn equal_branches_are_different_blocks() {
    let node = AnvilNode::start(CHAIN_ID);
    let mut seen = node.mine(3);
    seen.extend(node.reorg(2, &[]));
    node.rollback(2);
    assert_eq!(node.height(), 1);
    seen.extend(node.mine(2));
    let snapshot = node.snapshot();
    seen.extend(node.mine(1));
    node.revert(&snapshot);
    assert_eq!(node.height(), 3);
    seen.extend(node.mine(1));
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), count), (9, 9));
}

#[test]
fn transactions_vanish_and_return() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    let mined = node.pay(&a, D1, 1);
    node.mine(1);
    let raw = node.raw(&mined);
    node.reorg(1, &[]);
    assert_eq!((node.transaction(&mined), node.receipt(&mined)), (None, None));
    assert_eq!(node.send_raw(&raw), mined);
    assert!(
        node.transaction(&mined).unwrap()["blockHash"].is_null(),
        "it waits"
    );
    node.drop_transaction(&mined);
    assert_eq!((node.transaction(&mined), node.pending()), (None, vec![]));
    node.send_raw(&raw);
    node.mine(1);
    assert_eq!(node.balance(D1), 1);

    let first = node.pay(&a, D1, 2);
    let nonce = node.transaction(&first).unwrap()["nonce"].clone();
    let fee = hex(100_000_000_000);
    let replacement = json!({
        "from": a, "to": D2, "value": "0x2", "nonce": nonce, "gas": "0x5208",
        "maxFeePerGas": fee, "maxPriorityFeePerGas": fee,
    });
    let second = node.send(replacement);
    assert_eq!(node.transaction(&first), None);
    assert_eq!(node.pending(), [second]);
}

/// The frames of a call and all below it, outermost first, those of failed branches too.
fn frames(call: &Value) -> Vec<Frame<'_>> {
    let value = call.get("value").map_or(0, quantity);
    let own = (
        call["type"].as_str().unwrap(),
        call["to"].as_str().unwrap(),
        value,
    );
    let inner = call.get("calls").and_then(Value::as_array);
    let below = inner.into_iter().flatten().flat_map(frames);
    std::iter::once(own).chain(below).collect()
}

/// The same of one transaction from `trace_block`, in the words of the `callTracer`.
fn parity_frames(block: &[Value], position: usize) -> Vec<Frame<'_>> {
    let own = block
        .iter()
        .filter(|frame| frame["transactionPosition"] == json!(position));
    let own = own.map(|frame| {
        let action = &frame["action"];
        let kind = match action["callType"].as_str().unwrap() {
            "call" => "CALL",
            "delegatecall" => "DELEGATECALL",
            other => panic!("{other}"),
        };
        (kind, action["to"].as_str().unwrap(), quantity(&action["value"]))
    });
    own.collect()
}

#[test]
fn traces_show_what_the_splitter_forwards() {
    let node = AnvilNode::start(CHAIN_ID);
    let splitter = Contract::named("Splitter");
    let at = node.deploy(&splitter.creation(&[]), 5);
    let at = at.as_str();
    let a = node.account(0);
    let a = a.as_str();
    let two = payments(&[(D1, 10), (D2, 20)]);
    let mut around = vec![address(D3), uint(9)];
    around.extend_from_slice(&two);
    let spread = [("CALL", D1, 10), ("CALL", D2, 20), ("CALL", a, 70)];
    let nested = [spread[0], ("CALL", at, 90), spread[1], spread[2]];
    let undone = [("CALL", at, 9), ("CALL", D3, 9)];
    let delegated = [("DELEGATECALL", at, 100)];
    // Method, arguments, and the frames below the outermost one.
    let table: [(&str, &[Arg], Vec<Frame>); 4] = [
        ("split", &two, spread.to_vec()),
        ("nest", &two, nested.to_vec()),
        ("splitAroundRevert", &around, [&undone[..], &spread].concat()),
        ("splitByDelegate", &two, [&delegated[..], &spread].concat()),
    ];
    for (method, args, _) in &table {
        node.invoke(a, at, &splitter.call_data(method, args), 100);
    }
    let block = node.mine(1).remove(0);
    let receipts = node.receipts(&block).unwrap();
    assert!(
        receipts
            .iter()
            .all(|r| r["status"] == "0x1" && logs(r).is_empty()),
        "{receipts:?}"
    );
    assert_eq!([D1, D2, D3, at].map(|who| node.balance(who)), [40, 80, 0, 5]);

    let traces = node.call_traces(&block);
    let parity = node.trace_block(node.height());
    assert_eq!(traces.len(), table.len());
    for (position, (trace, (method, _, below))) in traces.iter().zip(&table).enumerate() {
        let found = frames(trace);
        assert_eq!(found[0], ("CALL", at, 100), "{method}");
        assert_eq!(found[1..], below[..], "{method}");
        assert_eq!(parity_frames(&parity, position), found, "{method}");
    }
    let undone = &traces[2]["calls"][0];
    assert!(undone["error"].is_string(), "the branch has failed: {undone}");
    assert!(
        undone["calls"][0].get("error").is_none(),
        "and the call below it has not: {undone}"
    );
}

#[test]
fn coin_is_refused_and_comes_without_a_call() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    let reverter = node.deploy(&Contract::named("Reverter").creation(&[]), 0);
    let refused = node.invoke(&a, &reverter, "0x", 3);
    let contract = Contract::named("SelfDestructor");
    let destructor = node.deploy(&contract.creation(&[]), 5);
    assert_eq!(receipt(&node, &refused)["status"], "0x0");
    assert_eq!(node.balance(&reverter), 0);

    node.invoke(
        &a,
        &destructor,
        &contract.call_data("destroy", &[address(&reverter)]),
        3,
    );
    let block = node.mine(1).remove(0);
    assert_eq!((node.balance(&destructor), node.balance(&reverter)), (0, 8));
    let traces = node.call_traces(&block);
    assert_eq!(frames(&traces[0])[1..], [("SELFDESTRUCT", reverter.as_str(), 8)]);
    let parity = node.trace_block(node.height());
    assert_eq!(parity[1]["type"], "suicide");
    assert_eq!(parity[1]["action"]["refundAddress"], json!(reverter));
    assert_eq!(quantity(&parity[1]["action"]["balance"]), 8);
}

#[test]
fn restart_keeps_the_blocks_and_a_twin_goes_its_own_way() {
    let mut node = AnvilNode::start(CHAIN_ID);
    let url = node.url();
    let a = node.account(0);
    let paid = node.pay(&a, D1, 7);
    let blocks = node.mine(3);
    let chain = |node: &AnvilNode| (0..=3).map(|number| node.block_hash(number)).collect::<Vec<_>>();
    let before = chain(&node);
    let twin = node.start_twin();
    node.restart();
    assert_eq!((node.url(), chain(&node)), (url, before.clone()));
    assert_eq!(chain(&twin), before);
    for node in [&node, &twin] {
        assert_eq!(receipt(node, &paid)["blockHash"], json!(blocks[0]));
        assert_eq!(node.call_traces(&blocks[0])[0]["value"], "0x7");
        node.reorg(1, &[]);
        node.mine(1);
    }
    assert_eq!(node.block_hash(2), twin.block_hash(2));
    assert_ne!(node.block_hash(3), twin.block_hash(3));
    node.kill9();
    assert!(std::net::TcpStream::connect(("127.0.0.1", twin.port())).is_ok());
    node.start_again();
    assert_eq!(node.height(), 0, "a killed node has kept nothing");
}

#[test]
fn compiled_contracts_are_those_of_the_sources() {
    let files = std::fs::read_dir(contracts_folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let sources: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "sol"))
        .collect();
    assert!(sources.len() >= 7, "{sources:?}");
    for source in sources {
        let contract = Contract::named(source.file_stem().unwrap().to_str().unwrap());
        let hash = const_hex::encode(Sha256::digest(std::fs::read(&source).unwrap()));
        assert_eq!(
            contract.source_sha256(),
            hash,
            "compile {} again",
            source.display()
        );
    }
}
