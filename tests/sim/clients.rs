//! Merchants' programs: they ask the API, ask again, race and give up, and remember every answer.

use crate::dice::Dice;
pub use crate::history::{Answer, Asked, Pending, Promise, Request};
use crate::history::{effects_max, wrong};
use crate::life::Life;
use crate::marks;
use crate::receivers::Receivers;
use crate::script::ClientAct;
use crate::setting::{ADDED, CALLBACKS, CLIENTS, LISTENERS, api_key, url};
use crate::world::Touched;
use creditd::rules::ids;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The programs that write; the last client is an operator, who only reads.
const WRITERS: usize = CLIENTS.len() - 1;

/// Old secrets go on so long after a rotation, and a while more for the way of the answer.
const OVERLAP_MS: i64 = 24 * 3_600_000 + 60_000;

/// Requests that are sent again at once, at most.
const AGAIN_MAX: usize = 40;

/// All clients, with what they remember.
#[derive(Debug, Default)]
pub struct Clients {
    asked: Vec<Asked>,
    era: u32,
    /// What was promised before is in no older database.
    promised_from: usize,
}

impl Clients {
    /// What was asked, oldest first.
    pub fn history(&self) -> &[Asked] {
        &self.asked
    }

    /// Answers may be forgotten from now on: their time is over.
    pub fn may_forget(&mut self) {
        self.era += 1;
        // It may be done before or after.
        for asked in self.asked.iter_mut().filter(|asked| asked.pending.is_some()) {
            asked.last_era = self.era;
        }
    }

    /// The clock shows another time.
    pub fn clock_shows(&mut self, now_ms: i64) {
        for asked in self.asked.iter_mut().filter(|asked| asked.pending.is_some()) {
            let (earliest_ms, latest_ms) = asked.shown_ms;
            asked.shown_ms = (earliest_ms.min(now_ms), latest_ms.max(now_ms));
        }
    }

    /// An older database is back.
    pub fn restored(&mut self) {
        self.may_forget();
        self.promised_from = self.asked.len();
    }

    /// What must be there for good.
    pub fn promises(&self) -> Vec<Promise> {
        let asked = self.asked.get(self.promised_from..).unwrap_or_default();
        asked.iter().filter_map(Asked::promise).collect()
    }

    /// Whoever waits for an answer of this life waits in vain.
    pub fn life_ended(&mut self) {
        for asked in self.asked.iter_mut().filter(|asked| asked.pending.is_some()) {
            asked.pending = None;
            asked.is_cut_off = true;
        }
    }

    /// Does an act; `None`: it meets nothing.
    pub fn act(&mut self, act: ClientAct, life: &Life, receivers: &Receivers, dice: u64) -> Option<Touched> {
        let mut dice = Dice::new(dice);
        match act {
            ClientAct::Create { key, body } => {
                let request = invoice(life, key, body);
                self.ask(life, client_of(key), request, Some(key_text(key, "i")))
            }
            ClientAct::TakeAddress { key } => {
                let body = json!({"chain": chain(life, key), "reference": format!("account {key}")});
                let request = post("/v1/addresses".to_owned(), body);
                self.ask(life, client_of(key), request, Some(key_text(key, "a")))
            }
            ClientAct::AddEndpoint { key } => {
                let which = ADDED.start + key % ADDED.len() as u8;
                let body = json!({"url": url(which), "ed25519": key % 3 == 0});
                // One owner each.
                let client = usize::from(which) % WRITERS;
                let request = post("/v1/endpoints".to_owned(), body);
                self.ask(life, client, request, Some(key_text(key, "e")))
            }
            ClientAct::Again { of } => self.again(of, life),
            ClientAct::OtherBody { of } => self.other_body(of, life, &mut dice),
            ClientAct::Race { of, n } => self.race(of, n, life),
            ClientAct::GiveUp { of } => self.give_up(of),
            ClientAct::Cancel { of } => {
                let made = self.invoices();
                let (client, id) = pick(&made, of)?;
                let request = post(format!("/v1/invoices/{id}/cancel"), json!({}));
                self.ask(life, *client, request, Some(format!("cancel-{id}")))
            }
            ClientAct::Rotate { of } => self.on_endpoint(of, "rotate-secret", life, &mut dice),
            ClientAct::Pause { of } => self.on_endpoint(of, "pause", life, &mut dice),
            ClientAct::Resume { of } => self.on_endpoint(of, "resume", life, &mut dice),
            ClientAct::ReplayEvents { of } => {
                let heard = receivers.log();
                let told = pick(&heard, of)?;
                let client = client_at(told.which)?;
                let path = format!("/v1/events/{}/replay", told.id);
                let key = format!("replay-{}", dice.roll(1_000));
                self.ask(life, client, post(path, json!({})), Some(key))
            }
            ClientAct::Read { what } => self.read(what, life),
            ClientAct::NoKey => {
                let request = invoice(life, 1, 0);
                self.ask(life, 0, request, None)
            }
        }
    }

