//! What a database holds beside what creditd made.

use super::{Line, Verdict};

/// Somebody's own index may make creditd slow, and a unique one refuses its rows.
pub(super) fn with(line: Line, beside: &[String]) -> Line {
    if beside.is_empty() || line.verdict != Verdict::Good {
        return line;
    }
    Line {
        verdict: Verdict::Warning,
        found: format!("{}, and beside it {}", line.found, beside.join(", ")),
        next_step: "nothing if you made that; creditd did not, and drops nothing".to_owned(),
        ..line
    }
}
