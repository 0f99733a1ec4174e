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
    assert_eq!(first.desired.len(), 1, "a ReplicaSet counts as its Deployment");
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
