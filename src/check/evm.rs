//! What `creditd check` finds of EVM chains: each endpoint by itself, because a daemon goes from one to
//! another when it has to, and each must then be able to do what the config asks for.

mod calls;
mod tokens;

use super::branch::{self, Known};
use super::clock::clock_line;
use super::steps::passing_step;
use super::{Line, Verdict, counted, line, secret_step, start_line};
use crate::chain::evm::endpoints::{Node, Standing};
use crate::chain::evm::{EvmSource, Pinned};
use crate::chain::rpc::{Answer, Limits, Question};
use crate::chain::{ChainSource as _, Identity, NodeTip, SourceError};
use crate::clock::Clock;
use crate::config::{EndpointUrl, EvmChain, EvmEndpoint, InnerSource};
use crate::egress::HttpDial;
use crate::rules::BlockHash;
use crate::rules::policy::{Policy, Requirement};
use crate::telemetry::error_line;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// What one answer may take.
const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(30),
    body_bytes_max: 256 << 20,
};

/// What has a provider asked less, or give more.
const SLOWER: &str = "a larger plan, a smaller `batch_max`, a longer `poll_ms`, or an endpoint more";

/// One endpoint under examination.
struct Exam<'c> {
    chain: &'c EvmChain,
    endpoint: &'c EvmEndpoint,
    source: EvmSource<HttpDial>,
    lines: Vec<Line>,
}

/// All that is to be said of a chain.
pub(super) async fn lines(chain: &EvmChain, known: Option<&Known>, clock: Clock) -> Vec<Line> {
    let mut genesis = known.and_then(|known| known.row.genesis);
    let (mut lines, mut tips) = (Vec::new(), Vec::new());
    for endpoint in &chain.endpoints {
        let (found, usable) = of_endpoint((chain, endpoint), genesis, known, clock).await;
        let name = Some(endpoint.name.clone());
        lines.extend(found.into_iter().map(|line| Line {
            endpoint: name.clone(),
            ..line
        }));
        if let Some((identity, tip)) = usable {
            // The next one must begin with the same block.
            genesis = genesis.or(Some(identity.genesis));
            tips.push(tip);
        }
    }
    if !tips.is_empty() {
        // The chain is followed all the same.
        let is_down = |line: &&mut Line| line.name == "node" && line.verdict == Verdict::Bad;
        for line in lines.iter_mut().filter(is_down) {
            line.verdict = Verdict::Warning;
        }
    }
    lines.extend(quorum_line(chain, tips.len()));
    let cursor = known.and_then(|known| known.row.cursor.as_ref());
    let highest = tips.into_iter().max_by_key(|tip| tip.height);
    lines.extend(highest.and_then(|tip| start_line(chain.start, &tip, cursor)));
    lines.extend(chain.native.as_ref().map(|native| inner_line(native.inner)));
    for line in &mut lines {
        line.chain = Some(chain.alias.clone());
    }
    lines
}

/// What is found of an endpoint, and where it stands if it can be used.
async fn of_endpoint(
    (chain, endpoint): (&EvmChain, &EvmEndpoint),
    genesis: Option<BlockHash>,
    known: Option<&Known>,
    clock: Clock,
) -> (Vec<Line>, Option<(Identity, NodeTip)>) {
    let dial = HttpDial::believing(endpoint.ca_file.clone());
    let node = match Node::of(endpoint, chain.batch_max, dial) {
        Ok(node) => node,
        Err(error) => {
            let bad = line("node", Verdict::Bad, error_line(&error), secret_step(&error));
            return (vec![bad], None);
        }
    };
    let pinned = Pinned {
        genesis,
        ..Pinned::default()
    };
    let mut exam = Exam {
        chain,
        endpoint,
        source: EvmSource::of_each(chain, vec![node], &pinned, clock),
        lines: Vec::new(),
    };
    let Some(identity) = exam.identity().await else {
        return (exam.lines, None);
    };
    let tip = match exam.source.tip().await {
        Ok(tip) => tip,
        Err(error) => {
            exam.push("sync", Verdict::Bad, error_line(&error), "ask again");
            return (exam.lines, None);
        }
    };
    exam.sync(&tip, clock);
    if let Some(known) = known {
        let line = branch::line_of(&exam.source, &tip, known).await;
        exam.lines.extend(line);
    }
    exam.lines.push(clock_line(&tip, clock));
    exam.tags(&tip);
    exam.calls(&tip).await;
    exam.tokens(&tip).await;
    exam.limit();
    (exam.lines, Some((identity, tip)))
}

