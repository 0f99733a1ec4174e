//! The state of all look-ups: what is known, what waits and runs, and which registry answers. It does no IO and is
//! given the time; every collection in it is bounded.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::breaker::Breaker;
use super::cache::{CacheLimits, ImageCache, LookupOrigin};
use super::key::{Access, ImageKey};
use super::queue::{Job, JobQueue};
use crate::model::image_facts::ImageFacts;
use crate::process::token_bucket::TokenBucket;

/// The bounds of the cache.
const CACHE: CacheLimits = CacheLimits {
    entries: 20_000,
    bytes: 32 << 20,
};
/// Look-ups that wait, in all. Those of stored objects use at most half, here and in each namespace.
const QUEUED: usize = 2_048;
/// Look-ups of one namespace that wait.
const QUEUED_BY_NAMESPACE: usize = 512;
/// Look-ups that run at the same time.
const RUNNING: usize = 16;
/// Look-ups of one registry that run at the same time, once it has answered promptly.
const RUNNING_BY_REGISTRY: usize = 6;
/// Look-ups that run at the same time for all other registries together. Each of them has one: it can take half a
/// minute.
const RUNNING_NOT_PROMPT: usize = 6;
/// A look-up that takes less is prompt: an index with all its configurations takes less, from any continent.
const PROMPT: Duration = Duration::from_secs(5);
/// Look-ups of one registry per second, and the burst.
const REGISTRY_RATE: (u32, u32) = (20, 100);
/// Look-ups for the reviews of one namespace per second, and the burst.
pub const NAMESPACE_RATE: (u32, u32) = (5, 300);
/// Registries that are known at the same time: a pattern can match any number.
const REGISTRIES: usize = 1_024;
/// Namespaces that are counted separately at the same time.
const NAMESPACES: usize = 1_024;
/// All others are counted together. No namespace has this name.
const OTHERS: &str = "_others";

/// Why a look-up was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dropped {
    /// The queue is full.
    QueueFull,
    /// The namespace has too many look-ups waiting, or asks too often.
    NamespaceLimit,
    /// The registry does not answer at present.
    RegistryUnavailable,
    /// Too many registries match the patterns.
    TooManyRegistries,
}

impl Dropped {
    /// Every reason.
    pub const ALL: [Dropped; 4] = [
        Dropped::QueueFull,
        Dropped::NamespaceLimit,
        Dropped::RegistryUnavailable,
        Dropped::TooManyRegistries,
    ];

    /// The value of a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Dropped::QueueFull => "queue_full",
            Dropped::NamespaceLimit => "namespace_limit",
            Dropped::RegistryUnavailable => "registry_unavailable",
            Dropped::TooManyRegistries => "too_many_registries",
        }
    }
}

/// How a look-up ended.
#[derive(Debug)]
pub enum LookupOutcome {
    /// The registry answered.
    Answered(ImageFacts),
    /// The registry has the content that is known, at this time.
    Unchanged(Timestamp),
    /// The registry answered, and not about this image.
    ImageFailed {
        /// Why.
        message: String,
        /// Whether it refused the credentials.
        is_refused: bool,
    },
    /// The registry does not answer.
    RegistryFailed {
        /// Why.
        message: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
}

/// What to do next.
#[derive(Debug)]
pub enum Next {
    /// Run this look-up.
    Start(Job),
    /// Nothing before this time, if there is one, unless something is queued or ends.
    Wait(Option<Instant>),
}

/// A registry that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreachableRegistry {
    /// Its name, as in image references.
    pub registry: Arc<str>,
    /// For how long.
    pub since: Duration,
    /// The last reason.
    pub message: String,
}

/// A look-up that waits or runs.
#[derive(Debug)]
struct Pending {
    /// Dropped when the look-up ends.
    done: watch::Sender<()>,
    created: Instant,
    /// The namespace that asked first.
    namespace: Arc<str>,
    /// What asked; `Review` if any review did.
    origin: LookupOrigin,
}

