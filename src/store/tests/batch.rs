//! The batch runner under faults: whatever happens below, an acknowledged write is there and no other is.

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Scratch, note, notes};
use crate::store::transact::Work;
use crate::store::{Database, StoreError, WriteTx};

/// What one member of a batch does, step by step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes a note, which fails if it is there.
    Note(i64),
    /// The same, but a failure is no reason to stop.
    NoteIfAbsent(i64),
    /// Writes more than the disk holds.
    Overfill,
    /// Hits a trigger that ends the whole transaction.
    RollBackAll,
    /// Says no.
    Refuse,
    /// Finds nonsense in the database.
    Corrupt,
}

struct Script(Vec<Step>);

impl Work for Script {
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        self.0.iter().try_for_each(|step| take(tx, *step))
    }

    fn answer(self: Box<Self>, _outcome: Result<(), StoreError>) {}
}

fn take(tx: &WriteTx<'_>, step: Step) -> Result<(), StoreError> {
    match step {
        Step::Note(id) => note(tx, id),
        Step::NoteIfAbsent(id) => match note(tx, id) {
            Err(StoreError::Constraint(_)) => Ok(()),
            other => other,
        },
        Step::Overfill => {
            let fill = "INSERT INTO notes (id, body) VALUES (900, hex(zeroblob(2000000)))";
            tx.conn().execute(fill, [])?;
            Ok(())
        }
        Step::RollBackAll => note(tx, 666),
        Step::Refuse => Err(StoreError::Refused("no".into())),
        Step::Corrupt => Err(StoreError::Corrupt("nonsense".into())),
    }
}

/// What one member alone does to `notes`, by the rules.
fn model(notes: &mut BTreeSet<i64>, steps: &[Step]) -> Result<(), &'static str> {
    let mut after = notes.clone();
    for step in steps {
        match *step {
            Step::Note(id) if !after.insert(id) => return Err("constraint"),
            Step::Note(_) => {}
            Step::NoteIfAbsent(id) => drop(after.insert(id)),
            Step::Overfill => return Err("full"),
            Step::RollBackAll => return Err("constraint"),
            Step::Refuse => return Err("refused"),
            Step::Corrupt => return Err("corrupt"),
        }
    }
    *notes = after;
    Ok(())
}

fn word(outcome: &Result<(), StoreError>) -> Result<(), &'static str> {
    match outcome {
        Ok(()) => Ok(()),
        Err(StoreError::Constraint(_)) => Err("constraint"),
        Err(StoreError::DiskFull(_)) => Err("full"),
        Err(StoreError::Refused(_)) => Err("refused"),
        Err(StoreError::Corrupt(_)) => Err("corrupt"),
        Err(other) => panic!("{other:?}"),
    }
}

/// A database that is full after a megabyte, and whose note 666 ends the transaction.
fn small_disk() -> (Scratch, Database) {
    let (scratch, database) = Scratch::new();
    limit_pages(&database, 256);
    let trigger = "CREATE TRIGGER bomb BEFORE INSERT ON notes WHEN NEW.id = 666
                   BEGIN SELECT RAISE(ROLLBACK, 'all gone'); END";
    database.conn.execute_batch(trigger).unwrap();
    (scratch, database)
}

fn limit_pages(database: &Database, pages: i64) {
    let set = format!("PRAGMA max_page_count = {pages}");
    let now: i64 = database.conn.query_row(&set, [], |row| row.get(0)).unwrap();
    assert_eq!(now, pages);
}

fn run(database: &mut Database, members: &[Vec<Step>]) -> Vec<Result<(), StoreError>> {
    let script = |steps: &Vec<Step>| Box::new(Script(steps.clone())) as Box<dyn Work>;
    let mut batch: Vec<_> = members.iter().map(script).collect();
    database.write_batch(1, &mut batch, || ())
}

#[test]
fn a_full_disk_in_one_member_costs_only_that_member() {
    let (scratch, mut database) = small_disk();
    let members = [
        vec![Step::Note(1)],
        vec![Step::Note(2), Step::Overfill],
        vec![Step::Note(3)],
    ];
    let outcomes = run(&mut database, &members);
    assert!(matches!(
        outcomes[..],
        [Ok(()), Err(StoreError::DiskFull(_)), Ok(())]
    ));
    assert_eq!(scratch.notes(), [1, 3]);
    // Space returns, and the same handle goes on.
    limit_pages(&database, 10_000);
    assert!(run(&mut database, &members[1..2])[0].is_ok());
    assert_eq!(scratch.notes(), [1, 2, 3, 900]);
}

#[test]
fn a_transaction_that_is_gone_is_never_called_a_success() {
    let (scratch, mut database) = small_disk();
    let outcome = database.write(1, |tx| {
        note(tx, 1)?;
        // The work drops the error that told it.
        let _ = note(tx, 666);
        Ok(())
    });
    assert!(matches!(outcome, Err(StoreError::Corrupt(_))), "{outcome:?}");
    assert_eq!(scratch.notes(), Vec::<i64>::new());
}

#[test]
fn a_failed_commit_is_rerun_one_by_one() {
    let (scratch, mut database) = Scratch::new();
    let table = "CREATE TABLE children (note INTEGER REFERENCES notes (id) DEFERRABLE INITIALLY DEFERRED);
                 CREATE TRIGGER orphan AFTER INSERT ON notes WHEN NEW.id = 2
                 BEGIN INSERT INTO children (note) VALUES (77); END";
    database.conn.execute_batch(table).unwrap();
    let members = [vec![Step::Note(1)], vec![Step::Note(2)], vec![Step::Note(3)]];
    let outcomes = run(&mut database, &members);
    assert!(matches!(
        outcomes[..],
        [Ok(()), Err(StoreError::Constraint(_)), Ok(())]
    ));
    assert_eq!(scratch.notes(), [1, 3]);
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_i64).prop_map(Step::Note),
        3 => (0..12_i64).prop_map(Step::NoteIfAbsent),
        1 => Just(Step::Overfill),
        1 => Just(Step::RollBackAll),
        1 => Just(Step::Refuse),
        1 => Just(Step::Corrupt),
    ]
}

#[test]
fn any_batch_does_what_its_members_do_one_after_the_other() {
    let (_scratch, database) = small_disk();
    database.conn.pragma_update(None, "synchronous", "OFF").unwrap();
    let database = RefCell::new(database);
    let batches = prop::collection::vec(prop::collection::vec(any_step(), 0..4), 0..8);
    proptest!(ProptestConfig::with_cases(300), |(members in batches)| {
        let mut database = database.borrow_mut();
        database.conn.execute("DELETE FROM notes", []).unwrap();
        let outcomes: Vec<_> = run(&mut database, &members).iter().map(word).collect();
        let mut left = BTreeSet::new();
        let expected: Vec<_> = members.iter().map(|steps| model(&mut left, steps)).collect();
        prop_assert_eq!(outcomes, expected);
        prop_assert_eq!(notes(&database), left.into_iter().collect::<Vec<_>>());
    });
}
