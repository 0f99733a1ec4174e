//! Which pods a drain evicts, ignores or refuses, as `kubectl drain` does; and which workloads have an outage whatever it
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::state::{DisruptionBudget, DrainPod, DrainProgress, DrainRules, DrainState};
use crate::model::objects::workload_name::WorkloadName;

/// What a drain does with a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PodClass {
    Evict,
    /// Leaves it where it is: a static pod, one of a DaemonSet, or one that the selector does not select.
    Ignore,
    /// Does not begin because of it, unless an option allows it.
    Refuse(RefusedPods),
}

/// Why a drain does not begin, as in `kubectl drain`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RefusedPods {
    /// The pod is of a DaemonSet.
    DaemonSet,
    /// The pod has `emptyDir` volumes.
    LocalData,
    /// The pod has no controller.
    NoController,
}

impl RefusedPods {
    /// The option that allows it.
    pub fn option(self) -> &'static str {
        match self {
            RefusedPods::DaemonSet => "--ignore-daemonsets",
            RefusedPods::LocalData => "--delete-emptydir-data",
            RefusedPods::NoController => "--force",
        }
    }
}

impl fmt::Display for RefusedPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusedPods::DaemonSet => "pods of DaemonSets, which stay on their node",
            RefusedPods::LocalData => "pods with emptyDir volumes, whose data is deleted",
            RefusedPods::NoController => "pods without a controller, which nothing creates again",
        })
    }
}

/// Classifies a pod on a drained node, by the filters of `kubectl drain` (k8s.io/kubectl/pkg/drain/filters.go).
pub fn classify(pod: &DrainPod, rules: &DrainRules) -> PodClass {
    let selector = rules.pod_selector.as_ref();
    if pod.is_mirror || selector.is_some_and(|selector| !selector.selects(&pod.labels)) {
        return PodClass::Ignore;
    }
    if pod.has_ended {
        return PodClass::Evict;
    }
    if pod.is_daemon() {
        return if rules.ignore_daemonsets {
            PodClass::Ignore
        } else {
            PodClass::Refuse(RefusedPods::DaemonSet)
        };
    }
    if pod.has_empty_dir && !rules.delete_emptydir_data {
        return PodClass::Refuse(RefusedPods::LocalData);
    }
    if pod.owner.is_none() && !rules.force {
        return PodClass::Refuse(RefusedPods::NoController);
    }
    PodClass::Evict
}

impl DrainState {
    /// The pods on the drained nodes that are evicted, including those that are being deleted.
    pub fn to_move<'s>(&'s self, rules: &'s DrainRules) -> impl Iterator<Item = &'s DrainPod> {
        let moves = move |pod: &&DrainPod| self.is_on_drained(pod) && classify(pod, rules) == PodClass::Evict;
        self.pods.iter().filter(moves)
    }

    /// The workloads whose pods the drain watches: those with pods to evict, and those of which pods were evicted.
    pub(super) fn followed<'s>(&'s self, rules: &'s DrainRules) -> BTreeSet<&'s WorkloadName> {
        let with_pods = self.to_move(rules).filter_map(|pod| pod.owner.as_ref());
        with_pods.chain(self.moved.keys()).collect()
    }

    /// The pods of these workloads that have no node.
    pub(super) fn pending<'s>(&'s self, rules: &'s DrainRules) -> impl Iterator<Item = &'s DrainPod> {
        let followed = self.followed(rules);
        let is_followed = move |owner: &WorkloadName| followed.contains(owner);
        let waits = |pod: &&DrainPod| !pod.is_terminating && pod.unschedulable.is_some();
        let waiting = self.pods.iter().filter(waits);
        waiting.filter(move |pod| pod.owner.as_ref().is_some_and(&is_followed))
    }

    /// The workloads with pods that the API server never evicts, as long as budgets stay as they are.
    pub fn never_evicted(&self, rules: &DrainRules) -> Vec<Outage> {
        let pods = self.to_move(rules);
        pods.filter_map(|pod| never_evicted(self, pod)).collect()
    }

