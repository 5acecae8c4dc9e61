//! A small ledger of an EVM chain, made through the store's own verbs, with fixed times, beside a Bitcoin
//! chain and another EVM chain that were never followed.
//!
//! ```text
//! 100 - 101 T1 T2 - 102 T3 - 103 - 104 - 105           T2 and T3 credited, block 102 is safe, 101 final
//!                          \ 103'T4 - 104'T5 - 105' - 106'
//! ```
//!
//! T1 pays coin that has to be final, T2 two tokens by its logs, T3 coin from inside; T4 spends a nonce of
//! T6, which was pending; T5 was in 104 with other content, so that what it pays now is its second execution.

use creditd::address::EvmAddress;
use creditd::config::{ChainConfig, Config};
use creditd::daemon;
use creditd::rules::block::sender_outpoint;
use creditd::rules::chain_state::ChainState;
use creditd::rules::position::Position;
use creditd::rules::{
    Amount, Asset, BlockHash, CandidateOutput, CandidateTx, Header, HeldHeader, ListVersion, MempoolList,
    ScannedBlock, Script, TaggedBlock, Tags, Txid, Work,
};
use creditd::store::{
    AddressKind, Advance, Advanced, ChainKey, Database, ListApplied, Listing, NewAddress, OpenMode,
    StoreError, Terms, WriteTx,
};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::daemon::{Daemon, Setup};

pub const E1: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
pub const E2: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";
/// Nobody of ours.
pub const PAYER: &str = "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB";
/// A contract of nobody of ours.
pub const WALLET: &str = "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb";
pub const USDC: &str = "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48";
pub const DAI: &str = "0x6B175474E89094C44Da98b954EedeAC495271d0F";

/// 2026-01-01T00:00:00Z; each write comes a second after the one before.
const EPOCH_MS: i64 = 1_767_225_600_000;

const CHAINS: &str = r#"
[[evm]]
alias = "dev"
chain_id = 31337
instance = "shop-test"
[[evm.endpoint]]
name = "own"
url = "http://127.0.0.1:1"
[evm.native]
symbol = "ETH"
inner = "traces"
policy = [ { below = "1", confirmations = 3 }, { confirmations = "finalized" } ]
[[evm.token]]
contract = "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48"
symbol = "USDC"
decimals = 6
policy = [ { confirmations = 2 } ]
[[evm.token]]
contract = "0x6B175474E89094C44Da98b954EedeAC495271d0F"
symbol = "DAI"
decimals = 18
policy = [ { confirmations = "safe" } ]

[[evm]]
alias = "bsc"
chain_id = 56
[[evm.endpoint]]
name = "own"
url = "http://127.0.0.1:1"
[[evm.token]]
contract = "0x8AC76a51cc950d9822D68b83fE1Ad97B32Cd580d"
symbol = "USDC"
decimals = 18
policy = [ { confirmations = "finalized" } ]
"#;

pub fn txid(number: u8) -> Txid {
    Txid([number; 32])
}

/// As every answer shows it.
pub fn shown(number: u8) -> String {
    format!("0x{}", txid(number))
}

pub fn script(text: &str) -> Script {
    EvmAddress::parse(text).unwrap().script()
}

fn token(text: &str) -> Asset {
    Asset::Token(EvmAddress::parse(text).unwrap().0)
}

/// A config of three chains and a database in a folder; nothing listens at their nodes' addresses.
pub struct EvmSample {
    pub files: Daemon,
    terms: Terms,
    database: Option<Database>,
    chain: Option<ChainKey>,
    now_ms: i64,
    tip: HeldHeader,
}

