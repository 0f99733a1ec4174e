//! The state of all look-ups: what is known, what waits and runs, and which registry answers. It does no IO and is
//! given the time; every collection in it is bounded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::breaker::Breaker;
use super::cache::{CacheLimits, ImageCache, KnownContent, LookupOrigin, Recalled};
use super::key::{Access, ImageKey};
use super::queue::{Job, JobQueue, Priority};
use crate::model::image_facts::ImageFacts;
use crate::process::token_bucket::TokenBucket;

/// The bounds of the service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLimits {
    /// The bounds of the cache.
    pub cache: CacheLimits,
    /// Look-ups that wait, in all.
    pub queued: usize,
    /// Look-ups that wait in the background, in all: the rest is for reviews.
    pub queued_background: usize,
    /// Look-ups of one namespace that wait.
    pub queued_by_namespace: usize,
    /// Look-ups that run at the same time.
    pub running: usize,
    /// Look-ups that run at the same time only for registries of which no other one runs: the rest of
    /// [`running`](Self::running) is for all.
    pub running_reserve: usize,
    /// Look-ups of one registry that run at the same time.
    pub running_by_registry: usize,
    /// The same for a registry that is slow, fails, or has not answered yet.
    pub running_by_slow_registry: usize,
    /// Look-ups of all such registries together that run at the same time.
    pub running_by_slow_registries: usize,
    /// Look-ups for one namespace that run at the same time.
    pub running_by_namespace: usize,
    /// Look-ups of one registry per second, and the burst.
    pub registry_rate: (u32, u32),
    /// Look-ups for one namespace per second, and the burst.
    pub namespace_rate: (u32, u32),
    /// Registries that are known at the same time: a pattern can match any number.
    pub registries: usize,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        ServiceLimits {
            cache: CacheLimits {
                entries: 20_000,
                bytes: 32 << 20,
            },
            queued: 2_048,
            queued_background: 1_536,
            queued_by_namespace: 512,
            running: 16,
            running_reserve: 4,
            running_by_registry: 8,
            running_by_slow_registry: 2,
            running_by_slow_registries: 6,
            running_by_namespace: 8,
            registry_rate: (20, 100),
            namespace_rate: (5, 300),
            registries: 1_024,
        }
    }
}

/// From which time on a look-up is slow: an index with all its configurations takes less, from any continent.
const SLOW: Duration = Duration::from_secs(5);
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
    /// Nothing before this time, unless something is queued or ends.
    At(Instant),
    /// Nothing until something is queued or ends.
    Idle,
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

/// A look-up that waits or runs, for those who wait for it.
#[derive(Debug)]
struct Pending {
    /// Dropped when the look-up ends.
    done: watch::Sender<()>,
    registry: Arc<str>,
    namespace: Arc<str>,
    priority: Priority,
    created: Instant,
}

impl Pending {
    fn of(job: &Job) -> Self {
        Pending {
            done: watch::channel(()).0,
            registry: Arc::clone(&job.registry),
            namespace: Arc::clone(&job.namespace),
            priority: job.priority,
            created: job.created,
        }
    }
}

#[derive(Debug)]
struct Registry {
    queue: JobQueue,
    breaker: Breaker,
    bucket: TokenBucket,
    /// The look-ups that run, with the times at which they began.
    running: HashMap<ImageKey, Instant>,
    /// Whether its last look-up was answered, and within [`SLOW`].
    is_prompt: bool,
    /// The look-up that finds out whether it answers again.
    trial: Option<Job>,
    used: Instant,
    /// Since when Transom's own credentials are refused what they could read before, and the reason.
    refused: Option<(Instant, String)>,
}

