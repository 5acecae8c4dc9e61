//! Headers, receipts and transactions in the form in which Ethereum hashes them, from the JSON that nodes
//! show (the yellow paper, and EIPs 155, 658, 1559, 2718, 2930, 4399, 4788, 4844, 4895, 7685, 7702, 7928).
//! Nothing here has to be believed: what is encoded right has the hash that it is known by, and what is
//! not has another. So a field that nobody has met yet makes a proof impossible, never wrong.

use super::fields::{Account, BloomBits, Data, FromText, Word};
use crate::rules::Amount;
use ethers_core::utils::rlp::RlpStream;
use serde_json::{Map, Value};

/// The most logs, topics or entries of a list; a block's gas buys fewer.
const ENTRIES_MAX: usize = 1 << 20;

/// The newest type of transaction that is known here.
const TYPE_MAX: u64 = 4;

/// A JSON object that is read field by field.
struct Fields<'j>(&'j Map<String, Value>);

impl<'j> Fields<'j> {
    fn of(json: &'j Value) -> Result<Fields<'j>, String> {
        json.as_object()
            .map(Fields)
            .ok_or_else(|| "not an object".to_owned())
    }

    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    fn get<T: FromText>(&self, name: &str) -> Result<T, String> {
        match self.0.get(name).and_then(Value::as_str).map(T::from_text) {
            Some(Some(value)) => Ok(value),
            Some(None) => Err(format!("{name} is of another form")),
            None => Err(format!("{name} is missing")),
        }
    }

    fn list(&self, name: &str) -> Result<&'j [Value], String> {
        let list = self.0.get(name).and_then(Value::as_array);
        let list = list.filter(|list| list.len() <= ENTRIES_MAX);
        list.map(Vec::as_slice)
            .ok_or_else(|| format!("{name} is no list"))
    }

    /// The type of a transaction or its receipt; those from before there were types have none.
    fn kind(&self) -> Result<u64, String> {
        let kind = if self.has("type") { self.get("type")? } else { 0 };
        match kind {
            0..=TYPE_MAX => Ok(kind),
            other => Err(format!("type {other:#x} is not known")),
        }
    }
}

/// What is written, item by item.
struct Writer<'f, 'j> {
    fields: &'f Fields<'j>,
    stream: RlpStream,
}

impl<'f, 'j> Writer<'f, 'j> {
    fn list(fields: &'f Fields<'j>) -> Writer<'f, 'j> {
        let mut stream = RlpStream::new();
        stream.begin_unbounded_list();
        Writer { fields, stream }
    }

    fn number(&mut self, name: &str) -> Result<(), String> {
        let value = self.fields.get(name)?;
        append_number(&mut self.stream, value);
        Ok(())
    }

    fn numbers(&mut self, names: &[&str]) -> Result<(), String> {
        names.iter().try_for_each(|name| self.number(name))
    }

    fn word(&mut self, name: &str) -> Result<(), String> {
        let Word(word) = self.fields.get(name)?;
        self.stream.append(&word.as_slice());
        Ok(())
    }

    fn account(&mut self, name: &str) -> Result<(), String> {
        let Account(account) = self.fields.get(name)?;
        self.stream.append(&account.as_slice());
        Ok(())
    }

    fn data(&mut self, name: &str) -> Result<(), String> {
        let Data(data) = self.fields.get(name)?;
        self.stream.append(&data);
        Ok(())
    }

    fn bloom(&mut self) -> Result<(), String> {
        let BloomBits(bits) = self.fields.get("logsBloom")?;
        self.stream.append(&bits.as_slice());
        Ok(())
    }

    /// Who is paid; nobody where a contract is made.
    fn payee(&mut self) -> Result<(), String> {
        match self.fields.has("to") {
            true => self.account("to")?,
            false => {
                self.stream.append_empty_data();
            }
        }
        Ok(())
    }

    /// The end, behind the byte that says which type it is.
    fn end(mut self, kind: u64) -> Vec<u8> {
        self.stream.finalize_unbounded_list();
        let bytes = self.stream.out();
        // The first kind is from before there were kinds.
        let kind = u8::try_from(kind).ok().filter(|kind| *kind > 0);
        kind.into_iter().chain(bytes).collect()
    }
}

