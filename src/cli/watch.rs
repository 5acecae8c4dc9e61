//! `watch add`, `watch own`, `watch list`.

use super::args::{ChainArg, Page};
use super::open::{self, Chains};
use super::out::Out;
use super::table::{Align, Table};
use super::watch_args::Watched;
use super::{Outcome, Problem};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::report::{AddressRow, Filter, Listed};
use crate::store::{AddressAdded, AddressKind, NewAddress, StoreError};
use serde::Serialize;

#[derive(Serialize)]
struct AddressJson {
    chain: String,
    address: String,
    kind: &'static str,
    merchant: String,
    reference: String,
    from_height: Option<u64>,
    added_at: String,
}

#[derive(Serialize)]
struct AddedJson<'a> {
    outcome: &'a str,
    chain: &'a str,
    address: String,
    kind: &'static str,
    merchant: &'a str,
    /// The one that stands, which is not what was typed if the address was known.
    reference: String,
    from_height: Option<u64>,
    /// Nothing was ever entered for this merchant: its name may be misspelt.
    is_merchant_new: bool,
}

/// Adds one address.
pub(super) fn add(
    out: &mut Out,
    config: &Config,
    watched: &Watched,
    kind: AddressKind,
) -> anyhow::Result<Outcome> {
    let chain = open::chosen(config, &watched.chain)?;
    let script = open::script(chain, &watched.address)?;
    let rule = NewAddress {
        script: script.clone(),
        kind,
        merchant: &watched.merchant,
        internal: config.internal_rule(&watched.merchant).word(),
        reference: &watched.reference,
    };
    let mut database = open::maker(config)?;
    let (outcome, row, is_merchant_new) = database.write(open::now_ms(), |tx| {
        let known = open::known_or_made(tx, chain)?;
        let is_merchant_new = !tx.has_merchant(rule.merchant)?;
        let outcome = tx.add_addresses(known, std::slice::from_ref(&rule))?.pop();
        Ok((outcome, tx.address(known, &script)?, is_merchant_new))
    })?;
    let address = chain.address(&script).unwrap_or_else(|| watched.address.clone());
    let word = match outcome {
        Some(AddressAdded::Added) => "added",
        Some(AddressAdded::Known) => "known",
        Some(AddressAdded::Conflict(conflict)) => {
            let next = "give this merchant another address; `creditd watch list` shows the rules";
            return Err(Problem::found(format!("{address} {conflict}"), next).into());
        }
        None => unreachable!("one rule has one outcome"),
    };
    let (from_height, reference) = row.map_or_else(
        || (None, watched.reference.clone()),
        |row| (row.from_height, row.reference),
    );
    if out.json {
        return out.json(&AddedJson {
            outcome: word,
            chain: chain.alias(),
            address,
            kind: kind.word(),
            merchant: &watched.merchant,
            reference,
            from_height,
            is_merchant_new,
        });
    }
    let from = match from_height {
        Some(height) => format!("from height {height}"),
        None => "from the first block that is read".to_owned(),
    };
    let what = match (kind, word) {
        (AddressKind::Watch, "added") => "watching",
        (AddressKind::Watch, _) => "already watching",
        (AddressKind::Own, "added") => "declared own:",
        (AddressKind::Own, _) => "declared own already:",
    };
    let (alias, merchant) = (chain.alias(), &watched.merchant);
    out.line(format!(
        "{what} {address} for merchant {merchant} on {alias} {from}"
    ))?;
    if reference != watched.reference && !watched.reference.is_empty() {
        out.line(kept_reference(&reference, &watched.reference))?;
    }
    if is_merchant_new {
        out.line(format!("merchant {merchant} is new"))?;
    }
    out.done()
}

/// Says that an address that is known keeps its reference.
pub(super) fn kept_reference(kept: &str, given: &str) -> String {
    let kept = match kept {
        "" => "it stays without a reference".to_owned(),
        kept => format!("its reference stays {kept:?}"),
    };
    format!("known already: {kept}, not {given:?}")
}

/// Lists watch rules in the order in which they were added.
pub(super) fn list(
    out: &mut Out,
    config: &Config,
    chain: &ChainArg,
    page: &Page,
    filter: Filter,
) -> anyhow::Result<Outcome> {
    let (chains, (rows, next)) = read(config, chain, page, filter)?;
    if out.json {
        let addresses: Vec<AddressJson> = rows.into_iter().map(|listed| json(&chains, listed)).collect();
        return out.list("addresses", &addresses, next);
    }
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("address", Align::Left),
        ("kind", Align::Left),
        ("merchant", Align::Left),
        ("reference", Align::Left),
        ("from", Align::Right),
        ("added", Align::Left),
    ]);
    for Listed { row, .. } in rows {
        table.row(vec![
            chains.alias(row.chain).to_owned(),
            chains.address(row.chain, &row.script),
            row.kind.word().to_owned(),
            row.merchant,
            row.reference,
            row.from_height
                .map_or_else(|| "start".to_owned(), |height| height.to_string()),
            rfc3339(row.added_at),
        ]);
    }
    out.table(&table, "no addresses", next)
}

/// Those of a page, and where the next one begins.
type Rows = (Vec<Listed<AddressRow>>, Option<i64>);

fn read(config: &Config, chain: &ChainArg, page: &Page, filter: Filter) -> anyhow::Result<(Chains, Rows)> {
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let filter = Filter {
        chain: chains.filter(config, chain)?,
        ..filter
    };
    let rows: Result<_, StoreError> = super::read_page(open::page(page), |page| {
        database.read(|tx| tx.list_addresses(&filter, page))
    });
    Ok((chains, rows?))
}

fn json(chains: &Chains, listed: Listed<AddressRow>) -> AddressJson {
    let row = listed.row;
    AddressJson {
        chain: chains.alias(row.chain).to_owned(),
        address: chains.address(row.chain, &row.script),
        kind: row.kind.word(),
        merchant: row.merchant,
        reference: row.reference,
        from_height: row.from_height,
        added_at: rfc3339(row.added_at),
    }
}
