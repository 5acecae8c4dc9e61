//! The outbox: one frozen record per fact, in the transaction of the fact, whether or not anyone listens.
//! Bodies state absolutes (ids, net, a snapshot), so that a receiver needs no history to end at the right
//! balance.

use super::chains::{ChainRow, one};
use super::credits::Booked;
use super::deposits::Deposit;
use super::endpoints::Endpoint;
use super::{StoreError, UnattributedRow, WriteTx};
use crate::address;
use crate::clock::rfc3339;
use crate::rules::chain_state::ChainState;
use crate::rules::policy::Requirement;
use crate::rules::state::{Announce, State};
use crate::rules::{Amount, BlockHash, ids};
use rusqlite::params;
use serde::Serialize;

#[derive(Serialize)]
struct Body<'a, D> {
    r#type: &'a str,
    timestamp: String,
    data: D,
}

#[derive(Serialize)]
struct CreditData<'a> {
    credit: &'a str,
    version: i64,
    sequence: i64,
    entry: &'a str,
    net: String,
    net_base: String,
    amount: String,
    amount_base: String,
    reason: &'a str,
    fork_height: Option<u64>,
    reorg_depth: Option<u64>,
    deposit: Snapshot<'a>,
}

#[derive(Serialize)]
struct DepositData<'a> {
    sequence: i64,
    deposit: Snapshot<'a>,
}

#[derive(Serialize)]
struct ChainData<'a> {
    chain: &'a str,
    alias: &'a str,
    sequence: i64,
    state: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct UnattributedData<'a> {
    unattributed: &'a str,
    sequence: i64,
    chain: &'a str,
    alias: &'a str,
    address: Option<String>,
    merchant: &'a str,
    reference: &'a str,
    asset: &'a str,
    symbol: &'a str,
    amount: String,
    amount_base: String,
    from_height: u64,
    to_height: u64,
}

#[derive(Serialize)]
struct EndpointData<'a> {
    endpoint: &'a str,
    sequence: i64,
}

/// A deposit at the moment of an event.
#[derive(Serialize)]
struct Snapshot<'a> {
    id: &'a str,
    chain: String,
    txid: String,
    vout: u64,
    address: Option<String>,
    /// EVM: who sent the transaction, and whose coin or token moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payer: Option<String>,
    merchant: &'a str,
    reference: &'a str,
    asset: &'a str,
    symbol: &'a str,
    amount: String,
    amount_base: String,
    origin: &'a str,
    state: &'a str,
    block_height: Option<u64>,
    block_hash: Option<String>,
    confirmations_required: Option<u32>,
    /// EVM: the finality tag that it needs instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    finality_required: Option<&'static str>,
    due_height: Option<u64>,
    held: Option<&'a str>,
    replaced_by: Option<String>,
    first_seen_at: String,
    /// The invoice that its address is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    invoice: Option<&'a str>,
}

/// What every event row carries beside its body.
pub(super) struct Heading<'a> {
    pub subject: &'a str,
    pub kind: &'a str,
    pub merchant: Option<i64>,
    pub is_first_of_its_kind: bool,
    pub to: Receivers,
}

/// Who is told.
pub(super) enum Receivers {
    /// Whoever is subscribed.
    Subscribed,
    /// Whoever is subscribed, and the endpoints of this invoice.
    AlsoOfInvoice(i64),
    /// This endpoint alone.
    Only(i64),
}

