//! What whoever plays with the EVM node asks of it beside the node's own calls.

use super::chain::Chain;
use super::tx::{Address, Tx};
use super::{EvmSandbox, Mark};
use crate::rules::Txid;
use crate::sandbox::{Place, SandboxError};
use ruint::aliases::U256;

/// A payment of coin or of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The payer.
    pub from: Address,
    /// The payee.
    pub to: Address,
    /// In base units.
    pub amount: U256,
    /// The token's; `None` for coin.
    pub contract: Option<Address>,
}

impl EvmSandbox {
    /// Where a transaction is.
    pub fn place(&self, txid: Txid) -> Place {
        self.node.read(|chain| match chain.mined(&txid) {
            Some((block, _)) => {
                let depth = chain.tip().number - block.number + 1;
                Place::Mined(u32::try_from(depth).unwrap_or(u32::MAX))
            }
            None if chain.pool.get(&txid).is_some() => Place::Waits,
            None => Place::Gone,
        })
    }

    /// Whom a transaction is to pay, and how much; `None` for one that is not known.
    pub fn payment_of(&self, txid: Txid) -> Option<Paid> {
        self.node.read(|chain| {
            let (signed, _) = chain.known(&txid).ok()?;
            let tx = &signed.tx;
            let token = tx.to.zip(token_payment(tx));
            Some(match token {
                Some((contract, (to, amount))) => Paid {
                    from: tx.from,
                    to,
                    amount,
                    contract: Some(contract),
                },
                None => Paid {
                    from: tx.from,
                    to: signed.recipient(),
                    amount: tx.value,
                    contract: None,
                },
            })
        })
    }

    /// What the last blocks hold, in their order.
    pub fn mined_in(&self, depth: u32) -> Vec<Txid> {
        self.node.read(|chain| {
            let tip = chain.tip().number;
            let heights = tip.saturating_sub(depth.into()) + 1..=tip;
            let blocks = heights.filter_map(|height| chain.at(height));
            let txs = blocks.flat_map(|block| block.txs.iter());
            txs.map(|held| held.tx.hash).collect()
        })
    }

    /// The height of the tag `safe`.
    pub fn safe(&self) -> Option<u64> {
        self.tag(|chain| chain.safe)
    }

    /// The height of the tag `finalized`.
    pub fn finalized(&self) -> Option<u64> {
        self.tag(|chain| chain.finalized)
    }

    fn tag(&self, mark: impl FnOnce(&Chain) -> Mark) -> Option<u64> {
        self.node
            .read(|chain| chain.marked(mark(chain)).map(|block| block.number))
    }

    /// Begins anew: a chain as at the start, with the same genesis block, and no trouble. Tokens and coin
    /// that were given to accounts are forgotten.
    ///
    /// # Errors
    /// None that can happen.
    pub fn reset(&self) -> Result<(), SandboxError> {
        self.set_trouble(None, None);
        self.node.change(Chain::begin_again);
        self.mine(super::FIRST_BLOCKS).map(|_| ())
    }
}

/// Payee and amount, where a contract is told to transfer.
fn token_payment(tx: &Tx) -> Option<(Address, U256)> {
    let words = tx.input.strip_prefix(&super::tx::TRANSFER)?;
    let (to, amount) = words.split_at_checked(32)?;
    let (to, amount) = (to.try_into().ok()?, amount.try_into().ok()?);
    Some((Address::of_word(&to), U256::from_be_bytes::<32>(amount)))
}
