//! The watches: each stores what it sees in the cache, trimmed. A watch that breaks is restarted, and its last state
//! stays in the cache meanwhile.

mod cache_builder;
pub(crate) mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};

use self::cache_builder::{CacheBuilder, WatchEvent};
use super::cache::ClusterCache;
use super::cached_kinds::{self, CachedKind};
use super::errors::{ApiError, answered};
use super::node::CachedNode;
use super::node_selectors;
use super::watch::watch_events;
use super::watch_staleness::WatchStaleness;
use crate::model::cluster::facts::{Facts, GMSA_GROUP, SCC_GROUP};
use crate::model::knowledge::Knowledge;
use crate::model::nodes::node::major_minor;
use crate::process::complaints::Complaints;
use crate::process::readiness::Readiness;
use crate::process::tasks::{TaskEnded, Tasks};

/// How long changes are collected before they are published as one cache.
const GATHER: Duration = Duration::from_millis(100);
/// How often the version of the API server is read: it changes during a cluster upgrade.
const ASK_VERSION: Duration = Duration::from_secs(10 * 60);
/// How often the pods of namespaces with a default node selector are checked.
const ASK_SELECTORS: Duration = Duration::from_secs(5 * 60);
/// How long the API server may keep a watch open. It need not send anything for that long: without progress notifications
/// from etcd (before 3.4.25 and 3.5.8, or without `--experimental-watch-progress-notify-interval`) it sends no bookmarks for a
/// kind that does not change. Its answer to the next request shows that the watch works, before
/// [`watch_staleness`](super::watch_staleness) reports it.
const WATCH_SECONDS: u32 = 120;
/// Objects per page of the initial list. A node with its images is tens of kilobytes, and a whole page is held in
/// memory.
const PAGE: u32 = 100;

/// The parts of the cache: the watches, and the version of the API server with its API groups. Each part holds
/// readiness under its name until it has been read once.
const PARTS: [&str; 9] = [
    cached_kinds::NODES.resource,
    cached_kinds::RUNTIME_CLASSES.resource,
    cached_kinds::CSI_NODES.resource,
    NAMESPACES,
    cached_kinds::POD_POLICIES.resource,
    cached_kinds::NODE_POLICIES.resource,
    cached_kinds::REVISIONS.resource,
    cached_kinds::NODE_POOLS.resource,
    VERSION,
];
const NAMESPACES: &str = cached_kinds::NAMESPACES.resource;
const VERSION: &str = "version";

/// The current cache. `None` until every watch has listed once.
pub type CacheReceiver = watch::Receiver<Option<Arc<ClusterCache>>>;

/// Watches the cluster until a watch ends, which should never happen; returns its name. Readiness is held until the
/// first cache is complete. `namespace` is Transom's own, with the policy revisions.
pub async fn run(
    client: Client,
    namespace: &str,
    readiness: Readiness,
    staleness: &WatchStaleness,
    caches: watch::Sender<Option<Arc<ClusterCache>>>,
) -> TaskEnded {
    let mut watches = Watches {
        client: &client,
        namespace,
        staleness,
        shared: Arc::new(WatchState::new(readiness)),
        tasks: Tasks::default(),
    };
    watches.add(
        &cached_kinds::NODES,
        |node| Some(CachedNode::from(node)),
        CacheBuilder::nodes(),
    );
    watches.add_part(&cached_kinds::RUNTIME_CLASSES);
    watches.add_part(&cached_kinds::CSI_NODES);
    watches.add_part(&cached_kinds::NAMESPACES);
    watches.add_part(&cached_kinds::POD_POLICIES);
    watches.add_part(&cached_kinds::NODE_POLICIES);
    watches.add_part(&cached_kinds::REVISIONS);
    watches.add_part(&cached_kinds::NODE_POOLS);

    let Watches {
        shared, mut tasks, ..
    } = watches;
    tasks.spawn(VERSION, Arc::clone(&shared).follow_version(client.clone()));
    tasks.spawn(
        "node selectors",
        Arc::clone(&shared).follow_node_selectors(client),
    );
    tasks.spawn("cache", shared.publish(caches));
    tasks.ended().await
}

/// The watches, each in its own task.
struct Watches<'w> {
    client: &'w Client,
    namespace: &'w str,
    staleness: &'w WatchStaleness,
    shared: Arc<WatchState>,
    tasks: Tasks,
}

