//! The real follower and the real store on a scripted chain, under a clock that jumps. After every round
//! everything that must always hold is asked of the tables.

use crate::memory::Memory;
use crate::scripted::{Block, Out, Scripted, Tx, World, account, script};
use crate::tables::Tables;
use creditd::clock::Clock;
use creditd::follow::{Follower, Settings, Start};
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{Amount, Asset, BlockHash, Outpoint, Script};
use creditd::store::{
    AddressKind, ChainKey, Database, LedgerSnapshot, NewAddress, NewAsset, NewChain, OpenMode, ReadTx, Store,
    StoreError, Terms, WriteTx,
};
use creditd::webhook::Key;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const EPOCH_MS: i64 = 1_700_000_000_000;

/// What payments of the scripted chain's coin need, as [`policy`].
pub fn native(lower: &[(u64, u32)], top: u32) -> BTreeMap<Asset, Policy> {
    Terms::native(policy(lower, top))
}

/// A policy from (below, confirmations) and the confirmations of every larger sum.
pub fn policy(lower: &[(u64, u32)], top: u32) -> Policy {
    let tier = |(below, confirmations): &(u64, u32)| Tier {
        below: Some(Amount::from_u64(*below)),
        needs: Requirement::Confirmations(*confirmations),
    };
    let mut tiers: Vec<Tier> = lower.iter().map(tier).collect();
    tiers.push(Tier {
        below: None,
        needs: Requirement::Confirmations(top),
    });
    Policy::new(&tiers).unwrap()
}

/// Where databases of tests live: in memory where the machine has such a folder, for they are synced often.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap_or_else(|_| tempfile::tempdir().unwrap()),
        false => tempfile::tempdir().unwrap(),
    }
}

pub struct Rig {
    pub chain: Scripted,
    pub clock: Clock,
    pub settings: Settings,
    pub tables: Tables,
    pub key: ChainKey,
    /// `None` only while it is being opened again.
    pub running: Option<(Store, Follower<Scripted>)>,
    pub reader: Database,
    pub ledger: LedgerSnapshot,
    /// What the rig remembers, for what happens beside it too.
    pub memory: Arc<Mutex<Memory>>,
    /// What SQLite counted when everything was last checked.
    pub checked: Option<i64>,
    /// The smallest reorg window that the chain was followed with.
    window_min: u64,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// A chain with two nodes, credited at depth 3, followed from block 1.
    pub async fn new() -> Rig {
        Rig::with(|_| {}).await
    }

    /// The same with other settings.
    pub async fn with(change: impl FnOnce(&mut Settings)) -> Rig {
        Rig::with_nodes(2, change).await
    }

    /// The same with so many nodes.
    pub async fn with_nodes(count: usize, change: impl FnOnce(&mut Settings)) -> Rig {
        let clock = Clock::simulated(EPOCH_MS);
        let chain = Scripted::new("genesis", count, clock);
        let mut settings = settings(&chain);
        change(&mut settings);
        Rig::on(chain, clock, settings).await
    }

    /// A new database on an old chain.
    pub async fn on(chain: Scripted, clock: Clock, settings: Settings) -> Rig {
        let folder = folder();
        let path = folder.path().join("ledger.db");
        let (store, follower) = open(&path, &chain, clock, &settings).await;
        let id = settings.chain.id.clone();
        let row = store.read(move |tx| tx.chain(&id)).await.unwrap().unwrap();
        let reader = Database::open(&path, OpenMode::ReadOnly).unwrap();
        let ledger = reader.read(|tx| tx.ledger_snapshot()).unwrap();
        let memory = Arc::new(Mutex::new(Memory::with_policy(
            &settings.terms.policies[&Asset::Native],
        )));
        Rig {
            window_min: settings.terms.reorg_window,
            chain,
            clock,
            settings,
            tables: Tables::open(&path),
            key: row.key,
            running: Some((store, follower)),
            reader,
            ledger,
            memory,
            checked: None,
            path,
            _folder: folder,
        }
    }

    pub fn store(&self) -> Store {
        self.running.as_ref().unwrap().0.clone()
    }

