//! What can be put into a block: a transaction, and what it does. Nothing is executed, so whoever puts a
//! transaction in says its logs, its inner calls and whether it succeeds.

use crate::rules::Txid;
use ruint::aliases::U256;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// An account: twenty bytes, printed in lower case, as nodes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 20]);

impl Address {
    /// Where a token's `Transfer` comes from when it is issued.
    pub const ZERO: Address = Address([0; 20]);

    /// In whose name a chain logs movements of its coin.
    pub const SYSTEM: Address = Address([
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xfe,
    ]);

    /// An address that nobody has the key of, always the same for the same label.
    pub fn of(label: &str) -> Address {
        Address::of_word(&digest(&[b"address", label.as_bytes()]))
    }

    /// The last twenty bytes of a word or hash.
    pub(super) fn of_word(word: &[u8; 32]) -> Address {
        let mut bytes = [0; 20];
        bytes.copy_from_slice(&word[12..]);
        Address(bytes)
    }

    /// Reads `0x` and 40 hex digits of either case.
    pub fn from_hex(text: &str) -> Option<Address> {
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 40)?;
        let mut bytes = [0; 20];
        const_hex::decode_to_slice(digits, &mut bytes).ok()?;
        Some(Address(bytes))
    }

    /// The address in a word of 32 bytes, as topics and call arguments have it.
    pub fn to_word(self) -> [u8; 32] {
        let mut word = [0; 32];
        word[12..].copy_from_slice(&self.0);
        word
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// `0x` and the bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    const_hex::encode_prefixed(bytes)
}

/// SHA-256 of the parts, each behind its length. It stands in for the keccak-256 of blocks and transactions,
/// which nobody computes again.
pub(super) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Which nonce a transaction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonce {
    /// The sender's next one, its pending transactions counted.
    Next,
    /// This one: that of another transaction, to replace it.
    Given(u64),
    /// None, as with what a sequencer puts in (type 0x7e): such a transaction waits in no pool, costs no fee
    /// and brings its value with it.
    Absent,
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Tx {
    /// 0x0, 0x2 and 0x7e are known; any other number goes out with the fields of 0x2.
    pub kind: u64,
    /// The sender.
    pub from: Address,
    /// Which of the sender's transactions it is.
    pub nonce: Nonce,
    /// The recipient; `None` creates a contract.
    pub to: Option<Address>,
    /// Wei for the recipient.
    pub value: U256,
    /// What the contract is told.
    pub input: Vec<u8>,
    /// Wei per gas.
    pub gas_price: u64,
    /// What it does where it is mined.
    pub effects: Effects,
    /// How its JSON differs from the usual.
    pub odd: Odd,
    /// How its receipt's JSON differs from the usual.
    pub odd_receipt: Odd,
}

/// What a plain transaction pays per gas.
pub(super) const GAS_PRICE: u64 = 2_000_000_000;

impl Tx {
    /// A payment of type 0x2.
    pub fn pay(from: Address, to: Address, value: U256) -> Tx {
        Tx {
            kind: 2,
            from,
            nonce: Nonce::Next,
            to: Some(to),
            value,
            input: Vec::new(),
            gas_price: GAS_PRICE,
            effects: Effects::default(),
            odd: Odd::default(),
            odd_receipt: Odd::default(),
        }
    }

    /// A payment of a token: a call of its contract with one `Transfer` log.
    pub fn pay_token(contract: Address, from: Address, to: Address, amount: U256) -> Tx {
        let mut input = TRANSFER.to_vec();
        input.extend(to.to_word());
        input.extend(amount.to_be_bytes::<32>());
        let mut tx = Tx::pay(from, contract, U256::ZERO);
        tx.input = input;
        tx.effects.logs.push(Log::transfer(contract, from, to, amount));
        tx
    }

    /// Coin that a sequencer brings over from another chain, type 0x7e, without a nonce.
    pub fn bring(from: Address, to: Address, value: U256) -> Tx {
        let mut tx = Tx::pay(from, to, value);
        (tx.kind, tx.nonce) = (0x7e, Nonce::Absent);
        tx
    }
}

/// The selector of `transfer(address,uint256)`.
pub(super) const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];

/// `keccak256("Transfer(address,address,uint256)")`, the first topic of a token's movement.
pub const TRANSFER_TOPIC: [u8; 32] = [
    0xdd, 0xf2, 0x52, 0xad, 0x1b, 0xe2, 0xc8, 0x9b, 0x69, 0xc2, 0xb0, 0x68, 0xfc, 0x37, 0x8d, 0xaa, 0x95,
    0x2b, 0xa7, 0xf1, 0x63, 0xc4, 0xa1, 0x16, 0x28, 0xf5, 0x5a, 0x4d, 0xf5, 0x23, 0xb3, 0xef,
];

/// What a transaction does. The same transaction may do something else in another block.
#[derive(Clone, Debug)]
pub struct Effects {
    /// A failed one moves nothing, leaves no logs and costs its fee.
    pub is_success: bool,
    /// In the order of the receipt.
    pub logs: Vec<Log>,
    /// The calls that the recipient makes.
    pub calls: Vec<InnerCall>,
    /// Token balances afterwards that its `Transfer` logs do not add up to: contract, holder, amount.
    pub token_balances: Vec<(Address, Address, U256)>,
}

