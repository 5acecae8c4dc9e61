//! EVM chains: from the endpoints of the config to a source, and what is told of them while it runs.

use super::DaemonError;
use super::chains::new_chain;
use crate::chain::evm::endpoints::{Node, Standing};
use crate::chain::evm::{EvmRules, EvmSource, Pinned, nodes_of};
use crate::clock::Clock;
use crate::config::{ChainConfig, EvmChain, SecretError};
use crate::egress::{Dial, HttpDial};
use crate::ops::{NodeSeen, Nodes, NodesSeen};
use crate::pulse::{Pulse, PulsingDial};
use crate::rules::ChainId;
use crate::store::{NewChain, NodeEndpoint, Store, StoreError, WriteTx};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often it is looked whether an endpoint stands otherwise than noted, for whoever asks the database.
const NOTE_EVERY: Duration = Duration::from_secs(2);

type Way = PulsingDial<HttpDial>;

/// The endpoints of a chain, not yet asked anything.
pub(super) struct EvmNodes {
    nodes: Vec<Node<Way>>,
    pulse: Pulse,
}

impl EvmNodes {
    /// Those of the config.
    pub(super) fn of(chain: &EvmChain, clock: Clock) -> Result<EvmNodes, SecretError> {
        let pulse = Pulse::default();
        let nodes = nodes_of(chain, |endpoint| {
            let dial = HttpDial::believing(endpoint.ca_file.clone());
            PulsingDial::new(dial, pulse.clone(), clock)
        })?;
        Ok(EvmNodes { nodes, pulse })
    }

    /// The source that asks them, and the pulse that its exchanges beat. What was the chain's first block
    /// before is so for ever.
    pub(super) async fn source(
        self,
        chain: &EvmChain,
        store: &Store,
        clock: Clock,
    ) -> Result<(Arc<EvmSource<Way>>, Pulse), DaemonError> {
        let (new, inner) = (
            new_chain(ChainConfig::Evm(chain)),
            EvmRules::of(chain).last_inner(),
        );
        let known = store.write_patiently(move |tx| pin(tx, &new, inner));
        let pinned = known.await.map_err(DaemonError::Database)?;
        let source = EvmSource::of(chain, self.nodes, &pinned, clock);
        Ok((Arc::new(source), self.pulse))
    }
}

/// Makes the chain known, and keeps from which height on its inner coin is read as the config says now.
pub fn pin(tx: &mut WriteTx<'_>, new: &NewChain, inner: Option<&'static str>) -> Result<Pinned, StoreError> {
    let known = tx.ensure_chain(new)?;
    let inner = match inner {
        Some(inner) => tx.pin_inner(known.key, inner)?,
        None => Vec::new(),
    };
    Ok(Pinned {
        genesis: known.genesis,
        inner,
    })
}

/// A look at the endpoints of a source, for operators.
pub(super) fn look<D: Dial>(source: &Arc<EvmSource<D>>, clock: Clock) -> Nodes {
    let source = Arc::clone(source);
    Nodes::new(move || {
        let counters = source.counters();
        let seen = source.endpoints().list().into_iter().map(|view| NodeSeen {
            state: view.standing.code(),
            words: view.standing.words(clock.instant()),
            why: why(&view.standing),
            height: view.tip.map(|tip| tip.block.height),
            is_current: view.is_current,
            name: view.name,
        });
        NodesSeen {
            endpoints: seen.collect(),
            log_mismatches: counters.log_mismatches.load(Ordering::Relaxed),
            unsupported_transfers: counters.unsupported_transfers.load(Ordering::Relaxed),
            untraced: counters.untraced.load(Ordering::Relaxed),
        }
    })
}

fn why(standing: &Standing) -> String {
    match standing {
        Standing::Unchecked | Standing::Healthy { .. } => String::new(),
        Standing::Unreachable { why, .. }
        | Standing::RateLimited { why, .. }
        | Standing::Quarantined { why } => why.clone(),
    }
}

/// Keeps in the database how the endpoints stand: commands read there, whatever listens or does not.
pub(super) fn keep_noted(
    chain: &ChainId,
    nodes: Nodes,
    (store, clock): (&Store, Clock),
    parts: &mut JoinSet<Result<(), DaemonError>>,
) {
    let (chain, store) = (chain.clone(), store.clone());
    parts.spawn(async move {
        let mut noted = Vec::new();
        loop {
            let now: Vec<NodeEndpoint> = nodes.look().endpoints.into_iter().map(endpoint).collect();
            if now != noted {
                let (chain, told) = (chain.clone(), now.clone());
                match store.write(move |tx| tx.note_endpoints(&chain, &told)).await {
                    Ok(true) => noted = now,
                    // The chain is not known yet, or the disk is full: the next look tries again.
                    Ok(false) => {}
                    Err(error) => noting_failed(&error),
                }
            }
            clock.sleep(NOTE_EVERY).await;
        }
    });
}

fn endpoint(seen: NodeSeen) -> NodeEndpoint {
    NodeEndpoint {
        name: seen.name,
        state: seen.state.to_owned(),
        reason: seen.why,
        is_current: seen.is_current,
    }
}

/// Not worth an end: what cannot be written here cannot be written elsewhere either, and is told there.
fn noting_failed(error: &StoreError) {
    tracing::debug!("how the endpoints stand cannot be noted: {error}");
}
