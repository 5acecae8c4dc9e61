//! Commands that another account runs than the one that owns the database.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Output;

use creditd::store::{Database, OpenMode};

use crate::sample::{D1, Sample};

/// `nobody`, on every system that we know.
const NOBODY: u32 = 65_534;

/// Runs a command as somebody who is not root, for whom modes of files count.
fn as_nobody(sample: &Sample, args: &[&str]) -> Output {
    // From a place of its own: the folders above the built one may be closed to others.
    let copy = sample.files.folder().join("creditd-copy");
    if !copy.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_creditd"), &copy).unwrap();
        set_mode(&copy, 0o755);
    }
    let mut command = std::process::Command::new(copy);
    command
        .current_dir(sample.files.folder())
        .arg("--config")
        .arg(sample.files.config_file())
        .args(args);
    if Path::new("/proc/self").metadata().unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_database_of_another_account_names_the_account_and_not_a_crash() {
    let sample = Sample::empty();
    sample.files.json(&["watch", "add", D1, "--merchant", "shop"]);
    set_mode(sample.files.folder(), 0o755);
    let running = Database::open(&sample.files.database(), OpenMode::Daemon).unwrap();
    set_mode(&sample.files.database(), 0);
    for args in [
        &["chain", "status"][..],
        &["watch", "add", D1, "--merchant", "shop"],
        &["check"],
    ] {
        let output = as_nobody(&sample, args);
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8(told).unwrap();
        assert_ne!(output.status.code(), Some(0), "{args:?}: {told}");
        assert!(
            told.contains("Permission denied") && told.contains("sudo -u creditd"),
            "{args:?}: {told}"
        );
        assert!(!told.contains("closed cleanly"), "{args:?}: {told}");
    }
    running.close().unwrap();
}

#[test]
fn a_backup_into_a_folder_that_is_closed_names_another_folder() {
    let sample = Sample::filled();
    set_mode(sample.files.folder(), 0o755);
    set_mode(&sample.files.database(), 0o644);
    let output = as_nobody(&sample, &["backup", "/proc/creditd-backup.db"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(!told.contains("owns the file"), "{told}");
    let closed = sample.files.folder().join("closed");
    std::fs::create_dir(&closed).unwrap();
    set_mode(&closed, 0o555);
    let output = as_nobody(&sample, &["backup", "closed/copy.db"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("Permission denied") && told.contains("in a folder that this account may write"),
        "{told}"
    );
}
