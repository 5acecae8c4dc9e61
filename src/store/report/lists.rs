//! Lists of addresses, deposits and credits, a page at a time. A position is the row's own number, so that
//! pages neither skip nor repeat rows that come in between.

use super::super::addresses::AddressKind;
use super::super::assets::AssetKey;
use super::super::chains::{ChainKey, one};
use super::super::codec::uint;
use super::super::deposits::Deposit;
use super::super::{ReadTx, StoreError};
use crate::rules::state::State;
use crate::rules::{Amount, Outpoint, Script, Txid};
use rusqlite::types::Value;

/// Which part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The position of the last row of the page before.
    pub after: Option<i64>,
    /// The most rows.
    pub limit: u32,
}

/// Which rows of a list. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this merchant.
    pub merchant: Option<String>,
    /// Only this chain.
    pub chain: Option<ChainKey>,
    /// Only payments of one of these assets; `None` = of any.
    pub assets: Option<Vec<AssetKey>>,
    /// Only deposits in this state.
    pub state: Option<State>,
    /// Only held deposits.
    pub is_held: bool,
    /// Only what belongs to this script.
    pub script: Option<Script>,
    /// Only what belongs to addresses with this reference.
    pub reference: Option<String>,
    /// Only outputs of this transaction.
    pub txid: Option<Txid>,
}

/// A row and its position in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// For [`Page::after`].
    pub position: i64,
    /// The row.
    pub row: T,
}

/// A watch rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRow {
    /// Its chain.
    pub chain: ChainKey,
    /// Its script.
    pub script: Script,
    /// What payments to it are.
    pub kind: AddressKind,
    /// The merchant's slug.
    pub merchant: String,
    /// What it is for.
    pub reference: String,
    /// The first height that counts; `None` while the chain has no start.
    pub from_height: Option<u64>,
    /// Unix milliseconds.
    pub added_at: i64,
}

/// A credit and where its books stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditRow {
    /// Its public id.
    pub id: String,
    /// Its chain.
    pub chain: ChainKey,
    /// The payment.
    pub outpoint: Outpoint,
    /// The merchant's slug.
    pub merchant: String,
    /// The reference that the address was watched with, or that another provider gave.
    pub reference: String,
    /// The script paid to; `None` where another provider told of the payment.
    pub script: Option<Script>,
    /// CAIP-19 id of the asset.
    pub asset: String,
    /// The asset's symbol.
    pub symbol: String,
    /// The asset's decimals.
    pub decimals: u8,
    /// Base units.
    pub amount: Amount,
    /// The amount, or 0 while it is reversed.
    pub net: Amount,
    /// How many entries its journal has.
    pub entries: u64,
    /// The kind of the last one.
    pub last_kind: String,
    /// When it was made, Unix milliseconds.
    pub last_at: i64,
    /// Of a reversal: why.
    pub last_reason: String,
    /// The height of the payment's block, by the last entry; `None` where another provider told of it.
    pub block_height: Option<u64>,
    /// When the credit was made, Unix milliseconds.
    pub created_at: i64,
    /// The webhook by which another provider told of it.
    pub inbox: Option<String>,
}

