//! Planted faults: a check that finds nothing must be one that could.

use crate::{checks, paths, table};

/// What, file, source, and a part of the fault it must give; `""` for none.
const IMPORTS: &[(&str, &str, &str, &str)] = &[
    (
        "store in rules",
        "src/rules/fork.rs",
        "use crate::store::Database;",
        "`rules` may not use `store`",
    ),
    (
        "leaf in rules",
        "src/rules/mod.rs",
        "use crate::clock::Clock;",
        "`rules` may not use `clock`",
    ),
    (
        "itself",
        "src/rules/fork.rs",
        "use crate::rules::Work; use super::Amount;",
        "",
    ),
    (
        "inside a group",
        "src/chain/mod.rs",
        "use crate::{rules::Work, store};",
        "`chain` may not use `store`",
    ),
    (
        "nested group",
        "src/chain/mod.rs",
        "use crate::{rules::{A, B}, index::{self, C}};",
        "",
    ),
    (
        "in an expression",
        "src/api/mod.rs",
        "fn f() { crate::chain::tip() }",
        "`api` may not use `chain`",
    ),
    (
        "past the file by super",
        "src/api/mod.rs",
        "use super::chain::Tip;",
        "`api` may not use `chain`",
    ),
    (
        "two levels up",
        "src/api/invoices.rs",
        "use super::super::chain::Tip;",
        "`api` may not use `chain`",
    ),
    (
        "up from an inline mod",
        "src/ops.rs",
        "mod tests { use super::*; use super::health::Ok; }",
        "",
    ),
    (
        "out of an inline mod",
        "src/ops.rs",
        "mod tests { use super::super::chain; }",
        "may not use `chain`",
    ),
    (
        "after an inline mod",
        "src/ops.rs",
        "mod a { fn f() {} } use super::chain::X;",
        "may not use `chain`",
    ),
    (
        "self does not hide it",
        "src/ops.rs",
        "use self::super::chain::X;",
        "may not use `chain`",
    ),
    (
        "leaf and leaf",
        "src/egress.rs",
        "use crate::{clock, config::Config, rules::Amount};",
        "",
    ),
    (
        "store in a leaf",
        "src/index.rs",
        "use crate::store::ReadTx;",
        "`index` may not use `store`",
    ),
    (
        "cli and follow",
        "src/cli/run.rs",
        "use crate::follow::Follower;",
        "`cli` may not use `follow`",
    ),
    (
        "daemon and cli",
        "src/daemon.rs",
        "use crate::cli::Args;",
        "`daemon` may not use `cli`",
    ),
    (
        "sandbox and chain",
        "src/sandbox/mod.rs",
        "use crate::chain::decode;",
        "`sandbox` may not use `chain`",
    ),
    (
        "unknown module",
        "src/cli/mod.rs",
        "use crate::util::pad;",
        "`util` has no row",
    ),
    (
        "unknown user",
        "src/util.rs",
        "use crate::rules::Work;",
        "`util` has no row",
    ),
    (
        "SQLite outside store",
        "src/jobs.rs",
        "use rusqlite::Connection;",
        "belongs to store",
    ),
    (
        "SQLite by full path",
        "src/cli/tx.rs",
        "fn f(c: &rusqlite::Connection) {}",
        "belongs to store",
    ),
    (
        "SQLite in store",
        "src/store/open.rs",
        "use rusqlite::Connection;",
        "",
    ),
    (
        "bitcoin in follow",
        "src/follow.rs",
        "use bitcoincore_rpc::bitcoin::Block;",
        "belongs to chain",
    ),
    (
        "bitcoin in address",
        "src/address.rs",
        "use bitcoincore_rpc::bitcoin::Address;",
        "",
    ),
    (
        "clap in config",
        "src/config.rs",
        "use clap::Parser;",
        "belongs to cli",
    ),
    (
        "anyhow in the core",
        "src/chain/mod.rs",
        "fn f() -> anyhow::Result<()> {}",
        "belongs to cli, main",
    ),
    (
        "serde in rules",
        "src/rules/ids.rs",
        "#[derive(serde::Serialize)] struct A;",
        "the crate serde",
    ),
    (
        "tokio in rules",
        "src/rules/ids.rs",
        "use tokio::time::Instant;",
        "the crate tokio",
    ),
    (
        "tracing in rules",
        "src/rules/ids.rs",
        "fn f() { tracing::info!(\"x\") }",
        "the crate tracing",
    ),
    (
        "allowed in rules",
        "src/rules/ids.rs",
        "use sha2::Digest; use ruint::aliases::U256;",
        "",
    ),
    (
        "files in rules",
        "src/rules/ids.rs",
        "use std::{fmt, fs::File};",
        "no std::fs",
    ),
    (
        "clock in rules",
        "src/rules/ids.rs",
        "use std::time::SystemTime;",
        "no std::time",
    ),
    (
        "span in rules",
        "src/rules/ids.rs",
        "use std::time::Duration;",
        "",
    ),
    (
        "comment",
        "src/rules/a.rs",
        "// crate::store::X\n/* crate::store /* */ crate::cli::X */",
        "",
    ),
    (
        "text",
        "src/rules/a.rs",
        r##"const A: &str = "crate::store::X"; const B: &str = r#"" crate::api::X"#;"##,
        "",
    ),
    (
        "after a lifetime",
        "src/rules/a.rs",
        "fn f<'a>(x: &'a str, y: crate::store::X) {}",
        "may not use `store`",
    ),
    (
        "after a quote sign",
        "src/rules/a.rs",
        "const Q: char = '\"'; type A = crate::store::X;",
        "may not use",
    ),
    (
        "escaped quote",
        "src/rules/a.rs",
        r#"const Q: &str = "\""; type A = crate::store::X;"#,
        "may not use",
    ),
];

