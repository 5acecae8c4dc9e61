//! C23: an address is bytes, not text.

use crate::common::asks::{D1, D2, D3, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};

/// Every way to write the three addresses that is right, and the one that is shown.
const SPELLINGS: [(&str, &str); 5] = [
    (D1, D1),
    ("BCRT1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KYGT080", D1),
    (D2, D2),
    (
        "BCRT1P0XLXVLHEMJA6C4DQV22UAPCTQUPFHLXM9H8Z3K2E72Q4K9HCZ7VQC8GMA6",
        D2,
    ),
    (D3, D3),
];

#[test]
fn c23_every_right_spelling_is_one_address_and_is_paid() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    let add = |address: &str| daemon.json(&["watch", "add", address, "--merchant", "shop"]);
    // Upper case first, so that the stored rule comes from it.
    for (spelling, canonical) in SPELLINGS.iter().rev() {
        let added = add(spelling);
        assert_eq!(added["address"], *canonical, "{spelling}");
    }
    for (spelling, _) in SPELLINGS {
        assert_eq!(add(spelling)["outcome"], "known", "{spelling}");
    }
    let listed = daemon.json(&["watch", "list"]);
    assert_eq!(listed["addresses"].as_array().unwrap().len(), 3, "{listed}");
    let other = daemon.cli(&["watch", "add", SPELLINGS[1].0, "--merchant", "other-shop"]);
    assert_eq!(
        other.status.code(),
        Some(1),
        "one address belongs to one merchant: {other:?}"
    );

    daemon.start_again();
    daemon.wait_height(3);
    let outputs = [
        (script(D1), 1_000_000),
        (script(D2), 2_000_000),
        (script(D3), 3_000_000),
    ];
    let paid = tx(&[coin(1)], &outputs);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    for (vout, address) in (0..).zip([D1, D2, D3]) {
        daemon.wait_deposit(&txid, vout, "credited");
        assert_eq!(
            daemon.tx(&txid).unwrap()["outputs"][vout as usize]["address"],
            address
        );
    }
    let credits = daemon.credits();
    let told: Vec<(&str, &str)> = credits
        .iter()
        .map(|credit| {
            (
                credit["address"].as_str().unwrap(),
                credit["amount_base"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [(D1, "1000000"), (D2, "2000000"), (D3, "3000000")]);
    // A transaction is looked up in either letter case too.
    assert_eq!(daemon.tx(&txid.to_uppercase()), daemon.tx(&txid));
    daemon.assert_sound();
}

#[test]
fn c23_wrong_spellings_are_refused_and_nothing_is_stored() {
    let node = FakeNode::regtest(0);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    let lower_base58 = D3.to_lowercase();
    let upper_base58 = D3.to_uppercase();
    let mixed = D1.replace("w508", "W508");
    let mixed_prefix = D1.replace("bcrt", "BCRT");
    let one_letter = D3.replace("mrCD", "mrcD");
    let twisted = D1.replace("080", "08q");
    let wrong = [
        ("mixed-case bech32", mixed.as_str(), "upper and lower case mixed"),
        (
            "upper-case prefix alone",
            &mixed_prefix,
            "upper and lower case mixed",
        ),
        ("lower-cased base58", &lower_base58, "checksum does not fit"),
        ("upper-cased base58", &upper_base58, "checksum does not fit"),
        ("one letter's case", &one_letter, "checksum does not fit"),
        ("another last letter", &twisted, "checksum does not fit"),
        (
            "mainnet",
            "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
            "an address of main, but this chain is regtest",
        ),
        (
            "testnet",
            "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx",
            "but this chain is regtest",
        ),
        (
            "mainnet legacy",
            "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH",
            "an address of main, but this chain is regtest",
        ),
        ("nothing", "", "not a Bitcoin address"),
        (
            "an account of another chain",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "not a Bitcoin address",
        ),
    ];
    for (what, address, why) in wrong {
        let output = daemon.cli(&["watch", "add", address, "--merchant", "shop"]);
        assert_eq!(output.status.code(), Some(2), "{what}: {output:?}");
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(words.contains(why), "{what} is refused because of {why}: {words}");
    }
    let list = daemon.folder().join("addresses.txt");
    let lines: Vec<&str> = wrong.iter().map(|(_, address, _)| *address).collect();
    std::fs::write(&list, lines.join("\n") + "\n" + D1 + "\n").unwrap();
    let list = list.to_str().unwrap();
    let imported = daemon
        .ask(&["watch", "import", list, "--merchant", "shop"])
        .unwrap();
    // The empty line says nothing and is no fault.
    assert_eq!(
        (imported["added"].as_u64(), imported["faulty"].as_u64()),
        (Some(1), Some(10)),
        "{imported}"
    );
    assert_eq!(daemon.count("SELECT count(*) FROM addresses"), 1);
}
