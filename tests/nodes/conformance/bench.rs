//! The real follower on the real database, driven round by round over any [`Stage`]. After every round
//! everything that must always hold is asked of the database.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use creditd::clock::Clock;
use creditd::follow::{Follower, Settings, Start};
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{BlockHash, Txid};
use creditd::store::report::DepositStory;
use creditd::store::{
    AddressKind, ChainRow, Database, JournalEntry, LedgerSnapshot, NewAddress, OpenMode, ReadTx, Store,
    StoreError, Terms,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::SEEN;
use super::stage::Stage;
use crate::common::wait::{PATIENCE, wait_until};

/// At this depth payments are credited.
pub const CREDIT_DEPTH: u32 = 3;

/// How far below the tip blocks can be undone; on EVM chains as far as the last final block too.
pub const REORG_WINDOW: u32 = 20;

/// After so many rounds at one tip nothing is under way any more: lists were applied, and what several looks
/// in a row decide is decided.
const ROUNDS_TO_REST: u32 = 5;

pub struct Bench<S: Stage> {
    pub stage: S,
    runtime: Runtime,
    path: PathBuf,
    /// `None` only while the daemon's side is down.
    running: Option<(Store, Follower<S::Source>)>,
    reader: Database,
    ledger: LedgerSnapshot,
    _folder: TempDir,
}

impl<S: Stage> Bench<S> {
    /// A followed chain with one watched address.
    pub fn open() -> Self {
        let stage = S::open();
        let folder = folder();
        let path = folder.path().join("ledger.db");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let running = runtime.block_on(start(&stage, &path));
        let reader = Database::open(&path, OpenMode::ReadOnly).unwrap();
        let ledger = reader.read(|tx| tx.ledger_snapshot()).unwrap();
        let mut bench = Self {
            stage,
            runtime,
            path,
            running: Some(running),
            reader,
            ledger,
            _folder: folder,
        };
        bench.settle();
        bench.watch();
        bench
    }

    fn watch(&self) {
        let (store, _) = self.running.as_ref().unwrap();
        let (key, script) = (self.chain().key, self.stage.watched());
        let adding = store.write(move |tx| {
            let rule = NewAddress {
                script: script.clone(),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            tx.add_addresses(key, &[rule])
        });
        self.runtime.block_on(adding).unwrap();
    }

    // ---- the daemon's side ----

    /// One round.
    pub fn round(&mut self) {
        let (_, follower) = self.running.as_mut().unwrap();
        self.runtime.block_on(follower.step()).unwrap();
        self.check();
    }

    pub fn rounds(&mut self, count: u32) {
        (0..count).for_each(|_| self.round());
    }

    /// Rounds until something is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let what = format!("{what}; the chain was {} at first", self.state());
        wait_until(&what, PATIENCE, || {
            self.round();
            is_so(self).then_some(())
        });
    }

    /// Rounds until the database has the node's tip, and nothing is under way.
    #[track_caller]
    pub fn settle(&mut self) {
        let tip = self.stage.tip();
        self.until(&format!("followed up to {tip}"), |bench| {
            bench.cursor() == Some(tip) && bench.state() == "following"
        });
        self.rounds(ROUNDS_TO_REST);
        assert_eq!((self.cursor(), self.state()), (Some(tip), "following"));
    }

    /// Ends the daemon's side as a crash would.
    pub fn go_down(&mut self) {
        self.running = None;
    }

    /// Starts it again, on the database as it is.
    pub fn come_up(&mut self) {
        assert!(self.running.is_none(), "it is up");
        self.running = Some(self.runtime.block_on(start(&self.stage, &self.path)));
        self.check();
    }

    pub fn restart(&mut self) {
        self.go_down();
        self.come_up();
    }

    /// Crashes in the middle of a round, after it has given way so many times, and starts again.
    pub fn crash_within(&mut self, times: usize) {
        let (_, follower) = self.running.as_mut().unwrap();
        self.runtime.block_on(stop_after(follower.step(), times));
        self.restart();
    }

    // ---- what the database says ----

    pub fn read<T>(&self, work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>) -> T {
        self.reader.read(work).unwrap()
    }

    fn chain(&self) -> ChainRow {
        self.read(|tx| tx.chains()).remove(0)
    }

    pub fn cursor(&self) -> Option<BlockHash> {
        self.chain().cursor.map(|held| held.header.hash)
    }

    /// The word for the chain's state.
    pub fn state(&self) -> &'static str {
        self.chain().state.word()
    }

    /// The deposit of a transaction, if there is one.
    pub fn deposit(&self, txid: Txid) -> Option<DepositStory> {
        let mut stories = self.read(|tx| tx.tx_story(&txid));
        let outputs = stories.pop().map_or_else(Vec::new, |story| story.outputs);
        assert!(outputs.len() <= 1, "one payment to each address: {outputs:?}");
        outputs.into_iter().next()?.deposit
    }

    /// Every row of the database, without times of looking and the chain's state.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = self.read(|tx| tx.projection());
        facts.retain(|row| !row.contains(r#" action="state" "#));
        facts
    }

    // ---- what it must say ----

    /// The state of a payment that waits and was in no block yet.
    pub fn new_one(&self) -> &'static str {
        match S::SHOWS_WAITING {
            true => "seen",
            false => "absent",
        }
    }

    /// The state of a payment that waits again, because its block left the chain.
    pub fn lost_one(&self) -> &'static str {
        match S::SHOWS_WAITING {
            true => "seen",
            false => "orphaned",
        }
    }

    /// Where a payment stands, every event about it, and the books of its credit. `deposit.seen` is left out
    /// of what is expected where nobody can see what waits.
    #[track_caller]
    pub fn assert_is(&self, txid: Txid, state: &str, events: &[&str], journal: &[&str]) {
        let deposit = self.deposit(txid);
        let (mut found, mut told, mut booked) = ("absent", Vec::new(), Vec::new());
        if let Some(story) = &deposit {
            found = story.deposit.state.unwrap().word();
            told = story.events.iter().map(|event| event.kind.as_str()).collect();
            let entries = story.credit.iter().flat_map(|credit| &credit.journal);
            booked = entries.map(entry).collect();
            let net = story.credit.as_ref().is_some_and(|credit| !credit.net.is_zero());
            assert_eq!(net, found == "credited", "{story:?}");
        }
        let is_told = |event: &&&str| S::SHOWS_WAITING || **event != SEEN;
        let events: Vec<&str> = events.iter().filter(is_told).copied().collect();
        let journal: Vec<String> = journal.iter().map(ToString::to_string).collect();
        let moves = deposit.iter().flat_map(|story| &story.audit);
        let moves: Vec<String> = moves.map(|row| format!("{:?}: {}", row.to, row.cause)).collect();
        assert_eq!((found, told, booked), (state, events, journal), "{moves:#?}");
    }

    /// So many credits were ever given, each with its journal.
    #[track_caller]
    pub fn assert_credits(&self, count: usize) {
        let facts = self.facts();
        let credits = facts.iter().filter(|row| row.starts_with("credits ")).count();
        assert_eq!(credits, count, "{facts:#?}");
    }

    /// However often it looks, and whoever looks: nothing more is written.
    #[track_caller]
    pub fn assert_at_rest(&mut self) {
        let before = self.facts();
        self.rounds(ROUNDS_TO_REST);
        self.assert_unchanged(&before);
        self.restart();
        self.rounds(ROUNDS_TO_REST);
        self.assert_unchanged(&before);
    }

    /// The database says what it said before.
    #[track_caller]
    pub fn assert_unchanged(&self, before: &[String]) {
        let now = self.facts();
        let gone: Vec<&String> = before.iter().filter(|row| !now.contains(row)).collect();
        let new: Vec<&String> = now.iter().filter(|row| !before.contains(row)).collect();
        assert!(
            gone.is_empty() && new.is_empty(),
            "gone: {gone:#?}\nnew: {new:#?}"
        );
    }

    /// Nothing is violated, and the ledger has lost no row.
    #[track_caller]
    fn check(&mut self) {
        let (violations, ledger) = self
            .reader
            .read(|tx| Ok((tx.violations(REORG_WINDOW.into())?, tx.ledger_snapshot()?)))
            .unwrap();
        let lost = self.ledger.lost_in(&ledger);
        self.ledger = ledger;
        let all: Vec<String> = violations.iter().chain(&lost).map(ToString::to_string).collect();
        assert!(all.is_empty(), "\n{}\n", all.join("\n"));
    }
}

