//! `sandbox`: simulated nodes that stay until Ctrl-C.

use super::out::Out;
use super::sandbox_args::Sandbox;
use super::{Outcome, Problem};
use crate::clock::Clock;
use crate::ends::Ends;
use crate::sandbox::SandboxError;
use crate::sandbox::scenario::{self, Numbered};
use crate::sandbox::service::{Service, Settings};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Runs simulated nodes until Ctrl-C.
pub(super) fn sandbox(out: &mut Out, args: &Sandbox) -> anyhow::Result<Outcome> {
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

fn not_started(args: &Sandbox, error: SandboxError) -> anyhow::Error {
    let kind = match &error {
        SandboxError::System(error) => error.kind(),
        _ => ErrorKind::Other,
    };
    let next = match kind {
        ErrorKind::AddrInUse => {
            "another sandbox may run already; --listen, --bitcoin and --evm take other ports, 0 is any that \
             is free"
        }
        ErrorKind::ResourceBusy => {
            "`creditd trigger --folder` drives that one; another --folder, with --bitcoin 0 --evm 0 --listen \
             127.0.0.1:0, starts one beside it"
        }
        ErrorKind::InvalidInput => "name a loopback address such as 127.0.0.1:18555",
        _ => {
            let folder = args.folder.display();
            return anyhow::Error::new(error).context(format!("start the sandbox in {folder}"));
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
    let folder = service.folder().display();
    out.line("")?;
    out.line("in other terminals:")?;
    out.line(format!("  creditd --config {} run", config.display()))?;
    out.line(format!(
        "  creditd trigger --folder {folder} deposit order-1 0.29 --as first"
    ))?;
    out.line(format!("  creditd trigger --folder {folder} mine 3"))?;
    out.line("Ctrl-C ends it")?;
    out.done().map(|_| ())
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
