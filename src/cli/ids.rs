//! Ids as they are typed: whole, or so much of them as only one has.

use super::Problem;
use super::once::Opened;
use super::open;
use crate::config::Config;

/// Fewer digits than these are no beginning of an id: too many have them.
const DIGITS_MIN: usize = 4;

/// The whole id of what was typed. What is no beginning of an id, or of none that is there, comes back as it
/// is, for whoever looks for it to say so.
pub(super) fn whole(database: &Opened, typed: &str) -> anyhow::Result<String> {
    if !is_beginning(typed) {
        return Ok(typed.to_owned());
    }
    let mut found = database.read(|tx| tx.ids_beginning(&typed.to_ascii_lowercase()))?;
    match (found.pop(), found.as_slice()) {
        (None, _) => Ok(typed.to_owned()),
        (Some(id), []) => Ok(id),
        (Some(last), others) => {
            let candidates = others.iter().chain([&last]).map(String::as_str);
            let candidates: Vec<&str> = candidates.collect();
            let next = format!("give more digits of one of: {}", candidates.join(", "));
            Err(Problem::misuse(format!("several ids begin with {typed}"), next).into())
        }
    }
}

/// The same in the config's database.
pub(super) fn whole_in(config: &Config, typed: &str) -> anyhow::Result<String> {
    match is_beginning(typed) {
        true => whole(&open::reader(config)?, typed),
        false => Ok(typed.to_owned()),
    }
}

/// Refuses what begins as an id does and is too short to be looked for.
pub(super) fn refuse_short(typed: &str) -> Result<(), Problem> {
    let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match typed.split_once('_') {
        Some((kind, digits)) if digits.len() < DIGITS_MIN && is_hex(digits) => Err(Problem::misuse(
            format!("{typed} is too short: many ids may begin so"),
            format!("give {DIGITS_MIN} digits behind {kind}_ at least"),
        )),
        Some(_) | None => Ok(()),
    }
}

fn is_beginning(typed: &str) -> bool {
    typed.split_once('_').is_some_and(|(_, digits)| {
        digits.len() >= DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}
