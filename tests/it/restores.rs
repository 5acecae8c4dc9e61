//! A database restored from a backup: noticed, caught up, and told anew, whatever happens in between.

use crate::rig::{Rig, folder, in_simulation, open};
use crate::tables::Tables;
use crate::till::{self, invoice, new_invoice};
use creditd::rules::Script;
use creditd::store::{
    Database, Existing, NewSource, OpenMode, PoolEmpty, SourceKind, TakeAddress, TakenAddress, WriteTx,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const PIN: [u8; 32] = [7; 32];

/// The script of an index of the source.
fn derived(rig: &Rig, number: u32) -> Script {
    rig.script(10_000 + number)
}

pub fn back_up(rig: &Rig, to: &Path) {
    rig.reader.backup(to, Existing::Replace, |_| {}).unwrap();
}

/// Kills the daemon, puts a backup in the place of its database and starts it.
pub async fn restore(rig: &mut Rig, from: &Path) {
    drop(rig.running.take());
    // Others may still have the old files open.
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", rig.path().display()));
    }
    std::fs::copy(from, rig.path()).unwrap();
    rig.running = Some(open(rig.path(), &rig.chain, rig.clock, &rig.settings).await);
    rig.reader = Database::open(rig.path(), OpenMode::ReadOnly).unwrap();
    rig.tables = Tables::open(rig.path());
    rig.ledger = rig.read(|tx| tx.ledger_snapshot());
    rig.checked = None;
    rig.check();
}

/// A pool of twenty addresses.
pub async fn with_pool(rig: &Rig) {
    let source = NewSource {
        name: "shop".to_owned(),
        scope: rig.chain.chain_id().to_string(),
        kind: SourceKind::Descriptor,
        pin: PIN,
        merchant: None,
        pool_size: 20,
        chains: vec![rig.key],
    };
    rig.write(move |tx| tx.set_address_sources(std::slice::from_ref(&source)))
        .await;
    fill(rig).await;
}

pub async fn fill(rig: &Rig) {
    for work in rig.read(|tx| tx.pool_work()) {
        let numbers = work.next_index..work.next_index + work.missing;
        let scripts: Vec<Script> = numbers.map(|number| derived(rig, number)).collect();
        rig.write(move |tx| tx.fill_pool(work.source, work.next_index, &scripts))
            .await;
    }
}

/// What the job does after a restore.
pub async fn watch_restored(rig: &Rig) {
    for range in rig.read(|tx| tx.waiting_ranges()) {
        let numbers = u32::try_from(range.next).unwrap()..u32::try_from(range.end).unwrap();
        let scripts: Vec<Script> = numbers.map(|number| derived(rig, number)).collect();
        rig.write(move |tx| tx.watch_restored(&range, &scripts, false))
            .await;
    }
}

pub async fn take(rig: &Rig) -> Result<TakenAddress, PoolEmpty> {
    let chain = rig.key;
    let take = move |tx: &mut WriteTx<'_>| {
        tx.take_address(&TakeAddress {
            chain,
            merchant: "shop",
            internal: "ignore",
            reference: "order",
        })
    };
    rig.write(take).await
}

/// Takes an address and makes an invoice for it.
async fn invoice_of_pool(rig: &Rig, amount: u64) -> (String, Script) {
    let chain = rig.key;
    let make = move |tx: &mut WriteTx<'_>| {
        let taken = tx
            .take_address(&TakeAddress {
                chain,
                merchant: "shop",
                internal: "ignore",
                reference: "order",
            })?
            .unwrap();
        let now = tx.now_ms();
        let new = new_invoice(tx, (chain, taken.script.clone()), "shop", amount, now)?;
        Ok((tx.create_invoice(&new)?.id, taken.script))
    };
    rig.write(make).await
}

/// An event as a receiver gets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heard {
    pub id: String,
    pub kind: String,
    pub subject: String,
    pub sequence: i64,
    pub net: Option<String>,
    pub life: Option<String>,
}

pub fn heard(rig: &Rig) -> Vec<Heard> {
    let sql = "SELECT id, type, subject, sequence, json_extract(body, '$.data.net_base'), \
               json_extract(body, '$.data.life') FROM events ORDER BY seq";
    rig.tables.rows(sql, |row| Heard {
        id: row.get(0).unwrap(),
        kind: row.get(1).unwrap(),
        subject: row.get(2).unwrap(),
        sequence: row.get(3).unwrap(),
        net: row.get(4).unwrap(),
        life: row.get(5).unwrap(),
    })
}

