//! The nodes that are not Windows nodes: only what shows whether a pod could be scheduled there.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{HOSTNAME_LABEL, LABELS_OF_EVERY_NODE, LABELS_OF_ONE_NODE, NodeSigns};
use crate::model::nodes::node_affinity::{KnownNodeLabels, LabelValue};

/// The most bytes of labels that are kept of one node. Nodes have about 1.5 KB.
const MOST_BYTES: usize = 16 * 1024;

/// A node that is not a Windows node, or whose kubelet has not reported yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherNode {
    name: Box<str>,
    /// A line `key=value` for each label, because clusters have thousands of nodes; `None`: too many to keep.
    labels: Option<Box<str>>,
    /// A hash of the labels that several nodes may share.
    sort: u64,
}

impl OtherNode {
    /// What is kept of a node; `None` if it is a Windows node.
    pub fn of(node: &impl NodeSigns) -> Option<Self> {
        if node.is_windows() {
            return None;
        }
        let (mut lines, mut shared) = (String::new(), DefaultHasher::new());
        for (key, value) in &*node.labels() {
            lines.extend([key, "=", value, "\n"]);
            if !LABELS_OF_ONE_NODE.contains(&key.as_str()) {
                (key, value).hash(&mut shared);
            }
        }
        Some(OtherNode {
            name: node.name().into(),
            sort: shared.finish(),
            labels: (lines.len() <= MOST_BYTES).then(|| lines.into()),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl KnownNodeLabels for OtherNode {
    fn node_name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn label_value(&self, key: &str) -> LabelValue<'_> {
        let Some(labels) = &self.labels else {
            return LabelValue::Unknown;
        };
        let mut lines = labels.lines();
        match lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('=')) {
            Some(value) => LabelValue::Is(value.into()),
            // The kubelet of a node in a short file would add these.
            None if LABELS_OF_EVERY_NODE.contains(&key) || key == HOSTNAME_LABEL => LabelValue::Unknown,
            None => LabelValue::Absent,
        }
    }
}

/// All nodes that are not Windows nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OtherNodes(BTreeMap<Box<str>, OtherNode>);

impl OtherNodes {
    /// Adds or replaces a node.
    pub fn insert(&mut self, node: OtherNode) {
        self.0.insert(node.name.clone(), node);
    }

    /// Removes the node of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The node of this name.
    pub fn get(&self, name: &str) -> Option<&OtherNode> {
        self.0.get(name)
    }

    /// Every node.
    pub fn iter(&self) -> impl Iterator<Item = &OtherNode> {
        self.0.values()
    }

    /// Whether the same pods could be scheduled on these nodes, apart from pods that name a node.
    pub fn are_alike(&self, other: &OtherNodes) -> bool {
        let sorts = |nodes: &OtherNodes| -> HashSet<u64> { nodes.iter().map(|node| node.sort).collect() };
        sorts(self) == sorts(other)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::objects::resources::Node;

    fn other(name: &str, labels: &serde_json::Value, os: &str) -> Option<OtherNode> {
        let node = json!({"metadata": {"name": name, "labels": labels},
            "status": {"nodeInfo": {"operatingSystem": os}}});
        OtherNode::of(&serde_json::from_str::<Node<'_>>(&node.to_string()).unwrap())
    }

    #[test]
    fn a_node_without_windows_has_its_labels_and_unknown_ones_of_its_kubelet() {
        let labels = json!({"a": "1", "a.b/c": "", "ab": "2"});
        let node = other("l", &labels, "linux").unwrap();
        for (key, expected) in [
            ("a", LabelValue::Is("1".into())),
            ("ab", LabelValue::Is("2".into())),
            ("a.b/c", LabelValue::Is("".into())),
            ("b", LabelValue::Absent),
            ("kubernetes.io/arch", LabelValue::Unknown),
        ] {
            assert_eq!(node.label_value(key), expected, "{key}");
        }
        assert_eq!(other("w", &labels, "windows"), None);
        assert!(other("silent", &labels, "").is_some());
        let large = json!({"a": "x".repeat(MOST_BYTES)});
        assert_eq!(
            other("large", &large, "linux").unwrap().label_value("b"),
            LabelValue::Unknown
        );
    }

    #[test]
    fn nodes_that_differ_by_their_names_are_alike() {
        let of = |nodes: &[(&str, &str)]| {
            let mut all = OtherNodes::default();
            for (name, pool) in nodes {
                let labels = json!({"pool": pool, HOSTNAME_LABEL: name});
                all.insert(other(name, &labels, "linux").unwrap());
            }
            all
        };
        let one = of(&[("a", "x")]);
        assert!(one.are_alike(&of(&[("b", "x"), ("c", "x")])));
        assert!(!one.are_alike(&of(&[("b", "x"), ("c", "y")])));
    }
}
