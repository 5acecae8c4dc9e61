//! C23: one address in other letters.

use serde_json::{Value, json};

use super::{Chain, E1, E2, books, mine, node_with_token, wait_books};
use crate::common::anvil::AnvilNode;
use crate::common::daemon::Daemon;

fn upper(text: &str) -> String {
    format!("0x{}", text[2..].to_uppercase())
}

#[test]
fn c23_every_spelling_of_an_evm_address_is_one_address() {
    let (node, token) = node_with_token();
    // The token is listed in upper-case digits.
    let chain = Chain::at(&node.url())
        .coin("\"traces\"")
        .token(&upper(&token.address), "TUSD", 6);
    let mut daemon = Daemon::prepare(&chain.setup());
    let added: Vec<Value> = [E1.to_owned(), upper(E2)]
        .iter()
        .map(|address| daemon.json(&["watch", "add", address, "--merchant", "shop"]))
        .collect();
    assert!(added[0].to_string().contains(E1), "{}", added[0]);
    assert!(
        added[1].to_string().contains(E2),
        "the canonical spelling: {}",
        added[1]
    );
    // Nothing new: the same address, whatever the letters.
    for same in [E1.to_lowercase(), upper(E1), E1.to_owned()] {
        daemon.json(&["watch", "add", &same, "--merchant", "shop"]);
        let other = daemon.cli(&["watch", "add", &same, "--merchant", "bar"]);
        assert!(!other.status.success(), "{same} belongs to another merchant");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM addresses"), 2);
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    let coin = node.pay(&node.account(1), &E1.to_lowercase(), 5);
    token.transfer(&node, &node.account(2), &E2.to_lowercase(), 6);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 6 to E2 credited", "native: 5 to E1 credited"]);
    for spelling in [E1.to_owned(), E1.to_lowercase(), upper(E1)] {
        let answer = daemon.json(&["deposits", "list", "--address", &spelling]);
        let found = answer["deposits"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{spelling}");
        assert_eq!(found[0]["address"], json!(E1), "one spelling in every answer");
    }
    for spelling in [coin.clone(), upper(&coin), coin[2..].to_owned()] {
        let answer = daemon.ask(&["tx", &spelling]);
        let answer = answer.unwrap_or_else(|| panic!("{spelling}"));
        assert_eq!(answer["transactions"][0]["txid"], json!(coin), "{spelling}");
    }
    daemon.assert_sound();
}

#[test]
fn c23_wrong_checksum_or_form_is_refused_and_nothing_is_stored() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let daemon = Chain::at(&node.url()).coin("\"traces\"").follow(&node);
    let other_case = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed";
    for bad in [
        other_case,
        &E1[2..],
        &E1[..41],
        &format!("{E1}0"),
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeg",
    ] {
        let refused = daemon.cli(&["watch", "add", bad, "--merchant", "shop"]);
        assert!(!refused.status.success(), "{bad}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(bad), "{bad}: {said}");
        assert!(bad != other_case || said.contains("checksum"), "{said}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM addresses"), 2);
    assert_eq!(books(&daemon), Vec::<String>::new());
    // The same in the config.
    let wrong = Chain::at(&node.url()).token(other_case, "TUSD", 6);
    let wrong = Daemon::prepare(&wrong.setup());
    let refused = wrong.cli(&["run"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("checksum") && said.contains(other_case), "{said}");
}
