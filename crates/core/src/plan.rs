//! Upgrade planning: what another Windows build on the nodes means for each workload, for the order in which
//! pools can be drained or upgraded, and for capacity. Pure: visits objects one at a time, and returns a plan.

mod between_pods;
mod capacity;
mod constraints;
mod daemon_sets;
mod drain_order;
mod elsewhere;
mod image_pulls;
mod leaving;
mod lookups;
mod new_nodes;
mod nodes;
mod notes;
mod outlook;
mod placement;
mod plan_finding;
mod planned_cluster;
mod platform;
mod replicas;
mod requirements;
mod resource_list;
mod target;
mod upgrade_plan;
mod workload;
mod workload_images;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use self::constraints::{SchedulingContext, TargetNodes};
pub use self::image_pulls::{ImagePull, ImagePulls, PULLS_SCHEMA, PoolPulls, PullTotal};
use self::lookups::{UndecidedWorkloads, is_undecided};
pub use self::new_nodes::{PlannedChange, Upgrade, UpgradeMethod};
pub use self::nodes::{NoNode, NoPool, NodeInventory};
pub use self::outlook::{PoolDate, PoolFault, PoolOutlook};
pub use self::placement::AssumedPlacement;
pub use self::plan_finding::{BlockedBy, FindingSource, PlanFinding, Proposal, RegistryCheck, UpgradeClass};
use self::planned_cluster::PlannedCluster;
use self::replicas::PlacedPod;
pub use self::replicas::WorkloadOutline;
pub use self::resource_list::ResourceList;
pub use self::target::{NoRelease, TargetBuild};
pub use self::upgrade_plan::{
    Blocker, BuildCapacity, DrainStep, NewNodePulls, NodeCapacity, NodesNeeded, PlanSummary, UpgradePlan,
    WorkloadPlan,
};
use self::workload::{MOST_CONTAINERS, PlannedWorkload, ServiceAccountUse, WorkloadContext};
use self::workload_images::{ImageUse, WorkloadIsolation};
use crate::engine::infer_os;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::PlacementMode;
use crate::model::nodes::node::Host;
use crate::model::objects::object::{Object, ObjectError, ReviewStage, read_fields};
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload::configured::ConfiguredKind;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::windows::build::{Build, ContainerIsolation};
use crate::model::windows::os::Verdict;
use crate::rules::{Cx, Image};

/// The schema of a plan.
pub const SCHEMA: &str = "transom.dev/plan/v1";

/// The options of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    pub change: PlannedChange,
    /// The pools to remove, or to upgrade in place, by name, by build or by one of their nodes; empty selects every pool of an
    /// older build.
    pub from: Vec<String>,
    /// Whether the new nodes may retrieve the passwords of group-managed service accounts.
    pub gmsa_ready: bool,
}

impl PlanOptions {
    /// This change, and no other options.
    pub fn new(change: PlannedChange) -> Self {
        PlanOptions {
            change,
            from: Vec::new(),
            gmsa_ready: false,
        }
    }

    /// Another node of every pool, and no upgrade.
    pub fn more_nodes() -> Self {
        let (to, pools) = (None, Vec::new());
        PlanOptions::new(PlannedChange::MoreNodes { to, pools })
    }

    /// An upgrade of these pools in place; if none is named, of every pool of an older build to new nodes.
    pub fn upgrade(to: Build, in_place: &[String]) -> Self {
        let method = if in_place.is_empty() {
            UpgradeMethod::NewNodes
        } else {
            UpgradeMethod::InPlace
        };
        PlanOptions {
            from: in_place.to_vec(),
            ..PlanOptions::new(PlannedChange::Upgrade(Upgrade { to, method }))
        }
    }
}

/// The result of visiting an object.
enum PlannedObject {
    /// A workload, by index.
    Workload(usize),
    /// Not for Windows, or finished.
    Other,
    /// Its owner was visited before.
    OwnedBy(WorkloadName),
}

