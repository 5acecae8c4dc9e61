//! Walks through the unspent coins that nodes do for an audit: one that nobody waits for any more is stopped,
//! for a node does one at a time and does it to its end.

use crate::chain::bitcoin::BitcoinSource;
use crate::egress::HttpDial;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Those that are being stopped.
#[derive(Clone, Debug, Default)]
pub struct Walks(Arc<Mutex<JoinSet<()>>>);

impl Walks {
    /// Waits until all of them are.
    pub async fn stopped(&self) {
        let mut stopping = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while stopping.join_next().await.is_some() {}
    }

    /// One that begins now.
    pub(super) fn begin(&self, source: BitcoinSource<HttpDial>) -> Walk {
        Walk {
            walks: self.clone(),
            source: Some(source),
        }
    }
}

/// One that is under way, until it is dropped.
pub(super) struct Walk {
    walks: Walks,
    source: Option<BitcoinSource<HttpDial>>,
}

impl Walk {
    /// The node has said how it ended.
    pub(super) fn end(mut self) {
        self.source = None;
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        let (Some(source), Ok(runtime)) = (self.source.take(), Handle::try_current()) else {
            return;
        };
        let mut stopping = self.walks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = async move {
            if let Err(error) = source.stop_walk().await {
                tracing::warn!("a walk through unspent coins goes on: {error}");
            }
        };
        stopping.spawn_on(stop, &runtime);
    }
}
