//! Making the file that proves a credit: from what is stored, else from the nodes. What is printed was held
//! against its claim first, wherever it came from.

use super::super::pinned;
use super::chain::{network, print_address};
use super::{ProofFile, hold};
use crate::address::Network;
use crate::audit::evidence::{self, Damaged, NoProof, Proof, Prover, claim_of, last_of, may_prove};
use crate::chain::bitcoin::proof::MAIN_NAMED_FROM;
use crate::chain::evm::Pinned;
use crate::chain::{SourceError, bitcoin};
use crate::clock::{Clock, rfc3339};
use crate::config::{ChainConfig, Checkpoint, Config, SecretError};
use crate::rules::{ChainId, TaggedBlock};
use crate::store::{Database, EvidenceOf, JournalEntry, StoreError};
use thiserror::Error;

/// Why no file can be printed.
#[derive(Debug, Error)]
pub enum PrintError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The place of a secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// There is nothing to prove, or nothing to prove it with.
    #[error("{0}")]
    None(String, Next),
    /// Nodes do not answer, or cannot give it now.
    #[error("{0}")]
    Node(String),
}

/// What to do where there is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another credit is meant.
    OtherCredit,
    /// It is reversed.
    Reversed,
    /// The config has to name the chain.
    NameChain,
    /// A node is needed that has the block still.
    OtherNode,
    /// What nodes said is not what the books say.
    Audit,
    /// No checkpoint is low enough.
    NoCheckpoint,
    /// Its block is too old to name its height.
    TooOld,
}

impl Next {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Next::Reversed => {
                "`creditd tx` of the credit says what became of its payment; a credit that is reinstated \
                 has a proof again"
            }
            Next::OtherCredit => "`creditd credits` lists those that there are, `creditd tx` tells of one",
            Next::NameChain => {
                "name the chain and a node of it in the config, or ask the creditd that has them"
            }
            Next::OtherNode => {
                "name a node in the config that has the block still; what every node has dropped can no \
                 longer be proved"
            }
            Next::Audit => "`creditd audit` asks whether the credit is on the chain, by other calls",
            Next::TooOld => "`bitcoin-cli gettxoutproof` of a node that has it shows that the block holds it",
            Next::NoCheckpoint => "ask without --from-checkpoint, or name a lower checkpoint in the config",
        }
    }
}

/// Why nothing leads down from a block to one that everybody knows.
const NO_CHECKPOINT: &str = "no checkpoint is below it";

/// A file, and what whoever asked for it should know.
#[derive(Debug)]
pub struct Printed {
    /// The file.
    pub file: ProofFile,
    /// Lines for people.
    pub notes: Vec<String>,
}

/// What a file is to have beside what the credit needs. Bitcoin alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// The headers from the next lower block that everybody knows.
    pub is_from_checkpoint: bool,
    /// At least so many headers from the payment's block on.
    pub blocks: Option<u64>,
}

/// The file that proves a credit.
///
/// # Errors
/// [`PrintError`].
pub fn print(
    (config, clock): (&Config, Clock),
    database: &Database,
    credit: &str,
    more: More,
) -> Result<Printed, PrintError> {
    let id = credit.to_owned();
    let subject = database.read(|tx| tx.evidence_subject(&id))?;
    let Some(of) = subject else {
        return Err(no_subject(credit, &database.read(|tx| tx.journal(&id))?));
    };
    let address = print_address(&of.chain, &of.script).ok_or_else(|| {
        let what = format!("{credit}: its script has no address");
        PrintError::None(what, Next::OtherCredit)
    })?;
    if network(&of.chain) == Some(Network::Main) && of.block.height < MAIN_NAMED_FROM {
        let height = of.block.height;
        let why = format!("blocks below {MAIN_NAMED_FROM} do not name their height, and it is in {height}");
        return Err(PrintError::None(format!("{credit}: {why}"), Next::TooOld));
    }
    let stored = stored(database, &of)?;
    let asking = Asking {
        chain: config.chains().find(|chain| *chain.chain() == of.chain),
        pinned: database.read(|tx| pinned(tx, &of.chain))?,
        now_ms: clock.now_ms(),
        clock,
        of: &of,
        more,
    };
    let mut notes = Vec::new();
    let (proof, made_at) = match asking.needs_nodes(&stored) {
        false => stored
            .good
            .ok_or_else(|| PrintError::None(format!("{credit}: no proof"), Next::OtherNode))?,
        true => asking.ask(stored, &mut notes)?,
    };
    if let Err(fault) = hold(&of.chain, &claim_of(&of), &proof) {
        let what = format!("{credit}: what there is shows nothing: {fault}");
        return Err(PrintError::None(what, Next::Audit));
    }
    let file = ProofFile::of(&of, proof, address, made_at);
    Ok(Printed { file, notes })
}

