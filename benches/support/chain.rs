//! A regtest chain of full blocks, made without a wallet: every coin is free for anyone to spend, so that no
//! signature is made or checked. The node's folder is kept in the cache folder and copied for each run.

use std::fs;
use std::path::Path;

use bitcoincore_rpc::bitcoin::absolute::LockTime;
use bitcoincore_rpc::bitcoin::block::{Header, Version};
use bitcoincore_rpc::bitcoin::consensus::encode::serialize_hex;
use bitcoincore_rpc::bitcoin::hashes::Hash;
use bitcoincore_rpc::bitcoin::{
    Amount, Block, BlockHash, CompactTarget, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn,
    TxOut, Witness, constants, transaction,
};
use serde_json::json;

use super::{addresses, cache};
use crate::common::node::RegtestNode;

/// Raised whenever other blocks are made.
const EDITION: u32 = 1;

/// Blocks before a coinbase may be spent.
const MATURITY: u32 = 100;

/// What each payment is worth.
pub const PAYMENT_SAT: u64 = 1_000;

/// What the chain holds above its coins.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Full blocks.
    pub blocks: u32,
    /// Transactions in each, besides the coinbase: one input, one payment, one change.
    pub txs: u32,
    /// How many of them pay a watched address.
    pub paid: u32,
    /// How many addresses are watched.
    pub watched: u32,
}

impl Plan {
    /// The height of the first full block.
    pub fn first_height(&self) -> u64 {
        u64::from(MATURITY) + 3
    }

    pub fn tip_height(&self) -> u64 {
        self.first_height() + u64::from(self.blocks) - 1
    }

    /// Whom transaction `n` of full block `block` pays.
    fn payee(&self, block: u32, n: u32) -> ScriptBuf {
        let number = block * self.txs + n;
        let script = if n < self.paid {
            // Spread over all watched addresses; the factor has no divisor in common with a power of ten.
            addresses::watched(number.wrapping_mul(7_919) % self.watched)
        } else {
            addresses::script("other", number)
        };
        ScriptBuf::from_bytes(script.0.to_vec())
    }
}

/// A node with the chain of `plan`; its further arguments in `args`.
pub fn node(plan: &Plan, args: &[&str]) -> RegtestNode {
    // The tip's time is long past, which must not count as a node that still downloads.
    let mut all = vec!["-maxtipage=2000000000", "-dbcache=200"];
    all.extend(args);
    let mut node = RegtestNode::start_with(&all);
    let Plan {
        blocks,
        txs,
        paid,
        watched,
    } = plan;
    let kept = cache().join(format!("bench-chain-{EDITION}-{blocks}x{txs}-{paid}-{watched}"));
    if !kept.exists() {
        println!(
            "making a chain of {blocks} blocks of {txs} transactions, once, in {}",
            kept.display()
        );
        build(plan, &node);
        node.stop();
        let unfinished = kept.with_extension("new");
        let _ = fs::remove_dir_all(&unfinished);
        copy_folder(&folder(&node), &unfinished);
        fs::rename(&unfinished, &kept).unwrap();
    } else {
        node.stop();
        copy_folder(&kept, &folder(&node));
    }
    node.start_again();
    assert_eq!(node.height(), plan.tip_height());
    node
}

fn folder(node: &RegtestNode) -> std::path::PathBuf {
    node.cookie_file().parent().unwrap().to_owned()
}

