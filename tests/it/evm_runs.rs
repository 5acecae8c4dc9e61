//! A reorg runs an EVM transaction again: at other positions, with other amounts, without some of its
//! movements, or failing. At most one of the contents of a position counts at any moment.

use crate::evm_rig::{TUSD, evm, evm_with, payer};
use crate::rig::{Rig, in_simulation, policy};
use crate::scripted::{Call, Tx, account};
use creditd::rules::{BlockHash, Script};
use creditd::store::{Backfill, Terms};
use std::sync::Arc;

/// Ours up to `below`, then a block with a payment by log 7, credited if wanted.
struct Story {
    rig: Rig,
    to: Script,
    below: BlockHash,
    call: Call,
    tx: Arc<Tx>,
}

impl Story {
    /// Another address, whose coin is the merchant's own.
    async fn own(&self) -> Script {
        let kind = creditd::store::AddressKind::Own;
        self.rig.add(kind, 2, "shop", "ignore").await
    }

    async fn new(depth: usize) -> Story {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        let below = rig.extend(3);
        let call = payer(&rig);
        let tx = rig.make(&call.clone().log(7, TUSD, &to, 50));
        rig.mine(&[&tx]);
        rig.extend(depth - 1);
        rig.settle().await;
        rig.compare_evm();
        Story {
            rig,
            to,
            below,
            call,
            tx,
        }
    }

    /// Mines another run of the transaction on another branch, at one block more than ours has.
    async fn rerun(&mut self, run: &Arc<Tx>) -> BlockHash {
        let length = self.rig.best_chain().len() - 1 - 3;
        let at = self.rig.mine_on(self.below, &[run]);
        self.rig.go_to(self.rig.extend_on(at, length));
        self.rig.settle().await;
        self.rig.compare_evm();
        self.rig.tip()
    }

    fn run(&self, log: u32, amount: u64) -> Arc<Tx> {
        self.call.clone().log(log, TUSD, &self.to, amount).again(&self.tx)
    }

    fn state(&self, log: u32, execution: u64) -> String {
        self.rig.deposit_state(&self.tx.log(log, execution))
    }

    fn journal(&self, log: u32, execution: u64) -> Vec<String> {
        self.rig.tables.journal(&self.tx.log(log, execution))
    }

    fn live(&self) -> i64 {
        let sql = "SELECT count(*) FROM deposits WHERE state = 'credited'";
        self.rig.tables.count(sql)
    }
}

/// Log 7 becomes log 8 because a pool logs once more: the payment is the same, and is paid once.
#[test]
fn a_log_that_shifts_is_credited_once() {
    in_simulation(async {
        for depth in [1, 3] {
            let mut story = Story::new(depth).await;
            let shifted = story.run(8, 50);
            story.rerun(&shifted).await;
            story.rig.extend(3);
            story.rig.settle().await;
            story.rig.compare_evm();
            assert_eq!(story.state(7, 0), "orphaned");
            assert_eq!(story.state(8, 0), "credited");
            let was_credited = depth == 3;
            let journal: &[&str] = if was_credited {
                &["credit", "reversal:orphaned"]
            } else {
                &[]
            };
            assert_eq!(story.journal(7, 0), journal);
            assert_eq!(story.live(), 1);
            let events = story.rig.tables.events();
            let place = |kind: &str| events.iter().rposition(|event| event == kind);
            if was_credited {
                assert!(place("credit.reversed") < place("credit.created"), "{events:?}");
            }
        }
    });
}

/// The log shifts on another branch, and on a third one somebody else has used the nonce up: neither of the
/// two runs can come back, and both say so.
///
/// ```text
/// A - T (log 7)
///   \ T (log 8) - B
///    \ R - C - D
/// ```
#[test]
fn what_an_earlier_run_paid_is_replaced_too_when_a_reorg_replaces_the_transaction() {
    in_simulation(async {
        let mut story = Story::new(1).await;
        let shifted = story.run(8, 50);
        story.rerun(&shifted).await;
        assert_eq!(story.state(7, 0), "orphaned");
        let rival = story.rig.make(&story.call.emptied().value(&account(900), 1));
        story.rerun(&rival).await;
        assert_eq!(story.state(8, 0), "replaced");
        assert_eq!(story.state(7, 0), "replaced");
    });
}

