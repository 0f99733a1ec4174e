//! The client of one collector: OpenTelemetry's OTLP exporter, over HTTP/1.1 and TLS with ring.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::watch;
use tokio::time::timeout;

use super::settings::{TracingError, TracingSettings};
use crate::process::files::Accept;
use crate::process::{root_certificates, with_causes};

/// The connect timeout.
const CONNECT: Duration = Duration::from_secs(3);
/// The total timeout of an export, OpenTelemetry's default.
const WHOLE: Duration = Duration::from_secs(10);
/// How much of a response is read, so that its connection can be reused.
const ANSWER: usize = 64 << 10;

/// The client of one collector. Without `Debug`, because the exporter would show headers that it read from
/// environment variables.
pub(super) struct Collector {
    exporter: SpanExporter,
    /// The error of the last attempt, if it failed: the exporter reports at most a status.
    why: watch::Sender<Option<String>>,
}

impl Collector {
    /// A client for these settings. Reads the file of its CA.
    pub fn new(settings: &TracingSettings) -> Result<Self, TracingError> {
        let (why, _) = watch::channel(None);
        // Retries after one and two seconds. A longer outage loses the batch; later spans wait in the queue.
        let tries = RetryPolicy::recommended()
            .with_max_retries(2)
            .with_initial_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(2));
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient::new(settings, why.clone())?)
            .with_endpoint(settings.url.to_string())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(WHOLE)
            .with_retry_policy(tries)
            .build()?;
        exporter.set_resource(&settings.resource);
        Ok(Self { exporter, why })
    }

    /// Sends spans, with retries if they may help; otherwise returns the error.
    pub async fn take(&self, spans: Vec<SpanData>) -> Result<(), String> {
        let taken = self.exporter.export(spans).await;
        let why = self.why.send_replace(None);
        taken.map_err(|error| why.unwrap_or_else(|| error.to_string()))
    }

    /// Waits until an attempt has failed and a retry is pending, and returns the error.
    pub async fn failed(&self) -> String {
        let mut why = self.why.subscribe();
        // The sender is in `self`, so this waits until there is an error.
        let why = why.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_default()
    }
}

/// The HTTP client of the exporter.
#[derive(Debug)]
struct CollectorClient {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    why: watch::Sender<Option<String>>,
}

impl CollectorClient {
    fn new(settings: &TracingSettings, why: watch::Sender<Option<String>>) -> Result<Self, TracingError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(settings)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .build(connector);
        let mut headers = settings.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        Ok(Self { http, headers, why })
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        // Drops the exporter's headers: some come from environment variables that Transom does not support.
        request.headers_mut().clone_from(&self.headers);
        let exchange = async {
            let answer = self.http.request(request.map(Full::new)).await;
            let (head, body) = answer.map_err(|error| with_causes(&error))?.into_parts();
            // A longer response is not valid OTLP, and its connection is closed.
            let body = Limited::new(body, ANSWER).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Ok(Response::from_parts(head, body))
        };
        timeout(WHOLE, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {WHOLE:?}")))
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'c, 'f>(
        &'c self,
        request: Request<Bytes>,
    ) -> BoxFuture<'f, Result<Response<Bytes>, HttpError>>
    where
        'c: 'f,
        Self: 'f,
    {
        Box::pin(async {
            self.why.send_replace(None);
            let answer = self.send(request).await;
            self.why.send_replace(match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("the answer was {}", answer.status())),
                Err(why) => Some(why.clone()),
            });
            answer.map_err(HttpError::from)
        })
    }
}

fn tls(settings: &TracingSettings) -> Result<ClientConfig, TracingError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let mut roots = RootCertStore::empty();
    if settings.url.scheme_str() == Some("https") {
        match &settings.ca {
            Some(path) => root_certificates::add_file(&mut roots, path, Accept::Regular).map_err(|why| {
                TracingError::Ca {
                    path: path.clone(),
                    why,
                }
            })?,
            None => roots = root_certificates::of_machine(),
        }
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
