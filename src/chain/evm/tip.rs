//! Where the nodes stand, and which blocks they have at a height.

use super::answers::BlockFields;
use super::block::{check_header, decode, decode_known, is_no_method, says_unknown};
use super::endpoints::block_at;
use super::{EvmSource, locked, odd_answer};
use crate::chain::rpc::{Answer, Question};
use crate::chain::{HeaderInfo, NodeTip, SourceError};
use crate::egress::Dial;
use crate::rules::{BlockHash, HEIGHT_MAX, Header, HeldHeader, TaggedBlock, Tags, Work};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// So often the finality tags are asked for where no new block comes.
const TAGS: Duration = Duration::from_secs(10);

/// The tip that was seen last.
pub(super) struct Seen {
    tip: NodeTip,
    /// When its tags were asked for.
    at: Instant,
}

/// `eth_syncing`: false, or how far the node is. Some say `true`, or more than is asked here.
#[derive(Deserialize)]
#[serde(untagged)]
enum Syncing {
    Is(bool),
    Progress {
        #[serde(rename = "highestBlock", default)]
        highest: super::fields::Field<u64>,
    },
}

impl<D: Dial> EvmSource<D> {
    /// One small question as long as nothing is new.
    pub(super) async fn look_at_tip(&self) -> Result<NodeTip, SourceError> {
        let doing = "ask for the tip";
        let latest = [block_question("latest")];
        let told = self.endpoints.ask(doing, &latest, Self::SMALL).await?;
        let fields: Option<BlockFields> = decode(told.answers.into_iter().next(), doing)?;
        let fields = fields.ok_or_else(|| odd_answer(doing, "it has no block"))?;
        let held = held(&fields, doing)?;
        self.endpoints.saw_tip(told.endpoint, super::tagged(&held));
        let now = self.clock.instant();
        if let Some(seen) = &*locked(&self.tip)
            && seen.tip.hash == held.header.hash
            && now - seen.at < TAGS
        {
            return Ok(NodeTip {
                credit_ceiling: self.endpoints.unproven_above(),
                ..seen.tip.clone()
            });
        }
        let more = [
            block_question("safe"),
            block_question("finalized"),
            Question::new("eth_syncing", json!([])),
        ];
        let told = self.endpoints.ask(doing, &more, Self::SMALL).await?;
        let mut answers = told.answers.into_iter();
        let tags = Tags {
            safe: tag(answers.next())?,
            finalized: tag(answers.next())?,
        };
        let syncing = syncing(answers.next())?;
        let tip = NodeTip {
            hash: held.header.hash,
            height: held.height,
            chainwork: held.chainwork,
            time_secs: held.header.time_secs,
            is_syncing: syncing.is_some(),
            headers: syncing.flatten().unwrap_or(held.height),
            pruned_below: None,
            credit_ceiling: self.endpoints.unproven_above(),
            tags,
        };
        *locked(&self.tip) = Some(Seen {
            tip: tip.clone(),
            at: now,
        });
        Ok(tip)
    }

    pub(super) async fn look_up_header(&self, hash: BlockHash) -> Result<Option<HeaderInfo>, SourceError> {
        let doing = format!("read header 0x{hash}");
        let by_hash = [Question::new(
            "eth_getBlockByHash",
            json!([format!("0x{hash}"), false]),
        )];
        let answer = self.ask(&doing, &by_hash).await?.pop();
        let found: Option<BlockFields> = match decode_known(answer) {
            Ok(found) => found,
            Err(error) if says_unknown(&error) => None,
            Err(error) => return Err(odd_answer(doing, &error.to_string())),
        };
        let Some(fields) = found else {
            return Ok(None);
        };
        check_header(&fields, hash)?;
        let held = held(&fields, &doing)?;
        // Many nodes show by hash what is on no chain of theirs any more.
        let there = self.ask(&doing, &[block_at(held.height)]).await?.pop();
        let there: Option<BlockFields> = decode(there, &doing)?;
        let is_active = there.is_some_and(|fields| fields.hash.get() == Some(&hash));
        Ok(Some(HeaderInfo { held, is_active }))
    }

