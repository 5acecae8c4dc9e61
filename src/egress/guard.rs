//! Which addresses a callback may go to: public ones, and those in ranges that the operator listed. Decides
//! about one address at a time and knows neither names nor URLs; start at [`Policy::judge`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thiserror::Error;

/// A range of addresses such as `10.1.0.0/16`, in its shortest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    net: IpAddr,
    bits: u8,
}

/// Why a text is not a range that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// Not `ADDRESS/BITS`, or bits are set behind the prefix.
    #[error("not a range such as \"10.1.0.0/16\" or \"fd00:1::/32\"")]
    Form,
    /// It would cover addresses that are never called.
    #[error("covers link-local, unspecified, multicast or reserved addresses, which are never called")]
    NeverCalled,
}

impl Range {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Range {
        Range {
            net: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            bits,
        }
    }

    const fn v6(a: u16, b: u16, bits: u8) -> Range {
        Range {
            net: IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)),
            bits,
        }
    }

    const fn only(address: IpAddr) -> Range {
        let bits = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Range { net: address, bits }
    }

    /// Reads a range that an operator lists.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn parse(text: &str) -> Result<Range, RangeError> {
        let (net, bits) = text.split_once('/').ok_or(RangeError::Form)?;
        let net: IpAddr = net.parse().map_err(|_| RangeError::Form)?;
        let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits.parse().map_err(|_| RangeError::Form)?;
        let range = Range { net, bits };
        if !is_number || bits > range.width() || range.tail() != 0 {
            return Err(RangeError::Form);
        }
        let is_callable = match net {
            IpAddr::V4(_) => true,
            IpAddr::V6(_) => CALLABLE_V6.iter().any(|wide| wide.covers(range)),
        };
        match is_callable && !NEVER.iter().any(|(never, _)| never.overlaps(range)) {
            true => Ok(range),
            false => Err(RangeError::NeverCalled),
        }
    }

    /// True if the address lies in it. An IPv4 address never lies in an IPv6 range, in whatever clothes.
    pub fn contains(self, address: IpAddr) -> bool {
        self.covers(Range::only(address))
    }

    fn covers(self, other: Range) -> bool {
        self.bits <= other.bits && self.overlaps(other)
    }

    fn overlaps(self, other: Range) -> bool {
        let bits = self.bits.min(other.bits);
        self.width() == other.width() && self.prefix(bits) == other.prefix(bits)
    }

    fn width(self) -> u8 {
        match self.net {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }

    /// The address as a number.
    fn number(self) -> u128 {
        match self.net {
            IpAddr::V4(net) => u128::from(net.to_bits()),
            IpAddr::V6(net) => net.to_bits(),
        }
    }

    /// Its first `bits` bits.
    fn prefix(self, bits: u8) -> u128 {
        self.number()
            .checked_shr(u32::from(self.width() - bits))
            .unwrap_or(0)
    }

    /// The bits behind the prefix.
    fn tail(self) -> u128 {
        let prefix = self.prefix(self.bits);
        let shift = u32::from(self.width() - self.bits);
        self.number() - prefix.checked_shl(shift).unwrap_or(0)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.net, self.bits)
    }
}

/// Nobody can list these.
const NEVER: [(Range, &str); 9] = [
    // On Linux 0.0.0.0 is the machine itself.
    (Range::v4(0, 0, 0, 0, 8), "unspecified"),
    // Here the metadata services of clouds give out keys to whoever asks from the inside.
    (Range::v4(169, 254, 0, 0, 16), "link-local"),
    (Range::v4(224, 0, 0, 0, 4), "multicast"),
    (Range::v4(240, 0, 0, 0, 4), "reserved or broadcast"),
    (Range::v6(0xfe80, 0, 10), "link-local"),
    (Range::v6(0xff00, 0, 8), "multicast"),
    // These hold an IPv4 address, which would pass under another name.
    (Range::v6(0x2001, 0, 32), "an IPv4 address inside Teredo"),
    (Range::v6(0x2002, 0, 16), "an IPv4 address inside 6to4"),
    (MAPPED, "an IPv4 address written as IPv6"),
];

