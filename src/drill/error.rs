//! Why there is no drill, and why an input is not fed.

use super::COPIES_MAX;
use super::words::size;
use crate::chain::SourceError;
use crate::config::SecretError;
use crate::follow::FollowError;
use crate::store::StoreError;
use crate::telemetry::error_line;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why there was no drill.
#[derive(Debug, Error)]
pub enum DrillError {
    /// The folder of the copy, or a file in it.
    #[error("{doing} {}", path.display())]
    Folder {
        /// What was being done.
        doing: &'static str,
        /// With which.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The copy would fill the disk, which others may need.
    #[error(
        "{} has {} free, and a drill takes {}: twice the size of the database, and what it writes meanwhile",
        folder.display(), size(*free), size(*needed)
    )]
    NoRoom {
        /// Where the copy was to be made.
        folder: PathBuf,
        /// What is free there.
        free: u64,
        /// What is needed.
        needed: u64,
    },
    /// The database or its copy.
    #[error("{doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: StoreError,
    },
    /// A node's secret cannot be read.
    #[error("log in at the node of chain {alias}")]
    Secret {
        /// The chain.
        alias: String,
        /// Why.
        #[source]
        source: SecretError,
    },
    /// A follower met a copy that cannot be used.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// A node did not say what has to be known before anything is fed.
    #[error("{0}, though it was copied {COPIES_MAX} times")]
    Unknown(String),
    /// Much changes by itself then.
    #[error("a restored backup is being repaired: nothing is as it was")]
    Restoring,
    /// The operating system refused threads or signal handlers.
    #[error("start the drill")]
    System(#[source] io::Error),
    /// It was told to stop.
    #[error("stopped before its end")]
    Interrupted,
}

/// Why an input is not fed (any further).
#[derive(Debug, Error)]
pub(super) enum Stop {
    /// It cannot be had.
    #[error("{0}")]
    WhyNot(String),
    /// The node has left the tip of the copy.
    #[error("{why}")]
    Left {
        /// Of which chain.
        alias: String,
        /// How it is seen.
        why: String,
    },
    /// The drill cannot go on.
    #[error(transparent)]
    Failed(#[from] DrillError),
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Stop {
        Stop::WhyNot(error_line(&error))
    }
}
