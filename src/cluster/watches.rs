//! The watches: each stores what it sees in the cache, trimmed. A watch that breaks is restarted, and its last state
//! stays in the cache meanwhile.

mod cache_builder;
pub mod object;
pub(super) mod transform;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, CustomResourceExt as _, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};

use self::cache_builder::{CacheBuilder, WatchEvent};
use super::cache::ClusterCache;
use super::errors::{ApiError, answered};
use super::node_selectors;
use super::pool_history::NODE_POOLS_CONFIG_MAP;
use super::rate_limit::WatchBackoff;
use super::revisions::{POLICY_UID_LABEL, StoredRevision};
use super::watch_staleness::WatchStaleness;
use crate::api::{WindowsNodePolicy, WindowsPodPolicy};
use crate::model::facts::{Facts, GMSA_GROUP, SCC_GROUP};
use crate::model::node::major_minor;
use crate::process::readiness::Readiness;
use crate::process::tasks::{TaskEnded, Tasks};

/// How long changes are collected before they are published as one cache.
const GATHER: Duration = Duration::from_millis(100);
/// How often the version of the API server is read: it changes during a cluster upgrade.
const ASK_VERSION: Duration = Duration::from_secs(10 * 60);
/// How often the pods of namespaces with a default node selector are looked at.
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
    NODES,
    CLASSES,
    CSI_NODES,
    NAMESPACES,
    POD_POLICIES,
    NODE_POLICIES,
    REVISIONS,
    SEEN,
    VERSION,
];
const NODES: &str = "nodes";
const CLASSES: &str = "runtimeclasses";
const CSI_NODES: &str = "csinodes";
const NAMESPACES: &str = "namespaces";
const POD_POLICIES: &str = "windowspodpolicies";
const NODE_POLICIES: &str = "windowsnodepolicies";
const REVISIONS: &str = "controllerrevisions";
const SEEN: &str = "configmaps";
const VERSION: &str = "version";

/// The current cache. `None` until every watch has listed once.
pub type CacheReceiver = watch::Receiver<Option<Arc<ClusterCache>>>;

/// Watches the cluster until a watch ends, which should never happen; returns its name. Readiness is held until the
/// first cache is complete. `namespace` is Transom's own, with the pool history and the policy revisions.
pub async fn run(
    client: Client,
    namespace: &str,
    readiness: Readiness,
    freshness: &WatchStaleness,
    views: watch::Sender<Option<Arc<ClusterCache>>>,
) -> TaskEnded {
    let mut watches = Watches {
        shared: Arc::new(WatchState::new(readiness)),
        tasks: Tasks::default(),
    };
    let all = Config::default;
    let of = |resource| freshness.client(&client, resource);
    // As JSON: a policy that this version cannot read must still be listed, and must not hide others.
    let pod_policies = Api::all_with(of(POD_POLICIES), &WindowsPodPolicy::api_resource());
    let node_policies = Api::all_with(of(NODE_POLICIES), &WindowsNodePolicy::api_resource());
    let seen = Api::namespaced(of(SEEN), namespace);
    let only_seen = all().fields(&format!("metadata.name={NODE_POOLS_CONFIG_MAP}"));

    watches.add(
        NODES,
        Api::all(of(NODES)),
        all(),
        transform::node,
        CacheBuilder::nodes(),
    );
    watches.add(
        CLASSES,
        Api::all(of(CLASSES)),
        all(),
        transform::runtime_class,
        CacheBuilder::part(|view| &mut view.runtime_classes),
    );
    watches.add(
        CSI_NODES,
        Api::all(of(CSI_NODES)),
        all(),
        transform::csi_node,
        CacheBuilder::part(|view| &mut view.csi_nodes),
    );
    watches.add(
        NAMESPACES,
        Api::all(of(NAMESPACES)),
        all(),
        transform::namespace,
        CacheBuilder::part(|view| &mut view.namespaces),
    );
    let in_pod_policies = CacheBuilder::part(|view| &mut view.pod_policies);
    watches.add(
        POD_POLICIES,
        pod_policies,
        all(),
        transform::pod_policy,
        in_pod_policies,
    );
    watches.add(
        NODE_POLICIES,
        node_policies,
        all(),
        transform::node_policy,
        CacheBuilder::part(|view| &mut view.node_policies),
    );
    watches.add(
        REVISIONS,
        Api::<ControllerRevision>::namespaced(of(REVISIONS), namespace),
        all().labels(POLICY_UID_LABEL),
        StoredRevision::of,
        CacheBuilder::part(|view| &mut view.revisions),
    );
    let in_seen = CacheBuilder::part(|view| &mut view.seen);
    watches.add(SEEN, seen, only_seen, transform::seen, in_seen);

    let Watches { shared, mut tasks } = watches;
    tasks.spawn(VERSION, Arc::clone(&shared).follow_version(client.clone()));
    tasks.spawn(
        "node selectors",
        Arc::clone(&shared).follow_node_selectors(client),
    );
    tasks.spawn("view", shared.publish(views));
    tasks.ended().await
}

