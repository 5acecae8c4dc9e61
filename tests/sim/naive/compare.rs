//! The tables against the naive scan.

use super::Naive;
use super::plain::{At, Id, Needs, Out, Paid, Rule, Terms, Tx};
use crate::scripted::{self, ListTold, Scripted, Tree, World, asset_key, token};
use crate::tables::Tables;
use crate::world::{Chain, rules};
use creditd::rules::policy::Requirement;
use creditd::rules::{Asset, BlockHash, Txid};
use rusqlite::Row;
use std::collections::{BTreeMap, BTreeSet};

/// How much of it has to be as the chain says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// In the middle of things: what is at or below the cursor is processed.
    Cursor,
    /// Nothing is left to do: the cursor is the nodes' tip, lists are applied, what is due is credited.
    Rest,
}

/// The number that an execution adds to a place, on EVM chains.
const EXECUTION: u64 = 1 << 40;

/// An output's row, with its deposit's.
#[derive(Debug)]
struct Found {
    at: At,
    execution: u64,
    script: Vec<u8>,
    asset: u64,
    amount: String,
    origin: String,
    spent: Option<At>,
    state: Option<String>,
    height: Option<u64>,
    needs: Option<Needs>,
    due: Option<u64>,
    is_held: bool,
    /// It is held because no node said whether its transaction succeeded.
    is_status_unknown: bool,
    was_released: bool,
    entries: u64,
    tx_height: Option<u64>,
}

impl Found {
    fn is_live(&self) -> bool {
        self.entries % 2 == 1
    }

    fn shows(&self, paid: &Paid) -> bool {
        let Out {
            script,
            asset,
            amount,
            ..
        } = &paid.out;
        (&self.script, self.asset, &self.amount) == (script, *asset, &amount.to_string())
            && self.origin == paid.origin
    }

    fn is_in_block(&self) -> bool {
        matches!(self.state.as_deref(), Some("confirming" | "credited"))
    }
}

fn height(row: &Row<'_>, column: usize) -> Option<u64> {
    let height: Option<i64> = row.get(column).unwrap();
    height.map(|height| height as u64)
}

/// A contract's first byte, plus one; the chain's own coin is 0.
fn asset(contract: Option<Vec<u8>>) -> u64 {
    contract.map_or(0, |contract| 1 + u64::from(contract[0]))
}

fn found(tables: &Tables, chain: i64) -> Vec<Found> {
    let sql = format!(
        "SELECT t.txid, o.vout, a.script, s.contract, o.amount, o.origin, o.spent_by, o.spent_height, \
         d.state, d.height, d.confirmations, d.tag, d.due_height, d.held_reason IS NOT NULL, \
         EXISTS (SELECT 1 FROM audit WHERE output = o.id AND action = 'release'), \
         (SELECT count(*) FROM journal j JOIN credits c ON c.id = j.credit WHERE c.output = o.id), \
         (SELECT max(height) FROM inclusions WHERE tx = t.id), t.sender IS NOT NULL, \
         ifnull(d.held_reason = 'status_unknown', 0) \
         FROM outputs o JOIN txs t ON t.id = o.tx JOIN addresses a ON a.id = o.address \
         JOIN assets s ON s.id = o.asset LEFT JOIN deposits d ON d.output = o.id \
         WHERE t.chain = {chain} ORDER BY o.tx, o.vout"
    );
    tables.rows(&sql, |row| {
        let vout = row.get::<_, i64>(1).unwrap() as u64;
        let is_evm: bool = row.get(17).unwrap();
        let tag: Option<String> = row.get(11).unwrap();
        let needs = match tag.as_deref() {
            Some("safe") => Some(Needs::Safe),
            Some(_) => Some(Needs::Final),
            None => height(row, 10).map(Needs::Depth),
        };
        Found {
            at: (row.get(0).unwrap(), if is_evm { vout % EXECUTION } else { vout }),
            execution: if is_evm { vout / EXECUTION } else { 0 },
            script: row.get(2).unwrap(),
            asset: asset(row.get(3).unwrap()),
            amount: row.get(4).unwrap(),
            origin: row.get(5).unwrap(),
            spent: height(row, 7).map(|height| (row.get(6).unwrap(), height)),
            state: row.get(8).unwrap(),
            height: height(row, 9),
            needs,
            due: height(row, 12),
            is_held: row.get(13).unwrap(),
            is_status_unknown: row.get(18).unwrap(),
            was_released: row.get(14).unwrap(),
            entries: row.get::<_, i64>(15).unwrap() as u64,
            tx_height: height(row, 16),
        }
    })
}

