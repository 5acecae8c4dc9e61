//! Secrets are planted everywhere, everything is made to fail at the most talkative log level, and then every
//! word that came out is searched for them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::receiver::{Receiver, answer};
use crate::common::service_manager::ServiceManager;
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};

const PASSWORD: &str = "planted-rpc-password-3141592653";
const COOKIE: &str = "planted-cookie-2718281828";
const URL_TOKEN: &str = "planted-url-token-1414213562";

/// Everything that came out so far, by where.
struct Harvest(Vec<(String, Vec<u8>)>);

impl Harvest {
    fn add(&mut self, from: &str, words: impl Into<Vec<u8>>) {
        self.0.push((from.to_owned(), words.into()));
    }

    #[track_caller]
    fn assert_free_of(&self, what: &str, secret: &[u8]) {
        for (from, words) in &self.0 {
            let found = words.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "{from} shows {what}:\n{}", String::from_utf8_lossy(words));
        }
    }
}

/// What a node, or a proxy before it, might send back of what it was sent.
fn repeats(sent: &str) -> Vec<(&'static str, Reply)> {
    let leak = |text: String| -> &'static str { text.leak() };
    vec![
        ("Method", Reply::Text(500, leak(format!("Authorization: {sent}")))),
        (
            "Broken",
            Reply::Text(200, leak(format!("<html>{sent} {PASSWORD} {COOKIE}"))),
        ),
        (
            "Code",
            Reply::Error(-1, leak(format!("you are {PASSWORD}, I think, or {COOKIE}"))),
        ),
        (
            "Warm",
            Reply::Error(-28, leak(format!("warming up for {sent} {PASSWORD} {COOKIE}"))),
        ),
        (
            "Form",
            Reply::Result(json!({ "chain": { PASSWORD: COOKIE }, "bestblockhash": sent })),
        ),
        ("Hash", Reply::Result(json!(format!("{PASSWORD}{COOKIE}{sent}")))),
    ]
}

/// Lets a node answer so until the daemon has told of it.
fn provoke(daemon: &Daemon, node: &FakeNode, alias: &str, sent: &str, harvest: &mut Harvest) {
    for (what, reply) in repeats(sent) {
        for method in [
            "getblockchaininfo",
            "getnetworkinfo",
            "getbestblockhash",
            "getblockhash",
        ] {
            node.state().overrides.insert(method.to_owned(), reply.clone());
        }
        let status = wait_until(&format!("{alias} fails: {what}"), PATIENCE, || {
            let status = daemon.ops("/readyz").1;
            status.contains("unreachable").then_some(status)
        });
        harvest.add("/readyz", status);
        harvest.add("chain status", daemon.cli(&["chain", "status"]).stdout);
        node.state().overrides.clear();
        daemon.wait_height_of(alias, 3);
    }
}

fn setup(node: &FakeNode, other: &FakeNode, manager: &ServiceManager) -> Setup {
    let mut setup = Setup::for_stub(&node.stub).beside(&other.stub);
    setup.ops_listen = "127.0.0.1:0".to_owned();
    setup.tables += "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\ntimeout_secs = 2\n";
    manager.manage(setup, Duration::from_secs(60))
}

/// Logs everything, and logs in at the first node with a password.
fn rewrite_config(daemon: &Daemon, format: &str) {
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    let cookie = config
        .lines()
        .find(|line| line.starts_with("cookie_file"))
        .unwrap();
    let login = "rpc_user = \"creditd\"\nrpc_password_file = \"password\"";
    let log = format!("level = \"trace\"\nformat = \"{format}\"");
    let config = config
        .replacen(cookie, login, 1)
        .replace("level = \"debug\"", &log);
    std::fs::write(daemon.config_file(), config).unwrap();
    std::fs::write(daemon.folder().join("password"), PASSWORD).unwrap();
}

/// All files of the database's folder but those that hold secrets by design.
fn add_files(folder: &Path, harvest: &mut Harvest) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name != "password" {
            harvest.add(name, std::fs::read(&path).unwrap());
        }
    }
}

fn ask_everything(daemon: &Daemon, endpoint: &str, event: &str, harvest: &mut Harvest) {
    for path in ["/metrics", "/readyz", "/healthz"] {
        harvest.add(path, daemon.ops(path).1);
    }
    let commands: [&[&str]; 10] = [
        &["check"],
        &["chain", "status"],
        &["endpoint", "list"],
        &["endpoint", "pause", endpoint, "--reason", "test", "--apply"],
        &["endpoint", "resume", endpoint, "--reason", "test", "--apply"],
        &["endpoint", "test", endpoint],
        &["callbacks", "list"],
        &["callbacks", "show", event],
        &[
            "callbacks",
            "retry",
            event,
            "--endpoint",
            endpoint,
            "--reason",
            "test",
            "--apply",
        ],
        &["deposits", "list"],
    ];
    for command in commands {
        for command in [command.to_vec(), [command, &["--json"]].concat()] {
            let output = daemon.cli(&command);
            harvest.add(&command.join(" "), [output.stdout, output.stderr].concat());
        }
    }
}

