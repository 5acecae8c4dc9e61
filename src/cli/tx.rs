//! `tx TXID`: everything that is known of one transaction, for people and in JSON.

use super::deposits::{self, DepositJson};
use super::ids;
use super::open::{self, Chains};
use super::out::Out;
use super::repair;
use super::table::shown;
use super::{Outcome, Problem};
use crate::address;
use crate::check::counted;
use crate::clock::rfc3339;
use crate::config::{BitcoinChain, Config};
use crate::rules::Txid;
use crate::rules::policy::{self, Requirement};
use crate::store::report::{AuditRow, DepositStory, EventRow, OutputStory, TxStory};
use crate::store::{Database, JournalEntry};
use serde::Serialize;

#[derive(Serialize)]
struct TxJson {
    chain: String,
    chain_id: String,
    txid: String,
    is_coinbase: bool,
    first_seen_at: String,
    in_mempool: bool,
    blocks: Vec<BlockJson>,
    replaced_by: Option<String>,
    inputs: Vec<InputJson>,
    outputs: Vec<OutputJson>,
}

#[derive(Serialize)]
struct BlockJson {
    height: u64,
    hash: Option<String>,
    depth: Option<u64>,
}

#[derive(Serialize)]
struct InputJson {
    txid: String,
    vout: u64,
    also_spent_by: Vec<String>,
}

#[derive(Serialize)]
struct OutputJson {
    vout: u64,
    address: String,
    kind: &'static str,
    merchant: String,
    reference: String,
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    origin: String,
    spent_by: Option<String>,
    duplicates: u64,
    refused_credits: u64,
    deposit: Option<StoryJson>,
}

#[derive(Serialize)]
struct StoryJson {
    #[serde(flatten)]
    deposit: DepositJson,
    held_at: Option<String>,
    credit: Option<CreditJson>,
    history: Vec<ChangeJson>,
    events: Vec<EventJson>,
}

#[derive(Serialize)]
struct CreditJson {
    id: String,
    created_at: String,
    net: String,
    net_base: String,
    journal: Vec<EntryJson>,
}

#[derive(Serialize)]
struct EntryJson {
    sequence: u64,
    entry: String,
    at: String,
    block_height: u64,
    block_hash: String,
    confirmations_required: Option<u32>,
    /// EVM: the finality tag that was required instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    finality_required: Option<&'static str>,
    due_height: u64,
    due_hash: Option<String>,
    reason: String,
}

#[derive(Serialize)]
struct ChangeJson {
    at: String,
    action: String,
    from: Option<String>,
    to: Option<String>,
    block_height: Option<u64>,
    block_hash: Option<String>,
    cause: String,
    actor: String,
}

#[derive(Serialize)]
struct EventJson {
    id: String,
    seq: i64,
    sequence: i64,
    r#type: String,
    at: String,
}

/// Tells the story of a transaction on every chain that knows it.
pub(super) fn tx(out: &mut Out, config: &Config, typed: &str) -> anyhow::Result<Outcome> {
    let is_id = typed.starts_with("dep_") || typed.starts_with("cr_");
    let txid = match repair::outpoint(typed) {
        Some(outpoint) => Some(outpoint.txid),
        None => Txid::from_hex(typed),
    };
    if txid.is_none() && !is_id {
        return Err(no_transaction(config, typed).into());
    }
    let database = open::reader(config)?;
    let txid = match txid {
        Some(txid) => txid,
        None => txid_of(&database, typed)?,
    };
    let (chains, stories) = database.read(|tx| Ok((Chains::read(tx)?, tx.tx_story(&txid)?)))?;
    if stories.is_empty() {
        let text =
            format!("nothing is known of {txid}: it pays and spends nothing of ours, or was not seen yet");
        let next = "`creditd chain status` shows how far blocks are read; \
                    `creditd rescan --backfill ADDRESS` finds what came before an address was watched";
        return Err(Problem::found(text, next).into());
    }
    let stories: Vec<TxJson> = stories.iter().map(|story| json(&chains, story)).collect();
    if out.json {
        return out.list("transactions", &stories, None);
    }
    for story in &stories {
        print(out, story)?;
    }
    out.done()
}

/// The transaction of a deposit or of a credit.
fn txid_of(database: &Database, typed: &str) -> anyhow::Result<Txid> {
    let id = ids::whole(database, typed)?;
    let txid = database.read(|tx| {
        let deposit = tx.deposit(&id)?.map(|deposit| deposit.outpoint.txid);
        match deposit {
            Some(txid) => Ok(Some(txid)),
            None => tx.credit_txid(&id),
        }
    })?;
    Ok(txid.ok_or_else(|| {
        let next = "`creditd deposits list` and `creditd credits` show ids";
        Problem::found(format!("no deposit and no credit {typed}"), next)
    })?)
}

/// What was typed is neither a transaction nor what belongs to one.
fn no_transaction(config: &Config, typed: &str) -> Problem {
    let is_address = |chain: &BitcoinChain| address::parse(chain.network, typed).is_ok();
    if config.bitcoin.iter().any(is_address) {
        let next = format!("`creditd deposits list --address {typed}` lists the payments to it");
        return Problem::misuse(format!("{typed} is an address and no transaction id"), next);
    }
    let next = "give its 64 hex digits, or TXID:VOUT, dep_... or cr_...; `creditd deposits list` shows them";
    Problem::misuse(format!("{typed:?} is no transaction id"), next)
}

