//! Coin that came to a watched address and that nothing recorded explains. A record is made once per address
//! and span of blocks, is told to operators, and is closed by one: as an outpoint, or as no payment. Closing
//! writes its own row and an audit row, nothing else: nobody is credited by it.

use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::report::{Filter, Listed, Page};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{Amount, BlockHash, Outpoint, Script, ids};
use rusqlite::types::Value;
use rusqlite::{Row, params};

/// The reason of a hold on a payment as which an unattributed amount was closed before it was recorded:
/// whoever closed it so may have booked it by hand.
pub(super) const HELD_CLOSED_BY_HAND: &str = "closed_by_hand";

/// What a sweep found.
pub(super) struct Unexplained<'a> {
    pub chain: ChainKey,
    pub address: i64,
    pub script: &'a Script,
    pub asset: i64,
    pub from_height: u64,
    pub to_height: u64,
    pub to_hash: BlockHash,
    pub amount: Amount,
    pub recorded: Amount,
}

/// What an operator found it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedAs {
    /// A payment, named by its outpoint: booked elsewhere, or recorded since.
    Outpoint(Outpoint),
    /// A block reward, a refund, a move of own coin.
    NotAPayment,
}

/// An unattributed amount, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnattributedRow {
    /// Its public id.
    pub id: String,
    /// Its chain.
    pub chain: ChainKey,
    /// The address that it came to.
    pub script: Script,
    /// The merchant's slug.
    pub merchant: String,
    /// What the address is for.
    pub reference: String,
    /// CAIP-19 id of the coin.
    pub asset: String,
    /// The coin's symbol.
    pub symbol: String,
    /// The coin's decimals.
    pub decimals: u8,
    /// At least so much, in base units.
    pub amount: Amount,
    /// It came in a block above this one.
    pub from_height: u64,
    /// It came in this block at the latest.
    pub to_height: u64,
    /// What was recorded of those blocks since it was found.
    pub recorded_since: Amount,
    /// How it was closed; `None` = it is open.
    pub closed: Option<ClosedAs>,
    /// Why it was closed so.
    pub reason: Option<String>,
    /// When it was found, Unix milliseconds.
    pub found_at: i64,
    /// When it was closed.
    pub closed_at: Option<i64>,
    address: i64,
}

impl UnattributedRow {
    /// Does what was recorded since explain it?
    pub fn is_explained(&self) -> bool {
        self.recorded_since >= self.amount
    }
}

const SELECT: &str = "SELECT u.id, u.un_id, u.chain, a.script, m.slug, a.reference, s.caip, s.symbol, \
     s.decimals, u.amount, u.from_height, u.to_height, u.recorded, u.state, u.closed_as, u.txid, u.vout, \
     u.reason, u.found_at, u.closed_at, u.address, u.asset \
     FROM unattributed u JOIN addresses a ON a.id = u.address JOIN merchants m ON m.id = a.merchant \
     JOIN assets s ON s.id = u.asset";

