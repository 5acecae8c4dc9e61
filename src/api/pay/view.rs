//! What the page of an invoice shows, as values: two that are equal look the same.

use super::standing::{Standing, Wait, slowest, standing, wait};
use crate::address::{EvmAddress, Network};
use crate::clock::rfc3339;
use crate::config::{ChainConfig, Config};
use crate::rules::chain_state::ChainState;
use crate::rules::invoice::Mark;
use crate::rules::policy::{Policy, Requirement};
use crate::rules::{Amount, Asset};
use crate::store::{ChainRow, Invoice, InvoicePayment, ReadTx, StoreError};

/// Payments that are listed; the newest where there are more.
const PAYMENTS_MAX: usize = 20;

/// The page of an invoice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) standing: Standing,
    /// Whole units of all that was asked for, with the symbol.
    pub(super) amount: String,
    /// What is still asked for, in whole units without the symbol.
    pub(super) missing: String,
    pub(super) symbol: String,
    /// What came and counts, waiting or not, with the symbol; `None` = nothing.
    pub(super) came: Option<String>,
    /// What came beyond the amount, with the symbol.
    pub(super) too_much: String,
    /// Something came, counted or not.
    pub(super) has_payments: bool,
    pub(super) wait: Option<Wait>,
    /// What a payment that is in no block yet will need.
    pub(super) needs: Option<Requirement>,
    pub(super) reference: String,
    pub(super) network: String,
    /// The token's contract.
    pub(super) contract: Option<String>,
    pub(super) address: Option<String>,
    pub(super) uri: Option<String>,
    pub(super) expires_at: i64,
    /// Newest first.
    pub(super) payments: Vec<PaymentView>,
    /// The chain is not followed right now.
    pub(super) is_delayed: bool,
}

/// A payment of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PaymentView {
    pub(super) amount: String,
    pub(super) txid: String,
    /// `None` of one that is credited.
    pub(super) wait: Option<Wait>,
    /// It does not count for this invoice.
    pub(super) is_unassigned: bool,
}

/// Everything that a page is made of.
pub(super) struct Read {
    invoice: Invoice,
    payments: Vec<InvoicePayment>,
    chain: Option<ChainRow>,
}

impl Read {
    /// Reads the invoice of a token; `None` = there is none.
    pub(super) fn by_token(tx: &ReadTx<'_>, token: &str) -> Result<Option<Read>, StoreError> {
        let Some(invoice) = tx.invoice_by_token(token)? else {
            return Ok(None);
        };
        Ok(Some(Read {
            payments: tx.invoice_payments(&invoice)?,
            chain: tx.chain(&invoice.chain_id)?,
            invoice,
        }))
    }
}

impl View {
    pub(super) fn new(config: &Config, read: Read, now_ms: i64) -> View {
        let Read {
            invoice,
            payments,
            chain,
        } = read;
        let units = |amount: Amount| amount.to_units_string(invoice.decimals);
        let with_symbol = |amount: Amount| format!("{} {}", units(amount), invoice.symbol);
        let standing = standing(&invoice.terms, &invoice.status, now_ms);
        let come = invoice.status.paid.saturating_add(invoice.status.pending);
        let tip = chain.as_ref().and_then(|row| Some(row.cursor.as_ref()?.height));
        let is_live = |payment: &&InvoicePayment| payment.mark.is_some();
        let live = payments.iter().rev().filter(is_live);
        let shown = live.map(|payment| PaymentView::new(&invoice, payment, tip));
        View {
            standing,
            amount: with_symbol(invoice.terms.amount),
            missing: units(invoice.asked_for()),
            came: (!come.is_zero()).then(|| with_symbol(come)),
            too_much: with_symbol(invoice.overpaid()),
            has_payments: payments.iter().any(|payment| payment.mark.is_some()),
            wait: slowest(&payments, tip),
            needs: policy(config, &invoice)
                .map(|policy| policy.required(come).raised_to(invoice.confirmations)),
            network: network(&invoice, chain.as_ref()),
            contract: match invoice.kind {
                Asset::Native => None,
                Asset::Token(contract) => Some(EvmAddress(contract).to_string()),
            },
            uri: invoice.payment_uri().filter(|_| standing.is_asking()),
            expires_at: invoice.terms.expires_at,
            payments: shown.take(PAYMENTS_MAX).collect(),
            is_delayed: chain.is_none_or(|row| row.state != ChainState::Following),
            symbol: invoice.symbol,
            reference: invoice.reference,
            address: invoice.address,
        }
    }

    /// Milliseconds until its time is over.
    pub(super) fn left_ms(&self, now_ms: i64) -> i64 {
        self.expires_at.saturating_sub(now_ms).max(0)
    }

    /// When its time is over, for people.
    pub(super) fn expiry(&self) -> String {
        let text = rfc3339(self.expires_at);
        match (text.get(..10), text.get(11..19)) {
            (Some(day), Some(time)) => format!("{day} {time} UTC"),
            _ => text,
        }
    }
}

impl PaymentView {
    fn new(invoice: &Invoice, payment: &InvoicePayment, tip: Option<u64>) -> PaymentView {
        let deposit = &payment.deposit;
        let amount = deposit.amount.to_units_string(deposit.decimals);
        PaymentView {
            amount: format!("{amount} {}", deposit.symbol),
            txid: invoice.chain_id.print(deposit.outpoint.txid),
            wait: wait(payment, tip),
            is_unassigned: payment.mark == Some(Mark::Unassigned),
        }
    }
}

/// The name that tells a payer's wallet which network is meant.
fn network(invoice: &Invoice, chain: Option<&ChainRow>) -> String {
    let genesis = chain.and_then(|row| row.genesis.as_ref());
    match (invoice.chain_id.evm_id(), genesis.and_then(Network::of_genesis)) {
        (Some(chain_id), _) => match chain {
            Some(row) => format!("{} (chain {chain_id})", row.alias),
            None => format!("chain {chain_id}"),
        },
        (None, Some(Network::Main)) => "Bitcoin".to_owned(),
        (None, Some(network)) => format!("Bitcoin {network} (test coins)"),
        (None, None) => chain.map_or_else(String::new, |row| row.alias.clone()),
    }
}

/// The policy of what the invoice asks for.
fn policy<'c>(config: &'c Config, invoice: &Invoice) -> Option<&'c Policy> {
    let chain = config.chains().find(|chain| *chain.chain() == invoice.chain_id)?;
    match (chain, invoice.kind) {
        (ChainConfig::Bitcoin(chain), _) => Some(&chain.policy),
        (ChainConfig::Evm(chain), Asset::Native) => chain.native.as_ref().map(|native| &native.policy),
        (ChainConfig::Evm(chain), Asset::Token(contract)) => {
            let token = chain.tokens.iter().find(|token| token.contract.0 == contract);
            token.map(|token| &token.policy)
        }
    }
}
