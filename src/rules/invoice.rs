//! What has become of an invoice: a pure function of its terms, the payments to its address and a recorded
//! expiry decision, which is revisable. It moves no money: what is paid is credited to the merchant whatever
//! is said here. Start at [`status`]; what two statuses in a row owe the merchant is told by [`changes`].

use super::Amount;
use thiserror::Error;

/// How much of what was asked for is credited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AmountState {
    /// Nothing.
    Unpaid,
    /// Less than what is required.
    Partial,
    /// What was asked for, less the tolerance at most.
    Paid,
    /// More than what was asked for.
    Overpaid,
}

/// Was what is required credited by payments that came in time?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeFlag {
    /// Yes, or nothing late is credited.
    InTime,
    /// Something late is credited, and what came in time does not do.
    Late,
}

/// Where an invoice stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// It can be paid.
    Open,
    /// What is required came in time and is credited. A reorg can open it again.
    Settled,
    /// Its time was over and what is required had not come. Whatever comes to light can revise it.
    Expired,
    /// The merchant took it back; for good.
    Cancelled,
}

macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The word in the database, in JSON and in tables.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// Reads the word back.
            pub fn from_word(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|known| known.word() == word)
            }
        }
    };
}

words!(AmountState {
    Unpaid = "unpaid",
    Partial = "partial",
    Paid = "paid",
    Overpaid = "overpaid",
});
words!(TimeFlag {
    InTime = "in_time",
    Late = "late",
});
words!(Life {
    Open = "open",
    Settled = "settled",
    Expired = "expired",
    Cancelled = "cancelled",
});
words!(Mark {
    InTime = "in_time",
    Late = "late",
    Unassigned = "unassigned",
});

/// How much less than what was asked for is taken for all of it: the larger of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tolerance {
    /// In base units.
    pub base: Amount,
    /// In hundredths of a percent of the amount, below 10,000.
    pub percent_hundredths: u16,
}

/// Why terms cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TermsError {
    /// Nothing is asked for.
    #[error("the amount must be more than 0")]
    NoAmount,
    /// An invoice that is paid by nothing.
    #[error("the tolerance must be less than the amount, and less than 100 percent")]
    TooTolerant,
    /// It would be over before it began.
    #[error("the expiry must be later than now")]
    ExpiresTooEarly,
}

/// What was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What is asked for, in base units.
    pub amount: Amount,
    /// How much less will do.
    pub tolerance: Tolerance,
    /// Payments up to this moment are in time. Unix milliseconds.
    pub expires_at: i64,
    /// When the merchant took it back, if so: payments after this moment are not the invoice's.
    pub cancelled_at: Option<i64>,
}

impl Terms {
    /// Can an invoice be made on these terms now?
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn check(&self, now_ms: i64) -> Result<(), TermsError> {
        if self.amount.is_zero() {
            return Err(TermsError::NoAmount);
        }
        if self.tolerance.percent_hundredths >= 10_000 || self.required().is_zero() {
            return Err(TermsError::TooTolerant);
        }
        if self.expires_at <= now_ms {
            return Err(TermsError::ExpiresTooEarly);
        }
        Ok(())
    }

    /// What has to come: the amount less the tolerance.
    pub fn required(&self) -> Amount {
        let percent = self
            .amount
            .hundredths_of_percent(self.tolerance.percent_hundredths);
        let tolerated = percent.max(self.tolerance.base);
        self.amount.checked_sub(tolerated).unwrap_or(Amount::ZERO)
    }
}

/// A payment to an invoice's address that is in a mempool or on the best chain; one that left both is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Base units of its own asset.
    pub amount: Amount,
    /// The earlier of when it was first seen and the time of its block. Unix milliseconds.
    pub paid_at: i64,
    /// Its credit nets to the amount; if not, it waits for its confirmations or is held.
    pub is_credited: bool,
    /// It pays the invoice's asset and was first met after the invoice was made: not below its birth.
    pub is_eligible: bool,
}

/// What a payment is to an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Counted.
    InTime,
    /// Counted, and after the expiry.
    Late,
    /// Not counted: before the invoice's birth, after its cancellation, or in another asset.
    Unassigned,
}

/// The moment that a payment counts for: nobody's delay in seeing it, and no block's late time, makes it
/// late.
pub fn paid_at(first_seen_ms: i64, block_ms: Option<i64>) -> i64 {
    block_ms.map_or(first_seen_ms, |block| block.min(first_seen_ms))
}

/// What a payment is to the invoice.
pub fn mark(terms: &Terms, payment: &Payment) -> Mark {
    let is_after_cancel = terms.cancelled_at.is_some_and(|at| payment.paid_at > at);
    match (
        payment.is_eligible && !is_after_cancel,
        payment.paid_at <= terms.expires_at,
    ) {
        (false, _) => Mark::Unassigned,
        (true, true) => Mark::InTime,
        (true, false) => Mark::Late,
    }
}

/// What has become of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How much is credited.
    pub amount: AmountState,
    /// Whether it came in time.
    pub time: TimeFlag,
    /// Where it stands.
    pub life: Life,
    /// The credited payments that count.
    pub paid: Amount,
    /// The payments that count and wait for their confirmations, or are held.
    pub pending: Amount,
    /// How many credited payments belong to no order, so that somebody has to look: those that are late or
    /// unassigned, and all of an invoice that is expired or cancelled.
    pub strays: u64,
    /// What came in time, waiting payments included, is less than what is required: the invoice may expire.
    pub is_short: bool,
}

