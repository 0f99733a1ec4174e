//! Who would be hurt by a taint, object by object.

#![allow(clippy::needless_pass_by_value)] // so that cases can be written with json!

use super::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn taints() -> Vec<Taint> {
    vec![Taint::no_schedule("os", "windows")]
}

/// Who is hurt, where placement applies in the namespace `placed` only.
fn hurt_by(taints: &[Taint], view: &ClusterView, objects: &[(Kind, Value)]) -> Vec<String> {
    let placement = |namespace: &str| namespace == "placed";
    let mut guard = Guard::new(taints, ["win1"], view, &placement);
    for (kind, object) in objects {
        guard.look(*kind, &object.to_string());
    }
    guard.hurt().0
}

fn hurt(objects: &[(Kind, Value)]) -> Vec<String> {
    hurt_by(&taints(), &ClusterView::default(), objects)
}

fn template(kind: Kind, namespace: &str, name: &str, spec: Value) -> (Kind, Value) {
    let meta = json!({"namespace": namespace, "name": name});
    let object = match kind {
        Kind::CronJob => {
            json!({"metadata": meta, "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})
        }
        _ => json!({"metadata": meta, "spec": {"template": {"spec": spec}}}),
    };
    (kind, object)
}

fn windows(more: Value) -> Value {
    let mut spec =
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "x"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

fn tolerating() -> Value {
    json!({"tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]})
}

fn owned_by(mut object: (Kind, Value), kind: &str, name: &str, api_version: &str) -> (Kind, Value) {
    object.1["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "controller": true}]);
    object
}

fn pod(namespace: &str, name: &str, spec: Value, node: &str) -> (Kind, Value) {
    let mut spec = spec;
    if !node.is_empty() {
        spec["nodeName"] = json!(node);
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    (
        Kind::Pod,
        json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": ready}),
    )
}

#[test]
fn a_windows_template_without_the_toleration_is_hurt_where_placement_does_not_apply() {
    for kind in [
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::ReplicaSet,
        Kind::Job,
        Kind::CronJob,
        Kind::ReplicationController,
    ] {
        let found = hurt(&[
            template(kind, "bare", "web", windows(json!({}))),
            template(kind, "placed", "web", windows(json!({}))),
            template(kind, "bare", "good", windows(tolerating())),
            template(
                kind,
                "bare",
                "linux",
                json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
            ),
            template(kind, "bare", "unknown", json!({})),
        ]);
        assert_eq!(
            found,
            [format!(
                "{kind} bare/web (its template does not tolerate os=windows:NoSchedule)"
            )]
        );
    }
}

#[test]
fn a_daemonset_needs_the_toleration_in_its_template_wherever_it_is() {
    let found = hurt(&[
        template(Kind::DaemonSet, "placed", "agent", windows(json!({}))),
        template(Kind::DaemonSet, "placed", "good", windows(tolerating())),
    ]);
    assert_eq!(
        found,
        ["DaemonSet placed/agent (its template does not tolerate os=windows:NoSchedule)"]
    );
}

#[test]
fn an_unselective_daemonset_is_hurt_where_it_runs_on_windows() {
    let bare = json!({"containers": [{"name": "c", "image": "x"}]});
    let everything =
        json!({"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "x"}]});
    let of = |pod, name| owned_by(pod, "DaemonSet", name, "apps/v1");
    let found = hurt(&[
        template(Kind::DaemonSet, "placed", "logs", bare.clone()),
        of(pod("placed", "logs-1", bare.clone(), "win1"), "logs"),
        of(pod("placed", "cni-1", everything, "win1"), "cni"),
        of(pod("placed", "other-1", bare, "linux1"), "other"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("DaemonSet placed/logs (it selects no operating system"));
}

#[test]
fn pods_are_judged_at_their_owner_and_by_themselves_where_nobody_known_owns_them() {
    let found = hurt(&[
        template(Kind::Deployment, "bare", "web", windows(tolerating())),
        owned_by(
            template(Kind::ReplicaSet, "bare", "web-1", windows(json!({}))),
            "Deployment",
            "web",
            "apps/v1",
        ),
        owned_by(
            pod("bare", "web-1-a", windows(json!({})), "win1"),
            "ReplicaSet",
            "web-1",
            "apps/v1",
        ),
        owned_by(
            template(Kind::ReplicaSet, "bare", "roll-1", windows(json!({}))),
            "Rollout",
            "roll",
            "argoproj.io/v1",
        ),
        owned_by(
            pod("bare", "spark-1", windows(json!({})), "win1"),
            "SparkApplication",
            "spark",
            "x.io/v1",
        ),
        pod("bare", "alone", windows(json!({})), "win1"),
        pod("placed", "runs", windows(json!({})), "win1"),
        pod("placed", "waits", windows(json!({})), ""),
    ]);
    let names: Vec<&str> = found
        .iter()
        .map(|text| text.split(" (").next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Pod bare/alone",
            "ReplicaSet bare/roll-1",
            "SparkApplication bare/spark",
            "Pod placed/waits"
        ]
    );
}

#[test]
fn a_pod_that_waits_for_a_node_is_judged_as_itself_whatever_its_template_says_now() {
    let of = |pod, kind: &str| owned_by(pod, kind, "web", "apps/v1");
    let found = hurt(&[
        template(Kind::ReplicaSet, "placed", "web", windows(json!({}))),
        template(Kind::StatefulSet, "bare", "web", windows(tolerating())),
        template(Kind::DaemonSet, "bare", "web", windows(tolerating())),
        of(pod("placed", "web-old", windows(json!({})), ""), "ReplicaSet"),
        of(pod("placed", "web-new", windows(tolerating()), ""), "ReplicaSet"),
        of(
            pod("placed", "web-runs", windows(json!({})), "win1"),
            "ReplicaSet",
        ),
        of(pod("bare", "web-0", windows(json!({})), ""), "StatefulSet"),
        of(pod("bare", "web-d", windows(json!({})), ""), "DaemonSet"),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[1].starts_with("ReplicaSet placed/web (pods of it wait for a node"),
        "{found:?}"
    );
    assert!(
        found[0].starts_with("StatefulSet bare/web (pods of it wait for a node"),
        "{found:?}"
    );
}

#[test]
fn finished_and_deleted_things_are_not_hurt() {
    let mut job = template(Kind::Job, "bare", "done", windows(json!({})));
    job.1["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let mut gone = template(Kind::Deployment, "bare", "gone", windows(json!({})));
    gone.1["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(hurt(&[job, gone]), Vec::<String>::new());
}

#[test]
fn a_runtime_class_that_tolerates_helps_all_but_daemonsets() {
    let class = serde_json::from_value(json!({
        "metadata": {"name": "win"}, "handler": "runhcs-wcow-process",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"},
            "tolerations": [{"key": "os", "operator": "Exists"}]},
    }));
    let view = ClusterView {
        runtime_classes: [("win".to_owned(), Arc::new(class.unwrap()))].into(),
        ..ClusterView::default()
    };
    let spec = json!({"runtimeClassName": "win", "containers": [{"name": "c", "image": "x"}]});
    let found = hurt_by(
        &taints(),
        &view,
        &[
            template(Kind::Deployment, "bare", "web", spec.clone()),
            template(Kind::DaemonSet, "bare", "agent", spec),
        ],
    );
    assert_eq!(
        found,
        ["DaemonSet bare/agent (its template does not tolerate os=windows:NoSchedule)"]
    );
}

#[test]
fn placement_helps_only_with_taints_that_it_learns_and_within_the_whitelist() {
    let own = [Taint::no_schedule("team", "blue")];
    let web = [template(Kind::Deployment, "placed", "web", windows(json!({})))];
    assert_eq!(hurt_by(&own, &ClusterView::default(), &web).len(), 1);
    for (whitelist, count) in [
        ("[]", 0),
        (r#"[{"key": "team"}]"#, 1),
        (r#"[{"key": "os", "operator": "Exists"}]"#, 0),
        ("x", 1),
    ] {
        let namespace = crate::controller::view::NamespaceView {
            tolerations_whitelist: Some(whitelist.to_owned()),
            ..Default::default()
        };
        let view = ClusterView {
            namespaces: [("placed".to_owned(), Arc::new(namespace))].into(),
            ..ClusterView::default()
        };
        assert_eq!(hurt_by(&taints(), &view, &web).len(), count, "{whitelist}");
    }
}

#[test]
fn no_execute_hurts_whatever_runs_there_and_does_not_tolerate_it() {
    let evict = [Taint {
        effect: "NoExecute".into(),
        ..Taint::no_schedule("os", "windows")
    }];
    let spec = json!({"containers": [{"name": "c", "image": "x"}]});
    let run = owned_by(
        pod("placed", "web-1-a", spec, "win1"),
        "ReplicaSet",
        "web-1",
        "apps/v1",
    );
    let set = owned_by(
        template(Kind::ReplicaSet, "placed", "web-1", json!({})),
        "Deployment",
        "web",
        "apps/v1",
    );
    let found = hurt_by(&evict, &ClusterView::default(), &[set, run]);
    assert_eq!(
        found,
        ["Deployment placed/web (its pods would be evicted, as they do not tolerate os=windows:NoExecute)"]
    );
}

#[test]
fn the_message_names_twenty_says_what_to_write_and_speaks_of_the_platforms() {
    let many = Hurt((0..23).map(|i| format!("Deployment a/d{i} (x)")).collect());
    let text = many.message(&[
        Taint::no_schedule("windows", "true"),
        Taint::no_schedule("dedicated", ""),
    ]);
    assert!(
        text.contains("23 workloads") && text.contains("a/d19") && !text.contains("a/d20"),
        "{text}"
    );
    assert!(text.contains("and 3 more"));
    assert!(text.contains(
        "tolerations: [{key: windows, operator: Equal, value: \"true\", effect: NoSchedule}, {key: dedicated, operator: \
         Exists, effect: NoSchedule}]"
    ));
    for platform in ["AKS", "EKS", "GKE", "OpenShift"] {
        assert!(text.contains(platform));
    }
}
