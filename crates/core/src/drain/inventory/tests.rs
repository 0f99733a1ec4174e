use serde_json::{Value, json};

use super::super::tests::rules;
use super::super::{DrainHistory, DrainRules, DrainState, EvictionAnswer};
use super::*;

fn visited(objects: &[(Kind, Value)]) -> DrainInventory {
    let mut inventory = DrainInventory::default();
    for (kind, object) in objects {
        inventory.visit(*kind, &object.to_string()).unwrap();
    }
    inventory
}

fn owned_by(kind: &str, name: &str) -> Value {
    let version = match kind {
        "Job" | "CronJob" => "batch/v1",
        "Deployment" | "ReplicaSet" | "StatefulSet" => "apps/v1",
        _ => "example.com/v1",
    };
    json!([{"apiVersion": version, "kind": kind, "name": name, "controller": true}])
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
    // It was Pending before the drain, which is not the drain's failure.
    history.state(&DrainInventory::default(), &nodes, &rules(), Duration::ZERO);
    let first = history.state(&inventory(), &nodes, &rules(), minute);
    assert!(
        first.nodes.iter().all(|node| node.is_cordoned),
        "nothing is scheduled on a node that is gone"
    );
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
    assert_eq!(
        (waiting.waits, first.idle[owner]),
        (Duration::ZERO, Duration::ZERO)
    );
    let second = history.state(&inventory(), &nodes, &rules(), minute * 3);
    assert_eq!(
        (second.pods[1].waits, second.idle[owner]),
        (minute * 2, minute * 2)
    );
}

