//! The view: what the watches have seen of the cluster, trimmed to what is read of it, as one value that is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint as NodeTaint;
use k8s_openapi::api::node::v1::RuntimeClass;

use crate::api::WindowsNodePolicy;

/// The annotation that says what of an object is Transom's.
pub const OWNED_ANNOTATION: &str = "transom.dev/owned";

/// Set on a node policy in a view, and nowhere else: why its spec cannot be read, as after a rollback to this version.
/// Then nothing of it is set, and nothing taken back.
pub const UNREADABLE_ANNOTATION: &str = "transom.dev/unreadable";

/// The label that proves what [`OWNED_ANNOTATION`] of a node says of taints: a hash of them. A kubelet can write annotations
/// of its own node, but no label under this prefix (the `NodeRestriction` admission plugin).
pub const PROOF_LABEL: &str = "node-restriction.kubernetes.io/transom-taints";

/// A Windows node, or one that might be: what its labels and its kubelet say, and the taints on it.
///
/// Two are equal that differ in their version only: each heartbeat makes another one, and says nothing else.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its uid, for Events about it.
    pub uid: String,
    /// The version that every write to it must name; perhaps an older one, whose write is then refused.
    pub resource_version: String,
    /// All its labels.
    pub labels: BTreeMap<String, String>,
    /// The value of [`OWNED_ANNOTATION`].
    pub owned: Option<String>,
    /// `spec.taints`, with `timeAdded`, in their order.
    pub taints: Vec<NodeTaint>,
    /// `status.nodeInfo.operatingSystem`; empty where the kubelet has not reported.
    pub operating_system: String,
    /// `status.nodeInfo.architecture`.
    pub architecture: String,
    /// `status.nodeInfo.kernelVersion`.
    pub kernel_version: String,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub container_runtime: String,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// The names of `status.runtimeHandlers`; empty where the kubelet reports none.
    pub runtime_handlers: Vec<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl PartialEq for NodeView {
    fn eq(&self, other: &Self) -> bool {
        let NodeView {
            name,
            uid,
            resource_version: _,
            labels,
            owned,
            taints,
            operating_system,
            architecture,
            kernel_version,
            container_runtime,
            kubelet_version,
            runtime_handlers,
            deleting,
        } = self;
        *name == other.name
            && *uid == other.uid
            && *labels == other.labels
            && *owned == other.owned
            && *taints == other.taints
            && *operating_system == other.operating_system
            && *architecture == other.architecture
            && *kernel_version == other.kernel_version
            && *container_runtime == other.container_runtime
            && *kubelet_version == other.kubelet_version
            && *runtime_handlers == other.runtime_handlers
            && *deleting == other.deleting
    }
}

impl NodeView {
    /// Whether it carries anything that may have to be taken back.
    pub fn is_marked(&self) -> bool {
        self.owned.is_some() || self.labels.contains_key(PROOF_LABEL)
    }
}

/// A namespace: its labels, and the annotations that placement must respect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamespaceView {
    /// Its uid, for Events about it.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The value of `scheduler.alpha.kubernetes.io/tolerationsWhitelist`.
    pub tolerations_whitelist: Option<String>,
}

/// What is remembered of pools of nodes, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeenView {
    /// The version that the next write must name.
    pub resource_version: String,
    /// The pools, as [`Memory`](super::pools::Memory) spells them.
    pub pools: String,
}

/// Everything that the watches have seen. Cloning shares the entries.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// The minor version of Kubernetes (`36` for 1.36).
    pub kubernetes: u32,
    /// The nodes that are for Windows by their kubelet or by a label, and the nodes that carry anything of ours; no others.
    pub nodes: BTreeMap<String, Arc<NodeView>>,
    /// RuntimeClasses by name, without managedFields.
    pub runtime_classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, Arc<NamespaceView>>,
    /// Stored node policies by name, without managedFields.
    pub node_policies: BTreeMap<String, Arc<WindowsNodePolicy>>,
    /// Stored pod policies by name, as JSON: what of them can be read is not the watch's business.
    pub pod_policies: BTreeMap<String, Arc<serde_json::Value>>,
    /// What is remembered of pools, under the name of its ConfigMap; nothing where there is none yet.
    pub seen: BTreeMap<String, Arc<SeenView>>,
}

impl ClusterView {
    /// Whether nothing has changed: the same entries, not only equal ones, because entries are only replaced by others.
    pub fn is_same(&self, other: &ClusterView) -> bool {
        fn same<T>(one: &BTreeMap<String, Arc<T>>, other: &BTreeMap<String, Arc<T>>) -> bool {
            let pairs = || one.iter().zip(other);
            one.len() == other.len() && pairs().all(|((a, x), (b, y))| a == b && Arc::ptr_eq(x, y))
        }
        self.kubernetes == other.kubernetes
            && same(&self.nodes, &other.nodes)
            && same(&self.runtime_classes, &other.runtime_classes)
            && same(&self.namespaces, &other.namespaces)
            && same(&self.node_policies, &other.node_policies)
            && same(&self.pod_policies, &other.pod_policies)
            && same(&self.seen, &other.seen)
    }
}
