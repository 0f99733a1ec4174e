//! `stored`: the cost of evaluating the stored objects of a large cluster: by a scan, and by the leader in the background.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hyper::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::apiserver::start_control_plane;
use crate::compare::mebibytes;
use crate::control_plane::ControlPlane;
use crate::process::cpu_of;
use crate::process_memory::Memory;
use crate::storm;

/// Pods of one ReplicaSet; for each ReplicaSet, one pod has no owner.
const EACH: usize = 19;
/// Concurrent requests while the cluster is filled.
const WRITERS: usize = 24;
/// Namespaces.
const NAMESPACES: usize = 50;
/// The CustomResourceDefinition of reports.
const REPORTS: &str = include_str!("../../../tests/reports/openreports.yaml");
/// How long the leader is measured after it has started.
const MOST: Duration = Duration::from_secs(600);

pub async fn run(transom: &Path, pods: usize, serve: &[String]) -> anyhow::Result<()> {
    let cluster = start_control_plane(&[
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
    ])?;
    let client = cluster.client().await;
    let began = Instant::now();
    fill(&client, pods).await?;
    println!("{pods} pods are stored, after {} s", began.elapsed().as_secs());
    println!(
        "{:<40} {:>8} {:>8} {:>9} {:>9}",
        "", "seconds", "CPU s", "peak MiB", "requests"
    );
    for (what, more) in [
        ("scan", &[][..]),
        ("scan --assume mode=Enforce", &["--assume", "mode=Enforce"][..]),
        ("scan -o json", &["-o", "json"][..]),
    ] {
        scan(transom, &cluster, what, more)?;
    }
    if !serve.is_empty() {
        background(transom, &cluster, &client, serve).await?;
    }
    Ok(())
}

