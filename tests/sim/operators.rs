//! Operators: what they do by commands, each the verb of the store that the command calls, on a handle of
//! their own; and what they do to the daemon and its files, which is up to the runner of the seed.

use crate::disk::{Folder, as_others, looking};
use crate::life::{Ended, Life};
use crate::marks;
use crate::script::OpAct;
use crate::scripted::Hook;
use crate::setting::Setting;
use crate::world::rules::{self, LATE, LATE_MERCHANT};
use crate::world::{Chain, Touched, World};
use creditd::store::report::{EndpointFilter, Filter, Page};
use creditd::store::{
    AddressKind, Backfill, ChainKey, Database, Declaration, Declared, NewAddress, OpenMode, ReadTx, Resend,
    StoreError, WriteTx,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Heights that an operator looks back for a block that both branches have.
const LOOKED_BACK: u64 = 400;

/// A handle is opened anew after so many commands.
const COMMANDS_PER_HANDLE: u32 = 8;

/// What an operator does next, which needs the daemon stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    Nothing,
    /// A clean stop and a start.
    Reopen,
    /// The same, and what starts is of the next version.
    Upgrade,
    /// A stop, an old copy in the place of the database, a start.
    Restore {
        slot: u8,
        wal: bool,
    },
    /// Another daemon in the place of this one, which is frozen meanwhile and goes on beside it: see
    /// [`thaw`].
    Thaw,
}

/// What came of an act.
#[derive(Debug)]
pub struct Did {
    pub touched: Option<Touched>,
    pub wants: Wants,
    /// What must not be, by the name of what it contradicts.
    pub wrong: Option<(&'static str, String)>,
}

impl Did {
    fn nothing() -> Did {
        Did {
            touched: None,
            wants: Wants::Nothing,
            wrong: None,
        }
    }

    fn done(touched: impl Into<Touched>) -> Did {
        Did {
            touched: Some(touched.into()),
            ..Did::nothing()
        }
    }

    fn wants(wants: Wants, touched: impl Into<Touched>) -> Did {
        Did {
            wants,
            ..Did::done(touched)
        }
    }
}

/// The operators of a seed.
#[derive(Debug)]
pub struct Operators {
    pub setting: Setting,
    database: PathBuf,
    handle: Option<Database>,
    commands: u32,
    /// Deposits that were held or released by hand, in whatever database.
    pub decided: BTreeSet<String>,
}

impl Operators {
    pub fn new(folder: &Folder, setting: Setting) -> Operators {
        Operators {
            setting,
            database: folder.database(),
            handle: None,
            commands: 0,
            decided: BTreeSet::new(),
        }
    }

    /// The machine that the daemon ran on has stopped too, or its files are another's now.
    pub fn let_go(&mut self) {
        self.handle = None;
    }

