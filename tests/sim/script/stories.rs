//! Stories: acts that only mean something one after the other, and would rarely be drawn so by themselves.

use super::draw::Drawer;
use super::{
    Act, ClientAct, CrashAt, DiskAct, In, Kind, LieKind, Manner, NodeAct, On, OpAct, Out, Pick, To, TxSpec,
    WebhookAct,
};
use crate::death::NAMES;

/// Acts with the time after each.
type Told = Vec<(u32, Act)>;
type Story = fn(&mut Drawer<'_>) -> Told;

const STORIES: &[Story] = &[
    |drawer| drawer.outage(),
    |drawer| drawer.late_rule(),
    |drawer| drawer.lost_after_credit(),
    |drawer| drawer.there_and_back(),
    |drawer| drawer.back_and_restored(),
    |drawer| drawer.sync_lost(),
    |drawer| drawer.log_fails(),
    |drawer| drawer.invoice_paid(),
    |drawer| drawer.answer_lost(),
    |drawer| drawer.refused_together(),
    |drawer| drawer.taken_and_restored(),
    |drawer| drawer.one_hangs(),
];

/// Of Bitcoin's chains alone.
const OF_BTC: &[Story] = &[|drawer| drawer.known_by_headers()];

/// Of EVM chains alone.
const OF_EVM: &[Story] = &[
    |drawer| drawer.tag_of_another_branch(),
    |drawer| drawer.pool_by_halves(),
];

/// Of those behind JSON.
const OF_WIRE: &[Story] = &[|drawer| drawer.without_status()];

impl Drawer<'_> {
    /// Acts that only mean something after each other, with the time after each.
    pub(super) fn story(&mut self) -> Told {
        let more: &[&[Story]] = match self.kind {
            Kind::Btc | Kind::Both => &[OF_BTC],
            Kind::Evm => &[OF_EVM],
            Kind::WireEvm => &[OF_EVM, OF_WIRE],
        };
        let all: Vec<Story> = [&[STORIES][..], more].concat().concat();
        let story = all[self.roll(all.len())];
        story(self)
    }

    /// A receiver is away for so many days that callbacks are given up.
    fn outage(&mut self) -> Told {
        let (which, manner) = (
            self.roll(3) as u8,
            [Manner::Dead, Manner::Status(500)][self.roll(2)],
        );
        let mut acts = vec![
            (1_000, Act::Receiver { which, manner }),
            (2_000, self.mine_of(To::Early([0, 3, 4][usize::from(which)]))),
        ];
        let by_ms = 30 * 3_600_000;
        acts.extend((0..12).map(|_| (2_000, Act::Clock { by_ms })));
        acts
    }

    /// A rule is added, meets a payment, and that is mined again in a block below it.
    fn late_rule(&mut self) -> Told {
        let late = self.roll(3) as u8;
        vec![
            (1_500, Act::Operator(OpAct::Watch { late })),
            (1_500, self.mine_of(To::Late(late))),
            (1_500, self.reorg_of(2..6)),
        ]
    }

    /// What was credited is lost, run again, and lost once more.
    fn lost_after_credit(&mut self) -> Told {
        let to = To::Early(self.roll(6) as u8);
        let mut acts = vec![(1_500, self.mine_of(to))];
        acts.extend((0..4).map(|_| (500, empty_block())));
        acts.push((2_500, Act::Rest));
        for _ in 0..2 {
            acts.push((2_500, self.reorg_of(5..8)));
        }
        acts
    }

    /// A payment loses its block to a rival, and that loses its own to the first again.
    fn there_and_back(&mut self) -> Told {
        let to = To::Early(self.roll(6) as u8);
        let mut acts = vec![(1_500, self.mine_of(to)), (1_500, self.reorg_of(1..3))];
        for _ in 0..4 {
            let Act::Mine { txs, .. } = self.mine_of(to) else {
                continue;
            };
            let on = On::Left(self.number());
            acts.push((
                700,
                Act::Mine {
                    chain: 0,
                    txs,
                    coinbase: None,
                    on,
                    work: 10,
                },
            ));
        }
        acts
    }

    /// A credit is told to be lost, its block is back by the time an older database is.
    fn back_and_restored(&mut self) -> Told {
        let (slot, to) = (self.roll(2) as u8, To::Early([0, 3, 4][self.roll(3)]));
        let mut acts = vec![(1_500, self.mine_of(to))];
        acts.extend((0..6).map(|_| (500, empty_block())));
        acts.push((2_500, Act::Operator(OpAct::Backup(slot))));
        acts.push((4_000, self.reorg_of(7..9)));
        let again = || Act::Mine {
            chain: 0,
            txs: vec![],
            coinbase: None,
            on: On::Left(u32::MAX),
            work: 10,
        };
        acts.extend([(0, again()), (0, again())]);
        acts.push((4_000, Act::Operator(OpAct::Restore { slot, wal: true })));
        acts
    }

    /// A sync fails, things go on, and the power goes.
    fn sync_lost(&mut self) -> Told {
        let (nth, dice) = (1 + self.roll(3) as u32, self.number());
        let (key, n) = (self.roll(200) as u8, self.roll(200) as u8);
        let mut acts = vec![
            (0, Act::Disk(DiskAct::EioSync(nth))),
            (1_500, self.mine_of(To::Early(0))),
            (400, Act::Webhook(WebhookAct::Good { n })),
        ];
        let body = 0;
        acts.push((400, Act::Client(ClientAct::Create { key, body })));
        acts.push((300, self.mine_of(To::Early(3))));
        acts.push((2_000, Act::Disk(DiskAct::Power { dice })));
        acts
    }

    /// A sync of the log fails under somebody's request, while nothing else is written.
    fn log_fails(&mut self) -> Told {
        let (key, n) = (self.roll(200) as u8, self.roll(200) as u8);
        let mut acts = vec![(0, Act::Rest)];
        for _ in 0..2 {
            acts.push((0, Act::Disk(DiskAct::EioSync(1))));
            acts.push(match self.roll(2) {
                0 => (300, Act::Webhook(WebhookAct::Good { n })),
                _ => (300, Act::Client(ClientAct::TakeAddress { key })),
            });
        }
        acts
    }

    /// An invoice is made and paid; the payment is held, and released.
    fn invoice_paid(&mut self) -> Told {
        let (key, body) = (self.roll(200) as u8, 2 * self.roll(8) as u8);
        let mut acts = vec![(1_500, Act::Client(ClientAct::Create { key, body }))];
        // Nobody knows by now which address it has.
        let all: Vec<To> = (3..11).map(To::Late).collect();
        acts.push((300, self.pay_each(&all, 90)));
        acts.extend((0..5).map(|_| (800, empty_block())));
        for _ in 0..2 {
            let of = self.number() | 1;
            acts.push((800, Act::Operator(OpAct::Hold { of })));
        }
        acts.push((800, Act::Operator(OpAct::Release { of: self.number() })));
        acts
    }

    /// The daemon dies after it has done what a request asks for, and its client asks again.
    fn answer_lost(&mut self) -> Told {
        let of = u32::MAX;
        let mut acts = vec![];
        for _ in 0..2 {
            let (key, body) = (self.roll(200) as u8, 2 * self.roll(8) as u8);
            let at = ["commit.after", "commit.after", "api.committed"][self.roll(3)];
            let at = NAMES.iter().position(|name| *name == at).unwrap_or_default() as u8;
            // Between two looks of the other parts, so that they commit nothing just then.
            acts.extend([(0, Act::Rest), (700, Act::Client(ClientAct::Read { what: 0 }))]);
            let nth = 1 + self.roll(2) as u32;
            acts.push((0, Act::Crash(CrashAt::Named(at, nth))));
            acts.push((1_500, Act::Client(ClientAct::Create { key, body })));
            // A pool that was not filled yet says so, the first time.
            acts.extend([6_000, 1_500].map(|wait_ms| (wait_ms, Act::Client(ClientAct::Again { of }))));
        }
        acts
    }

    /// Requests that share a commit, of which one is refused once it has begun to write.
    fn refused_together(&mut self) -> Told {
        let key = self.roll(190) as u8;
        let create = |key, body| Act::Client(ClientAct::Create { key, body });
        vec![
            (0, Act::Rest),
            (0, create(key, 0)),
            (0, create(key + 1, 9)),
            (1_500, create(key + 2, 2)),
        ]
    }

    /// Addresses are handed out that an older database knows nothing of, and then that database is back.
    fn taken_and_restored(&mut self) -> Told {
        let (slot, key) = (self.roll(2) as u8, self.roll(180) as u8);
        let take = |more| Act::Client(ClientAct::TakeAddress { key: key + more });
        let wal = self.dice.once_in(2);
        let mut acts = vec![(500, Act::Operator(OpAct::Backup(slot)))];
        acts.extend([(500, take(0)), (1_500, take(1))]);
        acts.push((2_000, Act::Operator(OpAct::Restore { slot, wal })));
        acts.extend((0..2).map(|_| (0, Act::Rest)));
        acts.extend((2..6).map(|more| (800, take(more))));
        acts
    }

    /// A receiver lets everything that it is told wait, and there is much; another one answers.
    fn one_hangs(&mut self) -> Told {
        let early = [&[0, 1][..], &[3], &[4, 5]];
        let which = self.roll(3);
        let other = (which + 1 + self.roll(2)) % 3;
        let manner = [Manner::Late, Manner::Drip][self.roll(2)];
        let many = |count: usize| -> Vec<To> {
            let to = early[which].iter().cycle();
            to.take(count).map(|to| To::Early(*to)).collect()
        };
        let mut acts = vec![(
            0,
            Act::Receiver {
                which: which as u8,
                manner,
            },
        )];
        acts.push((18_000, self.pay_each(&many(3), 3)));
        acts.extend((0..2).map(|_| (1_000, self.pay_each(&many(12), 3))));
        for _ in 0..4 {
            acts.push((1_500, self.pay_each(&[To::Early(early[other][0])], 3)));
            acts.extend((0..3).map(|_| (2_000, Act::Client(ClientAct::Read { what: 0 }))));
        }
        acts
    }

    /// A node knows a better branch by its headers alone, of heavier blocks, while ours goes on.
    fn known_by_headers(&mut self) -> Told {
        let mut acts = vec![(500, self.mine_of(To::Early(0)))];
        acts.extend((0..3).map(|node| (0, self.of_node(node, NodeAct::HeadersOnly(0)))));
        acts.push((5_000, Act::Client(ClientAct::Read { what: 0 })));
        for _ in 0..4 {
            let to = To::Early([0, 3, 4][self.roll(3)]);
            acts.push((1_500, self.mine_of(to)));
        }
        acts
    }

    /// Nodes call a block of a branch that was left safe and final, while payments wait for that.
    fn tag_of_another_branch(&mut self) -> Told {
        let policy = 2 + self.roll(2) as u8;
        let mut acts = vec![(2_500, Act::Operator(OpAct::EditPolicy(policy)))];
        for _ in 0..3 {
            let to = To::Early([0, 3, 4][self.roll(3)]);
            acts.push((600, self.mine_of(to)));
        }
        acts.push((1_500, self.reorg_of(1..3)));
        acts.extend((0..3).map(|node| (0, self.of_node(node, NodeAct::TagsOf(u32::MAX)))));
        acts.push((2_000, Act::Client(ClientAct::Read { what: 0 })));
        acts
    }

    /// Nodes show a part of their pool for so long that what they do not show would count as gone.
    fn pool_by_halves(&mut self) -> Told {
        let mut acts: Told = vec![];
        for _ in 0..6 {
            let tx = self.pays(To::Early(0), 5);
            acts.push((500, Act::Send { chain: 0, tx }));
        }
        acts.push((2_500, Act::Client(ClientAct::Read { what: 0 })));
        acts.extend((0..2).map(|node| (0, self.of_node(node, NodeAct::Truncate))));
        acts.extend((0..6).map(|_| (0, Act::Rest)));
        acts.extend((0..2).map(|node| (0, self.of_node(node, NodeAct::Truncate))));
        acts
    }

    /// Receipts come without the status of their transaction, of some that failed.
    fn without_status(&mut self) -> Told {
        let all: Vec<To> = (0..12).map(|to| To::Early(to % 6)).collect();
        let lie = self.of_node(0, NodeAct::Lie(LieKind::StatusAbsent));
        vec![(0, lie), (2_000, self.pay_each(&all, 7))]
    }

    fn of_node(&self, node: u8, what: NodeAct) -> Act {
        Act::Node { chain: 0, node, what }
    }

    /// A transaction that pays somebody and nobody else.
    fn pays(&mut self, to: To, amount: u32) -> TxSpec {
        TxSpec {
            ins: vec![In::Fresh],
            outs: vec![Out { to, amount }],
            shape: self.number(),
        }
    }

    /// A block with a transaction for each of them.
    fn pay_each(&mut self, all: &[To], amount: u32) -> Act {
        let txs = all.iter().map(|to| Pick::New(self.pays(*to, amount))).collect();
        Act::Mine {
            chain: 0,
            txs,
            coinbase: None,
            on: On::Tip,
            work: 10,
        }
    }

    /// A block with a payment to somebody.
    fn mine_of(&mut self, to: To) -> Act {
        let mut tx = self.tx();
        tx.outs.push(Out {
            to,
            amount: 1 + self.roll(50) as u32,
        });
        Act::Mine {
            chain: 0,
            txs: vec![Pick::New(tx)],
            coinbase: None,
            on: On::Tip,
            work: 10,
        }
    }

    fn reorg_of(&mut self, depths: std::ops::Range<u8>) -> Act {
        Act::Reorg {
            chain: 0,
            depth: depths.start + self.roll(depths.len()) as u8,
            longer: 1,
            fate: self.number(),
        }
    }
}

fn empty_block() -> Act {
    Act::Mine {
        chain: 0,
        txs: vec![],
        coinbase: None,
        on: On::Tip,
        work: 10,
    }
}
