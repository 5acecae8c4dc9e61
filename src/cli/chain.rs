//! `chain status`.

use super::Outcome;
use super::open;
use super::out::Out;
use super::table::{Align, Table, shown};
use crate::check::running::running;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::rules::chain_state::ChainState;
use crate::store::report::ChainStatus;
use crate::store::{NodeEndpoint, Rescan, StoreError};
use crate::telemetry::counted;
use serde::Serialize;

#[derive(Serialize)]
struct AnswerJson {
    chains: Vec<StatusJson>,
    next: Option<i64>,
    is_daemon_running: Option<bool>,
    is_config_in_force: Option<bool>,
}

#[derive(Serialize)]
struct StatusJson {
    chain: String,
    chain_id: String,
    is_configured: bool,
    state: &'static str,
    is_halted: bool,
    reason: String,
    since: Option<String>,
    height: Option<u64>,
    hash: Option<String>,
    /// EVM: the highest of our blocks that the nodes called safe, and final.
    #[serde(skip_serializing_if = "Option::is_none")]
    safe_height: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalized_height: Option<u64>,
    node_height: Option<u64>,
    node_seen_at: Option<String>,
    start_height: Option<u64>,
    mempool_applied_at: Option<String>,
    addresses: u64,
    confirming: u64,
    held: u64,
    /// EVM: how its endpoints stood when the daemon last looked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointJson>,
    unattributed: u64,
    rescans: Vec<RescanJson>,
    reanchor_to: Option<u64>,
    /// Since a backup was restored: `catching_up` or `stating`.
    restoring: Option<&'static str>,
}

#[derive(Serialize)]
struct EndpointJson {
    name: String,
    state: String,
    reason: String,
    is_current: bool,
    since: String,
}

#[derive(Serialize)]
struct RescanJson {
    id: i64,
    from_height: u64,
    next_height: u64,
    found: u64,
    reason: String,
    asked_at: String,
}

/// Where each chain stands. A halted chain is a problem found.
pub(super) fn status(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let running = running(config);
    let (known, is_disk_full) = match open::plain_reader(config) {
        Ok(database) => (database.read(|tx| tx.chain_status())?, database.is_disk_full()),
        // Before the first start nothing was followed, which is an answer and no fault.
        Err(error) if matches!(error.downcast_ref(), Some(StoreError::Missing(_))) => (Vec::new(), false),
        Err(error) => return Err(error),
    };
    let mut chains: Vec<StatusJson> = known.into_iter().map(|status| json(config, status)).collect();
    if is_disk_full {
        // A halt was written before and waits for an operator all the same.
        let waiting = chains.iter_mut().filter(|chain| !chain.is_halted);
        waiting.for_each(overrule);
    }
    for chain in config.chains() {
        let id = chain.chain().as_str();
        if chains.iter().all(|known| known.chain_id != id) {
            chains.push(never_followed(chain.alias(), id));
        }
    }
    let is_halted = chains.iter().any(|chain| chain.is_halted);
    if out.json {
        out.json(&AnswerJson {
            chains,
            next: None,
            is_daemon_running: running.is_running(),
            is_config_in_force: running.is_config_in_force(),
        })?;
    } else {
        print(out, &chains)?;
        if let Some((found, next)) = running.trouble() {
            out.line(format!("{found}; {next}"))?;
        }
        out.done()?;
    }
    Ok(if is_halted { Outcome::Found } else { Outcome::Done })
}

fn print(out: &mut Out, chains: &[StatusJson]) -> anyhow::Result<Outcome> {
    let mut table = Table::new(&[
        ("chain", Align::Left),
        ("state", Align::Left),
        ("since", Align::Left),
        ("height", Align::Right),
        ("node", Align::Right),
        ("addresses", Align::Right),
        ("confirming", Align::Right),
        ("held", Align::Right),
    ]);
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    for chain in chains {
        table.row(vec![
            chain.chain.clone(),
            chain.state.to_owned(),
            chain.since.clone().unwrap_or_default(),
            number(chain.height),
            number(chain.node_height),
            chain.addresses.to_string(),
            chain.confirming.to_string(),
            chain.held.to_string(),
        ]);
    }
    out.table(&table, "no chains", None)?;
    for chain in chains {
        let alias = &chain.chain;
        if !chain.reason.is_empty() {
            out.line(format!("{alias}: {}: {}", chain.state, shown(&chain.reason)))?;
        }
        if !chain.is_configured {
            out.line(format!(
                "{alias}: is not in the config any more and is not followed"
            ))?;
        }
        for endpoint in &chain.endpoints {
            let EndpointJson {
                name, state, since, ..
            } = endpoint;
            let reason = match endpoint.reason.as_str() {
                "" => String::new(),
                reason => format!(": {}", shown(reason)),
            };
            let current = if endpoint.is_current { ", in use" } else { "" };
            out.line(format!(
                "{alias}: endpoint {name} {state} since {since}{current}{reason}"
            ))?;
        }
        let tags = [("safe", chain.safe_height), ("final", chain.finalized_height)];
        let tags: Vec<String> = tags
            .into_iter()
            .filter_map(|(word, height)| Some(format!("{word} up to block {}", height?)))
            .collect();
        if !tags.is_empty() {
            out.line(format!("{alias}: {}", tags.join(", ")))?;
        }
        print_work(out, chain)?;
    }
    out.done()
}

