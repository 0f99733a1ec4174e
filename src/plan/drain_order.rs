//! The plan: workloads with their classes, the order in which pools can be drained, and the capacity of each
//! build before and after.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;

use super::image_pulls::PullTotal;
use super::images::shown_image;
use super::new_nodes::{Upgrade, UpgradeMethod};
use super::nodes::{NoPool, NodePool, PlannedNode};
use super::outlook::PoolOutlook;
use super::placement::AssumedPlacement;
use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, UpgradeClass};
use super::resource_list::ResourceList;
use super::target::TargetBuild;
use super::workload::PlannedWorkload;
use super::{Planner, SCHEMA};
use crate::model::build::Build;
use crate::model::image::ImageRef;
use crate::model::knowledge::KnowledgeReport;
use crate::model::memory_limits::{NO_OOM_KILLER, mebibytes};
use crate::model::node::Host;
use crate::model::report_schema::counts_by;
use crate::model::text::list;
use crate::rules::KnownVersions;

/// The plan of an upgrade of Windows nodes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Report of transom plan -o json")]
pub struct UpgradePlan {
    /// The name and the version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The build to upgrade to.
    pub to: TargetBuild,
    /// Whether nodes are added, or get the new build in place.
    pub method: UpgradeMethod,
    /// The pools to remove, or to upgrade in place.
    pub from: Vec<String>,
    /// The placement that the plan assumes for new pods.
    pub placement: AssumedPlacement,
    /// How many workloads there are of each class.
    pub summary: PlanSummary,
    /// Every Windows workload, the mildest class first.
    pub workloads: Vec<WorkloadPlan>,
    /// The pools to remove or to upgrade in place, in the order in which that can be done.
    pub drain_order: Vec<DrainStep>,
    /// Capacity by build, ascending.
    pub capacity: Vec<BuildCapacity>,
    /// The capacity that the moving pods need.
    pub nodes_needed: NodesNeeded,
    /// What a new node of each pool of the build to upgrade to pulls, or of a pool that does not exist yet; with an upgrade in
    /// place, an upgraded node without images.
    pub new_nodes: Vec<NewNodePulls>,
    /// Every pool: until when its nodes are supported, and their known faults.
    pub pools: Vec<PoolOutlook>,
    /// The known faults and dates of support that were used.
    pub knowledge: KnowledgeReport,
    /// Missing information that could change the plan.
    pub notes: Vec<String>,
    /// What could not be read: the plan is without it. Absent if everything could be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Counts of workloads.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// All workloads.
    pub workloads: usize,
    /// Workloads with pods on the pools to remove or to upgrade in place, or that may have some there.
    pub affected: usize,
    /// Affected workloads that can move unchanged, or that run unchanged after an upgrade in place.
    pub can_move: usize,
    /// All workloads, by class.
    #[schemars(schema_with = "counts_by::<UpgradeClass>")]
    pub by_class: BTreeMap<&'static str, usize>,
}

/// What an upgrade means for one workload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPlan {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pod that it was read from, if its own object could not be read; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_from: Option<String>,
    /// The worst class of its findings.
    pub class: UpgradeClass,
    /// Whether it can move unchanged, or runs unchanged after an upgrade in place.
    pub can_move: bool,
    /// Whether it has pods on the pools to remove or to upgrade in place, or may have some there.
    pub affected: bool,
    /// The desired number of pods; null if its kind does not specify one.
    pub replicas: Option<u64>,
    /// How many pods it has.
    pub pods: u64,
    /// How many of its pods have no node yet.
    pub pending: u64,
    /// The pools that its pods are on; if none has a node, those that its template may run in.
    pub pools: Vec<String>,
    /// The first known end of support for those pools; absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date"))]
    pub support_ends: Option<Date>,
    /// The requests of each of its pods.
    pub requests: ResourceList,
    /// Its findings.
    pub findings: Vec<PlanFinding>,
}

