//! Which endpoint is asked next. Pure, so that every case can be a row of a table.

use std::time::Duration;

/// How long a preferred endpoint must have answered before it is gone back to: one that comes and goes would
/// else take us along each time.
pub const STEADY: Duration = Duration::from_secs(60);

/// What matters of an endpoint here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It has answered since so long, and its tip is about as high as that of the one in use.
    Steady(Duration),
    /// The same, and its tip is higher than that of the one in use by some blocks.
    Ahead(Duration),
    /// It is the one in use, it answers, and it has shown the same tip, or been behind another, for long.
    Stuck,
    /// It answers, but is behind the one in use.
    Behind,
    /// Nobody has asked it yet.
    Untried,
    /// It failed, and is to be left alone for so long.
    Failed(Duration),
    /// It wants to be left alone for so long.
    Limited(Duration),
    /// It is on another chain.
    Quarantined,
}

impl Look {
    fn answers(self) -> bool {
        matches!(
            self,
            Look::Steady(_) | Look::Ahead(_) | Look::Stuck | Look::Behind
        )
    }

    /// Has it answered for long, and is it not behind?
    fn is_steady(self) -> bool {
        matches!(self, Look::Steady(span) | Look::Ahead(span) if span >= STEADY)
    }
}

/// The place of the endpoint to ask, in the order of preference; `current` was asked last. Those in `tried`
/// have just failed. `None` where none is left.
pub fn choose(looks: &[Look], current: Option<usize>, tried: &[usize]) -> Option<usize> {
    let all = || {
        let places = looks.iter().copied().enumerate();
        places.filter(|(place, _)| !tried.contains(place))
    };
    let in_use = current.and_then(|current| all().find(|(place, _)| *place == current));
    if let Some((current, look)) = in_use
        && look.answers()
    {
        // A node that has lost its peers, or downloads the chain from the year before, answers for ever, and
        // we would stand with it.
        let ahead = all().find(|(_, other)| matches!(other, Look::Ahead(_)) && other.is_steady());
        if look == Look::Stuck
            && let Some((place, _)) = ahead
        {
            return Some(place);
        }
        let mut preferred = all().take_while(|(place, _)| *place < current);
        let steady = preferred.find(|(_, look)| look.is_steady());
        return Some(steady.map_or(current, |(place, _)| place));
    }
    let first = |is: fn(Look) -> bool| all().find(|(_, look)| is(*look)).map(|(place, _)| place);
    first(|look| matches!(look, Look::Steady(_) | Look::Ahead(_) | Look::Stuck))
        .or_else(|| first(|look| matches!(look, Look::Untried | Look::Behind | Look::Failed(Duration::ZERO))))
        .or_else(|| {
            // Better asked too early than nobody asked: who follows the chain has a pace of its own.
            let failed = all().filter_map(|(place, look)| match look {
                Look::Failed(left) => Some((left, place)),
                Look::Steady(_) | Look::Ahead(_) | Look::Stuck | Look::Behind => None,
                Look::Untried | Look::Limited(_) | Look::Quarantined => None,
            });
            failed.min().map(|(_, place)| place)
        })
        .or_else(|| {
            let limited = all().filter_map(|(place, look)| match look {
                Look::Limited(left) => Some((left, place)),
                Look::Steady(_) | Look::Ahead(_) | Look::Stuck | Look::Behind => None,
                Look::Untried | Look::Failed(_) | Look::Quarantined => None,
            });
            limited.min().map(|(_, place)| place)
        })
}

#[cfg(test)]
mod tests {
    use super::Look::{Ahead, Behind, Failed, Limited, Quarantined, Steady, Stuck, Untried};
    use super::*;

