//! A drain of real pods: with the scheduler, the controllers and kubelets that pull images for seconds. Without the programs
//! (kube-controller-manager and kube-scheduler too) these tests say so and prove nothing.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::command::{CommandRun, assert_valid_reports, program, transom};
use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use crate::support::kubelet::{Kubelets, ReadyReplicas, join_with};
use crate::support::objects::{in_namespace, workload};
use crate::support::pulling_kubelet::PullingKubelets;
use serde_json::{Value, json};

const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,\
                           disruption-controller";
const PULL: Duration = Duration::from_secs(5);
const IMAGE: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";
/// What every drain here allows.
const USUAL: [&str; 4] = ["--pool", "old", "--ignore-daemonsets", "--delete-emptydir-data"];

/// Two nodes of each pool, and kubelets.
fn cluster() -> Option<(ControlPlane, Kubelets)> {
    let cluster = nodes()?;
    let kubelets = Kubelets::start_with_pulls(&cluster, PULL);
    Some((cluster, kubelets))
}

/// Two nodes of each pool.
fn nodes() -> Option<ControlPlane> {
    let cluster = ControlPlane::start(programs_of_a_whole_control_plane("tests/cluster/drain.rs")?).unwrap();
    cluster.start_controllers_of(CONTROLLERS).unwrap();
    cluster.start_scheduler().unwrap();
    for (node, build, pool) in [
        ("old-1", "10.0.20348", "old"),
        ("old-2", "10.0.20348", "old"),
        ("new-1", "10.0.26100", "new"),
        ("new-2", "10.0.26100", "new"),
    ] {
        join_with(&cluster, node, build, &[("agentpool", pool)]);
    }
    cluster.create_namespace("shop", &[]);
    Some(cluster)
}

fn create(cluster: &ControlPlane, items: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let created = cluster.kubectl_with(&["create", "-f", "-"], &list.to_string());
    created.succeeded();
}

fn replicas(kind: &str, name: &str, replicas: usize) -> Value {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "app", "image": format!("{IMAGE}-{name}"), "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "logs", "emptyDir": {}}]});
    in_namespace("shop", workload(kind, name, &spec, replicas))
}

fn budget(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": name}});
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn pods(cluster: &ControlPlane) -> Vec<Value> {
    let listed = cluster.kubectl(&["-n", "shop", "get", "pods", "-o", "json"]);
    listed.succeeded().objects()
}

fn on_pool<'p>(pods: &'p [Value], pool: &'p str) -> impl Iterator<Item = &'p Value> {
    let is_there = move |pod: &&Value| {
        pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| node.starts_with(pool))
    };
    pods.iter().filter(is_there)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|it| it["type"] == "Ready" && it["status"] == "True");
    pod["metadata"]["deletionTimestamp"].is_null() && ready.next().is_some()
}

/// Waits until so many pods are Ready on a pool, and there are no others.
fn are_ready_on(cluster: &ControlPlane, pool: &str, count: usize) {
    let settled = || {
        let pods = pods(cluster);
        pods.len() == count && on_pool(&pods, pool).filter(|pod| is_ready(pod)).count() == count
    };
    assert!(wait(Duration::from_secs(90), settled), "{:#?}", pods(cluster));
}

fn cordon(cluster: &ControlPlane, verb: &str, pool: &str) {
    let selector = format!("agentpool={pool}");
    cluster.kubectl(&[verb, "-l", &selector]).succeeded();
}

fn drain(cluster: &ControlPlane, more: &[&str]) -> CommandRun {
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let connection = ["drain", "--kubeconfig", &kubeconfig];
    transom(Path::new("."), &[&connection[..], &USUAL, more].concat())
}

/// The pods of everything on the old pool: the new one opens afterwards.
fn settle_on_old(cluster: &ControlPlane, count: usize) {
    are_ready_on(cluster, "old", count);
    cordon(cluster, "uncordon", "new");
}

