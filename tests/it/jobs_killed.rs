//! Every job of the real daemon, killed when it begins, when its work is there and when that is noted: what
//! it does is done once. A job without a row in [`ROWS`] fails here.

use std::collections::BTreeSet;
use std::io::Write as _;

use creditd::clock::Clock;
use creditd::sandbox::Sandbox;
use creditd::sandbox::evm::{Address, EvmSandbox, U256};
use creditd::store::{Database, OpenMode, Work};
use rusqlite::Connection;

use crate::common::api::Client;
use crate::common::daemon::{Daemon, Setup};
use crate::common::invoices::now_ms;
use crate::common::receiver::{Receiver, answer};
use crate::common::wait::{PATIENCE, wait_until};
use crate::inbox::{SECRET, SOURCES, signed};
use crate::sample_evm::E1;
use crate::tables::Tables;

/// A daemon that has something to do for every job.
struct World {
    daemon: Daemon,
    btc: Sandbox,
    evm: EvmSandbox,
    shop: Client,
    endpoint: String,
    /// Numbers each piece of work.
    number: u32,
    /// Backups and answers that were there and are not any more.
    removed: i64,
    _receiver: Receiver,
    _folder: tempfile::TempDir,
}

/// One job: how it gets something to do, and how much it has done in all.
struct Row {
    job: &'static str,
    work: fn(&mut World),
    done: fn(&World) -> i64,
}