#[test]
fn planted_imports_are_found() {
    let dependencies = [
        "serde",
        "tokio",
        "tracing",
        "sha2",
        "ruint",
        "rusqlite",
        "clap",
        "anyhow",
        "bitcoincore_rpc",
    ];
    let dependencies = dependencies.map(str::to_owned);
    for (what, file, source, expected) in IMPORTS {
        let faults = checks::imports(file, source, &dependencies);
        if expected.is_empty() {
            assert!(faults.is_empty(), "{what}: {faults:?}");
        } else {
            assert!(
                faults.len() == 1 && faults[0].contains(expected),
                "{what}: {faults:?}"
            );
        }
    }
}

#[test]
fn planted_sizes_are_found() {
    let wide = "x".repeat(111);
    let cases = [
        ("src/a.rs", "\n".repeat(501), 1),
        ("src/a.rs", "\n".repeat(500), 0),
        ("src/main.rs", "\n".repeat(11), 1),
        ("tests/sim/naive.rs", "\n".repeat(151), 1),
        ("tests/sim/naive.rs", "\n".repeat(150), 0),
        ("schema.sql", wide.clone(), 1),
        ("tests/run", format!("#!/bin/sh\n{wide}"), 1),
        ("README.md", wide.clone(), 0),
        ("tests/it/snapshots/a.snap", wide, 0),
    ];
    for (file, text, faults) in cases {
        assert_eq!(
            checks::sizes(file, &text).len(),
            faults,
            "{file}, {} bytes",
            text.len()
        );
    }
}

