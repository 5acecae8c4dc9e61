//! A line between two programs that passes requests on and loses replies: what was asked for is done, and
//! whoever asked does not know.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::server::Server;
use crate::common::wait::PATIENCE;

#[derive(Default)]
struct State {
    to: AtomicU16,
    to_lose: AtomicUsize,
    lost: AtomicUsize,
    passed: AtomicUsize,
}

pub struct LossyLine {
    server: Server,
    state: Arc<State>,
}

impl LossyLine {
    /// To a loopback port; see [`lead_to`](Self::lead_to).
    pub fn new(to: u16) -> Self {
        let state = Arc::new(State::default());
        state.to.store(to, Ordering::SeqCst);
        let theirs = Arc::clone(&state);
        Self {
            server: Server::start(move |stream| theirs.pass(stream)),
            state,
        }
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    pub fn lead_to(&self, port: u16) {
        self.state.to.store(port, Ordering::SeqCst);
    }

    /// Loses so many of the next replies, and none after them.
    pub fn lose(&self, replies: usize) {
        self.state.to_lose.store(replies, Ordering::SeqCst);
    }

    pub fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }

    /// Replies that reached whoever asked.
    pub fn passed(&self) -> usize {
        self.state.passed.load(Ordering::SeqCst)
    }
}

impl State {
    /// One request, and its reply or none.
    fn pass(&self, mut from: &TcpStream) -> io::Result<()> {
        from.set_read_timeout(Some(PATIENCE))?;
        let request = read_request(from)?;
        let mut to = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to.load(Ordering::SeqCst)))?;
        to.set_read_timeout(Some(PATIENCE + Duration::from_secs(10)))?;
        to.write_all(&request)?;
        let mut reply = Vec::new();
        to.read_to_end(&mut reply)?;
        let one_less = |left: usize| left.checked_sub(1);
        let is_lost = self
            .to_lose
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        if is_lost.is_ok() {
            self.lost.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        from.write_all(&reply)?;
        self.passed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A request as it came, but that its connection ends with it.
fn read_request(mut from: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let end = loop {
        let mut more = [0; 4096];
        match from.read(&mut more)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&more[..count]),
        }
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).map_err(io::Error::other)?;
    let is_named = |line: &&str, name: &str| {
        let (known, _) = line.split_once(':').unwrap_or_default();
        known.eq_ignore_ascii_case(name)
    };
    let length = head.lines().find(|line| is_named(line, "content-length"));
    let length = length.and_then(|line| line.split_once(':')?.1.trim().parse().ok());
    let whole = end + 4 + length.unwrap_or(0);
    while bytes.len() < whole {
        let mut more = [0; 4096];
        match from.read(&mut more)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&more[..count]),
        }
    }
    let lines = head.lines().filter(|line| !is_named(line, "connection"));
    let mut request: String = lines.map(|line| format!("{line}\r\n")).collect();
    request += "Connection: close\r\n\r\n";
    Ok([request.as_bytes(), &bytes[end + 4..]].concat())
}