/// Where anybody can have met a transaction: the highest block of any branch that holds it, or the block that
/// would have come after a list with it.
#[derive(Debug)]
struct Meetings<'w> {
    mined: BTreeMap<Id, u64>,
    lists: &'w [ListTold],
    tree: &'w Tree,
}

impl Meetings<'_> {
    fn of(nodes: &World) -> Option<Meetings<'_>> {
        let lists = &nodes.told.as_ref()?.lists;
        let mut mined: BTreeMap<Id, u64> = BTreeMap::new();
        for block in nodes.tree.blocks() {
            for tx in &block.txs {
                let highest = mined.entry(tx.txid.0).or_default();
                *highest = block.height().max(*highest);
            }
        }
        Some(Meetings {
            mined,
            lists,
            tree: &nodes.tree,
        })
    }

    /// Can it have been met by a rule that counts from a height on?
    fn can_be(&self, id: &Id, from: u64) -> bool {
        let listed = |list: &&ListTold| list.listed.contains(&Txid(*id));
        let mined = self.mined.get(id).is_some_and(|height| *height >= from);
        let mut lists = self.lists.iter().filter(listed);
        mined || lists.any(|list| self.tree.block(&list.tip).height() + 1 >= from)
    }
}

fn terms(tables: &Tables, chain: i64, (of, nodes): (&Chain, &World), policy: u8) -> Terms {
    let is_evm = of.is_evm;
    // What the real source lists is not told here.
    let meetings = Meetings::of(nodes).filter(|_| of.wire.is_none());
    let assets = format!(
        "SELECT contract, from_height FROM assets \
         WHERE chain = {chain} AND is_listed = 1 AND from_height IS NOT NULL"
    );
    let met = format!(
        "SELECT a.script, t.txid, o.vout, s.contract FROM outputs o JOIN txs t ON t.id = o.tx \
         JOIN addresses a ON a.id = o.address JOIN assets s ON s.id = o.asset WHERE t.chain = {chain}"
    );
    let met = tables.rows(&met, |row| {
        let vout = row.get::<_, i64>(2).unwrap() as u64;
        let key = if is_evm { asset(row.get(3).unwrap()) } else { vout };
        (row.get::<_, Vec<u8>>(0).unwrap(), (row.get(1).unwrap(), key))
    });
    let rules = format!(
        "SELECT a.script, m.slug, a.kind = 'watch', m.internal, a.from_height, v.confirmations \
         FROM addresses a JOIN merchants m ON m.id = a.merchant LEFT JOIN invoices v ON v.address = a.id \
         WHERE a.chain = {chain}"
    );
    let rules = tables.rows(&rules, |row| {
        let script: Vec<u8> = row.get(0).unwrap();
        let from = height(row, 4);
        let can_be = |id: &Id| match (&meetings, from) {
            (Some(meetings), Some(from)) => meetings.can_be(id, from),
            (None, _) | (_, None) => true,
        };
        let own = met.iter().filter(|(of, (id, _))| *of == script && can_be(id));
        Rule {
            met: own.map(|(_, at)| *at).collect(),
            script,
            merchant: row.get(1).unwrap(),
            is_watched: row.get(2).unwrap(),
            internal: row.get(3).unwrap(),
            from,
            raised: height(row, 5).unwrap_or_default(),
        }
    });
    let tiers = rules::tiers(is_evm, policy).into_iter().map(|(below, needs)| {
        let needs = match needs {
            Requirement::Confirmations(depth) => Needs::Depth(u64::from(depth)),
            Requirement::Safe => Needs::Safe,
            Requirement::Finalized => Needs::Final,
        };
        (below, needs)
    });
    let raised = format!(
        "SELECT a.script, v.confirmations FROM invoices v JOIN addresses a ON a.id = v.address \
         WHERE v.chain = {chain} AND v.confirmations IS NOT NULL"
    );
    let raised = tables.rows(&raised, |row| (row.get(0).unwrap(), height(row, 1).unwrap()));
    Terms {
        rules,
        raised: raised.into_iter().collect(),
        assets: tables
            .rows(&assets, |row| {
                (asset(row.get(0).unwrap()), height(row, 1).unwrap())
            })
            .into_iter()
            .collect(),
        tiers: tiers.collect(),
    }
}

