//! The JSON answers and their documentation name the same keys, command by command.

use std::collections::BTreeSet;

use creditd::rules::chain_state::ChainState;
use serde_json::Value;

use crate::cli_addresses::pinned;
use crate::cli_inbox::with_inbox;
use crate::cli_sandbox::answers_of_trigger;
use crate::cli_unattributed::with_unattributed;
use crate::common::daemon::Daemon;
use crate::sample::{D1, Sample, txid};

const DOCUMENT: &str = include_str!("../../docs/cli-json.md");

/// Commands that have no answer in JSON, and say so in the document.
const WITHOUT: [&str; 6] = ["init", "run", "demo", "sandbox", "completions", "man"];

fn collect(value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                keys.insert(key.clone());
                // The body of an event has a schema of its own, and the metadata is the merchant's.
                if key != "body" && key != "metadata" {
                    collect(value, keys);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The part of the document whose heading names the command, and those that it refers to.
fn part(command: &str) -> String {
    let parts: Vec<(&str, &str)> = DOCUMENT
        .split("\n## ")
        .skip(1)
        .map(|part| part.split_once('\n').unwrap())
        .collect();
    let names = |heading: &str| {
        let commands = heading.split(':').next().unwrap();
        commands.split(", ").any(|name| name == command)
    };
    let found = parts.iter().find(|(heading, _)| names(heading));
    let (heading, text) = found.unwrap_or_else(|| panic!("no part for `creditd {command}`"));
    let referred = parts.iter().filter(|(heading, _)| {
        let name = heading.split([':', ',']).next().unwrap();
        text.contains(&format!("the keys of `{name}`"))
    });
    let all = referred.map(|(_, text)| *text).chain([*heading, *text]);
    all.collect::<Vec<_>>().join("\n")
}

fn id(answer: &Value) -> String {
    answer["endpoint"]["id"].as_str().unwrap().to_owned()
}

/// Asks a command, and looks for each key of its answer in the command's own part of the document.
#[track_caller]
fn assert_documented(files: &Daemon, command: &str, args: &[&str]) {
    let line: Vec<&str> = command
        .split(' ')
        .chain(args.iter().copied())
        .chain(["--json"])
        .collect();
    let output = files.cli(&line);
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{line:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut keys = BTreeSet::new();
    collect(&answer, &mut keys);
    assert!(keys.len() > 1, "{line:?}: {answer}");
    let part = part(command);
    for key in keys {
        let is_there = part.contains(&format!("`{key}`")) || key == "next";
        assert!(
            is_there,
            "`{key}` of `creditd {command} --json` is not in its part of the document"
        );
    }
}

#[test]
fn every_key_is_documented() {
    let sample = Sample::filled();
    let endpoint = sample
        .files
        .json(&["endpoint", "add", "https://shop.example/", "--merchant", "shop"]);
    let endpoint = id(&endpoint);
    let (first, second, third) = (txid(1).to_string(), txid(2).to_string(), txid(3).to_string());
    let deposit = format!("{first}:0");
    std::fs::write(sample.files.folder().join("list"), "x\n").unwrap();
    let apply = ["--reason", "x", "--apply"];
    let with_apply = |args: &[&'static str]| [args, &apply].concat();
    // Nobody sends it here: `endpoint test` queues an event all the same, and callbacks are listed.
    let tested = sample
        .files
        .cli(&["endpoint", "test", &endpoint, "--wait-secs", "0", "--json"]);
    let tested: Value = serde_json::from_slice(&tested.stdout).unwrap();
    let event = tested["event"].as_str().unwrap().to_owned();
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("watch add", vec![D1, "--merchant", "shop"]),
        ("watch own", vec!["bcrt1pfeesnyr2tx", "--merchant", "shop"]),
        ("watch list", vec![]),
        ("watch import", vec!["list"]),
        ("deposits list", vec!["--limit", "2"]),
        ("deposits hold", vec![&deposit, "--reason", "x"]),
        ("deposits release", vec![&deposit, "--reason", "x"]),
        ("tx", vec![&first]),
        ("tx", vec![&second]),
        ("tx", vec![&third]),
        ("credits", vec![]),
        ("balances", vec![]),
        ("rescan", with_apply(&["--from", "101"])),
        ("chain accept-reorg", vec!["--fork", "103", "--reason", "x"]),
        ("chain status", vec![]),
        (
            "endpoint add",
            vec!["https://shop.example/2", "--merchant", "shop"],
        ),
        ("endpoint list", vec![]),
        ("endpoint pause", vec![&endpoint, "--reason", "x", "--apply"]),
        ("endpoint resume", vec![&endpoint, "--reason", "x", "--apply"]),
        (
            "endpoint rotate-secret",
            vec![&endpoint, "--reason", "x", "--apply"],
        ),
        ("endpoint test", vec![&endpoint, "--wait-secs", "0"]),
        ("callbacks list", vec![]),
        ("callbacks show", vec![&event]),
        ("callbacks retry", vec![&event, "--reason", "x"]),
        ("check", vec![]),
        ("jobs", vec![]),
    ];
    // Only there is a reorg accepted.
    sample.edit(|tx, chain| tx.set_chain_state(chain, ChainState::ReorgTooDeep, "a test"));
    let mut commands: BTreeSet<String> = commands().into_iter().collect();
    assert!(commands.len() > 25, "{commands:?}");
    for (command, args) in cases {
        assert_documented(&sample.files, command, &args);
        commands.remove(command);
    }
    tool_keys_are_documented(&sample.files, &mut commands);
    unattributed_keys_are_documented(&mut commands);
    invoice_keys_are_documented(&mut commands);
    api_keys_are_documented(&sample.files, &mut commands);
    pool_keys_are_documented(&mut commands);
    inbox_keys_are_documented(&mut commands);
    for command in WITHOUT {
        assert!(commands.remove(command), "{command}");
        assert!(DOCUMENT.contains(&format!("`{command}`")), "{command}");
    }
    assert!(
        commands.is_empty(),
        "these answer in JSON and were not asked: {commands:?}"
    );
}

fn trigger_keys_are_documented(commands: &mut BTreeSet<String>) {
    for (command, answer) in answers_of_trigger() {
        let mut keys = BTreeSet::new();
        collect(&answer, &mut keys);
        let part = part("trigger");
        let unknown: Vec<_> = keys
            .iter()
            .filter(|key| !part.contains(&format!("`{key}`")))
            .collect();
        assert!(unknown.is_empty() && !keys.is_empty(), "{command}: {unknown:?}");
        commands.remove(&*command);
    }
}

fn tool_keys_are_documented(files: &Daemon, commands: &mut BTreeSet<String>) {
    trigger_keys_are_documented(commands);
    let file = files.folder().join("proof.json");
    std::fs::write(file, crate::proofs::well_formed().to_string()).unwrap();
    for (command, args) in [
        ("backup", vec!["copy.db"]),
        ("audit", vec![]),
        ("drill", vec![]),
        ("proof verify", vec!["proof.json"]),
    ] {
        assert_documented(files, command, &args);
        commands.remove(command);
    }
}

fn inbox_keys_are_documented(commands: &mut BTreeSet<String>) {
    let (sample, id) = with_inbox();
    for (command, args) in [
        ("inbox list", vec![]),
        ("inbox show", vec![&*id]),
        ("inbox retry", vec![&*id, "--reason", "x"]),
    ] {
        assert_documented(&sample.files, command, &args);
        commands.remove(command);
    }
}

fn pool_keys_are_documented(commands: &mut BTreeSet<String>) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = pinned(&folder.path().join("list.txt"));
    for (command, args) in [
        ("addresses status", vec![]),
        ("addresses repin", vec!["till", "--reason", "x"]),
        ("restored", vec!["--reason", "x", "--apply"]),
        ("restored", vec![]),
    ] {
        assert_documented(&daemon, command, &args);
        commands.remove(command);
    }
}

fn api_keys_are_documented(files: &Daemon, commands: &mut BTreeSet<String>) {
    let made = files.json(&["key", "create", "--ops", "--name", "a", "--scopes", "all"]);
    let key = made["key"]["id"].as_str().unwrap();
    let create = vec!["--merchant", "shop", "--name", "a", "--scopes", "all"];
    for (command, args) in [
        ("merchant add", vec!["shop"]),
        ("merchant list", vec![]),
        ("key create", create),
        ("key list", vec![]),
        ("key revoke", vec![key, "--reason", "x"]),
    ] {
        assert_documented(files, command, &args);
        commands.remove(command);
    }
}

fn unattributed_keys_are_documented(commands: &mut BTreeSet<String>) {
    let (evm, id) = with_unattributed();
    for (command, args) in [
        ("unattributed list", vec![]),
        (
            "unattributed close",
            vec![&*id, "--not-a-payment", "--reason", "x"],
        ),
    ] {
        assert_documented(&evm.files, command, &args);
        commands.remove(command);
    }
}

fn invoice_keys_are_documented(commands: &mut BTreeSet<String>) {
    let (sample, id) = Sample::with_invoice();
    let paid = txid(7).to_string();
    assert_documented(&sample.files, "tx", &[&paid]);
    for (command, args) in [
        ("invoices list", vec![]),
        ("invoices show", vec![&*id]),
        ("invoices cancel", vec![&*id, "--reason", "x"]),
    ] {
        assert_documented(&sample.files, command, &args);
        commands.remove(command);
    }
}

/// Every command, as the help lists them.
pub(super) fn commands() -> Vec<String> {
    let mut found = Vec::new();
    let mut groups = vec![String::new()];
    while let Some(group) = groups.pop() {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_creditd"));
        let output = command
            .args(group.split_whitespace())
            .arg("--help")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let Some((_, listed)) = help.split_once("\nCommands:\n") else {
            found.push(group.trim().to_owned());
            continue;
        };
        let names = listed.lines().take_while(|line| !line.is_empty());
        let names = names.filter_map(|line| line.split_whitespace().next());
        groups.extend(
            names
                .filter(|name| *name != "help")
                .map(|name| format!("{group} {name}")),
        );
    }
    found
}
