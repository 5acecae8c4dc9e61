//! What a start finds about a database that is no fault of its file.

use std::fmt;

/// Something noticed while opening that is no error, but that somebody must hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The cursor is below the high-water mark of its generation, and no reorg took it there: a restore.
    BehindHighWater {
        /// The chain.
        caip: String,
        /// Where the database is; `None` if it does not know the chain or has read no block.
        cursor: Option<u64>,
        /// Where it was.
        high_water: u64,
    },
    /// The database is of an earlier generation than the one that last ran here: it was restored.
    OlderGeneration {
        /// The database's.
        database: i64,
        /// The high-water file's.
        high_water: i64,
    },
    /// The database has fewer events than were written here in its generation: it was restored.
    FewerEvents {
        /// The number of its last one.
        database: u64,
        /// The number of the last one that was written here.
        high_water: u64,
    },
    /// The database still has addresses to hand out, or does not know a source of them, where some were
    /// handed out here: it was restored.
    FewerAddresses {
        /// How the high-water file names the source.
        source: String,
        /// The first index that it may hand out.
        database: u64,
        /// The first index that was not handed out here.
        high_water: u64,
    },
    /// The high-water file cannot be read, so that a restored backup would not be noticed. It is written
    /// anew.
    HighWaterUnreadable {
        /// Why.
        reason: String,
    },
}

impl Finding {
    /// True when the database was restored from a backup.
    pub(super) fn is_restore(&self) -> bool {
        match self {
            Finding::BehindHighWater { .. }
            | Finding::OlderGeneration { .. }
            | Finding::FewerEvents { .. }
            | Finding::FewerAddresses { .. } => true,
            Finding::HighWaterUnreadable { .. } => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::BehindHighWater {
                caip,
                cursor: Some(cursor),
                high_water,
            } => {
                let behind = high_water.saturating_sub(*cursor);
                write!(
                    f,
                    "{caip}: the cursor is {behind} blocks behind the high-water file: restored from \
                     a backup?"
                )
            }
            Finding::BehindHighWater { caip, high_water, .. } => {
                write!(
                    f,
                    "{caip}: no cursor, but the high-water file has {high_water}: restored from a backup?"
                )
            }
            Finding::OlderGeneration { database, high_water } => {
                write!(
                    f,
                    "generation {database} of the database, {high_water} ran here: restored from a backup"
                )
            }
            Finding::FewerEvents { database, high_water } => {
                write!(
                    f,
                    "the last event of the database is {database}, {high_water} was written here: restored \
                     from a backup"
                )
            }
            Finding::FewerAddresses {
                source,
                database,
                high_water,
            } => {
                write!(
                    f,
                    "address {database} of {source} is the next of the database, those below {high_water} \
                     were handed out here: restored from a backup"
                )
            }
            Finding::HighWaterUnreadable { reason } => {
                write!(
                    f,
                    "the high-water file is unreadable ({reason}): a restored backup would go unnoticed"
                )
            }
        }
    }
}
