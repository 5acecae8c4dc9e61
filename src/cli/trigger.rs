//! `trigger`: one step of a sandbox that runs elsewhere, asked for over HTTP.

use super::out::Out;
use super::sandbox_args::{Rival, Trigger, What};
use super::table::{Align, Table};
use super::{Outcome, Problem};
use crate::egress::{Dial as _, HttpDial, HttpRequest};
use crate::sandbox::service::{CONTROL, FOLDER, STATE_FILE};
use crate::sandbox::step::{self, Blocks, NodeState, OfTx, On, Reorg, Step, Tags};
use crate::sandbox::{Done, Refused};
use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

/// Ten thousand blocks take seconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// More than any state here.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Says where the sandbox listens, where `--sandbox` does not.
const SANDBOX_VAR: &str = "CREDITD_SANDBOX";

/// Where a sandbox is looked for, if nothing says where it is.
const NEXT: &str = "`creditd sandbox` starts one; --folder or --sandbox say where it is";

/// A step that was done.
#[derive(Serialize)]
struct DoneJson<'a> {
    chain: &'a str,
    did: &'a str,
    txid: Option<&'a str>,
    block: Option<&'a str>,
    height: u64,
}

/// Tells a sandbox what is to happen.
pub(super) fn trigger(out: &mut Out, args: &Trigger) -> anyhow::Result<Outcome> {
    let url = place(args)?;
    match &args.what {
        What::State => {
            let state = ask(&url, "/v1/state", None)?;
            match out.json {
                true => out.json(&state),
                false => show_state(out, &state),
            }
        }
        What::Go => say(out, &ask(&url, "/v1/go", Some(&json!({})))?),
        What::Reset => say(out, &ask(&url, "/v1/reset", Some(&json!({})))?),
        what => {
            let step = step_of(what);
            let path = format!("/v1/{}/{}", args.chain.word(), step.verb());
            let answer = ask(&url, &path, Some(&step.body()))?;
            let done: Done = serde_json::from_value(answer).context("read the sandbox's answer")?;
            show(out, args.chain, &done)
        }
    }
}

/// What the command line says, else the file of the folder, else where every sandbox listens. A folder that
/// was named and has no sandbox is none: at the usual port there may be another one.
fn place(args: &Trigger) -> anyhow::Result<String> {
    let folder = args.folder.as_deref().unwrap_or(Path::new(FOLDER));
    let file = || {
        let text = std::fs::read(folder.join(STATE_FILE)).ok()?;
        let places: Value = serde_json::from_slice(&text).ok()?;
        Some(places["control"].as_str()?.to_owned())
    };
    let named = args.sandbox.clone();
    let named = named.or_else(|| std::env::var(SANDBOX_VAR).ok()).or_else(file);
    if named.is_none() && args.folder.is_some() {
        let text = format!("no sandbox was started with {}", folder.display());
        return Err(Problem::misuse(text, NEXT).into());
    }
    let url = named.unwrap_or_else(|| CONTROL.to_string());
    let url = url.trim_end_matches('/');
    Ok(match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    })
}

fn step_of(what: &What) -> Step {
    let of = |tx: &String| OfTx { tx: tx.clone() };
    let rival = |rival: &Rival| step::Rival {
        tx: rival.tx.clone(),
        to: rival.to.clone(),
        amount: rival.amount.clone(),
        name: rival.name.clone(),
    };
    match what {
        What::Deposit {
            to,
            amount,
            token,
            name,
        } => Step::Deposit(step::Deposit {
            to: to.clone(),
            amount: amount.clone(),
            token: token.clone(),
            name: name.clone(),
        }),
        What::DoubleSpend(args) => Step::DoubleSpend(rival(args)),
        What::Replace(args) => Step::Replace(rival(args)),
        What::Reorg { depth, keep } => Step::Reorg(Reorg {
            depth: *depth,
            keep: keep.clone(),
        }),
        What::Evict { tx } => Step::Evict(of(tx)),
        What::Resend { tx } => Step::Resend(of(tx)),
        What::Fail { tx } => Step::Fail(of(tx)),
        What::Lag { blocks } => Step::Lag(Blocks { blocks: *blocks }),
        What::Mine { blocks } => Step::Mine(Blocks { blocks: *blocks }),
        What::Tags { safe, finalized } => Step::Tags(Tags {
            safe: safe.clone(),
            finalized: finalized.clone(),
        }),
        What::Node { trouble, for_ms } => Step::Node(NodeState {
            trouble: trouble.clone(),
            for_ms: *for_ms,
        }),
        What::State | What::Go | What::Reset => unreachable!("they are no steps"),
    }
}

