//! Invoices as they are stored: what was agreed, the decisions taken, and what has become of each by
//! [`rules::invoice`](crate::rules::invoice). Their writing is in `invoicing`.

use super::addresses::AddressKey;
use super::assets::AssetKey;
use super::chains::{ChainKey, one};
use super::codec::{asset, int, uint};
use super::deposits::Deposit;
use super::{ReadTx, StoreError};
use crate::address::{self, Payable, payment_uri};
use crate::rules::invoice::{
    AmountState, Life, Mark, Payment, Status, Terms, TimeFlag, Tolerance, mark, paid_at,
};
use crate::rules::state::State;
use crate::rules::{Amount, Asset, ChainId, Script};
use crate::webhook::Key;
use rusqlite::Row;

/// An invoice to make.
#[derive(Clone, Debug)]
pub struct NewInvoice {
    /// The merchant's slug.
    pub merchant: String,
    /// What is to be paid in.
    pub asset: AssetKey,
    /// Where to; a watched address of the merchant that never had an invoice.
    pub address: AddressKey,
    /// How much, in base units.
    pub amount: Amount,
    /// How much less will do.
    pub tolerance: Tolerance,
    /// Payments up to this moment are in time. Unix milliseconds.
    pub expires_at: i64,
    /// The merchant's own word for it.
    pub reference: String,
    /// The merchant's own data: a JSON object as text.
    pub metadata: String,
    /// Its payments need at least so many confirmations, where the policy asks for less.
    pub confirmations: Option<u32>,
    /// What its payment page is found by; unguessable.
    pub token: String,
    /// An endpoint that is told of this invoice alone.
    pub callback: Option<NewCallback>,
}

/// An endpoint of one invoice.
#[derive(Clone, Debug)]
pub struct NewCallback {
    /// Where to.
    pub url: String,
    /// Event types, separated by spaces.
    pub types: String,
    /// What its callbacks are signed with.
    pub key: Key,
}

/// An invoice and what has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoice {
    /// The database's own number.
    pub(super) key: i64,
    /// Its public id.
    pub id: String,
    /// The merchant's slug.
    pub merchant: String,
    pub(super) merchant_key: i64,
    /// Its chain.
    pub chain: ChainKey,
    /// The chain's identity.
    pub chain_id: ChainId,
    pub(super) address_key: i64,
    /// The script to pay to.
    pub script: Script,
    /// The same as people write it.
    pub address: Option<String>,
    /// The database's own number of the asset.
    pub asset_key: AssetKey,
    /// The coin, or the token's contract.
    pub kind: Asset,
    /// CAIP-19 id of the asset.
    pub asset: String,
    /// The asset's symbol.
    pub symbol: String,
    /// The asset's decimals.
    pub decimals: u8,
    /// What was agreed.
    pub terms: Terms,
    /// Its payments need at least so many confirmations.
    pub confirmations: Option<u32>,
    /// The merchant's own word for it.
    pub reference: String,
    /// The merchant's own data: a JSON object as text.
    pub metadata: String,
    /// What its payment page is found by.
    pub token: String,
    /// What was first met in a block below this height is not for it.
    pub birth_height: Option<u64>,
    /// Neither is what was met before it: outputs up to this one.
    pub(super) after_output: i64,
    /// When it was made, Unix milliseconds.
    pub created_at: i64,
    /// When it was decided that its time was over and it was short, if that stands.
    pub expired_at: Option<i64>,
    /// What has become of it.
    pub status: Status,
    /// The number of its last event.
    pub version: i64,
}

impl Invoice {
    /// What is credited beyond what was asked for.
    pub fn overpaid(&self) -> Amount {
        let more = self.status.paid.checked_sub(self.terms.amount);
        more.unwrap_or(Amount::ZERO)
    }

    /// What the payer is still asked for: all that was asked for, less what is credited or waits to be;
    /// nothing once that will do, or it is over.
    pub fn asked_for(&self) -> Amount {
        let come = self.status.paid.saturating_add(self.status.pending);
        match self.status.life {
            Life::Open if come < self.terms.required() => {
                self.terms.amount.checked_sub(come).unwrap_or(Amount::ZERO)
            }
            Life::Open | Life::Settled | Life::Expired | Life::Cancelled => Amount::ZERO,
        }
    }

