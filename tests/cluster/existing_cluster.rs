//! The day on which Transom is installed in a cluster that runs already, as a team sees it through kubectl: what was
//! there comes back whatever is done to it, and only what is new and wrong is refused. Without the programs
//! (kube-controller-manager and kube-scheduler too) this says so and proves nothing.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::control_plane::{
    ControlPlane, OWN_ACCOUNTS, Printed, programs_of_a_whole_control_plane, wait,
};
use crate::support::install::{self, Replica};
use crate::support::kubelet::{self, Kubelets};
use serde_json::{Value, json};

const BAD_DEPLOYMENT: &str = include_str!("../../manifests/examples/deployment-bad.yaml");
const GOOD_DEPLOYMENT: &str = include_str!("../../manifests/examples/deployment-good.yaml");
const RUNNING: &str = include_str!("existing_cluster/running.yaml");
const CALICO: &str = include_str!("../corpus/good/calico-windows.yaml");
const CSI: &str = include_str!("../corpus/good/csi.yaml");
const EXPORTER: &str = include_str!("../corpus/good/windows-exporter.yaml");
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,replicationcontroller-controller,\
                           statefulset-controller,daemonset-controller,job-controller,cronjob-controller";

/// Two of each, so that one can be drained. The Linux ones have no build.
const NODES: [(&str, &str); 6] = [
    ("linux-a", ""),
    ("linux-b", ""),
    ("win-2019-a", "10.0.17763"),
    ("win-2019-b", "10.0.17763"),
    ("win-2022-a", "10.0.20348"),
    ("win-2022-b", "10.0.20348"),
];

/// Where things ran before Transom came. Of these kube-system and calico-system are left out by its registration.
const LIVED_IN: [&str; 6] = [
    "shop",
    "kube-system",
    "calico-system",
    "kube-flannel",
    "csi",
    "monitoring",
];

/// Objects that were bad before Transom came.
const BEFORE: &str = "before";

/// The policies of the chart, and one for a namespace that is only looked at.
const LOOKING: &str = "
---
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: looking}
spec: {mode: Audit, priority: 10, namespaceSelector: {matchLabels: {only: looked-at}}}
";

/// How long anything may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The cluster that the tests of this file share, on the day of the installation.
struct Day {
    cluster: ControlPlane,
    /// Pods that run, by [`census`], before Transom came.
    before: BTreeMap<String, usize>,
    /// Jobs that the CronJob had made when Transom came.
    jobs: BTreeSet<String>,
    _kubelets: Kubelets,
}

fn day() -> Option<&'static Day> {
    static DAY: OnceLock<Result<Day, ()>> = OnceLock::new();
    let programs = programs_of_a_whole_control_plane("tests/cluster/existing_cluster.rs")?;
    let breaks = || break_of_day(ControlPlane::start(programs).unwrap());
    // Else every test would try it once more.
    let day = DAY.get_or_init(|| catch_unwind(AssertUnwindSafe(breaks)).map_err(drop));
    let day = day.as_ref();
    Some(day.unwrap_or_else(|()| panic!("the cluster could not be made; another test says why")))
}

