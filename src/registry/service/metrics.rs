//! The metrics of look-ups, and their log: one line per pattern of registries and minute. All labels come from the
//! configuration.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::state::{Dropped, UnreachableRegistry};
use crate::model::windows::registry_patterns::RegistryPatterns;
use crate::process::metrics::{Histograms, MetricLabels, Metrics};
use crate::registry::{ImageChange, LookupError, LookupScope};

/// How often a failing registry is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// For how long the maximum age of what was used is shown.
const AGE_WINDOW: Duration = Duration::from_secs(5 * 60);
/// From an answer of this machine to the timeout of a look-up.
const BUCKETS: [f64; 10] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The metrics, by the patterns of the allow-list.
#[derive(Debug)]
pub struct LookupMetrics {
    registries: RegistryPatterns,
    lookups: Family<MetricLabels<2, Cow<'static, str>>, Counter>,
    durations: Histograms<MetricLabels<1, String>>,
    unreachable: Family<MetricLabels<1, String>, Gauge>,
    dropped: Family<MetricLabels, Counter>,
    entries: Gauge,
    bytes: Gauge,
    queued: Gauge,
    age: Gauge,
    /// For the current and the previous window of [`AGE_WINDOW`]: when it began, and the maximum age in it.
    ages: Mutex<[(Option<Instant>, Duration); 2]>,
    /// By pattern: when it was logged last, and the failures since.
    logged: Mutex<HashMap<String, (Instant, u64)>>,
}

/// Every value of the label `outcome`.
const OUTCOMES: [&str; 4] = ["found", "missing", "failed", "unreachable"];

/// The value of the label `outcome`.
fn outcome(result: &Result<ImageChange, LookupError>) -> &'static str {
    match result {
        Ok(ImageChange::Changed(facts)) if facts.found.is_none() => "missing",
        Ok(_) => "found",
        Err(error) if error.scope == LookupScope::Image => "failed",
        Err(_) => "unreachable",
    }
}

impl LookupMetrics {
    /// All metrics at zero.
    pub fn new(metrics: &Metrics, registries: &RegistryPatterns) -> Self {
        let lookups = "Look-ups of images in registries, by the pattern that lists the registry";
        let unreachable =
            "Registries that have not answered for five minutes, by the pattern that lists them";
        let age = "Age of the oldest facts of an image that a review used in the last five to ten minutes";
        let all = LookupMetrics {
            registries: registries.clone(),
            lookups: metrics.add("image_lookups", lookups),
            durations: metrics.add_metric(
                "image_lookup_duration_seconds",
                "Duration of a look-up of an image, with all its requests",
                Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            ),
            unreachable: metrics.add("image_registries_unreachable", unreachable),
            dropped: metrics.add("image_lookups_dropped", "Look-ups of images that were not queued"),
            entries: metrics.add("image_cache_entries", "Image references in the cache"),
            bytes: metrics.add("image_cache_bytes", "Estimated memory of the cache of images"),
            queued: metrics.add("image_lookups_queued", "Look-ups of images that wait"),
            age: metrics.add("image_facts_max_age_seconds", age),
            ages: Mutex::default(),
            logged: Mutex::default(),
        };
        for registry in registries.iter().map(ToString::to_string) {
            for outcome in OUTCOMES {
                (all.lookups).get_or_create_owned(&lookup_labels(&registry, outcome));
            }
            let labels = [("registry", registry)];
            all.durations.get_or_create_owned(&labels);
            all.unreachable.get_or_create_owned(&labels);
        }
        for why in Dropped::ALL.map(Dropped::as_str) {
            all.dropped.get_or_create_owned(&[("reason", why)]);
        }
        all
    }

    /// The pattern that lists a registry.
    fn pattern(&self, registry: &str) -> String {
        let pattern = self.registries.iter().find(|pattern| pattern.matches(registry));
        pattern.map_or_else(String::new, ToString::to_string)
    }

    /// Counts a look-up in a registry, and logs its failure.
    pub fn looked_up(
        &self,
        name: &str,
        result: &Result<ImageChange, LookupError>,
        took: Duration,
        now: Instant,
    ) {
        let registry = self.pattern(name);
        if let Err(error) = result {
            self.log(&registry, name, &error.message, now);
        }
        let labels = lookup_labels(&registry, outcome(result));
        self.lookups.get_or_create(&labels).inc();
        let labels = [("registry", registry)];
        (self.durations.get_or_create(&labels)).observe(took.as_secs_f64());
    }

    /// Counts a look-up that was not queued.
    pub fn dropped(&self, why: Dropped) {
        self.dropped.get_or_create(&[("reason", why.as_str())]).inc();
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
            (self.unreachable.get_or_create(&[("registry", registry)])).set(count);
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

fn lookup_labels(registry: &str, outcome: &'static str) -> MetricLabels<2, Cow<'static, str>> {
    let registry = Cow::Owned(registry.to_owned());
    [("registry", registry), ("outcome", Cow::Borrowed(outcome))]
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
