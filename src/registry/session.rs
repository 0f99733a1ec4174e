//! Requests to one registry with one credential: tokens, basic authentication and redirects.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::LookupError;
use super::auth::{Challenge, TokenService, is_trusted_with_credential};
use super::endpoint::RegistryEndpoint;
use super::keychain::{Credential, Keychain, Secret};
use super::transport::{Received, Transport};

/// The maximum number of redirects.
const REDIRECTS: usize = 3;
/// The maximum size of a token service's answer, in bytes, and of the token in it.
const TOKEN_ANSWER: usize = 1 << 20;
const TOKEN: usize = 32 << 10;
/// How long a token is valid whose service does not state it, by the specification.
const TOKEN_LIFE: Duration = Duration::from_secs(60);
/// The longest time for which a token is kept.
const LONGEST_TOKEN_LIFE: Duration = Duration::from_secs(3600);
/// How long before its end a token is replaced.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);
/// The maximum number of tokens that are kept.
const TOKENS: usize = 1_000;

/// Headers that authorize requests, by repository and credential, until they expire.
#[derive(Default)]
pub(super) struct Tokens {
    kept: Mutex<HashMap<TokenKey, Token>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct TokenKey {
    authority: String,
    repository: String,
    /// Which credential: its source and its secret.
    access: Option<(String, [u8; 32])>,
}

struct Token {
    header: HeaderValue,
    until: Instant,
}

impl Tokens {
    fn get(&self, key: &TokenKey) -> Option<HeaderValue> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key)
            .filter(|token| token.until > Instant::now())
            .map(|token| token.header.clone())
    }

    fn insert(&self, key: TokenKey, token: Token) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= TOKENS {
            let now = Instant::now();
            kept.retain(|_, token| token.until > now);
        }
        if kept.len() >= TOKENS {
            kept.clear();
        }
        kept.insert(key, token);
    }
}

/// Requests to one registry with one credential.
pub(super) struct Session<'c> {
    transport: &'c Transport,
    tokens: &'c Tokens,
    endpoint: &'c RegistryEndpoint,
    keychain: &'c Keychain,
    credential: Option<&'c Credential>,
    key: TokenKey,
}

/// A request, before redirects.
struct RegistryRequest {
    method: Method,
    uri: Uri,
    accept: &'static str,
    /// The maximum size of the response, in bytes.
    most: usize,
}

/// A response, and whether the registry itself sent it, and not another host after a redirect.
struct SessionAnswer {
    received: Received,
    is_own: bool,
}

impl<'c> Session<'c> {
    /// A session with one registry, which has asked nothing yet.
    pub fn new(
        transport: &'c Transport,
        tokens: &'c Tokens,
        endpoint: &'c RegistryEndpoint,
        keychain: &'c Keychain,
        credential: Option<&'c Credential>,
    ) -> Self {
        let key = TokenKey {
            authority: endpoint.authority.clone(),
            repository: endpoint.repository.clone(),
            access: credential.map(|it| (it.source.clone(), it.fingerprint())),
        };
        Session {
            transport,
            tokens,
            endpoint,
            keychain,
            credential,
            key,
        }
    }

    /// The tag or digest that was asked for.
    pub fn reference(&self) -> &str {
        &self.endpoint.reference
    }

    /// Gets a resource of the repository, of at most this many bytes.
    pub async fn get(
        &self,
        kind: &str,
        reference: &str,
        accept: &'static str,
        most: usize,
    ) -> Result<Received, LookupError> {
        self.request(Method::GET, (kind, reference), accept, most).await
    }

    /// Requests only the headers of a resource. A registry that counts pulls does not count this.
    pub async fn head(
        &self,
        kind: &str,
        reference: &str,
        accept: &'static str,
    ) -> Result<Received, LookupError> {
        self.request(Method::HEAD, (kind, reference), accept, 0).await
    }

