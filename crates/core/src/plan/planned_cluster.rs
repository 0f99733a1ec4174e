//! The cluster as it will be: which nodes there are then, and with which builds.

use std::collections::BTreeSet;

use super::Planner;
use super::new_nodes::{
    NewNode, PlannedChange, Upgrade, UpgradeMethod, of_each_pool, of_host, of_pool, of_target, upgraded,
};
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::Host;
use crate::model::windows::build::Build;

/// The cluster that is planned for.
pub(super) struct PlannedCluster {
    /// What is known of it. After an upgrade with new nodes, only the nodes of the new build are left; after one in place, all
    /// nodes are there; otherwise its nodes are the new ones.
    pub facts: Facts,
    /// The nodes of the new build that workloads can move to, and the pools of that build that may be at zero nodes; empty if
    /// nothing is upgraded.
    pub targets: Vec<Host>,
    /// The nodes that may be added, or that get another build in place.
    pub new_nodes: Vec<NewNode>,
    /// The pools that keep their build while others are upgraded in place.
    pub staying: Vec<NewNode>,
}

impl Planner<'_> {
    pub(super) fn planned(&self) -> &PlannedCluster {
        self.planned.get_or_init(|| match &self.plan_options.change {
            PlannedChange::Upgrade(Upgrade { to, method }) => match method {
                UpgradeMethod::NewNodes => self.with_nodes_of(*to),
                UpgradeMethod::InPlace => self.in_place(*to),
            },
            PlannedChange::MoreNodes { to, pools } => self.with_more_nodes(*to, pools),
        })
    }

    /// Only the nodes and pools of the build to upgrade to are left.
    fn with_nodes_of(&self, to: Build) -> PlannedCluster {
        let at_zero = self.facts.hosts().iter().filter(|host| host.may_be_at_zero);
        let at_zero = at_zero.filter(|pool| pool.build == Some(to));
        let hosts: Vec<Host> = (self.nodes.of(to).map(|node| &node.host).chain(at_zero).cloned()).collect();
        let mut facts = (*self.facts).clone();
        facts.replace_hosts(hosts.iter().cloned());
        facts.pools.retain(|pool| pool.build == Some(to));
        PlannedCluster {
            targets: hosts.into_iter().chain(facts.pools.iter().cloned()).collect(),
            facts,
            new_nodes: of_target(&self.nodes, &self.facts, to),
            staying: Vec::new(),
        }
    }

    /// The nodes of the pools to upgrade have the new build, and so have nodes that are added to these pools.
    fn in_place(&self, to: Build) -> PlannedCluster {
        // The plan itself reports a pool that does not exist.
        let pools = self.pools_that_go().unwrap_or_default();
        let coming = |pool: usize, host: &Host| {
            if pools.contains(&pool) {
                upgraded(host, to)
            } else {
                host.clone()
            }
        };
        let nodes: Vec<(usize, Host)> = (self.nodes.all())
            .map(|node| (node.pool, coming(node.pool, &node.host)))
            .collect();
        let at_zero = |host: &Host| {
            if self.is_of_pools(host, &pools) {
                upgraded(host, to)
            } else {
                host.clone()
            }
        };
        let mut facts = (*self.facts).clone();
        let remembered = self.facts.hosts().iter().filter(|host| host.may_be_at_zero);
        facts.replace_hosts((nodes.iter().map(|(_, host)| host.clone())).chain(remembered.map(at_zero)));
        facts.pools = self.facts.pools.iter().map(at_zero).collect();
        let of_nodes = |(index, pool)| {
            let hosts = nodes.iter().filter(|(of, _)| *of == index);
            let hosts = hosts.map(|(_, host)| host.clone()).collect();
            (pools.contains(&index), of_pool(pool, &self.nodes.pools, hosts))
        };
        let (changing, staying): (Vec<_>, Vec<_>) =
            (self.nodes.pools.iter().enumerate().map(of_nodes)).partition(|(changes, _)| *changes);
        let declared = self
            .facts
            .pools
            .iter()
            .filter(|pool| !self.is_of_pools(pool, &pools));
        PlannedCluster {
            facts,
            targets: changing
                .iter()
                .flat_map(|(_, pool)| &pool.hosts)
                .cloned()
                .collect(),
            new_nodes: changing.into_iter().map(|(_, pool)| pool).collect(),
            staying: (staying.into_iter().map(|(_, pool)| pool))
                .chain(declared.cloned().map(of_host))
                .collect(),
        }
    }

    /// Whether a pool that may be at zero nodes is one of these pools, by the label with its name.
    pub(super) fn is_of_pools(&self, host: &Host, pools: &BTreeSet<usize>) -> bool {
        let mut pools = pools.iter().filter_map(|pool| self.nodes.pools.get(*pool));
        host.pool()
            .is_some_and(|(key, name)| pools.any(|pool| pool.label == key && pool.name == name))
    }

    /// Every node is a new one.
    fn with_more_nodes(&self, to: Option<Build>, pools: &[String]) -> PlannedCluster {
        let each = of_each_pool(&self.nodes, &self.facts, to).into_iter();
        let is_meant =
            |node: &NewNode, build| pools.is_empty() || pools.iter().any(|pool| node.is_called(pool, build));
        let new_nodes: Vec<NewNode> = each
            .filter_map(|(node, build)| is_meant(&node, build).then_some(node))
            .collect();
        let mut facts = (*self.facts).clone();
        facts.replace_hosts(new_nodes.iter().flat_map(|node| &node.hosts).cloned());
        facts.pools.clear();
        PlannedCluster {
            facts,
            targets: Vec::new(),
            new_nodes,
            staying: Vec::new(),
        }
    }
}
