//! A restore that an operator declares: onto another machine, or where nothing was noticed. The effect is
//! that of one that a start notices; what the high-water file cannot tell is taken from what was said.

use super::chains::one;
use super::highwater;
use super::owners::Owners;
use super::pool::INDEX_END;
use super::restore::{self, Begin, Reserved};
use super::{StoreError, WriteTx, address_sources};
use std::path::Path;

/// What an operator says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Why.
    pub reason: String,
    /// At most so many addresses of each source were handed out since the backup; `None` = as many as its
    /// pool holds.
    pub addresses: Option<u32>,
    /// Also where one was declared before, and is over.
    pub is_again: bool,
}

/// What became of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A restore began, with this generation.
    Began(i64),
    /// One is under way: nothing was changed.
    UnderWay(i64),
    /// One was declared in this very database, and is over: nothing was changed.
    Before(i64),
}

impl WriteTx<'_> {
    /// Begins a restore on an operator's word, beside a running daemon or before one is started.
    ///
    /// # Errors
    /// Those of the database.
    pub fn declare_restore(&mut self, said: &Declaration) -> Result<Declared, StoreError> {
        if let Some(outcome) = self.declared_before(said.is_again)? {
            return Ok(outcome);
        }
        let told = self.conn().path().map(|path| highwater::told(Path::new(path)));
        let told = told.unwrap_or_default();
        let begin = Begin {
            generation: self.generation()?.max(told.generation) + 1,
            actor: "operator",
            reason: said.reason.clone(),
            at: Some(self.now_ms()),
            marks: told.cursors,
            reserved: self.perhaps_handed_out(said.addresses, told.reserved)?,
        };
        restore::begin(self.conn(), &begin)?;
        self.audit_restore(begin.generation, &said.reason, "operator")?;
        self.hurry_job(super::POOL_JOB)?;
        Ok(Declared::Began(begin.generation))
    }

    /// Why there is nothing to begin, if so.
    ///
    /// # Errors
    /// Those of the database.
    fn declared_before(&self, is_again: bool) -> Result<Option<Declared>, StoreError> {
        let open = "SELECT max(generation) FROM restored_chains WHERE state IN ('catching_up', 'stating')";
        if let Some(generation) = one::<Option<i64>>(self.conn(), open, [])?.flatten() {
            return Ok(Some(Declared::UnderWay(generation)));
        }
        let last = "SELECT max(generation) FROM restores WHERE actor = 'operator' \
                    AND generation = (SELECT generation FROM meta)";
        let last = one::<Option<i64>>(self.conn(), last, [])?.flatten();
        Ok(last.filter(|_| !is_again).map(Declared::Before))
    }

    /// What the high-water file says, and of each source so many more than this database has handed out.
    fn perhaps_handed_out(
        &self,
        addresses: Option<u32>,
        told: Vec<Reserved>,
    ) -> Result<Vec<Reserved>, StoreError> {
        let mut reserved = told;
        let first_free = address_sources::first_free(self.conn())?;
        for source in self.address_sources()? {
            let name = address_sources::mark_name(&source.scope, &source.pin);
            let known = first_free.iter().find(|(known, _)| *known == name);
            let first = known.map_or(0, |(_, first)| *first);
            let end = (first + addresses.map_or(source.pool_size, u64::from)).min(INDEX_END);
            match reserved.iter_mut().find(|reserved| reserved.source == name) {
                Some(reserved) => reserved.end = reserved.end.max(end),
                None => reserved.push(Reserved {
                    source: name,
                    end,
                    owners: Owners::default(),
                }),
            }
        }
        Ok(reserved)
    }
}
