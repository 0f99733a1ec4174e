//! From request to answer: what is no review is refused, what is too much is shed, the rest goes to the reviewer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::{Unread, collect, declared, discard};
use super::health::response;
use super::limits::{Gate, Limits, MAX_BODY, Permit, Shed};
use super::metrics::ReviewMetrics;
use super::span::ReviewSpan;
use super::{News, Phase, Reply, Review};
use crate::admission::Record;
use crate::process::metrics::Metrics;
use crate::process::traces::Tracer;

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

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers `POST /mutate` and `POST /validate`. Needs no socket: tests call [`Router::answer`].
///
/// Two paths need no routing table, and a review is answered in the time that one would take.
#[derive(Debug)]
pub struct Router<R: ?Sized>(Arc<Inner<R>>);

#[derive(Debug)]
struct Inner<R: ?Sized> {
    limits: Limits,
    gate: Gate,
    metrics: ReviewMetrics,
    large: Arc<Semaphore>,
    tracer: Option<Tracer>,
    reviewer: Arc<R>,
}

/// A router that asks `reviewer`, counts in `metrics` and traces by `tracer`. One process has one: its gauges are the
/// bounds.
pub fn router<R: Review + ?Sized>(
    reviewer: Arc<R>,
    limits: Limits,
    metrics: &Metrics,
    tracer: Option<Tracer>,
) -> Router<R> {
    let metrics = ReviewMetrics::new(metrics);
    let gate = Gate::new(
        &limits,
        metrics.reviews_in_flight.clone(),
        metrics.bytes_in_flight.clone(),
    );
    Router(Arc::new(Inner {
        limits,
        gate,
        metrics,
        large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
        tracer,
        reviewer,
    }))
}

impl<R: ?Sized> Clone for Router<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A request that gets no review, with the answer that says why.
struct Refusal {
    status: StatusCode,
    text: &'static str,
}

const fn refusal(status: StatusCode, text: &'static str) -> Refusal {
    Refusal { status, text }
}

/// An answer, and what its span says of it.
struct Answered {
    response: Response<Full<Bytes>>,
    record: Option<Record>,
    rules: Vec<&'static str>,
    /// Why there was no review.
    error: Option<&'static str>,
}

/// The answer to a request that was admitted and could not be judged.
fn unjudged(status: StatusCode, text: &'static str) -> Answered {
    Answered {
        response: response(status, TEXT, text),
        record: None,
        rules: Vec::new(),
        error: Some(text),
    }
}

impl<R: Review + ?Sized> Router<R> {
    /// Answers one request. Never fails, never queues; the future is cheap to drop.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body + Unpin + Send + 'static,
        B::Data: Send,
    {
        let (head, mut body) = request.into_parts();
        let mut span = ReviewSpan::begin(self.0.tracer.as_ref(), &head);
        let admitted = match accept(&head.method, head.uri.path(), &head.headers) {
            Ok(phase) => self
                .0
                .read(&mut body)
                .await
                .map(|(permit, bytes)| (phase, permit, bytes)),
            Err(refused) => Err(refused),
        };
        match admitted {
            Ok((phase, permit, bytes)) => {
                span.read(bytes.len());
                let Answered {
                    response,
                    record,
                    rules,
                    error,
                } = self.judge(phase, permit, bytes).await;
                if let Some(record) = &record {
                    span.judged(record, &rules);
                }
                span.answered(response.status(), error);
                response
            }
            Err(Refusal { status, text }) => {
                // A client that asked first (`Expect: 100-continue`) sends no body after a refusal.
                if !head.headers.contains_key(EXPECT) {
                    discard(body, self.0.limits.body_timeout);
                }
                span.answered(status, Some(text));
                let mut refused = response(status, TEXT, text);
                if status == StatusCode::METHOD_NOT_ALLOWED {
                    refused
                        .headers_mut()
                        .insert(ALLOW, HeaderValue::from_static("POST"));
                }
                refused
            }
        }
    }

    async fn judge(&self, phase: Phase, permit: Permit, bytes: Bytes) -> Answered {
        match self.judge_once(phase, permit, bytes, false).await {
            Judged::Answer(answer) => answer,
            Judged::Later(permit, bytes, news) => {
                // Whether the news came or not: the API server has waited enough.
                let _ = timeout(NEWS_WAIT, news).await;
                match self.judge_once(phase, permit, bytes, true).await {
                    Judged::Answer(answer) => answer,
                    Judged::Later(..) => unjudged(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "what the review needs is not known yet\n",
                    ),
                }
            }
        }
    }

