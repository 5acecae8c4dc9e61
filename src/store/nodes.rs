//! How the endpoints of EVM chains stand, as the daemon saw it last: commands show it, nothing decides by it.

use super::chains::ChainKey;
use super::codec::int;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::ChainId;
use rusqlite::params;

/// The longest reason that is kept.
const REASON_CHARS_MAX: usize = 300;

/// How an endpoint stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Its name in the config.
    pub name: String,
    /// `unchecked`, `healthy`, `unreachable`, `rate_limited` or `quarantined`.
    pub state: String,
    /// Why it is not healthy.
    pub reason: String,
    /// True of the one that is asked.
    pub is_current: bool,
}

impl ReadTx<'_> {
    /// The endpoints of a chain in the order of preference, and since when each stands so.
    pub fn node_endpoints(&self, chain: ChainKey) -> Result<Vec<(NodeEndpoint, i64)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT name, state, reason, is_current, since FROM node_endpoints \
             WHERE chain = ?1 ORDER BY place",
        )?;
        let rows = statement.query_map([chain.0], |row| {
            let endpoint = NodeEndpoint {
                name: row.get(0)?,
                state: row.get(1)?,
                reason: row.get(2)?,
                is_current: row.get(3)?,
            };
            Ok((endpoint, row.get(4)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl WriteTx<'_> {
    /// Notes how all endpoints of a chain stand now; false where the chain is not known yet.
    pub fn note_endpoints(
        &mut self,
        chain: &ChainId,
        endpoints: &[NodeEndpoint],
    ) -> Result<bool, StoreError> {
        let Some(chain) = self.chain(chain)?.map(|row| row.key) else {
            return Ok(false);
        };
        let now = self.now_ms();
        let before = self.node_endpoints(chain)?;
        self.conn()
            .prepare_cached("DELETE FROM node_endpoints WHERE chain = ?1")?
            .execute([chain.0])?;
        for (place, endpoint) in (0..).zip(endpoints) {
            let reason: String = endpoint.reason.chars().take(REASON_CHARS_MAX).collect();
            let is_same = |(known, _): &&(NodeEndpoint, i64)| {
                known.name == endpoint.name && known.state == endpoint.state
            };
            let since = before.iter().find(is_same).map_or(now, |(_, at)| *at);
            self.conn()
                .prepare_cached(
                    "INSERT INTO node_endpoints (chain, place, name, state, reason, is_current, since) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute(params![
                    chain.0,
                    int(place)?,
                    endpoint.name,
                    endpoint.state,
                    reason,
                    endpoint.is_current,
                    since
                ])?;
        }
        Ok(true)
    }
}
