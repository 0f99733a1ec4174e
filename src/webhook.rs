//! The webhook server: HTTPS for reviews, plain HTTP for health and metrics. It does not interpret reviews.
//!
//! ```text
//! TCP ─ accept ─ TLS, HTTP/1.1 or HTTP/2 (connection) ─ router ─ limits (read_request, body) ─
//! review_service ─ ReviewHandler
//! ```
//!
//! A review waits for capacity for at most half of the API server's timeout, and is then rejected: the API
//! server does not read a later answer.

mod accept;
mod args;
mod body;
mod connection;
mod connection_stats;
mod eviction;
mod health;
mod inflight;
mod limits;
mod metrics;
mod peer;
mod read_request;
mod rejection;
mod review_service;
mod router;
mod server;
mod span;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use hyper::StatusCode;

use crate::admission::{AuditRecord, Oversize};
use crate::process::tasks::TaskEnded;
use crate::tls::identity::CertificateError;

pub use crate::admission::Phase;

pub use self::args::{LimitArgs, ListenArgs};
pub use self::limits::Limits;
pub use self::server::{Listening, Server, WebhookConfig};

/// Evaluates reviews: bytes in, bytes out; synchronous, CPU-bound, microseconds.
pub trait ReviewHandler: Send + Sync + 'static {
    /// Evaluates one AdmissionReview as the API server sent it, against the current state.
    ///
    /// # Errors
    /// What to wait for, briefly, before the review is evaluated; only with [`OnPending::Return`].
    fn review(
        &self,
        phase: Phase,
        sent: ReviewBody<'_>,
        on_pending: OnPending,
    ) -> Result<ReviewResponse, PendingData>;
}

/// What to do if a review needs data that is expected soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnPending {
    /// Return what is pending, before anything is evaluated.
    Return,
    /// Evaluate the review without it.
    Evaluate,
}

/// A request body, or the part of it that was read.
#[derive(Clone, Copy, Debug)]
pub enum ReviewBody<'b> {
    Whole(&'b [u8]),
    /// The first bytes of a body that is too large.
    Head {
        /// Cut off at an arbitrary byte.
        head: &'b [u8],
        /// The size of the body.
        oversize: Oversize,
    },
}

/// Data that a review needs and that is expected soon: a new namespace from its watch, or an image from its registry.
pub struct PendingData {
    /// Resolves when the data is there, or will not come.
    pub arrival: DataArrival,
    /// How long to wait; never longer than [`LONGEST_WAIT`].
    pub at_most: Duration,
}

/// The arrival of pending data.
pub type DataArrival = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long a review waits for pending data at most: well within the timeout of the API server.
pub const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The answer to one review, and its record for metrics and traces.
#[derive(Clone, Debug)]
pub struct ReviewResponse {
    /// 200 for every valid review, allowed or denied; 400 for a body that is not a review.
    pub status: StatusCode,
    /// An AdmissionReview in JSON; if the status is not 200, JSON or plain text.
    pub body: Vec<u8>,
    /// The record for metrics and traces; without it, nothing is counted.
    pub record: Option<AuditRecord>,
}

/// Why the webhook server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({flag}): {}", reason(source, flag))]
    Listen {
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// There is no certificate to serve with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The thread for probes could not start.
    #[error("cannot start the thread that answers probes: {0}")]
    Probes(std::io::Error),
    /// A task of the server that must live as long as the process has ended.
    #[error(transparent)]
    TaskEnded(#[from] TaskEnded),
}

/// The operating system's error for an address, and how to fix it.
fn reason(source: &std::io::Error, flag: &str) -> String {
    match source.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("address in use; stop the process that listens there, or choose another port with {flag}")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; choose another with {flag}")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("permission denied; ports below 1024 need a privilege, choose another with {flag}")
        }
        _ => source.to_string(),
    }
}
