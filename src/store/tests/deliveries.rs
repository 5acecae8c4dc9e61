//! Leasing and settling: order within a subject, patience with a poison message, room for those who answer.

use super::Scratch;
use crate::store::{Attempt, Database, Leased, Outcome, Room, Share, StoreError};
use crate::webhook::Key;

const LEASE_MS: i64 = 30_000;
const PATIENCE_MS: i64 = 900_000;

/// A database with endpoints of one merchant, and a time that only these tests move.
struct Desk {
    database: Database,
    endpoints: Vec<String>,
    now: i64,
    _scratch: Scratch,
}

impl Desk {
    fn with_endpoints(count: usize) -> Desk {
        let (scratch, mut database) = Scratch::new();
        let key = Key::shared(&[7; 32]).unwrap();
        let endpoints = (0..count)
            .map(|n| {
                let url = format!("https://shop{n}.example/hook");
                let added = database.write(0, |tx| tx.add_endpoint(Some("shop"), &url, "*", &key));
                added.unwrap().0.id
            })
            .collect();
        Desk {
            database,
            endpoints,
            now: 1_000_000,
            _scratch: scratch,
        }
    }

    fn event(&mut self, id: &str, subject: &str, sequence: i64) {
        let event = |tx: &mut crate::store::WriteTx<'_>| {
            let seq: i64 = tx.conn().query_row(
                "INSERT INTO events (id, subject, sequence, type, merchant, at, body) \
                 VALUES (?1, ?2, ?3, 'credit.created', 1, 0, '{}') RETURNING seq",
                rusqlite::params![id, subject, sequence],
                |row| row.get(0),
            )?;
            tx.queue_event(seq, "credit.created", subject, Some(1))
        };
        self.database.write(self.now, event).unwrap();
    }

    fn lease(&mut self) -> Vec<Leased> {
        self.lease_in(Room {
            all: 100,
            extra: 100,
            suspect: 50,
        })
    }

    fn lease_in(&mut self, room: Room) -> Vec<Leased> {
        let leasing = |tx: &mut crate::store::WriteTx<'_>| tx.lease(room, LEASE_MS, PATIENCE_MS, 0);
        self.database.write(self.now, leasing).unwrap().0
    }

    fn settle(&mut self, message: &Leased, outcome: Outcome) {
        let attempt = Attempt {
            delivery: message.delivery,
            number: message.attempt,
            at: self.now,
            took_ms: 1,
            outcome,
            reply: Vec::new(),
        };
        self.database.write(self.now, |tx| tx.settle(&attempt)).unwrap();
    }

    fn state(&self, event: &str) -> String {
        let query = "SELECT d.state FROM deliveries d JOIN events v ON v.seq = d.event WHERE v.id = ?1";
        self.database
            .read(|tx| Ok(tx.conn().query_row(query, [event], |row| row.get(0))?))
            .unwrap()
    }
}

fn ids(leased: &[Leased]) -> Vec<&str> {
    leased.iter().map(|message| message.event.as_str()).collect()
}

const DELIVERED: Outcome = Outcome::Delivered { status: 204 };

fn refused(status: u16) -> Outcome {
    Outcome::Refused {
        status,
        retry_after_secs: None,
    }
}

#[test]
fn a_subject_keeps_its_order_and_others_do_not_wait_for_it() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("a1", "a", 1);
    desk.event("a2", "a", 2);
    desk.event("b1", "b", 1);
    let leased = desk.lease();
    assert_eq!(ids(&leased), ["a1", "b1"]);
    assert_eq!(
        ids(&desk.lease()),
        [""; 0],
        "what is on its way is not sent twice"
    );
    desk.settle(&leased[0], DELIVERED);
    assert_eq!(ids(&desk.lease()), ["a2"]);
    assert_eq!(desk.state("a1"), "delivered");
}

#[test]
fn poison_holds_back_a_reversal_for_three_tries_only() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("poison", "a", 1);
    desk.event("reversal", "a", 2);
    // Together shorter than the patience: it is the number of tries that lets the next one pass.
    for wait_ms in [10_000, 400_000, 0] {
        let leased = desk.lease();
        assert_eq!(ids(&leased), ["poison"]);
        desk.settle(&leased[0], refused(422));
        desk.now += wait_ms;
    }
    let leased = desk.lease();
    assert_eq!(ids(&leased), ["reversal"]);
    desk.settle(&leased[0], DELIVERED);
    desk.now += 3_000_000;
    assert_eq!(ids(&desk.lease()), ["poison"], "it goes on by itself");
}

