//! `inbox list|show|retry`: what others sent, and another turn for what was parked.

use serde_json::json;

use crate::sample::Sample;
use creditd::rules::ids;
use creditd::store::{Effect, NewInbox, Received};

fn event(id: &str, body: &str) -> NewInbox {
    NewInbox {
        source: "gateway".to_owned(),
        event_id: id.to_owned(),
        fingerprint: ids::external_txid(body).0,
        body: body.as_bytes().to_vec(),
    }
}

/// A parked event that came twice, and once with another content; one that did something; its own id.
pub fn with_inbox() -> (Sample, String) {
    let sample = Sample::filled();
    let parked = ids::inbox_id("gateway", "evt_1");
    let done = ids::inbox_id("gateway", "evt_2");
    sample.edit(|tx, _| {
        assert!(matches!(
            tx.receive_inbox(&event("evt_1", r#"{"paid":"x"}"#))?,
            Received::New(_)
        ));
        tx.receive_inbox(&event("evt_1", r#"{"paid":"x"}"#))?;
        tx.receive_inbox(&event("evt_1", r#"{"paid":"y"}"#))?;
        assert!(tx.park_inbox(&parked, "the amount x is none")?);
        tx.receive_inbox(&event("evt_2", "{}"))?;
        tx.settle_inbox(&done, &Effect::Nothing("its type is not asked for".to_owned()))
    });
    (sample, parked)
}

#[track_caller]
fn told(sample: &Sample, args: &[&str], code: i32) -> String {
    let output = sample.files.cli(args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    text
}

#[test]
fn events_of_others_are_listed_and_shown_with_what_came_of_them() {
    let (sample, id) = with_inbox();
    let list = |args: &[&str]| {
        let all = sample.files.json(&[&["inbox", "list"], args].concat());
        let events = all["inbox"].as_array().unwrap().clone();
        let ids = events
            .iter()
            .map(|event| event["event_id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), ["evt_2", "evt_1"]);
    for (args, expected) in [
        (&["--state", "parked"][..], vec!["evt_1"]),
        (&["--state", "done"], vec!["evt_2"]),
        (&["--state", "waiting"], vec![]),
        (&["--set-aside"], vec!["evt_1"]),
        (&["--source", "gateway"], vec!["evt_2", "evt_1"]),
        (&["--limit", "1"], vec!["evt_2"]),
    ] {
        assert_eq!(list(args), expected, "{args:?}");
    }
    let misspelt = told(&sample, &["inbox", "list", "--source", "gatewya"], 1);
    assert!(
        misspelt.contains("there is no source gatewya") && misspelt.contains("--source with one of gateway"),
        "{misspelt}"
    );
    let table = told(&sample, &["inbox", "list"], 0);
    assert!(
        table.contains("the amount x is none; 1 with another content set aside"),
        "{table}"
    );
    let csv = told(&sample, &["inbox", "list", "--csv"], 0);
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let whole = sample.files.json(&["inbox", "show", &id[..8]]);
    assert_eq!(whole["event"]["id"], json!(id));
    assert_eq!(whole["event"]["duplicates"], 2);
    assert_eq!(whole["body"], r#"{"paid":"x"}"#);
    assert_eq!(whole["set_aside"][0]["body"], r#"{"paid":"y"}"#);
    let types: Vec<&str> = whole["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["inbox.set_aside", "inbox.parked"]);
    told(&sample, &["inbox", "show", &id], 0);
    let unknown = told(&sample, &["inbox", "show", "in_00000000"], 1);
    assert!(unknown.contains("creditd inbox list"), "{unknown}");
}

#[test]
fn a_parked_event_has_another_turn_on_an_operators_word() {
    let (sample, id) = with_inbox();
    let state = || sample.files.json(&["inbox", "show", &id])["event"]["state"].clone();
    let retry = ["inbox", "retry", &id, "--reason", "config corrected"];
    let dry = told(&sample, &retry, 0);
    assert!(dry.contains("the amount x is none"), "{dry}");
    let removed = "the config has no [[inbox]] source gateway: bring it back and restart the daemon first";
    assert!(dry.contains(removed), "{dry}");
    assert_eq!(state(), "parked");
    let apply = [&retry[..], &["--apply"]].concat();
    told(&sample, &apply, 0);
    assert_eq!(state(), "waiting");
    let again = sample.files.json(&apply);
    assert_eq!(again["outcome"], "nothing");
    let done = ids::inbox_id("gateway", "evt_2");
    let refused = told(&sample, &["inbox", "retry", &done, "--reason", "x", "--apply"], 1);
    assert!(refused.contains("is done"), "{refused}");
}

#[test]
fn a_page_that_is_the_last_one_names_no_other() {
    let (sample, _) = with_inbox();
    for (limit, is_more) in [("1", true), ("2", false), ("3", false)] {
        let page = told(&sample, &["inbox", "list", "--limit", limit], 0);
        assert_eq!(page.contains("more: --after"), is_more, "{limit}: {page}");
        let page = sample.files.json(&["inbox", "list", "--limit", limit]);
        assert_eq!(page["next"].is_null(), !is_more, "{limit}: {page}");
    }
    let csv = told(&sample, &["inbox", "list", "--csv", "--limit", "1"], 0);
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

#[test]
fn endpoints_of_an_invoice_that_is_not_there_are_no_empty_list() {
    let (sample, id) = Sample::with_invoice();
    let unknown = told(&sample, &["endpoint", "list", "--invoice", "inv_00000000"], 1);
    assert!(
        unknown.contains("there is no invoice inv_00000000") && unknown.contains("creditd invoices list"),
        "{unknown}"
    );
    let none = told(&sample, &["endpoint", "list", "--invoice", &id], 0);
    assert!(
        none.contains("no endpoint is told of this invoice alone") && !none.contains("endpoint add"),
        "{none}"
    );
}
