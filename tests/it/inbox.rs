//! The inbox from the request to what it does: verified, stored, answered, and done by the job.

use crate::common::asks::{D1, D3};
use crate::config::SMALL;
use crate::rig::{folder, in_simulation};
use crate::schema;
use crate::tables::Tables;
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::daemon::new_chain;
use creditd::inbox::{Inbox, Rejected, work};
use creditd::jobs::Jobs;
use creditd::store::{AddressKind, Database, JobOutcome, NewAddress, OpenMode, Received, Store};
use creditd::webhook::Refused;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const SECRET: &str = "a secret of sixteen letters and more";
pub(super) const AT_MS: i64 = 1_700_000_000_000;

/// Sources `p1` (credits), `p2` (forwards), `btcpay`, `list` (several payments) and `wallet` (hints).
pub(super) const SOURCES: &str = r#"
[[inbox]]
source = "p1"
verifier = "stripe"
secret_files = ["secret"]
effect = "credit.external"
merchant = "shop"
[inbox.credit]
payment = "/payment"
amount = "/amount"
amount_in = "smallest"
asset = "USD"
decimals = 2
[[inbox]]
source = "p2"
verifier = "stripe"
secret_files = ["secret"]
effect = "forward"
merchant = "shop"
[[inbox]]
source = "btcpay"
verifier = "btcpay"
secret_files = ["secret"]
effect = "credit.external"
merchant = "shop"
only = [ { field = "/type", is = ["InvoicePaymentSettled"] }, { field = "/storeId", is = ["S", "T"] } ]
[inbox.credit]
payment = "/payment/id"
amount = "/payment/value"
amount_in = "units"
asset = "BTC"
decimals = 8
reference = "/invoiceId"
output = "/payment/id"
address = "/payment/destination"
[[inbox]]
source = "list"
verifier = "github"
secret_files = ["secret"]
effect = "credit.external"
merchant = "shop"
[inbox.credit]
each = "/payments"
payment = "/id"
amount = "/amount"
amount_in = "units"
asset = "USD"
decimals = 2
[[inbox]]
source = "wallet"
verifier = "github"
secret_files = ["secret"]
effect = "deposit.hint"
chain = "btc"
txid = "/txid"
"#;

pub(super) fn config(folder: &Path) -> Arc<Config> {
    std::fs::write(folder.join("secret"), SECRET).unwrap();
    let text = format!("{SMALL}{SOURCES}");
    Arc::new(Config::parse(&folder.join("creditd.toml"), &text).unwrap())
}

fn mac(parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    const_hex::encode(mac.finalize().into_bytes())
}

/// The headers with which a source sends a body.
pub(super) fn signed(source: &str, body: &str, at_secs: i64) -> Vec<(String, String)> {
    let plain = format!("sha256={}", mac(&[body.as_bytes()]));
    let header = match source {
        "p1" | "p2" => {
            let signature = mac(&[at_secs.to_string().as_bytes(), b".", body.as_bytes()]);
            ("Stripe-Signature", format!("t={at_secs},v1={signature}"))
        }
        "btcpay" => ("BTCPay-Sig", plain),
        _ => ("X-Hub-Signature-256", plain),
    };
    vec![(header.0.to_owned(), header.1)]
}

pub(super) struct Bench {
    pub(super) config: Arc<Config>,
    inbox: Inbox,
    pub(super) store: Store,
    pub(super) clock: Clock,
    tables: Tables,
    pub(super) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let folder = folder();
        let path = folder.path().join("ledger.db");
        let config = config(folder.path());
        let clock = Clock::simulated(AT_MS);
        let database = Database::open(&path, OpenMode::Daemon).unwrap();
        Bench {
            inbox: Inbox::of(&config).unwrap(),
            store: Store::inline(database, clock),
            config,
            clock,
            tables: Tables::open(&path),
            path,
            _folder: folder,
        }
    }

    pub(super) async fn post(&self, source: &str, body: &str) -> Result<Received, Rejected> {
        let headers = signed(source, body, self.clock.now_ms() / 1_000);
        self.post_with(source, &headers, body).await
    }

    async fn post_with(
        &self,
        source: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Received, Rejected> {
        let by = (&self.store, self.clock);
        self.inbox
            .accept(by, source, headers, body.as_bytes().to_vec())
            .await
    }

    async fn work(&self) -> JobOutcome {
        work::run(self.config.clone(), self.store.clone(), self.clock).await
    }

    pub(super) fn jobs(&self) -> Jobs {
        let reader = Database::open(&self.path, OpenMode::ReadOnly).unwrap();
        let known = reader.read(|tx| tx.inbox_sources()).unwrap();
        let jobs = work::jobs(&self.config, &known, &self.store, self.clock);
        Jobs::new(self.store.clone(), self.clock, jobs)
    }

    pub(super) fn count(&self, table: &str) -> i64 {
        self.tables.count(&format!("SELECT count(*) FROM {table}"))
    }

    pub(super) fn check(&self) {
        let reader = Database::open(&self.path, OpenMode::ReadOnly).unwrap();
        let violations = reader.read(|tx| tx.violations(144)).unwrap();
        assert!(violations.is_empty(), "{violations:?}");
        for event in reader.read(|tx| tx.events_after(0, 1_000)).unwrap() {
            let faults = schema::faults_of(event.body.as_bytes());
            assert!(faults.is_empty(), "{faults:?}: {}", event.body);
        }
    }

    fn note(&self) -> String {
        let notes = self
            .tables
            .rows("SELECT note FROM inbox ORDER BY id DESC LIMIT 1", |row| {
                row.get(0).unwrap()
            });
        notes.into_iter().next().unwrap()
    }
}