#[test]
fn patience_ends_by_time_too() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("slow", "a", 1);
    let leased = desk.lease();
    desk.settle(
        &leased[0],
        Outcome::Refused {
            status: 503,
            retry_after_secs: Some(7_200),
        },
    );
    desk.event("newer", "a", 2);
    desk.now += PATIENCE_MS - 1;
    assert_eq!(ids(&desk.lease()), [""; 0]);
    desk.now += 1;
    assert_eq!(ids(&desk.lease()), ["newer"]);
}

#[test]
fn an_endpoint_that_does_not_answer_gets_one_at_a_time() {
    let mut desk = Desk::with_endpoints(2);
    for n in 0..20 {
        desk.event(&format!("e{n}"), &format!("s{n}"), 1);
    }
    let leased = desk.lease();
    assert_eq!(leased.len(), 16, "eight for each");
    let (dead, alive) = (desk.endpoints[0].clone(), desk.endpoints[1].clone());
    for message in &leased {
        let why = "connection refused".to_owned();
        let outcome = if message.endpoint == dead {
            Outcome::Unanswered { why }
        } else {
            DELIVERED
        };
        desk.settle(message, outcome);
    }
    let leased = desk.lease();
    let of = |id: &str| leased.iter().filter(|message| message.endpoint == id).count();
    assert_eq!((of(&dead), of(&alive)), (1, 8));
    assert!(
        leased
            .iter()
            .any(|message| message.endpoint == dead && message.share == Share::Suspect)
    );
    let probe = leased
        .iter()
        .find(|message| message.endpoint == dead)
        .unwrap()
        .clone();
    desk.settle(&probe, DELIVERED);
    assert!(desk.lease().len() > 1, "an answer makes it healthy again");
}

#[test]
fn every_endpoint_has_a_claim_to_one_and_what_goes_beyond_shares_a_part() {
    let mut desk = Desk::with_endpoints(3);
    for n in 0..20 {
        desk.event(&format!("e{n}"), &format!("s{n}"), 1);
    }
    let room = Room {
        all: 100,
        extra: 5,
        suspect: 50,
    };
    let leased = desk.lease_in(room);
    let of = |share| leased.iter().filter(|message| message.share == share).count();
    assert_eq!((of(Share::First), of(Share::Extra)), (3, 5));
    let none = Room { extra: 0, ..room };
    assert_eq!(ids(&desk.lease_in(none)), [""; 0], "all have one on its way");
    let last = desk.endpoints[2].clone();
    let only = leased.iter().find(|message| message.endpoint == last).unwrap();
    desk.settle(only, DELIVERED);
    let leased = desk.lease_in(none);
    assert_eq!((leased.len(), leased[0].endpoint.as_str()), (1, last.as_str()));
}

#[test]
fn ten_failures_park_a_message_and_a_replay_sends_the_same_one() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("m", "a", 1);
    for attempt in 1..=10 {
        let leased = desk.lease();
        assert_eq!((ids(&leased), leased[0].attempt), (vec!["m"], attempt));
        desk.settle(&leased[0], refused(500));
        desk.now += 200_000_000;
    }
    assert_eq!(
        (desk.state("m").as_str(), ids(&desk.lease()).len()),
        ("parked", 0)
    );
    let endpoint = desk.endpoints[0].clone();
    let again = |desk: &mut Desk| {
        desk.database
            .write(desk.now, |tx| tx.retry_delivery("m", &endpoint, "asked"))
            .unwrap()
    };
    assert_eq!(
        (again(&mut desk), again(&mut desk)),
        (true, false),
        "given twice it acts once"
    );
    let leased = desk.lease();
    assert_eq!((ids(&leased), leased[0].body.as_str()), (vec!["m"], "{}"));
    // It begins the ladder anew, beside the story of its first life.
    assert_eq!(leased[0].attempt, 11);
    desk.settle(&leased[0], refused(500));
    assert_eq!(desk.state("m"), "waiting");
    let attempts = desk.database.read(|tx| tx.attempts("m", &endpoint)).unwrap();
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    assert!(again(&mut desk), "one that waits after a failure goes at once");
    assert!(!again(&mut desk));
    for attempt in 12..=21 {
        let leased = desk.lease();
        assert_eq!((ids(&leased), leased[0].attempt), (vec!["m"], attempt));
        desk.settle(&leased[0], refused(500));
        desk.now += 200_000_000;
    }
    assert_eq!(desk.state("m"), "parked", "ten tries more");
}

#[test]
fn a_replay_keeps_its_place_before_newer_ones() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("m", "a", 1);
    for _ in 0..3 {
        let leased = desk.lease();
        desk.settle(&leased[0], refused(422));
        desk.now += 2_000_000;
    }
    let endpoint = desk.endpoints[0].clone();
    desk.event("n", "a", 2);
    let retry = |tx: &mut crate::store::WriteTx<'_>| tx.retry_delivery("m", &endpoint, "asked");
    assert!(desk.database.write(desk.now, retry).unwrap());
    let leased = desk.lease();
    assert_eq!(ids(&leased), ["m"]);
    desk.settle(&leased[0], refused(422));
    assert_eq!(ids(&desk.lease()), [""; 0], "its tries are counted anew");
}

