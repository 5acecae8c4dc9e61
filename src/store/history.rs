//! Retells every deposit from its audit rows, by the state table, and holds the tale against what the tables
//! say: each move allowed, each with its event, the journal as the moves made it, and the deposit where the
//! last move left it.

use super::checks::Violation;
use super::{ReadTx, StoreError};
use crate::rules::chain_state::ChainState;
use crate::rules::invariants::Invariant;
use crate::rules::state::{Announce, Fact, State, step};
use crate::rules::{ChainId, Outpoint, ids};
use rusqlite::{Row, params};
use serde_json::Value;

/// One audit row of a deposit.
struct Told {
    action: String,
    from: Option<State>,
    to: Option<State>,
}

/// What the audit rows of one deposit add up to.
#[derive(Default)]
struct Tale {
    state: Option<State>,
    is_held: bool,
    events: Vec<&'static str>,
    journal: Vec<&'static str>,
    fault: Option<String>,
}

impl Tale {
    fn go(&mut self, told: &Told) {
        if told.from != self.state {
            let was = self.state.map_or("absent", State::word);
            let says = told.from.map_or("absent", State::word);
            self.fault
                .get_or_insert(format!("a move from {says} while it was {was}"));
        }
        let outcome = match told.action.as_str() {
            "move" => self.moved(told),
            "hold" => self.edge(Fact::HoldSet, told),
            "release" => self.edge(Fact::HoldReleased, told),
            // What it needs was changed in place.
            "policy" if told.from == told.to && told.to == Some(State::Confirming) => Some(None),
            _ => None,
        };
        let Some(announce) = outcome else {
            let (from, to) = (
                told.from.map_or("absent", State::word),
                told.to.map_or("absent", State::word),
            );
            self.fault
                .get_or_insert(format!("no edge for {} from {from} to {to}", told.action));
            return;
        };
        match told.action.as_str() {
            "hold" => self.is_held = true,
            "release" => self.is_held = false,
            _ => {}
        }
        self.state = told.to;
        match announce {
            Some(Announce::Credit) if self.journal.is_empty() => self.journal.push("credit"),
            Some(Announce::Credit) => self.journal.push("reinstatement"),
            Some(Announce::Reversal) => self.journal.push("reversal"),
            Some(other) => self.events.extend(other.deposit_event()),
            None => {}
        }
    }

    /// What a move between these two states announces; the outer `None`: the table has no such edge. Whatever
    /// fact joins two states announces the same; a test of this module says so.
    fn moved(&self, told: &Told) -> Option<Option<Announce>> {
        MOVES.iter().find_map(|fact| self.edge(*fact, told))
    }

    fn edge(&self, fact: Fact, told: &Told) -> Option<Option<Announce>> {
        match step(told.from, self.is_held, fact) {
            Ok(Some(step)) if Some(step.to) == told.to => Some(step.announce),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Every fact that moves; the others set and release the mark.
const MOVES: [Fact; 9] = [
    Fact::Listed,
    Fact::Included,
    Fact::Due,
    Fact::Absent,
    Fact::Conflicted,
    Fact::BlockLeft,
    Fact::BlockLeftReplaced,
    Fact::Reverted,
    Fact::ContentChanged,
];

/// A deposit with its credit, as far as their histories are concerned.
struct Standing {
    output: i64,
    chain: ChainId,
    outpoint: Outpoint,
    dep_id: String,
    state: State,
    is_held: bool,
    merchant: i64,
    amount: String,
    credit: Option<String>,
}

fn standing(row: &Row<'_>) -> Result<Standing, StoreError> {
    Ok(Standing {
        output: row.get(0)?,
        chain: ChainId::from_stored(row.get(1)?),
        outpoint: Outpoint {
            txid: row.get(2)?,
            vout: super::codec::uint(row.get(3)?)?,
        },
        dep_id: row.get(4)?,
        state: row.get(5)?,
        is_held: row.get(6)?,
        merchant: row.get(7)?,
        amount: row.get(8)?,
        credit: row.get(9)?,
    })
}

fn told(row: &Row<'_>) -> Result<Told, rusqlite::Error> {
    Ok(Told {
        action: row.get(0)?,
        from: row.get(1)?,
        to: row.get(2)?,
    })
}

fn violation(invariant: Invariant, subject: &str, what: impl Into<String>) -> Violation {
    Violation {
        invariant,
        subject: subject.to_owned(),
        what: what.into(),
    }
}

impl ReadTx<'_> {
    /// The next `most` deposits above an output; `None`: those were the last.
    pub(super) fn check_deposits(
        &self,
        above: i64,
        most: i64,
        found: &mut Vec<Violation>,
    ) -> Result<Option<i64>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT d.output, c.caip, t.txid, o.vout, d.dep_id, d.state, d.held_reason IS NOT NULL, \
             d.merchant, o.amount, k.id \
             FROM deposits d JOIN chains c ON c.id = d.chain JOIN outputs o ON o.id = d.output \
             JOIN txs t ON t.id = o.tx LEFT JOIN credits k ON k.output = d.output \
             WHERE d.output > ?1 ORDER BY d.output LIMIT ?2",
        )?;
        let mut rows = statement.query(params![above, most])?;
        let (mut count, mut last) = (0, above);
        while let Some(row) = rows.next()? {
            let deposit = standing(row)?;
            (count, last) = (count + 1, deposit.output);
            self.check_deposit(&deposit, found)?;
        }
        Ok((count == most).then_some(last))
    }

