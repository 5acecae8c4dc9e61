//! URLs of nodes. Providers put keys into paths and queries, so only scheme, host and port are ever shown.

use super::Url;
use thiserror::Error;

/// From this length on a part of a path may be a key: `v2`, `mainnet`, `ext` and `rpc` are none.
const KEY_CHARS_MIN: usize = 16;

/// The URL of a node. Prints without its path and query; only [`NodeUrl::reveal`] shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeUrl(Url);

/// Why a text is no URL of a node. Does not repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeUrlError {
    /// Not a URL at all.
    #[error("not a URL")]
    NotAUrl,
    /// Nothing that we can dial.
    #[error("neither http:// nor https://")]
    Scheme,
    /// A user name or a password in it.
    #[error("a user name or password in it: they have keys of their own")]
    Login,
    /// A `#` and what follows, which is never sent.
    #[error("a # in it")]
    Fragment,
}

impl NodeUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`NodeUrlError`].
    pub fn parse(text: &str) -> Result<NodeUrl, NodeUrlError> {
        // The parser drops line breaks and trims spaces in silence.
        if text.bytes().any(|byte| byte <= b' ') {
            return Err(NodeUrlError::NotAUrl);
        }
        let url = Url::parse(text).map_err(|_| NodeUrlError::NotAUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NodeUrlError::Scheme);
        }
        if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
            return Err(NodeUrlError::NotAUrl);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NodeUrlError::Login);
        }
        if url.fragment().is_some() {
            return Err(NodeUrlError::Fragment);
        }
        Ok(NodeUrl(url))
    }

    /// The whole URL, for the one place that dials it.
    pub fn reveal(&self) -> &str {
        self.0.as_str()
    }

    /// True where a part of it may be a key, which has no place in a config file.
    pub fn may_hold_key(&self) -> bool {
        let mut parts = self.0.path_segments().into_iter().flatten();
        self.0.query().is_some() || parts.any(|part| part.len() >= KEY_CHARS_MIN)
    }

    /// Its parts that may be keys, as they are sent.
    pub fn secrets(&self) -> Vec<String> {
        let parts = self.0.path_segments().into_iter().flatten();
        let values = self.0.query().into_iter().flat_map(|query| query.split('&'));
        let values = values.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let parts = parts.filter(|part| part.len() >= KEY_CHARS_MIN);
        parts.chain(values).map(str::to_owned).collect()
    }

    fn has_more(&self) -> bool {
        self.0.path() != "/" || self.0.query().is_some()
    }
}

impl std::fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}://{}",
            self.0.scheme(),
            self.0.host_str().unwrap_or_default()
        )?;
        if let Some(port) = self.0.port_or_known_default() {
            write!(f, ":{port}")?;
        }
        f.write_str(if self.has_more() { "/***" } else { "" })
    }
}

impl std::fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_prints_without_what_may_be_a_key() {
        let cases = [
            ("http://127.0.0.1:8545", "http://127.0.0.1:8545", false),
            ("http://[::1]:8545/", "http://[::1]:8545", false),
            ("https://rpc.example.com", "https://rpc.example.com:443", false),
            (
                "https://node.example.com/ext/bc/C/rpc",
                "https://node.example.com:443/***",
                false,
            ),
            (
                "https://a.example/v2/0123456789abcdef",
                "https://a.example:443/***",
                true,
            ),
            ("https://a.example/?apikey=k", "https://a.example:443/***", true),
        ];
        for (text, shown, may_hold_key) in cases {
            let url = NodeUrl::parse(text).unwrap();
            assert_eq!(
                (url.to_string(), format!("{url:?}")),
                (shown.to_owned(), shown.to_owned())
            );
            assert_eq!(url.may_hold_key(), may_hold_key, "{text}");
            assert_eq!(url.reveal().trim_end_matches('/'), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn long_parts_and_values_may_be_keys() {
        let of = |text| NodeUrl::parse(text).unwrap().secrets();
        assert!(of("http://127.0.0.1:8545/ext/rpc").is_empty());
        let all = of("https://a.example/v2/0123456789abcdef?x=1&k");
        assert_eq!(all, ["0123456789abcdef", "1", "k"]);
    }

    #[test]
    fn what_is_no_url_of_a_node_is_refused_without_repeating_it() {
        let cases = [
            ("", NodeUrlError::NotAUrl),
            ("127.0.0.1:8545", NodeUrlError::NotAUrl),
            ("localhost:8545", NodeUrlError::Scheme),
            ("ws://127.0.0.1:8546", NodeUrlError::Scheme),
            ("http://", NodeUrlError::NotAUrl),
            ("http://a:0", NodeUrlError::NotAUrl),
            ("http://a b", NodeUrlError::NotAUrl),
            ("http://a.example/x\ny", NodeUrlError::NotAUrl),
            ("https://bob:hunter2@a.example", NodeUrlError::Login),
            ("https://bob@a.example", NodeUrlError::Login),
            ("https://a.example/#x", NodeUrlError::Fragment),
        ];
        for (text, error) in cases {
            assert_eq!(NodeUrl::parse(text), Err(error), "{text:?}");
        }
    }
}
