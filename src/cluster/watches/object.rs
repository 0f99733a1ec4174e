//! The watch of one object by its name.

use std::fmt::Debug;
use std::sync::Arc;

use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::cache_builder::WatchEvent;
use super::{explain, log_broken, watch_kind};

/// The last observed version of an object: `None` until its watch has listed, `Some(None)` if there is no such object.
type ObservedObject<K> = Option<Option<Arc<K>>>;

/// Receives the versions of one object.
#[derive(Debug)]
pub struct ObjectReceiver<K>(watch::Receiver<ObservedObject<K>>);

/// Publishes the versions of one object.
#[derive(Debug)]
pub struct ObjectSender<K>(watch::Sender<ObservedObject<K>>);

/// A channel for the versions of one object; a new version replaces one that was not received yet.
pub fn object_channel<K>() -> (ObjectSender<K>, ObjectReceiver<K>) {
    let (sender, receiver) = watch::channel(None);
    (ObjectSender(sender), ObjectReceiver(receiver))
}

impl<K> ObjectReceiver<K> {
    /// The next version: `Some(None)` if there is no such object (any longer), `None` if the watch has ended.
    pub async fn next(&mut self) -> Option<Option<Arc<K>>> {
        loop {
            self.0.changed().await.ok()?;
            let object = self.0.borrow_and_update().clone();
            if object.is_some() {
                return object;
            }
        }
    }
}

impl<K> ObjectSender<K> {
    /// Publishes a version.
    pub fn send(&self, object: Option<Arc<K>>) {
        self.0.send_replace(Some(object));
    }
}

/// Watches the object of this name, forever. `resource` is for the log.
pub async fn watch_object<K>(api: Api<K>, name: &str, resource: &str, mut seen: impl FnMut(Option<Arc<K>>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let mut complaint = String::new();
    let seen = |event| match event {
        Ok(WatchEvent::All(listed)) => seen(listed.into_values().next()),
        Ok(WatchEvent::One(_, object)) => seen(object.map(Arc::new)),
        Err(error) => log_broken(resource, explain(resource, error), &mut complaint),
    };
    watch_kind(api, config, Some, seen).await;
}
