//! Receivers of callbacks: they outlive the daemon, and remember all that they were told.

use crate::death::Alive;
use crate::marks;
use crate::script::Manner;
use crate::setting::receiver_of;
use creditd::clock::Clock;
use creditd::egress::{Dial, DialError, HttpReply, HttpRequest};
use creditd::webhook::{self, Headers, Key, VerifyKey, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A message and its answer take so long on their way.
const THERE: Duration = Duration::from_millis(15);
const BACK: Duration = Duration::from_millis(25);

/// One attempt, as its receiver saw it.
#[derive(Clone, Debug)]
pub struct Heard {
    pub at_ms: i64,
    pub which: u8,
    pub id: String,
    pub timestamp: String,
    pub body: Vec<u8>,
    /// False once it is known that no secret that was valid then fits.
    pub is_signed: bool,
    /// The receiver has read it and acted on it.
    pub is_taken: bool,
    /// The status that reached the daemon, if any did.
    pub answered: Option<u16>,
    signature: String,
    /// Nobody knew the secret yet.
    is_unverified: bool,
}

/// What a receiver believes of a credit.
pub type Balances = BTreeMap<String, String>;

#[derive(Clone, Debug, Default)]
pub struct Receivers(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    manners: BTreeMap<u8, Manner>,
    log: Vec<Heard>,
    secrets: BTreeMap<u8, Vec<Known>>,
}

/// A secret that a receiver was given.
#[derive(Debug)]
struct Known {
    text: String,
    key: VerifyKey,
    /// Another took its place, and it ends then.
    until_ms: Option<i64>,
}

/// The way to all receivers, for one life of the daemon.
#[derive(Clone, Debug)]
pub struct Way {
    pub receivers: Receivers,
    pub clock: Clock,
    pub alive: Alive,
}

impl Receivers {
    pub fn new() -> Receivers {
        Receivers::default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, which: u8, manner: Manner) {
        self.inner().manners.insert(which, manner);
    }

    pub fn all_good(&self) {
        self.inner().manners.clear();
    }

    /// Is there one that does not answer at once?
    pub fn is_any_bad(&self) -> bool {
        self.inner()
            .manners
            .values()
            .any(|manner| *manner != Manner::Good)
    }

    pub fn manner(&self, which: u8) -> Manner {
        self.inner().manners.get(&which).copied().unwrap_or(Manner::Good)
    }

    /// Everything heard, oldest first.
    pub fn log(&self) -> Vec<Heard> {
        self.inner().log.clone()
    }

    /// The same without the first `from`.
    pub fn log_from(&self, from: usize) -> Vec<Heard> {
        self.inner().log.get(from..).unwrap_or_default().to_vec()
    }

    /// A receiver is told a secret. The ones before end then; `None`: all go on.
    pub fn learn(&self, which: u8, key: &Key, others_until_ms: Option<i64>) {
        self.learn_verifier(which, key.to_secret().reveal(), key.verify_key(), others_until_ms);
    }

    /// The same of a secret as the API shows it.
    pub fn learn_text(&self, which: u8, text: &str, others_until_ms: Option<i64>) {
        self.learn_verifier(which, text, VerifyKey::parse(text).unwrap(), others_until_ms);
    }

    fn learn_verifier(&self, which: u8, text: &str, key: VerifyKey, others_until_ms: Option<i64>) {
        let mut inner = self.inner();
        let known = inner.secrets.entry(which).or_default();
        if known.iter().any(|known| known.text == text) {
            return;
        }
        for other in known.iter_mut() {
            other.until_ms = other.until_ms.or(others_until_ms);
        }
        known.push(Known {
            text: text.to_owned(),
            key,
            until_ms: None,
        });
        let Inner { log, secrets, .. } = &mut *inner;
        let late = log
            .iter_mut()
            .filter(|heard| heard.which == which && (heard.is_unverified || !heard.is_signed));
        for heard in late {
            heard.verify(&secrets[&which]);
        }
    }

    /// An older database is back, with the secrets that it had.
    pub fn restored(&self) {
        let mut inner = self.inner();
        let known = inner.secrets.values_mut().flatten();
        known.for_each(|known| known.until_ms = None);
    }

    /// What a receiver believes that keeps the highest version of each credit.
    pub fn by_version(&self, which: u8) -> Balances {
        let mut held: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for told in self.told(which) {
            let known = held.entry(told.credit).or_default();
            if told.version > known.0 {
                *known = (told.version, told.net);
            }
        }
        held.into_iter().map(|(credit, (_, net))| (credit, net)).collect()
    }

    /// What one believes that takes each event id once, and each as a step: the last in the order of
    /// versions. Only as long as nothing was restored.
    pub fn by_steps(&self, which: u8) -> BTreeMap<String, i32> {
        let (mut seen, mut steps) = (BTreeSet::new(), BTreeMap::new());
        for told in self.told(which) {
            if seen.insert(told.id) {
                *steps.entry(told.credit).or_default() += told.step;
            }
        }
        steps
    }

    fn told(&self, which: u8) -> Vec<Told> {
        let inner = self.inner();
        let taken = inner
            .log
            .iter()
            .filter(|heard| heard.is_taken && heard.which == which);
        taken.filter_map(Told::of).collect()
    }
}

/// What has happened, where an event tells of it.
const TELLING: [(&str, &str); 5] = [
    ("\"payment\":\"pay_", "inbox_external_credit"),
    ("\"type\":\"credit.state\"", "credit_state_told"),
    ("\"type\":\"invoice.expired\"", "invoice_expired"),
    ("\"type\":\"invoice.reopened\"", "invoice_reopened"),
    ("\"type\":\"invoice.paid\"", "invoice_paid"),
];

fn note_told(body: &str) {
    let told = TELLING.iter().filter(|(words, _)| body.contains(words));
    told.for_each(|(_, mark)| marks::hit(mark));
}

/// What an event says of a credit.
struct Told {
    id: String,
    credit: String,
    version: u64,
    net: String,
    /// +1: paid; -1: taken back; 0: only stated.
    step: i32,
}

impl Told {
    fn of(heard: &Heard) -> Option<Told> {
        let body: serde_json::Value = serde_json::from_slice(&heard.body).ok()?;
        let step = match body["type"].as_str()? {
            "credit.created" | "credit.reinstated" => 1,
            "credit.reversed" => -1,
            "credit.state" => 0,
            _ => return None,
        };
        let data = &body["data"];
        Some(Told {
            id: heard.id.clone(),
            credit: data["credit"].as_str()?.to_owned(),
            version: data["version"].as_u64()?,
            net: data["net_base"].as_str()?.to_owned(),
            step,
        })
    }
}

impl Heard {
    /// Holds the signature against the secrets that its receiver knows.
    fn verify(&mut self, known: &[Known]) {
        let headers = Headers {
            id: Some(&self.id),
            timestamp: Some(&self.timestamp),
            signature: Some(&self.signature),
        };
        let window = Window {
            now_secs: self.at_ms.div_euclid(1_000),
            tolerance_secs: 1,
        };
        let is_valid = |known: &&Known| known.until_ms.is_none_or(|until| self.at_ms <= until);
        let keys: Vec<VerifyKey> = known
            .iter()
            .filter(is_valid)
            .map(|known| known.key.clone())
            .collect();
        self.is_unverified = false;
        self.is_signed = webhook::verify(headers, &self.body, &keys, window).is_ok();
    }
}

impl Manner {
    /// Does it act on what it is told?
    fn takes(self) -> bool {
        match self {
            Manner::Good
            | Manner::Slow(_)
            | Manner::Late
            | Manner::Drip
            | Manner::Huge
            | Manner::Forgetful => true,
            Manner::Status(status) => (200..300).contains(&status),
            Manner::Cut | Manner::Redirect | Manner::RetryAfter(_) | Manner::Gone | Manner::Dead => false,
        }
    }
}

/// Notes when the daemon dies between a message and its answer.
struct Answering {
    alive: Alive,
    is_over: bool,
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.is_over && self.alive.is_dead() {
            marks::hit("crash_between_message_and_answer");
        }
    }
}

