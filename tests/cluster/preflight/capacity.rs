//! What Windows nodes have for pods, what keeps pods off them, and group-managed service accounts.

use std::time::Duration;

use serde_json::{Value, json};

use super::{apply, in_shop, message, node, preflight};
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::objects::{in_namespace, workload};

/// A kind whose objects have any fields.
fn definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, as in the definition of windows-gmsa"}},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// A Windows node of AKS that is too small, with an engine that enforces nothing there and the taint of a readiness rule; and
/// two workloads with credential specs, of which one may use its own.
fn capacity_and_accounts() -> Vec<Value> {
    let taint = json!([{"key": "readiness.k8s.io/network", "value": "pending", "effect": "NoSchedule"}]);
    let mut node = node("w3", "windows", "10.0.20348.1", &taint);
    node["metadata"]["labels"]["kubernetes.azure.com/cluster"] = json!("a");
    node["status"]["allocatable"] = json!({"cpu": "2", "memory": "4Gi", "pods": "1"});
    let with_account = |name: &str, account: &str| {
        let windows = json!({"kubernetes.io/os": "windows"});
        let options = json!({"windowsOptions": {"gmsaCredentialSpecName": "web"}});
        in_shop(
            "Deployment",
            name,
            json!({"nodeSelector": windows, "securityContext": options, "serviceAccountName": account}),
        )
    };
    let mut pod = in_namespace(
        "shop",
        workload(
            "Pod",
            "large",
            &json!({"nodeName": "w3",
        "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "registry.example/app:1",
            "resources": {"limits": {"memory": "6Gi"}, "requests": {"memory": "1Gi"}}}]}),
            1,
        ),
    );
    pod["spec"]["serviceAccountName"] = json!("app");
    let cilium = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "cilium:1"}]});
    vec![
        node,
        in_namespace("kube-system", workload("DaemonSet", "cilium", &cilium, 1)),
        with_account("allowed", "app"),
        with_account("refused", "other"),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app", "namespace": "shop"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gmsa-web"},
            "rules": [{"apiGroups": ["windows.k8s.io"], "resources": ["gmsacredentialspecs"], "resourceNames": ["web"],
                "verbs": ["use"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "gmsa-web", "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gmsa-web"},
            "subjects": [{"kind": "ServiceAccount", "name": "app", "namespace": "shop"}]}),
        pod,
    ]
}

pub fn capacity_and_accounts_are_evaluated(cluster: &ControlPlane) {
    let kinds = [
        definition(
            "windows.k8s.io",
            "v1",
            "GMSACredentialSpec",
            "gmsacredentialspecs",
        ),
        definition(
            "readiness.node.x-k8s.io",
            "v1alpha1",
            "NodeReadinessRule",
            "nodereadinessrules",
        ),
    ];
    for object in kinds.iter().chain(&capacity_and_accounts()) {
        apply(cluster, object);
    }
    let later = [
        json!({"apiVersion": "windows.k8s.io/v1", "kind": "GMSACredentialSpec", "metadata": {"name": "web"}, "credspec": {}}),
        json!({"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": "network"},
            "spec": {"conditions": [{"type": "example.com/NetworkReady", "requiredStatus": "True"}], "enforcementMode": "continuous",
                "nodeSelector": {}, "taint": {"key": "readiness.k8s.io/network", "effect": "NoSchedule", "value": "pending"}}}),
    ];
    for object in later {
        let is_made = || {
            cluster
                .kubectl_with(&["create", "-f", "-"], &object.to_string())
                .ok
        };
        assert!(wait(Duration::from_secs(30), is_made), "{object}");
    }
    let (json, status) = preflight(cluster, "", &["-o", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (status, &report["gaps"], &report["platform"]),
        (0, &json!([]), &json!("aks"))
    );
    message(
        &report,
        "Platform",
        "nothing enforces NetworkPolicies for Windows pods: Cilium",
    );
    let capacity = "Capacity of Windows nodes";
    let memory = message(&report, capacity, "may together use more memory");
    assert_eq!(memory["evidence"], json!(["node w3 (6144Mi of 4096Mi)"]));
    let full = message(&report, capacity, "no room for another pod");
    assert_eq!(full["evidence"], json!(["node w3 (1 of 1 pods)"]));
    message(
        &report,
        capacity,
        "NodeReadinessRule network keeps pods off Windows nodes",
    );
    let accounts = "Group-managed service accounts";
    message(
        &report,
        accounts,
        "GMSACredentialSpec web cannot work: its credspec.DomainJoinConfig.Sid is missing",
    );
    let refused = message(&report, accounts, "may not use GMSACredentialSpec web");
    assert!(
        refused["message"].as_str().unwrap().contains("shop/other"),
        "{refused}"
    );
    assert_eq!(refused["evidence"], json!(["Deployment shop/refused"]));
    message(&report, accounts, "no webhook of windows-gmsa is registered");
}
