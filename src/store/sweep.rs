//! Balances of watched addresses, where the chain's own coin is watched without what contracts send. Each
//! address has a mark: a block, and the balance there. A later reading waits until its block is final; then
//! what was recorded between the two has to explain the difference, and the reading is the next mark. Coin
//! that nothing explains becomes an unattributed amount. Nothing here writes to deposits, credits or journal.

use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::unattributed::Unexplained;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{Amount, BlockHash, HeldHeader, Script};
use rusqlite::params;

/// Marks that are made, and readings that are judged, in one transaction.
const CHORES_MAX: u32 = 500;

/// Where a node has dropped the state that an interval should start at, it starts at the lowest of the blocks
/// so far below the tip whose state the node still has: full nodes keep some 128.
const LATER_STARTS: [u64; 8] = [120, 96, 64, 32, 16, 8, 4, 0];

/// How much of a sweep is wanted at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepSpan {
    /// Each balance is read once in so many milliseconds.
    pub every_ms: i64,
    /// The most intervals to open.
    pub openings_max: u32,
    /// The most balances to read.
    pub readings_max: u32,
    /// Where the nodes call no block final, one so far below the tip counts as final.
    pub reorg_window: u64,
}

/// An interval to open: the balance at the block before the first one that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The address.
    pub address: i64,
    /// Its account.
    pub script: Script,
    /// The height that it should start after.
    pub wanted: u64,
    /// Our block there; `None` where it is not held any more.
    pub hash: Option<BlockHash>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepWork {
    /// The database has work of its own: [`WriteTx::sweep_chores`].
    pub has_chores: bool,
    /// Intervals to open.
    pub openings: Vec<Opening>,
    /// Where they may start instead, lowest first; the last is the tip.
    pub later: Vec<(u64, BlockHash)>,
    /// Addresses whose balance is to be read at the tip.
    pub due: Vec<(i64, Script)>,
    /// The tip.
    pub tip: HeldHeader,
}

/// A balance that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceRead {
    /// The address.
    pub address: i64,
    /// The block.
    pub height: u64,
    /// Its hash.
    pub hash: BlockHash,
    /// The balance; `None` = the node has none to tell.
    pub balance: Option<Amount>,
    /// Of one that opens an interval: the height that it should have started after.
    pub wanted: Option<u64>,
}

/// The chain's own coin as it is listed.
struct Coin {
    asset: i64,
    from: i64,
}

/// A mark and the reading that follows it.
struct Judged {
    address: i64,
    mark: (u64, BlockHash, Amount),
    read: (u64, BlockHash, Amount),
    script: Script,
}

