//! Where in an EVM transaction a payment stands, as one number, and which execution of the transaction showed
//! it there. Positions are the transaction's own: the block-wide number of a log changes when a transaction
//! is mined again, and clients count it differently.

/// The first position of inner calls. Logs stand below it: a receipt cannot hold 2^32 of them.
const INNER: u64 = 1 << 32;

/// Positions of one execution; the next execution's begin here.
const EXECUTION: u64 = 1 << 40;

/// The most executions that are told apart: outpoint numbers stay below 2^63, which the database can keep.
const EXECUTIONS_MAX: u64 = 1 << 22;

/// A place in a transaction that can pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    /// The transaction's own value.
    Native,
    /// The k-th log of its receipt, counting every log from 0.
    Log(u32),
    /// The k-th inner call that moves coin, in the order in which the calls began, from 0.
    Inner(u32),
}

impl Position {
    /// The outpoint number of this position in execution `execution` of the transaction; the first is 0.
    /// `None` past the most that are told apart.
    pub fn number(self, execution: u64) -> Option<u64> {
        if execution >= EXECUTIONS_MAX {
            return None;
        }
        let place = match self {
            Position::Native => 0,
            Position::Log(log) => 1 + u64::from(log),
            Position::Inner(call) => INNER + u64::from(call),
        };
        // The last log would stand where the first inner call does.
        (self != Position::Log(u32::MAX)).then_some(execution * EXECUTION + place)
    }

    /// Position and execution of an outpoint number; `None` for a number that stands for neither.
    pub fn of_number(number: u64) -> Option<(Position, u64)> {
        let (execution, place) = (number / EXECUTION, number % EXECUTION);
        let position = match place {
            0 => Position::Native,
            1..INNER => Position::Log(u32::try_from(place - 1).ok()?),
            _ => Position::Inner(u32::try_from(place - INNER).ok()?),
        };
        (execution < EXECUTIONS_MAX).then_some((position, execution))
    }
}

/// An outpoint number of an EVM chain in words: `native`, `log 3`, `inner call 0`, and behind a comma which
/// execution it is, where it is not the first.
pub fn words(number: u64) -> String {
    match Position::of_number(number) {
        Some((position, 0)) => position.to_string(),
        Some((position, execution)) => format!("{position}, execution {execution}"),
        None => format!("position {number}"),
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Position::Native => f.write_str("native"),
            Position::Log(log) => write!(f, "log {log}"),
            Position::Inner(call) => write!(f, "inner call {call}"),
        }
    }
}

/// The outpoint number of a place (an outpoint number of execution 0) in another execution. `None` past the
/// most that are told apart.
pub fn executed(place: u64, execution: u64) -> Option<u64> {
    (place < EXECUTION && execution < EXECUTIONS_MAX).then_some(execution * EXECUTION + place)
}

/// The place of an outpoint number: what it is in execution 0.
pub fn place(number: u64) -> u64 {
    number % EXECUTION
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_those_of_the_design() {
        for (position, execution, expected) in [
            (Position::Native, 0, Some(0)),
            (Position::Log(0), 0, Some(1)),
            (Position::Log(7), 0, Some(8)),
            (Position::Log(u32::MAX - 1), 0, Some((1 << 32) - 1)),
            (Position::Log(u32::MAX), 0, None),
            (Position::Inner(0), 0, Some(1 << 32)),
            (Position::Inner(3), 0, Some((1 << 32) + 3)),
            (Position::Native, 1, Some(1 << 40)),
            (Position::Log(7), 2, Some((2 << 40) + 8)),
            (Position::Native, EXECUTIONS_MAX, None),
        ] {
            assert_eq!(position.number(execution), expected, "{position:?} {execution}");
        }
        let last = Position::Inner(u32::MAX).number(EXECUTIONS_MAX - 1).unwrap();
        assert!(i64::try_from(last).is_ok());
        assert_eq!(Position::of_number(u64::MAX), None);
        assert_eq!(Position::of_number(1 << 39), None);
        assert_eq!(executed(8, 2), Position::Log(7).number(2));
        assert_eq!((place(8), place((2 << 40) + 8)), (8, 8));
        assert_eq!((executed(1 << 40, 0), executed(8, EXECUTIONS_MAX)), (None, None));
    }

    #[test]
    fn numbers_are_told_in_words() {
        for (number, expected) in [
            (0, "native"),
            (4, "log 3"),
            (1 << 32, "inner call 0"),
            (1 << 40, "native, execution 1"),
            ((2 << 40) + 8, "log 7, execution 2"),
            (1 << 39, "position 549755813888"),
        ] {
            assert_eq!(words(number), expected);
        }
    }

    proptest! {
        #[test]
        fn a_number_stands_for_one_position(number in any::<u64>(), small in 0..(1_u64 << 42)) {
            for number in [number, small] {
                if let Some((position, execution)) = Position::of_number(number) {
                    prop_assert_eq!(position.number(execution), Some(number));
                }
            }
        }
    }
}
