//! The cache of image facts in memory: what each reference is, for whom, and the contents that they share. Bounded in
//! entries and bytes; a pure value that is given the time.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::key::{Access, ImageKey};
use crate::model::doubling_pause::DoublingPause;
use crate::model::windows::image_facts::{ImageContents, ImageFacts, ImageLayer, ImageVariant};
use crate::registry::client::has_unread_configurations;

/// How long the answer about a tag is current; reviews refresh it from half of that on.
pub const TAG_TTL: Duration = Duration::from_secs(10 * 60);
/// How long the answer about a digest is current. Its content never changes; who may see it can.
pub const DIGEST_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// From which age on an image of a stored workload is looked up again, in the background.
pub const STORED_TTL: Duration = Duration::from_secs(6 * 60 * 60);
/// How long the answer that an image does not exist is current.
pub const MISSING_TTL: Duration = Duration::from_secs(60);
/// How long an answer is used if its registry gives no other one.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The pauses after failed look-ups of an image.
const RETRY: DoublingPause = DoublingPause {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(10 * 60),
};
/// How often configurations that could not be read are requested again, for one content.
const COMPLETIONS: u8 = 3;
/// The overhead of an entry or a content in the maps, in bytes.
const OVERHEAD: usize = 256;

/// The bounds of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// References, with or without content.
    pub entries: usize,
    /// The estimated size of everything, in bytes.
    pub bytes: usize,
}

/// What a look-up is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupOrigin {
    Review,
    /// A workload that is stored.
    Stored,
}

/// Whether a look-up is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// What is known is current, or the next attempt is not due yet.
    No,
    /// What is known is current, and is refreshed before it expires.
    Refresh,
    /// Nothing is known, or what is known has expired.
    Now,
}

/// What the cache has about a reference.
#[derive(Clone, Debug)]
pub struct Recalled {
    /// The last answer, which may have expired.
    pub facts: Option<Arc<ImageFacts>>,
    /// The age of that answer.
    pub age: Duration,
    /// Whether a look-up is due.
    pub due: Due,
}

impl Recalled {
    const NOTHING: Recalled = Recalled {
        facts: None,
        age: Duration::ZERO,
        due: Due::Now,
    };
}

/// What is known of images, within a bound of entries and bytes.
#[derive(Debug)]
pub struct ImageCache {
    limits: CacheLimits,
    entries: HashMap<ImageKey, Entry>,
    contents: HashMap<Arc<str>, Content>,
    /// By the namespace that first asked: its entries, least recently used first.
    used: HashMap<Arc<str>, BTreeMap<u64, ImageKey>>,
    uses: u64,
    bytes: usize,
    /// Counts changes of Transom's credentials: answers of an earlier one are looked up again.
    credentials: u64,
    hashes: RandomState,
}

#[derive(Debug)]
struct Entry {
    namespace: Arc<str>,
    used: u64,
    answer: Option<AnsweredLookup>,
    failure: Option<FailedLookup>,
    credentials: u64,
}

#[derive(Clone, Debug)]
struct AnsweredLookup {
    /// `None`: the image does not exist.
    content: Option<Arc<str>>,
    looked_up: Timestamp,
    /// When the first of the answers in a row with this content was given.
    first: Timestamp,
    at: Instant,
    ttl: Duration,
}

#[derive(Clone, Copy, Debug)]
struct FailedLookup {
    times: u32,
    next: Instant,
}

#[derive(Debug)]
struct Content {
    facts: Arc<ImageFacts>,
    bytes: usize,
    users: usize,
    /// How often configurations that could not be read were requested again.
    completions: u8,
}

/// What is known of an image before it is looked up again.
#[derive(Clone, Debug)]
pub struct KnownContent {
    /// The last answer with a content.
    pub facts: Arc<ImageFacts>,
    /// Whether configurations that could not be read are requested again.
    pub completes: bool,
}

