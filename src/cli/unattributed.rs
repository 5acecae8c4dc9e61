//! `unattributed`: coin that came to watched addresses and that nothing recorded explains.

use super::open::{self, Chains};
use super::out::Out;
use super::repair;
use super::table::{Align, Table};
use super::unattributed_args::{UnattributedClose, UnattributedList};
use super::{Outcome, Problem, Shapes};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::report::{Filter, Listed};
use crate::store::{ClosedAs, UnattributedRow};
use serde::Serialize;

#[derive(Serialize)]
struct UnattributedJson {
    id: String,
    chain: String,
    merchant: String,
    address: String,
    reference: String,
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    from_height: u64,
    to_height: u64,
    /// `open` or `closed`.
    state: &'static str,
    /// What was recorded of those blocks since it was found.
    recorded_since: String,
    recorded_since_base: String,
    /// True where that is as much as the amount.
    is_explained: bool,
    /// `outpoint` or `not_a_payment`.
    closed_as: Option<&'static str>,
    txid: Option<String>,
    vout: Option<u64>,
    reason: Option<String>,
    found_at: String,
    closed_at: Option<String>,
}

impl UnattributedJson {
    fn standing(&self) -> String {
        match (self.closed_as, &self.txid, self.vout) {
            (Some("outpoint"), Some(txid), Some(vout)) => format!("closed as {txid}:{vout}"),
            (Some(_), ..) => "closed: not a payment".to_owned(),
            (None, ..) if self.is_explained => "open: an output recorded since explains it".to_owned(),
            (None, ..) if self.recorded_since_base != "0" => {
                format!(
                    "open: outputs recorded since explain {} of it",
                    self.recorded_since
                )
            }
            (None, ..) => "open".to_owned(),
        }
    }
}

fn json(chains: &Chains, row: UnattributedRow) -> UnattributedJson {
    let (closed_as, outpoint) = match row.closed {
        Some(ClosedAs::Outpoint(outpoint)) => (Some("outpoint"), Some(outpoint)),
        Some(ClosedAs::NotAPayment) => (Some("not_a_payment"), None),
        None => (None, None),
    };
    UnattributedJson {
        chain: chains.alias(row.chain).to_owned(),
        address: chains.address(row.chain, &row.script),
        amount: row.amount.to_units_string(row.decimals),
        amount_base: row.amount.to_string(),
        from_height: row.from_height,
        to_height: row.to_height,
        state: if closed_as.is_some() { "closed" } else { "open" },
        recorded_since: row.recorded_since.to_units_string(row.decimals),
        recorded_since_base: row.recorded_since.to_string(),
        is_explained: closed_as.is_none() && row.is_explained(),
        closed_as,
        txid: outpoint.map(|outpoint| chains.print(row.chain, outpoint.txid)),
        vout: outpoint.map(|outpoint| outpoint.vout),
        found_at: rfc3339(row.found_at),
        closed_at: row.closed_at.map(rfc3339),
        id: row.id,
        merchant: row.merchant,
        reference: row.reference,
        asset: row.asset,
        symbol: row.symbol,
        reason: row.reason,
    }
}

/// Lists them, newest first.
pub(super) fn list(out: &mut Out, config: &Config, args: &UnattributedList) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let filter = Filter {
        chain: chains.filter(config, &args.chain)?,
        merchant: args.merchant.clone(),
        script: super::script(config, &args.chain, args.address.as_deref())?,
        ..Filter::default()
    };
    let read = |page| database.read(|tx| tx.list_unattributed(&filter, args.open, page));
    let shown = |rows: Vec<Listed<UnattributedRow>>| {
        rows.into_iter().map(|listed| json(&chains, listed.row)).collect()
    };
    let shapes = Shapes {
        name: "unattributed",
        empty: "no unattributed amounts",
        table,
        csv,
    };
    super::list_page(out, (&args.page, args.csv), &shapes, read, shown)
}

