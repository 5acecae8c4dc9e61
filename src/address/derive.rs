//! Where addresses to hand out are derived from: an output descriptor or an account key that only watches.
//! Whatever holds a private key is refused, and no refusal shows what was written.

use super::evm_key::EvmKey;
use super::extended::{Extended, ScriptKind};
use super::private::holds_private_key;
use super::{Network, print};
use crate::rules::Script;
use bitcoincore_rpc::bitcoin::NetworkKind;
use bitcoincore_rpc::bitcoin::secp256k1::{Secp256k1, VerifyOnly};
use miniscript::ForEachKey as _;
use miniscript::descriptor::{Descriptor, DescriptorPublicKey, DescriptorType, Wildcard};
use sha2::{Digest as _, Sha256};
use std::str::FromStr as _;
use thiserror::Error;

/// Why addresses cannot be derived from what was written. The texts name none of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// It could spend.
    #[error(
        "holds a private key or what looks like one (not shown): creditd only watches; write the public key, \
         and take the private one to be known to whoever can read this file"
    )]
    Private,
    /// Not an extended public key.
    #[error("not an extended public key such as xpub..., or a letter of it is wrong")]
    NoKey,
    /// A key that makes addresses only with others.
    #[error("the key of one cosigner makes no address: write the whole descriptor")]
    Cosigner,
    /// Neither an account's key nor that of its branch to receive on.
    #[error(
        "a key of depth {0}: allowed are the key of an account (depth 3) and of its branch to receive on \
         (depth 4); for others write a descriptor"
    )]
    Depth(u8),
    /// `xpub` and `tpub` do not say what kind of address the wallet makes.
    #[error(
        "does not say what kind of address it is for: script must be \"pkh\", \"sh-wpkh\", \"wpkh\" or \"tr\""
    )]
    NoScript,
    /// What the key's spelling says and what is written beside it differ.
    #[error("the key is for {says}, and script says {written}")]
    OtherScript {
        /// By its first letter.
        says: &'static str,
        /// In the config.
        written: &'static str,
    },
    /// A key of another network.
    #[error("a key of {found}, but this chain is {expected}")]
    OtherNetwork {
        /// The chain's network.
        expected: Network,
        /// Where the key belongs.
        found: &'static str,
    },
    /// Only `xpub` has a meaning there.
    #[error("on EVM chains allowed: an xpub (m/44'/60'/0' or its branch /0)")]
    NotForEvm,
    /// Not a descriptor.
    #[error("not an output descriptor{}", detail(.0))]
    NoDescriptor(String),
    /// It has one address alone.
    #[error("has no wildcard: end its keys with /*")]
    NoWildcard,
    /// `/*'`, which needs the private key, or `<0;1>`, which is two descriptors.
    #[error("{0}")]
    Wildcard(&'static str),
    /// Such as bare scripts.
    #[error("its scripts have no address that somebody could pay to")]
    NoAddress,
}

fn detail(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(": {why}"),
    }
}

/// A text of a library is passed on only where it quotes nothing long.
fn harmless(why: &str) -> String {
    let longest = why
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .map(str::len)
        .max();
    match longest {
        Some(0..40) => why.to_owned(),
        Some(_) | None => String::new(),
    }
}

/// What addresses are derived from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// An output descriptor of a chain of Bitcoin's kind.
    Descriptor(Box<Descriptor<DescriptorPublicKey>>),
    /// An account on EVM chains.
    Evm(Box<EvmKey>),
}

