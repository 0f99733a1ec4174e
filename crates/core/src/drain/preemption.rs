//! Which pods the scheduler would preempt for the pods that move: those of lower priority on nodes without room.

use std::collections::BTreeMap;

use super::inventory::DrainInventory;
use super::state::{DrainPod, DrainRules, DrainState};
use crate::model::nodes::node::{Host, Taint};
use crate::model::nodes::node_affinity::{self, Match};
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload_name::WorkloadName;
use crate::plan::ResourceList;

/// A node that pods move to.
struct TargetNode<'i> {
    host: &'i Host,
    room: ResourceList,
    pods: Vec<&'i DrainPod>,
}

/// The workloads whose pods would be preempted, and why. Each pod moves to the node with the most room of those that it may run
/// on, by its node selector, affinity and tolerations. In which order is not known, so the least important ones come first.
pub fn foreseen_preemption(
    inventory: &DrainInventory,
    state: &DrainState,
    rules: &DrainRules,
) -> BTreeMap<WorkloadName, String> {
    let mut targets = targets(inventory, state);
    let mut preempted = BTreeMap::new();
    let moves = |pod: &&DrainPod| pod.owner.is_some() && !pod.has_ended && !pod.is_terminating;
    let mut moving: Vec<&DrainPod> = state.to_move(rules).filter(moves).collect();
    moving.sort_by_key(|pod| pod.priority);
    for pod in moving {
        let spec = pod.spec.as_deref().unwrap_or("{}");
        let Ok(spec) = serde_json::from_str::<PodSpec<'_>>(spec) else {
            continue;
        };
        place(pod, &spec, &mut targets, &mut preempted);
    }
    preempted
}

fn targets<'i>(inventory: &'i DrainInventory, state: &'i DrainState) -> Vec<TargetNode<'i>> {
    let is_drained = |name: &str| state.nodes.iter().any(|node| node.name == name);
    let open = inventory
        .nodes
        .values()
        .filter(|node| node.is_ready && !node.is_cordoned);
    let targets = open
        .filter(|node| !is_drained(&node.host.name))
        .filter_map(|node| {
            let is_there = |pod: &&DrainPod| pod.node.as_ref() == Some(&node.host.name) && !pod.has_ended;
            let pods: Vec<&DrainPod> = state.pods.iter().filter(is_there).collect();
            let mut used = ResourceList::default();
            for pod in &pods {
                used += &pod.requests;
            }
            let room = node.allocatable.clone()?.without(&used);
            Some(TargetNode {
                host: &node.host,
                room,
                pods,
            })
        });
    targets.collect()
}

fn place<'i>(
    pod: &'i DrainPod,
    spec: &PodSpec<'_>,
    targets: &mut [TargetNode<'i>],
    preempted: &mut BTreeMap<WorkloadName, String>,
) {
    let feasible = targets.iter_mut().filter(|target| may_run(spec, target.host));
    let mut feasible: Vec<&mut TargetNode<'i>> = feasible.collect();
    feasible.sort_by_key(|target| std::cmp::Reverse(target.room.cpu_millis));
    if let Some(target) = feasible
        .iter_mut()
        .find(|target| holds(&target.room, &pod.requests))
    {
        target.room = std::mem::take(&mut target.room).without(&pod.requests);
        target.pods.push(pod);
        return;
    }
    let victims = feasible
        .iter()
        .enumerate()
        .filter_map(|(index, target)| Some((victims(pod, target)?, index)));
    // As the scheduler: the node whose most important victim is the least important, then the one with the fewest.
    let best = victims.min_by_key(|(victims, _)| (victims.iter().map(|it| it.priority).max(), victims.len()));
    let Some((victims, index)) = best.filter(|_| pod.preempts) else {
        return;
    };
    let Some(target) = feasible.into_iter().nth(index) else {
        return;
    };
    for victim in &victims {
        preempted.entry(victim.workload()).or_insert_with(|| {
            format!(
                "the scheduler would preempt {} on {} for a new pod of {}, which has a higher priority, because no node has room \
                 for it: add nodes",
                victim.name,
                target.host.name,
                pod.workload()
            )
        });
        target.room += &victim.requests;
    }
    target.room = std::mem::take(&mut target.room).without(&pod.requests);
    target
        .pods
        .retain(|there| !victims.iter().any(|victim| victim.uid == there.uid));
    target.pods.push(pod);
}

/// The pods of lower priority that make room for a pod if they end, the least important first.
fn victims<'i>(pod: &DrainPod, target: &TargetNode<'i>) -> Option<Vec<&'i DrainPod>> {
    let lower = target
        .pods
        .iter()
        .filter(|there| there.priority < pod.priority && !there.is_mirror);
    let mut lower: Vec<&DrainPod> = lower.copied().collect();
    lower.sort_by_key(|there| there.priority);
    let mut room = target.room.clone();
    for (index, victim) in lower.iter().enumerate() {
        room += &victim.requests;
        if holds(&room, &pod.requests) {
            lower.truncate(index + 1);
            return Some(lower);
        }
    }
    None
}

pub(super) fn holds(room: &ResourceList, requests: &ResourceList) -> bool {
    matches!(room.to_hold(requests), Some(0 | 1))
}

pub(super) fn may_run(spec: &PodSpec<'_>, host: &Host) -> bool {
    // The start gate removes its taint.
    let taints = host
        .taints
        .iter()
        .filter(|taint| taint.keeps_off() && taint.key != Taint::STARTUP_KEY);
    let mut untolerated = taints.filter(|taint| !spec.tolerations.iter().any(|it| taint.is_tolerated_by(it)));
    node_affinity::matches(spec, host) != Match::No && untolerated.next().is_none()
}

#[cfg(test)]
mod tests;
