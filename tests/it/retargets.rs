//! The difficulty of mainnet moves at every 2016th block. The real follower crosses such a height, and takes
//! no branch that moves it elsewhere or too far.

use crate::rig::{Rig, in_simulation, settings};
use crate::scripted::{Coinbase, Scripted, Tree};
use creditd::clock::Clock;
use creditd::follow::Start;
use creditd::rules::BlockHash;
use std::sync::Arc;

/// Bits before the first change of mainnet's difficulty, as they became then, and the hardest that may
/// follow.
const BEFORE: u32 = 0x1d00_ffff;
const AFTER: u32 = 0x1d00_d86a;
const HARDEST: u32 = 0x1c3f_ffc0;

const RETARGET: u64 = 2_016;

type Mined = Arc<crate::scripted::Tx>;

/// A chain whose tip is the block before the retarget, with a payment in it.
async fn before_the_retarget() -> (Rig, Mined) {
    let clock = Clock::simulated(1_700_000_000_000);
    let chain = Scripted::on(Tree::above("mainnet-like", RETARGET - 25, BEFORE), 2, clock);
    let mut settings = settings(&chain);
    settings.start = Start::Height(RETARGET - 4);
    let rig = Rig::on(chain, clock, settings).await;
    rig.extend(20);
    let to = rig.watch(1).await;
    let pay = rig.pay(&to, 5);
    rig.extend(3);
    rig.mine(&[&pay]);
    (rig, pay)
}

/// The block below the tip.
fn parent(rig: &Rig) -> BlockHash {
    let tip = rig.tip();
    rig.chain.world().tree.block(&tip).held.header.parent
}

/// Mines `count` blocks with these bits, each worth `units`.
fn mine(rig: &Rig, mut tip: BlockHash, (bits, units): (u32, u64), count: usize) -> BlockHash {
    let mut world = rig.chain.world();
    world.tree.bits = bits;
    for _ in 0..count {
        tip = world.tree.mine_with(tip, vec![], Coinbase::Plain, units);
    }
    tip
}

#[test]
fn a_payment_is_credited_across_a_retarget() {
    in_simulation(async {
        for after in [BEFORE, AFTER, HARDEST] {
            let (mut rig, pay) = before_the_retarget().await;
            rig.settle().await;
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "confirming");
            rig.go_to(mine(&rig, rig.tip(), (after, 12), 3));
            rig.settle().await;
            assert_eq!(rig.state(), "following", "{after:08x}");
            assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
            rig.compare();
        }
    });
}

/// Both branches hold the retarget; the one of fewer blocks is harder, so it is the better one.
#[test]
fn a_reorg_across_a_retarget_goes_by_work_and_not_by_height() {
    in_simulation(async {
        let (mut rig, pay) = before_the_retarget().await;
        let below = parent(&rig);
        rig.go_to(mine(&rig, rig.tip(), (BEFORE, 10), 8));
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let last = mine(&rig, below, (BEFORE, 10), 1);
        let theirs = mine(&rig, last, (HARDEST, 40), 3);
        rig.go_to(theirs);
        rig.evict(&pay);
        rig.settle().await;
        assert_eq!(rig.cursor(), Some(theirs));
        assert_eq!(
            rig.tables.journal(&pay.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        rig.compare();
    });
}

#[test]
fn difficulty_that_moves_elsewhere_or_too_far_is_a_bad_block() {
    in_simulation(async {
        // Blocks up to the odd one, and its bits.
        let odd = [
            ("one before the retarget", 0, 0x1d00_fffe),
            ("one after it", 2, AFTER),
            ("more than four times as hard", 1, 0x1c3f_ffbf),
            ("easier than the network's limit", 1, 0x1d01_0000),
        ];
        for (what, good, bits) in odd {
            let (mut rig, pay) = before_the_retarget().await;
            let base = match good {
                0 => parent(&rig),
                _ => rig.tip(),
            };
            let right = mine(&rig, rig.tip(), (BEFORE, 10), 1);
            let tip = match good {
                2 => right,
                _ => base,
            };
            let wrong = mine(&rig, tip, (bits, 40), 3);
            rig.settle().await;
            let before = rig.cursor();
            rig.go_to(wrong);
            rig.rounds(5).await;
            assert!(rig.state().starts_with("bad_block"), "{what}: {}", rig.state());
            assert!(rig.state().contains("difficulty"), "{what}: {}", rig.state());
            let is_held = rig.cursor() == before || rig.cursor() == Some(right);
            assert!(is_held, "{what}: nothing of the odd block");
            assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 0, "{what}");
            // Better than the wrong one, of which the node still knows.
            rig.go_to(mine(&rig, right, (BEFORE, 10), 15));
            rig.settle().await;
            assert_eq!(rig.state(), "following", "{what}");
            assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"], "{what}");
            rig.compare();
        }
    });
}
