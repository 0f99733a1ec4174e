//! The planner: the command on files, and its word held against a real scheduler that moves everything to the new build.
//! Without the programs (kube-controller-manager and kube-scheduler too) the second says so and proves nothing.
#![cfg(unix)]

mod in_place;
mod random;
mod workloads;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::command::{transom_in, transom_with};
use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::install::{self, Replica};
use crate::support::kubelet::join_with;
use crate::support::registry::{LTSC2019, LTSC2022, Registry, linux, windows};
use serde_json::{Value, json};
use transom::model::windows::build::{Build, Compatibility, ContainerIsolation, compatibility};
use workloads::{Workload, workloads};

const CONTROLLERS: &str = "deployment-controller,replicaset-controller,replicationcontroller-controller,\
                           statefulset-controller,daemonset-controller,job-controller,cronjob-controller";
const TARGET: Build = Build::new(26100);
const NEW: [&str; 2] = ["new-a", "new-b"];
/// The nodes of the day before, each a pool of its own.
const OLD: [(&str, &str); 5] = [
    ("win-2016", "10.0.14393"),
    ("win-2019", "10.0.17763"),
    ("win-20h2", "10.0.19042"),
    ("win-2022", "10.0.20348"),
    ("win-23h2", "10.0.25398"),
];

/// The exit status, the output and the errors of a run.
fn transom(args: &[&str], input: &str) -> (i32, String, String) {
    let run = transom_with(Path::new("."), args, input);
    (run.status, run.out, run.err)
}

