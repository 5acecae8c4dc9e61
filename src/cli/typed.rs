//! The command line as it is typed: the commands without the options in their help that they always refuse.

use super::args::Cli;
use clap::{Command, CommandFactory as _};

/// They have no answer in JSON.
const WITHOUT_JSON: [&str; 6] = ["init", "run", "demo", "sandbox", "completions", "man"];

/// They change nothing in the database, or line by line.
const WITHOUT_KEY: [&str; 31] = [
    "init",
    "check",
    "run",
    "tx",
    "credits",
    "balances",
    "jobs",
    "backup",
    "audit",
    "proof",
    "drill",
    "sandbox",
    "trigger",
    "demo",
    "completions",
    "man",
    "watch list",
    "watch import",
    "deposits list",
    "chain status",
    "merchant list",
    "key list",
    "endpoint list",
    "callbacks list",
    "callbacks show",
    "unattributed list",
    "addresses status",
    "inbox list",
    "inbox show",
    "invoices list",
    "invoices show",
];

/// The command line. What is hidden is still understood, and refused with its reason.
pub(super) fn command() -> Command {
    let rows = [("json", &WITHOUT_JSON[..]), ("idempotency_key", &WITHOUT_KEY)];
    rows.into_iter().fold(Cli::command(), |command, (option, paths)| {
        paths
            .iter()
            .fold(command, |command, path| without(command, path, option))
    })
}

/// Hides a global option from the help of one command and of all below it.
fn without(command: Command, path: &str, option: &str) -> Command {
    let Some(hidden) = command.get_arguments().find(|arg| arg.get_id() == option) else {
        unreachable!("{option} is an option of every command");
    };
    let hidden = hidden.clone().hide(true);
    match path.split_once(' ') {
        None => command.mut_subcommand(path, |below| below.arg(hidden)),
        Some((group, path)) => command.mut_subcommand(group, |below| {
            below.mut_subcommand(path, |below| below.arg(hidden))
        }),
    }
}
