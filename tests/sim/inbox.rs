//! Senders of webhooks: good ones, forgers, and those that say it again.

use crate::clients::{Answer, Pending, Promise, Request};
use crate::life::Life;
use crate::marks;
use crate::script::WebhookAct;
use crate::setting::{SOURCES, source_key};
use crate::world::Touched;
use creditd::webhook::{self, Key};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Further back than any source may be.
const STALE_SECS: i64 = 3_600;

/// What its sender means by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Honest,
    /// The same id, another content.
    Other,
    /// Not signed by the source.
    Forged,
    /// A recording of long ago.
    Stale,
}

#[derive(Debug)]
struct Sent {
    source: &'static str,
    event: String,
    body: String,
    meaning: Meaning,
    pending: Option<Pending>,
    answer: Option<Answer>,
    /// How often an older database came back before.
    era: u32,
}

impl Sent {
    /// What a 200 says has become of it.
    fn outcome(&self) -> Option<String> {
        let told = self.answer.as_ref().filter(|answer| answer.is_done())?.json();
        told["outcome"].as_str().map(str::to_owned)
    }
}

/// All senders, with what they remember.
#[derive(Debug, Default)]
pub struct Senders {
    sent: Vec<Sent>,
    era: u32,
    /// What came in before may be in no older database.
    promised_from: usize,
}

impl Senders {
    /// An older database is back.
    pub fn restored(&mut self) {
        self.era += 1;
        self.promised_from = self.sent.len();
    }