fn table(rows: Vec<UnattributedJson>) -> Table {
    let mut table = Table::new(&[
        ("found", Align::Left),
        ("chain", Align::Left),
        ("merchant", Align::Left),
        ("address", Align::Left),
        ("amount", Align::Right),
        ("asset", Align::Left),
        ("after block", Align::Right),
        ("up to block", Align::Right),
        ("state", Align::Left),
        ("id", Align::Left),
    ]);
    for row in rows {
        let standing = row.standing();
        table.row(vec![
            row.found_at,
            row.chain,
            row.merchant,
            row.address,
            row.amount,
            row.symbol,
            row.from_height.to_string(),
            row.to_height.to_string(),
            standing,
            row.id,
        ]);
    }
    table
}

fn csv(rows: Vec<UnattributedJson>) -> Table {
    let columns = [
        "unattributed",
        "found_at",
        "chain",
        "merchant",
        "address",
        "reference",
        "asset",
        "symbol",
        "amount",
        "amount_base",
        "from_height",
        "to_height",
        "state",
        "recorded_since",
        "recorded_since_base",
        "closed_as",
        "txid",
        "vout",
        "reason",
        "closed_at",
    ];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for row in rows {
        table.row(vec![
            row.id,
            row.found_at,
            row.chain,
            row.merchant,
            row.address,
            row.reference,
            row.asset,
            row.symbol,
            row.amount,
            row.amount_base,
            row.from_height.to_string(),
            row.to_height.to_string(),
            row.state.to_owned(),
            row.recorded_since,
            row.recorded_since_base,
            row.closed_as.unwrap_or_default().to_owned(),
            row.txid.unwrap_or_default(),
            row.vout.map(|vout| vout.to_string()).unwrap_or_default(),
            row.reason.unwrap_or_default(),
            row.closed_at.unwrap_or_default(),
        ]);
    }
    table
}

/// Closes one. Nobody is credited by it.
pub(super) fn close(
    out: &mut Out,
    config: &Config,
    id: &str,
    args: &UnattributedClose,
) -> anyhow::Result<Outcome> {
    let closed_as = match &args.outpoint {
        Some(text) => ClosedAs::Outpoint(open::outpoint(text).ok_or_else(|| {
            Problem::misuse(
                format!("{text:?} is no outpoint"),
                "give TXID:VOUT, as `creditd tx` shows it",
            )
        })?),
        None => ClosedAs::NotAPayment,
    };
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let row = database.read(|tx| tx.unattributed(id))?;
    let row = row.ok_or_else(|| {
        let next = "`creditd unattributed list` shows ids";
        Problem::found(format!("no unattributed amount {id}"), next)
    })?;
    let amount = format!("{} {}", row.amount.to_units_string(row.decimals), row.symbol);
    if row.closed == Some(closed_as) {
        let text = format!("{id} ({amount}) is closed so already");
        return repair::nothing(out, "unattributed-close", &args.repair, text);
    }
    if row.closed.is_some() {
        let next = "`creditd unattributed list` shows how; what is closed stays closed";
        return Err(Problem::found(format!("{id} is closed otherwise already"), next).into());
    }
    let how = match closed_as {
        ClosedAs::NotAPayment => "as not a payment".to_owned(),
        ClosedAs::Outpoint(outpoint) => {
            let is_known = database.read(|tx| tx.names_output_of(&row, &outpoint))?;
            let txid = chains.print(row.chain, outpoint.txid);
            let known = match is_known {
                true => "a recorded output to that address",
                false => "which creditd has not recorded and cannot check",
            };
            format!("as {txid}:{}, {known}", outpoint.vout)
        }
    };
    let text = format!("close {id} ({amount}) {how}; nobody is credited by it");
    drop(database);
    repair::act(out, "unattributed-close", &args.repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        let reason = &args.repair.reason;
        Ok(database.write(open::now_ms(), |tx| tx.close_unattributed(id, closed_as, reason))?)
    })
}
