//! Payments on a chain that only grows. In the drawings a dot is an empty block and P holds the payment.

use super::bench::{Bench, CREDIT_DEPTH};
use super::stage::Payee::{Nobody, Us};
use super::stage::Stage;
use super::{CONFIRMING, CREATED, REPLACED, SEEN};

/// `P-.-.-.`
pub fn payment_is_credited_once_at_its_depth<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = bench.stage.pay(Us(7_000_000));
    bench.settle();
    bench.assert_is(paid, bench.new_one(), &[SEEN], &[]);
    bench.stage.mine(&[paid], 1);
    for _ in 1..CREDIT_DEPTH {
        bench.settle();
        bench.assert_is(paid, "confirming", &[SEEN, CONFIRMING], &[]);
        bench.assert_credits(0);
        bench.stage.mine(&[], 1);
    }
    bench.settle();
    bench.assert_is(paid, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    let credit = bench.deposit(paid).unwrap().credit.unwrap();
    assert_eq!(credit.net.to_string(), "7000000");
    bench.assert_at_rest();
    bench.stage.mine(&[], 2);
    bench.settle();
    bench.assert_is(paid, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `PPP-P-.`
pub fn payments_of_one_block_are_credited_each_for_itself<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = [1_000_000, 2_000_000, 1_000_000, 3_000_000].map(|amount| bench.stage.pay(Us(amount)));
    bench.settle();
    bench.stage.mine(&paid[..3], 1);
    bench.stage.mine(&paid[3..], CREDIT_DEPTH - 1);
    bench.settle();
    for paid in &paid[..3] {
        bench.assert_is(*paid, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    }
    bench.assert_is(paid[3], "confirming", &[SEEN, CONFIRMING], &[]);
    bench.assert_credits(3);
    bench.stage.mine(&[], 1);
    bench.settle();
    bench.assert_is(paid[3], "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(4);
    bench.assert_at_rest();
}

pub fn payment_to_nobody_is_nothing<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let before = bench.facts();
    let paid = bench.stage.pay(Nobody);
    bench.settle();
    bench.assert_unchanged(&before);
    bench.stage.mine(&[paid], CREDIT_DEPTH);
    bench.settle();
    bench.assert_is(paid, "absent", &[], &[]);
    bench.assert_credits(0);
    bench.assert_at_rest();
}

/// `A-.-B-.-C`, of which nobody saw anything: `A` is deep enough, `B` is too, `C` is not.
pub fn payments_made_while_it_was_down_are_all_credited<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let before = bench.stage.pay(Us(500_000));
    bench.settle();
    bench.go_down();
    let [a, b, c, waits] = [1_000_000, 2_000_000, 3_000_000, 4_000_000].map(|sat| bench.stage.pay(Us(sat)));
    bench.stage.mine(&[a, before], 2);
    bench.stage.mine(&[b], 2);
    bench.stage.mine(&[c], 1);
    bench.come_up();
    bench.settle();
    bench.assert_is(before, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    for paid in [a, b] {
        bench.assert_is(paid, "credited", &[CONFIRMING, CREATED], &["credit"]);
    }
    bench.assert_is(c, "confirming", &[CONFIRMING], &[]);
    bench.assert_is(waits, bench.new_one(), &[SEEN], &[]);
    bench.assert_credits(3);
    bench.assert_at_rest();
}

/// A payment early, one in the middle, one at the end, and one that was seen before and never came: something
/// else took its place.
pub fn two_hundred_blocks_while_it_was_down_are_made_up_for<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let gone = bench.stage.pay(Us(500_000));
    bench.settle();
    bench.go_down();
    let [early, middle, late] = [1_000_000, 2_000_000, 3_000_000].map(|amount| bench.stage.pay(Us(amount)));
    let taker = bench.stage.rival(gone, Nobody);
    bench.stage.mine(&[early], 100);
    bench.stage.mine(&[middle], 60);
    bench.stage.mine(&[taker], 40);
    bench.stage.mine(&[late], 1);
    bench.come_up();
    bench.settle();
    for paid in [early, middle] {
        bench.assert_is(paid, "credited", &[CONFIRMING, CREATED], &["credit"]);
    }
    bench.assert_is(late, "confirming", &[CONFIRMING], &[]);
    let (state, events): (_, &[&str]) = match S::SHOWS_WAITING {
        true => ("replaced", &[SEEN, REPLACED]),
        false => ("absent", &[]),
    };
    bench.assert_is(gone, state, events, &[]);
    bench.assert_credits(2);
    bench.assert_at_rest();
}
