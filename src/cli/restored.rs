//! `restored`: what was done about restored backups, what cannot be rebuilt, and declaring one that a start
//! cannot notice.

use super::args::Repair;
use super::open::{self, Chains};
use super::out::Out;
use super::repair;
use super::restored_args::Restored;
use super::{Outcome, Problem};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::report::{RestoreReport, ToldAnew};
use crate::store::{Declaration, Declared, NOBODY, RestoreState, RestoredChain, RestoredRange};
use crate::telemetry::counted;
use serde::Serialize;

/// What a chain cannot tell, and so is lost with the time since the backup.
const LOST: [&str; 7] = [
    "addresses, watched or own, entered by hand: enter them again, then `creditd rescan --backfill`",
    "holds and releases of deposits, and closings of unattributed amounts: decide again",
    "endpoints, rotated secrets and API keys: make them again",
    "invoices that were made, and cancellations: payments to such addresses are credited, without an invoice",
    "answers under idempotency keys: the same request again acts again",
    "what other services sent to the inbox: have them send it again",
    "credits that were told of, and whose payment left the chain before the catch-up: merchants compare with \
     GET /v1/credits",
];

#[derive(Serialize)]
struct AnswerJson {
    restores: Vec<RestoreJson>,
    /// What cannot be rebuilt; empty where nothing was restored.
    lost: Vec<&'static str>,
}

#[derive(Serialize)]
struct RestoreJson {
    generation: i64,
    noticed_by: String,
    reason: String,
    at: Option<String>,
    is_done: bool,
    chains: Vec<ChainJson>,
    addresses: Vec<RangeJson>,
}

#[derive(Serialize)]
struct ChainJson {
    chain: String,
    chain_id: String,
    state: &'static str,
    backup_height: Option<u64>,
    high_water: Option<u64>,
    tip_height: Option<u64>,
    tip_at: Option<String>,
    done_at: Option<String>,
    /// The span of heights whose time is lost.
    lost_from_height: Option<u64>,
    lost_to_height: Option<u64>,
    stated_above_height: Option<u64>,
    credits_stated: u64,
    invoices_stated: u64,
    waiting: u64,
}

#[derive(Serialize)]
struct RangeJson {
    pool: String,
    scope: String,
    pin: String,
    first_index: u64,
    last_index: u64,
    next_index: u64,
    state: String,
    trouble: Option<String>,
}

/// Reports, or declares.
pub(super) fn restored(out: &mut Out, config: &Config, args: &Restored) -> anyhow::Result<Outcome> {
    let Some(reason) = &args.reason else {
        return report(out, config);
    };
    let repair = Repair {
        reason: reason.clone(),
        apply: args.apply,
    };
    match &args.leave_out {
        Some(pool) => leave_out(out, config, pool, &repair),
        None => declare(out, config, args, &repair),
    }
}

fn report(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let (restores, chains) = database.read(|tx| Ok((tx.restores()?, Chains::read(tx)?)))?;
    let restores: Vec<RestoreJson> = restores.iter().map(|row| json(&chains, row)).collect();
    let is_under_way = restores.iter().any(|restore| !restore.is_done);
    if out.json {
        let lost = match restores.is_empty() {
            true => Vec::new(),
            false => LOST.to_vec(),
        };
        out.json(&AnswerJson { restores, lost })?;
    } else {
        print(out, &restores)?;
    }
    Ok(if is_under_way {
        Outcome::Found
    } else {
        Outcome::Done
    })
}

fn json(chains: &Chains, row: &RestoreReport) -> RestoreJson {
    let is_open = |chain: &RestoredChain| match chain.state {
        RestoreState::CatchingUp | RestoreState::Stating => true,
        RestoreState::Done | RestoreState::Superseded => false,
    };
    RestoreJson {
        generation: row.generation,
        noticed_by: row.actor.clone(),
        reason: row.reason.clone(),
        at: row.at.map(rfc3339),
        is_done: !row.chains.iter().any(|(chain, _)| is_open(chain)),
        chains: row
            .chains
            .iter()
            .map(|(chain, told)| chain_json(chains, chain, *told))
            .collect(),
        addresses: row.ranges.iter().map(range_json).collect(),
    }
}

fn chain_json(chains: &Chains, chain: &RestoredChain, told: ToldAnew) -> ChainJson {
    let tip = chain.tip.map(|(height, _)| height);
    let lost_to = chain.high_water.max(tip);
    let lost_from = chain.cursor.map_or(Some(0), |cursor| Some(cursor + 1));
    let is_any = lost_to.zip(lost_from).is_some_and(|(to, from)| from <= to);
    ChainJson {
        chain: chains.alias_of(&chain.caip),
        chain_id: chain.caip.clone(),
        state: chain.state.word(),
        backup_height: chain.cursor,
        high_water: chain.high_water,
        tip_height: tip,
        tip_at: chain.tip.map(|(_, at)| rfc3339(at)),
        done_at: chain.done_at.map(rfc3339),
        lost_from_height: lost_from.filter(|_| is_any),
        lost_to_height: lost_to.filter(|_| is_any),
        stated_above_height: chain.stated_above,
        credits_stated: told.credits,
        invoices_stated: told.invoices,
        waiting: told.waiting,
    }
}

fn range_json(range: &RestoredRange) -> RangeJson {
    RangeJson {
        pool: range.name(),
        scope: range.scope.clone(),
        pin: const_hex::encode(range.pin),
        first_index: range.first,
        last_index: range.end.saturating_sub(1),
        next_index: range.next,
        state: range.state.clone(),
        trouble: Some(range.trouble.clone()).filter(|trouble| !trouble.is_empty()),
    }
}

