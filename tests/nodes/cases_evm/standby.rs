//! The endpoint in use answers, and not what is needed: another one that does is asked. One that stands by is
//! of no use to a chain that halts or waits beside it.

use serde_json::{Value, json};

use super::{Chain, E1, E2, mine, node_with_token, wait_books, wait_state};
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::Fault;

/// P always answers these questions so, and Q as it should.
fn other_endpoint_is_asked(method: &'static str, fault: Fault) {
    let (node, token) = node_with_token();
    let (p, q) = (
        EvmProxy::in_front_of(&node.url()),
        EvmProxy::in_front_of(&node.url()),
    );
    let chain = Chain::of(&[("p", &p.url()), ("q", &q.url())])
        .coin("\"traces\"\ntrace_method = \"debug\"")
        .tusd(&token);
    let daemon = chain.follow(&node);
    p.always(method, fault);
    node.pay(&node.account(1), E1, 5);
    token.transfer(&node, &node.account(2), E2, 6);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 6 to E2 credited", "native: 5 to E1 credited"]);
    assert_eq!(daemon.events_of("chain.halted").len(), 0);
    daemon.assert_sound();
}

#[test]
fn endpoint_that_always_fails_at_one_question_is_left_for_another() {
    for method in [
        "eth_getLogs",
        "debug_traceBlockByHash",
        "eth_getBlockByHash",
        "eth_getTransactionReceipt",
    ] {
        for fault in [
            Fault::Error(-32_603, "internal error"),
            Fault::Error(-32_601, "the method is not available on your plan"),
        ] {
            eprintln!("{method}");
            other_endpoint_is_asked(method, fault);
        }
    }
}

#[test]
fn endpoint_that_never_knows_the_block_of_its_own_tip_is_left_for_another() {
    for method in [
        "eth_getLogs",
        "debug_traceBlockByHash",
        "eth_getTransactionReceipt",
    ] {
        eprintln!("{method}");
        other_endpoint_is_asked(method, Fault::Result(Value::Null));
    }
    other_endpoint_is_asked("eth_getLogs", Fault::Error(-32_000, "unknown block"));
}

/// Only P was there when the block came, and lacks the field for ever. Q comes back.
#[test]
fn c13_field_that_one_endpoint_never_has_is_read_from_another_that_comes_back() {
    let (node, token) = node_with_token();
    let (p, mut q) = (
        EvmProxy::in_front_of(&node.url()),
        EvmProxy::in_front_of(&node.url()),
    );
    let chain = Chain::of(&[("p", &p.url()), ("q", &q.url())])
        .coin("\"traces\"")
        .tusd(&token);
    let daemon = chain.follow(&node);
    q.refuse();
    p.always("eth_getTransactionReceipt", Fault::without_field("logs"));
    token.transfer(&node, &node.account(2), E2, 6);
    node.mine(6);
    let status = wait_state(&daemon, "bad_block", "logs");
    assert_eq!(status["is_halted"], json!(true));
    q.accept_again();
    daemon.wait_height_of("dev", node.height());
    wait_books(&daemon, &["log 0: 6 to E2 credited"]);
    assert_eq!(daemon.events_of("chain.resumed").len(), 1);
    daemon.assert_sound();
}
