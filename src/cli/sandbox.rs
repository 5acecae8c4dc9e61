//! `sandbox`: simulated nodes that stay until Ctrl-C.

use super::out::Out;
use super::sandbox_args::Sandbox as Args;
use super::{Outcome, Problem};
use crate::clock::Clock;
use crate::ends::Ends;
use crate::sandbox::scenario::{self, Numbered};
use crate::sandbox::service::{Service, Settings};
use crate::sandbox::{Sandbox, SandboxError};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Whom the printed steps pay: the label of an address that is always the same.
const LABEL: &str = "order-1";

/// Runs simulated nodes until Ctrl-C.
pub(super) fn sandbox(out: &mut Out, args: &Args) -> anyhow::Result<Outcome> {
    let lines = match &args.run {
        Some(file) => read(file)?,
        None => Vec::new(),
    };
    let settings = Settings {
        folder: args.folder.clone(),
        control: args.listen,
        bitcoin_port: args.bitcoin,
        evm_port: args.evm,
        block_every: args.block_secs.map(|secs| Duration::from_secs(secs.into())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the sandbox")?;
    let mut end = {
        let _context = runtime.enter();
        Ends::usual().context("start the sandbox")?
    };
    let service = Service::start(&settings, Clock::real()).map_err(|error| not_started(args, error))?;
    greet(out, &service)?;
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = end.any() => Ok(Outcome::Done),
            refused = play(out, &service, lines) => refused,
        }
    })
}

/// All faults of a scenario are told before anything starts.
fn read(file: &Path) -> anyhow::Result<Vec<Numbered>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    scenario::read(&text, BTreeMap::new()).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let text = format!("{} is no scenario\n{}", file.display(), faults.join("\n"));
        Problem::misuse(text, "mend these lines; docs/sandbox.md has all steps").into()
    })
}

fn not_started(args: &Args, error: SandboxError) -> anyhow::Error {
    let kind = match &error {
        SandboxError::System(error) => error.kind(),
        _ => ErrorKind::Other,
    };
    let folder = args.folder.display();
    let next = match kind {
        ErrorKind::AddrInUse => {
            "another sandbox may run already; --listen, --bitcoin and --evm take other ports, 0 is any that \
             is free"
                .to_owned()
        }
        ErrorKind::ResourceBusy => format!(
            "`creditd trigger --folder {folder}` drives that one; another --folder, with --bitcoin 0 --evm 0 \
             --listen 127.0.0.1:0, starts one beside it"
        ),
        ErrorKind::InvalidInput => "name a loopback address such as 127.0.0.1:18555".to_owned(),
        _ => {
            let place = format!("start the sandbox in {folder}");
            return match error {
                // Its own text says no more than the place does.
                SandboxError::System(cause) => anyhow::Error::new(cause).context(place),
                error => anyhow::Error::new(error).context(place),
            };
        }
    };
    Problem::misuse(crate::telemetry::error_line(&error), next).into()
}

/// Says where everything is and what to do now.
fn greet(out: &mut Out, service: &Service) -> anyhow::Result<()> {
    let config = service.folder().join("creditd.toml");
    let text = service.config();
    let standing = match std::fs::read_to_string(&config) {
        Ok(held) if held == text => "",
        // Somebody may have made it theirs.
        Ok(_) => {
            "  (another one than would be written now, left as it is: delete it and start again for a new \
             one)"
        }
        Err(_) => {
            std::fs::write(&config, &text).with_context(|| format!("write {}", config.display()))?;
            ""
        }
    };
    let places = service.places();
    out.line(format!(
        "bitcoin  {}  regtest, log in with {}",
        service.bitcoin().url(),
        service.bitcoin().cookie_file().display()
    ))?;
    out.line(format!(
        "evm      {}  chain id {}, nobody has to log in",
        service.evm().url(),
        places["evm"]["chain_id"]
    ))?;
    for token in places["evm"]["tokens"].as_array().into_iter().flatten() {
        let text = |key: &str| token[key].as_str().unwrap_or_default().to_owned();
        let (contract, symbol) = (text("contract"), text("symbol"));
        out.line(format!(
            "token    {contract}  {symbol}, {} decimals",
            token["decimals"]
        ))?;
    }
    out.line(format!("control  {}", service.url()))?;
    out.line(format!("config   {}{standing}", config.display()))?;
    out.line("")?;
    steps(out, &config, service.folder())?;
    out.line("Ctrl-C ends it")?;
    out.done().map(|_| ())
}

/// A payment from its watched address to its credit, to be copied. An address counts from the block after it
/// was added, so that it comes first.
fn steps(out: &mut Out, config: &Path, folder: &Path) -> anyhow::Result<()> {
    let creditd = format!("  creditd --config {}", config.display());
    let trigger = format!("  creditd trigger --folder {}", folder.display());
    let address = Sandbox::address(LABEL);
    out.line("in a second terminal:")?;
    out.line(format!(
        "{creditd} watch add {address} --chain btc --merchant shop"
    ))?;
    out.line(format!("{creditd} run"))?;
    out.line("in a third, once that one says `btc is following`:")?;
    out.line(format!("{trigger} deposit {LABEL} 0.29 --as first"))?;
    out.line(format!("{trigger} mine 3"))?;
    out.line("and a moment later:")?;
    out.line(format!("{creditd} deposits list"))
}

/// Plays the scenario; comes back only where a step is refused.
async fn play(out: &mut Out, service: &Service, lines: Vec<Numbered>) -> anyhow::Result<Outcome> {
    let is_scenario = !lines.is_empty();
    let mut run = service.run(lines);
    while let Some(ended) = run.next().await {
        match ended.outcome {
            Ok(done) => {
                out.line(format!("{:>4}  {}", ended.number, ended.text))?;
                if let Some(done) = done {
                    out.line(format!("      {} (height {})", done.did, done.height))?;
                }
                out.done()?;
            }
            Err(refused) => {
                let text = format!("line {}, {}: {}", ended.number, ended.text, refused.error);
                return Err(Problem::found(text, refused.next).into());
            }
        }
    }
    if is_scenario {
        out.line("the scenario is through; the nodes stay until Ctrl-C")?;
        out.done()?;
    }
    std::future::pending().await
}
