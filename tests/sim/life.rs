//! One life of the daemon: its parts as tasks of one runtime with paused time, in the order of `daemon`. It
//! ends by death, by itself, or by a stop. Nothing is decided here: every part is the daemon's own.

use crate::clients::{Answer, Pending, Request};
use crate::death::{Alive, Counted};
use crate::disk::Folder;
use crate::marks;
use crate::receivers::{Receivers, Way};
use crate::script::{CrashAt, Terms};
use crate::setting::{Setting, internal_rules};
use crate::world::World;
use axum::Router;
use axum::body::Body;
use creditd::api::Api;
use creditd::chain::ChainSource;
use creditd::chain::bitcoin::BitcoinSource;
use creditd::chance::Chance;
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::daemon;
use creditd::deliver::{self, Deliverer};
use creditd::follow::{Follower, Settings};
use creditd::inbox::Inbox;
use creditd::jobs::Jobs;
use creditd::pools::Pools;
use creditd::store::{Database, Finding, NewChain, OpenMode, Store, StoreError};
use creditd::telemetry::error_line;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// A stop has so long for its parts.
const STOP_MAX: Duration = Duration::from_millis(1_500);

/// Whoever looks at the database gives up after this.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// No answer of the API is larger.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// How a part of the daemon ended.
type Part = (&'static str, Result<(), String>);

pub struct Life {
    pub store: Store,
    pub clock: Clock,
    pub alive: Alive,
    pub config: Arc<Config>,
    chance: Chance,
    parts: JoinSet<Part>,
    api: OnceCell<TowerToHyperService<Router>>,
    /// `None` once its parts were told to stop.
    stop: Option<watch::Sender<bool>>,
    /// The last: dropping it drops whatever still runs.
    runtime: Runtime,
}

/// How a span of a life ended.
#[derive(Debug)]
pub enum Ended {
    Span,
    Dead(CrashAt),
    Part { name: &'static str, why: String },
}

#[derive(Debug)]
pub enum StartFailed {
    Store(StoreError),
    Other(String),
    Dead(CrashAt),
}

/// What the parts of a life share.
#[derive(Clone)]
struct Shared {
    store: Store,
    clock: Clock,
    config: Arc<Config>,
    way: Way,
    stop: watch::Receiver<bool>,
}

/// `work` as a part of a life: it ends where the life does.
fn counted<F: Future>(inner: F, alive: &Alive) -> Counted<F> {
    Counted {
        inner: Box::pin(inner),
        alive: alive.clone(),
    }
}

impl Life {
    /// Starts the daemon at a wall time, as that one of the seed's lives. The database is open when this
    /// returns; all else happens once time passes.
    pub fn start(
        folder: &Folder,
        world: &mut World,
        terms: &Terms,
        (at_ms, number, setting): (i64, u32, &Setting),
        alive: Alive,
        receivers: &Receivers,
    ) -> Result<Life, StartFailed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| StartFailed::Other(error.to_string()))?;
        let entered = runtime.enter();
        let clock = Clock::simulated(at_ms);
        world.set_clock(clock);
        let config = Arc::new(setting.config(folder, world, terms));
        let opened = Database::open(&folder.database(), OpenMode::Daemon);
        note_opened(&opened);
        let opened = opened.and_then(|database| Store::tasked(database, clock));
        let (store, writer, reader) = match opened {
            Ok(opened) => opened,
            Err(_) if alive.is_dead() => return Err(StartFailed::Dead(at_death(&runtime, &alive))),
            Err(error) => return Err(StartFailed::Store(error)),
        };
        runtime.spawn(counted(writer, &alive));
        runtime.spawn(counted(reader, &alive));
        let (stop, told_to_stop) = watch::channel(false);
        let shared = Shared {
            store: store.clone(),
            clock,
            config: config.clone(),
            way: Way {
                receivers: receivers.clone(),
                clock,
                alive: alive.clone(),
            },
            stop: told_to_stop,
        };
        let mut parts = JoinSet::new();
        begin(shared, world, (terms, setting), (&mut parts, runtime.handle()));
        drop(entered);
        Ok(Life {
            store,
            clock,
            alive,
            config,
            chance: Chance::seeded(drawn_from(setting.seed, at_ms, number)),
            parts,
            api: OnceCell::new(),
            stop: Some(stop),
            runtime,
        })
    }

    /// Lets time pass.
    pub fn run_for(&mut self, span: Duration) -> Ended {
        if self.alive.is_dead() {
            return Ended::Dead(at_death(&self.runtime, &self.alive));
        }
        let Life {
            store,
            clock,
            alive,
            parts,
            runtime,
            ..
        } = self;
        let alone = |store: &Store| store.counters().batch_sizes[0];
        let before = (store.counters().batches, alone(store));
        let ended = runtime.block_on(async {
            tokio::select! { biased;
                at = alive.died() => Ended::Dead(at),
                fault = store.failed() => Ended::Part { name: "store", why: error_line(&fault.error()) },
                Some(ended) = parts.join_next() => ended_part(ended),
                () = clock.sleep(span) => Ended::Span,
            }
        });
        if store.counters().batches - before.0 > alone(store) - before.1 {
            marks::hit("group_commit");
        }
        ended
    }

    pub fn now_ms(&self) -> i64 {
        let _entered = self.runtime.enter();
        self.clock.now_ms()
    }

    /// Does `work` in this life, as somebody who looks at its database would. `None`: the life ended first,
    /// or it took too long.
    pub fn look<F: Future>(&self, work: F) -> Option<F::Output> {
        self.runtime.block_on(async {
            tokio::select! { biased;
                _ = self.alive.died() => None,
                done = work => Some(done),
                () = self.clock.sleep(LOOK_MAX) => None,
            }
        })
    }

    /// Sends a request to the API. Its answer comes while time passes.
    pub fn ask(&self, request: Request) -> Pending {
        let service = self.api.get_or_init(|| {
            let _entered = self.runtime.enter();
            let inbox = Inbox::of(&self.config).unwrap();
            let drawn = (self.clock, self.chance);
            TowerToHyperService::new(Api::new(self.store.clone(), drawn, &self.config, inbox).routes())
        });
        let service = service.clone();
        let answer = Arc::new(Mutex::new(None));
        let slot = answer.clone();
        let asking = async move {
            let answer = answered(service, request).await;
            *slot.lock().unwrap() = Some(answer);
        };
        let task = self.runtime.spawn(counted(asking, &self.alive));
        Pending::new(answer, task.abort_handle())
    }

    /// Everything is dropped as it stands.
    pub fn kill(self) {}

    /// A clean stop, in the order of the daemon's.
    ///
    /// # Errors
    /// What could not be closed, or that it died meanwhile.
    pub fn stop(mut self) -> Result<(), String> {
        let Some(stop) = self.stop.take() else {
            return Ok(());
        };
        let Life {
            store,
            clock,
            alive,
            parts,
            runtime,
            ..
        } = &mut self;
        let stopping = async {
            stop.send_replace(true);
            let parts_end = async {
                stop.closed().await;
                parts.shutdown().await;
            };
            tokio::select! { biased;
                () = parts_end => {}
                () = clock.sleep(STOP_MAX) => {}
            }
            store.close().await
        };
        runtime.block_on(async {
            tokio::select! { biased;
                at = alive.died() => Err(format!("it died while it stopped: {at:?}")),
                closed = stopping => match closed {
                    Err(error) if error.is_passing() => Ok(()),
                    closed => closed.map_err(|error| error.to_string()),
                },
            }
        })
    }

    /// It gets no time any more until it is thawed.
    pub fn freeze(self) -> Frozen {
        self.alive.disarm();
        Frozen(self)
    }
}

