//! The metrics of reviews; all label values come from closed sets.

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
use crate::process::metrics::Metrics;

/// From 10 µs, a small pod, to above the API server's timeout of 2 s.
const BUCKETS: [f64; 19] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.0, 5.0, 10.0,
];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct WebhookTypeLabels {
    r#type: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct FindingLabels {
    rule: &'static str,
    r#type: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RejectionLabels {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct TooLargeLabels {
    r#type: &'static str,
    decision: &'static str,
}

/// Counters by their labels, of which there are few: each is looked up in its family once, and later found
/// without a lock or a hash.
#[derive(Debug)]
struct Counters<L> {
    family: Family<L, Counter>,
    known: Arc<ArcSwap<Vec<(L, Counter)>>>,
}

impl<L> Clone for Counters<L> {
    fn clone(&self) -> Self {
        Counters {
            family: self.family.clone(),
            known: Arc::clone(&self.known),
        }
    }
}

impl<L: Clone + Eq + Hash> Default for Counters<L> {
    fn default() -> Self {
        Counters {
            family: Family::default(),
            known: Arc::default(),
        }
    }
}

impl<L: Clone + Eq + Hash> Counters<L> {
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
    reviews: Counters<ReviewLabels>,
    findings: Counters<FindingLabels>,
    too_large: Counters<TooLargeLabels>,
    mutating: Histogram,
    validating: Histogram,
    panics: Counter,
    rejected_requests: Counter,
    rejected_bytes: Counter,
    rejected_open: Counter,
    rejected_slow: Counter,
    rejected_large: Counter,
    pub(super) in_flight: InflightGauges,
}

impl ReviewMetrics {
    /// Metrics at zero, registered in `metrics`.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let rejected = Family::<RejectionLabels, Counter>::default();
        let durations =
            Family::<WebhookTypeLabels, Histogram, _>::new_with_constructor(|| Histogram::new(BUCKETS));
        let duration = |phase: Phase| {
            durations.get_or_create_owned(&WebhookTypeLabels {
                r#type: phase.as_str(),
            })
        };
        let new = Self {
            reviews: Counters::default(),
            findings: Counters::default(),
            too_large: Counters::default(),
            mutating: duration(Phase::Mutate),
            validating: duration(Phase::Validate),
            panics: Counter::default(),
            rejected_requests: rejected.get_or_create_owned(&RejectionLabels {
                reason: "max_concurrent",
            }),
            rejected_bytes: rejected.get_or_create_owned(&RejectionLabels { reason: "max_bytes" }),
            rejected_open: rejected.get_or_create_owned(&RejectionLabels {
                reason: "max_open_requests",
            }),
            rejected_slow: rejected.get_or_create_owned(&RejectionLabels {
                reason: "slow_client",
            }),
            rejected_large: rejected.get_or_create_owned(&RejectionLabels {
                reason: "large_review",
            }),
            in_flight: InflightGauges::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "requests_rejected",
                "Requests rejected with 503 because a limit was reached",
                rejected,
            );
            registry.register(
                "reviews",
                "Admission reviews answered",
                new.reviews.family.clone(),
            );
            registry.register(
                "review_findings",
                "Findings of admission reviews",
                new.findings.family.clone(),
            );
            registry.register(
                "reviews_too_large",
                "Admission reviews over 20 MiB, answered from the start of their body",
                new.too_large.family.clone(),
            );
            registry.register(
                "review_duration_seconds",
                "Time from a complete body to its answer",
                durations,
            );
            registry.register(
                "review_panics",
                "Reviews that ended in a panic, a defect",
                new.panics.clone(),
            );
            registry.register(
                "reviews_in_flight",
                "Reviews being evaluated, or waiting for it",
                new.in_flight.reviews.clone(),
            );
            registry.register(
                "http_requests_in_flight",
                "Requests from their headers to the last byte of their answer",
                new.in_flight.open.clone(),
            );
            registry.register(
                "in_flight_bytes",
                "Bytes of bodies being read or evaluated, and of answers being sent",
                new.in_flight.bytes.clone(),
            );
        });
        new
    }

    pub(super) fn reviewed(&self, phase: Phase, reply: &ReviewResponse, took: Duration) {
        let duration = match phase {
            Phase::Mutate => &self.mutating,
            Phase::Validate => &self.validating,
        };
        duration.observe(took.as_secs_f64());
        let Some(record) = &reply.record else { return };
        self.reviews.inc(&record.labels);
        for &rule in &record.rules {
            let r#type = record.labels.r#type;
            self.findings.inc(&FindingLabels { rule, r#type });
        }
    }

    /// Counts a review that was answered from the start of its body.
    pub(super) fn too_large(&self, reply: &ReviewResponse) {
        if let Some(AuditRecord { labels, .. }) = &reply.record {
            self.too_large.inc(&TooLargeLabels {
                r#type: labels.r#type,
                decision: labels.decision,
            });
        }
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    pub(super) fn shed(&self, shed: RejectReason) {
        match shed {
            RejectReason::Requests => self.rejected_requests.inc(),
            RejectReason::Bytes => self.rejected_bytes.inc(),
            RejectReason::Open => self.rejected_open.inc(),
            RejectReason::Slow => self.rejected_slow.inc(),
            RejectReason::Large => self.rejected_large.inc(),
        };
    }
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
