//! Balances of the chain's own coin at blocks that are named by their hash.

use super::block::decode_known;
use super::fields::Field;
use super::{EvmSource, odd_answer};
use crate::chain::SourceError;
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::egress::Dial;
use crate::rules::{Amount, BlockHash, Script};
use serde_json::json;

impl<D: Dial> EvmSource<D> {
    pub(super) async fn balances_at(
        &self,
        asked: &[(BlockHash, Script)],
    ) -> Result<Vec<Option<Amount>>, SourceError> {
        let questions: Vec<Question> = asked.iter().map(question).collect();
        let answers = self.ask("ask for balances", &questions).await?;
        if answers.len() != asked.len() {
            return Err(odd_answer("ask for balances", "some are missing"));
        }
        answers.into_iter().map(read).collect()
    }
}

/// EIP-1898: at a block by its hash, so that no other branch can answer.
fn question((hash, account): &(BlockHash, Script)) -> Question {
    let account = format!("0x{}", const_hex::encode(&account.0));
    Question::new(
        "eth_getBalance",
        json!([account, {"blockHash": format!("0x{hash}")}]),
    )
}

fn read(answer: Answer) -> Result<Option<Amount>, SourceError> {
    match decode_known::<Field<Amount>>(Some(answer)) {
        Ok(Field::Is(balance)) => Ok(Some(balance)),
        Ok(Field::Missing | Field::Null) => Ok(None),
        Ok(field) => Err(odd_answer(
            "ask for balances",
            &format!("a balance {}", field.fault().unwrap_or_default()),
        )),
        // It has dropped the state of that block, or does not know the block.
        Err(RpcError::Node { .. }) => Ok(None),
        Err(error) => Err(odd_answer("ask for balances", &error.to_string())),
    }
}
