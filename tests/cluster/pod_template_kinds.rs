//! Custom resources that describe pods, on a real API server with minimal CustomResourceDefinitions of some of them: denied
//! under Enforce, fixed by hand, admitted. The others are absent, which is neither a failure nor a gap. Without the programs
//! of envtest this says so and proves nothing.
#![cfg(unix)]

use std::time::Duration;

use crate::support::command::{transom, transom_with};
use crate::support::control_plane::{ControlPlane, Printed, programs_or_skip, wait};
use crate::support::install::{self, Replica};
use serde_json::{Value, json};
use transom::engine::evaluate;
use transom::model::cluster::facts::Facts;
use transom::model::cluster::policy::Policy;
use transom::model::objects::object::{Object, ReviewStage};
use transom::model::objects::workload::Kind;
use transom::model::windows::os::Verdict;

const POLICY: &str = "
apiVersion: transom.dev/v1alpha1
kind: WindowsPodPolicy
metadata: {name: default}
spec:
  mode: Enforce
";

/// What administrators state about the cluster.
const FACTS: &str = "podTemplates: [{group: example.com, kind: GameServerSet, path: spec.pod}]\n";

/// Kinds that are only sent in dry runs: group, version, kind and plural.
const MORE: [(&str, &str, &str, &str); 9] = [
    (
        "actions.github.com",
        "v1alpha1",
        "AutoscalingRunnerSet",
        "autoscalingrunnersets",
    ),
    ("agones.dev", "v1", "Fleet", "fleets"),
    ("agones.dev", "v1", "GameServer", "gameservers"),
    ("agones.dev", "v1", "GameServerSet", "gameserversets"),
    ("apps.kruise.io", "v1alpha1", "CloneSet", "clonesets"),
    ("apps.kruise.io", "v1alpha1", "DaemonSet", "daemonsets"),
    ("argoproj.io", "v1alpha1", "CronWorkflow", "cronworkflows"),
    ("tekton.dev", "v1", "Pipeline", "pipelines"),
    ("tekton.dev", "v1", "PipelineRun", "pipelineruns"),
];

/// Group, version, kind and plural, and where the pod spec is.
const KINDS: [(&str, &str, &str, &str, &str); 6] = [
    (
        "argoproj.io",
        "v1alpha1",
        "Rollout",
        "rollouts",
        "/spec/template/spec",
    ),
    ("argoproj.io", "v1alpha1", "Workflow", "workflows", "/spec"),
    (
        "serving.knative.dev",
        "v1",
        "Service",
        "services",
        "/spec/template/spec",
    ),
    (
        "keda.sh",
        "v1alpha1",
        "ScaledJob",
        "scaledjobs",
        "/spec/jobTargetRef/template/spec",
    ),
    ("tekton.dev", "v1", "TaskRun", "taskruns", "/spec/podTemplate"),
    (
        "example.com",
        "v1beta3",
        "GameServerSet",
        "gameserversets",
        "/spec/pod",
    ),
];

fn define(cluster: &ControlPlane) {
    let kinds = KINDS.map(|(group, version, kind, plural, _)| (group, version, kind, plural));
    for (group, version, kind, plural) in kinds.into_iter().chain(MORE) {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        });
        cluster
            .kubectl_with(&["apply", "-f", "-"], &definition.to_string())
            .succeeded();
    }
    cluster.wait_for_definitions();
}

/// An object whose pod is for this system and has a user ID.
fn object(kind: &str, name: &str, os: &str) -> Value {
    let (group, version, _, _, at) = KINDS
        .into_iter()
        .find(|(_, _, known, ..)| *known == kind)
        .unwrap();
    let mut pod = json!({
        "nodeSelector": {"kubernetes.io/os": os}, "tolerations": [{"key": "os", "value": "windows"}],
        "securityContext": {"runAsUser": 1000},
    });
    let container = json!({"name": "web", "image": "registry.example.com/web:1"});
    match kind {
        "Workflow" => pod["templates"] = json!([{"name": "main", "container": container}]),
        "TaskRun" => {}
        _ => pod["containers"] = json!([container]),
    }
    let mut object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": {},
    });
    let (parents, last) = at.rsplit_once('/').unwrap();
    let mut parent = &mut object;
    for field in parents.split('/').filter(|field| !field.is_empty()) {
        if parent.get(field).is_none() {
            parent[field] = json!({});
        }
        parent = &mut parent[field];
    }
    parent[last] = pod;
    if kind == "TaskRun" {
        object["spec"]["taskSpec"] = json!({"steps": [container]});
    }
    object
}

