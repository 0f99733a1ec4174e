//! Builds the cache incrementally: detects which events change it and which change nothing that is used; pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::cache::ClusterCache;
use crate::cluster::node::{CachedNode, NodeView};
use crate::model::nodes::node::OtherNode;

/// An event of a watch.
pub(super) enum WatchEvent<T> {
    /// The complete list, by name.
    All(CachePart<T>),
    /// One object; `None` if it is gone or not of interest.
    One(String, Option<T>),
}

/// The objects of one kind in the cache, by name.
type CachePart<T> = BTreeMap<String, Arc<T>>;

/// The cache under construction.
pub(super) struct CacheBuilder {
    pub(super) cache: ClusterCache,
    /// Which watches have not listed yet; the cache is incomplete until then.
    pub(super) missing: Vec<&'static str>,
    /// Whether it differs from what was published.
    pub(super) is_due: bool,
}

impl CacheBuilder {
    pub(super) fn new(parts: &[&'static str]) -> Self {
        CacheBuilder {
            cache: ClusterCache::default(),
            missing: parts.into(),
            is_due: false,
        }
    }

    /// Applies an event to a part of the cache; returns whether the cache changed.
    pub(super) fn part<T: PartialEq>(
        part: impl Fn(&mut ClusterCache) -> &mut CachePart<T>,
    ) -> impl Fn(&mut CacheBuilder, WatchEvent<T>) -> bool {
        move |building, seen| put(part(&mut building.cache), seen)
    }

    /// The same for nodes. A heartbeat delivers the same node in a newer version: the cache keeps that version, for the next
    /// write, and has not changed.
    pub(super) fn nodes() -> impl Fn(&mut CacheBuilder, WatchEvent<CachedNode>) -> bool {
        |building, seen| match seen {
            WatchEvent::All(nodes) => {
                let cache = &building.cache;
                let known = cache.nodes.keys().map(String::as_str);
                let known = known.chain(cache.other_nodes.iter().map(OtherNode::name));
                let gone = known.filter(|name| !nodes.contains_key(*name));
                let gone: BTreeSet<String> = gone.map(str::to_owned).collect();
                let gone = gone.into_iter().map(|name| (name, None));
                let all = nodes
                    .into_iter()
                    .map(|(name, node)| (name, Some(Arc::unwrap_or_clone(node))));
                gone.chain(all).fold(false, |changed, (name, node)| {
                    building.put_any_node(name, node) || changed
                })
            }
            WatchEvent::One(name, node) => building.put_any_node(name, node),
        }
    }

    /// Stores a node; `None` if it is gone.
    fn put_any_node(&mut self, name: String, node: Option<CachedNode>) -> bool {
        let (view, other) = node.map_or((None, None), |node| (node.view, node.other));
        let others = &mut self.cache.other_nodes;
        let is_other_known = others.get(&name) == other.as_ref();
        match other {
            Some(other) if !is_other_known => Arc::make_mut(others).insert(other),
            None if !is_other_known => Arc::make_mut(others).remove(&name),
            _ => {}
        }
        let has_changed = match view {
            Some(view) => self.put_node(name, view),
            None => self.cache.nodes.remove(&name).is_some(),
        };
        has_changed || !is_other_known
    }

    fn put_node(&mut self, name: String, mut node: NodeView) -> bool {
        let known = self.cache.nodes.get(&name);
        let known = known.filter(|known| known.is_heartbeat(&mut node));
        let has_changed = known.is_none();
        if let Some(known) = known {
            // The largest part of a node is shared with the caches that were published.
            node.labels = Arc::clone(&known.labels);
        }
        self.cache.nodes.insert(name, Arc::new(node));
        has_changed
    }
}

/// Stores an event; an object that equals the previous one keeps its allocation.
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
