//! C39, second half: what is dialled, whatever the URL, the name and the answer say.

mod answers;
mod tls;

use crate::common::receiver::{Authority, Heard, Receiver, Tripwire, answer, answer_with, drip};
use crate::common::wait::{PATIENCE, wait_until};
use creditd::egress::{
    BODY_BYTES_READ_MAX, Dial, DialError, GuardedDial, HttpReply, HttpRequest, Policy, Range, Resolver,
    Resolving,
};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Listed in most tests, and so stands for "outside". 127.0.0.1 stands for "inside".
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const INSIDE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const DEADLINE: Duration = Duration::from_secs(20);
const KEPT: usize = 1024;

/// DNS that says what the test wants: the answers in turn, and the last one for ever.
#[derive(Clone, Default)]
struct Names {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
    asked: Arc<AtomicUsize>,
}

impl Names {
    fn answering(answers: &[&[&str]]) -> Names {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        Names {
            answers: Arc::new(Mutex::new(answers.iter().map(parse).collect())),
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Resolver for Names {
    fn resolve(&self, name: &str) -> Resolving {
        assert_eq!(name, "shop.test");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.len() {
            0 => Err(io::Error::from(io::ErrorKind::NotFound)),
            1 => Ok(answers[0].clone()),
            _ => Ok(answers.pop_front().unwrap()),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn dial(ranges: &[&str], names: &Names) -> GuardedDial {
    let ranges = ranges.iter().map(|range| Range::parse(range).unwrap());
    GuardedDial::new(Policy::new(ranges.collect()), Arc::new(names.clone()), None).unwrap()
}

fn request(url: String) -> HttpRequest {
    HttpRequest {
        body: Some("{}".into()),
        url,
        headers: vec![("webhook-id".into(), "evt_1".to_owned())],
        deadline: DEADLINE,
        body_bytes_max: KEPT,
    }
}

async fn post(dial: &GuardedDial, host: &str, port: u16) -> Result<HttpReply, DialError> {
    dial.send(request(format!("http://{host}:{port}/hook?key=k3y")))
        .await
}

fn ok(_: &Heard, to: &mut dyn Write) -> io::Result<()> {
    answer(to, 200, b"thanks")
}

#[track_caller]
fn assert_blocked(got: Result<HttpReply, DialError>, expected: &str) {
    match got {
        Err(DialError::Blocked { address, .. }) => assert_eq!(address.to_string(), expected),
        other => panic!("not blocked: {other:?}"),
    }
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let receiver = Receiver::http(OUTSIDE, ok);
    let names = Names::answering(&[&["127.0.0.2"]]);
    let dial = dial(&["127.0.0.2/32"], &names);
    let port = receiver.address.port();
    for _ in 0..2 {
        let reply = post(&dial, "shop.test", port).await.unwrap();
        assert_eq!((reply.status, &*reply.body), (200, &b"thanks"[..]));
    }
    let heard = receiver.heard();
    assert_eq!(heard[0].head[0], "POST /hook?key=k3y HTTP/1.1");
    assert_eq!(heard[0].header("host").unwrap(), format!("shop.test:{port}"));
    assert_eq!(heard[0].header("webhook-id"), Some("evt_1"));
    assert_eq!(heard[1].body, b"{}");
    assert_eq!(
        (receiver.connections(), names.asked()),
        (1, 1),
        "one connection, one question"
    );
}

/// The name was good when it was registered and at the first delivery.
#[tokio::test]
async fn c39_a_name_that_leads_inside_later_is_blocked() {
    let receiver = Receiver::http(OUTSIDE, |_, to| {
        answer_with(to, 200, "Connection: close\r\n", b"")
    });
    let port = receiver.address.port();
    let inside = Tripwire::at((INSIDE, port).into());
    let names = Names::answering(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let dial = dial(&["127.0.0.2/32"], &names);
    assert_eq!(post(&dial, "shop.test", port).await.unwrap().status, 200);
    for _ in 0..3 {
        assert_blocked(post(&dial, "shop.test", port).await, "127.0.0.1");
    }
    assert_eq!(
        (names.asked(), inside.connections(), receiver.connections()),
        (4, 0, 1)
    );
}

#[tokio::test]
async fn c39_one_denied_record_among_others_blocks_the_name() {
    let answers: [&[&str]; 4] = [
        &["127.0.0.2", "127.0.0.1"],
        &["127.0.0.1", "127.0.0.2"],
        &["127.0.0.2", "::1"],
        &["127.0.0.2", "::ffff:127.0.0.2"],
    ];
    for (answer, denied) in answers
        .iter()
        .zip(["127.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.2"])
    {
        let (outside, inside) = Tripwire::pair(OUTSIDE, INSIDE);
        let dial = dial(&["127.0.0.2/32"], &Names::answering(&[answer]));
        assert_blocked(post(&dial, "shop.test", outside.port()).await, denied);
        assert_eq!(
            (outside.connections(), inside.connections()),
            (0, 0),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn an_address_in_the_url_is_judged_when_it_is_dialled() {
    let inside = Tripwire::at((INSIDE, 0).into());
    let (names, port) = (Names::default(), inside.port());
    let elsewhere = dial(&["10.0.0.0/8"], &names);
    assert_blocked(post(&elsewhere, "127.0.0.1", port).await, "127.0.0.1");
    assert_blocked(post(&elsewhere, "localhost", port).await, "127.0.0.1");
    let closed = dial(&[], &names);
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let got = closed.send(request(format!("https://{host}:{port}/"))).await;
        assert!(matches!(got, Err(DialError::Blocked { .. })), "{host}: {got:?}");
    }
    for (url, code) in [
        ("http://2130706433", "url_host"),
        ("http://0x7f.1", "url_host"),
        ("http://[::ffff:127.0.0.1]", "url_host"),
        ("http://a:b@127.0.0.1", "url_user_info"),
        ("ftp://127.0.0.1", "url_scheme"),
    ] {
        let error = closed.send(request(format!("{url}:{port}/"))).await.unwrap_err();
        assert_eq!(error.code(), code, "{url}");
    }
    assert_eq!((inside.connections(), names.asked()), (0, 0));
}

#[tokio::test]
async fn http_goes_to_listed_addresses_only() {
    let dial = dial(&["10.0.0.0/8"], &Names::answering(&[&["10.0.0.1", "8.8.8.8"]]));
    assert_blocked(post(&dial, "shop.test", 80).await, "8.8.8.8");
}

#[tokio::test]
async fn c39_redirects_are_not_followed() {
    let inside = Tripwire::at((INSIDE, 0).into());
    for status in [301, 302, 303, 307, 308] {
        for target in [
            format!("http://127.0.0.1:{}/", inside.port()),
            "/elsewhere".to_owned(),
        ] {
            let location = format!("Location: {target}\r\nRefresh: 0; url={target}\r\n");
            let receiver = Receiver::http(OUTSIDE, move |_, to| answer_with(to, status, &location, b""));
            let dial = dial(&["127.0.0.2/32"], &Names::answering(&[&["127.0.0.2"]]));
            let reply = post(&dial, "shop.test", receiver.address.port()).await.unwrap();
            assert_eq!((reply.status, receiver.heard().len()), (status, 1));
        }
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn who_cannot_be_reached_is_told_apart() {
    let names = Names::default();
    let dial = dial(&["127.0.0.0/8"], &names);
    let error = post(&dial, "shop.test", 80).await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("refused", "host not found")
    );
    names.answers.lock().unwrap().push_back(Vec::new());
    let error = post(&dial, "shop.test", 80).await.unwrap_err();
    assert_eq!(error.to_string(), "host not found");
    let free = Tripwire::at((INSIDE, 0).into()).port();
    let error = post(&dial, "127.0.0.1", free).await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("refused", "connection refused")
    );
}

mod random {
    use super::*;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(bits.into()));
        let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(bits.into()));
        let near = prop::sample::select(vec![
            "127.0.0.1",
            "127.0.0.3",
            "::1",
            "::ffff:127.0.0.2",
            "0.0.0.0",
            "::",
        ]);
        prop_oneof![v4, v6, near.prop_map(|text| text.parse().unwrap())]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// http reaches listed addresses only, so that here every other one is denied.
        #[test]
        fn no_denied_address_is_ever_dialled(
            others in prop::collection::vec(address(), 1..6),
            at in any::<prop::sample::Index>(),
        ) {
            prop_assume!(others.iter().all(|address| *address != IpAddr::V4(OUTSIDE)));
            let mut addresses = others.clone();
            addresses.insert(at.index(others.len() + 1), OUTSIDE.into());
            let (outside, inside) = Tripwire::pair(OUTSIDE, INSIDE);
            let names = Names {
                answers: Arc::new(Mutex::new([addresses.clone()].into())),
                asked: Arc::default(),
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let dial = dial(&["127.0.0.2/32"], &names);
            let got = runtime.block_on(post(&dial, "shop.test", outside.port()));
            prop_assert!(matches!(got, Err(DialError::Blocked { .. })), "{:?}: {:?}", addresses, got);
            prop_assert_eq!((outside.connections(), inside.connections()), (0, 0));
        }
    }
}
