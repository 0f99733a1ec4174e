//! The nodes that may be added to the cluster: what is known of a new node of each pool before it exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::nodes::{NodeInventory, NodePool};
use super::target::TargetBuild;
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::{
    BUILD_LABEL, BUILD_LABELS, Host, LABELS_OF_ONE_NODE, Labels, OS_LABEL, VALUE_TO_COME, VERSION_LABELS,
    VersionLabel,
};
use crate::model::syntax::string_enum::string_enum;
use crate::model::windows::build::Build;

/// How the Windows nodes of a cluster change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlannedChange {
    /// They get another build.
    Upgrade(Upgrade),
    /// Nodes like those of each pool are added, including pools that may be at zero nodes. Nothing is upgraded.
    MoreNodes {
        /// The build that they have instead of the build of their pool.
        to: Option<Build>,
        /// The pools that are meant, by name, release or build; empty selects all of them.
        pools: Vec<String>,
    },
}

/// An upgrade of Windows nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// The build to upgrade to.
    pub to: Build,
    /// The way of the upgrade.
    pub method: UpgradeMethod,
}

string_enum! {
    /// The way of an upgrade.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum UpgradeMethod {
        /// Nodes of the new build are added, and pools are drained and removed.
        NewNodes = "newNodes",
        /// The nodes of pools get the new build, and keep their names and their other labels.
        InPlace = "inPlace",
    }
}

impl PlannedChange {
    /// The upgrade; `None` if nothing is upgraded.
    pub(super) fn upgrade(&self) -> Option<Upgrade> {
        match self {
            PlannedChange::Upgrade(upgrade) => Some(*upgrade),
            PlannedChange::MoreNodes { .. } => None,
        }
    }
}

impl Upgrade {
    /// Whether nodes keep their names and labels.
    pub(super) fn is_in_place(self) -> bool {
        self.method == UpgradeMethod::InPlace
    }
}

/// A new node of a pool.
#[derive(Clone, Debug)]
pub(super) struct NewNode {
    /// The pool, with a name that is unique.
    pub pool: String,
    /// The label that names the pool, and its value; `None` if its nodes have none, or if it does not exist yet.
    pub label: Option<(&'static str, String)>,
    /// How many nodes the pool has.
    pub nodes: u64,
    /// The different nodes that the pool may create: nodes of one pool can be in different zones.
    pub hosts: Vec<Host>,
}

impl NewNode {
    /// The build of the node.
    pub(super) fn build(&self) -> Option<Build> {
        self.hosts.first().and_then(|host| host.build)
    }

    /// The label that names the pool, and its value.
    fn label(&self) -> Option<(&'static str, &str)> {
        self.label.as_ref().map(|(key, name)| (*key, name.as_str()))
    }

    /// Labels that select the nodes of the pool with this build.
    pub(super) fn selector(&self) -> BTreeMap<String, String> {
        let pool = self.label().map(|(key, name)| (key.to_owned(), name.to_owned()));
        let build = self
            .build()
            .map(|build| (BUILD_LABEL.to_owned(), build.to_string()));
        let os = (OS_LABEL.to_owned(), "windows".to_owned());
        [os].into_iter().chain(build).chain(pool).collect()
    }

