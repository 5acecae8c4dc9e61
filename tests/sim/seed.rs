//! One seed: everything happens, then the faults end, and whatever must hold is asked.

use crate::again::{self, Feeders};
use crate::checks::{Checks, Fault};
use crate::clients::{Clients, Promise};
use crate::death::{Alive, in_recovery};
use crate::dice::Dice;
use crate::disk::Folder;
use crate::inbox::Senders;
use crate::life::{Ended, Life, StartFailed};
use crate::marks;
use crate::operators::{Operators, Wants, thaw};
use crate::receivers::Receivers;
use crate::run::Verdict;
use crate::script::{Act, DiskAct, Line, OpAct, Script};
use crate::setting::Setting;
use crate::world::World;
use std::time::Duration;

const EPOCH_MS: i64 = 1_700_000_000_000;

/// A daemon that does not start in so many tries is stuck.
const STARTS_MAX: u32 = 6;

/// A seed that is under way.
pub struct Seed<'a> {
    pub script: &'a Script,
    // In this order they are dropped: handles before the folder.
    pub checks: Checks,
    pub life: Option<Life>,
    pub world: World,
    pub receivers: Receivers,
    pub clients: Clients,
    pub operators: Operators,
    pub senders: Senders,
    pub folder: Folder,
    pub at_ms: i64,
    pub lives: u32,
    pub trace: Vec<String>,
    /// All tables at the end.
    pub last: Vec<String>,
    /// An older database was put back once.
    pub is_restored: bool,
    /// Its predecessor's log was left beside it.
    is_log_left: bool,
    /// It did not stop by itself: the next start may die too.
    has_died: bool,
    /// The first start of the next version has not come through yet.
    upgrades: bool,
    /// Of its deaths: with or without the power, and again while it recovers.
    fates: Dice,
}