fn ids(heard: &[Heard], kind: &str) -> BTreeSet<String> {
    let of = |heard: &&Heard| heard.kind == kind;
    heard.iter().filter(of).map(|heard| heard.id.clone()).collect()
}

pub fn credits(rig: &Rig) -> BTreeSet<String> {
    let ids = rig
        .tables
        .rows("SELECT id FROM credits", |row| row.get(0).unwrap());
    ids.into_iter().collect()
}

pub fn is_done(rig: &Rig) -> bool {
    let open = "SELECT count(*) FROM restored_chains WHERE state IN ('catching_up', 'stating')";
    rig.tables.count(open) == 0
}

/// Settles, and goes on until the restore is over.
pub async fn repair(rig: &mut Rig) {
    watch_restored(rig).await;
    rig.settle().await;
    for _ in 0..50 {
        if is_done(rig) {
            return;
        }
        rig.round().await;
    }
    panic!("the restore does not end: {}", rig.state());
}

/// A world with a backup in the past of it.
struct Past {
    rig: Rig,
    copy: PathBuf,
    before: Vec<Heard>,
    credits: BTreeSet<String>,
    /// Made before the backup and paid after it.
    invoice: String,
    taken: BTreeSet<Script>,
    _folder: tempfile::TempDir,
}

/// A backup 200 blocks old: since then five deposits were credited and told, three addresses handed out.
async fn past() -> Past {
    let folder = folder();
    let copy = folder.path().join("backup.db");
    let mut rig = Rig::new().await;
    rig.settle().await;
    let address = rig.watch(1).await;
    let invoice = invoice(&rig, 2, 50).await;
    with_pool(&rig).await;
    let mut taken = BTreeSet::from([take(&rig).await.unwrap().script]);
    rig.mine(&[&rig.pay(&address, 7)]);
    rig.extend(40);
    rig.settle().await;
    back_up(&rig, &copy);
    rig.extend(10);
    rig.settle().await;
    let (_, other) = invoice_of_pool(&rig, 30).await;
    let late = take(&rig).await.unwrap().script;
    taken.extend([other.clone(), late.clone(), take(&rig).await.unwrap().script]);
    rig.mine(&[&rig.pay(&address, 8), &rig.pay(&rig.script(2), 50)]);
    rig.extend(20);
    rig.mine(&[&rig.pay(&other, 30), &rig.pay(&late, 5)]);
    rig.settle().await;
    rig.extend(160);
    rig.mine(&[&rig.pay(&address, 9)]);
    rig.extend(8);
    rig.settle().await;
    let (before, credits) = (heard(&rig), credits(&rig));
    assert_eq!(credits.len(), 6);
    Past {
        rig,
        copy,
        before,
        credits,
        invoice,
        taken,
        _folder: folder,
    }
}

/// Everything that C53 (c) asks of a restore that is over.
#[track_caller]
fn assert_repaired(past: &Past, generation: i64) {
    let rig = &past.rig;
    assert_eq!(credits(rig), past.credits, "the same credits");
    let now = heard(rig);
    for kind in ["credit.created", "invoice.paid"] {
        let known = ids(&past.before, kind);
        let lost = if kind == "invoice.paid" { 1 } else { 0 };
        assert!(ids(&now, kind).is_subset(&known), "no other {kind}");
        assert_eq!(
            ids(&now, kind).len() + lost,
            known.len(),
            "{kind}: all that the backup can know"
        );
    }
    let told = |kind: &str| -> Vec<&Heard> {
        let is_anew = |heard: &&Heard| heard.kind == kind && heard.sequence >> 32 == generation;
        now.iter().filter(is_anew).collect()
    };
    // The first one was credited more than a window below the backup.
    let states = told("credit.state");
    let subjects: BTreeSet<&str> = states.iter().map(|heard| heard.subject.as_str()).collect();
    assert_eq!((states.len(), subjects.len()), (5, 5), "{states:?}");
    for state in &states {
        let net: String = rig
            .tables
            .rows(
                &format!("SELECT amount FROM credits WHERE id = '{}'", state.subject),
                |row| row.get(0).unwrap(),
            )
            .pop()
            .unwrap();
        assert_eq!(state.net.as_ref(), Some(&net));
        let created = now
            .iter()
            .find(|heard| heard.kind == "credit.created" && heard.subject == state.subject);
        assert!(created.unwrap().sequence < state.sequence);
    }
    let invoices = told("invoice.state");
    assert_eq!(invoices.len(), 1, "{invoices:?}");
    assert_eq!(
        (&invoices[0].subject, invoices[0].life.as_deref()),
        (&past.invoice, Some("settled"))
    );
}