fn reply(status: u16) -> HttpReply {
    HttpReply {
        status,
        retry_after_secs: None,
        body: "what the receiver says".into(),
    }
}

fn broken() -> DialError {
    DialError::Broken("the connection was cut".into())
}

impl Dial for Way {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        // Its time stamp is of this moment, whatever the clock shows when it arrives.
        let sent_ms = self.clock.now_ms();
        self.clock.sleep(THERE).await;
        if self.alive.is_dead() {
            std::future::pending::<()>().await;
        }
        let which = receiver_of(&request.url).expect("callbacks go to receivers alone");
        let manner = self.receivers.manner(which);
        if manner == Manner::Dead {
            marks::hit("dead_receiver");
            return Err(DialError::Refused("nobody listens".into()));
        }
        let number = self.hear((which, sent_ms), &request, manner.takes());
        let mut answering = Answering {
            alive: self.alive.clone(),
            is_over: false,
        };
        let answer = self.answer(manner, &request).await;
        self.clock.sleep(BACK).await;
        if self.alive.is_dead() {
            std::future::pending::<()>().await;
        }
        answering.is_over = true;
        if self.clock.now_ms() < sent_ms {
            marks::hit("clock_back_with_leases");
        }
        if let Ok(reply) = &answer {
            self.receivers.inner().log[number].answered = Some(reply.status);
        }
        answer
    }

    fn reset(&self) {}
}

