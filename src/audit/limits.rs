//! What an audit did not look at, why, and what to do about it: nothing that was left out is ever "nothing
//! found".

use super::ground::{Ground, Standing, Stop};
use crate::chain::{Help, SourceError};
use crate::rules::chain_state::ChainState;
use crate::store::{ChainRow, Store, StoreError};
use crate::telemetry::{counted, error_line};
use serde::{Deserialize, Serialize};

/// The books may be so far behind their node, whatever the age: the node has a block first.
const LAG: u64 = 30;

/// What was not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotChecked {
    /// Why, in a word.
    pub state: String,
    /// What and why, in words.
    pub what: String,
    /// What to do about it.
    pub next: String,
}

/// Why something was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// No node answers.
    NoNode,
    /// The node does not let us in, or what we log in with is not there.
    NoLogin,
    /// The node is there, and starting.
    Starting,
    /// The node has had enough of our questions.
    Limited,
    /// The node is on another chain than the config says.
    OtherNetwork,
    /// The books have no block of the chain.
    NeverFollowed,
    /// Node and books have two blocks at one height.
    TwoBranches,
    /// The node does not have what the books have.
    NodeBehind,
    /// The books do not have what the node has.
    BooksBehind,
    /// What is due may rightly be late.
    NotFollowing,
    /// There are no blocks yet from where it was to begin.
    Beyond,
    /// The books have a chain that the config does not name.
    NotInConfig,
    /// The file is damaged, and what it says means nothing.
    Damaged,
    /// The chain has no set of unspent coins that a node could be asked for.
    NoUnspentSet,
}

impl Unasked {
    fn word(self) -> &'static str {
        match self {
            Unasked::NoNode | Unasked::NoLogin | Unasked::Starting | Unasked::Limited => "no_node",
            Unasked::OtherNetwork => "other_network",
            Unasked::NeverFollowed => "never_followed",
            Unasked::TwoBranches => "two_branches",
            Unasked::NodeBehind => "node_behind",
            Unasked::BooksBehind => "books_behind",
            Unasked::NotFollowing => "not_following",
            Unasked::Beyond => "beyond",
            Unasked::NotInConfig => "not_in_config",
            Unasked::Damaged => "damaged",
            Unasked::NoUnspentSet => "no_unspent_set",
        }
    }

    fn next(self) -> &'static str {
        match self {
            Unasked::NoNode => "`creditd check` says what is wrong with the node; then run it again",
            Unasked::NoLogin => {
                "name the login at the node in the config, and run it as an account that may read the file: \
                 `cookie_file`, or `rpc_user` and `rpc_password_file`; of an EVM endpoint `url_file`, \
                 `password_file`, `bearer_file` or `header_file`. `creditd check` tries it"
            }
            Unasked::Starting => "run it again once the node has started: `creditd check` says when",
            Unasked::Limited => {
                "run it again later, with --blocks-per-second for fewer questions, or with a larger plan"
            }
            Unasked::OtherNetwork => "correct the node or the chain's table in the config: `creditd check`",
            Unasked::NeverFollowed => "start the daemon with this config, and run it again after a while",
            Unasked::TwoBranches => "run it again when creditd follows the node: `creditd chain status`",
            Unasked::NodeBehind => "run it again when the node has caught up, or with another node",
            Unasked::BooksBehind | Unasked::NotFollowing => {
                "`creditd chain status` says what creditd waits for; run it again when it follows the chain"
            }
            Unasked::Beyond => "name a lower height, or run it again when the chain is there",
            Unasked::NotInConfig => "name the chain and a node of it in the config, and run it again",
            Unasked::Damaged => "keep the file, restore a backup (docs/operations.md), and run it again",
            Unasked::NoUnspentSet => "run it without --unspent: the blocks and each credit were asked for",
        }
    }

    pub(super) fn because(self, what: impl Into<String>) -> NotChecked {
        NotChecked {
            state: self.word().to_owned(),
            what: what.into(),
            next: self.next().to_owned(),
        }
    }
}

impl From<&SourceError> for NotChecked {
    fn from(error: &SourceError) -> NotChecked {
        let why = match error {
            SourceError::WrongNetwork(_) => Unasked::OtherNetwork,
            SourceError::Unreachable { help, .. } => match help {
                Help::Login => Unasked::NoLogin,
                Help::Time => Unasked::Starting,
                Help::LowerRate => Unasked::Limited,
                Help::Node => Unasked::NoNode,
            },
            _ => Unasked::NoNode,
        };
        why.because(error_line(error))
    }
}

impl Ground<'_> {
    /// What stays beyond the reach of node and books.
    pub(super) async fn limits(&self, standing: &Standing) -> Result<Vec<NotChecked>, StoreError> {
        let mut limits = Vec::new();
        let (key, top, wanted) = (standing.chain.key, standing.top, standing.wanted);
        if top < wanted {
            let counts = self
                .store
                .apart(move |database| database.read(|tx| tx.claim_counts(key, top, wanted)))
                .await?;
            let credits = counted(counts.above - counts.young, "credit");
            limits.push(Unasked::NodeBehind.because(format!(
                "its node is at height {}: blocks {} to {wanted}, and {credits} in them, were not asked for",
                standing.node_tip,
                top + 1,
            )));
        }
        let cursor = standing.reach.cursor;
        if standing.node_tip > cursor + LAG.max(standing.reach.age_blocks) {
            limits.push(Unasked::BooksBehind.because(format!(
                "creditd has not read blocks {} to {}",
                cursor + 1,
                standing.node_tip
            )));
        }
        if self.audit.scope.credits && standing.chain.state != ChainState::Following {
            limits.push(Unasked::NotFollowing.because(format!(
                "creditd does not follow the chain ({}): what is late was not asked",
                standing.chain.state.word()
            )));
        }
        Ok(limits)
    }

    /// No block to begin at: the last ones are left alone, though both sides have them.
    pub(super) fn beyond(&self, from: u64, standing: &Standing) -> Stop {
        let age = counted(standing.reach.age_blocks, "block");
        Stop::Unasked(Unasked::Beyond.because(format!(
            "no block from height {from} on was read, and {} is the last that could be: its node is at \
             height {}, the books are at {}, and {age} below that are left alone ([audit] age_blocks)",
            standing.top, standing.node_tip, standing.reach.cursor
        )))
    }
}

/// Chains with credits that the config does not name, and how many there are. Chains of other providers have
/// no blocks.
pub(super) async fn forgotten(
    store: &Store,
    is_known: impl Fn(&ChainRow) -> bool,
) -> Result<Vec<(ChainRow, NotChecked)>, StoreError> {
    let rows = store.read(|tx| tx.chains()).await?;
    let mut forgotten = Vec::new();
    for row in rows {
        if is_known(&row) || row.id.is_external() {
            continue;
        }
        let key = row.key;
        let counts = store
            .apart(move |database| database.read(|tx| tx.claim_counts(key, 0, 0)))
            .await?;
        if counts.all > 0 {
            let credits = counted(counts.all, "credit");
            let why = Unasked::NotInConfig.because(format!("{credits}, and the config names no node to ask"));
            forgotten.push((row, why));
        }
    }
    Ok(forgotten)
}
