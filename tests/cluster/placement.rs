//! Where pods land in a mixed cluster, by a real scheduler and real controllers, without Transom and with it. Without
//! the programs (kube-controller-manager and kube-scheduler too) this says so and proves nothing.
#![cfg(unix)]

mod extender;
mod platforms;
mod registry_images;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_with;
use serde_json::{Value, json};
use workloads::{Truth, Workload, workloads};

const CONTROLLERS: &str = "deployment-controller,replicaset-controller,replicationcontroller-controller,\
                           statefulset-controller,daemonset-controller,job-controller,cronjob-controller";

/// The nodes, with their builds; the Linux ones have none.
const NODES: [(&str, &str); 6] = [
    ("linux-a", ""),
    ("linux-b", ""),
    ("win-2019", "10.0.17763"),
    ("win-2022", "10.0.20348"),
    ("win-23h2", "10.0.25398"),
    ("win-2025", "10.0.26100"),
];

/// A pod as `/mutate` makes it.
fn placed(
    pod: &Value,
    facts: &transom::model::cluster::facts::Facts,
    policies: &transom::engine::policy_set::PolicySet,
) -> Value {
    use transom::admission::{AdmissionContext, Phase, review};
    let request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "default", "operation": "CREATE",
        "userInfo": {"username": "author"}, "object": pod}});
    let answer = review(
        Phase::Mutate,
        request.to_string().as_bytes(),
        &AdmissionContext { facts, policies },
    )
    .unwrap();
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let mut placed = pod.clone();
    if let Some(patch) = answer["response"]["patch"].as_str() {
        let patch = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut placed, &patch).unwrap();
    }
    placed
}

/// Placement is proven on a model of the scheduler (`tests/offline/properties/never_worse.rs`); the model is proven here.
#[test]
fn the_scheduler_finds_the_nodes_feasible_that_the_model_does() {
    let Some(programs) = programs_of_a_whole_control_plane("tests/cluster/placement.rs") else {
        return;
    };
    extender::compare(&ControlPlane::start(programs).unwrap());
}

#[test]
fn every_workload_lands_on_a_node_that_can_run_it_or_is_denied_at_apply() {
    let Some(cluster) = cluster() else { return };
    for (name, build) in NODES {
        join_with(&cluster, name, build, &[]);
    }
    let all = workloads();
    assert!(all.len() >= 40, "{}", all.len());

    let without = fates(&cluster, "without", &all);
    let right = report("without Transom", &all, &without);
    assert!(right.len() < all.len(), "the test would prove nothing");
    cluster
        .kubectl(&["delete", "namespace", "without", "--wait=false"])
        .succeeded();
    empty(&cluster, "without");

    let policies = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Enforce, placement: {linuxPods: Apply}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: default}
spec: {mode: Reconcile}
";
    let _replica = serve(&cluster, policies, &[]);

    let with = fates(&cluster, "with", &all);
    let right = report("with Transom", &all, &with);
    assert_eq!(right.len(), all.len(), "{}", cluster.end_of_log("transom"));
}

