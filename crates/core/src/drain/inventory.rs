//! Reads the listed objects, and makes the state of a drain from them and from what the drain has done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

use super::state::{DisruptionBudget, DrainNode, DrainPod, PodName, ReadTime};
use crate::model::nodes::node::{Host, NodeSigns as _, Taint};
use crate::model::nodes::node_affinity::{Match, matches_selector};
use crate::model::objects::label_selector::LabelSelector;
use crate::model::objects::mirror::{Witness, is_mirror};
use crate::model::objects::object::{Body, Object, ObjectError, ReviewStage, read_fields};
use crate::model::objects::object_status::ObjectStatus;
use crate::model::objects::pod::NodeSelector;
use crate::model::objects::resources::{Meta, Node, NodeCondition, PersistentVolume};
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::json::at;
use crate::model::syntax::json_types::Str;
use crate::model::windows::image::ImageRef;
use crate::plan::{ResourceList, WorkloadOutline};

/// How long a pod may take to be gone after its own time to end.
const DELETION: Duration = Duration::from_secs(30);
/// Why a budget with `maxUnavailable` allows nothing for pods without a controller.
const UNCOUNTED: &str = "it counts no pods, because none that it selects has a controller";
/// How many images a kubelet reports, the largest first (`nodeStatusMaxImages`).
const REPORTED_IMAGES: usize = 50;

/// A Windows node as it was listed.
#[derive(Clone, Debug)]
pub struct InventoryNode {
    pub uid: String,
    /// What the scheduler and the plan know of it.
    pub host: Host,
    /// Whether it is cordoned (`spec.unschedulable`).
    pub is_cordoned: bool,
    pub is_ready: bool,
    /// The images that it has, in one notation.
    pub images: BTreeSet<String>,
    /// Whether it may have images that it does not report: a kubelet reports at most 50.
    pub has_more_images: bool,
    /// What it offers; `None` if it does not report it.
    pub allocatable: Option<ResourceList>,
}

impl InventoryNode {
    /// Whether it has the startup taint, so that pods cannot start on it yet.
    pub fn is_gated(&self) -> bool {
        let mut taints = self.host.taints.iter();
        taints.any(|taint| taint.key == Taint::STARTUP_KEY && taint.keeps_off())
    }
}

/// The objects that a drain has listed.
#[derive(Clone, Debug, Default)]
pub struct DrainInventory {
    /// The Windows nodes, by name.
    pub nodes: BTreeMap<String, InventoryNode>,
    pub(super) spaces: BTreeMap<String, NamespaceObjects>,
    /// The API versions of owners.
    versions: BTreeMap<WorkloadName, String>,
    /// The volumes of claims that not every node can use: the required node affinity, as JSON; `None` for one node.
    volumes: BTreeMap<(String, String), Option<String>>,
}

/// What was listed of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct NamespaceObjects {
    /// The pods. Their owners are the direct ones until [`DrainHistory::state`](super::DrainHistory::state).
    pub(super) pods: Vec<DrainPod>,
    pub(super) workloads: BTreeMap<WorkloadName, ListedWorkload>,
    /// The replicas of owners that are not listed, by their scale subresource; `None` if they have none.
    pub(super) scales: BTreeMap<WorkloadName, Option<u64>>,
    pub(super) budgets: Vec<DisruptionBudget>,
    pub(super) read: ReadTime,
}

