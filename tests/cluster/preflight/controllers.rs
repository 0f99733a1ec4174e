//! The controllers of custom resources on a real API server: who is proposed, and what the values then let pass.

use std::time::Duration;

use crate::support::control_plane::{ControlPlane, Printed, wait};
use crate::support::install::{self, Replica};
use crate::support::objects::{in_namespace, workload};
use serde_json::{Value, json};

use super::{apply, hooks, node, preflight};

const ROLLOUTS: &str = "system:serviceaccount:argo-rollouts:argo-rollouts";
const LOOK_ALIKE: &str = "system:serviceaccount:team:argo-rollouts";

/// A Deployment with the image of the controller.
fn controller(namespace: &str) -> Value {
    let spec = json!({"serviceAccountName": "argo-rollouts",
        "containers": [{"name": "c", "image": "quay.io/argoproj/argo-rollouts:v1.8.0"}]});
    in_namespace(namespace, workload("Deployment", "argo-rollouts", &spec, 1))
}

/// What a person wrote before Transom came: a pod with a field that the API server accepts and that Windows ignores.
fn bad() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
        "containers": [{"name": "c", "image": "registry.example/app:1"}]})
}

fn rollout() -> Value {
    let mut rollout = in_namespace("shop", workload("Deployment", "web", &bad(), 1));
    rollout["apiVersion"] = "argoproj.io/v1alpha1".into();
    rollout["kind"] = "Rollout".into();
    rollout
}

/// The next ReplicaSet of the Rollout, created by this user.
fn next_replica_set(cluster: &ControlPlane, name: &str, user: &str) -> Printed {
    let mut object = in_namespace("shop", workload("Deployment", name, &bad(), 1));
    object["kind"] = "ReplicaSet".into();
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web",
        "uid": "a", "controller": true}]);
    let args = [
        "create",
        "-f",
        "-",
        "--as",
        user,
        "--as-group=system:masters",
        "--dry-run=server",
    ];
    cluster.kubectl_with(&args, &object.to_string())
}

fn world(cluster: &ControlPlane) {
    for namespace in ["shop", "team", "argo-rollouts"] {
        cluster.create_namespace(namespace, &[]);
    }
    let taint = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {"group": "argoproj.io", "scope": "Namespaced", "names": {"plural": "rollouts", "kind": "Rollout"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    for object in [
        node("l1", "linux", "6.1.0", &json!([])),
        node("w1", "windows", "10.0.20348.1", &taint),
        definition,
        controller("argo-rollouts"),
        controller("team"),
        hooks("other"),
    ] {
        apply(cluster, &object);
    }
    let stored = || {
        cluster
            .kubectl_with(&["create", "-f", "-"], &rollout().to_string())
            .ok
    };
    assert!(wait(Duration::from_secs(30), stored));
    for args in [
        &[
            "create",
            "clusterrole",
            "rollouts",
            "--verb=create,get",
            "--resource=replicasets.apps",
        ][..],
        &[
            "create",
            "clusterrolebinding",
            "rollouts",
            "--clusterrole=rollouts",
            "--serviceaccount=argo-rollouts:argo-rollouts",
        ],
        // A tenant may do everything in its own namespace.
        &[
            "-n",
            "team",
            "create",
            "rolebinding",
            "all",
            "--clusterrole=cluster-admin",
            "--serviceaccount=team:argo-rollouts",
        ],
    ] {
        cluster.kubectl(args).succeeded();
    }
}

#[test]
fn the_next_rollout_passes_once_the_proposed_account_is_confirmed_and_a_look_alike_is_never_trusted() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/preflight.rs") else {
        return;
    };
    world(&cluster);
    let mut report = Value::Null;
    // Grants reach the authorizer a moment later.
    let is_proposed = || {
        report = serde_json::from_str(&preflight(&cluster, "", &["-o", "json"]).0).unwrap();
        report["values"].to_string().contains(ROLLOUTS)
    };
    assert!(
        wait(Duration::from_secs(20), is_proposed),
        "{:#}",
        report["values"]
    );
    let entries = report["values"]["entries"].as_array().unwrap();
    let path = json!(["cluster", "controllers"]);
    let proposed = entries.iter().find(|entry| entry["path"] == path).unwrap();
    let confirmed = proposed["value"].clone();
    assert_eq!(
        confirmed,
        json!([{"username": ROLLOUTS, "kinds": ["Rollout.argoproj.io"]}])
    );
    let text = report["sections"].to_string();
    assert!(
        text.contains(&format!(
            "{LOOK_ALIKE}, which may not create the objects of Rollout.argoproj.io"
        )),
        "{text}"
    );
    assert_eq!(report["denied"][0]["kind"], "Rollout");

    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Enforce"}});
    install::prepare(&cluster, &policy.to_string());
    let [flag, file] = install::cluster_config(&cluster, "{}");
    let replica = Replica::start(&cluster, "transom", &["--reports", &flag, &file]);
    install::register(&cluster, replica.port, &[&flag, &file]);
    replica.is_ready(&cluster);
    let scan = || {
        let kubeconfig = cluster.path("admin.kubeconfig");
        let args = ["scan", "--kubeconfig", kubeconfig.to_str().unwrap(), &flag, &file];
        crate::support::command::transom(std::path::Path::new("."), &args).out
    };
    let is_unlisted = || {
        let policy = cluster.kubectl(&["get", "wpp", "default", "-o", "json"]).object();
        let mut conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "ControllersUnlisted" && it["status"] == "True")
    };
    let is_denied = |user: &str| {
        next_replica_set(&cluster, "next", user)
            .err
            .contains("its Rollout owner is ignored")
    };
    assert!(
        wait(Duration::from_secs(60), || is_denied(ROLLOUTS)),
        "{}",
        cluster.end_of_log("transom")
    );
    assert!(scan().contains("next rollout: is denied too"), "{}", scan());
    assert!(
        wait(Duration::from_secs(60), is_unlisted),
        "{}",
        cluster.end_of_log("transom")
    );

    install::cluster_config(&cluster, &json!({"controllers": confirmed}).to_string());
    let passes = || next_replica_set(&cluster, "next", ROLLOUTS).ok;
    assert!(
        wait(Duration::from_secs(90), passes),
        "{}",
        cluster.end_of_log("transom")
    );
    for user in [
        LOOK_ALIKE,
        "alice",
        "system:serviceaccount:kube-system:deployment-controller",
    ] {
        assert!(is_denied(user), "{user}");
    }
    assert!(!scan().contains("next rollout: is denied too"), "{}", scan());
    assert!(
        wait(Duration::from_secs(60), || !is_unlisted()),
        "{}",
        cluster.end_of_log("transom")
    );
}
