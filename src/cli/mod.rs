//! The command line: parses what was typed, asks the store, prints. It decides nothing about money; start at
//! [`main`], then at the file named like the command.

mod address_args;
mod addresses;
mod args;
mod audit;
mod audit_args;
mod callback_args;
mod callbacks;
mod chain;
mod deposits;
mod drill;
mod drill_args;
mod endpoints;
mod ids;
mod import;
mod inbox;
mod inbox_args;
mod invoice_args;
mod invoices;
mod jobs;
mod key_args;
mod keys;
mod ledger;
mod limits;
mod once;
mod open;
mod out;
mod pages;
mod progress;
mod proof;
mod proof_args;
mod repair;
mod report_file;
mod resend;
mod restored;
mod restored_args;
mod sandbox;
mod sandbox_args;
mod setup;
mod table;
#[cfg(test)]
mod tests;
mod trial;
mod trigger;
mod tx;
mod typed;
mod unattributed;
mod unattributed_args;
mod watch;
mod watch_args;
mod words;

use crate::config::{Config, ConfigError};
use crate::rules::Script;
use crate::store::report::{self, Filter, Listed};
use crate::store::{AddressKind, StoreError};
use address_args::Addresses;
use args::{Chain, ChainArg, Cli, Command, Deposits, Listing, Page};
use callback_args::{CallbackFilter, CallbackRetry, Callbacks, Endpoints};
use clap::{ArgMatches, FromArgMatches as _};
use import::Import;
use inbox_args::InboxCommand;
use invoice_args::Invoices;
use key_args::{Keys, Merchants};
use once::{Keyed, Opened};
use open::Chains;
use out::Out;
use std::path::PathBuf;
use std::process::ExitCode;
use table::Table;
use thiserror::Error;
use unattributed_args::Unattributed;
use watch_args::Watch;

/// Names the config file where `--config` does not.
const CONFIG_VAR: &str = "CREDITD_CONFIG";

/// How a command ended when it could run at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Done: exit code 0.
    Done,
    /// It ran and found a problem, and has said so: exit code 1.
    Found,
}

/// Why a command could not do what was asked, and what to do about it.
#[derive(Debug, Error)]
#[error("{text}")]
struct Problem {
    text: String,
    next: String,
    exit_code: u8,
}

impl Problem {
    /// The command ran, and this is what it found: exit code 1.
    fn found(text: impl Into<String>, next: impl Into<String>) -> Problem {
        Problem {
            text: text.into(),
            next: next.into(),
            exit_code: 1,
        }
    }

    /// What was typed makes no sense here: exit code 2.
    fn misuse(text: impl Into<String>, next: impl Into<String>) -> Problem {
        Problem {
            exit_code: 2,
            ..Problem::found(text, next)
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    limits::survive_file_size();
    let typed = typed::command().try_get_matches();
    let parsed = typed.and_then(|typed| {
        let cli = Cli::from_arg_matches(&typed);
        let cli = cli.map_err(|error| error.format(&mut typed::command()))?;
        let config = cli
            .config
            .or_else(|| std::env::var_os(CONFIG_VAR).map(PathBuf::from));
        Ok((Cli { config, ..cli }, typed))
    });
    let (cli, typed) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(out::print_usage(error)),
    };
    match run(&cli, &typed) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Err(error) if out::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out::print_error(&error);
            ExitCode::from(out::exit_code(&error))
        }
    }
}

fn run(cli: &Cli, typed: &ArgMatches) -> anyhow::Result<Outcome> {
    refuse_json(cli)?;
    match Keyed::of(cli, typed)? {
        None => answer(cli, &mut Out::new(cli.json)),
        Some(keyed) => once::once(&load(cli)?, keyed, cli.json, |out| answer(cli, out)),
    }
}

