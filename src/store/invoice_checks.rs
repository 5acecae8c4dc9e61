//! What must hold of invoices: the books add up to what each shows as paid (I4), what is stored is what the
//! rules say (I20), and its events lead from one status to the next, each told once (I10).

use super::checks::Violation;
use super::invoices::Invoice;
use super::{ReadTx, StoreError};
use crate::rules::invariants::Invariant;
use crate::rules::invoice::{
    AmountState, Change, Life, Mark, Status, TimeFlag, changes, keeps_expiry, status,
};
use crate::rules::{Amount, ids};
use serde_json::Value;

/// One event of an invoice.
struct Told {
    kind: String,
    sequence: i64,
    id: String,
    status: Option<Status>,
    /// Told anew after a restore, and no change.
    is_anew: bool,
}

impl ReadTx<'_> {
    /// The next `most` invoices above a row; `None`: those were the last.
    pub(super) fn check_invoices(
        &self,
        above: i64,
        most: i64,
        found: &mut Vec<Violation>,
    ) -> Result<Option<i64>, StoreError> {
        let invoices = self.invoices_where("WHERE i.id > ?1 ORDER BY i.id LIMIT ?2", [above, most])?;
        let is_full = i64::try_from(invoices.len()).is_ok_and(|count| count == most);
        let last = invoices.last().map(|invoice| invoice.key).filter(|_| is_full);
        for invoice in invoices {
            let mut wrong = |invariant, what: String| {
                found.push(Violation {
                    invariant,
                    subject: invoice.id.clone(),
                    what,
                });
            };
            if let Some(what) = self.books_fault(&invoice)? {
                wrong(Invariant::I4InvoiceBooks, what);
            }
            let payments = self.live_payments(&invoice)?;
            let anew = status(&invoice.terms, &payments, invoice.expired_at.is_some());
            if anew != invoice.status {
                wrong(
                    Invariant::I20Recomputed,
                    format!("stored {:?}, recomputed {anew:?}", invoice.status),
                );
            }
            if invoice.expired_at.is_some() && !keeps_expiry(&anew) {
                let what = "its expiry stands, though enough came in time";
                wrong(Invariant::I20Recomputed, what.to_owned());
            }
            if ids::invoice_id(&invoice.chain_id, &invoice.script) != invoice.id {
                wrong(Invariant::I10OneEvent, "the id is not its address'".to_owned());
            }
            for what in self.tale_faults(&invoice)? {
                wrong(Invariant::I10OneEvent, what);
            }
        }
        Ok(last)
    }

    /// Sum of the journal = sum of the deposits whose net is positive = what the invoice shows as paid.
    fn books_fault(&self, invoice: &Invoice) -> Result<Option<String>, StoreError> {
        let (mut booked, mut paid) = (Amount::ZERO, Amount::ZERO);
        let mut entries = self.conn().prepare_cached(
            "SELECT c.amount, count(j.id) FROM credits c JOIN journal j ON j.credit = c.id \
             WHERE c.output = ?1 AND c.asset = ?2 GROUP BY c.id",
        )?;
        for payment in self.invoice_payments(invoice)? {
            let deposit = &payment.deposit;
            if !matches!(payment.mark, Some(Mark::InTime | Mark::Late)) {
                continue;
            }
            if deposit.state == Some(crate::rules::state::State::Credited) {
                paid = paid.saturating_add(deposit.amount);
            }
            let mut rows = entries.query([deposit.output, invoice.asset_key.0])?;
            while let Some(row) = rows.next()? {
                if row.get::<_, i64>(1)? % 2 == 1 {
                    booked = booked.saturating_add(row.get(0)?);
                }
            }
        }
        let shown = invoice.status.paid;
        let is_right = booked == paid && paid == shown;
        Ok((!is_right).then(|| {
            format!(
                "its journal nets to {booked}, its deposits to {paid}, it shows {shown} as \
             paid"
            )
        }))
    }

    /// Events of one change follow each other and tell the same status; the next change is another one.
    fn tale_faults(&self, invoice: &Invoice) -> Result<Vec<String>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT type, sequence, id, body, EXISTS (SELECT 1 FROM restated WHERE event = events.id) \
             FROM events WHERE subject = ?1 ORDER BY sequence",
        )?;
        let mut rows = statement.query([&invoice.id])?;
        let (mut told, mut faults) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            let body: String = row.get(3)?;
            let event = Told {
                kind: row.get(0)?,
                sequence: row.get(1)?,
                id: row.get(2)?,
                status: status_told(&body),
                is_anew: row.get(4)?,
            };
            if event.status.is_none() {
                faults.push(format!("the body of event {} tells no status", event.sequence));
            }
            told.push(event);
        }
        faults.extend(id_faults(&invoice.id, &told));
        faults.extend(change_faults(&told, &invoice.status));
        Ok(faults)
    }
}

fn status_told(body: &str) -> Option<Status> {
    let body: Value = serde_json::from_str(body).ok()?;
    let text = |name: &str| body["data"][name].as_str();
    Some(Status {
        amount: AmountState::from_word(text("amount_state")?)?,
        time: TimeFlag::from_word(text("time")?)?,
        life: Life::from_word(text("life")?)?,
        paid: Amount::from_base_str(text("paid_base")?).ok()?,
        pending: Amount::ZERO,
        strays: body["data"]["strays"].as_u64()?,
        is_short: false,
    })
}

/// The first `invoice.paid` hashes its subject alone, all others also the number, which never repeats.
fn id_faults(subject: &str, told: &[Told]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut was_paid = false;
    let mut last = 0;
    for event in told {
        let is_first = event.kind == Change::Paid.word() && !was_paid;
        was_paid |= is_first;
        let derived = match is_first {
            true => ids::first_event_id(subject, &event.kind),
            false => ids::event_id(subject, &event.kind, event.sequence),
        };
        if derived != event.id {
            faults.push(format!(
                "event {} has the id {}, not {derived}",
                event.sequence, event.id
            ));
        }
        let starts_generation = event.sequence & 0xffff_ffff == 1 && event.sequence > last;
        if event.sequence != last + 1 && !starts_generation {
            faults.push(format!("event {} after {last}", event.sequence));
        }
        last = event.sequence;
    }
    faults
}

fn change_faults(told: &[Told], now: &Status) -> Vec<String> {
    let mut faults = Vec::new();
    let told: Vec<&Told> = told.iter().filter(|event| !event.is_anew).collect();
    let mut changed = told.chunk_by(|one, other| one.status == other.status);
    let mut before = match changed.next() {
        Some([first]) if first.kind == Change::Created.word() => first.status,
        Some(_) | None => return vec!["its events do not begin with its making".to_owned()],
    };
    for same in changed {
        let after = same[0].status;
        let kinds: Vec<&str> = same.iter().map(|event| event.kind.as_str()).collect();
        let owed: Vec<&str> = match (before, after) {
            (Some(before), Some(after)) => changes(&before, &after).into_iter().map(Change::word).collect(),
            (None, _) | (_, None) => Vec::new(),
        };
        if kinds != owed {
            faults.push(format!("its events tell {kinds:?}, the change owes {owed:?}"));
        }
        before = after;
    }
    let now = Status {
        pending: Amount::ZERO,
        is_short: false,
        ..*now
    };
    if before != Some(now) {
        faults.push(format!("its last event tells {before:?}, it is {now:?}"));
    }
    faults
}
