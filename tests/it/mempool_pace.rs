//! How often lists of the mempool come, against the clock of evictions and against rules that are added all
//! the time.

use crate::rig::{Rig, in_simulation};
use crate::scripted::{Hook, script};
use creditd::store::{AddressKind, NewAddress};
use std::time::Duration;

/// Listed every ten minutes, as the config allows: the time between two lists counts.
#[test]
fn rare_lists_evict_after_the_configured_time() {
    in_simulation(async {
        for every in [1, 45, 600] {
            let every = Duration::from_secs(every);
            let mut rig = Rig::with(|settings| {
                settings.mempool = every;
                settings.poll = every.min(Duration::from_secs(20));
                settings.terms.evict_after_ms = 1_800_000;
            })
            .await;
            let to = rig.watch(1).await;
            let pay = rig.pay(&to, 5);
            rig.send(&pay);
            rig.settle().await;
            rig.evict(&pay);
            rig.wait(Duration::from_secs(1_700)).await;
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen", "{every:?}");
            rig.wait(Duration::from_secs(150) + 3 * every).await;
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "evicted", "{every:?}");
        }
    });
}

/// What happens while nobody lists counts no more than the time between two lists.
#[test]
fn time_without_lists_is_no_observation_however_rare_they_are() {
    in_simulation(async {
        for every in [2, 600] {
            let mut rig = Rig::with(|settings| {
                settings.mempool = Duration::from_secs(every);
                settings.poll = Duration::from_secs(every.min(20));
                settings.terms.evict_after_ms = 1_800_000;
            })
            .await;
            let to = rig.watch(1).await;
            let pay = rig.pay(&to, 5);
            rig.send(&pay);
            rig.settle().await;
            rig.evict(&pay);
            rig.wait(Duration::from_secs(every + 20)).await;
            rig.jump(86_400_000).await;
            rig.settle().await;
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen", "every {every} s");
        }
    });
}

/// Has an address added while the node lists its mempool.
fn add_during_the_next_list(rig: &Rig, number: u32) {
    let (mut beside, key) = (rig.command(), rig.key);
    let add = move || {
        let rule = NewAddress {
            script: script(number),
            kind: AddressKind::Watch,
            merchant: "shop",
            internal: "ignore",
            reference: "",
        };
        beside
            .write(0, |tx| tx.add_addresses(key, std::slice::from_ref(&rule)))
            .unwrap();
    };
    rig.chain.world().hook.get_or_insert(Hook {
        during: "mempool",
        after: 0,
        run: Box::new(add),
    });
}

/// Somebody adds addresses without end, one during each list: lists count all the same, none in a hurry, and
/// the newest address is found as soon as there is a list after it.
#[test]
fn a_steady_stream_of_new_addresses_starves_no_list() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.evict_after_ms = 60_000).await;
        let to = rig.watch(1).await;
        rig.extend(1);
        rig.settle().await;
        let (stays, goes) = (rig.pay(&to, 5), rig.pay(&to, 7));
        rig.send(&goes);
        rig.settle().await;
        rig.evict(&goes);
        rig.send(&stays);
        let (began, calls) = (rig.clock.instant(), rig.chain.world().node().calls);
        let mut number = 100;
        while rig.clock.instant() - began < Duration::from_secs(120) {
            number += 1;
            add_during_the_next_list(&rig, number);
            rig.round().await;
        }
        assert_eq!(rig.tables.state(&stays.outpoint(0)), "seen");
        assert_eq!(rig.tables.state(&goes.outpoint(0)), "evicted");
        let asked = rig.chain.world().node().calls - calls;
        assert!(asked < 400, "{asked} calls in two minutes");
        assert!(number > 140, "{number} addresses");
        // One that is paid already when it is added.
        rig.chain.world().hook = None;
        let early = rig.pay(&script(900), 9);
        rig.send(&early);
        rig.settle().await;
        rig.watch(900).await;
        rig.settle().await;
        assert_eq!(rig.tables.state(&early.outpoint(0)), "seen");
        rig.compare();
    });
}
