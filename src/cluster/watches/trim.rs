//! What the view keeps of each kind of object: the fields that a reader of it needs, and nothing else.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::PartialObjectMeta;
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

use crate::api::{WindowsNodePolicy, WindowsNodePolicySpec};
use crate::cluster::pools::SEEN_KEY;
use crate::cluster::view::{
    NamespaceView, NodeView, OWNED_ANNOTATION, PROOF_LABEL, SeenView, UNREADABLE_ANNOTATION,
};
use crate::model::facts::{BETA_OS_LABEL, OS_LABEL, TRUSTED_BUILD_LABEL};

/// A Node, with no more of it than is read: a node's list of images alone is larger than everything else.
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
pub(super) struct Node {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct NodeSpec {
    taints: Option<Vec<k8s_openapi::api::core::v1::Taint>>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    node_info: NodeInfo,
    runtime_handlers: Option<Vec<RuntimeHandler>>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
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

pub(super) fn node(node: Node) -> Option<NodeView> {
    let Node {
        metadata,
        spec,
        status,
    } = node;
    let labels = metadata.labels.unwrap_or_default();
    let owned = metadata.annotations.unwrap_or_default().remove(OWNED_ANNOTATION);
    let says_windows = |text: &str| text.eq_ignore_ascii_case("windows");
    let label = |key: &str| labels.get(key).is_some_and(|os| says_windows(os));
    let is_windows =
        says_windows(&status.node_info.operating_system) || label(OS_LABEL) || label(BETA_OS_LABEL);
    let ours = owned.is_some()
        || [TRUSTED_BUILD_LABEL, PROOF_LABEL]
            .iter()
            .any(|key| labels.contains_key(*key));
    if !is_windows && !ours {
        return None;
    }
    Some(NodeView {
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        labels,
        owned,
        taints: spec.taints.unwrap_or_default(),
        operating_system: status.node_info.operating_system,
        architecture: status.node_info.architecture,
        kernel_version: status.node_info.kernel_version,
        container_runtime: status.node_info.container_runtime_version,
        kubelet_version: status.node_info.kubelet_version,
        runtime_handlers: (status.runtime_handlers.unwrap_or_default().into_iter())
            .map(|handler| handler.name)
            .filter(|name| !name.is_empty())
            .collect(),
        deleting: metadata.deletion_timestamp.is_some(),
    })
}

pub(super) fn runtime_class(mut class: RuntimeClass) -> Option<RuntimeClass> {
    class.metadata.managed_fields = None;
    Some(class)
}

pub(super) fn namespace(namespace: PartialObjectMeta<Namespace>) -> Option<NamespaceView> {
    let metadata = namespace.metadata;
    Some(NamespaceView {
        uid: metadata.uid.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        tolerations_whitelist: (metadata.annotations.unwrap_or_default())
            .remove("scheduler.alpha.kubernetes.io/tolerationsWhitelist"),
    })
}

pub(super) fn pod_policy(mut policy: DynamicObject) -> Option<serde_json::Value> {
    policy.metadata.managed_fields = None;
    serde_json::to_value(policy).ok()
}

/// A node policy, watched as JSON too: one that this version cannot read must not hide all the others.
pub(super) fn node_policy(mut policy: DynamicObject) -> Option<WindowsNodePolicy> {
    policy.metadata.managed_fields = None;
    let metadata = policy.metadata.clone();
    let read = serde_json::to_value(policy).and_then(serde_json::from_value::<WindowsNodePolicy>);
    Some(read.unwrap_or_else(|error| {
        let mut held = WindowsNodePolicy::new("", WindowsNodePolicySpec::default());
        held.metadata = metadata;
        let why = format!("this version of Transom cannot read it: {error}");
        held.annotations_mut()
            .insert(UNREADABLE_ANNOTATION.to_owned(), why);
        held
    }))
}

pub(super) fn seen(map: ConfigMap) -> Option<SeenView> {
    Some(SeenView {
        resource_version: map.metadata.resource_version.unwrap_or_default(),
        pools: map.data.unwrap_or_default().remove(SEEN_KEY).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_policy_of_a_newer_version_is_held_and_hides_no_other() {
        let stored = |mode: &str| {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                "metadata": {"name": "default", "uid": "u", "generation": 3}, "spec": {"taints": {"mode": mode}},
            }))
            .unwrap();
            node_policy(object).unwrap()
        };
        let newer = stored("Evict");
        assert_eq!(
            (newer.metadata.name.as_deref(), newer.metadata.generation),
            (Some("default"), Some(3))
        );
        assert!(
            newer.annotations()[UNREADABLE_ANNOTATION].contains("Evict"),
            "{newer:?}"
        );
        assert!(!stored("Apply").annotations().contains_key(UNREADABLE_ANNOTATION));
    }
}
