//! `deposits list`, and in words where a deposit stands.

use super::args::{Listing, StateArg};
use super::open::{self, Chains};
use super::out::Out;
use super::table::{Align, Table};
use super::{Outcome, Shapes};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::rules::Script;
use crate::rules::policy::{self, Requirement};
use crate::rules::state::State;
use crate::store::Deposit;
use crate::store::report::{Filter, Listed};
use serde::Serialize;

/// A deposit as every answer shows it.
#[derive(Serialize)]
pub(super) struct DepositJson {
    pub(super) id: String,
    pub(super) chain: String,
    pub(super) txid: String,
    pub(super) vout: u64,
    /// EVM: the same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<String>,
    pub(super) address: String,
    /// EVM: who sent the transaction, and whose coin or token moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payer: Option<String>,
    pub(super) merchant: String,
    pub(super) reference: String,
    pub(super) asset: String,
    pub(super) symbol: String,
    pub(super) amount: String,
    pub(super) amount_base: String,
    pub(super) origin: String,
    pub(super) state: &'static str,
    pub(super) standing: String,
    pub(super) held: Option<String>,
    /// What an operator typed with `deposits hold`; only in lists.
    pub(super) held_cause: Option<String>,
    pub(super) block_height: Option<u64>,
    pub(super) depth: Option<u64>,
    /// The depth that it really needs.
    pub(super) confirmations_required: Option<u32>,
    /// N of the policy; of a block reward the chain itself asks for more.
    pub(super) policy_confirmations: Option<u32>,
    /// EVM: the finality tag that it needs instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finality_required: Option<&'static str>,
    pub(super) due_height: Option<u64>,
    pub(super) replaced_by: Option<String>,
    pub(super) first_seen_at: String,
}

/// A deposit for JSON.
pub(super) fn json(chains: &Chains, deposit: &Deposit) -> DepositJson {
    let chain = deposit.chain;
    let printed = |script: &Option<Script>| {
        let script = script.as_ref()?;
        Some(chains.address(chain, script))
    };
    let tag = deposit.needs.and_then(Requirement::tag);
    DepositJson {
        id: deposit.id.clone(),
        chain: chains.alias(chain).to_owned(),
        txid: chains.print(chain, deposit.outpoint.txid),
        vout: deposit.outpoint.vout,
        position: chains.position(chain, deposit.outpoint.vout),
        address: chains.address(chain, &deposit.script),
        sender: printed(&deposit.sender),
        payer: printed(&deposit.payer),
        merchant: deposit.merchant.clone(),
        reference: deposit.reference.clone(),
        asset: deposit.asset.clone(),
        symbol: deposit.symbol.clone(),
        amount: deposit.amount.to_units_string(deposit.decimals),
        amount_base: deposit.amount.to_string(),
        origin: deposit.origin.clone(),
        state: deposit.state.map_or("", State::word),
        standing: standing(chains, deposit),
        held: deposit.held_reason.clone(),
        held_cause: None,
        block_height: deposit.height,
        depth: depth(deposit, chains.tip(chain)),
        confirmations_required: match (deposit.height, deposit.due_height) {
            _ if tag.is_some() => None,
            (Some(height), Some(due)) => Some(needed(height, due)),
            (None, _) | (_, None) => deposit.needs.and_then(Requirement::confirmations),
        },
        policy_confirmations: deposit.needs.and_then(Requirement::confirmations),
        finality_required: tag,
        due_height: deposit.due_height,
        replaced_by: deposit.replaced_by.map(|txid| chains.print(chain, txid)),
        first_seen_at: rfc3339(deposit.first_seen_at),
    }
}

/// The depth that a payment in the block at `height` has when the tip is at `due`.
pub(super) fn needed(height: u64, due: u64) -> u32 {
    u32::try_from(due.saturating_sub(height).saturating_add(1)).unwrap_or(u32::MAX)
}

fn depth(deposit: &Deposit, tip: Option<u64>) -> Option<u64> {
    policy::depth(tip?, deposit.height?)
}

