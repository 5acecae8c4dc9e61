//! The only endpoint of an EVM chain, whatever is at the other end of its dial.

use std::time::Duration;

use creditd::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use creditd::chain::rpc::{Auth, Place};
use creditd::clock::Clock;
use creditd::egress::Dial;
use creditd::rules::ChainId;

/// One that is believed alone, of a development chain.
pub fn only<D: Dial>(chain_id: u64, url: &str, dial: D, clock: Clock) -> Endpoints<D> {
    let config = EndpointsConfig {
        chain_id,
        chain: ChainId::evm(chain_id, Some("test")),
        checkpoints: Vec::new(),
        quorum: 1,
        call_deadline: Duration::from_secs(10),
        recheck: Duration::from_secs(60),
    };
    let node = Node {
        name: "own".to_owned(),
        place: Place::Url(url.to_owned()),
        auth: Auth::None,
        batch_max: 50,
        dial,
    };
    Endpoints::new(config, vec![node], None, clock)
}
