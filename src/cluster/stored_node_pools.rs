//! The stored `WindowsNodePool`s, and the pools of the Windows nodes that there are; pure.
//!
//! Only pools with a label are observed: a platform's, or one of `nodeLabels` of the facts about the cluster. An autoscaler
//! creates a pool's nodes with that label; other labels of a node that is gone say nothing about nodes to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node::{NodeView, OWNED_LABEL};
use crate::api::WindowsNodePool;
use crate::model::nodes::extended_resources::OfferedResources;
use crate::model::nodes::node::{Host, NodeLabel, NodeSigns as _, Taint};
use crate::model::windows::build::Build;

/// The maximum number of pools that the leader creates and keeps.
pub const MOST_OBSERVED: usize = 200;

/// A stored pool, as Transom reads it.
#[derive(Clone, Debug)]
pub struct StoredPool {
    pub stored: Arc<WindowsNodePool>,
    pub name: String,
    /// Whether the leader created it and nobody removed the label with which it did.
    pub is_observed: bool,
    /// The node that an autoscaler would add.
    pub host: Host,
    /// The parts of it that are ignored, and why.
    pub problems: Vec<String>,
}

impl StoredPool {
    fn of(stored: &Arc<WindowsNodePool>) -> Option<Self> {
        let meta = &stored.metadata;
        if meta.deletion_timestamp.is_some() {
            return None;
        }
        let name = meta.name.clone()?;
        let (host, problems) = stored.spec.host(&name);
        let labels = meta.labels.as_ref();
        Some(StoredPool {
            is_observed: labels.is_some_and(|all| all.contains_key(OWNED_LABEL.0)),
            stored: Arc::clone(stored),
            problems: problems.into_iter().map(|problem| problem.message).collect(),
            name,
            host,
        })
    }

    /// Whether a node belongs to the pool.
    pub fn selects(&self, node: &NodeView) -> bool {
        let selected = &self.stored.spec.node_selector.match_labels;
        let mut has = selected.iter().map(|(key, value)| node.label(key) == Some(value));
        !selected.is_empty() && has.all(|has| has)
    }

    /// The builds that its nodes have or had.
    fn builds(&self) -> BTreeSet<Build> {
        let status = self.stored.status.iter();
        let seen = status.flat_map(|status| &status.builds);
        let seen = seen.filter_map(|of| Build::parse_label(&of.build));
        seen.chain(self.host.build).collect()
    }
}

/// Every stored pool that is not being deleted, by name.
#[derive(Clone, Debug, Default)]
pub struct NodePools(Vec<StoredPool>);

/// A pool label and its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PoolName {
    /// The key of the label.
    pub key: String,
    pub value: String,
}

/// The node of a pool, as its newest nodes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedPool {
    pub build: Build,
    /// The taints that indicate Windows, sorted. Others are not useful for placement, and change often.
    pub taints: Vec<Taint>,
    /// The uids of its nodes with their names.
    pub nodes: BTreeMap<String, String>,
}

