//! Answers of an EVM node with something in them changed: an error, or what is true, or less of it. Never a
//! payment that is not there.

mod mutate;
mod others;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use creditd::chain::evm::{EvmSource, Inner, TraceCall};
use creditd::chain::{ChainSource as _, SourceError};
use creditd::rules::{Asset, CandidateTx, Doubt, ScannedBlock, Script, Txid};
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::properties::number;
use crate::rig::in_simulation;
use mutate::{Change, mutate};
use world::{Mode, Repeater, World, source};

const fn mode(name: &'static str, native: Option<Inner>) -> Mode {
    Mode {
        name,
        native,
        has_bloom: true,
        is_balance_checked: false,
        hides_logs: false,
    }
}

const MODES: [Mode; 7] = [
    mode("debug", Some(Inner::Traces(TraceCall::Debug))),
    mode("flat", Some(Inner::Traces(TraceCall::Flat))),
    mode("eip7708", Some(Inner::Logs)),
    mode("tokens", None),
    Mode {
        is_balance_checked: true,
        ..mode("balances", None)
    },
    Mode {
        hides_logs: true,
        ..mode("receipts", Some(Inner::Unseen))
    },
    Mode {
        has_bloom: false,
        ..mode("no bloom", Some(Inner::Traces(TraceCall::Any)))
    },
];

/// Fields that decide about nothing.
const UNUSED: [&str; 40] = [
    "accessList",
    "baseFeePerGas",
    "blobGasUsed",
    "blockNumber",
    "blockTimestamp",
    "chainId",
    "creationMethod",
    "cumulativeGasUsed",
    "difficulty",
    "effectiveGasPrice",
    "excessBlobGas",
    "extraData",
    "gas",
    "gasLimit",
    "gasPrice",
    "gasUsed",
    "init",
    "input",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
    "miner",
    "mixHash",
    "output",
    "parentBeaconBlockRoot",
    "r",
    "receiptsRoot",
    "removed",
    "s",
    "sha3Uncles",
    "size",
    "stateRoot",
    "subtraces",
    "transactionIndex",
    "transactionsRoot",
    "uncles",
    "v",
    "withdrawals",
    "withdrawalsRoot",
    "yParity",
    "code",
];

type Place = (Txid, u64);
type Payment = (Script, Asset, String);

/// What a block pays, by where it stands.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    paid: BTreeMap<Place, (Payment, Option<Script>, Option<Doubt>)>,
    /// Which transactions are candidates, and whether they failed.
    txs: BTreeMap<Txid, bool>,
}

fn told(txs: &[CandidateTx]) -> Told {
    let mut told = Told {
        paid: BTreeMap::new(),
        txs: BTreeMap::new(),
    };
    for tx in txs {
        assert_eq!(told.txs.insert(tx.txid, tx.is_failed), None, "twice {}", tx.txid);
        for output in &tx.outputs {
            let payment = (output.script.clone(), output.asset, output.amount.to_string());
            let one = (payment, output.from.clone(), output.doubt);
            assert_eq!(told.paid.insert((tx.txid, output.vout), one), None);
        }
    }
    told
}