impl Default for Effects {
    /// Success, and nothing besides the value.
    fn default() -> Effects {
        Effects {
            is_success: true,
            logs: Vec::new(),
            calls: Vec::new(),
            token_balances: Vec::new(),
        }
    }
}

impl Effects {
    /// Failure.
    pub fn failed() -> Effects {
        Effects {
            is_success: false,
            ..Effects::default()
        }
    }
}

/// A log of a receipt.
#[derive(Clone, Debug)]
pub struct Log {
    /// The contract.
    pub address: Address,
    /// At most four.
    pub topics: Vec<[u8; 32]>,
    /// The rest.
    pub data: Vec<u8>,
}

impl Log {
    /// The `Transfer` of a token.
    pub fn transfer(contract: Address, from: Address, to: Address, amount: U256) -> Log {
        Log {
            address: contract,
            topics: vec![TRANSFER_TOPIC, from.to_word(), to.to_word()],
            data: amount.to_be_bytes::<32>().to_vec(),
        }
    }

    /// From whom to whom, and how much, if it is the `Transfer` of a token.
    pub(super) fn as_transfer(&self) -> Option<(Address, Address, U256)> {
        let [TRANSFER_TOPIC, from, to] = self.topics.as_slice() else {
            return None;
        };
        let amount = <[u8; 32]>::try_from(self.data.as_slice()).ok()?;
        Some((
            Address::of_word(from),
            Address::of_word(to),
            U256::from_be_bytes(amount),
        ))
    }
}

/// How a contract is called by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Moves coin.
    Call,
    /// Runs another's code as the caller; moves nothing.
    DelegateCall,
    /// The older form of that; its value stays with the caller.
    CallCode,
    /// Changes nothing.
    StaticCall,
    /// Makes a contract.
    Create,
    /// Makes a contract at an address known before.
    Create2,
    /// Ends the caller, whose coin goes to the recipient.
    SelfDestruct,
}

/// A call that a contract makes.
#[derive(Clone, Debug)]
pub struct InnerCall {
    /// How.
    pub kind: CallKind,
    /// Whom; the new contract of a creation, the heir of a contract that ends.
    pub to: Address,
    /// Wei.
    pub value: U256,
    /// What it is told.
    pub input: Vec<u8>,
    /// A failed one undoes what it and the calls below did.
    pub is_success: bool,
    /// The calls that it makes in turn.
    pub calls: Vec<InnerCall>,
}

impl InnerCall {
    /// A successful call that calls nobody.
    pub fn new(kind: CallKind, to: Address, value: U256) -> InnerCall {
        InnerCall {
            kind,
            to,
            value,
            input: Vec::new(),
            is_success: true,
            calls: Vec::new(),
        }
    }
}

/// Fields that some node leaves out or writes in its own way.
#[derive(Clone, Debug, Default)]
pub struct Odd {
    /// Names of fields that are missing.
    pub without: Vec<String>,
    /// Fields that are more, or of another value.
    pub with: Map<String, Value>,
}

impl Odd {
    pub(super) fn apply(&self, fields: &mut Map<String, Value>) {
        for name in &self.without {
            fields.remove(name);
        }
        fields.extend(self.with.clone());
    }
}

/// A transaction with what follows from it.
pub(super) struct Signed {
    pub(super) chain_id: u64,
    pub(super) tx: Tx,
    pub(super) nonce: Option<u64>,
    pub(super) hash: Txid,
}

impl Signed {
    /// The hash is of what the sender signs, not of what comes of it: a transaction that does something else
    /// in another block is the same one. `serial` tells those without a nonce apart.
    pub(super) fn new(chain_id: u64, tx: Tx, nonce: Option<u64>, serial: u64) -> Signed {
        let number = nonce.unwrap_or(serial);
        let hash = digest(&[
            b"transaction",
            &chain_id.to_be_bytes(),
            &tx.kind.to_be_bytes(),
            &tx.from.0,
            &[u8::from(nonce.is_some())],
            &number.to_be_bytes(),
            tx.to.as_ref().map_or(&[], |to| &to.0),
            &tx.value.to_be_bytes::<32>(),
            &tx.input,
            &tx.gas_price.to_be_bytes(),
        ]);
        Signed {
            chain_id,
            tx,
            nonce,
            hash: Txid(hash),
        }
    }

    /// The contract that it creates, if it does. Real ones follow from keccak-256; nobody derives these.
    pub(super) fn contract(&self) -> Option<Address> {
        match self.tx.to {
            Some(_) => None,
            None => Some(Address::of_word(&digest(&[b"contract", &self.hash.0]))),
        }
    }

    /// Where its value goes.
    pub(super) fn recipient(&self) -> Address {
        self.tx.to.or_else(|| self.contract()).unwrap_or(Address::ZERO)
    }

    /// What running it takes, in whatever way it ends.
    pub(super) fn gas_used(effects: &Effects) -> u64 {
        21_000 + 2_000 * effects.logs.len() as u64 + 9_000 * effects.calls.len() as u64
    }

    pub(super) fn fee(&self, effects: &Effects) -> U256 {
        match self.nonce {
            Some(_) => U256::from(self.tx.gas_price).saturating_mul(U256::from(Signed::gas_used(effects))),
            None => U256::ZERO,
        }
    }
}
