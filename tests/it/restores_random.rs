//! Payments, reorgs, addresses handed out, kills, and backups of any age put in the place of the database, in
//! any order: whoever keeps the highest version of each credit ends at the books, and nothing is told or
//! handed out twice.

use crate::restores::{self, Heard, back_up, books, credits, fill, heard, nets, repair, take, with_pool};
use crate::rig::{Rig, folder, in_simulation};
use crate::schema::faults_of;
use creditd::rules::{BlockHash, Script, Txid};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
enum Step {
    Pay(u64),
    /// Hands out an address, and pays to it.
    Take(u64),
    Mine(usize),
    Reorg(usize),
    /// Back to the branch that was left last.
    Return,
    Rounds(usize),
    BackUp(usize),
    Restore(usize),
    Repair,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u64..50).prop_map(Step::Pay),
        4 => (1_u64..50).prop_map(Step::Take),
        6 => (1_usize..8).prop_map(Step::Mine),
        3 => (1_usize..9).prop_map(Step::Reorg),
        3 => Just(Step::Return),
        4 => (1_usize..4).prop_map(Step::Rounds),
        3 => (0_usize..2).prop_map(Step::BackUp),
        3 => (0_usize..2).prop_map(Step::Restore),
        2 => Just(Step::Repair),
        2 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..40)
}

struct World {
    rig: Rig,
    folder: tempfile::TempDir,
    /// What was told in lives of the database that are over.
    past: Vec<Heard>,
    /// The transaction of every credit that there ever was.
    paid_by: BTreeMap<String, Txid>,
    taken: BTreeSet<Script>,
    left: Vec<BlockHash>,
}

impl World {
    async fn new() -> World {
        let mut rig = Rig::new().await;
        rig.watch(1).await;
        rig.extend(12);
        rig.settle().await;
        with_pool(&rig).await;
        let world = World {
            rig,
            folder: folder(),
            past: Vec::new(),
            paid_by: BTreeMap::new(),
            taken: BTreeSet::new(),
            left: Vec::new(),
        };
        (0..2).for_each(|slot| back_up(&world.rig, &world.copy(slot)));
        world
    }

    fn copy(&self, slot: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("copy-{slot}.db"))
    }

    fn remember(&mut self) {
        let paid = self.rig.tables.rows("SELECT id, txid FROM credits", |row| {
            (row.get(0).unwrap(), Txid(row.get(1).unwrap()))
        });
        self.paid_by.extend(paid);
        self.past.extend(heard(&self.rig));
    }

    async fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Pay(amount) => {
                let script = self.rig.script(1);
                self.rig.mine(&[&self.rig.pay(&script, amount)]);
            }
            Step::Take(amount) => {
                fill(&self.rig).await;
                if let Ok(taken) = take(&self.rig).await {
                    prop_assert!(self.taken.insert(taken.script.clone()), "{taken:?} again");
                    self.rig.mine(&[&self.rig.pay(&taken.script, amount)]);
                }
            }
            Step::Mine(count) => drop(self.rig.extend(count)),
            Step::Reorg(depth) => {
                let chain = self.rig.best_chain();
                let root = chain[chain.len() - 1 - depth].held.header.hash;
                let tip = self.rig.extend_on(root, depth + 1);
                self.left.push(self.rig.tip());
                self.rig.go_to(tip);
            }
            Step::Return => self.go_back(),
            Step::Rounds(count) => self.rig.rounds(count).await,
            Step::BackUp(slot) => back_up(&self.rig, &self.copy(slot)),
            Step::Restore(slot) => {
                self.remember();
                let copy = self.copy(slot);
                restores::restore(&mut self.rig, &copy).await;
            }
            Step::Repair => repair(&mut self.rig).await,
            Step::Kill => self.rig.reopen().await,
        }
        Ok(())
    }

    /// To the branch that was left last, which has become the longer one, unless that is too deep.
    fn go_back(&mut self) {
        let Some(left) = self.left.pop() else { return };
        let (old, now) = {
            let world = self.rig.chain.world();
            (world.tree.branch(&left), world.tree.branch(&world.tip()))
        };
        let pairs = old.iter().zip(&now);
        let shared = pairs
            .take_while(|(old, now)| old.held.header.hash == now.held.header.hash)
            .count();
        if now.len() - shared <= 14 {
            let missing = (now.len() + 1).saturating_sub(old.len()).max(1);
            let tip = self.rig.extend_on(left, missing);
            self.rig.go_to(tip);
        }
    }

    async fn end(mut self) -> Result<(), TestCaseError> {
        repair(&mut self.rig).await;
        self.rig.extend(4);
        self.rig.settle().await;
        let known = credits(&self.rig);
        self.remember();
        prop_assert_eq!(nets(&[&self.past], &known), books(&self.rig));
        // What a receiver was told of, and the books do not know: its payment has left the chain.
        let blocks = self.rig.best_chain();
        let mined: BTreeSet<Txid> = blocks
            .iter()
            .flat_map(|block| block.txs.iter().map(|tx| tx.txid))
            .collect();
        for (credit, txid) in &self.paid_by {
            prop_assert!(
                known.contains(credit) || !mined.contains(txid),
                "{credit} is lost"
            );
        }
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        for told in self.past.iter().filter(|told| told.kind == "credit.created") {
            let id = first.entry(&told.subject).or_insert(&told.id);
            prop_assert_eq!(*id, told.id.as_str(), "one id for the first event");
        }
        let twice = "SELECT count(*) FROM (SELECT 1 FROM events WHERE type = 'credit.state' \
                     GROUP BY subject, sequence >> 32 HAVING count(*) > 1)";
        prop_assert_eq!(self.rig.tables.count(twice), 0);
        let bodies: Vec<String> = self
            .rig
            .tables
            .rows("SELECT body FROM events", |row| row.get(0).unwrap());
        for body in bodies {
            let faults = faults_of(body.as_bytes());
            prop_assert!(faults.is_empty(), "{faults:?}: {body}");
        }
        Ok(())
    }
}

/// Reversed since the backup, and back before the catch-up: the restored database has seen neither, and
/// nothing but its state tells a receiver that the money counts again.
#[test]
fn c53_a_reorg_there_and_back_since_the_backup_is_told_by_the_state_alone() {
    in_simulation(async {
        let mut world = World::new().await;
        let copy = world.copy(0);
        let script = world.rig.script(1);
        world.rig.mine(&[&world.rig.pay(&script, 7)]);
        world.rig.extend(3);
        world.rig.settle().await;
        back_up(&world.rig, &copy);
        world.step(Step::Reorg(6)).await.unwrap();
        world.rig.settle().await;
        let last_net = |rig: &Rig| {
            let told = heard(rig).into_iter().rev();
            let mut nets = told.filter_map(|told| Some((told.kind, told.net?)));
            nets.next().unwrap()
        };
        let before = last_net(&world.rig);
        assert_eq!(before, ("credit.reversed".to_owned(), "0".to_owned()));
        world.go_back();
        world.step(Step::Restore(0)).await.unwrap();
        repair(&mut world.rig).await;
        let after = last_net(&world.rig);
        assert_eq!(after, ("credit.state".to_owned(), "7".to_owned()));
        world.end().await.unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn c53_restores_of_any_age_in_any_order_end_at_the_books(steps in steps()) {
        in_simulation(async {
            let mut world = World::new().await;
            for step in steps {
                world.step(step).await?;
            }
            world.end().await
        })?;
    }
}
