//! The start gate and nodes that are not what they seem: a name that was used before, labels that a cloud adds later, a kubelet that
//! does nothing, and a leader that is killed while pods pull; with a real scheduler and simulated kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_tainted;
use crate::support::pulling_kubelet::{PullingKubelets, PullingNode, SILENT, STARTUP};

const WEB: &str = "registry.example/web:1";
const ZONAL: &str = "registry.example/zonal:1";
const MIRRORED: &str = "mirror.example/web:1";
const LARGE: &str = "registry.example/large:1";
const TIMEOUT: u64 = 150;
const ZONE: &str = "topology.kubernetes.io/zone";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn policies() -> String {
    let pods = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "default"},
        "spec": {"mode": "Audit"}});
    let nodes = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "windows"},
        "spec": {"mode": "Reconcile", "taints": {"mode": "Audit"}, "startup": {"puller": "Pods", "timeoutSeconds": TIMEOUT, "maxConcurrentNodes": 1}}});
    format!("{pods}\n---\n{nodes}")
}

fn deploy(cluster: &ControlPlane, name: &str, image: &str, mut selector: Value) {
    selector["kubernetes.io/os"] = json!("windows");
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"nodeSelector": selector, "containers": [{"name": "c", "image": image}]}}}});
    cluster
        .kubectl_with(&["create", "-f", "-"], &object.to_string())
        .succeeded();
}

fn join(cluster: &ControlPlane, name: &str, labels: &[(&str, &str)], more: &[&str]) {
    let keys = more.iter().copied().chain([STARTUP]);
    let taints: Vec<Value> = keys
        .map(|key| json!({"key": key, "effect": "NoSchedule"}))
        .collect();
    join_tainted(cluster, name, "10.0.20348", labels, &json!(taints));
}

/// Waits until a node got pods; returns its images then, and how long it took.
fn released(cluster: &ControlPlane, kubelets: &PullingKubelets, name: &str) -> (BTreeSet<String>, Duration) {
    let find = || {
        kubelets
            .log()
            .nodes
            .get(name)
            .and_then(|node: &PullingNode| node.released.clone())
    };
    assert!(
        wait(Duration::from_secs(TIMEOUT + 20), || find().is_some()),
        "{name}: {:?}\n{}\n{}",
        kubelets.log().nodes.get(name),
        cluster.end_of_log("one"),
        cluster.end_of_log("two")
    );
    let found = find().unwrap();
    println!("{name}: {:?} with {:?}", found.1, found.0);
    found
}

fn leader(replicas: &[Replica]) -> Option<&Replica> {
    let mut replicas = replicas.iter();
    replicas.find(|replica| replica.metric("transom_leader ") == Some(1))
}

#[test]
fn a_node_is_warm_whatever_its_name_was_its_cloud_adds_or_its_neighbours_do() {
    let Some(programs) = programs_of_a_whole_control_plane("the start gate") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap_or_else(|error| panic!("{error}"));
    install::prepare(&cluster, &policies());
    cluster
        .start_controllers_of("deployment-controller,replicaset-controller")
        .unwrap();
    cluster.start_scheduler().unwrap();
    deploy(&cluster, "web", WEB, json!({}));
    deploy(&cluster, "zonal", ZONAL, json!({ZONE: "a"}));
    deploy(&cluster, "large", LARGE, json!({"agentpool": "large"}));
    let flags = ["--image-puller-service-account", "transom-image-puller"];
    let replicas = ["one", "two"].map(|name| Replica::start(&cluster, name, &flags));
    install::register(&cluster, replicas[0].port, &[]);
    assert!(wait(Duration::from_secs(60), || leader(&replicas).is_some()));
    let sizes = BTreeMap::from([
        (WEB, 300_000_000),
        (MIRRORED, 300_000_000),
        (ZONAL, 200_000_000),
        (LARGE, 6_000_000_000),
    ]);
    let kubelets = PullingKubelets::start(&cluster, sizes, BTreeMap::new(), WEB);
    a_name_is_used_again(&cluster, &kubelets);
    a_cloud_adds_a_label_later(&cluster, &kubelets);
    a_kubelet_does_nothing(&cluster, &kubelets);
    a_policy_cannot_be_read(&cluster, &kubelets);
    an_admission_policy_rewrites_images(&cluster, &kubelets);
    a_leader_is_killed(&cluster, &kubelets, &replicas);
    assert_eq!(kubelets.log().bound_early, BTreeSet::new());
}