    /// Whether a person means it with this name of a pool, a release or a build.
    pub(super) fn is_called(&self, text: &str, of_pool: Option<Build>) -> bool {
        let build = TargetBuild::parse(text).ok().map(|target| target.0);
        let has_name = self.label().is_some_and(|(_, name)| name == text);
        has_name || self.pool == text || (build.is_some() && build == of_pool)
    }
}

/// The nodes that may be added, and the builds of their pools today.
pub(super) fn of_each_pool(
    nodes: &NodeInventory,
    facts: &Facts,
    to: Option<Build>,
) -> Vec<(NewNode, Option<Build>)> {
    let existing = nodes.pools.iter().enumerate().map(|(index, pool)| {
        let members = nodes.all().filter(|node| node.pool == index);
        let mut hosts: Vec<Host> = Vec::new();
        for node in members {
            let host = like(&node.host, to);
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        (of_pool(pool, &nodes.pools, hosts), pool.build)
    });
    let existing: Vec<(NewNode, Option<Build>)> = existing.collect();
    let has_nodes = |host: &&Host| {
        let pool = host.pool();
        pool.is_some() && existing.iter().any(|(node, _)| node.label() == pool)
    };
    let at_zero = at_zero(facts).into_iter().filter(|host| !has_nodes(host));
    let at_zero = at_zero.map(|host| (of_host(like(host, to)), host.build));
    let at_zero: Vec<(NewNode, Option<Build>)> = at_zero.collect();
    existing.into_iter().chain(at_zero).collect()
}

/// The nodes of the build to upgrade to that may be added.
pub(super) fn of_target(nodes: &NodeInventory, facts: &Facts, to: Build) -> Vec<NewNode> {
    let of_build = |(node, build): (NewNode, Option<Build>)| (build == Some(to)).then_some(node);
    let known: Vec<NewNode> = (of_each_pool(nodes, facts, None).into_iter())
        .filter_map(of_build)
        .collect();
    if !known.is_empty() {
        return known;
    }
    let host = Host {
        name: "a new pool".to_owned(),
        build: Some(to),
        may_be_at_zero: true,
        ..Host::default()
    };
    vec![of_host(host)]
}

/// The pools that may be at zero nodes, each once: remembered ones, and those that a policy declares.
fn at_zero(facts: &Facts) -> Vec<&Host> {
    let remembered = facts.hosts().iter().filter(|host| host.may_be_at_zero);
    let mut pools: Vec<&Host> = Vec::new();
    for host in remembered.chain(&facts.pools) {
        let is_same = |pool: &&Host| pool.name == host.name && pool.build == host.build;
        if !pools.iter().any(is_same) {
            pools.push(host);
        }
    }
    pools
}

pub(super) fn of_pool(pool: &NodePool, all: &[NodePool], hosts: Vec<Host>) -> NewNode {
    NewNode {
        pool: pool.shown(all),
        label: (!pool.label.is_empty()).then(|| (pool.label, pool.name.clone())),
        nodes: pool.nodes,
        hosts,
    }
}

pub(super) fn of_host(host: Host) -> NewNode {
    NewNode {
        pool: host.name.clone(),
        label: host.pool().map(|(key, name)| (key, name.to_owned())),
        nodes: 0,
        hosts: vec![host],
    }
}

/// What another node like this one will be: without what belongs to the node itself; with another build, if one is given.
fn like(host: &Host, to: Option<Build>) -> Host {
    let to = to.filter(|to| host.build != Some(*to));
    let mut host = to.map_or_else(|| host.clone(), |to| upgraded(host, to));
    let shared = host
        .labels
        .iter()
        .filter(|(key, _)| !LABELS_OF_ONE_NODE.contains(key));
    host.labels = shared
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    if !host.may_be_at_zero {
        "a new node".clone_into(&mut host.name);
    }
    host
}

/// The same node or pool with another build, and with the labels that its kubelet and its platform then write.
pub(super) fn upgraded(host: &Host, to: Build) -> Host {
    let states_build = |key: &str| BUILD_LABELS.contains(&key) || VersionLabel::find(key).is_some();
    let kept = host.labels.iter().filter(|(key, _)| !states_build(key));
    let kept = kept.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels = Labels::of_node(Arc::new(kept.collect()));
    let is_there = |label: &&str| host.labels.contains_key(label);
    for label in BUILD_LABELS.into_iter().filter(is_there) {
        labels.expect(label, to.to_string());
    }
    for label in VERSION_LABELS.iter().filter(|label| is_there(&label.key)) {
        let value = label.value_of(to).unwrap_or(VALUE_TO_COME);
        labels.expect(label.key, value.to_owned());
    }
    Host {
        build: Some(to),
        revision: None,
        labels,
        ..host.clone()
    }
}
