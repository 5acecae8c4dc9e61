//! What receivers were told: one body under one id, signed, in time, and settled only by their own word.

use super::{Checks, Fault};
use crate::disk::Folder;
use crate::receivers::{Heard, Receivers};
use crate::script::Manner;
use crate::setting::CALLBACKS;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What was heard so far.
#[derive(Debug, Default)]
pub struct Told {
    seen: usize,
    /// The body of each id.
    bodies: BTreeMap<String, Vec<u8>>,
    /// The id of each version of each subject, by type.
    ids: BTreeMap<(String, u64, String), String>,
    /// What each version of each subject said, restores included.
    said: BTreeMap<(String, u64), Vec<u8>>,
    /// Which id was answered with a 2xx where.
    taken: BTreeSet<(String, u8)>,
}

/// What waits for receivers that answer at once, and for how long: by its number, in time that passed.
#[derive(Debug, Default)]
pub struct Queue {
    passed: Duration,
    since: BTreeMap<i64, Duration>,
}

/// A receiver that answers at once is served within this, whatever the others do.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

impl Checks {
    /// Something else than other receivers may be in the way of callbacks, or was: they wait from now on.
    pub fn disturbed(&mut self) {
        self.queue.since.clear();
    }

    /// I29: receivers that answer at once are served, while others do not.
    pub fn served(
        &mut self,
        folder: &Folder,
        receivers: &Receivers,
        (span, now_ms): (Duration, i64),
    ) -> Result<(), Fault> {
        self.queue.passed += span;
        if !receivers.is_any_bad() || crate::disk::is_full() {
            self.disturbed();
            return Ok(());
        }
        // Nothing of its endpoint is on its way, and nothing of its subject has to come first.
        let sql = format!(
            "SELECT d.id, e.id, p.url FROM deliveries d JOIN endpoints p ON p.id = d.endpoint \
             JOIN events e ON e.seq = d.event \
             WHERE d.state = 'waiting' AND d.attempts = 0 AND d.next_at <= {now_ms} \
             AND p.failures = 0 AND p.paused_reason IS NULL AND NOT EXISTS \
             (SELECT 1 FROM deliveries o WHERE o.endpoint = d.endpoint AND (o.state = 'leased' \
              OR (o.state = 'waiting' AND o.subject = d.subject AND o.event < d.event)))"
        );
        let due = self.eyes(folder).tables.rows(&sql, |row| {
            let (number, event, url): (i64, String, String) =
                (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap());
            (number, event, url)
        });
        let good = |url: &str| {
            let which = crate::setting::receiver_of(url);
            which.filter(|which| receivers.manner(*which) == Manner::Good)
        };
        let due: Vec<(i64, String, u8)> = due
            .into_iter()
            .filter_map(|(number, event, url)| Some((number, event, good(&url)?)))
            .collect();
        let Queue { passed, since } = &mut self.queue;
        since.retain(|number, _| due.iter().any(|(due, _, _)| due == number));
        for (number, event, which) in due {
            let waits = *passed - *since.entry(number).or_insert(*passed);
            if waits >= SERVED_WITHIN {
                let what = format!(
                    "{event} waits for {} s, and receiver {which} would answer at once",
                    waits.as_secs()
                );
                return Err(Fault::new("I29", what));
            }
        }
        Ok(())
    }

    /// I11 and I14, of each attempt that is new.
    pub fn hear(&mut self, receivers: &Receivers) -> Result<(), Fault> {
        let new = receivers.log_from(self.told.seen);
        for heard in new {
            // Its answer is not decided yet, maybe: it is looked at again.
            self.told.seen += 1;
            self.told.take(&heard)?;
        }
        Ok(())
    }

    /// I29: what is settled as delivered was taken by its receiver.
    pub fn delivered(&mut self, folder: &Folder, receivers: &Receivers) -> Result<(), Fault> {
        for heard in receivers.log() {
            // Where the same request may have made a second invoice, nobody was told its secret, maybe.
            let is_known = !self.are_secrets_lost && (heard.which < CALLBACKS || !self.is_forgotten);
            if is_known && !heard.is_signed {
                return Err(Fault::new("I14", format!("{} does not verify", heard.id)));
            }
            if heard.answered.is_some_and(|status| (200..300).contains(&status)) {
                self.told.taken.insert((heard.id.clone(), heard.which));
            }
        }
        let sql = "SELECT e.id, p.url FROM deliveries d JOIN events e ON e.seq = d.event \
                   JOIN endpoints p ON p.id = d.endpoint WHERE d.state = 'delivered'";
        let done = self.eyes(folder).tables.rows(sql, |row| {
            let (id, url): (String, String) = (row.get(0).unwrap(), row.get(1).unwrap());
            (id, url)
        });
        for (id, url) in done {
            let Some(which) = crate::setting::receiver_of(&url) else {
                continue;
            };
            if !self.told.taken.contains(&(id.clone(), which)) {
                let what = format!("{id} counts as delivered to receiver {which}, which never took it");
                return Err(Fault::new("I29", what));
            }
        }
        Ok(())
    }
}

impl Told {
    /// After a restored backup everything is told anew, in other words maybe.
    pub fn new_generation(&mut self) {
        self.bodies.clear();
    }

    fn take(&mut self, heard: &Heard) -> Result<(), Fault> {
        let known = self
            .bodies
            .entry(heard.id.clone())
            .or_insert_with(|| heard.body.clone());
        if *known != heard.body {
            return Err(Fault::new("I11", format!("{} has two bodies", heard.id)));
        }
        let body: serde_json::Value = serde_json::from_slice(&heard.body).unwrap_or_default();
        let subject = ["credit", "deposit", "invoice"]
            .iter()
            .find_map(|what| body["data"][what].as_str());
        let (Some(subject), Some(version)) = (subject, body["data"]["version"].as_u64()) else {
            return Ok(());
        };
        let kind = body["type"].as_str().unwrap_or_default().to_owned();
        let known = self
            .ids
            .entry((subject.to_owned(), version, kind))
            .or_insert_with(|| heard.id.clone());
        if *known != heard.id {
            let what = format!("version {version} of {subject} is {known} and {}", heard.id);
            return Err(Fault::new("I11", what));
        }
        let said = self
            .said
            .entry((subject.to_owned(), version))
            .or_insert_with(|| heard.body.clone());
        match *said == heard.body {
            true => Ok(()),
            false => Err(Fault::new(
                "I24",
                format!("version {version} of {subject} came again with another content"),
            )),
        }
    }
}