/// The same daemon in the other form of a log line.
fn run_with_json_log(daemon: &mut Daemon) {
    let json_log = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), json_log.replace("\"text\"", "\"json\"")).unwrap();
    daemon.start_again();
    wait_until("it is up again", PATIENCE, || {
        daemon
            .log()
            .contains("\"message\":\"btc is following\"")
            .then_some(())
    });
    daemon.stop();
}

#[test]
fn planted_secrets_come_out_nowhere() {
    let manager = ServiceManager::new();
    let (node, other) = (FakeNode::regtest(3), FakeNode::regtest(3));
    node.stub.require("creditd:not yet the password");
    other.stub.renew_cookie(COOKIE);
    let receiver = Receiver::http(Ipv4Addr::LOCALHOST, |_, to| answer(to, 500, b"no"));
    let mut daemon = Daemon::prepare(&setup(&node, &other, &manager));
    rewrite_config(&daemon, "text");
    let mut harvest = Harvest(Vec::new());

    let url = format!("http://{}/{URL_TOKEN}", receiver.address);
    let added = daemon.json(&["endpoint", "add", &url, "--merchant", "shop"]);
    let (endpoint, first) = (text(&added["endpoint"]["id"]), text(&added["secret"]));
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_state("unreachable", "unauthorized (user creditd with the password of");
    node.stub.require(&format!("creditd:{PASSWORD}"));
    daemon.wait_height(3);
    let sent = |pair: String| format!("Basic {}", STANDARD.encode(pair));
    provoke(
        &daemon,
        &node,
        "btc",
        &sent(format!("creditd:{PASSWORD}")),
        &mut harvest,
    );
    provoke(
        &daemon,
        &other,
        "other",
        &sent(format!("__cookie__:{COOKIE}")),
        &mut harvest,
    );

    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000_000)])]);
    let event = wait_until("a callback is refused", PATIENCE, || {
        let list = daemon.ask(&["callbacks", "list"])?;
        let newest = list["callbacks"].as_array()?.first()?;
        (newest["attempts"].as_u64()? > 0).then(|| text(&newest["event"]))
    });
    let rotated = daemon.json(&[
        "endpoint",
        "rotate-secret",
        &endpoint,
        "--reason",
        "test",
        "--apply",
    ]);
    let second = text(&rotated["secret"]);
    ask_everything(&daemon, &endpoint, &event, &mut harvest);
    daemon.stop();
    run_with_json_log(&mut daemon);

    let config = creditd::config::Config::load(Some(&daemon.config_file())).unwrap();
    harvest.add("the config's debug output", format!("{config:?} {config:#?}"));
    harvest.add("the service manager", manager.told().join("\n"));
    harvest.add("the log", daemon.log());
    assert!(
        daemon
            .log()
            .matches("not shown: it repeats our credentials")
            .count()
            >= 8,
        "{}",
        daemon.log()
    );
    search(harvest, &daemon, &first, &second);
}

/// Looks for every secret in every form.
#[track_caller]
fn search(mut harvest: Harvest, daemon: &Daemon, first: &str, second: &str) {
    for (what, secret) in [("the signing secret", first), ("the new signing secret", second)] {
        let encoded = secret.strip_prefix("whsec_").unwrap();
        let key = STANDARD.decode(encoded).unwrap();
        harvest.assert_free_of(what, encoded.as_bytes());
        harvest.assert_free_of(what, &key);
        harvest.assert_free_of(what, const_hex::encode(&key).as_bytes());
    }
    let log_and_pages = Harvest(
        harvest
            .0
            .iter()
            .filter(|(from, _)| from.starts_with('/') || from.starts_with("the "))
            .cloned()
            .collect(),
    );
    log_and_pages.assert_free_of("the URL of an endpoint", URL_TOKEN.as_bytes());
    // The database holds what callbacks are signed with, and nothing of the node's.
    add_files(daemon.folder(), &mut harvest);
    for (what, secret) in [
        ("the password", PASSWORD.to_owned()),
        ("the cookie", COOKIE.to_owned()),
        (
            "the password as it is sent",
            STANDARD.encode(format!("creditd:{PASSWORD}")),
        ),
        (
            "the cookie as it is sent",
            STANDARD.encode(format!("__cookie__:{COOKIE}")),
        ),
    ] {
        harvest.assert_free_of(what, secret.as_bytes());
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}
