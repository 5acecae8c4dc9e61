//! A listener that bounds what strangers can hold: so many connections, and none for long. Anyone who reaches
//! it may connect, and a daemon that watches payments must not run out of sockets by it, nor be found dead
//! because others hold every place. It speaks TLS where it is given a certificate, and knows nothing of what
//! is asked; start at [`Listener`].

mod tls;

pub use tls::{Tls, TlsFileError};

use crate::clock::Clock;
use axum::serve;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How much of it strangers can have.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time. Who comes next takes the place of the one that has not asked for the longest;
    /// where all have, it waits.
    pub connections_max: usize,
    /// How long it may take to ask: from the connection to the end of the first question's head.
    pub asking: Duration,
    /// How long a connection lives after it has asked, whatever it does; `None` = whoever serves it sees to
    /// that.
    pub life: Option<Duration>,
    /// How long it may take nothing of what it is sent.
    pub stall: Duration,
}

/// The pause after the system has refused to accept, out of files for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The listener.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    places: Arc<Semaphore>,
    /// The ends of those that have not asked yet, oldest first.
    asking: VecDeque<oneshot::Sender<()>>,
    bounds: Bounds,
    tls: Option<Tls>,
    clock: Clock,
}

impl Listener {
    /// Opens it. Connections are taken once somebody accepts them.
    ///
    /// # Errors
    /// The address is taken, or not this machine's.
    pub async fn bind(
        address: SocketAddr,
        bounds: Bounds,
        tls: Option<Tls>,
        clock: Clock,
    ) -> io::Result<Listener> {
        Ok(Listener {
            tcp: TcpListener::bind(address).await?,
            places: Arc::new(Semaphore::new(bounds.connections_max)),
            asking: VecDeque::new(),
            bounds,
            tls,
            clock,
        })
    }

    /// The address that it listens on, with the port that the system chose if it was asked for port 0.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        self.asking.retain(|end| !end.is_closed());
        if self.places.available_permits() == 0
            && let Some(end) = self.asking.pop_front()
        {
            let _ = end.send(());
        }
        // `None` only once it is closed, which nobody does.
        self.places.clone().acquire_owned().await.ok()
    }
}

impl serve::Listener for Listener {
    type Io = Mortal;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Mortal, SocketAddr) {
        loop {
            match self.tcp.accept().await {
                Ok((stream, address)) => {
                    let place = self.place().await;
                    let (end, asking) = oneshot::channel();
                    self.asking.push_back(end);
                    let connection = Mortal {
                        stream: match &self.tls {
                            Some(tls) => tls.accept(stream),
                            None => Stream::Plain(stream),
                        },
                        end: Some(after(self.clock, self.bounds.asking)),
                        over: None,
                        stalled: None,
                        asking: Some(asking),
                        ended_lines: 0,
                        bounds: self.bounds,
                        clock: self.clock,
                        _place: place,
                    };
                    return (connection, address);
                }
                Err(error) => {
                    tracing::debug!("a listener cannot accept: {error}");
                    self.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address()
    }
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

fn after(clock: Clock, span: Duration) -> Timer {
    Box::pin(async move { clock.sleep(span).await })
}

/// A connection that ends by itself.
pub struct Mortal {
    stream: Stream,
    end: Option<Timer>,
    /// Why it has ended, once it has.
    over: Option<io::ErrorKind>,
    /// Runs while it takes nothing of what it is sent.
    stalled: Option<Timer>,
    /// Ends it to make place, until it has asked.
    asking: Option<oneshot::Receiver<()>>,
    /// How many lines have ended with nothing between them: the second ends the head of a question.
    ended_lines: u8,
    bounds: Bounds,
    clock: Clock,
    _place: Option<OwnedSemaphorePermit>,
}

impl Mortal {
    /// Fails once its time is over, and from then on; until then whoever waits is woken at the end too.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.over.is_none()
            && let Some(asking) = &mut self.asking
            && Pin::new(asking).poll(context).is_ready()
        {
            self.over = Some(io::ErrorKind::ConnectionAborted);
        }
        if self.over.is_none()
            && let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            self.over = Some(io::ErrorKind::TimedOut);
        }
        self.over.map_or(Ok(()), |why| Err(why.into()))
    }

    /// What a write came to; one that has waited too long fails.
    fn written<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let (clock, span) = (self.clock, self.bounds.stall);
        let timer = self.stalled.get_or_insert_with(|| after(clock, span));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.over = Some(io::ErrorKind::TimedOut);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Looks for the end of the first question's head; from there on it has its place for good.
    fn note(&mut self, bytes: &[u8], context: &mut Context<'_>) -> io::Result<()> {
        for byte in bytes {
            self.ended_lines = match byte {
                b'\n' => self.ended_lines + 1,
                b'\r' => self.ended_lines,
                _ => 0,
            };
            if self.asking.is_some() && self.ended_lines == 2 {
                self.asking = None;
                self.end = self.bounds.life.map(|life| after(self.clock, life));
                return self.check(context);
            }
        }
        Ok(())
    }
}

impl AsyncRead for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let known = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if self.asking.is_some() {
            self.note(into.filled().get(known..).unwrap_or_default(), context)?;
        }
        read
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(outcome, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.written(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(outcome, context)
    }
}
