//! The simulator: drives the whole daemon (follower, store, deliverer, API) from one number, with a disk,
//! nodes, receivers and clients that fail, and asks after every step whether the books still hold. Start at
//! `seed`, which is one seed; `script` is what may happen. How to use it: docs/simulation.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]
#![allow(
    dead_code,
    unused_imports,
    reason = "what is shared with other tests is more than is used here"
)]

#[path = "../world/dice.rs"]
mod dice;
#[path = "../world/scripted/mod.rs"]
mod scripted;
#[path = "../world/tables.rs"]
mod tables;

mod again;
mod answers;
mod batch;
mod bugs;
mod checks;
mod clients;
mod death;
mod disk;
mod feeding;
mod history;
mod inbox;
mod life;
mod marks;
mod naive;
mod operators;
mod parts;
mod receivers;
mod rest;
mod run;
mod script;
mod seed;
mod setting;
mod shrink;
mod world;

use batch::Batch;
use run::Exit;
use script::{Kind, Script};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: sim [batch | seed N | file PATH... | bugs [NN] | parts | marks]
  (nothing)          all of tests/regressions, and 40 seeds
  batch              seeds from --first (1), --seeds of them (2000), on --jobs threads (2)
    --secs S         no seed is begun after so long
    --until-found    ends at the first seed that fails
  seed N             one seed; what happens is printed; --print: only its script
  file PATH...       scripts, as `--print` and a failure write them
  bugs [NN...]       plants the bugs of tests/bugs, one after the other: each must be found
    --rest           only those that tests/bugs/table.md does not say are found
    --together       all of them in one build, each behind a switch (tests/bugs/switches.diff)
    --built PATH     the same, and this is that build
  parts              short stories of the simulator's own parts
  marks              what has to take effect in a batch of 500 seeds or more
Everywhere: --acts N (300), --kind Btc|Evm|Both|WireEvm
Ends with 0 fine, 1 wrong, 2 could not run, 3 stuck, 4 crashed, 5 something never took effect,
6 two runs of one seed differ, 7 cut by --secs before all seeds had run.";

/// The command line: a word, what it is about, and options.
#[derive(Debug)]
struct Args {
    words: Vec<String>,
    options: Vec<(String, Option<String>)>,
}

impl Args {
    fn read(args: impl Iterator<Item = String>) -> Args {
        let (mut words, mut options) = (vec![], vec![]);
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            match arg.strip_prefix("--") {
                Some(
                    "until-found" | "rest" | "together" | "print" | "help" | "list" | "ignored" | "nocapture",
                ) => {
                    options.push((arg, None));
                }
                Some(_) => {
                    let value = args.next();
                    options.push((arg, value));
                }
                None => words.push(arg),
            }
        }
        Args { words, options }
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(name, _)| name == option)
    }

    fn number(&self, option: &str, usual: u64) -> Result<u64, String> {
        let Some((_, value)) = self.options.iter().find(|(name, _)| name == option) else {
            return Ok(usual);
        };
        let value = value.as_deref().unwrap_or_default();
        value
            .parse()
            .map_err(|_| format!("{option} wants a number, not `{value}`"))
    }

    /// Are all bugs planted in one build, and where is it if it is there?
    fn together(&self) -> Option<Option<&Path>> {
        let built = self.options.iter().find(|(name, _)| name == "--built");
        let built = built.and_then(|(_, value)| value.as_deref().map(Path::new));
        (built.is_some() || self.has("--together")).then_some(built)
    }

    fn kind(&self) -> Result<Option<Kind>, String> {
        let Some((_, value)) = self.options.iter().find(|(name, _)| name == "--kind") else {
            return Ok(None);
        };
        let kind = serde_json::to_string(&value).and_then(|text| serde_json::from_str(&text));
        kind.map(Some).map_err(|error| format!("--kind: {error}"))
    }
}

fn main() -> ExitCode {
    let args = Args::read(std::env::args().skip(1));
    // The test runner asks for names; there are none that it should run by itself.
    if args.has("--list") {
        return ExitCode::SUCCESS;
    }
    if args.has("--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match act(&args) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(why) => {
            eprintln!("sim: {why}\n{USAGE}");
            ExitCode::from(Exit::CouldNotRun as u8)
        }
    }
}

fn act(args: &Args) -> Result<Exit, String> {
    run::prepare()?;
    let acts = args.number("--acts", 300)? as usize;
    let batch = Batch {
        first: args.number("--first", 1)?,
        seeds: args.number("--seeds", 2_000)?,
        jobs: args.number("--jobs", 2)?.max(1) as usize,
        secs: args.number("--secs", u64::MAX)?,
        acts,
        kind: args.kind()?,
        is_until_found: args.has("--until-found"),
    };
    let about: Vec<&str> = args.words.iter().skip(1).map(String::as_str).collect();
    match args.words.first().map(String::as_str) {
        None => match batch::regressions()? {
            Exit::Fine => Ok(Batch { seeds: 40, ..batch }.run()),
            exit => Ok(exit),
        },
        // Where a bug was planted, how many seeds it takes is the question.
        Some("batch") if batch.is_until_found => Ok(batch.run()),
        Some("batch") => match batch::regressions()? {
            Exit::Fine => Ok(batch.run()),
            exit => Ok(exit),
        },
        Some("seed") => {
            let seed = about.first().ok_or("seed wants a number")?;
            let seed = seed.parse().map_err(|_| format!("`{seed}` is no seed"))?;
            let script = Script::draw(seed, acts, args.kind()?);
            if args.has("--print") {
                println!("{}", script.print());
                return Ok(Exit::Fine);
            }
            Ok(batch::show(&script))
        }
        Some("file") => batch::files(&about),
        Some("bugs") => bugs::run(&about, args.has("rest"), args.together()),
        Some("parts") => {
            parts::run();
            Ok(Exit::Fine)
        }
        Some("marks") => {
            marks::table().iter().for_each(|line| println!("{line}"));
            Ok(Exit::Fine)
        }
        Some(word) => Err(format!("`{word}` is no command")),
    }
}
