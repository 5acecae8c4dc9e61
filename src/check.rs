//! `creditd check`: what an operator wants to know before (and while) the daemon runs. It asks nodes and
//! database together and changes neither; every line that is not good names the next step.

use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::clock::Clock;
use crate::config::{BitcoinChain, Config};
use crate::egress::HttpDial;
use crate::rules::HeldHeader;
use crate::store::{Database, OpenMode, StoreError};
use crate::telemetry::error_line;
use std::path::Path;

/// How a line of the check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Works, and deserves a look.
    Warning,
    /// Does not work.
    Bad,
}

/// One line of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What was looked at: `database`, `node`, `network`, `sync`, `pruning`, `rest`, `clock`.
    pub name: &'static str,
    /// The chain's alias, where the line is about one.
    pub chain: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where there is nothing to do.
    pub next_step: String,
}

/// A clock further off than this from the node's tip in the future, or a tip that much ahead of us, is
/// wrong: Bitcoin Core itself refuses blocks more than two hours ahead.
const CLOCK_SLACK_SECS: i64 = 2 * 3600;

/// Looks at everything that the config names.
///
/// # Errors
/// The operating system refuses threads.
pub fn check(config: &Config) -> std::io::Result<Vec<Line>> {
    let clock = Clock::real();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut lines = database_lines(&config.database, clock);
    for chain in &config.bitcoin {
        let cursor = cursor_of(&config.database, chain);
        lines.extend(runtime.block_on(chain_lines(chain, cursor.as_ref(), clock)));
    }
    Ok(lines)
}

fn line(
    name: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    next_step: impl Into<String>,
) -> Line {
    Line {
        name,
        chain: None,
        verdict,
        found: found.into(),
        next_step: next_step.into(),
    }
}

fn database_lines(path: &Path, clock: Clock) -> Vec<Line> {
    let writable = match Database::open(path, OpenMode::Write) {
        // A write transaction without a write: proves that the file and its folder take one.
        Ok(mut database) => database.write(clock.now_ms(), |tx| tx.list_version()),
        Err(error) => Err(error),
    };
    let place = path.display();
    vec![match writable {
        Ok(_) => line(
            "database",
            Verdict::Good,
            format!("{place} is writable, schema as this creditd knows it"),
            "",
        ),
        Err(StoreError::Missing(_)) => missing_database(path),
        Err(error @ (StoreError::Busy(_) | StoreError::DiskFull(_))) => line(
            "database",
            Verdict::Warning,
            format!("{place}: {}", error_line(&error)),
            "wait, or make space",
        ),
        Err(error) => {
            let next =
                "check the owner and the mount of the file and its folder; restore a backup if it is damaged";
            line(
                "database",
                Verdict::Bad,
                format!("{place}: {}", error_line(&error)),
                next,
            )
        }
    }]
}

fn missing_database(path: &Path) -> Line {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() && !meta.permissions().readonly() => line(
            "database",
            Verdict::Good,
            format!("{} will be made at the first start", path.display()),
            "",
        ),
        Ok(_) => line(
            "database",
            Verdict::Bad,
            format!("{} is no writable folder", folder.display()),
            "make it one",
        ),
        Err(error) => line(
            "database",
            Verdict::Bad,
            format!("{}: {error}", folder.display()),
            "make the folder",
        ),
    }
}

fn cursor_of(database: &Path, chain: &BitcoinChain) -> Option<HeldHeader> {
    let database = Database::open(database, OpenMode::ReadOnly).ok()?;
    database.read(|tx| tx.chain(&chain.chain)).ok()??.cursor
}

async fn chain_lines(chain: &BitcoinChain, cursor: Option<&HeldHeader>, clock: Clock) -> Vec<Line> {
    let mut lines = match BitcoinConfig::of(chain) {
        Ok(config) => {
            let faults = config.faults();
            if faults.is_empty() {
                node_lines(
                    chain,
                    &BitcoinSource::new(config, HttpDial::new(), clock),
                    cursor,
                    clock,
                )
                .await
            } else {
                faults
                    .into_iter()
                    .map(|fault| line("config", Verdict::Bad, fault, "edit the config"))
                    .collect()
            }
        }
        Err(error) => vec![line(
            "node",
            Verdict::Bad,
            error_line(&error),
            "put the secret there, readable for creditd",
        )],
    };
    for line in &mut lines {
        line.chain = Some(chain.alias.clone());
    }
    lines
}

