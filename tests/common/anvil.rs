//! A real EVM node (Anvil) on loopback, gone when the test ends.
//!
//! It mines only when told to, transactions in the order they came. Hashes and addresses are the lower-case
//! hex strings of the RPC, amounts of native coin are wei.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{self, Request};
use super::net::free_port;
use super::node::{node_exe, string};
use super::wait::{PATIENCE, wait_until};

/// How often a start is tried again when another process took the free port first.
const STARTS_MAX: u32 = 5;

/// Starts the node, and kills it when our input ends: at our wish, or with the test process, however that
/// ends. The last line is for a launcher that is not the node itself: all that it started is in this group.
const UNTIL_INPUT_ENDS: &str = r#"
exec 3<&0
"$0" "$@" </dev/null 3<&- & node=$!
(read -r _ <&3; kill -s KILL "$node") & reader=$!
wait "$node"
kill -s KILL "$reader"
wait
kill -s KILL 0
"#;

/// A refusal of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
}

/// A running (or killed) node.
pub struct AnvilNode {
    dir: TempDir,
    chain_id: u64,
    args: Vec<String>,
    port: u16,
    /// The timestamp of block 0, by which a later start makes the same block 0.
    genesis_secs: Option<u64>,
    child: Option<Child>,
}

impl AnvilNode {
    pub fn start(chain_id: u64) -> Self {
        Self::start_with(chain_id, &[])
    }

    /// Like [`start`](Self::start), with more arguments for Anvil.
    pub fn start_with(chain_id: u64, args: &[&str]) -> Self {
        Self::launch(chain_id, args.iter().map(ToString::to_string).collect(), None)
    }

    /// A second node that has this one's blocks so far, and goes its own way from there.
    pub fn start_twin(&self) -> Self {
        let twin = Self::launch(self.chain_id, self.args.clone(), self.genesis_secs);
        twin.use_state(&self.state());
        twin
    }

    fn launch(chain_id: u64, args: Vec<String>, genesis_secs: Option<u64>) -> Self {
        let dir = tempfile::Builder::new().prefix("creditd-anvil-").tempdir();
        let mut node = Self {
            dir: dir.unwrap(),
            chain_id,
            args,
            port: 0,
            genesis_secs,
            child: None,
        };
        for _ in 0..STARTS_MAX {
            node.port = free_port();
            if node.spawn() {
                let genesis = node.block(0);
                node.genesis_secs = Some(quantity(&genesis["timestamp"]).try_into().unwrap());
                return node;
            }
        }
        panic!("Anvil ended at once {STARTS_MAX} times; its log:\n{}", node.log());
    }

