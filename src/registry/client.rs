//! The client of one registry: requests over HTTP/1.1 and TLS with ring, an anonymous token if one is
//! required, redirects.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use rustls::ClientConfig;
use serde::Deserialize;
use tokio::time::timeout;
use tower::Service;

use super::auth::AuthChallenge;
use super::digest::Digest;
use super::endpoint::{RegistryEndpoint, connectable};
use super::keychain::Keychain;
use super::manifest::{self, ManifestContent};
use super::{Detail, LookupError, RegistryConfig};
use crate::model::image::ImageRef;
use crate::model::image_facts::{ImageContents, ImageFacts, ImageVariant};
use crate::process::with_causes;

/// The timeout of a request, including its response.
const WHOLE: Duration = Duration::from_secs(10);
/// The maximum size of a response, in bytes.
const ANSWER: usize = 4 << 20;
/// The maximum number of redirects.
const REDIRECTS: usize = 3;

/// Why no registry can be queried.
#[derive(thiserror::Error, Debug)]
pub enum NoClient {
    /// TLS cannot be set up.
    #[error("cannot set up TLS for registries: {0}")]
    Tls(#[from] rustls::Error),
    /// This machine has no CA certificates.
    #[error("cannot read the CA certificates of this machine, which verify registries: {0}")]
    NoCa(#[source] io::Error),
}

/// The client of image registries. Cheap to clone.
#[derive(Clone)]
pub struct RegistryClient {
    http: legacy::Client<HttpsConnector<HttpConnector<PublicResolver>>, Full<Bytes>>,
}

/// Resolves a host name to its addresses.
type Lookup = fn(Name) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

/// Resolves a host name, and returns only addresses that a registry may have. The connection uses the checked
/// addresses, so a name cannot resolve to another one between check and connect.
#[derive(Clone)]
struct PublicResolver(Lookup);

impl Service<Name> for PublicResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.0;
        Box::pin(async move {
            let found = lookup(name.clone()).await?;
            let checked = connectable(name.as_str(), found).map_err(io::Error::other)?;
            Ok(checked.into_iter())
        })
    }
}

fn system_lookup(name: Name) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move {
        // The connector sets the port.
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        Ok(found.collect())
    })
}

struct RegistryResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// Whether the registry itself sent the response, and not another host after a redirect.
    is_own: bool,
}

