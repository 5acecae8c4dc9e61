//! `invoices`: what was asked for, what came, and what is still to be looked at.

use super::invoice_args::{AmountArg, InvoiceList, LifeArg};
use super::open::{self, Chains};
use super::out::Out;
use super::table::{Align, Table, shown};
use super::{Outcome, Problem, Shapes, ids, repair};
use crate::cli::args::Repair;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::rules::Amount;
use crate::rules::invoice::{AmountState, Life, Mark};
use crate::rules::state::State;
use crate::store::report::{EventRow, InvoiceFilter, Listed};
use crate::store::{CancelOutcome, Invoice, InvoicePayment};
use serde::Serialize;

#[derive(Serialize)]
struct InvoiceJson {
    id: String,
    version: i64,
    chain: String,
    merchant: String,
    address: String,
    reference: String,
    metadata: serde_json::Value,
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    required: String,
    required_base: String,
    paid: String,
    paid_base: String,
    pending: String,
    pending_base: String,
    overpaid: String,
    overpaid_base: String,
    amount_state: &'static str,
    time: &'static str,
    life: &'static str,
    strays: u64,
    confirmations: Option<u32>,
    birth_height: Option<u64>,
    created_at: String,
    expires_at: String,
    expired_at: Option<String>,
    cancelled_at: Option<String>,
    payment_url: Option<String>,
    payment_uri: Option<String>,
}

#[derive(Serialize)]
struct WholeJson {
    invoice: InvoiceJson,
    payments: Vec<PaymentJson>,
    events: Vec<EventJson>,
}

#[derive(Serialize)]
struct PaymentJson {
    deposit: String,
    txid: String,
    vout: u64,
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    state: &'static str,
    held: Option<String>,
    paid_at: String,
    /// `in_time`, `late`, `unassigned`, or null: it is in no mempool and on no best chain.
    mark: Option<&'static str>,
}

/// One event about a subject.
#[derive(Serialize)]
pub(super) struct EventJson {
    pub(super) id: String,
    pub(super) seq: i64,
    pub(super) sequence: i64,
    pub(super) r#type: String,
    pub(super) at: String,
}

fn json(config: &Config, chains: &Chains, row: Invoice) -> InvoiceJson {
    let units = |amount: Amount| amount.to_units_string(row.decimals);
    let (required, overpaid) = (row.terms.required(), row.overpaid());
    InvoiceJson {
        version: row.version,
        chain: chains.alias(row.chain).to_owned(),
        address: chains.address(row.chain, &row.script),
        metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
        amount: units(row.terms.amount),
        amount_base: row.terms.amount.to_string(),
        required: units(required),
        required_base: required.to_string(),
        paid: units(row.status.paid),
        paid_base: row.status.paid.to_string(),
        pending: units(row.status.pending),
        pending_base: row.status.pending.to_string(),
        overpaid: units(overpaid),
        overpaid_base: overpaid.to_string(),
        amount_state: row.status.amount.word(),
        time: row.status.time.word(),
        life: row.status.life.word(),
        strays: row.status.strays,
        confirmations: row.confirmations,
        birth_height: row.birth_height,
        created_at: rfc3339(row.created_at),
        expires_at: rfc3339(row.terms.expires_at),
        expired_at: row.expired_at.map(rfc3339),
        cancelled_at: row.terms.cancelled_at.map(rfc3339),
        payment_url: config.api.payment_url(&row.token),
        payment_uri: row.payment_uri(),
        id: row.id,
        merchant: row.merchant,
        reference: row.reference,
        asset: row.asset,
        symbol: row.symbol,
    }
}

fn payment_json(chains: &Chains, payment: InvoicePayment) -> PaymentJson {
    let deposit = payment.deposit;
    PaymentJson {
        txid: chains.print(deposit.chain, deposit.outpoint.txid),
        vout: deposit.outpoint.vout,
        amount: deposit.amount.to_units_string(deposit.decimals),
        amount_base: deposit.amount.to_string(),
        state: deposit.state.map_or("", State::word),
        held: deposit.held_reason,
        paid_at: rfc3339(payment.paid_at),
        mark: payment.mark.map(Mark::word),
        deposit: deposit.id,
        asset: deposit.asset,
        symbol: deposit.symbol,
    }
}

