//! The methods of an open file: each asks `state` what becomes of it, and passes on to the operating
//! system's file, which lies behind ours in the same piece of memory.

use std::ffi::{c_int, c_void};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

use crate::beside::{self, Opened};
use crate::index::{Index, Part};
use crate::names::is_alone;
use crate::state::{self, Verdict};
use crate::{Hit, Op};

/// What SQLite allocates for a file of ours begins with this.
#[repr(C)]
struct Ours {
    methods: *const sqlite3_io_methods,
    /// The world that it was opened in.
    seed: u64,
    /// Its file's number there.
    number: usize,
    /// Its first sync syncs the folder too.
    owes_folder: bool,
    /// Its part in the log's index, once that was asked for.
    part: Option<Part>,
    is_observer: bool,
    /// Of observers.
    opened: Option<Opened>,
}

/// The operating system's file begins here.
pub(crate) const HEAD: usize = size_of::<Ours>().next_multiple_of(16);

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // The second version: no maps of files into memory, which could not be watched.
    iVersion: 2,
    xClose: Some(close),
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

/// The operating system's file.
pub(crate) fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: SQLite allocates `szOsFile` bytes for each file, which is HEAD and what the other needs.
    unsafe { file.byte_add(HEAD) }
}

/// Calls a method of the operating system's file.
macro_rules! pass {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real = real($file);
        // SAFETY: the file is open, so its methods are those of SQLite's own file system, which has them
        // all; the arguments are the ones that SQLite gave us for this call.
        unsafe {
            match (*(*real).pMethods).$method {
                Some(method) => method(real $(, $argument)*),
                None => unreachable!("the operating system's files have it"),
            }
        }
    }};
}

fn ours(file: *mut sqlite3_file) -> (u64, usize) {
    let ours = file.cast::<Ours>();
    // SAFETY: `made` filled it in before SQLite saw our methods.
    unsafe { ((*ours).seed, (*ours).number) }
}

/// Whether this sync is the one that syncs the folder too.
fn paid_folder(file: *mut sqlite3_file) -> bool {
    let ours = file.cast::<Ours>();
    // SAFETY: as in `ours`; SQLite uses a file from one thread at a time.
    unsafe { std::mem::replace(&mut (*ours).owes_folder, false) }
}

/// An opened file becomes ours.
pub(crate) fn made(file: *mut sqlite3_file, seed: u64, number: usize, owes_folder: bool) {
    let made = Ours {
        methods: &raw const METHODS,
        seed,
        number,
        owes_folder,
        part: None,
        is_observer: false,
        opened: None,
    };
    // SAFETY: as in `real`; SQLite reads nothing there but the methods.
    unsafe { file.cast::<Ours>().write(made) };
}

/// An opened file becomes that of somebody beside the daemon, of an observer where it says how it was opened.
pub(crate) fn made_beside(file: *mut sqlite3_file, seed: u64, number: usize, opened: Option<Opened>) {
    let made = Ours {
        methods: match opened {
            Some(_) => &raw const beside::OBSERVER,
            None => &raw const beside::USER,
        },
        seed,
        number,
        owes_folder: false,
        part: None,
        is_observer: opened.is_some(),
        opened,
    };
    // SAFETY: as in `made`.
    unsafe { file.cast::<Ours>().write(made) };
}

/// How an observer's file was opened.
pub(crate) fn opened_beside<'a>(file: *mut sqlite3_file) -> Option<&'a mut Opened> {
    let ours = file.cast::<Ours>();
    // SAFETY: as in `ours`; SQLite uses a file from one thread at a time, and it is open.
    unsafe { (*ours).opened.as_mut() }
}

/// The handle's part in the index of its log.
pub(crate) fn index_part<'a>(file: *mut sqlite3_file) -> &'a mut Part {
    let ours = file.cast::<Ours>();
    // SAFETY: as in `opened_beside`.
    let (part, is_user) = unsafe { (&mut (*ours).part, !(*ours).is_observer) };
    part.get_or_insert_with(|| {
        let index = in_world(file, |world, number| world.files[number].index.clone());
        // Without its world it is nobody's any more.
        index.unwrap_or_else(Index::default).part(is_user)
    })
}

