//! `creditd demo`: the whole job in one command, with no node at all. A simulated node, the real daemon as a
//! child process on a real database, and payments that are replaced, lost and brought back; each line is what
//! happened on the chain or what creditd made of it. [`run`] is the story; it fails when anything in it is
//! not as it must be.

mod books;
mod child;
mod evm;
mod receiver;
mod stage;

use crate::clock::Clock;
use crate::sandbox::{Sandbox, SandboxError};
use crate::store::StoreError;
use crate::store::report::{DeliveryFilter, Page};
use stage::{Stage, Who, short};
use thiserror::Error;

/// More rows than any list here has.
const WHOLE_LIST: Page = Page {
    after: None,
    limit: 1_000,
};

/// Why the demonstration could not go on.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The operating system refused a file, a thread or a process.
    #[error("set up the demonstration")]
    System(#[from] std::io::Error),
    /// The simulated node did not do what was asked.
    #[error("move the simulated chain")]
    Sandbox(#[from] SandboxError),
    /// creditd's database cannot be read.
    #[error("read creditd's database")]
    Store(#[from] StoreError),
    /// A command refused.
    #[error("creditd {line}: {why}")]
    Command {
        /// Its arguments.
        line: String,
        /// What it said.
        why: String,
    },
    /// The daemon ended by itself.
    #[error("the daemon ended by itself; the end of its log:\n{0}")]
    Ended(String),
    /// Something that must come did not.
    #[error("waited in vain for {what}; the end of the daemon's log:\n{log}")]
    InVain {
        /// What.
        what: String,
        /// The end of the daemon's log.
        log: String,
    },
    /// Ctrl-C.
    #[error("stopped by Ctrl-C")]
    Interrupted,
}

/// Shows everything. True if all of it was as it must be. With `is_kept` it stays up afterwards.
///
/// # Errors
/// [`DemoError`] when it could not be shown to the end.
pub fn run(is_kept: bool) -> Result<bool, DemoError> {
    let mut stage = Stage::open(Clock::real())?;
    let stage = &mut stage;
    set_up(stage)?;
    payment(stage)?;
    replacement(stage)?;
    reorg_away_and_back(stage)?;
    kill_and_restart(stage)?;
    evm::story(stage)?;
    same_callback_twice(stage)?;
    stage.heading("The books");
    books::show(stage)?;
    stage.heading("All of it once more, three times");
    books::prove(stage)?;
    let seconds = stage.seconds();
    if is_kept {
        keep(stage);
    }
    let is_clean = stage.creditd.stop()?;
    stage.expect("the daemon stops in good order", is_clean);
    match stage.faults {
        0 => stage.print(&format!("\nAll of it was as it must be ({seconds} s).")),
        1 => stage.print("\nOne thing was not as it must be."),
        faults => stage.print(&format!("\n{faults} things were not as they must be.")),
    }
    Ok(stage.faults == 0)
}

/// Starts the daemon and watches an address for each order.
fn set_up(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("A node, and creditd beside it");
    let (url, height) = (stage.sandbox.url().to_owned(), stage.sandbox.height());
    stage.say(Who::Chain, &format!("a simulated node at {url}, height {height}"));
    stage.creditd.start()?;
    let database = stage.creditd.database();
    stage.until_tip()?;
    stage.say(
        Who::Creditd,
        &format!("follows it; its database is {}", database.display()),
    );
    let receiver = stage.receiver.url.clone();
    let args = ["endpoint", "add", &receiver, "--merchant", "shop"];
    let added = stage.creditd.json(&args)?;
    let is_trusted = stage.receiver.trust(added["secret"].as_str().unwrap_or_default());
    stage.say(Who::Hand, &format!("$ creditd {}", args.join(" ")));
    stage.expect("the receiver has a secret to verify callbacks with", is_trusted);
    for order in ["order-1", "order-2", "order-3", "order-4"] {
        stage.watch("btc", &Sandbox::address(order), order)?;
    }
    Ok(())
}

/// Seen, in a block, deep enough.
fn payment(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("A payment: credited at 3 confirmations");
    pay(stage, "order-1", 29_000_000)?;
    stage.mine(1)?;
    stage.until_event("deposit.confirming", "order-1")?;
    stage.mine(1)?;
    stage.say(Who::Creditd, "order-1 has 2 of 3 confirmations: nothing to tell");
    stage.mine_alone(1)?;
    stage.until_event("credit.created", "order-1")?;
    stage.until_received()?;
    let credits = stage.count("credit.created", "order-1");
    stage.expect("order-1 is credited once", credits == 1);
    Ok(())
}

fn pay(stage: &mut Stage, order: &str, sat: u64) -> Result<(), DemoError> {
    let address = Sandbox::address(order);
    let whole = in_coins(sat);
    stage.act(
        |sandbox| sandbox.pay(&address, sat),
        |txid| format!("{whole} BTC sent for {order}: {}", short(&txid.to_string())),
    )?;
    stage.until_event("deposit.seen", order)
}

/// Satoshi as people write them.
fn in_coins(sat: u64) -> String {
    let text = format!("{}.{:08}", sat / 100_000_000, sat % 100_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A payer who raises the fee: two transactions, one payment.
fn replacement(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("A replacement: the payer raises the fee");
    let address = Sandbox::address("order-2");
    let first = stage.act(
        |sandbox| sandbox.pay(&address, 50_000_000),
        |txid| format!("0.5 BTC sent for order-2: {}", short(&txid.to_string())),
    )?;
    stage.until_event("deposit.seen", "order-2")?;
    stage.act(
        |sandbox| sandbox.replace(first, &address, 50_000_000),
        |txid| format!("the same again with a higher fee: {}", short(&txid.to_string())),
    )?;
    stage.until_event("deposit.replaced", "order-2")?;
    stage.until_event("deposit.seen", "order-2")?;
    stage.mine_alone(3)?;
    stage.until_event("credit.created", "order-2")?;
    stage.until_received()?;
    let credits = stage.count("credit.created", "order-2");
    stage.expect(
        "two transactions were sent for order-2 and one is credited",
        credits == 1,
    );
    Ok(())
}

/// A branch without the payment wins, then the first branch wins again.
fn reorg_away_and_back(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("A reorg takes a credited payment away");
    pay(stage, "order-3", 100_000_000)?;
    stage.mine_alone(3)?;
    stage.until_event("credit.created", "order-3")?;
    stage.until_received()?;
    let old_tip = stage.sandbox.tip();
    stage.act(
        |sandbox| sandbox.reorg(3, &[]),
        |_| "3 blocks give way to 4 others, and none of them holds the payment".to_owned(),
    )?;
    stage.until_event("credit.reversed", "order-3")?;
    stage.until_event("deposit.seen", "order-3")?;
    stage.until_received()?;
    let net = stage.last_net("order-3");
    stage.expect("the books follow: order-3 nets 0", net.as_deref() == Some("0"));

    stage.heading("Another one brings it back");
    stage.act(
        |sandbox| sandbox.mine_on(old_tip, 2),
        |_| "2 more blocks on the first branch: it has the most work again".to_owned(),
    )?;
    stage.until_event("credit.reinstated", "order-3")?;
    stage.until_tip()?;
    stage.until_received()?;
    let net = stage.last_net("order-3");
    let credits = stage.count("credit.created", "order-3");
    stage.expect(
        "order-3 nets 1 again, by the same credit",
        net.as_deref() == Some("1") && credits == 1,
    );
    Ok(())
}

/// The block that makes a payment due comes while nobody runs.
fn kill_and_restart(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("kill -9, and a restart");
    pay(stage, "order-4", 7_000_000)?;
    stage.mine_alone(1)?;
    stage.until_event("deposit.confirming", "order-4")?;
    stage.creditd.kill9();
    stage.say(Who::Hand, "kill -9; the blocks that make it due come meanwhile");
    stage.mine_alone(2)?;
    stage.creditd.start()?;
    stage.say(Who::Hand, "$ creditd run");
    stage.until_event("credit.created", "order-4")?;
    stage.creditd.kill9();
    stage.say(Who::Hand, "kill -9, right behind the credit");
    stage.creditd.start()?;
    stage.say(Who::Hand, "$ creditd run");
    stage.mine(1)?;
    stage.until_received()?;
    let credits = stage.count("credit.created", "order-4");
    stage.expect("order-4 is credited once", credits == 1);
    Ok(())
}

/// The first callback of order-1's credit was stored and then answered with an error, so it comes again.
fn same_callback_twice(stage: &mut Stage) -> Result<(), DemoError> {
    stage.heading("The same callback twice");
    stage.say(
        Who::Receiver,
        "the first one about order-1's credit was answered with 500, so it must come again",
    );
    stage.until("every callback to be delivered", |stage| {
        let open = stage.read(|tx| tx.list_deliveries(&DeliveryFilter::default(), WHOLE_LIST))?;
        Ok(open.iter().all(|delivery| delivery.row.state == "delivered"))
    })?;
    let failed = stage.event("credit.created", "order-1");
    let repeats = failed.as_deref().map_or(0, |id| stage.receiver.repeats_of(id));
    stage.expect(
        "at least once, with the same id and bytes: the receiver books it once",
        repeats > 0,
    );
    Ok(())
}

/// Leaves everything up, with what to try.
fn keep(stage: &mut Stage) {
    stage.heading("Yours until Ctrl-C. In another terminal:");
    let (exe, config) = (stage.creditd.exe().display(), stage.creditd.config_file());
    let address = Sandbox::address("order-5");
    let call = format!(
        "curl -s --user \"$(cat {})\" {} -d",
        stage.sandbox.cookie_file().display(),
        stage.sandbox.url()
    );
    let json = |method: &str, params: &str| {
        format!("'{{\"id\": 1, \"method\": \"{method}\", \"params\": [{params}]}}'")
    };
    let (tip, miner) = (stage.sandbox.tip(), format!("\"{}\"", Sandbox::address("miner")));
    stage.print(&format!(
        "  alias creditd='{exe} --config {}'\n\
         \x20 creditd chain status\n\
         \x20 creditd deposits list\n\
         \x20 creditd watch add {address} --chain btc --merchant shop --reference order-5\n\n\
         pay it and mine a block:\n\
         \x20 {call} {}\n\
         \x20 {call} {}\n\n\
         take back the block that is the last one now, and all above it; a shorter branch counts for\n\
         nothing, so mine more blocks beside it, and see where the payment is then:\n\
         \x20 {call} {}\n\
         \x20 {call} {}\n\
         \x20 creditd deposits list\n\n\
         Ctrl-C ends it all and removes the folder.\n\n\
         config, database and log: {}",
        config.display(),
        json("sendtoaddress", &format!("\"{address}\", \"0.1\"")),
        json("generatetoaddress", &format!("1, {miner}")),
        json("invalidateblock", &format!("\"{tip}\"")),
        json("generatetoaddress", &format!("3, {miner}")),
        stage.folder().display(),
    ));
    stage.until_interrupt();
}