#[test]
fn c53_a_backup_200_blocks_old_tells_the_same_and_each_state_once() {
    in_simulation(async {
        let mut past = past().await;
        let copy = past.copy.clone();
        restore(&mut past.rig, &copy).await;
        assert!(past.credits.len() > credits(&past.rig).len());
        let rig = &mut past.rig;
        // Nothing is read before what was handed out is watched.
        let at = rig.cursor();
        rig.rounds(5).await;
        assert_eq!(rig.cursor(), at);
        let state = rig.state();
        assert!(
            state.starts_with("syncing a backup was restored: addresses 1 to"),
            "{state}"
        );
        watch_restored(rig).await;
        let barred = take(rig).await.unwrap_err().to_string();
        assert!(
            barred.starts_with("a backup was restored, and btc is at height 41"),
            "{barred}"
        );
        rig.watch(3).await;
        let refused = till::try_invoice(rig, 3, 5, |_| {})
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("`creditd restored`"), "{refused}");
        repair(rig).await;
        assert_repaired(&past, 1);
        let next = take(&past.rig).await;
        assert!(
            matches!(next, Err(PoolEmpty::Empty { .. })),
            "all that it had are reserved: {next:?}"
        );
        fill(&past.rig).await;
        assert!(!past.taken.contains(&take(&past.rig).await.unwrap().script));
        till::try_invoice(&past.rig, 3, 5, |_| {}).await.unwrap();
        // Restarted, stopped or killed: nothing more is told.
        let told = heard(&past.rig).len();
        for _ in 0..2 {
            past.rig.reopen().await;
            past.rig.settle().await;
            past.rig.rounds(3).await;
        }
        assert_eq!(heard(&past.rig).len(), told);
        assert_eq!(past.rig.tables.count("SELECT generation FROM meta"), 1);
    });
}

/// Killed at every point of the repair at which the follower gives way, it ends at the same.
#[test]
fn c53_a_repair_that_is_killed_anywhere_goes_on_and_tells_each_once() {
    in_simulation(async {
        let (mut crashes, mut times) = (0, 0);
        loop {
            let mut past = past().await;
            let copy = past.copy.clone();
            restore(&mut past.rig, &copy).await;
            watch_restored(&past.rig).await;
            let is_crashed = past
                .rig
                .crash_beside(times, std::future::pending(), |tables| {
                    let open = "SELECT count(*) FROM restored_chains WHERE state <> 'done'";
                    tables.count(open) == 0
                })
                .await;
            repair(&mut past.rig).await;
            assert_repaired(&past, 1);
            crashes += usize::from(is_crashed);
            if !is_crashed {
                break;
            }
            times += 1 + times / 3;
        }
        assert!(crashes > 8, "{crashes}");
    });
}

/// The same backup again: in the middle of the repair, after it, and an older one on top.
#[test]
fn c53_a_second_restore_on_top_of_the_first_ends_at_the_same() {
    in_simulation(async {
        for rounds in [0, 1, 2, 4, 60] {
            let mut past = past().await;
            let copy = past.copy.clone();
            restore(&mut past.rig, &copy).await;
            if rounds > 0 {
                watch_restored(&past.rig).await;
            }
            past.rig.rounds(rounds).await;
            assert!(if rounds < 2 {
                !is_done(&past.rig)
            } else {
                rounds < 60 || is_done(&past.rig)
            });
            restore(&mut past.rig, &copy).await;
            repair(&mut past.rig).await;
            assert_repaired(&past, 2);
        }
    });
}

/// A backup of a database that is being repaired, restored: what the first restore owed is owed still.
#[test]
fn c53_a_backup_made_during_a_repair_owes_what_the_first_restore_owed() {
    in_simulation(async {
        let mut past = past().await;
        let (copy, middle) = (past.copy.clone(), past.copy.with_file_name("middle.db"));
        restore(&mut past.rig, &copy).await;
        let waiting = past
            .rig
            .tables
            .count("SELECT sum(end_index - next_index) FROM restored_ranges");
        assert!(waiting > 3, "{waiting}");
        back_up(&past.rig, &middle);
        repair(&mut past.rig).await;
        restore(&mut past.rig, &middle).await;
        let open = "SELECT sum(end_index - next_index) FROM restored_ranges WHERE state = 'waiting'";
        assert!(past.rig.tables.count(open) >= waiting);
        repair(&mut past.rig).await;
        assert_repaired(&past, 2);
        let superseded = "SELECT count(*) FROM restored_chains WHERE state = 'superseded'";
        assert_eq!(past.rig.tables.count(superseded), 1);
    });
}

