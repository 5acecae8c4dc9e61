//! A new daemon's follower over the tree of a finished world.

use super::Way;
use crate::dice::Dice;
use crate::script::Terms;
use crate::scripted::{Hook, Scripted, Tree, World as Nodes};
use crate::tables::Tables;
use crate::world::{Chain, rules};
use creditd::clock::Clock;
use creditd::follow::{Follower, Settings};
use creditd::rules::BlockHash;
use creditd::store::{AddressKind, Backfill, Database, NewAddress, OpenMode, ReadTx, Store, WriteTx};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;

/// More rounds than any way needs between two tips.
const ROUNDS_MAX: usize = 300;
const EPOCH_MS: i64 = 1_700_000_000_000;

pub struct Feeder {
    /// Nodes of its own on the same tree.
    pub nodes: Scripted,
    settings: Settings,
    clock: Clock,
    path: PathBuf,
    _folder: tempfile::TempDir,
    running: Option<(Store, Follower<Scripted>)>,
    /// The tips of an honest node, from the first block to the last.
    story: Vec<BlockHash>,
    /// Other tips that were told, and lost.
    losers: Vec<BlockHash>,
    is_evm: bool,
    dice: Dice,
}

impl Feeder {
    pub async fn new(chain: &Chain, terms: &Terms, dice: u64) -> Result<Feeder, String> {
        let clock = Clock::simulated(EPOCH_MS);
        let settings = chain.settings(terms, terms.policy, true);
        let (mut tree, told, mut last) = chain.finished();
        // Everything that will ever be due is: no credit stands that a newcomer would not give.
        let is_coinbase_paid = tree
            .branch(&last)
            .iter()
            .flat_map(|block| &block.txs)
            .any(|tx| tx.is_coinbase && !tx.outputs.is_empty());
        let more = if is_coinbase_paid { 104 } else { 16 };
        last = tree.extend(last, more);
        let depth_max = chain.depth_max();
        let story = story(&tree, &told, last, depth_max);
        let losers = told.iter().filter(|tip| {
            let fork = tree.fork(tip, &last).height();
            let height = tree.block(tip).height();
            !tree.is_on(tip, &last) && fork + depth_max >= height
        });
        let losers = losers.copied().collect();
        let nodes = Scripted::on(tree, 2, clock);
        nodes.world().nodes.iter_mut().for_each(|node| {
            if chain.is_evm {
                node.finality = crate::world::HONEST;
            }
        });
        let folder = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let mut feeder = Feeder {
            path: folder.path().join("ledger.db"),
            _folder: folder,
            nodes,
            settings,
            clock,
            running: None,
            story,
            losers,
            is_evm: chain.is_evm,
            dice: Dice::new(dice),
        };
        feeder.open().await?;
        feeder.add_rules().await?;
        Ok(feeder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn open(&mut self) -> Result<(), String> {
        drop(self.running.take());
        let database = Database::open(&self.path, OpenMode::Daemon).map_err(words)?;
        let store = Store::inline(database, self.clock);
        let settings = self.settings.clone();
        let follower = Follower::open(self.nodes.clone(), store.clone(), self.clock, settings).await;
        self.running = Some((store, follower.map_err(words)?));
        Ok(())
    }

    fn store(&self) -> &Store {
        &self.running.as_ref().unwrap().0
    }

    /// Those from the start, and those that come late elsewhere: all count from the first block on.
    async fn add_rules(&self) -> Result<(), String> {
        let early = rules::EARLY.iter();
        let early = early.map(|rule| (rule.number, rule.kind, rule.merchant, rule.internal));
        let late = rules::LATE.map(|number| (number, AddressKind::Watch, rules::LATE_MERCHANT, "ignore"));
        let (id, is_evm) = (self.settings.chain.id.clone(), self.is_evm);
        let all: Vec<_> = early.chain(late).collect();
        let add = move |tx: &mut WriteTx<'_>| {
            let key = tx.chain(&id)?.unwrap().key;
            for (number, kind, merchant, internal) in &all {
                let rule = NewAddress {
                    script: rules::script(is_evm, *number),
                    kind: *kind,
                    merchant,
                    internal,
                    reference: "",
                };
                tx.add_addresses(key, &[rule])?;
            }
            Ok(())
        };
        self.store().write(add).await.map_err(words)
    }

    pub async fn feed(&mut self, way: Way) -> Result<(), String> {
        let (story, last) = (self.story.clone(), self.last());
        match way {
            Way::AsItHappened => self.through(&story).await?,
            Way::TipFirst => {}
            Way::EveryKth(k) => {
                let path = self.nodes.world().tree.path(&last);
                let some: Vec<BlockHash> = path.iter().step_by(usize::from(k.max(1))).copied().collect();
                self.through(&some).await?;
            }
            Way::EachTwice => self.back_and_forth().await?,
            Way::FullReplay => {
                self.through(&[last]).await?;
                for _ in 0..2 {
                    self.rescan().await?;
                    self.settle().await?;
                }
            }
            Way::CondensedDisconnects => {
                let flurry = 2 + self.dice.roll(3);
                let some: Vec<BlockHash> = story.iter().step_by(flurry).copied().collect();
                let some = self.honest(&some);
                self.through(&some).await?;
            }
            Way::EveryTip => self.every_block(&story).await?,
            Way::Balancer => self.balance(&story).await?,
            Way::CrashEachRound => self.die_often(&story).await?,
            Way::ListsLate => self.list_late(&story).await?,
            Way::LoserFirst => {
                let losers = self.losers.clone();
                if let Some(loser) = self.dice.pick(&losers) {
                    let some = self.honest(&[*loser]);
                    self.through(&some).await?;
                }
            }
        }
        self.nodes.world().alternates = false;
        self.nodes.world().current = 0;
        self.nodes.world().all_go_to(last);
        self.settle().await
    }

    fn last(&self) -> BlockHash {
        *self.story.last().unwrap()
    }

    fn honest(&self, tips: &[BlockHash]) -> Vec<BlockHash> {
        let depth_max = if self.is_evm { 10 } else { 14 };
        story(&self.nodes.world().tree, tips, self.last(), depth_max)
    }

    async fn step(&mut self) -> Result<(), String> {
        let (_, follower) = self.running.as_mut().unwrap();
        follower.step().await.map_err(words)
    }

    /// The cursor, and the number of the last list.
    async fn standing(&self) -> Result<(Option<BlockHash>, i64, bool), String> {
        let id = self.settings.chain.id.clone();
        let read = move |tx: &ReadTx<'_>| {
            let row = tx.chain(&id)?.unwrap();
            let is_busy = !tx.running_rescans(row.key)?.is_empty();
            Ok((row.cursor.map(|held| held.header.hash), row.mempool_poll, is_busy))
        };
        self.store().read(read).await.map_err(words)
    }

