//! The real binary beside a real EVM node: what is paid, what is not, and what the commands say of it.

use serde_json::{Value, json};

use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;
use crate::common::daemon::{Daemon, Setup};
use crate::common::evm::Splitter;

/// C03's addresses.
const E1: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
const E2: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";

/// A chain of the config with its coin and these tokens.
fn chain(alias: &str, node: &AnvilNode, tokens: &[(&Token, &str, u8)]) -> String {
    let token = |(token, symbol, decimals): &(&Token, &str, u8)| {
        format!(
            "[[evm.token]]\ncontract = \"{}\"\nsymbol = \"{symbol}\"\ndecimals = {decimals}\n\
             policy = [ {{ confirmations = 6 }} ]\n",
            token.address.to_lowercase()
        )
    };
    let tokens: String = tokens.iter().map(token).collect();
    format!(
        "[[evm]]\nalias = \"{alias}\"\nchain_id = {}\ninstance = \"test\"\npoll_ms = 20\npending_ms = 50\n\
         [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ {{ confirmations = 6 }} ]\n{tokens}",
        node.chain_id(),
        node.url()
    )
}

fn watch(daemon: &Daemon, chain: &str, address: &str) {
    daemon.json(&["watch", "add", address, "--chain", chain, "--merchant", "shop"]);
}

#[track_caller]
fn wait_following(daemon: &Daemon, alias: &str, height: u64) {
    daemon.wait_for("the chain is followed", &["chain", "status"], |status| {
        let mut chains = status["chains"].as_array()?.iter();
        let chain = chains.find(|chain| chain["chain"] == json!(alias))?;
        (chain["state"] == "following" && chain["height"].as_u64()? >= height).then_some(())
    });
}

/// The deposits, once there are so many credited ones.
#[track_caller]
fn wait_credited(daemon: &Daemon, count: usize) -> Vec<Value> {
    daemon.wait_for("payments are credited", &["deposits", "list"], |answer| {
        let rows = answer["deposits"].as_array()?;
        let credited = rows.iter().filter(|row| row["state"] == "credited").count();
        (credited == count).then(|| rows.clone())
    })
}

