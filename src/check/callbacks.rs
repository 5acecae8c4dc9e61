//! What callbacks need beside the network.

use super::{Line, Verdict, line};
use crate::config::Config;
use crate::egress::{GuardedDial, SystemResolver};
use crate::telemetry::error_line;
use std::sync::Arc;

/// The certificates that the config names.
pub(super) fn line_of(config: &Config) -> Line {
    let callbacks = &config.callbacks;
    let (policy, ca_file) = (callbacks.policy.clone(), callbacks.ca_file.as_deref());
    match (
        GuardedDial::new(policy, Arc::new(SystemResolver), ca_file),
        ca_file,
    ) {
        (Ok(_), None) => line(
            "callbacks",
            Verdict::Good,
            "the public authorities are believed",
            "",
        ),
        (Ok(_), Some(file)) => {
            let found = format!(
                "the public authorities are believed, and those in {}",
                file.display()
            );
            line("callbacks", Verdict::Good, found, "")
        }
        (Err(error), _) => line(
            "callbacks",
            Verdict::Bad,
            error_line(&error),
            "put the certificates (PEM) there, readable for creditd, or correct `ca_file`",
        ),
    }
}
