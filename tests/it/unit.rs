//! The unit file: hardened as promised, understood by systemd, and the node's cookie is readable inside.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

/// What can be done by hand of the unit's hardening, around the rest of the command line: everything but the
/// daemon's folder is read-only (ProtectSystem=), memory is never both written and run
/// (MemoryDenyWriteExecute=, by the kernel's own switch), no core file (LimitCORE=), no privileges and a user
/// namespace (PrivateUsers=). The filter of system calls is systemd's alone to make.
const HARDENED: &str = r#"
below=$(stat -c %m "$1/..")
mount --bind "$1" "$1"
for at in / "$below"; do mount -o remount,bind,ro "$at"; done
if touch "$1/../beside" 2>/dev/null; then exit 9; fi
core=$2 groups=$3 mdwe=$4
shift 4
exec perl -e 'syscall(shift, 65, 1, 0, 0, 0) == 0 or die "PR_SET_MDWE: $!"; exec @ARGV or die' "$mdwe" \
    prlimit --core="$core" setpriv --reuid=65534 --regid=65534 "$groups" --no-new-privs \
    --bounding-set=-all --inh-caps=-all unshare --user --map-user=65534 --map-group=65534 "$@"
"#;

/// The number of prctl(2).
fn prctl() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "157",
        "aarch64" => "167",
        other => panic!("the number of prctl on {other} is not known here"),
    }
}

/// A daemon in the hardening, as user 65534 with these groups.
fn harden(daemon: &Daemon, groups: &str, credentials: &Path) -> Child {
    let folder = daemon.folder();
    let core = Unit::read().get("LimitCORE").to_owned();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-ec", HARDENED, "sh"])
        .arg(folder)
        .args([&core, groups, prctl()])
        .arg(folder.join("creditd"))
        .arg("--config")
        .arg(daemon.config_file())
        .arg("run")
        .env("CREDENTIALS_DIRECTORY", credentials)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

fn end(mut daemon: Child) {
    let status = daemon.try_wait().unwrap();
    assert_eq!(
        status, None,
        "it ended by itself; user namespaces and read-only mounts must be allowed"
    );
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

/// Both logins inside the hardening: the cookie by group, as `SupplementaryGroups=` gives it, and a password
/// as a credential. Only root can become another user; everybody else sees how a cookie without access is
/// told, and that access given later is enough.
#[test]
fn the_cookie_of_the_node_is_read_by_group_and_a_password_as_a_credential() {
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
    std::fs::copy(env!("CARGO_BIN_EXE_creditd"), daemon.folder().join("creditd")).unwrap();
    let (folder, cookie) = (daemon.folder(), node.stub.cookie_file());
    let credentials = tempfile::tempdir().unwrap();
    let password = credentials.path().join("bitcoin-rpc-password");
    std::fs::write(&password, "by-credential\n").unwrap();
    for of_the_daemon in [folder, credentials.path()] {
        shell(
            "chown -R 65534:65534 \"$1\" && chmod 700 \"$1\"",
            &[of_the_daemon],
        );
    }
    shell(
        "chown 0:4242 \"$1\" && chmod 710 \"$1\"",
        &[cookie.parent().unwrap()],
    );
    shell("chown 0:4242 \"$1\" && chmod 640 \"$1\"", &[&cookie]);

    let stranger = harden(&daemon, "--clear-groups", credentials.path());
    daemon.wait_state("unreachable", "Permission denied");
    end(stranger);
    let member = harden(&daemon, "--groups=4242", credentials.path());
    daemon.wait_height(3);
    end(member);

    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    let login = "rpc_user = \"creditd\"\nrpc_password_file = \"credential:bitcoin-rpc-password\"";
    let cookie = config.lines().find(|line| line.starts_with("cookie_file"));
    let config = config.replace(cookie.unwrap(), login);
    std::fs::write(daemon.config_file(), config).unwrap();
    node.stub.require("creditd:by-credential");
    node.mine(Vec::new());
    let stranger = harden(&daemon, "--clear-groups", credentials.path());
    daemon.wait_height(4);
    end(stranger);
}
