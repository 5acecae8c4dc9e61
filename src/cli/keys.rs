//! `merchant` and `key`: who may use the API. A key's secret is shown once, when it is made.

use super::args::Repair;
use super::key_args::{KeyCreate, Scopes};
use super::open;
use super::out::Out;
use super::table::{Align, Table};
use super::{Outcome, Problem};
use crate::chance::Chance;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::rules::api_key::{ApiKey, Scope};
use crate::store::{ApiKeyRow, KeyOwner, KeyState, NewApiKey};
use anyhow::Context as _;
use serde::Serialize;

const DAY_MS: i64 = 86_400_000;

#[derive(Serialize)]
struct MerchantJson {
    slug: String,
    internal: String,
    created_at: String,
}

#[derive(Serialize)]
struct MerchantAddedJson<'a> {
    /// `added` or `known`.
    outcome: &'static str,
    merchant: &'a str,
}

/// Makes a merchant.
pub(super) fn add_merchant(out: &mut Out, config: &Config, slug: &str) -> anyhow::Result<Outcome> {
    let mut database = open::maker(config)?;
    let is_new = database.write(open::now_ms(), |tx| tx.add_merchant(slug))?;
    if out.json {
        let outcome = if is_new { "added" } else { "known" };
        return out.json(&MerchantAddedJson {
            outcome,
            merchant: slug,
        });
    }
    out.line(match is_new {
        true => format!("added merchant {slug}"),
        false => format!("merchant {slug} is there already"),
    })?;
    out.done()
}

/// Lists merchants.
pub(super) fn list_merchants(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let merchants = open::reader(config)?.read(|tx| tx.merchants())?;
    let rows: Vec<MerchantJson> = merchants
        .into_iter()
        .map(|merchant| MerchantJson {
            slug: merchant.slug,
            internal: merchant.internal,
            created_at: rfc3339(merchant.created_at),
        })
        .collect();
    if out.json {
        return out.list("merchants", &rows, None);
    }
    let mut table = Table::new(&[
        ("merchant", Align::Left),
        ("own transfers", Align::Left),
        ("made", Align::Left),
    ]);
    for row in rows {
        table.row(vec![row.slug, row.internal, row.created_at]);
    }
    out.table(&table, "no merchants; `creditd merchant add` makes one", None)
}

#[derive(Serialize)]
struct KeyJson {
    id: String,
    merchant: Option<String>,
    name: String,
    scopes: Vec<&'static str>,
    state: &'static str,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
}

#[derive(Serialize)]
struct KeyMadeJson {
    key: KeyJson,
    /// The key itself.
    secret: String,
}

fn json(key: ApiKeyRow, now_ms: i64) -> KeyJson {
    KeyJson {
        state: key.state(now_ms).word(),
        id: key.id,
        merchant: match key.owner {
            KeyOwner::Merchant { slug, .. } => Some(slug),
            KeyOwner::Operator => None,
        },
        name: key.name,
        scopes: key.scopes.iter().map(|scope| scope.word()).collect(),
        created_at: rfc3339(key.created_at),
        expires_at: key.expires_at.map(rfc3339),
        revoked_at: key.revoked_at.map(rfc3339),
        last_used_at: key.last_used_at.map(rfc3339),
    }
}

/// Makes a key and shows it.
pub(super) fn create(out: &mut Out, config: &Config, args: &KeyCreate) -> anyhow::Result<Outcome> {
    let scopes = scopes_of(args)?;
    let mut secret = [0; 32];
    Chance::real()
        .fill(&mut secret)
        .context("draw a key from the system's random numbers")?;
    let key = ApiKey::from_secret(secret);
    let now = open::now_ms();
    let mut database = open::writer(config)?;
    let made = database.write(now, |tx| {
        tx.add_api_key(&NewApiKey {
            merchant: args.merchant.as_deref(),
            name: &args.name,
            scopes: &scopes,
            hash: key.hash(),
            expires_at: args
                .expires_days
                .map(|days| now.saturating_add(i64::from(days) * DAY_MS)),
        })
    })?;
    let (made, secret) = (json(made, now), key.to_text());
    if out.json {
        return out.json(&KeyMadeJson { key: made, secret });
    }
    let owner = made.merchant.map_or_else(
        || "operators".to_owned(),
        |merchant| format!("merchant {merchant}"),
    );
    out.line(format!(
        "made {} for {owner}: {}",
        made.id,
        made.scopes.join(", ")
    ))?;
    out.line(format!("key (shown once): {secret}"))?;
    out.done()
}

/// Checks what the key may be used for.
fn scopes_of(args: &KeyCreate) -> Result<Vec<Scope>, Problem> {
    let mut scopes = Vec::new();
    for word in &args.scopes {
        match word {
            Scopes::One(scope) => scopes.push(*scope),
            Scopes::All if args.ops => scopes.extend([Scope::OpsRead, Scope::EventsRead]),
            Scopes::All => scopes.extend(Scope::ALL.into_iter().filter(|scope| !scope.is_operators())),
        }
    }
    scopes.sort_unstable();
    scopes.dedup();
    let is_allowed = |scope: &&Scope| match args.ops {
        true => matches!(scope, Scope::OpsRead | Scope::EventsRead),
        false => !scope.is_operators(),
    };
    match scopes.iter().find(|scope| !is_allowed(scope)) {
        None => Ok(scopes),
        Some(scope) => {
            let (whose, next) = match args.ops {
                true => ("an operator's", "give --merchant instead of --ops"),
                false => ("a merchant's", "give --ops instead of --merchant"),
            };
            Err(Problem::misuse(
                format!("{whose} key cannot have {}", scope.word()),
                next,
            ))
        }
    }
}

/// Lists keys.
pub(super) fn list(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let now = open::now_ms();
    let keys = open::reader(config)?.read(|tx| tx.api_keys())?;
    let rows: Vec<KeyJson> = keys.into_iter().map(|key| json(key, now)).collect();
    if out.json {
        return out.list("keys", &rows, None);
    }
    let mut table = Table::new(&[
        ("id", Align::Left),
        ("merchant", Align::Left),
        ("name", Align::Left),
        ("scopes", Align::Left),
        ("state", Align::Left),
        ("last used", Align::Left),
    ]);
    for row in rows {
        let state = match (row.state, row.expires_at) {
            ("live", Some(end)) => format!("live until {end}"),
            (state, _) => state.to_owned(),
        };
        table.row(vec![
            row.id,
            row.merchant.unwrap_or_else(|| "(ops)".to_owned()),
            row.name,
            row.scopes.join(","),
            state,
            row.last_used_at.unwrap_or_else(|| "never".to_owned()),
        ]);
    }
    out.table(&table, "no keys; `creditd key create` makes one", None)
}

/// Ends a key.
pub(super) fn revoke(out: &mut Out, config: &Config, id: &str, repair: &Repair) -> anyhow::Result<Outcome> {
    let keys = open::reader(config)?.read(|tx| tx.api_keys())?;
    let Some(key) = keys.into_iter().find(|key| key.id == id) else {
        return Err(Problem::found(format!("no key {id}"), "`creditd key list` shows ids").into());
    };
    if key.state(open::now_ms()) == KeyState::Revoked {
        return super::repair::nothing(out, "key-revoke", repair, format!("{id} is revoked already"));
    }
    let text = format!("revoke {id} ({}): whoever uses it is refused at once", key.name);
    super::repair::act(out, "key-revoke", repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| tx.revoke_api_key(id, &repair.reason))?)
    })
}
