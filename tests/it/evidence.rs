//! Evidence of credits: what nodes cannot give today is kept when they can, what a reorg moves is proved
//! anew, and nothing is printed that does not hold.

use std::io::Write as _;
use std::process::Stdio;

use creditd::audit::evidence;
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::rules::{BlockHash, ChainId, TaggedBlock, Txid};
use creditd::sandbox::{Sandbox, Trouble};
use creditd::store::{Database, Evidence, JobOutcome, NewEvidence, OpenMode, OwnEvidence, Store};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::daemon::{Daemon, Setup};
use crate::common::wait::{PATIENCE, wait_until};

const AT_MS: i64 = 1_900_000_000_000;
const MINUTE_MS: i64 = 60_000;

/// A shop whose daemon keeps no evidence, and a round of the job whenever one is wanted.
struct Shop {
    node: Sandbox,
    daemon: Daemon,
    clock: Clock,
    _folder: TempDir,
}

impl Shop {
    fn open() -> Shop {
        let folder = tempfile::tempdir().unwrap();
        let node = Sandbox::start(folder.path(), Clock::real()).unwrap();
        let daemon = Daemon::start(&Setup {
            tables: "[evidence]\nstore = false\n[audit]\nevery_hours = 0\n".to_owned(),
            ..Setup::new(node.url().to_owned(), node.cookie_file().to_owned())
        });
        daemon.wait_height(node.height());
        Shop {
            node,
            daemon,
            clock: Clock::simulated(AT_MS),
            _folder: folder,
        }
    }

    /// One payment in a block, and two blocks on top; credited.
    fn credit(&self, label: &str) -> Txid {
        let before = self.daemon.credits().len();
        let address = Sandbox::address(label);
        self.daemon.watch(&address);
        let paid = self.node.pay(&address, 10_000).unwrap();
        self.node.mine_with(&[paid]).unwrap();
        self.node.mine(2).unwrap();
        wait_until("it is credited", PATIENCE, || {
            (self.daemon.credits().len() > before).then_some(())
        });
        paid
    }

    fn store(&self) -> Store {
        Store::inline(
            Database::open(&self.daemon.database(), OpenMode::Daemon).unwrap(),
            self.clock,
        )
    }

    /// A run of the job, beside no daemon.
    async fn round(&self) -> JobOutcome {
        let mut config = Config::load(Some(&self.daemon.config_file())).unwrap();
        config.is_evidence_stored = true;
        let store = self.store();
        let job = evidence::job(&config, &store, self.clock).unwrap();
        let outcome = job.once(self.clock).await;
        store.close().await.unwrap();
        outcome
    }

    fn kept(&self, credit: &str) -> Vec<Evidence> {
        let database = Database::open(&self.daemon.database(), OpenMode::ReadOnly).unwrap();
        database.read(|tx| tx.evidence_of(credit)).unwrap()
    }

    fn credits(&self) -> Vec<String> {
        let id = |credit: &Value| credit["id"].as_str().unwrap().to_owned();
        self.daemon.credits().iter().map(id).collect()
    }

    fn change(&self, sql: &str) {
        let database = Connection::open(self.daemon.database()).unwrap();
        assert!(database.execute(sql, []).unwrap() > 0, "{sql}");
    }

