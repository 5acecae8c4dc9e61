//! Identity: chains, blocks, transactions, outpoints, and the public ids derived from them. Every public id
//! is a hash of what it names, so that a rescan or a restored backup derives the same id again.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

macro_rules! hash32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// Reads 64 hex digits in the order in which explorers and nodes print them.
            pub fn from_hex(text: &str) -> Option<$name> {
                parse_hex32(text).map($name)
            }

            /// Reads what somebody typed: with `0x` in front or without.
            pub fn from_typed(text: &str) -> Option<$name> {
                let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
                $name::from_hex(digits.unwrap_or(text))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

hash32! {
    /// A transaction id in display byte order (Bitcoin prints its hashes reversed; this is the printed
    /// order).
    Txid
}
hash32! {
    /// A block hash in display byte order.
    BlockHash
}

/// Hex digits, small letters. Every event prints half a dozen hashes, and to format byte by byte takes longer
/// than to make the hash.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text
}

pub(crate) fn parse_hex32(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 || !bytes.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut out = [0; 32];
    for (slot, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
        *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// A chain: its CAIP-2 id (`bip122:000000000019d6689c085ae165831e93`), and for chains that anyone can start
/// anew (regtest, own signets, dev chains) an instance name, written `bip122:0f91...@name`. Never a config
/// name, so that renaming a chain in the config cannot credit twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(String);

impl ChainId {
    /// A Bitcoin chain by its genesis block (CAIP-4: the first 32 hex digits), with an instance where one is
    /// needed.
    pub fn bitcoin(genesis: &BlockHash, instance: Option<&str>) -> ChainId {
        let mut text = format!("bip122:{}", &genesis.to_string()[..32]);
        if let Some(instance) = instance {
            let _ = write!(text, "@{instance}");
        }
        ChainId(text)
    }

    /// An EVM chain by its chain id (CAIP-2 namespace `eip155`, EIP-155), with an instance where one is
    /// needed.
    pub fn evm(chain_id: u64, instance: Option<&str>) -> ChainId {
        let mut text = format!("eip155:{chain_id}");
        if let Some(instance) = instance {
            let _ = write!(text, "@{instance}");
        }
        ChainId(text)
    }

    /// What stands in the place of a chain where a source of webhooks told of a payment. No namespace of
    /// CAIP-2 is called so.
    pub fn external(source: &str) -> ChainId {
        ChainId(format!("ext:{source}"))
    }

    /// True of what stands for a source of webhooks.
    pub fn is_external(&self) -> bool {
        self.0.starts_with("ext:")
    }

    /// The id of what a source counts in.
    pub fn external_asset(&self, code: &str) -> String {
        format!("{}/{code}", self.0)
    }

    /// True of an EVM chain.
    pub fn is_evm(&self) -> bool {
        self.0.starts_with("eip155:")
    }

    /// The chain id of an EVM chain, in decimal.
    pub fn evm_id(&self) -> Option<&str> {
        self.caip2().strip_prefix("eip155:")
    }

    /// A hash as people of this chain write it: those of EVM chains have `0x` in front, those of Bitcoin have
    /// nothing.
    pub fn print(&self, hash: impl std::fmt::Display) -> String {
        let prefix = if self.is_evm() { "0x" } else { "" };
        format!("{prefix}{hash}")
    }

    /// A chain id read back from the database.
    pub fn from_stored(text: String) -> ChainId {
        ChainId(text)
    }

    /// The whole id, instance included.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The CAIP-2 part alone.
    pub fn caip2(&self) -> &str {
        self.0.split_once('@').map_or(self.0.as_str(), |(caip2, _)| caip2)
    }

    /// CAIP-19 id of the chain's bitcoin (SLIP-44 coin type 0, by CAIP-20).
    pub fn bitcoin_asset(&self) -> String {
        format!("{}/slip44:0", self.caip2())
    }

    /// CAIP-19 id of an EVM chain's coin, by its SLIP-44 coin type (60 = Ether).
    pub fn evm_coin(&self, coin_type: u32) -> String {
        format!("{}/slip44:{coin_type}", self.caip2())
    }

    /// CAIP-19 id of an ERC-20 token, by its contract in lower case.
    pub fn erc20(&self, contract: &[u8; 20]) -> String {
        format!("{}/erc20:0x{}", self.caip2(), hex(contract))
    }
}

impl std::fmt::Display for ChainId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A `scriptPubKey` (Bitcoin) or the 20 bytes of an account (EVM): what an address stands for, compared as
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Script(pub Box<[u8]>);

/// What a chain's outputs can pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asset {
    /// The chain's own coin.
    Native,
    /// A token, by its contract.
    Token([u8; 20]),
}

/// One output of one transaction; with the chain it is the identity of a payment. `vout` is the transaction's
/// own output number on Bitcoin and a position on EVM chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outpoint {
    /// The transaction.
    pub txid: Txid,
    /// Output number or position.
    pub vout: u64,
}

impl std::fmt::Display for Outpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.txid, self.vout)
    }
}

/// Version of the watch rules of the database: raised by every change to what is watched. A block filtered
/// under an older version than the table's is tried again before it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ListVersion(pub i64);

/// The id of the deposit at an outpoint.
pub fn deposit_id(chain: &ChainId, outpoint: &Outpoint) -> String {
    derive(
        "dep_",
        &[
            b"deposit",
            chain.as_str().as_bytes(),
            &outpoint.txid.0,
            &outpoint.vout.to_be_bytes(),
        ],
    )
}

/// The id of the one credit that an outpoint can ever have.
pub fn credit_id(chain: &ChainId, outpoint: &Outpoint) -> String {
    derive(
        "cr_",
        &[
            b"credit",
            chain.as_str().as_bytes(),
            &outpoint.txid.0,
            &outpoint.vout.to_be_bytes(),
        ],
    )
}