/// The object without what Windows does not have.
fn fixed(kind: &str, mut object: Value) -> Value {
    let (.., at) = KINDS
        .into_iter()
        .find(|(_, _, known, ..)| *known == kind)
        .unwrap();
    let pod = object.pointer_mut(at).unwrap().as_object_mut().unwrap();
    pod.remove("securityContext");
    object
}

fn send(cluster: &ControlPlane, namespace: &str, command: &str, object: &Value) -> Printed {
    cluster.kubectl_with(&[command, "-n", namespace, "-f", "-"], &object.to_string())
}

/// How many reviews the replica has answered.
fn reviews(replica: &Replica) -> f64 {
    let (_, metrics) = replica.get("/metrics").unwrap();
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("transom_reviews_total{"));
    lines
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

fn scan(cluster: &ControlPlane, args: &[&str]) -> (i32, Value) {
    let file = cluster.path("admin.kubeconfig");
    let [flag, facts] = install::cluster_config(cluster, FACTS);
    let scan = [
        "scan",
        "-o",
        "json",
        "--kubeconfig",
        "admin.kubeconfig",
        &flag,
        &facts,
    ];
    let run = transom(file.parent().unwrap(), &[&scan, args].concat());
    (run.status, run.json())
}

#[test]
fn custom_resources_with_pods_are_denied_fixed_and_admitted() {
    let Some(programs) = programs_or_skip("tests/cluster/pod_template_kinds.rs") else {
        return;
    };
    // The audit policy that the page recommends.
    let page = include_str!("../../docs/how-to/audit.md");
    let mut policy = page
        .split("```yaml\n")
        .filter_map(|rest| rest.split("```").next());
    let policy = policy.find(|block| block.contains("kind: Policy")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, policy).unwrap();
    let flag = format!("--audit-policy-file={}", file.display());
    let cluster = ControlPlane::start_with(programs, &[&flag]).unwrap();
    define(&cluster);
    install::prepare(&cluster, POLICY);
    for namespace in ["before", "shop"] {
        cluster.create_namespace(namespace, &[]);
    }
    // Stored before Transom is installed.
    for (_, _, kind, ..) in KINDS {
        send(&cluster, "before", "create", &object(kind, "web", "windows")).succeeded();
        send(&cluster, "before", "create", &object(kind, "linux", "linux")).succeeded();
    }
    let facts = install::cluster_config(&cluster, FACTS);
    let facts = facts.each_ref().map(String::as_str);
    let replica = Replica::start(&cluster, "transom", &facts);
    install::register(&cluster, replica.port, &facts);
    replica.is_ready(&cluster);
    let probe = object("Rollout", "probe", "windows");
    let is_called = || {
        let printed = cluster.kubectl_with(
            &["create", "--dry-run=server", "-n", "shop", "-f", "-"],
            &probe.to_string(),
        );
        printed.err.contains("denied the request")
    };
    assert!(
        wait(Duration::from_secs(60), is_called),
        "{}",
        cluster.end_of_log("transom")
    );

    are_denied_until_they_are_fixed(&cluster);
    linux_objects_cause_no_call(&cluster, &replica);
    every_sign_causes_one_call(&cluster, &replica);
    the_costliest_containers_cause_a_call(&cluster, &replica);
    what_was_stored_before_can_be_scaled_and_deleted(&cluster);
    a_scan_reports_them_and_absent_kinds_are_no_gap(&cluster);
    the_policy_is_programmed(&cluster);
    the_audit_log_has_them_or_names_their_kinds(&cluster);
}

