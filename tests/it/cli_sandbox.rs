//! `creditd sandbox` and `creditd trigger` as somebody types them, and a real creditd beside them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::wait::{PATIENCE, wait_until};

fn creditd(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CREDITD_") {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

/// A running `creditd sandbox` in a folder of its own.
struct Running {
    child: Child,
    greeting: String,
    folder: TempDir,
}

impl Running {
    /// Starts it on free ports, and reads on to the line before which nothing else is to be said.
    fn start(more: &[&str], scenario: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("scenario"), scenario).unwrap();
        let free = ["--bitcoin", "0", "--evm", "0", "--listen", "127.0.0.1:0"];
        let args = [&["sandbox"][..], &free, more].concat();
        let mut child = creditd(folder.path(), &args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut greeting = String::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            greeting += &format!("{line}\n");
            if line.contains("Ctrl-C ends it") {
                break;
            }
        }
        // What a scenario says is read and thrown away: a full pipe would hold it up.
        std::thread::spawn(move || lines.count());
        Running {
            child,
            greeting,
            folder,
        }
    }

    fn trigger(&self, args: &[&str]) -> Output {
        creditd(self.folder.path(), &[&["trigger"], args].concat())
            .output()
            .unwrap()
    }

    /// What a trigger that succeeds says, with what differs from run to run taken out.
    #[track_caller]
    fn says(&self, args: &[&str]) -> String {
        let output = self.trigger(args);
        let said = String::from_utf8(output.stdout).unwrap();
        let faults = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{args:?}: {said}{faults}");
        said
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[args, &["--json"]].concat())).unwrap()
    }

    /// The exit code of a trigger, and what it says of its failure.
    fn fails(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.trigger(args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// The config, without the listeners that another creditd on this machine may have.
    fn config(&self) -> String {
        let file = self.folder.path().join("creditd-sandbox/creditd.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let head = "[api]\nlisten = \"off\"\n\n[ops]\nlisten = \"off\"\n\n";
        if !text.contains(head) {
            std::fs::write(
                &file,
                text.replacen("[[bitcoin]]", &format!("{head}[[bitcoin]]"), 1),
            )
            .unwrap();
        }
        file.to_str().unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hashes as `HASH`, which differ from run to run.
fn without_hashes(text: &str) -> String {
    let word = |word: &str| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let is_hash = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_hash {
            "HASH".to_owned()
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn trigger_says_what_it_did() {
    let sandbox = Running::start(&[], "");
    let mut told = String::new();
    for args in [
        &["deposit", "order-1", "0.29", "--as", "first"][..],
        &["replace", "first", "--as", "second"],
        &["mine", "2"],
        &["reorg", "2", "--keep", "second"],
        &["double-spend", "second", "--to", "thief"],
        &["lag", "2"],
        &["lag", "0"],
        &[
            "deposit", "--chain", "evm", "order-2", "5", "--token", "TUSD", "--as", "pay",
        ],
        &["fail", "--chain", "evm", "pay"],
        &["evict", "--chain", "evm", "pay"],
        &["resend", "--chain", "evm", "pay"],
        &["mine", "--chain", "evm"],
        &["tags", "--chain", "evm", "--safe", "3", "--finalized", "@70"],
        &["node", "--chain", "evm", "limit", "--for-ms", "60000"],
        &["node", "--chain", "evm", "up"],
        &["go"],
    ] {
        let said = without_hashes(&sandbox.says(args));
        told += &format!("$ creditd trigger {}\n{said}\n", args.join(" "));
    }
    insta::assert_snapshot!(told);
}

/// What each of its commands answers.
pub fn answers_of_trigger() -> Vec<(String, Value)> {
    let sandbox = Running::start(&[], "");
    let all = [
        &["deposit", "order-1", "1", "--as", "first"][..],
        &["replace", "first", "--as", "second"],
        &["evict", "second"],
        &["resend", "second"],
        &["double-spend", "second"],
        &["mine"],
        &["reorg", "1"],
        &["lag", "1"],
        &["lag", "0"],
        &["deposit", "--chain", "evm", "order-1", "1", "--as", "pay"],
        &["fail", "pay", "--chain", "evm"],
        &["tags", "--chain", "evm", "--safe", "1"],
        &["node", "up"],
        &["go"],
        &["reset"],
        &["state"],
    ];
    let answer = |args: &&[&str]| (format!("trigger {}", args[0]), sandbox.json(args));
    all.iter().map(answer).collect()
}

#[test]
fn trigger_answers_in_json() {
    let sandbox = Running::start(&[], "");
    let paid = sandbox.json(&["deposit", "order-1", "1", "--as", "first"]);
    let txid = paid["txid"].as_str().unwrap();
    assert_eq!(
        paid,
        json!({
            "chain": "btc",
            "did": format!("sent 1 BTC to {}", creditd::sandbox::Sandbox::address("order-1")),
            "txid": txid,
            "block": null,
            "height": 120,
        })
    );
    let state = sandbox.json(&["state"]);
    assert_eq!(state["names"]["first"]["txid"], txid);
    let documented = include_str!("../../docs/cli-json.md");
    let part = documented.split("\n## trigger\n").nth(1).unwrap();
    let part = part.split("\n## ").next().unwrap();
    for answer in [
        &paid,
        &state,
        &state["btc"],
        &state["evm"],
        &state["names"]["first"],
    ] {
        for key in answer.as_object().unwrap().keys() {
            assert!(part.contains(&format!("`{key}`")), "`{key}` is not documented");
        }
    }
    let shown = sandbox.says(&["state"]);
    assert!(
        shown.contains("height 120, 1 waiting") && shown.contains("waits"),
        "{shown}"
    );
    assert!(sandbox.json(&["reset"])["did"].is_string());
    assert!(sandbox.says(&["state"]).contains("no transaction has a name"));
}

#[test]
fn trigger_that_is_refused_says_what_to_do() {
    let sandbox = Running::start(&[], "");
    let (code, said) = sandbox.fails(&["mine", "--chain", "evm", "10001"]);
    assert_eq!(
        (code, said.as_str()),
        (
            Some(1),
            "creditd: 10001 blocks at once\n  next: take 1 to 10000\n"
        )
    );
    for absurd in ["-1", "99999999999"] {
        for verb in ["mine", "reorg", "lag"] {
            let (code, said) = sandbox.fails(&[verb, absurd]);
            assert_eq!(code, Some(2), "{verb} {absurd}: {said}");
            assert!(said.contains(&format!("invalid value '{absurd}'")), "{said}");
        }
    }
    let (code, said) = sandbox.fails(&["deposit", "order-1", "-1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("\"-1\" is no amount of BTC"), "{said}");
    let (code, said) = sandbox.fails(&["evict", "nobody"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no transaction is called \"nobody\""), "{said}");
    let url = sandbox.greeting.lines().find(|line| line.starts_with("evm "));
    let url = url.and_then(|line| line.split_whitespace().nth(1)).unwrap();
    let (code, said) = sandbox.fails(&["mine", "--sandbox", url]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is no sandbox"), "{said}");
}

#[test]
fn trigger_without_a_sandbox_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens there: it was free a moment ago, and is bound to the end of this test.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let url = format!("http://{address}");
    let output = creditd(folder.path(), &["trigger", "mine", "--sandbox", &url])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&format!("creditd: no sandbox answers at {url}: ")),
        "{said}"
    );
    assert!(said.contains("  next: `creditd sandbox` starts one; "), "{said}");
}

/// At the usual port there may be another sandbox, whose chains nobody meant.
#[test]
fn a_folder_without_a_sandbox_is_none_and_no_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = creditd(folder.path(), &["trigger", "--folder", "typo", "reset"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no sandbox was started with typo"), "{said}");
    assert!(said.contains("  next: `creditd sandbox` starts one; "), "{said}");
}

#[test]
fn sandbox_says_where_everything_is_and_leaves_nothing_when_it_is_ended() {
    let mut sandbox = Running::start(&[], "");
    let folder = sandbox.folder.path().join("creditd-sandbox");
    let mut file = folder.join("sandbox.json");
    let places: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for url in [&places["control"], &places["btc"]["url"], &places["evm"]["url"]] {
        let url = url.as_str().unwrap();
        assert!(sandbox.greeting.contains(url), "{}", sandbox.greeting);
    }
    let check = creditd(sandbox.folder.path(), &["check", "--config", &sandbox.config()]).output();
    let said = String::from_utf8(check.unwrap().stdout).unwrap();
    assert!(
        said.contains("evm: sandbox: ") && !said.contains("bad  "),
        "{said}"
    );
    for signal in ["INT", "TERM", "HUP"] {
        let pid = sandbox.child.id().to_string();
        let kill = Command::new("sh")
            .args(["-c", "kill -\"$1\" \"$2\"", "sh", signal, &pid])
            .status();
        assert!(kill.unwrap().success());
        let status = wait_until("the sandbox ends", PATIENCE, || sandbox.child.try_wait().unwrap());
        assert!(status.success() && !file.exists(), "{signal}: {status}");
        sandbox = Running::start(&[], "");
        file = sandbox.folder.path().join("creditd-sandbox/sandbox.json");
        assert!(file.exists());
    }
}

#[test]
fn sandbox_that_cannot_start_says_why() {
    let sandbox = Running::start(&[], "");
    let port = sandbox.greeting.lines().find(|line| line.starts_with("evm "));
    let port = port.and_then(|line| line.split_whitespace().nth(1)).unwrap();
    let port = port.rsplit_once(':').unwrap().1;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("story"), "btc mine 1\nbtc sell 1\n").unwrap();
    let fails = |args: &[&str]| {
        let free = ["sandbox", "--bitcoin", "0", "--listen", "127.0.0.1:0"];
        let output = creditd(folder.path(), &[&free[..], args].concat())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = fails(&["--evm", port]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains(&format!("127.0.0.1:{port}")) && said.contains("--evm"),
        "{said}"
    );
    let held = sandbox.folder.path().join("creditd-sandbox");
    let cookie = || std::fs::read(held.join(".cookie")).unwrap();
    let before = cookie();
    let (code, said) = fails(&["--evm", "0", "--folder", held.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("another sandbox runs in")
            && said.contains(&format!("creditd trigger --folder {}`", held.display())),
        "{said}"
    );
    assert_eq!(cookie(), before, "the first one's login is as it was");
    sandbox.says(&["mine"]);
    let (code, said) = fails(&["--evm", "0", "--run", "story"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("line 2: \"sell\" is no step"), "{said}");
    let (code, said) = fails(&["--evm", "0", "--run", "nowhere"]);
    assert_eq!(code, Some(2), "{said}");
    std::fs::write(folder.path().join("story"), "btc mine 1\nbtc evict nobody\n").unwrap();
    let (code, said) = fails(&["--evm", "0", "--run", "story"]);
    assert_eq!(code, Some(2), "before anything starts: {said}");
    assert!(
        said.contains("line 2: no transaction is called \"nobody\""),
        "{said}"
    );
    let gone = "ab".repeat(32);
    let story = format!("btc mine 1\nbtc evict {gone}\n");
    std::fs::write(folder.path().join("story"), story).unwrap();
    let (code, said) = fails(&["--evm", "0", "--run", "story"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains(&format!("line 2, btc evict {gone}: {gone} does not wait")),
        "{said}"
    );
}

/// What the greeting says to type, typed in its order.
#[test]
fn the_steps_that_sandbox_prints_end_in_a_credit() {
    let sandbox = Running::start(&[], "");
    let (folder, config) = (sandbox.folder.path(), sandbox.config());
    let lines = sandbox.greeting.lines();
    let steps: Vec<&str> = lines.filter_map(|line| line.strip_prefix("  creditd ")).collect();
    assert!(steps.len() > 4, "{}", sandbox.greeting);
    let ask = |args: &[&str]| {
        let output = creditd(folder, &[args, &["--json", "--config", &config]].concat()).output();
        serde_json::from_slice::<Value>(&output.unwrap().stdout).unwrap_or_default()
    };
    let mut daemon = None;
    for step in steps {
        let words: Vec<&str> = step.split(' ').collect();
        if words.ends_with(&["run"]) {
            let mut run = creditd(folder, &words);
            daemon = Some(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
            wait_until("the chain is followed", PATIENCE, || {
                let status = ask(&["chain", "status"]);
                let is_so = |chain: &Value| chain["chain"] == "btc" && chain["state"] == "following";
                status["chains"].as_array()?.iter().any(is_so).then_some(())
            });
            continue;
        }
        let output = creditd(folder, &words).output().unwrap();
        let faults = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{step}: {faults}");
    }
    wait_until("the payment is credited", PATIENCE, || {
        let credits = ask(&["credits"]);
        (credits["credits"][0]["amount"] == "0.29").then_some(())
    });
    let mut daemon = daemon.unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

const DOUBLE_SPEND: &str = "\
pause                                        # until the address is watched
btc deposit order-1 0.29 as first
pause                                        # until it is seen
btc mine 3
pause                                        # until it is credited
btc double-spend first to elsewhere
";

#[test]
fn creditd_follows_a_scripted_double_spend() {
    let sandbox = Running::start(&["--run", "scenario"], DOUBLE_SPEND);
    let config = sandbox.config();
    let folder = sandbox.folder.path();
    let ask = |args: &[&str]| {
        let args = [args, &["--json", "--config", &config]].concat();
        let output = creditd(folder, &args).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()
    };
    let mut daemon = creditd(folder, &["run", "--config", &config])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_following = || {
        let status = ask(&["chain", "status"]);
        let chains = status["chains"].as_array()?;
        let is_so = chains.len() == 2 && chains.iter().all(|chain| chain["state"] == "following");
        is_so.then_some(())
    };
    wait_until("both chains are followed", PATIENCE, is_following);
    let address = creditd::sandbox::Sandbox::address("order-1");
    ask(&["watch", "add", &address, "--chain", "btc", "--merchant", "shop"]);
    let state = |wanted: &str| {
        wait_until(wanted, PATIENCE, || {
            let deposits = ask(&["deposits", "list"]);
            let is_so = deposits["deposits"][0]["state"] == wanted;
            is_so.then_some(deposits)
        })
    };
    sandbox.says(&["go"]);
    state("seen");
    sandbox.says(&["go"]);
    state("credited");
    assert_eq!(ask(&["balances"])["balances"][0]["credited"], "0.29");
    sandbox.says(&["go"]);
    let deposits = state("replaced");
    assert_eq!(deposits["deposits"].as_array().unwrap().len(), 1);
    assert_eq!(ask(&["balances"])["balances"][0]["credited"], "0");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