impl WriteTx<'_> {
    /// Writes a deposit's own event.
    pub(super) fn deposit_event(
        &mut self,
        deposit: &Deposit,
        announce: Option<Announce>,
    ) -> Result<(), StoreError> {
        let Some(kind) = announce.and_then(Announce::deposit_event) else {
            return Ok(());
        };
        let sequence = self.next_sequence(&deposit.id)?;
        let data = DepositData {
            sequence,
            deposit: self.snapshot(deposit)?,
        };
        let heading = Heading {
            subject: &deposit.id,
            kind,
            merchant: Some(deposit.merchant_key),
            is_first_of_its_kind: false,
            to: Receivers::Subscribed,
        };
        self.write_event(&heading, sequence, data)?;
        Ok(())
    }

    /// Writes the event of a journal entry.
    pub(super) fn credit_event(&mut self, deposit: &Deposit, booked: &Booked) -> Result<(), StoreError> {
        let kind = match booked.entry.kind.as_str() {
            "credit" => "credit.created",
            "reinstatement" => "credit.reinstated",
            _ => "credit.reversed",
        };
        self.write_credit_event(kind, deposit, booked).map(drop)
    }

    fn write_credit_event(
        &mut self,
        kind: &str,
        deposit: &Deposit,
        booked: &Booked,
    ) -> Result<String, StoreError> {
        let sequence = self.next_sequence(&booked.credit_id)?;
        let data = CreditData {
            credit: &booked.credit_id,
            version: sequence,
            sequence,
            entry: &booked.entry.kind,
            net: booked.net.to_units_string(deposit.decimals),
            net_base: booked.net.to_string(),
            amount: deposit.amount.to_units_string(deposit.decimals),
            amount_base: deposit.amount.to_string(),
            reason: &booked.entry.reason,
            fork_height: booked.fork.map(|fork| fork.height),
            reorg_depth: booked.fork.map(|fork| fork.depth),
            deposit: self.snapshot(deposit)?,
        };
        let heading = Heading {
            subject: &booked.credit_id,
            kind,
            merchant: Some(deposit.merchant_key),
            is_first_of_its_kind: kind == "credit.created",
            to: Receivers::Subscribed,
        };
        self.write_event(&heading, sequence, data)
    }

    /// Tells a credit anew, as it stands by the last entry of its journal. Returns the event's id.
    pub(super) fn state_credit(&mut self, credit: &str) -> Result<String, StoreError> {
        let lost = || StoreError::Corrupt(format!("credit {credit} has no deposit or no journal"));
        let output = one(self.conn(), "SELECT output FROM credits WHERE id = ?1", [credit])?;
        let deposit = self
            .deposit_of_output(output.ok_or_else(lost)?)?
            .ok_or_else(lost)?;
        let entry = self.journal(credit)?.pop().ok_or_else(lost)?;
        let booked = Booked {
            credit_id: credit.to_owned(),
            net: match entry.kind.as_str() {
                "reversal" => Amount::ZERO,
                _ => deposit.amount,
            },
            entry,
            fork: None,
        };
        self.write_credit_event("credit.state", &deposit, &booked)
    }

    /// Writes the event of a chain that halts or resumes; operators read it, no merchant does.
    pub(super) fn chain_event(
        &mut self,
        chain: &ChainRow,
        kind: &str,
        state: ChainState,
        reason: &str,
    ) -> Result<(), StoreError> {
        let subject = format!("chain:{}", chain.id);
        let sequence = self.next_sequence(&subject)?;
        let data = ChainData {
            chain: chain.id.as_str(),
            alias: &chain.alias,
            sequence,
            state: state.word(),
            reason,
        };
        let heading = Heading {
            subject: &subject,
            kind,
            merchant: None,
            is_first_of_its_kind: false,
            to: Receivers::Subscribed,
        };
        self.write_event(&heading, sequence, data)?;
        Ok(())
    }

    /// Writes the event of coin that nothing explains; operators read it, no merchant does.
    pub(super) fn unattributed_event(
        &mut self,
        chain: &ChainRow,
        row: &UnattributedRow,
    ) -> Result<(), StoreError> {
        let sequence = self.next_sequence(&row.id)?;
        let data = UnattributedData {
            unattributed: &row.id,
            sequence,
            chain: chain.id.as_str(),
            alias: &chain.alias,
            address: address::print_on(&chain.id, chain.genesis.as_ref(), &row.script),
            merchant: &row.merchant,
            reference: &row.reference,
            asset: &row.asset,
            symbol: &row.symbol,
            amount: row.amount.to_units_string(row.decimals),
            amount_base: row.amount.to_string(),
            from_height: row.from_height,
            to_height: row.to_height,
        };
        let heading = Heading {
            subject: &row.id,
            kind: "chain.unattributed",
            merchant: None,
            is_first_of_its_kind: false,
            to: Receivers::Subscribed,
        };
        self.write_event(&heading, sequence, data)?;
        Ok(())
    }

    /// Writes an event that only tries an endpoint. Each is a subject of its own: one that failed holds back
    /// none of those asked for after the receiver was mended. Returns its id.
    pub(super) fn endpoint_event(&mut self, endpoint: &Endpoint) -> Result<String, StoreError> {
        let sequence = self.next_test(&endpoint.id)?;
        let subject = format!("endpoint:{}:{sequence}", endpoint.id);
        let owner = self.owner_of(endpoint)?;
        let data = EndpointData {
            endpoint: &endpoint.id,
            sequence,
        };
        let heading = Heading {
            subject: &subject,
            kind: "endpoint.test",
            merchant: owner,
            is_first_of_its_kind: false,
            to: Receivers::Only(endpoint.key),
        };
        self.write_event(&heading, sequence, data)
    }

    pub(super) fn write_event(
        &mut self,
        heading: &Heading<'_>,
        sequence: i64,
        data: impl Serialize,
    ) -> Result<String, StoreError> {
        let now = self.now_ms();
        let id = if heading.is_first_of_its_kind {
            ids::first_event_id(heading.subject, heading.kind)
        } else {
            ids::event_id(heading.subject, heading.kind, sequence)
        };
        let body = Body {
            r#type: heading.kind,
            timestamp: rfc3339(now),
            data,
        };
        let body = serde_json::to_string(&body).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let seq = self
            .conn()
            .prepare_cached(
                "INSERT INTO events (id, subject, sequence, type, merchant, at, body) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .insert(params![
                id,
                heading.subject,
                sequence,
                heading.kind,
                heading.merchant,
                now,
                body
            ])?;
        let (kind, subject) = (heading.kind, heading.subject);
        match heading.to {
            Receivers::Only(endpoint) => self.queue_delivery(seq, endpoint, subject).map(|_| ())?,
            Receivers::Subscribed => self.queue_event(seq, kind, subject, heading.merchant)?,
            Receivers::AlsoOfInvoice(invoice) => {
                self.queue_event(seq, kind, subject, heading.merchant)?;
                self.queue_for_invoice(seq, kind, subject, invoice)?;
            }
        }
        Ok(id)
    }

    /// The next number within a subject: generation * 2^32 + n, so that numbers only rise, restores included.
    pub(super) fn next_sequence(&self, subject: &str) -> Result<i64, StoreError> {
        let last: Option<i64> = self
            .conn()
            .prepare_cached("SELECT max(sequence) FROM events WHERE subject = ?1")?
            .query_row([subject], |row| row.get(0))?;
        self.number_after(last)
    }

    /// The next number among the tests of an endpoint, each of which is a subject.
    fn next_test(&self, endpoint: &str) -> Result<i64, StoreError> {
        // Ids have neither colon nor semicolon: these are the bounds of all that begins so.
        let last: Option<i64> = self.conn().query_row(
            "SELECT max(sequence) FROM events WHERE subject > ?1 AND subject < ?2",
            [format!("endpoint:{endpoint}:"), format!("endpoint:{endpoint};")],
            |row| row.get(0),
        )?;
        self.number_after(last)
    }

    fn number_after(&self, last: Option<i64>) -> Result<i64, StoreError> {
        let first = (self.generation()? << 32) + 1;
        Ok(last.map_or(first, |last| first.max(last + 1)))
    }

    fn snapshot<'d>(&self, deposit: &'d Deposit) -> Result<Snapshot<'d>, StoreError> {
        let (chain, genesis) = self.chain_identity(deposit.chain)?;
        let block_hash: Option<BlockHash> = match deposit.height {
            Some(height) => self.hash_at(deposit.chain, height)?,
            None => None,
        };
        Ok(Snapshot {
            id: &deposit.id,
            chain: chain.as_str().to_owned(),
            txid: chain.print(deposit.outpoint.txid),
            vout: deposit.outpoint.vout,
            address: address::print_on(&chain, genesis.as_ref(), &deposit.script),
            sender: deposit
                .sender
                .as_ref()
                .and_then(|sender| address::print_on(&chain, genesis.as_ref(), sender)),
            payer: deposit
                .payer
                .as_ref()
                .and_then(|payer| address::print_on(&chain, genesis.as_ref(), payer)),
            merchant: &deposit.merchant,
            reference: &deposit.reference,
            asset: &deposit.asset,
            symbol: &deposit.symbol,
            amount: deposit.amount.to_units_string(deposit.decimals),
            amount_base: deposit.amount.to_string(),
            origin: &deposit.origin,
            state: deposit.state.map_or("", State::word),
            block_height: deposit.height,
            block_hash: block_hash.map(|hash| chain.print(hash)),
            confirmations_required: deposit.needs.and_then(Requirement::confirmations),
            finality_required: deposit.needs.and_then(Requirement::tag),
            due_height: deposit.due_height,
            held: deposit.held_reason.as_deref(),
            replaced_by: deposit.replaced_by.map(|txid| chain.print(txid)),
            first_seen_at: rfc3339(deposit.first_seen_at),
            invoice: deposit.invoice.as_ref().map(|invoice| invoice.id.as_str()),
        })
    }
}