/// What is under way on a chain, and what waits for somebody.
fn print_work(out: &mut Out, chain: &StatusJson) -> anyhow::Result<()> {
    let alias = &chain.chain;
    if let Some(height) = chain.reanchor_to {
        out.line(format!(
            "{alias}: goes back to height {height} once the node is on our block there"
        ))?;
    }
    if let Some(stage) = chain.restoring {
        out.line(format!(
            "{alias}: a backup was restored, now {stage}: `creditd restored` has the report"
        ))?;
    }
    if chain.unattributed > 0 {
        let open = counted(chain.unattributed, "amount");
        out.line(format!(
            "{alias}: {open} that no recorded payment explains: `creditd unattributed list --open`"
        ))?;
    }
    for rescan in &chain.rescans {
        let (from, next, found) = (rescan.from_height, rescan.next_height, rescan.found);
        out.line(format!(
            "{alias}: rescan {} from {from}, now at {next}, {} found",
            rescan.id,
            counted(found, "output")
        ))?;
    }
    Ok(())
}

fn json(config: &Config, status: ChainStatus) -> StatusJson {
    let chain = status.chain;
    let configured = config.chains().find(|known| *known.chain() == chain.id);
    StatusJson {
        chain: configured.map_or(chain.alias, |known| known.alias().to_owned()),
        chain_id: chain.id.to_string(),
        is_configured: configured.is_some(),
        state: chain.state.word(),
        is_halted: chain.state.is_halt(),
        reason: chain.state_reason,
        since: (chain.state_since > 0).then(|| rfc3339(chain.state_since)),
        height: chain.cursor.map(|tip| tip.height),
        hash: chain.cursor.map(|tip| chain.id.print(tip.header.hash)),
        safe_height: chain.safe,
        finalized_height: chain.finalized,
        node_height: chain.node_tip_height,
        node_seen_at: chain.node_seen_at.map(rfc3339),
        start_height: chain.start_height,
        mempool_applied_at: chain.list_applied_at.map(rfc3339),
        addresses: status.addresses,
        confirming: status.confirming,
        held: status.held,
        endpoints: status.endpoints.into_iter().map(endpoint_json).collect(),
        unattributed: status.unattributed,
        rescans: status.rescans.into_iter().map(rescan_json).collect(),
        reanchor_to: status.reanchor_to,
        restoring: status.restoring.map(|stage| stage.state.word()),
    }
}

/// A full disk takes no news of itself: what stands in the database is the state before it was full.
fn overrule(chain: &mut StatusJson) {
    let (state, reason) = (chain.state, std::mem::take(&mut chain.reason));
    let before = match reason.as_str() {
        "" => state.to_owned(),
        reason => format!("{state}: {reason}"),
    };
    chain.reason = format!("the disk of the database is full; written last: {before}");
    chain.state = ChainState::DiskFull.word();
    chain.since = None;
}

fn endpoint_json((endpoint, since): (NodeEndpoint, i64)) -> EndpointJson {
    EndpointJson {
        name: endpoint.name,
        state: endpoint.state,
        reason: endpoint.reason,
        is_current: endpoint.is_current,
        since: rfc3339(since),
    }
}

fn rescan_json(rescan: Rescan) -> RescanJson {
    RescanJson {
        id: rescan.id,
        from_height: rescan.from_height,
        next_height: rescan.next_height,
        found: rescan.found,
        reason: rescan.reason,
        asked_at: rfc3339(rescan.asked_at),
    }
}

fn never_followed(alias: &str, chain_id: &str) -> StatusJson {
    StatusJson {
        chain: alias.to_owned(),
        chain_id: chain_id.to_owned(),
        is_configured: true,
        state: "starting",
        is_halted: false,
        reason: String::new(),
        since: None,
        height: None,
        hash: None,
        safe_height: None,
        finalized_height: None,
        node_height: None,
        node_seen_at: None,
        start_height: None,
        mempool_applied_at: None,
        addresses: 0,
        confirming: 0,
        held: 0,
        endpoints: Vec::new(),
        unattributed: 0,
        rescans: Vec::new(),
        reanchor_to: None,
        restoring: None,
    }
}
