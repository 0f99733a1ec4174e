//! The capacity that moving pods need, and the capacity of each build before and after an upgrade.

use std::collections::BTreeMap;

use super::drain_order::{PlannedUpgrade, PoolWorkloads};
use super::new_nodes::UpgradeMethod;
use super::nodes::PlannedNode;
use super::plan_finding::UpgradeClass;
use super::resource_list::ResourceList;
use super::target::TargetBuild;
use super::upgrade_plan::{BuildCapacity, NodeCapacity, NodesNeeded};
use super::workload::PlannedWorkload;
use crate::model::windows::build::Build;

impl PlannedUpgrade<'_> {
    /// What the moving pods need. An upgrade in place needs no node, because the upgraded nodes are the new ones.
    pub(super) fn needed(&self, by_pool: &BTreeMap<usize, PoolWorkloads>) -> NodesNeeded {
        let planner = self.planner;
        let reference = self.reference_node().filter(|_| !self.upgrade.is_in_place());
        let is_counted = planner.lists_pods || !planner.workloads.is_empty();
        let mut needed = NodesNeeded {
            requests: is_counted.then(|| self.moving(by_pool)),
            counts_pods: planner.has_pods,
            free: self.free(),
            daemon_set_requests: self.daemon_set_requests(),
            reference_node: reference.map(|node| node.host.name.clone()),
            reference_allocatable: reference.and_then(|node| node.allocatable.clone()),
            nodes: None,
        };
        needed.nodes = if self.upgrade.is_in_place() {
            Some(0)
        } else {
            (needed.requests.as_ref()).and_then(|requests| needed.to_hold(requests))
        };
        needed
    }

    /// The requests of the pods that move.
    fn moving(&self, by_pool: &BTreeMap<usize, PoolWorkloads>) -> ResourceList {
        let mut requests = ResourceList::default();
        for index in &self.from {
            let Some(pool) = self.planner.nodes.pools.get(*index) else {
                continue;
            };
            requests += match by_pool.get(index) {
                Some(workloads) if !self.planner.has_pods => &workloads.wanted,
                _ => &pool.movable,
            };
        }
        requests
    }

    /// What is free on the nodes of the new build; `None` if that is not known.
    fn free(&self) -> Option<ResourceList> {
        let mut free = ResourceList::default();
        for (index, pool) in self.planner.nodes.pools.iter().enumerate() {
            if !self.from.contains(&index) && pool.build == Some(self.upgrade.to) {
                let allocatable = pool.allocatable.clone().filter(|_| self.planner.lists_pods)?;
                free += &allocatable.without(&pool.requested);
            }
        }
        Some(free)
    }

    /// The requests of the DaemonSets that run on each new node.
    fn daemon_set_requests(&self) -> ResourceList {
        let stays_off = |workload: &PlannedWorkload| {
            let mut findings = workload.findings.iter();
            findings.any(|it| it.class == UpgradeClass::Pinned && it.blocks)
        };
        let workloads = self.planner.workloads.iter();
        let mut requests = ResourceList::default();
        for workload in workloads.filter(|it| it.is_daemon_set && !stays_off(it)) {
            requests += &workload.requests;
        }
        requests
    }

    /// The node that new ones are assumed to equal: one of the new build, otherwise one of the largest pool
    /// to remove.
    fn reference_node(&self) -> Option<&PlannedNode> {
        let (nodes, to) = (&self.planner.nodes, self.upgrade.to);
        let offers = |node: &&PlannedNode| node.allocatable.is_some();
        let size = |node: &&PlannedNode| nodes.pools.get(node.pool).map_or(0, |pool| pool.nodes);
        nodes.of(to).find(offers).or_else(|| {
            let old = nodes.not_of(to).filter(|node| self.from.contains(&node.pool));
            // Among nodes of the same size, the first by name.
            old.filter(offers)
                .max_by(|a, b| size(a).cmp(&size(b)).then_with(|| b.host.name.cmp(&a.host.name)))
        })
    }

    /// The capacity of each build before and after.
    pub(super) fn capacity(&self, needed: &NodesNeeded) -> Vec<BuildCapacity> {
        let target = Some(self.upgrade.to);
        let mut by_build: BTreeMap<Option<Build>, (NodeCapacity, NodeCapacity)> = BTreeMap::new();
        by_build.entry(target).or_default();
        for (index, pool) in self.planner.nodes.pools.iter().enumerate() {
            let capacity = NodeCapacity {
                nodes: pool.nodes,
                allocatable: pool.allocatable.clone(),
                requested: self.planner.lists_pods.then(|| pool.requested.clone()),
            };
            let build_after = match (self.from.contains(&index), self.upgrade.method) {
                (false, _) => Some(pool.build),
                (true, UpgradeMethod::InPlace) => Some(target),
                (true, UpgradeMethod::NewNodes) => None,
            };
            by_build.entry(pool.build).or_default().0.add(&capacity);
            if let Some(build) = build_after {
                by_build.entry(build).or_default().1.add(&capacity);
            }
        }
        let added = needed.nodes.filter(|_| !self.upgrade.is_in_place());
        if let (Some((_, after)), Some(more)) = (by_build.get_mut(&target), added) {
            let mut requested = needed.requests.clone().unwrap_or_default();
            requested += &needed.daemon_set_requests.times(more);
            let reference = needed.reference_allocatable.as_ref();
            after.add(&NodeCapacity {
                nodes: more,
                allocatable: Some(reference.map(|node| node.times(more)).unwrap_or_default()),
                requested: Some(requested),
            });
        }
        by_build
            .into_iter()
            .map(|(build, (before, after))| BuildCapacity {
                build: build.map(TargetBuild),
                before,
                after: (build != target || needed.nodes.is_some()).then_some(after),
            })
            .collect()
    }
}
