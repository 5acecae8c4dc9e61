//! One story with everything in it, told again with an end of the daemon's side wherever there can be one.

use super::bench::{Bench, CREDIT_DEPTH};
use super::stage::Payee::Us;
use super::stage::Stage;
use super::{CONFIRMING, CREATED, REINSTATED, REPLACED, REVERSED, SEEN};

/// Seen, credited, lost and back again, beside one that is replaced; `meanwhile` happens before and after
/// each step is taken in.
fn story<S: Stage>(bench: &mut Bench<S>, mut meanwhile: impl FnMut(&mut Bench<S>)) {
    let mut take_in = |bench: &mut Bench<S>| {
        meanwhile(bench);
        bench.settle();
        meanwhile(bench);
    };
    let paid = bench.stage.pay(Us(7_000_000));
    let first = bench.stage.pay(Us(2_000_000));
    take_in(bench);
    let second = bench.stage.rival(first, Us(1_900_000));
    bench.stage.send(second);
    take_in(bench);
    bench.stage.mine(&[paid], 1);
    take_in(bench);
    bench.stage.mine(&[], CREDIT_DEPTH - 1);
    take_in(bench);
    bench.stage.reorg(CREDIT_DEPTH, CREDIT_DEPTH + 1, &[]);
    take_in(bench);
    bench.stage.mine(&[paid, second], 1);
    take_in(bench);
    bench.stage.mine(&[], CREDIT_DEPTH - 1);
    take_in(bench);
    let told = [SEEN, CONFIRMING, CREATED, REVERSED, SEEN, CONFIRMING, REINSTATED];
    let journal = ["credit", "reversal:orphaned", "reinstatement"];
    bench.assert_is(paid, "credited", &told, &journal);
    bench.assert_is(second, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    let (state, events): (_, &[&str]) = match S::SHOWS_WAITING {
        true => ("replaced", &[SEEN, REPLACED]),
        false => ("absent", &[]),
    };
    bench.assert_is(first, state, events, &[]);
    bench.assert_credits(2);
    bench.assert_at_rest();
}

pub fn restart_between_any_two_steps_changes_nothing<S: Stage>() {
    story(&mut Bench::<S>::open(), Bench::restart);
}

/// The round is left where it has given way once, twice, and so on: between any two questions to the node and
/// any two transactions of the database.
pub fn crash_in_the_middle_of_any_round_changes_nothing<S: Stage>() {
    let mut crashes = 0;
    story(&mut Bench::<S>::open(), |bench| {
        for _ in 0..6 {
            crashes += 1;
            bench.crash_within(crashes % 37);
        }
    });
}
