//! Liveness, readiness and metrics over plain HTTP.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers `/livez`, `/readyz` and `/metrics`.
#[derive(Clone, Debug)]
pub struct HealthRouter {
    readiness: Readiness,
    metrics: Metrics,
}

impl HealthRouter {
    /// A router that speaks of `readiness` and `metrics`.
    pub fn new(readiness: Readiness, metrics: Metrics) -> Self {
        Self { readiness, metrics }
    }

    /// Answers one request; its body is not looked at.
    pub fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/livez" | "/readyz" | "/metrics") {
            return response(
                StatusCode::NOT_FOUND,
                TEXT,
                "there is /livez, /readyz and /metrics here\n",
            );
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET\n");
            refused
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match path {
            "/livez" => response(StatusCode::OK, TEXT, "ok\n"),
            "/metrics" => response(StatusCode::OK, OPEN_METRICS, self.metrics.expose()),
            _ => match self.readiness.reasons() {
                none if none.is_empty() => response(StatusCode::OK, TEXT, "ok\n"),
                reasons => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, reasons.join("\n") + "\n"),
            },
        }
    }
}

/// A response of one piece.
pub(super) fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn get(router: &HealthRouter, method: &str, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let answer = router.answer(&request);
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_every_reason_on_its_line() {
        let readiness = Readiness::default();
        let router = HealthRouter::new(readiness.clone(), Metrics::new("0", None));
        assert_eq!(get(&router, "GET", "/readyz").await, (200, "ok\n".into()));
        readiness.hold("facts", "not listed yet");
        readiness.hold("certificate", "expired");
        assert_eq!(
            get(&router, "GET", "/readyz").await,
            (503, "certificate: expired\nfacts: not listed yet\n".into())
        );
        assert_eq!(get(&router, "GET", "/livez").await, (200, "ok\n".into()));
        readiness.release("facts");
        readiness.release("certificate");
        assert!(readiness.is_ready());
        assert_eq!(get(&router, "GET", "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn other_paths_and_methods_say_what_there_is() {
        let router = HealthRouter::new(Readiness::default(), Metrics::new("0", None));
        assert_eq!(get(&router, "GET", "/healthz").await.0, 404);
        assert_eq!(get(&router, "POST", "/livez").await.0, 405);
        assert!(get(&router, "GET", "/metrics").await.1.ends_with("# EOF\n"));
    }
}
