//! What the view keeps of each kind of object: the fields that a reader of it needs, and nothing else.

#![allow(clippy::unnecessary_wraps)] // a watch may leave objects out, and nodes are

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::CSINode;
use kube::ResourceExt as _;
use kube::api::PartialObjectMeta;
use kube::core::DynamicObject;

use crate::api::{WindowsNodePolicy, WindowsNodePolicySpec};
use crate::cluster::node::{NodeView, StoredNode};
use crate::cluster::pools::SEEN_KEY;
use crate::cluster::view::{NamespaceView, SeenView, UNREADABLE_ANNOTATION};
use crate::model::facts::asks_for_injection;

pub(super) fn node(node: StoredNode) -> Option<NodeView> {
    Some(NodeView::from(node)).filter(NodeView::is_of_interest)
}

pub(super) fn runtime_class(mut class: RuntimeClass) -> Option<RuntimeClass> {
    class.metadata.managed_fields = None;
    Some(class)
}

pub(super) fn namespace(namespace: PartialObjectMeta<Namespace>) -> Option<NamespaceView> {
    let metadata = namespace.metadata;
    let mut annotations = metadata.annotations.unwrap_or_default();
    Some(NamespaceView {
        uid: metadata.uid.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        tolerations_whitelist: annotations.remove("scheduler.alpha.kubernetes.io/tolerationsWhitelist"),
        injections: annotations
            .into_iter()
            .filter(|(key, _)| asks_for_injection(key))
            .collect(),
    })
}

/// The names of the drivers, exactly as long as they are: there is one list for each node of the cluster.
pub(super) fn csi_node(node: CSINode) -> Option<Vec<String>> {
    let mut names: Vec<String> = node.spec.drivers.into_iter().map(|driver| driver.name).collect();
    names.sort_unstable();
    names.shrink_to_fit();
    Some(names)
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
    fn of_namespaces_and_csi_nodes_little_is_kept() {
        let stored = json!({"metadata": {"name": "shop", "annotations": {"linkerd.io/inject": "enabled", "team": "a"}}});
        let kept = namespace(serde_json::from_value(stored).unwrap()).unwrap();
        let injections = [("linkerd.io/inject".to_owned(), "enabled".to_owned())].into();
        assert_eq!((kept.injections, kept.tolerations_whitelist), (injections, None));
        for (drivers, expected) in [
            (
                json!([{"name": "b", "nodeID": "n"}, {"name": "a", "nodeID": "n"}]),
                &["a", "b"][..],
            ),
            (json!(null), &[]),
        ] {
            let stored = json!({"metadata": {"name": "win-1"}, "spec": {"drivers": drivers}});
            assert_eq!(
                csi_node(serde_json::from_value(stored).unwrap()).unwrap(),
                expected
            );
        }
    }

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
