//! One request to a collector: HTTP/1.1, TLS with ring, and which failures are worth another try.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use super::settings::{Settings, TracingError};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);
/// How long an export may take in all, as OpenTelemetry has it.
const WHOLE: Duration = Duration::from_secs(10);
/// Of an answer so much is read, so that its connection can be used again.
const ANSWER: usize = 64 << 10;

/// The way to one collector.
#[derive(Debug)]
pub(super) struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Uri,
    headers: HeaderMap,
}

/// Why an export failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub why: String,
    /// Whether it may do better later.
    pub again: bool,
}

impl Transport {
    /// The way to the collector of these settings. Reads the file of its CA.
    pub fn new(settings: &Settings) -> Result<Self, TracingError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(settings)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .build(connector);
        let mut headers = settings.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        Ok(Self {
            client,
            url: settings.url.clone(),
            headers,
        })
    }

    /// Sends an export request once.
    pub async fn send(&self, body: Bytes) -> Result<(), Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| Failure {
                why: chain(&error),
                again: true,
            })?;
            let status = answer.status();
            // What it says is for people who look at the collector; a connection that is not read to its end is closed.
            let _ = Limited::new(answer.into_body(), ANSWER).collect().await;
            if status.is_success() {
                return Ok(());
            }
            Err(Failure {
                why: format!("the answer was {status}"),
                again: matches!(
                    status,
                    StatusCode::TOO_MANY_REQUESTS
                        | StatusCode::BAD_GATEWAY
                        | StatusCode::SERVICE_UNAVAILABLE
                        | StatusCode::GATEWAY_TIMEOUT
                ),
            })
        };
        timeout(WHOLE, exchange).await.unwrap_or_else(|_| {
            Err(Failure {
                why: format!("no answer within {WHOLE:?}"),
                // It may have got them, and has enough to do.
                again: false,
            })
        })
    }
}

/// An error with what caused it; the outermost says too little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = text + ": " + &next;
        }
        cause = error.source();
    }
    text
}

fn tls(settings: &Settings) -> Result<ClientConfig, TracingError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let is_https = settings.url.scheme_str() == Some("https");
    let builder = match &settings.ca {
        _ if !is_https => builder.with_root_certificates(RootCertStore::empty()),
        Some(path) => builder.with_root_certificates(roots(path)?),
        None => builder.with_native_roots().map_err(TracingError::NoCa)?,
    };
    Ok(builder.with_no_client_auth())
}

fn roots(path: &Path) -> Result<RootCertStore, TracingError> {
    let bad = |why| TracingError::Ca {
        path: path.to_owned(),
        why,
    };
    let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("no certificate in it".to_owned()));
    }
    Ok(roots)
}
