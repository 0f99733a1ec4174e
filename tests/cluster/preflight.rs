//! `transom preflight` on a real API server without Transom. Without a control plane this says so and proves nothing.
#![cfg(unix)]

mod capacity;
mod controllers;
mod daemon_sets;
mod own_taints;

use std::path::Path;
use std::time::Duration;

use crate::support::command::{assert_valid_reports, transom};
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::objects::{in_namespace, workload};
use serde_json::{Value, json};

/// What the autoscaler writes since 1.30.
const STATUS: &str = "time: 2026-11-20 04:28:19.546750398 +0000 UTC
autoscalerStatus: Running
nodeGroups:
- name: eks-windows-2022-abc
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 0
        ready: 0
        notStarted: 0
    cloudProviderTarget: 0
    minSize: 0
    maxSize: 4
";

fn node(name: &str, os: &str, kernel: &str, taints: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": os, "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name, "agentpool": format!("{os}-a")}},
        "spec": {"taints": taints},
        "status": {"nodeInfo": {"operatingSystem": os, "architecture": "amd64", "kernelVersion": kernel, "bootID": "",
            "machineID": "", "systemUUID": "", "osImage": "", "containerRuntimeVersion": "containerd://1.7.20",
            "kubeletVersion": "v1.36.2", "kubeProxyVersion": ""}}})
}

fn in_pool(pool: &str, mut node: Value) -> Value {
    node["metadata"]["labels"]["agentpool"] = pool.into();
    node
}

fn in_shop(kind: &str, name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "registry.example/app:1"}]);
    in_namespace("shop", workload(kind, name, &spec, 1))
}

