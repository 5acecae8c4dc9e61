//! The scripted nodes behind the follower's seam. One of them answers at a time, as behind a load balancer;
//! every answer first gives way once, so that a test can stop the follower between any two of them.

use super::filter;
use super::node::Node;
use super::told::{LeftTold, Told};
use super::tree::{Block, Tree};
use crate::dice::Dice;
use creditd::address::Network;
use creditd::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use creditd::chain::rpc::Auth;
use creditd::chain::{ChainSource, HeaderInfo, Help, Identity, NodeTip, SourceError};
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::index::Index;
use creditd::rules::{BlockHash, ChainId, Header, HeldHeader, MempoolList, ScannedBlock};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The world of a test: a tree, its nodes, and which of them answers.
#[derive(Debug)]
pub struct World {
    pub tree: Tree,
    pub nodes: Vec<Node>,
    pub current: usize,
    /// The next answer comes from the next node, and so on: a balancer that shares out single calls.
    pub alternates: bool,
    /// How many nodes have to agree before anything is credited.
    pub quorum: Option<usize>,
    /// False: nobody lists a mempool.
    pub lists_mempool: bool,
    pub hook: Option<Hook>,
    /// What was answered, where anybody wants to know.
    pub told: Option<Told>,
    /// An answer takes as long as this at most.
    pub latency_ms: u64,
    /// Draws how long it takes.
    pub dice: Dice,
}

/// Something that happens while the follower waits for one answer: another process writes, a miner finds a
/// block.
pub struct Hook {
    /// What the follower has to be doing: `tip`, `block`, `mempool` ...
    pub during: &'static str,
    /// How many such answers come first.
    pub after: usize,
    pub run: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hook in {}", self.during)
    }
}

/// A handle on the world; what the follower is given.
#[derive(Clone, Debug)]
pub struct Scripted {
    world: Arc<Mutex<World>>,
    clock: Clock,
}

impl Scripted {
    /// A tree of a genesis block, and `count` nodes that know it.
    pub fn new(name: &str, count: usize, clock: Clock) -> Scripted {
        Scripted::on(Tree::new(name), count, clock)
    }

    /// `count` nodes that know the first block of a tree.
    pub fn on(tree: Tree, count: usize, clock: Clock) -> Scripted {
        let nodes = vec![Node::new(tree.genesis()); count];
        let world = World {
            tree,
            nodes,
            current: 0,
            alternates: false,
            quorum: None,
            lists_mempool: true,
            hook: None,
            told: None,
            latency_ms: 0,
            dice: Dice::new(0),
        };
        Scripted {
            world: Arc::new(Mutex::new(world)),
            clock,
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same nodes under another clock.
    pub fn under(&self, clock: Clock) -> Scripted {
        Scripted {
            world: self.world.clone(),
            clock,
        }
    }

    /// Are these the same nodes, under whatever clock?
    pub fn is_same(&self, other: &Scripted) -> bool {
        Arc::ptr_eq(&self.world, &other.world)
    }

    pub fn chain_id(&self) -> ChainId {
        chain_id(&self.world().tree)
    }

    /// One answer of the node that is asked.
    async fn answer<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Tree, &mut Node) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        tokio::task::yield_now().await;
        let Delays {
            node,
            hang,
            before,
            after,
        } = self.world().delays(0);
        self.pause(hang + before).await;
        if hang == TIME_OUT {
            return Err(unreachable(doing, "no answer in time"));
        }
        let (answer, hook) = {
            let mut world = self.world();
            (world.answer(node, doing, work), world.due_hook(doing))
        };
        if let Some(hook) = hook {
            (hook.run)();
        }
        self.pause(after).await;
        answer
    }

