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
use tokio::time::{Instant, timeout};

use super::body::discard;
use super::client::Client;
use super::limits::{Limits, Shed};
use super::metrics::ReviewMetrics;
use super::refusal::Refusal;
use super::shares::{Share, Shares};
use super::{News, Phase, Reply, Review};
use crate::process::metrics::Metrics;

/// Bodies above this size are judged on a thread of their own: a worker that is busy for milliseconds lets every
/// connection it serves wait.
const INLINE_MAX: usize = 256 << 10;
/// How many of them are judged at the same time. What is built to judge one is several times its size; the others wait
/// as bytes, which are bounded.
const LARGE_AT_ONCE: usize = 2;
/// How long one may wait for its turn: shorter than the second after which the most impatient API server gives up.
const LARGE_WAIT: Duration = Duration::from_millis(400);
/// How long a review may wait for what is not known yet. A watch brings it within a tenth of that.
const NEWS_WAIT: Duration = Duration::from_millis(500);

/// A review that was taken in, with its share of what may be in flight.
pub(super) struct Taken {
    pub(super) bytes: Bytes,
    pub(super) share: Share,
}

/// What all reviews share.
pub(super) struct Reviews {
    pub(super) metrics: ReviewMetrics,
    pub(super) body_timeout: Duration,
    reviewer: Arc<dyn Review>,
    shares: Shares,
    turns: Arc<Semaphore>,
    /// Who asks where no connection is known: in tests without sockets.
    unknown: Client,
}

impl Reviews {
    /// Reviews that `reviewer` judges. One process has one: its gauges are the bounds.
    pub(super) fn new(reviewer: Arc<dyn Review>, limits: &Limits, metrics: &Metrics) -> Self {
        let metrics = ReviewMetrics::new(metrics);
        Self {
            shares: Shares::new(limits, metrics.in_flight.clone()),
            unknown: Client::new(0, Ipv4Addr::UNSPECIFIED.into()),
            metrics,
            body_timeout: limits.body_timeout,
            reviewer,
            turns: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        }
    }

    /// A share for a request of a client.
    pub(super) fn open(&self, client: Option<&Client>) -> Result<Share, Shed> {
        self.shares.open(client.unwrap_or(&self.unknown))
    }

    /// Throws away what is left of the body of a refused request, as a request that is open still; where there is no room
    /// for one, the body is dropped.
    pub(super) fn discard(&self, client: Option<&Client>, body: Body, deadline: Instant) {
        if let Some(share) = self.shares.open_if_free(client.unwrap_or(&self.unknown)) {
            discard(body, share, deadline);
        }
    }

    /// Counts that a request was refused, and refuses it.
    pub(super) fn shed(&self, shed: Shed) -> Refusal {
        self.metrics.shed(shed);
        Refusal::overloaded(match shed {
            Shed::Requests => "overloaded, too many reviews in flight\n",
            Shed::Bytes => "overloaded, too many bytes of reviews in flight\n",
            Shed::Open => "overloaded, too many requests at once\n",
            Shed::Share => "overloaded, and this client holds most of what is in flight\n",
        })
    }

    /// Has one review judged, after a moment's wait where something is missing that news is expected of.
    pub(super) async fn reply(self: &Arc<Self>, phase: Phase, taken: &Arc<Taken>) -> Result<Reply, Refusal> {
        let news = match self.run(phase, taken, Self::judge_if_known).await? {
            Ok(reply) => return Ok(reply),
            Err(news) => news,
        };
        // Reviews that wait must not keep out those that need not.
        if !self.shares.is_half_full() {
            taken.share.set_judged(false);
            // Whether the news came or not: the API server has waited enough.
            let _ = timeout(NEWS_WAIT, news).await;
        }
        self.run(phase, taken, Self::judge).await
    }

    /// Does some work on a review: here, or in its turn on a thread of its own where the review is large.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        phase: Phase,
        taken: &Arc<Taken>,
        work: fn(&Self, Phase, &[u8]) -> T,
    ) -> Result<T, Refusal> {
        if taken.bytes.len() <= INLINE_MAX {
            return Ok(work(self, phase, &taken.bytes));
        }
        let turn = tokio::select! {
            () = taken.share.refused() => return Err(self.shed(Shed::Share)),
            turn = timeout(LARGE_WAIT, Arc::clone(&self.turns).acquire_owned()) => turn,
        };
        let Ok(Ok(turn)) = turn else {
            self.metrics.shed(Shed::Bytes);
            return Err(Refusal::overloaded(
                "overloaded, too many large reviews in flight\n",
            ));
        };
        if !taken.share.set_judged(true) {
            return Err(self.shed(Shed::Share));
        }
        // What was taken and the turn go along: when the client gives up, the thread still works on these bytes.
        let (reviews, taken) = (Arc::clone(self), Arc::clone(taken));
        let worked = spawn_blocking(move || {
            let _turn = turn;
            work(&reviews, phase, &taken.bytes)
        });
        worked.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        })
    }

    fn judge_if_known(&self, phase: Phase, body: &[u8]) -> Result<Reply, News> {
        let started = Instant::now();
        let reply = self.reviewer.review_if_known(phase, body)?;
        self.metrics.reviewed(&reply, started.elapsed());
        Ok(reply)
    }

    fn judge(&self, phase: Phase, body: &[u8]) -> Reply {
        let started = Instant::now();
        let reply = self.reviewer.review(phase, body);
        self.metrics.reviewed(&reply, started.elapsed());
        reply
    }
}
