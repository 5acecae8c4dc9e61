//! `proof`.

use super::ids;
use super::once::Opened;
use super::open;
use super::out::{self, Out};
use super::proof_args::{Proof, ProofCommand, Required, Verify};
use super::{Outcome, Problem};
use crate::audit::proof::{self, FILE_BYTES_MAX, Level, More, PrintError, Verified, VerifyError};
use crate::clock::Clock;
use crate::config::Config;
use crate::rules::{Outpoint, Txid};
use crate::store::StoreError;
use crate::store::report::DepositStory;
use serde::Serialize;
use std::io::Read;

/// How many blocks `worked` asks for where nobody says.
const USUAL_BLOCKS: u64 = 6;

/// Positions of one execution of a transaction on an EVM chain.
const EXECUTION: u64 = 1 << 40;

#[derive(Serialize)]
struct AnswerJson {
    credit: Option<String>,
    chain_id: Option<String>,
    txid: Option<String>,
    vout: Option<u64>,
    address: Option<String>,
    amount: Option<String>,
    amount_base: Option<String>,
    asset: Option<String>,
    block_hash: Option<String>,
    block_height: Option<u64>,
    level: Option<Level>,
    why: String,
    is_included: bool,
    blocks: Option<u64>,
    work: Option<String>,
    anchored_by: Option<String>,
    reaches: Option<String>,
    failed: Option<&'static str>,
    missing: Option<String>,
    is_good: bool,
}

/// Prints a proof, or looks at one. Whatever the answer, what is only told is no proof.
pub(super) fn proof(
    out: &mut Out,
    load: impl FnOnce() -> anyhow::Result<Config>,
    args: &Proof,
) -> anyhow::Result<Outcome> {
    let credit = match (&args.command, &args.credit) {
        (Some(ProofCommand::Verify(verify)), _) => return check(out, verify),
        (None, Some(credit)) => credit,
        (None, None) => return Err(Problem::misuse("no credit is named", "name one: cr_...").into()),
    };
    let config = load()?;
    let credit = &credit_of(&config, credit)?;
    let database = open::plain_reader(&config)?;
    let more = More {
        is_from_checkpoint: args.from_checkpoint,
        blocks: args.blocks,
    };
    let file = match proof::print((&config, Clock::real()), &database, credit, more) {
        Ok(printed) => {
            printed.notes.iter().for_each(|note| out::note(note));
            printed.file
        }
        Err(PrintError::None(why, next)) => return Err(Problem::found(why, next.words()).into()),
        Err(PrintError::Node(why)) => {
            let next = "ask again when a node has it; `creditd chain status` says how the nodes are";
            return Err(Problem::misuse(why, next).into());
        }
        Err(error @ (PrintError::Store(_) | PrintError::Secret(_))) => return Err(error.into()),
    };
    out.json(&file)?;
    Ok(match file.level {
        Level::Proved => Outcome::Done,
        Level::Told => {
            out::note(&format!(
                "{credit} is not proved, only told by the node: {}",
                file.why
            ));
            Outcome::Found
        }
    })
}

/// The whole id of the credit that was typed. What is something else is told by what it is, with its credits.
fn credit_of(config: &Config, typed: &str) -> anyhow::Result<String> {
    if typed.starts_with("cr_") {
        ids::refuse_short(typed)?;
        return ids::whole_in(config, typed);
    }
    let database = open::reader(config)?;
    let (what, of) = match (open::outpoint(typed), open::txid(typed)) {
        (Some(outpoint), _) => ("an output", Of::Output(outpoint)),
        (None, Some(txid)) => ("a transaction", Of::Transaction(txid)),
        (None, None) if typed.starts_with("dep_") => {
            ids::refuse_short(typed)?;
            ("a deposit", Of::Deposit(ids::whole(&database, typed)?))
        }
        (None, None) => {
            let next = "name a credit, cr_...: `creditd credits` lists them";
            return Err(Problem::misuse(format!("{typed:?} is no credit's id"), next).into());
        }
    };
    Err(no_credit(typed, what, of.credits(&database)?).into())
}

/// What was typed in the place of a credit.
enum Of {
    Transaction(Txid),
    Output(Outpoint),
    Deposit(String),
}

impl Of {
    /// The ids of its credits; `None` where the books do not have it.
    fn credits(&self, database: &Opened) -> Result<Option<Vec<String>>, StoreError> {
        database.read(|tx| {
            let txid = match self {
                Of::Transaction(txid) => Some(*txid),
                Of::Output(outpoint) => Some(outpoint.txid),
                Of::Deposit(id) => tx.deposit(id)?.map(|deposit| deposit.outpoint.txid),
            };
            let Some(txid) = txid else {
                return Ok(None);
            };
            let stories = tx.tx_story(&txid)?;
            let outputs: Vec<_> = stories.iter().flat_map(|story| &story.outputs).collect();
            let deposits = outputs.iter().filter_map(|output| output.deposit.as_ref());
            let is_meant = |story: &&DepositStory| match self {
                Of::Transaction(_) => true,
                Of::Output(outpoint) => story.deposit.outpoint == *outpoint,
                Of::Deposit(id) => story.deposit.id == *id,
            };
            let credits = deposits
                .filter(is_meant)
                .filter_map(|story| story.credit.as_ref());
            let credits = credits.map(|credit| credit.id.clone()).collect();
            Ok((!stories.is_empty()).then_some(credits))
        })
    }
}