impl ReadTx<'_> {
    /// A merchant's key. An unknown slug is refused: an empty list would hide a misspelt one.
    pub(in super::super) fn merchant_key(&self, slug: &str) -> Result<i64, StoreError> {
        one(self.conn(), "SELECT id FROM merchants WHERE slug = ?1", [slug])?.ok_or_else(|| {
            StoreError::Refused(format!(
                "there is no merchant {slug}: `creditd watch list` shows those with addresses"
            ))
        })
    }

    /// The rule of a script.
    ///
    /// # Errors
    /// Those of the database.
    pub fn address(&self, chain: ChainKey, script: &Script) -> Result<Option<AddressRow>, StoreError> {
        let sql = format!("{ADDRESS_SELECT} WHERE a.chain = ?1 AND a.script = ?2");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params![chain.0, script])?;
        rows.next()?.map(address_row).transpose()
    }

    /// Watch rules in the order in which they were added.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant.
    pub fn list_addresses(&self, filter: &Filter, page: Page) -> Result<Vec<Listed<AddressRow>>, StoreError> {
        let query = Query {
            sql: format!("{ADDRESS_SELECT} WHERE a.id > ?"),
            values: vec![Value::from(page.after.unwrap_or(0))],
        };
        let (sql, values) = self.narrow("a", filter, query)?.page("a.id", page);
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut list = Vec::new();
        while let Some(row) = rows.next()? {
            list.push(Listed {
                position: row.get(0)?,
                row: address_row(row)?,
            });
        }
        Ok(list)
    }

    /// Deposits, newest first.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant.
    pub fn list_deposits(&self, filter: &Filter, page: Page) -> Result<Vec<Listed<Deposit>>, StoreError> {
        let (sql, values) = self.deposits_query(filter, page)?;
        let deposits = self.deposits_where(&sql, rusqlite::params_from_iter(values))?;
        Ok(deposits
            .into_iter()
            .map(|row| Listed {
                position: row.output,
                row,
            })
            .collect())
    }

    /// Credits, newest first.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant.
    pub fn list_credits(&self, filter: &Filter, page: Page) -> Result<Vec<Listed<CreditRow>>, StoreError> {
        let query = Query {
            sql: format!("{CREDIT_SELECT} WHERE c.rowid < ?"),
            values: vec![Value::from(page.after.unwrap_or(i64::MAX))],
        };
        let (sql, values) = self.narrow("c", filter, query)?.page("c.rowid DESC", page);
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut list = Vec::new();
        while let Some(row) = rows.next()? {
            list.push(Listed {
                position: row.get(0)?,
                row: credit_row(row)?,
            });
        }
        Ok(list)
    }

    /// The end of a query for deposits.
    fn deposits_query(&self, filter: &Filter, page: Page) -> Result<(String, Vec<Value>), StoreError> {
        let query = Query {
            sql: String::from("WHERE d.output < ?"),
            values: vec![Value::from(page.after.unwrap_or(i64::MAX))],
        };
        let mut query = self.narrow("d", filter, query)?;
        if let Some(state) = filter.state {
            query.sql.push_str(" AND d.state = ?");
            query.values.push(Value::from(state.word().to_owned()));
        }
        if filter.is_held {
            query
                .sql
                .push_str(" AND d.output IN (SELECT output FROM deposits WHERE held_reason IS NOT NULL)");
        }
        Ok(query.page("d.output DESC", page))
    }

    /// Adds the conditions that every list shares.
    fn narrow(&self, table: &str, filter: &Filter, mut query: Query) -> Result<Query, StoreError> {
        if let Some(slug) = &filter.merchant {
            query.sql.push_str(&format!(" AND {table}.merchant = ?"));
            query.values.push(Value::from(self.merchant_key(slug)?));
        }
        if let Some(chain) = filter.chain {
            // The plus keeps indexes on the chain out: sorting all of a chain's rows costs more than passing
            // over those of other chains on the way.
            query.sql.push_str(&format!(" AND +{table}.chain = ?"));
            query.values.push(Value::from(chain.0));
        }
        if let Some(assets) = &filter.assets {
            // Numbers of our own: nothing that was typed gets here.
            let keys: Vec<String> = assets.iter().map(|asset| asset.0.to_string()).collect();
            query
                .sql
                .push_str(&format!(" AND {table}.asset IN ({})", keys.join(", ")));
        }
        query.of_addresses(table, filter);
        query.of_transaction(table, filter);
        Ok(query)
    }

    /// What an operator typed when he held a deposit last.
    ///
    /// # Errors
    /// Those of the database.
    pub fn hold_cause(&self, output: i64) -> Result<Option<String>, StoreError> {
        one(
            self.conn(),
            "SELECT cause FROM audit WHERE output = ?1 AND action = 'hold' ORDER BY id DESC LIMIT 1",
            [output],
        )
    }
}

/// A query under construction.
struct Query {
    sql: String,
    values: Vec<Value>,
}