impl Pending {
    fn of(job: &Job, origin: LookupOrigin, now: Instant) -> Self {
        Pending {
            done: watch::channel(()).0,
            created: now,
            namespace: Arc::clone(&job.namespace),
            origin,
        }
    }
}

#[derive(Debug)]
struct Registry {
    queue: JobQueue,
    breaker: Breaker,
    bucket: TokenBucket,
    /// The number of look-ups that run.
    running: usize,
    /// Whether its last look-up was answered, and within [`PROMPT`].
    is_prompt: bool,
    /// The look-up that finds out whether it answers again. It does not wait in the queue.
    trial: Option<Job>,
    used: Instant,
    /// Since when Transom's own credentials are refused what they could read before, and the reason.
    refused: Option<(Instant, String)>,
}

impl Registry {
    fn new(now: Instant) -> Self {
        Registry {
            queue: JobQueue::default(),
            breaker: Breaker::default(),
            bucket: TokenBucket::new(REGISTRY_RATE.0, REGISTRY_RATE.1),
            running: 0,
            is_prompt: false,
            trial: None,
            used: now,
            refused: None,
        }
    }

    /// The look-up to run next, and whether it waited in the queue. `not_prompt`: the look-ups that run for registries
    /// that are not prompt.
    ///
    /// # Errors
    /// None before this time, if there is one.
    fn next(&mut self, not_prompt: usize, now: Instant) -> Result<(Job, bool), Option<Instant>> {
        let has_slot = if self.is_prompt {
            self.running < RUNNING_BY_REGISTRY
        } else {
            self.running == 0 && not_prompt < RUNNING_NOT_PROMPT
        };
        let retry = self.breaker.retry().filter(|_| self.trial.is_some());
        let is_trial = retry.is_some_and(|retry| retry <= now);
        if !has_slot || (self.queue.is_empty() && !is_trial) {
            return Err(retry.filter(|retry| *retry > now));
        }
        self.bucket.take(now).map_err(|wait| Some(now + wait))?;
        let trial = self.trial.take_if(|_| is_trial);
        let is_queued = trial.is_none();
        let job = trial.or_else(|| self.queue.pop()).ok_or(None)?;
        self.running += 1;
        self.used = now;
        Ok((Job { since: now, ..job }, is_queued))
    }
}

/// What the end of a look-up changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Finished {
    /// Whether its registry answers again, which did not before.
    pub recovers: bool,
    /// Whether the image has another content than before, or one for the first time.
    pub has_changed: bool,
}

#[derive(Debug)]
struct Namespace {
    bucket: TokenBucket,
    queued: usize,
}

/// The state of all look-ups.
#[derive(Debug)]
pub struct ServiceState {
    /// What is known.
    pub cache: ImageCache,
    pending: HashMap<ImageKey, Pending>,
    registries: BTreeMap<Arc<str>, Registry>,
    namespaces: HashMap<Arc<str>, Namespace>,
    queued: usize,
    running: usize,
    /// The registry that was served last.
    last: Arc<str>,
}

impl ServiceState {
    /// Nothing is known.
    pub fn new() -> Self {
        ServiceState {
            cache: ImageCache::new(CACHE),
            pending: HashMap::new(),
            registries: BTreeMap::new(),
            namespaces: HashMap::new(),
            queued: 0,
            running: 0,
            last: "".into(),
        }
    }

    /// The number of look-ups that wait.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Resolves when the look-up of a key ends, if it waits or runs for less than `patience`.
    pub fn done(&self, key: &ImageKey, patience: Duration, now: Instant) -> Option<watch::Receiver<()>> {
        let pending = self.pending.get(key)?;
        let is_new = now.saturating_duration_since(pending.created) < patience;
        is_new.then(|| pending.done.subscribe())
    }

