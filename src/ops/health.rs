//! `/healthz` and `/readyz`.

use super::{NodeSeen, Nodes, Ops, PATIENCE};
use crate::clock::rfc3339;
use crate::store::StoreError;
use serde::Serialize;

/// Whether the process and its writer answer. Nodes have no say: a restart would not mend them.
pub(super) async fn healthz(ops: &Ops) -> Result<(), String> {
    let parts = &ops.0;
    tokio::select! { biased;
        answer = parts.store.write(|_| Ok(())) => match answer {
            // Waiting for space or for another writer is a state, not an illness.
            Ok(()) | Err(StoreError::DiskFull(_) | StoreError::Busy(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        () = parts.clock.sleep(PATIENCE) => Err("the database's writer does not answer".to_owned()),
    }
}

#[derive(Serialize)]
struct ReadyJson {
    ready: bool,
    database: &'static str,
    chains: Vec<ChainJson>,
}

#[derive(Serialize)]
struct ChainJson {
    chain: String,
    chain_id: String,
    ready: bool,
    state: &'static str,
    is_halted: bool,
    reason: String,
    since: Option<String>,
    height: Option<u64>,
    node_height: Option<u64>,
    lag: Option<u64>,
    /// Since a backup was restored: `catching_up` or `stating`.
    restoring: Option<&'static str>,
    /// EVM: those of the config, in the order of preference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<NodeJson>,
}

#[derive(Serialize)]
struct NodeJson {
    name: String,
    state: &'static str,
    told: String,
    is_current: bool,
    height: Option<u64>,
}

fn endpoints(nodes: &Nodes) -> Vec<NodeJson> {
    let json = |node: NodeSeen| NodeJson {
        name: node.name,
        state: node.state,
        told: node.words,
        is_current: node.is_current,
        height: node.height,
    };
    nodes.look().endpoints.into_iter().map(json).collect()
}

/// Whether every chain is followed and the database is read, and the answer in words.
pub(super) async fn readyz(ops: &Ops) -> (bool, String) {
    let readings = ops.readings().await;
    let mut chains = Vec::new();
    for followed in &ops.0.followed {
        let told = followed.pulse.reading();
        let known = readings
            .as_ref()
            .and_then(|read| read.chains.iter().find(|read| read.chain.id == followed.chain));
        let height = known.and_then(|known| known.chain.cursor.map(|tip| tip.height));
        let node_height = told
            .node_height
            .or_else(|| known.and_then(|known| known.chain.node_tip_height));
        chains.push(ChainJson {
            chain: followed.alias.clone(),
            chain_id: followed.chain.to_string(),
            ready: told.state.is_following(),
            state: told.state.word(),
            is_halted: told.state.is_halt(),
            reason: told.reason,
            since: told.since_ms.map(rfc3339),
            height,
            node_height,
            lag: height
                .zip(node_height)
                .map(|(ours, node)| node.saturating_sub(ours)),
            restoring: known
                .and_then(|known| known.restoring.as_ref())
                .map(|stage| stage.state.word()),
            endpoints: followed.nodes.as_ref().map_or_else(Vec::new, endpoints),
        });
    }
    let ready = ReadyJson {
        ready: readings.is_some() && chains.iter().all(|chain| chain.ready),
        database: if readings.is_some() { "up" } else { "down" },
        chains,
    };
    let mut body = serde_json::to_string_pretty(&ready).unwrap_or_default();
    body.push('\n');
    (ready.ready, body)
}