#[test]
fn another_amount_before_the_credit_is_the_payment_now() {
    in_simulation(async {
        let mut story = Story::new(2).await;
        let less = story.run(7, 45);
        story.rerun(&less).await;
        assert_eq!(
            (story.state(7, 0).as_str(), story.state(7, 1).as_str()),
            ("orphaned", "credited")
        );
        assert_eq!(story.journal(7, 0), [""; 0]);
        assert_eq!(story.journal(7, 1), ["credit"]);
    });
}

#[test]
fn another_amount_after_the_credit_is_held_and_the_first_comes_back() {
    in_simulation(async {
        let mut story = Story::new(3).await;
        let (less, first) = (story.run(7, 45), story.tx.clone());
        story.rerun(&less).await;
        assert_eq!(story.state(7, 0), "orphaned");
        assert_eq!(story.state(7, 1), "confirming held:reexecuted");
        assert_eq!(story.journal(7, 0), ["credit", "reversal:orphaned"]);
        let refused = story.rig.release(&story.tx.log(7, 0)).await;
        assert!(refused.is_ok_and(|is_released| !is_released), "it is not held");
        // There and back, twice; released in between.
        story.rerun(&first).await;
        assert_eq!(
            story.journal(7, 0),
            ["credit", "reversal:orphaned", "reinstatement"]
        );
        let refused = story.rig.release(&story.tx.log(7, 1)).await;
        assert!(refused.is_err_and(|why| why.contains("best chain")));
        story.rerun(&less).await;
        assert!(story.rig.release(&story.tx.log(7, 1)).await.unwrap());
        story.rig.settle().await;
        assert_eq!(
            (story.journal(7, 1), story.live()),
            (vec!["credit".to_owned()], 1)
        );
        story.rerun(&first).await;
        assert_eq!(story.journal(7, 1), ["credit", "reversal:orphaned"]);
        assert_eq!((story.state(7, 0).as_str(), story.live()), ("credited", 1));
        story.rerun(&less).await;
        assert_eq!((story.state(7, 1).as_str(), story.live()), ("credited", 1));
        assert_eq!(
            story.rig.tables.deposits().len(),
            2,
            "never a new row for what was there before"
        );
    });
}

/// The second content was met first without a hold, then the first one was credited: from then on it is held.
#[test]
fn an_execution_is_held_once_an_earlier_one_was_credited() {
    in_simulation(async {
        let mut story = Story::new(1).await;
        let (less, first) = (story.run(7, 45), story.tx.clone());
        let at = story.rig.mine_on(story.below, &[&less]);
        story.rig.go_to(story.rig.extend_on(at, 1));
        story.rig.settle().await;
        assert_eq!(story.state(7, 1), "confirming");
        story.rerun(&first).await;
        story.rig.extend(2);
        story.rig.settle().await;
        assert_eq!(story.journal(7, 0), ["credit"]);
        story.rerun(&less).await;
        assert_eq!(story.state(7, 1), "confirming held:reexecuted");
        assert_eq!(story.live(), 0);
    });
}

/// Held for a reason of the operator's, a payment must not be credited because a reorg gave it another amount
/// or another place.
#[test]
fn what_an_operator_holds_is_held_in_every_run() {
    in_simulation(async {
        for rerun in [(7, 45), (8, 50)] {
            let mut story = Story::new(2).await;
            assert_eq!(story.state(7, 0), "confirming");
            let id = story.rig.tables.deposit(&story.tx.log(7, 0)).id;
            story.rig.write(move |tx| tx.hold(&id, "asked")).await;
            let other = story.run(rerun.0, rerun.1);
            let at = story.rig.mine_on(story.below, &[&other]);
            story.rig.go_to(story.rig.extend_on(at, 8));
            story.rig.settle().await;
            assert_eq!(story.live(), 0, "{rerun:?}");
        }
    });
}

#[test]
fn a_movement_that_vanishes_is_orphaned() {
    in_simulation(async {
        let mut story = Story::new(3).await;
        let none = story.call.clone().value(&account(900), 1).again(&story.tx);
        story.rerun(&none).await;
        assert_eq!(story.state(7, 0), "orphaned");
        assert_eq!(story.journal(7, 0), ["credit", "reversal:orphaned"]);
        let lost = story.rig.tables.count(
            "SELECT count(*) FROM journal j JOIN audit a ON a.hash = j.block_hash \
             WHERE j.kind = 'reversal' AND a.from_state = 'credited'",
        );
        assert_eq!(lost, 1);
        // The block pays the same in another order: from then on it is where it was.
        let first = story.tx.clone();
        story.rerun(&first).await;
        assert_eq!(
            story.journal(7, 0),
            ["credit", "reversal:orphaned", "reinstatement"]
        );
    });
}

