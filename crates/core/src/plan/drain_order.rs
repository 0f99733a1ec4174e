//! A planned upgrade: the workloads with their classes, and the order in which pools can be drained or upgraded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::image_pulls::PoolPulls;
use super::new_nodes::Upgrade;
use super::nodes::NoPool;
use super::outlook::PoolOutlook;
use super::placement::AssumedPlacement;
use super::plan_finding::{FindingSource, PlanFinding, UpgradeClass};
use super::resource_list::ResourceList;
use super::target::TargetBuild;
use super::upgrade_plan::{
    Blocker, DrainStep, NewNodePulls, NodesNeeded, PlanSummary, UpgradePlan, WorkloadPlan,
};
use super::workload::PlannedWorkload;
use super::{Planner, SCHEMA};
use crate::model::syntax::text::list;
use crate::rules::KnownVersions;

const PENDING: &str =
    "https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/#my-pod-stays-pending";

/// An upgrade, and what it changes.
pub(super) struct PlannedUpgrade<'p> {
    pub planner: &'p Planner<'p>,
    pub upgrade: Upgrade,
    /// The pools to remove or to upgrade in place, by index.
    pub from: BTreeSet<usize>,
    /// The name of each pool, by index.
    names: Vec<String>,
}

/// What the workloads mean for a pool that is removed.
#[derive(Default)]
pub(super) struct PoolWorkloads {
    /// The workloads that block it.
    blockers: Vec<Blocker>,
    /// Without pods, the requests of the replicas of its workloads.
    pub wanted: ResourceList,
}

impl Planner<'_> {
    /// The plan for all visited objects; `None` if nothing is upgraded.
    ///
    /// # Errors
    /// If a pool to remove or to upgrade does not exist.
    pub fn plan(&self) -> Result<Option<UpgradePlan>, NoPool> {
        let Some(upgrade) = self.upgrade() else {
            return Ok(None);
        };
        let planned = PlannedUpgrade {
            planner: self,
            upgrade,
            from: self.pools_that_go()?,
            names: self.pool_names(),
        };
        Ok(Some(planned.plan(self.image_pulls()?)))
    }

    /// The name of each pool, by index.
    pub(super) fn pool_names(&self) -> Vec<String> {
        let pools = &self.nodes.pools;
        pools.iter().map(|pool| pool.shown(pools)).collect()
    }
}

