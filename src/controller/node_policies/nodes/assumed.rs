//! Nodes as Transom last wrote them, used until the watch shows that version, so that a pass does not repeat its
//! writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::cache::{ClusterCache, is_older};
use crate::cluster::node::NodeView;

/// How long a write is assumed to hold. A watch shows it within a second. If a watch restarted meanwhile and another
/// writer reverted the node, the watch shows no change, so the assumption must expire.
const BELIEVED: Duration = Duration::from_secs(30);

/// Nodes that are newer than the cache.
#[derive(Debug, Default)]
pub struct AssumedNodes(HashMap<String, (Instant, Arc<NodeView>)>);

impl AssumedNodes {
    /// Stores a node as it was just written or read.
    pub fn put(&mut self, node: Arc<NodeView>, now: Instant) {
        self.0.insert(node.name.clone(), (now, node));
    }

    /// Forgets a node.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Every node of the cache, or its newer version; drops versions that the cache has caught up with.
    pub fn nodes(&mut self, view: &ClusterCache, now: Instant) -> Vec<Arc<NodeView>> {
        self.0.retain(|name, (at, ours)| {
            let seen = view.nodes.get(name).filter(|seen| seen.uid == ours.uid);
            let lags = seen
                .is_some_and(|seen| is_older(&seen.resource_version.text(), &ours.resource_version.text()));
            lags && now < *at + BELIEVED
        });
        let ours = |name: &str| self.0.get(name).map(|(_, node)| node);
        (view.nodes.iter())
            .map(|(name, node)| Arc::clone(ours(name).unwrap_or(node)))
            .collect()
    }

    /// When to run the next pass, if nothing changes until then.
    pub fn until(&self) -> Option<Instant> {
        self.0.values().map(|(at, _)| *at + BELIEVED).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(version: &str, build: &str) -> Arc<NodeView> {
        Arc::new(NodeView {
            name: "w".into(),
            uid: "u".into(),
            resource_version: version.into(),
            labels: Arc::new([("build".to_owned(), build.to_owned())].into()),
            ..NodeView::default()
        })
    }

    fn view(node: &Arc<NodeView>) -> ClusterCache {
        ClusterCache {
            nodes: [("w".to_owned(), Arc::clone(node))].into(),
            ..ClusterCache::default()
        }
    }

    #[test]
    fn what_was_written_counts_until_the_watch_shows_it_but_not_for_ever() {
        let now = Instant::now();
        let (seen, written, other) = (node("7", "old"), node("9", "new"), node("10", "other"));
        let mut assumed = AssumedNodes::default();
        assumed.put(Arc::clone(&written), now);
        let build =
            |assumed: &mut AssumedNodes, seen, at| assumed.nodes(&view(seen), at)[0].labels["build"].clone();
        assert_eq!(build(&mut assumed, &seen, now), "new");
        assert_eq!(assumed.until(), Some(now + BELIEVED));
        assert_eq!(build(&mut assumed, &other, now), "other");
        assert_eq!(assumed.until(), None);
        // The watch shows nothing: another writer may have reverted the write.
        assumed.put(written, now);
        assert_eq!(build(&mut assumed, &seen, now + BELIEVED), "old");
        assert_eq!(assumed.until(), None);
    }
}
