//! Looks up the images of a command: from the disk cache, then from their registries, in parallel, and bounded in number
//! and time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::client::RegistryClient;
use super::connection_error::{ADD_CA, WITHOUT_TLS};
use super::disk_cache::{CacheScope, CachedAnswer, DiskCache};
use super::endpoint::RegistryEndpoint;
use super::keychain::Keychain;
use super::{Detail, ImageChange, KnownImage, LookupError, LookupScope, NoClient, RegistryConfig};
use crate::model::syntax::text::count;
use crate::model::windows::image::ImageRef;
use crate::model::windows::image_facts::ImageFacts;

/// The number of images that are looked up at the same time, each with one request at a time.
const CONCURRENCY: usize = 8;
/// The maximum number of images that registries are asked for; those in the cache are not counted.
const MOST_IMAGES: usize = 500;
/// The maximum time of all requests together.
const DEADLINE: Duration = Duration::from_secs(120);

/// How the cache is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheUse {
    /// What it has is not requested again while it is fresh.
    #[default]
    Normal,
    /// Tags are requested again; what is behind a digest never changes.
    Refresh,
    /// Nothing is requested.
    Only,
}

/// What is known of an image, or why nothing is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageAnswer {
    /// The facts, or the reason, for users: one line.
    pub facts: Result<Arc<ImageFacts>, String>,
    /// Whether it is from the cache.
    pub is_cached: bool,
    /// Whether its tag may have moved since: from the cache, and older than tags are believed.
    pub is_stale: bool,
}

/// The registries of images, and what they answered.
pub struct Registries {
    client: Option<RegistryClient>,
    keychain: Keychain,
    config: RegistryConfig,
    cache: Option<DiskCache>,
    cache_use: CacheUse,
    detail: Detail,
    /// The maximum time of all requests, and what is left of it.
    whole: Duration,
    left: Duration,
    /// The number of images that registries were asked for.
    requested: usize,
    answers: BTreeMap<String, ImageAnswer>,
    /// Registries that are not asked again, with the reason.
    down: Mutex<BTreeMap<String, String>>,
}

impl Registries {
    /// Reads the CA certificates; sends no request. Without a cache, every image is requested.
    ///
    /// # Errors
    /// If a file of CA certificates cannot be read.
    pub fn new(
        config: RegistryConfig,
        keychain: Keychain,
        cache: Option<DiskCache>,
        cache_use: CacheUse,
        detail: Detail,
    ) -> Result<Self, NoClient> {
        let client = match cache_use {
            CacheUse::Only => None,
            CacheUse::Normal | CacheUse::Refresh => Some(RegistryClient::new(config.clone())?),
        };
        Ok(Registries {
            keychain,
            config,
            cache,
            cache_use,
            detail,
            ..Registries::by(client)
        })
    }

    /// Anonymous requests by a client, without a cache.
    fn by(client: Option<RegistryClient>) -> Self {
        Registries {
            client,
            keychain: Keychain::anonymous(),
            config: RegistryConfig::default(),
            cache: None,
            cache_use: CacheUse::Normal,
            detail: Detail::Platforms,
            whole: DEADLINE,
            left: DEADLINE,
            requested: 0,
            answers: BTreeMap::new(),
            down: Mutex::default(),
        }
    }

    /// Looks up the images that were not looked up before. `done` is called after each of them.
    pub async fn look_up(&mut self, images: BTreeSet<String>, done: &dyn Fn()) {
        let mut requested = Vec::new();
        for image in images {
            if self.answers.contains_key(&image) {
                continue;
            }
            match self.in_cache(&image).await {
                Err(known) => {
                    self.answers.insert(image, known);
                    done();
                }
                Ok(stale) => requested.push((image, stale)),
            }
        }
        let left = MOST_IMAGES.saturating_sub(self.requested);
        for (image, _) in requested.drain(left.min(requested.len())..) {
            let why = format!("not requested: {MOST_IMAGES} images were, which is the limit");
            self.answers.insert(image, ImageAnswer::unknown(why));
            done();
        }
        self.requested += requested.len();
        let until = Instant::now() + self.left;
        let asking = requested.into_iter().map(|(image, stale)| {
            let this = &*self;
            async move {
                let answer = this.answer(&image, stale, until).await;
                done();
                (image, answer)
            }
        });
        let answers: Vec<(String, ImageAnswer)> =
            stream::iter(asking).buffer_unordered(CONCURRENCY).collect().await;
        if let (Some(cache), false) = (&self.cache, answers.is_empty()) {
            cache.trim();
        }
        self.left = until.saturating_duration_since(Instant::now());
        self.answers.extend(answers);
    }

    /// What is known of the images that were looked up, by reference as written.
    pub fn answers(&self) -> &BTreeMap<String, ImageAnswer> {
        &self.answers
    }

    /// The facts of the images of which something is known, by reference as written.
    pub fn facts(&self) -> HashMap<String, Arc<ImageFacts>> {
        let known = self.answers.iter();
        known
            .filter_map(|(image, answer)| Some((image.clone(), Arc::clone(answer.facts.as_ref().ok()?))))
            .collect()
    }

