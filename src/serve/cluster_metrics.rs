//! The metrics of the cluster: the leader, the Windows nodes, and the status of the policies.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use crate::api::WindowsNodePolicyStatus;
use crate::cluster::lease::Leadership;
use crate::cluster::node::NodeView;
use crate::cluster::policy_store::PolicyState;
use crate::cluster::snapshot::{Snapshot, SnapshotReceiver};
use crate::cluster::stored_node_pools;
use crate::controller::conditions::{ACCEPTED, PROGRAMMED};
use crate::controller::webhook_probe::ProbeResult;
use crate::engine::policy_set::ExemptionState;
use crate::model::nodes::node::NodeSigns as _;
use crate::model::objects::workload::Kind;
use crate::model::windows::build::{Build, RELEASES};
use crate::process::metrics::{MetricLabels, Metrics};
use crate::registration;
use crate::rules;

/// The label `state` of the policies of both kinds. Only pod policies have a last valid version, and only of node policies the
/// status says more than whether they are valid.
const STATES: [&str; 6] = [
    "valid",
    "partially_invalid",
    "using_last_valid",
    "invalid",
    "not_programmed",
    "unknown",
];

/// The gauges; they show the last snapshot passed to them.
#[derive(Clone, Debug)]
pub struct ClusterMetrics {
    leader: Gauge,
    nodes: Family<MetricLabels, Gauge>,
    node_findings: Family<MetricLabels, Gauge>,
    policies: Family<MetricLabels, Gauge>,
    node_policies: Family<MetricLabels, Gauge>,
    drifted_nodes: Gauge,
    node_pools: Family<MetricLabels, Gauge>,
    unrecorded_pools: Gauge,
    excluded: Family<MetricLabels, Gauge>,
    without_policy: Gauge,
    cluster_config_registered: Gauge,
    exemptions: Family<MetricLabels, Gauge>,
    probe_success: Family<MetricLabels, Gauge>,
}

impl ClusterMetrics {
    /// All gauges at zero.
    pub fn new(metrics: &Metrics) -> Self {
        ClusterMetrics {
            leader: metrics.add("leader", "Whether this replica writes to the cluster"),
            nodes: metrics.add("windows_nodes", "Windows nodes, by release"),
            node_findings: metrics.add(
                "windows_node_findings",
                "Windows nodes with a finding of a rule on nodes, by rule",
            ),
            policies: metrics.add(
                "pod_policies",
                "WindowsPodPolicy objects, by whether they apply as they are stored",
            ),
            node_policies: metrics.add(
                "node_policies",
                "WindowsNodePolicy objects, by their conditions Accepted and Programmed",
            ),
            drifted_nodes: metrics.add(
                "node_policy_drifted_nodes",
                "Nodes that differ from their WindowsNodePolicy, by its status",
            ),
            node_pools: metrics.add(
                "node_pools",
                "WindowsNodePool objects, by whether a user declared them or Transom created them",
            ),
            unrecorded_pools: metrics.add(
                "unrecorded_node_pools",
                "Pools of Windows nodes for which no WindowsNodePool is created, because there are too many",
            ),
            excluded: metrics.add(
                "namespaces_excluded",
                "Namespaces that a label excludes, so that the API server does not call Transom for them",
            ),
            without_policy: metrics.add(
                "namespaces_without_policy",
                "Namespaces that no WindowsPodPolicy selects, so that the built-in policy applies there, which denies nothing",
            ),
            cluster_config_registered: metrics.add(
                "cluster_config_registered",
                "Whether the webhook configurations were made for the facts about the cluster that this replica uses",
            ),
            exemptions: metrics.add(
                "exemptions",
                "Exemptions of the policies that apply, by their state today",
            ),
            probe_success: metrics.add(
                "webhook_probe_success",
                "Whether the last probe of the leader was answered by its own webhook",
            ),
        }
    }