fn plain(tx: &scripted::Tx) -> Tx {
    let outs = (0..).zip(&tx.outputs).map(|(vout, out)| Out {
        place: out.leg.as_ref().map_or(vout, |leg| leg.place),
        script: out.script.0.to_vec(),
        asset: out.leg.as_ref().map_or(0, |leg| asset_key(&leg.asset)),
        amount: out.amount,
        from: out.leg.as_ref().map(|leg| leg.from.0.to_vec()),
        is_doubtful: out.leg.as_ref().is_some_and(|leg| leg.doubt.is_some()),
    });
    Tx {
        id: tx.txid.0,
        is_coinbase: tx.is_coinbase,
        inputs: tx.inputs.iter().map(|input| (input.txid.0, input.vout)).collect(),
        sender: tx.sender.as_ref().map(|sender| sender.0.to_vec()),
        is_failed: tx.is_failed,
        outs: outs.collect(),
    }
}

/// What of the tables is not as a scan of the chain says, under the policy of that number.
pub fn differences(
    (chain, nodes): (&Chain, &Scripted),
    tables: &Tables,
    policy: u8,
    moment: Moment,
) -> Vec<String> {
    let alias = chain.alias();
    let id =
        format!("SELECT id, cursor_height FROM chains WHERE alias = '{alias}' AND cursor_height IS NOT NULL");
    let known = tables.rows(&id, |row| {
        (row.get::<_, i64>(0).unwrap(), height(row, 1).unwrap())
    });
    let Some((key, cursor_height)) = known.first().copied() else {
        return match moment {
            Moment::Cursor => vec![],
            Moment::Rest => vec![format!("{alias} was never followed")],
        };
    };
    let cursor = format!("SELECT hash FROM headers WHERE chain = {key} AND height = {cursor_height}");
    let cursor = BlockHash(tables.rows(&cursor, |row| row.get(0).unwrap())[0]);
    let rescans = format!("SELECT count(*) FROM rescans WHERE chain = {key} AND state = 'running'");
    if moment == Moment::Cursor && tables.count(&rescans) > 0 {
        // Rules count from lower on than what is read already.
        return vec![];
    }
    let is_wired = chain.wire.is_some() && chain.nodes.is_same(nodes);
    let mut nodes = nodes.world();
    let tip = nodes.tip();
    if moment == Moment::Rest && tip != cursor {
        return vec![format!("{alias} is at {cursor_height}, not at the nodes' tip")];
    }
    let blocks = nodes.tree.branch(&cursor);
    let blocks: Vec<_> = blocks
        .iter()
        .map(|block| (block.height(), block.txs.iter().map(|tx| plain(tx)).collect()))
        .collect();
    let waiting: Vec<Tx> = match moment {
        Moment::Cursor => vec![],
        Moment::Rest => {
            let waiting = nodes.node().mempool.iter();
            // What has no nonce waits in no pool of a real node.
            let listed = waiting.filter(|tx| !is_wired || !tx.inputs.is_empty());
            listed.map(|tx| plain(&shown(tx))).collect()
        }
    };
    let mut terms = terms(tables, key, (chain, &nodes), policy);
    if chain.was_unlisted {
        terms
            .assets
            .remove(&asset_key(&Asset::Token(token(rules::LATER))));
    }
    let naive = Naive::scan(&blocks, &waiting, &terms);
    let finality = nodes.node().finality;
    let tags = finality.tags(&nodes.tree, &tip);
    drop(nodes);
    let stored = format!("SELECT txid FROM txs WHERE chain = {key}");
    let stored = tables.rows(&stored, |row| row.get(0).unwrap());
    let stored: BTreeSet<Id> = stored.into_iter().collect();
    let stored: Vec<Tx> = chain.made(&stored).iter().map(|tx| plain(tx)).collect();
    let sight = Sight {
        replaced: naive.replaced(&stored),
        naive,
        terms,
        moment,
        safe: tags.safe.map(|tag| tag.height),
        finalized: tags.finalized.map(|tag| tag.height),
        is_evm: chain.is_evm,
        found: found(tables, key),
    };
    let mut wrong = sight.wrong();
    wrong
        .iter_mut()
        .for_each(|line| *line = format!("{alias}: {line}"));
    wrong
}

fn shown(tx: &scripted::Tx) -> scripted::Tx {
    match tx.sender {
        Some(_) => scripted::Tx::clone(&tx.pending()),
        None => tx.clone(),
    }
}

