//! The sandbox as a process that stays: both nodes at ports that are known, the control beside them, blocks
//! by the clock if wanted, and the config with which creditd follows it all. Start at [`Service::start`].

use super::control::{self, Control};
use super::evm::EvmSandbox;
use super::front::Server;
use super::hand::{CHAIN_ID, Hand, shown, tokens};
use super::run::{Gate, Run};
use super::scenario::Numbered;
use super::step::{Blocks, On, Step};
use super::{Sandbox, SandboxError};
use crate::clock::Clock;
use serde_json::{Value, json};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a sandbox keeps its files if nobody says where.
pub const FOLDER: &str = "creditd-sandbox";

/// Where the control listens unless told otherwise.
pub const CONTROL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18_555);
/// The port of the Bitcoin node unless told otherwise.
pub const BITCOIN_PORT: u16 = 18_543;
/// The port of the EVM node unless told otherwise.
pub const EVM_PORT: u16 = 18_545;

/// What the addresses of the config are derived from, on Bitcoin and on EVM chains. Nobody has the private
/// keys: point and chain code are SHA-256 of `creditd sandbox, bitcoin` (`evm`), with a zero byte behind it,
/// and of the same with `, chain code`.
const ACCOUNTS: [&str; 2] = [
    "tpubDC2Q4xK4XH72Gc1pNBJaCK6zZ5a28Snc6uyoL2mJCNNXoVGQajoWwARFwcgt1zKNjWVxEXicux6hrKewpocDJsgBezxrG8DJDt\
     WxkLor2Nc",
    "xpub6BemYiVNp19a2DVpphehzXPb5T7kJR6UAUoQSqA5SPzV9Gs3wBEv1w49GDiutb6bv7Yhue7LcDcd1yYe5mRLqeCpp8ULf418wc\
     DMBhq5yLa",
];

/// In the sandbox's folder: where everything is, for whoever drives it.
pub const STATE_FILE: &str = "sandbox.json";

/// How a sandbox is to be started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the cookie, the config and [`STATE_FILE`].
    pub folder: PathBuf,
    /// Of the control; port 0 is any that is free.
    pub control: SocketAddr,
    /// Likewise.
    pub bitcoin_port: u16,
    /// Likewise.
    pub evm_port: u16,
    /// How often a block is mined on both chains; without it only by hand.
    pub block_every: Option<Duration>,
}

/// In the sandbox's folder, for as long as it runs. It is not removed: whoever waits for it has it open.
const LOCK_FILE: &str = ".lock";

