//! What blocks pay, as the node shows them by other calls than the daemon's.

use super::ground::{ASKED_AGAIN, Ground, Node, Standing, Stop};
use super::limits::Unasked;
use super::words;
use crate::chain::SourceError;
use crate::chain::bitcoin::{BitcoinSource, BlockAgain};
use crate::chain::evm::{Again, EvmSource};
use crate::config::ChainConfig;
use crate::egress::HttpDial;
use crate::rules::{BlockHash, Paid, Script, TaggedBlock};
use crate::store::{ChainKey, StoreError};
use std::collections::BTreeSet;

/// So many watched addresses are named to the node; where there are more, all transfers are listed.
const PAYEES_MAX: u32 = 5_000;

/// What was read.
pub(super) struct ShownBlocks {
    /// The last block.
    pub hash: BlockHash,
    /// The block below the first.
    pub parent: BlockHash,
    /// Of Bitcoin everything that is paid; of EVM chains what goes to us, as far as that is known.
    pub paid: Vec<Paid>,
    /// Heights where something may go to us and cannot be shown, and why.
    pub unproven: Vec<(u64, String)>,
    block: Option<BlockAgain>,
}

/// Blocks, or why the node cannot show them.
type Shown = Result<ShownBlocks, String>;

/// One block, whole.
pub(super) async fn of_bitcoin(
    source: &BitcoinSource<HttpDial>,
    node: &Node,
    height: u64,
) -> Result<Shown, Stop> {
    let Some(hash) = node.hash_at(height).await? else {
        return Ok(Err(format!("the node has no block at height {height}")));
    };
    match source.read_again(TaggedBlock { height, hash }).await {
        Ok(block) => Ok(Ok(ShownBlocks {
            hash,
            parent: block.header.parent,
            paid: block.paid().collect(),
            unproven: Vec::new(),
            block: Some(block),
        })),
        Err(error) => Ok(Err(node.alone(error).await?)),
    }
}

/// Transfers by a range of blocks; the coin by each block, where it is watched.
pub(super) async fn of_evm(
    ground: &Ground<'_>,
    source: &EvmSource<HttpDial>,
    node: &Node,
    standing: &Standing,
    (from, to): (u64, u64),
) -> Result<Shown, Stop> {
    for _ in 0..ASKED_AGAIN {
        let (below, last) = (
            node.hash_at(from.saturating_sub(1)).await?,
            node.hash_at(to).await?,
        );
        let (Some(parent), Some(hash)) = (below, last) else {
            return Ok(Err(format!("the node has no blocks {from} to {to}")));
        };
        let mut shown = ShownBlocks {
            hash,
            parent,
            paid: Vec::new(),
            unproven: Vec::new(),
            block: None,
        };
        match evm_paid(ground, source, standing, (from, to), &mut shown).await {
            // Logs come by heights: had the node gone to another branch, they would be of both.
            Ok(()) if node.hash_at(to).await? == last => return Ok(Ok(shown)),
            Ok(()) => {}
            Err(Fault::Source(error)) => return Ok(Err(node.alone(error).await?)),
            Err(Fault::Store(error)) => return Err(error.into()),
        }
    }
    let why = format!("its blocks {from} to {to} change while they are read");
    Err(Stop::Unasked(Unasked::TwoBranches.because(why)))
}

enum Fault {
    Source(SourceError),
    Store(StoreError),
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Fault {
        Fault::Source(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Store(error)
    }
}

async fn evm_paid(
    ground: &Ground<'_>,
    source: &EvmSource<HttpDial>,
    standing: &Standing,
    (from, to): (u64, u64),
    shown: &mut ShownBlocks,
) -> Result<(), Fault> {
    let key = standing.chain.key;
    let payees = ground
        .store
        .apart(move |database| database.read(|tx| tx.watched_scripts(key, 0, PAYEES_MAX + 1)))
        .await?;
    let payees: Vec<Script> = payees.into_iter().map(|(_, script)| script).collect();
    if payees.is_empty() {
        return Ok(());
    }
    shown.paid = match payees.len() <= PAYEES_MAX as usize {
        true => source.tokens_again(from, to, Some(&payees)).await?,
        false => among_all(ground, source, standing, (from, to)).await?,
    };
    if let ChainConfig::Evm(chain) = ground.config
        && chain.native.is_some()
    {
        for height in from..=to {
            coin(ground, source, standing, height, shown).await?;
        }
    }
    Ok(())
}

/// Every transfer is listed, and only those to us are looked into.
async fn among_all(
    ground: &Ground<'_>,
    source: &EvmSource<HttpDial>,
    standing: &Standing,
    (from, to): (u64, u64),
) -> Result<Vec<Paid>, Fault> {
    let mut transfers = source.transfers_again(from, to, None).await?;
    let all: BTreeSet<Script> = transfers
        .iter()
        .flat_map(|transfer| transfer.to.iter().flatten().cloned())
        .collect();
    let (key, all) = (standing.chain.key, all.into_iter().collect::<Vec<_>>());
    let ours = ground
        .store
        .apart(move |database| database.read(|tx| tx.ours_among(key, &all)))
        .await?;
    transfers.retain(|transfer| match &transfer.to {
        Some(to) => to.iter().any(|to| ours.contains(to)),
        None => true,
    });
    Ok(source.paid_in(&transfers, Some(&ours)).await?)
}

async fn coin(
    ground: &Ground<'_>,
    source: &EvmSource<HttpDial>,
    standing: &Standing,
    height: u64,
    shown: &mut ShownBlocks,
) -> Result<(), Fault> {
    let block = source.coin_again(height).await?;
    let (key, payees) = (
        standing.chain.key,
        block.offers.iter().map(|offer| offer.to.clone()),
    );
    let payees: Vec<Script> = payees.collect();
    let ours = ground
        .store
        .apart(move |database| database.read(|tx| tx.ours_among(key, &payees)))
        .await?;
    for offer in block.offers.iter().filter(|offer| ours.contains(&offer.to)) {
        match source.payment_again(offer.of, block.at).await? {
            Again::Shown(paid) => shown.paid.push(paid),
            Again::Absent => {}
            Again::Unproven(why) => {
                let why = format!("{}: {why}", words::outpoint(standing, &offer.of));
                shown.unproven.push((height, why));
            }
        }
    }
    Ok(())
}

impl ShownBlocks {
    /// Whether a payment is of the merchant's own coin alone, by the block (EVM: by who pays).
    pub(super) async fn is_all_ours(
        &self,
        ground: &Ground<'_>,
        key: ChainKey,
        paid: &Paid,
    ) -> Result<bool, StoreError> {
        let script = paid.script.clone();
        let Some(block) = &self.block else {
            let Some(payer) = paid.from.clone() else {
                return Ok(false);
            };
            let asked = ground
                .store
                .read(move |tx| tx.is_same_owner(key, &script, &payer));
            return asked.await;
        };
        let spent = block.spends(&paid.outpoint.txid).unwrap_or_default();
        let asked = ground.store.read(move |tx| tx.is_all_ours(key, &script, &spent));
        asked.await
    }
}
