//! What the disk does to a real SQLite: it must be able to lose what a careless setting leaves unsynced, and
//! must never lose what was synced.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};

use creditd_vfs::{self as vfs, Hit, Op, RowChange, RowOp};
use rusqlite::{Connection, ffi};

/// A watched folder of its own.
struct World {
    folder: PathBuf,
}

impl World {
    fn new(name: &str) -> World {
        vfs::install();
        let folder = std::env::temp_dir().join(format!("creditd-vfs-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        vfs::begin(&folder);
        World { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("a.db")
    }

    fn open(&self, synchronous: &str) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.pragma_update(None, "journal_mode", "WAL").unwrap();
        conn.pragma_update(None, "synchronous", synchronous).unwrap();
        conn.execute_batch("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT) STRICT")
            .unwrap();
        conn
    }
}

impl Drop for World {
    fn drop(&mut self) {
        vfs::end();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Numbers from a seed.
fn dice(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// One commit of about three pages.
fn add(conn: &Connection, id: i64) -> Result<(), rusqlite::Error> {
    let add = "INSERT INTO t (id, body) VALUES (?1, hex(zeroblob(5000)))";
    conn.execute(add, [id]).map(drop)
}

/// The ids, of a database that is whole.
fn ids(conn: &Connection) -> Vec<i64> {
    let whole: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    let mut all = conn.prepare("SELECT id FROM t ORDER BY id").unwrap();
    all.query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn code(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().unwrap().extended_code
}

/// Adds rows 1 to 5, loses power, and says what is there, for many draws.
fn after_power_losses(name: &str, synchronous: &str) -> Vec<Vec<i64>> {
    let lives = (0..60).map(|seed| {
        let world = World::new(&format!("{name}-{seed}"));
        let conn = world.open("FULL");
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        conn.pragma_update(None, "synchronous", synchronous).unwrap();
        (1..=5).for_each(|id| add(&conn, id).unwrap());
        vfs::kill();
        drop(conn);
        vfs::lose_power(&mut dice(seed));
        vfs::revive();
        ids(&world.open("FULL"))
    });
    lives.collect()
}

#[test]
fn full_keeps_every_acknowledged_commit() {
    for there in after_power_losses("full", "FULL") {
        assert_eq!(there, [1, 2, 3, 4, 5]);
    }
}

#[test]
fn normal_loses_acknowledged_commits_the_last_ones_first() {
    let all = after_power_losses("normal", "NORMAL");
    for there in &all {
        assert!([1, 2, 3, 4, 5].starts_with(there), "{there:?}");
    }
    for lost in [0, 5] {
        assert!(
            all.iter().any(|there| there.len() == lost),
            "{lost} of 5 stay sometimes"
        );
    }
    assert!(all.iter().any(|there| (1..5).contains(&there.len())), "some stay");
}

#[test]
fn off_leaves_files_that_are_not_whole_when_the_log_is_folded() {
    let mut broken = 0;
    for seed in 0..60 {
        let world = World::new(&format!("off-{seed}"));
        let conn = world.open("FULL");
        (1..=5).for_each(|id| add(&conn, id).unwrap());
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        (6..=40).for_each(|id| add(&conn, id).unwrap());
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        vfs::kill();
        drop(conn);
        vfs::lose_power(&mut dice(seed));
        vfs::revive();
        let conn = Connection::open(world.path()).unwrap();
        let whole = conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
        broken += i32::from(whole.as_deref() != Ok("ok"));
    }
    assert!(broken > 5, "{broken} of 60");
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged_and_lets_nothing_more_through() {
    let world = World::new("kill");
    let conn = world.open("NORMAL");
    add(&conn, 1).unwrap();
    vfs::kill();
    let bytes = |suffix: &str| std::fs::read(world.folder.join(format!("a.db{suffix}"))).unwrap();
    let before = (bytes(""), bytes("-wal"));
    assert!(add(&conn, 2).is_err());
    assert!(conn.query_row("PRAGMA wal_checkpoint", [], |row| row.get::<_, i64>(0)) != Ok(0));
    drop(conn);
    assert!(
        before == (bytes(""), bytes("-wal")),
        "nothing was folded or removed"
    );
    assert_eq!(vfs::open_handles(), 0);
    // Whoever opens it is another process.
    assert_eq!(ids(&world.open("FULL")), [1]);
    assert!(!vfs::is_dead());
}

#[test]
fn a_commit_that_is_cut_at_any_write_is_not_there() {
    let count = |name: &str| {
        let world = World::new(name);
        let conn = world.open("FULL");
        let before = vfs::counts()[Op::Write as usize];
        add(&conn, 1).unwrap();
        vfs::counts()[Op::Write as usize] - before
    };
    let writes = count("torn-count");
    assert!(
        writes >= 6,
        "{writes}: a header and a page for each of three frames"
    );
    for nth in 1..=writes {
        for bytes in [0, 1, 11, 23] {
            let world = World::new("torn");
            let conn = world.open("FULL");
            vfs::plan(Op::Write, nth, Hit::TornThenKill { bytes });
            assert!(add(&conn, 1).is_err());
            assert!(vfs::is_dead());
            drop(conn);
            let conn = world.open("FULL");
            assert_eq!(ids(&conn), Vec::<i64>::new(), "write {nth} cut after {bytes}");
            add(&conn, 2).unwrap();
        }
    }
}

#[test]
fn a_torn_page_of_the_log_is_ignored_with_all_that_follows() {
    let (mut torn, mut reordered) = (0, 0);
    for seed in 0..80 {
        let world = World::new(&format!("torn-page-{seed}"));
        let conn = world.open("FULL");
        add(&conn, 1).unwrap();
        conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
        (2..=6).for_each(|id| add(&conn, id).unwrap());
        vfs::kill();
        drop(conn);
        let lost = vfs::lose_power(&mut dice(seed));
        vfs::revive();
        torn += lost.torn;
        reordered += lost.reordered;
        let there = ids(&world.open("FULL"));
        assert!(
            there[0] == 1 && [1, 2, 3, 4, 5, 6].starts_with(&there),
            "{there:?}"
        );
    }
    assert!(torn > 0 && reordered > 0, "{torn} torn, {reordered} reordered");
}

/// Row 1 is on disk. The sync of row 2 fails, the process ends, the next one adds row 3.
fn carried_on_after_a_failed_sync(seed: u64, is_folded: bool) -> Vec<i64> {
    let world = World::new(&format!("fsync-{seed}-{is_folded}"));
    let conn = world.open("FULL");
    add(&conn, 1).unwrap();
    vfs::plan(Op::Sync, 1, Hit::Error(ffi::SQLITE_IOERR_FSYNC));
    let failed = add(&conn, 2).unwrap_err();
    assert_eq!(code(&failed), ffi::SQLITE_IOERR_FSYNC);
    vfs::kill();
    drop(conn);
    let conn = world.open("FULL");
    if is_folded {
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
    }
    add(&conn, 3).unwrap();
    vfs::kill();
    drop(conn);
    vfs::lose_power(&mut dice(seed));
    vfs::revive();
    ids(&world.open("FULL"))
}

#[test]
fn what_follows_a_failed_sync_in_the_log_can_be_lost_although_its_own_succeeded() {
    let all: Vec<_> = (0..60)
        .map(|seed| carried_on_after_a_failed_sync(seed, false))
        .collect();
    assert!(all.iter().all(|there| there[0] == 1), "{all:?}");
    assert!(all.iter().any(|there| !there.contains(&3)), "{all:?}");
}

#[test]
fn a_log_that_is_folded_after_a_failed_sync_loses_nothing_that_follows() {
    for seed in 0..60 {
        let there = carried_on_after_a_failed_sync(seed, true);
        assert!(there.starts_with(&[1]) && there.ends_with(&[3]), "{there:?}");
    }
}

#[test]
fn a_failure_of_the_log_is_one_that_whoever_commits_is_told_of() {
    let world = World::new("log-failures");
    let conn = world.open("FULL");
    add(&conn, 1).unwrap();
    vfs::plan(Op::Sync, 1, Hit::Error(ffi::SQLITE_IOERR_FSYNC));
    add(&conn, 2).unwrap_err();
    assert_eq!(vfs::log_failures(), 1);
    vfs::plan(Op::Write, 2, Hit::Error(ffi::SQLITE_IOERR_WRITE));
    add(&conn, 3).unwrap_err();
    assert_eq!(vfs::log_failures(), 2);
    add(&conn, 4).unwrap();
    // All of it is in the log by now: that it cannot be folded loses nothing.
    vfs::plan(Op::Sync, 1, Hit::Error(ffi::SQLITE_IOERR_FSYNC));
    let folded = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    assert!(folded.is_err() && vfs::log_failures() == 2, "{folded:?}");
    vfs::plan(Op::Write, 1, Hit::Full);
    add(&conn, 5).unwrap_err();
    assert_eq!(vfs::log_failures(), 2);
}

#[test]
fn a_full_disk_refuses_what_grows_and_nothing_else() {
    let world = World::new("full-disk");
    let conn = world.open("FULL");
    add(&conn, 1).unwrap();
    vfs::set_full(true);
    assert_eq!(code(&add(&conn, 2).unwrap_err()), ffi::SQLITE_FULL);
    assert_eq!(ids(&conn), [1]);
    vfs::set_full(false);
    add(&conn, 3).unwrap();
    vfs::plan(Op::Write, 3, Hit::Full);
    assert_eq!(code(&add(&conn, 4).unwrap_err()), ffi::SQLITE_FULL);
    assert_eq!(ids(&conn), [1, 3]);
}

#[test]
fn a_read_that_fails_is_an_error_and_one_in_parts_is_whole() {
    let world = World::new("short");
    let conn = world.open("FULL");
    (1..=30).for_each(|id| add(&conn, id).unwrap());
    drop(conn);
    let ask = |hit: Option<(u64, Hit)>| {
        let conn = Connection::open(world.path()).unwrap();
        conn.pragma_update(None, "cell_size_check", true).unwrap();
        if let Some((nth, hit)) = hit {
            vfs::plan(Op::Read, nth, hit);
        }
        let sum = conn.query_row("SELECT sum(id), sum(length(body)) FROM t", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        });
        vfs::clear_plans();
        sum.map_err(|error| code(&error))
    };
    let right = ask(None).unwrap();
    assert_eq!(right, (465, 300_000));
    let mut errors = 0;
    for nth in 1..60 {
        assert_eq!(ask(Some((nth, Hit::Short))), Ok(right), "read {nth}");
        let failed = ask(Some((nth, Hit::Error(ffi::SQLITE_IOERR_READ))));
        assert!(
            failed == Err(ffi::SQLITE_IOERR_READ) || failed == Ok(right),
            "read {nth}: {failed:?}"
        );
        errors += i32::from(failed.is_err());
    }
    assert!(errors > 50, "{errors}");
}

#[test]
fn half_a_write_is_an_error_and_the_commit_is_not_there() {
    for nth in 1..=6 {
        let world = World::new("short-write");
        let conn = world.open("FULL");
        add(&conn, 1).unwrap();
        vfs::plan(Op::Write, nth, Hit::Short);
        assert_eq!(code(&add(&conn, 2).unwrap_err()), ffi::SQLITE_IOERR_WRITE);
        assert_eq!(ids(&conn), [1]);
        add(&conn, 3).unwrap();
        vfs::kill();
        drop(conn);
        assert_eq!(ids(&world.open("FULL")), [1, 3]);
    }
}

#[test]
fn whoever_is_in_the_way_is_waited_for_without_time() {
    let world = World::new("busy");
    let conn = world.open("FULL");
    conn.busy_timeout(std::time::Duration::from_secs(3600)).unwrap();
    let locks = || vfs::counts()[Op::ShmLock as usize];
    let before = locks();
    add(&conn, 1).unwrap();
    let last = locks() - before;
    assert_eq!(vfs::waits(), 0);
    // The last one is the writer's.
    vfs::plan(Op::ShmLock, last, Hit::Busy);
    add(&conn, 2).unwrap();
    assert!(vfs::waits() > 0, "it was retried");
    vfs::set_busy(u64::MAX);
    assert_eq!(code(&add(&conn, 3).unwrap_err()), ffi::SQLITE_BUSY);
    assert_eq!(ids(&conn), [1, 2], "readers go on");
    vfs::set_busy(0);
    add(&conn, 3).unwrap();
}

#[test]
fn a_kill_at_a_statement_leaves_nothing_of_its_transaction() {
    let world = World::new("statement");
    let dead = std::rc::Rc::new(std::cell::Cell::new(None));
    for nth in 1..=4 {
        let conn = world.open("FULL");
        let told = dead.clone();
        vfs::on_hit(Some(Box::new(move |op, _| told.set(Some(op)))));
        vfs::plan(Op::Statement, nth, Hit::Kill);
        let ran = [
            "BEGIN IMMEDIATE",
            "INSERT INTO t (id) VALUES (7)",
            "UPDATE t SET body = 'x'",
            "COMMIT",
        ]
        .map(|sql| conn.execute_batch(sql).is_ok());
        let at = usize::try_from(nth).unwrap() - 1;
        assert_eq!(ran.iter().position(|is_ok| !is_ok), Some(at), "{ran:?}");
        assert_eq!(dead.take(), Some(Op::Statement));
        drop(conn);
        assert_eq!(ids(&world.open("FULL")), Vec::<i64>::new());
    }
    let conn = world.open("FULL");
    vfs::plan(Op::Commit, 1, Hit::Kill);
    assert!(add(&conn, 8).is_err());
    assert_eq!(dead.take(), Some(Op::Commit));
    drop(conn);
    assert_eq!(ids(&world.open("FULL")), Vec::<i64>::new());
}

#[test]
fn rows_of_committed_transactions_are_told() {
    let world = World::new("rows");
    let conn = world.open("FULL");
    vfs::rows();
    conn.execute_batch("BEGIN; INSERT INTO t (id) VALUES (1); ROLLBACK")
        .unwrap();
    assert_eq!(vfs::rows(), []);
    conn.execute_batch("BEGIN; INSERT INTO t (id) VALUES (1), (2); UPDATE t SET body = 'x' WHERE id = 2")
        .unwrap();
    assert_eq!(vfs::rows(), []);
    conn.execute_batch("DELETE FROM t WHERE id = 1; COMMIT").unwrap();
    let change = |op, rowid| RowChange {
        table: "t",
        op,
        rowid,
    };
    let all = [
        change(RowOp::Insert, 1),
        change(RowOp::Insert, 2),
        change(RowOp::Update, 2),
        change(RowOp::Delete, 1),
    ];
    assert_eq!(vfs::rows(), all);
    assert_eq!(vfs::rows(), []);
}

#[test]
fn what_lies_elsewhere_is_not_watched() {
    let world = World::new("elsewhere");
    let other = world.folder.with_extension("other.db");
    let before = vfs::counts();
    let conn = Connection::open(&other).unwrap();
    conn.execute_batch("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT)")
        .unwrap();
    vfs::kill();
    add(&conn, 1).unwrap();
    assert_eq!(vfs::counts(), before);
    assert_eq!(vfs::unsynced_bytes(), 0);
    drop(conn);
    remove(&other);
}

#[test]
fn whoever_stands_aside_sees_the_file_and_meets_nothing() {
    let world = World::new("aside");
    let conn = world.open("FULL");
    let path = world.path();
    let open = || Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    add(&conn, 1).unwrap();
    let looker = vfs::aside(|| {
        let looker = open();
        assert_eq!(ids(&looker), [1]);
        looker
    });
    let before = vfs::counts();
    vfs::plan(Op::Statement, 1, Hit::Kill);
    assert_eq!(ids(&looker), [1]);
    assert_eq!(vfs::counts(), before);
    assert!(add(&conn, 2).is_err());
    assert_eq!(ids(&looker), [1], "also when the process is dead");
    drop((conn, looker));
    assert_eq!(vfs::open_handles(), 0);
    assert_eq!(ids(&world.open("FULL")), [1]);
}

fn remove(database: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
    }
}
