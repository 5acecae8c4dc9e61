//! Every fault of `[[evm]]`: what is said of it.

use super::{SMALL, faults};

/// One row per fault: what is replaced in [`SMALL`], by what, and what is then said.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "instance = \"shop-test\"",
        "",
        "line 2: evm[0].instance: missing, allowed: 1 to 32 of a-z, 0-9 and -, such as \"shop-1\"; chains \
         with the id 31337 are started anew at will, so yours needs a name for ever",
    ),
    (
        "chain_id = 31337",
        "chain_id = 0",
        "line 4: evm[0].chain_id: found 0, allowed: the chain's number, 1 or more",
    ),
    // A chain without a confirmation count.
    (
        "[[evm.token.policy]]\nconfirmations = 3",
        "",
        "line 9: evm[0].token[0].policy: missing, allowed: at least one [[evm.token.policy]] with \
         confirmations; there is no default",
    ),
    (
        "confirmations = 3",
        "confirmations = 0",
        "line 14: evm[0].token[0].policy[0].confirmations: found 0, allowed: a whole number from 1 to 128 \
         (reorg_window), \"safe\" or \"finalized\"",
    ),
    (
        "confirmations = 3",
        "confirmations = \"latest\"",
        "line 14: evm[0].token[0].policy[0].confirmations: found \"latest\", allowed: a whole number from 1 \
         to 128 (reorg_window), \"safe\" or \"finalized\"",
    ),
    (
        "confirmations = 3",
        "confirmations = \"finalized\"\nbelow = \"5\"\n[[evm.token.policy]]\nconfirmations = 100",
        "line 17: evm[0].token[0].policy[1].confirmations: a larger sum cannot need less than a smaller one",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\nbelow = \"5\"",
        "line 15: evm[0].token[0].policy[0].below: the last tier must have no `below`: larger sums would \
         have no tier",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\n[[evm.token.policy]]\nconfirmations = 4",
        "line 13: evm[0].token[0].policy[0].below: only the last tier has no `below`",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\nbelow = \"0\"\n[[evm.token.policy]]\nconfirmations = 4",
        "line 15: evm[0].token[0].policy[0].below: `below` must rise from tier to tier and be more than 0",
    ),
    (
        "confirmations = 3",
        "confirmations = 3\nbelow = \"0.0000001\"\n[[evm.token.policy]]\nconfirmations = 4",
        "line 15: evm[0].token[0].policy[0].below: found \"0.0000001\", allowed: a text of whole units such \
         as \"0.05\"",
    ),
    (
        "0xdddddddddddddddddddddddddddddddddddddddd",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed",
        "line 10: evm[0].token[0].contract: found \"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed\", checksum \
         does not fit: a letter is wrong, missing or in the wrong case",
    ),
    (
        "0xdddddddddddddddddddddddddddddddddddddddd",
        "0xdd",
        "line 10: evm[0].token[0].contract: found \"0xdd\", not an address of an EVM chain: 0x and 40 hex \
        digits",
    ),
    (
        "0xdddddddddddddddddddddddddddddddddddddddd",
        "0x0000000000000000000000000000000000000000",
        "line 10: evm[0].token[0].contract: the zero address is no contract",
    ),
    (
        "decimals = 6",
        "",
        "line 9: evm[0].token[0].decimals: missing, allowed: a whole number from 0 to 77; the contract's \
         decimals() says it",
    ),
    (
        "[[evm.endpoint]]\nname = \"own\"\nurl = \"http://127.0.0.1:8545\"",
        "",
        "line 2: evm[0].endpoint: found 0, allowed: 1 to 16 [[evm.endpoint]]",
    ),
    (
        "[[evm.token]]",
        "[[evm.endpoint]]\nname = \"own\"\nurl = \"http://127.0.0.1:8546\"\n[[evm.token]]",
        "line 10: evm[0].endpoint[1].name: \"own\" is there twice",
    ),
    (
        "[[evm.token]]",
        "[[evm.endpoint]]\nname = \"two\"\nurl = \"http://127.0.0.1:8545/\"\n[[evm.token]]",
        "line 11: evm[0].endpoint[1].url: the same as that of endpoint \"own\"",
    ),
    (
        "chain_id = 31337",
        "chain_id = 31337\nquorum = 2",
        "line 5: evm[0].quorum: found 2, allowed: a whole number from 1 to 1, the number of endpoints",
    ),
    (
        "[[evm.token]]",
        "[evm.native]\n\
         symbol = \"ETH\"\npolicy = [ { confirmations = 3 } ]\n\
         [[evm.token]]",
        "line 9: evm[0].native.inner: missing, allowed: \"traces\", \"eip7708\" or \"none\"",
    ),
    (
        "[[evm.token]]",
        "[evm.native]\n\
         symbol = \"ETH\"\ninner = \"traces\"\nsweep_ms = 500\npolicy = [ { confirmations = 3 } ]\n\
         [[evm.token]]",
        "line 12: evm[0].native.sweep_ms: only allowed with inner = \"none\"",
    ),
    (
        "[[evm.token]]",
        "[evm.native]\n\
         symbol = \"ETH\"\ninner = \"none\"\ntrace_method = \"auto\"\npolicy = [ { confirmations = 3 } ]\n\
         [[evm.token]]",
        "line 12: evm[0].native.trace_method: only allowed with inner = \"traces\"",
    ),
    (
        "[[evm.token]]",
        "[evm.native]\n\
         symbol = \"ETH\"\ninner = \"none\"\ncontract = \"0xDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD\"\n\
         policy = [ { confirmations = 3 } ]\n\
         [[evm.token]]",
        "line 15: evm[0].token[0].contract: the chain's own coin under another interface (native.contract): \
         it is counted there",
    ),
    (
        "[[evm.token]]",
        "[evm.native]\n\
         symbol = \"TUSD\"\ninner = \"none\"\npolicy = [ { confirmations = 3 } ]\n\
         [[evm.token]]",
        "line 15: evm[0].token[0].symbol: \"TUSD\" is taken",
    ),
];

#[test]
fn each_fault_names_key_finding_and_remedy() {
    for (from, to, expected) in FAULTS {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from:?} is not in the config");
        assert_eq!(faults(&text), [*expected], "{from:?} -> {to:?}");
    }
}
