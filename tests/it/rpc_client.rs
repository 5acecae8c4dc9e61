//! The JSON-RPC client against nodes that answer badly, late, or not at all.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use creditd::chain::SourceError;
use creditd::chain::rpc::{Auth, Limits, RpcClient, RpcError};
use creditd::clock::Clock;
use creditd::egress::{Dial, DialError, HttpDial, HttpReply, HttpRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::stub::{Reply, StubNode};

const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(20),
    body_bytes_max: 10_000,
};

/// For calls that are meant to run out of time.
const SHORT: Limits = Limits {
    deadline: Duration::from_millis(300),
    body_bytes_max: 10_000,
};

fn cookie_client(stub: &StubNode) -> RpcClient<HttpDial> {
    RpcClient::new(
        HttpDial::new(),
        stub.url(),
        Auth::Cookie(stub.cookie_file()),
        Clock::real(),
    )
}

async fn count(client: &RpcClient<HttpDial>) -> Result<u64, RpcError> {
    client.call("getblockcount", json!([]), LIMITS).await
}

/// What an operator would read.
async fn words<T: std::fmt::Debug>(call: impl Future<Output = Result<T, RpcError>>) -> String {
    call.await.unwrap_err().to_string()
}

#[tokio::test]
async fn c27_every_step_of_a_node_restart_is_told_in_words_and_passes() {
    let mut stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    stub.renew_cookie("first");
    let client = cookie_client(&stub);
    assert_eq!(count(&client).await.unwrap(), 7);

    stub.refuse();
    // The connection of before may still have been at hand.
    count(&client).await.unwrap_err();
    assert_eq!(words(count(&client)).await, "connection refused");
    let cookie_file = stub.cookie_file();
    std::fs::remove_file(&cookie_file).unwrap();
    stub.accept_again();
    stub.renew_cookie("second");
    std::fs::remove_file(&cookie_file).unwrap();
    assert_eq!(
        words(count(&client)).await,
        format!("cookie file missing: {}", cookie_file.display())
    );

    stub.renew_cookie("third");
    for (reply, stage) in [
        (
            Reply::Error(-28, "Loading block index"),
            "warming up: Loading block index",
        ),
        (
            Reply::ErrorIn200(-28, "Verifying blocks"),
            "warming up: Verifying blocks",
        ),
        (
            Reply::Error(-28, "Loading P2P addresses"),
            "warming up: Loading P2P addresses",
        ),
    ] {
        stub.once("getblockcount", reply);
        assert_eq!(words(count(&client)).await, stage);
    }
    assert_eq!(count(&client).await.unwrap(), 7);
}

#[tokio::test]
async fn c27_new_cookie_is_read_after_one_refusal() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    stub.renew_cookie("first");
    let client = cookie_client(&stub);
    count(&client).await.unwrap();
    stub.renew_cookie("second");
    assert_eq!(count(&client).await.unwrap(), 7, "one call, no error in between");
}

/// A path to something else by mistake: told, and neither waited for nor read without end.
#[tokio::test]
async fn cookie_path_to_a_pipe_a_device_or_a_large_file_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
    assert!(made.unwrap().success());
    std::fs::write(at("large"), vec![b'x'; 5_000]).unwrap();
    std::fs::write(at("binary"), [0xff, 0xfe]).unwrap();
    let stub = StubNode::alone();
    for (path, why) in [
        (at("pipe"), "not a plain file"),
        ("/dev/zero".into(), "not a plain file"),
        (folder.path().to_owned(), "not a plain file"),
        (at("large"), "more than 4096 bytes"),
        (at("binary"), "valid UTF-8"),
    ] {
        let client = RpcClient::new(
            HttpDial::new(),
            stub.url(),
            Auth::Cookie(path.clone()),
            Clock::real(),
        );
        let words = words(count(&client)).await;
        let is_told = words.starts_with("cookie file unreadable (") && words.contains(why);
        assert!(is_told, "{}: {words}", path.display());
        let error = count(&client).await.unwrap_err();
        let line = creditd::telemetry::error_line(&error.into_source("asking"));
        assert_eq!(line.matches(why).count(), 1, "said twice: {line}");
    }
    assert_eq!(stub.calls().len(), 0);
}

