//! Blocks, transactions, receipts and logs as EVM nodes send them, cut down to what decides about money:
//! hash, parent, time, sender, recipient, value, status and logs. Each field stands for itself ([`Field`]),
//! so a transaction of a type that nobody has met yet, or a field that a proxy has dropped, is no reason to
//! fail a block. Shapes: <https://github.com/ethereum/execution-apis>.

use super::fields::{Account, BloomBits, Data, Field, Word};
use crate::rules::{Amount, BlockHash, Txid};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use std::fmt;

/// A block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BlockFields {
    /// The block's hash; `null` in a pending block.
    pub hash: Field<BlockHash>,
    /// The block before it.
    #[serde(rename = "parentHash")]
    pub parent: Field<BlockHash>,
    /// Its height.
    pub number: Field<u64>,
    /// Unix seconds.
    pub timestamp: Field<u64>,
    /// Which contracts and topics its logs may have.
    #[serde(rename = "logsBloom")]
    pub bloom: Field<BloomBits>,
    /// In the order of the block, whole or by their hashes, as was asked; `None` when the answer has none.
    pub transactions: Option<Vec<Listed>>,
}

/// A transaction in a block's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// By its hash alone.
    Hash(Field<Txid>),
    /// With its fields.
    Whole(TxFields),
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Listed, D::Error> {
        from.deserialize_any(ListedReader)
    }
}

struct ListedReader;

impl<'de> Visitor<'de> for ListedReader {
    type Value = Listed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a transaction or its hash")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Listed, E> {
        Field::deserialize(text.into_deserializer()).map(Listed::Hash)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Listed, A::Error> {
        TxFields::deserialize(MapAccessDeserializer::new(object)).map(Listed::Whole)
    }
}

/// A transaction of whatever type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TxFields {
    /// Its id.
    pub hash: Field<Txid>,
    /// Who signed it, or whose call it is on a rollup.
    pub from: Field<Account>,
    /// Who gets `value`; `null` makes a contract.
    pub to: Field<Account>,
    /// Wei.
    pub value: Field<Amount>,
    /// The sender's count of transactions; rollups send some without.
    pub nonce: Field<u64>,
    /// Its type (EIP-2718 and what rollups add).
    pub r#type: Field<u64>,
}

/// What became of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReceiptFields {
    /// Of which transaction.
    pub transaction_hash: Field<Txid>,
    /// In which block.
    pub block_hash: Field<BlockHash>,
    /// 1 = it ran to its end (EIP-658). Nothing else is success: receipts from before that have none.
    pub status: Field<u64>,
    /// Who sent it.
    pub from: Field<Account>,
    /// What a creation made.
    pub contract_address: Field<Account>,
    /// Which contracts and topics its logs have.
    pub logs_bloom: Field<BloomBits>,
    /// In their order in the receipt; `None` when the answer has none.
    pub logs: Option<Vec<LogFields>>,
}

impl ReceiptFields {
    /// True for a status of 1 alone.
    pub fn is_success(&self) -> bool {
        self.status == Field::Is(1)
    }
}

