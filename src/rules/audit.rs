//! What the audit thinks of a payment: what the books claim against what the chain shows, and what the chain
//! shows against what the books have. Only kinds come out of here; words are made where addresses and
//! symbols are known.

use super::policy::Requirement;
use super::state::State;
use super::{Amount, Asset, BlockHash, Outpoint, Paid, Script};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// Credited, and the best chain has no such payment.
    NotOnChain,
    /// Booked in another block than the one that it is in.
    OtherBlock,
    /// Booked with another address, asset or amount.
    OtherContent,
    /// Booked as a payment of a transaction that failed.
    NotSuccessful,
    /// Paid to a watched address, and not booked.
    Unbooked,
    /// Long due, and not credited.
    Overdue,
    /// Booked as a move of the merchant's own coin, and it spends somebody else's.
    NotInternal,
    /// An unspent coin of a watched address that is not booked.
    UnspentUnbooked,
    /// The tables contradict themselves.
    Invariant,
    /// The file is damaged: pages, tables or indexes.
    Damaged,
}

impl FindingKind {
    /// Every kind.
    pub const ALL: [FindingKind; 10] = [
        FindingKind::NotOnChain,
        FindingKind::OtherBlock,
        FindingKind::OtherContent,
        FindingKind::NotSuccessful,
        FindingKind::Unbooked,
        FindingKind::Overdue,
        FindingKind::NotInternal,
        FindingKind::UnspentUnbooked,
        FindingKind::Invariant,
        FindingKind::Damaged,
    ];

    /// The word in the database, JSON, metrics and tables.
    pub fn word(self) -> &'static str {
        match self {
            FindingKind::NotOnChain => "not_on_chain",
            FindingKind::OtherBlock => "other_block",
            FindingKind::OtherContent => "other_content",
            FindingKind::NotSuccessful => "not_successful",
            FindingKind::Unbooked => "unbooked",
            FindingKind::Overdue => "overdue",
            FindingKind::NotInternal => "not_internal",
            FindingKind::UnspentUnbooked => "unspent_unbooked",
            FindingKind::Invariant => "invariant",
            FindingKind::Damaged => "damaged",
        }
    }

    /// It is of the books as a whole, and of no chain.
    pub fn is_of_books(self) -> bool {
        match self {
            FindingKind::Invariant | FindingKind::Damaged => true,
            FindingKind::NotOnChain
            | FindingKind::OtherBlock
            | FindingKind::OtherContent
            | FindingKind::NotSuccessful
            | FindingKind::Unbooked
            | FindingKind::Overdue
            | FindingKind::NotInternal
            | FindingKind::UnspentUnbooked => false,
        }
    }

    /// Reads [`FindingKind::word`] back.
    pub fn from_word(word: &str) -> Option<FindingKind> {
        FindingKind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Who asked: what one pass found no other one takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditPass {
    /// The tables, of themselves.
    Books,
    /// Credits, by their outpoints.
    Credits,
    /// What is due.
    Overdue,
    /// What blocks pay.
    Outputs,
    /// What is unspent.
    Unspent,
}

impl AuditPass {
    const ALL: [AuditPass; 5] = [
        AuditPass::Books,
        AuditPass::Credits,
        AuditPass::Overdue,
        AuditPass::Outputs,
        AuditPass::Unspent,
    ];

    /// The word in the database and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            AuditPass::Books => "books",
            AuditPass::Credits => "credits",
            AuditPass::Overdue => "overdue",
            AuditPass::Outputs => "outputs",
            AuditPass::Unspent => "unspent",
        }
    }

    /// Reads [`AuditPass::word`] back.
    pub fn from_word(word: &str) -> Option<AuditPass> {
        AuditPass::ALL.into_iter().find(|pass| pass.word() == word)
    }
}

/// What the books say of a credit that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The credit.
    pub id: String,
    /// Where the chain must show it: transaction, and output number or position of execution 0.
    pub outpoint: Outpoint,
    /// Who is paid.
    pub script: Script,
    /// In what.
    pub asset: Asset,
    /// How much.
    pub amount: Amount,
    /// The height of its block.
    pub height: u64,
    /// The hash of that block, as we hold it.
    pub hash: Option<BlockHash>,
}

/// What the books have at an outpoint that pays a script of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// Payments to the script are deposits; false = it was declared own.
    pub is_watched: bool,
    /// Nothing below it counts; `None` = nothing counts yet.
    pub from: Option<u64>,
    /// The output.
    pub output: Option<BookedOutput>,
    /// What became of it.
    pub deposit: Option<BookedDeposit>,
}