/// The id of an amount that came to a script by the end of a block and that nothing recorded explains.
pub fn unattributed_id(chain: &ChainId, script: &Script, to: &BlockHash) -> String {
    let parts: [&[u8]; 4] = [b"unattributed", chain.as_str().as_bytes(), &script.0, &to.0];
    derive("un_", &parts)
}

/// The id of an invoice: of the address that it alone has.
pub fn invoice_id(chain: &ChainId, script: &Script) -> String {
    derive("inv_", &[b"invoice", chain.as_str().as_bytes(), &script.0])
}

/// The id of an endpoint that is told of one invoice alone.
pub fn invoice_endpoint_id(invoice: &str, url: &str) -> String {
    derive("ep_", &[b"invoice endpoint", invoice.as_bytes(), url.as_bytes()])
}

/// The id of an event that a source of webhooks sent.
pub fn inbox_id(source: &str, event_id: &str) -> String {
    derive("in_", &[b"inbox", source.as_bytes(), event_id.as_bytes()])
}

/// What stands in the place of a transaction's id where a source told of a payment: the hash of the id that
/// the source has for it.
pub fn external_txid(payment: &str) -> Txid {
    let mut hash = Sha256::new();
    hash.update(b"external payment\0");
    hash.update(payment);
    Txid(hash.finalize().into())
}

/// The id of an endpoint: of its owner (`None` = operators) and its URL.
pub fn endpoint_id(merchant: Option<&str>, url: &str) -> String {
    let owner = merchant.map_or(String::new(), |slug| format!("merchant {slug}"));
    derive("ep_", &[b"endpoint", owner.as_bytes(), url.as_bytes()])
}

/// The id of an API key, by the hash that is kept of it.
pub fn key_id(hash: &[u8; 32]) -> String {
    derive("key_", &[b"api key", hash])
}

/// The id of an event that can happen to its subject more than once: subject, fact and version.
pub fn event_id(subject: &str, kind: &str, version: i64) -> String {
    derive(
        "evt_",
        &[
            b"event",
            subject.as_bytes(),
            kind.as_bytes(),
            &version.to_be_bytes(),
        ],
    )
}

/// The id of an event that is the first of its kind by nature (`credit.created`): it hashes its subject alone
/// and so survives a restore, after which version numbers are others.
pub fn first_event_id(subject: &str, kind: &str) -> String {
    derive("evt_", &[b"event", subject.as_bytes(), kind.as_bytes()])
}

/// Length-prefixed parts under SHA-256, cut to 160 bits: no two lists of parts give the same input.
fn derive(prefix: &str, parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("{prefix}{}", hex(&hash.finalize()[..20]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_print_as_they_are_read() {
        let text = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f";
        let hash = BlockHash::from_hex(text).unwrap();
        assert_eq!(hash.to_string(), text);
        assert_eq!(BlockHash::from_hex(&text.to_uppercase()), Some(hash));
        for bad in [
            &text[1..],
            "",
            &format!("0x{}", &text[2..]),
            &format!("+{}", &text[1..]),
        ] {
            assert_eq!(BlockHash::from_hex(bad), None, "{bad}");
        }
        assert_eq!(BlockHash::from_typed(text), Some(hash));
        assert_eq!(BlockHash::from_typed(&format!("0x{text}")), Some(hash));
        assert_eq!(BlockHash::from_typed(&format!("0x0x{}", &text[2..])), None);
        assert_eq!(
            ChainId::bitcoin(&hash, None).as_str(),
            "bip122:000000000019d6689c085ae165831e93"
        );
        let own = ChainId::bitcoin(&hash, Some("shop"));
        assert_eq!(own.as_str(), "bip122:000000000019d6689c085ae165831e93@shop");
        assert_eq!(own.caip2(), "bip122:000000000019d6689c085ae165831e93");
        assert!(!own.is_evm());
    }

    #[test]
    fn evm_chains_and_assets_have_caip_ids() {
        let ethereum = ChainId::evm(1, None);
        assert_eq!(ethereum.as_str(), "eip155:1");
        assert!(ethereum.is_evm());
        let hash = Txid([0xab; 32]);
        assert_eq!(ethereum.print(hash), format!("0x{}", "ab".repeat(32)));
        let bitcoin = ChainId::from_stored("bip122:00".to_owned());
        assert_eq!(bitcoin.print(hash), "ab".repeat(32));
        assert_eq!(ethereum.evm_coin(60), "eip155:1/slip44:60");
        let dev = ChainId::evm(31_337, Some("shop"));
        assert_eq!(dev.as_str(), "eip155:31337@shop");
        let contract = [0xab; 20];
        assert_eq!(
            dev.erc20(&contract),
            format!("eip155:31337/erc20:0x{}", "ab".repeat(20))
        );
    }

    #[test]
    fn ids_differ_when_any_part_differs() {
        let chain = ChainId::from_stored("bip122:a".into());
        let outpoint = Outpoint {
            txid: Txid([7; 32]),
            vout: 1,
        };
        let other = Outpoint { vout: 2, ..outpoint };
        assert_ne!(credit_id(&chain, &outpoint), credit_id(&chain, &other));
        assert_ne!(
            credit_id(&chain, &outpoint)[3..],
            deposit_id(&chain, &outpoint)[4..]
        );
        assert_ne!(event_id("ab", "c", 1), event_id("a", "bc", 1));
        assert_ne!(event_id("a", "b", 1), event_id("a", "b", 2));
        assert_eq!(credit_id(&chain, &outpoint).len(), 3 + 40);
    }
}
