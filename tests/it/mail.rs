//! Callbacks without a network: the real follower, store and deliverer under a clock that jumps, and
//! receivers that answer as the test says. Whatever was sent is held against what must hold for every
//! callback.

use crate::rig::Rig;
use crate::schema;
use creditd::clock::Clock;
use creditd::deliver::{Deliverer, Settings};
use creditd::egress::{Dial, DialError, HttpReply, HttpRequest};
use creditd::rules::Outpoint;
use creditd::store::StoreError;
use creditd::store::report::{DeliveryFilter, DeliveryRow, Page};
use creditd::webhook::{self, Headers, Key, Window};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub const TIMEOUT: Duration = Duration::from_secs(15);
pub const PATIENCE: Duration = Duration::from_secs(900);

/// How a receiver answers.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    Status(u16),
    /// A status and `Retry-After` in seconds.
    Later(u16, u64),
    /// 200 after this long.
    After(Duration),
    Refused,
    /// Its name leads inside: nothing is dialled.
    Blocked,
    /// It has the message, and its answer comes too late.
    Hangs,
    /// The task that sends it never ends, whatever its deadline.
    Stuck,
    /// The task that sends it ends without a word.
    Dies,
}

/// A callback as it went out.
#[derive(Clone, Debug)]
pub struct Sent {
    pub url: String,
    pub id: String,
    pub timestamp: String,
    pub signature: String,
    pub body: String,
    /// When, Unix milliseconds.
    pub at: i64,
}

impl Sent {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }
}

type Script = dyn Fn(&Sent, usize) -> Reply + Send + Sync;

/// All receivers at once.
#[derive(Clone)]
struct Receivers(Arc<Shared>);

struct Shared {
    clock: Clock,
    script: Mutex<Box<Script>>,
    sent: Mutex<Vec<Sent>>,
    /// By URL and event.
    counts: Mutex<BTreeMap<(String, String), usize>>,
    flying: Mutex<BTreeMap<String, Flying>>,
}

#[derive(Clone, Copy, Default)]
struct Flying {
    now: usize,
    most: usize,
}

impl Dial for Receivers {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let header = |name| {
            let found = request.headers.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let sent = Sent {
            url: request.url.clone(),
            id: header(webhook::ID_HEADER),
            timestamp: header(webhook::TIMESTAMP_HEADER),
            signature: header(webhook::SIGNATURE_HEADER),
            body: String::from_utf8(request.body.clone().unwrap_or_default().to_vec()).unwrap(),
            at: self.0.clock.now_ms(),
        };
        let reply = {
            let mut all = self.0.sent.lock().unwrap();
            let mut counts = self.0.counts.lock().unwrap();
            let before = counts.entry((sent.url.clone(), sent.id.clone())).or_default();
            let reply = (self.0.script.lock().unwrap())(&sent, *before);
            *before += 1;
            all.push(sent.clone());
            reply
        };
        self.fly(&sent.url, 1);
        let (status, retry_after_secs) = match reply {
            Reply::Status(status) => (status, None),
            Reply::Later(status, secs) => (status, Some(secs)),
            Reply::After(span) => {
                self.0.clock.sleep(span).await;
                (200, None)
            }
            Reply::Refused => (0, None),
            Reply::Blocked => (2, None),
            Reply::Hangs => {
                self.0.clock.sleep(request.deadline).await;
                (1, None)
            }
            Reply::Stuck => std::future::pending().await,
            Reply::Dies => panic!("this attempt was told to die"),
        };
        self.fly(&sent.url, -1);
        match status {
            0 => Err(DialError::Refused("nobody listens".into())),
            2 => Err(DialError::Blocked {
                address: [127, 0, 0, 1].into(),
                why: "loopback",
            }),
            1 => Err(DialError::TimedOut { deadline_ms: 15_000 }),
            status => Ok(HttpReply {
                status,
                retry_after_secs,
                body: "what the receiver says".into(),
            }),
        }
    }

    fn reset(&self) {}
}

impl Receivers {
    fn fly(&self, url: &str, change: isize) {
        let mut flying = self.0.flying.lock().unwrap();
        let of = flying.entry(url.to_owned()).or_default();
        of.now = of.now.checked_add_signed(change).unwrap();
        of.most = of.most.max(of.now);
    }
}

