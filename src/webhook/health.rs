//! Liveness, readiness and metrics over plain HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::process::metrics::Metrics;
use crate::process::readiness::Readiness;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a scrape may wait for the previous one.
const SCRAPE_WAIT: Duration = Duration::from_secs(2);

/// After a scrape, the next one waits this many times as long as the scrape took, so that scrapes take at most a fifth of a
/// core.
const PAUSE: u32 = 4;

/// The maximum of that pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The state of the health endpoints.
#[derive(Clone)]
struct Health {
    readiness: Readiness,
    metrics: Metrics,
    /// One scrape at a time, so that probes are answered during any number of scrapes.
    scrapes: Arc<Semaphore>,
}

/// Routes `/livez`, `/readyz` and `/metrics`; request bodies are ignored.
pub(super) fn router(readiness: Readiness, metrics: Metrics) -> Router {
    let only_get =
        |route: MethodRouter<Health>| route.fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "use GET\n"));
    Router::new()
        .route("/livez", only_get(get("ok\n")))
        .route("/readyz", only_get(get(readyz)))
        .route("/metrics", only_get(get(expose)))
        .fallback(async || (StatusCode::NOT_FOUND, "use /livez, /readyz or /metrics\n"))
        .with_state(Health {
            readiness,
            metrics,
            scrapes: Arc::new(Semaphore::new(1)),
        })
}

async fn readyz(State(Health { readiness, .. }): State<Health>) -> (StatusCode, String) {
    match readiness.reasons() {
        none if none.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
    }
}

/// The metrics, encoded on a separate thread.
async fn expose(State(Health { metrics, scrapes, .. }): State<Health>) -> Response {
    let written = async {
        let turn = timeout(SCRAPE_WAIT, scrapes.acquire_owned()).await.ok()?.ok()?;
        let (text, written) = oneshot::channel();
        // In a task of its own: a client that leaves does not end the turn.
        tokio::spawn(async move {
            let began = Instant::now();
            let encoded = spawn_blocking(move || metrics.expose()).await;
            let took = began.elapsed();
            if let Ok(encoded) = encoded {
                // The client may have left.
                let _ = text.send(encoded);
            }
            sleep((took * PAUSE).min(LONGEST_PAUSE)).await;
            drop(turn);
        });
        written.await.ok()
    };
    match written.await {
        Some(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "too many concurrent scrapes\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use hyper::Request;
    use tower::ServiceExt;

    use super::*;

    async fn get(router: &Router, method: &str, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path);
        let answer = router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.headers().contains_key("allow"), status == 405);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_every_reason_on_its_line() {
        let readiness = Readiness::default();
        let router = router(readiness.clone(), Metrics::new("0", None));
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
        let router = router(Readiness::default(), Metrics::new("0", None));
        assert_eq!(get(&router, "GET", "/healthz").await.0, 404);
        assert_eq!(get(&router, "POST", "/livez").await.0, 405);
        assert!(get(&router, "GET", "/metrics").await.1.ends_with("# EOF\n"));
    }
}