#[tokio::test]
async fn c27_missing_cookie_at_the_start_is_told_and_mended_later() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    std::fs::remove_file(stub.cookie_file()).unwrap();
    let client = cookie_client(&stub);
    assert!(words(count(&client)).await.starts_with("cookie file missing: "));
    stub.renew_cookie("x");
    assert_eq!(count(&client).await.unwrap(), 7);
}

#[tokio::test]
async fn c27_wrong_password_is_unauthorized_until_its_file_is_mended() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    stub.renew_cookie("right");
    let password_file = stub.cookie_file().with_file_name("password");
    std::fs::write(&password_file, "wrong\n").unwrap();
    let auth = Auth::UserPass {
        user: "__cookie__".to_owned(),
        password_file: password_file.clone(),
    };
    let client = RpcClient::new(HttpDial::new(), stub.url(), auth, Clock::real());
    for _ in 0..3 {
        let text = words(count(&client)).await;
        assert!(
            text.starts_with("unauthorized") && !text.contains("wrong"),
            "{text}"
        );
    }
    std::fs::write(&password_file, "right\n").unwrap();
    assert_eq!(count(&client).await.unwrap(), 7);
}

#[tokio::test]
async fn answers_that_are_none_are_told_apart_and_the_next_call_works() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    let client = cookie_client(&stub);
    let cases = [
        (
            Reply::WrongId(json!(9)),
            "broken answer: id \"somebody else's\" in it",
        ),
        (Reply::Cut(json!(9)), "connection broken"),
        (Reply::Oversized(1 << 30), "answer larger than 10000 bytes"),
        (
            Reply::OversizedUnannounced(20_000),
            "answer larger than 10000 bytes",
        ),
        (
            Reply::Text(503, "Work queue depth exceeded"),
            "HTTP status 503: Work queue depth exceeded",
        ),
        (
            Reply::Text(200, "<html>\n welcome"),
            "broken answer: not a JSON-RPC answer",
        ),
        (Reply::Text(403, ""), "forbidden"),
        (Reply::Text(404, ""), "HTTP status 404"),
        (
            Reply::Error(-32601, "Method not found"),
            "the node says: Method not found (code -32601)",
        ),
        (Reply::ErrorIn200(-1, "no"), "the node says: no (code -1)"),
    ];
    for (reply, expected) in cases {
        let shown = format!("{reply:?}");
        stub.once("getblockcount", reply);
        let text = words(count(&client)).await;
        assert!(text.starts_with(expected), "{shown}: {text}");
        assert_eq!(count(&client).await.unwrap(), 7, "after {shown}");
    }
}

#[tokio::test]
async fn silent_and_dripping_nodes_cost_the_deadline_and_no_more() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    let client = cookie_client(&stub);
    for reply in [Reply::Hang, Reply::Drip(json!("x".repeat(500)))] {
        stub.once("getblockcount", reply);
        let call = client.call::<Value>("getblockcount", json!([]), SHORT);
        assert_eq!(words(call).await, "no whole answer within 300 ms");
        assert_eq!(count(&client).await.unwrap(), 7);
    }
}

#[tokio::test]
async fn a_dropped_call_leaves_the_client_usable() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(7)));
    stub.once("getblockcount", Reply::Hang);
    let client = cookie_client(&stub);
    let call = count(&client);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), call)
            .await
            .is_err()
    );
    assert_eq!(count(&client).await.unwrap(), 7);
}

