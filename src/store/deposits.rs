//! The state machine's rows. Every move of a deposit goes through [`WriteTx::move_deposit`], which asks the
//! table in `rules::state`, names the old state in its UPDATE, writes the audit row, the journal entry and
//! the event, all in the caller's transaction.

use super::chains::{ChainKey, one};
use super::codec::{asset, int, uint};
use super::invoices::InvoiceMark;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::policy::Requirement;
use crate::rules::state::{Announce, Fact, IllegalMove, State, step};
use crate::rules::{Amount, Asset, BlockHash, Outpoint, Script, Txid};
use rusqlite::{Row, params};

/// The reason of a hold that a rule sets when its transaction spends coins of the same merchant among others.
pub const HELD_OWN_INPUTS: &str = "own_inputs";
/// The reason of a hold on a transfer between addresses of one merchant who asked for it.
pub const HELD_INTERNAL: &str = "internal";
/// The reason of a hold on what a transaction pays in another way than when it was credited, before a reorg
/// ran it again.
pub const HELD_REEXECUTED: &str = "reexecuted";
/// The reason of a hold on what a reorg took into another block while the config did not list its token: what
/// the transaction pays there was not read.
pub const HELD_UNLISTED: &str = "unlisted";
/// The reason of a hold on a deposit that met a fact which its state cannot meet.
pub const HELD_ILLEGAL_MOVE: &str = "illegal_move";

/// A deposit with everything that its events tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// The database's own number of its output.
    pub(super) output: i64,
    /// The database's own number of its transaction.
    pub(super) tx: i64,
    /// Its chain.
    pub chain: ChainKey,
    /// Its public id.
    pub id: String,
    /// The output.
    pub outpoint: Outpoint,
    /// The script paid to.
    pub script: Script,
    /// The merchant's slug.
    pub merchant: String,
    pub(super) merchant_key: i64,
    /// The reference that the address was watched with.
    pub reference: String,
    pub(super) asset_key: i64,
    /// The coin, or the token's contract.
    pub kind: Asset,
    /// CAIP-19 id of the asset.
    pub asset: String,
    /// The asset's symbol.
    pub symbol: String,
    /// The asset's decimals.
    pub decimals: u8,
    /// Base units.
    pub amount: Amount,
    /// EVM: who sent the transaction.
    pub sender: Option<Script>,
    /// EVM: whose coin or token moved.
    pub payer: Option<Script>,
    /// `external`, `mixed` or `internal`.
    pub origin: String,
    /// True when a coinbase pays it.
    pub is_coinbase: bool,
    /// Where it stands; `None` only while it is being made.
    pub state: Option<State>,
    /// Its block, while it is in one.
    pub height: Option<u64>,
    /// What it needs there.
    pub needs: Option<Requirement>,
    /// The height that the tip, or the last accepted block with the tag, has to reach before it is credited.
    pub due_height: Option<u64>,
    /// Why it is held.
    pub held_reason: Option<String>,
    /// Who spends its inputs, once somebody does.
    pub replaced_by: Option<Txid>,
    /// When it was first met, Unix milliseconds.
    pub first_seen_at: i64,
    /// The invoice that its address is for.
    pub invoice: Option<InvoiceMark>,
}

/// Where a deposit is in the chain and what it needs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub height: u64,
    /// What it needs and the due height; `None` where its transaction failed.
    pub due: Option<(Requirement, u64)>,
}

impl Place {
    pub fn due(height: u64, needs: Requirement, due_height: u64) -> Place {
        Place {
            height,
            due: Some((needs, due_height)),
        }
    }

    pub fn failed(height: u64) -> Place {
        Place { height, due: None }
    }

    /// Where a deposit stands; `None` outside of blocks.
    fn of(deposit: &Deposit) -> Option<Place> {
        Some(Place {
            height: deposit.height?,
            due: deposit.due(),
        })
    }
}

impl Deposit {
    /// What it needs and its due height.
    pub(super) fn due(&self) -> Option<(Requirement, u64)> {
        Some((self.needs?, self.due_height?))
    }
}

/// Where a reorg leaves our branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fork {
    /// The highest block that both branches share.
    pub height: u64,
    /// How many blocks of ours lie above it.
    pub depth: u64,
}