/// Visits objects and plans.
pub struct Planner<'f> {
    /// What is known of the cluster, and of images what registries report.
    facts: Arc<Facts>,
    /// What is planned for; known after all nodes were visited.
    planned: OnceLock<PlannedCluster>,
    policies: &'f PolicySet,
    plan_options: PlanOptions,
    nodes: NodeInventory,
    workloads: Vec<PlannedWorkload>,
    entries: HashMap<WorkloadName, PlannedObject>,
    /// Image names, interned.
    names: BTreeSet<Arc<str>>,
    /// Accounts with which a pod is ready on a node of the new build, and the name of that node.
    proven: BTreeMap<String, String>,
    /// Whether a pod of a Windows workload was visited.
    has_pods: bool,
    /// Whether any pod was visited: otherwise nothing is known of what the pods on nodes request.
    lists_pods: bool,
    /// Hashes of the namespaces and names of the visited pods, of which there can be 150,000.
    pods: HashSet<u64>,
    /// The policy of each namespace with a Windows workload: its name and its `placement`.
    placements: BTreeMap<String, (String, PlacementMode)>,
    /// Why nothing is known of images that registries were asked about; `None` if registries are not asked.
    unanswered: Option<BTreeMap<String, String>>,
    /// The workloads that registries could decide the operating system of; `None` if registries are not asked.
    undecided: Option<UndecidedWorkloads>,
}

impl<'f> Planner<'f> {
    /// A planner without any objects yet. The facts hold RuntimeClasses, namespaces, and pools at zero nodes.
    pub fn new(facts: &Facts, policies: &'f PolicySet, plan_options: PlanOptions) -> Self {
        Planner {
            facts: Arc::new(facts.clone()),
            planned: OnceLock::new(),
            policies,
            plan_options,
            nodes: NodeInventory::default(),
            workloads: Vec::new(),
            entries: HashMap::new(),
            names: BTreeSet::new(),
            proven: BTreeMap::new(),
            has_pods: false,
            lists_pods: false,
            pods: HashSet::new(),
            placements: BTreeMap::new(),
            unanswered: None,
            undecided: None,
        }
    }

    /// With nodes and RuntimeClasses that were visited before.
    #[must_use]
    pub fn with_nodes(self, nodes: NodeInventory) -> Self {
        Planner { nodes, ..self }
    }

    /// The upgrade; `None` if nothing is upgraded.
    fn upgrade(&self) -> Option<Upgrade> {
        self.plan_options.change.upgrade()
    }

    /// The custom resources that administrators add to the built-in ones.
    pub fn configured_kinds(&self) -> &[ConfiguredKind] {
        &self.facts.config.pod_templates
    }

    /// Whether custom resources affect the plan: new nodes must be ready for the first pod of one, but an upgrade concerns what their
    /// controllers have created.
    pub fn reads_custom_resources(&self) -> bool {
        self.upgrade().is_none()
    }

    /// The pass in which objects of a kind must be visited: nodes and RuntimeClasses first, owners before
    /// their children, pods last. `None` for kinds that do not affect the plan.
    pub fn pass(kind: Kind) -> Option<u8> {
        match kind {
            Kind::Node | Kind::RuntimeClass => Some(0),
            Kind::Deployment
            | Kind::CronJob
            | Kind::StatefulSet
            | Kind::DaemonSet
            | Kind::ReplicationController
            | Kind::PodTemplate => Some(1),
            Kind::ReplicaSet | Kind::Job => Some(2),
            Kind::Pod => Some(3),
            kind if kind.is_custom() => Some(1),
            _ => None,
        }
    }

    /// The number of passes.
    pub const PASSES: u8 = 4;

    /// Visits one object, in the order of [`Planner::pass`].
    ///
    /// # Errors
    /// If the object does not match its kind.
    pub fn visit(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        match kind {
            Kind::Node | Kind::RuntimeClass => self.nodes.visit(kind, json),
            Kind::Pod => self.visit_pod(json),
            kind if kind.is_custom() && !self.reads_custom_resources() => Ok(()),
            kind if kind.has_pod() => self.visit_template(kind, json),
            _ => Ok(()),
        }
    }

