//! A block is one fact: whichever of its writes fails, none of them happened, and trying again credits once.

use rusqlite::types::Value;

use super::{Scratch, note};
use crate::rules::policy::{Policy, Requirement, Tier};
use crate::rules::{
    Amount, Asset, BlockHash, CandidateOutput, CandidateTx, ChainId, Header, HeldHeader, ListVersion,
    Outpoint, ScannedBlock, Script, Tags, Txid, Work,
};
use crate::store::{
    Advance, Advanced, ChainKey, Database, NewAsset, NewChain, StoreError, Terms, WriteTx, transact,
};

const SCRIPT: &[u8] = b"\x00\x14watched";

fn terms() -> Terms {
    let tier = Tier {
        below: None,
        needs: Requirement::Confirmations(2),
    };
    Terms {
        policies: Terms::native(Policy::new(&[tier]).unwrap()),
        reorg_window: 100,
        evict_after_ms: 1000,
    }
}

fn header(number: u8) -> Header {
    Header {
        hash: BlockHash([number; 32]),
        parent: BlockHash([number - 1; 32]),
        time_secs: 1000 + u64::from(number),
        work: Work::from_be_bytes([0; 32]),
        bits: 0,
    }
}

fn block(number: u8, txs: Vec<CandidateTx>) -> ScannedBlock {
    ScannedBlock {
        header: header(number),
        version: ListVersion(1),
        txs,
        output_shorts: Vec::new(),
    }
}

fn payment() -> CandidateTx {
    CandidateTx {
        sender: None,
        is_failed: false,
        txid: Txid([0xaa; 32]),
        is_coinbase: false,
        inputs: vec![Outpoint {
            txid: Txid([0xbb; 32]),
            vout: 0,
        }],
        outputs: vec![CandidateOutput {
            asset: Asset::Native,
            from: None,
            doubt: None,
            vout: 1,
            script: Script(SCRIPT.into()),
            amount: Amount::from_u64(10_000_000),
        }],
        ancestors: Vec::new(),
    }
}

/// A chain at block 1, and a watched script.
fn prepare(tx: &mut WriteTx<'_>) -> Result<(ChainKey, HeldHeader), StoreError> {
    let genesis = BlockHash([0; 32]);
    let id = ChainId::bitcoin(&genesis, Some("test"));
    let chain = tx.ensure_chain(&NewChain {
        assets: vec![NewAsset::bitcoin(&id, "BTC")],
        id,
        genesis: Some(genesis),
        alias: "btc".into(),
    })?;
    let tip = HeldHeader {
        height: 1,
        header: header(1),
        chainwork: Work::from_be_bytes([0; 32]),
    };
    tx.anchor(chain.key, &tip)?;
    tx.conn().execute_batch(
        "UPDATE meta SET list_version = 1;
         INSERT INTO merchants (id, slug, created_at) VALUES (1, 'shop', 0)",
    )?;
    tx.conn().execute(
        "INSERT INTO addresses (chain, script, kind, merchant, from_height, version, added_at)
         VALUES (?1, ?2, 'watch', 1, 2, 1, 0)",
        rusqlite::params![chain.key.0, SCRIPT],
    )?;
    Ok((chain.key, tip))
}

/// One step of the chain among other writes.
struct Step(Advance, Option<Advanced>);

impl transact::Work for Step {
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        self.1 = Some(tx.advance(&self.0, &terms())?);
        Ok(())
    }

    fn answer(self: Box<Self>, _outcome: Result<(), StoreError>) {}
}

struct Neighbour(i64);

impl transact::Work for Neighbour {
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        note(tx, self.0)
    }

    fn answer(self: Box<Self>, _outcome: Result<(), StoreError>) {}
}

/// Runs the step in one commit with two others, which must succeed whatever becomes of it.
fn among_others(database: &mut Database, step: &Advance, notes: &mut i64) -> Result<(), StoreError> {
    *notes += 2;
    let mut batch: Vec<Box<dyn transact::Work>> = vec![
        Box::new(Neighbour(*notes)),
        Box::new(Step(step.clone(), None)),
        Box::new(Neighbour(*notes + 1)),
    ];
    let mut outcomes = database.write_batch(5, &mut batch, || ());
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    outcomes.remove(1)
}