/// The watches, each in its own task.
struct Watches {
    shared: Arc<WatchState>,
    tasks: Tasks,
}

impl Watches {
    /// Watches one kind of object, trimmed, into its part of the cache.
    fn add<K, T>(
        &mut self,
        name: &'static str,
        api: Api<K>,
        config: Config,
        trim: impl Fn(K) -> Option<T> + Send + 'static,
        take: impl Fn(&mut CacheBuilder, WatchEvent<T>) -> bool + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(name, async move {
            let mut complaint = String::new();
            let seen = move |event| match event {
                Ok(event) => {
                    let is_list = matches!(event, WatchEvent::All(_));
                    shared.change(|building| take(building, event));
                    if is_list {
                        shared.seen(name);
                    }
                }
                Err(error) => shared.broken(name, error, &mut complaint),
            };
            watch_kind(api, config.page_size(PAGE), trim, seen).await;
        });
    }
}

/// Watches one kind of object, trimmed, forever: every watch of objects that are kept is opened here. A watch that
/// breaks is opened again after a back-off.
async fn watch_kind<K, T>(
    api: Api<K>,
    config: Config,
    trim: impl Fn(K) -> Option<T>,
    mut seen: impl FnMut(Result<WatchEvent<T>, ApiError>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(watcher(api, config.timeout(WATCH_SECONDS)));
    let mut backoff = WatchBackoff::default();
    // The pages of a list so far; the previous list is valid until this one is complete.
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                let name = name_of(&object);
                listed.extend(trim(object).map(|trimmed| (name, Arc::new(trimmed))));
            }
            Ok(Event::InitDone) => {
                backoff.listed();
                seen(Ok(WatchEvent::All(std::mem::take(&mut listed))));
            }
            Ok(Event::Apply(object)) => {
                let name = name_of(&object);
                seen(Ok(WatchEvent::One(name, trim(object))));
            }
            Ok(Event::Delete(object)) => seen(Ok(WatchEvent::One(name_of(&object), None))),
            Err(error) => {
                let error = ApiError::from(error);
                let delay = backoff.after(&error);
                seen(Err(error));
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// Logs each reason why a watch fails once.
fn log_broken(resource: &str, text: String, complaint: &mut String) {
    if text == *complaint {
        tracing::debug!(resource, "the watch has broken again: {text}");
    } else {
        tracing::warn!(resource, "the watch has broken and will be tried again: {text}");
        *complaint = text;
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

    fn seen(&self, name: &'static str) {
        self.building().missing.retain(|other| *other != name);
        self.readiness.release(name);
        self.changed.notify_one();
    }

    /// Logs each reason why a watch fails once; its last state stays in the cache while it retries.
    fn broken(&self, name: &'static str, error: ApiError, complaint: &mut String) {
        let text = explain(name, error);
        if self.building().missing.contains(&name) {
            self.readiness.hold(name, text.clone());
        }
        log_broken(name, text, complaint);
    }

    /// Changes the cache; a change without effect wakes no reader.
    fn change(&self, change: impl FnOnce(&mut CacheBuilder) -> bool) {
        if change(&mut self.building()) {
            self.changed.notify_one();
        }
    }

    async fn follow_version(self: Arc<Self>, client: Client) {
        /// A short delay after a failure, because nothing is served before the first answer.
        const RETRY: Duration = Duration::from_secs(2);
        let mut complaint = String::new();
        loop {
            let wait = match client.apiserver_version().await {
                Ok(version) => {
                    let minor = major_minor(&version.git_version).map(|(_, minor)| minor);
                    if minor.is_none() {
                        tracing::warn!(
                            "the API server reports the version {:?}, which is not a version: 1.{} is assumed",
                            version.git_version,
                            Facts::KUBERNETES
                        );
                    }
                    let minor = minor.unwrap_or(Facts::KUBERNETES);
                    let groups = ApiGroups::read(&client).await;
                    self.change(|building| {
                        let view = &mut building.view;
                        let before = (view.kubernetes, view.has_scc, view.has_gmsa);
                        // Without an answer the last known groups stay.
                        let last = ApiGroups {
                            has_scc: view.has_scc,
                            has_gmsa: view.has_gmsa,
                        };
                        let groups = groups.as_ref().copied().unwrap_or(last);
                        let now = (minor, groups.has_scc, groups.has_gmsa);
                        (view.kubernetes, view.has_scc, view.has_gmsa) = now;
                        before != now
                    });
                    self.seen(VERSION);
                    match groups {
                        Ok(_) => {
                            complaint.clear();
                            ASK_VERSION
                        }
                        Err(error) => {
                            let text = format!("{NO_GROUPS}: {error}");
                            if text != complaint {
                                tracing::warn!("{text}; Transom keeps the known groups and retries");
                                complaint = text;
                            }
                            RETRY
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot ask the API server for its version: {error}");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Looks in the namespaces with a default node selector whether their pods show that the API server adds it, and asks
    /// OpenShift for the default of the cluster. Without the right to do so, nothing is shown.
    async fn follow_node_selectors(self: Arc<Self>, client: Client) {
        loop {
            let (stated, has_scc) = {
                let building = self.building();
                let is_read = !building.missing.contains(&NAMESPACES) && !building.missing.contains(&VERSION);
                let stated = is_read.then(|| node_selectors::stated(&building.view.namespaces));
                let before = Arc::clone(&building.view.shown_selectors);
                (stated.map(|stated| (stated, before)), building.view.has_scc)
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
                let view = &mut building.view;
                let default = default.unwrap_or_else(|| view.default_node_selector.clone());
                let is_same = (&view.shown_selectors, &view.default_node_selector) == (&shown, &default);
                (view.shown_selectors, view.default_node_selector) = (shown, default);
                !is_same
            });
            tokio::time::sleep(ASK_SELECTORS).await;
        }
    }

    async fn publish(self: Arc<Self>, views: watch::Sender<Option<Arc<ClusterCache>>>) {
        loop {
            self.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            let whole = {
                let building = self.building();
                building.missing.is_empty().then(|| building.view.clone())
            };
            let Some(view) = whole else { continue };
            views.send_if_modified(|current| {
                let differs = current.as_deref().is_none_or(|current| !current.is_same(&view));
                if differs {
                    *current = Some(Arc::new(view));
                }
                differs
            });
        }
    }
}

/// The start of the message if the API groups cannot be read.
pub(super) const NO_GROUPS: &str = "cannot ask the API server for its API groups";

/// What the API groups of a cluster show. The default applies if the API server never answered.
#[derive(Clone, Copy, Default)]
pub(super) struct ApiGroups {
    /// Whether the cluster has OpenShift's SecurityContextConstraints. `false` if the API server does not answer:
    /// most features do not need them.
    pub has_scc: bool,
    /// Whether the cluster has GMSACredentialSpecs; `None` if the API server does not answer.
    pub has_gmsa: Option<bool>,
}

impl ApiGroups {
    /// Asks the API server.
    async fn read(client: &Client) -> Result<Self, ApiError> {
        Ok(ApiGroups::of(&answered(client.list_api_groups()).await?))
    }

    /// What a list of them shows.
    pub(super) fn of(list: &APIGroupList) -> Self {
        let has = |name: &str| list.groups.iter().any(|group| group.name == name);
        ApiGroups {
            has_scc: has(SCC_GROUP),
            has_gmsa: Some(has(GMSA_GROUP)),
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
