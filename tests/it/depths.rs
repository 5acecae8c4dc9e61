//! How deep a payment must be: coinbases, tiers, sums.

use crate::rig::{Rig, in_simulation, native};
use crate::scripted::{Coinbase, Out};
use creditd::rules::{Amount, BlockHash};

/// Two blocks hold the same coinbase transaction, as on the main chain at 91722/91880: one deposit, one
/// credit; it stands at the later block, and at the earlier one again when that is lost.
#[test]
fn a_repeated_coinbase_is_one_deposit_and_one_credit() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.reorg_window = 200).await;
        let to = rig.watch(1).await;
        let mine = |parent: BlockHash, coinbase: Coinbase| {
            rig.chain.world().tree.mine_with(parent, vec![], coinbase, 10)
        };
        let first = mine(rig.tip(), Coinbase::Pays(vec![Out::new(to, 50)]));
        let coinbase = rig.chain.world().tree.block(&first).txs[0].clone();
        let a = rig.extend_on(first, 9);
        let again = mine(a, Coinbase::Repeats(coinbase.clone()));
        let at = coinbase.outpoint(0);
        rig.go_to(rig.extend_on(again, 99));
        rig.settle().await;
        assert_eq!(rig.tables.deposit(&at).height, Some(11));
        assert_eq!(
            rig.tables.state(&at),
            "confirming",
            "depth 100 of the later block"
        );
        rig.compare();
        let one_more = rig.extend(1);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&at), ["credit"], "depth 101");
        rig.go_to(rig.extend_on(a, 120));
        rig.settle().await;
        assert_eq!(rig.tables.deposit(&at).height, Some(1));
        assert_eq!(rig.tables.journal(&at), ["credit"]);
        rig.compare();
        rig.go_to(rig.extend_on(one_more, 40));
        rig.settle().await;
        assert_eq!(rig.tables.deposit(&at).height, Some(11));
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 1);
        rig.compare();
    });
}

#[test]
fn a_coinbase_is_credited_at_depth_101_and_not_before() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let coinbase = Coinbase::Pays(vec![Out::new(to, 50)]);
        let tip = rig.tip();
        let block = rig.chain.world().tree.mine_with(tip, vec![], coinbase, 10);
        let at = rig.chain.world().tree.block(&block).txs[0].outpoint(0);
        rig.go_to(rig.extend_on(block, 99));
        rig.settle().await;
        assert_eq!(rig.tables.state(&at), "confirming", "depth 100");
        rig.extend(1);
        rig.settle().await;
        assert_eq!(rig.tables.state(&at), "credited", "depth 101");
        rig.compare();
    });
}

/// A hundred outputs below the tier are one payment above it; split over two blocks they are two small ones.
#[test]
fn a_payment_split_into_small_outputs_is_as_deep_as_its_sum() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.policies = native(&[(100, 1)], 6)).await;
        let (to, other) = (rig.watch(1).await, rig.watch(2).await);
        let (one, two) = (rig.pay(&to, 60), rig.pay(&other, 60));
        let a = rig.mine(&[&one, &two]);
        rig.extend(3);
        rig.settle().await;
        assert_eq!(rig.tables.state(&one.outpoint(0)), "confirming");
        rig.compare();
        // A'-B': apart they need one confirmation each.
        let genesis = rig.chain.world().tree.genesis();
        let apart = rig.mine_on(genesis, &[&one]);
        let apart = rig.mine_on(apart, &[&two]);
        rig.go_to(rig.extend_on(apart, 3));
        rig.settle().await;
        assert_eq!(rig.tables.state(&one.outpoint(0)), "credited");
        rig.compare();
        assert!(!rig.is_on_chain(&a));
    });
}

/// Amounts are kept as texts: a comparison of texts has 9 above 10, and a sum that SQL makes of them is a
/// double, which has no odd numbers above 2^53.
#[test]
fn amounts_are_compared_and_summed_as_whole_numbers() {
    const LARGE: u64 = 1 << 53;
    in_simulation(async {
        let tiers = [(10, 1), (LARGE + 1, 2)];
        let mut rig = Rig::with(|settings| settings.terms.policies = native(&tiers, 6)).await;
        let (shop, other) = (rig.watch(1).await, rig.watch(2).await);
        // By the block's sum: 9, 10, 2^53, 2^53 + 1.
        let blocks: [(&[u64], u32); 4] = [(&[9], 1), (&[10], 2), (&[LARGE], 2), (&[LARGE, 1], 6)];
        let mut sum = 0;
        for (amounts, needed) in blocks {
            let paid: Vec<_> = amounts
                .iter()
                .zip([&shop, &other])
                .map(|(amount, to)| rig.pay(to, *amount))
                .collect();
            rig.mine(&paid.iter().collect::<Vec<_>>());
            rig.settle().await;
            let deposit = rig.tables.deposit(&paid[0].outpoint(0));
            assert_eq!(deposit.confirmations, Some(needed), "{amounts:?}");
            sum += amounts.iter().sum::<u64>();
        }
        rig.extend(6);
        rig.settle().await;
        rig.compare();
        let balances = rig.read(|tx| tx.balances(None));
        assert_eq!(balances.len(), 1);
        assert_eq!(balances[0].credited, Amount::from_u64(sum));
        assert_eq!(sum % 2, 0, "2^54 + 20");
    });
}
