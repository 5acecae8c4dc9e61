//! What deposits need, and which of them are due.

use super::advance::Terms;
use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::deposits::{Cause, Deposit, Place};
use super::txs::Made;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::policy::{self, Requirement};
use crate::rules::state::{Fact, State};
use crate::rules::{Amount, HeldHeader};
use rusqlite::params;

/// What is due in chain ?1 at the tip height ?2.
pub(super) const IS_DUE: &str = "d.chain = ?1 AND d.state = 'confirming' AND d.held_reason IS NULL \
     AND d.due_height <= CASE d.tag WHEN 'safe' THEN (SELECT safe_height FROM chains WHERE id = ?1) \
     WHEN 'finalized' THEN (SELECT finalized_height FROM chains WHERE id = ?1) ELSE ?2 END \
     AND d.due_height <= ?2";

impl ReadTx<'_> {
    /// Is anything due at the tip that no new block will bring up (a released hold, a lifted ceiling)?
    pub fn has_due(&self, chain: ChainKey, tip: u64, ceiling: Option<u64>) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            &format!("SELECT 1 FROM deposits d WHERE {IS_DUE} AND d.height <= ?3 LIMIT 1"),
            params![chain.0, int(tip)?, int(ceiling.unwrap_or(tip))?],
        )?;
        Ok(found.is_some())
    }

    /// The block of ours that others have to agree to before what is due is credited: the one at the highest
    /// due height, or the one that they were `asked` for before, as long as anything is due by it. `None`
    /// where nothing is due.
    pub fn agreement_point(
        &self,
        chain: ChainKey,
        tip: u64,
        ceiling: Option<u64>,
        asked: Option<&HeldHeader>,
    ) -> Result<Option<HeldHeader>, StoreError> {
        let due = |end: &str| {
            one::<Option<i64>>(
                self.conn(),
                &format!("SELECT {end}(d.due_height) FROM deposits d WHERE {IS_DUE} AND d.height <= ?3"),
                params![chain.0, int(tip)?, int(ceiling.unwrap_or(tip))?],
            )
        };
        let (Some(lowest), Some(highest)) = (due("min")?.flatten(), due("max")?.flatten()) else {
            return Ok(None);
        };
        if let Some(asked) = asked
            && asked.height >= uint(lowest)?
            && self.header_at(chain, asked.height)? == Some(*asked)
        {
            return Ok(Some(*asked));
        }
        self.header_at_or_above(chain, uint(highest)?)
    }

    /// The same ceiling, lowered so that nothing is credited which became due above the `agreed` block.
    pub fn agreed_ceiling(
        &self,
        chain: ChainKey,
        tip: u64,
        ceiling: Option<u64>,
        agreed: &HeldHeader,
    ) -> Result<Option<u64>, StoreError> {
        let first = one::<Option<i64>>(
            self.conn(),
            &format!("SELECT min(d.height) FROM deposits d WHERE {IS_DUE} AND d.due_height > ?3"),
            params![chain.0, int(tip)?, int(agreed.height)?],
        )?;
        let below = first.flatten().map(uint).transpose()?;
        let below = below.map(|first| first.saturating_sub(1));
        Ok(match (ceiling, below) {
            (Some(ceiling), Some(below)) => Some(ceiling.min(below)),
            (ceiling, below) => ceiling.or(below),
        })
    }
}

impl WriteTx<'_> {
    /// Credits what is due at the tip: everything uncredited whose due height was reached, however long ago.
    pub(super) fn credit_due(
        &mut self,
        chain: ChainKey,
        tip: &HeldHeader,
        ceiling: Option<u64>,
    ) -> Result<u64, StoreError> {
        let ceiling = int(ceiling.unwrap_or(tip.height))?;
        let due: Vec<Deposit> = self.deposits_where(
            &format!("WHERE {IS_DUE} AND d.height <= ?3 ORDER BY d.due_height, d.output"),
            params![chain.0, int(tip.height)?, ceiling],
        )?;
        let credited = due.len() as u64;
        for mut deposit in due {
            let due_height = deposit.due_height.unwrap_or_default();
            let words = match deposit.needs.and_then(Requirement::tag) {
                Some(tag) => format!("its block at height {due_height} is {tag}"),
                None => format!("the tip is at height {}, it was due at {due_height}", tip.height),
            };
            let cause = Cause::block(tip.height, tip.header.hash, words);
            self.move_deposit(&mut deposit, Fact::Due, None, &cause)?;
        }
        Ok(credited)
    }

    /// Recomputes what uncredited deposits need after the policy changed. History stays as it is.
    pub fn apply_policy(&mut self, chain: ChainKey, terms: &Terms) -> Result<u64, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT DISTINCT height FROM deposits WHERE chain = ?1 AND state = 'confirming' ORDER BY height",
        )?;
        let heights = statement
            .query_map([chain.0], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        let mut changed = 0;
        for height in heights {
            let height = uint(height)?;
            changed += self.reconsider(chain, height, terms)?;
        }
        Ok(changed)
    }

    /// Holds the uncredited deposits of one block against the policy and the sums as they are now.
    pub(super) fn reconsider(
        &mut self,
        chain: ChainKey,
        height: u64,
        terms: &Terms,
    ) -> Result<u64, StoreError> {
        let deposits = self.deposits_where(
            "WHERE d.chain = ?1 AND d.height = ?2 AND d.state <> 'failed' ORDER BY d.output",
            params![chain.0, int(height)?],
        )?;
        let made: Vec<Made> = deposits
            .into_iter()
            .map(|deposit| Made { deposit, hold: None })
            .collect();
        let sums = self.sums(height, &made)?;
        let mut changed = 0;
        for Made { mut deposit, .. } in made {
            let sum = sums
                .get(&(deposit.merchant_key, deposit.asset_key))
                .copied()
                .unwrap_or(deposit.amount);
            let place = place(height, sum, &deposit, terms)?;
            let is_same = place.due == deposit.due();
            let is_uncredited = deposit.state == Some(State::Confirming);
            if is_uncredited && !is_same && !self.is_held_credit(&deposit)? {
                self.set_due(&mut deposit, place)?;
                changed += 1;
            }
        }
        Ok(changed)
    }
}

/// Where a deposit stands in its block and what it needs there. An asset that the config does not name any
/// more keeps what it needed; nothing of it is met for the first time.
pub(super) fn place(height: u64, sum: Amount, deposit: &Deposit, terms: &Terms) -> Result<Place, StoreError> {
    let policy = terms.policies.get(&deposit.kind);
    let raised = deposit.invoice.as_ref().and_then(|invoice| invoice.confirmations);
    let needs = policy.map(|policy| policy.required(sum).raised_to(raised));
    let needs = needs.or(deposit.needs);
    let needs =
        needs.ok_or_else(|| StoreError::Corrupt(format!("there is no policy for {}", deposit.asset)))?;
    let due_height = policy::due_height(height, needs, deposit.is_coinbase)
        .ok_or_else(|| StoreError::Corrupt(format!("no due height from height {height}")))?;
    Ok(Place::due(height, needs, due_height))
}
