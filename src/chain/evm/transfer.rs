//! ERC-20 transfers in logs: <https://eips.ethereum.org/EIPS/eip-20>. NFTs (ERC-721) log the same first topic
//! with the id as a fourth; old tokens index nothing. An amount is read from the one shape that is a
//! transfer of an amount, and from no other.

use super::answers::LogFields;
use super::fields::{Account, Data, Word};
use crate::rules::Amount;

/// `keccak256("Transfer(address,address,uint256)")`.
pub const TRANSFER: Word = Word([
    0xdd, 0xf2, 0x52, 0xad, 0x1b, 0xe2, 0xc8, 0x9b, 0x69, 0xc2, 0xb0, 0x68, 0xfc, 0x37, 0x8d, 0xaa, 0x95,
    0x2b, 0xa7, 0xf1, 0x63, 0xc4, 0xa1, 0x16, 0x28, 0xf5, 0x5a, 0x4d, 0xf5, 0x23, 0xb3, 0xef,
]);

/// Where chains log the coin that moves (EIP-7708): no contract can have this address.
pub const SYSTEM: Account = Account([
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xfe,
]);

/// A token moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The token's contract.
    pub token: Account,
    /// Whose tokens.
    pub from: Account,
    /// Whose they are now.
    pub to: Account,
    /// In the token's base units.
    pub amount: Amount,
}

/// What a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logged {
    /// A transfer of an amount.
    Transfer(Transfer),
    /// Its first topic is that of a transfer and the rest is not: why, for the counter's message.
    Unsupported(String),
    /// Something else.
    Other,
    /// It cannot be told: a field is missing or of another form. The answer has to be asked for again.
    Unreadable(String),
}

/// Reads one log of a token; `is_unindexed` where its transfers have one topic and all three values as data,
/// as those of the first tokens.
pub fn read(log: &LogFields, is_unindexed: bool) -> Logged {
    let Some(topics) = &log.topics else {
        return Logged::Unreadable("topics are missing".to_owned());
    };
    let mut words = Vec::with_capacity(topics.len());
    for (place, topic) in topics.iter().enumerate() {
        match topic.get() {
            Some(word) => words.push(word),
            None => return unreadable(&format!("topic {place}"), topic.fault()),
        }
    }
    if words.first() != Some(&&TRANSFER) {
        return Logged::Other;
    }
    let Some(token) = log.address.get() else {
        return unreadable("address", log.address.fault());
    };
    let Some(Data(data)) = log.data.get() else {
        return unreadable("data", log.data.fault());
    };
    if is_unindexed && words.len() == 1 {
        return unindexed(*token, data);
    }
    let ([_, from, to], Ok(amount)) = (words.as_slice(), <[u8; 32]>::try_from(data.as_slice())) else {
        let (topics, bytes) = (words.len(), data.len());
        return Logged::Unsupported(format!("{topics} topics and {bytes} bytes, not 3 and 32"));
    };
    match (account(from), account(to)) {
        (Some(from), Some(to)) => Logged::Transfer(Transfer {
            token: *token,
            from,
            to,
            amount: Amount::from_be_bytes(amount),
        }),
        _ => Logged::Unsupported("a topic holds more than an address".to_owned()),
    }
}

fn unindexed(token: Account, data: &[u8]) -> Logged {
    let words: Vec<Word> = data
        .chunks_exact(32)
        .filter_map(|word| word.try_into().ok().map(Word))
        .collect();
    let ([from, to, amount], 96) = (words.as_slice(), data.len()) else {
        let bytes = data.len();
        return Logged::Unsupported(format!("1 topic and {bytes} bytes, not 96"));
    };
    match (account(from), account(to)) {
        (Some(from), Some(to)) => Logged::Transfer(Transfer {
            token,
            from,
            to,
            amount: Amount::from_be_bytes(amount.0),
        }),
        _ => Logged::Unsupported("a word holds more than an address".to_owned()),
    }
}

fn unreadable(what: &str, fault: Option<String>) -> Logged {
    Logged::Unreadable(format!("{what} {}", fault.unwrap_or_default()))
}

/// The account in a word: the lower 20 bytes, with nothing above them.
fn account(word: &Word) -> Option<Account> {
    let (above, account) = word.0.split_first_chunk::<12>()?;
    let account = Account(account.try_into().ok()?);
    (*above == [0; 12]).then_some(account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TOKEN: &str = "0xdddddddddddddddddddddddddddddddddddddddd";
    const TOPIC: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

    fn word(number: u64) -> String {
        format!("0x{number:064x}")
    }

    fn log(topics: &[String], data: &str) -> Value {
        json!({"address": TOKEN, "topics": topics, "data": data})
    }

    fn reading(json: &Value) -> Logged {
        read(&serde_json::from_str(&json.to_string()).unwrap(), false)
    }

    #[test]
    fn three_topics_and_one_word_are_a_transfer() {
        let json = log(&[TOPIC.to_owned(), word(7), word(8)], &word(2_000_000));
        let account = |last| Account(std::array::from_fn(|place| if place == 19 { last } else { 0 }));
        let expected = Transfer {
            token: Account([0xdd; 20]),
            from: account(7),
            to: account(8),
            amount: Amount::from_u64(2_000_000),
        };
        assert_eq!(reading(&json), Logged::Transfer(expected));
    }

    #[test]
    fn c14_every_other_shape_of_a_transfer_is_unsupported() {
        let topic = TOPIC.to_owned();
        let three = [topic.clone(), word(7), word(8)];
        let nft = [topic.clone(), word(7), word(8), word(1_000_000)];
        let unindexed = format!("{}{}{}", word(7), &word(8)[2..], &word(5_000_000)[2..]);
        let dirty = [topic.clone(), word(7), format!("0x01{}", &word(8)[4..])];
        for json in [
            log(&nft, "0x"),
            log(&nft, &word(1)),
            log(std::slice::from_ref(&topic), &unindexed),
            log(&three, "0x"),
            log(&three, &format!("{}{}", word(1), &word(2)[2..])),
            log(&three, &word(1)[..64]),
            log(&dirty, &word(1)),
        ] {
            assert!(matches!(reading(&json), Logged::Unsupported(_)), "{json}");
        }
    }

    #[test]
    fn a_log_that_cannot_be_told_is_neither_a_transfer_nor_something_else() {
        let three = [TOPIC.to_owned(), word(7), word(8)];
        let good = log(&three, &word(1));
        for (key, by) in [
            ("topics", json!(null)),
            ("topics", json!([TOPIC, null, word(8)])),
            ("topics", json!([TOPIC, word(7), "0x8"])),
            ("topics", json!([null])),
            ("data", json!(null)),
            ("data", json!("0x123")),
            ("data", json!(5)),
            ("address", json!(null)),
            ("address", json!("0xdd")),
        ] {
            let mut json = good.clone();
            json[key] = by;
            assert!(matches!(reading(&json), Logged::Unreadable(_)), "{json}");
        }
        let other = log(&[word(1), word(7), word(8)], &word(1));
        assert_eq!(reading(&other), Logged::Other);
        assert_eq!(reading(&log(&[], "0x")), Logged::Other);
    }
}
