//! Callbacks: lease, send, settle. It owns no queue of its own: what is due stands in the database, a
//! wake-up only says when to look, and a delivery whose fate is unknown after a crash is sent again with the
//! same id and bytes. Start at [`Deliverer::run`].

mod health;
mod send;

use crate::clock::{Clock, millis};
use crate::egress::Dial;
use crate::pulse::Pulse;
use crate::store::{Attempt, JobOutcome, Leased, Outcome, Room, Share, Store, StoreError, Work, WriteTx};
use crate::telemetry::counted;
use health::{Health, Turn};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};

/// Attempts that are settled in one transaction.
const SETTLE_MAX: usize = 128;
/// How long the queue is left alone when nothing says otherwise: commands write to the file without waking
/// us.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a stop waits for answers that are about to come.
const LANDING_MAX: Duration = Duration::from_secs(1);

/// What the config says about callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Total time of one attempt.
    pub attempt_timeout: Duration,
    /// How long an event may hold back newer ones of its subject.
    pub order_patience: Duration,
    /// Deliveries on their way at a time, over all endpoints. At most half of them go to endpoints that have
    /// not been answering, and a quarter are second ones to the same endpoint: each that answers has a claim
    /// to the rest.
    pub in_flight_max: usize,
}

impl Settings {
    /// Longer than an attempt can take (see `send`), so that no attempt outlives its lease.
    fn lease_ms(&self) -> i64 {
        millis(self.attempt_timeout * 2)
    }
}

/// Sends callbacks until it is told to stop, or dropped.
pub struct Deliverer<D: Dial> {
    store: Store,
    clock: Clock,
    dial: Arc<D>,
    settings: Settings,
    flying: JoinSet<Attempt>,
    /// Whose part of the room each of them takes, and its endpoint.
    shares: HashMap<Id, (Share, String)>,
    health: Health,
    /// The endpoint whose turn was last.
    turn: i64,
    /// The time at the last look: when it is later than now, the clock has been set back.
    seen_ms: i64,
    pulse: Pulse,
}

