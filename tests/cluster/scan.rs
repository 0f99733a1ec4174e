//! `transom scan` on a real control plane, with the controllers of Deployments and the scheduler. Without the programs of
//! envtest, and these two beside them, this says so and proves nothing.
#![cfg(unix)]

use crate::support::command::{CommandRun, assert_valid_reports, assert_valid_sarif, transom};
use crate::support::install;
use crate::support::kubelet;
use crate::support::objects::{in_namespace, workload};
use std::path::Path;
use std::time::Duration;

use crate::support::control_plane::{ControlPlane, programs_of_a_whole_control_plane, wait};
use serde_json::{Value, json};

const POLICY: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec:
  mode: Audit
  exemptions:
  - {name: agent, rules: [host-pid], namespaces: [exempt], expiresOn: 2999-12-31, owner: platform, reason: until the agent is rebuilt}
";

fn scan(cluster: &ControlPlane, user: &str, args: &[&str]) -> CommandRun {
    let kubeconfig = cluster.path(&format!("{user}.kubeconfig"));
    let connection = ["scan", "--kubeconfig", kubeconfig.to_str().unwrap()];
    transom(Path::new("."), &[&connection, args].concat())
}

#[allow(clippy::needless_pass_by_value)] // made for it where it is called
fn deployment(namespace: &str, name: &str, more: Value) -> Value {
    let mut spec = json!({
        "hostPID": true, "nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "web", "image": "web:1"}],
    });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    in_namespace(namespace, workload("Deployment", name, &spec, 1))
}

fn objects() -> Vec<Value> {
    let stray = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "namespace": "shop"},
        "spec": {
            "nodeName": "lin", "nodeSelector": {"kubernetes.io/os": "windows"},
            "containers": [{"name": "web", "image": "web:1"}],
        },
    });
    let mut of_rollout = deployment("shop", "canary-1", json!({}));
    of_rollout["kind"] = json!("ReplicaSet");
    of_rollout["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "canary", "uid": "1", "controller": true,
    }]);
    vec![
        deployment("shop", "web", json!({})),
        deployment("shop", "web-too", json!({})),
        deployment(
            "shop",
            "old",
            json!({"nodeSelector":
            {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"}}),
        ),
        deployment(
            "shop",
            "lin",
            json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
        ),
        deployment("ignored", "web", json!({})),
        deployment("exempt", "web", json!({})),
        of_rollout,
        stray,
        // Nothing enforces the policy for Windows pods.
        in_namespace(
            "kube-system",
            workload(
                "DaemonSet",
                "cilium",
                &json!({"nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{"name": "agent", "image": "agent:1"}]}),
                1,
            ),
        ),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "deny-all", "namespace": "shop"}, "spec": {"podSelector": {}}}),
    ]
}

/// A kubeconfig by which the administrator asks as another user.
fn become_user(cluster: &ControlPlane, user: &str) {
    let admin = std::fs::read_to_string(cluster.path("admin.kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_str(&admin).unwrap();
    config["users"][0]["user"]["as"] = json!(user);
    std::fs::write(cluster.path(&format!("{user}.kubeconfig")), config.to_string()).unwrap();
}

fn prepare(cluster: &ControlPlane) {
    cluster.start_controllers().unwrap();
    cluster.start_scheduler().unwrap();
    kubelet::join(cluster, "win", "10.0.20348");
    kubelet::join(cluster, "lin", "");
    cluster
        .kubectl(&["taint", "node", "win", "os=windows:NoSchedule"])
        .succeeded();
    install::prepare(cluster, POLICY);
    for namespace in ["shop", "ignored", "exempt"] {
        cluster.create_namespace(namespace, &[]);
    }
    cluster
        .kubectl(&["label", "namespace", "ignored", "transom.dev/ignore=true"])
        .succeeded();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects()});
    cluster
        .kubectl_with(&["create", "-f", "-"], &list.to_string())
        .succeeded();
}

fn owner<'r>(report: &'r Value, namespace: &str, name: &str) -> &'r Value {
    let owners = report["owners"].as_array().unwrap();
    let found = owners
        .iter()
        .find(|owner| owner["namespace"] == namespace && owner["name"] == name);
    found.unwrap_or_else(|| panic!("no {namespace}/{name} in {owners:#?}"))
}

fn fates(owner: &Value) -> Vec<String> {
    let findings = owner["findings"].as_array().unwrap().iter();
    let fates = findings.map(|found| {
        let text = |field: &str| found[field].as_str().unwrap().to_owned();
        format!("{} {}", text("rule"), text("outcome"))
    });
    fates.collect()
}

