//! The webhook's server: HTTPS for reviews, plain HTTP for health and metrics; what a review says is not its business.
//!
//! ```text
//! TCP ─ accept ─ TLS, HTTP/1.1 or HTTP/2 (connection) ─ router ─ taken in by its limits (read_request, body) ─ review_service ─ ReviewHandler
//! ```
//!
//! A review waits for room for half of the time that the API server waits for its answer, and is refused after that: the
//! API server does not read an answer that comes later.

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

use hyper::StatusCode;

use crate::admission::{AuditRecord, Oversize};
use crate::process::tasks::TaskEnded;
use crate::tls::identity::CertificateError;

pub use crate::admission::Phase;

pub use self::args::{LimitArgs, ListenArgs};
pub use self::limits::Limits;
pub use self::server::{Listening, Server, WebhookConfig};

/// What judges a review: bytes in, bytes out; synchronous, CPU-only, microseconds.
pub trait ReviewHandler: Send + Sync + 'static {
    /// Judges one AdmissionReview as the API server sent it, by what is known now.
    fn review(&self, phase: Phase, sent: ReviewBody<'_>) -> ReviewResponse;

    /// The same, where all that the review needs is known; it is looked for before anything is judged.
    ///
    /// # Errors
    /// The news to wait for, a moment at most; then [`review`](Self::review) is asked.
    fn review_if_known(&self, phase: Phase, sent: ReviewBody<'_>) -> Result<ReviewResponse, NamespaceKnown> {
        Ok(self.review(phase, sent))
    }
}

/// A body, as far as it was read.
#[derive(Clone, Copy, Debug)]
pub enum ReviewBody<'b> {
    /// All of it.
    Whole(&'b [u8]),
    /// The first bytes of one that is too large.
    Head {
        /// They end anywhere.
        head: &'b [u8],
        /// How large the body is.
        oversize: Oversize,
    },
}

/// Ends when something is known.
pub type NamespaceKnown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The answer to one review, and what metrics and traces say of it.
#[derive(Clone, Debug)]
pub struct ReviewResponse {
    /// 200 for every review that was understood, allowed or not; 400 for a body that is no review.
    pub status: StatusCode,
    /// An AdmissionReview in JSON; with a status other than 200, JSON or plain text.
    pub body: Vec<u8>,
    /// What there is to count and trace of the review; nothing is counted without.
    pub record: Option<AuditRecord>,
}

/// Why the webhook's server did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({flag}): {}", reason(source, flag))]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The flag that asks for it.
        flag: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no certificate to serve with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A part of the server that should live as long as the process has ended.
    #[error(transparent)]
    TaskEnded(#[from] TaskEnded),
}

/// What the operating system said about an address, and what to do about it.
fn reason(source: &std::io::Error, flag: &str) -> String {
    match source.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("address in use; stop what listens there or choose another port with {flag}")
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