impl Derivation {
    /// Reads an output descriptor, with its checksum or without.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn descriptor(network: Network, text: &str) -> Result<Derivation, SourceError> {
        if holds_private_key(text) {
            return Err(SourceError::Private);
        }
        let descriptor = Descriptor::<DescriptorPublicKey>::from_str(text)
            .map_err(|error| SourceError::NoDescriptor(harmless(&error.to_string())))?;
        check_keys(network, &descriptor)?;
        let derivation = Derivation::Descriptor(Box::new(descriptor));
        let first = derivation.scripts(0, 1);
        match first
            .first()
            .is_some_and(|script| print(network, script).is_some())
        {
            true => Ok(derivation),
            false => Err(SourceError::NoAddress),
        }
    }

    /// Reads an extended public key of a chain of Bitcoin's kind; `script` is needed where its spelling does
    /// not say what kind of address it is for.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn extended_key(
        network: Network,
        text: &str,
        script: Option<ScriptKind>,
    ) -> Result<Derivation, SourceError> {
        if holds_private_key(text) {
            return Err(SourceError::Private);
        }
        let extended = Extended::parse(text)?;
        let kind = match (extended.says, script) {
            (None, None) => return Err(SourceError::NoScript),
            (Some(says), Some(written)) if says != written => {
                let (says, written) = (says.word(), written.word());
                return Err(SourceError::OtherScript { says, written });
            }
            (Some(kind), _) | (None, Some(kind)) => kind,
        };
        let mut key = extended.key.to_string();
        for step in extended.branch()? {
            key.push_str(&format!("/{step}"));
        }
        Derivation::descriptor(network, &kind.descriptor(&format!("{key}/*")))
    }

    /// Reads an account's extended public key for EVM chains.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn evm(text: &str) -> Result<Derivation, SourceError> {
        if holds_private_key(text) {
            return Err(SourceError::Private);
        }
        Ok(Derivation::Evm(Box::new(EvmKey::parse(text)?)))
    }

    /// What it is, in one spelling: of a descriptor with its checksum, as nodes take it.
    pub fn text(&self) -> String {
        match self {
            Derivation::Descriptor(descriptor) => descriptor.to_string(),
            Derivation::Evm(key) => key.text(),
        }
    }

    /// What the database pins it by.
    pub fn pin(&self) -> [u8; 32] {
        Sha256::digest(self.text()).into()
    }

    /// The scripts of `count` indexes from `first` on. Fewer where BIP 32 has no key for one, which a caller
    /// takes for a derivation that failed.
    pub fn scripts(&self, first: u32, count: u32) -> Vec<Script> {
        let secp = Secp256k1::verification_only();
        (first..first.saturating_add(count))
            .map_while(|index| self.script(&secp, index))
            .collect()
    }

    fn script(&self, secp: &Secp256k1<VerifyOnly>, index: u32) -> Option<Script> {
        match self {
            Derivation::Descriptor(descriptor) => {
                let derived = descriptor.derived_descriptor(secp, index).ok()?;
                Some(Script(derived.script_pubkey().into_bytes().into()))
            }
            Derivation::Evm(key) => Some(key.address(secp, index)?.script()),
        }
    }

    /// The same once more in a way of its own; `None` where only a node can do that.
    pub fn scripts_again(&self, first: u32, count: u32) -> Option<Vec<Script>> {
        match self {
            Derivation::Descriptor(_) => None,
            Derivation::Evm(key) => {
                let all = first..first.saturating_add(count);
                Some(
                    all.map_while(|index| Some(key.address_again(index)?.script()))
                        .collect(),
                )
            }
        }
    }
}

fn check_keys(network: Network, descriptor: &Descriptor<DescriptorPublicKey>) -> Result<(), SourceError> {
    if descriptor.desc_type() == DescriptorType::Bare {
        return Err(SourceError::NoAddress);
    }
    if descriptor.is_multipath() {
        return Err(SourceError::Wildcard(
            "stands for two descriptors (<0;1>): write the one to receive on, /0/*",
        ));
    }
    // The library counts `/*h` for no step, and deriving from it would panic.
    let is_hardened = |key: &DescriptorPublicKey| match key {
        DescriptorPublicKey::XPub(inner) => inner.wildcard == Wildcard::Hardened || key.has_hardened_step(),
        DescriptorPublicKey::Single(_) | DescriptorPublicKey::MultiXPub(_) => key.has_hardened_step(),
    };
    if descriptor.for_any_key(is_hardened) {
        return Err(SourceError::Wildcard(
            "has a hardened step after its key, which needs the private one: write the account's key",
        ));
    }
    if !descriptor.has_wildcard() {
        return Err(SourceError::NoWildcard);
    }
    let (expected, found) = match network {
        Network::Main => (NetworkKind::Main, "testnet4, signet or regtest"),
        Network::Testnet4 | Network::Signet | Network::Regtest => (NetworkKind::Test, "main"),
    };
    let is_other = |key: &DescriptorPublicKey| match key {
        DescriptorPublicKey::XPub(key) => key.xkey.network != expected,
        DescriptorPublicKey::Single(_) | DescriptorPublicKey::MultiXPub(_) => false,
    };
    if descriptor.for_any_key(is_other) {
        let expected = network;
        return Err(SourceError::OtherNetwork { expected, found });
    }
    descriptor
        .sanity_check()
        .map_err(|error| SourceError::NoDescriptor(harmless(&error.to_string())))
}
