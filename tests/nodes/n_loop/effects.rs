//! What is there twice or not at all after a story, counted: in the books, at the receiver, and in the hands
//! of the merchant who asked twice.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What somebody was paid with: transaction and output.
pub type Outpoint = (String, u64);

/// Events of which a subject has one, whatever happened in between.
const ONCE: [&str; 3] = ["credit.created", "invoice.created", "invoice.cancelled"];

/// An event as the books have it.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: String,
    pub kind: String,
    pub body: String,
}

/// What a story has left.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Every credit with its net.
    pub credits: Vec<(Outpoint, u64)>,
    pub events: Vec<Event>,
    /// Ids and bodies as they came to the receiver.
    pub heard: Vec<(String, Vec<u8>)>,
    /// What was answered under the one key.
    pub answers: BTreeSet<String>,
    /// The invoice that was cancelled under it.
    pub cancelled: String,
}

/// Effects that are there twice, and those that are gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub double: Vec<String>,
    pub lost: Vec<String>,
}

impl Left {
    /// Holds what is left against what was paid: the net of every credit that there must be.
    pub fn against(&self, paid: &BTreeMap<Outpoint, u64>) -> Effects {
        let mut effects = Effects::default();
        effects.book("the books", &self.credits, paid);
        effects.book("the receiver", &self.heard_credits(), paid);
        effects.tell(self);
        effects.answer(self);
        effects
    }

    /// The book of a receiver that keeps of each credit what came with the highest version.
    fn heard_credits(&self) -> Vec<(Outpoint, u64)> {
        let mut newest: BTreeMap<String, (u64, Outpoint, u64)> = BTreeMap::new();
        for (_, body) in &self.heard {
            let body: Value = serde_json::from_slice(body).unwrap();
            let data = &body["data"];
            let Some(credit) = data["credit"]
                .as_str()
                .filter(|_| kind(&body).starts_with("credit."))
            else {
                continue;
            };
            let version = data["version"].as_u64().unwrap();
            let deposit = &data["deposit"];
            let of = (
                deposit["txid"].as_str().unwrap().to_owned(),
                deposit["vout"].as_u64().unwrap(),
            );
            let net = data["net_base"].as_str().unwrap().parse().unwrap();
            if newest.get(credit).is_none_or(|known| known.0 < version) {
                newest.insert(credit.to_owned(), (version, of, net));
            }
        }
        newest.into_values().map(|(_, of, net)| (of, net)).collect()
    }
}

fn kind(body: &Value) -> &str {
    body["type"].as_str().unwrap()
}

impl Effects {
    fn book(&mut self, whose: &str, credits: &[(Outpoint, u64)], paid: &BTreeMap<Outpoint, u64>) {
        let mut found: BTreeMap<&Outpoint, Vec<u64>> = BTreeMap::new();
        for (of, net) in credits {
            found.entry(of).or_default().push(*net);
        }
        for (of, nets) in &found {
            let (net, due) = (nets.iter().sum::<u64>(), paid.get(of));
            let line = format!("{whose}: {of:?} has {nets:?}, not {due:?}");
            match due {
                Some(due) if net < *due => self.lost.push(line),
                Some(due) if net == *due && nets.len() == 1 => {}
                _ => self.double.push(line),
            }
        }
        let missing = paid.keys().filter(|of| !found.contains_key(of));
        self.lost
            .extend(missing.map(|of| format!("{whose}: no credit for {of:?}")));
    }

    /// Every event is told, with one body; nothing is told that is no event; and no two are the same.
    fn tell(&mut self, left: &Left) {
        let mut bodies: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
        for (id, body) in &left.heard {
            bodies.entry(id).or_default().insert(body);
        }
        let (mut once, mut versions) = (BTreeSet::new(), BTreeSet::new());
        for event in &left.events {
            let Event { id, kind, body } = event;
            match bodies.remove(id.as_str()) {
                None => self.lost.push(format!("{kind} {id} was never told")),
                Some(bodies) if bodies != BTreeSet::from([body.as_bytes()]) => {
                    self.double
                        .push(format!("{kind} {id} was told with other bodies"));
                }
                Some(_) => {}
            }
            let data = serde_json::from_str::<Value>(body).unwrap()["data"].take();
            let family = kind.split('.').next().unwrap();
            let subject = match &data[family] {
                Value::Object(fields) => fields["id"].to_string(),
                id => id.to_string(),
            };
            if ONCE.contains(&kind.as_str()) && !once.insert((kind, subject.clone())) {
                self.double.push(format!("{kind} of {subject} once more"));
            }
            // Deposits have none.
            let version = data["version"].as_u64();
            if version.is_some() && !versions.insert((family, subject.clone(), version)) {
                self.double
                    .push(format!("{kind}: a version of {subject} once more"));
            }
        }
        let gone = bodies.into_keys();
        self.lost
            .extend(gone.map(|id| format!("{id} was told and is not in the books")));
    }

