//! Node pools on a real API server: the leader records what it sees, follows it, and forgets what is deleted.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::program;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_with;

/// Statuses are written once a minute.
const SOON: Duration = Duration::from_secs(100);

fn pool(cluster: &ControlPlane, name: &str) -> Option<Value> {
    let printed = cluster.kubectl(&["get", "wnpool", name, "-o", "json"]);
    printed.ok.then(|| printed.object())
}

/// The names of the pools with this label.
fn names(cluster: &ControlPlane, label: &str) -> Vec<String> {
    let printed = cluster
        .kubectl(&["get", "wnpool", "-l", label, "-o", "name"])
        .succeeded();
    let names = printed.out.lines().filter_map(|line| line.split_once('/'));
    names.map(|(_, name)| name.to_owned()).collect()
}

const OBSERVED: &str = "transom.dev/owned=true";

/// A cluster with a Windows node of the pool `win` and one of the pool `old`, which the pool `mine` declares, after the leader
/// has recorded the other pool. With the name of that one.
fn cluster_with_pools() -> Option<(ControlPlane, String)> {
    let cluster = ControlPlane::start_or_skip("node pools")?;
    join_with(&cluster, "win-a", "10.0.20348", &[("agentpool", "win")]);
    join_with(&cluster, "win-b", "10.0.17763", &[("agentpool", "old")]);
    let declared = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool", "metadata": {"name": "mine"},
        "spec": {"nodeSelector": {"matchLabels": {"agentpool": "old"}}, "template": {"build": "10.0.17763"}}});
    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Audit"}});
    install::prepare(&cluster, &format!("{policy}\n---\n{declared}"));
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let name = recorded(&cluster);
    Some((cluster, name))
}

/// The only pool that the leader has recorded, once it has.
fn recorded(cluster: &ControlPlane) -> String {
    let is_created = || names(cluster, OBSERVED).len() == 1;
    assert!(wait(SOON, is_created), "{}", cluster.end_of_log("transom"));
    let [name] = names(cluster, OBSERVED).try_into().unwrap();
    name
}

fn part(cluster: &ControlPlane, name: &str, pointer: &str) -> Option<Value> {
    pool(cluster, name)?.pointer(pointer).cloned()
}

/// Waits until the status of a pool has this number of nodes.
fn has_nodes(cluster: &ControlPlane, name: &str, count: usize) {
    let is_counted = || part(cluster, name, "/status/nodeCount") == Some(json!(count));
    assert!(wait(SOON, is_counted), "{name}: {:?}", pool(cluster, name));
}

