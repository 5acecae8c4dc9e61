//! A real bitcoind on regtest, in a folder of its own, gone when the test ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bitcoincore_rpc::{Auth, Client, RpcApi};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::net::free_port;
use super::wait::{PATIENCE, wait_until};

/// How often a start is tried again when another process took the free port first.
const STARTS_MAX: u32 = 5;

/// In the file, because there a node that lacks an option only warns. Knots refuses what it takes for spam,
/// among it every transaction with a lock time of 21: the wallet, which sets the height or, against fee
/// sniping, up to a hundred blocks less, makes one now and then.
const CONFIG: &str = "rejectparasites=0\n";

/// A running (or stopped, or killed) regtest node. Hashes and ids are the hex strings of the RPC.
pub struct RegtestNode {
    dir: TempDir,
    network: &'static str,
    args: Vec<String>,
    rpc_port: u16,
    peer_port: Option<u16>,
    child: Option<Child>,
}

impl RegtestNode {
    /// A node that talks to no peer.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with more arguments for bitcoind, which win over ours.
    pub fn start_with(args: &[&str]) -> Self {
        Self::launch("regtest", args, false)
    }

    /// A node that others can be joined to with [`connect_peer`](Self::connect_peer).
    pub fn listening() -> Self {
        Self::launch("regtest", &[], true)
    }

    /// A node of another network (`main`, `signet`), which reaches nobody and so stays at its genesis block.
    pub fn alone_on(network: &'static str) -> Self {
        Self::launch(network, &["-connect=0"], false)
    }

    fn launch(network: &'static str, args: &[&str], listen: bool) -> Self {
        let mut node = Self {
            network,
            dir: tempfile::Builder::new()
                .prefix("creditd-node-")
                .tempdir()
                .unwrap(),
            args: args.iter().map(ToString::to_string).collect(),
            rpc_port: 0,
            peer_port: None,
            child: None,
        };
        for _ in 0..STARTS_MAX {
            node.rpc_port = free_port();
            node.peer_port = listen.then(free_port);
            if node.spawn() {
                return node;
            }
        }
        panic!(
            "bitcoind ended at once {STARTS_MAX} times; its log:\n{}",
            node.log()
        );
    }

    /// Starts the process and waits until it answers; false if it ended instead (a port was taken).
    fn spawn(&mut self) -> bool {
        assert!(self.child.is_none(), "the node is already running");
        let _ = std::fs::remove_file(self.cookie_file());
        std::fs::write(self.dir.path().join("bitcoin.conf"), CONFIG).unwrap();
        let mut command = Command::new(bitcoind_exe());
        command.args([
            "-server=1",
            "-rest=1",
            "-printtoconsole=0",
            "-dnsseed=0",
            "-fixedseeds=0",
            "-discover=0",
            "-listenonion=0",
            "-fallbackfee=0.0001",
            "-dbcache=8",
            "-par=1",
            "-rpcthreads=8",
            "-rpcbind=127.0.0.1",
            "-rpcallowip=127.0.0.1",
        ]);
        command.arg(format!("-chain={}", self.network));
        command.arg(format!("-datadir={}", self.dir.path().display()));
        command.arg(format!("-rpcport={}", self.rpc_port));
        match self.peer_port {
            Some(port) => command.arg("-listen=1").arg(format!("-bind=127.0.0.1:{port}")),
            None => command.arg("-listen=0"),
        };
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let is_up = wait_until("bitcoind answers", PATIENCE, || {
            if self.has_ended() {
                return Some(false);
            }
            let client = Client::new(&self.url(), Auth::CookieFile(self.cookie_file())).ok()?;
            client.call::<u64>("getblockcount", &[]).ok().map(|_| true)
        });
        if !is_up {
            self.child = None;
        }
        is_up
    }

    fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// `http://127.0.0.1:PORT`, for RPC and REST.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.rpc_port)
    }

    pub fn rpc_port(&self) -> u16 {
        self.rpc_port
    }

    /// Where it keeps what is of its network.
    fn folder(&self) -> PathBuf {
        match self.network {
            "main" => self.dir.path().to_owned(),
            other => self.dir.path().join(other),
        }
    }

    /// The node writes it anew at every start.
    pub fn cookie_file(&self) -> PathBuf {
        self.folder().join(".cookie")
    }

    /// The node's own log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("debug.log")).unwrap_or_default()
    }

    /// A client with the cookie of now; make a new one after a restart.
    pub fn rpc(&self) -> Client {
        Client::new(&self.url(), Auth::CookieFile(self.cookie_file())).unwrap()
    }

    /// Any call; a refusal is an `Err`.
    pub fn try_call(&self, method: &str, params: &[Value]) -> Result<Value, bitcoincore_rpc::Error> {
        self.rpc().call(method, params)
    }

    /// Any call that must work.
    #[track_caller]
    pub fn call(&self, method: &str, params: &[Value]) -> Value {
        match self.try_call(method, params) {
            Ok(answer) => answer,
            Err(error) => panic!("{method} {params:?}: {error}"),
        }
    }

    // ---- blocks ----

    /// Mines `count` blocks with the mempool's transactions to a script that nobody watches; their hashes.
    #[track_caller]
    pub fn mine(&self, count: u32) -> Vec<String> {
        strings(&self.call("generatetodescriptor", &[json!(count), json!(unwatched_script())]))
    }

    /// Mines `count` blocks that pay their coinbase to `address`.
    #[track_caller]
    pub fn mine_to(&self, address: &str, count: u32) -> Vec<String> {
        strings(&self.call("generatetoaddress", &[json!(count), json!(address)]))
    }

    /// Mines one block with exactly these transactions (ids from the mempool, or raw hex), in this order.
    #[track_caller]
    pub fn generateblock(&self, transactions: &[&str]) -> String {
        let answer = self.call("generateblock", &[json!(unwatched_script()), json!(transactions)]);
        string(&answer["hash"])
    }

    #[track_caller]
    pub fn height(&self) -> u64 {
        self.call("getblockcount", &[]).as_u64().unwrap()
    }

    #[track_caller]
    pub fn tip(&self) -> String {
        string(&self.call("getbestblockhash", &[]))
    }

    #[track_caller]
    pub fn block_hash(&self, height: u64) -> String {
        string(&self.call("getblockhash", &[json!(height)]))
    }

    /// Takes a block and all above it off the best chain; their transactions go back to the mempool.
    #[track_caller]
    pub fn invalidate(&self, block: &str) {
        self.call("invalidateblock", &[json!(block)]);
    }

    #[track_caller]
    pub fn reconsider(&self, block: &str) {
        self.call("reconsiderblock", &[json!(block)]);
    }

    // ---- process ----

    /// Asks the node to end, and waits until it has.
    pub fn stop(&mut self) {
        self.call("stop", &[]);
        wait_until("bitcoind ends", PATIENCE, || self.has_ended().then_some(()));
        self.child = None;
    }

    /// Ends the process without warning.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts a stopped or killed node again: same folder, same port, new cookie.
    pub fn start_again(&mut self) {
        assert!(
            self.spawn(),
            "bitcoind did not start again; its log:\n{}",
            self.log()
        );
    }

    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// A copy of the node's data as it is now; the node restarts for it.
    pub fn save_data(&mut self) -> TempDir {
        self.stop();
        let copy = tempfile::Builder::new()
            .prefix("creditd-node-data-")
            .tempdir()
            .unwrap();
        copy_folder(self.dir.path(), copy.path());
        self.start_again();
        copy
    }

    /// Goes on with other data, such as an old copy, under the same port. The node restarts for it.
    pub fn use_data(&mut self, data: &TempDir) {
        self.stop();
        std::fs::remove_dir_all(self.folder()).unwrap();
        copy_folder(data.path(), self.dir.path());
        self.start_again();
    }

    // ---- peers ----

    /// Joins this node to `other`, which must be [`listening`](Self::listening).
    #[track_caller]
    pub fn connect_peer(&self, other: &Self) {
        let address = other.peer_address();
        self.call("addnode", &[json!(address), json!("onetry")]);
        wait_until("peers joined", PATIENCE, || {
            let is_ready = |peer: &Value| peer["version"].as_u64() > Some(0);
            let count = |node: &Self| {
                node.call("getpeerinfo", &[])
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|p| is_ready(p))
                    .count()
            };
            (count(self) > 0 && count(other) > 0).then_some(())
        });
    }

    /// Parts this node from `other`; both go on alone.
    #[track_caller]
    pub fn disconnect_peer(&self, other: &Self) {
        self.call("disconnectnode", &[json!(other.peer_address())]);
        wait_until("peers parted", PATIENCE, || {
            other
                .call("getpeerinfo", &[])
                .as_array()
                .unwrap()
                .is_empty()
                .then_some(())
        });
    }

    fn peer_address(&self) -> String {
        format!(
            "127.0.0.1:{}",
            self.peer_port.expect("a node made with RegtestNode::listening")
        )
    }

    /// Waits until this node has the tip of `other`.
    #[track_caller]
    pub fn catch_up_with(&self, other: &Self, deadline: Duration) {
        wait_until("both nodes on one tip", deadline, || {
            (self.tip() == other.tip()).then_some(())
        });
    }
}

impl Drop for RegtestNode {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// A new script at each call, so that two blocks of one second and height still differ: a branch mined after
/// `invalidate` must not come out as the very block that was made invalid.
fn unwatched_script() -> String {
    static MINED: AtomicU32 = AtomicU32::new(0);
    // Push four bytes, drop them, leave "true".
    format!("raw(04{:08x}7551)", MINED.fetch_add(1, Ordering::Relaxed))
}

fn bitcoind_exe() -> PathBuf {
    node_exe("BITCOIND_EXE", "bitcoind")
}

/// The program that the variable names, else `name` on PATH, else what `tests/run tools` fetched.
pub(super) fn node_exe(variable: &str, name: &str) -> PathBuf {
    if let Some(exe) = std::env::var_os(variable) {
        return exe.into();
    }
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let found = on_path
        .chain(cache_folder().map(|cache| cache.join("bin")))
        .map(|folder| folder.join(name))
        .find(|exe| exe.is_file());
    found.unwrap_or_else(|| panic!("no {name}: set {variable} or run `tests/run tools`"))
}

/// The same folder as in `tests/run`.
pub fn cache_folder() -> Option<PathBuf> {
    std::env::var_os("CREDITD_CACHE").map(PathBuf::from).or_else(|| {
        let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let caches = caches.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))?;
        Some(caches.join("creditd"))
    })
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let copy = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &copy);
        } else {
            std::fs::copy(entry.path(), copy).unwrap();
        }
    }
}

#[track_caller]
pub(super) fn string(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("a string, not {value}"))
        .to_owned()
}

#[track_caller]
fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(string).collect()
}
