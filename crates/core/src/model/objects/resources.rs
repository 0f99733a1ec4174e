//! Views of everything except pod specs: metadata, and the related objects that rules and facts use.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::k8s_struct::k8s_structs;
use super::label_selector::{LabelExpression, LabelOperator, LabelSelector};
use super::pod::{ClaimSpec, CsiSource, Expression, HostPath, NodeSelector, Toleration};
use crate::model::syntax::json_types::{Flag, IsPresent, List, Map, Quantity, Str};

k8s_structs! {
    #![derive(Deserialize, Clone, Debug, Default)]

    /// `metav1.ObjectMeta`.
    pub struct Meta<'a> {
        pub name: Str<'a>,
        pub generate_name: Str<'a>,
        pub namespace: Str<'a>,
        pub uid: Str<'a>,
        pub labels: Map<'a>,
        pub annotations: Map<'a>,
        pub owner_references: List<OwnerReference<'a>>,
        pub deletion_timestamp: IsPresent,
        pub managed_fields: Option<&'a RawValue>,
    }

    /// `metav1.OwnerReference`.
    pub struct OwnerReference<'a> {
        pub api_version: Str<'a>,
        pub kind: Str<'a>,
        pub name: Str<'a>,
        pub uid: Str<'a>,
        pub controller: Option<bool>,
    }

    /// A StatefulSet's claim template, with its name.
    pub struct NamedClaimTemplate<'a> {
        pub metadata: Meta<'a>,
        pub spec: ClaimSpec<'a>,
    }

    /// `v1.PersistentVolumeClaim`.
    pub struct Claim<'a> {
        pub metadata: Meta<'a>,
        pub spec: ClaimSpec<'a>,
        pub status: ClaimStatus<'a>,
    }

    /// `v1.PersistentVolumeClaimStatus`.
    pub struct ClaimStatus<'a> {
        pub capacity: Map<'a, Quantity<'a>>,
    }

    /// `v1.PersistentVolume`.
    pub struct PersistentVolume<'a> {
        pub metadata: Meta<'a>,
        pub spec: PersistentVolumeSpec<'a>,
    }

    /// `v1.PersistentVolumeSpec`.
    pub struct PersistentVolumeSpec<'a> {
        pub access_modes: List<Str<'a>>,
        pub nfs: IsPresent,
        pub csi: Option<CsiSource<'a>>,
        pub aws_elastic_block_store: Option<DiskSource<'a>>,
        pub gce_persistent_disk: Option<DiskSource<'a>>,
        pub vsphere_volume: Option<DiskSource<'a>>,
        pub local: Option<LocalVolume<'a>>,
        pub host_path: Option<HostPath<'a>>,
        pub volume_mode: Option<Str<'a>>,
        pub claim_ref: Option<ClaimRef<'a>>,
        pub node_affinity: Option<VolumeNodeAffinity<'a>>,
    }

    /// `v1.LocalVolumeSource`.
    pub struct LocalVolume<'a> {
        pub path: Str<'a>,
    }

    /// Disk sources; only the file system is used. (For `azureDisk` the API server sets it.)
    pub struct DiskSource<'a> {
        pub fs_type: Option<Str<'a>>,
    }

    /// `storage.k8s.io/v1.StorageClass`.
    pub struct StorageClass<'a> {
        pub metadata: Meta<'a>,
        pub provisioner: Str<'a>,
        pub parameters: Map<'a>,
    }

    /// `storage.k8s.io/v1.CSINode`.
    pub struct CsiNode<'a> {
        pub metadata: Meta<'a>,
        pub spec: CsiNodeSpec<'a>,
    }

    /// `storage.k8s.io/v1.CSINodeSpec`.
    pub struct CsiNodeSpec<'a> {
        pub drivers: List<CsiNodeDriver<'a>>,
    }

    /// `storage.k8s.io/v1.CSINodeDriver`.
    pub struct CsiNodeDriver<'a> {
        pub name: Str<'a>,
    }

    /// The claim that a volume is bound to.
    pub struct ClaimRef<'a> {
        pub namespace: Str<'a>,
        pub name: Str<'a>,
    }

    /// `v1.VolumeNodeAffinity`.
    pub struct VolumeNodeAffinity<'a> {
        pub required: Option<NodeSelector<'a>>,
    }

    /// `v1.Service`.
    pub struct Service<'a> {
        pub metadata: Meta<'a>,
        pub spec: ServiceSpec<'a>,
    }

    /// `v1.ServiceSpec`.
    pub struct ServiceSpec<'a> {
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
    pub struct ServicePort<'a> {
        pub name: Option<Str<'a>>,
        pub protocol: Option<Str<'a>>,
    }

    /// `discovery.k8s.io/v1.EndpointSlice`.
    pub struct EndpointSlice<'a> {
        pub metadata: Meta<'a>,
        pub endpoints: List<SliceEndpoint<'a>>,
    }

    /// `discovery.k8s.io/v1.Endpoint`.
    pub struct SliceEndpoint<'a> {
        pub addresses: List<Str<'a>>,
    }

    /// `networking.k8s.io/v1.NetworkPolicy`.
    pub struct NetworkPolicy<'a> {
        pub metadata: Meta<'a>,
        pub spec: NetworkPolicySpec<'a>,
    }

    /// `networking.k8s.io/v1.NetworkPolicySpec`.
    pub struct NetworkPolicySpec<'a> {
        pub pod_selector: PodSelector<'a>,
    }

    /// `metav1.LabelSelector`.
    pub struct PodSelector<'a> {
        pub match_labels: Map<'a>,
        pub match_expressions: List<Expression<'a>>,
    }

    /// `v1.Node`.
    pub struct Node<'a> {
        pub metadata: Meta<'a>,
        pub spec: NodeSpec<'a>,
        pub status: NodeStatus<'a>,
    }

    /// `v1.NodeSpec`.
    pub struct NodeSpec<'a> {
        #[serde(rename = "providerID")]
        pub provider_id: Str<'a>,
        pub taints: List<NodeTaint<'a>>,
        pub unschedulable: Flag,
    }

    /// `v1.Taint`.
    pub struct NodeTaint<'a> {
        pub key: Str<'a>,
        pub value: Str<'a>,
        pub effect: Str<'a>,
    }

    /// `v1.NodeStatus`.
    pub struct NodeStatus<'a> {
        pub node_info: NodeInfo<'a>,
        pub capacity: Map<'a, Quantity<'a>>,
        pub allocatable: Map<'a, Quantity<'a>>,
        pub conditions: List<NodeCondition<'a>>,
        pub images: List<NodeImage<'a>>,
    }

    /// `v1.ContainerImage`.
    pub struct NodeImage<'a> {
        pub names: List<Str<'a>>,
    }

    /// `v1.NodeCondition`.
    pub struct NodeCondition<'a> {
        pub r#type: Str<'a>,
        pub status: Str<'a>,
        pub last_transition_time: Option<Str<'a>>,
    }

    /// `v1.NodeSystemInfo`.
    pub struct NodeInfo<'a> {
        pub operating_system: Str<'a>,
        pub kernel_version: Str<'a>,
        pub kubelet_version: Str<'a>,
        pub container_runtime_version: Str<'a>,
    }

    /// `node.k8s.io/v1.RuntimeClass`.
    pub struct RuntimeClass<'a> {
        pub metadata: Meta<'a>,
        pub handler: Str<'a>,
        pub overhead: Option<Overhead<'a>>,
        pub scheduling: Option<Scheduling<'a>>,
    }

    /// `node.k8s.io/v1.Overhead`.
    pub struct Overhead<'a> {
        pub pod_fixed: Map<'a, Quantity<'a>>,
    }

    /// `node.k8s.io/v1.Scheduling`.
    pub struct Scheduling<'a> {
        pub node_selector: Map<'a>,
        pub tolerations: List<Toleration<'a>>,
    }

    /// `autoscaling/v2.HorizontalPodAutoscaler`.
    pub struct Autoscaler<'a> {
        pub metadata: Meta<'a>,
        pub spec: AutoscalerSpec<'a>,
    }

    /// `autoscaling/v2.HorizontalPodAutoscalerSpec`.
    pub struct AutoscalerSpec<'a> {
        pub scale_target_ref: ScaleTarget<'a>,
    }

    /// `autoscaling/v2.CrossVersionObjectReference`.
    pub struct ScaleTarget<'a> {
        pub kind: Str<'a>,
        pub name: Str<'a>,
    }

    /// An object of which only the metadata is used (Namespace).
    pub struct MetaOnly<'a> {
        pub metadata: Meta<'a>,
    }
}

impl PodSelector<'_> {
    /// The selector; `None` if it has an operator that Kubernetes does not know.
    pub fn read(&self) -> Option<LabelSelector> {
        let expression = |expression: &Expression<'_>| {
            let mut operators = LabelOperator::ALL.into_iter();
            Some(LabelExpression {
                key: expression.key.to_string(),
                operator: operators.find(|operator| operator.as_str() == &*expression.operator)?,
                values: expression.values.iter().map(ToString::to_string).collect(),
            })
        };
        Some(LabelSelector {
            match_labels: self.match_labels.to_owned_map(),
            match_expressions: self
                .match_expressions
                .iter()
                .map(expression)
                .collect::<Option<_>>()?,
        })
    }
}

impl<'a> Meta<'a> {
    /// The owner that controls the object, if any.
    pub fn controller(&self) -> Option<&OwnerReference<'a>> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
    }

    /// The name of the object for users: its name, its `generateName`, or its controller's name.
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

/// `v1.SessionAffinityConfig`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// `v1.ClientIPConfig`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    pub timeout_seconds: Option<i64>,
}
