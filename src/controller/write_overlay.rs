//! Objects as Transom last wrote them, used until the watch shows that version, so that a pass neither repeats its writes nor
//! decides on what it has replaced.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::WindowsNodePolicy;
use crate::cluster::cache::is_older;
use crate::cluster::node::NodeView;

/// How long a write is assumed to hold. A watch shows it within a second. If a watch restarted meanwhile and another
/// writer reverted the object, the watch shows no change, so the assumption must expire.
const BELIEVED: Duration = Duration::from_secs(30);

/// A stored version of an object.
pub trait StoredVersion {
    /// The uid and the resourceVersion.
    fn version(&self) -> (&str, &str);
}

impl StoredVersion for NodeView {
    fn version(&self) -> (&str, &str) {
        (&self.uid, &self.resource_version)
    }
}

impl StoredVersion for WindowsNodePolicy {
    fn version(&self) -> (&str, &str) {
        let (uid, version) = (&self.metadata.uid, &self.metadata.resource_version);
        (
            uid.as_deref().unwrap_or_default(),
            version.as_deref().unwrap_or_default(),
        )
    }
}

/// Objects that are newer than the cache, by name.
#[derive(Debug)]
pub struct WriteOverlay<T>(HashMap<String, (Instant, Arc<T>)>);

impl<T> Default for WriteOverlay<T> {
    fn default() -> Self {
        WriteOverlay(HashMap::new())
    }
}

impl<T: StoredVersion> WriteOverlay<T> {
    /// Stores an object as it was just written or read.
    pub fn put(&mut self, name: &str, object: Arc<T>, now: Instant) {
        self.0.insert(name.to_owned(), (now, object));
    }

    /// Forgets an object.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Forgets the objects that do not exist.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| exists(name));
    }

    /// The newer version of a cached object; forgets a version that the cache has caught up with.
    pub fn newest(&mut self, name: &str, cached: &Arc<T>, now: Instant) -> Arc<T> {
        let Some((at, ours)) = self.0.get(name) else {
            return Arc::clone(cached);
        };
        let ((uid, version), (our_uid, our_version)) = (cached.version(), ours.version());
        if uid == our_uid && is_older(version, our_version) && now < *at + BELIEVED {
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
        let build = |overlay: &mut WriteOverlay<NodeView>, seen: &Arc<NodeView>, at| {
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
