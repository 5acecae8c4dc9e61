//! Evidence: what proves credits, collected from the nodes after they were made and before pruning nodes drop
//! their blocks. Never in a credit's transaction: no proof may delay a credit. What nodes cannot give now
//! they are asked for again, for as long as the books have the payment in that block.

mod prover;
mod stored;

pub use prover::{Made, NoProof, Proof, Prover, claim_of, last_of, may_prove, on_chain};
pub use stored::{Damaged, unpack};

use crate::chain::{SourceError, keep_busy};
use crate::clock::{Clock, millis};
use crate::config::{ChainConfig, Config};
use crate::jobs::{self, Job};
use crate::rules::{BlockHash, ChainId, TaggedBlock};
use crate::store::{EvidenceOf, JobOutcome, NewEvidence, OwnEvidence, Store, StoreError};
use crate::telemetry::{counted, error_line};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it is looked whether something can be proved.
const EVERY: Duration = Duration::from_secs(60);

/// One run; what it has not come to the next one does.
const LONGEST: Duration = Duration::from_secs(600);

/// After this no more blocks are begun.
const BEGINS: Duration = Duration::from_secs(300);

/// One block. A node that hangs over one must not keep those behind it waiting.
const BLOCK_LONGEST: Duration = Duration::from_secs(120);

/// How many credits are taken at a time.
const BATCH: u32 = 200;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// How often a better proof is looked for where a node's answers did not make the hashes.
const BETTER_TRIES: u32 = 5;

/// The job that collects evidence; `None` where none is wanted.
pub fn job(config: &Config, store: &Store, clock: Clock) -> Option<Job> {
    let (config, store) = (Arc::new(config.clone()), store.clone());
    config.is_evidence_stored.then(|| {
        Job::new("evidence", EVERY, LONGEST, move || {
            let (config, store) = (Arc::clone(&config), store.clone());
            async move { jobs::outcome(collect(&config, &store, clock).await) }
        })
    })
}

/// One round: of each chain what is wanted. A chain whose nodes do not answer holds up no other.
async fn collect(config: &Config, store: &Store, clock: Clock) -> Result<JobOutcome, StoreError> {
    let (mut made, mut failed, mut has_more) = (0, Vec::new(), false);
    let (ends, chains) = (clock.instant() + BEGINS, config.chains().count());
    for (turn, chain) in config.chains().enumerate() {
        // A node that hangs, or a long backlog, takes the time of its own chain and of no other.
        let of_this = super::share(Some(ends), clock.instant(), chains - turn);
        let round = Round {
            store,
            clock,
            ends: of_this.unwrap_or(ends),
        };
        match round.collect_of(chain, &mut made).await? {
            Collected::All => {}
            Collected::Some => has_more = true,
            Collected::Failed(why) => failed.push(format!("{}: {why}", chain.alias())),
        }
    }
    let done = match made {
        0 => String::new(),
        made => format!("{} proved", counted(made as u64, "credit")),
    };
    Ok(match (failed.is_empty(), has_more) {
        (false, _) => JobOutcome::Failed(failed.join("; ")),
        (true, true) => JobOutcome::More(done),
        (true, false) => JobOutcome::Done(done),
    })
}

enum Collected {
    All,
    Some,
    Failed(String),
}

struct Round<'a> {
    store: &'a Store,
    clock: Clock,
    ends: Instant,
}

