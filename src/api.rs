//! The custom resources, group `transom.dev/v1alpha1`: as they are written, and how they become what the engine reads.

mod cluster_config;
mod compile;
mod crd;
mod decode;
mod field_error;
// Printer columns have the same keys by nature.
#[allow(clippy::duplicated_attributes)]
mod node_policy;
#[allow(clippy::duplicated_attributes)]
mod node_pool;
mod node_startup;
#[allow(clippy::duplicated_attributes)]
mod pod_policy;
mod policy_decode;
mod policy_file;
mod schema;
mod selector;

pub use crate::model::objects::policy_kinds::{API_VERSION, NODE_POLICY, NODE_POOL, POD_POLICY};
pub use cluster_config::{AllowedToleration, ClusterConfigSpec, ControllerSpec, NodeLabelSpec};
pub use crd::{
    VERSION_ANNOTATION, definitions, node_policy_definition, node_pool_definition, pod_policy_definition,
};
pub use field_error::{FieldStep, in_one_line};
#[cfg(test)]
pub(crate) use node_policy::reconciling;
pub use node_policy::{
    BuildCount, DriftedNode, Isolation, KnownFaultStatus, NoExecute, NodeLabelMode, NodeLabels,
    NodePolicyMode, NodeRuntimeClasses, NodeTaintSpec, NodeTaints, PartMode, RuntimeHandlers, TAINTS_BLOCKED,
    TaintEffect, WORKLOADS_EXCLUDED, WindowsNodePolicy, WindowsNodePolicySpec, WindowsNodePolicyStatus,
};
pub use node_pool::{
    PoolBuild, PoolSelector, PoolTemplate, WindowsNodePool, WindowsNodePoolSpec, WindowsNodePoolStatus,
};
pub use node_startup::{
    FailedImage, ImagePuller, NodeStartup, PullSecretName, StartupImageSource, StartupStatus, bytes_of,
};
pub use pod_policy::{
    EffectiveSettings, EvidenceSpec, ExemptionSpec, MatchedNamespaces, PlacementRuntimeClasses,
    PlacementSpec, PoolTaint, RuleParameters, RuleSpec, RuntimeClassSpec, ValidationSpec, WindowsPodPolicy,
    WindowsPodPolicySpec, WindowsPodPolicyStatus,
};
pub use policy_decode::{DecodedPolicy, PolicyError, decode_policy};
pub use policy_file::{
    ClusterConfigFile, PolicyFile, PolicyFileError, read_cluster_config, read_document, read_node_policy,
    read_node_pool, read_policies, read_policy,
};
pub use selector::node_selector;
