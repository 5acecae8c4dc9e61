//! What a test has a proxy do: which questions are answered otherwise, how, and until when.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use crate::common::stub::Call;
use crate::common::wait::{PATIENCE, wait_until};

type EditResult = dyn Fn(&Call, Value) -> Value + Send + Sync;
type Matches = Box<dyn Fn(&Call) -> bool + Send>;

/// Which questions a fault is for: a method's name, `*` for all, or what the functions here say.
pub struct Asked(Matches);

impl From<&str> for Asked {
    fn from(method: &str) -> Self {
        let method = method.to_owned();
        Self(Box::new(move |call| method == "*" || call.method == method))
    }
}

impl Asked {
    /// A method with these parameters; there may be more behind them.
    pub fn with(method: &str, params: Value) -> Self {
        let method = method.to_owned();
        let params = params.as_array().unwrap().clone();
        Self::when(move |call| call.method == method && call.params.starts_with(&params))
    }

    pub fn when(matches: impl Fn(&Call) -> bool + Send + 'static) -> Self {
        Self(Box::new(matches))
    }
}

/// What goes wrong with one question, or with the whole HTTP exchange that it is part of.
#[derive(Clone)]
pub enum Fault {
    /// The question waits here before the node is asked.
    HoldQuestion(Gate),
    /// The node is asked, and its answer waits here.
    HoldAnswer(Gate),
    /// Another result, whatever the node says.
    Result(Value),
    /// An error object instead.
    Error(i64, &'static str),
    /// The node's result (null in place of an error), changed.
    Edit(Arc<EditResult>),
    /// The whole answer to the question, with its id, changed.
    EditAnswer(Arc<dyn Fn(Value) -> Value + Send + Sync>),
    /// No answer to this question: an entry less in a batch, else an empty body.
    Missing,
    /// All answers of the exchange, changed into what is sent.
    EditAll(Arc<dyn Fn(Vec<Value>) -> Value + Send + Sync>),
    /// The connection is closed without a word.
    Close,
    /// This HTTP status with an empty body, and when to come again.
    Status(u16, Option<String>),
    /// No JSON-RPC at all.
    Text(u16, &'static str),
    /// The first half of the good body, then the connection is closed.
    Cut,
    /// A body of this many blanks, its length announced.
    Oversized(u64),
    /// A body of this many blanks without a length.
    OversizedUnannounced(u64),
}

impl Fault {
    pub fn edit(edit: impl Fn(&Call, Value) -> Value + Send + Sync + 'static) -> Self {
        Self::Edit(Arc::new(edit))
    }

    /// Sets one field of a result that is an object.
    pub fn field(name: &'static str, value: Value) -> Self {
        Self::edit(move |_, mut result| {
            result[name] = value.clone();
            result
        })
    }

    /// Takes one field away from a result that is an object.
    pub fn without_field(name: &'static str) -> Self {
        Self::edit(move |_, mut result| {
            result.as_object_mut().unwrap().remove(name);
            result
        })
    }

    pub fn edit_answer(edit: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        Self::EditAnswer(Arc::new(edit))
    }

    /// A good result that belongs to another request.
    pub fn wrong_id() -> Self {
        Self::edit_answer(|mut answer| {
            answer["id"] = json!("somebody else's");
            answer
        })
    }

    pub fn edit_all(edit: impl Fn(Vec<Value>) -> Value + Send + Sync + 'static) -> Self {
        Self::EditAll(Arc::new(edit))
    }

    /// The answers of a batch, the last one first.
    pub fn reversed() -> Self {
        Self::edit_all(|answers| answers.into_iter().rev().collect())
    }

    /// The answers of a batch in order, each with the id of the next one.
    pub fn shifted_ids() -> Self {
        Self::edit_all(|mut answers| {
            let mut ids: Vec<Value> = answers.iter().map(|answer| answer["id"].clone()).collect();
            ids.rotate_left(1);
            for (answer, id) in answers.iter_mut().zip(ids) {
                answer["id"] = id;
            }
            Value::Array(answers)
        })
    }

    /// One error object as the answer to a whole batch.
    pub fn one_error(code: i64, message: &'static str) -> Self {
        let error = json!({ "code": code, "message": message });
        Self::edit_all(move |_| json!({ "jsonrpc": "2.0", "id": null, "error": error }))
    }

    /// This HTTP status, with `Retry-After` as so many seconds.
    pub fn retry_after_secs(status: u16, secs: u64) -> Self {
        Self::Status(status, Some(secs.to_string()))
    }

    /// This HTTP status, with `Retry-After` as the date in so many seconds.
    pub fn retry_after_date(status: u16, secs: i64) -> Self {
        let when = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(secs);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&when);
        Self::Status(status, Some(date.unwrap()))
    }

    /// Does it end the exchange, whatever the answers are?
    pub(super) fn is_of_exchange(&self) -> bool {
        match self {
            Self::EditAll(_)
            | Self::Close
            | Self::Status(..)
            | Self::Text(..)
            | Self::Cut
            | Self::Oversized(_)
            | Self::OversizedUnannounced(_) => true,
            Self::HoldQuestion(_)
            | Self::HoldAnswer(_)
            | Self::Result(_)
            | Self::Error(..)
            | Self::Edit(_)
            | Self::EditAnswer(_)
            | Self::Missing => false,
        }
    }
}

/// Holds up whatever comes to it until it is opened, and can be shut again.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Passage>, Condvar)>);

#[derive(Default)]
struct Passage {
    is_open: bool,
    waiting: usize,
}

impl Gate {
    /// A shut one.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }

    pub fn shut(&self) {
        self.0.0.lock().unwrap().is_open = false;
    }

    /// How many wait before it.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    /// Waits until so many wait before it.
    #[track_caller]
    pub fn wait_for(&self, waiting: usize) {
        wait_until("questions at the gate", PATIENCE, || {
            (self.waiting() >= waiting).then_some(())
        });
    }

    pub(super) fn pass(&self) {
        let mut passage = self.0.0.lock().unwrap();
        passage.waiting += 1;
        let mut passage = self.0.1.wait_while(passage, |passage| !passage.is_open).unwrap();
        passage.waiting -= 1;
    }
}

/// Names a standing fault, to lift it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

struct Rule {
    id: FaultId,
    asked: Asked,
    fault: Fault,
    is_once: bool,
}

/// All faults of a proxy.
#[derive(Default)]
pub(super) struct Script {
    rules: Vec<Rule>,
    serial: u64,
}

impl Script {
    pub(super) fn add(&mut self, asked: Asked, fault: Fault, is_once: bool) -> FaultId {
        self.serial += 1;
        let id = FaultId(self.serial);
        self.rules.push(Rule {
            id,
            asked,
            fault,
            is_once,
        });
        id
    }

    pub(super) fn lift(&mut self, id: FaultId) {
        self.rules.retain(|rule| rule.id != id);
    }

    pub(super) fn lift_all(&mut self) {
        self.rules.clear();
    }

    /// What is done with a question: the oldest fault for once, which is then used up, else all standing
    /// ones.
    pub(super) fn faults(&mut self, call: &Call) -> Vec<Fault> {
        let once = self
            .rules
            .iter()
            .position(|rule| rule.is_once && (rule.asked.0)(call));
        if let Some(once) = once {
            return vec![self.rules.remove(once).fault];
        }
        let standing = self.rules.iter().filter(|rule| (rule.asked.0)(call));
        standing.map(|rule| rule.fault.clone()).collect()
    }
}
