//! Draws a script from its seed. Each seed leaves about half of the kinds of acts away, so that rare ones
//! meet each other often.

use super::{
    Act, ClientAct, CrashAt, DiskAct, In, Input, Kind, LieKind, Line, Manner, NodeAct, On, OpAct, Out, Pick,
    Script, Terms, To, TxSpec, WebhookAct,
};
use crate::death::NAMES;
use crate::dice::Dice;
use crate::world::DEEP;

/// A class of acts: how often it comes beside the others, and how one is drawn.
type Class = (u32, fn(&mut Drawer<'_>) -> Act);

const CLASSES: &[Class] = &[
    (30, |drawer| drawer.mine()),
    (9, |drawer| drawer.reorg()),
    (12, |drawer| drawer.send()),
    (5, |drawer| drawer.replace()),
    (2, |drawer| Act::Evict {
        chain: drawer.chain(),
        of: drawer.number(),
    }),
    (9, |drawer| drawer.node()),
    (5, |drawer| drawer.receiver()),
    (8, |drawer| drawer.client()),
    (4, |drawer| Act::Webhook(drawer.webhook())),
    (5, |drawer| Act::Operator(drawer.rule())),
    (5, |drawer| Act::Operator(drawer.operator())),
    (2, |drawer| Act::Clock { by_ms: drawer.jump() }),
    (2, |drawer| Act::Crash(drawer.crash())),
    (1, |drawer| {
        Act::Disk(DiskAct::Power {
            dice: drawer.number(),
        })
    }),
    (2, |drawer| Act::Disk(drawer.disk())),
    (2, |drawer| drawer.replay()),
    (5, |_| Act::Rest),
];

/// Of seeds that tell stories, one act in so many is one.
const STORY_EVERY: usize = 30;

pub(super) struct Drawer<'a> {
    pub(super) dice: &'a mut Dice,
    pub(super) kind: Kind,
    /// Kinds of acts of nodes that this seed knows, as bits.
    nodes: u64,
}

impl Script {
    /// `acts` acts from a seed. `kind`: only of that kind.
    pub fn draw(seed: u64, acts: usize, kind: Option<Kind>) -> Script {
        let mut dice = Dice::new(seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11));
        let kind = kind.unwrap_or(match dice.roll(20) {
            0..=9 => Kind::Btc,
            10..=16 => Kind::Evm,
            17..=18 => Kind::Both,
            _ if dice.once_in(2) => Kind::Btc,
            _ => Kind::WireEvm,
        });
        let terms = Terms {
            policy: dice.roll(4) as u8,
            window: 20,
            evict_s: [5, 20, 60][dice.roll(3)],
            invoices: dice.once_in(2),
            api: dice.once_in(2),
            backup_every_s: if seed % 8 == 3 { 600 } else { 0 },
            quorum: if dice.once_in(4) { 2 } else { 0 },
            nodes: 2 + dice.roll(2) as u8,
            is_harsh: true,
        };
        let mut weights: Vec<u32> = CLASSES
            .iter()
            .map(|(weight, _)| if dice.once_in(2) { 0 } else { *weight })
            .collect();
        // Without blocks nothing happens.
        weights[0] = CLASSES[0].0;
        weights[2] = CLASSES[2].0.max(weights[2]);
        let all: u32 = weights.iter().sum();
        let nodes = dice.next();
        // Seeds in a row are one stream of these dice, each a step behind the one before it, but for this.
        let mut teller = Dice::new(Dice::new(!seed).next());
        let is_telling = teller.once_in(3);
        // A seed is of bursts, or of single acts.
        let hurry = [2, 3, 6][dice.roll(3)];
        let mut lines = Vec::with_capacity(acts);
        while lines.len() < acts {
            let number = lines.len();
            if is_telling && teller.once_in(STORY_EVERY) {
                let mut own = Dice::new(teller.next());
                let mut drawer = Drawer {
                    dice: &mut own,
                    kind,
                    nodes,
                };
                let told = (number as u32 + 1..).zip(drawer.story());
                lines.extend(told.map(|(label, (wait_ms, act))| Line { wait_ms, label, act }));
                continue;
            }
            let mut at = dice.roll(all as usize) as u32;
            let class = weights.iter().position(|weight| {
                let is_it = at < *weight;
                at = at.saturating_sub(*weight);
                is_it
            });
            let (_, draw) = CLASSES[class.unwrap_or_default()];
            let mut own = Dice::new(dice.next());
            let act = draw(&mut Drawer {
                dice: &mut own,
                kind,
                nodes,
            });
            lines.push(Line {
                wait_ms: wait_ms(&mut own, hurry),
                label: number as u32 + 1,
                act,
            });
        }
        lines.truncate(acts);
        Script {
            seed,
            kind,
            terms,
            lines,
        }
    }
}

