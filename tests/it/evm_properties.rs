//! Random EVM worlds through the real follower and store, as [`crate::properties`] does with Bitcoin's:
//! nothing is violated after any round, and at rest the tables are what a naive scan says and no repeat
//! changes them.

use crate::dice::Dice;
use crate::evm_player::{Player, add_early};
use crate::properties::{config, number, repeat, without_asking};
use crate::rig::{Rig, in_simulation};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Plays a script; returns the kinds of everything that happened.
fn play(numbers: &[u64]) -> BTreeSet<String> {
    in_simulation(async {
        let policy = numbers.first().map_or(0, |number| number % 4);
        let mut player = Player::new(false, policy as usize).await;
        for (place, number) in numbers.iter().enumerate() {
            player.act(*number).await;
            if place % 16 == 15 {
                player.quiesce().await;
                player.rig.compare_evm();
            }
        }
        player.quiesce().await;
        player.rig.compare_evm();
        // What was not final by then is.
        player.rig.extend(13);
        player.rig.settle().await;
        player.rig.compare_evm();
        let before = without_asking(player.rig.projection());
        repeat(&mut player.rig, 1 + numbers.len() % 3).await;
        player.rig.compare_evm();
        let after = without_asking(player.rig.projection());
        let changed: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
        // A rescan may hold a header once more that was forgotten below the window.
        let is_news = |line: &&String| !before.contains(line) && !line.starts_with("headers ");
        let new: Vec<_> = after.iter().filter(is_news).collect();
        assert!(changed.is_empty() && new.is_empty(), "\n{changed:#?}\n{new:#?}");
        kinds(&player.rig)
    })
}

fn kinds(rig: &Rig) -> BTreeSet<String> {
    let mut kinds = rig.tables.kinds();
    let beside = rig.tables.rows(
        "SELECT DISTINCT held_reason FROM deposits WHERE held_reason IS NOT NULL \
         UNION SELECT DISTINCT tag FROM journal WHERE tag IS NOT NULL \
         UNION SELECT 'run again' FROM outputs WHERE vout >= 1099511627776",
        |row| row.get::<_, String>(0).unwrap(),
    );
    kinds.extend(beside);
    kinds
}

/// One database follows the world as it happens, another is shown the outcome in one go.
fn play_twins(numbers: &[u64]) {
    in_simulation(async {
        let mut player = Player::new(true, numbers.len() % 4).await;
        for number in numbers {
            player.act(*number).await;
        }
        player.quiesce().await;
        player.rig.extend(20);
        player.rig.settle().await;
        player.rig.compare_evm();
        let (chain, settings) = (player.rig.chain.clone(), player.rig.settings.clone());
        let mut twin = Rig::on(chain, player.rig.clock, settings).await;
        add_early(&twin).await;
        twin.settle().await;
        twin.compare_evm();
    });
}

/// What a handful of seeds must have met, or they show nothing.
const MET: [&str; 21] = [
    "balance_differs",
    "credit.created",
    "credit.reinstated",
    "credit.reversed",
    "deposit.confirming",
    "deposit.evicted",
    "deposit.failed",
    "deposit.held",
    "deposit.orphaned",
    "deposit.released",
    "deposit.replaced",
    "deposit.seen",
    "external",
    "finalized",
    "internal",
    "mixed",
    "moved while credited",
    "reexecuted",
    "run again",
    "safe",
    "status_unknown",
];

fn seeds(otherwise: u64, mut play: impl FnMut(&[u64])) {
    let first = number("CREDITD_SEED", 1);
    for seed in first..first + number("CREDITD_SEEDS", otherwise) {
        eprintln!("seed {seed}: CREDITD_SEED={seed} CREDITD_SEEDS=1");
        let mut dice = Dice::new(seed);
        let length = 20 + dice.roll(60);
        play(&(0..length).map(|_| dice.next()).collect::<Vec<_>>());
    }
}

#[test]
fn seeds_of_evm_chains_hold_everything_that_must_hold() {
    let mut met = BTreeSet::new();
    seeds(8, |numbers| met.extend(play(numbers)));
    let missing: Vec<_> = MET.iter().filter(|kind| !met.contains(**kind)).collect();
    assert!(
        missing.is_empty() || std::env::var("CREDITD_SEEDS").is_ok(),
        "never met: {missing:?}"
    );
}

#[test]
fn seeds_of_evm_chains_give_twins_what_the_chain_says() {
    seeds(4, play_twins);
}

proptest! {
    #![proptest_config(config(8))]

    #[test]
    fn whatever_happens_on_an_evm_chain_everything_holds(numbers in vec(any::<u64>(), 1..50)) {
        play(&numbers);
    }
}
