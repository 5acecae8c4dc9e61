//! One line of comma-separated values.

use std::borrow::Cow;

/// The fields of one line of comma-separated values. A quoted field ends on its line: a quote that is not
/// closed must not swallow the lines after it.
pub(super) fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, String> {
    if !line.contains('"') {
        return Ok(line.split(',').map(Cow::Borrowed).collect());
    }
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let trimmed = rest.trim_start();
        let Some(quoted) = trimmed.strip_prefix('"') else {
            let (field, after) = rest
                .split_once(',')
                .map_or((rest, None), |(field, after)| (field, Some(after)));
            fields.push(Cow::Borrowed(field));
            match after {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let (field, after) = unquote(quoted)?;
        fields.push(Cow::Owned(field));
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None if after.is_empty() => return Ok(fields),
            None => return Err("text after a closing quote".to_owned()),
        }
    }
}

/// The text up to the closing quote, where two quotes stand for one, and what follows.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Ok((field, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_split_into_fields() {
        let cases: &[(&str, Result<&[&str], &str>)] = &[
            ("a", Ok(&["a"])),
            ("a,b,c", Ok(&["a", "b", "c"])),
            ("a,,", Ok(&["a", "", ""])),
            ("\"a\",\"b,c\"", Ok(&["a", "b,c"])),
            ("\"a\"\"b\" , c", Ok(&["a\"b", " c"])),
            ("a, \"b\"", Ok(&["a", "b"])),
            ("\"a", Err("a quote is not closed")),
            ("\"a\"b", Err("text after a closing quote")),
        ];
        for (line, expected) in cases {
            let got = fields(line);
            let got = got
                .as_ref()
                .map(|fields| fields.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
            assert_eq!(got.as_deref().map_err(|text| text.as_str()), *expected, "{line}");
        }
    }
}