/// What the sandbox answers; a refusal is an error with its own next step.
fn ask(url: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("ask the sandbox")?;
    let request = HttpRequest {
        body: body.map(|body| body.to_string().into()),
        url: format!("{url}{path}"),
        headers: vec![(Cow::Borrowed("content-type"), "application/json".to_owned())],
        deadline: DEADLINE,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    let reply = runtime.block_on(HttpDial::new().send(request));
    let reply = reply.map_err(|error| {
        let why = crate::telemetry::error_line(&error);
        Problem::misuse(format!("no sandbox answers at {url}: {why}"), NEXT)
    })?;
    let answer: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let refused = |answer: &Value| serde_json::from_value::<Refused>(answer.clone()).ok();
    match (reply.status, answer) {
        // A node answers any question with 200.
        (200, Some(answer)) if answer["did"].is_string() || answer["names"].is_object() => Ok(answer),
        (_, Some(answer)) if refused(&answer).is_some() => {
            let refused = refused(&answer).context("read the sandbox's answer")?;
            Err(Problem::found(refused.error, refused.next).into())
        }
        (status, _) => {
            let text = format!("what listens at {url} is no sandbox: it answers with status {status}");
            Err(Problem::misuse(text, NEXT).into())
        }
    }
}

fn show(out: &mut Out, on: On, done: &Done) -> anyhow::Result<Outcome> {
    if out.json {
        return out.json(&DoneJson {
            chain: on.word(),
            did: &done.did,
            txid: done.txid.as_deref(),
            block: done.block.as_deref(),
            height: done.height,
        });
    }
    out.line(format!("{}: {}", on.word(), done.did))?;
    if let Some(txid) = &done.txid {
        out.field("tx", txid)?;
    }
    if let Some(block) = &done.block {
        out.field("block", block)?;
    }
    out.field("height", done.height.to_string())?;
    out.done()
}

fn say(out: &mut Out, answer: &Value) -> anyhow::Result<Outcome> {
    if out.json {
        return out.json(answer);
    }
    out.line(answer["did"].as_str().unwrap_or_default())?;
    out.done()
}

fn show_state(out: &mut Out, state: &Value) -> anyhow::Result<Outcome> {
    for on in On::ALL {
        let node = &state[on.word()];
        let waiting = node["waiting"].as_array().map_or(0, Vec::len);
        let lags = if node["lags"] == true { ", lags" } else { "" };
        let trouble = match node["trouble"].as_str() {
            Some(trouble) => format!(", in trouble: {trouble}"),
            None => String::new(),
        };
        out.line(format!(
            "{}  {}  height {}, {waiting} waiting{lags}{trouble}",
            on.word(),
            node["url"].as_str().unwrap_or_default(),
            node["height"],
        ))?;
    }
    let mut table = Table::new(&["name", "chain", "tx", "place"].map(|name| (name, Align::Left)));
    for (name, tx) in state["names"].as_object().into_iter().flatten() {
        let text = |key: &str| tx[key].as_str().unwrap_or_default().to_owned();
        let place = match tx["depth"].as_u64() {
            Some(depth) => format!("mined, {depth} deep"),
            None => text("place"),
        };
        table.row(vec![name.clone(), text("chain"), text("txid"), place]);
    }
    out.table(&table, "no transaction has a name", None)
}
