//! What a taint will do to DaemonSets is told before nodes have it, in mode Audit too: by preflight, by scan, and by the node
//! policy, on a real API server.

use std::path::Path;
use std::time::Duration;

use crate::support::command::transom;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::objects::{in_namespace, workload};
use serde_json::{Value, json};

use super::{apply, node, preflight};

const POLICIES: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Audit}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: default}
spec:
  mode: Audit
  taints:
    required: [{key: os, value: windows, effect: NoSchedule}]
";

fn agent(name: &str, tolerations: &Value) -> Value {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations,
        "containers": [{"name": "c", "image": "registry.example/agent:1"}]});
    in_namespace("shop", workload("DaemonSet", name, &spec, 1))
}

#[test]
fn daemon_sets_that_a_taint_would_deny_are_named_before_nodes_have_it() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/preflight.rs") else {
        return;
    };
    cluster.create_namespace("shop", &[]);
    let tolerates = json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    for object in [
        node("w1", "windows", "10.0.20348.1", &json!([])),
        node("w2", "windows", "10.0.20348.1", &json!([])),
        agent("blind", &json!([])),
        agent("prepared", &tolerates),
    ] {
        apply(&cluster, &object);
    }
    let (text, _) = preflight(&cluster, "", &["-o", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let found = super::message(
        &report,
        "DaemonSets",
        "once all nodes have the taint os=windows:NoSchedule",
    );
    assert_eq!(found["evidence"], json!(["DaemonSet shop/blind"]));

    install::prepare(&cluster, POLICIES);
    let replica = Replica::start(&cluster, "transom", &["--reports"]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let condition = |part: &str| {
        let policy = cluster
            .kubectl(&["get", "windowsnodepolicy", "default", "-o", "json"])
            .object();
        let mut conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["type"] == "DaemonSetsUntolerating" && it["status"] == "True" && message.contains(part)
        })
    };
    let is_named = || {
        condition(
            "1 Windows DaemonSet would be denied (TSM701) and get no pods: shop/blind (os=windows:NoSchedule)",
        )
    };
    assert!(
        wait(Duration::from_secs(60), is_named),
        "{}",
        cluster.end_of_log("transom")
    );
    let scan = || {
        let kubeconfig = cluster.path("admin.kubeconfig");
        transom(
            Path::new("."),
            &["scan", "--kubeconfig", kubeconfig.to_str().unwrap()],
        )
        .out
    };
    let scanned = scan().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        scanned.contains("1 DaemonSet would be denied (TSM701) and get no pods: DaemonSet shop/blind"),
        "{scanned}"
    );

    let patch = json!({"spec": {"template": {"spec": {"tolerations": tolerates}}}}).to_string();
    cluster
        .kubectl(&["-n", "shop", "patch", "daemonset", "blind", "-p", &patch])
        .succeeded();
    assert!(
        wait(Duration::from_secs(60), || !condition("")),
        "{}",
        cluster.end_of_log("transom")
    );
    assert!(!scan().contains("once all nodes have the taint"), "{}", scan());
}
