//! Whether the database is a restored backup: one that the next start will notice, or one that is being
//! caught up.

use super::running::Running;
use super::{Line, Verdict, line};
use crate::config::Config;
use crate::store::{Database, Finding, OpenMode, StoreError};

/// Nothing where there is nothing to say.
pub(super) fn lines(config: &Config, running: &Running) -> Vec<Line> {
    // Whether the database can be read has its own line.
    let Ok(database) = Database::open(&config.database, OpenMode::ReadOnly) else {
        return Vec::new();
    };
    match under_way(&database) {
        Ok(chains) if !chains.is_empty() => {
            let found = format!("a restored backup is under way on {}", chains.join(", "));
            let next = "`creditd restored` says how far it is, and what cannot be rebuilt";
            return vec![line("restore", Verdict::Warning, found, next)];
        }
        Ok(_) | Err(_) => {}
    }
    // The file beside a database in use is ahead of what is read here.
    if running.is_running() != Some(false) {
        return Vec::new();
    }
    let findings = database.would_notice().unwrap_or_default();
    findings.iter().map(of_finding).collect()
}

fn under_way(database: &Database) -> Result<Vec<String>, StoreError> {
    let mut under_way = Vec::new();
    for chain in database.read(|tx| tx.chains())? {
        if database.read(|tx| tx.restore_stage(chain.key))?.is_some() {
            under_way.push(chain.id.to_string());
        }
    }
    Ok(under_way)
}

fn of_finding(finding: &Finding) -> Line {
    let next = match finding {
        Finding::HighWaterUnreadable { .. } => {
            "if the database was restored: `creditd restored --reason TEXT` after the start"
        }
        Finding::BehindHighWater { .. }
        | Finding::OlderGeneration { .. }
        | Finding::FewerEvents { .. }
        | Finding::FewerAddresses { .. } => {
            "start the daemon, which catches up and tells merchants; `creditd restored` then says what \
             cannot be rebuilt (docs/operations.md, Restore)"
        }
    };
    line("restore", Verdict::Warning, finding.to_string(), next)
}
