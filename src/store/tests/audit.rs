//! What the audit keeps for its next run.

use super::guarantee::fixture;
use crate::rules::audit::{AuditPass, FindingKind};
use crate::rules::{BlockHash, ChainId};
use crate::store::{AuditMark, ChainKey, FindingRow, LedgerMark, Unread};

const CHAIN: ChainKey = ChainKey(1);

fn unread(from: u64, to: u64) -> Unread {
    Unread {
        from,
        to,
        why: format!("no {from}"),
    }
}

#[test]
fn stretches_that_touch_are_one_and_what_is_read_is_taken_out() {
    let (_scratch, mut database) = fixture();
    let stretches = |database: &crate::store::Database| {
        let rows = database.read(|tx| tx.unread(CHAIN, 0, 100)).unwrap();
        let spans: Vec<(u64, u64)> = rows.iter().map(|row| (row.from, row.to)).collect();
        let count = database.read(|tx| tx.unread_count(CHAIN)).unwrap();
        assert_eq!(count, spans.len() as u64);
        spans
    };
    for (from, to, expected) in [
        (10, 10, vec![(10, 10)]),
        (12, 12, vec![(10, 10), (12, 12)]),
        (11, 11, vec![(10, 12)]),
        (13, 20, vec![(10, 20)]),
        (8, 9, vec![(8, 20)]),
        (15, 30, vec![(8, 30)]),
        (40, 50, vec![(8, 30), (40, 50)]),
        (0, 0, vec![(0, 0), (8, 30), (40, 50)]),
    ] {
        let noted = database.write(0, |tx| tx.note_unread(CHAIN, &unread(from, to)));
        noted.unwrap();
        assert_eq!(stretches(&database), expected, "with {from} to {to}");
    }
    for (from, to, expected) in [
        (0, 0, vec![(8, 30), (40, 50)]),
        (10, 12, vec![(8, 9), (13, 30), (40, 50)]),
        (31, 39, vec![(8, 9), (13, 30), (40, 50)]),
        (9, 44, vec![(8, 8), (45, 50)]),
        (0, 100, vec![]),
    ] {
        database.write(0, |tx| tx.note_read(CHAIN, from, to)).unwrap();
        assert_eq!(stretches(&database), expected, "without {from} to {to}");
    }
}

/// Two passes may say the same of one payment, and each takes back its own.
#[test]
fn a_finding_is_of_its_pass_and_its_kind() {
    let (_scratch, mut database) = fixture();
    let row = |pass, kind| FindingRow {
        chain: Some(CHAIN),
        pass,
        kind,
        subject: "tx:0".to_owned(),
        height: None,
        what: String::new(),
        found_at: 0,
    };
    let rows = [
        row(AuditPass::Outputs, FindingKind::OtherContent),
        row(AuditPass::Unspent, FindingKind::OtherContent),
        row(AuditPass::Outputs, FindingKind::OtherBlock),
    ];
    for (left, cleared) in [(2, &rows[1]), (1, &rows[0]), (0, &rows[2])] {
        for row in rows.iter().take(usize::from(left == 2) * 3) {
            assert!(
                database.write(0, |tx| tx.note_finding(row)).unwrap(),
                "it is news"
            );
            assert!(!database.write(0, |tx| tx.note_finding(row)).unwrap(), "no more");
        }
        database.write(0, |tx| tx.clear_finding(cleared)).unwrap();
        let known = database.read(|tx| tx.oldest_findings(Some(CHAIN), 10)).unwrap();
        assert_eq!(known.len(), left, "{known:?}");
        assert!(!known.contains(cleared));
        let of_pass = database
            .read(|tx| tx.findings(Some(CHAIN), AuditPass::Outputs))
            .unwrap();
        assert!(
            of_pass
                .iter()
                .all(|row| row.pass == AuditPass::Outputs && known.contains(row))
        );
        let (counted, of_books) = database
            .read(|tx| Ok((tx.findings_count(Some(CHAIN))?, tx.findings_count(None)?)))
            .unwrap();
        assert_eq!((counted, of_books), (left as u64, 0));
    }
}