fn json(chains: &Chains, story: &TxStory) -> TxJson {
    let tip = chains.tip(story.chain.key);
    TxJson {
        chain: story.chain.alias.clone(),
        chain_id: story.chain.id.to_string(),
        txid: story.txid.to_string(),
        is_coinbase: story.is_coinbase,
        first_seen_at: rfc3339(story.first_seen_at),
        in_mempool: story.is_listed,
        blocks: story
            .blocks
            .iter()
            .map(|(height, hash)| BlockJson {
                height: *height,
                hash: hash.map(|hash| hash.to_string()),
                depth: tip.and_then(|tip| policy::depth(tip, *height)),
            })
            .collect(),
        replaced_by: story.replaced_by.map(|txid| txid.to_string()),
        inputs: story
            .inputs
            .iter()
            .map(|input| InputJson {
                txid: input.outpoint.txid.to_string(),
                vout: input.outpoint.vout,
                also_spent_by: input.rivals.iter().map(ToString::to_string).collect(),
            })
            .collect(),
        outputs: story
            .outputs
            .iter()
            .map(|output| output_json(chains, story, output))
            .collect(),
    }
}

fn output_json(chains: &Chains, story: &TxStory, output: &OutputStory) -> OutputJson {
    OutputJson {
        vout: output.vout,
        address: open::printed(&story.chain, &output.script),
        kind: output.kind.word(),
        merchant: output.merchant.clone(),
        reference: output.reference.clone(),
        asset: output.asset.clone(),
        symbol: output.symbol.clone(),
        amount: output.amount.to_units_string(output.decimals),
        amount_base: output.amount.to_string(),
        origin: output.origin.clone(),
        spent_by: output.spent_by.map(|txid| txid.to_string()),
        duplicates: output.duplicates,
        refused_credits: output.refused_credits,
        deposit: output.deposit.as_ref().map(|deposit| story_json(chains, deposit)),
    }
}

fn story_json(chains: &Chains, story: &DepositStory) -> StoryJson {
    let deposit = &story.deposit;
    StoryJson {
        deposit: deposits::json(chains, deposit),
        held_at: story.held_at.map(rfc3339),
        credit: story.credit.as_ref().map(|credit| CreditJson {
            id: credit.id.clone(),
            created_at: rfc3339(credit.created_at),
            net: credit.net.to_units_string(deposit.decimals),
            net_base: credit.net.to_string(),
            journal: credit.journal.iter().map(entry_json).collect(),
        }),
        history: story.audit.iter().map(change_json).collect(),
        events: story.events.iter().map(event_json).collect(),
    }
}

fn entry_json(entry: &JournalEntry) -> EntryJson {
    EntryJson {
        sequence: entry.sequence,
        entry: entry.kind.clone(),
        at: rfc3339(entry.at),
        block_height: entry.block_height,
        block_hash: entry.block_hash.to_string(),
        confirmations_required: match (entry.needs, entry.due_hash) {
            (Requirement::Confirmations(_), Some(_)) => {
                Some(deposits::needed(entry.block_height, entry.due_height))
            }
            (needs, _) => needs.confirmations(),
        },
        finality_required: entry.needs.tag(),
        due_height: entry.due_height,
        due_hash: entry.due_hash.map(|hash| hash.to_string()),
        reason: entry.reason.clone(),
    }
}

fn change_json(change: &AuditRow) -> ChangeJson {
    ChangeJson {
        at: rfc3339(change.at),
        action: change.action.clone(),
        from: change.from.clone(),
        to: change.to.clone(),
        block_height: change.block.map(|(height, _)| height),
        block_hash: change.block.map(|(_, hash)| hash.to_string()),
        cause: change.cause.clone(),
        actor: change.actor.clone(),
    }
}

fn event_json(event: &EventRow) -> EventJson {
    EventJson {
        id: event.id.clone(),
        seq: event.seq,
        sequence: event.sequence,
        r#type: event.kind.clone(),
        at: rfc3339(event.at),
    }
}

fn print(out: &mut Out, tx: &TxJson) -> anyhow::Result<()> {
    out.line(format!(
        "transaction {} on {} ({})",
        tx.txid, tx.chain, tx.chain_id
    ))?;
    out.field("first seen", &tx.first_seen_at)?;
    for block in &tx.blocks {
        let hash = block.hash.as_deref().unwrap_or("header not kept");
        let depth = block
            .depth
            .map_or_else(String::new, |depth| format!(", depth {depth}"));
        out.field("block", format!("{} ({hash}){depth}", block.height))?;
    }
    if tx.blocks.is_empty() {
        let place = if tx.in_mempool {
            "none; in the mempool"
        } else {
            "none; not in the mempool"
        };
        out.field("block", place)?;
    }
    if tx.is_coinbase {
        out.field("inputs", "none: a block reward, spendable at depth 101")?;
    }
    if let Some(by) = &tx.replaced_by {
        out.field("replaced by", by)?;
    }
    for input in tx.inputs.iter().filter(|input| !input.also_spent_by.is_empty()) {
        let others = input.also_spent_by.join(", ");
        out.field(
            "conflict",
            format!("{}:{} is also spent by {others}", input.txid, input.vout),
        )?;
    }
    if tx.outputs.is_empty() {
        out.field(
            "outputs",
            "none of ours; kept as an unconfirmed ancestor of a payment",
        )?;
    }
    tx.outputs.iter().try_for_each(|output| print_output(out, output))
}