fn gaps(report: &Value) -> Vec<String> {
    let gaps = report["gaps"].as_array().unwrap().iter();
    gaps.map(|gap| gap["resource"].as_str().unwrap().to_owned())
        .collect()
}

/// The pods in trouble, without what their controllers add to their names.
fn troubles(report: &Value) -> Vec<String> {
    let pods = report["pods"].as_array().unwrap().iter();
    let pods = pods.map(|pod| {
        let owner = pod["owner"].as_str().unwrap_or("alone");
        format!("{owner}: {}", pod["problem"].as_str().unwrap())
    });
    let mut pods: Vec<String> = pods.collect();
    pods.sort();
    pods
}

#[test]
fn a_scan_reports_what_would_become_of_what_is_stored() {
    let Some(programs) = programs_of_a_whole_control_plane("tests/cluster/scan.rs") else {
        return;
    };
    let cluster = ControlPlane::start(programs).unwrap();
    prepare(&cluster);

    the_scheduler_s_refusals_are_explained(&cluster);
    let before = scan(&cluster, "admin", &["-o", "json"]);
    assert_eq!(before.json()["cluster"]["hasWebhooks"], false);
    assert!(fates(owner(&before.json(), "shop", "web")).contains(&"host-pid audited".to_owned()));

    install::register(&cluster, 1, &[]);
    the_stored_policy_counts_until_another_is_named(&cluster);
    reports_are_for_people_and_for_machines(&cluster);
    missing_rights_are_reported_and_the_rest_is_evaluated(&cluster);
    a_later_scan_shows_what_changed(&cluster);
    a_linux_pod_on_a_windows_node_is_no_windows_workload(&cluster);
}

fn the_scheduler_s_refusals_are_explained(cluster: &ControlPlane) {
    let expected = [
        "Deployment old: waits-for-build",
        "Deployment web-too: waits-for-toleration",
        "Deployment web: waits-for-toleration",
        "Deployment web: waits-for-toleration",
        "Deployment web: waits-for-toleration",
        "Rollout canary: waits-for-toleration",
        "alone: operating-system",
    ];
    let mut last = Vec::new();
    let all = wait(Duration::from_secs(20), || {
        last = troubles(&scan(cluster, "admin", &["-o", "json"]).json());
        last == expected
    });
    assert!(all, "{last:#?}");
}

