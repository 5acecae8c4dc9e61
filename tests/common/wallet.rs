//! The wallet of a regtest node: who pays in the tests.

use std::str::FromStr as _;

use bitcoincore_rpc::bitcoin::absolute::LockTime;
use bitcoincore_rpc::bitcoin::consensus::encode::serialize_hex;
use bitcoincore_rpc::bitcoin::transaction::Version;
use bitcoincore_rpc::bitcoin::{Address, Amount, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut};
use serde_json::{Value, json};

use super::node::{RegtestNode, string};

/// A coin of the wallet, set aside for a transaction that the test builds itself.
#[derive(Clone, Debug)]
pub struct Coin {
    pub txid: String,
    pub vout: u32,
    pub sat: u64,
    /// What it is locked with, in hex.
    pub script: String,
}

/// A signed transaction that was not sent.
#[derive(Clone, Debug)]
pub struct RawTx {
    pub txid: String,
    pub hex: String,
    /// The satoshi of each output, and its script in hex.
    outputs: Vec<(u64, String)>,
}

impl RawTx {
    /// One of its outputs, to be spent.
    pub fn coin(&self, vout: u32) -> Coin {
        let (sat, script) = self.outputs[vout as usize].clone();
        Coin {
            txid: self.txid.clone(),
            vout,
            sat,
            script,
        }
    }
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
        self.pooled(string(&self.call("sendtoaddress", &params)))
    }

    /// The wallet names a transaction also where its own node does not take it.
    #[track_caller]
    fn pooled(&self, txid: String) -> String {
        if !self.mempool().contains(&txid) {
            let known = self.call("gettransaction", &[json!(txid)]);
            let tried = self.call("testmempoolaccept", &[json!([known["hex"]])]);
            panic!("the node does not take {txid} of its wallet: {tried}");
        }
        txid
    }

    /// Replaces a wallet transaction by one with a higher fee; the new id.
    #[track_caller]
    pub fn bump(&self, txid: &str) -> String {
        self.pooled(string(&self.call("bumpfee", &[json!(txid)])["txid"]))
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
            script: string(&coin["scriptPubKey"]),
        }
    }

    /// Makes `count` confirmed coins of one; [`coin`](Self::coin) finds them too.
    #[track_caller]
    pub fn split_coin(&self, count: u32) -> Vec<Coin> {
        let (coin, address) = (self.coin(), self.new_address());
        let each = (coin.sat - 1_000_000) / u64::from(count);
        let outputs: Vec<(&str, u64)> = (0..count).map(|_| (address.as_str(), each)).collect();
        let split = self.spend(&[&coin], &outputs);
        self.generateblock(&[&split.hex]);
        (0..count).map(|vout| split.coin(vout)).collect()
    }

    /// A payment from a coin of its own, its first output, with the change in the second. Not sent.
    #[track_caller]
    pub fn payment(&self, address: &str, sat: u64) -> RawTx {
        let (coin, change) = (self.coin(), self.new_address());
        self.spend(&[&coin], &[(address, sat), (&change, coin.sat - sat - 1_000)])
    }

    /// Builds and signs a transaction from `coins` to `outputs` (address, satoshi) in this order; an address
    /// may come twice. The rest is the fee, so name the change too. Not sent: see
    /// [`broadcast`](Self::broadcast) and [`generateblock`](Self::generateblock).
    #[track_caller]
    pub fn spend(&self, coins: &[&Coin], outputs: &[(&str, u64)]) -> RawTx {
        let script = |address: &str| {
            Address::from_str(address)
                .unwrap()
                .assume_checked()
                .script_pubkey()
        };
        let outputs: Vec<(ScriptBuf, u64)> = outputs
            .iter()
            .map(|(address, sat)| (script(address), *sat))
            .collect();
        self.spend_to_scripts(coins, &outputs)
    }

    /// The same to scripts of any kind, which the node's RPC does not take.
    #[track_caller]
    pub fn spend_to_scripts(&self, coins: &[&Coin], outputs: &[(ScriptBuf, u64)]) -> RawTx {
        let input = |coin: &&Coin| TxIn {
            previous_output: OutPoint {
                txid: coin.txid.parse().unwrap(),
                vout: coin.vout,
            },
            sequence: Sequence::ENABLE_RBF_NO_LOCKTIME,
            ..TxIn::default()
        };
        let output = |(script, sat): &(ScriptBuf, u64)| TxOut {
            value: Amount::from_sat(*sat),
            script_pubkey: script.clone(),
        };
        let unsigned = Transaction {
            version: Version::TWO,
            lock_time: LockTime::ZERO,
            input: coins.iter().map(input).collect(),
            output: outputs.iter().map(output).collect(),
        };
        // Told, for the node does not know a coin any more that something else has spent in a block.
        let spent = |coin: &&Coin| {
            json!({
                "txid": coin.txid, "vout": coin.vout, "scriptPubKey": coin.script, "amount": btc(coin.sat),
            })
        };
        let spent: Vec<Value> = coins.iter().map(spent).collect();
        let signed = self.call(
            "signrawtransactionwithwallet",
            &[json!(serialize_hex(&unsigned)), json!(spent)],
        );
        assert_eq!(
            signed["complete"],
            json!(true),
            "the wallet could not sign: {signed}"
        );
        let hex = string(&signed["hex"]);
        // Signing changes witnesses or scripts, never what the outputs are.
        let outputs = unsigned
            .output
            .iter()
            .map(|output| (output.value.to_sat(), output.script_pubkey.to_hex_string()))
            .collect();
        let txid = string(&self.call("decoderawtransaction", &[json!(hex)])["txid"]);
        RawTx { txid, hex, outputs }
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
