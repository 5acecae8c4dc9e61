//! The config file: its documentation is true, and every fault is reported with its place.

use creditd::config::{Config, ConfigError, DEFAULT_TOML, InternalRule, RpcAuth, Start};
use creditd::egress::Verdict;
use creditd::rules::Amount;
use std::path::Path;
use std::time::Duration;

/// The least that a config must say.
pub(super) const SMALL: &str = r#"
[[bitcoin]]
alias = "btc"
network = "regtest"
instance = "shop-test"
rpc_url = "http://127.0.0.1:18443"
cookie_file = "cookie"
[[bitcoin.policy]]
confirmations = 3
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("/etc/creditd/creditd.toml"), text)
}

#[track_caller]
fn faults(text: &str) -> Vec<String> {
    match parse(text) {
        Err(ConfigError::Faulty { faults, .. }) => faults.iter().map(ToString::to_string).collect(),
        other => panic!("no faults found: {other:?}"),
    }
}

#[test]
fn the_default_file_is_a_config_and_its_defaults_are_those_of_the_code() {
    let as_written = parse(DEFAULT_TOML).unwrap();
    // `#key = value` shows a default; `#  key = value` and `# text` are prose and examples.
    let mut shown = 0;
    let with_defaults: String = DEFAULT_TOML
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|letter: char| letter.is_ascii_lowercase()) => {
                shown += 1;
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(shown, 30, "a default was added or lost: is it documented?");
    let with_defaults = Config {
        // It says more, and means the same.
        mark: as_written.mark.clone(),
        ..parse(&with_defaults).unwrap()
    };
    assert_eq!(with_defaults, as_written);
}

