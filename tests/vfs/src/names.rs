//! The methods of the file system itself: files by their names, time and chance. All but those of a watched
//! folder pass straight to the operating system's.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_vfs};

use crate::beside::Opened;
use crate::file::{HEAD, made, made_beside, real, size_of_real};
use crate::state::{self, Verdict};
use crate::watch;
use crate::{Op, Users};

/// The day of which SQLite believes that it is today, as a Julian day in milliseconds.
const TODAY: sqlite3_int64 = 212_600_000_000_000;

pub(crate) fn register(users: Users) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let name = match users {
            Users::One => {
                IS_ALONE.store(true, Ordering::Relaxed);
                spare_memory_counts();
                c"unix-excl"
            }
            Users::Many => c"unix",
        };
        // SAFETY: SQLite hands out its own file system, which lives as long as the process.
        let unix = unsafe { ffi::sqlite3_vfs_find(name.as_ptr()) };
        assert!(!unix.is_null(), "SQLite has a file system of its own here");
        // SAFETY: it is not null, and nobody changes it.
        let ours = sqlite3_vfs {
            iVersion: 2,
            zName: c"sim".as_ptr(),
            pNext: std::ptr::null_mut(),
            pAppData: unix.cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTimeInt64: Some(now),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xGetLastError: Some(last_error),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
            ..unsafe { *unix }
        };
        let mut ours = ours;
        ours.szOsFile += HEAD as c_int;
        // SAFETY: it lives for ever, as SQLite demands.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1) };
        assert!(registered == ffi::SQLITE_OK, "{registered}");
        watch::register();
    });
}

/// Whether this process alone opens databases.
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// SQLite counts its memory under a lock that all threads share, and nobody here asks for the count.
fn spare_memory_counts() {
    // SAFETY: no connection is open yet. Once SQLite has begun its work, it refuses, which harms nobody.
    unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) };
}

/// The operating system's file system.
fn unix(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: SQLite gives us what `register` made.
    unsafe { (*vfs).pAppData.cast() }
}

/// Calls a method of the operating system's file system.
macro_rules! pass {
    ($vfs:expr, $method:ident $(, $argument:expr)*) => {{
        let unix = unix($vfs);
        // SAFETY: SQLite's own file system has them all; the arguments are SQLite's own.
        unsafe {
            match (*unix).$method {
                Some(method) => method(unix $(, $argument)*),
                None => unreachable!("the operating system has it"),
            }
        }
    }};
}

/// Opens the operating system's file. The locks of a handle that may only read are the operating system's in
/// any case, so whoever is alone has none of those; SQLite still hears that it may only read.
fn open_real(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let is_reading = flags & ffi::SQLITE_OPEN_READONLY != 0 && flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
    if !is_reading || !is_alone() {
        return pass!(vfs, xOpen, name, file, flags, flags_out);
    }
    let both = flags & !ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_READWRITE;
    let opened = pass!(vfs, xOpen, name, file, both, flags_out);
    if !flags_out.is_null() {
        // SAFETY: SQLite gives us room for the answer.
        unsafe { flags_out.write(flags) };
    }
    opened
}

/// Whether this process alone opens databases.
pub(crate) fn is_alone() -> bool {
    IS_ALONE.load(Ordering::Relaxed)
}

/// Opens an observer's file once more, into the same place.
pub(crate) fn reopen(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
) -> c_int {
    open_real(vfs, name, file, flags, std::ptr::null_mut())
}

/// Opens a file that is not the watched daemon's. A database in the watched folder shares the log's index
/// with the daemon all the same.
fn open_beside(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let number = path(name)
        .filter(|_| is_alone() && state::is_aside())
        .and_then(|path| {
            state::try_with(|world| {
                world
                    .watches(&path)
                    .then(|| (world.id, world.file(&path), world.epoch))
            })
            .flatten()
        });
    let is_log = flags & ffi::SQLITE_OPEN_WAL != 0 && state::is_observing();
    let Some((id, number, epoch)) = number.filter(|_| is_log || flags & ffi::SQLITE_OPEN_MAIN_DB != 0) else {
        return open_real(vfs, name, file, flags, flags_out);
    };
    // SAFETY: SQLite gives us room for a file; without methods there is nothing to close.
    unsafe { (*file).pMethods = std::ptr::null() };
    let opened = open_real(vfs, name, real(file), flags, flags_out);
    if opened == ffi::SQLITE_OK {
        let observed = Opened {
            vfs,
            name,
            flags,
            epoch,
            is_gone: false,
        };
        made_beside(file, id, number, state::is_observing().then_some(observed));
    }
    opened
}

