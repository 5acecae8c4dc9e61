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
    fn csv_quotes_what_needs_it() {
        let csv = String::from_utf8(table().to_csv(true).unwrap()).unwrap();
        assert!(
            csv.starts_with("merchant,net_base\nshop,29000000\n\"b,\"\"c\"\"\",5\n"),
            "{csv}"
        );
        assert!(csv.ends_with("\"'=1+1,\"\"x\"\"\",7\na=1,'-7\n"), "{csv}");
    }
}
