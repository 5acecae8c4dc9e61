//! The books as a whole: what the tables can tell by themselves, and what a scan of our own branch says.

use super::{Checks, Fault};
use crate::disk::{Folder, looking};
use crate::naive::{Moment, differences};
use crate::world::World;

impl Checks {
    /// Everything at once: all checks of the store, every row of the ledger that was ever there, and a scan
    /// of the branch that the daemon is on.
    pub fn whole(&mut self, (folder, world): (&Folder, &World), policy: u8) -> Result<(), Fault> {
        self.books(folder)?;
        self.scan((folder, world), policy, Moment::Cursor)
    }

    /// All checks of the store, and every row of the ledger that was ever there.
    pub fn books(&mut self, folder: &Folder) -> Result<(), Fault> {
        let window = self.window;
        let eyes = self.eyes(folder);
        let looked = looking(|| {
            eyes.database
                .read(|tx| Ok((tx.violations(window)?, tx.ledger_snapshot()?)))
        });
        let (violations, ledger) = looked.map_err(|error| Fault::new("I30", format!("read: {error}")))?;
        let lost = self.ledger.as_ref().map(|before| before.lost_in(&ledger));
        let first = violations.into_iter().chain(lost.into_iter().flatten()).next();
        self.ledger = Some(ledger);
        match first {
            Some(found) => Err(Fault::new(
                found.invariant.name(),
                format!("{}: {}", found.subject, found.what),
            )),
            None => Ok(()),
        }
    }

    /// I7: the tables are what a scan that shares no code with the daemon says.
    pub fn scan(
        &mut self,
        (folder, world): (&Folder, &World),
        policy: u8,
        moment: Moment,
    ) -> Result<(), Fault> {
        let mut policies = vec![policy];
        if moment == Moment::Cursor {
            policies.extend(&self.old_policies);
        }
        let tables = &self.eyes(folder).tables;
        for chain in world.chains() {
            let scan = |policy: &u8| differences((chain, &chain.nodes), tables, *policy, moment);
            let mut first = None;
            let fits = policies.iter().any(|policy| {
                let wrong = scan(policy).into_iter().next();
                let is_right = wrong.is_none();
                first = first.take().or(wrong);
                is_right
            });
            if let (false, Some(first)) = (fits, first) {
                return Err(Fault::new("I7", first));
            }
        }
        Ok(())
    }

    /// The ledger begins anew: an older file was put in place of the database.
    pub fn restored(&mut self) {
        self.ledger = None;
        (self.is_restored, self.is_forgotten) = (true, true);
        self.may_begin = true;
        self.told.new_generation();
        self.tails = Default::default();
    }

    /// Every row of every table.
    pub fn projection(&mut self, folder: &Folder) -> Vec<String> {
        let eyes = self.eyes(folder);
        looking(|| eyes.database.read(|tx| tx.projection())).unwrap()
    }
}
