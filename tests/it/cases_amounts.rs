//! C33: no amount passes through binary floating point on its way from the block to the books and the screen.

use serde_json::Value;

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};

/// Satoshi, and how people read them. All but the 59 lose one when multiplied out as a double and cut.
const AMOUNTS: [(u64, &str); 12] = [
    (29_000_000, "0.29"),
    (115_000_000, "1.15"),
    (57_000_000, "0.57"),
    (435_000_000, "4.35"),
    (1_640_000_000, "16.4"),
    (230_000_000, "2.3"),
    (59, "0.00000059"),
    (2_099_999_997_690_000, "20999999.9769"),
    (1, "0.00000001"),
    (100_000_000, "1"),
    (100_000_001, "1.00000001"),
    (2_099_999_999_999_999, "20999999.99999999"),
];

#[test]
fn c33_every_satoshi_of_a_raw_block_is_in_the_books() {
    let node = FakeNode::regtest(1);
    let setup = Setup {
        confirmations: 1,
        ..Setup::for_stub(&node.stub)
    };
    let daemon = Daemon::watching(&setup, D1, 1);
    let outputs: Vec<_> = AMOUNTS.iter().map(|(sat, _)| (script(D1), *sat)).collect();
    let paid = tx(&[coin(1)], &outputs);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    let last = AMOUNTS.len() as u64 - 1;
    daemon.wait_deposit(&txid, last, "credited");

    let credits = daemon.credits();
    assert_eq!(credits.len(), AMOUNTS.len());
    for (credit, (sat, units)) in credits.iter().zip(AMOUNTS) {
        // Texts, never JSON numbers: readers would make doubles of those.
        for (field, expected) in [
            ("amount_base", sat.to_string()),
            ("net_base", sat.to_string()),
            ("amount", units.to_owned()),
            ("net", units.to_owned()),
        ] {
            assert_eq!(credit[field], Value::String(expected), "{field} of {sat}");
        }
    }
    let events = daemon.events_of("credit.created");
    let told: Vec<&Value> = events
        .iter()
        .map(|event| &event.body["data"]["amount_base"])
        .collect();
    let stored: Vec<String> = AMOUNTS.iter().map(|(sat, _)| sat.to_string()).collect();
    assert_eq!(told, stored.iter().collect::<Vec<_>>());

    let sum: u128 = AMOUNTS.iter().map(|(sat, _)| u128::from(*sat)).sum();
    let balances = daemon.json(&["balances"]).to_string();
    assert!(balances.contains(&format!("\"{sum}\"")), "{sum} in {balances}");
    for args in [
        ["credits", "--csv"],
        ["deposits", "list"],
        ["credits", "--limit=50"],
    ] {
        let output = daemon.cli(&args);
        let text = String::from_utf8(output.stdout).unwrap();
        for (sat, units) in AMOUNTS {
            let is_there = text.split([' ', ',', '\n']).any(|word| word == units);
            assert!(is_there, "{sat} as {units} in creditd {args:?}:\n{text}");
        }
    }
    daemon.assert_sound();
}

#[test]
fn c33_a_tier_is_chosen_by_whole_satoshi() {
    // 0.29 BTC as a double is a hair less than 0.29: one satoshi must decide, not that hair.
    let node = FakeNode::regtest(1);
    let setup = Setup {
        chain_lines: "[[bitcoin.policy]]\nbelow = \"0.29\"\nconfirmations = 1\n".to_owned(),
        confirmations: 3,
        ..Setup::for_stub(&node.stub)
    };
    let daemon = Daemon::watching(&setup, D1, 1);
    let [below, at] = [28_999_999, 29_000_000].map(|sat| tx(&[coin(sat)], &[(script(D1), u64::from(sat))]));
    let [below_id, at_id] = [&below, &at].map(|tx| tx.compute_txid().to_string());
    node.mine(vec![below]);
    daemon.wait_deposit(&below_id, 0, "credited");
    node.mine(vec![at]);
    let waiting = daemon.wait_deposit(&at_id, 0, "confirming");
    assert_eq!(waiting["confirmations_required"], 3, "{waiting}");
}
