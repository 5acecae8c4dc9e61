//! Two chains in one database that hold the very same transactions: forks of one chain do, and whoever copies
//! a regtest folder. Each has its own books.

use crate::rig::{Rig, in_simulation, settings};
use crate::scripted::{Scripted, script};
use creditd::follow::Follower;
use creditd::store::{AddressKind, NewAddress};

async fn both(rig: &mut Rig, second: &mut Follower<Scripted>) {
    for _ in 0..5 {
        rig.round().await;
        second.step().await.unwrap();
        rig.check();
    }
}

#[test]
fn one_transaction_on_two_chains_is_two_payments_with_two_fates() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let other = Scripted::new("another genesis", 1, rig.clock);
        let mut terms = settings(&other);
        terms.chain.alias = "btc2".to_owned();
        let mut second = Follower::open(other.clone(), rig.store(), rig.clock, terms.clone())
            .await
            .unwrap();
        let id = terms.chain.id.clone();
        let key = rig.read(|tx| tx.chain(&id)).unwrap().key;
        rig.write(move |tx| {
            let rule = NewAddress {
                script: script(1),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            tx.add_addresses(key, &[rule])
        })
        .await;

        // Both chains: the payment, seen, mined and deep. Then a reorg on one of them gives its coin to a
        // rival.
        let pay = rig.pay(&to, 5);
        let rival = rig.replace(&pay, &to, 6);
        let go_to = |tip| other.world().all_go_to(tip);
        let mine = |parent, txs: Vec<_>, count| {
            let mut world = other.world();
            let block = world.tree.mine(parent, txs);
            world.tree.extend(block, count)
        };
        let a = rig.extend(2);
        rig.send(&pay);
        let genesis = other.world().tree.genesis();
        let b = mine(genesis, vec![], 1);
        go_to(b);
        both(&mut rig, &mut second).await;
        rig.mine(&[&pay]);
        rig.extend(4);
        go_to(mine(b, vec![pay.clone()], 4));
        both(&mut rig, &mut second).await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 2);
        let c = rig.mine_on(a, &[&rival]);
        rig.go_to(rig.extend_on(c, 6));
        both(&mut rig, &mut second).await;
        let live = "SELECT count(*) FROM credits c WHERE chain = {} AND (SELECT count(*) FROM journal \
             WHERE credit = c.id) % 2 = 1 AND amount = {}";
        let live = |chain: i64, amount: &str| {
            let sql = live
                .replacen("{}", &chain.to_string(), 1)
                .replacen("{}", &format!("'{amount}'"), 1);
            rig.tables.count(&sql)
        };
        assert_eq!(
            (live(1, "5"), live(1, "6")),
            (0, 1),
            "on the first the rival was paid"
        );
        assert_eq!(
            (live(2, "5"), live(2, "6")),
            (1, 0),
            "on the second nothing happened"
        );
        let replaced = "SELECT count(*) FROM deposits WHERE state = 'replaced'";
        assert_eq!(rig.tables.count(replaced), 1);
    });
}
