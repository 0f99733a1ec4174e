//! The outlook of each pool: until when its nodes are supported, and the known faults of their versions.

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;

use super::Planner;
use super::nodes::{NodeInventory, NodePool, PlannedNode};
use super::target::TargetBuild;
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::{FaultOfNodes, Knowledge, NodePlatform, SupportDate, SupportEvent, product};
use crate::model::nodes::node::newest_minor;
use crate::model::syntax::text::list;
use crate::model::windows::build::supported_on;

/// What is known of the future of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolOutlook {
    /// The pool.
    pub pool: String,
    /// Its build; null if its nodes do not report one.
    pub build: Option<TargetBuild>,
    /// How many nodes it has.
    pub nodes: u64,
    /// The platform of its nodes; absent if their labels do not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The days on which support for its nodes changes, ascending. An unknown day is missing.
    pub dates: Vec<PoolDate>,
    /// The last minor release of Kubernetes with which the platform supports its build; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_kubernetes: Option<String>,
    /// Whether its nodes already run a newer release than that.
    #[serde(rename = "tooNew")]
    pub is_too_new: bool,
    /// The release of Kubernetes of its nodes, if that does not support its build; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported_by: Option<String>,
    /// The known faults of its nodes, with sources.
    pub known_faults: Vec<PoolFault>,
    /// The lowest and the highest update revision (UBR) of its nodes; absent if they report none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revisions: Option<(u32, u32)>,
}

/// A day on which support for a pool changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolDate {
    /// The day.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// What happens, with the day.
    pub message: String,
    /// Whether support ends on it.
    #[serde(rename = "end")]
    pub is_end: bool,
    /// Whether it has passed.
    pub has_passed: bool,
    /// Whether it is at most 180 days ahead.
    #[serde(rename = "near")]
    pub is_near: bool,
    /// Where it is documented.
    pub source: String,
}

/// A known fault, and the nodes of the pool that have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolFault {
    /// Its id, as in `kubelet-1.31-socket`.
    pub id: String,
    /// What the first of the nodes reports, the symptom, the affected range and the source.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// Whether the nodes certainly have it.
    #[serde(rename = "certain")]
    pub is_certain: bool,
    /// The nodes.
    pub nodes: Vec<String>,
    /// Where it is documented.
    pub source: String,
}

impl PoolOutlook {
    /// The first end of support that is known.
    pub fn first_end(&self) -> Option<&PoolDate> {
        self.dates.iter().find(|date| date.is_end)
    }

    /// What to know about the pool, one line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        if let (Some(release), Some(build)) = (&self.unsupported_by, self.build) {
            lines.push(format!(
                "Kubernetes {release} does not support nodes of {}",
                product(build.0)
            ));
        }
        for date in &self.dates {
            let mark = match (date.has_passed, date.is_near) {
                (true, _) => " (passed)",
                (false, true) => " (soon)",
                (false, false) => "",
            };
            lines.push(format!("{}{mark} [{}]", date.message, date.source));
        }
        if let (Some(last), Some(platform), Some(build)) = (&self.last_kubernetes, &self.platform, self.build)
        {
            let is_newer = if self.is_too_new {
                ": its nodes run a newer one"
            } else {
                ""
            };
            let product = product(build.0);
            lines.push(format!(
                "{platform} supports {product} up to Kubernetes {last}{is_newer}"
            ));
        }
        let (certain, possible): (Vec<&PoolFault>, Vec<&PoolFault>) =
            self.known_faults.iter().partition(|fault| fault.is_certain);
        for fault in certain {
            let nodes = list(&fault.nodes, 4);
            lines.push(format!("{}; {} ({nodes})", fault.message, fault.remedy));
        }
        if !possible.is_empty() {
            let ids = list(possible.iter().map(|fault| &fault.id), possible.len());
            lines.push(format!("possible faults (transom knowledge list): {ids}"));
        }
        lines
    }
}

impl Planner<'_> {
    /// The outlook of every pool, in the order of `names`.
    pub(super) fn outlook(&self, names: &[String]) -> Vec<PoolOutlook> {
        let pools = self.nodes.pools.iter().zip(names).enumerate();
        pools
            .map(|(index, (pool, name))| of_pool(&self.nodes, index, pool, name, &self.facts))
            .collect()
    }
}

fn of_pool(nodes: &NodeInventory, index: usize, pool: &NodePool, name: &str, facts: &Facts) -> PoolOutlook {
    let (knowledge, today) = (&facts.knowledge, facts.today);
    let of_pool: Vec<&PlannedNode> = nodes.all().filter(|node| node.pool == index).collect();
    let platform = of_pool
        .iter()
        .find_map(|node| NodePlatform::of_labels(node.host.labels.keys()));
    let dates = pool.build.map(|build| knowledge.support_dates(platform, build));
    let last = platform
        .zip(pool.build)
        .and_then(|(platform, build)| knowledge.support_of(platform, build)?.last_minor);
    let kubelets = of_pool.iter().map(|node| &*node.versions.kubelet);
    let minor = newest_minor(kubelets, facts.kubernetes);
    let lacks = |build| supported_on(minor).is_some_and(|support| support.lacks(build));
    let revisions = of_pool.iter().filter_map(|node| node.host.revision);
    PoolOutlook {
        pool: name.to_owned(),
        build: pool.build.map(TargetBuild),
        nodes: pool.nodes,
        platform: platform.map(|platform| platform.to_string()),
        dates: dates
            .iter()
            .flatten()
            .map(|date| PoolDate::of(date, today))
            .collect(),
        last_kubernetes: last.map(|minor| format!("1.{minor}")),
        is_too_new: last.is_some_and(|last| minor > last),
        unsupported_by: (pool.build.filter(|build| lacks(*build))).map(|_| format!("1.{minor}")),
        known_faults: faults(&of_pool, knowledge),
        revisions: revisions.clone().min().zip(revisions.max()),
    }
}

impl PoolDate {
    fn of(date: &SupportDate, today: Date) -> Self {
        PoolDate {
            date: date.on,
            message: date.to_string(),
            is_end: date.event == SupportEvent::Ends,
            has_passed: date.on < today,
            is_near: date.is_near(today),
            source: date.source.clone(),
        }
    }
}

fn faults(nodes: &[&PlannedNode], knowledge: &Knowledge) -> Vec<PoolFault> {
    let each = nodes.iter().map(|node| (node.host.name.as_str(), &node.versions));
    let found = knowledge.faults_by_id(each).into_iter();
    found
        .map(|FaultOfNodes { fault, nodes }| PoolFault {
            id: fault.id,
            message: fault.message,
            remedy: fault.remedy,
            is_certain: fault.is_certain,
            nodes,
            source: fault.source,
        })
        .collect()
}
