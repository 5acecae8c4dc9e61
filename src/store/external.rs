//! Credits that another provider told of: an exchange, a card processor, a gateway with wallets of its own.
//! They stand on a chain `ext:SOURCE`, where the hash of the provider's own id of the payment is the txid, so
//! the table that lets an outpoint be credited once lets a payment be credited once, however often and under
//! whatever names its webhooks come. What we watch ourselves is never credited on a provider's word.

use super::chains::{ChainKey, ChainRow, one};
use super::codec::int;
use super::credits::JournalEntry;
use super::events::{Heading, Receivers};
use super::inbox::Held;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{Amount, ChainId, Outpoint, Script, Txid, ids};
use rusqlite::{OptionalExtension, params};
use serde::Serialize;

/// The reason of a hold on a deposit whose output another provider named in a credit.
pub const HELD_EXTERNAL: &str = "external";

/// The longest id of a payment, and the longest reference.
const WORDS_CHARS_MAX: usize = 256;

/// A payment that a source of webhooks told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPayment {
    /// Who is credited.
    pub merchant: String,
    /// The source's own id of the payment: the same in every webhook about it, and in no other.
    pub payment: String,
    /// What it counts in.
    pub asset: ExternalAsset,
    /// Base units.
    pub amount: Amount,
    /// What the source says it is for; may be empty.
    pub reference: String,
    /// The output that the source says it was paid by.
    pub output: Option<NamedOutput>,
    /// What the address that the source names would be on each of our chains.
    pub scripts: Vec<(ChainId, Script)>,
}

/// What a source counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAsset {
    /// Its code, as `USD` or `BTC`.
    pub code: String,
    /// Digits after the point of a whole unit.
    pub decimals: u8,
}

/// An output by a provider's word. On which chain is not asked: no two have the same transaction, but for
/// forks of one, where a doubt is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedOutput {
    /// The transaction.
    pub txid: Txid,
    /// Its output; `None` = any.
    pub vout: Option<u64>,
}

impl NamedOutput {
    /// The outputs that a text names: `TXID`, `TXID:VOUT` or `TXID-VOUT`, with or without `0x`. However else
    /// a transaction stands in it, as in a link, that is any output of it: a doubt is right.
    pub fn all_in(text: &str) -> Vec<NamedOutput> {
        let text = text.trim();
        let exact = text.split_once([':', '-']).and_then(|(txid, vout)| {
            Some(NamedOutput {
                txid: Txid::from_typed(txid)?,
                vout: Some(vout.parse().ok()?),
            })
        });
        if let Some(exact) = exact {
            return vec![exact];
        }
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        let named = words.filter_map(Txid::from_typed);
        named.map(|txid| NamedOutput { txid, vout: None }).collect()
    }
}

#[derive(Serialize)]
struct ExternalData<'a> {
    credit: &'a str,
    version: i64,
    sequence: i64,
    entry: &'a str,
    net: String,
    net_base: String,
    amount: String,
    amount_base: String,
    reason: &'a str,
    /// As in the event of every credit; here there is nothing of the three.
    fork_height: Option<()>,
    reorg_depth: Option<()>,
    deposit: Option<()>,
    external: Told<'a>,
}

/// The payment in a provider's words.
#[derive(Serialize)]
struct Told<'a> {
    inbox: &'a str,
    source: &'a str,
    payment: &'a str,
    merchant: &'a str,
    reference: &'a str,
    asset: &'a str,
    symbol: &'a str,
    txid: Option<String>,
    vout: Option<u64>,
}

/// A payment at the place of its credit.
struct Place {
    chain: ChainKey,
    id: ChainId,
    outpoint: Outpoint,
    credit: String,
    merchant: i64,
    asset: i64,
    caip: String,
}

