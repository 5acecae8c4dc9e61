//! What operators do to the books: hold and release deposits, and re-anchor a chain whose branch was left
//! deeper than the headers that we hold. Each acts once however often it is asked, and is audited.

use super::advance::{Reorg, Terms};
use super::chains::ChainKey;
use super::codec::{int, uint};
use super::deposits::{Cause, Deposit, Fork};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::chain_state::ChainState;
use crate::rules::state::State;
use crate::rules::{BlockHash, HeldHeader};
use rusqlite::params;

/// The reason of a hold that an operator set.
pub(super) const HELD_OPERATOR: &str = "operator";

/// A re-anchoring that an operator has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reanchor {
    /// Its number.
    pub id: i64,
    /// The height to go back to.
    pub fork_height: u64,
    /// Our header there: the node must serve it before anything happens.
    pub fork_hash: BlockHash,
}

impl ReadTx<'_> {
    /// The re-anchoring that waits to be worked off.
    pub fn asked_reanchor(&self, chain: ChainKey) -> Result<Option<Reanchor>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, fork_height, fork_hash FROM reanchors WHERE chain = ?1 AND state = 'asked'",
        )?;
        let mut rows = statement.query([chain.0])?;
        let row = rows.next()?;
        row.map(|row| {
            Ok(Reanchor {
                id: row.get(0)?,
                fork_height: uint(row.get(1)?)?,
                fork_hash: row.get(2)?,
            })
        })
        .transpose()
    }

    /// The deposits that going back to a height would move: everything above it.
    pub fn deposits_above(&self, chain: ChainKey, height: u64) -> Result<Vec<Deposit>, StoreError> {
        self.deposits_where(
            "WHERE d.chain = ?1 AND d.height > ?2 ORDER BY d.height, d.output",
            params![chain.0, int(height)?],
        )
    }

    /// The header of ours that a re-anchoring may go back to.
    ///
    /// # Errors
    /// `Refused` where the chain waits for nobody's word, or no header is held at that height, naming the
    /// nearest that is.
    pub fn reanchor_point(&self, chain: ChainKey, height: u64) -> Result<HeldHeader, StoreError> {
        let row = self.chain_by_key(chain)?;
        if !matches!(row.state, ChainState::ReorgTooDeep | ChainState::Behind) {
            return Err(StoreError::Refused(format!(
                "{} is {}, and a reorg is accepted only where a chain is reorg_too_deep, or behind on \
                 another branch: see `creditd chain status`",
                row.alias,
                row.state.word()
            )));
        }
        if let Some(held) = self.header_at(chain, height)? {
            return Ok(held);
        }
        let below: Option<i64> = self.conn().query_row(
            "SELECT max(height) FROM headers WHERE chain = ?1 AND height < ?2",
            params![chain.0, int(height)?],
            |row| row.get(0),
        )?;
        Err(StoreError::Refused(match below {
            Some(below) => format!("no header is held at height {height}: the nearest below is at {below}"),
            None => format!("no header is held at or below height {height}: see `creditd chain status`"),
        }))
    }
}