/// Why something moves: the block (if one is the cause) and words that stand alone.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub height: Option<u64>,
    pub hash: Option<BlockHash>,
    pub words: String,
    pub actor: &'static str,
    /// Of a reorg: where the branches part.
    pub fork: Option<Fork>,
}

impl Cause {
    pub fn block(height: u64, hash: BlockHash, words: impl Into<String>) -> Cause {
        Cause {
            height: Some(height),
            hash: Some(hash),
            words: words.into(),
            actor: "daemon",
            fork: None,
        }
    }

    pub fn other(words: impl Into<String>) -> Cause {
        Cause {
            height: None,
            hash: None,
            words: words.into(),
            actor: "daemon",
            fork: None,
        }
    }

    pub fn operator(words: impl Into<String>) -> Cause {
        Cause {
            height: None,
            hash: None,
            words: words.into(),
            actor: "operator",
            fork: None,
        }
    }
}

pub(super) const DEPOSIT_SELECT: &str = "SELECT d.output, o.tx, d.chain, d.dep_id, t.txid, o.vout, \
     a.script, m.slug, d.merchant, a.reference, d.asset, s.caip, s.symbol, s.decimals, o.amount, \
     o.origin, t.is_coinbase, d.state, d.height, d.confirmations, d.due_height, d.held_reason, \
     t.replaced_by, d.first_seen_at, d.tag, s.contract, t.sender, o.payer, \
     v.id, v.inv_id, v.confirmations \
     FROM deposits d JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx \
     JOIN addresses a ON a.id = o.address JOIN merchants m ON m.id = d.merchant \
     JOIN assets s ON s.id = d.asset LEFT JOIN invoices v ON v.address = o.address";

fn deposit_row(row: &Row<'_>) -> Result<Deposit, StoreError> {
    Ok(Deposit {
        output: row.get(0)?,
        tx: row.get(1)?,
        chain: ChainKey(row.get(2)?),
        id: row.get(3)?,
        outpoint: Outpoint {
            txid: row.get(4)?,
            vout: uint(row.get(5)?)?,
        },
        script: row.get(6)?,
        merchant: row.get(7)?,
        merchant_key: row.get(8)?,
        reference: row.get(9)?,
        asset_key: row.get(10)?,
        asset: row.get(11)?,
        symbol: row.get(12)?,
        decimals: row.get(13)?,
        amount: row.get(14)?,
        origin: row.get(15)?,
        is_coinbase: row.get(16)?,
        state: Some(row.get(17)?),
        height: row.get::<_, Option<i64>>(18)?.map(uint).transpose()?,
        needs: needs(row.get(19)?, row.get(24)?)?,
        due_height: row.get::<_, Option<i64>>(20)?.map(uint).transpose()?,
        held_reason: row.get(21)?,
        replaced_by: row.get(22)?,
        first_seen_at: row.get(23)?,
        kind: asset(row.get(25)?)?,
        sender: row.get(26)?,
        payer: row.get(27)?,
        invoice: InvoiceMark::read(row, 28)?,
    })
}

/// The columns `confirmations` and `tag` of what a payment needs.
pub(super) fn columns_of(needs: Option<Requirement>) -> (Option<u32>, Option<&'static str>) {
    (
        needs.and_then(Requirement::confirmations),
        needs.and_then(Requirement::tag),
    )
}

/// What a payment needs, from the columns `confirmations` and `tag`.
pub(super) fn needs(
    confirmations: Option<u32>,
    tag: Option<String>,
) -> Result<Option<Requirement>, StoreError> {
    let Some(tag) = tag else {
        return Ok(confirmations.map(Requirement::Confirmations));
    };
    match Requirement::from_tag(&tag) {
        Some(needs) => Ok(Some(needs)),
        None => Err(StoreError::Corrupt(format!("finality tag {tag:?}"))),
    }
}

