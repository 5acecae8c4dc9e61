//! What the contracts of the config say of themselves.

use super::{Exam, hex};
use crate::address::EvmAddress;
use crate::chain::NodeTip;
use crate::chain::evm::fields::{Data, Field};
use crate::check::Verdict;
use crate::config::EvmToken;
use serde_json::json;

impl Exam<'_> {
    pub(super) async fn tokens(&mut self, tip: &NodeTip) {
        for token in &self.chain.tokens {
            self.decimals(&token.symbol, token.contract, token.decimals, "token")
                .await;
            if token.is_balance_checked {
                self.past_balance(token, tip).await;
            }
        }
        let twin = self.chain.native.as_ref();
        let twin = twin.and_then(|native| Some((native, native.contract?)));
        if let Some((native, contract)) = twin {
            self.decimals(&native.symbol, contract, native.decimals, "coin")
                .await;
        }
    }

    /// Holds a contract's decimals against the config: wrong ones are wrong amounts.
    async fn decimals(&mut self, symbol: &str, contract: EvmAddress, expected: u8, name: &'static str) {
        match self.source.decimals_of(contract.0).await {
            Ok(Ok(told)) if told == u64::from(expected) => {
                self.good(name, format!("{symbol} ({contract}): {expected} decimals"));
            }
            Ok(Ok(told)) => self.push(
                name,
                Verdict::Bad,
                format!(
                    "{symbol} ({contract}): the config says {expected} decimals, its contract {}",
                    words(told)
                ),
                "correct `decimals` or `contract`: it is not watched like this",
            ),
            Ok(Err(why)) => self.push(
                name,
                Verdict::Warning,
                format!("{symbol} ({contract}): it does not tell its decimals ({why}); {expected} are used"),
                "see that the contract is the right one, on this chain",
            ),
            Err(error) => {
                let found = format!("{symbol} ({contract}): {}", crate::telemetry::error_line(&error));
                self.push(name, Verdict::Bad, found, "ask again");
            }
        }
    }

    /// Whether balances of a past block are told, by its hash.
    async fn past_balance(&mut self, token: &EvmToken, tip: &NodeTip) {
        let symbol = &token.symbol;
        // balanceOf of nobody.
        let call = json!({
            "to": token.contract.to_string().to_lowercase(),
            "data": format!("0x70a08231{:064}", 0),
        });
        let params = json!([call, {"blockHash": hex(tip.hash)}]);
        match self.read::<Field<Data>>("eth_call", params).await {
            Ok(_) => self.good("balance", format!("{symbol}: balances are told by block hash")),
            Err(why) => self.push(
                "balance",
                Verdict::Bad,
                format!("{symbol}: balances by block hash: {why}"),
                "name an endpoint that answers eth_call at a blockHash: until then each payment is held",
            ),
        }
    }
}

fn words(decimals: u64) -> String {
    match decimals {
        u64::MAX => "more than any number".to_owned(),
        78.. => format!("{decimals}, which no amount can have"),
        _ => decimals.to_string(),
    }
}