/// Why there is nothing to prove of what was named.
fn no_subject(credit: &str, journal: &[JournalEntry]) -> PrintError {
    let (what, next) = match journal.last() {
        None => (format!("there is no credit {credit}"), Next::OtherCredit),
        Some(last) if last.cause.is_none() => (
            format!("another provider told of the payment of {credit}: no chain that is followed has it"),
            Next::OtherCredit,
        ),
        Some(last) => (
            format!(
                "{credit} is reversed since {} ({}), and what was taken back has no proof",
                rfc3339(last.at),
                last.reason
            ),
            Next::Reversed,
        ),
    };
    PrintError::None(what, next)
}

/// What is stored of a credit in the block where the books have it now.
struct Stored {
    /// A proof that holds, and when it was made.
    good: Option<(Proof, i64)>,
    /// Something is stored, and shows nothing: why.
    damaged: Option<String>,
    /// Its last header is not on the chain that the books have now.
    is_outdated: bool,
}

fn stored(database: &Database, of: &EvidenceOf) -> Result<Stored, StoreError> {
    let (rows, shared) = database.read(|tx| {
        let shared = tx.evidence_block(&of.chain, &of.block.hash)?;
        Ok((tx.evidence_of(&of.credit)?, shared))
    })?;
    let mut stored = Stored {
        good: None,
        damaged: None,
        is_outdated: false,
    };
    let row = rows.into_iter().find(|row| row.block == of.block.hash);
    let Some((body, made_at)) = row.and_then(|row| Some((row.body?, row.made_at))) else {
        return Ok(stored);
    };
    match evidence::unpack(&body, shared.as_deref(), of.block, of.due_height) {
        Err(Damaged) => stored.damaged = Some("it cannot be read".to_owned()),
        Ok(None) => {}
        Ok(Some(proof)) => match hold(&of.chain, &claim_of(of), &proof) {
            Err(fault) => stored.damaged = Some(fault.to_string()),
            Ok(_) => {
                if let Proof::Bitcoin(proof) = &proof {
                    let (chain, last) = (&of.chain, proof.due);
                    let ours = database.read(|tx| tx.kept_hash_at(chain, last.height))?;
                    stored.is_outdated = ours.is_some_and(|ours| ours != last.hash);
                }
                stored.good = Some((proof, made_at));
            }
        },
    }
    Ok(stored)
}

fn damaged(why: &str, error: &str) -> String {
    format!("the stored proof is damaged ({why}), and there is no other: {error}")
}

/// What nodes are asked for one file.
struct Asking<'a> {
    chain: Option<ChainConfig<'a>>,
    pinned: Pinned,
    clock: Clock,
    now_ms: i64,
    of: &'a EvidenceOf,
    more: More,
}

