//! Reading a cluster once, by lists, into the same view as the watches make: for commands that look and end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::CSINode;
use kube::{Api, Client, CustomResourceExt as _, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cache::ClusterCache;
use super::errors::{ApiError, answered_within};
use super::list::{Listing, for_each_as};
use super::node::WatchedNode;
use super::pool_history::NODE_POOLS_CONFIG_MAP;
use super::revisions::StoredRevision;
use super::watches::{ApiGroups, transform};
use crate::api::{WindowsNodePolicy, WindowsPodPolicy};
use crate::model::facts::Facts;
use crate::model::node::major_minor;
use crate::registration::configuration_name;
use crate::registration::configurations::{Configuration, Configurations, RegisteredEntry};

/// How long one page may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A part of the cluster that could not be read; what was read is whole without it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadPart {
    /// The resource, as in `csinodes`.
    pub resource: String,
    /// Why.
    pub why: String,
    /// Whether the API server does not know the resource: Transom's own ones before it is installed.
    pub is_unknown: bool,
}

/// What was read of a cluster.
#[derive(Debug, Default)]
pub struct ClusterRead {
    /// The view.
    pub view: ClusterCache,
    /// What is registered; empty configurations where there are none. `None` where that could not be read.
    pub registered: Option<Configurations>,
    /// The names of the nodes that are not in the view: those that are for another operating system.
    pub other_nodes: BTreeSet<String>,
    /// What could not be read.
    pub unread: Vec<UnreadPart>,
}

impl ClusterRead {
    /// Whether a part of the cluster could be read.
    pub fn could_read(&self, resource: &str) -> bool {
        self.unread.iter().all(|unread| unread.resource != resource)
    }

    /// Reads these namespaces one by one, where they could not be listed: the right to get one is given more often.
    pub async fn read_namespaces(&mut self, client: &Client, names: &[String]) {
        if self.could_read("namespaces") {
            return;
        }
        let api: Api<Namespace> = Api::all(client.clone());
        for name in names {
            let Ok(Some(found)) = answered_within(PATIENCE, api.get_metadata_opt(name)).await else {
                return;
            };
            let trimmed = transform::namespace(found).map(|trimmed| (name.clone(), Arc::new(trimmed)));
            self.view.namespaces.extend(trimmed);
        }
        self.unread.retain(|unread| unread.resource != "namespaces");
    }
}

/// Reads everything but the objects that carry pods. `namespace` is Transom's own, `installation` the name that its
/// webhook configurations go by. A part that cannot be read is reported, and stays empty.
///
/// # Errors
/// The API server cannot be reached at all: in words for people.
pub async fn read(client: &Client, namespace: &str, installation: &str) -> Result<ClusterRead, String> {
    let version = answered_within(PATIENCE, client.apiserver_version()).await;
    let version = version.map_err(|why| format!("cannot ask the API server for its version: {why}"))?;
    let minor = major_minor(&version.git_version).map(|(_, minor)| minor);
    let mut reading = ClusterReader {
        client,
        unread: Vec::new(),
    };
    let mut other_nodes = BTreeSet::new();
    let nodes = |node: WatchedNode| {
        let name = node.name_any();
        let view = transform::node(node);
        if view.is_none() {
            other_nodes.insert(name);
        }
        view
    };
    let groups = ApiGroups::read(client).await;
    let view = ClusterCache {
        kubernetes: minor.unwrap_or(Facts::KUBERNETES),
        has_scc: groups.has_scc,
        has_gmsa: groups.has_gmsa,
        nodes: reading.all("nodes", &Api::all(client.clone()), nodes).await,
        runtime_classes: reading
            .all(
                "runtimeclasses",
                &Api::<RuntimeClass>::all(client.clone()),
                transform::runtime_class,
            )
            .await,
        csi_nodes: reading
            .all(
                "csinodes",
                &Api::<CSINode>::all(client.clone()),
                transform::csi_node,
            )
            .await,
        namespaces: reading.namespaces().await,
        pod_policies: reading
            .all(
                "windowspodpolicies",
                &Api::all_with(client.clone(), &WindowsPodPolicy::api_resource()),
                transform::pod_policy,
            )
            .await,
        node_policies: reading
            .all(
                "windowsnodepolicies",
                &Api::all_with(client.clone(), &WindowsNodePolicy::api_resource()),
                transform::node_policy,
            )
            .await,
        revisions: reading
            .all(
                "controllerrevisions",
                &Api::<ControllerRevision>::namespaced(client.clone(), namespace),
                StoredRevision::of,
            )
            .await,
        seen: reading.seen(namespace).await,
    };
    let registered = reading.registered(installation).await;
    Ok(ClusterRead {
        view,
        registered,
        other_nodes,
        unread: reading.unread,
    })
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
        trim: impl FnMut(K) -> Option<T> + Send,
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
        mut trim: impl FnMut(K) -> Option<T> + Send,
    ) -> BTreeMap<String, Arc<T>>
    where
        K: ResourceExt + DeserializeOwned,
        T: Send + Sync,
    {
        let mut all = BTreeMap::new();
        let mut unreadable = Vec::new();
        let take = |object: K| {
            let name = object.name_any();
            all.extend(trim(object).map(|trimmed| (name, Arc::new(trimmed))));
        };
        let note = |name: &str, error: &serde_json::Error| {
            unreadable.push(format!("{name} does not parse: {error}"));
        };
        if let Err(error) = for_each_as(self.client, listing, take, note).await {
            self.note(resource, &error.why);
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

    async fn namespaces(&mut self) -> BTreeMap<String, Arc<super::cache::CachedNamespace>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let listing = Listing::new(api.resource_url()).metadata_only();
        self.list("namespaces", listing, transform::namespace).await
    }

    /// What is remembered of pools, where Transom remembers any.
    async fn seen(&mut self, namespace: &str) -> BTreeMap<String, Arc<super::cache::PoolHistoryObject>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        match answered_within(PATIENCE, api.get_opt(NODE_POOLS_CONFIG_MAP)).await {
            Ok(map) => (map.and_then(transform::seen).into_iter())
                .map(|seen| (NODE_POOLS_CONFIG_MAP.to_owned(), Arc::new(seen)))
                .collect(),
            Err(why) => {
                self.unread.push(UnreadPart {
                    resource: format!("configmaps of the namespace {namespace}"),
                    why: why.to_string(),
                    is_unknown: false,
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
        Some(Configurations {
            mutating,
            validating,
            contested: None,
        })
    }

    async fn configuration<K>(&mut self, api: &Api<K>, installation: &str) -> Option<Configuration>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
    {
        let name = configuration_name(installation);
        match answered_within(PATIENCE, api.get_opt(&name)).await {
            Ok(object) => {
                let object = object.and_then(|object| serde_json::to_value(object).ok());
                let entries = object.as_ref().and_then(|object| object["webhooks"].as_array());
                Some(Configuration {
                    title: format!("{} {name}", K::kind(&())),
                    entries: entries
                        .into_iter()
                        .flatten()
                        .filter_map(RegisteredEntry::read)
                        .collect(),
                })
            }
            Err(why) => {
                self.unread.push(UnreadPart {
                    resource: K::plural(&()).into_owned(),
                    why: why.to_string(),
                    is_unknown: false,
                });
                None
            }
        }
    }

    fn note(&mut self, resource: &str, why: &ApiError) {
        self.unread.push(UnreadPart {
            resource: resource.to_owned(),
            why: why.to_string(),
            is_unknown: *why == ApiError::NotFound,
        });
    }
}