/// The chain, the books, the deliverer and the receivers.
pub struct Mail {
    pub rig: Rig,
    receivers: Receivers,
    deliverer: JoinHandle<Result<(), StoreError>>,
    stop: watch::Sender<bool>,
    in_flight_max: usize,
    /// By URL: keys, each with when it began and ended to be used.
    keys: BTreeMap<String, Vec<(Key, i64, i64)>>,
    made: u32,
}

impl Mail {
    /// Receivers that answer as `script` says: given a message and how often this URL has had it before.
    pub async fn new(script: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static) -> Mail {
        Mail::with_room(256, script).await
    }

    /// The same with another bound of messages on their way.
    pub async fn with_room(
        in_flight_max: usize,
        script: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
    ) -> Mail {
        let rig = Rig::new().await;
        let shared = Shared {
            clock: rig.clock,
            script: Mutex::new(Box::new(script)),
            sent: Mutex::default(),
            counts: Mutex::default(),
            flying: Mutex::default(),
        };
        let receivers = Receivers(Arc::new(shared));
        let stop = watch::Sender::new(false);
        let deliverer = start(&rig, receivers.clone(), in_flight_max, stop.subscribe()).await;
        Mail {
            rig,
            receivers,
            deliverer,
            stop,
            in_flight_max,
            keys: BTreeMap::new(),
            made: 0,
        }
    }

    /// The receivers answer otherwise from now on.
    pub fn answer(&self, script: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static) {
        *self.receivers.0.script.lock().unwrap() = Box::new(script);
    }

    /// The deliverer ends in the middle of whatever it does, and another one starts.
    pub async fn crash(&mut self) {
        self.deliverer.abort();
        self.receivers.0.flying.lock().unwrap().clear();
        self.restart().await;
    }

    async fn restart(&mut self) {
        self.stop = watch::Sender::new(false);
        let told = self.stop.subscribe();
        self.deliverer = start(&self.rig, self.receivers.clone(), self.in_flight_max, told).await;
    }

