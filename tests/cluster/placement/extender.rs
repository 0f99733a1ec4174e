//! The model of the scheduler that placement is checked by, compared with a real scheduler: an extender receives the nodes that
//! are left of each pod, and lets none of them be used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, wait};
use crate::support::http;
use crate::support::schedule::{Cluster, any_cluster, any_pod, cluster_of_20_nodes};

/// What the extender was asked: the nodes that the scheduler found feasible, by the name of the pod.
type FilteredNodes = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// So many small clusters, with so many pods at once in each, and so many pods in a cluster of 20 nodes.
fn sizes() -> (usize, usize, usize) {
    let of = |name: &str, otherwise| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(otherwise)
    };
    (
        of("TRANSOM_SCHEDULER_CLUSTERS", 6),
        of("TRANSOM_SCHEDULER_PODS", 25),
        of("TRANSOM_SCHEDULER_PODS_ON_20_NODES", 200),
    )
}

/// An extender that lets no node be used.
fn extender() -> (SocketAddr, FilteredNodes) {
    let requested = FilteredNodes::default();
    let filtered = Arc::clone(&requested);
    let address = http::serve(move |request| {
        let call: Value = serde_json::from_slice(request.body()).unwrap();
        let name = call["Pod"]["metadata"]["name"].as_str().unwrap().to_owned();
        let nodes: BTreeSet<String> = (call["NodeNames"].as_array().into_iter().flatten())
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect();
        let failed: BTreeMap<&str, &str> = nodes.iter().map(|node| (node.as_str(), "a test")).collect();
        let answer = json!({"NodeNames": [], "FailedNodes": failed, "Error": ""});
        filtered.lock().unwrap().insert(name, nodes);
        Some(http::json(200, &answer))
    });
    (address, requested)
}

/// Creates objects, by several processes: kubectl limits its own requests.
fn create(cluster: &ControlPlane, objects: &[Value]) {
    std::thread::scope(|scope| {
        for part in objects.chunks(objects.len().div_ceil(8).max(50)) {
            scope.spawn(move || {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": part});
                cluster
                    .kubectl_with(&["create", "--validate=false", "-f", "-"], &list.to_string())
                    .succeeded();
            });
        }
    });
}

/// A node as the API server takes it; the taint of a new node is taken off when all of them exist.
fn join(cluster: &ControlPlane, model: &Cluster) {
    create(cluster, &model.nodes);
    for node in &model.nodes {
        let name = node["metadata"]["name"].as_str().unwrap();
        let spec = json!({"spec": {"taints": node["spec"]["taints"]}}).to_string();
        cluster
            .kubectl(&["patch", "node", name, "--type=merge", "-p", &spec])
            .succeeded();
    }
}

