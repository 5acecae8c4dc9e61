//! What a seed's operator has written: the config file, secrets, lists of addresses, and what is entered
//! before the daemon starts for the first time.

use crate::disk::Folder;
use crate::receivers::Receivers;
use crate::script::Terms;
use crate::world::World;
use crate::world::rules::{self, EARLY, LATE_MERCHANT};
use creditd::address::{self, EvmAddress, Network};
use creditd::config::{BackupConfig, Config, Scope as Pooled};
use creditd::rules::api_key::{ApiKey, Scope};
use creditd::rules::event_types::subscription;
use creditd::store::{Database, NewAddress, NewApiKey, OpenMode, StoreError, WriteTx};
use creditd::webhook::Key;
use std::time::Duration;

/// Scripts that are handed out, in their order. Each kill skips those that were reserved ahead, 64 at a time:
/// from a short list nothing is handed out any more after the first.
pub const POOL: std::ops::Range<u32> = rules::HANDED_OUT..rules::FOREIGN;

/// Whose endpoints there are from the start: receiver 0, 1 and 2 of merchants, 3 of the operators.
pub const LISTENERS: [Option<&str>; 4] = [Some("shop"), Some("bank"), Some("club"), None];

/// Receivers of endpoints that merchants add later.
pub const ADDED: std::ops::Range<u8> = 4..8;

/// From here on, receivers of the endpoints of single invoices: one for each key that asks for one.
pub const CALLBACKS: u8 = 8;

/// Who asks the API, with a key of its own each.
pub const CLIENTS: [Option<&str>; 4] = [Some("shop"), Some("club"), Some("bank"), None];

/// Sources of webhooks.
pub const SOURCES: [&str; 3] = ["gateway", "notes", "wallet"];

/// Without the daemon's own audit: it asks nodes by sockets of its own, and there are none. All that it asks
/// of the tables is among the checks.
const CONFIG: &str = r#"
database = "ledger.db"
[callbacks]
allow_ranges = ["203.0.113.0/24"]
concurrency = 16
[ops]
listen = "off"
[audit]
every_hours = 0
[api]
rate_per_second = 100000
public_url = "https://pay.example"
[[merchant]]
slug = "bank"
internal = "hold"
[[merchant]]
slug = "club"
internal = "credit"
[[inbox]]
source = "gateway"
verifier = "standard"
secret_files = ["gateway.secret"]
effect = "credit.external"
merchant = "shop"
[inbox.credit]
payment = "/payment"
amount = "/amount"
amount_in = "smallest"
asset = "USD"
decimals = 2
[[inbox]]
source = "notes"
verifier = "standard"
secret_files = ["notes.secret"]
effect = "forward"
merchant = "bank"
[[inbox]]
source = "wallet"
verifier = "standard"
secret_files = ["wallet.secret"]
effect = "deposit.hint"
chain = "CHAIN"
"#;

const BITCOIN: &str = r#"
[[bitcoin]]
alias = "btc"
network = "regtest"
instance = "scripted"
rpc_url = "http://127.0.0.1:1"
cookie_file = "cookie"
start = 1
[[bitcoin.policy]]
confirmations = 2
[[addresses]]
name = "btc"
chain = "btc"
list_file = "btc.list"
pool = 8
"#;

const EVM: &str = r#"
[[evm]]
alias = "evm"
chain_id = 31337
instance = "scripted"
start = 1
[[evm.endpoint]]
name = "own"
url = "http://127.0.0.1:1"
[evm.native]
symbol = "COIN"
decimals = 6
inner = "traces"
policy = [ { confirmations = 2 } ]
[[addresses]]
name = "evm"
chain = "evm"
list_file = "evm.list"
pool = 8
"#;

/// What the config says just now, and what it is for.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The number of a policy of [`rules::tiers`].
    pub policy: u8,
    /// Is the token listed that was not from the start?
    pub is_later_listed: bool,
    pub seed: u64,
}

impl Setting {
    pub fn new(seed: u64, terms: &Terms) -> Setting {
        Setting {
            policy: terms.policy,
            is_later_listed: false,
            seed,
        }
    }

    /// The config as the daemon reads it, for the chains of a world.
    pub fn config(&self, folder: &Folder, world: &World, terms: &Terms) -> Config {
        let file = folder.database().with_file_name("creditd.toml");
        let is_any = |is_evm: bool| world.chains().iter().any(|chain| chain.is_evm == is_evm);
        let first = world.chains()[0].alias();
        let mut text = CONFIG.replace("CHAIN", first);
        text.push_str(if is_any(false) { BITCOIN } else { "" });
        text.push_str(if is_any(true) { EVM } else { "" });
        let mut config = Config::parse(&file, &text).unwrap();
        for chain in world.chains().iter().filter(|chain| !chain.is_evm) {
            let (id, genesis) = (chain.nodes.chain_id(), chain.nodes.world().tree.genesis());
            for source in &mut config.addresses {
                if let Pooled::Bitcoin { chain, .. } = &mut source.scope {
                    *chain = id.clone();
                }
            }
            for source in &mut config.inbox {
                if let creditd::config::InboxEffect::Hint { alias, chain, .. } = &mut source.effect
                    && alias == "btc"
                {
                    *chain = id.clone();
                }
            }
            config.bitcoin[0].chain = id;
            config.bitcoin[0].genesis = genesis;
        }
        config.backup = (terms.backup_every_s > 0).then(|| BackupConfig {
            folder: folder.database().with_file_name("copies"),
            every: Duration::from_secs(u64::from(terms.backup_every_s)),
            keep: 2,
        });
        // Both ask nodes by sockets of their own, and there are none here.
        config.is_evidence_stored = false;
        config.audit.every = None;
        config
    }

