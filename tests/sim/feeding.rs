//! One finished world shown to new daemons in many ways: all their databases must agree.

mod feeder;

use crate::dice::Dice;
use crate::marks::hit;
use crate::naive::{Moment, differences};
use crate::script::Terms;
use crate::tables::Tables;
use crate::world::World;
use feeder::Feeder;

/// How a finished chain is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Tip by tip as the nodes told them, as far as an honest node could.
    AsItHappened,
    /// The last tip at once.
    TipFirst,
    /// Every k-th block of the best chain.
    EveryKth(u8),
    /// Block by block; each goes away and comes back once.
    EachTwice,
    /// All blocks once more after the end, and again.
    FullReplay,
    /// Of each flurry of tips only the last.
    CondensedDisconnects,
    /// Every block of every branch, be it better or not.
    EveryTip,
    /// Two nodes, one of them a tip behind, answer in turn.
    Balancer,
    /// The daemon dies in each round.
    CrashEachRound,
    /// What comes in a block was listed before, in part at another tip.
    ListsLate,
    /// A losing branch to its end, then the best chain.
    LoserFirst,
}

impl Way {
    pub const ALL: [Way; 11] = [
        Way::AsItHappened,
        Way::TipFirst,
        Way::EveryKth(3),
        Way::EachTwice,
        Way::FullReplay,
        Way::CondensedDisconnects,
        Way::EveryTip,
        Way::Balancer,
        Way::CrashEachRound,
        Way::ListsLate,
        Way::LoserFirst,
    ];

    pub fn draw(dice: &mut Dice) -> Way {
        match Way::ALL[1 + dice.roll(Way::ALL.len() - 1)] {
            Way::EveryKth(_) => Way::EveryKth(2 + dice.roll(12) as u8),
            way => way,
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Way::AsItHappened => "fed_as_it_happened",
            Way::TipFirst => "fed_tip_first",
            Way::EveryKth(_) => "fed_every_kth",
            Way::EachTwice => "fed_each_twice",
            Way::FullReplay => "fed_full_replay",
            Way::CondensedDisconnects => "fed_condensed",
            Way::EveryTip => "fed_every_tip",
            Way::Balancer => "fed_balancer",
            Way::CrashEachRound => "fed_crash_each_round",
            Way::ListsLate => "fed_lists_late",
            Way::LoserFirst => "fed_loser_first",
        }
    }
}

/// Feeds a chain in a way; returns what does not depend on the way. An error says what is wrong with it.
pub fn feed(world: &World, chain: u8, terms: &Terms, way: Way, dice: u64) -> Result<Vec<String>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let chain = world.chain(chain);
    let fed = runtime.block_on(async {
        let mut feeder = Feeder::new(chain, terms, dice).await?;
        feeder.feed(way).await?;
        Ok::<_, String>(feeder)
    })?;
    let tables = Tables::open(fed.path());
    let wrong = differences((chain, &fed.nodes), &tables, terms.policy, Moment::Rest);
    if let Some(first) = wrong.first() {
        return Err(format!("{way:?}: {} wrong, first {first}", wrong.len()));
    }
    fed.agreed()
}

/// Feeds every chain of a world in these ways; whatever is wrong, or differs from the first way.
pub fn disagreements(world: &World, terms: &Terms, ways: &[Way], dice: u64) -> Vec<String> {
    let mut wrong = vec![];
    for chain in 0..world.chains().len() as u8 {
        let mut first: Option<Vec<String>> = None;
        for way in ways {
            let lines = match feed(world, chain, terms, *way, dice) {
                Ok(lines) => lines,
                Err(why) => {
                    wrong.push(why);
                    continue;
                }
            };
            hit(way.mark());
            let first = first.get_or_insert_with(|| lines.clone());
            let only = |these: &[String], those: &[String], who: &str| -> Vec<String> {
                let only = these.iter().filter(|line| !those.contains(line));
                only.map(|line| format!("{way:?}: {who}: {line}")).collect()
            };
            wrong.extend(only(&lines, first, "here alone"));
            wrong.extend(only(first, &lines, "missing"));
        }
    }
    wrong
}