    /// Does an act while the daemon runs.
    pub fn act(&mut self, act: OpAct, folder: &Folder, world: &mut World, life: &Life) -> Did {
        let at_ms = life.now_ms();
        match act {
            OpAct::Watch { late } => {
                let chain = world.chain(late / 3);
                self.told(at_ms, |tx| watch(tx, chain, late))
            }
            OpAct::WatchDuring { call, late } => self.watch_during(call, late, world, at_ms),
            OpAct::Hold { of } => self.deposit(of, false, at_ms),
            OpAct::Release { of } => self.deposit(of, true, at_ms),
            OpAct::Rescan { from, backfill } => self.rescan((from, backfill), world, at_ms),
            OpAct::AcceptReorg => self.accept_reorg(world, at_ms),
            OpAct::EditPolicy(policy) => {
                if self.setting.policy == policy {
                    return Did::nothing();
                }
                self.setting.policy = policy;
                marks::hit("policy_edited");
                Did::wants(Wants::Reopen, format!("policy {policy}"))
            }
            OpAct::ListToken => self.list_token(true),
            OpAct::UnlistToken => {
                let did = self.list_token(false);
                if did.touched.is_some() {
                    world.unlist();
                }
                did
            }
            OpAct::Backup(slot) => match folder.back_up(slot) {
                Ok(()) => Did::done(format!("backup {slot}")),
                Err(_) => Did::nothing(),
            },
            OpAct::Restore { slot, wal } => {
                Did::wants(Wants::Restore { slot, wal }, format!("backup {slot} is put back"))
            }
            OpAct::Restored => self.told(at_ms, |tx| {
                let declaration = Declaration {
                    reason: "simulated".to_owned(),
                    addresses: None,
                    is_again: false,
                };
                Ok(match tx.declare_restore(&declaration)? {
                    Declared::Began(generation) => Some(format!("generation {generation}")),
                    Declared::UnderWay(_) | Declared::Before(_) => None,
                })
            }),
            OpAct::RetryCallbacks => self.told(at_ms, |tx| {
                let mut count = 0;
                let all = Page {
                    after: None,
                    limit: u32::MAX,
                };
                for listed in tx.list_endpoints(&EndpointFilter::default(), all)? {
                    count += tx.retry_endpoint(&listed.row.id, Resend::Undelivered, 1_000, "simulated")?;
                }
                Ok((count > 0).then(|| format!("{count} callbacks")))
            }),
            OpAct::SecondDaemon => self.second_daemon(),
            OpAct::Thaw => Did::wants(Wants::Thaw, "a second daemon, and the first goes on"),
            OpAct::Reopen => Did::wants(Wants::Reopen, "a clean stop"),
            OpAct::Upgrade => Did::wants(Wants::Upgrade, "the next version"),
            OpAct::Vacuum => self.vacuum(),
        }
    }

    /// One command: a transaction on a handle that is opened for it, or a while before.
    fn command<T>(
        &mut self,
        at_ms: i64,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.commands += 1;
        if self.commands.is_multiple_of(COMMANDS_PER_HANDLE) {
            self.handle = None;
        }
        let mut handle = match self.handle.take() {
            Some(handle) => handle,
            None => Database::open(&self.database, OpenMode::Write)?,
        };
        let done = handle.write(at_ms, work);
        // After an error a command ends, and its handle with it.
        if done.is_ok() {
            self.handle = Some(handle);
        }
        done
    }

    /// A command that says what it did. Refused, or met by a fault, it did nothing: it is one transaction.
    fn told(
        &mut self,
        at_ms: i64,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<Option<Touched>, StoreError>,
    ) -> Did {
        match self.command(at_ms, work) {
            Ok(Some(touched)) => Did::done(touched),
            Ok(None) | Err(_) => Did::nothing(),
        }
    }

    /// Adds a rule while the follower waits for an answer.
    fn watch_during(&mut self, call: u8, late: u8, world: &mut World, at_ms: i64) -> Did {
        let chain = world.chain(late / 3);
        let during = ["block", "tip", "header", "hashes", "mempool"][usize::from(call) % 5];
        let (path, id, is_evm) = (self.database.clone(), chain.nodes.chain_id(), chain.is_evm);
        let run = move || {
            let added = as_others(|| {
                let mut handle = Database::open(&path, OpenMode::Write)?;
                handle.write(at_ms, |tx| match tx.chain(&id)? {
                    Some(row) => add_late(tx, row.key, is_evm, late),
                    None => Ok(None),
                })
            });
            if during == "block" && matches!(added, Ok(Some(_))) {
                marks::hit("rule_added_while_block_was_read");
            }
        };
        chain.nodes.world().hook = Some(Hook {
            during,
            after: usize::from(call / 5) % 3,
            run: Box::new(run),
        });
        Did::done(format!("a rule during {during}"))
    }