/// Blocks, their index and the coins; nothing that belongs to one run.
fn copy_folder(from: &Path, to: &Path) {
    for part in ["blocks", "chainstate"] {
        let _ = fs::remove_dir_all(to.join(part));
        copy_all(&from.join(part), &to.join(part));
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy_all(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// The tip of the chain in the making.
struct Tip {
    hash: BlockHash,
    height: u32,
}

fn build(plan: &Plan, node: &RegtestNode) {
    let mut tip = Tip {
        hash: constants::genesis_block(Network::Regtest).block_hash(),
        height: 0,
    };
    let first = submit(node, &mut tip, Amount::from_sat(50 * 100_000_000), Vec::new());
    for _ in 0..MATURITY {
        submit(node, &mut tip, Amount::ZERO, Vec::new());
    }
    let coin = (OutPoint::new(first, 0), Amount::from_sat(50 * 100_000_000));
    let share = coin.1 / u64::from(plan.txs);
    let fan = spend(coin.0, vec![to_anyone(share); plan.txs as usize]);
    let id = fan.compute_txid();
    let mut coins: Vec<(OutPoint, Amount)> = (0..plan.txs)
        .map(|vout| (OutPoint::new(id, vout), share))
        .collect();
    submit(node, &mut tip, Amount::ZERO, vec![fan]);
    for block in 0..plan.blocks {
        let mut txs = Vec::with_capacity(coins.len());
        for (n, (coin, amount)) in (0..).zip(&mut coins) {
            let payment = Amount::from_sat(PAYMENT_SAT);
            *amount = amount.checked_sub(payment).unwrap();
            let payment = TxOut {
                value: payment,
                script_pubkey: plan.payee(block, n),
            };
            let tx = spend(*coin, vec![to_anyone(*amount), payment]);
            *coin = OutPoint::new(tx.compute_txid(), 0);
            txs.push(tx);
        }
        submit(node, &mut tip, Amount::ZERO, txs);
    }
}

/// What anyone can spend: the script that leaves "true".
fn open_script() -> ScriptBuf {
    ScriptBuf::from_bytes(vec![0x51])
}

fn to_anyone(value: Amount) -> TxOut {
    TxOut {
        value,
        script_pubkey: open_script().to_p2wsh(),
    }
}

fn spend(coin: OutPoint, output: Vec<TxOut>) -> Transaction {
    Transaction {
        version: transaction::Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: coin,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::from_slice(&[open_script().as_bytes()]),
        }],
        output,
    }
}

/// Mines a block and returns the id of its coinbase.
fn submit(
    node: &RegtestNode,
    tip: &mut Tip,
    reward: Amount,
    txs: Vec<Transaction>,
) -> bitcoincore_rpc::bitcoin::Txid {
    let height = tip.height + 1;
    let mut block = Block {
        header: Header {
            version: Version::from_consensus(0x2000_0000),
            prev_blockhash: tip.hash,
            merkle_root: Hash::all_zeros(),
            // Ten minutes apart, from the genesis block of regtest on.
            time: 1_296_688_602 + 600 * height,
            bits: CompactTarget::from_consensus(0x207f_ffff),
            nonce: 0,
        },
        txdata: vec![coinbase(height, reward)],
    };
    block.txdata.extend(txs);
    let root = block.witness_root().unwrap();
    let commitment = Block::compute_witness_commitment(&root, &[0; 32]);
    let mut script = vec![0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];
    script.extend_from_slice(commitment.as_byte_array());
    block.txdata[0].output.push(TxOut {
        value: Amount::ZERO,
        script_pubkey: ScriptBuf::from_bytes(script),
    });
    block.header.merkle_root = block.compute_merkle_root().unwrap();
    while block.header.validate_pow(block.header.target()).is_err() {
        block.header.nonce += 1;
    }
    let answer = node.call("submitblock", &[json!(serialize_hex(&block))]);
    assert!(answer.is_null(), "block {height}: {answer}");
    *tip = Tip {
        hash: block.block_hash(),
        height,
    };
    block.txdata[0].compute_txid()
}

/// A coinbase as BIP 34 wants it, with the reserved value of BIP 141.
fn coinbase(height: u32, reward: Amount) -> Transaction {
    let script_sig = bitcoincore_rpc::bitcoin::script::Builder::new()
        .push_int(i64::from(height))
        .push_int(0)
        .into_script();
    Transaction {
        version: transaction::Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: OutPoint::null(),
            script_sig,
            sequence: Sequence::MAX,
            witness: Witness::from_slice(&[[0_u8; 32]]),
        }],
        output: vec![to_anyone(reward)],
    }
}
