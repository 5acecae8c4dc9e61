//! Many at once: the daemon's own store, with its writer thread and its group commits.

use crate::till::new_invoice;
use creditd::clock::Clock;
use creditd::rules::{BlockHash, ChainId, Script};
use creditd::store::{AddressKind, ChainKey, NewAddress, NewAsset, NewChain, Store, StoreError, WriteTx};
use std::sync::Arc;

const CLIENTS: usize = 50;

async fn store(path: &std::path::Path) -> (Store, ChainKey, Script) {
    let (store, _) = Store::open(path, Clock::real()).await.unwrap();
    let script = Script(vec![0x51; 22].into());
    let watched = script.clone();
    let key = store
        .write(move |tx| {
            let id = ChainId::bitcoin(&BlockHash([7; 32]), Some("till"));
            let key = tx
                .ensure_chain(&NewChain {
                    assets: vec![NewAsset::bitcoin(&id, "BTC")],
                    id,
                    genesis: Some(BlockHash([7; 32])),
                    alias: "btc".to_owned(),
                })?
                .key;
            let rule = NewAddress {
                script: watched.clone(),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            tx.add_addresses(key, &[rule])?;
            Ok(key)
        })
        .await
        .unwrap();
    (store, key, script)
}

/// One address, fifty clients: one invoice, and everybody else is told of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_at_once_make_one_invoice_of_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let (store, key, script) = store(&folder.path().join("ledger.db")).await;
    let start = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    let clients = (0..CLIENTS).map(|client| {
        let (store, script, start) = (store.clone(), script.clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            let make = move |tx: &mut WriteTx<'_>| {
                let now = tx.now_ms();
                let mut new = new_invoice(tx, (key, script.clone()), "shop", 10, now)?;
                new.token = format!("client {client}");
                tx.create_invoice(&new)
            };
            store.write(make).await
        })
    });
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    for client in clients.collect::<Vec<_>>() {
        match client.await.unwrap() {
            Ok(invoice) => made.push(invoice),
            Err(error) => refused.push(error),
        }
    }
    assert_eq!((made.len(), refused.len()), (1, CLIENTS - 1));
    let names_it = |error: &StoreError| {
        matches!(error, StoreError::Refused(_)) && error.to_string().contains(&made[0].id)
    };
    assert!(refused.iter().all(names_it), "{refused:?}");

    // All of them take it back: once.
    let id = made[0].id.clone();
    let cancels = (0..CLIENTS).map(|_| {
        let (store, id) = (store.clone(), id.clone());
        tokio::spawn(async move {
            store
                .write(move |tx| tx.cancel_invoice(&id, "merchant", "taken back"))
                .await
        })
    });
    let mut outcomes = Vec::new();
    for cancel in cancels.collect::<Vec<_>>() {
        outcomes.push(cancel.await.unwrap().unwrap());
    }
    assert!(
        outcomes.iter().all(|outcome| *outcome == outcomes[0]),
        "equal answers"
    );
    let found = store.read(move |tx| Ok((tx.events_of(&id)?, tx.violations(144)?)));
    let (events, violations) = found.await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["invoice.created", "invoice.cancelled"]);
    assert_eq!(violations, []);
    store.close().await.unwrap();
}
