//! The HTTP client of OpenTelemetry's exporter: HTTP/1.1, and TLS with ring.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::EXPORT;
use super::settings::{TracingError, TracingSettings};
use crate::process::complaints::Complaints;
use crate::process::files::Accept;
use crate::process::{root_certificates, with_causes};

const CONNECT: Duration = Duration::from_secs(3);
/// How much of a response is read, so that its connection can be reused.
const ANSWER: usize = 64 << 10;

/// The name of the problem, of which there is one.
const RECEIVER: &str = "receiver";

/// Sends requests to one receiver, and logs why it does not accept them.
#[derive(Debug)]
pub(super) struct ReceiverClient {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    problems: Mutex<Complaints>,
    /// The exporter runs on a thread of its own, and the client only in tokio.
    runtime: Handle,
}

impl ReceiverClient {
    /// A client for these settings. Reads the file of its CA. Must be called in a tokio runtime.
    pub fn new(settings: &TracingSettings) -> Result<Self, TracingError> {
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
        Ok(Self {
            http,
            headers,
            problems: Mutex::default(),
            runtime: Handle::current(),
        })
    }

    /// Sends a request, and reads the whole answer in time.
    fn exchange(
        &self,
        mut request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Bytes>, String>> + Send + use<> {
        // Drops the exporter's headers: some come from environment variables that Transom does not support.
        request.headers_mut().clone_from(&self.headers);
        let answer = self.http.request(request.map(Full::new));
        let exchange = async {
            let (head, body) = answer.await.map_err(|error| with_causes(&error))?.into_parts();
            // A longer response is not valid OTLP, and its connection is closed.
            let body = Limited::new(body, ANSWER).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Ok::<_, String>(Response::from_parts(head, body))
        };
        async {
            (timeout(EXPORT, exchange).await).unwrap_or_else(|_| Err(format!("no answer within {EXPORT:?}")))
        }
    }

    /// Logs why spans are not accepted: once, until the reason changes or it ends.
    fn report(&self, url: &Uri, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(why) if problems.is_news(RECEIVER, &why) => {
                tracing::warn!(%url, "cannot send spans to the OTLP receiver: {why}");
            }
            Some(_) => {}
            None => problems.ended(RECEIVER),
        }
    }
}

impl HttpClient for ReceiverClient {
    fn send_bytes<'c, 'f>(
        &'c self,
        request: Request<Bytes>,
    ) -> BoxFuture<'f, Result<Response<Bytes>, HttpError>>
    where
        'c: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let url = request.uri().clone();
            // It fails at the end of the process, which is not a problem of the receiver.
            let answer = self.runtime.spawn(self.exchange(request)).await?;
            let problem = match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("the answer was {}", answer.status())),
                Err(why) => Some(why.clone()),
            };
            self.report(&url, problem);
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