/// The handle needs the index no more.
pub(crate) fn leave_index(file: *mut sqlite3_file) {
    let ours = file.cast::<Ours>();
    // SAFETY: as in `opened_beside`.
    unsafe { (*ours).part = None };
}

/// What is ours of a file goes with it.
fn dropped(file: *mut sqlite3_file) {
    // SAFETY: it was written when the file was opened, and SQLite forgets the file now.
    unsafe { std::ptr::drop_in_place(file.cast::<Ours>()) };
}

/// Closes a file of somebody beside the daemon.
pub(crate) unsafe extern "C" fn close_beside(file: *mut sqlite3_file) -> c_int {
    let is_gone = opened_beside(file).is_some_and(|opened| opened.is_gone);
    dropped(file);
    match is_gone {
        true => ffi::SQLITE_OK,
        false => pass!(file, xClose),
    }
}

/// The size of a file that is about to become ours.
pub(crate) fn size_of_real(file: *mut sqlite3_file) -> u64 {
    let mut size: sqlite3_int64 = 0;
    match pass!(file, xFileSize, &raw mut size) {
        ffi::SQLITE_OK => size.max(0) as u64,
        _ => 0,
    }
}

/// In the world of this handle, if that is this thread's.
fn in_world<T>(file: *mut sqlite3_file, work: impl FnOnce(&mut state::Seed, usize) -> T) -> Option<T> {
    let (seed, number) = ours(file);
    state::try_with(|world| (world.id == seed).then(|| work(world, number))).flatten()
}

/// Bytes of the file as they are, without being counted.
fn peek(file: *mut sqlite3_file, from: u64, until: u64) -> Vec<u8> {
    let mut bytes = vec![0; until.saturating_sub(from) as usize];
    if !bytes.is_empty() {
        let (into, amount) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len() as c_int);
        let read = pass!(file, xRead, into, amount, from as sqlite3_int64);
        assert!(
            read == ffi::SQLITE_OK,
            "what is to be overwritten can be read: {read}"
        );
    }
    bytes
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    in_world(file, |world, _| world.open -= 1);
    dropped(file);
    pass!(file, xClose)
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    into: *mut c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    match state::meet(Op::Read, ours(file).0) {
        Verdict::Go | Verdict::Cut(_) => pass!(file, xRead, into, amount, offset),
        Verdict::Refuse(code) => code,
        Verdict::Short => {
            // In two parts. SQLite's own file system asks for the rest until there is none, and so do we: to
            // SQLite itself a short read is the end of the file, and what is missing reads as zeros.
            let half = amount / 2;
            match pass!(file, xRead, into, half, offset) {
                ffi::SQLITE_OK => {
                    // SAFETY: `into` has room for `amount` bytes.
                    let rest = unsafe { into.byte_add(half as usize) };
                    pass!(
                        file,
                        xRead,
                        rest,
                        amount - half,
                        offset + sqlite3_int64::from(half)
                    )
                }
                code => code,
            }
        }
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let (amount, code) = match state::meet(Op::Write, ours(file).0) {
        Verdict::Go => (amount, ffi::SQLITE_OK),
        Verdict::Cut(bytes) => (amount.min(bytes as c_int), ffi::SQLITE_IOERR_WRITE),
        Verdict::Short => (amount / 2, ffi::SQLITE_IOERR_WRITE),
        Verdict::Refuse(code) => {
            in_world(file, |world, number| world.write_failed(number, code));
            return code;
        }
    };
    let (start, end) = (offset as u64, offset as u64 + amount as u64);
    let room = in_world(file, |world, number| {
        let size = world.files[number].size;
        (!world.is_full || end <= size).then_some(size)
    });
    let Some(Some(size)) = room else {
        state::tell(Op::Write, Hit::Full);
        return ffi::SQLITE_FULL;
    };
    let old = peek(file, start.min(size), end.min(size));
    let wrote = pass!(file, xWrite, from, amount, offset);
    if wrote != ffi::SQLITE_OK {
        return wrote;
    }
    in_world(file, |world, number| {
        world.wrote(number, start, amount as usize, old);
        world.write_failed(number, code);
    });
    code
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    if let Verdict::Refuse(code) = state::meet(Op::Truncate, ours(file).0) {
        return code;
    }
    let before = in_world(file, |world, number| world.files[number].size).unwrap_or(0);
    let tail = peek(file, (size as u64).min(before), before);
    let cut = pass!(file, xTruncate, size);
    if cut == ffi::SQLITE_OK {
        in_world(file, |world, number| world.truncated(number, size as u64, tail));
    }
    cut
}

