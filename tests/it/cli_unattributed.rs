//! `unattributed list` and `unattributed close`, on a ledger of an EVM chain.

use serde_json::{Value, json};

use creditd::rules::Amount;
use creditd::store::{BalanceRead, SweepSpan};

use crate::sample_evm::{EvmSample, shown};

const WINDOW: u64 = 128;
const ETHER: u64 = 1_000_000_000_000_000_000;

/// A quarter of a coin came to the first address in block 101, beside the payment that was recorded there.
pub fn with_unattributed() -> (EvmSample, String) {
    let sample = EvmSample::filled();
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    raw.execute(
        "UPDATE chains SET finalized_height = 101 WHERE cursor_height IS NOT NULL",
        [],
    )
    .unwrap();
    drop(raw);
    let found = sample.edit(|tx, chain| {
        tx.sweep_chores(chain, WINDOW)?;
        let span = SweepSpan {
            every_ms: 0,
            openings_max: 1,
            readings_max: 1,
            reorg_window: WINDOW,
        };
        let opening = tx
            .sweep_work(chain, span, tx.now_ms())?
            .unwrap()
            .openings
            .remove(0);
        let read = |height, units, wanted| {
            let held = tx.header_at(chain, height)?.unwrap();
            Ok::<_, creditd::store::StoreError>(BalanceRead {
                address: opening.address,
                height,
                hash: held.header.hash,
                balance: Some(Amount::from_u64(units)),
                wanted,
            })
        };
        let reads = [
            read(100, ETHER, Some(opening.wanted))?,
            read(101, ETHER + 7 * (ETHER / 4), None)?,
        ];
        tx.note_balances(chain, &reads)?;
        tx.sweep_chores(chain, WINDOW)
    });
    assert_eq!(found, 1);
    let listed = sample.files.json(&["unattributed", "list"]);
    let id = listed["unattributed"][0]["id"].as_str().unwrap().to_owned();
    (sample, id)
}

#[track_caller]
fn told(sample: &EvmSample, args: &[&str], code: i32) -> String {
    let output = sample.files.cli(args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    text
}

fn rows(sample: &EvmSample, table: &str) -> i64 {
    let raw = rusqlite::Connection::open(sample.files.database()).unwrap();
    let count = format!("SELECT count(*) FROM {table}");
    raw.query_row(&count, [], |row| row.get(0)).unwrap()
}

#[test]
fn an_unattributed_amount_is_listed_wherever_an_operator_looks() {
    let (sample, id) = with_unattributed();
    let listed = sample.files.json(&["unattributed", "list", "--open"]);
    let row = &listed["unattributed"][0];
    for (key, expected) in [
        ("chain", json!("dev")),
        ("merchant", json!("shop")),
        ("amount", json!("0.25")),
        ("symbol", json!("ETH")),
        ("from_height", json!(100)),
        ("to_height", json!(101)),
        ("state", json!("open")),
        ("is_explained", json!(false)),
        ("closed_as", Value::Null),
    ] {
        assert_eq!(row[key], expected, "{key}");
    }
    insta::assert_snapshot!("unattributed_list", told(&sample, &["unattributed", "list"], 0));
    insta::assert_snapshot!(
        "unattributed_csv",
        told(&sample, &["unattributed", "list", "--csv"], 0)
    );
    let status = told(&sample, &["chain", "status"], 0);
    assert!(
        status.contains("dev: 1 amount that no recorded payment explains"),
        "{status}"
    );
    let none = ["unattributed", "list", "--merchant", "bar"];
    assert!(told(&sample, &none, 0).contains("no unattributed amounts"));
    assert_eq!(id.len(), 43);
}

#[test]
fn closing_is_dry_first_acts_once_and_touches_no_money() {
    let (sample, id) = with_unattributed();
    let tables = ["credits", "journal", "deposits", "outputs", "events"];
    let before = tables.map(|table| rows(&sample, table));
    let short = &id[..9];
    let close = |how: &[&str], code| {
        let line = [&["unattributed", "close", short], how, &["--reason", "looked at"]].concat();
        told(&sample, &line, code)
    };
    // One has to say what it was, and only one thing.
    close(&[], 2);
    close(&["--not-a-payment", "--outpoint", &format!("{}:0", shown(1))], 2);
    assert!(close(&["--outpoint", "x"], 2).contains("is no outpoint"));
    // T2 pays another address in its third log.
    let elsewhere = format!("{}:3", shown(2));
    let refused = close(&["--outpoint", &elsewhere], 1);
    assert!(
        refused.contains(&format!("{elsewhere} pays another address")),
        "{refused}"
    );
    let ours = format!("{}:0", shown(1));
    assert!(close(&["--outpoint", &ours], 0).contains("a recorded output to that address"));
    let unknown = format!("{}:4294967296", shown(0x77));
    let dry = close(&["--outpoint", &unknown], 0);
    assert!(
        dry.contains("would close un_") && dry.contains("has not recorded"),
        "{dry}"
    );
    assert_eq!(rows(&sample, "unattributed WHERE state = 'open'"), 1);

    let done = close(&["--outpoint", &unknown, "--apply"], 0);
    assert!(done.contains("done: close"), "{done}");
    let again = close(&["--outpoint", &unknown, "--apply"], 0);
    assert!(again.contains("nothing to do"), "{again}");
    assert!(close(&["--not-a-payment", "--apply"], 1).contains("closed otherwise already"));
    assert_eq!(
        rows(
            &sample,
            "audit WHERE action = 'unattributed' AND actor = 'operator'"
        ),
        1
    );
    assert_eq!(tables.map(|table| rows(&sample, table)), before);
    let listed = sample.files.json(&["unattributed", "list"]);
    let row = &listed["unattributed"][0];
    assert_eq!(
        [&row["state"], &row["txid"], &row["vout"]],
        [&json!("closed"), &json!(shown(0x77)), &json!(1_u64 << 32)]
    );
    let open = sample.files.json(&["unattributed", "list", "--open"]);
    assert_eq!(open["unattributed"], json!([]));
    told(
        &sample,
        &[
            "unattributed",
            "close",
            "un_0000",
            "--not-a-payment",
            "--reason",
            "x",
        ],
        1,
    );
}
