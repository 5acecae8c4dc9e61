//! The scripted node itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::common::http;
use crate::common::stub::{Reply, StubNode};

/// One request on a connection of its own: status and body. The connection ends with the answer.
fn ask(stub: &StubNode, head: &str, body: &str) -> std::io::Result<(u16, String)> {
    let address = stub.url().replace("http://", "");
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "{head} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .ok_or_else(|| std::io::Error::other("no answer"))?;
    let mut rest = String::new();
    from.read_to_string(&mut rest)?;
    let body = rest
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default();
    Ok((status.parse().unwrap(), body))
}

fn rpc(stub: &StubNode, method: &str) -> std::io::Result<(u16, String)> {
    ask(
        stub,
        "POST /",
        &json!({ "jsonrpc": "1.0", "id": 7, "method": method, "params": [1] }).to_string(),
    )
}

fn parsed(answer: std::io::Result<(u16, String)>) -> (u16, Value) {
    let (status, body) = answer.unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn replies_come_in_the_order_queued_handler_standing() {
    let stub = StubNode::alone();
    stub.always("getblockcount", Reply::Result(json!(3)));
    stub.once("getblockcount", Reply::ErrorIn200(-28, "Loading block index"));
    stub.once("*", Reply::Text(503, "Work queue depth exceeded"));
    let refused =
        json!({ "result": null, "error": { "code": -28, "message": "Loading block index" }, "id": 7 });
    assert_eq!(parsed(rpc(&stub, "getblockcount")), (200, refused));
    assert_eq!(
        rpc(&stub, "getblockcount").unwrap(),
        (503, "Work queue depth exceeded".to_owned())
    );
    assert_eq!(parsed(rpc(&stub, "getblockcount")).1["result"], 3);
    stub.handle(|call| (call.params == [json!(1)]).then_some(Reply::Result(json!("handled"))));
    assert_eq!(parsed(rpc(&stub, "getblockcount")).1["result"], "handled");
    assert_eq!((stub.count("getblockcount"), stub.calls().len()), (4, 4));
}

#[test]
fn what_nobody_scripted_is_not_found() {
    let stub = StubNode::alone();
    assert_eq!(parsed(rpc(&stub, "stop")).1["error"]["code"], -32601);
    assert_eq!(ask(&stub, "GET /rest/block/00.bin", "").unwrap().0, 404);
    assert_eq!(stub.calls()[1].method, "rest/block");
    assert_eq!(stub.calls()[1].params, [json!("00.bin")]);
}

#[test]
fn faults_look_as_named() {
    let stub = StubNode::alone();
    stub.once("a", Reply::WrongId(json!(1)));
    assert_ne!(parsed(rpc(&stub, "a")).1["id"], 7);
    stub.once("a", Reply::Drip(json!(1)));
    assert_eq!(parsed(rpc(&stub, "a")).1["result"], 1);
    stub.once("a", Reply::Cut(json!("a long enough text")));
    let (_, half) = rpc(&stub, "a").unwrap();
    assert!(serde_json::from_str::<Value>(&half).is_err(), "{half}");
    for oversized in [Reply::Oversized(300_000), Reply::OversizedUnannounced(300_000)] {
        stub.once("a", oversized);
        assert_eq!(rpc(&stub, "a").unwrap().1.len(), 300_000);
    }
    stub.once("a", Reply::Hang);
    assert!(
        rpc(&stub, "a").is_err(),
        "a silent server sends not even a status"
    );
}

#[test]
fn batch_is_answered_call_by_call() {
    let stub = StubNode::alone();
    stub.always("a", Reply::Result(json!("A")));
    let batch = json!([{ "id": 1, "method": "a" }, { "id": 2, "method": "b" }]).to_string();
    let (status, answers) = parsed(ask(&stub, "POST /", &batch));
    assert_eq!(
        (status, &answers[0]["result"], &answers[0]["id"]),
        (200, &json!("A"), &json!(1))
    );
    assert_eq!(answers[1]["error"]["code"], -32601);
    stub.once("b", Reply::Text(503, "busy"));
    assert_eq!(ask(&stub, "POST /", &batch).unwrap(), (503, "busy".to_owned()));
}

#[test]
fn refused_then_accepted_on_the_same_port() {
    let mut stub = StubNode::alone();
    stub.always("a", Reply::Result(json!(1)));
    stub.refuse();
    assert_eq!(
        rpc(&stub, "a").unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    stub.accept_again();
    assert_eq!(rpc(&stub, "a").unwrap().0, 200);
}

#[test]
fn renewed_cookie_is_asked_for() {
    let stub = StubNode::alone();
    stub.always("a", Reply::Result(json!(1)));
    assert_eq!(rpc(&stub, "a").unwrap().0, 200);
    stub.renew_cookie("second");
    assert_eq!(rpc(&stub, "a").unwrap().0, 401);
    let cookie = std::fs::read_to_string(stub.cookie_file()).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nAuthorization: {}\r\nX-Rest:",
        http::basic(&cookie)
    );
    assert_eq!(
        ask(&stub, &head, &json!({ "id": 1, "method": "a" }).to_string())
            .unwrap()
            .0,
        200
    );
}

#[test]
fn credentials_are_encoded_as_rfc_7617_shows() {
    assert_eq!(
        http::basic("Aladdin:open sesame"),
        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    );
    assert_eq!(http::basic("user:pas"), "Basic dXNlcjpwYXM=");
    assert_eq!(http::basic("user:pass12"), "Basic dXNlcjpwYXNzMTI=");
}
