//! Named points of the code: between two lines a simulator may stop the world, or let a file fail. With the
//! feature `points` a hook of the thread is asked at each, or the environment says at which one the process
//! ends at once (`CREDITD_POINT`); without it both functions are empty. No shipped build has it.

use std::io;

#[cfg(feature = "points")]
type Hook = Box<dyn FnMut(&'static str) -> Option<io::Error>>;

#[cfg(feature = "points")]
thread_local! {
    static HOOK: std::cell::RefCell<Option<Hook>> = const { std::cell::RefCell::new(None) };
}

/// What this thread asks at each point from now on. A hook that passes a point itself is not asked there.
#[cfg(feature = "points")]
pub fn hook(hook: Option<Hook>) {
    HOOK.with(|slot| *slot.borrow_mut() = hook);
}

#[cfg(feature = "points")]
fn ask(name: &'static str) -> Option<io::Error> {
    let is_hooked = |slot: &std::cell::RefCell<Option<Hook>>| match slot.try_borrow_mut() {
        Ok(mut slot) => slot.as_mut().map(|hook| hook(name)),
        Err(_) => Some(None),
    };
    // A thread that ends has no hook any more.
    match HOOK.try_with(is_hooked) {
        Ok(Some(said)) => said,
        Ok(None) | Err(_) => {
            kill::pass(name);
            None
        }
    }
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

/// Ends the process at a point, as `kill -9` does: no destructor runs, nothing is flushed, all threads stop.
#[cfg(feature = "points")]
mod kill {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// `CREDITD_POINT`: a number is that of a point among all that the process passes, `NAME:NUMBER` that
    /// among the points of one name, and `all` writes down every point and ends nothing.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) enum Plan {
        At(u64),
        Named(String, u64),
        All,
    }

    static PLAN: LazyLock<Option<Plan>> = LazyLock::new(|| {
        let text = std::env::var("CREDITD_POINT").ok()?;
        let plan = parse(&text);
        assert!(plan.is_some(), "CREDITD_POINT={text} is no point");
        plan
    });

    static PASSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn parse(text: &str) -> Option<Plan> {
        match text.split_once(':') {
            Some((name, number)) => Some(Plan::Named(name.to_owned(), number.parse().ok()?)),
            None if text == "all" => Some(Plan::All),
            None => Some(Plan::At(text.parse().ok()?)),
        }
    }

    pub(super) fn pass(name: &str) {
        let ends_at = match PLAN.as_ref() {
            None => return,
            Some(Plan::Named(only, _)) if only != name => return,
            Some(Plan::At(number) | Plan::Named(_, number)) => Some(*number),
            Some(Plan::All) => None,
        };
        let number = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
        if ends_at.is_none() {
            note(name, number);
        } else if ends_at == Some(number) {
            note(name, number);
            std::process::abort();
        }
    }

    /// Adds a line to the file that `CREDITD_POINT_FILE` names.
    fn note(name: &str, number: u64) {
        let Some(path) = std::env::var_os("CREDITD_POINT_FILE") else {
            return;
        };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let noted = file.and_then(|mut file| file.write_all(format!("{number} {name}\n").as_bytes()));
        assert!(noted.is_ok(), "CREDITD_POINT_FILE: {noted:?}");
    }
}

#[cfg(all(test, feature = "points"))]
mod tests {
    use super::*;

    #[test]
    fn a_hook_sees_every_point_of_its_thread_and_lets_files_fail() {
        let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let log = seen.clone();
        hook(Some(Box::new(move |name| {
            log.borrow_mut().push(name);
            // Not asked again from within.
            pass("inner");
            (name == "bad").then(|| io::Error::other("no"))
        })));
        pass("bad");
        assert!(io("good").is_ok());
        assert!(io("bad").is_err());
        std::thread::spawn(|| pass("elsewhere")).join().unwrap();
        hook(None);
        assert!(io("bad").is_ok());
        assert_eq!(*seen.borrow(), ["bad", "good", "bad"]);
    }

    #[test]
    fn a_point_is_told_by_number_or_by_name() {
        assert_eq!(kill::parse("17"), Some(kill::Plan::At(17)));
        let third = kill::Plan::Named("commit.after".to_owned(), 3);
        assert_eq!(kill::parse("commit.after:3"), Some(third));
        assert_eq!(kill::parse("all"), Some(kill::Plan::All));
        assert_eq!(kill::parse("commit.after"), None);
    }

    /// Whoever could set a variable of a shipped daemon would else end it where it likes.
    #[test]
    fn no_build_has_points_without_being_asked() {
        let manifest = include_str!("../Cargo.toml");
        let features = manifest
            .split("\n[")
            .find_map(|section| section.strip_prefix("features]"));
        let default = features.unwrap().lines().find(|line| line.starts_with("default"));
        assert!(default.is_none_or(|line| !line.contains("points")), "{default:?}");
    }
}
