//! From a block to a receiver: follower and deliverer end together at each await on that way, and start
//! again. The payment is credited once, and its receiver hears one event, at least once.

use crate::rig::{Rig, in_simulation};
use crate::tables::Tables;
use creditd::clock::Clock;
use creditd::deliver::{Deliverer, Settings};
use creditd::egress::{Dial, DialError, HttpReply, HttpRequest};
use creditd::store::Store;
use creditd::webhook;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The id and the body of a callback.
type Heard = (String, Vec<u8>);

/// A receiver that outlives the daemon, and what reached it.
#[derive(Clone)]
struct Receiver {
    clock: Clock,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Dial for Receiver {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        // The way there and the way back: a crash on the first loses the message, on the second the answer.
        self.clock.sleep(Duration::from_millis(700)).await;
        let id = request
            .headers
            .iter()
            .find(|(name, _)| *name == webhook::ID_HEADER);
        let body = request.body.clone().unwrap().to_vec();
        self.heard.lock().unwrap().push((id.unwrap().1.clone(), body));
        self.clock.sleep(Duration::from_millis(1_900)).await;
        Ok(HttpReply {
            status: 200,
            retry_after_secs: None,
            body: "".into(),
        })
    }

    fn reset(&self) {}
}

async fn deliver(store: Store, receiver: Receiver) {
    let settings = Settings {
        attempt_timeout: Duration::from_secs(15),
        order_patience: Duration::from_secs(900),
        in_flight_max: 8,
    };
    let deliverer = Deliverer::open(store, receiver.clock, receiver, settings).await;
    deliverer.unwrap().run(std::future::pending()).await.unwrap();
}

fn is_delivered(tables: &Tables) -> bool {
    tables.count("SELECT count(*) FROM deliveries WHERE state = 'delivered'") == 1
}

/// Tells it once, with an end at the `times`-th await. What was heard, and whether it came to that end.
async fn told(times: usize) -> (Vec<Heard>, bool) {
    let mut rig = Rig::new().await;
    let receiver = Receiver {
        clock: rig.clock,
        heard: Arc::default(),
    };
    rig.listen(Some("shop"), "credit.created").await;
    let to = rig.watch(1).await;
    rig.settle().await;
    rig.mine(&[&rig.pay(&to, 50_000)]);
    rig.extend(2);
    let mut at = times;
    let mut is_crashed = false;
    // The second time it runs to its end.
    while rig
        .crash_beside(at, deliver(rig.store(), receiver.clone()), is_delivered)
        .await
    {
        (is_crashed, at) = (true, usize::MAX);
    }
    assert_eq!(
        rig.tables.count("SELECT count(*) FROM credits"),
        1,
        "await {times}"
    );
    assert_eq!(
        rig.tables.count("SELECT count(*) FROM journal"),
        1,
        "await {times}"
    );
    let events = "SELECT count(*) FROM events WHERE type = 'credit.created'";
    assert_eq!(rig.tables.count(events), 1, "await {times}");
    rig.compare();
    let heard = receiver.heard.lock().unwrap().clone();
    (heard, is_crashed)
}

#[test]
fn c37_a_crash_at_any_await_from_block_to_receiver_credits_once_and_tells_one_event() {
    in_simulation(async {
        let (mut ends, mut repeats) = (0, 0);
        for times in 0.. {
            let (heard, is_crashed) = told(times).await;
            let different: BTreeSet<_> = heard.iter().collect();
            assert_eq!(
                different.len(),
                1,
                "await {times}: one id, the same bytes: {heard:?}"
            );
            repeats += usize::from(heard.len() > 1);
            ends += usize::from(is_crashed);
            if !is_crashed {
                break;
            }
        }
        assert!(ends > 10, "{ends}");
        assert!(
            repeats > 1,
            "no crash came between a message and its answer: {ends} ends"
        );
        assert!(repeats < ends, "and none before the message: {ends} ends");
    });
}
