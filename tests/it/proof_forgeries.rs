//! Files that somebody made to deceive, each of them whole but for the one thing that it is about.

use bitcoincore_rpc::bitcoin::block::Header;
use bitcoincore_rpc::bitcoin::consensus::encode::{serialize, serialize_hex};
use bitcoincore_rpc::bitcoin::hashes::{Hash as _, sha256d};
use bitcoincore_rpc::bitcoin::{self, OutPoint, ScriptBuf, Transaction};
use creditd::address::EvmAddress;
use creditd::audit::proof::verify;
use creditd::rules::{BlockHash, ChainId, Outpoint, Txid, ids};
use ethers_core::types::{H256, Signature};
use ethers_core::utils::keccak256;
use ethers_core::utils::rlp::RlpStream;
use serde_json::{Value, json};

use crate::common::fake_chain::{coin, mine_exactly, tx};

const REGTEST: &str = "bip122:0f9188f13cb7b2c71f2a335e3a4fc328";
const MAIN: &str = "bip122:000000000019d6689c085ae165831e93";
const SCRIPT: &str = "0014751e76e8199196d454941c45d1b3a323f1433bd6";

pub fn credit(chain: &str, txid: &str, vout: u64) -> String {
    let outpoint = Outpoint {
        txid: Txid(BlockHash::from_typed(txid).unwrap().0),
        vout,
    };
    ids::credit_id(&ChainId::from_stored(chain.to_owned()), &outpoint)
}