    fn answer(&mut self, left: &Left) {
        if left.answers.len() > 1 {
            self.double
                .push(format!("one key, several answers: {:?}", left.answers));
        }
        let is_cancel =
            |event: &&Event| event.kind == "invoice.cancelled" && event.body.contains(&left.cancelled);
        if left.answers.is_empty() || !left.events.iter().any(|event| is_cancel(&event)) {
            self.lost.push("the request".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: &str, kind: &str, data: Value) -> Event {
        Event {
            id: id.to_owned(),
            kind: kind.to_owned(),
            body: json!({"type": kind, "data": data}).to_string(),
        }
    }

    fn credit(id: &str, kind: &str, version: u64, net: u64) -> Event {
        let deposit = json!({"txid": "aa", "vout": 0});
        let data =
            json!({"credit": "cr_1", "version": version, "net_base": net.to_string(), "deposit": deposit});
        event(id, kind, data)
    }

    fn hear(left: &mut Left, event: &Event) {
        left.heard
            .push((event.id.clone(), event.body.clone().into_bytes()));
    }

    fn whole() -> (Left, BTreeMap<Outpoint, u64>) {
        let mut left = Left {
            credits: vec![(("aa".to_owned(), 0), 7)],
            events: vec![
                credit("e1", "credit.created", 1, 7),
                credit("e2", "credit.reversed", 2, 0),
                credit("e3", "credit.reinstated", 3, 7),
                event(
                    "e4",
                    "invoice.cancelled",
                    json!({"invoice": "inv_1", "version": 1}),
                ),
            ],
            answers: BTreeSet::from(["cancelled".to_owned()]),
            cancelled: "inv_1".to_owned(),
            ..Left::default()
        };
        for event in left.events.clone() {
            hear(&mut left, &event);
        }
        (left, BTreeMap::from([(("aa".to_owned(), 0), 7)]))
    }

    #[test]
    fn what_is_twice_or_gone_is_counted() {
        let (left, paid) = whole();
        assert_eq!(left.against(&paid), Effects::default());
        type Spoil = fn(&mut Left);
        let rows: [(&str, [usize; 2], Spoil); 10] = [
            ("a second credit", [1, 0], |left| {
                left.credits.push((("aa".to_owned(), 0), 7))
            }),
            ("a credit for nothing", [1, 0], |left| {
                left.credits.push((("bb".to_owned(), 0), 7));
            }),
            ("no credit", [0, 1], |left| left.credits.clear()),
            ("too little", [0, 1], |left| left.credits[0].1 = 0),
            // The receiver's book ends below, too.
            ("never told", [0, 2], |left| drop(left.heard.remove(2))),
            ("an event that is gone", [0, 1], |left| {
                drop(left.events.remove(2))
            }),
            ("another body", [1, 0], |left| {
                left.heard.push(("e4".to_owned(), left.heard[0].1.clone()));
            }),
            ("a version twice", [2, 0], |left| {
                let again = credit("e5", "credit.created", 1, 7);
                hear(left, &again);
                left.events.push(again);
            }),
            ("two answers", [1, 0], |left| {
                left.answers.insert("other".to_owned());
            }),
            ("no answer", [0, 1], |left| left.answers.clear()),
        ];
        for (what, counts, spoil) in rows {
            let (mut left, paid) = whole();
            spoil(&mut left);
            let found = left.against(&paid);
            assert_eq!(
                [found.double.len(), found.lost.len()],
                counts,
                "{what}: {found:?}"
            );
        }
    }
}
