use super::*;
use crate::sandbox::Trouble;
use proptest::option::of as maybe;
use proptest::prelude::*;

#[test]
fn scenario_faults_name_their_line() {
    let text = "\
# a payment
btc deposit order-1 0.29 as first   # named
wiat 2s
btc mine one
btc deposit order-1
evm deposit 0x5aAe 5 TUSD as a/b
btc replace first with what
btc replace first to
btc replace first to a to b
btc reorg 2 keep
btc node asleep
btc node limit 3
evm tags
btc fly
pause now
evm
doge mine 1
";
    let faults: Vec<String> = parse(text).unwrap_err().iter().map(Fault::to_string).collect();
    let verbs = "deposit, double-spend, replace, reorg, evict, resend, fail, lag, mine, tags, node";
    let expected = format!(
        "\
line 3: \"wiat\" is no chain: a line begins with btc, evm, wait or pause
line 4: \"one\" is no number of blocks: take 1 to 10000
line 5: write `deposit TO AMOUNT [TOKEN] [as NAME]`
line 6: \"a/b\" is no name: take up to 24 letters, digits, dots, dashes and underlines, and not `all`
line 7: \"with\" is not understood here: to, amount, as are
line 8: `to` of what?
line 9: `to` is there twice
line 10: write `reorg DEPTH [keep TX... | keep all]`
line 11: \"asleep\" is no trouble of a node: take down, hang, limit, login, warming or up
line 12: \"3\" is no time: write 250ms, 2s or 1m
line 13: write `tags [safe PLACE] [finalized PLACE]`
line 14: \"fly\" is no step: take {verbs}
line 15: `pause` stands alone
line 16: evm what? take {verbs}
line 17: \"doge\" is no chain: a line begins with btc, evm, wait or pause"
    );
    assert_eq!(faults.join("\n"), expected);
}

#[test]
fn a_whole_scenario_is_read_as_it_is_meant() {
    let text = "\
btc deposit order-1 0.29 as first
btc mine 1

wait 2s
btc double-spend first to elsewhere
evm deposit 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed 5 TUSD as pay
evm fail pay
evm node limit 3s
btc reorg 2 keep first second
evm tags finalized none safe @120
pause
";
    let lines = parse(text).unwrap();
    let shown: Vec<String> = lines
        .iter()
        .map(|numbered| format!("{} {}", numbered.number, numbered.line))
        .collect();
    let expected = [
        "1 btc deposit order-1 0.29 as first",
        "2 btc mine 1",
        "4 wait 2000ms",
        "5 btc double-spend first to elsewhere",
        "6 evm deposit 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed 5 TUSD as pay",
        "7 evm fail pay",
        "8 evm node limit 3000ms",
        "9 btc reorg 2 keep first second",
        "10 evm tags safe @120 finalized none",
        "11 pause",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_scenario_has_an_end() {
    let most = "btc mine 1\n".repeat(STEPS_MAX);
    assert_eq!(parse(&most).unwrap().len(), STEPS_MAX);
    let faults = parse(&format!("{most}\n# and\nbtc mine 1\nbtc mine 1")).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].to_string(), "line 10003: more than 10000 steps");
}

/// No word of the grammar's own: those cannot be told from what they stand before.
fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9._-]{0,20}".prop_filter("a word of the grammar, or an address", |word| {
        let own = ["as", "to", "amount", "keep", "safe", "finalized", "all"];
        is_word(word) && !own.contains(&word.as_str())
    })
}

fn rivals() -> impl Strategy<Value = Rival> {
    let parts = (word(), maybe(word()), maybe(word()), maybe(word()));
    parts.prop_map(|(tx, to, amount, name)| Rival { tx, to, amount, name })
}

fn steps() -> impl Strategy<Value = Step> {
    let of = || word().prop_map(|tx| OfTx { tx });
    let blocks = |least: u32| (least..=BLOCKS_MAX).prop_map(|blocks| Blocks { blocks });
    let deposit = (word(), word(), maybe(word()), maybe(word())).prop_map(|(to, amount, token, name)| {
        Step::Deposit(Deposit {
            to,
            amount,
            token,
            name,
        })
    });
    let reorg = (1..=BLOCKS_MAX, proptest::collection::vec(word(), 0..4))
        .prop_map(|(depth, keep)| Step::Reorg(Reorg { depth, keep }));
    let tags = (maybe(word()), word()).prop_map(|(safe, finalized)| {
        let finalized = Some(finalized);
        Step::Tags(Tags { safe, finalized })
    });
    let words: Vec<&str> = Trouble::ALL.iter().map(|trouble| trouble.word()).collect();
    let node = (proptest::sample::select(words), maybe(0..=SPAN_MS_MAX)).prop_map(|(trouble, for_ms)| {
        let trouble = trouble.to_owned();
        Step::Node(NodeState { trouble, for_ms })
    });
    prop_oneof![
        deposit,
        rivals().prop_map(Step::DoubleSpend),
        rivals().prop_map(Step::Replace),
        reorg,
        of().prop_map(Step::Evict),
        of().prop_map(Step::Resend),
        of().prop_map(Step::Fail),
        blocks(0).prop_map(Step::Lag),
        blocks(1).prop_map(Step::Mine),
        tags,
        node,
    ]
}

