//! Reports on what is stored, by two replicas beside a real API server: with either kind of report, with definitions that
//! come and go, and with a leader that dies. Without the programs of envtest this says so and proves nothing.
#![cfg(unix)]

mod forged;

use std::time::Duration;

use crate::support::command::printed;
use crate::support::control_plane::{ControlPlane, wait};
use crate::support::install::{self, Replica};
use crate::support::objects::{in_namespace, workload};
use serde_json::{Value, json};

/// How long anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(60);
const OPEN: &str = "reports.openreports.io";
const OPEN_REPORTS: &str = include_str!("../reports/openreports.yaml");
const OLDER: &str = "policyreports.wgpolicyk8s.io";
const OLDER_REPORTS: &str = include_str!("../reports/wgpolicyk8s.yaml");

/// What is told and nothing denied, so that bad objects can be made.
const POLICIES: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec: {mode: Audit, placement: {mode: Apply}}
";

/// A Deployment of Windows pods, with a user id that Windows does not have or without.
fn windows(name: &str, is_bad: bool) -> Value {
    let mut context = json!({"windowsOptions": {"runAsUserName": "ContainerUser"}});
    if is_bad {
        context["runAsUser"] = json!(1000);
    }
    let resources = json!({"cpu": "1", "memory": "1Gi"});
    let pod = json!({
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.20348"]}]},
        ]}}},
        "securityContext": context,
        "containers": [{"name": "web", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022",
                        "resources": {"requests": resources, "limits": resources}}],
    });
    in_namespace("shop", workload("Deployment", name, &pod, 1))
}

/// A NetworkPolicy for every pod of `shop`, and an engine that does not run on Windows nodes.
fn unenforced() -> String {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "deny-all", "namespace": "shop"}, "spec": {"podSelector": {}}});
    let pod = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "agent", "image": "agent"}]});
    let engine = in_namespace("shop", workload("DaemonSet", "cilium", &pod, 1));
    json!({"apiVersion": "v1", "kind": "List", "items": [policy, engine]}).to_string()
}

fn linux(name: &str) -> Value {
    let pod = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "securityContext": {"runAsUser": 1000},
                     "containers": [{"name": "web", "image": "nginx"}]});
    in_namespace("shop", workload("Deployment", name, &pod, 1))
}

struct Test {
    cluster: ControlPlane,
}

impl Test {
    fn apply(&self, object: &str) {
        self.cluster
            .kubectl_with(
                &["apply", "--server-side", "--force-conflicts", "-f", "-"],
                object,
            )
            .succeeded();
    }

    /// The report on an object, once it is as it should be.
    #[track_caller]
    fn report(&self, resource: &str, owner: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = wait(PATIENCE, || {
            let all = self.reports(resource);
            let of = all.into_iter().find(|it| it["scope"]["name"] == owner);
            last = of.unwrap_or_default();
            !last.is_null() && is_it(&last)
        });
        assert!(found, "{owner}: {last}\n{}", self.logs());
        last
    }

