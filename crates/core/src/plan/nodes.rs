//! The Windows nodes as the planner stores them, and their pools.

use std::collections::{BTreeMap, BTreeSet};

use super::resource_list::ResourceList;
use crate::model::knowledge::NodeVersions;
use crate::model::nodes::node::{Host, NodeSigns as _};
use crate::model::objects::object::{Body, Object, ObjectError, ReviewStage};
use crate::model::objects::resources;
use crate::model::objects::workload::Kind;
use crate::model::syntax::suggest::nearest;
use crate::model::syntax::text::list;
use crate::model::windows::build::Build;

/// A Windows node.
#[derive(Clone)]
pub(super) struct PlannedNode {
    pub host: Host,
    /// `None` in a file without it.
    pub uid: Option<String>,
    /// Its pool, by index.
    pub pool: usize,
    /// `None` if it does not report it.
    pub allocatable: Option<ResourceList>,
    /// The versions that it reports.
    pub versions: NodeVersions,
}

/// Nodes of one build in one pool of the platform; nodes without a pool label form one pool per build.
#[derive(Clone)]
pub(super) struct NodePool {
    /// Its name on its platform.
    pub name: String,
    /// The label that names the pool; empty for nodes without one.
    pub label: &'static str,
    pub build: Option<Build>,
    pub nodes: u64,
    /// `None` if a node does not report it.
    pub allocatable: Option<ResourceList>,
    /// The requests of all pods on its nodes.
    pub requested: ResourceList,
    /// The requests of the pods that will be created again on other nodes: excludes DaemonSet pods and mirror
    /// pods.
    pub movable: ResourceList,
    /// The memory limits of these pods, in bytes.
    pub limits: u64,
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

/// A pool that is named does not exist.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error("no pool of Windows nodes has the name or build {name:?}; known pools: {known}")]
pub struct NoPool {
    name: String,
    known: String,
}

impl NoPool {
    /// Without a pool of this name among the known ones.
    pub(super) fn new<N: AsRef<str>>(name: &str, known: &[N]) -> Self {
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        NoPool {
            name: name.to_owned(),
            known: Some(known.join(", "))
                .filter(|known| !known.is_empty())
                .unwrap_or_else(|| "none".to_owned()),
        }
    }
}

/// A node that is named is not a Windows node of the cluster.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub enum NoNode {
    /// It is for another operating system.
    #[error("node {0} is not a Windows node; kubectl drain drains it")]
    NotWindows(String),
    /// It does not exist: its name, and what exists.
    #[error("there is no node {0:?}; {1}")]
    Missing(String, String),
}

/// Every Windows node and RuntimeClass that was visited. They can be visited before the facts are known that a
/// [`Planner`](super::Planner) needs.
#[derive(Clone, Default)]
pub struct NodeInventory {
    by_name: BTreeMap<String, PlannedNode>,
    pub(super) pools: Vec<NodePool>,
    /// What pods of a RuntimeClass need besides their containers.
    pub(super) overheads: BTreeMap<String, ResourceList>,
    /// The names of the nodes for other operating systems.
    others: BTreeSet<String>,
}

impl NodeInventory {
    /// Visits a node or a RuntimeClass.
    ///
    /// # Errors
    /// If the object does not match its kind.
    pub fn visit(&mut self, kind: Kind, json: &str) -> Result<(), ObjectError> {
        let object = Object::parse(kind, json, ReviewStage::Stored)?;
        match &object.body {
            Body::RuntimeClass(class) => {
                if let Some(overhead) = &class.overhead {
                    let amount = ResourceList::of(&overhead.pod_fixed);
                    self.overheads.insert(object.meta.name.to_string(), amount);
                }
            }
            Body::Node(node) => self.add(node),
            _ => {}
        }
        Ok(())
    }

    /// Adds a node; ignores those of a name that is known: several inputs can contain the same node.
    pub(super) fn add(&mut self, node: &resources::Node<'_>) {
        let Some(host) = Host::of_node(node, None).filter(|_| node.has_windows()) else {
            self.others.insert(node.metadata.name.to_string());
            return;
        };
        self.insert(PlannedNode {
            uid: Some(node.metadata.uid.to_string()).filter(|uid| !uid.is_empty()),
            pool: 0,
            allocatable: ResourceList::of_node(&node.status.allocatable),
            versions: NodeVersions::of(node).unwrap_or_default(),
            host,
        });
    }

    /// These nodes, without what they can hold: enough to know what they pull.
    pub fn of_hosts(hosts: impl IntoIterator<Item = Host>) -> Self {
        let mut nodes = NodeInventory::default();
        for host in hosts {
            nodes.insert(PlannedNode {
                uid: None,
                pool: 0,
                allocatable: None,
                versions: NodeVersions::default(),
                host,
            });
        }
        nodes
    }

    /// Adds a node to its pool.
    fn insert(&mut self, mut node: PlannedNode) {
        let host = &node.host;
        if self.by_name.contains_key(&host.name) {
            return;
        }
        let (label, name) = host.pool().unwrap_or_default();
        let name = name.to_owned();
        let same = |pool: &NodePool| pool.label == label && pool.name == name && pool.build == host.build;
        let index = self.pools.iter().position(same).unwrap_or_else(|| {
            self.pools.push(NodePool {
                name,
                label,
                build: host.build,
                nodes: 0,
                allocatable: Some(ResourceList::default()),
                requested: ResourceList::default(),
                movable: ResourceList::default(),
                limits: 0,
            });
            self.pools.len() - 1
        });
        if let Some(pool) = self.pools.get_mut(index) {
            pool.nodes += 1;
            match (&mut pool.allocatable, &node.allocatable) {
                (Some(all), Some(more)) => *all += more,
                (all, _) => *all = None,
            }
        }
        node.pool = index;
        self.by_name.insert(node.host.name.clone(), node);
    }

    /// Whether there is no Windows node.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// A Windows node of this name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(&self, name: &str) -> Result<&PlannedNode, NoNode> {
        self.get(name).ok_or_else(|| {
            if self.others.contains(name) {
                return NoNode::NotWindows(name.to_owned());
            }
            let known = || self.by_name.keys().map(String::as_str);
            let instead = match nearest(name, known()) {
                Some(near) => format!("did you mean {near}?"),
                None if self.is_empty() => "there is no Windows node".to_owned(),
                None => format!("the Windows nodes are {}", list(known(), 10)),
            };
            NoNode::Missing(name.to_owned(), instead)
        })
    }

    pub(super) fn get(&self, name: &str) -> Option<&PlannedNode> {
        self.by_name.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &PlannedNode> {
        self.by_name.values()
    }

    /// The nodes of one build.
    pub(super) fn of(&self, build: Build) -> impl Iterator<Item = &PlannedNode> {
        self.all().filter(move |node| node.host.build == Some(build))
    }

    /// The nodes of every other build.
    pub(super) fn not_of(&self, build: Build) -> impl Iterator<Item = &PlannedNode> {
        self.all().filter(move |node| node.host.build != Some(build))
    }
}
