//! Accepts a review: checks its head, takes its share of the limits, and reads its body, or the head of a
//! body that is too large.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue};
use tokio::time::{Instant, timeout_at};

use super::body::{BodyError, ReceivedBody, collect, declared};
use super::limits::{MAX_BODY, RejectReason};
use super::peer::Peer;
use super::rejection::Rejection;
use super::review_service::{ReceivedRequest, ReviewService};
use crate::admission::Oversize;
use crate::process::arg_parsers::duration;

/// Accepts a review; the rest of its body is read and discarded.
pub(super) async fn read_request(
    request: Request,
    reviews: &ReviewService,
) -> Result<ReceivedRequest, Rejection> {
    let came = Instant::now();
    let deadline = came + reviews.body_timeout;
    let (head, mut body) = request.into_parts();
    let until = came + wait(head.uri.query(), reviews.max_wait);
    let client: Option<Arc<Peer>> = head.extensions.get().cloned();
    let (is_review, is_awaited) = (is_review(&head.headers), is_awaited(&head.headers));
    // A client can send a large head, and none of it is needed from here.
    drop(head);
    let received = match is_review {
        Ok(()) => read(&mut body, client.as_ref(), reviews, deadline, until).await,
        Err(refusal) => Err(refusal),
    };
    let is_left = match &received {
        Ok(received) => received.too_large.is_some(),
        Err(_) => is_awaited,
    };
    if is_left {
        reviews.discard(client.as_ref(), body, deadline);
    }
    received
}

/// How long a review may wait for capacity: half of the timeout that the API server names in the query, but
/// at most `most`.
fn wait(query: Option<&str>, most: Duration) -> Duration {
    let mut parameters = query.unwrap_or_default().split('&');
    let timeout = parameters.find_map(|parameter| parameter.strip_prefix("timeout="));
    let timeout = timeout.and_then(|timeout| duration(timeout).ok());
    timeout.map_or(most, |timeout| most.min(timeout / 2))
}

/// Rejects a request whose path or method is not that of a review.
pub(super) fn refused(request: Request, reviews: &ReviewService, refusal: Rejection) -> Rejection {
    let (head, body) = request.into_parts();
    if is_awaited(&head.headers) {
        let deadline = Instant::now() + reviews.body_timeout;
        reviews.discard(head.extensions.get(), body, deadline);
    }
    refusal
}

/// Whether the client sends the body even after a rejection: a client that sent `Expect: 100-continue` does
/// not.
fn is_awaited(headers: &HeaderMap) -> bool {
    !headers.contains_key(EXPECT)
}

/// Reads a body within its limits. These are Transom's own, because axum's extractors allow only 2 MB.
async fn read(
    body: &mut Body,
    client: Option<&Arc<Peer>>,
    reviews: &ReviewService,
    deadline: Instant,
    until: Instant,
) -> Result<ReceivedRequest, Rejection> {
    let unread = |why| match why {
        BodyError::Broken => Rejection::new(StatusCode::BAD_REQUEST, "the body ended early\n"),
        BodyError::Shed(shed) => reviews.shed(shed),
    };
    let shed = |shed| reviews.shed(shed);
    let declared = declared(body);
    let inflight = reviews.open(client, until).map_err(shed)?;
    let complete = async {
        // Waiting for the client ends at the deadline; waiting for a review permit ends at the deadline of
        // the share.
        let kept = timeout_at(deadline, collect(body, &inflight, MAX_BODY)).await;
        let kept = kept
            .map_err(|_| Rejection::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n"))?;
        let kept = kept.map_err(unread)?;
        inflight.complete().await.map_err(shed)?;
        Ok::<_, Rejection>(kept)
    };
    // A body that has arrived is taken without waiting; a share that was cancelled meanwhile does not grow.
    let kept = tokio::select! {
        biased;
        complete = complete => complete?,
        () = inflight.refused() => return Err(shed(RejectReason::Slow)),
    };
    let (bytes, too_large) = match kept {
        ReceivedBody::Whole(bytes) => (bytes, None),
        ReceivedBody::Head(head) => {
            let oversize = Oversize {
                bytes: declared,
                bound: MAX_BODY,
            };
            (head, Some(oversize))
        }
    };
    Ok(ReceivedRequest {
        bytes,
        too_large,
        inflight,
    })
}

/// Whether the headers describe a body that can be read as a review.
fn is_review(headers: &HeaderMap) -> Result<(), Rejection> {
    let unsupported = |text| Err(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    if !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return unsupported("the content type must be application/json\n");
    }
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !is_identity(encoding)) {
        return unsupported("compressed bodies are not accepted\n");
    }
    Ok(())
}

/// Whether a content type is JSON, ignoring parameters.
fn is_json(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or(value);
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn is_identity(value: &HeaderValue) -> bool {
    value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_waits_for_half_of_the_timeout_that_the_api_server_names() {
        let waits = |query: Option<&str>| wait(query, Duration::from_secs(1)).as_millis();
        assert_eq!(waits(None), 1_000);
        assert_eq!(waits(Some("timeout=2s")), 1_000);
        assert_eq!(waits(Some("timeout=1s")), 500);
        assert_eq!(waits(Some("a=b&timeout=500ms")), 250);
        assert_eq!(
            waits(Some("timeout=1m0s")),
            1_000,
            "never longer than the setting"
        );
        assert_eq!(waits(Some("timeout=soon")), 1_000);
    }
}
