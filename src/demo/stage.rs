//! Where the demonstration plays: a folder, the simulated node, creditd beside it, and the timeline that
//! shows what each of them does. It waits for what must come, and counts what is not as it should be.

use super::DemoError;
use super::child::Creditd;
use super::evm;
use super::receiver::{Outcome, Receipt, Receiver};
use crate::clock::{Clock, millis};
use crate::ends::Ends;
use crate::sandbox::evm::EvmSandbox;
use crate::sandbox::{Sandbox, SandboxError};
use crate::store::report::FrozenEvent;
use crate::store::{Database, OpenMode, ReadTx, StoreError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// How long anything may take that must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(15);

/// Events that are read at once.
const EVENTS_MAX: u32 = 1_000;

/// Who does something in a line of the timeline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Chain,
    Creditd,
    Receiver,
    Hand,
}

impl Who {
    /// The word, and its colour on a terminal.
    fn label(self) -> (&'static str, &'static str) {
        match self {
            Who::Chain => ("chain", "33"),
            Who::Creditd => ("creditd", "36"),
            Who::Receiver => ("receiver", "35"),
            Who::Hand => ("you", "1"),
        }
    }
}

/// An event of creditd's.
pub(super) struct Told {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) data: Value,
}

impl Told {
    fn new(event: &FrozenEvent) -> Told {
        let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
        Told {
            id: event.id.clone(),
            kind: event.kind.clone(),
            data: body["data"].clone(),
        }
    }

    pub(super) fn reference(&self) -> &str {
        self.data["deposit"]["reference"].as_str().unwrap_or_default()
    }

    /// One line for people.
    fn line(&self) -> String {
        let deposit = &self.data["deposit"];
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let (amount, symbol) = (text(&deposit["amount"]), text(&deposit["symbol"]));
        let what = match self.kind.as_str() {
            "deposit.confirming" => format!(
                "{amount} {symbol} in block {}, due at height {}",
                text(&deposit["block_height"]),
                text(&deposit["due_height"])
            ),
            "deposit.replaced" => {
                format!("{amount} {symbol}, by {}", short(&text(&deposit["replaced_by"])))
            }
            "credit.created" | "credit.reinstated" => {
                format!("+{amount} {symbol}, net {}", text(&self.data["net"]))
            }
            "credit.reversed" => format!(
                "-{amount} {symbol}, net {} (now {})",
                text(&self.data["net"]),
                text(&deposit["state"])
            ),
            _ => format!("{amount} {symbol}"),
        };
        format!("{:<19} {}: {what}", self.kind, self.reference())
    }
}

/// The first letters of a hash or id.
pub(super) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// Everything that runs.
pub(super) struct Stage {
    pub(super) sandbox: Sandbox,
    pub(super) evm: EvmSandbox,
    pub(super) creditd: Creditd,
    pub(super) receiver: Receiver,
    /// While everything is sent again, what is in order is not shown one by one.
    pub(super) is_quiet: bool,
    pub(super) events: Vec<Told>,
    /// Expectations that were not met.
    pub(super) faults: u32,
    /// The event after which the next wait looks.
    mark: usize,
    last_seq: u64,
    database: Option<Database>,
    clock: Clock,
    began: Instant,
    has_colour: bool,
    ends: Ends,
    runtime: Runtime,
    // Last: it is removed when all else has ended.
    folder: Folder,
}

