//! The state that a drain decides by: nodes, pods, workloads and budgets, as they were listed a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::model::objects::label_selector::LabelSelector;
use crate::model::objects::workload::Kind;
use crate::model::objects::workload_name::WorkloadName;
use crate::plan::ResourceList;

/// A pod, by namespace and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod on a drained node, or another pod of a workload that has one there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct DrainPod {
    pub name: PodName,
    pub uid: String,
    /// Its node, once it is scheduled.
    pub node: Option<String>,
    /// Its workload, which is its topmost owner with replicas; `None` if it has no controller.
    pub owner: Option<WorkloadName>,
    /// Whether it is a replica that serves: the pods of Jobs, and those that are not always restarted, end.
    pub is_replica: bool,
    /// Whether it is the kubelet's copy of a static pod.
    pub is_mirror: bool,
    /// Whether it has succeeded or failed.
    pub has_ended: bool,
    /// Whether it has started; until then the API server evicts it whatever budgets say.
    pub has_started: bool,
    /// Whether it has an `emptyDir` volume.
    pub has_empty_dir: bool,
    /// The PersistentVolumeClaims of its volumes, in its namespace.
    pub claims: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// The images of its containers.
    pub images: BTreeSet<String>,
    /// Whether it is Ready, which is all that budgets read.
    pub is_ready: bool,
    /// When it became Ready, as its status says: the clock is that of its node. With the uid of that node.
    pub ready_transition: String,
    /// How long the drain has seen it Ready since then, on a node that exists.
    pub ready_for: Duration,
    /// How long it must be Ready to be available.
    pub min_ready: Duration,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// How long the drain has seen it being deleted.
    pub ending_for: Duration,
    /// How long that may take.
    pub grace: Duration,
    pub priority: i64,
    /// Whether the pod that replaces it may preempt others (`preemptionPolicy`).
    pub preempts: bool,
    pub requests: ResourceList,
    /// Its spec, as JSON, if the nodes were listed with it.
    pub spec: Option<Box<str>>,
    /// Whether an eviction of it has no certain answer: it may end at any time.
    pub may_end: bool,
    /// Why the pod that replaces it may come back to its node.
    pub returns: Option<String>,
    /// Why the scheduler finds no node for it.
    pub unschedulable: Option<String>,
    /// How long the drain has seen it without a node.
    pub waits: Duration,
    /// How long the drain has seen it not Ready.
    pub unready: Duration,
    /// Why no pod of its workload is evicted now: one was refused a moment ago.
    pub refused: Option<String>,
    /// How often its eviction was refused.
    pub refusals: u32,
}

impl DrainPod {
    /// Whether it serves, as its owner means it: Ready for long enough, and not being deleted.
    pub fn is_available(&self) -> bool {
        self.is_healthy() && !self.is_settling()
    }

    /// Whether a budget counts it.
    pub(super) fn is_healthy(&self) -> bool {
        self.is_ready && !self.is_terminating && !self.may_end && !self.has_ended
    }

    /// Whether it is Ready, and not for long enough.
    pub(super) fn is_settling(&self) -> bool {
        self.is_healthy() && self.ready_for < self.min_ready
    }

    /// Whether it is being deleted, and has time left for it.
    pub(super) fn is_ending(&self) -> bool {
        self.is_terminating && self.ending_for < self.grace
    }

    /// Whether a DaemonSet created it, of any API group: it stays on its node, or comes back to it.
    pub fn is_daemon(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
    }

    /// Its workload, which may have no outage; `None` for pods that end or that nothing creates again.
    pub(super) fn service(&self) -> Option<&WorkloadName> {
        self.owner.as_ref().filter(|_| self.is_replica)
    }

    /// Whether this is its workload.
    pub(super) fn is_of(&self, workload: &WorkloadName) -> bool {
        match &self.owner {
            Some(owner) => owner == workload,
            None => self.workload() == *workload,
        }
    }

    /// Its workload; itself if it has no controller.
    pub fn workload(&self) -> WorkloadName {
        let of_pod = || WorkloadName::of(Kind::Pod, &self.name.namespace, &self.name.name);
        self.owner.clone().unwrap_or_else(of_pod)
    }
}

/// A node that is drained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrainNode {
    pub name: String,
    /// Whether nothing is scheduled on it: it is cordoned (`spec.unschedulable`), or gone.
    pub is_cordoned: bool,
    /// Why it could not be cordoned in this round.
    pub refused: Option<String>,
}

/// A PodDisruptionBudget, as far as an eviction depends on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DisruptionBudget {
    pub namespace: String,
    pub name: String,
    /// The pods that it selects; `None` selects none.
    pub selector: Option<LabelSelector>,
    /// How many evictions it allows now (`status.disruptionsAllowed`).
    pub allowed: u64,
    /// How many of its pods must be healthy (`status.desiredHealthy`).
    pub desired_healthy: u64,
    /// Whether it allows no eviction even if all its pods are healthy.
    pub is_zero: bool,
    /// Why Kubernetes cannot compute it, so that it allows nothing.
    pub failure: Option<String>,
}

