//! Keys of the API: whose they are, and when they were used.

use super::Scratch;
use crate::rules::api_key::{ApiKey, Scope};
use crate::store::{KeyOwner, NewApiKey, StoreError};

/// A merchant's key; its id.
fn made(database: &mut crate::store::Database) -> String {
    let made = database.write(1_000, |tx| {
        tx.add_merchant("shop")?;
        tx.add_api_key(&NewApiKey {
            merchant: Some("shop"),
            name: "web",
            scopes: &[Scope::InvoiceRead],
            hash: ApiKey::from_secret([7; 32]).hash(),
            expires_at: None,
        })
    });
    made.unwrap().id
}

#[test]
fn a_key_whose_merchant_is_gone_is_no_operators() {
    let (_scratch, mut database) = Scratch::new();
    let id = made(&mut database);
    let found = database.read(|tx| tx.api_key_of_id(&id)).unwrap().unwrap();
    assert!(matches!(found.owner, KeyOwner::Merchant { .. }), "{found:?}");
    database
        .conn
        .execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM merchants")
        .unwrap();
    let found = database.read(|tx| tx.api_key_of_id(&id));
    assert!(matches!(found, Err(StoreError::Corrupt(_))), "{found:?}");
}

#[test]
fn a_use_under_a_clock_that_was_ahead_is_written_over() {
    let (_scratch, mut database) = Scratch::new();
    let id = made(&mut database);
    for at in [9_000_000, 5_000] {
        database.write(at, |tx| tx.api_key_used(&id)).unwrap();
        let found = database.read(|tx| tx.api_key_of_id(&id)).unwrap().unwrap();
        assert_eq!(found.last_used_at, Some(at));
    }
}
