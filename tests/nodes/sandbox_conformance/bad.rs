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

const TPUB: &str = "tpubDC2Q4xK4XH72Gc1pNBJaCK6zZ5a28Snc6uyoL2mJCNNXoVGQajoWwARF\
                    wcgt1zKNjWVxEXicux6hrKewpocDJsgBezxrG8DJDtWxkLor2Nc";

/// Addresses of descriptors, and what is no descriptor or no range.
pub fn derived(pair: &mut Pair) {
    let with_checksum = |words: String| {
        let told = pair.theirs.call("getdescriptorinfo", json!([words]));
        format!("{words}#{}", told["checksum"].as_str().unwrap())
    };
    let [wpkh, sh, pkh, tr] = [("wpkh(", ")"), ("sh(wpkh(", "))"), ("pkh(", ")"), ("tr(", ")")]
        .map(|(before, after)| with_checksum(format!("{before}{TPUB}/0/*{after}")));
    let multi = with_checksum(format!("wsh(sortedmulti(1,{TPUB}/0/*,{TPUB}/1/*))"));
    let one = with_checksum(format!("wpkh({TPUB}/0/7)"));
    let hardened = with_checksum(format!("wpkh({TPUB}/0/*h)"));
    let bare = with_checksum(format!("pk({TPUB}/0/*)"));
    for params in [
        json!([wpkh, [0, 9]]),
        json!([wpkh, 3]),
        json!([wpkh, [2_147_483_640_u32, 2_147_483_647_u32]]),
        json!([sh, [5, 9]]),
        json!([pkh, [5, 9]]),
        json!([tr, [5, 9]]),
        json!([multi, [0, 3]]),
        json!([one]),
        json!([one, [0, 1]]),
        json!([hardened, [0, 1]]),
        json!([bare, [0, 1]]),
        json!([wpkh]),
        json!([wpkh, [3, 2]]),
        json!([wpkh, [-1, 2]]),
        json!([wpkh, [0, 2_147_483_648_u32]]),
        json!([wpkh, [0, 1_000_000]]),
        json!([wpkh, "a"]),
        json!([wpkh, [0]]),
        json!([wpkh.split('#').next(), [0, 1]]),
        json!([format!("{}#00000000", wpkh.split('#').next().unwrap()), [0, 1]]),
        json!([format!("{}#000", wpkh.split('#').next().unwrap()), [0, 1]]),
        json!([5]),
        json!([]),
    ] {
        pair.ask("descriptors", "deriveaddresses", params);
    }
}
