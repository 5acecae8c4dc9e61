//! The `Retry-After` header (RFC 9110, 10.2.3): a receiver's wish to be left alone for a while.

/// The wish in seconds. A date is counted from the reply's own `Date`, so that neither our clock nor the
/// receiver's must be right; where that is missing or cannot be read, from our clock's `now_secs`. A date in
/// an obsolete form says nothing. Who obeys sets a bound: it may ask for years.
pub(super) fn secs(retry_after: &str, date: Option<&str>, now_secs: i64) -> Option<u64> {
    let text = retry_after.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let from = date.and_then(unix_secs).unwrap_or(now_secs);
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
        let now_secs = unix_secs("Sun, 06 Nov 1994 08:50:07 GMT").unwrap();
        let cases = [
            ("120", None, Some(120)),
            (" 0 ", date, Some(0)),
            ("99999999999999999999999", None, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", date, Some(60)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", date, Some(86_400)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", date, Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", None, Some(30)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some("today"), Some(30)),
            ("Sun, 06 Nov 1994 08:50:00 GMT", None, Some(0)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", date, None),
            ("", date, None),
            ("-5", date, None),
            ("1.5", date, None),
            ("soon", date, None),
        ];
        for (text, date, expected) in cases {
            assert_eq!(secs(text, date, now_secs), expected, "{text} after {date:?}");
        }
    }
}
