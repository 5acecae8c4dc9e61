//! Payments of a token on both nodes, mined again in another order after a reorg, and replaced.

use creditd::rules::Txid;
use creditd::sandbox::evm::{Address, Log, Nonce, Stale, Token, Tx, U256};
use serde_json::{Value, json};

use super::{FAILING, Hashes, PLAIN, Pair, at};
use crate::common::contracts::{self, Arg, address, address_word, uint};

const DECIMALS: u8 = 6;

/// `transfer` and `pay` of the token, as fields of a transaction, and as what the sandbox is told.
struct Paid {
    tx: Tx,
    fields: Value,
}

impl Paid {
    fn of(pair: &Pair, token: &contracts::Token, from: &str, to: &[(&str, u64)]) -> Paid {
        let contract = at(&token.address);
        let data = match to {
            [(to, amount)] => token
                .contract
                .call_data("transfer", &[address(to), uint((*amount).into())]),
            several => {
                let several: Vec<(&str, u128)> = several
                    .iter()
                    .map(|(to, amount)| (*to, (*amount).into()))
                    .collect();
                token.contract.call_data("pay", &contracts::payments(&several))
            }
        };
        let mut tx = Tx::pay(at(from), contract, U256::ZERO);
        tx.input = const_hex::decode(&data).unwrap();
        let log = |(to, amount): &(&str, u64)| Log::transfer(contract, at(from), at(to), U256::from(*amount));
        tx.effects.logs = to.iter().map(log).collect();
        let nonce = pair.theirs.next_nonce(from);
        tx.nonce = Nonce::Given(nonce);
        let fields = json!({"from": from, "to": token.address, "data": data, "gas": "0x40000"});
        Paid { tx, fields }
    }

    fn send(self, pair: &Pair) -> Hashes {
        pair.send(self.tx, &self.fields)
    }
}

/// The token at the same address on both, all of it with the payer; one block each.
fn issue(pair: &Pair) -> contracts::Token {
    let token = contracts::Token::deploy(&pair.theirs, "TST", DECIMALS);
    let contract = at(&token.address);
    let symbol = "TST".to_owned();
    let decimals = DECIMALS;
    pair.ours.set_token(contract, Token { decimals, symbol });
    let deployment = Tx::pay(at(&pair.payer), at(PLAIN), U256::ZERO);
    pair.ours.send(deployment).unwrap();
    pair.ours.mine(1).unwrap();

    let payer = at(&pair.payer);
    let mint = token
        .contract
        .call_data("mint", &[Arg::Address(pair.payer.clone()), uint(1_000)]);
    let mut tx = Tx::pay(payer, contract, U256::ZERO);
    tx.input = const_hex::decode(&mint).unwrap();
    let issued = Log::transfer(contract, Address::ZERO, payer, U256::from(1_000));
    tx.effects.logs.push(issued);
    let fields = json!({"from": pair.payer, "to": token.address, "data": mint, "gas": "0x40000"});
    pair.send(tx, &fields);
    pair.ours.mine(1).unwrap();
    pair.theirs.mine(1);
    token
}

/// What the token says of itself at a block, and what it refuses to say.
fn same_token(pair: &mut Pair, token: &contracts::Token, hashes: &Hashes) {
    let balance = |of: &str| format!("0x70a08231{}", address_word(of));
    for data in [
        "0x313ce567".to_owned(),
        "0x95d89b41".to_owned(),
        balance(PLAIN),
        balance(FAILING),
        balance(&pair.payer),
        "0x12345678".to_owned(),
        "0x".to_owned(),
    ] {
        let asked = json!({"to": token.address, "data": data});
        pair.with_hash("eth_call", hashes, |hash| json!([asked, {"blockHash": hash}]));
        pair.same("eth_call", json!([asked, "latest"]));
        pair.same("eth_call", json!([asked, "pending"]));
    }
    let to_plain = format!("0x{}", address_word(PLAIN));
    for topics in [json!([]), json!([null, null, to_plain]), json!([null, to_plain])] {
        pair.with_hash(
            "eth_getLogs",
            hashes,
            |hash| json!([{"blockHash": hash, "address": token.address, "topics": topics}]),
        );
    }
}

fn txid(hashes: &Hashes) -> Txid {
    Txid::from_hex(&hashes.0.as_str().unwrap()[2..]).unwrap()
}

#[test]
fn simulated_evm_node_mines_token_payments_again_as_a_real_one_does() {
    let mut pair = Pair::start();
    let token = issue(&pair);
    let (payer, other) = (pair.payer.clone(), pair.theirs.account(1));
    pair.ours
        .endow(at(&other), U256::from(1_000_000_000_000_000_000_u64));
    let first = Paid::of(&pair, &token, &payer, &[(PLAIN, 5)]).send(&pair);
    let several = [(PLAIN, 7), (FAILING, 8), (PLAIN, 9)];
    let batch = Paid::of(&pair, &token, &payer, &several).send(&pair);
    let mut failed = Paid::of(&pair, &token, &other, &[(PLAIN, 5_000)]);
    failed.tx.effects.logs.clear();
    failed.tx.effects.is_success = false;
    let failed = failed.send(&pair);
    let sent = [first, batch, failed];
    pair.ours.mine_with(&sent.each_ref().map(txid)).unwrap();
    pair.theirs.mine(1);
    let old = pair.block_hashes(3);
    pair.same_transactions(&sent);
    pair.same_block(&old);
    same_token(&mut pair, &token, &old);
    let before = pair.block_hashes(2);
    same_token(&mut pair, &token, &before);

    // 2 - (first, batch, failed)   becomes   2 - (failed, first) - ()
    let kept = [&sent[2], &sent[0]];
    let ours = kept.map(txid);
    let tip = pair.ours.reorg(1, &ours).unwrap();
    pair.ours.set_tip(tip, Stale::Forgotten).unwrap();
    // Anvil forgets what a reorg drops; in the sandbox, as in other nodes, it waits again.
    let dropped = txid(&sent[1]);
    assert_eq!(pair.ours.pool(), [dropped]);
    assert!(pair.ours.evict(dropped));
    let theirs = kept.map(|hashes| hashes.1.as_str().unwrap());
    pair.theirs.reorg_keeping(1, &theirs);
    pair.theirs.mine(1);
    let new = pair.block_hashes(3);
    assert_ne!(old.0, new.0);
    pair.same_transactions(&[sent[2].clone(), sent[0].clone()]);
    pair.same_block(&new);
    same_token(&mut pair, &token, &new);
    let empty = pair.block_hashes(4);
    pair.same_block(&empty);
    pair.same_block(&old);
    same_token(&mut pair, &token, &old);
    pair.must_agree();
}
