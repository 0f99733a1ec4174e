//! Reads a cluster once, by lists, into the same snapshot that watches make: for commands that evaluate it and end.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;

use super::cache::ClusterCache;
use super::cached_kinds::{self, CachedKind};
use super::client::Connected;
use super::errors::{ApiError, answered_within};
use super::list::{Listing, UnreadPart, for_each_as};
use super::node_selectors;
use super::snapshot::{Snapshot, SnapshotBuilder, StatedCluster};
use super::stated_cluster;
use super::transform;
use super::watches::{ApiGroups, NO_GROUPS};
use super::webhook_configurations::{configuration, resources};
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::{OtherNode, OtherNodes, major_minor};
use crate::model::objects::resources::Node;
use crate::model::objects::workload::Kind;
use crate::process::today;
use crate::registration::configuration_name;
use crate::registration::configurations::{Configuration, Configurations};

/// How long one page may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The API server cannot be reached at all.
#[derive(thiserror::Error, Debug)]
#[error("cannot ask the API server of {cluster} for its version: {why}")]
pub struct NoAnswer {
    cluster: String,
    why: ApiError,
}

/// What a command reads.
#[derive(Clone, Copy, Debug)]
pub struct OfflineOptions<'o> {
    /// Transom's own namespace.
    pub namespace: &'o str,
    /// The name of the installation, which its webhook configurations carry.
    pub installation: &'o str,
    /// The namespaces that the webhooks exclude by name.
    pub excluded: &'o [String],
    /// The namespaces of interest, read one by one where they cannot be listed; empty: all.
    pub namespaces: &'o [String],
    /// What a file states about the cluster; `None`: what the ConfigMap of the installation states.
    pub stated: Option<&'o StatedCluster>,
}

/// A cluster without the objects that carry pods, as it was read once.
#[derive(Debug)]
pub struct OfflineCluster {
    /// Facts, policies and the cache. Without `registered` if no webhook is registered, or that could not be read.
    pub snapshot: Snapshot,
    /// The release of the API server, as in `v1.36.2`.
    pub version: String,
    pub groups: Result<APIGroupList, ApiError>,
    /// Whether webhooks of the installation are registered; `true` if that could not be read.
    pub has_webhooks: bool,
    /// What could not be read.
    pub unread: Vec<UnreadPart>,
}

impl OfflineCluster {
    /// Whether a resource could be read.
    pub fn could_read(&self, resource: &str) -> bool {
        self.unread.iter().all(|unread| unread.resource != resource)
    }

    /// What could not be read although the API server has it: Transom's own resources are unknown before it is
    /// installed.
    pub fn gaps(&self) -> impl Iterator<Item = &UnreadPart> {
        self.unread.iter().filter(|unread| !unread.is_unknown)
    }
}

/// The release of the API server, as in `v1.36.2`.
///
/// # Errors
/// It cannot be reached at all.
pub async fn version(connected: &Connected) -> Result<String, NoAnswer> {
    let version = answered_within(PATIENCE, connected.client.apiserver_version()).await;
    let version = version.map_err(|why| NoAnswer {
        cluster: connected.to_string(),
        why,
    })?;
    Ok(version.git_version)
}