    fn visit_template(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        let subject = in_namespace(Object::parse(kind, json, ReviewStage::Stored)?);
        let outline = match read_fields::<WorkloadOutline<'_>>(json) {
            // Its fields may mean something else.
            Err(_) if kind.is_custom() => WorkloadOutline::default(),
            outline => outline?,
        };
        let key = WorkloadName::of(kind, &subject.namespace, subject.meta.display_name());
        // Several inputs can contain the same object. Objects without a name are different ones.
        if !subject.meta.name.is_empty() && self.entries.contains_key(&key) {
            return Ok(());
        }
        let replicas = outline.replicas(kind);
        if let Some(owner) = WorkloadName::owner_of(&subject.meta, &key.namespace) {
            // Custom resources are visited in any order.
            let is_of_custom = kind.is_custom() && subject.creator_kind().is_some();
            if is_of_custom || self.entries.contains_key(&owner) {
                self.entries.insert(key, PlannedObject::OwnedBy(owner));
                return Ok(());
            }
            // An old revision that a rollout has kept.
            if replicas == Some(0) {
                self.entries.insert(key, PlannedObject::Other);
                return Ok(());
            }
        }
        if outline.has_ended(kind) {
            self.entries.insert(key, PlannedObject::Other);
            return Ok(());
        }
        if let Kind::Configured(added) = kind
            && !self.facts.config.pod_templates.contains(&added)
        {
            return Ok(());
        }
        let rests = outline.rests();
        let first = self.workloads.len();
        subject.for_each_pod(|subject| {
            let pod = subject.template().filter(|template| template.has_spec);
            let requests = self.requests(pod.map(|template| &template.spec));
            self.plan_as(subject, key.clone(), false, |workload| PlannedWorkload {
                replicas,
                rests,
                requests,
                is_daemon_set: kind.is_daemon_set(),
                ..workload
            });
        });
        if self.workloads.len() > first {
            // Another one of its pods may be for Linux.
            self.entries.insert(key, PlannedObject::Workload(first));
        }
        Ok(())
    }

    /// The requests of a pod; nothing without one.
    fn requests(&self, pod: Option<&PodSpec<'_>>) -> ResourceList {
        let overhead = |class: &str| self.nodes.overheads.get(class).cloned();
        pod.map_or_else(ResourceList::default, |pod| ResourceList::of_pod(pod, overhead))
    }

    fn visit_pod(&mut self, json: &str) -> Result<(), ObjectError> {
        let pod: PlacedPod<'_> = read_fields(json)?;
        self.lists_pods = true;
        if pod.has_ended() || !self.is_new(&pod) {
            return Ok(());
        }
        let requests = self.requests(pod.spec.as_ref());
        let stays = pod.is_of_node() || pod.is_mirror(&|node| self.nodes.get(node)?.uid.as_deref());
        let to = self.upgrade().map(|upgrade| upgrade.to);
        let node = pod.node_name().and_then(|name| self.nodes.get(name));
        let is_of_target = |host: &Host| to.is_some() && host.build == to;
        let node = node.map(|node| (node.pool, is_of_target(&node.host), node.host.name.clone()));
        let pool = node
            .as_ref()
            .and_then(|(pool, ..)| self.nodes.pools.get_mut(*pool));
        if let Some(pool) = pool {
            pool.requested += &requests;
            if !pod.is_daemon() && !stays {
                pool.movable += &requests;
                let limit = pod.spec.as_ref().map_or(0, PodSpec::memory_limit);
                pool.limits = pool.limits.saturating_add(limit);
            }
        }
        if stays {
            return Ok(());
        }
        let index = self.workload_of_pod(json, &pod, requests)?;
        let Some(workload) = index.and_then(|index| self.workloads.get_mut(index)) else {
            return Ok(());
        };
        self.has_pods = true;
        let Some((pool, is_new, node)) = node else {
            workload.pending += 1;
            return Ok(());
        };
        *workload.pods.entry(pool).or_default() += 1;
        if workload.is_daemon_set {
            workload.nodes.insert(node.clone());
        }
        if is_new && pod.is_ready() {
            for account in &workload.accounts {
                self.proven.insert(account.name.clone(), node.clone());
            }
            workload.ready_on.get_or_insert(node);
        }
        Ok(())
    }

    /// The workload of a pod. If its owner was not visited, the pod is planned instead of it.
    fn workload_of_pod(
        &mut self,
        json: &str,
        pod: &PlacedPod<'_>,
        requests: ResourceList,
    ) -> Result<Option<usize>, ObjectError> {
        let is_on_windows = pod.node_name().is_some_and(|name| self.nodes.get(name).is_some());
        let is_elsewhere =
            !is_on_windows && pod.node_name().is_some() && !self.nodes.is_empty() && pod.is_ready();
        let (owner, planned) = match self.workload_of(pod.workload()) {
            Ok(index) => return Ok(Some(index)),
            // A Linux agent that tolerates all taints also runs on Windows nodes.
            Err((key, true)) if pod.is_daemon() || !is_on_windows => (key, None),
            Err((key, _)) => {
                let runs_there = is_on_windows && !pod.is_daemon() && pod.is_at_home();
                (key.clone(), self.plan_pod(json, key, requests, runs_there)?)
            }
        };
        if let Some(undecided) = self.undecided.as_mut().filter(|_| is_elsewhere) {
            undecided.runs_elsewhere(&owner);
        }
        Ok(planned)
    }

    /// Whether a pod was not visited before: several inputs can contain it. A cluster has one pod of a name in a
    /// namespace, so a pod with another uid is a later state of it. Pods without a name are different ones.
    fn is_new(&mut self, pod: &PlacedPod<'_>) -> bool {
        let (namespace, name) = (pod.namespace(), &*pod.metadata.name);
        let pod = self.pods.hasher().hash_one((namespace, name));
        name.is_empty() || self.pods.insert(pod)
    }

    /// The workload that an owner belongs to; otherwise its key, and whether it was visited.
    fn workload_of(&self, mut key: WorkloadName) -> Result<usize, (WorkloadName, bool)> {
        // The controllers of Kubernetes create at most three levels of owners.
        for _ in 0..4 {
            match self.entries.get(&key) {
                Some(PlannedObject::Workload(index)) => return Ok(*index),
                Some(PlannedObject::Other) => return Err((key, true)),
                Some(PlannedObject::OwnedBy(owner)) => key = owner.clone(),
                None => break,
            }
        }
        Err((key, false))
    }

    /// Evaluates a workload from one of its pods, because its own object was not visited.
    fn plan_pod(
        &mut self,
        json: &str,
        key: WorkloadName,
        requests: ResourceList,
        on_windows: bool,
    ) -> Result<Option<usize>, ObjectError> {
        let subject = in_namespace(Object::parse(Kind::Pod, json, ReviewStage::Stored)?);
        let read_from = (key.kind != "Pod").then(|| subject.meta.display_name().to_owned());
        let is_daemon_set = key.kind == "DaemonSet";
        let before = self.workloads.len();
        self.plan_as(&subject, key, on_windows, |workload| PlannedWorkload {
            read_from,
            is_daemon_set,
            requests,
            ..workload
        });
        Ok((self.workloads.len() > before).then_some(before))
    }

    /// Records a workload that is for Windows: by its evidence, or because it runs on Windows.
    fn plan_as(
        &mut self,
        subject: &Object<'_>,
        key: WorkloadName,
        runs_on_windows: bool,
        with: impl FnOnce(PlannedWorkload) -> PlannedWorkload,
    ) {
        let facts = Arc::clone(&self.facts);
        let policy = self.policies.in_namespace(&subject.namespace, &facts);
        let inference = infer_os(subject, &facts, &policy);
        // A Task runs where its TaskRun says, unless it selects nodes itself.
        let is_placed = subject.kind.selects_nodes() || inference.selects_nodes(false);
        let is_windows = match inference.verdict {
            Verdict::Windows => is_placed,
            Verdict::Unknown => runs_on_windows,
            Verdict::Linux | Verdict::Conflicting => false,
        };
        if is_undecided(&inference, &policy) {
            self.note_undecided(subject, &key, is_windows);
        }
        let images = subject.pod().map(|pod| Image::of_pod(pod, &facts));
        let images = images.unwrap_or_default();
        let cx = Cx::new(subject, &inference, &facts, &policy, &images);
        let Some(cx) = cx.pod().filter(|_| is_windows) else {
            self.entries.insert(key, PlannedObject::Other);
            return;
        };
        let namespace = self.placements.entry(key.namespace.clone());
        namespace.or_insert_with(|| (policy.name.clone(), policy.placement));
        let planned = self.planned();
        let scheduling = SchedulingContext::new(&self.nodes, (&facts, &planned.facts), &policy);
        let upgrade = self.upgrade();
        let target_nodes = upgrade.map(|upgrade| TargetNodes::new(&scheduling, upgrade, &planned.targets));
        let is_bound = subject.pod().is_some_and(PodSpec::is_bound);
        let reading = WorkloadContext {
            as_placed: subject.kind == Kind::Pod && is_bound,
            scheduling: &scheduling,
            target_nodes: target_nodes.as_ref(),
            planned,
            cx,
        };
        let (mut workload, images) = (reading.workload(key.clone()), reading.images());
        workload.images = (images.into_iter())
            .map(|(path, image)| ImageUse {
                path,
                image: intern(&mut self.names, &image),
            })
            .collect();
        self.workloads.push(with(workload));
        let index = self.workloads.len() - 1;
        self.entries.insert(key, PlannedObject::Workload(index));
    }

    /// Records a workload that registries could decide the operating system of.
    fn note_undecided(&mut self, subject: &Object<'_>, key: &WorkloadName, is_planned: bool) {
        if let (Some(undecided), Some(pod)) = (&mut self.undecided, subject.pod()) {
            let containers = pod.visit_containers().take(MOST_CONTAINERS);
            let images = containers.filter_map(|(_, _, container)| container.image.as_deref());
            undecided.add(key.clone(), images, is_planned);
        }
    }

    /// The findings of one workload that do not depend on other workloads.
    fn state(&self, workload: &PlannedWorkload, to: Build) -> Vec<PlanFinding> {
        let knowledge = self.knowledge(to);
        let images = workload.images.iter().map(|used| {
            let finding = knowledge.state(used, workload.kernel);
            match &workload.ready_on {
                Some(node) if finding.class == UpgradeClass::Unknown => {
                    let message = format!(
                        "a pod with {} is ready on {node}",
                        crate::model::syntax::text::shown(&used.image)
                    );
                    let source = FindingSource::row(format!("ready on a node of {to}"), READY);
                    PlanFinding::new(UpgradeClass::Unchanged, &*used.path, message, source)
                }
                _ => finding,
            }
        });
        let mut findings: Vec<PlanFinding> = images.collect();
        findings.extend(workload.findings.iter().cloned());
        if workload.kernel != WorkloadIsolation::Known(ContainerIsolation::HostProcess) {
            let accounts = workload.accounts.iter();
            findings.extend(accounts.map(|account| self.of_account(account, to)));
        }
        findings
    }

    fn of_account(&self, account: &ServiceAccountUse, to: Build) -> PlanFinding {
        let proven = self.proven.get(&account.name).map(String::as_str);
        let finding = account.state(&to.with_product(), proven);
        if !self.plan_options.gmsa_ready {
            return finding;
        }
        PlanFinding {
            class: UpgradeClass::Unchanged,
            ..finding.note()
        }
    }
}

/// The same text, stored once.
fn intern(names: &mut BTreeSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return Arc::clone(known);
    }
    let name: Arc<str> = name.into();
    names.insert(Arc::clone(&name));
    name
}

const READY: &str = "https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions";

fn in_namespace(object: Object<'_>) -> Object<'_> {
    if !object.namespace.is_empty() {
        return object;
    }
    Object {
        namespace: "default".into(),
        ..object
    }
}

#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod outlook_tests;
#[cfg(test)]
mod tests;
