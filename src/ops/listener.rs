//! A listener that bounds what strangers can hold: so many connections, and none for long. Anyone on this
//! machine may connect, and a daemon that watches payments must not run out of sockets by it.

use crate::clock::Clock;
use axum::serve;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time; who comes next waits in the system's queue.
const CONNECTIONS_MAX: usize = 32;

/// How long a connection lives, whatever it does: more than the database's patience and the reading of a
/// large answer.
const LIFE: Duration = Duration::from_secs(10);

/// The pause after the system has refused to accept, out of files for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The listener.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    places: Arc<Semaphore>,
    clock: Clock,
}

impl Listener {
    pub(super) async fn bind(address: SocketAddr, clock: Clock) -> io::Result<Listener> {
        Ok(Listener {
            tcp: TcpListener::bind(address).await?,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
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

    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // `None` only once it is closed, which nobody does.
        self.places.clone().acquire_owned().await.ok()
    }
}

impl serve::Listener for Listener {
    type Io = Mortal;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Mortal, SocketAddr) {
        let place = self.place().await;
        loop {
            match self.tcp.accept().await {
                Ok((stream, address)) => {
                    let clock = self.clock;
                    let end = Box::pin(async move { clock.sleep(LIFE).await });
                    let connection = Mortal {
                        stream,
                        end,
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

/// A connection that ends by itself.
pub struct Mortal {
    stream: TcpStream,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Mortal {
    /// Fails once its time is over; until then whoever waits is woken at the end too.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
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