    /// Why budgets will stop the drain later: nothing creates pods without a controller again, so each of their evictions is
    /// one less.
    pub fn used_up_budgets(&self, rules: &DrainRules) -> Vec<String> {
        let bare = |budget: &DisruptionBudget| {
            let of_budget = self.to_move(rules).filter(|pod| budget.selects(pod));
            of_budget
                .filter(|pod| pod.owner.is_none() && pod.is_healthy())
                .count() as u64
        };
        let notes = self.budgets.iter().filter_map(|budget| {
            let (allowed, wanted) = (budget.allowed, bare(budget));
            (!budget.is_zero && allowed < wanted).then(|| {
                let DisruptionBudget { namespace, name, .. } = budget;
                format!(
                    "the PodDisruptionBudget {namespace}/{name} allows to evict {allowed} of {wanted} pods without a controller, \
                     which nothing creates again: the drain stops before the others"
                )
            })
        });
        notes.collect()
    }

    /// What is left to do for each workload that has pods to evict, or of which pods were evicted.
    pub(super) fn progress(&self, rules: &DrainRules) -> BTreeMap<WorkloadName, DrainProgress> {
        let mut all: BTreeMap<WorkloadName, DrainProgress> = BTreeMap::new();
        for owner in self.moved.keys() {
            all.entry(owner.clone()).or_default();
        }
        for pod in self.to_move(rules) {
            all.entry(pod.workload()).or_default().pods_left += 1;
        }
        for (workload, progress) in &mut all {
            (progress.missing, progress.settles_in) = (self.missing(workload), Duration::MAX);
        }
        for pod in self.pods.iter().filter(|pod| pod.is_settling()) {
            if let Some(progress) = pod.owner.as_ref().and_then(|owner| all.get_mut(owner)) {
                progress.settles_in = progress
                    .settles_in
                    .min(pod.min_ready.saturating_sub(pod.ready_for));
            }
        }
        all
    }
}

impl DrainState {
    /// What budgets allow that `--max-unavailable` would not, for workloads with pods to evict.
    pub fn low_budgets(&self, rules: &DrainRules) -> Vec<String> {
        let mut notes = BTreeSet::new();
        for pod in self.to_move(rules).filter(|pod| !pod.has_ended) {
            let Some((owner, desired)) = pod.service().and_then(|owner| self.desired.get_key_value(owner))
            else {
                continue;
            };
            let budget = self.budgets_of(pod).next();
            let Some(budget) = budget.filter(|budget| self.desired_of_budget(budget) == *desired) else {
                continue;
            };
            if budget.desired_healthy.saturating_add(rules.max_unavailable) < *desired {
                notes.insert(format!(
                    "{owner} may fall to {} of {desired} replicas, as its PodDisruptionBudget {} allows",
                    budget.desired_healthy, budget.name
                ));
            }
        }
        notes.into_iter().collect()
    }
}

/// The pods on the drained nodes that no option allows to evict or to leave, by reason.
pub fn refused(state: &DrainState, rules: &DrainRules) -> BTreeMap<RefusedPods, Vec<String>> {
    let mut all: BTreeMap<RefusedPods, Vec<String>> = BTreeMap::new();
    for pod in state.pods.iter().filter(|pod| state.is_on_drained(pod)) {
        if let PodClass::Refuse(why) = classify(pod, rules) {
            all.entry(why).or_default().push(pod.name.to_string());
        }
    }
    all
}

/// A workload that has an outage whatever the drain does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
pub struct Outage {
    /// The workload, as in `Deployment shop/web`.
    pub workload: String,
    /// Why.
    pub cause: OutageCause,
    /// The same in words, with names.
    pub message: String,
}

impl Outage {
    /// One line for each workload, with all its causes.
    pub fn lines(outages: &[Outage]) -> Vec<String> {
        let mut causes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for outage in outages {
            causes.entry(&outage.workload).or_default().push(&outage.message);
        }
        let lines = causes.into_iter();
        lines
            .map(|(workload, causes)| format!("{workload}: {}", causes.join("; ")))
            .collect()
    }
}

/// Why a workload has an outage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutageCause {
    /// It has one replica.
    OneReplica,
    /// Its PodDisruptionBudget allows no eviction, even if all pods are healthy.
    ZeroBudget,
    /// Several PodDisruptionBudgets select the pod, and the API server then evicts it never.
    SeveralBudgets,
    /// No node but the drained ones can use its volume.
    NodeVolume,
    /// It does not say how many replicas it should have.
    UnknownReplicas,
    /// Its new pods may come back to the drained nodes.
    Returns,
    /// The scheduler would preempt its pods for the pods that move.
    Preempted,
    /// Nothing creates the pod again.
    NoController,
    /// By the plan, it cannot run on the nodes that remain.
    CannotMove,
}

