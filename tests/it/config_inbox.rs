//! `[[inbox]]` of the config: what it says is what is done, and every fault is named.

use crate::config::SMALL;
use creditd::config::{Config, ConfigError, InboxEffect, InboxVerifier};
use creditd::webhook::{Preset, TimeField};
use std::path::Path;
use std::time::Duration;

fn parse(inbox: &str) -> Result<Config, ConfigError> {
    let text = format!("{SMALL}\n[[inbox]]\n{inbox}");
    Config::parse(Path::new("/etc/creditd/creditd.toml"), &text)
}

#[track_caller]
fn faults(inbox: &str) -> Vec<String> {
    match parse(inbox) {
        Err(ConfigError::Faulty { faults, .. }) => faults
            .iter()
            .map(|fault| format!("{}: {}", fault.path, fault.text))
            .collect(),
        other => panic!("no faults found: {other:?}"),
    }
}

const CREDIT: &str = r#"
source = "gateway"
verifier = "btcpay"
secret_files = ["secret"]
effect = "credit.external"
merchant = "shop"
[inbox.credit]
payment = "/payment/id"
amount = "/payment/value"
amount_in = "units"
asset = "BTC"
decimals = 8
"#;

#[test]
fn a_source_is_read_with_its_defaults() {
    let config = parse(CREDIT).unwrap();
    let source = &config.inbox[0];
    assert_eq!(source.source, "gateway");
    assert_eq!(source.verifier, InboxVerifier::Hmac(Preset::BtcPay.settings()));
    assert_eq!(source.tolerance, Duration::from_secs(300));
    assert_eq!(source.keep, Duration::from_secs(30 * 86_400));
    let InboxEffect::Credit(rule) = &source.effect else {
        panic!("{source:?}");
    };
    assert_eq!(
        (rule.merchant.as_str(), rule.is_whole_units, rule.decimals),
        ("shop", true, 8)
    );

    for preset in Preset::ALL {
        let named = CREDIT.replace("\"btcpay\"", &format!("{:?}", preset.name()));
        let config = parse(&named).unwrap();
        assert_eq!(config.inbox[0].verifier, InboxVerifier::Hmac(preset.settings()));
    }
    let hint = "source = \"w\"\nverifier = \"standard\"\nsecret_files = [\"a\", \"b\"]\n\
                effect = \"deposit.hint\"\nchain = \"btc\"";
    let config = parse(hint).unwrap();
    assert_eq!(config.inbox[0].verifier, InboxVerifier::Standard);
    assert_eq!(config.inbox[0].secrets.len(), 2);
    let InboxEffect::Hint { chain, .. } = &config.inbox[0].effect else {
        panic!("{config:?}");
    };
    assert_eq!(*chain, config.bitcoin[0].chain);
}

#[test]
fn settings_of_an_hmac_are_all_in_reach() {
    let text = r#"
source = "slack"
verifier = "hmac"
secret_files = ["secret"]
effect = "forward"
merchant = "shop"
[inbox.hmac]
header = "X-Slack-Signature"
prefix = "v0="
signed = "v0:{time}:{body}"
time_header = "X-Slack-Request-Timestamp"
event_id = ["/event_id"]
"#;
    let config = parse(text).unwrap();
    let InboxVerifier::Hmac(settings) = &config.inbox[0].verifier else {
        panic!("{config:?}");
    };
    let time = TimeField::Header("X-Slack-Request-Timestamp".to_owned());
    assert_eq!(settings.time, Some(time));
    assert_eq!(settings.identity.event_id.len(), 1);
}

#[test]
fn what_is_wrong_is_named() {
    let without = |key: &str| -> String {
        CREDIT
            .lines()
            .filter(|line| !line.starts_with(key))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    for key in ["source", "verifier", "secret_files", "effect", "merchant"] {
        let found = faults(&without(key));
        assert!(
            found[0].starts_with(&format!("inbox[0].{key}: missing")),
            "{found:?}"
        );
    }
    for key in ["payment", "amount =", "amount_in", "asset", "decimals"] {
        let found = faults(&without(key));
        let key = key.trim_end_matches(" =");
        assert!(
            found[0].starts_with(&format!("inbox[0].credit.{key}: missing")),
            "{found:?}"
        );
    }
    for (from, to, expected) in [
        ("\"btcpay\"", "\"hmac\"", "inbox[0].hmac: missing"),
        ("\"btcpay\"", "\"paypal\"", "inbox[0].verifier: found"),
        ("[\"secret\"]", "[]", "inbox[0].secret_files: found"),
        (
            "\"credit.external\"",
            "\"forward\"",
            "inbox[0].credit: is not for",
        ),
        (
            "\"credit.external\"",
            "\"deposit.hint\"",
            "inbox[0].merchant: is not for",
        ),
        (
            "\"/payment/id\"",
            "\"payment.id\"",
            "inbox[0].credit.payment: found",
        ),
        ("\"units\"", "\"cents\"", "inbox[0].credit.amount_in: found"),
        (
            "merchant =",
            "chain = \"btc\"\nmerchant =",
            "inbox[0].chain: is not for",
        ),
        (
            "merchant =",
            "txids = \"x\"\nmerchant =",
            "inbox[0].txids: unknown key",
        ),
        (
            "merchant =",
            "[inbox.hmac]\nheader = \"X\"\n[inbox.credit2]\nmerchant =",
            "inbox[0]",
        ),
    ] {
        let found = faults(&CREDIT.replacen(from, to, 1));
        assert!(
            found.iter().any(|fault| fault.starts_with(expected)),
            "{to}: {found:?}"
        );
    }
}

#[test]
fn what_contradicts_itself_is_named() {
    let twice = format!("{CREDIT}[[inbox]]{CREDIT}");
    assert_eq!(faults(&twice), ["inbox[1].source: is there twice"]);
    let unsigned = "source = \"a\"\nverifier = \"hmac\"\nsecret_files = [\"s\"]\neffect = \"forward\"\n\
                    merchant = \"shop\"\n[inbox.hmac]\nheader = \"X\"\ntime_header = \"T\"";
    assert!(faults(unsigned)[0].starts_with("inbox[0].hmac.signed: the time of sending is not signed"));
    let nowhere = "source = \"w\"\nverifier = \"standard\"\nsecret_files = [\"a\"]\n\
                   effect = \"deposit.hint\"\nchain = \"ltc\"";
    assert!(faults(nowhere)[0].starts_with("inbox[0].chain: found"));
    let unheard = faults(&format!("{CREDIT}[api]\nlisten = \"off\"\n"));
    assert_eq!(unheard.len(), 1, "{unheard:?}");
    assert!(
        unheard[0].starts_with("inbox: found while [api] listen is off"),
        "{unheard:?}"
    );
}
