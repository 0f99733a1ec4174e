//! Bare handlers on axum and rustls that evaluate nothing: the best possible speed of a webhook, and the cost of parsing.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::BareArgs;

/// Transom's limit.
const MAX_BODY: usize = 7 << 20;

/// Reads the body and answers a constant.
pub fn read() -> Router {
    async fn handler(body: Bytes) -> Response {
        const ANSWER: &str = "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\
            \"response\":{\"uid\":\"52ee6d80-4389-4f71-8423-265284f8a050\",\"allowed\":true}}";
        std::hint::black_box(body);
        ([(CONTENT_TYPE, "application/json")], ANSWER).into_response()
    }
    Router::new()
        .route("/validate", post(handler))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Finds the uid and allows: the least that an API server accepts. At `/patch` it always answers with the same patch.
pub fn uid(patch: Option<String>) -> Router {
    #[derive(serde::Deserialize)]
    struct Review {
        request: Request,
    }
    #[derive(serde::Deserialize)]
    struct Request {
        uid: String,
    }
    fn answer(body: &Bytes, patch: Option<&str>) -> Result<Response, (StatusCode, String)> {
        let review: Review =
            serde_json::from_slice(body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        let mut response = serde_json::json!({"uid": review.request.uid, "allowed": true});
        if let Some(patch) = patch {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = patch.into();
        }
        let review = serde_json::json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": response});
        Ok(([(CONTENT_TYPE, "application/json")], review.to_string()).into_response())
    }
    Router::new()
        .route("/", post(|body: Bytes| async move { answer(&body, None) }))
        .route(
            "/patch",
            post(|body: Bytes| async move { answer(&body, patch.as_deref()) }),
        )
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Parses the body with kube's types, and allows it.
pub fn parse() -> Router {
    async fn handler(body: Bytes) -> Result<Response, (StatusCode, String)> {
        let refuse = |error: String| (StatusCode::BAD_REQUEST, error);
        let review: AdmissionReview<Pod> =
            serde_json::from_slice(&body).map_err(|error| refuse(error.to_string()))?;
        let request: AdmissionRequest<Pod> =
            review.try_into().map_err(|_| refuse("no request".to_owned()))?;
        let answer = AdmissionResponse::from(&request).into_review();
        let json = serde_json::to_vec(&answer).map_err(|error| refuse(error.to_string()))?;
        Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
    }
    Router::new()
        .route("/validate", post(handler))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Serves a handler over TLS with its own certificate, HTTP/1.1 only, until the process is killed.
pub async fn serve(router: Router, args: &BareArgs) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(vec![args.listen.ip().to_string()])
        .context("cannot make a certificate")?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Without TCP_NODELAY it would be slower than Transom for a reason other than the handler.
    let acceptor =
        RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config))).acceptor(NoDelayAcceptor::new());
    std::fs::write(&args.write_ca, made.cert.pem())
        .with_context(|| format!("cannot write {}", args.write_ca.display()))?;
    axum_server::bind(args.listen)
        .acceptor(acceptor)
        .serve(router.into_make_service())
        .await
        .context("cannot serve")
}