fn answer(cli: &Cli, out: &mut Out) -> anyhow::Result<Outcome> {
    match &cli.command {
        Command::Init { path } => setup::init(out, path),
        Command::Check => setup::check(out, cli.config.as_deref()),
        Command::Completions { shell } => pages::completions(out, *shell),
        Command::Man => pages::man(out),
        Command::Watch(command) => watch(out, &load(cli)?, command),
        Command::Tx { txid } => tx::tx(out, &load(cli)?, txid),
        Command::Deposits(command) => deposits(out, &load(cli)?, command),
        Command::Credits(listing) => ledger::credits(out, &load(cli)?, listing),
        Command::Balances(args) => ledger::balances(out, &load(cli)?, args),
        Command::Chain(command) => chain(out, &load(cli)?, command),
        Command::Endpoint(command) => endpoint(out, &load(cli)?, command),
        Command::Merchant(Merchants::Add { slug }) => keys::add_merchant(out, &load(cli)?, slug),
        Command::Merchant(Merchants::List) => keys::list_merchants(out, &load(cli)?),
        Command::Key(command) => key(out, &load(cli)?, command),
        Command::Callbacks(command) => callbacks(out, &load(cli)?, command),
        Command::Unattributed(command) => unattributed(out, &load(cli)?, command),
        Command::Addresses(Addresses::Status) => addresses::status(out, &load(cli)?),
        Command::Addresses(Addresses::Repin(args)) => addresses::repin(out, &load(cli)?, args),
        Command::Inbox(InboxCommand::List(args)) => inbox::list(out, &load(cli)?, args),
        Command::Inbox(InboxCommand::Show { id }) => inbox::show(out, &load(cli)?, id),
        Command::Inbox(InboxCommand::Retry { id, repair }) => inbox::retry(out, &load(cli)?, id, repair),
        Command::Invoices(command) => invoices(out, &load(cli)?, command),
        Command::Jobs => jobs::jobs(out, &load(cli)?),
        Command::Run => {
            let config = load(cli)?;
            crate::telemetry::start_logging(config.log);
            crate::daemon::run(&config)?;
            Ok(Outcome::Done)
        }
        Command::Demo { keep } => match crate::demo::run(*keep)? {
            true => Ok(Outcome::Done),
            false => Ok(Outcome::Found),
        },
        Command::Audit(args) => audit::audit(out, &load(cli)?, args),
        Command::Proof(args) => proof::proof(out, || Ok(load(cli)?), args),
        Command::Drill(args) => drill::drill(out, &load(cli)?, args),
        Command::Sandbox(args) => sandbox::sandbox(out, args),
        Command::Trigger(args) => trigger::trigger(out, args),
        Command::Restored(args) => restored::restored(out, &load(cli)?, args),
        Command::Rescan(args) => repair::rescan(out, &load(cli)?, args),
        Command::Backup { file, replace } => setup::backup(out, &load(cli)?, file, *replace),
    }
}

/// A flag that would be without effect is refused.
fn refuse_json(cli: &Cli) -> Result<(), Problem> {
    let name = match &cli.command {
        Command::Init { .. } => "init",
        Command::Run => "run",
        Command::Demo { .. } => "demo",
        Command::Sandbox(_) => "sandbox",
        Command::Completions { .. } => "completions",
        Command::Man => "man",
        Command::Check
        | Command::Watch(_)
        | Command::Tx { .. }
        | Command::Deposits(_)
        | Command::Credits(_)
        | Command::Balances(_)
        | Command::Chain(_)
        | Command::Endpoint(_)
        | Command::Merchant(_)
        | Command::Key(_)
        | Command::Callbacks(_)
        | Command::Unattributed(_)
        | Command::Addresses(_)
        | Command::Inbox(_)
        | Command::Invoices(_)
        | Command::Jobs
        | Command::Rescan(_)
        | Command::Restored(_)
        | Command::Audit(_)
        | Command::Proof(_)
        | Command::Drill(_)
        | Command::Trigger(_)
        | Command::Backup { .. } => return Ok(()),
    };
    match cli.json {
        true => Err(Problem::misuse(
            format!("`creditd {name}` has no answer in JSON"),
            "leave out --json",
        )),
        false => Ok(()),
    }
}

