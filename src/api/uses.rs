//! When a key was last used, to the minute: written down beside the request, which a full disk must not hold
//! up, and tried again no sooner than the next minute.

use crate::store::{Store, StoreError};
use crate::telemetry::error_line;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How often it is written down that a key is used, or tried to be.
pub(super) const USED_EVERY_MS: i64 = 60_000;

/// Keys that are remembered; more than these are looked through for old ones.
const KEYS_MAX: usize = 1_024;

/// What was tried lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(Arc<Tried>);

#[derive(Debug, Default)]
struct Tried {
    /// By key, when.
    at: Mutex<BTreeMap<String, i64>>,
    /// The last one could not be written down.
    is_failing: AtomicBool,
}

impl Uses {
    /// Writes down that a key is used now, unless that was tried a moment ago.
    pub(super) fn note(&self, store: &Store, key: &str, now_ms: i64) {
        if !self.is_due(key, now_ms) {
            return;
        }
        let (uses, store, id) = (self.clone(), store.clone(), key.to_owned());
        tokio::spawn(async move {
            let written = store.write(move |tx| tx.api_key_used(&id)).await;
            uses.tell(written.err());
        });
    }

    fn is_due(&self, key: &str, now_ms: i64) -> bool {
        let mut tried = self.0.at.lock().unwrap_or_else(PoisonError::into_inner);
        // What a clock tried that was set back since is old, not new.
        let is_new = |at: i64| (0..USED_EVERY_MS).contains(&now_ms.saturating_sub(at));
        if tried.get(key).is_some_and(|at| is_new(*at)) {
            return false;
        }
        if tried.len() >= KEYS_MAX {
            tried.retain(|_, at| is_new(*at));
        }
        tried.insert(key.to_owned(), now_ms);
        true
    }

    /// Says once that it does not work, and once that it does again.
    fn tell(&self, error: Option<StoreError>) {
        let was_failing = self.0.is_failing.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_failing => tracing::warn!(
                "when API keys were last used cannot be written down, and is tried again each minute: {}",
                error_line(&error)
            ),
            None if was_failing => tracing::info!("when API keys were last used is written down again"),
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_noted_once_a_minute_whatever_came_of_it() {
        let uses = Uses::default();
        let start = 1_700_000_000_000;
        for (key, after_ms, expected) in [
            ("a", 0, true),
            ("a", 1, false),
            ("b", 1, true),
            ("a", 59_999, false),
            ("a", 60_000, true),
            ("a", 60_001, false),
            // The clock is set back.
            ("a", -3_600_000, true),
            ("a", -3_599_999, false),
        ] {
            assert_eq!(uses.is_due(key, start + after_ms), expected, "{key} {after_ms}");
        }
        let number = |key: usize| (key.to_string(), start + 7_200_000);
        for (key, at) in (0..KEYS_MAX).map(number) {
            assert!(uses.is_due(&key, at));
        }
        assert!(
            uses.0.at.lock().unwrap().len() <= KEYS_MAX,
            "the old ones are gone"
        );
    }
}
