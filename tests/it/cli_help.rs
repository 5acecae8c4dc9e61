//! The command line before any chain: help, exit codes, where the config is found.

use assert_cmd::Command;
use tempfile::TempDir;

/// creditd in a folder of its own, with nothing of ours in the environment.
fn creditd(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
    command
        .current_dir(folder.path())
        .env_remove("CREDITD_CONFIG")
        .env_remove("CREDENTIALS_DIRECTORY");
    command
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[track_caller]
fn answer(command: &mut Command, code: i32) -> (String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout: {stdout}\nstderr: {stderr}"
    );
    (stdout, stderr)
}

const COMMANDS: &[&[&str]] = &[
    &["init"],
    &["check"],
    &["run"],
    &["watch", "add"],
    &["watch", "own"],
    &["watch", "list"],
    &["watch", "import"],
    &["tx"],
    &["deposits", "list"],
    &["deposits", "hold"],
    &["deposits", "release"],
    &["credits"],
    &["balances"],
    &["chain", "status"],
    &["chain", "accept-reorg"],
    &["rescan"],
    &["restored"],
    &["merchant", "add"],
    &["merchant", "list"],
    &["key", "create"],
    &["key", "list"],
    &["key", "revoke"],
    &["endpoint", "add"],
    &["endpoint", "list"],
    &["endpoint", "pause"],
    &["endpoint", "resume"],
    &["endpoint", "rotate-secret"],
    &["endpoint", "test"],
    &["callbacks", "list"],
    &["callbacks", "show"],
    &["callbacks", "retry"],
    &["inbox", "list"],
    &["inbox", "show"],
    &["inbox", "retry"],
    &["addresses", "status"],
    &["addresses", "repin"],
    &["jobs"],
    &["backup"],
    &["audit"],
    &["proof"],
    &["proof", "verify"],
    &["drill"],
    &["sandbox"],
    &["trigger", "deposit"],
    &["trigger", "double-spend"],
    &["trigger", "replace"],
    &["trigger", "reorg"],
    &["trigger", "evict"],
    &["trigger", "resend"],
    &["trigger", "fail"],
    &["trigger", "lag"],
    &["trigger", "mine"],
    &["trigger", "tags"],
    &["trigger", "node"],
    &["trigger", "state"],
    &["trigger", "go"],
    &["trigger", "reset"],
    &["demo"],
    &["completions"],
    &["man"],
];

#[test]
fn every_command_is_in_the_help_and_has_its_own() {
    let folder = folder();
    let (help, _) = answer(creditd(&folder).arg("--help"), 0);
    for path in COMMANDS {
        assert!(
            help.contains(&format!("  {} ", path[0])),
            "{} in:\n{help}",
            path[0]
        );
        answer(creditd(&folder).args(*path).arg("--help"), 0);
    }
    let (check, _) = answer(creditd(&folder).args(["check", "--help"]), 0);
    assert!(
        check.contains("asks every node") && check.contains("Changes nothing"),
        "{check}"
    );
    assert!(help.contains("Exit codes: 0 done, 1 found a problem, 2 could not run."));
}

/// An option that a command always refuses is not in its help; the others have it.
#[test]
fn the_help_lists_no_option_that_the_command_refuses() {
    let folder = folder();
    let has = |path: &[&str], option: &str| {
        let (help, _) = answer(creditd(&folder).args(path).arg("--help"), 0);
        help.contains(option)
    };
    let without_json = ["init", "run", "demo", "sandbox", "completions", "man"];
    let with_key: &[&[&str]] = &[
        &["watch", "add"],
        &["watch", "own"],
        &["deposits", "hold"],
        &["deposits", "release"],
        &["chain", "accept-reorg"],
        &["rescan"],
        &["restored"],
        &["merchant", "add"],
        &["key", "create"],
        &["key", "revoke"],
        &["endpoint", "add"],
        &["endpoint", "pause"],
        &["endpoint", "resume"],
        &["endpoint", "rotate-secret"],
        &["endpoint", "test"],
        &["callbacks", "retry"],
        &["inbox", "retry"],
        &["addresses", "repin"],
    ];
    for path in COMMANDS {
        let is_refused = without_json.contains(&path[0]);
        assert_eq!(has(path, "--json"), !is_refused, "{path:?}");
        assert_eq!(
            has(path, "--idempotency-key"),
            with_key.contains(path),
            "{path:?}"
        );
    }
    // What is hidden is still refused with its reason.
    for args in [
        &["man", "--json"][..],
        &["trigger", "mine", "--idempotency-key", "k"],
    ] {
        let (_, stderr) = answer(creditd(&folder).args(args), 2);
        assert!(stderr.contains("leave out --"), "{args:?}: {stderr}");
    }
}