    fn check_deposit(&self, deposit: &Standing, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        let id = deposit.dep_id.as_str();
        let mut moves = self
            .conn()
            .prepare_cached("SELECT action, from_state, to_state FROM audit WHERE output = ?1 ORDER BY id")?;
        let mut tale = Tale::default();
        for row in moves.query_map([deposit.output], told)? {
            tale.go(&row?);
        }
        let fault = tale.fault.take().or_else(|| {
            let stands = (tale.state, tale.is_held) == (Some(deposit.state), deposit.is_held);
            (!stands).then(|| {
                let told = tale.state.map_or("absent", State::word);
                format!("it is {}, its audit rows end in {told}", deposit.state.word())
            })
        });
        found.extend(fault.map(|what| violation(Invariant::I8AllowedEdges, id, what)));

        if ids::deposit_id(&deposit.chain, &deposit.outpoint) != id {
            found.push(violation(
                Invariant::I10OneEvent,
                id,
                "the id is not its outpoint's",
            ));
        }
        let told: Vec<(&str, Option<&str>)> = tale.events.iter().map(|kind| (*kind, None)).collect();
        let amount = Some(deposit.amount.as_str());
        self.check_events(id, Some(deposit.merchant), amount, &told, found)?;

        let credit_id = ids::credit_id(&deposit.chain, &deposit.outpoint);
        if deposit.credit.as_ref().is_some_and(|id| *id != credit_id) {
            found.push(violation(
                Invariant::I10OneEvent,
                id,
                "its credit's id is not its outpoint's",
            ));
        }
        let mut kinds = self
            .conn()
            .prepare_cached("SELECT kind FROM journal WHERE credit = ?1 ORDER BY sequence")?;
        let kinds = kinds
            .query_map([&credit_id], |row| row.get(0))?
            .collect::<Result<Vec<String>, _>>()?;
        if kinds != tale.journal {
            let what = format!("its journal is {kinds:?}, its moves tell {:?}", tale.journal);
            found.push(violation(Invariant::I8AllowedEdges, id, what));
        }
        let told: Vec<(&str, Option<&str>)> = kinds
            .iter()
            .map(|kind| match kind.as_str() {
                "credit" => ("credit.created", Some(deposit.amount.as_str())),
                "reinstatement" => ("credit.reinstated", Some(deposit.amount.as_str())),
                _ => ("credit.reversed", Some("0")),
            })
            .collect();
        self.check_events(&credit_id, Some(deposit.merchant), amount, &told, found)
    }

