//! The story of a transaction as JSON has it; what people are shown is made of the same.

use crate::address::EvmAddress;
use crate::cli::deposits::{self, DepositJson};
use crate::cli::open::{self, Chains};
use crate::clock::rfc3339;
use crate::rules::block::sender_of;
use crate::rules::invoice::Mark;
use crate::rules::policy::{self, Requirement};
use crate::rules::{ChainId, position};
use crate::store::JournalEntry;
use crate::store::report::{AuditRow, DepositStory, EventRow, InputRow, OutputStory, TxStory};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct TxJson {
    pub(super) chain: String,
    pub(super) chain_id: String,
    pub(super) txid: String,
    pub(super) is_coinbase: bool,
    pub(super) first_seen_at: String,
    pub(super) in_mempool: bool,
    pub(super) blocks: Vec<BlockJson>,
    pub(super) replaced_by: Option<String>,
    pub(super) inputs: Vec<InputJson>,
    pub(super) outputs: Vec<OutputJson>,
}

#[derive(Serialize)]
pub(super) struct BlockJson {
    pub(super) height: u64,
    pub(super) hash: Option<String>,
    pub(super) depth: Option<u64>,
}

/// What a transaction uses up: coins, or on EVM chains a nonce of its sender.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum InputJson {
    Coin {
        txid: String,
        vout: u64,
        also_spent_by: Vec<String>,
    },
    Nonce {
        sender: String,
        nonce: u64,
        also_used_by: Vec<String>,
    },
}

#[derive(Serialize)]
pub(super) struct OutputJson {
    pub(super) vout: u64,
    /// EVM: the same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) position: Option<String>,
    pub(super) address: String,
    pub(super) kind: &'static str,
    pub(super) merchant: String,
    pub(super) reference: String,
    pub(super) asset: String,
    pub(super) symbol: String,
    pub(super) amount: String,
    pub(super) amount_base: String,
    pub(super) origin: String,
    pub(super) spent_by: Option<String>,
    pub(super) duplicates: u64,
    pub(super) refused_credits: u64,
    pub(super) deposit: Option<StoryJson>,
}

#[derive(Serialize)]
pub(super) struct StoryJson {
    #[serde(flatten)]
    pub(super) deposit: DepositJson,
    pub(super) held_at: Option<String>,
    pub(super) credit: Option<CreditJson>,
    pub(super) history: Vec<ChangeJson>,
    pub(super) events: Vec<EventJson>,
    /// The invoice of its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) invoice: Option<InvoiceJson>,
}

#[derive(Serialize)]
pub(super) struct InvoiceJson {
    pub(super) id: String,
    pub(super) mark: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct CreditJson {
    pub(super) id: String,
    pub(super) created_at: String,
    pub(super) net: String,
    pub(super) net_base: String,
    pub(super) journal: Vec<EntryJson>,
}

#[derive(Serialize)]
pub(super) struct EntryJson {
    pub(super) sequence: u64,
    pub(super) entry: String,
    pub(super) at: String,
    pub(super) block_height: u64,
    pub(super) block_hash: String,
    pub(super) confirmations_required: Option<u32>,
    /// EVM: the finality tag that was required instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finality_required: Option<&'static str>,
    pub(super) due_height: u64,
    pub(super) due_hash: Option<String>,
    pub(super) reason: String,
}

#[derive(Serialize)]
pub(super) struct ChangeJson {
    pub(super) at: String,
    pub(super) action: String,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) block_height: Option<u64>,
    pub(super) block_hash: Option<String>,
    pub(super) cause: String,
    pub(super) actor: String,
}

#[derive(Serialize)]
pub(super) struct EventJson {
    pub(super) id: String,
    pub(super) seq: i64,
    pub(super) sequence: i64,
    pub(super) r#type: String,
    pub(super) at: String,
}

