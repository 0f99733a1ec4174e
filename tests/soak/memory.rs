//! How much memory the real program takes beside a large cluster: 5,000 nodes, 2,000 namespaces, real sizes.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::support::command::program;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::process_memory::Memory;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

const NODES: usize = 5_000;
const WINDOWS: usize = 1_500;
const NAMESPACES: usize = 2_000;
/// Nodes that start, and workloads whose images they need.
const STARTING: usize = 200;
const WORKLOADS: usize = 500;

const BUILDS: [&str; 4] = ["10.0.17763", "10.0.20348", "10.0.25398", "10.0.26100"];

/// The bound, in KiB. Up to 30 MiB of it are pages of the program's file.
const MOST: u64 = 72 << 10;
/// The bound of what is the process's own, in KiB: a debug build maps so much of its own file that nothing else shows.
const MOST_OF_ITS_OWN: u64 = 44 << 10;

/// Heartbeats in a second. A kubelet writes its node's status every five minutes when nothing else happens: 17 in a
/// second for so many; here are more.
const HEARTBEATS: usize = 50;

#[test]
fn transom_stays_within_72_mib_beside_5000_nodes_and_2000_namespaces() {
    let _turn = crate::beside_others();
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/memory.rs") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(cluster.client());
    let began = Instant::now();
    runtime.block_on(fill(&client));
    print(&format!(
        "{NODES} nodes and {NAMESPACES} namespaces made in {:.0?}",
        began.elapsed()
    ));

    install::prepare(&cluster, install::POLICIES);
    print(&format!("the program is {}", program().display()));
    let replica = Replica::start(&cluster, "transom", &[]);
    let pid = cluster.pid("transom");
    install::register(&cluster, replica.port, &[]);
    let began = Instant::now();
    replica.is_ready(&cluster);
    print(&format!(
        "ready after {:.1?}: {}",
        began.elapsed(),
        memory_of(pid)
    ));
    // The leader has looked at every node, and written what was to be written.
    let settled = || {
        let policy = cluster
            .kubectl(&["get", "windowsnodepolicy", "default", "-o", "json"])
            .succeeded()
            .object();
        policy["status"]
            .to_string()
            .contains(&format!("{}", WINDOWS / BUILDS.len()))
    };
    assert!(
        wait(Duration::from_secs(120), settled),
        "{}",
        cluster.end_of_log("transom")
    );
    print(&format!("the policy has its status: {}", memory_of(pid)));

    let mirrored = || Requests::of(&cluster).patches >= WINDOWS;
    assert!(
        wait(Duration::from_secs(180), mirrored),
        "the first write of each node"
    );
    // Meanwhile every Windows node is to be written, and heartbeats make each version an old one.
    let before = Requests::of(&cluster);
    let taints = json!({"spec": {"taints": {"mode": "Reconcile"}}}).to_string();
    cluster
        .kubectl(&["patch", "wnp", "default", "--type=merge", "-p", &taints])
        .succeeded();
    let began = Instant::now();
    let beats = runtime.block_on(heartbeats(&client, Duration::from_secs(300), || {
        let memory = memory_of(pid);
        assert!(is_bounded(&memory), "{memory}");
        let tainted = Requests::of(&cluster).patches - before.patches >= WINDOWS;
        // As long as there are heartbeats enough, though all was written before.
        !tainted || began.elapsed() < Duration::from_secs(20)
    }));
    let took = began.elapsed();
    let memory = memory_of(pid);
    print(&format!("after {beats} heartbeats: {memory}"));
    assert!(beats > HEARTBEATS, "only {beats} heartbeats");
    assert!(is_bounded(&memory), "{memory}");
    let tainted = || {
        let path = "-o=jsonpath={range .items[*]}{.spec.taints[*].key}{'\\n'}{end}";
        let taints = cluster.kubectl(&["get", "nodes", path]).succeeded().out;
        taints
            .lines()
            .filter(|keys| keys.split(' ').any(|key| key == "os"))
            .count()
    };
    assert!(
        wait(Duration::from_secs(300), || tainted() == WINDOWS),
        "{}",
        tainted()
    );
    let requested = Requests::of(&cluster);
    let [patches, gets, events] = [
        requested.patches - before.patches,
        requested.gets - before.gets,
        requested.events - before.events,
    ];
    print(&format!(
        "{WINDOWS} nodes written in {took:.0?}: {patches} patches and {gets} reads of nodes, {events} Events"
    ));
    // A heartbeat that overtakes a write costs it once more; of the others each is written at once.
    assert!(patches <= WINDOWS + WINDOWS / 5, "{patches} patches of nodes");
    assert!(gets <= WINDOWS / 5, "{gets} reads of nodes");
    assert!(events <= 20, "{events} Events");
    runtime.block_on(nodes_start(&client, &cluster));
    // Meanwhile it reads the workloads.
    runtime.block_on(heartbeats(&client, Duration::from_secs(15), || {
        let memory = memory_of(pid);
        assert!(is_bounded(&memory), "{memory}");
        true
    }));
    print(&format!(
        "{STARTING} nodes start beside {WORKLOADS} workloads: {}",
        memory_of(pid)
    ));
    let ready = replica.get("/readyz");
    assert!(ready.as_ref().is_some_and(|(ok, _)| *ok), "{ready:?}");
}

