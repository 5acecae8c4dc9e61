//! What took effect: a fault that was drawn and met nothing proves nothing. Each is hit where it happened, on
//! the thread of its seed.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static HIT: RefCell<Marks> = const { RefCell::new(Marks(BTreeMap::new())) };
}

/// How often each mark was hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub BTreeMap<&'static str, u32>);

/// Something took effect in the seed that this thread runs. Names are those of [`REQUIRED`].
pub fn hit(mark: &'static str) {
    HIT.with(|hit| *hit.borrow_mut().0.entry(mark).or_default() += 1);
}

/// All since the last call.
pub fn take() -> Marks {
    HIT.with(|hit| std::mem::take(&mut *hit.borrow_mut()))
}

impl Marks {
    pub fn add(&mut self, other: &Marks) {
        for (mark, count) in &other.0 {
            *self.0.entry(mark).or_default() += count;
        }
    }

    /// Those that a batch must have and has not.
    pub fn zeros(&self) -> Vec<&'static str> {
        let all = REQUIRED.iter().flat_map(|(_, marks)| marks.iter());
        all.filter(|mark| !self.0.contains_key(**mark)).copied().collect()
    }
}

/// The fault matrix: each fault, and what shows that it took effect.
pub const REQUIRED: &[(&str, &[&str])] = &[
    (
        "kill -9",
        &[
            "killed_begin",
            "killed_statement",
            "killed_commit_before",
            "killed_commit_after",
            "killed_await",
            "killed_highwater",
            "killed_sync",
            "killed_write",
            "killed_in_recovery",
        ],
    ),
    (
        "power loss",
        &["lost_write", "torn_write", "reordered_write", "lost_highwater"],
    ),
    ("fsync error, EIO", &["eio_write", "eio_sync", "eio_read"]),
    ("disk full", &["full_write"]),
    ("SQLITE_BUSY", &["busy_retried"]),
    (
        "clock",
        &[
            "clock_back",
            "clock_forward_years",
            "clock_back_with_leases",
            "taken_back",
        ],
    ),
    ("node down, hanging", &["unreachable", "hang_ended"]),
    ("node behind", &["node_behind", "held_behind"]),
    (
        "initial download, pruned",
        &["syncing_no_credit", "pruned_gap", "missing_data"],
    ),
    ("another fork", &["node_other_fork"]),
    ("wrong network", &["wrong_network"]),
    ("balancer, quorum", &["alternated", "quorum_refused"]),
    (
        "node lies, answers in part",
        &[
            "lie_amount",
            "lie_block",
            "lie_logs",
            "lie_receipts",
            "null_answer",
            "stale_answer",
            "error_in_200",
            "batch_entry_failed",
            "answer_cut",
            "receipt_without_status",
            "same_tx_other_log_index",
        ],
    ),
    (
        "late, repeated and partial lists",
        &["list_outdated", "list_repeated", "partial_mempool_list"],
    ),
    (
        "reorgs",
        &[
            "reorg_below_policy",
            "reorg_past_a_credit",
            "reorg_too_deep",
            "worse_branch",
            "equal_branch",
            "flip_flop",
            "reinstated",
        ],
    ),
    ("the same transaction in another block", &["moved_while_credited"]),
    (
        "EVM: run again",
        &[
            "executed_again",
            "executed_again_after_credit",
            "reverted_run",
            "payer_changed",
            "tag_of_another_branch",
        ],
    ),
    ("coinbase", &["coinbase_due", "coinbase_orphaned"]),
    (
        "replacement",
        &[
            "replaced_by_us",
            "replaced_by_others",
            "replaced_in_block",
            "replaced_ancestor",
            "replacement_undone",
            "evicted",
            "returned",
        ],
    ),
    (
        "receivers",
        &[
            "receiver_slow",
            "receiver_late_200",
            "receiver_redirect",
            "receiver_410",
            "receiver_429",
            "dead_receiver",
            "crash_between_message_and_answer",
        ],
    ),
    ("two daemons", &["second_refused", "thawed_daemon"]),
    (
        "old backup",
        &[
            "restored_backup",
            "restored_without_wal_refused",
            "reserved_skipped",
            "credit_state_told",
        ],
    ),
    ("an upgrade", &["upgraded", "upgrade_cut"]),
    (
        "API repeats",
        &[
            "api_again",
            "api_parallel",
            "api_other_body",
            "api_crash_between",
            "group_commit",
            "group_commit_refusal",
        ],
    ),
    (
        "inbox",
        &[
            "inbox_forged",
            "inbox_stale",
            "inbox_again",
            "inbox_set_aside",
            "inbox_external_credit",
        ],
    ),
    (
        "fed in other ways",
        &[
            "fed_as_it_happened",
            "fed_tip_first",
            "fed_every_kth",
            "fed_each_twice",
            "fed_full_replay",
            "fed_condensed",
            "fed_every_tip",
            "fed_balancer",
            "fed_crash_each_round",
            "fed_lists_late",
            "fed_loser_first",
        ],
    ),
    (
        "beside",
        &[
            "rule_added_while_block_was_read",
            "policy_edited",
            "tier_by_sum",
            "payjoin",
            "invoice_expired",
        ],
    ),
];

pub fn table() -> Vec<String> {
    let rows = REQUIRED.iter();
    rows.map(|(fault, marks)| format!("{fault}: {}", marks.join(", ")))
        .collect()
}
