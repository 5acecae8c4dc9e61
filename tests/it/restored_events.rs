//! Whoever reads events by their numbers goes on after a restored backup from where they were.

use crate::restores::{back_up, repair, restore};
use crate::rig::{Rig, folder, in_simulation};

#[test]
fn c53_a_client_that_pulls_by_number_misses_nothing_that_is_told_after_a_restore() {
    in_simulation(async {
        let folder = folder();
        let copies = ["none.db", "one.db"].map(|name| folder.path().join(name));
        let mut rig = Rig::new().await;
        rig.settle().await;
        let address = rig.watch(1).await;
        // The first backup is of a database without any event.
        back_up(&rig, &copies[0]);
        rig.mine(&[&rig.pay(&address, 7)]);
        rig.extend(10);
        rig.settle().await;
        back_up(&rig, &copies[1]);
        for amount in 8..12 {
            rig.mine(&[&rig.pay(&address, amount)]);
        }
        rig.extend(10);
        rig.settle().await;
        for (copy, generation) in [(&copies[1], 2), (&copies[0], 3)] {
            let last = u64::try_from(rig.tables.count("SELECT max(seq) FROM events")).unwrap();
            restore(&mut rig, copy).await;
            let known = rig.tables.count("SELECT ifnull(max(seq), 0) FROM events");
            repair(&mut rig).await;
            let told = rig
                .tables
                .count(&format!("SELECT count(*) FROM events WHERE seq > {known}"));
            assert!(told > 8, "the payments are told again");
            let pulled = rig.read(|tx| tx.events_after(last, 1_000));
            assert_eq!(i64::try_from(pulled.len()).unwrap(), told);
            assert!(pulled.iter().all(|event| event.seq >> 32 == generation - 1));
        }
    });
}
