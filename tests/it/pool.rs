//! Pools of addresses: each address is handed out once, whatever is restarted, killed or restored, and is
//! watched from that moment on.

use crate::rig::folder;
use creditd::clock::Clock;
use creditd::rules::{BlockHash, ChainId, Script};
use creditd::store::{
    AddressKind, ChainKey, Database, JobOutcome, JobRun, NewAddress, NewChain, NewSource, OpenMode, POOL_JOB,
    PoolEmpty, SourceKind, SourceStanding, Store, StoreError, TakeAddress, TakenAddress, WriteTx,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

const NOW: i64 = 1_700_000_000_000;

/// A chain of Bitcoin's kind and two of Ethereum's.
const CHAINS: [&str; 3] = ["btc", "eth", "base"];

pub fn script(source: u8, number: u32) -> Script {
    let mut bytes = [source; 20];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Script(bytes.into())
}

fn chain(alias: &str) -> NewChain {
    let genesis = BlockHash([7; 32]);
    NewChain {
        id: match alias {
            "btc" => ChainId::bitcoin(&genesis, Some("pool")),
            "eth" => ChainId::from_stored("eip155:1".to_owned()),
            _ => ChainId::from_stored("eip155:8453".to_owned()),
        },
        genesis: (alias == "btc").then_some(genesis),
        alias: alias.to_owned(),
        assets: Vec::new(),
    }
}

/// A database with all chains.
pub struct Files {
    pub folder: tempfile::TempDir,
    database: Option<Database>,
    keys: Vec<ChainKey>,
}

impl Files {
    pub fn new() -> Files {
        let mut files = Files {
            folder: folder(),
            database: None,
            keys: Vec::new(),
        };
        files.start();
        files.keys = files.write(|tx| {
            let keys = CHAINS.iter().map(|alias| Ok(tx.ensure_chain(&chain(alias))?.key));
            keys.collect::<Result<_, StoreError>>()
        });
        files
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    pub fn start(&mut self) {
        self.database = Some(Database::open(&self.path(), OpenMode::Daemon).unwrap());
    }

    pub fn stop(&mut self) {
        self.database.take().unwrap().close().unwrap();
    }

    /// As after `kill -9`: the file is let go of, and nothing is written any more.
    pub fn kill(&mut self) {
        drop(self.database.take().unwrap());
    }

    pub fn write<T>(&mut self, work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>) -> T {
        self.database.as_mut().unwrap().write(NOW, work).unwrap()
    }

    fn key(&self, alias: &str) -> ChainKey {
        let at = CHAINS.iter().position(|known| *known == alias).unwrap();
        self.keys[at]
    }

    /// A source on these chains, which are all there are of their kind.
    pub fn source(&self, name: &str, pin: u8, chains: &[&str]) -> NewSource {
        let is_evm = chains[0] != "btc";
        NewSource {
            name: name.to_owned(),
            scope: match is_evm {
                true => "evm".to_owned(),
                false => chain("btc").id.to_string(),
            },
            kind: if is_evm {
                SourceKind::Evm
            } else {
                SourceKind::Descriptor
            },
            pin: [pin; 32],
            merchant: None,
            pool_size: 10,
            chains: chains.iter().map(|alias| self.key(alias)).collect(),
        }
    }

    pub fn set(&mut self, sources: &[NewSource]) -> Vec<SourceStanding> {
        self.write(|tx| tx.set_address_sources(sources))
    }

    /// Derives until the pools are full.
    pub fn fill(&mut self) {
        self.write(fill);
    }

    /// What the job does after a restore.
    pub fn watch_restored(&mut self) {
        self.write(|tx| {
            for range in tx.waiting_ranges()? {
                let numbers = u32::try_from(range.next).unwrap()..u32::try_from(range.end).unwrap();
                let scripts: Vec<Script> = numbers.map(|number| script(range.pin[0], number)).collect();
                assert!(tx.watch_restored(&range, &scripts, false)?);
                assert!(!tx.watch_restored(&range, &scripts, false)?, "once");
            }
            Ok(())
        });
    }

    pub fn is_watched(&self, script: &[u8]) -> bool {
        let reader = rusqlite::Connection::open(self.path()).unwrap();
        let known = "SELECT 1 FROM addresses WHERE script = ?1";
        reader.prepare(known).unwrap().exists([script]).unwrap()
    }

    /// As if every chain had reached its tip, and all were told.
    pub fn catch_up(&self) {
        let writer = rusqlite::Connection::open(self.path()).unwrap();
        let done = "UPDATE restored_chains SET state = 'done', done_at = 1 WHERE state = 'catching_up'";
        writer.execute(done, []).unwrap();
    }

    pub fn take(&mut self, alias: &str, merchant: &str) -> Result<TakenAddress, PoolEmpty> {
        let chain = self.key(alias);
        self.write(|tx| tx.take_address(&take(chain, merchant)))
    }

    pub fn watched(&self, alias: &str) -> i64 {
        let reader = rusqlite::Connection::open(self.path()).unwrap();
        let count = "SELECT count(*) FROM addresses a JOIN chains c ON c.id = a.chain WHERE c.alias = ?1";
        reader.query_row(count, [alias], |row| row.get(0)).unwrap()
    }
}

fn take(chain: ChainKey, merchant: &str) -> TakeAddress<'_> {
    TakeAddress {
        chain,
        merchant,
        internal: "ignore",
        reference: "order 7",
    }
}

fn fill(tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
    for work in tx.pool_work()? {
        let numbers = work.next_index..work.next_index + work.missing;
        let scripts: Vec<Script> = numbers.map(|number| script(work.pin[0], number)).collect();
        assert!(tx.fill_pool(work.source, work.next_index, &scripts)?);
    }
    Ok(())
}

#[test]
fn addresses_come_in_order_each_once_and_watched() {
    let mut files = Files::new();
    let source = files.source("shop", 1, &["btc"]);
    assert_eq!(files.set(std::slice::from_ref(&source)), [SourceStanding::New]);
    assert_eq!(files.set(&[source]), [SourceStanding::Pinned]);
    let empty = files.take("btc", "shop").unwrap_err();
    assert_eq!(empty.to_string(), "the pool shop is empty");
    files.fill();
    files.write(|tx| {
        tx.set_jobs(&[(POOL_JOB, 3_600_000)])?;
        let lease = tx.lease_job(POOL_JOB, 1_000)?.unwrap();
        let run = JobRun {
            started_at: NOW,
            took_ms: 1,
            outcome: JobOutcome::Done(String::new()),
        };
        tx.settle_job(&lease, &run)
    });
    for number in 0..10 {
        let taken = files.take("btc", "shop").unwrap();
        assert_eq!((taken.number, taken.source.as_str()), (number, "shop"));
        assert_eq!(taken.script, script(1, number));
        // It is filled again before it is empty.
        let is_due = !files.write(|tx| tx.due_jobs(NOW)).is_empty();
        assert_eq!(is_due, number >= 5, "{number}");
    }
    assert!(matches!(files.take("btc", "shop"), Err(PoolEmpty::Empty { .. })));
    assert_eq!(files.take("eth", "shop"), Err(PoolEmpty::NoSource));
    assert_eq!(files.watched("btc"), 10);
    files.fill();
    assert_eq!(files.take("btc", "other").unwrap().number, 10);
}

#[test]
fn a_take_that_is_not_committed_is_as_if_it_had_not_been() {
    let mut files = Files::new();
    let source = files.source("shop", 1, &["btc"]);
    files.set(&[source]);
    files.fill();
    let chain = files.key("btc");
    let refused = files.database.as_mut().unwrap().write(NOW, |tx| {
        tx.take_address(&take(chain, "shop"))?.unwrap();
        Err::<(), _>(StoreError::Refused("the invoice cannot be".to_owned()))
    });
    assert!(refused.is_err());
    assert_eq!(files.take("btc", "shop").unwrap().number, 0);
    assert_eq!(files.watched("btc"), 1);
}

#[test]
fn an_address_of_evm_chains_is_watched_on_all_of_them_and_on_those_that_come_later() {
    let mut files = Files::new();
    let on_one = files.source("evm", 2, &["eth"]);
    files.set(&[on_one]);
    files.fill();
    for _ in 0..4 {
        assert_eq!(files.take("eth", "shop").unwrap().on.len(), 1);
    }
    let on_both = files.source("evm", 2, &["eth", "base"]);
    assert_eq!(
        files.set(std::slice::from_ref(&on_both)),
        [SourceStanding::Pinned]
    );
    let taken = files.take("base", "shop").unwrap();
    assert_eq!((taken.number, taken.on.len()), (4, 2));
    assert_eq!((files.watched("eth"), files.watched("base")), (5, 1));
    let mut steps = Vec::new();
    loop {
        match files.write(|tx| tx.spread_addresses(1, 3)) {
            0 => break,
            step => steps.push(step),
        }
    }
    assert_eq!(steps, [3, 1]);
    assert_eq!((files.watched("eth"), files.watched("base")), (5, 5));
    // One that was away for a while.
    let on_one = files.source("evm", 2, &["eth"]);
    files.set(&[on_one]);
    files.take("eth", "shop").unwrap();
    files.set(&[on_both]);
    while files.write(|tx| tx.spread_addresses(1, 100)) > 0 {}
    assert_eq!((files.watched("eth"), files.watched("base")), (6, 6));
}

#[test]
fn an_address_that_somebody_entered_by_hand_is_left_out() {
    let mut files = Files::new();
    let source = files.source("evm", 2, &["eth", "base"]);
    files.set(&[source]);
    files.fill();
    let base = files.key("base");
    files.write(|tx| {
        let rule = NewAddress {
            script: script(2, 0),
            kind: AddressKind::Watch,
            merchant: "other",
            internal: "ignore",
            reference: "",
        };
        tx.add_addresses(base, &[rule])
    });
    assert_eq!(files.take("eth", "shop").unwrap().number, 1);
    assert_eq!((files.watched("eth"), files.watched("base")), (1, 2));
}

/// As when a wallet that is in use is given to creditd: its addresses are imported, and then its key.
#[test]
fn a_pool_whose_addresses_are_all_entered_by_hand_is_filled_beyond_them() {
    let mut files = Files::new();
    let source = files.source("shop", 1, &["btc"]);
    files.set(&[source]);
    let chain = files.key("btc");
    let enter = |files: &mut Files, numbers: std::ops::Range<u32>| {
        let rules: Vec<NewAddress<'_>> = numbers
            .map(|number| NewAddress {
                script: script(1, number),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            })
            .collect();
        files.write(|tx| tx.add_addresses(chain, &rules));
    };
    // Some before they are derived, some after.
    enter(&mut files, 0..12);
    files.fill();
    files.fill();
    enter(&mut files, 12..20);
    // A request that finds none is refused, and all that it did is undone.
    let asked = (0..3).find_map(|_| {
        files.fill();
        let database = files.database.as_mut().unwrap();
        let taken = database.write(NOW, |tx| {
            let taken = tx.take_address(&take(chain, "shop"))?;
            taken.map_err(|empty| StoreError::Refused(empty.to_string()))
        });
        taken.ok()
    });
    assert_eq!(asked.map(|taken| taken.number), Some(20));
}

#[test]
fn a_merchant_with_a_source_of_its_own_gets_no_address_of_another() {
    let mut files = Files::new();
    let own = NewSource {
        merchant: Some("shop".to_owned()),
        ..files.source("shop", 1, &["btc"])
    };
    let shared = files.source("all", 2, &["btc"]);
    files.set(&[shared, own]);
    files.fill();
    assert_eq!(files.take("btc", "shop").unwrap().source, "shop");
    assert_eq!(files.take("btc", "other").unwrap().source, "all");
}

#[test]
fn another_descriptor_under_a_name_waits_for_an_operator_and_going_back_reuses_nothing() {
    let mut files = Files::new();
    let (first, second) = (
        files.source("shop", 1, &["btc"]),
        files.source("shop", 3, &["btc"]),
    );
    files.set(std::slice::from_ref(&first));
    files.fill();
    assert_eq!(files.take("btc", "shop").unwrap().number, 0);
    let differs = SourceStanding::Differs { pinned: [1; 32] };
    assert_eq!(files.set(std::slice::from_ref(&second)), [differs]);
    let refused = files.take("btc", "shop").unwrap_err();
    assert_eq!(
        refused,
        PoolEmpty::NotPinned {
            name: "shop".to_owned()
        }
    );
    assert!(files.write(|tx| tx.repin_source(&second, "a new wallet")));
    assert!(!files.write(|tx| tx.repin_source(&second, "a new wallet")));
    files.fill();
    assert_eq!(files.take("btc", "shop").unwrap().script, script(3, 0));
    assert!(files.write(|tx| tx.repin_source(&first, "the old one again")));
    files.fill();
    assert_eq!(files.take("btc", "shop").unwrap().script, script(1, 1));
    let reader = rusqlite::Connection::open(files.path()).unwrap();
    let count = "SELECT count(*) FROM audit WHERE action = 'pin' AND actor = ?1";
    let by = |actor: &str| -> i64 { reader.query_row(count, [actor], |row| row.get(0)).unwrap() };
    assert_eq!((by("daemon"), by("operator")), (1, 2));
}

#[test]
fn two_names_for_the_same_addresses_are_refused() {
    let mut files = Files::new();
    let sources = [files.source("a", 1, &["btc"]), files.source("b", 1, &["btc"])];
    let refused = files
        .database
        .as_mut()
        .unwrap()
        .write(NOW, |tx| tx.set_address_sources(&sources));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}

#[test]
fn a_stop_loses_no_address_and_a_kill_only_a_few() {
    let mut files = Files::new();
    let source = NewSource {
        pool_size: 500,
        ..files.source("shop", 1, &["btc"])
    };
    files.set(&[source]);
    files.fill();
    assert_eq!(files.take("btc", "shop").unwrap().number, 0);
    files.stop();
    files.start();
    assert_eq!(files.take("btc", "shop").unwrap().number, 1);
    files.kill();
    files.start();
    let next = files.take("btc", "shop").unwrap().number;
    assert!((2..=65).contains(&next), "{next}");
}

#[test]
fn a_command_hands_out_nothing() {
    let mut files = Files::new();
    let source = files.source("shop", 1, &["btc"]);
    files.set(&[source]);
    files.fill();
    let chain = files.key("btc");
    let mut command = Database::open(&files.path(), OpenMode::Write).unwrap();
    let refused = command.write(NOW, |tx| tx.take_address(&take(chain, "shop")));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}

/// Where the mark cannot be written nothing is handed out.
#[test]
fn no_address_is_handed_out_whose_index_is_not_on_disk() {
    let mut files = Files::new();
    let source = files.source("shop", 1, &["btc"]);
    files.set(&[source]);
    files.fill();
    let blocked = files.folder.path().join("ledger.db.highwater.new");
    std::fs::create_dir(&blocked).unwrap();
    let chain = files.key("btc");
    let refused = files
        .database
        .as_mut()
        .unwrap()
        .write(NOW, |tx| tx.take_address(&take(chain, "shop")));
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(files.watched("btc"), 0);
    std::fs::remove_dir(&blocked).unwrap();
    assert_eq!(files.take("btc", "shop").unwrap().number, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_takers_at_once_get_fifty_addresses() {
    let mut files = Files::new();
    let source = NewSource {
        pool_size: 200,
        ..files.source("shop", 1, &["btc"])
    };
    files.set(&[source]);
    files.fill();
    let chain = files.key("btc");
    let store = Store::threaded(files.database.take().unwrap(), Clock::real()).unwrap();
    let mut takers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = store.clone();
        takers.spawn(async move {
            let mut numbers = Vec::new();
            for _ in 0..3 {
                let taken = store.write(move |tx| tx.take_address(&take(chain, "shop"))).await;
                numbers.push(taken.unwrap().unwrap().number);
            }
            numbers
        });
    }
    let mut all = Vec::new();
    while let Some(numbers) = takers.join_next().await {
        all.extend(numbers.unwrap());
    }
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(distinct.len(), 150);
    assert_eq!(distinct.last(), Some(&149), "without a gap");
    store.close().await.unwrap();
}
