//! Blocks that leave the chain, with payments in them. In the drawings a dot is an empty block, a letter
//! holds a payment, and the second branch is the one that is left for.

use creditd::rules::Txid;

use super::bench::{Bench, CREDIT_DEPTH};
use super::stage::Payee::Us;
use super::stage::Stage;
use super::{CONFIRMING, CREATED, ORPHANED, REINSTATED, REVERSED, SEEN};

/// A payment that was seen, and mined `depth` deep.
pub fn mined<S: Stage>(bench: &mut Bench<S>, depth: u32) -> Txid {
    let paid = bench.stage.pay(Us(7_000_000));
    bench.settle();
    bench.stage.mine(&[paid], depth);
    bench.settle();
    paid
}

/// `P` / `.-.`, and `P-.` / `.-.-.`: it waits again, is mined again, and is credited.
pub fn reorg_before_the_credit_takes_the_payment_back<S: Stage>() {
    let mut bench = Bench::<S>::open();
    for depth in 1..CREDIT_DEPTH {
        let paid = mined(&mut bench, depth);
        bench.assert_is(paid, "confirming", &[SEEN, CONFIRMING], &[]);
        bench.stage.reorg(depth, depth + 1, &[]);
        bench.settle();
        let mut events = vec![SEEN, CONFIRMING, ORPHANED, SEEN];
        bench.assert_is(paid, bench.lost_one(), &events, &[]);
        bench.stage.mine(&[], CREDIT_DEPTH);
        bench.settle();
        bench.assert_is(paid, bench.lost_one(), &events, &[]);
        bench.stage.mine(&[paid], CREDIT_DEPTH);
        bench.settle();
        events.extend([CONFIRMING, CREATED]);
        bench.assert_is(paid, "credited", &events, &["credit"]);
        bench.assert_credits(depth as usize);
    }
    bench.assert_at_rest();
}

/// `P-.-.` / `.-.-.-.`, and nothing more.
pub fn reorg_past_the_credit_reverses_it<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    bench.assert_is(paid, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
    bench.settle();
    let events = [SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let journal = ["credit", "reversal:orphaned"];
    bench.assert_is(paid, bench.lost_one(), &events, &journal);
    bench.assert_at_rest();
    bench.stage.mine(&[], CREDIT_DEPTH);
    bench.settle();
    bench.assert_is(paid, bench.lost_one(), &events, &journal);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `P-.-.` / `.-.-.-.-P-.-.`
pub fn payment_that_comes_back_is_reinstated<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    let first = bench.deposit(paid).unwrap().credit.unwrap();
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
    bench.settle();
    bench.stage.mine(&[paid], CREDIT_DEPTH - 1);
    bench.settle();
    let mut events = vec![SEEN, CONFIRMING, CREATED, REVERSED, SEEN, CONFIRMING];
    bench.assert_is(paid, "confirming", &events, &["credit", "reversal:orphaned"]);
    bench.stage.mine(&[], 1);
    bench.settle();
    events.push(REINSTATED);
    let journal = ["credit", "reversal:orphaned", "reinstatement"];
    bench.assert_is(paid, "credited", &events, &journal);
    let again = bench.deposit(paid).unwrap().credit.unwrap();
    assert_eq!(
        (again.id, again.net),
        (first.id, first.net),
        "the same credit again"
    );
    bench.assert_credits(1);
    bench.assert_at_rest();
}

pub fn payment_lost_and_found_over_and_over_is_one_credit<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    let (mut events, mut journal) = (vec![SEEN, CONFIRMING, CREATED], vec!["credit"]);
    for _ in 0..3 {
        bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
        bench.settle();
        events.extend([REVERSED, SEEN]);
        journal.push("reversal:orphaned");
        bench.assert_is(paid, bench.lost_one(), &events, &journal);
        bench.stage.mine(&[paid], CREDIT_DEPTH);
        bench.settle();
        events.extend([CONFIRMING, REINSTATED]);
        journal.push("reinstatement");
        bench.assert_is(paid, "credited", &events, &journal);
    }
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `P-.-.` / `P-.-.-.` / `.P-.-.-.`, where it is one higher than at first.
pub fn payment_in_another_block_keeps_its_credit<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    let first = bench.deposit(paid).unwrap().deposit.height;
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[paid]);
    bench.settle();
    bench.assert_is(paid, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    // One higher. Nobody looks at the branch between.
    bench.stage.reorg(CREDIT_DEPTH + 1, CREDIT_DEPTH + 2, &[]);
    bench.stage.reorg(CREDIT_DEPTH + 1, CREDIT_DEPTH + 2, &[paid]);
    bench.settle();
    bench.assert_is(paid, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    let moved = bench.deposit(paid).unwrap().deposit.height;
    assert_eq!(moved, first.map(|height| height + 1));
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `P-.` / `P-.-.`: it is told where it is now, and is credited there.
pub fn payment_in_another_block_is_credited_from_there<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, 1);
    bench.stage.reorg(1, 2, &[paid]);
    bench.settle();
    let mut events = vec![SEEN, CONFIRMING, CONFIRMING];
    bench.assert_is(paid, "confirming", &events, &[]);
    bench.stage.mine(&[], CREDIT_DEPTH - 2);
    bench.settle();
    events.push(CREATED);
    bench.assert_is(paid, "credited", &events, &["credit"]);
    bench.assert_credits(1);
    bench.assert_at_rest();
}