async fn read(
    source: &EvmSource<Repeater>,
    world: &World,
    is_whole: bool,
) -> Result<ScannedBlock, SourceError> {
    let mut last = None;
    // What is odd is asked again, until it counts as what the block is.
    for _ in 0..4 {
        let raw = match is_whole {
            true => source.fetch_whole(world.block).await,
            false => source.fetch(world.block).await,
        };
        let scanned = match raw {
            Ok(raw) => source.scan(world.block, &raw, &world.index()).await,
            Err(error) => Err(error),
        };
        match scanned {
            Ok(block) => {
                assert_eq!(block.header.hash, world.block);
                return Ok(block);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap())
}

/// Nothing in `now` that is not in `truth`, but for what is held.
fn check(truth: &Told, now: &Told, changes: &[Change]) -> Result<(), String> {
    let moves_frames = changes.iter().any(|change| change.moves_frames);
    let nobody = Script([0; 20].into());
    for (place, (payment, from, doubt)) in &now.paid {
        let elsewhere = || {
            let of_tx = truth.paid.iter().filter(|((txid, _), _)| *txid == place.0);
            of_tx.map(|(_, one)| one).find(|one| one.0 == *payment)
        };
        let known = truth.paid.get(place).filter(|one| one.0 == *payment);
        let Some(known) = known.or_else(|| elsewhere().filter(|_| moves_frames)) else {
            // Whether it failed cannot be told: held.
            if *doubt == Some(Doubt::Status) && truth.txs.get(&place.0) == Some(&true) {
                continue;
            }
            return Err(format!("{place:?} {payment:?} is new"));
        };
        if *from != known.1 && *from != Some(nobody.clone()) {
            return Err(format!("{place:?} is from {from:?}"));
        }
        if known.2.is_some() && doubt.is_none() {
            return Err(format!("{place:?} is believed"));
        }
        if changes
            .iter()
            .all(|change| change.field != "status" && change.field != "garbled")
            && *doubt == Some(Doubt::Status)
        {
            return Err(format!("{place:?} is held for a status that is there"));
        }
    }
    let is_harmless = |change: &Change| !change.is_rough && UNUSED.contains(&&*change.field);
    if changes.iter().all(is_harmless) && now != truth {
        return Err("what decides about nothing changed something".to_owned());
    }
    Ok(())
}

struct Setting {
    mode: Mode,
    world: Arc<World>,
    truth: Told,
    asked: BTreeMap<String, Value>,
    hashes: Vec<String>,
}

impl Setting {
    async fn new(mode: Mode, is_whole: bool) -> Setting {
        let world = Arc::new(World::new(mode.native == Some(Inner::Logs)));
        let dial = Repeater::new(&world, mode);
        let source = source(&dial, mode);
        source.identity().await.unwrap();
        dial.said().asked.clear();
        let block = read(&source, &world, is_whole).await.unwrap();
        let asked = std::mem::take(&mut dial.said().asked);
        let hashes = world::hashes(&world);
        Setting {
            mode,
            truth: told(&block.txs),
            asked,
            hashes,
            world,
        }
    }

    fn changes(&self, dice: &mut Dice, dial: &Repeater) -> Vec<Change> {
        let keys: Vec<&String> = self.asked.keys().collect();
        let mut changes = Vec::new();
        for _ in 0..[1, 1, 1, 2, 4][dice.roll(5)] {
            let key = keys[dice.roll(keys.len())];
            let (method, _) = key.split_once(' ').unwrap();
            let (text, change) = mutate(dice, method, &self.asked[key], &self.hashes);
            dial.said().instead.insert(key.clone(), text);
            changes.push(change);
        }
        changes
    }
}

#[test]
fn a_block_with_changed_answers_pays_no_more_than_it_does() {
    let mut faults = Vec::new();
    let mut outcomes = BTreeMap::new();
    for (mode, is_whole) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        in_simulation(async {
            let setting = Setting::new(mode, is_whole).await;
            assert!(setting.truth.paid.len() >= 3, "{:?}", setting.truth);
            let first = number("CREDITD_SEED", 1);
            for seed in first..first + number("CREDITD_SEEDS", 150) {
                let mut dice = Dice::new(seed);
                let dial = Repeater::new(&setting.world, setting.mode);
                let source = source(&dial, setting.mode);
                let changes = setting.changes(&mut dice, &dial);
                let outcome = read(&source, &setting.world, is_whole).await;
                let fault = match &outcome {
                    Ok(block) => check(&setting.truth, &told(&block.txs), &changes).err(),
                    Err(_)
                        if changes
                            .iter()
                            .all(|change| !change.is_rough && UNUSED.contains(&&*change.field)) =>
                    {
                        Some("it is refused for what decides about nothing".to_owned())
                    }
                    Err(_) => None,
                };
                let kind = match &outcome {
                    Ok(block) if told(&block.txs) == setting.truth => "the same",
                    Ok(_) => "less",
                    Err(_) => "refused",
                };
                *outcomes.entry(kind).or_insert(0) += 1;
                if let Some(fault) = fault {
                    let why = outcome.err().map(|error| error.to_string());
                    faults.push(format!(
                        "{} {is_whole} seed {seed}: {fault} {why:?}\n    {changes:?}",
                        mode.name
                    ));
                }
            }
        });
    }
    eprintln!("{outcomes:?}");
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

type Edit = fn(&mut Value);

const CONTRADICTIONS: [(&str, Mode, &str, Edit); 12] = [
    (
        "a log is there twice",
        MODES[3],
        "eth_getTransactionReceipt",
        |receipt| {
            let logs = receipt["logs"].as_array_mut().unwrap();
            logs.insert(0, logs[0].clone());
        },
    ),
    (
        "the first log is gone",
        MODES[3],
        "eth_getTransactionReceipt",
        |receipt| {
            receipt["logs"].as_array_mut().unwrap().remove(0);
        },
    ),
    (
        "the logs are turned round",
        MODES[3],
        "eth_getTransactionReceipt",
        |receipt| {
            receipt["logs"].as_array_mut().unwrap().reverse();
            receipt["logs"][0]["data"] = json!(format!("0x{:064x}", 14));
        },
    ),
    (
        "a log is of another block",
        MODES[3],
        "eth_getTransactionReceipt",
        |receipt| {
            receipt["logs"][0]["blockHash"] = receipt["transactionHash"].clone();
        },
    ),
    (
        "a log is of another transaction",
        MODES[3],
        "eth_getTransactionReceipt",
        |receipt| {
            receipt["logs"][0]["transactionHash"] = receipt["blockHash"].clone();
        },
    ),
    (
        "a transaction is another",
        MODES[3],
        "eth_getTransactionByHash",
        |tx| {
            tx["hash"] = tx["blockHash"].clone();
        },
    ),
    (
        "a log is listed with another transaction",
        MODES[3],
        "eth_getLogs",
        |logs| {
            logs[0]["transactionHash"] = logs[1]["transactionHash"].clone();
        },
    ),
    (
        "a transaction is there twice",
        MODES[0],
        "eth_getBlockByHash",
        |block| {
            block["transactions"][5]["hash"] = block["transactions"][0]["hash"].clone();
        },
    ),
    (
        "transactions are hashes",
        MODES[0],
        "eth_getBlockByHash",
        |block| {
            block["transactions"][0] = block["transactions"][0]["hash"].clone();
        },
    ),
    (
        "traces are in another order",
        MODES[0],
        "debug_traceBlockByHash",
        |traces| {
            traces.as_array_mut().unwrap().swap(4, 2);
        },
    ),
    (
        "a frame is of no known kind",
        MODES[0],
        "debug_traceBlockByHash",
        |traces| {
            traces[6]["result"]["calls"][0]["type"] = json!("MOVE");
        },
    ),
    ("a frame that failed is gone", MODES[1], "trace_block", |traces| {
        let traces = traces.as_array_mut().unwrap();
        let failed = traces.iter().position(|trace| {
            trace["error"].is_string() && trace["traceAddress"].as_array().is_some_and(|at| !at.is_empty())
        });
        traces.remove(failed.unwrap());
    }),
];

/// What the changes by chance have found, one by one.
#[test]
fn answers_that_contradict_themselves_are_refused_or_made_good() {
    for (name, mode, method, edit) in CONTRADICTIONS {
        in_simulation(async {
            let setting = Setting::new(mode, false).await;
            let mut seen = 0;
            for (key, answer) in setting.asked.iter().filter(|(key, _)| key.starts_with(method)) {
                let mut changed = answer.clone();
                edit(&mut changed);
                let dial = Repeater::new(&setting.world, mode);
                let instead = changed.to_string().into_bytes();
                dial.said().instead.insert(key.clone(), instead);
                let outcome = read(&source(&dial, mode), &setting.world, false).await;
                let now = outcome.map(|block| told(&block.txs));
                let is_so = now.as_ref().is_ok_and(|now| *now == setting.truth);
                assert!(is_so || now.is_err(), "{name}: {now:?}");
                seen += 1;
            }
            assert!(seen > 0, "{name}");
        });
    }
}

/// Where a frame stands is told by its address.
#[test]
fn flat_traces_in_any_order_say_the_same() {
    in_simulation(async {
        let mode = MODES[1];
        let setting = Setting::new(mode, false).await;
        let (key, answer) = setting
            .asked
            .iter()
            .find(|(key, _)| key.starts_with("trace_block"))
            .unwrap();
        let mut changed = answer.clone();
        changed.as_array_mut().unwrap().reverse();
        let dial = Repeater::new(&setting.world, mode);
        dial.said()
            .instead
            .insert(key.clone(), changed.to_string().into_bytes());
        let block = read(&source(&dial, mode), &setting.world, false).await.unwrap();
        assert_eq!(told(&block.txs), setting.truth);
    });
}