impl ReadTx<'_> {
    fn coin(&self, chain: ChainKey) -> Result<Option<Coin>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, from_height FROM assets WHERE chain = ?1 AND contract IS NULL AND is_listed = 1",
        )?;
        let mut rows = statement.query([chain.0])?;
        Ok(match rows.next()? {
            Some(row) => row.get::<_, Option<i64>>(1)?.map(|from| (row.get(0), from)),
            None => None,
        }
        .map(|(asset, from)| asset.map(|asset| Coin { asset, from }))
        .transpose()?)
    }

    /// The block up to which nothing can change: the last that the nodes called final, or where they call
    /// none so, the one below the reorg window.
    fn settled_height(&self, chain: ChainKey, reorg_window: u64) -> Result<Option<u64>, StoreError> {
        let row = self.chain_by_key(chain)?;
        let below_window = || row.cursor?.height.checked_sub(reorg_window);
        Ok(row.finalized.or_else(below_window))
    }

    /// What a sweep has to do now; `None` where there is nothing to sweep.
    pub fn sweep_work(
        &self,
        chain: ChainKey,
        span: SweepSpan,
        now_ms: i64,
    ) -> Result<Option<SweepWork>, StoreError> {
        let Some(coin) = self.coin(chain)? else {
            return Ok(None);
        };
        let Some(tip) = self.chain_by_key(chain)?.cursor else {
            return Ok(None);
        };
        let settled = self.settled_height(chain, span.reorg_window)?;
        let is_read = match settled {
            Some(settled) => one::<i64>(self.conn(), IS_READ, params![chain.0, int(settled)?])?.is_some(),
            None => false,
        };
        let has_chores = is_read
            || one::<i64>(self.conn(), IS_NEW, [chain.0])?.is_some()
            || one::<i64>(self.conn(), IS_AHEAD, params![chain.0, now_ms])?.is_some();
        let mut later = Vec::new();
        for below in LATER_STARTS {
            let height = tip.height.checked_sub(below);
            let held = height.map(|height| self.header_at(chain, height)).transpose()?;
            later.extend(held.flatten().map(|held| (held.height, held.header.hash)));
        }
        let mut openings = self.openings(chain, &coin, span.openings_max)?;
        // Where an operator took the chain back below it, the block is yet to come.
        openings.retain(|opening| opening.wanted <= tip.height);
        let mut statement = self.conn().prepare_cached(DUE)?;
        let due_before = now_ms.saturating_sub(span.every_ms);
        let bounds = params![chain.0, due_before, int(tip.height)?, span.readings_max];
        let due = statement.query_map(bounds, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Some(SweepWork {
            has_chores,
            openings,
            later,
            due: due.collect::<Result<_, _>>()?,
            tip,
        }))
    }

    fn openings(&self, chain: ChainKey, coin: &Coin, limit: u32) -> Result<Vec<Opening>, StoreError> {
        let mut statement = self.conn().prepare_cached(UNOPENED)?;
        let mut rows = statement.query(params![chain.0, coin.from, limit])?;
        let mut openings = Vec::new();
        while let Some(row) = rows.next()? {
            let wanted = uint(row.get(2)?)?;
            openings.push(Opening {
                address: row.get(0)?,
                script: row.get(1)?,
                wanted,
                hash: self.hash_at(chain, wanted)?,
            });
        }
        Ok(openings)
    }

    /// The sum of what is recorded of an asset to an address in blocks above one height and up to another;
    /// `None` past 2^256 - 1.
    pub(super) fn recorded_between(
        &self,
        (chain, address, asset): (ChainKey, i64, i64),
        above: u64,
        to: u64,
    ) -> Result<Option<Amount>, StoreError> {
        let mut statement = self.conn().prepare_cached(RECORDED)?;
        let mut rows = statement.query(params![address, asset, chain.0, int(above)?, int(to)?])?;
        let mut sum = Some(Amount::ZERO);
        while let Some(row) = rows.next()? {
            let amount: Amount = row.get(0)?;
            sum = sum.and_then(|sum| sum.checked_add(amount));
        }
        Ok(sum)
    }
}

