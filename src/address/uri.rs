//! Payment URIs, which wallets open and QR codes carry: BIP 21 for bitcoin, EIP-681 for coin and tokens of
//! EVM chains. Amounts are integers or exact decimals, and addresses stand as they are printed everywhere
//! else, so that what is scanned can be compared with what is shown.

use super::EvmAddress;
use crate::rules::{Amount, Asset, ChainId};
use std::fmt::Write as _;

/// Bitcoin's number of decimals: BIP 21 counts in whole bitcoins.
const BITCOIN_DECIMALS: u8 = 8;

/// The longest message that a URI carries. Each byte makes its QR code denser, a percent-encoded one thrice.
const MESSAGE_BYTES_MAX: usize = 64;

/// What is to be paid, and where.
#[derive(Clone, Copy, Debug)]
pub struct Payable<'a> {
    /// The chain.
    pub chain: &'a ChainId,
    /// Who is paid, as people write it.
    pub address: &'a str,
    /// The coin, or a token.
    pub asset: Asset,
    /// Base units.
    pub amount: Amount,
    /// What it is for, as the payer's wallet may show it: by BIP 21 alone, and only where it is one short
    /// line.
    pub message: &'a str,
}

/// The URI of a payment; `None` on chains that no wallet pays on.
pub fn payment_uri(payable: &Payable<'_>) -> Option<String> {
    if payable.chain.is_external() {
        return None;
    }
    Some(match payable.chain.evm_id() {
        Some(chain_id) => evm(payable, chain_id),
        None => bitcoin(payable),
    })
}

fn bitcoin(payable: &Payable<'_>) -> String {
    let (address, message) = (payable.address, payable.message);
    let amount = payable.amount.to_units_string(BITCOIN_DECIMALS);
    let mut uri = format!("bitcoin:{address}?amount={amount}");
    let is_line = !message.is_empty() && !message.chars().any(char::is_control);
    if is_line && message.len() <= MESSAGE_BYTES_MAX {
        uri.push_str("&message=");
        push_encoded(&mut uri, message);
    }
    uri
}

fn evm(payable: &Payable<'_>, chain_id: &str) -> String {
    let (address, amount) = (payable.address, payable.amount);
    match payable.asset {
        Asset::Native => format!("ethereum:{address}@{chain_id}?value={amount}"),
        Asset::Token(contract) => {
            let token = EvmAddress(contract);
            format!("ethereum:{token}@{chain_id}/transfer?address={address}&uint256={amount}")
        }
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn push_encoded(uri: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Network;

    const MAX: &str = "115792089237316195423570985008687907853269984665640564039457584007913129639935";

    fn bitcoin_chain(network: Network) -> ChainId {
        ChainId::bitcoin(&network.genesis(), None)
    }

    #[test]
    fn bitcoin_uris_are_those_of_bip_21() {
        let segwit = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4";
        let regtest = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
        let long = "x".repeat(65);
        for (network, address, base, message, rest) in [
            (Network::Main, segwit, "29000000", "", "?amount=0.29"),
            (Network::Main, segwit, "1", "", "?amount=0.00000001"),
            (Network::Main, segwit, "100000000", "", "?amount=1"),
            (Network::Main, segwit, "2100000000000000", "", "?amount=21000000"),
            (
                Network::Main,
                segwit,
                "2099999997690001",
                "",
                "?amount=20999999.97690001",
            ),
            (Network::Main, segwit, "10", "", "?amount=0.0000001"),
            (
                Network::Main,
                "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2",
                "3",
                "",
                "?amount=0.00000003",
            ),
            (
                Network::Testnet4,
                "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx",
                "3",
                "",
                "?amount=0.00000003",
            ),
            (
                Network::Regtest,
                regtest,
                "5",
                "order-7",
                "?amount=0.00000005&message=order-7",
            ),
            (
                Network::Regtest,
                regtest,
                "5",
                "a b&c=d?#%+",
                "?amount=0.00000005&message=a%20b%26c%3Dd%3F%23%25%2B",
            ),
            (
                Network::Regtest,
                regtest,
                "5",
                "<é>",
                "?amount=0.00000005&message=%3C%C3%A9%3E",
            ),
            (Network::Regtest, regtest, "5", "two\nlines", "?amount=0.00000005"),
            (Network::Regtest, regtest, "5", &long, "?amount=0.00000005"),
        ] {
            let payable = Payable {
                chain: &bitcoin_chain(network),
                address,
                asset: Asset::Native,
                amount: Amount::from_base_str(base).unwrap(),
                message,
            };
            assert_eq!(payment_uri(&payable), Some(format!("bitcoin:{address}{rest}")));
        }
    }

    #[test]
    fn evm_uris_are_those_of_eip_681() {
        let address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
        let token = Asset::Token(
            EvmAddress::parse("0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48")
                .unwrap()
                .0,
        );
        let of_token = "ethereum:0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48";
        for (chain, asset, base, expected) in [
            (
                ChainId::evm(1, None),
                Asset::Native,
                "2014000000000000000",
                format!("ethereum:{address}@1?value=2014000000000000000"),
            ),
            (
                ChainId::evm(31_337, Some("dev")),
                Asset::Native,
                "1",
                format!("ethereum:{address}@31337?value=1"),
            ),
            (
                ChainId::evm(8_453, None),
                token,
                "1500000",
                format!("{of_token}@8453/transfer?address={address}&uint256=1500000"),
            ),
            (
                ChainId::evm(1, None),
                token,
                MAX,
                format!("{of_token}@1/transfer?address={address}&uint256={MAX}"),
            ),
        ] {
            let payable = Payable {
                chain: &chain,
                address,
                asset,
                amount: Amount::from_base_str(base).unwrap(),
                message: "never here",
            };
            assert_eq!(payment_uri(&payable), Some(expected));
        }
    }

    #[test]
    fn nobody_pays_at_a_source_of_webhooks() {
        let payable = Payable {
            chain: &ChainId::external("exchange"),
            address: "x",
            asset: Asset::Native,
            amount: Amount::from_u64(1),
            message: "",
        };
        assert_eq!(payment_uri(&payable), None);
    }
}
