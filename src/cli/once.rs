//! `--idempotency-key`: a command that changes something acts once under a key, and answers as the first
//! time. It is done here for all of them: under a key every opening of the database is one transaction, which
//! holds what the command looks at, what it changes and its answer. Start at [`once`].

use super::args::{Chain, Cli, Command, Deposits};
use super::callback_args::{Callbacks, Endpoints};
use super::inbox_args::InboxCommand;
use super::invoice_args::Invoices;
use super::key_args::{Keys, Merchants};
use super::out::{self, Out};
use super::restored_args::Restored;
use super::unattributed_args::Unattributed;
use super::watch_args::Watch;
use super::{Addresses, Outcome, Problem, open};
use crate::clock::millis;
use crate::config::Config;
use crate::store::{
    Database, Keep, Kept, KeptAnswer, KeyScope, OpenMode, ReadTx, StoreError, Whole, WriteTx,
};
use anyhow::Context as _;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _};
use sha2::{Digest as _, Sha256};
use std::cell::RefCell;
use std::rc::Rc;
use thiserror::Error;

/// What a command does to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Nothing.
    No,
    /// It takes its lines one by one, and a line that is known changes nothing.
    ByLines,
    /// Something.
    Yes,
    /// Something, and it makes the database where there is none.
    Makes,
}

fn change(command: &Command) -> Change {
    match command {
        Command::Init { .. }
        | Command::Check
        | Command::Run
        | Command::Tx { .. }
        | Command::Credits(_)
        | Command::Balances(_)
        | Command::Jobs
        | Command::Restored(Restored { reason: None, .. })
        | Command::Backup { .. }
        | Command::Audit(_)
        | Command::Proof(_)
        | Command::Drill(_)
        | Command::Sandbox(_)
        | Command::Trigger(_)
        | Command::Demo { .. }
        | Command::Completions { .. }
        | Command::Man
        | Command::Watch(Watch::List { .. })
        | Command::Deposits(Deposits::List { .. })
        | Command::Chain(Chain::Status)
        | Command::Merchant(Merchants::List)
        | Command::Key(Keys::List)
        | Command::Endpoint(Endpoints::List(_))
        | Command::Callbacks(Callbacks::List(_) | Callbacks::Show { .. })
        | Command::Unattributed(Unattributed::List(_))
        | Command::Addresses(Addresses::Status)
        | Command::Inbox(InboxCommand::List(_) | InboxCommand::Show { .. })
        | Command::Invoices(Invoices::List(_) | Invoices::Show { .. }) => Change::No,
        Command::Watch(Watch::Import { .. }) => Change::ByLines,
        Command::Watch(Watch::Add(_) | Watch::Own(_))
        | Command::Merchant(Merchants::Add { .. })
        | Command::Endpoint(Endpoints::Add(_)) => Change::Makes,
        Command::Deposits(Deposits::Hold(_) | Deposits::Release(_))
        | Command::Chain(Chain::AcceptReorg(_))
        | Command::Key(Keys::Create(_) | Keys::Revoke { .. })
        | Command::Endpoint(
            Endpoints::Pause(_)
            | Endpoints::Resume(_)
            | Endpoints::RotateSecret { .. }
            | Endpoints::Test { .. },
        )
        | Command::Callbacks(Callbacks::Retry(_))
        | Command::Unattributed(Unattributed::Close(_))
        | Command::Addresses(Addresses::Repin(_))
        | Command::Inbox(InboxCommand::Retry { .. })
        | Command::Invoices(Invoices::Cancel { .. })
        | Command::Rescan(_)
        | Command::Restored(Restored { reason: Some(_), .. }) => Change::Yes,
    }
}

/// A command under a key.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    scope: KeyScope,
    fingerprint: [u8; 32],
    makes: bool,
}

