//! Has reviews judged: small ones where they are, large ones on threads of their own, each after its wait for news.

use std::net::Ipv4Addr;
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
use super::limits::{Limits, MAX_BODY, RejectReason};
use super::metrics::ReviewMetrics;
use super::peer::Peer;
use super::rejection::Rejection;
use super::{NamespaceKnown, Phase, ReviewBody, ReviewHandler, ReviewResponse};
use crate::admission::Oversize;
use crate::process::metrics::Metrics;

/// Bodies above this size are judged on a thread of their own: a worker that is busy for milliseconds lets every
/// connection it serves wait.
const INLINE_MAX: usize = 256 << 10;

/// Up to which size so many of them are judged at the same time. To judge one takes several times its size, and the others
/// wait as bytes, which are bounded. The largest have a lane of their own, so that others do not wait for them.
const LANES: [(usize, usize); 2] = [(2 << 20, 2), (usize::MAX, 1)];

/// How long a review may wait for what is not known yet. A watch brings it within a tenth of that.
const NEWS_WAIT: Duration = Duration::from_millis(500);

/// A review that was taken in, with its share of what may be in flight.
pub(super) struct ReceivedRequest {
    pub(super) bytes: Bytes,
    /// `bytes` are the head of a body that is larger than what is read.
    pub(super) too_large: Option<OversizeBody>,
    pub(super) inflight: InflightPermit,
}

/// What is known of a body that is too large.
#[derive(Clone, Copy, Debug)]
pub(super) struct OversizeBody {
    /// Its length, where the client declared one.
    pub(super) declared: Option<usize>,
}

impl ReceivedRequest {
    fn sent(&self, has_sign: bool) -> ReviewBody<'_> {
        match self.too_large {
            None => ReviewBody::Whole(&self.bytes),
            Some(OversizeBody { declared }) => ReviewBody::Head {
                head: &self.bytes,
                oversize: Oversize {
                    bytes: declared,
                    bound: MAX_BODY,
                    has_sign,
                },
            },
        }
    }
}

/// By which path a review came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReviewEndpoint {
    pub(super) phase: Phase,
    /// Whether the entries that call this path select objects with a sign of Windows only.
    pub(super) has_sign: bool,
}

/// What all reviews share.
pub(super) struct ReviewService {
    pub(super) metrics: ReviewMetrics,
    pub(super) body_timeout: Duration,
    pub(super) max_wait: Duration,
    reviewer: Arc<dyn ReviewHandler>,
    limiter: InflightLimiter,
    lanes: [Arc<Semaphore>; LANES.len()],
    /// Who asks where no connection is known: in tests without sockets.
    unknown: Peer,
}

impl ReviewService {
    /// Reviews that `reviewer` judges. One process has one: its gauges are the bounds.
    pub(super) fn new(reviewer: Arc<dyn ReviewHandler>, limits: &Limits, metrics: &Metrics) -> Self {
        let metrics = ReviewMetrics::new(metrics);
        Self {
            limiter: InflightLimiter::new(limits, metrics.in_flight.clone()),
            unknown: Peer::new(0, Ipv4Addr::UNSPECIFIED.into()),
            metrics,
            body_timeout: limits.body_timeout,
            max_wait: limits.max_wait,
            reviewer,
            lanes: LANES.map(|(_, at_once)| Arc::new(Semaphore::new(at_once))),
        }
    }

    /// A share for a request of a client, which waits for room until a time.
    pub(super) fn open(&self, client: Option<&Peer>, until: Instant) -> Result<InflightPermit, RejectReason> {
        self.limiter.open(client.unwrap_or(&self.unknown), until)
    }

    /// Throws away what is left of the body of a refused request, as a request that is open still; where there is no room
    /// for one, the body is dropped.
    pub(super) fn discard(&self, client: Option<&Peer>, body: Body, deadline: Instant) {
        if let Some(inflight) = self.limiter.open_if_free(client.unwrap_or(&self.unknown)) {
            discard(body, inflight, deadline);
        }
    }

    /// Counts that a request was refused, and refuses it.
    pub(super) fn shed(&self, shed: RejectReason) -> Rejection {
        self.metrics.shed(shed);
        Rejection::overloaded(match shed {
            RejectReason::Requests => "overloaded, too many reviews in flight\n",
            RejectReason::Bytes => "overloaded, too many bytes of reviews in flight\n",
            RejectReason::Open => "overloaded, too many requests at once\n",
            RejectReason::Share => "overloaded, and others needed the room of this request\n",
            RejectReason::Large => "overloaded, too many large reviews in flight\n",
        })
    }

    /// Has one review judged, after a moment's wait where something is missing that news is expected of.
    pub(super) async fn reply(
        self: &Arc<Self>,
        endpoint: ReviewEndpoint,
        received: &Arc<ReceivedRequest>,
    ) -> Result<ReviewResponse, Rejection> {
        let news = match self.run(endpoint, received, Self::review_if_known).await? {
            Ok(reply) => return Ok(reply),
            Err(news) => news,
        };
        // Reviews that wait must not keep out those that need not.
        if !self.limiter.is_half_full() {
            received.inflight.set_reviewing(false);
            // Whether the news came or not: the API server has waited enough.
            let _ = timeout(NEWS_WAIT, news).await;
        }
        self.run(endpoint, received, Self::review).await
    }

    /// Does some work on a review: here, or in its turn on a thread of its own where the review is large.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        endpoint: ReviewEndpoint,
        received: &Arc<ReceivedRequest>,
        work: fn(&Self, Phase, ReviewBody<'_>) -> T,
    ) -> Result<T, Rejection> {
        let ReviewEndpoint { phase, has_sign } = endpoint;
        let length = received.bytes.len();
        let lane = LANES.iter().position(|(largest, _)| length <= *largest);
        let Some(lane) = lane
            .filter(|_| length > INLINE_MAX)
            .and_then(|lane| self.lanes.get(lane))
        else {
            return Ok(work(self, phase, received.sent(has_sign)));
        };
        let turn = tokio::select! {
            () = received.inflight.refused() => return Err(self.shed(RejectReason::Share)),
            turn = timeout_at(received.inflight.until(), Arc::clone(lane).acquire_owned()) => turn,
        };
        let Ok(Ok(turn)) = turn else {
            return Err(self.shed(RejectReason::Large));
        };
        if !received.inflight.set_reviewing(true) {
            return Err(self.shed(RejectReason::Share));
        }
        // What was taken and the turn go along: when the client gives up, the thread still works on these bytes.
        let (reviews, received) = (Arc::clone(self), Arc::clone(received));
        let worked = spawn_blocking(move || {
            let _turn = turn;
            work(&reviews, phase, received.sent(has_sign))
        });
        worked.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        })
    }

    fn review_if_known(&self, phase: Phase, sent: ReviewBody<'_>) -> Result<ReviewResponse, NamespaceKnown> {
        let started = Instant::now();
        let reply = self.reviewer.review_if_known(phase, sent)?;
        self.record_review(phase, sent, &reply, started);
        Ok(reply)
    }

    fn review(&self, phase: Phase, sent: ReviewBody<'_>) -> ReviewResponse {
        let started = Instant::now();
        let reply = self.reviewer.review(phase, sent);
        self.record_review(phase, sent, &reply, started);
        reply
    }

    fn record_review(&self, phase: Phase, sent: ReviewBody<'_>, reply: &ReviewResponse, started: Instant) {
        self.metrics.reviewed(phase, reply, started.elapsed());
        if let ReviewBody::Head { .. } = sent {
            self.metrics.too_large(reply);
        }
    }
}