/// Reads everything but the objects that carry pods. Each node and each RuntimeClass is read once, and handed to `visit`
/// as JSON too. A part that cannot be read is reported, and left empty.
///
/// # Errors
/// The API server cannot be reached at all.
pub async fn open(
    connected: &Connected,
    options: OfflineOptions<'_>,
    visit: &mut (dyn FnMut(Kind, &str) + Send),
) -> Result<OfflineCluster, NoAnswer> {
    let client = &connected.client;
    let version = version(connected).await?;
    let minor = major_minor(&version).map(|(_, minor)| minor);
    let groups = answered_within(PATIENCE, client.list_api_groups()).await;
    if let Err(error) = &groups {
        tracing::warn!("{NO_GROUPS}: {error}");
    }
    let api_groups = groups.as_ref().map(ApiGroups::of).unwrap_or_default();
    let mut reading = ClusterReader {
        client,
        namespace: options.namespace,
        unread: Vec::new(),
        cache: ClusterCache {
            kubernetes: minor.unwrap_or(Facts::KUBERNETES),
            has_scc: api_groups.has_scc,
            has_gmsa: api_groups.has_gmsa,
            injector_groups: api_groups.injectors,
            ..ClusterCache::default()
        },
    };
    reading.all(options.namespaces, visit).await;
    let registered = reading.registered(options.installation).await;
    let has_entries =
        |it: &Configurations| !(it.mutating.entries.is_empty() && it.validating.entries.is_empty());
    let has_webhooks = registered.as_ref().is_none_or(has_entries);
    let stated = match (options.stated, &registered) {
        (Some(stated), _) => stated.clone(),
        (None, Some(registered)) => reading.stated(registered).await,
        (None, None) => StatedCluster::default(),
    };
    let ClusterReader { unread, cache, .. } = reading;
    let base = Facts::new(cache.kubernetes, today());
    let mut snapshots = SnapshotBuilder::new(base, options.excluded.iter().cloned());
    snapshots.set_stated(stated);
    let snapshot = snapshots.take(
        &Arc::new(cache),
        registered.filter(has_entries).map(Arc::new),
        Timestamp::now(),
    );
    Ok(OfflineCluster {
        snapshot,
        version,
        groups,
        has_webhooks,
        unread,
    })
}

/// The objects of a cluster in files. They become the same snapshot that [`open`] makes of lists.
#[derive(Debug)]
pub struct ObjectsInFiles {
    /// Transom's own namespace.
    namespace: String,
    cache: ClusterCache,
}

impl ObjectsInFiles {
    /// No objects yet. `namespace`: Transom's own one, from which its stored objects are taken.
    pub fn new(namespace: &str) -> Self {
        ObjectsInFiles {
            namespace: namespace.to_owned(),
            cache: ClusterCache::default(),
        }
    }

    /// Takes an object, if its kind is one of those that a snapshot is made of. Of several with one name, the first counts.
    ///
    /// # Errors
    /// If the object does not match its kind.
    pub fn visit(&mut self, kind: &str, json: &str) -> Result<(), String> {
        match kind {
            "Node" => {
                add_other_node(Arc::make_mut(&mut self.cache.other_nodes), json);
                self.put(&cached_kinds::NODES, json)
            }
            "RuntimeClass" => self.put(&cached_kinds::RUNTIME_CLASSES, json),
            "CSINode" => self.put(&cached_kinds::CSI_NODES, json),
            "Namespace" => self.put(&cached_kinds::NAMESPACES, json),
            "WindowsPodPolicy" => self.put(&cached_kinds::POD_POLICIES, json),
            "WindowsNodePolicy" => self.put(&cached_kinds::NODE_POLICIES, json),
            "ControllerRevision" => self.put(&cached_kinds::REVISIONS, json),
            "WindowsNodePool" => self.put(&cached_kinds::NODE_POOLS, json),
            _ => Ok(()),
        }
    }

    fn put<K, T>(&mut self, kind: &CachedKind<K, T>, json: &str) -> Result<(), String>
    where
        K: ResourceExt + DeserializeOwned,
    {
        let object: K = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let name = object.name_any();
        if kind.selects(&object, &self.namespace)
            && let Some(trimmed) = (kind.trim)(object)
        {
            let part = (kind.part)(&mut self.cache);
            part.entry(name).or_insert_with(|| Arc::new(trimmed));
        }
        Ok(())
    }

    /// The snapshot of these objects. `base`: the facts that files do not contain.
    pub fn snapshot(mut self, base: Facts) -> Snapshot {
        let cache = &mut self.cache;
        (cache.kubernetes, cache.has_scc, cache.has_gmsa) = (base.kubernetes, base.has_scc, base.has_gmsa);
        (cache.default_node_selector).clone_from(&base.default_node_selector);
        (cache.injector_groups).clone_from(&base.injector_groups);
        SnapshotBuilder::new(base, []).take(&Arc::new(self.cache), None, Timestamp::now())
    }
}

