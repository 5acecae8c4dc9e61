//! Steps that are the same on both nodes.

use super::*;
use crate::sandbox::evm::EvmSandbox;

/// What either node can be made to do.
pub(super) trait Node {
    /// Which it is.
    const ON: On;
    fn height(&self) -> u64;
    fn mine(&self, count: u32) -> Result<Vec<BlockHash>, SandboxError>;
    fn mine_with(&self, txids: &[Txid]) -> Result<BlockHash, SandboxError>;
    fn reorg(&self, depth: u32, keep: &[Txid]) -> Result<BlockHash, SandboxError>;
    fn mined_in(&self, depth: u32) -> Vec<Txid>;
    fn place(&self, txid: Txid) -> Place;
    fn evict(&self, txid: Txid) -> bool;
    fn resend(&self, txid: Txid) -> Result<(), SandboxError>;
    fn lag(&self, blocks: u32);
    fn catch_up(&self);
    fn set_trouble(&self, trouble: Option<Trouble>, span: Option<Duration>);
}

/// The methods of both have the same names.
macro_rules! node {
    ($node:ty, $on:expr) => {
        impl Node for $node {
            const ON: On = $on;
            fn height(&self) -> u64 {
                <$node>::height(self)
            }
            fn mine(&self, count: u32) -> Result<Vec<BlockHash>, SandboxError> {
                <$node>::mine(self, count)
            }
            fn mine_with(&self, txids: &[Txid]) -> Result<BlockHash, SandboxError> {
                <$node>::mine_with(self, txids)
            }
            fn reorg(&self, depth: u32, keep: &[Txid]) -> Result<BlockHash, SandboxError> {
                <$node>::reorg(self, depth.into(), keep)
            }
            fn mined_in(&self, depth: u32) -> Vec<Txid> {
                <$node>::mined_in(self, depth)
            }
            fn place(&self, txid: Txid) -> Place {
                <$node>::place(self, txid)
            }
            fn evict(&self, txid: Txid) -> bool {
                <$node>::evict(self, txid)
            }
            fn resend(&self, txid: Txid) -> Result<(), SandboxError> {
                <$node>::resend(self, txid)
            }
            fn lag(&self, blocks: u32) {
                <$node>::lag(self, blocks.into());
            }
            fn catch_up(&self) {
                <$node>::catch_up(self);
            }
            fn set_trouble(&self, trouble: Option<Trouble>, span: Option<Duration>) {
                <$node>::set_trouble(self, trouble, span);
            }
        }
    };
}
node!(Sandbox, On::Btc);
node!(EvmSandbox, On::Evm);

pub(super) fn evict<N: Node>(node: &N, desk: &Desk, of: &OfTx) -> Result<Did, Refused> {
    let txid = desk.find(N::ON, &of.tx)?;
    match node.evict(txid) {
        true => Ok(Did::new(format!("{} has left the mempool", of.tx)).of(txid)),
        false => Err(does_not_wait(&of.tx)),
    }
}

pub(super) fn resend<N: Node>(node: &N, desk: &Desk, of: &OfTx) -> Result<Did, Refused> {
    let txid = desk.find(N::ON, &of.tx)?;
    if node.place(txid) == Place::Waits {
        return Ok(Did::new(format!("{} waits already", of.tx)).of(txid));
    }
    node.resend(txid).map_err(refused)?;
    Ok(Did::new(format!("{} waits again", of.tx)).of(txid))
}

pub(super) fn lag<N: Node>(node: &N, lag: Blocks) -> Result<Did, Refused> {
    let height = node.height();
    if u64::from(lag.blocks) > height {
        return Err(Refused::new(
            format!("{} are more than there are", blocks(lag.blocks)),
            format!("take up to {height}, or 0, with which the node knows all of them again"),
        ));
    }
    match lag.blocks {
        0 => node.catch_up(),
        blocks => node.lag(blocks),
    }
    Ok(Did::new(lag_words(lag)))
}

pub(super) fn mine<N: Node>(node: &N, count: u32) -> Result<Did, Refused> {
    check_blocks(count)?;
    let mined = node.mine(count).map_err(refused)?;
    let did = Did::new(format!("mined {}", blocks(count)));
    Ok(match mined.last() {
        Some(last) => did.in_block(*last),
        None => did,
    })
}

pub(super) fn reorg<N: Node>(node: &N, desk: &Desk, reorg: &Reorg) -> Result<Did, Refused> {
    check_blocks(reorg.depth)?;
    let mut kept = Vec::new();
    for tx in &reorg.keep {
        match tx.as_str() {
            "all" => kept.extend(node.mined_in(reorg.depth)),
            tx => kept.push(desk.find(N::ON, tx)?),
        }
    }
    let block = node.reorg(reorg.depth, &kept).map_err(refused)?;
    Ok(Did::new(reorg_words(reorg, kept.len())).in_block(block))
}

pub(super) fn trouble<N: Node>(node: &N, state: &NodeState) -> Result<Did, Refused> {
    let words = trouble_words(state)?;
    node.set_trouble(state.meant().flatten(), span(state));
    Ok(Did::new(words))
}

/// Brings a rival into a block: by a reorg where the transaction that it stands against is in one. Says how.
pub(super) fn bring<N: Node>(node: &N, first: Txid, other: Txid) -> Result<(BlockHash, String), Refused> {
    let (block, how) = match node.place(first) {
        Place::Mined(depth) => {
            let block = node.reorg(depth, &[other]);
            (block, format!("by a reorg of {}", blocks(depth)))
        }
        Place::Waits | Place::Gone => (node.mine_with(&[other]), "by a block".to_owned()),
    };
    Ok((block.map_err(refused)?, how))
}

pub(super) fn does_not_wait(tx: &str) -> Refused {
    Refused::new(
        format!("{tx} does not wait for a block"),
        "`creditd trigger state` shows where it is; a mined one is taken back by `double-spend` or `reorg`",
    )
}