pub(super) fn event_json(event: EventRow) -> EventJson {
    EventJson {
        id: event.id,
        seq: event.seq,
        sequence: event.sequence,
        r#type: event.kind,
        at: rfc3339(event.at),
    }
}

fn life(arg: LifeArg) -> Life {
    match arg {
        LifeArg::Open => Life::Open,
        LifeArg::Settled => Life::Settled,
        LifeArg::Expired => Life::Expired,
        LifeArg::Cancelled => Life::Cancelled,
    }
}

fn amount_state(arg: AmountArg) -> AmountState {
    match arg {
        AmountArg::Unpaid => AmountState::Unpaid,
        AmountArg::Partial => AmountState::Partial,
        AmountArg::Paid => AmountState::Paid,
        AmountArg::Overpaid => AmountState::Overpaid,
    }
}

/// Lists them, newest first.
pub(super) fn list(out: &mut Out, config: &Config, args: &InvoiceList) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let chains = database.read(Chains::read)?;
    let filter = InvoiceFilter {
        merchant: args.merchant.clone(),
        chain: chains.filter(config, &args.chain)?,
        reference: args.reference.clone(),
        life: args.life.map(life),
        amount: args.amount_state.map(amount_state),
        is_strayed: args.strayed,
    };
    let read = |page| database.read(|tx| tx.list_invoices(&filter, page));
    let shown = |rows: Vec<Listed<Invoice>>| {
        let rows = rows.into_iter();
        rows.map(|listed| json(config, &chains, listed.row)).collect()
    };
    let shapes = Shapes {
        name: "invoices",
        empty: "no invoices",
        table,
        csv,
    };
    super::list_page(out, (&args.page, args.csv), &shapes, read, shown)
}

fn table(rows: Vec<InvoiceJson>) -> Table {
    let mut table = Table::new(&[
        ("created", Align::Left),
        ("merchant", Align::Left),
        ("amount", Align::Right),
        ("paid", Align::Right),
        ("asset", Align::Left),
        ("state", Align::Left),
        ("expires", Align::Left),
        ("reference", Align::Left),
        ("invoice", Align::Left),
    ]);
    for row in rows {
        let state = standing(&row);
        table.row(vec![
            row.created_at,
            row.merchant,
            row.amount,
            row.paid,
            format!("{} ({})", row.symbol, row.chain),
            state,
            row.expires_at,
            row.reference,
            row.id,
        ]);
    }
    table
}

fn standing(row: &InvoiceJson) -> String {
    let late = if row.time == "late" { ", late" } else { "" };
    let strays = match row.strays {
        0 => String::new(),
        1 => "; 1 payment to look at".to_owned(),
        more => format!("; {more} payments to look at"),
    };
    format!("{}, {}{late}{strays}", row.life, row.amount_state)
}

fn csv(rows: Vec<InvoiceJson>) -> Table {
    let columns = [
        "invoice",
        "created_at",
        "merchant",
        "reference",
        "chain",
        "address",
        "asset",
        "symbol",
        "amount",
        "amount_base",
        "paid",
        "paid_base",
        "pending",
        "pending_base",
        "overpaid",
        "overpaid_base",
        "amount_state",
        "time",
        "life",
        "strays",
        "expires_at",
        "expired_at",
        "cancelled_at",
    ];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for row in rows {
        table.row(vec![
            row.id,
            row.created_at,
            row.merchant,
            row.reference,
            row.chain,
            row.address,
            row.asset,
            row.symbol,
            row.amount,
            row.amount_base,
            row.paid,
            row.paid_base,
            row.pending,
            row.pending_base,
            row.overpaid,
            row.overpaid_base,
            row.amount_state.to_owned(),
            row.time.to_owned(),
            row.life.to_owned(),
            row.strays.to_string(),
            row.expires_at,
            row.expired_at.unwrap_or_default(),
            row.cancelled_at.unwrap_or_default(),
        ]);
    }
    table
}

fn missing(id: &str) -> anyhow::Error {
    Problem::found(format!("no invoice {id}"), "`creditd invoices list` shows ids").into()
}

