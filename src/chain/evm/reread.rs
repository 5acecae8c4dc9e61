//! The chain read once more, for whoever holds the books against it: by other calls than the watcher's (a
//! payment by its transaction's id, transfers by a range of heights, blocks by height) and with readers of
//! its own for what decides about money. It must share no code with the watcher's that does, or both would be
//! wrong together; `tests/tidy` holds this file to it. Frames of a trace have one reader, which cannot be
//! written in two ways.

mod ranges;

pub use ranges::TransfersAgain;

use super::answers::{BlockFields, Listed, LogFields, TxFields};
use super::config::Inner;
use super::fields::{Account, Data, Field, Word};
use super::trace::{self, FlatTrace, Movement};
use super::{EvmSource, odd_answer, tip};
use crate::chain::SourceError;
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::egress::Dial;
use crate::rules::position::Position;
use crate::rules::{Amount, Asset, BlockHash, Header, Outpoint, Paid, Script, TaggedBlock, Txid};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// First topic of a transfer: the Keccak hash of `Transfer(address,address,uint256)`, as nodes print it.
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

/// Who logs the coin that moves (EIP-7708).
const COIN_LOGGER: [u8; 20] = {
    let mut bytes = [0xff; 20];
    bytes[19] = 0xfe;
    bytes
};

/// What a node shows where something is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again<T> {
    /// It is there.
    Shown(T),
    /// It is not there, and the node has what would show it.
    Absent,
    /// The node cannot tell, for this reason.
    Unproven(String),
}

/// What a transaction of a block offers an account, whether or not the transaction succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The payment, if it is one: ask [`EvmSource::payment_again`].
    pub of: Outpoint,
    /// Who would be paid.
    pub to: Script,
}

/// A block, as far as the chain's own coin goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoinAgain {
    /// Its height and hash.
    pub at: TaggedBlock,
    /// Its header.
    pub header: Header,
    /// The transactions with a value, in its order.
    pub offers: Vec<Offer>,
}

/// A receipt, as far as it is read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Receipt {
    transaction_hash: Field<Txid>,
    block_hash: Field<BlockHash>,
    block_number: Field<u64>,
    status: Field<u64>,
    contract_address: Field<Account>,
    logs: Option<Vec<LogFields>>,
}

/// A movement that a log tells of.
struct Moved {
    asset: Asset,
    from: Account,
    to: Account,
    amount: Amount,
}

impl<D: Dial> EvmSource<D> {
    /// What the chain shows at an outpoint, whose payment the books have in block `booked`. Executions are
    /// not told apart: it shows the one that is on the chain.
    ///
    /// # Errors
    /// [`SourceError`] where no node answers.
    pub async fn payment_again(&self, of: Outpoint, booked: TaggedBlock) -> Result<Again<Paid>, SourceError> {
        let Some((position, _)) = Position::of_number(of.vout) else {
            return Ok(Again::Absent);
        };
        let doing = format!("read transaction 0x{} again", of.txid);
        let id = json!([format!("0x{}", of.txid)]);
        let questions = [
            Question::new("eth_getTransactionReceipt", id.clone()),
            Question::new("eth_getTransactionByHash", id),
        ];
        let mut answers = self.ask(&doing, &questions).await?.into_iter();
        let receipt: Option<Receipt> = read(answers.next(), &doing)?;
        let tx: Option<TxFields> = read(answers.next(), &doing)?;
        let (Some(receipt), Some(tx)) = (receipt, tx) else {
            return self.look_into(of.txid, booked).await;
        };
        if receipt.transaction_hash.get() != Some(&of.txid) || tx.hash.get() != Some(&of.txid) {
            return Err(odd_answer(doing, "it is another transaction"));
        }
        let (Some(height), Some(hash)) = (receipt.block_number.get(), receipt.block_hash.get()) else {
            return Ok(Again::Unproven("its receipt names no block".to_owned()));
        };
        let at = TaggedBlock {
            height: *height,
            hash: *hash,
        };
        match self.hash_at(at.height).await? {
            Some(there) if there == at.hash => {}
            Some(there) => {
                let why = format!("its receipt is of block 0x{hash}, the node has 0x{there} at {height}");
                return Ok(Again::Unproven(why));
            }
            None => {
                return Ok(Again::Unproven(format!(
                    "the node has no block at height {height}"
                )));
            }
        }
        let is_success = match receipt.status {
            Field::Is(status) => status == 1,
            _ => return Ok(Again::Unproven("its receipt has no status".to_owned())),
        };
        let moved = match position {
            Position::Native => own_value(&tx, &receipt),
            Position::Log(place) => self.logged(place, &receipt),
            Position::Inner(place) => self.inner(place, of.txid).await,
        };
        Ok(match moved {
            Ok(Some(moved)) => Again::Shown(paid(at, of, moved, is_success)),
            Ok(None) => Again::Absent,
            Err(why) => Again::Unproven(why),
        })
    }

