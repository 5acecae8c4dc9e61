//! `audit`.

use super::audit_args::Audit;
use super::open;
use super::out::{self, Out};
use super::progress::Progress;
use super::report_file::ReportFile;
use super::{Outcome, Problem};
use crate::audit::{self, AuditError, ChainReport, Pace, Report, Scope, Walks};
use crate::clock::Clock;
use crate::config::{ChainConfig, Config};
use crate::ends::Ends;
use crate::store::{Store, StoreError};
use crate::telemetry::counted;
use anyhow::Context as _;
use std::time::Duration;
use tokio::signal::unix::SignalKind;

/// How long the nodes have to stop what they do for it.
const STOPPED_IN: Duration = Duration::from_secs(5);

/// Asks nodes and books anew. What does not agree is a problem found; what could not be proven is no success
/// either.
pub(super) fn audit(out: &mut Out, config: &Config, args: &Audit) -> anyhow::Result<Outcome> {
    let audit = audit::Audit {
        config: config.clone(),
        clock: Clock::real(),
        scope: scope(args),
        pace: Pace {
            blocks_per_second: args.blocks_per_second,
            longest: args.minutes.map(|minutes| Duration::from_secs(minutes * 60)),
        },
        actor: "operator",
        goes_on: None,
        walks: Walks::default(),
    };
    let report_to = args.report.as_deref().map(ReportFile::begin).transpose()?;
    let report = run(config, &audit, out.json).map_err(out::could_not_run)?;
    match out.json {
        true => drop(out.json(&report)?),
        false => print(out, &report)?,
    }
    out.done()?;
    if let Some(file) = report_to {
        file.end(&report)?;
    }
    let is_good = report.is_complete || args.allow_unproven;
    match (report.is_clean, is_good) {
        (false, _) => Ok(Outcome::Found),
        (true, true) => Ok(Outcome::Done),
        (true, false) => Err(Problem::misuse(
            "nothing was found, and not all of it could be proven",
            "see above why; --allow-unproven takes that for good",
        )
        .into()),
    }
}

fn scope(args: &Audit) -> Scope {
    let of_chains = !args.books;
    Scope {
        chain: args.chain.clone(),
        books: args.chain.is_none(),
        credits: of_chains,
        outputs: of_chains,
        unspent: args.unspent,
        from: args.from,
        again: args.again,
    }
}

/// Until it is done, or told to stop: what was asked until then need not be asked again.
fn run(config: &Config, audit: &audit::Audit, is_json: bool) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the audit")?;
    runtime.block_on(async {
        let mut ends = Ends::usual().context("start the audit")?;
        let ended = tokio::select! { biased;
            by = ends.any() => Err(stopped(by)),
            report = asked(config, audit, is_json) => report,
        };
        // A node that does not answer is not waited for.
        tokio::select! { biased;
            () = audit.walks.stopped() => {}
            () = audit.clock.sleep(STOPPED_IN) => {}
        }
        ended
    })
}

fn stopped(by: SignalKind) -> anyhow::Error {
    let by = match by {
        by if by == SignalKind::interrupt() => "Ctrl-C",
        by if by == SignalKind::terminate() => "SIGTERM",
        _ => "SIGHUP",
    };
    let next = "run it again: it goes on with what was not asked yet";
    Problem::misuse(format!("stopped by {by}"), next).into()
}

/// A damaged file is what it finds, wherever it comes upon that.
async fn asked(config: &Config, audit: &audit::Audit, is_json: bool) -> anyhow::Result<Report> {
    let mut progress = Progress::new(is_json);
    let mut told = |word: audit::Word<'_>| progress.tell(word);
    let ended = match open::plain_writer(config) {
        Ok(database) => {
            let store = Store::inline(database, audit.clock);
            audit::run(audit, &store, &mut told)
                .await
                .map_err(|error| match error {
                    AuditError::NoChain(alias) => {
                        let aliases: Vec<&str> = config.chains().map(ChainConfig::alias).collect();
                        let next = format!("--chain with one of {}", aliases.join(", "));
                        Problem::misuse(format!("the config has no chain {alias}"), next).into()
                    }
                    AuditError::Store(error) => anyhow::Error::new(error).context("read the books"),
                })
        }
        Err(error) => Err(error),
    };
    match ended
        .as_ref()
        .err()
        .and_then(|error| error.downcast_ref::<StoreError>())
    {
        Some(damage) if damage.is_damage() => Ok(audit::of_damaged(audit, damage).await?),
        _ => ended,
    }
}