fn name(at: At) -> String {
    let id: String = at.0[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{id}:{}", at.1)
}

/// Both, side by side.
struct Sight {
    naive: Naive,
    terms: Terms,
    moment: Moment,
    replaced: BTreeSet<Id>,
    safe: Option<u64>,
    finalized: Option<u64>,
    is_evm: bool,
    found: Vec<Found>,
}

impl Sight {
    fn wrong(&self) -> Vec<String> {
        let mut wrong = vec![];
        for (at, paid) in &self.naive.paid {
            let here: Vec<&Found> = self.found.iter().filter(|row| row.at == *at).collect();
            let shown: Vec<&&Found> = here.iter().filter(|row| row.shows(paid)).collect();
            match shown[..] {
                [row] => wrong.extend(self.wrong_with(row, paid, &here)),
                _ => wrong.push(format!("{} pays {paid:?}, and the rows are {here:?}", name(*at))),
            }
        }
        for row in &self.found {
            let at = name(row.at);
            let paid = self.naive.paid.get(&row.at);
            let is_paid = match self.terms.assets.contains_key(&row.asset) {
                true => paid.is_some_and(|paid| row.shows(paid)),
                // Nobody looks for what is listed no more: it goes where its transaction goes.
                false => self.naive.mined.contains_key(&row.at.0),
            };
            // It may have failed in truth: it stays held for a person to look, who may let it go.
            let is_doubtful = (row.is_status_unknown && row.entries == 0) || row.was_released;
            let may_be_there = is_paid || is_doubtful && self.naive.mined.contains_key(&row.at.0);
            if (row.is_in_block() || row.is_live()) && !may_be_there {
                wrong.push(format!("{at} is not on the best chain: {row:?}"));
            }
            let failed = self.naive.failed.get(&row.at.0).copied();
            let is_failed = row.state.as_deref() == Some("failed");
            let is_denied = failed.is_some() != is_failed && !is_doubtful;
            if row.state.is_some() && (is_denied || (is_failed && row.height != failed)) {
                wrong.push(format!("{at} failed at {failed:?}: {row:?}"));
            }
            let is_replaced = self.replaced.contains(&row.at.0);
            if is_replaced && !matches!(row.state.as_deref(), None | Some("replaced")) {
                wrong.push(format!("{at} cannot be mined any more: {row:?}"));
            }
            let is_listed = row.execution == 0 && self.naive.seen.contains(&row.at);
            let can_wait = !self.is_evm || (row.execution == 0 && row.at.1 == 0);
            if self.moment == Moment::Rest
                && can_wait
                && row.state.is_some()
                && is_listed != (row.state.as_deref() == Some("seen"))
            {
                wrong.push(format!("{at}, in the mempool: {is_listed}: {row:?}"));
            }
        }
        wrong
    }

    fn wrong_with(&self, row: &Found, paid: &Paid, here: &[&Found]) -> Vec<String> {
        let (mut wrong, at) = (vec![], name(row.at));
        if row.tx_height != Some(paid.height) {
            wrong.push(format!("{at} is in block {}: {row:?}", paid.height));
        }
        if row.spent != paid.spent {
            wrong.push(format!("{at} was spent by {:?}: {row:?}", paid.spent));
        }
        let Some(starts_held) = paid.deposit else {
            if row.state.is_some() && !row.is_held {
                wrong.push(format!("{at} is no payment: {row:?}"));
            }
            return wrong;
        };
        if row.height != Some(paid.height) || !row.is_in_block() {
            wrong.push(format!("{at} is in block {}: {row:?}", paid.height));
        }
        let is_earlier = |other: &&&Found| other.execution < row.execution && other.entries > 0;
        let is_rerun = row.entries == 0 && here.iter().any(|other| is_earlier(&other));
        if (starts_held || is_rerun) && !row.is_held && !row.was_released {
            wrong.push(format!("{at} was to be held: {row:?}"));
        }
        let raised = self.terms.raised.get(&paid.out.script).copied();
        let needs = match (self.naive.needs(paid, &self.terms), raised) {
            (Needs::Depth(depth), Some(raised)) => Needs::Depth(depth.max(raised)),
            (needs, _) => needs,
        };
        let due = Naive::due(paid, needs);
        // A credit that a hold took back keeps what it needed until the daemon starts again.
        let is_old = row.entries > 0 && (row.is_held || row.was_released);
        let is_stated = row.state.as_deref() == Some("confirming") && !is_old;
        if is_stated && (row.needs, row.due) != (Some(needs), Some(due)) {
            wrong.push(format!("{at} needs {needs:?}, due {due}: {row:?}"));
        }
        let (needs, due) = match (is_old, row.needs, row.due) {
            (true, Some(needs), Some(due)) => (needs, due),
            _ => (needs, due),
        };
        let reached = match needs {
            Needs::Depth(_) => Some(self.naive.tip),
            Needs::Safe => self.safe,
            Needs::Final => self.finalized,
        };
        let is_due = reached.is_some_and(|reached| due <= reached);
        if self.moment == Moment::Rest && is_due && !row.is_held && !row.is_live() {
            wrong.push(format!("{at} was to be credited by {needs:?}: {row:?}"));
        }
        wrong
    }
}