fn append_number(stream: &mut RlpStream, number: Amount) {
    let bytes = number.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    stream.append(&&bytes[zeros..]);
}

/// What later forks put behind the first fifteen fields of a header, in their order; once one is missing, so
/// are all behind it.
const LATER: [&str; 8] = [
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
    "blockAccessListHash",
    "slotNumber",
];

/// A header: its Keccak hash is the block's.
///
/// # Errors
/// Which field is missing, or not of its form.
pub fn header(json: &Value) -> Result<Vec<u8>, String> {
    let fields = Fields::of(json)?;
    let mut writer = Writer::list(&fields);
    writer.word("parentHash")?;
    writer.word("sha3Uncles")?;
    writer.account("miner")?;
    for root in ["stateRoot", "transactionsRoot", "receiptsRoot"] {
        writer.word(root)?;
    }
    writer.bloom()?;
    writer.numbers(&["difficulty", "number", "gasLimit", "gasUsed", "timestamp"])?;
    writer.data("extraData")?;
    writer.word("mixHash")?;
    writer.data("nonce")?;
    let mut has_ended = false;
    for name in LATER {
        if !fields.has(name) {
            has_ended = true;
        } else if has_ended {
            return Err(format!("{name} is there, and a field before it is not"));
        } else if name.ends_with("Root") || name.ends_with("Hash") {
            writer.word(name)?;
        } else {
            writer.number(name)?;
        }
    }
    Ok(writer.end(0))
}

/// A receipt, as it stands in the tree of a block's receipts.
///
/// # Errors
/// Which field is missing, or not of its form; and a type that is not known.
pub fn receipt(json: &Value) -> Result<Vec<u8>, String> {
    receipt_of_kind(json, Fields::of(json)?.kind()?)
}

/// The same, as if it were of the first kind: to read a receipt of any kind by one reader.
///
/// # Errors
/// Which field is missing, or not of its form.
pub fn untyped_receipt(json: &Value) -> Result<Vec<u8>, String> {
    receipt_of_kind(json, 0)
}

fn receipt_of_kind(json: &Value, kind: u64) -> Result<Vec<u8>, String> {
    let fields = Fields::of(json)?;
    let mut writer = Writer::list(&fields);
    match fields.has("status") {
        true => writer.number("status")?,
        // Before Byzantium it was the state behind the transaction.
        false => writer.word("root")?,
    }
    writer.number("cumulativeGasUsed")?;
    writer.bloom()?;
    let logs = fields.list("logs")?;
    writer.stream.begin_list(logs.len());
    for log in logs {
        let log = Fields::of(log)?;
        let Account(contract) = log.get("address")?;
        let Data(data) = log.get("data")?;
        let topics = log.list("topics")?;
        writer.stream.begin_list(3).append(&contract.as_slice());
        append_words(&mut writer.stream, topics)?;
        writer.stream.append(&data);
    }
    Ok(writer.end(kind))
}

fn append_words(stream: &mut RlpStream, words: &[Value]) -> Result<(), String> {
    stream.begin_list(words.len());
    for word in words {
        let word = word.as_str().and_then(Word::from_text);
        let Word(word) = word.ok_or("a word is of another form")?;
        stream.append(&word.as_slice());
    }
    Ok(())
}

/// A signed transaction: its Keccak hash is its id.
///
/// # Errors
/// Which field is missing, or not of its form; and a type that is not known.
pub fn transaction(json: &Value) -> Result<Vec<u8>, String> {
    let fields = Fields::of(json)?;
    let kind = fields.kind()?;
    let mut writer = Writer::list(&fields);
    if kind > 0 {
        writer.number("chainId")?;
    }
    writer.number("nonce")?;
    match kind {
        0 | 1 => writer.number("gasPrice")?,
        _ => writer.numbers(&["maxPriorityFeePerGas", "maxFeePerGas"])?,
    }
    writer.number("gas")?;
    writer.payee()?;
    writer.number("value")?;
    writer.data("input")?;
    if kind > 0 {
        append_access(&mut writer.stream, fields.list("accessList")?)?;
    }
    if kind == 3 {
        writer.number("maxFeePerBlobGas")?;
        append_words(&mut writer.stream, fields.list("blobVersionedHashes")?)?;
    }
    if kind == 4 {
        append_authorizations(&mut writer.stream, fields.list("authorizationList")?)?;
    }
    let parity = match kind > 0 && fields.has("yParity") {
        true => "yParity",
        false => "v",
    };
    writer.numbers(&[parity, "r", "s"])?;
    Ok(writer.end(kind))
}

