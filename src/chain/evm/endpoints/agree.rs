//! What several endpoints say of one block, and looks at those that stand by.

use super::identity::{block_at, hash_of};
use super::standing::Reference;
use super::{Endpoint, Endpoints, LOOK, Look};
use crate::chain::evm::answers::BlockFields;
use crate::chain::evm::fields::Field;
use crate::chain::rpc::{Answer, Question};
use crate::egress::Dial;
use crate::rules::{BlockHash, TaggedBlock};
use futures_util::future::join_all;
use serde_json::json;
use std::time::Duration;

/// What endpoints say of a block of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// How many must have it.
    pub needed: usize,
    /// Who has it on its chain.
    pub agreeing: Vec<String>,
    /// Who does not, and what it said.
    pub others: Vec<(String, String)>,
}

impl Agreement {
    /// True when enough have it.
    pub fn is_reached(&self) -> bool {
        self.agreeing.len() >= self.needed
    }
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} endpoints agree", self.agreeing.len(), self.needed)?;
        for (name, words) in &self.others {
            write!(f, "; {name}: {words}")?;
        }
        Ok(())
    }
}

/// What an endpoint has at a height.
enum There {
    Block(BlockHash),
    Nothing,
    /// It did not say, and why.
    Unknown(String),
}

impl<D: Dial> Endpoints<D> {
    /// How many endpoints must agree to a block before something is credited at it.
    pub fn quorum(&self) -> usize {
        self.config.quorum
    }

    /// Do as many endpoints as the operator wants have this block on their chain? One that does not answer is
    /// not among them, and no reason to stop. With a quorum of one nobody is asked: the block came from one.
    pub async fn agreement(&self, block: TaggedBlock) -> Agreement {
        let needed = self.config.quorum;
        let mut agreement = Agreement {
            needed,
            agreeing: Vec::new(),
            others: Vec::new(),
        };
        if needed <= 1 {
            let in_use = (*self.current()).and_then(|place| self.all.get(place));
            agreement
                .agreeing
                .extend(in_use.map(|endpoint| endpoint.name.clone()));
            return agreement;
        }
        let mut waiting: Vec<&Endpoint<D>> = Vec::new();
        for endpoint in &self.all {
            match self.look_of(endpoint) {
                // Whoever is to be left alone would only cost its deadline.
                Look::Steady(_)
                | Look::Ahead(_)
                | Look::Stuck
                | Look::Behind
                | Look::Untried
                | Look::Failed(Duration::ZERO)
                | Look::Limited(Duration::ZERO) => waiting.push(endpoint),
                // Whoever is to be left alone would only cost its deadline.
                Look::Failed(_) | Look::Limited(_) | Look::Quarantined => {
                    let words = endpoint.record().standing.words(self.clock.instant());
                    agreement.others.push((endpoint.name.clone(), words));
                }
            }
        }
        // No more than are needed, so that nobody is asked for nothing.
        while !agreement.is_reached() && !waiting.is_empty() {
            let count = (needed - agreement.agreeing.len()).min(waiting.len());
            let asked: Vec<&Endpoint<D>> = waiting.drain(..count).collect();
            let there = join_all(asked.iter().map(|endpoint| self.at(endpoint, block.height))).await;
            for (endpoint, there) in asked.iter().zip(there) {
                let words = match there {
                    There::Block(hash) if hash == block.hash => {
                        agreement.agreeing.push(endpoint.name.clone());
                        continue;
                    }
                    There::Block(hash) => format!("has block 0x{hash} at height {}", block.height),
                    There::Nothing => format!("has no block at height {} yet", block.height),
                    There::Unknown(why) => why,
                };
                agreement.others.push((endpoint.name.clone(), words));
            }
        }
        agreement
    }

    /// Does every endpoint say that this block of ours is not on its chain: by another block at its height,
    /// or, where its tip is lower, by the tip of the endpoint in use, which is on another branch? One that
    /// does not answer says nothing, so that the answer is no. Those on other chains are not asked.
    pub async fn is_left_by_all(&self, block: TaggedBlock) -> bool {
        let current = (*self.current()).and_then(|place| self.all.get(place)?.record().tip);
        let asked: Vec<&Endpoint<D>> = self
            .all
            .iter()
            .filter(|endpoint| self.look_of(endpoint) != Look::Quarantined)
            .collect();
        let is_silent = |endpoint: &&Endpoint<D>| match self.look_of(endpoint) {
            Look::Failed(left) | Look::Limited(left) => !left.is_zero(),
            Look::Steady(_) | Look::Ahead(_) | Look::Stuck | Look::Behind => false,
            Look::Untried | Look::Quarantined => false,
        };
        if asked.iter().any(is_silent) {
            return false;
        }
        let has_left = async |endpoint: &Endpoint<D>| match self.at(endpoint, block.height).await {
            There::Block(hash) => hash != block.hash,
            There::Unknown(_) => false,
            There::Nothing => match current {
                Some(tip) if tip.block.height < block.height => {
                    let there = self.at(endpoint, tip.block.height).await;
                    matches!(there, There::Block(hash) if hash == tip.block.hash)
                }
                Some(_) | None => false,
            },
        };
        let left = join_all(asked.iter().map(|endpoint| has_left(endpoint))).await;
        !left.is_empty() && left.into_iter().all(|has_left| has_left)
    }

    /// Asks those that stand by for their tips, if it is time: whoever answers for a while may be gone back
    /// to, and one that was dead is found alive. Meant for the time between two looks at the chain.
    pub async fn look_around(&self) {
        let now = self.clock.instant();
        let current = *self.current();
        let is_due = |(place, endpoint): &(usize, &Endpoint<D>)| {
            let looked_at = endpoint.record().looked_at;
            let is_time = looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK);
            let may_be_asked = match self.look_of(endpoint) {
                Look::Steady(_) | Look::Ahead(_) | Look::Stuck | Look::Behind | Look::Untried => true,
                Look::Failed(left) | Look::Limited(left) => left.is_zero(),
                Look::Quarantined => false,
            };
            current != Some(*place) && is_time && may_be_asked
        };
        let due = self.all.iter().enumerate().filter(is_due);
        let looks = due.map(|(_, endpoint)| async move {
            endpoint.record().looked_at = Some(now);
            let question = Question::new("eth_getBlockByNumber", json!(["latest", false]));
            let answers = self.ask_one(endpoint, &[question], self.limits()).await;
            let answer = answers.ok().and_then(|mut answers| answers.pop());
            if let Some(block) = answer.and_then(tip_of) {
                endpoint.record().saw(self.clock.instant(), block);
            }
        });
        join_all(looks).await;
    }

    fn look_of(&self, endpoint: &Endpoint<D>) -> Look {
        endpoint.record().look(self.clock.instant(), Reference::None)
    }

    async fn at(&self, endpoint: &Endpoint<D>, height: u64) -> There {
        let answers = self.ask_one(endpoint, &[block_at(height)], self.limits()).await;
        let hash = answers.ok().and_then(|mut answers| answers.pop()).map(hash_of);
        match hash {
            Some(Ok(Some(hash))) => There::Block(hash),
            Some(Ok(None)) => There::Nothing,
            Some(Err(_)) => There::Unknown("its answer cannot be read".to_owned()),
            None => There::Unknown(endpoint.record().standing.words(self.clock.instant())),
        }
    }
}

fn tip_of(answer: Answer) -> Option<TaggedBlock> {
    match answer.decode::<BlockFields>().ok()? {
        BlockFields {
            hash: Field::Is(hash),
            number: Field::Is(height),
            ..
        } => Some(TaggedBlock { height, hash }),
        _ => None,
    }
}
