//! What the audit reads of the books: the credits that it asks the chain for, and what they have where the
//! chain shows a payment. What it writes is in `audit_runs`.

use super::chains::{ChainKey, one};
use super::codec::{asset, int, uint};
use super::{ReadTx, StoreError};
use crate::rules::audit::{Booked, BookedDeposit, BookedOutput, Claim};
use crate::rules::policy::Requirement;
use crate::rules::state::State;
use crate::rules::{Asset, Outpoint, Paid, Script};
use rusqlite::{OptionalExtension as _, Row, params};
use std::collections::{BTreeMap, BTreeSet};

/// The position of an EVM outpoint number, without its execution.
const POSITION: u64 = (1 << 40) - 1;

/// A claim, and where it stands among those of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// Its place: the next ones have higher ones.
    pub place: i64,
    /// The claim.
    pub claim: Claim,
}

/// How many claims of a chain there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimCounts {
    /// All.
    pub all: u64,
    /// Those in blocks above what can be asked for.
    pub above: u64,
    /// Of them, those that are too young.
    pub young: u64,
}

/// The next claims of a chain. The plus keeps the order of credits, so that nothing is sorted.
pub(super) const CLAIMS_SLICE: &str =
    "+c.chain = ?1 AND c.rowid > ?2 AND d.height <= ?3 ORDER BY c.rowid LIMIT ?4";

/// The cross join keeps credits first.
pub(super) fn claims_sql(filter: &str) -> String {
    format!(
        "SELECT c.rowid, c.id, c.txid, c.vout, c.amount, a.script, s.contract, d.height, h.hash, \
         n.caip GLOB 'eip155:*' \
         FROM credits c CROSS JOIN outputs o ON o.id = c.output JOIN addresses a ON a.id = o.address \
         JOIN assets s ON s.id = c.asset JOIN deposits d ON d.output = c.output \
         JOIN chains n ON n.id = c.chain \
         LEFT JOIN headers h ON h.chain = d.chain AND h.height = d.height \
         WHERE d.state = 'credited' AND {filter}"
    )
}