/// A daemon that was stopped by force and not ended (SIGSTOP, a paused virtual machine).
pub struct Frozen(Life);

impl Frozen {
    /// It goes on for a span, and is killed then.
    pub fn thaw(mut self, span: Duration) -> Ended {
        self.0.run_for(span)
    }
}

/// What a life draws from. Two may start in one millisecond, and the tokens of one are no other's; of the
/// milliseconds of centuries the upper bits are free for the life's number.
fn drawn_from(seed: u64, at_ms: i64, number: u32) -> u64 {
    seed ^ at_ms.unsigned_abs() ^ (u64::from(number) << 48)
}

fn is_restore(finding: &Finding) -> bool {
    !matches!(finding, Finding::HighWaterUnreadable { .. })
}

/// Hits the marks of what a start notices.
fn note_opened(opened: &Result<Database, StoreError>) {
    match opened {
        Ok(database) if database.findings().iter().any(is_restore) => {
            marks::hit("restored_backup");
            let is_any = database.read(|tx| Ok(!tx.waiting_ranges()?.is_empty()));
            if is_any.unwrap_or(false) {
                marks::hit("reserved_skipped");
            }
        }
        Err(StoreError::Refused(why)) if why.contains("copied over another database") => {
            marks::hit("restored_without_wal_refused");
        }
        Ok(_) | Err(_) => {}
    }
}

fn at_death(runtime: &Runtime, alive: &Alive) -> CrashAt {
    runtime.block_on(alive.died())
}

fn ended_part(ended: Result<Part, JoinError>) -> Ended {
    match ended {
        Ok((name, outcome)) => Ended::Part {
            name,
            why: outcome.err().unwrap_or_else(|| "it ended by itself".to_owned()),
        },
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Ended::Part {
            name: "task",
            why: error.to_string(),
        },
    }
}

async fn answered(service: TowerToHyperService<Router>, request: Request) -> Answer {
    let mut asked = hyper::Request::builder()
        .method(request.method)
        .uri(&request.path);
    for (name, value) in &request.headers {
        asked = asked.header(*name, value);
    }
    let asked = asked.body(Body::from(request.body)).unwrap();
    let response = match service.call(asked).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await;
    Answer {
        status: head.status.as_u16(),
        is_replayed: head.headers.contains_key("idempotent-replayed"),
        body: bytes.map(Vec::from).unwrap_or_default(),
    }
}

