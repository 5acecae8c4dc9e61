//! `[[evm]]` of the config file: its documentation is true, its examples load, and every fault is named.

mod faults;

use creditd::address::EvmAddress;
use creditd::config::{
    Config, ConfigError, DEFAULT_TOML, EndpointAuth, EndpointUrl, EvmChain, InnerSource, Start, TraceMethod,
};
use creditd::rules::Amount;
use creditd::rules::policy::{Policy, Requirement, Tier};
use std::path::Path;

/// The least that an EVM chain must say.
const SMALL: &str = r#"
[[evm]]
alias = "dev"
chain_id = 31337
instance = "shop-test"
[[evm.endpoint]]
name = "own"
url = "http://127.0.0.1:8545"
[[evm.token]]
contract = "0xdddddddddddddddddddddddddddddddddddddddd"
symbol = "TUSD"
decimals = 6
[[evm.token.policy]]
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

/// The examples of the default file with the `#   ` taken away, one text per chain.
fn examples() -> Vec<String> {
    let section = DEFAULT_TOML
        .split("# ---- ")
        .find(|part| part.starts_with("EVM chains"))
        .unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("#   "));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let chains = text.split("[[evm]]\n").skip(1);
    chains.map(|chain| format!("[[evm]]\n{chain}")).collect()
}

/// The texts of a page that are configs of EVM chains.
fn configs_of(page: &str) -> Vec<&str> {
    let texts = page.split("```toml\n").skip(1);
    let texts = texts.map(|text| text.split("```").next().unwrap());
    texts.filter(|text| text.contains("[[evm]]")).collect()
}

#[test]
fn the_examples_of_the_pages_load_and_name_the_same_tokens_as_the_default_file() {
    let known = parse(&examples().concat()).unwrap();
    let pages = [
        (include_str!("../../docs/evm.md"), 4),
        (include_str!("../../README.md"), 1),
    ];
    for (page, count) in pages {
        let configs = configs_of(page);
        assert_eq!(configs.len(), count);
        for text in configs {
            let config = parse(text).unwrap();
            let chain = &config.evm[0];
            let same = known.evm.iter().find(|known| known.chain == chain.chain).unwrap();
            for asset in chain.assets() {
                assert!(
                    same.assets().contains(&asset) || asset.symbol == "USDT",
                    "{asset:?}"
                );
                let twin = same
                    .assets()
                    .into_iter()
                    .find(|known| known.caip == asset.caip)
                    .unwrap();
                assert_eq!((twin.symbol, twin.decimals), (asset.symbol, asset.decimals));
            }
        }
    }
}

fn tier(below: Option<(&str, u8)>, needs: Requirement) -> Tier {
    Tier {
        below: below.map(|(text, decimals)| Amount::from_units_str(text, decimals).unwrap()),
        needs,
    }
}

#[test]
fn the_examples_load_each_alone_and_all_together_with_bitcoin() {
    let examples = examples();
    assert_eq!(examples.len(), 4);
    for example in &examples {
        assert_eq!(parse(example).unwrap().evm.len(), 1, "{example}");
    }
    let config = parse(&format!("{DEFAULT_TOML}\n{}", examples.concat())).unwrap();
    let chains: Vec<_> = config
        .chains()
        .map(|chain| (chain.alias(), chain.chain().as_str()))
        .collect();
    assert_eq!(
        chains,
        [
            ("btc", "bip122:000000000019d6689c085ae165831e93"),
            ("eth", "eip155:1"),
            ("base", "eip155:8453"),
            ("polygon", "eip155:137"),
            ("bsc", "eip155:56"),
        ]
    );
    let assets = |alias: &str| -> Vec<String> {
        let assets = config.find(alias).unwrap().assets();
        assets
            .iter()
            .map(|asset| format!("{} {} {}", asset.symbol, asset.decimals, asset.caip))
            .collect()
    };
    assert_eq!(
        assets("btc"),
        ["BTC 8 bip122:000000000019d6689c085ae165831e93/slip44:0"]
    );
    assert_eq!(
        assets("eth"),
        [
            "ETH 18 eip155:1/slip44:60",
            "USDC 6 eip155:1/erc20:0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
            "USDT 6 eip155:1/erc20:0xdac17f958d2ee523a2206206994597c13d831ec7",
        ]
    );
    assert_eq!(assets("base").len(), 3);
    assert_eq!(assets("polygon")[0], "POL 18 eip155:137/slip44:966");
    assert_eq!(
        assets("bsc")[1],
        "USDT 18 eip155:56/erc20:0x55d398326f99059ff775485246999027b3197955"
    );
    assert!(config.find("nobody").is_none());
}

/// Mixed case is checked only where it is written: a contract in one case could have any letter wrong.
#[test]
fn every_contract_of_the_examples_carries_its_checksum() {
    let all = examples().concat();
    let lines = all
        .lines()
        .filter_map(|line| line.strip_prefix("contract = \"")?.strip_suffix('"'));
    let contracts: Vec<&str> = lines.collect();
    assert_eq!(contracts.len(), 9);
    for contract in contracts {
        assert_eq!(EvmAddress::parse(contract).unwrap().to_string(), contract);
    }
}

