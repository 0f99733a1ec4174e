//! The start gate with a real scheduler and simulated kubelets that pull images.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::{join_all, join_tainted};
use crate::support::pulling_kubelet::{BANDWIDTH, PullingKubelets, STARTUP};

const WEB: &str = "registry.example/web:1";
const NEW_WEB: &str = "registry.example/web:2";
const SMALL: &str = "registry.example/small:1";
const AGENT: &str = "registry.example/agent:1";
const MISSING: &str = "registry.example/missing:1";
const TIMEOUT: u64 = 150;
const SLOTS: usize = 2;
/// How many nodes join at once, how many of them later, when they are late, and how many may pull.
const MANY: usize = 200;
const AFTERWARDS: usize = 20;
const TIMEOUT_OF_MANY: u64 = 60;
const SLOTS_OF_MANY: usize = 20;

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
        "spec": {"mode": "Reconcile", "taints": {"mode": "Audit"}, "nodeSelector": {"matchExpressions": [{"key": "agentpool", "operator": "In", "values": ["a", "b"]}]},
            "startup": {"puller": "Pods", "timeoutSeconds": TIMEOUT, "maxConcurrentNodes": SLOTS,
                "pullSecrets": [{"name": "absent"}]}}});
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
    let sizes = BTreeMap::from([
        (WEB, 300_000_000),
        (NEW_WEB, 200_000_000),
        (SMALL, 1_000),
        (AGENT, 100_000_000),
    ]);
    // So many larger images that the small one is not among those that the node reports.
    let baked = (0..55)
        .map(|n| (format!("registry.example/baked:{n}"), 50_000_000))
        .collect();
    let kubelets = PullingKubelets::start(&cluster, sizes, baked, WEB);
    let gate = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    for (name, pool) in [
        ("b0", "b"),
        ("a0", "a"),
        ("a1", "a"),
        ("a2", "a"),
        ("a3", "a"),
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
    let follower = if leader.name == "one" { "two" } else { "one" };
    many_join_at_once(&cluster, &kubelets, follower);
    let all = || ["a0", "a1", "a2", "a3", "b0"].into_iter().all(is_released);
    assert!(
        wait(Duration::from_secs(TIMEOUT + 30), all),
        "{:?}",
        kubelets.log()
    );

    let log = kubelets.log();
    assert_eq!(log.bound_early, BTreeSet::new());
    assert!(log.most_pullers["windows"] <= SLOTS, "{:?}", log.most_pullers);
    let mut warm = 0;
    let few = |name: &String| name.starts_with(['a', 'b']);
    for (name, (images, after)) in released().into_iter().filter(|(name, _)| few(name)) {
        let has_all = has_all(&images);
        println!("{name}: {after:?}, all images: {has_all}");
        if name == "b0" {
            // One of its images fails, so it is not delayed to its timeout; another one is removed by its kubelet.
            assert!((60..TIMEOUT).contains(&after.as_secs()), "{after:?}");
            let pulled = log.nodes[&name].pulled_before.iter();
            let times = pulled.filter(|image| *image == WEB).count();
            // Another leader has not seen it.
            assert!((1..=2).contains(&times), "{:?}", log.nodes[&name]);
            continue;
        }
        assert!(
            has_all || after.as_secs() >= TIMEOUT - 2,
            "{name}: {after:?}, {images:?}, {:?}, {:?}",
            reasons(&cluster, &name),
            log.nodes[&name].pulled_before
        );
        assert!(after.as_secs() <= TIMEOUT + 20, "{name}: {after:?}");
        assert_eq!(
            log.nodes[&name].pulled.first().map(String::as_str),
            Some(AGENT),
            "{name}"
        );
        if has_all {
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
        let message = failed["message"].as_str().unwrap_or_default();
        let names_secret = message == "ErrImagePull with the pull Secrets absent: not found";
        let is_it = failed["image"] == MISSING && failed["node"] == "b0" && names_secret;
        is_it && status["startup"]["starting"] == 0
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
    let is_clean = || pulling_nodes(cluster).is_empty();
    assert!(
        wait(Duration::from_secs(30), is_clean),
        "{:?}",
        pulling_nodes(cluster)
    );
}

/// The nodes of the pods that pull.
fn pulling_nodes(cluster: &ControlPlane) -> BTreeSet<String> {
    let selector = "app.kubernetes.io/component=image-puller";
    let pods = cluster.kubectl(&["get", "pods", "-A", "-l", selector, "-o", "json"]);
    let pods = pods.succeeded().objects().into_iter();
    pods.filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned()))
        .collect()
}