/// The fault of a file: check and words.
pub fn fault(file: &Value) -> String {
    match verify(&file.to_string(), &[]) {
        Ok(_) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn script() -> ScriptBuf {
    ScriptBuf::from_hex(SCRIPT).unwrap()
}

fn payment(number: u32, sat: u64) -> Transaction {
    tx(&[coin(number)], &[(script(), sat)])
}

/// A block at height 9 with these transactions behind its coinbase, and what proves the one at `index`.
fn regtest(payments: Vec<Transaction>, index: usize) -> Value {
    let mut first = tx(&[OutPoint::null()], &[(ScriptBuf::from(vec![0x51]), 50)]);
    first.input[0].script_sig = ScriptBuf::from(vec![0x59, 0]);
    let txs = [vec![first], payments].concat();
    let parent = mine_exactly(
        bitcoin::BlockHash::all_zeros(),
        1_700_000_000,
        vec![payment(9, 1)],
    );
    let block = mine_exactly(parent.block_hash(), 1_700_000_600, txs);
    let txids: Vec<String> = block
        .txdata
        .iter()
        .map(|tx| tx.compute_txid().to_string())
        .collect();
    let (hash, chain) = (block.block_hash().to_string(), format!("{REGTEST}@test"));
    json!({
        "format": "creditd.proof/1", "credit": credit(&chain, &txids[index], 0), "chain_id": chain,
        "level": "proved", "why": "",
        "claim": {
            "txid": txids[index], "vout": 0, "script": SCRIPT,
            "address": "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080", "asset": "coin",
            "amount_base": block.txdata[index].output[0].value.to_sat().to_string(), "block_hash": hash,
            "block_height": 9,
        },
        "bitcoin": {
            "tx": serialize_hex(&block.txdata[index]), "index": index, "branch": branch(&txids, index),
            "coinbase": {"tx": serialize_hex(&block.txdata[0]), "branch": branch(&txids, 0)},
            "headers": [raw(&block.header)], "due": {"height": 9, "hash": hash},
            "anchor": {
                "height": 8, "hash": parent.block_hash().to_string(), "headers": [raw(&parent.header)],
            },
        },
        "evm": null, "told": null, "about": {"made_at": "", "software": ""},
    })
}

fn raw(header: &Header) -> String {
    const_hex::encode(serialize(header))
}

fn branch(txids: &[String], mut index: usize) -> Vec<String> {
    let mut level: Vec<sha256d::Hash> = txids.iter().map(|txid| txid.parse().unwrap()).collect();
    let mut beside = Vec::new();
    while level.len() > 1 {
        beside.push(level.get(index ^ 1).or(level.last()).unwrap().to_string());
        let pair = |two: &[sha256d::Hash]| {
            sha256d::Hash::hash(&[two[0].to_byte_array(), two.last().unwrap().to_byte_array()].concat())
        };
        level = level.chunks(2).map(pair).collect();
        index /= 2;
    }
    beside
}

fn spoiled(way: &str, value: Value) -> Value {
    let mut file = regtest(vec![payment(1, 5)], 1);
    *file.pointer_mut(way).unwrap() = value;
    file
}

/// Payment 1 of block 100,000 of the main chain. Its coinbase begins with the block's `bits`.
fn block_100_000(chain: &str, height: u64) -> Value {
    let txid = "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4";
    let hash = "000000000003ba27aa200b1cecaad478d2b00432346c3f1f3986da1afd33e506";
    let beside = "8e30899078ca1813be036a073bbf80b86cdddde1c96e9e9c99e9e3782df4ae49";
    let coinbase = "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87";
    json!({
        "format": "creditd.proof/1", "credit": credit(chain, txid, 0), "chain_id": chain,
        "level": "proved", "why": "",
        "claim": {
            "txid": txid, "vout": 0, "script": "76a914c398efa9c392ba6013c5e04ee729755ef7f58b3288ac",
            "address": "1JqDybm2nWTENrHvMyafbSXXtTk5Uv5QAn", "asset": "coin", "amount_base": "556000000",
            "block_hash": hash, "block_height": height,
        },
        "bitcoin": {
            "tx": "0100000001032e38e9c0a84c6046d687d10556dcacc41d275ec55fc00779ac88fdf357a187000000008c49304\
                   6022100c352d3dd993a981beba4a63ad15c209275ca9470abfcd57da93b58e4eb5dce82022100840792bc1f45\
                   6062819f15d33ee7055cf7b5ee1af1ebcc6028d9cdb1c3af7748014104f46db5e9d61a9dc27b8d64ad23e7383\
                   a4e6ca164593c2527c038c0857eb67ee8e825dca65046b82c9331586c82e0fd1f633f25f87c161bc6f8a63012\
                   1df2b3d3ffffffff0200e32321000000001976a914c398efa9c392ba6013c5e04ee729755ef7f58b3288ac000\
                   fe208010000001976a914948c765a6914d43f2a7ac177da2c2f6b52de3d7c88ac00000000",
            "index": 1, "branch": [coinbase, beside],
            "coinbase": {
                "tx": "01000000010000000000000000000000000000000000000000000000000000000000000000ffffffff080\
                       44c86041b020602ffffffff0100f2052a010000004341041b0e8c2567c12536aa13357b79a073dc4444ac\
                       b83c4ec7a0e2f99dd7457516c5817242da796924ca4e99947d087fedf9ce467cb9f7c6287078f801df276\
                       fdf84ac00000000",
                "branch": [txid, beside],
            },
            "headers": ["0100000050120119172a610421a6c3011dd330d9df07b63616c2cc1f1cd00200000000006657a9252aac\
                         d5c0b2940996ecff952228c3067cc38d4885efb5a4ac4247e9f337221b4d4c86041b0f2b5710"],
            "due": {"height": height, "hash": hash}, "anchor": null,
        },
        "evm": null, "told": null, "about": {"made_at": "", "software": ""},
    })
}

#[test]
fn a_proof_with_an_anchor_at_any_height_but_its_own_is_refused() {
    assert_eq!(fault(&regtest(vec![payment(1, 5)], 1)), "none");
    for height in [0, 7, 9, 10, u64::MAX - 1, u64::MAX] {
        let said = fault(&spoiled("/bitcoin/anchor/height", json!(height)));
        assert!(said.starts_with("anchor: "), "{height}: {said}");
    }
}

/// 453,281,356 is 0x1b04864c, the difficulty of the block.
#[test]
fn a_proof_takes_no_height_from_a_block_of_before_heights_were_named() {
    let said = fault(&block_100_000(MAIN, 453_281_356));
    assert_eq!(said, "height: a block at 453281356 has version 4 or more");
    let said = fault(&block_100_000(MAIN, 100_000));
    assert_eq!(said, "height: the first transaction does not name height 100000");
}

#[test]
fn a_proof_of_one_payment_is_of_one_chain() {
    for chain in [
        format!("{MAIN}@a"),
        "bip122:00000000da84f2bafbbc53dee25a72ae@a".to_owned(),
        REGTEST.to_owned(),
        format!("{REGTEST}@"),
        format!("{REGTEST}@a b"),
        format!("{REGTEST}@a@b"),
        "bip122:".to_owned(),
        "eip155:".to_owned(),
        "eip155:0".to_owned(),
        "eip155:01".to_owned(),
        "eip155:+1".to_owned(),
        "eip155:banana".to_owned(),
        "eip155:1@".to_owned(),
        "ext:shop".to_owned(),
    ] {
        let mut file = block_100_000(&chain, 453_281_356);
        if chain.starts_with(REGTEST) {
            file["claim"]["address"] = json!("mxMCzWSYvJ3RzvpyWWgxkeQdLnk2Vv3SxL");
        }
        let said = fault(&file);
        assert!(said.starts_with("chain: "), "{chain}: {said}");
    }
}

#[test]
fn a_proof_of_more_coin_than_there_is_or_of_none_is_refused() {
    let most = 2_100_000_000_000_000;
    assert_eq!(fault(&regtest(vec![payment(1, most)], 1)), "none");
    let said = fault(&regtest(vec![payment(1, most + 1)], 1));
    assert_eq!(said, "output: there is not so much coin");
    let said = fault(&regtest(vec![payment(1, 0)], 1));
    assert_eq!(said, "form: amount_base: nothing is paid");
}

/// The last of three stands beside itself.
#[test]
fn a_proof_of_a_place_behind_the_last_transaction_is_refused() {
    let mut file = regtest(vec![payment(1, 5), payment(2, 6)], 2);
    assert_eq!(fault(&file), "none");
    file["bitcoin"]["index"] = json!(3);
    assert_eq!(fault(&file), "branch: that place is behind the last one");
}

#[test]
fn a_proof_on_bitcoin_is_never_told() {
    let txid = json!(format!("0x{}", "22".repeat(32)));
    let hash = "11".repeat(32);
    let mut file = regtest(vec![payment(1, 5)], 1);
    file["level"] = json!("told");
    file["why"] = json!("x");
    file["bitcoin"] = Value::Null;
    file["claim"]["txid"] = json!("22".repeat(32));
    file["claim"]["block_hash"] = json!(hash);
    file["claim"]["vout"] = json!(1);
    file["credit"] = json!(credit(&format!("{REGTEST}@test"), &"22".repeat(32), 1));
    file["told"] = json!({
        "receipt": {
            "transactionHash": txid, "blockHash": format!("0x{hash}"), "blockNumber": "0x9", "status": "0x1",
        },
        "tx": {"hash": txid}, "trace": null,
    });
    assert_eq!(
        fault(&file),
        "chain: nothing is told of payments on Bitcoin chains"
    );
}

#[test]
fn a_proof_file_with_parts_that_are_too_long_is_not_read() {
    let many = json!(vec![json!({}); 50_001]);
    let mut told = regtest(vec![payment(1, 5)], 1);
    told["told"] = json!({"receipt": many, "tx": null, "trace": null});
    assert!(
        fault(&told).contains("more than 50000 lists and objects"),
        "{}",
        fault(&told)
    );
    let long = json!("0".repeat(10 << 20));
    told["told"] = json!({"receipt": long, "tx": null, "trace": null});
    assert!(
        fault(&told).contains("more than 4194304 bytes"),
        "{}",
        fault(&told)
    );
    let evm = json!({"header": long, "index": 0, "tx_branch": [], "receipt_branch": []});
    for (way, value) in [
        ("/evm", evm),
        ("/bitcoin/tx", long.clone()),
        ("/about/software", long),
    ] {
        let said = fault(&spoiled(way, value));
        assert!(said.contains("a part of it has more than"), "{way}: {said}");
    }
}

#[test]
fn a_proof_is_held_against_the_chain_and_the_block_that_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proof.json");
    let file = regtest(vec![payment(1, 5)], 1);
    std::fs::write(&path, file.to_string()).unwrap();
    let hash = file["claim"]["block_hash"].as_str().unwrap();
    let (regtest, other) = (format!("{REGTEST}@test"), "22".repeat(32));
    for (args, code, expected) in [
        (vec![], 0, "payment      output 0 of "),
        (vec!["--chain", &regtest], 0, &*format!("in block 9 of {regtest}")),
        (vec!["--chain", MAIN], 1, "FALSE  chain  it is of "),
        (vec!["--trust", hash], 0, "anchored     yes"),
        (vec!["--trust", &other], 1, "NOT ENOUGH  anchored: "),
        (vec![], 0, "worked       1 block, "),
        (vec!["--blocks", "1"], 0, "worked       yes: 1 block, "),
        (vec!["--blocks", "2"], 1, "worked       no: 1 block, "),
    ] {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_creditd"));
        let output = command
            .args(["proof", "verify"])
            .arg(&path)
            .args(&args)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(expected), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    }
}

/// A log of the coin that an EVM transaction moves from `sender`, in the one transaction of a block.
fn coin_log(sender: Option<[u8; 20]>, vout: u64) -> Value {
    let (payee, amount, chain) = ([0x5a; 20], 7_u64, "eip155:1");
    let word = |account: &[u8; 20]| [&[0; 12][..], account].concat();
    let fields = |stream: &mut RlpStream| {
        stream.append(&0_u64).append(&1_u64).append(&21_000_u64);
        stream.append(&&payee[..]).append(&amount).append_empty_data();
    };
    let mut signed = RlpStream::new_list(6);
    fields(&mut signed);
    let signature = Signature {
        r: 1.into(),
        s: 1.into(),
        v: 27,
    };
    let signer = signature.recover(H256(keccak256(signed.out()))).unwrap();
    let mut tx = RlpStream::new_list(9);
    fields(&mut tx);
    tx.append(&27_u64).append(&1_u64).append(&1_u64);
    let (tx, mut receipt) = (tx.out(), RlpStream::new_list(4));
    receipt
        .append(&1_u64)
        .append(&21_000_u64)
        .append(&&[0; 256][..])
        .begin_list(1)
        .begin_list(3);
    receipt
        .append(&&[&[0xff; 19][..], &[0xfe]].concat()[..])
        .begin_list(3);
    receipt.append(&&keccak256(b"Transfer(address,address,uint256)")[..]);
    receipt
        .append(&word(&sender.unwrap_or(signer.0)))
        .append(&word(&payee));
    receipt.append(&[&[0; 24][..], &amount.to_be_bytes()].concat());
    // The one leaf of a tree: its way is that of number 0.
    let leaf = |item: &[u8]| {
        let mut leaf = RlpStream::new_list(2);
        leaf.append(&&[0x20, 0x80][..]).append(&item);
        leaf.out().to_vec()
    };
    let (tx_leaf, receipt_leaf) = (leaf(&tx), leaf(&receipt.out()));
    let mut header = RlpStream::new_list(15);
    for _ in 0..4 {
        header.append(&&[1; 32][..]);
    }
    header
        .append(&&keccak256(&tx_leaf)[..])
        .append(&&keccak256(&receipt_leaf)[..]);
    header.append(&&[0; 256][..]).append(&0_u64).append(&9_u64);
    for _ in 0..6 {
        header.append_empty_data();
    }
    let (header, txid) = (header.out(), const_hex::encode_prefixed(keccak256(&tx)));
    json!({
        "format": "creditd.proof/1", "credit": credit(chain, &txid, vout), "chain_id": chain,
        "level": "proved", "why": "",
        "claim": {
            "txid": txid, "vout": vout, "script": const_hex::encode(payee),
            "address": EvmAddress(payee).to_string(), "asset": "coin", "amount_base": amount.to_string(),
            "block_hash": const_hex::encode_prefixed(keccak256(&header)), "block_height": 9,
        },
        "bitcoin": null,
        "evm": {
            "header": const_hex::encode_prefixed(&header), "index": 0,
            "tx_branch": [const_hex::encode_prefixed(&tx_leaf)],
            "receipt_branch": [const_hex::encode_prefixed(&receipt_leaf)],
        },
        "told": null, "about": {"made_at": "", "software": ""},
    })
}

/// EIP-7708: the transaction's own value is logged too. Moved by another, the same amount is another payment.
#[test]
fn a_proof_of_coin_that_is_logged_once_more_is_refused() {
    assert_eq!(fault(&coin_log(None, 0)), "none");
    let said = fault(&coin_log(None, 1));
    assert_eq!(said, "log: it repeats the transaction's own value, position 0");
    assert_eq!(fault(&coin_log(Some([0x77; 20]), 1)), "none");
}
