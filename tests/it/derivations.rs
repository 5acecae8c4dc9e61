//! Addresses derived from account keys and descriptors: the vectors of the BIPs, what is refused, and that no
//! refusal shows what was written.

use bitcoincore_rpc::bitcoin::NetworkKind;
use bitcoincore_rpc::bitcoin::base58;
use bitcoincore_rpc::bitcoin::bip32::{DerivationPath, Xpriv, Xpub};
use bitcoincore_rpc::bitcoin::secp256k1::Secp256k1;
use creditd::address::{Derivation, EvmAddress, Network, ScriptKind, SourceError, holds_private_key, print};
use proptest::prelude::*;
use std::str::FromStr;

/// BIP 39 seed of "abandon" eleven times and "about", the mnemonic of the vectors of BIP 49, 84 and 86.
const SEED: &str = "5eb00bbddcf069084889a8ab9155568165f5c453ccb85e70811aaed6f6da5fc1\
                    9a5ac40b389cd370d086206dec8aa6c43daea6690f20ad3d8d48b2d2ce9e38e4";

fn account(network: NetworkKind, path: &str) -> (Xpriv, Xpub) {
    let secp = Secp256k1::new();
    let seed = const_hex::decode(SEED).unwrap();
    let key = Xpriv::new_master(network, &seed).unwrap();
    let key = key
        .derive_priv(&secp, &DerivationPath::from_str(path).unwrap())
        .unwrap();
    (key, Xpub::from_priv(&secp, &key))
}

/// The same key under other version bytes of SLIP 132.
fn spelt(key: &str, version: [u8; 4]) -> String {
    let mut bytes = base58::decode_check(key).unwrap();
    bytes[..4].copy_from_slice(&version);
    base58::encode_check(&bytes)
}

const YPUB: [u8; 4] = [0x04, 0x9d, 0x7c, 0xb2];
const ZPUB: [u8; 4] = [0x04, 0xb2, 0x47, 0x46];
const UPUB: [u8; 4] = [0x04, 0x4a, 0x52, 0x62];
const VPUB: [u8; 4] = [0x04, 0x5f, 0x1c, 0xf6];

fn addresses(network: Network, from: &Derivation, count: u32) -> Vec<String> {
    let scripts = from.scripts(0, count);
    scripts
        .iter()
        .map(|script| print(network, script).unwrap())
        .collect()
}

#[test]
fn the_vectors_of_the_bips_are_derived() {
    let main = Network::Main;
    let xpub44 = "xpub6BosfCnifzxcFwrSzQiqu2DBVTshkCXacvNsWGYJVVhhawA7d4R5WSWGFNbi8Aw6ZRc1brxMyWMzG3DSSSSoekk\
                  udhUd9yLb6qx39T9nMdj";
    let zpub84 = "zpub6rFR7y4Q2AijBEqTUquhVz398htDFrtymD9xYYfG1m4wAcvPhXNfE3EfH1r1ADqtfSdVCToUG868RvUUkgDKf31\
                  mGDtKsAYz2oz2AGutZYs";
    let xpub86 = "xpub6BgBgsespWvERF3LHQu6CnqdvfEvtMcQjYrcRzx53QJjSxarj2afYWcLteoGVky7D3UKDP9QyrLprQ3VCECoY49\
                  yfdDEHGCtMMj92pReUsQ";
    assert_eq!(account(NetworkKind::Main, "m/44'/0'/0'").1.to_string(), xpub44);
    assert_eq!(account(NetworkKind::Main, "m/86'/0'/0'").1.to_string(), xpub86);
    for (key, script, expected) in [
        (
            xpub44,
            Some(ScriptKind::Pkh),
            &["1LqBGSKuX5yYUonjxT5qGfpUsXKYYWeabA"][..],
        ),
        (
            zpub84,
            None,
            &[
                "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu",
                "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g",
            ],
        ),
        (
            xpub86,
            Some(ScriptKind::Tr),
            &[
                "bc1p5cyxnuxmeuwuvkwfem96lqzszd02n6xdcjrs20cac6yqjjwudpxqkedrcr",
                "bc1p4qhjn9zdvkux4e44uhx8tc55attvtyu358kutcqkudyccelu0was9fqzwh",
            ],
        ),
    ] {
        let from = Derivation::extended_key(main, key, script).unwrap();
        let count = u32::try_from(expected.len()).unwrap();
        assert_eq!(addresses(main, &from, count), expected);
    }
    // BIP 49 has testnet keys.
    let (private, public) = account(NetworkKind::Test, "m/49'/1'/0'");
    assert_eq!(
        private.to_string(),
        "tprv8gRrNu65W2Msef2BdBSUgFdRTGzC8EwVXnV7UGS3faeXtuMVtGfEdidVeGbThs4ELEoayCAzZQ4uUji9DUiAs7er\
         dVskqju7hrBcDvDsdbY"
    );
    let from = Derivation::extended_key(Network::Testnet4, &spelt(&public.to_string(), UPUB), None).unwrap();
    assert_eq!(
        addresses(Network::Testnet4, &from, 1),
        ["2Mww8dCYPUpKHofjgcXcBCEGmniw9CoaiD2"]
    );
}

