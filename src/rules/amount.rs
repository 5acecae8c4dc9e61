//! Unsigned 256-bit integers: money in base units ([`Amount`]) and proof of work ([`Work`]). Neither has an
//! arithmetic operator, so that no sum can overflow in silence, and no float ever touches either.

use ruint::aliases::U256;
use thiserror::Error;

/// An amount of one asset in its base units (satoshi, wei, token units).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(U256);

/// Why a text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AmountError {
    /// Not of the form `0`, `12` or `12.34`: sign, exponent, spaces, separators, leading zeros and `.5` are
    /// refused.
    #[error("not a plain decimal number such as 12 or 0.29")]
    Malformed,
    /// More digits after the point than the asset has; rounding would change the amount.
    #[error("more than {decimals} digits after the point")]
    TooPrecise {
        /// The asset's number of decimals.
        decimals: u8,
    },
    /// Does not fit 256 bits.
    #[error("larger than 2^256 - 1 base units")]
    TooLarge,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(U256::ZERO);

    /// An amount of satoshi or another 64-bit count of base units.
    pub fn from_u64(base: u64) -> Amount {
        Amount(U256::from(base))
    }

    /// From 32 big-endian bytes, as EVM words carry it.
    pub fn from_be_bytes(bytes: [u8; 32]) -> Amount {
        Amount(U256::from_be_bytes(bytes))
    }

    /// As 32 big-endian bytes.
    pub fn to_be_bytes(self) -> [u8; 32] {
        self.0.to_be_bytes()
    }

    /// Reads the canonical decimal text of base units, as the database keeps it: no sign, no leading zero.
    ///
    /// # Errors
    /// [`AmountError::Malformed`] or [`AmountError::TooLarge`].
    pub fn from_base_str(text: &str) -> Result<Amount, AmountError> {
        if !is_canonical_integer(text) {
            return Err(AmountError::Malformed);
        }
        U256::from_str_radix(text, 10)
            .map(Amount)
            .map_err(|_| AmountError::TooLarge)
    }

    /// Reads whole units (`"0.29"`) of an asset with `decimals` decimals, exactly.
    ///
    /// # Errors
    /// [`AmountError`]: nothing is rounded, trimmed or guessed.
    pub fn from_units_str(text: &str, decimals: u8) -> Result<Amount, AmountError> {
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(AmountError::Malformed),
            None => (text, ""),
        };
        if !is_canonical_integer(whole) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(AmountError::Malformed);
        }
        if fraction.len() > usize::from(decimals) {
            return Err(AmountError::TooPrecise { decimals });
        }
        let digits = format!("{whole}{fraction:0<width$}", width = usize::from(decimals));
        U256::from_str_radix(&digits, 10)
            .map(Amount)
            .map_err(|_| AmountError::TooLarge)
    }

    /// Whole units with every significant digit and no exponent: `"0.29"`, `"3"`.
    pub fn to_units_string(&self, decimals: u8) -> String {
        let digits = self.0.to_string();
        let decimals = usize::from(decimals);
        let padded = format!("{digits:0>width$}", width = decimals + 1);
        let (whole, fraction) = padded.split_at(padded.len() - decimals);
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() {
            whole.to_owned()
        } else {
            format!("{whole}.{fraction}")
        }
    }

    /// The sum, or `None` past 2^256 - 1.
    #[must_use]
    pub fn checked_add(self, other: Amount) -> Option<Amount> {
        self.0.checked_add(other.0).map(Amount)
    }

    /// The sum, or 2^256 - 1 where it is more: for sums of what anybody may claim, on which no money depends.
    #[must_use]
    pub fn saturating_add(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }

    /// The difference, or `None` below zero.
    #[must_use]
    pub fn checked_sub(self, other: Amount) -> Option<Amount> {
        self.0.checked_sub(other.0).map(Amount)
    }

    /// So many hundredths of a percent of it, rounded down.
    #[must_use]
    pub fn hundredths_of_percent(self, hundredths: u16) -> Amount {
        let (whole, rest) = self.0.div_rem(U256::from(10_000));
        let share = U256::from(hundredths);
        // The rest is below 10,000; the whole, times less than that, is below what it was taken from.
        let whole = whole.saturating_mul(share);
        Amount(whole.saturating_add(rest * share / U256::from(10_000)))
    }

    /// True for no base unit at all.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
}