impl ReadTx<'_> {
    /// Unattributed amounts, newest first: of a chain, a merchant, an address, only open ones.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant.
    pub fn list_unattributed(
        &self,
        filter: &Filter,
        is_open: bool,
        page: Page,
    ) -> Result<Vec<Listed<UnattributedRow>>, StoreError> {
        let mut sql = format!("{SELECT} WHERE u.id < ?");
        let mut values = vec![Value::from(page.after.unwrap_or(i64::MAX))];
        if let Some(chain) = filter.chain {
            sql.push_str(" AND u.chain = ?");
            values.push(Value::from(chain.0));
        }
        if let Some(merchant) = &filter.merchant {
            sql.push_str(" AND a.merchant = ?");
            values.push(Value::from(self.merchant_key(merchant)?));
        }
        if let Some(script) = &filter.script {
            sql.push_str(" AND a.script = ?");
            values.push(Value::from(script.0.to_vec()));
        }
        if is_open {
            sql.push_str(" AND u.state = 'open'");
        }
        sql.push_str(" ORDER BY u.id DESC LIMIT ?");
        values.push(Value::from(page.limit));
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut list = Vec::new();
        while let Some(row) = rows.next()? {
            list.push(Listed {
                position: row.get(0)?,
                row: self.unattributed_row(row)?,
            });
        }
        Ok(list)
    }

    /// An unattributed amount by its public id.
    pub fn unattributed(&self, id: &str) -> Result<Option<UnattributedRow>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{SELECT} WHERE u.un_id = ?1"))?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(|row| self.unattributed_row(row)).transpose()
    }

    fn unattributed_row(&self, row: &Row<'_>) -> Result<UnattributedRow, StoreError> {
        let (chain, address) = (ChainKey(row.get(2)?), row.get(20)?);
        let (from_height, to_height) = (uint(row.get(10)?)?, uint(row.get(11)?)?);
        let (recorded, state): (Amount, String) = (row.get(12)?, row.get(13)?);
        let outpoint = match (row.get(15)?, row.get::<_, Option<i64>>(16)?) {
            (Some(txid), Some(vout)) => Some(Outpoint {
                txid,
                vout: uint(vout)?,
            }),
            _ => None,
        };
        let closed = match (row.get::<_, Option<String>>(14)?.as_deref(), outpoint) {
            (None, None) => None,
            (Some("outpoint"), Some(outpoint)) => Some(ClosedAs::Outpoint(outpoint)),
            (Some("not_a_payment"), None) => Some(ClosedAs::NotAPayment),
            (other, _) => return Err(StoreError::Corrupt(format!("closed as {other:?}"))),
        };
        let recorded_since = match state.as_str() {
            "open" => self
                .recorded_between((chain, address, row.get(21)?), from_height, to_height)?
                .and_then(|now| now.checked_sub(recorded)),
            _ => None,
        };
        Ok(UnattributedRow {
            id: row.get(1)?,
            chain,
            script: row.get(3)?,
            merchant: row.get(4)?,
            reference: row.get(5)?,
            asset: row.get(6)?,
            symbol: row.get(7)?,
            decimals: row.get(8)?,
            amount: row.get(9)?,
            from_height,
            to_height,
            recorded_since: recorded_since.unwrap_or(Amount::ZERO),
            closed,
            reason: row.get(17)?,
            found_at: row.get(18)?,
            closed_at: row.get(19)?,
            address,
        })
    }

    /// Is an unattributed amount closed as this outpoint?
    pub(super) fn closes_unattributed(
        &self,
        chain: ChainKey,
        outpoint: &Outpoint,
    ) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM unattributed WHERE chain = ?1 AND txid = ?2 AND vout = ?3",
            params![chain.0, outpoint.txid, int(outpoint.vout)?],
        )?;
        Ok(found.is_some())
    }

    /// Is this outpoint a recorded output to the address of an unattributed amount?
    ///
    /// # Errors
    /// `Refused` where it is recorded and pays another address, or another record is closed as it.
    pub fn names_output_of(&self, of: &UnattributedRow, outpoint: &Outpoint) -> Result<bool, StoreError> {
        let (txid, vout) = (outpoint.txid, int(outpoint.vout)?);
        let printed = self.chain_identity(of.chain)?.0.print(outpoint);
        let paid = one::<i64>(
            self.conn(),
            "SELECT o.address FROM txs t JOIN outputs o ON o.tx = t.id \
             WHERE t.chain = ?1 AND t.txid = ?2 AND o.vout = ?3",
            params![of.chain.0, txid, vout],
        )?;
        if paid.is_some_and(|paid| paid != of.address) {
            return Err(StoreError::Refused(format!(
                "{printed} pays another address than the one that {} came to",
                of.id
            )));
        }
        let other = one::<String>(
            self.conn(),
            "SELECT un_id FROM unattributed WHERE chain = ?1 AND txid = ?2 AND vout = ?3 AND un_id <> ?4",
            params![of.chain.0, txid, vout, of.id],
        )?;
        match other {
            Some(other) => Err(StoreError::Refused(format!(
                "{other} is closed as {printed} already: one payment explains one amount"
            ))),
            None => Ok(paid.is_some()),
        }
    }
}

