//! A Node trimmed to the fields that are used: the one type that is watched, read and written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint as NodeTaint;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::node_ownership::{NOTHING_OWNED, NodeOwnership, OwnerAnnotation, PROOF_LABEL};
use crate::model::nodes::extended_resources::OfferedResources;
use crate::model::nodes::network_plugin::NetworkPlugin;
use crate::model::nodes::node::{
    INSTANCE_TYPE_LABEL, NodeReadiness, NodeSigns, OtherNode, ReservedResources, Taint,
};
use crate::model::syntax::json_types::Quantity;

/// The annotation that records what of an object is Transom's.
pub const OWNED_ANNOTATION: &str = "transom.dev/owned";
/// The label of objects that Transom created and may change and delete, by which they are listed. Nodes and RuntimeClasses have
/// [`OWNED_ANNOTATION`] instead, whose value says more.
pub const OWNED_LABEL: (&str, &str) = ("transom.dev/owned", "true");
/// A label that Transom writes only for information: other tools write it too.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "transom");

/// A Node with only the fields that are used: a node's list of images alone is larger than everything else.
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
pub struct WatchedNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WatchedNodeSpec,
    #[serde(default)]
    status: WatchedNodeStatus,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct WatchedNodeSpec {
    taints: Option<Vec<NodeTaint>>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::zero_sized_map_values)] // a set would be read from a list