/// One pool to remove, or to upgrade in place.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainStep {
    /// Its position in the order, from 1.
    pub step: usize,
    /// The pool.
    pub pool: String,
    /// Its build; null if its nodes do not report one.
    pub build: Option<TargetBuild>,
    /// How many nodes it has.
    pub nodes: u64,
    /// Whether every workload on it can move, and it is known how many new nodes that takes.
    pub ready: bool,
    /// The requests of its pods, without those of DaemonSets; null if the input has neither pods nor workloads.
    pub requests: Option<ResourceList>,
    /// The workloads that block it.
    pub blocked_by: Vec<Blocker>,
    /// How many new nodes must exist before it is drained, none for an upgrade in place; null if that is not known.
    pub new_nodes: Option<u64>,
}

/// A workload that blocks a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Blocker {
    /// The workload, as in `Deployment shop/web`.
    pub workload: String,
    /// Its class.
    pub class: UpgradeClass,
    /// The cause; absent if no finding names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<BlockedBy>,
}

/// What a new node of a pool pulls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct NewNodePulls {
    /// The pool.
    pub pool: String,
    /// What its images add up to; `transom image pulls` lists them.
    pub pulls: PullTotal,
}

/// Nodes and their capacity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct NodeCapacity {
    /// How many nodes.
    pub nodes: u64,
    /// Their allocatable resources; null if one of them does not report its own.
    pub allocatable: Option<ResourceList>,
    /// The requests of the pods; null if the input has no pods.
    pub requested: Option<ResourceList>,
}

/// The capacity of one build.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BuildCapacity {
    /// The build; null for nodes that do not report one.
    pub build: Option<TargetBuild>,
    /// The current capacity.
    pub before: NodeCapacity,
    /// The capacity after the pools are upgraded, or removed and their pods run on the new build; null if it is not known how many new
    /// nodes that takes.
    pub after: Option<NodeCapacity>,
}

/// The capacity that the moving pods need.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesNeeded {
    /// The requests of the pods that move; null if the input has neither pods nor workloads.
    pub requests: Option<ResourceList>,
    /// Whether `requests` is the sum of existing pods; otherwise of the replicas of templates.
    pub counts_pods: bool,
    /// The free resources of the nodes of the new build; null if one of them does not report what is allocatable, or if
    /// there are such nodes and the input has no pods.
    pub free: Option<ResourceList>,
    /// The requests of DaemonSets on each new node.
    pub daemon_set_requests: ResourceList,
    /// The node that new ones are assumed to equal; null if no node reports its resources.
    pub reference_node: Option<String>,
    /// The allocatable resources of that node; null without one.
    pub reference_allocatable: Option<ResourceList>,
    /// The minimum number of additional nodes of this size, as if pods were divisible, and none for an upgrade in place; null if
    /// one pod requests more than a node has, or if nothing is known.
    pub nodes: Option<u64>,
}

/// What the workloads mean for a pool that is removed.
#[derive(Default)]
struct PoolWorkloads {
    /// The workloads that block it.
    blockers: Vec<Blocker>,
    /// Without pods, the requests of the replicas of its workloads.
    wanted: ResourceList,
}

fn name_of(names: &[String], index: usize) -> String {
    names.get(index).cloned().unwrap_or_default()
}

/// Whether a finding of this class blocks a workload although its images and requirements allow the new build, or may allow it.
fn is_doubt_or_obstacle(class: UpgradeClass) -> bool {
    matches!(class, UpgradeClass::Unknown | UpgradeClass::Blocked)
}

/// The finding about a DaemonSet that cannot run on the new nodes. `twin`: the one for the new build; if it replaces this
/// one, the findings of this one no longer block.
fn of_daemon_set(upgrade: Upgrade, twin: Option<&str>, findings: &mut [PlanFinding]) -> PlanFinding {
    let target = upgrade.to.with_product();
    let finding = |class, message: String| {
        let source = FindingSource::rule("daemonset-spans-builds");
        PlanFinding::new(class, "spec.template", message, source)
    };
    let Some(twin) = twin else {
        let process = if upgrade.is_in_place() {
            "upgraded"
        } else {
            "drained"
        };
        let message =
            format!("it is needed for both builds while pools are {process}, and none is for {target}");
        let remedy = format!("add one with an image and a nodeSelector for {target} in addition");
        return finding(UpgradeClass::Blocked, message).remedy(remedy);
    };
    // One whose pods would start on the new nodes too, and fail there, is not replaced by another one.
    let stays_off = |it: &PlanFinding| it.blocks && it.class == UpgradeClass::Pinned;
    if !findings.iter().any(stays_off) {
        let message = format!(
            "DaemonSet {twin} exists for nodes of {target}, and this one creates pods there too, which fail"
        );
        return finding(UpgradeClass::Blocked, message)
            .remedy("let each of the two select the nodes of its own build");
    }
    for finding in findings {
        finding.blocks &= is_doubt_or_obstacle(finding.class);
    }
    let end = if upgrade.is_in_place() {
        "has no pods on upgraded nodes"
    } else {
        "is removed with the old nodes"
    };
    let message = format!("DaemonSet {twin} exists for nodes of {target}; this one {end}");
    finding(UpgradeClass::Pinned, message).note()
}

