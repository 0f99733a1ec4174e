//! The plan of an upgrade as plain data, for every output.

use std::collections::BTreeMap;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;

use super::SCHEMA;
use super::image_pulls::PullTotal;
use super::new_nodes::UpgradeMethod;
use super::outlook::PoolOutlook;
use super::placement::AssumedPlacement;
use super::plan_finding::{BlockedBy, PlanFinding, UpgradeClass};
use super::resource_list::ResourceList;
use super::target::TargetBuild;
use crate::model::knowledge::KnowledgeReport;
use crate::model::objects::workload_name::WorkloadName;
use crate::model::syntax::report_schema::counts_by;

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
    /// The API group of its kind.
    #[serde(skip)]
    pub group: String,
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
    /// Whether it is known on which builds its images run.
    #[serde(skip)]
    pub knows_builds: bool,
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

impl PlanSummary {
    pub(super) fn of(workloads: &[WorkloadPlan]) -> Self {
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
    /// Its group, kind, namespace and name.
    pub fn workload(&self) -> WorkloadName {
        WorkloadName::new(&self.group, &self.kind, &self.namespace, &self.name)
    }

    pub(super) fn blocker(&self) -> Blocker {
        let worst = self
            .findings
            .iter()
            .filter(|it| it.blocks)
            .max_by_key(|it| it.class);
        Blocker {
            workload: self.workload().to_string(),
            class: worst.map_or(self.class, |it| it.class),
            cause: worst.and_then(|it| it.cause),
        }
    }
}

impl NodesNeeded {
    /// How many additional nodes can hold these requests together with the DaemonSets.
    pub(super) fn to_hold(&self, requests: &ResourceList) -> Option<u64> {
        let missing = requests.clone().without(self.free.as_ref()?);
        let each = self.reference_allocatable.clone()?;
        each.without(&self.daemon_set_requests).to_hold(&missing)
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
    pub(super) fn add(&mut self, other: &NodeCapacity) {
        let sum = |all: &mut Option<ResourceList>, more: &Option<ResourceList>| match (all.as_mut(), more) {
            (Some(all), Some(more)) => *all += more,
            _ => *all = None,
        };
        self.nodes += other.nodes;
        sum(&mut self.allocatable, &other.allocatable);
        sum(&mut self.requested, &other.requested);
    }
}