    /// Runs a verb of the store.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.store().write(work).await.unwrap()
    }

    pub fn read<T>(&self, work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>) -> T {
        self.reader.read(work).unwrap()
    }

    /// Adds a rule for script `number`.
    pub async fn add(
        &self,
        kind: AddressKind,
        number: u32,
        merchant: &'static str,
        internal: &'static str,
    ) -> Script {
        let (key, script) = (self.key, self.script(number));
        let address = script.clone();
        let add = move |tx: &mut WriteTx<'_>| {
            let rule = NewAddress {
                script: address.clone(),
                kind,
                merchant,
                internal,
                reference: "",
            };
            tx.add_addresses(key, &[rule])
        };
        self.write(add).await;
        self.look();
        script
    }

    /// Script or account `number`.
    pub fn script(&self, number: u32) -> Script {
        match self.chain.world().tree.is_evm {
            true => account(number),
            false => script(number),
        }
    }

    pub async fn watch(&self, number: u32) -> Script {
        self.add(AddressKind::Watch, number, "shop", "ignore").await
    }

    /// Adds an endpoint, to which nobody ever sends anything.
    pub async fn listen(&self, merchant: Option<&'static str>, types: &'static str) {
        let key = Key::parse(KEY).unwrap();
        self.write(move |tx| tx.add_endpoint(merchant, "https://example.com/", types, &key))
            .await;
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file as a command opens it, beside the running daemon.
    pub fn command(&self) -> Database {
        Database::open(&self.path, OpenMode::Write).unwrap()
    }

    /// A coin from elsewhere.
    pub fn coin(&self) -> Outpoint {
        self.chain.world().tree.coin()
    }

    /// A payment with a coin from elsewhere.
    pub fn pay(&self, to: &Script, amount: u64) -> Arc<Tx> {
        self.chain.world().tree.pay(vec![Out::new(to.clone(), amount)])
    }

    /// A transaction that spends these outpoints.
    pub fn spend(&self, inputs: &[Outpoint], outputs: &[(&Script, u64)]) -> Arc<Tx> {
        let outputs = outputs
            .iter()
            .map(|(to, amount)| Out::new((*to).clone(), *amount));
        self.chain.world().tree.tx(inputs.to_vec(), outputs.collect())
    }

    /// Another transaction with the same inputs.
    pub fn replace(&self, tx: &Tx, to: &Script, amount: u64) -> Arc<Tx> {
        self.spend(&tx.inputs, &[(to, amount)])
    }

    /// The tip of the node that answers.
    pub fn tip(&self) -> BlockHash {
        self.chain.world().tip()
    }

    /// Is a block on the branch of the node that answers?
    pub fn is_on_chain(&self, hash: &BlockHash) -> bool {
        let world = self.chain.world();
        world.tree.is_on(hash, &world.tip())
    }

    /// Mines on a block, without any node hearing of it.
    pub fn mine_on(&self, parent: BlockHash, txs: &[&Arc<Tx>]) -> BlockHash {
        let txs = txs.iter().map(|tx| (*tx).clone()).collect();
        self.chain.world().tree.mine(parent, txs)
    }

    pub fn extend_on(&self, parent: BlockHash, count: usize) -> BlockHash {
        self.chain.world().tree.extend(parent, count)
    }

    /// All nodes go to a tip.
    pub fn go_to(&self, tip: BlockHash) {
        self.chain.world().all_go_to(tip);
    }

    /// Mines on the tip, for all nodes.
    pub fn mine(&self, txs: &[&Arc<Tx>]) -> BlockHash {
        let tip = self.mine_on(self.tip(), txs);
        self.go_to(tip);
        tip
    }

    /// Mines empty blocks on the tip, for all nodes.
    pub fn extend(&self, count: usize) -> BlockHash {
        let tip = self.extend_on(self.tip(), count);
        self.go_to(tip);
        tip
    }

    /// Puts a transaction into the mempools of all nodes.
    #[track_caller]
    pub fn send(&self, tx: &Arc<Tx>) {
        let mut world = self.chain.world();
        let World { tree, nodes, .. } = &mut *world;
        for node in nodes {
            assert!(node.accept(tree, tx), "{} is not acceptable", tx.txid);
        }
    }

    pub fn evict(&self, tx: &Tx) {
        let mut world = self.chain.world();
        world.nodes.iter_mut().for_each(|node| node.evict(&tx.txid));
    }

    /// One round of the follower.
    pub async fn round(&mut self) {
        self.look();
        let (_, follower) = self.running.as_mut().unwrap();
        follower.step().await.unwrap();
        self.check();
    }

    pub async fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.round().await;
        }
    }

    /// Rounds until the node and the database agree, lists were applied at that tip and wait for no others,
    /// and no rescan runs.
    pub async fn settle(&mut self) {
        let polls = self.polls();
        for _ in 0..200 {
            self.round().await;
            let tip = self.chain.world().tip();
            let is_done = self.cursor() == Some(tip) && self.polls() > polls + 1;
            let work = "SELECT (SELECT count(*) FROM rescans WHERE state = 'running') \
                        + (SELECT count(*) FROM txs WHERE rival IS NOT NULL)";
            if is_done && self.tables.count(work) == 0 {
                return;
            }
        }
        panic!("it does not settle: {}", self.state());
    }

    fn polls(&self) -> i64 {
        self.tables
            .count("SELECT coalesce(max(mempool_poll), 0) FROM chains")
    }

    /// Lets at least `span` pass, round by round.
    pub async fn wait(&mut self, span: Duration) {
        let until = self.clock.instant() + span;
        while self.clock.instant() < until {
            self.round().await;
        }
    }

    pub fn cursor(&self) -> Option<BlockHash> {
        let key = self.key;
        let row = self.read(|tx| tx.chain_by_key(key));
        row.cursor.map(|held| held.header.hash)
    }

    pub fn state(&self) -> String {
        let key = self.key;
        let row = self.read(|tx| tx.chain_by_key(key));
        format!("{} {}", row.state.word(), row.state_reason)
            .trim()
            .to_owned()
    }

    /// Runs the follower until it has given way `times` times, then drops it as a crash would, and opens the
    /// database again. False when a whole round went by first.
    pub async fn crash(&mut self, times: usize) -> bool {
        let (_, follower) = self.running.as_mut().unwrap();
        let is_crashed = stop_after(follower.step(), times).await.is_none();
        self.reopen().await;
        is_crashed
    }

    /// The same over as many rounds as it takes. False when the world came to rest first.
    pub async fn crash_within(&mut self, times: usize) -> bool {
        let (store, follower) = self.running.as_mut().unwrap();
        let (key, tip) = (self.key, self.chain.world().tip());
        let settling = async {
            for _ in 0..200 {
                follower.step().await.unwrap();
                let row = store.read(move |tx| Ok((tx.chain_by_key(key)?, tx.running_rescans(key)?)));
                let (row, rescan) = row.await.unwrap();
                if row.cursor.is_some_and(|held| held.header.hash == tip) && rescan.is_empty() {
                    return;
                }
            }
        };
        let is_crashed = stop_after(settling, times).await.is_none();
        self.reopen().await;
        is_crashed
    }

    /// The same with something beside the follower that ends with it, until `is_done` says so of the tables.
    /// False when it did first.
    pub async fn crash_beside(
        &mut self,
        times: usize,
        beside: impl Future<Output = ()>,
        is_done: impl Fn(&Tables) -> bool,
    ) -> bool {
        let (_, follower) = self.running.as_mut().unwrap();
        let following = async {
            for _ in 0..200 {
                follower.step().await.unwrap();
                if is_done(&self.tables) {
                    return;
                }
            }
            panic!("it is not done after 200 rounds");
        };
        let both = async {
            tokio::select! { biased;
                () = following => {}
                () = beside => panic!("what runs beside the follower has ended"),
            }
        };
        let is_crashed = stop_after(both, times).await.is_none();
        self.reopen().await;
        is_crashed
    }

    /// Opens the database again under a clock that shows another time.
    pub async fn jump(&mut self, by_ms: i64) {
        self.clock = Clock::simulated(self.clock.now_ms() + by_ms);
        self.reopen().await;
    }

    pub async fn reopen(&mut self) {
        self.look();
        let policy = &self.settings.terms.policies[&Asset::Native];
        self.memory.lock().unwrap().policies.push(policy.clone());
        drop(self.running.take());
        self.window_min = self.window_min.min(self.settings.terms.reorg_window);
        self.running = Some(open(&self.path, &self.chain, self.clock, &self.settings).await);
        self.check();
    }

    /// If anything was written since the last time: nothing is violated, and the ledger has lost no row.
    #[track_caller]
    pub fn check(&mut self) {
        self.look();
        let version = self.tables.version();
        if self.checked.replace(version) == Some(version) {
            return;
        }
        let window = self.window_min;
        let (violations, ledger) = self
            .reader
            .read(|tx| Ok((tx.violations(window)?, tx.ledger_snapshot()?)))
            .unwrap();
        let lost = self.ledger.lost_in(&ledger);
        self.ledger = ledger;
        let all: Vec<String> = violations.iter().chain(&lost).map(ToString::to_string).collect();
        assert!(all.is_empty(), "\n{}\n", all.join("\n"));
    }

    /// The best chain as the node that answers has it, from the first block that is read.
    pub fn best_chain(&self) -> Vec<Arc<Block>> {
        let world = self.chain.world();
        world.tree.branch(&world.tip())
    }

    pub fn projection(&self) -> Vec<String> {
        self.read(|tx| tx.projection())
    }
}

pub fn settings(chain: &Scripted) -> Settings {
    let id = chain.chain_id();
    Settings {
        chain: NewChain {
            assets: vec![NewAsset::bitcoin(&id, "BTC")],
            id,
            genesis: Some(chain.world().tree.genesis()),
            alias: "btc".to_owned(),
        },
        start: Start::Height(1),
        terms: Terms {
            policies: Terms::native(policy(&[], 3)),
            reorg_window: 20,
            evict_after_ms: 60_000,
        },
        poll: Duration::from_secs(1),
        mempool: Duration::from_secs(2),
        tip_age_max: None,
        fork_patience: None,
    }
}

pub async fn open(
    path: &Path,
    chain: &Scripted,
    clock: Clock,
    settings: &Settings,
) -> (Store, Follower<Scripted>) {
    let database = Database::open(path, OpenMode::Daemon).unwrap();
    let store = Store::inline(database, clock);
    let follower = Follower::open(chain.clone(), store.clone(), clock, settings.clone())
        .await
        .unwrap();
    (store, follower)
}

/// Polls a future until it has given way `times` times; `None` = it was dropped there.
pub async fn stop_after<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Runs a test on one thread under a clock that jumps.
pub fn in_simulation<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}