impl Query {
    /// Narrows to the addresses that are asked for. As a list of row numbers, so that the index of scripts or
    /// of references finds them and nothing else is looked at.
    fn of_addresses(&mut self, table: &str, filter: &Filter) {
        let mut rules = Vec::new();
        if let Some(script) = &filter.script {
            rules.push("chain IN (SELECT id FROM chains) AND script = ?");
            self.values.push(Value::from(script.0.to_vec()));
        }
        if let Some(reference) = &filter.reference {
            // The index leaves out the many that have none.
            rules.push("reference = ? AND reference <> ''");
            self.values.push(Value::from(reference.clone()));
        }
        if rules.is_empty() {
            return;
        }
        let addresses = format!("SELECT id FROM addresses WHERE {}", rules.join(" AND "));
        let rule = match table {
            "a" => format!(" AND a.id IN ({addresses})"),
            table => {
                format!(" AND {table}.output IN (SELECT id FROM outputs WHERE address IN ({addresses}))")
            }
        };
        self.sql.push_str(&rule);
    }

    fn of_transaction(&mut self, table: &str, filter: &Filter) {
        if let Some(txid) = &filter.txid {
            let txs = "SELECT id FROM txs WHERE chain IN (SELECT id FROM chains) AND txid = ?";
            let rule = format!(" AND {table}.output IN (SELECT id FROM outputs WHERE tx IN ({txs}))");
            self.sql.push_str(&rule);
            self.values.push(Value::from(txid.0.to_vec()));
        }
    }

    fn page(mut self, order: &str, page: Page) -> (String, Vec<Value>) {
        self.sql.push_str(&format!(" ORDER BY {order} LIMIT ?"));
        self.values.push(Value::from(page.limit));
        (self.sql, self.values)
    }
}

const CREDIT_SELECT: &str = "SELECT c.rowid, c.id, c.chain, c.txid, c.vout, m.slug, \
     coalesce(a.reference, c.reference), a.script, s.caip, s.symbol, s.decimals, c.amount, j.sequence, \
     j.kind, j.at, j.block_height, c.created_at, j.reason, \
     (SELECT in_id FROM inbox WHERE id = c.inbox) \
     FROM credits c JOIN merchants m ON m.id = c.merchant JOIN assets s ON s.id = c.asset \
     LEFT JOIN outputs o ON o.id = c.output LEFT JOIN addresses a ON a.id = o.address \
     JOIN journal j ON j.credit = c.id \
     AND j.sequence = (SELECT max(sequence) FROM journal WHERE credit = c.id)";

const ADDRESS_SELECT: &str = "SELECT a.id, a.chain, a.script, a.kind, m.slug, a.reference, a.from_height, \
     a.added_at FROM addresses a JOIN merchants m ON m.id = a.merchant";

fn address_row(row: &rusqlite::Row<'_>) -> Result<AddressRow, StoreError> {
    let kind: String = row.get(3)?;
    Ok(AddressRow {
        chain: ChainKey(row.get(1)?),
        script: row.get(2)?,
        kind: AddressKind::from_word(&kind)
            .ok_or_else(|| StoreError::Corrupt(format!("address kind {kind:?}")))?,
        merchant: row.get(4)?,
        reference: row.get(5)?,
        from_height: row.get::<_, Option<i64>>(6)?.map(uint).transpose()?,
        added_at: row.get(7)?,
    })
}

fn credit_row(row: &rusqlite::Row<'_>) -> Result<CreditRow, StoreError> {
    let amount: Amount = row.get(11)?;
    let entries = uint(row.get(12)?)?;
    Ok(CreditRow {
        id: row.get(1)?,
        chain: ChainKey(row.get(2)?),
        outpoint: Outpoint {
            txid: row.get(3)?,
            vout: uint(row.get(4)?)?,
        },
        merchant: row.get(5)?,
        reference: row.get(6)?,
        script: row.get(7)?,
        asset: row.get(8)?,
        symbol: row.get(9)?,
        decimals: row.get(10)?,
        amount,
        net: net(amount, entries),
        entries,
        last_kind: row.get(13)?,
        last_at: row.get(14)?,
        block_height: row.get::<_, Option<i64>>(15)?.map(uint).transpose()?,
        created_at: row.get(16)?,
        last_reason: row.get(17)?,
        inbox: row.get(18)?,
    })
}

