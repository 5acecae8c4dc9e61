//! Invoices of a daemon's merchant `shop`, made straight in its database as a command does.

use creditd::address::{self, EvmAddress, Network};
use creditd::rules::invoice::Tolerance;
use creditd::rules::{Amount, Script};
use creditd::store::{Database, NewInvoice, OpenMode, StoreError};
use serde_json::Value;

use super::daemon::Daemon;
use super::wait::{PATIENCE, wait_until};

/// The machine's time in Unix milliseconds.
pub fn now_ms() -> i64 {
    creditd::clock::Clock::real().now_ms()
}

fn script(text: &str) -> Script {
    match text.starts_with("0x") {
        true => EvmAddress::parse(text).unwrap().script(),
        false => address::parse(Network::Regtest, text).unwrap(),
    }
}

impl Daemon {
    /// An invoice for so many whole units of an asset, at a watched address, that runs for a quarter of an
    /// hour; its id.
    ///
    /// # Errors
    /// As the store's verb.
    pub fn try_invoice(&self, address: &str, symbol: &str, units: &str) -> Result<String, StoreError> {
        self.try_invoice_at(address, symbol, units, now_ms(), 900_000)
    }

    /// The same, made at a time of one's own, for so long.
    ///
    /// # Errors
    /// The same.
    pub fn try_invoice_at(
        &self,
        address: &str,
        symbol: &str,
        units: &str,
        now_ms: i64,
        runs_ms: i64,
    ) -> Result<String, StoreError> {
        let mut database = Database::open(&self.database(), OpenMode::Write)?;
        database.write(now_ms, |tx| {
            let assets = tx.assets()?;
            let asset = assets.iter().find(|known| known.symbol == symbol).unwrap();
            let new = NewInvoice {
                merchant: "shop".to_owned(),
                asset: asset.key,
                address: tx.address_key(asset.chain, &script(address))?.unwrap(),
                amount: Amount::from_units_str(units, asset.decimals).unwrap(),
                tolerance: Tolerance::default(),
                expires_at: now_ms + runs_ms,
                reference: String::new(),
                metadata: "{}".to_owned(),
                confirmations: None,
                token: format!("page of {address} in {symbol}"),
                callback: None,
            };
            Ok(tx.create_invoice(&new)?.id)
        })
    }

    #[track_caller]
    pub fn invoice(&self, address: &str, symbol: &str, units: &str) -> String {
        self.try_invoice(address, symbol, units).unwrap()
    }

    /// Waits until an invoice stands so, and returns it.
    #[track_caller]
    pub fn wait_invoice(&self, id: &str, life: &str, amount_state: &str) -> Value {
        wait_until(&format!("{id} is {life}, {amount_state}"), PATIENCE, || {
            let invoice = self.ask(&["invoices", "show", id])?["invoice"].clone();
            (invoice["life"] == life && invoice["amount_state"] == amount_state).then_some(invoice)
        })
    }

    /// The types of an invoice's events, in order, without their common beginning.
    #[track_caller]
    pub fn invoice_events(&self, id: &str) -> Vec<String> {
        let events = self.events().into_iter().filter(|event| event.subject == id);
        events
            .map(|event| event.kind.trim_start_matches("invoice.").to_owned())
            .collect()
    }
}