/// `KDR-K-.` / `KKT-.-.-.`: kept (K), dropped (D), replaced (R) by one that pays too (T).
pub fn each_payment_of_a_reorg_goes_its_own_way<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let [kept, dropped, replaced, late] =
        [1_000_000, 2_000_000, 3_000_000, 4_000_000].map(|sat| bench.stage.pay(Us(sat)));
    bench.settle();
    bench.stage.mine(&[kept, dropped, replaced], 1);
    bench.stage.mine(&[late], CREDIT_DEPTH - 1);
    bench.settle();
    bench.assert_credits(3);
    let taker = bench.stage.rival(replaced, Us(2_900_000));
    bench
        .stage
        .reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[late, taker, kept]);
    bench.settle();
    let credited = [SEEN, CONFIRMING, CREATED];
    bench.assert_is(kept, "credited", &credited, &["credit"]);
    let late_told = [SEEN, CONFIRMING, CONFIRMING, CREATED];
    bench.assert_is(late, "credited", &late_told, &["credit"]);
    let lost = [SEEN, CONFIRMING, CREATED, REVERSED];
    bench.assert_is(replaced, "replaced", &lost, &["credit", "reversal:replaced"]);
    let told = [SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let journal = ["credit", "reversal:orphaned"];
    bench.assert_is(dropped, bench.lost_one(), &told, &journal);
    bench.assert_is(taker, "credited", &[CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(5);
    bench.assert_at_rest();
}

/// `P-.` / `.-.`, whose end is as high: the node shows it for long enough, and it is the chain.
pub fn branch_as_good_as_ours_is_taken_after_some_looks<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, 2);
    let ours = bench.cursor();
    bench.stage.reorg(2, 2, &[]);
    bench.rounds(2);
    assert_eq!(bench.cursor(), ours, "two looks are not enough");
    bench.assert_is(paid, "confirming", &[SEEN, CONFIRMING], &[]);
    bench.settle();
    let events = [SEEN, CONFIRMING, ORPHANED, SEEN];
    bench.assert_is(paid, bench.lost_one(), &events, &[]);
    bench.assert_credits(0);
    bench.assert_at_rest();
}

/// As deep as it may be, and nobody has it in memory.
pub fn reorg_of_all_that_can_be_undone_after_a_restart<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, S::UNDOABLE);
    bench.restart();
    bench.settle();
    bench.stage.reorg(S::UNDOABLE, S::UNDOABLE + 1, &[]);
    bench.settle();
    let events = [SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let journal = ["credit", "reversal:orphaned"];
    bench.assert_is(paid, bench.lost_one(), &events, &journal);
    bench.assert_at_rest();
}

/// `A-.-.` / `B-.-.-.`, of which nobody saw the change.
pub fn reorg_while_it_was_down_is_made_up_for<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let a = mined(&mut bench, CREDIT_DEPTH);
    bench.go_down();
    let b = bench.stage.pay(Us(2_000_000));
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[b]);
    bench.come_up();
    bench.settle();
    let events = [SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let journal = ["credit", "reversal:orphaned"];
    bench.assert_is(a, bench.lost_one(), &events, &journal);
    bench.assert_is(b, "credited", &[CONFIRMING, CREATED], &["credit"]);
    bench.assert_credits(2);
    bench.assert_at_rest();
}
