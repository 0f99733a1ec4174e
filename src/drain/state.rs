//! The state that a drain decides by: nodes, pods, workloads and budgets, as they were listed a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::model::label_selector::LabelSelector;
use crate::model::workload_name::WorkloadName;

/// A pod, by namespace and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl WorkloadName {
    /// Whether its pods are replicas that serve: the pods of a Job end.
    pub(super) fn has_replicas(&self) -> bool {
        !matches!(self.kind.as_str(), "Job" | "CronJob")
    }
}

/// A pod on a drained node, or another pod of a workload that has one there.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct DrainPod {
    /// Its name.
    pub name: PodName,
    /// Its uid.
    pub uid: String,
    /// Its node, once it is scheduled.
    pub node: Option<String>,
    /// Its workload, which is its topmost known owner; `None` if it has no controller.
    pub owner: Option<WorkloadName>,
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
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The images of its containers.
    pub images: BTreeSet<String>,
    /// Whether it is Ready.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
    /// Why the scheduler finds no node for it.
    pub unschedulable: Option<String>,
    /// How long the drain has seen it without a node.
    pub waits: Duration,
    /// How long the drain has seen it not Ready.
    pub unready: Duration,
    /// Why its eviction has failed in this round.
    pub refused: Option<String>,
}

impl DrainPod {
    /// Whether it serves: Ready, and not being deleted.
    pub fn is_available(&self) -> bool {
        self.is_ready && !self.is_terminating && !self.has_ended
    }

    /// Whether a DaemonSet created it.
    pub fn is_daemon(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
    }
}

/// A node that is drained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrainNode {
    /// Its name.
    pub name: String,
    /// Whether it is cordoned (`spec.unschedulable`).
    pub is_cordoned: bool,
    /// Why it could not be cordoned in this round.
    pub refused: Option<String>,
}

/// A PodDisruptionBudget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DisruptionBudget {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pods that it selects; `None` selects none.
    pub selector: Option<LabelSelector>,
    /// How many evictions it allows now (`status.disruptionsAllowed`).
    pub allowed: u64,
    /// How many of its pods must be healthy (`status.desiredHealthy`).
    pub desired_healthy: u64,
    /// Whether it allows no eviction even if all its pods are healthy.
    pub is_zero: bool,
}

impl DisruptionBudget {
    fn selects(&self, pod: &DrainPod) -> bool {
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

/// What is left to do. A smaller value is progress, and it cannot become smaller forever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DrainProgress {
    /// The pods that are still on the drained nodes.
    pub pods_left: u64,
    /// The replicas that are missing from workloads with pods there, or with evicted pods.
    pub missing: u64,
}

/// The state of a drain.
#[derive(Clone, Debug, Default)]
pub struct DrainState {
    /// The nodes to drain, in order.
    pub nodes: Vec<DrainNode>,
    /// Their pods, and the other pods of the workloads of these.
    pub pods: Vec<DrainPod>,
    /// The desired replicas of workloads; of those that were not listed, the most pods that the drain has seen.
    pub desired: BTreeMap<WorkloadName, u64>,
    /// The PodDisruptionBudgets.
    pub budgets: Vec<DisruptionBudget>,
    /// The workloads of which pods were evicted, with the replicas that were available before.
    pub moved: BTreeMap<WorkloadName, u64>,
    /// Why workloads cannot run on the nodes that remain, by the plan.
    pub cannot_move: BTreeMap<WorkloadName, String>,
    /// The claims whose volume is on one node: namespace and name.
    pub node_claims: BTreeSet<(String, String)>,
    /// How long ago it was listed.
    pub age: Duration,
    /// How long the drain has run.
    pub elapsed: Duration,
    /// How long nothing has improved ([`DrainState::progress`]).
    pub idle: Duration,
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

    /// How many replicas of a workload are available.
    pub fn available(&self, owner: &WorkloadName) -> u64 {
        let of_owner = |pod: &&DrainPod| pod.owner.as_ref() == Some(owner) && pod.is_available();
        self.pods.iter().filter(of_owner).count() as u64
    }

    /// How many replicas a workload should have.
    pub(super) fn desired(&self, owner: &WorkloadName) -> u64 {
        let known = self.desired.get(owner).copied();
        known.unwrap_or_else(|| self.available(owner))
    }

    /// How many pods a budget should select: the replicas of the workloads that it selects, and its pods without replicas.
    pub(super) fn desired_of_budget(&self, budget: &DisruptionBudget) -> u64 {
        let selected = self.pods.iter().filter(|pod| budget.selects(pod));
        let mut workloads = BTreeSet::new();
        let mut others = 0;
        for pod in selected {
            match &pod.owner {
                Some(owner) if owner.has_replicas() => _ = workloads.insert(owner),
                _ => others += 1,
            }
        }
        let replicas = workloads.into_iter().map(|owner| self.desired(owner));
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

    /// Records that a node was cordoned.
    pub fn cordoned(&mut self, node: &str) {
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
    pub fn answered(&mut self, name: &PodName, answer: &EvictionAnswer) {
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
        let was_available = pod.is_available();
        if let Some(owner) = pod.owner.clone() {
            let available = self.available(&owner);
            self.moved.entry(owner).or_insert(available);
        }
        if was_available {
            let pod = self.pods[index].clone();
            for budget in self.budgets.iter_mut().filter(|budget| budget.selects(&pod)) {
                budget.allowed = budget.allowed.saturating_sub(1);
            }
        }
        self.pods[index].is_terminating = true;
    }

    /// Records that the eviction of a pod has failed for now, and why.
    fn refused(&mut self, name: &PodName, why: &str) {
        for pod in self.pods.iter_mut().filter(|pod| pod.name == *name) {
            pod.refused = Some(why.to_owned());
        }
    }
}