fn world() -> Vec<Value> {
    let windows = json!({"kubernetes.io/os": "windows"});
    vec![
        node(
            "l1",
            "linux",
            "6.1.0",
            &json!([{"key": "cattle.io/os", "value": "linux", "effect": "NoSchedule"}]),
        ),
        node(
            "w1",
            "windows",
            "10.0.20348.1",
            &json!([{"key": "os", "value": "Windows", "effect": "NoSchedule"}]),
        ),
        in_pool("windows-b", node("w2", "windows", "10.0.17763.1", &json!([]))),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop",
            "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status",
            "namespace": "kube-system"}, "data": {"status": STATUS}}),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "windows-2022"},
            "handler": "runhcs-wcow-process", "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows",
                "node.kubernetes.io/windows-build": "10.0.20348"}}}),
        in_shop(
            "Deployment",
            "bad",
            json!({"nodeSelector": windows, "hostNetwork": true}),
        ),
        in_shop(
            "Deployment",
            "ignored",
            json!({"nodeSelector": windows, "securityContext": {"seLinuxOptions": {"level": "s0"}}}),
        ),
        in_shop("Deployment", "good", json!({"nodeSelector": windows})),
        in_shop(
            "Deployment",
            "by-pool",
            json!({"nodeSelector": {"agentpool": "windows-a"}}),
        ),
        in_shop(
            "Deployment",
            "waits",
            json!({"nodeSelector": {"kubernetes.io/os": "windows", "agentpool": "gone"}}),
        ),
        in_shop("DaemonSet", "everywhere", json!({})),
        in_shop("DaemonSet", "exporter", json!({"nodeSelector": windows})),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "clusterpolicies.kyverno.io"},
            "spec": {"group": "kyverno.io", "scope": "Cluster",
                "names": {"plural": "clusterpolicies", "kind": "ClusterPolicy"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        // The group of Argo CD without its Applications, as Argo Rollouts brings it.
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "rollouts.argoproj.io"},
            "spec": {"group": "argoproj.io", "scope": "Namespaced",
                "names": {"plural": "rollouts", "kind": "Rollout"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        hooks("kyverno-resource-mutating-webhook-cfg"),
        hooks("zzz-late"),
    ]
}

fn hooks(name: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [{"name": "a.kyverno.svc", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 1,
            "clientConfig": {"service": {"name": "svc", "namespace": "kyverno"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]})
}

/// What the program says as a user, and its exit status.
fn preflight(cluster: &ControlPlane, user: &str, more: &[&str]) -> (String, i32) {
    let text = std::fs::read_to_string(cluster.path("admin.kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    if !user.is_empty() {
        config["users"][0]["user"]["as"] = json!(user);
    }
    let file = cluster.path(&format!("as-{user}.kubeconfig"));
    std::fs::write(&file, config.to_string()).unwrap();
    let connection = ["preflight", "--kubeconfig", file.to_str().unwrap()];
    let run = transom(Path::new("."), &[&connection, more].concat());
    assert!(run.err.is_empty(), "{}", run.err);
    (run.out, run.status)
}

/// The statement of a section whose text has this in it.
#[track_caller]
fn message<'r>(report: &'r Value, section: &str, part: &str) -> &'r Value {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|it| it["title"] == section).unwrap();
    let findings = section["findings"].as_array().unwrap();
    let found = findings
        .iter()
        .find(|it| it["message"].as_str().unwrap().contains(part));
    found.unwrap_or_else(|| panic!("{part:?} is not said: {section:#}"))
}

fn apply(cluster: &ControlPlane, object: &Value) {
    cluster
        .kubectl_with(&["create", "-f", "-"], &object.to_string())
        .succeeded();
}

#[test]
fn a_cluster_without_transom_is_looked_at_and_the_values_fit_it() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/preflight.rs") else {
        return;
    };
    for object in world() {
        apply(&cluster, &object);
    }
    let policy = json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "restrict-seccomp-strict"}});
    let is_made = || {
        cluster
            .kubectl_with(&["create", "-f", "-"], &policy.to_string())
            .ok
    };
    assert!(wait(Duration::from_secs(30), is_made));
    // A group is listed before its kinds are served.
    let is_listed = || {
        cluster
            .kubectl(&["get", "--raw", "/apis/argoproj.io/v1alpha1"])
            .ok
    };
    assert!(wait(Duration::from_secs(30), is_listed));

    let (json, status) = preflight(&cluster, "", &["-o", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_valid_reports("preflight", &[&report]);
    assert_eq!((status, &report["gaps"]), (0, &json!([])));
    assert_eq!(
        (&report["schema"], &report["platform"]),
        (&json!("transom.dev/preflight/v1"), &json!("bare-metal"))
    );
    check_findings(&report);
    the_values_are_taken(&cluster, &report);

    let (text, status) = preflight(&cluster, "", &["--fail-on", "would-deny"]);
    assert_eq!(status, 1);
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("2 workloads would be denied, 1 of them only for fields"),
        "{first}"
    );
    assert!(
        text.lines()
            .all(|line| line.starts_with(['#', ' ']) || line.chars().count() <= 110 || line.contains(": ")),
        "{text}"
    );
    let (values, _) = preflight(&cluster, "", &["-o", "values"]);
    assert!(text.ends_with(&values), "{text}");
    capacity::capacity_and_accounts_are_evaluated(&cluster);
    rights(&cluster);
}

