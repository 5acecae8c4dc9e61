//! Nodes that show less than they did: nothing of that is news of a payment.

use creditd::rules::Txid;

use super::bench::{Bench, CREDIT_DEPTH};
use super::reorgs::mined;
use super::stage::Payee::Us;
use super::stage::Stage;
use super::{CONFIRMING, CREATED, REINSTATED, REVERSED, SEEN};

/// How often a node is looked at that shows less: more than any number of looks that decides something.
const LOOKS: u32 = 12;

/// `A-.-B`: a credited payment, one in the newest block, and one that waits.
struct Three {
    credited: Txid,
    mined: Txid,
    waits: Txid,
}

impl Three {
    fn on<S: Stage>(bench: &mut Bench<S>) -> Self {
        let credited = mined(bench, CREDIT_DEPTH - 1);
        let mined = mined(bench, 1);
        let waits = bench.stage.pay(Us(3_000_000));
        bench.settle();
        let three = Self {
            credited,
            mined,
            waits,
        };
        three.are_as_they_were(bench);
        three
    }

    #[track_caller]
    fn are_as_they_were<S: Stage>(&self, bench: &Bench<S>) {
        bench.assert_is(
            self.credited,
            "credited",
            &[SEEN, CONFIRMING, CREATED],
            &["credit"],
        );
        bench.assert_is(self.mined, "confirming", &[SEEN, CONFIRMING], &[]);
        bench.assert_is(self.waits, bench.new_one(), &[SEEN], &[]);
        bench.assert_credits(1);
    }

    /// The node shows everything again: the chain goes on as if nothing had been.
    fn go_on<S: Stage>(&self, bench: &mut Bench<S>, before: &[String]) {
        bench.stage.come_back();
        bench.settle();
        bench.assert_unchanged(before);
        bench.stage.mine(&[], CREDIT_DEPTH - 1);
        bench.settle();
        bench.assert_is(self.mined, "credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
        bench.assert_is(self.waits, bench.new_one(), &[SEEN], &[]);
        bench.assert_credits(2);
        bench.assert_at_rest();
    }
}

/// Looks at it until the chain is called behind, and then for long.
fn look_for_long<S: Stage>(bench: &mut Bench<S>, before: &[String]) {
    let tip = bench.cursor();
    bench.until("the chain is behind", |bench| bench.state() == "behind");
    bench.rounds(LOOKS);
    assert_eq!((bench.cursor(), bench.state()), (tip, "behind"));
    bench.assert_unchanged(before);
}

/// `A-.-B` / `A`
pub fn node_that_is_behind_changes_nothing<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let three = Three::on(&mut bench);
    for depth in [1, 2] {
        let before = bench.facts();
        bench.stage.step_aside(depth, 0);
        look_for_long(&mut bench, &before);
        three.are_as_they_were(&bench);
        if depth == 1 {
            bench.stage.come_back();
            bench.settle();
        } else {
            three.go_on(&mut bench, &before);
        }
    }
}

/// `A-.-B` / `.-.`
pub fn node_on_a_worse_branch_changes_nothing<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let three = Three::on(&mut bench);
    let before = bench.facts();
    bench.stage.step_aside(CREDIT_DEPTH, CREDIT_DEPTH - 1);
    look_for_long(&mut bench, &before);
    three.are_as_they_were(&bench);
    three.go_on(&mut bench, &before);
}

/// The same, where nobody of the daemon's side remembers what the node showed before.
pub fn restart_beside_a_node_on_a_worse_branch_changes_nothing<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let three = Three::on(&mut bench);
    let before = bench.facts();
    bench.go_down();
    bench.stage.step_aside(CREDIT_DEPTH, CREDIT_DEPTH - 1);
    bench.come_up();
    look_for_long(&mut bench, &before);
    bench.restart();
    look_for_long(&mut bench, &before);
    three.are_as_they_were(&bench);
    three.go_on(&mut bench, &before);
}

/// Behind one address two nodes, each on its own of two branches that are as good.
pub fn branches_as_good_as_each_other_shown_in_turn_change_nothing<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let three = Three::on(&mut bench);
    let before = bench.facts();
    for _ in 0..LOOKS {
        bench.stage.step_aside(2, 2);
        bench.round();
        bench.stage.come_back();
        bench.round();
        bench.assert_unchanged(&before);
    }
    bench.settle();
    bench.assert_unchanged(&before);
    three.are_as_they_were(&bench);
}

/// `P-.-.` / `.-.-.-.`, and back to the same blocks as soon as they are more: `P-.-.-.-.`
pub fn better_branch_that_is_given_up_again_is_undone<S: Stage>() {
    let mut bench = Bench::<S>::open();
    let paid = mined(&mut bench, CREDIT_DEPTH);
    let place = bench.deposit(paid).unwrap().deposit.height;
    bench.stage.step_aside(CREDIT_DEPTH, CREDIT_DEPTH + 1);
    bench.settle();
    let mut events = vec![SEEN, CONFIRMING, CREATED, REVERSED, SEEN];
    let mut journal = vec!["credit", "reversal:orphaned"];
    bench.assert_is(paid, bench.lost_one(), &events, &journal);
    // One block less than the branch that we are on now.
    bench.stage.come_back();
    let before = bench.facts();
    look_for_long(&mut bench, &before);
    bench.stage.mine(&[], 2);
    bench.settle();
    events.extend([CONFIRMING, REINSTATED]);
    journal.push("reinstatement");
    bench.assert_is(paid, "credited", &events, &journal);
    assert_eq!(bench.deposit(paid).unwrap().deposit.height, place);
    bench.assert_credits(1);
    bench.assert_at_rest();
}
