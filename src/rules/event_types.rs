//! The types of events, and what a subscription may ask for. Events have one owner: those of chains, and of
//! trouble in the inbox, go to operators and all others to the merchant whose money it is.

use thiserror::Error;

/// What can be subscribed to. `endpoint.test` comes without being asked for.
pub const EVENT_TYPES: [&str; 28] = [
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
    // After a restored backup: each credit that may have been told of otherwise.
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
    "inbox.forwarded",
    "inbox.set_aside",
    "inbox.parked",
];

/// Does it go to operators, and to no merchant?
fn is_for_operators(kind: &str) -> bool {
    kind.starts_with("chain.") || ["inbox.set_aside", "inbox.parked"].contains(&kind)
}

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
        let mut covered = EVENT_TYPES.iter().filter(|known| covers(known)).peekable();
        if covered.peek().is_none() {
            return Err(SubscriptionError::Unknown(kind.clone()));
        }
        // Of a family that both have a part in, each gets its own.
        if !covered.any(|known| is_for_operators(known) == is_ops) {
            return Err(match is_ops {
                true => SubscriptionError::Merchants(kind.clone()),
                false => SubscriptionError::Operators(kind.clone()),
            });
        }
    }
    Ok(match types.is_empty() {
        true => "*".to_owned(),
        false => types.join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: &str, is_ops: bool) -> Result<String, SubscriptionError> {
        subscription(&[kind.to_owned()], is_ops)
    }

    #[test]
    fn a_type_of_the_inbox_can_be_subscribed_to_by_whom_it_goes_to_and_by_nobody_else() {
        let operators = |kind: &str| Err(SubscriptionError::Operators(kind.to_owned()));
        let merchants = |kind: &str| Err(SubscriptionError::Merchants(kind.to_owned()));
        for (kind, merchant, operator) in [
            (
                "inbox.forwarded",
                Ok("inbox.forwarded".to_owned()),
                merchants("inbox.forwarded"),
            ),
            (
                "inbox.parked",
                operators("inbox.parked"),
                Ok("inbox.parked".to_owned()),
            ),
            (
                "inbox.set_aside",
                operators("inbox.set_aside"),
                Ok("inbox.set_aside".to_owned()),
            ),
            ("inbox.*", Ok("inbox.*".to_owned()), Ok("inbox.*".to_owned())),
            ("chain.*", operators("chain.*"), Ok("chain.*".to_owned())),
            ("credit.*", Ok("credit.*".to_owned()), merchants("credit.*")),
        ] {
            assert_eq!(asked(kind, false), merchant, "{kind}");
            assert_eq!(asked(kind, true), operator, "{kind}");
        }
        for kind in ["inbox", "inbox*", "inbox.gone", "in.*"] {
            assert_eq!(
                asked(kind, true),
                Err(SubscriptionError::Unknown(kind.to_owned()))
            );
        }
    }
}
