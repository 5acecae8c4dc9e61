//! A backup that is drilled: it is restored in the copy, up to the tip of each node, before anything is fed.

use super::copy::Bench;
use super::report::Restored;
use super::{DrillError, Line};
use crate::store::report::RestoreReport;
use crate::store::{Declaration, Declared, RestoreState};

/// Begins the restore, as `creditd restored` does on another machine: nothing is taken from the database that
/// is in use. Addresses that were handed out since are not watched: nothing in the backup says which.
pub(super) async fn declare(bench: &Bench) -> Result<(), DrillError> {
    let said = Declaration {
        reason: "drill".to_owned(),
        addresses: Some(0),
        is_again: true,
    };
    let begun = bench.write("restore the backup", move |tx| tx.declare_restore(&said));
    match begun.await? {
        // One of the backup's own that was under way goes on.
        Declared::Began(_) | Declared::UnderWay(_) | Declared::Before(_) => Ok(()),
    }
}

/// Is a restore under way?
pub(super) async fn is_open(bench: &Bench) -> Result<bool, DrillError> {
    let restores = bench.read("read the copy", |tx| tx.restores()).await?;
    let is_open = |restore: &RestoreReport| restore.chains.iter().any(|(chain, _)| is_under_way(chain.state));
    Ok(restores.iter().any(is_open))
}

pub(super) fn is_under_way(state: RestoreState) -> bool {
    match state {
        RestoreState::CatchingUp | RestoreState::Stating => true,
        RestoreState::Done | RestoreState::Superseded => false,
    }
}

/// What the restore did on each chain that is drilled.
pub(super) async fn report(bench: &Bench, lines: &[Line]) -> Result<Vec<Restored>, DrillError> {
    let restores = bench.read("read the copy", |tx| tx.restores()).await?;
    let Some(last) = restores.first() else {
        return Ok(Vec::new());
    };
    let mut told = Vec::new();
    for line in lines {
        let Some(stand) = &line.stand else {
            continue;
        };
        let of_chain = |(chain, _): &&(crate::store::RestoredChain, _)| chain.caip == stand.row.id.as_str();
        if let Some((chain, anew)) = last.chains.iter().find(of_chain) {
            told.push(Restored {
                chain: line.chain.alias().to_owned(),
                from: chain.cursor,
                to: chain.tip.map(|(height, _)| height),
                credits_told: anew.credits,
                invoices_told: anew.invoices,
                is_done: !is_under_way(chain.state),
            });
        }
    }
    Ok(told)
}
