//! Views of everything that is not a pod spec: metadata, and the objects around pods that rules and facts look at.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::pod::{ClaimSpec, HostPath, NodeSelector, Toleration};
use super::scalar::{List, Map, Present, Quantity, Str};

/// `metav1.ObjectMeta`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // the names are Kubernetes'
pub struct Meta<'a> {
    #[serde(borrow)]
    pub name: Str<'a>,
    pub generate_name: Str<'a>,
    pub namespace: Str<'a>,
    pub labels: Map<'a>,
    pub annotations: Map<'a>,
    pub owner_references: List<OwnerReference<'a>>,
    pub deletion_timestamp: Present,
    pub managed_fields: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// The owner that controls the object, where there is one.
    pub fn controller(&self) -> Option<&OwnerReference<'a>> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
    }

    /// What a person would call the object: its name, what a name will be made of, or its controller's name.
    pub fn display_name(&self) -> &str {
        if !self.name.is_empty() {
            &self.name
        } else if !self.generate_name.is_empty() {
            &self.generate_name
        } else {
            self.controller().map_or("", |owner| &owner.name)
        }
    }
}

/// `metav1.OwnerReference`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct OwnerReference<'a> {
    #[serde(borrow)]
    pub kind: Str<'a>,
    pub name: Str<'a>,
    pub controller: Option<bool>,
}

/// A StatefulSet's claim template, which has a name.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct NamedClaimTemplate<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: ClaimSpec<'a>,
}

/// `v1.PersistentVolumeClaim`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Claim<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: ClaimSpec<'a>,
    pub status: ClaimStatus<'a>,
}

/// `v1.PersistentVolumeClaimStatus`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ClaimStatus<'a> {
    #[serde(borrow)]
    pub capacity: Map<'a, Quantity<'a>>,
}

/// `v1.PersistentVolume`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Volume<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: VolumeSpec<'a>,
}

/// `v1.PersistentVolumeSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct VolumeSpec<'a> {
    pub nfs: Present,
    #[serde(borrow)]
    pub local: Option<LocalVolume<'a>>,
    pub host_path: Option<HostPath<'a>>,
    pub volume_mode: Option<Str<'a>>,
    pub claim_ref: Option<ClaimRef<'a>>,
    pub node_affinity: Option<VolumeNodeAffinity<'a>>,
}

/// `v1.LocalVolumeSource`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct LocalVolume<'a> {
    #[serde(borrow)]
    pub path: Str<'a>,
}

/// The claim that a volume is bound to.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ClaimRef<'a> {
    #[serde(borrow)]
    pub namespace: Str<'a>,
    pub name: Str<'a>,
}

/// `v1.VolumeNodeAffinity`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct VolumeNodeAffinity<'a> {
    #[serde(borrow)]
    pub required: Option<NodeSelector<'a>>,
}

/// `v1.Service`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Service<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: ServiceSpec<'a>,
}

/// `v1.ServiceSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ServiceSpec<'a> {
    #[serde(borrow)]
    pub r#type: Option<Str<'a>>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<Str<'a>>,
    pub selector: Map<'a>,
    pub session_affinity: Option<Str<'a>>,
    pub session_affinity_config: Option<SessionAffinityConfig>,
    pub external_traffic_policy: Option<Str<'a>>,
    pub ip_families: List<Str<'a>>,
    pub ip_family_policy: Option<Str<'a>>,
    pub ports: List<ServicePort<'a>>,
}

/// `v1.ServicePort`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ServicePort<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    pub protocol: Option<Str<'a>>,
}

/// `v1.SessionAffinityConfig`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// `v1.ClientIPConfig`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ClientIpConfig {
    pub timeout_seconds: Option<i64>,
}

/// `discovery.k8s.io/v1.EndpointSlice`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct EndpointSlice<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub endpoints: List<Endpoint<'a>>,
}

/// `discovery.k8s.io/v1.Endpoint`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Endpoint<'a> {
    #[serde(borrow)]
    pub addresses: List<Str<'a>>,
}

/// `v1.Node`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Node<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: NodeSpec<'a>,
    pub status: NodeStatus<'a>,
}

/// `v1.NodeSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct NodeSpec<'a> {
    #[serde(borrow)]
    pub taints: List<NodeTaint<'a>>,
}

/// `v1.Taint`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct NodeTaint<'a> {
    #[serde(borrow)]
    pub key: Str<'a>,
    pub value: Str<'a>,
    pub effect: Str<'a>,
}

/// `v1.NodeStatus`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct NodeStatus<'a> {
    #[serde(borrow)]
    pub node_info: NodeInfo<'a>,
    #[serde(borrow)]
    pub capacity: Map<'a, Quantity<'a>>,
    #[serde(borrow)]
    pub allocatable: Map<'a, Quantity<'a>>,
}

/// `v1.NodeSystemInfo`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct NodeInfo<'a> {
    #[serde(borrow)]
    pub operating_system: Str<'a>,
    pub kernel_version: Str<'a>,
    pub kubelet_version: Str<'a>,
    pub container_runtime_version: Str<'a>,
}

/// `node.k8s.io/v1.RuntimeClass`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct RuntimeClass<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub handler: Str<'a>,
    pub overhead: Option<IgnoredAny>,
    pub scheduling: Option<Scheduling<'a>>,
}

/// `node.k8s.io/v1.Scheduling`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Scheduling<'a> {
    #[serde(borrow)]
    pub node_selector: Map<'a>,
    pub tolerations: List<Toleration<'a>>,
}

/// `autoscaling/v2.HorizontalPodAutoscaler`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Autoscaler<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: AutoscalerSpec<'a>,
}

/// `autoscaling/v2.HorizontalPodAutoscalerSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct AutoscalerSpec<'a> {
    #[serde(borrow)]
    pub scale_target_ref: ScaleTarget<'a>,
}

/// `autoscaling/v2.CrossVersionObjectReference`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ScaleTarget<'a> {
    #[serde(borrow)]
    pub kind: Str<'a>,
    pub name: Str<'a>,
}

/// An object of which only the metadata matters (Namespace).
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
#[allow(missing_docs)]
pub struct MetaOnly<'a> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
}