impl ReadTx<'_> {
    /// Credits that count, after `place` and in blocks up to `top`, at most `limit` of them.
    pub fn claims(
        &self,
        chain: ChainKey,
        place: i64,
        top: u64,
        limit: u32,
    ) -> Result<Vec<ClaimRow>, StoreError> {
        self.claims_where(CLAIMS_SLICE, params![chain.0, place, int(top)?, limit])
    }

    /// The claim of one credit, while it counts.
    pub fn claim_of(&self, credit: &str) -> Result<Option<Claim>, StoreError> {
        let mut found = self.claims_where("c.id = ?1", [credit])?;
        Ok(found.pop().map(|row| row.claim))
    }

    fn claims_where(&self, filter: &str, values: impl rusqlite::Params) -> Result<Vec<ClaimRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(&claims_sql(filter))?;
        let mut rows = statement.query(values)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(ClaimRow {
                place: row.get(0)?,
                claim: claim(row)?,
            });
        }
        Ok(found)
    }

    /// How many credits of a chain count: all, those in blocks above `top`, and those above `wanted`.
    pub fn claim_counts(&self, chain: ChainKey, top: u64, wanted: u64) -> Result<ClaimCounts, StoreError> {
        let counts = self.conn().query_row(
            "SELECT count(*), count(*) FILTER (WHERE height > ?2), count(*) FILTER (WHERE height > ?3) \
             FROM deposits WHERE chain = ?1 AND state = 'credited'",
            params![chain.0, int(top)?, int(wanted)?],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, i64>(2)?,
                ))
            },
        )?;
        Ok(ClaimCounts {
            all: uint(counts.0)?,
            above: uint(counts.1)?,
            young: uint(counts.2)?,
        })
    }

    /// Deposits that could be credited and are not, with the height that each waits for.
    pub fn waiting(&self, chain: ChainKey, up_to: u64) -> Result<Vec<BookedDeposit>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT dep_id, state, due_height, confirmations, tag, held_reason IS NOT NULL FROM deposits \
             WHERE chain = ?1 AND state = 'confirming' AND held_reason IS NULL AND due_height <= ?2 \
             ORDER BY due_height LIMIT 1000",
        )?;
        let rows = statement.query_map(params![chain.0, int(up_to)?], |row| {
            Ok((deposit_parts(row, 0)?, row.get::<_, bool>(5)?))
        })?;
        rows.map(|row| {
            let (parts, is_held) = row?;
            deposit(parts, is_held)
        })
        .collect()
    }

    /// Of what a block pays: what goes to scripts of ours in assets that we know, with what the books have.
    pub fn booked(&self, chain: ChainKey, paid: Vec<Paid>) -> Result<Vec<(Paid, Booked)>, StoreError> {
        let is_evm = self.chain_by_key(chain)?.id.is_evm();
        let assets = self.asset_heights(chain)?;
        let mut rule = self.conn().prepare_cached(
            "SELECT kind = 'watch', from_height FROM addresses WHERE chain = ?1 AND script = ?2",
        )?;
        let mut found = Vec::new();
        for paid in paid {
            let Some(listed_from) = assets.get(&paid.asset) else {
                continue;
            };
            let known = rule.query_row(params![chain.0, paid.script], |row| {
                Ok((row.get::<_, bool>(0)?, row.get::<_, Option<i64>>(1)?))
            });
            let Some((is_watched, from)) = known.optional()? else {
                continue;
            };
            let from = from.map(uint).transpose()?;
            let (output, deposit) = self.booked_at(chain, &paid, is_evm)?;
            let booked = Booked {
                is_watched,
                from: from.zip(*listed_from).map(|(from, listed)| from.max(listed)),
                output,
                deposit,
            };
            found.push((paid, booked));
        }
        Ok(found)
    }

    fn asset_heights(&self, chain: ChainKey) -> Result<BTreeMap<Asset, Option<u64>>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT contract, from_height FROM assets WHERE chain = ?1 AND is_listed = 1")?;
        let mut rows = statement.query([chain.0])?;
        let mut known = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let from: Option<i64> = row.get(1)?;
            known.insert(asset(row.get(0)?)?, from.map(uint).transpose()?);
        }
        Ok(known)
    }

    /// The output at a place of a transaction. Of several executions (EVM) the one that says what the chain
    /// says, or else the last.
    fn booked_at(
        &self,
        chain: ChainKey,
        paid: &Paid,
        is_evm: bool,
    ) -> Result<(Option<BookedOutput>, Option<BookedDeposit>), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT d.dep_id, d.state, d.due_height, d.confirmations, d.tag, d.held_reason IS NOT NULL, \
             o.vout, a.script, s.contract, o.amount, o.origin, \
             (SELECT group_concat(i.height) FROM inclusions i WHERE i.tx = t.id) \
             FROM txs t JOIN outputs o ON o.tx = t.id JOIN addresses a ON a.id = o.address \
             JOIN assets s ON s.id = o.asset LEFT JOIN deposits d ON d.output = o.id \
             WHERE t.chain = ?1 AND t.txid = ?2 AND iif(?4, o.vout & 1099511627775, o.vout) = ?3 \
             ORDER BY o.vout",
        )?;
        let mut rows = statement.query(params![
            chain.0,
            paid.outpoint.txid,
            int(paid.outpoint.vout)?,
            is_evm
        ])?;
        let mut found = (None, None);
        while let Some(row) = rows.next()? {
            let heights: Option<String> = row.get(11)?;
            let heights = heights.unwrap_or_default();
            let output = BookedOutput {
                script: row.get(7)?,
                asset: asset(row.get(8)?)?,
                amount: row.get(9)?,
                is_internal: row.get::<_, String>(10)? == "internal",
                heights: heights
                    .split(',')
                    .filter_map(|height| height.parse().ok())
                    .collect(),
            };
            let is_same =
                (&output.script, output.asset, output.amount) == (&paid.script, paid.asset, paid.amount);
            let deposit = match row.get::<_, Option<String>>(0)? {
                Some(_) => Some(deposit(deposit_parts(row, 0)?, row.get(5)?)?),
                None => None,
            };
            found = (Some(output), deposit);
            if is_same {
                break;
            }
        }
        Ok(found)
    }

    /// Whether all of these outpoints are outputs to addresses of the merchant that this script belongs to.
    pub fn is_all_ours(
        &self,
        chain: ChainKey,
        script: &Script,
        spent: &[Outpoint],
    ) -> Result<bool, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT 1 FROM txs t JOIN outputs o ON o.tx = t.id JOIN addresses a ON a.id = o.address \
             WHERE t.chain = ?1 AND t.txid = ?2 AND o.vout = ?3 AND a.merchant = \
             (SELECT merchant FROM addresses WHERE chain = ?1 AND script = ?4)",
        )?;
        for outpoint in spent {
            if !statement.exists(params![chain.0, outpoint.txid, int(outpoint.vout)?, script])? {
                return Ok(false);
            }
        }
        Ok(!spent.is_empty())
    }

    /// EVM: whether an account belongs to the merchant that this script belongs to.
    pub fn is_same_owner(
        &self,
        chain: ChainKey,
        script: &Script,
        account: &Script,
    ) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM addresses a JOIN addresses b ON b.chain = a.chain AND b.merchant = a.merchant \
             WHERE a.chain = ?1 AND a.script = ?2 AND b.script = ?3",
            params![chain.0, script, account],
        )?;
        Ok(found.is_some())
    }

    /// Which of these scripts are ours.
    pub fn ours_among(&self, chain: ChainKey, scripts: &[Script]) -> Result<BTreeSet<Script>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT 1 FROM addresses WHERE chain = ?1 AND script = ?2")?;
        let mut ours = BTreeSet::new();
        for script in scripts {
            if statement.exists(params![chain.0, script])? {
                ours.insert(script.clone());
            }
        }
        Ok(ours)
    }

    /// Watched scripts of a chain, after `place`, with the place of the last.
    pub fn watched_scripts(
        &self,
        chain: ChainKey,
        place: i64,
        limit: u32,
    ) -> Result<Vec<(i64, Script)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, script FROM addresses WHERE chain = ?1 AND kind = 'watch' AND id > ?2 \
             ORDER BY id LIMIT ?3",
        )?;
        let rows = statement.query_map(params![chain.0, place, limit], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The lowest height that anything counts from; of the rules that came or were lowered after a list
    /// version, or of all. `None` where there are none.
    pub fn lowest_from(&self, chain: ChainKey, since: Option<i64>) -> Result<Option<u64>, StoreError> {
        let lowest = one::<Option<i64>>(
            self.conn(),
            "SELECT min(from_height) FROM addresses WHERE chain = ?1 AND version > ?2",
            params![chain.0, since.unwrap_or(-1)],
        )?;
        lowest.flatten().map(uint).transpose()
    }

    /// The assets that are watched now, and the height that each counts from.
    pub fn listed_from(&self, chain: ChainKey) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT caip, from_height FROM assets WHERE chain = ?1 AND is_listed = 1 \
             AND from_height IS NOT NULL",
        )?;
        let rows = statement.query_map([chain.0], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
        rows.map(|row| {
            let (caip, from) = row?;
            Ok((caip, uint(from)?))
        })
        .collect()
    }
}

