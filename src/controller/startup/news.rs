//! What is reported about new nodes: Events and metrics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::gate::ReleaseReason;
use crate::api::FailedImage;
use crate::cluster::errors::ApiError;
use crate::controller::startup_states::{StartupOfPolicy, StartupStates};
use crate::controller::writer::Writer;
use crate::model::syntax::text::{count, list};
use crate::process::metrics::{MetricLabels, Metrics};

/// How many images a message names.
const NAMED: usize = 5;
/// How many Events may wait. If the API server accepts none, the oldest are dropped.
const MOST_EVENTS: usize = 1000;

/// Events that are not written yet: nodes must not wait for them.
#[derive(Default)]
pub struct PendingEvents(VecDeque<Event>);

impl PendingEvents {
    /// Queues an Event; the oldest is dropped if there are too many.
    pub fn push(&mut self, event: Event) {
        if self.0.len() >= MOST_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    /// Writes them; begins none after `until`, except for the first one. Returns whether any are left.
    pub async fn write(&mut self, writer: &Writer, until: Instant) -> bool {
        while let Some(event) = self.0.pop_front() {
            writer.announce_once(&event).await;
            if Instant::now() >= until {
                break;
            }
        }
        !self.0.is_empty()
    }
}

/// What is said of nodes whose startup taint cannot be removed.
pub fn not_released<'n>(nodes: impl IntoIterator<Item = &'n str>, error: &ApiError) -> String {
    let nodes: Vec<&str> = nodes.into_iter().collect();
    let cure = match error {
        ApiError::Forbidden(_) => {
            "; Transom needs the right to patch nodes: set rbac.nodePolicies=true in the values of the chart, or exempt its account \
             from the admission webhook or policy that the message names"
        }
        _ => "",
    };
    format!(
        "the startup taint cannot be removed, so no pod is scheduled on these nodes: {}: {error}{cure}",
        list(&nodes, NAMED)
    )
}

/// What refuses pods that pull images in Transom's namespace: a part of what the API server answers, and the remedy.
///
/// Source: `staging/src/k8s.io/apiserver/pkg/admission` and `plugin/pkg/admission/{limitranger,resourcequota}` of Kubernetes 1.36.
const REFUSALS: [(&str, &str); 4] = [
    (
        "exceeded quota",
        "a ResourceQuota of Transom's namespace refuses it: raise it, or remove it",
    ),
    (
        "usage per ",
        "a LimitRange of Transom's namespace requires more: the pods request 1m of CPU and 1Mi of memory; remove its minimum",
    ),
    (
        "must not create a pod that pulls images with",
        "another webhook or admission plugin changed the pod, which the admission policy of the chart then refuses: exempt Transom's \
         namespace from it",
    ),
    (
        "admission webhook",
        "exempt Transom's namespace from this webhook",
    ),
];

/// The remedy for an error of the creation of a pod, as the end of a sentence.
pub fn who_refuses(error: &ApiError) -> String {
    let text = error.to_string();
    let known = REFUSALS.iter().find(|(part, _)| text.contains(part));
    known.map_or_else(String::new, |(_, remedy)| format!("; {remedy}"))
}

/// What is said of nodes that a policy which cannot be read may select.
pub fn held<'n>(nodes: impl IntoIterator<Item = &'n str>) -> String {
    let nodes: Vec<&str> = nodes.into_iter().collect();
    let many = count(nodes.len(), "new node");
    format!(
        "it cannot be read and may select {many} with the startup taint ({}), which wait for the default timeout: correct it, or \
         delete it",
        list(&nodes, NAMED)
    )
}

/// What is said of images that cannot be pulled.
pub fn not_pulled(failed: &[FailedImage]) -> String {
    let words = failed
        .iter()
        .map(|failed| format!("{} ({})", failed.image, failed.message));
    let words: Vec<String> = words.collect();
    format!("cannot be pulled: {}", list(&words, NAMED))
}

/// What is said of a node that gets pods without some of its images.
pub fn late(
    why: ReleaseReason,
    seconds: u64,
    missing: Option<&[String]>,
    failed: &BTreeMap<String, String>,
) -> String {
    let because = match why {
        ReleaseReason::Failed => "nothing more can be pulled",
        _ => "the timeout is over",
    };
    let without = match missing {
        None => "and it is not known which images it needs".to_owned(),
        Some(missing) => {
            let words = missing.iter().map(|image| match failed.get(image) {
                Some(why) => format!("{image} ({why})"),
                None => image.clone(),
            });
            let words: Vec<String> = words.collect();
            format!(
                "and these images were not seen on the node: {}",
                list(&words, NAMED)
            )
        }
    };
    format!("pods can be scheduled after {seconds} s, because {because}, {without}")
}

/// What is said of a policy whose `maxImageSize` cannot limit anything.
pub const SIZES_UNKNOWN: &str = "maxImageSize has no effect, because the size of an image is only known if Transom asks registries, and this \
    installation asks none: let it ask them with the value imageLookups.registries of the chart, or remove maxImageSize";

/// From a node with baked images to the longest timeout that a policy may reasonably set.
const BUCKETS: [f64; 10] = [10.0, 30.0, 60.0, 120.0, 240.0, 360.0, 480.0, 600.0, 780.0, 1800.0];

/// The metrics of new nodes; clones share them.
#[derive(Clone, Debug)]
pub struct StartupMetrics {
    nodes: Family<MetricLabels, Gauge>,
    seconds: Histogram,
    pulled_bytes: Counter,
    failures: Counter,
}

impl StartupMetrics {
    /// All of them at zero.
    pub fn new(metrics: &Metrics) -> Self {
        let new = StartupMetrics {
            nodes: metrics.add("startup_nodes", "New nodes of policies with startup, by state"),
            seconds: metrics.add_metric(
                "startup_seconds",
                "Time from the creation of a node until Transom removed its startup taint",
                Histogram::new(BUCKETS),
            ),
            pulled_bytes: metrics.add(
                "startup_pulled_bytes",
                "Compressed bytes of images that nodes with the startup taint pulled, as far as registries report them",
            ),
            failures: metrics.add(
                "startup_failures",
                "Images that a node with the startup taint could not pull",
            ),
        };
        new.show(&StartupStates::default(), 0, 0);
        new
    }

    /// Shows the states of all policies. `blocked`: how many nodes could not be released, of whichever policy; `held`: how many a
    /// policy that cannot be read may select.
    pub fn show(&self, states: &StartupStates, blocked: usize, held: usize) {
        let sum = |of: fn(&StartupOfPolicy) -> usize| states.values().map(of).sum::<usize>();
        let failed = |state: &StartupOfPolicy| {
            let nodes: BTreeSet<&str> = state.failed.iter().map(|failed| &*failed.node).collect();
            nodes.len()
        };
        for (state, count) in [
            ("starting", sum(|state| state.starting)),
            ("warm", sum(|state| state.warm)),
            ("late", sum(|state| state.late)),
            ("failed", sum(failed)),
            ("blocked", blocked),
            ("held", held),
        ] {
            let gauge = self.nodes.get_or_create_owned(&[("state", state)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a node that started.
    pub fn started(&self, after: Duration) {
        self.seconds.observe(after.as_secs_f64());
    }

    /// Counts what was pulled, and what could not be.
    pub fn pulled(&self, bytes: u64, failures: usize) {
        self.pulled_bytes.inc_by(bytes);
        self.failures.inc_by(u64::try_from(failures).unwrap_or(u64::MAX));
    }
}
