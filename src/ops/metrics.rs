//! `/metrics`: facts from the database, states from the followers' pulses, times of commits from the store.
//! Names and labels are documented in docs/monitoring, where alert rules and a dashboard use them.

use super::text::{Labels, Page, Value};
use super::{Followed, Ops, Parts};
use crate::pulse::Reading;
use crate::rules::chain_state::ChainState;
use crate::rules::invoice::Life;
use crate::rules::state::State;
use crate::store::report::{ChainReadings, EndpointReadings, Readings};
use crate::store::{BATCH_WRITES, COMMIT_MICROS, StoreCounters};

/// Upper bounds of the depths that reorgs are sorted into.
const REORG_DEPTHS: [u64; 8] = [1, 2, 3, 6, 12, 24, 72, 144];

/// Every word that a delivery's state and an attempt's outcome can have, so that each series is there before
/// its first event.
const DELIVERY_STATES: [&str; 4] = ["waiting", "leased", "delivered", "parked"];
const INBOX_STATES: [&str; 3] = ["waiting", "done", "parked"];
const OUTCOMES: [&str; 3] = ["delivered", "refused", "unanswered"];
const JOURNAL_KINDS: [&str; 3] = ["credit", "reversal", "reinstatement"];

/// The whole page.
pub(super) async fn exposition(ops: &Ops) -> Result<String, std::fmt::Error> {
    let readings = ops.readings().await;
    let parts = &ops.0;
    let mut page = Page::new();
    process(&mut page, parts, readings.as_ref());
    store(&mut page, &parts.store.counters());
    chains(&mut page, parts, readings.as_ref());
    super::nodes::exposition(&mut page, parts);
    if let Some(readings) = &readings {
        money(&mut page, parts, readings);
        callbacks(&mut page, parts.clock.now_ms(), readings);
        super::audit::exposition(&mut page, parts.started_ms, readings);
        super::jobs::exposition(&mut page, parts.clock.now_ms(), &readings.jobs);
        let count = |state| {
            (
                vec![("state", str::to_owned(state))],
                whole(counted(&readings.inbox, state)),
            )
        };
        let rows = INBOX_STATES.into_iter().map(count).collect();
        page.gauges("inbox_events", "Events of the inbox by state", rows);
        page.counters(
            "inbox_set_aside",
            "Events of the inbox that came again with another content, which was set aside",
            vec![(Labels::new(), counted(&readings.inbox, "set_aside"))],
        );
    }
    page.text()
}

fn process(page: &mut Page, parts: &Parts, readings: Option<&Readings>) {
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    page.gauges("build_info", "1, labelled with what runs", vec![(version, 1)]);
    page.gauge(
        "start_time_seconds",
        "Unix time of this start",
        parts.started_ms / 1000,
    );
    page.gauge(
        "start_findings",
        "What was noticed about the database at this start, such as a restored backup",
        whole(parts.findings as u64),
    );
    page.gauge(
        "database_up",
        "1 while the database answers",
        i64::from(readings.is_some()),
    );
    let bytes = |suffix: &str| {
        let mut name = parts.store.path().as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |file| whole(file.len()))
    };
    page.gauge("database_bytes", "Size of the database file", bytes(""));
    page.gauge("database_wal_bytes", "Size of its log", bytes("-wal"));
    if let Some(readings) = readings {
        let generation = whole(readings.generation);
        page.gauge("generation", "Raised by each restore of a backup", generation);
    }
}

fn store(page: &mut Page, counters: &StoreCounters) {
    page.gauge(
        "store_queued_writes",
        "Writes that wait or run",
        whole(counters.queued),
    );
    page.gauge(
        "high_water_failing",
        "1 while the high-water file cannot be written: a restored backup would not be noticed",
        i64::from(counters.is_high_water_failing),
    );
    let spans = COMMIT_MICROS.map(seconds).into_iter().zip(counters.commit_spans);
    page.histograms(
        "store_commit_seconds",
        "Time of a batch of writes, its commit included",
        vec![(
            Labels::new(),
            Value::Histogram {
                sum: seconds(counters.write_micros),
                count: counters.batches,
                buckets: spans.collect(),
            },
        )],
    );
    let sizes = BATCH_WRITES.map(float).into_iter().zip(counters.batch_sizes);
    page.histograms(
        "store_batch_writes",
        "Writes that shared a commit",
        vec![(
            Labels::new(),
            Value::Histogram {
                sum: float(counters.writes),
                count: counters.batches,
                buckets: sizes.collect(),
            },
        )],
    );
}

/// What is known of a configured chain: its follower's word, and the database's if that answers.
struct Chain<'a> {
    followed: &'a Followed,
    told: Reading,
    known: Option<&'a ChainReadings>,
}