#[tokio::test]
async fn c29_unreadable_field_is_named_and_is_no_connection_error() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only whether it is read is asked")]
    struct Info {
        blocks: u64,
        peers: Vec<Peer>,
    }
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only whether it is read is asked")]
    struct Peer {
        port: u16,
    }
    let stub = StubNode::alone();
    let client = cookie_client(&stub);
    client.set_software("/Satoshi:28.1.0/");
    let cases = [
        (
            json!({"blocks": "7", "peers": []}),
            "cannot read blocks in the answer to getinfo",
        ),
        (json!({"peers": []}), "missing field `blocks`"),
        (
            json!({"blocks": 7, "peers": [{"port": 1}, {"port": 70_000}]}),
            "cannot read peers[1].port in",
        ),
        (json!([]), "cannot read the result in"),
    ];
    for (answer, expected) in cases {
        stub.once("getinfo", Reply::Result(answer.clone()));
        let error = client
            .call::<Info>("getinfo", json!([]), LIMITS)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{answer}: {text}");
        for part in ["getinfo", "/Satoshi:28.1.0/"] {
            assert!(text.contains(part), "{text}");
        }
        for connection_word in ["connect", "refused", "timeout"] {
            assert!(!text.contains(connection_word), "{text}");
        }
    }
    let odd = json!({"blocks": 7, "peers": [], "warnings": ["a", "b"], "new": {"x": null}});
    stub.once("getinfo", Reply::Result(odd));
    client.call::<Info>("getinfo", json!([]), LIMITS).await.unwrap();
}

#[tokio::test]
async fn entries_of_a_batch_fail_alone() {
    let stub = StubNode::alone();
    let client = cookie_client(&stub);
    stub.handle(|call| match call.params.first()?.as_u64()? {
        1 => Some(Reply::Error(-5, "No such transaction")),
        2 => Some(Reply::Result(json!("text"))),
        n => Some(Reply::Result(json!(n * 10))),
    });
    let params = || (0..4).map(|n| json!([n]));
    let answers = client.batch::<u64>("m", params(), LIMITS).await.unwrap();
    assert!(
        matches!(answers[..], [Ok(0), Err(_), Err(_), Ok(30)]),
        "{answers:?}"
    );
    assert!(matches!(answers[1], Err(RpcError::Node { code: -5, .. })));
    assert!(matches!(answers[2], Err(RpcError::Decode { .. })));

    stub.handle(|_| Some(Reply::Text(500, "out of memory")));
    let text = words(client.batch::<u64>("m", params(), LIMITS)).await;
    assert_eq!(text, "HTTP status 500: out of memory");
    assert!(client.batch::<u64>("m", [], LIMITS).await.unwrap().is_empty());
}

/// Answers from memory, and counts how often it was told to forget its connections.
#[derive(Clone, Default)]
struct ScriptedDial {
    bodies: Arc<Mutex<Vec<String>>>,
    resets: Arc<AtomicUsize>,
}

impl Dial for ScriptedDial {
    async fn send(&self, _request: HttpRequest) -> Result<HttpReply, DialError> {
        let body = self.bodies.lock().unwrap().remove(0);
        Ok(HttpReply {
            retry_after_secs: None,
            status: 200,
            body: body.into(),
        })
    }

    fn reset(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
    }
}

impl ScriptedDial {
    fn client(body: &str) -> (ScriptedDial, RpcClient<ScriptedDial>) {
        let dial = ScriptedDial::default();
        dial.bodies.lock().unwrap().push(body.to_owned());
        let client = RpcClient::new(dial.clone(), "http://node", Auth::None, Clock::real());
        (dial, client)
    }
}