impl WriteTx<'_> {
    /// Makes marks for addresses that are new, and judges the readings whose blocks are final by now. Returns
    /// how many amounts it found that nothing explains.
    pub fn sweep_chores(&mut self, chain: ChainKey, reorg_window: u64) -> Result<u64, StoreError> {
        self.conn()
            .prepare_cached(MARK_NEW)?
            .execute(params![chain.0, CHORES_MAX])?;
        let now = self.now_ms();
        self.conn()
            .prepare_cached(SET_BACK)?
            .execute(params![chain.0, now])?;
        let (Some(coin), Some(settled)) = (self.coin(chain)?, self.settled_height(chain, reorg_window)?)
        else {
            return Ok(0);
        };
        let mut found = 0;
        for judged in self.judgeable(chain, settled)? {
            found += u64::from(self.judge(chain, &coin, &judged)?);
        }
        Ok(found)
    }

    fn judgeable(&self, chain: ChainKey, settled: u64) -> Result<Vec<Judged>, StoreError> {
        let mut statement = self.conn().prepare_cached(JUDGEABLE)?;
        let mut rows = statement.query(params![chain.0, int(settled)?, CHORES_MAX])?;
        let mut judgeable = Vec::new();
        while let Some(row) = rows.next()? {
            judgeable.push(Judged {
                address: row.get(0)?,
                mark: (uint(row.get(1)?)?, row.get(2)?, row.get(3)?),
                read: (uint(row.get(4)?)?, row.get(5)?, row.get(6)?),
                script: row.get(7)?,
            });
        }
        Ok(judgeable)
    }

    /// True when it found coin that nothing explains.
    fn judge(&mut self, chain: ChainKey, coin: &Coin, judged: &Judged) -> Result<bool, StoreError> {
        let (from_height, from_hash, before) = judged.mark;
        let (to_height, to_hash, after) = judged.read;
        // A block that left the chain took its marks and readings with it; this is to be sure.
        for (height, hash) in [(from_height, from_hash), (to_height, to_hash)] {
            if self.hash_at(chain, height)?.is_some_and(|ours| ours != hash) {
                self.leave_mark(chain, judged.address)?;
                return Ok(false);
            }
        }
        self.conn()
            .prepare_cached(MOVE_MARK)?
            .execute(params![chain.0, judged.address])?;
        // Nothing was recorded of a coin that was not listed.
        if coin.from > int(from_height)?.saturating_add(1) {
            return Ok(false);
        }
        let of = (chain, judged.address, coin.asset);
        let recorded = self.recorded_between(of, from_height, to_height)?;
        let expected = recorded.and_then(|recorded| before.checked_add(recorded));
        // Less is coin that went. A sum past 2^256 is more than any balance.
        let amount = expected.and_then(|expected| after.checked_sub(expected));
        let (Some(recorded), Some(amount)) = (recorded, amount.filter(|amount| !amount.is_zero())) else {
            return Ok(false);
        };
        self.record_unattributed(&Unexplained {
            chain,
            address: judged.address,
            script: &judged.script,
            asset: coin.asset,
            from_height,
            to_height,
            to_hash,
            amount,
            recorded,
        })
    }

    /// Takes balances over as marks and as readings, as far as their blocks are still ours.
    pub fn note_balances(&mut self, chain: ChainKey, balances: &[BalanceRead]) -> Result<(), StoreError> {
        let now = self.now_ms();
        let mut late = Vec::new();
        for read in balances {
            if self.hash_at(chain, read.height)? != Some(read.hash) {
                continue;
            }
            let height = int(read.height)?;
            match (read.wanted, read.balance) {
                (None, Some(balance)) => {
                    let row = params![chain.0, read.address, height, read.hash, balance, now];
                    self.conn().prepare_cached(KEEP_READING)?.execute(row)?;
                }
                (Some(wanted), Some(balance)) => {
                    let row = params![chain.0, read.address, height, read.hash, balance, now];
                    let opened = self.conn().prepare_cached(OPEN)?.execute(row)?;
                    if opened == 1 && read.height > wanted {
                        late.push((wanted, read.height));
                    }
                }
                // The others have their turn first.
                (Some(_), None) => {
                    let row = params![chain.0, read.address, now];
                    self.conn().prepare_cached(PUT_OFF)?.execute(row)?;
                }
                (None, None) => {}
            }
        }
        self.audit_late(chain, &late)
    }

    /// What came before the state that the nodes still have is not compared with anything: it must not look
    /// as if it had been.
    fn audit_late(&mut self, chain: ChainKey, late: &[(u64, u64)]) -> Result<(), StoreError> {
        let lowest = late.iter().map(|(wanted, _)| wanted).min();
        let highest = late.iter().map(|(_, height)| height).max();
        let (Some(lowest), Some(highest)) = (lowest, highest) else {
            return Ok(());
        };
        let words = format!(
            "balances of {} addresses are compared from height {highest} on, not from {lowest}: the node has \
             dropped the state before",
            late.len()
        );
        self.audit_chain(chain, "sweep", "", "", &words)
    }

    /// Forgets marks and readings in blocks above one that the chain goes back to.
    pub(super) fn leave_marks(&mut self, chain: ChainKey, height: u64) -> Result<(), StoreError> {
        for sql in [LEAVE_READINGS, LEAVE_MARKS, LEAVE_STARTS] {
            self.conn()
                .prepare_cached(sql)?
                .execute(params![chain.0, int(height)?])?;
        }
        Ok(())
    }

    fn leave_mark(&mut self, chain: ChainKey, address: i64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "UPDATE balance_marks SET height = NULL, hash = NULL, balance = NULL, read_height = NULL, \
                 read_hash = NULL, read_balance = NULL, asked_at = 0 WHERE chain = ?1 AND address = ?2",
            )?
            .execute(params![chain.0, address])?;
        Ok(())
    }
}

const IS_READ: &str = "SELECT 1 FROM balance_marks WHERE chain = ?1 AND read_height <= ?2 LIMIT 1";
const IS_NEW: &str = "SELECT 1 FROM addresses WHERE chain = ?1 AND kind = 'watch' AND id > \
     coalesce((SELECT address FROM balance_marks WHERE chain = ?1 ORDER BY address DESC LIMIT 1), 0) LIMIT 1";
const MARK_NEW: &str = "INSERT INTO balance_marks (chain, address, asked_at) \
     SELECT chain, id, 0 FROM addresses WHERE chain = ?1 AND kind = 'watch' AND id > \
     coalesce((SELECT address FROM balance_marks WHERE chain = ?1 ORDER BY address DESC LIMIT 1), 0) \
     ORDER BY id LIMIT ?2";
/// The clock was set back since it was read.
const IS_AHEAD: &str = "SELECT 1 FROM balance_marks WHERE chain = ?1 AND height IS NOT NULL \
     AND read_height IS NULL AND asked_at > ?2 LIMIT 1";