/// The same amount to the same address from somebody else: own coin becomes a payment, and a payment own
/// coin.
#[test]
fn who_pays_decides_anew_in_each_run() {
    in_simulation(async {
        let mut story = Story::new(3).await;
        let own = story.own().await;
        let ours = story
            .call
            .clone()
            .log_from(7, TUSD, &own, &story.to, 50)
            .again(&story.tx);
        let pool = story
            .call
            .clone()
            .log_from(7, TUSD, &account(77), &story.to, 50)
            .again(&story.tx);
        story.rerun(&ours).await;
        assert_eq!((story.live(), story.journal(7, 0).len()), (0, 2));
        story.rerun(&pool).await;
        assert_eq!(
            story.live(),
            1,
            "somebody else's coin, whoever it is, is the payment that was credited"
        );
        assert_eq!(story.rig.tables.deposits().len(), 1);

        let mut story = Story::new(1).await;
        let own = story.own().await;
        let call = payer(&story.rig);
        let (below, to) = (story.rig.tip(), story.to.clone());
        let ours = story.rig.make(&call.clone().log_from(0, TUSD, &own, &to, 9));
        let theirs = call.log_from(0, TUSD, &account(77), &to, 9).again(&ours);
        story.rig.mine(&[&ours]);
        story.rig.settle().await;
        let at = story.rig.mine_on(below, &[&theirs]);
        story.rig.go_to(story.rig.extend_on(at, 3));
        story.rig.settle().await;
        story.rig.compare_evm();
        assert_eq!(story.live(), 2);
    });
}

/// A rule that is younger than the block where a reorg puts a payment that was met: the same payment,
/// wherever its log is now.
#[test]
fn a_payment_that_shifts_below_its_rule_is_still_met() {
    in_simulation(async {
        let mut rig = evm().await;
        let below = rig.extend(3);
        rig.extend(2);
        rig.settle().await;
        let to = rig.watch(1).await;
        let call = payer(&rig);
        let tx = rig.make(&call.clone().log(7, TUSD, &to, 50));
        rig.mine(&[&tx]);
        rig.settle().await;
        let at = rig.mine_on(below, &[&call.log(8, TUSD, &to, 50).again(&tx)]);
        rig.go_to(rig.extend_on(at, 4));
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.tables.journal(&tx.log(8, 0)), ["credit"]);
    });
}

/// Two answers about one block that differ: what was read first stands, and nothing is credited twice.
#[test]
fn a_rescan_that_reads_other_content_of_the_same_block_credits_nothing_twice() {
    in_simulation(async {
        let mut story = Story::new(3).await;
        let less = story.run(7, 45);
        let block = story.rig.best_chain()[4].hash();
        story.rig.chain.world().tree.rewrite(&block, vec![less]);
        assert!(story.rig.ask_rescan(1, Backfill::Nothing).await);
        story.rig.settle().await;
        assert_eq!(
            (story.journal(7, 0), story.live()),
            (vec!["credit".to_owned()], 1)
        );
        assert_eq!(story.rig.tables.deposits().len(), 1);
    });
}

/// A move of own coin has no deposit, and stands all the same.
#[test]
fn a_rescan_that_reads_another_payer_of_own_coin_makes_no_payment_of_it() {
    in_simulation(async {
        let mut story = Story::new(1).await;
        let own = story.own().await;
        let call = payer(&story.rig);
        let to = story.to.clone();
        let ours = story.rig.make(&call.clone().log_from(0, TUSD, &own, &to, 9));
        let theirs = call.log_from(0, TUSD, &account(77), &to, 9).again(&ours);
        let block = story.rig.mine(&[&ours]);
        story.rig.extend(3);
        story.rig.settle().await;
        let live = story.live();
        story.rig.chain.world().tree.rewrite(&block, vec![theirs]);
        assert!(story.rig.ask_rescan(1, Backfill::Nothing).await);
        story.rig.settle().await;
        assert_eq!(story.live(), live);
    });
}