const ROWS: [Row; 11] = [
    Row {
        job: "address-pool",
        work: |world| {
            let list = world.daemon.folder().join("addresses");
            let mut list = std::fs::OpenOptions::new().append(true).open(list).unwrap();
            writeln!(list, "\n{}", Sandbox::address(&format!("pool {}", world.number))).unwrap();
            world.make_due("address-pool");
        },
        done: |world| world.count("SELECT count(*) FROM pool_addresses"),
    },
    Row {
        job: "backup",
        work: |world| {
            for file in world.backups() {
                std::fs::remove_file(file).unwrap();
                world.removed += 1;
            }
            world.make_due("backup");
        },
        done: |world| world.removed + i64::try_from(world.backups().len()).unwrap(),
    },
    Row {
        job: "delivery",
        work: |world| {
            let path = format!("/v1/endpoints/{}/test", world.endpoint);
            let key = format!("test-{}", world.number);
            world.shop.post(&path, &key, "").expect(202);
        },
        done: |world| {
            world.count(
                "SELECT count(*) FROM deliveries d JOIN events v ON v.seq = d.event \
                 WHERE v.type = 'endpoint.test' AND d.state = 'delivered'",
            )
        },
    },
    // Before those below, whose payments would be proved too.
    Row {
        job: "evidence",
        work: |world| {
            let paid = world.pay("evidence");
            world.btc.mine_with(&[paid]).unwrap();
            world.btc.mine(2).unwrap();
            let credits = "SELECT count(*) FROM credits";
            wait_until("it is credited", PATIENCE, || {
                (world.count(credits) > 0).then_some(())
            });
            world.make_due("evidence");
        },
        done: |world| world.count("SELECT count(*) FROM evidence WHERE body IS NOT NULL"),
    },
    Row {
        job: "eviction",
        work: |world| {
            let (gone, mined) = (world.pay("gone"), world.pay("mined"));
            assert!(world.btc.evict(gone));
            let absent = "SELECT count(*) FROM txs WHERE absent_since IS NOT NULL";
            wait_until("it is missed", PATIENCE, || {
                (world.count(absent) > 0).then_some(())
            });
            world.change("UPDATE txs SET absent_since = absent_since - 60000 WHERE absent_since IS NOT NULL");
            // Another list, and without a payment that would spend the same coin.
            world.btc.mine_with(&[mined]).unwrap();
        },
        done: |world| world.count("SELECT count(*) FROM events WHERE type = 'deposit.evicted'"),
    },
    Row {
        job: "expiry",
        work: |world| {
            let address = world.watch("invoice");
            let made = world.daemon.try_invoice_at(&address, "BTC", "1", now_ms(), 200);
            made.unwrap();
        },
        done: |world| world.count("SELECT count(*) FROM events WHERE type = 'invoice.expired'"),
    },
    Row {
        job: "inbox",
        work: |world| world.send_in(),
        done: |world| world.count("SELECT count(*) FROM credits"),
    },
    Row {
        job: "inbox_bodies",
        work: |world| {
            world.send_in();
            let waiting = "SELECT count(*) FROM inbox WHERE state <> 'done'";
            wait_until("it is done", PATIENCE, || {
                (world.count(waiting) == 0).then_some(())
            });
            let event = format!("evt_{}", world.number);
            world.change(&format!(
                "UPDATE inbox SET settled_at = 1 WHERE event_id = '{event}'"
            ));
            world.make_due("inbox_bodies");
        },
        done: |world| world.count("SELECT count(*) FROM inbox WHERE body IS NULL"),
    },
    Row {
        job: "rescan",
        work: |world| {
            let args = [
                "rescan", "--chain", "btc", "--from", "1", "--reason", "x", "--apply",
            ];
            assert_eq!(world.daemon.json(&args)["outcome"], "done");
        },
        done: |world| world.count("SELECT count(*) FROM rescans WHERE state = 'done'"),
    },
    Row {
        job: "retention",
        work: |world| {
            world.removed += 1;
            let number = world.number;
            world.change(&format!(
                "INSERT INTO idempotency (owner, method, path, key, fingerprint, status, body, created_at, \
                 keep_until) VALUES (1, 'POST', '/old', '{number}', zeroblob(32), 200, '{{}}', 1, 1)"
            ));
            world.make_due("retention");
        },
        done: |world| world.removed - world.count("SELECT count(*) FROM idempotency WHERE path = '/old'"),
    },
    Row {
        job: "sweep",
        work: |world| {
            let coin = U256::from(7 + u64::from(world.number));
            world
                .evm
                .endow(Address::from_hex(&E1.to_lowercase()).unwrap(), coin);
        },
        done: |world| {
            // Found once the tip at which it was read is final.
            world.evm.mine(10).unwrap();
            world.count("SELECT count(*) FROM unattributed")
        },
    },
];

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let btc = Sandbox::start(folder.path(), Clock::real()).unwrap();
        let evm = EvmSandbox::start(31_337, Clock::real()).unwrap();
        let receiver = Receiver::http([127, 0, 0, 1].into(), |_, to| answer(to, 200, b""));
        let tables = format!(
            "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n[backup]\nfolder = \"copies\"\n\
             [audit]\nevery_hours = 0\n\
             [[addresses]]\nname = \"list\"\nchain = \"btc\"\nlist_file = \"addresses\"\n\
             [[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 20\npending_ms = 50\n\
             [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
             [evm.native]\nsymbol = \"ETH\"\ninner = \"none\"\nsweep_ms = 100\n\
             policy = [ {{ confirmations = 1 }} ]\n{SOURCES}",
            evm.url()
        );
        let setup = Setup {
            api: "listen = \"127.0.0.1:0\"".to_owned(),
            chain_lines: "start = 0\nevict_after_secs = 1".to_owned(),
            tables,
            ..Setup::new(btc.url().to_owned(), btc.cookie_file().to_owned())
        };
        let mut daemon = Daemon::prepare(&setup);
        std::fs::write(daemon.folder().join("secret"), SECRET).unwrap();
        std::fs::write(daemon.folder().join("addresses"), Sandbox::address("pool")).unwrap();
        std::fs::create_dir(daemon.folder().join("copies")).unwrap();
        daemon.start_again();
        daemon.wait_height(btc.height());
        let shop = daemon.client("shop", "all");
        let body = format!(
            "{{\"url\":\"http://{}/hook\",\"types\":[\"credit.*\"]}}",
            receiver.address
        );
        let added = shop.post("/v1/endpoints", "endpoint", &body).expect(201);
        daemon.json(&["watch", "add", E1, "--chain", "dev", "--merchant", "shop"]);
        let world = World {
            endpoint: added["endpoint"]["id"].as_str().unwrap().to_owned(),
            daemon,
            btc,
            evm,
            shop,
            number: 0,
            removed: 0,
            _receiver: receiver,
            _folder: folder,
        };
        for one in [
            "pool_addresses",
            "balance_marks WHERE height IS NOT NULL",
            "jobs WHERE name = 'backup' AND runs = 1",
        ] {
            let sql = format!("SELECT count(*) FROM {one}");
            wait_until(one, PATIENCE, || (world.count(&sql) == 1).then_some(()));
        }
        world
    }

    fn count(&self, sql: &str) -> i64 {
        self.daemon.count(sql)
    }

    fn change(&self, sql: &str) {
        let database = Connection::open(self.daemon.database()).unwrap();
        database.busy_timeout(PATIENCE).unwrap();
        database.execute(sql, []).unwrap();
    }

    fn make_due(&self, job: &str) {
        self.change(&format!("UPDATE jobs SET next_at = 0 WHERE name = '{job}'"));
    }

    /// Whole copies of the database; a copy that was not ended has another name.
    fn backups(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(self.daemon.folder().join("copies")).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        files
            .filter(|file| file.extension().is_some_and(|end| end == "db"))
            .collect()
    }

    /// A new address of the merchant.
    fn watch(&self, label: &str) -> String {
        let address = Sandbox::address(&format!("{label} {}", self.number));
        self.daemon
            .json(&["watch", "add", &address, "--chain", "btc", "--merchant", "shop"]);
        address
    }

    /// A payment that was seen.
    fn pay(&self, label: &str) -> creditd::rules::Txid {
        let seen = "SELECT count(*) FROM deposits WHERE state = 'seen'";
        let before = self.count(seen);
        let txid = self.btc.pay(&self.watch(label), 10_000).unwrap();
        wait_until("it is seen", PATIENCE, || {
            (self.count(seen) > before).then_some(())
        });
        txid
    }

    /// An event that credits.
    fn send_in(&self) {
        let number = self.number;
        let body = format!("{{\"id\":\"evt_{number}\",\"payment\":\"pay_{number}\",\"amount\":500}}");
        let headers = signed("p1", &body, now_ms() / 1_000);
        let client = Client {
            port: self.shop.port,
            key: String::new(),
        };
        let header = [(headers[0].0.as_str(), headers[0].1.as_str())];
        client.send("POST", "/v1/inbox/p1", &header, &body).expect(200);
    }

    fn start_again(&mut self) {
        self.daemon.start_again();
        self.shop.port = self.daemon.api_port();
    }
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    /// It has something to do, and may have begun.
    Begun,
    /// What it does is there.
    Done,
    /// Its run is noted.
    Noted,
}

