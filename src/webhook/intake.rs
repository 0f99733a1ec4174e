//! Takes a review in: its head is looked at, its share of the limits taken, and its body read; or it is refused at once.

use axum::body::Body;
use axum::extract::Request;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue};
use tokio::time::{Instant, timeout_at};

use super::body::{Unread, collect, declared};
use super::client::Client;
use super::limits::{MAX_BODY, Shed};
use super::refusal::Refusal;
use super::reviews::{Reviews, Taken};

/// Takes a review in; where it is refused, what is left of its body is read and thrown away.
pub(super) async fn take_in(request: Request, reviews: &Reviews) -> Result<Taken, Refusal> {
    let deadline = Instant::now() + reviews.body_timeout;
    let (head, mut body) = request.into_parts();
    let client = head.extensions.get().cloned();
    let (is_review, is_awaited) = (is_review(&head.headers), is_awaited(&head.headers));
    // Heads are large where a client wants that, and nothing of it is needed any more.
    drop(head);
    let taken = match is_review {
        Ok(()) => read(&mut body, client.as_ref(), reviews, deadline).await,
        Err(refusal) => Err(refusal),
    };
    if taken.is_err() && is_awaited {
        reviews.discard(client.as_ref(), body, deadline);
    }
    taken
}

/// Answers a request that is no review by its path or method.
pub(super) fn refused(request: Request, reviews: &Reviews, refusal: Refusal) -> Refusal {
    let (head, body) = request.into_parts();
    if is_awaited(&head.headers) {
        let deadline = Instant::now() + reviews.body_timeout;
        reviews.discard(head.extensions.get(), body, deadline);
    }
    refusal
}

/// Whether a body follows a refusal too: a client that asked first (`Expect: 100-continue`) sends none then.
fn is_awaited(headers: &HeaderMap) -> bool {
    !headers.contains_key(EXPECT)
}

/// Reads a body within its limits. They are Transom's own, not axum's for its extractors, which is 2 MB.
async fn read(
    body: &mut Body,
    client: Option<&Client>,
    reviews: &Reviews,
    deadline: Instant,
) -> Result<Taken, Refusal> {
    let unread = |why| unread(why, reviews);
    if declared(body).is_some_and(|length| length > MAX_BODY) {
        return Err(unread(Unread::TooLarge));
    }
    let shed = |shed| unread(Unread::Shed(shed));
    let share = reviews.open(client).map_err(shed)?;
    // A body that is there already is taken without a wait for anything; a share that was refused meanwhile grows no more.
    let collected = tokio::select! {
        biased;
        collected = timeout_at(deadline, collect(body, &share, MAX_BODY)) => collected,
        () = share.refused() => return Err(shed(Shed::Share)),
    };
    match collected {
        Ok(Ok(bytes)) => {
            share.complete().map_err(shed)?;
            Ok(Taken { bytes, share })
        }
        Ok(Err(why)) => Err(unread(why)),
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
        Unread::Shed(shed) => reviews.shed(shed),
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
