//! The policy break-glass limits what the other policies do, and changes nothing else: with every fact about the cluster, pods are
//! placed as before, and what was evaluated still is.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::printed;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_tainted;
use crate::support::objects::workload;

/// In addition to those of the chart.
const TEAM_POLICY: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: windows-team}
spec: {mode: Enforce, priority: 10, namespaceSelector: {matchLabels: {team: windows}}, evidence: {defaultOS: Windows}}
";

/// Every fact that administrators can state.
const FACTS: &str = "
controllers: [{username: 'system:serviceaccount:kruise:controller', kinds: [CloneSet.apps.kruise.io]}]
podTemplates: [{group: example.com, kind: Fleet, path: spec.template}]
nodeLabels: [{key: machines, values: [west]}]
podNodeSelector: Enabled
defaultNodeSelector: {kubernetes.io/os: windows}
allowedTolerations: [{key: other, operator: Exists}]
";

const FLEETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Fleet, plural: fleets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

const CONTROLLER: &str = "system:serviceaccount:kruise:controller";

/// A create: its name, the namespace, the object, and the user.
type Attempt = (&'static str, &'static str, Value, Option<&'static str>);

fn pod(spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "pod-"},
        "spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1"}]}});
    json_patch::merge(&mut pod["spec"], spec);
    pod
}

/// One attempt for each fact, each of which has another result without it; and the last two, which are of no fact.
fn attempts() -> Vec<Attempt> {
    let windows = json!({"kubernetes.io/os": "windows"});
    let bad =
        json!({"hostPID": true, "containers": [{"name": "app", "image": "registry.example.com/app:1"}]});
    let mut of_clone_set = pod(&json!({"hostPID": true, "nodeSelector": windows}));
    of_clone_set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "c", "uid": "u", "controller": true}]);
    let mut for_windows = bad.clone();
    for_windows["nodeSelector"] = windows.clone();
    let fleet = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"generateName": "fleet-"},
        "spec": {"template": {"spec": for_windows}}});
    vec![
        ("controllers", "apps", of_clone_set, Some(CONTROLLER)),
        ("podTemplates", "apps", fleet, None),
        (
            "nodeLabels",
            "apps",
            pod(&json!({"nodeSelector": {"machines": "west"}})),
            None,
        ),
        (
            "podNodeSelector",
            "annotated",
            workload("Deployment", "web", &bad, 1),
            None,
        ),
        (
            "defaultNodeSelector",
            "apps",
            workload("Deployment", "web", &bad, 1),
            None,
        ),
        (
            "allowedTolerations",
            "apps",
            pod(&json!({"nodeSelector": windows})),
            None,
        ),
        ("defaultOS", "team", pod(&json!({})), None),
        (
            "a denied pod",
            "apps",
            pod(&json!({"hostPID": true, "nodeSelector": windows})),
            None,
        ),
    ]
}

/// What becomes of each attempt: where a pod may land, and whether a rule speaks of the object.
fn results(cluster: &ControlPlane) -> BTreeMap<&'static str, Value> {
    let all = attempts().into_iter().map(|(name, namespace, object, user)| {
        let mut arguments = vec![
            "create",
            "-n",
            namespace,
            "--dry-run=server",
            "-o",
            "json",
            "-f",
            "-",
        ];
        arguments.extend(user.iter().flat_map(|user| ["--as", user]));
        let printed = cluster.kubectl_with(&arguments, &object.to_string());
        let is_seen = printed.err.contains("TSM401");
        let placed = printed.ok.then(|| {
            let spec = printed.object()["spec"].take();
            ["os", "nodeSelector", "affinity", "tolerations"].map(|field| spec[field].clone())
        });
        assert!(printed.ok || is_seen, "{name}: {}", printed.err);
        (
            name,
            json!({"placed": placed, "isSeen": is_seen, "isDenied": !printed.ok}),
        )
    });
    all.collect()
}

fn start(cluster: &ControlPlane, name: &str, facts: &str) -> Replica {
    let facts = install::cluster_config(cluster, facts);
    let facts = facts.each_ref().map(String::as_str);
    let replica = Replica::start(cluster, name, &facts);
    let default_os = ["--default-os-selector", "team=windows"];
    install::register(cluster, replica.port, &[&facts[..], &default_os].concat());
    replica.is_ready(cluster);
    let denied = || {
        let pod = pod(&json!({"hostPID": true, "nodeSelector": {"kubernetes.io/os": "windows"}}));
        let create = ["create", "-n", "apps", "--dry-run=server", "-f", "-"];
        !cluster.kubectl_with(&create, &pod.to_string()).ok
    };
    assert!(
        wait(Duration::from_secs(60), denied),
        "{}",
        cluster.end_of_log(name)
    );
    replica
}

#[test]
fn break_glass_denies_nothing_and_places_with_every_fact_as_before() {
    let Some(cluster) = ControlPlane::start_or_skip("break-glass with facts about the cluster") else {
        return;
    };
    let taint = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    join_tainted(&cluster, "win-1", "10.0.20348", &[("machines", "west")], &taint);
    for (namespace, labels) in [
        ("apps", &[][..]),
        ("annotated", &[]),
        ("team", &[("team", "windows")]),
    ] {
        cluster.create_namespace(namespace, labels);
    }
    let annotation = "scheduler.alpha.kubernetes.io/node-selector=kubernetes.io/os=windows,machines=west";
    cluster
        .kubectl(&["annotate", "namespace", "annotated", annotation])
        .succeeded();
    let grant = [
        "create",
        "clusterrolebinding",
        "controller",
        "--clusterrole=cluster-admin",
        "--user",
        CONTROLLER,
    ];
    cluster.kubectl(&grant).succeeded();
    install::prepare(&cluster, &format!("{}---{TEAM_POLICY}", install::POLICIES));
    cluster.kubectl_with(&["apply", "-f", "-"], FLEETS).succeeded();
    cluster.wait_for_definitions();

    let _without = start(&cluster, "without", "{}");
    let without = results(&cluster);
    cluster.end("without", "TERM");
    let _with = start(&cluster, "with", FACTS);
    let with = results(&cluster);
    for (name, result) in &with {
        let is_of_a_fact = !["defaultOS", "a denied pod"].contains(name);
        assert!(!is_of_a_fact || without[name] != *result, "{name}: {result:#}");
    }
    assert_eq!(with["defaultOS"]["placed"][0]["name"], "windows");

    let break_glass = printed(&["generate", "break-glass"]);
    cluster
        .kubectl_with(&["apply", "-f", "-"], &break_glass)
        .succeeded();
    let denies_nothing = || {
        let all = results(&cluster);
        all.values().all(|result| result["isDenied"] == false)
    };
    assert!(
        wait(Duration::from_secs(60), denies_nothing),
        "{:#?}",
        results(&cluster)
    );
    for (name, result) in results(&cluster) {
        let before = &with[name];
        assert_eq!(result["isSeen"], before["isSeen"], "{name}");
        // What was denied was placed nowhere.
        if before["isDenied"] == false {
            assert_eq!(result["placed"], before["placed"], "{name}");
        }
    }
    // It is placed as a pod that nothing denies, but for `spec.os`, with which the API server would reject it.
    let denied = &results(&cluster)["a denied pod"]["placed"];
    let allowed = &with["allowedTolerations"]["placed"];
    for field in 1..4 {
        assert_eq!(denied[field], allowed[field]);
    }

    cluster.kubectl(&["delete", "wpp", "break-glass"]).succeeded();
    assert!(
        wait(Duration::from_secs(60), || results(&cluster) == with),
        "{:#?}",
        results(&cluster)
    );
}
