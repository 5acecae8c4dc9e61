//! What token contracts say of themselves: their decimals at the start, and balances around a payment where
//! the operator does not believe their logs.

use super::block::decode_known;
use super::fields::{Account, Data, Field};
use super::{EvmSource, RawBlock, odd_answer};
use crate::chain::SourceError;
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::egress::Dial;
use crate::rules::{Amount, BlockHash};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// `decimals()`: the first four bytes of the hash of its signature.
const DECIMALS: &str = "0x313ce567";
/// `balanceOf(address)`.
const BALANCE_OF: &str = "0x70a08231";

/// More cannot be stored, and no token has them.
const DECIMALS_MAX: u64 = 77;

impl<D: Dial> EvmSource<D> {
    /// Asks every listed contract for its decimals; the tokens whose answer contradicts the config.
    pub(super) async fn check_tokens(&self) -> Result<BTreeSet<Account>, SourceError> {
        let call = |token: &Account| call(token, DECIMALS.to_owned(), json!("latest"));
        let questions: Vec<Question> = self.rules.tokens.keys().map(call).collect();
        let answers = self.ask("ask the tokens for their decimals", &questions).await?;
        let mut disabled = BTreeSet::new();
        for ((contract, token), answer) in self.rules.tokens.iter().zip(answers) {
            let (symbol, decimals) = (&token.symbol, token.decimals);
            match read_decimals(answer)? {
                Ok(told) if told == u64::from(decimals) => {}
                Ok(told) => {
                    let verdict = match self.has_checked_tokens.load(Ordering::Relaxed) {
                        false => "is disabled",
                        true => "goes on until the next start",
                    };
                    tracing::error!(
                        chain = %self.rules.chain, token = %contract,
                        "{symbol} ({contract}) {verdict}: the config says {decimals} decimals, its \
                         contract \
                         {told}{}; correct the config and start again",
                        if told > DECIMALS_MAX { ", which no amount can have" } else { "" }
                    );
                    disabled.insert(*contract);
                }
                Err(why) => tracing::warn!(
                    chain = %self.rules.chain, token = %contract,
                    "{symbol} ({contract}) does not tell its decimals ({why}); the config's {decimals} are \
                     used"
                ),
            }
        }
        Ok(disabled)
    }

    /// What a contract says of its decimals, or in words why it does not.
    ///
    /// # Errors
    /// Those of the nodes.
    pub async fn decimals_of(&self, contract: [u8; 20]) -> Result<Result<u64, String>, SourceError> {
        let question = call(&Account(contract), DECIMALS.to_owned(), json!("latest"));
        let doing = "ask a token for its decimals";
        match self.ask(doing, &[question]).await?.pop() {
            Some(answer) => read_decimals(answer),
            None => Err(odd_answer(doing, "no answer")),
        }
    }

    /// Did an account's balance of a token change in a block by as much as the logs say? `expected` is what
    /// came in and what went out; `None` where the node cannot tell (any more).
    pub(super) async fn is_balance_moved(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        token: Account,
        owner: Account,
        expected: (Amount, Amount),
    ) -> Result<Option<bool>, SourceError> {
        let Some(parent) = raw.fields.parent.get() else {
            return Ok(None);
        };
        let input = format!("{BALANCE_OF}{:0>64}", const_hex::encode(owner.0));
        // EIP-1898: at a block by its hash.
        let at = |hash: &BlockHash| json!({"blockHash": format!("0x{hash}")});
        let questions = [
            call(&token, input.clone(), at(parent)),
            call(&token, input, at(&hash)),
        ];
        let doing = format!("ask for a balance around block 0x{hash}");
        let mut answers = self.ask(&doing, &questions).await?.into_iter();
        let mut read = || read_word(answers.next(), &doing);
        let (Some(before), Some(after)) = (read()?, read()?) else {
            return Ok(None);
        };
        let (came, went) = expected;
        let moved = before.checked_add(came).and_then(|sum| sum.checked_sub(went));
        Ok(Some(moved == Some(after)))
    }
}

fn call(to: &Account, input: String, at: Value) -> Question {
    Question::new("eth_call", json!([{"to": to.to_string(), "data": input}, at]))
}

/// A contract's number, or in words why it has none. Anything but an answer of the contract is trouble of the
/// node's.
fn read_decimals(answer: Answer) -> Result<Result<u64, String>, SourceError> {
    let data = match answer.decode::<Field<Data>>() {
        Ok(Field::Is(Data(data))) => data,
        Ok(field) => return Ok(Err(format!("the answer {}", field.fault().unwrap_or_default()))),
        Err(RpcError::Node { message, .. }) => return Ok(Err(message)),
        Err(error) => return Err(odd_answer("ask a token for its decimals", &error.to_string())),
    };
    let Ok(word) = <[u8; 32]>::try_from(data.as_slice()) else {
        return Ok(Err(format!("{} bytes, not 32", data.len())));
    };
    let (above, number) = word.split_at(24);
    let number = number.try_into().map(u64::from_be_bytes).unwrap_or(u64::MAX);
    Ok(Ok(if above.iter().all(|byte| *byte == 0) {
        number
    } else {
        u64::MAX
    }))
}

fn read_word(answer: Option<Answer>, doing: &str) -> Result<Option<Amount>, SourceError> {
    match decode_known::<Field<Data>>(answer) {
        Ok(Field::Is(Data(data))) => {
            let word = <[u8; 32]>::try_from(data.as_slice());
            Ok(word.ok().map(Amount::from_be_bytes))
        }
        Ok(field) => Err(odd_answer(
            doing,
            &format!("a balance {}", field.fault().unwrap_or_default()),
        )),
        // The contract refuses, or the node has dropped the state of that block.
        Err(RpcError::Node { .. }) => Ok(None),
        Err(error) => Err(odd_answer(doing, &error.to_string())),
    }
}
