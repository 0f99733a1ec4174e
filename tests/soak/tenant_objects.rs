//! Objects of one tenant, as large as the API server accepts them, beside two replicas, each with the memory limit of the chart.
//! The API server writes each `<` as six bytes.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::memory::memory_of;
use crate::support::control_plane::{ControlPlane, free_ports, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join;
use crate::support::process_memory::Memory;

/// The limit of the chart, in bytes.
const LIMIT: usize = 512 << 20;
/// What the process may have of its own at most, in KiB. In a page of so many objects, each would have six megabytes.
const MOST: u64 = 200 << 10;
/// The text of an object; an object has 1.5 MiB at most.
const TEXT: usize = 1_000_000;

const POLICIES: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Enforce, evidence: {imageEvidence: Registry}}
---
apiVersion: transom.dev/v1alpha1
kind: WindowsNodePolicy
metadata: {name: default}
spec: {mode: Reconcile, runtimeClasses: {mode: Reconcile}}
";

/// How many objects the tenant stores.
fn objects() -> usize {
    let number = std::env::var("TRANSOM_TENANT_OBJECTS");
    number.ok().and_then(|number| number.parse().ok()).unwrap_or(60)
}

/// A Deployment without pods. Where its text is varies.
fn deployment(number: usize) -> Value {
    let name = format!("large-{number}");
    let text = "<".repeat(TEXT);
    let many =
        |of: &dyn Fn(usize) -> (String, Value)| -> Value { Value::Object((0..TEXT / 100).map(of).collect()) };
    let value = "x".repeat(60);
    let container = json!({"name": "app", "image": "registry.example.com/app:1", "ports": [{"containerPort": 1, "hostPort": 1}]});
    let mut spec =
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true, "containers": [container]});
    let mut labels = json!({"app": name});
    match number % 5 {
        0 => spec["containers"][0]["env"] = json!([{"name": "A", "value": text}]),
        1 => spec["containers"][0]["args"] = json!([text]),
        2 => {
            labels = many(&|at| (format!("label-{at:030}"), json!(value)));
            labels["app"] = json!(name);
        }
        3 => {
            let mut selector = many(&|at| (format!("label-{at:030}"), json!(value)));
            selector["kubernetes.io/os"] = json!("windows");
            spec["nodeSelector"] = selector;
        }
        _ => {
            let image = format!("registry.example.com/{}", "x".repeat(10_000));
            let containers = (0..TEXT / 10_000)
                .map(|at| json!({"name": format!("c{at}"), "image": format!("{image}:{number}-{at}")}));
            spec["containers"] = containers.collect();
        }
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "tenant"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })
}

/// A cgroup with the limit, if this machine allows one.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn create(replica: &str) -> Option<Self> {
        let group = format!("transom-test-{}-{replica}", std::process::id());
        for (folder, limit) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let path = Path::new(folder).join(&group);
            if fs::create_dir(&path).is_ok() {
                let made = MemoryGroup(path);
                if fs::write(made.0.join(limit), LIMIT.to_string()).is_ok() {
                    return Some(made);
                }
            }
        }
        print("no cgroup: only the peak is checked");
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It can only be removed without processes.
        wait(Duration::from_secs(20), || fs::remove_dir(&self.0).is_ok());
    }
}

fn start(cluster: &ControlPlane, name: &str, group: Option<&MemoryGroup>) -> Replica {
    let ports = free_ports();
    let procs = group.map_or_else(
        || "/dev/null".to_owned(),
        |group| group.0.join("cgroup.procs").display().to_string(),
    );
    let enter = format!("echo $$ > {procs}; exec \"$0\" \"$@\"");
    let variables = ["sh".to_owned(), "-c".to_owned(), enter];
    let variables = [
        &[
            "TRANSOM_REPORTS=true".to_owned(),
            "TRANSOM_IMAGE_REGISTRY=127.0.0.1:9".to_owned(),
        ],
        &variables[..],
    ]
    .concat();
    let replica = Replica::start_with_environment(cluster, &variables, name, ports);
    replica.is_ready(cluster);
    replica
}

/// Whether a pod of another namespace with a forbidden field is denied.
fn denies(cluster: &ControlPlane) -> bool {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true, "containers": [{"name": "app", "image": "app:1"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "forbidden", "namespace": "other"}, "spec": spec});
    let created = cluster.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &pod.to_string());
    !created.ok && created.err.contains("hostPID")
}

