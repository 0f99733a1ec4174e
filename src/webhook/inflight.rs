//! Limits the requests in flight: how much each one holds, which ones wait for capacity, and which ones are
//! cancelled when others need it.
//!
//! Memory has two parts. The first 64 KiB of each body and all answers use one part. Longer bodies use the
//! other part with their full size, first come, first served. Small reviews therefore never wait for large
//! ones.
//!
//! A request whose client is slow (its body stops or arrives too slowly, or its answer is not read) is
//! cancelled as soon as others need its capacity. A complete review is never cancelled.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, interval, timeout_at};
use tokio_util::sync::CancellationToken;

use super::limits::{Limits, RejectReason, WAITING_SHARE};
use super::peer::Peer;
use crate::process::metrics::Metrics;

/// Open requests per allowed review in flight: includes bodies in transfer and answers.
const OPEN_FOR_EACH_REVIEW: usize = 4;

/// How long a client may send nothing, or not read its answer, before its request can be cancelled for
/// others.
const STALL_TIMEOUT: Duration = Duration::from_millis(250);

/// The minimum rate of a body, in bytes per second, so that it is not cancelled for others after
/// [`STALL_TIMEOUT`]. Between two machines bodies arrive at ten times this rate, on a busy machine at twice.
const LEAST_RATE: u64 = 16 << 20;

/// How often a waiting request cancels others.
const CANCEL_AGAIN: Duration = Duration::from_millis(50);

/// What is in flight in one server; clones share it.
#[derive(Clone, Debug)]
pub(super) struct InflightLimiter(Arc<InflightState>);

#[derive(Debug)]
struct InflightState {
    /// Locked when a request begins or ends, and to choose which ones to cancel.
    requests: Mutex<HashMap<u64, Arc<RequestSlot>>>,
    next: AtomicU64,
    open: PermitPool,
    /// Bytes of first pieces and answers.
    small: PermitPool,
    /// Bytes of bodies that count with their full size: first come, first served.
    large: PermitPool,
    reviews: PermitPool,
    /// Bodies that wait for capacity. What their clients send meanwhile is not counted, so their number is
    /// bounded.
    waiting: Semaphore,
}

/// One request's share, released on drop.
#[derive(Debug)]
pub(super) struct InflightPermit {
    limiter: InflightLimiter,
    number: u64,
    slot: Arc<RequestSlot>,
    /// The deadline for waiting for capacity.
    until: Instant,
}

/// The gauges of shares.
#[derive(Clone, Default, Debug)]
pub(super) struct InflightGauges {
    pub(super) open: Gauge,
    pub(super) reviews: Gauge,
    pub(super) bytes: Gauge,
}

impl InflightGauges {
    /// Gauges at zero, registered in `metrics`.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let open = "Requests from their headers to the last byte of their answer";
        let bytes = "Bytes of bodies being read or evaluated, and of answers being sent";
        InflightGauges {
            open: metrics.add("http_requests_in_flight", open),
            reviews: metrics.add("reviews_in_flight", "Reviews being evaluated, or waiting for it"),
            bytes: metrics.add("in_flight_bytes", bytes),
        }
    }
}

impl InflightLimiter {
    /// A limiter with nothing in flight. Only it may write `gauges`.
    pub(super) fn new(limits: &Limits, gauges: &InflightGauges) -> Self {
        let small = limits.small_bytes();
        let large = limits.max_bytes_in_flight.saturating_sub(small);
        let open = limits.max_concurrent.saturating_mul(OPEN_FOR_EACH_REVIEW);
        Self(Arc::new(InflightState {
            requests: Mutex::default(),
            next: AtomicU64::new(0),
            open: PermitPool::new(open, &gauges.open),
            small: PermitPool::new(small, &gauges.bytes),
            large: PermitPool::new(large, &gauges.bytes),
            reviews: PermitPool::new(limits.max_concurrent, &gauges.reviews),
            waiting: Semaphore::new(
                limits
                    .max_concurrent
                    .div_ceil(WAITING_SHARE)
                    .min(Semaphore::MAX_PERMITS),
            ),
        }))
    }