fn watch(out: &mut Out, config: &Config, command: &Watch) -> anyhow::Result<Outcome> {
    match command {
        Watch::Add(watched) => watch::add(out, config, watched, AddressKind::Watch),
        Watch::Own(watched) => watch::add(out, config, watched, AddressKind::Own),
        Watch::List {
            chain,
            page,
            merchant,
            address,
            reference,
        } => {
            let filter = Filter {
                merchant: merchant.clone(),
                script: script(config, chain, address.as_deref())?,
                reference: reference.clone(),
                ..Filter::default()
            };
            watch::list(out, config, chain, page, filter)
        }
        Watch::Import {
            file,
            merchant,
            own,
            chain,
        } => {
            let kind = if *own {
                AddressKind::Own
            } else {
                AddressKind::Watch
            };
            let merchant = merchant.as_deref();
            import::import(
                out,
                config,
                &Import {
                    file,
                    merchant,
                    kind,
                    chain,
                },
            )
        }
    }
}

fn deposits(out: &mut Out, config: &Config, command: &Deposits) -> anyhow::Result<Outcome> {
    match command {
        Deposits::List { listing, state, held } => deposits::list(out, config, listing, *state, *held),
        Deposits::Hold(args) => repair::hold(out, config, args),
        Deposits::Release(args) => repair::release(out, config, args),
    }
}

fn chain(out: &mut Out, config: &Config, command: &Chain) -> anyhow::Result<Outcome> {
    match command {
        Chain::Status => chain::status(out, config),
        Chain::AcceptReorg(args) => repair::accept_reorg(out, config, args),
    }
}

fn endpoint(out: &mut Out, config: &Config, command: &Endpoints) -> anyhow::Result<Outcome> {
    let whole = |id: &str| ids::whole_in(config, id);
    match command {
        Endpoints::Add(args) => endpoints::add(out, config, args),
        Endpoints::List(args) => {
            let invoice = args.invoice.as_deref().map(whole).transpose()?;
            endpoints::list(out, config, args, invoice)
        }
        Endpoints::Pause(args) => endpoints::set_paused(out, config, &whole(&args.id)?, true, &args.repair),
        Endpoints::Resume(args) => endpoints::set_paused(out, config, &whole(&args.id)?, false, &args.repair),
        Endpoints::RotateSecret {
            id,
            overlap_hours,
            repair,
        } => endpoints::rotate(out, config, &whole(id)?, *overlap_hours, repair),
        Endpoints::Test { id, wait_secs } => trial::test(out, config, &whole(id)?, *wait_secs),
    }
}

fn key(out: &mut Out, config: &Config, command: &Keys) -> anyhow::Result<Outcome> {
    match command {
        Keys::Create(args) => keys::create(out, config, args),
        Keys::List => keys::list(out, config),
        Keys::Revoke { id, repair } => keys::revoke(out, config, &ids::whole_in(config, id)?, repair),
    }
}

fn unattributed(out: &mut Out, config: &Config, command: &Unattributed) -> anyhow::Result<Outcome> {
    match command {
        Unattributed::List(args) => unattributed::list(out, config, args),
        Unattributed::Close(args) => {
            unattributed::close(out, config, &ids::whole_in(config, &args.id)?, args)
        }
    }
}

fn invoices(out: &mut Out, config: &Config, command: &Invoices) -> anyhow::Result<Outcome> {
    match command {
        Invoices::List(args) => invoices::list(out, config, args),
        Invoices::Show { id } => invoices::show(out, config, id),
        Invoices::Cancel { id, repair } => invoices::cancel(out, config, id, repair),
    }
}

fn callbacks(out: &mut Out, config: &Config, command: &Callbacks) -> anyhow::Result<Outcome> {
    match command {
        Callbacks::List(args) => {
            let endpoint = args.endpoint.as_ref().map(|id| ids::whole_in(config, id));
            let args = CallbackFilter {
                endpoint: endpoint.transpose()?,
                state: args.state,
                page: args.page.clone(),
            };
            callbacks::list(out, config, &args)
        }
        Callbacks::Show { event } => callbacks::show(out, config, &ids::whole_in(config, event)?),
        Callbacks::Retry(args) => {
            let whole = |id: &Option<String>| id.as_ref().map(|id| ids::whole_in(config, id)).transpose();
            let args = CallbackRetry {
                event: whole(&args.event)?,
                endpoint: whole(&args.endpoint)?,
                parked: args.parked,
                repair: args.repair.clone(),
            };
            resend::retry(out, config, &args)
        }
    }
}