impl DisruptionBudget {
    pub(super) fn selects(&self, pod: &DrainPod) -> bool {
        let selector = self.selector.as_ref();
        self.namespace == pod.name.namespace && selector.is_some_and(|selector| selector.selects(&pod.labels))
    }
}

/// What the user allows. The names are those of `kubectl drain` where it has them.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent flags
pub struct DrainRules {
    /// Leaves pods of DaemonSets where they are; otherwise they stop the drain.
    pub ignore_daemonsets: bool,
    /// Evicts pods with `emptyDir` volumes, whose data is then deleted; otherwise they stop the drain.
    pub delete_emptydir_data: bool,
    /// Evicts pods without a controller; otherwise they stop the drain.
    pub force: bool,
    /// Only these pods are evicted; `None` for all.
    pub pod_selector: Option<LabelSelector>,
    /// Evicts pods of workloads that have an outage whatever the drain does.
    pub allow_outage: bool,
    /// How many replicas of a workload without a PodDisruptionBudget may be unavailable.
    pub max_unavailable: u64,
    /// How long a replica must be Ready to be available, if its workload has no `minReadySeconds`.
    pub min_ready: Duration,
    /// How long the drain may take; `None` for as long as it makes progress.
    pub timeout: Option<Duration>,
    /// How long a pod may have no node.
    pub pending_timeout: Duration,
    /// How long a pod that is not Ready may recover, before it is evicted as one that serves nothing.
    pub recovery_timeout: Duration,
    /// How long nothing may improve.
    pub progress_timeout: Duration,
}

/// What an eviction came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EvictionAnswer {
    /// The pod ends.
    Accepted,
    /// The pod is gone, or another one has its name.
    Gone,
    /// A budget, or a limit of requests, does not allow it now: the message of the API server.
    NotNow(String),
    /// The API server refused it for another reason.
    Failed(String),
    /// It failed, and the pod may end nevertheless.
    Unknown(String),
}

/// What is left to do for a workload. A smaller value is progress, and it cannot become smaller forever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct DrainProgress {
    /// Its pods that are still on the drained nodes.
    pub pods_left: u64,
    /// Its replicas that are missing.
    pub missing: u64,
    /// How long the next of these must stay Ready until it is available.
    pub settles_in: Duration,
}

/// When what decides about a namespace was listed. Times are since the start of the drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadTime {
    /// When the first list was started.
    pub started: Duration,
    /// How long it took until the last list was read.
    pub took: Duration,
}

/// The state of a drain.
#[derive(Clone, Debug, Default)]
pub struct DrainState {
    /// The nodes to drain, in order.
    pub nodes: Vec<DrainNode>,
    /// Their pods, and the other pods of the workloads of these.
    pub pods: Vec<DrainPod>,
    /// The desired replicas of workloads; of those in `unknown`, the most pods that the drain has seen.
    pub desired: BTreeMap<WorkloadName, u64>,
    /// The workloads that do not say how many replicas they should have.
    pub unknown: BTreeSet<WorkloadName>,
    /// The workloads that are being rolled out, so that their own controller also ends replicas.
    pub rolling: BTreeSet<WorkloadName>,
    /// The PodDisruptionBudgets.
    pub budgets: Vec<DisruptionBudget>,
    /// The workloads of which pods were evicted, with the replicas that were available before.
    pub moved: BTreeMap<WorkloadName, u64>,
    /// Why workloads cannot run on the nodes that remain, by the plan.
    pub cannot_move: BTreeMap<WorkloadName, String>,
    /// The claims whose volume no node but the drained ones can use: namespace and name.
    pub node_claims: BTreeSet<(String, String)>,
    /// The workloads that the scheduler would preempt for the pods that move, and why.
    pub preempted: BTreeMap<WorkloadName, String>,
    /// The workloads that compete for room with a pod that has no node; the others are moved meanwhile.
    pub competing: BTreeSet<WorkloadName>,
    /// A pod that came to a drained node after pods of its workload were evicted, and the node.
    pub returned: Option<(PodName, String)>,
    /// When each namespace was read.
    pub read: BTreeMap<String, ReadTime>,
    /// How long the drain has run.
    pub elapsed: Duration,
    /// How long nothing has improved for workloads ([`DrainState::progress`]).
    pub idle: BTreeMap<WorkloadName, Duration>,
}

impl DrainState {
    /// Whether a pod is on a node that is drained.
    pub(super) fn is_on_drained(&self, pod: &DrainPod) -> bool {
        let node = pod.node.as_deref();
        self.nodes.iter().any(|drained| node == Some(&*drained.name))
    }

