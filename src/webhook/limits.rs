//! How much is taken on at once, and how long it may take.

use std::time::Duration;

/// The largest body that is accepted. A review can carry an object and its old self, 3 MiB each, and an envelope.
pub(super) const MAX_BODY: usize = 7 << 20;

/// The longest head of a request. The API server's have less than 1 KiB.
pub(super) const MAX_HEAD: u16 = 16 << 10;

/// What a connection takes of memory at most, in bytes: a head, a TLS record, a handshake that does not end. Its bodies and
/// answers are counted for themselves.
pub(super) const CONNECTION_BYTES: u64 = 64 << 10;

/// Connections take one part in so many of the memory limit. Reviews need most of the rest.
pub(super) const MEMORY_SHARE: u64 = 4;

/// Connections of the health listener: many more than a kubelet, a Prometheus and a few people need, so that a probe is
/// answered before as many others came as would take its place.
pub(super) const HEALTH_CONNECTIONS: usize = 256;

/// Descriptors that connections of the webhook leave to probes, to the watches of the API server, to files and the rest.
pub(super) const OTHER_DESCRIPTORS: u64 = HEALTH_CONNECTIONS as u64 + 64;

/// Every bound of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Reviews in flight: a request is one when its body is complete. Four times as many requests may be open.
    pub max_concurrent: usize,
    /// Bytes in flight: of bodies as far as they came, and of answers that were not taken yet.
    pub max_bytes_in_flight: usize,
    /// Open connections; one more takes the place of one of them.
    pub max_connections: u32,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for the head of a request, once it has begun; also for the first one of a connection.
    pub header_timeout: Duration,
    /// Time for the body of a request, from its head.
    pub body_timeout: Duration,
    /// Time between two requests of one connection. Longer than the 90 s of Go's clients, so that it is always the API
    /// server that gives a connection up, and never sends a review into one that closes.
    pub idle_timeout: Duration,
    /// Time between not being ready and closing the listener.
    pub drain_delay: Duration,
    /// Time for reviews in flight to finish once the listener is closed.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_concurrent: 256,
            max_bytes_in_flight: 24 << 20,
            max_connections: 4_096,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(180),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(25),
        }
    }
}

impl Limits {
    /// The limits of probes and scrapes: one request for each connection, which comes at once.
    pub(super) fn of_health(&self) -> Self {
        Self {
            header_timeout: self.header_timeout.min(Duration::from_secs(2)),
            idle_timeout: self.idle_timeout.min(Duration::from_secs(5)),
            ..self.clone()
        }
    }
}

/// Why a request is refused at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shed {
    /// As many reviews as may be are in flight.
    Requests,
    /// As many bytes as may be are in flight.
    Bytes,
    /// As many requests as may be are open.
    Open,
    /// A bound was reached, and the request was given up for others: its client held most.
    Share,
}
