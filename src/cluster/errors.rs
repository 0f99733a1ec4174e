//! Waiting for the API server, and what went wrong in words for people.

use std::time::Duration;

use crate::process::with_causes;

/// How long one request may take.
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
#[derive(thiserror::Error, Debug)]
pub enum Failure {
    /// Somebody else has written the object, or made it.
    #[error("it was written by somebody else")]
    Conflict,
    /// There is no such object.
    #[error("it is gone")]
    Gone,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Waits for an answer, but not for ever.
///
/// # Errors
/// What the API server refused, or that it could not be reached in time.
pub async fn answered<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            409 => Failure::Conflict,
            404 => Failure::Gone,
            code => Failure::Other(format!("the API server answered {code}: {}", status.message)),
        }),
        Ok(Err(error)) => Err(Failure::Other(error.to_string())),
        Err(_) => Err(Failure::Other(format!(
            "the API server did not answer within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn the_api_server_is_quoted_and_nothing_else_of_its_status() {
        let mut status = Status::failure("namespaces \"x\" not found", "NotFound");
        status.code = 404;
        assert_eq!(
            words(&kube::Error::Api(Box::new(status.clone()))),
            "namespaces \"x\" not found"
        );
        status.message.clear();
        assert_eq!(
            words(&kube::Error::Api(Box::new(status))),
            "the API server answered 404 NotFound"
        );
    }
}
