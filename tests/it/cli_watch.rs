//! Watching addresses: before the daemon's first start, again, in other spellings, and a file of them.

use std::io::Write as _;
use std::process::Output;

use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::sample::{D1, D2, D3, Sample};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn refused(output: &Output, code: i32, expected: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(expected), "{stderr}");
}

#[test]
fn watching_works_before_the_first_start_and_again_changes_nothing() {
    let files = Sample::empty().files;
    let add = |address: &str, more: &[&str]| {
        files.json(&[&["watch", "add", address, "--merchant", "shop"], more].concat())
    };
    let added = add(D1, &["--reference", "order-1"]);
    assert_eq!(
        (&added["outcome"], &added["from_height"]),
        (&json!("added"), &Value::Null)
    );
    assert_eq!(add(D1, &[])["outcome"], json!("known"));
    let upper = add(&D1.to_uppercase(), &["--chain", "btc"]);
    assert_eq!(
        (&upper["outcome"], &upper["address"]),
        (&json!("known"), &json!(D1))
    );
    let output = files.cli(&["watch", "add", D2, "--merchant", "shop"]);
    assert_eq!(
        text(&output.stdout),
        format!("watching {D2} for merchant shop on btc from the first block that is read\n")
    );
    let output = files.cli(&["watch", "add", D3, "--merchant", "shpo"]);
    assert!(text(&output.stdout).ends_with("\nmerchant shpo is new\n"));
    assert_eq!(
        (&added["is_merchant_new"], &upper["is_merchant_new"]),
        (&json!(true), &json!(false))
    );
    let list = files.json(&["watch", "list"]);
    let rows = list["addresses"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(
        (&rows[0]["reference"], &rows[0]["merchant"], &rows[0]["kind"]),
        (&json!("order-1"), &json!("shop"), &json!("watch"))
    );
}

#[test]
fn one_address_belongs_to_one_merchant_and_is_one_kind() {
    let files = Sample::empty().files;
    files.json(&["watch", "add", D1, "--merchant", "shop"]);
    files.json(&["watch", "own", D2, "--merchant", "shop"]);
    let other = files.cli(&["watch", "add", D1, "--merchant", "bar"]);
    refused(&other, 1, &format!("{D1} belongs to merchant shop already"));
    refused(
        &files.cli(&["watch", "own", D1, "--merchant", "shop"]),
        1,
        "is watched already",
    );
    refused(
        &files.cli(&["watch", "add", D2, "--merchant", "shop"]),
        1,
        "declared as the merchant's own",
    );
    assert_eq!(
        files.json(&["watch", "own", D2, "--merchant", "shop"])["outcome"],
        json!("known")
    );
}

#[test]
fn what_cannot_be_watched_says_why() {
    let files = Sample::empty().files;
    let add = |address: &str, merchant: &str| files.cli(&["watch", "add", address, "--merchant", merchant]);
    refused(
        &add(&D1.replace('w', "W"), "shop"),
        2,
        "upper and lower case mixed",
    );
    refused(&add(&D3.to_lowercase(), "shop"), 2, "checksum does not fit");
    let main = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4";
    refused(
        &add(main, "shop"),
        2,
        "an address of main, but this chain is regtest",
    );
    refused(
        &add(D1, "The Shop"),
        2,
        "'The Shop' for '--merchant <SLUG>': a merchant is 1 to 32 of a-z, 0-9 and -",
    );
    assert!(!files.database().exists(), "nothing was made for nothing");
}

#[test]
fn addresses_added_while_followed_count_from_the_next_block() {
    let sample = Sample::filled();
    let own = "bcrt1pfeesnyr2tx";
    let added = sample.files.json(&["watch", "add", own, "--merchant", "late"]);
    assert_eq!(added["from_height"], json!(106));
}

/// Every line of this file is either counted or named.
const LIST: &str = "\u{feff}address,merchant,reference\r\n\
    bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080,shop,order-1\r\n\
    \n\
    # a comment\n\
    mrCDrCybB6J1vRfbwM5hemdJz73FwDBC8r\n\
    bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6,bar,\"two, words\"\n\
    BCRT1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KYGT080,shop\n\
    bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt081,shop\n\
    bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4,shop\n\
    mrCDrCybB6J1vRfbwM5hemdJz73FwDBC8r,bar\n\
    bcrt1pfeesnyr2tx,shop,a,b\n\
    bcrt1pfeesnyr2tx,\"shop\n\
    bcrt1pfeesnyr2tx,Shop\n\
    bcrt1pfeesnyr2tx,shop,last";

#[test]
fn each_line_of_a_list_is_taken_or_named() {
    let files = Sample::empty().files;
    std::fs::write(files.folder().join("list.csv"), LIST).unwrap();
    let import = ["watch", "import", "list.csv", "--merchant", "fallback"];
    let output = files.cli(&import);
    assert_eq!(output.status.code(), Some(1), "faults were found");
    assert_eq!(
        text(&output.stdout),
        "14 lines: 4 added, 1 known already, 6 faulty\nmerchant bar is new\nmerchant fallback is new\n\
         merchant shop is new\n"
    );
    insta::assert_snapshot!("import_faults", text(&output.stderr));
    let again = files.cli(&[&import[..], &["--json"]].concat());
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (&again["added"], &again["known"], &again["faulty"]),
        (&json!(0), &json!(5), &json!(6))
    );
    assert_eq!(again["faults"][0]["line"], json!(8));
    let list = files.json(&["watch", "list"]);
    let rows: Vec<(&str, &str)> = list["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["merchant"].as_str().unwrap(),
                row["reference"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("shop", "order-1"),
            ("fallback", ""),
            ("bar", "two, words"),
            ("shop", "last")
        ]
    );
}