#[derive(Default)]
struct Sums {
    paid: Amount,
    pending: Amount,
    paid_in_time: Amount,
    pending_in_time: Amount,
    has_late: bool,
    credited: u64,
    out_of_time: u64,
}

/// What has become of an invoice. `is_expiry_decided`: when its time was over, the chain was looked at and it
/// was short.
pub fn status(terms: &Terms, payments: &[Payment], is_expiry_decided: bool) -> Status {
    let mut sums = Sums::default();
    for payment in payments {
        let mark = mark(terms, payment);
        sums.credited += u64::from(payment.is_credited);
        sums.out_of_time += u64::from(payment.is_credited && mark != Mark::InTime);
        if mark == Mark::Unassigned {
            continue;
        }
        let (sum, in_time) = match payment.is_credited {
            true => (&mut sums.paid, &mut sums.paid_in_time),
            false => (&mut sums.pending, &mut sums.pending_in_time),
        };
        // Only logs of a token that claim anything can pass 2^256, and no money depends on it.
        *sum = sum.saturating_add(payment.amount);
        match mark {
            Mark::InTime => *in_time = in_time.saturating_add(payment.amount),
            Mark::Late | Mark::Unassigned => sums.has_late |= payment.is_credited,
        }
    }
    let required = terms.required();
    let is_short = sums.paid_in_time.saturating_add(sums.pending_in_time) < required;
    let is_settled = sums.paid_in_time >= required;
    let life = match (terms.cancelled_at, is_settled, is_expiry_decided && is_short) {
        (Some(_), _, _) => Life::Cancelled,
        (None, true, _) => Life::Settled,
        (None, false, true) => Life::Expired,
        (None, false, false) => Life::Open,
    };
    Status {
        amount: amount_state(terms, sums.paid),
        time: match sums.has_late && !is_settled {
            true => TimeFlag::Late,
            false => TimeFlag::InTime,
        },
        life,
        paid: sums.paid,
        pending: sums.pending,
        strays: match life {
            Life::Expired | Life::Cancelled => sums.credited,
            Life::Open | Life::Settled => sums.out_of_time,
        },
        is_short,
    }
}

fn amount_state(terms: &Terms, paid: Amount) -> AmountState {
    if paid.is_zero() {
        AmountState::Unpaid
    } else if paid < terms.required() {
        AmountState::Partial
    } else if paid <= terms.amount {
        AmountState::Paid
    } else {
        AmountState::Overpaid
    }
}

/// Does a recorded expiry decision still stand? One that does not is withdrawn, and has to be made anew by
/// another look at the chain: a payment that was there a moment ago is not given up for one that left.
pub fn keeps_expiry(status: &Status) -> bool {
    status.is_short || status.life == Life::Cancelled
}

/// One thing that happened to an invoice, for which there is one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// It was made.
    Created,
    /// More is credited, and it is not enough.
    PartiallyPaid,
    /// What is required is credited.
    Paid,
    /// More is credited than was asked for.
    Overpaid,
    /// Less is credited than before.
    Reversed,
    /// What is required came in time.
    Settled,
    /// Its time was over.
    Expired,
    /// It is not settled, or not expired, after all.
    Reopened,
    /// The merchant took it back.
    Cancelled,
    /// Something else about it changed.
    State,
}

words!(Change {
    Created = "invoice.created",
    PartiallyPaid = "invoice.partially_paid",
    Paid = "invoice.paid",
    Overpaid = "invoice.overpaid",
    Reversed = "invoice.reversed",
    Settled = "invoice.settled",
    Expired = "invoice.expired",
    Reopened = "invoice.reopened",
    Cancelled = "invoice.cancelled",
    State = "invoice.state",
});

/// What is owed to the merchant when an invoice goes from one status to another, in order. Payments that only
/// wait are told by the events of their deposits.
pub fn changes(before: &Status, after: &Status) -> Vec<Change> {
    let mut changes = Vec::new();
    let is_enough = |state| matches!(state, AmountState::Paid | AmountState::Overpaid);
    if after.paid < before.paid {
        changes.push(Change::Reversed);
    }
    if after.paid > before.paid {
        // Whatever comes at once, what is required is reached once.
        if is_enough(after.amount) && !is_enough(before.amount) {
            changes.push(Change::Paid);
        }
        match after.amount {
            AmountState::Overpaid => changes.push(Change::Overpaid),
            AmountState::Partial => changes.push(Change::PartiallyPaid),
            AmountState::Unpaid | AmountState::Paid => {}
        }
    }
    if after.life != before.life {
        let is_revised = before.life == Life::Expired && after.life != Life::Cancelled;
        if is_revised || after.life == Life::Open {
            changes.push(Change::Reopened);
        }
        match after.life {
            Life::Open => {}
            Life::Settled => changes.push(Change::Settled),
            Life::Expired => changes.push(Change::Expired),
            Life::Cancelled => changes.push(Change::Cancelled),
        }
    }
    let told = |status: &Status| (status.paid, status.amount, status.time, status.strays);
    if changes.is_empty() && told(before) != told(after) {
        changes.push(Change::State);
    }
    changes
}

#[cfg(test)]
mod tests;
