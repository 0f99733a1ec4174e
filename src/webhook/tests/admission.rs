//! The router without a socket: what is rejected, what is shed, and that every share is released.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use opentelemetry::KeyValue;
use opentelemetry::trace::Status;
use tower::ServiceExt;

use super::*;
use crate::webhook::router::router;

pub(super) fn metered(limits: &Limits) -> (Router, Metrics) {
    let metrics = Metrics::new("0.0.0", None);
    (router(Arc::new(Measure), limits, &metrics, None), metrics)
}

pub(super) async fn answer_of<B>(router: &Router, request: Request<B>) -> Response<axum::body::Body>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    router.clone().oneshot(request).await.unwrap()
}

/// Waits until a gauge or counter has a value, without a limit: the test harness stops a test that hangs
/// here.
pub(super) async fn until(metrics: &Metrics, line: &str) {
    while !metrics.expose().contains(line) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_no_review_is_answered_with_what_would_be_one() {
    let (router, _) = metered(&limits());
    let table = [
        ("POST", "/mutate", "application/json", "", 200, "{\"length\":2}"),
        (
            "POST",
            "/validate?timeout=2s",
            "Application/JSON ; charset=utf-8",
            "identity",
            200,
            "{\"length\":2}",
        ),
        (
            "GET",
            "/mutate",
            "application/json",
            "",
            405,
            "POST an AdmissionReview",
        ),
        (
            "PUT",
            "/validate",
            "application/json",
            "",
            405,
            "POST an AdmissionReview",
        ),
        ("POST", "/", "application/json", "", 404, "/mutate or /validate"),
        (
            "POST",
            "/mutate/",
            "application/json",
            "",
            404,
            "/mutate or /validate",
        ),
        (
            "POST",
            "/mutate",
            "text/plain",
            "",
            415,
            "must be application/json",
        ),
        (
            "POST",
            "/mutate",
            "application/jsonp",
            "",
            415,
            "must be application/json",
        ),
        ("POST", "/mutate", "", "", 415, "must be application/json"),
        (
            "POST",
            "/mutate",
            "application/json",
            "gzip",
            415,
            "compressed bodies are not accepted",
        ),
    ];
    for (method, path, content_type, encoding, status, expected) in table {
        let mut request = Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        if !encoding.is_empty() {
            request = request.header("content-encoding", encoding);
        }
        let response = answer_of(&router, request.body(full("{}")).unwrap()).await;
        assert_eq!(
            response.status(),
            status,
            "{method} {path} {content_type} {encoding}"
        );
        assert_eq!(response.headers().contains_key("allow"), status == 405);
        let text = text(response).await;
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_answered_from_its_head() {
    const MIB: usize = 1 << 20;
    let (router, metrics) = metered(&limits());
    for path in ["/mutate", "/validate"] {
        let (sender, declared) = fed(Some(20 * 1024 * 1024 + 1));
        // The answer arrives before the rest of the body.
        sender.send(Bytes::from(vec![b' '; 100 << 10])).unwrap();
        let response = answer_of(&router, post(path, declared)).await;
        assert_eq!(response.status(), 200, "{path}");
        let expected = "{\"length\":65536,\"of\":20971521}";
        assert_eq!(text(response).await, expected);
    }

    let (sender, chunked) = fed(None);
    for _ in 0..21 {
        sender.send(Bytes::from(vec![b' '; MIB])).unwrap();
    }
    let response = answer_of(&router, post("/mutate", chunked)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "{\"length\":65536,\"of\":null}");
    let counted = metrics.expose();
    assert!(
        counted.contains("transom_reviews_too_large_total{type=\"validating\",decision=\"allow\"} 1"),
        "{counted}"
    );
    until(&metrics, "transom_in_flight_bytes 0\n").await;
}

#[tokio::test]
async fn a_chunked_body_reaches_the_reviewer_in_one_piece() {
    let (router, metrics) = metered(&limits());
    let (sender, body) = fed(None);
    for size in [1, 100_000, 7, 1_500_000] {
        sender.send(Bytes::from(vec![b' '; size])).unwrap();
    }
    drop(sender);
    let response = answer_of(&router, post("/validate", body)).await;
    assert_eq!(text(response).await, "{\"length\":1600008}");
    let text = metrics.expose();
    assert!(text.contains("transom_in_flight_bytes 0"), "{text}");
    assert!(text.contains("transom_reviews_in_flight 0"), "{text}");
}

#[tokio::test]
async fn the_largest_body_fits_and_a_body_in_declared_pieces_too() {
    let (router, _) = metered(&limits());
    let response = answer_of(&router, post("/mutate", full(vec![b' '; 20 * 1024 * 1024]))).await;
    assert_eq!(text(response).await, "{\"length\":20971520}");
    let (sender, body) = fed(Some(5));
    sender.send(Bytes::from_static(b"ab")).unwrap();
    sender.send(Bytes::from_static(b"cde")).unwrap();
    drop(sender);
    assert_eq!(
        text(answer_of(&router, post("/mutate", body)).await).await,
        "{\"length\":5}"
    );
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    let (router, metrics) = metered(&limits());
    let (_sender, body) = fed(Some(10));
    assert_eq!(answer_of(&router, post("/mutate", body)).await.status(), 408);
    assert!(metrics.expose().contains("transom_in_flight_bytes 0"));
}

#[tokio::test]
async fn a_panic_is_one_answer_and_one_count() {
    let (router, metrics) = metered(&limits());
    let mut large = vec![b' '; 1024 * 1024];
    large[..5].copy_from_slice(b"panic");
    for body in [b"panic".to_vec(), large] {
        assert_eq!(
            answer_of(&router, post("/mutate", full(body))).await.status(),
            500
        );
    }
    assert_eq!(
        answer_of(&router, post("/mutate", full("{}"))).await.status(),
        200
    );
    let text = metrics.expose();
    assert!(text.contains("transom_review_panics_total 2"), "{text}");
    assert!(text.contains("transom_reviews_in_flight 0"), "{text}");
    assert!(text.contains("transom_in_flight_bytes 0"), "{text}");
}

/// A slow reviewer that records how many calls ran at the same time.
#[derive(Default)]
struct SlowReviewer {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl ReviewHandler for SlowReviewer {
    fn review(&self, _: Phase, _: ReviewBody<'_>, _: OnPending) -> Result<ReviewResponse, PendingData> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(ReviewResponse {
            status: StatusCode::OK,
            body: Vec::new(),
            record: None,
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_most_two_large_reviews_are_evaluated_at_once_and_the_others_wait_their_turn() {
    let reviewer = Arc::new(SlowReviewer::default());
    let router = router(
        reviewer.clone(),
        &Limits::default(),
        &Metrics::new("0.0.0", None),
        None,
    );
    let answers = (0..8).map(|_| {
        let router = router.clone();
        tokio::spawn(async move {
            answer_of(&router, post("/validate", full(vec![b' '; 300 << 10])))
                .await
                .status()
        })
    });
    for answer in answers.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), 200);
    }
    assert_eq!(reviewer.most.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_the_largest_reviews_one_is_evaluated_at_a_time_and_others_do_not_wait_for_it() {
    let reviewer = Arc::new(SlowReviewer::default());
    let metrics = Metrics::new("0.0.0", None);
    let router = router(reviewer.clone(), &Limits::default(), &metrics, None);
    let sizes = [3 << 20, 3 << 20, 3 << 20, 3 << 20];
    let answers = sizes.map(|size| {
        let router = router.clone();
        tokio::spawn(async move {
            answer_of(&router, post("/validate", full(vec![b' '; size])))
                .await
                .status()
        })
    });
    for answer in answers {
        assert_eq!(answer.await.unwrap(), 200);
    }
    assert_eq!(reviewer.most.load(Ordering::SeqCst), 1);
}

/// A reviewer that reports missing data until the watch channel changes, and answers 200 if it waited for
/// that, otherwise 400.
pub(super) struct WaitingReviewer(pub(super) tokio::sync::watch::Receiver<bool>);

impl ReviewHandler for WaitingReviewer {
    fn review(
        &self,
        _: Phase,
        _: ReviewBody<'_>,
        on_pending: OnPending,
    ) -> Result<ReviewResponse, PendingData> {
        let mut bell = self.0.clone();
        let is_known = *bell.borrow();
        if is_known || on_pending == OnPending::Evaluate {
            return Ok(ReviewResponse {
                status: if is_known {
                    StatusCode::OK
                } else {
                    StatusCode::BAD_REQUEST
                },
                body: Vec::new(),
                record: None,
            });
        }
        Err(PendingData {
            arrival: Box::pin(async move {
                let _ = bell.wait_for(|rung| *rung).await;
            }),
            // Longer than any review waits.
            at_most: Duration::MAX,
        })
    }
}

#[tokio::test]
async fn a_review_waits_for_news_but_not_for_long_and_is_evaluated_without() {
    for size in [10, 300 << 10] {
        let (bell, released) = tokio::sync::watch::channel(false);
        let router = router(
            Arc::new(WaitingReviewer(released)),
            &Limits::default(),
            &Metrics::new("0.0.0", None),
            None,
        );
        let ask = || answer_of(&router, post("/validate", full(vec![b' '; size])));
        assert_eq!(
            ask().await.status(),
            400,
            "{size} bytes: judged by what there is in the end"
        );
        let (answer, ()) = tokio::join!(ask(), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            bell.send_replace(true);
        });
        assert_eq!(
            answer.status(),
            200,
            "{size} bytes: judged when the news is there"
        );
    }
}

#[tokio::test]
async fn a_client_that_does_not_wait_for_its_answer_leaves_a_span_that_says_so() {
    let (tracer, mut recorded) = crate::process::traces::watched(1.0);
    let metrics = Metrics::new("0.0.0", None);
    let router = router(Arc::new(Measure), &Limits::default(), &metrics, Some(tracer));
    let (_body, receiver) = fed(None);
    let backoff_interval = Duration::from_millis(20);
    let answer = tokio::time::timeout(backoff_interval, answer_of(&router, post("/mutate", receiver))).await;
    assert!(answer.is_err());
    let span = recorded().expect("a span was recorded");
    assert_eq!(
        span.status,
        Status::error("the client went away before the answer")
    );

    let code = |code: i64| KeyValue::new("http.response.status_code", code);
    answer_of(&router, post("/validate", full("panic"))).await;
    let span = recorded().expect("a span was recorded");
    let why = format!("{:?}", span.status);
    assert!(
        why.contains("the review panicked") && span.attributes.contains(&code(500)),
        "{span:?}"
    );
    answer_of(&router, post("/mutate", full("{}"))).await;
    let span = recorded().expect("a span was recorded");
    assert!(
        span.status == Status::Unset && span.attributes.contains(&code(200)),
        "{span:?}"
    );
    assert_eq!(recorded(), None);
}