/// A cluster in which everything runs in its second revision; then Transom is installed with the chart's policies.
fn break_of_day(cluster: ControlPlane) -> Day {
    for (name, build) in NODES {
        kubelet::join(&cluster, name, build);
    }
    cluster
        .start_controllers_with(CONTROLLERS, &[OWN_ACCOUNTS])
        .unwrap();
    cluster.start_scheduler().unwrap();
    let kubelets = Kubelets::start(&cluster);
    let made = LIVED_IN.iter().filter(|name| **name != "kube-system");
    for namespace in made.chain(&[BEFORE, "cron"]) {
        cluster.create_namespace(namespace, &[]);
    }
    let csi = CSI.replace("namespace: kube-system", "namespace: csi");
    // Two exporters cannot have the same port of a node.
    let (first, second) = EXPORTER.split_once("\n---\n").unwrap();
    let second = second.replace("9182", "9183");
    let all = [RUNNING, CALICO, CSI, &csi, first, &second].join("\n---\n");
    cluster.kubectl_with(&["apply", "-f", "-"], &all).succeeded();
    let bad = bad_before().to_string();
    cluster
        .kubectl_with(&["apply", "-n", BEFORE, "-f", "-"], &bad)
        .succeeded();
    for namespace in LIVED_IN {
        settles(&cluster, namespace, "it runs before Transom comes");
        let set = [
            "set",
            "env",
            "-n",
            namespace,
            "deployments,statefulsets,daemonsets",
            "--all",
            "REVISION=2",
        ];
        cluster.kubectl(&set).succeeded();
        settles(&cluster, namespace, "its second revision runs");
    }
    let before = census(&cluster);
    let jobs = jobs(&cluster);

    install::prepare(&cluster, &format!("{}{LOOKING}", install::POLICIES));
    let replica = Replica::start(&cluster, "transom", &[]);
    install::register(&cluster, replica.port, &[]);
    replica.is_ready(&cluster);
    let called = || {
        let probe = cluster.kubectl_with(
            &["create", "-n", BEFORE, "--dry-run=server", "-f", "-"],
            BAD_DEPLOYMENT,
        );
        probe.err.contains("denied the request")
    };
    assert!(wait(PATIENCE, called), "{}", cluster.end_of_log("transom"));
    Day {
        cluster,
        before,
        jobs,
        _kubelets: kubelets,
    }
}

/// Two pods and a Deployment with Linux-only fields; a pod and the Deployment are held by finalizers.
fn bad_before() -> Value {
    let spec = json!({
        // Not on a node that another test drains.
        "nodeSelector": {"kubernetes.io/os": "windows", "kubernetes.io/hostname": "win-2019-b"},
        "securityContext": {"runAsUser": 1000, "fsGroup": 5},
        "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2019"}],
    });
    let pod = |name: &str, finalizers: &[&str]| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "finalizers": finalizers}, "spec": spec});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "bad", "finalizers": ["example.com/hold"]},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "bad"}},
            "template": {"metadata": {"labels": {"app": "bad"}}, "spec": spec}},
    });
    let items = [pod("bad", &[]), pod("held", &["example.com/hold"]), deployment];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn list(cluster: &ControlPlane, args: &[&str]) -> Vec<Value> {
    let printed = cluster.kubectl(&[&["get", "-o", "json"], args].concat());
    printed.succeeded().objects()
}

