//! A scenario: steps as text, one a line, run one after the other. All faults of a text are found before its
//! first step is done. Start at [`parse`]; [`Line`] prints as it is read.

use super::hand::fore;
use super::step::{
    BLOCKS_MAX, Blocks, Deposit, NodeState, OfTx, On, Reorg, Rival, SPAN_MS_MAX, Step, Tags, is_word,
};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// The most steps of a scenario.
pub const STEPS_MAX: usize = 10_000;

/// What one line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Something happens on a chain.
    Step(On, Step),
    /// Nothing does, for a while.
    Wait(Duration),
    /// Nothing does until somebody says go on.
    Pause,
}

/// A line with its number, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Where it stands.
    pub number: usize,
    /// What it asks for.
    pub line: Line,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {number}: {what}")]
pub struct Fault {
    /// Where it stands.
    pub number: usize,
    /// In words, with what would be right.
    pub what: String,
}

/// Reads a scenario.
///
/// # Errors
/// All of its faults.
pub fn parse(text: &str) -> Result<Vec<Numbered>, Vec<Fault>> {
    whole(tried(text), Vec::new())
}

/// A line as it was read, or what is wrong with its words.
pub(super) struct Tried<'t> {
    pub(super) number: usize,
    pub(super) words: Vec<&'t str>,
    pub(super) line: Result<Line, String>,
}

fn tried(text: &str) -> Vec<Tried<'_>> {
    let mut all = Vec::new();
    for (number, words) in (1..).zip(text.lines().map(words)) {
        if words.is_empty() {
            continue;
        }
        let is_too_many = all.len() == STEPS_MAX;
        let line = match is_too_many {
            true => Err(format!("more than {STEPS_MAX} steps")),
            false => line(&words),
        };
        all.push(Tried { number, words, line });
        if is_too_many {
            break;
        }
    }
    all
}

/// The lines, where neither they nor what is foreseen of them has a fault.
fn whole(all: Vec<Tried<'_>>, mut faults: Vec<Fault>) -> Result<Vec<Numbered>, Vec<Fault>> {
    let mut lines = Vec::new();
    for Tried { number, line, .. } in all {
        match line {
            Ok(line) => lines.push(Numbered { number, line }),
            Err(what) => faults.push(Fault { number, what }),
        }
    }
    faults.sort_by_key(|fault| fault.number);
    match faults.is_empty() {
        true => Ok(lines),
        false => Err(faults),
    }
}

/// Reads one for chains on which these names stand for something, and looks ahead: also what a step would be
/// refused for whatever the chains are like then is a fault.
///
/// # Errors
/// All of its faults.
pub fn read(text: &str, names: BTreeMap<String, On>) -> Result<Vec<Numbered>, Vec<Fault>> {
    let all = tried(text);
    let foreseen = fore::faults(&all, names);
    whole(all, foreseen)
}

/// Up to a word that begins with `#`.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace()
        .take_while(|word| !word.starts_with('#'))
        .collect()
}

fn line(words: &[&str]) -> Result<Line, String> {
    match words {
        ["wait", time] => Ok(Line::Wait(span(time)?)),
        ["wait", ..] => Err("write `wait 2s`".to_owned()),
        ["pause"] => Ok(Line::Pause),
        ["pause", ..] => Err("`pause` stands alone".to_owned()),
        [chain, verb, rest @ ..] => match On::of_word(chain) {
            Some(on) => Ok(Line::Step(on, step(verb, rest)?)),
            None => Err(format!(
                "{chain:?} is no chain: a line begins with btc, evm, wait or pause"
            )),
        },
        [chain] if On::of_word(chain).is_some() => {
            Err(format!("{chain} what? take {}", Step::VERBS.join(", ")))
        }
        [other] => Err(format!(
            "{other:?} is no chain: a line begins with btc, evm, wait or pause"
        )),
        [] => Err("nothing here".to_owned()),
    }
}

fn step(verb: &str, rest: &[&str]) -> Result<Step, String> {
    Ok(match (verb, rest) {
        ("deposit", [to, amount, rest @ ..]) => Step::Deposit(deposit(to, amount, rest)?),
        ("deposit", _) => return Err("write `deposit TO AMOUNT [TOKEN] [as NAME]`".to_owned()),
        ("double-spend", [tx, rest @ ..]) => Step::DoubleSpend(rival(tx, rest)?),
        ("replace", [tx, rest @ ..]) => Step::Replace(rival(tx, rest)?),
        ("double-spend" | "replace", []) => {
            return Err(format!("write `{verb} TX [to TO] [amount AMOUNT] [as NAME]`"));
        }
        ("reorg", [depth]) => Step::Reorg(Reorg {
            depth: number(depth, 1)?,
            keep: Vec::new(),
        }),
        ("reorg", [depth, "keep", keep @ ..]) if !keep.is_empty() => Step::Reorg(Reorg {
            depth: number(depth, 1)?,
            keep: keep.iter().map(|tx| (*tx).to_owned()).collect(),
        }),
        ("reorg", _) => return Err("write `reorg DEPTH [keep TX... | keep all]`".to_owned()),
        ("evict", [tx]) => Step::Evict(of(tx)),
        ("resend", [tx]) => Step::Resend(of(tx)),
        ("fail", [tx]) => Step::Fail(of(tx)),
        ("evict" | "resend" | "fail", _) => return Err(format!("write `{verb} TX`")),
        ("lag", [blocks]) => Step::Lag(Blocks {
            blocks: number(blocks, 0)?,
        }),
        ("mine", [blocks]) => Step::Mine(Blocks {
            blocks: number(blocks, 1)?,
        }),
        ("lag" | "mine", _) => return Err(format!("write `{verb} BLOCKS`")),
        ("tags", rest) => tags(rest)?,
        ("node", [trouble]) => node(trouble, None)?,
        ("node", [trouble, time]) => node(trouble, Some(span(time)?))?,
        ("node", _) => {
            return Err("write `node down|hang|limit|login|warming [2s]`, or `node up`".to_owned());
        }
        (other, _) => return Err(format!("{other:?} is no step: take {}", Step::VERBS.join(", "))),
    })
}