impl NodePool {
    /// The pool with a name that is unique among all pools.
    pub(super) fn shown(&self, all: &[NodePool]) -> String {
        let build = self
            .build
            .map_or_else(|| "an unknown build".to_owned(), |build| build.to_string());
        if self.label.is_empty() {
            return format!("{build} (no node-pool label)");
        }
        let namesakes = all.iter().filter(|pool| pool.name == self.name).count();
        if namesakes > 1 {
            format!("{} ({build})", self.name)
        } else {
            self.name.clone()
        }
    }
}

impl Planner<'_> {
    /// The plan for all visited objects; `None` if nothing is upgraded.
    ///
    /// # Errors
    /// If a pool to remove or to upgrade does not exist.
    pub fn plan(&self) -> Result<Option<UpgradePlan>, NoPool> {
        (self.upgrade().map(|upgrade| self.plan_of(upgrade))).transpose()
    }

    fn plan_of(&self, upgrade: Upgrade) -> Result<UpgradePlan, NoPool> {
        let from = self.pools_that_go()?;
        let names = self.pool_names();
        let outlook = self.outlook(&names);
        let by_workload = self.findings(upgrade, &from);
        let (mut workloads, by_pool) = self.plan_workloads(by_workload, (upgrade, &from), &names, &outlook);
        workloads.sort_by(|a, b| {
            (a.class, &a.namespace, &a.name, &a.kind).cmp(&(b.class, &b.namespace, &b.name, &b.kind))
        });
        let needed = self.needed(upgrade, &from, &by_pool);
        let order = self.order((upgrade, &from), by_pool, &needed, &names);
        Ok(UpgradePlan {
            schema: SCHEMA,
            to: TargetBuild(upgrade.to),
            method: upgrade.method,
            from: from.iter().map(|index| name_of(&names, *index)).collect(),
            placement: AssumedPlacement::of(self.placements.values()),
            summary: summary(&workloads),
            capacity: self.capacity(upgrade, &from, &needed),
            knowledge: self.facts.knowledge.report(self.facts.today),
            notes: self.notes(upgrade, &from, &needed),
            unread: Vec::new(),
            new_nodes: self.new_node_pulls()?,
            pools: outlook,
            workloads,
            drain_order: order,
            nodes_needed: needed,
        })
    }

    fn new_node_pulls(&self) -> Result<Vec<NewNodePulls>, NoPool> {
        let pulls = self.image_pulls()?.into_iter();
        let pulls = pulls.map(|pulls| NewNodePulls {
            pool: pulls.pool,
            pulls: pulls.total,
        });
        Ok(pulls.collect())
    }

    /// The name of each pool, by index.
    pub(super) fn pool_names(&self) -> Vec<String> {
        let pools = &self.nodes.pools;
        pools.iter().map(|pool| pool.shown(pools)).collect()
    }

    /// The findings of each workload, by index.
    fn findings(&self, upgrade: Upgrade, from: &BTreeSet<usize>) -> Vec<Vec<PlanFinding>> {
        let state = |workload| {
            let findings = self.state(workload, upgrade.to);
            if upgrade.is_in_place() {
                self.or_elsewhere(workload, findings, from)
            } else {
                findings
            }
        };
        let mut findings: Vec<_> = self.workloads.iter().map(state).collect();
        self.daemon_sets(upgrade, &mut findings);
        findings
    }

    /// The workloads, and what they mean for the pools to remove.
    fn plan_workloads(
        &self,
        findings: Vec<Vec<PlanFinding>>,
        (upgrade, from): (Upgrade, &BTreeSet<usize>),
        names: &[String],
        outlook: &[PoolOutlook],
    ) -> (Vec<WorkloadPlan>, BTreeMap<usize, PoolWorkloads>) {
        let versions: BTreeMap<&str, Option<KnownVersions>> = (self.names.iter())
            .map(|image| (&**image, KnownVersions::of_image(image, &self.facts)))
            .collect();
        let mut plans = Vec::with_capacity(findings.len());
        let mut by_pool: BTreeMap<usize, PoolWorkloads> = BTreeMap::new();
        for (workload, findings) in self.workloads.iter().zip(findings) {
            // With the pods of a cluster known, a DaemonSet without pods has none that change.
            let has_none = upgrade.is_in_place() && workload.is_daemon_set && self.has_pods;
            let pools: Vec<usize> = if workload.pods.is_empty() && !has_none {
                workload.fits(&self.nodes.pools, &versions)
            } else {
                workload.pods.keys().copied().collect()
            };
            let ends = pools.iter().filter_map(|pool| outlook.get(*pool)?.first_end());
            let plan = WorkloadPlan {
                // Without new nodes, nothing changes for what no pool takes.
                affected: self.nodes.pools.is_empty()
                    || (pools.is_empty() && !upgrade.is_in_place())
                    || pools.iter().any(|pool| from.contains(pool)),
                pools: pools.iter().map(|index| name_of(names, *index)).collect(),
                support_ends: ends.map(|end| end.date).min(),
                ..workload.plan(findings)
            };
            let leaving = || pools.iter().filter(|pool| from.contains(pool));
            if !plan.can_move {
                for pool in leaving() {
                    by_pool.entry(*pool).or_default().blockers.push(plan.blocker());
                }
            }
            if let Some(first) = leaving().next()
                && !self.has_pods
                && !workload.is_daemon_set
            {
                let wanted = workload.requests.times(workload.replicas.unwrap_or_default());
                by_pool.entry(*first).or_default().wanted += &wanted;
            }
            plans.push(plan);
        }
        (plans, by_pool)
    }

    /// A DaemonSet that cannot run on the new nodes must exist for both builds while pools are drained or upgraded.
    /// Another DaemonSet with the same main image for the new build is accepted as the second one.
    fn daemon_sets(&self, upgrade: Upgrade, findings: &mut [Vec<PlanFinding>]) {
        let daemons = || {
            let workloads = self.workloads.iter().zip(0..);
            workloads.filter(|(workload, _)| workload.is_daemon_set)
        };
        let blocks = |index: usize| {
            findings
                .get(index)
                .is_some_and(|it| it.iter().any(|it| it.blocks))
        };
        // One that only runs on pools that keep their build is not for the new one.
        let is_for_target =
            |workload: &PlannedWorkload| !upgrade.is_in_place() || !workload.lands_on.is_empty();
        let able: Vec<&PlannedWorkload> = daemons()
            .filter(|(workload, index)| !blocks(*index) && is_for_target(workload))
            .map(|(workload, _)| workload)
            .collect();
        for (workload, index) in daemons() {
            let holds = |it: &PlanFinding| it.blocks && !is_doubt_or_obstacle(it.class);
            if let Some(findings) = findings.get_mut(index)
                && findings.iter().any(holds)
            {
                let twin = able.iter().find(|other| {
                    other.key.namespace == workload.key.namespace && workload.runs_same_program(other)
                });
                let finding = of_daemon_set(upgrade, twin.map(|twin| twin.key.name.as_str()), findings);
                findings.push(finding.caused_by(BlockedBy::DaemonSet));
            }
        }
    }

    fn order(
        &self,
        (upgrade, from): (Upgrade, &BTreeSet<usize>),
        mut by_pool: BTreeMap<usize, PoolWorkloads>,
        needed: &NodesNeeded,
        names: &[String],
    ) -> Vec<DrainStep> {
        let pools = from
            .iter()
            .filter_map(|index| Some((*index, self.nodes.pools.get(*index)?)));
        let mut steps: Vec<DrainStep> = pools
            .map(|(index, pool)| {
                let PoolWorkloads {
                    blockers: mut blocked_by,
                    wanted,
                } = by_pool.remove(&index).unwrap_or_default();
                blocked_by
                    .sort_by(|a, b| (Reverse(a.class), &a.workload).cmp(&(Reverse(b.class), &b.workload)));
                let requests = if self.has_pods {
                    pool.movable.clone()
                } else {
                    wanted
                };
                DrainStep {
                    step: 0,
                    pool: name_of(names, index),
                    build: pool.build.map(TargetBuild),
                    nodes: pool.nodes,
                    ready: false,
                    requests: needed.requests.as_ref().map(|_| requests),
                    blocked_by,
                    new_nodes: None,
                }
            })
            .collect();
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
            if upgrade.is_in_place() {
                step.new_nodes = Some(0);
            }
            step.ready = step.blocked_by.is_empty() && step.new_nodes.is_some();
        }
        steps
    }

    fn needed(
        &self,
        upgrade: Upgrade,
        from: &BTreeSet<usize>,
        by_pool: &BTreeMap<usize, PoolWorkloads>,
    ) -> NodesNeeded {
        let mut requests = ResourceList::default();
        let mut daemon_sets = ResourceList::default();
        let mut free = Some(ResourceList::default());
        for (index, pool) in self.nodes.pools.iter().enumerate() {
            if from.contains(&index) {
                requests += match by_pool.get(&index) {
                    Some(PoolWorkloads { wanted, .. }) if !self.has_pods => wanted,
                    _ => &pool.movable,
                };
            } else if pool.build == Some(upgrade.to) {
                let of_pool = pool.allocatable.clone().filter(|_| self.lists_pods);
                free = free.zip(of_pool).map(|(mut free, of_pool)| {
                    free += &of_pool.without(&pool.requested);
                    free
                });
            }
        }
        let stays_off = |workload: &PlannedWorkload| {
            workload
                .findings
                .iter()
                .any(|it| it.class == UpgradeClass::Pinned && it.blocks)
        };
        for workload in self
            .workloads
            .iter()
            .filter(|it| it.is_daemon_set && !stays_off(it))
        {
            daemon_sets += &workload.requests;
        }
        // The upgraded nodes are the new ones.
        let like = (!upgrade.is_in_place())
            .then(|| self.like(upgrade.to, from))
            .flatten();
        let is_counted = self.lists_pods || !self.workloads.is_empty();
        let mut needed = NodesNeeded {
            requests: is_counted.then_some(requests),
            counts_pods: self.has_pods,
            free,
            daemon_set_requests: daemon_sets,
            reference_node: like.map(|node| node.host.name.clone()),
            reference_allocatable: like.and_then(|node| node.allocatable.clone()),
            nodes: None,
        };
        needed.nodes = match &needed.requests {
            _ if upgrade.is_in_place() => Some(0),
            requests => requests.as_ref().and_then(|requests| needed.to_hold(requests)),
        };
        needed
    }

    /// The node that new ones are assumed to equal: one of the new build, otherwise one of the largest pool
    /// to remove.
    fn like(&self, to: Build, from: &BTreeSet<usize>) -> Option<&PlannedNode> {
        let offers = |node: &&PlannedNode| node.allocatable.is_some();
        let size = |node: &&PlannedNode| self.nodes.pools.get(node.pool).map_or(0, |pool| pool.nodes);
        let of_target = self.nodes.of(to).find(offers);
        of_target.or_else(|| {
            let old = self
                .nodes
                .not_of(to)
                .filter(|node| from.contains(&node.pool))
                .filter(offers);
            // Among nodes of the same size, the first by name.
            old.max_by(|a, b| size(a).cmp(&size(b)).then_with(|| b.host.name.cmp(&a.host.name)))
        })
    }

    fn capacity(&self, upgrade: Upgrade, from: &BTreeSet<usize>, needed: &NodesNeeded) -> Vec<BuildCapacity> {
        let target = Some(upgrade.to);
        let mut rooms: BTreeMap<Option<Build>, (NodeCapacity, NodeCapacity)> = BTreeMap::new();
        rooms.entry(target).or_default();
        for (index, pool) in self.nodes.pools.iter().enumerate() {
            let room = NodeCapacity {
                nodes: pool.nodes,
                allocatable: pool.allocatable.clone(),
                requested: self.lists_pods.then(|| pool.requested.clone()),
            };
            let build_after = match (from.contains(&index), upgrade.method) {
                (false, _) => Some(pool.build),
                (true, UpgradeMethod::InPlace) => Some(target),
                (true, UpgradeMethod::NewNodes) => None,
            };
            rooms.entry(pool.build).or_default().0.add(&room);
            if let Some(build) = build_after {
                rooms.entry(build).or_default().1.add(&room);
            }
        }
        let added = needed.nodes.filter(|_| !upgrade.is_in_place());
        if let (Some((_, after)), Some(more)) = (rooms.get_mut(&target), added) {
            let mut requested = needed.requests.clone().unwrap_or_default();
            requested += &needed.daemon_set_requests.times(more);
            let like = needed.reference_allocatable.as_ref();
            after.add(&NodeCapacity {
                nodes: more,
                allocatable: Some(like.map(|like| like.times(more)).unwrap_or_default()),
                requested: Some(requested),
            });
        }
        rooms
            .into_iter()
            .map(|(build, (before, after))| BuildCapacity {
                build: build.map(TargetBuild),
                before,
                after: (build != target || needed.nodes.is_some()).then_some(after),
            })
            .collect()
    }

    /// What is not known about the capacity for new nodes.
    fn capacity_notes(&self, to: Build, needed: &NodesNeeded) -> Vec<String> {
        let mut notes = Vec::new();
        let silent = |node: &&PlannedNode| node.allocatable.is_none();
        let of_target = self.nodes.of(to).find(silent);
        let no_reference = || self.nodes.all().find(|_| needed.reference_node.is_none());
        if let Some(node) = of_target.or_else(no_reference) {
            notes.push(format!(
                "what {} offers (status.allocatable) is not in the input: free capacity is unknown",
                node.host.name
            ));
        }
        if !self.lists_pods && self.nodes.of(to).next().is_some() {
            notes.push(format!(
                "no pods are known: what is free on the nodes of {} is unknown",
                to.with_product()
            ));
        }
        notes
    }

    /// Pods that move and may together use more memory than there will be for them.
    fn overcommitted(&self, from: &BTreeSet<usize>, needed: &NodesNeeded) -> Option<String> {
        let pools = from.iter().filter_map(|index| self.nodes.pools.get(*index));
        let limits = pools.map(|pool| pool.limits).fold(0, u64::saturating_add);
        let each = needed.reference_allocatable.clone()?;
        let each = each.without(&needed.daemon_set_requests);
        let mut room = each.times(needed.nodes?);
        room += needed.free.as_ref()?;
        (limits > room.memory_bytes).then(|| {
            format!(
                "the pods that move may together use more memory ({}, the sum of their limits) than is free for them ({}): set memory \
                 requests equal to limits, or add nodes; {NO_OOM_KILLER}",
                mebibytes(limits),
                mebibytes(room.memory_bytes)
            )
        })
    }

    /// The declared pools whose build is no longer right after an upgrade in place.
    fn stale_pools(&self, to: Build, from: &BTreeSet<usize>) -> Vec<String> {
        let is_stale =
            |pool: &&Host| self.is_of_pools(pool, from) && pool.build.is_some_and(|build| build != to);
        let stale = self.facts.pools.iter().filter(is_stale);
        let note = |pool: &Host| {
            format!(
                "the WindowsNodePool {} states another build: change its template.build to {to} with the nodes",
                pool.name
            )
        };
        stale.map(note).collect()
    }

    fn notes(&self, upgrade: Upgrade, from: &BTreeSet<usize>, needed: &NodesNeeded) -> Vec<String> {
        let mut notes = Vec::new();
        if self.nodes.pools.is_empty() {
            notes.push("no Windows node is known: the plan has no pools, order or capacity".to_owned());
        }
        if !upgrade.is_in_place() {
            notes.extend(self.capacity_notes(upgrade.to, needed));
            notes.extend(self.overcommitted(from, needed));
        } else if from.is_empty() {
            let pools = list(&self.plan_options.from, 12);
            let product = upgrade.to.with_product();
            notes.push(format!(
                "nothing changes: every node of {pools} already runs {product}"
            ));
        } else {
            notes.extend(self.stale_pools(upgrade.to, from));
        }
        if !self.has_pods && !self.workloads.is_empty() {
            notes.push("no pods of Windows workloads are known: workloads are counted by their replicas, and on every pool that their templates fit".to_owned());
        }
        if self.nodes.pools.iter().any(|pool| pool.build.is_none()) {
            notes.push(
                "some Windows nodes do not report their build: the plan drains no pool for them".to_owned(),
            );
        }
        notes.extend(self.platform_notes(upgrade.to));
        notes.extend(self.not_looked_up());
        notes.push("not checked: PodDisruptionBudgets, volumes that only one node or zone has, and what programs require from Windows".to_owned());
        notes
    }
}

