//! The names of what must always hold, described in `docs/invariants.md`. What the tables can tell is asked
//! by the store's own queries (`store::checks`), the rest by tests from outside; all refer to these names.

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
    /// An event is one body under one id, to everybody and at every attempt.
    I11SameBytes,
    /// Nothing that an outsider was told can be undone by a loss of power.
    I12Durable,
    /// Receivers that keep to the rules end at the balances of the books.
    I13ReceiversAgree,
    /// Every callback verifies, under its own time.
    I14Signed,
    /// A request has one effect under its key, and one answer.
    I15OneEffect,
    /// Feeding any input again changes nothing.
    I16Replay,
    /// What came in is there once per source and event, and does what it does once.
    I17Inbox,
    /// What is stored beside the facts equals what they add up to.
    I20Recomputed,
    /// Clocks that jump move expiry, eviction and retries, and nothing else.
    I21TimeIsNoMoney,
    /// A daemon that was replaced commits nothing.
    I22OneWriter,
    /// An upgrade is done or not done.
    I23WholeUpgrade,
    /// An older file is noticed: the same ids again, no address a second time.
    I24Restore,
    /// No callback goes to a denied address.
    I25Egress,
    /// Everything has a limit, and reaching it loses nothing that was accepted.
    I26Bounded,
    /// Secrets appear nowhere.
    I27Secrets,
    /// What is due is credited soon.
    I28CreditsArrive,
    /// A receiver that answers gets everything soon; a dead one delays no other.
    I29CallbacksArrive,
    /// After any fault it serves again, or says why not.
    I30Recovers,
}

impl Invariant {
    /// All of them, in the order of their names. I18 and I19 are kept for payouts.
    pub const ALL: [Invariant; 28] = [
        Invariant::I1OneCredit,
        Invariant::I2AppendOnly,
        Invariant::I3Justified,
        Invariant::I4InvoiceBooks,
        Invariant::I5Alternates,
        Invariant::I6NoDoubleSpend,
        Invariant::I7RescanEqual,
        Invariant::I8AllowedEdges,
        Invariant::I9CursorHonest,
        Invariant::I10OneEvent,
        Invariant::I11SameBytes,
        Invariant::I12Durable,
        Invariant::I13ReceiversAgree,
        Invariant::I14Signed,
        Invariant::I15OneEffect,
        Invariant::I16Replay,
        Invariant::I17Inbox,
        Invariant::I20Recomputed,
        Invariant::I21TimeIsNoMoney,
        Invariant::I22OneWriter,
        Invariant::I23WholeUpgrade,
        Invariant::I24Restore,
        Invariant::I25Egress,
        Invariant::I26Bounded,
        Invariant::I27Secrets,
        Invariant::I28CreditsArrive,
        Invariant::I29CallbacksArrive,
        Invariant::I30Recovers,
    ];

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
            Invariant::I11SameBytes => "I11",
            Invariant::I12Durable => "I12",
            Invariant::I13ReceiversAgree => "I13",
            Invariant::I14Signed => "I14",
            Invariant::I15OneEffect => "I15",
            Invariant::I16Replay => "I16",
            Invariant::I17Inbox => "I17",
            Invariant::I20Recomputed => "I20",
            Invariant::I21TimeIsNoMoney => "I21",
            Invariant::I22OneWriter => "I22",
            Invariant::I23WholeUpgrade => "I23",
            Invariant::I24Restore => "I24",
            Invariant::I25Egress => "I25",
            Invariant::I26Bounded => "I26",
            Invariant::I27Secrets => "I27",
            Invariant::I28CreditsArrive => "I28",
            Invariant::I29CallbacksArrive => "I29",
            Invariant::I30Recovers => "I30",
        }
    }
}
