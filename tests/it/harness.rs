//! The test support itself: it must not pass or wait for the wrong reason.

use std::time::Duration;

use crate::common::daemon::{Daemon, Setup};
use crate::common::stub::StubNode;
use crate::common::wait::{PATIENCE, wait_until};

#[test]
fn waiting_returns_the_answer_and_asks_again() {
    let mut asked = 0;
    let answer = wait_until("third answer", PATIENCE, || {
        asked += 1;
        (asked == 3).then_some("done")
    });
    assert_eq!(answer, "done");
}

#[test]
#[should_panic(expected = "in vain: rain")]
fn waiting_ends_at_the_deadline() {
    wait_until("rain", Duration::from_millis(50), || None::<()>);
}

#[test]
fn written_config_passes_the_check_of_the_binary() {
    let stub = StubNode::alone();
    let daemon = Daemon::prepare(&Setup::for_stub(&stub));
    let output = daemon.cli(&["check"]);
    // The config is good; what is bad is the node, which answers nothing here.
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.starts_with("good     config"), "{lines}");
    assert_eq!(output.status.code(), Some(1), "{lines}");
    let unknown_key = Setup {
        chain_lines: "polling = 1\n".to_owned(),
        ..Setup::for_stub(&stub)
    };
    daemon.write_config(&unknown_key);
    assert_eq!(daemon.cli(&["check"]).status.code(), Some(2));
}
