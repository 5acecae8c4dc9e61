//! C05, C26, C32 and C35 (b): what becomes of invoices, by the real daemon beside a real bitcoind.

use serde_json::json;

use crate::common::asks::D1;
use crate::common::daemon::{Daemon, Setup};
use crate::common::invoices::now_ms;
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};

fn follow(node: &RegtestNode) -> Daemon {
    node.fund();
    Daemon::watching(&Setup::for_node(node), D1, node.height())
}

/// A payment is replaced in a reorg by another one with the same coin to the same address.
#[test]
fn c05_invoice_of_a_reorg_double_spend_is_paid_once() {
    let node = RegtestNode::start();
    let mut daemon = follow(&node);
    let id = daemon.invoice(D1, "BTC", "0.05");
    let (coin, change) = (node.coin(), node.new_address());
    let pay = |fee: u64| {
        let rest = coin.sat - 5_000_000 - fee;
        node.spend(&[&coin], &[(D1, 5_000_000), (&change, rest)])
    };
    let (t1, t2) = (pay(1_000), pay(2_000));
    let stale = node.generateblock(&[&t1.hex]);
    daemon.wait_deposit(&t1.txid, 0, "confirming");
    node.mine(2);
    daemon.wait_invoice(&id, "settled", "paid");
    node.invalidate(&stale);
    node.generateblock(&[&t2.hex]);
    node.mine(2);
    daemon.stop();
    node.mine(2);
    daemon.start_again();
    daemon.wait_deposit(&t2.txid, 0, "credited");
    let invoice = daemon.wait_invoice(&id, "settled", "paid");
    assert_eq!(
        (&invoice["paid_base"], &invoice["overpaid_base"]),
        (&json!("5000000"), &json!("0"))
    );
    assert_eq!(
        (&invoice["strays"], &invoice["pending_base"]),
        (&json!(0), &json!("0"))
    );
    daemon.wait_deposit(&t1.txid, 0, "replaced");
    let told = String::from_utf8(daemon.cli(&["tx", &t2.txid]).stdout).unwrap();
    assert!(told.contains(&format!("{id}: in_time")), "{told}");
    assert_eq!(daemon.net_sum(), 5_000_000);
    daemon.assert_sound();
}

/// T1 pays twice beside its change, T2 once in the same block, in either order.
fn several_outputs(order: [usize; 2]) {
    let node = RegtestNode::start();
    let mut daemon = follow(&node);
    let id = daemon.invoice(D1, "BTC", "0.25");
    let (coin, change) = (node.coin(), node.new_address());
    let rest = coin.sat - 25_001_000;
    let t1 = node.spend(&[&coin], &[(D1, 10_000_000), (&change, rest), (D1, 15_000_000)]);
    let t2 = node.payment(D1, 1_000_000);
    node.broadcast(&t1);
    daemon.wait_deposit(&t1.txid, 2, "seen");
    daemon.stop();
    daemon.start_again();
    let pair = [&t1, &t2];
    let block: Vec<&str> = order.iter().map(|place| pair[*place].hex.as_str()).collect();
    node.generateblock(&block);
    node.mine(2);
    let invoice = daemon.wait_invoice(&id, "settled", "overpaid");
    assert_eq!(invoice["paid_base"], "26000000");
    assert_eq!(invoice["overpaid_base"], "1000000");
    let told = daemon.invoice_events(&id);
    assert_eq!(told, ["created", "paid", "overpaid", "settled"], "{order:?}");
    assert_eq!(daemon.events_of("invoice.paid").len(), 1);
    assert_eq!(daemon.credits().len(), 3);
    daemon.assert_sound();
}

#[test]
fn c32_several_outputs_pay_one_invoice_once() {
    several_outputs([0, 1]);
}

#[test]
fn c32_order_inside_the_block_tells_an_invoice_the_same() {
    several_outputs([1, 0]);
}