impl ReadTx<'_> {
    /// What stands in the place of a chain where another provider told of a payment: one for each source.
    pub fn external_chains(&self) -> Result<Vec<ChainRow>, StoreError> {
        self.chains_where("caip GLOB 'ext:*'")
    }

    /// Did another provider tell of a payment by this output?
    pub(super) fn is_told_externally(&self, chain: &ChainId, at: &Outpoint) -> Result<bool, StoreError> {
        // On an EVM chain a provider counts otherwise than we do: logs of the block, or nothing.
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM external_outputs WHERE txid = ?1 AND (?3 OR vout IS NULL OR vout = ?2) LIMIT 1",
            params![at.txid, int(at.vout)?, chain.is_evm()],
        )?;
        Ok(found.is_some())
    }

    /// The output of an address that we watch that a payment was made by, if it was, in words.
    fn watched_output(&self, payment: &ExternalPayment) -> Result<Option<String>, StoreError> {
        if let Some(NamedOutput { txid, vout }) = payment.output {
            let found = one::<String>(
                self.conn(),
                "SELECT c.caip FROM txs t JOIN chains c ON c.id = t.chain JOIN outputs o ON o.tx = t.id \
                 JOIN addresses a ON a.id = o.address \
                 WHERE t.chain IN (SELECT id FROM chains) AND t.txid = ?1 AND a.kind = 'watch' \
                 AND (?2 IS NULL OR o.vout = ?2 OR c.caip GLOB 'eip155:*') LIMIT 1",
                params![txid, vout.map(int).transpose()?],
            )?;
            if let Some(chain) = found {
                let chain = ChainId::from_stored(chain);
                return Ok(Some(format!("an output of {} on {chain}", chain.print(txid))));
            }
        }
        for (chain, script) in &payment.scripts {
            let found = one::<i64>(
                self.conn(),
                "SELECT a.id FROM addresses a JOIN chains c ON c.id = a.chain \
                 WHERE c.caip = ?1 AND a.script = ?2 AND a.kind = 'watch'",
                params![chain.as_str(), script],
            )?;
            if found.is_some() {
                return Ok(Some(format!("an address on {chain}")));
            }
        }
        Ok(None)
    }
}