#[test]
fn c18_coin_inner_coin_and_tokens_of_any_decimals_are_credited_once() {
    let node = AnvilNode::start(31_337);
    let payer = node.account(0);
    let decimals = [("T0", 0, 3), ("T6", 6, 10_500_000), ("T8", 8, 1_050_000_000)];
    let tokens: Vec<(Token, &str, u8, u128)> = decimals
        .iter()
        .map(|(symbol, decimals, amount)| {
            let token = Token::deploy(&node, symbol, *decimals);
            (token, *symbol, *decimals, *amount)
        })
        .collect();
    for (token, ..) in &tokens {
        token.mint(&node, &payer, u128::from(u64::MAX));
    }
    let splitter = Splitter::deploy(&node);
    node.mine(1);
    let listed: Vec<(&Token, &str, u8)> = tokens
        .iter()
        .map(|(token, symbol, decimals, _)| (token, *symbol, *decimals))
        .collect();
    let mut daemon = Daemon::start(&Setup::for_evm(chain("dev", &node, &listed)));
    wait_following(&daemon, "dev", node.height());
    watch(&daemon, "dev", E1);
    // The node says addresses in lower case; this rule came in upper case.
    watch(&daemon, "dev", &E2.to_uppercase().replace("0X", "0x"));
    let inner = splitter.split(&node, &payer, &[(E1, 7), (E2, 8)], 15);
    let mut sent = vec![node.invoke(&payer, E1, "0x", 1_500_000_000_000_000_000)];
    for (token, _, _, amount) in &tokens {
        sent.push(token.transfer(&node, &payer, E1, *amount));
    }
    node.mine(6);
    let rows = wait_credited(&daemon, 2 + sent.len());
    let of = |txid: &str| -> Vec<(&str, &str, &str)> {
        let mut rows: Vec<_> = rows.iter().filter(|row| row["txid"] == json!(txid)).collect();
        rows.sort_by_key(|row| row["vout"].as_u64());
        let text = |row: &'_ Value, key: &str| row[key].as_str().unwrap().to_owned().leak() as &str;
        rows.into_iter()
            .map(|row| (text(row, "position"), text(row, "amount"), text(row, "symbol")))
            .collect()
    };
    let (seven, eight) = ("0.000000000000000007", "0.000000000000000008");
    assert_eq!(
        of(&inner),
        [("inner call 0", seven, "ETH"), ("inner call 1", eight, "ETH")]
    );
    assert_eq!(of(&sent[0]), [("native", "1.5", "ETH")]);
    assert_eq!(of(&sent[1]), [("log 0", "3", "T0")]);
    assert_eq!(of(&sent[2]), [("log 0", "10.5", "T6")]);
    assert_eq!(of(&sent[3]), [("log 0", "10.5", "T8")]);
    daemon.stop();
    daemon.start_again();
    node.mine(1);
    wait_following(&daemon, "dev", node.height());
    assert_eq!(wait_credited(&daemon, 2 + sent.len()).len(), 2 + sent.len());
    let checked = daemon.cli(&["check", "--json"]);
    let answer: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{answer:#}");
    let verdicts = |name: &str| -> Vec<String> {
        let lines = answer["lines"].as_array().unwrap().iter();
        let named = lines.filter(|line| line["name"] == json!(name));
        named
            .map(|line| line["verdict"].as_str().unwrap().to_owned())
            .collect()
    };
    for name in ["node", "network", "sync", "logs", "traces", "pending", "inner"] {
        assert_eq!(verdicts(name), ["good"], "{name}: {answer:#}");
    }
    assert_eq!(verdicts("token"), ["good"; 3], "{answer:#}");
    daemon.stop();
}

#[test]
fn c16_worthless_token_with_the_right_name_is_nothing_until_it_is_listed_and_then_only_what_comes() {
    let node = AnvilNode::start(31_337);
    let payer = node.account(0);
    let (real, fake) = (Token::deploy(&node, "TUSD", 6), Token::deploy(&node, "TUSD", 6));
    fake.mint(&node, &payer, 9_000_000_000);
    // Another chain, where somebody else's contract has the address of the real one.
    let other = AnvilNode::start(31_338);
    let twin = Token::deploy(&other, "TUSD", 6);
    assert_eq!(twin.address, real.address);
    twin.mint(&other, &other.account(0), 9_000_000_000);
    node.mine(1);
    other.mine(1);
    let with = |listed: &[(&Token, &str, u8)]| {
        Setup::for_evm(format!(
            "{}{}",
            chain("dev", &node, listed),
            chain("other", &other, &[])
        ))
    };
    let mut daemon = Daemon::start(&with(&[(&real, "TUSD", 6)]));
    wait_following(&daemon, "dev", node.height());
    wait_following(&daemon, "other", other.height());
    watch(&daemon, "dev", E1);
    watch(&daemon, "other", E1);
    let from = node.height();
    let worthless = fake.transfer(&node, &payer, E1, 1_000_000_000);
    twin.transfer(&other, &other.account(0), E1, 1_000_000_000);
    node.mine(7);
    other.mine(7);
    wait_following(&daemon, "dev", node.height());
    wait_following(&daemon, "other", other.height());
    assert_eq!(daemon.json(&["deposits", "list"])["deposits"], json!([]));

    // Listed later, under a name of its own: the past stays the past.
    daemon.stop();
    daemon.write_config(&with(&[(&real, "TUSD", 6), (&fake, "TEMU", 6)]));
    daemon.start_again();
    node.mine(1);
    wait_following(&daemon, "dev", node.height());
    let later = fake.transfer(&node, &payer, E1, 5);
    node.mine(6);
    let rows = wait_credited(&daemon, 1);
    assert_eq!((rows.len(), &rows[0]["txid"]), (1, &json!(later)));

    // Only an operator asks for it.
    let from = from.to_string();
    let rescan = [
        "rescan",
        "--chain",
        "dev",
        "--from",
        &from,
        "--backfill",
        "TEMU",
        "--reason",
        "asked for",
        "--apply",
    ];
    assert_eq!(daemon.json(&rescan)["outcome"], json!("done"));
    let rows = wait_credited(&daemon, 2);
    assert!(rows.iter().any(|row| row["txid"] == json!(worthless)), "{rows:?}");
    daemon.stop();
}
