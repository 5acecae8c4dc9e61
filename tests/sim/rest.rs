//! The end of a seed: all faults end, time passes until nothing is left to be done, and whatever must hold
//! then is asked.

use crate::again::{self, Feeders};
use crate::checks::Fault;
use crate::dice::Dice;
use crate::feeding::{Way, disagreements};
use crate::run::Verdict;
use crate::seed::Seed;
use std::time::Duration;

/// One seed in so many is fed to new daemons in another way, and one in so many in all ways.
const FED_EVERY: u64 = 8;
const FED_ALL_EVERY: u64 = 200;

/// To one daemon in so many everything is fed again at the end.
const AGAIN_EVERY: u64 = 8;

/// Each change of a transaction whose rivals took turns needs twice the lists of the one before: so many
/// rounds are enough for seven.
const RIVALS_ROUNDS: u32 = 30;

/// Beyond the time that the config says: until a pool that was refused is asked for again, and the next list
/// is read, and applied though it says nothing new.
const EVICTED_SECS: u64 = 60;

impl Seed<'_> {
    /// All faults end, and time passes until nothing is left to be done.
    pub fn heal(&mut self) -> Result<(), Verdict> {
        crate::disk::heal();
        self.receivers.all_good();
        self.world.heal();
        self.run_for(Duration::from_secs(20))?;
        if let Some(life) = &self.life
            && self.clients.ask_lost_again(life)
        {
            self.checks.secrets_lost();
        }
        // What nobody lists is evicted so long after the chain was caught up with.
        let evicted_secs = u64::from(self.script.terms.evict_s) + EVICTED_SECS;
        let mut calm_secs = 0;
        for round in 0..40 {
            let waiting = self.checks.waiting(&self.folder, &self.world);
            let waiting = match waiting {
                None if round > 3
                    && calm_secs >= evicted_secs
                    && (round > RIVALS_ROUNDS || !self.checks.has_rivals(&self.folder)) =>
                {
                    return Ok(());
                }
                None => Fault::new("I28", "nothing"),
                Some(waiting) => {
                    calm_secs = 0;
                    waiting
                }
            };
            if round == 39 {
                return Err(Verdict::Stuck(waiting));
            }
            if waiting.name == "I29" && round > 3 {
                // Each waits for the largest pause between two attempts, at most: that is a day.
                self.life
                    .iter()
                    .for_each(|life| life.clock.set_by(26 * 3_600_000));
            }
            if waiting.what.contains("wrong_network") && round == 8 {
                // An operator who has put the right node back starts the daemon again.
                self.stop();
                self.start()?;
            }
            if waiting.what.contains("reorg_too_deep") {
                self.checks.accept_reorg(&self.folder, &self.world, self.at_ms);
            }
            // Finality comes by blocks, eviction and patience with forks by time, parked callbacks by hand.
            self.world.mine_empty(match round {
                // So that coinbases come of age in some seeds.
                0 if self.script.seed.is_multiple_of(4) => 101,
                0..4 => 5,
                _ => 1,
            });
            let secs = if round < 4 { 15 } else { 60 };
            calm_secs += secs;
            self.run_for(Duration::from_secs(secs))?;
        }
        Ok(())
    }

    /// Everything that must hold once nothing moves any more.
    pub fn at_rest(&mut self) -> Result<(), Verdict> {
        if let Some(what) = self.clients.wrong().into_iter().next() {
            return Err(Verdict::Wrong(Fault::new("I15", what)));
        }
        if let Some(what) = self.senders.wrong().into_iter().next() {
            return Err(Verdict::Wrong(Fault::new("I17", what)));
        }
        self.answered().map_err(Verdict::Wrong)?;
        let at = (&self.folder, &self.world);
        let refused = self.checks.refused(&self.folder, &self.senders);
        refused.map_err(Verdict::Wrong)?;
        let operators = (self.operators.setting.policy, &self.operators.decided);
        self.checks
            .at_rest(at, &self.receivers, operators)
            .map_err(Verdict::Wrong)?;
        self.fed_again()?;
        self.fed_otherwise()?;
        self.last = self.checks.projection(&self.folder);
        self.world.note_marks();
        Ok(())
    }

    /// I16: whatever is fed again to a daemon at rest changes nothing.
    fn fed_again(&mut self) -> Result<(), Verdict> {
        let Some(life) = &mut self.life else { return Ok(()) };
        if !self.script.seed.is_multiple_of(AGAIN_EVERY) {
            return Ok(());
        }
        let mut feeders = Feeders {
            operators: &mut self.operators,
            clients: &mut self.clients,
            senders: &mut self.senders,
        };
        match again::everything(life, &self.world, &mut feeders) {
            Some(what) => Err(Verdict::Wrong(Fault::new("I16", what))),
            None => Ok(()),
        }
    }

    /// New databases, fed the same chain in other ways, agree with each other and with a scan.
    fn fed_otherwise(&mut self) -> Result<(), Verdict> {
        let seed = self.script.seed;
        // New daemons have no operator who accepts what is too deep.
        let is_deep = self.world.chains().iter().any(|chain| chain.was_deep);
        if self.is_restored || is_deep || !seed.is_multiple_of(FED_EVERY) {
            return Ok(());
        }
        let mut dice = Dice::new(seed);
        let ways = match seed.is_multiple_of(FED_ALL_EVERY) {
            true => Way::ALL.to_vec(),
            false => vec![Way::AsItHappened, Way::draw(&mut dice)],
        };
        let wrong = disagreements(&self.world, &self.script.terms, &ways, dice.next());
        match wrong.into_iter().next() {
            Some(what) => Err(Verdict::Wrong(Fault::new("I7", what))),
            None => Ok(()),
        }
    }
}
