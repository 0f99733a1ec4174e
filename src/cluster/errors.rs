//! Waiting for the API server, but not for ever, and what went wrong in words for people.

use std::time::Duration;

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

/// Why a request came to nothing.
#[derive(thiserror::Error, PartialEq, Eq, Debug)]
pub enum ApiError {
    /// Another writer has changed the object since it was read, or made it.
    #[error("another writer was faster")]
    Conflict,
    /// There is no such object.
    #[error("it is gone")]
    Gone,
    /// Anything else, in [`words`].
    #[error("{0}")]
    Other(String),
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => ApiError::Conflict,
            // An object is gone; a namespace that an object should go to never was there.
            kube::Error::Api(status) if status.code == 404 && !status.message.starts_with("namespaces ") => {
                ApiError::Gone
            }
            _ => ApiError::Other(words(&error)),
        }
    }
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

/// Waits for an answer, for as long as `backoff_interval` at most.
///
/// # Errors
/// What the API server refused, or that it did not answer in time.
pub async fn answered_within<T>(
    backoff_interval: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(backoff_interval, request).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::Other(format!(
            "no answer from the API server within {backoff_interval:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn the_api_server_is_quoted_and_nothing_else_of_its_status() {
        let failure = |code, message, reason| {
            let mut status = Status::failure(message, reason);
            status.code = code;
            ApiError::from(kube::Error::Api(Box::new(status)))
        };
        let other = |text: &str| ApiError::Other(text.to_owned());
        let missing = "namespaces \"x\" not found";
        assert_eq!(failure(404, missing, "NotFound"), other(missing));
        assert_eq!(failure(404, "leases \"x\" not found", "NotFound"), ApiError::Gone);
        assert_eq!(failure(409, "it was modified", "Conflict"), ApiError::Conflict);
        assert_eq!(
            failure(403, "", "Forbidden"),
            other("the API server answered 403 Forbidden")
        );
    }
}
