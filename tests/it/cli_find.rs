//! Finding a payment by what an operator has at hand: an output, an id or its beginning, an address, a
//! reference.

use serde_json::{Value, json};

use crate::sample::{D1, D3, Sample, txid};

fn ids(sample: &Sample, args: &[&str], list: &str) -> Vec<String> {
    let answer = sample.files.json(args);
    let rows = answer[list].as_array().unwrap();
    rows.iter()
        .map(|row| row["id"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The exit code and what is said on stderr.
fn refusal(sample: &Sample, args: &[&str]) -> (Option<i32>, String) {
    let output = sample.files.cli(args);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_transaction_is_found_by_output_deposit_credit_and_their_beginnings() {
    let sample = Sample::filled();
    let whole = sample.files.json(&["tx", &txid(5).to_string()]);
    let deposit = &whole["transactions"][0]["outputs"][0]["deposit"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (deposit, credit) = (text(&deposit["id"]), text(&deposit["credit"]["id"]));
    for typed in [
        format!("{}:0", txid(5)),
        deposit.clone(),
        deposit[..8].to_owned(),
        deposit[..9].to_uppercase().replace("DEP_", "dep_"),
        credit.clone(),
        credit[..7].to_owned(),
    ] {
        assert_eq!(sample.files.json(&["tx", &typed]), whole, "{typed}");
    }
    let (code, told) = refusal(&sample, &["tx", D1]);
    assert!(
        code == Some(2) && told.contains(&format!("`creditd deposits list --address {D1}`")),
        "{told}"
    );
    let (code, told) = refusal(&sample, &["tx", "dep_0000"]);
    assert!(
        code == Some(1) && told.contains("no deposit and no credit dep_0000"),
        "{told}"
    );
    // Three digits are not enough, whoever else has them.
    let (code, told) = refusal(&sample, &["tx", &deposit[..7]]);
    assert!(code == Some(2) && told.contains("is too short"), "{told}");
    let hold = ["deposits", "hold", &deposit[..8], "--reason", "x"];
    assert_eq!(sample.files.json(&hold)["deposits"][0]["id"], json!(deposit));
}

#[test]
fn an_ambiguous_beginning_is_refused_with_the_candidates() {
    let sample = Sample::filled();
    let known = ids(&sample, &["deposits", "list"], "deposits");
    let twin = format!("{}{}", &known[0][..8], "0".repeat(known[0].len() - 8));
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    raw.execute(
        "UPDATE deposits SET dep_id = ?1 WHERE dep_id = ?2",
        (&twin, &known[1]),
    )
    .unwrap();
    drop(raw);
    for args in [
        &["tx", &twin[..8]][..],
        &["deposits", "hold", &twin[..8], "--reason", "x"],
    ] {
        let (code, told) = refusal(&sample, args);
        assert!(
            code == Some(2) && told.contains(&twin) && told.contains(&known[0]),
            "{told}"
        );
    }
    assert_eq!(
        sample.files.json(&["deposits", "hold", &twin, "--reason", "x"])["deposits"][0]["id"],
        json!(twin)
    );
}

#[test]
fn lists_are_narrowed_by_address_reference_and_transaction() {
    let sample = Sample::filled();
    let third = txid(3).to_string();
    for (args, deposits, credits) in [
        (["--address", D1], 3, 1),
        (["--address", D3], 2, 2),
        (["--reference", "order-1"], 3, 1),
        (["--reference", "order-2"], 0, 0),
        (["--txid", &third], 1, 0),
    ] {
        let of = |command: &[&'static str], list: &str| {
            ids(&sample, &[command, &args.map(|arg| arg)[..]].concat(), list).len()
        };
        assert_eq!(of(&["deposits", "list"], "deposits"), deposits, "{args:?}");
        assert_eq!(of(&["credits"], "credits"), credits, "{args:?}");
        if args[0] != "--txid" {
            let watched = of(&["watch", "list"], "addresses");
            assert_eq!(watched, usize::from(deposits > 0), "{args:?}");
        }
    }
    let both = [
        "deposits",
        "list",
        "--address",
        D1,
        "--reference",
        "order-1",
        "--state",
        "seen",
    ];
    assert_eq!(ids(&sample, &both, "deposits").len(), 1);
    let (code, told) = refusal(&sample, &["credits", "--address", "bc1q"]);
    assert!(
        code == Some(2) && told.contains("read the address bc1q"),
        "{told}"
    );
    let (code, told) = refusal(&sample, &["credits", "--txid", "77"]);
    assert!(code == Some(2) && told.contains("is no transaction id"), "{told}");
}

#[test]
fn a_held_deposit_shows_what_was_typed_and_a_reversed_credit_its_reason() {
    let sample = Sample::filled();
    let payment = format!("{}:0", txid(1));
    let reason = "payer asked for it back";
    sample
        .files
        .json(&["deposits", "hold", &payment, "--reason", reason, "--apply"]);
    let table = |args: &[&str]| String::from_utf8(sample.files.cli(args).stdout).unwrap();
    let held = table(&["deposits", "list", "--held"]);
    assert!(
        held.contains(&format!("operator: {reason}")) && held.contains("own_inputs"),
        "{held}"
    );
    let credits = table(&["credits"]);
    assert!(
        credits.contains("reversed: held") && credits.contains("reversed: replaced"),
        "{credits}"
    );
    let answer = sample.files.json(&["deposits", "list", "--held"]);
    let causes = answer["deposits"].as_array().unwrap().iter();
    let causes: Vec<&Value> = causes.map(|row| &row["held_cause"]).collect();
    assert!(
        causes.contains(&&json!(reason)) && causes.contains(&&Value::Null),
        "{causes:?}"
    );
}

#[test]
fn a_block_reward_shows_the_depth_that_it_needs() {
    let sample = Sample::filled();
    // The third payment, as if it were the reward of its block.
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    raw.execute_batch(
        "UPDATE deposits SET due_height = height + 100 WHERE held_reason IS NOT NULL;
         UPDATE txs SET is_coinbase = 1
         WHERE id = (SELECT o.tx FROM deposits d JOIN outputs o ON o.id = d.output
                     WHERE held_reason IS NOT NULL)",
    )
    .unwrap();
    drop(raw);
    let answer = sample.files.json(&["deposits", "list", "--held"]);
    let deposit = &answer["deposits"][0];
    assert_eq!(
        (
            &deposit["confirmations_required"],
            &deposit["policy_confirmations"]
        ),
        (&json!(101), &json!(3))
    );
    let text = |args: &[&str]| String::from_utf8(sample.files.cli(args).stdout).unwrap();
    assert!(text(&["deposits", "list"]).contains("  3/101  "));
    let told = text(&["tx", &txid(3).to_string()]);
    assert!(
        told.contains("3 confirmations for the deposits of block 103; a block reward needs 101"),
        "{told}"
    );
}
