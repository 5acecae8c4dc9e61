//! A drill's report in words.

use super::report::{Changed, Fed, Input, Restored, Settled, Untried};
use crate::telemetry::{plural, thousands};

pub(super) fn restored_line(restored: &Restored) -> String {
    let height = |height: Option<u64>| height.map_or_else(|| "its start".to_owned(), |at| at.to_string());
    let end = match (restored.is_done, restored.to) {
        (true, Some(to)) => format!("to {to}"),
        _ => "and did not come to its end".to_owned(),
    };
    format!(
        "{:<12} {} from {} {end}: {} and {} would be told anew",
        "restored",
        restored.chain,
        height(restored.from),
        counted(restored.credits_told, "credit"),
        counted(restored.invoices_told, "invoice")
    )
}

pub(super) fn settled_words(settled: &Settled) -> String {
    format!("{} of {}", counted(settled.rows, "row"), settled.table)
}

pub(super) fn what_words(fed: &Fed) -> String {
    match (fed.input, fed.from, fed.to) {
        (Input::Blocks, Some(from), Some(to)) => {
            format!("{from} to {to}, {}", counted(fed.count, "block"))
        }
        (Input::Node, Some(from), Some(to)) => format!("behind at {from}, back at {to}"),
        (Input::Blocks | Input::Node, ..) => "nothing to feed".to_owned(),
        (Input::Mempool, ..) => format!("{} listed; outdated lists", thousands(fed.count)),
        (Input::Idempotency, ..) => counted(fed.count, "answer"),
        (Input::Inbox, ..) => counted(fed.count, "webhook"),
        (Input::Jobs, ..) => format!("{}, three times each", counted(fed.count, "job")),
        (Input::Deliveries, ..) => format!("{} to nobody", counted(fed.count, "callback")),
        (Input::Start, ..) => "closed and opened".to_owned(),
    }
}

/// What is so where nothing is amiss.
pub(super) fn well_words(fed: &Fed) -> String {
    match fed.input {
        Input::Blocks | Input::Node | Input::Inbox | Input::Jobs | Input::Start => {
            "nothing changed".to_owned()
        }
        Input::Mempool => format!("nothing changed, {} refused", thousands(fed.refused)),
        // The requests are not kept.
        Input::Idempotency => "each the first one (looked up, not sent)".to_owned(),
        Input::Deliveries => "same ids, same bytes".to_owned(),
    }
}

/// Why nothing could be tried.
pub(super) fn untried_words(why: Untried, days: &str) -> String {
    match why {
        Untried::NotFed => format!("see NOT FED; nothing else of the last {days} is there to come again"),
        Untried::LeftOut => format!(
            "--without-nodes leaves out blocks and lists, and no request, webhook or callback of the last \
             {days} is there to come again"
        ),
        Untried::Nothing => format!("nothing of the last {days} is there to come again"),
    }
}

pub(super) fn input_words(input: Option<Input>, chain: Option<&str>) -> String {
    let word = input.map_or("an input", Input::word);
    match chain {
        Some(chain) => format!("{word} {chain}"),
        None => word.to_owned(),
    }
}

pub(super) fn changed_line(change: &Changed) -> String {
    let input = input_words(change.input, change.chain.as_deref());
    let what = match (&change.was, &change.is) {
        (None, Some(is)) => format!("added    {} {is}", change.key),
        (Some(was), None) => format!("gone     {} {was}", change.key),
        (Some(was), Some(is)) => format!("changed  {} from {was} to {is}", change.key),
        (None, None) => change.key.clone(),
    };
    format!("CHANGED  pass {}, {input}: {} {what}", change.pass, change.table)
}

pub(super) fn counted(count: u64, one: &str) -> String {
    format!("{} {}", thousands(count), plural(count, one))
}

pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}