/// A restart in the middle begins nothing anew.
#[test]
fn c53_a_start_in_the_middle_of_a_repair_is_no_other_restore() {
    in_simulation(async {
        let mut past = past().await;
        let copy = past.copy.clone();
        restore(&mut past.rig, &copy).await;
        past.rig.reopen().await;
        watch_restored(&past.rig).await;
        for _ in 0..6 {
            past.rig.round().await;
            past.rig.reopen().await;
        }
        repair(&mut past.rig).await;
        assert_repaired(&past, 1);
    });
}

/// Nothing was mined since the backup, so no cursor tells of it: events and addresses do.
#[test]
fn c35_a_restore_within_one_block_is_noticed_by_what_was_handed_out() {
    in_simulation(async {
        let folder = folder();
        let copy = folder.path().join("backup.db");
        let mut rig = Rig::new().await;
        rig.extend(3);
        rig.settle().await;
        with_pool(&rig).await;
        let first = take(&rig).await.unwrap();
        back_up(&rig, &copy);
        let second = take(&rig).await.unwrap();
        // A stop as systemd does it.
        let (store, follower) = rig.running.take().unwrap();
        drop(follower);
        store.close().await.unwrap();
        restore(&mut rig, &copy).await;
        assert_eq!(rig.tables.count("SELECT generation FROM meta"), 1);
        repair(&mut rig).await;
        let third = take(&rig).await.unwrap();
        assert_eq!((first.number, second.number, third.number), (0, 1, 2));
        rig.mine(&[&rig.pay(&second.script, 4)]);
        rig.extend(3);
        rig.settle().await;
        assert_eq!(credits(&rig).len(), 1, "what was handed out since is watched");
    });
}

/// A-B-C is credited in B; the backup is of C. Then B and C leave: reversed, and told. The restored database
/// finds it again, and says so once more in absolutes.
#[test]
fn c53_a_reorg_since_the_backup_ends_at_net_0() {
    in_simulation(async {
        let folder = folder();
        let copy = folder.path().join("backup.db");
        let mut rig = Rig::new().await;
        let address = rig.watch(1).await;
        let root = rig.extend(5);
        rig.settle().await;
        rig.mine(&[&rig.pay(&address, 7)]);
        rig.extend(3);
        rig.settle().await;
        back_up(&rig, &copy);
        let kept = heard(&rig);
        // Credited since, and gone before the catch-up: named as lost, for nothing tells of it any more.
        rig.mine(&[&rig.pay(&address, 8)]);
        rig.extend(3);
        rig.settle().await;
        let other = rig.extend_on(root, 12);
        rig.go_to(other);
        rig.settle().await;
        let before = heard(&rig);
        assert_eq!(ids(&before, "credit.reversed").len(), 2);
        restore(&mut rig, &copy).await;
        assert_eq!(heard(&rig), kept);
        repair(&mut rig).await;
        let now = heard(&rig);
        let states: Vec<&Heard> = now.iter().filter(|heard| heard.kind == "credit.state").collect();
        assert_eq!(states.len(), 1);
        assert_eq!(states[0].net.as_deref(), Some("0"));
        let reversed = ids(&now, "credit.reversed");
        assert!(
            reversed.is_disjoint(&ids(&before, "credit.reversed")),
            "of another number"
        );
        assert_eq!(books(&rig), nets(&[&before, &now], &credits(&rig)));
    });
}

/// What a receiver holds that keeps the highest version of each of these credits.
pub fn nets(heard: &[&[Heard]], credits: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut held: BTreeMap<String, (i64, String)> = BTreeMap::new();
    for event in heard.iter().copied().flatten() {
        let Some(net) = &event.net else { continue };
        let known = held.entry(event.subject.clone()).or_default();
        if event.sequence > known.0 {
            *known = (event.sequence, net.clone());
        }
    }
    held.retain(|credit, _| credits.contains(credit));
    held.into_iter().map(|(credit, (_, net))| (credit, net)).collect()
}

/// What the books say.
pub fn books(rig: &Rig) -> BTreeMap<String, String> {
    let sql = "SELECT c.id, iif(count(*) % 2 = 1, c.amount, '0') FROM credits c \
               JOIN journal j ON j.credit = c.id GROUP BY c.id";
    let rows = rig
        .tables
        .rows(sql, |row| (row.get(0).unwrap(), row.get(1).unwrap()));
    rows.into_iter().collect()
}
