//! What the commands show of a ledger with one of everything: golden output for people, and facts in JSON.

use creditd::rules::chain_state::ChainState;
use serde_json::{Value, json};

use crate::sample::{D1, D2, Sample, txid};

#[track_caller]
fn shown(sample: &Sample, args: &[&str]) -> String {
    let output = sample.files.cli(args);
    let (stdout, stderr) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr:?}");
    assert_eq!(stderr.unwrap(), "", "{args:?}");
    stdout.unwrap()
}

#[test]
fn lists_and_stories_of_a_ledger() {
    let sample = Sample::filled();
    for (name, args) in [
        ("deposits", &["deposits", "list"][..]),
        ("deposits_held", &["deposits", "list", "--held"]),
        ("credits", &["credits"]),
        ("credits_csv", &["credits", "--csv"]),
        ("balances", &["balances"]),
        ("balances_csv", &["balances", "--csv"]),
        ("addresses", &["watch", "list"]),
        ("chain_status", &["chain", "status"]),
        ("tx_credited", &["tx", &txid(1).to_string()]),
        ("tx_replaced", &["tx", &txid(2).to_string()]),
        ("tx_held", &["tx", &txid(3).to_string()]),
        ("tx_orphaned", &["tx", &txid(4).to_string()]),
        ("tx_credited_instead", &["tx", &txid(5).to_string()]),
        ("tx_in_mempool", &["tx", &txid(6).to_string()]),
        ("tx_json", &["tx", &txid(1).to_string(), "--json"]),
        ("status_json", &["chain", "status", "--json"]),
    ] {
        insta::assert_snapshot!(name, shown(&sample, args));
    }
}

