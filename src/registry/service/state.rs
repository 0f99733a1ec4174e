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
use super::queue::{Job, JobQueue};
use crate::model::registry_patterns::RegistryPatterns;
use crate::model::string_enum::string_enum;
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
    breaker: Breaker,
    /// The number of look-ups that run.
    running: usize,
    /// Whether its last look-up was answered, and within [`PROMPT`].
    is_prompt: bool,
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
        let is_tried = self.is_expected() || self.running > 0;
        self.breaker.is_open() && (is_tried || self.breaker.retry().is_some_and(|retry| retry > now))
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
    /// What is known.
    pub cache: ImageCache,
    patterns: RegistryPatterns,
    pending: HashMap<ImageKey, Pending>,
    queue: JobQueue,
    registries: BTreeMap<Arc<str>, Registry>,
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
        let known = self.registries.get(&job.registry);
        if known.is_some_and(|registry| registry.refuses(now)) {
            return Err(Dropped::RegistryUnavailable);
        }
        // No number of namespaces takes all places: each leaves as many free as it has.
        match PENDING.saturating_sub(self.pending.len()) {
            0 => Err(Dropped::QueueFull),
            free if self.queue.len_of(&job.namespace) >= free => Err(Dropped::NamespaceLimit),
            _ => Ok(Some(self.push(job, now + PATIENCE))),
        }
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
            running += registry.running;
            slow += if registry.is_prompt { 0 } else { registry.running };
        }
        let has_slot = |registry: Option<&Registry>| match registry {
            Some(registry) if registry.is_prompt => registry.running < SHARE,
            other => slow < SHARE && other.is_none_or(|registry| registry.running == 0),
        };
        let job = self.queue.pop(|job| {
            if running >= RUNNING || !has_slot(self.registries.get(&job.registry)) {
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
        registry.running += 1;
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
        let registry = self.registry(&job.registry, now);
        registry.running = registry.running.saturating_sub(1);
        registry.is_prompt = took < PROMPT;
        if is_answer && is_shared {
            registry.refused = None;
        } else if let Some(message) = refused {
            registry.refused.get_or_insert((now, message));
        }
        let was_failing = registry.breaker.retry().is_some();
        finished.recovers = registry.breaker.succeeded();
        if was_failing {
            // It answers, so what is tried again later need not find that out.
            self.drop_waiting(&job.registry, |waiting| waiting.due > now);
        }
        finished
    }

    /// Tries again later with what has failed last, and drops what waits for the registry if it has failed repeatedly.
    fn registry_failed(&mut self, job: &Job, error: LookupError, now: Instant) {
        let registry = self.registry(&job.registry, now);
        registry.running = registry.running.saturating_sub(1);
        registry.is_prompt = false;
        let due = registry.breaker.failed(error.message, error.retry_after, now);
        // A name that only a wildcard matches is given up after a few minutes, until a pod needs it.
        let is_tried = registry.is_expected() || due < now + LONGEST_PAUSE;
        let is_open = registry.breaker.is_open();
        self.drop_waiting(&job.registry, |waiting| is_open || waiting.due > now);
        if is_tried {
            self.push(Job { due, ..job.clone() }, now);
        }
    }

    fn drop_waiting(&mut self, registry: &Arc<str>, is_dropped: impl Fn(&Job) -> bool) {
        self.queue.retain(|waiting| {
            let is_kept = waiting.registry != *registry || !is_dropped(waiting);
            if !is_kept {
                self.pending.remove(&waiting.key);
            }
            is_kept
        });
    }

    /// The registries that should answer and have not, or have refused what Transom could read before, for at least this
    /// long.
    pub fn unreachable(&self, at_least: Duration, now: Instant) -> Vec<UnreachableRegistry> {
        let unreachable = self.registries.iter().filter_map(|(name, registry)| {
            let refused = registry.refused.as_ref();
            let refused = refused.map(|(since, message)| (*since, message.as_str()));
            let (since, message) = registry.breaker.failing().or(refused)?;
            let is_long = now.saturating_duration_since(since) >= at_least;
            (is_long && registry.is_expected()).then(|| UnreachableRegistry {
                registry: Arc::clone(name),
                message: message.to_owned(),
            })
        });
        unreachable.collect()
    }

    /// A registry. If there are too many, the one that was used longest ago is forgotten: first one that need not answer.
    fn registry(&mut self, name: &Arc<str>, now: Instant) -> &mut Registry {
        if self.registries.len() >= REGISTRIES && !self.registries.contains_key(name) {
            let idle = self.registries.iter().filter(|(_, it)| it.running == 0);
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
            running: 0,
            is_prompt: false,
            is_named: is_named(name),
            used: now,
            refused: None,
        };
        self.registries.entry(Arc::clone(name)).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests;
