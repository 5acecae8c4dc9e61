//! The proxy before EVM nodes itself: what a plain HTTP client sees of each fault.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, CallKind, EvmSandbox, InnerCall, Tx, U256};
use serde_json::{Value, json};

use crate::common::bloom;
use crate::common::evm_proxy::lag::Head;
use crate::common::evm_proxy::script::{Asked, Fault, Gate};
use crate::common::evm_proxy::transfers::SYSTEM;
use crate::common::evm_proxy::{Balance, EvmProxy};
use crate::common::http::{self, Request};

const CHAIN_ID: u64 = 73_573;
const UNKNOWN: &str = "0x1212121212121212121212121212121212121212121212121212121212121212";

fn sandbox() -> EvmSandbox {
    let sandbox = EvmSandbox::at_genesis(CHAIN_ID, Clock::real()).unwrap();
    sandbox.mine(10).unwrap();
    sandbox
}

/// All bytes of the proxy's answer to one request on a connection of its own, which ends with the answer
/// because the client says no more.
fn bytes(url: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let length = body.len();
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // What came before the connection broke is what came.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn question(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The whole answer to one question.
#[track_caller]
fn ask(url: &str, method: &str, params: Value) -> Value {
    let answer = bytes(url, &question(1, method, &params).to_string());
    serde_json::from_str(body(&answer)).unwrap_or_else(|_| panic!("no JSON: {answer:?}"))
}

/// The result of one question.
#[track_caller]
fn result(url: &str, method: &str, params: Value) -> Value {
    let mut answer = ask(url, method, params);
    assert!(answer.get("error").is_none(), "{method}: {answer}");
    answer["result"].take()
}

/// `eth_chainId`, `eth_blockNumber` and `net_version` in one request, with the ids 1 to 3.
fn batch(url: &str) -> Value {
    let questions = [
        question(1, "eth_chainId", &json!([])),
        question(2, "eth_blockNumber", &json!([])),
        question(3, "net_version", &json!([])),
    ];
    let answer = bytes(url, &json!(questions).to_string());
    serde_json::from_str(body(&answer)).unwrap_or_else(|_| panic!("no JSON: {answer:?}"))
}

fn ids(answers: &Value) -> Vec<u64> {
    let answers = answers.as_array().unwrap();
    answers
        .iter()
        .map(|answer| answer["id"].as_u64().unwrap())
        .collect()
}

#[test]
fn faults_of_one_question_come_once_or_until_lifted() {
    let sandbox = sandbox();
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let number = || ask(&proxy.url(), "eth_blockNumber", json!([]));
    let good = json!("0xa");
    let standing = proxy.always("eth_blockNumber", Fault::Result(json!("0x1")));
    proxy.always(
        "eth_blockNumber",
        Fault::edit(|_, old| json!([old, "after the first"])),
    );
    proxy.once("eth_blockNumber", Fault::Error(-32005, "limit exceeded"));
    proxy.once("*", Fault::wrong_id());
    assert_eq!(
        number()["error"],
        json!({ "code": -32005, "message": "limit exceeded" })
    );
    let other = number();
    assert_eq!(
        (&other["id"], &other["result"]),
        (&json!("somebody else's"), &good)
    );
    assert_eq!(number()["result"], json!(["0x1", "after the first"]));
    proxy.lift(standing);
    assert_eq!(number()["result"], json!([good, "after the first"]));
    proxy.lift_all();
    assert_eq!(number()["result"], good);
    assert_eq!(proxy.count("eth_blockNumber"), 5);
    proxy.forget_calls();
    assert_eq!(proxy.calls(), []);
}

#[test]
fn faults_are_for_some_parameters_alone() {
    let sandbox = sandbox();
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let block = |number: &str| result(&proxy.url(), "eth_getBlockByNumber", json!([number, false]));
    proxy.always(
        Asked::with("eth_getBlockByNumber", json!(["0x2"])),
        Fault::Result(Value::Null),
    );
    proxy.always(
        Asked::when(|call| call.params.first() == Some(&json!("0x3"))),
        Fault::field("logsBloom", json!("0x")),
    );
    proxy.always(
        Asked::with("eth_getBlockByNumber", json!(["0x4", false])),
        Fault::without_field("parentHash"),
    );
    assert_eq!(block("0x1")["number"], "0x1");
    assert_eq!(block("0x2"), Value::Null);
    assert_eq!(block("0x3")["logsBloom"], "0x");
    assert_eq!(block("0x3")["number"], "0x3");
    assert_eq!(block("0x4").get("parentHash"), None);
}

#[test]
fn http_itself_fails_and_the_connection_after_it_is_good() {
    let sandbox = sandbox();
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let plain = question(1, "eth_blockNumber", &json!([])).to_string();
    let request = Request {
        verb: "POST".to_owned(),
        path: "/".to_owned(),
        authorization: None,
        body: plain.clone().into_bytes(),
    };
    let port = sandbox.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let (_, _, good) = http::forward(port, &request, "nobody:").unwrap();
    let good = String::from_utf8(good).unwrap();
    let after = |fault| {
        proxy.once("*", fault);
        let answer = bytes(&proxy.url(), &plain);
        assert_eq!(body(&bytes(&proxy.url(), &plain)), good, "the next one");
        answer
    };
    assert_eq!(after(Fault::Close), "");
    let busy = after(Fault::retry_after_secs(429, 7));
    assert!(busy.starts_with("HTTP/1.1 429 "), "{busy}");
    assert!(busy.contains("\r\nRetry-After: 7\r\n"), "{busy}");
    let dated = after(Fault::retry_after_date(503, 60));
    assert!(dated.starts_with("HTTP/1.1 503 "), "{dated}");
    assert!(dated.contains(" GMT\r\n"), "{dated}");
    let bare = after(Fault::Status(502, None));
    assert!(!bare.contains("Retry-After"), "{bare}");
    let text = after(Fault::Text(200, "<html>maintenance</html>"));
    assert_eq!(body(&text), "<html>maintenance</html>");

    let cut = after(Fault::Cut);
    let announced = format!("Content-Length: {}\r\n", 2 * body(&cut).len());
    let announced_odd = format!("Content-Length: {}\r\n", 2 * body(&cut).len() + 1);
    assert!(
        !body(&cut).is_empty() && (cut.contains(&announced) || cut.contains(&announced_odd)),
        "{cut}"
    );
    let large = after(Fault::Oversized(70_000));
    assert!(large.contains("Content-Length: 70000\r\n"), "{}", &large[..80]);
    assert_eq!(body(&large).len(), 70_000);
    let large = after(Fault::OversizedUnannounced(70_000));
    assert!(!large.contains("Content-Length"), "{}", &large[..80]);
    assert_eq!(body(&large).len(), 70_000);
}

#[test]
fn batch_fails_as_a_whole_or_in_one_entry() {
    let sandbox = sandbox();
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let with = |asked: &str, fault| {
        proxy.once(asked, fault);
        batch(&proxy.url())
    };
    assert_eq!(ids(&batch(&proxy.url())), [1, 2, 3]);
    let one = with("eth_blockNumber", Fault::Error(-32000, "header not found"));
    assert_eq!(ids(&one), [1, 2, 3]);
    assert_eq!(
        (&one[0]["result"], &one[1]["error"]["code"]),
        (&json!("0x11f65"), &json!(-32000))
    );
    assert_eq!(ids(&with("eth_blockNumber", Fault::Missing)), [1, 3]);
    assert_eq!(ids(&with("eth_blockNumber", Fault::reversed())), [3, 2, 1]);
    let shifted = with("eth_blockNumber", Fault::shifted_ids());
    assert_eq!(ids(&shifted), [2, 3, 1]);
    assert_eq!(
        shifted[0]["result"], "0x11f65",
        "the chain id, as if it were the height"
    );
    let refused = with("net_version", Fault::one_error(-32600, "batch too large"));
    assert_eq!(
        (&refused["error"]["code"], &refused["id"]),
        (&json!(-32600), &Value::Null)
    );
    let requests = proxy.requests();
    assert_eq!((requests.len(), requests[0].len()), (6, 3));
    let tally: Vec<(String, usize)> = proxy.tally().into_iter().collect();
    let each = |method: &str| (method.to_owned(), 6);
    assert_eq!(tally, ["eth_blockNumber", "eth_chainId", "net_version"].map(each));
}

#[test]
fn answer_and_question_wait_at_a_gate() {
    let sandbox = sandbox();
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let number = || result(&proxy.url(), "eth_blockNumber", json!([]));
    for (is_answer, expected) in [(false, "0xb"), (true, "0xb"), (false, "0xd")] {
        let gate = Gate::new();
        let fault = match is_answer {
            true => Fault::HoldAnswer(gate.clone()),
            false => Fault::HoldQuestion(gate.clone()),
        };
        proxy.once("eth_blockNumber", fault);
        thread::scope(|scope| {
            let held = scope.spawn(number);
            gate.wait_for(1);
            sandbox.mine(1).unwrap();
            // Another one is not held up.
            assert_ne!(number(), Value::Null);
            gate.open();
            assert_eq!(held.join().unwrap(), expected, "is_answer {is_answer}");
        });
        assert_eq!(gate.waiting(), 0);
    }
}

#[test]
fn port_is_refused_and_comes_back() {
    let sandbox = sandbox();
    let mut proxy = EvmProxy::in_front_of(&sandbox.url());
    let url = proxy.url();
    proxy.refuse();
    assert!(TcpStream::connect(url.trim_start_matches("http://")).is_err());
    proxy.accept_again();
    assert_eq!(result(&url, "eth_blockNumber", json!([])), "0xa");
}

#[test]
fn lagging_node_knows_nothing_above_its_head() {
    let sandbox = sandbox();
    let paid = sandbox.pay(Address::of("somebody"), U256::from(5)).unwrap();
    let newest = sandbox.mine(1).unwrap()[0];
    let (paid, newest) = (format!("0x{paid}"), format!("0x{newest}"));
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let url = proxy.url();
    proxy.set_head(Some(Head::Behind(1)));
    assert_eq!(result(&url, "eth_blockNumber", json!([])), "0xa");
    let named = |name: &str| result(&url, "eth_getBlockByNumber", json!([name, false]));
    assert_eq!(named("latest")["number"], "0xa");
    assert_eq!(named("0xa")["number"], "0xa");
    for unknown in ["0xb", "0xc", "pending"] {
        assert_eq!(named(unknown), Value::Null, "{unknown}");
    }
    for (method, params) in [
        ("eth_getBlockByHash", json!([newest, false])),
        ("eth_getBlockReceipts", json!([newest])),
        ("eth_getTransactionReceipt", json!([paid])),
    ] {
        assert_eq!(result(&url, method, params), Value::Null, "{method}");
    }
    let tx = result(&url, "eth_getTransactionByHash", json!([paid]));
    assert_eq!(
        (&tx["hash"], &tx["blockHash"]),
        (&json!(paid), &Value::Null),
        "it waits"
    );
    for (method, params, message) in [
        ("eth_getLogs", json!([{ "blockHash": newest }]), "unknown block"),
        (
            "debug_traceBlockByHash",
            json!([newest, { "tracer": "callTracer" }]),
            "block not found",
        ),
        (
            "eth_getBalance",
            json!([Address::ZERO.to_string(), { "blockHash": newest }]),
            "header not found",
        ),
    ] {
        let error = json!({ "code": -32000, "message": message });
        assert_eq!(ask(&url, method, params)["error"], error, "{method}");
    }
    let unknown = result(&url, "eth_getBlockByHash", json!([UNKNOWN, false]));
    assert_eq!(unknown, Value::Null);

    sandbox.mine(1).unwrap();
    assert_eq!(
        result(&url, "eth_getBlockByHash", json!([newest, false]))["hash"],
        newest
    );
    proxy.set_head(Some(Head::At(10)));
    assert_eq!(named("latest")["number"], "0xa");
    proxy.set_head(None);
    assert_eq!(named("latest")["number"], "0xc");
}

#[test]
fn lagging_node_has_lower_tags() {
    let sandbox = EvmSandbox::start(CHAIN_ID, Clock::real()).unwrap();
    let proxy = EvmProxy::in_front_of(&sandbox.url());
    let named = |name: &str| result(&proxy.url(), "eth_getBlockByNumber", json!([name, false]));
    assert_eq!(named("safe")["number"], "0x30");
    proxy.set_head(Some(Head::Behind(2)));
    assert_eq!(named("safe")["number"], "0x2e");
    assert_eq!(named("finalized")["number"], "0xe");
}

/// What lasts of the logs of the newest block: contract, topics, data and number.
fn newest_logs(url: &str) -> Vec<Value> {
    let receipts = result(url, "eth_getBlockReceipts", json!(["latest"]));
    let logs = receipts.as_array().unwrap().iter();
    let mut logs: Vec<Value> = logs
        .flat_map(|receipt| receipt["logs"].as_array().unwrap().clone())
        .collect();
    let bloom = result(url, "eth_getBlockByNumber", json!(["latest", false]))["logsBloom"].take();
    assert_eq!(bloom, bloom::of_logs(&logs));
    for log in &mut logs {
        for own in ["blockHash", "blockTimestamp"] {
            log.as_object_mut().unwrap().remove(own);
        }
    }
    logs
}

#[test]
fn movements_are_logged_as_by_a_node_that_logs_them_itself() {
    let sandboxes = [sandbox(), sandbox()];
    sandboxes[1].set_transfer_logs(Some(0));
    let [receiver, token] = ["receiver", "token"].map(Address::of);
    for sandbox in &sandboxes {
        let mut tx = Tx::pay_token(token, EvmSandbox::payer(), receiver, U256::from(9));
        tx.value = U256::from(5);
        let mut outer = InnerCall::new(CallKind::Call, Address::of("splitter"), U256::from(4));
        outer
            .calls
            .push(InnerCall::new(CallKind::Create, receiver, U256::from(3)));
        let mut failed = outer.clone();
        failed.is_success = false;
        tx.effects.calls = vec![failed, outer];
        sandbox.send(tx).unwrap();
        sandbox.pay(receiver, U256::from(2)).unwrap();
        sandbox.mine(1).unwrap();
    }
    let proxies = sandboxes
        .each_ref()
        .map(|sandbox| EvmProxy::in_front_of(&sandbox.url()));
    proxies[0].set_transfer_logs(Some(0));
    let [logs, own] = proxies.each_ref().map(|proxy| newest_logs(&proxy.url()));
    assert_eq!(logs, own);
    let contracts: Vec<&Value> = logs.iter().map(|log| &log["address"]).collect();
    assert_eq!(contracts, [SYSTEM, SYSTEM, SYSTEM, &token.to_string(), SYSTEM]);
}

#[test]
fn balancer_asks_the_nodes_in_turn() {
    let sandbox = sandbox();
    let lagging = EvmProxy::in_front_of(&sandbox.url());
    lagging.set_head(Some(Head::Behind(1)));
    let urls = [sandbox.url(), lagging.url()];
    let urls = [urls[0].as_str(), urls[1].as_str()];
    let numbers = |answers: &Value| {
        let answers = answers.as_array().unwrap();
        answers
            .iter()
            .map(|answer| answer["result"].clone())
            .collect::<Vec<_>>()
    };
    let heights = |url: &str| {
        let questions: Vec<Value> = (0..4)
            .map(|id| question(id, "eth_blockNumber", &json!([])))
            .collect();
        let answer = bytes(url, &json!(questions).to_string());
        numbers(&serde_json::from_str(body(&answer)).unwrap())
    };

    let by_question = EvmProxy::balancing(&urls, Balance::Questions);
    let single = || result(&by_question.url(), "eth_blockNumber", json!([]));
    assert_eq!([single(), single(), single()], ["0xa", "0x9", "0xa"]);
    assert_eq!(heights(&by_question.url()), ["0x9", "0xa", "0x9", "0xa"]);

    let by_request = EvmProxy::balancing(&urls, Balance::Requests);
    assert_eq!(heights(&by_request.url()), ["0xa"; 4]);
    assert_eq!(heights(&by_request.url()), ["0x9"; 4]);
}