/// EIP-2930.
fn append_access(stream: &mut RlpStream, entries: &[Value]) -> Result<(), String> {
    stream.begin_list(entries.len());
    for entry in entries {
        let entry = Fields::of(entry)?;
        let Account(account) = entry.get("address")?;
        stream.begin_list(2).append(&account.as_slice());
        append_words(stream, entry.list("storageKeys")?)?;
    }
    Ok(())
}

/// EIP-7702.
fn append_authorizations(stream: &mut RlpStream, entries: &[Value]) -> Result<(), String> {
    stream.begin_list(entries.len());
    for entry in entries {
        let entry = Fields::of(entry)?;
        stream.begin_list(6);
        append_number(stream, entry.get("chainId")?);
        let Account(account) = entry.get("address")?;
        stream.append(&account.as_slice());
        let parity = if entry.has("yParity") { "yParity" } else { "v" };
        for name in ["nonce", parity, "r", "s"] {
            append_number(stream, entry.get(name)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethers_core::utils::keccak256;
    use serde_json::json;

    /// Mainnet's first block. Its hash is what every node of it is asked for first.
    #[test]
    fn the_first_block_of_mainnet_has_its_hash() {
        let zeros = |count: usize| format!("0x{}", "00".repeat(count));
        let nothing = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";
        let json = json!({
            "parentHash": zeros(32),
            "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
            "miner": zeros(20),
            "stateRoot": "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544",
            "transactionsRoot": nothing,
            "receiptsRoot": nothing,
            "logsBloom": zeros(256),
            "difficulty": "0x400000000",
            "number": "0x0",
            "gasLimit": "0x1388",
            "gasUsed": "0x0",
            "timestamp": "0x0",
            "extraData": "0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa",
            "mixHash": zeros(32),
            "nonce": "0x0000000000000042",
        });
        assert_eq!(
            const_hex::encode(keccak256(header(&json).unwrap())),
            "d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3"
        );
        for name in ["parentHash", "logsBloom", "number", "extraData", "nonce"] {
            let mut spoiled = json.clone();
            spoiled[name] = json!("16");
            assert_eq!(
                header(&spoiled).unwrap_err(),
                format!("{name} is of another form")
            );
            spoiled[name] = Value::Null;
            assert_eq!(header(&spoiled).unwrap_err(), format!("{name} is missing"));
        }
        let mut gapped = json;
        gapped["withdrawalsRoot"] = json!(zeros(32));
        let why = header(&gapped).unwrap_err();
        assert_eq!(why, "withdrawalsRoot is there, and a field before it is not");
    }

    /// The example of EIP-155, with the hash that its signature makes known.
    #[test]
    fn a_transaction_of_the_first_kind_is_encoded_as_eip_155_shows_it() {
        let json = json!({
            "nonce": "0x9", "gasPrice": "0x4a817c800", "gas": "0x5208",
            "to": "0x3535353535353535353535353535353535353535", "value": "0xde0b6b3a7640000", "input": "0x",
            "v": "0x25",
            "r": "0x28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276",
            "s": "0x67cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83",
        });
        let expected = "f86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a764\
                        00008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9\
                        d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83";
        assert_eq!(const_hex::encode(transaction(&json).unwrap()), expected);
        let mut unknown = json;
        unknown["type"] = json!("0x7e");
        assert_eq!(transaction(&unknown).unwrap_err(), "type 0x7e is not known");
        assert_eq!(receipt(&unknown).unwrap_err(), "type 0x7e is not known");
    }
}