    async fn request(
        &self,
        method: Method,
        (kind, reference): (&str, &str),
        accept: &'static str,
        most: usize,
    ) -> Result<Received, LookupError> {
        let uri = self
            .endpoint
            .uri(kind, reference)
            .map_err(LookupError::registry)?;
        let known = self.tokens.get(&self.key);
        let wanted = RegistryRequest {
            method,
            uri,
            accept,
            most,
        };
        let first = self.follow(&wanted, known.as_ref()).await?;
        if first.received.status != StatusCode::UNAUTHORIZED || !first.is_own {
            return Ok(first.received);
        }
        let Some(challenge) = Challenge::of(&first.received.headers) else {
            return Ok(first.received);
        };
        let token = self.authorize(&challenge).await?;
        let header = token.header.clone();
        let second = self.follow(&wanted, Some(&header)).await?;
        if second.received.status != StatusCode::UNAUTHORIZED {
            self.tokens.insert(self.key.clone(), token);
        }
        Ok(second.received)
    }

    /// The body of a successful response.
    pub fn content(&self, answer: Received) -> Result<Bytes, LookupError> {
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(LookupError::refused(
                format!("the registry refused {} ({})", self.used(), status.as_u16()),
            )),
            _ => Err(unsuccessful("the registry", &answer)),
        }
    }

    fn used(&self) -> String {
        self.credential.map_or_else(
            || "a request without credentials".to_owned(),
            |credential| format!("the credential of {}", credential.source),
        )
    }

    /// What authorizes the next requests.
    async fn authorize(&self, challenge: &Challenge) -> Result<Token, LookupError> {
        match challenge {
            Challenge::Bearer(service) => self.token(service).await,
            Challenge::Basic => {
                let Some(credential) = self.credential else {
                    return Err(LookupError::refused(
                        "the registry refused a request without credentials (401)",
                    ));
                };
                let header = credential.basic().and_then(|header| secret_header(&header));
                let used = self.used();
                let header = header.ok_or_else(|| {
                    LookupError::refused(format!(
                        "the registry requires a user and a password, but {used} has none"
                    ))
                })?;
                Ok(Token {
                    header,
                    until: Instant::now() + LONGEST_TOKEN_LIFE,
                })
            }
        }
    }

    /// Requests a token, with the credential if its service may be sent it.
    async fn token(&self, service: &TokenService) -> Result<Token, LookupError> {
        let uri = service.uri(&self.endpoint.repository);
        let uri =
            uri.ok_or_else(|| LookupError::image("the registry names no address of its token service"))?;
        self.endpoint.allow(&uri).map_err(LookupError::image)?;
        let trusted = self
            .credential
            .filter(|credential| self.is_trusted(&uri, credential));
        let host = uri.host().unwrap_or_default().to_owned();
        let request = token_request(service, &self.endpoint.repository, uri, trusted);
        let request = request.ok_or_else(|| LookupError::image(format!("{} cannot be sent", self.used())))?;
        let answer = self.transport.send(request, TOKEN_ANSWER).await?;
        if matches!(answer.status.as_u16(), 400 | 401 | 403) {
            let status = answer.status.as_u16();
            let used = if self.credential.is_some() && trusted.is_none() {
                let source = self.used();
                format!(
                    "a request without credentials ({status}); {source} is not sent to {host}, which is another host than \
                     the registry: add the same credential for {host} if that is right"
                )
            } else {
                format!("{} ({status})", self.used())
            };
            return Err(LookupError::refused(format!(
                "the registry's token service refused {used}"
            )));
        }
        if answer.status != StatusCode::OK {
            return Err(unsuccessful("the registry's token service", &answer));
        }
        parse_token(&answer.body)
            .ok_or_else(|| LookupError::image("the registry's token service sent no token"))
    }

    fn is_trusted(&self, realm: &Uri, credential: &Credential) -> bool {
        let authority = realm.authority().map_or("", |authority| authority.as_str());
        is_trusted_with_credential(&self.endpoint.registry, self.endpoint.host(), realm)
            || self.keychain.has_also(authority, &credential.secret)
    }

    /// Sends a request, and follows redirects. Only the registry itself receives the authorization.
    async fn follow(
        &self,
        wanted: &RegistryRequest,
        authorization: Option<&HeaderValue>,
    ) -> Result<SessionAnswer, LookupError> {
        let mut uri = wanted.uri.clone();
        let own = (uri.scheme().cloned(), uri.authority().cloned());
        for _ in 0..=REDIRECTS {
            self.endpoint.allow(&uri).map_err(LookupError::image)?;
            let is_own = own == (uri.scheme().cloned(), uri.authority().cloned());
            let mut request = Request::new(Full::new(Bytes::new()));
            *request.method_mut() = wanted.method.clone();
            *request.uri_mut() = uri.clone();
            request
                .headers_mut()
                .insert(ACCEPT, HeaderValue::from_static(wanted.accept));
            if let Some(header) = authorization.filter(|_| is_own) {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
            }
            let received = self.transport.send(request, wanted.most).await?;
            let location = match received.status.as_u16() {
                301 | 302 | 303 | 307 | 308 => received.headers.get(LOCATION),
                _ => None,
            };
            let Some(location) = location else {
                return Ok(SessionAnswer { received, is_own });
            };
            let to = location.to_str().ok().and_then(|to| resolved(&uri, to));
            uri = to.ok_or_else(|| LookupError::image("it points to no address"))?;
        }
        Err(LookupError::image(format!("more than {REDIRECTS} redirects")))
    }
}

