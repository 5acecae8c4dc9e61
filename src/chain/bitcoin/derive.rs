//! The node's own derivation of addresses, to hold ours against before any is handed out.

use super::BitcoinSource;
use crate::address;
use crate::chain::SourceError;
use crate::chain::rpc::RpcError;
use crate::egress::Dial;
use crate::rules::Script;
use serde_json::json;

const DERIVE: &str = "deriveaddresses";

impl<D: Dial> BitcoinSource<D> {
    /// The scripts that the node derives from a ranged output descriptor, which ends with its checksum:
    /// `count` indexes from `first` on. It asks nothing of the chain, and a node that is still syncing
    /// answers too. <https://bitcoincore.org/en/doc/25.0.0/rpc/util/deriveaddresses/>
    ///
    /// # Errors
    /// The node could not be asked, refused the descriptor, or answered with what is no address of its
    /// chain.
    pub async fn derive(&self, descriptor: &str, first: u32, count: u32) -> Result<Vec<Script>, SourceError> {
        let Some(more) = count.checked_sub(1) else {
            return Ok(Vec::new());
        };
        let range = [u64::from(first), u64::from(first) + u64::from(more)];
        let answer: Vec<String> = self.small(DERIVE, json!([descriptor, range])).await?;
        let read = |text: &String| address::parse(self.config.network, text);
        let scripts: Result<Vec<Script>, _> = answer.iter().map(read).collect();
        scripts.map_err(|error| {
            let why = format!("{error}: is it a node of another chain?");
            RpcError::Broken(why).into_source(DERIVE)
        })
    }
}
