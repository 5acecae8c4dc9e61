//! Addresses of every kind, in every spelling, on every network. The valid ones are vectors of BIP 173, BIP
//! 350 and Bitcoin Core, or belong to private key 1.

use creditd::address::{AddressError, EvmAddress, Network, parse, print};
use creditd::rules::Script;

const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
const D2: &str = "bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6";
const D3: &str = "mrCDrCybB6J1vRfbwM5hemdJz73FwDBC8r";
/// HASH160 of the public key of private key 1.
const HASH: &str = "751e76e8199196d454941c45d1b3a323f1433bd6";

fn hex(network: Network, text: &str) -> Result<String, AddressError> {
    parse(network, text).map(|script| const_hex::encode(&script.0))
}

#[test]
fn every_kind_of_address_becomes_its_script_and_back() {
    use Network::{Main, Regtest, Signet, Testnet4};
    let taproot = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    let cases = [
        (Regtest, D1, format!("0014{HASH}")),
        (Regtest, D2, format!("5120{taproot}")),
        (Regtest, D3, format!("76a914{HASH}88ac")),
        (Testnet4, D3, format!("76a914{HASH}88ac")),
        (Signet, D3, format!("76a914{HASH}88ac")),
        (
            Main,
            "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH",
            format!("76a914{HASH}88ac"),
        ),
        (
            Main,
            "3P14159f73E4gFr7JterCCQh9QjiTjiZrG",
            "a914e9c3dd0c07aac76179ebc76a6c78d4d67c6c160a87".into(),
        ),
        (
            Main,
            "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
            format!("0014{HASH}"),
        ),
        (
            Testnet4,
            "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx",
            format!("0014{HASH}"),
        ),
        (
            Signet,
            "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx",
            format!("0014{HASH}"),
        ),
        (
            Testnet4,
            "tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3q0sl5k7",
            "00201863143c14c5166804bd19203356da136c985678cd4d27a1b8c6329604903262".into(),
        ),
        (
            Main,
            "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
            format!("5120{taproot}"),
        ),
        (Main, "bc1pfeessrawgf", "51024e73".into()),
        (Main, "bc1sw50qgdz25j", "6002751e".into()),
        (
            Main,
            "bc1zw508d6qejxtdg4y5r3zarvaryvaxxpcs",
            "5210751e76e8199196d454941c45d1b3a323".into(),
        ),
    ];
    for (network, text, script) in cases {
        assert_eq!(hex(network, text), Ok(script), "{text}");
        let parsed = parse(network, text).unwrap();
        assert_eq!(print(network, &parsed).as_deref(), Some(text));
    }
}

#[test]
fn c23_same_address_in_other_letter_case() {
    let upper = "BCRT1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KYGT080";
    assert_eq!(parse(Network::Regtest, upper), parse(Network::Regtest, D1));
    let script = parse(Network::Regtest, upper).unwrap();
    assert_eq!(
        print(Network::Regtest, &script).as_deref(),
        Some(D1),
        "one canonical spelling"
    );
    for mixed in [
        "bcrt1Qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080",
        "BCRT1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080",
        "Bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080",
        "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt08Q",
    ] {
        assert_eq!(
            hex(Network::Regtest, mixed),
            Err(AddressError::MixedCase),
            "{mixed}"
        );
    }
    for folded in [
        D3.to_lowercase(),
        D3.to_uppercase(),
        "1bggz9tcn4rm9kbzdn7kprqz87sz26samh".into(),
    ] {
        let error = parse(Network::Regtest, &folded).unwrap_err();
        assert_eq!(error.code(), "bad_address_checksum", "{folded}");
    }
}

