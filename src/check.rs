//! `creditd check`: what an operator wants to know before (and while) the daemon runs. It asks nodes and
//! database together and changes neither, not even a restored backup or the log that a killed daemon left;
//! every line that is not good names the next step.

mod branch;
mod callbacks;
mod clock;
mod evm;
pub mod pools;
mod restore;
pub mod running;
mod schema;
mod steps;
mod unnamed;

use crate::address::Derivation;
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::clock::Clock;
use crate::config::{BackupConfig, BitcoinChain, Config, InboxSource, SecretError, Start};
use crate::egress::HttpDial;
use crate::inbox::{self, InboxError};
use crate::rules::HeldHeader;
use crate::store::{Database, OpenMode, ReadTx, StoreError};
use crate::telemetry::{counted, error_line};
use branch::Known;
use clock::clock_line;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use steps::node_step;

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
    /// What was looked at: `database`, `daemon`, `callbacks`, `ops`, `api`, `pages`, `restore`, `addresses`,
    /// `chain`, `inbox`, `backup`, `config`, `node`, `network`, `rest`, `sync`, `branch`, `start`, `pruning`,
    /// `clock`; of EVM chains also `tags`, `blocks`, `logs`, `receipts`, `traces`, `eip7708`, `pending`,
    /// `token`, `balance`, `coin`, `limit`, `quorum`, `inner`.
    pub name: &'static str,
    /// The endpoint's name, where the line is about one of several.
    pub endpoint: Option<String>,
    /// The chain's alias, where the line is about one.
    pub chain: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where there is nothing to do.
    pub next_step: String,
}

/// Looks at everything that the config names.
///
/// # Errors
/// The operating system refuses threads.
pub fn check(config: &Config) -> std::io::Result<Vec<Line>> {
    let clock = Clock::real();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let running = running::running(config);
    let mut lines = vec![
        database_line(&config.database),
        running::daemon_line(&running),
        callbacks::line_of(config),
        running::listen_line("ops", "health and metrics are off", config.ops.listen, &running),
        running::listen_line("api", "the API is off", config.api.listen, &running),
    ];
    lines.extend(config.api.public_url.as_ref().map(|public| {
        let found = format!("payers are sent to {public}/i/TOKEN");
        line("pages", Verdict::Good, found, "")
    }));
    lines.extend(restore::lines(config, &running));
    lines.extend(unnamed::lines(config));
    lines.extend(pools::lines(config));
    lines.extend(config.inbox.iter().map(inbox_line));
    lines.extend(config.backup.as_ref().map(backup_line));
    for chain in &config.bitcoin {
        let known = branch::known(config, &chain.chain, chain.reorg_window);
        let pools = pools::derived(config, &chain.chain);
        lines.extend(runtime.block_on(chain_lines(chain, &pools, known.as_ref(), clock)));
    }
    for chain in &config.evm {
        let known = branch::known(config, &chain.chain, chain.reorg_window);
        lines.extend(runtime.block_on(evm::lines(chain, known.as_ref(), clock)));
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
        endpoint: None,
        chain: None,
        verdict,
        found: found.into(),
        next_step: next_step.into(),
    }
}

fn database_line(path: &Path) -> Line {
    let readable = Database::open(path, OpenMode::ReadOnly);
    let place = path.display();
    let beside = |database: &Database| {
        database.read(read_all_kinds)?;
        database.check_schema()
    };
    match readable.and_then(|database| beside(&database)) {
        Ok(beside) => schema::with(
            folder_line(path, "can be written, schema as this creditd knows it"),
            &beside,
        ),
        Err(StoreError::Missing(_)) => folder_line(path, "will be made at the first start"),
        Err(error) => {
            let verdict = if error.is_passing() {
                Verdict::Warning
            } else {
                Verdict::Bad
            };
            let why = match &error {
                StoreError::Refused(text) => split_refusal(text).0.to_owned(),
                other => format!("{place}: {}", error_line(other)),
            };
            let next = database_step(&error).unwrap_or("see docs/operations.md");
            line("database", verdict, why, next)
        }
    }
}