#[test]
fn a_lease_that_is_over_comes_back_and_a_late_answer_settles_nothing() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("m", "a", 1);
    let lost = desk.lease();
    desk.now += LEASE_MS - 1;
    assert_eq!(ids(&desk.lease()), [""; 0]);
    assert_eq!(
        desk.database.read(|tx| tx.next_delivery_at()).unwrap(),
        Some(desk.now + 1)
    );
    desk.now += 1;
    let again = desk.lease();
    assert_eq!((ids(&again), again[0].attempt), (vec!["m"], 2));
    desk.settle(&lost[0], refused(500));
    assert_eq!(desk.state("m"), "leased");
    desk.settle(&again[0], DELIVERED);
    assert_eq!(desk.state("m"), "delivered");
}

#[test]
fn a_lease_at_a_paused_endpoint_comes_back_and_waits() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("m", "a", 1);
    desk.lease();
    let endpoint = desk.endpoints[0].clone();
    let pause = |tx: &mut crate::store::WriteTx<'_>| tx.pause_endpoint(&endpoint, "moving", "operator");
    desk.database.write(desk.now, pause).unwrap();
    desk.now += LEASE_MS;
    assert_eq!(
        desk.database.read(|tx| tx.next_delivery_at()).unwrap(),
        Some(desk.now)
    );
    assert_eq!(ids(&desk.lease()), [""; 0]);
    assert_eq!(desk.state("m"), "waiting");
    assert_eq!(
        desk.database.read(|tx| tx.next_delivery_at()).unwrap(),
        None,
        "nothing to wake for"
    );
}

#[test]
fn gone_pauses_and_keeps_queueing() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("m", "a", 1);
    let leased = desk.lease();
    desk.settle(&leased[0], Outcome::Gone);
    desk.event("n", "b", 1);
    desk.now += 10_000_000;
    assert_eq!(ids(&desk.lease()), [""; 0]);
    let endpoint = desk.endpoints[0].clone();
    assert!(
        desk.database
            .write(desk.now, |tx| tx.resume_endpoint(&endpoint, "receiver is back"))
            .unwrap()
    );
    assert_eq!(ids(&desk.lease()), ["n", "m"]);
}

#[test]
fn an_answer_that_comes_after_a_restart_settles_nothing() {
    let mut desk = Desk::with_endpoints(1);
    desk.event("m", "a", 1);
    let before = desk.lease();
    assert_eq!(desk.database.write(desk.now, |tx| tx.return_leases()).unwrap(), 1);
    let after = desk.lease();
    assert_eq!((ids(&after), after[0].attempt), (vec!["m"], 2));
    desk.settle(&before[0], DELIVERED);
    assert_eq!(desk.state("m"), "leased", "the first attempt's lease is over");
    desk.settle(&after[0], DELIVERED);
    desk.settle(&after[0], refused(500));
    assert_eq!(desk.state("m"), "delivered");
}

/// A receiver that refuses everything has thousands blocked behind its first ones: each is held against its
/// own subject only.
#[test]
fn what_is_due_is_found_by_subject() {
    let desk = Desk::with_endpoints(1);
    let plan = format!("EXPLAIN QUERY PLAN {}", crate::store::deliveries::DUE_IN_ORDER);
    let mut statement = desk.database.conn.prepare(&plan).unwrap();
    let rows = statement.query_map(rusqlite::params![1, 0, 0, 0, 1], |row| row.get::<_, String>(3));
    let lines: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
    let wanted = "SEARCH o USING INDEX deliveries_in_order (endpoint=? AND subject=?)";
    assert!(lines.iter().any(|line| line.starts_with(wanted)), "{lines:#?}");
}

/// Each event is queued for every endpoint in its own transaction: a merchant's number has an end.
#[test]
fn a_merchant_has_so_many_endpoints_and_no_more() {
    let mut desk = Desk::with_endpoints(1_000);
    let key = Key::shared(&[7; 32]).unwrap();
    let mut add = |merchant, number: u32| {
        let url = format!("https://shop{number}.example/hook");
        let added = desk
            .database
            .write(0, |tx| tx.add_endpoint(merchant, &url, "*", &key));
        added.map(|(_, is_new)| is_new)
    };
    let refused = add(Some("shop"), 1_000).unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
    assert!(!add(Some("shop"), 999).unwrap(), "what is there is found");
    assert!(add(Some("other"), 0).unwrap());
    assert!(add(None, 0).unwrap());
}