#[test]
fn replicas_stay_ready_while_new_nodes_pull_and_kubectl_drain_takes_them_all() {
    let Some((cluster, kubelets)) = cluster() else {
        return;
    };
    cordon(&cluster, "cordon", "new");
    create(
        &cluster,
        &[
            replicas("Deployment", "web", 4),
            replicas("Deployment", "api", 3),
            budget("api", &json!({"maxUnavailable": 1})),
            replicas("StatefulSet", "db", 2),
            replicas("DaemonSet", "agent", 0),
        ],
    );
    // An agent on each of the four nodes.
    let (moving, agents) = (9, 4);
    let settled = |pool: &str| {
        let pods = pods(&cluster);
        let agents_ready = pods.iter().filter(|pod| is_ready(pod)).count() == moving + agents;
        agents_ready && on_pool(&pods, pool).count() == moving + agents / 2
    };
    assert!(
        wait(Duration::from_secs(90), || settled("old")),
        "{:#?}",
        pods(&cluster)
    );
    cordon(&cluster, "uncordon", "new");
    let planned = drain(&cluster, &["--to", "ltsc2025", "--dry-run", "-o", "json"]);
    assert_eq!(planned.status, 0, "{}{}", planned.out, planned.err);
    kubelets.lowest();
    let run = drain(&cluster, &["--to", "ltsc2025", "-o", "json"]);
    let ours = kubelets.lowest();
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    let (planned, report) = (planned.json(), run.json());
    assert_valid_reports("drain", &[&planned, &report]);
    assert_eq!(planned["pods"].as_array().unwrap().len(), moving);
    assert_eq!(
        (&planned["ignored"], &planned["result"]),
        (&json!(2), &json!("planned"))
    );
    assert_eq!(report["result"], "done");
    let evicted = report["events"].as_array().unwrap().iter();
    assert_eq!(
        evicted.filter(|event| event["event"] == "evicted").count(),
        moving
    );
    assert!(settled("new"), "{:#?}", pods(&cluster));

    // Back, and the same with kubectl: the new nodes have pulled nothing.
    assert_eq!(drain(&cluster, &["--uncordon"]).status, 0);
    let schedulable = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"]);
    assert_eq!(schedulable.succeeded().out, "");
    cordon(&cluster, "cordon", "new");
    drop(kubelets);
    let kubelets = Kubelets::start_with_pulls(&cluster, PULL);
    cluster
        .kubectl(&["-n", "shop", "delete", "pods", "-l", "app!=agent", "--wait=false"])
        .succeeded();
    assert!(
        wait(Duration::from_secs(90), || settled("old")),
        "{:#?}",
        pods(&cluster)
    );
    cordon(&cluster, "uncordon", "new");
    kubelets.lowest();
    std::thread::scope(|scope| {
        for node in ["old-1", "old-2"] {
            let command = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data"];
            let cluster = &cluster;
            scope.spawn(move || cluster.kubectl(&command).succeeded());
        }
    });
    assert!(
        wait(Duration::from_secs(90), || settled("new")),
        "{:#?}",
        pods(&cluster)
    );
    let kubectl = kubelets.lowest();
    show(&ours, &kubectl);
    for (app, least) in [("web", 3), ("api", 2), ("db", 1)] {
        assert!(ours[app] >= least, "{app}: {ours:?}");
    }
    assert!(
        kubectl["web"] < ours["web"] && kubectl["db"] < ours["db"],
        "{kubectl:?}"
    );
}

fn show(ours: &ReadyReplicas, kubectl: &ReadyReplicas) {
    for (app, replicas) in [("web", 4), ("api", 3), ("db", 2)] {
        let _ = writeln!(
            std::io::stderr(),
            "{app}, {replicas} replicas: at least {} Ready during transom drain, {} during kubectl drain of both nodes",
            ours[app],
            kubectl[app]
        );
    }
}

#[test]
fn what_has_an_outage_stops_the_drain_and_the_role_of_the_page_is_enough() {
    let Some((cluster, _kubelets)) = cluster() else {
        return;
    };
    cordon(&cluster, "cordon", "new");
    create(
        &cluster,
        &[
            replicas("Deployment", "one", 1),
            replicas("Deployment", "zero", 2),
            budget("zero", &json!({"maxUnavailable": 0})),
            replicas("Deployment", "web", 2),
        ],
    );
    settle_on_old(&cluster, 5);
    let is_cordoned = || {
        let old = cluster.kubectl(&["get", "nodes", "-l", "agentpool=old", "-o", "json"]);
        old.objects()
            .iter()
            .all(|node| node["spec"]["unschedulable"] == true)
    };
    let run = drain(&cluster, &[]);
    for text in [
        "outage: Deployment shop/one: it has one replica",
        "outage: Deployment shop/zero: its PodDisruptionBudget zero allows no eviction",
        "images that nodes must pull first:",
        "transom generate image-pulls -o daemonset --pool new",
        "stopped: workloads have an outage",
    ] {
        assert!(run.out.contains(text), "{text}\n{}{}", run.out, run.err);
    }
    assert!(
        !run.out.contains("to go back"),
        "nothing was cordoned: {}",
        run.out
    );
    assert_eq!((run.status, is_cordoned()), (1, false));
    let strict = transom(
        Path::new("."),
        &[
            "drain",
            "old-1",
            "--kubeconfig",
            &cluster.path("admin.kubeconfig").display().to_string(),
        ],
    );
    assert!(
        strict.status == 1 && strict.out.contains("--delete-emptydir-data allows this"),
        "{}",
        strict.out
    );
    let nowhere = drain(&cluster, &["--to", "ltsc2019", "--dry-run"]);
    assert!(
        nowhere.status == 1 && nowhere.out.contains("at least 1 node must be added"),
        "{}{}",
        nowhere.out,
        nowhere.err
    );

    // With nothing but the role of the page.
    let page = include_str!("../../docs/reference/rights.md");
    let mut blocks = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next());
    let role = blocks
        .find(|block| block.contains("name: transom-drain\n"))
        .unwrap();
    cluster.kubectl_with(&["apply", "-f", "-"], role).succeeded();
    let bind = [
        "create",
        "clusterrolebinding",
        "drainer",
        "--clusterrole=transom-drain",
        "--user=drainer",
    ];
    cluster.kubectl(&bind).succeeded();
    let run = drain(&cluster, &["--allow-outage", "--as", "drainer"]);
    assert!(
        run.out
            .contains("stopped: the API server does not evict what is left (Deployment shop/zero"),
        "{}{}",
        run.out,
        run.err
    );
    assert_eq!((run.status, run.err.as_str(), is_cordoned()), (1, "", true));
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let back =
        format!("to go back: transom drain --uncordon --kubeconfig {kubeconfig} --as drainer old-1 old-2\n");
    assert!(run.out.contains(&back), "{back}{}", run.out);
    let pods = pods(&cluster);
    assert_eq!(
        on_pool(&pods, "old").count(),
        2,
        "only those of the budget are left"
    );
}