    /// The URI that asks for it; `None` where nothing is asked for.
    pub fn payment_uri(&self) -> Option<String> {
        let amount = self.asked_for();
        let payable = Payable {
            chain: &self.chain_id,
            address: self.address.as_deref()?,
            asset: self.kind,
            amount,
            message: &self.reference,
        };
        payment_uri(&payable).filter(|_| !amount.is_zero())
    }
}

/// A payment to an invoice's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvoicePayment {
    /// The deposit.
    pub deposit: Deposit,
    /// The moment that it counts for, Unix milliseconds.
    pub paid_at: i64,
    /// What it is to the invoice; `None` of one that is in no mempool and on no best chain.
    pub mark: Option<Mark>,
}

/// What a deposit has to do with an invoice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvoiceMark {
    pub(super) key: i64,
    /// Its public id.
    pub id: String,
    /// Payments to it need at least so many.
    pub confirmations: Option<u32>,
}

impl InvoiceMark {
    /// From the columns `id, inv_id, confirmations` of a joined invoice, which start at `first`.
    pub(super) fn read(row: &Row<'_>, first: usize) -> Result<Option<InvoiceMark>, rusqlite::Error> {
        let Some(key) = row.get(first)? else {
            return Ok(None);
        };
        Ok(Some(InvoiceMark {
            key,
            id: row.get(first + 1)?,
            confirmations: row.get(first + 2)?,
        }))
    }
}

const INVOICE_SELECT: &str = "SELECT i.id, i.inv_id, m.slug, i.merchant, i.chain, c.caip, c.genesis, \
     i.address, a.script, i.asset, s.contract, s.caip, s.symbol, s.decimals, i.amount, i.tolerance, \
     i.tolerance_hundredths, i.expires_at, i.cancelled_at, i.confirmations, i.reference, i.metadata, \
     i.token, i.birth_height, i.after_output, i.created_at, i.expired_at, i.amount_state, i.time_flag, \
     i.life, i.paid, i.pending, i.strays, i.is_short, \
     (SELECT max(sequence) FROM events WHERE subject = i.inv_id) \
     FROM invoices i JOIN merchants m ON m.id = i.merchant JOIN chains c ON c.id = i.chain \
     JOIN addresses a ON a.id = i.address JOIN assets s ON s.id = i.asset";

fn invoice_row(row: &Row<'_>) -> Result<Invoice, StoreError> {
    let chain_id = ChainId::from_stored(row.get(5)?);
    let (genesis, script): (Option<_>, Script) = (row.get(6)?, row.get(8)?);
    Ok(Invoice {
        key: row.get(0)?,
        id: row.get(1)?,
        merchant: row.get(2)?,
        merchant_key: row.get(3)?,
        chain: ChainKey(row.get(4)?),
        address_key: row.get(7)?,
        address: address::print_on(&chain_id, genesis.as_ref(), &script),
        script,
        chain_id,
        asset_key: AssetKey(row.get(9)?),
        kind: asset(row.get(10)?)?,
        asset: row.get(11)?,
        symbol: row.get(12)?,
        decimals: row.get(13)?,
        terms: Terms {
            amount: row.get(14)?,
            tolerance: Tolerance {
                base: row.get(15)?,
                percent_hundredths: row.get(16)?,
            },
            expires_at: row.get(17)?,
            cancelled_at: row.get(18)?,
        },
        confirmations: row.get(19)?,
        reference: row.get(20)?,
        metadata: row.get(21)?,
        token: row.get(22)?,
        birth_height: row.get::<_, Option<i64>>(23)?.map(uint).transpose()?,
        after_output: row.get(24)?,
        created_at: row.get(25)?,
        expired_at: row.get(26)?,
        status: status_row(row)?,
        version: row.get::<_, Option<i64>>(34)?.unwrap_or_default(),
    })
}

fn status_row(row: &Row<'_>) -> Result<Status, StoreError> {
    Ok(Status {
        amount: word(&row.get::<_, String>(27)?, AmountState::from_word)?,
        time: word(&row.get::<_, String>(28)?, TimeFlag::from_word)?,
        life: word(&row.get::<_, String>(29)?, Life::from_word)?,
        paid: row.get(30)?,
        pending: row.get(31)?,
        strays: uint(row.get(32)?)?,
        is_short: row.get(33)?,
    })
}

fn word<T>(stored: &str, read: fn(&str) -> Option<T>) -> Result<T, StoreError> {
    read(stored).ok_or_else(|| StoreError::Corrupt(format!("an invoice is {stored:?}")))
}