    /// Exit code, the file, and what was said.
    fn print(&self, credit: &str, more: &[&str]) -> (i32, String, String) {
        let output = self.daemon.cli(&[&["proof", credit], more].concat());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Exit code and what is said of a file.
    fn verify(&self, file: &str, more: &[&str]) -> (i32, String) {
        let path = self.daemon.folder().join("proof.json");
        std::fs::write(&path, file).unwrap();
        let output = self
            .daemon
            .cli(&[&["proof", "verify", path.to_str().unwrap()], more].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_that_is_behind_cannot_give_is_kept_when_it_is_back() {
    let mut shop = Shop::open();
    shop.credit("a");
    shop.daemon.stop();
    let credit = shop.credits().remove(0);
    shop.node.lag(5);
    assert!(matches!(shop.round().await, JobOutcome::Done(_)));
    let kept = shop.kept(&credit).remove(0);
    assert!(kept.why.contains("does not have block"), "{kept:?}");
    assert_eq!((kept.body, kept.tries), (None, 1));
    let soon = AT_MS + MINUTE_MS..AT_MS + 2 * MINUTE_MS;
    assert!(
        kept.next_at.is_some_and(|at| soon.contains(&at)),
        "{:?}",
        kept.next_at
    );
    shop.node.catch_up();
    shop.round().await;
    assert_eq!(shop.kept(&credit)[0].tries, 1, "not asked again at once");
    shop.clock.set_by(MINUTE_MS);
    shop.round().await;
    let kept = shop.kept(&credit).remove(0);
    assert!(kept.body.is_some(), "{kept:?}");
    assert_eq!((kept.why.as_str(), kept.tries, kept.next_at), ("", 2, None));
    shop.node.set_trouble(Some(Trouble::Down), None);
    let (code, file, said) = shop.print(&credit, &[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(shop.verify(&file, &[]).0, 0);
    let said: Value = serde_json::from_str(&shop.verify(&file, &["--json"]).1).unwrap();
    let listed = &shop.daemon.json(&["credits"])["credits"][0];
    for key in ["amount", "amount_base", "asset", "txid", "vout"] {
        assert_eq!(said[key], listed[key], "{key}: {said}");
    }
    let mut piped = shop.daemon.command(&["proof", "verify", "-"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    assert!(piped.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_node_answers_nothing_is_given_up() {
    let mut shop = Shop::open();
    shop.credit("a");
    shop.daemon.stop();
    let credit = shop.credits().remove(0);
    shop.node.set_trouble(Some(Trouble::Warming), None);
    let outcome = shop.round().await;
    assert!(matches!(outcome, JobOutcome::Failed(_)), "{outcome:?}");
    assert_eq!(shop.kept(&credit), []);
    shop.node.set_trouble(None, None);
    shop.round().await;
    assert!(shop.kept(&credit)[0].body.is_some());
}

/// Each block is kept as it is asked for: a run that is dropped before its end has not asked in vain, or one
/// that never comes to its end would ask for the same for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cut_off_goes_on_behind_what_it_asked_for() {
    let mut shop = Shop::open();
    for label in ["a", "b", "c"] {
        shop.credit(label);
    }
    shop.daemon.stop();
    let store = shop.store();
    let chain = ChainId::from_stored(
        shop.daemon
            .sql("SELECT caip FROM chains", |row| row.get(0))
            .remove(0),
    );
    let wanted = async |limit: u32| {
        let chain = chain.clone();
        let read = store.read(move |tx| tx.evidence_wanted(&chain, (AT_MS, 144), limit));
        read.await.unwrap()
    };
    let first = wanted(2).await;
    assert_eq!((first.of.len(), first.is_cut), (2, true));
    let new = NewEvidence {
        block: first.of[0].block,
        shared: None,
        credits: vec![OwnEvidence {
            credit: first.of[0].credit.clone(),
            body: Err("took longer than 120 s".to_owned()),
            next_at: Some(AT_MS + 1),
        }],
    };
    let of = chain.clone();
    store.write(move |tx| tx.keep_evidence(&of, &new)).await.unwrap();
    // No mark was set.
    let ids = |of: &[creditd::store::EvidenceOf]| -> Vec<i64> { of.iter().map(|of| of.entry).collect() };
    let (all, left) = (wanted(10).await, ids(&first.of[1..]));
    assert_eq!(ids(&all.of)[..1], left);
    assert_eq!((all.of.len(), all.is_cut), (2, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credit_that_a_reorg_moves_is_proved_in_its_new_block() {
    let mut shop = Shop::open();
    let paid = shop.credit("a");
    shop.daemon.stop();
    let credit = shop.credits().remove(0);
    shop.round().await;
    let old = shop.kept(&credit).remove(0).block;
    shop.daemon.start_again();
    shop.node.reorg(3, &[paid]).unwrap();
    shop.daemon.wait_height(shop.node.height());
    shop.daemon.stop();
    let journal = "SELECT count(*) FROM journal";
    assert_eq!(shop.daemon.count(journal), 1, "the credit stands");
    shop.round().await;
    let kept = shop.kept(&credit);
    assert_eq!(kept.len(), 2, "{kept:?}");
    let new = kept.iter().find(|kept| kept.block != old).unwrap();
    assert!(new.body.is_some(), "{new:?}");
    shop.round().await;
    assert_eq!(shop.kept(&credit), kept, "once");
    shop.node.set_trouble(Some(Trouble::Down), None);
    let (code, file, said) = shop.print(&credit, &[]);
    assert_eq!(code, 0, "{said}");
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["claim"]["block_hash"], new.block.to_string());
}

/// What is no credit, or none now, is told by what it is and with the next step.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_proof_is_told_by_what_it_is() {
    let shop = Shop::open();
    shop.credit("a");
    let row = shop.daemon.json(&["credits"])["credits"][0].clone();
    let of = |key: &str| row[key].as_str().unwrap().to_owned();
    let [credit, txid] = ["id", "txid"].map(of);
    let deposits = shop.daemon.json(&["deposits", "list"]);
    let deposit = deposits["deposits"][0]["id"].as_str().unwrap().to_owned();
    let output = format!("{txid}:{}", row["vout"]);
    let proof = format!("next: `creditd proof {credit}`");
    let none = format!("cr_{}", "0".repeat(40));
    let no_deposit = format!("dep_{}", "0".repeat(40));
    for (typed, code, parts) in [
        (&deposit, 2, [&*format!("{deposit} is a deposit"), &*proof]),
        (&deposit[..10].to_owned(), 2, [" is a deposit", &*proof]),
        (&txid, 2, [" is a transaction", &*proof]),
        (&output, 2, [" is an output", &*proof]),
        (
            &format!("{txid}:99"),
            1,
            [" is an output that has no credit", "`creditd tx "],
        ),
        (
            &"cr_1f".to_owned(),
            2,
            ["cr_1f is too short", "next: give 4 digits behind cr_"],
        ),
        (
            &"dep_".to_owned(),
            2,
            ["dep_ is too short", "next: give 4 digits behind dep_"],
        ),
        (
            &none,
            1,
            [&*format!("there is no credit {none}"), "next: `creditd credits`"],
        ),
        (
            &no_deposit,
            1,
            ["nothing is known of dep_0000", "next: `creditd credits`"],
        ),
        (
            &"order-1".to_owned(),
            2,
            ["\"order-1\" is no credit's id", "next: name a credit"],
        ),
    ] {
        let (found, file, said) = shop.print(typed, &[]);
        assert_eq!((found, file.as_str()), (code, ""), "{typed}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{typed}: {said}");
    }
    shop.node.reorg(3, &[]).unwrap();
    shop.daemon.wait_for("it is reversed", &["credits"], |answer| {
        (answer["credits"][0]["net"] == "0").then_some(())
    });
    let (code, _, said) = shop.print(&credit, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains(&format!("{credit} is reversed since 20")) && said.contains("orphaned"),
        "{said}"
    );
    assert!(said.contains("next: `creditd tx` of the credit"), "{said}");
}

/// What waits for a block that the books have left is not asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_lost_block_is_dropped() {
    let mut shop = Shop::open();
    let paid = shop.credit("a");
    shop.daemon.stop();
    let credit = shop.credits().remove(0);
    shop.node.lag(5);
    shop.round().await;
    shop.node.catch_up();
    shop.daemon.start_again();
    shop.node.reorg(3, &[paid]).unwrap();
    shop.daemon.wait_height(shop.node.height());
    shop.daemon.stop();
    shop.clock.set_by(MINUTE_MS);
    shop.round().await;
    let kept = shop.kept(&credit);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].body.is_some() && kept[0].next_at.is_none(), "{kept:?}");
}

/// What a proof is damaged by, in the row of the credit or in what its block shares.
const DAMAGE: [&str; 4] = [
    // The version, an inner length, the last byte of a branch, the parent of the last header.
    "UPDATE evidence SET body = CAST(x'02' || substr(body, 2) AS BLOB)",
    "UPDATE evidence SET body = substr(body, 1, 30)",
    "UPDATE evidence SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB)",
    "UPDATE evidence_blocks SET body = CAST(substr(body, 1, length(body) - 70) || x'eeee' \
     || substr(body, length(body) - 67) AS BLOB)",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_proof_is_not_printed() {
    let mut shop = Shop::open();
    shop.credit("a");
    shop.daemon.stop();
    let credit = shop.credits().remove(0);
    for damage in DAMAGE {
        shop.round().await;
        shop.change(damage);
        let (code, file, said) = shop.print(&credit, &[]);
        assert_eq!(code, 0, "{damage}: {said}");
        assert!(
            said.contains("is damaged") && said.contains("asking the nodes"),
            "{damage}: {said}"
        );
        assert_eq!(shop.verify(&file, &[]).0, 0, "{damage}");
        shop.node.set_trouble(Some(Trouble::Down), None);
        let (code, file, said) = shop.print(&credit, &[]);
        assert_eq!((code, file.as_str()), (2, ""), "{damage}: {said}");
        assert!(said.contains("is damaged"), "{damage}: {said}");
        shop.node.set_trouble(None, None);
        shop.change("DELETE FROM evidence");
        shop.change("DELETE FROM evidence_blocks");
        shop.change("DELETE FROM audit_marks");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worked_asks_for_blocks_and_hashes() {
    let mut shop = Shop::open();
    shop.credit("a");
    shop.daemon.stop();
    let credit = shop.credits().remove(0);
    shop.round().await;
    let (_, file, _) = shop.print(&credit, &[]);
    let worked = ["--require", "worked"];
    let verify = |more: &[&str]| shop.verify(&file, &[&worked, more].concat());
    // Whoever says how much asks for it.
    for more in [["--blocks", "6"], ["--hashes", "1e30"]] {
        let (code, said) = shop.verify(&file, &more);
        assert!(code == 1 && said.contains("NOT ENOUGH  worked: "), "{said}");
    }
    let (code, said) = verify(&[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("NOT ENOUGH  worked: 3 of 6 blocks"), "{said}");
    assert_eq!(verify(&["--blocks", "3"]).0, 0);
    assert_eq!(verify(&["--blocks", "3", "--hashes", "6"]).0, 0);
    let (code, said) = verify(&["--blocks", "3", "--hashes", "7"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("NOT ENOUGH  worked: 6 of 7 hashes"), "{said}");
    let (_, said) = verify(&["--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["is_good"], &said["is_included"]),
        (&false.into(), &true.into())
    );
    assert!(
        said["missing"]
            .as_str()
            .unwrap()
            .starts_with("worked: 3 of 6 blocks")
    );
    assert_eq!(verify(&["--hashes", "many"]).0, 2);
    // As many as the node has.
    let (code, _, said) = shop.print(&credit, &["--blocks", "6"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("has 3 of the 6 blocks"), "{said}");
    shop.node.mine(3).unwrap();
    let (code, longer, said) = shop.print(&credit, &["--blocks", "6"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(shop.verify(&longer, &worked).0, 0);
    let block = TaggedBlock {
        height: shop.node.height(),
        hash: BlockHash(shop.node.tip().0),
    };
    let longer: Value = serde_json::from_str(&longer).unwrap();
    assert_eq!(longer["bitcoin"]["due"]["hash"], block.hash.to_string());
}
