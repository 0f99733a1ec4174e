//! What a drain knows before it begins: the nodes in the order of the plan, where pods can go, and which images are missing.

use std::collections::{BTreeMap, BTreeSet};

use crate::drain::{
    DrainInventory, DrainRules, DrainState, DrainedNode, InventoryNode, LackingImage, PodToMove,
    lacking_images,
};
use crate::model::objects::workload_name::WorkloadName;
use crate::plan::{BlockedBy, PlanFinding, Planner, PoolPulls, TargetBuild, UpgradeClass, WorkloadPlan};

/// What is known of a drain before it begins.
#[derive(Default)]
pub struct Preparation {
    /// The nodes, in order.
    pub nodes: Vec<DrainedNode>,
    /// The build of the nodes that pods move to, if it is given.
    to: Option<TargetBuild>,
    /// What nodes of the pools that remain pull.
    pools: Vec<PoolPulls>,
    /// The images of CronJobs that may run on the nodes, by CronJob: there may be no pod of theirs now.
    cron_jobs: BTreeMap<String, BTreeSet<String>>,
    /// Why workloads cannot run on the build to move to.
    pub cannot_move: BTreeMap<WorkloadName, String>,
    /// How many nodes must be added at least; `None` if that is not known.
    pub nodes_to_add: Option<u64>,
}

impl Preparation {
    /// From what was visited. `named`: the nodes that are named; empty for whole pools.
    pub fn of(planner: &Planner<'_>, named: &[String], to: Option<TargetBuild>) -> anyhow::Result<Self> {
        named.iter().try_for_each(|name| planner.find_node(name))?;
        let plan = planner.plan()?;
        let order = plan.as_ref().map(|plan| plan.drain_order.as_slice());
        let nodes = planner.leaving_nodes(order.unwrap_or_default(), named)?;
        let plans = plan.iter().flat_map(|plan| &plan.workloads);
        let cannot_move = plans.filter_map(|plan| Some((plan.workload(), obstacle(plan)?)));
        Ok(Preparation {
            nodes: (nodes.into_iter())
                .map(|(name, pool)| DrainedNode { name, pool })
                .collect(),
            to,
            pools: planner.image_pulls()?,
            cron_jobs: planner.cron_jobs_that_go()?,
            cannot_move: cannot_move.collect(),
            nodes_to_add: plan.as_ref().and_then(|plan| plan.nodes_needed.nodes),
        })
    }

    /// The names of the nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// The nodes that pods can move to, once the start gate releases them.
    fn targets<'i>(&self, inventory: &'i DrainInventory, to: Option<TargetBuild>) -> Vec<&'i InventoryNode> {
        let drained: BTreeSet<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let is_target = |node: &&InventoryNode| {
            node.is_ready
                && !node.is_cordoned
                && !drained.contains(node.host.name.as_str())
                && to.is_none_or(|to| node.host.build == Some(to.0))
        };
        inventory.nodes.values().filter(is_target).collect()
    }

    /// Whether the start gate keeps a node free of pods that they can move to.
    pub fn has_gated(&self, inventory: &DrainInventory) -> bool {
        let targets = self.targets(inventory, self.to);
        targets.into_iter().any(InventoryNode::is_gated)
    }

    /// Why pods cannot move anywhere.
    pub fn missing_target(&self, inventory: &DrainInventory) -> Option<String> {
        let targets = self.targets(inventory, self.to);
        if targets.iter().any(|node| !node.is_gated()) {
            return None;
        }
        let which = self.to.map_or_else(
            || "no other Windows node".to_owned(),
            |to| format!("no node of {to}"),
        );
        if let Some(gated) = targets.first() {
            return Some(format!(
                "{which} is schedulable: {} still has the startup taint; --wait-for-images waits for it, and --allow-outage does not",
                gated.host.name
            ));
        }
        let add = self
            .nodes_to_add
            .map_or_else(String::new, |nodes| format!(" (at least {nodes})"));
        Some(format!(
            "{which} is schedulable: add nodes{add}; --allow-outage begins without them"
        ))
    }

    /// The images that the other nodes lack for the pods that move, and for the next runs of CronJobs.
    pub fn lacking(
        &self,
        inventory: &DrainInventory,
        state: &DrainState,
        rules: &DrainRules,
    ) -> Vec<LackingImage> {
        let mut images = self.cron_jobs.clone();
        for pod in state.to_move(rules).filter(|pod| !pod.has_ended) {
            let workload = pod.owner.as_ref();
            let workload = workload.map_or_else(|| format!("Pod {}", pod.name), ToString::to_string);
            images
                .entry(workload)
                .or_default()
                .extend(pod.images.iter().cloned());
        }
        // The images of a pool were found for its build.
        lacking_images(&self.pools, &images, &self.targets(inventory, None))
    }

    /// The pods that move, in the order of the nodes.
    pub fn pods_to_move(&self, state: &DrainState, rules: &DrainRules) -> Vec<PodToMove> {
        let of_node = |node: &DrainedNode| {
            let pods = state
                .to_move(rules)
                .filter(|pod| pod.node.as_deref() == Some(&*node.name));
            let pods = pods.map(|pod| PodToMove {
                namespace: pod.name.namespace.clone(),
                name: pod.name.name.clone(),
                node: node.name.clone(),
                workload: pod.owner.as_ref().map(ToString::to_string),
            });
            pods.collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }
}

/// Why a workload cannot run on the new build; `None` if it can, or if that is not known.
fn obstacle(plan: &WorkloadPlan) -> Option<String> {
    let is_certain = |finding: &&PlanFinding| {
        let is_other = matches!(finding.cause, Some(BlockedBy::Gmsa | BlockedBy::NoController));
        finding.blocks && finding.class != UpgradeClass::Unknown && !is_other
    };
    let finding = plan
        .findings
        .iter()
        .filter(is_certain)
        .max_by_key(|it| it.class)?;
    Some(finding.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::nodes::node::{Host, Taint};

    #[test]
    fn a_node_with_the_startup_taint_takes_no_pods_yet() {
        let preparation = Preparation::default();
        let node = |name: &str, taints: Vec<Taint>| InventoryNode {
            uid: String::new(),
            host: Host {
                name: name.to_owned(),
                taints,
                ..Host::default()
            },
            is_cordoned: false,
            is_ready: true,
            images: BTreeSet::new(),
            has_more_images: false,
            allocatable: None,
        };
        let mut inventory = DrainInventory::default();
        let mut missing = |name: &str, taints| {
            inventory.nodes.insert(name.to_owned(), node(name, taints));
            (
                preparation.missing_target(&inventory),
                preparation.has_gated(&inventory),
            )
        };
        let (why, is_gated) = missing("new-1", vec![Taint::no_schedule(Taint::STARTUP_KEY, "")]);
        assert!(why.is_some_and(|why| why.contains("new-1 still has the startup taint")));
        assert!(is_gated);
        assert_eq!(missing("new-2", Vec::new()), (None, true));
    }
}