/// Compares where the scheduler could put each pod with where the model says that it could.
pub fn compare(cluster: &ControlPlane) {
    let (address, requested) = extender();
    let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false}, "percentageOfNodesToScore": 100,
        "clientConnection": {"kubeconfig": cluster.path("admin.kubeconfig"), "qps": 1000, "burst": 2000},
        "extenders": [{"urlPrefix": format!("http://{address}"), "filterVerb": "filter", "enableHTTPS": false,
            "nodeCacheCapable": true, "httpTimeout": "30s"}]});
    std::fs::write(cluster.path("scheduler.json"), config.to_string()).unwrap();
    let argument = format!("--config={}", cluster.path("scheduler.json").display());
    cluster.start_scheduler_with(&[argument]).unwrap();

    let (clusters, pods, pods_on_20_nodes) = sizes();
    // The same ones each time: a commit is red for what it changes.
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let (mut compared, mut empty, mut placed) = (0, 0, 0);
    for number in 0..=clusters {
        let is_large = number == clusters;
        let model = if is_large {
            cluster_of_20_nodes().new_tree(&mut runner).unwrap().current()
        } else {
            any_cluster().new_tree(&mut runner).unwrap().current()
        };
        assert_eq!(model.nodes.len() == 20, is_large);
        let pods = if is_large { pods_on_20_nodes } else { pods };
        join(cluster, &model);
        let facts = model.facts();
        let mut expected: BTreeMap<String, (BTreeSet<String>, Value)> = BTreeMap::new();
        let mut objects = Vec::new();
        for index in 0..pods {
            let mut pod = any_pod().new_tree(&mut runner).unwrap().current();
            // The class is merged in here: its handler is none that this cluster runs.
            merge_class(&mut pod, &model);
            let name = format!("pod-{number}-{index}");
            let policies = transom::engine::policy_set::PolicySet::new(Vec::new(), model.policy.clone());
            let after = super::placed(&pod, &facts, &policies);
            placed += usize::from(after != pod);
            for (suffix, mut pod) in [("before", pod), ("after", after)] {
                let name = format!("{name}-{suffix}");
                pod["metadata"]["name"] = name.clone().into();
                // Only selectors, taints, spread and extended resources are compared; Windows fields need Windows nodes.
                let spec = pod["spec"].as_object_mut().unwrap();
                // A class that placement has set is one that this cluster does not have.
                for field in ["os", "hostNetwork", "securityContext", "runtimeClassName"] {
                    spec.remove(field);
                }
                expected.insert(name, (model.feasible(&pod, &[]), pod.clone()));
                objects.push(pod);
            }
        }
        let called = requested.lock().unwrap().len();
        create(cluster, &objects);
        // To read all pods takes long, so it comes last. The scheduler calls the extender for each pod with a feasible node.
        let with_nodes = expected.values().filter(|(nodes, _)| !nodes.is_empty()).count();
        wait(Duration::from_secs(300), || {
            requested.lock().unwrap().len() >= called + with_nodes
        });
        let decided = || {
            let listed = cluster
                .kubectl(&["get", "pods", "-o", "json"])
                .succeeded()
                .objects();
            let is_decided = |pod: &&Value| pod["status"]["conditions"].to_string().contains("Unschedulable");
            listed.iter().filter(is_decided).count() == objects.len()
        };
        assert!(
            wait(Duration::from_secs(600), decided),
            "{}",
            cluster.end_of_log("kube-scheduler")
        );
        let requested = requested.lock().unwrap().clone();
        for (name, (by_model, pod)) in &expected {
            // The scheduler does not call an extender when no node is left.
            let by_scheduler = requested.get(name).cloned().unwrap_or_default();
            assert_eq!(&by_scheduler, by_model, "{name}: {pod} in {}", model.brief());
            compared += 1;
            empty += usize::from(by_model.is_empty());
        }
        if !is_large {
            cluster
                .kubectl(&["delete", "pods", "--all", "--force", "--grace-period=0"])
                .succeeded();
            cluster.kubectl(&["delete", "nodes", "--all"]).succeeded();
        }
    }
    println!(
        "{compared} pods compared with the scheduler in {} clusters: the same feasible nodes; {empty} without any, \
         {placed} changed by placement",
        clusters + 1
    );
    assert!(compared > empty && placed > 0, "the test would prove nothing");
}

fn merge_class(pod: &mut Value, model: &Cluster) {
    let spec = pod["spec"].as_object_mut().unwrap();
    let Some(name) = spec.remove("runtimeClassName") else {
        return;
    };
    let Some(class) = name.as_str().and_then(|name| model.classes.get(name)) else {
        return;
    };
    for (key, value) in &class.node_selector {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        selector[key] = value.clone().into();
    }
    for toleration in &class.tolerations {
        let list = spec.entry("tolerations").or_insert_with(|| json!([]));
        let key = toleration.key.as_ref().map(ToString::to_string);
        list.as_array_mut()
            .unwrap()
            .push(json!({"key": key, "operator": "Exists"}));
    }
}