impl Asking<'_> {
    fn needs_nodes(&self, stored: &Stored) -> bool {
        let may_be_more = match &stored.good {
            None => true,
            Some((Proof::Bitcoin(proof), _)) => {
                let has = proof.headers.len() as u64;
                self.more.is_from_checkpoint || self.more.blocks.is_some_and(|blocks| blocks > has)
            }
            Some((Proof::Evm(_), _)) => false,
            // The config may say more than it did then, and another node too.
            Some((Proof::Told(..), _)) => self.chain.is_some_and(|chain| may_prove(chain, self.of)),
        };
        may_be_more || stored.is_outdated
    }

    /// Asks; falls back on what is stored where that will do.
    fn ask(&self, stored: Stored, notes: &mut Vec<String>) -> Result<(Proof, i64), PrintError> {
        let credit = &self.of.credit;
        if let Some(why) = &stored.damaged {
            notes.push(format!(
                "the stored proof of {credit} is damaged ({why}): asking the nodes instead"
            ));
        }
        let Some(chain) = self.chain else {
            let why = format!("the config does not name chain {}", self.of.chain);
            let error = PrintError::None(format!("{credit}: {why}"), Next::NameChain);
            return self.fall_back(stored, error, notes);
        };
        let prover = match Prover::of(chain, &self.pinned, self.clock) {
            Ok(prover) => prover,
            Err(error) => return self.fall_back(stored, error.into(), notes),
        };
        let checkpoints = match chain {
            ChainConfig::Bitcoin(chain) => chain.checkpoints.clone(),
            ChainConfig::Evm(_) => Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| PrintError::Node(error.to_string()))?;
        let known = stored.good.clone().filter(|_| !stored.is_outdated);
        match runtime.block_on(self.ask_nodes(&prover, &checkpoints, known)) {
            Ok(proof) => Ok(proof),
            Err(error) => {
                let why = error.words(&self.of.chain);
                let error = match error {
                    NoProof::Source(SourceError::Pruned { .. }) => {
                        PrintError::None(format!("{credit}: {why}"), Next::OtherNode)
                    }
                    NoProof::Never(_) if why == NO_CHECKPOINT => {
                        PrintError::None(format!("{credit}: {why}"), Next::NoCheckpoint)
                    }
                    NoProof::Never(_) => PrintError::None(format!("{credit}: {why}"), Next::Audit),
                    NoProof::Source(_) | NoProof::Later(_) => PrintError::Node(format!("{credit}: {why}")),
                };
                self.fall_back(stored, error, notes)
            }
        }
    }

    fn fall_back(
        &self,
        stored: Stored,
        error: PrintError,
        notes: &mut Vec<String>,
    ) -> Result<(Proof, i64), PrintError> {
        let is_more_asked = self.more != More::default();
        match stored.good {
            Some(good) if !is_more_asked => {
                if stored.is_outdated {
                    notes.push(format!(
                        "the stored proof ends with a block that is no longer on the chain, and there is no \
                         newer one: {error}"
                    ));
                }
                Ok(good)
            }
            Some(_) | None => Err(match (stored.damaged, error) {
                (Some(why), PrintError::Node(error)) => PrintError::Node(damaged(&why, &error)),
                (Some(why), PrintError::None(error, next)) => PrintError::None(damaged(&why, &error), next),
                (_, error) => error,
            }),
        }
    }

    async fn ask_nodes(
        &self,
        prover: &Prover,
        checkpoints: &[Checkpoint],
        known: Option<(Proof, i64)>,
    ) -> Result<(Proof, i64), NoProof> {
        let of = self.of;
        let (mut proof, made_at) = match known {
            Some((proof @ (Proof::Bitcoin(_) | Proof::Evm(_)), made_at)) => (proof, made_at),
            Some((Proof::Told(..), _)) | None => {
                let made = prover.prove(of.block, std::slice::from_ref(of)).await?;
                let nothing = || Err(NoProof::Later("nothing came".to_owned()));
                let made = made.into_iter().next().unwrap_or_else(nothing)?;
                (made.proof, self.now_ms)
            }
        };
        let Proof::Bitcoin(bitcoin) = &mut proof else {
            return Ok((proof, made_at));
        };
        let blocks = self.more.blocks.unwrap_or(0);
        if blocks > bitcoin.headers.len() as u64
            && let Some(headers) = prover.headers(of.block, blocks).await?
        {
            bitcoin.due = last_of(&headers, of.block);
            bitcoin.headers = headers;
        }
        if self.more.is_from_checkpoint {
            let from = lower(&of.chain, checkpoints, of.block.height);
            let from = from.ok_or_else(|| NoProof::Never(NO_CHECKPOINT.to_owned()))?;
            bitcoin.anchor = prover.anchor(from, of.block).await?;
        }
        Ok((proof, made_at))
    }
}

/// The next block below a height that everybody knows: a checkpoint, or the first block.
fn lower(chain: &ChainId, configured: &[Checkpoint], height: u64) -> Option<TaggedBlock> {
    let network = network(chain)?;
    let first = TaggedBlock {
        height: 0,
        hash: network.genesis(),
    };
    let known = bitcoin::checkpoints(network)
        .into_iter()
        .chain(configured.iter().copied());
    let known = known.map(|known| TaggedBlock {
        height: known.height,
        hash: known.hash,
    });
    known
        .chain([first])
        .filter(|known| known.height < height)
        .max_by_key(|known| known.height)
}