fn the_stored_policy_counts_until_another_is_named(cluster: &ControlPlane) {
    let stored = scan(cluster, "admin", &["-o", "json"]);
    assert_eq!(stored.status, 0, "{}", stored.err);
    let report = stored.json();
    assert_eq!(report["cluster"]["policies"], json!(["default"]));
    assert_eq!(
        (&report["summary"]["denied"], &report["summary"]["unreadable"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(gaps(&report), Vec::<String>::new());
    assert!(fates(owner(&report, "shop", "web")).contains(&"host-pid audited".to_owned()));
    assert_eq!(owner(&report, "ignored", "web")["decision"], "skip");
    assert_eq!(
        fates(owner(&report, "exempt", "web")).last().unwrap(),
        "host-pid exempted"
    );
    assert_eq!(owner(&report, "shop", "canary-1")["owner"]["kind"], "Rollout");
    assert_eq!(
        fates(owner(&report, "shop", "deny-all")),
        ["network-policy-not-enforced reported"]
    );
    assert_eq!(scan(cluster, "admin", &["--fail-on", "would-deny"]).status, 1);
    let later = scan(cluster, "admin", &["-o", "json", "--today", "3000-01-01"]).json();
    assert_eq!(later["today"], "3000-01-01");
    let expired = fates(owner(&later, "exempt", "web"));
    assert!(expired.contains(&"host-pid audited".to_owned()), "{expired:?}");

    let denying = ["-o", "json", "--assume", "mode=Enforce"];
    let denied = scan(cluster, "admin", &denying);
    assert_eq!(denied.status, 1);
    let report = denied.json();
    assert_valid_reports("scan", &[&stored.json(), &report]);
    assert_eq!(report["assumed"], json!(["mode=Enforce"]));
    // web, web-too and old of shop; what its Rollout made.
    assert_eq!(report["summary"]["denied"], 4);
    assert_eq!(owner(&report, "ignored", "web")["decision"], "skip");
    assert_ne!(owner(&report, "exempt", "web")["decision"], "deny");
    let never = [&denying[..], &["--fail-on", "never"]].concat();
    assert_eq!(scan(cluster, "admin", &never).status, 0);
    let by_file = cluster.path("policy.yaml");
    std::fs::write(&by_file, POLICY.replace("Audit", "Enforce")).unwrap();
    let by_file = scan(cluster, "admin", &["--policy", by_file.to_str().unwrap()]);
    assert_eq!(by_file.status, 1, "{}", by_file.err);

    let bad = scan(cluster, "admin", &["--assume", "mode=Enforced"]);
    assert_eq!(bad.status, 2);
    assert!(
        bad.err
            .contains("write one of Audit, Warn, Enforce; did you mean Enforce?"),
        "{}",
        bad.err
    );
}

fn reports_are_for_people_and_for_machines(cluster: &ControlPlane) {
    let text = scan(cluster, "admin", &["--assume", "mode=Enforce"]).out;
    for part in [
        "(Kubernetes 1.36): ",
        "evaluated as if every policy had mode=Enforce",
        "namespace ignored: admission is not called: the label transom.dev/ignore excludes the namespace ignored",
        "host-pid] (denied): ",
        " more like it: Deployment web",
        "Deployment old would be denied",
        "  shop/stray",
        "a Windows pod on lin, which is not a Windows node",
        "10.0.20348   Windows Server 2022",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let file = cluster.path("report.sarif");
    let output = format!("sarif={}", file.display());
    assert_eq!(scan(cluster, "admin", &["-o", &output]).out, "");
    let log: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_valid_sarif(&log);
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(
        results
            .iter()
            .any(|result| result["ruleId"] == "pod-operating-system"),
        "{results:#?}"
    );
    let file = cluster.path("report.html");
    let output = format!("html={}", file.display());
    let args = ["-o", &output, "-o", "text", "--plan-to", "ltsc2025"];
    assert!(scan(cluster, "admin", &args).out.contains("(Kubernetes 1.36): "));
    let page = std::fs::read_to_string(file).unwrap();
    for part in ["Upgrade plan: to <bdi>", "10.0.26100", "stray", "host-pid"] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
    let refused = scan(cluster, "admin", &["--plan-to", "ltsc2025"]);
    assert!(refused.err.contains("add -o html=FILE"), "{refused:?}");
}

fn missing_rights_are_reported_and_the_rest_is_evaluated(cluster: &ControlPlane) {
    const KINDS: &str = "pods,podtemplates,replicationcontrollers,deployments.apps,replicasets.apps,statefulsets.apps,\
                         daemonsets.apps,jobs.batch";
    let resources = format!("--resource={KINDS}");
    let role = [
        "create",
        "role",
        "reader",
        "-n",
        "shop",
        "--verb=list",
        &resources,
    ];
    cluster.kubectl(&role).succeeded();
    let bind = [
        "create",
        "rolebinding",
        "reader",
        "-n",
        "shop",
        "--role=reader",
        "--user=reader",
    ];
    cluster.kubectl(&bind).succeeded();
    become_user(cluster, "reader");
    let run = scan(cluster, "reader", &["--namespace", "shop", "-o", "json"]);
    assert_eq!(run.status, 2, "{}", run.err);
    let report = run.json();
    let gaps_of = gaps(&report);
    for gap in [
        "nodes",
        "namespaces",
        "windowspodpolicies",
        "cronjobs of the namespace shop",
    ] {
        assert!(gaps_of.contains(&gap.to_owned()), "{gaps_of:?}");
    }
    assert!(fates(owner(&report, "shop", "web")).contains(&"host-pid audited".to_owned()));
    assert_eq!(report["pods"], json!([]), "nodes are not known");
    let everywhere = scan(cluster, "reader", &["-o", "json"]).json();
    assert!(gaps(&everywhere).contains(&"every object that carries a pod".to_owned()));
    let message = scan(cluster, "reader", &[]).out;
    assert!(
        message.contains("no object could be read, see below"),
        "{message}"
    );
    let by_file = cluster.path("policy.yaml");
    let of_file = ["--policy", by_file.to_str().unwrap(), "-n", "shop", "-o", "json"];
    let of_file = gaps(&scan(cluster, "reader", &of_file).json());
    assert!(!of_file.contains(&"windowspodpolicies".to_owned()), "{of_file:?}");

    // The rights that the page names are all that it takes.
    let page = include_str!("../../docs/reference/rights.md");
    let role = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next())
        .find(|block| block.contains("name: transom-scan\n"))
        .unwrap();
    cluster.kubectl_with(&["apply", "-f", "-"], role).succeeded();
    let bind = [
        "create",
        "clusterrolebinding",
        "auditor",
        "--clusterrole=transom-scan",
        "--user=auditor",
    ];
    cluster.kubectl(&bind).succeeded();
    become_user(cluster, "auditor");
    let run = scan(cluster, "auditor", &["-o", "json"]);
    assert_eq!((run.status, gaps(&run.json())), (0, Vec::new()), "{}", run.err);
}

fn a_later_scan_shows_what_changed(cluster: &ControlPlane) {
    let file = |name: &str| cluster.path(name).display().to_string();
    let (earlier, later) = (file("earlier.json"), file("later.json"));
    let scan = |args: &[&str]| scan(cluster, "admin", &[&["--assume", "mode=Enforce"], args].concat());
    assert_eq!(scan(&["-o", &format!("json={earlier}")]).status, 1);
    cluster
        .kubectl(&["delete", "deployment", "-n", "shop", "old"])
        .succeeded();
    let containers = json!([{"name": "sidecar", "image": "a"}, {"name": "app", "image": "a", "securityContext": {"runAsUser": 1000}}]);
    let fresh = deployment("shop", "fresh", json!({"containers": containers}));
    cluster
        .kubectl_with(&["create", "-f", "-"], &fresh.to_string())
        .succeeded();
    let run = scan(&["--since", &earlier]);
    assert_eq!(run.status, 1, "{}", run.err);
    for part in [
        "object not listed before, 1 object no longer listed",
        "\nnew\n",
        "  Deployment shop/fresh, which was not listed\n",
        "host-pid] (denied): ",
        "= field: spec.template.spec.containers[app].securityContext.runAsUser\n",
        "\ngone\n",
        "  Deployment shop/old, which is no longer listed\n",
    ] {
        assert!(run.out.contains(part), "{part}: {}", run.out);
    }
    assert!(!run.out.contains("web-too"), "{}", run.out);
    let whole = scan(&["-n", "shop"]).out;
    assert!(
        whole.contains("= field: spec.template.spec.containers[app].securityContext.runAsUser\n"),
        "{whole}"
    );
    let report = scan(&["--since", &earlier, "-o", "json"]).json();
    assert_valid_reports("scan", &[&report]);
    let names = |list: &str| {
        let owners = report["changes"][list]["owners"].as_array().unwrap().iter();
        owners.map(|owner| owner["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names("new"), names("gone")),
        (vec![json!("fresh")], vec![json!("old")])
    );

    // What is known already ends in no failure.
    let mut run = scan(&["--since", &earlier]);
    let is_quiet = wait(Duration::from_secs(30), || {
        assert_eq!(scan(&["-o", &format!("json={later}")]).status, 1);
        run = scan(&["--since", &later]);
        run.out.contains(": nothing changed\n")
    });
    assert!(is_quiet && run.status == 0, "{} {}", run.status, run.out);

    std::fs::write(&earlier, json!({"schema": "transom.dev/scan/v0"}).to_string()).unwrap();
    for (args, part) in [
        (
            ["--since", &*earlier, "-n", "shop"],
            "its schema is \"transom.dev/scan/v0\"",
        ),
        (
            ["--since", &*later, "-n", "shop"],
            "it is of the whole cluster, and this scan is of the objects with namespace=shop; use the same",
        ),
        (["--since", &*later, "-o", "sarif"], "add -o text or -o json"),
    ] {
        let run = scan(&args);
        assert_eq!((run.status, &*run.out), (2, ""));
        assert!(run.err.contains(part), "{}", run.err);
    }
}

fn a_linux_pod_on_a_windows_node_is_no_windows_workload(cluster: &ControlPlane) {
    let windows =
        || scan(cluster, "admin", &["-o", "json", "--fail-on", "never"]).json()["summary"]["windows"].clone();
    let before = windows();
    let lost = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost-redis", "namespace": "shop"},
        "spec": {"nodeName": "win", "tolerations": [{"operator": "Exists"}], "containers": [{"name": "a", "image": "redis:7"}]},
    });
    cluster
        .kubectl_with(&["create", "-f", "-"], &lost.to_string())
        .succeeded();
    assert_eq!(windows(), before);
    let file = cluster.path("lost.html");
    let output = format!("html={}", file.display());
    let text = scan(
        cluster,
        "admin",
        &["-o", &output, "-o", "text", "--advice", "--plan-to", "ltsc2025"],
    )
    .out;
    let page = std::fs::read_to_string(file).unwrap();
    for shown in [&text, &page] {
        let lines = shown.lines().filter(|line| line.contains("lost-redis"));
        assert!(
            !lines
                .clone()
                .any(|line| line.to_lowercase().contains("for windows")),
            "{:?}",
            lines.collect::<Vec<_>>()
        );
    }
    assert!(!page.contains("<bdi>lost-redis</bdi>"), "the page lists it");
}
