//! What there is, as the control tells it.

use super::*;
use serde_json::{Value, json};

impl Hand {
    /// Both nodes and all names.
    pub(in crate::sandbox) fn state(&self) -> Value {
        let desk = self.desk();
        let names: serde_json::Map<String, Value> = desk
            .names
            .iter()
            .map(|(name, (on, txid))| (name.clone(), self.named(*on, *txid)))
            .collect();
        json!({"btc": self.bitcoin_state(), "evm": self.evm_state(), "names": names})
    }

    fn named(&self, on: On, txid: Txid) -> Value {
        let place = match on {
            On::Btc => self.bitcoin.place(txid),
            On::Evm => self.evm.place(txid),
        };
        let (place, depth) = match place {
            Place::Waits => ("waits", None),
            Place::Mined(depth) => ("mined", Some(depth)),
            Place::Gone => ("gone", None),
        };
        json!({"chain": on.word(), "txid": printed(on, &txid), "place": place, "depth": depth})
    }

    fn bitcoin_state(&self) -> Value {
        let node = &self.bitcoin;
        let waiting = node.mempool();
        json!({
            "url": node.url(),
            "cookie_file": node.cookie_file().display().to_string(),
            "height": node.height(),
            "tip": printed(On::Btc, &node.tip()),
            "waiting": waiting.iter().map(|txid| printed(On::Btc, txid)).collect::<Vec<_>>(),
            "lags": node.is_lagging(),
            "trouble": node.trouble().map(Trouble::word),
        })
    }

    fn evm_state(&self) -> Value {
        let node = &self.evm;
        json!({
            "url": node.url(),
            "chain_id": CHAIN_ID,
            "height": node.height(),
            "tip": printed(On::Evm, &node.tip()),
            "safe": node.safe(),
            "finalized": node.finalized(),
            "waiting": node.pool().iter().map(|txid| printed(On::Evm, txid)).collect::<Vec<_>>(),
            "lags": node.is_lagging(),
            "trouble": node.trouble().map(Trouble::word),
        })
    }
}