    /// The deliverer is told to stop; returns once it has. It is not started again.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        (&mut self.deliverer).await.unwrap().unwrap();
    }

    fn fresh_key(&mut self) -> Key {
        self.made += 1;
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&self.made.to_be_bytes());
        Key::shared(&bytes).unwrap()
    }

    /// Adds an endpoint; `None` = for operators. Returns its id.
    pub async fn add(&mut self, merchant: Option<&'static str>, url: &str, types: &'static str) -> String {
        let (key, url) = (self.fresh_key(), url.to_owned());
        let from = self.rig.clock.now_ms();
        self.keys.insert(url.clone(), vec![(key.clone(), from, i64::MAX)]);
        let add = move |tx: &mut creditd::store::WriteTx<'_>| tx.add_endpoint(merchant, &url, types, &key);
        self.rig.write(add).await.0.id
    }

    /// Gives an endpoint another key, both of which sign for a while.
    pub async fn rotate(&mut self, id: &str, url: &str, overlap: Duration) {
        let (key, id) = (self.fresh_key(), id.to_owned());
        let overlap_ms = creditd::clock::millis(overlap);
        let now = self.rig.clock.now_ms();
        let keys = self.keys.get_mut(url).unwrap();
        keys.iter_mut()
            .for_each(|(_, _, until)| *until = (*until).min(now + overlap_ms));
        keys.push((key.clone(), now, i64::MAX));
        let reason = format!("test {}", self.made);
        self.rig
            .write(move |tx| tx.rotate_key(&id, &key, overlap_ms, &reason))
            .await;
    }

    /// Sends an event again, as the command does.
    pub async fn retry(&self, event: &str, endpoint: &str) -> bool {
        let (event, endpoint) = (event.to_owned(), endpoint.to_owned());
        self.rig
            .write(move |tx| tx.retry_delivery(&event, &endpoint, "asked"))
            .await
    }

    /// Pays a fresh address of merchant `shop` and mines until it is credited. Returns the outpoint.
    pub async fn credit(&mut self) -> Outpoint {
        self.made += 1;
        let to = self.rig.watch(self.made).await;
        let payment = self.rig.pay(&to, 50_000);
        self.rig.settle().await;
        self.rig.mine(&[&payment]);
        self.rig.extend(2);
        self.rig.settle().await;
        payment.outpoint(0)
    }

    /// Lets time pass. What falls due meanwhile is sent; spans in which nothing does are skipped.
    pub async fn pass(&self, span: Duration) {
        let clock = self.rig.clock;
        let until = clock.now_ms() + creditd::clock::millis(span);
        while clock.now_ms() < until {
            let next = self.rig.read(|tx| tx.next_delivery_at()).unwrap_or(i64::MAX);
            let skip_ms = next.min(until) - clock.now_ms() - 2_000;
            let is_quiet = self
                .receivers
                .0
                .flying
                .lock()
                .unwrap()
                .values()
                .all(|of| of.now == 0);
            if is_quiet && skip_ms > 0 {
                tokio::time::advance(Duration::from_millis(skip_ms.unsigned_abs())).await;
            }
            let rest = (until - clock.now_ms()).clamp(1, 500);
            clock.sleep(Duration::from_millis(rest.unsigned_abs())).await;
        }
    }

    /// Everything sent so far to a URL.
    pub fn to(&self, url: &str) -> Vec<Sent> {
        let all = self.receivers.0.sent.lock().unwrap();
        all.iter().filter(|sent| sent.url == url).cloned().collect()
    }

    /// Everything sent so far, by URL.
    pub fn by_url(&self) -> BTreeMap<String, Vec<Sent>> {
        let mut all: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
        for sent in self.receivers.0.sent.lock().unwrap().iter() {
            all.entry(sent.url.clone()).or_default().push(sent.clone());
        }
        all
    }

    /// The types of what was sent to a URL.
    pub fn kinds(&self, url: &str) -> Vec<String> {
        self.to(url).iter().map(Sent::kind).collect()
    }

    /// The most messages that were on their way to a URL at once since the last call.
    pub fn take_most(&self, url: &str) -> usize {
        let mut flying = self.receivers.0.flying.lock().unwrap();
        let of = flying.entry(url.to_owned()).or_default();
        std::mem::replace(&mut of.most, of.now)
    }

    /// The deliveries of an event, or of all, newest first.
    pub fn deliveries(&self, event: Option<&str>) -> Vec<DeliveryRow> {
        let filter = DeliveryFilter {
            event: event.map(str::to_owned),
            ..DeliveryFilter::default()
        };
        let page = Page {
            after: None,
            limit: 10_000,
        };
        let rows = self.rig.read(|tx| tx.list_deliveries(&filter, page));
        rows.into_iter().map(|listed| listed.row).collect()
    }

    /// What must hold for every callback that ever goes out: one id has one body, which is the frozen one and
    /// keeps to the schema; it is signed with every key that is live, at the time of the attempt itself.
    #[track_caller]
    pub fn assert_sound(&self) {
        assert!(!self.deliverer.is_finished(), "the deliverer has ended");
        let frozen = self.rig.read(|tx| tx.events_after(0, 100_000));
        let frozen: BTreeMap<String, String> =
            frozen.into_iter().map(|event| (event.id, event.body)).collect();
        for body in frozen.values() {
            assert_eq!(schema::faults_of(body.as_bytes()), [""; 0]);
        }
        for sent in self.receivers.0.sent.lock().unwrap().iter() {
            assert_eq!(frozen.get(&sent.id), Some(&sent.body), "{sent:?}");
            let headers = Headers {
                id: Some(&sent.id),
                timestamp: Some(&sent.timestamp),
                signature: Some(&sent.signature),
            };
            let window = Window {
                now_secs: sent.at / 1_000,
                tolerance_secs: 0,
            };
            let live = self.keys[&sent.url]
                .iter()
                .filter(|(_, from, until)| (*from..*until).contains(&sent.at));
            let live: Vec<_> = live.map(|(key, _, _)| key.verify_key()).collect();
            assert_eq!(sent.signature.split(' ').count(), live.len(), "{sent:?}");
            for key in live {
                webhook::verify(headers, sent.body.as_bytes(), &[key], window).unwrap();
            }
        }
    }
}

async fn start(
    rig: &Rig,
    receivers: Receivers,
    in_flight_max: usize,
    mut told: watch::Receiver<bool>,
) -> JoinHandle<Result<(), StoreError>> {
    let settings = Settings {
        attempt_timeout: TIMEOUT,
        order_patience: PATIENCE,
        in_flight_max,
    };
    let deliverer = Deliverer::open(rig.store(), rig.clock, receivers, settings);
    let deliverer = deliverer.await.unwrap();
    tokio::spawn(async move {
        let stop = async move {
            let _ = told.wait_for(|is_told| *is_told).await;
        };
        deliverer.run(stop).await
    })
}