    /// Writes the files that the config names, and enters what is there before the first start.
    pub fn set_up(&self, folder: &Folder, world: &World, terms: &Terms, receivers: &Receivers, at_ms: i64) {
        let beside = |name: &str| folder.database().with_file_name(name);
        let _ = std::fs::create_dir(beside("copies"));
        for source in SOURCES {
            let key = source_key(source);
            std::fs::write(beside(&format!("{source}.secret")), key.to_secret().reveal()).unwrap();
        }
        for is_evm in [false, true] {
            let addresses: Vec<String> = POOL.map(|number| address(is_evm, number)).collect();
            let name = if is_evm { "evm.list" } else { "btc.list" };
            std::fs::write(beside(name), addresses.join("\n")).unwrap();
        }
        let mut database = Database::open(&folder.database(), OpenMode::Write).unwrap();
        database.write(at_ms, |tx| self.enter(tx, world, terms)).unwrap();
        for (number, merchant) in LISTENERS.iter().enumerate() {
            let which = u8::try_from(number).unwrap();
            receivers.learn(which, &endpoint_key(which, 0), None);
            assert!(merchant.is_some() || which == 3, "the operators are the last");
        }
    }

    fn enter(&self, tx: &mut WriteTx<'_>, world: &World, terms: &Terms) -> Result<(), StoreError> {
        for chain in world.chains() {
            let known = tx.ensure_chain(&chain.settings(terms, self.policy, false).chain)?;
            let of = |early: &rules::Early| NewAddress {
                script: rules::script(chain.is_evm, early.number),
                kind: early.kind,
                merchant: early.merchant,
                internal: early.internal,
                reference: "",
            };
            let rules: Vec<NewAddress<'_>> = EARLY.iter().map(of).collect();
            tx.add_addresses(known.key, &rules)?;
        }
        for (number, merchant) in LISTENERS.iter().enumerate() {
            let which = u8::try_from(number).unwrap();
            let types = subscription(&[], merchant.is_none()).unwrap();
            tx.add_endpoint(*merchant, &url(which), &types, &endpoint_key(which, 0))?;
        }
        for (number, merchant) in CLIENTS.iter().enumerate() {
            let scopes: Vec<Scope> = match merchant {
                Some(_) => Scope::ALL
                    .into_iter()
                    .filter(|scope| !scope.is_operators())
                    .collect(),
                None => vec![Scope::OpsRead],
            };
            tx.add_api_key(&NewApiKey {
                merchant: *merchant,
                name: "simulated",
                scopes: &scopes,
                hash: api_key(number).hash(),
                expires_at: None,
            })?;
        }
        Ok(())
    }
}

/// What merchants that have own rules are told at each start.
pub fn internal_rules() -> Vec<(String, &'static str)> {
    let rules = EARLY
        .iter()
        .map(|early| (early.merchant.to_owned(), early.internal));
    let mut rules: Vec<_> = rules.chain([(LATE_MERCHANT.to_owned(), "ignore")]).collect();
    rules.dedup();
    rules
}

/// The key of a client's program.
pub fn api_key(client: usize) -> ApiKey {
    ApiKey::from_secret([u8::try_from(client % CLIENTS.len()).unwrap() + 1; 32])
}

/// Where a receiver listens.
pub fn url(which: u8) -> String {
    format!("https://203.0.113.{}/hook", 10 + u32::from(which))
}

/// Who listens there.
pub fn receiver_of(url: &str) -> Option<u8> {
    let number = url.strip_prefix("https://203.0.113.")?.split('/').next()?;
    number.parse::<u8>().ok()?.checked_sub(10)
}

/// The secret of an endpoint that operators made, after so many rotations.
pub fn endpoint_key(which: u8, rotations: u8) -> Key {
    let mut bytes = [0x40; 32];
    (bytes[0], bytes[1]) = (which, rotations);
    Key::shared(&bytes).unwrap()
}

/// What a source of webhooks signs with.
pub fn source_key(source: &str) -> Key {
    let mut bytes = [0x60; 32];
    bytes[..source.len()].copy_from_slice(source.as_bytes());
    Key::shared(&bytes).unwrap()
}

/// What payers are told of script `number`.
pub fn address(is_evm: bool, number: u32) -> String {
    let script = rules::script(is_evm, number);
    let text = match is_evm {
        true => EvmAddress::of_script(&script).map(|address| address.to_string()),
        false => address::print(Network::Regtest, &script),
    };
    text.unwrap()
}
