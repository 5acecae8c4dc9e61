//! `tx TXID`: everything that is known of one transaction, for people and in JSON.

mod answer;

use super::ids;
use super::once::Opened;
use super::open::{self, Chains};
use super::out::Out;
use super::table::shown;
use super::{Outcome, Problem};
use crate::config::{ChainConfig, Config};
use crate::rules::Txid;
use crate::telemetry::counted;
use answer::{ChangeJson, EntryJson, InputJson, OutputJson, StoryJson, TxJson, json};

/// Tells the story of a transaction on every chain that knows it.
pub(super) fn tx(out: &mut Out, config: &Config, typed: &str) -> anyhow::Result<Outcome> {
    let is_id = typed.starts_with("dep_") || typed.starts_with("cr_");
    let txid = match open::outpoint(typed) {
        Some(outpoint) => Some(outpoint.txid),
        None => open::txid(typed),
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
            format!("nothing is known of {typed}: it pays and spends nothing of ours, or was not seen yet");
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
fn txid_of(database: &Opened, typed: &str) -> anyhow::Result<Txid> {
    ids::refuse_short(typed)?;
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
    let is_address = |chain: ChainConfig<'_>| chain.script(typed).is_ok();
    if config.chains().any(is_address) {
        let next = format!("`creditd deposits list --address {typed}` lists the payments to it");
        return Problem::misuse(format!("{typed} is an address and no transaction id"), next);
    }
    let next = "give its 64 hex digits, or TXID:VOUT, dep_... or cr_...; `creditd deposits list` shows them";
    Problem::misuse(format!("{typed:?} is no transaction id"), next)
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
    for input in &tx.inputs {
        print_input(out, input)?;
    }
    if tx.outputs.is_empty() {
        out.field(
            "outputs",
            "none of ours; kept as an unconfirmed ancestor of a payment",
        )?;
    }
    tx.outputs.iter().try_for_each(|output| print_output(out, output))
}

/// Who else uses up the same, and who sent it where somebody did.
fn print_input(out: &mut Out, input: &InputJson) -> anyhow::Result<()> {
    let conflict = match input {
        InputJson::Coin {
            txid,
            vout,
            also_spent_by: others,
        } if !others.is_empty() => format!("{txid}:{vout} is also spent by {}", others.join(", ")),
        InputJson::Coin { .. } => return Ok(()),
        InputJson::Nonce {
            sender,
            nonce,
            also_used_by: others,
        } => {
            out.field("sender", format!("{sender}, nonce {nonce}"))?;
            match others.is_empty() {
                true => return Ok(()),
                false => format!("nonce {nonce} is also used by {}", others.join(", ")),
            }
        }
    };
    out.field("conflict", conflict)
}

fn print_output(out: &mut Out, output: &OutputJson) -> anyhow::Result<()> {
    let reference = match output.reference.as_str() {
        "" => String::new(),
        reference => format!(" ({})", shown(reference)),
    };
    let (amount, symbol, address) = (&output.amount, &output.symbol, &output.address);
    let place = match &output.position {
        Some(position) => format!("{position} (vout {})", output.vout),
        None => format!("output {}", output.vout),
    };
    out.line("")?;
    out.line(format!(
        "{place}: {amount} {symbol} to {address}, merchant {}{reference}",
        output.merchant
    ))?;
    if output.position.is_some() {
        out.field("asset", &output.asset)?;
    }
    if let Some(payer) = output
        .deposit
        .as_ref()
        .and_then(|story| story.deposit.payer.as_ref())
    {
        out.field("payer", payer)?;
    }
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
        None => {
            out.field("deposit", "none: it does not count as a payment")?;
            let is_internal = output.kind == "watch" && output.origin == "internal";
            if !is_internal {
                return Ok(());
            }
            let next = "to have such payments counted from now on: [[merchant]] internal = \"credit\", or \
                        \"hold\", in the config";
            out.field("next", next)
        }
    }
}

fn origin_words(output: &OutputJson) -> &str {
    match (output.kind, output.origin.as_str()) {
        ("own", _) => "to an address declared as the merchant's own",
        (_, "external") if output.position.is_some() => "external: neither sender nor payer is the merchant",
        (_, "internal") if output.position.is_some() => "internal: the payer is the merchant",
        (_, "mixed") if output.position.is_some() => "mixed: the merchant sent it, and somebody else pays",
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
    if let Some(invoice) = &story.invoice {
        let mark = invoice.mark.unwrap_or("not on the chain");
        out.field("invoice", format!("{}: {mark}", invoice.id))?;
    }
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
    if let (Some(tag), Some(height)) = (deposit.finality_required, deposit.block_height) {
        out.field(
            "policy",
            format!("a {tag} block for the deposits of block {height}"),
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
