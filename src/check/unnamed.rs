//! Chains that the database has followed and the config does not name: nobody looks after what was credited
//! there, and one that is named otherwise now would be credited a second time.

use super::{Line, Verdict, counted, line};
use crate::config::Config;
use crate::rules::ChainId;
use crate::store::{Database, OpenMode};

/// Nothing where there are none.
pub(super) fn lines(config: &Config) -> Vec<Line> {
    // Whether the database can be read has its own line.
    let database = Database::open(&config.database, OpenMode::ReadOnly).ok();
    let read = database.and_then(|database| {
        let counted = database.read(|tx| {
            let rows = tx.chains()?.into_iter().filter(|row| row.cursor.is_some());
            rows.map(|row| Ok((tx.credits_on(row.key)?, row)))
                .collect::<Result<Vec<_>, _>>()
        });
        counted.ok()
    });
    let followed = read.unwrap_or_default();
    let is_followed = |chain: &ChainId| followed.iter().any(|(_, row)| row.id == *chain);
    let mut lines = Vec::new();
    for (credits, row) in &followed {
        let is_named = config.chains().any(|chain| *chain.chain() == row.id);
        if is_named || *credits == 0 {
            continue;
        }
        let has = format!("the database has {} of {}", counted(*credits, "credit"), row.id);
        // One that is followed under its own name is another chain: one of two test networks, or one that
        // began anew.
        let kin = config
            .chains()
            .find(|chain| chain.chain().caip2() == row.id.caip2() && !is_followed(chain.chain()));
        let told = match (kin, row.id.as_str().split_once('@')) {
            (Some(kin), Some((_, instance))) => line(
                "chain",
                Verdict::Bad,
                format!(
                    "{has}, and {} is {} in the config: the same network, another instance",
                    kin.alias(),
                    kin.chain()
                ),
                format!(
                    "`instance = \"{instance}\"` in the config, if it is the same chain: under another name \
                     its payments would be credited once more"
                ),
            ),
            (Some(_) | None, _) => line(
                "chain",
                Verdict::Warning,
                format!(
                    "{has} ({}), which the config does not name: nobody follows it",
                    row.alias
                ),
                "bring its section back, or a reorg that takes a credit of it away is not seen",
            ),
        };
        lines.push(told);
    }
    lines
}
