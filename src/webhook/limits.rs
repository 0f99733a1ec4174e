//! How much is taken on at once, and how long it may take.

use std::time::Duration;

/// The largest body that is read. An update carries two objects of 1.5 MiB, the largest that etcd takes, and Go encodes
/// `<`, `>` and `&` as six bytes each: 18 MiB and an envelope. What is larger is answered from its head.
pub(super) const MAX_BODY: usize = 20 << 20;

/// The part of a body that is read as it comes. A longer one is read when there is room for the whole of it; of one that is
/// too large, this is the head.
pub(super) const FIRST: usize = 64 << 10;

/// The least room for the first bytes of bodies and for answers.
const LEAST_SMALL: usize = 4 << 20;

/// The least bytes in flight: the largest body, and small ones next to it.
pub(super) const LEAST_IN_FLIGHT: usize = MAX_BODY + LEAST_SMALL;

/// What a client may send of one body over HTTP/2 before it is read. Each window takes a round trip, and on a busy machine
/// those of 64 KiB make a body of 8 MiB miss its timeout.
pub(super) const STREAM_WINDOW: u32 = 512 << 10;

/// One in so many of the reviews that may be in flight may wait for the room of its body: 64 of 256. What their clients send
/// meanwhile stays in the windows of their streams, 32 MiB at most.
pub(super) const WAITING_SHARE: usize = 4;

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
    /// Bytes in flight: of bodies, and of answers that were not taken yet.
    pub max_bytes_in_flight: usize,
    /// How long a review waits for room, from its head; half of the timeout that the API server names where that is less.
    pub max_wait: Duration,
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
    /// The part of the bytes in flight that only the first bytes of bodies and answers may take.
    pub(super) fn small_bytes(&self) -> usize {
        let next_to_the_largest = self.max_bytes_in_flight.saturating_sub(MAX_BODY) / 2;
        next_to_the_largest.max(LEAST_SMALL).min(self.max_bytes_in_flight)
    }

    /// The limits of probes and scrapes: one request for each connection, which comes at once.
    pub(super) fn of_health(&self) -> Self {
        Self {
            header_timeout: self.header_timeout.min(Duration::from_secs(2)),
            idle_timeout: self.idle_timeout.min(Duration::from_secs(5)),
            ..self.clone()
        }
    }
}

/// Why a request is refused: there was no room for as long as it could wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RejectReason {
    /// As many reviews as may be are in flight.
    Requests,
    /// As many bytes as may be are in flight.
    Bytes,
    /// As many requests as may be are open.
    Open,
    /// Others needed the room of the request: its client kept Transom waiting, or its network held more.
    Share,
    /// As many large reviews as may be are being evaluated.
    Large,
}
