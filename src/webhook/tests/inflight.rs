//! The shared limits of reviews in flight: when capacity is taken, when it is released, and what is rejected
//! without it.

use super::admission::{WaitingReviewer, answer_of, metered, until};
use super::*;
use crate::webhook::router::router;

/// A reviewer that blocks on large reviews until the barrier releases it.
struct BlockingReviewer(std::sync::Barrier);

impl ReviewHandler for BlockingReviewer {
    fn review(
        &self,
        phase: Phase,
        sent: ReviewBody<'_>,
        on_pending: OnPending,
    ) -> Result<ReviewResponse, PendingData> {
        if matches!(sent, ReviewBody::Whole(body) if body.len() > 1_000) {
            self.0.wait();
        }
        Measure.review(phase, sent, on_pending)
    }
}

/// A router with one review in flight, which is also the maximum; it ends when the test reaches the barrier.
async fn one_in_flight(
    max_wait: Duration,
) -> (
    axum::Router,
    Metrics,
    Arc<BlockingReviewer>,
    JoinHandle<StatusCode>,
) {
    let metrics = Metrics::new("0.0.0", None);
    let held = Arc::new(BlockingReviewer(std::sync::Barrier::new(2)));
    let limits = Limits {
        max_concurrent: 1,
        max_wait,
        ..Limits::default()
    };
    let router = router(held.clone(), &limits, &metrics, None);
    // Large, so that it is evaluated on a separate thread.
    let first = tokio::spawn({
        let router = router.clone();
        async move {
            answer_of(&router, post("/mutate", full(vec![b' '; 300 << 10])))
                .await
                .status()
        }
    });
    until(&metrics, "transom_reviews_in_flight 1\n").await;
    (router, metrics, held, first)
}