/// The pool of a node: by the label of its platform, or by one of `nodeLabels` of the facts about the cluster.
fn name_of(node: &NodeView, labels: &[NodeLabel]) -> Option<PoolName> {
    let of_cluster = || {
        let mut all = node.labels.iter();
        let named = all.find(|(key, value)| labels.iter().any(|label| label.matches(key, value)));
        named.map(|(key, value)| (key.as_str(), value.as_str()))
    };
    let (key, value) = node.pool().or_else(of_cluster)?;
    // The API server accepts an empty value, but it names no pool.
    (!value.is_empty()).then(|| PoolName {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

/// The pools that the Windows nodes show. `labels`: `nodeLabels` of the facts about the cluster.
pub fn observed(
    nodes: &BTreeMap<String, Arc<NodeView>>,
    labels: &[NodeLabel],
) -> BTreeMap<PoolName, ObservedPool> {
    let mut pools: BTreeMap<PoolName, ObservedPool> = BTreeMap::new();
    for node in nodes.values().filter(|node| node.has_windows()) {
        let (Some(name), Some(build)) = (name_of(node, labels), node.build()) else {
            continue;
        };
        let mut taints = node.taints();
        taints.retain(Taint::marks_windows);
        taints.sort();
        let seen = ObservedPool {
            build,
            taints,
            nodes: BTreeMap::new(),
        };
        let known = pools.entry(name).or_insert_with(|| seen.clone());
        if build > known.build {
            (known.build, known.taints) = (build, seen.taints);
        } else if build == known.build {
            known.taints.retain(|taint| seen.taints.contains(taint));
        }
        known.nodes.insert(node.name.clone(), node.uid.clone());
    }
    pools
}

impl NodePools {
    /// Reads the stored pools.
    pub fn of(stored: &BTreeMap<String, Arc<WindowsNodePool>>) -> Self {
        NodePools(stored.values().filter_map(StoredPool::of).collect())
    }

    /// All pools with their Windows nodes. Each node is compared only with the pools that have one of its labels: there are
    /// hundreds of pools and thousands of nodes.
    pub fn members<'n>(
        &self,
        nodes: &'n BTreeMap<String, Arc<NodeView>>,
    ) -> Vec<(&StoredPool, Vec<&'n NodeView>)> {
        let mut all: Vec<_> = self.0.iter().map(|pool| (pool, Vec::new())).collect();
        let mut by_label: BTreeMap<&str, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
        for (at, pool) in self.0.iter().enumerate() {
            if let Some((key, value)) = pool.stored.spec.node_selector.match_labels.first_key_value() {
                by_label
                    .entry(key)
                    .or_default()
                    .entry(value)
                    .or_default()
                    .push(at);
            }
        }
        for node in nodes.values().filter(|node| node.has_windows()) {
            let values = by_label
                .iter()
                .filter_map(|(key, pools)| pools.get(node.label(key)?));
            for at in values.flatten() {
                if let Some((_, members)) = all.get_mut(*at).filter(|(pool, _)| pool.selects(node)) {
                    members.push(&**node);
                }
            }
        }
        all
    }

    /// The pools that a user declared, or took over.
    pub fn declared(&self) -> impl Iterator<Item = &StoredPool> {
        self.0.iter().filter(|pool| !pool.is_observed)
    }

    /// The pools that the leader created.
    pub fn observed(&self) -> impl Iterator<Item = &StoredPool> {
        self.0.iter().filter(|pool| pool.is_observed)
    }

    /// The pool with exactly this label as its selector.
    pub fn named(&self, name: &PoolName) -> Option<&StoredPool> {
        self.0.iter().find(|pool| {
            let selected = &pool.stored.spec.node_selector.match_labels;
            selected.len() == 1 && selected.get(&name.key) == Some(&name.value)
        })
    }

    /// Those of the pools of nodes that no stored pool is for: none has that selector, and no declared one selects all of
    /// their nodes.
    pub fn unrecorded<'o>(
        &self,
        nodes: &BTreeMap<String, Arc<NodeView>>,
        observed: &'o BTreeMap<PoolName, ObservedPool>,
    ) -> Vec<(&'o PoolName, &'o ObservedPool)> {
        let selects_all = |declared: &StoredPool, pool: &ObservedPool| {
            let mut all = pool.nodes.keys().filter_map(|name| nodes.get(name));
            all.all(|node| declared.selects(node))
        };
        let is_recorded = |name: &PoolName, pool: &ObservedPool| {
            self.named(name).is_some() || self.declared().any(|declared| selects_all(declared, pool))
        };
        let unrecorded = observed.iter().filter(|(name, pool)| !is_recorded(name, pool));
        unrecorded.collect()
    }

    /// How many more pools the leader may create.
    pub fn room(&self) -> usize {
        MOST_OBSERVED.saturating_sub(self.observed().count())
    }

    /// The builds of observed pools without a node of that build now, as hosts.
    pub fn absent(&self, nodes: &BTreeMap<String, Arc<NodeView>>) -> Vec<Host> {
        let mut hosts = Vec::new();
        for (pool, nodes) in self
            .members(nodes)
            .into_iter()
            .filter(|(pool, _)| pool.is_observed)
        {
            let state = if nodes.is_empty() {
                "at zero nodes"
            } else {
                "no node of this build"
            };
            let present: BTreeSet<Build> = nodes.iter().filter_map(|node| node.build()).collect();
            let labels = pool
                .host
                .labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"));
            let labels = labels.collect::<Vec<_>>().join(",");
            hosts.extend(pool.builds().difference(&present).map(|build| Host {
                name: format!("of the pool {labels} ({state})"),
                build: Some(*build),
                // What was seen adds no request.
                offered: OfferedResources::default(),
                ..pool.host.clone()
            }));
        }
        hosts
    }

    /// The Windows nodes that an autoscaler may remove and whose pool nothing names: no label of a platform or policy, and no
    /// declared pool. Once they are gone, nothing is known of them. `labels`: `nodeLabels` of the facts about the cluster.
    pub fn undeclared(
        &self,
        nodes: &BTreeMap<String, Arc<NodeView>>,
        labels: &[NodeLabel],
    ) -> BTreeSet<String> {
        let windows = nodes
            .values()
            .filter(|node| node.has_windows() && node.may_be_autoscaled);
        windows
            .filter(|node| name_of(node, labels).is_none() && !self.0.iter().any(|pool| pool.selects(node)))
            .map(|node| node.name.clone())
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::Taint as NodeTaint;
    use serde_json::{Value, json};

    use super::*;

    /// A Windows node of a build with these labels and the taint of Windows nodes.
    pub fn node(name: &str, build: u32, labels: &[(&str, &str)]) -> (String, Arc<NodeView>) {
        let taint = |key: &str, value: &str| NodeTaint {
            key: key.into(),
            value: Some(value.into()),
            effect: "NoSchedule".into(),
            ..NodeTaint::default()
        };
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let view = NodeView {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            operating_system: "windows".into(),
            kernel_version: format!("10.0.{build}.1"),
            labels: Arc::new(labels.collect()),
            taints: vec![taint("os", "Windows"), taint("maintenance", "now")],
            ..NodeView::default()
        };
        (name.to_owned(), Arc::new(view))
    }

    /// A stored pool with these labels of its own.
    pub fn stored(
        name: &str,
        labels: &Value,
        spec: &Value,
        status: &Value,
    ) -> (String, Arc<WindowsNodePool>) {
        let mut object = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
            "spec": spec});
        if !status.is_null() {
            object["status"] = status.clone();
        }
        (name.to_owned(), Arc::new(serde_json::from_value(object).unwrap()))
    }

    /// The label of pools that the leader created.
    pub fn managed() -> Value {
        json!({OWNED_LABEL.0: OWNED_LABEL.1})
    }

    /// A node: its name, its build and its labels.
    type NodeSketch<'a> = (&'a str, u32, &'a [(&'a str, &'a str)]);

    fn nodes(all: &[NodeSketch<'_>]) -> BTreeMap<String, Arc<NodeView>> {
        all.iter()
            .map(|(name, build, labels)| node(name, *build, labels))
            .collect()
    }

    const WIN: &[(&str, &str)] = &[("agentpool", "win")];

    #[test]
    fn the_nodes_of_a_label_are_a_pool_with_the_newest_build_and_the_taints_that_mean_windows() {
        let ring = [("ring", "stable")];
        let cluster = nodes(&[("a", 17763, WIN), ("b", 20348, WIN), ("c", 20348, &ring)]);
        let seen = observed(&cluster, &[]);
        let [(name, pool)] = seen.iter().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((&*name.key, &*name.value), ("agentpool", "win"));
        assert_eq!(pool.build, Build::new(20348));
        assert_eq!(pool.taints, [Taint::no_schedule("os", "Windows")]);
        assert_eq!(pool.nodes.len(), 2);
        let seen = observed(&cluster, &[NodeLabel::exact("ring", "stable")]);
        assert_eq!(seen.len(), 2, "labels of policies name pools too");
    }

    #[test]
    fn of_an_observed_pool_the_builds_without_a_node_are_hosts_and_of_a_declared_one_none() {
        let spec = json!({"nodeSelector": {"matchLabels": {"agentpool": "win"}},
            "template": {"build": "10.0.20348", "taints": [{"key": "os", "value": "Windows"}]}});
        let status = json!({"builds": [{"build": "10.0.17763", "nodeCount": 0, "lastSeenTime": "2026-01-01T00:00:00Z"}]});
        let absent = |labels: &Value, cluster: &BTreeMap<_, _>| {
            let pools = NodePools::of(&[stored("p", labels, &spec, &status)].into());
            let hosts = pools.absent(cluster).into_iter();
            hosts
                .map(|host| format!("{} {}", host.build.unwrap(), host.name))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            absent(&managed(), &nodes(&[])),
            [
                "10.0.17763 of the pool agentpool=win (at zero nodes)",
                "10.0.20348 of the pool agentpool=win (at zero nodes)"
            ]
        );
        assert_eq!(
            absent(&managed(), &nodes(&[("a", 20348, WIN)])),
            ["10.0.17763 of the pool agentpool=win (no node of this build)"]
        );
        assert!(absent(&json!({}), &nodes(&[])).is_empty());
    }

    #[test]
    fn a_pool_is_recorded_by_its_selector_or_by_a_declared_pool_that_selects_all_its_nodes() {
        let cluster = nodes(&[
            ("a", 20348, &[("agentpool", "win"), ("team", "x")]),
            ("b", 20348, WIN),
        ]);
        let observed = observed(&cluster, &[]);
        let is_recorded = |labels: &Value, selector: Value| {
            let spec = json!({"nodeSelector": {"matchLabels": selector}});
            let pools = NodePools::of(&[stored("p", labels, &spec, &Value::Null)].into());
            pools.unrecorded(&cluster, &observed).is_empty()
        };
        assert!(is_recorded(&managed(), json!({"agentpool": "win"})));
        assert!(is_recorded(&json!({}), json!({"agentpool": "win"})));
        assert!(!is_recorded(&managed(), json!({"agentpool": "other"})));
        assert!(
            !is_recorded(&json!({}), json!({"team": "x"})),
            "it selects one of two nodes"
        );
    }

    #[test]
    fn an_autoscaled_node_whose_pool_nothing_names_is_named() {
        let of = |autoscaled: bool, labels: &[(&str, &str)]| -> BTreeMap<String, Arc<NodeView>> {
            let (name, mut node) = node("w", 20348, labels);
            Arc::make_mut(&mut node).may_be_autoscaled = autoscaled;
            [(name, node)].into()
        };
        let pools = |selector: Option<Value>| {
            let spec = selector.map(|it| json!({"nodeSelector": {"matchLabels": it}}));
            let stored = spec.map(|spec| stored("p", &json!({}), &spec, &Value::Null));
            NodePools::of(&stored.into_iter().collect())
        };
        let ring = [("ring", "stable")];
        for (nodes, pools, label, is_named) in [
            (of(true, &ring), pools(None), None, true),
            (of(false, &ring), pools(None), None, false),
            (of(true, WIN), pools(None), None, false),
            (
                of(true, &ring),
                pools(None),
                Some(NodeLabel::prefix("ring", "st")),
                false,
            ),
            (
                of(true, &ring),
                pools(Some(json!({"ring": "stable"}))),
                None,
                false,
            ),
            (
                of(true, &ring),
                pools(Some(json!({"ring": "canary"}))),
                None,
                true,
            ),
        ] {
            let labels: Vec<NodeLabel> = label.into_iter().collect();
            assert_eq!(
                !pools.undeclared(&nodes, &labels).is_empty(),
                is_named,
                "{nodes:?}"
            );
        }
    }
}
