//! Reads the listed objects, and makes the state of a drain from them and from what the drain has done.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Deserialize;

use super::state::{DisruptionBudget, DrainNode, DrainPod, DrainProgress, DrainRules, DrainState, PodName};
use crate::model::image::ImageRef;
use crate::model::label_selector::LabelSelector;
use crate::model::mirror::{Witness, is_mirror};
use crate::model::node::{Host, Taint};
use crate::model::object::{Body, Object, ObjectError, ReviewStage, read_fields};
use crate::model::object_status::ObjectStatus;
use crate::model::resources::{Meta, Node, NodeCondition, PersistentVolume};
use crate::model::workload::Kind;
use crate::model::workload_name::WorkloadName;
use crate::plan::WorkloadOutline;

/// How many images a kubelet reports, the largest first (`nodeStatusMaxImages`).
const REPORTED_IMAGES: usize = 50;

/// A Windows node as it was listed.
#[derive(Clone, Debug)]
pub struct InventoryNode {
    /// What the scheduler and the plan know of it.
    pub host: Host,
    /// Whether it is cordoned (`spec.unschedulable`).
    pub is_cordoned: bool,
    /// Whether it is Ready.
    pub is_ready: bool,
    /// The images that it has, in one notation.
    pub images: BTreeSet<String>,
    /// Whether it may have images that it does not report: a kubelet reports at most 50.
    pub has_more_images: bool,
}

impl InventoryNode {
    /// Whether it has the startup taint, so that pods cannot start on it yet.
    pub fn is_gated(&self) -> bool {
        let mut taints = self.host.taints.iter();
        taints.any(|taint| taint.key == Taint::STARTUP_KEY && taint.keeps_off())
    }
}

/// What was listed.
#[derive(Clone, Debug, Default)]
pub struct DrainInventory {
    /// The Windows nodes, by name.
    pub nodes: BTreeMap<String, InventoryNode>,
    /// The pods. Their owners are the direct ones until [`DrainHistory::state`].
    pub(super) pods: Vec<DrainPod>,
    /// The controllers of workloads.
    owners: HashMap<WorkloadName, WorkloadName>,
    pub(super) desired: BTreeMap<WorkloadName, u64>,
    pub(super) budgets: Vec<DisruptionBudget>,
    node_claims: BTreeSet<(String, String)>,
}