#[test]
fn every_spelling_of_a_key_is_the_same_source_as_its_descriptor() {
    let (_, main) = account(NetworkKind::Main, "m/84'/0'/0'");
    let (_, test) = account(NetworkKind::Test, "m/84'/1'/0'");
    for (network, key, version, script) in [
        (Network::Main, &main, ZPUB, "wpkh(KEY/0/*)"),
        (Network::Main, &main, YPUB, "sh(wpkh(KEY/0/*))"),
        (Network::Regtest, &test, VPUB, "wpkh(KEY/0/*)"),
        (Network::Regtest, &test, UPUB, "sh(wpkh(KEY/0/*))"),
    ] {
        let key = key.to_string();
        let by_key = Derivation::extended_key(network, &spelt(&key, version), None).unwrap();
        let by_text = Derivation::descriptor(network, &script.replace("KEY", &key)).unwrap();
        assert_eq!(by_key, by_text);
        assert_eq!(by_key.pin(), by_text.pin());
        let with_checksum = Derivation::descriptor(network, &by_text.text()).unwrap();
        assert_eq!(with_checksum.pin(), by_text.pin());
    }
    // The branch to receive on is the same source as its account.
    let (_, branch) = account(NetworkKind::Main, "m/44'/60'/0'/0");
    let (_, whole) = account(NetworkKind::Main, "m/44'/60'/0'");
    let of = |key: &Xpub| Derivation::evm(&key.to_string()).unwrap();
    assert_eq!(of(&branch).pin(), of(&whole).pin());
    assert_eq!(of(&branch).scripts(0, 3), of(&whole).scripts(0, 3));
}

#[test]
fn an_account_on_evm_chains_is_derived_the_same_in_both_ways() {
    let (_, key) = account(NetworkKind::Main, "m/44'/60'/0'");
    let from = Derivation::evm(&key.to_string()).unwrap();
    let scripts = from.scripts(0, 40);
    let first = EvmAddress::of_script(&scripts[0]).unwrap();
    assert_eq!(first.to_string(), "0x9858EfFD232B4033E47d90003D41EC34EcaEda94");
    assert_eq!(from.scripts_again(0, 40), Some(scripts));
    let last = (1 << 31) - 1;
    assert_eq!(from.scripts_again(last, 1), Some(from.scripts(last, 1)));
    assert_eq!(from.scripts(last, 1).len(), 1);
    assert_eq!(from.scripts(last, 2).len(), 1, "there is no hardened one");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn both_ways_agree_on_any_key(seed in prop::collection::vec(any::<u8>(), 32), index in 0_u32..1 << 31) {
        let secp = Secp256k1::new();
        let master = Xpriv::new_master(NetworkKind::Main, &seed).unwrap();
        let path = DerivationPath::from_str("m/44'/60'/7'").unwrap();
        let key = Xpub::from_priv(&secp, &master.derive_priv(&secp, &path).unwrap());
        let from = Derivation::evm(&key.to_string()).unwrap();
        prop_assert_eq!(from.scripts_again(index, 1), Some(from.scripts(index, 1)));
    }
}

