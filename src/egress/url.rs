//! Reads a callback's URL: what is accepted here has one meaning only, so that no two readers of URLs can
//! disagree about where it leads. Resolves no name; start at [`check_url`].

use super::Url;
use super::guard::{Policy, Verdict};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thiserror::Error;

const URL_BYTES_MAX: usize = 2048;
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Names that mean the inside by convention (RFC 6761, 6762, 8375; `.internal` as reserved by ICANN in 2024).
const INSIDE: [&str; 5] = ["local", "localdomain", "internal", "home.arpa", "onion"];

/// Names by which clouds serve their metadata. Their addresses are never dialled; this says so at once.
const METADATA: [&str; 6] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "instance-data",
    "instance-data.ec2.internal",
];

/// Where a callback may go, as far as that can be told without asking DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackUrl(Url);

/// Why a URL is no callback's. Its [`code`](Self::code) is stable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Longer than any real one.
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// White space, control characters and backslashes: readers of URLs drop or turn them, each in its own
    /// way.
    #[error("the URL holds white space, a control character or a backslash")]
    Characters,
    /// No URL at all, or one that needs a guess to be read.
    #[error("not a URL such as https://shop.example/hook")]
    Form,
    /// Neither https nor http.
    #[error("the URL must begin with https://")]
    Scheme,
    /// http to an address that the operator did not list.
    #[error("http is not encrypted: use https (http goes only to addresses in callbacks.allow_ranges)")]
    PlainHttp,
    /// A user name or password: they end in logs, and `https://shop.example@10.0.0.1/` misleads people.
    #[error("the URL holds a user name or password")]
    UserInfo,
    /// A fragment is never sent.
    #[error("the URL holds a fragment (#)")]
    Fragment,
    /// Not 1 to 65535.
    #[error("the port must be 1 to 65535")]
    Port,
    /// Numbers such as `2130706433`, `0x7f.1` or `0177.0.0.1` are addresses to some readers and names to
    /// others.
    #[error("the host must be a plain name, or an IP address in its usual form")]
    Host,
    /// A name that can only lead inside, while the operator listed no ranges.
    #[error("the host is a name of the local network, and callbacks.allow_ranges lists nothing")]
    InsideName,
    /// A name of a cloud's metadata service.
    #[error("the host is a cloud's metadata service, and callbacks never go there")]
    MetadataName,
    /// An address that callbacks do not go to.
    #[error("callbacks do not go to {address}: {why}")]
    Blocked {
        /// The address.
        address: IpAddr,
        /// What it is.
        why: &'static str,
    },
}

impl UrlError {
    /// The stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            UrlError::TooLong => "url_too_long",
            UrlError::Characters => "url_characters",
            UrlError::Form => "url_form",
            UrlError::Scheme => "url_scheme",
            UrlError::PlainHttp => "url_plain_http",
            UrlError::UserInfo => "url_user_info",
            UrlError::Fragment => "url_fragment",
            UrlError::Port => "url_port",
            UrlError::Host => "url_host",
            UrlError::InsideName => "url_inside_name",
            UrlError::MetadataName => "url_metadata_name",
            UrlError::Blocked { .. } => "blocked_address",
        }
    }
}

impl CallbackUrl {
    /// The URL in its one spelling.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name or address in it.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// True for https.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }
}

impl fmt::Display for CallbackUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads a URL that callbacks are to go to. What a name leads to is decided when it is dialled.
///
/// # Errors
/// [`UrlError`].
pub fn check_url(text: &str, policy: &Policy) -> Result<CallbackUrl, UrlError> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    if text
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || c == '\\')
    {
        return Err(UrlError::Characters);
    }
    let (scheme, rest) = text.split_once(':').ok_or(UrlError::Form)?;
    if !["https", "http"].contains(&scheme.to_ascii_lowercase().as_str()) {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        return Err(match scheme.is_empty() || !scheme.chars().all(is_scheme) {
            true => UrlError::Form,
            false => UrlError::Scheme,
        });
    }
    let rest = rest.strip_prefix("//").ok_or(UrlError::Form)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlError::UserInfo);
    }
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    let host = written_host(authority)?;
    let url = Url::parse(text).map_err(|_| UrlError::Host)?;
    check_host(host, &url, policy)?;
    Ok(CallbackUrl(url))
}

/// The host as it is written, once the port behind it is a good one.
fn written_host(authority: &str) -> Result<&str, UrlError> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']').map(|at| at + 2).ok_or(UrlError::Host)?,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    if host.is_empty() {
        return Err(UrlError::Form);
    }
    let is_port = |port: &str| {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        is_number && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(host),
        Some(port) if is_port(port) => Ok(host),
        Some(_) | None => Err(UrlError::Port),
    }
}

fn check_host(written: &str, url: &Url, policy: &Policy) -> Result<(), UrlError> {
    let host = url.host_str().ok_or(UrlError::Host)?;
    let is_https = url.scheme() == "https";
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    if let Some(address) = address {
        // `0x7f.1` and `[::ffff:127.0.0.1]` are read as what they mean: then they differ from what is
        // written.
        if written != host {
            return Err(UrlError::Host);
        }
        return match policy.judge(address) {
            Verdict::Denied(why) => Err(UrlError::Blocked { address, why }),
            Verdict::Public if !is_https => Err(UrlError::PlainHttp),
            Verdict::Public | Verdict::Listed => Ok(()),
        };
    }
    // A name with other letters is turned into `xn--`; one in ASCII must be what it will be.
    if (written.is_ascii() && !written.eq_ignore_ascii_case(host)) || !is_plain_name(host) {
        return Err(UrlError::Host);
    }
    if host == "localhost" || host.ends_with(".localhost") {
        let here = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        return match here.map(|address| policy.judge(address)) {
            [Verdict::Denied(why), Verdict::Denied(_)] => Err(UrlError::Blocked {
                address: here[0],
                why,
            }),
            [_, _] => Ok(()),
        };
    }
    let is_inside = |suffix: &&str| host.strip_suffix(*suffix).is_some_and(|rest| rest.ends_with('.'));
    if METADATA.iter().any(|name| host == *name || is_inside(name)) {
        Err(UrlError::MetadataName)
    } else if !policy.is_public_only() {
        Ok(())
    } else if !host.contains('.') || INSIDE.iter().any(is_inside) {
        Err(UrlError::InsideName)
    } else if !is_https {
        Err(UrlError::PlainHttp)
    } else {
        Ok(())
    }
}

/// Letters, digits, `-` and `_` in labels, no dot at the end: what TLS, `Host` and DNS read alike.
fn is_plain_name(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= NAME_BYTES_MAX && host.split('.').all(is_label)
}