impl Round<'_> {
    async fn collect_of(&self, config: ChainConfig<'_>, made: &mut usize) -> Result<Collected, StoreError> {
        let window = config.reorg_window();
        let (chain, now) = (config.chain().clone(), self.clock.now_ms());
        let wanted = self
            .store
            .read(move |tx| tx.evidence_wanted(&chain, (now, window), BATCH))
            .await?;
        let is_cut = wanted.is_cut;
        if !wanted.of.is_empty() {
            let id = config.chain().clone();
            let pinned = self.store.read(move |tx| super::pinned(tx, &id)).await?;
            let prover = match Prover::of(config, &pinned, self.clock) {
                Ok(prover) => prover,
                Err(error) => return Ok(Collected::Failed(error_line(&error))),
            };
            for (block, of) in by_block(wanted.of) {
                if self.clock.instant() >= self.ends {
                    return Ok(Collected::Some);
                }
                if let Some(why) = self.block(&prover, (config, block), of, made).await? {
                    return Ok(Collected::Failed(why));
                }
            }
        }
        if wanted.mark.is_some() || !wanted.gone.is_empty() {
            let (chain, mark, gone) = (config.chain().clone(), wanted.mark, wanted.gone);
            let settled = self.store.write(move |tx| {
                tx.drop_waiting_evidence(&gone)?;
                match mark {
                    Some(mark) => tx.mark_evidence(&chain, mark),
                    None => Ok(()),
                }
            });
            settled.await?;
        }
        Ok(match is_cut {
            true => Collected::Some,
            false => Collected::All,
        })
    }

    /// Asks for the proofs of a block, and keeps what comes: a run that is cut off has not asked in vain.
    /// Returns why no node answers at all, if so.
    async fn block(
        &self,
        prover: &Prover,
        (config, block): (ChainConfig<'_>, TaggedBlock),
        of: Vec<EvidenceOf>,
        made: &mut usize,
    ) -> Result<Option<String>, StoreError> {
        let asked = tokio::select! { biased;
            asked = prover.prove(block, &of) => asked,
            () = self.clock.sleep(BLOCK_LONGEST) => {
                Err(NoProof::Later(format!("took longer than {} s", BLOCK_LONGEST.as_secs())))
            }
        };
        let proofs = match asked {
            Ok(proofs) => proofs,
            // One block that cannot be had must not stop those behind it.
            Err(NoProof::Source(error)) if is_of_node(&error) && !prover.is_up().await => {
                return Ok(Some(error_line(&error)));
            }
            Err(error) => {
                let none = |_: &EvidenceOf| Err(again(config.chain(), &error));
                of.iter().map(none).collect()
            }
        };
        *made += proofs.iter().filter(|proof| proof.is_ok()).count();
        let now = self.clock.now_ms();
        let new = keep_busy(|| packed(block, of, proofs, now));
        let chain = config.chain().clone();
        self.store.write(move |tx| tx.keep_evidence(&chain, &new)).await?;
        Ok(None)
    }
}

/// May it be that no node is of any use now, whatever is asked?
fn is_of_node(error: &SourceError) -> bool {
    match error {
        SourceError::Unreachable { .. } | SourceError::WrongNetwork(_) => true,
        SourceError::UnknownBlock(_)
        | SourceError::Pruned { .. }
        | SourceError::MissingData(_)
        | SourceError::BadBlock { .. } => false,
    }
}

/// The same for each credit of a block.
fn again(chain: &ChainId, error: &NoProof) -> NoProof {
    match error {
        NoProof::Source(SourceError::Pruned { hash }) => NoProof::Source(SourceError::Pruned { hash: *hash }),
        NoProof::Source(_) | NoProof::Later(_) => NoProof::Later(error.words(chain)),
        NoProof::Never(why) => NoProof::Never(why.clone()),
    }
}

fn by_block(of: Vec<EvidenceOf>) -> Vec<(TaggedBlock, Vec<EvidenceOf>)> {
    let mut blocks: BTreeMap<(u64, [u8; 32]), Vec<EvidenceOf>> = BTreeMap::new();
    for of in of {
        let at = (of.block.height, of.block.hash.0);
        blocks.entry(at).or_default().push(of);
    }
    let tagged = |((height, hash), of)| {
        let hash = BlockHash(hash);
        (TaggedBlock { height, hash }, of)
    };
    blocks.into_iter().map(tagged).collect()
}

/// When nodes are asked again; `None` = this is the last word.
fn next_at(tries: u32, proof: &Result<Made, NoProof>, now_ms: i64) -> Option<i64> {
    let after = match proof {
        Ok(made) if made.is_final || tries >= BETTER_TRIES => return None,
        Err(NoProof::Never(_)) => return None,
        // What one node has pruned only another one has.
        Ok(_) | Err(NoProof::Source(SourceError::Pruned { .. })) => DAY,
        // Two days, in which a node comes back or catches up, before a pruning one may drop the block.
        Err(NoProof::Source(_) | NoProof::Later(_)) => match tries {
            0 => MINUTE,
            1 => 5 * MINUTE,
            2 => 30 * MINUTE,
            3..=50 => HOUR,
            _ => DAY,
        },
    };
    Some(now_ms.saturating_add(millis(after)))
}

fn packed(
    block: TaggedBlock,
    of: Vec<EvidenceOf>,
    proofs: Vec<Result<Made, NoProof>>,
    now_ms: i64,
) -> NewEvidence {
    let mut shared: Option<Vec<u8>> = None;
    let mut credits = Vec::new();
    for (of, proof) in of.into_iter().zip(proofs) {
        let next_at = next_at(of.tries, &proof, now_ms);
        let body = match proof {
            Ok(made) => {
                let (own, whole) = stored::pack(&made.proof);
                let is_longer = shared.as_ref().is_none_or(|shared| whole.len() > shared.len());
                if is_longer && !whole.is_empty() {
                    shared = Some(whole);
                }
                Ok(own)
            }
            Err(error) => Err(error.words(&of.chain)),
        };
        credits.push(OwnEvidence {
            credit: of.credit,
            body,
            next_at,
        });
    }
    NewEvidence {
        block,
        shared,
        credits,
    }
}