/// Locks a folder, for one sandbox; the lock goes with the process.
fn lock(folder: &Path) -> std::io::Result<File> {
    let lock = File::create(folder.join(LOCK_FILE))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(std::io::Error::new(
            ErrorKind::ResourceBusy,
            format!("another sandbox runs in {}", folder.display()),
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A running sandbox. It ends when this is dropped.
pub struct Service {
    hand: Arc<Hand>,
    gate: Arc<Gate>,
    folder: PathBuf,
    server: Server,
    /// A file of the folder, locked: another sandbox would take over the cookie, and the file by which this
    /// one is found.
    _lock: File,
}

impl Service {
    /// Starts both nodes and the control, and writes the files of the folder.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn start(settings: &Settings, clock: Clock) -> Result<Service, SandboxError> {
        std::fs::create_dir_all(&settings.folder)?;
        let folder = settings.folder.canonicalize()?;
        let lock = lock(&folder)?;
        let bitcoin = Sandbox::start_on(settings.bitcoin_port, &folder, clock)?;
        let evm = EvmSandbox::start_on(settings.evm_port, CHAIN_ID, clock)?;
        let (hand, gate) = (Arc::new(Hand::new(bitcoin, evm)), Arc::new(Gate::new()));
        let control = Control {
            hand: hand.clone(),
            gate: gate.clone(),
        };
        let server = Server::start_at(settings.control, control::routes(control))?;
        if let Some(every) = settings.block_every {
            server.spawn(mine_by_the_clock(hand.clone(), every));
        }
        let service = Service {
            hand,
            gate,
            folder,
            server,
            _lock: lock,
        };
        let places = serde_json::to_vec_pretty(&service.places()).map_err(std::io::Error::from)?;
        std::fs::write(service.state_file(), places)?;
        Ok(service)
    }

    /// Of the control.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The node of Bitcoin's chain.
    pub fn bitcoin(&self) -> &Sandbox {
        &self.hand.bitcoin
    }

    /// The node of the EVM chain.
    pub fn evm(&self) -> &EvmSandbox {
        &self.hand.evm
    }

    /// Its folder, from the root on.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn state_file(&self) -> PathBuf {
        self.folder.join(STATE_FILE)
    }

    /// Where everything is.
    pub fn places(&self) -> Value {
        let tokens = tokens().map(|(contract, token)| {
            json!({
                "symbol": token.symbol,
                "contract": shown(contract),
                "decimals": token.decimals,
            })
        });
        json!({
            "control": self.url(),
            "btc": {
                "url": self.bitcoin().url(),
                "cookie_file": self.bitcoin().cookie_file().display().to_string(),
            },
            "evm": {"url": self.evm().url(), "chain_id": CHAIN_ID, "tokens": tokens},
        })
    }

    /// A config with which creditd follows both chains, its database beside it.
    pub fn config(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let cookie_file = self.bitcoin().cookie_file().display().to_string();
        let mut config = format!(
            "# Both chains of a `creditd sandbox`. They begin anew at each start: take a new database then.\n\
             database = \"creditd.db\"\n\n\
             [[bitcoin]]\nalias = \"btc\"\nnetwork = \"regtest\"\ninstance = \"sandbox\"\nrpc_url = {}\n\
             cookie_file = {}\npoll_ms = 100\nmempool_ms = 100\n\n[[bitcoin.policy]]\nconfirmations = 3\n\n\
             [[evm]]\nalias = \"evm\"\nchain_id = {CHAIN_ID}\ninstance = \"sandbox\"\npoll_ms = 100\n\
             pending_ms = 100\n\n[[evm.endpoint]]\nname = \"sandbox\"\nurl = {}\n\n\
             [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\n\n\
             [[evm.native.policy]]\nconfirmations = 3\n",
            quoted(self.bitcoin().url()),
            quoted(&cookie_file),
            quoted(&self.evm().url()),
        );
        for (contract, token) in tokens() {
            config += &format!(
                "\n[[evm.token]]\ncontract = \"{}\"\nsymbol = \"{}\"\ndecimals = {}\n\n\
                 [[evm.token.policy]]\nconfirmations = 3\n",
                shown(contract),
                token.symbol,
                token.decimals
            );
        }
        let [bitcoin, evm] = ACCOUNTS;
        config += &format!(
            "\n# Addresses for invoices, of keys that nobody has.\n[[addresses]]\nname = \"btc\"\n\
             chain = \"btc\"\nxpub = \"{bitcoin}\"\nscript = \"wpkh\"\npool = 100\n\n\
             [[addresses]]\nname = \"evm\"\nchain = \"evm\"\nxpub = \"{evm}\"\npool = 100\n"
        );
        config
    }

    /// Begins a scenario: each step is done when its end is asked for.
    pub fn run(&self, lines: Vec<Numbered>) -> Run {
        Run::new(self.hand.clone(), self.gate.clone(), lines)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Whoever looks for a sandbox must not find the place of one that ended.
        let _ = std::fs::remove_file(self.state_file());
    }
}

/// A node that lags mines nothing meanwhile.
async fn mine_by_the_clock(hand: Arc<Hand>, every: Duration) {
    loop {
        Clock::real().sleep(every).await;
        for on in On::ALL {
            let _ = hand.step(on, &Step::Mine(Blocks { blocks: 1 }));
        }
    }
}