    /// The events of one subject are exactly `told` (type, and net where it is a credit's), in order.
    fn check_events(
        &self,
        subject: &str,
        merchant: Option<i64>,
        amount: Option<&str>,
        told: &[(&str, Option<&str>)],
        found: &mut Vec<Violation>,
    ) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT type, sequence, id, merchant, body FROM events WHERE subject = ?1 ORDER BY sequence",
        )?;
        let mut rows = statement.query([subject])?;
        let mut kinds: Vec<String> = Vec::new();
        let mut last: Option<i64> = None;
        while let Some(row) = rows.next()? {
            let (kind, sequence, id): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let mut wrong = |what: String| found.push(violation(Invariant::I10OneEvent, subject, what));
            if !follows(last, sequence) {
                wrong(format!("event {sequence} after {last:?}"));
            }
            let derived = match kind.as_str() {
                "credit.created" => ids::first_event_id(subject, &kind),
                _ => ids::event_id(subject, &kind, sequence),
            };
            if derived != id {
                wrong(format!("event {sequence} has the id {id}, not {derived}"));
            }
            if row.get::<_, Option<i64>>(3)? != merchant {
                wrong(format!("event {sequence} is for another merchant"));
            }
            // Told anew after a restore: what the last entry tells, and no entry of its own.
            let is_anew = kind == "credit.state";
            let place = kinds.len().checked_sub(usize::from(is_anew));
            let net = place.and_then(|place| told.get(place)).and_then(|(_, net)| *net);
            let body: String = row.get(4)?;
            let fault = body_fault(&body, &kind, sequence, net).or_else(|| amount_fault(&body, amount?));
            if let Some(what) = fault {
                wrong(format!("the body of event {sequence}: {what}"));
            }
            last = Some(sequence);
            if !is_anew {
                kinds.push(kind);
            }
        }
        if !kinds.iter().eq(told.iter().map(|(kind, _)| kind)) {
            let told: Vec<&str> = told.iter().map(|(kind, _)| *kind).collect();
            let what = format!("its events are {kinds:?}, its facts tell {told:?}");
            found.push(violation(Invariant::I10OneEvent, subject, what));
        }
        Ok(())
    }

    /// A chain's events are its entries into and returns from halts.
    pub(super) fn check_chain_events(&self, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT from_state, to_state FROM audit WHERE chain = ?1 AND output IS NULL AND action = 'state' \
             ORDER BY id",
        )?;
        let is_halt = |word: &str| ChainState::from_word(word).is_some_and(ChainState::is_halt);
        for chain in self.chains()? {
            let mut told = Vec::new();
            let mut rows = statement.query(params![chain.key.0])?;
            let mut last = ChainState::Starting.word().to_owned();
            while let Some(row) = rows.next()? {
                let (from, to): (String, String) = (row.get(0)?, row.get(1)?);
                if from != last {
                    let what = format!("a move from {from} while it was {last}");
                    found.push(violation(Invariant::I8AllowedEdges, chain.id.as_str(), what));
                }
                match (is_halt(&from), is_halt(&to)) {
                    (false, true) => told.push(("chain.halted", None)),
                    (true, false) => told.push(("chain.resumed", None)),
                    (true, true) | (false, false) => {}
                }
                last = to;
            }
            self.check_events(&format!("chain:{}", chain.id), None, None, &told, found)?;
        }
        Ok(())
    }

    /// A credit that another provider told of is told of once.
    pub(super) fn check_external_credits(&self, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT id, merchant, amount FROM credits WHERE output IS NULL")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, amount): (String, String) = (row.get(0)?, row.get(2)?);
            let told = [("credit.created", Some(amount.as_str()))];
            self.check_events(&id, row.get(1)?, Some(&amount), &told, found)?;
        }
        Ok(())
    }

    /// Operators are told of each content that was set aside, and of each parking: one that is parked was.
    pub(super) fn check_inbox_events(&self, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT i.in_id, (SELECT count(*) FROM inbox_aside WHERE inbox = i.id), \
             (SELECT count(*) FROM events WHERE subject = i.in_id AND type = 'inbox.set_aside'), \
             i.state = 'parked' AND NOT EXISTS (SELECT 1 FROM events WHERE subject = i.in_id \
             AND type = 'inbox.parked') FROM inbox i",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, aside, told): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if aside != told || row.get(3)? {
                let what = format!("{aside} contents are set aside, {told} told of; or its parking was not");
                found.push(violation(Invariant::I10OneEvent, &id, what));
            }
        }
        Ok(())
    }

    /// Coin that nothing explains is told once.
    pub(super) fn check_unattributed_events(&self, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT un_id FROM unattributed ORDER BY id")?;
        let ids = statement.query_map([], |row| row.get(0))?;
        for id in ids.collect::<Result<Vec<String>, _>>()? {
            self.check_events(&id, None, None, &[("chain.unattributed", None)], found)?;
        }
        Ok(())
    }

    /// Rows of a history without the fact that they are about.
    pub(super) fn check_strays(&self, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        let strays = [
            (
                Invariant::I10OneEvent,
                "SELECT e.subject, 'event ' || e.sequence || ' is about nothing that there is' FROM events e \
                 WHERE NOT EXISTS (SELECT 1 FROM deposits WHERE dep_id = e.subject) \
                 AND NOT EXISTS (SELECT 1 FROM credits WHERE id = e.subject) \
                 AND NOT EXISTS (SELECT 1 FROM chains WHERE 'chain:' || caip = e.subject) \
                 AND NOT EXISTS (SELECT 1 FROM unattributed WHERE un_id = e.subject) \
                 AND NOT EXISTS (SELECT 1 FROM invoices WHERE inv_id = e.subject) \
                 AND NOT EXISTS (SELECT 1 FROM inbox WHERE in_id = e.subject) \
                 AND NOT EXISTS (SELECT 1 FROM endpoints \
                                 WHERE 'endpoint:' || ep_id || ':' || e.sequence = e.subject)",
            ),
            (
                Invariant::I8AllowedEdges,
                "SELECT 'audit row ' || a.id, 'about an output that is no deposit' FROM audit a \
                 WHERE a.output IS NOT NULL AND NOT EXISTS (SELECT 1 FROM deposits WHERE output = a.output)",
            ),
        ];
        for (invariant, sql) in strays {
            let mut statement = self.conn().prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                found.push(violation(
                    invariant,
                    &row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                ));
            }
        }
        Ok(())
    }
}