/// A workload that was listed.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedWorkload {
    pub(super) owner: Option<WorkloadName>,
    pub(super) replicas: Option<u64>,
    pub(super) min_ready: Duration,
    pub(super) is_rolling: bool,
    /// Whether its template names a node.
    pub(super) has_node_name: bool,
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
                    Body::Volume(volume) => self.add_volume(volume, json),
                    Body::Pod(_) => self.add_pod(&object, json)?,
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
        let WrittenBudget {
            metadata,
            spec,
            status,
        } = read_fields(json)?;
        let failed = |it: &&BudgetCondition| it.r#type == "DisruptionAllowed" && it.reason == "SyncFailed";
        let failure = status.conditions.iter().find(failed).map(|it| it.message.clone());
        let counts_none = status.observed_generation > 0 && status.expected_pods == 0;
        let failure = failure.or_else(|| counts_none.then(|| UNCOUNTED.to_owned()));
        let is_full = status.expected_pods > 0 && status.desired_healthy >= status.expected_pods;
        let budget = DisruptionBudget {
            namespace: metadata.namespace.to_string(),
            name: metadata.name.to_string(),
            selector: spec.selector,
            allowed: u64::try_from(status.disruptions_allowed).unwrap_or_default(),
            desired_healthy: match &failure {
                Some(_) => u64::MAX,
                None => u64::try_from(status.desired_healthy).unwrap_or_default(),
            },
            is_zero: failure.is_some() || is_full,
            failure,
        };
        self.space(&metadata.namespace).budgets.push(budget);
        Ok(())
    }

    fn space(&mut self, namespace: &str) -> &mut NamespaceObjects {
        self.spaces.entry(namespace.to_owned()).or_default()
    }

    /// Records when everything so far was read.
    pub fn read_in(&mut self, read: ReadTime) {
        for space in self.spaces.values_mut() {
            space.read = read;
        }
    }

    /// An inventory for one namespace, with what is known of owners.
    #[must_use]
    pub fn for_namespace(&self) -> DrainInventory {
        DrainInventory {
            versions: self.versions.clone(),
            ..DrainInventory::default()
        }
    }

    /// The namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.spaces.keys()
    }

    /// Forgets all other namespaces.
    pub fn retain(&mut self, namespaces: &BTreeSet<String>) {
        self.spaces.retain(|namespace, _| namespaces.contains(namespace));
    }

    /// Replaces what was listed of a namespace.
    pub fn replace(&mut self, namespace: &str, mut listed: DrainInventory, read: ReadTime) {
        let mut space = listed.spaces.remove(namespace).unwrap_or_default();
        space.read = read;
        self.spaces.insert(namespace.to_owned(), space);
        self.versions.append(&mut listed.versions);
    }

    /// The owners in a namespace whose replicas their scale subresource may say: name and API version. They own the pods on
    /// these nodes, or are in `moved`, or own a workload that does.
    pub fn scaled_owners(
        &self,
        namespace: &str,
        nodes: &[String],
        moved: &BTreeSet<WorkloadName>,
    ) -> Vec<(WorkloadName, String)> {
        let Some(space) = self.spaces.get(namespace) else {
            return Vec::new();
        };
        let is_there = |pod: &&DrainPod| {
            let is_left = pod.node.as_ref().is_some_and(|node| nodes.contains(node));
            is_left || pod.owner.as_ref().is_some_and(|owner| moved.contains(owner))
        };
        let direct = space.pods.iter().filter(is_there).filter(|pod| pod.is_replica);
        let mut owners: BTreeSet<&WorkloadName> = moved.iter().collect();
        for mut owner in direct.filter_map(|pod| pod.owner.as_ref()) {
            for _ in 0..MOST_LEVELS {
                owners.insert(owner);
                let Some(above) = space.workloads.get(owner).and_then(|it| it.owner.as_ref()) else {
                    break;
                };
                owner = above;
            }
        }
        let custom = owners.into_iter().filter_map(|owner| {
            let is_custom = owner.known_kind().is_none_or(Kind::is_custom);
            let version = self.versions.get(owner).filter(|_| is_custom)?;
            (owner.namespace == namespace).then(|| (owner.clone(), version.clone()))
        });
        custom.collect()
    }

    /// Records the replicas of such an owner; `None` if it has no scale subresource.
    pub fn scaled(&mut self, owner: &WorkloadName, replicas: Option<u64>) {
        let space = self.space(&owner.namespace);
        space.scales.insert(owner.clone(), replicas);
    }

    fn visit_workload(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        let outline: WorkloadOutline<'_> = read_fields(json)?;
        let rollout: RolloutFields<'_> = read_fields(json)?;
        let meta = &outline.metadata;
        let own = WorkloadName::of(kind, &meta.namespace, &meta.name).with_uid(&meta.uid);
        let workload = ListedWorkload {
            owner: self.owner_of(meta),
            replicas: outline.replicas(kind),
            min_ready: Duration::from_secs(rollout.spec.min_ready_seconds),
            is_rolling: rollout.is_rolling(kind, &outline),
            has_node_name: rollout.spec.template.spec.node_name.is_some(),
        };
        self.space(&meta.namespace).workloads.insert(own, workload);
        Ok(())
    }

    fn add_pod(&mut self, object: &Object<'_>, json: &str) -> Result<(), ObjectError> {
        let more: PodFields<'_> = read_fields(json)?;
        let owner = self.owner_of(&object.meta);
        let mut pod = pod(object, json, owner, &more);
        let is_on_known = pod
            .node
            .as_ref()
            .is_some_and(|node| self.nodes.contains_key(node));
        pod.spec = at(json, &["spec"]).filter(|_| is_on_known).map(Box::from);
        self.space(&object.namespace).pods.push(pod);
        Ok(())
    }

    /// The controller of an object, whose API version is noted.
    fn owner_of(&mut self, meta: &Meta<'_>) -> Option<WorkloadName> {
        let owner = meta.controller()?;
        let name = WorkloadName::owner_of(meta, &meta.namespace)?.with_uid(&owner.uid);
        self.versions.insert(name.clone(), owner.api_version.to_string());
        Some(name)
    }

    fn add_node(&mut self, node: &Node<'_>) {
        let Some(host) = Host::of_node(node, None).filter(|_| node.has_windows()) else {
            return;
        };
        let status = &node.status;
        let is_ready = |it: &NodeCondition<'_>| it.r#type.as_str() == "Ready" && it.status.as_str() == "True";
        let names = status.images.iter().flat_map(|image| &image.names);
        let listed = InventoryNode {
            uid: node.metadata.uid.to_string(),
            is_cordoned: node.spec.unschedulable.0,
            is_ready: status.conditions.iter().any(is_ready),
            images: names.filter_map(|name| image_key(name)).collect(),
            has_more_images: status.images.len() >= REPORTED_IMAGES,
            allocatable: ResourceList::of_node(&status.allocatable),
            host,
        };
        self.nodes.insert(listed.host.name.clone(), listed);
    }

    /// Notes the claim of a volume that not every node can use.
    fn add_volume(&mut self, volume: &PersistentVolume<'_>, json: &str) {
        let spec = &volume.spec;
        let affinity = at(json, &["spec", "nodeAffinity", "required"]).filter(|json| *json != "null");
        if let Some(claim) = &spec.claim_ref
            && (affinity.is_some() || spec.local.is_some() || spec.host_path.is_some())
        {
            let claim = (claim.namespace.to_string(), claim.name.to_string());
            self.volumes.insert(claim, affinity.map(str::to_owned));
        }
    }

    /// The claims of these pods whose volume no other node can use than these.
    pub(super) fn node_claims(&self, pods: &[DrainPod], nodes: &[String]) -> BTreeSet<(String, String)> {
        let claims = pods.iter().flat_map(|pod| {
            let claims = pod.claims.iter();
            claims.map(|claim| (pod.name.namespace.clone(), claim.clone()))
        });
        let claims: BTreeSet<(String, String)> = claims.collect();
        let others = || {
            self.nodes
                .values()
                .filter(|node| !nodes.contains(&node.host.name))
        };
        let is_on_node = |claim: &(String, String)| match self.volumes.get(claim) {
            None => false,
            Some(None) => true,
            Some(Some(json)) => match serde_json::from_str::<NodeSelector<'_>>(json) {
                Ok(selector) => others().all(|node| matches_selector(&selector, &node.host) == Match::No),
                Err(_) => true,
            },
        };
        claims.into_iter().filter(is_on_node).collect()
    }

    /// The schedulable nodes that the start gate keeps free of pods, except the drained ones.
    pub fn gated<'i>(&'i self, drained: &[String]) -> impl Iterator<Item = &'i InventoryNode> {
        let is_gated = |node: &&InventoryNode| {
            node.is_ready && !node.is_cordoned && node.is_gated() && !drained.contains(&node.host.name)
        };
        self.nodes.values().filter(is_gated)
    }

    /// These nodes, in this order. Nothing is scheduled on one that is gone, and its pods are left until something deletes them.
    pub(super) fn drained(&self, nodes: &[String]) -> Vec<DrainNode> {
        let drained = nodes.iter().map(|name| DrainNode {
            name: name.clone(),
            is_cordoned: self.nodes.get(name).is_none_or(|node| node.is_cordoned),
            refused: None,
        });
        drained.collect()
    }
}