    /// Comes through to the node that answers now, or to one of those after it, as for any question; whoever
    /// has come through asks it in another way.
    pub async fn reach(&self, after: usize) -> Result<usize, SourceError> {
        tokio::task::yield_now().await;
        let delays = self.world().delays(after);
        self.pause(delays.hang + delays.before + delays.after).await;
        if delays.hang == TIME_OUT {
            return Err(unreachable("call", "no answer in time"));
        }
        self.world().answer(delays.node, "call", |_, _| Ok(delays.node))?;
        let tip = {
            let mut world = self.world();
            let World { tree, nodes, .. } = &mut *world;
            tip_of(tree, &mut nodes[delays.node])
        };
        self.note_tip(delays.node, &tip);
        Ok(delays.node)
    }

    fn note_tip(&self, node: usize, tip: &NodeTip) {
        let mut world = self.world();
        let World {
            tree, nodes, told, ..
        } = &mut *world;
        if let Some(told) = told {
            told.tip(self.clock.now_ms(), node, tip, tree, &nodes[node]);
        }
    }

    async fn pause(&self, span: Duration) {
        if !span.is_zero() {
            self.clock.sleep(span).await;
        }
    }
}

/// Nobody waits longer for an answer.
const TIME_OUT: Duration = Duration::from_secs(30);

/// How long one answer takes.
struct Delays {
    /// Who is asked.
    node: usize,
    hang: Duration,
    before: Duration,
    after: Duration,
}

fn unreachable(doing: &str, why: &str) -> SourceError {
    SourceError::Unreachable {
        doing: doing.to_owned(),
        why: why.to_owned(),
        help: Help::Node,
        source: None,
    }
}

fn chain_id(tree: &Tree) -> ChainId {
    match tree.is_evm {
        true => ChainId::evm(31337, Some("scripted")),
        false => ChainId::bitcoin(&tree.genesis(), Some("scripted")),
    }
}

impl World {
    /// Chooses who is asked, and how long the answer takes.
    fn delays(&mut self, after: usize) -> Delays {
        if self.alternates {
            self.current = (self.current + 1) % self.nodes.len();
        }
        let node = (self.current + after) % self.nodes.len();
        let latency = match self.latency_ms {
            0 => Duration::ZERO,
            most => Duration::from_millis(self.dice.next() % (most + 1)),
        };
        let (before, after) = match latency.is_zero() || self.dice.once_in(2) {
            true => (latency, Duration::ZERO),
            false => (Duration::ZERO, latency),
        };
        let hangs = &mut self.nodes[node].faults.hangs;
        let hang = TIME_OUT.min(*hangs);
        *hangs -= hang;
        if let Some(told) = self.told.as_mut().filter(|_| !hang.is_zero()) {
            told.mark(if hang == TIME_OUT { "hung" } else { "hang_ended" });
        }
        Delays {
            node,
            hang,
            before,
            after,
        }
    }

    fn answer<T>(
        &mut self,
        asked: usize,
        doing: &str,
        work: impl FnOnce(&Tree, &mut Node) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let node = &mut self.nodes[asked];
        node.calls += 1;
        if let Some(told) = &mut self.told {
            told.ask(asked, self.alternates);
        }
        let answer = match node.faults.is_down || node.faults.fails.contains(&node.calls) {
            true => Err(unreachable(doing, "scripted to fail")),
            false => work(&self.tree, node),
        };
        if let (Some(told), Err(error)) = (&mut self.told, &answer) {
            match error {
                SourceError::Unreachable { .. } => told.mark("unreachable"),
                SourceError::WrongNetwork(_) => told.mark("wrong_network"),
                SourceError::Pruned { .. } => told.mark("pruned_gap"),
                SourceError::MissingData(_) => told.mark("missing_data"),
                SourceError::UnknownBlock(_) | SourceError::BadBlock { .. } => {}
            }
        }
        answer
    }

    fn due_hook(&mut self, doing: &str) -> Option<Hook> {
        let hook = self.hook.as_mut().filter(|hook| hook.during == doing)?;
        if hook.after > 0 {
            hook.after -= 1;
            return None;
        }
        self.hook.take()
    }