/// The new node has a taint that only placement would give a toleration of, and nothing places in this cluster.
#[test]
fn preflight_plan_and_page_count_the_same_and_name_the_placement_that_they_assume() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/preflight.rs") else {
        return;
    };
    let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let with_image = |name: &str, tolerations: &Value| {
        let windows = json!({"kubernetes.io/os": "windows"});
        let mut object = in_shop(
            "Deployment",
            name,
            json!({"nodeSelector": windows, "tolerations": tolerations}),
        );
        object["spec"]["template"]["spec"]["containers"][0]["image"] =
            json!("mcr.microsoft.com/windows/servercore:ltsc2022");
        object
    };
    for object in [
        node("l1", "linux", "6.1.0", &json!([])),
        node("w1", "windows", "10.0.20348.1", &json!([])),
        node("w2", "windows", "10.0.26100.1", &taints),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        with_image("plain", &json!([])),
        with_image("tolerating", &json!([{"key": "os", "operator": "Exists"}])),
    ] {
        apply(&cluster, &object);
    }
    let count = "1 of 2 workloads on the drained pools can move unchanged";
    let placement = "Audit in 1 namespace, by the built-in policy, because no known WindowsPodPolicy applies";
    let (json, _) = preflight(&cluster, "", &["-o", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    let hint = message(&report, "Nodes", "there is a newer build")["message"]
        .as_str()
        .unwrap();
    assert!(
        hint.ends_with(&format!("; {count} (assumed placement: {placement})")),
        "{hint}"
    );
    let run = |args: &[&str]| {
        let kubeconfig = cluster.path("as-.kubeconfig");
        let connection = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        transom(Path::new("."), &[args, &connection].concat()).out
    };
    let plan = run(&["plan", "--to", "ltsc2025"]);
    assert!(
        plan.contains(count) && plan.contains(&format!("assumed placement: {placement}\n")),
        "{plan}"
    );
    let page = run(&["scan", "-o", "html", "--plan-to", "ltsc2025"]);
    let line = format!(" {count}. Assumed placement: <bdi>{placement}</bdi>.</p>");
    assert!(page.contains(&line), "{}", page.len());
}

fn check_findings(report: &Value) {
    let denied: Vec<&str> = report["denied"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(denied, ["bad", "ignored"]);
    assert_eq!(
        (
            &report["denied"][0]["onlyIgnoredFields"],
            &report["denied"][1]["onlyIgnoredFields"]
        ),
        (&json!(false), &json!(true))
    );
    message(report, "Platform", "Kubernetes is v1.36");
    message(report, "Platform", "Transom is not installed");
    message(report, "Nodes", "node with 10.0.17763");
    for rule in [
        "not Windows Server 2019 (10.0.17763) [TSM901 node-build-unsupported]",
        "[TSM904 node-missing-taint]",
    ] {
        let found = message(report, "Nodes", rule);
        assert_eq!(
            (&found["status"], &found["evidence"]),
            (&json!("action-required"), &json!(["node w2"]))
        );
    }
    let plan = message(report, "Nodes", "there is a newer build");
    assert!(
        plan["remedy"]
            .as_str()
            .unwrap()
            .starts_with("transom plan --to ltsc2025"),
        "{plan}"
    );
    assert_eq!(
        message(report, "Nodes", "own pods would not be scheduled")["evidence"],
        json!(["node l1"])
    );
    message(
        report,
        "Pools at zero nodes",
        "eks-windows-2022-abc has no ready node (it may have 0 to 4)",
    );
    let waits = message(report, "Pools at zero nodes", "select agentpool=gone");
    assert_eq!(waits["evidence"], json!(["Deployment shop/waits"]));
    message(report, "RuntimeClasses", "windows-2022 is for Windows");
    let everywhere = message(report, "DaemonSets", "names no operating system");
    assert_eq!(everywhere["evidence"], json!(["DaemonSet shop/everywhere"]));
    assert!(
        everywhere["message"]
            .as_str()
            .unwrap()
            .ends_with("Windows nodes: w2"),
        "{everywhere}"
    );
    let exporter = message(report, "DaemonSets", "does not tolerate os=Windows:NoSchedule");
    assert_eq!(exporter["evidence"], json!(["DaemonSet shop/exporter"]));
    let kyverno = message(report, "Other engines", "profile restricted");
    assert_eq!(
        kyverno["evidence"],
        json!(["clusterpolicies restrict-seccomp-strict"])
    );
    message(report, "Other engines", "zzz-late is called after zz-transom");
    let pod_security = message(report, "Other engines", "Pod Security");
    assert_eq!(
        pod_security["evidence"],
        json!(["namespace shop enforces baseline"])
    );
}

/// The policy that the values make is taken by the API server.
fn the_values_are_taken(cluster: &ControlPlane, report: &Value) {
    let value = |path: &[&str]| {
        let entries = report["values"]["entries"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["path"] == json!(path));
        entry.unwrap_or_else(|| panic!("{path:?}: {entries:#?}"))["value"].clone()
    };
    let mode = value(&["mode"]);
    assert_eq!(mode, "Audit");
    assert_eq!(
        value(&["tolerations"]),
        json!([{"key": "cattle.io/os", "operator": "Equal", "value": "linux", "effect": "NoSchedule"}])
    );
    let namespaces = json!(["calico-system", "tigera-operator", "gatekeeper-system", "kyverno"]);
    assert_eq!(value(&["webhooks", "excludedNamespaces"]), namespaces);
    let taint = |value: &str| json!({"key": "os", "value": value, "effect": "NoSchedule"});
    let placement = json!({
        "runtimeClasses": {"names": value(&["podPolicies", "default", "spec", "placement", "runtimeClasses", "names"])},
    });
    assert_eq!(
        placement,
        json!({
            "runtimeClasses": {"names": [{"release": "ltsc2022", "name": "windows-2022"}]},
        })
    );
    let node_labels = value(&["cluster", "nodeLabels"]);
    assert_eq!(
        node_labels,
        json!([{"key": "agentpool", "values": ["windows-a"]}])
    );
    let spec = json!({"mode": mode, "placement": placement});
    let required = value(&["nodePolicies", "default", "spec", "taints", "required"]);
    assert_eq!(required, json!([taint("Windows")]));
    let node_spec = json!({"mode": "Reconcile", "taints": {"required": required}});
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/crds.yaml");
    cluster.kubectl(&["create", "-f", crds]).succeeded();
    for (kind, spec) in [("WindowsPodPolicy", spec), ("WindowsNodePolicy", node_spec)] {
        let object = json!({"apiVersion": "transom.dev/v1alpha1", "kind": kind, "metadata": {"name": "default"}, "spec": spec});
        let mut printed = None;
        let is_taken = || {
            let tried = cluster.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &object.to_string());
            let is_taken = tried.ok;
            printed = Some(tried);
            is_taken
        };
        assert!(wait(Duration::from_secs(20), is_taken), "{printed:?}");
    }
}

/// With the rights of the page nothing is missing; with fewer the rest is told.
fn rights(cluster: &ControlPlane) {
    let page = include_str!("../../docs/reference/rights.md");
    let role = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next())
        .find(|block| block.contains("name: transom-preflight\n"))
        .unwrap();
    cluster.kubectl_with(&["create", "-f", "-"], role).succeeded();
    cluster
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "reader",
            "--clusterrole=transom-preflight",
            "--user=reader",
        ])
        .succeeded();
    cluster
        .kubectl(&[
            "create",
            "clusterrole",
            "few",
            "--verb=list",
            "--resource=nodes,deployments.apps",
        ])
        .succeeded();
    cluster
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "few",
            "--clusterrole=few",
            "--user=few",
        ])
        .succeeded();
    let with = |user: &str| {
        let (json, status) = preflight(cluster, user, &["-o", "json"]);
        (serde_json::from_str::<Value>(&json).unwrap(), status)
    };
    let mut last = None;
    let is_enough = || {
        let (report, status) = with("reader");
        let is_whole = (status, &report["gaps"]) == (0, &json!([]));
        last = Some(report["gaps"].clone());
        is_whole
    };
    assert!(wait(Duration::from_secs(20), is_enough), "{last:#?}");
    let (report, status) = with("few");
    assert_eq!(status, 2);
    assert_eq!(report["summary"]["denied"], 2);
    // The plan goes past lists that are refused too.
    let kubeconfig = cluster.path("as-few.kubeconfig");
    let connection = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let plan = transom(
        Path::new("."),
        &[&["plan", "--to", "ltsc2025"], &connection[..]].concat(),
    );
    let (text, errors) = (plan.out, plan.err);
    assert_eq!(plan.status, 2, "{errors}");
    assert!(text.contains("shop/good Deployment"), "{text}");
    for refused in ["podtemplates", "daemonsets", "pods"] {
        let start = format!("error: cannot list {refused}: ");
        let mut lines = errors.lines();
        assert!(
            lines.any(|line| line.starts_with(&start)
                && line.ends_with("grant this account read access to it (get, list)")),
            "{refused}: {errors}"
        );
    }
    let headline = preflight(cluster, "few", &[]).0;
    assert!(headline.contains("and more may be of those that"), "{headline}");
    let gaps = report["gaps"].to_string();
    for what in [
        "daemonsets",
        "runtimeclasses",
        "mutatingwebhookconfigurations",
        "namespaces",
    ] {
        assert!(gaps.contains(what), "{what}: {gaps}");
    }
}