impl Registry {
    /// Whether it is slow, fails, or has not answered yet: its look-ups hold their slots for long.
    fn is_slow(&self, now: Instant) -> bool {
        let mut began = self.running.values();
        !self.is_prompt || began.any(|began| now.saturating_duration_since(*began) >= SLOW)
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
    running: usize,
    used: Instant,
}

/// The state of all look-ups.
#[derive(Debug)]
pub struct ServiceState {
    limits: ServiceLimits,
    cache: ImageCache,
    pending: HashMap<ImageKey, Pending>,
    registries: BTreeMap<Arc<str>, Registry>,
    namespaces: HashMap<Arc<str>, Namespace>,
    queued: usize,
    running: usize,
    /// The registry that was served last.
    last: Option<Arc<str>>,
}

impl ServiceState {
    /// Nothing is known.
    pub fn new(limits: ServiceLimits) -> Self {
        ServiceState {
            cache: ImageCache::new(limits.cache),
            limits,
            pending: HashMap::new(),
            registries: BTreeMap::new(),
            namespaces: HashMap::new(),
            queued: 0,
            running: 0,
            last: None,
        }
    }

    /// The cache.
    pub fn cache(&self) -> &ImageCache {
        &self.cache
    }

    /// The number of look-ups that wait.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// What is known of an image.
    pub fn recall(&mut self, key: &ImageKey, origin: LookupOrigin, now: Instant) -> Recalled {
        self.cache.recall(key, origin, now)
    }

    /// See [`ImageCache::doubt`].
    pub fn doubt(&mut self, key: &ImageKey, at_least: Duration, now: Instant) -> bool {
        self.cache.doubt(key, at_least, now)
    }

    /// See [`ImageCache::known_content`].
    pub fn known_content(&mut self, key: &ImageKey) -> Option<KnownContent> {
        self.cache.known_content(key)
    }

    /// Transom's credentials have changed.
    pub fn credentials_changed(&mut self) {
        self.cache.credentials_changed();
    }

    /// Resolves when the look-up of a key ends, if it waits or runs for less than `patience`.
    pub fn done(&self, key: &ImageKey, patience: Duration, now: Instant) -> Option<watch::Receiver<()>> {
        let pending = self.pending.get(key)?;
        let is_new = now.saturating_duration_since(pending.created) < patience;
        is_new.then(|| pending.done.subscribe())
    }

    /// Queues a look-up, if it does not wait or run yet.
    ///
    /// # Errors
    /// Why it was not queued.
    pub fn request(
        &mut self,
        key: &ImageKey,
        registry: &str,
        namespace: &str,
        priority: Priority,
        now: Instant,
    ) -> Result<(), Dropped> {
        if let Some(pending) = self.pending.get_mut(key) {
            if priority < pending.priority {
                pending.priority = priority;
                if let Some(known) = self.registries.get_mut(&pending.registry) {
                    known.queue.promote(key, &pending.namespace);
                }
            }
            return Ok(());
        }
        let most = match priority {
            Priority::Review => self.limits.queued,
            Priority::Background => self.limits.queued_background,
        };
        if self.queued >= most {
            return Err(Dropped::QueueFull);
        }
        let known = self.registries.get(registry);
        if known.is_some_and(|known| known.breaker.is_open()) {
            return Err(Dropped::RegistryUnavailable);
        }
        // Before a registry is remembered: one namespace must not displace the registries of others.
        let share = self.limits.queued_by_namespace;
        let namespace = self.share_of(namespace, now);
        let asking = self.namespace(&namespace, now);
        // What is stored is bounded by its share and by the rate of its registry; the rate of the namespace is for reviews.
        let has_room = match priority {
            Priority::Review => asking.queued < share && asking.bucket.take(now).is_ok(),
            Priority::Background => asking.queued < share / 2,
        };
        if !has_room {
            return Err(Dropped::NamespaceLimit);
        }
        let job = Job {
            key: key.clone(),
            registry: registry.into(),
            namespace: Arc::clone(&namespace),
            priority,
            created: now,
        };
        let pending = Pending::of(&job);
        self.registry(registry, now)?.queue.push(job);
        self.pending.insert(key.clone(), pending);
        self.namespace(&namespace, now).queued += 1;
        self.queued += 1;
        Ok(())
    }