fn print(out: &mut Out, report: &Report) -> anyhow::Result<()> {
    if let Some(books) = &report.books {
        let text = match (books.damaged.len(), books.broken.len()) {
            (0, 0) => format!("{} checks: nothing broken", books.checks),
            (0, count) => format!("{} checks: {count} broken", books.checks),
            (count, _) => format!(
                "{} damaged: nothing else was asked",
                counted(count as u64, "table")
            ),
        };
        row(out, "books", &text)?;
    }
    for chain in &report.chains {
        print_chain(out, chain)?;
    }
    for found in &report.found {
        let chain = found.chain.as_deref().unwrap_or("books");
        out.line(format!(
            "FOUND  {}  {chain}  {}  {}",
            found.kind, found.subject, found.what
        ))?;
    }
    let more = report.found_count.saturating_sub(report.found.len() as u64);
    if more > 0 {
        out.line(format!(
            "and {more} more, in the table audit_findings of the database"
        ))?;
    }
    let unproven = match report.unproven() {
        0 => String::new(),
        count => format!("; {count} unproven"),
    };
    match report.found_count {
        0 => out.line(format!("nothing found{unproven}")),
        count => out.line(format!(
            "{count} found{unproven}: docs/audit.md says what each kind means, `creditd tx` tells the \
             story of each"
        )),
    }
}

fn row(out: &mut Out, name: &str, text: &str) -> anyhow::Result<()> {
    out.line(format!("{name:<14} {text}"))
}

fn print_chain(out: &mut Out, report: &ChainReport) -> anyhow::Result<()> {
    let name = |pass: &str| format!("{} {pass}", report.chain);
    if let Some(credits) = &report.credits {
        let mut text = format!("{} of {} are on the best chain", credits.proven, credits.checked);
        if credits.by_unspent > 0 {
            let rest = credits.proven - credits.by_unspent;
            text += &format!(
                " ({} by the unspent coins, {rest} by their blocks)",
                credits.by_unspent
            );
        }
        if credits.too_young > 0 {
            text += &format!("; {} younger than `age_blocks`", credits.too_young);
        }
        if !credits.is_whole && report.stopped.is_none() {
            text += "; not all yet";
        }
        row(out, &name("credits"), &text)?;
        for unproven in &credits.unproven {
            row(
                out,
                "",
                &format!("unproven  {}: {}", unproven.subject, unproven.why),
            )?;
        }
    }
    if let Some(outputs) = &report.outputs {
        let blocks = match outputs.to_height < outputs.from_height {
            true => "no new block".to_owned(),
            false => format!("blocks {} to {}", outputs.from_height, outputs.to_height),
        };
        let payments = counted(outputs.payments, "payment");
        let retried = match outputs.retried {
            0 => String::new(),
            count => format!(", and {} that could not be read before", counted(count, "block")),
        };
        let end = match outputs.is_to_tip {
            true => "",
            false => "; not to the tip yet",
        };
        row(
            out,
            &name("outputs"),
            &format!("{blocks}{retried}: {payments} to addresses of ours{end}"),
        )?;
        for unproven in &outputs.unproven {
            row(
                out,
                "",
                &format!("unproven  {}: {}", unproven.subject, unproven.why),
            )?;
        }
    }
    if let Some(unspent) = &report.unspent {
        let coins = counted(unspent.coins, "coin");
        row(
            out,
            &name("unspent"),
            &format!("{coins} of ours at height {}", unspent.height),
        )?;
    }
    for what in &report.not_looked_for {
        row(out, &report.chain, &format!("not looked for: {what}"))?;
    }
    for unchecked in &report.not_checked {
        row(out, &report.chain, &format!("unproven: {}", unchecked.what))?;
        row(out, "", &format!("next: {}", unchecked.next))?;
    }
    Ok(())
}