/// The filters that deposits and credits share.
fn filter(config: &Config, database: &Opened, chains: &Chains, listing: &Listing) -> anyhow::Result<Filter> {
    let txid = |text: &String| {
        open::txid(text).ok_or_else(|| {
            Problem::misuse(format!("{text:?} is no transaction id"), "give its 64 hex digits")
        })
    };
    let chain = chains.filter(config, &listing.chain)?;
    let assets = listing
        .asset
        .as_ref()
        .map(|typed| chains.assets(database, chain, typed));
    Ok(Filter {
        chain,
        assets: assets.transpose()?,
        merchant: listing.merchant.clone(),
        script: script(config, &listing.chain, listing.address.as_deref())?,
        reference: listing.reference.clone(),
        txid: listing.txid.as_ref().map(txid).transpose()?,
        ..Filter::default()
    })
}

/// The script of an address that a list is asked for.
fn script(config: &Config, chain: &ChainArg, address: Option<&str>) -> Result<Option<Script>, Problem> {
    match address {
        Some(text) => open::script_on_any(config, chain, text),
        None => Ok(None),
    }
}

fn load(cli: &Cli) -> Result<Config, ConfigError> {
    Config::load(cli.config.as_deref())
}

/// Rows that are held in memory while a whole list is written.
const CSV_ROWS: u32 = 10_000;

/// How rows are shown that all commands list alike.
struct Shapes<J> {
    /// Their key in JSON.
    name: &'static str,
    /// What is said where there are none.
    empty: &'static str,
    table: fn(Vec<J>) -> Table,
    csv: fn(Vec<J>) -> Table,
}

/// Lists rows as they were asked for: a page as a table or in JSON, a page or all of them as comma-separated
/// values.
fn list<T, J: serde::Serialize>(
    out: &mut Out,
    args: &Listing,
    shapes: &Shapes<J>,
    read: impl FnMut(report::Page) -> Result<Vec<Listed<T>>, StoreError>,
    shown: impl Fn(Vec<Listed<T>>) -> Vec<J>,
) -> anyhow::Result<Outcome> {
    list_page(out, (&args.page, args.csv), shapes, read, shown)
}

/// The same by what of the options it needs.
fn list_page<T, J: serde::Serialize>(
    out: &mut Out,
    (page, is_csv): (&Page, bool),
    shapes: &Shapes<J>,
    read: impl FnMut(report::Page) -> Result<Vec<Listed<T>>, StoreError>,
    shown: impl Fn(Vec<Listed<T>>) -> Vec<J>,
) -> anyhow::Result<Outcome> {
    if is_csv {
        return csv(out, page, read, |rows| (shapes.csv)(shown(rows)));
    }
    let (rows, next) = read_page(open::page(page), read)?;
    let rows = shown(rows);
    if out.json {
        return out.list(shapes.name, &rows, next);
    }
    out.table(&(shapes.table)(rows), shapes.empty, next)
}

/// Writes a list as comma-separated values: the page that was asked for, or else all of it.
fn csv<T>(
    out: &mut Out,
    page: &Page,
    mut read: impl FnMut(report::Page) -> Result<Vec<Listed<T>>, StoreError>,
    table: impl Fn(Vec<Listed<T>>) -> Table,
) -> anyhow::Result<Outcome> {
    let mut at = report::Page {
        after: page.after,
        limit: page.limit.unwrap_or(CSV_ROWS),
    };
    let mut is_first = true;
    loop {
        let (rows, next) = read_page(at, &mut read)?;
        out.csv(&table(rows), is_first)?;
        match next {
            Some(after) if page.limit.is_none() => at.after = Some(after),
            Some(_) | None => return out.done(),
        }
        is_first = false;
    }
}

/// A page, and where the one after it begins, if there is any: a row more than is shown is asked for.
fn read_page<T, E>(
    page: report::Page,
    read: impl FnOnce(report::Page) -> Result<Vec<Listed<T>>, E>,
) -> Result<(Vec<Listed<T>>, Option<i64>), E> {
    let shown = page.limit as usize;
    let mut rows = read(report::Page {
        limit: page.limit.saturating_add(1),
        ..page
    })?;
    let is_more = rows.len() > shown;
    rows.truncate(shown);
    let next = rows.last().filter(|_| is_more).map(|last| last.position);
    Ok((rows, next))
}
