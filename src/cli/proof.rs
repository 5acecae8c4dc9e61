//! `proof`.

use super::Outcome;
use super::ids;
use super::open;
use super::out::Out;
use super::proof_args::Proof;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::Evidence;
use serde::Serialize;

#[derive(Serialize)]
struct AnswerJson {
    credit: String,
    proofs: Vec<ProofJson>,
}

#[derive(Serialize)]
struct ProofJson {
    block_hash: String,
    made_at: String,
    is_stored: bool,
    why: String,
}

/// What is stored of a credit. None is a problem found.
pub(super) fn proof(out: &mut Out, config: &Config, args: &Proof) -> anyhow::Result<Outcome> {
    let credit = ids::whole_in(config, &args.credit)?;
    let stored = open::reader(config)?.read(|tx| tx.evidence_of(&credit))?;
    let has_any = stored.iter().any(|proof| proof.body.is_some());
    let proofs: Vec<ProofJson> = stored.into_iter().map(json).collect();
    if out.json {
        out.json(&AnswerJson { credit, proofs })?;
    } else {
        if proofs.is_empty() {
            out.line(format!("{credit}: no proof is stored"))?;
        }
        for proof in &proofs {
            let what = match proof.is_stored {
                true => "a proof is stored",
                false => &proof.why,
            };
            out.line(format!("{credit} in block {}: {what}", proof.block_hash))?;
        }
        out.done()?;
    }
    Ok(match has_any {
        true => Outcome::Done,
        false => Outcome::Found,
    })
}

fn json(stored: Evidence) -> ProofJson {
    ProofJson {
        block_hash: stored.block.to_string(),
        made_at: rfc3339(stored.made_at),
        is_stored: stored.body.is_some(),
        why: stored.why,
    }
}