#[test]
fn the_ledger_is_kept_as_it_was_hashed_last() {
    let (_scratch, mut database) = fixture();
    assert_eq!(database.read(|tx| tx.kept_ledger()).unwrap(), None);
    for credits in [3, 4] {
        let mark = LedgerMark {
            credits,
            journal: 5,
            sha256: [7; 32],
        };
        database.write(17, |tx| tx.keep_ledger(&mark)).unwrap();
        let kept = database.read(|tx| tx.kept_ledger()).unwrap();
        assert_eq!(kept, Some((mark, 17)));
    }
}

/// ```text
/// A(500, paid) - ... - A(1000)        the books had the credit here, and its proof names this block
///  \- B(500, paid) - ... - B(1001)   400 was final: the reorg may be that deep, whatever the window says
/// ```
#[test]
fn a_credit_that_a_deep_reorg_moved_is_wanted_anew() {
    let (_scratch, database) = fixture();
    let moved = "
        INSERT INTO deposits (output, chain, dep_id, merchant, asset, state, height, confirmations,
            due_height, first_seen_at) VALUES (1, 1, 'dep_1', 1, 1, 'credited', 500, 3, 502, 0);
        INSERT INTO headers (chain, height, hash, parent, time_secs, bits, work, chainwork)
            VALUES (1, 500, unhex(printf('%064x', 7)), zeroblob(32), 0, 0, zeroblob(32), zeroblob(32));
        INSERT INTO evidence_blocks (chain, hash, height) VALUES (1, zeroblob(32), 500);
        INSERT INTO evidence (credit, block, body, made_at) VALUES ('cr_1', zeroblob(32), x'00', 0);
        INSERT INTO audit_marks (chain, pass, place) VALUES (1, 'evidence', 1);
        UPDATE chains SET cursor_height = 1001, finalized_height = 400;";
    database.conn.execute_batch(moved).unwrap();
    let chain = ChainId::from_stored("bip122:a".to_owned());
    let wanted = |sql: &str| {
        database.conn.execute_batch(sql).unwrap();
        let wanted = database
            .read(|tx| tx.evidence_wanted(&chain, (0, 6), 10))
            .unwrap();
        wanted.of.into_iter().map(|of| of.credit).collect::<Vec<_>>()
    };
    assert_eq!(wanted(""), ["cr_1"]);
    // The tag has gone on since, and the look comes late.
    assert_eq!(wanted("UPDATE chains SET finalized_height = 506"), ["cr_1"]);
    assert_eq!(wanted("UPDATE chains SET finalized_height = 900"), [""; 0]);
}

/// A reorg of any depth is found by few questions, and little is read again.
#[test]
fn a_trail_is_the_thinner_the_deeper() {
    let mut mark = AuditMark::default();
    for height in 0..1_000_u64 {
        mark.go_on(height + 1, Some(BlockHash([1; 32])));
        mark.thin();
        let heights: Vec<u64> = mark.trail.keys().copied().collect();
        assert_eq!((heights[0], heights.last()), (0, Some(&height)), "its ends stay");
        for pair in heights.windows(2) {
            let most = ((height - pair[0]) / 2).max(1);
            assert!(pair[1] - pair[0] <= most, "{height}: {heights:?}");
        }
        assert!(heights.len() <= 30, "{height}: {heights:?}");
    }
    assert_eq!(mark.below(), Some(BlockHash([1; 32])));
    let (_scratch, mut database) = fixture();
    database
        .write(0, |tx| tx.set_audit_mark(CHAIN, "outputs", &mark))
        .unwrap();
    let kept = database.read(|tx| tx.audit_mark(CHAIN, "outputs")).unwrap();
    assert_eq!(kept, mark);
    mark.go_back(500);
    assert!(mark.trail.keys().all(|height| *height < 500));
    mark.go_on(600, None);
    assert_eq!(mark.below(), None, "nobody knows that block");
}