fn claim(row: &Row<'_>) -> Result<Claim, StoreError> {
    let vout = uint(row.get(3)?)?;
    let is_evm: bool = row.get(9)?;
    Ok(Claim {
        id: row.get(1)?,
        outpoint: Outpoint {
            txid: row.get(2)?,
            vout: if is_evm { vout & POSITION } else { vout },
        },
        amount: row.get(4)?,
        script: row.get(5)?,
        asset: asset(row.get(6)?)?,
        height: uint(row.get(7)?)?,
        hash: row.get(8)?,
    })
}

type Parts = (String, State, Option<i64>, Option<i64>, Option<String>);

fn deposit_parts(row: &Row<'_>, first: usize) -> rusqlite::Result<Parts> {
    Ok((
        row.get(first)?,
        row.get(first + 1)?,
        row.get(first + 2)?,
        row.get(first + 3)?,
        row.get(first + 4)?,
    ))
}

fn deposit((id, state, due, confirmations, tag): Parts, is_held: bool) -> Result<BookedDeposit, StoreError> {
    let count = |count: i64| u32::try_from(count).map(Requirement::Confirmations);
    let needs = match (tag.as_deref(), confirmations) {
        (Some("safe"), _) => Some(Requirement::Safe),
        (Some(_), _) => Some(Requirement::Finalized),
        (None, Some(confirmations)) => Some(
            count(confirmations)
                .map_err(|_| StoreError::Corrupt(format!("{id} needs {confirmations} confirmations")))?,
        ),
        (None, None) => None,
    };
    Ok(BookedDeposit {
        id,
        state,
        due: due.map(uint).transpose()?,
        needs,
        is_held,
    })
}