#[test]
fn the_examples_of_the_default_file_are_good() {
    let examples: String = DEFAULT_TOML
        .lines()
        .filter_map(|line| line.strip_prefix("#   "))
        .filter(|line| {
            line.starts_with("[[merchant]]") || line.starts_with("slug") || line.starts_with("internal")
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let config = parse(&format!("{DEFAULT_TOML}\n{examples}")).unwrap();
    assert_eq!(config.merchants.len(), 1);
    assert_eq!(
        config.internal_rule("shop"),
        config.internal_rule("a merchant that is not named")
    );
    let tiers =
        "[[bitcoin.policy]]\nbelow = \"0.05\"\nconfirmations = 2\n[[bitcoin.policy]]\nconfirmations = 6\n";
    let commented: String = tiers.lines().map(|line| format!("#   {line}\n")).collect();
    assert!(DEFAULT_TOML.contains(&commented), "the example with two tiers");
}

#[test]
fn a_small_config_means_what_it_says() {
    let config = parse(SMALL).unwrap();
    assert_eq!(config.database, Path::new("/etc/creditd/creditd.db"));
    let chain = config.chain("btc").unwrap();
    assert_eq!(
        chain.chain.as_str(),
        "bip122:0f9188f13cb7b2c71f2a335e3a4fc328@shop-test"
    );
    assert_eq!((chain.start, chain.tip_age_max), (Start::Tip, None));
    assert_eq!(
        chain
            .policy
            .required(Amount::from_u64(1))
            .confirmations()
            .unwrap(),
        3
    );
    let RpcAuth::Cookie(file) = &chain.auth else {
        panic!("{:?}", chain.auth);
    };
    assert_eq!(file.path().unwrap(), Path::new("/etc/creditd/cookie"));
    assert_eq!(config.internal_rule("anyone"), InternalRule::Ignore);
}

#[test]
fn the_audit_and_its_proofs_are_as_said() {
    let config = parse(SMALL).unwrap();
    let audit = &config.audit;
    assert_eq!(audit.every, Some(Duration::from_secs(86_400)));
    assert_eq!(audit.longest, Duration::from_secs(1_800));
    assert_eq!((audit.blocks_per_second, audit.age_blocks), (2, 6));
    assert!(!audit.has_unspent && config.is_evidence_stored);
    let said =
        "[audit]\nevery_hours = 0\nminutes = 1\nage_blocks = 0\nunspent = true\n[evidence]\nstore = false\n";
    let config = parse(&format!("{SMALL}{said}")).unwrap();
    assert_eq!((config.audit.every, config.audit.age_blocks), (None, 0));
    assert!(config.audit.has_unspent && !config.is_evidence_stored);
    let wrong = "[audit]\nminutes = 0\nblocks_per_second = 1001\n[evidence]\nstore = 1\n";
    assert_eq!(faults(&format!("{SMALL}{wrong}")).len(), 3);
}

#[test]
fn callbacks_go_to_public_addresses_unless_ranges_are_listed() {
    let callbacks = parse(SMALL).unwrap().callbacks;
    assert!(callbacks.policy.is_public_only());
    assert_eq!(
        (callbacks.attempt_timeout.as_secs(), callbacks.concurrency),
        (15, 256)
    );
    let listed = "[callbacks]\nallow_ranges = [\"10.1.0.0/16\", \"fd00:1::/32\"]\nca_file = \"own.pem\"\n";
    let callbacks = parse(&format!("{SMALL}{listed}")).unwrap().callbacks;
    assert_eq!(
        callbacks.policy.judge("10.1.2.3".parse().unwrap()),
        Verdict::Listed
    );
    assert!(matches!(
        callbacks.policy.judge("10.2.0.1".parse().unwrap()),
        Verdict::Denied(_)
    ));
    assert_eq!(callbacks.ca_file.unwrap(), Path::new("/etc/creditd/own.pem"));
}

#[test]
fn ranges_that_would_open_too_much_are_faults() {
    let cases = [
        ("\"0.0.0.0/0\"", "never called"),
        ("\"169.254.169.254/32\"", "never called"),
        ("\"::/0\"", "never called"),
        ("\"fe80::/64\"", "never called"),
        ("\"::ffff:10.0.0.0/104\"", "never called"),
        ("\"10.1.2.3/16\"", "not a range"),
        ("\"10.0.0.0/33\"", "not a range"),
        ("\"10.0.0.0/+8\"", "not a range"),
        ("\"10.0.0.0\"", "not a range"),
        ("\"localhost\"", "not a range"),
        ("7", "a list of ranges"),
    ];
    for (value, expected) in cases {
        let faults = faults(&format!("{SMALL}[callbacks]\nallow_ranges = [{value}]\n"));
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(
            faults[0].contains("callbacks.allow_ranges: ") && faults[0].contains(expected),
            "{value}: {faults:?}"
        );
    }
}

#[test]
fn tiers_are_chosen_by_the_sum() {
    let tiers = "below = \"0.05\"\nconfirmations = 2\n[[bitcoin.policy]]\nconfirmations = 6";
    let config = parse(&SMALL.replace("confirmations = 3", tiers)).unwrap();
    let policy = &config.bitcoin[0].policy;
    let needed = |sat| policy.required(Amount::from_u64(sat)).confirmations().unwrap();
    assert_eq!((needed(4_999_999), needed(5_000_000)), (2, 6));
}

#[test]
fn main_has_its_checkpoint_and_takes_more() {
    let config = parse(DEFAULT_TOML).unwrap();
    assert_eq!(config.bitcoin[0].checkpoints[0].height, 478_559);
    assert_eq!(config.bitcoin[0].tip_age_max.unwrap().as_secs(), 10_800);
    let mine = format!(
        "checkpoints = [{{ height = 961700, hash = \"{}\" }}]",
        "00ab".repeat(16)
    );
    let config = parse(&DEFAULT_TOML.replace("#checkpoints = []", &mine)).unwrap();
    assert_eq!(config.bitcoin[0].checkpoints.len(), 2);
    let against = format!(
        "checkpoints = [{{ height = 478559, hash = \"{}\" }}]",
        "00ab".repeat(16)
    );
    let faults = faults(&DEFAULT_TOML.replace("#checkpoints = []", &against));
    assert!(
        faults[0].contains("contradicts 00000000000000000019f112"),
        "{faults:?}"
    );
}

/// One row per fault: what is replaced in [`SMALL`], by what, and what is then said.
const FAULTS: &[(&str, &str, &str)] = &[
    // C06 (c): a chain without a confirmation count.
    (
        "[[bitcoin.policy]]\nconfirmations = 3",
        "",
        "line 2: bitcoin[0].policy: missing, allowed: at least one [[bitcoin.policy]] with confirmations; \
             there is no default",
    ),
    (
        "confirmations = 3",
        "",
        "line 8: bitcoin[0].policy[0].confirmations: missing, allowed: a whole number from 1 to 144 \
         (reorg_window)",
    ),
    (
        "confirmations = 3",
        "confirmations = 0",
        "line 9: bitcoin[0].policy[0].confirmations: found 0, allowed: a whole number from 1 to 144 \
         (reorg_window)",
    ),
    (
        "confirmations = 3",
        "confirmations = -1",
        "line 9: bitcoin[0].policy[0].confirmations: found -1, allowed: a whole number from 1 to 144 \
         (reorg_window)",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\nbelow = 0.05",
        "line 10: bitcoin[0].policy[0].below: found 0.05 (not a whole number), allowed: a text of whole \
         units \
             such as \"0.05\"",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\nbelow = \"0.000000001\"",
        "line 10: bitcoin[0].policy[0].below: found \"0.000000001\", allowed: a text of whole units such as \
             \"0.05\"",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\nbelow = \"0.05\"",
        "line 10: bitcoin[0].policy[0].below: the last tier must have no `below`: larger sums would have \
         no tier",
    ),
    (
        "confirmations = 3",
        "confirmations = 6\nbelow = \"0.05\"\n[[bitcoin.policy]]\nconfirmations = 2",
        "line 12: bitcoin[0].policy[1].confirmations: a larger sum cannot need less than a smaller one",
    ),
    (
        "network = \"regtest\"",
        "network = \"regtst\"",
        "line 4: bitcoin[0].network: found \"regtst\", allowed: \"main\", \"testnet4\", \"signet\" or \
         \"regtest\"",
    ),
    (
        "instance = \"shop-test\"",
        "",
        "line 2: bitcoin[0].instance: missing, allowed: 1 to 32 of a-z, 0-9 and -, such as \"shop-1\"; \
             all regtests look alike, so yours needs a name for ever",
    ),
    (
        "instance = \"shop-test\"",
        "instance = \"Shop Test\"",
        "line 5: bitcoin[0].instance: found \"Shop Test\", allowed: 1 to 32 of a-z, 0-9 and -, such as \
         \"shop-1\"",
    ),
    (
        "network = \"regtest\"",
        "network = \"main\"",
        "line 5: bitcoin[0].instance: not allowed on main: there is only one",
    ),
    (
        "rpc_url = \"http://127.0.0.1:18443\"",
        "rpc_url = \"https://127.0.0.1:18443\"",
        "line 6: bitcoin[0].rpc_url: found \"https://127.0.0.1:18443\", allowed: http://HOST:PORT without \
         user, \
             password, path or query",
    ),
    (
        "rpc_url = \"http://127.0.0.1:18443\"",
        "rpc_url = \"http://bob:hunter2@127.0.0.1:18443\"",
        "line 6: bitcoin[0].rpc_url: found a URL with a user name or password (not shown), allowed: \
             http://HOST:PORT without user, password, path or query",
    ),
    (
        "cookie_file = \"cookie\"",
        "",
        "line 2: bitcoin[0].cookie_file: missing, allowed: a path or \"credential:NAME\"; or rpc_user with \
             rpc_password_file",
    ),
    (
        "cookie_file = \"cookie\"",
        "rpc_user = \"creditd\"",
        "line 2: bitcoin[0].rpc_password_file: missing beside rpc_user, allowed: a path or \
         \"credential:NAME\"",
    ),
    (
        "cookie_file = \"cookie\"",
        "cookie_file = \"credential:../x\"",
        "line 7: bitcoin[0].cookie_file: found \"credential:../x\", allowed: a path or \"credential:NAME\"",
    ),
    (
        "cookie_file = \"cookie\"",
        "cookie_file = \"cookie\"\nrpc_password = \"hunter2\"",
        "line 8: bitcoin[0].rpc_password: unknown key, did you mean rpc_password_file?",
    ),
    (
        "cookie_file = \"cookie\"",
        "cookie_file = \"cookie\"\npol_ms = 500",
        "line 8: bitcoin[0].pol_ms: unknown key, did you mean poll_ms?",
    ),
    (
        "cookie_file = \"cookie\"",
        "cookie_file = \"cookie\"\npoll_ms = 0",
        "line 8: bitcoin[0].poll_ms: found 0, allowed: a whole number from 20 to 60000",
    ),
    (
        "cookie_file = \"cookie\"",
        "cookie_file = \"cookie\"\nstart = \"now\"",
        "line 8: bitcoin[0].start: found \"now\", allowed: \"tip\" or a height",
    ),
    (
        "\n[[bitcoin]]",
        "databse = \"x\"\n[[bitcoin]]",
        "line 1: databse: unknown key, did you mean database?",
    ),
    (
        "\n[[bitcoin]]",
        "\"a\\n\\u001b[2J\" = 1\n[[bitcoin]]",
        "line 1: a\\n\\u{1b}[2J: unknown key, allowed here: database, log, callbacks, ops, backup, audit, \
         evidence, api, bitcoin, evm, addresses, merchant, inbox",
    ),
    (
        "\n[[bitcoin]]",
        "[log]\nlevel = \"loud\"\n[[bitcoin]]",
        "line 2: log.level: found \"loud\", allowed: \"error\", \"warn\", \"info\", \"debug\" or \"trace\"",
    ),
];

#[test]
fn each_fault_names_key_finding_and_remedy() {
    for (from, to, expected) in FAULTS {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL, "{from:?} is not in the config");
        assert_eq!(faults(&text), [*expected], "{from:?} -> {to:?}");
    }
}

#[test]
fn rpc_urls_are_a_host_and_a_port() {
    for good in [
        "http://127.0.0.1:8332",
        "http://node-1.lan:8332/",
        "http://[::1]:18443",
        "http://a_b:1",
    ] {
        let config = parse(&SMALL.replace("http://127.0.0.1:18443", good)).unwrap();
        assert_eq!(config.bitcoin[0].rpc_url, good.trim_end_matches('/'));
    }
    for bad in [
        "",
        "127.0.0.1:8332",
        "http://127.0.0.1",
        "http://:8332",
        "http://127.0.0.1:0",
        "http://127.0.0.1:66000",
        "http://127.0.0.1:8332/wallet/a",
        "http://127.0.0.1:8332//",
        "http://127.0.0.1:8332?a",
        "http://a b:8332",
        "http://[::1:8332",
        "ftp://127.0.0.1:8332",
    ] {
        let found = faults(&SMALL.replace("http://127.0.0.1:18443", bad));
        assert!(found[0].contains("rpc_url: found"), "{bad}: {found:?}");
    }
}

#[test]
fn all_faults_are_listed_at_once() {
    let text = SMALL
        .replace("alias = \"btc\"", "alias = \"BTC\"")
        .replace("network = \"regtest\"", "network = 1")
        .replace("confirmations = 3", "confirmations = \"3\"\nconfirmation = 3");
    let faults = faults(&text);
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(
        faults[0].starts_with("line 3: bitcoin[0].alias: found \"BTC\""),
        "{faults:?}"
    );
    assert!(faults[3].ends_with("did you mean confirmations?"), "{faults:?}");
}

#[test]
fn a_chain_is_claimed_once_and_an_alias_names_one_chain() {
    let same_alias = format!("{SMALL}{}", SMALL.replace("shop-test", "other"));
    assert_eq!(
        faults(&same_alias),
        ["line 12: bitcoin[1].alias: \"btc\" is taken by bitcoin[0]"]
    );
    let same_chain = format!("{SMALL}{}", SMALL.replace("\"btc\"", "\"btc2\""));
    assert_eq!(
        faults(&same_chain),
        [
            "line 13: bitcoin[1].network: bip122:0f9188f13cb7b2c71f2a335e3a4fc328@shop-test is the chain \
             of bitcoin[0] \
          already"
        ]
    );
    let two = format!(
        "{SMALL}{}",
        SMALL.replace("shop-test", "other").replace("\"btc\"", "\"btc2\"")
    );
    assert_eq!(parse(&two).unwrap().bitcoin.len(), 2);
}

#[test]
fn what_is_no_config_says_so() {
    assert_eq!(
        faults(""),
        ["bitcoin: missing, allowed: at least one [[bitcoin]] or [[evm]]"]
    );
    assert_eq!(
        faults("bitcoin = 5"),
        ["line 1: bitcoin: found 5, allowed: tables [[bitcoin]]"]
    );
    assert_eq!(
        faults("bitcoin = [5]")[0],
        "line 1: bitcoin[0]: found 5, allowed: a table"
    );
    let broken = faults("[[bitcoin]]\nalias = \nnetwork = \"x");
    assert!(broken[0].starts_with("line 2: not TOML: "), "{broken:?}");
    let merchants =
        format!("{SMALL}[[merchant]]\nslug = \"a\"\n[[merchant]]\nslug = \"a\"\ninternal = \"x\"\n");
    assert_eq!(faults(&merchants).len(), 2);
}

#[test]
fn secrets_do_not_show_in_faults() {
    let text = SMALL
        .replace(
            "alias = \"btc\"",
            "alias = \"btc\"\npassword = \"hunter2\"\nrpc_pass = \"hunter2\"",
        )
        .replace("http://", "http://u:hunter2@");
    let all = faults(&text).join("\n");
    assert!(!all.contains("hunter2"), "{all}");
    let broken = faults(&SMALL.replace("alias = \"btc\"", "rpc_password = \"hunter2")).join("\n");
    assert!(!broken.contains("hunter2"), "{broken}");
}