const SET_BACK: &str = "UPDATE balance_marks SET asked_at = 0 WHERE chain = ?1 AND height IS NOT NULL \
     AND read_height IS NULL AND asked_at > ?2";
const UNOPENED: &str = "SELECT b.address, a.script, \
     max(a.from_height, ?2, coalesce(b.open_at, -1) + 1, 1) - 1 \
     FROM balance_marks b JOIN addresses a ON a.id = b.address \
     WHERE b.chain = ?1 AND b.height IS NULL AND a.from_height IS NOT NULL ORDER BY b.asked_at LIMIT ?3";
const DUE: &str = "SELECT b.address, a.script FROM balance_marks b JOIN addresses a ON a.id = b.address \
     WHERE b.chain = ?1 AND b.height IS NOT NULL AND b.read_height IS NULL AND b.asked_at <= ?2 \
     AND b.height < ?3 ORDER BY b.asked_at LIMIT ?4";
const JUDGEABLE: &str = "SELECT b.address, b.height, b.hash, b.balance, b.read_height, b.read_hash, \
     b.read_balance, a.script FROM balance_marks b JOIN addresses a ON a.id = b.address \
     WHERE b.chain = ?1 AND b.read_height <= ?2 ORDER BY b.read_height LIMIT ?3";
/// An output whose transaction is in a block and that is not what an earlier execution of it paid.
const RECORDED: &str = "SELECT o.amount FROM outputs o JOIN inclusions i ON i.tx = o.tx \
     LEFT JOIN deposits d ON d.output = o.id \
     WHERE o.address = ?1 AND o.asset = ?2 AND i.chain = ?3 AND i.height > ?4 AND i.height <= ?5 \
     AND (d.output IS NULL OR d.state = 'confirming' OR d.state = 'credited')";
const MOVE_MARK: &str = "UPDATE balance_marks SET height = read_height, hash = read_hash, \
     balance = read_balance, read_height = NULL, read_hash = NULL, read_balance = NULL \
     WHERE chain = ?1 AND address = ?2";
const KEEP_READING: &str = "UPDATE balance_marks SET read_height = ?3, read_hash = ?4, read_balance = ?5, \
     asked_at = ?6 WHERE chain = ?1 AND address = ?2 AND height < ?3 AND read_height IS NULL";
const OPEN: &str = "UPDATE balance_marks SET height = ?3, hash = ?4, balance = ?5, asked_at = ?6, \
     open_at = NULL WHERE chain = ?1 AND address = ?2 AND height IS NULL";
const PUT_OFF: &str =
    "UPDATE balance_marks SET asked_at = ?3 WHERE chain = ?1 AND address = ?2 AND height IS NULL";
const LEAVE_READINGS: &str = "UPDATE balance_marks SET read_height = NULL, read_hash = NULL, \
     read_balance = NULL, asked_at = 0 WHERE chain = ?1 AND read_height > ?2";
const LEAVE_MARKS: &str = "UPDATE balance_marks SET height = NULL, hash = NULL, balance = NULL, \
     open_at = ?2, asked_at = 0 WHERE chain = ?1 AND height > ?2";
const LEAVE_STARTS: &str = "UPDATE balance_marks SET open_at = ?2 WHERE chain = ?1 AND open_at > ?2";

#[cfg(test)]
mod tests {
    use super::*;

    /// A sweep of a million addresses must not read them all at each look.
    #[test]
    fn no_step_of_a_sweep_walks_through_all_addresses() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        let all = [
            IS_READ,
            IS_NEW,
            IS_AHEAD,
            SET_BACK,
            MARK_NEW,
            UNOPENED,
            DUE,
            JUDGEABLE,
            RECORDED,
            MOVE_MARK,
            KEEP_READING,
            OPEN,
            PUT_OFF,
            LEAVE_READINGS,
            LEAVE_MARKS,
            LEAVE_STARTS,
        ];
        for sql in all {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
            let steps = statement
                .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
                .unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            let is_walk = |step: &String| {
                step.starts_with("SCAN") && !step.starts_with("SCAN CONSTANT") || step.contains("TEMP B-TREE")
            };
            assert!(!steps.iter().any(is_walk), "{sql}\n{steps:#?}");
            // Those are read in order, up to a limit.
            let is_by_chain_alone = |step: &String| {
                step.ends_with("(chain=?)")
                    && !step.contains("_unopened")
                    && !step.contains("PRIMARY KEY (chain=?)")
            };
            assert!(!steps.iter().any(is_by_chain_alone), "{sql}\n{steps:#?}");
        }
    }
}
