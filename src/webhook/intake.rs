//! Takes a review in: its head is looked at, its share of the limits taken, and its body read; or it is refused at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue};
use tokio::time::timeout;

use super::body::{Unread, collect, declared, discard};
use super::limits::{MAX_BODY, Shed};
use super::refusal::Refusal;
use super::reviews::{Reviews, Taken};

impl FromRequest<Arc<Reviews>> for Taken {
    type Rejection = Refusal;

    async fn from_request(request: Request, reviews: &Arc<Reviews>) -> Result<Self, Refusal> {
        let (head, mut body) = request.into_parts();
        let taken = match is_review(&head.headers) {
            Ok(()) => read(&mut body, reviews).await,
            Err(refusal) => Err(refusal),
        };
        if taken.is_err() {
            refuse(&head.headers, body, reviews.body_timeout);
        }
        taken
    }
}

/// Reads what is left of the body of a request that is refused. A client that asked first (`Expect: 100-continue`) sends
/// no body after a refusal.
pub(super) fn refuse(headers: &HeaderMap, body: Body, patience: Duration) {
    if !headers.contains_key(EXPECT) {
        discard(body, patience);
    }
}

/// Reads a body within its limits. They are Transom's own, not axum's for its extractors, which is 2 MB.
async fn read(body: &mut Body, reviews: &Reviews) -> Result<Taken, Refusal> {
    let length = declared(body).unwrap_or(0);
    if length > MAX_BODY {
        return Err(unread(Unread::TooLarge, reviews));
    }
    let mut permit = (reviews.gate.admit(length)).map_err(|shed| unread(Unread::Shed(shed), reviews))?;
    match timeout(reviews.body_timeout, collect(body, &mut permit, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(Taken {
            bytes,
            _permit: permit,
        }),
        Ok(Err(why)) => Err(unread(why, reviews)),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time\n",
        )),
    }
}

/// Says why a body was not read.
fn unread(why: Unread, reviews: &Reviews) -> Refusal {
    match why {
        Unread::TooLarge => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 7 MiB\n"),
        Unread::Broken => Refusal::new(StatusCode::BAD_REQUEST, "the body ended before its time\n"),
        Unread::Shed(shed) => {
            reviews.metrics.shed(shed);
            Refusal::overloaded(match shed {
                Shed::Requests => "overloaded, too many reviews in flight\n",
                Shed::Bytes => "overloaded, too many bytes of reviews in flight\n",
            })
        }
    }
}

/// Whether a head announces what can be read as a review.
fn is_review(headers: &HeaderMap) -> Result<(), Refusal> {
    let unsupported = |text| Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    if !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return unsupported("the content type must be application/json\n");
    }
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !is_identity(encoding)) {
        return unsupported("compressed bodies are not accepted\n");
    }
    Ok(())
}

/// Whether a content type is JSON, parameters aside.
fn is_json(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or(value);
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn is_identity(value: &HeaderValue) -> bool {
    value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
}