/// What a credit nets to: its journal alternates, starting with the credit, so an odd number of entries nets
/// to the amount and an even one to nothing.
pub(super) fn net(amount: Amount, entries: u64) -> Amount {
    if entries % 2 == 1 { amount } else { Amount::ZERO }
}

#[cfg(test)]
mod tests {
    use super::super::super::deposits::DEPOSIT_SELECT;
    use super::super::super::tests::Scratch;
    use super::*;

    /// What SQLite means to do for a query.
    fn plan(tx: &ReadTx<'_>, sql: &str, values: Vec<Value>) -> String {
        let mut statement = tx.conn().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3));
        rows.unwrap().map(|line| line.unwrap() + "\n").collect()
    }

    #[test]
    fn what_is_looked_for_is_found_by_an_index() {
        let (_scratch, database) = Scratch::new();
        let page = Page {
            after: None,
            limit: 10,
        };
        let filters = [
            Filter {
                script: Some(Script(vec![0x51].into())),
                ..Filter::default()
            },
            Filter {
                reference: Some("order-1".to_owned()),
                ..Filter::default()
            },
            Filter {
                txid: Some(Txid([1; 32])),
                ..Filter::default()
            },
        ];
        let assert_indexed = |filter: &Filter, plan: String| {
            let is_read_whole = plan.lines().any(|step| {
                let is_scan = step.starts_with("SCAN") && step != "SCAN chains";
                is_scan && !step.starts_with("SCAN chains USING")
            });
            // Walking down the row numbers from the newest one would pass over all others.
            let is_walk = plan.contains("(rowid<?)") || plan.contains("(rowid>?)");
            assert!(!is_read_whole && !is_walk, "{filter:?}\n{plan}");
        };
        database
            .read(|tx| {
                for filter in &filters {
                    let (sql, values) = tx.deposits_query(filter, page)?;
                    assert_indexed(filter, plan(tx, &format!("{DEPOSIT_SELECT} {sql}"), values));
                    for (table, select, order) in [
                        ("a", ADDRESS_SELECT, "a.id"),
                        ("c", CREDIT_SELECT, "c.rowid DESC"),
                    ] {
                        if table == "a" && filter.txid.is_some() {
                            continue;
                        }
                        let column = order.split(' ').next().unwrap_or_default();
                        let start = Query {
                            sql: format!("{select} WHERE {column} > ?"),
                            values: vec![Value::from(0)],
                        };
                        let (sql, values) = tx.narrow(table, filter, start)?.page(order, page);
                        assert_indexed(filter, plan(tx, &sql, values));
                    }
                }
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn a_page_costs_what_it_holds() {
        let (_scratch, database) = Scratch::new();
        let page = Page {
            after: None,
            limit: 10,
        };
        let chain = Filter {
            chain: Some(ChainKey(1)),
            ..Filter::default()
        };
        let held = Filter {
            is_held: true,
            ..Filter::default()
        };
        let merchant = |table: &str| Query {
            sql: format!(" AND {table}.merchant = ?"),
            values: vec![Value::from(1)],
        };
        database
            .read(|tx| {
                for filter in [&Filter::default(), &chain, &held] {
                    let (sql, values) = tx.deposits_query(filter, page)?;
                    let plan = plan(tx, &format!("{DEPOSIT_SELECT} {sql}"), values);
                    assert!(
                        !plan.contains("TEMP B-TREE") && !plan.contains("SCAN d\n"),
                        "{filter:?}\n{plan}"
                    );
                }
                for (table, select, order) in [
                    ("a", ADDRESS_SELECT, "a.id"),
                    ("c", CREDIT_SELECT, "c.rowid DESC"),
                    ("d", DEPOSIT_SELECT, "d.output DESC"),
                ] {
                    for narrowed in [tx.narrow(table, &chain, merchant(table))?, merchant(table)] {
                        let start = Query {
                            sql: format!("{select} WHERE 1{}", narrowed.sql),
                            values: narrowed.values,
                        };
                        let (sql, values) = start.page(order, page);
                        let plan = plan(tx, &sql, values);
                        let is_by_merchant = plan.contains("_by_merchant (merchant=?");
                        assert!(is_by_merchant && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}