/// The workloads with an outage, each with all its causes.
pub fn outages(state: &DrainState, rules: &DrainRules) -> Vec<Outage> {
    let serving = state
        .to_move(rules)
        .filter(|pod| !pod.has_ended && !pod.is_terminating);
    let mut all: Vec<Outage> = serving.flat_map(|pod| of_pod(state, pod)).collect();
    // Once the drain has begun, it is too late to foresee.
    let preempted = state.preempted.iter().filter(|_| state.moved.is_empty());
    all.extend(preempted.map(|(workload, why)| Outage {
        workload: workload.to_string(),
        cause: OutageCause::Preempted,
        message: why.clone(),
    }));
    all.sort();
    all.dedup();
    all
}

/// Whether an eviction of a pod is an outage of its workload.
pub(super) fn has_outage(state: &DrainState, pod: &DrainPod) -> bool {
    !pod.has_ended && !pod.is_terminating && !of_pod(state, pod).is_empty()
}

/// Why the API server never evicts a pod, as long as budgets stay as they are.
pub(super) fn never_evicted(state: &DrainState, pod: &DrainPod) -> Option<Outage> {
    let is_final = |outage: &Outage| match outage.cause {
        OutageCause::ZeroBudget => pod.is_healthy(),
        OutageCause::SeveralBudgets => pod.has_started && !pod.has_ended && !pod.is_terminating,
        _ => false,
    };
    of_budgets(state, pod).into_iter().find(is_final)
}

fn of_pod(state: &DrainState, pod: &DrainPod) -> Vec<Outage> {
    let mut all = of_budgets(state, pod);
    let outage = |cause, message: String| outage(pod, cause, message);
    match &pod.owner {
        None => all.push(outage(
            OutageCause::NoController,
            "it has no controller, so nothing creates it again".to_owned(),
        )),
        Some(_) => all.extend(pod.service().and_then(|owner| of_replicas(state, pod, owner))),
    }
    if let Some(why) = &pod.returns {
        all.push(outage(OutageCause::Returns, why.clone()));
    }
    let on_node = |claim: &&String| {
        let key = (pod.name.namespace.clone(), (*claim).clone());
        state.node_claims.contains(&key)
    };
    for claim in pod.claims.iter().filter(on_node) {
        let message = format!("no other node can use the volume of its PersistentVolumeClaim {claim}");
        all.push(outage(OutageCause::NodeVolume, message));
    }
    // The plan reads files too, which have no uids.
    let of_plan = pod.owner.clone().map(|owner| owner.with_uid(""));
    let cannot = of_plan.and_then(|owner| state.cannot_move.get(&owner));
    all.extend(cannot.map(|why| outage(OutageCause::CannotMove, why.clone())));
    all
}

fn of_replicas(state: &DrainState, pod: &DrainPod, owner: &WorkloadName) -> Option<Outage> {
    if state.unknown.contains(owner) {
        let message = "it is not known how many replicas it should have: its kind has no scale subresource";
        return Some(outage(pod, OutageCause::UnknownReplicas, message.to_owned()));
    }
    let is_one = state.desired.get(owner) == Some(&1);
    is_one.then(|| outage(pod, OutageCause::OneReplica, "it has one replica".to_owned()))
}

fn of_budgets(state: &DrainState, pod: &DrainPod) -> Vec<Outage> {
    let budgets: Vec<_> = state.budgets_of(pod).collect();
    if let [first, second, ..] = budgets.as_slice() {
        let message = format!(
            "the PodDisruptionBudgets {} and {} select its pods, and the API server evicts no pod with several",
            first.name, second.name
        );
        return vec![outage(pod, OutageCause::SeveralBudgets, message)];
    }
    let zero = budgets.into_iter().filter(|budget| budget.is_zero);
    zero.map(|budget| {
        let why = (budget.failure.as_ref()).map_or_else(String::new, |why| format!(": {why}"));
        let message = format!("its PodDisruptionBudget {} allows no eviction{why}", budget.name);
        outage(pod, OutageCause::ZeroBudget, message)
    })
    .collect()
}

fn outage(pod: &DrainPod, cause: OutageCause, message: String) -> Outage {
    let workload = pod.owner.as_ref();
    Outage {
        workload: workload.map_or_else(|| format!("Pod {}", pod.name), ToString::to_string),
        cause,
        message,
    }
}

#[cfg(test)]
mod tests;
