//! What the tests of a release share: a cluster without nodes, the release in it, and what a Windows node and pod are.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::Engine;
use super::kubelet::Kubelet;
use crate::support::command::program;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::skipped::skipped;

pub const NAMESPACE: &str = "transom-system";

/// An address of this machine that is not loopback, which an EndpointSlice may not have.
pub fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only looks for the way.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

/// A cluster with a Windows node that nobody runs but the tests, and who runs the pods of the release.
pub struct World {
    pub cluster: Arc<ControlPlane>,
    pub kubelet: Kubelet,
    pub kubeconfig: String,
    /// Everything that was in it before.
    before: BTreeSet<String>,
}

impl World {
    /// `None`, said past the test harness, where `what` cannot be proved here.
    pub fn start(what: &str, node: &Value) -> Option<World> {
        let Some(address) = address() else {
            skipped(format!(
                "SKIPPED: {what}: this machine has no address but loopback"
            ));
            return None;
        };
        let cluster = Arc::new(ControlPlane::start_or_skip(what)?);
        for namespace in ["apps", "second", NAMESPACE] {
            cluster.create_namespace(namespace, &[]);
        }
        let world = World {
            kubeconfig: cluster.path("admin.kubeconfig").display().to_string(),
            kubelet: Kubelet::start(Arc::clone(&cluster), address),
            before: BTreeSet::new(),
            cluster,
        };
        world.create(node);
        let before = everything(&world.cluster);
        Some(World { before, ..world })
    }

    /// Asks the engine for something about the release `transom`.
    pub fn request(&self, engine: &Engine, what: &str, more: &Value) -> Result<Value, String> {
        self.request_as(engine, what, "transom", NAMESPACE, more)
    }

    pub fn request_as(
        &self,
        engine: &Engine,
        what: &str,
        name: &str,
        namespace: &str,
        more: &Value,
    ) -> Result<Value, String> {
        let mut request = json!({"cluster": self.kubeconfig, "name": name, "namespace": namespace});
        let more = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(more);
        engine.request(what, request)
    }

    /// Installs or upgrades the release, and waits until every replica is ready.
    pub fn deploy(&self, engine: &Engine, what: &str, values: &Value) {
        let deployed = self.request(engine, what, &json!({ "values": values }));
        deployed.unwrap_or_else(|error| panic!("{error}\n{}", self.kubelet.jobs()));
        self.kubelet.settled();
    }

    pub fn create(&self, object: &Value) {
        self.cluster
            .kubectl_with(&["create", "-f", "-"], &object.to_string())
            .succeeded();
    }

    pub fn get(&self, kind: &str, name: &str) -> Value {
        self.cluster
            .kubectl(&["get", kind, name, "-o", "json"])
            .succeeded()
            .object()
    }

    /// Whether there is such an object; `place` is its kind and name, and its namespace where it has one.
    pub fn has(&self, place: &[&str]) -> bool {
        let printed = self
            .cluster
            .kubectl(&[&["get", "--ignore-not-found", "-o", "name"], place].concat());
        !printed.succeeded().out.is_empty()
    }

    /// What is in the cluster that was not in it before, but for what an uninstall leaves by design.
    pub fn left(&self) -> Vec<String> {
        let now = everything(&self.cluster);
        now.difference(&self.before).cloned().collect()
    }

    /// Waits until the webhooks are called: a pod that the API server would take is refused.
    pub fn is_called(&self) {
        let denied = || {
            let mut bad = windows_pod("bad");
            bad["spec"]["hostPID"] = json!(true);
            self.cluster
                .kubectl_with(&["create", "--dry-run=server", "-f", "-"], &bad.to_string())
                .err
                .contains("denied")
        };
        assert!(
            wait(Duration::from_secs(60), denied),
            "it is not called\n{}",
            self.kubelet.logs()
        );
    }
}

/// `transom uninstall` from a laptop.
pub fn cleanup(kubeconfig: &str, more: &[&str]) -> Output {
    let arguments = [
        "uninstall",
        "--yes",
        "--transom-namespace",
        NAMESPACE,
        "--kubeconfig",
        kubeconfig,
    ];
    let mut transom = Command::new(program());
    transom.args(arguments).args(more).output().unwrap()
}

/// What stays after an uninstall. The API server makes the first by itself of the others, which Helm keeps.
pub fn definitions() -> [String; 4] {
    let definition = |kind: &str| format!("CustomResourceDefinition /{kind}.transom.dev");
    [
        "APIService /v1alpha1.transom.dev".to_owned(),
        definition("windowsnodepolicies"),
        definition("windowsnodepools"),
        definition("windowspodpolicies"),
    ]
}

/// Everything in the cluster, by resource, namespace and name.
fn everything(cluster: &ControlPlane) -> BTreeSet<String> {
    let resources = cluster
        .kubectl(&["api-resources", "--verbs=list", "-o", "name"])
        .succeeded();
    let kinds: Vec<&str> = resources
        .out
        .lines()
        .filter(|kind| !kind.starts_with("events"))
        .collect();
    let format = r"jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\n'}{end}";
    let listed = cluster
        .kubectl(&["get", &kinds.join(","), "-A", "-o", format])
        .succeeded();
    // What the API server itself keeps writing is nobody's.
    let own =
        |line: &&str| !line.starts_with("Lease kube-system/") && !line.starts_with("ConfigMap kube-system/");
    listed.out.lines().filter(own).map(str::to_owned).collect()
}

/// A pod that the API server takes, and that lands nowhere without placement.
pub fn windows_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "apps"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
        },
    })
}

/// A Windows node as its kubelet registers it, with the taint of a platform.
pub fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "win-1",
            "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "agentpool": "win"}},
        "spec": {"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "architecture": "amd64", "kernelVersion": "10.0.20348.2402",
            "osImage": "Windows Server 2022 Datacenter", "containerRuntimeVersion": "containerd://1.7.20",
            "kubeletVersion": "v1.36.0", "kubeProxyVersion": "v1.36.0",
            "machineID": "", "systemUUID": "", "bootID": "",
        }},
    })
}
