//! The fault matrix, as the page tells it: what was done, and what had to happen. A mark is hit by the
//! simulator where a fault took effect; each belongs to one row. A row has marks of its own, or names tests.

/// A fault.
pub struct FaultRow {
    pub fault: &'static str,
    pub must: &'static str,
    pub checks: &'static str,
    pub marks: &'static [&'static str],
    /// Tests that hold what the simulator does not do, or does not do in this form: their file and name.
    pub elsewhere: &'static [(&'static str, &'static str)],
}

pub const MATRIX: &[FaultRow] = &[
    FaultRow {
        fault: "kill -9 at any point, again during recovery",
        must: "it goes on where it was; nothing lost or twice",
        checks: "I1 I2 I9 I10 I30",
        marks: &[
            "killed_begin",
            "killed_statement",
            "killed_commit_before",
            "killed_commit_after",
            "killed_await",
            "killed_in_recovery",
            "killed_highwater",
            "killed_write",
            "killed_sync",
            "killed_backup",
            "killed_elsewhere",
        ],
        elsewhere: &[
            (
                "tests/nodes/n_loop.rs",
                "daemon_killed_at_each_point_in_its_turn_ends_at_the_books_of_one_that_was_not",
            ),
            (
                "tests/nodes/kill.rs",
                "daemon_killed_two_hundred_times_ends_at_the_books_of_one_that_was_not",
            ),
        ],
    },
    FaultRow {
        fault: "power loss: writes dropped, torn, reordered",
        must: "the state is a prefix of the commits, with every acknowledged one",
        checks: "I2 I12 I13",
        marks: &["lost_write", "torn_write", "reordered_write", "lost_highwater"],
        elsewhere: &[(
            "src/store/tests/power.rs",
            "what_was_acknowledged_survives_power_losses",
        )],
    },
    FaultRow {
        fault: "a failed sync, an I/O error",
        must: "it ends at once and starts anew; the file is checked",
        checks: "I2 I12 I30",
        marks: &["eio_write", "eio_sync", "eio_read"],
        elsewhere: &[(
            "src/store/tests/power.rs",
            "what_a_restart_after_a_failed_sync_writes_survives_a_power_loss",
        )],
    },
    FaultRow {
        fault: "disk full",
        must: "a named state, which ends by itself",
        checks: "I9 I10 I26 I30",
        marks: &["full_write"],
        elsewhere: &[
            (
                "tests/it/full_disk.rs",
                "a_full_disk_is_a_named_state_that_ends_by_itself",
            ),
            (
                "tests/it/full_disk.rs",
                "a_disk_without_room_for_the_lock_file_is_waited_for",
            ),
        ],
    },
    FaultRow {
        fault: "a busy database",
        must: "the whole transaction again, never half",
        checks: "I9 I15 I30",
        marks: &["busy_retried"],
        elsewhere: &[
            ("tests/it/service.rs", "a_locked_database_is_no_illness"),
            (
                "tests/it/service.rs",
                "a_database_that_is_locked_at_the_start_is_waited_for",
            ),
        ],
    },
    FaultRow {
        fault: "clocks that jump",
        must: "only expiry, eviction and time stamps move",
        checks: "I14 I21",
        marks: &[
            "clock_back",
            "clock_forward_years",
            "clock_back_with_leases",
            "taken_back",
        ],
        elsewhere: &[
            (
                "tests/it/invoice_properties.rs",
                "seeds_keep_invoices_what_their_payments_say",
            ),
            (
                "tests/it/callback_clock.rs",
                "clock_that_was_ahead_does_not_freeze_what_was_queued_meanwhile",
            ),
        ],
    },
    FaultRow {
        fault: "a node that is down, hangs or starts",
        must: "it waits; the other chains go on",
        checks: "I28 I29",
        marks: &["unreachable", "hang_ended"],
        elsewhere: &[
            (
                "tests/it/cases_restart.rs",
                "c27_every_step_of_a_node_restart_passes_and_is_told_in_words",
            ),
            (
                "tests/it/service.rs",
                "a_node_that_hangs_is_waited_for_and_a_stop_does_not_wait",
            ),
        ],
    },
    FaultRow {
        fault: "a node that is behind",
        must: "it holds: no rollback, no credit",
        checks: "I3 I7",
        marks: &["node_behind", "held_behind"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "a node in initial download, or pruned",
        must: "no credit past the gap, which is named",
        checks: "I3 I30",
        marks: &["syncing_no_credit", "pruned_gap", "missing_data"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "a node that comes back on another fork",
        must: "back to the fork point, then forward",
        checks: "I7 I9",
        marks: &["node_other_fork"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "another network",
        must: "refused by name, nothing written",
        checks: "I30",
        marks: &["wrong_network"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "a node that lies",
        must: "proof of work, links and roots; a second endpoint",
        checks: "I3 I9",
        marks: &[
            "lie_amount",
            "lie_receipts",
            "lie_block",
            "lie_logs",
            "quorum_refused",
        ],
        elsewhere: &[
            (
                "tests/it/bitcoin_source/blocks.rs",
                "block_that_breaks_a_rule_is_no_block",
            ),
            (
                "tests/it/bitcoin_source/blocks.rs",
                "mutated_block_never_panics_and_never_passes_as_the_block",
            ),
            (
                "tests/it/bitcoin_source/mempool.rs",
                "wrong_or_missing_answers_never_count_as_seen",
            ),
            (
                "tests/it/bitcoin_source/tip.rs",
                "absurd_numbers_are_a_bad_answer_that_names_the_field",
            ),
            (
                "tests/it/bad_nodes.rs",
                "a_node_on_another_network_is_believed_nothing",
            ),
            (
                "tests/nodes/audit/lying.rs",
                "a_node_that_lies_is_named_and_the_books_are_not_blamed",
            ),
        ],
    },
    FaultRow {
        fault: "nodes behind a balancer",
        must: "missing is never nothing; the cursor waits",
        checks: "I3 I7",
        marks: &[
            "null_answer",
            "stale_answer",
            "error_in_200",
            "batch_entry_failed",
            "answer_cut",
            "wire_answer",
            "alternated",
            "receipt_without_status",
            "same_tx_other_log_index",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "blocks and lists twice, late, out of order",
        must: "the same tables",
        checks: "I7 I16",
        marks: &["list_outdated", "list_repeated", "partial_mempool_list"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "reorgs of every depth and kind",
        must: "no credit, or reversal and reinstatement, or a named halt",
        checks: "I1 I3 I4 I5 I7 I10 I30",
        marks: &[
            "reorg_below_policy",
            "reorg_past_a_credit",
            "reorg_too_deep",
            "worse_branch",
            "better_branch",
            "equal_branch",
            "flip_flop",
            "reinstated",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "the same transaction in another block",
        must: "the same deposit moved, one credit",
        checks: "I1 I7",
        marks: &["moved_while_credited", "mined_again_below_from"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "an EVM transaction run again",
        must: "the old content orphaned, the new one another execution",
        checks: "I1 I3 I5",
        marks: &[
            "executed_again",
            "run_again",
            "executed_again_after_credit",
            "reverted_run",
            "payer_changed",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "a coinbase",
        must: "due at depth 101; gone means gone",
        checks: "I3 I7",
        marks: &["coinbase_due", "coinbase_orphaned"],
        elsewhere: &[],
    },
    FaultRow {
        fault: "replacements, evictions, returns",
        must: "never paid twice",
        checks: "I6 I7 I8",
        marks: &[
            "replaced_by_us",
            "replaced_by_others",
            "replaced_in_block",
            "replaced_ancestor",
            "replacement_undone",
            "evicted",
            "returned",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "receivers of every kind",
        must: "bounds, backoff, the same id again",
        checks: "I11 I13 I25 I26 I29",
        marks: &[
            "receiver_slow",
            "receiver_late_200",
            "receiver_redirect",
            "receiver_410",
            "receiver_429",
            "dead_receiver",
            "crash_between_message_and_answer",
        ],
        elsewhere: &[(
            "tests/it/callbacks.rs",
            "dead_receiver_is_tried_along_the_ladder_then_the_event_is_parked_and_replayed_byte_by_byte",
        )],
    },
    FaultRow {
        fault: "two daemons on one file",
        must: "the second is refused; one that was thawed fails its next write",
        checks: "I22",
        marks: &["second_refused", "thawed_daemon"],
        elsewhere: &[
            (
                "tests/it/store_open.rs",
                "a_new_file_opens_again_and_a_second_daemon_is_refused",
            ),
            (
                "src/store/tests/shell.rs",
                "a_daemon_that_was_overtaken_writes_nothing_more",
            ),
        ],
    },
    FaultRow {
        fault: "an old backup restored",
        must: "noticed, repaired, the same ids again",
        checks: "I13 I24",
        marks: &[
            "restored_backup",
            "restored_without_wal_refused",
            "reserved_skipped",
            "credit_state_told",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "an upgrade cut off",
        must: "whole or not at all",
        checks: "I23",
        marks: &["upgraded", "upgrade_cut"],
        elsewhere: &[
            (
                "src/store/tests/power.rs",
                "killed_at_any_point_of_its_first_start_a_database_opens_at_the_next",
            ),
            (
                "src/store/tests/upgrades.rs",
                "an_upgrade_cut_off_at_any_write_or_sync_is_done_or_not_done",
            ),
            (
                "src/store/tests/versions.rs",
                "an_upgrade_that_fails_leaves_the_version_before_it",
            ),
        ],
    },
    FaultRow {
        fault: "an API request again, in parallel, with a crash between, with another body",
        must: "one effect, equal answers",
        checks: "I15 I16",
        marks: &[
            "api_again",
            "api_parallel",
            "api_crash_between",
            "client_gave_up",
            "api_other_body",
            "group_commit",
            "group_commit_refusal",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "malformed HTTP",
        must: "refused, bounded, others are served",
        checks: "I26 I30",
        marks: &[],
        elsewhere: &[
            (
                "tests/it/api_sockets.rs",
                "a_length_and_chunks_in_one_request_smuggle_no_second_one",
            ),
            ("tests/it/api_sockets.rs", "old_and_odd_heads_have_an_answer"),
            (
                "tests/nodes/openapi.rs",
                "a_foreign_client_finds_the_server_as_its_document_describes_it",
            ),
        ],
    },
    FaultRow {
        fault: "callback URLs to private places",
        must: "refused when they are entered and when they are dialled",
        checks: "I25",
        marks: &[],
        elsewhere: &[
            (
                "tests/it/callback_urls.rs",
                "no_spelling_of_a_denied_address_is_accepted",
            ),
            ("tests/it/callback_dial.rs", "no_denied_address_is_ever_dialled"),
        ],
    },
    FaultRow {
        fault: "a forged, replayed or dated inbox webhook",
        must: "refused, once, or set aside",
        checks: "I17",
        marks: &[
            "inbox_forged",
            "inbox_stale",
            "inbox_again",
            "inbox_set_aside",
            "inbox_external_credit",
        ],
        elsewhere: &[],
    },
    FaultRow {
        fault: "what an operator does meanwhile",
        must: "as if it had been so before",
        checks: "I7 I8 I16",
        marks: &[
            "rule_added_while_block_was_read",
            "policy_edited",
            "tier_by_sum",
            "payjoin",
            "token_unlisted",
            "tag_of_another_branch",
            "invoice_expired",
            "invoice_reopened",
        ],
        elsewhere: &[("tests/it/operator.rs", "a_rescan_never_applies_what_a_reorg_took")],
    },
];