    /// A share for a request whose head is complete; `until` is its deadline for waiting for capacity. If too
    /// many requests are open, cancels one whose body is not complete, or whose answer is not read.
    pub(super) fn open(&self, client: &Arc<Peer>, until: Instant) -> Result<InflightPermit, RejectReason> {
        let permit = self.0.open.try_take(1).or_else(|| {
            // Handed over directly, so that no third request takes the permit.
            let cancelled =
                self.cancel_first(client.connection, |request| request.awaits_client.is_some())?;
            Some(cancelled.open)
        });
        let permit = permit.ok_or(RejectReason::Open)?;
        Ok(self.insert(permit, client, until))
    }

    /// A share, if one is free without cancelling another request: a body to discard must not displace a
    /// review.
    pub(super) fn open_if_free(&self, client: &Arc<Peer>) -> Option<InflightPermit> {
        let permit = self.0.open.try_take(1)?;
        Some(self.insert(permit, client, Instant::now()))
    }

    fn insert(&self, permit: PoolPermit, client: &Arc<Peer>, until: Instant) -> InflightPermit {
        let number = self.0.next.fetch_add(1, Relaxed);
        let request = InflightRequest {
            awaits_client: Some(ClientWait::new()),
            open: permit,
            bytes: None,
            review: None,
            is_answered: false,
            cancelled: None,
        };
        let slot = Arc::new(RequestSlot {
            client: Arc::clone(client),
            request: Mutex::new(Some(request)),
        });
        self.lock().insert(number, Arc::clone(&slot));
        InflightPermit {
            limiter: self.clone(),
            number,
            slot,
            until,
        }
    }

    /// Whether half of the allowed reviews are in flight.
    pub(super) fn is_half_full(&self) -> bool {
        self.0.reviews.free.available_permits() * 2 <= self.0.reviews.size
    }

    /// Cancels requests of slow clients of other connections until they have released this many bytes of
    /// `pool`, or until no client is slow.
    fn cancel_slow(&self, pool: &PermitPool, bytes: usize, connection: u64) {
        let now = Instant::now();
        let missing = bytes.saturating_sub(pool.free.available_permits());
        let mut released = 0;
        while released < missing {
            let is_slow = |request: &InflightRequest| request.bytes_of(pool) > 0 && request.is_slow(now);
            let Some(cancelled) = self.cancel_first(connection, is_slow) else {
                return;
            };
            released += cancelled.bytes_of(pool);
        }
    }