impl ImageCache {
    /// An empty cache with these bounds.
    pub fn new(limits: CacheLimits) -> Self {
        ImageCache {
            limits,
            entries: HashMap::new(),
            contents: HashMap::new(),
            used: HashMap::new(),
            uses: 0,
            bytes: 0,
            credentials: 0,
            hashes: RandomState::new(),
        }
    }

    /// The number of references.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The estimated size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Transom's credentials have changed: every answer is looked up again, and used until then.
    pub fn credentials_changed(&mut self) {
        self.credentials += 1;
    }

    /// What is known of a reference.
    pub fn recall(&mut self, key: &ImageKey, origin: LookupOrigin, now: Instant) -> Recalled {
        self.uses += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            return Recalled::NOTHING;
        };
        let order = self.used.entry(Arc::clone(&entry.namespace)).or_default();
        order.remove(&entry.used);
        order.insert(self.uses, key.clone());
        entry.used = self.uses;
        let is_outdated = entry.credentials != self.credentials;
        let may_ask = is_outdated || entry.failure.is_none_or(|failure| failure.next <= now);
        let answer = entry.answer.as_ref();
        let recalled = answer.and_then(|answer| answer.recall(&self.contents, origin, is_outdated, now));
        let recalled = recalled.unwrap_or(Recalled::NOTHING);
        Recalled {
            due: if may_ask { recalled.due } else { Due::No },
            ..recalled
        }
    }

    /// Makes the answer about a tag due for another look-up, unless it is younger than `min_age`. Returns whether it did.
    pub fn expire_tag(&mut self, key: &ImageKey, min_age: Duration, now: Instant) -> bool {
        let answer = (self.entries.get_mut(key)).and_then(|entry| entry.answer.as_mut());
        let Some(answer) = answer.filter(|_| !key.is_immutable()) else {
            return false;
        };
        let is_old = now.saturating_duration_since(answer.at) >= min_age;
        if is_old {
            answer.ttl = Duration::ZERO;
        }
        is_old
    }

    /// Whether an image with a content is known.
    pub fn has_content(&self, key: &ImageKey) -> bool {
        let answer = self.entries.get(key).and_then(|entry| entry.answer.as_ref());
        answer.is_some_and(|answer| answer.content.is_some())
    }

    /// The last content, for a look-up that requests only what has changed. Each call for a content without some of its
    /// configurations uses up one of the attempts to complete it.
    pub fn known_content(&mut self, key: &ImageKey) -> Option<KnownContent> {
        let content = self.entries.get(key)?.answer.as_ref()?.content.as_ref()?;
        let content = self.contents.get_mut(content)?;
        let found = content.facts.found.as_ref()?;
        let completes = content.completions < COMPLETIONS && has_unread_configurations(found);
        content.completions += u8::from(completes);
        Some(KnownContent {
            facts: Arc::clone(&content.facts),
            completes,
        })
    }

    /// Records the answer of a registry, with the lowest layers: reviews need none, and the start gate estimates with these
    /// what new nodes pull. Returns whether it differs from what is known.
    pub fn answered(
        &mut self,
        key: &ImageKey,
        namespace: &Arc<str>,
        facts: ImageFacts,
        now: Instant,
    ) -> bool {
        let looked_up = facts.looked_up;
        let found = facts.found.map(ImageContents::with_base_layers);
        let facts = ImageFacts { looked_up, found };
        let content = facts.found.as_ref().map(|found| key.content(&found.digest));
        let mut is_completed = false;
        if let Some(content) = &content {
            let before = self.contents.get(content);
            // Another reference with the same content may have had more luck.
            let facts = match before {
                Some(known) if configurations(&known.facts) > configurations(&facts) => {
                    Arc::clone(&known.facts)
                }
                _ => Arc::new(facts),
            };
            let bytes = estimated_bytes(&facts) + content.len() + OVERHEAD;
            is_completed = before.is_some_and(|known| known.facts.found != facts.found);
            let new = Content {
                facts,
                bytes,
                users: before.map_or(0, |known| known.users),
                completions: before.map_or(0, |known| known.completions),
            };
            self.bytes -= before.map_or(0, |known| known.bytes);
            self.bytes += bytes;
            self.contents.insert(Arc::clone(content), new);
        }
        let is_other = self.set(key, namespace, content, looked_up, now);
        is_other || is_completed
    }

    /// Records that a registry still has the content that is known.
    pub fn unchanged(&mut self, key: &ImageKey, namespace: &Arc<str>, looked_up: Timestamp, now: Instant) {
        let answer = (self.entries.get(key)).and_then(|entry| entry.answer.clone());
        if let Some(content) = answer.and_then(|answer| answer.content) {
            self.set(key, namespace, Some(content), looked_up, now);
        }
    }

    fn set(
        &mut self,
        key: &ImageKey,
        namespace: &Arc<str>,
        content: Option<Arc<str>>,
        looked_up: Timestamp,
        now: Instant,
    ) -> bool {
        let ttl = match &content {
            None => MISSING_TTL,
            Some(_) if key.is_immutable() => DIGEST_TTL,
            Some(_) => TAG_TTL,
        };
        let ttl = self.jittered(key, ttl);
        if let Some(used) = content
            .as_ref()
            .and_then(|content| self.contents.get_mut(content))
        {
            used.users += 1;
        }
        let credentials = self.credentials;
        let entry = self.entry(key, namespace);
        let before = entry.answer.take();
        let same = before.as_ref().filter(|before| before.content == content);
        let is_other = same.is_none();
        entry.answer = Some(AnsweredLookup {
            first: same.map_or(looked_up, |before| before.first),
            content,
            looked_up,
            at: now,
            ttl,
        });
        entry.failure = None;
        entry.credentials = credentials;
        self.release(before);
        self.evict();
        is_other
    }

    /// Records that a look-up of this image failed. `is_refused`: the registry refused the credentials. If they are those
    /// of a pod, what an earlier look-up saw is not used any more. Transom's own may have expired, and all namespaces keep
    /// what is known.
    pub fn failed(&mut self, key: &ImageKey, namespace: &Arc<str>, is_refused: bool, now: Instant) {
        let credentials = self.credentials;
        let entry = self.entry(key, namespace);
        let times = entry.failure.map_or(0, |failure| failure.times);
        entry.failure = Some(FailedLookup {
            times: times.saturating_add(1),
            next: now + RETRY.after(times),
        });
        entry.credentials = credentials;
        if is_refused && key.access != Access::Shared {
            let before = entry.answer.take();
            self.release(before);
        }
        self.evict();
    }

    fn entry(&mut self, key: &ImageKey, namespace: &Arc<str>) -> &mut Entry {
        if !self.entries.contains_key(key) {
            self.uses += 1;
            let order = self.used.entry(Arc::clone(namespace)).or_default();
            order.insert(self.uses, key.clone());
            self.bytes += key.bytes() + OVERHEAD;
        }
        let new = || Entry {
            namespace: Arc::clone(namespace),
            used: self.uses,
            answer: None,
            failure: None,
            credentials: self.credentials,
        };
        self.entries.entry(key.clone()).or_insert_with(new)
    }

    /// Drops the content of an answer if no other one has it.
    fn release(&mut self, answer: Option<AnsweredLookup>) {
        let Some(content) = answer.and_then(|answer| answer.content) else {
            return;
        };
        let Some(known) = self.contents.get_mut(&content) else {
            return;
        };
        known.users -= 1;
        if known.users == 0 {
            self.bytes -= known.bytes;
            self.contents.remove(&content);
        }
    }

    /// Drops entries until the cache is within its bounds: the least recently used one of the namespace that has the
    /// most, so that a namespace with many images displaces its own.
    fn evict(&mut self) {
        while self.entries.len() > self.limits.entries || self.bytes > self.limits.bytes {
            let most = self.used.iter().max_by_key(|(_, order)| order.len());
            let Some(namespace) = most.map(|(namespace, _)| Arc::clone(namespace)) else {
                return;
            };
            let Some(order) = self.used.get_mut(&namespace) else {
                return;
            };
            let first = order.pop_first();
            if order.is_empty() {
                self.used.remove(&namespace);
            }
            let Some(entry) = first.and_then(|(_, key)| {
                self.bytes -= key.bytes() + OVERHEAD;
                self.entries.remove(&key)
            }) else {
                continue;
            };
            self.release(entry.answer);
        }
    }

    /// A duration without up to an eighth of it, so that what was looked up together does not expire together.
    fn jittered(&self, key: &ImageKey, whole: Duration) -> Duration {
        let random = u32::try_from(self.hashes.hash_one((key, self.uses)) % 1_024).unwrap_or_default();
        whole.saturating_sub(whole / 8 * random / 1_024)
    }
}