/// Some vanish, others lose their taint to another client, and a workload changes its image, while they pull.
fn many_join_at_once(cluster: &ControlPlane, kubelets: &PullingKubelets, leader: &str) {
    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "many"},
        "spec": {"mode": "Reconcile", "taints": {"mode": "Audit"}, "nodeSelector": {"matchLabels": {"agentpool": "many"}}, "startup": {"puller": "Pods",
            "timeoutSeconds": TIMEOUT_OF_MANY, "maxConcurrentNodes": SLOTS_OF_MANY}}});
    cluster
        .kubectl_with(&["create", "-f", "-"], &policy.to_string())
        .succeeded();
    let began = Instant::now();
    let names: Vec<String> = (0..MANY).map(|number| format!("m{number:03}")).collect();
    let (first, last) = names.split_at(MANY - AFTERWARDS);
    let gate = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    let pool = [("agentpool", "many")];
    join_all(cluster, first, "10.0.20348", &pool, &gate);
    println!("{} nodes joined after {:?}", first.len(), began.elapsed());
    let mut pulling = BTreeSet::new();
    let enough = || {
        pulling = pulling_nodes(cluster);
        pulling.retain(|name| name.starts_with('m'));
        pulling.len() >= 5
    };
    assert!(
        wait(Duration::from_secs(TIMEOUT_OF_MANY), enough),
        "{:?}",
        kubelets.log()
    );
    let five: Vec<String> = pulling.into_iter().take(5).collect();
    let (vanished, by_hand) = five.split_at(3);
    let with = |arguments: &[&str], nodes: &[String], more: &[&str]| {
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        cluster.kubectl(&[arguments, &nodes, more].concat()).succeeded();
    };
    with(&["delete", "node"], vanished, &[]);
    with(&["taint", "node"], by_hand, &[&format!("{STARTUP}:NoSchedule-")]);
    cluster
        .kubectl(&["set", "image", "deployment/web", &format!("c0={NEW_WEB}")])
        .succeeded();
    join_all(cluster, last, "10.0.20348", &pool, &gate);
    let are_free = || five.iter().all(|node| !pulling_nodes(cluster).contains(node));
    assert!(
        wait(Duration::from_secs(15), are_free),
        "{:?}",
        pulling_nodes(cluster)
    );

    let stays = |name: &&String| !vanished.contains(name);
    let is_released = |name: &String| {
        kubelets
            .log()
            .nodes
            .get(name)
            .is_some_and(|node| node.released.is_some())
    };
    let all = || names.iter().filter(stays).all(is_released);
    assert!(
        wait(Duration::from_secs(TIMEOUT_OF_MANY + 30), all),
        "{}",
        cluster.end_of_log(leader)
    );
    println!("all released after {:?}", began.elapsed());
    many_were_released_in_time(cluster, kubelets, &names, &five);
    let status = || {
        let policy = cluster.kubectl(&["get", "wnp", "many", "-o", "json"]).succeeded();
        policy.object()["status"]["startup"].clone()
    };
    // Those that Transom released.
    let is_counted = || {
        let status = status();
        let count = |state: &str| status[state].as_u64().unwrap_or_default();
        count("starting") == 0 && count("warm") + count("late") == (MANY - five.len()) as u64
    };
    assert!(wait(Duration::from_secs(30), is_counted), "{:#}", status());
    println!("{}", status());
    let is_clean = || !pulling_nodes(cluster).iter().any(|name| names.contains(name));
    assert!(
        wait(Duration::from_secs(15), is_clean),
        "{:?}",
        pulling_nodes(cluster)
    );
}

/// Whether these are the images of the workloads, before or after one of them changed.
fn has_all(images: &BTreeSet<String>) -> bool {
    let has = |image: &str| images.contains(image);
    has(AGENT) && has(SMALL) && (has(WEB) || has(NEW_WEB))
}

/// The nodes with an Event of this reason.
fn nodes_with_event(cluster: &ControlPlane, reason: &str) -> BTreeSet<String> {
    let selector = format!("reason={reason}");
    let printed = cluster.kubectl(&["get", "events", "--field-selector", &selector, "-o", "json"]);
    let events = printed.succeeded().objects().into_iter();
    events
        .filter_map(|event| Some(event["involvedObject"]["name"].as_str()?.to_owned()))
        .collect()
}