/// The label of a pool.
const FACTS: &str = "nodeLabels: [{key: agentpool, valuePrefixes: [win]}]\n";
/// A policy, and pools at zero: one without labels, and one with the build label.
const POOLS_AT_ZERO: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Enforce}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: default}
spec: {mode: Reconcile, taints: {mode: Audit}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePool
metadata: {name: bare}
spec:
  nodeSelector: {matchLabels: {agentpool: win22}}
  template: {build: 10.0.20348}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePool
metadata: {name: labelled}
spec:
  nodeSelector: {matchLabels: {karpenter.sh/nodepool: win25}}
  template: {build: 10.0.26100, labels: {node.kubernetes.io/windows-build: 10.0.26100}}
";

/// What else is in the way of Windows pods on a platform stands in `platforms`, in the same cluster.
///
/// What the Cluster Autoscaler and Karpenter do with a pool at zero: they ask the scheduler whether the pod would fit a
/// node as the pool's template describes it. So a node like the template must be one that the scheduler takes.
#[test]
fn an_autoscaler_finds_a_pool_at_zero_for_the_pod_that_placement_made() {
    let Some(cluster) = cluster() else { return };
    join_with(&cluster, "linux-a", "", &[]);
    join_with(&cluster, "win-2019", "10.0.17763", &[]);
    platforms::define_constraints(&cluster);
    install::prepare(&cluster, POOLS_AT_ZERO);
    let facts = install::cluster_config(&cluster, FACTS);
    let facts = facts.each_ref().map(String::as_str);
    let replica = Replica::start(&cluster, "transom", &facts);
    let guard = ["--linux-pods-selector", "guard=on"];
    install::register(&cluster, replica.port, &[guard, facts].concat());
    replica.is_ready(&cluster);
    let pod = |name: &str, image: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "app", "image": image}],
        }})
    };
    let create = |pod: Value| {
        cluster
            .kubectl_with(&["create", "-f", "-"], &pod.to_string())
            .succeeded()
    };
    create(pod("for-2022", "mcr.microsoft.com/windows/servercore:ltsc2022"));
    create(pod("for-2025", "mcr.microsoft.com/windows/servercore:ltsc2025"));
    let node_of = |name: &str| {
        let pod = cluster
            .kubectl(&["-n", "default", "get", "pod", name, "-o", "json"])
            .succeeded()
            .object();
        pod["spec"]["nodeName"].as_str().map(str::to_owned)
    };
    let refused = |name: &str| {
        let pod = cluster
            .kubectl(&["-n", "default", "get", "pod", name, "-o", "json"])
            .succeeded()
            .object();
        pod["status"]["conditions"].to_string().contains("Unschedulable")
    };
    for name in ["for-2022", "for-2025"] {
        assert!(
            wait(Duration::from_secs(30), || refused(name)),
            "{name} must wait: only 2019 is there"
        );
    }
    // The node of the bare template has no build label, as the Cluster Autoscaler imagines it; a wrong pool is no help.
    join_with(
        &cluster,
        "of-another-pool",
        "",
        &[("kubernetes.io/os", "windows"), ("agentpool", "other")],
    );
    join_with(
        &cluster,
        "of-bare-template",
        "",
        &[("kubernetes.io/os", "windows"), ("agentpool", "win22")],
    );
    assert!(
        wait(Duration::from_secs(30), || node_of("for-2022").is_some()),
        "{:?}",
        node_of("for-2022")
    );
    assert_eq!(node_of("for-2022").as_deref(), Some("of-bare-template"));
    assert_eq!(node_of("for-2025"), None);
    join_with(
        &cluster,
        "of-labelled-template",
        "",
        &[
            ("kubernetes.io/os", "windows"),
            ("karpenter.sh/nodepool", "win25"),
            ("node.kubernetes.io/windows-build", "10.0.26100"),
        ],
    );
    assert!(
        wait(Duration::from_secs(30), || node_of("for-2025").is_some()),
        "{:?}",
        node_of("for-2025")
    );
    assert_eq!(node_of("for-2025").as_deref(), Some("of-labelled-template"));

    platforms::a_node_without_the_label_of_its_build(&cluster);
    platforms::openshift(&cluster);
    platforms::eks(&cluster);
    platforms::taints_that_come_and_go(&cluster);
}

/// Starts Transom with these policies, and additional arguments of `serve` and `generate webhooks`. Waits until the Windows
/// nodes have their taint.
fn serve(cluster: &ControlPlane, policies: &str, more: &[&str]) -> Replica {
    install::prepare(cluster, policies);
    let replica = Replica::start(cluster, "transom", more);
    let guard = ["--linux-pods-selector", "guard=on"];
    install::register(cluster, replica.port, &[&guard[..], more].concat());
    replica.is_ready(cluster);
    let tainted = || {
        let nodes = cluster
            .kubectl(&["get", "nodes", "-l", "kubernetes.io/os=windows", "-o", "json"])
            .succeeded();
        let is_tainted = |node: &Value| node["spec"]["taints"].to_string().contains("\"os\"");
        nodes.objects().iter().all(is_tainted)
    };
    assert!(
        wait(Duration::from_secs(60), tainted),
        "{}",
        cluster.end_of_log("transom")
    );
    replica
}

fn cluster() -> Option<ControlPlane> {
    let cluster =
        ControlPlane::start(programs_of_a_whole_control_plane("tests/cluster/placement.rs")?).unwrap();
    cluster.start_controllers_of(CONTROLLERS).unwrap();
    cluster.start_scheduler().unwrap();
    Some(cluster)
}

/// What became of a workload.
#[derive(Debug)]
enum Fate {
    /// `kubectl apply` failed, with this.
    Denied(String),
    /// The nodes that its pods landed on; `None` for a pod that fits nowhere.
    Pods(Vec<Option<String>>),
}

