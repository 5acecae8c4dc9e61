//! A server on a loopback port that a test can close, open again and cut off, for servers that misbehave.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::wait::{PATIENCE, wait_until};

type Serve = dyn Fn(&TcpStream) -> io::Result<()> + Send + Sync;

struct Shared {
    serve: Box<Serve>,
    connections: Mutex<Vec<TcpStream>>,
    is_closing: AtomicBool,
}

/// A thread for each connection; all end with the test.
pub struct Server {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Hands each connection to `serve`, and closes it when that returns.
    pub fn start(serve: impl Fn(&TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut server = Self {
            shared: Arc::new(Shared {
                serve: Box::new(serve),
                connections: Mutex::default(),
                is_closing: AtomicBool::new(false),
            }),
            port,
            acceptor: None,
        };
        server.accept_from(listener);
        server
    }

    fn accept_from(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        shared.is_closing.store(false, Ordering::SeqCst);
        self.acceptor = Some(std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.is_closing.load(Ordering::SeqCst) {
                    return;
                }
                shared
                    .connections
                    .lock()
                    .unwrap()
                    .push(stream.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    // A client that goes away in the middle is part of the play.
                    let _ = (shared.serve)(&stream);
                    // There is a second handle in `connections`, so that dropping this one closes nothing.
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        }));
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Closes the port and every connection: clients are refused.
    pub fn refuse(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then lets go of the port.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.join().unwrap();
        }
        self.cut_connections();
    }

    /// Ends [`refuse`](Self::refuse), on the same port.
    pub fn accept_again(&mut self) {
        assert!(self.acceptor.is_none(), "the server is accepting already");
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).ok();
        let listener = wait_until("the server's port is free again", PATIENCE, bind);
        self.accept_from(listener);
    }

    /// Closes every open connection; new ones are accepted.
    pub fn cut_connections(&self) {
        for stream in self.shared.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.refuse();
    }
}
