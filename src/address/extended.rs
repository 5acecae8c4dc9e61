//! Extended public keys as wallets write them: `xpub` and its kin of SLIP 132, whose first letter says what
//! kind of address the wallet makes of it.

use super::SourceError;
use bitcoincore_rpc::bitcoin::NetworkKind;
use bitcoincore_rpc::bitcoin::base58;
use bitcoincore_rpc::bitcoin::bip32::Xpub;

/// The kinds of address that one key makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// BIP 44: `1...`.
    Pkh,
    /// BIP 49: `3...`.
    ShWpkh,
    /// BIP 84: `bc1q...`.
    Wpkh,
    /// BIP 86: `bc1p...`.
    Tr,
}

impl ScriptKind {
    const ALL: [ScriptKind; 4] = [
        ScriptKind::Pkh,
        ScriptKind::ShWpkh,
        ScriptKind::Wpkh,
        ScriptKind::Tr,
    ];

    /// The word in the config.
    pub fn word(self) -> &'static str {
        match self {
            ScriptKind::Pkh => "pkh",
            ScriptKind::ShWpkh => "sh-wpkh",
            ScriptKind::Wpkh => "wpkh",
            ScriptKind::Tr => "tr",
        }
    }

    /// Reads [`ScriptKind::word`] back.
    pub fn from_word(word: &str) -> Option<ScriptKind> {
        ScriptKind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The descriptor of a key expression.
    pub(super) fn descriptor(self, key: &str) -> String {
        match self {
            ScriptKind::Pkh => format!("pkh({key})"),
            ScriptKind::ShWpkh => format!("sh(wpkh({key}))"),
            ScriptKind::Wpkh => format!("wpkh({key})"),
            ScriptKind::Tr => format!("tr({key})"),
        }
    }
}

/// An extended public key, and what its spelling says.
pub(super) struct Extended {
    pub(super) key: Xpub,
    /// `None` for `xpub` and `tpub`, which wallets use for all kinds.
    pub(super) says: Option<ScriptKind>,
    /// The bytes of BIP 32.
    pub(super) bytes: [u8; 78],
}

/// The version bytes of SLIP 132 and what they say.
const VERSIONS: [([u8; 4], NetworkKind, Option<ScriptKind>); 6] = [
    ([0x04, 0x88, 0xb2, 0x1e], NetworkKind::Main, None),
    (
        [0x04, 0x9d, 0x7c, 0xb2],
        NetworkKind::Main,
        Some(ScriptKind::ShWpkh),
    ),
    (
        [0x04, 0xb2, 0x47, 0x46],
        NetworkKind::Main,
        Some(ScriptKind::Wpkh),
    ),
    ([0x04, 0x35, 0x87, 0xcf], NetworkKind::Test, None),
    (
        [0x04, 0x4a, 0x52, 0x62],
        NetworkKind::Test,
        Some(ScriptKind::ShWpkh),
    ),
    (
        [0x04, 0x5f, 0x1c, 0xf6],
        NetworkKind::Test,
        Some(ScriptKind::Wpkh),
    ),
];

/// Those of a cosigner, whose key alone makes no address.
const COSIGNERS: [&str; 4] = ["Ypub", "Zpub", "Upub", "Vpub"];

impl Extended {
    pub(super) fn parse(text: &str) -> Result<Extended, SourceError> {
        if COSIGNERS.iter().any(|start| text.starts_with(start)) {
            return Err(SourceError::Cosigner);
        }
        let bytes = base58::decode_check(text).map_err(|_| SourceError::NoKey)?;
        let mut bytes: [u8; 78] = bytes.try_into().map_err(|_| SourceError::NoKey)?;
        let known = VERSIONS.iter().find(|(version, ..)| bytes.starts_with(version));
        let (_, network, says) = known.ok_or(SourceError::NoKey)?;
        bytes[..4].copy_from_slice(match network {
            NetworkKind::Main => &VERSIONS[0].0,
            NetworkKind::Test => &VERSIONS[3].0,
        });
        let key = Xpub::decode(&bytes).map_err(|_| SourceError::NoKey)?;
        Ok(Extended {
            key,
            says: *says,
            bytes,
        })
    }

    /// What follows the key down to its addresses to receive on: of an account first the branch for those.
    pub(super) fn branch(&self) -> Result<&'static [u32], SourceError> {
        match self.key.depth {
            3 => Ok(&[0]),
            4 => Ok(&[]),
            other => Err(SourceError::Depth(other)),
        }
    }
}
