//! Who may use whom. The module table of the architecture, as data.

/// Anyone but `rules` may use these; they use `rules` and each other.
pub const LEAVES: &[&str] = &[
    "config",
    "clock",
    "telemetry",
    "address",
    "index",
    "listen",
    "pulse",
    "points",
    "chance",
    "webhook",
    "egress",
    "ends",
];

/// Module, what it may use of ours, and whether it may use the leaves.
const MODULES: &[(&str, &[&str], bool)] = &[
    ("rules", &[], false),
    ("chain", &["rules"], true),
    ("follow", &["rules", "chain", "store"], true),
    ("store", &["rules"], true),
    ("deliver", &["rules", "store"], true),
    ("inbox", &["rules", "store", "jobs"], true),
    ("api", &["rules", "store", "inbox"], true),
    ("jobs", &["rules", "chain", "store"], true),
    ("pools", &["rules", "chain", "store", "jobs"], true),
    ("check", &["rules", "chain", "store", "inbox"], true),
    ("audit", &["rules", "chain", "store", "jobs"], true),
    (
        "drill",
        &[
            "rules", "chain", "follow", "store", "deliver", "inbox", "jobs", "daemon",
        ],
        true,
    ),
    ("ops", &["rules", "store"], true),
    // Of the leaves it needs the clock: headers carry the time.
    ("sandbox", &["rules"], true),
    ("demo", &["sandbox", "store"], true),
    (
        "cli",
        &[
            "rules", "store", "jobs", "pools", "check", "audit", "drill", "ops", "sandbox", "demo", "daemon",
        ],
        true,
    ),
    (
        "daemon",
        &[
            "rules", "chain", "follow", "store", "deliver", "inbox", "api", "jobs", "pools", "check",
            "audit", "ops", "sandbox", "demo",
        ],
        true,
    ),
];

/// Foreign crates that only these modules may name.
const TIED: &[(&str, &[&str])] = &[
    ("rusqlite", &["store"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("csv", &["cli"]),
    ("anyhow", &["cli", "main"]),
    ("axum", &["api", "listen", "ops", "sandbox", "demo"]),
    ("hyper", &["api"]),
    ("hyper_util", &["api"]),
    ("http_body_util", &["api"]),
    ("utoipa", &["api"]),
    ("utoipa_axum", &["api"]),
    ("tokio_rustls", &["listen"]),
    ("qrcode", &["api"]),
    ("prometheus_client", &["ops"]),
    ("sd_notify", &["daemon"]),
    ("reqwest", &["egress"]),
    ("tower_layer", &["egress"]),
    ("tower_service", &["egress"]),
    ("toml", &["config"]),
    ("tracing_subscriber", &["telemetry"]),
    ("bitcoincore_rpc", &["chain", "address", "sandbox"]),
    ("bitcoin", &["chain", "address", "sandbox"]),
    ("miniscript", &["address", "sandbox"]),
    ("ethers_core", &["chain", "address", "sandbox"]),
];

/// All that `rules` may name besides itself and the harmless part of the standard library.
pub const RULES_CRATES: &[&str] = &["ruint", "sha2", "thiserror"];

/// Parts of the standard library that read or change the world: never in `rules`.
pub const IMPURE_STD: &[&str] = &["fs", "net", "io", "thread", "env", "process", "os"];

/// Why a module may not use another, or `None` if it may.
pub fn forbids_module(user: &str, used: &str) -> Option<String> {
    if user == used || user == "lib" || user == "main" {
        return None;
    }
    if !is_known(used) {
        return Some(format!(
            "`{used}` has no row in the module table (tests/tidy/table.rs)"
        ));
    }
    let is_allowed = if LEAVES.contains(&user) {
        used == "rules" || LEAVES.contains(&used)
    } else {
        let Some((_, ours, leaves)) = MODULES.iter().find(|(name, ..)| *name == user) else {
            return Some(format!(
                "`{user}` has no row in the module table (tests/tidy/table.rs)"
            ));
        };
        ours.contains(&used) || (*leaves && LEAVES.contains(&used))
    };
    (!is_allowed).then(|| format!("`{user}` may not use `{used}`"))
}

/// Why a module may not name a foreign crate, or `None` if it may. A name that Cargo.toml does not list is
/// one of ours (`chain::bitcoin`), or reached through a crate that is listed.
pub fn forbids_crate(user: &str, named: &str, is_dependency: bool) -> Option<String> {
    if !is_dependency {
        return None;
    }
    if user == "rules" && !RULES_CRATES.contains(&named) {
        return Some(format!(
            "`rules` may not use the crate {named}: it knows no format, task or log"
        ));
    }
    let (_, homes) = TIED.iter().find(|(name, _)| *name == named)?;
    (!homes.contains(&user)).then(|| {
        format!(
            "the crate {named} belongs to {}, not to `{user}`",
            homes.join(", ")
        )
    })
}

pub fn is_known(module: &str) -> bool {
    LEAVES.contains(&module) || MODULES.iter().any(|(name, ..)| *name == module)
}
