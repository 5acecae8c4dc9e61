//! The index of a log (SQLite's shared memory) in plain memory, with its locks, for processes that open
//! their databases alone. It is empty again once the last user has let go of it, as SQLite has it where the
//! last process ends. Observers (see `beside`) look into it without using it.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use rusqlite::ffi;

/// SQLite asks for pieces of this size.
const PAGE_BYTES: usize = 32 << 10;

/// So many locks it has.
const LOCKS: usize = 8;

/// A piece, in words: it holds numbers that are read at once.
type Page = Box<[u64; PAGE_BYTES / 8]>;

#[derive(Default)]
struct Inner {
    pages: Vec<Page>,
    /// How many hold each lock together with others.
    shared: [u32; LOCKS],
    /// Whether somebody holds it alone.
    alone: [bool; LOCKS],
    users: usize,
}

/// The index of one log.
#[derive(Clone, Default)]
pub(crate) struct Index(Rc<RefCell<Inner>>);

/// A handle's part in it.
pub(crate) struct Part {
    index: Index,
    is_user: bool,
    /// The locks that it holds, as bits.
    shared: u8,
    alone: u8,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an index of {} pieces", self.0.borrow().pages.len())
    }
}

impl Index {
    /// Begins to use it, or to look into it.
    pub(crate) fn part(&self, is_user: bool) -> Part {
        self.0.borrow_mut().users += usize::from(is_user);
        Part {
            index: self.clone(),
            is_user,
            shared: 0,
            alone: 0,
        }
    }
}

impl Part {
    /// Where a piece of it is; null where there is none yet.
    pub(crate) fn page(&self, number: usize, extends: bool) -> *mut c_void {
        let mut inner = self.index.0.borrow_mut();
        while extends && inner.pages.len() <= number {
            inner.pages.push(Box::new([0; PAGE_BYTES / 8]));
        }
        match inner.pages.get_mut(number) {
            Some(page) => page.as_mut_ptr().cast(),
            None => std::ptr::null_mut(),
        }
    }

    /// Takes or lets go of locks, as SQLite's flags say: all of them or none.
    pub(crate) fn lock(&mut self, first: c_int, locks: c_int, flags: c_int) -> c_int {
        let range = first as usize..(first + locks) as usize;
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            self.unlock(range);
            return ffi::SQLITE_OK;
        }
        let mut inner = self.index.0.borrow_mut();
        let is_alone = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let is_mine = |bits: u8, lock: usize| bits >> lock & 1 == 1;
        let is_taken = |lock: usize| {
            let by_others = inner.shared[lock] > u32::from(is_mine(self.shared, lock));
            (inner.alone[lock] && !is_mine(self.alone, lock)) || (is_alone && by_others)
        };
        if range.clone().any(is_taken) {
            return ffi::SQLITE_BUSY;
        }
        for lock in range {
            match is_alone {
                true => {
                    inner.alone[lock] = true;
                    self.alone |= 1 << lock;
                }
                false => {
                    inner.shared[lock] += u32::from(!is_mine(self.shared, lock));
                    self.shared |= 1 << lock;
                }
            }
        }
        ffi::SQLITE_OK
    }

    fn unlock(&mut self, range: std::ops::Range<usize>) {
        let mut inner = self.index.0.borrow_mut();
        for lock in range {
            if self.shared >> lock & 1 == 1 {
                inner.shared[lock] -= 1;
            }
            if self.alone >> lock & 1 == 1 {
                inner.alone[lock] = false;
            }
            self.shared &= !(1 << lock);
            self.alone &= !(1 << lock);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.unlock(0..LOCKS);
        let mut inner = self.index.0.borrow_mut();
        inner.users -= usize::from(self.is_user);
        if self.is_user && inner.users == 0 {
            // The memory stays: an observer may know where it is.
            inner.pages.iter_mut().for_each(|page| page.fill(0));
        }
    }
}
