//! Fields of an EVM node's answers, read leniently one by one and strictly each: whatever surrounds a field
//! may come, go and change, and a field of another form spoils itself alone, never the answer that it stands
//! in. The forms are those of the Ethereum JSON-RPC specification:
//! <https://ethereum.org/developers/docs/apis/json-rpc/#conventions>.

use crate::rules::{Amount, BlockHash, Txid};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// One field as a node sent it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Field<T> {
    /// There is none of this name.
    #[default]
    Missing,
    /// `null`.
    Null,
    /// Something that does not have the field's form: its start, for messages.
    Odd(String),
    /// The value.
    Is(T),
}

impl<T> Field<T> {
    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        match self {
            Field::Is(value) => Some(value),
            Field::Missing | Field::Null | Field::Odd(_) => None,
        }
    }

    /// Why there is no value, in words that follow the field's name: `value is missing`.
    pub fn fault(&self) -> Option<String> {
        match self {
            Field::Is(_) => None,
            Field::Missing => Some("is missing".to_owned()),
            Field::Null => Some("is null".to_owned()),
            Field::Odd(text) => Some(format!("is {text}")),
        }
    }
}

/// What can be read from a JSON string.
pub trait FromText: Sized {
    /// `None` when the text has another form.
    fn from_text(text: &str) -> Option<Self>;
}

/// The 20 bytes of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(pub [u8; 20]);

/// 32 bytes: a log topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub [u8; 32]);

/// Bytes of any length, written as an even number of hex digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data(pub Vec<u8>);

/// The 2,048 bits of a block's log bloom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BloomBits(pub Box<[u8; 256]>);

/// The digits after `0x`, which must be there: without it `10` could be ten or sixteen.
fn digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("0x")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then_some(digits)
}

/// Exactly `N` bytes.
fn exactly<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = digits(text)?;
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    const_hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", const_hex::encode(self.0))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", const_hex::encode(self.0))
    }
}

impl FromText for Amount {
    /// A quantity. Zeros in front, which the specification forbids and some nodes send, leave no doubt about
    /// the value.
    fn from_text(text: &str) -> Option<Amount> {
        let digits = digits(text).filter(|digits| !digits.is_empty())?;
        let digits = digits.trim_start_matches('0');
        if digits.len() > 64 {
            return None;
        }
        let mut bytes = [0; 32];
        const_hex::decode_to_slice(format!("{digits:0>64}"), &mut bytes).ok()?;
        Some(Amount::from_be_bytes(bytes))
    }
}

impl FromText for u64 {
    /// A quantity that counts something.
    fn from_text(text: &str) -> Option<u64> {
        let digits = digits(text).filter(|digits| !digits.is_empty())?;
        let digits = digits.trim_start_matches('0');
        match digits.len() {
            0 => Some(0),
            1..=16 => u64::from_str_radix(digits, 16).ok(),
            _ => None,
        }
    }
}

impl FromText for Account {
    fn from_text(text: &str) -> Option<Account> {
        exactly(text).map(Account)
    }
}

impl FromText for Word {
    fn from_text(text: &str) -> Option<Word> {
        exactly(text).map(Word)
    }
}

impl FromText for Txid {
    fn from_text(text: &str) -> Option<Txid> {
        exactly(text).map(Txid)
    }
}

impl FromText for BlockHash {
    fn from_text(text: &str) -> Option<BlockHash> {
        exactly(text).map(BlockHash)
    }
}

impl FromText for BloomBits {
    fn from_text(text: &str) -> Option<BloomBits> {
        exactly(text).map(|bits| BloomBits(Box::new(bits)))
    }
}

impl FromText for Data {
    fn from_text(text: &str) -> Option<Data> {
        const_hex::decode(digits(text)?).ok().map(Data)
    }
}