    /// The node has no receipt: is the transaction in the block that the books name?
    async fn look_into(&self, txid: Txid, booked: TaggedBlock) -> Result<Again<Paid>, SourceError> {
        let TaggedBlock { height, hash } = booked;
        let Some(fields) = self.fields_at(height, false).await? else {
            return Ok(Again::Unproven(format!(
                "the node has no block at height {height}"
            )));
        };
        let is_listed = |listed: &Listed| match listed {
            Listed::Hash(listed) => listed.get() == Some(&txid),
            Listed::Whole(tx) => tx.hash.get() == Some(&txid),
        };
        let is_there = fields.transactions.iter().flatten().any(is_listed);
        Ok(match (fields.hash.get() == Some(&hash), is_there) {
            (true, true) => {
                Again::Unproven("the node has its block, and neither it nor its receipt".to_owned())
            }
            (true, false) | (false, false) => Again::Absent,
            (false, true) => Again::Unproven("the node has it in another block, and no receipt".to_owned()),
        })
    }

    async fn hash_at(&self, height: u64) -> Result<Option<BlockHash>, SourceError> {
        let fields = self.fields_at(height, false).await?;
        Ok(fields.and_then(|fields| fields.hash.get().copied()))
    }

    async fn fields_at(&self, height: u64, is_whole: bool) -> Result<Option<BlockFields>, SourceError> {
        let doing = format!("read the block at height {height} again");
        let question = Question::new("eth_getBlockByNumber", json!([hex(height), is_whole]));
        let answer = self.ask(&doing, &[question]).await?.pop();
        match answer.map(Answer::decode) {
            Some(Ok(fields)) => Ok(fields),
            // Nodes that have dropped old blocks say so in many ways.
            Some(Err(RpcError::Node { .. })) => Ok(None),
            Some(Err(error)) => Err(odd_answer(doing, &error.to_string())),
            None => Err(odd_answer(doing, "no answer")),
        }
    }

    /// The log at a place of a receipt, if it moves something.
    fn logged(&self, place: u32, receipt: &Receipt) -> Result<Option<Moved>, String> {
        let logs = receipt.logs.as_ref().ok_or("its receipt has no logs")?;
        match usize::try_from(place).ok().and_then(|place| logs.get(place)) {
            Some(log) => self.moved_by(log),
            None => Ok(None),
        }
    }

    /// What a log moves: of a token, which the config need not list, or of the coin.
    fn moved_by(&self, log: &LogFields) -> Result<Option<Moved>, String> {
        let needed = |name: &str, fault: Option<String>| format!("{name} {}", fault.unwrap_or_default());
        let contract = log
            .address
            .get()
            .ok_or_else(|| needed("a log's address", log.address.fault()))?;
        let mut words: Vec<[u8; 32]> = Vec::new();
        for topic in log.topics.as_ref().ok_or("a log has no topics")? {
            let Word(word) = topic.get().ok_or_else(|| needed("a topic", topic.fault()))?;
            words.push(*word);
        }
        let Data(data) = log
            .data
            .get()
            .ok_or_else(|| needed("a log's data", log.data.fault()))?;
        let is_unindexed = self
            .rules
            .tokens
            .get(contract)
            .is_some_and(|rule| rule.is_unindexed);
        if words.first().map(|word| Word(*word).to_string()).as_deref() != Some(TRANSFER) {
            return Ok(None);
        }
        let indexed = words.len();
        let (blocks, rest) = data.as_chunks::<32>();
        words.extend(blocks);
        let is_shaped = rest.is_empty() && (indexed == 3 || (indexed == 1 && is_unindexed));
        let [_, from, to, amount] = words.as_slice() else {
            return Ok(None);
        };
        let (Some(from), Some(to), true) = (account(from), account(to), is_shaped) else {
            return Ok(None);
        };
        let asset = match contract.0 == COIN_LOGGER {
            true => Asset::Native,
            false => Asset::Token(contract.0),
        };
        Ok(Some(Moved {
            asset,
            from,
            to,
            amount: Amount::from_be_bytes(*amount),
        }))
    }

    /// Is coin that moves inside transactions logged by the chain at a height?
    fn logs_coin(&self, height: u64) -> bool {
        let sources = self.rules.native.iter().flat_map(|native| &native.inner);
        let reached = sources.rev().find(|(from, _)| *from <= height);
        reached.is_some_and(|(_, inner)| *inner == Inner::Logs)
    }

    /// The inner call at a place, by whichever trace of the one transaction the node has.
    async fn inner(&self, place: u32, txid: Txid) -> Result<Option<Moved>, String> {
        let movements = match self.call_frames(txid).await {
            Ok(movements) => movements,
            Err(why) => match self.flat_frames(txid).await {
                Ok(movements) => movements,
                Err(_) => return Err(format!("no trace of it: {why}")),
            },
        };
        let moved = usize::try_from(place).ok().and_then(|place| movements.get(place));
        Ok(moved.map(|Movement { from, to, amount }| Moved {
            asset: Asset::Native,
            from: *from,
            to: *to,
            amount: *amount,
        }))
    }