#[test]
fn what_a_registry_reports_makes_a_workload_of_a_cluster_a_windows_workload() {
    let Some(registry) = Registry::start_or_skip() else {
        return;
    };
    let Some(cluster) = ControlPlane::start_or_skip("a plan with what registries report") else {
        return;
    };
    registry.push_index("shop/billing:1.4", &[windows(LTSC2019), windows(LTSC2022)]);
    registry.push_index("shop/both:1", &[linux(), windows(LTSC2019)]);
    join_with(&cluster, "win-2019", "10.0.17763", &[]);
    for name in ["billing:1.4", "both:1"] {
        let image = registry.reference(&format!("shop/{name}"));
        let labels = json!({"app": "web"});
        let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": image}]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name.split(':').next(), "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "template": pod}});
        cluster
            .kubectl_with(&["create", "-f", "-"], &deployment.to_string())
            .succeeded();
    }
    // No credentials and no cache of this user.
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let planned = |more: &[&str]| {
        let variables = [("DOCKER_CONFIG", home.path()), ("XDG_CACHE_HOME", home.path())];
        let run = transom_in(
            home.path(),
            &variables,
            &[&plan_of_cluster(&kubeconfig), more].concat(),
            "",
        );
        assert_eq!(run.err, "");
        let workloads = run.json()["workloads"].as_array().unwrap().clone();
        let names = workloads.iter().map(|it| it["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(planned(&[]), [] as [&str; 0]);
    assert_eq!(planned(&["--registry"]), ["billing"]);
}

/// The objects of a cluster, read by the command and printed by kubectl: policies, pools that are remembered, mirror pods.
#[test]
fn the_same_objects_give_the_same_plan_from_a_cluster_and_from_standard_input() {
    let Some(cluster) = ControlPlane::start_or_skip("a plan from standard input") else {
        return;
    };
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/crds.yaml");
    cluster.kubectl(&["create", "-f", crds]).succeeded();
    cluster
        .kubectl(&["wait", "--for=condition=established", "crd", "--all"])
        .succeeded();
    join_with(
        &cluster,
        "win-2019",
        "10.0.17763",
        &[("agentpool", "old"), ("ring", "stable")],
    );
    cluster
        .kubectl(&["taint", "node", "win-2019", "os=windows:NoSchedule"])
        .succeeded();
    cluster
        .kubectl(&["create", "namespace", "transom-system"])
        .succeeded();
    let pool = |name: &str, labels: Value, label: &str, taints: Value| {
        let (key, value) = label.split_once('=').unwrap();
        json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePool", "metadata": {"name": name, "labels": labels},
            "spec": {"nodeSelector": {"matchLabels": {key: value}}, "template": {"build": "10.0.26100", "taints": taints}}})
    };
    let observed = json!({"transom.dev/owned": "true"});
    let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let deployment = |name: &str, namespace: &str, selector: &Value| {
        let labels = json!({"app": name});
        let mut selector = selector.clone();
        selector["kubernetes.io/os"] = "windows".into();
        let spec = json!({"nodeSelector": selector, "containers": [{"name": "app",
            "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}})
    };
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        pool("new", observed, "agentpool=new", taints),
        {"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsPodPolicy", "metadata": {"name": "shop"},
            "spec": {"mode": "Enforce", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}},
        pool("gpu", json!({}), "gpu=yes", json!([])),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        deployment("placed", "shop", &json!({"agentpool": "new"})),
        deployment("not-placed", "default", &json!({"agentpool": "new"})),
        deployment("relabelled", "shop", &json!({"agentpool": "new", "kubernetes.io/hostname": "win-2019"})),
        deployment("gpu", "shop", &json!({"gpu": "yes"})),
        deployment("unknown", "shop", &json!({"agentpool": "gone"})),
    ]});
    cluster
        .kubectl_with(&["create", "-f", "-"], &objects.to_string())
        .succeeded();
    let kinds = "nodes,namespaces,runtimeclasses,controllerrevisions,windowspodpolicies,windowsnodepolicies,windowsnodepools,\
                 deployments,replicasets,pods";
    let dump = cluster
        .kubectl(&["get", kinds, "-A", "-o", "yaml"])
        .succeeded()
        .out
        .clone();
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let (_, of_cluster, errors) = transom(&plan_of_cluster(&kubeconfig), "");
    assert_eq!(errors, "");
    let (_, of_input, errors) = transom(&["plan", "--to", "ltsc2025", "-o", "json", "-"], &dump);
    assert_eq!(errors, "");
    let (of_cluster, of_input): (Value, Value) = (
        serde_json::from_str(&of_cluster).unwrap(),
        serde_json::from_str(&of_input).unwrap(),
    );
    assert_eq!(of_cluster, of_input);
    let moves = |name: &str| {
        let mut workloads = of_input["workloads"].as_array().unwrap().iter();
        workloads.find(|it| it["name"] == name).unwrap()["canMove"].clone()
    };
    let names = ["placed", "not-placed", "relabelled", "gpu", "unknown"];
    assert_eq!(
        names.map(moves),
        [true, false, false, true, false],
        "{of_input:#}"
    );
}

#[test]
fn the_command_plans_for_a_dump_and_its_status_says_whether_all_can_move() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: b-1, labels: {kubernetes.io/os: windows, agentpool: win22}}, status: {allocatable: {cpu: 4, memory: 16Gi, pods: 30}, nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}}";
    let web = |image: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{template: {{spec: {{os: {{name: windows}}, containers: [{{name: app, image: '{image}'}}]}}}}}}}}"
        )
    };
    let list = |image: &str| format!("apiVersion: v1\nkind: List\nitems:\n- {}\n- {node}\n", web(image));
    let (status, text, errors) = transom(
        &["plan", "--to", "ltsc2025", "-"],
        &list("mcr.microsoft.com/windows/servercore:ltsc2022"),
    );
    assert_eq!(status, 0, "{text}{errors}");
    for line in [
        "runs unchanged (1)",
        "default/web Deployment",
        "[process isolation: 10.0.20348 image on 10.0.26100 host]",
        "1. win22",
        "1 of 1 workload on the drained pools can move",
        "assumed placement: Audit in 1 namespace, by the built-in policy, because no known WindowsPodPolicy applies",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let old = list("mcr.microsoft.com/windows/servercore:ltsc2019").replace("10.0.20348.1", "10.0.17763.1");
    let (status, text, _) = transom(&["plan", "--to", "26100", "-o", "json", "-"], &old);
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &plan["schema"]), (1, &json!("transom.dev/plan/v1")));
    assert_eq!(
        plan["to"],
        json!({"build": "10.0.26100", "release": "ltsc2025", "product": "Windows Server 2025"})
    );
    let finding = &plan["workloads"][0]["findings"][0];
    assert_eq!(
        finding["proposed"],
        json!({"image": "mcr.microsoft.com/windows/servercore:ltsc2025", "verified": "published"})
    );
    assert_eq!(
        plan["drainOrder"][0]["blockedBy"][0]["workload"],
        "Deployment default/web"
    );

    let (status, text, errors) = transom(&["plan", "--to", "ltsc2025", "/no-such-folder"], "");
    assert_eq!(
        (status, text.as_str()),
        (
            2,
            "nothing to plan: no Windows node and no Windows workload in what could be read\n"
        )
    );
    assert!(errors.starts_with("error: /no-such-folder: "), "{errors}");
    let (status, text, _) = transom(
        &["plan", "--to", "ltsc2025", "-"],
        &old.replace("cpu: 4, ", "").replace("pods: 30", ""),
    );
    assert!(
        status == 1
            && text.contains(
                "what b-1 offers (status.allocatable) is not in the input: free capacity is unknown"
            ),
        "{text}"
    );

    let (status, _, errors) = transom(&["plan", "--to", "2025", "-"], &old);
    assert!(
        status == 2 && errors.contains("ltsc2016") && errors.contains("ltsc2025"),
        "{errors}"
    );
    let (status, _, errors) = transom(&["plan", "--to", "ltsc2025", "--from", "win21", "-"], &old);
    assert!(status == 2 && errors.contains("win22"), "{errors}");
    let (status, text, errors) = transom(
        &["plan", "--to", "ltsc2025", "-"],
        &format!("{old}---\nno object\n"),
    );
    assert!(status == 2 && text.contains("default/web"), "{text}{errors}");
    assert_eq!(errors.matches("not a Kubernetes object").count(), 1, "{errors}");

    // Objects on one line that are invalid in the same way are counted each.
    let invalid = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: NAME}, spec: {template: {spec: {containers: 1}}}}";
    let items = ["a", "b", "c"]
        .map(|name| invalid.replace("NAME", name))
        .join(", ");
    let list = format!("{{apiVersion: v1, kind: List, items: [{items}]}}");
    let (status, _, errors) = transom(&["plan", "--to", "ltsc2025", "-"], &list);
    assert_eq!(
        (status, errors.matches("this Deployment cannot be read").count()),
        (2, 3),
        "{errors}"
    );
}