impl WriteTx<'_> {
    /// Records coin that nothing explains, and tells operators. False when it is recorded already.
    pub(super) fn record_unattributed(&mut self, new: &Unexplained<'_>) -> Result<bool, StoreError> {
        let chain = self.chain_by_key(new.chain)?;
        let id = ids::unattributed_id(&chain.id, new.script, &new.to_hash);
        let now = self.now_ms();
        let inserted = self
            .conn()
            .prepare_cached(
                "INSERT INTO unattributed (un_id, chain, address, asset, from_height, to_height, to_hash, \
                 amount, recorded, found_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                id,
                new.chain.0,
                new.address,
                new.asset,
                int(new.from_height)?,
                int(new.to_height)?,
                new.to_hash,
                new.amount,
                new.recorded,
                now
            ])?;
        if inserted == 0 {
            return Ok(false);
        }
        let row = self.known_unattributed(&id)?;
        let words = format!(
            "{id}: {} {} to an address of {} between heights {} and {} that no recorded output explains",
            row.amount.to_units_string(row.decimals),
            row.symbol,
            row.merchant,
            row.from_height,
            row.to_height
        );
        self.audit_chain(new.chain, "unattributed", "", "open", &words)?;
        self.unattributed_event(&chain, &row)?;
        Ok(true)
    }

    fn known_unattributed(&self, id: &str) -> Result<UnattributedRow, StoreError> {
        self.unattributed(id)?.ok_or_else(|| {
            StoreError::Refused(format!(
                "no unattributed amount {id}: `creditd unattributed list` shows ids"
            ))
        })
    }

    /// Closes an unattributed amount. False when it is closed so already.
    ///
    /// # Errors
    /// `Refused` where it is closed otherwise, or the outpoint belongs to another address or record.
    pub fn close_unattributed(
        &mut self,
        id: &str,
        closed_as: ClosedAs,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let row = self.known_unattributed(id)?;
        match row.closed {
            Some(known) if known == closed_as => return Ok(false),
            Some(_) => {
                return Err(StoreError::Refused(format!(
                    "{id} is closed otherwise already: `creditd unattributed list` shows how"
                )));
            }
            None => {}
        }
        let (word, outpoint, words) = match closed_as {
            ClosedAs::Outpoint(outpoint) => {
                let is_known = self.names_output_of(&row, &outpoint)?;
                let (chain, _) = self.chain_identity(row.chain)?;
                let known = if is_known { "" } else { ", which is not recorded" };
                (
                    "outpoint",
                    Some(outpoint),
                    format!("as {}{known}", chain.print(outpoint)),
                )
            }
            ClosedAs::NotAPayment => ("not_a_payment", None, "as not a payment".to_owned()),
        };
        let now = self.now_ms();
        let vout = outpoint.map(|outpoint| int(outpoint.vout)).transpose()?;
        let closed = self.conn().execute(
            "UPDATE unattributed SET state = 'closed', closed_as = ?2, txid = ?3, vout = ?4, reason = ?5, \
             closed_at = ?6 WHERE un_id = ?1 AND state = 'open'",
            params![
                id,
                word,
                outpoint.map(|outpoint| outpoint.txid),
                vout,
                reason,
                now
            ],
        )?;
        if closed != 1 {
            return Err(StoreError::Contradiction(format!("{id} is not open")));
        }
        self.audit_operator(
            row.chain,
            "unattributed",
            &format!("{id} closed {words}: {reason}"),
        )?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_amounts_are_closed_as_one_output_whatever_was_read_before() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        conn.execute_batch(
            "PRAGMA foreign_keys = OFF; \
             INSERT INTO unattributed (un_id, chain, address, asset, from_height, to_height, to_hash, \
             amount, recorded, found_at) VALUES ('un_1', 1, 1, 1, 1, 2, zeroblob(32), '5', '0', 0), \
             ('un_2', 1, 2, 1, 1, 2, zeroblob(32), '5', '0', 0)",
        )
        .unwrap();
        let close = |id: &str, vout: i64| {
            conn.execute(
                "UPDATE unattributed SET state = 'closed', closed_as = 'outpoint', txid = zeroblob(32), \
                 vout = ?2, reason = '', closed_at = 0 WHERE un_id = ?1",
                rusqlite::params![id, vout],
            )
        };
        close("un_1", 0).unwrap();
        let twice = close("un_2", 0).unwrap_err();
        assert_eq!(
            twice.sqlite_error().map(|error| error.extended_code),
            Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
        );
        close("un_2", 1).unwrap();
    }
}
