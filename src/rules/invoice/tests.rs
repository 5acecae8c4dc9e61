//! Tables: what a status is, and what two of them in a row owe.
//!
//! Terms are written `100` or `100-5` (less 5 will do) or `1000-150%` (less 150 hundredths of a percent),
//! `100x50` (taken back at 50); all expire at 1000. Payments are written `60@9`, with `~` those that wait and
//! with `!` those that were met before the invoice's birth. A `.` at the end: its expiry was decided.

use super::*;

const EXPIRES: i64 = 1_000;

fn terms(text: &str) -> Terms {
    let (text, cancelled_at) = match text.split_once('x') {
        Some((text, at)) => (text, Some(at.parse().unwrap())),
        None => (text, None),
    };
    let (amount, tolerated) = text.split_once('-').unwrap_or((text, "0"));
    let base = |text: &str| Amount::from_base_str(text).unwrap();
    let tolerance = match tolerated.strip_suffix('%') {
        Some(percent) => Tolerance {
            percent_hundredths: percent.parse().unwrap(),
            ..Tolerance::default()
        },
        None => Tolerance {
            base: base(tolerated),
            ..Tolerance::default()
        },
    };
    Terms {
        amount: base(amount),
        tolerance,
        expires_at: EXPIRES,
        cancelled_at,
    }
}

/// Payments, and whether the expiry was decided.
fn payments(text: &str) -> (Vec<Payment>, bool) {
    let is_decided = text.ends_with('.');
    let words = text.trim_end_matches('.').split_whitespace();
    let payment = |word: &str| {
        let (amount, at) = word.trim_start_matches(['~', '!']).split_once('@').unwrap();
        Payment {
            amount: Amount::from_base_str(amount).unwrap(),
            paid_at: at.parse().unwrap(),
            is_credited: !word.starts_with('~'),
            is_eligible: !word.starts_with('!'),
        }
    };
    (words.map(payment).collect(), is_decided)
}

fn status_of(on: &str, paid: &str) -> Status {
    let (payments, is_decided) = payments(paid);
    status(&terms(on), &payments, is_decided)
}

/// As text: amount state, time flag, life, paid, pending, strays.
fn told(status: &Status) -> String {
    let (amount, time, life) = (status.amount.word(), status.time.word(), status.life.word());
    format!(
        "{amount} {time} {life} {} {} {}",
        status.paid, status.pending, status.strays
    )
}

/// Name, terms, payments, status.
const STATUSES: &[[&str; 4]] = &[
    ["new", "100", "", "unpaid in_time open 0 0 0"],
    ["seen", "100", "~100@9", "unpaid in_time open 0 100 0"],
    ["one less", "100", "99@9", "partial in_time open 99 0 0"],
    ["exactly", "100", "60@9 40@1000", "paid in_time settled 100 0 0"],
    ["one more", "100", "101@9", "overpaid in_time settled 101 0 0"],
    [
        "within the tolerance",
        "100-5",
        "95@9",
        "paid in_time settled 95 0 0",
    ],
    ["below it", "100-5", "94@9", "partial in_time open 94 0 0"],
    [
        "within the percentage",
        "1000-150%",
        "985@9",
        "paid in_time settled 985 0 0",
    ],
    ["below that", "1000-150%", "984@9", "partial in_time open 984 0 0"],
    [
        "a percentage is rounded down",
        "99-150%",
        "98@9",
        "paid in_time settled 98 0 0",
    ],
    [
        "it is not one of overpaying",
        "100-5",
        "101@9",
        "overpaid in_time settled 101 0 0",
    ],
    ["late", "100", "100@1001", "paid late open 100 0 1"],
    [
        "late and expired",
        "100",
        "100@1001.",
        "paid late expired 100 0 1",
    ],
    [
        "late beside enough",
        "100",
        "100@9 5@1001.",
        "overpaid in_time settled 105 0 1",
    ],
    [
        "the rest late",
        "100",
        "60@9 40@1001.",
        "paid late expired 100 0 2",
    ],
    [
        "late and waiting",
        "100",
        "~100@1001.",
        "unpaid in_time expired 0 100 0",
    ],
    ["expired", "100", ".", "unpaid in_time expired 0 0 0"],
    [
        "expired in part",
        "100",
        "40@9.",
        "partial in_time expired 40 0 1",
    ],
    [
        "what waits keeps it open",
        "100",
        "40@9 ~60@10.",
        "partial in_time open 40 60 0",
    ],
    ["before its birth", "100", "!100@1", "unpaid in_time open 0 0 1"],
    [
        "paid, then taken back",
        "100x50",
        "100@50",
        "paid in_time cancelled 100 0 1",
    ],
    [
        "taken back, then paid",
        "100x50",
        "100@51",
        "unpaid in_time cancelled 0 0 1",
    ],
    [
        "taken back stays so",
        "100x50",
        ".",
        "unpaid in_time cancelled 0 0 0",
    ],
];

#[test]
fn a_status_follows_from_terms_payments_and_decision() {
    for [name, on, paid, expected] in STATUSES {
        assert_eq!(told(&status_of(on, paid)), *expected, "{name}");
        let (mut backwards, is_decided) = payments(paid);
        backwards.reverse();
        let status = status(&terms(on), &backwards, is_decided);
        assert_eq!(told(&status), *expected, "{name}, backwards");
    }
}