    /// Queues a look-up, if it does not wait or run yet. In the line of its namespace, those of reviews come first: pods
    /// may be created any moment.
    ///
    /// # Errors
    /// Why it was not queued.
    pub fn request(
        &mut self,
        key: &ImageKey,
        registry: &str,
        namespace: &str,
        origin: LookupOrigin,
        now: Instant,
    ) -> Result<(), Dropped> {
        let is_review = origin == LookupOrigin::Review;
        if let Some(pending) = self.pending.get_mut(key) {
            if is_review && pending.origin != origin {
                pending.origin = origin;
                if let Some(known) = self.registries.get_mut(registry) {
                    known.queue.advance(key, &pending.namespace);
                }
            }
            return Ok(());
        }
        let share = if is_review { 1 } else { 2 };
        if self.queued >= QUEUED / share {
            return Err(Dropped::QueueFull);
        }
        let known = self.registries.get(registry);
        if known.is_some_and(|known| known.breaker.is_open()) {
            return Err(Dropped::RegistryUnavailable);
        }
        // Before a registry is remembered: one namespace must not displace the registries of others.
        let (name, asking) = self.namespace(namespace, now);
        // The rate is for reviews only: the number of stored objects is bounded.
        if asking.queued >= QUEUED_BY_NAMESPACE / share || is_review && asking.bucket.take(now).is_err() {
            return Err(Dropped::NamespaceLimit);
        }
        let job = Job {
            key: key.clone(),
            registry: registry.into(),
            namespace: name,
            since: now,
        };
        let pending = Pending::of(&job, origin, now);
        self.registry(registry, now)?.queue.push(job, is_review);
        if let Some(asking) = self.namespaces.get_mut(&pending.namespace) {
            asking.queued += 1;
        }
        self.queued += 1;
        self.pending.insert(key.clone(), pending);
        Ok(())
    }