/// Adds a node, unless it is a Windows node.
fn add_other_node(nodes: &mut OtherNodes, json: &str) {
    let node = serde_json::from_str::<Node<'_>>(json).ok();
    if let Some(node) = node.and_then(|node| OtherNode::of(&node)) {
        nodes.insert(node);
    }
}

struct ClusterReader<'r> {
    client: &'r Client,
    /// Transom's own namespace.
    namespace: &'r str,
    unread: Vec<UnreadPart>,
    cache: ClusterCache,
}

impl ClusterReader<'_> {
    /// Reads every kind. `namespaces`: those of interest.
    async fn all(&mut self, namespaces: &[String], visit: &mut (dyn FnMut(Kind, &str) + Send)) {
        let mut other_nodes = OtherNodes::default();
        let node = |json: &str| {
            visit(Kind::Node, json);
            add_other_node(&mut other_nodes, json);
        };
        self.list(&cached_kinds::NODES, node).await;
        self.cache.other_nodes = Arc::new(other_nodes);
        self.cache.nodes_are_unread = !self.unread.is_empty();
        self.namespaces(namespaces).await;
        self.node_selectors().await;
        let class = |json: &str| visit(Kind::RuntimeClass, json);
        self.list(&cached_kinds::RUNTIME_CLASSES, class).await;
        self.list(&cached_kinds::CSI_NODES, |_| ()).await;
        self.list(&cached_kinds::POD_POLICIES, |_| ()).await;
        self.list(&cached_kinds::NODE_POLICIES, |_| ()).await;
        self.list(&cached_kinds::REVISIONS, |_| ()).await;
        self.list(&cached_kinds::NODE_POOLS, |_| ()).await;
    }

    /// Reads the objects of one kind. `visit` gets the JSON of each.
    async fn list<K, T>(&mut self, kind: &CachedKind<K, T>, visit: impl FnMut(&str) + Send)
    where
        K: ResourceExt + Clone + DeserializeOwned + Debug,
        T: Send + Sync,
    {
        let api = (kind.api)(self.client.clone(), self.namespace);
        let unread = self.list_as(kind, Listing::new(api.resource_url()), visit).await;
        self.unread.extend(unread);
    }

    /// The same for a listing. Returns what could not be read: an object that does not parse as its kind is omitted.
    async fn list_as<K, T>(
        &mut self,
        kind: &CachedKind<K, T>,
        listing: Listing,
        mut visit: impl FnMut(&str) + Send,
    ) -> Vec<UnreadPart>
    where
        K: ResourceExt + DeserializeOwned,
        T: Send + Sync,
    {
        let (mut all, mut unread, mut unreadable) = (BTreeMap::new(), Vec::new(), Vec::new());
        let take = |object: K, json: &str| {
            let name = object.name_any();
            visit(json);
            all.extend((kind.trim)(object).map(|trimmed| (name, Arc::new(trimmed))));
        };
        let note = |name: &str, error: &serde_json::Error| {
            unreadable.push(format!("{name} does not parse: {error}"));
        };
        if let Err(error) = for_each_as(self.client, listing, take, note).await {
            unread.push(UnreadPart {
                read: error.read,
                ..UnreadPart::new(kind.resource, &error.why)
            });
        }
        if let Some(first) = unreadable.first() {
            let others = match unreadable.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let why = ApiError::Other(format!("{first}{others}"));
            unread.push(UnreadPart::new(kind.resource, &why));
        }
        *(kind.part)(&mut self.cache) = all;
        unread
    }

    /// Every namespace. If they cannot be listed, these are read one by one, because the right to get one is given more
    /// often.
    async fn namespaces(&mut self, names: &[String]) {
        let kind = &cached_kinds::NAMESPACES;
        let api: Api<Namespace> = Api::all(self.client.clone());
        let listing = Listing::new(api.resource_url()).metadata_only();
        let unread = self.list_as(kind, listing, |_| ()).await;
        let is_complete = unread.is_empty() || (!names.is_empty() && self.each_namespace(&api, names).await);
        if !is_complete {
            self.unread.extend(unread);
        }
    }

    /// Reads namespaces one by one. Returns whether all could be read.
    async fn each_namespace(&mut self, api: &Api<Namespace>, names: &[String]) -> bool {
        for name in names {
            let Ok(Some(found)) = answered_within(PATIENCE, api.get_metadata_opt(name)).await else {
                return false;
            };
            let trimmed = transform::namespace(found).map(|trimmed| (name.clone(), Arc::new(trimmed)));
            self.cache.namespaces.extend(trimmed);
        }
        true
    }

    /// The node selectors that the API server adds to pods.
    async fn node_selectors(&mut self) {
        let stated = node_selectors::stated(&self.cache.namespaces);
        let shown = node_selectors::shown(self.client, &stated, &BTreeMap::new()).await;
        self.cache.shown_selectors = Arc::new(shown);
        if self.cache.has_scc {
            let default = node_selectors::openshift_default(self.client).await;
            self.cache.default_node_selector = default.unwrap_or_default();
        }
    }

    /// The content of both webhook configurations.
    async fn registered(&mut self, installation: &str) -> Option<Configurations> {
        let [mutating, validating] = resources();
        Some(Configurations {
            mutating: self.configuration(&mutating, installation).await?,
            validating: self.configuration(&validating, installation).await?,
        })
    }

    /// What the ConfigMap of the installation states about the cluster.
    async fn stated(&mut self, registered: &Configurations) -> StatedCluster {
        match stated_cluster::of_installation(self.client, &registered.validating, PATIENCE).await {
            Ok(stated) => stated.unwrap_or_default(),
            Err(part) => {
                self.unread.push(UnreadPart {
                    is_unknown: false,
                    ..part
                });
                StatedCluster::default()
            }
        }
    }

    async fn configuration(&mut self, resource: &ApiResource, installation: &str) -> Option<Configuration> {
        let name = configuration_name(installation);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        match answered_within(PATIENCE, api.get_opt(&name)).await {
            Ok(object) => Some(configuration(
                format!("{} {name}", resource.kind),
                object.as_ref(),
            )),
            Err(why) => {
                self.note_known(&resource.plural, &why);
                None
            }
        }
    }

    /// Notes that a resource could not be read which every API server has.
    fn note_known(&mut self, resource: impl Into<String>, why: &ApiError) {
        self.unread.push(UnreadPart {
            is_unknown: false,
            ..UnreadPart::new(resource, why)
        });
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn revisions_are_read_from_transoms_namespace_only_and_pools_from_the_cluster() {
        let pool = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool",
            "metadata": {"name": "p", "labels": {"transom.dev/owned": "true"}},
            "spec": {"nodeSelector": {"matchLabels": {"agentpool": "win"}}, "template": {"build": "10.0.20348"}}});
        let revision = |namespace: &str, generation: i64| {
            json!({"metadata": {"name": "policy-u-1", "namespace": namespace,
                    "labels": {"transom.dev/policy-uid": "u"},
                    "ownerReferences": [{"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "name": "p", "uid": "u"}]},
                "revision": generation, "data": {}})
        };
        let of = |namespace: &str| {
            let mut objects = ObjectsInFiles::new(namespace);
            let mut visit = |kind: &str, object: &Value| objects.visit(kind, &object.to_string()).unwrap();
            visit("WindowsNodePool", &pool);
            visit("ControllerRevision", &revision("shop", 7));
            visit("ControllerRevision", &revision("transom-system", 1));
            let revisions: Vec<i64> = objects
                .cache
                .policy_revisions
                .values()
                .map(|it| it.generation)
                .collect();
            let snapshot = objects.snapshot(Facts::new(36, date(2026, 6, 1)));
            (snapshot.facts.hosts().len(), revisions)
        };
        assert_eq!(of("transom-system"), (1, vec![1]));
        assert_eq!(of("elsewhere"), (1, Vec::new()));
    }
}