#[test]
fn the_moment_of_a_payment_is_the_earlier_of_two() {
    assert_eq!(paid_at(700, None), 700);
    assert_eq!(paid_at(700, Some(600)), 600, "seen late, as after downtime");
    assert_eq!(paid_at(700, Some(900)), 700, "mined long after it was seen");
}

#[test]
fn terms_that_nobody_can_meet_or_everybody_does_are_refused() {
    let cases = [
        ("100", Ok(())),
        ("0", Err(TermsError::NoAmount)),
        ("100-99", Ok(())),
        ("100-100", Err(TermsError::TooTolerant)),
        ("100-9999%", Ok(())),
        ("100-10000%", Err(TermsError::TooTolerant)),
        ("100-1000", Err(TermsError::TooTolerant)),
    ];
    for (text, expected) in cases {
        assert_eq!(terms(text).check(0), expected, "{text}");
    }
    assert_eq!(terms("100").check(EXPIRES), Err(TermsError::ExpiresTooEarly));
    let largest = Terms {
        amount: Amount::from_be_bytes([0xff; 32]),
        ..terms("1-9999%")
    };
    assert!(!largest.required().is_zero() && largest.required() < largest.amount);
}

/// Name, terms and payments before, terms and payments after, what is owed.
type Step = (
    &'static str,
    [&'static str; 2],
    [&'static str; 2],
    &'static [Change],
);

const CHANGES: &[Step] = {
    use Change::*;
    &[
        ("nothing", ["100", ""], ["100", ""], &[]),
        ("seen", ["100", ""], ["100", "~100@9"], &[]),
        ("a part", ["100", ""], ["100", "1@9"], &[PartiallyPaid]),
        ("another", ["100", "1@9"], ["100", "1@9 1@9"], &[PartiallyPaid]),
        ("all", ["100", "~100@9"], ["100", "100@9"], &[Paid, Settled]),
        (
            "more at once",
            ["100", ""],
            ["100", "60@9 50@9"],
            &[Paid, Overpaid, Settled],
        ),
        (
            "more afterwards",
            ["100", "100@9"],
            ["100", "100@9 1@9"],
            &[Overpaid],
        ),
        (
            "more within the tolerance",
            ["100-5", "96@9"],
            ["100-5", "96@9 1@9"],
            &[State],
        ),
        ("gone", ["100", "100@9"], ["100", ""], &[Reversed, Reopened]),
        ("less", ["100", "40@9 30@9"], ["100", "30@9"], &[Reversed]),
        ("another in its place", ["100", "100@9"], ["100", "100@10"], &[]),
        ("over", ["100", ""], ["100", "."], &[Expired]),
        (
            "not over after all",
            ["100", "."],
            ["100", "~100@9."],
            &[Reopened],
        ),
        (
            "paid after all",
            ["100", "."],
            ["100", "100@9."],
            &[Paid, Reopened, Settled],
        ),
        ("late", ["100", "."], ["100", "100@1001."], &[Paid]),
        ("late after all", ["100", "50@1000"], ["100", "50@1001"], &[State]),
        ("taken back", ["100", ""], ["100x50", ""], &[Cancelled]),
        (
            "taken back when over",
            ["100", "."],
            ["100x50", "."],
            &[Cancelled],
        ),
        ("paid after that", ["100x50", ""], ["100x50", "100@51"], &[State]),
    ]
};

#[test]
fn each_change_is_told_once_and_in_order() {
    for (name, before, after, expected) in CHANGES {
        let (before, after) = (status_of(before[0], before[1]), status_of(after[0], after[1]));
        assert_eq!(changes(&before, &after), *expected, "{name}");
        assert_eq!(changes(&after, &after), [], "{name}: told once");
    }
}

#[test]
fn a_decision_stands_while_what_came_in_time_does_not_do() {
    for (paid, expected) in [
        (".", true),
        ("99@9.", true),
        ("~100@9.", false),
        ("100@1001.", true),
    ] {
        assert_eq!(keeps_expiry(&status_of("100", paid)), expected, "{paid}");
    }
    assert!(
        keeps_expiry(&status_of("100x50", "100@9.")),
        "nothing is left to revise"
    );
}

#[test]
fn words_are_read_back() {
    for state in AmountState::ALL {
        assert_eq!(AmountState::from_word(state.word()), Some(*state));
    }
    for flag in TimeFlag::ALL {
        assert_eq!(TimeFlag::from_word(flag.word()), Some(*flag));
    }
    for life in Life::ALL {
        assert_eq!(Life::from_word(life.word()), Some(*life));
    }
    assert_eq!(Life::from_word("paid"), None);
    let words: Vec<&str> = Change::ALL.iter().map(|change| change.word()).collect();
    assert_eq!(
        words,
        [
            "invoice.created",
            "invoice.partially_paid",
            "invoice.paid",
            "invoice.overpaid",
            "invoice.reversed",
            "invoice.settled",
            "invoice.expired",
            "invoice.reopened",
            "invoice.cancelled",
            "invoice.state"
        ]
    );
}
