//! What operators decide: hold, release, rescan, accept a reorg. Each is dry unless `--apply`, says what it
//! would do, keeps its reason in the audit, and given twice acts once.

use super::args::{AcceptReorg, DepositRepair, Repair, Rescan};
use super::deposits;
use super::ids as ids_typed;
use super::once::Opened;
use super::open::{self, Chains};
use super::out::Out;
use super::{Outcome, Problem};
use crate::address::EvmAddress;
use crate::check::running::{Running, START, running};
use crate::config::{ChainConfig, Config};
use crate::rules::ids;
use crate::rules::state::State;
use crate::store::{Backfill, ChainKey, Deposit};
use crate::telemetry::counted;
use serde::Serialize;

/// What a repair did, or would do.
#[derive(Serialize)]
struct RepairJson {
    action: &'static str,
    /// `done`, `dry` or `nothing`.
    outcome: &'static str,
    reason: String,
    text: String,
    deposits: Vec<deposits::DepositJson>,
    /// For what the daemon does: whether one runs.
    is_daemon_running: Option<bool>,
}

/// A repair that was asked for.
struct Asked<'a> {
    action: &'static str,
    repair: &'a Repair,
    text: String,
    /// Of what only a daemon does: who runs.
    running: Option<Running>,
}

/// Holds a deposit.
pub(super) fn hold(out: &mut Out, config: &Config, args: &DepositRepair) -> anyhow::Result<Outcome> {
    let (_, deposit) = find(config, &args.id)?;
    let id = &deposit.id;
    let text = match (&deposit.held_reason, deposit.state) {
        (Some(_), _) => return nothing(out, "hold", &args.repair, format!("{id} is held already")),
        (None, Some(State::Credited)) => format!("hold {id} and reverse its credit"),
        (None, _) => format!("hold {id}: it will not be credited until it is released"),
    };
    let asked = Asked {
        action: "hold",
        repair: &args.repair,
        text,
        running: None,
    };
    let hold = || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| tx.hold(id, &args.repair.reason))?)
    };
    act_and_show(out, asked, hold, || one(config, id))
}

/// Releases a held deposit.
pub(super) fn release(out: &mut Out, config: &Config, args: &DepositRepair) -> anyhow::Result<Outcome> {
    let (chains, deposit) = find(config, &args.id)?;
    let id = &deposit.id;
    if deposit.held_reason.is_none() {
        return nothing(out, "release", &args.repair, format!("{id} is not held"));
    }
    let standing = deposits::standing(&chains, &deposit);
    if deposit.state != Some(State::Confirming) {
        let text =
            format!("{id} cannot be released: its payment is in no block of the best chain ({standing})");
        return Err(Problem::found(text, "wait for a block that holds it, then release it").into());
    }
    let text = format!("release {id}: the daemon credits it when it is due");
    let asked = Asked {
        action: "release",
        repair: &args.repair,
        text,
        running: Some(running(config)),
    };
    let release = || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| tx.release(id, &args.repair.reason))?)
    };
    act_and_show(out, asked, release, || one(config, id))
}

/// Asks for old blocks to be read again.
pub(super) fn rescan(out: &mut Out, config: &Config, args: &Rescan) -> anyhow::Result<Outcome> {
    let repair = &args.repair;
    let chain = open::chosen(config, &args.chain)?;
    let from = match (args.cancel, args.from) {
        (Some(id), _) => return cancel_rescan(out, config, chain, id, repair),
        (None, from) => from.unwrap_or_default(),
    };
    let backfill = read_backfill(chain, args.backfill.as_deref())?;
    let (key, lowered) = {
        let database = open::reader(config)?;
        let key = known_chain(&database, chain)?;
        check_rescan(&database, key, from, &backfill)?;
        (key, database.read(|tx| tx.backfill_count(key, &backfill, from))?)
    };
    let noun = match (&backfill, chain) {
        (Backfill::Token(_), _) => ["token", "tokens"],
        (Backfill::All, ChainConfig::Evm(_)) => ["address or token", "addresses and tokens"],
        (Backfill::Nothing | Backfill::Script(_) | Backfill::All, _) => ["address", "addresses"],
    };
    let rules = match (lowered, repair.apply) {
        (0, _) => String::new(),
        (1, false) => format!("; 1 {} would count from there", noun[0]),
        (1, true) => format!("; 1 {} counts from there", noun[0]),
        (more, false) => format!("; {more} {} would count from there", noun[1]),
        (more, true) => format!("; {more} {} count from there", noun[1]),
    };
    let text = format!("read {} again from height {from}{rules}", chain.alias());
    let asked = Asked {
        action: "rescan",
        repair,
        text,
        running: Some(running(config)),
    };
    let ask = || {
        let mut database = open::writer(config)?;
        let is_new = database.write(open::now_ms(), |tx| {
            let known = tx.rescans(key)?;
            let asked = tx.ask_rescan(key, from, &backfill, &repair.reason)?;
            Ok(known.iter().all(|known| known.id != asked.id))
        })?;
        Ok(is_new || lowered > 0)
    };
    act_and_show(out, asked, ask, || Ok(Vec::new()))
}

