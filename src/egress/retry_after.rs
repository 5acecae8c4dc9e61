//! The `Retry-After` header (RFC 9110, 10.2.3): a receiver's wish to be left alone for a while.

/// The wish in seconds. A date is taken from the reply's own `Date`, so that neither our clock nor the
/// receiver's must be right; without one, or in an obsolete form, it says nothing. Who obeys sets a bound: it
/// may ask for years.
pub(super) fn secs(retry_after: &str, date: Option<&str>) -> Option<u64> {
    let text = retry_after.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let from = unix_secs(date?)?;
    Some(u64::try_from(unix_secs(text)?.saturating_sub(from)).unwrap_or(0))
}

fn unix_secs(date: &str) -> Option<i64> {
    let moment = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date.trim());
    moment.ok().map(jiff::Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_header() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let cases = [
            ("120", None, Some(120)),
            (" 0 ", date, Some(0)),
            ("99999999999999999999999", None, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", date, Some(60)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", date, Some(86_400)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", date, Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", None, None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some("today"), None),
            ("Sunday, 06-Nov-94 08:50:37 GMT", date, None),
            ("", date, None),
            ("-5", date, None),
            ("1.5", date, None),
            ("soon", date, None),
        ];
        for (text, date, expected) in cases {
            assert_eq!(secs(text, date), expected, "{text} after {date:?}");
        }
    }
}