/// Applies every workload in a namespace and waits until the scheduler has decided on every pod.
fn fates(cluster: &ControlPlane, namespace: &str, all: &[Workload]) -> BTreeMap<String, Fate> {
    cluster.create_namespace(namespace, &[("guard", "on")]);
    let mut fates = BTreeMap::new();
    for workload in all {
        let printed = cluster.kubectl_with(
            &["-n", namespace, "create", "-f", "-"],
            &workload.object.to_string(),
        );
        if !printed.ok {
            fates.insert(workload.name.clone(), Fate::Denied(printed.err));
        } else if workload.object["kind"] == "CronJob" {
            let from = format!("cronjob/{}", workload.name);
            cluster
                .kubectl(&["-n", namespace, "create", "job", &workload.name, "--from", &from])
                .succeeded();
        }
    }
    let settled = || {
        let pods = pods(cluster, namespace);
        all.iter()
            .filter(|workload| !fates.contains_key(&workload.name))
            .all(|workload| {
                let own: Vec<&Value> = of(&pods, &workload.name).collect();
                let decided = |pod: &&Value| {
                    pod["spec"]["nodeName"].is_string()
                        || pod["status"]["conditions"].to_string().contains("Unschedulable")
                };
                // A DaemonSet whose selector fits no node has none, and never will.
                (!own.is_empty() || workload.object["kind"] == "DaemonSet") && own.iter().all(decided)
            })
    };
    wait(Duration::from_secs(90), settled);
    std::thread::sleep(Duration::from_secs(3));
    let pods = pods(cluster, namespace);
    for workload in all {
        fates.entry(workload.name.clone()).or_insert_with(|| {
            Fate::Pods(
                of(&pods, &workload.name)
                    .map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
                    .collect(),
            )
        });
    }
    fates
}

fn pods(cluster: &ControlPlane, namespace: &str) -> Vec<Value> {
    cluster
        .kubectl(&["-n", namespace, "get", "pods", "-o", "json"])
        .succeeded()
        .objects()
}

fn of<'p>(pods: &'p [Value], workload: &'p str) -> impl Iterator<Item = &'p Value> {
    pods.iter()
        .filter(move |pod| pod["metadata"]["labels"]["app"] == workload)
}

/// Waits until a namespace has no pods any more; here is no kubelet that would end them.
fn empty(cluster: &ControlPlane, namespace: &str) {
    let gone = || {
        cluster.kubectl(&[
            "-n",
            namespace,
            "delete",
            "pods",
            "--all",
            "--force",
            "--grace-period=0",
            "--wait=false",
        ]);
        cluster.kubectl(&[
            "-n",
            namespace,
            "delete",
            "deployments,statefulsets,daemonsets,replicasets,jobs,cronjobs,replicationcontrollers",
            "--all",
            "--wait=false",
        ]);
        pods(cluster, namespace).is_empty()
    };
    assert!(wait(Duration::from_secs(60), gone));
}

/// Whether this is the right fate for a workload.
fn is_right(truth: &Truth, fate: &Fate) -> bool {
    match (truth, fate) {
        (Truth::Denied(rule), Fate::Denied(message)) => message.contains(rule),
        (Truth::RunsOn(nodes), Fate::Pods(pods)) => {
            let is_right = |node: &Option<String>| node.as_deref().is_some_and(|node| nodes.contains(&node));
            !pods.is_empty() && pods.iter().all(is_right)
        }
        _ => false,
    }
}

/// Prints the share of workloads whose fate is right, and each that is not; returns the names of the right ones.
fn report<'w>(how: &str, all: &'w [Workload], fates: &BTreeMap<String, Fate>) -> BTreeSet<&'w str> {
    let is_right = |workload: &&Workload| is_right(&workload.truth, &fates[&workload.name]);
    let (right, wrong): (Vec<&Workload>, Vec<&Workload>) = all.iter().partition(is_right);
    let wrong: Vec<String> = (wrong.iter())
        .map(|workload| {
            let fate = &fates[&workload.name];
            format!("  {}: should be {:?}, is {fate:?}", workload.name, workload.truth)
        })
        .collect();
    let _ = writeln!(
        std::io::stderr(),
        "{how}: {} of {} workloads placed correctly ({} %)\n{}",
        right.len(),
        all.len(),
        right.len() * 100 / all.len(),
        wrong.join("\n")
    );
    right.into_iter().map(|workload| workload.name.as_str()).collect()
}