/// Nothing is really synced: whoever loses power here is the simulated disk.
unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    let code = match state::meet(Op::Sync, ours(file).0) {
        Verdict::Refuse(code) => code,
        Verdict::Go | Verdict::Cut(_) | Verdict::Short => ffi::SQLITE_OK,
    };
    in_world(file, |world, number| match code {
        ffi::SQLITE_OK => {
            world.synced(number);
            if paid_folder(file) {
                world.folder_synced();
            }
        }
        _ if world.is_dead => {}
        _ => world.sync_failed(number),
    });
    code
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    pass!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    match in_world(file, |world, _| world.is_dead) {
        Some(false) => pass!(file, xLock, level),
        Some(true) | None => ffi::SQLITE_IOERR,
    }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    pass!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, is_held: *mut c_int) -> c_int {
    pass!(file, xCheckReservedLock, is_held)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    match what {
        // Both would let a file grow past us.
        ffi::SQLITE_FCNTL_CHUNK_SIZE | ffi::SQLITE_FCNTL_SIZE_HINT => ffi::SQLITE_OK,
        _ => pass!(file, xFileControl, what, argument),
    }
}

unsafe extern "C" fn sector_size(_file: *mut sqlite3_file) -> c_int {
    512
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // Bytes that are not written keep their values, and overwriting some leaves their neighbours alone: no
    // more is promised, so that SQLite relies on no more.
    pass!(file, xDeviceCharacteristics) & ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    bytes: c_int,
    extends: c_int,
    into: *mut *mut c_void,
) -> c_int {
    match state::meet(Op::ShmMap, ours(file).0) {
        Verdict::Refuse(code) => code,
        Verdict::Go | Verdict::Cut(_) | Verdict::Short if is_alone() => {
            let at = index_part(file).page(page as usize, extends != 0);
            // SAFETY: SQLite gives us room for the answer.
            unsafe { into.write(at) };
            ffi::SQLITE_OK
        }
        Verdict::Go | Verdict::Cut(_) | Verdict::Short => {
            pass!(file, xShmMap, page, bytes, extends, into)
        }
    }
}

/// The first lock on the log's index is the writer's.
const WRITE_LOCK: c_int = 0;

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, first: c_int, locks: c_int, flags: c_int) -> c_int {
    if flags & ffi::SQLITE_SHM_LOCK != 0 {
        if let Verdict::Refuse(code) = state::meet(Op::ShmLock, ours(file).0) {
            return code;
        }
        let is_writer = first == WRITE_LOCK && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let is_held = |world: &mut state::Seed, _| {
            let is_held = world.busy_left > 0;
            world.busy_left = world.busy_left.saturating_sub(1);
            is_held
        };
        if is_writer && in_world(file, is_held) == Some(true) {
            state::tell(Op::ShmLock, Hit::Busy);
            return ffi::SQLITE_BUSY;
        }
    }
    match is_alone() {
        true => index_part(file).lock(first, locks, flags),
        false => pass!(file, xShmLock, first, locks, flags),
    }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    match is_alone() {
        true => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
        false => pass!(file, xShmBarrier),
    }
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, deletes: c_int) -> c_int {
    if is_alone() {
        leave_index(file);
        return ffi::SQLITE_OK;
    }
    let is_alive = in_world(file, |world, _| !world.is_dead).unwrap_or(false);
    pass!(file, xShmUnmap, if is_alive { deletes } else { 0 })
}
