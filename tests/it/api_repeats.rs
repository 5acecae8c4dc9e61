//! Every POST that `/openapi.json` describes: from fifty clients at once, three times each, and across kills
//! of the daemon. A POST without a row in [`POSTS`] fails here.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use creditd::clock::Clock;
use creditd::store::{Database, OpenMode};
use serde_json::json;

use crate::api_once::{is_replayed, locked, wait_queued};
use crate::common::api::{Client, Reply, connect, fill_pool, read_reply, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::inbox::{SECRET, SOURCES, signed};
use crate::tables::Tables;

const CLIENTS: usize = 50;

/// What a POST is about: made anew for each time, and named by a tag of its own.
struct Target {
    tag: String,
    invoice: String,
    event: String,
    /// Endpoints: one that runs, one that is paused, one that gets no event of an invoice by itself.
    running: String,
    paused: String,
    aside: String,
}

/// One POST: its path in the description, a request of it, and what it does once, each a question with its
/// answer.
struct Post {
    route: &'static str,
    path: fn(&Target) -> String,
    body: fn(&Target) -> String,
    effects: fn(&Target) -> Vec<(String, i64)>,
}

fn audited(action: &str, actor: &str, cause: &str) -> String {
    format!(
        "SELECT count(*) FROM audit WHERE action = '{action}' AND actor = '{actor}' AND cause LIKE '{cause}%'"
    )
}

const POSTS: [Post; 10] = [
    Post {
        route: "/v1/invoices",
        path: |_| "/v1/invoices".to_owned(),
        body: |at| json!({"asset": "BTC", "amount": "10", "reference": at.tag}).to_string(),
        effects: |at| {
            let made = format!("FROM invoices WHERE reference = '{}'", at.tag);
            let told = format!(
                "SELECT count(*) FROM events \
                 WHERE type = 'invoice.created' AND subject IN (SELECT inv_id {made})"
            );
            vec![(format!("SELECT count(*) {made}"), 1), (told, 1)]
        },
    },
    Post {
        route: "/v1/invoices/{id}/cancel",
        path: |at| format!("/v1/invoices/{}/cancel", at.invoice),
        body: |_| String::new(),
        effects: |at| {
            let told = "SELECT count(*) FROM events WHERE type = 'invoice.cancelled'";
            vec![(format!("{told} AND subject = '{}'", at.invoice), 1)]
        },
    },
    Post {
        route: "/v1/addresses",
        path: |_| "/v1/addresses".to_owned(),
        body: |at| json!({"chain": "btc", "reference": format!("{}-lasting", at.tag)}).to_string(),
        effects: |at| {
            let taken = "SELECT count(*) FROM addresses";
            vec![(format!("{taken} WHERE reference = '{}-lasting'", at.tag), 1)]
        },
    },
    Post {
        route: "/v1/endpoints",
        path: |_| "/v1/endpoints".to_owned(),
        body: |at| json!({"url": url(&at.tag, "added")}).to_string(),
        effects: |at| {
            let added = format!("FROM endpoints WHERE url = '{}'", url(&at.tag, "added"));
            let secrets = format!("FROM endpoint_secrets WHERE endpoint IN (SELECT id {added})");
            vec![
                (format!("SELECT count(*) {added}"), 1),
                (format!("SELECT count(*) {secrets}"), 1),
            ]
        },
    },
    Post {
        route: "/v1/endpoints/{id}/pause",
        path: |at| format!("/v1/endpoints/{}/pause", at.running),
        body: |_| json!({"reason": "moving"}).to_string(),
        effects: |at| vec![(audited("pause", "merchant", &at.running), 1)],
    },
    Post {
        route: "/v1/endpoints/{id}/resume",
        path: |at| format!("/v1/endpoints/{}/resume", at.paused),
        body: |_| String::new(),
        effects: |at| vec![(audited("resume", "merchant", &at.paused), 1)],
    },
    Post {
        route: "/v1/endpoints/{id}/rotate-secret",
        path: |at| format!("/v1/endpoints/{}/rotate-secret", at.aside),
        body: |_| json!({"overlap_hours": 1}).to_string(),
        effects: |at| {
            let secrets = "SELECT count(*) FROM endpoint_secrets s JOIN endpoints e ON e.id = s.endpoint";
            vec![(format!("{secrets} WHERE e.ep_id = '{}'", at.aside), 2)]
        },
    },
    Post {
        route: "/v1/endpoints/{id}/test",
        path: |at| format!("/v1/endpoints/{}/test", at.aside),
        body: |_| String::new(),
        effects: |at| {
            let told = "SELECT count(*) FROM events WHERE type = 'endpoint.test'";
            vec![
                (format!("{told} AND subject LIKE 'endpoint:{}:%'", at.aside), 1),
                (audited("test", "merchant", &at.aside), 1),
            ]
        },
    },
    Post {
        route: "/v1/events/{id}/replay",
        path: |at| format!("/v1/events/{}/replay", at.event),
        body: |at| json!({"endpoint": at.aside}).to_string(),
        effects: |at| {
            let queued = format!(
                "SELECT count(*) FROM deliveries d JOIN events v ON v.seq = d.event \
                 JOIN endpoints e ON e.id = d.endpoint WHERE v.id = '{}' AND e.ep_id = '{}'",
                at.event, at.aside
            );
            vec![(queued, 1), (audited("retry", "merchant", &at.event), 1)]
        },
    },
    Post {
        route: "/v1/inbox/{source}",
        path: |_| "/v1/inbox/p1".to_owned(),
        body: |at| json!({"id": at.tag, "payment": at.tag, "amount": 500}).to_string(),
        effects: |at| {
            let taken = format!("SELECT count(*) FROM inbox WHERE event_id = '{}'", at.tag);
            let done = format!("{taken} AND state = 'done'");
            let credits = "SELECT count(*) FROM credits".to_owned();
            vec![(taken, 1), (done, 1), (credits, at.number())]
        },
    },
];

impl Post {
    fn is_inbox(&self) -> bool {
        self.route.starts_with("/v1/inbox")
    }

    /// The whole request; always the same bytes.
    fn request(&self, shop: &Client, at: &Target, signed_at: i64) -> Vec<u8> {
        let (path, body) = ((self.path)(at), (self.body)(at));
        let head = match self.is_inbox() {
            true => {
                let [(name, value)] = <[_; 1]>::try_from(signed("p1", &body, signed_at)).unwrap();
                format!("{name}: {value}")
            }
            false => format!(
                "Authorization: Bearer {}\r\nIdempotency-Key: {}\r\nContent-Type: application/json",
                shop.key, at.tag
            ),
        };
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Does the reply say that it is the first one?
    fn acted(&self, reply: &Reply) -> bool {
        match self.is_inbox() {
            true => reply.body.contains("\"accepted\""),
            false => !is_replayed(reply),
        }
    }

    /// All of them are one answer; how many say that they acted. A source is told in the body which of its
    /// deliveries came first.
    #[track_caller]
    fn assert_one_answer(&self, replies: &[Reply]) -> usize {
        let said = |reply: &Reply| match self.is_inbox() {
            true => (reply.status, reply.body.replace("\"duplicate\"", "\"accepted\"")),
            false => (reply.status, reply.body.clone()),
        };
        for reply in replies {
            assert!((200..300).contains(&reply.status), "{}: {reply:?}", self.route);
            assert_eq!(said(reply), said(&replies[0]), "{}", self.route);
        }
        replies.iter().filter(|reply| self.acted(reply)).count()
    }

    #[track_caller]
    fn assert_done_once(&self, daemon: &Daemon, at: &Target) {
        for (question, answer) in (self.effects)(at) {
            // What an event of the inbox does is done by a job.
            if self.is_inbox() {
                wait_until(&question, PATIENCE, || {
                    (daemon.count(&question) >= answer).then_some(())
                });
            }
            assert_eq!(daemon.count(&question), answer, "{}: {question}", self.route);
        }
    }
}

fn url(tag: &str, what: &str) -> String {
    format!("http://127.0.0.1:9/{tag}/{what}")
}

impl Target {
    /// The number-th one of a daemon, from 1.
    fn new(daemon: &Daemon, shop: &Client, number: i64) -> Target {
        let tag = format!("time-{number}");
        let made = |what: &str, path: &str, body: &str| {
            let reply = shop.post(path, &format!("{tag}-{what}"), body);
            assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
            reply.json()
        };
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let invoice = text(&made("of", "/v1/invoices", r#"{"asset":"BTC","amount":"5"}"#)["id"]);
        let endpoint = |what: &str, types: &str| {
            let body = json!({"url": url(&tag, what), "types": [types]}).to_string();
            text(&made(what, "/v1/endpoints", &body)["endpoint"]["id"])
        };
        let (running, paused, aside) = (
            endpoint("running", "credit.*"),
            endpoint("paused", "credit.*"),
            endpoint("aside", "credit.*"),
        );
        made("pause", &format!("/v1/endpoints/{paused}/pause"), "");
        let created = daemon.events().into_iter().find(|event| event.subject == invoice);
        Target {
            event: created.unwrap().id,
            tag,
            invoice,
            running,
            paused,
            aside,
        }
    }

    fn number(&self) -> i64 {
        self.tag.rsplit('-').next().unwrap().parse().unwrap()
    }
}

fn started(node: &FakeNode) -> (Daemon, Client) {
    let setup = Setup {
        api: "listen = \"127.0.0.1:0\"\nrate_per_second = 100000".to_owned(),
        ops_listen: "127.0.0.1:0".to_owned(),
        tables: format!("[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n{SOURCES}"),
        ..with_api(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.folder().join("secret"), SECRET).unwrap();
    daemon.start_again();
    daemon.wait_height(1);
    fill_pool(&daemon, 500);
    let shop = daemon.client("shop", "all");
    (daemon, shop)
}

fn now_secs() -> i64 {
    Clock::real().now_ms() / 1_000
}

/// Sends a request as it is; `sent` counts those that are on their way.
fn ask(port: u16, request: &[u8], sent: &AtomicUsize) -> Option<Reply> {
    let mut stream = connect(port);
    stream.write_all(request).ok()?;
    sent.fetch_add(1, Ordering::SeqCst);
    read_reply(&mut stream).ok()
}

fn answered_by(shop: &Client) -> impl Fn(&[u8]) -> Reply + Sync {
    let port = shop.port;
    move |request| ask(port, request, &AtomicUsize::new(0)).expect("an answer")
}

/// Every request from so many clients at once, and what each came to.
fn from_clients<T: Send>(
    requests: &[Vec<u8>],
    each: usize,
    ask: impl Fn(&[u8]) -> T + Sync,
    meanwhile: impl FnOnce(),
) -> Vec<Vec<T>> {
    std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<Vec<_>> = requests
            .iter()
            .map(|request| (0..each).map(|_| scope.spawn(move || ask(request))).collect())
            .collect();
        meanwhile();
        let join = |asked: Vec<std::thread::ScopedJoinHandle<'_, T>>| {
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        };
        asked.into_iter().map(join).collect()
    })
}

#[test]
fn every_post_is_in_the_table_and_every_row_is_a_post() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = started(&node);
    let description = shop.get("/openapi.json").expect(200);
    let paths = description["paths"].as_object().unwrap().iter();
    let described: BTreeSet<&str> = paths
        .filter(|(_, verbs)| verbs.get("post").is_some())
        .map(|(path, _)| path.as_str())
        .collect();
    let others = ["put", "patch", "delete"];
    let changing = |verbs: &serde_json::Value| others.iter().any(|verb| verbs.get(verb).is_some());
    let mut all = description["paths"].as_object().unwrap().values();
    assert!(!all.any(changing), "what changes is a POST");
    assert_eq!(
        described,
        POSTS.iter().map(|post| post.route).collect::<BTreeSet<_>>()
    );
}

#[test]
fn every_post_acts_once_from_fifty_clients_three_times_each() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node);
    let at = Target::new(&daemon, &shop, 1);
    for post in &POSTS {
        let request = post.request(&shop, &at, now_secs());
        let barrier = Barrier::new(CLIENTS);
        let ask = |request: &[u8]| {
            barrier.wait();
            [(); 3].map(|()| answered_by(&shop)(request))
        };
        let replies = from_clients(&[request], CLIENTS, ask, || ()).concat().concat();
        assert_eq!(replies.len(), 3 * CLIENTS);
        assert_eq!(
            post.assert_one_answer(&replies),
            1,
            "{}: one of them acted",
            post.route
        );
        post.assert_done_once(&daemon, &at);
    }
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// When the daemon is killed while all kinds of requests are under way.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Every request is on its way.
    Sent,
    /// All writes wait for somebody else's, and are never done.
    Queued,
    /// They have waited, and so many are written.
    QueuedThenKept(i64),
    /// So many are written.
    Kept(i64),
    /// So many are answered.
    Answered(usize),
}