/// Where a deposit stands and what is still missing, in words.
pub(super) fn standing(chains: &Chains, deposit: &Deposit) -> String {
    let state = match deposit.state {
        None | Some(State::Seen) => "in the mempool; waits for a block".to_owned(),
        Some(State::Confirming) => confirming(chains, deposit),
        Some(State::Credited) => "nothing is missing".to_owned(),
        Some(State::Evicted) => {
            "gone from the mempool; credited all the same if a block brings it".to_owned()
        }
        Some(State::Replaced) => match deposit.replaced_by {
            Some(by) => format!("replaced by {}", chains.print(deposit.chain, by)),
            None => "replaced by another transaction".to_owned(),
        },
        Some(State::Orphaned) => match chains.position(deposit.chain, 0) {
            Some(_) => "its block left the chain, or shows other content at its position; waits for another"
                .to_owned(),
            None => "its block left the chain; waits for another".to_owned(),
        },
        Some(State::Failed) => "failed on the chain; nothing was paid".to_owned(),
    };
    match &deposit.held_reason {
        Some(reason) => format!(
            "held ({}): not credited until released; {state}",
            held_words(reason)
        ),
        None => state,
    }
}

fn confirming(chains: &Chains, deposit: &Deposit) -> String {
    let tip = chains.tip(deposit.chain);
    let (Some(depth), Some(due), Some(tip)) = (depth(deposit, tip), deposit.due_height, tip) else {
        return "in a block".to_owned();
    };
    if let Some(needs) = deposit.needs
        && let Some(tag) = needs.tag()
    {
        let is_held = deposit.held_reason.is_some();
        return match chains.tagged(deposit.chain, needs) {
            Some(reached) if reached >= due && is_held => format!("depth {depth}; its block is {tag}"),
            Some(reached) if reached >= due => {
                format!("depth {depth}; its block is {tag}, the daemon credits it next")
            }
            Some(reached) => {
                format!("depth {depth}; credited once its block {due} is {tag}, blocks up to {reached} are")
            }
            None => format!("depth {depth}; credited once its block {due} is {tag}, no block is yet"),
        };
    }
    let needed = due
        .saturating_sub(deposit.height.unwrap_or(due))
        .saturating_add(1);
    let coinbase = if deposit.is_coinbase {
        ", a block reward"
    } else {
        ""
    };
    match due.saturating_sub(tip) {
        0 if deposit.held_reason.is_some() => format!("depth {depth} of {needed}{coinbase}; deep enough"),
        0 => format!("depth {depth} of {needed}{coinbase}; due, the daemon credits it next"),
        1 => format!("depth {depth} of {needed}{coinbase}; 1 more block, due at height {due}"),
        more => format!("depth {depth} of {needed}{coinbase}; {more} more blocks, due at height {due}"),
    }
}

/// What the short reasons of holds mean.
fn held_words(reason: &str) -> &str {
    match reason {
        "own_inputs" => "own_inputs: the merchant pays for it among others",
        "internal" => "internal: a transfer between the merchant's own addresses",
        "status_unknown" => "status_unknown: its receipt does not say that it succeeded",
        "balance_differs" => "balance_differs: the token moved another amount than it says",
        "reexecuted" => "reexecuted: a reorg changed what was credited at its position",
        "unlisted" => "unlisted: a reorg took it into another block while its token was not in the config",
        "closed_by_hand" => "closed_by_hand: an unattributed amount was closed as it; was it booked by hand?",
        "illegal_move" => "illegal_move: the chain showed what its state cannot meet",
        "operator" => "by the operator, see the history",
        other => other,
    }
}

/// Lists deposits, newest first.
pub(super) fn list(
    out: &mut Out,
    config: &Config,
    listing: &Listing,
    state: Option<StateArg>,
    is_held: bool,
) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let filter = Filter {
        state: state.map(State::from),
        is_held,
        ..super::filter(config, &database, &chains, listing)?
    };
    let read = |page| {
        database.read(|tx| {
            let with_cause = |listed: Listed<Deposit>| {
                let is_typed = listed.row.held_reason.as_deref() == Some("operator");
                let cause = match is_typed {
                    true => tx.hold_cause(listed.position)?,
                    false => None,
                };
                Ok(Listed {
                    position: listed.position,
                    row: (listed.row, cause),
                })
            };
            tx.list_deposits(&filter, page)?
                .into_iter()
                .map(with_cause)
                .collect()
        })
    };
    let shown = |rows: Vec<Listed<(Deposit, Option<String>)>>| {
        let shown = |listed: Listed<(Deposit, Option<String>)>| DepositJson {
            held_cause: listed.row.1,
            ..json(&chains, &listed.row.0)
        };
        rows.into_iter().map(shown).collect()
    };
    let shapes = Shapes {
        name: "deposits",
        empty: "no deposits",
        table: if is_held { held_table } else { deposits_table },
        csv: deposits_csv,
    };
    super::list(out, listing, &shapes, read, shown)
}

