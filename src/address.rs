//! Addresses, text to script and back: Bitcoin's here, those of EVM chains as [`EvmAddress`]. Scripts are
//! what is stored and compared; an address is only how people write one, so every spelling of it becomes the
//! same bytes here and nothing else in creditd compares addresses.

mod derive;
mod evm;
mod evm_key;
mod extended;
mod private;
mod uri;

pub use derive::{Derivation, SourceError};
pub use evm::EvmAddress;
pub use extended::ScriptKind;
pub use private::holds_private_key;
pub use uri::{Payable, payment_uri};

use crate::rules::{BlockHash, ChainId, Script};
use bitcoincore_rpc::bitcoin::base58;
use bitcoincore_rpc::bitcoin::bech32::primitives::decode::SegwitHrpstringError;
use bitcoincore_rpc::bitcoin::bech32::primitives::decode::{CharError, UncheckedHrpstringError};
use bitcoincore_rpc::bitcoin::bech32::{Fe32, Hrp, segwit};
use thiserror::Error;

/// A kind of Bitcoin network, as far as addresses and genesis blocks tell networks apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// Bitcoin itself.
    Main,
    /// The fourth public test network.
    Testnet4,
    /// The default signet, or one with a challenge of its own.
    Signet,
    /// A private chain that mines on demand.
    Regtest,
}

impl Network {
    /// All of them.
    pub const ALL: [Network; 4] = [
        Network::Main,
        Network::Testnet4,
        Network::Signet,
        Network::Regtest,
    ];

    /// The name in the config and in `getblockchaininfo`'s language for people.
    pub fn name(self) -> &'static str {
        match self {
            Network::Main => "main",
            Network::Testnet4 => "testnet4",
            Network::Signet => "signet",
            Network::Regtest => "regtest",
        }
    }

    /// The network of that name.
    pub fn from_name(name: &str) -> Option<Network> {
        Network::ALL.into_iter().find(|network| network.name() == name)
    }

    /// The hash of its first block. All signets share one, and so do all regtests.
    pub fn genesis(self) -> BlockHash {
        BlockHash(match self {
            Network::Main => {
                const { hex32("000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f") }
            }
            Network::Testnet4 => {
                const { hex32("00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043") }
            }
            Network::Signet => {
                const { hex32("00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6") }
            }
            Network::Regtest => {
                const { hex32("0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206") }
            }
        })
    }

    /// The network that begins with this block.
    pub fn of_genesis(genesis: &BlockHash) -> Option<Network> {
        Network::ALL
            .into_iter()
            .find(|network| network.genesis() == *genesis)
    }

    /// The part before the `1` of its bech32 addresses (BIP 173).
    fn bech32_prefix(self) -> &'static str {
        match self {
            Network::Main => "bc",
            Network::Testnet4 | Network::Signet => "tb",
            Network::Regtest => "bcrt",
        }
    }

    /// The version bytes of its P2PKH and P2SH addresses.
    fn base58_versions(self) -> (u8, u8) {
        match self {
            Network::Main => (0x00, 0x05),
            Network::Testnet4 | Network::Signet | Network::Regtest => (0x6f, 0xc4),
        }
    }
}

/// The address of a script on a chain, in its canonical spelling; `None` where it has none.
pub fn print_on(chain: &ChainId, genesis: Option<&BlockHash>, script: &Script) -> Option<String> {
    if chain.is_evm() {
        return EvmAddress::of_script(script).map(|address| address.to_string());
    }
    print(Network::of_genesis(genesis?)?, script)
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a text is not an address of the network. [`code`](AddressError::code) is stable, the text is for
/// people.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The checksum does not fit: a letter is wrong, missing, or was changed to the other case.
    #[error("checksum does not fit: a letter is wrong, missing or in the wrong case")]
    BadChecksum,
    /// Upper and lower case in one bech32 address, which BIP 173 forbids.
    #[error("upper and lower case mixed in a bech32 address")]
    MixedCase,
    /// An address of another network.
    #[error("an address of {found}, but this chain is {expected}")]
    WrongNetwork {
        /// The chain's network.
        expected: Network,
        /// The network or networks that the address belongs to.
        found: &'static str,
    },
    /// Nothing that we know.
    #[error("not a Bitcoin address")]
    Unknown,
    /// Nothing that an EVM chain knows.
    #[error("not an address of an EVM chain: 0x and 40 hex digits")]
    NotEvm,
}

impl AddressError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            AddressError::BadChecksum => "bad_address_checksum",
            AddressError::MixedCase => "mixed_case_address",
            AddressError::WrongNetwork { .. } => "wrong_network",
            AddressError::Unknown | AddressError::NotEvm => "unknown_address",
        }
    }
}

/// The longest text that is looked at: BIP 173 ends at 90, base58 addresses are shorter.
const TEXT_BYTES_MAX: usize = 90;

/// The script that an address of `network` stands for.
///
/// # Errors
/// [`AddressError`]; in particular nothing is corrected or guessed.
pub fn parse(network: Network, text: &str) -> Result<Script, AddressError> {
    if text.len() > TEXT_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(AddressError::Unknown);
    }
    match bech32_prefix(text) {
        Some(prefix) => parse_segwit(network, prefix, text),
        None => parse_base58(network, text),
    }
}

