//! Wiring: what runs, in which order it starts, and how it stops. The daemon stays up in every state of a
//! chain; it ends for a signal, or when its database cannot be used any more.

mod chains;
mod evm;
mod manager;
mod signals;
mod work;

pub use chains::{follower_settings, new_chain, new_chains, terms};
pub use evm::pin;
pub use work::{drill_jobs, jobs};

use crate::api::{self, Api};
use crate::chain::ChainSource;
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chance::Chance;
use crate::check;
use crate::clock::Clock;
use crate::config::{BitcoinChain, ChainConfig, Config, EvmChain, MerchantConfig, SecretError};
use crate::deliver::{self, Deliverer};
use crate::egress::{GuardedDial, HttpDial, SystemResolver, TlsError};
use crate::follow::{FollowError, Follower};
use crate::inbox::{Inbox, InboxError};
use crate::listen::{Listener, Tls, TlsFileError};
use crate::ops::{self, Followed, Ops};
use crate::pulse::{Pulse, PulsingDial};
use crate::store::{Database, Store, StoreError};
use crate::telemetry::error_line;
use evm::EvmNodes;
use manager::Manager;
use signals::Signals;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A stop is over within five seconds, whatever nodes and receivers do: the parts get so long ...
const PARTS_MAX: Duration = Duration::from_millis(1_500);
/// ... then the database gets so long to work off its queue and to fold its log into the file ...
const CLOSE_MAX: Duration = Duration::from_millis(2_000);
/// ... and what still hangs is left behind after this.
const RUNTIME_MAX: Duration = Duration::from_millis(500);

/// How often, and how far apart, a locked database is tried before another daemon is taken to run on it.
const LOCKED_TRIES: u32 = 10;
const LOCKED_AGAIN: Duration = Duration::from_millis(100);

