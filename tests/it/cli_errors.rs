//! Everything that an operator can get wrong at the command line, and what is answered: why, and what next.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Output;

use crate::sample::{D1, D2, Sample};

/// Ends a terminal's line, clears it, rings.
const ESCAPES: &str = "\u{1b}[2J\u{7}\u{8}\u{9b}31m\u{202e}";

fn words(output: &Output) -> String {
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "errors go to stderr");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What every error must be: safe for a terminal, short, and with a way on.
#[track_caller]
fn assert_good(args: &[&str], text: &str) {
    let is_unsafe = |letter: &char| *letter != '\n' && (letter.is_control() || *letter == '\u{202e}');
    assert_eq!(text.chars().find(is_unsafe), None, "{args:?}: {text:?}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 1_020),
        "{}",
        &text[..500]
    );
    let has_next = text.contains("\n  next: ") || text.contains("try '--help'");
    assert!(
        has_next,
        "{} says no next step: {text}",
        args[..args.len().min(2)].join(" ")
    );
}

/// One case of the table: what is typed, and the exit code.
type Case<'a> = (&'a [&'a str], i32);

fn told(sample: &Sample, cases: &[Case<'_>]) -> String {
    let mut told = String::new();
    for (args, code) in cases {
        let output = sample.files.cli(args);
        let text = words(&output);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {text}");
        assert_good(args, &text);
        let folder = sample.files.folder().display().to_string();
        let text = text.replace(&folder, "FOLDER");
        writeln!(told, "$ creditd {}\n{text}", args.join(" ").escape_debug()).unwrap();
    }
    told
}

/// What can be typed wrong over the ledger of [`Sample::filled`].
const CASES: &[Case<'static>] = &[
    (&["tx", "abc"], 2),
    (
        &[
            "tx",
            "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b",
        ],
        1,
    ),
    (&["watch", "add", "bc1q", "--merchant", "shop"], 2),
    (&["watch", "add", D1, "--merchant", "The Shop"], 2),
    (&["watch", "add", D1, "--merchant", "bar"], 1),
    (&["watch", "add", D1], 2),
    (&["watch", "add", D1, "--merchant", "shop", "--chain", "nope"], 2),
    (&["watch", "import", "gone.csv", "--merchant", "shop"], 2),
    (&["watch", "import", "folder", "--merchant", "shop"], 2),
    (&["watch", "list", "--merchant", "nope"], 1),
    (&["deposits", "list", "--state", "paid"], 2),
    (&["deposits", "list", "--limit", "0"], 2),
    (&["deposits", "list", "--after", "x"], 2),
    (&["deposits", "hold", "dep_1", "--reason", "x"], 1),
    (&["deposits", "hold", "dep_1", "--reason", " "], 2),
    (&["deposits", "hold", "dep_1"], 2),
    (&["credits", "--json", "--csv"], 2),
    (&["balances", "--merchant", "nope"], 1),
    (&["chain", "accept-reorg", "--fork", "5", "--reason", "x"], 1),
    (&["chain", "accept-reorg", "--fork", "-1", "--reason", "x"], 2),
    (&["rescan", "--from", "500", "--reason", "x"], 1),
    (
        &["rescan", "--from", "101", "--backfill", "x", "--reason", "x"],
        2,
    ),
    (
        &[
            "rescan",
            "--from",
            "101",
            "--backfill",
            "bcrt1pfeesnyr2tx",
            "--reason",
            "x",
        ],
        1,
    ),
    (
        &["endpoint", "add", "http://shop.example/", "--merchant", "shop"],
        1,
    ),
    (
        &["endpoint", "add", "https://localhost/", "--merchant", "shop"],
        1,
    ),
    (&["endpoint", "add", "https://shop.example/"], 2),
    (
        &["endpoint", "add", "https://shop.example/", "--merchant", "A b"],
        2,
    ),
    (
        &[
            "endpoint",
            "add",
            "https://shop.example/",
            "--ops",
            "--types",
            "credit.paid",
        ],
        2,
    ),
    (
        &[
            "endpoint",
            "add",
            "https://shop.example/",
            "--ops",
            "--types",
            "credit.*",
        ],
        2,
    ),
    (
        &[
            "endpoint",
            "add",
            "https://shop.example/",
            "--merchant",
            "shop",
            "--types",
            "chain.halted",
        ],
        2,
    ),
    (&["endpoint", "pause", "ep_1", "--reason", "x"], 1),
    (&["endpoint", "rotate-secret", "ep_1", "--reason", "x"], 1),
    (&["endpoint", "test", "ep_1"], 1),
    (&["callbacks", "show", "evt_1"], 1),
    (&["callbacks", "list", "--endpoint", "ep_1"], 1),
    (&["callbacks", "retry", "evt_1", "--reason", "x"], 1),
    (
        &[
            "callbacks",
            "retry",
            "evt_1",
            "--endpoint",
            "ep_1",
            "--reason",
            "x",
        ],
        1,
    ),
    (&["backup", "creditd.db"], 1),
    (&["backup", "creditd.toml"], 1),
    (&["backup", "creditd.toml", "--replace"], 1),
    (&["init", "creditd.toml"], 2),
    (&["init", "gone/creditd.toml"], 2),
    (&["init", "other.toml", "--json"], 2),
    (&["demo", "--json"], 2),
    (&["run", "--json"], 2),
    (&["completions", "tcsh"], 2),
    (&["fly"], 2),
];

#[test]
fn each_error_says_why_and_what_next() {
    let sample = Sample::filled();
    std::fs::create_dir(sample.files.folder().join("folder")).unwrap();
    insta::assert_snapshot!("errors", told(&sample, CASES));
}

/// Puts something in the place of the database.
type Put = fn(&Path);

/// What may lie where the config says that the database is.
const PUTS: &[(&str, Put)] = &[
    ("no SQLite file", |file| std::fs::write(file, [7; 5000]).unwrap()),
    ("a folder", |file| std::fs::create_dir(file).unwrap()),
    ("another program's", |file| {
        let other = rusqlite::Connection::open(file).unwrap();
        other.execute("CREATE TABLE t (x)", []).unwrap();
    }),
    ("a newer one", |file| {
        std::fs::copy(file.with_file_name("creditd.db"), file).unwrap();
        let newer = rusqlite::Connection::open(file).unwrap();
        newer.pragma_update(None, "user_version", 99).unwrap();
    }),
    ("none", |_| {}),
    ("none, and no folder", |_| {}),
];

#[test]
fn each_unusable_config_or_database_says_what_next() {
    let sample = Sample::filled();
    let folder = sample.files.folder();
    let config = std::fs::read_to_string(sample.files.config_file()).unwrap();
    let mut told = String::new();
    for (number, (what, make)) in PUTS.iter().enumerate() {
        let name = match *what {
            "none, and no folder" => "gone/creditd.db".to_owned(),
            _ => format!("{number}.db"),
        };
        make(&folder.join(&name));
        std::fs::write(
            folder.join("other.toml"),
            config.replace("\"creditd.db\"", &format!("{name:?}")),
        )
        .unwrap();
        for args in [
            &["balances", "--config", "other.toml"][..],
            &["watch", "add", D2, "--merchant", "shop", "--config", "other.toml"],
            &["check", "--config", "other.toml"],
        ] {
            let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_creditd"));
            let output = command.current_dir(folder).args(args).output().unwrap();
            let text = match args[0] {
                "check" => {
                    let lines = String::from_utf8(output.stdout).unwrap();
                    let mut lines = lines.lines().skip_while(|line| !line.contains(" database "));
                    format!("{}\n{}\n", lines.next().unwrap(), lines.next().unwrap())
                }
                _ if output.status.success() => continue,
                _ => {
                    let text = words(&output);
                    assert_good(args, &text);
                    text
                }
            };
            let text = text.replace(&folder.canonicalize().unwrap().display().to_string(), "FOLDER");
            writeln!(
                told,
                "database: {what}\n$ creditd {}\n{text}",
                args[..2].join(" ")
            )
            .unwrap();
        }
    }
    for (what, name) in [("a folder", "."), ("missing", "gone.toml"), ("no text", "3.db")] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_creditd"));
        let args = ["balances", "--config", name];
        let output = command.current_dir(folder).args(args).output().unwrap();
        let text = words(&output);
        assert_good(&args, &text);
        writeln!(told, "config: {what}\n{text}").unwrap();
    }
    insta::assert_snapshot!("unusable_files", told);
}

#[test]
fn what_was_typed_is_never_sent_raw_or_endless_to_the_terminal() {
    let sample = Sample::filled();
    let endless = format!("{}{}", "x".repeat(3_000), " y".repeat(3_000));
    for word in [ESCAPES, &endless] {
        let dashed = format!("--{word}");
        let cases: &[&[&str]] = &[
            &[word],
            &["balances", &dashed],
            &["balances", word],
            &["balances", "--merchant", word],
            &["balances", "--config", word],
            &["tx", word],
            &["watch", "add", word, "--merchant", "shop"],
            &["watch", "add", D2, "--merchant", word],
            &["watch", "add", D2, "--merchant", "shop", "--reference", word],
            &["watch", "add", D2, "--merchant", "shop", "--chain", word],
            &["watch", "import", word, "--merchant", "shop"],
            &["deposits", "list", "--state", word],
            &["deposits", "list", "--after", word],
            &["deposits", "hold", word, "--reason", "x"],
            &["deposits", "hold", "dep_1", "--reason", word],
            &["rescan", "--from", "101", "--backfill", word, "--reason", "x"],
            &["endpoint", "add", word, "--merchant", "shop"],
            &[
                "endpoint",
                "add",
                "https://shop.example/",
                "--merchant",
                "shop",
                "--types",
                word,
            ],
            &["endpoint", "pause", word, "--reason", "x"],
            &["callbacks", "show", word],
            &["backup", word, "--replace", "--config", "gone.toml"],
        ];
        for args in cases {
            let output = sample.files.cli(args);
            assert!(!output.status.success(), "{args:?}");
            assert_good(args, &words(&output));
        }
    }
}
