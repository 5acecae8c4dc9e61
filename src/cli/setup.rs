//! `init` and `check`: before the daemon runs.

use super::Outcome;
use super::out::Out;
use crate::config::{Config, DEFAULT_TOML};
use anyhow::Context as _;
use std::io::Write as _;
use std::path::Path;

/// Writes the commented default config, never over an existing file.
pub(super) fn init(out: &mut Out, path: &Path) -> anyhow::Result<Outcome> {
    let doing = || format!("write {}", path.display());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(doing)?;
    file.write_all(DEFAULT_TOML.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(doing)?;
    out.line(format!("wrote {}; edit it, then `creditd check`", path.display()))?;
    out.done()
}

/// Reads the config and says what it means.
pub(super) fn check(out: &mut Out, path: Option<&Path>) -> anyhow::Result<Outcome> {
    let config = Config::load(path)?;
    out.line(format!("config {}: good", config.file.display()))?;
    for chain in &config.bitcoin {
        out.line(format!(
            "chain {}: {} ({})",
            chain.alias, chain.chain, chain.network
        ))?;
    }
    out.done()
}
