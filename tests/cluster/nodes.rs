//! The controller of nodes and RuntimeClasses on a real API server, called in this process. Without the programs of
//! envtest in `$KUBEBUILDER_ASSETS` or `/usr/local/kubebuilder/bin` these tests say so and prove nothing.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::world::{self, World, node, policy, quick};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use transom::api::WindowsNodePolicy;
use transom::cluster::node::{NodeView, OWNED_ANNOTATION, WatchedNode};
use transom::cluster::stored_node_policies::NodePolicy;
use transom::controller::node_policies::nodes::apply::{ApplyResult, apply};
use transom::controller::node_policies::nodes::plan::{DesiredNode, KeepOptions, LabelUse, plan};
use transom::controller::node_policies::revert::{RevertOptions, revert};
use transom::controller::writer::Writer;
use transom::model::nodes::node::{BUILD_LABEL, RESTRICTED_BUILD_LABEL};

const LTSC2022: &str = "10.0.20348.2700";
const LTSC2019: &str = "10.0.17763.5000";

/// A world of its own, or `None` where there are no programs to make one of.
macro_rules! world {
    () => {
        match World::start().await {
            Some(world) => world,
            None => return,
        }
    };
}

fn label<'n>(node: &'n Value, key: &str) -> Option<&'n str> {
    node["metadata"]["labels"][key].as_str()
}

fn owned(node: &Value) -> Option<&str> {
    node["metadata"]["annotations"][OWNED_ANNOTATION].as_str()
}

/// The taints of a node, but those that the API server itself puts on a new one.
fn taints(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter()
        .filter(|taint| taint["key"] != "node.kubernetes.io/not-ready")
        .map(|taint| {
            let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
            format!("{}={}:{}", text("key"), text("value"), text("effect"))
        })
        .collect()
}