/// Begins the work on the chains of a world: at the scripted nodes themselves, or by the real source.
fn begin(
    shared: Shared,
    world: &World,
    (terms, setting): (&Terms, &Setting),
    (parts, at): (&mut JoinSet<Part>, &Handle),
) {
    let is_later_listed = setting.is_later_listed;
    let settings = |chain: u8| {
        let chain = world.chain(chain);
        chain.settings(terms, setting.policy, is_later_listed)
    };
    let alive = shared.way.alive.clone();
    if let Some(wire) = &world.chain(0).wire {
        // A world with a wire has one chain.
        let source = wire.source(shared.clock, usize::from(terms.quorum), is_later_listed);
        let sources = vec![(source, settings(0))];
        parts.spawn_on(counted(work(shared, sources), &alive), at);
        return;
    }
    let count = u8::try_from(world.chains().len()).unwrap_or(u8::MAX);
    let sources = (0..count).map(|chain| (world.source(chain), settings(chain)));
    let sources = sources.collect();
    parts.spawn_on(counted(work(shared, sources), &alive), at);
}

/// Everything that works on the store, in the order of the daemon's start. Returns how the first part ended.
async fn work<S: ChainSource>(shared: Shared, sources: Vec<(S, Settings)>) -> Part {
    let alive = shared.way.alive.clone();
    let began = shared
        .store
        .write_patiently(|tx| {
            tx.note_restores()?;
            tx.set_internal_rules(&internal_rules())
        })
        .await;
    if let Err(error) = began {
        return ("start", Err(error_line(&error)));
    }
    let chains: Vec<NewChain> = sources
        .iter()
        .map(|(_, settings)| settings.chain.clone())
        .collect();
    let pools = match pools(&shared, chains).await {
        Ok(pools) => pools,
        Err(error) => return ("pools", Err(error_line(&error))),
    };
    let mut parts = JoinSet::new();
    for (source, settings) in sources {
        parts.spawn(counted(follow(shared.clone(), source, settings), &alive));
    }
    parts.spawn(counted(do_jobs(shared.clone(), pools), &alive));
    parts.spawn(counted(deliver(shared.clone()), &alive));
    let mut told = shared.stop.clone();
    drop(shared);
    tokio::select! { biased;
        Some(ended) = parts.join_next() => match ended {
            Ok(part) => part,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => ("task", Err(error.to_string())),
        },
        () = told_to_stop(&mut told) => {
            // Followers can be dropped anywhere; the others settle what they can, and let go of their ends.
            drop(told);
            let mut last = ("stop", Ok(()));
            while let Some(ended) = parts.join_next().await {
                last = ended.unwrap_or(last);
            }
            last
        }
    }
}

async fn told_to_stop(told: &mut watch::Receiver<bool>) {
    let _ = told.wait_for(|is_told| *is_told).await;
}

async fn pools(shared: &Shared, chains: Vec<NewChain>) -> Result<Pools<Way>, StoreError> {
    let nodes: BTreeMap<_, BitcoinSource<Way>> = BTreeMap::new();
    let pools = Pools::list(&shared.config.addresses, chains, nodes, &shared.store).await?;
    // What cannot be done now is tried again by the job.
    pools.watch_restored(&shared.store).await?;
    Ok(pools)
}

async fn follow<S: ChainSource>(shared: Shared, source: S, settings: Settings) -> Part {
    let mut stop = shared.stop.clone();
    let Shared { store, clock, .. } = shared;
    let followed = async {
        let follower = Follower::open(source, store, clock, settings).await?;
        follower.run().await
    };
    tokio::select! { biased;
        () = told_to_stop(&mut stop) => ("follower", Ok(())),
        ended = followed => ("follower", ended.map_err(|error| error_line(&error))),
    }
}

async fn do_jobs(mut shared: Shared, pools: Pools<Way>) -> Part {
    let by = (&shared.store, shared.clock);
    let jobs = daemon::jobs(&shared.config, Some(pools), &[], by);
    let jobs = Jobs::new(shared.store.clone(), shared.clock, jobs);
    let ended = jobs.run(pin!(told_to_stop(&mut shared.stop))).await;
    ("jobs", ended.map_err(|error| error_line(&error)))
}

async fn deliver(mut shared: Shared) -> Part {
    let callbacks = &shared.config.callbacks;
    let settings = deliver::Settings {
        attempt_timeout: callbacks.attempt_timeout,
        order_patience: callbacks.order_patience,
        in_flight_max: callbacks.concurrency,
    };
    let opened = Deliverer::open(shared.store.clone(), shared.clock, shared.way.clone(), settings).await;
    let ended = match opened {
        Ok(deliverer) => deliverer.run(pin!(told_to_stop(&mut shared.stop))).await,
        Err(error) => Err(error),
    };
    ("deliverer", ended.map_err(|error| error_line(&error)))
}
