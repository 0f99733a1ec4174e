//! The activity of a connection, as its clock and the choice of the next connection to evict need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct ConnectionStats {
    /// When it was accepted.
    came: Instant,
    /// Requests that have begun.
    pub(super) requests: AtomicU64,
    /// Requests without an answer, or with a body that is still being discarded.
    pub(super) in_flight: AtomicUsize,
    /// Bytes have arrived that do not belong to a request yet.
    pub(super) head_begun: AtomicBool,
    /// The server has asked the client to close this connection.
    pub(super) leaving: AtomicBool,
    /// Milliseconds from accept to the last request that was answered with 200; 0 if there was none.
    served: AtomicU64,
}

impl ConnectionStats {
    pub(super) fn new(came: Instant) -> Self {
        Self {
            came,
            requests: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            head_begun: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            served: AtomicU64::new(0),
        }
    }

    /// Records a request that was answered with 200.
    pub(super) fn serve(&self, now: Instant) {
        let after = now.saturating_duration_since(self.came).as_millis();
        let after = u64::try_from(after).unwrap_or(u64::MAX).max(1);
        self.served.store(after, Relaxed);
    }

    /// Whether any request was answered with 200.
    pub(super) fn has_served(&self) -> bool {
        self.served.load(Relaxed) > 0
    }

    /// When a request was last answered with 200; otherwise when the connection was accepted.
    pub(super) fn last_good(&self) -> Instant {
        self.came + Duration::from_millis(self.served.load(Relaxed))
    }
}

/// A request in flight, until dropped.
pub(super) struct RequestGuard(pub(super) Arc<ConnectionStats>);

impl RequestGuard {
    pub(super) fn new(activity: &Arc<ConnectionStats>) -> Self {
        activity.requests.fetch_add(1, Relaxed);
        activity.in_flight.fetch_add(1, Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Clone for RequestGuard {
    fn clone(&self) -> Self {
        self.0.in_flight.fetch_add(1, Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.head_begun.store(false, Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