/// The API server records them by the page's policy; by one that omits them, the kinds are named.
fn the_audit_log_has_them_or_names_their_kinds(cluster: &ControlPlane) {
    let log = std::fs::read_to_string(cluster.path("audit.log")).unwrap();
    let file = cluster.path("admin.kubeconfig");
    let read = |log: &str, more: &[&str]| {
        let args = ["audit-log", "-o", "json", "--kubeconfig", "admin.kubeconfig", "-"];
        transom_with(file.parent().unwrap(), &[&args[..], more].concat(), log).json()
    };
    let report = read(&log, &[]);
    let rows = report["workloads"].to_string();
    let built_in = KINDS.into_iter().filter(|(group, ..)| *group != "example.com");
    for (_, _, kind, plural, _) in built_in.clone() {
        let is_there = [format!("\"{kind} "), format!("\"{plural}.")]
            .iter()
            .any(|name| rows.contains(name));
        assert!(is_there, "{kind}: {rows}");
    }
    let omitted = |line: &&str| {
        !line.contains("\"apiGroup\":\"argoproj.io\"") && !line.contains("\"apiGroup\":\"keda.sh\"")
    };
    let without: Vec<&str> = log.lines().filter(omitted).collect();
    let without = without.join("\n") + "\n";
    let report = read(&without, &["--check-cluster"]);
    let named = report["clusters"][0]["kindsWithoutEvents"].to_string();
    for (group, _, kind, ..) in built_in {
        let is_omitted = ["argoproj.io", "keda.sh"].contains(&group);
        assert_eq!(
            named.contains(&format!("{kind}.{group}")),
            is_omitted,
            "{kind}: {named}"
        );
    }
}

fn are_denied_until_they_are_fixed(cluster: &ControlPlane) {
    for (_, _, kind, _, at) in KINDS {
        let bad = object(kind, "web", "windows");
        let path = format!("{}.securityContext.runAsUser", at[1..].replace('/', "."));
        let denied = send(cluster, "shop", "create", &bad);
        assert!(
            !denied.ok && denied.err.contains("custom-resources.validate.transom.dev"),
            "{kind}: {denied:?}"
        );
        assert!(denied.err.contains(&path), "{kind}: {denied:?}");
        let good = fixed(kind, bad.clone());
        send(cluster, "shop", "create", &good).succeeded();
        let worse = send(cluster, "shop", "replace", &bad);
        assert!(
            !worse.ok && worse.err.contains("run-as-user"),
            "{kind}: {worse:?}"
        );
    }
}

fn linux_objects_cause_no_call(cluster: &ControlPlane, replica: &Replica) {
    let before = reviews(replica);
    assert!(before > 0.0, "the metric has another name");
    for (_, _, kind, ..) in KINDS {
        send(cluster, "shop", "create", &object(kind, "linux", "linux")).succeeded();
    }
    assert!((reviews(replica) - before).abs() < 0.5);
}

/// Objects as YAML, and whether one of their pods has a sign of Windows.
const SIGNS: &str = include_str!("pod_template_kinds/signs.yaml");

fn every_sign_causes_one_call(cluster: &ControlPlane, replica: &Replica) {
    let facts = Facts::new(Facts::KUBERNETES, jiff::civil::date(2026, 1, 1));
    let mut objects = 0;
    for document in transom::manifest::parse(SIGNS.into()).documents {
        let mut object: Value = serde_json::from_str(document.json()).unwrap();
        let is_called = object["metadata"]["annotations"]["called"] == "yes";
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let (api_version, kind) = (
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        );
        let kind = Kind::of_api_version(api_version, kind).unwrap();
        // The engine needs no call for what the condition does not select.
        let subject = Object::parse(kind, document.json(), ReviewStage::Written).unwrap();
        let verdict = evaluate(&subject, &facts, &Policy::standalone())
            .inference
            .verdict;
        let is_windows = matches!(verdict, Verdict::Windows | Verdict::Conflicting);
        assert!(is_called || !is_windows, "{name}: {verdict}");
        let before = reviews(replica);
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        let dry_run = ["create", "--dry-run=server", "-n", "shop", "-f", "-"];
        cluster.kubectl_with(&dry_run, &object.to_string()).succeeded();
        let calls = reviews(replica) - before;
        let expected = if is_called { 1.0 } else { 0.0 };
        assert!((calls - expected).abs() < 0.5, "{name}: {calls} calls");
        objects += 1;
    }
    assert!(objects > 25, "{objects}");
}

