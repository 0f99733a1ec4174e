//! Limits the requests in flight: how much each one holds, which ones wait for capacity, and which ones are
//! cancelled when others need it.
//!
//! Memory has two parts. The first 64 KiB of each body and all answers use one part. Longer bodies use the
//! other part with their full size, first come, first served. Small reviews therefore never wait for large
//! ones.
//!
//! A request whose client is slow (its body stops or arrives too slowly, or its answer is not read) is
//! cancelled as soon as others need its capacity. A review that waits for Transom is cancelled only if its
//! network holds more than the request that needs the capacity, and only after that request has used half of
//! its waiting time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, interval, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::limits::{Limits, RejectReason, WAITING_SHARE};
use super::peer::Peer;

/// The minimum cost of a request, in bytes: a single byte of a body keeps the whole buffer that it arrived
/// in.
const LEAST: usize = 16 << 10;

/// Open requests per allowed review in flight: includes bodies in transfer and answers.
const OPEN_FOR_EACH_REVIEW: usize = 4;

/// How long a client may send nothing, or not read its answer, before its request can be cancelled for
/// others.
const STALL_TIMEOUT: Duration = Duration::from_millis(250);

/// The minimum rate of a body, in bytes per second, so that it is not cancelled for others after
/// [`STALL_TIMEOUT`]. Between two machines bodies arrive at ten times this rate, on a busy machine at twice.
const LEAST_RATE: u64 = 16 << 20;

/// How often a waiting request checks for capacity.
const AGAIN: Duration = Duration::from_millis(10);

/// How often a waiting request cancels others.
const REFUSE_AGAIN: Duration = Duration::from_millis(50);

/// What is in flight in one server; clones share it.
#[derive(Clone, Debug)]
pub(super) struct InflightLimiter {
    table: Arc<Mutex<InflightTable>>,
    /// Bytes of bodies longer than [`FIRST`]: first come, first served.
    large: Arc<Semaphore>,
    /// Reviews in flight.
    reviews: Arc<Semaphore>,
    /// Bodies that wait for capacity. What their clients send meanwhile is not counted, so their number is
    /// bounded.
    waiting: Arc<Semaphore>,
}

/// One request's share, released on drop.
#[derive(Debug)]
pub(super) struct InflightPermit {
    limiter: InflightLimiter,
    number: u64,
    /// The deadline for waiting for capacity.
    until: Instant,
}

impl InflightLimiter {
    /// A limiter with nothing in flight. Only it may write `gauges`.
    pub(super) fn new(limits: &Limits, gauges: InflightGauges) -> Self {
        let small = limits.small_bytes();
        let table = InflightTable {
            open: HashMap::new(),
            next: 0,
            reviews: 0,
            small: 0,
            large: 0,
            max_open: limits.max_concurrent.saturating_mul(OPEN_FOR_EACH_REVIEW),
            max_reviews: limits.max_concurrent,
            max_small: small,
            gauges,
        };
        let permits = |number: usize| Arc::new(Semaphore::new(number.min(Semaphore::MAX_PERMITS)));
        Self {
            table: Arc::new(Mutex::new(table)),
            large: permits(limits.max_bytes_in_flight.saturating_sub(small)),
            reviews: permits(limits.max_concurrent),
            waiting: permits(limits.max_concurrent.div_ceil(WAITING_SHARE)),
        }
    }

    /// A share for a request whose head is complete; `until` is its deadline for waiting for capacity.
    pub(super) fn open(&self, client: &Peer, until: Instant) -> Result<InflightPermit, RejectReason> {
        let mut table = self.lock();
        let now = Instant::now();
        if table.open.len() >= table.max_open {
            let first = table.first_refused(client, now, |request| request.awaits_client.is_some());
            table.refuse(first.ok_or(RejectReason::Open)?);
        }
        Ok(self.take(&mut table, client, now, until))
    }

    /// A share, if one is free without cancelling another request: a body to discard must not displace a
    /// review.
    pub(super) fn open_if_free(&self, client: &Peer) -> Option<InflightPermit> {
        let mut table = self.lock();
        let now = Instant::now();
        let is_free = table.open.len() < table.max_open;
        is_free.then(|| self.take(&mut table, client, now, now))
    }

