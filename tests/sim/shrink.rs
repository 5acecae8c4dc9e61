//! Makes a script that fails small: fewer acts, then simpler ones, as long as it fails in the same way.

use crate::run;
use crate::run::Verdict;
use crate::script::{Act, Line, Script};
use creditd::clock::Clock;

const RUNS_MAX: usize = 600;
const MS_MAX: i64 = 90_000;

struct Shrinker {
    class: String,
    runs: usize,
    until_ms: i64,
}

pub fn shrink(script: &Script, verdict: &Verdict) -> Script {
    let mut shrinker = Shrinker {
        class: verdict.class(),
        runs: 0,
        until_ms: Clock::real().now_ms() + MS_MAX,
    };
    let mut small = script.clone();
    let mut part = small.lines.len().div_ceil(2);
    while part > 0 {
        let before = small.lines.len();
        shrinker.drop_parts(&mut small, part);
        let is_done = part == 1 && small.lines.len() == before;
        part = if part == 1 {
            usize::from(!is_done)
        } else {
            part.div_ceil(2)
        };
        if shrinker.is_over() {
            break;
        }
    }
    for at in 0..small.lines.len() {
        for simpler in simpler(&small.lines[at]) {
            let mut tried = small.clone();
            tried.lines[at] = simpler;
            if shrinker.fails(&tried) {
                small = tried;
            }
        }
    }
    small
}

impl Shrinker {
    fn is_over(&self) -> bool {
        self.runs >= RUNS_MAX || Clock::real().now_ms() > self.until_ms
    }

    fn fails(&mut self, script: &Script) -> bool {
        if self.is_over() {
            return false;
        }
        self.runs += 1;
        run::seed(script).verdict.class() == self.class
    }

    /// Leaves away each part of `part` lines that is not needed, the last ones first.
    fn drop_parts(&mut self, small: &mut Script, part: usize) {
        let mut end = small.lines.len();
        while end > 0 {
            let start = end.saturating_sub(part);
            let mut tried = small.clone();
            tried.lines.drain(start..end.min(tried.lines.len()));
            if self.fails(&tried) {
                *small = tried;
            }
            end = start;
        }
    }
}

/// The same line with less in it.
fn simpler(line: &Line) -> Vec<Line> {
    let with = |act: Act| Line { act, ..line.clone() };
    let mut simpler = vec![];
    if line.wait_ms > 0 {
        simpler.push(Line {
            wait_ms: 0,
            ..line.clone()
        });
    }
    if let Act::Mine {
        chain,
        txs,
        coinbase,
        on,
        work,
    } = &line.act
    {
        let mine = |txs: &[_], coinbase: Option<Vec<_>>| Act::Mine {
            chain: *chain,
            txs: txs.to_vec(),
            coinbase,
            on: *on,
            work: *work,
        };
        simpler.push(with(mine(&[], None)));
        simpler.push(with(mine(txs, None)));
        if txs.len() > 1 {
            simpler.push(with(mine(&txs[..1], coinbase.clone())));
            simpler.push(with(mine(&txs[1..], coinbase.clone())));
        }
    }
    simpler
}
