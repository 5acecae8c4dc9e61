//! Stories: acts that only mean something one after the other, and would rarely be drawn so by themselves.

use super::draw::Drawer;
use super::{Act, ClientAct, DiskAct, Manner, On, OpAct, Out, Pick, To, WebhookAct};

impl Drawer<'_> {
    /// Acts that only mean something after each other, with the time after each.
    pub(super) fn story(&mut self) -> Vec<(u32, Act)> {
        match self.roll(7) {
            0 => self.outage(),
            1 => self.late_rule(),
            2 => self.lost_after_credit(),
            3 => self.there_and_back(),
            4 => self.back_and_restored(),
            5 => self.sync_lost(),
            _ => self.invoice_paid(),
        }
    }

    /// A receiver is away for so many days that callbacks are given up.
    fn outage(&mut self) -> Vec<(u32, Act)> {
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
    fn late_rule(&mut self) -> Vec<(u32, Act)> {
        let late = self.roll(3) as u8;
        vec![
            (1_500, Act::Operator(OpAct::Watch { late })),
            (1_500, self.mine_of(To::Late(late))),
            (1_500, self.reorg_of(2..6)),
        ]
    }

    /// What was credited is lost, run again, and lost once more.
    fn lost_after_credit(&mut self) -> Vec<(u32, Act)> {
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
    fn there_and_back(&mut self) -> Vec<(u32, Act)> {
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
    fn back_and_restored(&mut self) -> Vec<(u32, Act)> {
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
    fn sync_lost(&mut self) -> Vec<(u32, Act)> {
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

    /// An invoice is made and paid; the payment is held, and released.
    fn invoice_paid(&mut self) -> Vec<(u32, Act)> {
        let (key, body) = (self.roll(200) as u8, self.roll(16) as u8);
        let mut acts = vec![(1_500, Act::Client(ClientAct::Create { key, body }))];
        for late in 3..7 {
            acts.push((300, self.mine_of(To::Late(late))));
        }
        acts.extend((0..3).map(|_| (800, empty_block())));
        for _ in 0..3 {
            let of = self.number();
            acts.push((800, Act::Operator(OpAct::Hold { of })));
        }
        acts.push((800, Act::Operator(OpAct::Release { of: self.number() })));
        acts
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
