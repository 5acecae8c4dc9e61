//! Blocks that the audit went past and could not read: they are kept, so that no later run says that all was
//! read.

use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use rusqlite::params;

/// A stretch of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The first block.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// Why the first could not be read.
    pub why: String,
}

impl Unread {
    /// `block 7`, or `blocks 7 to 9`.
    pub fn name(&self) -> String {
        match self.from == self.to {
            true => format!("block {}", self.from),
            false => format!("blocks {} to {}", self.from, self.to),
        }
    }
}

impl ReadTx<'_> {
    /// The stretches of a chain that end at a height or above it, lowest first.
    pub fn unread(&self, chain: ChainKey, above: u64, limit: usize) -> Result<Vec<Unread>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT from_height, to_height, why FROM audit_unread WHERE chain = ?1 AND to_height >= ?2 \
             ORDER BY from_height LIMIT ?3",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![chain.0, int(above)?, limit])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(Unread {
                from: uint(row.get(0)?)?,
                to: uint(row.get(1)?)?,
                why: row.get(2)?,
            });
        }
        Ok(found)
    }

    /// The stretch with so many below it.
    pub fn unread_at(&self, chain: ChainKey, below: u64) -> Result<Option<Unread>, StoreError> {
        let height = one::<i64>(
            self.conn(),
            "SELECT from_height FROM audit_unread WHERE chain = ?1 ORDER BY from_height LIMIT 1 OFFSET ?2",
            params![chain.0, int(below)?],
        )?;
        let Some(height) = height.map(uint).transpose()? else {
            return Ok(None);
        };
        Ok(self.unread(chain, height, 1)?.pop())
    }

    /// How many stretches there are.
    pub fn unread_count(&self, chain: ChainKey) -> Result<u64, StoreError> {
        let count = one::<i64>(
            self.conn(),
            "SELECT count(*) FROM audit_unread WHERE chain = ?1",
            [chain.0],
        )?;
        uint(count.unwrap_or_default())
    }
}

impl WriteTx<'_> {
    /// Notes that a stretch could not be read, as one with those that it touches.
    pub fn note_unread(&mut self, chain: ChainKey, new: &Unread) -> Result<(), StoreError> {
        self.note_read(chain, new.from, new.to)?;
        let mut whole = new.clone();
        for near in self.unread(chain, new.from.saturating_sub(1), 2)? {
            if near.to + 1 == whole.from {
                (whole.from, whole.why) = (near.from, near.why);
            } else if near.from == whole.to + 1 {
                whole.to = near.to;
            }
        }
        self.note_read(chain, whole.from, whole.to)?;
        self.insert_unread(chain, &whole)
    }

    /// Takes a stretch of blocks out of what was not read.
    pub fn note_read(&mut self, chain: ChainKey, from: u64, to: u64) -> Result<(), StoreError> {
        loop {
            let Some(known) = self
                .unread(chain, from, 1)?
                .pop()
                .filter(|known| known.from <= to)
            else {
                return Ok(());
            };
            self.conn()
                .prepare_cached("DELETE FROM audit_unread WHERE chain = ?1 AND from_height = ?2")?
                .execute(params![chain.0, int(known.from)?])?;
            if let Some(below) = from.checked_sub(1).filter(|below| known.from <= *below) {
                let below = Unread {
                    to: below,
                    ..known.clone()
                };
                self.insert_unread(chain, &below)?;
            }
            if known.to > to {
                let above = Unread {
                    from: to + 1,
                    ..known
                };
                self.insert_unread(chain, &above)?;
            }
        }
    }

    fn insert_unread(&mut self, chain: ChainKey, new: &Unread) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "INSERT INTO audit_unread (chain, from_height, to_height, why) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![chain.0, int(new.from)?, int(new.to)?, new.why])?;
        Ok(())
    }
}
