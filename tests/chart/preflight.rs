//! The values that `transom preflight` writes, in the chart, for every platform.

use std::sync::Arc;

use jiff::civil::date;
use serde_json::{Value, json};
use transom::cluster::cache::ClusterCache;
use transom::cluster::environment::{AnyNode, ClusterEnvironment, NodeGroupResource, WebhookPresence};
use transom::cluster::node::{NodeView, WatchedNode};
use transom::cluster::snapshot::SnapshotBuilder;
use transom::model::cluster::facts::Facts;
use transom::model::nodes::node::Taint;
use transom::model::objects::workload::Kind;
use transom::preflight::{ClusterInput, Platform, Preflight, WorkloadFindings, facts};

use super::engine::engine;
use super::generated;

/// A node of each system, one that makes more, a webhook, a class, a workload: something for every value.
fn values_of(platform: &'static str) -> Value {
    let taint = json!({"key": "sku", "value": "windows", "effect": "NoSchedule"});
    let stored: WatchedNode = serde_json::from_value(json!({
        "metadata": {"name": "w1", "labels": {"kubernetes.io/os": "windows", "agentpool": "win1"}},
        "spec": {"taints": [taint]},
        "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": "10.0.20348.1"}}}))
    .unwrap();
    let any = |name: &str, os: &str, taints: Vec<Taint>| AnyNode {
        name: name.into(),
        labels: [
            ("kubernetes.io/os", os),
            ("agentpool", if os == "windows" { "win1" } else { "lin" }),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        taints,
        is_windows: os == "windows",
        ..AnyNode::default()
    };
    let view = ClusterCache {
        kubernetes: 36,
        nodes: [("w1".to_owned(), Arc::new(NodeView::from(stored)))].into(),
        runtime_classes: [(
            "win22".to_owned(),
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"name": "win22"}, "handler": "runhcs-wcow-process",
                    "scheduling": {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}}}),
                )
                .unwrap(),
            ),
        )]
        .into(),
        ..ClusterCache::default()
    };
    let environment = ClusterEnvironment {
        version: "v1.36.2".into(),
        nodes: vec![
            any("w1", "windows", vec![Taint::no_schedule("sku", "windows")]),
            any("l1", "linux", vec![Taint::no_schedule("cattle.io/os", "linux")]),
        ],
        hooks: vec![WebhookPresence {
            is_mutating: true,
            name: "kyverno".into(),
            namespaces: ["kyverno".to_owned()].into(),
            sees_pods: true,
        }],
        scaled: vec![NodeGroupResource {
            source: "NodePool spot".into(),
            name: "spot".into(),
            labels: [("karpenter.sh/nodepool".to_owned(), "spot".to_owned())].into(),
            taints: vec![Taint::no_schedule("os", "windows")],
            is_windows: true,
            ..NodeGroupResource::default()
        }],
        ..ClusterEnvironment::default()
    };
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let snapshot =
        SnapshotBuilder::new(Facts::new(36, date(2026, 1, 1)), []).take(&Arc::new(view), None, now);
    let platform = Platform::named(platform).unwrap();
    let sight = ClusterInput {
        snapshot: &snapshot,
        environment: &environment,
        unread: &std::collections::BTreeSet::new(),
        platform: &platform,
    };
    let facts = facts(sight);
    let mut workloads = WorkloadFindings::new(sight, &facts, &[]);
    let deployment = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": {"spec": {
        "nodeSelector": {"agentpool": "win1"}, "hostPID": true,
        "containers": [{"name": "c", "image": "i"}]}}}});
    workloads.visit(Kind::Deployment, &deployment.to_string());
    let report = Preflight::new(
        sight,
        workloads,
        None,
        Vec::new(),
        "2026-01-01T00:00:00Z".parse().unwrap(),
    );
    let text = report.values.yaml();
    let read = generated::values(&text);
    assert_eq!(read, report.values.json(), "{text}");
    for field in ["tolerations", "webhooks", "podPolicies", "nodePolicies"] {
        assert!(!read[field].is_null(), "{field}:\n{text}");
    }
    assert_eq!(read["mode"], "Audit");
    for path in [
        "/podPolicies/default/spec/placement/runtimeClasses",
        "/nodePools",
        "/cluster/nodeLabels",
        "/nodePolicies/default/spec/taints",
    ] {
        assert!(read.pointer(path).is_some(), "{path}:\n{text}");
    }
    read
}

#[test]
fn the_chart_takes_the_values_of_a_preflight_on_every_platform() {
    let Some(engine) = engine() else { return };
    for platform in ["aks", "bare-metal", "eks", "gke", "openshift", "rancher"] {
        let file = generated::values(&super::read(&format!("platforms/{platform}.yaml")));
        let seen = values_of(platform);
        let mut values = file.clone();
        // Helm lays one file over the other in the same way: maps are merged, lists replaced.
        json_patch::merge(&mut values, &seen);
        engine
            .request("validate", json!({"values": values}))
            .unwrap_or_else(|error| panic!("{platform}: {error}\n{seen:#}"));
        let rendered = engine.render(&values).unwrap();
        let both = ["WindowsPodPolicy", "WindowsNodePolicy"]
            .map(|kind| rendered.object(kind, "default").to_string());
        let read = transom::api::read_policies(both.join("\n---\n").into_bytes());
        assert!(read.is_ok(), "{platform}: {read:?}");
        let policy = rendered.object("WindowsPodPolicy", "default");
        let of_files = [
            "/podPolicies/default/spec/placement/toleratedTaints",
            "/cluster/nodeLabels",
        ];
        let facts = rendered.object("ConfigMap", "transom-cluster")["data"]["cluster.yaml"].clone();
        let facts = generated::values(facts.as_str().unwrap());
        let rendered_lists = [
            &policy["spec"]["placement"]["toleratedTaints"],
            &facts["nodeLabels"],
        ];
        for (list, made) in of_files.into_iter().zip(rendered_lists) {
            let made = made.as_array().cloned().unwrap_or_default();
            let known = file.pointer(list).and_then(Value::as_array);
            for known in known.into_iter().flatten() {
                assert!(made.contains(known), "{platform}: {list} lost {known}");
            }
        }
        for (name, pool) in file["nodePools"].as_object().into_iter().flatten() {
            let made = rendered.object("WindowsNodePool", name);
            assert_eq!(made["spec"], pool["spec"], "{platform}");
        }
        let own = rendered.object("Deployment", "transom");
        let tolerations = &own["spec"]["template"]["spec"]["tolerations"];
        assert_eq!(tolerations[0]["key"], "cattle.io/os", "{platform}: {tolerations}");
        let webhooks = rendered
            .object("ValidatingWebhookConfiguration", "zz-transom")
            .to_string();
        assert!(
            webhooks.contains("kyverno") && webhooks.contains("agentpool"),
            "{platform}"
        );
    }
}
