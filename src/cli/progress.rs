//! How far a command is: on a terminal one line that is drawn again and again, else lines.

use super::out;
use crate::audit::Word;
use crate::telemetry::{printable, thousands};
use std::io::{IsTerminal as _, Write as _};

const CELLS: u64 = 24;

/// To the begin of the line and clear it. Without wrapping: a line that is wider than the terminal would
/// else be left standing at each turn.
const BEGIN: &str = "\r\u{1b}[K\u{1b}[?7l";
const END: &str = "\u{1b}[?7h";
const CLEAR: &str = "\r\u{1b}[K";

/// What is told on the way, to stderr. It takes its line away when it goes.
pub(super) struct Progress {
    /// False: everything is a line.
    is_drawing: bool,
    /// The line that stands there is ours.
    is_drawn: bool,
}

impl Progress {
    /// Draws where a person looks on; `is_json`: a program does.
    pub(super) fn new(is_json: bool) -> Progress {
        Progress {
            is_drawing: !is_json && std::io::stderr().is_terminal(),
            is_drawn: false,
        }
    }

    pub(super) fn is_drawing(&self) -> bool {
        self.is_drawing
    }

    pub(super) fn tell(&mut self, word: Word<'_>) {
        match word {
            Word::Part {
                name,
                done,
                all,
                per_second,
                ..
            } if self.is_drawing => {
                let line = drawn(name, done, all, per_second, CELLS);
                let _ = write!(std::io::stderr(), "{BEGIN}{}{END}", printable(&line));
                self.is_drawn = true;
            }
            Word::Line(line) | Word::Part { line, .. } => {
                self.clear();
                out::note(line);
            }
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(std::io::stderr(), "{CLEAR}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `btc outputs  [######------]  50%  1,500 of 3,000, 25 a second, 1 min left`. What grew past its end is
/// whole, and so is nothing of nothing.
fn drawn(name: &str, done: u64, all: u64, per_second: Option<u64>, cells: u64) -> String {
    let share = |of: u64| match all {
        0 => of,
        _ => u64::try_from(u128::from(done.min(all)) * u128::from(of) / u128::from(all)).unwrap_or(of),
    };
    let full = usize::try_from(share(cells)).unwrap_or(0);
    let rest = usize::try_from(cells).unwrap_or(0) - full;
    let mut line = format!(
        "{name}  [{}{}] {:>3}%  {} of {}",
        "#".repeat(full),
        "-".repeat(rest),
        share(100),
        thousands(done),
        thousands(all)
    );
    if let Some(rate) = per_second.filter(|rate| *rate > 0) {
        line += &format!(", {} a second", thousands(rate));
        let secs = all.saturating_sub(done) / rate;
        line += &match secs {
            0..60 => String::new(),
            60..7_200 => format!(", {} min left", secs / 60),
            _ => format!(", {} h left", secs / 3_600),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_much_of_how_much() {
        for (done, all, rate, expected) in [
            (0, 300_000, None, "[----------]   0%  0 of 300,000"),
            (123_456, 300_000, None, "[####------]  41%  123,456 of 300,000"),
            (299_999, 300_000, None, "[#########-]  99%  299,999 of 300,000"),
            (3, 3, None, "[##########] 100%  3 of 3"),
            (5, 3, Some(1), "[##########] 100%  5 of 3, 1 a second"),
            (0, 0, Some(0), "[##########] 100%  0 of 0"),
            (
                1_500,
                3_000,
                Some(25),
                "[#####-----]  50%  1,500 of 3,000, 25 a second, 1 min left",
            ),
            (
                0,
                900_000,
                Some(10),
                "[----------]   0%  0 of 900,000, 10 a second, 25 h left",
            ),
        ] {
            assert_eq!(
                drawn("btc outputs", done, all, rate, 10),
                format!("btc outputs  {expected}")
            );
        }
        assert!(drawn("x", u64::MAX, u64::MAX, None, 4).starts_with("x  [####] 100%"));
    }
}