impl RegistryClient {
    /// Sets up TLS with the CA certificates of this machine; sends no request.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(config: RegistryConfig) -> Result<Self, NoClient> {
        let _ = config;
        Self::by(system_lookup)
    }

    pub(super) fn by(lookup: Lookup) -> Result<Self, NoClient> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_native_roots()
            .map_err(NoClient::NoCa)?
            .with_no_client_auth();
        let mut http = HttpConnector::new_with_resolver(PublicResolver(lookup));
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(RegistryClient { http })
    }

    /// Asks the registry of an image what it is: its index or manifest, and with [`Detail::Configurations`] also manifests
    /// and configurations of its Windows variants.
    ///
    /// # Errors
    /// If the registry does not answer, refuses, or answers with something else than an image. That an image does not
    /// exist is not an error.
    pub async fn look_up(
        &self,
        image: &ImageRef<'_>,
        _keychain: &Keychain,
        _detail: Detail,
    ) -> Result<ImageFacts, LookupError> {
        let place = &RegistryEndpoint::of(image);
        let mut token = None;
        let manifest = self.get(place, "manifests", &place.reference, &mut token).await?;
        let looked_up = Timestamp::now();
        if manifest.status == StatusCode::NOT_FOUND && manifest::is_error(&manifest.body) {
            return Ok(ImageFacts {
                looked_up,
                found: None,
            });
        }
        let kind = manifest
            .headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let body = taken(manifest)?;
        let digest = verified(image.digest, &body)?;
        let variants = match manifest::read(&kind, &body)? {
            ManifestContent::Index(variants) => variants,
            ManifestContent::Image(single) => {
                let config = self
                    .get(place, "blobs", &single.config.to_string(), &mut token)
                    .await?;
                let config = taken(config)?;
                verified(Some(&single.config.to_string()), &config)?;
                let size = Some(single.size);
                let digest = digest.clone();
                vec![ImageVariant {
                    digest,
                    size,
                    ..manifest::of_config(&config)?
                }]
            }
        };
        let found = Some(ImageContents { digest, variants });
        Ok(ImageFacts { looked_up, found })
    }

    /// Gets a resource of a repository, with an anonymous token if the registry requires one.
    async fn get(
        &self,
        place: &RegistryEndpoint,
        kind: &str,
        reference: &str,
        token: &mut Option<HeaderValue>,
    ) -> Result<RegistryResponse, LookupError> {
        let uri = place.uri(kind, reference).map_err(LookupError::registry)?;
        let first = self.follow(place, uri.clone(), token.as_ref()).await?;
        if first.status != StatusCode::UNAUTHORIZED || !first.is_own || token.is_some() {
            return Ok(first);
        }
        let mut demands = first.headers.get_all(WWW_AUTHENTICATE).iter();
        let challenge = demands.find_map(|header| AuthChallenge::parse(header.to_str().ok()?));
        let Some(challenge) = challenge else {
            return Ok(first);
        };
        *token = Some(self.token(place, &challenge).await?);
        self.follow(place, uri, token.as_ref()).await
    }

    /// Requests an anonymous token.
    async fn token(
        &self,
        place: &RegistryEndpoint,
        challenge: &AuthChallenge,
    ) -> Result<HeaderValue, LookupError> {
        #[derive(Deserialize)]
        struct Given {
            token: Option<String>,
            access_token: Option<String>,
        }
        let uri = challenge.uri(&place.repository);
        let uri = uri.ok_or_else(|| LookupError::image("it names no address for its token"))?;
        place.allow(&uri).map_err(LookupError::image)?;
        let answer = self.send(&uri, None).await?;
        let body = taken(answer)?;
        let given: Option<Given> = serde_json::from_slice(&body).ok();
        let token = given.and_then(|given| given.token.or(given.access_token));
        let token = token.filter(|token| !token.is_empty());
        let header = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let mut header = header.ok_or_else(|| LookupError::image("unauthorized"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Sends a request, and follows redirects. Only the registry itself receives the token.
    async fn follow(
        &self,
        place: &RegistryEndpoint,
        uri: Uri,
        token: Option<&HeaderValue>,
    ) -> Result<RegistryResponse, LookupError> {
        let own = (uri.scheme().cloned(), uri.authority().cloned());
        let mut uri = uri;
        for _ in 0..=REDIRECTS {
            place.allow(&uri).map_err(LookupError::image)?;
            let is_own = own == (uri.scheme().cloned(), uri.authority().cloned());
            let answer = self.send(&uri, token.filter(|_| is_own)).await?;
            let location = match answer.status.as_u16() {
                301 | 302 | 303 | 307 | 308 => answer.headers.get(LOCATION),
                _ => None,
            };
            let Some(location) = location else {
                return Ok(RegistryResponse { is_own, ..answer });
            };
            uri = location
                .to_str()
                .ok()
                .and_then(|to| resolved(&uri, to))
                .ok_or_else(|| LookupError::image("it points to no address"))?;
        }
        Err(LookupError::image(format!("more than {REDIRECTS} redirects")))
    }

    async fn send(&self, uri: &Uri, token: Option<&HeaderValue>) -> Result<RegistryResponse, LookupError> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        let exchange = async {
            let answer = self.http.request(request).await;
            let answer = answer.map_err(|error| LookupError::registry(with_causes(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER).collect().await;
            let body = body.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    LookupError::image("an answer of more than 4 MiB")
                } else {
                    LookupError::image("an answer that broke off")
                }
            })?;
            Ok(RegistryResponse {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
                is_own: false,
            })
        };
        let late = || LookupError::registry(format!("no answer within {WHOLE:?}"));
        timeout(WHOLE, exchange).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The digest of content, which must be the expected one.
fn verified(expected: Option<&str>, content: &[u8]) -> Result<String, LookupError> {
    let digest = expected.map_or_else(|| Some(Digest::of(content)), Digest::parse);
    let digest = digest.filter(|digest| digest.verifies(content));
    let digest = digest.ok_or_else(|| LookupError::image("the content does not match its digest"))?;
    Ok(digest.to_string())
}

/// The body of a successful response.
fn taken(answer: RegistryResponse) -> Result<Bytes, LookupError> {
    match answer.status {
        StatusCode::OK => Ok(answer.body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(LookupError::image("unauthorized")),
        StatusCode::TOO_MANY_REQUESTS => {
            Err(LookupError::registry("it received too many requests".to_owned()))
        }
        status => Err(LookupError::image(format!("its answer was {}", status.as_u16()))),
    }
}

/// The target of a `Location`, resolved against a URL.
fn resolved(from: &Uri, to: &str) -> Option<Uri> {
    if !to.starts_with('/') || to.starts_with("//") {
        return to.parse().ok();
    }
    let here = format!("{}://{}{to}", from.scheme_str()?, from.authority()?);
    here.parse().ok()
}