/// Gives each job something to do, kills the daemon at the moment, and again while it is caught up with.
fn every_job_is_killed(moment: Moment) {
    let mut world = World::new();
    for row in &ROWS {
        world.number += 1;
        let done_before = (row.done)(&world);
        let tables = Tables::open(&world.daemon.database());
        let number = |column: &str| {
            tables.count(&format!(
                "SELECT ifnull(sum({column}), 0) FROM jobs WHERE name = '{}'",
                row.job
            ))
        };
        let (lease, runs) = (number("lease"), number("runs"));
        (row.work)(&mut world);
        let is_there = |world: &World| match moment {
            // What leases nothing is under way as soon as there is something to do.
            Moment::Begun => number("lease") > lease || Work::ALL.iter().any(|work| work.name() == row.job),
            Moment::Done => (row.done)(world) > done_before,
            Moment::Noted => number("runs") > runs,
        };
        let what = format!("{}: {moment:?}", row.job);
        wait_until(&what, PATIENCE, || is_there(&world).then_some(()));
        world.daemon.kill9();
        world.start_again();
        world.daemon.kill9();
        world.start_again();
        wait_until(&format!("{what}, and caught up with"), PATIENCE, || {
            ((row.done)(&world) > done_before).then_some(())
        });
        // Three more runs of what goes by the clock.
        if Work::ALL.iter().all(|work| work.name() != row.job) {
            for _ in 0..3 {
                let runs = number("runs");
                world.make_due(row.job);
                wait_until("it runs once more", PATIENCE, || {
                    (number("runs") > runs).then_some(())
                });
            }
        }
        assert_eq!((row.done)(&world), done_before + 1, "{what}");
    }
    let failed = "SELECT count(*) FROM jobs WHERE failures > 0";
    assert_eq!(world.count(failed), 0, "{:?}", world.daemon.json(&["jobs"]));
    // A later kill may have met a copy too: the next one clears away what is left of it. The run that ends
    // first may be one that was under way already, so the last one is waited for by what it leaves.
    let copies = "SELECT ifnull(sum(runs), 0) FROM jobs WHERE name = 'backup'";
    let runs = world.count(copies);
    world.make_due("backup");
    wait_until("a last copy", PATIENCE, || {
        (world.count(copies) > runs).then_some(())
    });
    let folder = world.daemon.folder().join("copies");
    wait_until("a copy that was cut off is cleared away", PATIENCE, || {
        let left = std::fs::read_dir(&folder).unwrap().count();
        (left == world.backups().len()).then_some(())
    });
    let database = Database::open(&world.daemon.database(), OpenMode::ReadOnly).unwrap();
    // The EVM chain is followed with a window of 128 blocks.
    assert_eq!(database.read(|tx| tx.violations(128)).unwrap(), []);
}

#[test]
fn every_job_is_killed_as_it_begins_and_acts_once() {
    every_job_is_killed(Moment::Begun);
}

#[test]
fn every_job_is_killed_when_it_has_acted_and_acts_once() {
    every_job_is_killed(Moment::Done);
}

#[test]
fn every_job_is_killed_when_that_is_noted_and_acts_once() {
    every_job_is_killed(Moment::Noted);
}

#[test]
fn every_job_is_in_the_table_and_every_row_is_a_job() {
    let world = World::new();
    let jobs = world.daemon.json(&["jobs"]);
    let listed = jobs["jobs"].as_array().unwrap().iter();
    let mut known: BTreeSet<String> = listed
        .map(|job| job["job"].as_str().unwrap().to_owned())
        .collect();
    known.extend(Work::ALL.iter().map(|work| work.name().to_owned()));
    assert_eq!(known, ROWS.iter().map(|row| row.job.to_owned()).collect());
}
