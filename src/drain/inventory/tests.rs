use serde_json::{Value, json};

use super::super::tests::rules;
use super::*;

fn visited(objects: &[(Kind, Value)]) -> DrainInventory {
    let mut inventory = DrainInventory::default();
    for (kind, object) in objects {
        inventory.visit(*kind, &object.to_string()).unwrap();
    }
    inventory
}

fn owned_by(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true}])
}

#[test]
fn pods_belong_to_the_workload_above_their_replica_set() {
    let pod = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "1", "labels": {"app": "web"},
            "ownerReferences": owned_by("ReplicaSet", "web-5d")},
        "spec": {"nodeName": "old-1", "containers": [{"name": "a", "image": "web:1"}],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let mut pending = pod.clone();
    pending["metadata"]["name"] = "web-2".into();
    pending["metadata"]["uid"] = "2".into();
    pending["spec"]["nodeName"] = Value::Null;
    pending["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes are available"}]});
    let node = json!({"metadata": {"name": "old-1", "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"unschedulable": true}, "status": {"nodeInfo": {"operatingSystem": "windows"}}});
    let volume = json!({"metadata": {"name": "v"}, "spec": {"local": {"path": "c:\\data"},
        "claimRef": {"namespace": "shop", "name": "data"}}});
    let set = json!({"metadata": {"name": "web-5d", "namespace": "shop", "ownerReferences": owned_by("Deployment", "web")},
        "spec": {"replicas": 4}});
    let deployment = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 3}});
    let inventory = || {
        visited(&[
            (Kind::Node, node.clone()),
            (Kind::PersistentVolume, volume.clone()),
            (Kind::ReplicaSet, set.clone()),
            (Kind::Deployment, deployment.clone()),
            (Kind::Pod, pod.clone()),
            (Kind::Pod, pending.clone()),
        ])
    };
    let mut history = DrainHistory::default();
    let nodes = ["old-1".to_owned(), "gone".to_owned()];
    let minute = Duration::from_secs(60);
    let first = history.state(inventory(), &nodes, &rules(), minute);
    assert_eq!(first.nodes.len(), 1);
    assert!(first.nodes[0].is_cordoned);
    let [web, waiting] = first.pods.as_slice() else {
        panic!("{:?}", first.pods)
    };
    let owner = web.owner.as_ref().unwrap();
    assert_eq!(
        (owner.to_string().as_str(), first.desired[owner]),
        ("Deployment shop/web", 3)
    );
    assert!(web.has_empty_dir && web.is_ready && !web.is_terminating && !web.is_mirror);
    assert_eq!(web.claims, ["data", "web-1-e"]);
    assert!(
        first
            .node_claims
            .contains(&("shop".to_owned(), "data".to_owned()))
    );
    assert_eq!(waiting.unschedulable.as_deref(), Some("0/1 nodes are available"));
    assert_eq!((waiting.waits, first.idle), (Duration::ZERO, Duration::ZERO));
    let second = history.state(inventory(), &nodes, &rules(), minute * 3);
    assert_eq!((second.pods[1].waits, second.idle), (minute * 2, minute * 2));
}

#[test]
fn a_budget_is_zero_if_it_allows_nothing_even_with_all_pods_healthy() {
    let is_zero = |status: Value| {
        let mut inventory = DrainInventory::default();
        let budget = json!({"metadata": {"name": "b", "namespace": "shop"}, "spec": {"selector": {}}, "status": status});
        inventory.visit_budget(&budget.to_string()).unwrap();
        (inventory.budgets[0].is_zero, inventory.budgets[0].allowed)
    };
    let status = |desired, expected, allowed| json!({"desiredHealthy": desired, "expectedPods": expected, "currentHealthy": 1, "disruptionsAllowed": allowed});
    assert_eq!(is_zero(status(2, 3, 0)), (false, 0));
    assert_eq!(is_zero(status(2, 3, 1)), (false, 1));
    assert_eq!(is_zero(status(3, 3, 0)), (true, 0));
    assert_eq!(is_zero(json!({})), (false, 0), "not computed yet");
    let failed =
        json!({"conditions": [{"type": "DisruptionAllowed", "reason": "SyncFailed", "status": "False"}]});
    assert_eq!(is_zero(failed), (true, 0));
}

fn workload(kind: Kind, name: &str, owners: Value, replicas: u64) -> (Kind, Value) {
    let mut meta = json!({"name": name, "namespace": "shop"});
    meta["ownerReferences"] = owners;
    (kind, json!({"metadata": meta, "spec": {"replicas": replicas}}))
}