/// Gives Windows nodes the startup taint, and waits until the leader counts them.
async fn nodes_start(client: &Client, cluster: &ControlPlane) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let params = PostParams::default();
    futures::stream::iter(0..WORKLOADS)
        .map(|number| {
            let (deployments, params) = (&deployments, &params);
            let deployment: Deployment = serde_json::from_value(workload(number)).unwrap();
            async move { drop(deployments.create(params, &deployment).await.unwrap()) }
        })
        .buffer_unordered(32)
        .collect::<()>()
        .await;
    let startup = json!({"spec": {"startup": {"timeoutSeconds": 86_400}}}).to_string();
    cluster
        .kubectl(&["patch", "wnp", "default", "--type=merge", "-p", &startup])
        .succeeded();
    let names: Vec<String> = (0..STARTING).map(name).collect();
    let mut taint = vec!["taint", "nodes"];
    taint.extend(names.iter().map(String::as_str));
    taint.push("startup-taint.cluster-autoscaler.kubernetes.io/transom:NoSchedule");
    cluster.kubectl(&taint).succeeded();
    let starting = || {
        let policy = cluster
            .kubectl(&["get", "wnp", "default", "-o", "json"])
            .succeeded();
        policy.object()["status"]["startup"]["starting"].as_u64() == Some(STARTING as u64)
    };
    assert!(
        wait(Duration::from_secs(120), starting),
        "{}",
        cluster.end_of_log("transom")
    );
}

fn workload(number: usize) -> Value {
    let name = format!("service-{number}");
    let container = json!({"name": "app", "image": format!("registry.example.com/platform/team-{}/{name}:2026.1", number % 50)});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [container]},
        }},
    })
}

fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "memory: {text}");
}

/// What the API server was asked so far.
struct Requests {
    patches: usize,
    gets: usize,
    events: usize,
}

impl Requests {
    fn of(cluster: &ControlPlane) -> Self {
        let metrics = cluster.kubectl(&["get", "--raw", "/metrics"]).succeeded().out;
        let requests = metrics
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && line.contains("subresource=\"\""));
        let requests: Vec<&str> = requests.collect();
        let count = |verb: &str, resource: &str| {
            let labels = [format!("verb=\"{verb}\""), format!("resource=\"{resource}\"")];
            let of = requests
                .iter()
                .filter(|line| labels.iter().all(|label| line.contains(label)));
            let counts = of.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
            counts.sum()
        };
        Requests {
            patches: count("PATCH", "nodes"),
            gets: count("GET", "nodes"),
            events: count("POST", "events") + count("PATCH", "events"),
        }
    }
}

/// The memory of a process that runs.
pub fn memory_of(pid: u32) -> Memory {
    Memory::of(pid).unwrap()
}

/// Whether it is within the bound: all of a release build that `TRANSOM_BIN` names, of a debug build what is anonymous.
pub fn is_bounded(memory: &Memory) -> bool {
    let is_release = std::env::var_os("TRANSOM_BIN").is_some();
    memory.anonymous <= MOST_OF_ITS_OWN && (!is_release || memory.peak <= MOST)
}

/// Makes every object.
async fn fill(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let params = PostParams::default();
    let make_nodes = futures::stream::iter(0..NODES)
        .map(|number| {
            let (nodes, params) = (&nodes, &params);
            let node: Node = serde_json::from_value(node(number)).unwrap();
            async move { drop(nodes.create(params, &node).await.unwrap()) }
        })
        .buffer_unordered(32)
        .collect::<()>();
    let make_namespaces = futures::stream::iter(0..NAMESPACES)
        .map(|number| {
            let (namespaces, params) = (&namespaces, &params);
            let namespace: Namespace = serde_json::from_value(namespace(number)).unwrap();
            async move { drop(namespaces.create(params, &namespace).await.unwrap()) }
        })
        .buffer_unordered(8)
        .collect::<()>();
    futures::join!(make_nodes, make_namespaces);
}