/// The canonical decimal text of base units.
impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn is_canonical_integer(text: &str) -> bool {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits && (text == "0" || !text.starts_with('0'))
}

/// Proof of work: of one header, or summed from genesis (`chainwork` of Bitcoin Core's `getblockheader`). On
/// chains without proof of work it counts blocks, so that more is always better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Work(U256);

impl Work {
    /// From 32 big-endian bytes.
    pub fn from_be_bytes(bytes: [u8; 32]) -> Work {
        Work(U256::from_be_bytes(bytes))
    }

    /// So many units.
    pub fn from_u64(units: u64) -> Work {
        Work(U256::from(units))
    }

    /// As 32 big-endian bytes.
    pub fn to_be_bytes(self) -> [u8; 32] {
        self.0.to_be_bytes()
    }

    /// Reads the 64 hex digits in which Bitcoin Core prints `chainwork`.
    pub fn from_hex(text: &str) -> Option<Work> {
        super::ids::parse_hex32(text).map(Work::from_be_bytes)
    }

    /// The sum, or `None` past 2^256 - 1.
    #[must_use]
    pub fn checked_add(self, other: Work) -> Option<Work> {
        self.0.checked_add(other.0).map(Work)
    }

    /// The difference, or `None` below zero.
    #[must_use]
    pub fn checked_sub(self, other: Work) -> Option<Work> {
        self.0.checked_sub(other.0).map(Work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_units_are_read_exactly_or_refused() {
        let cases: &[(&str, u8, Result<&str, AmountError>)] = &[
            ("0.29", 8, Ok("29000000")),
            ("20999999.9769", 8, Ok("2099999997690000")),
            ("3", 0, Ok("3")),
            ("0", 8, Ok("0")),
            ("1234567.123456789012345678", 18, Ok("1234567123456789012345678")),
            ("10.1234567", 6, Err(AmountError::TooPrecise { decimals: 6 })),
            ("1e-8", 8, Err(AmountError::Malformed)),
            ("-1", 8, Err(AmountError::Malformed)),
            ("+1", 8, Err(AmountError::Malformed)),
            ("NaN", 8, Err(AmountError::Malformed)),
            (" 1", 8, Err(AmountError::Malformed)),
            ("1,5", 8, Err(AmountError::Malformed)),
            ("00.1", 8, Err(AmountError::Malformed)),
            (".5", 8, Err(AmountError::Malformed)),
            ("5.", 8, Err(AmountError::Malformed)),
            ("", 8, Err(AmountError::Malformed)),
            ("1_0", 8, Err(AmountError::Malformed)),
            ("0x10", 8, Err(AmountError::Malformed)),
        ];
        for (text, decimals, expected) in cases {
            let got = Amount::from_units_str(text, *decimals).map(|amount| amount.to_string());
            assert_eq!(
                got,
                expected.map(str::to_owned),
                "{text:?} with {decimals} decimals"
            );
        }
    }

    #[test]
    fn units_are_printed_without_loss_or_exponent() {
        let cases = [
            ("29000000", 8, "0.29"),
            ("59", 8, "0.00000059"),
            ("100000000", 8, "1"),
            ("3", 0, "3"),
            ("0", 8, "0"),
        ];
        for (base, decimals, expected) in cases {
            let amount = Amount::from_base_str(base).unwrap();
            assert_eq!(amount.to_units_string(decimals), expected);
            assert_eq!(Amount::from_units_str(expected, decimals).unwrap(), amount);
        }
    }

    #[test]
    fn the_edges_of_256_bits_are_errors_not_wraps() {
        let max = Amount::from_be_bytes([0xff; 32]);
        assert_eq!(max.checked_add(Amount::from_u64(1)), None);
        assert_eq!(max.saturating_add(Amount::from_u64(1)), max);
        assert_eq!(Amount::ZERO.checked_sub(Amount::from_u64(1)), None);
        let text = max.to_string();
        assert_eq!(Amount::from_base_str(&text), Ok(max));
        assert_eq!(
            Amount::from_base_str(&format!("{text}0")),
            Err(AmountError::TooLarge)
        );
        assert_eq!(Amount::from_base_str("01"), Err(AmountError::Malformed));
    }
}
