//! `callbacks retry`: sends now what waits or was given up, and says why where there is nothing to send.

use super::Outcome;
use super::callback_args::CallbackRetry;
use super::callbacks::{Standing, blocker_words, standings};
use super::open;
use super::out::Out;
use super::repair::{act, nothing};
use crate::config::Config;
use crate::store::report::{DeliveryFilter, Listed, Page};
use crate::store::{Endpoint, Resend};
use std::collections::BTreeSet;

/// Callbacks that are made due in one transaction: the daemon waits for no more than that.
const ROWS_MAX: u32 = 5_000;

/// Sends an event again, or all that an endpoint has not got.
pub(super) fn retry(out: &mut Out, config: &Config, args: &CallbackRetry) -> anyhow::Result<Outcome> {
    match (&args.event, &args.endpoint) {
        (None, Some(endpoint)) => retry_endpoint(out, config, endpoint, args),
        (event, endpoint) => {
            let event = event.as_deref().unwrap_or_default();
            retry_event(out, config, event, endpoint.as_deref(), args)
        }
    }
}

/// What is said where it is asked for, whether with `--apply` or not.
#[derive(Default)]
struct Plan {
    targets: Vec<String>,
    /// Why it does not go to the others.
    reasons: Vec<String>,
    /// What keeps it from going out at once to the targets.
    notes: Vec<String>,
}

fn retry_event(
    out: &mut Out,
    config: &Config,
    event: &str,
    endpoint: Option<&str>,
    args: &CallbackRetry,
) -> anyhow::Result<Outcome> {
    let repair = &args.repair;
    let plan = plan(config, event, endpoint)?;
    if plan.targets.is_empty() {
        let text = format!("{event} {}", plan.reasons.join("; "));
        return nothing(out, "retry", repair, text);
    }
    let mut text = format!("send {event} now to {}", plan.targets.join(", "));
    for note in &plan.notes {
        text = format!("{text}; {note}");
    }
    act(out, "retry", repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| {
            let mut is_changed = false;
            for target in &plan.targets {
                is_changed |= tx.retry_delivery(event, target, &repair.reason)?;
            }
            Ok(is_changed)
        })?)
    })
}

fn plan(config: &Config, event: &str, endpoint: Option<&str>) -> anyhow::Result<Plan> {
    let filter = DeliveryFilter {
        event: Some(event.to_owned()),
        endpoint: endpoint.map(str::to_owned),
        state: None,
    };
    let page = Page {
        after: None,
        limit: u32::MAX,
    };
    let (found, paused) = open::reader(config)?.read(|tx| {
        // What would be refused with `--apply` is refused without it too.
        tx.event_body(event)?;
        endpoint.map(|id| tx.sendable(event, id)).transpose()?;
        let found = standings(tx, config, &filter, page)?;
        let ids = found.iter().map(|listed| listed.row.row.endpoint.as_str());
        let mut paused = BTreeSet::new();
        for id in ids.chain(endpoint) {
            if tx.endpoint(id)?.paused_reason.is_some() {
                paused.insert(id.to_owned());
            }
        }
        Ok((found, paused))
    })?;
    let mut plan = Plan::default();
    if let (Some(endpoint), true) = (endpoint, found.is_empty()) {
        plan.targets.push(endpoint.to_owned());
    } else if found.is_empty() {
        let text = "goes to nobody: no endpoint was subscribed to it; --endpoint names one to send it to";
        plan.reasons.push(text.to_owned());
    }
    for Listed { row, .. } in found {
        plan.add(row, endpoint.is_some());
    }
    for id in plan.targets.iter().filter(|id| paused.contains(*id)) {
        plan.notes.push(format!(
            "{id} is paused: `creditd endpoint resume {id} --reason TEXT --apply` sends it"
        ));
    }
    Ok(plan)
}

impl Plan {
    fn add(&mut self, Standing { row, blocker }: Standing, is_named: bool) {
        let is_due = row.next_at.is_some_and(|at| at <= open::now_ms());
        let blocked = blocker.as_ref().map(blocker_words);
        let reason = match (row.state.as_str(), is_named) {
            ("waiting", _) if is_due => match &blocked {
                Some(words) => format!("goes to {} {words}", row.endpoint),
                None => format!("is due at {} already", row.endpoint),
            },
            ("leased", _) => format!("is on its way to {}", row.endpoint),
            ("delivered", false) => format!(
                "was delivered to {0}; with --endpoint {0} it is sent there again",
                row.endpoint
            ),
            _ => {
                self.notes
                    .extend(blocked.map(|words| format!("it goes to {} {words}", row.endpoint)));
                self.targets.push(row.endpoint);
                return;
            }
        };
        self.reasons.push(reason);
    }
}

fn retry_endpoint(out: &mut Out, config: &Config, id: &str, args: &CallbackRetry) -> anyhow::Result<Outcome> {
    let (repair, which) = match args.parked {
        true => (&args.repair, Resend::Parked),
        false => (&args.repair, Resend::Undelivered),
    };
    let (endpoint, undelivered) = open::reader(config)?.read(|tx| {
        let endpoint = tx.endpoint(id)?;
        let undelivered = tx.undelivered(&endpoint, open::now_ms())?;
        Ok((endpoint, undelivered))
    })?;
    let (later, parked) = match which {
        Resend::Parked => (0, undelivered.parked),
        Resend::Undelivered => (undelivered.later, undelivered.parked),
    };
    if later + parked == 0 {
        let text = match (which, undelivered.waiting) {
            (Resend::Parked, _) => format!("nothing is parked for {id}"),
            (Resend::Undelivered, 0) => format!("{id} has got everything"),
            (Resend::Undelivered, waiting) => {
                format!(
                    "{waiting} callbacks to {id} are due already{}",
                    paused_words(&endpoint)
                )
            }
        };
        return nothing(out, "retry", repair, text);
    }
    let paused = paused_words(&endpoint);
    let text = format!(
        "send now to {id} what waits there ({later} callbacks) and what is parked ({parked}){paused}"
    );
    act(out, "retry", repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        let mut total = 0;
        loop {
            let count = database.write(open::now_ms(), |tx| {
                tx.retry_endpoint(id, which, ROWS_MAX, &repair.reason)
            })?;
            total += count;
            if count == 0 {
                return Ok(total > 0);
            }
        }
    })
}

fn paused_words(endpoint: &Endpoint) -> String {
    let id = &endpoint.id;
    match endpoint.paused_reason {
        Some(_) => {
            format!("; {id} is paused: `creditd endpoint resume {id} --reason TEXT --apply` sends them")
        }
        None => String::new(),
    }
}