impl<'a> Seed<'a> {
    pub fn new(script: &'a Script) -> Seed<'a> {
        let folder = Folder::fresh(&script.seed.to_string());
        let setting = Setting::new(script.seed, &script.terms);
        Seed {
            script,
            checks: Checks::new(&script.terms),
            life: None,
            world: World::new(script.kind, &script.terms),
            receivers: Receivers::new(),
            clients: Clients::default(),
            operators: Operators::new(&folder, setting),
            senders: Senders::default(),
            folder,
            at_ms: EPOCH_MS,
            lives: 0,
            trace: Vec::new(),
            last: Vec::new(),
            is_restored: false,
            is_log_left: false,
            has_died: false,
            upgrades: false,
            fates: Dice::new(script.seed ^ 0xdead),
        }
    }

    pub fn whole(&mut self) -> Result<(), Verdict> {
        let Seed { folder, world, .. } = self;
        let terms = &self.script.terms;
        self.operators
            .setting
            .set_up(folder, world, terms, &self.receivers, self.at_ms);
        self.start()?;
        for line in &self.script.lines {
            let done = self.line(line)?;
            let cursor = self.checks.place(&self.folder);
            self.trace.push(format!("{} | {done} | {cursor}", line.print()));
        }
        self.heal()?;
        self.at_rest()
    }

    /// One act, and the time after it. Returns what came of it.
    fn line(&mut self, line: &Line) -> Result<String, Verdict> {
        let done = self.act(&line.act, line.dice(self.script.seed))?;
        let span = match &line.act {
            Act::Rest => Duration::from_secs(15),
            _ => Duration::from_millis(line.wait_ms.into()),
        };
        let ended = match span.is_zero() {
            true => "",
            false => self.run_for(span)?,
        };
        Ok(format!("{done}{ended}"))
    }

    fn act(&mut self, act: &Act, dice: u64) -> Result<String, Verdict> {
        match act {
            Act::Receiver { which, manner } => {
                self.receivers.set(*which, *manner);
                self.checks.disturbed();
                Ok("answers otherwise".to_owned())
            }
            Act::Clock { by_ms } => Ok(self.set_clock(*by_ms)),
            Act::Crash(at) => {
                if let Some(life) = &self.life {
                    life.alive.arm(*at);
                }
                Ok("it will die".to_owned())
            }
            Act::Disk(DiskAct::Power { dice }) => {
                self.lose_power((*dice).into())?;
                Ok("no power".to_owned())
            }
            Act::Disk(what) => {
                crate::disk::act(*what, self.script.terms.is_harsh.then_some(dice));
                self.checks.disturbed();
                Ok("the disk changes".to_owned())
            }
            Act::Operator(what) => self.operator(*what),
            Act::Client(what) => {
                let Some(life) = &self.life else {
                    return Ok(String::new());
                };
                let done = self.clients.act(*what, life, &self.receivers, dice);
                Ok(done.unwrap_or_default())
            }
            Act::Webhook(what) => {
                let Some(life) = &self.life else {
                    return Ok(String::new());
                };
                Ok(self.senders.act(*what, life).unwrap_or_default())
            }
            Act::Replay { what, times } => {
                let Some(life) = &self.life else {
                    return Ok(String::new());
                };
                let mut feeders = Feeders {
                    operators: &mut self.operators,
                    clients: &mut self.clients,
                    senders: &mut self.senders,
                };
                let fed = again::feed(*what, *times, life, &self.world, &mut feeders);
                Ok(fed.unwrap_or_default())
            }
            Act::Rest => Ok(String::new()),
            Act::Mine { .. }
            | Act::Reorg { .. }
            | Act::Send { .. }
            | Act::Replace { .. }
            | Act::Evict { .. }
            | Act::Node { .. } => Ok(self.world.act(act, dice).unwrap_or_default()),
        }
    }

    fn set_clock(&mut self, by_ms: i64) -> String {
        let Some(life) = &self.life else {
            return String::new();
        };
        life.clock.set_by(by_ms);
        self.clients.clock_shows(life.now_ms());
        self.checks.disturbed();
        if by_ms > 0 {
            // Answers are kept for some days only.
            self.clients.may_forget();
            self.checks.may_forget();
        }
        // What is on its way bears a time that is not now any more.
        self.senders.life_ended();
        marks::hit(match by_ms {
            back if back < 0 => "clock_back",
            years if years > 180 * 24 * 3_600_000 => "clock_forward_years",
            _ => "clock_forward",
        });
        "the clock is set".to_owned()
    }

    fn operator(&mut self, what: OpAct) -> Result<String, Verdict> {
        let Some(life) = &self.life else {
            return Ok(String::new());
        };
        let policy = self.operators.setting.policy;
        let did = self.operators.act(what, &self.folder, &mut self.world, life);
        if let Some((name, what)) = did.wrong {
            return Err(Verdict::Wrong(Fault::new(name, what)));
        }
        if what == OpAct::Restored {
            self.checks.declared();
        }
        if self.operators.setting.policy != policy {
            self.checks.policy_edited(policy);
        }
        match did.wants {
            Wants::Nothing => {}
            Wants::Reopen => {
                self.stop();
                self.start()?;
            }
            Wants::Restore { slot, wal } => {
                self.answered().map_err(Verdict::Wrong)?;
                self.stop();
                self.operators.let_go();
                self.checks.let_go();
                self.checks.hear(&self.receivers).map_err(Verdict::Wrong)?;
                if self.folder.restore(slot, wal) {
                    (self.is_restored, self.is_log_left) = (true, wal);
                    self.receivers.restored();
                    self.clients.restored();
                    self.senders.restored();
                    self.checks.restored();
                }
                self.start()?;
            }
            Wants::Upgrade => {
                self.stop();
                self.operators.let_go();
                self.checks.let_go();
                self.upgrades = !self.checks.upgraded();
                self.start()?;
            }
            Wants::Thaw => self.thaw()?,
        }
        Ok(did.touched.unwrap_or_default())
    }

    /// I22: another daemon takes the place of this one, which goes on beside it for a while.
    fn thaw(&mut self) -> Result<(), Verdict> {
        self.let_go();
        self.checks.let_go();
        let Some(old) = self.life.take() else {
            return Ok(());
        };
        self.at_ms = old.now_ms();
        let given = (self.at_ms, self.lives, &self.operators.setting);
        let (folder, world, terms) = (&self.folder, &mut self.world, &self.script.terms);
        let receivers = &self.receivers;
        let started = thaw(old, folder, || {
            Life::start(folder, world, terms, given, Alive::new(), receivers)
        });
        match started {
            Ok((life, None)) => {
                self.life = Some(life);
                self.lives += 1;
                Ok(())
            }
            Ok((_, Some(what))) => Err(Verdict::Wrong(Fault::new("I22", what))),
            Err(_) => {
                self.folder.kill();
                crate::disk::revive();
                self.start()
            }
        }
    }

    /// Lets time pass; a daemon that ends is started again. Then everything that must hold at every step.
    pub fn run_for(&mut self, span: Duration) -> Result<&'static str, Verdict> {
        let Some(life) = &mut self.life else {
            self.start()?;
            return Ok("; started");
        };
        let (calls, log_failures) = (self.world.calls(), crate::disk::log_failures());
        let ended = life.run_for(span);
        self.checks
            .pace(self.world.calls() - calls, span)
            .map_err(Verdict::Wrong)?;
        self.at_ms = life.now_ms();
        self.clients.collect(self.at_ms, &self.receivers);
        self.senders.collect();
        let told = match ended {
            Ended::Span => {
                let log_failures = crate::disk::log_failures() - log_failures;
                let ran = self.checks.ran(log_failures).and_then(|()| {
                    self.checks
                        .served(&self.folder, &self.receivers, (span, self.at_ms))
                });
                ran.map_err(Verdict::Wrong)?;
                ""
            }
            Ended::Dead(_) => {
                self.has_died = true;
                match self.is_harsh_once_in(2) {
                    true => {
                        let dice = self.fates.next();
                        self.lose_power(dice)?;
                        "; it lost its power and started again"
                    }
                    false => {
                        self.kill();
                        self.start()?;
                        "; it died and started again"
                    }
                }
            }
            Ended::Part { name, why } => {
                self.checks.ended(name, &why).map_err(Verdict::Wrong)?;
                self.kill();
                self.start()?;
                "; a part ended, and it started again"
            }
        };
        self.checks
            .step(
                (&self.folder, &self.world),
                &self.receivers,
                self.operators.setting.policy,
            )
            .map_err(Verdict::Wrong)?;
        Ok(told)
    }