impl<D: Dial> Deliverer<D> {
    /// Takes back what an earlier run had on its way.
    ///
    /// # Errors
    /// What the database says.
    pub async fn open(
        store: Store,
        clock: Clock,
        dial: D,
        settings: Settings,
    ) -> Result<Deliverer<D>, StoreError> {
        let lease_ms = settings.lease_ms();
        let begin = move |tx: &mut WriteTx<'_>| {
            tx.return_leases()?;
            // Nobody knows what the clock showed while nothing ran.
            tx.clock_was_set_back(lease_ms)
        };
        store.write_patiently(begin).await?;
        let dial = Arc::new(dial);
        Ok(Deliverer {
            store,
            clock,
            dial,
            settings,
            flying: JoinSet::new(),
            shares: HashMap::new(),
            health: Health::default(),
            turn: 0,
            seen_ms: clock.now_ms(),
            pulse: Pulse::default(),
        })
    }

    /// Shows its signs of life on `pulse`.
    #[must_use]
    pub fn with_pulse(mut self, pulse: Pulse) -> Deliverer<D> {
        self.pulse = pulse;
        self
    }

    /// Delivers until `stop`, and then settles what lands within a moment.
    ///
    /// # Errors
    /// Only when the database cannot be used any more: a full disk is waited out.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), StoreError> {
        let mut stop = pin!(stop);
        // Armed before the queue is read: a commit between reading and waiting is not missed.
        let mut woken = self.store.woken();
        loop {
            woken.borrow_and_update();
            let pause = match self.round().await {
                Ok(pause) => pause,
                Err(StoreError::DiskFull(_) | StoreError::Busy(_)) => LOOK_AGAIN,
                Err(error) => return Err(error),
            };
            self.pulse.beat(self.clock, pause);
            tokio::select! { biased;
                () = &mut stop => return self.wind_up().await,
                Some(first) = self.flying.join_next_with_id() => self.land(first).await?,
                _ = woken.changed() => {}
                () = self.clock.sleep(pause) => {}
            }
        }
    }

    fn tell(&mut self, endpoint: &str, outcome: &Outcome) {
        match self.health.note(endpoint, outcome) {
            Some(Turn::Fails) => {
                let why = outcome.error();
                tracing::warn!(%endpoint, "callbacks to {endpoint} begin to fail: {why}");
            }
            Some(Turn::Works) => tracing::info!(%endpoint, "callbacks to {endpoint} arrive again"),
            None => {}
        }
    }

    /// Leases nothing more. What a receiver has taken by now, the next start does not send it again.
    async fn wind_up(&mut self) -> Result<(), StoreError> {
        let clock = self.clock;
        let landing = async {
            while let Some(first) = self.flying.join_next_with_id().await {
                self.land(first).await?;
            }
            Ok(())
        };
        tokio::select! { biased;
            landed = landing => landed,
            () = clock.sleep(LANDING_MAX) => Ok(()),
        }
    }

    /// Leases what is due and sends it off. Returns how long nothing will fall due.
    async fn round(&mut self) -> Result<Duration, StoreError> {
        let most = self.settings.in_flight_max;
        let taken = |share| self.shares.values().filter(|(taken, _)| *taken == share).count();
        let room = Room {
            all: most.saturating_sub(self.flying.len()),
            extra: (most / 4).saturating_sub(taken(Share::Extra)),
            // At least one: they must be found out to answer again.
            suspect: (most / 2).max(1).saturating_sub(taken(Share::Suspect)),
        };
        let lease_ms = self.settings.lease_ms();
        let now = self.clock.now_ms();
        if now < self.seen_ms {
            self.store
                .write(move |tx| tx.clock_was_set_back(lease_ms))
                .await?;
        }
        self.seen_ms = now;
        let next = self.store.read(|tx| tx.next_delivery_at()).await?;
        let wait_ms = next.map_or(i64::MAX, |at| at - now);
        if room.all == 0 {
            return Ok(LOOK_AGAIN);
        }
        if wait_ms > 0 {
            return Ok(Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0)).min(LOOK_AGAIN));
        }
        let (patience_ms, turn) = (millis(self.settings.order_patience), self.turn);
        let leasing = self
            .store
            .write(move |tx| tx.lease(room, lease_ms, patience_ms, turn));
        let (leased, turn) = leasing.await?;
        self.turn = turn;
        // What is due and was not leased waits for a delivery on its way, whose landing wakes us.
        let pause = if leased.is_empty() {
            LOOK_AGAIN
        } else {
            Duration::ZERO
        };
        for leased in leased {
            self.fly(leased);
        }
        Ok(pause)
    }

    fn fly(&mut self, leased: Leased) {
        let (dial, clock, timeout) = (self.dial.clone(), self.clock, self.settings.attempt_timeout);
        let taken = (leased.share, leased.endpoint.clone());
        let flying = self
            .flying
            .spawn(async move { send::attempt(&*dial, clock, timeout, leased).await });
        self.shares.insert(flying.id(), taken);
    }

    /// Settles what has landed, all that has by now in one transaction. A task that died brings no attempt:
    /// its event is sent again when its lease is over.
    async fn land(&mut self, first: Result<(Id, Attempt), JoinError>) -> Result<(), StoreError> {
        let mut landed: Vec<Attempt> = Vec::new();
        let mut next = Some(first);
        while let Some(joined) = next {
            let id = match &joined {
                Ok((id, _)) => *id,
                Err(error) => error.id(),
            };
            let taken = self.shares.remove(&id);
            if let (Ok((_, attempt)), Some((_, endpoint))) = (&joined, &taken) {
                self.tell(endpoint, &attempt.outcome);
            }
            landed.extend(joined.map(|(_, attempt)| attempt));
            next = match landed.len() < SETTLE_MAX {
                true => self.flying.try_join_next_with_id(),
                false => None,
            };
        }
        loop {
            let batch = landed.clone();
            let settle = move |tx: &mut WriteTx<'_>| {
                batch.iter().try_for_each(|attempt| tx.settle(attempt))?;
                let took_ms = batch.iter().map(|attempt| attempt.took_ms).max().unwrap_or(0);
                let done = JobOutcome::Done(counted(batch.len() as u64, "attempt"));
                tx.note_work(Work::Delivery, None, Some(took_ms), &done)
            };
            match self.store.write(settle).await {
                // The answers are known only here: they are kept until they can be written.
                Err(StoreError::DiskFull(_) | StoreError::Busy(_)) => {
                    self.pulse.beat(self.clock, LOOK_AGAIN);
                    self.clock.sleep(LOOK_AGAIN).await;
                }
                settled => return settled,
            }
        }
    }
}
