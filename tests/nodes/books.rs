//! The books of several daemons that watch the same addresses at one node, held against each other and
//! against what the chain pays.

use std::collections::BTreeMap;

use creditd::rules::Txid;
use serde_json::Value;

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::shop::{assert_sound, read, settle, text};

/// What a daemon's books say of one payment.
#[derive(Debug, PartialEq)]
pub struct Booked {
    credit: String,
    net_sat: u64,
    created_event: String,
}

/// A daemon that watches the addresses and has found the node.
pub fn watching(setup: &Setup, addresses: &[String], node: &RegtestNode) -> Daemon {
    let mut daemon = Daemon::prepare(setup);
    let file = daemon.folder().join("addresses.txt");
    std::fs::write(&file, addresses.join("\n")).unwrap();
    daemon.json(&["watch", "import", file.to_str().unwrap(), "--merchant", "shop"]);
    daemon.start_again();
    settle(&daemon, "btc", node);
    daemon
}

/// The credits of a daemon by what they are for. Each was created by one event.
fn books(daemon: &Daemon) -> BTreeMap<(String, u64), Booked> {
    let answer = daemon.json(&["credits", "--limit", "100000"]);
    let book = |credit: &Value| {
        let (txid, vout) = (text(&credit["txid"]), credit["vout"].as_u64().unwrap());
        let id = Txid::from_typed(&txid).unwrap();
        let story = read(daemon, |tx| tx.tx_story(&id)).remove(0);
        let output = story.outputs.into_iter().find(|output| output.vout == vout);
        let events = output.unwrap().deposit.unwrap().events;
        let mut created = events.iter().filter(|event| event.kind == "credit.created");
        let created_event = created.next().unwrap().id.clone();
        assert!(created.next().is_none(), "created twice: {txid}:{vout}");
        let booked = Booked {
            credit: text(&credit["id"]),
            net_sat: text(&credit["net_base"]).parse().unwrap(),
            created_event,
        };
        ((txid, vout), booked)
    };
    answer["credits"].as_array().unwrap().iter().map(book).collect()
}

/// The books of a daemon, and what does not depend on how the chain was fed.
pub type Books = (BTreeMap<(String, u64), Booked>, Vec<String>);

/// The books of a daemon, which are sound and credit exactly what the chain pays.
#[track_caller]
pub fn sound_books(daemon: &Daemon, paid: &BTreeMap<(String, u64), u64>) -> Books {
    assert_sound(daemon);
    let books = books(daemon);
    let credited: BTreeMap<_, _> = books
        .iter()
        .map(|(outpoint, booked)| (outpoint.clone(), booked.net_sat))
        .collect();
    assert_eq!(&credited, paid);
    (books, read(daemon, |tx| tx.agreed_projection()))
}

/// All daemons have the same books, which are sound and credit exactly what the chain pays.
#[track_caller]
pub fn assert_agree(daemons: &[&Daemon], paid: &BTreeMap<(String, u64), u64>) {
    let mut books = daemons.iter().map(|daemon| sound_books(daemon, paid));
    let first = books.next();
    for other in books {
        assert_eq!(first.as_ref(), Some(&other));
    }
}