/// Single addresses where clouds serve the same metadata. They lie in ranges that operators list for good
/// reasons, or look public, and stay closed.
const METADATA: [Range; 5] = [
    Range::v4(100, 100, 100, 200, 32), // Alibaba Cloud
    Range::v4(168, 63, 129, 16, 32),   // Azure
    Range::v4(192, 0, 0, 192, 32),     // Oracle Cloud
    Range::only(IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254))), // AWS
    Range::only(IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254))), // Google Cloud
];

/// What is neither public nor never called: open to those who list it. From IANA's registries of special
/// addresses (<https://www.iana.org/assignments/iana-ipv4-special-registry>, `iana-ipv6-special-registry`).
const SPECIAL: [(Range, &str); 16] = [
    (Range::v4(10, 0, 0, 0, 8), "private"),
    (Range::v4(100, 64, 0, 0, 10), "shared by a provider (CGNAT)"),
    (Range::v4(127, 0, 0, 0, 8), "loopback"),
    (Range::v4(172, 16, 0, 0, 12), "private"),
    (Range::v4(192, 0, 0, 0, 24), "for protocols"),
    (Range::v4(192, 0, 2, 0, 24), "for documentation"),
    (Range::v4(192, 88, 99, 0, 24), "a relay of 6to4"),
    (Range::v4(192, 168, 0, 0, 16), "private"),
    (Range::v4(198, 18, 0, 0, 15), "for benchmarks"),
    (Range::v4(198, 51, 100, 0, 24), "for documentation"),
    (Range::v4(203, 0, 113, 0, 24), "for documentation"),
    (LOOPBACK_V6, "loopback"),
    (Range::v6(0xfc00, 0, 7), "private"),
    (Range::v6(0x2001, 0, 23), "for protocols and benchmarks"),
    (Range::v6(0x2001, 0xdb8, 32), "for documentation"),
    (Range::v6(0x3fff, 0, 20), "for documentation"),
];

const LOOPBACK_V6: Range = Range::only(IpAddr::V6(Ipv6Addr::LOCALHOST));
const GLOBAL_V6: Range = Range::v6(0x2000, 0, 3);
const NAT64: Range = Range {
    net: IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)),
    bits: 96,
};
const MAPPED: Range = Range {
    net: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)),
    bits: 96,
};

/// Most of IPv6 is not assigned, and what may become of it is not known: only these are ever called.
const CALLABLE_V6: [Range; 3] = [GLOBAL_V6, Range::v6(0xfc00, 0, 7), LOOPBACK_V6];

/// What a callback may do with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A public address: https only.
    Public,
    /// Inside a range that the operator listed: https or http.
    Listed,
    /// Never, or not without being listed; the reason in a word.
    Denied(&'static str),
}

/// Which addresses callbacks may go to. Without ranges: public ones only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    ranges: Vec<Range>,
}

impl Policy {
    /// Public addresses and these ranges.
    pub fn new(ranges: Vec<Range>) -> Policy {
        Policy { ranges }
    }

    /// True if the operator listed nothing: then no name may lead to http or to the inside.
    pub fn is_public_only(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Decides about one address.
    pub fn judge(&self, address: IpAddr) -> Verdict {
        if let IpAddr::V6(v6) = address
            && NAT64.contains(address)
        {
            // In a network without IPv4 its DNS makes such addresses of all others: judged by what they hold.
            let [.., a, b, c, d] = v6.octets();
            return match Policy::default().judge(Ipv4Addr::new(a, b, c, d).into()) {
                Verdict::Public => Verdict::Public,
                Verdict::Listed | Verdict::Denied(_) => Verdict::Denied("an IPv4 address inside NAT64"),
            };
        }
        let is_in = |range: &Range| range.contains(address);
        if let Some((_, why)) = NEVER.iter().find(|(range, _)| is_in(range)) {
            return Verdict::Denied(why);
        }
        if METADATA.iter().any(is_in) {
            return Verdict::Denied("a cloud's metadata service");
        }
        if address.is_ipv6() && !CALLABLE_V6.iter().any(is_in) {
            return Verdict::Denied("not assigned, or an IPv4 address written as IPv6");
        }
        if self.ranges.iter().any(is_in) {
            return Verdict::Listed;
        }
        match SPECIAL.iter().find(|(range, _)| is_in(range)) {
            Some((_, why)) => Verdict::Denied(why),
            None => Verdict::Public,
        }
    }
}