    /// Rounds until the cursor is the nodes' tip.
    async fn reach(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            if self.standing().await?.0 == Some(self.nodes.world().tip()) {
                return Ok(());
            }
            self.step().await?;
        }
        Err(format!("it does not come to the tip: {}", self.state()))
    }

    /// The same, and lists were applied there, and no rescan runs.
    async fn settle(&mut self) -> Result<(), String> {
        let polls = self.standing().await?.1;
        for _ in 0..ROUNDS_MAX {
            self.step().await?;
            let (cursor, poll, is_busy) = self.standing().await?;
            if cursor == Some(self.nodes.world().tip()) && poll > polls + 1 && !is_busy {
                return Ok(());
            }
        }
        Err(format!("it does not settle: {}", self.state()))
    }

    fn state(&self) -> String {
        let tables = Tables::open(&self.path);
        let states = tables.rows("SELECT state || ' ' || state_reason FROM chains", |row| {
            row.get::<_, String>(0).unwrap()
        });
        states.join(", ")
    }

    async fn through(&mut self, tips: &[BlockHash]) -> Result<(), String> {
        for tip in tips {
            self.nodes.world().all_go_to(*tip);
            self.reach().await?;
            if self.dice.once_in(3) {
                self.step().await?;
            }
        }
        Ok(())
    }

    async fn back_and_forth(&mut self) -> Result<(), String> {
        let path = self.nodes.world().tree.path(&self.last());
        for pair in path.windows(2) {
            self.nodes.world().all_go_to(pair[1]);
            self.reach().await?;
            self.nodes.world().all_go_to(pair[0]);
            self.step().await?;
            if self.dice.once_in(8) {
                self.open().await?;
            }
        }
        Ok(())
    }

    async fn rescan(&self) -> Result<(), String> {
        let id = self.settings.chain.id.clone();
        let ask = move |tx: &mut WriteTx<'_>| {
            let key = tx.chain(&id)?.unwrap().key;
            tx.ask_rescan(key, 1, &Backfill::Nothing, "again")
        };
        self.store().write(ask).await.map(drop).map_err(words)
    }

    /// Blocks of a branch that is not better yet are shown too.
    async fn every_block(&mut self, story: &[BlockHash]) -> Result<(), String> {
        for pair in story.windows(2) {
            let new = {
                let world = self.nodes.world();
                let fork = world.tree.fork(&pair[0], &pair[1]).height();
                world.tree.branch_from(&pair[1], fork + 1)
            };
            for block in new.iter().take(40) {
                self.nodes.world().all_go_to(block.hash());
                self.step().await?;
            }
            self.nodes.world().all_go_to(pair[1]);
            self.reach().await?;
        }
        Ok(())
    }

    async fn balance(&mut self, story: &[BlockHash]) -> Result<(), String> {
        self.nodes.world().alternates = true;
        for pair in story.windows(2) {
            for (node, tip) in pair.iter().enumerate() {
                self.nodes.world().go_to(node, *tip);
            }
            for _ in 0..4 {
                self.step().await?;
            }
        }
        Ok(())
    }

    /// The follower is dropped at some await of each round.
    async fn die_often(&mut self, story: &[BlockHash]) -> Result<(), String> {
        for tip in story {
            self.nodes.world().all_go_to(*tip);
            let times = self.dice.roll(14);
            let (_, follower) = self.running.as_mut().unwrap();
            if let Some(done) = stop_after(follower.step(), times).await {
                done.map_err(words)?;
            }
            self.open().await?;
            if self.dice.once_in(3) {
                self.reach().await?;
            }
        }
        self.reach().await
    }

    /// What the next tip brings waits before, at one node; now and then the nodes go there while a list is
    /// read.
    async fn list_late(&mut self, story: &[BlockHash]) -> Result<(), String> {
        for pair in story.windows(2) {
            {
                let mut world = self.nodes.world();
                let fork = world.tree.fork(&pair[0], &pair[1]).height();
                let new = world.tree.branch_from(&pair[1], fork + 1);
                let Nodes { tree, nodes, .. } = &mut *world;
                let waiting = new.iter().flat_map(|block| &block.txs);
                for tx in waiting.filter(|tx| !tx.is_coinbase) {
                    nodes[0].accept(tree, tx);
                }
            }
            self.step().await?;
            self.step().await?;
            if self.dice.once_in(2) {
                self.go_while_listing(pair[1]);
                self.step().await?;
                self.step().await?;
            }
            self.nodes.world().all_go_to(pair[1]);
            self.reach().await?;
        }
        Ok(())
    }

    fn go_while_listing(&self, tip: BlockHash) {
        let nodes = self.nodes.clone();
        self.nodes.world().hook = Some(Hook {
            during: "mempool",
            after: 0,
            run: Box::new(move || nodes.world().all_go_to(tip)),
        });
    }

    /// Numbers of executions, and holds that follow from them, tell which branches were seen: of EVM chains
    /// only the rest has to agree.
    pub fn agreed(&self) -> Result<Vec<String>, String> {
        let database = Database::open(&self.path, OpenMode::ReadOnly).map_err(words)?;
        let mut lines = database.read(|tx| tx.agreed_projection()).map_err(words)?;
        if self.is_evm {
            lines.retain(|line| line.starts_with(" 'chain'"));
            lines.extend(self.contents());
        }
        Ok(lines)
    }

    fn contents(&self) -> Vec<String> {
        let sql = "SELECT lower(hex(t.txid)) || ':' || (o.vout % 1099511627776) || ' ' || hex(a.script) \
                   || ' ' || o.amount || ' ' || o.origin || ' ' || d.height || ' ' || hex(h.hash) \
                   FROM deposits d JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx \
                   JOIN addresses a ON a.id = o.address \
                   LEFT JOIN headers h ON h.chain = d.chain AND h.height = d.height \
                   WHERE d.state IN ('confirming', 'credited')";
        let lines = Tables::open(&self.path).rows(sql, |row| row.get::<_, String>(0).unwrap());
        let mut lines: Vec<String> = lines.into_iter().collect();
        lines.sort();
        lines
    }
}

fn words(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}

/// The tips that an honest node goes to, of those that were told: each is better than the one before, and
/// leaves it not too deep. Ends at `last`.
fn story(tree: &Tree, told: &[BlockHash], last: BlockHash, depth_max: u64) -> Vec<BlockHash> {
    let mut story = vec![tree.genesis()];
    let depth = |from: &BlockHash, to: &BlockHash| tree.block(from).height() - tree.fork(from, to).height();
    let work = |of: &BlockHash| tree.block(of).held.chainwork;
    for tip in told.iter().chain([&last]) {
        let at = story[story.len() - 1];
        if work(tip) > work(&at) && depth(&at, tip) <= depth_max {
            story.push(*tip);
        }
    }
    while story[story.len() - 1] != last && depth(&story[story.len() - 1], &last) > depth_max {
        story.pop();
    }
    if story[story.len() - 1] != last {
        story.push(last);
    }
    story
}

/// Polls a future until it has given way `times` times; `None` = it was dropped there.
async fn stop_after<F: Future>(future: F, times: usize) -> Option<F::Output> {
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