    fn take(&self, table: &mut InflightTable, client: &Peer, now: Instant, until: Instant) -> InflightPermit {
        table.next += 1;
        let number = table.next;
        let request = InflightRequest {
            client: client.clone(),
            since: now,
            awaits_client: Some(ClientWait::from(now)),
            small: 0,
            large: None,
            review: None,
            is_reviewing: false,
            end: CancelTarget::Unheard,
        };
        table.open.insert(number, request);
        table.update_gauges();
        InflightPermit {
            limiter: self.clone(),
            number,
            until,
        }
    }

    /// Whether half of the allowed reviews are in flight.
    pub(super) fn is_half_full(&self) -> bool {
        let table = self.lock();
        table.reviews * 2 >= table.max_reviews
    }

    fn lock(&self) -> MutexGuard<'_, InflightTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InflightPermit {
    /// The deadline for waiting for capacity.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Grows the share to this many bytes as soon as they are free: for the first bytes of a body, and for an
    /// answer.
    pub(super) async fn grow_to(&self, bytes: usize) -> Result<(), RejectReason> {
        let mut refuses_from = Instant::now();
        let mut place = None;
        loop {
            let now = Instant::now();
            let refuses = now >= refuses_from;
            match self
                .lock()
                .grow(self.number, bytes, self.permit_request(now), refuses)
            {
                Err(RejectReason::Bytes) if now < self.until => {}
                ended => return ended,
            }
            if refuses {
                refuses_from = now + REFUSE_AGAIN;
            }
            if place.is_none() {
                place = Some(self.place()?);
            }
            sleep(AGAIN).await;
        }
    }

    /// Takes capacity for a whole body of this many bytes as soon as it is free; releases what its first
    /// bytes used.
    pub(super) async fn take_whole(&self, bytes: usize) -> Result<(), RejectReason> {
        let permits = u32::try_from(bytes).map_err(|_| RejectReason::Bytes)?;
        if let Ok(permit) = Arc::clone(&self.limiter.large).try_acquire_many_owned(permits) {
            return self.lock().take_whole(self.number, bytes, permit);
        }
        let _place = self.place()?;
        self.lock().waits_for_us(self.number)?;
        let taken = Arc::clone(&self.limiter.large).acquire_many_owned(permits);
        let mut taken = std::pin::pin!(timeout_at(self.until, taken));
        let mut rounds = interval(REFUSE_AGAIN);
        loop {
            tokio::select! {
                biased;
                taken = &mut taken => {
                    // The semaphore is never closed.
                    let permit = taken.ok().and_then(Result::ok).ok_or(RejectReason::Bytes)?;
                    return self.lock().take_whole(self.number, bytes, permit);
                }
                now = rounds.tick() => {
                    let missing = bytes.saturating_sub(self.limiter.large.available_permits());
                    self.lock().refuse_large(self.number, missing, self.permit_request(now));
                }
            }
        }
    }

    /// Records this many received bytes of the body.
    pub(super) fn received(&self, bytes: usize) {
        let mut table = self.lock();
        let request = table.open.get_mut(&self.number);
        if let Some(awaited) = request.and_then(|request| request.awaits_client.as_mut()) {
            awaited.last = Instant::now();
            awaited.received = bytes;
        }
    }

    /// Releases the bytes of a body of which only the head is kept.
    pub(super) async fn keep_head(&self, bytes: usize) -> Result<(), RejectReason> {
        self.lock().give_back(self.number)?;
        self.grow_to(bytes).await
    }

    /// The body is complete: the request becomes a review in flight as soon as a permit is free.
    pub(super) async fn complete(&self) -> Result<(), RejectReason> {
        self.lock().waits_for_us(self.number)?;
        let permit = Arc::clone(&self.limiter.reviews).acquire_owned();
        let permit = timeout_at(self.until, permit).await;
        // The semaphore is never closed.
        let permit = permit.ok().and_then(Result::ok).ok_or(RejectReason::Requests)?;
        self.lock().complete(self.number, permit)
    }

    /// Marks a review as being evaluated, so that it is not cancelled; false if it was cancelled already.
    pub(super) fn set_reviewing(&self, is_reviewing: bool) -> bool {
        match self.lock().open.get_mut(&self.number) {
            Some(open) => {
                open.is_reviewing = is_reviewing;
                true
            }
            None => false,
        }
    }