const MOMENTS: [Moment; 12] = [
    Moment::Sent,
    Moment::Queued,
    Moment::QueuedThenKept(1),
    Moment::QueuedThenKept(5),
    Moment::Kept(1),
    Moment::Kept(3),
    Moment::Kept(6),
    Moment::Kept(9),
    Moment::Answered(1),
    Moment::Answered(5),
    Moment::Answered(15),
    Moment::Answered(29),
];

/// Clients of each kind of request while the daemon is killed.
const CLIENTS_EACH: usize = 3;

#[derive(Default)]
struct UnderWay {
    sent: AtomicUsize,
    answered: AtomicUsize,
}

impl UnderWay {
    fn ask(&self, port: u16, request: &[u8]) -> Option<Reply> {
        let reply = ask(port, request, &self.sent);
        self.answered
            .fetch_add(usize::from(reply.is_some()), Ordering::SeqCst);
        reply
    }

    /// Waits for a moment; `kept` counts the answers that are kept.
    fn await_moment(&self, moment: Moment, kept: &dyn Fn() -> i64, daemon: &Daemon) {
        match moment {
            Moment::Sent => at_once("all are sent", || {
                self.sent.load(Ordering::SeqCst) == POSTS.len() * CLIENTS_EACH
            }),
            Moment::Kept(count) | Moment::QueuedThenKept(count) => {
                at_once("so many are kept", || kept() >= count);
            }
            Moment::Answered(count) => at_once("so many are answered", || {
                self.answered.load(Ordering::SeqCst) >= count
            }),
            // Of each kind one writes, and every delivery to the inbox.
            Moment::Queued => wait_queued(daemon, POSTS.len() - 1 + CLIENTS_EACH),
        }
    }
}