    fn ask(
        &mut self,
        life: &Life,
        client: usize,
        mut request: Request,
        key: Option<String>,
    ) -> Option<Touched> {
        let bearer = format!("Bearer {}", api_key(client).to_text());
        request.headers.push(("authorization", bearer));
        if request.method == "POST" {
            request
                .headers
                .push(("content-type", "application/json".to_owned()));
        }
        if let Some(key) = &key {
            request.headers.push(("idempotency-key", key.clone()));
        }
        self.send(life, client, request, key)
    }

    fn send(&mut self, life: &Life, client: usize, request: Request, key: Option<String>) -> Option<Touched> {
        let told = format!("{} {}", request.method, request.path);
        let mut asked = Asked {
            client,
            pending: Some(life.ask(request.clone())),
            request,
            key,
            asked_ms: life.now_ms(),
            answered_ms: None,
            answer: None,
            era: self.era,
            last_era: self.era,
            shown_ms: (life.now_ms(), life.now_ms()),
            latest_ms: life.now_ms(),
            is_cut_off: false,
            is_parallel: false,
        };
        let mut is_parallel = false;
        for other in self.asked.iter_mut().filter(|other| other.pending.is_some()) {
            if asked.key.is_some() && other.scope_in(self.era) == asked.scope() {
                (other.is_parallel, is_parallel) = (true, true);
            }
        }
        asked.is_parallel = is_parallel;
        self.asked.push(asked);
        Some(told)
    }

    /// That one of the requests with a key; the largest number: the last one.
    fn keyed(&self, of: u32) -> Option<&Asked> {
        let keyed: Vec<&Asked> = self.asked.iter().filter(|asked| asked.key.is_some()).collect();
        match of {
            u32::MAX => keyed.last().copied(),
            _ => pick(&keyed, of).copied(),
        }
    }

    fn again(&mut self, of: u32, life: &Life) -> Option<Touched> {
        let first = self.keyed(of)?;
        let (client, request, key) = (first.client, first.request.clone(), first.key.clone());
        self.send(life, client, request, key)
    }

    /// Sends every request with a key again, the newest first, as after a long outage.
    pub fn all_again(&mut self, life: &Life) {
        // What had no effect, or whose answer may be forgotten, would be news.
        let is_kept = |asked: &&Asked| {
            let is_done = asked.answer.as_ref().is_some_and(Answer::is_done);
            asked.key.is_some() && asked.era == self.era && is_done && !asked.may_be_forgotten()
        };
        let keyed = self.asked.iter().rev().filter(is_kept);
        let mut again: Vec<_> = keyed
            .map(|asked| (asked.client, asked.request.clone(), asked.key.clone()))
            .collect();
        again.dedup();
        again.truncate(AGAIN_MAX);
        for (client, request, key) in again {
            self.send(life, client, request, key);
        }
    }

    /// Asks again what nobody heard an answer of, as a program does that waits for one. Returns whether a
    /// secret may be among the answers that nobody can be told any more: such a request is another one now.
    pub fn ask_lost_again(&mut self, life: &Life) -> bool {
        let lost = self
            .asked
            .iter()
            .filter(|asked| asked.is_cut_off && asked.key.is_some());
        let (known, forgotten): (Vec<_>, Vec<_>) = lost.partition(|asked| asked.era == self.era);
        let is_any_forgotten = forgotten
            .iter()
            .any(|asked| asked.request.path.contains("/endpoints"));
        let again: Vec<_> = known
            .iter()
            .map(|asked| (asked.client, asked.request.clone(), asked.key.clone()))
            .collect();
        for (client, request, key) in again {
            self.send(life, client, request, key);
        }
        is_any_forgotten
    }

    /// The same key for something else.
    fn other_body(&mut self, of: u32, life: &Life, dice: &mut Dice) -> Option<Touched> {
        let first = self.keyed(of)?;
        let (client, mut request, key) = (first.client, first.request.clone(), first.key.clone());
        request.body = match request.path.as_str() {
            "/v1/invoices" => invoice(life, 200, u8::try_from(dice.roll(32)).unwrap_or(0)).body,
            "/v1/addresses" => json!({"chain": chain(life, 0), "reference": "somebody else"}).to_string(),
            "/v1/endpoints" => json!({"url": url(ADDED.start), "types": ["invoice.*"]}).to_string(),
            _ => json!({"reason": "another"}).to_string(),
        };
        self.send(life, client, request, key)
    }