/// Levels of owners: the controllers of Kubernetes create at most three, and one more may own these.
const MOST_LEVELS: usize = 5;

impl NamespaceObjects {
    /// The topmost owner that has replicas, or a CronJob. What owns a ReplicaSet has its replicas; another owner has those of
    /// what it owns only if it can be scaled.
    fn top_owner(&self, mut owner: WorkloadName) -> WorkloadName {
        for _ in 0..MOST_LEVELS {
            let Some(above) = self
                .workloads
                .get(&owner)
                .and_then(|listed| listed.owner.as_ref())
            else {
                break;
            };
            let is_scaled = self.scales.get(above).is_some_and(Option::is_some);
            if !is_scaled && !matches!(owner.known_kind(), Some(Kind::ReplicaSet | Kind::Job)) {
                break;
            }
            owner = above.clone();
        }
        owner
    }

    /// What is known of each topmost owner. The replicas of custom resources are at least those of what they own: some count
    /// something else.
    pub(super) fn services(&self) -> BTreeMap<WorkloadName, ListedWorkload> {
        let mut all: BTreeMap<WorkloadName, ListedWorkload> = BTreeMap::new();
        for (name, listed) in &self.workloads {
            let top = self.top_owner(name.clone());
            let is_own = self.workloads.contains_key(&top);
            let service = all.entry(top.clone()).or_default();
            service.min_ready = service.min_ready.max(listed.min_ready);
            service.is_rolling |= listed.is_rolling;
            if top == *name {
                service.replicas = listed.replicas;
            } else if !is_own {
                let others = service.replicas.unwrap_or_default();
                service.replicas = listed
                    .replicas
                    .map(|own| own.saturating_add(others))
                    .or(service.replicas);
            }
        }
        for (owner, replicas) in &self.scales {
            let service = all.entry(owner.clone()).or_default();
            service.replicas = service.replicas.max(*replicas);
        }
        all
    }

