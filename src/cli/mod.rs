//! The command line: parses what was typed, asks the store, prints. It decides nothing about money; start at
//! [`main`], then at the file named like the command.

mod args;
mod out;
mod setup;

use crate::config::{Config, ConfigError};
use anyhow::Context as _;
use args::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};
use out::Out;
use std::process::ExitCode;

/// How a command ended when it could run at all.
enum Outcome {
    /// Done: exit code 0.
    Done,
    /// It ran and found a problem, and has said so: exit code 1.
    Found,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Err(error) if out::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out::print_error(&error);
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let mut out = Out::new(cli.json);
    match &cli.command {
        Command::Init { path } => setup::init(&mut out, path),
        Command::Check => setup::check(&mut out, cli.config.as_deref()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "creditd", &mut script);
            out.bytes(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut page)
                .context("render the manual page")?;
            out.bytes(&page)
        }
        Command::Run => {
            let config = load(cli)?;
            crate::telemetry::start_logging(config.log);
            crate::daemon::run(&config)?;
            Ok(Outcome::Done)
        }
        Command::Watch(_)
        | Command::Tx { .. }
        | Command::Deposits(_)
        | Command::Credits(_)
        | Command::Balances { .. }
        | Command::Chain(_)
        | Command::Rescan { .. }
        | Command::Backup { .. } => {
            load(cli)?;
            anyhow::bail!("this command is not part of this build yet")
        }
    }
}

fn load(cli: &Cli) -> Result<Config, ConfigError> {
    Config::load(cli.config.as_deref())
}
