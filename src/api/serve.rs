//! Connections: HTTP/1.1 with a deadline for every head, until the daemon stops. What is being answered then
//! has a moment to be answered.

use super::Api;
use crate::clock::Clock;
use crate::listen::Listener;
use axum::Router;
use axum::serve::Listener as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the head of a request may take, and a connection wait for the next request.
pub(super) const HEAD: Duration = Duration::from_secs(15);
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
pub(super) const HEADERS_MAX: usize = 64;

/// What is being answered at a stop has so long.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Answers until `stop`, then until what is being answered is, or a second has passed.
pub(super) async fn serve(api: Api, routes: Router, mut listener: Listener, stop: impl Future<Output = ()>) {
    let clock = api.0.clock;
    let service = TowerToHyperService::new(routes);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! { biased;
            () = &mut stop => break,
            // Dropped half-way it would drop the connection that waits for its place: nothing else but the
            // stop may end it.
            (stream, _) = listener.accept() => {
                connections.spawn(connection(stream, service.clone(), api.0.ending.subscribe()));
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    api.0.ending.send_replace(true);
    let answered = async { while connections.join_next().await.is_some() {} };
    within(clock, answered).await;
}

async fn within(clock: Clock, answered: impl Future<Output = ()>) {
    tokio::select! { biased;
        () = answered => {}
        () = clock.sleep(ANSWERED_WITHIN) => {}
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    service: TowerToHyperService<Router>,
    mut ending: watch::Receiver<bool>,
) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // Who has said all and says so waits for the answer all the same.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    tokio::select! { biased;
        // Whatever went wrong is the client's: there is nobody to tell.
        _ = &mut served => return,
        _ = ending.wait_for(|is_ending| *is_ending) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}