/// The first id of a new client is 1.
#[tokio::test]
async fn only_the_answer_with_our_id_counts_and_any_other_drops_the_connection() {
    let cases = [
        (r#"{"result":7,"error":null,"id":1}"#, "7", 0),
        (r#"{"result":7,"id":1,"jsonrpc":"2.0","more":[1]}"#, "7", 0),
        (r#"{"result":null,"id":1}"#, "null", 0),
        (
            r#"{"result":null,"error":{"code":-5,"message":"gone"},"id":1}"#,
            "the node says: gone (code -5)",
            0,
        ),
        (r#"{"result":7,"id":2}"#, "broken answer: id 2 in it, not 1", 1),
        (
            r#"{"result":7,"id":"1"}"#,
            "broken answer: id \"1\" in it, not 1",
            1,
        ),
        (r#"{"result":7}"#, "broken answer: id null in it, not 1", 1),
        (r#"{"id":1}"#, "broken answer: neither result nor error in it", 1),
        (
            r#"{"error":"busy","id":1}"#,
            "broken answer: an error of unknown form: \"busy\"",
            1,
        ),
        (
            r#"{"error":{"code":-5,"message":"gone"},"id":null}"#,
            "broken answer: error -5 without an id: gone",
            1,
        ),
        (
            r#"{"error":{"code":-28,"message":"Rescanning"},"id":null}"#,
            "warming up: Rescanning",
            1,
        ),
        (
            r#"{"error":{"code":-5,"message":"gone"},"id":3}"#,
            "broken answer: id 3 in it, not 1",
            1,
        ),
        ("", "broken answer: not a JSON-RPC answer", 1),
        ("7", "broken answer: not a JSON-RPC answer", 1),
    ];
    for (body, expected, resets) in cases {
        let (dial, client) = ScriptedDial::client(body);
        let got = match client.call::<Value>("m", json!([]), LIMITS).await {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(got.starts_with(expected), "{body}: {got}");
        assert_eq!(dial.resets.load(Ordering::SeqCst), resets, "{body}");
    }
}

#[tokio::test]
async fn a_batch_is_put_back_in_order_and_strangers_in_it_spoil_it() {
    let cases = [
        (r#"[{"result":20,"id":2},{"result":10,"id":1}]"#, "10,20"),
        (r#"[{"result":20,"id":2}]"#, "no answer to one entry,20"),
        (r"[]", "no answer to one entry,no answer to one entry"),
        (r#"[{"result":1,"id":1},{"result":2,"id":1}]"#, "id 1 twice"),
        (r#"[{"result":1,"id":1},{"result":3,"id":3}]"#, "id 3 in it"),
        (r#"[{"result":1,"id":1},{"result":3,"id":0}]"#, "id 0 in it"),
        (r#"[{"result":1,"id":null},{"result":3,"id":2}]"#, "id null in it"),
        (
            r#"{"error":{"code":-32600,"message":"no batches"},"id":null}"#,
            "no batches",
        ),
        (r#"{"result":5,"id":1}"#, "one answer to a batch"),
        (r#"[{"result":10,"id":1},"#, "not a JSON-RPC answer"),
    ];
    for (body, expected) in cases {
        let (_, client) = ScriptedDial::client(body);
        let got = match client.batch::<u64>("m", [json!([]), json!([])], LIMITS).await {
            Ok(entries) => {
                let shown = entries.into_iter().map(|entry| match entry {
                    Ok(value) => value.to_string(),
                    Err(error) => error.to_string(),
                });
                shown.collect::<Vec<_>>().join(",")
            }
            Err(error) => error.to_string(),
        };
        for part in expected.split(',') {
            assert!(got.contains(part), "{body}: {got}");
        }
    }
}

#[tokio::test]
async fn the_follower_reads_what_was_asked_and_why_it_failed() {
    let (_, client) = ScriptedDial::client(r#"{"error":{"code":-28,"message":"Verifying blocks"},"id":1}"#);
    let error = client
        .call::<Value>("getblockcount", json!([]), LIMITS)
        .await
        .unwrap_err();
    let error: SourceError = error.into_source("ask for the height");
    assert_eq!(
        error.to_string(),
        "ask for the height: warming up: Verifying blocks"
    );
}

/// Secrets must not reach a log through a request or an error.
#[tokio::test]
async fn nothing_printable_holds_a_secret() {
    let request = HttpRequest {
        body: Some("secret".into()),
        url: "http://node/".to_owned(),
        headers: vec![("authorization".into(), "Basic c2VjcmV0".to_owned())],
        deadline: LIMITS.deadline,
        body_bytes_max: 1,
    };
    let shown = format!("{request:?}");
    assert!(
        !shown.contains("secret") && !shown.contains("c2VjcmV0"),
        "{shown}"
    );
    let error = HttpDial::new()
        .send(HttpRequest {
            url: "http://user:hunter2@127.0.0.1:1/key".to_owned(),
            ..request
        })
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "connection refused");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}