    /// Starts the process and waits until it answers; false if it ended instead (the port was taken).
    fn spawn(&mut self) -> bool {
        assert!(self.child.is_none(), "the node is already running");
        let log = std::fs::File::create(self.log_file()).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", UNTIL_INPUT_ENDS]);
        command.arg(node_exe("ANVIL_EXE", "anvil"));
        command.args(["--host", "127.0.0.1", "--no-mining", "--order", "fifo"]);
        command.args([
            format!("--port={}", self.port),
            format!("--chain-id={}", self.chain_id),
        ]);
        // A block holds what a test sends, and a saved state all blocks with their state.
        command.args(["--gas-limit=1000000000", "--no-request-size-limit"]);
        command.arg("--preserve-historical-states");
        command.args(self.genesis_secs.map(|secs| format!("--timestamp={secs}")));
        command
            .args(&self.args)
            // Old states go to a folder below the home.
            .env("HOME", self.dir.path())
            .current_dir(self.dir.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
        // Its own word, not any answer at the port: that could be another test's node.
        let is_up = wait_until("Anvil listens", PATIENCE, || {
            let listens = self
                .log()
                .contains(&format!("Listening on 127.0.0.1:{}", self.port));
            listens
                .then_some(true)
                .or_else(|| self.has_ended().then_some(false))
        });
        if is_up {
            assert_eq!(
                quantity(&self.call("eth_chainId", json!([]))),
                self.chain_id.into()
            );
        } else {
            self.child = None;
        }
        is_up
    }

    fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn chain_id(&self) -> u64 {
        self.chain_id
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("anvil.log")
    }

    /// What the node has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    // ---- calls ----

    #[track_caller]
    fn post(&self, body: &Value) -> Value {
        let request = Request {
            verb: "POST".to_owned(),
            path: "/".to_owned(),
            authorization: None,
            body: body.to_string().into_bytes(),
        };
        let (status, _, answer) = http::forward(self.port, &request, "nobody:").unwrap();
        let text = String::from_utf8_lossy(&answer);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{body}: status {status}, {text}"))
    }

    /// Any call; a refusal is an `Err`.
    pub fn try_call(&self, method: &str, params: Value) -> Result<Value, Refusal> {
        outcome(self.post(&request(0, method, params)))
    }

    /// Any call that must work.
    #[track_caller]
    pub fn call(&self, method: &str, params: Value) -> Value {
        match self.try_call(method, params.clone()) {
            Ok(answer) => answer,
            Err(refusal) => panic!("{method} {params}: {refusal:?}"),
        }
    }

    /// Calls that must all work, in one request: their answers in the same order.
    #[track_caller]
    pub fn batch(&self, calls: Vec<(&str, Value)>) -> Vec<Value> {
        let requests = calls
            .into_iter()
            .zip(0..)
            .map(|((method, params), id)| request(id, method, params));
        let mut answers = match self.post(&requests.collect()) {
            Value::Array(answers) => answers,
            other => panic!("a batch was answered {other}"),
        };
        answers.sort_by_key(|answer| answer["id"].as_u64());
        let answers = answers.into_iter().map(outcome);
        answers.collect::<Result<_, _>>().unwrap()
    }

    // ---- blocks ----

    /// Mines `count` blocks, the waiting transactions in the first; their hashes.
    #[track_caller]
    pub fn mine(&self, count: u32) -> Vec<String> {
        let from = self.height() + 1;
        self.mark_branch();
        self.call("anvil_mine", json!([hex(count.into())]));
        let numbers = from..from + u64::from(count);
        let blocks = numbers.map(|number| ("eth_getBlockByNumber", json!([hex(number.into()), false])));
        let blocks = self.batch(blocks.collect());
        blocks.iter().map(|block| string(&block["hash"])).collect()
    }

    /// Blocks mined from now on name a miner of their own. Without it a branch of the same transactions,
    /// within the same second, can come out as the very blocks that it replaces, or as those of another node.
    fn mark_branch(&self) {
        static BRANCHES: AtomicU32 = AtomicU32::new(1);
        let branch = BRANCHES.fetch_add(1, Ordering::Relaxed);
        self.call("anvil_setCoinbase", json!([format!("0xc0ffee{branch:034x}")]));
    }

    /// Puts `depth` new blocks in place of the last ones. They hold only these transactions, each with the
    /// place of its block among the new ones: raw ones (see [`raw`](Self::raw)), which keep their hash, or
    /// objects as for [`send`](Self::send). All others are forgotten, even by the pool.
    #[track_caller]
    pub fn reorg(&self, depth: u64, transactions: &[(Value, u64)]) -> Vec<String> {
        let height = self.height();
        self.mark_branch();
        self.call("anvil_reorg", json!([depth, transactions]));
        let numbers = height + 1 - depth..=height;
        numbers.map(|number| self.block_hash(number)).collect()
    }

    /// Takes the last `depth` blocks away, and forgets their transactions.
    #[track_caller]
    pub fn rollback(&self, depth: u64) {
        self.call("anvil_rollback", json!([depth]));
    }

    #[track_caller]
    pub fn height(&self) -> u64 {
        let number = self.call("eth_blockNumber", json!([]));
        quantity(&number).try_into().unwrap()
    }

    #[track_caller]
    pub fn tip(&self) -> String {
        string(&self.tagged("latest")["hash"])
    }

    #[track_caller]
    pub fn block_hash(&self, number: u64) -> String {
        string(&self.block(number)["hash"])
    }

    /// A block of the chain, with the hashes of its transactions.
    #[track_caller]
    pub fn block(&self, number: u64) -> Value {
        self.tagged(&hex(number.into()))
    }

    /// The block `latest`, `safe`, `finalized` or `pending`.
    #[track_caller]
    pub fn tagged(&self, tag: &str) -> Value {
        let block = self.call("eth_getBlockByNumber", json!([tag, false]));
        assert!(block.is_object(), "no block {tag}");
        block
    }

    #[track_caller]
    pub fn block_by_hash(&self, hash: &str) -> Option<Value> {
        known(self.call("eth_getBlockByHash", json!([hash, false])))
    }

    #[track_caller]
    pub fn receipts(&self, block_hash: &str) -> Option<Vec<Value>> {
        known(self.call("eth_getBlockReceipts", json!([block_hash]))).map(array)
    }

    #[track_caller]
    pub fn logs(&self, filter: Value) -> Vec<Value> {
        array(self.call("eth_getLogs", json!([filter])))
    }

    /// `debug_traceBlockByHash` with the `callTracer`: the outermost call of each transaction.
    #[track_caller]
    pub fn call_traces(&self, block_hash: &str) -> Vec<Value> {
        let tracer = json!({ "tracer": "callTracer" });
        let traces = array(self.call("debug_traceBlockByHash", json!([block_hash, tracer])));
        traces
            .into_iter()
            .map(|mut trace| trace["result"].take())
            .collect()
    }

    /// `trace_block`, which takes no hash: every frame of the block.
    #[track_caller]
    pub fn trace_block(&self, number: u64) -> Vec<Value> {
        array(self.call("trace_block", json!([hex(number.into())])))
    }

    // ---- states ----

    /// Remembers chain and state as they are.
    #[track_caller]
    pub fn snapshot(&self) -> String {
        string(&self.call("evm_snapshot", json!([])))
    }

    /// Goes back to a snapshot, which is used up by it.
    #[track_caller]
    pub fn revert(&self, snapshot: &str) {
        let is_done = self.call("evm_revert", json!([snapshot]));
        assert_eq!(is_done, json!(true), "no snapshot {snapshot}");
    }

    /// All blocks with their state, without the pool.
    #[track_caller]
    pub fn state(&self) -> Value {
        let with_history = true;
        self.call("anvil_dumpState", json!([with_history]))
    }

    /// Takes over the blocks of another node; a new one's, right after its start.
    #[track_caller]
    pub fn use_state(&self, state: &Value) {
        let is_done = self.call("anvil_loadState", json!([state]));
        assert_eq!(is_done, json!(true), "the state was not taken");
    }

    // ---- process ----

    /// Ends the process without warning.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Closes its input first.
            let _ = child.wait();
        }
    }

    /// Starts a killed node again at the same port. It has kept nothing: see [`use_state`](Self::use_state).
    pub fn start_again(&mut self) {
        // More than once: what a launcher started may hold the port for a moment yet.
        let is_up = (0..STARTS_MAX).any(|_| self.spawn());
        assert!(is_up, "Anvil did not start again; its log:\n{}", self.log());
    }

    /// Kills the node and starts it again with the blocks that it had.
    pub fn restart(&mut self) {
        let state = self.state();
        self.kill9();
        self.start_again();
        self.use_state(&state);
    }
}

impl Drop for AnvilNode {
    fn drop(&mut self) {
        self.kill9();
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn outcome(mut answer: Value) -> Result<Value, Refusal> {
    match answer.get("error") {
        None => Ok(answer["result"].take()),
        Some(error) => Err(Refusal {
            code: error["code"].as_i64().unwrap(),
            message: string(&error["message"]),
        }),
    }
}

pub(super) fn known(answer: Value) -> Option<Value> {
    (!answer.is_null()).then_some(answer)
}

#[track_caller]
pub fn array(answer: Value) -> Vec<Value> {
    match answer {
        Value::Array(items) => items,
        other => panic!("a list, not {other}"),
    }
}

/// A number as the RPC writes it.
pub fn hex(number: u128) -> String {
    format!("{number:#x}")
}

/// A number that the RPC wrote.
#[track_caller]
pub fn quantity(value: &Value) -> u128 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    number.unwrap_or_else(|| panic!("a quantity, not {value}"))
}
