//! The state of all look-ups: what is known, what waits and runs, and which registry answers. It does no IO and is
//! given the time; every collection in it is bounded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::breaker::{Breaker, LONGEST_PAUSE};
use super::cache::{CacheLimits, ImageCache};
use super::key::{Access, ImageKey};
use super::outages::{FailedRepositories, RegistryUse, UsedRepository};
use super::queue::{Job, JobQueue};
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::process::token_bucket::TokenBucket;
use crate::registry::{ImageChange, LookupError, LookupScope};

/// The bounds of the cache: memory.
const CACHE: CacheLimits = CacheLimits {
    entries: 20_000,
    bytes: 32 << 20,
};
/// Look-ups that wait or run: memory, and the last one begins within two minutes.
const PENDING: usize = 2_048;
/// Look-ups that run at the same time: each holds up to 4 MiB of an answer.
const RUNNING: usize = 16;
/// Of these, how many are for one registry, and for all registries together that are not prompt: the rest stays free for
/// others.
const SHARE: usize = 6;
/// A look-up that takes less is prompt: an index with all its configurations takes less, from any continent.
const PROMPT: Duration = Duration::from_secs(5);
/// Look-ups per second, and the burst: what a registry gets at most, and the work of this process.
const RATE: (u32, u32) = (20, 100);
/// Registries whose state is remembered: a pattern can match any number.
const REGISTRIES: usize = 1_024;
/// After how long a look-up is not waited for any more: the reviews of one object wait for it once.
pub const PATIENCE: Duration = Duration::from_millis(500);

string_enum! {
    /// Why a look-up was not queued, by the value of a metric's label.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Dropped {
        /// The queue is full.
        QueueFull = "queue_full",
        /// As many look-ups of the namespace wait as the queue has free places.
        NamespaceLimit = "namespace_limit",
        /// The registry does not answer at present.
        RegistryUnavailable = "registry_unavailable",
    }
}

/// A registry that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreachableRegistry {
    /// Its name, as in image references.
    pub registry: Arc<str>,
    /// The last reason.
    pub message: String,
}

/// Resolves, with an error, when a look-up ends.
pub type LookupEnd = watch::Receiver<()>;

/// A look-up that waits or runs.
#[derive(Debug)]
struct Pending {
    /// Dropped when the look-up ends.
    end: watch::Sender<()>,
    /// Until when reviews wait for it.
    awaited: Instant,
}

#[derive(Debug)]
struct Registry {
    /// When it is tried again, and why: whether it is down, its users decide.
    breaker: Breaker,
    users: RegistryUse,
    /// The namespaces of the look-ups that run.
    running: Vec<Arc<str>>,
    /// Whether it has asked for fewer requests since its last answer.
    is_limited: bool,
    /// Whether a pattern without a wildcard lists it.
    is_named: bool,
    used: Instant,
    /// Since when Transom's own credentials are refused what they could read before, and the reason.
    refused: Option<(Instant, String)>,
}

impl Registry {
    /// Whether it should answer: a wildcard also matches names that do not exist.
    fn is_expected(&self) -> bool {
        self.is_named || self.breaker.has_answered()
    }

    /// Whether new look-ups are refused: the next attempt is not due yet, or is another look-up.
    fn refuses(&self, now: Instant) -> bool {
        let is_tried = self.is_expected() || !self.running.is_empty();
        self.users.is_down() && (is_tried || self.breaker.retry().is_some_and(|retry| retry > now))
    }

    /// Whether its look-ups are answered, and within [`PROMPT`].
    fn is_prompt(&self) -> bool {
        self.breaker.has_answered() && !self.users.is_slow() && !self.is_limited
    }

    /// How many of its look-ups that run take the slots of registries that are not prompt.
    fn slow_running(&self) -> usize {
        let is_slow = |namespace: &&Arc<str>| !self.is_prompt() || self.users.is_slow_for(namespace);
        self.running.iter().filter(is_slow).count()
    }

    /// Whether a look-up for a namespace may begin: one at a time if answers are late. `slow`: how many late ones run in all.
    fn has_slot(&self, namespace: &Arc<str>, slow: usize) -> bool {
        if !self.is_prompt() {
            return slow < SHARE && self.running.is_empty();
        }
        let is_late = self.users.is_slow_for(namespace);
        let is_free = !is_late || (slow < SHARE && !self.running.contains(namespace));
        is_free && self.running.len() < SHARE
    }

