//! The view as it grows: what an object changes in it, and what changes nothing that is read; pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::cache::ClusterCache;
use crate::cluster::node::NodeView;

/// What a watch has shown.
pub(super) enum WatchEvent<T> {
    /// Everything that there is, by name.
    All(CachePart<T>),
    /// One object; nothing where it is gone, or where nothing of it is of interest.
    One(String, Option<T>),
}

/// The objects of one kind in the view, by name.
type CachePart<T> = BTreeMap<String, Arc<T>>;

/// The view as it grows.
pub(super) struct CacheBuilder {
    pub(super) view: ClusterCache,
    /// Which watches have not listed yet; the view is no view before.
    pub(super) missing: Vec<&'static str>,
}

impl CacheBuilder {
    /// Nothing was seen yet.
    pub(super) fn new(parts: &[&'static str]) -> Self {
        CacheBuilder {
            view: ClusterCache::default(),
            missing: parts.into(),
        }
    }

    /// Takes in what a watch has shown of a part of the view; says whether that changes it.
    pub(super) fn part<T: PartialEq>(
        part: impl Fn(&mut ClusterCache) -> &mut CachePart<T>,
    ) -> impl Fn(&mut CacheBuilder, WatchEvent<T>) -> bool {
        move |building, seen| put(part(&mut building.view), seen)
    }

    /// The same for nodes. A heartbeat makes the same node, in a newer version.
    pub(super) fn nodes() -> impl Fn(&mut CacheBuilder, WatchEvent<NodeView>) -> bool {
        |building, seen| match seen {
            WatchEvent::All(nodes) => {
                let gone = |name: &String| !nodes.contains_key(name);
                let gone = building.view.nodes.keys().any(gone);
                building.view.nodes.retain(|name, _| nodes.contains_key(name));
                nodes.into_iter().fold(gone, |changed, (name, node)| {
                    building.put_node(name, node) || changed
                })
            }
            WatchEvent::One(name, Some(node)) => building.put_node(name, Arc::new(node)),
            WatchEvent::One(name, None) => building.view.nodes.remove(&name).is_some(),
        }
    }

    fn put_node(&mut self, name: String, node: Arc<NodeView>) -> bool {
        if let Some(known) = self.view.nodes.get(&name).filter(|known| **known == node) {
            known.resource_version.follow(&node.resource_version);
            return false;
        }
        self.view.nodes.insert(name, node);
        true
    }
}

/// Puts what was seen in its place; an object that is equal to the one before keeps its identity.
fn put<T: PartialEq>(part: &mut CachePart<T>, seen: WatchEvent<T>) -> bool {
    match seen {
        WatchEvent::All(mut all) => {
            for (name, object) in &mut all {
                if let Some(known) = part.get(name).filter(|known| *known == object) {
                    *object = Arc::clone(known);
                }
            }
            let changed = !crate::cluster::cache::same(part, &all);
            *part = all;
            changed
        }
        WatchEvent::One(name, None) => part.remove(&name).is_some(),
        WatchEvent::One(name, Some(object)) if part.get(&name).is_some_and(|known| **known == object) => {
            false
        }
        WatchEvent::One(name, Some(object)) => {
            part.insert(name, Arc::new(object));
            true
        }
    }
}