impl Exam<'_> {
    fn push(
        &mut self,
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        next_step: impl Into<String>,
    ) {
        self.lines.push(line(name, verdict, found, next_step));
    }

    fn good(&mut self, name: &'static str, found: impl Into<String>) {
        self.push(name, Verdict::Good, found, "");
    }

    /// An answer, or in words why there is none.
    async fn ask(&self, question: Question) -> Result<Answer, String> {
        let doing = format!("ask {}", question.method);
        let told = self.source.endpoints().ask(&doing, &[question], LIMITS).await;
        let answers = told.map_err(|error| error_line(&error))?.answers;
        let answer = answers.into_iter().next();
        answer.ok_or_else(|| format!("{doing}: no answer"))
    }

    /// An answer of this form.
    async fn read<T: DeserializeOwned>(&self, method: &'static str, params: Value) -> Result<T, String> {
        let answer = self.ask(Question::new(method, params)).await?;
        answer.decode().map_err(|error| error_line(&error))
    }

    async fn identity(&mut self) -> Option<Identity> {
        let place = match &self.endpoint.url {
            EndpointUrl::Plain(url) => url.to_string(),
            EndpointUrl::File(_) => "the URL of its file".to_owned(),
        };
        let identity = match self.source.endpoints().identity().await {
            Ok(identity) => identity,
            Err(error @ SourceError::WrongNetwork(_)) => {
                let next = format!(
                    "point endpoint {} to a node of chain id {}, or correct `chain_id`, `instance` and \
                     `checkpoints`",
                    self.endpoint.name, self.chain.chain_id
                );
                self.push("network", Verdict::Bad, error.to_string(), next);
                return None;
            }
            Err(error) => {
                let next = passing_step(&error, SLOWER).unwrap_or_else(|| {
                    let name = &self.endpoint.name;
                    format!(
                        "start the node, or correct the URL and the login of endpoint {name} in the config"
                    )
                });
                self.push("node", Verdict::Bad, error_line(&error), next);
                return None;
            }
        };
        let software = match identity.software.as_str() {
            "" => "a node that does not say what it is",
            software => software,
        };
        self.good("node", format!("{software} answers at {place}"));
        let count = self.chain.checkpoints.len() as u64;
        let chain = &identity.chain;
        let shown = format!("{chain}, first block {}", chain.print(identity.genesis));
        match self.source.endpoints().unproven_above() {
            None => self.good(
                "network",
                format!("{shown}, {} shown", counted(count, "checkpoint")),
            ),
            Some(height) => self.push(
                "network",
                Verdict::Warning,
                format!("{shown}; it has not reached the checkpoints above block {height} yet"),
                "wait: nothing above that block is credited until it has shown them",
            ),
        }
        Some(identity)
    }

    fn sync(&mut self, tip: &NodeTip, clock: Clock) {
        if tip.is_syncing {
            let found = format!("the node is catching up: block {} of {}", tip.height, tip.headers);
            self.push("sync", Verdict::Warning, found, "wait; creditd follows along");
            return;
        }
        let age_secs = clock.now_ms() / 1000 - i64::try_from(tip.time_secs).unwrap_or_default();
        let is_old = |limit: Duration| u64::try_from(age_secs).is_ok_and(|age| age > limit.as_secs());
        if self.chain.tip_age_max.is_some_and(is_old) {
            let age = match age_secs {
                ..120 => counted(age_secs.unsigned_abs(), "second"),
                _ => counted(age_secs.unsigned_abs() / 60, "minute"),
            };
            self.push(
                "sync",
                Verdict::Warning,
                format!("block {}, which is {age} old", tip.height),
                "see whether the node has peers and its consensus client runs: nothing is evicted until then",
            );
            return;
        }
        self.good("sync", format!("block {}", tip.height));
    }

    /// Only where a policy waits for a tag: a payment would wait for ever on a chain without.
    fn tags(&mut self, tip: &NodeTip) {
        let native = self.chain.native.iter().map(|native| &native.policy);
        let tokens = self.chain.tokens.iter().map(|token| &token.policy);
        let policies: Vec<&Policy> = native.chain(tokens).collect();
        let needs = |needs: Requirement| policies.iter().any(|policy| policy.needs(needs));
        let tags = [
            (Requirement::Safe, "safe", tip.tags.safe),
            (Requirement::Finalized, "finalized", tip.tags.finalized),
        ];
        for (needed, word, tagged) in tags.into_iter().filter(|(needed, _, _)| needs(*needed)) {
            match tagged {
                Some(tagged) => self.good("tags", format!("{word} up to block {}", tagged.height)),
                None => self.push(
                    "tags",
                    Verdict::Bad,
                    format!("a policy waits for {needed}, and the node has none"),
                    "wait if the chain is new; else run its consensus client, or name a number of \
                     confirmations in the policy",
                ),
            }
        }
    }

    /// Whether it had enough of the questions above: a daemon asks more.
    fn limit(&mut self) {
        let views = self.source.endpoints().list();
        let limited = views.iter().find_map(|view| match &view.standing {
            Standing::RateLimited { why, .. } => Some(why.clone()),
            Standing::Unchecked
            | Standing::Healthy { .. }
            | Standing::Unreachable { .. }
            | Standing::Quarantined { .. } => None,
        });
        if let Some(why) = limited {
            self.push(
                "limit",
                Verdict::Warning,
                format!("it is over its limit: {why}"),
                SLOWER,
            );
        }
    }
}

