//! The answer to a request that gets no review, in plain text.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;

/// Why there is no review.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    pub(super) text: &'static str,
}

impl Rejection {
    pub(super) const fn new(status: StatusCode, text: &'static str) -> Self {
        Self { status, text }
    }

    /// There is too much to do. No `Retry-After`: with it the API server would call again and again until its timeout,
    /// without it gives up at once.
    pub(super) const fn overloaded(text: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

/// The refusal goes along with the answer, for the span of the request.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.text).into_response();
        response.extensions_mut().insert(self);
        response
    }
}
