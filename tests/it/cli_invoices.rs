//! `invoices list|show|cancel`, and the invoice in the story of a transaction.

use serde_json::json;

use crate::sample::{Sample, txid};

#[track_caller]
fn told(sample: &Sample, args: &[&str], code: i32) -> String {
    let output = sample.files.cli(args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    text
}

#[test]
fn an_invoice_is_listed_shown_and_named_by_its_payments() {
    let (sample, id) = Sample::with_invoice();
    let paying = txid(7).to_string();
    for (name, args) in [
        ("invoices", &["invoices", "list"][..]),
        ("invoices_csv", &["invoices", "list", "--csv"]),
        ("invoice", &["invoices", "show", &id]),
        ("tx_of_invoice", &["tx", &paying]),
    ] {
        insta::assert_snapshot!(name, told(&sample, args, 0));
    }
    let whole = sample.files.json(&["invoices", "show", &id[..9]]);
    for (key, expected) in [
        ("id", json!(id)),
        ("amount", json!("0.0005")),
        ("required_base", json!("49900")),
        ("paid_base", json!("20000")),
        ("pending_base", json!("30000")),
        ("amount_state", json!("partial")),
        ("time", json!("in_time")),
        ("life", json!("open")),
        ("metadata", json!({ "cart": 7 })),
        ("confirmations", json!(2)),
    ] {
        assert_eq!(whole["invoice"][key], expected, "{key}");
    }
    assert_eq!(whole["payments"][0]["mark"], "in_time");
    assert_eq!(whole["events"][1]["type"], "invoice.partially_paid");
    let story = sample.files.json(&["tx", &paying]);
    let invoice = &story["transactions"][0]["outputs"][0]["deposit"]["invoice"];
    assert_eq!(*invoice, json!({ "id": id, "mark": "in_time" }));
}

#[test]
fn lists_of_invoices_are_narrowed_by_what_they_are() {
    let (sample, id) = Sample::with_invoice();
    for (args, is_listed) in [
        (&["--life", "open"][..], true),
        (&["--life", "expired"], false),
        (&["--amount-state", "partial"], true),
        (&["--amount-state", "paid"], false),
        (&["--strayed"], false),
        (&["--merchant", "shop", "--reference", "order 7"], true),
        (&["--merchant", "bar"], false),
    ] {
        let listed = sample.files.json(&[&["invoices", "list"], args].concat());
        let ids: Vec<&str> = listed["invoices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids == [&*id], is_listed, "{args:?}: {ids:?}");
    }
    assert!(told(&sample, &["invoices", "show", "inv_0000"], 1).contains("no invoice inv_0000"));
}

#[test]
fn cancelling_is_dry_first_acts_once_and_is_audited() {
    let (sample, id) = Sample::with_invoice();
    let cancel = ["invoices", "cancel", &id, "--reason", "order withdrawn"];
    let apply = [&cancel[..], &["--apply"]].concat();
    assert!(told(&sample, &cancel, 0).contains("would cancel inv_"));
    let life = || sample.files.json(&["invoices", "show", &id])["invoice"]["life"].clone();
    assert_eq!(life(), "open");
    assert!(told(&sample, &apply, 0).contains("done: cancel"));
    assert_eq!(life(), "cancelled");
    assert!(told(&sample, &apply, 0).contains("nothing to do"));
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    let audit = "SELECT cause || ' ' || actor FROM audit WHERE action = 'invoice'";
    let causes: Vec<String> = raw
        .prepare(audit)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(causes, [format!("{id}: order withdrawn operator")]);
    let events = "SELECT count(*) FROM events WHERE type = 'invoice.cancelled'";
    assert_eq!(raw.query_row(events, [], |row| row.get::<_, i64>(0)), Ok(1));
}
