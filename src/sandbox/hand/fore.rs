//! What can be said of a scenario before any step of it is done: amounts, tokens, addresses, names, and what
//! a chain does not have. Whether there is enough to pay with, or something to replace, only the step tells.

use super::*;
use crate::sandbox::scenario::{Fault, Line, Tried};

/// The faults of the lines that can be read, where these names stand for something already.
pub(in crate::sandbox) fn faults(lines: &[Tried<'_>], names: BTreeMap<String, On>) -> Vec<Fault> {
    let mut known = Names {
        names,
        is_open: false,
    };
    let mut faults = Vec::new();
    for Tried { number, words, line } in lines {
        let told = match line {
            Ok(Line::Step(on, step)) => known.foresee(*on, step),
            // Others may name something meanwhile.
            Ok(Line::Wait(_) | Line::Pause) => {
                known.is_open = true;
                Ok(())
            }
            Err(_) => {
                known.allow_for(words);
                Ok(())
            }
        };
        if let Err(Refused { error, next }) = told {
            faults.push(Fault {
                number: *number,
                what: format!("{error}: {next}"),
            });
        }
    }
    faults
}

struct Names {
    names: BTreeMap<String, On>,
    /// There may be others.
    is_open: bool,
}

impl Names {
    fn foresee(&mut self, on: On, step: &Step) -> Result<(), Refused> {
        for tx in used(step) {
            self.find(on, tx)?;
        }
        // Also where it is faulty: later lines are not to blame.
        if let Some(name) = given(step) {
            self.names.insert(name.clone(), on);
        }
        match on {
            On::Btc => bitcoin::foresee(step),
            On::Evm => evm::foresee(step),
        }
    }

    /// What a line that cannot be read may do once it is mended: later lines are not to blame.
    fn allow_for(&mut self, words: &[&str]) {
        let Some(on) = words.first().and_then(|word| On::of_word(word)) else {
            // It may be a wait or a pause.
            self.is_open = true;
            return;
        };
        let at = words.iter().position(|word| *word == "as");
        if let Some(name) = at.and_then(|at| words.get(at + 1)) {
            self.names.insert((*name).to_owned(), on);
        }
    }

    fn find(&self, on: On, text: &str) -> Result<(), Refused> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        match self.names.get(text) {
            Some(of) if *of == on => Ok(()),
            _ if self.is_open || BlockHash::from_hex(digits).is_some() => Ok(()),
            Some(of) => Err(Refused::new(
                format!("{text} is a transaction of {}", of.word()),
                format!("say {} where it says {}", of.word(), on.word()),
            )),
            None => Err(Refused::new(
                format!("no transaction is called {text:?} here"),
                "name it where it is made, with `as NAME`",
            )),
        }
    }
}

fn used(step: &Step) -> Vec<&str> {
    match step {
        Step::DoubleSpend(rival) | Step::Replace(rival) => vec![&rival.tx],
        Step::Reorg(reorg) => {
            let kept = reorg.keep.iter().map(String::as_str);
            kept.filter(|tx| *tx != "all").collect()
        }
        Step::Evict(of) | Step::Resend(of) | Step::Fail(of) => vec![&of.tx],
        Step::Deposit(_) | Step::Lag(_) | Step::Mine(_) | Step::Tags(_) | Step::Node(_) => Vec::new(),
    }
}

fn given(step: &Step) -> Option<&String> {
    match step {
        Step::Deposit(deposit) => deposit.name.as_ref(),
        Step::DoubleSpend(rival) | Step::Replace(rival) => rival.name.as_ref(),
        Step::Reorg(_)
        | Step::Evict(_)
        | Step::Resend(_)
        | Step::Fail(_)
        | Step::Lag(_)
        | Step::Mine(_)
        | Step::Tags(_)
        | Step::Node(_) => None,
    }
}