#[test]
fn what_the_plan_calls_unchanged_is_bound_to_the_new_build_and_compatible_and_the_rest_is_not() {
    let Some(cluster) = cluster() else { return };
    let all = workloads();
    assert_eq!(all.len(), 60);
    for (name, build) in OLD {
        join_with(&cluster, name, build, &[("agentpool", name)]);
    }
    let policies = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Audit, placement: {mode: Apply}}
";
    install::prepare(&cluster, policies);
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    create(&cluster, &all);
    let mut quiet = Quiet::new();
    assert!(
        wait(Duration::from_secs(60), || are_decided(
            &cluster, &all, &mut quiet
        )),
        "{:#?}",
        pods(&cluster)
    );

    let plan = plan_of(&cluster);
    let classes = classes_of(&plan);
    let expected: BTreeMap<&str, &str> = all.iter().map(|it| (it.name.as_str(), it.class)).collect();
    for (name, class) in &expected {
        assert_eq!(
            classes.get(*name).map(String::as_str),
            Some(*class),
            "{name}\n{plan:#}"
        );
    }
    assert_eq!(classes.len(), all.len(), "Linux workloads are none of its");
    let held = |pool: &str| {
        let order = plan["drainOrder"].as_array().unwrap();
        order.iter().find(|step| step["pool"] == pool).unwrap()["blockedBy"].to_string()
    };
    assert!(
        held("win-2019").contains("DaemonSet shop/agent-2019"),
        "{}",
        held("win-2019")
    );
    assert_eq!(plan["drainOrder"].as_array().unwrap().len(), OLD.len());

    move_to_the_new_build(&cluster, &all);
    let pods = pods(&cluster);
    let right = all
        .iter()
        .filter(|workload| matches_plan(workload, &pods))
        .count();
    assert_eq!(right, all.len(), "{}", cluster.end_of_log("transom"));
    let _ = writeln!(
        std::io::stderr(),
        "{right} of {} workloads fared as the plan said",
        all.len()
    );
}

