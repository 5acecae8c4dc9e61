//! Rescans that reach far below the first header that is held, several at a time, and their end by an
//! operator.

use crate::rig::{Rig, in_simulation};
use crate::sample::Sample;
use crate::scripted::{Hook, script};
use creditd::follow::Start;
use creditd::store::{Backfill, Rescan};

/// More blocks than are kept of a chain that is followed from its tip.
const BLOCKS: usize = 400;
/// Blocks that pay, and payments in each: more than one transaction applies.
const PAYING: u64 = 60;
const PAID: u32 = 10;

/// Credits whose journal does not name the block at the due height as their cause.
const ODD_CAUSES: &str = "SELECT count(*) FROM journal j JOIN credits c ON c.id = j.credit \
     LEFT JOIN headers h ON h.chain = c.chain AND h.height = j.due_height AND h.hash = j.due_hash \
     WHERE h.hash IS NULL OR j.due_height <> j.block_height + j.confirmations - 1";

async fn running(rig: &Rig) -> Vec<Rescan> {
    let key = rig.key;
    rig.read(move |tx| tx.running_rescans(key))
}

async fn ask(rig: &Rig, from: u64) -> i64 {
    assert!(rig.ask_rescan(from, Backfill::All).await);
    running(rig).await.last().unwrap().id
}

/// Through the binary: dry first, then once, then nothing.
#[test]
fn a_rescan_is_cancelled_by_its_number() {
    let sample = Sample::filled();
    sample.edit(|tx, chain| tx.ask_rescan(chain, 101, &Backfill::Nothing, "test"));
    let cancel = |more: &[&str]| {
        let args = [&["rescan", "--cancel", "1", "--reason", "x", "--json"], more].concat();
        let output = sample.files.cli(&args);
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(cancel(&[]), "dry");
    assert_eq!(cancel(&["--apply"]), "done");
    assert_eq!(cancel(&["--apply"]), "nothing");
    let unknown = sample.files.cli(&["rescan", "--cancel", "2", "--reason", "x"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no rescan 2"));
}

/// A chain that was followed from its tip on, with old payments to addresses that are added then.
async fn late_addresses() -> Rig {
    let mut rig = Rig::with(|settings| settings.start = Start::Tip).await;
    for _ in 0..PAYING {
        let pays: Vec<_> = (1..=PAID).map(|number| rig.pay(&script(number), 5)).collect();
        rig.mine(&pays.iter().collect::<Vec<_>>());
    }
    rig.extend(BLOCKS);
    rig.settle().await;
    for number in 1..=PAID {
        rig.watch(number).await;
    }
    rig
}

#[test]
fn a_stretch_below_all_that_is_held_is_applied_in_parts_over_restarts() {
    in_simulation(async {
        let mut rig = late_addresses().await;
        ask(&rig, 1).await;
        let (mut parts, mut credited) = (0, 0);
        while !running(&rig).await.is_empty() {
            rig.round().await;
            let now = rig.tables.count("SELECT count(*) FROM credits");
            parts += usize::from(now > credited);
            credited = now;
            assert_eq!(rig.tables.count(ODD_CAUSES), 0);
            rig.reopen().await;
        }
        rig.extend(1);
        rig.settle().await;
        assert_eq!(credited, i64::try_from(PAYING).unwrap() * i64::from(PAID));
        assert!(parts > 1, "one transaction applied all of it");
        rig.compare();
    });
}

#[test]
fn a_reorg_between_two_parts_of_a_stretch_reads_the_rest_again() {
    in_simulation(async {
        let mut rig = late_addresses().await;
        ask(&rig, 1).await;
        let mut was_in_parts = false;
        for _ in 0..200 {
            let Some(rescan) = running(&rig).await.pop() else {
                break;
            };
            if rescan.is_proven && !was_in_parts {
                was_in_parts = true;
                let parent = rig.best_chain().iter().rev().nth(3).unwrap().hash();
                let tip = rig.extend_on(parent, 6);
                rig.go_to(tip);
            }
            rig.round().await;
        }
        assert!(was_in_parts, "no part of it was ever left");
        rig.settle().await;
        assert_eq!(rig.tables.count(ODD_CAUSES), 0);
        assert_eq!(
            rig.tables.count("SELECT count(*) FROM credits"),
            i64::try_from(PAYING).unwrap() * i64::from(PAID)
        );
        rig.compare();
    });
}

#[test]
fn a_rescan_that_waits_for_pruned_blocks_holds_up_no_other_and_can_be_cancelled() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(10);
        let old = rig.pay(&script(1), 5);
        rig.mine(&[&old]);
        rig.extend(10);
        let young = rig.pay(&script(2), 6);
        rig.mine(&[&young]);
        rig.extend(10);
        rig.settle().await;
        rig.watch(1).await;
        rig.watch(2).await;
        rig.chain.world().node().faults.pruned_below = Some(20);
        let waiting = ask(&rig, 5).await;
        ask(&rig, 20).await;
        rig.rounds(10).await;
        assert_eq!(rig.tables.journal(&young.outpoint(0)), ["credit"]);
        let left: Vec<i64> = running(&rig).await.iter().map(|rescan| rescan.id).collect();
        assert_eq!(left, [waiting]);
        let state = rig.state();
        assert!(
            state.starts_with(&format!("following rescan {waiting} waits: block")),
            "{state}"
        );
        let key = rig.key;
        for is_running in [true, false] {
            let ended = rig.write(move |tx| tx.cancel_rescan(key, waiting, "the blocks are gone"));
            assert_eq!(ended.await, is_running);
        }
        rig.rounds(3).await;
        assert_eq!(rig.state(), "following");
        assert!(running(&rig).await.is_empty());
        assert_eq!(rig.tables.count("SELECT count(*) FROM rescan_blocks"), 0);
    });
}

/// Between the look at the tip and the slice a balancer goes over to a node on another branch: what that node
/// gave is dropped, and the rescan goes on with the right one.
#[test]
fn a_rescan_that_met_another_branch_goes_on() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.watch(1).await;
        rig.extend(30);
        let fork = rig.tip();
        rig.extend(70);
        rig.settle().await;
        let other = rig.extend_on(fork, 70);
        rig.chain.world().go_to(1, other);
        ask(&rig, 35).await;
        let chain = rig.chain.clone();
        rig.chain.world().hook = Some(Hook {
            during: "tip",
            after: 0,
            run: Box::new(move || chain.world().current = 1),
        });
        rig.round().await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM rescan_blocks"), 0);
        rig.chain.world().current = 0;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        assert!(running(&rig).await.is_empty());
    });
}

/// An old block that the node does not give halts nothing and delays nothing: only the rescan waits.
#[test]
fn an_old_block_that_the_node_does_not_give_is_no_trouble_of_the_chain() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(30);
        rig.settle().await;
        let old = rig.best_chain()[10].hash();
        rig.chain.world().node().faults.unknown.insert(old);
        let id = ask(&rig, 5).await;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.rounds(5).await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let state = rig.state();
        assert!(
            state.starts_with(&format!("following rescan {id} waits:")),
            "{state}"
        );
        rig.chain.world().node().faults.unknown.clear();
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        rig.compare();
    });
}
