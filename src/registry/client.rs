//! The client of image registries: what an image is, from its index or manifest and its configurations.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper_util::client::proxy::matcher::Matcher;
use jiff::Timestamp;
use tokio::time::timeout;

use super::digest::Digest;
use super::endpoint::RegistryEndpoint;
use super::keychain::{Credential, Keychain};
use super::manifest::{self, ACCEPT, CONFIG, MANIFEST, ManifestContent, SingleImage};
use super::session::{Session, Tokens};
use super::transport::{Lookup, NoClient, Received, Transport, system_lookup};
use super::{Detail, ImageChange, KnownImage, LookupError, RegistryConfig};
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::{ImageContents, ImageFacts, ImageVariant};
use crate::model::windows::windows_updates::OsVersion;

/// The maximum time of all requests of a look-up to one registry or mirror, without those of credential helpers.
const WHOLE: Duration = Duration::from_secs(30);
/// The maximum number of Windows variants whose configurations are read.
const CONFIGURATIONS: usize = 8;
/// The number of these that are read concurrently.
const AT_ONCE: usize = 4;

/// The client of image registries. Cheap to clone.
#[derive(Clone)]
pub struct RegistryClient {
    inner: Arc<Inner>,
}

struct Inner {
    transport: Transport,
    config: RegistryConfig,
    tokens: Tokens,
}

impl RegistryClient {
    /// Reads the CA certificates of this machine and of the configuration, and which proxies the environment names; sends
    /// no request.
    ///
    /// # Errors
    /// Without certificates, or if a configured file has none.
    pub fn new(config: RegistryConfig) -> Result<Self, NoClient> {
        Self::with(config, system_lookup, Matcher::from_env())
    }

    pub(super) fn with(config: RegistryConfig, lookup: Lookup, proxies: Matcher) -> Result<Self, NoClient> {
        let transport = Transport::new(&config, lookup, proxies)?;
        let tokens = Tokens::default();
        let inner = Inner {
            transport,
            config,
            tokens,
        };
        Ok(RegistryClient {
            inner: Arc::new(inner),
        })
    }

    /// Asks the registry of an image what it is: its index or manifest, and with [`Detail::Configurations`] also manifests
    /// and configurations of its Windows variants. A mirror that does not have the image is skipped.
    ///
    /// `known`: an earlier answer with at least this detail. If the registry answers a HEAD with its digest, the index or
    /// manifest is not requested: registries count that as a pull.
    ///
    /// # Errors
    /// If the registry is not one that may be asked, does not answer, refuses, or answers with something else than an
    /// image. That an image does not exist is not an error.
    pub async fn look_up(
        &self,
        image: &ImageRef<'_>,
        keychain: &Keychain,
        detail: Detail,
        known: Option<KnownImage<'_>>,
    ) -> Result<ImageChange, LookupError> {
        let now = self
            .facts_of(image, keychain, WantedFacts { detail, known })
            .await?;
        if known.is_some_and(|known| now.found.as_ref() == Some(known.contents)) {
            return Ok(ImageChange::Unchanged(now.looked_up));
        }
        Ok(ImageChange::Changed(now))
    }

    async fn facts_of(
        &self,
        image: &ImageRef<'_>,
        keychain: &Keychain,
        wanted: WantedFacts<'_>,
    ) -> Result<ImageFacts, LookupError> {
        let config = &self.inner.config;
        if config
            .allowed
            .as_ref()
            .is_some_and(|allowed| !allowed.matches(image.registry))
        {
            return Err(LookupError::registry(
                "it is not one of the registries that Transom may ask",
            ));
        }
        let own = RegistryEndpoint::of(image, config);
        let mut failures = Vec::new();
        for mirror in own.mirrors(config) {
            match self.look_up_at(&mirror, keychain, wanted).await {
                Ok(facts) if facts.found.is_some() => return Ok(facts),
                Ok(_) => {}
                Err(error) => failures.push(format!("the mirror {}: {error}", mirror.authority)),
            }
        }
        let found = self.look_up_at(&own, keychain, wanted).await;
        found.map_err(|error| {
            if failures.is_empty() {
                error
            } else {
                error.with(&format!("before that, {}", failures.join("; ")))
            }
        })
    }