    /// Shows each snapshot and each probe, until their senders end.
    pub async fn follow_snapshots(
        self,
        mut latest: SnapshotReceiver,
        mut probe: watch::Receiver<Option<Arc<ProbeResult>>>,
    ) {
        loop {
            let snapshot = latest.borrow_and_update().clone();
            if snapshot.is_known() {
                self.show(&snapshot);
            }
            // Frees the snapshot before the wait for the next one.
            drop(snapshot);
            self.show_arrival(probe.borrow_and_update().as_deref());
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return },
                Ok(()) = probe.changed() => (),
            }
        }
    }

    /// Updates the gauges from a snapshot.
    pub fn show(&self, snapshot: &Snapshot) {
        let release = |node: &NodeView| {
            node.build()
                .and_then(Build::release)
                .map_or("other", |release| release.name)
        };
        let nodes = snapshot.cache.nodes.values().filter(|node| node.has_windows());
        let releases = RELEASES.iter().map(|release| release.name).chain(["other"]);
        set(&self.nodes, "release", releases, nodes.map(|node| release(node)));
        let of_nodes = rules::catalogue().filter(|rule| rule.applies_to(Kind::Node));
        let findings = snapshot.node_findings().into_iter();
        let findings = findings.flat_map(|found| repeat_n(found.rule, found.nodes.len()));
        set(
            &self.node_findings,
            "rule",
            of_nodes.map(|rule| rule.name),
            findings,
        );
        let state = |outcome: &PolicyState| match outcome {
            PolicyState::InForce(decoded) if decoded.is_partial() => "partially_invalid",
            PolicyState::InForce(_) => "valid",
            PolicyState::LastGood { .. } => "using_last_valid",
            PolicyState::Skipped { .. } => "invalid",
        };
        let outcomes = snapshot.outcomes.values().map(state);
        set(&self.policies, "state", STATES, outcomes);
        self.show_node_policies(snapshot);
        self.show_node_pools(snapshot);
        let namespaces = snapshot.cache.namespaces.iter();
        let excluded_by_label =
            namespaces.filter(|(name, _)| !registration::is_left_out_by_name(name, &snapshot.excluded));
        let labels = excluded_by_label.flat_map(|(_, seen)| seen.left_out_by.iter().map(|by| by.label));
        set(&self.excluded, "label", registration::leaving_out(), labels);
        let without_policy = snapshot.namespaces_without_policy().count();
        (self.without_policy).set(i64::try_from(without_policy).unwrap_or(i64::MAX));
        if let Some(registered) = &snapshot.registered {
            let is_for_these = registered.is_for_cluster_config(snapshot.stated.hash.as_deref());
            self.cluster_config_registered.set(i64::from(is_for_these));
        }
        let stored = snapshot.policies.stored().iter();
        let exemptions = stored.flat_map(|stored| &stored.exemptions);
        set(
            &self.exemptions,
            "state",
            ExemptionState::ALL.map(ExemptionState::as_str),
            exemptions.map(|dated| dated.state(snapshot.facts.today).as_str()),
        );
    }

    /// From the status that the leader has written, so that every replica shows the same values.
    fn show_node_policies(&self, snapshot: &Snapshot) {
        let statuses = || {
            let policies = snapshot.cache.node_policies.values();
            policies.map(|policy| policy.status.as_ref())
        };
        let state = |status: Option<&WindowsNodePolicyStatus>| {
            let condition = |kind: &str| status?.conditions.iter().find(|it| it.type_ == kind);
            let is_false = |kind: &str| condition(kind).is_some_and(|it| it.status == "False");
            match condition(ACCEPTED) {
                None => "unknown",
                Some(_) if is_false(ACCEPTED) => "invalid",
                Some(_) if is_false(PROGRAMMED) => "not_programmed",
                Some(accepted) if accepted.reason == "PartiallyInvalid" => "partially_invalid",
                Some(_) => "valid",
            }
        };
        set(&self.node_policies, "state", STATES, statuses().map(state));
        self.drifted_nodes.set(
            statuses()
                .flatten()
                .map(|status| i64::from(status.drifted_node_count))
                .sum(),
        );
    }

    fn show_node_pools(&self, snapshot: &Snapshot) {
        let pools = &snapshot.pools;
        let origins = pools.declared().map(|_| "declared");
        let origins = origins.chain(pools.observed().map(|_| "observed"));
        set(&self.node_pools, "origin", ["declared", "observed"], origins);
        let nodes = &snapshot.cache.nodes;
        let seen = stored_node_pools::observed(nodes, &snapshot.facts.stated_node_labels());
        let unrecorded = pools.unrecorded(nodes, &seen).len().saturating_sub(pools.room());
        (self.unrecorded_pools).set(i64::try_from(unrecorded).unwrap_or(i64::MAX));
    }

    /// Shows whether calls of the API server arrive; unchanged if that is unknown.
    pub fn show_arrival(&self, arrival: Option<&ProbeResult>) {
        let (mutating, validating) = match arrival {
            Some(ProbeResult::Arrives | ProbeResult::Shared(_)) => (true, true),
            Some(ProbeResult::Lost {
                mutating, validating, ..
            }) => (*mutating, *validating),
            Some(ProbeResult::Unknown(_)) | None => return self.probe_success.clear(),
        };
        for (r#type, arrives) in [("mutating", mutating), ("validating", validating)] {
            let probe = self.probe_success.get_or_create(&[("type", r#type)]);
            probe.set(i64::from(arrives));
        }
    }

    /// Shows whether this replica is the leader, for as long as it renews the lease.
    pub async fn follow(self, mut leadership: Leadership) {
        /// A lease that is not renewed expires without an event.
        const LOOK: std::time::Duration = std::time::Duration::from_secs(1);
        loop {
            self.leader.set(i64::from(leadership.holds()));
            if matches!(tokio::time::timeout(LOOK, leadership.changed()).await, Ok(Err(_))) {
                return;
            }
        }
    }
}

/// Sets each gauge of a family to the number of times its label occurs; labels that do not occur become zero.
fn set(
    family: &Family<MetricLabels, Gauge>,
    label: &'static str,
    all: impl IntoIterator<Item = &'static str>,
    words: impl Iterator<Item = &'static str>,
) {
    let mut counts: BTreeMap<&'static str, i64> = all.into_iter().map(|word| (word, 0)).collect();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    for (word, count) in counts {
        family.get_or_create(&[(label, word)]).set(count);
    }
}