#[test]
fn the_first_example_says_the_defaults() {
    let shown = parse(&examples()[0]).unwrap().evm.remove(0);
    let left_out = [
        "start = ",
        "poll_ms",
        "pending_ms",
        "evict_after_secs",
        "reorg_window",
        "fork_patience_secs",
        "bloom",
        "ethereum",
        "batch_max",
        "tip_age_max_secs",
        "decimals = 18",
        "coin_type",
        "trace_method",
        "check_balance",
        "not_indexed",
    ];
    let is_kept = |line: &&str| !left_out.iter().any(|key| line.starts_with(key));
    let example = examples().remove(0);
    let lines: Vec<&str> = example.lines().filter(is_kept).collect();
    assert_eq!(lines.len() + left_out.len(), example.lines().count());
    let small = parse(&lines.join("\n")).unwrap().evm.remove(0);
    assert_eq!(small, shown);
    assert_eq!(shown.quorum, 2);
    let without = examples()[0]
        .replace("quorum = 2", "")
        .replace("checkpoints", "#");
    let without = parse(&without).unwrap().evm.remove(0);
    assert_eq!((without.quorum, without.checkpoints.len()), (1, 0));
    let EndpointUrl::File(_) = &shown.endpoints[1].url else {
        panic!("{:?}", shown.endpoints[1]);
    };
    let native = shown.native.unwrap();
    assert_eq!(native.inner, InnerSource::Traces(TraceMethod::Auto));
    let tiers = [
        tier(Some(("0.1", 18)), Requirement::Confirmations(12)),
        tier(None, Requirement::Finalized),
    ];
    assert_eq!(native.policy, Policy::new(&tiers).unwrap());
    assert_eq!(shown.tokens[1].from, Some(4_634_748));
}

#[test]
fn a_small_chain_means_what_it_says() {
    let config = parse(SMALL).unwrap();
    assert!(config.bitcoin.is_empty() && config.chain("dev").is_none());
    let chain = &config.evm[0];
    assert_eq!(chain.chain.as_str(), "eip155:31337@shop-test");
    assert_eq!(
        (chain.start, chain.pending, chain.tip_age_max),
        (Start::Tip, None, None)
    );
    assert_eq!(
        (chain.reorg_window, chain.quorum, chain.has_bloom),
        (128, 1, true)
    );
    assert!(!chain.is_ethereum);
    let is_ethereum = |id: u64| parse(&SMALL.replace("31337", &id.to_string())).unwrap().evm[0].is_ethereum;
    assert_eq!(
        [1, 11_155_111, 560_048, 10].map(is_ethereum),
        [true, true, true, false]
    );
    assert!(chain.native.is_none());
    assert_eq!(chain.endpoints[0].auth, EndpointAuth::None);
    let policy = Policy::new(&[tier(None, Requirement::Confirmations(3))]).unwrap();
    assert_eq!(chain.tokens[0].policy, policy);
    assert_eq!(
        chain.assets()[0].caip,
        format!("eip155:31337/erc20:0x{}", "dd".repeat(20))
    );
}

fn with_endpoint(lines: &str) -> Result<EvmChain, Vec<String>> {
    let text = SMALL.replace("url = \"http://127.0.0.1:8545\"", lines);
    match parse(&text) {
        Ok(mut config) => Ok(config.evm.remove(0)),
        Err(_) => Err(faults(&text)),
    }
}

#[test]
fn every_way_in_reads_its_secret_from_a_file() {
    let auth = |lines: &str| with_endpoint(&format!("url = \"https://a.example/rpc\"\n{lines}")).unwrap();
    let auth = |lines: &str| auth(lines).endpoints.remove(0).auth;
    let path = |auth: &EndpointAuth| {
        let file = match auth {
            EndpointAuth::None => panic!("no secret"),
            EndpointAuth::Basic { password, .. } => password,
            EndpointAuth::Bearer(file) | EndpointAuth::Header { value: file, .. } => file,
        };
        file.path().unwrap()
    };
    let basic = auth("user = \"bob\"\npassword_file = \"secret\"");
    let bearer = auth("bearer_file = \"secret\"");
    let header = auth("header = \"X-Api-Key\"\nheader_file = \"secret\"");
    for one in [&basic, &bearer, &header] {
        assert_eq!(path(one), Path::new("/etc/creditd/secret"));
    }
    let EndpointAuth::Header { name, .. } = header else {
        panic!("{header:?}");
    };
    assert_eq!(name, "x-api-key");
    let chain = with_endpoint("url_file = \"url\"\nca_file = \"own.pem\"").unwrap();
    let EndpointUrl::File(file) = &chain.endpoints[0].url else {
        panic!("{:?}", chain.endpoints[0].url);
    };
    assert_eq!(file.path().unwrap(), Path::new("/etc/creditd/url"));
    assert_eq!(
        chain.endpoints[0].ca_file.as_deref(),
        Some(Path::new("/etc/creditd/own.pem"))
    );
}

