//! The registry of all metrics of the process, and its exposition as OpenMetrics text; all label values come
//! from closed sets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use super::usage::Usage;

/// The labels of a metric, each a name and a value.
pub type MetricLabels<const N: usize = 1, V = &'static str> = [(&'static str, V); N];

/// The histograms of one metric by their labels, created with its buckets.
pub type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Every metric of the process; clones share them. Each part of Transom registers its own.
#[derive(Clone, Debug)]
pub struct Metrics {
    certificate_expiry: Gauge,
    certificate_reloads: Results,
    policy_reloads: Results,
    registry: Arc<Mutex<Registry>>,
    /// Metrics that every process has, whose names have no prefix.
    process: Arc<Registry>,
}

/// From a reconciliation without changes to one that writes every node of a large cluster.
const RECONCILE_BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// The duration of reconciliations and the failed writes, by controller; clones share them.
#[derive(Clone, Debug)]
pub struct Reconciles {
    durations: Histograms<MetricLabels>,
    errors: Family<MetricLabels, Counter>,
}

impl Reconciles {
    /// The metrics of controllers, which [`Reconciles::of`] adds one by one.
    pub fn new(metrics: &Metrics) -> Self {
        Reconciles {
            durations: metrics.add_metric(
                "reconcile_duration_seconds",
                "Duration of one reconcile of a controller",
                Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            ),
            errors: metrics.add("reconcile_errors", "Failed requests of a controller"),
        }
    }

    /// The metrics of one controller, at zero.
    pub fn of(&self, controller: &'static str) -> Reconcile {
        let labels = [("controller", controller)];
        Reconcile {
            duration: self.durations.get_or_create_owned(&labels),
            errors: self.errors.get_or_create_owned(&labels),
        }
    }
}

/// The reconciliations of one controller; clones share them.
#[derive(Clone, Debug)]
pub struct Reconcile {
    duration: Histogram,
    errors: Counter,
}

impl Reconcile {
    /// Records a finished reconciliation.
    pub fn took(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }

    /// Records a failed request.
    pub fn failed(&self) {
        self.errors.inc();
    }
}

/// A counter of successes and one of failures, looked up once.
#[derive(Clone, Debug, Default)]
struct Results {
    success: Counter,
    error: Counter,
}

impl Results {
    /// Both results of a family, at zero.
    fn of(family: &Family<MetricLabels, Counter>) -> Self {
        Results {
            success: family.get_or_create_owned(&[("result", "success")]),
            error: family.get_or_create_owned(&[("result", "error")]),
        }
    }

    fn count(&self, ok: bool) {
        if ok { &self.success } else { &self.error }.inc();
    }
}

impl Metrics {
    /// All metrics at zero. `version` and `revision` (the commit, if known) are exposed in
    /// `transom_build_info`.
    pub fn new(version: &str, revision: Option<&str>) -> Self {
        let mut build = vec![("version", version.to_owned())];
        build.extend(revision.map(|revision| ("revision", revision.to_owned())));
        let mut metrics = Metrics {
            certificate_expiry: Gauge::default(),
            certificate_reloads: Results::default(),
            policy_reloads: Results::default(),
            registry: Arc::new(Mutex::new(Registry::with_prefix("transom"))),
            process: Arc::new(process()),
        };
        let build = Info::new(build);
        (metrics.registry()).register("build", "What this process was built from", build);
        metrics.certificate_expiry = metrics.add(
            "certificate_expiry_timestamp_seconds",
            "When the serving certificate expires, in seconds since 1970",
        );
        let replaced = "Attempts to replace the serving certificate";
        metrics.certificate_reloads = Results::of(&metrics.add("certificate_reloads", replaced));
        metrics.policy_reloads =
            Results::of(&metrics.add("policy_reloads", "Attempts to replace the policy"));
        metrics
    }

    /// Registers a metric at zero. Its name gets the prefix `transom_`.
    pub fn add<M: Metric + Clone + Default>(&self, name: &str, help: &str) -> M {
        self.add_metric(name, help, M::default())
    }

    /// Registers a metric that has no default, as a histogram. Its name gets the prefix `transom_`.
    pub fn add_metric<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.registry().register(name, help, metric.clone());
        metric
    }

    /// Registers metrics that are computed at each scrape. Their names get the prefix `transom_`.
    pub fn add_collector(&self, collector: impl Collector) {
        self.registry().register_collector(Box::new(collector));
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a policy that was loaded or failed to load.
    pub fn policy_reloaded(&self, ok: bool) {
        self.policy_reloads.count(ok);
    }

    /// Counts a serving certificate that was replaced or failed to be replaced.
    pub fn certificate_reloaded(&self, ok: bool) {
        self.certificate_reloads.count(ok);
    }

    /// Sets the expiry of the serving certificate.
    pub fn certificate_expires(&self, at: SystemTime) {
        let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.certificate_expiry
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// Every metric as OpenMetrics text.
    pub fn expose(&self) -> String {
        let mut out = String::with_capacity(8 << 10);
        let registry = self.registry();
        // Writing to a String cannot fail; if an encoder does, the text contains the error.
        let encoded = text::encode_registry(&mut out, &self.process)
            .and_then(|()| text::encode_registry(&mut out, &registry))
            .and_then(|()| text::encode_eof(&mut out));
        if encoded.is_err() {
            out.push_str("# encoding failed\n");
        }
        out
    }
}

fn process() -> Registry {
    let mut process = Registry::default();
    process.register_collector(Box::new(Usage::new(SystemTime::now())));
    process
}