    /// The budgets that select a pod.
    pub(super) fn budgets_of<'s>(&'s self, pod: &'s DrainPod) -> impl Iterator<Item = &'s DisruptionBudget> {
        self.budgets.iter().filter(move |budget| budget.selects(pod))
    }

    /// How many evictions a budget allows now. Replicas that are Ready only now may fail.
    pub(super) fn allowed(&self, budget: &DisruptionBudget) -> u64 {
        let settling = |pod: &&DrainPod| pod.is_settling() && budget.selects(pod);
        let settling = self.pods.iter().filter(settling).count() as u64;
        budget.allowed.saturating_sub(settling)
    }

    /// How many replicas of a workload are available.
    pub fn available(&self, owner: &WorkloadName) -> u64 {
        let of_owner = |pod: &&DrainPod| pod.owner.as_ref() == Some(owner) && pod.is_available();
        self.pods.iter().filter(of_owner).count() as u64
    }

    /// How many replicas a workload lacks.
    pub(super) fn missing(&self, owner: &WorkloadName) -> u64 {
        let desired = self.desired.get(owner).copied().unwrap_or_default();
        desired.saturating_sub(self.available(owner))
    }

    /// How many pods a budget should select: the replicas of the workloads that it selects, and its pods without replicas.
    pub(super) fn desired_of_budget(&self, budget: &DisruptionBudget) -> u64 {
        let selected = self.pods.iter().filter(|pod| budget.selects(pod));
        let mut workloads = BTreeSet::new();
        let mut others = 0;
        for pod in selected {
            match pod.service() {
                Some(owner) => _ = workloads.insert(owner),
                None => others += 1,
            }
        }
        let replicas = workloads.into_iter().filter_map(|owner| self.desired.get(owner));
        replicas.sum::<u64>().saturating_add(others)
    }

    /// Corrects budgets that seem to allow nothing because a pod is missing for a moment: `minAvailable: 2` of 3 replicas.
    pub(super) fn settle_budgets(&mut self) {
        let is_zero = |budget: &DisruptionBudget| {
            budget.is_zero && budget.desired_healthy >= self.desired_of_budget(budget)
        };
        let settled: Vec<bool> = self.budgets.iter().map(is_zero).collect();
        for (budget, is_zero) in self.budgets.iter_mut().zip(settled) {
            budget.is_zero = is_zero;
        }
    }

    /// Records that a node was cordoned. Everything is read again before an eviction: a pod may just have come to the node.
    pub fn cordoned(&mut self, node: &str) {
        self.read.clear();
        for drained in self.nodes.iter_mut().filter(|drained| drained.name == node) {
            drained.is_cordoned = true;
        }
    }

    /// Records that a node could not be cordoned for now, and why.
    pub fn not_cordoned(&mut self, node: &str, why: &str) {
        for drained in self.nodes.iter_mut().filter(|drained| drained.name == node) {
            drained.refused = Some(why.to_owned());
        }
    }

    /// Records the answer to the eviction of a pod. Until the next list, a pod that may end is not available.
    pub(super) fn answered(&mut self, name: &PodName, answer: &EvictionAnswer) {
        match answer {
            EvictionAnswer::Accepted | EvictionAnswer::Gone => self.evicted(name),
            EvictionAnswer::NotNow(why) | EvictionAnswer::Failed(why) => self.refused(name, why),
            EvictionAnswer::Unknown(why) => {
                self.evicted(name);
                self.refused(name, why);
            }
        }
    }

    /// Records that a pod is being deleted.
    pub(super) fn evicted(&mut self, name: &PodName) {
        let Some(index) = self.pods.iter().position(|pod| pod.name == *name) else {
            return;
        };
        let pod = &self.pods[index]; // found above
        let (was_healthy, is_replica) = (pod.is_healthy(), pod.is_replica);
        if let Some(owner) = pod.owner.clone() {
            let available = if is_replica { self.available(&owner) } else { 0 };
            self.moved.entry(owner).or_insert(available);
        }
        if was_healthy {
            let pod = self.pods[index].clone();
            for budget in self.budgets.iter_mut().filter(|budget| budget.selects(&pod)) {
                budget.allowed = budget.allowed.saturating_sub(1);
            }
        }
        self.pods[index].is_terminating = true;
    }

    /// Records that the eviction of a pod has failed for now, and why. A budget or a webhook refuses the other pods of its
    /// workload too, and each answer may take long.
    fn refused(&mut self, name: &PodName, why: &str) {
        let Some(workload) = self
            .pods
            .iter()
            .find(|pod| pod.name == *name)
            .map(DrainPod::workload)
        else {
            return;
        };
        for pod in self.pods.iter_mut().filter(|pod| pod.is_of(&workload)) {
            pod.refused = Some(why.to_owned());
            pod.refusals += u32::from(pod.name == *name);
        }
    }
}