pub(super) fn paid(event: &str, payment: &str, amount: u64) -> String {
    format!(r#"{{"id":"{event}","payment":"{payment}","amount":{amount}}}"#)
}

/// C43: check first, insert second, and the loser ran the effect all the same.
#[test]
fn c43_twenty_parallel_deliveries_of_one_event_act_once() {
    let folder = folder();
    let path = folder.path().join("ledger.db");
    let config = config(folder.path());
    let clock = Clock::real();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (store, _) = Store::open(&path, clock).await.unwrap();
        let inbox = Inbox::of(&config).unwrap();
        let body = paid("evt_1", "pay_1", 500);
        let mut posts = tokio::task::JoinSet::new();
        for number in 0..40 {
            let source = if number % 2 == 0 { "p1" } else { "p2" };
            let (inbox, store, body) = (inbox.clone(), store.clone(), body.clone());
            let config = config.clone();
            posts.spawn(async move {
                let headers = signed(source, &body, clock.now_ms() / 1_000);
                let by = (&store, clock);
                let received = inbox.accept(by, source, &headers, body.into_bytes()).await;
                // Two workers and more, while others still come in.
                work::run(config, store.clone(), clock).await;
                received
            });
        }
        let received: Vec<Received> = posts.join_all().await.into_iter().map(Result::unwrap).collect();
        let new = received
            .iter()
            .filter(|one| matches!(one, Received::New(_)))
            .count();
        let again = received
            .iter()
            .filter(|one| matches!(one, Received::Again(_)))
            .count();
        assert_eq!((new, again), (2, 38));
        work::run(config.clone(), store.clone(), clock).await;
        store.close().await.unwrap();
    });
    let tables = Tables::open(&path);
    let count = |table: &str| tables.count(&format!("SELECT count(*) FROM {table}"));
    assert_eq!(count("inbox WHERE event_id = 'evt_1' AND state = 'done'"), 2);
    assert_eq!(count("inbox"), 2);
    assert_eq!((count("credits"), count("journal")), (1, 1));
    assert_eq!(count("events WHERE type = 'credit.created'"), 1);
    assert_eq!(count("events WHERE type = 'inbox.forwarded'"), 1);
    let database = Database::open(&path, OpenMode::ReadOnly).unwrap();
    assert!(database.read(|tx| tx.violations(144)).unwrap().is_empty());
}

