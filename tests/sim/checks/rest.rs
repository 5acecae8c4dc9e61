//! What must have come once nothing moves any more.

use super::{Checks, Fault};
use crate::disk::{Folder, looking};
use crate::naive::Moment;
use crate::receivers::Receivers;
use crate::setting::{LISTENERS, url};
use crate::world::{World, note_effects};
use creditd::store::{Database, OpenMode};
use std::collections::BTreeSet;

impl Checks {
    /// Do lists show another in the place of a replaced transaction's replacement, or itself?
    pub fn has_rivals(&mut self, folder: &Folder) -> bool {
        let sql = "SELECT count(*) FROM txs WHERE rival IS NOT NULL";
        self.eyes(folder).tables.count(sql) > 0
    }

    /// What is still to be done, if anything.
    pub fn waiting(&mut self, folder: &Folder, world: &World) -> Option<Fault> {
        let tables = &self.eyes(folder).tables;
        for (number, chain) in world.chains().iter().enumerate() {
            let sql = format!(
                "SELECT state, cursor_height, state_reason FROM chains WHERE alias = '{}'",
                chain.alias()
            );
            let stands = tables.rows(&sql, |row| {
                let (state, cursor): (String, Option<i64>) = (row.get(0).unwrap(), row.get(1).unwrap());
                (state, cursor, row.get::<_, String>(2).unwrap())
            });
            let (state, cursor, why) = stands[0].clone();
            let best = world.best(number as u8);
            let tip = best.last().map_or(0, |block| block.height());
            if state != "following" || cursor != Some(tip as i64) {
                let what = format!(
                    "{} is {state} at {cursor:?}, its tip is {tip}: {why}",
                    chain.alias()
                );
                return Some(Fault::new("I30", what));
            }
        }
        let one = |sql: &str| {
            let found = tables.rows(sql, |row| row.get::<_, Option<String>>(0).unwrap());
            found.into_iter().flatten().next()
        };
        let due = "SELECT min(dep_id) FROM deposits d JOIN chains c ON c.id = d.chain \
                   WHERE d.state = 'confirming' AND d.held_reason IS NULL AND d.due_height <= \
                   CASE d.tag WHEN 'safe' THEN c.safe_height WHEN 'finalized' THEN c.finalized_height \
                   ELSE c.cursor_height END";
        if let Some(id) = one(due) {
            return Some(Fault::new("I28", format!("due and not credited: {id}")));
        }
        let unsent = "SELECT min(e.id || ' to ' || p.ep_id || ' is ' || d.state || ' after ' || d.attempts) \
                      FROM deliveries d JOIN events e ON e.seq = d.event \
                      JOIN endpoints p ON p.id = d.endpoint \
                      WHERE d.state NOT IN ('delivered', 'parked') AND p.paused_reason IS NULL";
        one(unsent).map(|what| Fault::new("I29", format!("not delivered: {what}")))
    }

    /// The operator's word, where a node left more than the daemon may by itself.
    pub fn accept_reorg(&mut self, folder: &Folder, world: &World, at_ms: i64) {
        for chain in world.chains() {
            let id = chain.nodes.chain_id();
            let opened = looking(|| {
                let database = Database::open(&folder.database(), OpenMode::Write).unwrap();
                let row = database.read(|tx| tx.chain(&id)).unwrap();
                (database, row)
            });
            let (mut database, row) = opened;
            let Some((key, cursor)) = row.and_then(|row| Some((row.key, row.cursor?))) else {
                continue;
            };
            let fork = {
                let nodes = chain.nodes.world();
                nodes.tree.fork(&cursor.header.hash, &nodes.tip()).height()
            };
            let held = |at: &u64| {
                database
                    .read(|tx| Ok(tx.header_at(key, *at)?.is_some()))
                    .unwrap_or_default()
            };
            let held = (0..=fork).rev().find(held);
            if let (Some(height), true) = (held, fork < cursor.height) {
                let _ = database.write(at_ms, |tx| tx.ask_reanchor(key, height, "simulated"));
            }
        }
    }

    /// Everything, once nothing moves any more.
    pub fn at_rest(
        &mut self,
        (folder, world): (&Folder, &World),
        heard: &Receivers,
        (policy, decided): (u8, &BTreeSet<String>),
    ) -> Result<(), Fault> {
        self.hear(heard)?;
        self.books(folder)?;
        self.scan((folder, world), policy, Moment::Rest)?;
        self.delivered(folder, heard)?;
        self.believed(folder, heard, decided)?;
        note_effects(&self.eyes(folder).tables);
        Ok(())
    }

    /// I13: receivers that keep the highest version end at the books' balances.
    fn believed(
        &mut self,
        folder: &Folder,
        heard: &Receivers,
        decided: &BTreeSet<String>,
    ) -> Result<(), Fault> {
        for (which, merchant) in LISTENERS.iter().enumerate() {
            let Some(merchant) = merchant else { continue };
            let sql = format!(
                "SELECT c.id, \
                 iif((SELECT count(*) FROM journal WHERE credit = c.id) % 2 = 1, c.amount, '0'), \
                 EXISTS (SELECT 1 FROM deliveries d JOIN endpoints p ON p.id = d.endpoint \
                         WHERE d.subject = c.id AND d.state <> 'delivered' AND p.url = '{}'), \
                 (SELECT dep_id FROM deposits WHERE output = c.output) \
                 FROM credits c JOIN merchants m ON m.id = c.merchant WHERE m.slug = '{merchant}'",
                url(which as u8)
            );
            let books = self.eyes(folder).tables.rows(&sql, |row| {
                let (id, net): (String, String) = (row.get(0).unwrap(), row.get(1).unwrap());
                let deposit: Option<String> = row.get(3).unwrap();
                (id, net, row.get::<_, bool>(2).unwrap(), deposit)
            });
            let believed = heard.by_version(which as u8);
            let steps = heard.by_steps(which as u8);
            for (id, net, is_open, deposit) in books {
                // What was decided by hand since a backup is undone by it, however deep the block is.
                let is_undone = deposit.is_some_and(|deposit| decided.contains(&deposit));
                if self.is_restored && is_undone {
                    continue;
                }
                let told = believed.get(&id);
                // Nobody can know what was parked, or waits for an endpoint that is paused.
                if !is_open && told != Some(&net) {
                    let what = format!("{merchant} believes {told:?} of {id}, the books say {net}");
                    return Err(Fault::new("I13", what));
                }
                // Whoever adds up needs every step, and no other database in between.
                let step = steps.get(&id).copied().unwrap_or_default();
                if !is_open && !self.is_restored && step != i32::from(net != "0") {
                    let what = format!("{merchant} adds up {id} to {step} times, the books say {net}");
                    return Err(Fault::new("I13", what));
                }
            }
        }
        Ok(())
    }
}