#[test]
fn large_objects_of_one_tenant_end_neither_replica() {
    let _turn = crate::alone();
    // Dropped after the control plane, which ends the replicas.
    let groups = ["leader", "other"].map(MemoryGroup::create);
    let Some(cluster) = ControlPlane::start_or_skip("tests/soak/tenant_objects.rs") else {
        return;
    };
    install::prepare(&cluster, POLICIES);
    cluster.create_namespace("tenant", &[]);
    cluster.create_namespace("other", &[]);
    let definition = include_str!("../reports/openreports.yaml");
    cluster
        .kubectl_with(&["create", "-f", "-"], definition)
        .succeeded();
    let began = Instant::now();
    for number in 0..objects() {
        let body = deployment(number).to_string();
        let path = "/apis/apps/v1/namespaces/tenant/deployments";
        // On a busy machine, etcd does not answer in time; the object may be stored all the same.
        let is_stored = || {
            let created = cluster.kubectl_with(&["create", "--raw", path, "-f", "-"], &body);
            created.ok || created.err.contains("already exists") || created.err.contains("AlreadyExists")
        };
        assert!(wait(Duration::from_secs(120), is_stored), "object {number}");
    }
    print(&format!("{} objects after {:.0?}", objects(), began.elapsed()));

    // The first one leads. The second one answers the reviews, and leads after the first one was killed.
    let names = ["leader", "other"];
    let [_, other] = [0, 1].map(|at| start(&cluster, names[at], groups[at].as_ref()));
    install::register(&cluster, other.port, &[]);
    let has_certificate = || denies(&cluster);
    assert!(wait(Duration::from_secs(30), has_certificate));
    let pids = names.map(|name| cluster.pid(name));
    let patience = Duration::from_secs(180 + 4 * objects() as u64);
    let holds = |what: &str, running: &[usize], done: &dyn Fn() -> bool| {
        let mut attempts = (0, 0);
        let began = Instant::now();
        let reached = wait(patience, || {
            attempts = (attempts.0 + 1, attempts.1 + usize::from(denies(&cluster)));
            for &at in running {
                let log = || cluster.end_of_log(names[at]);
                let memory = Memory::of(pids[at])
                    .unwrap_or_else(|_| panic!("{what}: the {} replica has ended\n{}", names[at], log()));
                assert!(memory.anonymous <= MOST, "{what}: {}: {memory}", names[at]);
            }
            done()
        });
        let (all, denied) = attempts;
        let memory = running
            .iter()
            .map(|&at| format!("{}: {}", names[at], memory_of(pids[at])));
        let memory = memory.collect::<Vec<_>>().join("; ");
        print(&format!(
            "{what} after {:.0?}: {denied} of {all} denied; {memory}",
            began.elapsed()
        ));
        assert!(reached, "{what}\n{}", cluster.end_of_log(names[running[0]]));
        assert_eq!(denied, all, "{what}");
    };
    let reports = || {
        cluster
            .kubectl(&["get", "reports.openreports.io", "-n", "tenant", "-o", "name"])
            .out
            .lines()
            .count()
    };
    holds("each object has a report", &[0, 1], &|| reports() == objects());

    join(&cluster, "win-2022", "10.0.20348");
    let is_tainted = || {
        let taints = cluster.kubectl(&["get", "node", "win-2022", "-o", "jsonpath={.spec.taints[*].key}"]);
        taints.out.split(' ').any(|key| key == "os")
    };
    // Its own workloads tolerate the taint: placement adds it to their pods.
    holds("a new node has its taint", &[0, 1], &is_tainted);

    let memory = memory_of(pids[0]);
    assert!(memory.anonymous_peak() <= MOST, "{memory}");
    cluster.end("leader", "KILL");

    let before = cluster
        .kubectl(&["get", "reports.openreports.io", "-n", "tenant", "-o", "json"])
        .out
        .len();
    let warn = json!({"spec": {"validation": {"action": "Warn"}}}).to_string();
    cluster
        .kubectl(&["patch", "wpp", "default", "--type=merge", "-p", &warn])
        .succeeded();
    let enforce = json!({"spec": {"validation": {"action": "Deny"}}}).to_string();
    cluster
        .kubectl(&["patch", "wpp", "default", "--type=merge", "-p", &enforce])
        .succeeded();
    let changed = Instant::now();
    // The Lease of the killed one expires first.
    holds(
        "the other replica evaluates all again after a change of the policy",
        &[1],
        &|| changed.elapsed() > Duration::from_secs(60) && reports() == objects(),
    );
    let after = cluster
        .kubectl(&["get", "reports.openreports.io", "-n", "tenant", "-o", "json"])
        .out
        .len();
    print(&format!("reports: {before} bytes before, {after} after"));
    let memory = memory_of(pids[1]);
    assert!(memory.anonymous_peak() <= MOST, "{memory}");
}

fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "tenant objects: {text}");
}
