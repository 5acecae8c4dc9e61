//! Addresses of EVM chains: 20 bytes, written as 40 hex digits whose letters may carry a checksum in their
//! case (EIP-55). The bytes are what is stored and compared.

use super::AddressError;
use crate::rules::Script;
use ethers_core::types::H160;
use ethers_core::utils::to_checksum;

/// The 20 bytes of an account or contract. Prints in the one spelling that is shown, with its checksum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvmAddress(pub [u8; 20]);

impl EvmAddress {
    /// Reads an address in any spelling that says something: all letters lower case, all upper case, or mixed
    /// with the checksum right. Digits alone are all three.
    ///
    /// # Errors
    /// [`AddressError::BadChecksum`] for mixed case that is no checksum, [`AddressError::NotEvm`] for
    /// everything else; nothing is corrected or guessed.
    pub fn parse(text: &str) -> Result<EvmAddress, AddressError> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = digits.ok_or(AddressError::NotEvm)?;
        let mut bytes = [0; 20];
        // Without this `0x0x...` would be read: the decoder takes a prefix too.
        if digits.len() != 40 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(AddressError::NotEvm);
        }
        const_hex::decode_to_slice(digits, &mut bytes).map_err(|_| AddressError::NotEvm)?;
        let address = EvmAddress(bytes);
        let has = |of_case: fn(&u8) -> bool| digits.as_bytes().iter().any(of_case);
        let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
        if is_mixed && address.to_string().get(2..) != Some(digits) {
            return Err(AddressError::BadChecksum);
        }
        Ok(address)
    }

    /// What is stored and compared.
    pub fn script(&self) -> Script {
        Script(self.0.into())
    }

    /// The address that a stored script is; `None` where its length is another.
    pub fn of_script(script: &Script) -> Option<EvmAddress> {
        <[u8; 20]>::try_from(&*script.0).ok().map(EvmAddress)
    }
}

impl std::fmt::Display for EvmAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_checksum(&H160(self.0), None))
    }
}

impl std::fmt::Debug for EvmAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
