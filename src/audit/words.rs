//! What does not agree, in words.

use super::ground::Standing;
use crate::address;
use crate::rules::audit::{Booked, BookedDeposit, Claim, FindingKind};
use crate::rules::{Amount, Asset, Outpoint, Paid, Script, position};

/// `0.1 BTC (10000000)`
fn amount(standing: &Standing, asset: Asset, amount: Amount) -> String {
    match standing.assets.get(&asset) {
        Some((symbol, decimals)) => format!("{} {symbol} ({amount})", amount.to_units_string(*decimals)),
        None => match asset {
            Asset::Native => format!("{amount} of the chain's coin"),
            Asset::Token(contract) => format!("{amount} of token 0x{}", const_hex::encode(contract)),
        },
    }
}

pub(super) fn address(standing: &Standing, script: &Script) -> String {
    let chain = &standing.chain;
    address::print_on(&chain.id, chain.genesis.as_ref(), script)
        .unwrap_or_else(|| const_hex::encode(&script.0))
}

fn hash(standing: &Standing, hash: impl std::fmt::Display) -> String {
    standing.chain.id.print(&hash)
}

/// An outpoint; of EVM chains with what its number stands for.
pub(super) fn outpoint(standing: &Standing, outpoint: &Outpoint) -> String {
    let txid = hash(standing, outpoint.txid);
    match standing.chain.id.is_evm() {
        true => format!("{txid} {}", position::words(outpoint.vout)),
        false => format!("{txid}:{}", outpoint.vout),
    }
}

/// Of a credit.
pub(super) fn of_credit(
    standing: &Standing,
    kind: FindingKind,
    claim: &Claim,
    shown: Option<&Paid>,
) -> String {
    let books = format!(
        "{} to {}",
        amount(standing, claim.asset, claim.amount),
        address(standing, &claim.script)
    );
    let at = outpoint(standing, &claim.outpoint);
    let Some(paid) = shown else {
        return format!(
            "the books say {books} in block {}, and the best chain has no {at}",
            claim.height
        );
    };
    match kind {
        FindingKind::OtherBlock => {
            let ours = claim
                .hash
                .map_or_else(String::new, |ours| format!(" {}", hash(standing, ours)));
            format!(
                "the chain has {at} in block {} {}, the books in block {}{ours}",
                paid.at.height,
                hash(standing, paid.at.hash),
                claim.height,
            )
        }
        FindingKind::NotSuccessful => {
            format!(
                "the books say {books}, and the transaction of {at} failed in block {}",
                paid.at.height
            )
        }
        _ => format!(
            "the chain pays {} to {} at {at}, the books say {books}",
            amount(standing, paid.asset, paid.amount),
            address(standing, &paid.script)
        ),
    }
}

/// Of a payment.
pub(super) fn of_paid(standing: &Standing, kind: FindingKind, paid: &Paid, booked: &Booked) -> String {
    let chain = format!(
        "{} to {} in block {}",
        amount(standing, paid.asset, paid.amount),
        address(standing, &paid.script),
        paid.at.height
    );
    match (kind, &booked.output, &booked.deposit) {
        (FindingKind::NotSuccessful, _, _) => {
            format!(
                "its transaction failed in block {}, and the books count it",
                paid.at.height
            )
        }
        (FindingKind::OtherContent, Some(output), _) => format!(
            "the chain pays {chain}, the books say {} to {}",
            amount(standing, output.asset, output.amount),
            address(standing, &output.script)
        ),
        (FindingKind::OtherBlock, Some(output), _) => match output.heights.as_slice() {
            [] => format!("the chain pays {chain}, and the books have it in no block"),
            [height, ..] => format!("the chain pays {chain}, the books have it in block {height}"),
        },
        (FindingKind::NotInternal, _, _) => {
            format!("{chain} is booked as a move of the merchant's own coin, and it spends coin of others")
        }
        (_, _, Some(deposit)) => {
            format!(
                "the chain pays {chain}, the books say that it is {}",
                deposit.state.word()
            )
        }
        (_, Some(_), None) => format!("{chain}: no deposit"),
        (_, None, None) => {
            let from = booked.from.unwrap_or_default();
            format!("{chain}, which counts from {from}: no deposit")
        }
    }
}

/// Of what is due.
pub(super) fn of_waiting(standing: &Standing, deposit: &BookedDeposit) -> String {
    format!(
        "due at height {}, creditd is at {}, and it is not credited",
        deposit.due.unwrap_or_default(),
        standing.reach.cursor
    )
}