impl Watches<'_> {
    /// Watches one kind of object, trimmed, into its part of the cache.
    fn add_part<K, T>(&mut self, kind: &CachedKind<K, T>)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        self.add(kind, kind.trim, CacheBuilder::part(kind.part));
    }

    /// The same; `trim` decides what of an object `take` gets.
    fn add<K, U, T>(
        &mut self,
        kind: &CachedKind<K, U>,
        trim: fn(K) -> Option<T>,
        take: impl Fn(&mut CacheBuilder, WatchEvent<T>) -> bool + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let (name, config) = (kind.resource, kind.watched());
        let api = (kind.api)(self.staleness.client(self.client, name), self.namespace);
        self.tasks.spawn(name, async move {
            let mut complaints = Complaints::default();
            let seen = move |event| match event {
                Ok(event) => {
                    let is_list = matches!(event, WatchEvent::All(_));
                    shared.change(|building| take(building, event));
                    if is_list {
                        shared.listed(name);
                    }
                }
                Err(error) => shared.broken(name, error, &mut complaints),
            };
            watch_kind(api, config.page_size(PAGE), trim, seen).await;
        });
    }
}

/// Watches one kind of object, trimmed, forever.
async fn watch_kind<K, T>(
    api: Api<K>,
    config: Config,
    trim: impl Fn(K) -> Option<T>,
    mut seen: impl FnMut(Result<WatchEvent<T>, ApiError>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(watch_events(api, config.timeout(WATCH_SECONDS)));
    // The pages of a list so far; the previous list is valid until this one is complete.
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                let name = name_of(&object);
                listed.extend(trim(object).map(|trimmed| (name, Arc::new(trimmed))));
            }
            Ok(Event::InitDone) => seen(Ok(WatchEvent::All(std::mem::take(&mut listed)))),
            Ok(Event::Apply(object)) => {
                let name = name_of(&object);
                seen(Ok(WatchEvent::One(name, trim(object))));
            }
            Ok(Event::Delete(object)) => seen(Ok(WatchEvent::One(name_of(&object), None))),
            Err(error) => seen(Err(error)),
        }
    }
}

/// Logs each reason why a watch fails once.
fn log_broken(resource: &str, text: &str, complaints: &mut Complaints) {
    if complaints.is_news(resource, text) {
        tracing::warn!(resource, "the watch has broken and will be tried again: {text}");
    } else {
        tracing::debug!(resource, "the watch has broken again: {text}");
    }
}

/// State shared by the watches and the publisher.
struct WatchState {
    building: Mutex<CacheBuilder>,
    changed: Notify,
    readiness: Readiness,
}

impl WatchState {
    fn new(readiness: Readiness) -> Self {
        for name in PARTS {
            readiness.hold(name, "not read from the API server yet");
        }
        let building = CacheBuilder::new(&PARTS);
        WatchState {
            building: Mutex::new(building),
            changed: Notify::new(),
            readiness,
        }
    }

    fn building(&self) -> MutexGuard<'_, CacheBuilder> {
        self.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part has been read; the first time, the cache may be complete.
    fn listed(&self, name: &'static str) {
        let mut building = self.building();
        let missing = building.missing.len();
        building.missing.retain(|other| *other != name);
        if building.missing.len() < missing {
            building.is_due = true;
            self.readiness.release(name);
            self.changed.notify_one();
        }
    }

    /// Logs each reason why a watch fails once; its last state stays in the cache while it retries.
    fn broken(&self, name: &'static str, error: ApiError, complaints: &mut Complaints) {
        let text = explain(name, error);
        log_broken(name, &text, complaints);
        if self.building().missing.contains(&name) {
            self.readiness.hold(name, text);
        }
    }

    /// Changes the cache; a change without effect wakes no reader.
    fn change(&self, change: impl FnOnce(&mut CacheBuilder) -> bool) {
        let mut building = self.building();
        if change(&mut building) {
            building.is_due = true;
            self.changed.notify_one();
        }
    }

