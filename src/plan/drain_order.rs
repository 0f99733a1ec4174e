//! The plan: workloads with their classes, the order in which pools can be drained, and room on each build before and after.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::nodes::{NodePool, PlannedNode};
use super::placement::AssumedPlacement;
use super::plan_finding::{BlockedBy, FindingSource, PlanFinding, UpgradeClass};
use super::resource_list::ResourceList;
use super::target::{TargetBuild, named};
use super::workload::PlannedWorkload;
use super::{Planner, SCHEMA};
use crate::model::build::Build;

/// A pool that `from` names and that is not there.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error("there is no pool of Windows nodes {name:?}, nor one of that build; there are: {known}")]
pub struct NoPool {
    name: String,
    known: String,
}

/// What an upgrade takes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePlan {
    /// The schema of this object.
    pub schema: &'static str,
    /// The build to upgrade to.
    pub to: TargetBuild,
    /// The pools that go.
    pub from: Vec<String>,
    /// The placement that is assumed of the next pods.
    pub placement: AssumedPlacement,
    /// How many workloads there are of each class.
    pub summary: PlanSummary,
    /// Every workload for Windows, the mildest class first.
    pub workloads: Vec<WorkloadPlan>,
    /// The pools that go, in the order in which they can be drained.
    pub order: Vec<DrainStep>,
    /// Room by build, ascending.
    pub capacity: Vec<BuildCapacity>,
    /// What has to be there for what moves.
    pub needed: NodesNeeded,
    /// What is not known that would count.
    pub notes: Vec<String>,
}

/// How many workloads there are.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// All of them.
    pub workloads: usize,
    /// Those with pods on the pools that go, or that may have.
    pub affected: usize,
    /// Those of them that can be moved as they are.
    pub can_move: usize,
    /// All, by class.
    pub by_class: BTreeMap<&'static str, usize>,
}

/// What an upgrade means for one workload.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPlan {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pod that it was read from, where its own object was not there to be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_from: Option<String>,
    /// The worst of its statements.
    pub class: UpgradeClass,
    /// Whether it can be moved as it is.
    pub can_move: bool,
    /// Whether it has pods on the pools that go, or may have.
    pub affected: bool,
    /// How many pods it wants, where that is its own to say.
    pub replicas: Option<u64>,
    /// How many pods it has.
    pub pods: u64,
    /// How many of them are on no node yet.
    pub pending: u64,
    /// The pools that its pods are on; if none is on a node, those that its template may run in.
    pub pools: Vec<String>,
    /// What each of its pods asks for.
    pub requests: ResourceList,
    /// What is to be said of it.
    pub statements: Vec<PlanFinding>,
}

/// One pool that goes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainStep {
    /// Its place in the order, from 1.
    pub step: usize,
    /// The pool.
    pub pool: String,
    /// Its build.
    pub build: Option<TargetBuild>,
    /// How many nodes it has.
    pub nodes: u64,
    /// Whether every workload on it can be moved.
    pub ready: bool,
    /// What its pods ask for, those of DaemonSets left out.
    pub moving: ResourceList,
    /// The workloads that hold it.
    pub held_by: Vec<Blocker>,
    /// How many new nodes there have to be before it is drained, where that can be said.
    pub new_nodes_by_then: Option<u64>,
}

/// A workload that holds a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Blocker {
    /// It, as in `Deployment shop/web`.
    pub workload: String,
    /// Its class.
    pub class: UpgradeClass,
    /// By what, where a statement says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<BlockedBy>,
}

/// Nodes, and what they have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NodeCapacity {
    /// How many nodes.
    pub nodes: u64,
    /// What they offer.
    pub allocatable: ResourceList,
    /// What pods ask for.
    pub requested: ResourceList,
}

/// The room of one build.
#[derive(Clone, Debug, Serialize)]
pub struct BuildCapacity {
    /// The build; none for nodes that do not say theirs.
    pub build: Option<TargetBuild>,
    /// As it is.
    pub before: NodeCapacity,
    /// When the pools are gone, and what was on them runs on the new build.
    pub after: NodeCapacity,
}

/// What has to be there for what moves.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesNeeded {
    /// What the pods ask for that move.
    pub moving: ResourceList,
    /// Whether that is counted by pods that are there; else by the replicas of templates.
    pub by_pods: bool,
    /// What the nodes of the new build have free now.
    pub free: ResourceList,
    /// What DaemonSets ask for on each new node.
    pub daemon_sets: ResourceList,
    /// The node that new ones are taken to be like; none where no node says what it offers.
    pub like: Option<String>,
    /// What that node offers.
    pub like_allocatable: ResourceList,
    /// How many more such nodes it takes at least, all pods taken for divisible; none where one pod asks for more than a
    /// node has, or nothing is known.
    pub nodes: Option<u64>,
}