#[test]
fn the_leader_records_a_pool_that_it_sees_and_counts_the_nodes_of_declared_ones() {
    let Some((cluster, name)) = cluster_with_pools() else {
        return;
    };
    for name in ["mine", &name] {
        has_nodes(&cluster, name, 1);
    }
    let seen = pool(&cluster, &name).unwrap();
    assert_eq!(
        seen["spec"]["nodeSelector"]["matchLabels"],
        json!({"agentpool": "win"})
    );
    assert_eq!(seen["spec"]["template"]["build"], "10.0.20348");
    assert_eq!(seen["status"]["builds"][0]["release"], "ltsc2022");
    assert_eq!(seen["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(seen["status"]["conditions"][0]["status"], "True");
}

#[test]
fn a_recorded_pool_stays_without_nodes_and_is_forgotten_when_it_is_deleted() {
    let Some((cluster, name)) = cluster_with_pools() else {
        return;
    };
    has_nodes(&cluster, &name, 1);
    cluster.kubectl(&["delete", "node", "win-a"]).succeeded();
    has_nodes(&cluster, &name, 0);
    cluster.kubectl(&["delete", "wnpool", &name]).succeeded();
    // The leader has seen the deletion once it has recorded the next pool.
    join_with(&cluster, "win-c", "10.0.26100", &[("agentpool", "new")]);
    let new = recorded(&cluster);
    assert!(new.starts_with("new-"), "{new}");
}

#[test]
fn who_removes_the_label_of_a_recorded_pool_takes_it_over() {
    let Some((cluster, name)) = cluster_with_pools() else {
        return;
    };
    let label = OBSERVED.split_once('=').unwrap().0;
    let label = format!("{label}-");
    cluster.kubectl(&["label", "wnpool", &name, &label]).succeeded();
    let build = r#"{"spec":{"template":{"build":"10.0.26100"}}}"#;
    cluster
        .kubectl(&["patch", "wnpool", &name, "--type=merge", "-p", build])
        .succeeded();
    let is_reported = || {
        let conditions = part(&cluster, &name, "/status/conditions").unwrap_or_default();
        conditions.to_string().contains("BuildMismatched")
    };
    assert!(wait(SOON, is_reported), "{:?}", pool(&cluster, &name));
    assert_eq!(
        part(&cluster, &name, "/spec/template/build"),
        Some(json!("10.0.26100"))
    );
    assert!(names(&cluster, OBSERVED).is_empty());
}

#[test]
fn an_uninstall_removes_recorded_pools_and_no_declared_one() {
    let Some((cluster, name)) = cluster_with_pools() else {
        return;
    };
    cluster.end("transom", "TERM");
    let mut uninstall = Command::new(program());
    let kubeconfig = cluster.path("admin.kubeconfig");
    uninstall.args([
        "uninstall",
        "--yes",
        "--transom-namespace",
        "transom-system",
        "--kubeconfig",
    ]);
    let done = uninstall.arg(kubeconfig).output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(
        out.contains(&format!("1 WindowsNodePools ({name}")),
        "{out}{done:?}"
    );
    assert!(names(&cluster, OBSERVED).is_empty());
    assert_eq!(names(&cluster, ""), ["mine".to_owned()]);
}

/// Changes of the label of a pool that one kubelet makes, one a second.
fn changes() -> usize {
    let number = std::env::var("TRANSOM_POOL_CHANGES");
    number.ok().and_then(|number| number.parse().ok()).unwrap_or(20)
}

#[test]
fn a_node_that_changes_its_pool_hides_no_other_one_and_a_declared_one_stays_a_target() {
    let Some(cluster) = ControlPlane::start_or_skip("node pools") else {
        return;
    };
    // Nodes of two builds, so that the build of a pod matters.
    join_with(&cluster, "win-old", "10.0.17763", &[("agentpool", "old")]);
    let declared = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool", "metadata": {"name": "mine"},
        "spec": {"nodeSelector": {"matchLabels": {"agentpool": "zz-mine"}}, "template": {"build": "10.0.20348"}}});
    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Enforce"}});
    install::prepare(&cluster, &format!("{policy}\n---\n{declared}"));
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    assert!(
        wait(SOON, || names(&cluster, OBSERVED).len() == 1),
        "{}",
        cluster.end_of_log("transom")
    );

    // Each has been a pool, and has no nodes now.
    for number in 0..9 {
        join_with(
            &cluster,
            &format!("win-{number}"),
            "10.0.20348",
            &[("agentpool", &format!("pool-{number}"))],
        );
    }
    assert!(
        wait(SOON, || names(&cluster, OBSERVED).len() == 10),
        "{}",
        cluster.end_of_log("transom")
    );
    for number in 1..9 {
        cluster
            .kubectl(&["delete", "node", &format!("win-{number}")])
            .succeeded();
    }
    let began = std::time::Instant::now();
    for number in 0..changes() {
        let label = format!("agentpool=flip-{number}");
        cluster
            .kubectl(&["label", "node", "win-0", &label, "--overwrite"])
            .succeeded();
        let next = Duration::from_secs(number as u64 + 1);
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    join_with(&cluster, "win-new", "10.0.20348", &[("agentpool", "new")]);
    let has_new = || {
        names(&cluster, OBSERVED)
            .iter()
            .any(|name| name.starts_with("new-"))
    };
    assert!(wait(SOON, has_new), "{}", cluster.end_of_log("transom"));
    let flipped = names(&cluster, OBSERVED)
        .iter()
        .filter(|name| name.starts_with("flip-"))
        .count();
    assert_eq!(flipped, 0, "its pool was recorded within the last hour");

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]}});
    let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let placed = || cluster.kubectl_with(&args, &pod.to_string()).succeeded().object();
    let terms = || {
        let path =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        placed().pointer(path).cloned().unwrap_or_default()
    };
    let values = || -> Vec<Value> {
        let terms = terms();
        let of_pools = terms
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|term| term["matchExpressions"].as_array().cloned().unwrap_or_default());
        of_pools
            .filter(|expression| expression["key"] == "agentpool")
            .map(|expression| expression["values"].clone())
            .collect()
    };
    let has_pools = || values().len() == 1 && values()[0].as_array().is_some_and(|all| all.len() >= 9);
    assert!(wait(SOON, has_pools), "{}", terms());
    assert_eq!(
        values()[0][0],
        "zz-mine",
        "the declared one is the first of one term"
    );
}