/// The request for a token: with user and password, with a token in a form, or without a credential.
fn token_request(
    service: &TokenService,
    repository: &str,
    uri: Uri,
    credential: Option<&Credential>,
) -> Option<Request<Full<Bytes>>> {
    let Some(credential) = credential else {
        return Request::get(uri).body(Full::default()).ok();
    };
    match &credential.secret {
        Secret::Basic { .. } => {
            let header = secret_header(&credential.basic()?)?;
            Request::get(uri)
                .header(AUTHORIZATION, header)
                .body(Full::default())
                .ok()
        }
        Secret::Identity(token) => {
            let token = utf8_percent_encode(token, NON_ALPHANUMERIC);
            let query = service.query(repository);
            let form = format!("grant_type=refresh_token&client_id=transom&{query}&refresh_token={token}");
            let request = Request::builder().method(Method::POST).uri(service.realm()?);
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            request.body(Full::from(form)).ok()
        }
    }
}

fn parse_token(json: &[u8]) -> Option<Token> {
    #[derive(Deserialize)]
    struct Given {
        token: Option<String>,
        access_token: Option<String>,
        expires_in: Option<Value>,
    }
    let given: Given = serde_json::from_slice(json).ok()?;
    let token = given
        .token
        .filter(|token| !token.is_empty())
        .or(given.access_token)?;
    if token.is_empty() || token.len() > TOKEN {
        return None;
    }
    let life = given
        .expires_in
        .and_then(|seconds| seconds.as_u64())
        .map_or(TOKEN_LIFE, Duration::from_secs);
    let life = life.min(LONGEST_TOKEN_LIFE).saturating_sub(TOKEN_MARGIN);
    let header = secret_header(&format!("Bearer {token}"))?;
    Some(Token {
        header,
        until: Instant::now() + life,
    })
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The error of a response that is neither content nor a refusal.
fn unsuccessful(who: &str, answer: &Received) -> LookupError {
    let status = answer.status.as_u16();
    let error = match status {
        429 => LookupError::registry(format!("{who} received too many requests (429)")),
        502..=504 => LookupError::registry(format!("{who} answered {status}")),
        _ => LookupError::image(format!("{who} answered {status}")),
    };
    LookupError {
        retry_after: answer.retry_after().filter(|_| matches!(status, 429 | 503)),
        ..error
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