    pub fn node(&mut self) -> &mut Node {
        &mut self.nodes[self.current]
    }

    /// Takes a node to a tip.
    pub fn go_to(&mut self, node: usize, tip: BlockHash) {
        self.nodes[node].go_to(&self.tree, tip);
    }

    /// Takes all nodes to a tip.
    pub fn all_go_to(&mut self, tip: BlockHash) {
        (0..self.nodes.len()).for_each(|node| self.go_to(node, tip));
    }

    /// The tip of the node that answers.
    pub fn tip(&self) -> BlockHash {
        self.nodes[self.current].tip
    }
}

fn has_content(node: &Node, tree: &Tree, hash: BlockHash) -> Result<(), SourceError> {
    if !node.has_header(tree, &hash) {
        return Err(SourceError::UnknownBlock(hash));
    }
    if node.faults.pruned_below > Some(tree.block(&hash).height()) {
        return Err(SourceError::Pruned { hash });
    }
    if node.faults.missing.contains(&hash) || !node.known.contains(&hash) {
        return Err(SourceError::MissingData(hash));
    }
    Ok(())
}

/// Where a node says that it stands.
fn tip_of(tree: &Tree, node: &mut Node) -> NodeTip {
    let held = tree.block(&node.tip).held;
    let known = node.headers_only.iter().map(|hash| tree.block(hash).height());
    let headers = known.max().unwrap_or_default().max(held.height);
    NodeTip {
        hash: node.tip,
        height: held.height,
        chainwork: held.chainwork,
        time_secs: held.header.time_secs,
        is_syncing: node.faults.is_syncing || headers > held.height,
        headers,
        pruned_below: node.faults.pruned_below,
        tags: node.finality.tags(tree, &node.tip),
        credit_ceiling: node.better_fork(tree),
    }
}

/// A block as a node sends it.
pub struct Raw {
    block: Arc<Block>,
    is_noisy: bool,
}

impl ChainSource for Scripted {
    type Raw = Raw;

    async fn identity(&self) -> Result<Identity, SourceError> {
        let identity = |tree: &Tree, node: &mut Node| {
            if let Some(other) = node.faults.other_genesis {
                return Err(SourceError::WrongNetwork(format!("genesis {other}")));
            }
            Ok(Identity {
                unlisted: Vec::new(),
                chain: chain_id(tree),
                genesis: tree.genesis(),
                software: "scripted".to_owned(),
            })
        };
        self.answer("identity", identity).await
    }

    async fn tip(&self) -> Result<NodeTip, SourceError> {
        let tip = |tree: &Tree, node: &mut Node| Ok(tip_of(tree, node));
        let tip = self.answer("tip", tip).await?;
        // Two nodes at one tip say the same.
        let node = self.world().nodes.iter().position(|node| node.tip == tip.hash);
        self.note_tip(node.unwrap_or(0), &tip);
        Ok(tip)
    }

    async fn header(&self, hash: BlockHash) -> Result<Option<HeaderInfo>, SourceError> {
        let header = |tree: &Tree, node: &mut Node| {
            Ok(node.has_header(tree, &hash).then(|| HeaderInfo {
                held: tree.block(&hash).held,
                is_active: tree.is_on(&hash, &node.tip),
            }))
        };
        let header = self.answer("header", header).await?;
        if let (Some(told), Some(info)) = (&mut self.world().told, &header)
            && !info.is_active
        {
            told.left.push(LeftTold {
                at_ms: self.clock.now_ms(),
                hash,
            });
        }
        Ok(header)
    }

    async fn hashes(&self, height: u64, count: usize) -> Result<Vec<BlockHash>, SourceError> {
        let hashes = |tree: &Tree, node: &mut Node| {
            let branch = tree.branch_from(&node.tip, height);
            let count = match node.faults.truncates {
                true => count.min(branch.len()).div_ceil(2),
                false => count,
            };
            let told: Vec<BlockHash> = branch.iter().take(count).map(|block| block.hash()).collect();
            node.hashes_told += told.len();
            Ok(told)
        };
        self.answer("hashes", hashes).await
    }

