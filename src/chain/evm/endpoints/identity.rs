//! Is this endpoint on our chain? Its chain id, its first block and the checkpoints say so. It is asked
//! before its first use, after each reconnect, and once in a while: a balancer may keep a connection and send
//! us to another node.

use super::{Endpoint, Endpoints};
use crate::chain::evm::answers::BlockFields;
use crate::chain::evm::fields::Field;
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::egress::Dial;
use crate::rules::{BlockHash, ChainId};
use crate::telemetry::printable;
use serde_json::json;

/// Why an endpoint is not used.
pub(super) enum Misfit {
    /// It could not say who it is.
    Silent(RpcError),
    /// It said so in a way that cannot be read.
    Odd(String),
    /// It is on another chain.
    Stranger(String),
}

impl<D: Dial> Endpoints<D> {
    /// True while whoever answers is the one that showed who it is.
    pub(super) fn is_proven(&self, endpoint: &Endpoint<D>) -> bool {
        let shown = endpoint.record().shown;
        shown.is_some_and(|(at, dials)| {
            let age = self.clock.instant().saturating_duration_since(at);
            dials == endpoint.rpc.dials() && age < self.config.recheck
        })
    }

    /// Asks who the endpoint is and holds it against the config.
    pub(super) async fn identify(&self, endpoint: &Endpoint<D>) -> Result<(), Misfit> {
        let (began, dials) = (self.clock.instant(), endpoint.rpc.dials());
        let heights = self.config.checkpoints.iter().map(|checkpoint| checkpoint.height);
        let mut questions = vec![
            Question::new("eth_chainId", json!([])),
            Question::new("web3_clientVersion", json!([])),
        ];
        questions.extend(std::iter::once(0).chain(heights).map(block_at));
        let asked = endpoint.exchange(&questions, self.limits()).await;
        // One connection was made for this question, or none. Where there are more, others are at their ends.
        let dials = endpoint.rpc.dials().min(dials + 1);
        let mut answers = asked.map_err(Misfit::Silent)?.into_iter();
        let mut next = || {
            answers
                .next()
                .ok_or_else(|| Misfit::Odd("an answer is missing".to_owned()))
        };
        let chain_id = next()?;
        // Many do not tell it, and nothing depends on it.
        if let Ok(software) = next()?.decode::<String>() {
            endpoint.rpc.set_software(&printable(&software));
        }
        let genesis = hash_of(next()?)?;
        self.check_chain_id(chain_id)?;
        self.check_genesis(endpoint, genesis)?;
        let (mut passed, mut is_pending) = (0, false);
        for checkpoint in &self.config.checkpoints {
            match hash_of(next()?)? {
                Some(hash) if hash == checkpoint.hash => passed = passed.max(checkpoint.height),
                Some(hash) => {
                    return Err(Misfit::Stranger(format!(
                        "at height {} it has block 0x{hash}, and the checkpoint is 0x{}: it follows another \
                         chain \
                         that began with the same blocks",
                        checkpoint.height, checkpoint.hash
                    )));
                }
                None => is_pending = true,
            }
        }
        let mut record = endpoint.record();
        record.unproven_above = is_pending.then_some(passed);
        record.shown = Some((began, dials));
        Ok(())
    }

    fn check_chain_id(&self, answer: Answer) -> Result<(), Misfit> {
        let told = match answer.decode::<Field<u64>>() {
            Ok(Field::Is(told)) => told,
            Ok(field) => {
                return Err(Misfit::Odd(format!(
                    "eth_chainId {}",
                    field.fault().unwrap_or_default()
                )));
            }
            Err(error) => return Err(Misfit::Silent(error)),
        };
        if told == self.config.chain_id {
            return Ok(());
        }
        Err(Misfit::Stranger(format!(
            "the config says {}, it is on {}",
            self.config.chain,
            ChainId::evm(told, None)
        )))
    }

    /// The first one that shows its first block says what that is, where it is not known from before.
    fn check_genesis(&self, endpoint: &Endpoint<D>, told: Option<BlockHash>) -> Result<(), Misfit> {
        let Some(told) = told else {
            return Err(Misfit::Odd("it does not show its first block".to_owned()));
        };
        let mut pinned = self.genesis_pin();
        match *pinned {
            Some((known, _)) if known == told => Ok(()),
            Some((known, from)) => {
                let from = from.and_then(|place| self.all.get(place));
                let from = from.map_or("the database", |endpoint| endpoint.name.as_str());
                Err(Misfit::Stranger(format!(
                    "its first block is 0x{told}, that of {} is 0x{known} (by {from})",
                    self.config.chain
                )))
            }
            None => {
                let place = self.all.iter().position(|other| std::ptr::eq(other, endpoint));
                *pinned = Some((told, place));
                Ok(())
            }
        }
    }
}

/// A block by its height, without its transactions.
pub(in crate::chain::evm) fn block_at(height: u64) -> Question {
    Question::new("eth_getBlockByNumber", json!([format!("{height:#x}"), false]))
}

/// The hash of a block; `None` where the endpoint has none there.
pub(super) fn hash_of(answer: Answer) -> Result<Option<BlockHash>, Misfit> {
    match answer.decode::<Option<BlockFields>>() {
        Ok(None) => Ok(None),
        Ok(Some(block)) => match block.hash {
            Field::Is(hash) => Ok(Some(hash)),
            field => Err(Misfit::Odd(format!(
                "a block's hash {}",
                field.fault().unwrap_or_default()
            ))),
        },
        Err(error) => Err(Misfit::Silent(error)),
    }
}