    /// Counts the bytes of the answer until the client has read them. If others need them, the connection is
    /// closed.
    pub(super) async fn answer(&self, bytes: usize) -> Result<(), RejectReason> {
        self.lock().answer(self.number)?;
        self.grow_to(bytes).await
    }

    /// Resolves when the request is cancelled because others need its capacity.
    pub(super) async fn refused(&self) {
        let end_token = match self.lock().open.get_mut(&self.number) {
            Some(open) => open.subscribe(),
            None => return,
        };
        end_token.cancelled().await;
    }

    /// A permit to wait for capacity with a body.
    fn place(&self) -> Result<SemaphorePermit<'_>, RejectReason> {
        self.limiter.waiting.try_acquire().map_err(|_| RejectReason::Open)
    }

    fn permit_request(&self, now: Instant) -> PermitRequest {
        PermitRequest {
            now,
            until: self.until,
        }
    }

    fn lock(&self) -> MutexGuard<'_, InflightTable> {
        self.limiter.lock()
    }
}

impl Drop for InflightPermit {
    fn drop(&mut self) {
        self.lock().remove(self.number);
    }
}

/// When a request asks for capacity, and its deadline.
#[derive(Clone, Copy)]
struct PermitRequest {
    now: Instant,
    until: Instant,
}

/// The gauges of shares.
#[derive(Clone, Default, Debug)]
pub(super) struct InflightGauges {
    pub(super) open: Gauge,
    pub(super) reviews: Gauge,
    pub(super) bytes: Gauge,
}

#[derive(Debug)]
struct InflightTable {
    open: HashMap<u64, InflightRequest>,
    next: u64,
    reviews: usize,
    /// Bytes of first pieces and answers.
    small: usize,
    /// Bytes of bodies that count with their full size.
    large: usize,
    max_open: usize,
    max_reviews: usize,
    max_small: usize,
    gauges: InflightGauges,
}

/// A request from its head to the last byte of its answer.
#[derive(Debug)]
struct InflightRequest {
    client: Peer,
    since: Instant,
    /// Transom waits for the client: for the rest of the body, or until the client has read the answer.
    awaits_client: Option<ClientWait>,
    small: usize,
    large: Option<(usize, OwnedSemaphorePermit)>,
    /// The permit of a review in flight.
    review: Option<OwnedSemaphorePermit>,
    is_reviewing: bool,
    end: CancelTarget,
}

/// Since when Transom waits for a client, and the bytes received since.
#[derive(Clone, Copy, Debug)]
struct ClientWait {
    since: Instant,
    last: Instant,
    received: usize,
}

