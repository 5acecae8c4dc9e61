//! What the service manager is told: ready, stopping, a line of status, and a sign of life for as long as the
//! daemon has one. Outside of systemd there is nobody to tell, and the same is only logged.

use crate::clock::Clock;
use crate::ops::{Ailment, Followed, Part, Vitals};
use crate::store::Store;
use sd_notify::NotifyState;
use std::convert::Infallible;
use std::time::Duration;

/// Between two looks at most; a watchdog may want more.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long a follower may be overdue where no watchdog says.
const OVERDUE_MAX: Duration = Duration::from_secs(120);

/// Characters of a status line at most.
const STATUS_MAX: usize = 300;

/// The service manager, if there is one.
pub(super) struct Manager {
    clock: Clock,
    /// It ends us after this long without a sign of life.
    watchdog: Option<Duration>,
    status: String,
    ailment: Option<Ailment>,
}

impl Manager {
    /// The manager that started this process.
    pub(super) fn new(clock: Clock) -> Manager {
        Manager {
            clock,
            watchdog: sd_notify::watchdog_enabled(),
            status: String::new(),
            ailment: None,
        }
    }

    /// Not up yet, and why.
    pub(super) fn waiting(&mut self, why: &str) {
        self.tell_status(why);
    }

    /// The database and the listeners are up, whatever the nodes say.
    pub(super) fn ready(&mut self, followed: &[Followed]) {
        self.status = status(followed);
        tell(&[NotifyState::Ready, NotifyState::Status(&self.status)]);
        crate::points::pass("ready");
    }

    /// On the way out.
    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        crate::points::pass("stopping");
    }

    /// Gives signs of life for ever, as long as there is life.
    pub(super) async fn attend(
        &mut self,
        store: &Store,
        parts: Vec<Part>,
        followed: &[Followed],
    ) -> Infallible {
        let overdue_max = self.watchdog.unwrap_or(OVERDUE_MAX);
        let mut vitals = Vitals::new(store.clone(), self.clock, parts, overdue_max);
        // systemd asks for one at least every half of the time.
        let pause = self
            .watchdog
            .map_or(LOOK_EVERY, |span| (span / 4).min(LOOK_EVERY));
        loop {
            match vitals.look().await {
                Ok(()) => {
                    self.recovered();
                    tell(&[NotifyState::Watchdog]);
                    self.tell_status(&status(followed));
                }
                Err(ailment) => self.ailing(ailment),
            }
            self.clock.sleep(pause).await;
        }
    }

    fn ailing(&mut self, ailment: Ailment) {
        let is_known = self
            .ailment
            .as_ref()
            .is_some_and(|known| std::mem::discriminant(known) == std::mem::discriminant(&ailment));
        if !is_known {
            tracing::error!("no sign of life for the service manager: {ailment}");
        }
        self.tell_status(&format!("ailing: {ailment}"));
        self.ailment = Some(ailment);
    }

    fn recovered(&mut self) {
        if let Some(ailment) = self.ailment.take() {
            tracing::info!("signs of life again, after: {ailment}");
        }
    }

    fn tell_status(&mut self, status: &str) {
        let status = one_line(status);
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }
}

/// The states of all chains.
fn status(followed: &[Followed]) -> String {
    let line = |followed: &Followed| {
        let told = followed.pulse.reading();
        let node = told
            .node_height
            .map_or_else(String::new, |height| format!(", node at {height}"));
        let reason = match told.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        format!("{} {}{node}{reason}", followed.alias, told.state.word())
    };
    one_line(&followed.iter().map(line).collect::<Vec<_>>().join("; "))
}

/// A reason may quote a node, and a line break in it would begin another message to the manager.
fn one_line(text: &str) -> String {
    let printable = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    printable.take(STATUS_MAX).collect()
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the service manager does not listen: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::Pulse;
    use crate::rules::ChainId;
    use crate::rules::chain_state::ChainState;

    #[test]
    fn a_status_is_one_line_whatever_a_node_says() {
        let pulse = Pulse::default();
        pulse.note_node(7);
        pulse.note_state(
            Clock::real(),
            ChainState::Unreachable,
            "it says\nWATCHDOG=trigger",
        );
        let followed = Followed {
            alias: "btc".to_owned(),
            chain: ChainId::from_stored("bip122:00".to_owned()),
            pulse,
            nodes: None,
        };
        assert_eq!(
            status(&[followed]),
            "btc unreachable, node at 7: it says WATCHDOG=trigger"
        );
        assert_eq!(one_line(&"x".repeat(1_000)).len(), STATUS_MAX);
    }
}