impl ReadTx<'_> {
    /// A deposit by its public id.
    pub fn deposit(&self, id: &str) -> Result<Option<Deposit>, StoreError> {
        self.one_deposit("WHERE d.dep_id = ?1", [id])
    }

    pub(super) fn deposit_of_output(&self, output: i64) -> Result<Option<Deposit>, StoreError> {
        self.one_deposit("WHERE d.output = ?1", [output])
    }

    fn one_deposit(
        &self,
        filter: &str,
        params: impl rusqlite::Params,
    ) -> Result<Option<Deposit>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{DEPOSIT_SELECT} {filter}"))?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(deposit_row).transpose()
    }

    /// The deposits that a transaction makes, in output order.
    pub(super) fn deposits_of_tx(&self, tx: i64) -> Result<Vec<Deposit>, StoreError> {
        self.deposits_where("WHERE o.tx = ?1 ORDER BY o.vout", [tx])
    }

    /// Deposits by a filter that is appended to the join of all their tables.
    pub(super) fn deposits_where(
        &self,
        filter: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<Deposit>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{DEPOSIT_SELECT} {filter}"))?;
        let mut rows = statement.query(params)?;
        let mut deposits = Vec::new();
        while let Some(row) = rows.next()? {
            deposits.push(deposit_row(row)?);
        }
        Ok(deposits)
    }
}

