//! What must have come once nothing moves any more.

use super::{Checks, Fault};
use crate::disk::{Folder, looking};
use crate::receivers::Receivers;
use crate::world::World;
use creditd::store::{Database, OpenMode};

impl Checks {
    /// What is still to be done, if anything.
    pub fn waiting(&mut self, folder: &Folder, world: &World) -> Option<Fault> {
        let conn = &self.eyes(folder).conn;
        for (number, chain) in world.chains().iter().enumerate() {
            let (state, cursor): (String, Option<i64>) = conn
                .query_row(
                    "SELECT state, cursor_height FROM chains WHERE alias = ?1",
                    [chain.alias()],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .unwrap();
            let best = world.best(number as u8);
            let tip = best.last().map_or(0, |block| block.height());
            if state != "following" || cursor != Some(tip as i64) {
                let what = format!("{} is {state} at {cursor:?}, its tip is {tip}", chain.alias());
                return Some(Fault::new("I30", what));
            }
        }
        let one = |sql: &str| -> Option<String> {
            conn.query_row(sql, [], |row| row.get::<_, Option<String>>(0))
                .unwrap()
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

    pub fn at_rest(&mut self, folder: &Folder, world: &World, _heard: &Receivers) -> Result<(), Fault> {
        self.whole(folder, world)
    }
}