#[test]
fn pools_are_named_as_in_the_plan_and_a_dry_run_says_what_budgets_will_do() {
    let Some((cluster, _kubelets)) = cluster() else {
        return;
    };
    // A pool with nodes of two builds.
    join_with(&cluster, "new-3", "10.0.20348", &[("agentpool", "new")]);
    cordon(&cluster, "cordon", "new");
    let bare = |name: &str, app: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
            "spec": {"nodeName": "old-1", "containers": [{"name": "app", "image": format!("{IMAGE}-bare")}]}})
    };
    create(
        &cluster,
        &[
            replicas("Deployment", "ten", 10),
            budget("ten", &json!({"minAvailable": 1})),
            bare("bare-1", "bare"),
            bare("bare-2", "bare"),
            budget("bare", &json!({"minAvailable": 1})),
            bare("solo-1", "solo"),
            budget("solo", &json!({"maxUnavailable": 1})),
        ],
    );
    settle_on_old(&cluster, 13);
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let dry_run = |more: &[&str]| {
        let all = [
            "drain",
            "--kubeconfig",
            &kubeconfig,
            "--dry-run",
            "--ignore-daemonsets",
        ];
        transom(Path::new("."), &[&all[..], more].concat())
    };
    for more in [
        &["--pool", "new", "--to", "ltsc2025"][..],
        &["--pool", "new (10.0.20348)"],
    ] {
        let run = dry_run(more);
        assert!(
            run.out.contains("  new-3 (new (10.0.20348)): no pods to move\n") && !run.out.contains("  new-1"),
            "{more:?} {}{}",
            run.out,
            run.err
        );
    }
    let allowed = ["--force", "--allow-outage"];
    let planned = drain(&cluster, &[&allowed[..], &["--dry-run"]].concat());
    for text in [
        "Deployment shop/ten may fall to 1 of 10 replicas, as its PodDisruptionBudget ten allows\n",
        "outage: Pod shop/solo-1: its PodDisruptionBudget solo allows no eviction: it counts no pods, because none that it selects has a controller; it has no controller, so nothing creates it again\n",
        "the PodDisruptionBudget shop/bare allows to evict 1 of 2 pods without a controller",
        "the drain stops in the end: the API server does not evict what is left (Pod shop/solo-1: ",
        "dry run: nothing was changed\n",
    ] {
        assert!(
            planned.out.contains(text),
            "{text}\n{}{}",
            planned.out,
            planned.err
        );
    }
    for name in ["solo-1", "bare-1", "bare-2"] {
        let lines = planned
            .out
            .lines()
            .filter(|line| line.starts_with(&format!("outage: Pod shop/{name}:")));
        assert_eq!(lines.count(), 1, "{name} {}", planned.out);
    }
    let run = drain(&cluster, &allowed);
    assert!(
        run.status == 1
            && run
                .out
                .contains("stopped: the API server does not evict what is left (Pod shop/bare-"),
        "{}{}",
        run.out,
        run.err
    );
    let pods = pods(&cluster);
    let left: Vec<_> = on_pool(&pods, "old")
        .map(|pod| pod["metadata"]["labels"]["app"].as_str())
        .collect();
    assert_eq!(left.len(), 2, "{left:?} {}", run.out);
}

