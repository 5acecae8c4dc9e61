//! Files of a watched folder that somebody beside the daemon opens, where this process opens its databases
//! alone. Others use the file as the daemon does, and share the log's index with it. Observers only look:
//! they keep nobody from anything, so they may stay while daemons die and files are replaced below them.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use crate::file::{self, index_part, real};
use crate::names::reopen;
use crate::state;

/// How an observer's file was opened, to open it again.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) vfs: *mut sqlite3_vfs,
    /// SQLite keeps it as long as the file is open.
    pub(crate) name: ffi::sqlite3_filename,
    pub(crate) flags: c_int,
    /// Files that had their names then may be others by now.
    pub(crate) epoch: u64,
    /// There was none when it was opened again.
    pub(crate) is_gone: bool,
}

/// Of somebody who uses the database beside the daemon.
pub(crate) static USER: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(file::close_beside),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Of an observer.
pub(crate) static OBSERVER: sqlite3_io_methods = sqlite3_io_methods {
    xRead: Some(look),
    xWrite: Some(refuse_write),
    xTruncate: Some(refuse_truncate),
    xSync: Some(nothing),
    xFileSize: Some(look_size),
    xLock: Some(look_lock),
    xUnlock: Some(nothing),
    xCheckReservedLock: Some(look_reserved_lock),
    ..USER
};

/// Calls a method of the operating system's file.
macro_rules! pass {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real = real($file);
        // SAFETY: as in `file`: the file is open, and the arguments are SQLite's for this call.
        unsafe {
            match (*(*real).pMethods).$method {
                Some(method) => method(real $(, $argument)*),
                None => unreachable!("the operating system's files have it"),
            }
        }
    }};
}

unsafe extern "C" fn read(f: *mut sqlite3_file, into: *mut c_void, n: c_int, at: sqlite3_int64) -> c_int {
    pass!(f, xRead, into, n, at)
}

unsafe extern "C" fn write(f: *mut sqlite3_file, from: *const c_void, n: c_int, at: sqlite3_int64) -> c_int {
    pass!(f, xWrite, from, n, at)
}

unsafe extern "C" fn truncate(f: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    pass!(f, xTruncate, size)
}

unsafe extern "C" fn sync(f: *mut sqlite3_file, flags: c_int) -> c_int {
    pass!(f, xSync, flags)
}

unsafe extern "C" fn file_size(f: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    pass!(f, xFileSize, size)
}

unsafe extern "C" fn lock(f: *mut sqlite3_file, level: c_int) -> c_int {
    pass!(f, xLock, level)
}

unsafe extern "C" fn unlock(f: *mut sqlite3_file, level: c_int) -> c_int {
    pass!(f, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(f: *mut sqlite3_file, is_held: *mut c_int) -> c_int {
    pass!(f, xCheckReservedLock, is_held)
}

unsafe extern "C" fn file_control(f: *mut sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    pass!(f, xFileControl, what, argument)
}

unsafe extern "C" fn sector_size(f: *mut sqlite3_file) -> c_int {
    pass!(f, xSectorSize)
}

unsafe extern "C" fn device_characteristics(f: *mut sqlite3_file) -> c_int {
    pass!(f, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    f: *mut sqlite3_file,
    page: c_int,
    _bytes: c_int,
    extends: c_int,
    into: *mut *mut c_void,
) -> c_int {
    let at = index_part(f).page(page as usize, extends != 0);
    // SAFETY: SQLite gives us room for the answer.
    unsafe { into.write(at) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(f: *mut sqlite3_file, first: c_int, locks: c_int, flags: c_int) -> c_int {
    index_part(f).lock(first, locks, flags)
}

unsafe extern "C" fn shm_barrier(_file: *mut sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(f: *mut sqlite3_file, _deletes: c_int) -> c_int {
    file::leave_index(f);
    ffi::SQLITE_OK
}

/// Opens the file again where another may have its name by now. False: there is none.
fn is_there(f: *mut sqlite3_file) -> bool {
    let Some(opened) = file::opened_beside(f) else {
        return true;
    };
    let epoch = state::try_with(|world| world.epoch).unwrap_or(opened.epoch);
    if epoch != opened.epoch {
        if !opened.is_gone {
            pass!(f, xClose);
        }
        let flags = opened.flags & !ffi::SQLITE_OPEN_CREATE;
        opened.is_gone = reopen(opened.vfs, opened.name, real(f), flags) != ffi::SQLITE_OK;
        opened.epoch = epoch;
    }
    !opened.is_gone
}

unsafe extern "C" fn look(f: *mut sqlite3_file, into: *mut c_void, n: c_int, at: sqlite3_int64) -> c_int {
    if is_there(f) {
        return pass!(f, xRead, into, n, at);
    }
    // SAFETY: there is room for so many bytes; SQLite wants zeros where there is nothing.
    unsafe { into.cast::<u8>().write_bytes(0, n as usize) };
    ffi::SQLITE_IOERR_SHORT_READ
}

unsafe extern "C" fn look_size(f: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    if is_there(f) {
        return pass!(f, xFileSize, size);
    }
    // SAFETY: SQLite gives us room for the answer.
    unsafe { size.write(0) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn refuse_write(
    _file: *mut sqlite3_file,
    _from: *const c_void,
    _amount: c_int,
    _at: sqlite3_int64,
) -> c_int {
    ffi::SQLITE_READONLY
}

unsafe extern "C" fn refuse_truncate(_file: *mut sqlite3_file, _size: sqlite3_int64) -> c_int {
    ffi::SQLITE_READONLY
}

/// It has nothing to sync, and no lock to let go of.
unsafe extern "C" fn nothing(_file: *mut sqlite3_file, _what: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// It never has the file alone: whoever has folds the log in and removes it.
unsafe extern "C" fn look_lock(_file: *mut sqlite3_file, level: c_int) -> c_int {
    match level > ffi::SQLITE_LOCK_SHARED {
        true => ffi::SQLITE_BUSY,
        false => ffi::SQLITE_OK,
    }
}

unsafe extern "C" fn look_reserved_lock(_file: *mut sqlite3_file, is_held: *mut c_int) -> c_int {
    // SAFETY: SQLite gives us room for the answer.
    unsafe { is_held.write(0) };
    ffi::SQLITE_OK
}