/// Credits that are named at most where one of them is meant.
const NAMED_MAX: usize = 10;

fn no_credit(typed: &str, what: &str, credits: Option<Vec<String>>) -> Problem {
    let Some(credits) = credits else {
        let next = "`creditd credits` lists the credits that there are";
        return Problem::found(format!("nothing is known of {typed}"), next);
    };
    let named = credits.iter().take(NAMED_MAX).map(String::as_str);
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match credits.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match credits.as_slice() {
        [] => Problem::found(
            format!("{typed} is {what} that has no credit, so there is nothing to prove"),
            format!("`creditd tx {typed}` says what becomes of it"),
        ),
        [one] => Problem::misuse(
            format!("{typed} is {what}, and a proof is of a credit: it has {one}"),
            format!("`creditd proof {one}`"),
        ),
        [first, ..] => Problem::misuse(
            format!("{typed} is {what}, and a proof is of one credit: it has {named}{more}"),
            format!("`creditd proof {first}`, or of another; `creditd tx {typed}` says what each is of"),
        ),
    }
}

fn check(out: &mut Out, args: &Verify) -> anyhow::Result<Outcome> {
    let mut text = String::new();
    let file: std::io::Result<Box<dyn Read>> = match args.file.as_os_str() == "-" {
        true => Ok(Box::new(std::io::stdin())),
        false => std::fs::File::open(&args.file).map(|file| Box::new(file) as Box<dyn Read>),
    };
    // One more than it may have, so that a longer one is seen to be.
    let most = FILE_BYTES_MAX as u64 + 1;
    let read = file.and_then(|file| file.take(most).read_to_string(&mut text));
    if let Err(error) = read {
        let what = format!("{} cannot be read: {error}", args.file.display());
        return Err(Problem::misuse(what, "name a file that `creditd proof` printed").into());
    }
    let verified = match proof::verify(&text, &args.trust) {
        Ok(verified) => verified,
        Err(VerifyError::Unreadable(error)) => {
            let what = format!("{}: {error}", args.file.display());
            return Err(Problem::misuse(what, "name a file that `creditd proof` printed").into());
        }
        Err(VerifyError::False(fault)) => return say_false(out, fault.check, fault.why),
    };
    if let Some(asked) = args.chain.as_ref().filter(|asked| **asked != verified.chain) {
        let why = format!("it is of {}, not of {asked}", verified.chain);
        return say_false(out, "chain", why);
    }
    let missing = missing(args, &verified);
    let is_good = missing.is_none();
    match out.json {
        true => out.json(&answer(&verified, missing))?,
        false => tell(out, args, &verified, missing)?,
    };
    Ok(match is_good {
        true => Outcome::Done,
        false => Outcome::Found,
    })
}

fn say_false(out: &mut Out, check: &'static str, why: String) -> anyhow::Result<Outcome> {
    if out.json {
        out.json(&refused(check, why))?;
    } else {
        out.line(format!("FALSE  {check}  {why}"))?;
        out.done()?;
    }
    Ok(Outcome::Found)
}

/// What a good file does not show of what is required, if anything.
fn missing(args: &Verify, verified: &Verified) -> Option<String> {
    if !verified.is_included() {
        return Some(format!(
            "included: a node told it so ({}); ask a node or an explorer of your choice",
            verified.why
        ));
    }
    // Whoever says how much work asks for it.
    if asks_for_work(args)
        && let Some(why) = not_worked(args, verified)
    {
        return Some(format!("worked: {why}"));
    }
    // And whoever trusts a block asks for what it vouches for.
    let asks_for_anchor = args.require == Required::Anchored || !args.trust.is_empty();
    (asks_for_anchor && verified.anchored.is_none()).then(|| {
        "anchored: no block from the payment's on is one that you trust; --trust HASH names one that another \
         node or explorer has"
            .to_owned()
    })
}

fn asks_for_work(args: &Verify) -> bool {
    args.require == Required::Worked || args.blocks.is_some() || args.hashes.is_some()
}

fn not_worked(args: &Verify, verified: &Verified) -> Option<String> {
    let wanted = args.blocks.unwrap_or(USUAL_BLOCKS);
    let hashes = args.hashes;
    let hashes = hashes.unwrap_or_else(|| proof::usual_work(&verified.chain, wanted));
    match verified.worked {
        None => Some(
            "proof of work is not checked on EVM chains; --require anchored, with --trust HASH".to_owned(),
        ),
        Some((blocks, _)) if blocks < wanted => Some(format!(
            "{blocks} of {wanted} blocks; `creditd proof CREDIT --blocks {wanted}` prints more"
        )),
        Some((_, work)) if work < hashes => Some(format!(
            "{} of {} hashes; more blocks show more, --hashes asks for less",
            proof::work_words(work),
            proof::work_words(hashes)
        )),
        Some(_) => None,
    }
}

