//! A reorg runs a transaction again: its log has another index there, or other amounts come of it.

use ruint::aliases::U256;
use serde_json::{Value, json};

use super::{Chain, E1, E2, again, books, journal, log, mine, nets, node_with_token, wait_books};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::{Arg, Token, address, uint};
use crate::common::daemon::Daemon;

/// A payment whose amount depends on whether another transaction comes before it: half of it goes elsewhere
/// as a fee where it does.
struct Story {
    node: AnvilNode,
    token: Token,
    daemon: Daemon,
    fee: Value,
    paid: String,
    raw: Value,
    /// Below the block of the payment.
    fork: u64,
}

const WHOLE: u128 = 8_000_000;

impl Story {
    /// The whole amount is paid, `depth` blocks deep.
    fn new(depth: u32) -> Self {
        let (node, token) = node_with_token();
        let daemon = Chain::at(&node.url()).tusd(&token).follow(&node);
        let fork = node.height();
        let args = [uint(5_000), address(&node.account(3)), Arg::Bool(false)];
        let data = token.contract.call_data("setFee", &args);
        let fee = json!({
            "from": node.account(2), "to": token.address, "data": data, "gas": "0x1e8480",
            "nonce": format!("{:#x}", node.next_nonce(&node.account(2))),
        });
        let fee = super::signed(&node, fee);
        let paid = token.transfer(&node, &node.account(1), E1, WHOLE);
        let raw = node.raw(&paid);
        mine(&node, &daemon, depth);
        Self {
            node,
            token,
            daemon,
            fee,
            paid,
            raw,
            fork,
        }
    }

    /// Another branch in place of everything above the fork, one block longer.
    fn rerun(&self, with_fee: bool) {
        let depth = self.node.height() - self.fork;
        let mut txs = vec![(self.raw.clone(), 0)];
        if with_fee {
            txs.insert(0, (self.fee.clone(), 0));
        }
        self.node.reorg(depth, &txs);
        mine(&self.node, &self.daemon, 1);
    }

    fn journal(&self, vout: u64) -> Vec<String> {
        journal(&self.daemon, &self.paid, vout)
    }
}

#[test]
fn other_amount_before_the_credit_is_credited_once_as_it_is() {
    let story = Story::new(2);
    wait_books(&story.daemon, &["log 0: 8000000 to E1 confirming"]);
    story.rerun(true);
    wait_books(
        &story.daemon,
        &[
            "log 0, execution 1: 4000000 to E1 confirming",
            "log 0: 8000000 to E1 orphaned",
        ],
    );
    mine(&story.node, &story.daemon, 6);
    wait_books(
        &story.daemon,
        &[
            "log 0, execution 1: 4000000 to E1 credited",
            "log 0: 8000000 to E1 orphaned",
        ],
    );
    assert_eq!(nets(&story.daemon), ["4000000"]);
    assert_eq!(story.daemon.credits().len(), 1);
    story.daemon.assert_sound();
}

#[test]
fn other_amount_after_the_credit_is_held_and_the_first_is_reversed() {
    let story = Story::new(6);
    story.daemon.wait_deposit(&story.paid, log(0), "credited");
    story.rerun(true);
    mine(&story.node, &story.daemon, 6);
    wait_books(
        &story.daemon,
        &[
            "log 0, execution 1: 4000000 to E1 confirming held reexecuted",
            "log 0: 8000000 to E1 orphaned",
        ],
    );
    assert_eq!(story.journal(log(0)), ["credit", "reversal"]);
    assert_eq!(nets(&story.daemon), Vec::<String>::new());
    assert_eq!(story.daemon.events_of("credit.reversed").len(), 1);
    assert_eq!(story.daemon.events_of("deposit.held").len(), 1);

    // The first run comes back: it is the same row as ever, and the second is gone.
    story.rerun(false);
    mine(&story.node, &story.daemon, 6);
    wait_books(
        &story.daemon,
        &[
            "log 0, execution 1: 4000000 to E1 orphaned held reexecuted",
            "log 0: 8000000 to E1 credited",
        ],
    );
    assert_eq!(story.journal(log(0)), ["credit", "reversal", "reinstatement"]);
    assert_eq!(nets(&story.daemon), ["8000000"]);

    // And the second again, which an operator releases.
    story.rerun(true);
    mine(&story.node, &story.daemon, 6);
    let second = again(log(0), 1);
    let id = story.daemon.wait_deposit(&story.paid, second, "confirming")["id"].clone();
    super::release(&story.daemon, id.as_str().unwrap());
    wait_books(
        &story.daemon,
        &[
            "log 0, execution 1: 4000000 to E1 credited",
            "log 0: 8000000 to E1 orphaned",
        ],
    );
    assert_eq!(nets(&story.daemon), ["4000000"]);
    assert_eq!(story.journal(second), ["credit"]);
    assert_eq!(books(&story.daemon).len(), 2);
    assert!(story.token.balance(&story.node, E1) == U256::from(4_000_000));
    story.daemon.assert_sound();
}

/// Another payment comes before it in its block: the index of its log is another, and nothing else.
#[test]
fn same_payment_with_another_log_index_keeps_its_credit() {
    for depth in [2, 6] {
        let (node, token) = node_with_token();
        let daemon = Chain::at(&node.url()).tusd(&token).follow(&node);
        let paid = token.transfer(&node, &node.account(1), E1, 5_000_000);
        let raw = node.raw(&paid);
        mine(&node, &daemon, depth);
        if depth == 6 {
            daemon.wait_deposit(&paid, log(0), "credited");
        }
        let data = token
            .contract
            .call_data("transfer", &[address(E2), uint(7_000_000)]);
        let nonce = format!("{:#x}", node.next_nonce(&node.account(2)));
        let before = json!({
            "from": node.account(2), "to": token.address, "data": data, "gas": "0x1e8480", "nonce": nonce,
        });
        node.reorg(depth.into(), &[(super::signed(&node, before), 0), (raw, 0)]);
        assert_eq!(node.receipt(&paid).unwrap()["logs"][0]["logIndex"], "0x1");
        mine(&node, &daemon, 7);
        wait_books(
            &daemon,
            &["log 0: 5000000 to E1 credited", "log 0: 7000000 to E2 credited"],
        );
        assert_eq!(journal(&daemon, &paid, log(0)), ["credit"]);
        daemon.assert_sound();
    }
}
