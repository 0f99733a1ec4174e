//! The metrics of look-ups, and their log: one line per pattern of registries and minute. All labels come from the
//! configuration.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use tokio::time::Instant;

use super::state::{Dropped, LookupOutcome, UnreachableRegistry};
use crate::model::registry_patterns::RegistryPatterns;
use crate::process::metrics::Metrics;

/// How often a failing registry is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// For how long the maximum age of what was used is shown.
const AGE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// From an answer of this machine to the timeout of a look-up.
const BUCKETS: [f64; 10] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LookupLabels {
    registry: String,
    outcome: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RegistryLabels {
    registry: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The metrics, by the patterns of the allow-list.
#[derive(Debug)]
pub struct LookupMetrics {
    registries: RegistryPatterns,
    lookups: Family<LookupLabels, Counter>,
    durations: Family<RegistryLabels, Histogram, fn() -> Histogram>,
    unreachable: Family<RegistryLabels, Gauge>,
    dropped: Family<ReasonLabels, Counter>,
    entries: Gauge,
    bytes: Gauge,
    queued: Gauge,
    age: Gauge,
    /// The maximum age since a time, and that of the time before.
    ages: Mutex<[(Option<Instant>, Duration); 2]>,
    /// By pattern: when it was logged last, and the failures since.
    logged: Mutex<HashMap<String, (Instant, u64)>>,
}

impl LookupOutcome {
    /// Every value of the label.
    const ALL: [&str; 4] = ["found", "missing", "failed", "unreachable"];

    /// The value of the label.
    fn as_str(&self) -> &'static str {
        match self {
            LookupOutcome::Answered(facts) if facts.found.is_none() => "missing",
            LookupOutcome::Answered(_) | LookupOutcome::Unchanged(_) => "found",
            LookupOutcome::ImageFailed { .. } => "failed",
            LookupOutcome::RegistryFailed { .. } => "unreachable",
        }
    }

    /// Why it failed.
    fn failure(&self) -> Option<&str> {
        match self {
            LookupOutcome::Answered(_) | LookupOutcome::Unchanged(_) => None,
            LookupOutcome::ImageFailed { message, .. } | LookupOutcome::RegistryFailed { message, .. } => {
                Some(message)
            }
        }
    }
}

impl LookupMetrics {
    /// All metrics at zero.
    pub fn new(metrics: &Metrics, registries: &RegistryPatterns) -> Self {
        let all = metrics.register(|registry| LookupMetrics {
            registries: registries.clone(),
            lookups: registered(
                registry,
                "image_lookups",
                "Look-ups of images in registries, by the pattern that lists the registry",
                Family::default(),
            ),
            durations: registered(
                registry,
                "image_lookup_duration_seconds",
                "Duration of a look-up of an image, with all its requests",
                Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            ),
            unreachable: registered(
                registry,
                "image_registries_unreachable",
                "Registries that have not answered for five minutes, by the pattern that lists them",
                Family::default(),
            ),
            dropped: registered(
                registry,
                "image_lookups_dropped",
                "Look-ups of images that were not queued",
                Family::default(),
            ),
            entries: registered(
                registry,
                "image_cache_entries",
                "Image references in the cache",
                Gauge::default(),
            ),
            bytes: registered(
                registry,
                "image_cache_bytes",
                "Estimated memory of the cache of images",
                Gauge::default(),
            ),
            queued: registered(
                registry,
                "image_lookups_queued",
                "Look-ups of images that wait",
                Gauge::default(),
            ),
            age: registered(
                registry,
                "image_facts_max_age_seconds",
                "Age of the oldest facts of an image that a review used in the last five to ten minutes",
                Gauge::default(),
            ),
            ages: Mutex::default(),
            logged: Mutex::default(),
        });
        for registry in registries.iter().map(ToString::to_string) {
            for outcome in LookupOutcome::ALL {
                let registry = registry.clone();
                (all.lookups).get_or_create_owned(&LookupLabels { registry, outcome });
            }
            let labels = RegistryLabels { registry };
            all.durations.get_or_create_owned(&labels);
            all.unreachable.get_or_create_owned(&labels);
        }
        for why in Dropped::ALL.map(Dropped::as_str) {
            all.dropped.get_or_create_owned(&ReasonLabels { reason: why });
        }
        all
    }

    /// The pattern that lists a registry.
    fn pattern(&self, registry: &str) -> String {
        let pattern = self.registries.iter().find(|pattern| pattern.matches(registry));
        pattern.map_or_else(String::new, ToString::to_string)
    }

    /// Counts a look-up in a registry, and logs its failure.
    pub fn looked_up(&self, name: &str, outcome: &LookupOutcome, took: Duration, now: Instant) {
        let registry = self.pattern(name);
        let labels = RegistryLabels { registry };
        (self.durations.get_or_create(&labels)).observe(took.as_secs_f64());
        let RegistryLabels { registry } = labels;
        if let Some(why) = outcome.failure() {
            self.log(&registry, name, why, now);
        }
        let outcome = outcome.as_str();
        (self.lookups.get_or_create(&LookupLabels { registry, outcome })).inc();
    }

    /// Counts a look-up that was not queued.
    pub fn dropped(&self, why: Dropped) {
        let reason = why.as_str();
        self.dropped.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Records the age of the oldest facts that a review used.
    pub fn served(&self, age: Duration, now: Instant) {
        let mut ages = locked(&self.ages);
        let [current, before] = &mut *ages;
        match current.0 {
            Some(since) if now.saturating_duration_since(since) < AGE_WINDOW => {
                current.1 = current.1.max(age);
            }
            _ => {
                *before = *current;
                *current = (Some(now), age);
            }
        }
        let oldest = current.1.max(before.1);
        self.age.set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
    }

    /// Shows the size of the cache and of the queue, and which registries are unreachable.
    pub fn show(
        &self,
        (entries, bytes, queued): (usize, usize, usize),
        unreachable: &[UnreachableRegistry],
        now: Instant,
    ) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.entries.set(number(entries));
        self.bytes.set(number(bytes));
        self.queued.set(number(queued));
        self.served(Duration::ZERO, now);
        for registry in self.registries.iter().map(ToString::to_string) {
            let of_pattern = unreachable
                .iter()
                .filter(|it| self.pattern(&it.registry) == registry);
            let count = number(of_pattern.count());
            (self.unreachable.get_or_create(&RegistryLabels { registry })).set(count);
        }
    }

    /// Logs a failed look-up, at most once a minute for each pattern.
    fn log(&self, pattern: &str, registry: &str, why: &str, now: Instant) {
        let more = match locked(&self.logged).get_mut(pattern) {
            Some((last, more)) if now.saturating_duration_since(*last) < LOG_EVERY => {
                *more += 1;
                return;
            }
            Some((_, more)) => *more,
            None => 0,
        };
        locked(&self.logged).insert(pattern.to_owned(), (now, 0));
        tracing::warn!(
            registry,
            failed_since_last_line = more,
            "cannot look up an image: {why}"
        );
    }
}

fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