/// One invoice with all that came to its address.
pub(super) fn show(out: &mut Out, config: &Config, typed: &str) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let id = ids::whole(&database, typed)?;
    let found = database.read(|tx| {
        let Some(invoice) = tx.invoice(&id)? else {
            return Ok(None);
        };
        let (payments, events) = (tx.invoice_payments(&invoice)?, tx.events_of(&id)?);
        Ok(Some((Chains::read(tx)?, invoice, payments, events)))
    })?;
    let (chains, invoice, payments, events) = found.ok_or_else(|| missing(typed))?;
    let whole = WholeJson {
        invoice: json(config, &chains, invoice),
        payments: payments
            .into_iter()
            .map(|payment| payment_json(&chains, payment))
            .collect(),
        events: events.into_iter().map(event_json).collect(),
    };
    if out.json {
        return out.json(&whole);
    }
    print(out, &whole)?;
    out.done()
}

fn print(out: &mut Out, whole: &WholeJson) -> anyhow::Result<()> {
    let invoice = &whole.invoice;
    let (symbol, reference) = (&invoice.symbol, shown(&invoice.reference));
    out.line(format!(
        "invoice {} of merchant {}: {} {symbol} on {}",
        invoice.id, invoice.merchant, invoice.amount, invoice.chain
    ))?;
    out.field("state", standing(invoice))?;
    out.field("address", &invoice.address)?;
    if !reference.is_empty() {
        out.field("reference", reference)?;
    }
    let paid = match invoice.overpaid_base.as_str() {
        "0" => format!("{} of {} {symbol}", invoice.paid, invoice.amount),
        _ => format!("{} {symbol}: {} too much", invoice.paid, invoice.overpaid),
    };
    out.field("paid", paid)?;
    if invoice.required_base != invoice.amount_base {
        out.field("required", format!("{} {symbol} will do", invoice.required))?;
    }
    if invoice.pending_base != "0" {
        out.field("pending", format!("{} {symbol}", invoice.pending))?;
    }
    if let Some(confirmations) = invoice.confirmations {
        out.field("asks for", format!("{confirmations} confirmations at least"))?;
    }
    out.field("created", &invoice.created_at)?;
    out.field("expires", &invoice.expires_at)?;
    if let Some(at) = &invoice.expired_at {
        out.field("expired", format!("decided {at}"))?;
    }
    if let Some(at) = &invoice.cancelled_at {
        out.field("cancelled", at)?;
    }
    if let Some(uri) = &invoice.payment_uri {
        out.field("pay by", uri)?;
    }
    if let Some(url) = &invoice.payment_url {
        out.field("page", url)?;
    }
    out.line("  payments")?;
    if whole.payments.is_empty() {
        out.line("    none")?;
    }
    for payment in &whole.payments {
        let held = payment.held.as_deref();
        let held = held.map_or_else(String::new, |reason| format!(", held: {}", shown(reason)));
        out.line(format!(
            "    {}  {} {} {}:{} {}{held}, {}",
            payment.paid_at,
            payment.amount,
            payment.symbol,
            payment.txid,
            payment.vout,
            payment.state,
            payment.mark.unwrap_or("not on the chain")
        ))?;
    }
    out.line("  events")?;
    for event in &whole.events {
        let (at, kind, id, seq) = (&event.at, &event.r#type, &event.id, event.seq);
        out.line(format!("    {at}  {kind} {id} (seq {seq})"))?;
    }
    Ok(())
}

/// Takes one back.
pub(super) fn cancel(out: &mut Out, config: &Config, typed: &str, args: &Repair) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let id = ids::whole(&database, typed)?;
    let invoice = database
        .read(|tx| tx.invoice(&id))?
        .ok_or_else(|| missing(typed))?;
    drop(database);
    match invoice.status.life {
        Life::Cancelled => {
            return repair::nothing(out, "invoice-cancel", args, format!("{id} is cancelled already"));
        }
        Life::Settled => return Err(settled(&id)),
        Life::Open | Life::Expired => {}
    }
    let text = format!("cancel {id}: what is paid from then on is credited, and not for it");
    repair::act(out, "invoice-cancel", args, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        let reason = &args.reason;
        let outcome = database.write(open::now_ms(), |tx| tx.cancel_invoice(&id, "operator", reason))?;
        match outcome {
            CancelOutcome::Cancelled(_) => Ok(true),
            CancelOutcome::Settled(_) => Err(settled(&id)),
        }
    })
}

fn settled(id: &str) -> anyhow::Error {
    let next = "what is paid stays so; pay it back outside of creditd if need be";
    Problem::found(format!("{id} is settled and cannot be cancelled"), next).into()
}
