//! Reads a cluster once, by lists, into the same snapshot that watches make: for commands that evaluate it and end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, ObjectMeta};
use kube::{Api, Client, CustomResourceExt as _, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cache::{CachedNamespace, ClusterCache, PoolHistoryObject};
use super::errors::{ApiError, answered_within};
use super::list::{Listing, UnreadPart, for_each_as};
use super::node::WatchedNode;
use super::node_selectors;
use super::pool_history::NODE_POOLS_CONFIG_MAP;
use super::revisions::StoredRevision;
use super::snapshot::{Snapshot, SnapshotBuilder};
use super::watches::{ApiGroups, NO_GROUPS, transform};
use crate::api::{WindowsNodePolicy, WindowsPodPolicy};
use crate::model::facts::Facts;
use crate::model::node::major_minor;
use crate::model::workload::Kind;
use crate::process::today;
use crate::registration::configuration_name;
use crate::registration::configurations::{Configuration, Configurations};

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(30);

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
}

/// A cluster without the objects that carry pods, as it was read once.
#[derive(Debug)]
pub struct OfflineCluster {
    /// Facts, policies and the cache. Without `registered` if no webhook is registered, or that could not be read.
    pub snapshot: Snapshot,
    /// The release of the API server, as in `v1.36.2`.
    pub version: String,
    /// The API groups.
    pub groups: Result<APIGroupList, ApiError>,
    /// Whether webhooks of the installation are registered; `true` if that could not be read.
    pub has_webhooks: bool,
    /// The names of the nodes that are not in the cache: those that are for another operating system.
    pub other_nodes: BTreeSet<String>,
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

/// Reads everything but the objects that carry pods. Each node and each RuntimeClass is read once, and handed to `visit`
/// as JSON too. A part that cannot be read is reported, and left empty.
///
/// # Errors
/// The API server cannot be reached at all: in words for people.
pub async fn open(
    client: &Client,
    options: OfflineOptions<'_>,
    visit: &mut (dyn FnMut(Kind, &str) + Send),
) -> Result<OfflineCluster, String> {
    let version = answered_within(PATIENCE, client.apiserver_version()).await;
    let version = version.map_err(|why| format!("cannot ask the API server for its version: {why}"))?;
    let minor = major_minor(&version.git_version).map(|(_, minor)| minor);
    let mut reading = ClusterReader {
        client,
        unread: Vec::new(),
    };
    let mut other_nodes = BTreeSet::new();
    let nodes = |node: WatchedNode, json: &str| {
        visit(Kind::Node, json);
        let name = node.name_any();
        let view = transform::node(node);
        if view.is_none() {
            other_nodes.insert(name);
        }
        view
    };
    let groups = answered_within(PATIENCE, client.list_api_groups()).await;
    if let Err(error) = &groups {
        tracing::warn!("{NO_GROUPS}: {error}");
    }
    let api_groups = groups.as_ref().map(ApiGroups::of).unwrap_or_default();
    let nodes = reading.all("nodes", &Api::all(client.clone()), nodes).await;
    let classes = |class: RuntimeClass, json: &str| {
        visit(Kind::RuntimeClass, json);
        transform::runtime_class(class)
    };
    let namespaces = reading.namespaces(options.namespaces).await;
    let shown_selectors =
        node_selectors::shown(client, &node_selectors::stated(&namespaces), &BTreeMap::new()).await;
    let default_node_selector = if api_groups.has_scc {
        node_selectors::openshift_default(client).await
    } else {
        Ok(String::new())
    };
    let view = ClusterCache {
        default_node_selector: default_node_selector.unwrap_or_default(),
        shown_selectors: Arc::new(shown_selectors),
        kubernetes: minor.unwrap_or(Facts::KUBERNETES),
        has_scc: api_groups.has_scc,
        has_gmsa: api_groups.has_gmsa,
        nodes,
        nodes_are_unread: reading.unread.iter().any(|unread| unread.resource == "nodes"),
        runtime_classes: reading
            .all("runtimeclasses", &Api::all(client.clone()), classes)
            .await,
        csi_nodes: reading
            .all("csinodes", &Api::<CSINode>::all(client.clone()), |node, _| {
                transform::csi_node(node)
            })
            .await,
        namespaces,
        pod_policies: reading
            .all(
                "windowspodpolicies",
                &Api::all_with(client.clone(), &WindowsPodPolicy::api_resource()),
                |policy, _| transform::pod_policy(policy),
            )
            .await,
        node_policies: reading
            .all(
                "windowsnodepolicies",
                &Api::all_with(client.clone(), &WindowsNodePolicy::api_resource()),
                |policy, _| transform::node_policy(policy),
            )
            .await,
        revisions: reading
            .all(
                "controllerrevisions",
                &Api::<ControllerRevision>::namespaced(client.clone(), options.namespace),
                |revision, _| StoredRevision::of(revision),
            )
            .await,
        seen: reading.seen(options.namespace).await,
    };
    let registered = reading.registered(options.installation).await;
    let is_registered =
        |it: &Configurations| !(it.mutating.entries.is_empty() && it.validating.entries.is_empty());
    let has_webhooks = registered.as_ref().is_none_or(is_registered);
    let base = Facts::new(view.kubernetes, today());
    let snapshot = SnapshotBuilder::new(base, options.excluded.iter().cloned()).take(
        &Arc::new(view),
        registered.filter(is_registered).map(Arc::new),
        Timestamp::now(),
    );
    Ok(OfflineCluster {
        snapshot,
        version: version.git_version,
        groups,
        has_webhooks,
        other_nodes,
        unread: reading.unread,
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
        let cache = &mut self.cache;
        let is_own = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(&self.namespace);
        match kind {
            "Node" => put(&mut cache.nodes, json, transform::node),
            "RuntimeClass" => put(&mut cache.runtime_classes, json, transform::runtime_class),
            "CSINode" => put(&mut cache.csi_nodes, json, transform::csi_node),
            "Namespace" => put(&mut cache.namespaces, json, transform::namespace),
            "WindowsPodPolicy" => put(&mut cache.pod_policies, json, transform::pod_policy),
            "WindowsNodePolicy" => put(&mut cache.node_policies, json, transform::node_policy),
            "ControllerRevision" => put(&mut cache.revisions, json, |revision: ControllerRevision| {
                let revision = Some(revision).filter(|revision| is_own(&revision.metadata));
                revision.and_then(StoredRevision::of)
            }),
            "ConfigMap" => put(&mut cache.seen, json, |map: ConfigMap| {
                Some(map)
                    .filter(|map| is_own(&map.metadata) && map.name_any() == NODE_POOLS_CONFIG_MAP)
                    .and_then(transform::seen)
            }),
            _ => Ok(()),
        }
    }

    /// The snapshot of these objects. `base`: the facts that files do not contain.
    pub fn snapshot(mut self, base: Facts) -> Snapshot {
        let cache = &mut self.cache;
        (cache.kubernetes, cache.has_scc, cache.has_gmsa) = (base.kubernetes, base.has_scc, base.has_gmsa);
        (cache.default_node_selector).clone_from(&base.default_node_selector);
        SnapshotBuilder::new(base, []).take(&Arc::new(self.cache), None, Timestamp::now())
    }
}

fn put<K, T>(
    part: &mut BTreeMap<String, Arc<T>>,
    json: &str,
    trim: impl Fn(K) -> Option<T>,
) -> Result<(), String>
where
    K: ResourceExt + DeserializeOwned,
{
    let object: K = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let name = object.name_any();
    if let Some(trimmed) = trim(object) {
        part.entry(name).or_insert_with(|| Arc::new(trimmed));
    }
    Ok(())
}

struct ClusterReader<'r> {
    client: &'r Client,
    unread: Vec<UnreadPart>,
}

impl ClusterReader<'_> {
    /// Everything of one kind, trimmed, by name.
    async fn all<K, T>(
        &mut self,
        resource: &str,
        api: &Api<K>,
        trim: impl FnMut(K, &str) -> Option<T> + Send,
    ) -> BTreeMap<String, Arc<T>>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
        T: Send + Sync,
    {
        self.list(resource, Listing::new(api.resource_url()), trim).await
    }

