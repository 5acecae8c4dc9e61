//! Tables for people, and the same as comma-separated values for programs.

use crate::telemetry::is_unsafe;
use std::borrow::Cow;

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    /// Numbers, so that their digits stand below each other.
    Right,
}

/// Rows of cells under a heading.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it must have a cell for each column.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        assert!(
            cells.len() == self.columns.len(),
            "a row has a cell for each column"
        );
        self.rows.push(cells);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned columns, two spaces between them, an empty cell as `-`. What could move the cursor of a
    /// terminal is replaced: references are texts of merchants.
    pub(super) fn to_text(&self) -> String {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.to_uppercase()).collect();
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| shown(cell)).collect())
            .collect();
        let all = || std::iter::once(&heading).chain(&rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| all().map(|row| row[at].chars().count()).max().unwrap_or_default())
            .collect();
        let mut text = String::new();
        for row in all() {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let gap = widths[at] - cell.chars().count();
                let gap = " ".repeat(gap);
                match self.columns[at].1 {
                    Align::Left => line.extend([cell.as_str(), &gap]),
                    Align::Right => line.extend([gap.as_str(), cell]),
                }
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The same table with hashes and ids cut to what people tell them apart by: for a terminal, where whole
    /// ones make every row wrap. An id that is cut is one that commands take.
    pub(super) fn shortened(&self) -> Table {
        let shorten = |row: &Vec<String>| row.iter().map(|cell| short(cell)).collect();
        Table {
            columns: self.columns.clone(),
            rows: self.rows.iter().map(shorten).collect(),
        }
    }

    /// RFC 4180, with or without the line of column names. A cell that a spreadsheet would take for a formula
    /// gets a `'` in front: references are texts of merchants, and the file is opened by somebody else.
    pub(super) fn to_csv(&self, has_heading: bool) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        if has_heading {
            writer.write_record(self.columns.iter().map(|(name, _)| name.replace(' ', "_")))?;
        }
        for row in &self.rows {
            writer.write_record(row.iter().map(|cell| harmless(cell)))?;
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }
}

/// Digits of an id that are shown: two of a million begin alike once in five hundred ledgers.
const ID_DIGITS: usize = 12;

fn short(cell: &str) -> String {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (prefix, digits) = cell.split_at(if cell.starts_with("0x") { 2 } else { 0 });
    let (hash, rest) = digits.split_at_checked(64).unwrap_or((digits, ""));
    if hash.len() == 64 && is_hex(hash) && (rest.is_empty() || rest.starts_with(':')) {
        return format!("{prefix}{}..{}{rest}", &hash[..8], &hash[56..]);
    }
    match cell.split_once('_') {
        Some((kind @ ("dep" | "cr" | "evt" | "ep"), digits)) if digits.len() == 40 && is_hex(digits) => {
            format!("{kind}_{}", &digits[..ID_DIGITS])
        }
        Some(_) | None => cell.to_owned(),
    }
}

/// A text as a terminal may see it.
pub(super) fn shown(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    text.chars()
        .map(|letter| if is_unsafe(letter) { '\u{fffd}' } else { letter })
        .collect()
}

/// What begins a formula in spreadsheets (OWASP, "CSV Injection"). No number of ours begins so: amounts have
/// no sign.
const FORMULA_STARTS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

fn harmless(cell: &str) -> Cow<'_, [u8]> {
    match cell.starts_with(FORMULA_STARTS) {
        true => Cow::Owned(format!("'{cell}").into_bytes()),
        false => Cow::Borrowed(cell.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("merchant", Align::Left), ("net base", Align::Right)]);
        table.row(vec!["shop".into(), "29000000".into()]);
        table.row(vec!["b,\"c\"".into(), "5".into()]);
        table.row(vec!["\u{1b}[2Jé".into(), String::new()]);
        table.row(vec!["=1+1,\"x\"".into(), "7".into()]);
        table.row(vec!["a=1".into(), "-7".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_terminals_are_safe() {
        let expected = [
            "MERCHANT  NET BASE",
            "shop      29000000",
            "b,\"c\"            5",
            "\u{fffd}[2Jé            -",
            "=1+1,\"x\"         7",
            "a=1             -7",
            "",
        ]
        .join("\n");
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn a_terminal_is_shown_short_hashes_and_ids_that_commands_take() {
        let hash = format!("{}{}", "0123456789abcdef".repeat(3), "fedcba9876543210");
        for (cell, expected) in [
            (hash.clone(), "01234567..76543210"),
            (format!("{hash}:17"), "01234567..76543210:17"),
            (format!("0x{hash}:17"), "0x01234567..76543210:17"),
            (
                "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed".to_owned(),
                "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            ),
            (format!("{hash}0"), &format!("{hash}0")),
            (format!("dep_{}", &hash[..40]), "dep_0123456789ab"),
            (format!("cr_{}", &hash[..40]), "cr_0123456789ab"),
            (format!("shop_{}", &hash[..40]), &format!("shop_{}", &hash[..40])),
            ("é_1".to_owned(), "é_1"),
        ] {
            let mut table = Table::new(&[("payment", Align::Left)]);
            table.row(vec![cell]);
            assert_eq!(table.shortened().rows[0][0], expected);
        }
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let csv = String::from_utf8(table().to_csv(true).unwrap()).unwrap();
        assert!(
            csv.starts_with("merchant,net_base\nshop,29000000\n\"b,\"\"c\"\"\",5\n"),
            "{csv}"
        );
        assert!(csv.ends_with("\"'=1+1,\"\"x\"\"\",7\na=1,'-7\n"), "{csv}");
    }
}
