//! Which workloads compete for room with a pod that has no node: those that may run on the same nodes. The others move
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::{DrainInventory, InventoryNode};
use super::preemption::{holds, may_run};
use super::state::{DrainPod, DrainRules, DrainState};
use crate::model::objects::pod::PodSpec;
use crate::model::objects::workload_name::WorkloadName;
use crate::plan::ResourceList;

/// What decides where the pods of a workload may run.
#[derive(Clone, Debug)]
pub(super) struct PodRequirements {
    spec: Box<str>,
    requests: ResourceList,
}

impl PodRequirements {
    /// That of a pod with this spec.
    pub(super) fn of(pod: &DrainPod, spec: &str) -> Self {
        PodRequirements {
            spec: spec.into(),
            requests: pod.requests.clone(),
        }
    }

    /// The nodes that would run such a pod if they had room.
    fn nodes<'n>(&self, nodes: &[&'n InventoryNode]) -> BTreeSet<&'n str> {
        let Ok(spec) = serde_json::from_str::<PodSpec<'_>>(&self.spec) else {
            return all(nodes);
        };
        let suits = |node: &&&InventoryNode| {
            let fits = |offered: &ResourceList| holds(offered, &self.requests);
            may_run(&spec, &node.host) && node.allocatable.as_ref().is_none_or(fits)
        };
        nodes.iter().filter(suits).map(|node| &*node.host.name).collect()
    }
}

fn all<'n>(nodes: &[&'n InventoryNode]) -> BTreeSet<&'n str> {
    nodes.iter().map(|node| &*node.host.name).collect()
}

/// The workloads of the drain that compete with one of its pods that has no node, and the workload of that pod. Where a workload
/// may run is by its node selector, affinity, tolerations and requests; unknown: everywhere.
pub(super) fn competing(
    inventory: &DrainInventory,
    state: &DrainState,
    rules: &DrainRules,
    requirements: &BTreeMap<WorkloadName, PodRequirements>,
) -> BTreeSet<WorkloadName> {
    let pending: BTreeSet<&WorkloadName> = state
        .pending(rules)
        .filter_map(|pod| pod.owner.as_ref())
        .collect();
    if pending.is_empty() {
        return BTreeSet::new();
    }
    let is_open = |node: &&InventoryNode| {
        let is_drained = state.nodes.iter().any(|drained| drained.name == node.host.name);
        node.is_ready && !node.is_cordoned && !is_drained
    };
    let open: Vec<&InventoryNode> = inventory.nodes.values().filter(is_open).collect();
    let nodes = |workload: &WorkloadName| {
        requirements
            .get(workload)
            .map_or_else(|| all(&open), |placement| placement.nodes(&open))
    };
    let wanted: BTreeSet<&str> = pending.iter().flat_map(|workload| nodes(workload)).collect();
    let competes =
        |workload: &&WorkloadName| pending.contains(workload) || !nodes(workload).is_disjoint(&wanted);
    state
        .followed(rules)
        .into_iter()
        .filter(competes)
        .cloned()
        .collect()
}