#[test]
fn what_cannot_run_ends_with_2_and_a_next_step() {
    let folder = folder();
    answer(&mut creditd(&folder), 2);
    answer(creditd(&folder).arg("fly"), 2);
    let (stdout, stderr) = answer(creditd(&folder).arg("balances"), 2);
    assert_eq!(stdout, "");
    assert!(
        stderr.starts_with("creditd: no config file: looked for creditd.toml and /etc/"),
        "{stderr}"
    );
    assert!(
        stderr.ends_with("  next: `creditd init` writes one\n"),
        "{stderr}"
    );
    assert_eq!(stderr.matches("creditd init").count(), 1, "{stderr}");
    let (_, stderr) = answer(creditd(&folder).args(["balances", "--config", "gone.toml"]), 2);
    assert!(
        stderr.contains("read config gone.toml\n  because: No such file"),
        "{stderr}"
    );
}

/// Usage lines name what has to be typed, wherever the config is named.
#[test]
fn usage_is_the_same_with_and_without_the_environment() {
    let folder = folder();
    for args in [
        &["watch", "add"][..],
        &["tx"],
        &["rescan"],
        &["proof", "verify"],
        &["trigger", "deposit"],
    ] {
        let (_, plain) = answer(creditd(&folder).args(args), 2);
        assert!(plain.contains("Usage: creditd "), "{args:?}: {plain}");
        let mut named = creditd(&folder);
        named
            .env("CREDITD_CONFIG", "c.toml")
            .env("CREDITD_SANDBOX", "http://127.0.0.1:1");
        assert_eq!(answer(named.args(args), 2).1, plain, "{args:?}");
    }
}

#[test]
fn repairs_need_a_reason() {
    let folder = folder();
    for args in [
        &["deposits", "hold", "dep_1"][..],
        &["deposits", "release", "dep_1"],
        &["chain", "accept-reorg", "--fork", "5"],
        &["rescan", "--from", "5"],
    ] {
        let (_, stderr) = answer(creditd(&folder).args(args), 2);
        assert!(stderr.contains("--reason <TEXT>"), "{args:?}: {stderr}");
    }
}

#[test]
fn init_writes_the_documentation_once() {
    let folder = folder();
    let (stdout, _) = answer(creditd(&folder).arg("init"), 0);
    assert_eq!(stdout, "wrote creditd.toml; edit it, then `creditd check`\n");
    let written = std::fs::read_to_string(folder.path().join("creditd.toml")).unwrap();
    assert_eq!(written, creditd::config::DEFAULT_TOML);
    let (_, stderr) = answer(creditd(&folder).arg("init"), 2);
    assert!(
        stderr.contains("write creditd.toml\n  because: File exists"),
        "{stderr}"
    );
}

#[test]
fn the_config_is_found_by_flag_environment_and_folder() {
    let folder = folder();
    let good = |chain: &str| {
        creditd::config::DEFAULT_TOML.replace("alias = \"btc\"", &format!("alias = \"{chain}\""))
    };
    for (file, alias) in [
        ("creditd.toml", "here"),
        ("env.toml", "env"),
        ("flag.toml", "flag"),
    ] {
        std::fs::write(folder.path().join(file), good(alias)).unwrap();
    }
    // No node answers here, so that the check finds a problem and names the chain that has it.
    let check = |command: &mut Command| answer(command.arg("check"), 1).0;
    assert!(check(&mut creditd(&folder)).contains(" here: getblockchaininfo"));
    assert!(check(creditd(&folder).env("CREDITD_CONFIG", "env.toml")).contains(" env: getblockchaininfo"));
    let both = check(
        creditd(&folder)
            .env("CREDITD_CONFIG", "env.toml")
            .args(["--config", "flag.toml"]),
    );
    assert!(both.contains(" flag: getblockchaininfo"), "{both}");
}

#[test]
fn all_faults_of_a_config_are_printed() {
    let folder = folder();
    let bad = creditd::config::DEFAULT_TOML
        .replace("network = \"main\"", "network = \"mian\"")
        .replace("\nconfirmations = 6", "\nconfirmations = 0");
    std::fs::write(folder.path().join("creditd.toml"), bad).unwrap();
    let (_, stderr) = answer(creditd(&folder).arg("check"), 2);
    assert!(
        stderr.starts_with("creditd: config creditd.toml has 2 faults\n  line "),
        "{stderr}"
    );
    assert!(stderr.contains("bitcoin[0].network: found \"mian\""), "{stderr}");
    assert!(
        stderr.contains("bitcoin[0].policy[0].confirmations: found 0"),
        "{stderr}"
    );
}

#[test]
fn completions_and_manual_page_are_made() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = answer(creditd(&folder).args(["completions", shell]), 0);
        assert!(script.contains("accept-reorg"), "{shell}");
    }
    let (page, _) = answer(creditd(&folder).arg("man"), 0);
    assert!(page.contains(".TH creditd"), "{page}");
}
