//! Two transactions of which a chain can hold only one: they spend the same coin, or have the same nonce.

use super::bench::{Bench, CREDIT_DEPTH};
use super::reorgs::mined;
use super::stage::Payee::{Nobody, Us};
use super::stage::Stage;
use super::{CONFIRMING, CREATED, REINSTATED, REPLACED, REVERSED, SEEN};

/// Where nobody sees what waits, the first is never heard of.
pub fn replacement_before_a_block_is_the_one_credited<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let first = bench.stage.pay(Us(7_000_000));
    bench.settle();
    let second = bench.stage.rival(first, Us(6_000_000));
    bench.stage.send(second);
    bench.settle();
    let (state, events): (_, &[&str]) = match S::SHOWS_WAITING {
        true => ("replaced", &[SEEN, REPLACED]),
        false => ("absent", &[]),
    };
    bench.assert_is(first, state, events, &[]);
    bench.assert_is(second, bench.new_one(), &[SEEN], &[]);
    bench.assert_at_rest();
    bench.stage.mine(&[second], CREDIT_DEPTH);
    bench.settle();
    bench.assert_is(first, state, events, &[]);
    bench.assert_is(second, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// The same, and whoever paid has it back.
pub fn replacement_that_pays_nobody_takes_the_payment_away<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let first = bench.stage.pay(Us(7_000_000));
    bench.settle();
    let second = bench.stage.rival(first, Nobody);
    bench.stage.mine(&[second], CREDIT_DEPTH);
    bench.settle();
    let (state, events): (_, &[&str]) = match S::SHOWS_WAITING {
        true => ("replaced", &[SEEN, REPLACED]),
        false => ("absent", &[]),
    };
    bench.assert_is(first, state, events, &[]);
    bench.assert_is(second, "absent", &[], &[]);
    bench.assert_credits(0);
    bench.assert_at_rest();
}

/// `A-.` / `B-.-.`
pub fn replacement_by_a_reorg_before_the_credit<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let depth = CREDIT_DEPTH - 1;
    let first = mined(&mut bench, depth);
    let second = bench.stage.rival(first, Us(6_000_000));
    bench.stage.reorg(depth, depth + 1, &[second]);
    bench.settle();
    bench.assert_is(first, "replaced", &[SEEN, CONFIRMING, REPLACED], &[]);
    bench.assert_is(second, "credited", &[CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `A-.-.` / `B-.-.-.` / `A-.-.-.-.`
pub fn replacement_by_a_reorg_past_the_credit_and_back<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let first = mined(&mut bench, CREDIT_DEPTH);
    let second = bench.stage.rival(first, Us(6_000_000));
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[second]);
    bench.settle();
    let mut first_told = vec![SEEN, CONFIRMING, CREATED, REVERSED];
    let mut first_booked = vec!["credit", "reversal:replaced"];
    bench.assert_is(first, "replaced", &first_told, &first_booked);
    let second_told = [CONFIRMING, CREATED];
    bench.assert_is(second, "credited", &second_told, &["credit"]);
    bench.assert_at_rest();

    bench.stage.reorg(CREDIT_DEPTH + 1, CREDIT_DEPTH + 2, &[first]);
    bench.settle();
    first_told.extend([CONFIRMING, REINSTATED]);
    first_booked.push("reinstatement");
    bench.assert_is(first, "credited", &first_told, &first_booked);
    let journal = ["credit", "reversal:replaced"];
    bench.assert_is(second, "replaced", &[CONFIRMING, CREATED, REVERSED], &journal);
    bench.assert_credits(2);
    bench.assert_at_rest();
}

/// `A-.-.` / `X-.-.-.`, where X takes the coin elsewhere.
pub fn replacement_by_a_reorg_that_pays_nobody<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    let taker = bench.stage.rival(paid, Nobody);
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[taker]);
    bench.settle();
    let told = [SEEN, CONFIRMING, CREATED, REVERSED];
    bench.assert_is(paid, "replaced", &told, &["credit", "reversal:replaced"]);
    bench.assert_is(taker, "absent", &[], &[]);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `A-.-.` / `.-.-.-.-B`: the block of the one that takes its place comes long after the reorg.
pub fn replacement_after_a_reorg_that_lost_the_payment<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let first = mined(&mut bench, CREDIT_DEPTH);
    let second = bench.stage.rival(first, Us(6_000_000));
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
    bench.settle();
    let mut events = vec![SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let journal = ["credit", "reversal:orphaned"];
    bench.assert_is(first, bench.lost_one(), &events, &journal);
    bench.stage.mine(&[second], CREDIT_DEPTH);
    bench.settle();
    events.push(REPLACED);
    bench.assert_is(first, "replaced", &events, &journal);
    bench.assert_is(second, "credited", &[CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(2);
    bench.assert_at_rest();
}

/// `A-.-.` / `.-.-.-.-X`, where X takes the coin elsewhere.
pub fn replacement_after_a_reorg_that_pays_nobody<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    let taker = bench.stage.rival(paid, Nobody);
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
    bench.settle();
    bench.stage.mine(&[taker], CREDIT_DEPTH);
    bench.settle();
    let mut events = vec![SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let journal = ["credit", "reversal:orphaned"];
    if S::SEES_EVERY_SENDER {
        events.push(REPLACED);
        bench.assert_is(paid, "replaced", &events, &journal);
    } else {
        bench.assert_is(paid, "orphaned", &events, &journal);
    }
    bench.assert_is(taker, "absent", &[], &[]);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `A-.-.` / `.-.-.-.`, and in the pool something else takes its place, is mined and lost in turn.
pub fn replacement_of_what_a_reorg_lost_is_lost_in_turn<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let first = mined(&mut bench, CREDIT_DEPTH);
    let second = bench.stage.rival(first, Us(6_000_000));
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
    bench.settle();
    bench.stage.send(second);
    bench.stage.mine(&[second], CREDIT_DEPTH);
    bench.settle();
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[first]);
    bench.settle();
    let told = [
        SEEN, CONFIRMING, CREATED, REVERSED, SEEN, REPLACED, CONFIRMING, REINSTATED,
    ];
    let journal = ["credit", "reversal:orphaned", "reinstatement"];
    bench.assert_is(first, "credited", &told, &journal);
    let journal = ["credit", "reversal:replaced"];
    bench.assert_is(second, "replaced", &[CONFIRMING, CREATED, REVERSED], &journal);
    bench.assert_credits(2);
    bench.assert_at_rest();
}