    fn ended(&mut self, namespace: &Arc<str>) {
        if let Some(at) = self.running.iter().position(|running| running == namespace) {
            self.running.swap_remove(at);
        }
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

/// The state of all look-ups.
#[derive(Debug)]
pub struct ServiceState {
    pub cache: ImageCache,
    patterns: RegistryPatterns,
    pending: HashMap<ImageKey, Pending>,
    queue: JobQueue,
    registries: BTreeMap<Arc<str>, Registry>,
    repositories: FailedRepositories,
    bucket: TokenBucket,
}

impl ServiceState {
    /// Nothing is known. `patterns`: the registries that may be asked.
    pub fn new(patterns: RegistryPatterns) -> Self {
        ServiceState {
            cache: ImageCache::new(CACHE),
            patterns,
            pending: HashMap::new(),
            queue: JobQueue::default(),
            registries: BTreeMap::new(),
            repositories: FailedRepositories::default(),
            bucket: TokenBucket::new(RATE.0, RATE.1),
        }
    }

    /// The number of look-ups that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Queues a look-up, if it does not wait or run yet. Returns its end, if a review may wait for it.
    ///
    /// # Errors
    /// Why it was not queued.
    pub fn request(&mut self, job: Job) -> Result<Option<LookupEnd>, Dropped> {
        let now = job.due;
        if let Some(pending) = self.pending.get(&job.key) {
            return Ok((now < pending.awaited).then(|| pending.end.subscribe()));
        }
        if let Some(registry) = self.registries.get_mut(&job.registry) {
            registry.users.used_by(&job.namespace, now);
            if registry.refuses(now) {
                return if self.probe_with(job) {
                    Ok(None)
                } else {
                    Err(Dropped::RegistryUnavailable)
                };
            }
        }
        if self.repositories.refuse(&job, now) {
            return Err(Dropped::RegistryUnavailable);
        }
        // No number of namespaces takes all places: each leaves as many free as it has.
        match PENDING.saturating_sub(self.pending.len()) {
            0 => Err(Dropped::QueueFull),
            free if self.queue.len_of(&job.namespace) >= free => Err(Dropped::NamespaceLimit),
            _ => Ok(Some(self.push(job, now + PATIENCE))),
        }
    }

    /// Finds out with a look-up whether a registry that is down answers again, instead of with those of namespaces that have
    /// seen it fail. `false` if another one does already.
    fn probe_with(&mut self, job: Job) -> bool {
        let registry = self.registries.get(&job.registry);
        let due = registry.and_then(|registry| Some((registry, registry.breaker.retry()?)));
        let Some((registry, due)) = due else { return false };
        let failing = registry.users.failing().clone();
        if failing.contains(&job.namespace) {
            return false;
        }
        let are_replaced = self.drop_waiting(&job.registry, |waiting| failing.contains(&waiting.namespace));
        if are_replaced {
            self.push(Job { due, ..job }, due);
        }
        are_replaced
    }

    fn push(&mut self, job: Job, awaited: Instant) -> LookupEnd {
        let (end, ends) = watch::channel(());
        self.pending.insert(job.key.clone(), Pending { end, awaited });
        self.queue.push(job);
        ends
    }

    /// The look-up to run next.
    ///
    /// # Errors
    /// None before this time, if there is one, unless something is queued or ends.
    pub fn next(&mut self, now: Instant) -> Result<Job, Option<Instant>> {
        let (mut running, mut slow, mut soonest) = (0, 0, None::<Instant>);
        for registry in self.registries.values() {
            running += registry.running.len();
            slow += registry.slow_running();
        }
        let has_slot = |job: &Job| match self.registries.get(&job.registry) {
            Some(registry) => registry.has_slot(&job.namespace, slow),
            None => slow < SHARE,
        };
        let job = self.queue.pop(|job| {
            if running >= RUNNING || !has_slot(job) {
                return false;
            }
            let taken = match job.due.checked_duration_since(now) {
                Some(wait) if !wait.is_zero() => Err(wait),
                _ => self.bucket.take(now),
            };
            let Err(wait) = taken else { return true };
            soonest = soonest.into_iter().chain([now + wait]).min();
            false
        });
        let job = job.ok_or(soonest)?;
        let registry = self.registry(&job.registry, now);
        registry.running.push(Arc::clone(&job.namespace));
        registry.users.used_by(&job.namespace, now);
        registry.used = now;
        Ok(job)
    }

    /// Records how a look-up ended, after this time.
    pub fn finish(
        &mut self,
        job: &Job,
        result: Result<ImageChange, LookupError>,
        took: Duration,
        now: Instant,
    ) -> Finished {
        let Job { key, namespace, .. } = job;
        let is_shared = key.access == Access::Shared;
        let mut finished = Finished::default();
        // Those who wait continue when the state is unlocked.
        self.pending.remove(key);
        let mut refused = None;
        let is_answer = result.is_ok();
        match result {
            Ok(ImageChange::Changed(facts)) => {
                finished.has_changed = self.cache.answered(key, namespace, facts, now);
            }
            Ok(ImageChange::Unchanged(looked_up)) => self.cache.unchanged(key, namespace, looked_up, now),
            Err(error) if error.scope == LookupScope::Registry => {
                self.registry_failed(job, error, now);
                return finished;
            }
            Err(error) => {
                // Transom's own credentials have expired if they are refused what they could read before.
                let is_expired = error.is_refused && is_shared && self.cache.has_content(key);
                refused = is_expired.then_some(error.message);
                self.cache.failed(key, namespace, error.is_refused, now);
            }
        }
        self.repositories.answered(job);
        let registry = self.registry(&job.registry, now);
        registry.ended(namespace);
        registry.is_limited = false;
        if is_answer && is_shared {
            registry.refused = None;
        } else if let Some(message) = refused {
            registry.refused.get_or_insert((now, message));
        }
        let was_failing = registry.breaker.retry().is_some();
        registry.breaker.succeeded();
        finished.recovers = registry.users.answered(namespace, took < PROMPT);
        if was_failing {
            // It answers, so what is tried again later need not find that out.
            self.drop_waiting(&job.registry, |waiting| waiting.due > now);
        }
        finished
    }

    /// Tries again later with what has failed, and drops what waits for its repository if that has failed repeatedly; for the
    /// registry, if that is down.
    fn registry_failed(&mut self, job: &Job, error: LookupError, now: Instant) {
        let used = UsedRepository::of(job);
        let is_refused = self.repositories.failed(job, error.retry_after, now);
        let registry = self.registry(&job.registry, now);
        registry.ended(&job.namespace);
        registry.is_limited |= error.retry_after.is_some();
        registry.users.failed(job, is_refused);
        let is_down = registry.users.is_down();
        let is_paused = error.retry_after.is_some();
        // What a registry asks one namespace to do does not hold for all.
        let requested = error.retry_after.filter(|_| is_down);
        let due = registry.breaker.failed(error.message, requested, now);
        // A name that only a wildcard matches is given up after a few minutes, until a pod needs it.
        let is_tried = registry.is_expected() || due < now + LONGEST_PAUSE;
        let next = if is_down {
            registry.users.probe(job)
        } else {
            job.clone()
        };
        self.drop_waiting(&job.registry, |waiting| {
            let is_of_namespace = waiting.namespace == job.namespace;
            let is_of_repository = is_refused && is_of_namespace && UsedRepository::of(waiting) == used;
            is_down || is_of_repository || (is_of_namespace && (is_paused || waiting.due > now))
        });
        if is_tried && (is_down || !is_refused) && !self.pending.contains_key(&next.key) {
            self.push(Job { due, ..next }, now);
        }
    }

    /// Drops look-ups of a registry, which can then be requested again. Returns whether there were any.
    fn drop_waiting(&mut self, registry: &Arc<str>, is_dropped: impl Fn(&Job) -> bool) -> bool {
        let before = self.queue.len();
        self.queue.retain(|waiting| {
            let is_kept = waiting.registry != *registry || !is_dropped(waiting);
            if !is_kept {
                self.pending.remove(&waiting.key);
            }
            is_kept
        });
        self.queue.len() < before
    }

    /// The registries that should answer and have not, or have refused what Transom could read before, for at least this
    /// long.
    pub fn unreachable(&self, at_least: Duration, now: Instant) -> Vec<UnreachableRegistry> {
        let unreachable = self.registries.iter().filter_map(|(name, registry)| {
            let refused = registry.refused.as_ref();
            let refused = refused.map(|(since, message)| (*since, message.as_str()));
            let (since, message) = registry.breaker.failing().or(refused)?;
            let is_long = now.saturating_duration_since(since) >= at_least;
            let is_all = registry.users.is_down() || refused.is_some();
            (is_long && is_all && registry.is_expected()).then(|| UnreachableRegistry {
                registry: Arc::clone(name),
                message: message.to_owned(),
            })
        });
        unreachable.collect()
    }

    /// A registry. If there are too many, the one that was used longest ago is forgotten: first one that need not answer.
    fn registry(&mut self, name: &Arc<str>, now: Instant) -> &mut Registry {
        if self.registries.len() >= REGISTRIES && !self.registries.contains_key(name) {
            let idle = self.registries.iter().filter(|(_, it)| it.running.is_empty());
            let first = idle.min_by_key(|(_, it)| (it.is_expected(), it.used));
            if let Some(name) = first.map(|(name, _)| Arc::clone(name)) {
                self.registries.remove(&name);
            }
        }
        let is_named = |name: &str| {
            let mut patterns = self.patterns.iter();
            patterns.any(|pattern| !pattern.host().contains('*') && pattern.matches(name))
        };
        let new = || Registry {
            breaker: Breaker::default(),
            users: RegistryUse::default(),
            running: Vec::new(),
            is_limited: false,
            is_named: is_named(name),
            used: now,
            refused: None,
        };
        self.registries.entry(Arc::clone(name)).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests;