    /// A letter for each state.
    const STATES: [(char, Look); 13] = [
        ('S', Steady(STEADY)),
        ('s', Steady(Duration::from_secs(59))),
        ('A', Ahead(STEADY)),
        ('a', Ahead(Duration::from_secs(59))),
        ('k', Stuck),
        ('b', Behind),
        ('u', Untried),
        ('0', Failed(Duration::ZERO)),
        ('3', Failed(Duration::from_secs(3))),
        ('9', Failed(Duration::from_secs(9))),
        ('l', Limited(Duration::from_secs(1))),
        ('L', Limited(Duration::from_secs(9))),
        ('x', Quarantined),
    ];

    /// What is so, the endpoints, the one in use, those that have just failed, and the one to ask.
    const ROWS: &str = "
        nothing is known: the first        | uu  | - |    | 0
        the one in use stays               | us  | 1 |    | 1
        the first one in use stays         | SS  | 0 |    | 0
        back to a preferred one            | SS  | 1 |    | 0
        but not at once                    | sS  | 1 |    | 1
        nor while it is behind             | bS  | 1 |    | 1
        nor to one that was never asked    | uS  | 1 |    | 1
        the most preferred that is steady  | sSS | 2 |    | 1
        one in use that is behind stays    | bS  | 0 |    | 0
        stuck, and one is ahead: that one  | kA  | 0 |    | 1
        the most preferred that is ahead   | AkA | 1 |    | 0
        ahead goes before preferred        | SkA | 1 |    | 2
        stuck, and nobody is ahead         | kS  | 0 |    | 0
        stuck, and one is ahead since now  | ka  | 0 |    | 0
        not stuck: ahead means nothing     | sA  | 0 |    | 0
        preferred, and ahead: back to it   | As  | 1 |    | 0
        failover: to one that is ahead     | 3ua | 0 |    | 2
        failover: one that answers first   | 3us | 0 |    | 2
        failover: one that was never asked | 3u  | 0 |    | 1
        failover: one whose time has come  | l0  | 0 |    | 1
        failover: better behind than dead  | 3b  | 0 |    | 1
        it has just failed                 | Su  | 0 | 0  | 1
        all have just failed               | 00  | 0 | 01 | -
        all have failed: the soonest       | 93  | 0 |    | 1
        alone, and failed: asked again     | 9   | 0 |    | 0
        failed goes before limited         | l9  | 0 |    | 1
        all are limited: the soonest       | Ll  | 0 |    | 1
        never one in quarantine            | x9  | 0 |    | 1
        all are in quarantine              | xx  | 0 |    | -
        there is none                      |     | - |    | -
    ";

    #[test]
    fn the_next_endpoint_for_every_state() {
        let place = |letter: char| letter.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
        let look = |letter: char| STATES.iter().find(|(known, _)| *known == letter).unwrap().1;
        let mut rows = 0;
        for row in ROWS.lines().filter(|row| !row.trim().is_empty()) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let looks: Vec<Look> = cells[1].chars().map(look).collect();
            let tried: Vec<usize> = cells[3].chars().filter_map(place).collect();
            let at = |cell: &str| cell.chars().next().and_then(place);
            assert_eq!(choose(&looks, at(cells[2]), &tried), at(cells[4]), "{row}");
            rows += 1;
        }
        assert_eq!(rows, 30);
    }

    /// Whatever the states: never one in quarantine, never one that has just been tried, and somebody as long
    /// as there is one left.
    #[test]
    fn somebody_is_asked_as_long_as_there_is_one() {
        let all = || STATES.iter().map(|(_, look)| *look);
        let triples =
            all().flat_map(|one| all().flat_map(move |two| all().map(move |three| [one, two, three])));
        for looks in triples {
            for current in [None, Some(0), Some(1), Some(2)] {
                for tried in [&[][..], &[0], &[1, 2], &[0, 2]] {
                    let next = choose(&looks, current, tried);
                    let is_left = |place: &usize| looks[*place] != Quarantined && !tried.contains(place);
                    let is_there_one = (0..3).any(|place| is_left(&place));
                    assert_eq!(next.is_some(), is_there_one, "{looks:?} {tried:?}");
                    assert!(next.as_ref().is_none_or(is_left), "{looks:?} {tried:?}");
                }
            }
        }
    }
}