impl EvmSample {
    /// Only the config: no database yet.
    pub fn empty() -> EvmSample {
        let mut setup = Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into());
        setup.tables = CHAINS.to_owned();
        let files = Daemon::prepare(&setup);
        let config = Config::load(Some(&files.config_file())).unwrap();
        EvmSample {
            terms: daemon::terms(ChainConfig::Evm(&config.evm[0])),
            files,
            database: None,
            chain: None,
            now_ms: EPOCH_MS,
            tip: held(100, 0, [0; 32]),
        }
    }

    /// The ledger of the drawing above.
    pub fn filled() -> EvmSample {
        let mut sample = EvmSample::empty();
        sample.open();
        sample.watch(E1, AddressKind::Watch, "shop", "order-1");
        sample.watch(E2, AddressKind::Watch, "bar", "");
        let ether = 1_000_000_000_000_000_000;
        let first = pay(1, 1, &[(Position::Native, Asset::Native, E1, 3 * ether / 2)]);
        let second = pay(
            2,
            2,
            &[
                (Position::Log(0), token(USDC), E1, 5_000_000),
                (Position::Log(2), token(DAI), E2, 7 * ether),
            ],
        );
        sample.connect(101, 0, vec![first, second], Tags::default());
        let mut third = pay(3, 3, &[(Position::Inner(0), Asset::Native, E1, ether / 4)]);
        third.outputs[0].from = Some(script(WALLET));
        sample.connect(102, 0, vec![third], Tags::default());
        sample.list(vec![pay(6, 6, &[(Position::Native, Asset::Native, E2, 1)])]);
        sample.connect(103, 0, vec![], Tags::default());
        let fifth = |units| pay(5, 5, &[(Position::Log(7), token(USDC), E2, units)]);
        sample.connect(104, 0, vec![fifth(9_000_000)], Tags::default());
        sample.connect(105, 0, vec![], Tags::default());
        let branch = [
            block(
                103,
                1,
                hash(102, 0),
                vec![pay(4, 6, &[(Position::Native, Asset::Native, E1, 2)])],
            ),
            block(104, 1, hash(103, 1), vec![fifth(8_999_999)]),
            block(105, 1, hash(104, 1), vec![]),
            block(106, 1, hash(105, 1), vec![]),
        ];
        let tagged = |height| {
            Some(TaggedBlock {
                height,
                hash: hash(height, 0),
            })
        };
        let tags = Tags {
            safe: tagged(101),
            finalized: tagged(100),
        };
        sample.advance(Some(102), &branch, tags);
        sample.state(ChainState::Following, "");
        sample.close();
        sample
    }

    /// One more write, as a command beside the daemon would make it.
    pub fn edit<T>(&self, work: impl Fn(&mut WriteTx<'_>, ChainKey) -> Result<T, StoreError>) -> T {
        let mut database = Database::open(&self.files.database(), OpenMode::Write).unwrap();
        let key = self.chain.unwrap();
        database.write(EPOCH_MS, |tx| work(tx, key)).unwrap()
    }

    fn open(&mut self) {
        let config = Config::load(Some(&self.files.config_file())).unwrap();
        let chain = daemon::new_chain(ChainConfig::Evm(&config.evm[0]));
        let mut database = Database::open(&config.database, OpenMode::Daemon).unwrap();
        let tip = self.tip;
        let key = database
            .write(EPOCH_MS, |tx| {
                let key = tx.ensure_chain(&chain)?.key;
                tx.anchor(key, &tip)?;
                Ok(key)
            })
            .unwrap();
        self.chain = Some(key);
        self.database = Some(database);
    }

    fn close(&mut self) {
        self.database.take().unwrap().close().unwrap();
    }

    fn write<T>(&mut self, work: impl Fn(&mut WriteTx<'_>, ChainKey) -> T) -> T {
        self.now_ms += 1_000;
        let key = self.chain.unwrap();
        let database = self.database.as_mut().unwrap();
        database.write(self.now_ms, |tx| Ok(work(tx, key))).unwrap()
    }

    fn watch(&mut self, text: &str, kind: AddressKind, merchant: &str, reference: &str) {
        let rule = NewAddress {
            script: script(text),
            kind,
            merchant,
            internal: "ignore",
            reference,
        };
        self.write(|tx, chain| tx.add_addresses(chain, std::slice::from_ref(&rule)).unwrap());
    }

    fn connect(&mut self, height: u64, branch: u8, txs: Vec<CandidateTx>, tags: Tags) {
        let block = block(height, branch, self.tip.header.hash, txs);
        self.advance(None, &[block], tags);
    }

    fn advance(&mut self, fork_height: Option<u64>, blocks: &[ScannedBlock], tags: Tags) {
        let (from, terms) = (self.tip, self.terms.clone());
        let done = self.write(|tx, chain| {
            let version = tx.list_version().unwrap();
            let filtered = |block: &ScannedBlock| ScannedBlock {
                version,
                ..block.clone()
            };
            let step = Advance {
                chain,
                from,
                fork_height,
                blocks: blocks.iter().map(filtered).collect(),
                credit_ceiling: None,
                tags,
            };
            tx.advance(&step, &terms).unwrap()
        });
        let Advanced::Done { tip, .. } = done else {
            panic!("{done:?}");
        };
        self.tip = tip;
    }

    fn state(&mut self, state: ChainState, reason: &str) {
        let height = self.tip.height;
        self.write(|tx, chain| {
            tx.set_chain_state(chain, state, reason).unwrap();
            tx.note_node(chain, height).unwrap();
        });
    }

    fn list(&mut self, txs: Vec<CandidateTx>) {
        let (tip, terms) = (self.tip.header.hash, self.terms.clone());
        let done = self.write(|tx, chain| {
            let list = MempoolList {
                tip,
                version: tx.list_version().unwrap(),
                listed: Arc::new(txs.iter().map(|tx| tx.txid).collect::<BTreeSet<_>>()),
                txs: txs.clone(),
                is_complete: true,
            };
            let listing = Listing {
                poll: 1,
                is_synced: true,
                every_ms: 2_000,
            };
            tx.apply_mempool(chain, &list, listing, &terms).unwrap()
        });
        assert!(matches!(done, ListApplied::Done(_)), "{done:?}");
    }
}

/// A payment by somebody who sends it with this nonce.
fn pay(number: u8, nonce: u64, outputs: &[(Position, Asset, &str, u64)]) -> CandidateTx {
    let sender = EvmAddress::parse(PAYER).unwrap();
    CandidateTx {
        sender: Some(sender.script()),
        is_failed: false,
        txid: txid(number),
        is_coinbase: false,
        inputs: vec![sender_outpoint(&sender.0, nonce)],
        outputs: outputs
            .iter()
            .map(|(position, asset, address, units)| CandidateOutput {
                asset: *asset,
                from: Some(sender.script()),
                doubt: None,
                vout: position.number(0).unwrap(),
                script: script(address),
                amount: Amount::from_u64(*units),
            })
            .collect(),
        ancestors: vec![],
    }
}

/// A block's hash tells its height and branch.
pub fn hash(height: u64, branch: u8) -> BlockHash {
    let mut bytes = [0; 32];
    bytes[0] = 0xe0 + branch;
    bytes[31] = u8::try_from(height).unwrap();
    BlockHash(bytes)
}

fn header(height: u64, branch: u8, parent: BlockHash) -> Header {
    Header {
        hash: hash(height, branch),
        parent,
        time_secs: 1_700_000_000 + height,
        work: Work::from_be_bytes([0; 32]),
        bits: 0,
    }
}

fn held(height: u64, branch: u8, parent: [u8; 32]) -> HeldHeader {
    HeldHeader {
        height,
        header: header(height, branch, BlockHash(parent)),
        chainwork: Work::from_be_bytes([0; 32]),
    }
}

fn block(height: u64, branch: u8, parent: BlockHash, txs: Vec<CandidateTx>) -> ScannedBlock {
    ScannedBlock {
        header: header(height, branch, parent),
        version: ListVersion(0),
        txs,
        output_shorts: vec![],
    }
}