    /// Names the workload of each pod, and what it requires.
    pub(super) fn settle_pods(
        &mut self,
        services: &BTreeMap<WorkloadName, ListedWorkload>,
        min_ready: Duration,
    ) {
        let mut pods = std::mem::take(&mut self.pods);
        for pod in &mut pods {
            let Some(owner) = pod.owner.take() else { continue };
            let direct = self.workloads.get(&owner);
            if direct.is_some_and(|listed| listed.has_node_name) {
                pod.returns =
                    Some("its template names a node (nodeName), so its new pods come back to it".to_owned());
            }
            let top = self.top_owner(owner);
            let own = services.get(&top).map(|service| service.min_ready);
            pod.min_ready = own.filter(|own| !own.is_zero()).unwrap_or(min_ready);
            pod.is_replica &= !matches!(top.known_kind(), Some(Kind::Job | Kind::CronJob));
            pod.owner = Some(top);
        }
        self.pods = pods;
    }
}

/// One notation of an image: a node lists it with its registry and `library/`, and a pod may not.
pub(super) fn image_key(text: &str) -> Option<String> {
    Some(ImageRef::parse(text).ok()?.canonical())
}

fn pod(object: &Object<'_>, json: &str, owner: Option<WorkloadName>, more: &PodFields<'_>) -> DrainPod {
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
    let cordoned = Taint::no_schedule("node.kubernetes.io/unschedulable", "");
    let returns = spec.is_some_and(|spec| spec.tolerations.iter().any(|it| cordoned.is_tolerated_by(it)));
    let restarts = spec.and_then(|spec| spec.restart_policy.as_deref());
    let grace = u64::try_from(more.metadata.deletion_grace_period_seconds).unwrap_or_default();
    DrainPod {
        name: PodName {
            namespace: object.namespace.to_string(),
            name: meta.name.to_string(),
        },
        uid: meta.uid.to_string(),
        node: node.map(str::to_owned),
        owner,
        is_replica: restarts.is_none_or(|policy| policy == "Always"),
        is_mirror: is_mirror(Kind::Pod, meta, node, &Witness::Stored(&|_| None)),
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
        ready_transition: status.transition("Ready").to_owned(),
        is_terminating: meta.deletion_timestamp.0,
        grace: Duration::from_secs(grace) + DELETION,
        returns: returns.then(|| {
            "it tolerates node.kubernetes.io/unschedulable, so its new pods may come back to cordoned nodes".to_owned()
        }),
        unschedulable: status
            .unschedulable()
            .filter(|_| node.is_none())
            .map(str::to_owned),
        priority: more.spec.priority,
        preempts: more.spec.preemption_policy.as_deref() != Some("Never"),
        requests: spec.map_or_else(ResourceList::default, |spec| ResourceList::of_pod(spec, |_| None)),
        ..DrainPod::default()
    }
}