    async fn call_frames(&self, txid: Txid) -> Result<Vec<Movement>, String> {
        let params = json!([format!("0x{txid}"), {"tracer": "callTracer"}]);
        let text = self.text("debug_traceTransaction", params).await?;
        trace::of_call_frames(&text)
    }

    async fn flat_frames(&self, txid: Txid) -> Result<Vec<Movement>, String> {
        let text = self
            .text("trace_transaction", json!([format!("0x{txid}")]))
            .await?;
        let frames: Vec<FlatTrace> = serde_json::from_str(text.get()).map_err(|error| error.to_string())?;
        match frames.is_empty() {
            true => Err("it has no frame".to_owned()),
            false => trace::of_flat_traces(&frames),
        }
    }

    async fn text(
        &self,
        method: &'static str,
        params: serde_json::Value,
    ) -> Result<Box<serde_json::value::RawValue>, String> {
        let answers = self.ask(method, &[Question::new(method, params)]).await;
        let answer = answers.map_err(|error| error.to_string())?.pop();
        answer
            .ok_or("no answer")?
            .raw()
            .map_err(|error| error.to_string())
    }

    /// What the transactions of the block at a height offer of the chain's own coin: their values, to the
    /// payee or to the contract that is made.
    ///
    /// # Errors
    /// [`SourceError`]: also where the node has no block there.
    pub async fn coin_again(&self, height: u64) -> Result<CoinAgain, SourceError> {
        let doing = format!("read the block at height {height} again");
        let fields = self.fields_at(height, true).await?;
        let fields = fields.ok_or_else(|| odd_answer(&doing, "the node does not have it"))?;
        let held = tip::held(&fields, &doing)?;
        if held.height != height {
            return Err(odd_answer(doing, &format!("it has height {}", held.height)));
        }
        let mut offers = Vec::new();
        let mut creations = Vec::new();
        for listed in fields.transactions.iter().flatten() {
            let Listed::Whole(tx) = listed else {
                return Err(odd_answer(doing, "a transaction by its hash alone"));
            };
            let Some(txid) = tx.hash.get().copied() else {
                return Err(odd_answer(doing, "a transaction without hash"));
            };
            if tx.value.get().is_some_and(Amount::is_zero) {
                continue;
            }
            let of = Outpoint { txid, vout: 0 };
            match &tx.to {
                Field::Is(to) => offers.push(Offer { of, to: script(to) }),
                _ => creations.push(of),
            }
        }
        let question =
            |of: &Outpoint| Question::new("eth_getTransactionReceipt", json!([format!("0x{}", of.txid)]));
        let questions: Vec<Question> = creations.iter().map(question).collect();
        let answers = self.ask(&doing, &questions).await?;
        for (of, answer) in creations.into_iter().zip(answers) {
            let receipt: Option<Receipt> = read(Some(answer), &doing)?;
            let receipt = receipt.ok_or_else(|| odd_answer(&doing, "a creation without receipt"))?;
            let made = receipt.contract_address.get();
            offers.extend(made.map(|made| Offer { of, to: script(made) }));
        }
        Ok(CoinAgain {
            at: TaggedBlock {
                height,
                hash: held.header.hash,
            },
            header: held.header,
            offers,
        })
    }
}

/// The transaction's own value, and who gets it.
fn own_value(tx: &TxFields, receipt: &Receipt) -> Result<Option<Moved>, String> {
    let missing = |name: &str, fault: Option<String>| format!("{name} {}", fault.unwrap_or_default());
    let to = match &tx.to {
        Field::Is(to) => Some(to),
        Field::Null | Field::Missing => receipt.contract_address.get(),
        Field::Odd(_) => return Err(missing("to", tx.to.fault())),
    };
    let amount = tx.value.get().ok_or_else(|| missing("value", tx.value.fault()))?;
    let from = tx.from.get().copied().unwrap_or(Account([0; 20]));
    Ok(to.filter(|_| !amount.is_zero()).map(|to| Moved {
        asset: Asset::Native,
        from,
        to: *to,
        amount: *amount,
    }))
}

fn paid(at: TaggedBlock, outpoint: Outpoint, moved: Moved, is_success: bool) -> Paid {
    Paid {
        at,
        outpoint,
        script: script(&moved.to),
        asset: moved.asset,
        amount: moved.amount,
        from: Some(script(&moved.from)),
        is_success,
    }
}

fn script(account: &Account) -> Script {
    Script(account.0.into())
}

/// The account in a word that holds nothing else.
fn account(word: &[u8; 32]) -> Option<Account> {
    let (above, account) = word.split_at(12);
    let account = account.try_into().ok().map(Account);
    account.filter(|_| above.iter().all(|byte| *byte == 0))
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn read<T: DeserializeOwned>(answer: Option<Answer>, doing: &str) -> Result<T, SourceError> {
    let answer = answer.ok_or_else(|| odd_answer(doing, "no answer"))?;
    answer
        .decode()
        .map_err(|error| odd_answer(doing, &error.to_string()))
}