/// C45: the id of a delivery is no id of an event.
#[test]
fn a_redelivery_of_btcpay_under_another_delivery_id_acts_once() {
    in_simulation(async {
        let bench = Bench::new();
        let event = |delivery: &str, again: bool, kind: &str| {
            format!(
                r#"{{"deliveryId":"{delivery}","originalDeliveryId":"D1","isRedelivery":{again},
                   "type":"{kind}","storeId":"T","invoiceId":"I",
                   "payment":{{"id":"{}-1","value":"0.00012345","destination":"bcrt1qother"}}}}"#,
                "ab".repeat(32)
            )
        };
        let settled = "InvoicePaymentSettled";
        assert!(matches!(
            bench.post("btcpay", &event("D1", false, settled)).await,
            Ok(Received::New(_))
        ));
        for delivery in ["D2", "D3"] {
            let again = bench.post("btcpay", &event(delivery, true, settled)).await;
            assert!(matches!(again, Ok(Received::Again(_))), "{again:?}");
            bench.work().await;
        }
        assert_eq!((bench.count("inbox"), bench.count("credits")), (1, 1));
        assert_eq!(
            bench.count("credits WHERE amount = '12345' AND reference = 'I'"),
            1
        );
        assert_eq!(bench.count("external_outputs WHERE vout = 1"), 1);
        // The same payment, told of by another event.
        let other = event("D9", false, settled).replace("\"D1\"", "\"D9\"");
        bench.post("btcpay", &other).await.unwrap();
        // Another kind of event does nothing, and says so.
        let created = event("D8", false, "InvoiceCreated").replace("\"D1\"", "\"D8\"");
        bench.post("btcpay", &created).await.unwrap();
        bench.work().await;
        assert_eq!(
            (bench.count("inbox WHERE state = 'done'"), bench.count("credits")),
            (3, 1)
        );
        assert_eq!(bench.note(), r#"/type is "InvoiceCreated""#);
        // All of the conditions count.
        let foreign = event("D7", false, settled).replace("\"D1\"", "\"D7\"");
        let foreign = foreign.replace("-1\"", "-2\"").replace("\"T\"", "\"U\"");
        bench.post("btcpay", &foreign).await.unwrap();
        bench.work().await;
        assert_eq!(bench.count("credits"), 1);
        assert_eq!(bench.note(), r#"/storeId is "U""#);
        bench.check();
    });
}

