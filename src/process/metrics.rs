//! The registry of all metrics of the process, and its exposition as OpenMetrics text; all label values come
//! from closed sets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::usage::Usage;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

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
    durations: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    errors: Family<ControllerLabels, Counter>,
}

impl Reconciles {
    /// Without any controller.
    pub fn new(metrics: &Metrics) -> Self {
        let reconciles = Reconciles {
            durations: Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            errors: Family::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "reconcile_duration_seconds",
                "Duration of one reconcile of a controller",
                reconciles.durations.clone(),
            );
            registry.register(
                "reconcile_errors",
                "Failed requests of a controller",
                reconciles.errors.clone(),
            );
        });
        reconciles
    }

    /// The metrics of one controller, at zero.
    pub fn of(&self, controller: &'static str) -> Reconcile {
        let labels = ControllerLabels { controller };
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
#[derive(Clone, Debug)]
struct Results {
    success: Counter,
    error: Counter,
}

impl Results {
    fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::<ResultLabels, Counter>::default();
        registry.register(name, help, family.clone());
        Results {
            success: family.get_or_create_owned(&ResultLabels { result: "success" }),
            error: family.get_or_create_owned(&ResultLabels { result: "error" }),
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
        let mut registry = Registry::with_prefix("transom");
        let mut build = vec![("version", version.to_owned())];
        build.extend(revision.map(|revision| ("revision", revision.to_owned())));
        registry.register("build", "What this process was built from", Info::new(build));
        let certificate_expiry = Gauge::default();
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the serving certificate expires, in seconds since 1970",
            certificate_expiry.clone(),
        );
        Self {
            certificate_expiry,
            certificate_reloads: Results::register(
                &mut registry,
                "certificate_reloads",
                "Attempts to replace the serving certificate",
            ),
            policy_reloads: Results::register(
                &mut registry,
                "policy_reloads",
                "Attempts to replace the policy",
            ),
            registry: Arc::new(Mutex::new(registry)),
            process: Arc::new(process()),
        }
    }

    /// Adds the metrics of another part of Transom; names get the prefix `transom_`.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
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
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
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
