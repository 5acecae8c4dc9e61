//! Wiring: what runs, in which order it starts, and how it stops. The daemon stays up in every state of a
//! chain; it ends for a signal, or when its database cannot be used any more.

use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::clock::Clock;
use crate::config::{BitcoinChain, Config, SecretError, Start};
use crate::deliver::{self, Deliverer};
use crate::egress::{GuardedDial, HttpDial, SystemResolver, TlsError};
use crate::follow::{self, FollowError, Follower, Settings};
use crate::store::{Database, NewChain, OpenMode, Store, StoreError, Terms};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

/// Satoshi per bitcoin is 10^8.
pub const BITCOIN_DECIMALS: u8 = 8;

/// Why the daemon ended or could not start.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The database cannot be opened, or written at the start.
    #[error("open the database")]
    Database(#[source] StoreError),
    /// A secret cannot be read.
    #[error("log in at the node of chain {alias}")]
    Secret {
        /// The chain.
        alias: String,
        /// Why.
        #[source]
        source: SecretError,
    },
    /// The certificates for callbacks cannot be used.
    #[error("read callbacks.ca_file")]
    Certificates(#[source] TlsError),
    /// The operating system refused threads or signal handlers.
    #[error("start the daemon")]
    System(#[source] std::io::Error),
    /// A follower met a database that cannot be used.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The deliverer met a database that cannot be used.
    #[error("deliver callbacks")]
    Deliver(#[source] StoreError),
    /// The database cannot be used any more: the service manager starts us anew.
    #[error("use the database any longer")]
    Fault(#[source] StoreError),
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// [`DaemonError`].
pub fn run(config: &Config) -> Result<(), DaemonError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(DaemonError::System)?;
    let outcome = runtime.block_on(serve(config, Clock::real()));
    // A node that hangs must not hold up the stop: whatever still waits for it is dropped.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(config: &Config, clock: Clock) -> Result<(), DaemonError> {
    let mut stop = StopSignals::new().map_err(DaemonError::System)?;
    let database = Database::open(&config.database, OpenMode::Daemon).map_err(DaemonError::Database)?;
    for finding in database.findings() {
        tracing::warn!("{finding}");
    }
    let store = Store::threaded(database, clock).map_err(DaemonError::Database)?;
    set_merchants(&store, config)
        .await
        .map_err(DaemonError::Database)?;
    let mut tasks = JoinSet::new();
    for chain in &config.bitcoin {
        let config = BitcoinConfig::of(chain).map_err(|source| DaemonError::Secret {
            alias: chain.alias.clone(),
            source,
        })?;
        let source = BitcoinSource::new(config, HttpDial::new(), clock);
        let (store, settings) = (store.clone(), settings(chain));
        tasks.spawn(async move {
            let follower = Follower::open(source, store, clock, settings).await?;
            Ok(follower.run().await?)
        });
    }
    tasks.spawn(deliver(deliverer(config, &store, clock).await?));
    tracing::info!(database = %config.database.display(), chains = config.bitcoin.len(), "creditd is ready");
    let ended = tokio::select! { biased;
        () = stop.received() => Ok(()),
        fault = store.failed() => Err(DaemonError::Fault(fault.error())),
        Some(ended) = tasks.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            // A task returns only with an error; a panic has aborted the process before it gets here.
            Ok(Ok(())) | Err(_) => Ok(()),
        },
    };
    // Followers first, then callbacks: what is on its way is sent again at the next start.
    tasks.shutdown().await;
    let closed = store.close().await;
    tracing::info!("creditd has stopped");
    ended?;
    closed.map_err(DaemonError::Database)
}

async fn deliverer(
    config: &Config,
    store: &Store,
    clock: Clock,
) -> Result<Deliverer<GuardedDial>, DaemonError> {
    let callbacks = &config.callbacks;
    let dial = GuardedDial::new(
        callbacks.policy.clone(),
        Arc::new(SystemResolver),
        callbacks.ca_file.as_deref(),
    )
    .map_err(DaemonError::Certificates)?;
    let settings = deliver::Settings {
        timeout: callbacks.timeout,
        order_patience: callbacks.order_patience,
        in_flight_max: callbacks.concurrency,
    };
    let opened = Deliverer::open(store.clone(), clock, dial, settings);
    opened.await.map_err(DaemonError::Database)
}

async fn deliver(deliverer: Deliverer<GuardedDial>) -> Result<(), DaemonError> {
    deliverer.run().await.map_err(DaemonError::Deliver)
}

async fn set_merchants(store: &Store, config: &Config) -> Result<(), StoreError> {
    let merchants: Vec<(String, &'static str)> = config
        .merchants
        .iter()
        .map(|merchant| (merchant.slug.clone(), merchant.internal.word()))
        .collect();
    store.write(move |tx| tx.set_internal_rules(&merchants)).await
}

struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<StopSignals, std::io::Error> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! { biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A chain of the config as the database knows it.
pub fn new_chain(chain: &BitcoinChain) -> NewChain {
    NewChain {
        id: chain.chain.clone(),
        genesis: chain.genesis,
        alias: chain.alias.clone(),
        native_asset: chain.chain.bitcoin_asset(),
        symbol: chain.symbol.clone(),
        decimals: BITCOIN_DECIMALS,
    }
}

fn settings(chain: &BitcoinChain) -> Settings {
    Settings {
        chain: new_chain(chain),
        start: match chain.start {
            Start::Tip => follow::Start::Tip,
            Start::Height(height) => follow::Start::Height(height),
        },
        terms: Terms {
            policy: chain.policy.clone(),
            reorg_window: chain.reorg_window,
            evict_after_ms: crate::clock::millis(chain.evict_after),
        },
        poll: chain.poll,
        mempool: chain.mempool,
        tip_age_max: chain.tip_age_max,
    }
}
