//! How an invoice stands, in the words of whoever pays it: a pure function of the invoice, its payments, the
//! tip and the time. It says no more than a payer may know.

use crate::rules::invoice::{AmountState, Life, Mark, Status, Terms};
use crate::rules::policy::{Requirement, depth};
use crate::rules::state::State;
use crate::store::InvoicePayment;

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing came yet.
    Waiting,
    /// Something came, and more is to come.
    Partial,
    /// Enough came, and waits.
    Seen,
    /// It is paid.
    Paid,
    /// It is paid, with more than was asked for.
    Overpaid,
    /// It is paid, and too late.
    Late,
    /// Its time is over.
    Expired,
    /// The merchant took it back.
    Cancelled,
}

impl Standing {
    /// The word for programs, and for the style of the page.
    pub(super) fn word(self) -> &'static str {
        match self {
            Standing::Waiting => "waiting",
            Standing::Partial => "partial",
            Standing::Seen => "seen",
            Standing::Paid => "paid",
            Standing::Overpaid => "overpaid",
            Standing::Late => "late",
            Standing::Expired => "expired",
            Standing::Cancelled => "cancelled",
        }
    }

    /// True while the payer is asked for something.
    pub(super) fn is_asking(self) -> bool {
        match self {
            Standing::Waiting | Standing::Partial => true,
            Standing::Seen
            | Standing::Paid
            | Standing::Overpaid
            | Standing::Late
            | Standing::Expired
            | Standing::Cancelled => false,
        }
    }
}

/// The invoice at a moment. Over is over at the second that the page counts down to, for whoever looks at it:
/// the decision, which waits for a look at the chain, may come later and otherwise.
pub(super) fn standing(terms: &Terms, status: &Status, now_ms: i64) -> Standing {
    let is_over = status.life == Life::Expired || (now_ms > terms.expires_at && status.is_short);
    let come = status.paid.saturating_add(status.pending);
    match (status.life, status.amount) {
        (Life::Cancelled, _) => Standing::Cancelled,
        (Life::Settled, AmountState::Overpaid) => Standing::Overpaid,
        (Life::Settled, AmountState::Unpaid | AmountState::Partial | AmountState::Paid) => Standing::Paid,
        (Life::Open | Life::Expired, AmountState::Paid | AmountState::Overpaid) if is_over => Standing::Late,
        (Life::Open | Life::Expired, _) if is_over => Standing::Expired,
        (Life::Open | Life::Expired, _) if come >= terms.required() => Standing::Seen,
        (Life::Open | Life::Expired, _) if come.is_zero() => Standing::Waiting,
        (Life::Open | Life::Expired, _) => Standing::Partial,
    }
}

/// What a payment waits for. Ordered from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    /// Somebody looks at it.
    Held,
    /// So many more blocks.
    Blocks {
        /// How many are missing.
        missing: u64,
        /// Of how many.
        of: u64,
    },
    /// Its block is to become final.
    Final,
    /// It is in no block yet.
    Block,
}

/// What a payment waits for at this tip; `None` of one that is credited, or gone.
pub(super) fn wait(payment: &InvoicePayment, tip: Option<u64>) -> Option<Wait> {
    let deposit = &payment.deposit;
    match deposit.state? {
        State::Seen | State::Confirming if deposit.held_reason.is_some() => Some(Wait::Held),
        State::Seen => Some(Wait::Block),
        State::Confirming => {
            let (Some(height), Some(due)) = (deposit.height, deposit.due_height) else {
                return Some(Wait::Block);
            };
            match deposit.needs {
                Some(Requirement::Safe | Requirement::Finalized) => Some(Wait::Final),
                Some(Requirement::Confirmations(_)) | None => {
                    let of = due.saturating_sub(height).saturating_add(1);
                    let reached = tip.and_then(|tip| depth(tip, height)).unwrap_or(0).min(of);
                    let missing = of.saturating_sub(reached);
                    Some(Wait::Blocks { missing, of })
                }
            }
        }
        State::Credited | State::Evicted | State::Replaced | State::Orphaned | State::Failed => None,
    }
}

/// What the slowest of the payments that count waits for.
pub(super) fn slowest(payments: &[InvoicePayment], tip: Option<u64>) -> Option<Wait> {
    let counted = payments.iter().filter(|payment| match payment.mark {
        Some(Mark::InTime | Mark::Late) => true,
        Some(Mark::Unassigned) | None => false,
    });
    counted.filter_map(|payment| wait(payment, tip)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Amount;
    use crate::rules::invoice::{Payment, Tolerance, status};

    const EXPIRY: i64 = 1_000;

    /// (amount, paid at, is credited)
    type Came = (u64, i64, bool);

    #[track_caller]
    fn check(came: &[Came], cancelled_at: Option<i64>, now_ms: i64, is_decided: bool, expected: Standing) {
        let terms = Terms {
            amount: Amount::from_u64(100),
            tolerance: Tolerance {
                base: Amount::from_u64(2),
                percent_hundredths: 0,
            },
            expires_at: EXPIRY,
            cancelled_at,
        };
        let payment = |(amount, paid_at, is_credited): &Came| Payment {
            amount: Amount::from_u64(*amount),
            paid_at: *paid_at,
            is_credited: *is_credited,
            is_eligible: true,
        };
        let payments: Vec<Payment> = came.iter().map(payment).collect();
        let status = status(&terms, &payments, is_decided);
        assert_eq!(standing(&terms, &status, now_ms), expected, "{came:?}");
    }

    #[test]
    fn every_standing_has_its_word_for_the_payer() {
        let (early, late) = (EXPIRY - 1, EXPIRY + 1);
        for (came, now_ms, is_decided, expected) in [
            (&[][..], early, false, Standing::Waiting),
            (&[], EXPIRY, false, Standing::Waiting),
            // Over for the payer before it is decided.
            (&[], late, false, Standing::Expired),
            (&[], late, true, Standing::Expired),
            (&[(40, early, false)], early, false, Standing::Partial),
            (&[(40, early, true)], early, false, Standing::Partial),
            (&[(40, early, true)], late, false, Standing::Expired),
            (
                &[(40, early, true), (60, early, false)],
                early,
                false,
                Standing::Seen,
            ),
            (&[(98, early, false)], early, false, Standing::Seen),
            // What came in time may take as long as it takes.
            (&[(98, early, false)], late, false, Standing::Seen),
            (&[(98, early, true)], early, false, Standing::Paid),
            (&[(100, early, true)], late, false, Standing::Paid),
            (&[(101, early, true)], early, false, Standing::Overpaid),
            (&[(100, late, false)], late, false, Standing::Expired),
            (&[(100, late, true)], late, false, Standing::Late),
            (&[(40, early, true), (70, late, true)], late, true, Standing::Late),
        ] {
            check(came, None, now_ms, is_decided, expected);
        }
        check(&[(40, early, true)], Some(500), early, false, Standing::Cancelled);
        check(&[], Some(500), late, true, Standing::Cancelled);
    }

    #[test]
    fn the_slowest_payment_is_the_one_that_is_waited_for() {
        let blocks = |missing, of| Wait::Blocks { missing, of };
        let order = [Wait::Held, blocks(1, 6), blocks(2, 3), Wait::Final, Wait::Block];
        assert!(order.is_sorted(), "{order:?}");
    }
}