impl WriteTx<'_> {
    /// Holds a deposit. A credit that it has is reversed. False when it was held already.
    pub fn hold(&mut self, id: &str, reason: &str) -> Result<bool, StoreError> {
        let mut deposit = self.named_deposit(id)?;
        if deposit.held_reason.is_some() {
            return Ok(false);
        }
        self.hold_deposit(&mut deposit, HELD_OPERATOR, &Cause::operator(reason))?;
        Ok(true)
    }

    /// Releases a held deposit; the follower's next round credits it if it is due. False when it was not
    /// held.
    ///
    /// # Errors
    /// `Refused` unless its transaction is in a block of the best chain: released elsewhere it could be paid
    /// twice.
    pub fn release(&mut self, id: &str, reason: &str) -> Result<bool, StoreError> {
        let mut deposit = self.named_deposit(id)?;
        if deposit.held_reason.is_none() {
            return Ok(false);
        }
        if deposit.state != Some(State::Confirming) {
            let state = deposit.state.map_or("", State::word);
            return Err(StoreError::Refused(format!(
                "{id} is {state}: only a deposit in a block of the best chain can be released"
            )));
        }
        self.release_deposit(&mut deposit, &Cause::operator(reason))?;
        Ok(true)
    }

    fn named_deposit(&self, id: &str) -> Result<Deposit, StoreError> {
        self.deposit(id)?.ok_or_else(|| {
            StoreError::Refused(format!(
                "no deposit {id}: `creditd deposits list` and `creditd tx TXID` show ids"
            ))
        })
    }

    /// Asks for a re-anchoring. The same again is the same. Another height takes the place of the one that
    /// waits: a height on the branch that was left is never worked off, and must not be the last word.
    pub fn ask_reanchor(
        &mut self,
        chain: ChainKey,
        height: u64,
        reason: &str,
    ) -> Result<Reanchor, StoreError> {
        let point = self.reanchor_point(chain, height)?;
        let now = self.now_ms();
        match self.asked_reanchor(chain)? {
            Some(asked) if asked.fork_height == height => return Ok(asked),
            Some(asked) => self.conn().execute(
                "UPDATE reanchors SET fork_height = ?2, fork_hash = ?3, reason = ?4, asked_at = ?5 \
                 WHERE id = ?1 AND state = 'asked'",
                params![asked.id, int(height)?, point.header.hash, reason, now],
            )?,
            None => self.conn().execute(
                "INSERT INTO reanchors (chain, fork_height, fork_hash, state, reason, asked_at) \
                 VALUES (?1, ?2, ?3, 'asked', ?4, ?5)",
                params![chain.0, int(height)?, point.header.hash, reason, now],
            )?,
        };
        self.audit_operator(
            chain,
            "accept-reorg",
            &format!("back to height {height}: {reason}"),
        )?;
        self.asked_reanchor(chain)?
            .ok_or_else(|| StoreError::Corrupt("a re-anchoring vanished".into()))
    }

    /// Works a re-anchoring off, once the node has served our hash at its height: everything above leaves
    /// the best chain by the ordinary edges, and the follower reads on from there. False when something else
    /// is asked for by now, or our branch has changed.
    pub fn work_reanchor(
        &mut self,
        chain: ChainKey,
        asked: &Reanchor,
        terms: &Terms,
    ) -> Result<bool, StoreError> {
        let row = self.chain_by_key(chain)?;
        let point = self.header_at(chain, asked.fork_height)?;
        let (Some(cursor), Some(point)) = (row.cursor, point) else {
            return Ok(false);
        };
        if self.asked_reanchor(chain)? != Some(*asked) || point.header.hash != asked.fork_hash {
            return Ok(false);
        }
        let reorg = Reorg {
            fork: Some(Fork {
                height: point.height,
                depth: cursor.height.saturating_sub(point.height),
            }),
            left: self.drop_above(chain, &point, &cursor)?,
            ..Reorg::default()
        };
        if cursor.height > point.height {
            self.move_cursor(chain, cursor.height, point.height)?;
            self.count_reorg(chain, cursor.height - point.height)?;
        }
        let at = self.context(chain)?;
        self.settle_left(&at, &reorg, terms)?;
        let now = self.now_ms();
        self.conn().execute(
            "UPDATE reanchors SET state = 'done', done_at = ?2 WHERE id = ?1",
            params![asked.id, now],
        )?;
        self.cursor_reanchored(row.id.as_str(), point.height);
        Ok(true)
    }

    /// Closes a re-anchoring that there is no reason for any more: nothing is undone for it.
    pub fn void_reanchor(&mut self, chain: ChainKey, asked: &Reanchor, why: &str) -> Result<(), StoreError> {
        let now = self.now_ms();
        let closed = self.conn().execute(
            "UPDATE reanchors SET state = 'void', done_at = ?2 WHERE id = ?1 AND state = 'asked'",
            params![asked.id, now],
        )?;
        if closed == 1 {
            let words = format!("not back to height {}: {why}", asked.fork_height);
            self.audit_act(chain, "accept-reorg", &words, "daemon")?;
        }
        Ok(())
    }

    /// Drops headers and inclusions above a header and says which transactions were there, with their block.
    fn drop_above(
        &mut self,
        chain: ChainKey,
        point: &HeldHeader,
        cursor: &HeldHeader,
    ) -> Result<std::collections::BTreeMap<i64, HeldHeader>, StoreError> {
        let above = params![chain.0, int(point.height)?];
        let mut statement = self.conn().prepare_cached(
            "SELECT tx, max(height) FROM inclusions WHERE chain = ?1 AND height > ?2 GROUP BY tx",
        )?;
        let rows = statement.query_map(above, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut left = std::collections::BTreeMap::new();
        for (tx, height) in rows.collect::<Result<Vec<(i64, i64)>, _>>()? {
            left.insert(tx, self.header_at(chain, uint(height)?)?.unwrap_or(*cursor));
        }
        self.conn()
            .execute("DELETE FROM inclusions WHERE chain = ?1 AND height > ?2", above)?;
        self.conn().execute(
            "UPDATE outputs SET spent_by = NULL, spent_height = NULL WHERE spent_height > ?2 \
             AND tx IN (SELECT id FROM txs WHERE chain = ?1)",
            above,
        )?;
        self.step_back(chain, point.height + 1)?;
        self.lower_tags(chain, point.height)?;
        self.leave_marks(chain, point.height)?;
        self.recall.forget_headers();
        self.conn()
            .execute("DELETE FROM headers WHERE chain = ?1 AND height > ?2", above)?;
        Ok(left)
    }

    pub(super) fn audit_operator(
        &mut self,
        chain: ChainKey,
        action: &str,
        words: &str,
    ) -> Result<(), StoreError> {
        self.audit_act(chain, action, words, "operator")
    }

    fn audit_act(
        &mut self,
        chain: ChainKey,
        action: &str,
        words: &str,
        actor: &str,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn().execute(
            "INSERT INTO audit (at, chain, action, cause, actor) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![now, chain.0, action, words, actor],
        )?;
        Ok(())
    }
}
