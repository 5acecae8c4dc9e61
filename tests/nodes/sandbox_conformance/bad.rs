//! What both refuse, and how.

use super::*;

/// What a client may get wrong, in both versions of JSON-RPC.
pub fn bad_questions(pair: &mut Pair) {
    let zeros = "00".repeat(32);
    let not_hex = format!("zz{}", &zeros[2..]);
    let questions = [
        ("getblockhash", json!(["0"])),
        ("getblockhash", json!([])),
        ("getblockhash", json!([0, 1])),
        ("getblockhash", json!([-1])),
        ("getblockhash", json!([1.5])),
        ("getblockhash", json!([null])),
        ("getblockhash", json!([5_000_000_000_u64])),
        ("getblockhash", json!({"height": 0})),
        ("getblockhash", json!({"hight": 0})),
        ("getblockheader", json!([])),
        ("getblockheader", json!([5])),
        ("getblockheader", json!(["00"])),
        ("getblockheader", json!([not_hex])),
        ("getblockheader", json!([UNKNOWN])),
        ("getblockheader", json!([zeros, 0])),
        ("getblockheader", json!([zeros, null])),
        ("getblockheader", json!({"blockhash": UNKNOWN, "verbose": false})),
        ("getblock", json!(["00"])),
        ("getblock", json!([not_hex, 0])),
        ("getblock", json!([UNKNOWN, 0])),
        ("getbestblockhash", json!([1])),
        ("getrawmempool", json!([1])),
        ("getrawtransaction", json!(["00"])),
        ("getrawtransaction", json!([not_hex])),
        ("getrawtransaction", json!([UNKNOWN])),
        ("getrawtransaction", json!([UNKNOWN, false, UNKNOWN])),
        ("getrawtransaction", json!([UNKNOWN, false, "00"])),
        ("getrawtransaction", json!([GENESIS_COINBASE])),
        ("waitfornewblock", json!([-5])),
        ("waitfornewblock", json!(["a"])),
        ("generatetoaddress", json!([1, "nobody"])),
        ("generatetoaddress", json!([0, Sandbox::address("a")])),
        ("invalidateblock", json!(["00"])),
        ("nosuchcall", json!([])),
        ("nosuchcall", json!({"a": 1})),
        ("getblockhash", json!("0")),
    ];
    for (method, params) in questions {
        pair.ask("version 2.0", method, params.clone());
        let old = json!({"jsonrpc": "1.0", "id": "x", "method": method, "params": params});
        pair.compare("version 1.0", "POST", "/", &old.to_string());
    }
}

/// Questions that are none, batches, and paths.
pub fn bad_forms(pair: &mut Pair) {
    for body in [
        "{",
        "3",
        "[]",
        r#"{"id": 1, "method": "getblockcount"}"#,
        r#"{"method": "getblockcount"}"#,
        r#"{"jsonrpc": "2.0", "method": "getblockcount"}"#,
        r#"{"jsonrpc": "2.0", "id": null, "method": "getblockcount"}"#,
        r#"{"jsonrpc": "2.0", "id": 1}"#,
        r#"{"id": 1}"#,
        r#"{"id": 1, "method": 5}"#,
        r#"[{"jsonrpc": "2.0", "id": 1, "method": "getblockcount"},
            {"jsonrpc": "2.0", "id": 2, "method": "no"},
            {"id": 3, "method": "getblockhash", "params": [9]}]"#,
    ] {
        pair.compare("form", "POST", "/", body);
    }
    for path in [
        "/rest/block/zz.bin",
        "/rest/block/zz",
        "/rest/nothing",
        "/rest/headers/0/zz.bin",
        "/rest/headers/x/zz.bin",
        "/nothing",
        "/",
    ] {
        pair.compare("path", "GET", path, "");
    }
    for path in [
        format!("/rest/block/{UNKNOWN}.bin"),
        format!("/rest/headers/1/{UNKNOWN}.bin"),
    ] {
        pair.compare("path", "GET", &path, "");
    }
    for side in [&pair.ours, &pair.theirs] {
        let (status, ..) = side.send("POST", "/", "{}", "__cookie__:wrong");
        assert_eq!(status, 401, "{}", side.name);
    }
}
