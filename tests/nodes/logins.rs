//! The ways to a real node's password that docs/operations.md names, with no call allowed that it does not.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::common::asks::D1;
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;

const PASSWORD: &str = "a password of the node's, 0123456789";

/// The line that `rpcauth.py` prints.
fn rpcauth(user: &str, password: &str) -> String {
    let salt = "8f2c9e3d1b7a6054";
    let mut mac = Hmac::<Sha256>::new_from_slice(salt.as_bytes()).unwrap();
    mac.update(password.as_bytes());
    let mut hash = String::new();
    for byte in mac.finalize().into_bytes() {
        write!(hash, "{byte:02x}").unwrap();
    }
    format!("-rpcauth={user}:{salt}${hash}")
}

/// The calls that docs/operations.md lists for `rpcwhitelist`.
fn whitelist() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).unwrap();
    let (_, rest) = page.split_once("`rpcwhitelist` may be narrowed").unwrap();
    let (list, _) = rest.split_once("\n\n").unwrap();
    let words = list.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// Seen, confirmed, credited over plain RPC; REST, which asks for no password, is off.
#[test]
fn rpcauth_as_a_credential_with_the_documented_calls_alone_is_enough() {
    let calls = whitelist();
    assert!(calls.len() >= 10, "{calls:?}");
    let node = RegtestNode::start_with(&[
        &rpcauth("creditd", PASSWORD),
        &format!("-rpcwhitelist=creditd:{}", calls.join(",")),
        "-rpcwhitelistdefault=0",
        "-rest=0",
    ]);
    node.fund();
    let credentials = tempfile::tempdir().unwrap();
    std::fs::write(credentials.path().join("bitcoin-rpc-password"), PASSWORD).unwrap();
    let directory = credentials.path().display().to_string();
    let mut daemon = Daemon::prepare(&Setup {
        environment: vec![("CREDENTIALS_DIRECTORY".to_owned(), directory)],
        ..Setup::for_node(&node)
    });
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    let cookie = config
        .lines()
        .find(|line| line.starts_with("cookie_file"))
        .unwrap();
    let login = "rpc_user = \"creditd\"\nrpc_password_file = \"credential:bitcoin-rpc-password\"";
    std::fs::write(daemon.config_file(), config.replace(cookie, login)).unwrap();

    assert!(daemon.cli(&["check"]).status.success());
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(node.height());
    let txid = node.send(D1, 10_000_000);
    daemon.wait_for("it is seen", &["tx", &txid], |answer| {
        answer["transactions"][0].is_object().then_some(())
    });
    node.mine(3);
    daemon.wait_for("it is credited", &["credits"], |answer| {
        (answer["credits"].as_array()?.len() == 1).then_some(())
    });
    assert!(!daemon.log().contains("forbidden"), "{}", daemon.log());
    daemon.stop();
}