    /// Cancels the request whose client has been silent for longest, of the matching ones. Never cancels a
    /// request of the connection that needs the capacity: earlier requests are nearer to their end.
    fn cancel_first(
        &self,
        connection: u64,
        gives_way: impl Fn(&InflightRequest) -> bool,
    ) -> Option<InflightRequest> {
        let requests = self.lock();
        loop {
            let others = requests
                .iter()
                .filter(|(_, slot)| slot.client.connection != connection);
            let matching = others.filter_map(|(number, slot)| {
                let request = slot.lock();
                let request = request.as_ref().filter(|request| gives_way(request))?;
                Some((request.awaits_client.map(|wait| wait.last), *number, slot))
            });
            let (.., slot) = matching.min_by_key(|(last, number, _)| (*last, *number))?;
            // Meanwhile it may have changed: then there is another choice.
            let Some(request) = slot.lock().take_if(|request| gives_way(request)) else {
                continue;
            };
            if request.is_answered {
                slot.client.gone.cancel();
            } else if let Some(cancelled) = &request.cancelled {
                cancelled.cancel();
            }
            return Some(request);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<RequestSlot>>> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InflightPermit {
    /// The deadline for waiting for capacity.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Grows the share to this many bytes as soon as they are free: for the first bytes of a body, and for an
    /// answer. From then on, Transom waits for the client.
    pub(super) async fn grow_to(&self, bytes: usize) -> Result<(), RejectReason> {
        let small = &self.limiter.0.small;
        let held = self.change(|request| request.bytes_of(small))?;
        let more = self.take(small, bytes.saturating_sub(held)).await?;
        self.change(|request| {
            match &mut request.bytes {
                Some(held) if held.is_of(small) => held.merge(more),
                none => *none = Some(more),
            }
            request.awaits_client.get_or_insert_with(ClientWait::new);
        })
    }

    /// Takes capacity for a whole body of this many bytes as soon as it is free; releases what its first
    /// bytes used.
    pub(super) async fn take_whole(&self, bytes: usize) -> Result<(), RejectReason> {
        let whole = self.take(&self.limiter.0.large, bytes).await?;
        self.change(|request| {
            request.bytes = Some(whole);
            request.awaits_client = Some(ClientWait::new());
        })
    }

    /// Takes bytes of a pool as soon as they are free. Meanwhile the request is not waiting for its client.
    async fn take(&self, pool: &PermitPool, bytes: usize) -> Result<PoolPermit, RejectReason> {
        if let Some(taken) = pool.try_take(bytes) {
            return Ok(taken);
        }
        let _permit = (self.limiter.0.waiting.try_acquire()).map_err(|_| RejectReason::Open)?;
        self.change(|request| request.awaits_client = None)?;
        let mut taken = pin!(timeout_at(self.until, pool.take(bytes)));
        let mut rounds = interval(CANCEL_AGAIN);
        loop {
            tokio::select! {
                biased;
                // The first round is immediate.
                _ = rounds.tick() => self.limiter.cancel_slow(pool, bytes, self.slot.client.connection),
                taken = &mut taken => return taken.ok().flatten().ok_or(RejectReason::Bytes),
            }
        }
    }

    /// Records this many received bytes of the body.
    pub(super) fn received(&self, bytes: usize) {
        // The request notices a cancellation when it asks for more.
        let _ = self.change(|request| {
            if let Some(wait) = &mut request.awaits_client {
                wait.last = Instant::now();
                wait.received = bytes;
            }
        });
    }

    /// Releases the bytes of a body of which only the head is kept.
    pub(super) async fn keep_head(&self, bytes: usize) -> Result<(), RejectReason> {
        self.change(|request| request.bytes = None)?;
        self.grow_to(bytes).await
    }

    /// The body is complete: the request becomes a review in flight as soon as a permit is free.
    pub(super) async fn complete(&self) -> Result<(), RejectReason> {
        self.change(|request| request.awaits_client = None)?;
        let review = timeout_at(self.until, self.limiter.0.reviews.take(1)).await;
        let review = review.ok().flatten().ok_or(RejectReason::Requests)?;
        self.change(|request| request.review = Some(review))
    }

    /// Counts the bytes of the answer until the client has read them. If others need them, the connection is
    /// closed.
    pub(super) async fn answer(&self, bytes: usize) -> Result<(), RejectReason> {
        self.change(|request| {
            request.bytes = None;
            request.review = None;
            request.is_answered = true;
        })?;
        self.grow_to(bytes).await
    }

    /// Resolves when the request is cancelled because others need its capacity.
    pub(super) async fn refused(&self) {
        if let Ok(cancelled) = self.change(|request| request.cancelled.get_or_insert_default().clone()) {
            cancelled.cancelled().await;
        }
    }

    /// Changes the state of the request, unless it is cancelled.
    fn change<T>(&self, change: impl FnOnce(&mut InflightRequest) -> T) -> Result<T, RejectReason> {
        self.slot.lock().as_mut().map(change).ok_or(RejectReason::Slow)
    }
}

impl Drop for InflightPermit {
    fn drop(&mut self) {
        self.limiter.lock().remove(&self.number);
    }
}

/// The place of a request in the limiter. Its own lock is free unless another request looks for one to cancel.
#[derive(Debug)]
struct RequestSlot {
    client: Arc<Peer>,
    /// `None` once it is cancelled.
    request: Mutex<Option<InflightRequest>>,
}

impl RequestSlot {
    fn lock(&self) -> MutexGuard<'_, Option<InflightRequest>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request from its head to the last byte of its answer.
#[derive(Debug)]
struct InflightRequest {
    /// Transom waits for the client: for the rest of the body, or until the client has read the answer.
    awaits_client: Option<ClientWait>,
    open: PoolPermit,
    bytes: Option<PoolPermit>,
    review: Option<PoolPermit>,
    /// A cancellation closes the connection: the client does not read the answer.
    is_answered: bool,
    /// Set once a task waits for the cancellation. Most requests end before that.
    cancelled: Option<CancellationToken>,
}

impl InflightRequest {
    /// The bytes that it holds of a pool.
    fn bytes_of(&self, pool: &PermitPool) -> usize {
        let bytes = self.bytes.as_ref().filter(|bytes| bytes.is_of(pool));
        bytes.map_or(0, |bytes| bytes.permit.num_permits())
    }

    fn is_slow(&self, now: Instant) -> bool {
        self.awaits_client.is_some_and(|wait| wait.is_overdue(now))
    }
}

/// Since when Transom waits for a client, and the bytes received since.
#[derive(Clone, Copy, Debug)]
struct ClientWait {
    since: Instant,
    last: Instant,
    received: usize,
}

impl ClientWait {
    fn new() -> Self {
        let now = Instant::now();
        ClientWait {
            since: now,
            last: now,
            received: 0,
        }
    }

    /// Whether the client is too slow.
    fn is_overdue(&self, now: Instant) -> bool {
        let received = u64::try_from(self.received).unwrap_or(u64::MAX);
        let granted = Duration::from_micros(received.saturating_mul(1_000_000) / LEAST_RATE);
        now.saturating_duration_since(self.last) >= STALL_TIMEOUT
            || now.saturating_duration_since(self.since) >= STALL_TIMEOUT + granted
    }
}

/// Capacity that requests share, and the gauge of what they hold.
#[derive(Debug)]
struct PermitPool {
    free: Arc<Semaphore>,
    size: usize,
    used: Gauge,
}

impl PermitPool {
    fn new(size: usize, used: &Gauge) -> Self {
        let size = size.min(Semaphore::MAX_PERMITS);
        PermitPool {
            free: Arc::new(Semaphore::new(size)),
            size,
            used: used.clone(),
        }
    }

    fn try_take(&self, amount: usize) -> Option<PoolPermit> {
        let permits = u32::try_from(amount).ok()?;
        let permit = Arc::clone(&self.free).try_acquire_many_owned(permits).ok()?;
        Some(self.count(permit))
    }

    async fn take(&self, amount: usize) -> Option<PoolPermit> {
        let permits = u32::try_from(amount).ok()?;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.free).acquire_many_owned(permits).await.ok()?;
        Some(self.count(permit))
    }

    fn count(&self, permit: OwnedSemaphorePermit) -> PoolPermit {
        self.used.inc_by(signed(permit.num_permits()));
        PoolPermit {
            permit,
            used: self.used.clone(),
        }
    }
}

/// A part of a pool, counted until dropped.
#[derive(Debug)]
struct PoolPermit {
    permit: OwnedSemaphorePermit,
    used: Gauge,
}

impl PoolPermit {
    fn is_of(&self, pool: &PermitPool) -> bool {
        Arc::ptr_eq(self.permit.semaphore(), &pool.free)
    }

    /// Adds another part of the same pool.
    fn merge(&mut self, mut other: PoolPermit) {
        // The gauge counts both already.
        if let Some(permit) = other.permit.split(other.permit.num_permits()) {
            self.permit.merge(permit);
        }
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        self.used.dec_by(signed(self.permit.num_permits()));
    }
}

/// Gauges are signed; any number of bytes that fits into memory fits.
fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