/// Whatever could spend is refused, in each place where a key may stand, and never shown.
#[test]
fn a_private_key_is_refused_and_not_shown() {
    let (private, public) = account(NetworkKind::Main, "m/84'/0'/0'");
    let (private, public) = (private.to_string(), public.to_string());
    let wif = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn";
    let hex = "0x4646464646464646464646464646464646464646464646464646464646464646";
    let words =
        "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about";
    let mut wrong = private.clone();
    wrong.replace_range(20..21, if &wrong[20..21] == "a" { "b" } else { "a" });
    let zprv = spelt(&private, [0x04, 0xb2, 0x43, 0x0c]);
    for secret in [&private, &wrong, &zprv, wif, hex, words] {
        assert!(holds_private_key(secret), "{secret}");
        for text in [
            secret.to_owned(),
            format!("wpkh({secret}/0/*)"),
            format!(" wsh(multi(1,{public}/*,{secret}))"),
        ] {
            for refused in [
                Derivation::descriptor(Network::Main, &text).unwrap_err(),
                Derivation::extended_key(Network::Main, &text, None).unwrap_err(),
                Derivation::evm(&text).unwrap_err(),
            ] {
                assert!(!refused.to_string().contains(secret), "{refused}");
                let is_refused = refused == SourceError::Private || secret == words;
                assert!(is_refused, "{refused:?} for {text}");
            }
        }
    }
    for harmless in [
        public.as_str(),
        "creditd.db",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "a b c",
    ] {
        assert!(!holds_private_key(harmless), "{harmless}");
    }
}