    /// The look-up to run next.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.running >= self.limits.running {
            return Next::Idle;
        }
        let mut soonest: Option<Instant> = None;
        let last = self.last.clone();
        let slow: usize = (self.registries.values())
            .filter(|registry| registry.is_slow(now))
            .map(|registry| registry.running.len())
            .sum();
        // The registries after the last one, and then those up to it.
        let after = |name: &Arc<str>| last.as_ref().is_none_or(|last| name > last);
        let names: Vec<Arc<str>> = (self.registries.keys().filter(|name| after(name)))
            .chain(self.registries.keys().filter(|name| !after(name)))
            .cloned()
            .collect();
        for name in names {
            match self.next_of(&name, slow, now) {
                Next::Start(job) => {
                    self.last = Some(name);
                    return Next::Start(job);
                }
                Next::At(at) => soonest = Some(soonest.map_or(at, |soonest| soonest.min(at))),
                Next::Idle => (),
            }
        }
        soonest.map_or(Next::Idle, Next::At)
    }

    /// Whether a registry has a slot for one more look-up. One that is slow holds its slots for up to half a minute each,
    /// so that it gets few, and all of these together leave most slots to the others. `slow`: the look-ups of slow
    /// registries that run.
    fn has_slot(&self, registry: &Registry, slow: usize, now: Instant) -> bool {
        let limits = &self.limits;
        let own = registry.running.len();
        if own > 0 && self.running + limits.running_reserve >= limits.running {
            return false;
        }
        if registry.is_slow(now) {
            own < limits.running_by_slow_registry && slow < limits.running_by_slow_registries
        } else {
            own < limits.running_by_registry
        }
    }

    /// The look-up of a registry to run next. `slow`: the look-ups of slow registries that run.
    fn next_of(&mut self, name: &Arc<str>, slow: usize, now: Instant) -> Next {
        let has_slot = (self.registries.get(name)).is_some_and(|registry| self.has_slot(registry, slow, now));
        let namespaces = &self.namespaces;
        let most = self.limits.running_by_namespace;
        let may = |name: &str| namespaces.get(name).is_none_or(|it| it.running < most);
        let Some(registry) = self.registries.get_mut(name) else {
            return Next::Idle;
        };
        let trial = registry.breaker.retry().filter(|_| registry.trial.is_some());
        let is_trial = trial.is_some_and(|retry| retry <= now);
        let has_job = !registry.breaker.is_open() && registry.queue.has(may);
        if !has_slot || !(is_trial || has_job) {
            return trial.filter(|retry| *retry > now).map_or(Next::Idle, Next::At);
        }
        if let Err(wait) = registry.bucket.take(now) {
            return Next::At(now + wait);
        }
        let trial = registry.trial.take_if(|_| is_trial);
        // The same image may have been requested again meanwhile.
        let job = if let Some(job) = trial.filter(|job| !self.pending.contains_key(&job.key)) {
            let job = Job { created: now, ..job };
            self.pending.insert(job.key.clone(), Pending::of(&job));
            job
        } else {
            let Some(job) = registry.queue.pop(may) else {
                return Next::Idle;
            };
            self.queued -= 1;
            if let Some(asking) = self.namespaces.get_mut(&job.namespace) {
                asking.queued -= 1;
            }
            job
        };
        registry.running.insert(job.key.clone(), now);
        registry.used = now;
        self.running += 1;
        self.namespace(&Arc::clone(&job.namespace), now).running += 1;
        Next::Start(job)
    }

    /// Records how a look-up ended.
    pub fn finish(&mut self, job: &Job, outcome: LookupOutcome, now: Instant) -> Finished {
        self.running = self.running.saturating_sub(1);
        if let Some(asking) = self.namespaces.get_mut(&job.namespace) {
            asking.running = asking.running.saturating_sub(1);
        }
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
        let began = registry.running.remove(key);
        let is_timely = began.is_some_and(|began| now.saturating_duration_since(began) < SLOW);
        registry.is_prompt = failed.is_none() && is_timely;
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
        registry.trial.get_or_insert_with(|| Job {
            priority: Priority::Background,
            ..job.clone()
        });
        if registry.breaker.is_open() {
            let dropped = registry.queue.drain();
            for job in dropped {
                self.queued -= 1;
                self.pending.remove(&job.key);
                if let Some(asking) = self.namespaces.get_mut(&job.namespace) {
                    asking.queued -= 1;
                }
            }
        }
        finished
    }

    /// The registries that have not answered, or have refused what Transom could read before, for at least this long. Without those that never answered, unless `named`:
    /// a wildcard matches names that do not exist.
    pub fn unreachable(
        &self,
        at_least: Duration,
        named: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<UnreachableRegistry> {
        let unreachable = self.registries.iter().filter_map(|(name, registry)| {
            let refused = || {
                registry
                    .refused
                    .as_ref()
                    .map(|(since, message)| (*since, message.as_str()))
            };
            let (since, message) = registry.breaker.failing().or_else(refused)?;
            let since = now.saturating_duration_since(since);
            let counts = registry.breaker.has_answered() || named(name);
            (since >= at_least && counts).then(|| UnreachableRegistry {
                registry: Arc::clone(name),
                since,
                message: message.to_owned(),
            })
        });
        unreachable.collect()
    }

    fn registry(&mut self, name: &str, now: Instant) -> Result<&mut Registry, Dropped> {
        if !self.registries.contains_key(name) {
            if self.registries.len() >= self.limits.registries {
                self.forget_a_registry()?;
            }
            let (rate, burst) = self.limits.registry_rate;
            let new = Registry {
                queue: JobQueue::default(),
                breaker: Breaker::default(),
                bucket: TokenBucket::new(rate, burst),
                running: HashMap::new(),
                is_prompt: false,
                trial: None,
                refused: None,
                used: now,
            };
            self.registries.insert(name.into(), new);
        }
        self.registries.get_mut(name).ok_or(Dropped::TooManyRegistries)
    }

    /// Forgets the registry that was used longest ago: first one that never answered.
    fn forget_a_registry(&mut self) -> Result<(), Dropped> {
        let idle = (self.registries.iter()).filter(|(_, it)| it.running.is_empty() && it.queue.is_empty());
        let first = idle.min_by_key(|(_, it)| (it.breaker.has_answered(), it.used));
        let name = first.map(|(name, _)| Arc::clone(name));
        let name = name.ok_or(Dropped::TooManyRegistries)?;
        self.registries.remove(&name);
        Ok(())
    }

    /// The name under which the look-ups for a namespace are counted: its own, or a common one if too many namespaces
    /// ask at the same time.
    fn share_of(&mut self, name: &str, now: Instant) -> Arc<str> {
        if let Some((known, _)) = self.namespaces.get_key_value(name) {
            return Arc::clone(known);
        }
        if self.namespaces.len() >= NAMESPACES {
            let (rate, burst) = self.limits.namespace_rate;
            // After this time without a look-up its burst is full again.
            let full = Duration::from_secs(u64::from(burst / rate.max(1)) + 1);
            self.namespaces
                .retain(|_, it| it.queued + it.running > 0 || now.saturating_duration_since(it.used) < full);
        }
        if self.namespaces.len() >= NAMESPACES {
            return OTHERS.into();
        }
        name.into()
    }

    fn namespace(&mut self, name: &Arc<str>, now: Instant) -> &mut Namespace {
        let (rate, burst) = self.limits.namespace_rate;
        let known = self
            .namespaces
            .entry(Arc::clone(name))
            .or_insert_with(|| Namespace {
                bucket: TokenBucket::new(rate, burst),
                queued: 0,
                running: 0,
                used: now,
            });
        known.used = now;
        known
    }
}

#[cfg(test)]
mod tests;