    async fn fetch(&self, hash: BlockHash) -> Result<Raw, SourceError> {
        let block = |tree: &Tree, node: &mut Node| {
            has_content(node, tree, hash)?;
            Ok(Raw {
                block: tree.block(&hash),
                is_noisy: node.faults.is_noisy,
            })
        };
        let raw = self.answer("block", block).await?;
        if let Some(told) = &mut self.world().told {
            told.block(&raw.block);
        }
        Ok(raw)
    }

    async fn scan(&self, _hash: BlockHash, raw: &Raw, index: &Index) -> Result<ScannedBlock, SourceError> {
        Ok(filter::scan(&raw.block, index, raw.is_noisy))
    }

    /// A chain with difficulty is held to the rules of mainnet.
    fn check_link(&self, parent: &HeldHeader, header: &Header) -> Result<(), SourceError> {
        if parent.header.bits == 0 {
            return Ok(());
        }
        let mainnet = BitcoinConfig::new("http://127.0.0.1", Auth::None, Network::Main);
        BitcoinSource::new(mainnet, HttpDial::new(), self.clock).check_link(parent, header)
    }

    async fn is_left_by_all(&self, ours: &HeldHeader, theirs: &NodeTip) -> bool {
        tokio::task::yield_now().await;
        let world = self.world();
        let has = |node: &Node, hash: &BlockHash| world.tree.is_on(hash, &node.tip);
        let is_left =
            |node: &Node| !node.faults.is_down && has(node, &theirs.hash) && !has(node, &ours.header.hash);
        world.nodes.iter().all(is_left)
    }

    fn needs_agreement(&self) -> bool {
        self.world().quorum.is_some()
    }

    async fn is_agreed(&self, ours: &HeldHeader) -> bool {
        tokio::task::yield_now().await;
        let mut world = self.world();
        let has = |node: &&Node| !node.faults.is_down && world.tree.is_on(&ours.header.hash, &node.tip);
        let agree = world.nodes.iter().filter(has).count();
        let is_agreed = world.quorum.is_none_or(|quorum| agree >= quorum);
        if let Some(told) = world.told.as_mut().filter(|_| !is_agreed) {
            told.mark("quorum_refused");
        }
        is_agreed
    }

    fn lists_mempool(&self) -> bool {
        self.world().lists_mempool
    }

    async fn mempool(&self, index: &Index) -> Result<Option<MempoolList>, SourceError> {
        if !self.lists_mempool() {
            return Ok(None);
        }
        let mempool = |tree: &Tree, node: &mut Node| {
            if let Some(tip) = node.faults.moves_to.take() {
                node.go_to(tree, tip);
                return Ok(None);
            }
            let Node {
                tip, mempool, faults, ..
            } = node;
            let mut list = filter::list(*tip, mempool, &faults.unfetchable, index, faults.is_noisy);
            if faults.truncates && mempool.len() > 1 {
                list.txs.truncate(list.txs.len() / 2);
                list.is_complete = false;
                if tree.is_evm {
                    // Such a node shows a part of its pool. One of Bitcoin's has the ids of all.
                    let shown = mempool.iter().take(mempool.len() / 2).map(|tx| tx.txid);
                    list.listed = Arc::new(shown.collect());
                    list.txs.retain(|tx| list.listed.contains(&tx.txid));
                }
            }
            Ok(Some(list))
        };
        let list = self.answer("mempool", mempool).await?;
        if let (Some(told), Some(list)) = (&mut self.world().told, &list) {
            told.list(self.clock.now_ms(), list);
        }
        Ok(list)
    }

    async fn wait(&self, _tip: BlockHash, span: Duration) {
        self.clock.sleep(span).await;
    }
}