    /// Holds or releases one of the deposits: by an odd number one of those of invoices, where there are any.
    fn deposit(&mut self, of: u32, is_release: bool, at_ms: i64) -> Did {
        let did = self.told(at_ms, |tx| {
            let filter = Filter {
                is_held: is_release,
                ..Filter::default()
            };
            let page = Page {
                after: None,
                limit: 200,
            };
            let mut all = tx.list_deposits(&filter, page)?;
            if of % 2 == 1 && all.iter().any(|listed| listed.row.invoice.is_some()) {
                all.retain(|listed| listed.row.invoice.is_some());
            }
            let Some(listed) = all.get(of as usize % all.len().max(1)) else {
                return Ok(None);
            };
            let id = listed.row.id.clone();
            let is_new = match is_release {
                true => tx.release(&id, "simulated")?,
                false => tx.hold(&id, "simulated")?,
            };
            Ok(is_new.then_some(id))
        });
        let Some(id) = &did.touched else { return did };
        self.decided.insert(id.clone());
        Did::done(format!("{} {id}", if is_release { "release" } else { "hold" }))
    }

    fn rescan(&mut self, (from, backfill): (u8, u8), world: &World, at_ms: i64) -> Did {
        let chain = world.chain(from / 128);
        self.told(at_ms, |tx| {
            let Some(row) = tx.chain(&chain.nodes.chain_id())? else {
                return Ok(None);
            };
            let which = match backfill % 3 {
                0 => Backfill::Nothing,
                1 => Backfill::All,
                _ => {
                    let late = LATE.start + u32::from(backfill / 3) % LATE.len() as u32;
                    Backfill::Script(rules::script(chain.is_evm, late))
                }
            };
            let from = 1 + u64::from(from % 128) % row.cursor.map_or(1, |tip| tip.height.max(1));
            let asked = tx.ask_rescan(row.key, from, &which, "simulated")?;
            Ok(Some(format!("rescan from {} with {which:?}", asked.from_height)))
        })
    }

    /// Takes a halted chain back to the last block that its node has too.
    fn accept_reorg(&mut self, world: &World, at_ms: i64) -> Did {
        let mut touched = vec![];
        for chain in world.chains() {
            let did = self.told(at_ms, |tx| accept_reorg(tx, chain));
            touched.extend(did.touched);
        }
        match touched.is_empty() {
            true => Did::nothing(),
            false => Did::done(touched.join(", ")),
        }
    }

    /// Has every chain read all of its blocks again, under the rules that there are.
    pub fn read_all_again(&mut self, world: &World, at_ms: i64) {
        for chain in world.chains() {
            let id = chain.nodes.chain_id();
            // Refused where nothing was read yet.
            let _ = self.command(at_ms, |tx| match tx.chain(&id)? {
                Some(row) => tx.ask_rescan(row.key, 1, &Backfill::Nothing, "again").map(drop),
                None => Ok(()),
            });
        }
    }

    /// Makes every job due now.
    pub fn hurry_jobs(&mut self, at_ms: i64) {
        let _ = self.command(at_ms, |tx| {
            let jobs = tx.jobs()?;
            jobs.iter().try_for_each(|job| tx.hurry_job(&job.name))
        });
    }

    fn list_token(&mut self, is_listed: bool) -> Did {
        if self.setting.is_later_listed == is_listed {
            return Did::nothing();
        }
        self.setting.is_later_listed = is_listed;
        if !is_listed {
            marks::hit("token_unlisted");
        }
        let word = if is_listed { "listed" } else { "unlisted" };
        Did::wants(Wants::Reopen, format!("the later token is {word}"))
    }

    /// Somebody starts the daemon again beside the one that runs.
    fn second_daemon(&mut self) -> Did {
        match Database::open(&self.database, OpenMode::Daemon) {
            Err(StoreError::Locked { .. }) => {
                marks::hit("second_refused");
                Did::done("a second daemon is refused")
            }
            // Of a disk that fails it is told first.
            Err(_) => Did::nothing(),
            Ok(_) => Did {
                wrong: Some(("I22", "a second daemon opened the database".to_owned())),
                ..Did::nothing()
            },
        }
    }

