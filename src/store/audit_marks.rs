//! How far the passes of the audit have come, and by which blocks they came there. Losing any of it costs
//! time, and no money.

use super::chains::ChainKey;
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::BlockHash;
use rusqlite::{OptionalExtension as _, params};
use std::collections::BTreeMap;

/// Where a pass has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditMark {
    /// See the table.
    pub place: u64,
    /// Blocks below it as they were read: the fewer the deeper, so that a reorg of any depth is found by a
    /// few questions, and little is read again.
    pub trail: BTreeMap<u64, BlockHash>,
    /// The list version that it was read with.
    pub version: i64,
    /// The assets that it was read with: CAIP-19 id, and the height that each counts from.
    pub tokens: BTreeMap<String, u64>,
    /// When it was last through.
    pub round_at: Option<i64>,
}

impl AuditMark {
    /// The block below its place, as it was read.
    pub fn below(&self) -> Option<BlockHash> {
        self.trail.get(&self.place.checked_sub(1)?).copied()
    }

    /// Goes on to a height; of the block below it the hash, where it is known.
    pub fn go_on(&mut self, next: u64, below: Option<BlockHash>) {
        self.place = next;
        if let (Some(height), Some(hash)) = (next.checked_sub(1), below) {
            self.trail.insert(height, hash);
        }
    }

    /// Goes back to a height.
    pub fn go_back(&mut self, place: u64) {
        self.place = place;
        self.trail.split_off(&place);
    }

    /// Drops blocks of the trail that lie closer together than it takes: no gap is longer than half the way
    /// up from it.
    pub fn thin(&mut self) {
        let heights: Vec<u64> = self.trail.keys().rev().copied().collect();
        let Some(top) = heights.first().copied() else {
            return;
        };
        let mut kept = top;
        for pair in heights.windows(2).skip(1) {
            let [at, below] = [pair[0], pair[1]];
            if kept - below <= (top - kept) / 2 {
                self.trail.remove(&at);
            } else {
                kept = at;
            }
        }
    }
}

impl ReadTx<'_> {
    /// Where a pass has come to; the beginning where it never ran.
    pub fn audit_mark(&self, chain: ChainKey, pass: &str) -> Result<AuditMark, StoreError> {
        let row = self.conn().query_row(
            "SELECT place, trail, version, tokens, round_at FROM audit_marks WHERE chain = ?1 AND pass = ?2",
            params![chain.0, pass],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, i64>(2)?,
                    row.get::<_, String>(3)?,
                    row.get(4)?,
                ))
            },
        );
        let Some((place, trail, version, tokens, round_at)) = row.optional()? else {
            return Ok(AuditMark::default());
        };
        Ok(AuditMark {
            place: uint(place)?,
            trail: read_trail(&trail),
            version,
            tokens: serde_json::from_str(&tokens).unwrap_or_default(),
            round_at,
        })
    }
}

/// An old or odd text costs time and nothing else, as that of the assets does.
fn read_trail(text: &str) -> BTreeMap<u64, BlockHash> {
    let read: BTreeMap<u64, String> = serde_json::from_str(text).unwrap_or_default();
    let hash = |(height, hash): (u64, String)| Some((height, BlockHash::from_hex(&hash)?));
    read.into_iter().filter_map(hash).collect()
}

impl WriteTx<'_> {
    /// Notes where a pass has come to.
    pub fn set_audit_mark(
        &mut self,
        chain: ChainKey,
        pass: &str,
        mark: &AuditMark,
    ) -> Result<(), StoreError> {
        let tokens = serde_json::to_string(&mark.tokens).unwrap_or_else(|_| "{}".to_owned());
        let trail: BTreeMap<u64, String> = mark
            .trail
            .iter()
            .map(|(height, hash)| (*height, hash.to_string()))
            .collect();
        let trail = serde_json::to_string(&trail).unwrap_or_else(|_| "{}".to_owned());
        self.conn()
            .prepare_cached(
                "INSERT INTO audit_marks (chain, pass, place, trail, version, tokens, round_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (chain, pass) DO UPDATE SET \
                 place = excluded.place, trail = excluded.trail, version = excluded.version, \
                 tokens = excluded.tokens, round_at = excluded.round_at",
            )?
            .execute(params![
                chain.0,
                pass,
                int(mark.place)?,
                trail,
                mark.version,
                tokens,
                mark.round_at
            ])?;
        Ok(())
    }
}
