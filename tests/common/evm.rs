//! What happens on an EVM chain, in one call each: payouts by inner calls, failures, replacements, and reorgs
//! that keep some transactions. Plain payments are in `accounts`, tokens in `contracts`.

use serde_json::{Value, json};

use super::anvil::{AnvilNode, hex, quantity};
use super::contracts::{Arg, Contract, address, payments, uint};
use super::wait::{PATIENCE, wait_until};

/// A `Splitter` at its address: it forwards coin by inner calls, which neither a log nor a transaction shows.
/// Whatever it gets beyond the payments goes back to the sender by one more.
pub struct Splitter {
    pub contract: Contract,
    pub address: String,
}

impl Splitter {
    /// Mines one block.
    #[track_caller]
    pub fn deploy(node: &AnvilNode) -> Self {
        let contract = Contract::named("Splitter");
        let address = node.deploy(&contract.creation(&[]), 0);
        Self { contract, address }
    }

    #[track_caller]
    fn invoke(&self, node: &AnvilNode, from: &str, method: &str, args: &[Arg], wei: u128) -> String {
        node.invoke(from, &self.address, &self.contract.call_data(method, args), wei)
    }

    /// One inner call to each, in this order: a batch payout.
    #[track_caller]
    pub fn split(&self, node: &AnvilNode, from: &str, to: &[(&str, u128)], wei: u128) -> String {
        self.invoke(node, from, "split", &payments(to), wei)
    }

    /// Each one call deeper than the one before.
    #[track_caller]
    pub fn nest(&self, node: &AnvilNode, from: &str, to: &[(&str, u128)], wei: u128) -> String {
        self.invoke(node, from, "nest", &payments(to), wei)
    }

    /// Like [`split`](Self::split), from inside a delegate call, whose frame shows a value that does not
    /// move.
    #[track_caller]
    pub fn split_by_delegate(&self, node: &AnvilNode, from: &str, to: &[(&str, u128)], wei: u128) -> String {
        self.invoke(node, from, "splitByDelegate", &payments(to), wei)
    }

    /// Like [`split`](Self::split), after a payment of `lost` in a branch that reverts.
    #[track_caller]
    pub fn split_around_revert(
        &self,
        node: &AnvilNode,
        from: &str,
        lost: (&str, u128),
        to: &[(&str, u128)],
        wei: u128,
    ) -> String {
        let mut args = vec![address(lost.0), uint(lost.1)];
        args.extend(payments(to));
        self.invoke(node, from, "splitAroundRevert", &args, wei)
    }
}

impl AnvilNode {
    // ---- failures ----

    /// Puts code at an address that takes no coin from now on: payments to it are mined and fail.
    #[track_caller]
    pub fn refuse_coin_at(&self, address: &str) {
        let code = Contract::named("Reverter").deployed().to_owned();
        self.call("anvil_setCode", json!([address, code]));
    }

    /// Ends [`refuse_coin_at`](Self::refuse_coin_at).
    #[track_caller]
    pub fn accept_coin_at(&self, address: &str) {
        self.call("anvil_setCode", json!([address, "0x"]));
    }

    // ---- nonces ----

    /// The next nonce of an account, its waiting transactions counted.
    #[track_caller]
    pub fn next_nonce(&self, of: &str) -> u64 {
        let next = self.call("eth_getTransactionCount", json!([of, "pending"]));
        quantity(&next).try_into().unwrap()
    }

    /// Pays with this nonce. Behind a gap it waits until the gap is filled.
    #[track_caller]
    pub fn pay_with_nonce(&self, from: &str, to: &str, wei: u128, nonce: u64) -> String {
        let (wei, nonce) = (hex(wei), hex(nonce.into()));
        self.send(json!({ "from": from, "to": to, "value": wei, "gas": "0x5208", "nonce": nonce }))
    }

    /// Puts a payment in the place of a waiting transaction: the same sender and nonce, and twice the price.
    #[track_caller]
    pub fn replace(&self, waiting: &str, to: &str, wei: u128) -> String {
        let old = self.transaction(waiting).unwrap();
        assert!(old["blockHash"].is_null(), "{waiting} is mined: {old}");
        let price = old.get("maxFeePerGas").unwrap_or(&old["gasPrice"]);
        let price = hex(2 * quantity(price));
        self.send(json!({
            "from": old["from"], "to": to, "value": hex(wei), "gas": "0x5208", "nonce": old["nonce"],
            "maxFeePerGas": price, "maxPriorityFeePerGas": price,
        }))
    }

    // ---- reorgs ----

    /// Like [`reorg`](Self::reorg): the first new block holds these mined transactions, unchanged and in this
    /// order, and no others come.
    #[track_caller]
    pub fn reorg_keeping(&self, depth: u64, kept: &[&str]) -> Vec<String> {
        let kept: Vec<(Value, u64)> = kept.iter().map(|hash| (self.raw(hash), 0)).collect();
        self.reorg(depth, &kept)
    }

    /// Replaces the last blocks by empty ones and one more, which is a better branch than the old.
    #[track_caller]
    pub fn reorg_away(&self, depth: u64) -> Vec<String> {
        let mut blocks = self.reorg(depth, &[]);
        blocks.extend(self.mine(1));
        blocks
    }

    // ---- waiting for what others send ----

    /// Waits until the pool or the chain holds a transaction that pays `to`; its hash.
    #[track_caller]
    pub fn wait_for_payment_to(&self, to: &str) -> String {
        wait_until(&format!("a pending payment to {to}"), PATIENCE, || {
            let pending = self.pending().into_iter();
            let mut txs = pending.filter_map(|hash| self.transaction(&hash));
            let pays = |tx: &Value| tx["to"].as_str().is_some_and(|at| at.eq_ignore_ascii_case(to));
            txs.find(pays).map(|tx| tx["hash"].as_str().unwrap().to_owned())
        })
    }
}