fn a_name_is_used_again(cluster: &ControlPlane, kubelets: &PullingKubelets) {
    let mut uids = BTreeSet::new();
    for _ in 0..2 {
        join(cluster, "akswin000001", &[], &[]);
        let is_seen = || {
            let log = kubelets.log();
            log.nodes
                .get("akswin000001")
                .is_some_and(|node| !uids.contains(&node.uid))
        };
        assert!(wait(Duration::from_secs(10), is_seen));
        let (images, _) = released(cluster, kubelets, "akswin000001");
        assert!(images.contains(WEB), "it is cold: {images:?}");
        uids.insert(kubelets.log().nodes["akswin000001"].uid.clone());
        cluster.kubectl(&["delete", "node", "akswin000001"]).succeeded();
        // As the garbage collector of pods does, which does not run here.
        let of_node = [
            "--field-selector",
            "spec.nodeName=akswin000001",
            "--force",
            "--grace-period=0",
        ];
        cluster
            .kubectl(&[&["delete", "pods"][..], &of_node].concat())
            .succeeded();
    }
    assert_eq!(uids.len(), 2);
}

fn a_cloud_adds_a_label_later(cluster: &ControlPlane, kubelets: &PullingKubelets) {
    join(cluster, "late", &[], &[UNINITIALIZED]);
    // The other images are there before the cloud adds its labels.
    std::thread::sleep(Duration::from_secs(12));
    let node = kubelets.log().nodes["late"].clone();
    assert_eq!(
        node.released, None,
        "it is released before its cloud has initialized it"
    );
    cluster
        .kubectl(&["label", "node", "late", &format!("{ZONE}=a")])
        .succeeded();
    cluster
        .kubectl(&["taint", "node", "late", &format!("{UNINITIALIZED}:NoSchedule-")])
        .succeeded();
    let (images, after) = released(cluster, kubelets, "late");
    assert!(
        images.contains(ZONAL) && images.contains(WEB),
        "{images:?} after {after:?}"
    );
    cluster.kubectl(&["delete", "node", "late"]).succeeded();
}

