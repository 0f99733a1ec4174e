//! Waits for the API server with a limit, and describes its errors for people.

use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusDetails;
use kube::runtime::watcher;

use crate::process::with_causes;

/// How long most requests may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What went wrong with a request: the API server's own message where it sent one, else the error with its causes.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the API server answered {} {}", status.code, status.reason),
        other => with_causes(other),
    }
}

/// Why a request failed. Callers decide by the variant; the text is for people.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum ApiError {
    /// There is no such object, or no such kind.
    #[error("it is gone")]
    NotFound,
    /// Another writer has changed the object since it was read, or created it.
    #[error("another client changed it first")]
    Conflict,
    /// The API server does not know who asks; a token may be renewed by the next request.
    #[error("{0}")]
    Unauthorized(String),
    /// A right is missing.
    #[error("{0}")]
    Forbidden(String),
    /// The namespace of the object does not exist.
    #[error("{0}")]
    NamespaceNotFound(String),
    /// The namespace of the object is being deleted, so that nothing can be created in it.
    #[error("{0}")]
    NamespaceTerminating(String),
    /// The continue token of a list, or the version of a watch, has expired. With the token that continues the list
    /// in what is stored now, if the API server gives one.
    #[error("the continue token of the list, or the version of the watch, has expired")]
    Expired(Option<String>),
    /// The API server limits requests.
    #[error("{message}")]
    TooManyRequests {
        message: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// No answer in this time.
    #[error("no answer from the API server within {0:?}")]
    Timeout(Duration),
    /// The API server, or the way to it, does not work at present.
    #[error("{0}")]
    Unavailable(String),
    /// An object has more bytes than Transom reads; other objects were read.
    #[error("{0}")]
    ObjectTooLarge(String),
    #[error("{0}")]
    Other(String),
}

impl ApiError {
    /// Whether the same request may succeed later although nothing is changed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            ApiError::TooManyRequests { .. } | ApiError::Timeout(_) | ApiError::Unavailable(_)
        )
    }

    /// How long the API server asks to wait before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ApiError::TooManyRequests { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        let text = words(&error);
        let kube::Error::Api(status) = error else {
            return ApiError::Unavailable(text);
        };
        let details = status.details.as_ref();
        match status.code {
            // An object is gone; the namespace that an object was meant for never existed.
            404 if details.is_some_and(|details| details.kind == "namespaces") => {
                ApiError::NamespaceNotFound(text)
            }
            401 => ApiError::Unauthorized(text),
            404 => ApiError::NotFound,
            409 => ApiError::Conflict,
            410 => {
                let token = status.metadata.and_then(|list| list.continue_);
                ApiError::Expired(token.filter(|token| !token.is_empty()))
            }
            403 if details.is_some_and(is_terminating) => ApiError::NamespaceTerminating(text),
            403 => ApiError::Forbidden(text),
            429 => ApiError::TooManyRequests {
                message: with_reasons(text, details),
                retry_after: (details.map(|details| details.retry_after_seconds))
                    .filter(|seconds| *seconds > 0)
                    .map(|seconds| Duration::from_secs(seconds.into())),
            },
            500.. => ApiError::Unavailable(text),
            _ => ApiError::Other(text),
        }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        kube::Error::Api(Box::new(status)).into()
    }
}

impl From<watcher::Error> for ApiError {
    fn from(error: watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error.into(),
            watcher::Error::WatchError(status) => (*status).into(),
            watcher::Error::NoResourceVersion => ApiError::Other(error.to_string()),
        }
    }
}

/// A message with its causes, as that of an eviction: the budget that does not allow it.
fn with_reasons(message: String, details: Option<&StatusDetails>) -> String {
    let causes = details.into_iter().flat_map(|details| &details.causes);
    causes.fold(message, |all, cause| {
        format!("{all} {} ({})", cause.message, cause.reason)
    })
}

/// Whether the API server refuses an object because its namespace is being deleted.
fn is_terminating(details: &StatusDetails) -> bool {
    let mut causes = details.causes.iter();
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Waits for an answer, for [`PATIENCE`] at most.
///
/// # Errors
/// As [`answered_within`].
pub fn answered<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> impl Future<Output = Result<T, ApiError>> {
    answered_within(PATIENCE, request)
}

/// Waits for an answer, for as long as `timeout` at most.
///
/// # Errors
/// What the API server refused, or that it did not answer in time.
pub async fn answered_within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(timeout, request).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::Timeout(timeout)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(status: serde_json::Value) -> ApiError {
        let status: Status = serde_json::from_value(status).unwrap();
        ApiError::from(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_status_keeps_what_callers_decide_by_and_the_api_servers_words() {
        let text = |text: &str| text.to_owned();
        for (status, expected) in [
            (
                json!({"code": 404, "message": "leases \"x\" not found", "details": {"kind": "leases"}}),
                ApiError::NotFound,
            ),
            (
                json!({"code": 404, "message": "namespaces \"x\" not found", "details": {"kind": "namespaces"}}),
                ApiError::NamespaceNotFound(text("namespaces \"x\" not found")),
            ),
            (
                json!({"code": 409, "message": "it was modified"}),
                ApiError::Conflict,
            ),
            (
                json!({"code": 410, "message": "too old", "metadata": {"continue": "new"}}),
                ApiError::Expired(Some(text("new"))),
            ),
            (
                json!({"code": 410, "message": "too old"}),
                ApiError::Expired(None),
            ),
            (
                json!({"code": 403, "message": "m", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
                ApiError::NamespaceTerminating(text("m")),
            ),
            (
                json!({"code": 403, "reason": "Forbidden"}),
                ApiError::Forbidden(text("the API server answered 403 Forbidden")),
            ),
            (
                json!({"code": 429, "message": "m", "details": {"retryAfterSeconds": 2}}),
                ApiError::TooManyRequests {
                    message: text("m"),
                    retry_after: Some(Duration::from_secs(2)),
                },
            ),
            (
                json!({"code": 429, "message": "m.", "details": {"causes": [{"reason": "DisruptionBudget", "message": "b."}]}}),
                ApiError::TooManyRequests {
                    message: text("m. b. (DisruptionBudget)"),
                    retry_after: None,
                },
            ),
            (
                json!({"code": 401, "message": "m"}),
                ApiError::Unauthorized(text("m")),
            ),
            (
                json!({"code": 503, "message": "m"}),
                ApiError::Unavailable(text("m")),
            ),
            (json!({"code": 422, "message": "m"}), ApiError::Other(text("m"))),
        ] {
            assert_eq!(error(status), expected);
        }
    }
}
