//! Inputs that are fed again (I16): whatever the daemon has seen before changes nothing the second time.

use crate::clients::Clients;
use crate::inbox::Senders;
use crate::life::{Ended, Life};
use crate::operators::Operators;
use crate::script::Input;
use crate::world::{Touched, World};
use std::time::Duration;

/// Whoever feeds something again.
pub struct Feeders<'a> {
    pub operators: &'a mut Operators,
    pub clients: &'a mut Clients,
    pub senders: &'a mut Senders,
}

/// Everything that there is to be fed again.
pub const ALL: [Input; 6] = [
    Input::Blocks,
    Input::Call,
    Input::Webhook,
    Input::Timer,
    Input::Job,
    Input::Hint,
];

/// Feeds one kind of input again, so many times; what it does is done while time passes.
pub fn feed(
    what: Input,
    times: u8,
    life: &Life,
    world: &World,
    feeders: &mut Feeders<'_>,
) -> Option<Touched> {
    for _ in 0..1 + times % 3 {
        match what {
            // A follower that looks asks for a list too: with a number that is newer, or it is not applied.
            Input::Timer | Input::List => life.store.wake(),
            Input::Hint => {}
            Input::Blocks => feeders.operators.read_all_again(world, life.now_ms()),
            Input::Job => feeders.operators.hurry_jobs(life.now_ms()),
            Input::Call => feeders.clients.all_again(life),
            Input::Webhook => feeders.senders.all_again(life),
        }
        for chain in world.chains() {
            life.store.hint(&chain.nodes.chain_id());
        }
    }
    Some(format!("{what:?} again"))
}

/// Feeds everything again to a daemon that has nothing left to do. What that changed, if anything.
pub fn everything(life: &mut Life, world: &World, feeders: &mut Feeders<'_>) -> Option<String> {
    for (number, what) in ALL.into_iter().enumerate() {
        let before = projection(life)?;
        feed(what, u8::try_from(number).unwrap_or(0), life, world, feeders);
        if !matches!(life.run_for(Duration::from_secs(40)), Ended::Span) {
            return None;
        }
        let after = projection(life)?;
        if let Some(line) = changed(&before, &after) {
            return Some(format!("{what:?} fed again changed {line}"));
        }
    }
    None
}

fn projection(life: &Life) -> Option<Vec<String>> {
    life.look(life.store.read(|tx| tx.projection()))?.ok()
}

/// The first line that is there no more, or is new.
fn changed(before: &[String], after: &[String]) -> Option<String> {
    // Time has passed meanwhile: an invoice whose time is over then is expired by nothing else.
    let expired = |lines: &[String]| {
        let is_expired = |line: &&String| line.starts_with("invoices ") && line.contains("\"expired\"");
        lines.iter().filter(is_expired).count()
    };
    if expired(before) != expired(after) {
        return None;
    }
    let (before, after) = (without_asking(before), without_asking(after));
    let lost = before.iter().find(|line| !after.contains(line));
    // A rescan may hold a header once more that was forgotten below the window.
    let is_news = |line: &&String| !before.contains(line) && !line.starts_with("headers ");
    lost.or_else(|| after.iter().find(is_news)).cloned()
}

/// The lines that may change when something is asked again: the asking itself, and when a key was used last.
fn without_asking(lines: &[String]) -> Vec<String> {
    let is_asking = |line: &&String| {
        let is_told = |action: &str| line.contains(&format!("action=\"{action}\""));
        line.starts_with("rescans ")
            || line.starts_with("api_keys ")
            || line.starts_with("idempotency ")
            || (line.starts_with("audit ") && ["rescan", "state"].into_iter().any(is_told))
    };
    let kept = lines.iter().filter(|line| !is_asking(line));
    kept.map(|line| match line.starts_with("audit ") {
        true => without_id(line),
        false => line.clone(),
    })
    .collect()
}

fn without_id(line: &str) -> String {
    let words = line.split(' ').filter(|word| !word.starts_with("id="));
    words.collect::<Vec<_>>().join(" ")
}
