//! `creditd drill`: how it ends before its end, and what becomes of its copy then.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use creditd::clock::Clock;
use creditd::config::Config;
use creditd::drill::{self, Before, Drill, DrillError, Input, Report};
use serde_json::Value;

use crate::common::asks::{D1, script};
use crate::common::fake_chain::{FakeState, coin, tx};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};
use crate::drill::{DAYS, Shop, fed, text};

/// So much a pipe takes that nobody reads.
const PIPE_BYTES: usize = 65_536;

/// A drill that waits for its node, with its copy made.
fn hanging(shop: &Shop, mut command: Command) -> Child {
    shop.answers("getblockchaininfo", Reply::Hang);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("it has copied", PATIENCE, || {
        let work = shop.drills().pop()?;
        work.join("creditd.db-wal").exists().then_some(())
    });
    child
}

fn send(name: &str, child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn no_signal_that_can_be_caught_leaves_a_copy() {
    let shop = Shop::open();
    for name in [
        "-INT", "-TERM", "-HUP", "-QUIT", "-ALRM", "-USR1", "-USR2", "-XCPU",
    ] {
        let child = hanging(&shop, shop.daemon.command(&["drill", "--keep"]));
        send(name, &child);
        let output = child.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.contains("stopped before its end"), "{name}: {stderr}");
        assert_eq!(shop.copies(), 0, "{name}");
    }
}

/// `nohup`, and shells that start it in the background.
#[test]
fn what_whoever_started_a_drill_has_it_ignore_does_not_end_it() {
    let shop = Shop::open();
    let drill = shop.daemon.command(&["drill"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP INT QUIT; exec \"$0\" \"$@\""])
        .arg(drill.get_program())
        .args(drill.get_args())
        .current_dir(drill.get_current_dir().unwrap());
    let child = hanging(&shop, command);
    for name in ["-HUP", "-INT", "-QUIT"] {
        send(name, &child);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    assert_eq!(mask & 0b111, 0b111, "they are still ignored: {status}");
    assert_eq!(shop.copies(), 1);
    send("-TERM", &child);
    child.wait_with_output().unwrap();
    assert_eq!(shop.copies(), 0);
}

/// Its output goes to somebody who does not read: nothing is left to be cleared away, and nothing but a
/// signal ends it.
#[test]
fn a_drill_that_is_through_is_ended_by_a_signal_while_it_says_so() {
    let shop = Shop::open();
    let (unread, mut full) = std::io::pipe().unwrap();
    full.write_all(&[b'.'; PIPE_BYTES]).unwrap();
    let mut command = shop.daemon.command(&["drill", "--days", DAYS, "--passes", "1"]);
    command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "pass 1: start"));
    wait_until("its copy is gone", PATIENCE, || {
        (shop.copies() == 0).then_some(())
    });
    send("-INT", &child);
    let ended = wait_until("it ends", PATIENCE, || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(130));
    drop(unread);
}

/// What a killed one has left is in the way of the next, which would find no room beside it.
#[test]
fn what_a_killed_drill_left_is_gone_before_the_next_looks_for_room() {
    let shop = Shop::open();
    let mut child = hanging(&shop, shop.daemon.command(&["drill"]));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(shop.copies(), 1);
    let large = shop.daemon.folder().join("large.db");
    std::fs::copy(shop.daemon.database(), &large).unwrap();
    // A hole: it takes no room itself.
    let file = std::fs::OpenOptions::new().write(true).open(&large).unwrap();
    file.set_len(4 << 40).unwrap();
    let output = shop.drill(&["--from-backup", "large.db"]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("free, and a drill takes"), "{stderr}");
    assert_eq!(shop.copies(), 0, "{stderr}");
}

/// A drill in this process to which something happens before the blocks are fed, and what it says meanwhile.
fn with_trouble(
    shop: &Shop,
    trouble: impl Fn() + Send + Sync + 'static,
    heard: impl Fn(&str) + Send + 'static,
) -> (Result<Report, DrillError>, Vec<String>) {
    let before: Before = Arc::new(move |pass: u32, input: Input, _: &std::path::Path| {
        if (pass, input) == (1, Input::Blocks) {
            trouble();
        }
    });
    let how = Drill {
        days: 3_650,
        passes: 1,
        before: Some(before),
        ..Drill::default()
    };
    let config = Config::load(Some(&shop.daemon.config_file())).unwrap();
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let into = Arc::clone(&lines);
    let outcome = drill::run(&config, &how, move |line| {
        heard(&line);
        into.lock().unwrap().push(line);
    });
    let lines = lines.lock().unwrap().clone();
    (outcome, lines)
}

