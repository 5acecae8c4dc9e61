//! The simulator's own parts, each in a short story: a part that does nothing proves nothing.

use crate::again::{self, Feeders};
use crate::clients::{Asked, Clients};
use crate::death::Alive;
use crate::disk::Folder;
use crate::inbox::Senders;
use crate::life::{Ended, Life};
use crate::marks;
use crate::operators::{Did, Operators, Wants, thaw};
use crate::receivers::Receivers;
use crate::script::{Act, ClientAct, In, Kind, Manner, On, OpAct, Out, Pick, Terms, To, TxSpec, WebhookAct};
use crate::setting::Setting;
use crate::tables::Tables;
use crate::world::World;
use std::collections::BTreeSet;
use std::time::Duration;

/// When every seed begins.
const AT_MS: i64 = 1_700_000_000_000;

/// Everything of a seed, without faults.
struct Stage {
    folder: Folder,
    world: World,
    terms: Terms,
    operators: Operators,
    senders: Senders,
    receivers: Receivers,
    clients: Clients,
    life: Option<Life>,
    at_ms: i64,
    lives: u32,
}

impl Stage {
    fn new(name: &str, kind: Kind) -> Stage {
        let terms = Terms {
            policy: 1,
            window: 20,
            evict_s: 600,
            invoices: true,
            api: true,
            backup_every_s: 0,
            quorum: 0,
            nodes: 1,
            is_harsh: false,
        };
        let (folder, world) = (Folder::fresh(name), World::new(kind, &terms));
        let setting = Setting::new(1, &terms);
        let receivers = Receivers::new();
        setting.set_up(&folder, &world, &terms, &receivers, AT_MS);
        let mut stage = Stage {
            operators: Operators::new(&folder, setting),
            senders: Senders::default(),
            folder,
            world,
            terms,
            receivers,
            clients: Clients::default(),
            life: None,
            at_ms: AT_MS,
            lives: 0,
        };
        stage.start();
        stage
    }

    fn start(&mut self) {
        let given = (self.at_ms, self.lives, &self.operators.setting);
        let started = Life::start(
            &self.folder,
            &mut self.world,
            &self.terms,
            given,
            Alive::new(),
            &self.receivers,
        );
        self.life = Some(started.unwrap());
        self.lives += 1;
    }

    fn life(&self) -> &Life {
        self.life.as_ref().unwrap()
    }

    fn run(&mut self, secs: u64) {
        let life = self.life.as_mut().unwrap();
        let ended = life.run_for(Duration::from_secs(secs));
        assert!(matches!(ended, Ended::Span), "{ended:?}");
        self.at_ms = life.now_ms();
        self.clients.collect(self.at_ms, &self.receivers);
        self.senders.collect();
    }

    fn pay(&mut self, to: To) {
        let out = Out { to, amount: 70 };
        let tx = TxSpec {
            ins: vec![In::Fresh],
            outs: vec![out],
            shape: 0,
        };
        let mine = Act::Mine {
            chain: 0,
            txs: vec![Pick::New(tx)],
            coinbase: None,
            on: On::Tip,
            work: 10,
        };
        self.world.act(&mine, 7).unwrap();
        self.run(3);
    }

    fn mine(&mut self, count: usize) {
        self.world.mine_empty(count);
        self.run(10);
    }

    fn ask(&mut self, act: ClientAct) {
        let life = self.life.as_ref().unwrap();
        let asked = self.clients.act(act, life, &self.receivers, 5);
        assert!(asked.is_some(), "{act:?} meets nothing");
    }

    fn send(&mut self, act: WebhookAct) {
        let sent = self.senders.act(act, self.life.as_ref().unwrap());
        assert!(sent.is_some(), "{act:?} meets nothing");
        self.run(1);
    }

    fn operate(&mut self, act: OpAct) -> Did {
        let life = self.life.as_ref().unwrap();
        let did = self.operators.act(act, &self.folder, &mut self.world, life);
        assert!(did.wrong.is_none(), "{did:?}");
        self.run(2);
        did
    }

    fn count(&self, sql: &str) -> i64 {
        Tables::open(&self.folder.database()).count(sql)
    }

    /// The parts have met what these marks tell of, and nothing was wrong.
    fn assert_met(&self, expected: &[&str]) {
        assert_eq!(self.clients.wrong(), Vec::<String>::new());
        assert_eq!(self.senders.wrong(), Vec::<String>::new());
        let log = self.receivers.log();
        assert!(log.iter().all(|heard| heard.is_signed), "{log:?}");
        let met = marks::take();
        let missing: Vec<&&str> = expected
            .iter()
            .filter(|mark| !met.0.contains_key(**mark))
            .collect();
        let answer = |asked: &Asked| {
            let answer = asked
                .answer
                .as_ref()
                .map(|answer| String::from_utf8_lossy(&answer.body));
            format!("{} {:?}: {:?}", asked.request.path, asked.key, answer)
        };
        let answers: Vec<String> = self.clients.history().iter().map(answer).collect();
        assert!(
            missing.is_empty(),
            "{missing:?} are missing in {met:?}\n{}",
            answers.join("\n")
        );
    }
}