    /// Tries the credentials for a registry one after another; without any, it asks without.
    async fn look_up_at(
        &self,
        endpoint: &RegistryEndpoint,
        keychain: &Keychain,
        wanted: WantedFacts<'_>,
    ) -> Result<ImageFacts, LookupError> {
        let credentials = keychain
            .credentials_of(&endpoint.registry, &endpoint.repository)
            .await;
        let tried = async {
            let mut failure = match credentials.list.first() {
                None => return self.look_up_with(endpoint, keychain, None, wanted).await,
                Some(first) => match self.look_up_with(endpoint, keychain, Some(first), wanted).await {
                    Err(failure) if failure.is_refused => failure,
                    answer => return answer,
                },
            };
            for credential in credentials.list.iter().skip(1) {
                match self
                    .look_up_with(endpoint, keychain, Some(credential), wanted)
                    .await
                {
                    Err(next) if next.is_refused => failure = next,
                    answer => return answer,
                }
            }
            Err(failure)
        };
        let late = || LookupError::registry(format!("not all answers within {WHOLE:?}"));
        let answer = timeout(WHOLE, tried).await.unwrap_or_else(|_| Err(late()));
        answer.map_err(|error| match &credentials.trouble {
            Some(trouble) if error.is_refused => error.with(trouble),
            _ => error,
        })
    }

    async fn look_up_with(
        &self,
        endpoint: &RegistryEndpoint,
        keychain: &Keychain,
        credential: Option<&Credential>,
        wanted: WantedFacts<'_>,
    ) -> Result<ImageFacts, LookupError> {
        let session = |endpoint| {
            Session::new(
                &self.inner.transport,
                &self.inner.tokens,
                endpoint,
                keychain,
                credential,
            )
        };
        let plain = session(endpoint);
        let first = first_answer(&plain, wanted).await?;
        match endpoint
            .with_tls()
            .filter(|_| first.status == StatusCode::BAD_REQUEST)
        {
            // How servers in Go answer a request without TLS.
            Some(secure) => {
                let session = session(&secure);
                let again = first_answer(&session, wanted).await?;
                facts(&session, again, wanted).await
            }
            None => facts(&plain, first, wanted).await,
        }
    }
}

/// What a look-up is for.
#[derive(Clone, Copy)]
struct WantedFacts<'k> {
    detail: Detail,
    known: Option<KnownImage<'k>>,
}

/// The answer to the first request: a HEAD if a content is known, else a GET.
async fn first_answer(session: &Session<'_>, wanted: WantedFacts<'_>) -> Result<Received, LookupError> {
    let reference = session.reference();
    match wanted.known {
        Some(_) => session.head("manifests", reference, ACCEPT).await,
        None => session.get("manifests", reference, ACCEPT, MANIFEST).await,
    }
}

/// Whether a HEAD states the digest that is known. Otherwise only a GET tells: some registries state no digest, or answer
/// no HEAD.
fn is_unchanged(session: &Session<'_>, head: Received, known: &ImageContents) -> Result<bool, LookupError> {
    match head.status.as_u16() {
        200 => Ok(stated_digest(&head.headers).is_some_and(|stated| stated.to_string() == known.digest)),
        // A GET would be a second request.
        429 | 502..=504 => session.content(head).map(|_| false),
        _ => Ok(false),
    }
}

/// The facts from the first answer about a tag or digest, and from what it refers to.
async fn facts(
    session: &Session<'_>,
    first: Received,
    wanted: WantedFacts<'_>,
) -> Result<ImageFacts, LookupError> {
    let looked_up = Timestamp::now();
    let answer = match wanted.known {
        None => first,
        Some(known) if is_unchanged(session, first, known.contents)? => {
            let found = Some(completed(session, wanted.detail, known).await);
            return Ok(ImageFacts { looked_up, found });
        }
        Some(_) => {
            let reference = session.reference();
            session.get("manifests", reference, ACCEPT, MANIFEST).await?
        }
    };
    if answer.status == StatusCode::NOT_FOUND && manifest::is_error(&answer.body) {
        return Ok(ImageFacts {
            looked_up,
            found: None,
        });
    }
    let headers = answer.headers.clone();
    let body = session.content(answer)?;
    let digest = digest_of(session.reference(), &headers, &body)?;
    if let Some(known) = wanted.known.filter(|known| known.contents.digest == digest) {
        let found = Some(completed(session, wanted.detail, known).await);
        return Ok(ImageFacts { looked_up, found });
    }
    let variants = match manifest::read(content_type(&headers), &body)? {
        ManifestContent::Index(variants) if wanted.detail == Detail::Configurations => {
            with_configurations(session, variants).await
        }
        ManifestContent::Index(variants) => variants,
        // Only the configuration states the platform.
        ManifestContent::Image(image) => vec![variant(session, &digest, image).await?],
    };
    let found = Some(ImageContents { digest, variants });
    Ok(ImageFacts { looked_up, found })
}

/// The digest of a manifest that was requested by digest, or by tag. What the registry states must be true.
fn digest_of(reference: &str, headers: &HeaderMap, body: &Bytes) -> Result<String, LookupError> {
    if let Some(requested) = Digest::parse(reference) {
        verify(&requested, body)?;
        return Ok(requested.to_string());
    }
    if let Some(stated) = stated_digest(headers) {
        verify(&stated, body)?;
    }
    Ok(Digest::of(body).to_string())
}

