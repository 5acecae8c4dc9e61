//! The books: everything that the tables can tell by themselves.

use super::{Checks, Fault};
use crate::disk::Folder;
use crate::world::World;

impl Checks {
    /// Everything at once: all checks of the store, and every row of the ledger that was ever there.
    pub fn whole(&mut self, folder: &Folder, _world: &World) -> Result<(), Fault> {
        let window = self.window;
        let looked = self
            .eyes(folder)
            .database
            .read(|tx| Ok((tx.violations(window)?, tx.ledger_snapshot()?)));
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

    /// Every row of every table.
    pub fn projection(&mut self, folder: &Folder) -> Vec<String> {
        let eyes = self.eyes(folder);
        eyes.database.read(|tx| tx.projection()).unwrap()
    }
}