impl AnsweredLookup {
    /// What is known by this answer; `None` if it is not used any more. The facts name the time of the last look-up, or,
    /// for what is stored, of the first one with this content.
    fn recall(
        &self,
        contents: &HashMap<Arc<str>, Content>,
        origin: LookupOrigin,
        is_outdated: bool,
        now: Instant,
    ) -> Option<Recalled> {
        let age = now.saturating_duration_since(self.at);
        let is_review = origin == LookupOrigin::Review;
        let exists = self.content.is_some();
        let ttl = if is_review || !exists {
            self.ttl
        } else {
            STORED_TTL
        };
        let due = match age {
            _ if is_outdated || age >= ttl => Due::Now,
            _ if is_review && exists && age >= ttl / 2 => Due::Refresh,
            _ => Due::No,
        };
        // A review does not use an outdated answer that an image does not exist: it may have been pushed since.
        if age >= KEPT || (is_review && !exists && due == Due::Now) {
            return None;
        }
        let looked_up = if is_review { self.looked_up } else { self.first };
        let facts = match &self.content {
            Some(content) => contents.get(content)?.looked_up_at(looked_up),
            None => Arc::new(ImageFacts {
                looked_up,
                found: None,
            }),
        };
        let facts = Some(facts);
        Some(Recalled { facts, age, due })
    }
}

