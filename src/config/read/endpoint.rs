//! `[[evm.endpoint]]`: where a node is and how it lets us in. Keys stand in files, never here.

use super::super::evm::{EndpointAuth, EndpointUrl, EvmEndpoint};
use super::super::secret::SecretFile;
use super::super::section::{Section, whole};
use super::{NAME, name, text};
use crate::egress::NodeUrl;
use std::path::Path;
use toml::de::DeValue;

const FILES: &str = "a path or \"credential:NAME\"";

/// More would be asked one after the other for nothing.
const ENDPOINTS_MAX: usize = 16;

/// Headers that we write ourselves, or that say where a request ends.
const TAKEN_HEADERS: [&str; 6] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// All endpoints of a chain, in the order of the file.
pub(super) fn endpoints(section: &Section<'_>, folder: &Path) -> Option<Vec<EvmEndpoint>> {
    let sections = section.tables("endpoint")?;
    if sections.is_empty() || sections.len() > ENDPOINTS_MAX {
        let text = format!(
            "found {}, allowed: 1 to {ENDPOINTS_MAX} [[evm.endpoint]]",
            sections.len()
        );
        section.fault("endpoint", text);
    }
    let endpoints: Vec<_> = sections.iter().map(|section| endpoint(section, folder)).collect();
    let endpoints: Vec<EvmEndpoint> = endpoints.into_iter().collect::<Option<_>>()?;
    for (at, (endpoint, section)) in endpoints.iter().zip(&sections).enumerate() {
        let before = &endpoints[..at];
        if before.iter().any(|other| other.name == endpoint.name) {
            section.fault("name", format!("{:?} is there twice", endpoint.name));
        }
        // Two entries of one node would make a quorum of one.
        if let Some(other) = before.iter().find(|other| other.url == endpoint.url) {
            let key = if section.has("url") { "url" } else { "url_file" };
            section.fault(key, format!("the same as that of endpoint {:?}", other.name));
        }
    }
    (!endpoints.is_empty()).then_some(endpoints)
}

/// How many endpoints must agree: no more than there are.
pub(super) fn quorum(section: &Section<'_>, endpoints: Option<&[EvmEndpoint]>) -> usize {
    let most = endpoints.map_or(ENDPOINTS_MAX, <[_]>::len);
    let allowed = format!("a whole number from 1 to {most}, the number of endpoints");
    let quorum = section.optional("quorum", &allowed, |value| {
        let quorum = usize::try_from(whole(value)?).ok()?;
        (1..=most).contains(&quorum).then_some(quorum)
    });
    quorum.unwrap_or(1)
}

fn endpoint(section: &Section<'_>, folder: &Path) -> Option<EvmEndpoint> {
    let name = section.required("name", NAME, name);
    let url = url(section, folder);
    let auth = auth(section, folder);
    let ca_file = section.optional("ca_file", "a path", |value| {
        text(value).filter(|path| !path.is_empty())
    });
    section.close();
    Some(EvmEndpoint {
        name: name?.to_owned(),
        url: url?,
        auth: auth?,
        ca_file: ca_file.map(|path| folder.join(path)),
    })
}

fn file<'a>(folder: &Path) -> impl FnOnce(&'a DeValue<'a>) -> Option<SecretFile> {
    move |value| SecretFile::from_config(text(value)?, folder)
}

fn url(section: &Section<'_>, folder: &Path) -> Option<EndpointUrl> {
    let file = section.optional("url_file", FILES, file(folder));
    // What stands here may be a key in the wrong place: it is never repeated.
    let allowed = "a text";
    let url = section.optional("url", allowed, text);
    match (section.has("url"), section.has("url_file")) {
        (true, false) => match NodeUrl::parse(url?) {
            Ok(url) if url.may_hold_key() => {
                let text = format!(
                    "{url} seems to hold a key: put the whole URL into a file of one line and name that \
                     as url_file"
                );
                section.fault("url", text);
                None
            }
            Ok(url) => Some(EndpointUrl::Plain(url)),
            Err(error) => {
                let text = format!("found what is {error}, allowed: http://HOST:PORT or https://HOST/PATH");
                section.fault("url", text);
                None
            }
        },
        (false, true) => file.map(EndpointUrl::File),
        (true, true) => {
            section.fault("url", "found together with url_file, allowed: one of them");
            None
        }
        (false, false) => {
            let text = "missing, allowed: http://HOST:PORT or https://HOST/PATH; or url_file, for a URL that \
                        holds a key";
            section.missing("url", text);
            None
        }
    }
}

fn auth(section: &Section<'_>, folder: &Path) -> Option<EndpointAuth> {
    let user = section.optional("user", "a user name", |value| {
        text(value).filter(|user| !user.is_empty() && !user.contains(':'))
    });
    let password = section.optional("password_file", FILES, file(folder));
    let bearer = section.optional("bearer_file", FILES, file(folder));
    let headers = "the name of a header such as \"x-api-key\"";
    let header = section.optional("header", headers, |value| text(value).and_then(header_name));
    let value = section.optional("header_file", FILES, file(folder));
    let needs = |key: &'static str, other: &'static str, allowed: &str| {
        if section.has(key) && !section.has(other) {
            section.missing(other, format!("missing beside {key}, allowed: {allowed}"));
        }
    };
    needs("user", "password_file", FILES);
    needs("password_file", "user", "a user name");
    needs("header", "header_file", FILES);
    needs("header_file", "header", headers);
    let ways = [
        ["user", "password_file"],
        ["bearer_file", "bearer_file"],
        ["header", "header_file"],
    ];
    let used = ways.map(|keys| keys.into_iter().find(|key| section.has(key)));
    let mut used = used.into_iter().flatten();
    if let (Some(first), Some(second)) = (used.next(), used.next()) {
        section.fault(
            second,
            format!("found together with {first}, allowed: one way to log in"),
        );
        return None;
    }
    if section.has("user") || section.has("password_file") {
        return Some(EndpointAuth::Basic {
            user: user?.to_owned(),
            password: password?,
        });
    }
    if section.has("header") || section.has("header_file") {
        return Some(EndpointAuth::Header {
            name: header?,
            value: value?,
        });
    }
    match section.has("bearer_file") {
        true => bearer.map(EndpointAuth::Bearer),
        false => Some(EndpointAuth::None),
    }
}

/// In lower case, because HTTP does not tell them apart.
fn header_name(text: &str) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_name = (1..=64).contains(&text.len()) && text.bytes().all(is_letter);
    let name = text.to_ascii_lowercase();
    (is_name && !TAKEN_HEADERS.contains(&name.as_str())).then_some(name)
}
