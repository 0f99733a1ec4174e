//! The accept loop: a bounded number of connections, each in its own task; a new connection above the bound
//! evicts another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::connection::{self, ServerStage};
use super::eviction::ConnectionSet;
use super::limits::Limits;
use crate::model::doubling_pause::DoublingPause;

/// What every connection of a listener shares.
pub(super) struct Listener {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) router: Router,
    pub(super) limits: Arc<Limits>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) connection_set: ConnectionSet,
    pub(super) open: Gauge,
    pub(super) evicted: Counter,
}

/// Accepts connections, each in its own task, until the server drains.
pub(super) async fn accept(tcp: TcpListener, listener: Listener, stages: watch::Receiver<ServerStage>) {
    let mut stage = stages.clone();
    let mut failures = AcceptFailures::default();
    loop {
        let next = async {
            let (stream, peer) = tcp.accept().await?;
            Ok((stream, peer, listener.room().await))
        };
        let next = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage >= ServerStage::Draining) => return,
            next = next => next,
        };
        match next {
            Ok((stream, peer, Some(permit))) => {
                failures.in_a_row = 0;
                listener.serve(stream, peer, permit, stages.clone());
            }
            // The semaphore is never closed.
            Ok((_, _, None)) => return,
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                let wait = failures.report(&error, Instant::now());
                // A connection that ends frees its file descriptor.
                listener.evict();
                tokio::select! {
                    () = sleep(wait) => {}
                    _ = stage.wait_for(|stage| *stage >= ServerStage::Draining) => return,
                }
            }
        }
    }
}

impl Listener {
    /// A permit for an accepted connection. If none is free, another connection is evicted: the newest may be
    /// the API server, and the others may exist only to block it.
    async fn room(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() {
            return Some(permit);
        }
        self.evict();
        Arc::clone(&self.connections).acquire_owned().await.ok()
    }

    fn evict(&self) {
        if self.connection_set.make_room() {
            self.evicted.inc();
        }
    }

    /// Serves a connection in its own task.
    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
        stages: watch::Receiver<ServerStage>,
    ) {
        let open = OpenConnection::new(self.open.clone());
        let guard = self.connection_set.enter();
        let (tls, router, limits) = (self.tls.clone(), self.router.clone(), Arc::clone(&self.limits));
        tokio::spawn(async move {
            tokio::select! {
                () = guard.client.gone.cancelled() => tracing::debug!(%peer, "a connection made room for another"),
                () = connection::run(stream, tls, router, limits, &guard, stages) => {}
            }
            drop((open, guard, permit));
        });
    }
}

/// Whether the error concerns only the client that was being accepted.
fn is_of_one_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Accept failures: the backoff after each, and when the last one was logged.
#[derive(Default)]
struct AcceptFailures {
    in_a_row: u32,
    logged: Option<Instant>,
}

impl AcceptFailures {
    /// The backoff after another failure. Logs at most one line per minute, because a client may cause
    /// failures continuously.
    fn report(&mut self, error: &std::io::Error, now: Instant) -> Duration {
        let wait = PAUSE.after(self.in_a_row);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let is_news = (self.logged).is_none_or(|logged| now.saturating_duration_since(logged) >= MINUTE);
        if is_news {
            self.logged = Some(now);
            tracing::error!(%error, "cannot accept connections; this is logged once a minute");
        }
        wait
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// While accept fails, for example because no file descriptors are left.
const PAUSE: DoublingPause = DoublingPause {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
};

/// Counts an open connection until dropped, including by a panic.
struct OpenConnection(Gauge);

impl OpenConnection {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_once_a_minute() {
        let (mut failures, start) = (AcceptFailures::default(), Instant::now());
        let error = std::io::Error::other("too many open files");
        let mut logged_at = |second: u64| {
            failures.report(&error, start + Duration::from_secs(second));
            failures
                .logged
                .map(|logged| logged.saturating_duration_since(start).as_secs())
        };
        assert_eq!(
            [0, 1, 59, 61, 120].map(&mut logged_at),
            [0, 0, 0, 61, 61].map(Some)
        );
    }
}
