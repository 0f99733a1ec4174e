//! `storm`: the latency of reviews in a large cluster of Windows nodes while a kubelet patches a label of its own node: a label
//! that Transom does not read, and one that it does.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::apiserver::start_control_plane;
use crate::control_plane::{ControlPlane, free_ports, wait};
use crate::drive::Target;
use crate::process::cpu_of;

/// The interval between two reviews on the one connection, so that waiting is measured and not a busy processor.
const EVERY: Duration = Duration::from_millis(5);
/// Patches per second.
const PATCHES: u32 = 20;

pub async fn run(transom: &Path, nodes: usize, time: Duration) -> anyhow::Result<()> {
    let cluster = start_control_plane(&[])?;
    let client = cluster.client().await;
    fill(&client, nodes).await?;
    let target = start(transom, &cluster, &[])?;
    let pid = cluster.pid("transom");
    let body = Bytes::from(crate::inputs::read(
        &crate::inputs::reviews().join(crate::TYPICAL),
    ));

    println!(
        "{nodes} Windows nodes; a review every {EVERY:?}, {PATCHES} patches in a second; {} s each",
        time.as_secs()
    );
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "", "p50 ms", "p99 ms", "most ms", "reviews", "CPU"
    );
    // The writes at startup are complete.
    for (what, label) in [
        ("while nodes are first written", None),
        ("quiet", None),
        ("a label that is not read", Some("example.com/beat")),
        ("a label that is read", Some("agentpool")),
    ] {
        if what == "quiet" {
            settle(pid).await?;
        }
        let mut storm = JoinSet::new();
        if let Some(label) = label {
            storm.spawn(patch(client.clone(), label));
        }
        let before = cpu_of(pid)?;
        let outcome = target.pace(EVERY, time, &body).await?;
        let cpu = (cpu_of(pid)? - before) / time.as_secs_f64() * 100.0;
        storm.abort_all();
        println!(
            "{what:<34} {:>9.2} {:>9.2} {:>9.2} {:>9} {cpu:>6.0} %",
            outcome.percentile(0.5) / 1e3,
            outcome.percentile(0.99) / 1e3,
            outcome.percentile(1.0) / 1e3,
            outcome.answered()
        );
    }
    Ok(())
}

/// Waits until the leader has nothing left to write.
async fn settle(pid: u32) -> anyhow::Result<()> {
    for _ in 0..300 {
        let before = cpu_of(pid)?;
        sleep(Duration::from_secs(2)).await;
        if cpu_of(pid)? - before < 0.05 {
            return Ok(());
        }
    }
    bail!("Transom has been busy for ten minutes")
}

async fn patch(client: Client, label: &'static str) {
    let nodes: Api<Node> = Api::all(client);
    let mut ticks = interval(Duration::from_secs(1) / PATCHES);
    for number in 0_u64.. {
        ticks.tick().await;
        let patch = json!({"metadata": {"labels": {label: format!("v{number}")}}});
        if let Err(error) = nodes
            .patch(&name(0), &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            println!("the API server rejects a patch: {error}");
        }
    }
}

fn name(number: usize) -> String {
    format!("node-{number:05}")
}

async fn fill(client: &Client, nodes: usize) -> anyhow::Result<()> {
    let mut makers = JoinSet::new();
    for first in 0..16 {
        let api: Api<Node> = Api::all(client.clone());
        makers.spawn(async move {
            for number in (first..nodes).step_by(16) {
                let labels = json!({
                    "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "agentpool": format!("pool{}", number % 40),
                    "node.kubernetes.io/windows-build": "10.0.20348", "kubernetes.io/hostname": name(number),
                });
                let node = serde_json::from_value(json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(number), "labels": labels},
                    "spec": {"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
                    "status": {"nodeInfo": {
                        "operatingSystem": "windows", "architecture": "amd64", "kernelVersion": "10.0.20348.2700",
                        "containerRuntimeVersion": "containerd://1.7.20", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                        "machineID": "", "systemUUID": "", "bootID": "", "osImage": "Windows Server 2022 Datacenter",
                    }},
                }))?;
                api.create(&PostParams::default(), &node).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(made) = makers.join_next().await {
        made??;
    }
    Ok(())
}

/// Installs the resources and the policies, and starts Transom for the cluster.
pub fn start(transom: &Path, cluster: &ControlPlane, more: &[&str]) -> anyhow::Result<Target> {
    let crds = std::process::Command::new(transom)
        .args(["generate", "crds"])
        .output()
        .with_context(|| format!("cannot run {}", transom.display()))?;
    let crds = String::from_utf8(crds.stdout)?;
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], &crds)
        .succeeded();
    cluster
        .kubectl(&["create", "namespace", "transom-system"])
        .succeeded();
    let specs = [
        ("WindowsPodPolicy", json!({"mode": "Enforce"})),
        ("WindowsNodePolicy", json!({})),
    ];
    let policies = specs.map(|(kind, spec)| {
        json!({"apiVersion": "transom.dev/v1alpha1", "kind": kind, "metadata": {"name": "default"}, "spec": spec}).to_string()
    });
    for policy in policies {
        let applied = || cluster.kubectl_with(&["apply", "-f", "-"], &policy).ok;
        if !wait(Duration::from_secs(30), applied) {
            bail!("the API server rejects {policy}");
        }
    }
    let [port, health] = free_ports();
    let mut args = vec![
        "serve".to_owned(),
        format!("--kubeconfig={}", cluster.path("admin.kubeconfig").display()),
        "--transom-namespace=transom-system".to_owned(),
        format!("--webhook-url=https://127.0.0.1:{port}"),
        format!("--listen=127.0.0.1:{port}"),
        format!("--health-listen=127.0.0.1:{health}"),
    ];
    args.extend(more.iter().map(ToString::to_string));
    cluster.run_program("transom", &transom.canonicalize()?, &args);
    let ca = cluster.path("transom-ca.pem");
    let path = "-o=jsonpath={.data.ca\\.crt}";
    let secret = [
        "-n",
        "transom-system",
        "get",
        "secret",
        "transom-certificates",
        path,
    ];
    let has_ca = || {
        let printed = cluster.kubectl(&secret);
        let pem = base64::prelude::BASE64_STANDARD.decode(printed.out.trim());
        printed.ok && pem.is_ok_and(|pem| !pem.is_empty() && std::fs::write(&ca, pem).is_ok())
    };
    if !wait(Duration::from_secs(60), has_ca) {
        bail!("Transom issues no certificate: {}", cluster.end_of_log("transom"));
    }
    Target::new(([127, 0, 0, 1], port).into(), &ca, "/validate")
}