impl Way {
    fn hear(&self, (which, at_ms): (u8, i64), request: &HttpRequest, is_taken: bool) -> usize {
        let header = |name| {
            let found = request.headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let mut heard = Heard {
            at_ms,
            which,
            id: header(webhook::ID_HEADER),
            timestamp: header(webhook::TIMESTAMP_HEADER),
            body: request.body.clone().unwrap_or_default().to_vec(),
            is_signed: true,
            is_taken,
            answered: None,
            signature: header(webhook::SIGNATURE_HEADER),
            is_unverified: true,
        };
        note_told(&String::from_utf8_lossy(&heard.body));
        let mut inner = self.receivers.inner();
        if let Some(known) = inner.secrets.get(&which) {
            heard.verify(known);
        }
        inner.log.push(heard);
        inner.log.len() - 1
    }

    async fn answer(&self, manner: Manner, request: &HttpRequest) -> Result<HttpReply, DialError> {
        let deadline_ms = u64::try_from(request.deadline.as_millis()).unwrap_or(u64::MAX);
        let timed_out = Err(DialError::TimedOut { deadline_ms });
        match manner {
            Manner::Good => Ok(reply(200)),
            Manner::Slow(ms) => {
                marks::hit("receiver_slow");
                let span = Duration::from_millis(u64::from(ms));
                self.clock.sleep(span.min(request.deadline / 2)).await;
                Ok(reply(200))
            }
            Manner::Late => {
                marks::hit("receiver_late_200");
                self.clock.sleep(request.deadline).await;
                timed_out
            }
            Manner::Drip => {
                self.clock.sleep(request.deadline).await;
                timed_out
            }
            Manner::Cut | Manner::Forgetful => Err(broken()),
            Manner::Status(status) => {
                if status == 429 {
                    marks::hit("receiver_429");
                }
                Ok(reply(status))
            }
            Manner::Redirect => {
                marks::hit("receiver_redirect");
                Ok(reply(302))
            }
            Manner::RetryAfter(secs) => {
                marks::hit("receiver_429");
                Ok(HttpReply {
                    retry_after_secs: Some(u64::from(secs)),
                    ..reply(429)
                })
            }
            Manner::Gone => {
                marks::hit("receiver_410");
                Ok(reply(410))
            }
            // As much as is read of it.
            Manner::Huge => Ok(HttpReply {
                body: vec![b'x'; request.body_bytes_max].into(),
                ..reply(200)
            }),
            Manner::Dead => unreachable!("nobody listens"),
        }
    }
}