impl Stage {
    /// Starts the node and writes creditd's config.
    pub(super) fn open(clock: Clock) -> Result<Stage, DemoError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let folder = Folder::new(clock)?;
        let sandbox = Sandbox::start(&folder.0, clock)?;
        let node = EvmSandbox::start(evm::CHAIN_ID, clock)?;
        evm::prepare(&node);
        let ends = {
            let _context = runtime.enter();
            Ends::usual()?
        };
        Ok(Stage {
            creditd: Creditd::new(&folder.0, &(config(&sandbox) + &evm::config(&node)))?,
            sandbox,
            evm: node,
            receiver: Receiver::start(&runtime, clock)?,
            is_quiet: false,
            events: Vec::new(),
            faults: 0,
            mark: 0,
            last_seq: 0,
            database: None,
            clock,
            began: clock.instant(),
            has_colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            ends,
            runtime,
            folder,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder.0
    }

    // ---- the timeline ----

    /// A line without a time.
    pub(super) fn print(&self, text: &str) {
        // Whoever closed our output has seen enough; the outcome is the exit code.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    pub(super) fn heading(&self, text: &str) {
        self.print(&format!("\n{}", self.coloured("1", text)));
    }

    pub(super) fn say(&self, who: Who, text: &str) {
        let ms = millis(self.clock.instant() - self.began);
        let (label, colour) = who.label();
        let label = self.coloured(colour, &format!("{label:<8}"));
        self.print(&format!(
            "{:>4}.{:02} s  {label}  {text}",
            ms / 1_000,
            ms % 1_000 / 10
        ));
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        match self.has_colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Whole seconds since the start.
    pub(super) fn seconds(&self) -> i64 {
        millis(self.clock.instant() - self.began) / 1_000
    }

    /// Shows whether something is as it must be.
    pub(super) fn expect(&mut self, what: &str, is_so: bool) {
        let (sign, colour) = if is_so { ("ok", "32") } else { ("FAILED", "31") };
        let sign = self.coloured(colour, &format!("{sign:>8}"));
        self.print(&format!("{sign}  {what}"));
        self.faults += u32::from(!is_so);
    }

    // ---- what happens ----

    /// Moves the chain and says so; the next wait looks only at what comes from here on.
    pub(super) fn act<T>(
        &mut self,
        act: impl FnOnce(&Sandbox) -> Result<T, SandboxError>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<T, DemoError> {
        self.mark = self.events.len();
        let outcome = act(&self.sandbox)?;
        self.say(Who::Chain, &text(&outcome));
        Ok(outcome)
    }

    /// The same on the EVM chain.
    pub(super) fn act_evm<T>(
        &mut self,
        act: impl FnOnce(&EvmSandbox) -> Result<T, SandboxError>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<T, DemoError> {
        self.mark = self.events.len();
        let outcome = act(&self.evm)?;
        self.say(Who::Chain, &text(&outcome));
        Ok(outcome)
    }

    /// Mines blocks on the EVM chain.
    pub(super) fn mine_evm(&mut self, count: u32) -> Result<(), DemoError> {
        let text = blocks_text(self.evm.height(), count);
        self.act_evm(|sandbox| sandbox.mine(count), |_| text)?;
        Ok(())
    }

    /// Watches an address for an order.
    pub(super) fn watch(&mut self, chain: &str, address: &str, order: &str) -> Result<(), DemoError> {
        let args = [
            "watch",
            "add",
            address,
            "--chain",
            chain,
            "--merchant",
            "shop",
            "--reference",
            order,
        ];
        self.creditd.answer(&args)?;
        self.say(Who::Hand, &format!("$ creditd {}", args.join(" ")));
        Ok(())
    }

    /// Mines blocks and waits until creditd has them.
    pub(super) fn mine(&mut self, count: u32) -> Result<(), DemoError> {
        self.mine_alone(count)?;
        self.until_tip()
    }

    /// Mines blocks.
    pub(super) fn mine_alone(&mut self, count: u32) -> Result<(), DemoError> {
        let text = blocks_text(self.sandbox.height(), count);
        self.act(|sandbox| sandbox.mine(count), |_| text)?;
        Ok(())
    }

    /// Reads from creditd's database.
    pub(super) fn read<T>(
        &self,
        look: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, DemoError> {
        match &self.database {
            Some(database) => Ok(database.read(look)?),
            None => Err(StoreError::Missing(self.creditd.database()).into()),
        }
    }

    /// Opens the database. False while the daemon has not made it yet.
    fn connect(&mut self) -> bool {
        if self.database.is_none() {
            self.database = Database::open(&self.creditd.database(), OpenMode::ReadOnly).ok();
        }
        self.database.is_some()
    }

    /// Waits until creditd stands where the node stands.
    pub(super) fn until_tip(&mut self) -> Result<(), DemoError> {
        self.until("creditd to be at the tip", |stage| {
            stage.is_at("btc", stage.sandbox.tip().to_string())
        })
    }

    /// The same on the EVM chain.
    pub(super) fn until_evm_tip(&mut self) -> Result<(), DemoError> {
        self.until("creditd to be at the tip of the EVM chain", |stage| {
            stage.is_at("evm", stage.evm.tip().to_string())
        })
    }

    fn is_at(&self, alias: &str, tip: String) -> Result<bool, DemoError> {
        let chains = self.read(|tx| tx.chains())?;
        let chain = chains.iter().find(|chain| chain.alias == alias);
        let at = chain.and_then(|chain| chain.cursor);
        Ok(at.is_some_and(|at| at.header.hash.to_string() == tip))
    }

    /// How often creditd has told of something about an order.
    pub(super) fn count(&self, kind: &str, reference: &str) -> usize {
        let told = self.events.iter();
        told.filter(|event| event.kind == kind && event.reference() == reference)
            .count()
    }

    /// The id of the first event of a kind about an order.
    pub(super) fn event(&self, kind: &str, reference: &str) -> Option<String> {
        let mut told = self.events.iter();
        let first = told.find(|event| event.kind == kind && event.reference() == reference)?;
        Some(first.id.clone())
    }

    /// The net amount that creditd last told of an order's credit.
    pub(super) fn last_net(&self, reference: &str) -> Option<String> {
        let mut told = self.events.iter().rev();
        let last = told.find(|event| event.reference() == reference && event.data["net"].is_string())?;
        last.data["net"].as_str().map(str::to_owned)
    }

    /// What an order's credits net to together, in base units, as creditd told it last of each.
    pub(super) fn net(&self, reference: &str) -> u128 {
        let mut nets = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.reference() == reference) {
            let net = event.data["net_base"]
                .as_str()
                .and_then(|net| net.parse::<u128>().ok());
            if let (Some(credit), Some(net)) = (event.data["credit"].as_str(), net) {
                nets.insert(credit, net);
            }
        }
        nets.values().sum()
    }

    /// Waits for an event about an order.
    pub(super) fn until_event(&mut self, kind: &str, reference: &str) -> Result<(), DemoError> {
        self.until(&format!("{kind} of {reference}"), |stage| {
            let new = stage.events.iter().skip(stage.mark);
            let mut fitting = new.filter(|event| event.kind == kind && event.reference() == reference);
            Ok(fitting.next().is_some())
        })
    }

    /// Waits until the receiver has everything that creditd has told so far.
    pub(super) fn until_received(&mut self) -> Result<(), DemoError> {
        self.until("the callbacks", |stage| {
            let missing = stage.events.iter().any(|event| !stage.receiver.has(&event.id));
            Ok(!missing)
        })
    }

    /// Shows what comes until `is_so`.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Stage) -> Result<bool, DemoError>,
    ) -> Result<(), DemoError> {
        let began = self.clock.instant();
        loop {
            if self.connect() {
                self.show_new()?;
                if is_so(self)? {
                    // What came between the two looks belongs to this step too.
                    return self.show_new();
                }
            }
            if self.creditd.has_ended() {
                return Err(DemoError::Ended(self.log_tail()));
            }
            if self.clock.instant() - began > PATIENCE {
                return Err(DemoError::InVain {
                    what: what.to_owned(),
                    log: self.log_tail(),
                });
            }
            self.pause()?;
        }
    }

    fn show_new(&mut self) -> Result<(), DemoError> {
        let last = self.last_seq;
        for event in self.read(|tx| tx.events_after(last, EVENTS_MAX))? {
            self.last_seq = event.seq;
            let told = Told::new(&event);
            self.say(Who::Creditd, &told.line());
            self.events.push(told);
        }
        for receipt in self.receiver.take_receipts() {
            self.show_receipt(&receipt);
        }
        Ok(())
    }

    fn show_receipt(&mut self, receipt: &Receipt) {
        let is_about_money = receipt.kind.starts_with("credit.");
        let what = match &receipt.outcome {
            Outcome::Stored if self.is_quiet || !is_about_money => return,
            Outcome::Repeated { is_same: true } if self.is_quiet => return,
            Outcome::Stored => "stored".to_owned(),
            Outcome::StoredButFailed => "stored, and the answer is a failure: 500".to_owned(),
            Outcome::Repeated { is_same: true } => "again: the same id and bytes, nothing to do".to_owned(),
            Outcome::Repeated { is_same: false } => "again, with other bytes".to_owned(),
            Outcome::Refused(why) => format!("refused: {why}"),
        };
        let line = format!("{:<19} {}: {what}", receipt.kind, receipt.reference);
        self.say(Who::Receiver, &line);
        self.faults += u32::from(matches!(
            receipt.outcome,
            Outcome::Repeated { is_same: false } | Outcome::Refused(_)
        ));
    }

    fn pause(&mut self) -> Result<(), DemoError> {
        let (clock, ends) = (self.clock, &mut self.ends);
        let is_interrupted = self.runtime.block_on(async {
            tokio::select! { biased;
                _ = ends.any() => true,
                () = clock.sleep(LOOK) => false,
            }
        });
        match is_interrupted {
            true => Err(DemoError::Interrupted),
            false => Ok(()),
        }
    }

    /// Waits for Ctrl-C.
    pub(super) fn until_interrupt(&mut self) {
        self.runtime.block_on(self.ends.any());
    }

    /// The end of the daemon's log.
    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.creditd.log_file()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

fn blocks_text(height: u64, count: u32) -> String {
    let (first, last) = (height + 1, height + u64::from(count));
    match count {
        1 => format!("block {first}"),
        _ => format!("blocks {first} to {last}"),
    }
}

/// What the demonstration's creditd is told: one regtest chain, looked at often, credited at depth 3.
fn config(sandbox: &Sandbox) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    format!(
        "database = \"creditd.db\"\n\n\
         [ops]\nlisten = \"off\"\n[api]\nlisten = \"off\"\n\n\
         [callbacks]\n# The receiver is on this machine.\nallow_ranges = [\"127.0.0.0/8\"]\n\n\
         [[bitcoin]]\nalias = \"btc\"\nnetwork = \"regtest\"\ninstance = \"demo\"\nrpc_url = {}\n\
         cookie_file = {}\npoll_ms = 200\nmempool_ms = 50\n\n\
         [[bitcoin.policy]]\nconfirmations = 3\n",
        quoted(sandbox.url()),
        quoted(&sandbox.cookie_file().display().to_string()),
    )
}

/// A new folder that only we can read, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(clock: Clock) -> Result<Folder, DemoError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = format!("creditd-demo-{}-{}", std::process::id(), clock.now_ms());
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
