//! Rescans as operators ask for them.

use creditd::store::{AddressKind, Backfill, NewAddress};

use crate::sample::{Sample, block, hash, script, terms};

/// `bcrt1` with the anchor program: watched after everything else.
const LATE: &str = "bcrt1pfeesnyr2tx";

#[test]
fn backfill_asked_for_while_a_rescan_runs_is_read_from_its_start() {
    let sample = Sample::filled();
    let late = NewAddress {
        script: script(LATE),
        kind: AddressKind::Watch,
        merchant: "late",
        internal: "ignore",
        reference: "",
    };
    let ask = |backfill: &Backfill| sample.edit(|tx, chain| tx.ask_rescan(chain, 101, backfill, "test"));
    sample.edit(|tx, chain| tx.add_addresses(chain, std::slice::from_ref(&late)));
    let first = ask(&Backfill::Nothing);
    assert_eq!(ask(&Backfill::Nothing).id, first.id, "the same again is the same");
    let blocks = [block(101, 0, hash(100, 0), vec![])];
    sample.edit(|tx, chain| tx.rescan_step(chain, &first, &blocks, None, &terms()));
    assert_eq!(ask(&Backfill::Nothing).next_height, 102, "it goes on");
    let backfill = Backfill::Script(late.script.clone());
    let second = ask(&backfill);
    assert_eq!(
        (second.id == first.id, second.next_height),
        (false, 101),
        "block 101 is read for it"
    );
    assert_eq!(ask(&backfill).id, second.id, "given twice, acts once");
}
