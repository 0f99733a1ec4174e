//! Simulates kubelets as the control plane sees them: bound pods run, pods of Jobs succeed, and terminating
//! pods are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::control_plane::ControlPlane;

/// The interval between two passes.
const REST: Duration = Duration::from_millis(250);

/// The kubelets of all nodes; they stop when this is dropped.
pub struct Kubelets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelets {
    pub fn start(cluster: &ControlPlane) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let config = runtime.block_on(cluster.config());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let client = Client::try_from(config).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    visit(&client).await;
                    tokio::time::sleep(REST).await;
                }
            });
        });
        Kubelets {
            stop,
            thread: Some(thread),
        }
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
async fn visit(client: &Client) {
    let all: Api<Pod> = Api::all(client.clone());
    let Ok(pods) = all.list(&ListParams::default()).await else {
        return;
    };
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
        } else if phase == Some("Pending") {
            let status = status_of(&pod);
            let _ = own
                .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
                .await;
        }
    }
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
    let node = json!({
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
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &node.to_string())
        .succeeded();
    // The API server adds it to every new node, and no controller removes it here.
    cluster
        .kubectl(&["taint", "node", name, "node.kubernetes.io/not-ready:NoSchedule-"])
        .succeeded();
}