#[test]
fn planted_tokens_are_found() {
    let cases = [
        ("tests/it/a.rs", "#[test] #[ignore] fn f() {}", 1),
        ("tests/it/a.rs", "#[ignore = \"slow\"] fn f() {}", 1),
        ("src/api/a.rs", "fn f() { todo!(\"later\") }", 1),
        ("src/api/a.rs", "// todo!()\nfn todo() {}", 0),
        ("src/config.rs", "fn f() { std::process::exit(2) }", 1),
        ("src/jobs.rs", "#[allow(clippy::disallowed_methods)] fn f() {}", 1),
        (
            "src/clock.rs",
            "#[allow(clippy::disallowed_methods)] fn f() {}",
            0,
        ),
        ("src/rules/a.rs", "async fn f() { g().await }", 2),
        ("src/rules/a.rs", "use std::collections::HashMap;", 1),
        ("README.md", "#[ignore]", 0),
    ];
    for (file, source, faults) in cases {
        assert_eq!(checks::tokens(file, source).len(), faults, "{file}: {source}");
    }
}

#[test]
fn planted_decoders_are_found() {
    let files = [
        (
            "src/chain/evm/block.rs",
            "impl A { fn txs<T>(&self) {} fn new() {} }",
        ),
        ("src/chain/evm/tip.rs", "impl A { fn tip(&self) {} }"),
        (
            "src/chain/bitcoin/scan.rs",
            "impl A { fn scanned(&mut self, a: B) {} }",
        ),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    for (file, source, faults) in [
        ("src/chain/evm/reread.rs", "use super::block::quantity;", 1),
        (
            "src/chain/evm/reread.rs",
            "use super::{fields::A, transfer::read};",
            1,
        ),
        (
            "src/chain/evm/reread.rs",
            "fn f() { super::scan::f(); self.txs(); }",
            2,
        ),
        (
            "src/chain/evm/reread.rs",
            "fn f() { a.txs; A::new(); self.tip() }",
            1,
        ),
        (
            "src/chain/evm/reread.rs",
            "fn f(block: bitcoin::block::B) { block.scanned() }",
            0,
        ),
        ("src/chain/bitcoin/reread.rs", "fn f() { self.scanned() }", 1),
        ("src/chain/evm/tip.rs", "use super::block::quantity;", 0),
        (
            "src/chain/evm/reread/a.rs",
            "use super::super::block::quantity;",
            1,
        ),
    ] {
        let found = checks::shared_decoders(file, source, &files);
        assert_eq!(found.len(), faults, "{file}: {source}: {found:?}");
    }
}

#[test]
fn planted_words_are_found() {
    let stranger = ["see ..", "/shared/a.md\nfixes issue", " #7"].concat();
    let faults = checks::words("README.md", &stranger);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[1].starts_with("README.md:2:"), "{faults:?}");
    assert!(checks::words("README.md", "one HTTP session, an issue with #5").is_empty());
}

#[test]
fn planted_module_is_found() {
    let faults = checks::modules_without_row("pub mod rules;\n/// mod x;\nmod helpers;");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains("helpers"), "{faults:?}");
}

#[test]
fn dependencies_are_read_from_the_manifest() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na-b = \"1\"\nc = { version = \"1\" \
      }\n\n[features]\nd = []\n";
    assert_eq!(checks::dependencies(manifest), ["a_b", "c"]);
}

#[test]
fn lines_and_groups_are_read_right() {
    let source = "use a::{b::{self, c as d}, e::*};\n\n\nfn f() -> g::H<i::J> {}\n";
    let read = paths::used_paths(source);
    let read: Vec<(usize, String)> = read
        .iter()
        .map(|path| (path.line, path.segments.join("::")))
        .collect();
    let expected = [
        (1, "a::b::self"),
        (1, "a::b::c"),
        (1, "a::e"),
        (4, "g::H"),
        (4, "i::J"),
    ];
    assert_eq!(read, expected.map(|(line, path)| (line, path.to_owned())));
}

#[test]
fn nobody_but_the_wiring_uses_the_command_line() {
    for module in table::LEAVES {
        assert!(
            table::forbids_module("rules", module).is_some(),
            "rules may not use {module}"
        );
        assert!(
            table::forbids_module(module, "cli").is_some(),
            "{module} may not use cli"
        );
    }
}