fn cluster() -> Option<ControlPlane> {
    let cluster = ControlPlane::start(programs_of_a_whole_control_plane("tests/cluster/plan.rs")?).unwrap();
    cluster.start_controllers_of(CONTROLLERS).unwrap();
    cluster.start_scheduler().unwrap();
    Some(cluster)
}

fn create<W: Borrow<Workload>>(cluster: &ControlPlane, all: &[W]) {
    let class = |name: &str, handler: &str, scheduling: Value| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler, "scheduling": scheduling});
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        class(
            "isolated",
            "runhcs-wcow-hypervisor",
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
        ),
        class(
            "windows-2022",
            "runhcs-wcow-process",
            json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}}),
        ),
        workloads::linux(),
    ];
    items.extend(all.iter().map(|workload| workload.borrow().object.clone()));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    cluster
        .kubectl_with(&["create", "-f", "-"], &list.to_string())
        .succeeded();
}

fn pods(cluster: &ControlPlane) -> Vec<Value> {
    cluster
        .kubectl(&["-n", "shop", "get", "pods", "-o", "json"])
        .succeeded()
        .objects()
}

fn of<'p>(pods: &'p [Value], workload: &'p str) -> impl Iterator<Item = &'p Value> {
    pods.iter()
        .filter(move |pod| pod["metadata"]["labels"]["app"] == workload)
}

/// Whether pods still come and go: a controller may only begin to make those of a DaemonSet.
struct Quiet {
    /// The pods that were seen last, and since when.
    seen: BTreeSet<String>,
    since: Instant,
}

impl Quiet {
    /// Longer than a controller takes to begin on a loaded machine.
    const LONG_ENOUGH: Duration = Duration::from_secs(8);

    fn new() -> Self {
        Quiet {
            seen: BTreeSet::new(),
            since: Instant::now(),
        }
    }

    /// Whether no pod came or went for long enough, these included.
    fn after(&mut self, pods: &[Value]) -> bool {
        let now: BTreeSet<String> = pods
            .iter()
            .map(|pod| pod["metadata"]["uid"].to_string())
            .collect();
        if now != self.seen {
            (self.seen, self.since) = (now, Instant::now());
        }
        self.since.elapsed() >= Self::LONG_ENOUGH
    }
}

/// Whether the scheduler has decided on every pod, and each workload has one.
fn are_decided<W: Borrow<Workload>>(cluster: &ControlPlane, all: &[W], quiet: &mut Quiet) -> bool {
    let pods = pods(cluster);
    if !quiet.after(&pods) {
        return false;
    }
    let has_pods = |workload: &Workload| !workload.makes_pods() || of(&pods, &workload.name).next().is_some();
    are_placed(&pods) && all.iter().map(W::borrow).all(has_pods)
}

/// The arguments for the plan of a cluster.
fn plan_of_cluster(kubeconfig: &str) -> [&str; 7] {
    [
        "plan",
        "--to",
        "ltsc2025",
        "-o",
        "json",
        "--kubeconfig",
        kubeconfig,
    ]
}

fn plan_of(cluster: &ControlPlane) -> Value {
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let (status, out, errors) = transom(&plan_of_cluster(&kubeconfig), "");
    assert_eq!(status, 1, "{errors}");
    serde_json::from_str(&out).unwrap()
}

