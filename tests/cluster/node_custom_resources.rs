//! Custom resources that describe pods, for the controller of nodes and RuntimeClasses on a real API server, with minimal
//! CustomResourceDefinitions: they keep taints away, and hold what they name.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use serde_json::{Value, json};
use transom::controller::node_policies::revert::{RevertOptions, revert};
use transom::model::nodes::node::RESTRICTED_BUILD_LABEL;

use crate::support::world::{self, World, node, policy, quick};

/// Group, version, kind and plural. The preferred version of OpenKruise's group lacks its DaemonSet.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("apps.kruise.io", "v1alpha1", "DaemonSet", "daemonsets"),
    ("apps.kruise.io", "v1beta1", "StatefulSet", "statefulsets"),
    ("argoproj.io", "v1alpha1", "Rollout", "rollouts"),
    ("keda.sh", "v1alpha1", "ScaledJob", "scaledjobs"),
];

fn define(world: &World) {
    for (group, version, kind, plural) in KINDS {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        });
        apply(world, &definition);
    }
    world.plane.wait_for_definitions();
}

fn apply(world: &World, object: &Value) {
    let text = object.to_string();
    world.plane.kubectl_with(&["apply", "-f", "-"], &text).succeeded();
}

/// An object with a pod for Windows at this path below its spec.
fn object(api_version: &str, kind: &str, name: &str, path: &[&str], more: &Value) -> Value {
    let mut pod = json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "c", "image": "registry.example/app:1"}]});
    for (field, value) in more.as_object().unwrap() {
        pod[field] = value.clone();
    }
    let mut spec = json!({"template": {"spec": pod}});
    for field in path.iter().rev() {
        spec = json!({ *field: spec });
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn tolerant(mut pod: Value) -> Value {
    pod["tolerations"] = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    pod
}

fn is_tainted(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().any(|taint| taint["key"] == "os")
}

fn mirror(node: &Value) -> Option<&str> {
    node["metadata"]["labels"][RESTRICTED_BUILD_LABEL].as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_keep_taints_away_and_hold_what_they_name() {
    let Some(world) = World::start().await else {
        return;
    };
    define(&world);
    world.create(&node("w22", "10.0.20348.2700", &[])).await;
    let agent = |pod: Value| object("apps.kruise.io/v1alpha1", "DaemonSet", "agent", &[], &pod);
    apply(&world, &agent(json!({})));
    let spec = json!({
        "taints": {"mode": "Reconcile", "required": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
        "runtimeClasses": {"mode": "Reconcile"},
    });
    world.create(&policy("windows", spec)).await;
    let _running = world.run(quick());
    let status = world
        .status_until("windows", "TaintsBlocked", "True", "WorkloadsAffected")
        .await;
    let message = world::message(&status, "TaintsBlocked");
    assert!(
        message.contains("DaemonSet.apps.kruise.io default/agent (its template does not tolerate"),
        "{message}"
    );
    // Its generation changes, so the guard runs again soon.
    apply(&world, &agent(tolerant(json!({}))));
    world.node_until("w22", is_tainted).await;

    // A Rollout at 0 names a class, and a ScaledJob without a Job selects by the mirror of the build label.
    let classes: Api<RuntimeClass> = Api::all(world.client.clone());
    let class = || async { classes.get_opt("windows-ltsc2022").await.unwrap() };
    world
        .wait_for(|| async { class().await.is_some() }, "the class is created")
        .await;
    let named = tolerant(json!({"runtimeClassName": "windows-ltsc2022"}));
    let mut rollout = object("argoproj.io/v1alpha1", "Rollout", "web", &[], &named);
    rollout["spec"]["replicas"] = json!(0);
    apply(&world, &rollout);
    let selects = tolerant(json!({"nodeSelector": {RESTRICTED_BUILD_LABEL: "10.0.20348"}}));
    let scaled = object(
        "keda.sh/v1alpha1",
        "ScaledJob",
        "scaled",
        &["jobTargetRef"],
        &selects,
    );
    apply(&world, &scaled);
    let disabled = json!({"spec": {"runtimeClasses": {"mode": "Disabled"},
        "labels": {"nodeRestriction": {"mode": "Disabled"}}}});
    world.patch_policy("windows", disabled).await;
    let reports = |status: &Value| {
        let drift = status["driftedNodes"].to_string();
        world::message(status, "RuntimeClassesReady").contains("used by Rollout default/web")
            && drift.contains("ScaledJob default/scaled select nodes by it")
    };
    world.status_where("windows", reports).await;
    assert!(class().await.is_some());
    assert_eq!(mirror(&world.node("w22").await), Some("10.0.20348"));

    world.kubectl(&["delete", "rollouts.argoproj.io/web", "scaledjobs.keda.sh/scaled"]);
    world.node_until("w22", |node| mirror(node).is_none()).await;
    world
        .wait_for(|| async { class().await.is_none() }, "the class goes")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_names_what_uses_the_label_removes_it_and_keeps_a_class_in_use() {
    let Some(world) = World::start().await else {
        return;
    };
    define(&world);
    world.create(&node("w22", "10.0.20348.2700", &[])).await;
    let managed = json!({"runtimeClasses": {"mode": "Reconcile"}});
    world.create(&policy("windows", managed)).await;
    let running = world.run(quick());
    world.node_until("w22", |node| mirror(node).is_some()).await;
    let classes: Api<RuntimeClass> = Api::all(world.client.clone());
    let class = || async { classes.get_opt("windows-ltsc2022").await.unwrap() };
    world
        .wait_for(|| async { class().await.is_some() }, "the class is created")
        .await;
    drop(running);
    let pod = json!({"runtimeClassName": "windows-ltsc2022", "nodeSelector": {RESTRICTED_BUILD_LABEL: "10.0.20348"}});
    let rollout = object("argoproj.io/v1alpha1", "Rollout", "web", &[], &pod);
    apply(&world, &rollout);

    let report = revert(&world.client, RevertOptions::default(), &[], false).await;
    assert_eq!(report.failures, [""; 0]);
    assert!(
        report.dangling.len() == 1
            && report.dangling[0].starts_with("Rollout default/web select nodes by the label"),
        "{report:?}"
    );
    assert!(
        report.kept.len() == 1 && report.kept[0].contains("still used by Rollout default/web"),
        "{report:?}"
    );
    assert!(class().await.is_some());
    assert_eq!(mirror(&world.node("w22").await), None);
    world.kubectl(&["delete", "rollouts.argoproj.io/web"]);
    let report = revert(&world.client, RevertOptions::default(), &[], false).await;
    assert!(
        report.kept.is_empty() && report.failures.is_empty() && report.dangling.is_empty(),
        "{report:?}"
    );
    assert!(class().await.is_none());
}