/// A story for JSON.
pub(super) fn json(chains: &Chains, story: &TxStory) -> TxJson {
    let tip = chains.tip(story.chain.key);
    let id = &story.chain.id;
    TxJson {
        chain: story.chain.alias.clone(),
        chain_id: id.to_string(),
        txid: id.print(story.txid),
        is_coinbase: story.is_coinbase,
        first_seen_at: rfc3339(story.first_seen_at),
        in_mempool: story.is_listed,
        blocks: story
            .blocks
            .iter()
            .map(|(height, hash)| BlockJson {
                height: *height,
                hash: hash.map(|hash| id.print(hash)),
                depth: tip.and_then(|tip| policy::depth(tip, *height)),
            })
            .collect(),
        replaced_by: story.replaced_by.map(|txid| id.print(txid)),
        inputs: story.inputs.iter().map(|input| input_json(id, input)).collect(),
        outputs: story
            .outputs
            .iter()
            .map(|output| output_json(chains, story, output))
            .collect(),
    }
}

fn input_json(chain: &ChainId, input: &InputRow) -> InputJson {
    let rivals = input.rivals.iter().map(|rival| chain.print(rival)).collect();
    match sender_of(&input.outpoint).filter(|_| chain.is_evm()) {
        Some((sender, nonce)) => InputJson::Nonce {
            sender: EvmAddress(sender).to_string(),
            nonce,
            also_used_by: rivals,
        },
        None => InputJson::Coin {
            txid: chain.print(input.outpoint.txid),
            vout: input.outpoint.vout,
            also_spent_by: rivals,
        },
    }
}

fn output_json(chains: &Chains, story: &TxStory, output: &OutputStory) -> OutputJson {
    OutputJson {
        vout: output.vout,
        position: story.chain.id.is_evm().then(|| position::words(output.vout)),
        address: open::printed(&story.chain, &output.script),
        kind: output.kind.word(),
        merchant: output.merchant.clone(),
        reference: output.reference.clone(),
        asset: output.asset.clone(),
        symbol: output.symbol.clone(),
        amount: output.amount.to_units_string(output.decimals),
        amount_base: output.amount.to_string(),
        origin: output.origin.clone(),
        spent_by: output.spent_by.map(|txid| story.chain.id.print(txid)),
        duplicates: output.duplicates,
        refused_credits: output.refused_credits,
        deposit: output
            .deposit
            .as_ref()
            .map(|deposit| story_json(chains, &story.chain.id, deposit)),
    }
}

fn story_json(chains: &Chains, id: &ChainId, story: &DepositStory) -> StoryJson {
    let deposit = &story.deposit;
    StoryJson {
        deposit: deposits::json(chains, deposit),
        held_at: story.held_at.map(rfc3339),
        credit: story.credit.as_ref().map(|credit| CreditJson {
            id: credit.id.clone(),
            created_at: rfc3339(credit.created_at),
            net: credit.net.to_units_string(deposit.decimals),
            net_base: credit.net.to_string(),
            journal: credit
                .journal
                .iter()
                .filter_map(|entry| entry_json(id, entry))
                .collect(),
        }),
        history: story.audit.iter().map(|change| change_json(id, change)).collect(),
        events: story.events.iter().map(event_json).collect(),
        invoice: story.invoice.as_ref().map(|(id, mark)| InvoiceJson {
            id: id.clone(),
            mark: mark.map(Mark::word),
        }),
    }
}

/// What a transaction on a chain paid has its cause there.
fn entry_json(chain: &ChainId, entry: &JournalEntry) -> Option<EntryJson> {
    let cause = entry.cause?;
    Some(EntryJson {
        sequence: entry.sequence,
        entry: entry.kind.clone(),
        at: rfc3339(entry.at),
        block_height: cause.block_height,
        block_hash: chain.print(cause.block_hash),
        confirmations_required: match (cause.needs, cause.due_hash) {
            (Requirement::Confirmations(_), Some(_)) => {
                Some(deposits::needed(cause.block_height, cause.due_height))
            }
            (needs, _) => needs.confirmations(),
        },
        finality_required: cause.needs.tag(),
        due_height: cause.due_height,
        due_hash: cause.due_hash.map(|hash| chain.print(hash)),
        reason: entry.reason.clone(),
    })
}

fn change_json(chain: &ChainId, change: &AuditRow) -> ChangeJson {
    ChangeJson {
        at: rfc3339(change.at),
        action: change.action.clone(),
        from: change.from.clone(),
        to: change.to.clone(),
        block_height: change.block.map(|(height, _)| height),
        block_hash: change.block.map(|(_, hash)| chain.print(hash)),
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