/// As many containers, and as long images, as the condition inspects: only the last one says Windows. An error of the
/// condition, for example about its cost, causes no call.
fn the_costliest_containers_cause_a_call(cluster: &ControlPlane, replica: &Replica) {
    let start = "mcr.microsoft.com/a/";
    let long = format!("{start}{}", "x".repeat(512 - start.len()));
    let list = |prefix: &str, image: &str| -> Vec<Value> {
        (0..150)
            .map(|n| json!({"name": format!("{prefix}{n}"), "image": if n == 149 { image } else { &long }}))
            .collect()
    };
    let windows = "mcr.microsoft.com/windows/nanoserver:ltsc2022";
    let spec = json!({"initContainers": list("i", &long), "containers": list("c", windows)});
    let template = json!({"name": "a", "initContainers": list("i", &long), "sidecars": list("s", windows)});
    for (api_version, kind, spec) in [
        (
            "apps.kruise.io/v1alpha1",
            "CloneSet",
            json!({"template": {"spec": spec}}),
        ),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            json!({"templates": [template]}),
        ),
    ] {
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "costly"}, "spec": spec});
        let before = reviews(replica);
        let dry_run = ["create", "--dry-run=server", "-n", "shop", "-f", "-"];
        cluster.kubectl_with(&dry_run, &object.to_string());
        let calls = reviews(replica) - before;
        assert!((calls - 1.0).abs() < 0.5, "{kind}: {calls} calls");
    }
}

fn what_was_stored_before_can_be_scaled_and_deleted(cluster: &ControlPlane) {
    let patch = |body: &str| {
        let patch = [
            "patch",
            "-n",
            "before",
            "rollouts.argoproj.io",
            "web",
            "--type=merge",
            "-p",
            body,
        ];
        cluster.kubectl(&patch)
    };
    patch(r#"{"spec": {"replicas": 3}}"#).succeeded();
    patch(r#"{"metadata": {"finalizers": ["example.com/hold"]}}"#).succeeded();
    let delete = [
        "delete",
        "-n",
        "before",
        "rollouts.argoproj.io",
        "web",
        "--wait=false",
    ];
    cluster.kubectl(&delete).succeeded();
    patch(r#"{"metadata": {"finalizers": null}}"#).succeeded();
    send(cluster, "before", "create", &object("Rollout", "fixed", "linux")).succeeded();
}

fn a_scan_reports_them_and_absent_kinds_are_no_gap(cluster: &ControlPlane) {
    let (status, report) = scan(cluster, &["--namespace", "before"]);
    assert_eq!(report["gaps"], json!([]), "{report:#}");
    assert_eq!(status, 1, "{report:#}");
    let owners = report["owners"].as_array().unwrap().iter();
    let denied = owners.filter(|owner| owner["decision"] == "deny").map(|owner| {
        let finding = &owner["findings"][0];
        format!(
            "{} {} {}",
            owner["apiVersion"].as_str().unwrap(),
            owner["kind"].as_str().unwrap(),
            finding["path"]
        )
    });
    let mut denied: Vec<String> = denied.collect();
    denied.sort();
    assert_eq!(
        denied,
        [
            "argoproj.io/v1alpha1 Workflow \"spec.securityContext.runAsUser\"",
            "example.com/v1beta3 GameServerSet \"spec.pod.securityContext.runAsUser\"",
            "keda.sh/v1alpha1 ScaledJob \"spec.jobTargetRef.template.spec.securityContext.runAsUser\"",
            "serving.knative.dev/v1 Service \"spec.template.spec.securityContext.runAsUser\"",
            "tekton.dev/v1 TaskRun \"spec.podTemplate.securityContext.runAsUser\"",
        ],
        "{report:#}"
    );
}

/// The webhook configurations were made for the facts that the program reads; other ones are reported, and so is a file that
/// cannot be used.
fn the_policy_is_programmed(cluster: &ControlPlane) {
    let programmed = || {
        let printed = cluster.kubectl(&["get", "windowspodpolicies", "default", "-o", "json"]);
        let policy: Value = serde_json::from_str(&printed.out).unwrap_or_default();
        let conditions = policy["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition["type"] == "Programmed")
    };
    let becomes = |status: &str, message: &str| {
        let is = || {
            programmed().is_some_and(|condition| {
                condition["status"] == status
                    && condition["message"]
                        .as_str()
                        .unwrap_or_default()
                        .contains(message)
            })
        };
        assert!(wait(Duration::from_secs(90), is), "{:?}", programmed());
    };
    becomes("True", "");
    install::cluster_config(
        cluster,
        "podTemplates: [{group: example.com, kind: Proxy, path: spec.template}]\n",
    );
    becomes("False", "were made for other facts about the cluster");
    install::cluster_config(
        cluster,
        "podTemplates: [{group: example.com, kind: Proxy, path: status}]\n",
    );
    becomes("False", "its last valid version applies");
    install::cluster_config(cluster, FACTS);
    becomes("True", "");
}
