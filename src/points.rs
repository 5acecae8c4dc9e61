//! Named points of the code: between two lines a simulator may stop the world, or let a file fail. With the
//! feature `points` a hook of the thread is asked at each; without it both functions are empty.

use std::io;

#[cfg(feature = "points")]
type Hook = Box<dyn FnMut(&'static str) -> Option<io::Error>>;

#[cfg(feature = "points")]
thread_local! {
    static HOOK: std::cell::RefCell<Option<Hook>> = const { std::cell::RefCell::new(None) };
}

/// What this thread asks at each point from now on.
#[cfg(feature = "points")]
pub fn hook(hook: Option<Hook>) {
    HOOK.with(|slot| *slot.borrow_mut() = hook);
}

#[cfg(feature = "points")]
fn ask(name: &'static str) -> Option<io::Error> {
    HOOK.with(|slot| slot.try_borrow_mut().ok()?.as_mut()?(name))
}

/// The thread passes the point `name`.
#[cfg(feature = "points")]
pub fn pass(name: &'static str) {
    let _ = ask(name);
}

/// The thread passes the point `name`, where a file may fail.
///
/// # Errors
/// What the hook says.
#[cfg(feature = "points")]
pub fn io(name: &'static str) -> io::Result<()> {
    ask(name).map_or(Ok(()), Err)
}

/// The thread passes the point `name`.
#[cfg(not(feature = "points"))]
#[inline(always)]
pub fn pass(_name: &'static str) {}

/// The thread passes the point `name`, where a file may fail.
///
/// # Errors
/// None here.
#[cfg(not(feature = "points"))]
#[inline(always)]
pub fn io(_name: &'static str) -> io::Result<()> {
    Ok(())
}