#[test]
fn c35_second_invoice_is_refused_a_shared_address() {
    let node = RegtestNode::start();
    let daemon = follow(&node);
    let first = daemon.invoice(D1, "BTC", "0.01");
    let second = daemon.try_invoice(D1, "BTC", "0.005").unwrap_err();
    assert!(second.to_string().contains(&first), "{second}");
    let paid = node.payment(D1, 1_000_000);
    node.generateblock(&[&paid.hex]);
    node.mine(2);
    let invoice = daemon.wait_invoice(&first, "settled", "paid");
    assert_eq!(invoice["paid_base"], "1000000");
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 1);
    assert_eq!(
        daemon.count("SELECT count(*) FROM events WHERE type = 'invoice.paid'"),
        1
    );
    daemon.assert_sound();
}

/// The node's clock stands in the past: a block has the time that it would have had while all was off.
#[test]
fn c26_invoice_paid_while_the_daemon_was_off_is_settled_and_never_expires() {
    let node = RegtestNode::start();
    let now_secs = now_ms() / 1_000;
    let clock = |at_secs: i64| node.call("setmocktime", &[json!(at_secs)]);
    clock(now_secs - 7_200);
    let mut daemon = follow(&node);
    // By the machine's clock its time is over already: nobody may look before the payment is there.
    daemon.stop();
    let id = daemon
        .try_invoice_at(D1, "BTC", "0.02", (now_secs - 3_600) * 1_000, 1_800_000)
        .unwrap();
    clock(now_secs - 2_400);
    let paid = node.payment(D1, 2_000_000);
    node.generateblock(&[&paid.hex]);
    clock(now_secs - 60);
    daemon.start_again();
    daemon.wait_deposit(&paid.txid, 0, "confirming");
    // Several looks at the chain, all of them after its time.
    let applied = || daemon.count("SELECT mempool_poll FROM chains");
    let before = applied();
    wait_until("three more lists are applied", PATIENCE, || {
        node.send(&node.new_address(), 10_000);
        (applied() > before + 2).then_some(())
    });
    assert_eq!(daemon.invoice_events(&id), ["created"]);
    node.mine(2);
    let invoice = daemon.wait_invoice(&id, "settled", "paid");
    assert_eq!(invoice["time"], "in_time");
    assert_eq!(daemon.invoice_events(&id), ["created", "paid", "settled"]);
    let payments = daemon.json(&["invoices", "show", &id])["payments"].clone();
    let time = creditd::clock::rfc3339((now_secs - 2_400) * 1_000);
    assert_eq!(
        payments[0]["paid_at"],
        json!(time),
        "its block's time, not that of processing"
    );
    assert_eq!(daemon.credits().len(), 1);
    daemon.assert_sound();
}

/// Nothing came in time: it expires by a look at tip and mempool; what comes then is late, credited, counted.
#[test]
fn c26_invoice_that_nobody_pays_expires_and_what_comes_then_is_late() {
    let node = RegtestNode::start();
    let daemon = follow(&node);
    let id = daemon
        .try_invoice_at(D1, "BTC", "0.02", now_ms() - 60_000, 50_000)
        .unwrap();
    daemon.wait_invoice(&id, "expired", "unpaid");
    let paid = node.payment(D1, 2_000_000);
    // The blocks that funded the wallet are ahead of the clock by then, and so is this one.
    node.generateblock(&[&paid.hex]);
    node.mine(2);
    let invoice = daemon.wait_invoice(&id, "expired", "paid");
    assert_eq!(
        (&invoice["time"], &invoice["strays"]),
        (&json!("late"), &json!(1))
    );
    assert_eq!(daemon.invoice_events(&id), ["created", "expired", "paid"]);
    assert_eq!(daemon.net_sum(), 2_000_000, "credited all the same");
    let listed = daemon.json(&["invoices", "list", "--strayed"]);
    assert_eq!(listed["invoices"][0]["id"], json!(id));
    let counted = "SELECT count FROM tallies WHERE subject = 'strays'";
    assert_eq!(daemon.count(counted), 1, "what the metric reads");
    daemon.assert_sound();
}