#[test]
fn addresses_of_other_networks_are_refused_naming_both() {
    use Network::{Main, Regtest, Signet, Testnet4};
    let cases = [
        (Main, D1, "an address of regtest, but this chain is main"),
        (
            Main,
            D3,
            "an address of testnet4, signet or regtest, but this chain is main",
        ),
        (
            Regtest,
            "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH",
            "an address of main, but this chain is regtest",
        ),
        (
            Regtest,
            "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx",
            "an address of testnet4 or signet, but this chain is regtest",
        ),
        (Testnet4, D2, "an address of regtest, but this chain is testnet4"),
        (
            Signet,
            "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
            "an address of main, but this chain is signet",
        ),
    ];
    for (network, text, expected) in cases {
        let error = parse(network, text).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("wrong_network", expected),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_address_is_refused_by_name() {
    let cases = [
        ("", "unknown_address"),
        (" bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080", "unknown_address"),
        ("hello", "unknown_address"),
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "unknown_address"),
        ("751e76e8199196d454941c45d1b3a323f1433bd6", "unknown_address"),
        ("ltc1qw508d6qejxtdg4y5r3zarvary0c5xw7kgmn4n9", "unknown_address"),
        ("müller", "unknown_address"),
        ("bcrt1", "bad_address_checksum"),
        // The last letter changed; one letter dropped; two swapped.
        (
            "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt08q",
            "bad_address_checksum",
        ),
        (
            "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt08",
            "bad_address_checksum",
        ),
        (
            "bcrt1qw580d6qejxtdg4y5r3zarvary0c5xw7kygt080",
            "bad_address_checksum",
        ),
        ("mrCDrCybB6J1vRfbwM5hemdJz73FwDBC8s", "bad_address_checksum"),
        // BIP 350: version 1 with the checksum of version 0, and the other way round.
        (
            "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqh2y7hd",
            "bad_address_checksum",
        ),
        (
            "bc1q0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vq54well",
            "bad_address_checksum",
        ),
        // BIP 173 and 350: a program of a length that no output can have; version 17; one byte.
        ("bc1rw5uspcuh", "bad_address_checksum"),
        ("BC1QR508D6QEJXTDG4Y5R3ZARVARYV98GJ9P", "unknown_address"),
        (
            "BC130XLXVLHEMJA6C4DQV22UAPCTQUPFHLXM9H8Z3K2E72Q4K9HCZ7VQ7ZWS8R",
            "unknown_address",
        ),
        ("bc1pw5dgrnzv", "unknown_address"),
    ];
    for (text, code) in cases {
        for network in Network::ALL {
            let error = parse(network, text).unwrap_err();
            assert_eq!(error.code(), code, "{text:?} on {network}: {error}");
        }
    }
}

#[test]
fn scripts_without_an_address_print_none() {
    for script in [
        "",
        "00",
        "6a0b68656c6c6f20776f726c64",
        "2102ab",
        "51",
        "0015aa",
        "76a91400",
        "610200aa",
    ] {
        let bytes = const_hex::decode(script).unwrap();
        let script = creditd::rules::Script(bytes.into());
        assert_eq!(print(Network::Regtest, &script), None, "{script:?}");
    }
}

#[test]
fn agrees_with_the_bitcoin_crate_on_random_programs() {
    use bitcoincore_rpc::bitcoin;
    use proptest::prelude::*;
    let program = (0_u8..=16, proptest::collection::vec(any::<u8>(), 2..=40));
    proptest!(|((version, program) in program)| {
        let opcode = if version == 0 { 0 } else { 0x50 + version };
        let bytes = [&[opcode, u8::try_from(program.len()).unwrap()][..], &program].concat();
        let script = creditd::rules::Script(bytes.clone().into());
        let theirs = bitcoin::Address::from_script(
            bitcoin::Script::from_bytes(&bytes),
            bitcoin::Network::Regtest,
        );
        let ours = print(Network::Regtest, &script);
        prop_assert_eq!(&ours, &theirs.ok().map(|address| address.to_string()));
        if let Some(text) = ours {
            prop_assert_eq!(parse(Network::Regtest, &text), Ok(script));
        }
    });
}

#[test]
fn genesis_blocks_are_those_of_the_bitcoin_crate() {
    use bitcoincore_rpc::bitcoin;
    for network in Network::ALL {
        let theirs = match network {
            Network::Main => bitcoin::Network::Bitcoin,
            Network::Testnet4 => bitcoin::Network::Testnet4,
            Network::Signet => bitcoin::Network::Signet,
            Network::Regtest => bitcoin::Network::Regtest,
        };
        let block = bitcoin::constants::genesis_block(theirs);
        assert_eq!(network.genesis().to_string(), block.block_hash().to_string());
        assert_eq!(Network::of_genesis(&network.genesis()), Some(network));
        assert_eq!(Network::from_name(network.name()), Some(network));
    }
    assert_eq!(Network::of_genesis(&creditd::rules::BlockHash([0; 32])), None);
}

/// The examples of EIP-55.
const CHECKSUMMED: [&str; 8] = [
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
    "0xde709f2102306220921060314715629080e2fb77",
    "0x27b1fdb04752bbc536007a920d24acb045561c26",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
];

#[test]
fn c23_an_evm_address_is_the_same_bytes_in_every_spelling() {
    for text in CHECKSUMMED {
        let address = EvmAddress::parse(text).unwrap();
        let (lower, upper) = (text.to_lowercase(), text.to_uppercase());
        for spelling in [&lower, &upper, &upper.replace('X', "x")] {
            assert_eq!(EvmAddress::parse(spelling), Ok(address), "{spelling}");
        }
        assert_eq!(address.to_string(), text, "one canonical spelling");
        assert_eq!(
            address.script(),
            Script(const_hex::decode(&lower).unwrap().into())
        );
        assert_eq!(EvmAddress::of_script(&address.script()), Some(address));
    }
    let bitcoin = parse(Network::Regtest, D1).unwrap();
    assert_eq!(EvmAddress::of_script(&bitcoin), None);
}

#[test]
fn c23_one_letter_in_the_other_case_is_refused() {
    // All letters but one: what is left is mixed, or of one case and says nothing.
    for text in CHECKSUMMED {
        let letters = text.char_indices().skip(2);
        for (at, letter) in letters.filter(|(_, letter)| letter.is_ascii_alphabetic()) {
            let other = match letter.is_ascii_lowercase() {
                true => letter.to_ascii_uppercase(),
                false => letter.to_ascii_lowercase(),
            };
            let mut flipped = text.to_owned();
            flipped.replace_range(at..=at, &other.to_string());
            let error = EvmAddress::parse(&flipped).unwrap_err();
            assert_eq!(error.code(), "bad_address_checksum", "{flipped}");
        }
    }
    let given = EvmAddress::parse("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed");
    assert_eq!(given, Err(AddressError::BadChecksum));
}

#[test]
fn what_is_no_evm_address_is_refused() {
    let good = CHECKSUMMED[4];
    let cases = [
        "",
        "0x",
        &good[2..],
        &good[..41],
        &format!("{good}0"),
        &format!(" {good}"),
        &format!("{good}\n"),
        &format!("0x{good}"),
        &format!("0x0x{}", &good[4..]),
        &format!("{}g", &good[..41]),
        &format!("{}\u{661}", &good[..40]),
        D1,
        D3,
        "vitalik.eth",
        "XE7338O073KYGTWWZN0F2WZ0R8PX5ZPPZS",
    ];
    for text in cases {
        let error = EvmAddress::parse(text).unwrap_err();
        assert_eq!(error.code(), "unknown_address", "{text:?}");
    }
}