/// The canonical spelling of a script's address; `None` for scripts that have none.
pub fn print(network: Network, script: &Script) -> Option<String> {
    let (pubkey_version, script_version) = network.base58_versions();
    match *script.0 {
        [0x76, 0xa9, 0x14, ref hash @ .., 0x88, 0xac] if hash.len() == 20 => {
            Some(base58_text(pubkey_version, hash))
        }
        [0xa9, 0x14, ref hash @ .., 0x87] if hash.len() == 20 => Some(base58_text(script_version, hash)),
        [opcode, length, ref program @ ..] if usize::from(length) == program.len() => {
            let version = Fe32::try_from(witness_version(opcode)?).ok()?;
            let prefix = Hrp::parse(network.bech32_prefix()).ok()?;
            segwit::encode(prefix, version, program).ok()
        }
        _ => None,
    }
}

/// What follows for base58 alphabets: `1` is a base58 digit too, so only a prefix that we know makes it
/// bech32.
fn bech32_prefix(text: &str) -> Option<&'static str> {
    let (prefix, _) = text.split_once('1')?;
    ["bc", "tb", "bcrt"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(prefix))
}

fn parse_segwit(network: Network, prefix: &'static str, text: &str) -> Result<Script, AddressError> {
    let (_, version, program) = segwit::decode(text).map_err(|error| match error.0 {
        SegwitHrpstringError::Unchecked(UncheckedHrpstringError::Char(CharError::MixedCase)) => {
            AddressError::MixedCase
        }
        // A text that no correction of letters would make an address.
        SegwitHrpstringError::InvalidWitnessVersion(_)
        | SegwitHrpstringError::Padding(_)
        | SegwitHrpstringError::WitnessLength(_)
        | SegwitHrpstringError::TooLong(_) => AddressError::Unknown,
        _ => AddressError::BadChecksum,
    })?;
    if prefix != network.bech32_prefix() {
        let found = match prefix {
            "bc" => "main",
            "tb" => "testnet4 or signet",
            _ => "regtest",
        };
        return Err(AddressError::WrongNetwork {
            expected: network,
            found,
        });
    }
    let mut script = Vec::with_capacity(2 + program.len());
    script.push(match version.to_u8() {
        0 => 0,
        version => 0x50 + version, // OP_1 to OP_16
    });
    script.push(u8::try_from(program.len()).map_err(|_| AddressError::Unknown)?);
    script.extend_from_slice(&program);
    Ok(Script(script.into()))
}

fn parse_base58(network: Network, text: &str) -> Result<Script, AddressError> {
    let bytes = base58::decode_check(text).map_err(|error| {
        // Letters that base58 leaves out (0 O I l), or a length that is no address's: only a text of about
        // the right length is taken for an address with a mistake in it.
        let is_close = (26..=36).contains(&text.len());
        match error {
            base58::Error::IncorrectChecksum(_) if is_close => AddressError::BadChecksum,
            base58::Error::Decode(_) if is_close && starts_like_base58(text) => AddressError::BadChecksum,
            _ => AddressError::Unknown,
        }
    })?;
    let [version, ref hash @ ..] = bytes[..] else {
        return Err(AddressError::Unknown);
    };
    if hash.len() != 20 {
        return Err(AddressError::Unknown);
    }
    let (is_pubkey_hash, found) = match version {
        0x00 => (true, "main"),
        0x05 => (false, "main"),
        0x6f => (true, "testnet4, signet or regtest"),
        0xc4 => (false, "testnet4, signet or regtest"),
        _ => return Err(AddressError::Unknown),
    };
    let (pubkey_version, script_version) = network.base58_versions();
    if version != pubkey_version && version != script_version {
        return Err(AddressError::WrongNetwork {
            expected: network,
            found,
        });
    }
    Ok(Script(if is_pubkey_hash {
        [&[0x76, 0xa9, 0x14], hash, &[0x88, 0xac]].concat().into()
    } else {
        [&[0xa9, 0x14], hash, &[0x87]].concat().into()
    }))
}

fn starts_like_base58(text: &str) -> bool {
    text.starts_with(['1', '3', 'm', 'n', '2'])
}

fn base58_text(version: u8, hash: &[u8]) -> String {
    base58::encode_check(&[&[version], hash].concat())
}

/// OP_0 and OP_1 to OP_16 as witness versions.
fn witness_version(opcode: u8) -> Option<u8> {
    match opcode {
        0 => Some(0),
        0x51..=0x60 => Some(opcode - 0x50),
        _ => None,
    }
}

/// Reads 64 lower-case hex digits of our own.
const fn hex32(text: &str) -> [u8; 32] {
    let text = text.as_bytes();
    assert!(text.len() == 64, "64 hex digits");
    let mut bytes = [0; 32];
    let mut at = 0;
    while at < 64 {
        let digit = match text[at] {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            _ => panic!("a lower-case hex digit"),
        };
        bytes[at / 2] = bytes[at / 2] * 16 + digit;
        at += 1;
    }
    bytes
}