fn pod_of(name: &str, owners: Value) -> (Kind, Value) {
    let mut meta = json!({"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}});
    meta["ownerReferences"] = owners;
    let pod = json!({"metadata": meta, "spec": {"nodeName": "old-1", "containers": [{"name": "a", "image": "web:1"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    (Kind::Pod, pod)
}

fn windows_node(name: &str, taints: Value) -> (Kind, Value) {
    let mut node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}}, "spec": {},
        "status": {"nodeInfo": {"operatingSystem": "windows"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    node["spec"]["taints"] = taints;
    (Kind::Node, node)
}

fn state_of(history: &mut DrainHistory, inventory: DrainInventory, now: u64) -> DrainState {
    history.state(
        inventory,
        &["old-1".to_owned()],
        &rules(),
        Duration::from_secs(now),
    )
}

#[test]
fn a_custom_resource_that_owns_workloads_does_not_hide_their_replicas() {
    let shop = || owned_by("Shop", "main");
    let inventory = visited(&[
        windows_node("old-1", json!([])),
        workload(Kind::Deployment, "web", shop(), 1),
        workload(Kind::ReplicaSet, "web-5d", owned_by("Deployment", "web"), 1),
        workload(Kind::StatefulSet, "api", shop(), 3),
        workload(Kind::Job, "report-1", owned_by("CronJob", "report"), 1),
        pod_of("web-5d-1", owned_by("ReplicaSet", "web-5d")),
        pod_of("api-0", owned_by("StatefulSet", "api")),
        pod_of("report-1-a", owned_by("Job", "report-1")),
        pod_of("direct", shop()),
    ]);
    let state = state_of(&mut DrainHistory::default(), inventory, 0);
    let found = state.pods.iter().filter_map(|pod| {
        let owner = pod.owner.as_ref()?;
        Some((owner.to_string(), state.desired(owner)))
    });
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            ("Deployment shop/web".to_owned(), 1),
            ("StatefulSet shop/api".to_owned(), 3),
            ("CronJob shop/report".to_owned(), 1),
            ("Shop shop/main".to_owned(), 1)
        ]
    );
}

#[test]
fn a_workload_that_is_deleted_midway_gets_no_replicas_and_another_still_does() {
    let web = || workload(Kind::Deployment, "web", json!([]), 1);
    let pods = || {
        [
            pod_of("web-1", owned_by("Deployment", "web")),
            pod_of("other-1", owned_by("Shop", "main")),
        ]
    };
    let before = || visited(&[&[windows_node("old-1", json!([])), web()][..], &pods()].concat());
    let mut history = DrainHistory::default();
    let mut state = state_of(&mut history, before(), 0);
    for name in [state.pods[0].name.clone(), state.pods[1].name.clone()] {
        state.evicted(&name);
    }
    history.keep(&state);
    let moved = |state: DrainState| state.moved.into_keys().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(moved(state_of(&mut history, before(), 1)), ["web", "main"]);
    let deleted = visited(&[windows_node("old-1", json!([]))]);
    assert_eq!(moved(state_of(&mut history, deleted, 2)), ["main"]);
}

#[test]
fn a_budget_is_not_zero_because_a_pod_is_missing_for_a_moment() {
    let is_zero = |replicas, expected| {
        let mut inventory = visited(&[
            windows_node("old-1", json!([])),
            workload(Kind::StatefulSet, "web", json!([]), replicas),
            pod_of("web-0", owned_by("StatefulSet", "web")),
        ]);
        let budget = json!({"metadata": {"name": "b", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"desiredHealthy": 2, "expectedPods": expected, "currentHealthy": expected}});
        inventory.visit_budget(&budget.to_string()).unwrap();
        state_of(&mut DrainHistory::default(), inventory, 0).budgets[0].is_zero
    };
    assert!(!is_zero(3, 3));
    assert!(!is_zero(3, 2), "the StatefulSet is about to create the third");
    assert!(is_zero(2, 2));
}

#[test]
fn a_pod_may_wait_for_a_node_that_the_start_gate_keeps() {
    let gate = json!([{"key": Taint::STARTUP_KEY, "effect": "NoSchedule"}]);
    let (_, mut waiting) = pod_of("web-1", owned_by("StatefulSet", "web"));
    waiting["spec"]["nodeName"] = Value::Null;
    waiting["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/2 nodes are available"}]});
    let mut history = DrainHistory::default();
    let mut waits = |taints: &Value, now| {
        let inventory = visited(&[
            windows_node("old-1", json!([])),
            windows_node("new-1", taints.clone()),
            (Kind::Pod, waiting.clone()),
        ]);
        let state = state_of(&mut history, inventory, now);
        (state.pods[0].waits.as_secs(), state.pods[0].unready.as_secs())
    };
    assert_eq!(waits(&json!([]), 0), (0, 0));
    assert_eq!(waits(&json!([]), 100), (100, 100));
    assert_eq!(waits(&gate, 700), (0, 700));
    assert_eq!(waits(&json!([]), 800), (100, 800));
}