fn of(tx: &str) -> OfTx {
    OfTx { tx: tx.to_owned() }
}

/// A number of blocks, from `least` on.
fn number(text: &str, least: u32) -> Result<u32, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (least..=BLOCKS_MAX).contains(number));
    number.ok_or_else(|| format!("{text:?} is no number of blocks: take {least} to {BLOCKS_MAX}"))
}

/// `250ms`, `2s` or `1m`.
fn span(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000)];
    let ms = units.iter().find_map(|(unit, ms)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*ms)
    });
    match ms {
        Some(ms) if ms <= SPAN_MS_MAX => Ok(Duration::from_millis(ms)),
        Some(_) => Err(format!("{text:?} is longer than a day")),
        None => Err(format!("{text:?} is no time: write 250ms, 2s or 1m")),
    }
}

/// The values behind words, each word once and in any order.
fn options<const N: usize>(rest: &[&str], names: [&str; N]) -> Result<[Option<String>; N], String> {
    let mut found = [const { None }; N];
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let place = names.iter().position(|name| name == word);
        let Some(slot) = place.and_then(|place| found.get_mut(place)) else {
            return Err(format!(
                "{word:?} is not understood here: {} are",
                names.join(", ")
            ));
        };
        match words.next() {
            Some(value) if slot.is_none() => *slot = Some((*value).to_owned()),
            Some(_) => return Err(format!("`{word}` is there twice")),
            None => return Err(format!("`{word}` of what?")),
        }
    }
    Ok(found)
}

fn name(name: Option<String>) -> Result<Option<String>, String> {
    match name.as_deref() {
        Some(text) if !is_word(text) || text == "all" => Err(format!(
            "{text:?} is no name: take up to 24 letters, digits, dots, dashes and underlines, and not `all`"
        )),
        Some(_) | None => Ok(name),
    }
}

fn deposit(to: &str, amount: &str, rest: &[&str]) -> Result<Deposit, String> {
    let (token, rest) = match rest {
        [token, rest @ ..] if *token != "as" => (Some((*token).to_owned()), rest),
        rest => (None, rest),
    };
    let [called] = options(rest, ["as"])?;
    Ok(Deposit {
        to: to.to_owned(),
        amount: amount.to_owned(),
        token,
        name: name(called)?,
    })
}

fn rival(tx: &str, rest: &[&str]) -> Result<Rival, String> {
    let [to, amount, called] = options(rest, ["to", "amount", "as"])?;
    Ok(Rival {
        tx: tx.to_owned(),
        to,
        amount,
        name: name(called)?,
    })
}

fn tags(rest: &[&str]) -> Result<Step, String> {
    let [safe, finalized] = options(rest, ["safe", "finalized"])?;
    match (&safe, &finalized) {
        (None, None) => Err("write `tags [safe PLACE] [finalized PLACE]`".to_owned()),
        _ => Ok(Step::Tags(Tags { safe, finalized })),
    }
}

fn node(trouble: &str, span: Option<Duration>) -> Result<Step, String> {
    let state = NodeState {
        trouble: trouble.to_owned(),
        for_ms: span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
    };
    match state.meant() {
        Some(_) => Ok(Step::Node(state)),
        None => Err(format!(
            "{trouble:?} is no trouble of a node: take down, hang, limit, login, warming or up"
        )),
    }
}

// ---- as text ----

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Wait(span) => write!(f, "wait {}ms", span.as_millis()),
            Line::Pause => f.write_str("pause"),
            Line::Step(on, step) => write!(f, "{} {}{}", on.word(), step.verb(), Rest(step)),
        }
    }
}

/// What stands behind the verb, with a space before each word.
struct Rest<'a>(&'a Step);

impl fmt::Display for Rest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = |f: &mut fmt::Formatter<'_>, word: &str, value: &Option<String>| match value {
            Some(value) => write!(f, " {word} {value}"),
            None => Ok(()),
        };
        match self.0 {
            Step::Deposit(of) => {
                write!(f, " {} {}", of.to, of.amount)?;
                if let Some(token) = &of.token {
                    write!(f, " {token}")?;
                }
                option(f, "as", &of.name)
            }
            Step::DoubleSpend(of) | Step::Replace(of) => {
                write!(f, " {}", of.tx)?;
                option(f, "to", &of.to)?;
                option(f, "amount", &of.amount)?;
                option(f, "as", &of.name)
            }
            Step::Reorg(of) => {
                write!(f, " {}", of.depth)?;
                match of.keep.is_empty() {
                    true => Ok(()),
                    false => write!(f, " keep {}", of.keep.join(" ")),
                }
            }
            Step::Evict(of) | Step::Resend(of) | Step::Fail(of) => write!(f, " {}", of.tx),
            Step::Lag(of) | Step::Mine(of) => write!(f, " {}", of.blocks),
            Step::Tags(of) => {
                option(f, "safe", &of.safe)?;
                option(f, "finalized", &of.finalized)
            }
            Step::Node(of) => {
                write!(f, " {}", of.trouble)?;
                match of.for_ms {
                    Some(ms) => write!(f, " {ms}ms"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
