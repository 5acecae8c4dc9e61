//! Databases that watch many addresses.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bitcoincore_rpc::bitcoin::hashes::{Hash, hash160};
use creditd::address::Network;
use creditd::clock::Clock;
use creditd::rules::{ChainId, Script};
use creditd::store::{Database, NewAsset, NewChain, OpenMode};
use rusqlite::{Connection, params};

/// The instance name of the chain, as in the config that the tests write.
pub const INSTANCE: &str = "test";
pub const ALIAS: &str = "btc";

/// The chain as the daemon makes it known.
pub fn new_chain() -> NewChain {
    let genesis = Network::Regtest.genesis();
    let id = ChainId::bitcoin(&genesis, Some(INSTANCE));
    NewChain {
        assets: vec![NewAsset::bitcoin(&id, "BTC")],
        id,
        genesis: Some(genesis),
        alias: ALIAS.to_owned(),
    }
}

/// The P2WPKH script number `n` of a family; those of the family `watched` are in the database.
pub fn script(family: &str, n: u32) -> Script {
    let hash = hash160::Hash::hash(format!("{family} {n}").as_bytes());
    let mut script = vec![0x00, 0x14];
    script.extend_from_slice(hash.as_byte_array());
    Script(script.into())
}

pub fn watched(n: u32) -> Script {
    script("watched", n)
}

/// A database at `path`, cleanly closed, in which one merchant watches these addresses from height 1 on.
/// Written past the store, which would make a row of history for each.
pub fn seed(path: &Path, numbers: Range<u32>) {
    seed_with(path, &new_chain(), numbers.map(watched));
}

/// The same for any chain and any scripts.
pub fn seed_with(path: &Path, chain: &NewChain, scripts: impl Iterator<Item = Script>) {
    let mut database = Database::open(path, OpenMode::Daemon).unwrap();
    database
        .write(Clock::real().now_ms(), |tx| tx.ensure_chain(chain))
        .unwrap();
    database.close().unwrap();
    let mut conn = Connection::open(path).unwrap();
    conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000")
        .unwrap();
    let tx = conn.transaction().unwrap();
    tx.execute_batch(
        "INSERT INTO merchants (id, slug, created_at) VALUES (1, 'shop', 0); \
         UPDATE meta SET list_version = 1",
    )
    .unwrap();
    let sql = "INSERT INTO addresses (chain, script, kind, merchant, reference, from_height, version, \
     added_at) \
               VALUES (1, ?1, 'watch', 1, ?2, 1, 1, 0)";
    {
        let mut insert = tx.prepare(sql).unwrap();
        for (n, script) in scripts.enumerate() {
            insert
                .execute(params![&script.0[..], format!("order-{n}")])
                .unwrap();
        }
    }
    tx.commit().unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    conn.query_row(checkpoint, [], |_| Ok(())).unwrap();
}

/// A fresh copy of a closed database in `folder`.
pub fn copy(template: &Path, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::copy(template, &path).unwrap();
    path
}
