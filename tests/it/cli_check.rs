//! `creditd check` looks and changes nothing, and its lines are true.

use std::collections::BTreeMap;
use std::path::Path;

use creditd::store::{Database, OpenMode};
use serde_json::Value;

use crate::sample::{D1, D2, Sample};

/// Every file of a folder but SQLite's index of a log, which belongs to whoever reads.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.ends_with("-shm"))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}

#[track_caller]
fn line(sample: &Sample, name: &str) -> (String, String, String) {
    let output = sample.files.cli(&["check", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = answer["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["name"] == name).unwrap();
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    (text("verdict"), text("found"), text("next_step"))
}

#[track_caller]
fn assert_changes_nothing(sample: &Sample, what: &str) {
    let before = files(sample.files.folder());
    let (verdict, found, _) = line(sample, "database");
    assert_eq!(verdict, "good", "{what}: {found}");
    let after = files(sample.files.folder());
    assert!(before.keys().eq(after.keys()), "{what}: {:?}", after.keys());
    for (name, bytes) in &before {
        assert!(*bytes == after[name], "{what}: {name} is not what it was");
    }
}

#[test]
fn check_changes_no_byte_of_any_database() {
    assert_changes_nothing(&Sample::empty(), "none yet");
    let sample = Sample::filled();
    assert_changes_nothing(&sample, "a closed one");

    // The log of a daemon that was killed: the database in use, copied as it lies.
    let killed = Sample::empty();
    let open = Database::open(&sample.files.database(), OpenMode::Daemon).unwrap();
    sample.files.json(&["watch", "add", D2, "--merchant", "shop"]);
    for name in ["creditd.db", "creditd.db-wal", "creditd.db.highwater"] {
        let to = killed.files.folder().join(name);
        std::fs::copy(sample.files.folder().join(name), to).unwrap();
    }
    open.close().unwrap();
    assert!(
        killed
            .files
            .folder()
            .join("creditd.db-wal")
            .metadata()
            .unwrap()
            .len()
            > 0
    );
    assert_changes_nothing(&killed, "a killed daemon's");

    let restored = Sample::empty();
    sample.files.json(&["backup", "copy.db"]);
    std::fs::copy(sample.files.folder().join("copy.db"), restored.files.database()).unwrap();
    assert_changes_nothing(&restored, "a restored backup");
}

#[test]
fn check_of_a_database_that_cannot_be_written_says_so() {
    let sample = Sample::empty();
    sample.files.json(&["watch", "add", D1, "--merchant", "shop"]);
    // Nobody can make a file there, not even root: the folder of the database is not one any more.
    let config = std::fs::read_to_string(sample.files.config_file()).unwrap();
    std::fs::write(sample.files.folder().join("file"), "").unwrap();
    let moved = config.replace("\"creditd.db\"", "\"file/creditd.db\"");
    std::fs::write(sample.files.config_file(), moved).unwrap();
    let (verdict, found, next) = line(&sample, "database");
    assert_eq!(
        (verdict.as_str(), next.as_str()),
        ("bad", "name a file in an existing folder")
    );
    assert!(
        found.contains("file/creditd.db: ") && found.contains("Not a directory"),
        "{found}"
    );
}

#[test]
fn check_reads_the_certificates_of_ca_file() {
    let sample = Sample::empty();
    let (verdict, found, _) = line(&sample, "callbacks");
    assert_eq!(
        (verdict.as_str(), found.as_str()),
        ("good", "the public authorities are believed")
    );
    let config = std::fs::read_to_string(sample.files.config_file()).unwrap();
    let with_file = config.replace("[ops]", "[callbacks]\nca_file = \"own.pem\"\n\n[ops]");
    std::fs::write(sample.files.config_file(), with_file).unwrap();
    let own = rcgen::generate_simple_self_signed(["own.example".to_owned()]).unwrap();
    for (content, verdict, words) in [
        (None, "bad", "read certificates from"),
        (Some("no certificate".to_owned()), "bad", "holds no certificate"),
        (Some(own.cert.pem()), "good", "and those in"),
    ] {
        if let Some(content) = content {
            std::fs::write(sample.files.folder().join("own.pem"), content).unwrap();
        }
        let told = line(&sample, "callbacks");
        assert_eq!(told.0, verdict, "{}", told.1);
        assert!(told.1.contains(words), "{}", told.1);
        assert_eq!(
            told.2.contains("correct `ca_file`"),
            verdict == "bad",
            "{}",
            told.2
        );
    }
}

#[test]
fn check_says_where_a_missing_secret_is_looked_for() {
    let sample = Sample::empty();
    let config = std::fs::read_to_string(sample.files.config_file()).unwrap();
    let login = "rpc_user = \"creditd\"\nrpc_password_file = \"credential:pw\"";
    std::fs::write(
        sample.files.config_file(),
        config.replace("cookie_file = \"cookie\"", login),
    )
    .unwrap();
    let (verdict, found, next) = line(&sample, "node");
    assert_eq!(verdict, "bad");
    assert!(
        found.contains("credential:pw needs $CREDENTIALS_DIRECTORY"),
        "{found}"
    );
    assert!(
        next.starts_with("set CREDENTIALS_DIRECTORY to the folder"),
        "{next}"
    );
}

#[test]
fn check_tries_the_secrets_of_the_inbox() {
    let sample = Sample::empty();
    let config = std::fs::read_to_string(sample.files.config_file()).unwrap();
    let source = "\n[[inbox]]\nsource = \"gateway\"\nverifier = \"github\"\n\
                  secret_files = [\"gateway.key\"]\neffect = \"forward\"\nmerchant = \"shop\"\n";
    let heard = config.replace("[api]\nlisten = \"off\"", "[api]\nlisten = \"127.0.0.1:0\"");
    std::fs::write(sample.files.config_file(), heard + source).unwrap();
    for (content, verdict, words, step) in [
        (
            None,
            "bad",
            "secret of the inbox source gateway",
            "let the user that runs creditd read",
        ),
        (
            Some("short"),
            "bad",
            "has fewer than 16 letters",
            "make a longer secret",
        ),
        (
            Some("0123456789abcdef"),
            "good",
            "the secrets of gateway can be used",
            "",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(sample.files.folder().join("gateway.key"), content).unwrap();
        }
        let told = line(&sample, "inbox");
        assert_eq!(told.0, verdict, "{}", told.1);
        assert!(told.1.contains(words) && told.2.starts_with(step), "{told:?}");
    }
}
