//! Nodes as we wrote them last, until the watch shows it: so that a pass does not plan once more what it has done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::cache::{ClusterCache, is_older};
use crate::cluster::node::NodeView;

/// How long what we wrote is believed. A watch shows it within a second; but one that began anew meanwhile may show a node
/// that another writer made again what it was before, and that is no news.
const BELIEVED: Duration = Duration::from_secs(30);

/// Nodes that are newer than the view.
#[derive(Debug, Default)]
pub struct AssumedNodes(HashMap<String, (Instant, Arc<NodeView>)>);

impl AssumedNodes {
    /// Keeps a node as it was written, or read, just now.
    pub fn put(&mut self, node: Arc<NodeView>, now: Instant) {
        self.0.insert(node.name.clone(), (now, node));
    }

    /// Forgets a node.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Every node of the view as it is now; forgets what the view shows.
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

    /// When to look again, if nothing changes until then.
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
            labels: [("build".to_owned(), build.to_owned())].into(),
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
        // The watch shows nothing: perhaps another writer has undone it, and the node is as it was.
        assumed.put(written, now);
        assert_eq!(build(&mut assumed, &seen, now + BELIEVED), "old");
        assert_eq!(assumed.until(), None);
    }
}
