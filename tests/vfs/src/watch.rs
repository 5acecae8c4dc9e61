//! What SQLite itself tells of a connection to a watched file: statements, changed rows, commits.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use rusqlite::ffi::{self, sqlite3, sqlite3_int64};

use crate::names::watched;
use crate::state::{self, RowChange, RowOp, meet, try_with};
use crate::{Op, is_dead};

pub(crate) fn register() {
    // SAFETY: the function lives as long as the process.
    let registered = unsafe { ffi::sqlite3_auto_extension(Some(opened)) };
    assert!(registered == ffi::SQLITE_OK, "{registered}");
}

unsafe extern "C" fn opened(
    db: *mut sqlite3,
    _error: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite gives us a connection that is being opened; its file is known by now.
    let file = unsafe { ffi::sqlite3_db_filename(db, c"main".as_ptr()) };
    let Some((_, id)) = watched(file) else {
        return ffi::SQLITE_OK;
    };
    // The number of the world is all that they need.
    let world = id as usize as *mut c_void;
    // SAFETY: the functions live as long as the process, and take the number for no address.
    unsafe {
        ffi::sqlite3_trace_v2(db, ffi::SQLITE_TRACE_STMT, Some(statement), world);
        ffi::sqlite3_update_hook(db, Some(changed), world);
        ffi::sqlite3_commit_hook(db, Some(committing), world);
        ffi::sqlite3_rollback_hook(db, Some(rolled_back), world);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn statement(
    _what: c_uint,
    world: *mut c_void,
    statement: *mut c_void,
    _text: *mut c_void,
) -> c_int {
    let was_dead = try_with(|seed| seed.is_dead);
    meet(Op::Statement, world as usize as u64);
    if was_dead == Some(false) && is_dead() {
        // SAFETY: SQLite gives us the statement that begins; interrupting is allowed from anywhere.
        unsafe { ffi::sqlite3_interrupt(ffi::sqlite3_db_handle(statement.cast())) };
    }
    0
}

unsafe extern "C" fn changed(
    world: *mut c_void,
    op: c_int,
    _schema: *const c_char,
    table: *const c_char,
    rowid: sqlite3_int64,
) {
    // SAFETY: SQLite's names end in a zero.
    let table = unsafe { CStr::from_ptr(table) }.to_string_lossy();
    let op = match op {
        ffi::SQLITE_INSERT => RowOp::Insert,
        ffi::SQLITE_UPDATE => RowOp::Update,
        _ => RowOp::Delete,
    };
    let table = state::table(&table);
    try_with(|seed| {
        if seed.id == world as usize as u64 {
            seed.rows_open.push(RowChange { table, op, rowid });
        }
    });
}

unsafe extern "C" fn committing(world: *mut c_void) -> c_int {
    meet(Op::Commit, world as usize as u64);
    try_with(|seed| {
        let mut rows = std::mem::take(&mut seed.rows_open);
        if !seed.is_dead && seed.id == world as usize as u64 {
            seed.rows.append(&mut rows);
        }
    });
    0
}

unsafe extern "C" fn rolled_back(_world: *mut c_void) {
    try_with(|seed| seed.rows_open.clear());
}
