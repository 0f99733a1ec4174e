//! Runs reviews: small ones on the current thread, large ones on separate threads, after waiting briefly for
//! missing data.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::body::discard;
use super::inflight::{InflightLimiter, InflightPermit};
use super::limits::{Limits, RejectReason};
use super::metrics::ReviewMetrics;
use super::peer::Peer;
use super::rejection::Rejection;
use super::{LONGEST_WAIT, OnPending, PendingData, Phase, ReviewBody, ReviewHandler, ReviewResponse};
use crate::admission::Oversize;
use crate::process::metrics::Metrics;

/// Larger bodies are evaluated on a separate thread: a worker that is busy for milliseconds delays every
/// connection that it serves.
const INLINE_MAX: usize = 256 << 10;

/// How many large bodies, up to each size, are evaluated at the same time. Evaluating one takes several times
/// its size in memory; the others wait as bytes, which are bounded. The largest have their own lane, so that
/// others do not wait for them.
const LANES: [(usize, usize); 2] = [(2 << 20, 2), (usize::MAX, 1)];

/// An accepted review, with its share of what may be in flight.
pub(super) struct ReceivedRequest {
    pub(super) bytes: Bytes,
    /// Set if `bytes` is the head of a body that is too large.
    pub(super) too_large: Option<Oversize>,
    pub(super) inflight: InflightPermit,
}

impl ReceivedRequest {
    fn sent(&self) -> ReviewBody<'_> {
        match self.too_large {
            None => ReviewBody::Whole(&self.bytes),
            Some(oversize) => ReviewBody::Head {
                head: &self.bytes,
                oversize,
            },
        }
    }
}

/// What all reviews share.
pub(super) struct ReviewService {
    pub(super) metrics: ReviewMetrics,
    pub(super) body_timeout: Duration,
    pub(super) max_wait: Duration,
    reviewer: Arc<dyn ReviewHandler>,
    limiter: InflightLimiter,
    lanes: [Arc<Semaphore>; LANES.len()],
    /// The client if no connection is known: in tests without sockets.
    unknown: Arc<Peer>,
}

impl ReviewService {
    /// Reviews that `reviewer` evaluates. One per process: its gauges are the limits.
    pub(super) fn new(reviewer: Arc<dyn ReviewHandler>, limits: &Limits, metrics: &Metrics) -> Self {
        let metrics = ReviewMetrics::new(metrics);
        Self {
            limiter: InflightLimiter::new(limits, &metrics.in_flight),
            unknown: Arc::new(Peer::new(0)),
            metrics,
            body_timeout: limits.body_timeout,
            max_wait: limits.max_wait,
            reviewer,
            lanes: LANES.map(|(_, at_once)| Arc::new(Semaphore::new(at_once))),
        }
    }

    /// A share for a request of a client; `until` is its deadline for waiting for capacity.
    pub(super) fn open(
        &self,
        client: Option<&Arc<Peer>>,
        until: Instant,
    ) -> Result<InflightPermit, RejectReason> {
        self.limiter.open(client.unwrap_or(&self.unknown), until)
    }

    /// Discards the rest of the body of a rejected request, which stays open meanwhile. If no capacity is
    /// free, drops the body.
    pub(super) fn discard(&self, client: Option<&Arc<Peer>>, body: Body, deadline: Instant) {
        if let Some(inflight) = self.limiter.open_if_free(client.unwrap_or(&self.unknown)) {
            discard(body, inflight, deadline);
        }
    }

    /// Counts and creates a rejection.
    pub(super) fn shed(&self, shed: RejectReason) -> Rejection {
        self.metrics.shed(shed);
        Rejection::overloaded(shed.label_and_text().1)
    }

    /// Evaluates one review, after waiting briefly if data is missing that is expected soon.
    ///
    /// A waiting review keeps only its bytes, which are bounded, and is decoded again: decoded, the same bytes can take
    /// a hundred times as much memory.
    pub(super) async fn reply(
        self: &Arc<Self>,
        phase: Phase,
        received: &Arc<ReceivedRequest>,
    ) -> Result<ReviewResponse, Rejection> {
        let mut on_pending = OnPending::Return;
        loop {
            let PendingData { arrival, at_most } = match self.run(phase, received, on_pending).await? {
                Ok(reply) => return Ok(reply),
                Err(pending) => pending,
            };
            // Waiting reviews must not block those that need not wait.
            if !self.limiter.is_half_full() {
                // Continues whether the data arrived or not: the API server has waited long enough.
                let _ = timeout(at_most.min(LONGEST_WAIT), arrival).await;
            }
            on_pending = OnPending::Evaluate;
        }
    }

    /// Evaluates a review: on the current thread, or if the review is large, on a separate thread once its
    /// lane is free.
    async fn run(
        self: &Arc<Self>,
        phase: Phase,
        received: &Arc<ReceivedRequest>,
        on_pending: OnPending,
    ) -> Result<Result<ReviewResponse, PendingData>, Rejection> {
        let length = received.bytes.len();
        let lane = LANES.iter().position(|(largest, _)| length <= *largest);
        let Some(lane) = lane
            .filter(|_| length > INLINE_MAX)
            .and_then(|lane| self.lanes.get(lane))
        else {
            return Ok(self.review(phase, received.sent(), on_pending));
        };
        let turn = timeout_at(received.inflight.until(), Arc::clone(lane).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(self.shed(RejectReason::Large));
        };
        // The share and the lane permit move along: if the client disconnects, the thread still works on
        // these bytes.
        let (reviews, received) = (Arc::clone(self), Arc::clone(received));
        let worked = spawn_blocking(move || {
            let _turn = turn;
            reviews.review(phase, received.sent(), on_pending)
        });
        worked.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        })
    }

    fn review(
        &self,
        phase: Phase,
        sent: ReviewBody<'_>,
        on_pending: OnPending,
    ) -> Result<ReviewResponse, PendingData> {
        let started = Instant::now();
        let reply = self.reviewer.review(phase, sent, on_pending)?;
        self.metrics.reviewed(phase, &reply, started.elapsed());
        if let ReviewBody::Head { .. } = sent {
            self.metrics.too_large(&reply);
        }
        Ok(reply)
    }
}