impl ReadTx<'_> {
    /// An invoice by its public id.
    ///
    /// # Errors
    /// Those of the database.
    pub fn invoice(&self, id: &str) -> Result<Option<Invoice>, StoreError> {
        Ok(self.invoices_where("WHERE i.inv_id = ?1", [id])?.pop())
    }

    /// An invoice by what its payment page is found by.
    ///
    /// # Errors
    /// Those of the database.
    pub fn invoice_by_token(&self, token: &str) -> Result<Option<Invoice>, StoreError> {
        Ok(self.invoices_where("WHERE i.token = ?1", [token])?.pop())
    }

    pub(super) fn invoice_by_key(&self, key: i64) -> Result<Invoice, StoreError> {
        let found = self.invoices_where("WHERE i.id = ?1", [key])?.pop();
        found.ok_or_else(|| StoreError::Corrupt("an invoice vanished".into()))
    }

    /// Invoices by a filter that is appended to the join of all their tables.
    pub(super) fn invoices_where(
        &self,
        filter: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<Invoice>, StoreError> {
        let sql = format!("{INVOICE_SELECT} {filter}");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(params)?;
        let mut invoices = Vec::new();
        while let Some(row) = rows.next()? {
            invoices.push(invoice_row(row)?);
        }
        Ok(invoices)
    }

    /// Every payment to an invoice's address, in any asset, in the order in which they were met.
    ///
    /// # Errors
    /// Those of the database.
    pub fn invoice_payments(&self, invoice: &Invoice) -> Result<Vec<InvoicePayment>, StoreError> {
        let deposits =
            self.deposits_where("WHERE o.address = ?1 ORDER BY d.output", [invoice.address_key])?;
        let mut payments = Vec::with_capacity(deposits.len());
        for deposit in deposits {
            let payment = self.payment(invoice, &deposit)?;
            payments.push(InvoicePayment {
                paid_at: payment.paid_at,
                mark: is_live(&deposit).then(|| mark(&invoice.terms, &payment)),
                deposit,
            });
        }
        Ok(payments)
    }

    /// The payments that are in a mempool or on the best chain, as the rules see them.
    pub(super) fn live_payments(&self, invoice: &Invoice) -> Result<Vec<Payment>, StoreError> {
        let filter = "WHERE o.address = ?1 AND d.state IN ('seen', 'confirming', 'credited') \
             ORDER BY d.output";
        let deposits = self.deposits_where(filter, [invoice.address_key])?;
        deposits
            .iter()
            .map(|deposit| self.payment(invoice, deposit))
            .collect()
    }

    fn payment(&self, invoice: &Invoice, deposit: &Deposit) -> Result<Payment, StoreError> {
        // The header of a block with an output of ours is held as long as that is in it.
        let held = match deposit.height {
            Some(height) => self.header_at(deposit.chain, height)?,
            None => None,
        };
        let block_ms = held.map(|held| block_ms(held.header.time_secs));
        let is_eligible = deposit.asset_key == invoice.asset_key.0
            && deposit.output > invoice.after_output
            && self.is_met_after_birth(invoice, deposit.output)?;
        Ok(Payment {
            amount: deposit.amount,
            paid_at: paid_at(deposit.first_seen_at, block_ms),
            is_credited: deposit.state == Some(State::Credited),
            is_eligible,
        })
    }

    /// How a payment was met first is told by its first audit row, and stays: a reorg that mines it again
    /// below the invoice's birth takes nothing from the payer.
    fn is_met_after_birth(&self, invoice: &Invoice, output: i64) -> Result<bool, StoreError> {
        let Some(birth) = invoice.birth_height else {
            return Ok(true);
        };
        let first = "SELECT height FROM audit WHERE output = ?1 ORDER BY id LIMIT 1";
        let met = one::<Option<i64>>(self.conn(), first, [output])?.flatten();
        Ok(met.is_none_or(|height| int(birth).is_ok_and(|birth| height >= birth)))
    }
}

fn is_live(deposit: &Deposit) -> bool {
    match deposit.state {
        Some(State::Seen | State::Confirming | State::Credited) => true,
        Some(State::Evicted | State::Replaced | State::Orphaned | State::Failed) | None => false,
    }
}

fn block_ms(time_secs: u64) -> i64 {
    i64::try_from(time_secs).map_or(i64::MAX, |secs| secs.saturating_mul(1_000))
}
