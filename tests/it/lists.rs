//! Mempool lists as no node should give them: old, read elsewhere, at odds with themselves or with the chain.

use crate::rig::{Rig, in_simulation};
use crate::scripted::{Tx, script};
use creditd::index::{Index, short};
use creditd::rules::{Asset, CandidateOutput, CandidateTx, MempoolList};
use creditd::store::{Backfill, ListApplied, Listing};
use std::sync::Arc;
use std::time::Duration;

const EVICT: Duration = Duration::from_secs(90);

/// A list as a node gives it, read at the tip that it has now.
fn listed(rig: &Rig, index: &Index, txs: &[&Arc<Tx>]) -> MempoolList {
    let candidate = |tx: &&Arc<Tx>| CandidateTx {
        sender: None,
        is_failed: false,
        txid: tx.txid,
        is_coinbase: false,
        inputs: tx.inputs.clone(),
        outputs: (0..)
            .zip(&tx.outputs)
            .map(|(vout, out)| CandidateOutput {
                asset: Asset::Native,
                from: None,
                doubt: None,
                vout,
                script: out.script.clone(),
                amount: creditd::rules::Amount::from_u64(out.amount),
            })
            .collect(),
        ancestors: vec![],
    };
    MempoolList {
        tip: rig.tip(),
        version: index.version(),
        listed: Arc::new(txs.iter().map(|tx| tx.txid).collect()),
        txs: txs.iter().map(candidate).collect(),
        is_complete: true,
    }
}

async fn apply(rig: &Rig, list: MempoolList, poll: i64) -> ListApplied {
    let (key, terms) = (rig.key, rig.settings.terms.clone());
    let listing = Listing {
        poll,
        is_synced: true,
        every_ms: 2_000,
    };
    rig.write(move |tx| tx.apply_mempool(key, &list, listing, &terms))
        .await
}

fn index(rig: &Rig) -> Index {
    let mut index = Index::default();
    let version = rig.read(|tx| tx.list_version());
    index.add_scripts(
        rig.tables.rules().iter().map(|rule| short(&rule.script.0)),
        version,
    );
    index
}

/// Lists with an old number, or read at another tip, are not applied: they would revive or evict.
#[test]
fn an_old_list_fed_again_changes_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.settle().await;
        let index = index(&rig);
        let old = listed(&rig, &index, &[&pay]);
        let number = rig.tables.count("SELECT mempool_poll FROM chains");
        rig.evict(&pay);
        rig.wait(EVICT).await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "evicted");
        let before = rig.projection();
        for poll in [number, number - 1, 0] {
            assert_eq!(apply(&rig, old.clone(), poll).await, ListApplied::Outdated);
        }
        let newest = rig.tables.count("SELECT mempool_poll FROM chains");
        assert_eq!(apply(&rig, old.clone(), newest).await, ListApplied::Outdated);
        rig.extend(1);
        rig.settle().await;
        assert_eq!(
            apply(&rig, old, i64::MAX).await,
            ListApplied::Outdated,
            "read at another tip"
        );
        let moved = |lines: Vec<String>| {
            lines
                .into_iter()
                .filter(|l| l.starts_with("deposits"))
                .collect::<Vec<_>>()
        };
        assert_eq!(moved(rig.projection()), moved(before));
    });
}

/// A list with two transactions that spend one coin: no node gives such a list; whoever does starts no flood
/// of events.
#[test]
fn a_list_that_contradicts_itself_writes_no_events_for_ever() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        rig.settle().await;
        let one = rig.pay(&to, 5);
        let two = rig.replace(&one, &to, 6);
        let index = index(&rig);
        let number = rig.tables.count("SELECT mempool_poll FROM chains");
        let mut counts = Vec::new();
        for poll in 1..6 {
            apply(&rig, listed(&rig, &index, &[&one, &two]), number + poll).await;
            rig.check();
            counts.push(rig.tables.events().len());
        }
        assert_eq!(counts[1], counts[4], "{counts:?}");
    });
}

/// A list that holds what our chain has mined at that very tip: no node gives one. It must not make half a
/// deposit of an output that a younger rule would match.
#[test]
fn a_list_that_holds_a_mined_transaction_makes_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.spend(&[rig.coin()], &[(&to, 5), (&script(7), 6)]);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        rig.watch(7).await;
        rig.settle().await;
        let number = rig.tables.count("SELECT mempool_poll FROM chains");
        apply(&rig, listed(&rig, &index(&rig), &[&pay]), number + 1).await;
        rig.check();
        assert!(rig.ask_rescan(1, Backfill::All).await);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(1)), ["credit"]);
        rig.compare();
    });
}