/// The names of all tables but the one that the neighbours write.
fn tables(database: &Database) -> Vec<String> {
    let names =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('notes', 'sqlite_sequence')";
    let mut statement = database.conn.prepare(names).unwrap();
    let names = statement.query_map([], |row| row.get(0)).unwrap();
    names.collect::<Result<_, _>>().unwrap()
}

/// Every row of every table.
fn everything(database: &Database) -> Vec<String> {
    let mut rows = Vec::new();
    for table in tables(database) {
        let mut statement = database.conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let text = |row: &rusqlite::Row<'_>| {
            let values: Result<Vec<Value>, _> = (0..columns).map(|column| row.get(column)).collect();
            values.map(|values| format!("{table} {values:?}"))
        };
        rows.extend(statement.query_map([], text).unwrap().map(Result::unwrap));
    }
    rows.sort();
    rows
}

fn count(database: &Database, what: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {what}");
    database.conn.query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_write_that_fails_anywhere_in_the_step_that_credits_undoes_all_of_it() {
    let (_scratch, mut database) = Scratch::new();
    database.conn.pragma_update(None, "synchronous", "OFF").unwrap();
    let (chain, from) = database.write(1, prepare).unwrap();
    let step = |from: HeldHeader, block: ScannedBlock| Advance {
        chain,
        from,
        fork_height: None,
        blocks: vec![block],
        credit_ceiling: None,
        tags: Tags::default(),
    };
    let first = step(from, block(2, vec![payment()]));
    let Advanced::Done { tip, .. } = database.write(2, |tx| tx.advance(&first, &terms())).unwrap() else {
        panic!("no rule was added")
    };
    let due = step(tip, block(3, Vec::new()));
    let before = everything(&database);
    let (mut notes, mut hits) = (1, Vec::new());
    for (plant, place) in plants(&database) {
        database.conn.execute_batch(&plant).unwrap();
        // A trial that is never committed tells whether the step writes there at all.
        let trial: Result<(), _> = database.write(3, |tx| {
            tx.advance(&due, &terms())?;
            Err(StoreError::Refused("only a trial".into()))
        });
        let is_hit = !matches!(trial, Err(StoreError::Refused(_)));
        for _ in 0..if is_hit { 5 } else { 0 } {
            let outcome = among_others(&mut database, &due, &mut notes);
            // A refused credit is a second one for all the store can tell: that halts the chain.
            let is_refusal = matches!(
                outcome,
                Err(StoreError::Constraint(_) | StoreError::Contradiction(_))
            );
            assert!(is_refusal, "{plant}: {outcome:?}");
            assert_eq!(everything(&database), before, "{plant}");
        }
        if is_hit {
            hits.push(place);
        }
        database.conn.execute_batch("DROP TRIGGER planted").unwrap();
    }
    for place in [
        "credits", "journal", "events", "audit", "deposits", "headers", "chains",
    ] {
        assert!(
            hits.iter().any(|hit| hit.ends_with(place)),
            "{place} is not among {hits:?}"
        );
    }
    among_others(&mut database, &due, &mut notes).unwrap();
    let credit = "credits WHERE amount = '10000000' AND vout = 1";
    for what in [
        "credits",
        credit,
        "journal",
        "events WHERE type = 'credit.created'",
    ] {
        assert_eq!(count(&database, what), 1, "{what}");
    }
    assert_eq!(count(&database, "deposits WHERE state = 'credited'"), 1);
    // Fed again, it is not applied again.
    let after = everything(&database);
    assert!(matches!(
        among_others(&mut database, &due, &mut notes),
        Err(StoreError::Contradiction(_))
    ));
    assert_eq!(everything(&database), after);
}

/// The tallies are for metrics alone: one that drifted, by whatever fault, stops no credit.
#[test]
fn a_tally_that_drifted_stops_no_credit() {
    for drift in [
        "UPDATE tallies SET count = 0",
        "DELETE FROM tallies",
        "UPDATE tallies SET count = 9223372036854775807",
    ] {
        let (_scratch, mut database) = Scratch::new();
        let (chain, from) = database.write(1, prepare).unwrap();
        let mut tip = from;
        for block in [block(2, vec![payment()]), block(3, Vec::new())] {
            database.conn.execute_batch(drift).unwrap();
            let step = Advance {
                chain,
                from: tip,
                fork_height: None,
                blocks: vec![block],
                credit_ceiling: None,
                tags: Tags::default(),
            };
            match database.write(2, |tx| tx.advance(&step, &terms())).unwrap() {
                Advanced::Done { tip: next, .. } => tip = next,
                Advanced::RulesChanged => panic!("no rule was added"),
            }
        }
        assert_eq!(count(&database, "credits"), 1, "{drift}");
        assert_eq!(count(&database, "tallies WHERE count < 0"), 0, "{drift}");
    }
}

/// A fault at each place that a statement can write to, in each way that SQLite can fail it.
fn plants(database: &Database) -> Vec<(String, String)> {
    let mut plants = Vec::new();
    for table in tables(database) {
        for when in [
            "BEFORE INSERT",
            "AFTER INSERT",
            "BEFORE UPDATE",
            "AFTER UPDATE",
            "AFTER DELETE",
        ] {
            for action in ["ABORT", "ROLLBACK", "FAIL"] {
                let plant = format!(
                    "CREATE TEMP TRIGGER planted {when} ON main.{table}
                     BEGIN SELECT RAISE({action}, 'planted'); END"
                );
                plants.push((plant, format!("{when} {table}")));
            }
        }
    }
    plants
}

#[test]
fn what_reads_inner_coin_changes_for_blocks_to_come_and_where_nothing_did() {
    let (_scratch, mut database) = Scratch::new();
    let pinned = database.write(0, |tx| {
        let (chain, _) = prepare(tx)?;
        let text = |pinned: Vec<(u64, String)>| {
            let one = |(from, source): (u64, String)| format!("{from} {source}");
            pinned.into_iter().map(one).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(text(tx.pin_inner(chain, "none")?), "0 none");
        assert_eq!(text(tx.pin_inner(chain, "none")?), "0 none");
        // The cursor is at block 1. What nobody saw has no place yet.
        assert_eq!(text(tx.pin_inner(chain, "traces")?), "0 traces");
        assert_eq!(text(tx.pin_inner(chain, "eip7708")?), "0 traces, 2 eip7708");
        // A change before the next block came replaces the one before it.
        assert_eq!(text(tx.pin_inner(chain, "none")?), "0 traces, 2 none");
        assert_eq!(text(tx.pin_inner(chain, "eip7708")?), "0 traces, 2 eip7708");
        assert_eq!(text(tx.pin_inner(chain, "eip7708")?), "0 traces, 2 eip7708");
        // The cursor went back below a change, and there is another one: no height has two.
        tx.conn().execute_batch(
            "INSERT INTO inner_sources (chain, from_height, source) VALUES (1, 50, 'traces')",
        )?;
        assert_eq!(text(tx.pin_inner(chain, "eip7708")?), "0 traces, 2 eip7708");
        let highest = "SELECT max(from_height) FROM inner_sources";
        let highest: i64 = tx.conn().query_row(highest, [], |row| row.get(0))?;
        assert_eq!(highest, 2);
        Ok(())
    });
    pinned.unwrap();
}

#[test]
fn decimals_are_corrected_until_something_was_told_with_them() {
    let (_scratch, mut database) = Scratch::new();
    let outcome = database.write(0, |tx| {
        prepare(tx)?;
        let row = tx.chain_by_key(ChainKey(1))?;
        let token = |decimals| {
            [NewAsset {
                asset: Asset::Token([7; 20]),
                caip: "eip155:1/erc20:0x07".into(),
                symbol: "T".into(),
                decimals,
                from: None,
            }]
        };
        let told = "SELECT decimals, from_height, is_listed FROM assets WHERE contract IS NOT NULL";
        let listed = |tx: &WriteTx<'_>| -> Result<(u8, i64, bool), StoreError> {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            Ok(tx.conn().query_row(told, [], row)?)
        };
        tx.ensure_assets(&row, &token(18))?;
        tx.unlist(ChainKey(1), &[Asset::Token([7; 20])])?;
        tx.conn()
            .execute("UPDATE assets SET from_height = 1 WHERE contract IS NOT NULL", [])?;
        tx.ensure_assets(&row, &token(6))?;
        assert_eq!(listed(tx)?, (6, 2, true), "it counts from the next block on");
        tx.conn().execute_batch(
            "INSERT INTO txs (id, chain, txid, is_coinbase, first_seen_at) VALUES (1, 1, zeroblob(32), 0, 0);
             INSERT INTO outputs (tx, vout, address, asset, amount, origin)
             SELECT 1, 0, 1, id, '5', 'external' FROM assets WHERE contract IS NOT NULL",
        )?;
        let refused = tx.ensure_assets(&row, &token(18));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        Ok(())
    });
    outcome.unwrap();
}

/// An invoice asks for base units: by other decimals it would ask for another amount.
#[test]
fn decimals_stay_once_an_invoice_asks_by_them() {
    let (_scratch, mut database) = Scratch::new();
    let outcome = database.write(0, |tx| {
        prepare(tx)?;
        let row = tx.chain_by_key(ChainKey(1))?;
        let token = |decimals| NewAsset {
            asset: Asset::Token([7; 20]),
            caip: "eip155:1/erc20:0x07".into(),
            symbol: "T".into(),
            decimals,
            from: None,
        };
        tx.ensure_assets(&row, &[token(18)])?;
        tx.ensure_assets(&row, &[token(6)])?;
        tx.conn().execute_batch(
            "INSERT INTO invoices (inv_id, merchant, chain, address, asset, amount, tolerance, \
             tolerance_hundredths, expires_at, reference, metadata, token, after_output, created_at, \
             amount_state, time_flag, life, paid, pending, strays, is_short) \
             SELECT 'inv_1', a.merchant, 1, a.id, s.id, '5', '0', 0, 9, '', '{}', 't', 0, 0, \
             'unpaid', 'in_time', 'open', '0', '0', 0, 1 \
             FROM addresses a JOIN assets s ON s.contract IS NOT NULL LIMIT 1",
        )?;
        let refused = tx.ensure_assets(&row, &[token(18)]);
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        tx.ensure_assets(&row, &[token(6)])
    });
    outcome.unwrap();
}

/// A token's logs may claim anything.
#[test]
fn a_blocks_sum_past_the_largest_amount_is_no_fault() {
    let (_scratch, mut database) = Scratch::new();
    let mut paid = payment();
    let first = &mut paid.outputs[0];
    first.amount = Amount::from_be_bytes([0xff; 32]);
    let second = CandidateOutput {
        vout: 2,
        ..first.clone()
    };
    paid.outputs.push(second);
    let outcome = database.write(0, |tx| {
        let (chain, tip) = prepare(tx)?;
        let step = Advance {
            chain,
            from: tip,
            fork_height: None,
            blocks: vec![block(2, vec![paid.clone()]), block(3, Vec::new())],
            credit_ceiling: None,
            tags: Tags::default(),
        };
        tx.advance(&step, &terms())
    });
    assert!(
        matches!(outcome, Ok(Advanced::Done { credited: 2, .. })),
        "{outcome:?}"
    );
    let Err(StoreError::Refused(said)) = database.read(|tx| tx.balances(None)) else {
        panic!("no balance is a wrong number");
    };
    assert!(
        said.ends_with("is more than 2^256 - 1 base units: `creditd credits` shows each credit"),
        "{said}"
    );
}