struct WatchedNodeStatus {
    node_info: WatchedNodeInfo,
    runtime_handlers: Option<Vec<RuntimeHandler>>,
    capacity: Option<BTreeMap<String, serde_json::Value>>,
    allocatable: Option<BTreeMap<String, serde_json::Value>>,
    conditions: Option<Vec<WatchedNodeCondition>>,
    images: Option<Vec<WatchedImage>>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct WatchedImage {
    names: Option<Vec<String>>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct WatchedNodeCondition {
    r#type: String,
    status: String,
    last_transition_time: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct WatchedNodeInfo {
    operating_system: String,
    architecture: String,
    kernel_version: String,
    container_runtime_version: String,
    kubelet_version: String,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct RuntimeHandler {
    name: String,
}

/// A Windows node, or one that might be: its labels, what its kubelet reports, and its taints.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodeView {
    pub name: String,
    /// Its uid, for Events about it.
    pub uid: String,
    /// The version that every write must name. If it is outdated, the API server rejects the write.
    pub resource_version: String,
    pub labels: Arc<BTreeMap<String, String>>,
    pub owned: Option<OwnerAnnotation>,
    /// `spec.taints`, with `timeAdded`, in order.
    pub taints: Vec<NodeTaint>,
    /// `status.nodeInfo.operatingSystem`; empty if the kubelet has not reported.
    pub operating_system: String,
    /// `status.nodeInfo.architecture`.
    pub architecture: String,
    /// `status.nodeInfo.kernelVersion`.
    pub kernel_version: String,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub container_runtime: String,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// The names of `status.runtimeHandlers`; empty if the kubelet reports none.
    pub runtime_handlers: Vec<String>,
    /// Since when it is Ready.
    pub readiness: NodeReadiness,
    /// The extended resources in `status.allocatable`.
    pub offered: OfferedResources,
    /// What it reserves for Windows and its services.
    pub reserved: ReservedResources,
    /// Whether it reports DiskPressure.
    pub has_disk_pressure: bool,
    /// Its network plugin, if an annotation names it.
    pub network_plugin: Option<NetworkPlugin>,
    /// The names in `status.images` of a node with the startup taint; of others none, because they are tens of kilobytes.
    pub images: Vec<String>,
    /// `ephemeral-storage` in `status.allocatable`, in bytes.
    pub storage: Option<u64>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether something may create and remove nodes like this one: a cloud, Cluster API, or an autoscaler.
    pub may_be_autoscaled: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl NodeView {
    /// Whether a newer version of the node differs only in its version, as each heartbeat does.
    pub fn is_heartbeat(&self, newer: &mut NodeView) -> bool {
        // Swapped for the comparison: a copy of each node at each of its heartbeats would cost more.
        let version = std::mem::replace(&mut newer.resource_version, self.resource_version.clone());
        let is_same = self == newer;
        newer.resource_version = version;
        is_same
    }

    /// What its annotation says, trusted or not; nothing if it cannot be read.
    pub fn claimed(&self) -> &NodeOwnership {
        let read = self.owned.as_ref().map(|owned| owned.read.as_ref());
        read.and_then(Result::ok).unwrap_or(&NOTHING_OWNED)
    }

    /// What on it is Transom's: what its annotation says, if it is trusted.
    ///
    /// # Errors
    /// Why the annotation cannot be read, or is not trusted.
    pub fn ownership(&self) -> Result<&NodeOwnership, String> {
        let proof = self.labels.get(PROOF_LABEL);
        self.owned
            .as_ref()
            .map_or(Ok(&NOTHING_OWNED), |annotation| annotation.trusted(proof))
    }

    /// Whether it carries anything that Transom may have to remove.
    pub fn is_marked(&self) -> bool {
        self.owned.is_some() || self.labels.contains_key(PROOF_LABEL)
    }

    /// Whether it carries the startup taint, with any value and effect.
    pub fn is_gated(&self) -> bool {
        has_startup_taint(&self.taints)
    }

    /// Whether it is kept in the cache: nodes that may be for Windows, by their kubelet or by a label, and nodes that
    /// carry anything that Transom may have to remove.
    pub fn is_of_interest(&self) -> bool {
        self.is_windows() || self.is_labelled_windows() || self.is_marked() || self.is_gated()
    }
}

/// What is kept of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct CachedNode {
    /// If it is of interest.
    pub view: Option<NodeView>,
    /// If it is not a Windows node.
    pub other: Option<OtherNode>,
}

impl From<WatchedNode> for CachedNode {
    fn from(node: WatchedNode) -> Self {
        let view = NodeView::from(node);
        CachedNode {
            other: OtherNode::of(&view),
            view: Some(view).filter(NodeView::is_of_interest),
        }
    }
}

impl From<WatchedNode> for NodeView {
    fn from(node: WatchedNode) -> Self {
        let amount = |value: &serde_json::Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Quantity(text.into())
        };
        let status = &node.status;
        let (capacity, allocatable) = (status.capacity.as_ref(), status.allocatable.as_ref());
        let millis =
            |of: Option<&BTreeMap<String, serde_json::Value>>, name: &str| amount(of?.get(name)?).millis();
        let reserved =
            ReservedResources::between(|name| millis(capacity, name), |name| millis(allocatable, name));
        let storage = millis(allocatable, "ephemeral-storage");
        let storage = storage.and_then(|millis| u64::try_from(millis / 1000).ok());
        let allocatable = allocatable.into_iter().flatten();
        let offered =
            OfferedResources::of_node(allocatable.map(|(name, value)| (name.as_str(), amount(value))));
        let has_disk_pressure = (node.status.conditions.iter().flatten())
            .any(|condition| condition.r#type == "DiskPressure" && condition.status == "True");
        let mut conditions = node.status.conditions.iter().flatten();
        let ready = conditions.find(|condition| condition.r#type == "Ready");
        let readiness = ready.map_or(NodeReadiness::Unreported, |ready| {
            NodeReadiness::of_condition(&ready.status, ready.last_transition_time.as_deref())
        });
        let taints = node.spec.taints.unwrap_or_default();
        let images = (node.status.images.into_iter().flatten()).filter(|_| has_startup_taint(&taints));
        let images = images.flat_map(|image| image.names.unwrap_or_default()).collect();
        let (metadata, info) = (node.metadata, node.status.node_info);
        let may_be_autoscaled = is_of_machine(&metadata) || taints.iter().any(is_of_autoscaler);
        let annotations = metadata.annotations.iter().flat_map(BTreeMap::keys);
        let network_plugin = NetworkPlugin::of_annotations(annotations.map(String::as_str));
        NodeView {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.map(Arc::new).unwrap_or_default(),
            owned: (metadata.annotations.unwrap_or_default())
                .remove(OWNED_ANNOTATION)
                .map(OwnerAnnotation::from),
            taints,
            operating_system: info.operating_system,
            architecture: info.architecture,
            kernel_version: info.kernel_version,
            container_runtime: info.container_runtime_version,
            kubelet_version: info.kubelet_version,
            runtime_handlers: (node.status.runtime_handlers.into_iter().flatten())
                .map(|handler| handler.name)
                .filter(|name| !name.is_empty())
                .collect(),
            readiness,
            offered,
            reserved,
            has_disk_pressure,
            network_plugin,
            images,
            storage,
            created: metadata.creation_timestamp.map(|time| time.0),
            may_be_autoscaled,
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

fn has_startup_taint(taints: &[NodeTaint]) -> bool {
    taints.iter().any(|taint| taint.key == Taint::STARTUP_KEY)
}

/// Whether labels or annotations of a node name a machine type of a cloud, a Machine, or settings of the autoscaler.
fn is_of_machine(metadata: &ObjectMeta) -> bool {
    /// What k3s and RKE2 write on any machine, of a cloud or not.
    const NO_CLOUD: [&str; 2] = ["k3s", "rke2"];
    let machine_type = metadata
        .labels
        .iter()
        .find_map(|labels| labels.get(INSTANCE_TYPE_LABEL));
    let mut annotations = metadata.annotations.iter().flat_map(BTreeMap::keys);
    machine_type.is_some_and(|machine| !NO_CLOUD.contains(&machine.as_str()))
        || annotations.any(|key| {
            matches!(
                key.as_str(),
                "cluster.x-k8s.io/machine" | "machine.openshift.io/machine"
            ) || key.starts_with("cluster-autoscaler.kubernetes.io/")
        })
}

fn is_of_autoscaler(taint: &NodeTaint) -> bool {
    matches!(
        taint.key.as_str(),
        "ToBeDeletedByClusterAutoscaler" | "DeletionCandidateOfClusterAutoscaler"
    )
}

impl NodeSigns for NodeView {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    fn taints(&self) -> Vec<Taint> {
        self.taints.iter().map(taint_of).collect()
    }

    fn operating_system(&self) -> &str {
        &self.operating_system
    }

    fn kernel_version(&self) -> &str {
        &self.kernel_version
    }

    fn container_runtime(&self) -> &str {
        &self.container_runtime
    }

    fn kubelet_version(&self) -> &str {
        &self.kubelet_version
    }

    fn network_plugin(&self) -> Option<NetworkPlugin> {
        self.network_plugin
    }

    fn labels(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&self.labels)
    }

    fn offered_resources(&self) -> Cow<'_, OfferedResources> {
        Cow::Borrowed(&self.offered)
    }

    fn readiness(&self) -> NodeReadiness {
        self.readiness
    }

    fn reserved(&self) -> ReservedResources {
        self.reserved
    }
}

/// A node's taint, without `timeAdded`.
pub fn taint_of(taint: &NodeTaint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    }
}
