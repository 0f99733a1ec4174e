//! The metrics of reviews; all label values come from closed sets.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::ReviewResponse;
use super::inflight::InflightGauges;
use super::limits::RejectReason;
use crate::admission::{AuditRecord, Phase, ReviewLabels};
use crate::process::metrics::{Histograms, MetricLabels, Metrics};

/// From 10 µs, a small pod, to above the API server's timeout of 2 s.
const BUCKETS: [f64; 19] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.0, 5.0, 10.0,
];

/// Counters by their labels, of which there are few: each is looked up in its family once, and later found
/// without a lock or a hash.
#[derive(Clone, Debug)]
struct Counters<L> {
    family: Family<L, Counter>,
    known: Arc<ArcSwap<Vec<(L, Counter)>>>,
}

impl<L> Counters<L>
where
    L: EncodeLabelSet + Clone + Eq + Hash + Debug + Send + Sync + 'static,
{
    fn new(metrics: &Metrics, name: &str, help: &str) -> Self {
        Counters {
            family: metrics.add(name, help),
            known: Arc::default(),
        }
    }

    fn inc(&self, labels: &L) {
        if let Some((_, counter)) = self.known.load().iter().find(|(known, _)| known == labels) {
            counter.inc();
            return;
        }
        let counter = self.family.get_or_create_owned(labels);
        counter.inc();
        self.known.rcu(|known| {
            let mut known = Vec::clone(known);
            known.push((labels.clone(), counter.clone()));
            known
        });
    }
}

/// The metrics of reviews; clones share them.
#[derive(Clone, Debug)]
pub(super) struct ReviewMetrics {
    reviews: Counters<MetricLabels<5>>,
    findings: Counters<MetricLabels<2>>,
    too_large: Counters<MetricLabels<2>>,
    mutating: Histogram,
    validating: Histogram,
    panics: Counter,
    rejected: Family<MetricLabels, Counter>,
    pub(super) in_flight: InflightGauges,
}

impl ReviewMetrics {
    /// Metrics at zero, registered in `metrics`.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let durations: Histograms<MetricLabels> = metrics.add_metric(
            "review_duration_seconds",
            "Time from a complete body to its answer",
            Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        );
        let duration = |phase: Phase| durations.get_or_create_owned(&[("type", phase.as_str())]);
        let rejected: Family<MetricLabels, Counter> = metrics.add(
            "requests_rejected",
            "Requests rejected with 503 because a limit was reached",
        );
        for reason in RejectReason::ALL {
            rejected.get_or_create_owned(&[("reason", reason.label_and_text().0)]);
        }
        let too_large = "Admission reviews over 20 MiB, answered from the start of their body";
        Self {
            reviews: Counters::new(metrics, "reviews", "Admission reviews answered"),
            findings: Counters::new(metrics, "review_findings", "Findings of admission reviews"),
            too_large: Counters::new(metrics, "reviews_too_large", too_large),
            mutating: duration(Phase::Mutate),
            validating: duration(Phase::Validate),
            panics: metrics.add("review_panics", "Reviews that ended in a panic, a defect"),
            rejected,
            in_flight: InflightGauges::new(metrics),
        }
    }

    pub(super) fn reviewed(&self, phase: Phase, reply: &ReviewResponse, took: Duration) {
        let duration = match phase {
            Phase::Mutate => &self.mutating,
            Phase::Validate => &self.validating,
        };
        duration.observe(took.as_secs_f64());
        let Some(record) = &reply.record else { return };
        self.reviews.inc(&labels_of(record.labels));
        for &rule in &record.rules {
            let r#type = record.labels.r#type;
            self.findings.inc(&[("rule", rule), ("type", r#type)]);
        }
    }

    /// Counts a review that was answered from the start of its body.
    pub(super) fn too_large(&self, reply: &ReviewResponse) {
        if let Some(AuditRecord { labels, .. }) = &reply.record {
            self.too_large
                .inc(&[("type", labels.r#type), ("decision", labels.decision)]);
        }
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    pub(super) fn shed(&self, shed: RejectReason) {
        let (reason, _) = shed.label_and_text();
        self.rejected.get_or_create(&[("reason", reason)]).inc();
    }
}

fn labels_of(labels: ReviewLabels) -> MetricLabels<5> {
    let ReviewLabels {
        r#type,
        operation,
        kind,
        decision,
        dry_run,
    } = labels;
    let dry_run = if dry_run { "true" } else { "false" };
    [
        ("type", r#type),
        ("operation", operation),
        ("kind", kind),
        ("decision", decision),
        ("dry_run", dry_run),
    ]
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    #[test]
    fn every_name_is_in_the_text_after_two_reviews() {
        let metrics = Metrics::new("1.2.3", Some("abc"));
        let reviews = ReviewMetrics::new(&metrics);
        let labels = ReviewLabels {
            r#type: "mutating",
            operation: "CREATE",
            kind: "Pod",
            decision: "patch",
            dry_run: false,
        };
        let reply = ReviewResponse {
            status: StatusCode::OK,
            body: Vec::new(),
            record: Some(AuditRecord {
                labels,
                rules: vec!["a-rule"],
                ..AuditRecord::default()
            }),
        };
        reviews.reviewed(Phase::Mutate, &reply, Duration::from_micros(20));
        reviews
            .clone()
            .reviewed(Phase::Mutate, &reply, Duration::from_micros(20));
        reviews.too_large(&reply);
        metrics.policy_reloaded(true);
        reviews.shed(RejectReason::Bytes);
        let text = metrics.expose();
        for line in [
            "transom_reviews_total{type=\"mutating\",operation=\"CREATE\",kind=\"Pod\",decision=\"patch\",dry_run=\"false\"} 2",
            "transom_review_findings_total{rule=\"a-rule\",type=\"mutating\"} 2",
            "transom_review_duration_seconds_bucket{le=\"0.00001\",type=\"mutating\"} 0",
            "transom_review_duration_seconds_bucket{le=\"0.000025\",type=\"mutating\"} 2",
            "transom_reviews_in_flight 0",
            "transom_http_requests_in_flight 0",
            "transom_in_flight_bytes 0",
            "transom_requests_rejected_total{reason=\"max_concurrent\"} 0",
            "transom_requests_rejected_total{reason=\"max_bytes\"} 1",
            "transom_requests_rejected_total{reason=\"max_open_requests\"} 0",
            "transom_requests_rejected_total{reason=\"slow_client\"} 0",
            "transom_requests_rejected_total{reason=\"large_review\"} 0",
            "transom_reviews_too_large_total{type=\"mutating\",decision=\"patch\"} 1",
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