#[test]
fn a_replacement_without_a_node_stops_the_drain_and_it_continues_after_a_signal() {
    let Some((cluster, _kubelets)) = cluster() else {
        return;
    };
    cordon(&cluster, "cordon", "new");
    let mut large = replicas("Deployment", "large", 2);
    // One on each node, so that a third finds none.
    large["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "40".into();
    create(&cluster, &[large, replicas("Deployment", "web", 3)]);
    settle_on_old(&cluster, 5);
    cluster.kubectl(&["cordon", "new-2"]).succeeded();
    let blocker = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "blocker", "namespace": "default"},
        "spec": {"nodeName": "new-1", "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "30"}}}]}});
    create(&cluster, &[blocker]);
    let run = drain(&cluster, &["--pending-timeout", "4s"]);
    assert!(
        run.status == 1
            && run.out.contains("stopped: no node is found for shop/large-")
            && run.out.contains("Insufficient cpu"),
        "{}{}",
        run.out,
        run.err
    );
    assert!(
        pods(&cluster).iter().filter(|pod| is_ready(pod)).count() >= 3,
        "nothing else was taken"
    );

    // A signal ends it, and the same command continues.
    cluster.kubectl(&["uncordon", "new-2"]).succeeded();
    cluster
        .kubectl(&["delete", "pod", "blocker", "--wait=false"])
        .succeeded();
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let before = on_pool(&pods(&cluster), "old").count();
    let child = Command::new(program())
        .args(["drain", "--kubeconfig", &kubeconfig])
        .args(USUAL)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let has_moved = || on_pool(&pods(&cluster), "old").count() < before;
    assert!(wait(Duration::from_secs(60), has_moved));
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupt.success());
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{out}");
    assert!(
        out.contains("interrupted") && out.contains("to continue: transom drain --kubeconfig"),
        "{out}"
    );
    let run = drain(&cluster, &[]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.err);
    assert!(run.out.ends_with("done\n"), "{}", run.out);
    are_ready_on(&cluster, "new", 5);
}

#[test]
fn a_drain_that_waits_for_images_evicts_nothing_before_the_other_nodes_have_them() {
    const WEB: &str = "mcr.microsoft.com/windows/servercore:ltsc2022-web";
    const REPORT: &str = "registry.example.com/report:1-ltsc2022";
    let Some(cluster) = nodes() else {
        return;
    };
    let sizes = [
        (WEB, 300_000_000),
        (REPORT, 100_000_000),
        ("registry.k8s.io/pause:3.10.1", 1000),
    ];
    let kubelets = PullingKubelets::start(&cluster, BTreeMap::from(sizes), BTreeMap::new(), "");
    cordon(&cluster, "cordon", "new");
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "app", "image": REPORT}]});
    let report = in_namespace("shop", workload("CronJob", "report", &spec, 0));
    create(&cluster, &[replicas("Deployment", "web", 2), report]);
    settle_on_old(&cluster, 2);
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let draining = || {
        let mut command = Command::new(program());
        command.args([
            "drain",
            "--kubeconfig",
            &kubeconfig,
            "--to",
            "ltsc2025",
            "--wait-for-images",
        ]);
        command.args(USUAL).stdout(Stdio::piped());
        command
    };
    let stopped = draining().args(["--timeout", "2s"]).output().unwrap();
    let out = String::from_utf8(stopped.stdout).unwrap();
    assert!(out.contains("2 images still missing after 2 s"), "{out}");
    for text in [REPORT, WEB] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert_eq!(on_pool(&pods(&cluster), "old").count(), 2, "{out}");

    let child = draining().spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(on_pool(&pods(&cluster), "old").count(), 2);
    // The command that the output names.
    assert!(
        out.contains("transom generate image-pulls -o daemonset --pool new"),
        "{out}"
    );
    let generate = [
        "generate",
        "image-pulls",
        "-o",
        "daemonset",
        "--pool",
        "new",
        "--kubeconfig",
        &kubeconfig,
    ];
    let pullers = transom(Path::new("."), &generate);
    assert_eq!(pullers.status, 0, "{}", pullers.err);
    cluster.create_namespace("image-pulls", &[]);
    cluster
        .kubectl_with(&["-n", "image-pulls", "apply", "-f", "-"], &pullers.out)
        .succeeded();
    let has_images = |node: &str| {
        let log = kubelets.log();
        [WEB, REPORT]
            .iter()
            .all(|image| log.nodes[node].images.contains_key(*image))
    };
    let has_moved = || on_pool(&pods(&cluster), "new").next().is_some();
    assert!(wait(Duration::from_secs(90), has_moved), "{:#?}", kubelets.log());
    assert!(
        has_images("new-1") && has_images("new-2"),
        "{:#?}",
        kubelets.log()
    );
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success() && out.ends_with("done\n"), "{out}");
    are_ready_on(&cluster, "new", 2);
}
