//! Schema versions: an upgraded file has the shape of a new one, and an upgrade happens wholly or not at all.

use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use crate::store::StoreError;
use crate::store::migrate::{APPLICATION_ID, Found, SCHEMA, Schema, identify};
use crate::store::shape::parts;

/// The schema as version 1 was released, from which every upgrade starts. While there is no version 2 the
/// current file is that schema; the change that adds the first migration keeps the released text in a file
/// beside this one.
const VERSION_1: &str = include_str!("../../../schema.sql");

/// SHA-256 of schema.sql as it was released last, without spaces and comments; `None` = never.
const RELEASED: Option<&str> = None;

const CHANGELOG: &str = include_str!("../../../CHANGELOG.md");

/// A made-up history: a column, then a table that is rebuilt because SQLite cannot alter a constraint.
pub(super) const MADE_UP: Schema = Schema {
    fresh: "CREATE TABLE shelves (id INTEGER PRIMARY KEY,
                room TEXT NOT NULL DEFAULT '' CHECK (room <> 'attic'),
                width INTEGER NOT NULL DEFAULT 0) STRICT; -- in centimetres
            CREATE TABLE books (id INTEGER PRIMARY KEY,
                shelf INTEGER NOT NULL REFERENCES shelves (id)) STRICT;
            CREATE INDEX books_by_shelf ON books (shelf);",
    migrations: &[
        "ALTER TABLE shelves ADD COLUMN width INTEGER NOT NULL DEFAULT 0;",
        "CREATE TABLE shelves_new (
             id INTEGER PRIMARY KEY,
             room TEXT NOT NULL DEFAULT '' CHECK (room <> 'attic'),
             width INTEGER NOT NULL DEFAULT 0
         ) STRICT;
         INSERT INTO shelves_new (id, room, width) SELECT id, room, width FROM shelves;
         DROP TABLE shelves;
         ALTER TABLE shelves_new RENAME TO shelves;",
    ],
};
pub(super) const MADE_UP_1: &str =
    "CREATE TABLE shelves (id INTEGER PRIMARY KEY, room TEXT NOT NULL DEFAULT '') STRICT;
    CREATE TABLE books (id INTEGER PRIMARY KEY, shelf INTEGER NOT NULL REFERENCES shelves (id)) STRICT;
    CREATE INDEX books_by_shelf ON books (shelf);";

fn memory() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.pragma_update(None, "foreign_keys", true).unwrap();
    conn
}

/// A file as version 1 made it.
pub(super) fn released(schema: &str) -> Connection {
    let conn = memory();
    release(&conn, schema);
    conn
}

/// Makes an empty file one of version 1.
pub(super) fn release(conn: &Connection, schema: &str) {
    conn.execute_batch(schema).unwrap();
    conn.pragma_update(None, "application_id", APPLICATION_ID)
        .unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
}

pub(super) fn fresh(schema: &Schema) -> Connection {
    let mut conn = memory();
    schema.create(&mut conn).unwrap();
    conn
}

/// Every object of a schema, with its definition cut at the commas and sorted: `ALTER TABLE` writes a new
/// column behind the table's constraints, which means the same.
pub(super) fn shape(conn: &Connection) -> Vec<(String, Vec<String>)> {
    let all = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema ORDER BY 1";
    let mut statement = conn.prepare(all).unwrap();
    let object = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?));
    let objects = statement.query_map([], object).unwrap();
    objects
        .map(Result::unwrap)
        .map(|(name, sql)| (name, parts(&sql)))
        .collect()
}

#[track_caller]
fn upgraded_equals_fresh(schema: &Schema, version_1: &str) {
    let mut old = released(version_1);
    schema.upgrade(&mut old, 1).unwrap();
    let new = fresh(schema);
    assert_eq!(shape(&old), shape(&new));
    let version = Some(Found::Version(schema.version()));
    assert_eq!(
        (identify(&old).unwrap(), identify(&new).unwrap()),
        (version, version)
    );
    // Columns are named in every statement, but a rebuilt table should not surprise a reader either.
    let columns = "SELECT m.name, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk
                   FROM sqlite_schema m JOIN pragma_table_xinfo(m.name) c ORDER BY m.name, c.cid";
    let columns = |conn: &Connection| {
        let mut statement = conn.prepare(columns).unwrap();
        let text = |row: &rusqlite::Row<'_>| {
            let value = |column| {
                row.get::<_, rusqlite::types::Value>(column)
                    .map(|value| format!("{value:?}"))
            };
            (0..6).map(value).collect::<Result<Vec<_>, _>>()
        };
        let rows: Result<Vec<_>, _> = statement.query_map([], text).unwrap().collect();
        rows.unwrap()
    };
    assert_eq!(columns(&old), columns(&new));
}