/// The time after an act, in a seed of bursts or of single acts.
fn wait_ms(dice: &mut Dice, hurry: usize) -> u32 {
    match (dice.roll(hurry), dice.roll(40)) {
        (_, 0) => 15_000 + dice.roll(60_000) as u32,
        (0, _) => 1_000 + dice.roll(4_000) as u32,
        (1, _) => dice.roll(1_500) as u32,
        _ => 0,
    }
}

impl Drawer<'_> {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.dice.roll(sides)
    }

    pub(super) fn number(&mut self) -> u32 {
        self.dice.next() as u32 % 100_000
    }

    fn chain(&mut self) -> u8 {
        match self.kind {
            Kind::Both => self.roll(2) as u8,
            Kind::Btc | Kind::Evm | Kind::WireEvm => 0,
        }
    }

    fn out(&mut self) -> Out {
        let to = match self.roll(12) {
            0..=6 => To::Early(self.roll(6) as u8),
            // The higher ones are handed out to whoever asks for an invoice or an address.
            7..=9 => To::Late(self.roll(7) as u8),
            _ => To::Foreign(self.roll(2) as u8),
        };
        Out {
            to,
            amount: self.roll(50) as u32,
        }
    }

    fn outs(&mut self) -> Vec<Out> {
        (0..=self.roll(3)).map(|_| self.out()).collect()
    }

    pub(super) fn tx(&mut self) -> TxSpec {
        let count = 1 + self.roll(2);
        let ins = (0..count)
            .map(|_| match self.roll(3) {
                0 => In::Fresh,
                _ => In::Output(self.roll(24) as u32),
            })
            .collect();
        TxSpec {
            ins,
            outs: self.outs(),
            shape: self.number(),
        }
    }

    fn mine(&mut self) -> Act {
        let picks = if self.dice.once_in(2) { 1 + self.roll(4) } else { 0 };
        let mut txs: Vec<Pick> = (0..picks).map(|_| Pick::Pending(self.number())).collect();
        txs.extend((0..self.roll(3)).map(|_| Pick::New(self.tx())));
        let coinbase = self.dice.once_in(8).then(|| self.outs());
        let on = match self.roll(16) {
            0 => On::Left(self.number()),
            1 => On::Below(1 + self.roll(6) as u8),
            _ => On::Tip,
        };
        let work = if self.dice.once_in(10) {
            5 + self.roll(12) as u8
        } else {
            10
        };
        Act::Mine {
            chain: self.chain(),
            txs,
            coinbase,
            on,
            work,
        }
    }

    fn reorg(&mut self) -> Act {
        let longer = match self.roll(10) {
            0 => -2,
            1 => -1,
            2 => 0,
            3..=7 => 1,
            8 => 2,
            _ => 3,
        };
        Act::Reorg {
            chain: self.chain(),
            depth: match self.roll(40) {
                0 => DEEP + 1 + self.roll(4) as u8,
                _ => 1 + self.roll(8) as u8,
            },
            longer,
            fate: self.number(),
        }
    }

    fn send(&mut self) -> Act {
        Act::Send {
            chain: self.chain(),
            tx: self.tx(),
        }
    }

    fn replace(&mut self) -> Act {
        Act::Replace {
            chain: self.chain(),
            of: self.number(),
            tx: self.tx(),
        }
    }

    fn node_act(&mut self, which: usize) -> NodeAct {
        match which {
            0 => NodeAct::Down,
            1 => NodeAct::Fail(1 + self.roll(4) as u8),
            2 => NodeAct::Hang(1 + self.roll(40) as u16),
            3 => NodeAct::Lag(1 + self.roll(4) as u8),
            4 => NodeAct::RestoreTo(self.number()),
            5 => NodeAct::Syncing,
            6 => NodeAct::Prune(1 + self.roll(8) as u8),
            7 => NodeAct::Missing(1 + self.roll(3) as u8),
            8 => NodeAct::WrongGenesis,
            9 => NodeAct::OtherFork,
            10 => NodeAct::Alternate,
            11 => NodeAct::Switch,
            12 => NodeAct::HeadersOnly(self.number()),
            13 => NodeAct::Truncate,
            14 => NodeAct::Noisy,
            15 => NodeAct::TagsOf(self.number()),
            16 => NodeAct::TagsBack,
            17 => NodeAct::Latency(self.roll(3_000) as u16),
            18 => NodeAct::Lie(LIES[self.roll(LIES.len())]),
            _ => NodeAct::Well,
        }
    }

    fn node(&mut self) -> Act {
        let is_wire = self.kind == Kind::WireEvm;
        let known = |which: &usize| self.nodes >> which & 1 == 1 && (is_wire || *which != 18);
        let known: Vec<usize> = (0..19).filter(known).collect();
        // What is broken is mended now and then.
        let which = match self.roll(4) {
            0 => 19,
            1 if is_wire => 18,
            _ => self.dice.pick(&known).copied().unwrap_or(19),
        };
        Act::Node {
            chain: self.chain(),
            node: self.roll(3) as u8,
            what: self.node_act(which),
        }
    }

    fn receiver(&mut self) -> Act {
        let manner = match self.roll(14) {
            0 => Manner::Slow(self.roll(8_000) as u16),
            1 => Manner::Late,
            2 => Manner::Cut,
            3 => Manner::Status([500, 503, 404, 400, 201, 204, 100][self.roll(7)]),
            4 => Manner::Redirect,
            5 => Manner::RetryAfter(self.roll(120) as u16),
            6 => Manner::Gone,
            7 => Manner::Drip,
            8 => Manner::Huge,
            9 => Manner::Forgetful,
            10 => Manner::Dead,
            _ => Manner::Good,
        };
        Act::Receiver {
            which: self.roll(3) as u8,
            manner,
        }
    }

    fn client(&mut self) -> Act {
        let of = self.number();
        let key = self.roll(200) as u8;
        Act::Client(match self.roll(20) {
            0..=4 => ClientAct::Create {
                key,
                body: self.roll(64) as u8,
            },
            5..=6 => ClientAct::Again { of },
            7 => ClientAct::OtherBody { of },
            8..=9 => ClientAct::Race {
                of,
                n: 2 + self.roll(3) as u8,
            },
            10 => ClientAct::GiveUp { of },
            11 => ClientAct::Cancel { of },
            12..=13 => ClientAct::TakeAddress { key },
            14 => ClientAct::AddEndpoint { key },
            15 => ClientAct::Rotate { of },
            16 => ClientAct::Pause { of },
            17 => ClientAct::Resume { of },
            18 => ClientAct::ReplayEvents { of },
            _ if self.dice.once_in(5) => ClientAct::NoKey,
            _ => ClientAct::Read {
                what: self.roll(8) as u8,
            },
        })
    }

    fn webhook(&mut self) -> WebhookAct {
        let of = self.number();
        match self.roll(9) {
            0..=3 => WebhookAct::Good {
                n: self.roll(200) as u8,
            },
            4..=5 => WebhookAct::Again { of },
            6 => WebhookAct::OtherContent { of },
            7 => [WebhookAct::Forged, WebhookAct::Stale][self.roll(2)],
            _ => WebhookAct::OtherIdSameEvent,
        }
    }

    /// What operators do to rules and decisions.
    fn rule(&mut self) -> OpAct {
        let (of, late) = (self.number(), self.roll(3) as u8);
        match self.roll(14) {
            0..=1 => OpAct::Watch { late },
            2..=3 => OpAct::WatchDuring {
                call: self.roll(20) as u8,
                late,
            },
            4..=5 => OpAct::Hold { of },
            6..=7 => OpAct::Release { of },
            8..=9 => OpAct::Rescan {
                from: 1 + self.roll(30) as u8,
                backfill: self.roll(3) as u8,
            },
            10..=11 => OpAct::EditPolicy(self.roll(4) as u8),
            12 => OpAct::ListToken,
            _ => OpAct::UnlistToken,
        }
    }

    /// What operators do to the daemon and its files.
    fn operator(&mut self) -> OpAct {
        let slot = self.roll(2) as u8;
        match self.roll(14) {
            0..=2 => OpAct::Backup(slot),
            3..=4 => OpAct::Restore {
                slot,
                wal: !self.dice.once_in(4),
            },
            5 => OpAct::Restored,
            6 => OpAct::RetryCallbacks,
            7 => OpAct::SecondDaemon,
            8 => OpAct::Thaw,
            9 => OpAct::AcceptReorg,
            10 => OpAct::Vacuum,
            11 => OpAct::Upgrade,
            _ => OpAct::Reopen,
        }
    }

    fn jump(&mut self) -> i64 {
        let minute = 60_000;
        let most = [minute, 60 * minute, 2 * 365 * 24 * 60 * minute][self.roll(3)];
        let by = 1 + (self.dice.next() >> 1) as i64 % most;
        if self.dice.once_in(2) { by } else { -by }
    }

    fn crash(&mut self) -> CrashAt {
        let near = 1 + self.roll(30) as u32;
        match self.roll(8) {
            0..=1 => CrashAt::Await(near),
            2 => CrashAt::Point(near),
            // The first are around every transaction.
            3 => CrashAt::Named(self.roll(4) as u8, 1 + self.roll(8) as u32),
            4 => CrashAt::Named(self.roll(NAMES.len()) as u8, 1 + self.roll(4) as u32),
            5 => CrashAt::Statement(1 + self.roll(60) as u32),
            6 => CrashAt::Write(near),
            _ => CrashAt::Sync(1 + self.roll(6) as u32),
        }
    }

    fn disk(&mut self) -> DiskAct {
        let near = 1 + self.roll(20) as u32;
        match self.roll(9) {
            0..=1 => DiskAct::Full,
            2..=3 => DiskAct::Freed,
            4 => DiskAct::EioRead(near),
            5 => DiskAct::EioWrite(near),
            6 => DiskAct::EioSync(1 + self.roll(5) as u32),
            7 => DiskAct::Busy(near),
            _ => DiskAct::Short(near),
        }
    }

    fn replay(&mut self) -> Act {
        let what = [
            Input::Blocks,
            Input::List,
            Input::Call,
            Input::Webhook,
            Input::Timer,
            Input::Job,
            Input::Hint,
        ][self.roll(7)];
        Act::Replay {
            what,
            times: 1 + self.roll(3) as u8,
        }
    }
}

const LIES: &[LieKind] = &[
    LieKind::Amount,
    LieKind::FakeBlock,
    LieKind::OtherReceipts,
    LieKind::LogsDropped,
    LieKind::StatusAbsent,
    LieKind::LogIndexShifted,
    LieKind::NullAnswer,
    LieKind::ErrorIn200,
    LieKind::BatchEntryFailed,
    LieKind::Stale,
    LieKind::Cut,
];