/// What is watched, as `merchant/reference` of each address.
fn watched(files: &Daemon) -> Vec<(String, String)> {
    let list = files.json(&["watch", "list"]);
    let row = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (
            text("address"),
            format!("{}/{}", text("merchant"), text("reference")),
        )
    };
    list["addresses"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_header_is_obeyed_and_one_that_is_not_understood_refuses_the_file() {
    let sample = Sample::empty();
    let files = &sample.files;
    let import = |content: &str| {
        std::fs::write(files.folder().join("list.csv"), content).unwrap();
        files.cli(&["watch", "import", "list.csv"])
    };
    for (content, told) in [
        (
            format!("address,reference,shop\n{D1},order-1,shop\n"),
            "line 1: the header names an unknown column \"shop\"; nothing was imported",
        ),
        (
            format!("\n# of May\nwallet,customer\n{D1},shop\n"),
            "line 3: the header names an unknown column \"wallet\"",
        ),
        (
            format!("{D1};shop;order-1\n{D2};shop;order-2\n"),
            "separated by semicolons; nothing was imported\n  next: separate columns by commas",
        ),
    ] {
        refused(&import(&content), 1, told);
        assert!(!files.database().exists(), "nothing was made for nothing");
    }
    let output = import(&format!(
        "Reference,Address,Merchant\norder-1,{D1},shop\n,{D2},bar\n"
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = import(&format!("{D3},shop\n{D1};shop\n"));
    refused(
        &output,
        1,
        "line 2: separated by semicolons: columns are separated by commas",
    );
    let expected = [(D1, "shop/order-1"), (D2, "bar/"), (D3, "shop/")];
    assert_eq!(
        watched(files),
        expected.map(|(address, rule)| (address.to_owned(), rule.to_owned()))
    );
}

#[test]
fn a_known_address_keeps_its_reference_and_says_so() {
    let sample = Sample::empty();
    let files = &sample.files;
    let add = |reference: &str| {
        let output = files.cli(&["watch", "add", D1, "--merchant", "shop", "--reference", reference]);
        text(&output.stdout)
    };
    add("order-1");
    let kept = "known already: its reference stays \"order-1\", not \"order-2\"\n";
    assert!(add("order-2").ends_with(kept));
    assert!(!add("order-1").contains("stays") && !add("").contains("stays"));
    std::fs::write(files.folder().join("list"), format!("{D1},shop,order-2\n")).unwrap();
    let output = files.cli(&["watch", "import", "list"]);
    assert_eq!(text(&output.stderr), format!("line 1: {kept}"));
    let answer = files.json(&["watch", "import", "list"]);
    assert_eq!(
        (&answer["known"], &answer["kept_references"][0]["line"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(watched(files)[0].1, "shop/order-1");
}

#[test]
fn a_file_that_is_no_list_fills_neither_terminal_nor_memory() {
    let files = Sample::empty().files;
    std::fs::write(files.folder().join("log.txt"), "no address\n".repeat(25_000)).unwrap();
    let import = ["watch", "import", "log.txt", "--merchant", "shop"];
    let output = files.cli(&import);
    assert_eq!(
        text(&output.stdout),
        "25000 lines: 0 added, 0 known already, 25000 faulty\n"
    );
    let stderr = text(&output.stderr);
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 10_003);
    assert_eq!(
        lines[10_001],
        "creditd: 25000 of 25000 lines not imported, nothing was imported"
    );
    assert!(
        lines[9_999].starts_with("line 10000: not a Bitcoin address"),
        "{}",
        lines[9_999]
    );
    assert_eq!(
        lines[10_000],
        "line 10001: faulty too; further ones are only counted"
    );
    let output = files.cli(&[&import[..], &["--json"]].concat());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = answer["faults"].as_array().unwrap().len();
    assert_eq!((named, &answer["faulty"]), (10_000, &json!(25_000)));
}

#[test]
fn a_list_is_read_from_stdin_and_names_missing_merchants() {
    let files = Sample::empty().files;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_creditd"))
        .args(["watch", "import", "-", "--config"])
        .arg(files.config_file())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    write!(stdin, "{D1}\n{D2},shop\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "2 lines: 1 added, 0 known already, 1 faulty\nmerchant shop is new\n"
    );
    let stderr = text(&output.stderr);
    assert_eq!(
        stderr,
        "line 1: no merchant: add it to the line or name one with --merchant\n\
         creditd: 1 of 2 lines not imported, the others were\n  \
         next: correct these lines and import the file again: what is known already stays as it is\n"
    );
    refused(
        &files.cli(&["watch", "import", "gone.txt"]),
        2,
        "read gone.txt\n  because: No such file",
    );
}

#[test]
fn secrets_are_in_no_output() {
    let mut setup = Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into());
    setup.environment = vec![("CREDENTIALS_DIRECTORY".to_owned(), ".".to_owned())];
    let files = Daemon::prepare(&setup);
    let config = std::fs::read_to_string(files.config_file()).unwrap();
    let config = config.replace(
        "cookie_file = \"cookie\"",
        "rpc_user = \"bob\"\nrpc_password_file = \"credential:pw\"",
    );
    std::fs::write(files.folder().join("pw"), "hunter2\n").unwrap();
    let faulty = config.replace("rpc_user", "rpc_password = \"hunter2\"\nrpc_user");
    for (text_of, code) in [(&faulty, 2), (&config, 0)] {
        std::fs::write(files.config_file(), text_of).unwrap();
        for args in [
            &["check"][..],
            &["check", "--json"],
            &["chain", "status"],
            &["balances"],
            &["watch", "list"],
        ] {
            let output = files.cli(args);
            let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(!all.contains("hunter2"), "{args:?}: {all}");
            assert!(code == 0 || output.status.code() == Some(code), "{args:?}: {all}");
        }
    }
}

#[test]
fn an_endpoint_of_a_new_merchant_says_so_and_a_test_of_a_paused_one_too() {
    let sample = Sample::empty();
    let add = |url: &str, merchant: &str| {
        let args = ["endpoint", "add", url, "--merchant", merchant];
        sample.files.json(&args)
    };
    let added = add("https://shop.example/", "shpo");
    assert_eq!(added["is_merchant_new"], true, "{added}");
    assert_eq!(add("https://shop.example/2", "shpo")["is_merchant_new"], false);
    sample.files.json(&["watch", "add", D1, "--merchant", "shop"]);
    assert_eq!(add("https://shop.example/", "shop")["is_merchant_new"], false);
    let told = sample
        .files
        .cli(&["endpoint", "add", "https://e.example/", "--merchant", "soph"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("merchant soph is new"), "{told}");

    let id = added["endpoint"]["id"].as_str().unwrap();
    sample
        .files
        .json(&["endpoint", "pause", id, "--reason", "moving house", "--apply"]);
    let tested = sample.files.cli(&["endpoint", "test", id]);
    let told = String::from_utf8(tested.stderr).unwrap();
    assert_eq!(tested.status.code(), Some(1), "{told}");
    assert!(
        told.contains("is paused (moving house)") && told.contains("endpoint resume"),
        "{told}"
    );
    let queued = sample.files.json(&["callbacks", "list"]);
    assert_eq!(queued["callbacks"].as_array().unwrap().len(), 0, "{queued}");
}
