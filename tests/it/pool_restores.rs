//! C35 (a): the pool of a database restored from a backup: what was handed out since is handed out to nobody
//! again, and is watched for whom it was given to.

use crate::pool::{Files, script};
use creditd::rules::Script;
use creditd::store::{Database, NewSource, OpenMode, PoolEmpty};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

/// C35 (a): yesterday's database, whose counter stands at 40 where 45 were handed out.
#[test]
fn c35_a_restored_database_skips_what_was_handed_out_since() {
    let mut files = Files::new();
    let source = NewSource {
        pool_size: 100,
        ..files.source("shop", 1, &["btc"])
    };
    files.set(&[source]);
    files.fill();
    for _ in 0..40 {
        files.take("btc", "shop").unwrap();
    }
    files.stop();
    let copy = files.folder.path().join("yesterday.db");
    std::fs::copy(files.path(), &copy).unwrap();
    files.start();
    let later: Vec<u32> = (0..5)
        .map(|_| files.take("btc", "shop").unwrap().number)
        .collect();
    assert_eq!(later, [40, 41, 42, 43, 44]);
    files.stop();
    std::fs::copy(&copy, files.path()).unwrap();
    files.start();
    let barred = files.take("btc", "shop").unwrap_err();
    assert!(matches!(barred, PoolEmpty::Restoring(_)), "{barred}");
    files.watch_restored();
    assert_eq!(files.watched("btc"), 45, "the five are watched again");
    files.catch_up();
    assert_eq!(files.take("btc", "shop").unwrap().number, 45);
}

/// To whom each was given is known, whoever shares the pool; of a source that the backup does not even know,
/// too.
#[test]
fn c35_restored_addresses_belong_to_whom_they_were_given_to() {
    let mut files = Files::new();
    let source = files.source("shop", 1, &["btc"]);
    files.set(std::slice::from_ref(&source));
    files.fill();
    files.take("btc", "first").unwrap();
    files.stop();
    let copy = files.folder.path().join("yesterday.db");
    std::fs::copy(files.path(), &copy).unwrap();
    files.start();
    let later = files.source("evm", 2, &["eth", "base"]);
    files.set(&[source.clone(), later.clone()]);
    files.fill();
    let mut given = vec![(script(1, 0), "btc", "first")];
    for (chain, merchant) in [
        ("btc", "a"),
        ("eth", "b"),
        ("btc", "b"),
        ("base", "c"),
        ("btc", "b"),
    ] {
        given.push((files.take(chain, merchant).unwrap().script, chain, merchant));
    }
    files.kill();
    std::fs::copy(&copy, files.path()).unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", files.path().display()));
    }
    files.start();
    files.watch_restored();
    files.set(&[source, later]);
    files.fill();
    files.catch_up();
    let reader = rusqlite::Connection::open(files.path()).unwrap();
    let owner = "SELECT m.slug, count(*) FROM addresses a JOIN merchants m ON m.id = a.merchant \
                 WHERE a.script = ?1 GROUP BY m.slug";
    let taken: BTreeSet<Script> = given.iter().map(|(script, ..)| script.clone()).collect();
    for (script, chain, merchant) in given {
        let found: (String, i64) = reader
            .query_row(owner, [&script.0], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        let chains = if chain == "btc" { 1 } else { 2 };
        assert_eq!(found, (merchant.to_owned(), chains), "{script:?}");
    }
    for chain in ["btc", "eth", "base"] {
        let next = files.take(chain, "a").unwrap();
        assert!(!taken.contains(&next.script), "{next:?} again");
    }
    // Those that were only reserved are watched too, for nobody.
    let nobody: i64 = reader
        .query_row(
            "SELECT count(*) FROM addresses a JOIN merchants m ON m.id = a.merchant \
             WHERE m.slug = 'unassigned'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(nobody > 100, "{nobody}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u8),
    Fill,
    Stop,
    Kill,
    Copy,
    Restore,
    Repin(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u8..12).prop_map(Step::Take),
        4 => Just(Step::Fill),
        2 => Just(Step::Stop),
        2 => Just(Step::Kill),
        2 => Just(Step::Copy),
        2 => Just(Step::Restore),
        1 => (1_u8..4).prop_map(Step::Repin),
    ];
    prop::collection::vec(step, 1..40)
}

/// Copies the database as a backup does: one state of it.
fn back_up(from: &Path, to: &Path) {
    let reader = Database::open(from, OpenMode::ReadOnly).unwrap();
    reader
        .backup(to, creditd::store::Existing::Replace, |_| {})
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Whatever is stopped, killed, restored and repinned in between, nobody gets what somebody got before.
    #[test]
    fn no_address_is_ever_handed_out_twice(steps in steps()) {
        let mut files = Files::new();
        let first = files.source("shop", 1, &["btc"]);
        files.set(&[first]);
        let copy = files.folder.path().join("copy.db");
        back_up(&files.path(), &copy);
        let mut all = BTreeSet::new();
        for step in steps {
            match step {
                Step::Take(count) => for _ in 0..count {
                    if let Ok(taken) = files.take("btc", "shop") {
                        prop_assert!(all.insert(taken.script.0.clone()), "{taken:?} again");
                    }
                },
                Step::Fill => files.fill(),
                Step::Stop => { files.stop(); files.start(); }
                Step::Kill => { files.kill(); files.start(); }
                Step::Copy => back_up(&files.path(), &copy),
                Step::Restore => {
                    files.kill();
                    for suffix in ["", "-wal", "-shm"] {
                        let _ = std::fs::remove_file(format!("{}{suffix}", files.path().display()));
                    }
                    std::fs::copy(&copy, files.path()).unwrap();
                    files.start();
                    files.watch_restored();
                    files.catch_up();
                    for taken in &all {
                        prop_assert!(files.is_watched(taken), "{taken:?} was handed out");
                    }
                }
                Step::Repin(pin) => {
                    let other = files.source("shop", pin, &["btc"]);
                    files.write(|tx| tx.repin_source(&other, "a test"));
                }
            }
        }
    }
}