    /// The same for a listing. An object that does not parse as its kind is reported and omitted.
    async fn list<K, T>(
        &mut self,
        resource: &str,
        listing: Listing,
        mut trim: impl FnMut(K, &str) -> Option<T> + Send,
    ) -> BTreeMap<String, Arc<T>>
    where
        K: ResourceExt + DeserializeOwned,
        T: Send + Sync,
    {
        let mut all = BTreeMap::new();
        let mut unreadable = Vec::new();
        let take = |object: K, json: &str| {
            let name = object.name_any();
            all.extend(trim(object, json).map(|trimmed| (name, Arc::new(trimmed))));
        };
        let note = |name: &str, error: &serde_json::Error| {
            unreadable.push(format!("{name} does not parse: {error}"));
        };
        if let Err(error) = for_each_as(self.client, listing, take, note).await {
            self.unread.push(UnreadPart {
                read: error.read,
                ..UnreadPart::new(resource, &error.why)
            });
        }
        if let Some(first) = unreadable.first() {
            let more = unreadable.len() - 1;
            let others = if more > 0 {
                format!(", and {more} more")
            } else {
                String::new()
            };
            self.note(resource, &ApiError::Other(format!("{first}{others}")));
        }
        all
    }

    /// Every namespace. Where they cannot be listed, these are read one by one: the right to get one is given more
    /// often.
    async fn namespaces(&mut self, names: &[String]) -> BTreeMap<String, Arc<CachedNamespace>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let listing = Listing::new(api.resource_url()).metadata_only();
        let before = self.unread.len();
        let mut all = self
            .list("namespaces", listing, |namespace, _| {
                transform::namespace(namespace)
            })
            .await;
        if self.unread.len() == before {
            return all;
        }
        for name in names {
            let Ok(Some(found)) = answered_within(PATIENCE, api.get_metadata_opt(name)).await else {
                return all;
            };
            let trimmed = transform::namespace(found).map(|trimmed| (name.clone(), Arc::new(trimmed)));
            all.extend(trimmed);
        }
        if !names.is_empty() {
            self.unread.truncate(before);
        }
        all
    }

    /// What is remembered of pools, where Transom remembers any.
    async fn seen(&mut self, namespace: &str) -> BTreeMap<String, Arc<PoolHistoryObject>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        match answered_within(PATIENCE, api.get_opt(NODE_POOLS_CONFIG_MAP)).await {
            Ok(map) => (map.and_then(transform::seen).into_iter())
                .map(|seen| (NODE_POOLS_CONFIG_MAP.to_owned(), Arc::new(seen)))
                .collect(),
            Err(why) => {
                let part = UnreadPart::new(format!("configmaps of the namespace {namespace}"), &why);
                self.unread.push(UnreadPart {
                    is_unknown: false,
                    ..part
                });
                BTreeMap::new()
            }
        }
    }

    /// The content of both webhook configurations.
    async fn registered(&mut self, installation: &str) -> Option<Configurations> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mutating = self.configuration(&mutating, installation).await?;
        let validating = self.configuration(&validating, installation).await?;
        Some(Configurations { mutating, validating })
    }

    async fn configuration<K>(&mut self, api: &Api<K>, installation: &str) -> Option<Configuration>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
    {
        let name = configuration_name(installation);
        match answered_within(PATIENCE, api.get_opt(&name)).await {
            Ok(object) => {
                let object = object.and_then(|object| serde_json::to_value(object).ok());
                let webhooks = object.as_ref().map(|object| &object["webhooks"]);
                let title = format!("{} {name}", K::kind(&()));
                Some(Configuration::read(title, webhooks))
            }
            Err(why) => {
                self.unread.push(UnreadPart {
                    is_unknown: false,
                    ..UnreadPart::new(K::plural(&()), &why)
                });
                None
            }
        }
    }

    fn note(&mut self, resource: &str, why: &ApiError) {
        self.unread.push(UnreadPart::new(resource, why));
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use serde_json::{Value, json};

    use super::*;

    /// A stored pool of this name and a revision of this generation, as Transom stores them in a namespace.
    fn stored(namespace: &str, pool: &str, generation: i64) -> [(&'static str, Value); 2] {
        let value = json!({"label": format!("agentpool={pool}"), "builds": [{"build": "10.0.20348",
            "lastSeen": "2999-01-01", "taints": []}]});
        let map = json!({"metadata": {"name": NODE_POOLS_CONFIG_MAP, "namespace": namespace},
            "data": {format!("agentpool.{pool}"): value.to_string()}});
        let revision = json!({"metadata": {"name": "policy-u-1", "namespace": namespace,
                "labels": {"transom.dev/policy-uid": "u"},
                "ownerReferences": [{"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "name": "p", "uid": "u"}]},
            "revision": generation, "data": {}});
        [("ConfigMap", map), ("ControllerRevision", revision)]
    }

    #[test]
    fn pools_and_revisions_are_read_from_transoms_namespace_only() {
        let of = |namespace: &str| {
            let mut objects = ObjectsInFiles::new(namespace);
            let all = [stored("shop", "forged", 7), stored("transom-system", "real", 1)];
            for (kind, object) in all.into_iter().flatten() {
                objects.visit(kind, &object.to_string()).unwrap();
            }
            let revisions: Vec<i64> = objects.cache.revisions.values().map(|it| it.generation).collect();
            let snapshot = objects.snapshot(Facts::new(36, date(2026, 6, 1)));
            let hosts = snapshot.facts.hosts().iter();
            let pools: Vec<String> = hosts
                .filter_map(|host| host.labels.get("agentpool").map(str::to_owned))
                .collect();
            (pools, revisions)
        };
        assert_eq!(of("transom-system"), (vec!["real".to_owned()], vec![1]));
        assert_eq!(of("elsewhere"), (Vec::new(), Vec::new()));
    }
}
