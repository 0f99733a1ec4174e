//! Transom next to a real control plane, installed as a team would: resources, policies, webhooks, and the
//! program.

use std::path::Path;
use std::time::Duration;

use super::command::{printed, program};
use super::control_plane::{ControlPlane, free_ports, wait};
use super::server::metric;

/// The policies that the chart installs: errors deny, placement is applied, and taints are only reported.
pub const POLICIES: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Enforce}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: default}
spec: {mode: Reconcile, taints: {mode: Audit}}
";

/// One running replica.
pub struct Replica {
    pub name: String,
    pub address: String,
    pub port: u16,
    pub health: u16,
}

impl Replica {
    /// Starts a replica for the cluster; `more` are additional arguments of `serve`.
    pub fn start(cluster: &ControlPlane, name: &str, more: &[&str]) -> Replica {
        let [port, health] = free_ports();
        Self::start_at(cluster, name, port, health, more)
    }

    /// Starts a replica on fixed ports.
    pub fn start_at(cluster: &ControlPlane, name: &str, port: u16, health: u16, more: &[&str]) -> Replica {
        let kubeconfig = cluster.path("admin.kubeconfig");
        Self::start_with_kubeconfig(cluster, &kubeconfig, name, [port, health], more)
    }

    /// Starts a replica with another kubeconfig.
    pub fn start_with_kubeconfig(
        cluster: &ControlPlane,
        kubeconfig: &Path,
        name: &str,
        ports: [u16; 2],
        more: &[&str],
    ) -> Replica {
        let mut args = Self::arguments(kubeconfig, name, ports);
        args.extend(more.iter().map(ToString::to_string));
        cluster.run_program(name, &program(), &args);
        Self::on(name, ports)
    }

    /// Starts a replica with these variables (`NAME=value`) in its environment.
    pub fn start_with_environment(
        cluster: &ControlPlane,
        variables: &[String],
        name: &str,
        ports: [u16; 2],
    ) -> Replica {
        let args = Self::arguments(&cluster.path("admin.kubeconfig"), name, ports);
        let args = [variables, &[program().display().to_string()], &args].concat();
        cluster.run_program(name, Path::new("env"), &args);
        Self::on(name, ports)
    }

    fn arguments(kubeconfig: &Path, name: &str, [port, health]: [u16; 2]) -> Vec<String> {
        [
            "serve",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--transom-namespace",
            "transom-system",
            "--identity",
            name,
            "--webhook-url",
            &format!("https://127.0.0.1:{port}"),
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--health-listen",
            &format!("127.0.0.1:{health}"),
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn on(name: &str, [port, health]: [u16; 2]) -> Replica {
        Replica {
            name: name.to_owned(),
            address: "127.0.0.1".to_owned(),
            port,
            health,
        }
    }

    /// The response of `/readyz` or `/metrics`; `None` while nothing answers.
    pub fn get(&self, path: &str) -> Option<(bool, String)> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect((self.address.as_str(), self.health)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: transom\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.starts_with("HTTP/1.1 200"), body.to_owned()))
    }

    /// The value of a metric.
    pub fn metric(&self, series: &str) -> Option<u64> {
        metric(&self.get("/metrics")?.1, series)
    }

    /// Waits until the replica is ready.
    #[track_caller]
    pub fn is_ready(&self, cluster: &ControlPlane) {
        let ready = || self.get("/readyz").is_some_and(|(ok, _)| ok);
        assert!(
            wait(Duration::from_secs(60), ready),
            "{} is not ready: {:?}\n{}",
            self.name,
            self.get("/readyz"),
            cluster.end_of_log(&self.name)
        );
    }
}

/// Installs the definitions.
pub fn define(cluster: &ControlPlane) {
    let apply = ["apply", "--server-side", "-f", "-"];
    cluster
        .kubectl_with(&apply, &printed(&["generate", "crds"]))
        .succeeded();
    cluster.wait_for_definitions();
}

/// Installs the definitions and the policies, and creates Transom's namespace.
pub fn prepare(cluster: &ControlPlane, policies: &str) {
    cluster.create_namespace("transom-system", &[]);
    define(cluster);
    // The API server serves new kinds a moment after they are established.
    let applied = || cluster.kubectl_with(&["apply", "-f", "-"], policies).ok;
    assert!(wait(Duration::from_secs(20), applied), "{policies}");
}

/// The flags that name a file with these facts about the cluster, which replaces one that was written before.
pub fn cluster_config(cluster: &ControlPlane, facts: &str) -> [String; 2] {
    let file = cluster.path("cluster-config.yaml");
    std::fs::write(&file, facts).unwrap();
    ["--cluster-config".to_owned(), file.to_str().unwrap().to_owned()]
}

/// Registers the webhooks of the replica on a port; `more` are additional arguments of `generate webhooks`.
pub fn register(cluster: &ControlPlane, port: u16, more: &[&str]) {
    let url = format!("https://127.0.0.1:{port}");
    let args: Vec<&str> = ["generate", "webhooks", "--url", &url]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], &printed(&args))
        .succeeded();
}
