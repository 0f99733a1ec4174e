//! The view as it grows: what an object changes in it, and what changes nothing that is read; pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::WindowsNodePolicy;
use crate::cluster::node::{NodeView, PROOF_LABEL};
use crate::cluster::view::ClusterView;
use crate::model::node::{
    ARCH_LABEL, BETA_ARCH_LABEL, BETA_OS_LABEL, BUILD_LABEL, HOSTNAME_LABEL, OS_LABEL, POOL_LABELS,
    TRUSTED_BUILD_LABEL,
};

/// The labels of nodes that are read whatever the policies say.
const READ: [&str; 8] = [
    OS_LABEL,
    HOSTNAME_LABEL,
    BETA_OS_LABEL,
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BUILD_LABEL,
    TRUSTED_BUILD_LABEL,
    PROOF_LABEL,
];

/// What a watch has shown.
pub(super) enum Seen<T> {
    /// Everything that there is, by name.
    All(Part<T>),
    /// One object; nothing where it is gone, or where nothing of it is of interest.
    One(String, Option<T>),
}

/// The objects of one kind in the view, by name.
type Part<T> = BTreeMap<String, Arc<T>>;

/// The view as it grows.
pub(super) struct Building {
    pub(super) view: ClusterView,
    /// Which watches have not listed yet; the view is no view before.
    pub(super) missing: Vec<&'static str>,
    /// The labels of nodes that node policies select by.
    selected_by: BTreeSet<String>,
    /// Nodes that differ from those of the view in labels that are not read: a policy may begin to read them.
    newer: Part<NodeView>,
}

impl Building {
    /// Nothing was seen yet.
    pub(super) fn new(parts: &[&'static str]) -> Self {
        Building {
            view: ClusterView::default(),
            missing: parts.into(),
            selected_by: BTreeSet::new(),
            newer: Part::new(),
        }
    }

    /// Takes in what a watch has shown of a part of the view; says whether that changes it.
    pub(super) fn part<T: PartialEq>(
        part: impl Fn(&mut ClusterView) -> &mut Part<T>,
    ) -> impl Fn(&mut Building, Seen<T>) -> bool {
        move |building, seen| put(part(&mut building.view), seen)
    }

    /// The same for node policies: the labels by which they select are read from now on.
    pub(super) fn node_policies() -> impl Fn(&mut Building, Seen<WindowsNodePolicy>) -> bool {
        |building, seen| {
            let changed = put(&mut building.view.node_policies, seen);
            if changed {
                let selectors = building.view.node_policies.values();
                building.selected_by = selectors.flat_map(|policy| selected_by(policy)).collect();
                for (name, node) in std::mem::take(&mut building.newer) {
                    building.put_node(name, node);
                }
            }
            changed
        }
    }

    /// The same for nodes. What differs in labels that are not read is the same node, in a newer version.
    pub(super) fn nodes() -> impl Fn(&mut Building, Seen<NodeView>) -> bool {
        |building, seen| match seen {
            Seen::All(nodes) => {
                building.newer.clear();
                let gone = |name: &String| !nodes.contains_key(name);
                let gone = building.view.nodes.keys().any(gone);
                building.view.nodes.retain(|name, _| nodes.contains_key(name));
                nodes.into_iter().fold(gone, |changed, (name, node)| {
                    building.put_node(name, node) || changed
                })
            }
            Seen::One(name, Some(node)) => building.put_node(name, Arc::new(node)),
            Seen::One(name, None) => {
                building.newer.remove(&name);
                building.view.nodes.remove(&name).is_some()
            }
        }
    }

    fn put_node(&mut self, name: String, node: Arc<NodeView>) -> bool {
        let reads =
            |key: &str| READ.contains(&key) || POOL_LABELS.contains(&key) || self.selected_by.contains(key);
        if let Some(known) = self
            .view
            .nodes
            .get(&name)
            .filter(|known| known.is_same(&node, reads))
        {
            known.resource_version.follow(&node.resource_version);
            if known.labels == node.labels {
                self.newer.remove(&name);
            } else {
                self.newer.insert(name, node);
            }
            return false;
        }
        self.newer.remove(&name);
        self.view.nodes.insert(name, node);
        true
    }
}

fn selected_by(policy: &WindowsNodePolicy) -> impl Iterator<Item = String> {
    let selector = policy.spec.node_selector.clone();
    let labels = selector.match_labels.into_iter().flatten().map(|(key, _)| key);
    let expressions = selector.match_expressions.into_iter().flatten();
    labels.chain(expressions.map(|expression| expression.key))
}

/// Puts what was seen in its place; an object that is equal to the one before keeps its identity.
fn put<T: PartialEq>(part: &mut Part<T>, seen: Seen<T>) -> bool {
    match seen {
        Seen::All(mut all) => {
            for (name, object) in &mut all {
                if let Some(known) = part.get(name).filter(|known| *known == object) {
                    *object = Arc::clone(known);
                }
            }
            let changed = !crate::cluster::view::same(part, &all);
            *part = all;
            changed
        }
        Seen::One(name, None) => part.remove(&name).is_some(),
        Seen::One(name, Some(object)) if part.get(&name).is_some_and(|known| **known == object) => false,
        Seen::One(name, Some(object)) => {
            part.insert(name, Arc::new(object));
            true
        }
    }
}