    pub(super) async fn headers_from(
        &self,
        height: u64,
        count: usize,
    ) -> Result<Vec<HeldHeader>, SourceError> {
        let head = locked(&self.tip).as_ref().map_or(height, |seen| seen.tip.height);
        let there = usize::try_from((head + 1).saturating_sub(height)).unwrap_or(usize::MAX);
        let questions: Vec<Question> = (height..).take(count.min(there)).map(block_at).collect();
        let doing = format!("ask for the blocks from height {height} on");
        let answers = self.ask(&doing, &questions).await?;
        let mut headers = Vec::with_capacity(answers.len());
        for (height, answer) in (height..).zip(answers) {
            let found: Option<BlockFields> = match decode_known(Some(answer)) {
                Err(error) if says_unknown(&error) => None,
                Err(error) => return Err(odd_answer(doing, &error.to_string())),
                Ok(found) => found,
            };
            let Some(fields) = found else {
                break;
            };
            let held = held(&fields, &doing)?;
            if held.height != height {
                let why = format!("the block at height {height} has another");
                return Err(odd_answer(doing, &why));
            }
            headers.push(held);
            if !self.reads_whole_blocks() {
                self.headers.keep(held.header.hash, fields);
            }
        }
        Ok(headers)
    }
}

fn block_question(tag: &str) -> Question {
    Question::new("eth_getBlockByNumber", json!([tag, false]))
}

/// A header at its height. Each block counts as one unit of work: of two branches the higher one is better.
pub(super) fn held(fields: &BlockFields, doing: &str) -> Result<HeldHeader, SourceError> {
    let missing = |name: &str, fault: Option<String>| {
        odd_answer(doing, &format!("{name} {}", fault.unwrap_or_default()))
    };
    let hash = fields
        .hash
        .get()
        .ok_or_else(|| missing("hash", fields.hash.fault()))?;
    let parent = fields
        .parent
        .get()
        .ok_or_else(|| missing("parentHash", fields.parent.fault()))?;
    let number = fields
        .number
        .get()
        .ok_or_else(|| missing("number", fields.number.fault()))?;
    let time = fields
        .timestamp
        .get()
        .ok_or_else(|| missing("timestamp", fields.timestamp.fault()))?;
    if *number > HEIGHT_MAX {
        return Err(odd_answer(doing, &format!("no block can be at height {number}")));
    }
    if i64::try_from(*time).is_err() {
        return Err(odd_answer(doing, &format!("no block can be of second {time}")));
    }
    Ok(HeldHeader {
        height: *number,
        header: Header {
            hash: *hash,
            parent: *parent,
            time_secs: *time,
            work: Work::from_u64(1),
            bits: 0,
        },
        chainwork: Work::from_u64(number + 1),
    })
}

/// The block with a tag; `None` where the node has none, or does not know the tag.
fn tag(answer: Option<Answer>) -> Result<Option<TaggedBlock>, SourceError> {
    let doing = "ask for the finality tags";
    let fields: Option<BlockFields> = match decode_known(answer) {
        Ok(fields) => fields,
        // Nodes say it in many ways: no such tag, not enough blocks yet, no consensus client.
        Err(crate::chain::rpc::RpcError::Node { .. }) => None,
        Err(error) => return Err(odd_answer(doing, &error.to_string())),
    };
    let Some(fields) = fields else {
        return Ok(None);
    };
    Ok(Some(super::tagged(&held(&fields, doing)?)))
}

/// `None` = it does not; else the highest block that it knows of, if it tells.
fn syncing(answer: Option<Answer>) -> Result<Option<Option<u64>>, SourceError> {
    match decode_known(answer) {
        Ok(Syncing::Is(false)) => Ok(None),
        Ok(Syncing::Is(true)) => Ok(Some(None)),
        Ok(Syncing::Progress { highest }) => Ok(Some(highest.get().copied())),
        // Some providers do not offer it; the age of the tip tells then.
        Err(error) if is_no_method(&error) => Ok(None),
        Err(error) => Err(odd_answer("ask whether the node is syncing", &error.to_string())),
    }
}
