//! What must hold of an invoice whatever is paid, in whatever order, before and after any other payments.

use creditd::rules::Amount;
use creditd::rules::invoice::{
    AmountState, Change, Life, Mark, Payment, Status, Terms, Tolerance, changes, keeps_expiry, mark, status,
};
use proptest::prelude::*;

fn terms() -> impl Strategy<Value = Terms> {
    (1_u64..50, 0_u64..60, 0_u16..12_000, prop::option::of(0_i64..40))
        .prop_map(|(amount, base, percent_hundredths, cancelled_at)| Terms {
            amount: Amount::from_u64(amount),
            tolerance: Tolerance {
                base: Amount::from_u64(base),
                percent_hundredths,
            },
            expires_at: 20,
            cancelled_at,
        })
        .prop_filter("terms that can be", |terms| terms.check(0).is_ok())
}

fn payments() -> impl Strategy<Value = Vec<Payment>> {
    let payment = (1_u64..40, 0_i64..40, any::<bool>(), prop::bool::weighted(0.8)).prop_map(
        |(amount, paid_at, is_credited, is_eligible)| Payment {
            amount: Amount::from_u64(amount),
            paid_at,
            is_credited,
            is_eligible,
        },
    );
    prop::collection::vec(payment, 0..6)
}

fn sum<'p>(payments: impl Iterator<Item = &'p Payment>) -> Amount {
    payments.fold(Amount::ZERO, |sum, payment| {
        sum.checked_add(payment.amount).unwrap()
    })
}

/// What a status is, said in another way than the code does.
fn check(terms: &Terms, payments: &[Payment], is_decided: bool, status: &Status) {
    let is = |payment: &&Payment, marks: &[Mark]| marks.contains(&mark(terms, payment));
    let counted: Vec<&Payment> = payments
        .iter()
        .filter(|payment| is(payment, &[Mark::InTime, Mark::Late]))
        .collect();
    let paid = sum(counted.iter().copied().filter(|payment| payment.is_credited));
    assert_eq!(status.paid, paid);
    assert_eq!(
        status.pending,
        sum(counted.iter().copied().filter(|payment| !payment.is_credited))
    );
    let in_time = |payment: &&&Payment| is(payment, &[Mark::InTime]);
    let settled = sum(counted
        .iter()
        .filter(in_time)
        .copied()
        .filter(|payment| payment.is_credited));
    let hoped = sum(counted.iter().filter(in_time).copied());
    let required = terms.required();
    let life = if terms.cancelled_at.is_some() {
        Life::Cancelled
    } else if settled >= required {
        Life::Settled
    } else if is_decided && hoped < required {
        Life::Expired
    } else {
        Life::Open
    };
    assert_eq!(status.life, life);
    assert_eq!(status.amount == AmountState::Unpaid, paid.is_zero());
    assert_eq!(status.amount == AmountState::Overpaid, paid > terms.amount);
    let is_enough = matches!(status.amount, AmountState::Paid | AmountState::Overpaid);
    assert_eq!(is_enough, paid >= required);
    assert!(is_decided || life != Life::Expired, "nothing expires undecided");
}

/// The events of a change, played on the status before, end at the status after.
fn check_changes(before: &Status, after: &Status) {
    let told = changes(before, after);
    let mut once = told.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), told.len(), "each at most once: {told:?}");
    let was = |change| told.contains(&change);
    assert_eq!(was(Change::Reversed), after.paid < before.paid);
    assert_eq!(
        was(Change::Settled),
        after.life == Life::Settled && before.life != Life::Settled
    );
    assert_eq!(
        was(Change::Expired),
        after.life == Life::Expired && before.life != Life::Expired
    );
    assert_eq!(
        was(Change::Cancelled),
        after.life == Life::Cancelled && before.life != Life::Cancelled
    );
    let is_enough = |status: &Status| matches!(status.amount, AmountState::Paid | AmountState::Overpaid);
    assert_eq!(was(Change::Paid), is_enough(after) && !is_enough(before));
    let told_of = |status: &Status| {
        (
            status.paid,
            status.amount,
            status.time,
            status.life,
            status.strays,
        )
    };
    assert_eq!(
        told.is_empty(),
        told_of(before) == told_of(after),
        "silence means that nothing is new"
    );
}

proptest! {
    #[test]
    fn a_status_is_what_the_payments_add_up_to(
        terms in terms(), payments in payments(), is_decided: bool, turn in 0_usize..6,
    ) {
        let status_now = status(&terms, &payments, is_decided);
        check(&terms, &payments, is_decided, &status_now);
        let mut turned = payments.clone();
        turned.rotate_left(turn.min(payments.len()));
        prop_assert_eq!(status(&terms, &turned, is_decided), status_now, "the order is nothing");
        if !keeps_expiry(&status_now) {
            prop_assert_eq!(
                status(&terms, &payments, false), status_now,
                "withdrawing a decision that does not stand changes nothing"
            );
        }
    }

    #[test]
    fn what_is_owed_leads_from_one_status_to_the_next(
        terms in terms(), before in payments(), after in payments(), decided: (bool, bool), cancels: bool,
    ) {
        let earlier = Terms {
            // Nothing takes a cancellation back.
            cancelled_at: terms.cancelled_at.filter(|_| !cancels),
            ..terms
        };
        let before = status(&earlier, &before, decided.0);
        let after = status(&terms, &after, decided.1);
        check_changes(&before, &after);
        prop_assert!(changes(&after, &after).is_empty());
    }
}
