//! The part of the story that only an EVM chain can tell: a payout with several token payments in one
//! transaction, coin that a contract sends, the same transaction run again by a reorg with another outcome,
//! and a payment that fails.

use super::DemoError;
use super::stage::{Stage, Who, short};
use crate::address::EvmAddress;
use crate::sandbox::evm::{Address, CallKind, Effects, EvmSandbox, InnerCall, Log, Token, Tx, Txid, U256};

/// The chain id of local development nodes.
pub(super) const CHAIN_ID: u64 = 31_337;

/// Digits after the point of the demonstration's token.
pub(super) const TOKEN_DECIMALS: u8 = 6;

/// One whole token.
const WHOLE: u64 = 1_000_000;

/// The contract of the demonstration's token.
pub(super) fn token() -> Address {
    Address::of("TUSD")
}

fn router() -> Address {
    Address::of("router")
}

/// An address as creditd prints it.
pub(super) fn printed(address: Address) -> String {
    EvmAddress(address.0).to_string()
}

/// A node with a token and somebody who has plenty of it.
pub(super) fn prepare(sandbox: &EvmSandbox) {
    let rich = Token {
        decimals: TOKEN_DECIMALS,
        symbol: "TUSD".to_owned(),
    };
    sandbox.set_token(token(), rich);
    sandbox.endow(router(), U256::from(u128::MAX >> 1));
}

/// The section of creditd's config.
pub(super) fn config(sandbox: &EvmSandbox) -> String {
    let url = serde_json::Value::from(sandbox.url()).to_string();
    format!(
        "\n[[evm]]\nalias = \"evm\"\nchain_id = {CHAIN_ID}\ninstance = \"demo\"\npoll_ms = 100\n\
         pending_ms = 100\nreorg_window = 144\n\n\
         [[evm.endpoint]]\nname = \"sandbox\"\nurl = {url}\n\n\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\n\n\
         [[evm.native.policy]]\nconfirmations = 3\n\n\
         [[evm.token]]\ncontract = \"{}\"\nsymbol = \"TUSD\"\ndecimals = {TOKEN_DECIMALS}\n\n\
         [[evm.token.policy]]\nconfirmations = 3\n",
        printed(token()),
    )
}

/// Tells it.
pub(super) fn story(stage: &mut Stage) -> Result<(), DemoError> {
    watch(stage)?;
    let payout = payout(stage)?;
    rerun(stage, payout)?;
    failure(stage)
}

fn watch(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("Beside it an EVM chain, with its coin and a token");
    let (url, height) = (stage.evm.url(), stage.evm.height());
    stage.say(Who::Chain, &format!("a simulated node at {url}, height {height}"));
    stage.until_evm_tip()?;
    for order in ["order-6", "order-7", "order-8", "order-9"] {
        stage.watch("evm", &printed(Address::of(order)), order)?;
    }
    Ok(())
}

fn paid(order: &str, whole: u64) -> Log {
    let amount = U256::from(whole * WHOLE);
    Log::transfer(token(), router(), Address::of(order), amount)
}

/// A log that is nobody's payment.
fn other_log() -> Log {
    Log {
        address: router(),
        topics: vec![[7; 32]],
        data: Vec::new(),
    }
}

fn half_a_coin() -> U256 {
    U256::from(500_000_000_000_000_000_u64)
}