#[test]
fn what_has_not_one_watched_address_per_index_is_refused() {
    let (_, main) = account(NetworkKind::Main, "m/84'/0'/0'");
    let (_, test) = account(NetworkKind::Test, "m/84'/1'/0'");
    let (_, deep) = account(NetworkKind::Main, "m/84'/0'/0'/0/5");
    let (main, test, deep) = (main.to_string(), test.to_string(), deep.to_string());
    let descriptor = |text: &str| Derivation::descriptor(Network::Main, &text.replace("KEY", &main));
    for (text, expected) in [
        ("wpkh(KEY/0/5)", "has no wildcard"),
        ("wpkh(KEY/<0;1>/*)", "stands for two descriptors"),
        ("wpkh(KEY/0/*h)", "hardened"),
        ("wpkh(KEY/0'/*)", "hardened"),
        ("pk(KEY/0/*)", "no address"),
        ("wpkh(KEY/0/*)#qqqqqqqq", "not an output descriptor"),
        ("wpkh(KEY/0/*", "not an output descriptor"),
        ("", "not an output descriptor"),
    ] {
        let refused = descriptor(text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{text}: {refused}");
        assert!(!refused.contains(&main), "{refused}");
    }
    let other = Derivation::descriptor(Network::Main, &format!("wpkh({test}/0/*)")).unwrap_err();
    assert_eq!(
        other.to_string(),
        "a key of testnet4, signet or regtest, but this chain is main"
    );
    let key = |text: &str, script| Derivation::extended_key(Network::Main, text, script).unwrap_err();
    assert_eq!(key(&main, None), SourceError::NoScript);
    assert_eq!(key(&deep, Some(ScriptKind::Wpkh)), SourceError::Depth(5));
    let zpub = spelt(&main, ZPUB);
    assert!(matches!(
        key(&zpub, Some(ScriptKind::Tr)),
        SourceError::OtherScript { .. }
    ));
    assert_eq!(
        key(&spelt(&main, [0x02, 0xaa, 0x7e, 0xd3]), None),
        SourceError::Cosigner
    );
    assert_eq!(key(&main[1..], None), SourceError::NoKey);
    assert_eq!(Derivation::evm(&zpub), Err(SourceError::NotForEvm));
    assert_eq!(Derivation::evm(&test), Err(SourceError::NotForEvm));
}

mod config {
    use super::{ZPUB, account, spelt};
    use bitcoincore_rpc::bitcoin::NetworkKind;
    use creditd::config::{Config, DEFAULT_TOML, Scope, SourceFrom};
    use std::path::Path;

    const EVM: &str = "[[evm]]\nalias = \"eth\"\nchain_id = 1\n[[evm.endpoint]]\nname = \"own\"\n\
                       url = \"http://127.0.0.1:8545\"\n[evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\n\
                       policy = [ { confirmations = 12 } ]\n";

    fn parse(addresses: &str) -> Result<Config, String> {
        let text = format!("{DEFAULT_TOML}\n{EVM}\n{addresses}");
        Config::parse(Path::new("/x/creditd.toml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn sources_of_addresses_are_read() {
        let (_, key) = account(NetworkKind::Main, "m/84'/0'/0'");
        let key = key.to_string();
        let config = parse(&format!(
            "[[addresses]]\nname = \"a\"\nchain = \"btc\"\nxpub = \"{}\"\n\
             [[addresses]]\nname = \"b\"\nchain = \"btc\"\nmerchant = \"shop\"\n\
             descriptor = \"tr({key}/0/*)\"\npool = 20\n\
             [[addresses]]\nname = \"c\"\nchain = \"evm\"\nxpub = \"{key}\"\n\
             [[addresses]]\nname = \"d\"\nchain = \"evm\"\nmerchant = \"shop\"\nlist_file = \"list\"\n",
            spelt(&key, ZPUB)
        ))
        .unwrap();
        let of = |at: usize| &config.addresses[at];
        assert_eq!(config.addresses.len(), 4);
        assert_eq!((of(0).pool_size, of(1).pool_size), (1_000, 20));
        assert!(matches!(of(0).scope, Scope::Bitcoin { .. }));
        assert_eq!(
            (of(2).scope.clone(), of(1).merchant.as_deref()),
            (Scope::Evm, Some("shop"))
        );
        assert_eq!(of(3).from, SourceFrom::List("/x/list".into()));
    }

    #[test]
    fn each_fault_of_a_source_is_told_and_no_private_key_with_it() {
        let (private, key) = account(NetworkKind::Main, "m/84'/0'/0'");
        let (private, key) = (private.to_string(), key.to_string());
        let wif = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn";
        let head = "[[addresses]]\nname = \"a\"\nchain = \"btc\"\n";
        let evm = "[[addresses]]\nname = \"a\"\nchain = \"evm\"\n";
        let twice = format!("{head}xpub = \"{}\"\n", spelt(&key, ZPUB));
        for (text, expected) in [
            (
                format!("{head}descriptor = \"wpkh({private}/0/*)\""),
                "addresses[0].descriptor: holds a private key",
            ),
            (
                format!("{head}xpub = \"{private}\""),
                "addresses[0].xpub: holds a private key",
            ),
            (
                format!("{head}xpub = \"{wif}\""),
                "addresses[0].xpub: holds a private key",
            ),
            (
                format!("{head}list_file = \"{wif}\""),
                "addresses[0].list_file: holds a private key",
            ),
            (
                format!("{head}merchant = \"{wif}\"\nxpub = \"{key}\""),
                "a private key (not shown)",
            ),
            (format!("{head}xpub = \"{key}\""), "does not say what kind"),
            (
                format!("{head}xpub = \"{key}\"\nscript = \"p2wpkh\""),
                "addresses[0].script: found",
            ),
            (
                format!("{head}xpub = \"{key}\"\nlist_file = \"x\""),
                "one of descriptor, xpub and list_file",
            ),
            (head.to_owned(), "one of descriptor, xpub and list_file"),
            (
                format!("{evm}descriptor = \"wpkh({key}/0/*)\""),
                "not for EVM chains",
            ),
            (
                format!("{evm}xpub = \"{key}\"\nscript = \"wpkh\""),
                "allowed only beside",
            ),
            (
                format!("{evm}xpub = \"{}\"", spelt(&key, ZPUB)),
                "on EVM chains allowed: an xpub",
            ),
            (
                "[[addresses]]\nname = \"a\"\nchain = \"eth\"\nlist_file = \"x\"".to_owned(),
                "addresses[0].chain: found",
            ),
            (format!("{twice}{twice}"), "\"a\" is there twice"),
            (
                format!("{twice}{}", twice.replace("\"a\"", "\"b\"")),
                "has the same addresses as \"a\"",
            ),
            (
                format!("{twice}[[addresses]]\nname = \"b\"\nchain = \"btc\"\nlist_file = \"x\""),
                "hands out addresses there for all merchants already",
            ),
        ] {
            let fault = parse(&text).unwrap_err();
            assert!(fault.contains(expected), "{text}: {fault}");
            assert!(!fault.contains(&private) && !fault.contains(wif), "{fault}");
        }
    }
}
