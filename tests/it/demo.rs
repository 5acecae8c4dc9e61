//! `creditd demo` as a stranger runs it: the real binary, without any config or node.

use std::process::{Command, Output, Stdio};

fn demo(folder: &std::path::Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_creditd"))
        .arg("demo")
        // A config of the caller's own must not reach the demonstration.
        .env("CREDITD_CONFIG", folder.join("none.toml"))
        .env("TMPDIR", folder)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn demo_shows_the_whole_job_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path());
    let shown = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{shown}\n{errors}");
    assert_eq!(errors, "");
    let mut rest = shown.as_str();
    for step in [
        "deposit.seen        order-1: 0.29 BTC",
        "deposit.confirming  order-1: 0.29 BTC in block 121, due at height 123",
        "credit.created      order-1: +0.29 BTC, net 0.29",
        "ok  order-1 is credited once",
        "deposit.replaced    order-2: 0.5 BTC, by ",
        "ok  two transactions were sent for order-2 and one is credited",
        "credit.reversed     order-3: -1 BTC, net 0 (now orphaned)",
        "credit.reinstated   order-3: +1 BTC, net 1",
        "kill -9",
        "credit.created      order-4: +0.07 BTC, net 0.07",
        "ok  order-4 is credited once",
        "1.86",
        "order-3  reinstatement  +1 BTC  block 127",
        "creditd rescan --from 0 --apply (3 of 3)",
        "ok  nothing changed: ",
        "ok  everything that must always hold does hold",
        "ok  the daemon stops in good order",
        "All of it was as it must be",
    ] {
        let at = rest.find(step);
        assert!(
            at.is_some(),
            "no {step:?} here:\n{rest}\n---- all of it:\n{shown}"
        );
        rest = &rest[at.unwrap()..];
    }
    assert!(!shown.contains("FAILED"), "{shown}");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "files were left behind");
}
