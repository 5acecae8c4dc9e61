//! `addresses`: the pools that addresses are handed out of, and what their names stand for.

use super::address_args::Repin;
use super::open;
use super::out::Out;
use super::repair;
use super::table::{Align, Table};
use super::{Outcome, Problem};
use crate::check::{self, pools::Pool};
use crate::config::{AddressSource, Config, SourceFrom};
use crate::daemon::new_chains;
use crate::pools;
use crate::store::SourceRow;
use serde::Serialize;

#[derive(Serialize)]
struct PoolJson {
    name: String,
    /// The chain's alias, or `evm`.
    chain: String,
    merchant: Option<String>,
    state: &'static str,
    trouble: Option<String>,
    kind: Option<&'static str>,
    pool: u64,
    free: u64,
    taken: u64,
    skipped: u64,
    next_index: u64,
    pin: Option<String>,
}

/// Shows what the config names and what the database has under names that it does not.
pub(super) fn status(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let rows = open::reader(config)?.read(|tx| tx.address_sources())?;
    let pools = check::pools::pools(config, rows);
    let has_bad = pools.iter().any(|pool| pool.state.is_bad());
    let all: Vec<PoolJson> = pools.into_iter().map(|pool| json(config, pool)).collect();
    if out.json {
        out.list("pools", &all, None)?;
    } else {
        out.table(
            &table(&all),
            "the config names no [[addresses]] to hand out",
            None,
        )?;
        for pool in &all {
            if let Some(trouble) = &pool.trouble {
                out.line(format!("{}: {trouble}", pool.name))?;
            }
        }
        out.done()?;
    }
    Ok(if has_bad { Outcome::Found } else { Outcome::Done })
}

fn json(config: &Config, pool: Pool) -> PoolJson {
    let row = pool.row.as_ref();
    let count = |of: fn(&SourceRow) -> u64| row.map_or(0, of);
    PoolJson {
        chain: scope_words(config, &pool.scope),
        state: pool.state.word(),
        kind: row.map(|row| row.kind.word()),
        pool: pool.size,
        free: count(|row| row.free),
        taken: count(|row| row.taken),
        skipped: count(|row| row.skipped),
        next_index: count(|row| row.next_index),
        pin: row.map(|row| const_hex::encode(row.pin)),
        name: pool.name,
        merchant: pool.merchant,
        trouble: pool.trouble,
    }
}

/// A scope as the config names it.
fn scope_words(config: &Config, scope: &str) -> String {
    let named = config.bitcoin.iter().find(|chain| chain.chain.as_str() == scope);
    named.map_or_else(|| scope.to_owned(), |chain| chain.alias.clone())
}

fn table(pools: &[PoolJson]) -> Table {
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("chain", Align::Left),
        ("merchant", Align::Left),
        ("state", Align::Left),
        ("ready", Align::Right),
        ("of", Align::Right),
        ("handed out", Align::Right),
        ("left out", Align::Right),
    ]);
    for pool in pools {
        table.row(vec![
            pool.name.clone(),
            pool.chain.clone(),
            pool.merchant.clone().unwrap_or_else(|| "any".to_owned()),
            pool.state.to_owned(),
            pool.free.to_string(),
            pool.pool.to_string(),
            pool.taken.to_string(),
            pool.skipped.to_string(),
        ]);
    }
    table
}

/// Pins a name of the config to what the config has under it.
pub(super) fn repin(out: &mut Out, config: &Config, args: &Repin) -> anyhow::Result<Outcome> {
    let named = config.addresses.iter().find(|source| source.name == args.name);
    let source = named.ok_or_else(|| {
        let next = "`creditd addresses status` shows the names of the config";
        Problem::found(
            format!("the config has no [[addresses]] named {:?}", args.name),
            next,
        )
    })?;
    let pin = source.pin()?;
    let database = open::reader(config)?;
    let rows = database.read(|tx| tx.address_sources())?;
    drop(database);
    let row = rows.iter().find(|row| row.is_current && row.name == args.name);
    let text = match row {
        Some(row) if row.pin == pin && row.scope == source.scope.word() => {
            let text = format!("{} stands for the addresses of the config already", args.name);
            return repair::nothing(out, "addresses-repin", &args.repair, text);
        }
        Some(row) => format!(
            "let {} stand for other addresses: {} of those before are handed out and stay watched, {} that \
             are ready are not handed out any more",
            args.name, row.taken, row.free
        ),
        None => format!("pin {} to what the config has under it", args.name),
    };
    let first = first_addresses(source);
    let text = match first.is_empty() {
        true => text,
        false => format!("{text}; the new ones begin with {first}"),
    };
    repair::act(out, "addresses-repin", &args.repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        let chains = new_chains(config);
        Ok(database.write(open::now_ms(), |tx| {
            let new = pools::pinned(tx, source, pin, &chains)?;
            tx.repin_source(&new, &args.repair.reason)
        })?)
    })
}

/// By which people recognise their wallet.
fn first_addresses(source: &AddressSource) -> String {
    let scripts = match &source.from {
        SourceFrom::Derived(derivation) => derivation.scripts(0, 2),
        SourceFrom::List(_) => source.list().unwrap_or_default(),
    };
    let shown = scripts
        .iter()
        .take(2)
        .filter_map(|script| source.scope.address(script));
    shown.collect::<Vec<_>>().join(", ")
}
