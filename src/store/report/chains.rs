//! Where the chains stand.

use super::super::chains::{ChainKey, ChainRow};
use super::super::codec::uint;
use super::super::nodes::NodeEndpoint;
use super::super::{ReadTx, Rescan, RestoreStage, StoreError};

/// A chain and what is under way on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainStatus {
    /// The chain.
    pub chain: ChainRow,
    /// How many addresses are watched or own.
    pub addresses: u64,
    /// Deposits that wait for their depth.
    pub confirming: u64,
    /// Deposits that are held.
    pub held: u64,
    /// Rescans that are not done.
    pub rescans: Vec<Rescan>,
    /// EVM: how its endpoints stand, and since when.
    pub endpoints: Vec<(NodeEndpoint, i64)>,
    /// Unattributed amounts that are open.
    pub unattributed: u64,
    /// What is under way since a backup was restored.
    pub restoring: Option<RestoreStage>,
    /// The height of an accepted reorg that waits for the node.
    pub reanchor_to: Option<u64>,
}

impl ReadTx<'_> {
    /// How many credits a chain has.
    ///
    /// # Errors
    /// Those of the database.
    pub fn credits_on(&self, chain: ChainKey) -> Result<u64, StoreError> {
        let count = "SELECT count(*) FROM credits WHERE chain = ?1";
        let mut statement = self.conn().prepare_cached(count)?;
        uint(statement.query_row([chain.0], |row| row.get(0))?)
    }

    /// Every chain that the database knows.
    ///
    /// # Errors
    /// Those of the database.
    pub fn chain_status(&self) -> Result<Vec<ChainStatus>, StoreError> {
        let chains = self.chains()?;
        chains.into_iter().map(|chain| self.one_status(chain)).collect()
    }

    fn one_status(&self, chain: ChainRow) -> Result<ChainStatus, StoreError> {
        let count = |sql: &str| -> Result<u64, StoreError> {
            let count: i64 = self
                .conn()
                .prepare_cached(sql)?
                .query_row([chain.key.0], |row| row.get(0))?;
            uint(count)
        };
        Ok(ChainStatus {
            addresses: count("SELECT count(*) FROM addresses WHERE chain = ?1")?,
            confirming: count(
                "SELECT count(*) FROM deposits WHERE chain = ?1 AND state = 'confirming' \
                 AND held_reason IS NULL",
            )?,
            held: count("SELECT count(*) FROM deposits WHERE chain = ?1 AND held_reason IS NOT NULL")?,
            unattributed: count("SELECT count(*) FROM unattributed WHERE chain = ?1 AND state = 'open'")?,
            rescans: self
                .rescans(chain.key)?
                .into_iter()
                .filter(|rescan| rescan.state == "running")
                .collect(),
            endpoints: self.node_endpoints(chain.key)?,
            restoring: self.restore_stage(chain.key)?,
            reanchor_to: self.asked_reanchor(chain.key)?.map(|asked| asked.fork_height),
            chain,
        })
    }
}