/// Ends a rescan that runs.
fn cancel_rescan(
    out: &mut Out,
    config: &Config,
    chain: ChainConfig<'_>,
    id: i64,
    repair: &Repair,
) -> anyhow::Result<Outcome> {
    let (key, known) = {
        let database = open::reader(config)?;
        let key = known_chain(&database, chain)?;
        (key, database.read(|tx| tx.rescans(key))?)
    };
    let Some(rescan) = known.into_iter().find(|rescan| rescan.id == id) else {
        let next = "`creditd chain status` shows those that run";
        return Err(Problem::found(format!("{} has no rescan {id}", chain.alias()), next).into());
    };
    if rescan.state != "running" {
        let text = format!("rescan {id} is {} already", rescan.state);
        return nothing(out, "rescan", repair, text);
    }
    let (from, applied_to) = (rescan.from_height, rescan.applied_to);
    let text = format!(
        "end rescan {id} of {} from height {from}; what it has applied below {applied_to} stays",
        chain.alias()
    );
    act(out, "rescan", repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| tx.cancel_rescan(key, id, &repair.reason))?)
    })
}

/// What would be refused with `--apply` is refused without it too.
fn check_rescan(database: &Opened, chain: ChainKey, from: u64, backfill: &Backfill) -> anyhow::Result<()> {
    let (row, is_watched) = database.read(|tx| {
        let is_watched = match backfill {
            Backfill::Script(script) => tx.address(chain, script)?.is_some(),
            Backfill::Token(contract) => tx.is_listed(chain, contract)?,
            Backfill::Nothing | Backfill::All => true,
        };
        Ok((tx.chain_by_key(chain)?, is_watched))
    })?;
    let alias = &row.alias;
    let (problem, next) = match row.cursor {
        None => (
            format!("{alias} has not been followed yet: there is nothing to rescan"),
            "`creditd run` follows it".to_owned(),
        ),
        Some(tip) if from > tip.height => (
            format!("height {from} is above the tip of {alias}: it is read anyway"),
            format!("--from at or below {}", tip.height),
        ),
        Some(_) if !is_watched && matches!(backfill, Backfill::Token(_)) => (
            "this token is not listed yet".to_owned(),
            "restart the daemon: it lists what the config names".to_owned(),
        ),
        Some(_) if !is_watched => (
            "this address is not watched".to_owned(),
            "`creditd watch add` it first".to_owned(),
        ),
        Some(_) => return Ok(()),
    };
    Err(Problem::found(problem, next).into())
}

/// What was typed: an address, or a token of the config by its contract or symbol.
fn read_backfill(chain: ChainConfig<'_>, backfill: Option<&str>) -> anyhow::Result<Backfill> {
    let text = match backfill {
        None => return Ok(Backfill::Nothing),
        Some("all") => return Ok(Backfill::All),
        Some(text) => text,
    };
    let typed = EvmAddress::parse(text).ok();
    let token = chain.assets().into_iter().find_map(|asset| {
        let contract = asset.contract?;
        let is_meant = typed == Some(contract) || asset.symbol.eq_ignore_ascii_case(text);
        is_meant.then_some(contract)
    });
    match token {
        Some(contract) => Ok(Backfill::Token(contract.0)),
        None => Ok(open::script(chain, text).map(Backfill::Script)?),
    }
}

/// Accepts a reorg that is deeper than the window.
pub(super) fn accept_reorg(out: &mut Out, config: &Config, args: &AcceptReorg) -> anyhow::Result<Outcome> {
    let (fork, repair) = (args.fork, &args.repair);
    let chain = open::chosen(config, &args.chain)?;
    let (key, hash, waiting) = {
        let database = open::reader(config)?;
        let key = known_chain(&database, chain)?;
        database.read(|tx| {
            let point = tx.reanchor_point(key, fork)?;
            let waiting = tx.asked_reanchor(key)?.map(|asked| asked.fork_height);
            Ok((key, point.header.hash, waiting))
        })?
    };
    let shown = above(config, key, fork)?;
    let credited = shown
        .iter()
        .filter(|deposit| deposit.state == State::Credited.word())
        .count();
    let instead = match waiting {
        Some(height) if height != fork => format!(" instead of block {height}, which waits"),
        Some(_) | None => String::new(),
    };
    let question = match chain {
        ChainConfig::Bitcoin(_) => format!("getblockhash {fork}"),
        ChainConfig::Evm(_) => format!("eth_getBlockByNumber {fork:#x}"),
    };
    let text = format!(
        "take {} back to block {fork} ({}){instead} once the node is on it (its `{question}` must say the \
         same): {} then out of a block, {credited} of them credited and reversed unless the new branch holds \
         them",
        chain.alias(),
        chain.chain().print(hash),
        counted(shown.len() as u64, "deposit")
    );
    let asked = Asked {
        action: "accept-reorg",
        repair,
        text,
        running: Some(running(config)),
    };
    let ask = || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| {
            let is_new = tx
                .asked_reanchor(key)?
                .is_none_or(|asked| asked.fork_height != fork);
            tx.ask_reanchor(key, fork, &repair.reason)?;
            Ok(is_new)
        })?)
    };
    act_and_show(out, asked, ask, || above(config, key, fork))
}