async fn node_lines(
    chain: &BitcoinChain,
    source: &BitcoinSource<HttpDial>,
    cursor: Option<&HeldHeader>,
    clock: Clock,
) -> Vec<Line> {
    let identity = match source.identity().await {
        Ok(identity) => identity,
        Err(error @ SourceError::WrongNetwork(_)) => {
            let next = "point `rpc_url` to a node of the configured network, or correct `network`, \
                        `instance` and \
                        `checkpoints`";
            return vec![line("network", Verdict::Bad, error.to_string(), next)];
        }
        Err(error) => {
            let next = format!(
                "start the node, or correct `rpc_url` ({}) and the login in the config",
                chain.rpc_url
            );
            return vec![line("node", Verdict::Bad, error_line(&error), next)];
        }
    };
    let mut lines = vec![
        line(
            "node",
            Verdict::Good,
            format!("{} answers at {}", identity.software, chain.rpc_url),
            "",
        ),
        line(
            "network",
            Verdict::Good,
            format!(
                "{}, {} checkpoints known",
                identity.chain,
                chain.checkpoints.len()
            ),
            "",
        ),
        rest_line(source.is_rest_on()),
    ];
    match source.tip().await {
        Ok(tip) => {
            lines.push(sync_line(chain, &tip, clock));
            lines.push(pruning_line(&tip, cursor));
            lines.push(clock_line(&tip, clock));
        }
        Err(error) => lines.push(line("sync", Verdict::Bad, error_line(&error), "ask again")),
    }
    lines
}

fn rest_line(is_on: bool) -> Line {
    if is_on {
        return line("rest", Verdict::Good, "REST is on: blocks come as bytes", "");
    }
    let next = "put rest=1 into bitcoin.conf for a catch-up about four times as fast";
    line(
        "rest",
        Verdict::Warning,
        "REST is off: blocks come as hex over RPC",
        next,
    )
}

fn sync_line(chain: &BitcoinChain, tip: &NodeTip, clock: Clock) -> Line {
    let at = format!("block {} of {} headers", tip.height, tip.headers);
    if tip.is_syncing {
        return line(
            "sync",
            Verdict::Warning,
            format!("the node is catching up: {at}"),
            "wait; creditd follows along",
        );
    }
    let age_secs = clock.now_ms() / 1000 - i64::try_from(tip.time_secs).unwrap_or_default();
    let is_old = chain
        .tip_age_max
        .is_some_and(|limit| u64::try_from(age_secs).is_ok_and(|age| age > limit.as_secs()));
    if is_old {
        let found = format!("{at}, and its newest block is {} minutes old", age_secs / 60);
        return line(
            "sync",
            Verdict::Warning,
            found,
            "see whether the node has peers: nothing is evicted until then",
        );
    }
    match tip.credit_ceiling {
        Some(ceiling) => {
            let found =
                format!("{at}; the node knows a branch with more work that forks at height {ceiling}");
            line(
                "sync",
                Verdict::Warning,
                found,
                "nothing above is credited until the node has decided",
            )
        }
        None => line("sync", Verdict::Good, at, ""),
    }
}

fn pruning_line(tip: &NodeTip, cursor: Option<&HeldHeader>) -> Line {
    match (tip.pruned_below, cursor) {
        (None, _) => line("pruning", Verdict::Good, "the node keeps every block", ""),
        (Some(kept), Some(cursor)) if cursor.height + 1 < kept => line(
            "pruning",
            Verdict::Bad,
            format!(
                "the node has dropped blocks {} to {}, which were not read yet",
                cursor.height + 1,
                kept - 1
            ),
            "point to a node that has them, or let this one download them again",
        ),
        (Some(kept), _) => line(
            "pruning",
            Verdict::Good,
            format!("the node keeps blocks from height {kept} on"),
            "",
        ),
    }
}

fn clock_line(tip: &NodeTip, clock: Clock) -> Line {
    let ahead_secs = i64::try_from(tip.time_secs).unwrap_or(i64::MAX) - clock.now_ms() / 1000;
    if ahead_secs > CLOCK_SLACK_SECS {
        let found = format!("the newest block is {} minutes in our future", ahead_secs / 60);
        return line("clock", Verdict::Bad, found, "set this machine's clock (NTP)");
    }
    line("clock", Verdict::Good, "not behind the newest block", "")
}
