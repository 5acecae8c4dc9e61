//! One story of a daemon that dies at the points that it is told to, and is started again.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use creditd::store::{Database, OpenMode};
use serde_json::Value;

use super::Stage;
use super::effects::{Effects, Event, Left, Outpoint};
use crate::common::api::Client;
use crate::common::daemon::{Daemon, Setup};
use crate::common::receiver::{Receiver, answer};
use crate::common::wait::{PATIENCE, wait_until};
use crate::kill::FACTS;
use crate::shop::{read, text};

/// How long a daemon may take to end: a job that is under way lands first.
const STOP_MAX: Duration = Duration::from_secs(15);

/// A story that has been played, or is about to be.
pub struct Story<'a> {
    stage: &'a dyn Stage,
    pub daemon: Daemon,
    receiver: Receiver,
    /// What the next starts are told.
    plans: VecDeque<String>,
    notes: PathBuf,
    /// How often it died.
    deaths: usize,
    /// The merchant's key.
    key: String,
    /// The one that is paid, and the one that is cancelled.
    invoices: [String; 2],
    /// What was answered to one request, however often it was made.
    answers: BTreeSet<String>,
}

impl<'a> Story<'a> {
    /// Plays all of it.
    pub fn play(stage: &'a dyn Stage, plans: &[String]) -> Story<'a> {
        stage.show(None);
        let mut story = Story::prepare(stage, plans);
        story.start();
        story.set_up();
        for branch in 0..3 {
            stage.show(Some(branch));
            story.settle();
            story.cancel();
        }
        story.await_told();
        story.stop();
        story
    }

    fn prepare(stage: &'a dyn Stage, plans: &[String]) -> Story<'a> {
        let setup = stage.setup();
        let daemon = Daemon::prepare(&Setup {
            api: "listen = \"127.0.0.1:0\"".to_owned(),
            tables: format!(
                "{}[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n[backup]\nfolder = \"copies\"\n",
                setup.tables
            ),
            ..setup
        });
        std::fs::create_dir(daemon.folder().join("copies")).unwrap();
        Story {
            stage,
            receiver: Receiver::http([127, 0, 0, 1].into(), |_, to| answer(to, 200, b"")),
            plans: plans.iter().cloned().collect(),
            notes: daemon.folder().join("points"),
            daemon,
            deaths: 0,
            key: String::new(),
            invoices: Default::default(),
            answers: BTreeSet::new(),
        }
    }

    fn start(&mut self) {
        let mut environment = Vec::new();
        if let Some(plan) = self.plans.pop_front() {
            environment.push(("CREDITD_POINT".to_owned(), plan));
            environment.push(("CREDITD_POINT_FILE".to_owned(), self.notes.display().to_string()));
        }
        self.daemon.set_environment(environment);
        self.daemon.start_again();
        // Commands die of nothing.
        self.daemon.set_environment(Vec::new());
    }

    /// The names of the points that were noted: those at which it died, or all.
    pub fn noted(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let lines = notes.lines();
        lines
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect()
    }

    /// It died at a point, and at nothing else.
    fn note_death(&mut self) {
        self.deaths += 1;
        let noted = self.noted().len();
        assert_eq!(noted, self.deaths, "it ended by itself:\n{}", self.daemon.log());
    }

    /// Waits while the daemon is started again whenever it has died.
    #[track_caller]
    fn until<T>(&mut self, what: &str, mut probe: impl FnMut(&Daemon) -> Option<T>) -> T {
        wait_until(what, PATIENCE, || {
            if !self.daemon.is_running() {
                self.note_death();
                self.start();
            }
            probe(&self.daemon)
        })
    }

    #[track_caller]
    fn ask(&mut self, args: &[&str]) -> Value {
        self.until(&args.join(" "), |daemon| ask(daemon, args))
    }

    /// Whoever is watched and told, the merchant's key, and the invoices.
    fn set_up(&mut self) {
        self.settle();
        let cast = self.stage.cast();
        // Whoever is told comes first: there may be payments in the pool.
        self.ask(&["merchant", "add", "shop"]);
        let url = format!("http://{}/hook", self.receiver.address);
        self.ask(&["endpoint", "add", &url, "--merchant", "shop"]);
        let mut create = vec!["key", "create", "--merchant", "shop", "--name", "test"];
        create.extend(["--scopes", "invoice:write"]);
        self.key = text(&self.ask(&create)["secret"]);
        let file = self.daemon.folder().join("addresses.txt");
        std::fs::write(&file, cast.addresses.join("\n")).unwrap();
        self.ask(&["watch", "import", file.to_str().unwrap(), "--merchant", "shop"]);
        let addresses = [&cast.addresses[2], &cast.addresses[3]];
        self.invoices = [0, 1].map(|number| {
            let (address, units) = (addresses[number], cast.invoices[number]);
            self.until("an invoice", |daemon| {
                daemon.try_invoice(address, cast.symbol, units).ok()
            })
        });
    }

    /// Follows the node's best chain.
    fn settle(&mut self) {
        let tip = self.stage.tip();
        self.until("it follows", |daemon| follows(daemon, &tip));
    }

    /// Cancels the invoice under one key, until there is an answer.
    fn cancel(&mut self) {
        let path = format!("/v1/invoices/{}/cancel", self.invoices[1]);
        let key = self.key.clone();
        let answer = self.until("it is cancelled", |daemon| {
            let ready = daemon.ready_line()?;
            let (_, port) = ready.split_once("api=127.0.0.1:")?;
            let client = Client {
                port: port.split_whitespace().next()?.parse().ok()?,
                key: key.clone(),
            };
            let reply = client.try_post(&path, "once", "{}").ok()?;
            (reply.status == 200).then_some(reply.body)
        });
        self.answers.insert(answer);
    }

    /// Nothing is to be delivered any more, and a backup is made.
    fn await_told(&mut self) {
        self.until("all are delivered", |daemon| {
            let open = read(daemon, |tx| tx.next_delivery_at());
            open.is_none().then_some(())
        });
        self.until("a backup is made", |daemon| {
            let mut copies = std::fs::read_dir(daemon.folder().join("copies")).unwrap();
            copies
                .any(|copy| copy.unwrap().path().extension() == Some("db".as_ref()))
                .then_some(())
        });
    }

    /// A clean stop, of another start if the first dies of it.
    fn stop(&mut self) {
        loop {
            self.settle();
            self.until("it is ready", Daemon::ready_line);
            let pid = self.daemon.pid().to_string();
            let told = Command::new("sh")
                .args(["-c", "kill -TERM \"$1\"", "sh", &pid])
                .status()
                .unwrap();
            assert!(told.success() || !self.daemon.is_running());
            if self.daemon.ended(STOP_MAX).success() {
                return;
            }
            self.note_death();
            self.start();
        }
    }

    /// What is there twice or gone.
    pub fn effects(&self) -> Effects {
        let heard = self.receiver.heard().into_iter().map(|heard| {
            let id = heard.header("webhook-id").unwrap().to_owned();
            (id, heard.body)
        });
        let left = Left {
            credits: credits(&self.daemon),
            events: events(&self.daemon),
            heard: heard.collect(),
            answers: self.answers.clone(),
            cancelled: self.invoices[1].clone(),
        };
        left.against(&self.stage.cast().paid)
    }

    /// What has become of the invoices.
    pub fn invoices(&self) -> [Vec<Value>; 2] {
        self.invoices.each_ref().map(|id| {
            let invoice = self.daemon.json(&["invoices", "show", id])["invoice"].take();
            FACTS.iter().map(|key| invoice[*key].clone()).collect()
        })
    }
}

/// Asked of the file, not by a command: here a story waits most of its time.
fn follows(daemon: &Daemon, tip: &str) -> Option<()> {
    let database = Database::open(&daemon.database(), OpenMode::ReadOnly).ok()?;
    let chain = database.read(|tx| tx.chains()).ok()?.pop()?;
    let hash = chain.id.print(chain.cursor?.header.hash);
    (hash == tip && chain.state.word() == "following").then_some(())
}

fn events(daemon: &Daemon) -> Vec<Event> {
    let events = read(daemon, |tx| tx.events_after(0, 100_000));
    events
        .into_iter()
        .map(|event| Event {
            id: event.id,
            kind: event.kind,
            body: event.body,
        })
        .collect()
}

/// Every credit with its net.
fn credits(daemon: &Daemon) -> Vec<(Outpoint, u64)> {
    let answer = daemon.json(&["credits", "--limit", "100000"]);
    let credits = answer["credits"].as_array().unwrap().iter().map(|credit| {
        let net: u64 = text(&credit["net_base"]).parse().unwrap();
        ((text(&credit["txid"]), credit["vout"].as_u64().unwrap()), net)
    });
    credits.collect()
}

fn ask(daemon: &Daemon, args: &[&str]) -> Option<Value> {
    let output = daemon.cli(&[args, &["--json"]].concat());
    output
        .status
        .success()
        .then(|| serde_json::from_slice(&output.stdout).ok())?
}
