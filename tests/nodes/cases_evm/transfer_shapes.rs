//! C14: logs that begin like a transfer and are another thing. The contract logs whatever it is told to, and
//! has no `decimals()`.

use ruint::aliases::U256;

use super::{Chain, E1, UNSUPPORTED, books, counter, mine, nets, wait_books};
use crate::common::accounts::TRANSFER_TOPIC;
use crate::common::anvil::AnvilNode;
use crate::common::contracts::{Arg, Contract, address_word};
use crate::common::daemon::Daemon;

fn word(hex: &str) -> U256 {
    U256::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap()
}

struct Logger {
    contract: Contract,
    address: String,
}

impl Logger {
    fn deploy(node: &AnvilNode) -> Self {
        let contract = Contract::named("Logger");
        let address = node.deploy(&contract.creation(&[]), 0);
        Self { contract, address }
    }

    /// A log with these topics, and these words as its data; the hash of its transaction.
    fn write(&self, node: &AnvilNode, topics: &[U256], data: &[U256]) -> String {
        let bytes: Vec<u8> = data.iter().flat_map(|word| word.to_be_bytes::<32>()).collect();
        let args = [Arg::Uints(topics.to_vec()), Arg::Bytes(bytes)];
        node.invoke(
            &node.account(1),
            &self.address,
            &self.contract.call_data("write", &args),
            0,
        )
    }

    /// The five shapes of the case, (a) to (e); their hashes.
    fn write_all(&self, node: &AnvilNode) -> [String; 5] {
        let [from, to] = [node.account(1), E1.to_owned()].map(|who| word(&address_word(&who)));
        let topic = word(TRANSFER_TOPIC);
        let amount = |units: u64| U256::from(units);
        [
            self.write(node, &[topic, from, to, amount(1_000_000)], &[]),
            self.write(node, &[topic], &[from, to, amount(5_000_000)]),
            self.write(node, &[topic, from, to], &[]),
            self.write(node, &[topic, from, to], &[amount(3_000_000), amount(4_000_000)]),
            self.write(node, &[topic, from, to], &[amount(2_000_000)]),
        ]
    }
}

fn follow(node: &AnvilNode, token: &Logger, line: &str) -> Daemon {
    let daemon = Chain::at(&node.url())
        .token_with(&token.address, "TUSD", 6, line)
        .follow(node);
    let log = daemon.log();
    let said = log
        .lines()
        .find(|line| line.contains("does not tell its decimals"));
    let said = said.unwrap_or_else(|| panic!("{log}"));
    assert!(
        said.contains("WARN") && said.contains("the config's 6 are used"),
        "{said}"
    );
    daemon
}

#[test]
fn c14_only_the_shape_of_a_transfer_is_a_payment() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let (token, unlisted) = (Logger::deploy(&node), Logger::deploy(&node));
    let daemon = follow(&node, &token, "");
    let [a, b, c, d, _] = token.write_all(&node);
    unlisted.write_all(&node);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 2000000 to E1 credited"]);
    assert_eq!(nets(&daemon), ["2000000"]);
    assert_eq!(counter(&daemon, UNSUPPORTED), 4, "those of the listed contract");
    let log = daemon.log();
    for (tx, said) in [
        (a, "4 topics and 0 bytes"),
        (b, "1 topics and 96 bytes"),
        (c, "3 topics and 0 bytes"),
        (d, "3 topics and 64 bytes"),
    ] {
        let line = log
            .lines()
            .find(|line| line.contains("unsupported") && line.contains(&tx));
        assert!(
            line.is_some_and(|line| line.contains(said)),
            "{tx} {said}: {line:?}"
        );
    }
    daemon.assert_sound();
}

#[test]
fn c14_token_that_indexes_nothing_is_credited_where_the_config_says_so() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let token = Logger::deploy(&node);
    let daemon = follow(&node, &token, "not_indexed = true");
    token.write_all(&node);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &["log 0: 2000000 to E1 credited", "log 0: 5000000 to E1 credited"],
    );
    assert_eq!(counter(&daemon, UNSUPPORTED), 3);
    daemon.assert_sound();
}

/// The same of two kinds of contracts that there are: one for pictures, and a token older than its standard.
#[test]
fn c14_pictures_and_old_tokens_on_the_list_stop_nothing() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let deploy = |name: &str| {
        let contract = Contract::named(name);
        let address = node.deploy(&contract.creation(&[]), 0);
        (contract, address)
    };
    let (pictures, old) = (deploy("NftLike"), deploy("OldToken"));
    let chain = Chain::at(&node.url()).token(&pictures.1, "NFT", 0).token_with(
        &old.1,
        "OLD",
        6,
        "not_indexed = true",
    );
    let daemon = chain.follow(&node);
    let call = |(contract, at): &(Contract, String), method: &str, number: u128| {
        let args = [Arg::Address(E1.to_owned()), Arg::Uint(U256::from(number))];
        node.invoke(&node.account(1), at, &contract.call_data(method, &args), 0)
    };
    call(&pictures, "give", 1_000_000);
    call(&old, "mint", 5_000_000);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 5000000 to E1 credited"]);
    assert_eq!(counter(&daemon, UNSUPPORTED), 1);
    assert_eq!(books(&daemon).len(), 1);
    daemon.assert_sound();
}
