//! What clients asked of the API and were answered, and what must hold of that.

use creditd::clock::rfc3339;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::task::AbortHandle;

/// A request waits so long for another of its key, at most.
const IN_PROGRESS_MS: i64 = 5_000;

/// An answer is kept so long at least: `idempotency_days`, of which the config says nothing.
pub const KEPT_MS: i64 = 30 * 24 * 3_600_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// It says so itself.
    pub is_replayed: bool,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Pending {
    answer: Arc<Mutex<Option<Answer>>>,
    task: AbortHandle,
}

impl Pending {
    pub fn new(answer: Arc<Mutex<Option<Answer>>>, task: AbortHandle) -> Pending {
        Pending { answer, task }
    }

    /// The answer, once it is there.
    pub fn take(&self) -> Option<Answer> {
        self.answer.lock().unwrap().take()
    }

    /// The client goes away: nobody waits for the answer any more.
    pub fn give_up(&self) {
        self.task.abort();
    }
}

/// What a client has an answer for, by its id or its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    Invoice(String),
    Cancelled(String),
    Address(String),
    Endpoint(String),
    /// A webhook, by its source and id.
    Webhook(&'static str, String),
}

/// What a client did, and what came of it.
#[derive(Debug)]
pub struct Asked {
    pub client: usize,
    pub request: Request,
    /// The idempotency key.
    pub key: Option<String>,
    pub asked_ms: i64,
    pub answered_ms: Option<i64>,
    pub answer: Option<Answer>,
    /// How often answers may have been forgotten before: by a restored backup, or after their time.
    pub era: u32,
    /// The same when it was answered: the clock may be set while it is on its way.
    pub last_era: u32,
    /// The earliest and the latest that the clock has shown while it was on its way.
    pub shown_ms: (i64, i64),
    /// The latest that the clock has shown since, in its era.
    pub latest_ms: i64,
    /// Nobody heard its answer: the daemon died before, or the client went away.
    pub is_cut_off: bool,
    /// Others of the same key were on their way.
    pub is_parallel: bool,
    pub pending: Option<Pending>,
}

impl Asked {
    /// What was handed out with its answer, which nobody gets twice: the invoice of an address, or an
    /// address.
    pub fn handed_out(&self) -> Option<String> {
        let told = self.answer.as_ref()?.json();
        let what = match self.request.path.as_str() {
            "/v1/invoices" => &told["id"],
            "/v1/addresses" => &told["address"],
            _ => return None,
        };
        what.as_str().map(str::to_owned)
    }

    /// What its answer promised for good.
    pub fn promise(&self) -> Option<Promise> {
        let told = self.answer.as_ref().filter(|answer| answer.is_done())?.json();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if self.request.method != "POST" {
            return None;
        }
        match self.request.path.as_str() {
            "/v1/invoices" => text(&told["id"]).map(Promise::Invoice),
            "/v1/addresses" => text(&told["reference"]).map(Promise::Address),
            "/v1/endpoints" => text(&told["endpoint"]["id"]).map(Promise::Endpoint),
            path => {
                let id = path.strip_prefix("/v1/invoices/")?.strip_suffix("/cancel")?;
                Some(Promise::Cancelled(id.to_owned()))
            }
        }
    }

    /// May it have had an effect? Of what nobody heard an answer of, or that only the next request can tell.
    pub fn may_be_done(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_none_or(|answer| answer.is_done() || answer.status >= 500)
    }

    /// May the answer that it had be forgotten within its era? That of an invoice counts beyond its time
    /// while the invoice is open: what is told again in a new era is over as soon as that one ends.
    pub fn may_be_forgotten(&self) -> bool {
        let Some(answer) = self
            .answer
            .as_ref()
            .filter(|_| self.request.path == "/v1/invoices")
        else {
            return false;
        };
        let over = rfc3339(self.latest_ms - KEPT_MS);
        answer.json()["created_at"]
            .as_str()
            .is_some_and(|made| made <= over.as_str())
    }

    /// What its effect bears: an invoice or an address of this reference.
    pub fn reference(&self) -> Option<String> {
        let is_write = self.request.method == "POST" && self.key.is_some();
        if !is_write || !["/v1/invoices", "/v1/addresses"].contains(&self.request.path.as_str()) {
            return None;
        }
        let body: Value = serde_json::from_str(&self.request.body).unwrap_or_default();
        body["reference"].as_str().map(str::to_owned)
    }

    /// Requests of one scope are one request.
    pub fn scope(&self) -> Option<Scope<'_>> {
        self.scope_in(self.era)
    }

    /// The scope that it has if it is done in such an era.
    pub fn scope_in(&self, era: u32) -> Option<Scope<'_>> {
        let key = self.key.as_ref()?;
        Some((era, self.client, self.request.method, &self.request.path, key))
    }

    /// Is its answer no other one than that of the first request under its key?
    fn agrees(&self, known: &Asked) -> bool {
        let body = |asked: &Asked| asked.answer.as_ref().map(|answer| answer.body.clone());
        known.request.body == self.request.body && body(known) == body(self)
    }
}

