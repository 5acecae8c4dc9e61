//! What the audit keeps for its next run.

use super::guarantee::fixture;
use crate::rules::audit::{AuditPass, FindingKind};
use crate::store::{ChainKey, FindingRow, LedgerMark, Unread};

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
        let known = database.read(|tx| tx.findings()).unwrap();
        assert_eq!(known.len(), left, "{known:?}");
        assert!(!known.contains(cleared));
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
