//! The start gate with a real scheduler and simulated kubelets that pull images.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_tainted;
use crate::support::pulling_kubelet::{PullingKubelets, STARTUP};

const WEB: &str = "registry.example/web:1";
const SMALL: &str = "registry.example/small:1";
const AGENT: &str = "registry.example/agent:1";
const MISSING: &str = "registry.example/missing:1";
const TIMEOUT: u64 = 90;
const SLOTS: usize = 2;

fn workload(kind: &str, name: &str, images: &[&str], pod: &Value) -> Value {
    let containers: Vec<Value> = (images.iter().enumerate())
        .map(|(index, image)| json!({"name": format!("c{index}"), "image": image}))
        .collect();
    let mut pod_spec = json!({"containers": containers, "nodeSelector": {"kubernetes.io/os": "windows"}});
    for (field, value) in pod.as_object().unwrap() {
        pod_spec[field] = value.clone();
    }
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec}},
    })
}

fn policies() -> String {
    let pods = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Audit"}});
    let nodes = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "windows"},
        "spec": {"nodeSelector": {"matchExpressions": [{"key": "agentpool", "operator": "In", "values": ["a", "b"]}]},
            "startup": {"puller": "Pods", "timeoutSeconds": TIMEOUT, "maxConcurrentNodes": SLOTS}}});
    format!("{pods}\n---\n{nodes}")
}

fn start(cluster: &ControlPlane) -> [Replica; 2] {
    install::prepare(cluster, &policies());
    cluster
        .start_controllers_of("deployment-controller,replicaset-controller,daemonset-controller")
        .unwrap();
    cluster.start_scheduler().unwrap();
    for object in [
        workload("Deployment", "web", &[WEB, SMALL], &json!({})),
        workload(
            "Deployment",
            "bad",
            &[MISSING],
            &json!({"nodeSelector": {"agentpool": "b", "kubernetes.io/os": "windows"}}),
        ),
        workload(
            "DaemonSet",
            "agent",
            &[AGENT],
            &json!({"tolerations": [{"operator": "Exists"}]}),
        ),
    ] {
        cluster
            .kubectl_with(&["create", "-f", "-"], &object.to_string())
            .succeeded();
    }
    cluster
        .kubectl(&["scale", "deployment/web", "--replicas=6"])
        .succeeded();
    let flags = ["--image-puller-service-account", "transom-image-puller"];
    let replicas = ["one", "two"].map(|name| Replica::start(cluster, name, &flags));
    install::register(cluster, replicas[0].port, &[]);
    let leads = || replicas.iter().any(leads);
    assert!(
        wait(Duration::from_secs(60), leads),
        "{}",
        cluster.end_of_log("one")
    );
    replicas
}

fn leads(replica: &Replica) -> bool {
    replica.metric("transom_leader ") == Some(1)
}

/// The reasons of the Events of a node.
fn reasons(cluster: &ControlPlane, node: &str) -> BTreeSet<String> {
    let selector = format!("involvedObject.name={node}");
    let printed = cluster.kubectl(&["get", "events", "--field-selector", &selector, "-o", "json"]);
    let events = printed.succeeded().objects().into_iter();
    events
        .filter_map(|event| Some(event["reason"].as_str()?.to_owned()))
        .collect()
}

#[test]
fn no_pod_is_bound_before_its_node_is_warm_or_late_even_if_the_leader_is_killed() {
    let Some(programs) = programs_of_a_whole_control_plane("the start gate") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap_or_else(|error| panic!("{error}"));
    let replicas = start(&cluster);
    let sizes = BTreeMap::from([(WEB, 300_000_000), (SMALL, 1_000), (AGENT, 100_000_000)]);
    // So many larger images that the small one is not among those that the node reports.
    let baked = (0..55)
        .map(|n| (format!("registry.example/baked:{n}"), 50_000_000))
        .collect();
    let kubelets = PullingKubelets::start(&cluster, sizes, baked);
    let gate = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    for (name, pool) in [
        ("a0", "a"),
        ("a1", "a"),
        ("a2", "a"),
        ("a3", "a"),
        ("b0", "b"),
        ("c0", "c"),
    ] {
        join_tainted(&cluster, name, "10.0.20348", &[("agentpool", pool)], &gate);
    }
    let released = || {
        let nodes = kubelets.log().nodes.into_iter();
        let released = nodes.filter_map(|(name, node)| Some((name, node.released?)));
        released.collect::<BTreeMap<String, (BTreeSet<String>, Duration)>>()
    };
    let is_released = |name: &str| released().contains_key(name);
    // Nothing gates this one.
    assert!(
        wait(Duration::from_secs(30), || is_released("c0")),
        "{}",
        cluster.end_of_log("one")
    );
    let first = || released().keys().any(|name| name.starts_with('a'));
    assert!(wait(Duration::from_secs(TIMEOUT), first), "{:?}", kubelets.log());
    let leader = replicas.iter().find(|replica| leads(replica)).unwrap();
    cluster.end(&leader.name, "KILL");
    let all = || released().len() == 6;
    assert!(
        wait(Duration::from_secs(TIMEOUT + 30), all),
        "{:?}",
        kubelets.log()
    );

    let log = kubelets.log();
    assert_eq!(log.bound_early, BTreeSet::new());
    assert!((1..=SLOTS).contains(&log.most_pullers), "{}", log.most_pullers);
    let mut warm = 0;
    for (name, (images, after)) in released() {
        if name == "c0" {
            continue;
        }
        let has_all = [WEB, SMALL, AGENT].iter().all(|image| images.contains(*image));
        println!("{name}: {after:?}, all images: {has_all}");
        assert!(
            has_all || after.as_secs() >= TIMEOUT - 2,
            "{name}: {after:?}, {images:?}"
        );
        assert!(after.as_secs() <= TIMEOUT + 20, "{name}: {after:?}");
        assert_eq!(
            log.nodes[&name].pulled.first().map(String::as_str),
            Some(AGENT),
            "{name}"
        );
        if has_all && name != "b0" {
            warm += 1;
            assert!(reasons(&cluster, &name).contains("ImagesReady"), "{name}");
        }
    }
    assert!(warm > 0, "{log:?}");
    let reasons = reasons(&cluster, "b0");
    assert!(
        reasons.contains("ImagesLate") && reasons.contains("ImagePullFailed"),
        "{reasons:?}"
    );
    is_reported_and_clean(&cluster);
}

/// The image that cannot be pulled is named, and no pod is left.
fn is_reported_and_clean(cluster: &ControlPlane) {
    let status = || {
        cluster
            .kubectl(&["get", "wnp", "windows", "-o", "json"])
            .succeeded()
            .object()["status"]
            .clone()
    };
    let is_named = || {
        let status = status();
        let failed = &status["startup"]["failed"][0];
        failed["image"] == MISSING && failed["node"] == "b0" && status["startup"]["starting"] == 0
    };
    assert!(wait(Duration::from_secs(30), is_named), "{:#}", status());
    let conditions = status()["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions
        .into_iter()
        .find(|it| it["type"] == "ImagesReady")
        .unwrap();
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("ImagePullFailed"))
    );
    let pullers = || {
        let selector = "app.kubernetes.io/component=image-puller";
        cluster
            .kubectl(&["get", "pods", "-A", "-l", selector, "-o", "name"])
            .succeeded()
            .out
    };
    assert!(
        wait(Duration::from_secs(30), || pullers().is_empty()),
        "{}",
        pullers()
    );
}
