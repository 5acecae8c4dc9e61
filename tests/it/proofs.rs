//! Files that are said to prove something: whatever stands in them, they are refused, and nothing falls over.

use bitcoincore_rpc::bitcoin::block::Header;
use bitcoincore_rpc::bitcoin::consensus::serialize;
use bitcoincore_rpc::bitcoin::constants::genesis_block;
use bitcoincore_rpc::bitcoin::hashes::Hash as _;
use bitcoincore_rpc::bitcoin::{self, OutPoint, ScriptBuf};
use creditd::address::Network;
use creditd::audit::proof::{Level, Verified, verify};
use creditd::chain::bitcoin::proof::{self as bitcoin_proof, Anchor, BitcoinProof};
use creditd::chain::evm;
use creditd::chain::evm::proof::{EvmProof, EvmTold, verify_told};
use creditd::chain::proof::Claim;
use creditd::rules::{Amount, Asset, BlockHash, ChainId, Outpoint, Script, TaggedBlock, Txid};
use ethers_core::utils::keccak256;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::fake_chain::{coin, mine_exactly, tx};

fn claim(vout: u64, block: [u8; 32]) -> Claim {
    Claim {
        outpoint: Outpoint {
            txid: Txid([7; 32]),
            vout,
        },
        script: Script([1; 20].into()),
        asset: Asset::Native,
        amount: Amount::from_u64(5),
        block: TaggedBlock {
            height: 3,
            hash: BlockHash(block),
        },
    }
}

/// A file of the right form.
pub fn well_formed() -> Value {
    let hash = "07".repeat(32);
    json!({
        "format": "creditd.proof/1", "credit": "cr_00", "level": "proved", "why": "",
        "chain_id": "bip122:0f9188f13cb7b2c71f2a335e3a4fc328@test",
        "claim": {
            "txid": hash, "vout": 0, "script": "0014751e76e8199196d454941c45d1b3a323f1433bd6",
            "address": "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080", "asset": "coin",
            "amount_base": "1", "block_hash": hash, "block_height": 1,
        },
        "bitcoin": {
            "tx": "00", "index": 0, "branch": [hash], "coinbase": {"tx": "00", "branch": []},
            "headers": ["00".repeat(80)], "due": {"height": 1, "hash": hash}, "anchor": null,
        },
        "evm": null, "told": null, "about": {"made_at": "", "software": ""},
    })
}

#[test]
fn a_well_formed_file_is_refused_by_what_it_claims() {
    let refused = |file: &Value| verify(&file.to_string(), &[]).unwrap_err().to_string();
    let file = well_formed();
    assert!(refused(&file).starts_with("credit: "), "{}", refused(&file));
    for (key, expected) in [
        ("format", "it names another"),
        ("level", "unknown variant"),
        ("credit", "credit: "),
    ] {
        let mut other = file.clone();
        other[key] = json!("x");
        assert!(refused(&other).contains(expected), "{key}: {}", refused(&other));
    }
    let mut more = file.clone();
    more["more"] = json!(1);
    assert!(
        refused(&more).contains("unknown field `more`"),
        "{}",
        refused(&more)
    );
    let twice = file.to_string().replacen('{', "{\"credit\":\"cr_00\",", 1);
    assert!(
        verify(&twice, &[])
            .unwrap_err()
            .to_string()
            .contains("duplicate field")
    );
}

/// A block that names another height than its place is one of somebody's own, on the first block.
#[test]
fn the_first_block_is_known_at_height_0_alone() {
    let genesis = genesis_block(bitcoin::Network::Regtest);
    for (below, is_good) in [(0_u32, true), (5, false)] {
        let paid = tx(&[coin(1)], &[(ScriptBuf::from(vec![0x51]), 7)]);
        let mut first = tx(&[OutPoint::null()], &[(ScriptBuf::from(vec![0x51]), 50)]);
        // The height in a script of one byte.
        first.input[0].script_sig = ScriptBuf::from(vec![0x51 + u8::try_from(below).unwrap(), 0]);
        let block = mine_exactly(genesis.block_hash(), 1_700_000_000, vec![first, paid.clone()]);
        let hash = |hash: &str| BlockHash::from_hex(hash).unwrap();
        let ids: Vec<[u8; 32]> = block
            .txdata
            .iter()
            .map(|tx| tx.compute_txid().to_byte_array())
            .collect();
        let at = TaggedBlock {
            height: u64::from(below) + 1,
            hash: hash(&block.block_hash().to_string()),
        };
        let raw = |header: &Header| <[u8; 80]>::try_from(serialize(header)).unwrap();
        let anchor = TaggedBlock {
            height: u64::from(below),
            hash: hash(&genesis.block_hash().to_string()),
        };
        let proof = BitcoinProof {
            tx: serialize(&paid),
            branch: vec![ids[0]],
            index: 1,
            coinbase: serialize(&block.txdata[0]),
            coinbase_branch: vec![ids[1]],
            headers: vec![raw(&block.header)],
            due: at,
            anchor: Some(Anchor {
                at: anchor,
                headers: vec![raw(&genesis.header)],
            }),
        };
        let claim = Claim {
            outpoint: Outpoint {
                txid: Txid(hash(&paid.compute_txid().to_string()).0),
                vout: 0,
            },
            script: Script([0x51].into()),
            asset: Asset::Native,
            amount: Amount::from_u64(7),
            block: at,
        };
        match bitcoin_proof::verify(Network::Regtest, &proof, &claim) {
            Ok(shown) => assert!(is_good && shown.known == Some(anchor), "{shown:?}"),
            Err(fault) => assert!(!is_good && fault.check == "anchor", "{fault}"),
        }
    }
}