#[test]
fn a_node_that_leaves_the_tip_while_blocks_are_fed_keeps_only_its_chain_out_and_is_not_waited_for() {
    let shop = Shop::open();
    let node = shop.node.shared();
    let began = Clock::real().instant();
    let (outcome, lines) = with_trouble(
        &shop,
        move || {
            let mut node = node.lock().unwrap();
            if node.stale.is_empty() {
                node.back_to(6);
                for number in 20..25 {
                    node.mine(vec![tx(&[coin(number)], &[(script(D1), 5)])]);
                }
            }
        },
        |_| {},
    );
    let report = outcome.unwrap();
    let why = "not tried: the node does not have block ";
    for fed in &report.fed {
        let why_not = fed.why_not.as_deref().unwrap_or_default();
        assert_eq!(fed.chain.is_some(), why_not.starts_with(why), "{fed:?}");
        assert_eq!(fed.chain.is_none(), fed.passes == 1, "{fed:?}");
    }
    assert!(
        report.is_clean && report.is_tried && !report.is_complete,
        "{report:?}"
    );
    let again: Vec<&String> = lines
        .iter()
        .filter(|line| line.ends_with("copying again"))
        .collect();
    assert!(again[0].contains("the copy's tip, on its chain"), "{lines:?}");
    let took = Clock::real().instant() - began;
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn a_drill_that_waits_for_its_node_says_so_and_goes_on_with_it() {
    let shop = Shop::open();
    let [ill, well] = [shop.node.shared(), shop.node.shared()];
    let set = |node: &Mutex<FakeState>, reply: Option<Reply>| {
        let overrides = &mut node.lock().unwrap().overrides;
        match reply {
            Some(reply) => drop(overrides.insert("getblock".to_owned(), reply)),
            None => overrides.clear(),
        }
    };
    let (outcome, lines) = with_trouble(
        &shop,
        move || set(&ill, Some(Reply::Error(-28, "Verifying blocks"))),
        move |line| {
            if line.contains("nothing goes on") {
                set(&well, None);
            }
        },
    );
    let report = outcome.unwrap();
    assert!(report.is_clean && report.is_complete, "{report:?}");
    let said = lines
        .iter()
        .filter(|line| line.contains("btc: nothing goes on ("));
    let said: Vec<&String> = said.collect();
    assert_eq!(said.len(), 1, "{lines:?}");
    assert!(
        said[0].contains("Verifying blocks") && said[0].contains("waiting up to 60 s"),
        "{said:?}"
    );
}

/// A halt does not end by itself.
#[test]
fn a_block_that_halts_the_copy_is_named_and_not_waited_for() {
    let shop = Shop::open();
    // As a block that contradicts what the copy holds.
    shop.spoil(
        "CREATE TRIGGER planted BEFORE UPDATE OF next_height ON rescans \
         BEGIN SELECT RAISE(ABORT, 'planted'); END",
    );
    let began = Clock::real().instant();
    // The halt is an event, and so a finding.
    let report = shop.report(1, &["--passes", "1"]);
    let why = fed(&report, "blocks")["why_not"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("bad_block: ") && why.contains("planted"),
        "{report}"
    );
    let took = Clock::real().instant() - began;
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn a_node_that_is_behind_keeps_only_its_own_part_from_being_tried() {
    let shop = Shop::open();
    shop.daemon.json(&["backup", "early.db"]);
    shop.node.back_to(6);
    for args in [
        &["--passes", "1"][..],
        &["--passes", "1", "--from-backup", "early.db"],
    ] {
        let report = shop.report(2, args);
        for input in ["blocks", "node", "mempool"] {
            let why = fed(&report, input)["why_not"].as_str().unwrap();
            assert_eq!(
                why, "not tried: the node is 2 blocks behind, at height 6",
                "{report}"
            );
        }
        for input in ["idempotency", "inbox", "deliveries"] {
            assert!(fed(&report, input)["count"].as_u64() > Some(0), "{report}");
        }
        assert_eq!(
            (&report["is_clean"], &report["is_complete"]),
            (&true.into(), &false.into())
        );
    }
    assert_eq!(shop.copies(), 0);
}

#[test]
fn a_kept_copy_is_told_with_its_place() {
    let shop = Shop::open();
    let report = shop.report(0, &["--passes", "1", "--keep"]);
    let [kept] = &shop.drills()[..] else {
        panic!("one copy");
    };
    assert_eq!(report["kept"], kept.to_str().unwrap());
    std::fs::remove_dir_all(kept).unwrap();
    let output = shop
        .daemon
        .cli(&["drill", "--days", DAYS, "--passes", "1", "--keep"]);
    let [kept] = &shop.drills()[..] else {
        panic!("one copy");
    };
    let line = format!("kept         {}, as confidential as a backup", kept.display());
    assert!(text(&output.stdout).contains(&line), "{}", text(&output.stdout));
    std::fs::remove_dir_all(kept).unwrap();
    assert_eq!(shop.report(0, &["--passes", "1"])["kept"], Value::Null);
}

/// `creditd audit` too: what it has come to is kept by then.
#[test]
fn an_audit_stops_in_order_whoever_stops_it() {
    let shop = Shop::open();
    shop.answers("getblockchaininfo", Reply::Hang);
    for (name, word) in [("-INT", "Ctrl-C"), ("-TERM", "SIGTERM"), ("-HUP", "SIGHUP")] {
        let asked = shop.node.stub.count("getblockchaininfo");
        let mut command = shop.daemon.command(&["audit"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_until("it asks the node", PATIENCE, || {
            (shop.node.stub.count("getblockchaininfo") > asked).then_some(())
        });
        send(name, &child);
        let output = child.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        let said = format!("stopped by {word}\n  next: run it again: it goes on with what was not asked yet");
        assert!(stderr.contains(&said), "{name}: {stderr}");
    }
}
