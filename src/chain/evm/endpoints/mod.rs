//! Several endpoints of one chain as if they were one: asked in the order of preference, each only once it
//! has shown that it is on our chain, and whichever fails is passed over. It knows nothing of blocks and
//! money; start at [`Endpoints::ask`].

mod agree;
mod choose;
mod identity;
mod standing;

pub use agree::Agreement;
pub use choose::{Look, STEADY, choose};
pub use standing::{SeenTip, Standing};

pub(super) use identity::block_at;

use crate::chain::rpc::{Answer, Auth, Limits, Place, Question, RpcClient, RpcError};
use crate::chain::{Help, Identity, SourceError};
use crate::clock::Clock;
use crate::config::{Checkpoint, EndpointAuth, EndpointUrl, EvmChain, EvmEndpoint, SecretError};
use crate::egress::{Dial, DialError};
use crate::rules::{BlockHash, ChainId, TaggedBlock};
use identity::Misfit;
use standing::{Record, Reference};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The largest answer that only says where a node stands.
const SMALL_BYTES_MAX: usize = 8 << 20;

/// How often an endpoint that stands by is asked for its tip.
const LOOK: Duration = Duration::from_secs(15);

/// What every endpoint of a chain is held against.
#[derive(Clone, Debug)]
pub struct EndpointsConfig {
    /// What `eth_chainId` must say.
    pub chain_id: u64,
    /// The chain, for messages.
    pub chain: ChainId,
    /// Blocks that every endpoint must have, lowest first.
    pub checkpoints: Vec<Checkpoint>,
    /// How many must agree to a block before something is credited at it.
    pub quorum: usize,
    /// Total time of one small exchange.
    pub call_deadline: Duration,
    /// How long an endpoint is believed to be the one that it was, as long as its connection lasts.
    pub recheck: Duration,
}

impl EndpointsConfig {
    /// What the operator's config says.
    pub fn of(chain: &EvmChain) -> EndpointsConfig {
        EndpointsConfig {
            chain_id: chain.chain_id,
            chain: chain.chain.clone(),
            checkpoints: chain.checkpoints.clone(),
            quorum: chain.quorum,
            call_deadline: Duration::from_secs(10),
            recheck: Duration::from_secs(60),
        }
    }
}

/// Where an endpoint is, and the way there.
pub struct Node<D> {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// How it lets us in.
    pub auth: Auth,
    /// The most questions in one exchange.
    pub batch_max: usize,
    /// The way there, of its own: connections are not shared.
    pub dial: D,
}

impl<D: Dial> Node<D> {
    /// What the operator's config says of an endpoint.
    ///
    /// # Errors
    /// The place of a secret is not known: [`SecretError`].
    pub fn of(endpoint: &EvmEndpoint, batch_max: usize, dial: D) -> Result<Node<D>, SecretError> {
        let place = match &endpoint.url {
            EndpointUrl::Plain(url) => Place::Url(url.reveal().to_owned()),
            EndpointUrl::File(file) => Place::File(file.path()?),
        };
        let auth = match &endpoint.auth {
            EndpointAuth::None => Auth::None,
            EndpointAuth::Basic { user, password } => Auth::UserPass {
                user: user.clone(),
                password_file: password.path()?,
            },
            EndpointAuth::Bearer(file) => Auth::Bearer(file.path()?),
            EndpointAuth::Header { name, value } => Auth::Header {
                name: name.clone(),
                value_file: value.path()?,
            },
        };
        Ok(Node {
            name: endpoint.name.clone(),
            place,
            auth,
            batch_max,
            dial,
        })
    }
}

struct Endpoint<D> {
    name: String,
    rpc: RpcClient<D>,
    record: Mutex<Record>,
}

impl<D> Endpoint<D> {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dial> Endpoint<D> {
    /// One exchange, begun once more where the connection broke: many close one that was idle, and a question
    /// that is on its way then is lost with it.
    async fn exchange(&self, questions: &[Question], limits: Limits) -> Result<Vec<Answer>, RpcError> {
        match self.rpc.mixed(questions, limits).await {
            Err(RpcError::Dial(DialError::Broken(_))) => self.rpc.mixed(questions, limits).await,
            told => told,
        }
    }
}

/// Which endpoint, by its place in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointId(usize);

/// Answers, and whose they are.
#[derive(Debug)]
pub struct Told {
    /// Who answered.
    pub endpoint: EndpointId,
    /// In the order of the questions.
    pub answers: Vec<Answer>,
}

/// One endpoint, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Its name.
    pub name: String,
    /// True of the one that is asked now.
    pub is_current: bool,
    /// How it stands.
    pub standing: Standing,
    /// Its tip when it was last asked for it.
    pub tip: Option<SeenTip>,
}

/// The endpoints of one chain.
pub struct Endpoints<D> {
    config: EndpointsConfig,
    clock: Clock,
    all: Vec<Endpoint<D>>,
    current: Mutex<Option<usize>>,
    /// The chain's first block, and who showed it; nobody did where it was known before.
    genesis: Mutex<Option<(BlockHash, Option<usize>)>>,
}