fn deposits_table(deposits: Vec<DepositJson>) -> Table {
    let mut table = Table::new(&[
        ("first seen", Align::Left),
        ("merchant", Align::Left),
        ("amount", Align::Right),
        ("asset", Align::Left),
        ("state", Align::Left),
        ("depth", Align::Right),
        ("reference", Align::Left),
        ("payment", Align::Left),
        ("deposit", Align::Left),
    ]);
    for deposit in deposits {
        let depth = match (
            deposit.depth,
            deposit.confirmations_required,
            deposit.finality_required,
        ) {
            (Some(depth), Some(needed), _) => format!("{depth}/{needed}"),
            (Some(depth), None, Some(tag)) => format!("{depth}/{tag}"),
            (_, None, _) | (None, _, _) => String::new(),
        };
        let held = if deposit.held.is_some() { " (held)" } else { "" };
        table.row(vec![
            deposit.first_seen_at,
            deposit.merchant,
            deposit.amount,
            format!("{} ({})", deposit.symbol, deposit.chain),
            format!("{}{held}", deposit.state),
            depth,
            deposit.reference,
            format!("{}:{}", deposit.txid, deposit.vout),
            deposit.id,
        ]);
    }
    table
}

/// Held ones have a column more: why.
fn held_table(deposits: Vec<DepositJson>) -> Table {
    let mut table = Table::new(&[
        ("first seen", Align::Left),
        ("merchant", Align::Left),
        ("amount", Align::Right),
        ("asset", Align::Left),
        ("state", Align::Left),
        ("held", Align::Left),
        ("reference", Align::Left),
        ("payment", Align::Left),
        ("deposit", Align::Left),
    ]);
    for deposit in deposits {
        let held = match (deposit.held, deposit.held_cause) {
            (Some(held), Some(cause)) => format!("{held}: {cause}"),
            (held, _) => held.unwrap_or_default(),
        };
        table.row(vec![
            deposit.first_seen_at,
            deposit.merchant,
            deposit.amount,
            format!("{} ({})", deposit.symbol, deposit.chain),
            deposit.state.to_owned(),
            held,
            deposit.reference,
            format!("{}:{}", deposit.txid, deposit.vout),
            deposit.id,
        ]);
    }
    table
}

fn deposits_csv(deposits: Vec<DepositJson>) -> Table {
    let columns = [
        "deposit",
        "first_seen_at",
        "merchant",
        "reference",
        "chain",
        "asset",
        "symbol",
        "amount",
        "amount_base",
        "state",
        "held",
        "txid",
        "vout",
        "address",
        "block_height",
        "depth",
        "confirmations_required",
        "finality_required",
        "due_height",
    ];
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for deposit in deposits {
        table.row(vec![
            deposit.id,
            deposit.first_seen_at,
            deposit.merchant,
            deposit.reference,
            deposit.chain,
            deposit.asset,
            deposit.symbol,
            deposit.amount,
            deposit.amount_base,
            deposit.state.to_owned(),
            deposit.held.unwrap_or_default(),
            deposit.txid,
            deposit.vout.to_string(),
            deposit.address,
            number(deposit.block_height),
            number(deposit.depth),
            number(deposit.confirmations_required.map(u64::from)),
            deposit.finality_required.unwrap_or_default().to_owned(),
            number(deposit.due_height),
        ]);
    }
    table
}

impl From<StateArg> for State {
    fn from(arg: StateArg) -> State {
        match arg {
            StateArg::Seen => State::Seen,
            StateArg::Confirming => State::Confirming,
            StateArg::Credited => State::Credited,
            StateArg::Evicted => State::Evicted,
            StateArg::Replaced => State::Replaced,
            StateArg::Orphaned => State::Orphaned,
            StateArg::Failed => State::Failed,
        }
    }
}
