//! How much the server accepts at the same time, and its timeouts.

use std::time::Duration;

/// The largest body that is read. An update carries two objects of 1.5 MiB, the largest that etcd stores, and
/// Go encodes `<`, `>` and `&` as six bytes each: 18 MiB and an envelope. A larger body is answered from its
/// head.
pub(super) const MAX_BODY: usize = 20 << 20;

/// The part of a body that is read as it arrives. A longer body is read once capacity for all of it is free;
/// of a body that is too large, this is the head.
pub(super) const FIRST: usize = 64 << 10;

/// The minimum capacity for the first bytes of bodies and for answers.
const LEAST_SMALL: usize = 4 << 20;

/// The minimum of the bytes in flight: the largest body, plus small ones.
pub(super) const LEAST_IN_FLIGHT: usize = MAX_BODY + LEAST_SMALL;

/// How much of one body a client may send over HTTP/2 before it is read. Each window takes a round trip; on a
/// busy machine, windows of 64 KiB make a body of 8 MiB miss its timeout.
pub(super) const STREAM_WINDOW: u32 = 512 << 10;

/// This fraction (1/n) of the reviews in flight may wait for the capacity of their bodies: 64 of 256. What
/// their clients send meanwhile stays in the stream windows, 32 MiB at most.
pub(super) const WAITING_SHARE: usize = 4;

/// The longest head of a request. The API server's heads have less than 1 KiB.
pub(super) const MAX_HEAD: u16 = 16 << 10;

/// The maximum memory of a connection, in bytes: a head, a TLS record, an unfinished handshake. Bodies and
/// answers are counted separately.
pub(super) const CONNECTION_BYTES: u64 = 64 << 10;

/// Connections use this fraction (1/n) of the memory limit. Reviews need most of the rest.
pub(super) const MEMORY_SHARE: u64 = 4;

/// Connections of the health listener: many more than a kubelet, a Prometheus and a few people need, so that
/// a probe is answered before this many newer connections could evict it.
pub(super) const HEALTH_CONNECTIONS: usize = 256;

/// Descriptors reserved for probes, watches of the API server, files and the rest.
pub(super) const OTHER_DESCRIPTORS: u64 = HEALTH_CONNECTIONS as u64 + 64;

/// Every limit of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Reviews in flight: a request becomes one when its body is complete. Four times as many requests may be
    /// open.
    pub max_concurrent: usize,
    /// Bytes in flight: of bodies, and of answers that the client has not read yet.
    pub max_bytes_in_flight: usize,
    /// How long a review may wait for capacity, from its head; half of the timeout that the API server names,
    /// if that is less.
    pub max_wait: Duration,
    /// Open connections; a new one above this limit evicts another.
    pub max_connections: u32,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for the head of a request once it has begun; also for the first head of a connection.
    pub header_timeout: Duration,
    /// Time for the body of a request, from its head.
    pub body_timeout: Duration,
    /// Time between two requests of one connection. Longer than the 90 s of Go's clients, so that the API
    /// server always closes first, and never sends a review into a connection that is closing.
    pub idle_timeout: Duration,
    /// Time between becoming not ready and closing the listener.
    pub drain_delay: Duration,
    /// Time for reviews in flight to finish after the listener is closed.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_concurrent: 256,
            max_bytes_in_flight: 64 << 20,
            max_wait: Duration::from_secs(1),
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
    /// The part of the bytes in flight that is reserved for first bytes of bodies and for answers.
    pub(super) fn small_bytes(&self) -> usize {
        let next_to_the_largest = self.max_bytes_in_flight.saturating_sub(MAX_BODY) / 2;
        next_to_the_largest.max(LEAST_SMALL).min(self.max_bytes_in_flight)
    }

    /// The limits for probes and scrapes: one request per connection, sent immediately.
    pub(super) fn of_health(&self) -> Self {
        Self {
            header_timeout: self.header_timeout.min(Duration::from_secs(2)),
            idle_timeout: self.idle_timeout.min(Duration::from_secs(5)),
            ..self.clone()
        }
    }
}

/// Why a request is rejected: no capacity became free before its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RejectReason {
    /// The maximum of reviews is in flight.
    Requests,
    /// The maximum of bytes is in flight.
    Bytes,
    /// The maximum of requests is open.
    Open,
    /// Others needed the capacity, and Transom waited for its client.
    Slow,
    /// The maximum of large reviews is being evaluated.
    Large,
}

impl RejectReason {
    pub(super) const ALL: [RejectReason; 5] = [
        RejectReason::Requests,
        RejectReason::Bytes,
        RejectReason::Open,
        RejectReason::Slow,
        RejectReason::Large,
    ];

    /// The label of the metric, and the text of the answer.
    pub(super) fn label_and_text(self) -> (&'static str, &'static str) {
        match self {
            RejectReason::Requests => ("max_concurrent", "overloaded, too many reviews in flight\n"),
            RejectReason::Bytes => ("max_bytes", "overloaded, too many bytes of reviews in flight\n"),
            RejectReason::Open => ("max_open_requests", "overloaded, too many concurrent requests\n"),
            RejectReason::Slow => (
                "slow_client",
                "overloaded, and this request waited for its client\n",
            ),
            RejectReason::Large => ("large_review", "overloaded, too many large reviews in flight\n"),
        }
    }
}
