//! Whether the database and a node are on one chain: a backup of another branch, a node that was set up anew,
//! and a node that is behind look alike otherwise.

use super::{Line, Verdict, counted, line};
use crate::chain::{ChainSource, NodeTip};
use crate::config::Config;
use crate::rules::BlockHash;
use crate::store::{ChainRow, Database, OpenMode};

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
    let count = usize::try_from(at.height - lowest + 1).ok()?;
    let theirs = source.hashes(lowest, count).await.ok()?;
    let their = |height: u64| theirs.get(usize::try_from(height - lowest).ok()?);
    let shared = known
        .hashes
        .iter()
        .find(|(height, hash)| their(*height) == Some(hash));
    Some(match shared {
        Some((fork, _)) if *fork == tip.height => line(
            "branch",
            Verdict::Warning,
            format!(
                "the node is {} behind the database, which is at block {}",
                counted(at.height - fork, "block"),
                at.height
            ),
            "wait: nothing is read until it is past that block",
        ),
        Some((fork, _)) => line(
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
            "point to a node of the database's chain, or name a new `database` if the chain began anew; if \
             it did go back so far: `creditd chain accept-reorg` (docs/operations.md)",
        ),
    })
}