fn any_line() -> impl Strategy<Value = Line> {
    prop_oneof![
        (0..=SPAN_MS_MAX).prop_map(|ms| Line::Wait(Duration::from_millis(ms))),
        Just(Line::Pause),
        (proptest::sample::select(&On::ALL[..]), steps()).prop_map(|(on, step)| Line::Step(on, step)),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(lines in proptest::collection::vec(any_line(), 0..20)) {
        let text: Vec<String> = lines.iter().map(|line| format!("{line}   # and why")).collect();
        let read: Vec<Line> = parse(&text.join("\n")).unwrap().into_iter().map(|read| read.line).collect();
        prop_assert_eq!(read, lines);
    }

    #[test]
    fn a_request_carries_the_whole_step(step in steps()) {
        let body = step.body().to_string();
        prop_assert_eq!(Step::read(step.verb(), body.as_bytes()).unwrap(), step);
    }

    #[test]
    fn any_text_is_read_or_has_faults_on_its_lines(text in "[a-z0-9 #\\n\\t\u{1f4b0}.@-]{0,200}") {
        if let Err(faults) = parse(&text) {
            prop_assert!(faults.iter().all(|fault| (1..=text.lines().count()).contains(&fault.number)));
        }
    }
}

fn foreseen(text: &str, names: &[(&str, On)]) -> Vec<String> {
    let names = names.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
    let faults = read(text, names).err().unwrap_or_default();
    faults
        .iter()
        .map(|fault| {
            fault
                .to_string()
                .split(": ")
                .take(2)
                .collect::<Vec<_>>()
                .join(": ")
        })
        .collect()
}

#[test]
fn what_a_step_would_be_refused_for_is_told_before_the_first_one_is_done() {
    let text = "\
btc deposit order-1 0.29 as first
btc deposit order-1 nothing as second
btc deposit order-1 0.123456789
btc deposit order-1 5 TUSD
btc deposit 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed 1
evm deposit order-1 5 DOGE
evm deposit bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080 5
btc fail first
btc tags safe 5
evm tags safe +5
evm tags safe @
btc replace fisrt amount 1
btc evict second
evm resend first
btc reorg 2 keep all third
btc double-spend before to thief
";
    let expected = [
        "line 2: \"nothing\" is no amount of BTC",
        "line 3: \"0.123456789\" is no amount of BTC",
        "line 4: there is no TUSD on this chain",
        "line 5: not a regtest address",
        "line 6: there is no token DOGE",
        "line 7: \"bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080\" is no address of this chain",
        "line 8: a Bitcoin transaction cannot fail",
        "line 9: Bitcoin has no tags",
        "line 10: \"+5\" is no place of a tag",
        "line 11: \"@\" is no place of a tag",
        "line 12: no transaction is called \"fisrt\" here",
        "line 14: first is a transaction of btc",
        "line 15: no transaction is called \"third\" here",
    ];
    assert_eq!(foreseen(text, &[("before", On::Btc)]), expected);
    // While it pauses or waits others may name something.
    assert_eq!(
        foreseen("pause\nbtc replace other amount 1", &[]),
        [] as [&str; 0]
    );
    let hash = "ab".repeat(32);
    assert_eq!(
        foreseen(&format!("btc evict {hash}\nevm evict 0x{hash}"), &[]),
        [] as [&str; 0]
    );
}

#[test]
fn a_line_that_cannot_be_read_keeps_no_fault_of_another_one_back_and_makes_none() {
    let text = "\
btc deposit order-1 nothing as first
btc mine one
evm deposit order-1 1 TUSD twice as pay
evm fail pay
evm evict first
";
    let expected = [
        "line 1: \"nothing\" is no amount of BTC",
        "line 2: \"one\" is no number of blocks",
        "line 3: \"twice\" is not understood here",
        "line 5: first is a transaction of btc",
    ];
    assert_eq!(foreseen(text, &[]), expected);
    // It may be a pause once it is mended.
    let text = "pause now\nbtc evict other\n";
    assert_eq!(foreseen(text, &[]), ["line 1: `pause` stands alone"]);
}
