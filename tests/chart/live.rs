//! A release from its installation to the day that it goes: Helm installs it, the program runs as its Deployment says
//! with the rights of its ServiceAccount, it is upgraded under a stream of pods, rolled back, and leaves nothing.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::TRANSOM;
use super::control_plane::{ControlPlane, wait};
use super::engine::{Engine, engine, skipped};
use super::kubelet::{Kubelet, kubeconfig};

const NAMESPACE: &str = "transom-system";

/// The entry that `webhooks.reverseGuard` registers.
const GUARD: &str = "guard.validate.transom.dev";

/// An address of this machine that is not loopback, which an EndpointSlice may not have.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only looks for the way.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

struct Release {
    engine: &'static Engine,
    kubeconfig: String,
}

impl Release {
    fn ask(&self, what: &str, more: &Value) -> Result<Value, String> {
        let mut request = json!({"cluster": self.kubeconfig, "name": "transom", "namespace": NAMESPACE});
        request
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.engine.ask(what, request)
    }
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

fn windows_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "apps"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
        },
    })
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "win-1", "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}},
        "spec": {"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "architecture": "amd64", "kernelVersion": "10.0.20348.2402",
            "osImage": "Windows Server 2022 Datacenter", "containerRuntimeVersion": "containerd://1.7.20",
            "kubeletVersion": "v1.36.0", "kubeProxyVersion": "v1.36.0",
            "machineID": "", "systemUUID": "", "bootID": "",
        }},
    })
}

/// Creates Windows pods, one after the other, until it is told to stop; each must be accepted and placed.
fn stream(cluster: &ControlPlane, stop: &AtomicBool) -> (usize, Vec<String>) {
    let (mut made, mut failed) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let pod = windows_pod(&format!("stream-{made}")).to_string();
        let printed = cluster.kubectl_with(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &pod);
        if !printed.ok {
            failed.push(printed.err);
        } else if printed.object()["spec"]["tolerations"]
            .to_string()
            .contains("windows")
        {
            made += 1;
            continue;
        } else {
            failed.push(format!("pod {made} was let through without placement"));
        }
        made += 1;
    }
    (made, failed)
}

#[test]
fn a_release_lives_and_leaves_nothing() {
    let Some(engine) = engine() else { return };
    let Some(address) = address() else {
        return skipped(
            "the life of a release",
            "this machine has no address but loopback",
        );
    };
    let Some(cluster) = ControlPlane::start_or_skip("the life of a release") else {
        return;
    };
    let cluster = Arc::new(cluster);
    let release = Release {
        engine,
        kubeconfig: kubeconfig(&cluster),
    };
    for namespace in ["apps", NAMESPACE] {
        cluster.kubectl(&["create", "namespace", namespace]).succeeded();
    }
    cluster
        .kubectl_with(&["create", "-f", "-"], &node().to_string())
        .succeeded();
    let before = everything(&cluster);
    let node_before = cluster
        .kubectl(&["get", "node", "win-1", "-o", "json"])
        .succeeded()
        .object();
    let kubelet = Kubelet::start(Arc::clone(&cluster), address);

    install(&cluster, &release, &kubelet);
    reviews(&cluster);
    controllers(&cluster);
    upgrade_and_back(&cluster, &release, &kubelet);
    // Every replica has been another one since, and has led or not.
    assert_eq!(ignored_labels_told(&cluster), 1);

    // Refused by nobody: the rights of the chart are those that the program needs.
    let logs = kubelet.logs();
    let refused: Vec<&str> = logs.lines().filter(|line| line.contains("forbidden")).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));

    release
        .ask("uninstall", &json!({}))
        .unwrap_or_else(|error| panic!("{error}\n{}", kubelet.jobs()));
    assert!(
        kubelet
            .jobs()
            .contains("nothing else of Transom's is left in the cluster"),
        "{}",
        kubelet.jobs()
    );
    let left = || {
        everything(&cluster)
            .difference(&before)
            .cloned()
            .collect::<Vec<_>>()
    };
    let definition = |kind: &str| format!("CustomResourceDefinition /{kind}.transom.dev");
    let (nodes, pods) = (
        definition("windowsnodepolicies"),
        definition("windowspodpolicies"),
    );
    // The API server makes the first by itself of the others, which Helm keeps.
    assert_eq!(
        left(),
        ["APIService /v1alpha1.transom.dev".to_owned(), nodes, pods]
    );
    let node = cluster
        .kubectl(&["get", "node", "win-1", "-o", "json"])
        .succeeded()
        .object();
    assert_eq!(node["spec"], node_before["spec"]);
    assert_eq!(
        node["metadata"]["annotations"],
        node_before["metadata"]["annotations"]
    );
    let mut labels = node["metadata"]["labels"].clone();
    // The build label stays: a kubelet writes it only when it starts.
    labels
        .as_object_mut()
        .unwrap()
        .remove("node.kubernetes.io/windows-build");
    assert_eq!(labels, node_before["metadata"]["labels"]);

    // Twice, and with the definitions, by hand.
    for _ in 0..2 {
        let cleanup = Command::new(TRANSOM)
            .args([
                "cleanup",
                "--crds",
                "--namespace",
                NAMESPACE,
                "--kubeconfig",
                &release.kubeconfig,
            ])
            .output()
            .unwrap();
        assert!(cleanup.status.success(), "{cleanup:?}");
    }
    assert!(
        wait(Duration::from_secs(30), || left().is_empty()),
        "{:?}",
        left()
    );
}