/// An output as the books have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookedOutput {
    /// Who is paid.
    pub script: Script,
    /// In what.
    pub asset: Asset,
    /// How much.
    pub amount: Amount,
    /// It counts as a move of the merchant's own coin.
    pub is_internal: bool,
    /// The heights of the blocks that it is in.
    pub heights: Vec<u64>,
}

/// A deposit as the books have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookedDeposit {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: State,
    /// The height that must be reached before it is credited.
    pub due: Option<u64>,
    /// What must reach it.
    pub needs: Option<Requirement>,
    /// An operator or a doubt keeps it from being credited.
    pub is_held: bool,
}

impl BookedDeposit {
    /// Whether it should have been credited long ago.
    pub fn is_overdue(&self, reach: &Reach) -> bool {
        let is_past = self.due.is_some_and(|due| reach.is_past(due, self.needs));
        self.state == State::Confirming && !self.is_held && is_past
    }
}

/// How far the chain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Our tip.
    pub cursor: u64,
    /// The highest of our blocks with the tag.
    pub safe: Option<u64>,
    /// The highest of our blocks with the tag.
    pub finalized: Option<u64>,
    /// What became due so many blocks ago or less is not overdue yet.
    pub age_blocks: u64,
}

impl Reach {
    /// Whether a height was reached so long ago that what waited for it cannot still wait.
    fn is_past(self, due: u64, needs: Option<Requirement>) -> bool {
        let top = match needs {
            Some(Requirement::Safe) => self.safe,
            Some(Requirement::Finalized) => self.finalized,
            Some(Requirement::Confirmations(_)) | None => Some(self.cursor),
        };
        top.is_some_and(|top| due.saturating_add(self.age_blocks) <= top.min(self.cursor))
    }
}

/// Whether the chain shows what a credit claims.
pub fn judge_credit(claim: &Claim, shown: Option<&Paid>) -> Option<FindingKind> {
    let Some(paid) = shown else {
        return Some(FindingKind::NotOnChain);
    };
    let is_same = (&paid.script, paid.asset, paid.amount) == (&claim.script, claim.asset, claim.amount);
    let is_elsewhere = paid.at.height != claim.height || claim.hash.is_some_and(|hash| hash != paid.at.hash);
    match () {
        () if !paid.is_success => Some(FindingKind::NotSuccessful),
        () if !is_same => Some(FindingKind::OtherContent),
        () if is_elsewhere => Some(FindingKind::OtherBlock),
        () => None,
    }
}

/// Whether the books have what the chain pays to a script of ours. `is_all_ours` = everything that its
/// transaction spends (EVM: whoever pays) belongs to the merchant. Whether it is credited in time is another
/// question ([`BookedDeposit::is_overdue`]), asked without reading its block again.
pub fn judge_paid(paid: &Paid, booked: &Booked, is_all_ours: bool) -> Option<FindingKind> {
    let counts = booked.from.is_some_and(|from| from <= paid.at.height);
    let Some(output) = &booked.output else {
        let is_owed = counts && booked.is_watched && paid.is_success && !paid.amount.is_zero();
        // A move of own coin has a row as well: without one it would be taken for somebody's payment later.
        return is_owed.then_some(FindingKind::Unbooked);
    };
    let state = booked.deposit.as_ref().map(|deposit| deposit.state);
    if !paid.is_success {
        let is_counted = matches!(state, Some(State::Confirming | State::Credited));
        return is_counted.then_some(FindingKind::NotSuccessful);
    }
    if (&output.script, output.asset, output.amount) != (&paid.script, paid.asset, paid.amount) {
        return Some(FindingKind::OtherContent);
    }
    if !output.heights.contains(&paid.at.height) {
        return Some(FindingKind::OtherBlock);
    }
    if output.is_internal && !is_all_ours {
        return Some(FindingKind::NotInternal);
    }
    let Some(deposit) = &booked.deposit else {
        let is_owed = booked.is_watched && !output.is_internal && !paid.amount.is_zero();
        return is_owed.then_some(FindingKind::Unbooked);
    };
    match deposit.state {
        State::Credited | State::Confirming => None,
        // Its block is on the best chain and old: the books say that it is in none.
        State::Seen | State::Evicted | State::Replaced | State::Orphaned | State::Failed => {
            Some(FindingKind::Unbooked)
        }
    }
}

#[cfg(test)]
mod tests;