impl Chain<'_> {
    fn labels(&self) -> Labels {
        vec![("chain", self.followed.alias.clone())]
    }

    fn height(&self) -> Option<u64> {
        self.known
            .and_then(|known| known.chain.cursor)
            .map(|tip| tip.height)
    }

    fn node_height(&self) -> Option<u64> {
        let before = || self.known.and_then(|known| known.chain.node_tip_height);
        self.told.node_height.or_else(before)
    }
}

fn all<'a>(parts: &'a Parts, readings: Option<&'a Readings>) -> Vec<Chain<'a>> {
    let of = |followed: &'a Followed| Chain {
        followed,
        told: followed.pulse.reading(),
        known: readings.and_then(|readings| {
            readings
                .chains
                .iter()
                .find(|read| read.chain.id == followed.chain)
        }),
    };
    parts.followed.iter().map(of).collect()
}

/// One gauge per chain that has a value.
fn per_chain(chains: &[Chain<'_>], value: impl Fn(&Chain<'_>) -> Option<i64>) -> Vec<(Labels, i64)> {
    let row = |chain: &Chain<'_>| Some((chain.labels(), value(chain)?));
    chains.iter().filter_map(row).collect()
}

fn chains(page: &mut Page, parts: &Parts, readings: Option<&Readings>) {
    let chains = all(parts, readings);
    let now_secs = parts.clock.now_ms() / 1000;
    let mut states = Vec::new();
    for chain in &chains {
        for state in ChainState::ALL {
            let mut labels = chain.labels();
            labels.push(("state", state.word().to_owned()));
            states.push((labels, i64::from(chain.told.state == state)));
        }
    }
    page.gauges("chain_state", "1 for the state that the chain is in", states);
    let rows = per_chain(&chains, |chain| Some(i64::from(chain.told.state.is_halt())));
    page.gauges("chain_halted", "1 while the chain waits for an operator", rows);
    let rows = per_chain(&chains, |chain| {
        let overdue = chain.followed.pulse.overdue(parts.clock);
        Some(whole(overdue.as_secs()))
    });
    page.gauges(
        "follower_overdue_seconds",
        "How long the follower's sign of life is overdue",
        rows,
    );
    let rows = per_chain(&chains, |chain| chain.height().map(whole));
    page.gauges("chain_height", "Height of the last connected block", rows);
    let rows = per_chain(&chains, |chain| chain.node_height().map(whole));
    page.gauges(
        "node_height",
        "Height of the node's tip when it was last asked",
        rows,
    );
    let rows = per_chain(&chains, |chain| {
        Some(whole(chain.node_height()?.saturating_sub(chain.height()?)))
    });
    page.gauges(
        "tip_lag_blocks",
        "Blocks that the node has and we have not connected",
        rows,
    );
    let rows = per_chain(&chains, |chain| {
        let tip = chain.known?.chain.cursor?;
        Some(now_secs.saturating_sub(whole(tip.header.time_secs)).max(0))
    });
    page.gauges(
        "tip_age_seconds",
        "Age of the last connected block by its own time",
        rows,
    );
}

fn money(page: &mut Page, parts: &Parts, readings: &Readings) {
    let chains = all(parts, Some(readings));
    let mut deposits = Vec::new();
    let mut entries = Vec::new();
    let mut reorgs = Vec::new();
    for chain in &chains {
        let Some(known) = chain.known else { continue };
        for state in State::ALL {
            let count = counted(&known.deposits, state.word());
            deposits.push((with(chain.labels(), "state", state.word()), whole(count)));
        }
        for kind in JOURNAL_KINDS {
            entries.push((with(chain.labels(), "kind", kind), counted(&known.journal, kind)));
        }
        reorgs.push((chain.labels(), depths(&known.reorgs)));
    }
    page.gauges("deposits", "Deposits by state", deposits);
    page.counters("journal_entries", "Journal entries by kind", entries);
    page.histograms("reorg_depth_blocks", "Blocks that a reorg disconnected", reorgs);
    let rows = per_chain(&chains, |chain| Some(whole(chain.known?.held)));
    page.gauges("deposits_held", "Deposits that are held for an operator", rows);
    let duplicates = chains
        .iter()
        .filter_map(|chain| Some((chain.labels(), chain.known?.duplicates)));
    page.counters(
        "duplicate_outputs",
        "Outputs that were brought again and changed nothing",
        duplicates.collect(),
    );
    let rows = per_chain(&chains, |chain| Some(whole(chain.known?.rescans)));
    page.gauges("rescans_running", "Rescans that are not done", rows);
    let rows = per_chain(&chains, |chain| Some(i64::from(chain.known?.restoring.is_some())));
    page.gauges(
        "restoring",
        "1 while a restored backup is being repaired: no address is handed out before the tip",
        rows,
    );
    let rows = per_chain(&chains, |chain| Some(whole(chain.known?.unattributed)));
    page.gauges(
        "unattributed_open",
        "Amounts that came to watched addresses and that no recorded payment explains, not closed yet",
        rows,
    );
    invoices(page, &chains);
    due(page, parts, &chains);
}