/// Patches the status of one node after the other, as kubelets do, while they are to go on and for so long at most.
async fn heartbeats(client: &Client, during: Duration, go_on: impl Fn() -> bool) -> usize {
    let nodes: Api<Node> = Api::all(client.clone());
    let began = Instant::now();
    let mut beats = 0;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    while began.elapsed() < during {
        ticks.tick().await;
        if !go_on() {
            break;
        }
        futures::stream::iter(beats..beats + HEARTBEATS)
            .map(|number| {
                let nodes = &nodes;
                // Windows nodes are the first ones; both kinds beat.
                let name = name(number * 7 % NODES);
                let mut conditions = conditions();
                for condition in conditions.as_array_mut().unwrap() {
                    condition["lastHeartbeatTime"] = json!(format!(
                        "2026-01-02T{:02}:{:02}:00Z",
                        number / 60 % 24,
                        number % 60
                    ));
                }
                let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
                async move {
                    let params = PatchParams::default();
                    drop(nodes.patch_status(&name, &params, &patch).await.unwrap());
                }
            })
            .buffer_unordered(8)
            .collect::<()>()
            .await;
        beats += HEARTBEATS;
    }
    beats
}

fn name(number: usize) -> String {
    format!("node-pool-{:02}-vmss{number:06x}", number % 40)
}

fn namespace(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": format!("team-{number:04}-production"),
            "labels": {
                "team": format!("team-{}", number % 200), "environment": "production", "cost-centre": format!("{number}"),
                "pod-security.kubernetes.io/enforce": "baseline",
            },
            "annotations": {"example.com/owner": format!("owner-{number}@example.com"), "notes": "n".repeat(300)},
        },
    })
}

fn conditions() -> Value {
    let one = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "message": format!("kubelet reports {reason} for this node"),
        })
    };
    json!([
        one("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        one("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        one("PIDPressure", "False", "KubeletHasSufficientPID"),
        one("Ready", "True", "KubeletReady"),
    ])
}

/// A node as a cloud and its kubelet make it: twenty labels, managedFields, fifty images with digests and tags.
fn node(number: usize) -> Value {
    let windows = number < WINDOWS;
    let os = if windows { "windows" } else { "linux" };
    let build = BUILDS[number % BUILDS.len()];
    let name = name(number);
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": os,
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": os,
        "node.kubernetes.io/instance-type": "Standard_D8s_v5", "beta.kubernetes.io/instance-type": "Standard_D8s_v5",
        "topology.kubernetes.io/region": "westeurope", "topology.kubernetes.io/zone": format!("westeurope-{}", number % 3),
        "failure-domain.beta.kubernetes.io/region": "westeurope",
        "failure-domain.beta.kubernetes.io/zone": format!("westeurope-{}", number % 3),
        "agentpool": format!("pool{}", number % 40), "kubernetes.azure.com/agentpool": format!("pool{}", number % 40),
        "kubernetes.azure.com/mode": "user", "kubernetes.azure.com/role": "agent",
        "kubernetes.azure.com/node-image-version": "AKSWindows-2022-containerd-20348.2700.240911",
        "kubernetes.azure.com/cluster": "MC_production_westeurope_cluster_with_a_long_name",
        "storageprofile": "managed", "storagetier": "Premium_LRS",
    });
    if windows {
        labels["node.kubernetes.io/windows-build"] = json!(build);
    }
    let images: Vec<Value> = (0..50)
        .map(|image| {
            let repository = format!("registry.example.com/platform/team-{}/service-{image}", number % 50);
            let digest = format!("{:064x}", (number + 1) * 1_000 + image);
            json!({
                "names": [format!("{repository}@sha256:{digest}"), format!("{repository}:2026.{image}.{number}")],
                "sizeBytes": 1_000_000 * (image + 1),
            })
        })
        .collect();
    let room = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "128Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {
            "csi.volume.kubernetes.io/nodeid": format!("{{\"disk.csi.azure.com\":\"{name}\",\"file.csi.azure.com\":\"{name}\"}}"),
            "volumes.kubernetes.io/controller-managed-attach-detach": "true", "node.alpha.kubernetes.io/ttl": "0",
        }},
        "spec": {
            "providerID": format!("azure:///subscriptions/0/resourceGroups/mc/providers/Microsoft.Compute/{name}"),
            "podCIDR": format!("10.{}.{}.0/24", 100 + number / 256, number % 256),
        },
        "status": {
            "capacity": room, "allocatable": room, "conditions": conditions(), "images": images,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "operatingSystem": os, "architecture": "amd64",
                "kernelVersion": if windows { format!("{build}.2700") } else { "5.15.0-1071-azure".to_owned() },
                "containerRuntimeVersion": "containerd://1.7.20", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "machineID": "0123456789abcdef0123456789abcdef", "systemUUID": "0123-4567", "bootID": "0123-4567",
                "osImage": if windows { "Windows Server 2022 Datacenter" } else { "Ubuntu 22.04.5 LTS" },
            },
        },
    })
}