fn quorum_line(chain: &EvmChain, usable: usize) -> Option<Line> {
    let quorum = chain.quorum;
    if quorum <= 1 {
        return None;
    }
    let found = format!("{quorum} endpoints must agree before a credit, {usable} can be asked");
    Some(match usable < quorum {
        true => line(
            "quorum",
            Verdict::Bad,
            found,
            "bring the others up or name more: until then credits wait",
        ),
        false => line("quorum", Verdict::Good, found, ""),
    })
}

/// Which of the three ways sees coin that a contract passes on.
fn inner_line(inner: InnerSource) -> Line {
    match inner {
        InnerSource::Traces(_) => line(
            "inner",
            Verdict::Good,
            "coin that moves inside transactions is seen by call traces",
            "",
        ),
        InnerSource::Eip7708 => line(
            "inner",
            Verdict::Good,
            "coin that moves inside transactions is seen by the logs that the chain writes (EIP-7708)",
            "",
        ),
        InnerSource::None { sweep } => line(
            "inner",
            Verdict::Warning,
            format!(
                "inner coin is not seen as it moves; balances are compared every {}",
                span(sweep)
            ),
            "inner = \"traces\", where an endpoint offers them, credits it by itself",
        ),
    }
}

fn span(span: Duration) -> String {
    match span.as_secs() {
        secs if secs >= 60 && secs.is_multiple_of(60) => counted(secs / 60, "minute"),
        0 => format!("{} milliseconds", span.as_millis()),
        secs => counted(secs, "second"),
    }
}

/// A hash as nodes want it.
fn hex(hash: impl std::fmt::Display) -> Value {
    json!(format!("0x{hash}"))
}
