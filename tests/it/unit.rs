//! The unit file: hardened as promised, understood by systemd, and the node's cookie is readable inside.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::unit::{self, Unit};

/// systemd's own word for how much a service is exposed, from 0 to 100.
const EXPOSURE_MAX: u32 = 15;

/// From the machine, or from where tests/run puts what the machine lacks.
fn systemd_analyze() -> Command {
    let fetched =
        std::env::var_os("CREDITD_CACHE").map(|cache| PathBuf::from(cache).join("bin/systemd-analyze"));
    let fetched = fetched.filter(|path| path.exists());
    let mut command = Command::new(fetched.unwrap_or_else(|| "systemd-analyze".into()));
    command.stdin(Stdio::null()).env("SYSTEMD_COLORS", "0");
    command
}

/// Standard output and error together. A missing tool fails the test: `tests/run tools` fetches it.
#[track_caller]
fn run(mut command: Command) -> (bool, String) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; run tests/run tools"));
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn the_unit_is_hardened() {
    let mut command = systemd_analyze();
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    command
        .args(["security", "--offline=true", &threshold, "--no-pager"])
        .arg(unit::path());
    let (is_good, text) = run(command);
    assert!(
        text.contains("Overall exposure level for creditd.service"),
        "{text}"
    );
    assert!(is_good, "{text}");
}

#[test]
fn systemd_understands_every_line_of_the_unit() {
    let text = std::fs::read_to_string(unit::path()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("creditd.service");
    // The one line that depends on what is installed.
    let text = text.replace("/usr/local/bin/creditd", env!("CARGO_BIN_EXE_creditd"));
    std::fs::write(&copy, text).unwrap();
    let mut command = systemd_analyze();
    command
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&copy);
    let (is_good, text) = run(command);
    assert!(is_good && !text.contains("creditd.service:"), "{text}");
}

#[test]
fn the_unit_keeps_its_promises() {
    let unit = Unit::read();
    for (name, value) in [
        ("Type", "notify"),
        ("Restart", "always"),
        ("StartLimitIntervalSec", "0"),
        ("TimeoutStartSec", "infinity"),
        ("StateDirectory", "creditd"),
        ("LimitCORE", "0"),
    ] {
        assert_eq!(unit.get(name), value, "{name}");
    }
    // A call to a node may last a minute, and is announced; work besides may take as long again.
    assert!(unit.secs("WatchdogSec") >= 120);
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn shell(script: &str, arguments: &[&Path]) {
    let status = Command::new("sh")
        .args(["-ec", script, "sh"])
        .args(arguments)
        .status();
    assert!(status.unwrap().success(), "{script}");
}

/// Group access to the cookie, as `SupplementaryGroups=` gives it, in a user namespace as `PrivateUsers=`
/// makes it. Only root can become another user; everybody else sees how a cookie without access is told, and
/// that access given later is enough.
#[test]
fn the_cookie_of_the_node_is_read_by_group() {
    let node = FakeNode::regtest(3);
    node.stub.renew_cookie("by-group");
    let mut daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    if !is_root() {
        permit(&node.stub.cookie_file(), 0o000);
        daemon.start_again();
        daemon.wait_state("unreachable", "cookie file");
        permit(&node.stub.cookie_file(), 0o640);
        daemon.wait_height(3);
        daemon.stop();
        return;
    }
    let binary = daemon.folder().join("creditd");
    std::fs::copy(env!("CARGO_BIN_EXE_creditd"), &binary).unwrap();
    let (folder, cookie) = (daemon.folder(), node.stub.cookie_file());
    let nodes_folder = cookie.parent().unwrap();
    shell("chown -R 65534:65534 \"$1\" && chmod 700 \"$1\"", &[folder]);
    shell("chown 0:4242 \"$1\" && chmod 710 \"$1\"", &[nodes_folder]);
    shell("chown 0:4242 \"$1\" && chmod 640 \"$1\"", &[&cookie]);
    // Containers may forbid it; the groups alone are tried then.
    let has_namespaces = Command::new("unshare")
        .args(["--user", "true"])
        .status()
        .unwrap()
        .success();
    let start = |groups: &str| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            groups,
            "--no-new-privs",
            "--bounding-set=-all",
        ]);
        if has_namespaces {
            command.args(["unshare", "--user", "--map-user=65534", "--map-group=65534"]);
        }
        command.arg(&binary);
        command
            .arg("--config")
            .arg(daemon.config_file())
            .arg("run")
            .current_dir(folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut stranger = start("--clear-groups");
    daemon.wait_state("unreachable", "Permission denied");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let mut member = start("--groups=4242");
    daemon.wait_height(3);
    member.kill().unwrap();
    member.wait().unwrap();
}