/// Plays all stories. A failure is a panic.
pub fn run() {
    for kind in [Kind::Btc, Kind::Evm, Kind::Both] {
        paid_and_told(kind);
        asked_and_answered(kind);
    }
    every_manner();
    webhooks();
    invoices();
    crate::answers::run();
    commands();
    two_daemons();
    fed_again(Kind::Btc);
    fed_again(Kind::Evm);
}

fn paid_and_told(kind: Kind) {
    let mut stage = Stage::new("told", kind);
    stage.run(5);
    stage.pay(To::Early(0));
    stage.mine(3);
    assert_eq!(stage.count("SELECT count(*) FROM credits"), 1);
    assert_eq!(stage.receivers.by_version(0).len(), 1);
    assert_eq!(stage.receivers.by_steps(0).into_values().collect::<Vec<_>>(), [1]);
    stage.assert_met(&[]);
    stage.life.take().unwrap().stop().unwrap();
    // What it had on its way is settled, and nothing is told again.
    let heard = stage.receivers.log().len();
    stage.start();
    stage.run(30);
    assert_eq!(stage.receivers.log().len(), heard);
}

fn asked_and_answered(kind: Kind) {
    let mut stage = Stage::new("asked", kind);
    stage.run(5);
    stage.pay(To::Early(0));
    stage.ask(ClientAct::Create { key: 0, body: 2 });
    stage.ask(ClientAct::Race { of: 0, n: 1 });
    stage.run(1);
    stage.ask(ClientAct::OtherBody { of: 0 });
    stage.ask(ClientAct::NoKey);
    (0..32).for_each(|what| stage.ask(ClientAct::Read { what }));
    stage.ask(ClientAct::TakeAddress { key: 1 });
    stage.ask(ClientAct::AddEndpoint { key: 3 });
    stage.run(1);
    stage.ask(ClientAct::AddEndpoint { key: 4 });
    stage.ask(ClientAct::GiveUp { of: 0 });
    stage.run(1);
    stage.ask(ClientAct::Cancel { of: 0 });
    for of in 0..6 {
        stage.ask(ClientAct::Rotate { of });
        stage.ask(ClientAct::Pause { of });
        stage.ask(ClientAct::Resume { of });
    }
    stage.ask(ClientAct::ReplayEvents { of: 0 });
    stage.run(1);
    stage.pay(To::Early(0));
    stage.pay(To::Early(4));
    stage.mine(3);
    let heard: BTreeSet<u8> = stage.receivers.log().iter().map(|heard| heard.which).collect();
    assert!(heard.is_superset(&[0, 2, 7].into()), "{heard:?}");
    let unanswered = stage
        .clients
        .history()
        .iter()
        .filter(|asked| asked.answer.is_none());
    assert_eq!(unanswered.count(), 1, "the one that was given up");
    stage.assert_met(&["api_again", "api_parallel", "api_other_body", "client_gave_up"]);
}

/// Each manner of a receiver, and then a good one: all of it arrives.
fn every_manner() {
    let manners = [
        Manner::Slow(3_000),
        Manner::Late,
        Manner::Cut,
        Manner::Status(500),
        Manner::Redirect,
        Manner::RetryAfter(40),
        Manner::Drip,
        Manner::Huge,
        Manner::Forgetful,
        Manner::Dead,
        Manner::Gone,
    ];
    for manner in manners {
        let mut stage = Stage::new("manner", Kind::Btc);
        stage.run(5);
        stage.receivers.set(0, manner);
        stage.pay(To::Early(0));
        stage.mine(3);
        stage.run(40);
        stage.receivers.all_good();
        if manner == Manner::Gone {
            stage.ask(ClientAct::Resume { of: 0 });
        }
        stage.run(4_000);
        let waiting = "SELECT count(*) FROM deliveries WHERE state <> 'delivered'";
        assert_eq!(stage.count(waiting), 0, "{manner:?}");
        let version = stage.receivers.by_version(0);
        assert_eq!(version.len(), 1, "{manner:?}");
        stage.assert_met(match manner {
            Manner::Slow(_) => &["receiver_slow"],
            Manner::Late => &["receiver_late_200"],
            Manner::Redirect => &["receiver_redirect"],
            Manner::RetryAfter(_) => &["receiver_429"],
            Manner::Dead => &["dead_receiver"],
            Manner::Gone => &["receiver_410"],
            _ => &[],
        });
    }
}