fn print(out: &mut Out, restores: &[RestoreJson]) -> anyhow::Result<()> {
    if restores.is_empty() {
        out.line("no backup was ever restored here, as far as this database knows")?;
        // A backup that was just put in place knows of nothing: the file beside it does, which a start reads.
        out.field(
            "next",
            "`creditd check` says whether the next start will notice one that was put in place since",
        )?;
        out.done()?;
        return Ok(());
    }
    for restore in restores {
        let at = restore.at.as_deref().unwrap_or("just now");
        let (generation, by, reason) = (restore.generation, &restore.noticed_by, &restore.reason);
        out.line(format!(
            "generation {generation}, noticed by the {by} {at}: {reason}"
        ))?;
        for chain in &restore.chains {
            print_chain(out, chain)?;
        }
        for range in &restore.addresses {
            let RangeJson {
                pool,
                first_index,
                last_index,
                state,
                ..
            } = range;
            let trouble = range
                .trouble
                .as_ref()
                .map_or_else(String::new, |trouble| format!(": {trouble}"));
            out.line(format!(
                "  addresses {first_index} to {last_index} of {pool} may have been handed out since, to be \
                 watched: {state}{trouble}"
            ))?;
        }
    }
    out.line("cannot be rebuilt, of the heights above:")?;
    for lost in LOST {
        out.line(format!("  {lost}"))?;
    }
    out.line(format!(
        "payments to addresses that nobody is known to own are credited to the merchant {NOBODY:?}"
    ))?;
    out.done()?;
    Ok(())
}

fn print_chain(out: &mut Out, chain: &ChainJson) -> anyhow::Result<()> {
    let from = chain
        .backup_height
        .map_or_else(|| "no block".to_owned(), |height| format!("height {height}"));
    let span = match (chain.lost_from_height, chain.lost_to_height) {
        (Some(from), Some(to)) => format!("; lost with heights {from} to {to}"),
        _ => String::new(),
    };
    let told = format!(
        "{} and {} told anew",
        counted(chain.credits_stated, "credit"),
        counted(chain.invoices_stated, "invoice")
    );
    out.line(format!(
        "  {}: {}, the backup was at {from}{span}; {told}",
        chain.chain, chain.state
    ))
}

fn declare(out: &mut Out, config: &Config, args: &Restored, repair: &Repair) -> anyhow::Result<Outcome> {
    let declaration = Declaration {
        reason: repair.reason.clone(),
        addresses: args.addresses,
        is_again: args.again,
    };
    let database = open::reader(config)?;
    let (status, sources, restores) =
        database.read(|tx| Ok((tx.chain_status()?, tx.address_sources()?, tx.restores()?)))?;
    drop(database);
    let is_open = |restore: &&RestoreReport| {
        restore
            .chains
            .iter()
            .any(|(chain, _)| matches!(chain.state, RestoreState::CatchingUp | RestoreState::Stating))
    };
    if let Some(open) = restores.iter().find(is_open) {
        let text = format!("the restore of generation {} is under way", open.generation);
        return repair::nothing(out, "restored", repair, text);
    }
    let at = |status: &crate::store::report::ChainStatus| {
        let height = status.chain.cursor.map_or(0, |tip| tip.height);
        format!("{} at height {height}", status.chain.alias)
    };
    let chains: Vec<String> = status.iter().map(at).collect();
    let of = |source: &crate::store::SourceRow| {
        let count = args.addresses.map_or(source.pool_size, u64::from);
        let noun = if count == 1 { "address" } else { "addresses" };
        format!("{count} {noun} of {}", source.name)
    };
    let pools: Vec<String> = sources.iter().map(of).collect();
    let pools = match pools.is_empty() {
        true => String::new(),
        false => format!("; up to {} more are left out and watched", pools.join(", ")),
    };
    let text = format!(
        "begin a generation after a restored backup: {}{pools}; no address is handed out before the tip, and \
         then each credit that may have been told of otherwise is told anew",
        chains.join(", ")
    );
    let mut before = None;
    let declared = || {
        let mut database = open::writer(config)?;
        match database.write(open::now_ms(), |tx| tx.declare_restore(&declaration))? {
            Declared::Began(_) => Ok(true),
            Declared::UnderWay(_) => Ok(false),
            Declared::Before(generation) => {
                before = Some(generation);
                Ok(false)
            }
        }
    };
    let outcome = repair::act(out, "restored", repair, text, Vec::new(), declared)?;
    match before {
        Some(generation) => Err(Problem::found(
            format!("a restore was declared here before, as generation {generation}, and is over"),
            "the same with --again, if another backup was put in place since",
        )
        .into()),
        None => Ok(outcome),
    }
}

fn leave_out(out: &mut Out, config: &Config, pool: &str, repair: &Repair) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let waiting = database.read(|tx| tx.waiting_ranges())?;
    drop(database);
    let Some(range) = waiting.into_iter().find(|range| range.name() == pool) else {
        let text = format!("no addresses of {pool} wait to be watched");
        return repair::nothing(out, "restored-leave-out", repair, text);
    };
    let text = format!(
        "go on without watching addresses {} to {} of {pool}: payments to them are not seen",
        range.next,
        range.end.saturating_sub(1)
    );
    repair::act(out, "restored-leave-out", repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| tx.leave_out_range(&range, &repair.reason))?)
    })
}