fn path(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end in a zero.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}

/// A file of this thread's world, with the world's number.
pub(crate) fn watched(name: *const c_char) -> Option<(PathBuf, u64)> {
    if state::is_aside() {
        return None;
    }
    let path = path(name)?;
    state::try_with(|world| world.watches(&path).then_some(world.id))
        .flatten()
        .map(|id| (path, id))
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let Some((path, id)) = watched(name) else {
        return open_beside(vfs, name, file, flags, flags_out);
    };
    // SAFETY: SQLite gives us room for a file; without methods there is nothing to close.
    unsafe { (*file).pMethods = std::ptr::null() };
    state::with(|world| {
        if world.is_dead && world.open == 0 {
            // Nothing of the dead process is left: this is another one.
            world.is_dead = false;
        }
    });
    if let Verdict::Refuse(code) = state::meet(Op::Open, id) {
        return code;
    }
    let was_there = path.exists();
    let opened = open_real(vfs, name, real(file), flags, flags_out);
    if opened == ffi::SQLITE_OK {
        let size = size_of_real(file);
        let number = state::with(|world| world.opened(&path, !was_there, size));
        made(file, id, number, owes_folder(flags));
    }
    opened
}

/// As SQLite's own file system does it: whoever opens a journal or a log and may make it syncs the folder
/// after its first sync, whether it was there or not. With it goes whatever was removed before.
fn owes_folder(flags: c_int) -> bool {
    let logs = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
    flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & logs != 0
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, syncs_folder: c_int) -> c_int {
    let Some((path, id)) = watched(name) else {
        return pass!(vfs, xDelete, name, syncs_folder);
    };
    if let Verdict::Refuse(code) = state::meet(Op::Delete, id) {
        return code;
    }
    let content = std::fs::read(&path);
    let deleted = pass!(vfs, xDelete, name, 0);
    if let (ffi::SQLITE_OK, Ok(content)) = (deleted, content) {
        state::with(|world| {
            world.deleted(&path, content);
            if syncs_folder != 0 {
                world.folder_synced();
            }
        });
    }
    deleted
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    is_so: *mut c_int,
) -> c_int {
    pass!(vfs, xAccess, name, flags, is_so)
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    into: *mut c_char,
) -> c_int {
    pass!(vfs, xFullPathname, name, room, into)
}

/// The same in each run. SQLite asks once a process, and makes more of it.
unsafe extern "C" fn randomness(_vfs: *mut sqlite3_vfs, bytes: c_int, into: *mut c_char) -> c_int {
    let start = state::try_with(|world| {
        world.random += 1;
        world.random
    });
    let mut number = start.unwrap_or_default();
    for at in 0..bytes {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // SAFETY: there is room for so many bytes.
        unsafe { into.add(at as usize).write((number >> 56) as c_char) };
    }
    bytes
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, micros: c_int) -> c_int {
    match state::try_with(|world| world.waits += 1) {
        Some(()) => micros,
        None => pass!(vfs, xSleep, micros),
    }
}

unsafe extern "C" fn now(vfs: *mut sqlite3_vfs, millis: *mut sqlite3_int64) -> c_int {
    match state::try_with(|_| ()) {
        Some(()) => {
            // SAFETY: SQLite gives us room for the answer.
            unsafe { millis.write(TODAY) };
            ffi::SQLITE_OK
        }
        None => pass!(vfs, xCurrentTimeInt64, millis),
    }
}

unsafe extern "C" fn last_error(vfs: *mut sqlite3_vfs, room: c_int, into: *mut c_char) -> c_int {
    pass!(vfs, xGetLastError, room, into)
}
