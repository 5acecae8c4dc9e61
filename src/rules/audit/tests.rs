//! Claims and payments, judged: a row for each way in which they can differ.

use super::*;
use crate::rules::{TaggedBlock, Txid};

fn script(byte: u8) -> Script {
    Script(vec![byte; 20].into())
}

fn outpoint() -> Outpoint {
    Outpoint {
        txid: Txid([1; 32]),
        vout: 0,
    }
}

fn paid() -> Paid {
    Paid {
        at: TaggedBlock {
            height: 100,
            hash: BlockHash([9; 32]),
        },
        outpoint: outpoint(),
        script: script(1),
        asset: Asset::Native,
        amount: Amount::from_u64(5),
        from: None,
        is_success: true,
    }
}

fn claim() -> Claim {
    Claim {
        id: "cr_1".to_owned(),
        outpoint: outpoint(),
        script: script(1),
        asset: Asset::Native,
        amount: Amount::from_u64(5),
        height: 100,
        hash: Some(BlockHash([9; 32])),
    }
}

fn booked(state: State) -> Booked {
    Booked {
        is_watched: true,
        from: Some(50),
        output: Some(BookedOutput {
            script: script(1),
            asset: Asset::Native,
            amount: Amount::from_u64(5),
            is_internal: false,
            heights: vec![100],
        }),
        deposit: Some(BookedDeposit {
            id: "dep_1".to_owned(),
            state,
            due: Some(105),
            needs: Some(Requirement::Confirmations(6)),
            is_held: false,
        }),
    }
}

const REACH: Reach = Reach {
    cursor: 120,
    safe: Some(115),
    finalized: Some(108),
    age_blocks: 6,
};

#[test]
fn credits_are_judged() {
    type Change = fn(&mut Claim, &mut Paid);
    let table: [(&str, Change, Option<FindingKind>); 9] = [
        ("as booked", |_, _| {}, None),
        ("the header is not held", |claim, _| claim.hash = None, None),
        (
            "another amount",
            |_, paid| paid.amount = Amount::from_u64(6),
            Some(FindingKind::OtherContent),
        ),
        (
            "another address",
            |claim, _| claim.script = script(2),
            Some(FindingKind::OtherContent),
        ),
        (
            "another asset",
            |_, paid| paid.asset = Asset::Token([3; 20]),
            Some(FindingKind::OtherContent),
        ),
        (
            "another height",
            |_, paid| paid.at.height = 101,
            Some(FindingKind::OtherBlock),
        ),
        (
            "another block",
            |claim, _| claim.hash = Some(BlockHash([8; 32])),
            Some(FindingKind::OtherBlock),
        ),
        (
            "a failed transaction",
            |_, paid| paid.is_success = false,
            Some(FindingKind::NotSuccessful),
        ),
        (
            "failed, and other content",
            |_, paid| {
                paid.is_success = false;
                paid.amount = Amount::ZERO;
            },
            Some(FindingKind::NotSuccessful),
        ),
    ];
    for (name, change, expected) in table {
        let (mut claim, mut paid) = (claim(), paid());
        change(&mut claim, &mut paid);
        assert_eq!(judge_credit(&claim, Some(&paid)), expected, "{name}");
    }
    assert_eq!(judge_credit(&claim(), None), Some(FindingKind::NotOnChain));
}

type Change = fn(&mut Booked, &mut Paid);