    /// Whoever waits for an answer of this life waits in vain.
    pub fn life_ended(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.pending = None);
    }

    pub fn act(&mut self, act: WebhookAct, life: &Life) -> Option<Touched> {
        let count = self.sent.len();
        match act {
            WebhookAct::Good { n } => {
                let source = SOURCES[usize::from(n) % SOURCES.len()];
                self.send(life, source, format!("evt_{n}"), content(n, 500), Meaning::Honest)
            }
            WebhookAct::Again { of } => {
                let sent = self.of(of, &[Meaning::Honest, Meaning::Other])?;
                let (source, event, body, meaning) =
                    (sent.source, sent.event.clone(), sent.body.clone(), sent.meaning);
                self.send(life, source, event, body, meaning)
            }
            WebhookAct::OtherContent { of } => {
                let sent = self.of(of, &[Meaning::Honest])?;
                let (source, event) = (sent.source, sent.event.clone());
                let body = sent.body.replace("500", "501");
                self.send(life, source, event, body, Meaning::Other)
            }
            WebhookAct::Forged => {
                let event = format!("evt_forged_{count}");
                self.send(life, SOURCES[0], event, content(200, 9_000), Meaning::Forged)
            }
            WebhookAct::Stale => {
                let event = format!("evt_stale_{count}");
                self.send(life, SOURCES[0], event, content(201, 9_000), Meaning::Stale)
            }
            WebhookAct::OtherIdSameEvent => {
                let sent = self.of(u32::try_from(count).ok()?, &[Meaning::Honest])?;
                let (source, body) = (sent.source, sent.body.clone());
                self.send(life, source, format!("evt_again_{count}"), body, Meaning::Honest)
            }
        }
    }

    /// That one of those that mean such.
    fn of(&self, of: u32, meant: &[Meaning]) -> Option<&Sent> {
        let fits = |sent: &&Sent| meant.contains(&sent.meaning);
        let all: Vec<&Sent> = self.sent.iter().filter(fits).collect();
        all.get(of as usize % all.len().max(1)).copied()
    }

    fn send(
        &mut self,
        life: &Life,
        source: &'static str,
        event: String,
        body: String,
        meaning: Meaning,
    ) -> Option<Touched> {
        let now_secs = life.now_ms().div_euclid(1_000);
        let (key, at_secs) = match meaning {
            Meaning::Honest | Meaning::Other => (source_key(source), now_secs),
            Meaning::Forged => (Key::shared(&[0x66; 32]).ok()?, now_secs),
            Meaning::Stale => (source_key(source), now_secs - STALE_SECS),
        };
        let signed = webhook::headers(&event, at_secs, body.as_bytes(), &[key]).ok()?;
        let request = Request {
            method: "POST",
            path: format!("/v1/inbox/{source}"),
            headers: signed.into_iter().collect(),
            body: body.clone(),
        };
        let pending = Some(life.ask(request));
        self.sent.push(Sent {
            source,
            event: event.clone(),
            body,
            meaning,
            pending,
            answer: None,
            era: self.era,
        });
        Some(format!("{source} says {event}: {meaning:?}"))
    }

    /// Sends everything that came in again, as a source does that has lost our answers.
    pub fn all_again(&mut self, life: &Life) {
        // What never came in would be news.
        let is_in = |sent: &&Sent| sent.answer.as_ref().is_some_and(|answer| answer.status == 200);
        let since = self.sent.get(self.promised_from..).unwrap_or_default();
        let known = since.iter().filter(is_in);
        let again: Vec<_> = known
            .map(|sent| (sent.source, sent.event.clone(), sent.body.clone(), sent.meaning))
            .collect();
        for (source, event, body, meaning) in again {
            self.send(life, source, event, body, meaning);
        }
    }

    /// Takes in the answers that are there.
    pub fn collect(&mut self) {
        for sent in &mut self.sent {
            let Some(answer) = sent.pending.as_ref().and_then(Pending::take) else {
                continue;
            };
            sent.pending = None;
            let told = answer.json();
            match (answer.status, told["outcome"].as_str(), told["code"].as_str()) {
                (200, Some("duplicate"), _) => marks::hit("inbox_again"),
                (200, Some("set_aside"), _) => marks::hit("inbox_set_aside"),
                (401, _, Some("bad_signature")) => marks::hit("inbox_forged"),
                (401, _, Some("stale_time")) => marks::hit("inbox_stale"),
                _ => {}
            }
            sent.answer = Some(answer);
        }
    }

    /// I17: what the answers say against it.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = vec![];
        for sent in &self.sent {
            let Some(answer) = &sent.answer else { continue };
            let is_refused = answer.status == 401;
            let must_be = matches!(sent.meaning, Meaning::Forged | Meaning::Stale);
            // A full disk and a database that waits for another writer are told as 503.
            if is_refused != must_be && answer.status != 503 {
                wrong.push(format!(
                    "{} of {}, {:?}: {} {}",
                    sent.event,
                    sent.source,
                    sent.meaning,
                    answer.status,
                    String::from_utf8_lossy(&answer.body)
                ));
            }
        }
        wrong.extend(self.mixed_up());
        wrong
    }

    /// One content is an event's own, whichever came in first, and every other one is set aside, each time.
    fn mixed_up(&self) -> Vec<String> {
        let mut own: BTreeMap<_, &str> = BTreeMap::new();
        let mut aside = BTreeSet::new();
        let mut wrong = vec![];
        for sent in &self.sent {
            let event = (sent.era, sent.source, sent.event.as_str());
            let of = format!("{} of {}", sent.event, sent.source);
            match sent.outcome().as_deref() {
                Some("set_aside") => {
                    aside.insert((event, sent.body.as_str()));
                }
                Some(outcome @ ("accepted" | "duplicate")) => {
                    let known = *own.entry(event).or_insert(&sent.body);
                    if known != sent.body {
                        wrong.push(format!(
                            "{of}: {outcome}, though {known} is its content: {}",
                            sent.body
                        ));
                    }
                }
                _ => {}
            }
        }
        let both = own
            .iter()
            .filter(|(event, body)| aside.contains(&(**event, **body)));
        wrong.extend(
            both.map(|((_, source, event), _)| format!("{event} of {source}: its content is set aside")),
        );
        wrong
    }

    /// Events that nothing may be stored of, by source and id.
    pub fn not_believed(&self) -> BTreeSet<(&'static str, String)> {
        let bad = self
            .sent
            .iter()
            .filter(|sent| matches!(sent.meaning, Meaning::Forged | Meaning::Stale));
        bad.map(|sent| (sent.source, sent.event.clone())).collect()
    }

    /// Events that were answered with 200: they are stored, whatever happens.
    pub fn promises(&self) -> Vec<Promise> {
        let since = self.sent.get(self.promised_from..).unwrap_or_default();
        let is_done = |sent: &&Sent| sent.answer.as_ref().is_some_and(Answer::is_done);
        let good = since.iter().filter(is_done);
        good.map(|sent| Promise::Webhook(sent.source, sent.event.clone()))
            .collect()
    }
}

fn content(number: u8, amount: u32) -> String {
    json!({"payment": format!("pay_{number}"), "amount": amount}).to_string()
}