/// The deposits in blocks above a height, as they stand now.
fn above(config: &Config, key: ChainKey, height: u64) -> anyhow::Result<Vec<deposits::DepositJson>> {
    let database = open::reader(config)?;
    Ok(database.read(|tx| {
        let chains = Chains::read(tx)?;
        let above = tx.deposits_above(key, height)?;
        let shown = above.iter().map(|deposit| deposits::json(&chains, deposit));
        Ok(shown.collect())
    })?)
}

/// A deposit, as it stands now.
fn one(config: &Config, id: &str) -> anyhow::Result<Vec<deposits::DepositJson>> {
    let database = open::reader(config)?;
    Ok(database.read(|tx| {
        let chains = Chains::read(tx)?;
        let found = tx.deposit(id)?;
        let shown = found.iter().map(|deposit| deposits::json(&chains, deposit));
        Ok(shown.collect())
    })?)
}

fn known_chain(database: &Opened, chain: ChainConfig<'_>) -> anyhow::Result<ChainKey> {
    let row = database.read(|tx| tx.chain(chain.chain()))?;
    Ok(row.ok_or_else(|| open::never_followed(chain.alias()))?.key)
}

/// A deposit by its id or by its outpoint.
fn find(config: &Config, text: &str) -> anyhow::Result<(Chains, Deposit)> {
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let ids: Vec<String> = match open::outpoint(text) {
        Some(outpoint) => chains
            .ids()
            .map(|chain| ids::deposit_id(chain, &outpoint))
            .collect(),
        None => vec![ids_typed::whole(&database, text)?],
    };
    let mut found = Vec::new();
    for id in ids {
        found.extend(database.read(|tx| tx.deposit(&id))?);
    }
    match (found.pop(), found.is_empty()) {
        (Some(deposit), true) => Ok((chains, deposit)),
        (Some(_), false) => {
            let next = "give the deposit's id, which `creditd tx TXID` shows";
            Err(Problem::found(format!("{text} is on several chains"), next).into())
        }
        (None, _) => {
            let next = "`creditd deposits list` and `creditd tx TXID` show ids";
            Err(Problem::found(format!("no deposit {text}"), next).into())
        }
    }
}

pub(super) fn nothing(
    out: &mut Out,
    action: &'static str,
    repair: &Repair,
    text: String,
) -> anyhow::Result<Outcome> {
    let asked = Asked {
        action,
        repair,
        text,
        running: None,
    };
    answer(out, asked, "nothing", Vec::new())
}

/// Acts or says what it would do. `work` is false when somebody else was faster and nothing was left to do.
pub(super) fn act(
    out: &mut Out,
    action: &'static str,
    repair: &Repair,
    text: String,
    deposits: Vec<deposits::DepositJson>,
    work: impl FnOnce() -> anyhow::Result<bool>,
) -> anyhow::Result<Outcome> {
    let asked = Asked {
        action,
        repair,
        text,
        running: None,
    };
    act_and_show(out, asked, work, || Ok(deposits))
}

/// The same; the deposits are read when it is done, so that they are shown as they are then.
fn act_and_show(
    out: &mut Out,
    asked: Asked<'_>,
    work: impl FnOnce() -> anyhow::Result<bool>,
    deposits: impl FnOnce() -> anyhow::Result<Vec<deposits::DepositJson>>,
) -> anyhow::Result<Outcome> {
    let mut asked = asked;
    let outcome = match asked.repair.apply {
        false => "dry",
        true if work()? => "done",
        true => {
            asked.text = format!("done or asked for already: {}", asked.text);
            "nothing"
        }
    };
    answer(out, asked, outcome, deposits()?)
}

fn answer(
    out: &mut Out,
    asked: Asked<'_>,
    outcome: &'static str,
    deposits: Vec<deposits::DepositJson>,
) -> anyhow::Result<Outcome> {
    let Asked {
        action,
        repair,
        text,
        running,
    } = asked;
    let is_daemon_running = running.as_ref().and_then(Running::is_running);
    if out.json {
        let reason = repair.reason.clone();
        return out.json(&RepairJson {
            action,
            outcome,
            reason,
            text,
            deposits,
            is_daemon_running,
        });
    }
    match outcome {
        "dry" => out.line(format!("would {text}"))?,
        "done" => out.line(format!("done: {text}"))?,
        _ => out.line(format!("nothing to do: {text}"))?,
    }
    for deposit in &deposits {
        let (amount, symbol, merchant) = (&deposit.amount, &deposit.symbol, &deposit.merchant);
        out.line(format!(
            "  {} {amount} {symbol} for {merchant}: {}",
            deposit.id, deposit.standing
        ))?;
    }
    if outcome == "dry" {
        out.line("nothing was changed; the same with --apply does it")?;
    }
    if is_daemon_running == Some(false) && repair.apply {
        out.line(format!(
            "no daemon runs on this database, and nothing happens until one does: {START}"
        ))?;
    }
    out.done()
}
