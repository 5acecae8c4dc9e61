//! Proofs as they are stored: binary, a version first. What one looks like outside is
//! [`crate::audit::proof`]'s.

use super::prover::{HEADERS_MAX, Proof, up_to};
use crate::chain::bitcoin::proof::{BitcoinProof, RawHeader};
use crate::chain::evm::proof::{EvmProof, EvmTold};
use crate::rules::TaggedBlock;
use serde_json::Value;

/// The version of the bodies in the database.
const VERSION: u8 = 1;

/// What is stored is not what was: nothing can be read out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// A credit's own part, and what it shares with the others of its block; empty where that is nothing.
pub(super) fn pack(proof: &Proof) -> (Vec<u8>, Vec<u8>) {
    match proof {
        Proof::Bitcoin(proof) => {
            let branch = |branch: &[[u8; 32]]| branch.iter().map(|hash| hash.to_vec()).collect();
            let headers = proof.headers.iter().map(|header| header.to_vec()).collect();
            (
                write(&[
                    vec![b"bitcoin".to_vec()],
                    vec![proof.tx.clone()],
                    vec![proof.index.to_be_bytes().to_vec()],
                    branch(&proof.branch),
                ]),
                write(&[
                    vec![proof.coinbase.clone()],
                    branch(&proof.coinbase_branch),
                    headers,
                ]),
            )
        }
        Proof::Evm(proof) => (
            write(&[
                vec![b"evm".to_vec()],
                vec![proof.index.to_be_bytes().to_vec()],
                proof.tx_branch.clone(),
                proof.receipt_branch.clone(),
            ]),
            write(&[vec![proof.header.clone()]]),
        ),
        Proof::Told(told, why) => {
            let text = |value: &Value| vec![value.to_string().into_bytes()];
            let parts = [
                vec![b"told".to_vec()],
                text(&told.receipt),
                text(&told.tx),
                text(&told.trace),
                vec![why.clone().into_bytes()],
            ];
            (write(&parts), Vec::new())
        }
    }
}

/// Reads back what `pack` made, for a credit that was due at a height; `None` where it was made for a credit
/// of the same block that was due sooner.
///
/// # Errors
/// [`Damaged`].
pub fn unpack(
    own: &[u8],
    shared: Option<&[u8]>,
    block: TaggedBlock,
    due_height: u64,
) -> Result<Option<Proof>, Damaged> {
    let own = read(own).ok_or(Damaged)?;
    let shared = shared.map(|shared| read(shared).ok_or(Damaged)).transpose()?;
    let kind = own.first().and_then(|kind| kind.first()).ok_or(Damaged)?;
    match (kind.as_slice(), shared) {
        (b"bitcoin", Some(shared)) => {
            let proof = bitcoin_of(&own, &shared, block, due_height).ok_or(Damaged)?;
            let wanted = due_height.saturating_sub(block.height) + 1;
            let is_long = proof.headers.len() as u64 >= wanted.min(HEADERS_MAX);
            Ok(is_long.then_some(Proof::Bitcoin(proof)))
        }
        (b"evm", Some(shared)) => evm_of(&own, &shared).map(Proof::Evm).map(Some).ok_or(Damaged),
        (b"told", _) => told_of(&own)
            .map(|(told, why)| Some(Proof::Told(told, why)))
            .ok_or(Damaged),
        _ => Err(Damaged),
    }
}

type Lists = [Vec<Vec<u8>>];

fn number(part: &[Vec<u8>]) -> Option<u64> {
    Some(u64::from_be_bytes(part.first()?.as_slice().try_into().ok()?))
}

fn hashes(part: &[Vec<u8>]) -> Option<Vec<[u8; 32]>> {
    part.iter().map(|hash| hash.as_slice().try_into().ok()).collect()
}

fn bitcoin_of(own: &Lists, shared: &Lists, block: TaggedBlock, due_height: u64) -> Option<BitcoinProof> {
    let ([_, tx, index, branch], [coinbase, coinbase_branch, headers]) = (own, shared) else {
        return None;
    };
    let headers: Option<Vec<RawHeader>> = headers
        .iter()
        .map(|header| header.as_slice().try_into().ok())
        .collect();
    let (headers, due) = up_to(&headers?, block, due_height);
    Some(BitcoinProof {
        tx: tx.first()?.clone(),
        branch: hashes(branch)?,
        index: number(index)?,
        coinbase: coinbase.first()?.clone(),
        coinbase_branch: hashes(coinbase_branch)?,
        headers,
        due,
        anchor: None,
    })
}

fn evm_of(own: &Lists, shared: &Lists) -> Option<EvmProof> {
    let [_, index, tx_branch, receipt_branch] = own else {
        return None;
    };
    Some(EvmProof {
        header: shared.first()?.first()?.clone(),
        index: number(index)?,
        tx_branch: tx_branch.clone(),
        receipt_branch: receipt_branch.clone(),
    })
}

fn told_of(own: &Lists) -> Option<(EvmTold, String)> {
    let json = |place: usize| serde_json::from_slice(own.get(place)?.first()?).ok();
    let told = EvmTold {
        receipt: json(1)?,
        tx: json(2)?,
        trace: json(3)?,
    };
    Some((told, String::from_utf8(own.get(4)?.first()?.clone()).ok()?))
}

/// Lists of parts, each with its length before it.
fn write(lists: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let length = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = vec![VERSION];
    for list in lists {
        bytes.extend(length(list.len()));
        for part in list {
            bytes.extend(length(part.len()));
            bytes.extend(part);
        }
    }
    bytes
}

/// The lists that [`write()`] wrote.
fn read(bytes: &[u8]) -> Option<Vec<Vec<Vec<u8>>>> {
    let mut rest = bytes.strip_prefix(&[VERSION])?;
    let mut lists = Vec::new();
    while !rest.is_empty() {
        let mut list = Vec::new();
        for _ in 0..take(&mut rest)? {
            let length = usize::try_from(take(&mut rest)?).ok()?;
            let (part, behind) = rest.split_at_checked(length)?;
            list.push(part.to_vec());
            rest = behind;
        }
        lists.push(list);
    }
    Some(lists)
}

fn take(rest: &mut &[u8]) -> Option<u32> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    Some(u32::from_be_bytes(*length))
}