impl Planner<'_> {
    /// With registries: how many images were not looked up: their names show their builds, or their builds do not matter.
    fn not_looked_up(&self) -> Option<String> {
        let unanswered = self.unanswered.as_ref()?;
        let is_open = |image: &&str| {
            !self.facts.images.contains_key(*image)
                && !unanswered.contains_key(*image)
                && ImageRef::parse(image).is_ok()
        };
        let images: Vec<&str> = self.names.iter().map(|image| &**image).filter(is_open).collect();
        let first = images.first()?;
        let counted = match images.len() {
            1 => "1 image was not looked up, because the plan does not need its registry".to_owned(),
            count => {
                format!("{count} images were not looked up, because the plan does not need their registries")
            }
        };
        Some(format!(
            "{counted}: transom image {} shows whether it exists",
            shown_image(first)
        ))
    }
}

impl PlannedWorkload {
    /// What its findings mean for it, without its pools.
    fn plan(&self, findings: Vec<PlanFinding>) -> WorkloadPlan {
        let worst = findings.iter().map(|it| it.class).max();
        WorkloadPlan {
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
            support_ends: None,
            requests: self.requests.clone(),
            findings,
        }
    }
}

impl UpgradePlan {
    /// The release of Kubernetes that does not support the nodes of a workload, if that is so.
    pub fn unsupported_by(&self, workload: &WorkloadPlan) -> Option<&str> {
        let mut pools = self
            .pools
            .iter()
            .filter(|pool| workload.pools.contains(&pool.pool));
        pools.find_map(|pool| pool.unsupported_by.as_deref())
    }
}

