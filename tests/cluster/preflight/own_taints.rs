//! Nodes with a taint of their own, for a preview, a team or a device, in a cluster that is installed with the values of
//! preflight: the API server, the scheduler and the controllers are real.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_tainted;
use crate::support::objects::{in_namespace, workload};
use serde_json::{Value, json};

use super::preflight;

const PATIENCE: Duration = Duration::from_secs(90);

/// The nodes, each with its pool and its own taint, in addition to the one of all Windows nodes.
const NODES: [(&str, &str, &str, &str); 5] = [
    ("plain-a", "win", "", ""),
    ("plain-b", "win", "", ""),
    ("early", "win", "preview", "windows2025"),
    ("of-team", "team", "team", "windows-team"),
    ("with-gpu", "gpu", "gpu", "windows2025-gpu"),
];

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

/// The policies that the values make, with mode Enforce, and taints that are set.
fn policies(values: &Value) -> String {
    let value = |path: &str| {
        let path: Vec<&str> = path.split('.').collect();
        let mut entries = values["entries"].as_array().unwrap().iter();
        let entry = entries.find(|entry| entry["path"] == json!(path));
        entry.map(|entry| entry["value"].clone())
    };
    let mut spec = json!({"mode": "Enforce"});
    if let Some(tolerated) = value("podPolicies.default.spec.placement.toleratedTaints") {
        spec["placement"]["toleratedTaints"] = tolerated;
    }
    let required = value("nodePolicies.default.spec.taints.required").unwrap();
    assert_eq!(required, json!([taint("os", "windows")]));
    let node_spec = json!({"mode": "Reconcile", "taints": {"required": required}});
    let of = |kind: &str, spec: Value| {
        json!({"apiVersion": "transom.dev/v1alpha1", "kind": kind, "metadata": {"name": "default"}, "spec": spec})
            .to_string()
    };
    [of("WindowsPodPolicy", spec), of("WindowsNodePolicy", node_spec)].join("\n---\n")
}

#[test]
fn ordinary_pods_stay_off_nodes_with_a_taint_of_their_own_and_no_other_node_gets_it() {
    let Some(programs) = programs_of_a_whole_control_plane("tests/cluster/preflight.rs") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap();
    cluster.start_controllers().unwrap();
    cluster.start_scheduler().unwrap();
    for (name, pool, key, value) in NODES {
        let mut taints = vec![taint("os", "windows")];
        taints.extend((!key.is_empty()).then(|| taint(key, value)));
        join_tainted(
            &cluster,
            name,
            "10.0.26100",
            &[("agentpool", pool)],
            &json!(taints),
        );
    }
    cluster.create_namespace("shop", &[]);
    let report: Value = serde_json::from_str(&preflight(&cluster, "", &["-o", "json"]).0).unwrap();
    let text = report["sections"].to_string();
    for (name, _, key, value) in NODES.into_iter().filter(|node| !node.2.is_empty()) {
        let decision = format!(
            "the taint {key}={value}:NoSchedule on 1 of 5 Windows nodes keeps Linux pods off, and may be for some workloads only"
        );
        assert!(text.contains(&decision), "{name}: {text}");
    }

    install::prepare(&cluster, &policies(&report["values"]));
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "c", "image": "registry.example/app:1"}]});
    let web = in_namespace("shop", workload("Deployment", "web", &spec, 10));
    cluster
        .kubectl_with(&["create", "-f", "-"], &web.to_string())
        .succeeded();
    let mut on = BTreeSet::new();
    let are_bound = || {
        let pods = cluster
            .kubectl(&["-n", "shop", "get", "pods", "-o", "json"])
            .objects();
        let nodes = pods
            .iter()
            .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned));
        let nodes: Vec<String> = nodes.collect();
        let all = nodes.len() == 10;
        on = nodes.into_iter().collect();
        all
    };
    assert!(
        wait(PATIENCE, are_bound),
        "{on:?}\n{}",
        cluster.end_of_log("transom")
    );
    assert_eq!(on, ["plain-a", "plain-b"].map(str::to_owned).into());
    no_node_has_anothers_taint(&cluster);
}

#[track_caller]
fn no_node_has_anothers_taint(cluster: &ControlPlane) {
    let counted = || {
        let policy = cluster
            .kubectl(&["get", "windowsnodepolicy", "default", "-o", "json"])
            .object();
        let mut conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
        policy["status"]["nodeCount"] == 5
            && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    assert!(wait(PATIENCE, counted), "{}", cluster.end_of_log("transom"));
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "json"]).objects();
    for node in &nodes {
        let name = node["metadata"]["name"].as_str().unwrap();
        let taints = node["spec"]["taints"].to_string();
        for (owner, _, key, _) in NODES.into_iter().filter(|node| !node.2.is_empty()) {
            let has = taints.contains(&format!("{key:?}"));
            assert_eq!(has, owner == name, "{name}: {taints}");
        }
    }
}
