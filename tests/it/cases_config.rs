//! C06 (c): how deep is deep enough is the operator's word; no chain runs without it.

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;

#[test]
fn c06_chain_without_a_policy_is_a_config_error() {
    let node = FakeNode::regtest(3);
    let policy = "[[bitcoin.policy]]\nconfirmations = 3\n";
    for (what, instead, words) in [
        ("no policy", "", "policy"),
        ("an empty one", "[[bitcoin.policy]]\n", "confirmations"),
        ("zero", "[[bitcoin.policy]]\nconfirmations = 0\n", "confirmations"),
        (
            "less than zero",
            "[[bitcoin.policy]]\nconfirmations = -1\n",
            "confirmations",
        ),
        (
            "a text",
            "[[bitcoin.policy]]\nconfirmations = \"3\"\n",
            "confirmations",
        ),
        (
            "a fraction",
            "[[bitcoin.policy]]\nconfirmations = 2.5\n",
            "confirmations",
        ),
        (
            "deeper than a reorg may go",
            "[[bitcoin.policy]]\nconfirmations = 145\n",
            "reorg_window",
        ),
        (
            "small payments only",
            "[[bitcoin.policy]]\nbelow = \"1\"\nconfirmations = 3\n",
            "below",
        ),
        (
            "zero for small ones",
            "[[bitcoin.policy]]\nbelow = \"1\"\nconfirmations = 0\n\
                                 [[bitcoin.policy]]\nconfirmations = 3\n",
            "confirmations",
        ),
    ] {
        let mut daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
        let whole = std::fs::read_to_string(daemon.config_file()).unwrap();
        assert!(whole.contains(policy), "{whole}");
        std::fs::write(daemon.config_file(), whole.replace(policy, instead)).unwrap();
        for command in ["run", "check"] {
            let output = daemon.cli(&[command]);
            let told = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(2), "{what}, {command}: {told}");
            assert!(told.contains(words), "{what}, {command}: {told}");
        }
        assert!(!daemon.is_running());
        assert!(!daemon.database().exists(), "{what}: nothing was begun");
    }
    assert_eq!(node.stub.calls().len(), 0, "no node was asked");
}
