//! What happens in one seed, as a list of acts: drawn from a number, printed and read again as text. Every
//! reference is "that one of what there is then", so that any part of a script is a script.

mod draw;
mod stories;
mod text;

use crate::dice::Dice;
use serde::{Deserialize, Serialize};

/// The chains of a seed, and how their nodes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    Btc,
    Evm,
    Both,
    /// The real source of an EVM chain, over a dial in the process.
    WireEvm,
}

/// The settings of a seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub policy: u8,
    pub window: u8,
    pub evict_s: u16,
    pub invoices: bool,
    pub api: bool,
    pub backup_every_s: u32,
    pub quorum: u8,
    pub nodes: u8,
    /// Half of the deaths take the power with them, a start after one may die too, and a full disk may be so
    /// for one write alone. Scripts that were kept before this was drawn stay what they were.
    #[serde(default)]
    pub is_harsh: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    pub seed: u64,
    pub kind: Kind,
    pub terms: Terms,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Virtual time that passes after the act.
    pub wait_ms: u32,
    /// Names the dice of what the act leaves open: other lines may go, and it stays what it was.
    pub label: u32,
    pub act: Act,
}

impl Line {
    /// The number of its dice.
    pub fn dice(&self, seed: u64) -> u64 {
        Dice::new(seed ^ (u64::from(self.label) << 32)).next()
    }
}

/// Whom an output pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// A script that is watched (or own) from the start: 0..=5, as in the tables of `world`.
    Early(u8),
    /// One that may be added later: 0..=2; from 3 on, one that is handed out by the daemon.
    Late(u8),
    /// A stranger: 0..=1.
    Foreign(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Out {
    pub to: To,
    pub amount: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum In {
    /// Coin from elsewhere.
    Fresh,
    /// An output of a young transaction: that one, counted back from the youngest.
    Output(u32),
}

/// A transaction. On EVM chains `shape` decides the sender and which outs are values, logs and inner calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxSpec {
    pub ins: Vec<In>,
    pub outs: Vec<Out>,
    pub shape: u32,
}

/// What a block holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pick {
    /// That one of the mempool of the node that answers.
    Pending(u32),
    New(TxSpec),
}

/// What a block is mined on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    Tip,
    /// The tip of a branch that was left; the largest number: of the one that was left last.
    Left(u32),
    Below(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    Mine {
        chain: u8,
        txs: Vec<Pick>,
        coinbase: Option<Vec<Out>>,
        on: On,
        /// In tenths of the usual.
        work: u8,
    },
    Reorg {
        chain: u8,
        /// Above `world::DEEP`: so many more than the window.
        depth: u8,
        /// Blocks more than were lost: -2..=3.
        longer: i8,
        /// Decides for each lost transaction: kept, replaced, dropped, run again.
        fate: u32,
    },
    Send {
        chain: u8,
        tx: TxSpec,
    },
    Replace {
        chain: u8,
        of: u32,
        tx: TxSpec,
    },
    Evict {
        chain: u8,
        of: u32,
    },
    Node {
        chain: u8,
        node: u8,
        what: NodeAct,
    },
    Receiver {
        which: u8,
        manner: Manner,
    },
    Client(ClientAct),
    Webhook(WebhookAct),
    Operator(OpAct),
    /// The wall clock is set.
    Clock {
        by_ms: i64,
    },
    Crash(CrashAt),
    Disk(DiskAct),
    Replay {
        what: Input,
        times: u8,
    },
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAct {
    Down,
    Up,
    Fail(u8),
    Hang(u16),
    Lag(u8),
    RestoreTo(u32),
    Syncing,
    Prune(u8),
    Missing(u8),
    WrongGenesis,
    OtherFork,
    Alternate,
    Switch,
    HeadersOnly(u32),
    /// Mempool lists that are not complete; lists of hashes that are cut short.
    Truncate,
    Noisy,
    Lie(LieKind),
    TagsOf(u32),
    TagsBack,
    Latency(u16),
    /// All faults end.
    Well,
}

/// Wire seeds only: what a node says that is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LieKind {
    Amount,
    FakeBlock,
    OtherReceipts,
    LogsDropped,
    StatusAbsent,
    LogIndexShifted,
    NullAnswer,
    ErrorIn200,
    BatchEntryFailed,
    Stale,
    Cut,
}

/// How a receiver of callbacks answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manner {
    Good,
    Slow(u16),
    /// 200 after our time-out.
    Late,
    Cut,
    Status(u16),
    Redirect,
    RetryAfter(u16),
    Gone,
    Drip,
    Huge,
    /// Takes it, and its answer is lost.
    Forgetful,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAct {
    Create {
        key: u8,
        body: u8,
    },
    Again {
        of: u32,
    },
    OtherBody {
        of: u32,
    },
    Race {
        of: u32,
        n: u8,
    },
    /// The client goes away before its answer.
    GiveUp {
        of: u32,
    },
    Cancel {
        of: u32,
    },
    TakeAddress {
        key: u8,
    },
    AddEndpoint {
        key: u8,
    },
    Rotate {
        of: u32,
    },
    Pause {
        of: u32,
    },
    Resume {
        of: u32,
    },
    ReplayEvents {
        of: u32,
    },
    Read {
        what: u8,
    },
    NoKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WebhookAct {
    Good { n: u8 },
    Again { of: u32 },
    OtherContent { of: u32 },
    Forged,
    Stale,
    OtherIdSameEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpAct {
    Watch {
        late: u8,
    },
    /// In the middle of that call of the follower.
    WatchDuring {
        call: u8,
        late: u8,
    },
    Hold {
        of: u32,
    },
    Release {
        of: u32,
    },
    Rescan {
        from: u8,
        backfill: u8,
    },
    AcceptReorg,
    EditPolicy(u8),
    ListToken,
    UnlistToken,
    Backup(u8),
    Restore {
        slot: u8,
        wal: bool,
    },
    /// The operator's `restored` command.
    Restored,
    RetryCallbacks,
    SecondDaemon,
    /// A daemon that was frozen before the last restart goes on.
    Thaw,
    /// A clean stop and a start.
    Reopen,
    /// A clean stop, and a start of the next version.
    Upgrade,
    Vacuum,
}

/// Where the daemon dies next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashAt {
    /// At the N-th await of its parts.
    Await(u32),
    /// At the N-th point passed.
    Point(u32),
    /// At the N-th pass of the point of this number in `death::NAMES`.
    Named(u8, u32),
    Statement(u32),
    Write(u32),
    Sync(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskAct {
    /// Everything that was not synced is lost, torn or reordered; the daemon is dead.
    Power {
        dice: u32,
    },
    Full,
    Freed,
    EioRead(u32),
    EioWrite(u32),
    EioSync(u32),
    Busy(u32),
    Short(u32),
}

/// What is fed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    Blocks,
    List,
    Call,
    Webhook,
    Timer,
    Job,
    Hint,
}