#[test]
fn a_key_in_the_wrong_place_is_refused_and_not_shown() {
    let keys = [
        "https://eth.example.com/v2/S3cretS3cretS3cret",
        "https://eth.example.com/?key=S3cret",
        "https://S3cret@eth.example.com/",
        "https://bob:S3cret@eth.example.com/",
        "https://eth.example.com/#S3cret",
        "wss://eth.example.com/v2/S3cretS3cretS3cret",
        "eth.example.com/v2/S3cretS3cretS3cret",
    ];
    for url in keys {
        let found = with_endpoint(&format!("url = \"{url}\"")).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("line 8: evm[0].endpoint[0].url: "),
            "{found:?}"
        );
        assert!(!found[0].contains("S3cret"), "{found:?}");
    }
    let wrong = [
        "bearer = \"S3cret\"",
        "password = \"S3cret\"",
        "api_key = \"S3cret\"",
        "header_value = \"S3cret\"",
    ];
    for line in wrong {
        let lines = format!("url = \"http://127.0.0.1:8545\"\n{line}");
        let found = with_endpoint(&lines).unwrap_err().join("\n");
        assert!(
            found.contains("unknown key") && !found.contains("S3cret"),
            "{found}"
        );
    }
}

#[test]
fn one_way_in_and_all_of_it() {
    let cases = [
        ("", "url: missing, allowed: "),
        (
            "url = \"http://a\"\nurl_file = \"x\"",
            "url: found together with url_file",
        ),
        (
            "url = \"http://a\"\nuser = \"b\"",
            "password_file: missing beside user",
        ),
        (
            "url = \"http://a\"\npassword_file = \"b\"",
            "user: missing beside password_file",
        ),
        (
            "url = \"http://a\"\nheader = \"x-key\"",
            "header_file: missing beside header",
        ),
        (
            "url = \"http://a\"\nheader_file = \"x\"",
            "header: missing beside header_file",
        ),
        (
            "url = \"http://a\"\nheader = \"Host\"\nheader_file = \"x\"",
            "header: found \"Host\"",
        ),
        (
            "url = \"http://a\"\nheader = \"a b\"\nheader_file = \"x\"",
            "header: found \"a b\"",
        ),
        (
            "url = \"http://a\"\nbearer_file = \"x\"\nheader = \"x-key\"\nheader_file = \"x\"",
            "header: found together with bearer_file",
        ),
        (
            "url = \"http://a\"\nuser = \"b\"\npassword_file = \"x\"\nbearer_file = \"x\"",
            "bearer_file: found together with user",
        ),
    ];
    for (lines, expected) in cases {
        let found = with_endpoint(lines).unwrap_err();
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(
            found[0].contains(&format!("evm[0].endpoint[0].{expected}")),
            "{lines}: {found:?}"
        );
    }
}

#[test]
fn a_chain_must_watch_something_and_a_contract_counts_once() {
    let bare = &SMALL[..SMALL.find("[[evm.token]]").unwrap()];
    assert_eq!(
        faults(bare),
        [
            "line 2: evm[0].token: missing, allowed: [[evm.token]] for each token, [evm.native] for the \
          chain's own coin, or both"
        ]
    );
    let token = &SMALL[bare.len()..];
    let twice = format!(
        "{SMALL}{}",
        token.replace("0xdd", "0xDd").replace("TUSD", "OTHER")
    );
    assert!(
        faults(&twice)[0].contains("checksum does not fit"),
        "{:?}",
        faults(&twice)
    );
    let upper = format!(
        "{SMALL}{}",
        token
            .replace(&"d".repeat(40), &"D".repeat(40))
            .replace("TUSD", "OTHER")
    );
    let found = faults(&upper);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("token[1].contract: 0x") && found[0].ends_with(" is there twice"),
        "{found:?}"
    );
}

#[test]
fn a_chain_is_claimed_once_and_an_alias_names_one_chain_of_any_kind() {
    let other = SMALL.replace("\"dev\"", "\"dev2\"");
    assert_eq!(
        faults(&format!("{SMALL}{other}")),
        ["line 18: evm[1].chain_id: eip155:31337@shop-test is the chain of evm[0] already"]
    );
    let two = other.replace("shop-test", "other");
    assert_eq!(parse(&format!("{SMALL}{two}")).unwrap().evm.len(), 2);
    let bitcoin = DEFAULT_TOML.replace("alias = \"btc\"", "alias = \"dev\"");
    let found = faults(&format!("{bitcoin}\n{SMALL}"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("evm[0].alias: \"dev\" is taken by bitcoin[0]"),
        "{found:?}"
    );
}