/// One transaction pays two orders tokens and a third one coin.
fn payout(stage: &mut Stage) -> Result<Txid, DemoError> {
    stage.heading("One transaction, three payments");
    let mut tx = Tx::pay(EvmSandbox::payer(), router(), U256::ZERO);
    tx.effects.logs = vec![other_log(), paid("order-6", 5), paid("order-7", 7)];
    tx.effects.calls = vec![InnerCall::new(
        CallKind::Call,
        Address::of("order-8"),
        half_a_coin(),
    )];
    let txid = stage.act_evm(
        |sandbox| sandbox.send(tx),
        |txid| {
            format!(
                "a contract pays 5 TUSD for order-6, 7 TUSD for order-7, and 0.5 ETH by an inner call for \
                 order-8: {}",
                short(&txid.to_string())
            )
        },
    )?;
    stage.mine_evm(3)?;
    for order in ["order-6", "order-7", "order-8"] {
        stage.until_event("credit.created", order)?;
    }
    stage.until_received()?;
    let credits: usize = ["order-6", "order-7", "order-8"]
        .iter()
        .map(|order| stage.count("credit.created", order))
        .sum();
    stage.expect("each payment of the transaction is credited once", credits == 3);
    Ok(txid)
}

/// The same transaction in another block, where it does something else.
fn rerun(stage: &mut Stage, payout: Txid) -> Result<(), DemoError> {
    stage.heading("A reorg runs the same transaction again, with another outcome");
    let rerun = Effects {
        // Both token payments are one log later; order-7 gets 1 less; order-8 as before.
        logs: vec![other_log(), other_log(), paid("order-6", 5), paid("order-7", 6)],
        calls: vec![InnerCall::new(
            CallKind::Call,
            Address::of("order-8"),
            half_a_coin(),
        )],
        ..Effects::default()
    };
    stage.act_evm(
        |sandbox| {
            sandbox.set_effects(payout, rerun)?;
            sandbox.reorg(3, &[payout])
        },
        |_| {
            "3 blocks give way to 4 others: there order-6 is paid by another log, and order-7 gets 6"
                .to_owned()
        },
    )?;
    stage.until_event("credit.reversed", "order-6")?;
    stage.until_event("credit.reversed", "order-7")?;
    stage.until_event("credit.created", "order-7")?;
    stage.until_event("deposit.held", "order-6")?;
    stage.until_received()?;
    stage.expect(
        "the books follow: order-7 nets 6, and order-8, paid as before, was never touched",
        stage.net("order-7") == u128::from(6 * WHOLE)
            && stage.net("order-8") == half_a_coin().to::<u128>()
            && stage.count("credit.reversed", "order-8") == 0,
    );
    stage.expect(
        "order-6 waits for an operator: where it is paid now, something else was credited before",
        stage.net("order-6") == 0,
    );
    release(stage)
}

/// The operator looks, and it is right.
fn release(stage: &mut Stage) -> Result<(), DemoError> {
    let held = stage
        .creditd
        .json(&["deposits", "list", "--held", "--chain", "evm"])?;
    let id = held["deposits"][0]["id"].as_str().unwrap_or_default().to_owned();
    let args = ["deposits", "release", &id, "--reason", "checked", "--apply"];
    stage.creditd.answer(&args)?;
    stage.say(Who::Hand, &format!("$ creditd {}", args.join(" ")));
    stage.mine_evm(1)?;
    stage.until_event("credit.created", "order-6")?;
    stage.until_evm_tip()?;
    stage.until_received()?;
    let net = stage.net("order-6");
    stage.expect("order-6 nets 5 again", net == u128::from(5 * WHOLE));
    Ok(())
}

/// Mined, and failed: nothing was paid.
fn failure(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("A payment that fails");
    let mut tx = Tx::pay(EvmSandbox::payer(), Address::of("order-9"), half_a_coin());
    tx.effects = Effects::failed();
    stage.act_evm(
        |sandbox| sandbox.send(tx),
        |txid| format!("0.5 ETH sent for order-9: {}", short(&txid.to_string())),
    )?;
    stage.until_event("deposit.seen", "order-9")?;
    stage.mine_evm(3)?;
    stage.until_event("deposit.failed", "order-9")?;
    stage.until_evm_tip()?;
    stage.until_received()?;
    let credits = stage.count("credit.created", "order-9");
    stage.expect("a mined transaction that failed is no payment", credits == 0);
    Ok(())
}