#[test]
fn a_budget_is_zero_if_it_allows_nothing_even_with_all_pods_healthy() {
    let is_zero = |status: Value| {
        let mut inventory = DrainInventory::default();
        let budget = json!({"metadata": {"name": "b", "namespace": "shop"}, "spec": {"selector": {}}, "status": status});
        inventory.visit_budget(&budget.to_string()).unwrap();
        let budget = &inventory.spaces["shop"].budgets[0];
        (budget.is_zero, budget.allowed)
    };
    let status = |desired, expected, allowed| json!({"desiredHealthy": desired, "expectedPods": expected, "currentHealthy": 1, "disruptionsAllowed": allowed});
    assert_eq!(is_zero(status(2, 3, 0)), (false, 0));
    assert_eq!(is_zero(status(2, 3, 1)), (false, 1));
    assert_eq!(is_zero(status(3, 3, 0)), (true, 0));
    assert_eq!(is_zero(json!({})), (false, 0), "not computed yet");
    assert_eq!(
        is_zero(json!({"observedGeneration": 1})),
        (true, 0),
        "of pods without a controller"
    );
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

fn state_of(history: &mut DrainHistory, inventory: &DrainInventory, now: u64) -> DrainState {
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
    let state = state_of(&mut DrainHistory::default(), &inventory, 0);
    let found = state.pods.iter().filter_map(|pod| {
        let owner = pod.owner.as_ref()?;
        Some((owner.to_string(), state.desired[owner]))
    });
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            ("Deployment shop/web".to_owned(), 1),
            ("StatefulSet shop/api".to_owned(), 3),
            ("CronJob shop/report".to_owned(), 1),
            ("Shop.example.com shop/main".to_owned(), 1)
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
    let mut state = state_of(&mut history, &before(), 0);
    for name in [state.pods[0].name.clone(), state.pods[1].name.clone()] {
        history.answered(&mut state, &name, &EvictionAnswer::Accepted);
    }
    let moved = |state: DrainState| state.moved.into_keys().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(moved(state_of(&mut history, &before(), 1)), ["web", "main"]);
    let deleted = visited(&[windows_node("old-1", json!([]))]);
    assert_eq!(moved(state_of(&mut history, &deleted, 2)), ["main"]);
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
        state_of(&mut DrainHistory::default(), &inventory, 0).budgets[0].is_zero
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
    let first = visited(&[windows_node("old-1", json!([]))]);
    state_of(&mut history, &first, 0);
    let mut waits = |taints: &Value, now| {
        let inventory = visited(&[
            windows_node("old-1", json!([])),
            windows_node("new-1", taints.clone()),
            (Kind::Pod, waiting.clone()),
        ]);
        let state = state_of(&mut history, &inventory, now);
        (state.pods[0].waits.as_secs(), state.pods[0].unready.as_secs())
    };
    assert_eq!(waits(&json!([]), 0), (0, 0));
    assert_eq!(waits(&json!([]), 100), (100, 100));
    assert_eq!(waits(&gate, 700), (0, 700));
    assert_eq!(waits(&json!([]), 800), (100, 800));
}

fn named(owners: &Value, group: &str) -> Value {
    let mut owners = owners.clone();
    owners[0]["apiVersion"] = format!("{group}/v1").into();
    owners
}

#[test]
fn kinds_of_the_same_name_in_different_groups_are_different_owners() {
    let of_kruise = named(&owned_by("StatefulSet", "db"), "apps.kruise.io");
    let mut inventory = visited(&[
        windows_node("old-1", json!([])),
        workload(Kind::StatefulSet, "db", json!([]), 0),
        pod_of("db-0", of_kruise.clone()),
        pod_of("db-1", of_kruise),
    ]);
    let unknown = state_of(&mut DrainHistory::default(), &inventory, 0);
    let owner = unknown.pods[0].owner.clone().unwrap();
    assert!(unknown.unknown.contains(&owner), "{owner}");
    let asked = inventory.scaled_owners("shop", &["old-1".to_owned()], &BTreeSet::new());
    assert_eq!(asked, [(owner.clone(), "apps.kruise.io/v1".to_owned())]);
    inventory.scaled(&owner, Some(2));
    let known = state_of(&mut DrainHistory::default(), &inventory, 0);
    assert_eq!((known.desired[&owner], known.unknown.len()), (2, 0));
    assert_eq!(known.available(&owner), 2);
}

#[test]
fn the_replica_sets_of_a_rollout_share_the_replicas_of_their_owner() {
    let rollout = owned_by("Rollout", "web");
    let mut inventory = visited(&[
        windows_node("old-1", json!([])),
        workload(Kind::ReplicaSet, "web-stable", rollout.clone(), 5),
        workload(Kind::ReplicaSet, "web-canary", rollout, 1),
        pod_of("a", owned_by("ReplicaSet", "web-stable")),
        pod_of("b", owned_by("ReplicaSet", "web-canary")),
    ]);
    let state = state_of(&mut DrainHistory::default(), &inventory, 0);
    let owner = state.pods[0].owner.clone().unwrap();
    assert_eq!(state.pods[1].owner.as_ref(), Some(&owner));
    assert_eq!(
        state.desired[&owner], 6,
        "without a scale subresource, those of its ReplicaSets"
    );
    // Some count something else, for example shards.
    for (scale, desired) in [(None, 6), (Some(1), 6), (Some(8), 8)] {
        inventory.scaled(&owner, scale);
        let state = state_of(&mut DrainHistory::default(), &inventory, 0);
        assert_eq!(state.desired[&owner], desired);
    }
}

#[test]
fn a_replica_is_available_when_it_was_ready_from_one_list_to_another_for_long_enough() {
    let mut history = DrainHistory::default();
    let mut available = |min_ready: u64, started: u64, took: u64| {
        let (_, mut web) = workload(Kind::StatefulSet, "web", json!([]), 1);
        web["spec"]["minReadySeconds"] = min_ready.into();
        let (_, pod) = pod_of("web-0", owned_by("StatefulSet", "web"));
        let mut inventory = visited(&[
            windows_node("old-1", json!([])),
            (Kind::StatefulSet, web),
            (Kind::Pod, pod),
        ]);
        let seconds = Duration::from_secs;
        inventory.read_in(ReadTime {
            started: seconds(started),
            took: seconds(took),
        });
        let rules = DrainRules {
            min_ready: seconds(10),
            ..rules()
        };
        let state = history.state(&inventory, &["old-1".to_owned()], &rules, seconds(started + took));
        state.pods[0].is_available()
    };
    // First seen at 4.
    assert!(!available(0, 0, 4) && !available(0, 13, 3) && available(0, 14, 3));
    assert!(!available(30, 33, 3) && available(30, 34, 0));
}

#[test]
fn a_workload_in_a_rollout_is_known_as_one() {
    let is_rolling = |kind: Kind, spec: Value, status: Value| {
        let object = json!({"metadata": {"name": "web", "namespace": "shop", "generation": 2}, "spec": spec, "status": status});
        let state = state_of(&mut DrainHistory::default(), &visited(&[(kind, object)]), 0);
        state.rolling.len() == 1
    };
    let status = |observed, replicas, updated| json!({"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated});
    let spec = json!({"replicas": 3});
    for (observed, replicas, updated, expected) in [
        (2, 3, 3, false),
        (1, 3, 3, true),
        (2, 4, 3, true),
        (2, 3, 2, true),
    ] {
        let found = is_rolling(
            Kind::Deployment,
            spec.clone(),
            status(observed, replicas, updated),
        );
        assert_eq!(found, expected, "{observed} {replicas} {updated}");
    }
    let partition =
        |partition| json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": partition}}});
    assert!(is_rolling(Kind::StatefulSet, spec, status(2, 3, 1)));
    assert!(is_rolling(Kind::StatefulSet, partition(1), status(2, 3, 1)));
    assert!(!is_rolling(Kind::StatefulSet, partition(2), status(2, 3, 1)));
    assert!(!is_rolling(
        Kind::Deployment,
        json!({"replicas": 3, "paused": true}),
        status(2, 4, 1)
    ));
}

#[test]
fn a_volume_is_on_the_drained_nodes_if_no_other_node_matches_its_affinity() {
    let is_on_node = |spec: Value| {
        let mut volume =
            json!({"metadata": {"name": "v"}, "spec": {"claimRef": {"namespace": "shop", "name": "data"}}});
        let fields = volume["spec"].as_object_mut().unwrap();
        fields.extend(spec.as_object().unwrap().clone());
        let (_, mut pod) = pod_of("web-0", owned_by("StatefulSet", "web"));
        pod["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
        let node = |name: &str, zone: &str| {
            let (kind, mut node) = windows_node(name, json!([]));
            node["metadata"]["labels"]["zone"] = zone.into();
            (kind, node)
        };
        let inventory = visited(&[
            node("old-1", "a"),
            node("new-1", "b"),
            (Kind::PersistentVolume, volume),
            (Kind::Pod, pod),
        ]);
        !state_of(&mut DrainHistory::default(), &inventory, 0)
            .node_claims
            .is_empty()
    };
    let affinity = |zones: &[&str]| {
        json!({"csi": {"driver": "disk.example.com"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": zones}]}]}}})
    };
    assert!(is_on_node(affinity(&["a"])));
    assert!(!is_on_node(affinity(&["a", "b"])));
    assert!(is_on_node(json!({"hostPath": {"path": "c:\\data"}})));
    assert!(!is_on_node(json!({"csi": {"driver": "disk.example.com"}})));
}

#[test]
fn an_eviction_without_an_answer_may_be_carried_out_for_a_while_and_a_refused_one_pauses() {
    let inventory = || {
        visited(&[
            windows_node("old-1", json!([])),
            workload(Kind::StatefulSet, "web", json!([]), 2),
            pod_of("web-0", owned_by("StatefulSet", "web")),
        ])
    };
    let mut history = DrainHistory::default();
    let mut state = state_of(&mut history, &inventory(), 0);
    let name = state.pods[0].name.clone();
    history.answered(&mut state, &name, &EvictionAnswer::Unknown("504".to_owned()));
    let mut pod_at = |now| state_of(&mut history, &inventory(), now).pods.remove(0);
    assert!(pod_at(1).refused.is_some() && !pod_at(1).is_available());
    assert!(pod_at(6).refused.is_none() && !pod_at(74).is_available() && pod_at(75).is_available());
    let mut refused_for = Vec::new();
    for now in [100, 200, 300] {
        let mut state = state_of(&mut history, &inventory(), now);
        history.answered(&mut state, &name, &EvictionAnswer::NotNow("429".to_owned()));
        let is_over = |seconds: &u64| {
            state_of(&mut history, &inventory(), now + seconds).pods[0]
                .refused
                .is_none()
        };
        refused_for.push((1..1_000).find(is_over).unwrap());
    }
    assert_eq!(refused_for, [10, 20, 40]);
}

#[test]
fn a_pod_that_comes_to_a_cordoned_node_after_an_eviction_of_its_workload_is_found() {
    let inventory = |pods: &[&str], is_cordoned: bool| {
        let (kind, mut node) = windows_node("old-1", json!([]));
        node["spec"]["unschedulable"] = is_cordoned.into();
        let mut all = vec![(kind, node), workload(Kind::StatefulSet, "web", json!([]), 3)];
        all.extend(
            pods.iter()
                .map(|name| pod_of(name, owned_by("StatefulSet", "web"))),
        );
        visited(&all)
    };
    let mut history = DrainHistory::default();
    state_of(&mut history, &inventory(&["a", "b"], false), 0);
    let mut state = state_of(&mut history, &inventory(&["a", "b", "c"], true), 1);
    assert_eq!(state.returned, None, "it came before the first eviction");
    let name = state.pods[0].name.clone();
    history.answered(&mut state, &name, &EvictionAnswer::Accepted);
    assert_eq!(
        state_of(&mut history, &inventory(&["b", "c", "d"], false), 2).returned,
        None,
        "the node was open"
    );
    let returned = state_of(&mut history, &inventory(&["b", "c", "d", "e"], true), 3).returned;
    assert_eq!(returned.map(|(pod, _)| pod.name).as_deref(), Some("e"));
}

#[test]
fn a_node_that_comes_back_under_its_name_is_another_node() {
    let inventory = |uid: &str| {
        let (kind, mut node) = windows_node("old-1", json!([]));
        node["metadata"]["uid"] = uid.into();
        visited(&[
            (kind, node),
            workload(Kind::StatefulSet, "web", json!([]), 2),
            pod_of("web-0", owned_by("StatefulSet", "web")),
        ])
    };
    let rules = DrainRules {
        min_ready: Duration::from_secs(10),
        ..rules()
    };
    let of = |history: &mut DrainHistory, uid: &str, now| {
        let mut inventory = inventory(uid);
        let started = Duration::from_secs(now);
        inventory.read_in(ReadTime {
            started,
            ..ReadTime::default()
        });
        history.state(&inventory, &["old-1".to_owned()], &rules, started)
    };
    let mut history = DrainHistory::default();
    of(&mut history, "first", 0);
    let same = of(&mut history, "first", 10);
    assert!(same.nodes.len() == 1 && same.pods[0].is_available());
    let mut history = history.restarted();
    let another = of(&mut history, "second", 11);
    assert_eq!(another.nodes, []);
    assert_eq!(another.to_move(&rules).count(), 0);
    assert!(
        !another.pods[0].is_available(),
        "that it is Ready was written about the former node"
    );
    assert!(of(&mut history, "second", 21).pods[0].is_available());
}