impl PlannedUpgrade<'_> {
    /// `pulls`: what new nodes pull.
    fn plan(&self, pulls: Vec<PoolPulls>) -> UpgradePlan {
        let facts = &self.planner.facts;
        let outlook = self.planner.outlook(&self.names);
        let (mut workloads, by_pool) = self.workloads(&outlook);
        workloads.sort_by(|a, b| {
            (a.class, &a.namespace, &a.name, &a.kind).cmp(&(b.class, &b.namespace, &b.name, &b.kind))
        });
        let needed = self.needed(&by_pool);
        let new_nodes = pulls.into_iter().map(|pulls| NewNodePulls {
            pool: pulls.pool,
            pulls: pulls.total,
        });
        UpgradePlan {
            schema: SCHEMA,
            to: TargetBuild(self.upgrade.to),
            method: self.upgrade.method,
            from: self.from.iter().map(|index| self.name(*index)).collect(),
            placement: AssumedPlacement::of(self.planner.placements.values()),
            summary: PlanSummary::of(&workloads),
            capacity: self.capacity(&needed),
            knowledge: facts.knowledge.report(facts.today),
            notes: self.notes(&needed),
            unread: Vec::new(),
            new_nodes: new_nodes.collect(),
            pools: outlook,
            workloads,
            drain_order: self.order(by_pool, &needed),
            nodes_needed: needed,
        }
    }

    fn name(&self, pool: usize) -> String {
        self.names.get(pool).cloned().unwrap_or_default()
    }

    /// The findings of each workload, by index.
    fn findings(&self) -> Vec<Vec<PlanFinding>> {
        let state = |workload| {
            let findings = self.planner.state(workload, self.upgrade.to);
            if self.upgrade.is_in_place() {
                self.or_elsewhere(workload, findings)
            } else {
                findings
            }
        };
        let mut findings: Vec<_> = self.planner.workloads.iter().map(state).collect();
        self.daemon_sets(&mut findings);
        findings
    }

    /// The workloads, and what they mean for the pools to remove.
    fn workloads(&self, outlook: &[PoolOutlook]) -> (Vec<WorkloadPlan>, BTreeMap<usize, PoolWorkloads>) {
        let planner = self.planner;
        let versions: BTreeMap<&str, Option<KnownVersions>> = (planner.names.iter())
            .map(|image| (&**image, KnownVersions::of_image(image, &planner.facts)))
            .collect();
        let mut plans = Vec::with_capacity(planner.workloads.len());
        let mut by_pool: BTreeMap<usize, PoolWorkloads> = BTreeMap::new();
        for (workload, mut findings) in planner.workloads.iter().zip(self.findings()) {
            let pools = self.pools_of(workload, &versions);
            findings.extend(self.waits(workload, &pools));
            let ends = pools.iter().filter_map(|pool| outlook.get(*pool)?.first_end());
            let plan = WorkloadPlan {
                affected: self.affects(&pools),
                pools: pools.iter().map(|index| self.name(*index)).collect(),
                knows_builds: workload.knows_builds(&versions),
                support_ends: ends.map(|end| end.date).min(),
                ..workload.plan(findings)
            };
            let leaving = || pools.iter().filter(|pool| self.from.contains(pool));
            if !plan.can_move {
                for pool in leaving() {
                    by_pool.entry(*pool).or_default().blockers.push(plan.blocker());
                }
            }
            if let Some(first) = leaving().next()
                && !planner.has_pods
                && !workload.is_daemon_set
            {
                let wanted = workload.requests.times(workload.replicas.unwrap_or_default());
                by_pool.entry(*first).or_default().wanted += &wanted;
            }
            plans.push(plan);
        }
        (plans, by_pool)
    }

    /// The pools with pods of a workload; without pods, those that its template may run in.
    fn pools_of(
        &self,
        workload: &PlannedWorkload,
        versions: &BTreeMap<&str, Option<KnownVersions>>,
    ) -> Vec<usize> {
        // With the pods of a cluster known, a DaemonSet without pods has none that change.
        let has_none = self.upgrade.is_in_place() && workload.is_daemon_set && self.planner.has_pods;
        if workload.pods.is_empty() && !has_none {
            workload.fits(&self.planner.nodes.pools, versions)
        } else {
            workload.pods.keys().copied().collect()
        }
    }

    /// The finding about a workload that does not run now, although these pools may run it: the plan evaluates no free capacity, and
    /// what keeps its pods off these pools may keep them off new nodes, too.
    fn waits(&self, workload: &PlannedWorkload, pools: &[usize]) -> Option<PlanFinding> {
        if !workload.pods.is_empty() || workload.pending == 0 || pools.is_empty() {
            return None;
        }
        let names: Vec<String> = pools.iter().map(|index| self.name(*index)).collect();
        let message = format!(
            "none of its pods has a node now, although its template selects {}, and the plan does not know why",
            list(&names, 4)
        );
        let source = FindingSource::row("pods that wait for a node", PENDING);
        let finding = PlanFinding::new(UpgradeClass::Unknown, "spec", message, source);
        let finding =
            finding.remedy("read the Events of its pods (kubectl describe pod), and fix what they show");
        Some(finding.note())
    }

    /// Whether the upgrade affects a workload in these pools.
    fn affects(&self, pools: &[usize]) -> bool {
        // Without new nodes, nothing changes for what no pool takes.
        self.planner.nodes.pools.is_empty()
            || (pools.is_empty() && !self.upgrade.is_in_place())
            || pools.iter().any(|pool| self.from.contains(pool))
    }

    fn order(&self, mut by_pool: BTreeMap<usize, PoolWorkloads>, needed: &NodesNeeded) -> Vec<DrainStep> {
        let step = |index: &usize| self.step(*index, by_pool.remove(index).unwrap_or_default(), needed);
        let mut steps: Vec<DrainStep> = self.from.iter().filter_map(step).collect();
        steps.sort_by(|a, b| {
            let pods = |step: &DrainStep| step.requests.as_ref().map(|requests| requests.pods);
            (a.blocked_by.len(), pods(a), &a.pool).cmp(&(b.blocked_by.len(), pods(b), &b.pool))
        });
        let mut moved = ResourceList::default();
        for (at, step) in steps.iter_mut().enumerate() {
            step.step = at + 1;
            step.new_nodes = step.requests.as_ref().and_then(|requests| {
                moved += requests;
                needed.to_hold(&moved)
            });
            if self.upgrade.is_in_place() {
                step.new_nodes = Some(0);
            }
            step.ready = step.blocked_by.is_empty() && step.new_nodes.is_some();
        }
        steps
    }

    /// The step of a pool, without its position and its new nodes.
    fn step(&self, index: usize, workloads: PoolWorkloads, needed: &NodesNeeded) -> Option<DrainStep> {
        let pool = self.planner.nodes.pools.get(index)?;
        let PoolWorkloads {
            blockers: mut blocked_by,
            wanted,
        } = workloads;
        blocked_by.sort_by(|a, b| (Reverse(a.class), &a.workload).cmp(&(Reverse(b.class), &b.workload)));
        let requests = if self.planner.has_pods {
            pool.movable.clone()
        } else {
            wanted
        };
        Some(DrainStep {
            step: 0,
            pool: self.name(index),
            build: pool.build.map(TargetBuild),
            nodes: pool.nodes,
            ready: false,
            requests: needed.requests.as_ref().map(|_| requests),
            blocked_by,
            new_nodes: None,
        })
    }
}

impl PlannedWorkload {
    /// What its findings mean for it, without its pools.
    fn plan(&self, findings: Vec<PlanFinding>) -> WorkloadPlan {
        let worst = findings.iter().map(|it| it.class).max();
        WorkloadPlan {
            group: self.key.group.to_string(),
            kind: self.key.kind.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            read_from: self.read_from.clone(),
            class: worst.unwrap_or(UpgradeClass::Unchanged),
            can_move: !findings.iter().any(|it| it.blocks),
            affected: false,
            replicas: self.replicas,
            pods: self.pods.values().sum::<u64>() + self.pending,
            pending: self.pending,
            pools: Vec::new(),
            knows_builds: false,
            support_ends: None,
            requests: self.requests.clone(),
            findings,
        }
    }
}