#[tokio::test]
async fn one_review_too_many_waits_and_is_then_shed_without_retry_after() {
    let (router, metrics, held, first) = one_in_flight(Duration::from_millis(100)).await;
    let began = std::time::Instant::now();
    let shed = answer_of(&router, post("/mutate", full("{}"))).await;
    assert!(
        began.elapsed() >= Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(shed.status(), 503);
    assert!(!shed.headers().contains_key("retry-after"));
    assert!(!shed.headers().contains_key("connection"));
    assert!(text(shed).await.starts_with("overloaded, "));
    tokio::task::spawn_blocking(move || held.0.wait()).await.unwrap();
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(
        answer_of(&router, post("/mutate", full("{}"))).await.status(),
        200
    );
    assert!(
        metrics
            .expose()
            .contains("transom_requests_rejected_total{reason=\"max_concurrent\"} 1")
    );
}

#[tokio::test]
async fn a_complete_review_is_answered_when_there_is_room_in_time() {
    let (router, metrics, held, first) = one_in_flight(Duration::from_secs(60)).await;
    let second = tokio::spawn(async move { answer_of(&router, post("/mutate", full("{}"))).await.status() });
    until(&metrics, "transom_http_requests_in_flight 2\n").await;
    tokio::task::spawn_blocking(move || held.0.wait()).await.unwrap();
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(second.await.unwrap(), 200);
    assert!(
        metrics
            .expose()
            .contains("transom_requests_rejected_total{reason=\"max_concurrent\"} 0")
    );
}

#[tokio::test]
async fn the_timeout_of_the_api_server_bounds_the_wait() {
    let (router, _metrics, held, first) = one_in_flight(Duration::from_secs(60)).await;
    let shed = answer_of(&router, post("/mutate?timeout=200ms", full("{}"))).await;
    assert_eq!(shed.status(), 503);
    tokio::task::spawn_blocking(move || held.0.wait()).await.unwrap();
    assert_eq!(first.await.unwrap(), 200);
}

#[tokio::test]
async fn reviews_that_wait_for_news_take_no_more_than_half_of_the_room() {
    let (bell, released) = tokio::sync::watch::channel(false);
    let metrics = Metrics::new("0.0.0", None);
    let limits = Limits {
        max_concurrent: 3,
        ..Limits::default()
    };
    let router = router(Arc::new(WaitingReviewer(released)), &limits, &metrics, None);
    let first = tokio::spawn({
        let router = router.clone();
        async move { answer_of(&router, post("/mutate", full("{}"))).await.status() }
    });
    until(&metrics, "transom_reviews_in_flight 1\n").await;
    let second = answer_of(&router, post("/mutate", full("{}"))).await;
    assert_eq!(second.status(), 400, "judged by what is known");
    bell.send_replace(true);
    assert_eq!(first.await.unwrap(), 200, "waited for the news");
}

#[tokio::test]
async fn a_request_counts_as_a_review_when_its_body_is_complete() {
    let (router, metrics) = metered(&Limits {
        max_concurrent: 1,
        ..Limits::default()
    });
    let (sender, body) = fed(None);
    sender.send(Bytes::from_static(b"{")).unwrap();
    let first = tokio::spawn({
        let router = router.clone();
        async move { answer_of(&router, post("/mutate", body)).await.status() }
    });
    until(&metrics, "transom_in_flight_bytes 1\n").await;
    assert!(metrics.expose().contains("transom_reviews_in_flight 0\n"));
    assert_eq!(
        answer_of(&router, post("/mutate", full("{}"))).await.status(),
        200
    );
    drop(sender);
    assert_eq!(first.await.unwrap(), 200);
    assert!(metrics.expose().contains("transom_http_requests_in_flight 0\n"));
}

#[tokio::test]
async fn small_bodies_count_as_they_come_and_large_ones_whole() {
    const KIB: usize = 1 << 10;
    let (router, metrics) = metered(&Limits {
        // 24 MiB: 4 for first bytes and answers, 20 for whole bodies.
        max_bytes_in_flight: super::super::limits::LEAST_IN_FLIGHT,
        max_wait: Duration::ZERO,
        ..Limits::default()
    });
    let ask = async |size: usize| {
        answer_of(&router, post("/mutate", full(vec![0; size])))
            .await
            .status()
    };
    let (held, body) = fed(Some(19 << 20));
    let first = tokio::spawn({
        let router = router.clone();
        async move { answer_of(&router, post("/mutate", body)).await.status() }
    });
    until(&metrics, "transom_http_requests_in_flight 1\n").await;
    assert_eq!(ask(2 << 20).await, 200, "what was only declared takes nothing");
    held.send(Bytes::from(vec![0; 60 * KIB])).unwrap();
    until(&metrics, "transom_in_flight_bytes 61440\n").await;
    held.send(Bytes::from(vec![0; 60 * KIB])).unwrap();
    until(&metrics, "transom_in_flight_bytes 19922944\n").await;
    assert_eq!(ask(2 << 20).await, 503, "all of a large body counts");
    assert_eq!(ask(1 << 20).await, 200);
    assert_eq!(ask(64 * KIB).await, 200, "small bodies have room of their own");
    drop(held);
    assert_eq!(first.await.unwrap(), 200);
    let text = metrics.expose();
    assert!(
        text.contains("transom_requests_rejected_total{reason=\"max_bytes\"} 1"),
        "{text}"
    );
    assert!(text.contains("transom_in_flight_bytes 0"), "{text}");
}

#[tokio::test]
async fn an_answer_counts_until_it_is_taken() {
    let (router, metrics) = metered(&Limits::default());
    let answer = answer_of(&router, post("/mutate", full("{}"))).await;
    let counted = metrics.expose();
    assert!(counted.contains("transom_in_flight_bytes 12\n"), "{counted}");
    assert!(counted.contains("transom_reviews_in_flight 0\n"), "{counted}");
    assert_eq!(text(answer).await, "{\"length\":2}");
    assert!(metrics.expose().contains("transom_in_flight_bytes 0\n"));
}

#[tokio::test]
async fn a_body_that_is_thrown_away_is_an_open_request_too() {
    let (router, metrics) = metered(&limits());
    let (_held, body) = fed(None);
    assert_eq!(answer_of(&router, post("/nothing", body)).await.status(), 404);
    assert!(metrics.expose().contains("transom_http_requests_in_flight 1\n"));
    until(&metrics, "transom_http_requests_in_flight 0\n").await;
}