fn pods(cluster: &ControlPlane) -> Vec<Value> {
    list(cluster, &["pods", "-A"])
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The pods that run, by namespace and app; those of DaemonSets by node too.
fn census(cluster: &ControlPlane) -> BTreeMap<String, usize> {
    let mut census = BTreeMap::new();
    for pod in pods(cluster) {
        let namespace = text(&pod, "/metadata/namespace");
        let runs = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
        if !runs || !LIVED_IN.contains(&namespace) {
            continue;
        }
        let labels = &pod["metadata"]["labels"];
        let app = labels["app"].as_str().or(labels["k8s-app"].as_str()).unwrap();
        let is_daemon = text(&pod, "/metadata/ownerReferences/0/kind") == "DaemonSet";
        let node = if is_daemon {
            text(&pod, "/spec/nodeName")
        } else {
            ""
        };
        *census.entry(format!("{namespace}/{app}@{node}")).or_default() += 1;
    }
    census
}

/// Waits until every rollout of a namespace has ended, as its controllers say.
#[track_caller]
fn settles(cluster: &ControlPlane, namespace: &str, what: &str) {
    let done = |object: &Value| {
        let status = &object["status"];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let wanted = match object["kind"].as_str() {
            Some("DaemonSet") => number(&status["desiredNumberScheduled"]),
            _ => number(&object["spec"]["replicas"]),
        };
        let (updated, ready, all) = match object["kind"].as_str() {
            Some("DaemonSet") => (
                &status["updatedNumberScheduled"],
                &status["numberAvailable"],
                &status["currentNumberScheduled"],
            ),
            Some("ReplicationController") => {
                (&status["replicas"], &status["readyReplicas"], &status["replicas"])
            }
            _ => (
                &status["updatedReplicas"],
                &status["availableReplicas"],
                &status["replicas"],
            ),
        };
        let seen = number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
        seen && wanted > 0 && [updated, ready, all].iter().all(|n| number(n) == wanted)
    };
    let kinds = "deployments,statefulsets,daemonsets,replicationcontrollers";
    let mut last = Vec::new();
    let settled = || {
        last = list(cluster, &["-n", namespace, kinds]);
        !last.is_empty() && last.iter().all(done)
    };
    let settled = wait_slowly(settled);
    let left: Vec<String> = last
        .iter()
        .filter(|object| !done(object))
        .map(Value::to_string)
        .collect();
    let events = || {
        cluster
            .kubectl(&["get", "events", "-n", namespace, "--sort-by=.lastTimestamp"])
            .out
    };
    assert!(settled, "{namespace}: {what}: {left:#?}\n{}", events());
}

/// As `wait`, for questions that cost kubectl a while.
fn wait_slowly(mut done: impl FnMut() -> bool) -> bool {
    wait(PATIENCE, || {
        std::thread::sleep(Duration::from_millis(400));
        done()
    })
}

fn jobs(cluster: &ControlPlane) -> BTreeSet<String> {
    list(cluster, &["jobs", "-n", "cron"])
        .iter()
        .map(|job| text(job, "/metadata/name").to_owned())
        .collect()
}

impl Day {
    fn kubectl(&self, args: &[&str]) -> Printed {
        self.cluster.kubectl(args)
    }

    /// Waits until exactly what ran before runs.
    #[track_caller]
    fn is_as_before(&self, what: &str) {
        let mut now = BTreeMap::new();
        let same = wait_slowly(|| {
            now = census(&self.cluster);
            now == self.before
        });
        let differs = |side: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>| -> Vec<String> {
            side.iter()
                .filter(|(key, count)| other.get(*key) != Some(count))
                .map(|(key, count)| format!("{key}: {count}"))
                .collect()
        };
        assert!(
            same,
            "{what}: before {:#?}\nnow {:#?}\n{}",
            differs(&self.before, &now),
            differs(&now, &self.before),
            self.kubectl(&["get", "events", "-A", "--field-selector", "type=Warning"])
                .out
        );
    }
}

#[test]
fn what_ran_before_comes_back_after_deletion_scaling_rollback_and_drain() {
    let Some(day) = day() else { return };
    assert!(day.before.len() > 30, "{:#?}", day.before);
    let on_windows = day.before.keys().filter(|key| key.contains("@win-")).count();
    assert!(on_windows > 20, "{:#?}", day.before);
    let _ = writeln!(
        std::io::stderr(),
        "first day: {} pods of {} workloads ran before",
        day.before.values().sum::<usize>(),
        day.before
            .keys()
            .map(|key| key.split('@').next())
            .collect::<BTreeSet<_>>()
            .len()
    );

    let names = |pods: Vec<Value>| -> BTreeSet<String> {
        pods.iter()
            .map(|pod| text(pod, "/metadata/uid").to_owned())
            .collect()
    };
    let old = names(pods(&day.cluster));
    for namespace in LIVED_IN {
        day.kubectl(&["delete", "pods", "--all", "-n", namespace, "--wait=false"])
            .succeeded();
    }
    let all_new = || {
        let new = pods(&day.cluster);
        new.iter()
            .filter(|pod| LIVED_IN.contains(&text(pod, "/metadata/namespace")))
            .all(|pod| !old.contains(text(pod, "/metadata/uid")))
    };
    assert!(wait_slowly(all_new), "every pod is deleted once");
    day.is_as_before("every pod was deleted once");
    where_they_belong(day);

    scale(day, 1);
    scale(day, -1);
    day.is_as_before("scaled up and down");

    for namespace in LIVED_IN {
        let kinds = ["deployments", "statefulsets", "daemonsets"];
        for object in list(&day.cluster, &["-n", namespace, &kinds.join(",")]) {
            let kind = text(&object, "/kind").to_lowercase();
            let name = format!("{kind}/{}", text(&object, "/metadata/name"));
            day.kubectl(&["rollout", "undo", "-n", namespace, &name])
                .succeeded();
        }
        settles(&day.cluster, namespace, "rolled back");
    }
    day.is_as_before("rolled back");
    let of_second = |pod: &&Value| pod["spec"]["containers"].to_string().contains("REVISION");
    assert_eq!(
        pods(&day.cluster).iter().filter(of_second).count(),
        0,
        "the first revision runs everywhere"
    );

    for node in ["win-2019-a", "win-2022-a", "linux-a"] {
        let drain = [
            "drain",
            node,
            "--ignore-daemonsets",
            // Bare pods of the tests beside this one.
            "--force",
            "--delete-emptydir-data",
            "--timeout=80s",
        ];
        day.kubectl(&drain).succeeded();
        day.is_as_before(&format!("{node} was drained"));
        let left = pods(&day.cluster);
        let left = left.iter().filter(|pod| {
            text(pod, "/spec/nodeName") == node
                && pod["status"]["phase"] == "Running"
                && text(pod, "/metadata/ownerReferences/0/kind") != "DaemonSet"
        });
        assert_eq!(left.count(), 0, "{node} is empty");
        day.kubectl(&["uncordon", node]).succeeded();
    }
    where_they_belong(day);

    let ticked = || jobs(&day.cluster).difference(&day.jobs).count() > 0;
    assert!(wait_slowly(ticked), "the CronJob makes Jobs");
    let jobs_after = jobs(&day.cluster);
    let new = jobs_after.difference(&day.jobs).next().unwrap();
    let complete = format!("job/{new}");
    day.kubectl(&[
        "wait",
        "-n",
        "cron",
        "--for=condition=Complete",
        &complete,
        "--timeout=60s",
    ])
    .succeeded();

    let failed = day.kubectl(&[
        "get",
        "events",
        "-A",
        "--field-selector",
        "reason=FailedCreate",
        "-o",
        "json",
    ]);
    let failed = failed.succeeded().objects();
    // Old kinds of Events are about what happened before, too: nothing may have failed then either.
    assert_eq!(failed, Vec::<Value>::new(), "no controller was ever denied");
    every_controller_was_known(day);
}

/// Each controller asked as an account of its own, and none was taken for an author.
fn every_controller_was_known(day: &Day) {
    let events = day.cluster.audit_events();
    let made: BTreeSet<&str> = (events.iter())
        .filter(|event| event["verb"] == "create")
        .filter_map(|event| text(event, "/user/username").strip_prefix("system:serviceaccount:kube-system:"))
        .collect();
    for account in [
        "replicaset-controller",
        "statefulset-controller",
        "daemon-set-controller",
        "job-controller",
        "cronjob-controller",
        "replication-controller",
        "deployment-controller",
    ] {
        assert!(made.contains(account), "{account} is not among {made:?}");
    }
    let log = std::fs::read_to_string(day.cluster.path("transom.log")).unwrap();
    let taken: Vec<&str> = (log.lines())
        .filter(|line| line.contains("owner_trusted") && line.contains("-controller"))
        .collect();
    assert_eq!(taken, Vec::<&str>::new());
}

/// Adds to the replicas of everything that has some, and waits until as many run.
fn scale(day: &Day, by: i64) {
    let kinds = "deployments,statefulsets,replicationcontrollers";
    for object in list(&day.cluster, &["-n", "shop", kinds]) {
        let name = format!(
            "{}/{}",
            text(&object, "/kind").to_lowercase(),
            text(&object, "/metadata/name")
        );
        let replicas = object["spec"]["replicas"].as_i64().unwrap() + by;
        let replicas = format!("--replicas={replicas}");
        let printed = day
            .kubectl(&["scale", "-n", "shop", &name, &replicas])
            .succeeded();
        // The API server has something to say of a deprecated label; Transom has nothing.
        assert!(
            !printed.err.contains("transom"),
            "{name}: scaling gives no warning: {}",
            printed.err
        );
    }
    settles(&day.cluster, "shop", "scaled");
}

/// With Transom, every pod whose image says a build is on a node that runs it, and says Windows where it can.
#[track_caller]
fn where_they_belong(day: &Day) {
    for pod in pods(&day.cluster) {
        if text(&pod, "/metadata/namespace") != "shop" || pod["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        let (app, node) = (text(&pod, "/metadata/labels/app"), text(&pod, "/spec/nodeName"));
        let belongs = match app {
            "chart" => "win-2019-",
            "beta" | "says-windows" | "db" => "win-2022-",
            "old" | "win-agent" => "win-",
            "linux" => "linux-",
            _ => "",
        };
        assert!(node.starts_with(belongs), "{app} is on {node}: {pod}");
        let reported = text(&pod, "/spec/os/name");
        assert_eq!(
            reported,
            if app == "says-windows" { "windows" } else { "" },
            "{app}: {pod}"
        );
    }
}

#[test]
fn a_bad_deployment_fails_at_apply_with_all_findings_and_a_good_one_is_stored_as_written() {
    let Some(day) = day() else { return };
    day.cluster.create_namespace("new", &[]);
    // Nothing but its image says Windows, or a nodeSelector too; it is the same entry that is called.
    let selects = BAD_DEPLOYMENT.replace(
        "      containers:",
        "      nodeSelector: {kubernetes.io/os: windows}\n      containers:",
    );
    for manifest in [BAD_DEPLOYMENT, &selects] {
        let printed = day
            .cluster
            .kubectl_with(&["apply", "-n", "new", "-f", "-"], manifest);
        assert!(!printed.ok);
        let lines: Vec<&str> = printed.err.lines().collect();
        let head = "admission webhook \"validate.transom.dev\" denied the request: 4 problems with Deployment new/web for \
                    Windows:";
        assert!(lines[0].ends_with(head), "{}", printed.err);
        let ends: Vec<&str> = lines[1..5]
            .iter()
            .filter_map(|line| line.split(" [").last())
            .collect();
        assert_eq!(
            ends,
            [
                "TSM209 fs-group]",
                "TSM204 run-as-user]",
                "TSM203 seccomp-profile]",
                "TSM212 capabilities]"
            ],
            "{}",
            printed.err
        );
    }
    let nothing = ["get", "-n", "new", "deployments,replicasets,pods", "-o", "name"];
    assert_eq!(day.kubectl(&nothing).succeeded().out, "");

    // What the API server defaults is the same with and without a webhook; a namespace that opted out has none.
    day.cluster
        .create_namespace("opted-out", &[("transom.dev/ignore", "true")]);
    let [called, ignored] = ["new", "opted-out"].map(|namespace| {
        let printed = day
            .cluster
            .kubectl_with(&["apply", "-n", namespace, "-f", "-"], GOOD_DEPLOYMENT)
            .succeeded();
        assert_eq!(
            (printed.out.as_str(), printed.err.as_str()),
            ("deployment.apps/web created\n", "")
        );
        list(&day.cluster, &["-n", namespace, "deployment/web"]).remove(0)
    });
    assert_eq!(called["spec"], ignored["spec"]);
    settles(&day.cluster, "new", "a good Deployment runs");

    // The second apply of the same changes nothing, and the bad one is refused where the good one stands.
    let again = day
        .cluster
        .kubectl_with(&["apply", "-n", "new", "-f", "-"], GOOD_DEPLOYMENT);
    assert_eq!(again.succeeded().out, "deployment.apps/web unchanged\n");
    let worse = day
        .cluster
        .kubectl_with(&["apply", "-n", "new", "-f", "-"], BAD_DEPLOYMENT);
    assert!(
        !worse.ok && worse.err.contains("denied the request: 4 problems"),
        "{worse:?}"
    );
    // A namespace that opted out is its owner's business.
    day.cluster
        .kubectl_with(&["apply", "-n", "opted-out", "-f", "-"], BAD_DEPLOYMENT)
        .succeeded();
}

#[test]
fn what_was_bad_before_is_scaled_changed_fixed_and_deleted_and_comes_back_bad_only_by_hand() {
    let Some(day) = day() else { return };
    let kubectl = |args: &[&str]| day.kubectl(&[&["-n", BEFORE], args].concat());
    for silent in [
        &["label", "pod/bad", "a=b"][..],
        &["scale", "deployment/bad", "--replicas=3"],
        &["annotate", "deployment/bad", "a=b"],
    ] {
        let printed = kubectl(silent).succeeded();
        assert_eq!(printed.err, "", "{silent:?}");
    }
    settles(&day.cluster, BEFORE, "scaled");
    let restart = kubectl(&["rollout", "restart", "deployment/bad"]).succeeded();
    assert!(
        restart.err.contains("Warning: transom: "),
        "what was there before is warned of: {restart:?}"
    );
    settles(&day.cluster, BEFORE, "restarted");

    let worse = r#"{"spec": {"template": {"spec": {"hostPID": true}}}}"#;
    let denied = kubectl(&["patch", "deployment/bad", "-p", worse]);
    assert!(
        !denied.ok && denied.err.contains("[TSM401 host-pid]"),
        "{denied:?}"
    );
    let better = r#"{"spec": {"template": {"spec": {"securityContext": null}}}}"#;
    let fixed = kubectl(&["patch", "deployment/bad", "-p", better]).succeeded();
    assert_eq!(fixed.err, "");
    settles(&day.cluster, BEFORE, "fixed");
    let reported = list(&day.cluster, &["-n", BEFORE, "pods", "-l", "app=bad"]);
    let running = reported
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    for pod in running {
        assert_eq!(
            pod["spec"]["os"]["name"], "windows",
            "nothing stands in the way any more: {pod}"
        );
    }

    // Back from good to bad is a change that a person makes, and is told of; what runs goes on.
    let back = kubectl(&["rollout", "undo", "deployment/bad"]);
    assert!(
        !back.ok && back.err.contains("2 problems") && back.err.contains("[TSM209 fs-group]"),
        "{back:?}"
    );
    settles(&day.cluster, BEFORE, "after the refusal");

    for object in ["pod/held", "deployment/bad"] {
        kubectl(&["delete", object, "--wait=false"]).succeeded();
        let free = kubectl(&["patch", object, "-p", r#"{"metadata": {"finalizers": null}}"#]).succeeded();
        assert_eq!(free.err, "", "{object}");
    }
    kubectl(&["delete", "pod/bad"]).succeeded();
    let gone = || {
        let left = kubectl(&[
            "get",
            "pod/held",
            "pod/bad",
            "deployment/bad",
            "--ignore-not-found",
            "-o",
            "name",
        ]);
        left.succeeded().out.is_empty()
    };
    assert!(wait_slowly(gone), "{}", kubectl(&["get", "all"]).out);
}

#[test]
fn a_dry_run_shows_what_would_be_and_changes_nothing() {
    let Some(day) = day() else { return };
    day.cluster.create_namespace("dry", &[]);
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  containers: [{name: web, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]
";
    let dry = ["apply", "-n", "dry", "--dry-run=server", "-o", "json", "-f", "-"];
    let configurations = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "wpp",
        "wnp",
        "runtimeclasses",
    ];
    let versions = || -> Vec<String> {
        list(&day.cluster, &[&configurations.join(",")])
            .iter()
            .map(|object| {
                format!(
                    "{} {}",
                    text(object, "/metadata/name"),
                    text(object, "/metadata/resourceVersion")
                )
            })
            .collect()
    };
    // Their statuses count namespaces, which the tests beside this one make.
    let before: Vec<String> = versions()
        .into_iter()
        .filter(|line| !line.starts_with("looking") && !line.starts_with("default"))
        .collect();
    let shown = day.cluster.kubectl_with(&dry, pod).succeeded().object();
    assert_eq!(shown["spec"]["os"]["name"], "windows");
    let required =
        &shown["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert!(required.to_string().contains("10.0.20348"), "{shown}");
    let printed = day.cluster.kubectl_with(&dry, GOOD_DEPLOYMENT).succeeded();
    assert_eq!(printed.err, "");
    let denied = day.cluster.kubectl_with(&dry, BAD_DEPLOYMENT);
    assert!(
        !denied.ok && denied.err.contains("denied the request: 4 problems"),
        "{denied:?}"
    );
    let left = day.kubectl(&[
        "get",
        "-n",
        "dry",
        "pods,deployments,replicasets,events",
        "-o",
        "name",
    ]);
    assert_eq!(left.succeeded().out, "");
    let after: Vec<String> = versions()
        .into_iter()
        .filter(|line| !line.starts_with("looking") && !line.starts_with("default"))
        .collect();
    assert_eq!(before, after);

    // Applied in earnest, it is stored just as it was shown.
    let args = ["apply", "-n", "dry", "-o", "json", "-f", "-"];
    let stored = day.cluster.kubectl_with(&args, pod).succeeded().object();
    assert_eq!(stored["spec"], shown["spec"]);
}

#[test]
fn a_policy_that_only_looks_changes_and_denies_nothing_and_the_audit_log_reports() {
    let Some(day) = day() else { return };
    day.cluster
        .create_namespace("looked-at", &[("only", "looked-at")]);
    day.cluster
        .create_namespace("not-looked-at", &[("transom.dev/ignore", "true")]);
    let bad = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
        "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
    }});
    let both = format!("{bad}\n---\n{BAD_DEPLOYMENT}");
    let stored = ["looked-at", "not-looked-at"].map(|namespace| {
        let create = ["create", "-n", namespace, "-o", "json", "-f", "-"];
        let printed = day.cluster.kubectl_with(&create, &both).succeeded();
        assert_eq!(printed.err, "", "there is no warning");
        printed.objects()
    });
    for (reviewed_kind, bare) in stored[0].iter().zip(&stored[1]) {
        assert_eq!(reviewed_kind["spec"], bare["spec"]);
    }
    let of_pod = day.cluster.audited("looked-at", "bad");
    let value = |key: &str| of_pod.get(key).map_or("", String::as_str);
    for (webhook, decision) in [("mutate", "allow"), ("validate", "would-deny")] {
        assert_eq!(
            value(&format!("{webhook}.transom.dev/decision")),
            decision,
            "{of_pod:#?}"
        );
        assert_eq!(value(&format!("{webhook}.transom.dev/policy")), "looking");
    }
    assert_eq!(value("validate.transom.dev/would-deny"), "host-pid");
    let patch: Value = serde_json::from_str(value("mutate.transom.dev/would-patch")).unwrap();
    let selects = |operation: &Value| operation["path"] == "/spec/affinity";
    assert!(patch.as_array().unwrap().iter().any(selects), "{patch}");
    let of_workload = day.cluster.audited("looked-at", "web");
    let would_deny = &of_workload["validate.transom.dev/would-deny"];
    for rule in ["fs-group", "run-as-user"] {
        assert!(would_deny.contains(rule), "{would_deny}");
    }
    assert_eq!(
        day.cluster
            .audited("not-looked-at", "bad")
            .keys()
            .filter(|key| key.contains("transom"))
            .count(),
        0
    );
}