fn invoices(page: &mut Page, chains: &[Chain<'_>]) {
    let mut lives = Vec::new();
    let mut strays = Vec::new();
    for chain in chains {
        let Some(known) = chain.known else { continue };
        for life in Life::ALL {
            let count = counted(&known.invoices, life.word());
            lives.push((with(chain.labels(), "life", life.word()), whole(count)));
        }
        strays.push((chain.labels(), known.strays));
    }
    page.gauges("invoices", "Invoices by where they stand", lives);
    page.counters(
        "invoice_strays",
        "Credited payments to invoices' addresses that belong to no order",
        strays,
    );
}

/// By the node's tip: a follower that cannot go on leaves payments due that it has not even read.
fn due(page: &mut Page, parts: &Parts, chains: &[Chain<'_>]) {
    let now_secs = parts.clock.now_ms() / 1000;
    let overdue = |chain: &Chain<'_>| -> Option<(i64, i64)> {
        let known = chain.known?;
        let tip = chain.height().max(chain.node_height())?;
        let is_due = |height: &u64| *height <= tip;
        let Some(height) = known.next_due_height.filter(is_due) else {
            return Some((0, 0));
        };
        let since = known.next_due_time_secs.map_or(now_secs, whole);
        Some((whole(tip - height + 1), now_secs.saturating_sub(since).max(0)))
    };
    let rows = per_chain(chains, |chain| overdue(chain).map(|(blocks, _)| blocks));
    page.gauges(
        "oldest_due_uncredited_blocks",
        "Blocks, by the node's tip, since the oldest payment fell due that is not credited; 0 = none",
        rows,
    );
    let rows = per_chain(chains, |chain| overdue(chain).map(|(_, secs)| secs));
    page.gauges(
        "oldest_due_uncredited_seconds",
        "Age of the block at which it fell due, or of the last one that was read; 0 = none",
        rows,
    );
}

fn callbacks(page: &mut Page, now_ms: i64, readings: &Readings) {
    let events = vec![(Labels::new(), readings.events)];
    page.counters("events", "Events ever written", events);
    let rows = DELIVERY_STATES.map(|state| {
        let count = counted(&readings.deliveries, state);
        (with(Labels::new(), "state", state), whole(count))
    });
    page.gauges("deliveries", "Deliveries by state", rows.to_vec());
    let rows = OUTCOMES.map(|outcome| {
        let count = counted(&readings.attempts, outcome);
        (with(Labels::new(), "outcome", outcome), count)
    });
    page.counters(
        "delivery_attempts",
        "Attempts to deliver by outcome",
        rows.to_vec(),
    );
    let per_state = |value: &dyn Fn(&EndpointReadings) -> i64| -> Vec<(Labels, i64)> {
        let row = |group: &EndpointReadings| (with(Labels::new(), "state", group.state), value(group));
        readings.endpoints.iter().map(row).collect()
    };
    let rows = per_state(&|group| whole(group.count));
    page.gauges(
        "endpoints",
        "Endpoints that answer (ok), have not been answering, are paused",
        rows,
    );
    // Below 0 when the clock was ahead as it was written: that is shown, for it is no proof of there being
    // none.
    let age_secs = |since: Option<i64>| since.map_or(0, |at| now_ms.saturating_sub(at) / 1000);
    let rows = per_state(&|group| age_secs(group.oldest_event_at));
    page.gauges(
        "oldest_undelivered_event_seconds",
        "Age of the oldest event that one of these endpoints has not got and that is not parked; 0 = none, \
         below 0 = the clock has been set back since",
        rows,
    );
    // Mostly the next attempt is yet to come.
    let rows = per_state(&|group| age_secs(group.next_attempt_at).max(0));
    page.gauges(
        "oldest_waiting_delivery_seconds",
        "By how much the most overdue attempt is late; 0 = none",
        rows,
    );
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

fn counted(counts: &[(String, u64)], word: &str) -> u64 {
    let found = counts.iter().find(|(known, _)| known == word);
    found.map_or(0, |(_, count)| *count)
}

fn depths(reorgs: &[(u64, u64)]) -> Value {
    let mut lower = 0;
    let mut buckets = Vec::new();
    for bound in REORG_DEPTHS {
        let within = |(depth, _): &&(u64, u64)| (lower + 1..=bound).contains(depth);
        let count = reorgs.iter().filter(within).map(|(_, count)| count).sum();
        buckets.push((float(bound), count));
        lower = bound;
    }
    Value::Histogram {
        sum: float(reorgs.iter().map(|(depth, count)| depth * count).sum()),
        count: reorgs.iter().map(|(_, count)| count).sum(),
        buckets,
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn seconds(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}

/// For the format of the page, which knows no other numbers in a histogram.
#[allow(clippy::cast_precision_loss, reason = "no amount comes here")]
fn float(number: u64) -> f64 {
    number as f64
}
