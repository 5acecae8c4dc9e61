//! From the config of a chain to what asks its endpoints: in one place, so that nobody forgets what they are
//! held against.

use super::endpoints::{Endpoints, EndpointsConfig, Node};
use super::{EvmRules, EvmSource};
use crate::clock::Clock;
use crate::config::{EvmChain, EvmEndpoint, SecretError};
use crate::egress::Dial;
use crate::rules::BlockHash;

/// What is known of a chain from before, whatever endpoints say now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Its first block; `None` = whoever answers first shows it.
    pub genesis: Option<BlockHash>,
    /// From which height on inner coin is read from which source, lowest first; none = as the config says.
    pub inner: Vec<(u64, String)>,
}

/// The endpoints of a chain in their order, each with a way of its own.
///
/// # Errors
/// The place of a secret is not known.
pub fn nodes_of<D: Dial>(
    chain: &EvmChain,
    dial: impl Fn(&EvmEndpoint) -> D,
) -> Result<Vec<Node<D>>, SecretError> {
    let node = |endpoint: &EvmEndpoint| Node::of(endpoint, chain.batch_max, dial(endpoint));
    chain.endpoints.iter().map(node).collect()
}

impl<D: Dial> EvmSource<D> {
    /// A source that asks these of the endpoints of a chain.
    pub fn of(chain: &EvmChain, nodes: Vec<Node<D>>, pinned: &Pinned, clock: Clock) -> EvmSource<D> {
        EvmSource::of_config(chain, EndpointsConfig::of(chain), nodes, pinned, clock)
    }

    /// The same where each is believed alone.
    pub fn of_each(chain: &EvmChain, nodes: Vec<Node<D>>, pinned: &Pinned, clock: Clock) -> EvmSource<D> {
        let config = EndpointsConfig {
            quorum: 1,
            ..EndpointsConfig::of(chain)
        };
        EvmSource::of_config(chain, config, nodes, pinned, clock)
    }

    fn of_config(
        chain: &EvmChain,
        config: EndpointsConfig,
        nodes: Vec<Node<D>>,
        pinned: &Pinned,
        clock: Clock,
    ) -> EvmSource<D> {
        let endpoints = Endpoints::new(config, nodes, pinned.genesis, clock);
        let rules = match pinned.inner.is_empty() {
            true => EvmRules::of(chain),
            false => EvmRules::of(chain).with_pinned(&pinned.inner),
        };
        EvmSource::new(rules, endpoints, clock)
    }
}