fn classes_of(plan: &Value) -> BTreeMap<String, String> {
    let workloads = plan["workloads"].as_array().unwrap().iter();
    workloads
        .map(|it| {
            (
                it["name"].as_str().unwrap().to_owned(),
                it["class"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

/// New nodes come, the old ones are cordoned, and every pod on them is made anew where it can be.
fn move_to_the_new_build(cluster: &ControlPlane, all: &[Workload]) {
    cluster
        .kubectl(&["cordon", "-l", "kubernetes.io/os=windows"])
        .succeeded();
    for name in NEW {
        join_with(cluster, name, "10.0.26100", &[("agentpool", "win-2025")]);
    }
    let before: BTreeSet<String> = pods(cluster)
        .iter()
        .map(|pod| pod["metadata"]["uid"].to_string())
        .collect();
    cluster
        .kubectl(&[
            "-n",
            "shop",
            "delete",
            "pods",
            "--all",
            "--force",
            "--grace-period=0",
            "--wait=false",
        ])
        .succeeded();
    for workload in all.iter().filter(|it| it.object["kind"] == "CronJob") {
        let from = format!("cronjob/{}", workload.name);
        cluster
            .kubectl(&["-n", "shop", "create", "job", &workload.name, "--from", &from])
            .succeeded();
    }
    let is_new = || {
        pods(cluster)
            .iter()
            .all(|pod| !before.contains(&pod["metadata"]["uid"].to_string()))
    };
    let comes_back = |workload: &Workload, pods: &[Value]| {
        let kind = workload.object["kind"].as_str().unwrap();
        kind == "Pod" || kind == "DaemonSet" || of(pods, &workload.name).next().is_some()
    };
    let all_back = || {
        let pods = pods(cluster);
        all.iter().all(|workload| comes_back(workload, &pods))
    };
    let settled = || is_new() && all_back() && are_placed(&pods(cluster));
    assert!(wait(Duration::from_secs(60), settled), "{:#?}", pods(cluster));
}

/// Whether every pod has a node, or was told that it has none.
fn are_placed(pods: &[Value]) -> bool {
    pods.iter().all(|pod| {
        pod["spec"]["nodeName"].is_string()
            || pod["status"]["conditions"].to_string().contains("Unschedulable")
    })
}

/// Whether the pods of a workload are where its class says, and run there by the table.
fn matches_plan(workload: &Workload, pods: &[Value]) -> bool {
    let nodes: Vec<Option<&str>> = of(pods, &workload.name)
        .map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    let is_new = |node: Option<&str>| node.is_some_and(|node| NEW.contains(&node));
    let on_every_new = NEW.iter().all(|new| nodes.contains(&Some(new)));
    let is_daemon = workload.object["kind"] == "DaemonSet";
    let bound = if is_daemon {
        on_every_new
    } else {
        !nodes.is_empty() && nodes.iter().copied().all(is_new)
    };
    let never = !nodes.iter().copied().any(is_new);
    let runs = |isolation| {
        workload
            .builds
            .iter()
            .all(|build| compatibility(Build::new(*build), TARGET, isolation) == Compatibility::Runs)
    };
    let right = match (workload.class, workload.by) {
        ("unchanged", _) => bound && runs(workload.isolation),
        ("hyperVOnly", _) => bound && runs(ContainerIsolation::HyperV) && !runs(ContainerIsolation::Process),
        // Placement keeps it off, by the same table.
        ("newImage", _) => never && !runs(workload.isolation),
        ("pinned", _) | ("blocked", "daemonSet") => never,
        ("blocked", "noController") => nodes.is_empty(),
        // What Kubernetes cannot tell keeps no pod off.
        ("blocked", "gmsa") | ("unknown", _) => bound,
        _ => false,
    };
    if !right {
        let _ = writeln!(
            std::io::stderr(),
            "{} ({} {}): {nodes:?}",
            workload.name,
            workload.class,
            workload.by
        );
    }
    right
}