    /// One line for each registry with images that are not known.
    pub fn notes(&self) -> Vec<String> {
        let mut by_registry: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for (image, answer) in &self.answers {
            if let (Err(why), Ok(image)) = (&answer.facts, ImageRef::parse(image)) {
                let whys = by_registry.entry(image.registry).or_default();
                *whys.entry(why).or_default() += 1;
            }
        }
        let of_registry = |(registry, whys): (&str, BTreeMap<&str, usize>)| {
            let each: Vec<String> = whys
                .iter()
                .map(|(why, images)| format!("{why} ({})", count(*images, "image")))
                .collect();
            format!("{registry}: {}; these are not verified", each.join(", "))
        };
        by_registry.into_iter().map(of_registry).collect()
    }

    /// The answer that the cache has; otherwise the stale facts of the image, if it has those.
    async fn in_cache(&self, image: &str) -> Result<Option<Arc<ImageFacts>>, ImageAnswer> {
        let Ok(reference) = ImageRef::parse(image) else {
            return Ok(None);
        };
        let mut cached = None;
        if let Some(cache) = &self.cache
            && let Some(scope) = self.scope(cache, &reference).await
        {
            cached = cache.get(&scope, &reference, self.detail, Timestamp::now());
        }
        let is_pinned = reference.digest.is_some();
        match (cached, self.cache_use) {
            (Some(CachedAnswer::Fresh(facts)), CacheUse::Refresh) if !is_pinned || facts.found.is_none() => {
                Ok(facts.found.is_some().then_some(facts))
            }
            (Some(CachedAnswer::Fresh(facts)), _) => Err(ImageAnswer::cached(facts, false)),
            (Some(CachedAnswer::Stale(facts)), CacheUse::Only) => Err(ImageAnswer::cached(facts, true)),
            (Some(CachedAnswer::Stale(facts)), _) => Ok(Some(facts)),
            (None, CacheUse::Only) => Err(ImageAnswer::unknown(
                "it is not in the cache, and nothing is requested (--offline)".to_owned(),
            )),
            (None, _) => Ok(None),
        }
    }

    /// Whom the entries of an image belong to; `None` if the cache cannot be used for it.
    async fn scope(&self, cache: &DiskCache, image: &ImageRef<'_>) -> Option<CacheScope> {
        let own = RegistryEndpoint::of(image, &self.config);
        let mirrors = own.mirrors(&self.config);
        let mut identity = Vec::new();
        for endpoint in std::iter::once(&own).chain(&mirrors) {
            self.keychain
                .add_identity(&endpoint.registry, &endpoint.repository, &mut identity)
                .await;
        }
        let named = mirrors
            .iter()
            .map(|it| format!("{}/{}", it.authority, it.repository));
        let named: Vec<String> = named.collect();
        cache.scope(&identity, &named.join(",")).ok()
    }

    async fn answer(&self, image: &str, stale: Option<Arc<ImageFacts>>, until: Instant) -> ImageAnswer {
        let late = |_| {
            Err(LookupError::image(format!(
                "not answered within the {:?} for all registries",
                self.whole
            )))
        };
        let reference = match ImageRef::parse(image) {
            Ok(reference) => reference,
            Err(why) => return ImageAnswer::unknown(why.to_string()),
        };
        let found = timeout_at(until, self.request(&reference, stale)).await;
        let found = found.unwrap_or_else(late);
        let facts = found.map(Arc::new).map_err(|error| with_options(&error.message));
        if let (Some(cache), Ok(answer)) = (&self.cache, &facts)
            && let Some(scope) = self.scope(cache, &reference).await
        {
            cache.put(&scope, &reference, self.detail, answer);
        }
        ImageAnswer {
            facts,
            is_cached: false,
            is_stale: false,
        }
    }

    /// Requests an image, unless its registry is known not to answer.
    async fn request(
        &self,
        image: &ImageRef<'_>,
        stale: Option<Arc<ImageFacts>>,
    ) -> Result<ImageFacts, LookupError> {
        let Some(client) = &self.client else {
            return Err(LookupError::image("nothing is requested (--offline)"));
        };
        let down = || self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let known = down().get(image.registry).cloned();
        if let Some(why) = known {
            return Err(LookupError::registry(why));
        }
        let stale = stale.as_ref().and_then(|stale| stale.found.as_ref());
        let known = stale.map(|contents| KnownImage {
            contents,
            completes: true,
        });
        let found = client.look_up(image, &self.keychain, self.detail, known).await;
        let found = found.map(|change| match change {
            ImageChange::Changed(facts) => facts,
            ImageChange::Unchanged(looked_up) => ImageFacts {
                looked_up,
                found: stale.cloned(),
            },
        });
        if let Err(error) = &found
            && error.scope == LookupScope::Registry
        {
            down().insert(image.registry.to_owned(), error.message.clone());
        }
        found
    }
}

impl ImageAnswer {
    fn unknown(why: String) -> Self {
        ImageAnswer {
            facts: Err(why),
            is_cached: false,
            is_stale: false,
        }
    }

    fn cached(facts: Arc<ImageFacts>, is_stale: bool) -> Self {
        ImageAnswer {
            facts: Ok(facts),
            is_cached: true,
            is_stale,
        }
    }
}

/// A message with the options of the command that are its remedy.
fn with_options(message: &str) -> String {
    let message = message.replace(ADD_CA, &format!("{ADD_CA} with --registry-ca"));
    message.replace(
        WITHOUT_TLS,
        &format!("{WITHOUT_TLS}: name it with --registry-plain-http"),
    )
}

#[cfg(test)]
mod tests;
