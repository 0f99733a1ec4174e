//! Plain Linux pods, in the shapes in which public charts and clouds write them: how many of them are asked about.

use serde_json::{Value, json};
use transom::model::objects::workload::Kind;

use super::pods::Dice;
use super::world::{BETA, KINDS, OS, PLAIN, RUNTIME, Sent, affinity, entries, term, world, wrap};

/// Some have `windows` in their names and are for Linux.
const IMAGES: &str = "\
    nginx docker.io/library/nginx:1.27-alpine registry.k8s.io/pause:3.10 registry.k8s.io/coredns/coredns:v1.12.0 \
    registry.k8s.io/metrics-server/metrics-server:v0.7.2 quay.io/prometheus/node-exporter:v1.8.2 \
    registry.k8s.io/ingress-nginx/controller:v1.12.0 docker.io/istio/proxyv2:1.24.2 grafana/grafana:11.4.0 \
    quay.io/prometheuscommunity/windows-exporter-proxy:0.1 corp.example/windows/agent:1.0-windows \
    sigwindowstools/k8s-gmsa-webhook:v0.10.0 corp.example/team/windows-driver-build:2025 \
    quay.io/minio/minio:RELEASE.2025-01-20T14-49-07Z corp.example/app:1.0.0-SNAPSHOT redis:7.4 postgres:17 \
    mcr.microsoft.com/oss/kubernetes/kube-proxy:v1.31.4 mcr.microsoft.com/mssql/server:2022-latest \
    mcr.microsoft.com/dotnet/aspnet:8.0 mcr.microsoft.com/azuredefender/stable/low-level-collector:2.0.188 \
    mcr.microsoft.com/oss/kubernetes-csi/azuredisk-csi:v1.31.2 602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/kube-proxy:v1.31 \
    gke.gcr.io/netd:v0.8.0 ghcr.io/external-secrets/external-secrets:v0.12.1 corp.example/sql-server:2019 \
    corp.example:5000/team/very/deep/path/app:v1.2.3-20250101-abcdef";

/// What charts say of where a pod may run.
fn place(dice: &mut Dice, kind: Kind) -> Value {
    let preferred = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": term(OS, "In", &["windows"])},
    ]}}});
    let of_a_daemonset = affinity(&[json!({"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["node-1"]},
    ]})]);
    let linux_on = |key: &str, values: &[&str]| {
        let mut linux = term(OS, "In", &["linux"]);
        let other = term(key, "In", values)["matchExpressions"][0].clone();
        linux["matchExpressions"].as_array_mut().unwrap().push(other);
        affinity(&[linux])
    };
    let shapes = [
        json!({}),
        json!({"nodeSelector": {OS: "linux"}}),
        json!({"nodeSelector": {BETA: "linux"}}),
        json!({"os": {"name": "linux"}}),
        json!({"nodeSelector": {"kubernetes.azure.com/os-sku": "AzureLinux"}}),
        json!({"nodeSelector": {"cloud.google.com/gke-os-distribution": "cos", "agentpool": "linux1"}}),
        json!({"nodeSelector": {"kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m5.large"}}),
        affinity(&[term("topology.kubernetes.io/zone", "In", &["a", "b"])]),
        affinity(&[term(OS, "NotIn", &["windows"])]),
        affinity(&[term("node-role.kubernetes.io/control-plane", "Exists", &[])]),
        affinity(&[term("node.kubernetes.io/windows-build", "DoesNotExist", &[])]),
        linux_on("kubernetes.io/arch", &["amd64", "arm64"]),
        linux_on("kubernetes.azure.com/mode", &["system"]),
        preferred,
        of_a_daemonset,
    ];
    // Most pods say nothing, or linux.
    let at = match dice.below(10) {
        0..=4 => 0,
        5 => 1,
        _ => dice.below(shapes.len()),
    };
    let mut place = shapes[at].clone();
    let more = [
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]}),
        json!({"hostNetwork": true, "priorityClassName": "system-node-critical"}),
        json!({"securityContext": {"runAsNonRoot": true, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}}),
    ];
    if dice.one_in(2) {
        json_patch::merge(&mut place, &more[dice.below(more.len())]);
    }
    // Of templates that name a RuntimeClass only Transom knows what it selects.
    if kind == Kind::Pod && dice.one_in(10) {
        place["runtimeClassName"] = "gvisor".into();
    }
    place
}

fn plain_pod(dice: &mut Dice, kind: Kind) -> Value {
    let mut spec = place(dice, kind);
    for (list, count) in [
        ("initContainers", dice.below(2)),
        ("containers", 1 + dice.below(3)),
    ] {
        let containers = (0..count).map(|n| {
            json!({
                "name": format!("{}{n}", &list[..1]), "image": dice.word(IMAGES),
                "env": [{"name": "OS", "value": "windows"}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            })
        });
        spec[list] = containers.collect();
    }
    spec
}

#[test]
fn few_plain_linux_pods_cause_a_call() {
    const OBJECTS: usize = 1_000;
    let Some(world) = world() else { return };
    let mut dice = Dice(0x71a17);
    let sent: Vec<Sent> = (0..OBJECTS)
        .map(|n| {
            // Half of them pods: those are what a cluster makes most of.
            let kind = if dice.one_in(2) {
                Kind::Pod
            } else {
                KINDS[dice.below(KINDS.len())]
            };
            wrap(kind, PLAIN, &format!("plain-{n}"), &plain_pod(&mut dice, kind))
        })
        .collect();
    let answers = RUNTIME.block_on(async {
        let class = json!({"metadata": {"name": "gvisor"}, "handler": "runsc"});
        let classes = "/apis/node.k8s.io/v1/runtimeclasses";
        world.post(classes, &class, false).await.unwrap();
        world.create_all(&sent).await
    });
    let mut requested = 0;
    for (sent, (answer, calls)) in sent.iter().zip(&answers) {
        assert_eq!(*answer, Ok(()), "{}", sent.object);
        if !entries(calls).is_empty() {
            println!("asked about: {}", sent.object);
            requested += 1;
        }
    }
    println!("{requested} of {OBJECTS} plain Linux pods and templates are asked about");
    assert!(requested * 500 <= OBJECTS, "{requested} of {OBJECTS}");
}
