//! `trigger`.

use super::sandbox_args::Trigger;
use super::{Outcome, Problem};
use std::net::TcpStream;
use std::time::Duration;

/// Nodes on the same machine answer at once or not at all.
const LONGEST: Duration = Duration::from_secs(2);

/// Tells a sandbox what is to happen.
pub(super) fn trigger(args: &Trigger) -> anyhow::Result<Outcome> {
    let next = "`creditd sandbox` starts one; --sandbox says where it listens";
    Err(match TcpStream::connect_timeout(&args.sandbox, LONGEST) {
        Err(error) => Problem::misuse(format!("no sandbox answers at {}: {error}", args.sandbox), next),
        Ok(_) => {
            let text = format!(
                "what listens at {} takes no {:?}",
                args.sandbox,
                args.words.join(" ")
            );
            Problem::found(text, next)
        }
    }
    .into())
}
