//! A small ledger made through the store's own verbs, with fixed times, for what the commands show of it.
//!
//! ```text
//! 100 - 101 T1 - 102 T2 T3 - 103    - 104 T4           T1 credited at 103, T2 at 104
//!              \ 102'T5    - 103'T3 - 104' - 105'      T2 replaced by T5, T4 orphaned
//! ```
//!
//! T3 spends a coin of ours and one of others, so that its deposit is held; T6 is in the mempool.

use creditd::address::{self, Network};
use creditd::config::{ChainConfig, Config};
use creditd::daemon;
use creditd::rules::chain_state::ChainState;
use creditd::rules::invoice::Tolerance;
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{
    Amount, Asset, BlockHash, CandidateOutput, CandidateTx, Header, HeldHeader, MempoolList, Outpoint,
    ScannedBlock, Script, Tags, Txid, Work,
};
use creditd::store::{
    AddressKind, Advance, Advanced, ChainKey, Database, ListApplied, Listing, NewAddress, NewInvoice,
    OpenMode, StoreError, Terms, WriteTx,
};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::daemon::{Daemon, Setup};

pub const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
pub const D2: &str = "bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6";
pub const D4: &str = "bcrt1pfeesnyr2tx";
pub const D3: &str = "mrCDrCybB6J1vRfbwM5hemdJz73FwDBC8r";

/// 2026-01-01T00:00:00Z; each write comes a second after the one before.
const EPOCH_MS: i64 = 1_767_225_600_000;

pub fn txid(number: u8) -> Txid {
    Txid([number; 32])
}

/// A config and a database in a folder; nothing listens at its node's address.
pub struct Sample {
    pub files: Daemon,
    database: Option<Database>,
    chain: Option<ChainKey>,
    now_ms: i64,
    tip: HeldHeader,
}

impl Sample {
    /// Only the config: no database yet.
    pub fn empty() -> Sample {
        let setup = Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into());
        Sample {
            files: Daemon::prepare(&setup),
            database: None,
            chain: None,
            now_ms: EPOCH_MS,
            tip: held(100, 0, [0; 32]),
        }
    }

    /// The ledger of the drawing above.
    pub fn filled() -> Sample {
        let mut sample = Sample::empty();
        sample.open();
        sample.watch(D1, AddressKind::Watch, "shop", "order-1");
        sample.watch(D2, AddressKind::Watch, "shop", "");
        sample.watch(D3, AddressKind::Watch, "bar", "table \u{1b}[2J 5, \"window\"");
        sample.connect(101, 0, vec![pay(1, &[coin(0xa1)], &[(0, D1, 10_000_000)])]);
        let second = pay(2, &[coin(0xa2)], &[(1, D3, 4_000)]);
        let mixed = [
            Outpoint {
                txid: txid(1),
                vout: 0,
            },
            coin(0xa3),
        ];
        let third = pay(3, &mixed, &[(0, D2, 29_000_000)]);
        sample.connect(102, 0, vec![second, third.clone()]);
        sample.connect(103, 0, vec![]);
        sample.connect(104, 0, vec![pay(4, &[coin(0xa4)], &[(7, D1, 1)])]);
        let replacing = pay(5, &[coin(0xa2)], &[(0, D3, 5_000)]);
        let branch = [
            block(102, 1, hash(101, 0), vec![replacing]),
            block(103, 1, hash(102, 1), vec![third]),
            block(104, 1, hash(103, 1), vec![]),
            block(105, 1, hash(104, 1), vec![]),
        ];
        sample.advance(Some(101), &branch);
        sample.list(vec![pay(6, &[coin(0xa6)], &[(0, D1, 123_456_789)])]);
        sample.state(ChainState::Following, "");
        sample.close();
        sample
    }

    /// The same, with an invoice for 0.0005 BTC at [`D4`]: T7 pays 0.0002 of it and is credited, T8 pays the
    /// rest and is in the last block.
    pub fn with_invoice() -> (Sample, String) {
        let mut sample = Sample::filled();
        sample.open_again();
        sample.watch(D4, AddressKind::Watch, "shop", "till");
        let id = sample.write(|tx, chain| {
            let address = tx.address_key(chain, &script(D4)).unwrap().unwrap();
            let asset = tx.assets().unwrap().remove(0).key;
            let new = NewInvoice {
                merchant: "shop".to_owned(),
                asset,
                address,
                amount: Amount::from_u64(50_000),
                tolerance: Tolerance {
                    base: Amount::from_u64(100),
                    percent_hundredths: 0,
                },
                expires_at: tx.now_ms() + 900_000,
                reference: "order 7".to_owned(),
                metadata: r#"{"cart":7}"#.to_owned(),
                confirmations: Some(2),
                token: "token".to_owned(),
                callback: None,
            };
            tx.create_invoice(&new).unwrap().id
        });
        let part = pay(7, &[coin(0xa7)], &[(0, D4, 20_000)]);
        sample.connect(106, 1, vec![part]);
        sample.connect(107, 1, vec![]);
        let rest = pay(8, &[coin(0xa8)], &[(0, D4, 30_000)]);
        sample.connect(108, 1, vec![rest]);
        sample.close();
        (sample, id)
    }

    fn open_again(&mut self) {
        let database = Database::open(&self.files.database(), OpenMode::Daemon).unwrap();
        self.database = Some(database);
    }

    /// One more write, as a command beside the daemon would make it.
    pub fn edit<T>(&self, work: impl Fn(&mut WriteTx<'_>, ChainKey) -> Result<T, StoreError>) -> T {
        let mut database = Database::open(&self.files.database(), OpenMode::Write).unwrap();
        let key = self.chain.unwrap();
        database.write(EPOCH_MS, |tx| work(tx, key)).unwrap()
    }

    fn open(&mut self) {
        let config = Config::load(Some(&self.files.config_file())).unwrap();
        let chain = daemon::new_chain(ChainConfig::Bitcoin(&config.bitcoin[0]));
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

    fn connect(&mut self, height: u64, branch: u8, txs: Vec<CandidateTx>) {
        let block = block(height, branch, self.tip.header.hash, txs);
        self.advance(None, &[block]);
    }

    fn advance(&mut self, fork_height: Option<u64>, blocks: &[ScannedBlock]) {
        let from = self.tip;
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
                tags: Tags::default(),
            };
            tx.advance(&step, &terms()).unwrap()
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

    /// The ledger of a chain that is halted.
    pub fn halted(reason: &str) -> Sample {
        let mut sample = Sample::empty();
        sample.open();
        sample.state(ChainState::ReorgTooDeep, reason);
        sample.close();
        sample
    }

    fn list(&mut self, txs: Vec<CandidateTx>) {
        let tip = self.tip.header.hash;
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
            tx.apply_mempool(chain, &list, listing, &terms()).unwrap()
        });
        assert!(matches!(done, ListApplied::Done(_)), "{done:?}");
    }
}

