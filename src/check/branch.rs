//! Whether the database and a node are on one chain: a backup of another branch, a node that was set up anew,
//! and a node that is behind look alike otherwise.

use super::{Line, Verdict, counted, line};
use crate::chain::{ChainSource, NodeTip};
use crate::config::Config;
use crate::rules::BlockHash;
use crate::store::{ChainRow, Database, OpenMode};

const NOT_THIS_CHAIN: &str = "point to a node of the database's chain, or name a new `database` if the chain \
     began anew; if it did go back so far: `creditd chain accept-reorg` (docs/operations.md)";

/// What the database has of a chain.
pub(super) struct Known {
    pub row: ChainRow,
    /// The blocks that a reorg may take back, highest first.
    hashes: Vec<(u64, BlockHash)>,
}

/// `None` where the database cannot be read, or has nothing of it.
pub(super) fn known(config: &Config, chain: &crate::rules::ChainId, window: u64) -> Option<Known> {
    let database = Database::open(&config.database, OpenMode::ReadOnly).ok()?;
    database
        .read(|tx| {
            let Some(row) = tx.chain(chain)? else {
                return Ok(None);
            };
            let hashes = match &row.cursor {
                Some(at) => {
                    let lowest = at.height.saturating_sub(window);
                    let lowest = row.finalized.map_or(lowest, |last| lowest.min(last));
                    tx.hashes_down_to(row.key, lowest)?
                }
                None => Vec::new(),
            };
            Ok(Some(Known { row, hashes }))
        })
        .ok()?
}

/// A line where the node does not have our tip on its chain; nothing where it has, or cannot be asked, which
/// other lines say.
pub(super) async fn line_of<S: ChainSource>(source: &S, tip: &NodeTip, known: &Known) -> Option<Line> {
    let at = known.row.cursor.as_ref()?;
    if tip.height >= at.height {
        let told = source.header(at.header.hash).await.ok()?;
        if told.is_some_and(|told| told.is_active) {
            return None;
        }
    }
    let (lowest, _) = *known.hashes.last()?;
    let reached = known.hashes.partition_point(|(height, _)| *height > tip.height);
    let candidates = &known.hashes[reached..];
    let Some((highest, _)) = candidates.first() else {
        return Some(behind(tip, at.height));
    };
    let fork = shared(source, candidates).await?;
    if fork == Some(*highest) {
        // Where it has all of ours, it went on between two questions.
        return (tip.height < at.height).then(|| behind(tip, at.height));
    }
    let is_final = |fork: u64| known.row.finalized.is_some_and(|last| fork < last);
    Some(match fork {
        // All networks of a kind have the first block in common, and what was final gives way to nothing.
        Some(fork) if fork == 0 || is_final(fork) => line(
            "branch",
            Verdict::Bad,
            format!(
                "the node has no block above {fork} of the database, which is at block {}: it is on another \
                 branch, or of another chain that began in the same way",
                at.height
            ),
            NOT_THIS_CHAIN,
        ),
        Some(fork) => line(
            "branch",
            Verdict::Warning,
            format!(
                "the node left the database's chain after block {fork}: {} above it give way as soon as its \
                 branch is the better one",
                counted(at.height - fork, "block")
            ),
            "nothing, if the network has: the daemon follows, and reverses what it had credited there",
        ),
        None => line(
            "branch",
            Verdict::Bad,
            format!(
                "the node has none of blocks {lowest} to {} of the database: it is on another branch, or of \
                 another chain that was set up in the same way",
                at.height
            ),
            NOT_THIS_CHAIN,
        ),
    })
}

/// Also of one that is far behind: what it does not have yet says nothing about its branch.
fn behind(tip: &NodeTip, at: u64) -> Line {
    line(
        "branch",
        Verdict::Warning,
        format!(
            "the node is {} behind the database, which is at block {at}",
            counted(at - tip.height, "block")
        ),
        "wait, if it catches up: of this node nothing is read until it is past that block",
    )
}

/// The height of the highest of these blocks that the node has on its chain; the inner `None`: it has none.
/// Whoever has one has all below it, so a few questions tell, however many there are. `None` where it does
/// not answer.
async fn shared<S: ChainSource>(source: &S, highest_first: &[(u64, BlockHash)]) -> Option<Option<u64>> {
    let (mut first, mut last) = (0, highest_first.len());
    while first < last {
        let middle = first + (last - first) / 2;
        let (height, hash) = highest_first[middle];
        let theirs = source.hashes(height, 1).await.ok()?;
        match theirs.first() == Some(&hash) {
            true => last = middle,
            false => first = middle + 1,
        }
    }
    Some(highest_first.get(first).map(|(height, _)| *height))
}