/// One log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogFields {
    /// Its number in the block, which names nothing: it changes when a transaction is mined again, and
    /// clients count it differently.
    pub log_index: Field<u64>,
    /// The contract that wrote it.
    pub address: Field<Account>,
    /// Up to four words; `None` when the answer has none.
    pub topics: Option<Vec<Field<Word>>>,
    /// What is not indexed.
    pub data: Field<Data>,
    /// Of which transaction.
    pub transaction_hash: Field<Txid>,
    /// In which block.
    pub block_hash: Field<BlockHash>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::evm::fields::FromText as _;
    use crate::chain::evm::transfer::{self, Logged};
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    /// Made-up and real shapes of many clients and chains: `[{kind, name, json}]`.
    fn shapes(kind: &str) -> Vec<(String, Value)> {
        let text = include_str!("../../../tests/data/evm_shapes.json");
        let all: Vec<Value> = serde_json::from_str(text).unwrap();
        let of_kind = all.into_iter().filter(|shape| shape["kind"] == kind);
        let named = of_kind.map(|shape| (shape["name"].as_str().unwrap().to_owned(), shape["json"].clone()));
        let named: Vec<_> = named.collect();
        assert!(!named.is_empty());
        named
    }

    fn read<T: DeserializeOwned>(json: &Value) -> T {
        serde_json::from_str(&json.to_string()).unwrap()
    }

    #[test]
    fn every_transaction_tells_hash_recipient_and_value_whatever_its_type() {
        for (name, json) in shapes("tx") {
            let tx: TxFields = read(&json);
            let text = |key: &str| json[key].as_str().map(str::to_lowercase);
            assert_eq!(
                tx.hash.get().map(|hash| format!("0x{hash}")),
                text("hash"),
                "{name}"
            );
            assert_eq!(tx.to == Field::Null, json["to"].is_null(), "{name}");
            let value = tx.value.get().unwrap_or_else(|| panic!("{name}: {:?}", tx.value));
            let expected = json["value"].as_str().unwrap().trim_start_matches("0x");
            let expected = Amount::from_text(&format!("0x{expected}")).unwrap();
            assert_eq!(*value, expected, "{name}");
            assert_eq!(tx.from == Field::Missing, json.get("from").is_none(), "{name}");
            assert_eq!(tx.nonce == Field::Missing, json.get("nonce").is_none(), "{name}");
            let listed: Listed = read(&json);
            assert_eq!(listed, Listed::Whole(tx), "{name}");
        }
    }

    #[test]
    fn only_a_status_of_one_is_success() {
        for (name, json) in shapes("receipt") {
            let receipt: ReceiptFields = read(&json);
            assert_eq!(receipt.is_success(), json["status"] == "0x1", "{name}");
            assert!(receipt.transaction_hash.get().is_some(), "{name}");
            assert!(receipt.block_hash.get().is_some(), "{name}");
            let logs = json["logs"].as_array().map(Vec::len);
            assert_eq!(receipt.logs.as_ref().map(Vec::len), logs, "{name}");
        }
        for status in [
            json!("0x0"),
            json!("0x2"),
            json!(1),
            json!("1"),
            json!(true),
            json!(null),
            json!(""),
        ] {
            let receipt: ReceiptFields = read(&json!({"status": status}));
            assert!(!receipt.is_success(), "{status}");
        }
        assert!(!read::<ReceiptFields>(&json!({})).is_success());
    }

    #[test]
    fn no_odd_log_is_a_transfer_and_none_fails_its_receipt() {
        for (name, json) in shapes("log") {
            let receipt: ReceiptFields = read(&json!({"logs": [json, json]}));
            let logs = receipt.logs.unwrap();
            assert_eq!(logs.len(), 2, "{name}");
            let is_transfer = matches!(transfer::read(&logs[0], false), Logged::Transfer(_));
            assert!(!is_transfer, "{name}");
        }
    }

    #[test]
    fn every_block_tells_its_place_and_its_transactions() {
        for (name, json) in shapes("block") {
            let Some(block) = read::<Option<BlockFields>>(&json) else {
                assert!(json.is_null(), "{name}");
                continue;
            };
            assert_eq!(block.hash == Field::Null, json["hash"].is_null(), "{name}");
            assert!(block.parent.get().is_some(), "{name}");
            assert!(block.number.get().is_some(), "{name}");
            assert!(block.timestamp.get().is_some(), "{name}");
            let count = json["transactions"].as_array().map(Vec::len);
            assert_eq!(block.transactions.as_ref().map(Vec::len), count, "{name}");
            let listed = block.transactions.unwrap_or_default();
            let hashes = listed.iter().filter_map(|listed| match listed {
                Listed::Hash(hash) => hash.get(),
                Listed::Whole(tx) => tx.hash.get(),
            });
            assert_eq!(hashes.count(), count.unwrap_or(0), "{name}");
        }
    }

    /// One change to a JSON value: somewhere in it a part is dropped or becomes something else.
    fn spoil(value: &mut Value, path: &[usize], by: Value) {
        let Some((first, rest)) = path.split_first() else {
            *value = by;
            return;
        };
        match value {
            Value::Array(items) if !items.is_empty() => {
                let place = first % items.len();
                spoil(&mut items[place], rest, by);
            }
            Value::Object(fields) if !fields.is_empty() => {
                let key = fields.keys().nth(first % fields.len()).cloned().unwrap();
                if rest.is_empty() && by.is_null() {
                    fields.remove(&key);
                } else {
                    spoil(&mut fields[&key], rest, by);
                }
            }
            _ => *value = by,
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let text = prop_oneof![any::<String>(), "0x[0-9a-f]{0,70}", Just("0x1".to_owned())];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            let fields = proptest::collection::btree_map("[a-z]{1,5}", inner.clone(), 0..3);
            prop_oneof![
                proptest::collection::vec(inner, 0..3).prop_map(Value::from),
                fields.prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = serde_json::from_slice::<BlockFields>(&bytes);
            let _ = serde_json::from_slice::<ReceiptFields>(&bytes);
            let _ = serde_json::from_slice::<LogFields>(&bytes);
        }

        /// A field that is not touched says what it said; one that is never becomes another value by luck.
        #[test]
        fn a_spoiled_receipt_is_success_only_by_its_status(
            which in any::<prop::sample::Index>(),
            path in proptest::collection::vec(any::<usize>(), 1..4),
            by in anything(),
        ) {
            let shapes = shapes("receipt");
            let (_, mut json) = which.get(&shapes).clone();
            spoil(&mut json, &path, by);
            if let Ok(receipt) = serde_json::from_str::<ReceiptFields>(&json.to_string()) {
                let is_one = json["status"].as_str().and_then(u64::from_text) == Some(1);
                prop_assert_eq!(receipt.is_success(), is_one);
            }
        }

        #[test]
        fn a_spoiled_transaction_keeps_its_other_fields(
            which in any::<prop::sample::Index>(),
            key in prop::sample::select(vec!["hash", "from", "to", "value", "nonce", "type", "gas"]),
            by in anything(),
        ) {
            let shapes = shapes("tx");
            let (name, mut json) = which.get(&shapes).clone();
            let before: TxFields = read(&json);
            json[key] = by;
            let after: TxFields = read(&json);
            prop_assert!(key == "hash" || after.hash == before.hash, "{}", name);
            prop_assert!(key == "to" || after.to == before.to, "{}", name);
            prop_assert!(key == "value" || after.value == before.value, "{}", name);
        }
    }
}
