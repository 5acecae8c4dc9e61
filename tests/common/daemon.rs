//! The real `creditd` binary: its config in a folder of its own, the daemon as a child process, the commands.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::node::RegtestNode;
use super::stub::StubNode;
use super::wait::{PATIENCE, wait_until};

/// How long a daemon may take to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(5);

/// How much of the log a failed test shows.
const LOG_LINES_SHOWN: usize = 60;

/// What the config file says: one regtest chain `btc`, polled fast, credited at depth 3 unless changed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub rpc_url: String,
    pub cookie_file: PathBuf,
    pub network: String,
    /// Empty where the network allows none.
    pub instance: String,
    pub confirmations: u32,
    /// Where health and metrics are served: `off` unless changed, `127.0.0.1:0` for a port of its own.
    pub ops_listen: String,
    /// Where merchants ask, likewise, with what else `[api]` says.
    pub api: String,
    /// More lines for the `[[bitcoin]]` table, such as `start = 0`.
    pub chain_lines: String,
    /// More tables at the end of the file.
    pub tables: String,
    /// False where the tables at the end name all chains there are.
    pub has_bitcoin: bool,
    /// For the child process, beside an environment without any `CREDITD_` variable.
    pub environment: Vec<(String, String)>,
}

impl Setup {
    pub fn for_node(node: &RegtestNode) -> Self {
        Self::new(node.url(), node.cookie_file())
    }

    pub fn for_stub(stub: &StubNode) -> Self {
        Self::new(stub.url(), stub.cookie_file())
    }

    pub fn new(rpc_url: String, cookie_file: PathBuf) -> Self {
        Self {
            rpc_url,
            cookie_file,
            network: "regtest".to_owned(),
            instance: "test".to_owned(),
            confirmations: 3,
            ops_listen: "off".to_owned(),
            api: "listen = \"off\"".to_owned(),
            chain_lines: String::new(),
            tables: String::new(),
            has_bitcoin: true,
            environment: Vec::new(),
        }
    }

    /// A config of the EVM chains in these tables alone.
    pub fn for_evm(tables: impl Into<String>) -> Self {
        Self {
            tables: tables.into(),
            has_bitcoin: false,
            ..Self::new(String::new(), PathBuf::new())
        }
    }

    /// Adds a second chain, of the same settings, whose alias is also its instance name. Further
    /// `chain_lines` stay with the first.
    pub fn add_chain(&mut self, alias: &str, node: &RegtestNode) {
        self.add_chain_at(alias, &node.url(), &node.cookie_file());
    }

    pub fn add_chain_at(&mut self, alias: &str, rpc_url: &str, cookie_file: &Path) {
        self.tables += &format!(
            "[[bitcoin]]\nalias = {0}\nnetwork = \"regtest\"\ninstance = {0}\nrpc_url = {1}\n\
             cookie_file = {2}\npoll_ms = 50\nmempool_ms = 50\n[[bitcoin.policy]]\nconfirmations = {3}\n\n",
            quote(alias),
            quote(rpc_url),
            quote(&cookie_file.display().to_string()),
            self.confirmations,
        );
    }

    fn toml(&self) -> String {
        let instance = match self.instance.as_str() {
            "" => String::new(),
            name => format!("instance = {}\n", quote(name)),
        };
        let head = format!(
            "database = \"creditd.db\"\n\n[log]\nlevel = \"debug\"\n\n[ops]\nlisten = {}\n\n[api]\n{}\n\n",
            quote(&self.ops_listen),
            self.api,
        );
        if !self.has_bitcoin {
            return format!("{head}{}\n", self.tables);
        }
        format!(
            "{head}[[bitcoin]]\nalias = \"btc\"\n\
             network = {}\n{instance}rpc_url = {}\ncookie_file = {}\npoll_ms = 50\nmempool_ms = 50\n\
             {}\n[[bitcoin.policy]]\nconfirmations = {}\n\n{}\n",
            quote(&self.network),
            quote(&self.rpc_url),
            quote(&self.cookie_file.display().to_string()),
            self.chain_lines,
            self.confirmations,
            self.tables,
        )
    }
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// A folder with a config and a database, and the daemon on it while it runs.
pub struct Daemon {
    dir: TempDir,
    environment: Vec<(String, String)>,
    child: Option<Child>,
    /// How much of the log is of earlier starts.
    log_before: usize,
}

impl Daemon {
    /// Writes the config and starts the daemon. It may still be connecting when this returns.
    pub fn start(setup: &Setup) -> Self {
        let mut daemon = Self::prepare(setup);
        daemon.start_again();
        daemon
    }

