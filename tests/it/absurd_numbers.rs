//! Numbers that no chain has. A node that says them has answered badly, which ends neither the daemon nor the
//! chain.

use serde_json::json;

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};

#[test]
fn absurd_numbers_of_a_node_end_nothing() {
    let node = FakeNode::regtest(1);
    let mut daemon = Daemon::prepare(&Setup {
        confirmations: 1,
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    daemon.watch(D1);
    daemon.start_again();
    node.mine(vec![tx(&[coin(7)], &[(script(D1), 1_000)])]);
    daemon.wait_height(2);
    for number in [1_u64 << 63, u64::MAX] {
        let branch = json!({
            "height": number, "hash": "5a".repeat(32), "branchlen": 0, "status": "headers-only",
        });
        let infos = [
            (json!({ "blocks": number, "headers": number }), vec![]),
            (json!({ "headers": number }), vec![]),
            (json!({ "pruned": true, "pruneheight": number }), vec![]),
            (json!({ "time": number }), vec![]),
            (json!({}), vec![branch]),
        ];
        for (info, tips) in infos {
            let what = format!("{info} {tips:?}");
            {
                let mut state = node.state();
                state.info = info;
                state.odd_tips = tips;
            }
            // A tip that moves makes the branches be asked for again.
            node.mine(Vec::new());
            daemon.wait_state("unreachable", &number.to_string());
            assert!(daemon.is_running(), "{what}");
            {
                let mut state = node.state();
                state.info = json!({});
                state.odd_tips.clear();
            }
            let height = node.height();
            daemon.wait_height(height);
        }
    }
    assert_eq!(daemon.net_sum(), 1_000);
    daemon.assert_sound();
}

/// The headers of the first window are the ones that were asked for, at their heights, with their work.
#[test]
fn a_first_window_that_does_not_fit_together_is_not_held() {
    for (field, number) in [
        ("height", json!(0xffff_ffff_u64)),
        ("height", json!(7)),
        ("chainwork", json!("0f".repeat(32))),
    ] {
        let node = FakeNode::regtest(3);
        node.state().header_extra = json!({ field: number });
        let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
        daemon.wait_state("unreachable", field);
        assert_eq!(daemon.count("SELECT count(*) FROM headers"), 0, "{field}");
        assert!(daemon.is_running());
        node.state().header_extra = json!({});
        daemon.wait_height(3);
    }
}