impl Content {
    /// The facts, as of another look-up that found the same.
    fn looked_up_at(&self, looked_up: Timestamp) -> Arc<ImageFacts> {
        if self.facts.looked_up == looked_up {
            return Arc::clone(&self.facts);
        }
        Arc::new(ImageFacts {
            looked_up,
            found: self.facts.found.clone(),
        })
    }
}

/// The number of variants whose configurations are known.
fn configurations(facts: &ImageFacts) -> usize {
    let variants = facts.found.iter().flat_map(|found| &found.variants);
    variants.filter(|variant| variant.config.is_some()).count()
}

/// An estimate of the memory of facts, in bytes.
fn estimated_bytes(facts: &ImageFacts) -> usize {
    let variant = |variant: &ImageVariant| {
        let config = variant.config.as_ref().map_or(0, |config| {
            let texts = config.volumes.iter().chain(&config.command);
            config.user.len() + texts.map(|text| text.len() + size_of::<String>()).sum::<usize>()
        });
        size_of::<ImageVariant>()
            + variant.os.len()
            + variant.architecture.len()
            + variant.digest.len()
            + (variant.layers.iter())
                .map(|layer| size_of::<ImageLayer>() + layer.digest.len())
                .sum::<usize>()
            + config
    };
    let found = facts.found.as_ref();
    size_of::<ImageFacts>()
        + found.map_or(0, |found| {
            found.digest.len() + found.variants.iter().map(variant).sum::<usize>()
        })
}

#[cfg(test)]
mod tests;