    /// The look-up to run next: of the registries in turn, and of the namespaces of each in turn.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.running >= RUNNING {
            return Next::Wait(None);
        }
        let not_prompt = (self.registries.values())
            .filter(|registry| !registry.is_prompt)
            .map(|registry| registry.running)
            .sum();
        let mut soonest: Option<Instant> = None;
        let last = Arc::clone(&self.last);
        for turn in [(Excluded(&last), Unbounded), (Unbounded, Included(&last))] {
            for (name, registry) in self.registries.range_mut::<Arc<str>, _>(turn) {
                match registry.next(not_prompt, now) {
                    Ok((job, is_queued)) => {
                        self.last = Arc::clone(name);
                        self.starts(&job, is_queued, now);
                        return Next::Start(job);
                    }
                    Err(at) => soonest = at.into_iter().chain(soonest).min(),
                }
            }
        }
        Next::Wait(soonest)
    }

    fn starts(&mut self, job: &Job, is_queued: bool, now: Instant) {
        self.running += 1;
        if is_queued {
            self.leaves_queue(job);
        }
        // A trial is pending only if it was requested again.
        let pending = || Pending::of(job, LookupOrigin::Stored, now);
        self.pending.entry(job.key.clone()).or_insert_with(pending);
    }

    fn leaves_queue(&mut self, job: &Job) {
        self.queued -= 1;
        if let Some(asking) = self.namespaces.get_mut(&job.namespace) {
            asking.queued -= 1;
        }
    }

    /// Records how a look-up ended.
    pub fn finish(&mut self, job: &Job, outcome: LookupOutcome, now: Instant) -> Finished {
        self.running = self.running.saturating_sub(1);
        // Those who wait continue when the state is unlocked.
        self.pending.remove(&job.key);
        let (key, namespace) = (&job.key, &job.namespace);
        let (mut refused, mut finished) = (None, Finished::default());
        let is_answer = matches!(outcome, LookupOutcome::Answered(_) | LookupOutcome::Unchanged(_));
        let failed = match outcome {
            LookupOutcome::Answered(facts) => {
                finished.has_changed = self.cache.answered(key, namespace, facts, now);
                None
            }
            LookupOutcome::Unchanged(looked_up) => {
                self.cache.unchanged(key, namespace, looked_up, now);
                None
            }
            LookupOutcome::ImageFailed { is_refused, message } => {
                // Transom's own credentials have expired if they are refused what they could read before.
                let was_readable = key.access == Access::Shared && self.cache.has_content(key);
                if is_refused && was_readable {
                    refused = Some(message);
                }
                self.cache.failed(key, namespace, is_refused, now);
                None
            }
            LookupOutcome::RegistryFailed { message, retry_after } => Some((message, retry_after)),
        };
        let Some(registry) = self.registries.get_mut(&job.registry) else {
            return finished;
        };
        registry.running = registry.running.saturating_sub(1);
        registry.is_prompt = failed.is_none() && now.saturating_duration_since(job.since) < PROMPT;
        let Some((message, retry_after)) = failed else {
            registry.trial = None;
            if is_answer && job.key.access == Access::Shared {
                registry.refused = None;
            } else if let Some(message) = refused {
                registry.refused.get_or_insert((now, message));
            }
            finished.recovers = registry.breaker.succeeded();
            return finished;
        };
        registry.breaker.failed(message, retry_after, now);
        registry.trial.get_or_insert_with(|| job.clone());
        if registry.breaker.is_open() {
            for job in registry.queue.drain() {
                self.leaves_queue(&job);
                self.pending.remove(&job.key);
            }
        }
        finished
    }

    /// The registries that have not answered, or have refused what Transom could read before, for at least this long.
    /// Without those that never answered, unless `named`: a wildcard matches names that do not exist.
    pub fn unreachable(
        &self,
        at_least: Duration,
        named: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<UnreachableRegistry> {
        let unreachable = self.registries.iter().filter_map(|(name, registry)| {
            let refused = registry.refused.as_ref();
            let refused = refused.map(|(since, message)| (*since, message.as_str()));
            let (since, message) = registry.breaker.failing().or(refused)?;
            let since = now.saturating_duration_since(since);
            let is_expected = registry.breaker.has_answered() || named(name);
            (since >= at_least && is_expected).then(|| UnreachableRegistry {
                registry: Arc::clone(name),
                since,
                message: message.to_owned(),
            })
        });
        unreachable.collect()
    }

    fn registry(&mut self, name: &str, now: Instant) -> Result<&mut Registry, Dropped> {
        if !self.registries.contains_key(name) && self.registries.len() >= REGISTRIES {
            self.forget_a_registry()?;
        }
        let known = self.registries.entry(name.into());
        Ok(known.or_insert_with(|| Registry::new(now)))
    }

    /// Forgets the registry that was used longest ago: first one that never answered.
    fn forget_a_registry(&mut self) -> Result<(), Dropped> {
        let idle = (self.registries.iter()).filter(|(_, it)| it.running == 0 && it.queue.is_empty());
        let first = idle.min_by_key(|(_, it)| (it.breaker.has_answered(), it.used));
        let name = first.map(|(name, _)| Arc::clone(name));
        let name = name.ok_or(Dropped::TooManyRegistries)?;
        self.registries.remove(&name);
        Ok(())
    }

    /// A namespace, and the name under which its look-ups are counted: its own, or a common one if too many namespaces
    /// ask at the same time.
    fn namespace(&mut self, name: &str, now: Instant) -> (Arc<str>, &mut Namespace) {
        let is_new = !self.namespaces.contains_key(name);
        if is_new && self.namespaces.len() >= NAMESPACES {
            self.namespaces
                .retain(|_, it| it.queued > 0 || !it.bucket.is_full(now));
        }
        let is_one_too_many = is_new && self.namespaces.len() >= NAMESPACES;
        let name: Arc<str> = if is_one_too_many { OTHERS } else { name }.into();
        let known = self.namespaces.entry(Arc::clone(&name));
        let asking = known.or_insert_with(|| Namespace {
            bucket: TokenBucket::new(NAMESPACE_RATE.0, NAMESPACE_RATE.1),
            queued: 0,
        });
        (name, asking)
    }
}

#[cfg(test)]
mod tests;
