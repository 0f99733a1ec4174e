//! The metrics of look-ups, and their log: one line per pattern of registries and minute. All labels come from the
//! configuration.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
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
    logged: Mutex<Vec<(Option<Instant>, u64)>>,
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
    pub fn failure(&self) -> Option<&str> {
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
        let all = LookupMetrics {
            registries: registries.clone(),
            lookups: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            unreachable: Family::default(),
            dropped: Family::default(),
            entries: Gauge::default(),
            bytes: Gauge::default(),
            queued: Gauge::default(),
            age: Gauge::default(),
            ages: Mutex::default(),
            logged: Mutex::new(vec![(None, 0); registries.iter().len()]),
        };
        for pattern in registries.iter() {
            for outcome in LookupOutcome::ALL {
                let registry = pattern.to_string();
                all.lookups
                    .get_or_create_owned(&LookupLabels { registry, outcome });
            }
            let labels = RegistryLabels {
                registry: pattern.to_string(),
            };
            all.durations.get_or_create_owned(&labels);
            all.unreachable.get_or_create(&labels).set(0);
        }
        for why in Dropped::ALL {
            all.dropped
                .get_or_create_owned(&ReasonLabels { reason: why.as_str() });
        }
        metrics.register(|registry| {
            registry.register(
                "image_lookups",
                "Look-ups of images in registries, by the pattern that lists the registry",
                all.lookups.clone(),
            );
            registry.register(
                "image_lookup_duration_seconds",
                "Duration of a look-up of an image, with all its requests",
                all.durations.clone(),
            );
            registry.register(
                "image_registries_unreachable",
                "Registries that have not answered for five minutes, by the pattern that lists them",
                all.unreachable.clone(),
            );
            registry.register(
                "image_lookups_dropped",
                "Look-ups of images that were not queued",
                all.dropped.clone(),
            );
            registry.register(
                "image_cache_entries",
                "Image references in the cache",
                all.entries.clone(),
            );
            registry.register(
                "image_cache_bytes",
                "Estimated memory of the cache of images",
                all.bytes.clone(),
            );
            registry.register(
                "image_lookups_queued",
                "Look-ups of images that wait",
                all.queued.clone(),
            );
            registry.register(
                "image_facts_max_age_seconds",
                "Age of the oldest facts of an image that a review used in the last five to ten minutes",
                all.age.clone(),
            );
        });
        all
    }

    /// The pattern that lists a registry, by its place in the list.
    pub fn pattern(&self, registry: &str) -> Option<usize> {
        self.registries
            .iter()
            .position(|pattern| pattern.matches(registry))
    }

    fn name(&self, pattern: Option<usize>) -> String {
        let pattern = pattern.and_then(|at| self.registries.iter().nth(at));
        pattern.map_or_else(String::new, ToString::to_string)
    }

    /// Counts a look-up.
    pub fn looked_up(&self, pattern: Option<usize>, outcome: &LookupOutcome, took: Duration) {
        let registry = self.name(pattern);
        let duration = self.durations.get_or_create_owned(&RegistryLabels {
            registry: registry.clone(),
        });
        duration.observe(took.as_secs_f64());
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
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
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
        for (at, pattern) in self.registries.iter().enumerate() {
            let of_pattern = unreachable
                .iter()
                .filter(|it| self.pattern(&it.registry) == Some(at));
            let labels = RegistryLabels {
                registry: pattern.to_string(),
            };
            self.unreachable
                .get_or_create(&labels)
                .set(number(of_pattern.count()));
        }
    }

    /// Logs a failed look-up, at most once a minute for each pattern.
    pub fn log(&self, pattern: Option<usize>, registry: &str, why: &str, now: Instant) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((last, more)) = pattern.and_then(|at| logged.get_mut(at)) else {
            return;
        };
        if last.is_some_and(|last| now.saturating_duration_since(last) < LOG_EVERY) {
            *more += 1;
            return;
        }
        *last = Some(now);
        let more = std::mem::take(more);
        drop(logged);
        tracing::warn!(
            registry,
            failed_since_last_line = more,
            "cannot look up an image: {why}"
        );
    }
}