impl Keyed {
    /// The key that was typed, if it is for something. Without `--apply` nothing is changed, and no key used
    /// up.
    pub(super) fn of(cli: &Cli, typed: &ArgMatches) -> Result<Option<Keyed>, Problem> {
        let Some(text) = &cli.idempotency_key else {
            return Ok(None);
        };
        let (words, leaf, options) = leaf(typed);
        let makes = match change(&cli.command) {
            Change::No => {
                let text = format!("`creditd {words}` changes nothing in the database");
                return Err(Problem::misuse(text, "leave out --idempotency-key"));
            }
            Change::ByLines => {
                let text = format!("`creditd {words}` takes its lines one by one, and needs no key");
                let next = "leave out --idempotency-key: a line that is known already changes nothing";
                return Err(Problem::misuse(text, next));
            }
            Change::Yes => false,
            Change::Makes => true,
        };
        let key = KeyScope::read_key(text).ok_or_else(|| {
            Problem::misuse(
                "--idempotency-key is no key",
                format!("give {}", KeyScope::KEY_FORM),
            )
        })?;
        if options.iter().any(|name| name == "apply") && !leaf.get_flag("apply") {
            out::note("creditd: nothing is kept under the key: that comes with --apply");
            return Ok(None);
        }
        let scope = KeyScope {
            owner: 0,
            method: "CLI".to_owned(),
            path: words,
            key,
        };
        Ok(Some(Keyed {
            fingerprint: fingerprint(leaf, options, cli.json),
            scope,
            makes,
        }))
    }

    fn kept(&self, tx: &ReadTx<'_>) -> Result<Option<KeptAnswer>, anyhow::Error> {
        match tx.kept_answer(&self.scope, &self.fingerprint, open::now_ms())? {
            Kept::Nothing => Ok(None),
            Kept::Answer(answer) => Ok(Some(answer)),
            Kept::OtherRequest => Err(other_arguments(&self.scope).into()),
        }
    }
}

fn other_arguments(scope: &KeyScope) -> Problem {
    Problem::misuse(
        format!(
            "the key {:?} was used for `creditd {}` with other arguments, and nothing was changed now",
            scope.key, scope.path
        ),
        "take a new key for each thing to do, or repeat the command as it was, --json included",
    )
}

/// The command's words, what was typed behind them, and the names of its options.
fn leaf(typed: &ArgMatches) -> (String, &ArgMatches, Vec<String>) {
    let (mut words, mut leaf, mut command) = (Vec::new(), typed, Cli::command());
    while let Some((word, below)) = leaf.subcommand() {
        words.push(word.to_owned());
        leaf = below;
        command = command.find_subcommand(word).cloned().unwrap_or_default();
    }
    let mut options: Vec<String> = command
        .get_arguments()
        .map(|option| option.get_id().to_string())
        .collect();
    options.sort_unstable();
    (words.join(" "), leaf, options)
}

/// Of all that was typed, in the order of names: an option that a later version adds changes nothing.
fn fingerprint(leaf: &ArgMatches, options: Vec<String>, is_json: bool) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    // An answer is kept in the one form in which it was given.
    add(if is_json { b"json" } else { b"text" });
    for name in options {
        if leaf.value_source(&name) != Some(ValueSource::CommandLine) {
            continue;
        }
        add(name.as_bytes());
        let values: Vec<_> = leaf.get_raw(&name).into_iter().flatten().collect();
        add(&(values.len() as u64).to_be_bytes());
        values.iter().for_each(|value| add(value.as_encoded_bytes()));
    }
    hash.finalize().into()
}

/// Somebody else was faster: the answer of the first.
#[derive(Debug, Error)]
#[error("the command was run before")]
struct Answered(KeptAnswer);

/// Runs a command once for all that come with its key.
pub(super) fn once(
    config: &Config,
    keyed: Keyed,
    is_json: bool,
    command: impl FnOnce(&mut Out) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    if let Some(answer) = known(config, &keyed)? {
        return again(&answer, is_json);
    }
    let mut out = Out::kept(is_json);
    UNDER_KEY.set(Some(UnderKey {
        keyed: keyed.clone(),
        whole: None,
    }));
    let outcome = command(&mut out);
    let whole = UNDER_KEY.take().and_then(|under| under.whole);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        // All that it wrote goes with the transaction.
        Err(error) => {
            return match error.downcast::<Answered>() {
                Ok(Answered(answer)) => again(&answer, is_json),
                Err(error) => Err(error),
            };
        }
    };
    let answer = KeptAnswer {
        status: u16::from(outcome == Outcome::Found),
        body: out.into_text(),
    };
    if let Some(whole) = whole {
        let now = open::now_ms();
        let keep = Keep::until(now.saturating_add(millis(config.api.idempotency_keep)));
        // Whoever still had a part in it could write after the answer.
        let whole = Rc::into_inner(whole).context("the command still works on its transaction")?;
        let mut whole = whole.into_inner();
        whole.write(now, |tx| {
            tx.keep_answer(&keyed.scope, &keyed.fingerprint, &answer, &keep)
        })?;
        whole.commit()?;
    }
    print(&answer, is_json, false)
}