#[test]
fn an_asset_is_named_as_elsewhere_and_no_digits_are_made_up() {
    let verified = |chain: ChainId, asset: Asset| Verified {
        credit: String::new(),
        chain,
        claim: Claim {
            asset,
            ..claim(0, [2; 32])
        },
        vout: 0,
        address: String::new(),
        level: Level::Proved,
        why: String::new(),
        depth: 0,
        worked: None,
        anchored: None,
        reaches: None,
    };
    let (btc, evm) = (
        ChainId::bitcoin(&BlockHash([7; 32]), Some("x")),
        ChainId::evm(5, Some("x")),
    );
    let token = Asset::Token([0xab; 20]);
    for (chain, asset, units, caip) in [
        (
            btc,
            Asset::Native,
            Some("0.00000005"),
            format!("bip122:{}/slip44:0", "07".repeat(16)),
        ),
        (evm.clone(), Asset::Native, None, "coin".to_owned()),
        (evm, token, None, format!("eip155:5/erc20:0x{}", "ab".repeat(20))),
    ] {
        let verified = verified(chain, asset);
        assert_eq!((verified.units().as_deref(), verified.asset()), (units, caip));
    }
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..120),
        Just(Vec::new()),
        Just(vec![0xc0])
    ]
}

fn a_hash() -> impl Strategy<Value = [u8; 32]> {
    any::<[u8; 32]>()
}

proptest! {
    #[test]
    fn any_text_is_refused(text in any::<String>()) {
        prop_assert!(verify(&text, &[]).is_err());
    }

    #[test]
    fn any_bytes_in_a_file_are_refused(tx in some_bytes(), header in some_bytes(), index in any::<u64>()) {
        let mut file = well_formed();
        file["bitcoin"]["tx"] = json!(const_hex::encode(tx));
        file["bitcoin"]["headers"] = json!([const_hex::encode(header)]);
        file["bitcoin"]["index"] = json!(index);
        prop_assert!(verify(&file.to_string(), &[]).is_err());
    }

    #[test]
    fn any_bitcoin_proof_is_refused(
        tx in some_bytes(),
        coinbase in some_bytes(),
        hashes in prop::collection::vec(a_hash(), 0..40),
        index in any::<u64>(),
        raw in prop::collection::vec(prop::collection::vec(any::<u8>(), 80), 0..3),
        height in any::<u64>(),
    ) {
        let headers: Vec<[u8; 80]> = raw.into_iter().map(|raw| raw.try_into().unwrap()).collect();
        let due = TaggedBlock { height, hash: BlockHash([1; 32]) };
        let proof = BitcoinProof {
            tx,
            branch: hashes.clone(),
            index,
            coinbase,
            coinbase_branch: hashes,
            headers: headers.clone(),
            due,
            anchor: Some(Anchor { at: due, headers }),
        };
        prop_assert!(bitcoin_proof::verify(Network::Regtest, &proof, &claim(0, [2; 32])).is_err());
    }

    /// The hashes of header and nodes are right, so whatever stands in them is looked at.
    #[test]
    fn any_evm_proof_is_refused(
        header in some_bytes(),
        nodes in prop::collection::vec(some_bytes(), 0..4),
        index in any::<u64>(),
        vout in prop_oneof![0..4_u64, any::<u64>()],
    ) {
        let tx_branch = nodes.clone();
        let proof = EvmProof { header: header.clone(), index, tx_branch, receipt_branch: nodes };
        prop_assert!(evm::proof::verify("1", &proof, &claim(vout, keccak256(header))).is_err());
    }

    #[test]
    fn any_told_payment_is_refused(text in any::<String>(), vout in prop_oneof![0..4_u64, any::<u64>()]) {
        for value in [json!(text), json!({"status": text, "logs": [text]}), json!([text]), Value::Null] {
            let told = EvmTold { receipt: value.clone(), tx: value.clone(), trace: value };
            prop_assert!(verify_told(&told, &claim(vout, [2; 32])).is_err());
        }
    }
}