fn a_kubelet_does_nothing(cluster: &ControlPlane, kubelets: &PullingKubelets) {
    join(cluster, "silent", &[(SILENT, "true")], &[]);
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    let patch = [
        "patch",
        "node",
        "silent",
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    cluster
        .kubectl(&[&patch[..], &[&not_ready.to_string()]].concat())
        .succeeded();
    let has_slot = || {
        let log = kubelets.log();
        log.nodes
            .get("silent")
            .is_some_and(|node| !node.pullers.is_empty())
    };
    assert!(
        wait(Duration::from_secs(30), has_slot),
        "{}",
        cluster.end_of_log("one")
    );
    let began = Instant::now();
    join(cluster, "next", &[], &[]);
    let (images, _) = released(cluster, kubelets, "next");
    assert!(images.contains(WEB), "{images:?}");
    // Its own timeout would be the end of the silent node's slot.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(kubelets.log().nodes["silent"].released, None);
    cluster.kubectl(&["delete", "node", "silent", "next"]).succeeded();
}

fn a_policy_cannot_be_read(cluster: &ControlPlane, kubelets: &PullingKubelets) {
    // The schema of the API server accepts this prefix.
    let bad = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy", "metadata": {"name": "bad"},
        "spec": {"mode": "Reconcile", "taints": {"mode": "Audit"}, "priority": 1, "nodeSelector": {"matchLabels": {"a.-b/c": "x"}}}});
    cluster
        .kubectl_with(&["create", "-f", "-"], &bad.to_string())
        .succeeded();
    join(cluster, "held", &[], &[]);
    let is_shown = || {
        let policy = cluster
            .kubectl(&["get", "wnp", "bad", "-o", "json"])
            .succeeded()
            .object();
        let conditions = policy["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .iter()
            .any(|it| it["type"] == "ImagesReady" && it["reason"] == "HeldByInvalidPolicy")
    };
    assert!(
        wait(Duration::from_secs(30), is_shown),
        "{}",
        cluster.end_of_log("one")
    );
    let has_event = || {
        let selector = "involvedObject.name=held,reason=HeldByInvalidPolicy";
        !cluster
            .kubectl(&["get", "events", "--field-selector", selector, "-o", "name"])
            .succeeded()
            .out
            .is_empty()
    };
    assert!(wait(Duration::from_secs(30), has_event));
    assert_eq!(kubelets.log().nodes["held"].released, None);
    cluster.kubectl(&["delete", "wnp", "bad"]).succeeded();
    let (images, _) = released(cluster, kubelets, "held");
    assert!(images.contains(WEB), "{images:?}");
    cluster.kubectl(&["delete", "node", "held"]).succeeded();
}

fn an_admission_policy_rewrites_images(cluster: &ControlPlane, kubelets: &PullingKubelets) {
    let image = "object.spec.containers[0].image";
    let expression = format!(
        "[JSONPatch{{op: 'replace', path: '/spec/containers/0/image', value: {image}.replace('registry.', 'mirror.')}}]"
    );
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "mirror"}, "spec": {"reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "mirror"}, "spec": {"policyName": "mirror"}});
    for object in [policy, binding] {
        cluster
            .kubectl_with(&["create", "-f", "-"], &object.to_string())
            .succeeded();
    }
    let probe =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": WEB}]}})
        .to_string();
    let is_active = || {
        let created = cluster.kubectl_with(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &probe);
        created.succeeded().object()["spec"]["containers"][0]["image"] == MIRRORED
    };
    assert!(wait(Duration::from_secs(60), is_active), "no image is rewritten");
    join(cluster, "mirrored", &[], &[]);
    let (images, _) = released(cluster, kubelets, "mirrored");
    assert!(images.contains(MIRRORED), "{images:?}");
    assert_eq!(
        kubelets.log().nodes["mirrored"].pullers.len(),
        1,
        "its pod is not replaced"
    );
    cluster
        .kubectl(&["delete", "mutatingadmissionpolicybinding", "mirror"])
        .succeeded();
    cluster.kubectl(&["delete", "node", "mirrored"]).succeeded();
}

fn a_leader_is_killed(cluster: &ControlPlane, kubelets: &PullingKubelets, replicas: &[Replica]) {
    join(cluster, "large", &[("agentpool", "large")], &[]);
    let pullers = || {
        let log = kubelets.log();
        log.nodes
            .get("large")
            .map(|node| node.pullers.clone())
            .unwrap_or_default()
    };
    assert!(wait(Duration::from_secs(60), || !pullers().is_empty()));
    let first = leader(replicas).expect("a leader");
    cluster.end(&first.name, "KILL");
    let second = || leader(replicas).is_some_and(|now| now.name != first.name);
    assert!(wait(Duration::from_secs(60), second), "nobody leads");
    assert_eq!(
        kubelets.log().nodes["large"].released,
        None,
        "the new leader has to see that it pulls"
    );
    let (images, _) = released(cluster, kubelets, "large");
    assert!(images.contains(LARGE), "{images:?}");
    assert_eq!(pullers().len(), 1, "the new leader deletes no pod that pulls");
}
