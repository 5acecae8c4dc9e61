//! What must always hold, as the page tells it.

/// What must always hold.
pub struct InvariantRow {
    pub name: &'static str,
    pub property: &'static str,
    /// **S**: after every step, **R**: after every restart, **Q**: at rest, **E**: by outsiders.
    pub when: &'static str,
    pub by: &'static str,
}

/// The tests of where callbacks may go.
const OF_CALLBACKS: &str =
    "[`callback_dial.rs`](../tests/it/callback_dial.rs), [`callback_urls.rs`](../tests/it/callback_urls.rs)";

pub const INVARIANTS: &[InvariantRow] = &[
    InvariantRow {
        name: "I1",
        property: "An outpoint has at most one credit, for ever",
        when: "S",
        by: "tables, after every step",
    },
    InvariantRow {
        name: "I2",
        property: "Credits and journal are append-only",
        when: "S R",
        by: "triggers of the database; hashes of the ledger between two audits",
    },
    InvariantRow {
        name: "I3",
        property: "Every credit was justified by the chain when it was written",
        when: "S",
        by: "tables, and the world's own truth of each new row",
    },
    InvariantRow {
        name: "I4",
        property: "Per invoice the journal adds up to what is shown as paid",
        when: "S",
        by: "tables",
    },
    InvariantRow {
        name: "I5",
        property: "Per credit the journal alternates and nets to 0 or the amount",
        when: "S",
        by: "tables",
    },
    InvariantRow {
        name: "I6",
        property: "No two positive credits spend one outpoint or nonce",
        when: "S",
        by: "tables",
    },
    InvariantRow {
        name: "I7",
        property: "The tables are what a naive scan of the best chain says",
        when: "R Q",
        by: "a scan that shares no code with the store",
    },
    InvariantRow {
        name: "I8",
        property: "Every change of state is an allowed edge with one audit row",
        when: "S",
        by: "tables, retold",
    },
    InvariantRow {
        name: "I9",
        property: "Headers are linked, the cursor is their tip, all below it is processed",
        when: "S R",
        by: "tables",
    },
    InvariantRow {
        name: "I10",
        property: "Every fact has one event, every event one delivery per endpoint",
        when: "S",
        by: "tables, retold",
    },
    InvariantRow {
        name: "I11",
        property: "An event is the same everywhere: one id, one body",
        when: "E",
        by: "receivers",
    },
    InvariantRow {
        name: "I12",
        property: "Nobody was told of what a power loss could undo",
        when: "E",
        by: "clients' and senders' histories; [`power.rs`](../src/store/tests/power.rs)",
    },
    InvariantRow {
        name: "I13",
        property: "Receivers that keep the newest, or add each once, end with the right books",
        when: "Q",
        by: "both kinds of receivers",
    },
    InvariantRow {
        name: "I14",
        property: "Every callback is signed with a secret of then, at its own time",
        when: "E",
        by: "receivers",
    },
    InvariantRow {
        name: "I15",
        property: "One key, one effect, one answer",
        when: "E",
        by: "the clients' history",
    },
    InvariantRow {
        name: "I16",
        property: "Whatever is fed again changes nothing",
        when: "S",
        by: "every row, before and after",
    },
    InvariantRow {
        name: "I17",
        property: "What comes in acts once",
        when: "S",
        by: "tables",
    },
    InvariantRow {
        name: "I20",
        property: "What is stored beside the facts equals what they add up to",
        when: "S",
        by: "tables, recomputed",
    },
    InvariantRow {
        name: "I21",
        property: "Time makes and unmakes no money",
        when: "S",
        by: "tables: each reversal has a block that is left or an operator's hold; \
             [`invoice_properties.rs`](../tests/it/invoice_properties.rs), \
             [`callback_clock.rs`](../tests/it/callback_clock.rs)",
    },
    InvariantRow {
        name: "I22",
        property: "One writer: a daemon that was thawed commits nothing",
        when: "S",
        by: "a frozen life, thawed",
    },
    InvariantRow {
        name: "I23",
        property: "An upgrade is done or not done",
        when: "R",
        by: "an upgrade to a made-up next version; \
             [`power.rs`](../src/store/tests/power.rs): killed at every point of the schema's creation; \
             [`upgrades.rs`](../src/store/tests/upgrades.rs): and of an upgrade; \
             [`versions.rs`](../src/store/tests/versions.rs)",
    },
    InvariantRow {
        name: "I24",
        property: "A restored backup is noticed, and tells the same ids again",
        when: "R E",
        by: "the world's memory of ids, versions and addresses",
    },
    InvariantRow {
        name: "I25",
        property: "No connection to a denied address",
        when: "E",
        by: OF_CALLBACKS,
    },
    InvariantRow {
        name: "I26",
        property: "Everything has a bound, and reaching it loses nothing",
        when: "S E",
        by: "[`api_limits.rs`](../tests/it/api_limits.rs)",
    },
    InvariantRow {
        name: "I27",
        property: "No secret in any log, error or metric",
        when: "E",
        by: "[`secrets.rs`](../tests/it/secrets.rs)",
    },
    InvariantRow {
        name: "I28",
        property: "What is due is credited soon, on each chain by itself",
        when: "Q",
        by: "once the world is at rest",
    },
    InvariantRow {
        name: "I29",
        property: "A receiver that answers gets everything; a dead one delays nobody",
        when: "Q",
        by: "receivers, once the world is at rest",
    },
    InvariantRow {
        name: "I30",
        property: "After any fault it serves again, or stands in a named halt",
        when: "R Q",
        by: "every life",
    },
];