    fn reports(&self, resource: &str) -> Vec<Value> {
        let listed = self.cluster.kubectl(&["get", resource, "-A", "-o", "json"]);
        if !listed.ok {
            return Vec::new();
        }
        let list: Value = serde_json::from_str(&listed.out).unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    #[track_caller]
    fn has_none(&self, resource: &str, owner: &str) {
        let gone = wait(PATIENCE, || {
            let all = self.reports(resource);
            !all.iter().any(|it| it["scope"]["name"] == owner)
        });
        assert!(gone, "{resource} {owner}\n{}", self.logs());
    }

    #[track_caller]
    fn condition(&self, status_and_reason: &str) {
        let path = "-o=jsonpath={.status.conditions[?(@.type=='ReportsWritten')]['status','reason']}";
        let message = || self.cluster.kubectl(&["get", "wpp", "default", path]).out;
        assert!(
            wait(PATIENCE, || message() == status_and_reason),
            "{}, not {status_and_reason}\n{}",
            message(),
            self.logs()
        );
    }

    fn define(&self, name: &str, definition: &str) {
        self.apply(definition);
        let name = format!("crd/{name}");
        self.cluster
            .kubectl(&["wait", "--for=condition=Established", &name, "--timeout=30s"])
            .succeeded();
    }

    fn undefine(&self, name: &str) {
        self.cluster
            .kubectl(&["delete", "crd", name, "--timeout=30s"])
            .succeeded();
    }

    fn logs(&self) -> String {
        format!(
            "{}\n{}",
            self.cluster.end_of_log("one"),
            self.cluster.end_of_log("two")
        )
    }
}

#[test]
#[allow(clippy::too_many_lines)] // one story on one cluster
fn what_is_stored_is_evaluated_as_it_changes_and_reported_while_definitions_and_leaders_come_and_go() {
    let Some(cluster) = ControlPlane::start_or_skip("tests/cluster/reports.rs") else {
        return;
    };
    let test = Test { cluster };
    let cluster = &test.cluster;
    install::prepare(cluster, POLICIES);
    cluster.create_namespace("shop", &[]);
    test.apply(&windows("stored", true).to_string());
    test.apply(&linux("linux").to_string());
    test.define(OPEN, OPEN_REPORTS);
    let one = Replica::start(cluster, "one", &["--reports"]);
    install::register(cluster, one.port, &[]);
    one.is_ready(cluster);
    let is_leader = |replica: &Replica| {
        let metrics = replica.get("/metrics").map(|(_, text)| text).unwrap_or_default();
        metrics.lines().any(|line| line == "transom_leader 1")
    };
    assert!(wait(PATIENCE, || is_leader(&one)), "{}", test.logs());
    let two = Replica::start(cluster, "two", &["--reports"]);

    // What was there before.
    let stored = test.report(OPEN, "stored", |_| true);
    let refused = refusing(&stored);
    assert_eq!(refused["policy"], "default");
    assert_eq!(
        (&refused["result"], &refused["severity"]),
        (&json!("fail"), &json!("high"))
    );
    assert_eq!(refused["category"], "Security context");
    let properties = &refused["properties"];
    assert_eq!(
        properties["field"],
        "spec.template.spec.securityContext.runAsUser"
    );
    assert_eq!(
        properties["outcome"]
            .as_str()
            .map(|it| it.split(" (").next().unwrap()),
        Some("recorded in the audit log; would be denied with validation.action: Deny")
    );
    let owner = &stored["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("Deployment"), &json!("stored"))
    );
    test.condition("True Written");

    // What changes meanwhile, and what is fixed.
    test.apply(&windows("later", true).to_string());
    test.report(OPEN, "later", |_| true);
    the_event_and_the_metrics(&test, &one, &two);
    test.apply(&windows("later", false).to_string());
    test.has_none(OPEN, "later");
    assert!(!test.reports(OPEN).iter().any(|it| it["scope"]["name"] == "linux"));

    // A NetworkPolicy, while its engine does not run on Windows nodes.
    test.apply(&unenforced());
    let policy = test.report(OPEN, "deny-all", |_| true);
    let result = &policy["results"][0];
    assert_eq!(result["rule"], "network-policy-not-enforced");
    assert!(
        result["message"].as_str().unwrap().contains("Deployment stored"),
        "{result}"
    );
    cluster
        .kubectl(&["-n", "shop", "delete", "daemonset", "cilium"])
        .succeeded();
    test.has_none(OPEN, "deny-all");

    // A policy that says more.
    let deny = json!({"spec": {"mode": "Enforce"}}).to_string();
    cluster
        .kubectl(&["patch", "wpp", "default", "--type=merge", "-p", &deny])
        .succeeded();
    let denied = |report: &Value| {
        let outcome = refusing(report)["properties"]["outcome"].clone();
        outcome
            .as_str()
            .is_some_and(|it| it.starts_with("denied at its next create"))
    };
    test.report(OPEN, "stored", denied);

    // Definitions that come and go.
    test.undefine(OPEN);
    test.condition("False ReportAPIMissing");
    test.define(OLDER, OLDER_REPORTS);
    let older = test.report(OLDER, "stored", denied);
    assert_eq!(older["results"][0]["source"], "transom");
    test.condition("True Written");
    test.define(OPEN, OPEN_REPORTS);
    let before = test.report(OPEN, "stored", denied);
    test.has_none(OLDER, "stored");

    // Another leader finds what the one before has written, and writes nothing anew.
    two.is_ready(cluster);
    install::register(cluster, two.port, &[]);
    cluster.end("one", "KILL");
    assert!(wait(PATIENCE, || is_leader(&two)), "{}", test.logs());
    cluster
        .kubectl(&["-n", "shop", "delete", "deployment", "linux"])
        .succeeded();
    let shown = |metric: &str| {
        two.get("/metrics")
            .is_some_and(|(_, text)| text.lines().any(|line| line.starts_with(metric)))
    };
    assert!(
        wait(PATIENCE, || shown(
            "transom_stored_findings{resource_namespace=\"shop\""
        )),
        "{}",
        test.logs()
    );
    let after = test.report(OPEN, "stored", denied);
    assert_eq!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    // Another hand takes it away.
    let name = after["metadata"]["name"].as_str().unwrap();
    cluster.kubectl(&["-n", "shop", "delete", OPEN, name]).succeeded();
    test.report(OPEN, "stored", |report| {
        report["metadata"]["uid"] != after["metadata"]["uid"]
    });

    // And all of it goes.
    cluster.end("two", "TERM");
    let kubeconfig = cluster.path("admin.kubeconfig").display().to_string();
    let message = printed(&[
        "uninstall",
        "--yes",
        "--kubeconfig",
        &kubeconfig,
        "--transom-namespace",
        "transom-system",
    ]);
    assert!(
        message.contains("1 reports of openreports.io/v1alpha1 deleted"),
        "{message}"
    );
    assert!(test.reports(OPEN).is_empty() && test.reports(OLDER).is_empty());
}

/// The result that would refuse the object.
fn refusing(report: &Value) -> Value {
    let results = report["results"].as_array().cloned().unwrap_or_default();
    let mut of = results.into_iter().filter(|it| it["rule"] == "run-as-user");
    of.next().unwrap_or_default()
}

fn the_event_and_the_metrics(test: &Test, leader: &Replica, other: &Replica) {
    let events = || {
        let path = "-o=jsonpath={range .items[?(@.reason=='WindowsFindings')]}{.involvedObject.name}{' '}{.message}{'\\n'}{end}";
        test.cluster.kubectl(&["-n", "shop", "get", "events", path]).out
    };
    let reported = || {
        let events = events();
        ["stored", "later"].iter().all(|name| {
            let of = events.lines().filter(|line| line.starts_with(name));
            of.filter(|line| line.contains("run-as-user")).count() == 1
        })
    };
    assert!(wait(PATIENCE, reported), "{}\n{}", events(), test.logs());
    let line =
        "transom_stored_findings{resource_namespace=\"shop\",rule=\"run-as-user\",action=\"would-deny\"} 2";
    let shows = |replica: &Replica| {
        let metrics = replica.get("/metrics").map(|(_, text)| text).unwrap_or_default();
        metrics.lines().any(|shown| shown == line)
    };
    assert!(wait(PATIENCE, || shows(leader)), "{line}\n{}", test.logs());
    assert!(!shows(other), "only the leader counts");
}