impl DrainInventory {
    /// Reads an object; ignores kinds that a drain does not use.
    ///
    /// # Errors
    /// If the object does not match its kind.
    pub fn visit(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        match kind {
            Kind::Deployment
            | Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::ReplicationController
            | Kind::Job => self.visit_workload(kind, json),
            Kind::Node | Kind::Pod | Kind::PersistentVolume => {
                let object = Object::parse(kind, json, ReviewStage::Stored)?;
                match &object.body {
                    Body::Node(node) => self.add_node(node),
                    Body::Volume(volume) => self.add_volume(volume),
                    Body::Pod(_) => self.pods.push(pod(&object, json)),
                    _ => {}
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads a PodDisruptionBudget.
    ///
    /// # Errors
    /// If it is not one.
    pub fn visit_budget(&mut self, json: &str) -> Result<(), ObjectError> {
        let budget: WrittenBudget<'_> = read_fields(json)?;
        let WrittenBudget {
            metadata,
            spec,
            status,
        } = budget;
        let cannot_compute = status
            .conditions
            .iter()
            .any(|condition| condition.r#type == "DisruptionAllowed" && condition.reason == "SyncFailed");
        let is_full = status.expected_pods > 0 && status.desired_healthy >= status.expected_pods;
        self.budgets.push(DisruptionBudget {
            namespace: metadata.namespace.to_string(),
            name: metadata.name.to_string(),
            selector: spec.selector,
            allowed: u64::try_from(status.disruptions_allowed).unwrap_or_default(),
            desired_healthy: if cannot_compute {
                u64::MAX
            } else {
                u64::try_from(status.desired_healthy).unwrap_or_default()
            },
            is_zero: cannot_compute || is_full,
        });
        Ok(())
    }

    fn visit_workload(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        let outline: WorkloadOutline<'_> = read_fields(json)?;
        let meta = &outline.metadata;
        let own = WorkloadName::new(kind.as_str(), &meta.namespace, &meta.name);
        if let Some(owner) = meta.controller() {
            let owner = WorkloadName::of_owner(owner, &meta.namespace);
            self.owners.insert(own.clone(), owner);
        }
        if let Some(replicas) = outline.replicas(kind) {
            self.desired.insert(own, replicas);
        }
        Ok(())
    }

    fn add_node(&mut self, node: &Node<'_>) {
        let Some(host) = Host::of_node(node, None) else {
            return;
        };
        let status = &node.status;
        let is_ready = |it: &NodeCondition<'_>| it.r#type.as_str() == "Ready" && it.status.as_str() == "True";
        let names = status.images.iter().flat_map(|image| &image.names);
        let listed = InventoryNode {
            is_cordoned: node.spec.unschedulable.0,
            is_ready: status.conditions.iter().any(is_ready),
            images: names.filter_map(|name| image_key(name)).collect(),
            has_more_images: status.images.len() >= REPORTED_IMAGES,
            host,
        };
        self.nodes.insert(listed.host.name.clone(), listed);
    }

    /// Notes the claim of a volume that is on one node.
    fn add_volume(&mut self, volume: &PersistentVolume<'_>) {
        let spec = &volume.spec;
        if let Some(claim) = &spec.claim_ref
            && (spec.local.is_some() || spec.host_path.is_some())
        {
            let claim = (claim.namespace.to_string(), claim.name.to_string());
            self.node_claims.insert(claim);
        }
    }

    /// The schedulable nodes that the start gate keeps free of pods, except the drained ones.
    pub fn gated<'i>(&'i self, drained: &[String]) -> impl Iterator<Item = &'i InventoryNode> {
        let is_gated = |node: &&InventoryNode| {
            node.is_ready && !node.is_cordoned && node.is_gated() && !drained.contains(&node.host.name)
        };
        self.nodes.values().filter(is_gated)
    }

    /// The listed nodes of these, in this order.
    fn drained(&self, nodes: &[String]) -> Vec<DrainNode> {
        let drained = nodes.iter().filter_map(|name| {
            Some(DrainNode {
                name: name.clone(),
                is_cordoned: self.nodes.get(name)?.is_cordoned,
                refused: None,
            })
        });
        drained.collect()
    }

    /// The topmost owner that was listed, or a CronJob: the replicas of other owners, as custom resources, are not known, and
    /// one may own several workloads.
    fn top_owner(&self, mut owner: WorkloadName) -> WorkloadName {
        // The controllers of Kubernetes create at most three levels of owners.
        for _ in 0..4 {
            match self.owners.get(&owner) {
                Some(above) if self.desired.contains_key(above) || above.kind == "CronJob" => {
                    owner = above.clone();
                }
                _ => break,
            }
        }
        owner
    }
}

/// What a drain has done, and when something improved. Times are since its start.
#[derive(Clone, Debug, Default)]
pub struct DrainHistory {
    /// The workloads of which pods were evicted, with the replicas that were available before.
    moved: BTreeMap<WorkloadName, u64>,
    /// The workloads that were listed, of those.
    listed: BTreeSet<WorkloadName>,
    /// The most pods of workloads that were not listed.
    most: BTreeMap<WorkloadName, u64>,
    /// Since when pods have no node.
    pending: SeenSince,
    /// Since when pods are not Ready.
    unready: SeenSince,
    best: Option<DrainProgress>,
    improved: Duration,
}

impl DrainHistory {
    /// The state of the drain of these nodes, in this order, `now` after its start.
    pub fn state(
        &mut self,
        mut inventory: DrainInventory,
        nodes: &[String],
        rules: &DrainRules,
        now: Duration,
    ) -> DrainState {
        let mut pods = std::mem::take(&mut inventory.pods);
        for pod in &mut pods {
            pod.owner = pod.owner.take().map(|owner| inventory.top_owner(owner));
        }
        // A pod may wait for a node that the start gate releases.
        if inventory.gated(nodes).next().is_some() {
            self.pending = SeenSince::default();
        }
        let pending = pods.iter_mut().filter(|pod| pod.unschedulable.is_some());
        self.pending.update(pending, |pod| &mut pod.waits, now);
        let unready = pods.iter_mut().filter(|pod| !pod.is_ready);
        self.unready.update(unready, |pod| &mut pod.unready, now);
        // One that is no longer listed was deleted, and gets no replicas.
        let is_there =
            |owner: &WorkloadName| inventory.desired.contains_key(owner) || !self.listed.contains(owner);
        self.moved.retain(|owner, _| is_there(owner));
        self.count(&pods, &mut inventory.desired);
        let mut state = DrainState {
            nodes: inventory.drained(nodes),
            pods,
            desired: inventory.desired,
            budgets: inventory.budgets,
            moved: self.moved.clone(),
            node_claims: inventory.node_claims,
            elapsed: now,
            ..DrainState::default()
        };
        state.settle_budgets();
        let progress = state.progress(rules);
        if self.best.is_none_or(|best| progress < best) {
            (self.best, self.improved) = (Some(progress), now);
        }
        state.idle = now.saturating_sub(self.improved);
        state
    }

    /// Adds the desired replicas of workloads that were not listed, as the most pods that they had.
    fn count(&mut self, pods: &[DrainPod], desired: &mut BTreeMap<WorkloadName, u64>) {
        let mut counts: BTreeMap<&WorkloadName, u64> = BTreeMap::new();
        let stays = pods.iter().filter(|pod| !pod.has_ended && !pod.is_terminating);
        for owner in stays.filter_map(|pod| pod.owner.as_ref()) {
            if owner.has_replicas() && !desired.contains_key(owner) {
                *counts.entry(owner).or_default() += 1;
            }
        }
        for (owner, count) in counts {
            let most = self.most.entry(owner.clone()).or_default();
            *most = count.max(*most);
        }
        for (owner, most) in &self.most {
            desired.entry(owner.clone()).or_insert(*most);
        }
    }

    /// Keeps what was evicted since the state was made.
    pub fn keep(&mut self, state: &DrainState) {
        self.moved.clone_from(&state.moved);
        let listed = state.moved.keys().filter(|owner| !self.most.contains_key(*owner));
        self.listed.extend(listed.cloned());
    }

    /// The namespaces of the workloads of which pods were evicted.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.moved.keys().map(|owner| owner.namespace.as_str())
    }
}

/// Since when pods are in a condition, by uid.
#[derive(Clone, Debug, Default)]
struct SeenSince(HashMap<String, Duration>);

impl SeenSince {
    /// Notes how long these pods have been in it, in the field that is given; the other pods no longer are.
    fn update<'p>(
        &mut self,
        pods: impl Iterator<Item = &'p mut DrainPod>,
        field: fn(&mut DrainPod) -> &mut Duration,
        now: Duration,
    ) {
        let before = std::mem::take(&mut self.0);
        for pod in pods {
            let since = before.get(&pod.uid).copied().unwrap_or(now);
            self.0.insert(pod.uid.clone(), since);
            *field(pod) = now.saturating_sub(since);
        }
    }
}

/// One notation of an image: a node lists it with its registry and `library/`, and a pod may not.
pub(super) fn image_key(text: &str) -> Option<String> {
    Some(ImageRef::parse(text).ok()?.canonical())
}

fn pod(object: &Object<'_>, json: &str) -> DrainPod {
    let (meta, status) = (&object.meta, ObjectStatus::of(json));
    let spec = object.pod();
    let node = spec.and_then(|spec| spec.node_name.as_deref());
    let node = node.filter(|node| !node.is_empty());
    let volumes = || spec.into_iter().flat_map(|spec| &spec.volumes);
    let claims = volumes().filter_map(|volume| {
        let named = volume.persistent_volume_claim.as_ref();
        let named = named.map(|claim| claim.claim_name.to_string());
        let of_pod = volume.ephemeral.as_ref();
        named.or_else(|| of_pod.map(|_| format!("{}-{}", meta.name, volume.name)))
    });
    let owner = meta.controller();
    let is_mirror = is_mirror(Kind::Pod, meta, node, &Witness::Stored(&|_| None));
    DrainPod {
        name: PodName {
            namespace: object.namespace.to_string(),
            name: meta.name.to_string(),
        },
        uid: meta.uid.to_string(),
        node: node.map(str::to_owned),
        owner: owner.map(|owner| WorkloadName::of_owner(owner, &object.namespace)),
        is_mirror,
        has_ended: status.has_ended(Kind::Pod),
        has_started: !status.is_pending(),
        has_empty_dir: volumes().any(|volume| volume.empty_dir.is_some()),
        claims: claims.collect(),
        labels: meta.labels.to_owned_map(),
        images: spec
            .into_iter()
            .flat_map(|spec| spec.images().map(str::to_owned))
            .collect(),
        is_ready: status.is_true("Ready"),
        is_terminating: meta.deletion_timestamp.0,
        unschedulable: status
            .unschedulable()
            .filter(|_| node.is_none())
            .map(str::to_owned),
        waits: Duration::ZERO,
        unready: Duration::ZERO,
        refused: None,
    }
}

/// `policy/v1.PodDisruptionBudget`.
#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WrittenBudget<'a> {
    metadata: Meta<'a>,
    spec: BudgetSpec,
    status: BudgetStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct BudgetSpec {
    selector: Option<LabelSelector>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BudgetStatus {
    disruptions_allowed: i64,
    desired_healthy: i64,
    expected_pods: i64,
    conditions: Vec<BudgetCondition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct BudgetCondition {
    r#type: String,
    reason: String,
}

#[cfg(test)]
mod tests;
