//! Properties that one statement can ask for. Owns no order and no limit: `checks` asks them one by one.

use crate::rules::invariants::Invariant;

/// Checks that are one statement: each row that it returns, (subject, what), is a violation.
pub(super) const QUERIES: &[(Invariant, &str)] = &[
    (
        Invariant::I1OneCredit,
        "SELECT lower(hex(txid)) || ':' || vout, count(*) || ' credits' FROM credits \
         GROUP BY chain, txid, vout HAVING count(*) > 1",
    ),
    (
        // Of the contents that a position of an EVM transaction ever had, one counts at most.
        Invariant::I5Alternates,
        "SELECT lower(hex(t.txid)) || ':' || (o.vout & 1099511627775), count(*) || ' credited executions' \
         FROM deposits d JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx \
         WHERE d.state = 'credited' GROUP BY o.tx, o.vout & 1099511627775 HAVING count(*) > 1",
    ),
    (
        Invariant::I3Justified,
        "SELECT c.id, 'it is not what its output says' FROM credits c JOIN outputs o ON o.id = c.output \
         JOIN txs t ON t.id = o.tx JOIN addresses a ON a.id = o.address JOIN assets s ON s.id = c.asset \
         WHERE (c.chain, c.txid, c.vout) <> (t.chain, t.txid, o.vout) OR c.amount <> o.amount \
         OR c.merchant <> a.merchant OR c.asset <> o.asset OR a.kind <> 'watch' OR a.chain <> c.chain \
         OR s.chain <> c.chain",
    ),
    (
        Invariant::I3Justified,
        "SELECT c.id, 'its deposit is ' || coalesce(d.merchant || '/' || d.asset, 'missing') FROM credits c \
         LEFT JOIN deposits d ON d.output = c.output \
         WHERE c.inbox IS NULL AND (d.merchant, d.asset, d.chain) IS NOT (c.merchant, c.asset, c.chain)",
    ),
    (
        // A coinbase may be spent at depth 101: 100 blocks on top of its own.
        Invariant::I3Justified,
        "SELECT j.credit, 'entry ' || j.sequence || ' was due at ' || j.due_height || ', too early' \
         FROM journal j JOIN credits c ON c.id = j.credit JOIN outputs o ON o.id = c.output \
         JOIN txs t ON t.id = o.tx WHERE j.kind <> 'reversal' AND (j.confirmations < 1 \
         OR j.due_height < j.block_height + max(coalesce(j.confirmations, 1), \
         iif(t.is_coinbase, 101, 1)) - 1)",
    ),
    (
        // The move that wrote an entry names the tip that it was written under.
        Invariant::I3Justified,
        "SELECT e.credit, 'entry ' || e.sequence || ' has no move that wrote it at or after its due height' \
         FROM (SELECT j.*, c.output, row_number() OVER (PARTITION BY j.credit ORDER BY j.sequence) AS nth \
               FROM journal j JOIN credits c ON c.id = j.credit WHERE j.kind <> 'reversal' \
               AND c.inbox IS NULL) e \
         LEFT JOIN (SELECT output, at, height, row_number() OVER (PARTITION BY output ORDER BY id) AS nth \
                    FROM audit WHERE output IS NOT NULL AND action = 'move' AND from_state = 'confirming' \
                    AND to_state = 'credited') m ON m.output = e.output AND m.nth = e.nth \
         WHERE m.height IS NULL OR m.height < e.due_height OR m.at <> e.at",
    ),
    (
        // A credit that a reorg moved keeps the cause that it had; all others name the block that holds them
        // now.
        Invariant::I3Justified,
        "SELECT j.credit, 'entry ' || j.sequence || ' names block ' || lower(hex(j.block_hash)) \
         || ' at height ' || j.block_height || ', which does not hold it' \
         FROM journal j JOIN credits c ON c.id = j.credit JOIN deposits d ON d.output = c.output \
         LEFT JOIN headers h ON h.chain = d.chain AND h.height = d.height \
         WHERE d.state = 'credited' \
         AND j.sequence = (SELECT max(sequence) FROM journal WHERE credit = j.credit) \
         AND (d.height <> j.block_height OR h.hash IS NOT j.block_hash \
              OR (d.confirmations, d.tag) IS NOT (j.confirmations, j.tag) \
              OR d.due_height > j.due_height) \
         AND NOT EXISTS (SELECT 1 FROM audit k WHERE k.output = d.output AND k.from_state = 'credited' \
                   AND k.to_state = 'credited' AND k.id > (SELECT max(m.id) FROM audit m \
                   WHERE m.output = d.output AND m.from_state = 'confirming' AND m.to_state = 'credited'))",
    ),
    (
        // Where no reorg has ever taken a block away that made something due and left its credit standing.
        Invariant::I3Justified,
        "SELECT j.credit, 'entry ' || j.sequence || ' was due at ' || j.due_height || ' by ' \
         || lower(hex(j.due_hash)) || ', which is not our block there' \
         FROM journal j JOIN credits c ON c.id = j.credit \
         JOIN headers h ON h.chain = c.chain AND h.height = j.due_height \
         WHERE j.kind <> 'reversal' AND h.hash IS NOT j.due_hash \
         AND NOT EXISTS (SELECT 1 FROM tallies WHERE subject = 'reorgs' AND chain = c.chain)",
    ),
    (
        Invariant::I5Alternates,
        "SELECT credit, 'entry ' || sequence || ' is a ' || kind \
         FROM (SELECT credit, sequence, kind, \
               row_number() OVER (PARTITION BY credit ORDER BY sequence) AS place FROM journal) \
         WHERE sequence <> place OR kind <> CASE WHEN place = 1 THEN 'credit' \
               WHEN place % 2 = 0 THEN 'reversal' ELSE 'reinstatement' END",
    ),
    (
        Invariant::I5Alternates,
        "SELECT d.dep_id, 'it is ' || d.state || ' and its journal has ' || count(j.id) || ' entries' \
         FROM deposits d LEFT JOIN credits c ON c.output = d.output LEFT JOIN journal j ON j.credit = c.id \
         GROUP BY d.output HAVING (d.state = 'credited') <> (count(j.id) % 2 = 1)",
    ),
    (
        Invariant::I5Alternates,
        "SELECT id, 'no journal entry' FROM credits c \
         WHERE NOT EXISTS (SELECT 1 FROM journal WHERE credit = c.id)",
    ),
    (
        Invariant::I5Alternates,
        "SELECT dep_id, 'held and credited' FROM deposits \
         WHERE state = 'credited' AND held_reason IS NOT NULL",
    ),
    (
        Invariant::I6NoDoubleSpend,
        "SELECT DISTINCT c.id, 'it and ' || b.id || ' spend one outpoint' FROM credits c \
         CROSS JOIN outputs o ON o.id = c.output CROSS JOIN inputs i ON i.tx = o.tx \
         CROSS JOIN inputs k ON k.prev_txid = i.prev_txid AND k.prev_vout = i.prev_vout AND k.tx > i.tx \
         CROSS JOIN outputs p ON p.tx = k.tx CROSS JOIN credits b ON b.output = p.id AND b.chain = c.chain \
         WHERE (SELECT count(*) FROM journal WHERE credit = c.id) % 2 = 1 \
         AND (SELECT count(*) FROM journal WHERE credit = b.id) % 2 = 1",
    ),
    (
        Invariant::I6NoDoubleSpend,
        "SELECT DISTINCT lower(hex(t.txid)), \
         'it and ' || lower(hex(u.txid)) || ' spend one outpoint on one chain' \
         FROM inclusions n JOIN txs t ON t.id = n.tx JOIN inputs i ON i.tx = t.id \
         JOIN inputs k ON k.prev_txid = i.prev_txid AND k.prev_vout = i.prev_vout AND k.tx > i.tx \
         JOIN txs u ON u.id = k.tx AND u.chain = t.chain JOIN inclusions m ON m.tx = u.id",
    ),
    (
        // The half of "equal to a naive scan" that the tables alone can tell.
        Invariant::I7RescanEqual,
        "SELECT lower(hex(t.txid)) || ':' || o.vout, 'a payment without a deposit' FROM outputs o \
         JOIN txs t ON t.id = o.tx JOIN addresses a ON a.id = o.address WHERE a.kind = 'watch' \
         AND o.origin <> 'internal' AND o.amount <> '0' \
         AND NOT EXISTS (SELECT 1 FROM deposits WHERE output = o.id)",
    ),
    (
        Invariant::I7RescanEqual,
        "SELECT d.dep_id, 'it is no payment' FROM deposits d JOIN outputs o ON o.id = d.output \
         JOIN addresses a ON a.id = o.address JOIN txs t ON t.id = o.tx \
         WHERE a.kind <> 'watch' OR o.amount = '0' OR d.merchant <> a.merchant OR d.chain <> t.chain \
         OR d.chain <> a.chain",
    ),
    (
        Invariant::I8AllowedEdges,
        "SELECT d.dep_id, 'it is ' || d.state || ' at height ' || coalesce(d.height, 'none') \
         || ', its transaction at ' || coalesce(max(i.height), 'none') \
         FROM deposits d JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx \
         LEFT JOIN inclusions i ON i.tx = o.tx GROUP BY d.output HAVING d.height IS NOT max(i.height) \
         AND NOT (d.state = 'orphaned' AND t.sender IS NOT NULL)",
    ),
    (
        // What an EVM transaction paid in another run is told anew, and an operator has to look.
        Invariant::I5Alternates,
        "SELECT d.dep_id, 'not held, where an earlier content of its position was credited' FROM deposits d \
         JOIN outputs o ON o.id = d.output WHERE d.state = 'confirming' AND d.held_reason IS NULL \
         AND o.vout >= 1099511627776 AND NOT EXISTS (SELECT 1 FROM credits WHERE output = d.output) \
         AND NOT EXISTS (SELECT 1 FROM audit WHERE output = d.output AND action = 'release') \
         AND EXISTS (SELECT 1 FROM outputs e JOIN credits c ON c.output = e.id WHERE e.tx = o.tx \
                     AND e.vout < o.vout AND e.vout & 1099511627775 = o.vout & 1099511627775)",
    ),
    (
        Invariant::I8AllowedEdges,
        "SELECT d.dep_id, 'seen, and neither listed nor missing: nothing would ever move it' FROM deposits d \
         JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx \
         WHERE d.state = 'seen' AND t.is_listed = 0 AND t.absent_since IS NULL",
    ),
    (
        Invariant::I8AllowedEdges,
        "SELECT d.dep_id, 'replaced by nobody' FROM deposits d JOIN outputs o ON o.id = d.output \
         JOIN txs t ON t.id = o.tx WHERE d.state = 'replaced' AND t.replaced_by IS NULL",
    ),
    (
        Invariant::I8AllowedEdges,
        "SELECT lower(hex(t.txid)), 'in a block and still listed, missing or replaced' FROM txs t \
         WHERE (t.is_listed = 1 OR t.absent_since IS NOT NULL OR t.replaced_by IS NOT NULL) \
         AND EXISTS (SELECT 1 FROM inclusions WHERE tx = t.id)",
    ),
    (
        // Tallies of attempts, reorgs and strays have no rows to be held against.
        Invariant::I20Recomputed,
        "SELECT subject || ' of chain ' || chain || ': ' || kind, \
         'the tally is ' || sum(tally) || ', there are ' || sum(rows) FROM (\
         SELECT subject, chain, kind, count AS tally, 0 AS rows FROM tallies \
         WHERE subject NOT IN ('attempts', 'reorgs', 'strays') \
         UNION ALL SELECT 'deposits', chain, state, 0, count(*) FROM deposits GROUP BY chain, state \
         UNION ALL SELECT 'journal', c.chain, j.kind, 0, count(*) FROM journal j \
         JOIN credits c ON c.id = j.credit GROUP BY c.chain, j.kind \
         UNION ALL SELECT 'invoices', chain, life, 0, count(*) FROM invoices GROUP BY chain, life \
         UNION ALL SELECT 'deliveries', 0, state, 0, count(*) FROM deliveries GROUP BY state \
         UNION ALL SELECT 'inbox', 0, state, 0, count(*) FROM inbox GROUP BY state \
         UNION ALL SELECT 'inbox', 0, 'set_aside', 0, count(*) FROM inbox_aside \
         UNION ALL SELECT 'duplicates', t.chain, '', 0, sum(o.duplicates) FROM outputs o \
         JOIN txs t ON t.id = o.tx GROUP BY t.chain) \
         GROUP BY subject, chain, kind HAVING sum(tally) <> sum(rows)",
    ),
    (
        Invariant::I9CursorHonest,
        "SELECT c.caip, 'the cursor is at ' || coalesce(c.cursor_height, 'none') \
         || ', the highest header at ' || coalesce(max(h.height), 'none') \
         FROM chains c LEFT JOIN headers h ON h.chain = c.id \
         GROUP BY c.id HAVING c.cursor_height IS NOT max(h.height)",
    ),
    (
        Invariant::I9CursorHonest,
        "SELECT c.caip, 'safe up to ' || coalesce(c.safe_height, 'none') || ' and final up to ' \
         || coalesce(c.finalized_height, 'none') || ', the cursor is at ' \
         || coalesce(c.cursor_height, 'none') FROM chains c WHERE c.safe_height > coalesce(c.cursor_height, \
         -1) \
         OR c.finalized_height > coalesce(c.cursor_height, -1) OR (c.finalized_height IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM headers WHERE chain = c.id AND height = c.finalized_height))",
    ),
    (
        // A credit that a reorg moved keeps the cause that it had.
        Invariant::I3Justified,
        "SELECT d.dep_id, 'credited at height ' || d.height || ', which is not ' || d.tag FROM deposits d \
         JOIN chains c ON c.id = d.chain WHERE d.state = 'credited' AND d.tag IS NOT NULL \
         AND d.height > coalesce(iif(d.tag = 'safe', c.safe_height, c.finalized_height), -1) \
         AND NOT EXISTS (SELECT 1 FROM audit WHERE output = d.output AND from_state = 'credited' \
                         AND to_state = 'credited')",
    ),
    (
        Invariant::I9CursorHonest,
        "SELECT lower(hex(t.txid)), 'in a block at height ' || i.height || ', whose header is not held' \
         FROM inclusions i JOIN txs t ON t.id = i.tx \
         WHERE NOT EXISTS (SELECT 1 FROM headers WHERE chain = i.chain AND height = i.height)",
    ),
    (
        Invariant::I9CursorHonest,
        "SELECT lower(hex(t.txid)) || ':' || o.vout, \
         'spent at height ' || o.spent_height || ', above the cursor' \
         FROM outputs o JOIN txs t ON t.id = o.tx JOIN chains c ON c.id = t.chain \
         WHERE o.spent_height > c.cursor_height OR (o.spent_height IS NOT NULL AND o.spent_by IS NULL)",
    ),
    (
        Invariant::I17Inbox,
        "SELECT source || ' ' || event_id, count(*) || ' rows' FROM inbox GROUP BY source, event_id \
         HAVING count(*) > 1",
    ),
    (
        Invariant::I17Inbox,
        "SELECT c.id, 'its webhook ' || coalesce(i.in_id || ' is ' || i.state, 'is missing') FROM credits c \
         JOIN chains h ON h.id = c.chain LEFT JOIN inbox i ON i.id = c.inbox WHERE c.output IS NULL \
         AND (i.effect IS NOT 'credit.external' OR h.caip <> 'ext:' || i.source)",
    ),
    (
        Invariant::I17Inbox,
        "SELECT i.in_id, 'it is ' || i.state || ' as ' || coalesce(i.effect, 'nothing yet') \
         || ' and was forwarded ' || count(e.seq) || ' times' FROM inbox i \
         LEFT JOIN events e ON e.subject = i.in_id AND e.type = 'inbox.forwarded' \
         GROUP BY i.id HAVING count(e.seq) <> (i.effect IS 'forward')",
    ),
    (
        // Nobody is credited for one payment by the chain and by a provider, but by an operator's decision.
        Invariant::I17Inbox,
        "SELECT d.dep_id, 'credited, and so is ' || x.credit || ' for it' FROM external_outputs x \
         JOIN txs t ON t.txid = x.txid JOIN outputs o ON o.tx = t.id \
         AND (x.vout IS NULL OR x.vout = o.vout OR t.sender IS NOT NULL) \
         JOIN deposits d ON d.output = o.id WHERE d.state = 'credited' \
         AND NOT EXISTS (SELECT 1 FROM audit WHERE output = o.id AND action = 'release')",
    ),
    (
        Invariant::I10OneEvent,
        "SELECT p.ep_id, 'it is sent event ' || e.id || ', which is not for its owner' FROM deliveries d \
         JOIN events e ON e.seq = d.event JOIN endpoints p ON p.id = d.endpoint \
         WHERE p.merchant IS NOT e.merchant OR d.subject <> e.subject",
    ),
    (
        Invariant::I10OneEvent,
        "SELECT p.ep_id, 'it is sent event ' || e.id || ', which is not of its invoice' FROM deliveries d \
         JOIN events e ON e.seq = d.event JOIN endpoints p ON p.id = d.endpoint \
         JOIN invoices v ON v.id = p.invoice \
         WHERE e.subject <> v.inv_id AND e.subject NOT LIKE 'endpoint:%'",
    ),
    (
        // What is paid to an invoice's address is credited to whom the address belongs to.
        Invariant::I4InvoiceBooks,
        "SELECT i.inv_id, 'it is of merchant ' || i.merchant || ' on chain ' || i.chain \
         || ', its address of ' || a.merchant || ' on ' || a.chain FROM invoices i \
         JOIN addresses a ON a.id = i.address JOIN assets s ON s.id = i.asset \
         WHERE (a.merchant, a.chain, s.chain) IS NOT (i.merchant, i.chain, i.chain)",
    ),
];