impl WriteTx<'_> {
    /// Moves a deposit by the table. A fact that its state cannot meet holds this one deposit and leaves the
    /// chain going: one odd input must never stop everybody's payments.
    pub(super) fn move_deposit(
        &mut self,
        deposit: &mut Deposit,
        fact: Fact,
        place: Option<Place>,
        cause: &Cause,
    ) -> Result<(), StoreError> {
        let step = match step(deposit.state, deposit.held_reason.is_some(), fact) {
            Ok(Some(step)) => step,
            Ok(None) => return Ok(()),
            Err(illegal) => return self.hold_illegal(deposit, &illegal),
        };
        let from = deposit.state;
        let was_at = Place::of(deposit);
        self.write_move(deposit, step.to, place)?;
        self.audit_move(deposit, "move", from, cause)?;
        match step.announce {
            None => Ok(()),
            Some(Announce::Credit) => self.write_credit(deposit),
            Some(Announce::Reversal) => self.write_reversal(deposit, was_at, step.to.word(), cause),
            Some(Announce::Seen | Announce::Confirming | Announce::Evicted | Announce::Replaced)
            | Some(Announce::Orphaned | Announce::Failed | Announce::Held | Announce::Released) => {
                self.deposit_event(deposit, step.announce)
            }
        }
    }

    fn write_move(
        &mut self,
        deposit: &mut Deposit,
        to: State,
        place: Option<Place>,
    ) -> Result<(), StoreError> {
        let from = deposit.state;
        if to.is_in_block() {
            if let Some(place) = place {
                deposit.height = Some(place.height);
                deposit.needs = place.due.map(|(needs, _)| needs);
                deposit.due_height = place.due.map(|(_, due_height)| due_height);
            }
            assert!(deposit.height.is_some(), "a deposit in a block has its height");
        } else {
            (deposit.height, deposit.needs, deposit.due_height) = (None, None, None);
        }
        deposit.state = Some(to);
        let height = deposit.height.map(int).transpose()?;
        let due_height = deposit.due_height.map(int).transpose()?;
        let (confirmations, tag) = columns_of(deposit.needs);
        let Some(from) = from else {
            self.conn()
                .prepare_cached(
                    "INSERT INTO deposits (output, chain, dep_id, merchant, asset, state, height, \
                     confirmations, tag, due_height, first_seen_at) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                )?
                .execute(params![
                    deposit.output,
                    deposit.chain.0,
                    deposit.id,
                    deposit.merchant_key,
                    deposit.asset_key,
                    to,
                    height,
                    confirmations,
                    tag,
                    due_height,
                    deposit.first_seen_at
                ])?;
            return Ok(());
        };
        let changed = self
            .conn()
            .prepare_cached(
                "UPDATE deposits SET state = ?3, height = ?4, confirmations = ?5, tag = ?6, \
                 due_height = ?7 WHERE output = ?1 AND state = ?2",
            )?
            .execute(params![
                deposit.output,
                from,
                to,
                height,
                confirmations,
                tag,
                due_height
            ])?;
        if changed != 1 {
            return Err(StoreError::Corrupt(format!(
                "deposit {} is not {}",
                deposit.id,
                from.word()
            )));
        }
        Ok(())
    }

    /// Sets the hold mark. A credited deposit is reversed by it and stays on the chain as `confirming`.
    pub(super) fn hold_deposit(
        &mut self,
        deposit: &mut Deposit,
        reason: &str,
        cause: &Cause,
    ) -> Result<(), StoreError> {
        let from = deposit.state;
        let step = match step(from, deposit.held_reason.is_some(), Fact::HoldSet) {
            Ok(Some(step)) => step,
            Ok(None) => return Ok(()),
            Err(illegal) => return Err(StoreError::Corrupt(illegal.to_string())),
        };
        let was_at = Place::of(deposit);
        if from == Some(State::Credited) {
            self.write_move(deposit, step.to, None)?;
        }
        deposit.held_reason = Some(reason.to_owned());
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "UPDATE deposits SET held_reason = ?2, held_at = ?3 \
                 WHERE output = ?1 AND held_reason IS NULL",
            )?
            .execute(params![deposit.output, reason, now])?;
        self.audit_move(deposit, "hold", from, cause)?;
        match step.announce {
            Some(Announce::Reversal) => self.write_reversal(deposit, was_at, "held", cause),
            announce => self.deposit_event(deposit, announce),
        }
    }

    /// Takes the hold mark away. Whether it is due is decided by the follower's next round.
    pub(super) fn release_deposit(&mut self, deposit: &mut Deposit, cause: &Cause) -> Result<(), StoreError> {
        match step(deposit.state, deposit.held_reason.is_some(), Fact::HoldReleased) {
            Ok(Some(step)) => {
                deposit.held_reason = None;
                self.conn().execute(
                    "UPDATE deposits SET held_reason = NULL, held_at = NULL WHERE output = ?1",
                    [deposit.output],
                )?;
                self.audit_move(deposit, "release", deposit.state, cause)?;
                self.deposit_event(deposit, step.announce)
            }
            Ok(None) => Ok(()),
            Err(illegal) => Err(StoreError::Corrupt(illegal.to_string())),
        }
    }

    fn hold_illegal(&mut self, deposit: &mut Deposit, illegal: &IllegalMove) -> Result<(), StoreError> {
        tracing::error!(deposit = %deposit.id, "holding deposit {}: {illegal}", deposit.id);
        if deposit.state.is_none() {
            return Err(StoreError::Corrupt(illegal.to_string()));
        }
        self.hold_deposit(deposit, HELD_ILLEGAL_MOVE, &Cause::other(illegal.to_string()))
    }

    /// Sets what a deposit needs anew, in place: the policy or the sum of its block changed.
    pub(super) fn set_due(&mut self, deposit: &mut Deposit, place: Place) -> Result<(), StoreError> {
        let Some((needs, due_height)) = place.due else {
            return Ok(());
        };
        let words = match deposit.needs {
            Some(before) => format!("needs {needs} instead of {before}: due at height {due_height}"),
            None => format!("needs {needs}: due at height {due_height}"),
        };
        (deposit.needs, deposit.due_height) = (Some(needs), Some(due_height));
        let (confirmations, tag) = columns_of(deposit.needs);
        self.conn()
            .prepare_cached(
                "UPDATE deposits SET confirmations = ?2, tag = ?3, due_height = ?4 \
                 WHERE output = ?1 AND state = 'confirming'",
            )?
            .execute(params![deposit.output, confirmations, tag, int(due_height)?])?;
        self.audit_move(deposit, "policy", deposit.state, &Cause::other(words))
    }

    fn audit_move(
        &mut self,
        deposit: &Deposit,
        action: &str,
        from: Option<State>,
        cause: &Cause,
    ) -> Result<(), StoreError> {
        // Everything that happens to a deposit comes by here.
        self.touch_invoice(deposit.invoice.as_ref().map(|invoice| invoice.key));
        let now = self.now_ms();
        let height = cause.height.map(int).transpose()?;
        self.conn()
            .prepare_cached(
                "INSERT INTO audit \
                 (at, chain, output, action, from_state, to_state, height, hash, cause, actor) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                now,
                deposit.chain.0,
                deposit.output,
                action,
                from,
                deposit.state,
                height,
                cause.hash,
                cause.words,
                cause.actor
            ])?;
        Ok(())
    }

    /// True when the output's transaction is in a block that we hold.
    pub(super) fn is_included(&self, tx: i64) -> Result<bool, StoreError> {
        Ok(one::<i64>(
            self.conn(),
            "SELECT 1 FROM inclusions WHERE tx = ?1 LIMIT 1",
            [tx],
        )?
        .is_some())
    }
}
