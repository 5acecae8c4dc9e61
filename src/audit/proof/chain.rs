//! The chain that a file names.

use crate::address::{self, EvmAddress, Network};
use crate::chain::bitcoin::is_plain;
use crate::rules::{ChainId, Script};

/// A chain's id as it can be written.
///
/// # Errors
/// Why there is no such chain. A second name of one chain would make one payment two credits.
pub fn chain(text: &str) -> Result<ChainId, &'static str> {
    let id = ChainId::from_stored(text.to_owned());
    let instance = text.split_once('@').map(|(_, instance)| instance);
    if !instance.is_none_or(is_plain) {
        return Err("the name of its instance has other signs than letters, digits, - and _");
    }
    if let Some(digits) = id.evm_id() {
        let is_number = digits
            .parse::<u64>()
            .is_ok_and(|number| number.to_string() == digits);
        return match is_number && digits != "0" {
            true => Ok(id),
            false => Err("its number is none of a chain"),
        };
    }
    match (network(&id), instance) {
        (None, _) => Err("it is neither of Ethereum's kind nor a Bitcoin network that is known"),
        (Some(Network::Main | Network::Testnet4), Some(_)) => Err("there is only one: no instance"),
        (Some(Network::Regtest), None) => Err("regtest has an instance"),
        (Some(_), _) => Ok(id),
    }
}

/// The network that a chain's id begins with; an EVM chain has none.
pub(super) fn network(chain: &ChainId) -> Option<Network> {
    let genesis = chain.caip2().strip_prefix("bip122:")?;
    let begins = |network: &Network| network.genesis().to_string().get(..32) == Some(genesis);
    Network::ALL.into_iter().find(begins)
}

/// The address of a script there.
pub(super) fn print_address(chain: &ChainId, script: &Script) -> Option<String> {
    match chain.is_evm() {
        true => EvmAddress::of_script(script).map(|address| address.to_string()),
        false => address::print(network(chain)?, script),
    }
}
