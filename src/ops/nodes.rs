//! The endpoints of a chain that has several, as they stand when somebody looks.

use super::text::{Labels, Page};
use super::{Followed, Parts};
use std::sync::Arc;

/// Every word for how an endpoint stands, so that each series is there before its first event.
const STATES: [&str; 5] = [
    "unchecked",
    "healthy",
    "unreachable",
    "rate_limited",
    "quarantined",
];

/// A look at the endpoints of a chain.
#[derive(Clone)]
pub struct Nodes(Arc<dyn Fn() -> NodesSeen + Send + Sync>);

/// What is seen of the endpoints of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesSeen {
    /// In the order of preference.
    pub endpoints: Vec<NodeSeen>,
    /// Blocks whose list of logs lacked transfers that their receipts have.
    pub log_mismatches: u64,
    /// Logs of listed tokens that begin like a transfer and are none of an amount.
    pub unsupported_transfers: u64,
    /// Transactions that no endpoint could trace.
    pub untraced: u64,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its name.
    pub name: String,
    /// How it stands, in one word.
    pub state: &'static str,
    /// The same in words that follow its name.
    pub words: String,
    /// Why it is not healthy.
    pub why: String,
    /// True of the one that is asked now.
    pub is_current: bool,
    /// Its tip when it was last asked for it.
    pub height: Option<u64>,
}

impl Nodes {
    /// Looks by this function.
    pub fn new(look: impl Fn() -> NodesSeen + Send + Sync + 'static) -> Nodes {
        Nodes(Arc::new(look))
    }

    /// What is to be seen now.
    pub fn look(&self) -> NodesSeen {
        (self.0)()
    }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nodes")
    }
}

/// The metrics of all chains that have several endpoints.
pub(super) fn exposition(page: &mut Page, parts: &Parts) {
    let look = |followed: &Followed| Some((followed.alias.clone(), followed.nodes.as_ref()?.look()));
    let chains: Vec<(String, NodesSeen)> = parts.followed.iter().filter_map(look).collect();
    if chains.is_empty() {
        return;
    }
    let labels = |alias: &String, node: &NodeSeen| -> Labels {
        vec![("chain", alias.clone()), ("endpoint", node.name.clone())]
    };
    let nodes_of = |(alias, seen): &(String, NodesSeen)| -> Vec<(String, NodeSeen)> {
        let named = |node: &NodeSeen| (alias.clone(), node.clone());
        seen.endpoints.iter().map(named).collect()
    };
    let all: Vec<(String, NodeSeen)> = chains.iter().flat_map(nodes_of).collect();
    let mut states = Vec::new();
    for (alias, node) in &all {
        for state in STATES {
            let mut labels = labels(alias, node);
            labels.push(("state", state.to_owned()));
            states.push((labels, i64::from(node.state == state)));
        }
    }
    page.gauges(
        "node_endpoint_state",
        "1 for how the endpoint of a node stands",
        states,
    );
    let current = all
        .iter()
        .map(|(alias, node)| (labels(alias, node), i64::from(node.is_current)));
    page.gauges(
        "node_endpoint_current",
        "1 for the endpoint that the chain is read from",
        current.collect(),
    );
    let heights = all.iter().filter_map(|(alias, node)| {
        let height = i64::try_from(node.height?).unwrap_or(i64::MAX);
        Some((labels(alias, node), height))
    });
    page.gauges(
        "node_endpoint_height",
        "Height of the endpoint's tip when it was last asked",
        heights.collect(),
    );
    let of_chain = |count: fn(&NodesSeen) -> u64| -> Vec<(Labels, u64)> {
        let row = |(alias, seen): &(String, NodesSeen)| (vec![("chain", alias.clone())], count(seen));
        chains.iter().map(row).collect()
    };
    page.counters(
        "log_mismatches",
        "Blocks whose list of logs lacked transfers that their receipts have",
        of_chain(|seen| seen.log_mismatches),
    );
    page.counters(
        "unsupported_transfers",
        "Logs of listed tokens that begin like a transfer and are none of an amount",
        of_chain(|seen| seen.unsupported_transfers),
    );
    page.counters(
        "untraced_transactions",
        "Transactions that no endpoint could trace, so that coin inside them was not seen",
        of_chain(|seen| seen.untraced),
    );
}