impl<'de, T: FromText> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Field<T>, D::Error> {
        from.deserialize_any(Reader(PhantomData))
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: FromText> Visitor<'de> for Reader<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Field<T>, E> {
        Ok(T::from_text(text).map_or_else(|| odd(format!("{:?}", start(text))), Field::Is))
    }

    fn visit_unit<E: Error>(self) -> Result<Field<T>, E> {
        Ok(Field::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Field<T>, E> {
        Ok(odd(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Field<T>, E> {
        Ok(odd(format!("the number {value}")))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Field<T>, E> {
        Ok(odd(format!("the number {value}")))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Field<T>, E> {
        Ok(odd("a number with a point".to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Field<T>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(odd("a list".to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Field<T>, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(odd("an object".to_owned()))
    }
}

fn odd<T>(text: String) -> Field<T> {
    Field::Odd(text)
}

/// Enough of a text to recognise it.
fn start(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read<T: FromText>(json: &str) -> Field<T> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn quantities_are_hex_and_nothing_else() {
        let good = [
            ("0x0", "0"),
            ("0x00", "0"),
            ("0x10", "16"),
            ("0x05", "5"),
            ("0xDe0B6b3A7640000", "1000000000000000000"),
        ];
        for (text, expected) in good {
            let amount = Amount::from_text(text).unwrap();
            assert_eq!(amount.to_string(), expected, "{text}");
            assert_eq!(u64::from_text(text).unwrap().to_string(), expected, "{text}");
        }
        let most = format!("0x{}", "f".repeat(64));
        assert!(Amount::from_text(&most).is_some());
        assert!(u64::from_text(&most).is_none());
        assert_eq!(u64::from_text("0xffffffffffffffff"), Some(u64::MAX));
        assert_eq!(u64::from_text("0x10000000000000000"), None);
        let too_long = format!("0x1{}", "0".repeat(64));
        for bad in [
            "",
            "0",
            "10",
            "0x",
            "0X10",
            "x10",
            "-0x1",
            "0x-1",
            "0x+1",
            "+0x1",
            " 0x1",
            "0x1 ",
            "0x1.0",
            "0x1e+3",
            "0xg",
            "1e3",
            "0x_1",
            "0x1\u{661}",
            &too_long,
        ] {
            assert_eq!(Amount::from_text(bad), None, "{bad:?}");
            assert_eq!(u64::from_text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_field_of_another_form_spoils_itself_alone() {
        assert_eq!(read::<u64>("\"0x10\""), Field::Is(16));
        assert_eq!(read::<u64>("null"), Field::Null);
        for (json, said) in [
            ("16", "is the number 16"),
            ("-1", "is the number -1"),
            ("1.5", "is a number with a point"),
            ("true", "is true"),
            ("\"10\"", "is \"10\""),
            ("[1, [2]]", "is a list"),
            ("{\"a\": {\"b\": 1}}", "is an object"),
        ] {
            let field = read::<u64>(json);
            assert_eq!(field.fault().unwrap(), said);
            assert_eq!(field.get(), None);
        }
    }

    #[test]
    fn bytes_have_their_exact_length() {
        let account = format!("0x{}", "aB".repeat(20));
        assert_eq!(Account::from_text(&account), Some(Account([0xab; 20])));
        for bad in [&account[2..], &account[..40], &format!("{account}00"), "0x"] {
            assert_eq!(Account::from_text(bad), None, "{bad}");
        }
        assert_eq!(Data::from_text("0x"), Some(Data(Vec::new())));
        assert_eq!(Data::from_text("0x123"), None);
        assert_eq!(Data::from_text("1234"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = (Amount::from_text(&text), u64::from_text(&text), Account::from_text(&text));
            let _ = (Word::from_text(&text), Data::from_text(&text), BloomBits::from_text(&text));
        }

        #[test]
        fn a_quantity_is_the_number_that_it_is(number in any::<u64>(), zeros in 0..70_usize) {
            let text = format!("0x{}{number:x}", "0".repeat(zeros));
            prop_assert_eq!(u64::from_text(&text), Some(number));
            prop_assert_eq!(Amount::from_text(&text), Some(Amount::from_u64(number)));
        }
    }
}