    /// The life ends: nobody waits for its answers any more.
    fn let_go(&mut self) {
        self.checks.life_ended();
        self.clients.life_ended();
        self.senders.life_ended();
        self.operators.let_go();
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        self.let_go();
        if let Some(life) = self.life.take() {
            self.at_ms = life.now_ms();
            life.alive.die();
            self.folder.kill();
            life.kill();
            crate::disk::revive();
        }
    }

    fn lose_power(&mut self, dice: u64) -> Result<(), Verdict> {
        self.let_go();
        self.checks.let_go();
        if let Some(life) = self.life.take() {
            self.at_ms = life.now_ms();
            life.alive.die();
            self.folder.kill();
            life.kill();
        }
        self.has_died = true;
        self.forget_unsynced(dice);
        self.start()
    }

    fn is_harsh_once_in(&mut self, of: usize) -> bool {
        self.script.terms.is_harsh && self.fates.once_in(of)
    }

    /// What of the files of a dead daemon was not synced may be gone.
    fn forget_unsynced(&mut self, dice: u64) {
        let mut dice = Dice::new(dice);
        let lost = self
            .folder
            .lose_power(&mut |sides| dice.roll(sides as usize) as u64);
        crate::disk::revive();
        for (is_so, mark) in [
            (lost.writes > 0, "lost_write"),
            (lost.torn > 0, "torn_write"),
            (lost.reordered > 0, "reordered_write"),
            (lost.highwater, "lost_highwater"),
        ] {
            if is_so {
                marks::hit(mark);
            }
        }
    }

    /// A clean stop. One that cannot be clean is a kill.
    pub fn stop(&mut self) {
        self.let_go();
        if let Some(life) = self.life.take() {
            self.at_ms = life.now_ms();
            if life.stop().is_ok() {
                self.checks.stopped();
            }
            self.folder.kill();
            crate::disk::revive();
        }
    }

    /// Starts it, whatever that takes.
    pub fn start(&mut self) -> Result<(), Verdict> {
        let mut last = String::new();
        for tried in 0..STARTS_MAX {
            if tried == STARTS_MAX / 2 {
                // Whoever looks after the machine has seen to the disk by now.
                crate::disk::heal();
            }
            // Of another life.
            crate::disk::has_failed();
            let alive = Alive::new();
            let may_die = match std::mem::take(&mut self.has_died) {
                true => self.is_harsh_once_in(4),
                false => self.upgrades && self.is_harsh_once_in(2),
            };
            // Else so many dice in a row would look like a daemon that does not start.
            if may_die && tried < STARTS_MAX / 2 {
                alive.arm(in_recovery(&mut self.fates));
            }
            let started = Life::start(
                &self.folder,
                &mut self.world,
                &self.script.terms,
                (self.at_ms, self.lives, &self.operators.setting),
                alive,
                &self.receivers,
            );
            last = match started {
                Ok(life) => {
                    self.life = Some(life);
                    self.lives += 1;
                    self.upgrades = false;
                    self.answered().map_err(Verdict::Wrong)?;
                    let at = (&self.folder, &self.world);
                    let checked = self.checks.restarted(at, self.operators.setting.policy);
                    return checked.map_err(Verdict::Wrong);
                }
                Err(StartFailed::Store(error)) => error.to_string(),
                Err(StartFailed::Other(why)) => why,
                Err(StartFailed::Dead(at)) => {
                    marks::hit("killed_in_recovery");
                    if self.upgrades {
                        marks::hit("upgrade_cut");
                    }
                    self.has_died = true;
                    format!("died at {at:?}")
                }
            };
            self.checks.life_ended();
            self.folder.kill();
            match self.has_died && self.is_harsh_once_in(2) {
                true => {
                    self.checks.let_go();
                    let dice = self.fates.next();
                    self.forget_unsynced(dice);
                }
                false => crate::disk::revive(),
            }
            // To start on a mixture of two databases is refused, until an operator has done what it says.
            let is_refused = last.contains("copied over another database");
            self.is_log_left &= !(is_refused && self.is_log_left && self.folder.is_cured(&last));
            self.at_ms += 1_000;
        }
        let what = format!("it did not start in {STARTS_MAX} tries: {last}");
        Err(Verdict::Stuck(Fault::new("I30", what)))
    }

    /// What anybody was answered is so: all of it, and no more than that.
    pub fn answered(&mut self) -> Result<(), Fault> {
        self.checks.promised(&self.folder, &self.promises())?;
        self.checks.effects(&self.folder, &self.clients.effects_max())
    }

    /// What anybody has an answer for.
    fn promises(&self) -> Vec<Promise> {
        let mut promises = self.clients.promises();
        promises.extend(self.senders.promises());
        promises
    }
}
