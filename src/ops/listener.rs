//! A listener that bounds what strangers can hold: so many connections, and none for long. Anyone on this
//! machine may connect, and a daemon that watches payments must not run out of sockets by it, nor be found
//! dead because others hold every place.

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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Connections at a time. Who comes next takes the place of the one that has not asked for the longest; where
/// all have, it waits.
const CONNECTIONS_MAX: usize = 32;

/// How long it may take to ask.
const ASKING: Duration = Duration::from_secs(3);

/// How long a connection lives after it has asked, whatever it does: more than the database's patience and
/// the reading of a large answer.
const LIFE: Duration = Duration::from_secs(10);

/// The pause after the system has refused to accept, out of files for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The listener.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    places: Arc<Semaphore>,
    /// The ends of those that have not asked yet, oldest first.
    asking: VecDeque<oneshot::Sender<()>>,
    clock: Clock,
}

impl Listener {
    pub(super) async fn bind(address: SocketAddr, clock: Clock) -> io::Result<Listener> {
        Ok(Listener {
            tcp: TcpListener::bind(address).await?,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            asking: VecDeque::new(),
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
                        stream,
                        end: after(self.clock, ASKING),
                        asking: Some(asking),
                        ended_lines: 0,
                        clock: self.clock,
                        _place: place,
                    };
                    return (connection, address);
                }
                Err(error) => {
                    tracing::debug!("the ops listener cannot accept: {error}");
                    self.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address()
    }
}

fn after(clock: Clock, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { clock.sleep(span).await })
}

/// A connection that ends by itself.
pub struct Mortal {
    stream: TcpStream,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Ends it to make place, until it has asked.
    asking: Option<oneshot::Receiver<()>>,
    /// How many lines have ended with nothing between them: the second ends the head of a question.
    ended_lines: u8,
    clock: Clock,
    _place: Option<OwnedSemaphorePermit>,
}

impl Mortal {
    /// Fails once its time is over; until then whoever waits is woken at the end too.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if let Some(asking) = &mut self.asking
            && Pin::new(asking).poll(context).is_ready()
        {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
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
                self.end = after(self.clock, LIFE);
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