/// A line of the books: its kind, and of a reversal why.
fn entry(entry: &JournalEntry) -> String {
    match entry.reason.as_str() {
        "" => entry.kind.clone(),
        reason => format!("{}:{reason}", entry.kind),
    }
}

async fn start<S: Stage>(stage: &S, path: &Path) -> (Store, Follower<S::Source>) {
    let clock = Clock::real();
    let store = Store::inline(Database::open(path, OpenMode::Daemon).unwrap(), clock);
    let chain = stage.chain();
    let top = Tier {
        below: None,
        needs: Requirement::Confirmations(CREDIT_DEPTH),
    };
    let policy = Policy::new(&[top]).unwrap();
    let policies = chain.assets.iter().map(|asset| (asset.asset, policy.clone()));
    let settings = Settings {
        start: Start::Tip,
        terms: Terms {
            policies: policies.collect(),
            reorg_window: REORG_WINDOW.into(),
            evict_after_ms: 600_000,
        },
        // Rounds follow each other at once: what waits for time waits for the test.
        poll: Duration::from_millis(1),
        mempool: Duration::ZERO,
        tip_age_max: None,
        fork_patience: chain.id.is_evm().then(|| Duration::from_secs(600)),
        chain,
    };
    let follower = Follower::open(stage.source(), store.clone(), clock, settings);
    (store, follower.await.unwrap())
}

/// In memory where the machine has such a folder, for it is synced often.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap()),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Polls a future until it has given way `times` times, and drops it there.
async fn stop_after(future: impl Future, times: usize) {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Pending if left > 0 => {
            left -= 1;
            Poll::Pending
        }
        Poll::Pending | Poll::Ready(_) => Poll::Ready(()),
    })
    .await;
}
