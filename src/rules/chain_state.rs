//! The named states of a follower. It waits and resumes alone in some, and is halted for an operator in
//! others; the daemon stays up in each.

/// What a chain's follower is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainState {
    /// Not heard of a node yet.
    Starting,
    /// At the tip or catching up.
    Following,
    /// The node itself is catching up: no eviction and no expiry, old blocks may still be credited.
    Syncing,
    /// The node is lower than we are, or on another branch that is no better.
    Behind,
    /// The node does not answer as it should.
    Unreachable,
    /// A finality tag does not move (EVM).
    FinalityStalled,
    /// The node lacks a block that it has promised.
    MissingData,
    /// No space: nothing is written until there is some.
    DiskFull,
    /// Halt: the node is on another network than the config says.
    WrongNetwork,
    /// Halt: the node has dropped a block that we need.
    PrunedGap,
    /// Halt: a better branch leaves ours deeper than the headers that we hold.
    ReorgTooDeep,
    /// Halt: a block breaks the rules, or contradicts what we hold.
    BadBlock,
}

impl ChainState {
    /// Every state.
    pub const ALL: [ChainState; 12] = [
        ChainState::Starting,
        ChainState::Following,
        ChainState::Syncing,
        ChainState::Behind,
        ChainState::Unreachable,
        ChainState::FinalityStalled,
        ChainState::MissingData,
        ChainState::DiskFull,
        ChainState::WrongNetwork,
        ChainState::PrunedGap,
        ChainState::ReorgTooDeep,
        ChainState::BadBlock,
    ];

    /// The word used in SQL, JSON, logs and documentation.
    pub fn word(self) -> &'static str {
        match self {
            ChainState::Starting => "starting",
            ChainState::Following => "following",
            ChainState::Syncing => "syncing",
            ChainState::Behind => "behind",
            ChainState::Unreachable => "unreachable",
            ChainState::FinalityStalled => "finality_stalled",
            ChainState::MissingData => "missing_data",
            ChainState::DiskFull => "disk_full",
            ChainState::WrongNetwork => "wrong_network",
            ChainState::PrunedGap => "pruned_gap",
            ChainState::ReorgTooDeep => "reorg_too_deep",
            ChainState::BadBlock => "bad_block",
        }
    }

    /// Reads [`ChainState::word`] back.
    pub fn from_word(word: &str) -> Option<ChainState> {
        ChainState::ALL.into_iter().find(|state| state.word() == word)
    }

    /// True where the chain is followed as it should be.
    pub fn is_following(self) -> bool {
        self == ChainState::Following
    }

    /// True where a halt that was before is over: a round at the node went well, or another halt took its
    /// place.
    pub fn ends_halt(self) -> bool {
        self.is_halt()
            || matches!(
                self,
                ChainState::Following | ChainState::Syncing | ChainState::FinalityStalled
            )
    }

    /// True where nothing is credited until an operator has acted or the node has become right again.
    pub fn is_halt(self) -> bool {
        match self {
            ChainState::WrongNetwork
            | ChainState::PrunedGap
            | ChainState::ReorgTooDeep
            | ChainState::BadBlock => true,
            ChainState::Starting
            | ChainState::Following
            | ChainState::Syncing
            | ChainState::Behind
            | ChainState::Unreachable
            | ChainState::FinalityStalled
            | ChainState::MissingData
            | ChainState::DiskFull => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_pinned_and_read_back() {
        for state in ChainState::ALL {
            assert_eq!(ChainState::from_word(state.word()), Some(state));
        }
        let halts: Vec<&str> = ChainState::ALL
            .into_iter()
            .filter(|s| s.is_halt())
            .map(ChainState::word)
            .collect();
        assert_eq!(
            halts,
            ["wrong_network", "pruned_gap", "reorg_too_deep", "bad_block"]
        );
    }
}
