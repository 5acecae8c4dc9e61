//! `credits` and `balances`.

use super::args::Listing;
use super::open::{self, Chains};
use super::out::Out;
use super::table::{Align, Table};
use super::watch_args::Balances;
use super::{Outcome, Shapes};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::rules::Amount;
use crate::store::report::{Balance, CreditRow, Listed};
use serde::Serialize;

#[derive(Serialize)]
struct CreditJson {
    id: String,
    chain: String,
    txid: String,
    vout: u64,
    /// EVM: the same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    /// `null` where another provider told of the payment.
    address: Option<String>,
    merchant: String,
    reference: String,
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    net: String,
    net_base: String,
    last_entry: String,
    last_entry_at: String,
    /// Why it was reversed; empty if it is not.
    last_reason: String,
    entries: u64,
    block_height: Option<u64>,
    /// The webhook by which another provider told of it.
    inbox: Option<String>,
    created_at: String,
}

/// Lists credits, newest first.
pub(super) fn credits(out: &mut Out, config: &Config, listing: &Listing) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let filter = super::filter(config, &database, &chains, listing)?;
    let read = |page| database.read(|tx| tx.list_credits(&filter, page));
    let shown = |rows: Vec<Listed<CreditRow>>| {
        rows.into_iter()
            .map(|listed| credit_json(&chains, listed))
            .collect()
    };
    let shapes = Shapes {
        name: "credits",
        empty: "no credits",
        table: credits_table,
        csv: credits_csv,
    };
    super::list(out, listing, &shapes, read, shown)
}

fn credits_table(credits: Vec<CreditJson>) -> Table {
    let mut table = Table::new(&[
        ("created", Align::Left),
        ("merchant", Align::Left),
        ("amount", Align::Right),
        ("net", Align::Right),
        ("state", Align::Left),
        ("asset", Align::Left),
        ("reference", Align::Left),
        ("block", Align::Right),
        ("payment", Align::Left),
        ("credit", Align::Left),
    ]);
    for credit in credits {
        let state = match credit.last_entry.as_str() {
            "reversal" => format!("reversed: {}", credit.last_reason),
            _ => "credited".to_owned(),
        };
        table.row(vec![
            credit.created_at,
            credit.merchant,
            credit.amount,
            credit.net,
            state,
            format!("{} ({})", credit.symbol, credit.chain),
            credit.reference,
            credit
                .block_height
                .map_or_else(|| "-".to_owned(), |height| height.to_string()),
            format!("{}:{}", credit.txid, credit.vout),
            credit.id,
        ]);
    }
    table
}

fn credits_csv(credits: Vec<CreditJson>) -> Table {
    let columns = [
        "credit",
        "created_at",
        "merchant",
        "reference",
        "chain",
        "asset",
        "symbol",
        "amount",
        "amount_base",
        "net",
        "net_base",
        "txid",
        "vout",
        "address",
        "block_height",
        "entries",
        "last_entry",
        "last_entry_at",
        "last_reason",
        "inbox",
    ];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for credit in credits {
        table.row(vec![
            credit.id,
            credit.created_at,
            credit.merchant,
            credit.reference,
            credit.chain,
            credit.asset,
            credit.symbol,
            credit.amount,
            credit.amount_base,
            credit.net,
            credit.net_base,
            credit.txid,
            credit.vout.to_string(),
            credit.address.unwrap_or_default(),
            credit
                .block_height
                .map(|height| height.to_string())
                .unwrap_or_default(),
            credit.entries.to_string(),
            credit.last_entry,
            credit.last_entry_at,
            credit.last_reason,
            credit.inbox.unwrap_or_default(),
        ]);
    }
    table
}