    async fn judge_once(&self, phase: Phase, permit: Permit, bytes: Bytes, is_last: bool) -> Judged {
        if bytes.len() <= INLINE_MAX {
            return self.0.judge(phase, permit, bytes, is_last);
        }
        let inner = Arc::clone(&self.0);
        let Ok(Ok(turn)) = timeout(LARGE_WAIT, Arc::clone(&self.0.large).acquire_owned()).await else {
            self.0.metrics.shed(Shed::Bytes);
            return Judged::Answer(unjudged(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded, too many large reviews in flight\n",
            ));
        };
        // Permit and turn go along: when the client gives up, the thread still works and its bytes are still there.
        let judged = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            inner.judge(phase, permit, bytes, is_last)
        });
        // A panic was caught inside; what is left is a runtime that shuts down.
        judged
            .await
            .unwrap_or_else(|_| Judged::Answer(unjudged(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")))
    }
}

impl<R: ?Sized> Inner<R> {
    async fn read<B: Body + Unpin>(&self, body: &mut B) -> Result<(Permit, Bytes), Refusal> {
        let length = declared(body).unwrap_or(0);
        if length > MAX_BODY {
            return Err(self.unread(Unread::TooLarge));
        }
        let mut permit = self
            .gate
            .admit(length)
            .map_err(|shed| self.unread(Unread::Shed(shed)))?;
        let read = timeout(self.limits.body_timeout, collect(body, &mut permit, MAX_BODY));
        match read.await {
            Ok(Ok(bytes)) => Ok((permit, bytes)),
            Ok(Err(unread)) => Err(self.unread(unread)),
            Err(_) => Err(refusal(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time\n",
            )),
        }
    }

    /// Says why a body was not read. No `Retry-After` when overloaded: with it the API server would call again and
    /// again until its timeout, without it gives up at once.
    fn unread(&self, unread: Unread) -> Refusal {
        match unread {
            Unread::TooLarge => refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 7 MiB\n"),
            Unread::Broken => refusal(StatusCode::BAD_REQUEST, "the body ended before its time\n"),
            Unread::Shed(shed) => {
                self.metrics.shed(shed);
                let text = match shed {
                    Shed::Requests => "overloaded, too many reviews in flight\n",
                    Shed::Bytes => "overloaded, too many bytes of reviews in flight\n",
                };
                refusal(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

impl<R: Review + ?Sized> Inner<R> {
    fn judge(&self, phase: Phase, permit: Permit, bytes: Bytes, is_last: bool) -> Judged {
        let started = Instant::now();
        // A reviewer is a pure function of the body: after a panic there is no state of it left to distrust.
        let judged = catch_unwind(AssertUnwindSafe(|| {
            if is_last {
                Ok(self.reviewer.review(phase, &bytes))
            } else {
                self.reviewer.review_or_wait(phase, &bytes)
            }
        }));
        let answer = match judged {
            Ok(Err(news)) => return Judged::Later(permit, bytes, news),
            Ok(Ok(reply)) => {
                self.metrics.reviewed(&reply, started.elapsed());
                let Reply {
                    status,
                    body,
                    labels: _,
                    rules,
                    record,
                } = reply;
                let is_json = status == StatusCode::OK || body.first() == Some(&b'{');
                Answered {
                    response: response(status, if is_json { JSON } else { TEXT }, body),
                    record,
                    rules,
                    // What exactly was wrong is in the log: it may quote the body.
                    error: (status != StatusCode::OK).then_some("the body is no AdmissionReview"),
                }
            }
            Err(panic) => {
                self.metrics.panicked();
                let (phase, bytes) = (format!("{phase:?}"), bytes.len());
                tracing::error!(
                    phase,
                    bytes,
                    panic = message(panic.as_ref()),
                    "a review panicked; this is a defect"
                );
                unjudged(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the review panicked; see Transom's log\n",
                )
            }
        };
        Judged::Answer(answer)
    }
}

/// What came of one attempt to judge a review.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every review is answered at once, and a box would cost each of them an allocation"
)]
enum Judged {
    Answer(Answered),
    /// There is something to wait for.
    Later(Permit, Bytes, News),
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Which endpoint is called, when everything before the body is as it should be.
fn accept(method: &Method, path: &str, headers: &HeaderMap) -> Result<Phase, Refusal> {
    let phase = match path {
        "/validate" => Phase::Validate,
        "/mutate" => Phase::Mutate,
        _ => {
            return Err(refusal(
                StatusCode::NOT_FOUND,
                "POST an AdmissionReview to /mutate or /validate\n",
            ));
        }
    };
    if *method != Method::POST {
        return Err(refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "POST an AdmissionReview\n",
        ));
    }
    if !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type must be application/json\n",
        ));
    }
    if headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|encoding| !is_identity(encoding))
    {
        return Err(refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "compressed bodies are not accepted\n",
        ));
    }
    Ok(phase)
}

/// Whether a content type is JSON, parameters aside.
fn is_json(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or(value);
    essence.trim_ascii().eq_ignore_ascii_case(JSON.as_bytes())
}

fn is_identity(value: &HeaderValue) -> bool {
    value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
}
