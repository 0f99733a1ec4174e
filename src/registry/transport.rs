//! HTTP for registries: TLS with ring, proxies, checked addresses, and one bounded request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::{Service, ServiceExt as _};

use super::connection_error::{AddressError, connection_error, without_host};
use super::endpoint::{connectable, is_here};
use super::{LookupError, RegistryConfig};
use crate::process::root_certificates;

/// The timeout of a request, including its whole response.
const WHOLE: Duration = Duration::from_secs(10);
/// The timeout of a connection to one address.
const CONNECT: Duration = Duration::from_secs(5);
/// The maximum number of idle connections for each host.
const IDLE: usize = 4;
/// The longest time for which a registry may ask not to be asked.
const RETRY: Duration = Duration::from_secs(3600);

/// Why no registry can be queried.
#[derive(thiserror::Error, Debug)]
pub enum NoClient {
    /// TLS cannot be set up.
    #[error("cannot set up TLS for registries: {0}")]
    Tls(#[from] rustls::Error),
    /// A configured file has no CA certificates.
    #[error("cannot read the CA certificates of registries in {path}: {why}", path = path.display())]
    CaFile { path: PathBuf, why: String },
}

/// Resolves a host name to its addresses.
pub(super) type Lookup = fn(Name) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Resolves a host name, and returns only addresses that a registry may have. The connection uses the checked
/// addresses, so a name cannot resolve to another one between check and connect.
#[derive(Clone)]
struct PublicResolver(Lookup);

impl Service<Name> for PublicResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = AddressError;
    type Future = BoxFuture<'static, Result<Self::Response, AddressError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AddressError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.0;
        Box::pin(async move {
            let unresolved = |_| AddressError::Unresolved(name.to_string());
            let found = lookup(name.clone()).await.map_err(unresolved)?;
            let checked = connectable(name.as_str(), found).map_err(AddressError::Forbidden)?;
            Ok(checked.into_iter())
        })
    }
}

/// The resolver of this machine. The connector sets the port.
pub(super) fn system_lookup(name: Name) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move {
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        Ok(found.collect())
    })
}

/// Connects to a registry, through a proxy if the environment names one. A proxy resolves the name of the registry
/// itself, so that its addresses are the proxy's to restrict; the proxy may have any address.
#[derive(Clone)]
struct Connector {
    direct: HttpConnector<PublicResolver>,
    to_proxy: HttpsConnector<HttpConnector>,
    proxies: Arc<Matcher>,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            // No proxy reaches this machine.
            let is_far = to.host().is_some_and(|host| !is_here(host));
            let Some(proxy) = connector.proxies.intercept(&to).filter(|_| is_far) else {
                let connected = connector.direct.oneshot(to).await?;
                return Ok(MaybeHttpsStream::Http(connected));
            };
            let mut tunnel = Tunnel::new(proxy.uri().clone(), connector.to_proxy);
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            tunnel.oneshot(with_port(to)?).await.map_err(|error| {
                // The URL of the proxy, which may contain its password, is not part of the error.
                format!("the proxy does not connect to it: {}", without_host(&error)).into()
            })
        })
    }
}

/// A URL with its port, which a tunnel assumes to be 443.
fn with_port(uri: Uri) -> Result<Uri, BoxError> {
    let Some(host) = uri
        .host()
        .filter(|_| uri.port().is_none() && uri.scheme_str() == Some("http"))
    else {
        return Ok(uri);
    };
    Ok(format!("http://{host}:80/").parse()?)
}

/// A response whose body was read.
pub(super) struct Received {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    /// How long the server wants not to be asked, at most an hour.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let seconds = text.parse::<u64>().ok().or_else(|| {
            let date = jiff::fmt::rfc2822::DateTimeParser::new()
                .parse_timestamp(text)
                .ok()?;
            let left = date.as_second().saturating_sub(Timestamp::now().as_second());
            Some(u64::try_from(left).unwrap_or_default())
        });
        seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY))
    }
}

pub(super) struct Transport {
    http: legacy::Client<HttpsConnector<Connector>, Full<Bytes>>,
}

impl Transport {
    /// Clients with and without a proxy, which look names up with `lookup`.
    pub fn new(config: &RegistryConfig, lookup: Lookup, proxies: Matcher) -> Result<Self, NoClient> {
        let tls = tls(config)?;
        let mut direct = HttpConnector::new_with_resolver(PublicResolver(lookup));
        direct.enforce_http(false);
        direct.set_nodelay(true);
        direct.set_connect_timeout(Some(CONNECT));
        let mut to_proxy = HttpConnector::new();
        to_proxy.enforce_http(false);
        to_proxy.set_nodelay(true);
        to_proxy.set_connect_timeout(Some(CONNECT));
        let builder = || {
            let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone());
            builder.https_or_http().enable_http1()
        };
        let connector = builder().wrap_connector(Connector {
            direct,
            to_proxy: builder().wrap_connector(to_proxy),
            proxies: Arc::new(proxies),
        });
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE)
            .build(connector);
        Ok(Transport { http })
    }

    /// Sends a request, and reads its whole response of at most this many bytes. Follows nothing.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<Received, LookupError> {
        let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        request
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(agent));
        let exchange = async {
            let host = request.uri().authority().map(ToString::to_string);
            let answer = self.http.request(request).await;
            let message = |error| connection_error(&host.unwrap_or_default(), &error);
            let answer = answer.map_err(|error| LookupError::registry(message(error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, most).collect().await;
            let body = body.map_err(|error| {
                LookupError::image(if error.is::<LengthLimitError>() {
                    format!("an answer of more than {} MiB", most >> 20)
                } else {
                    "an answer that broke off".to_owned()
                })
            })?;
            Ok(Received {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
            })
        };
        let late = || LookupError::registry(format!("no answer within {WHOLE:?}"));
        timeout(WHOLE, exchange).await.unwrap_or_else(|_| Err(late()))
    }
}

fn tls(config: &RegistryConfig) -> Result<ClientConfig, NoClient> {
    let mut roots = root_certificates::of_machine();
    for path in &config.ca_files {
        root_certificates::add_file(&mut roots, path, config.accept).map_err(|why| NoClient::CaFile {
            path: path.clone(),
            why,
        })?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
