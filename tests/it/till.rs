//! A merchant's till on the scripted chain: invoices are made and watched on a rig.

use crate::rig::Rig;
use creditd::rules::Amount;
use creditd::rules::invoice::Tolerance;
use creditd::store::{Invoice, NewInvoice, ReadTx, StoreError};

/// How long invoices run.
pub const RUNS_MS: i64 = 900_000;

/// An invoice of `amount` base units for script `number`, which has to be watched already.
pub fn new_invoice(
    tx: &ReadTx<'_>,
    rig: (creditd::store::ChainKey, creditd::rules::Script),
    merchant: &str,
    amount: u64,
    now_ms: i64,
) -> Result<NewInvoice, StoreError> {
    let (chain, script) = rig;
    let mut assets = tx.assets()?.into_iter();
    let asset = assets.find(|known| known.chain == chain && known.contract.is_none());
    Ok(NewInvoice {
        merchant: merchant.to_owned(),
        asset: asset.unwrap().key,
        address: tx.address_key(chain, &script)?.unwrap(),
        amount: Amount::from_u64(amount),
        tolerance: Tolerance::default(),
        expires_at: now_ms + RUNS_MS,
        reference: String::new(),
        metadata: "{}".to_owned(),
        confirmations: None,
        token: script.0.iter().map(|byte| format!("{byte:02x}")).collect(),
        callback: None,
    })
}

/// Watches script `number` and makes an invoice for it; returns its id.
pub async fn invoice(rig: &Rig, number: u32, amount: u64) -> String {
    invoice_with(rig, number, amount, |_| {}).await
}

/// The same with other terms.
pub async fn invoice_with(
    rig: &Rig,
    number: u32,
    amount: u64,
    change: impl Fn(&mut NewInvoice) + Send + 'static,
) -> String {
    rig.watch(number).await;
    try_invoice(rig, number, amount, change).await.unwrap().id
}

/// Makes an invoice for script `number`, which is watched.
pub async fn try_invoice(
    rig: &Rig,
    number: u32,
    amount: u64,
    change: impl Fn(&mut NewInvoice) + Send + 'static,
) -> Result<Invoice, StoreError> {
    let at = (rig.key, rig.script(number));
    let make = move |tx: &mut creditd::store::WriteTx<'_>| {
        let now = tx.now_ms();
        let mut new = new_invoice(tx, at.clone(), "shop", amount, now)?;
        change(&mut new);
        tx.create_invoice(&new)
    };
    rig.store().write(make).await
}

pub fn read(rig: &Rig, id: &str) -> Invoice {
    rig.read(|tx| tx.invoice(id)).unwrap()
}

/// As text: amount state, time flag, life, paid, pending, strays.
pub fn told(rig: &Rig, id: &str) -> String {
    let status = read(rig, id).status;
    let (amount, time, life) = (status.amount.word(), status.time.word(), status.life.word());
    format!(
        "{amount} {time} {life} {} {} {}",
        status.paid, status.pending, status.strays
    )
}

/// The types of an invoice's events, in order, without their common beginning.
pub fn events(rig: &Rig, id: &str) -> Vec<String> {
    let sql = format!("SELECT substr(type, 9) FROM events WHERE subject = '{id}' ORDER BY sequence");
    rig.tables.rows(&sql, |row| row.get(0).unwrap())
}