/// What a drain reads of a pod in addition to what rules read.
#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PodFields<'a> {
    metadata: PodMetaFields,
    spec: PodSpecFields<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodMetaFields {
    deletion_grace_period_seconds: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct PodSpecFields<'a> {
    priority: i64,
    preemption_policy: Option<Str<'a>>,
}

/// What a drain reads of a workload in addition to its replicas.
#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct RolloutFields<'a> {
    metadata: Generation,
    spec: RolloutSpec<'a>,
    status: RolloutStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Generation {
    generation: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct RolloutSpec<'a> {
    min_ready_seconds: u64,
    update_strategy: UpdateStrategy<'a>,
    template: RolloutTemplate<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct UpdateStrategy<'a> {
    r#type: Str<'a>,
    rolling_update: Partition,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Partition {
    partition: u64,
}

#[derive(Deserialize, Default)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct RolloutTemplate<'a> {
    spec: TemplateSpec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct TemplateSpec<'a> {
    node_name: Option<Str<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RolloutStatus {
    observed_generation: i64,
    replicas: u64,
    updated_replicas: u64,
}

impl RolloutFields<'_> {
    /// Whether its controller replaces pods now, as in `kubectl rollout status`.
    fn is_rolling(&self, kind: Kind, outline: &WorkloadOutline<'_>) -> bool {
        let (spec, status) = (&self.spec, &self.status);
        let replicas = outline.replicas(kind).unwrap_or(1);
        let is_seen = self.metadata.generation <= status.observed_generation;
        match kind {
            Kind::Deployment => {
                let is_complete =
                    status.updated_replicas >= replicas && status.replicas <= status.updated_replicas;
                !(outline.rests() || is_seen && is_complete)
            }
            Kind::StatefulSet => {
                let updated = replicas.saturating_sub(spec.update_strategy.rolling_update.partition);
                let is_manual = &*spec.update_strategy.r#type == "OnDelete";
                !(is_manual || is_seen && status.updated_replicas >= updated)
            }
            _ => false,
        }
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
    observed_generation: i64,
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
    message: String,
}

#[cfg(test)]
mod tests;
