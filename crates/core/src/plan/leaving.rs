//! The pools and nodes that an upgrade removes, or changes in place.

use std::collections::{BTreeMap, BTreeSet};

use super::Planner;
use super::new_nodes::Upgrade;
use super::nodes::{NoNode, NoPool, NodePool};
use super::target::TargetBuild;
use super::upgrade_plan::DrainStep;
use super::workload::PlannedWorkload;
use crate::model::objects::workload::Kind;

impl Planner<'_> {
    /// The pools to remove or to upgrade in place: the named ones, otherwise every pool of an older build. Of a pool whose
    /// upgrade in place has begun, the nodes of the old build.
    pub(super) fn pools_that_go(&self) -> Result<BTreeSet<usize>, NoPool> {
        let upgrade = self.upgrade();
        let pools = self.nodes.pools.iter().enumerate();
        if self.plan_options.from.is_empty() {
            let is_older = |pool: &NodePool| {
                (pool.build.zip(upgrade)).is_some_and(|(build, upgrade)| build < upgrade.to)
            };
            let older = pools.filter(|(_, pool)| is_older(pool));
            return Ok(older.map(|(index, _)| index).collect());
        }
        let build = |index: &usize| self.nodes.pools.get(*index).and_then(|pool| pool.build);
        let is_new = |index: &usize| upgrade.is_some_and(|upgrade| build(index) == Some(upgrade.to));
        let mut found = BTreeSet::new();
        for wanted in &self.plan_options.from {
            let mut these = self.pools_called(wanted);
            // Of a pool with nodes of several builds, those of the new build stay.
            if !these.iter().all(is_new) {
                these.retain(|index| !is_new(index));
            }
            if these.is_empty() {
                these.extend(self.nodes.get(wanted).map(|node| node.pool));
            }
            if these.is_empty() {
                return Err(NoPool::new(wanted, &self.pool_names()));
            }
            found.extend(these);
        }
        if upgrade.is_some_and(Upgrade::is_in_place) {
            found.retain(|index| !is_new(index));
        }
        Ok(found)
    }

    /// The pools with this name, or shown as this, as in `win22 (10.0.20348)`; if there are none, those of this release or build.
    fn pools_called(&self, wanted: &str) -> Vec<usize> {
        let build = TargetBuild::parse(wanted).ok().map(|target| target.0);
        let all = &self.nodes.pools;
        let by_name =
            |pool: &NodePool| !pool.label.is_empty() && (pool.name == wanted || pool.shown(all) == wanted);
        let by_build = |pool: &NodePool| build.is_some() && pool.build == build;
        let those = |is_meant: &dyn Fn(&NodePool) -> bool| -> Vec<usize> {
            let pools = self.nodes.pools.iter().enumerate();
            let those = pools.filter(|(_, pool)| is_meant(pool));
            those.map(|(index, _)| index).collect()
        };
        let named = those(&by_name);
        if named.is_empty() { those(&by_build) } else { named }
    }

    /// Whether there is a Windows node of this name.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn find_node(&self, name: &str) -> Result<(), NoNode> {
        self.nodes.find(name).map(drop)
    }

    /// The nodes to remove, each with its pool: pools in the order of the plan, then nodes by name. `named`: those of
    /// [`PlanOptions::from`](super::PlanOptions::from) that are names of nodes; of other pools, all nodes are removed.
    ///
    /// # Errors
    /// If a pool to remove does not exist.
    pub fn leaving_nodes(
        &self,
        order: &[DrainStep],
        named: &[String],
    ) -> Result<Vec<(String, String)>, NoPool> {
        let names = self.pool_names();
        let mut pools: Vec<usize> = self.pools_that_go()?.into_iter().collect();
        pools.sort_by_key(|pool| order.iter().position(|step| names.get(*pool) == Some(&step.pool)));
        let mut whole = BTreeSet::new();
        for from in self.plan_options.from.iter().filter(|from| !named.contains(from)) {
            let these = self.pools_called(from);
            if these.is_empty() {
                return Err(NoPool::new(from, &names));
            }
            whole.extend(these);
        }
        let mut leaving = Vec::new();
        for pool in pools {
            let nodes = self.nodes.all().filter(|node| node.pool == pool);
            let nodes = nodes.map(|node| &node.host.name);
            let name = names.get(pool).cloned().unwrap_or_default();
            let is_meant = |node: &&String| whole.contains(&pool) || named.contains(node);
            leaving.extend(nodes.filter(is_meant).map(|node| (node.clone(), name.clone())));
        }
        Ok(leaving)
    }

    /// The images of the CronJobs that may run on the pools to remove, by CronJob, as in `CronJob shop/report`.
    ///
    /// # Errors
    /// If a pool to remove does not exist.
    pub fn cron_jobs_that_go(&self) -> Result<BTreeMap<String, BTreeSet<String>>, NoPool> {
        let pools = self.pools_that_go()?;
        let goes = |workload: &&PlannedWorkload| {
            let mut selected = workload.selected_pools.iter();
            workload.key.known_kind() == Some(Kind::CronJob) && selected.any(|pool| pools.contains(pool))
        };
        let images = |workload: &PlannedWorkload| {
            workload
                .images
                .iter()
                .map(|used| used.image.to_string())
                .collect()
        };
        let going = self.workloads.iter().filter(goes);
        Ok(going
            .map(|workload| (workload.key.to_string(), images(workload)))
            .collect())
    }
}