/// What the other lines ask the database for: they say nothing where it cannot be read.
fn read_all_kinds(tx: &ReadTx<'_>) -> Result<(), StoreError> {
    tx.list_version()?;
    tx.address_sources()?;
    for chain in tx.chains()? {
        tx.credits_on(chain.key)?;
        let at = chain.cursor.map(|cursor| cursor.height);
        at.map(|height| tx.hashes_down_to(chain.key, height))
            .transpose()?;
    }
    Ok(())
}

/// Whether the daemon could write there. The database itself is opened for writing and not written to; beside
/// it a file is made and taken away, because the log of the database has to be made there.
fn folder_line(path: &Path, found: &str) -> Line {
    let is_there = path.exists();
    let opened = match is_there {
        true => OpenOptions::new().write(true).open(path).map(drop),
        false => Ok(()),
    };
    match opened.and_then(|()| try_folder(path)) {
        Ok(()) => line(
            "database",
            Verdict::Good,
            format!("{} {found}", path.display()),
            "",
        ),
        Err(error) => line(
            "database",
            Verdict::Bad,
            format!("{} cannot be written: {error}", path.display()),
            file_step(&error).unwrap_or("look at its folder and its mount"),
        ),
    }
}

fn try_folder(path: &Path) -> std::io::Result<()> {
    let mut probe = path.as_os_str().to_owned();
    probe.push(format!(".check-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&probe)?;
    // A block, because an empty file fits on a full disk.
    let written = file.write_all(&[0; 4096]).and_then(|()| file.sync_all());
    std::fs::remove_file(&probe)?;
    written
}

/// Whether the daemon could believe what a source of the inbox sends.
fn inbox_line(source: &InboxSource) -> Line {
    let Err(error) = inbox::try_secrets(source) else {
        let found = format!("the secrets of {} can be used", source.source);
        return line("inbox", Verdict::Good, found, "");
    };
    let next = match &error {
        InboxError::Secret(_, error) => secret_step(error),
        InboxError::Key(..) => "write the secret that the source shows (whsec_...) alone into the file",
        InboxError::Short(_) => "make a longer secret at the source, and write it alone into the file",
    };
    line("inbox", Verdict::Bad, error_line(&error), next)
}

/// Whether the daemon could write its copies there.
fn backup_line(backup: &BackupConfig) -> Line {
    let place = backup.folder.display();
    match try_folder(&backup.folder.join("creditd")) {
        Ok(()) => line("backup", Verdict::Good, format!("{place} can be written"), ""),
        Err(error) => line(
            "backup",
            Verdict::Bad,
            format!("{place}: {error}"),
            "make the folder and give it to the account that the daemon runs as, or name another in [backup]",
        ),
    }
}

/// The text of [`StoreError::Refused`] in two: why, and what would do instead.
pub fn split_refusal(text: &str) -> (&str, Option<&str>) {
    text.rsplit_once(": ")
        .map_or((text, None), |(why, next)| (why, Some(next)))
}

/// What to do about an error of the database; `None` where nobody can say.
pub fn database_step(error: &StoreError) -> Option<&str> {
    match error {
        StoreError::Busy(_) => Some("try again in a moment; nothing was written"),
        StoreError::DiskFull(_) => Some(
            "make room on the disk (or raise the limit of a file, `ulimit -f`), then try again; nothing was \
             written",
        ),
        StoreError::Missing(_) => {
            Some("creditd run, or creditd watch add; or correct `database` in the config")
        }
        StoreError::NotOurs { .. } => Some("correct `database` in the config: the file is another program's"),
        StoreError::File { source, .. } => file_step(source),
        StoreError::Io(_) if !error.is_damage() => Some(
            "run it as the account that owns the database (sudo -u creditd), on a mount that can be written; \
             otherwise look at the disk, and restore a backup (docs/operations.md)",
        ),
        StoreError::Io(_) | StoreError::Damaged { .. } | StoreError::Corrupt(_) => {
            Some("keep the file, and restore a backup (docs/operations.md, Restore)")
        }
        StoreError::SchemaTooNew { .. } => {
            Some("run the newer creditd, or restore a backup that is older than it")
        }
        StoreError::SchemaChanged { .. } => Some(
            "keep the file, and restore a backup made with `creditd backup` (docs/operations.md, Restore); \
             if you changed the schema by hand, put it back",
        ),
        StoreError::SchemaTooOld { .. } => Some("restart the daemon with this version of creditd"),
        StoreError::Locked { .. } => Some("stop the other daemon, or give this one a database of its own"),
        StoreError::Contradiction(_) => Some("`creditd chain status`, and docs/operations.md"),
        StoreError::Constraint(_) | StoreError::Closed | StoreError::StaleEpoch { .. } => {
            Some("nothing was written; if it comes again, report it with the log")
        }
        StoreError::Refused(text) => split_refusal(text).1,
    }
}

/// What to do about a file that cannot be used.
pub fn file_step(error: &std::io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound => Some("correct the path, or make its folder"),
        ErrorKind::PermissionDenied => {
            Some("run it as the account that owns the file and its folder (sudo -u creditd)")
        }
        ErrorKind::ReadOnlyFilesystem => Some("mount it for writing, or name a place that can be written"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("make room on the disk, then try again"),
        ErrorKind::FileTooLarge => Some("raise the limit of a file's size (`ulimit -f`, LimitFSIZE=)"),
        ErrorKind::AlreadyExists => Some("name another file, or move that one away"),
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => Some("name a file in an existing folder"),
        ErrorKind::InvalidFilename => Some("name a shorter file"),
        ErrorKind::InvalidData => Some("name a text file (UTF-8)"),
        _ => None,
    }
}

/// What to do about a secret that cannot be read.
pub fn secret_step(error: &SecretError) -> &'static str {
    match error {
        SecretError::NoDirectory(_) => {
            "set CREDENTIALS_DIRECTORY to the folder that holds it (docs/operations.md), or name a path"
        }
        SecretError::Unreadable { .. } => "let the user that runs creditd read the file",
        SecretError::NotASecret { .. } => "write the secret alone into the file",
    }
}

async fn chain_lines(
    chain: &BitcoinChain,
    pools: &[(&str, &Derivation)],
    known: Option<&Known>,
    clock: Clock,
) -> Vec<Line> {
    let mut lines = match BitcoinConfig::of(chain) {
        Ok(config) => {
            let faults = config.faults();
            if faults.is_empty() {
                let source = BitcoinSource::new(config, HttpDial::new(), clock);
                node_lines(chain, &source, pools, known, clock).await
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
            secret_step(&error),
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
    pools: &[(&str, &Derivation)],
    known: Option<&Known>,
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
            return vec![line(
                "node",
                Verdict::Bad,
                error_line(&error),
                node_step(chain, &error),
            )];
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
                "{}, {} known",
                identity.chain,
                counted(chain.checkpoints.len() as u64, "checkpoint")
            ),
            "",
        ),
        rest_line(source.is_rest_on()),
    ];
    match source.tip().await {
        Ok(tip) => {
            lines.push(sync_line(chain, &tip, clock));
            if let Some(known) = known {
                lines.extend(branch::line_of(source, &tip, known).await);
            }
            let cursor = known.and_then(|known| known.row.cursor.as_ref());
            lines.extend(start_line(chain.start, &tip, cursor));
            lines.push(pruning_line(&tip, cursor));
            lines.push(clock_line(&tip, clock));
        }
        Err(error) => lines.push(line("sync", Verdict::Bad, error_line(&error), "ask again")),
    }
    for (name, derivation) in pools {
        lines.extend(pools::derive_line(source, name, derivation).await);
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
        let found = format!(
            "{at}, and its newest block is {} old",
            counted(age_secs.unsigned_abs() / 60, "minute")
        );
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

/// A line only where the start is still ahead of the node: it may be meant so, or have a digit too many.
fn start_line(start: Start, tip: &NodeTip, cursor: Option<&HeldHeader>) -> Option<Line> {
    match (start, cursor) {
        (Start::Height(start), None) if start > tip.height + 1 => Some(line(
            "start",
            Verdict::Warning,
            format!(
                "start = {start} is above the node's block {}: nothing is read until then",
                tip.height
            ),
            "correct `start`, or wait",
        )),
        (Start::Height(_) | Start::Tip, _) => None,
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
