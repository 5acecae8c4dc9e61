//! What the config says of addresses to hand out: from which key or list, for which chain and merchant.

use crate::address::{self, Derivation, EvmAddress, Network, holds_private_key};
use crate::rules::{ChainId, Script};
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use thiserror::Error;

/// One source of addresses to hand out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSource {
    /// Its name, by which the database pins it.
    pub name: String,
    /// Where its addresses are watched.
    pub scope: Scope,
    /// For this merchant alone; `None` = for each that has no source of its own.
    pub merchant: Option<String>,
    /// How many are kept ready.
    pub pool_size: u32,
    /// What they come from.
    pub from: SourceFrom,
}

/// Where addresses of a source are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On one chain of Bitcoin's kind.
    Bitcoin {
        /// The chain.
        chain: ChainId,
        /// Its network.
        network: Network,
    },
    /// On all EVM chains of the config.
    Evm,
}

impl Scope {
    /// How the database names it.
    pub fn word(&self) -> String {
        match self {
            Scope::Bitcoin { chain, .. } => chain.to_string(),
            Scope::Evm => "evm".to_owned(),
        }
    }

    /// What an address of it stands for.
    fn script(&self, text: &str) -> Result<Script, address::AddressError> {
        match self {
            Scope::Bitcoin { network, .. } => address::parse(*network, text),
            Scope::Evm => Ok(EvmAddress::parse(text)?.script()),
        }
    }

    /// How people write a script of it.
    pub fn address(&self, script: &Script) -> Option<String> {
        match self {
            Scope::Bitcoin { network, .. } => address::print(*network, script),
            Scope::Evm => EvmAddress::of_script(script).map(|address| address.to_string()),
        }
    }
}

/// What addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFrom {
    /// They are derived.
    Derived(Derivation),
    /// They are in this file, one a line.
    List(PathBuf),
}

/// Why a list of addresses cannot be used.
#[derive(Debug, Error)]
pub enum ListError {
    /// It cannot be read.
    #[error("read the list of addresses {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line of it is none.
    #[error("{}, line {line}: {what}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it; never what it says.
        what: String,
    },
    /// It names no address.
    #[error("{} names no address", .0.display())]
    Empty(PathBuf),
}

/// A larger list is somebody's mistake.
const LIST_BYTES_MAX: u64 = 256 << 20;

impl AddressSource {
    /// What the database pins it by: what it derives from, and of a list its first address, for the file may
    /// grow at its end.
    ///
    /// # Errors
    /// The list cannot be used.
    pub fn pin(&self) -> Result<[u8; 32], ListError> {
        match &self.from {
            SourceFrom::Derived(derivation) => Ok(derivation.pin()),
            SourceFrom::List(_) => {
                let list = self.list()?;
                let first = list.first().map(|script| script.0.to_vec()).unwrap_or_default();
                Ok(Sha256::digest([b"list ".to_vec(), first].concat()).into())
            }
        }
    }

    /// The scripts of a list in its order; none of a source that derives.
    ///
    /// # Errors
    /// The list cannot be used: one faulty line is enough, for what comes after it would be counted wrong.
    pub fn list(&self) -> Result<Vec<Script>, ListError> {
        let SourceFrom::List(file) = &self.from else {
            return Ok(Vec::new());
        };
        let unreadable = |source| ListError::Unreadable {
            file: file.clone(),
            source,
        };
        let bytes = file.metadata().map_err(unreadable)?.len();
        if bytes > LIST_BYTES_MAX {
            return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
        }
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        let mut scripts = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line_text = line.trim();
            if line_text.is_empty() || line_text.starts_with('#') {
                continue;
            }
            let faulty = |what: String| ListError::Line {
                file: file.clone(),
                line: at + 1,
                what,
            };
            if holds_private_key(line_text) {
                return Err(faulty(
                    "a private key, or what looks like one (not shown)".to_owned(),
                ));
            }
            let script = self.scope.script(line_text);
            scripts.push(script.map_err(|error| faulty(error.to_string()))?);
        }
        match scripts.is_empty() {
            true => Err(ListError::Empty(file.clone())),
            false => Ok(scripts),
        }
    }
}