impl<D: Dial> Endpoints<D> {
    /// Endpoints that were asked nothing yet, in the order of preference. `genesis` is the chain's first
    /// block as it was stored, if it was.
    pub fn new(
        config: EndpointsConfig,
        nodes: Vec<Node<D>>,
        genesis: Option<BlockHash>,
        clock: Clock,
    ) -> Endpoints<D> {
        let endpoint = |node: Node<D>| Endpoint {
            name: node.name,
            rpc: RpcClient::new(node.dial, node.place, node.auth, clock).with_batch_max(node.batch_max),
            record: Mutex::new(Record::new()),
        };
        Endpoints {
            config,
            clock,
            all: nodes.into_iter().map(endpoint).collect(),
            current: Mutex::new(None),
            genesis: Mutex::new(genesis.map(|hash| (hash, None))),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<usize>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn genesis_pin(&self) -> MutexGuard<'_, Option<(BlockHash, Option<usize>)>> {
        self.genesis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> Limits {
        Limits {
            deadline: self.config.call_deadline,
            body_bytes_max: SMALL_BYTES_MAX,
        }
    }

    /// Who the endpoint in use is, or the next one that can be used.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn identity(&self) -> Result<Identity, SourceError> {
        let told = self.ask("ask for the chain id", &[], self.limits()).await?;
        let pinned = self.genesis_pin().map(|(genesis, _)| genesis);
        match (self.all.get(told.endpoint.0), pinned) {
            (Some(endpoint), Some(genesis)) => Ok(Identity {
                unlisted: Vec::new(),
                chain: self.config.chain.clone(),
                genesis,
                software: endpoint.rpc.software(),
            }),
            _ => unreachable!("whoever answers has shown its first block"),
        }
    }

    /// Asks the endpoint in use, and when it fails the others, each once. Whoever answers has shown that it
    /// is on our chain, over the connection that the answers came on.
    ///
    /// # Errors
    /// [`SourceError::WrongNetwork`] where every endpoint is on another chain, else
    /// [`SourceError::Unreachable`] with what each of them said.
    pub async fn ask(
        &self,
        doing: &str,
        questions: &[Question],
        limits: Limits,
    ) -> Result<Told, SourceError> {
        let mut tried = Vec::new();
        let mut last = None;
        while let Some(place) = self.next(&tried) {
            let Some(endpoint) = self.all.get(place) else {
                break;
            };
            match self.ask_one(endpoint, questions, limits).await {
                Ok(answers) => {
                    self.use_from_now_on(place);
                    let endpoint = EndpointId(place);
                    return Ok(Told { endpoint, answers });
                }
                Err(error) => {
                    last = error;
                    tried.push(place);
                }
            }
        }
        Err(self.nobody(doing, last))
    }

    fn next(&self, tried: &[usize]) -> Option<usize> {
        let now = self.clock.instant();
        let current = *self.current();
        let tip = current.and_then(|place| self.all.get(place)?.record().tip);
        let reference = |place: usize| match tip {
            _ if current == Some(place) => Reference::Itself,
            Some(tip) => Reference::Height(tip.block.height),
            None => Reference::None,
        };
        let look = |(place, endpoint): (usize, &Endpoint<D>)| endpoint.record().look(now, reference(place));
        let mut looks: Vec<Look> = self.all.iter().enumerate().map(look).collect();
        let is_behind = looks.iter().any(|look| matches!(look, Look::Ahead(_)));
        if let Some((place, endpoint)) = current.and_then(|place| Some((place, self.all.get(place)?)))
            && let Some(own) = looks.get_mut(place)
        {
            endpoint.record().note_behind(now, is_behind);
            *own = look((place, endpoint));
        }
        choose(&looks, current, tried)
    }

    fn use_from_now_on(&self, place: usize) {
        let before = self.current().replace(place);
        if before == Some(place) {
            return;
        }
        if let Some(left) = before.and_then(|before| self.all.get(before)) {
            left.record().note_behind(self.clock.instant(), false);
        }
        let name = |place: usize| self.all.get(place).map_or("", |endpoint| endpoint.name.as_str());
        let (chain, endpoint) = (&self.config.chain, name(place));
        match before {
            Some(before) => {
                let before = name(before);
                tracing::warn!(%chain, endpoint, before, "{chain} is read from {endpoint}, no longer from \
                 {before}");
            }
            None => tracing::info!(%chain, endpoint, "{chain} is read from {endpoint}"),
        }
    }

    /// One exchange with one endpoint, and proof that it is on our chain before and after it. What went wrong
    /// is in its record; the error is what lies beneath, if there is one.
    async fn ask_one(
        &self,
        endpoint: &Endpoint<D>,
        questions: &[Question],
        limits: Limits,
    ) -> Result<Vec<Answer>, Option<RpcError>> {
        self.prove(endpoint).await?;
        let asked = match questions {
            [] => Ok(Vec::new()),
            questions => endpoint.exchange(questions, limits).await,
        };
        let answers = asked.and_then(|mut answers| match answers.iter().position(Answer::is_limited) {
            // The others would be read and this one asked again, of a node that wants to be left alone.
            Some(place) => match answers.swap_remove(place).raw() {
                Err(error) => Err(error),
                Ok(_) => Ok(answers),
            },
            None => Ok(answers),
        });
        match answers {
            Ok(answers) => {
                // Over another connection than that of before: from whom is this?
                self.prove(endpoint).await?;
                let mut record = endpoint.record();
                if matches!(
                    record.standing,
                    Standing::Unreachable { .. } | Standing::RateLimited { .. }
                ) {
                    let (chain, name) = (&self.config.chain, &endpoint.name);
                    tracing::info!(%chain, endpoint = %name, "endpoint {name} of {chain} answers again");
                }
                record.answered(self.clock.instant());
                Ok(answers)
            }
            Err(error) => Err(self.fail(endpoint, Misfit::Silent(error))),
        }
    }

    async fn prove(&self, endpoint: &Endpoint<D>) -> Result<(), Option<RpcError>> {
        // Another exchange may have found it out while this one was on its way.
        if matches!(endpoint.record().standing, Standing::Quarantined { .. }) {
            return Err(None);
        }
        if self.is_proven(endpoint) {
            return Ok(());
        }
        let identified = self.identify(endpoint).await;
        identified.map_err(|misfit| self.fail(endpoint, misfit))
    }

    /// Notes what is wrong with an endpoint.
    fn fail(&self, endpoint: &Endpoint<D>, misfit: Misfit) -> Option<RpcError> {
        let now = self.clock.instant();
        let mut record = endpoint.record();
        let before = record.standing.code();
        let error = match misfit {
            Misfit::Silent(error) => {
                record.failed(now, &error);
                Some(error)
            }
            Misfit::Odd(why) => {
                record.unusable(now, format!("odd answer: {why}"));
                None
            }
            Misfit::Stranger(why) => {
                record.quarantine(why);
                None
            }
        };
        if record.standing.code() != before {
            let (chain, name) = (&self.config.chain, &endpoint.name);
            let words = record.standing.words(now);
            tracing::warn!(%chain, endpoint = %name, "endpoint {name} of {chain} is {words}");
        }
        error
    }

    /// No endpoint can be used.
    fn nobody(&self, doing: &str, last: Option<RpcError>) -> SourceError {
        let now = self.clock.instant();
        let all: Vec<(&str, Standing)> = self
            .all
            .iter()
            .map(|endpoint| (endpoint.name.as_str(), endpoint.record().standing.clone()))
            .collect();
        let is_stranger = |standing: &Standing| matches!(standing, Standing::Quarantined { .. });
        let why = |standing: &Standing| match standing {
            Standing::Unreachable { why, .. } | Standing::Quarantined { why } => why.clone(),
            other => other.words(now),
        };
        let told: Vec<String> = all
            .iter()
            .map(|(name, standing)| format!("{name}: {}", why(standing)))
            .collect();
        if all.iter().all(|(_, standing)| is_stranger(standing)) {
            return SourceError::WrongNetwork(told.join("; "));
        }
        match (last, self.all.as_slice()) {
            // With one endpoint its words are the chain's.
            (Some(error), [_]) => error.into_source(doing),
            _ => SourceError::Unreachable {
                doing: doing.to_owned(),
                why: told.join("; "),
                help: Help::Node,
                source: None,
            },
        }
    }

    /// The endpoint that answered last.
    pub fn in_use(&self) -> Option<EndpointId> {
        (*self.current()).map(EndpointId)
    }

    /// The endpoint in use has answered, and not what is needed: another one is asked from now on, if there
    /// is one. Of an endpoint that has not answered it is noted already.
    pub fn pass_over_current(&self, why: &str) {
        let endpoint = (*self.current()).and_then(|place| self.all.get(place));
        let answered = |endpoint: &&Endpoint<D>| {
            let record = endpoint.record();
            matches!(record.standing, Standing::Healthy { .. })
        };
        if let Some(endpoint) = endpoint.filter(|_| self.all.len() > 1).filter(answered) {
            self.fail(endpoint, Misfit::Odd(why.to_owned()));
        }
    }

    /// Notes the tip that an endpoint showed.
    pub fn saw_tip(&self, endpoint: EndpointId, block: TaggedBlock) {
        if let Some(endpoint) = self.all.get(endpoint.0) {
            endpoint.record().saw(self.clock.instant(), block);
        }
    }

    /// The height above which the endpoint in use has not shown the checkpoints yet: nothing there is to be
    /// credited.
    pub fn unproven_above(&self) -> Option<u64> {
        let current = (*self.current())?;
        self.all.get(current)?.record().unproven_above
    }

    /// All endpoints, in the order of preference.
    pub fn list(&self) -> Vec<EndpointView> {
        let current = *self.current();
        let view = |(place, endpoint): (usize, &Endpoint<D>)| {
            let record = endpoint.record();
            EndpointView {
                name: endpoint.name.clone(),
                is_current: current == Some(place),
                standing: record.standing.clone(),
                tip: record.tip,
            }
        };
        self.all.iter().enumerate().map(view).collect()
    }
}
