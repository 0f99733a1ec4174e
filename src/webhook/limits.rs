//! How much is taken on at once: reviews and bytes in flight, counted in the very gauges that `/metrics` shows.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;

/// The largest body that is accepted. A review can carry an object and its old self, 3 MiB each, and an envelope.
pub(super) const MAX_BODY: usize = 7 << 20;

/// Every bound of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Reviews in flight.
    pub max_concurrent: usize,
    /// Bytes of request bodies in flight.
    pub max_bytes_in_flight: usize,
    /// Open connections; one more takes the place of one of them.
    pub max_connections: u32,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time for the head of a request, once it has begun; also for the first one of a connection.
    pub header_timeout: Duration,
    /// Time for the body of a request.
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
            body_timeout: Duration::from_secs(10),
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

/// Which bound was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shed {
    Requests,
    Bytes,
}

/// Admits a request at once, or not at all.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    reviews: Gauge,
    bytes: Gauge,
    max_reviews: i64,
    max_bytes: i64,
}

/// A request's share of what is in flight, given back on drop.
#[derive(Debug)]
pub(super) struct Permit {
    gate: Gate,
    bytes: usize,
}

impl Gate {
    /// A gate that counts in `reviews` and `bytes`; no other code may write these.
    pub(super) fn new(limits: &Limits, reviews: Gauge, bytes: Gauge) -> Self {
        Self {
            reviews,
            bytes,
            max_reviews: signed(limits.max_concurrent),
            max_bytes: signed(limits.max_bytes_in_flight),
        }
    }

    /// Admits a request whose body will take `bytes`, 0 where that is not known yet.
    pub(super) fn admit(&self, bytes: usize) -> Result<Permit, Shed> {
        take(self.reviews.inner(), 1, self.max_reviews)
            .then_some(())
            .ok_or(Shed::Requests)?;
        let mut permit = Permit {
            gate: self.clone(),
            bytes: 0,
        };
        permit.grow_to(bytes)?;
        Ok(permit)
    }
}

impl Permit {
    /// Takes what is missing to `bytes`; takes nothing when that would pass the bound.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), Shed> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            take(self.gate.bytes.inner(), signed(more), self.gate.max_bytes)
                .then_some(())
                .ok_or(Shed::Bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.reviews.dec();
        self.gate.bytes.dec_by(signed(self.bytes));
    }
}

/// Adds `amount` unless the sum would pass `max`. Relaxed: the numbers guard no other memory.
fn take(total: &AtomicI64, amount: i64, max: i64) -> bool {
    total
        .fetch_update(Relaxed, Relaxed, |now| {
            now.checked_add(amount).filter(|sum| *sum <= max)
        })
        .is_ok()
}

/// Gauges are signed; nothing that fits into memory is too big for them.
fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(reviews: usize, bytes: usize) -> Gate {
        let limits = Limits {
            max_concurrent: reviews,
            max_bytes_in_flight: bytes,
            ..Limits::default()
        };
        Gate::new(&limits, Gauge::default(), Gauge::default())
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let gate = gate(2, 100);
        let first = gate.admit(60).unwrap();
        assert_eq!(gate.admit(60).unwrap_err(), Shed::Bytes);
        let second = gate.admit(40).unwrap();
        assert_eq!(gate.admit(0).unwrap_err(), Shed::Requests);
        drop((first, second));
        assert_eq!((gate.reviews.get(), gate.bytes.get()), (0, 0));
        assert!(gate.admit(100).is_ok());
    }

    #[test]
    fn a_body_that_grows_past_the_bound_keeps_what_it_had() {
        let gate = gate(2, 100);
        let mut permit = gate.admit(0).unwrap();
        permit.grow_to(80).unwrap();
        permit.grow_to(50).unwrap();
        assert_eq!(permit.grow_to(101), Err(Shed::Bytes));
        assert_eq!(gate.bytes.get(), 80);
    }
}
