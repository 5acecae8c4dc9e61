//! A script as text, for people and for regressions: a head, then one line per act, `+WAIT ACT`, both as
//! JSON. Lines that begin with `#` are for people alone.

use super::{Act, Kind, Line, Script, Terms};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

#[derive(Serialize, Deserialize)]
struct Head {
    seed: u64,
    kind: Kind,
    terms: Terms,
}

impl Script {
    pub fn print(&self) -> String {
        let head = Head {
            seed: self.seed,
            kind: self.kind,
            terms: self.terms.clone(),
        };
        let mut text = format!("sim 1 {}\n", serde_json::to_string(&head).unwrap());
        for line in &self.lines {
            writeln!(text, "{}", line.print()).unwrap();
        }
        text
    }

    pub fn parse(text: &str) -> Result<Script, String> {
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let head = lines.next().unwrap_or_default();
        let head = head
            .strip_prefix("sim 1 ")
            .ok_or("the head is not `sim 1 {...}`")?;
        let head: Head = serde_json::from_str(head).map_err(|error| format!("the head: {error}"))?;
        Ok(Script {
            seed: head.seed,
            kind: head.kind,
            terms: head.terms,
            lines: lines.map(Line::parse).collect::<Result<_, _>>()?,
        })
    }
}

impl Line {
    pub fn print(&self) -> String {
        let at = match self.label {
            0 => String::new(),
            label => format!("@{label}"),
        };
        format!(
            "+{}{at} {}",
            self.wait_ms,
            serde_json::to_string(&self.act).unwrap()
        )
    }

    fn parse(text: &str) -> Result<Line, String> {
        let wrong = |why: String| format!("`{text}`: {why}");
        let (when, act) = text
            .strip_prefix('+')
            .and_then(|text| text.split_once(' '))
            .ok_or_else(|| wrong("no `+WAIT ACT`".to_owned()))?;
        let (wait, label) = when.split_once('@').unwrap_or((when, "0"));
        let number = |text: &str| text.parse().map_err(|error| wrong(format!("{text}: {error}")));
        let act: Act = serde_json::from_str(act).map_err(|error| wrong(error.to_string()))?;
        Ok(Line {
            wait_ms: number(wait)?,
            label: number(label)?,
            act,
        })
    }
}
