//! What can be done to the simulated chains, as data: a request of the control has one of these, a line of a
//! scenario too, and `creditd trigger` sends one. Nothing here knows how it is done; see `hand`.

use super::Trouble;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest label, name or symbol: shorter than any address, so that neither is taken for the other.
const WORD_LETTERS_MAX: usize = 24;

/// Blocks that one step may mine, and the depth of a reorg.
pub const BLOCKS_MAX: u32 = 10_000;

/// The longest trouble that ends by itself, and the longest wait of a scenario: a day.
pub const SPAN_MS_MAX: u64 = 86_400_000;

/// Which of the two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The Bitcoin node.
    Btc,
    /// The node of the EVM chain.
    Evm,
}

impl On {
    /// Both.
    pub const ALL: [On; 2] = [On::Btc, On::Evm];

    /// How it is written.
    pub fn word(self) -> &'static str {
        match self {
            On::Btc => "btc",
            On::Evm => "evm",
        }
    }

    /// The node of a word.
    pub fn of_word(word: &str) -> Option<On> {
        On::ALL.into_iter().find(|on| on.word() == word)
    }
}

/// A payment is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deposit {
    /// An address, or a label that stands for one that nobody has the key of.
    pub to: String,
    /// In whole units: `0.29`.
    pub amount: String,
    /// A token's symbol or contract; the chain's coin without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the transaction is called from now on.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Another transaction that spends what a known one spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rival {
    /// A name or a transaction id.
    pub tx: String,
    /// Whom it pays instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How much instead, in whole units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<String>,
    /// What it is called.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The last blocks give way to one more others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorg {
    /// How many.
    pub depth: u32,
    /// Transactions that the first new block holds; `all` is every one that the blocks held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
}

/// A transaction to do something to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfTx {
    /// A name or a transaction id.
    pub tx: String,
}

/// A number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// How many.
    pub blocks: u32,
}

/// Where the tags of an EVM node stand: `32` blocks behind the tip, at height `@120`, or `none`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tags {
    /// Of `safe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<String>,
    /// Of `finalized`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalized: Option<String>,
}

/// What is wrong with a node from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeState {
    /// The word of a [`Trouble`], or `up`.
    pub trouble: String,
    /// For how long; without it until another is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

impl NodeState {
    /// The trouble that is meant; `None` for a word that is none.
    pub fn meant(&self) -> Option<Option<Trouble>> {
        match self.trouble.as_str() {
            "up" => Some(None),
            word => Trouble::of_word(word).map(Some),
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A payment is sent.
    Deposit(Deposit),
    /// A block brings a rival of a transaction; if that is in a block, by a reorg.
    DoubleSpend(Rival),
    /// A rival takes the place of a transaction that waits.
    Replace(Rival),
    /// Another branch becomes the best one.
    Reorg(Reorg),
    /// A transaction leaves the mempool.
    Evict(OfTx),
    /// It comes back.
    Resend(OfTx),
    /// EVM: it fails in every block to come.
    Fail(OfTx),
    /// The node forgets its last blocks; with 0 it knows them again.
    Lag(Blocks),
    /// Blocks are mined.
    Mine(Blocks),
    /// EVM: the tags move.
    Tags(Tags),
    /// The node gets a trouble, or is rid of it.
    Node(NodeState),
}

impl Step {
    /// The verbs of all of them, in the order of the manual.
    pub const VERBS: [&'static str; 11] = [
        "deposit",
        "double-spend",
        "replace",
        "reorg",
        "evict",
        "resend",
        "fail",
        "lag",
        "mine",
        "tags",
        "node",
    ];

    /// The step's verb, which is also its place at the control.
    pub fn verb(&self) -> &'static str {
        match self {
            Step::Deposit(_) => "deposit",
            Step::DoubleSpend(_) => "double-spend",
            Step::Replace(_) => "replace",
            Step::Reorg(_) => "reorg",
            Step::Evict(_) => "evict",
            Step::Resend(_) => "resend",
            Step::Fail(_) => "fail",
            Step::Lag(_) => "lag",
            Step::Mine(_) => "mine",
            Step::Tags(_) => "tags",
            Step::Node(_) => "node",
        }
    }

    /// What a request carries.
    pub fn body(&self) -> Value {
        let body = match self {
            Step::Deposit(of) => serde_json::to_value(of),
            Step::DoubleSpend(of) | Step::Replace(of) => serde_json::to_value(of),
            Step::Reorg(of) => serde_json::to_value(of),
            Step::Evict(of) | Step::Resend(of) | Step::Fail(of) => serde_json::to_value(of),
            Step::Lag(of) | Step::Mine(of) => serde_json::to_value(of),
            Step::Tags(of) => serde_json::to_value(of),
            Step::Node(of) => serde_json::to_value(of),
        };
        // Texts, numbers and lists of texts.
        body.unwrap_or_else(|error| unreachable!("a step that JSON cannot hold: {error}"))
    }

    /// The step of a verb and a request's body; why not, in words.
    pub fn read(verb: &str, body: &[u8]) -> Result<Step, String> {
        Ok(match verb {
            "deposit" => Step::Deposit(json(body)?),
            "double-spend" => Step::DoubleSpend(json(body)?),
            "replace" => Step::Replace(json(body)?),
            "reorg" => Step::Reorg(json(body)?),
            "evict" => Step::Evict(json(body)?),
            "resend" => Step::Resend(json(body)?),
            "fail" => Step::Fail(json(body)?),
            "lag" => Step::Lag(json(body)?),
            "mine" => Step::Mine(json(body)?),
            "tags" => Step::Tags(json(body)?),
            "node" => Step::Node(json(body)?),
            other => return Err(format!("no such step: {other}")),
        })
    }
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not as it should be: {error}"))
}

/// Is this a word that can be a label, a name or a symbol, and nothing else?
pub(super) fn is_word(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    let of_address = ["0x", "0X", "bcrt1", "bc1", "tb1", "-"];
    !text.is_empty()
        && text.len() <= WORD_LETTERS_MAX
        && text.chars().all(is_letter)
        && !of_address.iter().any(|head| text.starts_with(head))
}
