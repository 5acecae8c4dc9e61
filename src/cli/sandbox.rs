//! `sandbox`.

use super::Outcome;
use super::out::Out;
use super::sandbox_args::Sandbox;
use crate::clock::Clock;
use crate::sandbox::{self, evm::EvmSandbox};
use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// The chain id of local development nodes.
const CHAIN_ID: u64 = 31_337;

/// Runs simulated nodes until Ctrl-C.
pub(super) fn sandbox(out: &mut Out, args: &Sandbox) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("make the folder {}", args.folder.display()))?;
    let clock = Clock::real();
    let bitcoin = sandbox::Sandbox::start(&args.folder, clock)?;
    let evm = EvmSandbox::start(CHAIN_ID, clock)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the sandbox")?;
    let mut interrupt = {
        let _context = runtime.enter();
        signal(SignalKind::interrupt()).context("start the sandbox")?
    };
    out.line(format!(
        "bitcoin  {}  regtest, log in with {}",
        bitcoin.url(),
        bitcoin.cookie_file().display()
    ))?;
    out.line(format!("evm      {}  chain id {CHAIN_ID}", evm.url()))?;
    out.done()?;
    runtime.block_on(interrupt.recv());
    Ok(Outcome::Done)
}
