//! Who has what after a block: nonces, coin, and the balances of tokens.

use super::frames::Frame;
use super::tx::{Address, Effects, Signed};
use crate::sandbox::SandboxError;
use ruint::aliases::U256;
use std::collections::BTreeMap;

/// Coin that accounts had before the first block.
pub(super) type Endowment = BTreeMap<Address, U256>;

#[derive(Clone, Default)]
struct Account {
    nonce: u64,
    received: U256,
    spent: U256,
}

/// The accounts after a block.
#[derive(Clone, Default)]
pub(super) struct State {
    accounts: BTreeMap<Address, Account>,
    /// By contract and holder.
    tokens: BTreeMap<(Address, Address), U256>,
}

impl State {
    /// The next nonce of an account.
    pub(super) fn nonce(&self, of: Address) -> u64 {
        self.accounts.get(&of).map_or(0, |account| account.nonce)
    }

    pub(super) fn balance(&self, of: Address, endowment: &Endowment) -> U256 {
        let first = endowment.get(&of).copied().unwrap_or_default();
        match self.accounts.get(&of) {
            // A contract may pay out what it never had: what calls do is only said.
            Some(account) => first
                .saturating_add(account.received)
                .saturating_sub(account.spent),
            None => first,
        }
    }

    pub(super) fn token_balance(&self, contract: Address, holder: Address) -> U256 {
        self.tokens.get(&(contract, holder)).copied().unwrap_or_default()
    }

    /// Runs a transaction as its effects say, or refuses it and changes nothing.
    pub(super) fn run(
        &mut self,
        tx: &Signed,
        effects: &Effects,
        endowment: &Endowment,
    ) -> Result<(), SandboxError> {
        self.charge(tx, effects, endowment)?;
        for (from, to, value) in Frame::of(tx, effects).movements() {
            self.account(from).spend(value);
            self.account(to).receive(value);
        }
        if tx.nonce.is_none() && effects.is_success {
            // The value came along: its sender here had nothing to do with it.
            self.account(tx.tx.from).receive(tx.tx.value);
        }
        if effects.is_success {
            self.move_tokens(effects);
        }
        Ok(())
    }

    /// Takes the nonce and the fee.
    fn charge(&mut self, tx: &Signed, effects: &Effects, endowment: &Endowment) -> Result<(), SandboxError> {
        let Some(nonce) = tx.nonce else {
            return Ok(());
        };
        let from = tx.tx.from;
        let next = self.nonce(from);
        if nonce != next {
            let side = if nonce < next { "low" } else { "high" };
            return Err(SandboxError::Refused(format!(
                "nonce too {side}: {from} has {next} next, not {nonce}"
            )));
        }
        let fee = tx.fee(effects);
        if self.balance(from, endowment) < fee.saturating_add(tx.tx.value) {
            return Err(SandboxError::Funds);
        }
        let account = self.account(from);
        account.nonce = nonce + 1;
        account.spend(fee);
        Ok(())
    }

    fn move_tokens(&mut self, effects: &Effects) {
        for log in &effects.logs {
            let Some((from, to, amount)) = log.as_transfer() else {
                continue;
            };
            let giver = self.tokens.entry((log.address, from)).or_default();
            *giver = giver.saturating_sub(amount);
            let taker = self.tokens.entry((log.address, to)).or_default();
            *taker = taker.saturating_add(amount);
        }
        for (contract, holder, amount) in &effects.token_balances {
            self.tokens.insert((*contract, *holder), *amount);
        }
    }

    fn account(&mut self, of: Address) -> &mut Account {
        self.accounts.entry(of).or_default()
    }
}

impl Account {
    fn spend(&mut self, value: U256) {
        self.spent = self.spent.saturating_add(value);
    }

    fn receive(&mut self, value: U256) {
        self.received = self.received.saturating_add(value);
    }
}
