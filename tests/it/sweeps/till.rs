//! A follower of the bank's chain, with its database.

use super::account;
use super::bank::{Bank, Move};
use crate::rig::{folder, policy};
use creditd::clock::Clock;
use creditd::follow::{Follower, Settings, Start};
use creditd::rules::Asset;
use creditd::store::report::{Filter, Page};
use creditd::store::{
    AddressKind, ChainKey, ClosedAs, Database, NewAddress, NewAsset, NewChain, OpenMode, Store, StoreError,
    Terms, UnattributedRow,
};
use rusqlite::OpenFlags;
use std::path::PathBuf;
use std::time::Duration;

pub struct Till {
    pub bank: Bank,
    clock: Clock,
    settings: Settings,
    pub every: Duration,
    running: Option<(Store, Follower<Bank>)>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Till {
    /// Swept every ten seconds, credited at depth 1.
    pub async fn new() -> Till {
        let clock = Clock::simulated(1_800_000_000_000);
        let folder = folder();
        let settings = Settings {
            chain: NewChain {
                id: Bank::id(),
                genesis: None,
                alias: "bank".to_owned(),
                assets: vec![NewAsset {
                    asset: Asset::Native,
                    caip: Bank::id().evm_coin(60),
                    symbol: "ETH".to_owned(),
                    decimals: 18,
                    from: None,
                }],
            },
            start: Start::Height(1),
            terms: Terms {
                policies: Terms::native(policy(&[], 1)),
                reorg_window: 20,
                evict_after_ms: 60_000,
            },
            poll: Duration::from_secs(1),
            mempool: Duration::from_secs(3_600),
            tip_age_max: None,
            fork_patience: None,
        };
        let mut till = Till {
            bank: Bank::new(clock),
            clock,
            settings,
            every: Duration::from_secs(10),
            running: None,
            path: folder.path().join("ledger.db"),
            _folder: folder,
        };
        till.start().await;
        till
    }

    pub async fn start(&mut self) {
        self.running = None;
        let database = Database::open(&self.path, OpenMode::Daemon).unwrap();
        let store = Store::inline(database, self.clock);
        let follower = Follower::open(
            self.bank.clone(),
            store.clone(),
            self.clock,
            self.settings.clone(),
        );
        let follower = follower.await.unwrap().with_sweep(Some(self.every));
        self.running = Some((store, follower));
    }

    pub fn store(&self) -> Store {
        self.running.as_ref().unwrap().0.clone()
    }

    pub fn read<T>(
        &self,
        mut read: impl FnMut(&creditd::store::ReadTx<'_>, ChainKey) -> Result<T, StoreError>,
    ) -> T {
        let database = Database::open(&self.path, OpenMode::ReadOnly).unwrap();
        let key = |tx: &creditd::store::ReadTx<'_>| tx.chain(&Bank::id()).map(|row| row.unwrap().key);
        database.read(|tx| read(tx, key(tx)?)).unwrap()
    }

    pub fn count(&self, sql: &str) -> i64 {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let conn = rusqlite::Connection::open_with_flags(&self.path, flags).unwrap();
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub async fn watch(&self, numbers: std::ops::RangeInclusive<u8>) {
        let key = self.read(|_, key| Ok(key));
        let store = self.store();
        let adding = store.write(move |tx| {
            let rule = |number| NewAddress {
                script: account(number),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            let rules: Vec<NewAddress<'_>> = numbers.clone().map(rule).collect();
            tx.add_addresses(key, &rules)
        });
        adding.await.unwrap();
    }

    /// So many looks at the node, about one a second.
    pub async fn look(&mut self, times: usize) {
        for _ in 0..times {
            self.running.as_mut().unwrap().1.step().await.unwrap();
        }
        let violations = self.read(|tx, _| tx.violations(20));
        assert!(violations.is_empty(), "{violations:?}");
    }

    pub fn mine(&self, moves: &[Move]) {
        self.bank.world().mine(moves);
    }

    /// Sweeps, and makes what was swept final: a reading that is under way first, then another one.
    pub async fn sweep(&mut self) {
        for _ in 0..2 {
            self.look(15).await;
            self.bank.world().mine_empty(20);
            self.look(15).await;
        }
    }

    pub fn found(&self) -> Vec<UnattributedRow> {
        let page = Page {
            after: None,
            limit: 100,
        };
        let mut rows = self.read(|tx, _| tx.list_unattributed(&Filter::default(), false, page));
        rows.reverse();
        rows.into_iter().map(|listed| listed.row).collect()
    }

    pub fn amounts(&self) -> Vec<u64> {
        let amounts = self.found().into_iter().map(|row| row.amount.to_string().parse());
        amounts.map(Result::unwrap).collect()
    }

    /// What was credited, and how many events tell of coin that nothing explains.
    pub fn books(&self) -> (Vec<String>, i64) {
        let credited = self.read(|tx, _| tx.balances(None));
        let credited = credited
            .iter()
            .map(|balance| balance.credited.to_string())
            .collect();
        (
            credited,
            self.count("SELECT count(*) FROM events WHERE type = 'chain.unattributed'"),
        )
    }

    pub fn state(&self) -> (String, String) {
        let row = self.read(|tx, key| tx.chain_by_key(key));
        (row.state.word().to_owned(), row.state_reason)
    }

    pub async fn close(&self, id: &str, closed_as: ClosedAs) -> Result<bool, StoreError> {
        let id = id.to_owned();
        let store = self.store();
        let closing = store.write(move |tx| tx.close_unattributed(&id, closed_as, "looked at"));
        closing.await
    }
}