impl NodePool {
    /// The pool by a name that no other has.
    fn shown(&self, all: &[NodePool]) -> String {
        let build = self
            .build
            .map_or_else(|| "an unknown build".to_owned(), |build| build.to_string());
        if self.label.is_empty() {
            return format!("nodes of {build} in no pool");
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
    /// What is to be said of everything that was looked at.
    ///
    /// # Errors
    /// When a pool is to go that is not there.
    pub fn plan(&self) -> Result<UpgradePlan, NoPool> {
        let from = self.pools_that_go()?;
        let names: Vec<String> = self
            .nodes
            .pools
            .iter()
            .map(|pool| pool.shown(&self.nodes.pools))
            .collect();
        let name = |index: &usize| names.get(*index).cloned().unwrap_or_default();
        let mut said: Vec<Vec<PlanFinding>> = self
            .workloads
            .iter()
            .map(|workload| self.state(workload))
            .collect();
        self.daemon_sets(&mut said);

        let mut workloads: Vec<WorkloadPlan> = Vec::with_capacity(said.len());
        let mut by_pool: BTreeMap<usize, (Vec<Blocker>, ResourceList)> = BTreeMap::new();
        for (workload, statements) in self.workloads.iter().zip(said) {
            let pools: Vec<usize> = if workload.pods.is_empty() {
                workload.fits.clone()
            } else {
                workload.pods.keys().copied().collect()
            };
            let plan = WorkloadPlan {
                kind: workload.key.kind.clone(),
                namespace: workload.key.namespace.clone(),
                name: workload.key.name.clone(),
                read_from: workload.read_from.clone(),
                class: statements
                    .iter()
                    .map(|it| it.class)
                    .max()
                    .unwrap_or(UpgradeClass::Unchanged),
                can_move: !statements.iter().any(|it| it.holds),
                affected: self.nodes.pools.is_empty()
                    || pools.is_empty()
                    || pools.iter().any(|pool| from.contains(pool)),
                replicas: workload.replicas,
                pods: workload.pods.values().sum::<u64>() + workload.pending,
                pending: workload.pending,
                pools: pools.iter().map(name).collect(),
                requests: workload.requests,
                statements,
            };
            if !plan.can_move {
                for pool in pools.iter().filter(|pool| from.contains(pool)) {
                    by_pool.entry(*pool).or_default().0.push(plan.held());
                }
            }
            if !self.has_pods && !workload.is_daemon_set {
                let first = pools.iter().find(|pool| from.contains(pool));
                let wanted = workload.requests.times(workload.replicas.unwrap_or_default());
                if let Some(first) = first {
                    by_pool.entry(*first).or_default().1 += wanted;
                }
            }
            workloads.push(plan);
        }
        workloads.sort_by(|a, b| {
            (a.class, &a.namespace, &a.name, &a.kind).cmp(&(b.class, &b.namespace, &b.name, &b.kind))
        });

        let needed = self.needed(&from, &by_pool);
        let order = self.order(&from, by_pool, &needed, &names);
        Ok(UpgradePlan {
            schema: SCHEMA,
            to: TargetBuild(self.plan_options.to),
            from: from.iter().map(name).collect(),
            placement: AssumedPlacement::of(self.placements.values()),
            summary: summary(&workloads),
            capacity: self.capacity(&from, &needed),
            notes: self.notes(&needed),
            workloads,
            order,
            needed,
        })
    }

    /// The pools that go: those named, else every one of an older build.
    fn pools_that_go(&self) -> Result<BTreeSet<usize>, NoPool> {
        let pools = || self.nodes.pools.iter().enumerate();
        if self.plan_options.from.is_empty() {
            let older =
                pools().filter(|(_, pool)| pool.build.is_some_and(|build| build < self.plan_options.to));
            return Ok(older.map(|(index, _)| index).collect());
        }
        let mut found = BTreeSet::new();
        for wanted in &self.plan_options.from {
            let by_name = |pool: &NodePool| !pool.label.is_empty() && pool.name == *wanted;
            let build = TargetBuild::parse(wanted).ok().map(|target| target.0);
            let by_build = |pool: &NodePool| build.is_some() && pool.build == build;
            let mut these: Vec<usize> = pools()
                .filter(|(_, pool)| by_name(pool))
                .map(|(index, _)| index)
                .collect();
            if these.is_empty() {
                these = pools()
                    .filter(|(_, pool)| by_build(pool))
                    .map(|(index, _)| index)
                    .collect();
            }
            if these.is_empty() {
                let known: Vec<String> = self
                    .nodes
                    .pools
                    .iter()
                    .map(|pool| pool.shown(&self.nodes.pools))
                    .collect();
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                return Err(NoPool {
                    name: wanted.clone(),
                    known,
                });
            }
            found.extend(these);
        }
        Ok(found)
    }

    /// A DaemonSet that the new nodes cannot have must exist for both builds while pools are drained. Another one with the
    /// same main image that is for the new build counts as the second.
    fn daemon_sets(&self, said: &mut [Vec<PlanFinding>]) {
        let holds = |statements: &[PlanFinding]| {
            statements
                .iter()
                .any(|it| it.holds && !matches!(it.class, UpgradeClass::Unknown | UpgradeClass::Blocked))
        };
        let daemons = || {
            self.workloads
                .iter()
                .zip(0..)
                .filter(|(workload, _)| workload.is_daemon_set)
        };
        let able: Vec<&PlannedWorkload> = daemons()
            .filter(|(_, index)| said.get(*index).is_some_and(|it| !it.iter().any(|it| it.holds)))
            .map(|(workload, _)| workload)
            .collect();
        for (workload, index) in daemons() {
            let Some(statements) = said.get_mut(index).filter(|it| holds(it)) else {
                continue;
            };
            let twin = able.iter().find(|other| {
                other.key.namespace == workload.key.namespace && workload.runs_same_program(other)
            });
            let because = FindingSource::rule("daemonset-spans-builds");
            let target = named(self.plan_options.to);
            if let Some(twin) = twin {
                for statement in statements.iter_mut() {
                    statement.holds &=
                        matches!(statement.class, UpgradeClass::Unknown | UpgradeClass::Blocked);
                }
                let message = format!(
                    "DaemonSet {} is there for nodes of {target}; this one goes with the old nodes",
                    twin.key.name
                );
                statements.push(
                    PlanFinding::new(UpgradeClass::Pinned, "spec.template", message, because)
                        .by(BlockedBy::DaemonSet)
                        .note(),
                );
            } else {
                let message = format!(
                    "it must be there for both builds while pools are drained, and none is for {target}"
                );
                let remedy = format!("add one with an image and a nodeSelector for {target} beside it");
                statements.push(
                    PlanFinding::new(UpgradeClass::Blocked, "spec.template", message, because)
                        .by(BlockedBy::DaemonSet)
                        .remedy(remedy),
                );
            }
        }
    }

    fn order(
        &self,
        from: &BTreeSet<usize>,
        mut by_pool: BTreeMap<usize, (Vec<Blocker>, ResourceList)>,
        needed: &NodesNeeded,
        names: &[String],
    ) -> Vec<DrainStep> {
        let pools = from
            .iter()
            .filter_map(|index| Some((*index, self.nodes.pools.get(*index)?)));
        let mut steps: Vec<DrainStep> = pools
            .map(|(index, pool)| {
                let (mut held_by, wanted) = by_pool.remove(&index).unwrap_or_default();
                held_by.sort_by(|a, b| (Reverse(a.class), &a.workload).cmp(&(Reverse(b.class), &b.workload)));
                DrainStep {
                    step: 0,
                    pool: names.get(index).cloned().unwrap_or_default(),
                    build: pool.build.map(TargetBuild),
                    nodes: pool.nodes,
                    ready: held_by.is_empty(),
                    moving: if self.has_pods { pool.moving } else { wanted },
                    held_by,
                    new_nodes_by_then: None,
                }
            })
            .collect();
        steps.sort_by(|a, b| {
            (a.held_by.len(), a.moving.pods, &a.pool).cmp(&(b.held_by.len(), b.moving.pods, &b.pool))
        });
        let mut moved = ResourceList::default();
        for (at, step) in steps.iter_mut().enumerate() {
            moved += step.moving;
            step.step = at + 1;
            step.new_nodes_by_then = needed.to_hold(moved);
        }
        steps
    }

    fn needed(
        &self,
        from: &BTreeSet<usize>,
        by_pool: &BTreeMap<usize, (Vec<Blocker>, ResourceList)>,
    ) -> NodesNeeded {
        let (mut moving, mut free, mut daemon_sets) = (
            ResourceList::default(),
            ResourceList::default(),
            ResourceList::default(),
        );
        for (index, pool) in self.nodes.pools.iter().enumerate() {
            if from.contains(&index) {
                moving += match by_pool.get(&index) {
                    Some((_, wanted)) if !self.has_pods => *wanted,
                    _ => pool.moving,
                };
            } else if pool.build == Some(self.plan_options.to) {
                free += pool.allocatable.without(pool.requested);
            }
        }
        let stays_off = |workload: &PlannedWorkload| {
            workload
                .statements
                .iter()
                .any(|it| it.class == UpgradeClass::Pinned && it.holds)
        };
        for workload in self
            .workloads
            .iter()
            .filter(|it| it.is_daemon_set && !stays_off(it))
        {
            daemon_sets += workload.requests;
        }
        let like = self.like(from);
        let mut needed = NodesNeeded {
            moving,
            by_pods: self.has_pods,
            free,
            daemon_sets,
            like: like.map(|node| node.host.name.clone()),
            like_allocatable: like.map(|node| node.allocatable).unwrap_or_default(),
            nodes: None,
        };
        needed.nodes = needed.to_hold(moving);
        needed
    }

    /// The node that new ones are taken to be like: one of the new build, else one of the largest pool that goes.
    fn like(&self, from: &BTreeSet<usize>) -> Option<&PlannedNode> {
        let offers = |node: &&PlannedNode| node.allocatable.is_whole();
        let size = |node: &&PlannedNode| self.nodes.pools.get(node.pool).map_or(0, |pool| pool.nodes);
        let of_target = self.nodes.of(self.plan_options.to).find(offers);
        of_target.or_else(|| {
            let old = self
                .nodes
                .not_of(self.plan_options.to)
                .filter(|node| from.contains(&node.pool))
                .filter(offers);
            // Of equals the first by name.
            old.max_by(|a, b| size(a).cmp(&size(b)).then_with(|| b.host.name.cmp(&a.host.name)))
        })
    }

    fn capacity(&self, from: &BTreeSet<usize>, needed: &NodesNeeded) -> Vec<BuildCapacity> {
        let mut rooms: BTreeMap<Option<Build>, (NodeCapacity, NodeCapacity)> = BTreeMap::new();
        rooms.entry(Some(self.plan_options.to)).or_default();
        for (index, pool) in self.nodes.pools.iter().enumerate() {
            let room = NodeCapacity {
                nodes: pool.nodes,
                allocatable: pool.allocatable,
                requested: pool.requested,
            };
            let (before, after) = rooms.entry(pool.build).or_default();
            before.add(room);
            if !from.contains(&index) {
                after.add(room);
            }
        }
        if let (Some((_, after)), Some(more)) = (rooms.get_mut(&Some(self.plan_options.to)), needed.nodes) {
            let mut requested = needed.moving;
            requested += needed.daemon_sets.times(more);
            after.add(NodeCapacity {
                nodes: more,
                allocatable: needed.like_allocatable.times(more),
                requested,
            });
        }
        rooms
            .into_iter()
            .map(|(build, (before, after))| BuildCapacity {
                build: build.map(TargetBuild),
                before,
                after,
            })
            .collect()
    }

    fn notes(&self, needed: &NodesNeeded) -> Vec<String> {
        let mut notes = Vec::new();
        if self.nodes.pools.is_empty() {
            notes
                .push("no Windows node is known: nothing is said of pools, their order, and room".to_owned());
        } else if needed.like.is_none() {
            let new = self.nodes.of(self.plan_options.to).next();
            let node = new.or_else(|| self.nodes.all().next());
            let name = node.map_or("each node", |node| &node.host.name);
            notes.push(format!(
                "what {name} offers (status.allocatable) is not in the input: room is not known"
            ));
        }
        if !self.has_pods && !self.workloads.is_empty() {
            notes.push("no pods are known: workloads are counted by their replicas, and on every pool that their templates fit".to_owned());
        }
        if self.nodes.pools.iter().any(|pool| pool.build.is_none()) {
            notes.push(
                "some Windows nodes do not say their build: they are in no pool that goes by itself"
                    .to_owned(),
            );
        }
        notes.push("not looked at: PodDisruptionBudgets, volumes that only one node or zone has, and what programs ask of Windows".to_owned());
        notes
    }
}

impl WorkloadPlan {
    fn held(&self) -> Blocker {
        let worst = self
            .statements
            .iter()
            .filter(|it| it.holds)
            .max_by_key(|it| it.class);
        Blocker {
            workload: format!("{} {}/{}", self.kind, self.namespace, self.name),
            class: worst.map_or(self.class, |it| it.class),
            by: worst.and_then(|it| it.by),
        }
    }
}

impl NodesNeeded {
    /// How many more nodes it takes to hold this beside the DaemonSets.
    fn to_hold(&self, moving: ResourceList) -> Option<u64> {
        self.like.as_ref()?;
        self.like_allocatable
            .without(self.daemon_sets)
            .to_hold(moving.without(self.free))
    }
}

impl NodeCapacity {
    fn add(&mut self, other: NodeCapacity) {
        self.nodes += other.nodes;
        self.allocatable += other.allocatable;
        self.requested += other.requested;
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
