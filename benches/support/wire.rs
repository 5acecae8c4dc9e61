//! The least that speaks HTTP with a node: one kept-alive connection, blocking reads into one buffer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::common::http;
use crate::common::node::RegtestNode;

const OK: &str = "HTTP/1.1 200";

pub struct Wire {
    stream: BufReader<TcpStream>,
    authorization: String,
    body: Vec<u8>,
}

impl Wire {
    pub fn connect(node: &RegtestNode) -> Self {
        let cookie = std::fs::read_to_string(node.cookie_file()).unwrap();
        Self::open(node.rpc_port(), Some(&http::basic(&cookie)))
    }

    /// A connection to a port of this machine.
    pub fn open(port: u16, authorization: Option<&str>) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let authorization = authorization.map(|value| format!("Authorization: {value}\r\n"));
        Self {
            stream: BufReader::with_capacity(1 << 18, stream),
            authorization: authorization.unwrap_or_default(),
            body: Vec::new(),
        }
    }

    /// The body of a reply with status 200.
    pub fn get(&mut self, path: &str) -> &[u8] {
        let question = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
        self.ask(question.as_bytes(), OK)
    }

    /// The same of a JSON-RPC question.
    pub fn post(&mut self, json: &str) -> &[u8] {
        self.send("/", "", json, OK)
    }

    /// The body of a reply to JSON that is sent with these headers, which must begin with this status line.
    pub fn send(&mut self, path: &str, headers: &str, json: &str, status: &str) -> &[u8] {
        let question = format!(
            "POST {path} HTTP/1.1\r\nHost: node\r\n{}{headers}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{json}",
            self.authorization,
            json.len()
        );
        self.ask(question.as_bytes(), status)
    }

    fn ask(&mut self, question: &[u8], status: &str) -> &[u8] {
        self.stream.get_mut().write_all(question).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.starts_with(status), "{line}");
        let mut length = None;
        while line.trim() != "" {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            }
        }
        self.body.resize(length.expect("a length"), 0);
        self.stream.read_exact(&mut self.body).unwrap();
        &self.body
    }
}