    fn race(&mut self, of: u32, n: u8, life: &Life) -> Option<Touched> {
        let mut told = None;
        for _ in 0..2 + n % 3 {
            told = self.again(of, life);
        }
        told
    }

    fn give_up(&mut self, of: u32) -> Option<Touched> {
        let waiting = self.asked.iter_mut().filter(|asked| asked.pending.is_some());
        let mut waiting: Vec<&mut Asked> = waiting.collect();
        let count = waiting.len();
        let given_up = waiting.get_mut(of as usize % count.max(1))?;
        if let Some(pending) = given_up.pending.take() {
            pending.give_up();
            given_up.is_cut_off = true;
        }
        marks::hit("client_gave_up");
        Some(format!("gives up {}", given_up.request.path))
    }

    fn on_endpoint(&mut self, of: u32, what: &str, life: &Life, dice: &mut Dice) -> Option<Touched> {
        let which = of % (LISTENERS.len() as u32 - 1 + ADDED.len() as u32);
        let which = u8::try_from(which).ok()?;
        // 3 is the operators'.
        let which = if which < 3 { which } else { which + 1 };
        let client = client_at(which)?;
        let id = ids::endpoint_id(CLIENTS[client], &url(which));
        let key = format!("{what}-{}", dice.roll(40));
        let request = post(format!("/v1/endpoints/{id}/{what}"), json!({}));
        self.ask(life, client, request, Some(key))
    }

    fn read(&mut self, what: u8, life: &Life) -> Option<Touched> {
        let client = usize::from(what) % CLIENTS.len();
        let made = self.invoices();
        let path = match what / 4 % 8 {
            0 => "/v1/credits?limit=1000".to_owned(),
            1 => "/v1/deposits?limit=1000".to_owned(),
            2 => "/v1/balances".to_owned(),
            3 => "/v1/events?limit=1000".to_owned(),
            4 => "/v1/invoices?limit=1000".to_owned(),
            5 => "/v1/endpoints".to_owned(),
            6 => "/v1/key".to_owned(),
            _ => {
                let (client, id) = pick(&made, u32::from(what))?;
                let request = get(format!("/v1/invoices/{id}"));
                return self.ask(life, *client, request, None);
            }
        };
        self.ask(life, client, get(path), None)
    }

    /// Invoices that clients know of, with whose they are.
    fn invoices(&self) -> Vec<(usize, String)> {
        let mut known = BTreeSet::new();
        for asked in &self.asked {
            let is_made = asked.request.path == "/v1/invoices" && asked.request.method == "POST";
            let answer = asked.answer.as_ref().filter(|answer| is_made && answer.is_done());
            if let Some(id) = answer.and_then(|answer| answer.json()["id"].as_str().map(str::to_owned)) {
                known.insert((asked.client, id));
            }
        }
        known.into_iter().collect()
    }

    /// Takes in the answers that are there, and tells receivers the secrets in them.
    pub fn collect(&mut self, now_ms: i64, receivers: &Receivers) {
        for asked in self.asked.iter_mut().filter(|asked| asked.era == self.era) {
            asked.latest_ms = asked.latest_ms.max(now_ms);
        }
        self.clock_shows(now_ms);
        let mut taken = vec![];
        for number in 0..self.asked.len() {
            let asked = &mut self.asked[number];
            let Some(answer) = asked.pending.as_ref().and_then(Pending::take) else {
                continue;
            };
            asked.pending = None;
            asked.answered_ms = Some(now_ms);
            asked.answer = Some(answer);
            taken.push(number);
            self.note(number);
            self.learn(number, now_ms, receivers);
        }
        self.note_together(&taken);
    }

    /// Requests of one moment are queued together, and share a commit: also where one of them is refused by
    /// what it finds in its transaction.
    fn note_together(&self, taken: &[usize]) {
        let written = |number: &&usize| self.asked[**number].key.is_some();
        let fresh = |asked: &Asked| {
            asked
                .answer
                .as_ref()
                .is_some_and(|a| a.is_done() && !a.is_replayed)
        };
        let refused = |asked: &Asked| {
            asked
                .answer
                .as_ref()
                .is_some_and(|a| [404, 409].contains(&a.status))
        };
        for number in taken.iter().filter(written) {
            let asked = &self.asked[*number];
            let beside = taken.iter().filter(written).map(|other| &self.asked[*other]);
            let mut beside = beside.filter(|other| other.asked_ms == asked.asked_ms);
            if refused(asked) && beside.any(fresh) {
                marks::hit("group_commit_refusal");
                return;
            }
        }
    }