fn credit_json(chains: &Chains, listed: Listed<CreditRow>) -> CreditJson {
    let row = listed.row;
    CreditJson {
        chain: chains.alias(row.chain).to_owned(),
        txid: chains.print(row.chain, row.outpoint.txid),
        vout: row.outpoint.vout,
        position: chains.position(row.chain, row.outpoint.vout),
        address: row.script.map(|script| chains.address(row.chain, &script)),
        amount: row.amount.to_units_string(row.decimals),
        amount_base: row.amount.to_string(),
        net: row.net.to_units_string(row.decimals),
        net_base: row.net.to_string(),
        last_entry: row.last_kind,
        last_reason: row.last_reason,
        last_entry_at: rfc3339(row.last_at),
        entries: row.entries,
        block_height: row.block_height,
        inbox: row.inbox,
        created_at: rfc3339(row.created_at),
        id: row.id,
        merchant: row.merchant,
        reference: row.reference,
        asset: row.asset,
        symbol: row.symbol,
    }
}

#[derive(Serialize)]
struct BalanceJson {
    merchant: String,
    chain: String,
    asset: String,
    symbol: String,
    credited: String,
    credited_base: String,
    confirming: String,
    confirming_base: String,
    held: String,
    held_base: String,
    credits: u64,
    reversed: u64,
}

/// What each merchant has been credited.
pub(super) fn balances(out: &mut Out, config: &Config, args: &Balances) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let merchant = args.merchant.as_deref();
    let (chains, balances) = database.read(|tx| Ok((Chains::read(tx)?, tx.balances(merchant)?)))?;
    let assets = args
        .asset
        .as_ref()
        .map(|typed| chains.assets(&database, None, typed));
    let assets = assets.transpose()?;
    let is_meant = |balance: &Balance| {
        assets
            .as_ref()
            .is_none_or(|assets| assets.contains(&balance.asset_key))
    };
    let balances: Vec<BalanceJson> = balances
        .into_iter()
        .filter(is_meant)
        .map(|balance| balance_json(&chains, balance))
        .collect();
    if out.json {
        return out.list("balances", &balances, None);
    }
    if args.csv {
        return out.csv(&balances_csv(balances), true);
    }
    let mut table = Table::new(&[
        ("merchant", Align::Left),
        ("asset", Align::Left),
        ("credited", Align::Right),
        ("confirming", Align::Right),
        ("held", Align::Right),
        ("credits", Align::Right),
        ("reversed", Align::Right),
    ]);
    for balance in balances {
        table.row(vec![
            balance.merchant,
            format!("{} ({})", balance.symbol, balance.chain),
            balance.credited,
            balance.confirming,
            balance.held,
            balance.credits.to_string(),
            balance.reversed.to_string(),
        ]);
    }
    out.table(&table, "nothing was credited yet", None)
}

fn balances_csv(balances: Vec<BalanceJson>) -> Table {
    let columns = [
        "merchant",
        "chain",
        "asset",
        "symbol",
        "credited",
        "credited_base",
        "confirming",
        "confirming_base",
        "held",
        "held_base",
        "credits",
        "reversed",
    ];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for balance in balances {
        table.row(vec![
            balance.merchant,
            balance.chain,
            balance.asset,
            balance.symbol,
            balance.credited,
            balance.credited_base,
            balance.confirming,
            balance.confirming_base,
            balance.held,
            balance.held_base,
            balance.credits.to_string(),
            balance.reversed.to_string(),
        ]);
    }
    table
}

fn balance_json(chains: &Chains, balance: Balance) -> BalanceJson {
    let units = |amount: Amount| amount.to_units_string(balance.decimals);
    BalanceJson {
        chain: chains.alias(balance.chain).to_owned(),
        credited: units(balance.credited),
        credited_base: balance.credited.to_string(),
        confirming: units(balance.confirming),
        confirming_base: balance.confirming.to_string(),
        held: units(balance.held),
        held_base: balance.held.to_string(),
        credits: balance.credits,
        reversed: balance.reversed,
        merchant: balance.merchant,
        asset: balance.asset,
        symbol: balance.symbol,
    }
}