/// What of a node must be the same before a policy came and after it went.
fn lasting(node: &Value) -> Value {
    let mut node = node.clone();
    let meta = node["metadata"].as_object_mut().unwrap();
    meta.remove("resourceVersion");
    meta.remove("managedFields");
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn build_labels_are_corrected_with_an_event_that_says_from_what_to_what() {
    let world = world!();
    world.create(&node("missing", LTSC2022, &[])).await;
    world
        .create(&node("stale", LTSC2022, &[(BUILD_LABEL, "10.0.17763")]))
        .await;
    let forged = [
        (BUILD_LABEL, "10.0.20348"),
        (RESTRICTED_BUILD_LABEL, "10.0.26100"),
    ];
    world.create(&node("forged", LTSC2022, &forged)).await;
    world
        .create(&node("odd", LTSC2022, &[(BUILD_LABEL, &"x".repeat(63))]))
        .await;
    world.create(&policy("windows", json!({}))).await;
    let _running = world.run(quick());
    for name in ["missing", "stale", "forged", "odd"] {
        let right = |node: &Value| {
            label(node, BUILD_LABEL) == Some("10.0.20348")
                && label(node, RESTRICTED_BUILD_LABEL) == Some("10.0.20348")
        };
        world.node_until(name, right).await;
    }
    world
        .event_until(
            "missing",
            "label node.kubernetes.io/windows-build: absent → \"10.0.20348\"",
        )
        .await;
    world
        .event_until(
            "stale",
            "label node.kubernetes.io/windows-build: \"10.0.17763\" → \"10.0.20348\"",
        )
        .await;
    let mirror =
        "label transom.dev.node-restriction.kubernetes.io/windows-build: \"10.0.26100\" → \"10.0.20348\"";
    world.event_until("forged", mirror).await;
    let status = world.status_until("windows", "Ready", "True", "Drifted").await;
    assert_eq!(
        (&status["nodeCount"], &status["buildSummary"]),
        (&json!(4), &json!("ltsc2022 4"))
    );
    assert_eq!(status["observedGeneration"], 1);
    let described = world.kubectl(&["describe", "node", "stale"]);
    assert!(described.contains("LabelCorrected") && described.contains("\"10.0.17763\" → \"10.0.20348\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_writes_another_build_is_corrected_ever_more_slowly() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    world.create(&policy("windows", json!({}))).await;
    let _running = world.run(transom::controller::node_policies::NodeControllerSettings {
        back_off: Duration::from_millis(100),
        ..quick()
    });
    let nodes: Api<Node> = Api::all(world.client.clone());
    let until = Instant::now() + Duration::from_secs(15);
    let (mut forged, mut corrected) = (0, 0);
    let mut last = None;
    while Instant::now() < until {
        let node = world.node("w1").await;
        if label(&node, BUILD_LABEL) == Some("10.0.20348") {
            corrected += usize::from(last.replace(true) != Some(true));
            let patch = json!({"metadata": {"labels": {BUILD_LABEL: "10.0.17763"}}});
            nodes
                .patch("w1", &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .unwrap();
            forged += 1;
            last = Some(false);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("another writer forged the label {forged} times in 15 s and was corrected {corrected} times");
    // 100 ms, 200 ms, … : eight corrections take 12.7 s.
    assert!((4..=9).contains(&corrected), "{corrected}");
    world
        .status_until("windows", "Conflicted", "True", "OverwrittenByOtherClient")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_another_writer_is_lost() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    let taint = |value: &str| json!({"taints": {"mode": "Reconcile", "required": [{"key": "os", "value": value, "effect": "NoSchedule"}]}});
    world.create(&policy("windows", taint("windows"))).await;
    let _running = world.run(transom::controller::node_policies::NodeControllerSettings {
        back_off: Duration::from_millis(10),
        ..quick()
    });
    let mut mine: BTreeSet<String> = BTreeSet::new();
    let nodes: Api<Node> = Api::all(world.client.clone());
    let (mut writes, mut conflicts) = (0, 0);
    // Adds two taints and a label, removes one of each, again and again, as careful writers do: with the version that
    // was read. Meanwhile the policy changes its mind about its own taint, and another writer forges the build label.
    for round in 0..300_usize {
        if round % 10 == 0 {
            let value = if round % 20 == 0 { "Windows" } else { "windows" };
            world.patch_policy("windows", json!({"spec": taint(value)})).await;
        }
        loop {
            let mut node = nodes.get("w1").await.unwrap();
            let list = node.spec.as_mut().unwrap().taints.get_or_insert_default();
            if round % 3 == 2 {
                let gone = format!("mine-{}", round - 2);
                list.retain(|taint| taint.key != gone);
                mine.remove(&gone);
            } else {
                let key = format!("mine-{round}");
                list.push(serde_json::from_value(json!({"key": key, "effect": "PreferNoSchedule"})).unwrap());
                mine.insert(key);
            }
            let labels = node.metadata.labels.as_mut().unwrap();
            labels.insert(format!("mine/{}", round % 7), round.to_string());
            if round % 5 == 0 {
                labels.insert(BUILD_LABEL.to_owned(), "10.0.17763".to_owned());
            }
            match nodes.replace("w1", &PostParams::default(), &node).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 409 => conflicts += 1,
                Err(error) => panic!("{error}"),
            }
        }
        writes += 1;
    }
    world
        .patch_policy("windows", json!({"spec": taint("windows")}))
        .await;
    let settled = |node: &Value| {
        label(node, BUILD_LABEL) == Some("10.0.20348")
            && taints(node).contains(&"os=windows:NoSchedule".to_owned())
    };
    let node = world.node_until("w1", settled).await;
    println!("another writer wrote {writes} times, with {conflicts} conflicts of its own");
    let theirs: BTreeSet<String> = (taints(&node).iter())
        .filter_map(|text| text.strip_suffix("=:PreferNoSchedule").map(str::to_owned))
        .collect();
    assert_eq!(theirs, mine);
    for slot in 0..7 {
        let last = (0..300).rev().find(|round| round % 7 == slot).unwrap();
        assert_eq!(
            label(&node, &format!("mine/{slot}")),
            Some(last.to_string().as_str())
        );
    }
    assert_eq!(taints(&node).len(), mine.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn taints_are_reported_then_refused_while_a_workload_would_be_affected_then_set_and_taken_back() {
    let world = world!();
    let foreign = json!([{"key": "team", "value": "blue", "effect": "PreferNoSchedule"}]);
    for (name, labels) in [
        ("w1", [(BUILD_LABEL, "10.0.20348")]),
        ("w2", [(BUILD_LABEL, "10.0.17763")]),
    ] {
        let mut node = node(name, LTSC2022, &labels);
        node["spec"]["taints"] = foreign.clone();
        node["metadata"]["annotations"] = json!({"theirs": "stays"});
        world.create(&node).await;
    }
    // It does not say Windows anywhere by its kubelet: never looked at.
    let mut linux = node("l1", "6.1.0-1", &[]);
    linux["status"]["nodeInfo"]["operatingSystem"] = json!("linux");
    linux["metadata"]["labels"]["kubernetes.io/os"] = json!("linux");
    world.create(&linux).await;
    let before: Vec<Value> = world.nodes(&["w1", "w2", "l1"]).await;
    world.create(&policy("windows", json!({}))).await;
    let _running = world.run(quick());

    let status = world.status_until("windows", "Ready", "True", "Drifted").await;
    assert_eq!(status["driftedNodeCount"], 2);
    let what = status["driftedNodes"][0]["message"].as_str().unwrap();
    assert_eq!(
        what,
        "it lacks the taint os=windows:NoSchedule (taints.mode is Audit)"
    );
    assert_eq!(taints(&world.node("w1").await), ["team=blue:PreferNoSchedule"]);

    let web = world::deployment("web", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    world.create(&web).await;
    world
        .patch_policy("windows", json!({"spec": {"taints": {"mode": "Reconcile"}}}))
        .await;
    let status = world
        .status_until("windows", "TaintsBlocked", "True", "WorkloadsAffected")
        .await;
    let message = world::message(&status, "TaintsBlocked");
    assert!(
        message.contains("Deployment default/web (its template does not tolerate os=windows:NoSchedule)")
    );
    assert!(
        message.contains("tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]")
    );
    assert!(
        message.contains("az aks nodepool add --node-taints os=windows:NoSchedule"),
        "{message}"
    );
    assert_eq!(
        status["message"],
        "not set: os=windows:NoSchedule, because 1 workload would be affected: Deployment default/web; the condition \
         TaintsBlocked gives the reasons and the remedies"
    );
    world.event_until("windows", "Deployment default/web").await;
    assert_eq!(taints(&world.node("w1").await), ["team=blue:PreferNoSchedule"]);

    let toleration = json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    let patch = json!({"spec": {"template": {"spec": {"tolerations": toleration}}}});
    world.kubectl(&["patch", "deployment", "web", "-p", &patch.to_string()]);
    for name in ["w1", "w2"] {
        let node = world.node_until(name, |node| taints(node).len() == 2).await;
        assert_eq!(
            taints(&node),
            ["team=blue:PreferNoSchedule", "os=windows:NoSchedule"]
        );
        assert!(owned(&node).unwrap().contains(r#""policy":"windows""#));
    }
    world
        .event_until("windows", "2 nodes (w1, w2): taint os=windows:NoSchedule: set")
        .await;
    world.status_without("windows", "TaintsBlocked").await;
    world.status_until("windows", "Ready", "True", "Ready").await;
    world.event_until("windows", "no taint is withheld").await;
    // The guard was asked more than once meanwhile.
    let reported = world.events("windows").await;
    assert_eq!(
        reported,
        [
            "Normal NoWorkloadsAffected",
            "Normal TaintSet",
            "Warning WorkloadsAffected"
        ]
    );

    let policies: Api<WindowsNodePolicy> = Api::all(world.client.clone());
    policies
        .delete("windows", &DeleteParams::default())
        .await
        .unwrap();
    for name in ["w1", "w2"] {
        world.node_until(name, |node| owned(node).is_none()).await;
    }
    for mut was in before {
        let name = was["metadata"]["name"].as_str().unwrap().to_owned();
        let is = world.node(&name).await;
        if name != "l1" {
            // The build label is corrected, and never taken away.
            was["metadata"]["labels"][BUILD_LABEL] = json!("10.0.20348");
        }
        assert_eq!(lasting(&is), lasting(&was), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemonset_that_selects_no_os_and_runs_on_windows_keeps_taints_away() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    let template = json!({
        "metadata": {"labels": {"app": "logs"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/logs:1"}]},
    });
    let daemonset = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "logs"}}, "template": template},
        })
    };
    // One runs there, and one has a pod there that never became ready.
    for (name, ready) in [("logs", "True"), ("linux-agent", "False")] {
        world.create(&daemonset(name)).await;
        let stored: Value =
            serde_json::from_str(&world.kubectl(&["get", "daemonset", name, "-o", "json"])).unwrap();
        let mut pod = template.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["spec"]["nodeName"] = json!("w1");
        pod["metadata"]["name"] = json!(format!("{name}-1"));
        pod["metadata"]["namespace"] = json!("default");
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name,
            "uid": stored["metadata"]["uid"], "controller": true}]);
        world.create(&pod).await;
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        let pod = format!("{name}-1");
        world.kubectl(&[
            "patch",
            "pod",
            &pod,
            "--subresource=status",
            "-p",
            &status.to_string(),
        ]);
    }
    world
        .create(&policy("windows", json!({"taints": {"mode": "Reconcile"}})))
        .await;
    let _running = world.run(quick());
    let status = world
        .status_until("windows", "TaintsBlocked", "True", "WorkloadsAffected")
        .await;
    let message = world::message(&status, "TaintsBlocked");
    assert!(
        message
            .contains("1 workload would be affected: DaemonSet default/logs (it selects no operating system")
    );
    assert_eq!(taints(&world.node("w1").await), Vec::<String>::new());
    world.kubectl(&[
        "delete",
        "daemonset",
        "logs",
        "--cascade=background",
        "--wait=false",
    ]);
    world.kubectl(&[
        "delete",
        "pod",
        "logs-1",
        "--force",
        "--grace-period=0",
        "--wait=false",
    ]);
    world
        .node_until("w1", |node| taints(node) == ["os=windows:NoSchedule"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taint_refused_for_a_daemon_set_is_tried_again_when_that_changes() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    let mut daemon_set = world::deployment("logs", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    daemon_set["kind"] = json!("DaemonSet");
    world.create(&daemon_set).await;
    world
        .create(&policy("windows", json!({"taints": {"mode": "Reconcile"}})))
        .await;
    // A whole survey is not due while this runs.
    let _running = world.run(transom::controller::node_policies::NodeControllerSettings {
        guard_every: Duration::from_secs(3600),
        ..quick()
    });
    let status = world
        .status_until("windows", "TaintsBlocked", "True", "WorkloadsAffected")
        .await;
    assert!(world::message(&status, "TaintsBlocked").contains("DaemonSet default/logs"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(taints(&world.node("w1").await), Vec::<String>::new());
    let toleration = json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    let patch = json!({"spec": {"template": {"spec": {"tolerations": toleration}}}});
    world.kubectl(&["patch", "daemonset", "logs", "-p", &patch.to_string()]);
    world
        .node_until("w1", |node| taints(node) == ["os=windows:NoSchedule"])
        .await;
    world.status_without("windows", "TaintsBlocked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taint_that_is_taken_away_three_times_is_contested_until_the_policy_changes() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    world
        .create(&policy("windows", json!({"taints": {"mode": "Reconcile"}})))
        .await;
    let running = world.run(quick());
    let nodes: Api<Node> = Api::all(world.client.clone());
    let has = |node: &Value| taints(node) == ["os=windows:NoSchedule"];
    let mut running = Some(running);
    for round in 0..3 {
        world.node_until("w1", has).await;
        if round == 1 {
            // What was counted survives a change of the leader.
            drop(running.take());
            running = Some(world.run(quick()));
        }
        let patch = json!({"spec": {"taints": null}});
        nodes
            .patch("w1", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
    let status = world
        .status_until("windows", "Conflicted", "True", "OverwrittenByOtherClient")
        .await;
    assert!(
        world::message(&status, "Conflicted").contains("removed os=windows:NoSchedule three times on w1")
    );
    world
        .event_until("windows", "removed os=windows:NoSchedule three times on w1")
        .await;
    let version = |node: &Value| node["metadata"]["resourceVersion"].clone();
    let counted =
        |node: &Value| owned(node).is_some_and(|owned| owned.contains(r#""os=windows:NoSchedule":3"#));
    let quiet = world.node_until("w1", counted).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let node = world.node("w1").await;
    assert_eq!(
        (taints(&node), version(&node)),
        (Vec::new(), version(&quiet)),
        "it is left alone"
    );
    world
        .patch_policy(
            "windows",
            json!({"spec": {"labels": {"nodeRestriction": {"mode": "Disabled"}}}}),
        )
        .await;
    world.node_until("w1", has).await;
    world.status_without("windows", "Conflicted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taint_comes_off_nodes_whose_pods_lose_placement_and_stays_for_what_does_not_run_there() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    let web = world::deployment("web", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    world.create(&web).await;
    let mut set = web.clone();
    set["kind"] = json!("ReplicaSet");
    set["metadata"]["name"] = json!("web-1");
    set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web",
        "controller": true}]);
    world.create(&set).await;
    let mut pod = web["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["spec"]["nodeName"] = json!("w1");
    pod["metadata"]["name"] = json!("web-1-a");
    pod["metadata"]["namespace"] = json!("default");
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "web-1",
        "controller": true}]);
    world.create(&pod).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
        .to_string();
    world.kubectl(&["patch", "pod", "web-1-a", "--subresource=status", "-p", &ready]);
    world
        .create(&policy("windows", json!({"taints": {"mode": "Reconcile"}})))
        .await;
    let has = |node: &Value| taints(node) == ["os=windows:NoSchedule"];
    let running = world.run_registered(quick());
    world.node_until("w1", has).await;
    world.status_without("windows", "WorkloadsExcluded").await;

    // A leader that does not know its webhooks removes nothing.
    drop(running);
    world.kubectl(&["label", "namespace", "default", "transom.dev/ignore=true"]);
    let unregistered = world.run(quick());
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(has(&world.node("w1").await), "it was removed on a guess");
    drop(unregistered);

    let _running = world.run_registered(quick());
    world.node_until("w1", |node| taints(node).is_empty()).await;
    let status = world
        .status_until("windows", "TaintsBlocked", "True", "WorkloadsAffected")
        .await;
    let message = world::message(&status, "TaintsBlocked");
    assert!(
        message.contains("Deployment default/web (its template"),
        "{message}"
    );
    world
        .event_until("w1", "removed, because it would keep restarted pods off the node")
        .await;
    world
        .status_until("windows", "Ready", "False", "TaintsBlocked")
        .await;
    // Another client did not remove it.
    assert!(
        !owned(&world.node("w1").await)
            .unwrap_or_default()
            .contains("reversals")
    );

    world.kubectl(&["label", "namespace", "default", "transom.dev/ignore-"]);
    world.node_until("w1", has).await;
    world.status_without("windows", "TaintsBlocked").await;

    world.kubectl(&["delete", "pod", "web-1-a", "--force", "--grace-period=0"]);
    world.kubectl(&["label", "namespace", "default", "transom.dev/ignore=true"]);
    let status = world
        .status_until("windows", "WorkloadsExcluded", "True", "TaintsNotTolerated")
        .await;
    let message = world::message(&status, "WorkloadsExcluded");
    for part in [
        "os=windows:NoSchedule keeps new pods of 1 workload off nodes that carry it: Deployment default/web",
        "tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]",
    ] {
        assert!(message.contains(part), "{message}");
    }
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(
        has(&world.node("w1").await),
        "what does not run there removes no taint"
    );
    world.status_until("windows", "Ready", "True", "Ready").await;
    world.kubectl(&["label", "namespace", "default", "transom.dev/ignore-"]);
    world.status_without("windows", "WorkloadsExcluded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_gets_the_name_of_one_that_is_gone_does_not_wait_for_the_back_off_of_that_one() {
    let world = world!();
    world.create(&policy("windows", json!({}))).await;
    let _running = world.run(transom::controller::node_policies::NodeControllerSettings {
        back_off: Duration::from_secs(3600),
        ..quick()
    });
    let nodes: Api<Node> = Api::all(world.client.clone());
    for _ in 0..2 {
        world.create(&node("akswin000001", LTSC2022, &[])).await;
        let is_labelled = |node: &Value| label(node, BUILD_LABEL) == Some("10.0.20348");
        world.node_until("akswin000001", is_labelled).await;
        nodes
            .delete("akswin000001", &DeleteParams::default())
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_nodes_are_reported_and_not_written() {
    let world = world!();
    let mut odd: Vec<(Value, &str)> = vec![
        (node("no-kernel", "", &[]), "contains no Windows build"),
        (
            node("linux-kernel", "5.15.0-1041-azure", &[]),
            "contains no Windows build",
        ),
        (node("short-kernel", "10.0", &[]), "contains no Windows build"),
        (
            node("wrong-os-label", LTSC2022, &[("kubernetes.io/os", "linux")]),
            "its kubelet reports \"windows\"",
        ),
        (
            node("wrong-arch-label", LTSC2022, &[("kubernetes.io/arch", "arm64")]),
            "its kubelet reports \"amd64\"",
        ),
    ];
    let mut silent = node("silent", "", &[]);
    silent["status"] = json!({});
    odd.push((silent, "has not reported"));
    let mut plan9 = node("plan9", LTSC2022, &[]);
    plan9["status"]["nodeInfo"]["operatingSystem"] = json!("plan9");
    odd.push((plan9, "its kubelet reports \"plan9\""));
    for (node, _) in &odd {
        world.create(node).await;
    }
    world
        .create(&policy(
            "odd",
            json!({"labels": {"nodeRestriction": {"mode": "Disabled"}}}),
        ))
        .await;
    let _running = world.run(quick());

    let status = world
        .status_where("odd", |status| {
            status["driftedNodeCount"].as_u64() == Some(odd.len() as u64)
        })
        .await;
    let drift: BTreeMap<&str, &str> = (status["driftedNodes"].as_array().unwrap().iter())
        .map(|one| (one["name"].as_str().unwrap(), one["message"].as_str().unwrap()))
        .collect();
    for (node, states) in &odd {
        let name = node["metadata"]["name"].as_str().unwrap();
        assert!(drift[name].contains(states), "{name}: {}", drift[name]);
        assert_eq!(
            owned(&world.node(name).await).is_some(),
            name.starts_with("wrong-"),
            "{name}"
        );
    }
    // Kernels that tell nothing leave the labels alone.
    assert_eq!(label(&world.node("no-kernel").await, BUILD_LABEL), None);
    assert_eq!(
        label(&world.node("wrong-os-label").await, "kubernetes.io/os"),
        Some("linux")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_annotations_many_taints_overlaps_and_old_builds_are_reported_and_do_no_harm() {
    let world = world!();
    let mut garbage = node("garbage", LTSC2022, &[("group", "garbage")]);
    garbage["metadata"]["annotations"] = json!({OWNED_ANNOTATION: "}{ not ours"});
    garbage["spec"]["taints"] = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    world.create(&garbage).await;
    // Its kubelet claims for Transom what another writer has set.
    let forged = r#"{"policy":"garbage","taints":[{"key":"dedicated","value":"db","effect":"NoSchedule"}]}"#;
    let mut claims = node("claims", "6.1.0-1", &[]);
    claims["status"]["nodeInfo"]["operatingSystem"] = json!("linux");
    claims["metadata"]["labels"]["kubernetes.io/os"] = json!("linux");
    claims["metadata"]["annotations"] = json!({OWNED_ANNOTATION: forged});
    claims["spec"]["taints"] = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
    world.create(&claims).await;
    let mut many = node("many", LTSC2022, &[("group", "many")]);
    let five_hundred: Vec<Value> = (0..500)
        .map(|i| json!({"key": format!("t{i}"), "effect": "NoSchedule"}))
        .collect();
    many["spec"]["taints"] = json!(five_hundred);
    world.create(&many).await;
    world.create(&node("old", LTSC2019, &[("group", "old")])).await;

    let of = |group: &str| json!({"matchLabels": {"group": group}});
    let apply = json!({"mode": "Reconcile"});
    world
        .create(&policy(
            "garbage",
            json!({"nodeSelector": of("garbage"), "taints": apply}),
        ))
        .await;
    world
        .create(&policy(
            "many",
            json!({"nodeSelector": of("many"), "taints": apply}),
        ))
        .await;
    world
        .create(&policy("old-a", json!({"nodeSelector": of("old")})))
        .await;
    world
        .create(&policy("old-b", json!({"nodeSelector": of("old")})))
        .await;
    let _running = world.run(quick());

    world
        .event_until("garbage", "Transom no longer owns what it names")
        .await;
    let fixed = world
        .node_until("garbage", |node| owned(node).is_some_and(|o| o.starts_with('{')))
        .await;
    assert!(
        !owned(&fixed).unwrap().contains("taints"),
        "a taint that stood there before is not ours"
    );

    let claims = world.node_until("claims", |node| owned(node).is_none()).await;
    assert_eq!(taints(&claims), ["dedicated=db:NoSchedule"]);

    let many = world.node_until("many", |node| taints(node).len() == 501).await;
    assert_eq!(taints(&many)[..2], ["t0=:NoSchedule", "t1=:NoSchedule"]);
    assert_eq!(taints(&many)[500], "os=windows:NoSchedule");

    for name in ["old-a", "old-b"] {
        let status = world
            .status_until(name, "Overlapping", "True", "Overlapping")
            .await;
        let message = world::message(&status, "Overlapping");
        assert!(
            message.contains("old-a") && message.contains("old-b"),
            "{message}"
        );
    }
    let status = world
        .status_until("old-a", "UnsupportedBuilds", "True", "BuildNotSupported")
        .await;
    assert!(world::message(&status, "UnsupportedBuilds").contains("10.0.17763 (Windows Server 2019)"));
    assert_eq!(label(&world.node("old").await, BUILD_LABEL), Some("10.0.17763"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_no_label_can_match_is_a_problem_and_no_node_gets_another_policy() {
    let world = world!();
    let of_group = |name: &str| {
        let mut node = node(name, LTSC2022, &[("group", "kept")]);
        node["spec"]["taints"] = json!([{"key": "sku", "value": "windows", "effect": "NoSchedule"}]);
        node
    };
    world.create(&of_group("kept")).await;
    world.create(&node("other", LTSC2022, &[])).await;
    let kept = json!({"priority": 1, "nodeSelector": {"matchLabels": {"group": "kept"}},
        "runtimeClasses": {"mode": "Reconcile"}});
    world.create(&policy("kept", kept)).await;
    let rest = json!({"taints": {"mode": "Reconcile"}, "runtimeClasses": {"mode": "Reconcile"}});
    world.create(&policy("rest", rest)).await;
    let _running = world.run(quick());
    let mirror = |node: &Value| label(node, RESTRICTED_BUILD_LABEL) == Some("10.0.20348");
    world.node_until("kept", mirror).await;
    world
        .node_until("other", |node| taints(node) == ["os=windows:NoSchedule"])
        .await;
    // Both policies select the node; the priority decides, so there is nothing to correct.
    for (name, reason) in [("kept", "Drifted"), ("rest", "Ready")] {
        let status = world.status_until(name, "Ready", "True", reason).await;
        let message = world::message(&status, "Overlapping");
        assert_eq!(message, "");
    }
    let classes: Api<RuntimeClass> = Api::all(world.client.clone());
    let class = || async { classes.get("windows-ltsc2022").await.unwrap() };
    let made = class().await;
    let tolerations = made.scheduling.as_ref().unwrap().tolerations.clone().unwrap();
    let keys: Vec<_> = tolerations.iter().filter_map(|t| t.key.as_deref()).collect();
    assert_eq!(keys, ["os", "sku"]);

    // The schema of the API server accepts these prefixes.
    let bad = json!({"spec": {"nodeSelector": {"matchLabels": {"a.-b/c": "x", "a..b/c": "y"}}}});
    world.patch_policy("kept", bad).await;
    let status = world.status_until("kept", "Ready", "False", "Invalid").await;
    let message = world::message(&status, "Ready");
    for part in [
        "2 problems: (1) spec.nodeSelector.matchLabels: \"a.-b/c\" is not a label key",
        "; (2) spec.nodeSelector.matchLabels: \"a..b/c\" is not a label key",
        "nothing is set and nothing is removed",
    ] {
        assert!(message.contains(part), "{message}");
    }
    world.create(&of_group("new")).await;
    let status = world
        .status_until("rest", "Ready", "False", "BlockedByInvalidPolicy")
        .await;
    let message = world::message(&status, "Ready");
    assert!(
        message.contains("kept may select 1 nodes that this policy selects (new)"),
        "{message}"
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(mirror(&world.node("kept").await), "it was taken back");
    let new = world.node("new").await;
    assert_eq!((owned(&new), taints(&new).len()), (None, 1), "{new:#}");
    assert_eq!(class().await, made, "nothing that was learned is lost");

    let good = json!({"spec": {"nodeSelector": {"matchLabels": {"a.-b/c": null, "a..b/c": null}}}});
    world.patch_policy("kept", good).await;
    // The taint is only reported by default.
    world.status_until("kept", "Ready", "True", "Drifted").await;
    world.node_until("new", mirror).await;
    world.status_until("rest", "Ready", "True", "Ready").await;
    assert_eq!(taints(&world.node("new").await), ["sku=windows:NoSchedule"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_overwrites_nothing() {
    let world = world!();
    world.create(&node("w1", LTSC2022, &[])).await;
    world
        .create(&policy("windows", json!({"taints": {"mode": "Reconcile"}})))
        .await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let policies: Api<WindowsNodePolicy> = Api::all(world.client.clone());
    let stored: Api<WatchedNode> = Api::all(world.client.clone());
    let old = Arc::new(NodeView::from(stored.get("w1").await.unwrap()));
    let stored = NodePolicy::of(&Arc::new(policies.get("windows").await.unwrap())).unwrap();
    // While it slept, another leader did its work, and another writer added a taint.
    let patch = json!({"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}});
    nodes
        .patch("w1", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let stale = plan(
        &old,
        Some(&DesiredNode::of(&stored, stored.taints.iter().cloned().collect())),
        &LabelUse::Unused,
    )
    .patch(&old)
    .unwrap();
    let refused = nodes
        .patch("w1", &PatchParams::default(), &Patch::Merge(&stale))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, kube::Error::Api(status) if status.code == 409),
        "the old version is refused"
    );

    let (lease, leadership) = World::leadership(true);
    let writer = Writer::new(world.client.clone(), Some(leadership), 50);
    let desired = DesiredNode::of(&stored, stored.taints.iter().cloned().collect());
    let decide = move |node: &NodeView| plan(node, Some(&desired), &LabelUse::Unused);
    let outcome = apply(&writer, Arc::clone(&old), &decide).await;
    assert!(matches!(outcome, ApplyResult::Wrote(..)), "{outcome:?}");
    assert_eq!(
        taints(&world.node("w1").await),
        ["theirs=:NoSchedule", "os=windows:NoSchedule"]
    );

    // Without the lease nothing is written at all.
    lease.send(None).unwrap();
    let patch = json!({"spec": {"taints": null}});
    nodes
        .patch("w1", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let outcome = apply(&writer, old, &decide).await;
    assert!(
        matches!(&outcome, ApplyResult::Failed(why) if why.to_string() == "leadership was lost"),
        "{outcome:?}"
    );
    assert_eq!(taints(&world.node("w1").await), Vec::<String>::new());
    let running = world.run_with(quick(), false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(taints(&world.node("w1").await), Vec::<String>::new());
    running.lead();
    world
        .node_until("w1", |node| taints(node) == ["os=windows:NoSchedule"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runtime_classes_are_made_adopted_updated_and_go_when_nothing_names_them() {
    let world = world!();
    world.create(&node("w19", LTSC2019, &[])).await;
    let mut with_handlers = node("w22", LTSC2022, &[]);
    with_handlers["status"]["runtimeHandlers"] = json!([{"name": ""}, {"name": "runhcs-wcow-process"}]);
    world.create(&with_handlers).await;
    world
        .create(&json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "windows-ltsc2022-hyperv"},
            "handler": "their-own", "scheduling": {"nodeSelector": {"kubernetes.io/os": "linux"}}}))
        .await;
    let managed = json!({"runtimeClasses": {"mode": "Reconcile", "isolations": ["Process", "HyperV"]}});
    world.create(&policy("windows", managed)).await;
    let _running = world.run(quick());
    let classes: Api<RuntimeClass> = Api::all(world.client.clone());
    let class = |name: &'static str| {
        let classes = classes.clone();
        async move { serde_json::to_value(classes.get_opt(name).await.unwrap()).unwrap() }
    };
    for (name, build) in [
        ("windows-ltsc2019", json!("10.0.17763")),
        ("windows-ltsc2022", Value::Null),
    ] {
        world
            .wait_for(|| async move { !class(name).await.is_null() }, name)
            .await;
        let class = class(name).await;
        assert_eq!(class["handler"], "runhcs-wcow-process");
        assert_eq!(
            class["metadata"]["labels"]["app.kubernetes.io/managed-by"],
            "transom"
        );
        assert_eq!(class["scheduling"]["nodeSelector"]["kubernetes.io/os"], "windows");
        assert_eq!(class["scheduling"]["nodeSelector"][BUILD_LABEL], build);
        assert_eq!(class["scheduling"]["tolerations"][0]["key"], "os");
    }
    let status = world
        .status_until("windows", "RuntimeClassesReady", "False", "ReconcileFailed")
        .await;
    let message = world::message(&status, "RuntimeClassesReady");
    assert!(
        message.contains("windows-ltsc2022-hyperv was not created by Transom"),
        "{message}"
    );
    assert!(message.contains("selects linux"), "{message}");
    assert!(
        message.contains("do not report runhcs-wcow-hypervisor"),
        "{message}"
    );
    assert_eq!(class("windows-ltsc2022-hyperv").await["handler"], "their-own");

    // Another taint on a node: the classes tolerate it. What another writer changes of ours is changed back.
    let nodes: Api<Node> = Api::all(world.client.clone());
    let patch = json!({"spec": {"taints": [{"key": "sku", "value": "windows", "effect": "NoSchedule"}]}});
    nodes
        .patch("w22", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let patch = json!({"scheduling": {"nodeSelector": {"pool": "x"}}});
    classes
        .patch("windows-ltsc2022", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let fixed = || async {
        let class = class("windows-ltsc2022").await;
        class["scheduling"]["tolerations"].as_array().unwrap().len() == 2
            && class["scheduling"]["nodeSelector"] == json!({"kubernetes.io/os": "windows"})
    };
    world
        .wait_for(fixed, "scheduling is mutable and follows the taints")
        .await;

    // One that is named stays, and the policy says by what; the other goes.
    let spec = json!({"runtimeClassName": "windows-ltsc2022"});
    world.create(&world::deployment("web", spec)).await;
    world
        .patch_policy(
            "windows",
            json!({"spec": {"runtimeClasses": {"mode": "Disabled"}}}),
        )
        .await;
    world
        .wait_for(
            || async { class("windows-ltsc2019").await.is_null() },
            "windows-ltsc2019 goes",
        )
        .await;
    let named = |status: &Value| {
        world::message(status, "RuntimeClassesReady").contains("used by Deployment default/web")
    };
    world.status_where("windows", named).await;
    assert!(!class("windows-ltsc2022").await.is_null());
    world.kubectl(&["delete", "deployment", "web"]);
    world
        .wait_for(
            || async { class("windows-ltsc2022").await.is_null() },
            "windows-ltsc2022 goes",
        )
        .await;
    assert!(
        !class("windows-ltsc2022-hyperv").await.is_null(),
        "what others set stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_taken_back_without_a_controller_twice_and_past_refusals() {
    let world = world!();
    for name in ["w1", "w2", "w3"] {
        world
            .create(&node(name, LTSC2022, &[(BUILD_LABEL, "10.0.20348")]))
            .await;
    }
    let before = world.nodes(&["w1", "w2", "w3"]).await;
    let spec = json!({"taints": {"mode": "Reconcile"}, "runtimeClasses": {"mode": "Reconcile"}});
    world.create(&policy("windows", spec)).await;
    let running = world.run(quick());
    for name in ["w1", "w2", "w3"] {
        world
            .node_until(name, |node| taints(node) == ["os=windows:NoSchedule"])
            .await;
    }
    let classes: Api<RuntimeClass> = Api::all(world.client.clone());
    let made = || async { classes.get_opt("windows-ltsc2022").await.unwrap().is_some() };
    world.wait_for(made, "windows-ltsc2022").await;
    drop(running);
    world
        .create(&world::deployment(
            "web",
            json!({"runtimeClassName": "windows-ltsc2022"}),
        ))
        .await;
    world.refuse_writes_to_node("w2").await;

    let keep = RevertOptions {
        on_nodes: KeepOptions {
            labels: true,
            taints: true,
        },
        keep_runtime_classes: true,
    };
    let refusal = |report: &transom::controller::node_policies::revert::RevertReport| {
        report.failures.len() == 1 && report.failures[0].starts_with("node w2: ")
    };
    let report = revert(&world.client, RevertOptions::default(), &[], false).await;
    assert!(refusal(&report), "{report:?}");
    assert_eq!(report.nodes, ["w1", "w3"]);
    assert!(
        report.kept[0].contains("used by Deployment default/web"),
        "{report:?}"
    );
    assert!(!report.kept.is_empty());
    for (name, was) in [("w1", &before[0]), ("w3", &before[2])] {
        assert_eq!(lasting(&world.node(name).await), lasting(was));
    }
    world.kubectl(&["delete", "deployment", "web"]);
    world.kubectl(&["delete", "validatingadmissionpolicybinding", "refuse-w2"]);
    world
        .wait_for(|| async { world.can_write_node("w2").await }, "the refusal ends")
        .await;
    let kept = revert(&world.client, keep, &[], false).await;
    assert_eq!(
        (kept.nodes.as_slice(), kept.runtime_classes.len()),
        (&["w2".to_owned()][..], 0)
    );
    let w2 = world.node("w2").await;
    assert_eq!(taints(&w2), ["os=windows:NoSchedule"]);
    assert_eq!(
        (label(&w2, RESTRICTED_BUILD_LABEL), owned(&w2)),
        (Some("10.0.20348"), None)
    );
    let report = revert(&world.client, RevertOptions::default(), &[], false).await;
    assert!(
        report.kept.is_empty() && report.failures.is_empty() && report.nodes.is_empty(),
        "what was kept is Transom's no longer: {report:?}"
    );
    assert_eq!(report.runtime_classes, ["windows-ltsc2022"]);
    // What is there still, and may be another's by now, is named and not taken.
    let again = revert(&world.client, RevertOptions::default(), &[], false).await;
    let [left] = again.left.as_slice() else {
        panic!("{again:?}")
    };
    assert!(
        left.starts_with(
            "label transom.dev.node-restriction.kubernetes.io/windows-build on nodes: 1 (w2), and nothing proves"
        ),
        "{left}"
    );
    let nothing = transom::controller::node_policies::revert::RevertReport {
        left: again.left.clone(),
        ..Default::default()
    };
    assert_eq!(again, nothing);

    // A kubelet has spoiled the annotation: what can only be Transom's goes, and what may not be is named.
    world.kubectl(&["annotate", "node", "w2", "transom.dev/owned=spoiled"]);
    let spoiled = revert(&world.client, RevertOptions::default(), &[], false).await;
    assert_eq!(
        (spoiled.nodes.len(), spoiled.failures.len()),
        (1, 0),
        "{spoiled:?}"
    );
    let [left] = spoiled.left.as_slice() else {
        panic!("{spoiled:?}")
    };
    assert!(
        left.starts_with("taint os=windows:NoSchedule on nodes: 1 (w2), whose annotation"),
        "{left}"
    );
    let w2 = world.node("w2").await;
    assert_eq!((label(&w2, RESTRICTED_BUILD_LABEL), owned(&w2)), (None, None));
}

/// `TRANSOM_NODES` sets their number.
#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_are_written_once_each_and_at_a_steady_pace() {
    let requested = std::env::var("TRANSOM_NODES");
    let number: u32 = requested.map_or(1_500, |count| count.parse().expect("TRANSOM_NODES is a number"));
    let world = world!();
    let made = Instant::now();
    world
        .create_many((0..number).map(|i| node(&format!("w{i:04}"), LTSC2022, &[(BUILD_LABEL, "10.0.20348")])))
        .await;
    println!(
        "{number} nodes were made in {:.1} s",
        made.elapsed().as_secs_f64()
    );
    world
        .create(&policy("windows", json!({"taints": {"mode": "Reconcile"}})))
        .await;
    let before = world.requests("nodes", "PATCH").await;
    let events_before = world.requests("events", "POST").await;
    let start = Instant::now();
    // Four times as fast as in production, where it takes as many times longer: a node costs a patch.
    let settings = transom::controller::node_policies::NodeControllerSettings::default();
    let _running = world.run_at(settings, true, 200);
    let (mut most, mut last, mut seen) = (0.0_f64, Instant::now(), before);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = world.requests("nodes", "PATCH").await;
        most = most.max((now - seen) / last.elapsed().as_secs_f64());
        (seen, last) = (now, Instant::now());
        if now - before >= f64::from(number) || start.elapsed() > Duration::from_secs(300) {
            break;
        }
    }
    let took = start.elapsed();
    let status = world.status_until("windows", "Ready", "True", "Ready").await;
    assert_eq!(status["nodeCount"], json!(number));
    // If more is to come, it comes now.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let patches = world.requests("nodes", "PATCH").await - before;
    let events = world.requests("events", "POST").await - events_before;
    println!(
        "{number} nodes converged in {:.1} s: {patches} patches of nodes, {events} Events, at most {most:.0} patches a second",
        took.as_secs_f64()
    );
    assert!(
        (patches - f64::from(number)).abs() < 0.5,
        "each node is written once: {patches}"
    );
    assert!(
        events < 20.0,
        "one Event for each policy and cause, and none for each node: {events}"
    );
    world.event_until("windows", "nodes (w").await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let all = nodes.list(&ListParams::default()).await.unwrap();
    let right = all.items.iter().filter(|node| {
        let node = serde_json::to_value(node).unwrap();
        taints(&node) == ["os=windows:NoSchedule"]
            && label(&node, RESTRICTED_BUILD_LABEL) == Some("10.0.20348")
    });
    assert_eq!(right.count(), number as usize);
}