    fn vacuum(&mut self) -> Did {
        let Ok(shell) = rusqlite::Connection::open(&self.database) else {
            return Did::nothing();
        };
        match shell.execute_batch("VACUUM") {
            Ok(()) => Did::done("vacuum"),
            Err(_) => Did::nothing(),
        }
    }
}

fn add_late(
    tx: &mut WriteTx<'_>,
    chain: ChainKey,
    is_evm: bool,
    late: u8,
) -> Result<Option<Touched>, StoreError> {
    let number = LATE.start + u32::from(late) % LATE.len() as u32;
    let rule = NewAddress {
        script: rules::script(is_evm, number),
        kind: AddressKind::Watch,
        merchant: LATE_MERCHANT,
        internal: "ignore",
        reference: "",
    };
    tx.add_addresses(chain, std::slice::from_ref(&rule))?;
    Ok(Some(format!("watch {number}")))
}

fn watch(tx: &mut WriteTx<'_>, chain: &Chain, late: u8) -> Result<Option<Touched>, StoreError> {
    match tx.chain(&chain.nodes.chain_id())? {
        Some(row) => add_late(tx, row.key, chain.is_evm, late),
        None => Ok(None),
    }
}

fn accept_reorg(tx: &mut WriteTx<'_>, chain: &Chain) -> Result<Option<Touched>, StoreError> {
    let Some(row) = tx.chain(&chain.nodes.chain_id())? else {
        return Ok(None);
    };
    let is_asked_for = row.state.word() == "reorg_too_deep" || row.state.word() == "behind";
    let Some(cursor) = row.cursor.filter(|_| is_asked_for) else {
        return Ok(None);
    };
    let Some(fork) = common(tx, row.key, chain, cursor.height)? else {
        return Ok(None);
    };
    if fork == cursor.height {
        return Ok(None);
    }
    tx.ask_reanchor(row.key, fork, "simulated")?;
    Ok(Some(format!("back to block {fork}")))
}

/// The highest of our headers that the node which answers has on its chain.
fn common(tx: &ReadTx<'_>, key: ChainKey, chain: &Chain, from: u64) -> Result<Option<u64>, StoreError> {
    for height in (from.saturating_sub(LOOKED_BACK)..=from).rev() {
        let Some(held) = tx.header_at(key, height)? else {
            continue;
        };
        let world = chain.nodes.world();
        if world.tree.is_on(&held.header.hash, &world.tip()) {
            return Ok(Some(height));
        }
    }
    Ok(None)
}

/// I22: freezes a daemon, has `start` start another in its place, and thaws it beside that one. Whoever
/// removed the lock file is to blame for two daemons; the epoch still keeps them apart. Returns the new one,
/// and what was wrong with the old.
pub fn thaw<E>(
    old: Life,
    folder: &Folder,
    start: impl FnOnce() -> Result<Life, E>,
) -> Result<(Life, Option<String>), E> {
    let frozen = old.freeze();
    let lock = folder.database().with_extension("db.lock");
    // The operating system keeps the old lock on the old file.
    let _ = std::fs::remove_file(lock);
    let mut new = start()?;
    if !matches!(new.run_for(Duration::from_secs(3)), Ended::Span) {
        return Ok((new, None));
    }
    // Asked by somebody else: asking the new daemon would let it go on, and what it then writes is not the
    // old one's.
    let path = folder.database();
    let books = || looking(|| Database::open(&path, OpenMode::ReadOnly)?.read(|tx| tx.projection()));
    let Ok(before) = books() else {
        return Ok((new, None));
    };
    let wrong = match frozen.thaw(Duration::from_secs(10)) {
        Ended::Part { why, .. } if why.contains("epoch") || why.contains("another daemon") => {
            marks::hit("thawed_daemon");
            None
        }
        Ended::Part { name, why } => Some(format!("a stale daemon ended by its {name}: {why}")),
        Ended::Dead(_) => None,
        Ended::Span => Some("a stale daemon goes on".to_owned()),
    };
    let wrong = wrong.or_else(|| match books() {
        Ok(after) if after != before => {
            let line = after.iter().find(|line| !before.contains(line));
            Some(format!("a stale daemon wrote {line:?}"))
        }
        Ok(_) => None,
        Err(error) => Some(format!("after a stale daemon went on: {error}")),
    });
    Ok((new, wrong))
}