    async fn follow_version(self: Arc<Self>, client: Client) {
        /// A short delay after a failure, because nothing is served before the first answer.
        const RETRY: Duration = Duration::from_secs(2);
        let mut complaints = Complaints::default();
        loop {
            let wait = match self.read_version(&client).await {
                Ok(()) => {
                    complaints.ended(VERSION);
                    ASK_VERSION
                }
                Err(why) => {
                    if complaints.is_news(VERSION, &why) {
                        tracing::warn!("{why}");
                    }
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the version of the API server and its API groups; without an answer the last known groups stay.
    async fn read_version(&self, client: &Client) -> Result<(), String> {
        let version = client.apiserver_version().await;
        let version =
            version.map_err(|error| format!("cannot ask the API server for its version: {error}"))?;
        let minor = major_minor(&version.git_version).map(|(_, minor)| minor);
        if minor.is_none() {
            tracing::warn!(
                "the API server reports the version {:?}, which is not a version: 1.{} is assumed",
                version.git_version,
                Facts::KUBERNETES
            );
        }
        let groups = ApiGroups::read(client).await;
        self.change(|building| {
            let cache = &mut building.cache;
            let of = |cache: &ClusterCache| {
                (
                    cache.kubernetes,
                    cache.has_scc,
                    cache.has_gmsa,
                    cache.injector_groups.clone(),
                )
            };
            let before = of(cache);
            cache.kubernetes = minor.unwrap_or(Facts::KUBERNETES);
            if let Ok(groups) = &groups {
                (cache.has_scc, cache.has_gmsa) = (groups.has_scc, groups.has_gmsa);
                cache.injector_groups.clone_from(&groups.injectors);
            }
            before != of(cache)
        });
        self.listed(VERSION);
        let unread = |error| format!("{NO_GROUPS}: {error}; Transom keeps the known groups and retries");
        groups.map(drop).map_err(unread)
    }

    /// Looks in the namespaces with a default node selector whether their pods show that the API server adds it, and asks
    /// OpenShift for the default of the cluster. Without the right to do so, nothing is shown.
    async fn follow_node_selectors(self: Arc<Self>, client: Client) {
        loop {
            let (stated, has_scc) = {
                let building = self.building();
                let is_read = !building.missing.contains(&NAMESPACES) && !building.missing.contains(&VERSION);
                let stated = is_read.then(|| node_selectors::stated(&building.cache.namespaces));
                let before = Arc::clone(&building.cache.shown_selectors);
                (stated.map(|stated| (stated, before)), building.cache.has_scc)
            };
            let Some((stated, before)) = stated else {
                tokio::time::sleep(GATHER).await;
                continue;
            };
            let default = if has_scc {
                node_selectors::openshift_default(&client).await.ok()
            } else {
                Some(String::new())
            };
            let shown = Arc::new(node_selectors::shown(&client, &stated, &before).await);
            self.change(|building| {
                let cache = &mut building.cache;
                let default = default.unwrap_or_else(|| cache.default_node_selector.clone());
                let is_same = (&cache.shown_selectors, &cache.default_node_selector) == (&shown, &default);
                (cache.shown_selectors, cache.default_node_selector) = (shown, default);
                !is_same
            });
            tokio::time::sleep(ASK_SELECTORS).await;
        }
    }

    async fn publish(self: Arc<Self>, caches: watch::Sender<Option<Arc<ClusterCache>>>) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            let due = {
                let mut building = self.building();
                let is_due = building.missing.is_empty() && std::mem::take(&mut building.is_due);
                is_due.then(|| building.cache.clone())
            };
            if let Some(cache) = due {
                caches.send_replace(Some(Arc::new(cache)));
            }
        }
    }
}

/// The start of the message if the API groups cannot be read.
pub(super) const NO_GROUPS: &str = "cannot ask the API server for its API groups";

/// What the API groups of a cluster show. The default applies if the API server never answered.
#[derive(Clone, Default)]
pub(super) struct ApiGroups {
    /// Whether the cluster has OpenShift's SecurityContextConstraints. `false` if the API server does not answer:
    /// most features do not need them.
    pub has_scc: bool,
    /// Whether the cluster has GMSACredentialSpecs; `None` if the API server does not answer.
    pub has_gmsa: Option<bool>,
    /// The API groups of injectors. None if the API server does not answer.
    pub injectors: BTreeSet<String>,
}

impl ApiGroups {
    /// Asks the API server.
    async fn read(client: &Client) -> Result<Self, ApiError> {
        Ok(ApiGroups::of(&answered(client.list_api_groups()).await?))
    }

    /// What a list of them shows.
    pub(super) fn of(list: &APIGroupList) -> Self {
        let names = || list.groups.iter().map(|group| &group.name);
        let has = |wanted: &str| names().any(|name| name == wanted);
        let known = Knowledge::built_in();
        ApiGroups {
            has_scc: has(SCC_GROUP),
            has_gmsa: Some(has(GMSA_GROUP)),
            injectors: names()
                .filter(|name| known.is_of_injector(name))
                .cloned()
                .collect(),
        }
    }
}

fn name_of<K: Resource>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}

/// Why a watch broke, and the fix for the two most common mistakes.
fn explain(name: &str, error: ApiError) -> String {
    match error {
        ApiError::NotFound => format!(
            "the API server does not have {name}, so their objects are gone too; install Transom's \
             CustomResourceDefinitions, then apply the policies again: \
             transom generate crds | kubectl apply --server-side --field-manager=helm --force-conflicts -f -"
        ),
        ApiError::Forbidden(why) => {
            format!("{why}; grant Transom's ServiceAccount list and watch on {name}")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