impl WriteTx<'_> {
    /// Credits what an event tells of, each payment once, whatever event told of it first. Returns what was
    /// done, in words.
    pub(super) fn credit_external(
        &mut self,
        held: &Held,
        payments: &[ExternalPayment],
    ) -> Result<String, StoreError> {
        let mut words = Vec::with_capacity(payments.len());
        for payment in payments {
            words.push(self.credit_payment(held, payment)?);
        }
        Ok(words.join("; "))
    }

    fn credit_payment(&mut self, held: &Held, payment: &ExternalPayment) -> Result<String, StoreError> {
        for (what, text) in [("id", &payment.payment), ("reference", &payment.reference)] {
            if text.chars().count() > WORDS_CHARS_MAX {
                return refused(
                    payment,
                    &format!("its {what} is longer than {WORDS_CHARS_MAX} letters"),
                );
            }
        }
        if payment.amount.is_zero() {
            return refused(payment, "its amount is 0");
        }
        if let Some(what) = self.watched_output(payment)? {
            let why = format!("it names {what} that is watched here, and is credited by what the chain says");
            return refused(payment, &why);
        }
        let place = self.external_place(held, payment)?;
        let known = self
            .conn()
            .prepare_cached("SELECT merchant, asset, amount FROM credits WHERE id = ?1")?
            .query_row([&place.credit], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, Amount>(2)?,
                ))
            })
            .optional()?;
        match known {
            None => self.insert_external(held, payment, &place)?,
            Some(known) if known == (place.merchant, place.asset, payment.amount) => {
                return Ok(format!(
                    "{} is credited already as {}",
                    payment.payment, place.credit
                ));
            }
            Some(_) => {
                let why = format!("it was credited before as {}, with another content", place.credit);
                return refused(payment, &why);
            }
        }
        Ok(format!("{} credited as {}", payment.payment, place.credit))
    }

    /// Where the payment stands in our tables; what is missing there is made.
    fn external_place(&mut self, held: &Held, payment: &ExternalPayment) -> Result<Place, StoreError> {
        let id = ChainId::external(&held.source);
        self.conn()
            .prepare_cached("INSERT INTO chains (caip, alias) VALUES (?1, ?1) ON CONFLICT (caip) DO NOTHING")?
            .execute([id.as_str()])?;
        let chain = one::<i64>(
            self.conn(),
            "SELECT id FROM chains WHERE caip = ?1",
            [id.as_str()],
        )?
        .ok_or_else(|| StoreError::Corrupt("a source vanished".into()))?;
        let caip = id.external_asset(&payment.asset.code);
        self.conn()
            .prepare_cached(
                "INSERT INTO assets (chain, caip, symbol, decimals, is_listed) VALUES (?1, ?2, ?3, ?4, 1) \
                 ON CONFLICT (chain, caip) DO NOTHING",
            )?
            .execute(params![chain, caip, payment.asset.code, payment.asset.decimals])?;
        let (asset, decimals) = self
            .conn()
            .prepare_cached("SELECT id, decimals FROM assets WHERE chain = ?1 AND caip = ?2")?
            .query_row(params![chain, caip], |row| {
                Ok((row.get(0)?, row.get::<_, u8>(1)?))
            })?;
        if decimals != payment.asset.decimals {
            let why = format!(
                "{caip} was credited with {decimals} decimals before, and the config says {}",
                payment.asset.decimals
            );
            return refused(payment, &why);
        }
        let outpoint = Outpoint {
            txid: ids::external_txid(&payment.payment),
            vout: 0,
        };
        Ok(Place {
            chain: ChainKey(chain),
            credit: ids::credit_id(&id, &outpoint),
            merchant: self.ensure_merchant(&payment.merchant)?,
            id,
            outpoint,
            asset,
            caip,
        })
    }

    fn insert_external(
        &mut self,
        held: &Held,
        payment: &ExternalPayment,
        place: &Place,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        // Plain, as every insert of a credit: that it is the first is the table's word.
        self.conn()
            .prepare_cached(
                "INSERT INTO credits (id, chain, txid, vout, merchant, asset, amount, created_at, inbox, \
                 reference) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                place.credit,
                place.chain.0,
                place.outpoint.txid,
                int(place.outpoint.vout)?,
                place.merchant,
                place.asset,
                payment.amount,
                now,
                held.key,
                payment.reference
            ])?;
        let entry = JournalEntry {
            sequence: 1,
            kind: "credit".to_owned(),
            at: now,
            cause: None,
            reason: String::new(),
        };
        self.write_entry(&place.credit, &entry)?;
        if let Some(NamedOutput { txid, vout }) = payment.output {
            self.conn()
                .prepare_cached("INSERT INTO external_outputs (credit, txid, vout) VALUES (?1, ?2, ?3)")?
                .execute(params![place.credit, txid, vout.map(int).transpose()?])?;
        }
        self.external_event(held, payment, place)
    }

    fn external_event(
        &mut self,
        held: &Held,
        payment: &ExternalPayment,
        place: &Place,
    ) -> Result<(), StoreError> {
        let sequence = self.next_sequence(&place.credit)?;
        let amount = payment.amount.to_units_string(payment.asset.decimals);
        let base = payment.amount.to_string();
        let data = ExternalData {
            credit: &place.credit,
            version: sequence,
            sequence,
            entry: "credit",
            net: amount.clone(),
            net_base: base.clone(),
            amount,
            amount_base: base,
            reason: "",
            fork_height: None,
            reorg_depth: None,
            deposit: None,
            external: Told {
                inbox: &held.id,
                source: &held.source,
                payment: &payment.payment,
                merchant: &payment.merchant,
                reference: &payment.reference,
                asset: &place.caip,
                symbol: &payment.asset.code,
                txid: payment.output.map(|output| output.txid.to_string()),
                vout: payment.output.and_then(|output| output.vout),
            },
        };
        let heading = Heading {
            subject: &place.credit,
            kind: "credit.created",
            merchant: Some(place.merchant),
            is_first_of_its_kind: true,
            to: Receivers::Subscribed,
        };
        tracing::info!(
            chain = %place.id, credit = %place.credit,
            "credited {} {} to {} on the word of {}", data.amount, payment.asset.code, payment.merchant,
            held.source
        );
        self.write_event(&heading, sequence, data)?;
        Ok(())
    }
}

fn refused<T>(payment: &ExternalPayment, why: &str) -> Result<T, StoreError> {
    Err(StoreError::Refused(format!(
        "payment {:?} is not credited: {why}",
        payment.payment
    )))
}
