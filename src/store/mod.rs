//! The database: about thirty-five verbs in domain words. It owns every SQL statement and knows nothing of
//! nodes or HTTP. One fact is one transaction: state, journal, event and audit row are written together or
//! not at all. Start reading at [`Database`] for the file and its transactions, and at `shell` for how the
//! daemon shares it.

use rusqlite::Connection;
use std::collections::BTreeSet;

mod address_sources;
mod addresses;
mod advance;
mod assets;
mod audit_marks;
mod audit_runs;
mod audit_unread;
mod audited;
mod backup;
mod chains;
mod check_queries;
mod checks;
mod codec;
mod compare;
mod conflicts;
mod counters;
mod credits;
mod database;
mod declare;
mod deliveries;
mod delivery_checks;
mod deposits;
mod drill;
mod due;
mod endpoints;
mod error;
mod events;
mod evidence;
mod executions;
mod external;
mod fault;
mod finality;
mod finding;
mod highwater;
mod history;
mod idempotency;
mod inbox;
mod integrity;
mod invoice_checks;
mod invoice_events;
mod invoices;
mod invoicing;
mod jobs;
mod keys;
mod load;
mod lock;
mod marks_file;
mod matching;
mod mempool;
mod merchants;
mod migrate;
mod nodes;
mod open;
mod owners;
mod place;
mod pool;
mod projection;
mod recall;
mod repair;
pub mod report;
mod rescan;
mod resend;
mod restore;
mod restored_ranges;
mod rivals;
mod shape;
mod shell;
mod staged;
mod stretch;
mod sweep;
#[cfg(test)]
mod tests;
mod threads;
mod transact;
mod txs;
mod unattributed;
mod whole;
mod windows;

pub use address_sources::{NewSource, SourceKind, SourceRow, SourceStanding};
pub use addresses::{AddressAdded, AddressConflict, AddressKey, AddressKind, NewAddress};
pub use advance::{Advance, Advanced, Terms};
pub use assets::{AssetKey, KnownAsset, NewAsset};
pub use audit_marks::AuditMark;
pub use audit_runs::{FindingRow, LedgerMark};
pub use audit_unread::Unread;
pub use audited::{ClaimCounts, ClaimRow};
pub use backup::{BackupMade, BackupPlan, BackupProgress, Existing};
pub use chains::{ChainKey, ChainRow, NewChain};
pub use checks::{CHECKS, LedgerSnapshot, Looked, VIOLATIONS_MAX, Violation};
pub use compare::{Allowed, Compared, FED_AGAIN, RowDiff};
pub use counters::{BATCH_WRITES, COMMIT_MICROS, StoreCounters};
pub use credits::{ChainCause, JournalEntry};
pub use database::Database;
pub use declare::{Declaration, Declared};
pub use deliveries::{Attempt, Leased, Outcome, REPLY_BYTES_MAX, Room, Share};
pub use deposits::Deposit;
pub use drill::{InboxRow, KeptRow, SentRow, stand_in, stood_for};
pub use endpoints::Endpoint;
pub use error::StoreError;
pub use evidence::{Evidence, EvidenceOf, EvidenceWanted, NewEvidence, OwnEvidence};
pub use external::{ExternalAsset, ExternalPayment, NamedOutput};
pub use fault::Fault;
pub use finding::Finding;
pub use idempotency::{Keep, Kept, KeptAnswer, KeyScope};
pub use inbox::{DueInbox, Effect, INBOX_BODY_BYTES_MAX, INBOX_JOB, InboxRetry, NewInbox, Received};
pub use integrity::WholeTable;
pub use invoices::{Invoice, InvoicePayment, NewCallback, NewInvoice};
pub use invoicing::{CancelOutcome, ChainLook, METADATA_BYTES_MAX, REFERENCE_BYTES_MAX};
pub use jobs::{JobLease, JobOutcome, JobRow, JobRun, Work};
pub use keys::{ApiKeyRow, KeyOwner, KeyState, NewApiKey};
pub use lock::Runner;
pub use mempool::{ListApplied, Listing};
pub use merchants::MerchantRow;
#[cfg(feature = "points")]
pub use migrate::next as next_version;
pub use nodes::NodeEndpoint;
pub use open::OpenMode;
pub use pool::{POOL_JOB, PoolEmpty, PoolWork, TakeAddress, TakenAddress};
pub use repair::Reanchor;
pub use rescan::{Backfill, Rescan, Rescanned, outpoints_of};
pub use resend::{Resend, Undelivered};
pub use restore::{RestoreStage, RestoreState, RestoredChain};
pub use restored_ranges::{NOBODY, RestoredRange};
pub use shell::Store;
pub use sweep::{BalanceRead, Opening, SweepSpan, SweepWork};
pub use unattributed::{ClosedAs, UnattributedRow};
pub use whole::Whole;

/// A consistent view of the database. Only this module makes one.
pub struct ReadTx<'a> {
    conn: &'a Connection,
    recall: recall::Recall,
}

impl<'a> ReadTx<'a> {
    fn new(conn: &'a Connection) -> ReadTx<'a> {
        ReadTx {
            conn,
            recall: recall::Recall::default(),
        }
    }

    fn conn(&self) -> &'a Connection {
        self.conn
    }
}

/// One write transaction, or one savepoint of a group commit. Nobody is told of its effects before the
/// commit. Only this module makes one.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    now_ms: i64,
    cursors: Vec<CursorMove>,
    /// Invoices whose payments it moved.
    touched: BTreeSet<i64>,
    takes: Vec<AddressTake>,
    /// Whose acts it does, for the audit.
    actor: &'static str,
}

/// An address handed out by a transaction, for the high-water file: there before the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressTake {
    /// Which source, by what it derives from.
    source: String,
    /// The index.
    number: u64,
    /// Who takes it.
    merchant: String,
}

/// What a transaction did to a chain's cursor, for the high-water file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CursorMove {
    caip: String,
    height: u64,
    /// Set on the operator's word: the mark may then go down.
    is_reanchor: bool,
}

impl<'a> WriteTx<'a> {
    fn new(conn: &'a Connection, now_ms: i64) -> WriteTx<'a> {
        WriteTx {
            read: ReadTx::new(conn),
            now_ms,
            cursors: Vec::new(),
            touched: BTreeSet::new(),
            takes: Vec::new(),
            actor: "operator",
        }
    }

    /// What it does from now on is a merchant's doing, and no operator's.
    pub fn act_for_merchant(&mut self) {
        self.actor = "merchant";
    }

    /// The time of this transaction: every row that it writes carries it.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Tells the high-water file, once the transaction is committed, that the cursor of a chain moved to
    /// `height`.
    fn cursor_moved(&mut self, caip: &str, height: u64) {
        self.cursors.push(CursorMove {
            caip: caip.to_owned(),
            height,
            is_reanchor: false,
        });
    }

    /// Like [`WriteTx::cursor_moved`], but an operator set the cursor back: that is no sign of a restored
    /// backup.
    fn cursor_reanchored(&mut self, caip: &str, height: u64) {
        self.cursors.push(CursorMove {
            caip: caip.to_owned(),
            height,
            is_reanchor: true,
        });
    }
}

impl<'a> std::ops::Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &ReadTx<'a> {
        &self.read
    }
}