pub fn terms() -> Terms {
    Terms {
        policies: Terms::native(
            Policy::new(&[Tier {
                below: None,
                needs: Requirement::Confirmations(3),
            }])
            .unwrap(),
        ),
        reorg_window: 144,
        evict_after_ms: 600_000,
    }
}

pub fn script(text: &str) -> Script {
    address::parse(Network::Regtest, text).unwrap()
}

/// A coin of somebody else.
fn coin(number: u8) -> Outpoint {
    Outpoint {
        txid: txid(number),
        vout: 0,
    }
}

fn pay(number: u8, inputs: &[Outpoint], outputs: &[(u64, &str, u64)]) -> CandidateTx {
    CandidateTx {
        sender: None,
        is_failed: false,
        txid: txid(number),
        is_coinbase: false,
        inputs: inputs.to_vec(),
        outputs: outputs
            .iter()
            .map(|(vout, address, sat)| CandidateOutput {
                asset: Asset::Native,
                from: None,
                doubt: None,
                vout: *vout,
                script: script(address),
                amount: Amount::from_u64(*sat),
            })
            .collect(),
        ancestors: vec![],
    }
}

/// A block's hash tells its height and branch.
pub fn hash(height: u64, branch: u8) -> BlockHash {
    let mut bytes = [0; 32];
    bytes[0] = 0xb0 + branch;
    bytes[31] = u8::try_from(height).unwrap();
    BlockHash(bytes)
}

fn header(height: u64, branch: u8, parent: BlockHash) -> Header {
    let mut work = [0; 32];
    work[31] = 1;
    Header {
        hash: hash(height, branch),
        parent,
        time_secs: 1_700_000_000 + height,
        work: Work::from_be_bytes(work),
        bits: 0x207f_ffff,
    }
}

fn held(height: u64, branch: u8, parent: [u8; 32]) -> HeldHeader {
    let header = header(height, branch, BlockHash(parent));
    let mut chainwork = [0; 32];
    chainwork[31] = u8::try_from(height).unwrap();
    HeldHeader {
        height,
        header,
        chainwork: Work::from_be_bytes(chainwork),
    }
}

pub fn block(height: u64, branch: u8, parent: BlockHash, txs: Vec<CandidateTx>) -> ScannedBlock {
    ScannedBlock {
        header: header(height, branch, parent),
        version: creditd::rules::ListVersion(0),
        txs,
        output_shorts: vec![],
    }
}