#[test]
fn lists_are_filtered_and_paged() {
    let sample = Sample::filled();
    let ids = |answer: &Value, list: &str| -> Vec<String> {
        let rows = answer[list].as_array().unwrap();
        rows.iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = ids(&sample.files.json(&["deposits", "list"]), "deposits");
    assert_eq!(all.len(), 6);
    let mut paged = Vec::new();
    let mut after = None::<String>;
    loop {
        let mut args = vec!["deposits", "list", "--limit", "4"];
        args.extend(after.iter().flat_map(|after| ["--after", after.as_str()]));
        let page = sample.files.json(&args);
        paged.extend(ids(&page, "deposits"));
        match page["next"].as_i64() {
            Some(next) => after = Some(next.to_string()),
            None => break,
        }
    }
    assert_eq!(paged, all);
    let count = |args: &[&str]| {
        let answer = sample.files.json(args);
        answer["deposits"].as_array().unwrap().len()
    };
    assert_eq!(count(&["deposits", "list", "--merchant", "bar"]), 2);
    assert_eq!(
        count(&["deposits", "list", "--state", "credited", "--chain", "btc"]),
        2
    );
    assert_eq!(count(&["deposits", "list", "--held", "--state", "seen"]), 0);
    let addresses = sample.files.json(&["watch", "list", "--merchant", "shop"]);
    assert_eq!(addresses["addresses"].as_array().unwrap().len(), 2);
    assert_eq!(addresses["addresses"][0]["address"], json!(D1));
}

#[test]
fn what_is_not_known_is_a_problem_found() {
    let sample = Sample::filled();
    sample.edit(|tx, key| tx.set_chain_state(key, ChainState::ReorgTooDeep, "x"));
    let unknown = txid(9).to_string();
    for (args, text) in [
        (
            &["balances", "--merchant", "nobody"][..],
            "there is no merchant nobody",
        ),
        (&["tx", &unknown], "nothing is known of 0909"),
        (
            &["deposits", "hold", "dep_1", "--reason", "x"],
            "no deposit dep_1",
        ),
        (
            &["chain", "accept-reorg", "--fork", "50", "--reason", "x"],
            "no header is held at or below height 50",
        ),
    ] {
        let output = sample.files.cli(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains(text), "{args:?}: {stderr}");
    }
    for args in [
        &["tx", "xyz"][..],
        &["deposits", "list", "--chain", "doge"],
        &["deposits", "hold", "dep_1", "--reason", "  ", "--apply"],
    ] {
        let output = sample.files.cli(args);
        assert!(output.status.code() > Some(0), "{args:?}");
    }
}

#[test]
fn a_hold_is_dry_then_done_then_nothing() {
    let sample = Sample::filled();
    let payment = format!("{}:0", txid(1));
    let hold = |more: &[&str]| {
        let args = [&["deposits", "hold", &payment, "--reason", "asked back"], more].concat();
        sample.files.json(&args)["outcome"].as_str().unwrap().to_owned()
    };
    let net = || {
        sample.files.json(&["tx", &txid(1).to_string()])["transactions"][0]["outputs"][0]["deposit"].clone()
    };
    assert_eq!(hold(&[]), "dry");
    assert_eq!(
        (&net()["credit"]["net"], &net()["held"]),
        (&json!("0.1"), &Value::Null)
    );
    assert_eq!(hold(&["--apply"]), "done");
    let held = net();
    assert_eq!(
        (&held["credit"]["net"], &held["state"]),
        (&json!("0"), &json!("confirming"))
    );
    let history = held["history"].as_array().unwrap();
    let last = &history[history.len() - 1];
    assert_eq!(
        (&last["actor"], &last["cause"]),
        (&json!("operator"), &json!("asked back"))
    );
    assert_eq!(hold(&["--apply"]), "nothing");
    assert_eq!(net()["history"], held["history"], "given twice, acts once");
    let release = ["deposits", "release", &payment, "--reason", "settled", "--apply"];
    assert_eq!(sample.files.json(&release)["outcome"], json!("done"));
    assert_eq!(sample.files.json(&release)["outcome"], json!("nothing"));
}

#[test]
fn a_release_off_the_best_chain_is_refused() {
    let sample = Sample::filled();
    let payment = format!("{}:7", txid(4));
    sample
        .files
        .json(&["deposits", "hold", &payment, "--reason", "look", "--apply"]);
    for more in [&[][..], &["--apply"]] {
        let args = [&["deposits", "release", &payment, "--reason", "x"], more].concat();
        let output = sample.files.cli(&args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("its payment is in no block of the best chain"),
            "{stderr}"
        );
    }
}

#[test]
fn a_deep_reorg_is_shown_before_it_is_accepted() {
    let sample = Sample::filled();
    sample.edit(|tx, key| tx.set_chain_state(key, ChainState::ReorgTooDeep, "no common ancestor"));
    let accept = [
        "chain",
        "accept-reorg",
        "--fork",
        "100",
        "--reason",
        "right branch",
    ];
    let dry = sample.files.json(&accept);
    assert_eq!(dry["outcome"], json!("dry"));
    assert_eq!(dry["deposits"].as_array().unwrap().len(), 3, "{dry}");
    assert_eq!(
        sample.files.ask(&["chain", "status"]).unwrap()["chains"][0]["reanchor_to"],
        Value::Null
    );
    let apply = [&accept[..], &["--apply"]].concat();
    assert_eq!(sample.files.json(&apply)["outcome"], json!("done"));
    assert_eq!(
        sample.files.ask(&["chain", "status"]).unwrap()["chains"][0]["reanchor_to"],
        json!(100)
    );
    assert_eq!(sample.files.json(&apply)["outcome"], json!("nothing"));
    // A slip can be put right: another height takes the place of the one that waits, and says so.
    let other = ["chain", "accept-reorg", "--fork", "101", "--reason", "x"];
    let dry = sample.files.json(&other);
    assert!(
        dry["text"].as_str().unwrap().contains("instead of block 100"),
        "{dry}"
    );
    let apply = [&other[..], &["--apply"]].concat();
    assert_eq!(sample.files.json(&apply)["outcome"], json!("done"));
    assert_eq!(
        sample.files.ask(&["chain", "status"]).unwrap()["chains"][0]["reanchor_to"],
        json!(101)
    );
    let plain = sample.files.cli(&["chain", "status"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("btc: goes back to height 101 once"), "{plain}");
}

#[test]
fn a_reorg_is_accepted_only_where_there_is_one() {
    let sample = Sample::filled();
    for (state, code) in [
        (ChainState::Following, 1),
        (ChainState::Syncing, 1),
        (ChainState::Unreachable, 1),
        (ChainState::Behind, 0),
        (ChainState::ReorgTooDeep, 0),
    ] {
        sample.edit(move |tx, key| tx.set_chain_state(key, state, "x"));
        for more in [&[][..], &["--apply"]] {
            let accept = ["chain", "accept-reorg", "--fork", "100", "--reason", "x"];
            let output = sample.files.cli(&[&accept[..], more].concat());
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{state:?}: {stderr}");
            let is_told = stderr.contains(&format!("btc is {}", state.word()));
            assert_eq!(is_told, code == 1, "{state:?}: {stderr}");
        }
    }
    for height in ["18446744073709551615", "4294967296"] {
        let output = sample
            .files
            .cli(&["chain", "accept-reorg", "--fork", height, "--reason", "x"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(height) && stderr.contains("is not in 0..=4294967295"),
            "{stderr}"
        );
    }
}

#[test]
fn a_rescan_that_cannot_be_is_refused_dry_or_not() {
    let sample = Sample::filled();
    for (args, text) in [
        (&["--from", "106"][..], "height 106 is above"),
        (
            &["--from", "5", "--backfill", "bcrt1pfeesnyr2tx"],
            "this address is not watched",
        ),
    ] {
        for more in [&[][..], &["--apply"]] {
            let output = sample
                .files
                .cli(&[&["rescan", "--reason", "x"], args, more].concat());
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(stderr.contains(text), "{stderr}");
        }
    }
}

#[test]
fn a_rescan_names_what_would_count_from_there() {
    let sample = Sample::filled();
    let rescan = [
        "rescan",
        "--from",
        "50",
        "--backfill",
        D2,
        "--reason",
        "older payments",
    ];
    let dry = sample.files.json(&rescan);
    assert_eq!(
        dry["text"],
        json!("read btc again from height 50; 1 address would count from there")
    );
    let apply = [&rescan[..], &["--apply"]].concat();
    assert_eq!(sample.files.json(&apply)["outcome"], json!("done"));
    assert_eq!(sample.files.json(&apply)["outcome"], json!("nothing"));
    let status = sample.files.json(&["chain", "status"]);
    assert_eq!(
        status["chains"][0]["rescans"].as_array().unwrap().len(),
        1,
        "{status}"
    );
    let addresses = sample.files.json(&["watch", "list"]);
    assert_eq!(addresses["addresses"][1]["from_height"], json!(50));
}

#[test]
fn a_halted_chain_is_a_problem_found() {
    let sample = Sample::halted("no common ancestor in the last 144 blocks");
    let output = sample.files.cli(&["chain", "status"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(
        stdout.contains("\nbtc: reorg_too_deep: no common ancestor in the last 144 blocks\n"),
        "{stdout}"
    );
}

#[test]
fn a_backup_is_whole_and_never_over_another() {
    let sample = Sample::filled();
    let made = sample.files.json(&["backup", "copy.db"]);
    assert_eq!(made["file"], json!("copy.db"));
    let credits = sample.files.json(&["credits"]);
    let output = sample.files.cli(&["backup", "copy.db"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("copy.db is there already"), "{stderr}");
    sample.files.json(&["backup", "copy.db", "--replace"]);
    std::fs::rename(sample.files.folder().join("copy.db"), sample.files.database()).unwrap();
    assert_eq!(sample.files.json(&["credits"]), credits);
}

#[test]
fn csv_is_the_whole_list_unless_a_page_is_asked_for() {
    let sample = Sample::filled();
    let lines = |args: &[&str]| shown(&sample, args).lines().count();
    assert_eq!(lines(&["deposits", "list", "--csv"]), 1 + 6);
    assert_eq!(lines(&["deposits", "list", "--csv", "--limit", "2"]), 1 + 2);
}
