//! `deriveaddresses`: the addresses of an output descriptor, which creditd asks a node for before it hands
//! one out. Codes and texts are the node's
//! (<https://github.com/bitcoin/bitcoin/blob/v29.0/src/rpc/output_script.cpp>).

use super::chain::Chain;
use super::front::RpcError;
use super::question::Args;
use bitcoincore_rpc::bitcoin::Network;
use bitcoincore_rpc::bitcoin::secp256k1::Secp256k1;
use miniscript::ForEachKey as _;
use miniscript::descriptor::checksum::desc_checksum;
use miniscript::descriptor::{Descriptor, DescriptorPublicKey, DescriptorType, Wildcard};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::str::FromStr as _;

/// So many at a time.
const COUNT_MAX: i64 = 1_000_000;

pub(super) fn derive_addresses(_: &Chain, args: &Args) -> Result<Value, RpcError> {
    let descriptor = read(args.text("descriptor"))?;
    let range = args.any("range").map(range).transpose()?;
    let indexes = match (range, descriptor.has_wildcard()) {
        (Some(range), true) => range,
        (None, false) => 0..=0,
        (Some(_), false) => {
            let why = "Range should not be specified for an un-ranged descriptor";
            return Err(RpcError::new(-8, why));
        }
        (None, true) => {
            return Err(RpcError::new(
                -8,
                "Range must be specified for a ranged descriptor",
            ));
        }
    };
    let secp = Secp256k1::verification_only();
    let addresses = indexes.map(|index| {
        let derived = descriptor.derived_descriptor(&secp, index).ok();
        let address = derived.and_then(|derived| derived.address(Network::Regtest).ok());
        let why = "Descriptor does not have a corresponding address";
        address
            .map(|address| json!(address.to_string()))
            .ok_or_else(|| RpcError::new(-5, why))
    });
    Ok(Value::Array(addresses.collect::<Result<_, _>>()?))
}

fn read(text: &str) -> Result<Descriptor<DescriptorPublicKey>, RpcError> {
    let refused = |why: String| Err(RpcError::new(-5, why));
    let Some((words, checksum)) = text.split_once('#') else {
        return refused("Missing checksum".to_owned());
    };
    match desc_checksum(words) {
        Ok(computed) if computed == checksum => {}
        Ok(_) if checksum.len() != 8 => {
            let length = checksum.len();
            return refused(format!("Expected 8 character checksum, not {length} characters"));
        }
        Ok(computed) => {
            let why = format!("Provided checksum '{checksum}' does not match computed checksum '{computed}'");
            return refused(why);
        }
        Err(_) => return refused("Invalid characters in payload".to_owned()),
    }
    let descriptor = match Descriptor::<DescriptorPublicKey>::from_str(text) {
        Ok(descriptor) => descriptor,
        Err(error) => return refused(error.to_string()),
    };
    if descriptor.is_multipath() {
        return refused("the sandbox derives from one descriptor at a time: no <0;1>".to_owned());
    }
    // The library would panic.
    let is_hardened = |key: &DescriptorPublicKey| match key {
        DescriptorPublicKey::XPub(inner) => inner.wildcard == Wildcard::Hardened || key.has_hardened_step(),
        DescriptorPublicKey::Single(_) | DescriptorPublicKey::MultiXPub(_) => key.has_hardened_step(),
    };
    if descriptor.for_any_key(is_hardened) {
        return refused("Cannot derive script without private keys".to_owned());
    }
    match descriptor.desc_type() {
        DescriptorType::Bare => refused("Descriptor does not have a corresponding address".to_owned()),
        _ => Ok(descriptor),
    }
}

/// `[first, last]`, or the last alone.
fn range(value: &Value) -> Result<RangeInclusive<u32>, RpcError> {
    let refused = |why: &str| Err(RpcError::new(-8, why));
    let (low, high) = match value {
        Value::Number(last) => (Some(0), last.as_i64()),
        Value::Array(ends) if ends.len() == 2 => (ends[0].as_i64(), ends[1].as_i64()),
        _ => return refused("Range must be specified as end or as [begin,end]"),
    };
    let (Some(low), Some(high)) = (low, high) else {
        return refused("Range must be specified as end or as [begin,end]");
    };
    if low < 0 {
        return refused("Range should be greater or equal than 0");
    }
    if low > high {
        return refused("Range specified as [begin,end] must not have begin after end");
    }
    let (Ok(first), Ok(last)) = (u32::try_from(low), u32::try_from(high)) else {
        return refused("End of range is too high");
    };
    if last > i32::MAX.unsigned_abs() {
        return refused("End of range is too high");
    }
    match high < low + COUNT_MAX {
        true => Ok(first..=last),
        false => refused("Range is too large"),
    }
}