/// What is wrong with a schema beside what was released of it.
fn fault_of(fresh: &str, changelog: &str, released: Option<&str>) -> Option<&'static str> {
    let is_released = changelog.lines().any(|line| {
        let version = line.strip_prefix("## [").unwrap_or_default();
        version.starts_with(|first: char| first.is_ascii_digit())
    });
    let digest = const_hex::encode(Sha256::digest(parts(fresh).join(",")));
    match (is_released, released) {
        (false, None) => None,
        (true, Some(released)) if released == digest => None,
        (true, Some(_)) => Some(
            "schema.sql was changed after a release, whose files exist: write a migration into \
             store/migrate.rs, keep the released text beside this test as the one that upgrades start from, \
             and put the digest of the new text here with the next release",
        ),
        (true, None) => Some(
            "there is a release: keep its schema.sql beside this test, and put its digest here, so that \
             nobody changes the shape of files that exist",
        ),
        (false, Some(_)) => Some("there is a digest of a release that CHANGELOG.md does not know"),
    }
}

#[test]
fn a_released_schema_is_changed_by_a_migration_alone() {
    assert_eq!(fault_of(SCHEMA.fresh, CHANGELOG, RELEASED), None);
    // The same of a made-up release: changed words of comments are nothing, a changed column is.
    let release = "## [Unreleased]\n\n## [1.0.0] - 2027-01-01\n";
    let digest = const_hex::encode(Sha256::digest(parts(MADE_UP.fresh).join(",")));
    let fault = |fresh: &str| fault_of(fresh, release, Some(&digest));
    assert_eq!(fault(MADE_UP.fresh), None);
    assert_eq!(fault(&MADE_UP.fresh.replace("in centimetres", "in cm")), None);
    let changed = fault(&MADE_UP.fresh.replace("width INTEGER", "width TEXT"));
    assert!(changed.unwrap().contains("write a migration"));
    let unpinned = fault_of(MADE_UP.fresh, release, None);
    assert!(unpinned.unwrap().contains("put its digest here"));
}

#[test]
fn an_upgraded_file_has_the_shape_of_a_new_one() {
    upgraded_equals_fresh(&SCHEMA, VERSION_1);
    upgraded_equals_fresh(&MADE_UP, MADE_UP_1);
}

#[test]
fn the_comparison_sees_a_difference() {
    let other = Schema {
        fresh: "CREATE TABLE shelves (id INTEGER PRIMARY KEY, room TEXT NOT NULL DEFAULT '') STRICT;",
        migrations: &[],
    };
    let looser = Schema {
        fresh: "CREATE TABLE shelves (id INTEGER PRIMARY KEY, room TEXT DEFAULT '') STRICT;",
        migrations: &[],
    };
    assert_ne!(shape(&fresh(&other)), shape(&fresh(&looser)));
    assert_eq!(
        shape(&fresh(&other)),
        shape(&released(&other.fresh.replace("room", "  room")))
    );
}

#[test]
fn an_upgrade_keeps_the_rows_and_the_foreign_keys() {
    let mut conn = released(MADE_UP_1);
    conn.execute_batch("INSERT INTO shelves (id) VALUES (7); INSERT INTO books (shelf) VALUES (7)")
        .unwrap();
    MADE_UP.upgrade(&mut conn, 1).unwrap();
    let shelf: i64 = conn
        .query_row(
            "SELECT s.id FROM books b JOIN shelves s ON s.id = b.shelf",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(shelf, 7);
    assert!(conn.execute("INSERT INTO books (shelf) VALUES (8)", []).is_err());
}

#[test]
fn an_upgrade_that_fails_leaves_the_version_before_it() {
    let broken = |last: &'static str| Schema {
        fresh: "",
        migrations: Box::leak(Box::new([MADE_UP.migrations[0], last])),
    };
    for last in [
        "CREATE TABLE lamps (id INTEGER PRIMARY KEY) STRICT; INSERT INTO nowhere VALUES (1);",
        // Would leave a book without its shelf.
        "CREATE TABLE lamps (id INTEGER PRIMARY KEY) STRICT; DELETE FROM shelves;",
    ] {
        let mut conn = released(MADE_UP_1);
        conn.execute_batch("INSERT INTO shelves (id) VALUES (7); INSERT INTO books (shelf) VALUES (7)")
            .unwrap();
        assert!(broken(last).upgrade(&mut conn, 1).is_err());
        assert_eq!(identify(&conn).unwrap(), Some(Found::Version(2)));
        assert!(conn.prepare("SELECT id FROM lamps").is_err());
        assert!(
            conn.prepare("SELECT width FROM shelves WHERE id = 7")
                .unwrap()
                .exists([])
                .unwrap()
        );
        // The next program, with the fault mended, goes on from there.
        MADE_UP.upgrade(&mut conn, 2).unwrap();
        assert_eq!(identify(&conn).unwrap(), Some(Found::Version(3)));
    }
}

#[test]
fn versions_that_never_were_are_refused() {
    let mut conn = released(MADE_UP_1);
    assert!(matches!(
        MADE_UP.upgrade(&mut conn, 4),
        Err(StoreError::SchemaTooNew { file: 4, ours: 3 })
    ));
    for version in [0, -1] {
        assert!(matches!(
            MADE_UP.upgrade(&mut conn, version),
            Err(StoreError::Corrupt(_))
        ));
    }
}
