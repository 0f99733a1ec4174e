//! The guard of taints next to another client, with real replicas, webhooks and a real scheduler.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::{Kubelets, join_with};

const REPLICAS: usize = 6;

fn policies() -> String {
    let pods = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Warn"}});
    let nodes = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "windows"},
        "spec": {"mode": "Reconcile"}});
    format!("{pods}\n---\n{nodes}")
}

fn is_tainted(cluster: &ControlPlane, node: &str) -> bool {
    let node = cluster
        .kubectl(&["get", "node", node, "-o", "json"])
        .succeeded()
        .object();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().any(|taint| taint["key"] == "os")
}

/// How many pods of the Deployment are Ready, without those that terminate.
fn ready(cluster: &ControlPlane) -> usize {
    let pods = cluster
        .kubectl(&["get", "pods", "-l", "app=web", "-o", "json"])
        .succeeded()
        .objects();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        pod["metadata"]["deletionTimestamp"].is_null()
            && conditions
                .iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    pods.iter().filter(is_ready).count()
}

fn condition(cluster: &ControlPlane, kind: &str) -> Value {
    let policy = cluster
        .kubectl(&["get", "wnp", "windows", "-o", "json"])
        .succeeded()
        .object();
    let conditions = policy["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions
        .into_iter()
        .find(|it| it["type"] == kind)
        .unwrap_or_default()
}

#[test]
fn a_client_that_takes_the_taint_from_one_pool_strands_no_pod() {
    let Some(programs) = programs_of_a_whole_control_plane("the guard of taints") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap_or_else(|error| panic!("{error}"));
    install::prepare(&cluster, &policies());
    cluster
        .start_controllers_of("deployment-controller,replicaset-controller")
        .unwrap();
    cluster.start_scheduler().unwrap();
    let _kubelets = Kubelets::start(&cluster);
    join_with(&cluster, "w19", "10.0.17763", &[("agentpool", "a")]);
    join_with(&cluster, "w22", "10.0.20348", &[("agentpool", "b")]);
    let small = json!({"status": {"allocatable": {"pods": "2"}, "capacity": {"pods": "2"}}}).to_string();
    cluster
        .kubectl(&["patch", "node", "w19", "--subresource=status", "-p", &small])
        .succeeded();
    let replica = Replica::start(&cluster, "one", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "containers": [{"name": "c", "image": "registry.example/app:1"}]}}}});
    cluster
        .kubectl_with(&["create", "-f", "-"], &web.to_string())
        .succeeded();
    let both = || ["w19", "w22"].iter().all(|node| is_tainted(&cluster, node));
    assert!(
        wait(Duration::from_secs(90), both),
        "{}",
        cluster.end_of_log("one")
    );
    let all = || ready(&cluster) == REPLICAS;
    assert!(
        wait(Duration::from_secs(60), all),
        "{} are Ready",
        ready(&cluster)
    );

    let is_contested = || {
        if is_tainted(&cluster, "w19") {
            cluster.kubectl(&["taint", "node", "w19", "os-"]);
        }
        condition(&cluster, "Conflicted")["status"] == "True"
    };
    assert!(
        wait(Duration::from_secs(90), is_contested),
        "{}",
        cluster.end_of_log("one")
    );
    cluster
        .kubectl(&["delete", "pods", "-l", "app=web", "--wait=false"])
        .succeeded();
    let began = std::time::Instant::now();
    // Placement withholds the toleration, because the build of the image is unknown and a node of another build is open.
    let some_wait = || ready(&cluster) < REPLICAS;
    assert!(wait(Duration::from_secs(30), some_wait), "nothing was restarted");
    assert!(
        wait(Duration::from_secs(240), || !is_tainted(&cluster, "w22") && all()),
        "{} are Ready: {:#}\n{}",
        ready(&cluster),
        condition(&cluster, "TaintsBlocked"),
        cluster.end_of_log("one")
    );
    println!("all pods ran {:?} after they were restarted", began.elapsed());
    let is_named = || {
        let blocked = condition(&cluster, "TaintsBlocked");
        let message = blocked["message"].as_str().unwrap_or_default();
        blocked["status"] == "True"
            && message.contains("Deployment default/web (placement would not give its pods")
    };
    assert!(
        wait(Duration::from_secs(90), is_named),
        "{:#}",
        condition(&cluster, "TaintsBlocked")
    );

    // With another policy the client's removals are forgotten, and both nodes get the taint again.
    let changed = json!({"spec": {"labels": {"nodeRestriction": {"mode": "Disabled"}}}}).to_string();
    cluster
        .kubectl(&["patch", "wnp", "windows", "--type=merge", "-p", &changed])
        .succeeded();
    assert!(
        wait(Duration::from_secs(90), both),
        "{}",
        cluster.end_of_log("one")
    );
    cluster
        .kubectl(&["delete", "pods", "-l", "app=web", "--wait=false"])
        .succeeded();
    std::thread::sleep(Duration::from_secs(3));
    assert!(
        wait(Duration::from_secs(60), all),
        "{} are Ready",
        ready(&cluster)
    );
}