impl ClientWait {
    fn from(now: Instant) -> Self {
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

/// What to end when a request is cancelled.
#[derive(Debug)]
enum CancelTarget {
    /// No task waits for the cancellation: the request sees it when it asks for more. Most requests never
    /// leave this state.
    Unheard,
    /// A task waits for the cancellation.
    Token(CancellationToken),
    /// Its connection: the request is answered, but the client does not read the answer.
    Connection,
}

impl InflightTable {
    fn get(&mut self, number: u64) -> Result<&mut InflightRequest, RejectReason> {
        self.open.get_mut(&number).ok_or(RejectReason::Share)
    }

    /// From now on the request waits for Transom, and Transom does not wait for the client.
    fn waits_for_us(&mut self, number: u64) -> Result<(), RejectReason> {
        self.get(number)?.awaits_client = None;
        Ok(())
    }

    fn grow(
        &mut self,
        number: u64,
        to: usize,
        permit_request: PermitRequest,
        refuses: bool,
    ) -> Result<(), RejectReason> {
        let more = to.saturating_sub(self.get(number)?.small);
        while self.small.saturating_add(more) > self.max_small {
            let first = if refuses {
                self.first_for(number, more, permit_request, |request| request.small > 0)
            } else {
                None
            };
            let Some(first) = first else {
                self.waits_for_us(number)?;
                return Err(RejectReason::Bytes);
            };
            self.refuse(first);
        }
        let request = self.get(number)?;
        request.small += more;
        request
            .awaits_client
            .get_or_insert(ClientWait::from(permit_request.now));
        self.small += more;
        self.update_gauges();
        Ok(())
    }

    /// Cancels others until this many bytes of whole bodies are released, or no request may be cancelled.
    fn refuse_large(&mut self, number: u64, missing: usize, permit_request: PermitRequest) {
        let mut freed = 0;
        while freed < missing {
            let Some(first) =
                self.first_for(number, missing, permit_request, |request| request.large.is_some())
            else {
                return;
            };
            freed += self.open.get(&first).map_or(0, InflightRequest::bytes);
            self.refuse(first);
        }
    }

    fn take_whole(
        &mut self,
        number: u64,
        bytes: usize,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), RejectReason> {
        self.give_back(number)?;
        let request = self.get(number)?;
        request.large = Some((bytes, permit));
        request.awaits_client = Some(ClientWait::from(Instant::now()));
        self.large += bytes;
        self.update_gauges();
        Ok(())
    }

    fn complete(&mut self, number: u64, permit: OwnedSemaphorePermit) -> Result<(), RejectReason> {
        self.get(number)?.review = Some(permit);
        self.reviews += 1;
        self.update_gauges();
        Ok(())
    }

    fn answer(&mut self, number: u64) -> Result<(), RejectReason> {
        self.give_back(number)?;
        let request = self.get(number)?;
        request.since = Instant::now();
        request.is_reviewing = false;
        request.end = CancelTarget::Connection;
        let was_review = request.review.take().is_some();
        self.reviews -= usize::from(was_review);
        self.update_gauges();
        Ok(())
    }

    /// Releases every byte of a request.
    fn give_back(&mut self, number: u64) -> Result<(), RejectReason> {
        let request = self.get(number)?;
        let small = std::mem::take(&mut request.small);
        let large = request.large.take().map_or(0, |(bytes, _)| bytes);
        self.small -= small;
        self.large -= large;
        Ok(())
    }

    fn refuse(&mut self, number: u64) {
        let Some(request) = self.remove(number) else {
            return;
        };
        match request.end {
            CancelTarget::Unheard => {}
            CancelTarget::Token(token) => token.cancel(),
            CancelTarget::Connection => request.client.gone.cancel(),
        }
    }

    fn remove(&mut self, number: u64) -> Option<InflightRequest> {
        let request = self.open.remove(&number)?;
        self.small -= request.small;
        self.large -= request.large.as_ref().map_or(0, |(bytes, _)| *bytes);
        self.reviews -= usize::from(request.review.is_some());
        self.update_gauges();
        Some(request)
    }

    /// The request to cancel first for one that needs more bytes.
    fn first_for(
        &self,
        number: u64,
        more: usize,
        permit_request: PermitRequest,
        holds: impl Fn(&InflightRequest) -> bool,
    ) -> Option<u64> {
        let waiting = self.open.get(&number)?;
        let PermitRequest { now, until } = permit_request;
        let is_urgent = now >= waiting.since + until.saturating_duration_since(waiting.since) / 2;
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        for request in self.open.values().filter(|_| is_urgent) {
            *held.entry(request.client.network).or_default() += request.bytes();
        }
        let of = |client: &Peer| held.get(&client.network).copied().unwrap_or_default();
        let wants = of(&waiting.client).saturating_add(more);
        self.first_refused(&waiting.client, now, |request| {
            let is_less_trusted = waiting.client.is_known() && !request.client.is_known();
            holds(request)
                && (is_less_trusted
                    || request.keeps_waiting(now)
                    || (is_urgent && of(&request.client) > wants))
        })
    }

    /// The request to cancel first for a request of this client. Clients without a certificate come before those with one; then the
    /// network with the largest burden; then its connection with the largest burden; then the request with
    /// the largest burden. Never cancels a request of the client's own connection: earlier requests are nearer
    /// to their end. Never cancels a client with a certificate for a client without one.
    fn first_refused(
        &self,
        for_client: &Peer,
        now: Instant,
        gives_way: impl Fn(&InflightRequest) -> bool,
    ) -> Option<u64> {
        let mut networks: HashMap<IpAddr, u128> = HashMap::new();
        let mut connections: HashMap<u64, u128> = HashMap::new();
        let waiting = || self.open.iter().filter(|(_, request)| !request.is_reviewing);
        for (_, request) in waiting() {
            let burden = request.burden(now);
            *networks.entry(request.client.network).or_default() += burden;
            *connections.entry(request.client.connection).or_default() += burden;
        }
        let rank = |(number, request): &(&u64, &InflightRequest)| {
            let (network, connection) = (
                networks.get(&request.client.network).copied(),
                connections.get(&request.client.connection).copied(),
            );
            let is_unknown = !request.client.is_known();
            (is_unknown, network, connection, request.burden(now), **number)
        };
        let may_go = |(_, request): &(&u64, &InflightRequest)| {
            request.client.connection != for_client.connection
                && (for_client.is_known() || !request.client.is_known())
                && gives_way(request)
        };
        waiting()
            .filter(may_go)
            .max_by_key(rank)
            .map(|(number, _)| *number)
    }

    fn update_gauges(&self) {
        self.gauges.open.set(signed(self.open.len()));
        self.gauges.reviews.set(signed(self.reviews));
        self.gauges.bytes.set(signed(self.small + self.large));
    }
}

impl InflightRequest {
    /// A token that is cancelled together with the request.
    fn subscribe(&mut self) -> CancellationToken {
        match &self.end {
            CancelTarget::Token(token) => token.clone(),
            CancelTarget::Connection => self.client.gone.clone(),
            CancelTarget::Unheard => {
                let token = CancellationToken::new();
                self.end = CancelTarget::Token(token.clone());
                token
            }
        }
    }

    fn bytes(&self) -> usize {
        self.small + self.large.as_ref().map_or(0, |(bytes, _)| *bytes)
    }

    /// Whether its client is too slow.
    fn keeps_waiting(&self, now: Instant) -> bool {
        (self.awaits_client).is_some_and(|awaited| awaited.is_overdue(now))
    }

    /// The bytes that it holds, times how long it has held them.
    fn burden(&self, now: Instant) -> u128 {
        let held = now.saturating_duration_since(self.since).as_micros() + 1;
        u128::try_from(self.bytes().max(LEAST))
            .unwrap_or(u128::MAX)
            .saturating_mul(held)
    }
}

/// Gauges are signed; any number of bytes that fits into memory fits.
fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::limits::{FIRST, LEAST_IN_FLIGHT, MAX_BODY};
    use super::*;

    const MIB: usize = 1 << 20;

    /// Capacity for 4 MiB of first bytes and answers, and 20 MiB of whole bodies.
    fn limiter(reviews: usize) -> InflightLimiter {
        let limits = Limits {
            max_concurrent: reviews,
            max_bytes_in_flight: LEAST_IN_FLIGHT,
            ..Limits::default()
        };
        InflightLimiter::new(&limits, InflightGauges::default())
    }

    fn client(connection: u64, network: u8) -> Peer {
        Peer::new(connection, [10, 0, 0, network].into())
    }

    /// A share that may wait for a second.
    fn open(limiter: &InflightLimiter, client: &Peer) -> InflightPermit {
        limiter
            .open(client, Instant::now() + Duration::from_secs(1))
            .unwrap()
    }

    /// A share that may not wait.
    fn hasty(limiter: &InflightLimiter, client: &Peer) -> InflightPermit {
        limiter.open(client, Instant::now()).unwrap()
    }

    async fn whole(limiter: &InflightLimiter, client: &Peer, bytes: usize) -> InflightPermit {
        let inflight = open(limiter, client);
        inflight.take_whole(bytes).await.unwrap();
        inflight
    }

    fn is_refused(inflight: &InflightPermit) -> bool {
        !inflight.lock().open.contains_key(&inflight.number)
    }

    fn in_flight(limiter: &InflightLimiter) -> (usize, usize, usize) {
        let table = limiter.lock();
        (table.open.len(), table.reviews, table.small + table.large)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_is_given_back() {
        let limiter = limiter(1);
        let one = client(1, 1);
        let first = open(&limiter, &one);
        first.grow_to(60).await.unwrap();
        first.complete().await.unwrap();
        let second = hasty(&limiter, &one);
        assert_eq!(second.grow_to(4 * MIB).await, Err(RejectReason::Bytes));
        second.grow_to(40).await.unwrap();
        assert_eq!(second.complete().await, Err(RejectReason::Requests));
        assert_eq!(in_flight(&limiter), (2, 1, 100));
        second.take_whole(MAX_BODY).await.unwrap();
        assert_eq!(in_flight(&limiter), (2, 1, 60 + MAX_BODY));
        drop((first, second));
        assert_eq!(in_flight(&limiter), (0, 0, 0));
        assert_eq!(limiter.large.available_permits(), MAX_BODY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_grows_past_the_bound_keeps_what_it_had() {
        let limiter = limiter(1);
        let inflight = hasty(&limiter, &client(1, 1));
        inflight.grow_to(80).await.unwrap();
        inflight.grow_to(50).await.unwrap();
        assert_eq!(inflight.grow_to(5 * MIB).await, Err(RejectReason::Bytes));
        assert_eq!(in_flight(&limiter), (1, 0, 80));
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_body_waits_for_room_and_is_served_in_its_turn() {
        let limiter = limiter(9);
        let one = client(1, 1);
        let first = whole(&limiter, &one, MAX_BODY).await;
        first.complete().await.unwrap();
        let (second, third) = (open(&limiter, &one), open(&limiter, &one));
        let release = async {
            sleep(Duration::from_millis(700)).await;
            drop(first);
        };
        let (second, third, ()) = tokio::join!(second.take_whole(MAX_BODY), third.take_whole(MIB), release);
        assert_eq!(
            (second, third),
            (Ok(()), Err(RejectReason::Bytes)),
            "first come, first served"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_does_not_wait_for_whole_ones() {
        let limiter = limiter(9);
        let one = client(1, 1);
        let _large = whole(&limiter, &one, MAX_BODY).await;
        let waiting = open(&limiter, &one);
        let began = Instant::now();
        let small = async {
            hasty(&limiter, &one).grow_to(FIRST).await.unwrap();
            assert_eq!(began.elapsed(), Duration::ZERO);
        };
        let (waited, ()) = tokio::join!(waiting.take_whole(MIB), small);
        assert_eq!(waited, Err(RejectReason::Bytes));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_bodies_that_wait_for_room_are_bounded() {
        let limiter = limiter(WAITING_SHARE);
        let one = client(1, 1);
        let _large = whole(&limiter, &one, MAX_BODY).await;
        let (first, second) = (open(&limiter, &one), open(&limiter, &one));
        let waited = tokio::join!(first.take_whole(MIB), second.take_whole(MIB));
        assert_eq!(waited, (Err(RejectReason::Bytes), Err(RejectReason::Open)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_review_too_many_waits_for_a_place() {
        let limiter = limiter(1);
        let one = client(1, 1);
        let first = open(&limiter, &one);
        first.complete().await.unwrap();
        let second = open(&limiter, &one);
        let release = async {
            sleep(Duration::from_millis(900)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(second.complete(), release);
        assert_eq!(second, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_keeps_transom_waiting_gives_way_to_another_connection() {
        let limiter = limiter(9);
        let (one, two) = (client(1, 1), client(2, 1));
        let hoard = whole(&limiter, &one, MAX_BODY).await;
        advance(STALL_TIMEOUT).await;
        let own = hasty(&limiter, &one);
        assert_eq!(
            own.take_whole(MIB).await,
            Err(RejectReason::Bytes),
            "none of its own connection gives way"
        );
        whole(&limiter, &two, MAX_BODY).await;
        assert!(is_refused(&hoard));
        assert_eq!(hoard.complete().await, Err(RejectReason::Share));
        assert_eq!(hoard.grow_to(15).await, Err(RejectReason::Share));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_fast_enough_gives_way_to_none_until_it_stops() {
        let limiter = limiter(9);
        let (one, two) = (client(1, 1), client(2, 1));
        let coming = whole(&limiter, &one, MAX_BODY).await;
        for mebibytes in 1..=10 {
            advance(Duration::from_millis(70)).await;
            coming.received(mebibytes << 20);
        }
        let hasty = hasty(&limiter, &two);
        assert_eq!(hasty.take_whole(MIB).await, Err(RejectReason::Bytes));
        advance(STALL_TIMEOUT).await;
        whole(&limiter, &two, MIB).await;
        assert!(is_refused(&coming));

        let trickle = whole(&limiter, &one, MAX_BODY).await;
        for bytes in 1..=3 {
            advance(Duration::from_millis(100)).await;
            trickle.received(bytes);
        }
        whole(&limiter, &two, MIB).await;
        assert!(is_refused(&trickle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_waits_for_transom_gives_way_to_none_of_its_network() {
        let limiter = limiter(9);
        let waiting = whole(&limiter, &client(1, 1), MAX_BODY).await;
        waiting.complete().await.unwrap();
        let other = open(&limiter, &client(2, 1));
        assert_eq!(other.take_whole(MIB).await, Err(RejectReason::Bytes));
        assert!(!is_refused(&waiting));
    }

    #[tokio::test(start_paused = true)]
    async fn the_network_that_holds_most_gives_way_to_one_that_has_waited() {
        let limiter = limiter(9);
        let mut connections = Vec::new();
        for connection in [1, 2, 3] {
            let inflight = whole(&limiter, &client(connection, 1), 4 * MIB).await;
            inflight.complete().await.unwrap();
            connections.push(inflight);
        }
        advance(Duration::from_millis(1)).await;
        let large = whole(&limiter, &client(4, 2), 8 * MIB).await;
        large.complete().await.unwrap();
        let began = Instant::now();
        let newcomer = open(&limiter, &client(5, 3));
        newcomer.take_whole(7 * MIB).await.unwrap();
        assert!(
            began.elapsed() >= Duration::from_millis(500),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(
            connections.iter().filter(|inflight| is_refused(inflight)).count(),
            2
        );
        assert!(!is_refused(&large));
        assert_eq!(in_flight(&limiter).2, 19 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_evaluated_is_not_refused_and_its_answer_takes_its_connection_along() {
        let limiter = limiter(9);
        let (one, two) = (client(1, 1), client(2, 2));
        let evaluated = whole(&limiter, &one, MAX_BODY).await;
        evaluated.complete().await.unwrap();
        assert!(evaluated.set_reviewing(true));
        let waiting = open(&limiter, &two);
        assert_eq!(waiting.take_whole(MIB).await, Err(RejectReason::Bytes));

        evaluated.answer(4 * MIB).await.unwrap();
        assert_eq!(in_flight(&limiter), (2, 0, 4 * MIB));
        let next = open(&limiter, &two);
        next.grow_to(MIB).await.unwrap();
        assert!(one.gone.is_cancelled() && !two.gone.is_cancelled());
        assert!(!evaluated.set_reviewing(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_showed_its_certificate_is_refused_after_all_that_did_not() {
        let limiter = limiter(9);
        let (server, unknown) = (client(1, 1), client(2, 2));
        server.introduce();
        let review = whole(&limiter, &server, 12 * MIB).await;
        advance(STALL_TIMEOUT).await;
        let other = hasty(&limiter, &unknown);
        let displaced = other.take_whole(10 * MIB).await;
        assert_eq!(
            displaced,
            Err(RejectReason::Bytes),
            "it displaces none that is known"
        );
        other.take_whole(8 * MIB).await.unwrap();
        let _more = whole(&limiter, &Peer::clone(&server), 4 * MIB).await;
        assert!(is_refused(&other) && !is_refused(&review));
    }

    #[tokio::test(start_paused = true)]
    async fn open_requests_are_bounded_and_the_hoard_makes_room() {
        let limiter = limiter(1);
        let hoard: Vec<_> = (0..4).map(|_| open(&limiter, &client(1, 1))).collect();
        let until = Instant::now();
        assert_eq!(
            limiter.open(&client(1, 1), until).unwrap_err(),
            RejectReason::Open
        );
        let newcomer = open(&limiter, &client(2, 1));
        assert_eq!(hoard.iter().filter(|inflight| is_refused(inflight)).count(), 1);
        newcomer.complete().await.unwrap();
        // The rest of the rejected body is read only if capacity is free.
        assert!(limiter.open_if_free(&client(1, 1)).is_none());
        assert_eq!(hoard.iter().filter(|inflight| is_refused(inflight)).count(), 1);
        drop(newcomer);
        assert!(limiter.open_if_free(&client(1, 1)).is_some());
    }
}
