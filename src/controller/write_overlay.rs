//! Nodes as Transom last wrote them, used until the watch shows that version, so that a pass neither repeats its writes nor
//! decides on what it has replaced.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::cache::is_older;
use crate::cluster::node::NodeView;

/// How long a write is assumed to hold. A watch shows it within a second. If a watch restarted meanwhile and another
/// writer reverted the object, the watch shows no change, so the assumption must expire.
const BELIEVED: Duration = Duration::from_secs(30);

/// Nodes that are newer than the cache, by name.
#[derive(Debug, Default)]
pub struct WriteOverlay(HashMap<String, (Instant, Arc<NodeView>)>);

impl WriteOverlay {
    /// Stores a node as it was just written or read.
    pub fn put(&mut self, name: &str, node: Arc<NodeView>, now: Instant) {
        self.0.insert(name.to_owned(), (now, node));
    }

    /// Forgets a node that was removed.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Forgets the nodes that do not exist.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| exists(name));
    }

    /// The newer version of a cached node; forgets a version that the cache has caught up with.
    pub fn newest(&mut self, name: &str, cached: &Arc<NodeView>, now: Instant) -> Arc<NodeView> {
        let Some((at, ours)) = self.0.get(name) else {
            return Arc::clone(cached);
        };
        let is_behind = is_older(&cached.resource_version, &ours.resource_version);
        if cached.uid == ours.uid && is_behind && now < *at + BELIEVED {
            return Arc::clone(ours);
        }
        self.0.remove(name);
        Arc::clone(cached)
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

    #[test]
    fn what_was_written_counts_until_the_watch_shows_it_but_not_for_ever() {
        let now = Instant::now();
        let (seen, written, other) = (node("7", "old"), node("9", "new"), node("10", "other"));
        let mut overlay = WriteOverlay::default();
        overlay.put("w", Arc::clone(&written), now);
        let build = |overlay: &mut WriteOverlay, seen: &Arc<NodeView>, at| {
            overlay.newest("w", seen, at).labels["build"].clone()
        };
        assert_eq!(build(&mut overlay, &seen, now), "new");
        assert_eq!(overlay.until(), Some(now + BELIEVED));
        assert_eq!(build(&mut overlay, &other, now), "other");
        assert_eq!(overlay.until(), None);
        // The watch shows nothing: another writer may have reverted the write.
        overlay.put("w", Arc::clone(&written), now);
        assert_eq!(build(&mut overlay, &seen, now + BELIEVED), "old");
        assert_eq!(overlay.until(), None);
        // A node that was created again under the same name is another one.
        let again = Arc::new(NodeView {
            uid: "v".into(),
            ..(*seen).clone()
        });
        overlay.put("w", written, now);
        assert_eq!(build(&mut overlay, &again, now), "old");
    }
}