/// Yes or no only where somebody has said how much is enough.
fn worked_words(args: &Verify, verified: &Verified) -> String {
    let Some((blocks, work)) = verified.worked else {
        return "no: proof of work is not checked on EVM chains".to_owned();
    };
    let answer = match (asks_for_work(args), not_worked(args, verified)) {
        (false, _) => "",
        (true, None) => "yes: ",
        (true, Some(_)) => "no: ",
    };
    let what = if blocks == 1 { "block" } else { "blocks" };
    format!(
        "{answer}{blocks} {what}, {} hashes expected",
        proof::work_words(work)
    )
}

/// Which payment of its transaction.
fn place(verified: &Verified) -> String {
    let vout = verified.vout;
    match verified.chain.is_evm() {
        true => format!(
            "position {}, execution {}",
            vout & (EXECUTION - 1),
            vout / EXECUTION
        ),
        false => format!("output {vout}"),
    }
}

fn tell(
    out: &mut Out,
    args: &Verify,
    verified: &Verified,
    missing: Option<String>,
) -> anyhow::Result<Outcome> {
    let Verified { claim, chain, .. } = verified;
    out.line(format!(
        "credit {}: {} to {} in block {} of {chain}",
        verified.credit,
        verified.amount(),
        verified.address,
        claim.block.height
    ))?;
    let txid = chain.print(claim.outpoint.txid);
    out.field("payment", format!("{} of {txid}", place(verified)))?;
    let block = chain.print(claim.block.hash);
    out.field(
        "included",
        match (verified.level, &verified.worked) {
            (Level::Proved, Some(_)) => format!(
                "yes: transaction, branch of {}, coinbase of height {}",
                verified.depth, claim.block.height
            ),
            (Level::Proved, None) => format!("yes: transaction and receipt, branch of {}", verified.depth),
            (Level::Told, _) => format!("no: a node told it so ({})", verified.why),
        },
    )?;
    out.field("worked", worked_words(args, verified))?;
    out.field(
        "anchored",
        match (&verified.anchored, &verified.worked) {
            (None, Some(_)) if verified.reaches.is_some() => {
                "no: it goes down to a block that everybody knows, with work alone above it (--trust)"
                    .to_owned()
            }
            (Some(hash), _) => format!("yes: by block {}, which is trusted", chain.print(hash)),
            (None, Some(_)) => "no: it names no block that you trust (--trust)".to_owned(),
            (None, None) if verified.level == Level::Told => {
                "no: nothing binds a node's word to a block".to_owned()
            }
            (None, None) => format!("no: compare block {block} elsewhere, and --trust it"),
        },
    )?;
    let doubt = match chain.is_evm() {
        true => "that block is on the chain",
        false => "that branch is the best one today",
    };
    out.line(format!(
        "not told by this file: whether {doubt}, and whether the credit was reversed since"
    ))?;
    if let Some(missing) = missing {
        out.line(format!("NOT ENOUGH  {missing}"))?;
    }
    out.done()
}

fn answer(verified: &Verified, missing: Option<String>) -> AnswerJson {
    let Verified { claim, chain, .. } = verified;
    AnswerJson {
        credit: Some(verified.credit.clone()),
        chain_id: Some(chain.to_string()),
        txid: Some(chain.print(claim.outpoint.txid)),
        vout: Some(verified.vout),
        address: Some(verified.address.clone()),
        amount: verified.units(),
        amount_base: Some(claim.amount.to_string()),
        asset: Some(verified.asset()),
        block_hash: Some(chain.print(claim.block.hash)),
        block_height: Some(claim.block.height),
        level: Some(verified.level),
        why: verified.why.clone(),
        is_included: verified.is_included(),
        blocks: verified.worked.map(|(blocks, _)| blocks),
        work: verified.worked.map(|(_, work)| proof::work_words(work)),
        anchored_by: verified.anchored.map(|hash| chain.print(hash)),
        reaches: verified.reaches.map(|hash| chain.print(hash)),
        failed: None,
        is_good: missing.is_none(),
        missing,
    }
}

fn refused(check: &'static str, why: String) -> AnswerJson {
    AnswerJson {
        credit: None,
        chain_id: None,
        txid: None,
        vout: None,
        address: None,
        amount: None,
        amount_base: None,
        asset: None,
        block_hash: None,
        block_height: None,
        level: None,
        why,
        is_included: false,
        blocks: None,
        work: None,
        anchored_by: None,
        reaches: None,
        failed: Some(check),
        missing: None,
        is_good: false,
    }
}
