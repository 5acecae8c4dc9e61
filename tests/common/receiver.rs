//! A receiver of callbacks that answers as the test says, well or badly, over http or https.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use super::wait::pause;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Request line and headers, names in small letters.
    pub head: Vec<String>,
    pub body: Vec<u8>,
    /// The name that TLS asked for.
    pub sni: Option<String>,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        let is_it = |line: &&String| line.starts_with(name) && line[name.len()..].starts_with(':');
        let line = self.head.iter().find(is_it)?;
        Some(line[name.len() + 1..].trim())
    }
}

/// Writes the answer. An error, such as a client that has gone, ends the connection.
type Answer = dyn Fn(&Heard, &mut dyn Write) -> io::Result<()> + Send + Sync;

/// The server; it ends with the test.
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<Answer>,
    tls: Option<Arc<ServerConfig>>,
    heard: Mutex<Vec<Heard>>,
    connections: AtomicUsize,
    is_closing: AtomicBool,
}

impl Receiver {
    /// Over http. Each address of 127.0.0.0/8 is one of this machine.
    pub fn http(
        ip: Ipv4Addr,
        answer: impl Fn(&Heard, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::start(TcpListener::bind((ip, 0)).unwrap(), None, Box::new(answer))
    }

    /// Over https on 127.0.0.1, with this certificate.
    pub fn https(
        tls: ServerConfig,
        answer: impl Fn(&Heard, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Receiver::start(listener, Some(Arc::new(tls)), Box::new(answer))
    }

    fn start(listener: TcpListener, tls: Option<Arc<ServerConfig>>, answer: Box<Answer>) -> Receiver {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer,
            tls,
            heard: Mutex::default(),
            connections: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.is_closing.load(Ordering::SeqCst) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&accepting);
                // A client that goes away in the middle is part of the play.
                std::thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Receiver { address, shared }
    }

    /// All requests so far.
    pub fn heard(&self) -> Vec<Heard> {
        self.shared.heard.lock().unwrap().clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then lets go of the port.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        match &self.tls {
            None => self.talk(stream, |_| None),
            Some(tls) => {
                let session = ServerConnection::new(Arc::clone(tls)).map_err(io::Error::other)?;
                let name = |stream: &Tls| stream.conn.server_name().map(str::to_owned);
                self.talk(StreamOwned::new(session, stream), name)
            }
        }
    }

    fn talk<S: Read + Write>(&self, stream: S, sni: impl Fn(&S) -> Option<String>) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(mut heard) = read_request(&mut stream)? {
            heard.sni = sni(stream.get_ref());
            self.heard.lock().unwrap().push(heard.clone());
            (self.answer)(&heard, stream.get_mut())?;
            stream.get_mut().flush()?;
        }
        Ok(())
    }
}

type Tls = StreamOwned<ServerConnection, TcpStream>;

fn read_request(from: &mut impl BufRead) -> io::Result<Option<Heard>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            first if head.is_empty() => head.push(first.to_owned()),
            header => {
                let (name, value) = header.split_once(':').ok_or_else(|| io::Error::other("header"))?;
                head.push(format!("{}:{value}", name.to_ascii_lowercase()));
            }
        }
    }
    let mut heard = Heard {
        head,
        body: Vec::new(),
        sni: None,
    };
    let bytes = heard.header("content-length").map_or(Ok(0), str::parse);
    heard.body.resize(bytes.map_err(io::Error::other)?, 0);
    from.read_exact(&mut heard.body)?;
    Ok(Some(heard))
}

/// A whole answer without headers of its own.
pub fn answer(to: &mut dyn Write, status: u16, body: &[u8]) -> io::Result<()> {
    answer_with(to, status, "", body)
}

/// A whole answer. `headers` are lines that end in `\r\n`.
pub fn answer_with(to: &mut dyn Write, status: u16, headers: &str, body: &[u8]) -> io::Result<()> {
    let mut all = format!(
        "HTTP/1.1 {status} Status\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    all.extend_from_slice(body);
    to.write_all(&all)
}

/// One byte every 20 ms.
pub fn drip<'a>(to: &mut dyn Write, mut bytes: impl Iterator<Item = &'a u8>) -> io::Result<()> {
    bytes.try_for_each(|byte| {
        to.write_all(&[*byte])?;
        pause();
        Ok(())
    })
}

/// A certificate authority of the test's own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let authority = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Authority { issuer, dir }
    }

    /// The file for `ca_file`.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A server with a certificate for these names or addresses; `change` may spoil it first.
    pub fn server(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap()
    }
}

/// A port that must stay untouched: counts who knocks all the same.
pub struct Tripwire(TcpListener);

/// Ports that are tried for a pair before something else is wrong.
const PAIRS_MAX: usize = 100;

impl Tripwire {
    pub fn at(address: SocketAddr) -> Tripwire {
        Tripwire::try_at(address).unwrap()
    }

    /// Two at one port of different addresses. Another test may have the second port: then both are tried
    /// anew.
    pub fn pair(first: Ipv4Addr, second: Ipv4Addr) -> (Tripwire, Tripwire) {
        let tries = std::iter::repeat_with(|| {
            let one = Tripwire::at((first, 0).into());
            let other = Tripwire::try_at((second, one.port()).into()).ok()?;
            Some((one, other))
        });
        tries
            .take(PAIRS_MAX)
            .flatten()
            .next()
            .expect("a port that is free at both addresses")
    }

    fn try_at(address: SocketAddr) -> io::Result<Tripwire> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Tripwire(listener))
    }

    pub fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    pub fn connections(&self) -> usize {
        // The kernel has the connection in its queue before `connect` returns to the client.
        std::iter::from_fn(|| self.0.accept().ok())
            .inspect(|(stream, _)| drop(stream.shutdown(Shutdown::Both)))
            .count()
    }
}
