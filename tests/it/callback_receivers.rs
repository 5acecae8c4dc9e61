//! The real daemon and receivers that do their worst over real connections. None of them keeps the others
//! from hearing.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use creditd::clock::Clock;
use creditd::sandbox::Sandbox;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::daemon::{Daemon, Setup};
use crate::common::net::free_port;
use crate::common::receiver::{Heard, Receiver, Tripwire, answer, answer_with, drip};
use crate::common::wait::{PATIENCE, let_pass, wait_until};

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// One attempt; what answers later has not answered.
const TIMEOUT: Duration = Duration::from_secs(2);

struct Shop {
    sandbox: Sandbox,
    daemon: Daemon,
    _folder: TempDir,
}

impl Shop {
    fn open() -> Shop {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::start(folder.path(), Clock::real()).unwrap();
        let mut setup = Setup::new(sandbox.url().to_owned(), sandbox.cookie_file().to_owned());
        setup.tables = format!(
            "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\ntimeout_secs = {}\n",
            TIMEOUT.as_secs()
        );
        let daemon = Daemon::start(&setup);
        daemon.wait_for("it follows", &["chain", "status"], |status| {
            (status["chains"][0]["state"] == "following").then_some(())
        });
        daemon.json(&["watch", "add", &Sandbox::address("order"), "--merchant", "shop"]);
        Shop {
            sandbox,
            daemon,
            _folder: folder,
        }
    }

    fn add(&self, url: &str) -> String {
        let types = ["--types", "credit.*"];
        let added = self
            .daemon
            .json(&[&["endpoint", "add", url, "--merchant", "shop"], &types[..]].concat());
        added["endpoint"]["id"]
            .as_str()
            .or(added["id"].as_str())
            .unwrap()
            .to_owned()
    }

    fn serve(
        &self,
        talk: impl Fn(&Heard, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Guest {
        let receiver = Receiver::http(LOCAL, talk);
        let id = self.add(&format!("http://{}/hook", receiver.address));
        Guest { id, receiver }
    }

    fn credit(&self) {
        self.sandbox.pay(&Sandbox::address("order"), 10_000).unwrap();
        self.sandbox.mine(3).unwrap();
    }

    /// Waits until the newest delivery to an endpoint is as wanted.
    #[track_caller]
    fn wait(&self, id: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let list = ["callbacks", "list", "--endpoint", id];
        self.daemon.wait_for(what, &list, |list| {
            let newest = list["callbacks"].as_array()?.first()?;
            is_so(newest).then(|| newest.clone())
        })
    }

    #[track_caller]
    fn failed(&self, id: &str, status: Option<u16>, words: &str) -> Value {
        let row = self.wait(id, words, |row| row["state"] == "waiting" && row["attempts"] != 0);
        assert_eq!(row["last_status"], serde_json::json!(status), "{row}");
        assert!(row["last_error"].as_str().unwrap().contains(words), "{row}");
        row
    }
}

struct Guest {
    id: String,
    receiver: Receiver,
}

impl Guest {
    /// What it has got, all of it under one id and in the same bytes.
    #[track_caller]
    fn same(&self, times: usize) -> Vec<Heard> {
        let heard = wait_until("it is told again", PATIENCE, || {
            let heard = self.receiver.heard();
            (heard.len() >= times).then_some(heard)
        });
        for other in &heard {
            assert_eq!(other.header("webhook-id"), heard[0].header("webhook-id"));
            assert_eq!(other.body, heard[0].body);
        }
        heard
    }
}

#[test]
fn receivers_that_do_their_worst_are_told_apart_and_keep_nobody_waiting() {
    let shop = Shop::open();
    let inside = Tripwire::at((LOCAL, 0).into());
    let redirected = format!("Location: http://127.0.0.1:{}/\r\n", inside.port());
    let redirecting = shop.serve(move |_, to| answer_with(to, 307, &redirected, b""));
    let dripping = shop.serve(|_, to| {
        to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        drip(to, [b'x'].iter().cycle())
    });
    let endless = shop.serve(|_, to| {
        to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8000000000\r\n\r\n")?;
        (0..8_000_000).try_for_each(|_| to.write_all(&[b'x'; 1_000]))
    });
    let busy = shop.serve(|_, to| answer_with(to, 429, "Retry-After: 3600\r\n", b"later"));
    let gone = shop.serve(|_, to| answer(to, 410, b""));
    let late = shop.serve(|_, to| {
        let_pass(TIMEOUT + Duration::from_secs(1));
        answer(to, 200, b"")
    });
    let dead = shop.add(&format!("http://127.0.0.1:{}/", free_port()));
    let good = shop.serve(|_, to| answer(to, 200, b"thank you"));
    shop.credit();
    good.same(1);

    shop.failed(&redirecting.id, Some(307), "307");
    shop.failed(&dripping.id, None, "2000 ms");
    shop.failed(&dead, None, "refused");
    shop.wait(&endless.id, "gigabytes are cut", |row| {
        row["state"] == "delivered"
    });
    let row = shop.failed(&busy.id, Some(429), "429");
    let wait_ms = unix_ms(&row["next_at"]) - Clock::real().now_ms();
    assert!(wait_ms > 3_000_000, "{row}");
    shop.failed(&gone.id, Some(410), "410");
    let listed = shop.daemon.json(&["endpoint", "list"]);
    let paused = |id: &str| {
        let all = listed["endpoints"].as_array().unwrap();
        let of = all.iter().find(|endpoint| endpoint["id"] == id).unwrap();
        of["paused_reason"].is_string()
    };
    assert!(paused(&gone.id) && !paused(&busy.id), "{listed}");
    // Ours ended first: it comes again, at another time, under the same id.
    let heard = late.same(2);
    assert_ne!(
        heard[0].header("webhook-timestamp"),
        heard[1].header("webhook-timestamp")
    );
    assert_eq!(inside.connections(), 0, "a redirect was followed");

    // Again by hand, delivered or not: the same again.
    let event = good.receiver.heard()[0].header("webhook-id").unwrap().to_owned();
    let retry = [
        "callbacks",
        "retry",
        &event,
        "--endpoint",
        &good.id,
        "--reason",
        "a test",
        "--apply",
    ];
    shop.daemon.json(&retry);
    good.same(2);
    shop.credit();
    wait_until("the next event", PATIENCE, || {
        (good.receiver.heard().len() >= 3).then_some(())
    });
    assert_eq!(gone.receiver.heard().len(), 1, "it wants no more");
}

fn unix_ms(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_millisecond()
}
