//! The tables that the benches print.

use std::time::Duration;

/// What a ratio or a figure must be.
#[derive(Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for comparison only.
    None,
}

impl Target {
    fn words(self) -> String {
        match self {
            Target::AtLeast(bound) => format!(">= {bound}"),
            Target::AtMost(bound) => format!("<= {bound}"),
            Target::None => String::new(),
        }
    }

    fn verdict(self, value: f64) -> &'static str {
        match self {
            Target::AtLeast(bound) if value < bound => "FAIL",
            Target::AtMost(bound) if value > bound => "FAIL",
            Target::AtLeast(_) | Target::AtMost(_) => "pass",
            Target::None => "",
        }
    }
}

/// A table in the making.
pub struct Table {
    rows: Vec<[String; 5]>,
}

impl Table {
    /// `figure` is the heading of the column of figures.
    pub fn new(figure: &str) -> Self {
        let heads = ["what", figure, "ratio", "target", ""];
        Self {
            rows: vec![heads.map(str::to_owned)],
        }
    }

    /// A figure that others are compared with.
    pub fn figure(&mut self, what: &str, figure: String) {
        let blank = String::new;
        self.rows
            .push([what.to_owned(), figure, blank(), blank(), blank()]);
    }

    /// A figure with what it is of another one.
    pub fn ratio(&mut self, what: &str, figure: String, ratio: f64, target: Target) {
        let verdict = target.verdict(ratio).to_owned();
        let ratio = format!("{ratio:.2}");
        self.rows
            .push([what.to_owned(), figure, ratio, target.words(), verdict]);
    }

    /// A figure with a target of its own.
    pub fn absolute(&mut self, what: &str, figure: f64, target: Target) {
        let verdict = target.verdict(figure).to_owned();
        self.rows.push([
            what.to_owned(),
            format!("{figure:.2}"),
            String::new(),
            target.words(),
            verdict,
        ]);
    }

    pub fn print(&self, title: &str) {
        println!("\n{title}\n");
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
        for [what, figure, ratio, target, verdict] in &self.rows {
            let [w, f, r, t] = widths;
            let line = format!("{what:<w$}  {figure:>f$}  {ratio:>r$}  {target:<t$}  {verdict}");
            println!("  {}", line.trim_end());
        }
        println!();
    }
}

/// The quickest of several runs: what else the machine did can only add.
pub fn best(runs: &[Duration]) -> Duration {
    runs.iter().min().copied().expect("at least one run")
}

/// How often per second.
pub fn per_second(count: u32, span: Duration) -> f64 {
    f64::from(count) / span.as_secs_f64()
}

pub fn quotient(of: Duration, by: Duration) -> f64 {
    of.as_secs_f64() / by.as_secs_f64()
}