    fn learn(&self, number: usize, now_ms: i64, receivers: &Receivers) {
        let asked = &self.asked[number];
        let Some(answer) = asked.answer.as_ref().filter(|answer| answer.is_done()) else {
            return;
        };
        let told = answer.json();
        let callback = &told["callback"];
        if let (Some(secret), Some(url)) = (callback["secret"].as_str(), callback["url"].as_str())
            && let Some(which) = crate::setting::receiver_of(url)
        {
            receivers.learn_text(which, secret, None);
        }
        let (Some(secret), Some(url)) = (told["secret"].as_str(), told["endpoint"]["url"].as_str()) else {
            return;
        };
        if let Some(which) = crate::setting::receiver_of(url) {
            receivers.learn_text(which, secret, Some(now_ms + OVERLAP_MS));
        }
    }

    /// Hits the marks of an answer.
    fn note(&self, number: usize) {
        let asked = &self.asked[number];
        let Some(answer) = &asked.answer else { return };
        let same = |other: &&Asked| other.key.is_some() && other.scope() == asked.scope();
        let before = || self.asked[..number].iter().filter(same);
        if answer.is_replayed {
            marks::hit("api_again");
        }
        if answer.is_done() && asked.is_parallel && asked.key.is_some() {
            let is_beside = |other: &&Asked| other.is_parallel && other.request == asked.request;
            let done = before().filter(is_beside);
            if done
                .filter(|other| other.answer.as_ref().is_some_and(Answer::is_done))
                .count()
                > 0
            {
                marks::hit("api_parallel");
            }
        }
        // The effect was there, though nobody was told.
        let is_first = !before().any(|other| other.answer.as_ref().is_some_and(Answer::is_done));
        if answer.is_replayed && is_first && before().any(|other| other.is_cut_off) {
            marks::hit("api_crash_between");
        }
        if answer.status == 422 && answer.code() == "idempotency_key_reused" {
            marks::hit("api_other_body");
        }
    }

    /// How many effects each reference may have.
    pub fn effects_max(&self) -> BTreeMap<String, usize> {
        effects_max(&self.asked)
    }

    /// I15: what the history says against it.
    pub fn wrong(&self) -> Vec<String> {
        wrong(&self.asked)
    }
}

fn pick<T>(all: &[T], of: u32) -> Option<&T> {
    all.get(of as usize % all.len().max(1))
}

fn client_of(key: u8) -> usize {
    usize::from(key) % WRITERS
}

/// Whose endpoint a receiver is; none of a merchant's is the operators'.
fn client_at(which: u8) -> Option<usize> {
    match LISTENERS.get(usize::from(which)) {
        Some(merchant) => CLIENTS[..WRITERS].iter().position(|client| client == merchant),
        None => Some(usize::from(which) % WRITERS),
    }
}

fn key_text(key: u8, what: &str) -> String {
    format!("{what}-{key}")
}

fn post(path: String, body: Value) -> Request {
    Request {
        method: "POST",
        path,
        headers: vec![],
        body: body.to_string(),
    }
}

fn get(path: String) -> Request {
    Request {
        method: "GET",
        path,
        headers: vec![],
        body: String::new(),
    }
}

/// The alias of that one of the chains.
fn chain(life: &Life, number: u8) -> &str {
    let aliases: Vec<&str> = life.config.chains().map(|chain| chain.alias()).collect();
    aliases[usize::from(number) % aliases.len()]
}

/// Asks for an invoice; its reference names key and body, so that its effects can be counted.
fn invoice(life: &Life, key: u8, body: u8) -> Request {
    let chain = chain(life, body / 16);
    let (asset, decimals) = match life.config.evm.iter().find(|evm| evm.alias == chain) {
        // Its tokens have the coin's symbol.
        Some(evm) => (evm.chain.evm_coin(60), 6),
        None => ("BTC".to_owned(), 8),
    };
    let base = [7, 25, 40, 90][usize::from(body) % 4];
    let expires_in = [60, 300, 900, 86_400][usize::from(body / 4) % 4];
    let mut wanted = json!({
        "chain": chain,
        "asset": asset,
        "amount": format!("0.{base:0decimals$}").trim_end_matches('0'),
        "reference": format!("order {key}-{body}"),
        "expires_in": expires_in,
    });
    if body % 16 == 9 {
        // Any payment would do: refused, by what is known once its address is taken.
        wanted["tolerance"] = wanted["amount"].clone();
    }
    if body % 8 == 3 {
        wanted["confirmations"] = json!(1 + u32::from(body) % 5);
    }
    if body / 32 % 2 == 1 {
        wanted["callback_url"] = json!(url(CALLBACKS + key));
    }
    post("/v1/invoices".to_owned(), wanted)
}
