//! Where the node stands, and up to where that may be believed: a node that knows of a branch with more work
//! is about to leave its tip.

use super::BitcoinSource;
use super::calls::{ChainInfo, ChainTip, HeaderTime, HeaderWork, NOT_FOUND, TipStatus, WorkText, is_code};
use super::config::LAST_KNOWN_SPLIT;
use crate::chain::{NodeTip, SourceError};
use crate::clock::millis;
use crate::egress::Dial;
use crate::rules::{BlockHash, Tags, Work};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// `getchaintips` walks all headers under the node's lock, so it is asked only when the tip or the best
/// header has moved, or after this long: headers of a better branch that is not longer move neither.
const TIPS_PATIENCE: Duration = Duration::from_secs(30);

/// How many branches are weighed at most, the highest first. Test networks gather thousands.
const TIPS_MAX: usize = 2_000;

/// How many headers are asked for in one exchange.
const WORK_BATCH: usize = 200;

/// What is remembered of the branches.
#[derive(Debug, Default)]
pub(super) struct Branches {
    /// The work of each branch tip that is listed now: it never changes.
    work: BTreeMap<BlockHash, Work>,
    last: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    best: BlockHash,
    headers: u64,
    at: Instant,
    ceiling: Option<u64>,
}

impl<D: Dial> BitcoinSource<D> {
    pub(super) async fn chain_info(&self) -> Result<ChainInfo, SourceError> {
        self.small("getblockchaininfo", json!([])).await
    }

    pub(super) async fn node_tip(&self) -> Result<NodeTip, SourceError> {
        let info = self.chain_info().await?;
        self.check_name(&info)?;
        self.check_again(&info).await?;
        self.check_checkpoints(info.blocks).await?;
        let better_fork = self.odd_tips(&info).await?;
        let time_secs = match info.time {
            Some(time) => time,
            None => {
                let params = json!([info.bestblockhash.0.to_string()]);
                self.small::<HeaderTime>("getblockheader", params).await?.time
            }
        };
        let unproven_above = self.unproven_above();
        Ok(NodeTip {
            tags: Tags::default(),
            hash: info.bestblockhash.0,
            height: info.blocks,
            chainwork: info.chainwork.0,
            time_secs: u64::from(time_secs),
            is_syncing: info.initialblockdownload || info.blocks != info.headers || unproven_above.is_some(),
            headers: info.headers,
            pruned_below: info.pruned.then(|| info.pruneheight.unwrap_or(0)),
            credit_ceiling: [better_fork, unproven_above].into_iter().flatten().min(),
        })
    }

    /// The lowest point at which a branch with more work than the active one leaves it.
    pub(super) async fn odd_tips(&self, info: &ChainInfo) -> Result<Option<u64>, SourceError> {
        let now = self.clock.instant();
        let (best, headers) = (info.bestblockhash.0, info.headers);
        if let Some(last) = self.branches().last {
            let age = millis(now.saturating_duration_since(last.at));
            if last.best == best && last.headers == headers && age < millis(TIPS_PATIENCE) {
                return Ok(last.ceiling);
            }
        }
        let mut tips: Vec<ChainTip> = self.small("getchaintips", json!([])).await?;
        tips.retain(|tip| match tip.status {
            TipStatus::HeadersOnly | TipStatus::ValidHeaders | TipStatus::ValidFork => true,
            TipStatus::Invalid => self.must_be_plain_core(),
            TipStatus::Active | TipStatus::Other => false,
        });
        tips.sort_by_key(|tip| (std::cmp::Reverse(tip.height), tip.hash.0));
        tips.truncate(TIPS_MAX);
        self.weigh(&tips).await?;
        let mut ceiling: Option<u64> = None;
        let mut branches = self.branches();
        for tip in &tips {
            if branches
                .work
                .get(&tip.hash.0)
                .is_none_or(|work| *work <= info.chainwork.0)
            {
                continue;
            }
            if tip.status == TipStatus::Invalid {
                return Err(invalid_but_better(tip));
            }
            let fork = tip.height.saturating_sub(tip.branchlen);
            ceiling = Some(ceiling.map_or(fork, |lowest| lowest.min(fork)));
        }
        branches.last = Some(Seen {
            best,
            headers,
            at: now,
            ceiling,
        });
        Ok(ceiling)
    }

    /// Learns the work of the branches that are new, and forgets those that are gone.
    async fn weigh(&self, tips: &[ChainTip]) -> Result<(), SourceError> {
        let unknown: Vec<BlockHash> = {
            let mut branches = self.branches();
            let mut known = std::mem::take(&mut branches.work);
            branches.work = tips
                .iter()
                .filter_map(|tip| known.remove_entry(&tip.hash.0))
                .collect();
            let is_unknown = |hash: &BlockHash| !branches.work.contains_key(hash);
            tips.iter().map(|tip| tip.hash.0).filter(is_unknown).collect()
        };
        for part in unknown.chunks(WORK_BATCH) {
            let params = part.iter().map(|hash| json!([hash.to_string()]));
            let answers = self
                .rpc
                .batch::<HeaderWork>("getblockheader", params, self.small_limits())
                .await;
            let answers = answers.map_err(|error| error.into_source("getblockheader of other branches"))?;
            for (hash, answer) in part.iter().zip(answers) {
                match answer {
                    Ok(HeaderWork {
                        chainwork: WorkText(work),
                    }) => {
                        self.branches().work.insert(*hash, work);
                    }
                    Err(error) if is_code(&error, NOT_FOUND) => {}
                    Err(error) => return Err(error.into_source("getblockheader of another branch")),
                }
            }
        }
        Ok(())
    }
}

fn invalid_but_better(tip: &ChainTip) -> SourceError {
    SourceError::WrongNetwork(format!(
        "the node holds block {} at height {} to be invalid although its branch has more work than the \
         node's own: it may follow other rules than Bitcoin's; configure a checkpoint above \
         {LAST_KNOWN_SPLIT} to use it",
        tip.hash.0, tip.height
    ))
}
