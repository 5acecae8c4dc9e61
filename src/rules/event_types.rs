//! The types of events, and what a subscription may ask for. Events have one owner: those of chains go to
//! operators and all others to the merchant whose money it is.

use thiserror::Error;

/// What can be subscribed to. `endpoint.test` comes without being asked for.
pub const EVENT_TYPES: [&str; 25] = [
    "deposit.seen",
    "deposit.confirming",
    "deposit.evicted",
    "deposit.replaced",
    "deposit.orphaned",
    "deposit.failed",
    "deposit.held",
    "deposit.released",
    "credit.created",
    "credit.reversed",
    "credit.reinstated",
    // Sent after a restored backup, which cannot be yet: who subscribes now need not think of it then.
    "credit.state",
    "invoice.created",
    "invoice.partially_paid",
    "invoice.paid",
    "invoice.overpaid",
    "invoice.settled",
    "invoice.expired",
    "invoice.reopened",
    "invoice.reversed",
    "invoice.cancelled",
    "invoice.state",
    "chain.halted",
    "chain.resumed",
    "chain.unattributed",
];

/// Why a type cannot be subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubscriptionError {
    /// No event has it.
    #[error("no event has the type {0}")]
    Unknown(String),
    /// It goes to operators, and a merchant asked.
    #[error("{0} goes to operators alone")]
    Operators(String),
    /// It goes to the merchant, and an operator asked.
    #[error("{0} goes to the merchant alone")]
    Merchants(String),
}

/// Checks types and patterns such as `credit.*`, and joins them as they are kept; none = all.
///
/// # Errors
/// [`SubscriptionError`]: a subscription to what never comes would hide a misspelt one.
pub fn subscription(types: &[String], is_ops: bool) -> Result<String, SubscriptionError> {
    for kind in types.iter().filter(|kind| kind.as_str() != "*") {
        let covers = |known: &str| {
            let family = kind.strip_suffix('*').filter(|family| family.ends_with('.'));
            known == kind || family.is_some_and(|family| known.starts_with(family))
        };
        let Some(known) = EVENT_TYPES.iter().find(|known| covers(known)) else {
            return Err(SubscriptionError::Unknown(kind.clone()));
        };
        match (known.starts_with("chain."), is_ops) {
            (true, true) | (false, false) => {}
            (true, false) => return Err(SubscriptionError::Operators(kind.clone())),
            (false, true) => return Err(SubscriptionError::Merchants(kind.clone())),
        }
    }
    Ok(match types.is_empty() {
        true => "*".to_owned(),
        false => types.join(" "),
    })
}
