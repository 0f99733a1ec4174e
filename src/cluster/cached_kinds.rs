//! The kinds of objects that a snapshot is made of. Each is declared once, for the watches of a server, the lists of a command
//! and the objects in files.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::CSINode;
use kube::core::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, Client, CustomResourceExt as _, ResourceExt};
use serde_json::Value;

use super::cache::{CachedNamespace, ClusterCache};
use super::node::{NodeView, WatchedNode};
use super::policy_revisions::{POLICY_UID_LABEL, PolicyRevision};
use super::transform;
use crate::api::{WindowsNodePolicy, WindowsNodePool, WindowsPodPolicy};

/// A kind of objects `K`, which the cache stores as `T`.
pub(super) struct CachedKind<K, T> {
    /// The plural. It is also the name of the watch.
    pub resource: &'static str,
    /// The API of its objects. The text is Transom's own namespace.
    pub api: fn(Client, &str) -> Api<K>,
    pub selection: Selection,
    /// What Transom reads of an object; `None` if it reads nothing.
    pub trim: fn(K) -> Option<T>,
    /// The map of the cache with the objects, by name.
    pub part: fn(&mut ClusterCache) -> &mut BTreeMap<String, Arc<T>>,
}

/// Which objects of a kind are read.
pub(super) enum Selection {
    /// All of the cluster.
    All,
    /// In Transom's own namespace, those with this label.
    Labelled(&'static str),
}

pub(super) const NODES: CachedKind<WatchedNode, NodeView> = CachedKind {
    resource: "nodes",
    api: |client, _| Api::all(client),
    selection: Selection::All,
    trim: transform::node,
    part: |cache| &mut cache.nodes,
};

pub(super) const RUNTIME_CLASSES: CachedKind<RuntimeClass, RuntimeClass> = CachedKind {
    resource: "runtimeclasses",
    api: |client, _| Api::all(client),
    selection: Selection::All,
    trim: transform::runtime_class,
    part: |cache| &mut cache.runtime_classes,
};

pub(super) const CSI_NODES: CachedKind<CSINode, Vec<String>> = CachedKind {
    resource: "csinodes",
    api: |client, _| Api::all(client),
    selection: Selection::All,
    trim: transform::csi_node,
    part: |cache| &mut cache.csi_nodes,
};

pub(super) const NAMESPACES: CachedKind<PartialObjectMeta<Namespace>, CachedNamespace> = CachedKind {
    resource: "namespaces",
    api: |client, _| Api::all(client),
    selection: Selection::All,
    trim: transform::namespace,
    part: |cache| &mut cache.namespaces,
};

// Policies are read as JSON: one that this version cannot read must still be listed, and must not hide others.
pub(super) const POD_POLICIES: CachedKind<DynamicObject, Value> = CachedKind {
    resource: "windowspodpolicies",
    api: |client, _| Api::all_with(client, &WindowsPodPolicy::api_resource()),
    selection: Selection::All,
    trim: transform::pod_policy,
    part: |cache| &mut cache.pod_policies,
};

pub(super) const NODE_POLICIES: CachedKind<DynamicObject, WindowsNodePolicy> = CachedKind {
    resource: "windowsnodepolicies",
    api: |client, _| Api::all_with(client, &WindowsNodePolicy::api_resource()),
    selection: Selection::All,
    trim: transform::node_policy,
    part: |cache| &mut cache.node_policies,
};

pub(super) const REVISIONS: CachedKind<ControllerRevision, PolicyRevision> = CachedKind {
    resource: "controllerrevisions",
    api: |client, own| Api::namespaced(client, own),
    selection: Selection::Labelled(POLICY_UID_LABEL),
    trim: PolicyRevision::of,
    part: |cache| &mut cache.policy_revisions,
};

pub(super) const NODE_POOLS: CachedKind<DynamicObject, WindowsNodePool> = CachedKind {
    resource: "windowsnodepools",
    api: |client, _| Api::all_with(client, &WindowsNodePool::api_resource()),
    selection: Selection::All,
    trim: transform::node_pool,
    part: |cache| &mut cache.node_pools,
};

impl<K, T> CachedKind<K, T> {
    /// What a watch asks for.
    pub fn watched(&self) -> Config {
        match self.selection {
            Selection::All => Config::default(),
            Selection::Labelled(label) => Config::default().labels(label),
        }
    }

    /// Whether an object is one of those that are read, if its namespace and name are. `own`: Transom's own namespace.
    pub fn selects(&self, object: &K, own: &str) -> bool
    where
        K: ResourceExt,
    {
        let is_own = || object.meta().namespace.as_deref() == Some(own);
        match self.selection {
            Selection::All => true,
            // What trims the object reads the label.
            Selection::Labelled(_) => is_own(),
        }
    }
}