/// An era, a client, a method, a path and a key.
pub type Scope<'a> = (u32, usize, &'static str, &'a str, &'a str);

/// How many invoices or addresses each reference may have: one for each key that asked for it, and none for a
/// request that was refused. What was on its way into another era is done in one of its eras, not in each.
pub fn effects_max(history: &[Asked]) -> BTreeMap<String, usize> {
    let mut scopes: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    // Whoever has the least choice chooses first: so the most eras are taken.
    let mut history: Vec<&Asked> = history.iter().collect();
    history.sort_by_key(|asked| asked.last_era);
    for asked in history {
        let Some(reference) = asked.reference() else {
            continue;
        };
        let scopes = scopes.entry(reference).or_default();
        if asked.may_be_done() {
            let mut own = (asked.era..=asked.last_era).map(|era| asked.scope_in(era));
            scopes.extend(own.find(|scope| !scopes.contains(scope)));
        }
    }
    let count = |(reference, scopes): (String, BTreeSet<_>)| (reference, scopes.len());
    scopes.into_iter().map(count).collect()
}

/// I15: what the history says against it.
pub fn wrong(history: &[Asked]) -> Vec<String> {
    let mut wrong = vec![];
    let mut kept = KeptAnswers::default();
    let mut handed_out: BTreeMap<String, String> = BTreeMap::new();
    for asked in history {
        let Some(answer) = &asked.answer else { continue };
        let of = format!(
            "{} {} of client {}",
            asked.request.method, asked.request.path, asked.client
        );
        let is_write = asked.request.method == "POST" && !asked.request.path.starts_with("/v1/inbox/");
        // Where the database says nothing, nobody knows who asks.
        if is_write && asked.key.is_none() && ![400, 503].contains(&answer.status) {
            wrong.push(format!("{of}: without a key it is answered {}", answer.status));
        }
        let took_ms = asked.answered_ms.unwrap_or(asked.asked_ms) - asked.asked_ms;
        if answer.code() == "in_progress" && !(asked.is_parallel && took_ms >= IN_PROGRESS_MS) {
            wrong.push(format!("{of}: in progress after {took_ms} ms"));
        }
        if answer.status == 500 {
            wrong.push(format!("{of}: {}", String::from_utf8_lossy(&answer.body)));
        }
        let Some(scope) = asked.scope().filter(|_| is_write && answer.is_done()) else {
            continue;
        };
        if let Some(what) = asked.handed_out().filter(|_| !answer.is_replayed) {
            let to = format!("{} ({:?})", of, scope);
            if let Some(before) = handed_out.insert(what.clone(), to.clone()) {
                wrong.push(format!("{what} was handed out to {before} and to {to}"));
            }
        }
        wrong.extend(
            kept.wrong(asked, answer)
                .map(|what| format!("{of}: key {scope:?} {what}")),
        );
    }
    wrong
}

/// The answers that must be told again.
#[derive(Default)]
struct KeptAnswers<'a> {
    first: BTreeMap<Scope<'a>, &'a Asked>,
    /// When each was made, at the earliest, by its request and its body.
    made_ms: BTreeMap<(Option<Scope<'a>>, &'a [u8]), i64>,
}

impl<'a> KeptAnswers<'a> {
    /// What is wrong with an answer under a key, after those before.
    fn wrong(&mut self, asked: &'a Asked, answer: &'a Answer) -> Option<&'static str> {
        if !answer.is_replayed {
            let made = (asked.scope_in(0), &answer.body[..]);
            self.made_ms.entry(made).or_insert(asked.shown_ms.0);
        }
        let mut wrong = None;
        // It is done in one of its eras.
        for scope in (asked.era..=asked.last_era).filter_map(|era| asked.scope_in(era)) {
            match self.first.get(&scope) {
                Some(known) if asked.agrees(known) => return None,
                Some(known) if known.answer == asked.answer || !known.may_be_forgotten() => {
                    wrong = match known.request.body == asked.request.body {
                        true => Some("was answered in two ways"),
                        false => Some("did two things"),
                    };
                    if !self.may_be_over(known, asked) {
                        return wrong;
                    }
                }
                _ => {
                    self.first.insert(scope, asked);
                    return None;
                }
            }
        }
        wrong
    }

    /// May the time of an answer have been over before another request of its key was done?
    fn may_be_over(&self, known: &Asked, asked: &Asked) -> bool {
        let body = known.answer.as_ref().map_or(&[][..], |answer| &answer.body);
        let made_ms = self.made_ms.get(&(known.scope_in(0), body));
        made_ms.is_none_or(|made_ms| asked.shown_ms.1 - made_ms >= KEPT_MS)
    }
}
