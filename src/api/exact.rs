//! Numbers of a body that would be others once they are read: whoever writes 10000000000000000000001 must not
//! be answered with 1e22, nor with what was kept for 10000000000000000000002.

/// The first number of a JSON text that is not the same as what is kept of it, shortened.
pub(super) fn first_changed(json: &[u8]) -> Option<String> {
    let (mut is_text, mut is_escaped, mut start) = (false, false, None);
    // One more, so that a number at the end ends too.
    for (at, byte) in json.iter().chain(b" ").enumerate() {
        let is_part = matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        match (start, byte) {
            _ if is_escaped => is_escaped = false,
            (_, b'\\') if is_text => is_escaped = true,
            (None, b'"') => is_text = !is_text,
            (None, b'0'..=b'9' | b'-') if !is_text => start = Some(at),
            (Some(from), _) if !is_part => {
                let number = json.get(from..at).and_then(|bytes| str::from_utf8(bytes).ok());
                if let Some(number) = number.filter(|number| !is_kept(number)) {
                    return Some(number.chars().take(40).collect());
                }
                start = None;
                is_text = *byte == b'"';
            }
            _ => {}
        }
    }
    None
}

/// Whether a JSON number is an integer of 64 bits, or the same as the shortest text of its float.
fn is_kept(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let Ok(float) = number.parse::<f64>() else {
        return false;
    };
    value(number).is_some_and(|exact| Some(exact) == value(&format!("{float:e}")))
}

/// The digits of a number without zeros around them, and the power of ten of the last one.
fn value(number: &str) -> Option<(bool, String, i64)> {
    let (is_negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let short = digits.trim_end_matches('0');
    let cut = digits.len() - short.len();
    let short = short.trim_start_matches('0');
    if short.is_empty() {
        return Some((false, String::new(), 0));
    }
    let power = exponent - i64::try_from(fraction.len()).ok()? + i64::try_from(cut).ok()?;
    Some((is_negative, short.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_would_be_another_is_found_and_no_other() {
        let kept = [
            "{}",
            r#"{"a":[0,-0,1.50,1e3,1E+3,100e-2,0.1,1e22,5e-324,0.0e9]}"#,
            r#"{"a":[-9223372036854775808,18446744073709551615]}"#,
            r#"{"12345678901234567890123":"0.1000000000000000055","b":"\"0.1000000000000000055"}"#,
            r#"{"a":1,"b":-2.5}"#,
        ];
        for json in kept {
            assert_eq!(first_changed(json.as_bytes()), None, "{json}");
        }
        let changed = [
            (r#"{"a":18446744073709551616}"#, Some("18446744073709551616")),
            (
                r#"{"a":10000000000000000000001}"#,
                Some("10000000000000000000001"),
            ),
            (
                r#"{"a":"x","b":[1,0.1000000000000000055]}"#,
                Some("0.1000000000000000055"),
            ),
            (r#"{"a":-9223372036854775809}"#, Some("-9223372036854775809")),
            (r#"{"a":1e-400}"#, Some("1e-400")),
            ("0.30000000000000001", Some("0.30000000000000001")),
        ];
        for (json, number) in changed {
            assert_eq!(first_changed(json.as_bytes()).as_deref(), number, "{json}");
        }
    }
}