/// The digest that a registry states in a header.
fn stated_digest(headers: &HeaderMap) -> Option<Digest> {
    let stated = headers.get("docker-content-digest")?.to_str().ok()?;
    Digest::parse(stated)
}

fn verify(digest: &Digest, content: &[u8]) -> Result<(), LookupError> {
    if digest.verifies(content) {
        return Ok(());
    }
    Err(LookupError::image(format!(
        "what it sent is not the content with the digest {digest}"
    )))
}

fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default()
}

/// What is known, with the configurations that could not be read before, if that is wanted and they can be read now.
async fn completed(session: &Session<'_>, detail: Detail, known: KnownImage<'_>) -> ImageContents {
    let mut contents = known.contents.clone();
    if known.completes && detail == Detail::Configurations {
        contents.variants = with_configurations(session, contents.variants).await;
    }
    contents
}

/// Whether configurations could not be read that are read otherwise.
pub(super) fn has_unread_configurations(contents: &ImageContents) -> bool {
    !unread(&contents.variants).is_empty()
}

/// The positions of the variants whose configurations are missing: of the newest ones for Windows.
fn unread(variants: &[ImageVariant]) -> Vec<usize> {
    let windows = variants
        .iter()
        .enumerate()
        .filter(|(_, variant)| variant.is_windows());
    let mut windows: Vec<(usize, &ImageVariant)> = windows.collect();
    windows.sort_by_key(|(_, variant)| {
        let version = variant
            .os_version
            .map(|version| (version.build, version.revision));
        // That of a variant without a version is in its configuration.
        Reverse((version.is_none(), version))
    });
    let newest = windows.into_iter().take(CONFIGURATIONS);
    newest
        .filter(|(_, variant)| variant.config.is_none())
        .map(|(at, _)| at)
        .collect()
}

/// The variants, of which the newest for Windows have sizes, layers and configurations. One that cannot be read remains without.
async fn with_configurations(session: &Session<'_>, mut variants: Vec<ImageVariant>) -> Vec<ImageVariant> {
    let digests: Vec<(usize, String)> = (unread(&variants).into_iter())
        .filter_map(|at| Some((at, variants.get(at)?.digest.clone())))
        .collect();
    let reading = digests
        .into_iter()
        .map(|(at, digest)| async move { (at, read_variant(session, &digest).await) });
    let read: Vec<(usize, Result<ImageVariant, LookupError>)> =
        stream::iter(reading).buffer_unordered(AT_ONCE).collect().await;
    let mut of_configurations = Vec::new();
    for (at, found) in read {
        if let (Some(variant), Ok(found)) = (variants.get_mut(at), found)
            && found.os == variant.os
        {
            variant.size = found.size;
            variant.layers = found.layers;
            variant.config = found.config;
            of_configurations.push((at, found.os_version));
        }
    }
    add_missing_version(&mut variants, &of_configurations);
    variants
}

/// Completes the Windows variant of an index without `os.version` from its configuration. containerd pulls such a variant on
/// every node for which the index has no better one, and it starts only on nodes that run the build of its configuration. Of
/// several such variants containerd pulls one on every node, so their versions stay unknown.
fn add_missing_version(variants: &mut [ImageVariant], of_configurations: &[(usize, Option<OsVersion>)]) {
    let mut without = (variants.iter_mut().enumerate())
        .filter(|(_, variant)| variant.is_windows() && variant.os_version.is_none());
    if let (Some((at, variant)), None) = (without.next(), without.next()) {
        let known = of_configurations.iter().find(|(of, _)| *of == at);
        variant.os_version = known.and_then(|(_, version)| *version);
    }
}

/// One variant of an index, by its digest.
async fn read_variant(session: &Session<'_>, digest: &str) -> Result<ImageVariant, LookupError> {
    let answer = session.get("manifests", digest, ACCEPT, MANIFEST).await?;
    let headers = answer.headers.clone();
    let body = session.content(answer)?;
    let digest = digest_of(digest, &headers, &body)?;
    match manifest::read(content_type(&headers), &body)? {
        ManifestContent::Image(image) => variant(session, &digest, image).await,
        ManifestContent::Index(_) => Err(LookupError::image("an index in place of an image")),
    }
}

/// An image with what its configuration states.
async fn variant(
    session: &Session<'_>,
    digest: &str,
    image: SingleImage,
) -> Result<ImageVariant, LookupError> {
    let answer = session
        .get("blobs", &image.config.to_string(), "*/*", CONFIG)
        .await?;
    let body = session.content(answer)?;
    verify(&image.config, &body)?;
    let variant = manifest::of_config(&body)?;
    Ok(ImageVariant {
        digest: digest.to_owned(),
        size: Some(image.size),
        layers: image.layers,
        ..variant
    })
}

#[cfg(test)]
mod tests;
