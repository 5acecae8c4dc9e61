//! Making invoices, taking them back, and recomputing them: at the end of every transaction that moved a
//! payment to an invoice's address, what has become of it is derived anew, and each change has its event in
//! the same transaction.

use super::addresses::{AddressKey, AddressKind, counts_from};
use super::chains::{ChainKey, one};
use super::codec::int;
use super::invoices::{Invoice, NewCallback, NewInvoice};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::invoice::{Change, Life, Status, Terms, changes, keeps_expiry, status};
use crate::rules::{BlockHash, ids};
use rusqlite::{OptionalExtension, params};

/// The most invoices that expire in one transaction; the next round takes the others.
const EXPIRIES_MAX: u32 = 200;

/// The body of an event stays below 20 kB.
pub const METADATA_BYTES_MAX: usize = 8_192;
/// The same; the 200 characters that the API takes, whatever they are.
pub const REFERENCE_BYTES_MAX: usize = 800;

/// What the chain was looked at before invoices expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLook {
    /// The node's tip, which was applied.
    pub tip: BlockHash,
    /// The number of the last applied mempool list; `None` where the chain lists none.
    pub poll: Option<i64>,
    /// Tip and list were read at this moment or later. Unix milliseconds.
    pub read_at: i64,
}

/// What became of an invoice to take back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It is cancelled, now or before.
    Cancelled(Invoice),
    /// It is paid: nothing was changed.
    Settled(Invoice),
}

/// Where an invoice is to be paid.
struct Payee {
    chain: ChainKey,
    script: crate::rules::Script,
    merchant: i64,
    slug: String,
    kind: String,
    invoice: Option<String>,
}

impl ReadTx<'_> {
    /// Is there an invoice that may expire by what was read at this moment?
    ///
    /// # Errors
    /// Those of the database.
    pub fn has_expiring(&self, chain: ChainKey, read_at: i64) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM invoices WHERE chain = ?1 AND life = 'open' AND is_short = 1 \
             AND expires_at < ?2 LIMIT 1",
            params![chain.0, read_at],
        )?;
        Ok(found.is_some())
    }

    fn payee(&self, address: AddressKey) -> Result<Payee, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT a.chain, a.script, a.merchant, m.slug, a.kind, i.inv_id FROM addresses a \
             JOIN merchants m ON m.id = a.merchant LEFT JOIN invoices i ON i.address = a.id \
             WHERE a.id = ?1",
        )?;
        let found = statement.query_row([address.0], |row| {
            Ok(Payee {
                chain: ChainKey(row.get(0)?),
                script: row.get(1)?,
                merchant: row.get(2)?,
                slug: row.get(3)?,
                kind: row.get(4)?,
                invoice: row.get(5)?,
            })
        });
        found
            .optional()?
            .ok_or_else(|| StoreError::Refused("there is no such address".into()))
    }
}