    /// Writes the config only, for commands that need no daemon.
    pub fn prepare(setup: &Setup) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("creditd-test-")
            .tempdir()
            .unwrap();
        let daemon = Self {
            dir,
            environment: setup.environment.clone(),
            child: None,
            log_before: 0,
        };
        daemon.write_config(setup);
        daemon
    }

    /// Replaces the config file; a running daemon does not notice before its next start.
    pub fn write_config(&self, setup: &Setup) {
        std::fs::write(self.config_file(), setup.toml()).unwrap();
    }

    /// What the next start finds in its environment.
    pub fn set_environment(&mut self, environment: Vec<(String, String)>) {
        self.environment = environment;
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("creditd.toml")
    }

    pub fn database(&self) -> PathBuf {
        self.dir.path().join("creditd.db")
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("creditd.log")
    }

    /// What the daemon has logged in all its runs so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Starts a daemon on the same folder; none may be running.
    pub fn start_again(&mut self) {
        assert!(!self.is_running(), "the daemon is already running");
        self.log_before = self.log().len();
        let log: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap();
        let mut command = self.command(&["run"]);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// The port of the listener for operators of the last start, once it is up.
    #[track_caller]
    pub fn ops_port(&self) -> u16 {
        self.port_of("ops")
    }

    /// The port that merchants ask at, likewise.
    #[track_caller]
    pub fn api_port(&self) -> u16 {
        self.port_of("api")
    }

    #[track_caller]
    fn port_of(&self, listener: &str) -> u16 {
        let before = format!("{listener}=127.0.0.1:");
        wait_until("the daemon is ready", PATIENCE, || {
            let line = self.ready_line()?;
            let (_, rest) = line.split_once(&before)?;
            rest.split_whitespace().next()?.parse().ok()
        })
    }

    /// What it says at the end of its start, if it has come so far. Before that a signal just ends it.
    pub fn ready_line(&self) -> Option<String> {
        let log = self.log();
        let mut lines = log.get(self.log_before..)?.lines();
        lines
            .find(|line| line.contains("creditd is ready"))
            .map(str::to_owned)
    }

    /// The status and body of a page of the listener for operators.
    #[track_caller]
    pub fn ops(&self, path: &str) -> (u16, String) {
        super::http::get(self.ops_port(), path).unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// The process id of the running daemon.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running daemon").id()
    }

    /// Ends the daemon without warning.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends the daemon as systemd does; it must end by itself, in time, and report success.
    #[track_caller]
    pub fn stop(&mut self) {
        // The shell's own `kill`: there is one on every machine, and no unsafe code is needed.
        let pid = self.pid().to_string();
        assert!(
            Command::new("sh")
                .args(["-c", "kill -TERM \"$1\"", "sh", &pid])
                .status()
                .unwrap()
                .success()
        );
        let status = self.ended(STOP_MAX);
        assert!(
            status.success(),
            "the daemon ended with {status}:\n{}",
            self.log_tail()
        );
    }

    /// Waits until the daemon has ended, and says how.
    #[track_caller]
    pub fn ended(&mut self, deadline: Duration) -> ExitStatus {
        let child = self.child.as_mut().expect("a daemon that was started");
        let status = wait_until("the daemon ends", deadline, || child.try_wait().unwrap());
        self.child = None;
        status
    }

    /// Runs another command on the same config.
    pub fn cli(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// The same later, from anywhere.
    pub fn prepared(&self, args: &[&str]) -> impl FnMut() -> Output + Send + use<> {
        let mut command = self.command(args);
        move || command.stdin(Stdio::null()).output().unwrap()
    }

    /// The JSON answer of a command that must succeed.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.cli(&[args, &["--json"]].concat());
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "creditd {args:?}: {}\n{stdout}{stderr}",
            output.status
        );
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("creditd {args:?}: {error}\n{stdout}"))
    }

    /// Asks a command again and again until `found` sees what it wants in the JSON. A refusal is asked again
    /// too: the database may not be there yet.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, args: &[&str], mut found: impl FnMut(&Value) -> Option<T>) -> T {
        wait_until(what, PATIENCE, || {
            let output = self.cli(&[args, &["--json"]].concat());
            found(&serde_json::from_slice(&output.stdout).ok()?)
        })
    }

    /// The first line that `creditd check` has under a name.
    pub fn check_line(&self, name: &str) -> Option<Value> {
        let answer: Value = serde_json::from_slice(&self.cli(&["check", "--json"]).stdout).unwrap();
        let lines = answer["lines"].as_array().unwrap().iter();
        lines.into_iter().find(|line| line["name"] == name).cloned()
    }

    /// A command on the same config, not yet run.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CREDITD_") {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
            .current_dir(self.dir.path())
            .arg("--config")
            .arg(self.config_file())
            .args(args);
        command
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("---- end of the daemon's log ----\n{}\n----", self.log_tail());
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
