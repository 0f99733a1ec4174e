//! The routes of the webhook: POST /mutate and POST /validate. Requests that are not reviews are rejected.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use futures::FutureExt as _;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;

use super::inflight::InflightPermit;
use super::limits::Limits;
use super::read_request::{read_request, refused};
use super::rejection::Rejection;
use super::review_service::{ReceivedRequest, ReviewService};
use super::span::ReviewSpan;
use super::{Phase, ReviewHandler, ReviewResponse};
use crate::admission::AuditRecord;
use crate::model::syntax::text::cut;
use crate::process::metrics::Metrics;
use crate::process::traces::Tracer;

/// A router that calls `reviewer`, counts in `metrics` and traces with `tracer`.
pub(super) fn router(
    reviewer: Arc<dyn ReviewHandler>,
    limits: &Limits,
    metrics: &Metrics,
    tracer: Option<Tracer>,
) -> Router {
    let reviews = Arc::new(ReviewService::new(reviewer, limits, metrics));
    let router = Router::new()
        .route("/mutate", endpoint(Phase::Mutate, tracer.is_some()))
        .route("/validate", endpoint(Phase::Validate, tracer.is_some()))
        .fallback(
            async |State(reviews): State<Arc<ReviewService>>, request: Request| {
                refused(request, &reviews, NO_SUCH_PATH)
            },
        )
        .with_state(reviews);
    match tracer {
        Some(tracer) => router.layer(from_fn_with_state(tracer, trace)),
        None => router,
    }
}

const NO_SUCH_PATH: Rejection = Rejection::new(
    StatusCode::NOT_FOUND,
    "POST an AdmissionReview to /mutate or /validate\n",
);
const NO_POST: Rejection = Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "POST an AdmissionReview\n");
const PANICKED: Rejection = Rejection::new(
    StatusCode::INTERNAL_SERVER_ERROR,
    "the review panicked; see Transom's log\n",
);

/// One of the paths. axum clones the state of a handler for every request, and each layer boxes it again:
/// this handler holds two flags, and catches panics without a layer.
fn endpoint(phase: Phase, is_traced: bool) -> MethodRouter<Arc<ReviewService>> {
    let review = async move |State(reviews): State<Arc<ReviewService>>, request: Request| {
        // A reviewer is a pure function of the body: a panic leaves no inconsistent state.
        let answered = AssertUnwindSafe(answered(phase, request, &reviews, is_traced)).catch_unwind();
        answered
            .await
            .unwrap_or_else(|panic| panicked(phase, &*panic, &reviews))
    };
    post(review).fallback(
        async |State(reviews): State<Arc<ReviewService>>, request: Request| {
            refused(request, &reviews, NO_POST)
        },
    )
}

/// Accepts a review, evaluates it, and answers it.
async fn answered(phase: Phase, request: Request, reviews: &Arc<ReviewService>, is_traced: bool) -> Response {
    let received = match read_request(request, reviews).await {
        Ok(received) => Arc::new(received),
        Err(refusal) => return refusal.into_response(),
    };
    let length = received.bytes.len();
    let replied = match reviews.reply(phase, &received).await {
        Ok(reply) => account(reply, received, reviews).await,
        Err(refusal) => Err(refusal),
    };
    answer(replied, is_traced.then_some(length))
}

/// Logs that a review panicked.
fn panicked(phase: Phase, panic: &(dyn Any + Send), reviews: &ReviewService) -> Response {
    reviews.metrics.panicked();
    tracing::error!(
        panic = %cut(message(panic), 1024),
        "type" = phase.as_str(),
        "a review panicked; this is a defect"
    );
    PANICKED.into_response()
}

/// A response whose bytes are in flight until the client has read them.
struct AccountedResponse {
    status: StatusCode,
    body: Bytes,
    record: Option<AuditRecord>,
}

/// The bytes of a response, with their share.
struct AccountedBytes {
    bytes: Vec<u8>,
    _share: InflightPermit,
}

impl AsRef<[u8]> for AccountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Releases the share of a review, and takes the share of its response.
async fn account(
    reply: ReviewResponse,
    received: Arc<ReceivedRequest>,
    reviews: &ReviewService,
) -> Result<AccountedResponse, Rejection> {
    let ReviewResponse { status, body, record } = reply;
    // The thread of a large review has answered, so it holds no reference any more.
    let body = match Arc::into_inner(received) {
        Some(ReceivedRequest { bytes, inflight, .. }) => {
            drop(bytes);
            let answered = inflight.answer(body.len()).await;
            answered.map_err(|shed| reviews.shed(shed))?;
            Bytes::from_owner(AccountedBytes {
                bytes: body,
                _share: inflight,
            })
        }
        None => Bytes::from(body),
    };
    Ok(AccountedResponse { status, body, record })
}

/// What a span records about a review; it travels with the response.
#[derive(Clone)]
struct SpanFacts {
    bytes: usize,
    record: Option<AuditRecord>,
}

/// The response to a review of this many bytes, with its facts if it is traced.
fn answer(replied: Result<AccountedResponse, Rejection>, traced: Option<usize>) -> Response {
    let (mut response, record) = match replied {
        Ok(AccountedResponse { status, body, record }) => {
            let is_json = status == StatusCode::OK || body.first() == Some(&b'{');
            let content_type = if is_json {
                "application/json"
            } else {
                "text/plain; charset=utf-8"
            };
            (
                (status, [(CONTENT_TYPE, content_type)], body).into_response(),
                record,
            )
        }
        Err(refusal) => (refusal.into_response(), None),
    };
    if let Some(bytes) = traced {
        response.extensions_mut().insert(SpanFacts { bytes, record });
    }
    response
}

/// One span per review, from its head to its answer, or until it is dropped without one.
async fn trace(State(tracer): State<Tracer>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let mut span = ReviewSpan::begin(Some(&tracer), &head);
    let mut response = next.run(Request::from_parts(head, body)).await;
    let status = response.status();
    let extensions = response.extensions_mut();
    if let Some(SpanFacts { bytes, record }) = extensions.remove() {
        span.read(bytes);
        if let Some(record) = record {
            span.set_review(&record);
        }
    }
    let error = match extensions.remove() {
        Some(Rejection { text, .. }) => Some(text),
        // The exact error is in the log: it may quote the body.
        None => (status != StatusCode::OK).then_some("the body is not an AdmissionReview"),
    };
    span.answered(status, error);
    response
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    (panic.downcast_ref::<&'static str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
