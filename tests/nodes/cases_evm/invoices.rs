//! C18: an invoice is paid by exactly its amount, whatever the decimals of its token.

use creditd::rules::Amount;
use creditd::rules::amount::AmountError;

use super::{CHAIN_ID, Chain, mine};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;

/// An address of nobody.
fn payee(number: usize) -> String {
    format!("0x{:040x}", 0xbeef_0000 + number)
}

#[test]
fn c18_invoices_in_tokens_of_any_decimals_are_paid_to_the_last_unit() {
    let node = AnvilNode::start(CHAIN_ID);
    let cases: [(u8, &str, u128); 4] = [
        (0, "3", 3),
        (6, "10.5", 10_500_000),
        (8, "10.5", 1_050_000_000),
        (18, "10.5", 10_500_000_000_000_000_000),
    ];
    let tokens = cases.map(|(decimals, ..)| {
        let token = Token::deploy(&node, &format!("T{decimals}"), decimals);
        token.mint(&node, &node.account(1), u128::MAX);
        token
    });
    node.mine(1);
    let chain = tokens
        .iter()
        .zip(cases)
        .fold(Chain::at(&node.url()), |chain, (token, (decimals, ..))| {
            chain.token(&token.address, &format!("T{decimals}"), decimals)
        });
    let daemon = chain.follow(&node);
    let mut invoices = Vec::new();
    for (place, (decimals, units, _)) in cases.into_iter().enumerate() {
        for number in [2 * place, 2 * place + 1] {
            let address = payee(number);
            daemon.json(&["watch", "add", &address, "--merchant", "shop", "--chain", "dev"]);
            invoices.push(daemon.invoice(&address, &format!("T{decimals}"), units));
        }
    }
    mine(&node, &daemon, 1);
    for (place, (token, (_, _, raw))) in tokens.iter().zip(cases).enumerate() {
        token.transfer(&node, &node.account(1), &payee(2 * place), raw);
        token.transfer(&node, &node.account(1), &payee(2 * place + 1), raw - 1);
    }
    mine(&node, &daemon, 6);
    for (place, (decimals, _, raw)) in cases.into_iter().enumerate() {
        let exact = daemon.wait_invoice(&invoices[2 * place], "settled", "paid");
        assert_eq!(exact["paid_base"], raw.to_string(), "T{decimals}");
        assert_eq!(exact["overpaid_base"], "0");
        let less = daemon.wait_invoice(&invoices[2 * place + 1], "open", "partial");
        assert_eq!(
            less["paid_base"],
            (raw - 1).to_string(),
            "T{decimals}: short of one unit"
        );
        assert_eq!(less["required_base"], raw.to_string());
    }
    // More digits than the token has are refused, never rounded.
    let refused = Amount::from_units_str("10.1234567", 6);
    assert_eq!(refused, Err(AmountError::TooPrecise { decimals: 6 }));
    daemon.assert_sound();
}
