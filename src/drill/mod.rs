//! The drill: what would change if everything came once more? All of it happens in a copy of the database,
//! so that nothing can. Start at [`run`].

use crate::config::{ChainConfig, Config};
use crate::store::{Database, Existing, OpenMode, StoreError, Violation};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there was no drill.
#[derive(Debug, Error)]
pub enum DrillError {
    /// No folder for the copy.
    #[error("make the folder {}", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database or its copy.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The size of the copy.
    pub bytes: u64,
    /// What does not hold in it.
    pub broken: Vec<Violation>,
}

/// Makes the copy, checks it, and removes it again.
///
/// # Errors
/// [`DrillError`].
pub fn run(config: &Config, folder: Option<&Path>) -> Result<Report, DrillError> {
    let beside = config
        .database
        .parent()
        .filter(|beside| !beside.as_os_str().is_empty());
    let backups = config.backup.as_ref().map(|backup| backup.folder.as_path());
    let base = folder.or(backups).or(beside).unwrap_or(Path::new("."));
    let folder = base.join(format!("creditd-drill-{}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|source| DrillError::Folder {
        folder: folder.clone(),
        source,
    })?;
    let report = in_copy(config, &folder);
    // Only a copy is in it; what cannot be removed has a name that says so.
    let _ = std::fs::remove_dir_all(&folder);
    report
}

fn in_copy(config: &Config, folder: &Path) -> Result<Report, DrillError> {
    let live = Database::open(&config.database, OpenMode::ReadOnly)?;
    let made = live.backup(&folder.join("copy.db"), Existing::Refuse, |_| {})?;
    let window = |chain: ChainConfig<'_>| match chain {
        ChainConfig::Bitcoin(chain) => chain.reorg_window,
        ChainConfig::Evm(chain) => chain.reorg_window,
    };
    let window = config.chains().map(window).min().unwrap_or_default();
    let copy = Database::open(&made.path, OpenMode::ReadOnly)?;
    let broken = copy.read(|tx| tx.violations(window))?;
    Ok(Report {
        bytes: made.bytes,
        broken,
    })
}
