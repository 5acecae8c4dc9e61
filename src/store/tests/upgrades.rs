//! An upgrade that is cut off anywhere is done or not done: what it leaves is one version, with all rows.

use creditd_vfs::{self as vfs, Hit, Op};
use rusqlite::Connection;

use super::power::Disk;
use super::versions::{MADE_UP, MADE_UP_1, fresh, release, released, shape};
use crate::store::StoreError;
use crate::store::migrate::{Found, Schema, identify};

const SHELVES: i64 = 40;

/// How the process ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// What was written stays.
    Killed,
    /// What was not synced may be gone; the seed says what of it.
    PowerLost(u64),
}

const ENDS: [End; 4] = [
    End::Killed,
    End::PowerLost(1),
    End::PowerLost(2),
    End::PowerLost(3),
];

/// As the daemon writes, and with room for so few pages that some of a migration get to the log before its
/// commit.
fn open(disk: &Disk) -> Connection {
    let conn = Connection::open(disk.path()).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON; PRAGMA cache_size = 2",
    )
    .unwrap();
    conn
}

/// A closed file of version 1 with rows, all of it on disk.
fn disk_of_version_1() -> Disk {
    let disk = Disk::new();
    let conn = open(&disk);
    release(&conn, MADE_UP_1);
    let rows = format!(
        "WITH RECURSIVE n (id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n WHERE id < {SHELVES})
             INSERT INTO shelves (id, room) SELECT id, printf('%0500d', id) FROM n;
         INSERT INTO books (id, shelf) SELECT 1000 + id, id FROM shelves"
    );
    conn.execute_batch(&rows).unwrap();
    drop(conn);
    vfs::settle();
    disk
}

/// The version of the file, which must have the shape of it and all rows.
#[track_caller]
fn version_with_all_rows(conn: &Connection, what: &str) -> i64 {
    let Some(Found::Version(version)) = identify(conn).unwrap() else {
        panic!("{what}: not a file of ours");
    };
    let steps = usize::try_from(version - 1).unwrap();
    let until = Schema {
        fresh: "",
        migrations: &MADE_UP.migrations[..steps],
    };
    let mut expected = released(MADE_UP_1);
    until.upgrade(&mut expected, 1).unwrap();
    assert_eq!(shape(conn), shape(&expected), "{what}: version {version}");
    let whole: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok", "{what}");
    let kept = "SELECT count(*) FROM books b JOIN shelves s ON s.id = b.shelf
                WHERE b.id = 1000 + s.id AND s.room = printf('%0500d', s.id)";
    let kept: i64 = conn.query_row(kept, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, SHELVES, "{what}: version {version}");
    version
}

/// Upgrades a file of version 1 until what `planned` has planned ends it, and goes on from what is left; the
/// version that was left, `None` if nothing ended it.
fn cut(planned: impl FnOnce(), end: End, what: &str) -> Option<i64> {
    let disk = disk_of_version_1();
    let mut conn = open(&disk);
    planned();
    let upgraded: Result<(), StoreError> = MADE_UP.upgrade(&mut conn, 1);
    drop(conn);
    #[cfg(feature = "points")]
    crate::points::hook(None);
    let is_cut = vfs::is_dead();
    match end {
        End::Killed => vfs::revive(),
        End::PowerLost(seed) => disk.lose_power((), seed),
    }
    vfs::clear_plans();
    let mut again = open(&disk);
    let left = version_with_all_rows(&again, what);
    if upgraded.is_ok() {
        assert_eq!(left, MADE_UP.version(), "{what}: it was done");
    }
    MADE_UP.upgrade(&mut again, left).unwrap();
    drop(again);
    let done = open(&disk);
    assert_eq!(version_with_all_rows(&done, what), MADE_UP.version());
    assert_eq!(shape(&done), shape(&fresh(&MADE_UP)), "{what}");
    is_cut.then_some(left)
}

/// Every version is left by a cut somewhere.
#[track_caller]
fn all_versions_were_left(mut left: Vec<i64>) {
    left.sort_unstable();
    left.dedup();
    assert_eq!(left, [1, 2, 3]);
}

#[test]
fn an_upgrade_cut_off_at_any_write_or_sync_is_done_or_not_done() {
    for (op, hit) in [
        (Op::Write, Hit::Kill),
        (Op::Write, Hit::TornThenKill { bytes: 100 }),
        (Op::Sync, Hit::Kill),
    ] {
        for end in ENDS {
            let nth = |nth| {
                let what = format!("{op:?} {nth}, {hit:?}, {end:?}");
                cut(|| vfs::plan(op, nth, hit), end, &what)
            };
            all_versions_were_left((1..).map_while(nth).collect());
        }
    }
}

#[cfg(feature = "points")]
#[test]
fn an_upgrade_cut_off_at_any_point_is_done_or_not_done() {
    let kill_at = |nth: usize| {
        let mut passed = 0;
        crate::points::hook(Some(Box::new(move |_| {
            passed += 1;
            if passed == nth {
                vfs::kill();
            }
            None
        })));
    };
    for end in ENDS {
        let nth = |nth| cut(|| kill_at(nth), end, &format!("point {nth}, {end:?}"));
        let left: Vec<i64> = (1..).map_while(nth).collect();
        // Before and after each of the two commits.
        assert_eq!(left, [1, 2, 2, 3], "{end:?}");
    }
}
