//! What the cache keeps of each kind of object: only the fields that are used.

#![allow(clippy::unnecessary_wraps)] // a watch may leave objects out, and nodes are

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt as _;
use kube::api::PartialObjectMeta;
use kube::core::DynamicObject;

use crate::api::{WindowsNodePolicy, WindowsNodePolicySpec, WindowsNodePool};
use crate::cluster::cache::{CachedNamespace, LabelAuthor, UNREADABLE_ANNOTATION};
use crate::cluster::node::{NodeView, WatchedNode};
use crate::model::knowledge::is_namespace_sign;
use crate::model::nodes::namespace_selector::StatedSelectors;
use crate::registration;

pub(super) fn node(node: WatchedNode) -> Option<NodeView> {
    Some(NodeView::from(node)).filter(NodeView::is_of_interest)
}

pub(super) fn runtime_class(mut class: RuntimeClass) -> Option<RuntimeClass> {
    class.metadata.managed_fields = None;
    Some(class)
}

pub(super) fn namespace(namespace: PartialObjectMeta<Namespace>) -> Option<CachedNamespace> {
    let metadata = namespace.metadata;
    let labels = metadata.labels.unwrap_or_default();
    let written = metadata.managed_fields.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    Some(CachedNamespace {
        uid: metadata.uid.unwrap_or_default(),
        left_out_by: registration::left_out_by(&labels)
            .map(|label| author(label, &written))
            .collect(),
        labels,
        tolerations_whitelist: annotations.remove("scheduler.alpha.kubernetes.io/tolerationsWhitelist"),
        stated_selectors: StatedSelectors::of(|key| annotations.remove(key)),
        injections: annotations
            .into_iter()
            .filter(|(key, _)| is_namespace_sign(key))
            .collect(),
    })
}

/// The field manager that last wrote a label.
fn author(label: &'static str, written: &[ManagedFieldsEntry]) -> LabelAuthor {
    let field = format!("f:{label}");
    let wrote = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| fields["f:metadata"]["f:labels"].get(&field).is_some())
    };
    let last = (written.iter().filter(wrote)).max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    LabelAuthor {
        label,
        manager: last.and_then(|entry| entry.manager.clone()).unwrap_or_default(),
        at: last.and_then(|entry| entry.time.as_ref()).map(|time| time.0),
    }
}

/// The names of the drivers, without spare capacity: there is one list for each node of the cluster.
pub(super) fn csi_node(node: CSINode) -> Option<Vec<String>> {
    let mut names: Vec<String> = node.spec.drivers.into_iter().map(|driver| driver.name).collect();
    names.sort_unstable();
    names.shrink_to_fit();
    Some(names)
}

pub(super) fn pod_policy(mut policy: DynamicObject) -> Option<serde_json::Value> {
    policy.metadata.managed_fields = None;
    // `kubectl apply` stores a second copy of the object there, and Transom reads no annotations.
    policy.metadata.annotations = None;
    serde_json::to_value(policy).ok()
}

/// A node policy, also watched as JSON: one that this version cannot read must not hide the others.
pub(super) fn node_policy(mut policy: DynamicObject) -> Option<WindowsNodePolicy> {
    policy.metadata.managed_fields = None;
    let metadata = policy.metadata.clone();
    let priority = policy
        .data
        .pointer("/spec/priority")
        .and_then(serde_json::Value::as_i64);
    let read = serde_json::to_value(policy).and_then(serde_json::from_value::<WindowsNodePolicy>);
    Some(read.unwrap_or_else(|error| {
        let mut held = WindowsNodePolicy::new("", WindowsNodePolicySpec::default());
        // Its place in the order decides which other policies must wait for it.
        held.spec.priority = priority
            .and_then(|priority| i32::try_from(priority).ok())
            .unwrap_or_default();
        held.metadata = metadata;
        let why = format!("this version of Transom cannot read it: {error}");
        held.annotations_mut()
            .insert(UNREADABLE_ANNOTATION.to_owned(), why);
        held
    }))
}

/// A pool, also watched as JSON: one that this version cannot read is not known, and must not hide the others.
pub(super) fn node_pool(mut pool: DynamicObject) -> Option<WindowsNodePool> {
    pool.metadata.managed_fields = None;
    pool.metadata.annotations = None;
    serde_json::from_value(serde_json::to_value(pool).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_took_a_namespace_out_is_the_manager_that_wrote_the_label_last() {
        let entry = |manager: &str, time: &str, label: &str| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, format!("f:{label}"): {}}}},
            })
        };
        let stored = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": "web", "uid": "u", "labels": {"transom.dev/ignore": "true", "kubernetes.azure.com/managedby": "aks"},
                "managedFields": [
                    entry("helm", "2026-01-01T00:00:00Z", "transom.dev/ignore"),
                    entry("kubectl-label", "2026-01-02T00:00:00Z", "transom.dev/ignore"),
                    entry("other", "2026-01-03T00:00:00Z", "transom.dev/ignored"),
                    {"manager": "odd", "operation": "Update", "fieldsV1": 5},
                ],
            },
        });
        let view = namespace(serde_json::from_value(stored).unwrap()).unwrap();
        let excluded_by = view.left_out_by.iter();
        let excluded_by: Vec<_> = excluded_by
            .map(|by| (by.label, by.manager.as_str(), by.at.map(|at| at.to_string())))
            .collect();
        assert_eq!(
            excluded_by,
            [
                ("kubernetes.azure.com/managedby", "", None),
                (
                    "transom.dev/ignore",
                    "kubectl-label",
                    Some("2026-01-02T00:00:00Z".to_owned())
                ),
            ]
        );
    }

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
                "metadata": {"name": "default", "uid": "u", "generation": 3},
                "spec": crate::api::reconciling(&serde_json::json!({"priority": 7, "taints": {"mode": mode}})),
            }))
            .unwrap();
            node_policy(object).unwrap()
        };
        let newer = stored("Evict");
        assert_eq!(
            (newer.metadata.name.as_deref(), newer.metadata.generation),
            (Some("default"), Some(3))
        );
        assert_eq!(newer.spec.priority, 7, "it keeps its place in the order");
        assert!(
            newer.annotations()[UNREADABLE_ANNOTATION].contains("Evict"),
            "{newer:?}"
        );
        assert!(
            !stored("Reconcile")
                .annotations()
                .contains_key(UNREADABLE_ANNOTATION)
        );
    }
}
