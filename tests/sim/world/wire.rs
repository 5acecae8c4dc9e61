//! The real sources over a dial that leads to simulated nodes in this process: whatever lies between a node's
//! words and the follower's is driven too.

use super::mangle::{Mangle, Sent};
use super::rules::{LATER, TUSD};
use super::twins::{CHAIN_ID, Twins};
use crate::marks;
use crate::script::LieKind;
use crate::scripted::{Scripted, token};
use axum::Router;
use axum::body::Body;
use creditd::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, EvmSource, Inner, NativeRule, TokenRule, TraceCall};
use creditd::chain::rpc::{Auth, Place};
use creditd::clock::Clock;
use creditd::egress::{Dial, DialError, HttpReply, HttpRequest};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No answer of a simulated node is larger.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The simulated nodes of an EVM chain.
#[derive(Clone)]
pub struct Wire(Arc<Shared>);

struct Shared {
    scripted: Scripted,
    twins: Mutex<Twins>,
    routers: Vec<TowerToHyperService<Router>>,
    mangle: Mutex<Mangle>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "wire to {} nodes", self.0.routers.len())
    }
}

impl Wire {
    pub fn new(scripted: &Scripted) -> Wire {
        let (count, genesis) = {
            let world = scripted.world();
            (world.nodes.len(), world.tree.genesis())
        };
        let twins = Twins::new(count, genesis);
        let routers = twins.routers().into_iter().map(TowerToHyperService::new);
        Wire(Arc::new(Shared {
            scripted: scripted.clone(),
            routers: routers.collect(),
            twins: Mutex::new(twins),
            mangle: Mutex::default(),
        }))
    }

    fn twins(&self) -> MutexGuard<'_, Twins> {
        self.0.twins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mangle(&self) -> MutexGuard<'_, Mangle> {
        self.0.mangle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Twins go where their nodes are.
    pub fn follow(&self) {
        let world = self.0.scripted.world();
        self.twins().follow(&world);
    }

    pub fn lie(&self, lie: LieKind, times: u32, dice: u64) {
        self.mangle().lie(lie, times, dice);
    }

    pub fn heal(&self) {
        self.mangle().stop();
        self.follow();
    }

    /// The source of a life, with these terms.
    pub fn source(&self, clock: Clock, quorum: usize, is_later_listed: bool) -> EvmSource<WireDial> {
        let chain = self.0.scripted.chain_id();
        let genesis = self.0.scripted.world().tree.genesis();
        let tokens = if is_later_listed {
            vec![TUSD, LATER]
        } else {
            vec![TUSD]
        };
        let rule = |number: u8| TokenRule {
            symbol: format!("T{number}"),
            decimals: 6,
            is_balance_checked: false,
            is_unindexed: false,
        };
        let rules = EvmRules {
            chain: chain.clone(),
            tokens: tokens
                .into_iter()
                .map(|number| (Account(token(number)), rule(number)))
                .collect(),
            native: Some(NativeRule::by(Inner::Traces(TraceCall::Any))),
            has_bloom: true,
            lists_pending: true,
        };
        let config = EndpointsConfig {
            chain_id: CHAIN_ID,
            chain,
            checkpoints: vec![],
            quorum: 1,
            call_deadline: Duration::from_secs(10),
            recheck: Duration::from_secs(60),
        };
        let nodes = (0..self.0.routers.len()).map(|at| Node {
            name: format!("node {at}"),
            place: Place::Url(format!("http://node{at}")),
            auth: Auth::None,
            batch_max: 50,
            dial: WireDial {
                wire: self.clone(),
                nodes: self.0.scripted.under(clock),
                at,
            },
        });
        let nodes: Vec<Node<WireDial>> = nodes.collect();
        let config = EndpointsConfig {
            quorum: quorum.clamp(1, nodes.len()),
            ..config
        };
        let endpoints = Endpoints::new(config, nodes, Some(genesis), clock);
        EvmSource::new(rules, endpoints, clock)
    }
}

/// The way to one endpoint: behind its name stands the node that answers now, or the one after it.
pub struct WireDial {
    wire: Wire,
    nodes: Scripted,
    at: usize,
}

fn broken(why: &str) -> DialError {
    DialError::Broken(Box::new(Error::new(ErrorKind::ConnectionReset, why.to_owned())))
}

impl Dial for WireDial {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let deadline_ms = u64::try_from(request.deadline.as_millis()).unwrap_or(u64::MAX);
        let node = match tokio::time::timeout(request.deadline, self.nodes.reach(self.at)).await {
            Ok(Ok(node)) => node,
            Ok(Err(error)) => return Err(broken(&error.to_string())),
            Err(_) => return Err(DialError::TimedOut { deadline_ms }),
        };
        let asked = request.body.clone().unwrap_or_default();
        let (status, body) = answer(&self.wire.0.routers[node], request).await;
        let sent = self.wire.mangle().change(&asked, body);
        match sent {
            Sent::Whole(body) => Ok(HttpReply {
                status,
                retry_after_secs: None,
                body: body.into(),
            }),
            Sent::Cut => Err(broken("cut")),
        }
    }

    fn reset(&self) {}
}

async fn answer(router: &TowerToHyperService<Router>, request: HttpRequest) -> (u16, Vec<u8>) {
    let path = request
        .url
        .split("://")
        .nth(1)
        .and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    let method = if request.body.is_some() { "POST" } else { "GET" };
    let mut asked = hyper::Request::builder().method(method).uri(path.unwrap_or("/"));
    for (name, value) in &request.headers {
        asked = asked.header(name.as_ref(), value);
    }
    let asked = asked.body(Body::from(request.body.unwrap_or_default())).unwrap();
    let response = match router.call(asked).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    marks::hit("wire_answer");
    (status, body.map(Vec::from).unwrap_or_default())
}
