//! `/openapi.json` by itself: what clients are generated from must be unambiguous and whole.

use std::collections::BTreeSet;

use creditd::address::AddressError;
use serde_json::Value;

use crate::common::api::with_api;
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;

fn document() -> Value {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.client("shop", "all").get("/openapi.json").expect(200)
}

fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    let paths = document["paths"].as_object().unwrap().values();
    paths.flat_map(|path| path.as_object().unwrap().values())
}

/// The codes that a response lists.
fn codes(response: &Value) -> Vec<&str> {
    let problem = &response["content"]["application/problem+json"]["schema"];
    let listed = problem["allOf"][1]["properties"]["code"]["enum"].as_array();
    listed.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The codes that the handlers name: the first text of each problem that is made.
fn codes_of_the_source() -> BTreeSet<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut found = BTreeSet::new();
    let mut paths = vec![folder];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        for maker in [
            "Problem::new(",
            "bad_request(",
            "unprocessable(",
            "conflict(",
            "unavailable(",
            "unauthorized(",
            "forbidden(",
        ] {
            for made in code.split(maker).skip(1) {
                let made = made.trim_start();
                let made = match made.starts_with("StatusCode::") {
                    true => made.split_once(',').unwrap().1.trim_start(),
                    false => made,
                };
                let word = made.strip_prefix('"').and_then(|rest| rest.split_once('"'));
                found.extend(word.map(|(word, _)| word.to_owned()));
            }
        }
    }
    found
}

#[test]
fn every_route_has_a_name_of_its_own_and_says_what_each_answer_is() {
    let document = document();
    let mut names = BTreeSet::new();
    for operation in operations(&document) {
        let name = operation["operationId"].as_str().unwrap();
        assert!(names.insert(name), "{name} is there twice");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(response["description"].is_string(), "{name}: {status}");
            assert!(status.parse::<u16>().is_ok(), "{name}: {status}");
        }
        let is_page = !operation["responses"]["200"]["content"]["text/html"].is_null();
        assert!(is_page || !operation["responses"]["500"].is_null(), "{name}");
    }
    assert!(names.len() > 15, "{names:?}");
}

#[test]
fn every_code_of_the_source_is_an_answer_of_some_route() {
    let document = document();
    let told: BTreeSet<&str> = operations(&document)
        .flat_map(|operation| operation["responses"].as_object().unwrap().values())
        .flat_map(codes)
        .collect();
    let addresses = [
        AddressError::BadChecksum,
        AddressError::MixedCase,
        AddressError::Unknown,
        AddressError::NotEvm,
    ];
    let mut source = codes_of_the_source();
    source.extend(addresses.map(|error| error.code().to_owned()));
    assert!(source.len() > 30, "the source was not understood: {source:?}");
    // No route is there to describe it.
    source.remove("method_not_allowed");
    let untold: Vec<&String> = source
        .iter()
        .filter(|code| !told.contains(code.as_str()))
        .collect();
    assert!(untold.is_empty(), "rows in src/api/faults.rs: {untold:?}");
}

#[test]
fn a_problem_lists_its_status_and_when_to_come_again() {
    let document = document();
    let create = &document["paths"]["/v1/invoices"]["post"]["responses"];
    assert_eq!(codes(&create["409"]), ["in_progress", "refused"]);
    for status in ["409", "429", "503"] {
        assert!(create[status]["headers"]["Retry-After"].is_object(), "{status}");
    }
    assert!(create["201"]["headers"]["Idempotent-Replayed"].is_object());
    let read = &document["paths"]["/v1/invoices/{id}"]["get"]["responses"];
    assert_eq!(codes(&read["404"]), ["not_found"]);
    assert!(read["409"].is_null(), "{read}");
    // Needs no key.
    let inbox = &document["paths"]["/v1/inbox/{source}"]["post"]["responses"];
    assert_eq!(codes(&inbox["401"]), ["bad_signature", "stale_time"]);
}