fn install(cluster: &ControlPlane, release: &Release, kubelet: &Kubelet) {
    // With Fail, a gap would be seen.
    let values = json!({"webhooks": {"failurePolicy": "Fail"}});
    let installed = release.ask("install", &json!({"values": values})).unwrap();
    assert_eq!(installed["status"], "deployed");
    kubelet.settled();
    let published = || {
        let printed = cluster.kubectl(&[
            "get",
            "validatingwebhookconfiguration",
            "zz-transom",
            "-o",
            "json",
        ]);
        let webhooks = printed.object()["webhooks"].as_array().unwrap().clone();
        webhooks
            .iter()
            .all(|it| it["clientConfig"]["caBundle"].is_string())
    };
    assert!(
        wait(Duration::from_secs(60), published),
        "no caBundle\n{}",
        kubelet.logs()
    );
    let denied = || {
        let mut bad = windows_pod("bad");
        bad["spec"]["hostPID"] = json!(true);
        cluster
            .kubectl_with(&["create", "--dry-run=server", "-f", "-"], &bad.to_string())
            .err
            .contains("denied")
    };
    assert!(
        wait(Duration::from_secs(60), denied),
        "it is not called\n{}",
        kubelet.logs()
    );
}

fn reviews(cluster: &ControlPlane) {
    let pod = cluster
        .kubectl_with(
            &["create", "-f", "-", "-o", "json"],
            &windows_pod("good").to_string(),
        )
        .succeeded()
        .object();
    assert_eq!(pod["spec"]["os"]["name"], "windows");
    assert!(
        pod["spec"]["tolerations"].to_string().contains("\"os\""),
        "{pod:#}"
    );
    let mut bad = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bad", "namespace": "apps"},
        "spec": {"selector": {"matchLabels": {"app": "bad"}}, "template": {"metadata": {"labels": {"app": "bad"}}}}});
    bad["spec"]["template"]["spec"] = windows_pod("x")["spec"].clone();
    bad["spec"]["template"]["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 1000});
    let refused = cluster.kubectl_with(&["create", "-f", "-"], &bad.to_string());
    assert!(refused.err.contains("Windows has no user ids"), "{}", refused.err);
    // Transom's own namespace is not looked at.
    let mut own = windows_pod("own");
    own["metadata"]["namespace"] = json!(NAMESPACE);
    own["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 1000});
    cluster
        .kubectl_with(&["create", "--dry-run=server", "-f", "-"], &own.to_string())
        .succeeded();
    cluster
        .kubectl(&[
            "delete",
            "pod",
            "good",
            "-n",
            "apps",
            "--force",
            "--grace-period=0",
        ])
        .succeeded();
}

fn controllers(cluster: &ControlPlane) {
    let labelled = || {
        let node = cluster
            .kubectl(&["get", "node", "win-1", "-o", "json"])
            .succeeded()
            .object();
        node["metadata"]["labels"]["node-restriction.kubernetes.io/windows-build"] == "10.0.20348"
    };
    assert!(wait(Duration::from_secs(60), labelled), "the node gets no label");
    let ready = [
        "wait",
        "--for=condition=Ready",
        "wpp/default",
        "wnp/default",
        "--timeout=60s",
    ];
    cluster.kubectl(&ready).succeeded();
    // The ServiceAccount may tell of a label that does nothing.
    let label = ["label", "namespace", "apps", "transom.dev/validation=deny"];
    cluster.kubectl(&label).succeeded();
    let told = || ignored_labels_told(cluster) == 1;
    assert!(wait(Duration::from_secs(60), told), "nobody tells of the label");
}

/// How many Events there are about labels of namespaces that do nothing.
fn ignored_labels_told(cluster: &ControlPlane) -> usize {
    let events = [
        "get",
        "events",
        "-n",
        "default",
        "--field-selector=reason=LabelIgnored,involvedObject.name=apps",
        "-o",
        "json",
    ];
    cluster.kubectl(&events).succeeded().objects().len()
}

fn upgrade_and_back(cluster: &Arc<ControlPlane>, release: &Release, kubelet: &Kubelet) {
    let stop = Arc::new(AtomicBool::new(false));
    let outcome = Arc::new(Mutex::new((0, Vec::new())));
    let streaming = {
        let (cluster, stop, outcome) = (Arc::clone(cluster), Arc::clone(&stop), Arc::clone(&outcome));
        std::thread::spawn(move || *outcome.lock().unwrap() = stream(&cluster, &stop))
    };
    let bundle = |cluster: &ControlPlane| {
        let printed = cluster.kubectl(&["get", "mutatingwebhookconfiguration", "zz-transom", "-o", "json"]);
        let webhooks = printed.succeeded().object()["webhooks"].clone();
        (
            webhooks[0]["clientConfig"]["caBundle"].clone(),
            webhooks[0]["timeoutSeconds"].clone(),
        )
    };
    let (old, seconds) = bundle(cluster);
    assert_eq!(seconds, 2);
    let values = json!({"webhooks": {"failurePolicy": "Fail", "timeoutSeconds": 1, "reverseGuard": {"enabled": true}},
                        "log": {"filter": "debug"},
                        "podAnnotations": {"generation": "two"}});
    let upgraded = release.ask("upgrade", &json!({"values": values}));
    upgraded.unwrap_or_else(|error| panic!("{error}\n{}", kubelet.jobs()));
    assert!(
        kubelet
            .jobs()
            .contains("windowspodpolicies.transom.dev is up to date"),
        "{}",
        kubelet.jobs()
    );
    kubelet.settled();
    assert_eq!(bundle(cluster), (old.clone(), json!(1)));
    let validating = || {
        let printed = cluster.kubectl(&[
            "get",
            "validatingwebhookconfiguration",
            "zz-transom",
            "-o",
            "json",
            "--show-managed-fields",
        ]);
        printed.succeeded().object()
    };
    // An entry more, which the controller publishes into, and lets go.
    let registered = || {
        let seen = validating();
        let entries = seen["webhooks"].as_array().unwrap();
        let owners = seen["metadata"]["managedFields"].to_string();
        entries.iter().any(|entry| entry["name"] == GUARD)
            && entries
                .iter()
                .all(|entry| entry["clientConfig"]["caBundle"] == old)
            && !owners.contains("transom-certificates")
    };
    assert!(
        wait(Duration::from_secs(30), registered),
        "{:#}\n{}",
        validating(),
        kubelet.logs()
    );
    release.ask("rollback", &json!({"version": 1})).unwrap();
    kubelet.settled();
    assert_eq!(bundle(cluster), (old.clone(), json!(2)));
    let entries = validating()["webhooks"].clone();
    assert!(
        !entries.to_string().contains(GUARD),
        "the entry stays: {entries:#}"
    );
    stop.store(true, Ordering::Relaxed);
    streaming.join().unwrap();
    let (made, failed) = outcome.lock().unwrap().clone();
    assert!(
        failed.is_empty(),
        "of {made}: {}\n{}",
        failed.join("\n"),
        kubelet.logs()
    );
    assert!(made > 20, "only {made} pods");
    println!("{made} pods were created during an upgrade and its rollback");
}
