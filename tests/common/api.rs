//! A merchant's program: asks the API over a connection of its own, as any HTTP client does.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use creditd::rules::Script;
use creditd::store::{Database, NewSource, OpenMode, SourceKind};
use serde_json::Value;

use super::daemon::{Daemon, Setup};
use super::stub::StubNode;
use super::wait::PATIENCE;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        self.headers.iter().find(named).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// The problem's code and field, which must be well-formed.
    #[track_caller]
    pub fn problem(&self, status: u16) -> (String, Option<String>) {
        let problem = self.expect(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["status"], status);
        assert!(
            problem["title"].is_string() && problem["detail"].is_string(),
            "{problem}"
        );
        let field = problem["field"].as_str().map(str::to_owned);
        (problem["code"].as_str().unwrap().to_owned(), field)
    }
}

/// Whoever holds a key.
#[derive(Clone, Debug)]
pub struct Client {
    pub port: u16,
    pub key: String,
}

impl Client {
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.try_send("GET", path, &[], "").unwrap()
    }

    /// Posts a body under an idempotency key.
    #[track_caller]
    pub fn post(&self, path: &str, key: &str, body: &str) -> Reply {
        self.try_post(path, key, body).unwrap()
    }

    pub fn try_post(&self, path: &str, key: &str, body: &str) -> io::Result<Reply> {
        let headers = [("Idempotency-Key", key), ("Content-Type", "application/json")];
        self.try_send("POST", path, &headers, body)
    }

    #[track_caller]
    pub fn send(&self, verb: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.try_send(verb, path, headers, body).unwrap()
    }

    pub fn try_send(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Reply> {
        let mut text = format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if !self.key.is_empty() {
            text += &format!("Authorization: Bearer {}\r\n", self.key);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || verb == "POST" {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        raw(self.port, format!("{text}\r\n{body}").as_bytes())
    }
}

/// Sends bytes as they are and reads the answer until the connection ends.
pub fn raw(port: u16, bytes: &[u8]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // A server that has answered need not read the rest.
    let _ = stream.write_all(bytes);
    read_reply(&mut stream)
}

pub fn read_reply(stream: &mut impl io::Read) -> io::Result<Reply> {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    if bytes.is_empty() {
        ended?;
    }
    parse(&bytes).ok_or_else(|| io::Error::other(format!("no answer: {}", String::from_utf8_lossy(&bytes))))
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let body = &bytes[end + 4..];
    let reply = Reply {
        status,
        headers,
        body: String::from_utf8(body.to_vec()).ok()?,
    };
    // One that was cut off is none.
    let is_whole = match reply.header("content-length") {
        Some(length) => length.parse() == Ok(body.len()),
        None => true,
    };
    is_whole.then_some(reply)
}

/// The start of a connection that is in no hurry.
pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    stream
}

/// The settings of a daemon with the API on a port of its own.
pub fn with_api(stub: &StubNode) -> Setup {
    Setup {
        api: "listen = \"127.0.0.1:0\"".to_owned(),
        ..Setup::for_stub(stub)
    }
}

/// Addresses of `btc` that can be handed out, beside a running daemon: of no key, nobody pays to them.
#[track_caller]
pub fn fill_pool(daemon: &Daemon, count: u32) {
    daemon.api_port();
    let mut database = Database::open(&daemon.database(), OpenMode::Write).unwrap();
    let filled = database.write(1, |tx| {
        let chains = tx.chains()?;
        let chain = chains.iter().find(|chain| chain.alias == "btc").unwrap();
        tx.set_address_sources(&[NewSource {
            name: "test".to_owned(),
            scope: chain.id.to_string(),
            kind: SourceKind::Descriptor,
            pin: [1; 32],
            merchant: None,
            pool_size: count,
            chains: vec![chain.key],
        }])?;
        for work in tx.pool_work()? {
            let numbers = work.next_index..work.next_index + work.missing;
            let scripts: Vec<Script> = numbers.map(pool_script).collect();
            assert!(tx.fill_pool(work.source, work.next_index, &scripts)?);
        }
        Ok(())
    });
    filled.unwrap();
}

fn pool_script(number: u32) -> Script {
    let program = [&[0x00, 0x14][..], &[0xcc; 16], &number.to_be_bytes()].concat();
    Script(program.into())
}

impl Daemon {
    /// A client with a new key for this merchant, who is made if need be.
    #[track_caller]
    pub fn client(&self, merchant: &str, scopes: &str) -> Client {
        // The database is there once the daemon is ready.
        self.api_port();
        self.json(&["merchant", "add", merchant]);
        let made = self.json(&[
            "key",
            "create",
            "--merchant",
            merchant,
            "--name",
            "test",
            "--scopes",
            scopes,
        ]);
        self.client_with(made["secret"].as_str().unwrap())
    }

    /// A client with an operator's key.
    #[track_caller]
    pub fn operator(&self) -> Client {
        let made = self.json(&["key", "create", "--ops", "--name", "test", "--scopes", "all"]);
        self.client_with(made["secret"].as_str().unwrap())
    }

    pub fn client_with(&self, key: &str) -> Client {
        Client {
            port: self.api_port(),
            key: key.to_owned(),
        }
    }
}