impl WriteTx<'_> {
    /// Makes an invoice. What was met before it, or is first met below the block after the cursor, is not for
    /// it.
    ///
    /// # Errors
    /// `Refused` where the terms cannot be, or the address is not a watched one of the merchant, or has had
    /// an invoice: a payment to it must never count for two.
    pub fn create_invoice(&mut self, new: &NewInvoice) -> Result<Invoice, StoreError> {
        let payee = self.payee(new.address)?;
        if let Some(why) = self.barred_by_restore(payee.chain)? {
            return Err(StoreError::Refused(format!(
                "{why}: `creditd restored` shows how far it is"
            )));
        }
        let terms = Terms {
            amount: new.amount,
            tolerance: new.tolerance,
            expires_at: new.expires_at,
            cancelled_at: None,
        };
        self.check_new(new, &payee, &terms)?;
        let chain = self.chain_by_key(payee.chain)?;
        let id = ids::invoice_id(&chain.id, &payee.script);
        let birth = counts_from(&chain)?;
        let after_output: Option<i64> = self
            .conn()
            .prepare_cached("SELECT max(id) FROM outputs")?
            .query_row([], |row| row.get(0))?;
        let first = status(&terms, &[], false);
        let now = self.now_ms();
        let key = self
            .conn()
            .prepare_cached(
                "INSERT INTO invoices (inv_id, merchant, chain, address, asset, amount, tolerance, \
                 tolerance_hundredths, expires_at, confirmations, reference, metadata, token, birth_height, \
                 after_output, created_at, amount_state, time_flag, life, paid, pending, strays, is_short) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
                 ?19, ?20, ?21, 0, 1)",
            )?
            .insert(params![
                id,
                payee.merchant,
                payee.chain.0,
                new.address.0,
                new.asset.0,
                new.amount,
                new.tolerance.base,
                new.tolerance.percent_hundredths,
                new.expires_at,
                new.confirmations,
                new.reference,
                new.metadata,
                new.token,
                birth,
                after_output.unwrap_or_default(),
                now,
                first.amount.word(),
                first.time.word(),
                first.life.word(),
                first.paid,
                first.pending,
            ])?;
        if let Some(callback) = &new.callback {
            self.add_invoice_endpoint(key, &id, payee.merchant, callback)?;
        }
        self.invoice_event(&self.invoice_by_key(key)?, Change::Created)?;
        self.recompute_invoice(key)?;
        self.invoice_by_key(key)
    }

    fn check_new(&self, new: &NewInvoice, payee: &Payee, terms: &Terms) -> Result<(), StoreError> {
        let refused = |why: String| Err(StoreError::Refused(why));
        if let Err(why) = terms.check(self.now_ms()) {
            return refused(why.to_string());
        }
        if payee.kind != AddressKind::Watch.word() {
            return refused("this address is declared as own: payments to it are none".into());
        }
        if payee.slug != new.merchant {
            return refused("this address belongs to another merchant".into());
        }
        if let Some(other) = &payee.invoice {
            return refused(format!("this address has an invoice already: {other}"));
        }
        let is_payable = one::<i64>(
            self.conn(),
            "SELECT 1 FROM assets WHERE id = ?1 AND chain = ?2 AND is_listed = 1",
            params![new.asset.0, payee.chain.0],
        )?;
        if is_payable.is_none() {
            return refused("this asset cannot be paid on the chain of this address".into());
        }
        if new.metadata.len() > METADATA_BYTES_MAX || new.reference.len() > REFERENCE_BYTES_MAX {
            return refused(format!(
                "at most {REFERENCE_BYTES_MAX} bytes of reference and {METADATA_BYTES_MAX} of metadata"
            ));
        }
        match serde_json::from_str::<serde_json::Value>(&new.metadata) {
            Ok(serde_json::Value::Object(_)) => Ok(()),
            Ok(_) | Err(_) => refused("the metadata is no JSON object".into()),
        }
    }

    fn add_invoice_endpoint(
        &mut self,
        invoice: i64,
        id: &str,
        merchant: i64,
        callback: &NewCallback,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        let ep_id = ids::invoice_endpoint_id(id, &callback.url);
        let endpoint = self
            .conn()
            .prepare_cached(
                "INSERT INTO endpoints (ep_id, merchant, invoice, url, types, created_at, after_event) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT coalesce(max(seq), 0) FROM events))",
            )?
            .insert(params![
                ep_id,
                merchant,
                invoice,
                callback.url,
                callback.types,
                now
            ])?;
        self.insert_key(endpoint, &callback.key)
    }

    /// Takes an invoice back: payments from now on are credited, and not the invoice's. Again, it changes
    /// nothing.
    ///
    /// # Errors
    /// `Refused` when there is none.
    pub fn cancel_invoice(
        &mut self,
        id: &str,
        actor: &'static str,
        reason: &str,
    ) -> Result<CancelOutcome, StoreError> {
        let invoice = self
            .invoice(id)?
            .ok_or_else(|| StoreError::Refused(format!("no invoice {id}")))?;
        match invoice.status.life {
            Life::Cancelled => return Ok(CancelOutcome::Cancelled(invoice)),
            Life::Settled => return Ok(CancelOutcome::Settled(invoice)),
            Life::Open | Life::Expired => {}
        }
        let now = self.now_ms();
        self.decide(
            &invoice,
            ("cancelled_at", Some(now)),
            Life::Cancelled,
            actor,
            reason,
        )?;
        self.recompute_invoice(invoice.key)?;
        Ok(CancelOutcome::Cancelled(self.invoice_by_key(invoice.key)?))
    }

    /// Lets the invoices of a chain expire whose time was over when the chain was looked at, and that are
    /// short: the look is void when tip or list have moved on since. Returns how many did.
    ///
    /// # Errors
    /// Those of the database.
    pub fn settle_expiries(&mut self, chain: ChainKey, look: &ChainLook) -> Result<u64, StoreError> {
        let row = self.chain_by_key(chain)?;
        let is_still_so = row.cursor.is_some_and(|tip| tip.header.hash == look.tip)
            && look.poll.is_none_or(|poll| poll == row.mempool_poll);
        if !is_still_so {
            return Ok(0);
        }
        let over = self.invoices_where(
            "WHERE i.chain = ?1 AND i.life = 'open' AND i.is_short = 1 AND i.expires_at < ?2 \
             ORDER BY i.expires_at, i.id LIMIT ?3",
            params![chain.0, look.read_at, EXPIRIES_MAX],
        )?;
        let now = self.now_ms();
        let list = match look.poll {
            Some(poll) => format!(" and by mempool list {poll}"),
            None => String::new(),
        };
        let tip = row.id.print(look.tip);
        let words = format!("short at the tip {tip}{list}, when its time was over");
        for invoice in &over {
            self.decide(
                invoice,
                ("expired_at", Some(now)),
                Life::Expired,
                "daemon",
                &words,
            )?;
            self.recompute_invoice(invoice.key)?;
        }
        Ok(over.len() as u64)
    }

    /// Records or withdraws a decision, with its audit row.
    fn decide(
        &mut self,
        invoice: &Invoice,
        (column, at): (&'static str, Option<i64>),
        to: Life,
        actor: &'static str,
        words: &str,
    ) -> Result<(), StoreError> {
        let sql = format!("UPDATE invoices SET {column} = ?2 WHERE id = ?1 AND ({column} IS NULL) = ?3");
        let changed = self
            .conn()
            .prepare_cached(&sql)?
            .execute(params![invoice.key, at, at.is_some()])?;
        if changed != 1 {
            let what = format!("invoice {} has been decided already", invoice.id);
            return Err(StoreError::Corrupt(what));
        }
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO audit (at, chain, action, from_state, to_state, cause, actor) \
                 VALUES (?1, ?2, 'invoice', ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                now,
                invoice.chain.0,
                invoice.status.life.word(),
                to.word(),
                format!("{}: {words}", invoice.id),
                actor
            ])?;
        Ok(())
    }

    /// Notes that something about the payments to an invoice's address changed.
    pub(super) fn touch_invoice(&mut self, invoice: Option<i64>) {
        self.touched.extend(invoice);
    }

    /// Recomputes the invoices whose payments this transaction moved. Called at its end, so that whatever
    /// happened in between counts once.
    pub(super) fn settle_touched(&mut self) -> Result<(), StoreError> {
        while let Some(key) = self.touched.pop_first() {
            self.recompute_invoice(key)?;
        }
        Ok(())
    }

    fn recompute_invoice(&mut self, key: i64) -> Result<(), StoreError> {
        let before = self.invoice_by_key(key)?;
        let payments = self.live_payments(&before)?;
        let after = status(&before.terms, &payments, before.expired_at.is_some());
        if before.expired_at.is_some() && !keeps_expiry(&after) {
            self.decide(
                &before,
                ("expired_at", None),
                after.life,
                "daemon",
                "enough came in time after all",
            )?;
        }
        if after == before.status {
            return Ok(());
        }
        self.write_status(&before, &after)?;
        let invoice = self.invoice_by_key(key)?;
        for change in changes(&before.status, &after) {
            self.invoice_event(&invoice, change)?;
        }
        Ok(())
    }

    fn write_status(&mut self, invoice: &Invoice, after: &Status) -> Result<(), StoreError> {
        let changed = self
            .conn()
            .prepare_cached(
                "UPDATE invoices SET amount_state = ?3, time_flag = ?4, life = ?5, paid = ?6, pending = ?7, \
                 strays = ?8, is_short = ?9 WHERE id = ?1 AND life = ?2",
            )?
            .execute(params![
                invoice.key,
                invoice.status.life.word(),
                after.amount.word(),
                after.time.word(),
                after.life.word(),
                after.paid,
                after.pending,
                int(after.strays)?,
                after.is_short
            ])?;
        if changed != 1 {
            let what = format!("invoice {} is not {}", invoice.id, invoice.status.life.word());
            return Err(StoreError::Corrupt(what));
        }
        Ok(())
    }
}