/// State and journal of a payment of coin after its way through these blocks: (height in the branch, run).
async fn way(depth: usize, then: impl Fn(&Tx) -> Option<Arc<Tx>>) -> (Rig, Arc<Tx>, BlockHash) {
    let mut rig = evm().await;
    let to = rig.watch(1).await;
    let below = rig.extend(3);
    let tx = rig.pay_coin(&to, 5);
    rig.send(&tx);
    rig.settle().await;
    if depth > 0 {
        rig.mine(&[&tx]);
        rig.extend(depth - 1);
        rig.settle().await;
    }
    let runs: Vec<Arc<Tx>> = then(&tx).into_iter().collect();
    let at = rig.mine_on(below, &runs.iter().collect::<Vec<_>>());
    rig.go_to(rig.extend_on(at, depth));
    rig.mempools_forget();
    rig.settle().await;
    rig.compare_evm();
    (rig, tx, below)
}

#[test]
fn c20_a_transaction_that_fails_pays_nobody() {
    in_simulation(async {
        for (depth, journal) in [(0, vec![]), (1, vec![]), (3, vec!["credit", "reversal:failed"])] {
            let (mut rig, tx, below) = way(depth, |tx| Some(tx.failed())).await;
            let at = tx.outpoint(0);
            assert_eq!(
                (rig.deposit_state(&at).as_str(), rig.tables.journal(&at)),
                ("failed", strings(&journal))
            );
            if depth == 3 {
                let named = "SELECT count(*) FROM journal j JOIN journal k ON k.block_hash = j.block_hash \
                             WHERE j.kind = 'credit' AND k.kind = 'reversal'";
                assert_eq!(rig.tables.count(named), 1, "the reversal names the lost block");
            }
            // Then it succeeds in 10'.
            let fork = rig.mine_on(below, &[&tx]);
            rig.go_to(rig.extend_on(fork, depth + 3));
            rig.settle().await;
            rig.compare_evm();
            assert_eq!(rig.deposit_state(&at), "credited");
        }
    });
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_failed_run_that_is_undone_is_orphaned_or_replaced() {
    in_simulation(async {
        for is_replaced in [false, true] {
            let (mut rig, tx, below) = way(0, |tx| Some(tx.failed())).await;
            let mut rival = Tx::clone(&rig.pay_coin(&account(900), 1));
            rival.inputs.clone_from(&tx.inputs);
            let rival = Arc::new(rival);
            let at = match is_replaced {
                true => rig.mine_on(below, &[&rival]),
                false => rig.mine_on(below, &[]),
            };
            rig.go_to(rig.extend_on(at, 2));
            rig.mempools_forget();
            rig.settle().await;
            rig.compare_evm();
            let state = if is_replaced { "replaced" } else { "orphaned" };
            assert_eq!(rig.deposit_state(&tx.outpoint(0)), state);
        }
    });
}

#[test]
fn a_failed_run_that_is_met_first_makes_no_row() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        rig.extend(2);
        let tx = rig.pay_coin(&to, 5);
        rig.mine(&[&tx.failed()]);
        rig.extend(3);
        rig.settle().await;
        rig.compare_evm();
        for table in ["txs", "outputs", "deposits"] {
            assert_eq!(
                rig.tables.count(&format!("SELECT count(*) FROM {table}")),
                0,
                "{table}"
            );
        }
        assert!(rig.ask_rescan(1, Backfill::All).await);
        rig.settle().await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM txs"), 0);
    });
}

/// What failed counts towards no tier, and does not need a policy.
#[test]
fn what_failed_counts_towards_no_tier() {
    in_simulation(async {
        let mut rig = evm_with(2, |settings| {
            settings.terms.policies = Terms::native(policy(&[(10, 2)], 5));
            settings.chain.assets.truncate(1);
        })
        .await;
        let to = rig.watch(1).await;
        rig.extend(2);
        let (small, large) = (rig.pay_coin(&to, 5), rig.pay_coin(&to, 50));
        rig.send(&large);
        rig.settle().await;
        rig.mine(&[&small, &large.failed()]);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.tables.deposit(&small.outpoint(0)).confirmations, Some(2));
        rig.settings.terms.policies = Terms::native(policy(&[(10, 3)], 5));
        rig.reopen().await;
        assert_eq!(rig.tables.deposit(&small.outpoint(0)).confirmations, Some(3));
        rig.extend(2);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&small.outpoint(0)), "credited");
    });
}
