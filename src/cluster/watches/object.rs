//! The watch of one object by its name.

use std::fmt::Debug;
use std::sync::Arc;

use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::cache_builder::WatchEvent;
use super::{explain, log_broken, watch_kind};
use crate::process::complaints::Complaints;

/// The last observed version of an object: `None` until its watch has listed, `Some(None)` if there is no such object.
pub type ObservedObject<K> = Option<Option<Arc<K>>>;

/// The next version of an object: `Some(None)` if there is no such object (any longer), `None` if the watch has ended.
pub async fn next<K>(versions: &mut watch::Receiver<ObservedObject<K>>) -> ObservedObject<K> {
    versions.changed().await.ok()?;
    versions.borrow_and_update().clone()
}

/// Watches the object of this name, forever. `resource` is for the log.
pub async fn watch_object<K>(api: Api<K>, name: &str, resource: &str, mut seen: impl FnMut(Option<Arc<K>>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let mut complaints = Complaints::default();
    let seen = |event| match event {
        Ok(WatchEvent::All(listed)) => seen(listed.into_values().next()),
        Ok(WatchEvent::One(_, object)) => seen(object.map(Arc::new)),
        Err(error) => log_broken(resource, &explain(resource, error), &mut complaints),
    };
    watch_kind(api, config, Some, seen).await;
}
