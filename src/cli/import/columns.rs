//! Which column of an imported list is what. A header line decides it; obeying it by half would book a
//! merchant's money to another, so that one which is not understood is refused with the whole file.

use std::borrow::Cow;

/// The order of a list without a header.
pub(super) const DOCUMENTED: Columns = Columns {
    address: 0,
    merchant: Some(1),
    reference: Some(2),
    count: 3,
};

/// Where a line has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) address: usize,
    pub(super) merchant: Option<usize>,
    pub(super) reference: Option<usize>,
    /// The most that a line may have.
    pub(super) count: usize,
}

/// Columns of the first line that says something; `None` if it is no header. `is_address` tells what it is
/// instead.
pub(super) fn of_first_line(
    fields: &[Cow<'_, str>],
    is_address: impl Fn(&str) -> bool,
) -> Result<Option<Columns>, String> {
    let names: Vec<String> = fields
        .iter()
        .map(|field| field.trim().to_ascii_lowercase())
        .collect();
    if let [name] = names.as_slice()
        && let Some(separator) = foreign_separator(name)
    {
        return Err(format!(
            "the columns of the first line are separated by {separator}"
        ));
    }
    if !is_header(&names) || fields.iter().any(|field| is_address(field.trim())) {
        return Ok(None);
    }
    let mut columns = Columns {
        address: usize::MAX,
        merchant: None,
        reference: None,
        count: names.len(),
    };
    for (at, name) in names.iter().enumerate() {
        let known = match name.as_str() {
            "address" if columns.address == usize::MAX => {
                columns.address = at;
                continue;
            }
            "merchant" => &mut columns.merchant,
            "reference" => &mut columns.reference,
            "address" => return Err("the header names address twice".to_owned()),
            _ => {
                return Err(format!(
                    "the header names an unknown column {:?}",
                    super::short(name)
                ));
            }
        };
        if known.replace(at).is_some() {
            return Err(format!("the header names {name} twice"));
        }
    }
    match columns.address {
        usize::MAX => Err("the header names no column address".to_owned()),
        _ => Ok(Some(columns)),
    }
}

/// What separates the columns of this field, should it not be a comma.
pub(super) fn foreign_separator(field: &str) -> Option<&'static str> {
    [(';', "semicolons"), ('\t', "tabs")]
        .into_iter()
        .find_map(|(letter, name)| field.trim().contains(letter).then_some(name))
}

/// A line with a known name, or with several words of which none has a digit: an address always has one.
fn is_header(names: &[String]) -> bool {
    let is_known = |name: &String| ["address", "merchant", "reference"].contains(&name.as_str());
    let has_digit = |name: &String| name.bytes().any(|byte| byte.is_ascii_digit());
    names.iter().any(is_known) || (names.len() > 1 && !names.iter().any(has_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_obeyed_or_refused() {
        let columns = |address, merchant, reference, count| {
            Ok(Some(Columns {
                address,
                merchant,
                reference,
                count,
            }))
        };
        let cases: &[(&str, Result<Option<Columns>, &str>)] = &[
            ("address,merchant,reference", columns(0, Some(1), Some(2), 3)),
            ("Reference, ADDRESS ,merchant", columns(1, Some(2), Some(0), 3)),
            ("reference,address", columns(1, None, Some(0), 2)),
            ("address", columns(0, None, None, 1)),
            ("addr1,merchant", Ok(None)),
            ("bc1x", Ok(None)),
            ("bc1x,shop", Ok(None)),
            ("no address", Ok(None)),
            ("address,shop", Err("the header names an unknown column \"shop\"")),
            (
                "wallet,customer",
                Err("the header names an unknown column \"wallet\""),
            ),
            ("merchant,reference", Err("the header names no column address")),
            (
                "address,merchant,merchant",
                Err("the header names merchant twice"),
            ),
            ("address,address", Err("the header names address twice")),
            (
                "address;merchant",
                Err("the columns of the first line are separated by semicolons"),
            ),
            (
                "addr1\tshop",
                Err("the columns of the first line are separated by tabs"),
            ),
        ];
        for (line, expected) in cases {
            let fields: Vec<Cow<'_, str>> = line.split(',').map(Cow::Borrowed).collect();
            let got = of_first_line(&fields, |field| field == "addr1");
            assert_eq!(
                got.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|text| *text),
                "{line}"
            );
        }
    }
}