fn many_were_released_in_time(
    cluster: &ControlPlane,
    kubelets: &PullingKubelets,
    names: &[String],
    except: &[String],
) {
    let log = kubelets.log();
    let ready = nodes_with_event(cluster, "ImagesReady");
    assert_eq!(log.bound_early, BTreeSet::new());
    let pullers = log.most_pullers["many"];
    assert!(pullers <= SLOTS_OF_MANY, "{pullers}");
    let (mut warm, mut new) = (0, 0);
    for name in names.iter().filter(|name| !except.contains(name)) {
        let (images, after) = log.nodes[name].released.clone().unwrap();
        assert!(after.as_secs() <= TIMEOUT_OF_MANY + 10, "{name}: {after:?}");
        if !ready.contains(name) {
            continue;
        }
        assert!(has_all(&images), "{name}: {images:?}");
        warm += 1;
        new += usize::from(images.contains(NEW_WEB));
    }
    println!("{warm} warm, {new} of them with the new image, at most {pullers} pods");
    // Slots are used again, also for what changed meanwhile.
    assert!(warm > SLOTS_OF_MANY && new > 0, "{warm} {new}");
}

#[test]
fn a_paused_deployment_of_any_size_takes_no_pull_and_no_time_of_others() {
    let Some(programs) = programs_of_a_whole_control_plane("the start gate") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap_or_else(|error| panic!("{error}"));
    cluster.create_namespace("evil", &[]);
    let images: Vec<String> = (0..64)
        .map(|at| format!("registry.example/evil-{at}:1"))
        .collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    let mut evil = workload("Deployment", "evil", &images, &json!({}));
    evil["metadata"]["namespace"] = json!("evil");
    evil["spec"]["replicas"] = json!(1_000_000);
    evil["spec"]["paused"] = json!(true);
    cluster
        .kubectl_with(&["create", "-f", "-"], &evil.to_string())
        .succeeded();
    // Another one of the tenant has a pod, and images that take longer than the timeout together.
    let large: Vec<String> = (0..12)
        .map(|at| format!("registry.example/large-evil-{at}:1"))
        .collect();
    let large: Vec<&str> = large.iter().map(String::as_str).collect();
    let mut running = workload("Deployment", "large", &large, &json!({}));
    running["metadata"]["namespace"] = json!("evil");
    cluster
        .kubectl_with(&["create", "-f", "-"], &running.to_string())
        .succeeded();
    let replicas = start(&cluster);
    let running = || {
        cluster
            .kubectl(&["get", "pods", "-A", "-o", "name"])
            .out
            .lines()
            .count()
            >= 8
    };
    assert!(
        wait(Duration::from_secs(60), running),
        "the pods of web, bad and large"
    );
    let mut sizes = BTreeMap::from([(WEB, 3_000_000), (SMALL, 1_000), (AGENT, 1_000_000)]);
    sizes.extend(images.iter().map(|image| (*image, 100_000_000)));
    sizes.extend(large.iter().map(|image| (*image, 15 * BANDWIDTH)));
    let sizes = sizes
        .into_iter()
        .map(|(image, size)| (&*String::leak(image.to_owned()), size))
        .collect();
    let kubelets = PullingKubelets::start(&cluster, sizes, BTreeMap::new(), WEB);
    let gate = json!([{"key": STARTUP, "effect": "NoSchedule"}]);
    join_tainted(&cluster, "a0", "10.0.20348", &[("agentpool", "a")], &gate);
    let released = || {
        kubelets
            .log()
            .nodes
            .get("a0")
            .and_then(|node| node.released.clone())
    };
    let is_released = || released().is_some();
    assert!(
        wait(Duration::from_secs(TIMEOUT), is_released),
        "{:?}",
        kubelets.log()
    );
    let (there, after) = released().unwrap();
    println!("released after {after:?} with {there:?}");
    assert!(has_all(&there), "{there:?}");
    assert!(!there.iter().any(|image| image.contains("/evil-")), "{there:?}");
    assert!(
        after.as_secs() <= TIMEOUT / 2 + 20,
        "half of the timeout is the share of one namespace: {after:?}"
    );
    drop(replicas);
}
