//! The audit: asks nodes and books anew, by another path than the daemon's, whether what was credited is
//! right. It tells and never mends. Start at [`books()`].

use crate::config::{ChainConfig, Config};
use crate::store::{Database, StoreError, Violation};

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What does not hold in the tables.
    pub broken: Vec<Violation>,
}

/// Asks the tables alone.
///
/// # Errors
/// Those of the database.
pub fn books(config: &Config, database: &Database) -> Result<Report, StoreError> {
    let window = |chain: ChainConfig<'_>| match chain {
        ChainConfig::Bitcoin(chain) => chain.reorg_window,
        ChainConfig::Evm(chain) => chain.reorg_window,
    };
    let window = config.chains().map(window).min().unwrap_or_default();
    let broken = database.read(|tx| tx.violations(window))?;
    Ok(Report { broken })
}