/// Waits without a pause: the moment is short.
#[track_caller]
fn at_once(what: &str, is_there: impl Fn() -> bool) {
    let clock = Clock::real();
    let began = clock.instant();
    while !is_there() {
        assert!(clock.instant() - began < PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Sends every request from several clients, kills the daemon at the moment, and returns the answers that
/// came.
fn killed_at(
    daemon: &mut Daemon,
    shop: &Client,
    tag: &str,
    requests: &[Vec<u8>],
    moment: Moment,
) -> Vec<Vec<Reply>> {
    let tables = Tables::open(&daemon.database());
    let kept = || tables.count(&format!("SELECT count(*) FROM idempotency WHERE key = '{tag}'"));
    let lock = matches!(moment, Moment::Queued | Moment::QueuedThenKept(_)).then(|| locked(daemon));
    let under_way = UnderWay::default();
    let ask = |request: &[u8]| under_way.ask(shop.port, request);
    let answers = from_clients(requests, CLIENTS_EACH, ask, || {
        if let (Some(lock), Moment::QueuedThenKept(_)) = (&lock, moment) {
            under_way.await_moment(Moment::Queued, &kept, daemon);
            lock.execute_batch("ROLLBACK").unwrap();
        }
        under_way.await_moment(moment, &kept, daemon);
        daemon.kill9();
    });
    answers
        .into_iter()
        .map(|answers| answers.into_iter().flatten().collect())
        .collect()
}

#[test]
fn every_post_acts_once_however_the_daemon_is_killed_meanwhile() {
    let node = FakeNode::regtest(1);
    let (mut daemon, mut shop) = started(&node);
    let (mut answered, mut undone) = (0, 0);
    for (number, moment) in (1..).zip(MOMENTS) {
        let at = Target::new(&daemon, &shop, number);
        let signed_at = now_secs();
        let requests = POSTS.each_ref().map(|post| post.request(&shop, &at, signed_at));
        let before = killed_at(&mut daemon, &shop, &at.tag, &requests, moment);
        daemon.start_again();
        shop.port = daemon.api_port();
        fill_pool(&daemon, 500);
        let again = from_clients(&requests, CLIENTS_EACH, answered_by(&shop), || ());
        for ((post, before), again) in POSTS.iter().zip(before).zip(again) {
            answered += before.len();
            undone += usize::from(again.iter().any(|reply| post.acted(reply)));
            let replies = [before, again].concat();
            // The answer of the one that acted may have died with the daemon.
            let fresh = post.assert_one_answer(&replies);
            assert!(fresh <= 1, "{moment:?} {}: {replies:?}", post.route);
            if matches!(moment, Moment::Queued) {
                assert_eq!(fresh, 1, "{}: nothing of it was done before", post.route);
            }
            post.assert_done_once(&daemon, &at);
        }
    }
    eprintln!("{answered} answers before a kill, {undone} requests done after one");
    assert!(
        answered > 30 && undone > 10,
        "kills came in the middle: {answered} {undone}"
    );
    let database = Database::open(&daemon.database(), OpenMode::ReadOnly).unwrap();
    assert_eq!(database.read(|tx| tx.violations(144)).unwrap(), []);
}
