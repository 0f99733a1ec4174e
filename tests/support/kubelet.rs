//! Simulates kubelets as the control plane sees them: bound pods run, pods of Jobs succeed, and terminating
//! pods are deleted.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::control_plane::ControlPlane;

/// The interval between two passes.
const REST: Duration = Duration::from_millis(250);

/// The kubelets of all nodes; they stop when this is dropped.
pub struct Kubelets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    ready: Arc<Mutex<ReadyReplicas>>,
}

/// The lowest number of Ready pods in a pass, by the label `app`.
pub type ReadyReplicas = BTreeMap<String, usize>;

/// The images on nodes, and since when they are pulled.
#[derive(Default)]
struct Pulls {
    /// How long the first pod of an image on a node waits for it.
    duration: Duration,
    since: HashMap<(String, String), Instant>,
}

impl Pulls {
    /// Whether a node has the images of its pod; otherwise it pulls them now.
    fn have(&mut self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref().unwrap();
        let node = spec.node_name.clone().unwrap();
        let images = spec
            .containers
            .iter()
            .filter_map(|container| container.image.clone());
        let mut since = images.map(|image| {
            *self
                .since
                .entry((node.clone(), image))
                .or_insert_with(Instant::now)
        });
        since.all(|since| since.elapsed() >= self.duration)
    }
}

impl Kubelets {
    pub fn start(cluster: &ControlPlane) -> Self {
        Self::start_with_pulls(cluster, Duration::ZERO)
    }

    /// The same; a pod becomes Ready once its node has pulled its images, of which each takes this long once.
    pub fn start_with_pulls(cluster: &ControlPlane, duration: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let config = runtime.block_on(cluster.config());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let ready = Arc::new(Mutex::new(ReadyReplicas::new()));
        let lowest = Arc::clone(&ready);
        let mut pulls = Pulls {
            duration,
            ..Pulls::default()
        };
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let client = Client::try_from(config).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    visit(&client, &mut pulls, &lowest).await;
                    tokio::time::sleep(REST).await;
                }
            });
        });
        Kubelets {
            stop,
            thread: Some(thread),
            ready,
        }
    }

    /// The lowest number of Ready pods of each workload since this was called before.
    pub fn lowest(&self) -> ReadyReplicas {
        std::mem::take(&mut self.ready.lock().unwrap())
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Advances every bound pod by one step. Failed steps are retried in the next pass.
async fn visit(client: &Client, pulls: &mut Pulls, lowest: &Mutex<ReadyReplicas>) {
    let all: Api<Pod> = Api::all(client.clone());
    let Ok(pods) = all.list(&ListParams::default()).await else {
        return;
    };
    let mut ready = ReadyReplicas::new();
    for pod in &pods {
        if let Some(app) = pod.labels().get("app") {
            *ready.entry(app.clone()).or_default() += usize::from(is_ready(pod));
        }
    }
    for (app, ready) in ready {
        let mut lowest = lowest.lock().unwrap();
        let known = lowest.entry(app).or_insert(ready);
        *known = ready.min(*known);
    }
    for pod in pods {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let own: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !is_bound {
            continue;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = own.delete(name, &DeleteParams::default().grace_period(0)).await;
        } else if phase == Some("Pending") && pulls.have(&pod) {
            let status = status_of(&pod);
            let _ = own
                .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
                .await;
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
    pod.metadata.deletion_timestamp.is_none() && ready.next().is_some()
}

fn status_of(pod: &Pod) -> serde_json::Value {
    let always = pod
        .spec
        .as_ref()
        .is_none_or(|spec| spec.restart_policy.as_deref() == Some("Always"));
    let (phase, ready) = if always {
        ("Running", "True")
    } else {
        ("Succeeded", "False")
    };
    let now = k8s_openapi::jiff::Timestamp::now();
    let conditions = ["Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": ready, "lastTransitionTime": format!("{now:.0}")}));
    json!({"status": {"phase": phase, "conditions": conditions}})
}

/// Registers a node as its kubelet would: ready, with capacity and the kubelet's labels. For a Linux node,
/// `build` is empty.
pub fn join(cluster: &ControlPlane, name: &str, build: &str) {
    join_with(cluster, name, build, &[]);
}

/// Registers a node with additional labels, which may contradict the operating system of the build.
pub fn join_with(cluster: &ControlPlane, name: &str, build: &str, more: &[(&str, &str)]) {
    join_tainted(cluster, name, build, more, &json!([]));
}

/// Registers a node with additional labels, and these taints.
pub fn join_tainted(
    cluster: &ControlPlane,
    name: &str,
    build: &str,
    more: &[(&str, &str)],
    taints: &serde_json::Value,
) {
    let node = new_node(name, build, more, taints);
    cluster
        .kubectl_with(&["create", "-f", "-"], &node.to_string())
        .succeeded();
    // The API server adds it to every new node, and no controller removes it here.
    cluster
        .kubectl(&["taint", "node", name, "node.kubernetes.io/not-ready:NoSchedule-"])
        .succeeded();
}

/// Registers many such nodes, some at a time. Nothing else should write their taints at once.
pub fn join_all(
    cluster: &ControlPlane,
    names: &[String],
    build: &str,
    more: &[(&str, &str)],
    taints: &serde_json::Value,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let nodes: Api<Node> = Api::all(cluster.client().await);
        let joins = names.iter().map(|name| {
            let node = new_node(name, build, more, taints);
            let nodes = &nodes;
            async move {
                let node: Node = serde_json::from_value(node).unwrap();
                nodes.create(&PostParams::default(), &node).await.unwrap();
                let only = Patch::Merge(json!({"spec": {"taints": taints}}));
                let params = PatchParams::default();
                nodes.patch(name, &params, &only).await.unwrap();
            }
        });
        futures::stream::iter(joins)
            .buffer_unordered(16)
            .collect::<()>()
            .await;
    });
}

fn new_node(name: &str, build: &str, more: &[(&str, &str)], taints: &serde_json::Value) -> serde_json::Value {
    let os = if build.is_empty() { "linux" } else { "windows" };
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", os),
        ("beta.kubernetes.io/os", os),
    ]);
    if !build.is_empty() {
        labels.insert("node.kubernetes.io/windows-build", build);
    }
    labels.extend(more.iter().copied());
    let os = labels["kubernetes.io/os"];
    let kernel = if build.is_empty() {
        "6.1.0".to_owned()
    } else {
        format!("{build}.2700")
    };
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "1Ti"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
            "nodeInfo": {
                "operatingSystem": os, "architecture": "amd64", "kernelVersion": kernel,
                "containerRuntimeVersion": "containerd://1.7.20", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "machineID": "", "systemUUID": "", "bootID": "", "osImage": "",
            },
        },
    })
}
