//! The stage of a real bitcoind: three branches that lie ready in one node.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Cast, Stage};
use crate::common::daemon::Setup;
use crate::common::node::RegtestNode;
use crate::common::wallet::Coin;
use crate::shop::{fresh_address, text};

/// All branches stand above one block. The node is told which of them are valid.
pub struct Bitcoind {
    node: RegtestNode,
    cast: Cast,
    /// The lowest block of each.
    branches: [String; 3],
    /// In the pool while the second is the best chain.
    pooled: String,
    base: u64,
}

/// Signed, and not sent.
struct Payment {
    txid: String,
    hex: String,
}

impl Bitcoind {
    pub fn new() -> Bitcoind {
        let node = RegtestNode::start();
        node.fund();
        node.split_coin(10);
        let addresses = [(); 4].map(|()| fresh_address());
        let (coin, other) = (node.coin(), node.coin());
        let base = node.height();
        let pay = |coin, to: &str, sat| pay_above(&node, base + 1, coin, to, sat);
        let gone = pay(&coin, &addresses[0], 70_000);
        let rival = pay(&coin, &addresses[1], 50_000);
        let invoiced = pay(&other, &addresses[2], 200_000);
        let branch = |transactions: &[&str], empty: u32| {
            // No two branches begin with the same block.
            let lowest = node.mine_to(&node.new_address(), 1).remove(0);
            node.generateblock(transactions);
            (0..empty).for_each(|_| drop(node.generateblock(&[])));
            node.invalidate(&lowest);
            lowest
        };
        let branches = [
            branch(&[&gone.hex, &invoiced.hex], 2),
            branch(&[&rival.hex], 3),
            branch(&[&invoiced.hex, &gone.hex], 4),
        ];
        let pooled = invoiced.hex.clone();
        let paid = [(gone, 70_000), (invoiced, 200_000), (rival, 0)];
        let paid = paid.into_iter().map(|(tx, net)| ((tx.txid, 0), net));
        let cast = Cast {
            node: "bitcoind",
            symbol: "BTC",
            addresses,
            invoices: ["0.002", "1"],
            paid: paid.collect::<BTreeMap<_, _>>(),
        };
        Bitcoind {
            node,
            cast,
            branches,
            pooled,
            base,
        }
    }
}

impl Stage for Bitcoind {
    fn cast(&self) -> &Cast {
        &self.cast
    }

    fn setup(&self) -> Setup {
        Setup {
            chain_lines: format!("start = {}", self.base),
            ..Setup::for_node(&self.node)
        }
    }

    /// Takes the other branches off, and puts back what is wanted.
    fn show(&self, branch: Option<usize>) {
        let wanted = branch.map(|number| &self.branches[number]);
        let others = self.branches.iter().filter(|lowest| wanted != Some(lowest));
        others.for_each(|lowest| self.node.invalidate(lowest));
        wanted.into_iter().for_each(|lowest| self.node.reconsider(lowest));
        if branch == Some(1) {
            self.node.call("sendrawtransaction", &[json!(self.pooled)]);
        }
    }

    fn tip(&self) -> String {
        self.node.tip()
    }
}

/// A payment that no block up to this height can have, and so no pool below it: else it would be seen before
/// its invoice is made, or not, as it happens.
fn pay_above(node: &RegtestNode, height: u64, coin: &Coin, to: &str, sat: u64) -> Payment {
    let btc = |sat: u64| json!(format!("{}.{:08}", sat / 100_000_000, sat % 100_000_000));
    // Not the last sequence number, which would lift the lock.
    let input = json!({ "txid": coin.txid, "vout": coin.vout, "sequence": 0xffff_fffd_u32 });
    let outputs = json!([{ to: btc(sat) }, { node.new_address(): btc(coin.sat - sat - 1_000) }]);
    let unsigned = node.call("createrawtransaction", &[json!([input]), outputs, json!(height)]);
    let signed = node.call("signrawtransactionwithwallet", &[unsigned]);
    assert_eq!(signed["complete"], json!(true), "{signed}");
    let decoded = node.call("decoderawtransaction", &[signed["hex"].clone()]);
    Payment {
        txid: text(&decoded["txid"]),
        hex: text(&signed["hex"]),
    }
}
