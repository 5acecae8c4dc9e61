//! What a seed's chain did to the books, read from the tables when it is over: a reorg that took nothing back
//! proves nothing about reversals.

use crate::marks;
use crate::tables::Tables;

/// Marks, and how the tables show them: each query counts.
const EFFECTS: &[(&str, &str)] = &[
    (
        "reorg_below_policy",
        "SELECT count(*) FROM audit WHERE action = 'move' AND from_state = 'confirming' \
         AND to_state IN ('orphaned', 'replaced', 'failed')",
    ),
    (
        "reorg_past_a_credit",
        "SELECT count(*) FROM audit WHERE action = 'move' AND from_state = 'credited' \
         AND to_state IN ('orphaned', 'replaced', 'failed')",
    ),
    (
        "reorg_too_deep",
        "SELECT count(*) FROM audit WHERE action = 'state' AND to_state = 'reorg_too_deep'",
    ),
    (
        "held_behind",
        "SELECT count(*) FROM audit WHERE action = 'state' AND to_state = 'behind'",
    ),
    (
        "moved_while_credited",
        "SELECT count(*) FROM audit WHERE action = 'move' AND from_state = 'credited' \
         AND to_state = 'credited'",
    ),
    (
        "reinstated",
        "SELECT count(*) FROM journal WHERE kind = 'reinstatement'",
    ),
    (
        "mined_again_below_from",
        "SELECT count(*) FROM inclusions i JOIN outputs o ON o.tx = i.tx \
         JOIN addresses a ON a.id = o.address WHERE i.height < a.from_height",
    ),
    (
        "executed_again",
        "SELECT count(*) FROM outputs WHERE vout >= 1099511627776",
    ),
    (
        "executed_again_after_credit",
        "SELECT count(*) FROM outputs o JOIN outputs e ON e.tx = o.tx AND e.vout < o.vout \
         AND e.vout % 1099511627776 = o.vout % 1099511627776 JOIN credits c ON c.output = e.id \
         WHERE o.vout >= 1099511627776",
    ),
    (
        "failed_run",
        "SELECT count(*) FROM audit WHERE action = 'move' AND to_state = 'failed'",
    ),
    (
        "coinbase_due",
        "SELECT count(*) FROM credits c JOIN outputs o ON o.id = c.output JOIN txs t ON t.id = o.tx \
         WHERE t.is_coinbase = 1",
    ),
    (
        "coinbase_orphaned",
        "SELECT count(*) FROM audit a JOIN outputs o ON o.id = a.output JOIN txs t ON t.id = o.tx \
         WHERE t.is_coinbase = 1 AND a.to_state = 'orphaned'",
    ),
    (
        "replaced_by_us",
        "SELECT count(*) FROM txs t JOIN txs r ON r.txid = t.replaced_by AND r.chain = t.chain \
         JOIN outputs o ON o.tx = r.id",
    ),
    (
        "replaced_by_others",
        "SELECT count(*) FROM txs t WHERE t.replaced_by IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM txs r JOIN outputs o ON o.tx = r.id \
                         WHERE r.chain = t.chain AND r.txid = t.replaced_by)",
    ),
    (
        "replaced_in_block",
        "SELECT count(*) FROM audit WHERE action = 'move' AND to_state = 'replaced' AND height IS NOT NULL",
    ),
    (
        "replaced_ancestor",
        "SELECT count(*) FROM txs t JOIN inputs i ON i.tx = t.id JOIN txs p ON p.txid = i.prev_txid \
         AND p.chain = t.chain WHERE t.replaced_by IS NOT NULL AND p.replaced_by = t.replaced_by",
    ),
    (
        "replacement_undone",
        "SELECT count(*) FROM audit WHERE action = 'move' AND from_state = 'replaced' \
         AND to_state IN ('seen', 'confirming')",
    ),
    (
        "evicted",
        "SELECT count(*) FROM audit WHERE action = 'move' AND to_state = 'evicted'",
    ),
    (
        "returned",
        "SELECT count(*) FROM audit WHERE action = 'move' AND from_state = 'evicted' \
         AND to_state IN ('seen', 'confirming')",
    ),
    ("payjoin", "SELECT count(*) FROM outputs WHERE origin = 'mixed'"),
    (
        "tier_by_sum",
        "SELECT count(*) FROM deposits d JOIN outputs o ON o.id = d.output WHERE EXISTS \
         (SELECT 1 FROM deposits b JOIN outputs p ON p.id = b.output WHERE b.height = d.height \
          AND b.merchant = d.merchant AND b.asset = d.asset AND b.output <> d.output \
          AND b.confirmations = d.confirmations AND d.confirmations > 1 \
          AND CAST(o.amount AS INTEGER) < 20 AND CAST(p.amount AS INTEGER) < 20)",
    ),
    (
        "spent",
        "SELECT count(*) FROM outputs WHERE spent_height IS NOT NULL",
    ),
];

/// Hits the marks of what the tables show.
pub fn note_effects(tables: &Tables) {
    for (mark, sql) in EFFECTS {
        if tables.count(sql) > 0 {
            marks::hit(mark);
        }
    }
}
