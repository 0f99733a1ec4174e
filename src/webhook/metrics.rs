//! What Transom counts, and its exposition as OpenMetrics text; label values come from closed sets only.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::Reply;
use super::limits::Shed;

/// From 10 µs, a small pod, to 1 s, where the API server is about to give up.
const BUCKETS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0,
];

/// How a review is counted. Every field is one of a closed set of words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct ReviewLabels {
    /// `mutate` or `validate`.
    pub phase: &'static str,
    /// `CREATE`, `UPDATE`, …
    pub operation: &'static str,
    /// `Pod`, `Deployment`, …; `other` for what is not known.
    pub kind: &'static str,
    /// `allow`, `deny`, `patch`, …
    pub decision: &'static str,
    /// Whether the request was a dry run.
    pub dry_run: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Rule {
    rule: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

/// Every metric of the process; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<ReviewLabels, Counter>,
    findings: Family<Rule, Counter>,
    duration: Histogram,
    panics: Counter,
    shed_requests: Counter,
    shed_bytes: Counter,
    pub(super) reviews_in_flight: Gauge,
    pub(super) bytes_in_flight: Gauge,
    pub(super) connections: Gauge,
    certificate_expiry: Gauge,
    certificate_reloads: Results,
    policy_reloads: Results,
    registry: Arc<Mutex<Registry>>,
}

/// A counter of successes and one of failures, looked up once.
#[derive(Clone, Debug)]
struct Results {
    success: Counter,
    error: Counter,
}

impl Results {
    fn count(&self, ok: bool) {
        if ok { &self.success } else { &self.error }.inc();
    }
}

impl Metrics {
    /// All metrics at zero. `version` and `revision`, the commit where it is known, go to `transom_build_info`.
    pub fn new(version: &str, revision: Option<&str>) -> Self {
        let mut registry = Registry::with_prefix("transom");
        let results = |registry: &mut Registry, name: &str, help: &str| {
            let family = Family::<Outcome, Counter>::default();
            registry.register(name, help, family.clone());
            Results {
                success: family.get_or_create_owned(&Outcome { result: "success" }),
                error: family.get_or_create_owned(&Outcome { result: "error" }),
            }
        };
        let certificate_reloads = results(
            &mut registry,
            "certificate_reloads",
            "Attempts to replace the serving certificate",
        );
        let policy_reloads = results(&mut registry, "policy_reloads", "Attempts to replace the policy");

        let shed = Family::<Reason, Counter>::default();
        registry.register(
            "shed",
            "Requests refused at once because a bound was reached",
            shed.clone(),
        );

        let mut build = vec![("version", version.to_owned())];
        build.extend(revision.map(|revision| ("revision", revision.to_owned())));
        registry.register("build", "What this process was built from", Info::new(build));

        let metrics = Self {
            reviews: Family::default(),
            findings: Family::default(),
            duration: Histogram::new(BUCKETS),
            panics: Counter::default(),
            shed_requests: shed.get_or_create_owned(&Reason { reason: "requests" }),
            shed_bytes: shed.get_or_create_owned(&Reason { reason: "bytes" }),
            reviews_in_flight: Gauge::default(),
            bytes_in_flight: Gauge::default(),
            connections: Gauge::default(),
            certificate_expiry: Gauge::default(),
            certificate_reloads,
            policy_reloads,
            registry: Arc::default(),
        };
        metrics.register_own(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            ..metrics
        }
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register("reviews", "Admission reviews answered", self.reviews.clone());
        registry.register("findings", "Findings of admission reviews", self.findings.clone());
        registry.register(
            "review_duration_seconds",
            "Time from a complete body to its answer",
            self.duration.clone(),
        );
        registry.register(
            "review_panics",
            "Reviews that ended in a panic, a defect",
            self.panics.clone(),
        );
        registry.register(
            "reviews_in_flight",
            "Reviews being read or judged",
            self.reviews_in_flight.clone(),
        );
        registry.register(
            "bytes_in_flight",
            "Bytes of bodies being read or judged",
            self.bytes_in_flight.clone(),
        );
        registry.register(
            "connections_open",
            "Open connections of the webhook",
            self.connections.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970",
            self.certificate_expiry.clone(),
        );
    }

    /// Adds metrics of another part of Transom; names get the prefix `transom_`.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a policy that was loaded, or could not be.
    pub fn policy_reloaded(&self, ok: bool) {
        self.policy_reloads.count(ok);
    }

    /// Counts a serving certificate that was replaced, or could not be.
    pub fn certificate_reloaded(&self, ok: bool) {
        self.certificate_reloads.count(ok);
    }

    /// Every metric as OpenMetrics text.
    pub fn expose(&self) -> String {
        let mut out = String::with_capacity(8 << 10);
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail; an encoder that does says so in the text.
        if text::encode(&mut out, &registry).is_err() {
            out.push_str("# encoding failed\n");
        }
        out
    }

    pub(super) fn reviewed(&self, reply: &Reply, took: Duration) {
        self.duration.observe(took.as_secs_f64());
        if let Some(labels) = &reply.labels {
            self.reviews.get_or_create(labels).inc();
        }
        for &rule in &reply.rules {
            self.findings.get_or_create(&Rule { rule }).inc();
        }
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    pub(super) fn shed(&self, shed: Shed) {
        match shed {
            Shed::Requests => self.shed_requests.inc(),
            Shed::Bytes => self.shed_bytes.inc(),
        };
    }

    pub(super) fn certificate_expires(&self, at: SystemTime) {
        let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.certificate_expiry
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    #[test]
    fn every_name_is_in_the_text_after_one_review() {
        let metrics = Metrics::new("1.2.3", Some("abc"));
        let labels = ReviewLabels {
            phase: "mutate",
            operation: "CREATE",
            kind: "Pod",
            decision: "patch",
            dry_run: false,
        };
        let reply = Reply {
            status: StatusCode::OK,
            body: Vec::new(),
            labels: Some(labels),
            rules: vec!["a-rule"],
            record: None,
        };
        metrics.reviewed(&reply, Duration::from_micros(20));
        metrics.policy_reloaded(true);
        metrics.shed(Shed::Bytes);
        let text = metrics.expose();
        for line in [
            "transom_reviews_total{phase=\"mutate\",operation=\"CREATE\",kind=\"Pod\",decision=\"patch\",dry_run=\"false\"} 1",
            "transom_findings_total{rule=\"a-rule\"} 1",
            "transom_review_duration_seconds_bucket{le=\"0.00001\"} 0",
            "transom_review_duration_seconds_bucket{le=\"0.000025\"} 1",
            "transom_reviews_in_flight 0",
            "transom_bytes_in_flight 0",
            "transom_shed_total{reason=\"requests\"} 0",
            "transom_shed_total{reason=\"bytes\"} 1",
            "transom_connections_open 0",
            "transom_certificate_expiry_timestamp_seconds 0",
            "transom_certificate_reloads_total{result=\"error\"} 0",
            "transom_policy_reloads_total{result=\"success\"} 1",
            "transom_review_panics_total 0",
            "transom_build_info{version=\"1.2.3\",revision=\"abc\"} 1",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