/// One scan in a separate process.
fn scan(transom: &Path, cluster: &ControlPlane, what: &str, more: &[&str]) -> anyhow::Result<()> {
    let before = requests(cluster)?;
    let began = Instant::now();
    let mut child = Command::new(transom)
        .arg("scan")
        .arg(format!(
            "--kubeconfig={}",
            cluster.path("admin.kubeconfig").display()
        ))
        .args(["--fail-on", "never"])
        .args(more)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the scan")?;
    let (mut memory, mut cpu) = (Memory::default(), 0.0);
    let status = loop {
        // The last value before the process ends is nearly the total.
        if let (Ok(seen), Ok(used)) = (Memory::of(child.id()), cpu_of(child.id())) {
            (memory, cpu) = (if seen.peak > 0 { seen } else { memory }, used);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let seconds = began.elapsed().as_secs_f64();
    if !status.success() {
        bail!("the scan ended with {status}");
    }
    let requested = requests(cluster)? - before;
    println!(
        "{what:<40} {seconds:>8.1} {cpu:>8.1} {:>9.1} {requested:>9}",
        mebibytes(memory.peak)
    );
    Ok(())
}

/// The leader, until it has evaluated every object once and is idle.
async fn background(
    transom: &Path,
    cluster: &ControlPlane,
    client: &Client,
    serve: &[String],
) -> anyhow::Result<()> {
    let more: Vec<&str> = serve.iter().map(String::as_str).collect();
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], REPORTS)
        .succeeded();
    // Without registered webhooks Transom reports nothing. No call needs to arrive.
    let webhooks = Command::new(transom)
        .args(["generate", "webhooks", "--url", "https://127.0.0.1:9"])
        .output()
        .context("cannot run transom generate webhooks")?;
    let webhooks = String::from_utf8(webhooks.stdout)?;
    cluster
        .kubectl_with(&["apply", "--server-side", "-f", "-"], &webhooks)
        .succeeded();
    let before = requests(cluster)?;
    let began = Instant::now();
    storm::start(transom, cluster, &more)?;
    let pid = cluster.pid("transom");
    let mut rested = 0;
    while rested < 5 && began.elapsed() < MOST {
        let used = cpu_of(pid)?;
        sleep(Duration::from_secs(3)).await;
        rested = if cpu_of(pid)? - used < 0.06 { rested + 1 } else { 0 };
    }
    let memory = Memory::of(pid)?;
    let requested = requests(cluster)? - before;
    println!(
        "{:<40} {:>8.1} {:>8.1} {:>9.1} {requested:>9}",
        "serve, until it rests",
        began.elapsed().as_secs_f64() - 15.0,
        cpu_of(pid)?,
        mebibytes(memory.peak)
    );
    println!(
        "{:<40} {:>28}",
        "serve, resident then, MiB",
        mebibytes(memory.resident)
    );
    // A change is reported.
    let began = Instant::now();
    let bad = pod("late", None, true);
    post(client, "/api/v1/namespaces/ns-0/pods", &bad).await?;
    let reported = || {
        let path = "/apis/openreports.io/v1alpha1/namespaces/ns-0/reports";
        cluster.kubectl(&["get", "--raw", path]).out.contains("\"late\"")
    };
    while !reported() {
        if began.elapsed() > Duration::from_secs(60) {
            println!("no report on a new pod within a minute (are the CRDs of reports installed?)");
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{:<40} {:>8.1}",
        "until a new pod's report is there, s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The number of requests that the API server has answered.
fn requests(cluster: &ControlPlane) -> anyhow::Result<u64> {
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics"]).succeeded().out;
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"));
    let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts
    let total = counts.sum::<f64>() as u64;
    if total == 0 {
        bail!("the API server reports no request count");
    }
    Ok(total)
}

/// Nodes, and for every twenty pods a Deployment, its ReplicaSet, nineteen pods of that and one pod without an owner. A quarter
/// is for Windows; one Deployment in forty has fields that Windows does not support.
async fn fill(client: &Client, pods: usize) -> anyhow::Result<()> {
    for namespace in 0..NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("ns-{namespace}")}});
        post(client, "/api/v1/namespaces", &namespace).await?;
    }
    for number in 0..40 {
        post(client, "/api/v1/nodes", &node(number)).await?;
    }
    let mut writers = JoinSet::new();
    for first in 0..WRITERS {
        let client = client.clone();
        let groups = pods.div_ceil(EACH + 1);
        writers.spawn(async move {
            for group in (first..groups).step_by(WRITERS) {
                write_group(&client, group).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn write_group(client: &Client, group: usize) -> anyhow::Result<()> {
    let namespace = format!("ns-{}", group % NAMESPACES);
    let name = format!("app-{group}");
    let (windows, bad) = (group.is_multiple_of(4), group.is_multiple_of(40));
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": spec(windows, bad)});
    let workload = |kind: &str, name: &str, owner: Option<Value>| {
        let mut metadata = json!({"name": name});
        metadata["ownerReferences"] = owner.map_or(json!([]), |owner| json!([owner]));
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
            "spec": {"replicas": EACH, "selector": {"matchLabels": labels}, "template": template}})
    };
    let path = |resource: &str| format!("/apis/apps/v1/namespaces/{namespace}/{resource}");
    let made = post(client, &path("deployments"), &workload("Deployment", &name, None)).await?;
    let set = format!("{name}-5d4f8c7b9");
    let owner = owner_reference("Deployment", &name, &made);
    let made = post(
        client,
        &path("replicasets"),
        &workload("ReplicaSet", &set, Some(owner)),
    )
    .await?;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    for number in 0..EACH {
        let owner = owner_reference("ReplicaSet", &set, &made);
        let mut pod = pod(&format!("{set}-{number}"), Some(owner), windows);
        pod["spec"] = spec(windows, bad);
        pod["spec"]["nodeName"] = json!(format!("node-{}", group % 40));
        post(client, &pods, &pod).await?;
    }
    post(client, &pods, &pod(&format!("alone-{group}"), None, windows)).await?;
    Ok(())
}

fn owner_reference(kind: &str, name: &str, made: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": made["metadata"]["uid"], "controller": true})
}

/// A pod; a Windows pod without an owner has fields that Windows does not support.
fn pod(name: &str, owner: Option<Value>, windows: bool) -> Value {
    let bad = owner.is_none() && windows;
    let owners = owner.map_or(json!([]), |owner| json!([owner]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owners,
        "labels": {"app": name, "app.kubernetes.io/part-of": "measure"}}, "spec": spec(windows, bad)})
}

fn spec(windows: bool, bad: bool) -> Value {
    let variables: Vec<Value> = (0..10)
        .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some text of a usual length"}))
        .collect();
    let image = if windows {
        "mcr.microsoft.com/windows/servercore:ltsc2022"
    } else {
        "registry.example/team/app:1.24.3"
    };
    let mut container = json!({"name": "app", "image": image, "env": variables,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "256Mi"}}});
    if bad {
        container["securityContext"] = json!({"runAsUser": 1000, "readOnlyRootFilesystem": true});
    }
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": false, "nodeSelector": {"kubernetes.io/os": if windows { "windows" } else { "linux" }}});
    if windows {
        spec["tolerations"] = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    }
    spec
}

fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let windows = number.is_multiple_of(4);
    let (os, kernel) = if windows {
        ("windows", "10.0.20348.2700")
    } else {
        ("linux", "6.8.0")
    };
    let mut labels =
        json!({"kubernetes.io/os": os, "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name});
    if windows {
        labels["node.kubernetes.io/windows-build"] = json!("10.0.20348");
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {},
        "status": {"nodeInfo": {"operatingSystem": os, "architecture": "amd64", "kernelVersion": kernel,
            "containerRuntimeVersion": "containerd://1.7.20", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
            "machineID": "", "systemUUID": "", "bootID": "", "osImage": os}}})
}

async fn post(client: &Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    let request = Request::post(path)
        .header("Content-Type", "application/json")
        .body(object.to_string().into_bytes())?;
    Ok(client.request(request).await?)
}
