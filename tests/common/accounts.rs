//! The accounts of an Anvil node: who pays in the tests, and its transactions.

use serde_json::{Value, json};

use super::anvil::{AnvilNode, hex, known, quantity};
use super::node::string;

/// Enough for every contract of the tests. Given always: a guess by the node would rest on the state before
/// the transactions that wait.
const CALL_GAS: u64 = 2_000_000;

/// What a payment to an address without code uses.
const PLAIN_GAS: u64 = 21_000;

/// The topic of a `Transfer(address,address,uint256)`.
pub const TRANSFER_TOPIC: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

impl AnvilNode {
    /// One of the ten accounts that the node signs for; each has 10,000 coins.
    #[track_caller]
    pub fn account(&self, index: usize) -> String {
        string(&self.call("eth_accounts", json!([]))[index])
    }

    /// Lets [`send`](Self::send) send from any address. Such a transaction has no true signature, so a reorg
    /// can take it only as an object.
    #[track_caller]
    pub fn impersonate(&self, address: &str) {
        self.call("anvil_impersonateAccount", json!([address]));
    }

    #[track_caller]
    pub fn set_balance(&self, address: &str, wei: u128) {
        self.call("anvil_setBalance", json!([address, hex(wei)]));
    }

    #[track_caller]
    pub fn balance(&self, address: &str) -> u128 {
        quantity(&self.call("eth_getBalance", json!([address, "latest"])))
    }

    /// Hands a transaction (`from`, `to`, `value`, `data`, `gas`, `nonce` and so on) to the pool; its hash.
    #[track_caller]
    pub fn send(&self, transaction: Value) -> String {
        string(&self.call("eth_sendTransaction", json!([transaction])))
    }

    /// Pays native coin to an address without code.
    #[track_caller]
    pub fn pay(&self, from: &str, to: &str, wei: u128) -> String {
        let gas = hex(PLAIN_GAS.into());
        self.send(json!({ "from": from, "to": to, "value": hex(wei), "gas": gas }))
    }

    /// Calls a contract, with native coin or none.
    #[track_caller]
    pub fn invoke(&self, from: &str, to: &str, data: &str, wei: u128) -> String {
        let gas = hex(CALL_GAS.into());
        self.send(json!({ "from": from, "to": to, "data": data, "value": hex(wei), "gas": gas }))
    }

    /// Creates a contract from the first account, and mines a block for it; its address.
    #[track_caller]
    pub fn deploy(&self, creation: &str, wei: u128) -> String {
        let (from, gas) = (self.account(0), hex(CALL_GAS.into()));
        let hash = self.send(json!({ "from": from, "data": creation, "value": hex(wei), "gas": gas }));
        self.mine(1);
        let receipt = self.receipt(&hash).unwrap();
        assert_eq!(receipt["status"], "0x1", "{receipt}");
        string(&receipt["contractAddress"])
    }

    /// Asks a contract without a transaction; the bytes of its answer as hex.
    #[track_caller]
    pub fn view(&self, to: &str, data: &str) -> String {
        string(&self.call("eth_call", json!([{ "to": to, "data": data }, "latest"])))
    }

    #[track_caller]
    pub fn transaction(&self, hash: &str) -> Option<Value> {
        known(self.call("eth_getTransactionByHash", json!([hash])))
    }

    #[track_caller]
    pub fn receipt(&self, hash: &str) -> Option<Value> {
        known(self.call("eth_getTransactionReceipt", json!([hash])))
    }

    /// A signed transaction of the chain or the pool as bytes, for [`reorg`](Self::reorg) or
    /// [`send_raw`](Self::send_raw). A block that was taken away has none any more, so ask before.
    #[track_caller]
    pub fn raw(&self, hash: &str) -> Value {
        let raw = self.call("eth_getRawTransactionByHash", json!([hash]));
        assert!(raw.is_string(), "no transaction {hash}");
        raw
    }

    #[track_caller]
    pub fn send_raw(&self, raw: &Value) -> String {
        string(&self.call("eth_sendRawTransaction", json!([raw])))
    }

    /// Takes a transaction out of the pool.
    #[track_caller]
    pub fn drop_transaction(&self, hash: &str) {
        self.call("anvil_dropTransaction", json!([hash]));
    }

    /// The hashes of the transactions that the next block would hold.
    #[track_caller]
    pub fn pending(&self) -> Vec<String> {
        let block = self.tagged("pending");
        block["transactions"]
            .as_array()
            .unwrap()
            .iter()
            .map(string)
            .collect()
    }
}
