//! Holds the tables of a rig against the naive scan.

use crate::naive::Naive;
use crate::rig::Rig;
use crate::tables::CauseRow;
use creditd::follow::Start;
use creditd::rules::Asset;
use creditd::store::{Backfill, WriteTx};

impl Rig {
    /// Asks for a rescan. False when it is refused.
    pub async fn ask_rescan(&self, from: u64, backfill: Backfill) -> bool {
        self.look();
        let (key, wanted) = (self.key, backfill.clone());
        let ask = move |tx: &mut WriteTx<'_>| tx.ask_rescan(key, from, &wanted, "test");
        let is_asked = self.store().write(ask).await.is_ok();
        if is_asked {
            let mut memory = self.memory.lock().unwrap();
            match &backfill {
                Backfill::Nothing | Backfill::Token(_) => {}
                Backfill::Script(script) => memory.lower(Some(script), from),
                Backfill::All => memory.lower(None, from),
            }
        }
        is_asked
    }

    /// Remembers what happened since the last look.
    pub fn look(&self) {
        let start = match self.settings.start {
            Start::Height(height) => Some(height),
            Start::Tip => None,
        };
        let (cursor, rules) = (self.cursor(), self.tables.rules());
        let mut world = self.chain.world();
        let mut memory = self.memory.lock().unwrap();
        if world.tree.is_evm {
            memory.assets = self.tables.assets();
        }
        memory.look(&mut world, cursor, start, &rules);
    }

    pub fn naive(&self) -> Naive {
        let blocks = self.best_chain();
        let mempool = self.chain.world().node().mempool.clone();
        let mut rules = self.tables.rules();
        let mut memory = self.memory.lock().unwrap();
        memory.look_aside(&self.chain.world().tree);
        memory.correct(&mut rules);
        Naive::scan(&blocks, &mempool, &rules)
    }

    /// At quiescence the tables are what a naive scan says.
    #[track_caller]
    pub fn compare(&self) {
        self.look();
        let naive = self.naive();
        let memory = self.memory.lock().unwrap();
        let mut wrong =
            self.tables
                .differences(&naive, &self.settings.terms.policies[&Asset::Native], &memory);
        wrong.extend(memory.faults.clone());
        wrong.extend(self.wrong_causes());
        assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    }

    /// Each credit was given on a chain that there was: the block that made it due stands on the payment's.
    fn wrong_causes(&self) -> Vec<String> {
        let world = self.chain.world();
        let is_wrong = |cause: &CauseRow| {
            let due = world.tree.blocks().find(|block| block.hash() == cause.due_hash);
            due.is_none_or(|due| {
                due.height() != cause.due
                    || world.tree.ancestor(&cause.due_hash, cause.height) != Some(cause.hash)
            })
        };
        let wrong = self.tables.causes().into_iter().filter(is_wrong);
        wrong
            .map(|cause| format!("no chain gives this credit: {cause:?}"))
            .collect()
    }
}
