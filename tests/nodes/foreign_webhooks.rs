//! Callbacks as merchants receive them: over HTTP, checked by the official packages for Python and
//! JavaScript. (The Rust one is asked in tests/it/webhook.rs.)

use crate::common::node::cache_folder;
use creditd::chance::Chance;
use creditd::clock::Clock;
use creditd::egress::{Dial, GuardedDial, HttpReply, HttpRequest, Policy, Range, SystemResolver};
use creditd::webhook::{self, Key, Scheme};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ID: &str = "evt_27UH4WbU6Z5A5EzD8u03UvzRbpk";

/// What `tests/run` names, else what it fetched earlier.
pub fn fetched(variable: &str, place: &str) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = named.or_else(|| Some(cache_folder()?.join(place)));
    let found = found.filter(|path| path.exists());
    found.unwrap_or_else(|| panic!("{place} is not there: run `tests/run tools`, or set {variable}"))
}

/// A receiver in another language. Ends with the test: its input does.
struct Foreign {
    child: Child,
    input: Option<ChildStdin>,
    port: u16,
}

impl Foreign {
    fn python(secrets: &[String]) -> Foreign {
        let mut command = Command::new(fetched("WEBHOOKS_PYTHON", "webhooks/python/bin/python"));
        command.arg(script("receiver.py"));
        Foreign::start(command, secrets)
    }

    fn javascript(secrets: &[String]) -> Foreign {
        let mut command = Command::new("node");
        command.env(
            "NODE_PATH",
            fetched("WEBHOOKS_NODE_MODULES", "webhooks/node_modules"),
        );
        command.arg(script("receiver.js"));
        Foreign::start(command, secrets)
    }

    fn start(mut command: Command, secrets: &[String]) -> Foreign {
        command.args(secrets).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        let port = line.trim().parse();
        let port = port.unwrap_or_else(|_| panic!("{command:?} did not start: see its output above"));
        Foreign { child, input, port }
    }

    /// Sends a callback as the daemon does; `at` is the secret that the receiver is to verify with.
    async fn receive(&self, at: usize, headers: Headers, body: &str) -> (u16, String) {
        let policy = Policy::new(vec![Range::parse("127.0.0.0/8").unwrap()]);
        let dial = GuardedDial::new(policy, Arc::new(SystemResolver), None).unwrap();
        let request = HttpRequest {
            body: Some(body.to_owned().into()),
            url: format!("http://127.0.0.1:{}/{at}", self.port),
            headers: headers.map(|(name, value)| (name.into(), value)).into(),
            deadline: Duration::from_secs(30),
            body_bytes_max: 1024,
        };
        let HttpReply { status, body, .. } = dial.send(request).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.input.take();
        self.child.wait().unwrap();
    }
}

