//! The plain-text answer to a request that is rejected without a review.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;

/// Why the request is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    pub(super) text: &'static str,
}

impl Rejection {
    pub(super) const fn new(status: StatusCode, text: &'static str) -> Self {
        Self { status, text }
    }

    /// The server is overloaded. No `Retry-After`: with it, the API server would retry until its timeout;
    /// without it, it gives up immediately.
    pub(super) const fn overloaded(text: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

/// The rejection is attached to the response, for the span of the request.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.text).into_response();
        response.extensions_mut().insert(self);
        response
    }
}