#[test]
fn what_is_not_believed_is_not_stored() {
    in_simulation(async {
        let bench = Bench::new();
        let body = paid("evt_1", "pay_1", 500);
        let now = bench.clock.now_ms() / 1_000;
        let good = signed("p1", &body, now);
        let refused = |outcome: Result<Received, Rejected>| match outcome {
            Err(Rejected::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        let forged = vec![(good[0].0.clone(), format!("t={now},v1={}", "00".repeat(32)))];
        assert_eq!(
            refused(bench.post_with("p1", &forged, &body).await),
            Refused::NoMatch
        );
        for (at, expected) in [(now - 301, Refused::TooOld), (now + 301, Refused::TooNew)] {
            let stale = signed("p1", &body, at);
            assert_eq!(refused(bench.post_with("p1", &stale, &body).await), expected);
        }
        let altered = body.replace("500", "900");
        assert_eq!(
            refused(bench.post_with("p1", &good, &altered).await),
            Refused::NoMatch
        );
        let unsigned = refused(bench.post_with("p1", &[], &body).await);
        assert_eq!(unsigned, Refused::MissingHeader("Stripe-Signature".to_owned()));
        let unknown = bench.post_with("p9", &good, &body).await;
        assert!(matches!(unknown, Err(Rejected::UnknownSource)), "{unknown:?}");
        let huge = "x".repeat(65_537);
        assert!(matches!(bench.post("p1", &huge).await, Err(Rejected::TooLarge)));
        assert_eq!(bench.count("inbox") + bench.count("events"), 0);
        // A refused one has used nothing up.
        assert!(matches!(
            bench.post_with("p1", &good, &body).await,
            Ok(Received::New(_))
        ));
    });
}

#[test]
fn what_cannot_be_done_is_parked_with_its_reason_and_done_once_it_can() {
    in_simulation(async {
        let bench = Bench::new();
        let items: Vec<String> = (0..65)
            .map(|id| format!(r#"{{"id":"{id}","amount":1}}"#))
            .collect();
        let many = format!(r#"{{"payments":[{}]}}"#, items.join(","));
        for (number, (source, body, why)) in [
            (
                "p1",
                r#"{"id":"e1","amount":5}"#,
                "/payment is no text and no whole number",
            ),
            (
                "p1",
                r#"{"id":"e2","payment":"p","amount":"1.5"}"#,
                "/amount is no amount",
            ),
            (
                "p1",
                r#"{"id":"e3","payment":"p","amount":0.1}"#,
                "/amount is no text and no whole number",
            ),
            (
                "p1",
                r#"{"id":"e4","payment":"p","amount":-5}"#,
                "/amount is no amount",
            ),
            ("p1", r#"{"id":"e5","payment":"p","amount":0}"#, "its amount is 0"),
            ("p1", "no JSON", "the body is not JSON"),
            ("list", r#"{"payments":[]}"#, "/payments has 0 payments"),
            ("list", r#"{"payments":{}}"#, "/payments is no list"),
            ("list", &many, "/payments has 65 payments, not 1 to 64"),
        ]
        .into_iter()
        .enumerate()
        {
            bench.post(source, body).await.unwrap();
            bench.work().await;
            assert_eq!(
                bench.count("inbox WHERE state = 'parked'"),
                number as i64 + 1,
                "{body}"
            );
            assert!(bench.note().contains(why), "{body}: {}", bench.note());
        }
        assert_eq!(bench.count("credits"), 0);
        assert_eq!(bench.count("events WHERE type = 'inbox.parked'"), 9);
        // A source that the config has lost, and has again.
        bench.post("p2", r#"{"id":"e9"}"#).await.unwrap();
        let mut without = (*bench.config).clone();
        without.inbox.clear();
        let id = bench
            .tables
            .rows("SELECT in_id FROM inbox WHERE event_id = 'e9'", |row| {
                row.get::<_, String>(0).unwrap()
            });
        work::run(Arc::new(without), bench.store.clone(), bench.clock).await;
        assert_eq!(bench.count("inbox WHERE event_id = 'e9' AND state = 'parked'"), 1);
        let id = id[0].clone();
        bench
            .store
            .write(move |tx| tx.retry_inbox(&id, "it is back"))
            .await
            .unwrap();
        for _ in 0..2 {
            bench.work().await;
        }
        assert_eq!(bench.count("events WHERE type = 'inbox.forwarded'"), 1);
        bench.check();
    });
}

#[test]
fn an_event_of_several_payments_credits_each() {
    in_simulation(async {
        let bench = Bench::new();
        let body = r#"{"payments":[{"id":"a","amount":"1.50"},{"id":"b","amount":2}]}"#;
        bench.post("list", body).await.unwrap();
        bench.work().await;
        let amounts = bench
            .tables
            .rows("SELECT amount FROM credits ORDER BY amount", |row| {
                row.get::<_, String>(0).unwrap()
            });
        assert_eq!(amounts, ["150", "200"]);
        bench.check();
    });
}

/// A place that we watch is never credited on a provider's word, however it is written; and one that cannot
/// be read may be such a place.
#[test]
fn a_place_that_we_watch_is_known_in_every_spelling() {
    in_simulation(async {
        let bench = Bench::new();
        let (address, config) = (D1, bench.config.clone());
        let watched = bench.store.write(move |tx| {
            let chain = config.chains().next().unwrap();
            let key = tx.ensure_chain(&new_chain(chain))?.key;
            let rule = NewAddress {
                script: chain.script(address).unwrap(),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            tx.add_addresses(key, &[rule]).map(drop)
        });
        watched.await.unwrap();
        let spellings = [
            json!(D1.to_uppercase()),
            json!(format!(" {D1}\n")),
            json!(format!("bitcoin:{D1}")),
            json!(format!("BITCOIN:{}?amount=1", D1.to_uppercase())),
            json!(format!("bip122:0f9188f13cb7b2c71f2a335e3a4fc328:{D1}")),
            json!([D1]),
            json!({ "address": D1 }),
        ];
        let event = |number: usize, id: &Value, place: &Value| {
            json!({
                "deliveryId": number.to_string(), "type": "InvoicePaymentSettled", "storeId": "S",
                "payment": {"id": id, "value": "1", "destination": place},
            })
            .to_string()
        };
        for (number, place) in spellings.iter().enumerate() {
            let id = json!(format!("pay_{number}"));
            bench.post("btcpay", &event(number, &id, place)).await.unwrap();
            bench.work().await;
            let parked = bench.count("inbox WHERE state = 'parked'");
            assert_eq!(
                parked,
                i64::try_from(number).unwrap() + 1,
                "{place}: {}",
                bench.note()
            );
        }
        // Two transactions, of which one may be ours.
        let two = json!(format!("{},{}", "ab".repeat(32), "cd".repeat(32)));
        bench
            .post("btcpay", &event(90, &two, &json!(null)))
            .await
            .unwrap();
        bench.work().await;
        assert_eq!(bench.count("credits"), 0, "{}", bench.note());
        // What is nowhere on our chains is credited.
        for (number, place) in [json!(null), json!(""), json!("lnbc1"), json!(D3)]
            .iter()
            .enumerate()
        {
            let id = json!(format!("elsewhere_{number}"));
            bench
                .post("btcpay", &event(100 + number, &id, place))
                .await
                .unwrap();
            bench.work().await;
        }
        assert_eq!(bench.count("credits"), 4, "{}", bench.note());
        bench.check();
    });
}