impl WorkloadPlan {
    fn blocker(&self) -> Blocker {
        let worst = self
            .findings
            .iter()
            .filter(|it| it.blocks)
            .max_by_key(|it| it.class);
        Blocker {
            workload: format!("{} {}/{}", self.kind, self.namespace, self.name),
            class: worst.map_or(self.class, |it| it.class),
            cause: worst.and_then(|it| it.cause),
        }
    }
}

impl NodesNeeded {
    /// How many additional nodes can hold these requests together with the DaemonSets.
    fn to_hold(&self, requests: &ResourceList) -> Option<u64> {
        let missing = requests.clone().without(self.free.as_ref()?);
        let like = self.reference_allocatable.clone()?;
        like.without(&self.daemon_set_requests).to_hold(&missing)
    }
}

/// No nodes, on which nothing is requested.
impl Default for NodeCapacity {
    fn default() -> Self {
        NodeCapacity {
            nodes: 0,
            allocatable: Some(ResourceList::default()),
            requested: Some(ResourceList::default()),
        }
    }
}

impl NodeCapacity {
    fn add(&mut self, other: &NodeCapacity) {
        let sum = |all: &mut Option<ResourceList>, more: &Option<ResourceList>| match (all.as_mut(), more) {
            (Some(all), Some(more)) => *all += more,
            _ => *all = None,
        };
        self.nodes += other.nodes;
        sum(&mut self.allocatable, &other.allocatable);
        sum(&mut self.requested, &other.requested);
    }
}

fn summary(workloads: &[WorkloadPlan]) -> PlanSummary {
    let mut by_class: BTreeMap<&'static str, usize> = UpgradeClass::ALL
        .into_iter()
        .map(|class| (class.as_str(), 0))
        .collect();
    for workload in workloads {
        *by_class.entry(workload.class.as_str()).or_default() += 1;
    }
    let affected = || workloads.iter().filter(|workload| workload.affected);
    PlanSummary {
        workloads: workloads.len(),
        affected: affected().count(),
        can_move: affected().filter(|workload| workload.can_move).count(),
        by_class,
    }
}