type Headers = [(&'static str, String); 3];

fn script(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/nodes/receivers").join(name)
}

/// The keys that receivers know of, and their texts as merchants get them.
struct Keys {
    old: Key,
    new: Key,
    pair: Key,
}

impl Keys {
    fn fresh() -> Keys {
        let fresh = |scheme| webhook::fresh_key(scheme, Chance::real()).unwrap();
        Keys {
            old: fresh(Scheme::V1),
            new: fresh(Scheme::V1),
            pair: fresh(Scheme::V1a),
        }
    }

    fn shared(&self) -> Vec<String> {
        let text = |key: &Key| key.to_secret().reveal().to_owned();
        vec![text(&self.old), text(&self.new)]
    }
}

fn signed(late_secs: i64, body: &str, keys: &[&Key]) -> Headers {
    let keys: Vec<Key> = keys.iter().copied().cloned().collect();
    let at_secs = Clock::real().now_ms() / 1000 - late_secs;
    webhook::headers(ID, at_secs, body.as_bytes(), &keys).unwrap()
}

/// What both packages must say. OLD and NEW are the receiver's secrets by their place.
async fn assert_receives(receiver: &Foreign, keys: &Keys) {
    const OLD: usize = 0;
    const NEW: usize = 1;
    let Keys { old, new, pair } = keys;
    let plain = r#"{"type":"credit.created","data":{"amount":"0.29","amount_base":"29000000"}}"#;
    for body in [plain, r#"{"memo":"café 🦀 "}"#, "{\"a\" : 1.10,\n \"b\":\t[]}"] {
        let headers = signed(0, body, &[old]);
        let ours = headers[2].1.clone();
        assert_eq!(receiver.receive(OLD, headers, body).await, (200, ours), "{body}");
        // While a receiver changes over it knows one of the two.
        for known in [OLD, NEW] {
            let (status, why) = receiver
                .receive(known, signed(0, body, &[new, pair, old]), body)
                .await;
            assert_eq!(status, 200, "secret {known}: {why}");
        }
    }
    let refusals = [
        (
            "another secret",
            NEW,
            signed(0, plain, &[old]),
            plain,
            "No matching signature",
        ),
        (
            "only a pair's",
            OLD,
            signed(0, plain, &[pair]),
            plain,
            "No matching signature",
        ),
        (
            "altered",
            OLD,
            signed(0, plain, &[old]),
            "{}",
            "No matching signature",
        ),
        ("a recording", OLD, signed(330, plain, &[old]), plain, "too old"),
        (
            "from the future",
            OLD,
            signed(-330, plain, &[old]),
            plain,
            "too new",
        ),
    ];
    for (name, secret, headers, body, expected) in refusals {
        let (status, why) = receiver.receive(secret, headers, body).await;
        assert!(status == 401 && why.contains(expected), "{name}: {status} {why}");
    }
}

#[tokio::test]
async fn the_python_package_verifies_our_callbacks() {
    let keys = Keys::fresh();
    assert_receives(&Foreign::python(&keys.shared()), &keys).await;
}

#[tokio::test]
async fn the_javascript_package_verifies_our_callbacks() {
    let keys = Keys::fresh();
    assert_receives(&Foreign::javascript(&keys.shared()), &keys).await;
}

#[tokio::test]
async fn a_receiver_verifies_a_pair_by_its_public_half() {
    let keys = Keys::fresh();
    let stranger = webhook::fresh_key(Scheme::V1a, Chance::real()).unwrap();
    let receiver = Foreign::javascript(&[keys.pair.public_text().unwrap()]);
    let body = r#"{"memo":"café 🦀"}"#;
    for (signers, expected) in [
        (vec![&keys.pair], 200),
        (vec![&keys.old, &keys.pair], 200),
        (vec![&stranger], 401),
        (vec![&keys.old], 401),
    ] {
        let (status, why) = receiver.receive(0, signed(0, body, &signers), body).await;
        assert_eq!(status, expected, "{why}");
    }
}

/// A sample of the README as it stands, with a real secret in it.
fn sample(language: &str, secret: &str) -> String {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once(&format!("```{language}\n")).unwrap();
    let (code, _) = rest.split_once("```").unwrap();
    assert!(code.contains("\"whsec_...\""), "{code}");
    code.replace("whsec_...", secret)
}

#[test]
fn the_samples_of_the_readme_verify_and_refuse() {
    let keys = Keys::fresh();
    let secret = keys.old.to_secret();
    let body = r#"{"type":"credit.created","data":{"amount":"0.29"}}"#;
    let python = "import json, sys\nraw_body = sys.argv[1].encode()\n\
                  class request: headers = json.loads(sys.argv[2])\n";
    let javascript = "const rawBody = process.argv[1], request = {headers: JSON.parse(process.argv[2])};\n";
    for (key, is_good) in [(&keys.old, true), (&keys.new, false)] {
        let headers: std::collections::BTreeMap<_, _> = signed(0, body, &[key]).into();
        let headers = serde_json::to_string(&headers).unwrap();
        let mut runs = [
            Command::new(fetched("WEBHOOKS_PYTHON", "webhooks/python/bin/python")),
            Command::new("node"),
        ];
        let code = sample("python", secret.reveal());
        runs[0].args(["-c", &format!("{python}{code}print(event[\"type\"])")]);
        let code = sample("js", secret.reveal());
        runs[1].env(
            "NODE_PATH",
            fetched("WEBHOOKS_NODE_MODULES", "webhooks/node_modules"),
        );
        runs[1].args(["-e", &format!("{javascript}{code}console.log(event.type)")]);
        for mut run in runs {
            let output = run.args([body, &headers]).output().unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(told == "credit.created\n", is_good, "{told}{errors}");
            assert!(is_good || errors.contains("No matching signature"), "{errors}");
        }
    }
}