fn print_output(out: &mut Out, output: &OutputJson) -> anyhow::Result<()> {
    let reference = match output.reference.as_str() {
        "" => String::new(),
        reference => format!(" ({})", shown(reference)),
    };
    let (vout, amount, symbol, address) = (output.vout, &output.amount, &output.symbol, &output.address);
    out.line("")?;
    out.line(format!(
        "output {vout}: {amount} {symbol} to {address}, merchant {}{reference}",
        output.merchant
    ))?;
    out.field("origin", origin_words(output))?;
    if let Some(by) = &output.spent_by {
        out.field("spent by", by)?;
    }
    if output.duplicates > 0 {
        out.field(
            "duplicates",
            format!(
                "brought again by a block {}; counted once",
                counted(output.duplicates, "time")
            ),
        )?;
    }
    if output.refused_credits > 0 {
        out.field(
            "refused",
            format!(
                "a second credit {} times, which stopped the chain",
                output.refused_credits
            ),
        )?;
    }
    match &output.deposit {
        Some(story) => print_deposit(out, story),
        None => out.field("deposit", "none: it does not count as a payment"),
    }
}

fn origin_words(output: &OutputJson) -> &str {
    match (output.kind, output.origin.as_str()) {
        ("own", _) => "to an address declared as the merchant's own",
        (_, "external") => "external: no input is the merchant's",
        (_, "internal") => "internal: every input is the merchant's",
        (_, "mixed") => "mixed: some inputs are the merchant's",
        (_, other) => other,
    }
}

fn print_deposit(out: &mut Out, story: &StoryJson) -> anyhow::Result<()> {
    let deposit = &story.deposit;
    out.field("deposit", &deposit.id)?;
    let standing = match deposit.standing.strip_prefix(deposit.state) {
        Some(_) => deposit.standing.clone(),
        None => format!("{}: {}", deposit.state, deposit.standing),
    };
    out.field("state", standing)?;
    if let (Some(policy), Some(height)) = (deposit.policy_confirmations, deposit.block_height) {
        let policy_words = counted(u64::from(policy), "confirmation");
        let needed = match deposit.confirmations_required {
            Some(needed) if needed != policy => format!("; a block reward needs {needed}"),
            Some(_) | None => String::new(),
        };
        out.field(
            "policy",
            format!("{policy_words} for the deposits of block {height}{needed}"),
        )?;
    }
    if let (Some(at), Some(reason)) = (&story.held_at, &deposit.held) {
        let release = format!("creditd deposits release {} --reason TEXT", deposit.id);
        out.field(
            "held",
            format!("since {at}: {}; to release: {release}", shown(reason)),
        )?;
    }
    if let Some(credit) = &story.credit {
        let (net, symbol) = (&credit.net, &deposit.symbol);
        out.field("credit", format!("{}: nets to {net} {symbol}", credit.id))?;
        for entry in &credit.journal {
            out.line(format!("    {}  {}", entry.at, entry_words(entry)))?;
        }
    }
    out.line("  history")?;
    for change in &story.history {
        out.line(format!("    {}  {}", change.at, change_words(change)))?;
    }
    out.line("  events")?;
    for event in &story.events {
        out.line(format!(
            "    {}  {} {} (seq {})",
            event.at, event.r#type, event.id, event.seq
        ))?;
    }
    Ok(())
}

fn entry_words(entry: &EntryJson) -> String {
    let (kind, block, hash) = (&entry.entry, entry.block_height, &entry.block_hash);
    let why = match (entry.reason.as_str(), &entry.due_hash) {
        ("", _) => match (entry.confirmations_required, entry.finality_required) {
            (Some(needed), _) => format!(
                "{}, due at height {}",
                counted(u64::from(needed), "confirmation"),
                entry.due_height
            ),
            (None, tag) => format!("a {} block", tag.unwrap_or_default()),
        },
        (reason, _) => shown(reason),
    };
    format!("{kind}: block {block} ({hash}), {why}")
}

fn change_words(change: &ChangeJson) -> String {
    let step = match (&change.from, &change.to) {
        (Some(from), Some(to)) if from == to => from.clone(),
        (Some(from), Some(to)) => format!("{from} -> {to}"),
        (None, Some(to)) => format!("-> {to}"),
        (Some(from), None) => from.clone(),
        (None, None) => String::new(),
    };
    let actor = match change.actor.as_str() {
        "daemon" => String::new(),
        actor => format!(" [{actor}]"),
    };
    format!("{} {step}: {}{actor}", change.action, shown(&change.cause))
}