/// What is kept under the key, before anything is looked up or made for the command.
fn known(config: &Config, keyed: &Keyed) -> anyhow::Result<Option<KeptAnswer>> {
    match Database::open(&config.database, OpenMode::ReadOnly) {
        Ok(database) => {
            let mut kept = Ok(None);
            database.read(|tx| {
                kept = keyed.kept(tx);
                Ok(())
            })?;
            kept
        }
        // The command says what it thinks of that.
        Err(_) => Ok(None),
    }
}

fn again(answer: &KeptAnswer, is_json: bool) -> anyhow::Result<Outcome> {
    out::note("creditd: done before under this key: this is the answer of then, and nothing was changed now");
    print(answer, is_json, true)
}

/// In JSON the answer says itself whether it was given before.
fn print(answer: &KeptAnswer, is_json: bool, is_replayed: bool) -> anyhow::Result<Outcome> {
    let text = match answer.body.strip_prefix("{\n") {
        Some(rest) if is_json => format!("{{\n  \"is_replayed\": {is_replayed},\n{rest}"),
        Some(_) | None => answer.body.clone(),
    };
    Out::new(is_json).bytes(text.as_bytes())?;
    Ok(match answer.status {
        0 => Outcome::Done,
        _ => Outcome::Found,
    })
}

thread_local! {
    /// The command of this process, if it runs under a key.
    static UNDER_KEY: RefCell<Option<UnderKey>> = const { RefCell::new(None) };
}

struct UnderKey {
    keyed: Keyed,
    whole: Option<Rc<RefCell<Whole>>>,
}

/// Whether the command runs under a key, and holds everybody else's writes up until it ends.
pub(super) fn is_under_key() -> bool {
    UNDER_KEY.with_borrow(Option::is_some)
}

/// The database as a command has it: its own, or under a key one transaction for all that it does.
#[derive(Debug)]
pub(super) enum Opened {
    /// Each piece of work is a transaction.
    Own(Box<Database>),
    /// All of it is one.
    Whole(Rc<RefCell<Whole>>),
}

impl Opened {
    /// Opens it as `own` does, or takes part in the transaction of the command.
    pub(super) fn by(
        config: &Config,
        own: impl FnOnce(&Config) -> anyhow::Result<Database>,
    ) -> anyhow::Result<Opened> {
        let Some((keyed, whole)) = UNDER_KEY
            .with_borrow(|under| Some((under.as_ref()?.keyed.clone(), under.as_ref()?.whole.clone())))
        else {
            return Ok(Opened::Own(Box::new(own(config)?)));
        };
        if let Some(whole) = whole {
            return Ok(Opened::Whole(whole));
        }
        let database = match keyed.makes {
            true => open::plain_maker(config)?,
            false => open::plain_writer(config)?,
        };
        let whole = Whole::begin(database)?;
        let mut kept = Ok(None);
        whole.read(|tx| {
            kept = keyed.kept(tx);
            Ok(())
        })?;
        if let Some(answer) = kept? {
            return Err(Answered(answer).into());
        }
        let whole = Rc::new(RefCell::new(whole));
        UNDER_KEY.with_borrow_mut(|under| {
            if let Some(under) = under {
                under.whole = Some(whole.clone());
            }
        });
        Ok(Opened::Whole(whole))
    }

    /// As [`Database::read`].
    pub(super) fn read<T>(
        &self,
        work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self {
            Opened::Own(database) => database.read(work),
            Opened::Whole(whole) => whole.borrow().read(work),
        }
    }

    /// As [`Database::write`].
    pub(super) fn write<T>(
        &mut self,
        now_ms: i64,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self {
            Opened::Own(database) => database.write(now_ms, work),
            Opened::Whole(whole) => whole.borrow_mut().write(now_ms, work),
        }
    }
}
