//! The accept loop: a bounded number of connections, each in a task of its own, and patience when accepting fails.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::connection::{self, Stage};
use super::limits::Limits;

/// What every connection of a listener gets.
pub(super) struct Listener {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) router: Router,
    pub(super) limits: Arc<Limits>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) open: Gauge,
}

/// Accepts connections, each into a task of its own, until the server drains.
pub(super) async fn accept(tcp: TcpListener, listener: Listener, stages: watch::Receiver<Stage>) {
    let mut stage = stages.clone();
    let mut pause = Pause::default();
    loop {
        let next = async {
            // The permit comes first: a connection that there is no room for stays in the kernel's backlog.
            let permit = Arc::clone(&listener.connections).acquire_owned().await;
            (permit, tcp.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            next = next => next,
        };
        // The semaphore is never closed.
        let Ok(permit) = permit else { return };
        match accepted {
            Ok((stream, _)) => {
                pause = Pause::default();
                let open = Open::new(listener.open.clone());
                let run = connection::run(
                    stream,
                    listener.tls.clone(),
                    listener.router.clone(),
                    Arc::clone(&listener.limits),
                    stages.clone(),
                );
                tokio::spawn(async move {
                    run.await;
                    drop((open, permit));
                });
            }
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                let wait = pause.next();
                tracing::error!(%error, ?wait, "cannot accept connections");
                tokio::select! {
                    () = sleep(wait) => {}
                    _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
                }
            }
        }
    }
}

/// Whether only the client that was being accepted went wrong.
fn is_of_one_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Longer and longer waits while accepting fails, as it does when there are no file descriptors left.
#[derive(Default)]
struct Pause(u32);

impl Pause {
    fn next(&mut self) -> Duration {
        self.0 = (self.0 + 1).min(6);
        Duration::from_millis(25 << self.0).min(Duration::from_secs(1))
    }
}

/// Counts an open connection until dropped, also by a panic.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_second_and_no_further() {
        let mut pause = Pause::default();
        let waits: Vec<_> = (0..8).map(|_| pause.next().as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
    }
}
