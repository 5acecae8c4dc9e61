//! Whoever reads events by their numbers goes on after a restored backup from where they were; and what comes
//! again after it is told by the same events.

use crate::inbox::{AT_MS, config, paid, signed};
use crate::restores::{back_up, repair, restore};
use crate::rig::{Rig, folder, in_simulation};
use crate::tables::Tables;
use creditd::clock::Clock;
use creditd::inbox::{Inbox, work};
use creditd::store::{Database, Existing, OpenMode, Received, Store};
use std::path::Path;

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

/// Of each credit its id, and the event that told of it first.
fn credited(path: &Path) -> Vec<(String, String)> {
    let all = "SELECT c.id, e.id FROM credits c \
         LEFT JOIN events e ON e.subject = c.id AND e.type = 'credit.created' ORDER BY c.id";
    Tables::open(path).rows(all, |row| (row.get(0).unwrap(), row.get(1).unwrap()))
}

/// What a provider told of since the backup is lost, and is the same again when it is sent again.
#[test]
fn c53_a_provider_that_sends_again_credits_the_same() {
    sends_again(false);
}

/// No cursor moves by that, nor is an address handed out: events alone tell that the database is an older
/// one, also where the daemon was killed and could not say at its stop how many there were. Unnoticed, other
/// events would have the versions that were told before.
#[test]
fn c53_a_restore_after_a_kill_is_noticed_by_events_alone() {
    sends_again(true);
}

fn sends_again(is_killed: bool) {
    in_simulation(async move {
        let folder = folder();
        let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("backup.db"));
        let (config, clock) = (config(folder.path()), Clock::simulated(AT_MS));
        let inbox = Inbox::of(&config).unwrap();
        let open = || Store::inline(Database::open(&path, OpenMode::Daemon).unwrap(), clock);
        let send = async |store: &Store, number: u32| {
            let body = paid(&format!("evt_{number}"), &format!("pay_{number}"), 500);
            let headers = signed("p1", &body, clock.now_ms() / 1_000);
            let received = inbox.accept((store, clock), "p1", &headers, body.into_bytes());
            let received = received.await.unwrap();
            work::run(config.clone(), store.clone(), clock).await;
            matches!(received, Received::New(_))
        };
        let store = open();
        assert!(send(&store, 1).await);
        let reader = Database::open(&path, OpenMode::ReadOnly).unwrap();
        reader.backup(&copy, Existing::Refuse, |_| {}).unwrap();
        drop(reader);
        assert!(send(&store, 2).await && send(&store, 3).await);
        let before = credited(&path);
        assert_eq!(before.len(), 3);
        match is_killed {
            true => drop(store),
            false => store.close().await.unwrap(),
        }
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
        std::fs::copy(&copy, &path).unwrap();
        let store = open();
        assert_eq!(Tables::open(&path).count("SELECT generation FROM meta"), 1);
        assert_eq!(credited(&path).len(), 1, "lost, until they are sent again");
        for (number, is_new) in [(3, true), (1, false), (2, true), (3, false), (2, false)] {
            assert_eq!(send(&store, number).await, is_new, "{number}");
        }
        assert_eq!(
            credited(&path),
            before,
            "the same credits, told of by the same events"
        );
        let reader = Database::open(&path, OpenMode::ReadOnly).unwrap();
        assert_eq!(reader.read(|tx| tx.violations(144)).unwrap(), []);
    });
}