/// Between two tries to open a database that has no space or is being written to.
const OPEN_AGAIN: Duration = Duration::from_secs(2);

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
    /// The certificate for merchants cannot be used.
    #[error("read the certificate of [api]")]
    ApiCertificate(#[source] TlsFileError),
    /// A source of webhooks cannot be served.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The file of its key is not there to be named.
    #[error("read api.tls_key_file")]
    ApiKeyFile(#[source] SecretError),
    /// A listener cannot be had.
    #[error(
        "listen on {address}: name a free address of this machine as `[{table}] listen` in the config, or \
         stop what listens there"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The table of the config that says so.
        table: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The operating system refused threads or signal handlers.
    #[error("start the daemon")]
    System(#[source] std::io::Error),
    /// A follower met a database that cannot be used.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The deliverer met a database that cannot be used.
    #[error("deliver callbacks")]
    Deliver(#[source] StoreError),
    /// The runner of jobs met a database that cannot be used.
    #[error("run the jobs")]
    Jobs(#[source] StoreError),
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
    runtime.shutdown_timeout(RUNTIME_MAX);
    outcome
}

async fn serve(config: &Config, clock: Clock) -> Result<(), DaemonError> {
    let mut signals = Signals::new().map_err(DaemonError::System)?;
    let mut manager = Manager::new(clock);
    let prepared = prepare(config, clock).await?;
    let opened = tokio::select! { biased;
        () = signals.stop() => None,
        opened = open(config, clock, &mut manager) => Some(opened?),
    };
    let Some((store, findings)) = opened else {
        tracing::info!("creditd has stopped before its database was open");
        return Ok(());
    };
    if let Err(error) = check::running::note(config, clock.now_ms()) {
        tracing::warn!(
            "whether this config is in force cannot be looked up: {}",
            error_line(&error)
        );
    }
    let ended = run_parts(
        config,
        prepared,
        clock,
        (&store, findings),
        &mut signals,
        &mut manager,
    )
    .await;
    manager.stopping();
    let closed = within(clock, CLOSE_MAX, store.close()).await;
    let closed = match closed {
        Some(Err(error)) if error.is_passing() => {
            // Nothing is lost: what was committed is in the log.
            tracing::warn!("the database's log was not folded: {error}; the next start does it");
            Ok(())
        }
        Some(closed) => closed,
        None => {
            tracing::warn!("the database's log was not folded in time; the next start does it");
            Ok(())
        }
    };
    tracing::info!("creditd has stopped");
    ended?;
    closed.map_err(DaemonError::Database)
}

/// What a start needs beside its database.
struct Prepared {
    /// Of each Bitcoin chain of the config, in its order.
    bitcoin: Vec<BitcoinConfig>,
    /// Of each EVM chain.
    evm: Vec<EvmNodes>,
    callbacks: GuardedDial,
    ops: Option<Listener>,
    api: Option<(Listener, Inbox)>,
}

/// Gets all of it before the database is opened: opening ends a daemon that runs on the same file, and a
/// start that cannot succeed must not do that.
async fn prepare(config: &Config, clock: Clock) -> Result<Prepared, DaemonError> {
    let fail = |alias: &str, source| DaemonError::Secret {
        alias: alias.to_owned(),
        source,
    };
    let node = |chain: &BitcoinChain| BitcoinConfig::of(chain).map_err(|error| fail(&chain.alias, error));
    let nodes = |chain: &EvmChain| EvmNodes::of(chain, clock).map_err(|error| fail(&chain.alias, error));
    let callbacks = GuardedDial::new(
        config.callbacks.policy.clone(),
        Arc::new(SystemResolver),
        config.callbacks.ca_file.as_deref(),
    );
    Ok(Prepared {
        bitcoin: config.bitcoin.iter().map(node).collect::<Result<_, _>>()?,
        evm: config.evm.iter().map(nodes).collect::<Result<_, _>>()?,
        callbacks: callbacks.map_err(DaemonError::Certificates)?,
        ops: match config.ops.listen {
            Some(address) => Some(had(config, "ops", address, ops::listen(address, clock).await)?),
            None => None,
        },
        api: match config.api.listen {
            Some(address) => {
                let tls = api_tls(config)?;
                let listener = api::listen(config, address, tls, clock).await;
                let inbox = Inbox::of(config)?;
                Some((had(config, "api", address, listener)?, inbox))
            }
            None => None,
        },
    })
}

fn api_tls(config: &Config) -> Result<Option<Tls>, DaemonError> {
    let Some(files) = &config.api.tls else {
        return Ok(None);
    };
    let key = files.key.path().map_err(DaemonError::ApiKeyFile)?;
    let tls = Tls::read(&files.certificate, &key).map_err(DaemonError::ApiCertificate)?;
    Ok(Some(tls))
}

/// The listener that was asked for, or why there is none.
fn had(
    config: &Config,
    table: &'static str,
    address: SocketAddr,
    listener: std::io::Result<Listener>,
) -> Result<Listener, DaemonError> {
    listener.map_err(|source| {
        // A daemon that runs on the database has its port too, and is the better thing to name.
        match Database::held_by_a_daemon(&config.database) {
            Some(held) => DaemonError::Database(held),
            None => DaemonError::Listen {
                address,
                table,
                source,
            },
        }
    })
}

/// Opens the database, and waits for space or for another writer as long as it takes.
async fn open(config: &Config, clock: Clock, manager: &mut Manager) -> Result<(Store, usize), DaemonError> {
    manager.waiting("opening the database");
    let mut locked_tries = 0;
    let mut waits_for = None;
    loop {
        match Store::open(&config.database, clock).await {
            Ok((store, findings)) => {
                for finding in &findings {
                    tracing::warn!(database = %config.database.display(), "{finding}");
                }
                return Ok((store, findings.len()));
            }
            // A command that makes a missing database holds the lock for a moment, as a daemon would.
            Err(StoreError::Locked { .. }) if locked_tries < LOCKED_TRIES => {
                locked_tries += 1;
                tracing::debug!("the database is locked; trying again");
                clock.sleep(LOCKED_AGAIN).await;
            }
            Err(error) if error.is_passing() => {
                let (database, why) = (config.database.display(), error_line(&error));
                if waits_for.as_ref() != Some(&why) {
                    tracing::warn!(%database, "waiting to open {database}: {why}");
                    waits_for = Some(why);
                }
                manager.waiting(&format!("waiting to open the database: {}", error_line(&error)));
                clock.sleep(OPEN_AGAIN).await;
            }
            Err(error) => return Err(DaemonError::Database(error)),
        }
    }
}

/// Starts everything that works on the store, and stops it again once told to or when one part fails.
async fn run_parts(
    config: &Config,
    prepared: Prepared,
    clock: Clock,
    (store, findings): (&Store, usize),
    signals: &mut Signals,
    manager: &mut Manager,
) -> Result<(), DaemonError> {
    let merchants = merchants(config);
    let mut parts: JoinSet<Result<(), DaemonError>> = JoinSet::new();
    tokio::select! { biased;
        () = signals.stop() => return Ok(()),
        set = store.write_patiently(move |tx| {
            tx.note_restores()?;
            tx.set_internal_rules(&merchants)
        }) => {
            set.map_err(DaemonError::Database)?;
        }
    }
    // Before anybody can ask for one.
    let pools = tokio::select! { biased;
        () = signals.stop() => return Ok(()),
        pools = work::pools(config, &prepared.bitcoin, (store, clock)) => {
            pools.map_err(DaemonError::Database)?
        }
    };
    let inbox = work::inbox_sources(store).await?;
    let nodes = (prepared.bitcoin, prepared.evm);
    let followed = follow_all(config, nodes, clock, store, &mut parts).await?;
    // The API, the sender of callbacks and the runner of jobs are told of a stop; all else can be dropped
    // anywhere.
    let (stop, told_to_stop) = watch::channel(false);
    let working = work::start(
        work::jobs(config, pools, &inbox, (store, clock)),
        (store, clock),
        told_to_stop.clone(),
        &mut parts,
    );
    let serving = (clock, told_to_stop.clone());
    let api = serve_api(config, prepared.api, serving, store, &mut parts)?;
    let delivering = deliver(
        config,
        prepared.callbacks,
        (clock, told_to_stop),
        store,
        &mut parts,
    );
    let ops = match prepared.ops {
        Some(listener) => serve_ops(listener, clock, store, (&followed, findings), &mut parts)?,
        None => "off".to_owned(),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), database = %config.database.display(),
        chains = followed.len(), api = %api, ops = %ops, "creditd is ready"
    );
    manager.ready(&followed);
    let of = |followed: &Followed| (format!("follower of {}", followed.alias), followed.pulse.clone());
    let mut vital: Vec<_> = followed.iter().map(of).collect();
    vital.push(("sender of callbacks".to_owned(), delivering));
    vital.push(("runner of jobs".to_owned(), working));
    let ended = tokio::select! { biased;
        () = signals.stop() => Ok(()),
        fault = store.failed() => Err(DaemonError::Fault(fault.error())),
        Some(ended) = parts.join_next() => match ended {
            Ok(outcome) => outcome,
            // A panic has aborted the process before it gets here.
            Err(_) => Ok(()),
        },
        never = manager.attend(store, vital, &followed) => match never {},
    };
    manager.stopping();
    let stopping = async {
        stop.send_replace(true);
        // They let go of their ends once they have answered and settled what they could.
        stop.closed().await;
        parts.shutdown().await;
    };
    // One that is stuck in a call of the system is left behind.
    if within(clock, PARTS_MAX, stopping).await.is_none() {
        tracing::warn!("a part of the daemon did not stop in time and is left behind");
    }
    ended
}

/// Starts the followers of all chains.
async fn follow_all(
    config: &Config,
    (bitcoin, evm): (Vec<BitcoinConfig>, Vec<EvmNodes>),
    clock: Clock,
    store: &Store,
    parts: &mut JoinSet<Result<(), DaemonError>>,
) -> Result<Vec<Followed>, DaemonError> {
    let mut followed = Vec::new();
    for (chain, node) in config.bitcoin.iter().zip(bitcoin) {
        let pulse = Pulse::default();
        let dial = PulsingDial::new(HttpDial::new(), pulse.clone(), clock);
        let source = Arc::new(BitcoinSource::new(node, dial, clock));
        let chain = ChainConfig::Bitcoin(chain);
        followed.push(follow(chain, (source, pulse), clock, store, parts));
    }
    for (chain, nodes) in config.evm.iter().zip(evm) {
        let (source, pulse) = nodes.source(chain, store, clock).await?;
        let nodes = evm::look(&source, clock);
        let chain = ChainConfig::Evm(chain);
        evm::keep_noted(chain.chain(), nodes.clone(), (store, clock), parts);
        followed.push(Followed {
            nodes: Some(nodes),
            ..follow(chain, (source, pulse), clock, store, parts)
        });
    }
    Ok(followed)
}

/// Starts the follower of a chain.
fn follow<S: ChainSource>(
    chain: ChainConfig<'_>,
    (source, pulse): (Arc<S>, Pulse),
    clock: Clock,
    store: &Store,
    parts: &mut JoinSet<Result<(), DaemonError>>,
) -> Followed {
    let (settings, every) = (follower_settings(chain), chains::sweep(chain));
    let (store, felt) = (store.clone(), pulse.clone());
    parts.spawn(async move {
        let follower = Follower::open_shared(source, store, clock, settings).await?;
        Ok(follower.with_pulse(felt).with_sweep(every).run().await?)
    });
    Followed {
        alias: chain.alias().to_owned(),
        chain: chain.chain().clone(),
        pulse,
        nodes: None,
    }
}

/// Starts sending callbacks, and returns the pulse of that. What is on its way at a stop and not answered in
/// time is sent again at the next start.
fn deliver(
    config: &Config,
    dial: GuardedDial,
    (clock, mut told_to_stop): (Clock, watch::Receiver<bool>),
    store: &Store,
    parts: &mut JoinSet<Result<(), DaemonError>>,
) -> Pulse {
    let callbacks = &config.callbacks;
    let settings = deliver::Settings {
        attempt_timeout: callbacks.attempt_timeout,
        order_patience: callbacks.order_patience,
        in_flight_max: callbacks.concurrency,
    };
    let (store, pulse) = (store.clone(), Pulse::default());
    let felt = pulse.clone();
    parts.spawn(async move {
        let mut stop = pin!(told(&mut told_to_stop));
        let opened = tokio::select! { biased;
            () = &mut stop => return Ok(()),
            opened = Deliverer::open(store, clock, dial, settings) => opened,
        };
        let deliverer = opened.map_err(DaemonError::Deliver)?.with_pulse(felt);
        deliverer.run(stop).await.map_err(DaemonError::Deliver)
    });
    pulse
}

/// Waits for a stop. Should nobody be left who could tell, that is one too.
async fn told(told_to_stop: &mut watch::Receiver<bool>) {
    let _ = told_to_stop.wait_for(|is_told| *is_told).await;
}

/// Starts answering merchants, and says where.
fn serve_api(
    config: &Config,
    listener: Option<(Listener, Inbox)>,
    (clock, mut told_to_stop): (Clock, watch::Receiver<bool>),
    store: &Store,
    parts: &mut JoinSet<Result<(), DaemonError>>,
) -> Result<String, DaemonError> {
    let Some((listener, inbox)) = listener else {
        return Ok("off".to_owned());
    };
    let address = listener.address().map_err(DaemonError::System)?;
    let api = Api::new(store.clone(), (clock, Chance::real()), config, inbox);
    parts.spawn(async move {
        api.serve(listener, told(&mut told_to_stop)).await;
        Ok(())
    });
    Ok(address.to_string())
}

/// Starts answering operators, and says where.
fn serve_ops(
    listener: Listener,
    clock: Clock,
    store: &Store,
    (followed, findings): (&[Followed], usize),
    parts: &mut JoinSet<Result<(), DaemonError>>,
) -> Result<String, DaemonError> {
    let address = listener.address().map_err(DaemonError::System)?;
    let ops = Ops::new(store.clone(), clock, followed.to_vec(), findings);
    parts.spawn(async move {
        ops.serve(listener).await;
        Ok(())
    });
    Ok(address.to_string())
}

/// What `work` gives, if it does so in time.
async fn within<T>(clock: Clock, span: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! { biased;
        done = work => Some(done),
        () = clock.sleep(span) => None,
    }
}

fn merchants(config: &Config) -> Vec<(String, &'static str)> {
    let rule = |merchant: &MerchantConfig| (merchant.slug.clone(), merchant.internal.word());
    config.merchants.iter().map(rule).collect()
}