fn webhooks() {
    let mut stage = Stage::new("inbox", Kind::Btc);
    stage.run(5);
    for n in 0..3 {
        stage.send(WebhookAct::Good { n });
    }
    stage.send(WebhookAct::Again { of: 0 });
    stage.send(WebhookAct::OtherContent { of: 0 });
    stage.send(WebhookAct::OtherIdSameEvent);
    stage.send(WebhookAct::Forged);
    stage.send(WebhookAct::Stale);
    stage.run(20);
    assert_eq!(stage.count("SELECT count(*) FROM credits"), 1, "one payment");
    let done = "SELECT count(*) FROM inbox WHERE state = 'done'";
    assert!(stage.count(done) >= 3, "{}", stage.count(done));
    stage.assert_met(&[
        "inbox_again",
        "inbox_set_aside",
        "inbox_forged",
        "inbox_stale",
        "inbox_external_credit",
    ]);
}

/// An invoice that is paid, and one that nobody pays in time.
fn invoices() {
    let mut stage = Stage::new("invoices", Kind::Btc);
    stage.run(5);
    stage.pay(To::Foreign(0));
    stage.ask(ClientAct::Create { key: 0, body: 2 });
    stage.ask(ClientAct::Create { key: 3, body: 2 });
    stage.run(1);
    stage.pay(To::Late(3));
    stage.mine(3);
    stage.mine(1);
    stage.run(120);
    stage.mine(1);
    stage.assert_met(&["group_commit", "invoice_paid", "invoice_expired"]);
}

fn commands() {
    let mut stage = Stage::new("commands", Kind::Evm);
    stage.run(5);
    let watch = OpAct::WatchDuring { call: 0, late: 1 };
    for act in [
        OpAct::Watch { late: 0 },
        watch,
        OpAct::Vacuum,
        OpAct::SecondDaemon,
    ] {
        assert!(stage.operate(act).touched.is_some(), "{act:?}");
    }
    stage.pay(To::Late(0));
    stage.pay(To::Late(1));
    stage.pay(To::Early(0));
    stage.mine(2);
    let late = "SELECT count(*) FROM addresses a JOIN merchants m ON m.id = a.merchant WHERE m.slug = 'late'";
    assert_eq!(stage.count(late), 2);
    let rescan = OpAct::Rescan { from: 1, backfill: 1 };
    for act in [
        OpAct::Hold { of: 0 },
        rescan,
        OpAct::Release { of: 0 },
        OpAct::Restored,
    ] {
        assert!(stage.operate(act).touched.is_some(), "{act:?}");
    }
    stage.mine(3);
    assert_eq!(
        stage.count("SELECT count(*) FROM deposits WHERE held_reason IS NOT NULL"),
        0
    );
    assert_eq!(stage.count("SELECT count(*) FROM credits"), 3);
    stage.receivers.set(0, Manner::Dead);
    stage.pay(To::Early(0));
    stage.mine(3);
    assert!(stage.operate(OpAct::RetryCallbacks).touched.is_some());
    for act in [OpAct::EditPolicy(0), OpAct::ListToken, OpAct::UnlistToken] {
        assert_eq!(stage.operate(act).wants, Wants::Reopen, "{act:?}");
        stage.life.take().unwrap().stop().unwrap();
        stage.start();
        stage.run(5);
    }
    stage.assert_met(&[
        "rule_added_while_block_was_read",
        "second_refused",
        "policy_edited",
        "token_unlisted",
    ]);
}

fn two_daemons() {
    let mut stage = Stage::new("two", Kind::Btc);
    stage.run(5);
    stage.pay(To::Early(0));
    let old = stage.life.take().unwrap();
    let Stage {
        folder,
        world,
        terms,
        operators,
        receivers,
        at_ms,
        lives,
        ..
    } = &mut stage;
    let given = (*at_ms, *lives, &operators.setting);
    let start = || Life::start(folder, world, terms, given, Alive::new(), receivers);
    let (new, wrong) = thaw(old, folder, start).unwrap();
    assert_eq!(wrong, None);
    stage.life = Some(new);
    stage.run(5);
    stage.assert_met(&["thawed_daemon"]);
}

/// Nothing that was there before changes anything the second time.
fn fed_again(kind: Kind) {
    let mut stage = Stage::new("again", kind);
    stage.run(5);
    stage.ask(ClientAct::Create { key: 0, body: 12 });
    stage.ask(ClientAct::TakeAddress { key: 1 });
    stage.pay(To::Early(0));
    stage.send(WebhookAct::Good { n: 0 });
    stage.send(WebhookAct::OtherContent { of: 0 });
    stage.mine(3);
    let life = stage.life.as_mut().unwrap();
    let mut feeders = Feeders {
        operators: &mut stage.operators,
        clients: &mut stage.clients,
        senders: &mut stage.senders,
    };
    assert_eq!(again::everything(life, &stage.world, &mut feeders), None);
    stage.run(5);
    stage.assert_met(&["api_again", "inbox_again", "inbox_set_aside"]);
    assert!(stage.count("SELECT count(*) FROM rescans WHERE state = 'done'") > 0);
}
