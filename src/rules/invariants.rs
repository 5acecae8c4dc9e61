//! The names of what must always hold. Each is checked by the store's own queries (`store::checks`) and
//! described in `docs/invariants.md`; tests refer to them by these names.

/// One property that no step, restart or repeat may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// At most one credit per (chain, txid, vout).
    I1OneCredit,
    /// Credits and journal are append-only.
    I2AppendOnly,
    /// Every credit is justified by the chain at its commit.
    I3Justified,
    /// Per invoice the journal adds up to what it shows as paid.
    I4InvoiceBooks,
    /// Per credit the journal alternates without gap and nets to 0 or the amount.
    I5Alternates,
    /// No two positive credits spend the same outpoint.
    I6NoDoubleSpend,
    /// The tables equal a naive scan of the best chain.
    I7RescanEqual,
    /// Every state change is an allowed edge with one audit row.
    I8AllowedEdges,
    /// Headers are linked, the cursor is their tip.
    I9CursorHonest,
    /// Every fact has exactly one event.
    I10OneEvent,
    /// Feeding any input again changes nothing.
    I16Replay,
    /// What came in is there once per source and event, and does what it does once.
    I17Inbox,
    /// What is stored beside the facts equals what they add up to.
    I20Recomputed,
}

impl Invariant {
    /// The short name used in documentation and reports.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::I1OneCredit => "I1",
            Invariant::I2AppendOnly => "I2",
            Invariant::I3Justified => "I3",
            Invariant::I4InvoiceBooks => "I4",
            Invariant::I5Alternates => "I5",
            Invariant::I6NoDoubleSpend => "I6",
            Invariant::I7RescanEqual => "I7",
            Invariant::I8AllowedEdges => "I8",
            Invariant::I9CursorHonest => "I9",
            Invariant::I10OneEvent => "I10",
            Invariant::I16Replay => "I16",
            Invariant::I17Inbox => "I17",
            Invariant::I20Recomputed => "I20",
        }
    }
}
