//! Naming the state that a round ended in, in the database and the log, and pausing after trouble.

use super::{FollowError, Follower, Trouble};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::rules::chain_state::ChainState;
use crate::rules::policy::Requirement;
use crate::store::StoreError;
use std::time::Duration;

/// From this look in a row on a node that is behind, or lacks a block, is called so.
const LOOKS_BEHIND: u32 = 3;

/// A finality tag that has not moved for so long has stalled.
const FINALITY_PATIENCE: Duration = Duration::from_secs(3_600);

/// The longest pause between two rounds that fail.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl<S: ChainSource> Follower<S> {
    pub(super) async fn report_following(&mut self, node: &NodeTip) -> Result<(), FollowError> {
        let (state, reason) = match (self.node_trouble(node), self.finality_trouble(node)) {
            (Some(reason), _) => (ChainState::Syncing, reason),
            (None, Some(reason)) => (ChainState::FinalityStalled, reason),
            (None, None) => (ChainState::Following, self.what_waits()),
        };
        self.report(state, &reason, Some(node.height)).await
    }

    /// What waits beside the tip, and for what, and what a node has said.
    fn what_waits(&self) -> String {
        let sweep = self.sweep.as_ref().map_or("", |sweep| sweep.waits_for());
        let complaint = self.source.complaint();
        let (restoring, rescan) = (self.restoring.as_str(), self.rescan_waits_for.as_str());
        let all = [restoring, rescan, sweep, complaint.as_str()];
        let said: Vec<&str> = all.into_iter().filter(|words| !words.is_empty()).collect();
        said.join("; ")
    }

    /// What credits wait for where they need a finality tag that the node does not have or does not move.
    pub(super) fn finality_trouble(&self, node: &NodeTip) -> Option<String> {
        let needs = |tag| self.terms.policies.values().any(|policy| policy.needs(tag));
        let tagged = [
            (Requirement::Safe, node.tags.safe, self.finality.safe),
            (
                Requirement::Finalized,
                node.tags.finalized,
                self.finality.finalized,
            ),
        ];
        tagged.into_iter().find_map(|(tag, told, (accepted, since))| {
            let word = tag.tag().filter(|_| needs(tag))?;
            let still = self.clock.instant() - since;
            let minutes = still.as_secs() / 60;
            match (told, accepted) {
                (None, _) => Some(format!(
                    "the node tells of no {word} block, which the policy asks for: nothing is credited by it"
                )),
                (Some(_), _) if still < FINALITY_PATIENCE => None,
                (Some(_), Some(height)) if height < node.height => Some(format!(
                    "the {word} block has stood at height {height} for {minutes} minutes: what needs \
                     it waits"
                )),
                (Some(_), Some(_)) => None,
                (Some(told), None) => Some(format!(
                    "the {word} block at height {} has not been one of ours for {minutes} minutes: what \
                     needs it waits",
                    told.height
                )),
            }
        })
    }

    pub(super) fn went_well(&mut self) {
        self.failures = 0;
        self.looks_behind = 0;
    }

    /// Is it the first or second look in a row at which a chain that was followed does not go on, because the
    /// node is behind or lacks a block? Behind one address there may be several nodes, one of which always
    /// lags: it is behind what another one has answered, or asked for a block that only the other one has.
    /// That is no change of state at each of its answers.
    fn may_be_another_node(&mut self, state: ChainState) -> bool {
        if !matches!(state, ChainState::Behind | ChainState::MissingData) {
            self.looks_behind = 0;
            return false;
        }
        self.looks_behind = self.looks_behind.saturating_add(1);
        let was_following = self
            .reported
            .as_ref()
            .is_some_and(|(last, ..)| last.is_following() || *last == ChainState::FinalityStalled);
        was_following && self.looks_behind < LOOKS_BEHIND
    }

    /// Names the state that trouble means, and pauses.
    pub(super) async fn suffer(&mut self, trouble: Trouble) -> Result<(), FollowError> {
        if matches!(trouble, Trouble::Store(StoreError::Busy(_))) {
            // Somebody else was writing for long: the same round again, in whatever state the chain is.
            self.pulse.beat(self.clock, self.settings.poll);
            self.clock.sleep(self.settings.poll).await;
            return Ok(());
        }
        let state = match &trouble {
            Trouble::Stuck { state, .. } => *state,
            Trouble::Source(SourceError::WrongNetwork(_)) => ChainState::WrongNetwork,
            Trouble::Source(SourceError::Pruned { .. }) => ChainState::PrunedGap,
            Trouble::Source(SourceError::MissingData(_) | SourceError::UnknownBlock(_)) => {
                ChainState::MissingData
            }
            Trouble::Source(SourceError::BadBlock { .. }) => ChainState::BadBlock,
            Trouble::Source(SourceError::Unreachable { .. }) => ChainState::Unreachable,
            Trouble::Store(StoreError::DiskFull(_)) => ChainState::DiskFull,
            Trouble::Store(StoreError::Contradiction(_) | StoreError::Constraint(_)) => ChainState::BadBlock,
            Trouble::Store(_) => return Err(self.fatal(trouble)),
        };
        // Whatever the node was, it has to show itself again.
        self.is_identified &= !matches!(state, ChainState::Unreachable | ChainState::WrongNetwork);
        if !self.may_be_another_node(state) {
            self.report(state, &self.words(&trouble), self.node_seen).await?;
        }
        let pause = self.settings.poll * 2_u32.saturating_pow(self.failures.min(6));
        self.failures = self.failures.saturating_add(1);
        let is_reachable = !matches!(state, ChainState::Unreachable | ChainState::DiskFull);
        let span = if is_reachable {
            self.settings.poll
        } else {
            pause.min(PAUSE_MAX)
        };
        self.pulse.beat(self.clock, span);
        self.clock.sleep(span).await;
        Ok(())
    }

    fn words(&self, trouble: &Trouble) -> String {
        let words = trouble.to_string();
        match trouble {
            Trouble::Source(error) => error.print_on(&self.settings.chain.id, &words),
            Trouble::Store(_) | Trouble::Stuck { .. } => words,
        }
    }

    pub(super) fn fatal(&self, trouble: Trouble) -> FollowError {
        let words = self.words(&trouble);
        let source = match trouble {
            Trouble::Store(source) => source,
            Trouble::Source(_) => StoreError::Contradiction(words),
            Trouble::Stuck { reason, .. } => StoreError::Contradiction(reason),
        };
        FollowError {
            alias: self.settings.chain.alias.clone(),
            source,
        }
    }

    /// Writes the state down when it changed. A full disk cannot take it: then the log has it.
    async fn report(
        &mut self,
        state: ChainState,
        reason: &str,
        node: Option<u64>,
    ) -> Result<(), FollowError> {
        let now = (state, reason.to_owned(), node);
        let is_halted = self.reported.as_ref().is_some_and(|(last, ..)| last.is_halt());
        if self.reported.as_ref() == Some(&now) || (is_halted && !state.ends_halt()) {
            return Ok(());
        }
        self.pulse.note_state(self.clock, state, reason);
        let alias = &self.settings.chain.alias;
        let is_news = self
            .reported
            .as_ref()
            .is_none_or(|(last, why, _)| *last != state || !gist(why).eq(gist(reason)));
        if is_news {
            match state {
                ChainState::Following => tracing::info!(chain = %alias, "{alias} is following"),
                _ => {
                    tracing::warn!(chain = %alias, "{alias} is {}: {reason}", state.word())
                }
            }
        }
        let (key, why) = (self.key, reason.to_owned());
        let written = self.store.write(move |tx| {
            tx.set_chain_state(key, state, &why)?;
            node.map_or(Ok(()), |height| tx.note_node(key, height))
        });
        match written.await {
            Ok(()) => self.reported = Some(now),
            Err(StoreError::DiskFull(_) | StoreError::Busy(_)) => {}
            Err(source) => return Err(self.fatal(Trouble::Store(source))),
        }
        Ok(())
    }
}

/// The words of a reason without its numbers and hashes, which change at every look while nothing else does.
fn gist(reason: &str) -> impl Iterator<Item = &str> {
    let is_word = |word: &&str| !word.contains(|letter: char| letter.is_ascii_digit());
    reason.split_whitespace().filter(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_alone_are_one() {
        let same = |one, other| gist(one).eq(gist(other));
        assert!(same(
            "catching up: block 3 of 166",
            "catching up: block 99 of 167"
        ));
        assert!(same("the tip 5aab at height 7 is", "the tip 0ff1 at height 8 is"));
        assert!(!same("refused", "unauthorized"));
        assert!(!same("warming up: Loading", "warming up: Verifying"));
        assert!(!same("", "a rescan waits"));
    }
}