/// (what, the state, what is changed, all inputs are ours, what is wrong)
const PAID: &[(&str, State, Change, bool, Option<FindingKind>)] = &[
    ("credited", State::Credited, |_, _| {}, false, None),
    (
        "no row",
        State::Credited,
        |books, _| (books.output, books.deposit) = (None, None),
        false,
        Some(FindingKind::Unbooked),
    ),
    (
        "no row, below its height",
        State::Credited,
        |books, _| (books.output, books.deposit, books.from) = (None, None, Some(101)),
        false,
        None,
    ),
    (
        "no row, the chain has no start",
        State::Credited,
        |books, _| (books.output, books.deposit, books.from) = (None, None, None),
        false,
        None,
    ),
    (
        "no row, an own address",
        State::Credited,
        |books, _| (books.output, books.deposit, books.is_watched) = (None, None, false),
        false,
        None,
    ),
    (
        "no row, nothing is paid",
        State::Credited,
        |books, paid| (books.output, books.deposit, paid.amount) = (None, None, Amount::ZERO),
        false,
        None,
    ),
    (
        "no row, it failed",
        State::Credited,
        |books, paid| (books.output, books.deposit, paid.is_success) = (None, None, false),
        false,
        None,
    ),
    (
        "no deposit",
        State::Credited,
        |books, _| books.deposit = None,
        false,
        Some(FindingKind::Unbooked),
    ),
    (
        "no deposit, an own address",
        State::Credited,
        |books, _| (books.deposit, books.is_watched) = (None, false),
        false,
        None,
    ),
    (
        "a move of own coin",
        State::Credited,
        |books, _| {
            books.deposit = None;
            books.output.as_mut().unwrap().is_internal = true;
        },
        true,
        None,
    ),
    (
        "said to be a move of own coin",
        State::Credited,
        |books, _| {
            books.deposit = None;
            books.output.as_mut().unwrap().is_internal = true;
        },
        false,
        Some(FindingKind::NotInternal),
    ),
    (
        "another amount",
        State::Credited,
        |_, paid| paid.amount = Amount::from_u64(4),
        false,
        Some(FindingKind::OtherContent),
    ),
    (
        "another block",
        State::Credited,
        |_, paid| paid.at.height = 99,
        false,
        Some(FindingKind::OtherBlock),
    ),
    (
        "twice on the chain",
        State::Credited,
        |books, paid| {
            books.output.as_mut().unwrap().heights.push(110);
            paid.at.height = 110;
        },
        false,
        None,
    ),
    (
        "failed, and credited",
        State::Credited,
        |_, paid| paid.is_success = false,
        false,
        Some(FindingKind::NotSuccessful),
    ),
    (
        "failed, and known so",
        State::Failed,
        |_, paid| paid.is_success = false,
        false,
        None,
    ),
    (
        "said to have failed",
        State::Failed,
        |_, _| {},
        false,
        Some(FindingKind::Unbooked),
    ),
    (
        "said to be orphaned",
        State::Orphaned,
        |_, _| {},
        false,
        Some(FindingKind::Unbooked),
    ),
    (
        "said to be in no block",
        State::Seen,
        |_, _| {},
        false,
        Some(FindingKind::Unbooked),
    ),
    ("waits", State::Confirming, |_, _| {}, false, None),
];

#[test]
fn payments_are_judged() {
    for (name, state, change, is_all_ours, expected) in PAID {
        let (mut booked, mut paid) = (booked(*state), paid());
        change(&mut booked, &mut paid);
        let found = judge_paid(&paid, &booked, *is_all_ours);
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn what_is_long_due_is_overdue() {
    let confirmations = Some(Requirement::Confirmations(6));
    for (name, due, needs, is_held, expected) in [
        ("long due", 105, confirmations, false, true),
        (
            "due for as long as the audit waits",
            114,
            confirmations,
            false,
            true,
        ),
        ("just due", 115, confirmations, false, false),
        ("held", 105, confirmations, true, false),
        ("safe for long", 105, Some(Requirement::Safe), false, true),
        ("just safe", 110, Some(Requirement::Safe), false, false),
        ("just final", 105, Some(Requirement::Finalized), false, false),
    ] {
        let mut deposit = booked(State::Confirming).deposit.unwrap();
        (deposit.due, deposit.needs, deposit.is_held) = (Some(due), needs, is_held);
        assert_eq!(deposit.is_overdue(&REACH), expected, "{name}");
        deposit.state = State::Credited;
        assert!(!deposit.is_overdue(&REACH), "{name}, credited");
    }
    let none = Reach { safe: None, ..REACH };
    let mut deposit = booked(State::Confirming).deposit.unwrap();
    deposit.needs = Some(Requirement::Safe);
    assert!(!deposit.is_overdue(&none));
}

#[test]
fn every_kind_has_a_word_of_its_own() {
    for kind in FindingKind::ALL {
        assert_eq!(FindingKind::from_word(kind.word()), Some(kind));
    }
    assert_eq!(FindingKind::from_word("other"), None);
}
