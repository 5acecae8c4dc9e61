//! The wallet of a regtest node: who pays in the tests.

use bitcoincore_rpc::bitcoin::Amount;
use serde_json::{Value, json};

use super::node::{RegtestNode, string};

/// A coin of the wallet, set aside for a transaction that the test builds itself.
#[derive(Clone, Debug)]
pub struct Coin {
    pub txid: String,
    pub vout: u32,
    pub sat: u64,
}

/// A signed transaction that was not sent.
#[derive(Clone, Debug)]
pub struct RawTx {
    pub txid: String,
    pub hex: String,
}

impl RegtestNode {
    /// Gives the node a wallet that can pay at once: 110 blocks, so ten spendable coinbases.
    #[track_caller]
    pub fn fund(&self) {
        self.create_wallet("payer");
        self.mine_to(&self.new_address(), 10);
        self.mine(100);
    }

    /// Creates a wallet that is loaded again at every start.
    #[track_caller]
    pub fn create_wallet(&self, name: &str) {
        let (keys, blank, password, reuse, descriptors) =
            (json!(false), json!(false), json!(""), json!(false), json!(true));
        let load_on_startup = json!(true);
        self.call(
            "createwallet",
            &[
                json!(name),
                keys,
                blank,
                password,
                reuse,
                descriptors,
                load_on_startup,
            ],
        );
    }

    /// A fresh address of the node's own wallet.
    #[track_caller]
    pub fn new_address(&self) -> String {
        string(&self.call("getnewaddress", &[]))
    }

    /// Pays `sat` to `address` from the wallet, replaceable; the transaction id.
    #[track_caller]
    pub fn send(&self, address: &str, sat: u64) -> String {
        let replaceable = json!(true);
        let params = [
            json!(address),
            btc(sat),
            json!(""),
            json!(""),
            json!(false),
            replaceable,
        ];
        string(&self.call("sendtoaddress", &params))
    }

    /// Replaces a wallet transaction by one with a higher fee; the new id.
    #[track_caller]
    pub fn bump(&self, txid: &str) -> String {
        string(&self.call("bumpfee", &[json!(txid)])["txid"])
    }

    /// Sets a confirmed coin aside: [`send`](Self::send) will not use it.
    #[track_caller]
    pub fn coin(&self) -> Coin {
        let unspent = self.call("listunspent", &[json!(1)]);
        let coin = unspent
            .as_array()
            .unwrap()
            .first()
            .expect("a spendable coin: call fund() first");
        let (txid, vout) = (string(&coin["txid"]), coin["vout"].as_u64().unwrap());
        self.call(
            "lockunspent",
            &[json!(false), json!([{ "txid": txid, "vout": vout }])],
        );
        let amount = Amount::from_btc(coin["amount"].as_f64().unwrap()).unwrap();
        Coin {
            txid,
            vout: u32::try_from(vout).unwrap(),
            sat: amount.to_sat(),
        }
    }

    /// Builds and signs a transaction from `coins` to `outputs` (address, satoshi) in this order. The rest
    /// is the fee, so name the change too. Not sent: see [`broadcast`](Self::broadcast) and
    /// [`generateblock`](Self::generateblock).
    #[track_caller]
    pub fn spend(&self, coins: &[&Coin], outputs: &[(&str, u64)]) -> RawTx {
        // 0xfffffffd: replaceable.
        let input =
            |coin: &&Coin| json!({ "txid": coin.txid, "vout": coin.vout, "sequence": 0xffff_fffd_u32 });
        let inputs: Vec<Value> = coins.iter().map(input).collect();
        let outputs: Vec<Value> = outputs
            .iter()
            .map(|(address, sat)| json!({ *address: btc(*sat) }))
            .collect();
        let unsigned = self.call("createrawtransaction", &[json!(inputs), json!(outputs)]);
        let signed = self.call("signrawtransactionwithwallet", &[unsigned]);
        assert_eq!(
            signed["complete"],
            json!(true),
            "the wallet could not sign: {signed}"
        );
        let hex = string(&signed["hex"]);
        let txid = string(&self.call("decoderawtransaction", &[json!(hex)])["txid"]);
        RawTx { txid, hex }
    }

    /// Hands a transaction to the mempool, whatever its fee; its id.
    #[track_caller]
    pub fn broadcast(&self, transaction: &RawTx) -> String {
        let fee_rate_max = json!(0);
        string(&self.call("sendrawtransaction", &[json!(transaction.hex), fee_rate_max]))
    }

    #[track_caller]
    pub fn mempool(&self) -> Vec<String> {
        self.call("getrawmempool", &[])
            .as_array()
            .unwrap()
            .iter()
            .map(string)
            .collect()
    }
}

/// The RPC takes amounts as decimal text, so no float is needed.
fn btc(sat: u64) -> Value {
    json!(format!("{}.{:08}", sat / 100_000_000, sat % 100_000_000))
}
