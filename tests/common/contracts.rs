//! The contracts of `tests/contracts`, and just enough of the ABI to create and call them.

use std::path::{Path, PathBuf};

use ruint::aliases::U256;
use serde_json::Value;

use super::anvil::AnvilNode;

/// An argument of a contract's method or constructor.
#[derive(Clone, Debug)]
pub enum Arg {
    /// `address`
    Address(String),
    /// Any `uint`
    Uint(U256),
    Bool(bool),
    /// `string` or `bytes`
    Bytes(Vec<u8>),
    /// `address[]`
    Addresses(Vec<String>),
    /// `uint256[]` or `bytes32[]`
    Uints(Vec<U256>),
}

pub fn address(text: &str) -> Arg {
    Arg::Address(text.to_owned())
}

pub fn uint(value: u128) -> Arg {
    Arg::Uint(U256::from(value))
}

/// The receivers and the values of payments, as two arguments.
pub fn payments(payments: &[(&str, u128)]) -> [Arg; 2] {
    [
        Arg::Addresses(payments.iter().map(|(to, _)| (*to).to_owned()).collect()),
        Arg::Uints(payments.iter().map(|(_, value)| U256::from(*value)).collect()),
    ]
}

impl Arg {
    /// What stands in the head, or else what the head points at in the tail.
    fn words(&self) -> Result<String, String> {
        match self {
            Self::Address(text) => Ok(address_word(text)),
            Self::Uint(value) => Ok(word(*value)),
            Self::Bool(value) => Ok(word(U256::from(u8::from(*value)))),
            Self::Bytes(bytes) => {
                let blanks = bytes.len().next_multiple_of(32) - bytes.len();
                let padding = "00".repeat(blanks);
                Err(length_word(bytes.len()) + &const_hex::encode(bytes) + &padding)
            }
            Self::Addresses(all) => {
                let words: String = all.iter().map(|text| address_word(text)).collect();
                Err(length_word(all.len()) + &words)
            }
            Self::Uints(all) => {
                let words: String = all.iter().map(|value| word(*value)).collect();
                Err(length_word(all.len()) + &words)
            }
        }
    }
}

fn word(value: U256) -> String {
    format!("{value:064x}")
}

fn length_word(length: usize) -> String {
    word(U256::from(length))
}

/// An address as 64 hex digits, as it stands in call data and topics.
pub fn address_word(text: &str) -> String {
    let digits = text.strip_prefix("0x").unwrap_or(text).to_lowercase();
    assert_eq!(digits.len(), 40, "an address, not {text}");
    format!("{digits:0>64}")
}

/// Arguments in the encoding of the ABI, without `0x`.
pub fn encode(args: &[Arg]) -> String {
    let (mut head, mut tail) = (String::new(), String::new());
    for arg in args {
        match arg.words() {
            Ok(words) => head += &words,
            Err(words) => {
                head += &length_word(args.len() * 32 + tail.len() / 2);
                tail += &words;
            }
        }
    }
    head + &tail
}

/// A compiled contract.
pub struct Contract {
    pub name: String,
    compiled: Value,
}

impl Contract {
    #[track_caller]
    pub fn named(name: &str) -> Self {
        let text = std::fs::read_to_string(contracts_folder().join(format!("{name}.json"))).unwrap();
        let compiled = serde_json::from_str(&text).unwrap();
        let name = name.to_owned();
        Self { name, compiled }
    }

    fn text(&self, key: &str) -> &str {
        self.compiled[key].as_str().unwrap()
    }

    /// What a transaction that creates it sends.
    pub fn creation(&self, args: &[Arg]) -> String {
        self.text("bytecode").to_owned() + &encode(args)
    }

    /// What lies at its address, for `anvil_setCode`.
    pub fn deployed(&self) -> &str {
        self.text("deployed")
    }

    /// The SHA-256 of the source that it was compiled from.
    pub fn source_sha256(&self) -> &str {
        self.text("source_sha256")
    }

    /// What a transaction that calls `method` sends.
    #[track_caller]
    pub fn call_data(&self, method: &str, args: &[Arg]) -> String {
        let methods = self.compiled["methods"].as_object().unwrap();
        let mut named = methods
            .iter()
            .filter(|(signature, _)| signature.split('(').next() == Some(method));
        let (_, selector) = named
            .next()
            .unwrap_or_else(|| panic!("{} has no {method}: {methods:?}", self.name));
        format!("0x{}{}", selector.as_str().unwrap(), encode(args))
    }
}

pub fn contracts_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contracts")
}

/// A `TestToken` at its address.
pub struct Token {
    pub contract: Contract,
    pub address: String,
}

impl Token {
    /// Mines one block.
    #[track_caller]
    pub fn deploy(node: &AnvilNode, symbol: &str, decimals: u8) -> Self {
        let contract = Contract::named("TestToken");
        let args = [Arg::Bytes(symbol.into()), uint(decimals.into())];
        let address = node.deploy(&contract.creation(&args), 0);
        Self { contract, address }
    }

    /// Calls any method; the transaction's hash.
    #[track_caller]
    pub fn invoke(&self, node: &AnvilNode, from: &str, method: &str, args: &[Arg]) -> String {
        node.invoke(from, &self.address, &self.contract.call_data(method, args), 0)
    }

    #[track_caller]
    pub fn mint(&self, node: &AnvilNode, to: &str, value: u128) -> String {
        self.invoke(node, &node.account(0), "mint", &[address(to), uint(value)])
    }

    #[track_caller]
    pub fn transfer(&self, node: &AnvilNode, from: &str, to: &str, value: u128) -> String {
        self.invoke(node, from, "transfer", &[address(to), uint(value)])
    }

    /// Several transfers in one transaction.
    #[track_caller]
    pub fn pay(&self, node: &AnvilNode, from: &str, to: &[(&str, u128)]) -> String {
        self.invoke(node, from, "pay", &payments(to))
    }

    #[track_caller]
    pub fn balance(&self, node: &AnvilNode, of: &str) -> U256 {
        let data = self.contract.call_data("balanceOf", &[address(of)]);
        let answer = node.view(&self.address, &data);
        U256::from_str_radix(answer.trim_start_matches("0x"), 16).unwrap()
    }
}