/// Within a generation numbers follow each other from 1; a later generation starts anew.
fn follows(last: Option<i64>, sequence: i64) -> bool {
    let starts_generation = sequence & 0xffff_ffff == 1;
    match last {
        None => starts_generation,
        Some(last) => sequence == last + 1 || (starts_generation && sequence >> 32 > last >> 32),
    }
}

fn body_fault(body: &str, kind: &str, sequence: i64, net: Option<&str>) -> Option<String> {
    let Ok(body) = serde_json::from_str::<Value>(body) else {
        return Some("not JSON".to_owned());
    };
    if body["type"] != kind || body["data"]["sequence"] != sequence {
        return Some("another type or number".to_owned());
    }
    let stated = body["data"]["net_base"].as_str();
    (net.is_some() && stated != net).then(|| format!("net {stated:?} where it is {net:?}"))
}

/// What was paid is what was told, at each place that says it.
fn amount_fault(body: &str, amount: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let data = &body["data"];
    let stated = [&data["amount_base"], &data["deposit"]["amount_base"]];
    let stated = stated.into_iter().filter(|stated| !stated.is_null());
    let mut other = stated.filter(|stated| *stated != amount);
    other
        .next()
        .map(|stated| format!("the amount {stated} where it is {amount}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_are_joined_by_one_kind_of_move() {
        let states = State::ALL.into_iter().map(Some);
        for from in states.chain([None]) {
            for to in State::ALL {
                for is_held in [false, true] {
                    let tale = Tale {
                        state: from,
                        is_held,
                        ..Tale::default()
                    };
                    let told = Told {
                        action: "move".into(),
                        from,
                        to: Some(to),
                    };
                    let edges: Vec<_> = MOVES.iter().filter_map(|fact| tale.edge(*fact, &told)).collect();
                    assert!(edges.iter().all(|edge| *edge == edges[0]), "{from:?} to {to:?}");
                }
            }
        }
        assert_eq!(MOVES.len() + 2, Fact::ALL.len());
    }

    #[test]
    fn numbers_follow_each_other_within_a_generation() {
        let first = |generation: i64| (generation << 32) + 1;
        assert!(follows(None, first(0)) && follows(None, first(3)));
        assert!(!follows(None, 2) && !follows(None, 0));
        assert!(follows(Some(1), 2) && !follows(Some(1), 1) && !follows(Some(1), 3));
        assert!(follows(Some(7), first(1)) && follows(Some(7), first(2)) && !follows(Some(7), first(1) + 1));
        assert!(!follows(Some(first(2)), first(1)));
    }
}
