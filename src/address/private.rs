//! Texts that hold a private key or could be one. Such a text is refused wherever it stands, and never shown:
//! what derives addresses here only ever watches.

use bitcoincore_rpc::bitcoin::base58;

/// The beginnings of extended private keys, of BIP 32 and of SLIP 132.
const EXTENDED: [&str; 10] = [
    "xprv", "tprv", "yprv", "zprv", "uprv", "vprv", "Yprv", "Zprv", "Uprv", "Vprv",
];

/// The first byte of a private key in base58 (WIF): main, and every test network.
const WIF_VERSIONS: [u8; 2] = [0x80, 0xef];

/// Whether a text holds a private key, or looks so much like one that it must not be shown: an extended one,
/// one in base58 (also with a letter wrong), 32 bytes in hex outside of a taproot descriptor, whose public
/// keys look the same, or the words of a wallet's seed.
pub fn holds_private_key(text: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_taproot = text.trim_start().starts_with("tr(");
    let mut words = words.filter(|word| !word.is_empty());
    words.any(|word| is_extended(word) || is_base58(word) || (is_hex(word) && !is_taproot)) || is_seed(text)
}

fn is_extended(word: &str) -> bool {
    EXTENDED.iter().any(|start| word.starts_with(start))
}

fn is_base58(word: &str) -> bool {
    let has_shape = (51..=52).contains(&word.len()) && word.starts_with(['5', 'K', 'L', '9', 'c']);
    has_shape
        || base58::decode_check(word).is_ok_and(|bytes| {
            (33..=34).contains(&bytes.len()) && bytes.first().is_some_and(|byte| WIF_VERSIONS.contains(byte))
        })
}

fn is_hex(word: &str) -> bool {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// BIP 39: 12 to 24 words of 3 to 8 letters.
fn is_seed(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_word =
        |word: &&str| (3..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase());
    (12..=24).contains(&words.len()) && words.iter().all(is_word)
}
