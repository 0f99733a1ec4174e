//! The report contains the right entries for a sequence of objects, and the builder keeps nothing else in
//! memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::cluster::node::NodeView;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::config::ClusterConfig;
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::Policy;
use crate::model::objects::requester::ListedController;
use crate::scan::context::EvalContext;
use crate::scan::evaluate::{Evaluated, SkipReason, evaluate_stored};
use crate::scan::result::{DenialCause, FindingOutcome, OwnerOutcome};

pub(in crate::scan) fn scan(objects: &[(Kind, Value)]) -> ScanReport {
    scan_with(&[], Policy::standalone(), objects)
}

/// The scan of a cluster with these custom resources and this policy.
fn scan_with(custom: &[(Kind, String)], policy: Policy, objects: &[(Kind, Value)]) -> ScanReport {
    scan_in(&Facts::new(36, date(2026, 6, 1)), custom, policy, objects)
}

/// The same, in a cluster of which this is known.
fn scan_in(
    facts: &Facts,
    custom: &[(Kind, String)],
    policy: Policy,
    objects: &[(Kind, Value)],
) -> ScanReport {
    let eval_context = EvalContext {
        facts,
        policies: Cow::Owned(PolicySet::new(Vec::new(), policy)),
        excluded: &[],
        registered: None,
        custom,
    };
    let nodes: BTreeMap<String, Arc<NodeView>> = BTreeMap::new();
    let pod_context = PodContext {
        eval_context: &eval_context,
        nodes: Some(&nodes),
        is_other: &|name| name == "lin",
        knows_classes: true,
    };
    let mut scan = Scan::new(&pod_context, "2026-06-01T12:00:00Z".parse().unwrap());
    for (kind, object) in objects {
        scan.visit(*kind, &object.to_string());
    }
    scan.report(ReportHeader {
        notes: Vec::new(),
        cluster: ScannedCluster::default(),
        assumed: Vec::new(),
        limited_to: Vec::new(),
        nodes: Vec::new(),
        node_findings: Vec::new(),
    })
}

fn meta(name: &str, owner: Option<(&str, &str, &str)>) -> Value {
    let owners = owner.map(|(api_version, kind, name)| {
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "controller": true}])
    });
    json!({"name": name, "namespace": "shop", "uid": name, "ownerReferences": owners})
}

fn spec(more: Value) -> Value {
    let mut spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "a", "image": "web:1"}],
        "securityContext": {"runAsUser": 1000}});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    spec
}

pub(in crate::scan) fn template(name: &str, owner: Option<(&str, &str, &str)>, replicas: u32) -> Value {
    json!({"metadata": meta(name, owner), "spec": {"replicas": replicas, "template": {"spec": spec(json!({}))}}})
}

pub(in crate::scan) fn pod(name: &str, owner: Option<(&str, &str, &str)>, more: Value) -> Value {
    json!({"metadata": meta(name, owner), "spec": spec(more), "status": {"phase": "Pending"}})
}

fn owners(report: &ScanReport) -> Vec<String> {
    let names = report
        .owners
        .iter()
        .map(|owner_result| format!("{} {}", owner_result.kind, owner_result.name));
    names.collect()
}

#[test]
fn a_network_policy_is_listed_if_it_selects_windows_pods_and_nothing_enforces_it() {
    let agent = |name: &str| {
        let spec = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "a", "image": "a:1"}]});
        let metadata = json!({"name": name, "namespace": "kube-system"});
        (
            Kind::DaemonSet,
            json!({"metadata": metadata, "spec": {"template": {"spec": spec}}}),
        )
    };
    let policy = |name: &str, labels: Value| {
        let spec = json!({"podSelector": {"matchLabels": labels}});
        (
            Kind::NetworkPolicy,
            json!({"metadata": meta(name, None), "spec": spec}),
        )
    };
    let web = || {
        let mut web = template("web", None, 2);
        web["spec"]["template"]["metadata"] = json!({"labels": {"app": "web"}});
        (Kind::Deployment, web)
    };
    let policies = || {
        [
            policy("all", json!({})),
            policy("web", json!({"app": "web"})),
            policy("db", json!({"app": "db"})),
        ]
    };
    let all = |daemon_sets: &[&str], workload: Option<(Kind, Value)>| {
        let daemon_sets = daemon_sets.iter().map(|name| agent(name));
        let objects: Vec<(Kind, Value)> = daemon_sets.chain(workload).chain(policies()).collect();
        scan(&objects)
    };
    let report = all(&["cilium"], Some(web()));
    assert_eq!(
        owners(&report),
        ["Deployment web", "NetworkPolicy all", "NetworkPolicy web"]
    );
    let policy = &report.owners[1];
    let found = &policy.findings[0];
    assert_eq!(
        (policy.findings.len(), found.rule, found.outcome),
        (1, "network-policy-not-enforced", FindingOutcome::Reported)
    );
    assert!(
        found
            .message
            .contains("(Deployment web): Cilium does not run on Windows nodes"),
        "{}",
        found.message
    );
    assert_eq!(
        (
            report.summary.owners,
            report.summary.windows,
            report.summary.denied
        ),
        (2, 1, 1)
    );
    for (daemon_sets, workload) in [
        (&["cilium", "calico-node"][..], Some(web())),
        (&[], Some(web())),
        (&["cilium"], None),
    ] {
        let report = all(daemon_sets, workload);
        assert!(
            !owners(&report)
                .iter()
                .any(|owner| owner.starts_with("NetworkPolicy")),
            "{daemon_sets:?}"
        );
    }
}

#[test]
fn what_a_known_controller_made_is_evaluated_at_its_owner_and_its_pods_are_named_by_it() {
    let on_linux = || json!({"nodeName": "lin"});
    let report = scan(&[
        (Kind::Deployment, template("web", None, 2)),
        (
            Kind::ReplicaSet,
            template("web-1", Some(("apps/v1", "Deployment", "web")), 2),
        ),
        (
            Kind::ReplicaSet,
            template("web-0", Some(("apps/v1", "Deployment", "web")), 0),
        ),
        (
            Kind::Pod,
            pod("web-1-a", Some(("apps/v1", "ReplicaSet", "web-1")), on_linux()),
        ),
        (
            Kind::Pod,
            pod("web-1-b", Some(("apps/v1", "ReplicaSet", "web-1")), json!({})),
        ),
    ]);
    assert_eq!(owners(&report), ["Deployment web"]);
    assert_eq!(report.owners[0].outcome, OwnerOutcome::Denied);
    assert_eq!(
        (
            report.summary.objects,
            report.summary.owners,
            report.summary.denied
        ),
        (5, 1, 1)
    );
    let [pod] = report.pods.as_slice() else {
        panic!("{:?}", report.pods)
    };
    assert_eq!(
        (pod.name.as_str(), pod.owner.as_deref()),
        ("web-1-a", Some("Deployment web"))
    );
    assert_eq!(report.summary.misplaced, 1);
}

#[test]
fn pods_that_are_for_windows_by_what_admission_added_are_reported_for_their_owner() {
    let without_sign = |mut object: Value| {
        object["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
        object
    };
    let of_web = Some(("apps/v1", "ReplicaSet", "web-5d"));
    let made = |name: &str| {
        let mut pod = pod(name, of_web, json!({}));
        pod["metadata"]["labels"] = json!({"pod-template-hash": "5d"});
        pod
    };
    let report = scan(&[
        (Kind::Deployment, without_sign(template("web", None, 2))),
        (
            Kind::ReplicaSet,
            without_sign(template("web-5d", Some(("apps/v1", "Deployment", "web")), 2)),
        ),
        (Kind::StatefulSet, without_sign(template("db", None, 1))),
        (Kind::StatefulSet, template("shown", None, 1)),
        (Kind::Pod, made("web-5d-a")),
        (Kind::Pod, made("web-5d-b")),
        (
            Kind::Pod,
            pod("db-0", Some(("apps/v1", "StatefulSet", "db")), json!({})),
        ),
        (
            Kind::Pod,
            pod("shown-0", Some(("apps/v1", "StatefulSet", "shown")), json!({})),
        ),
        // Its owner was deleted, or may not be read.
        (
            Kind::Pod,
            pod("gone-0", Some(("apps/v1", "StatefulSet", "gone")), json!({})),
        ),
    ]);
    assert_eq!(owners(&report), ["Pod db-0", "Pod web-5d-a", "StatefulSet shown"]);
    assert_eq!(report.summary.windows, 3);
    let of = |at: usize| {
        let result = &report.owners[at];
        let owner = result
            .owner
            .as_ref()
            .map(|owner| (owner.kind.as_str(), owner.name.as_str()));
        (
            owner,
            result.is_added_evidence,
            result.outcome,
            result.denied_by(),
        )
    };
    let denied = |owner| (owner, true, OwnerOutcome::Denied, vec!["run-as-user"]);
    assert_eq!(of(0), denied(Some(("StatefulSet", "db"))));
    assert_eq!(of(1), denied(Some(("Deployment", "web"))));
}

#[test]
fn a_pod_with_errors_that_the_template_of_its_stateful_set_or_daemon_set_does_not_have_is_reported_for_it() {
    let evil = || {
        json!({"hostPID": true, "nodeName": "win-1",
            "containers": [{"name": "a", "image": "web:1", "securityContext": {"privileged": true}}]})
    };
    let db = Some(("apps/v1", "StatefulSet", "db"));
    let agent = Some(("apps/v1", "DaemonSet", "agent"));
    let report = scan(&[
        (Kind::StatefulSet, template("db", None, 3)),
        (Kind::DaemonSet, template("agent", None, 1)),
        // What its template has is reported there.
        (Kind::Pod, pod("db-0", db, json!({"nodeName": "win-1"}))),
        (Kind::Pod, pod("db-1", db, evil())),
        (Kind::Pod, pod("agent-x", agent, evil())),
    ]);
    assert_eq!(
        owners(&report),
        ["DaemonSet agent", "Pod agent-x", "Pod db-1", "StatefulSet db"]
    );
    for (at, kind, name) in [(1, "DaemonSet", "agent"), (2, "StatefulSet", "db")] {
        let result = &report.owners[at];
        let owner = result.owner_of_different_pod().unwrap();
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), (kind, name));
        assert!(result.differs_from_template && !result.is_added_evidence);
        let rules: Vec<&str> = result.findings.iter().map(|found| found.rule).collect();
        assert_eq!(rules, ["host-pid", "privileged"]);
    }
    assert!(!report.owners[0].differs_from_template);
}

#[test]
fn a_runtime_class_that_does_not_exist_is_named_with_the_workloads_of_which_nothing_else_is_known() {
    let naming = |name: &str, class: &str, more: Value| {
        let mut object = template(name, None, 1);
        object["spec"]["template"]["spec"] = json!({"runtimeClassName": class, "hostPID": true,
            "containers": [{"name": "a", "image": "web:1"}]});
        let spec = object["spec"]["template"]["spec"].as_object_mut().unwrap();
        spec.extend(more.as_object().unwrap().clone());
        (Kind::Deployment, object)
    };
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let report = scan(&[
        naming("web", "ours", json!({})),
        naming("api", "ours", json!({})),
        naming("linux", "ours", linux),
        naming("kata", "kata-qemu", json!({})),
    ]);
    let [note] = report.notes.as_slice() else {
        panic!("{:?}", report.notes)
    };
    assert!(
        note.starts_with("there is no RuntimeClass ours, ") && note.contains("2 workloads"),
        "{note}"
    );
    assert!(
        note.contains("Deployment shop/web, Deployment shop/api"),
        "{note}"
    );
}

#[test]
fn a_malformed_status_costs_neither_the_uid_nor_the_replicas() {
    let mut web = template("web", None, 2);
    web["status"] = json!({"conditions": "none"});
    let report = scan(&[(Kind::Deployment, web)]);
    let owner = &report.owners[0];
    assert_eq!((owner.uid.as_str(), owner.replicas), ("web", Some(2)));
}

#[test]
fn of_an_owner_that_is_not_evaluated_one_pod_of_each_kind_is() {
    let clone_set = Some(("apps.kruise.io/v1alpha1", "CloneSet", "web"));
    let rollout = Some(("argoproj.io/v1alpha1", "Rollout", "web"));
    let report = scan(&[
        (Kind::ReplicaSet, template("web-old", rollout, 0)),
        (Kind::ReplicaSet, template("web-new", rollout, 2)),
        (Kind::ReplicaSet, template("web-next", rollout, 2)),
        (Kind::Pod, pod("a", clone_set, json!({}))),
        (Kind::Pod, pod("b", clone_set, json!({}))),
        (
            Kind::Pod,
            pod(
                "c",
                clone_set,
                json!({"containers": [{"name": "a", "image": "other:1"}]}),
            ),
        ),
        (Kind::Pod, pod("alone", None, json!({}))),
    ]);
    assert_eq!(
        owners(&report),
        ["Pod a", "Pod alone", "Pod c", "ReplicaSet web-new"]
    );
    let owner = report.owners[3].owner.as_ref().unwrap();
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Rollout", "web"));
}

#[test]
fn the_next_rollout_of_a_custom_resource_is_denied_until_its_controller_is_listed() {
    let custom = [Kind::Rollout, Kind::Workflow].map(|kind| (kind, format!("/apis/{}", kind.group())));
    let listed = |kinds: &[&str]| {
        let mut facts = Facts::new(36, date(2026, 6, 1));
        facts.set_config(Arc::new(ClusterConfig {
            controllers: vec![ListedController {
                username: "system:serviceaccount:argo:argo".to_owned(),
                kinds: kinds.iter().map(ToString::to_string).collect(),
            }],
            ..ClusterConfig::default()
        }));
        facts
    };
    let workflow = pod(
        "step",
        Some(("argoproj.io/v1alpha1", "Workflow", "build")),
        json!({}),
    );
    let objects = [(Kind::Rollout, template("web", None, 2)), (Kind::Pod, workflow)];
    for (kinds, rollout, step) in [
        (
            &["Rollout.argoproj.io", "Workflow.argoproj.io"][..],
            None,
            OwnerOutcome::Patched,
        ),
        (
            &["DaemonSet.apps.kruise.io"],
            Some("Rollout.argoproj.io"),
            OwnerOutcome::Denied,
        ),
    ] {
        let report = scan_in(&listed(kinds), &custom, Policy::standalone(), &objects);
        let owner = |name: &str| report.owners.iter().find(|owner| owner.name == name).unwrap();
        assert_eq!(owner("web").outcome, OwnerOutcome::Denied);
        assert_eq!(owner("web").unlisted_controller.as_deref(), rollout);
        assert_eq!(owner("step").outcome, step, "{kinds:?}");
    }
    let of_deployment = scan(&[(Kind::Deployment, template("web", None, 2))]);
    assert_eq!(of_deployment.owners[0].unlisted_controller, None);
}

#[test]
fn several_workloads_of_one_operator_are_all_evaluated() {
    let operator = Some(("example.com/v1", "Stack", "s"));
    let report = scan(&[
        (Kind::Deployment, template("a", operator, 1)),
        (Kind::Deployment, template("b", operator, 1)),
    ]);
    assert_eq!(owners(&report), ["Deployment a", "Deployment b"]);
}

#[test]
fn objects_that_cannot_be_read_are_counted_the_first_are_named_and_the_rest_is_evaluated() {
    let broken = |n: usize| {
        let mut pod = pod(&format!("p{n}"), None, json!({}));
        pod["spec"]["containers"][0]["name"] = json!(7);
        (Kind::Pod, pod)
    };
    let mut objects: Vec<(Kind, Value)> = (0..25).map(broken).collect();
    objects.push((Kind::Deployment, template("web", None, 2)));
    let report = scan(&objects);
    assert_eq!(report.summary.unreadable, 25);
    assert_eq!(owners(&report), ["Deployment web"]);
    assert_eq!(report.gaps.len(), 21);
    assert_eq!(report.gaps[0].resource, "Pod shop/p0");
    assert!(
        report.gaps[0].reason.contains("spec.containers[0].name"),
        "{}",
        report.gaps[0].reason
    );
    assert_eq!(report.gaps[20].resource, "5 more objects");
}

#[test]
fn linux_objects_of_which_there_is_nothing_to_say_are_only_counted() {
    let mut linux = template("lin", None, 2);
    linux["spec"]["template"]["spec"] =
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "a", "image": "a"}]});
    let report = scan(&[(Kind::Deployment, linux)]);
    assert_eq!(
        (report.summary.owners, report.summary.windows, report.owners.len()),
        (1, 0, 0)
    );
    assert!(report.namespaces.is_empty());
}

#[test]
fn a_mirror_pod_is_passed_over_and_its_annotation_alone_is_nothing() {
    let annotated = |mut object: Value, owner: Option<(&str, &str)>| {
        object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        if let Some((name, uid)) = owner {
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": true}]);
        }
        object
    };
    let bound = |name: &str| pod(name, None, json!({"nodeName": "win-1"}));
    let mut facts = Facts::new(36, date(2026, 6, 1));
    facts.node_uids.insert("win-1".to_owned(), "u1".to_owned());
    let eval_context = EvalContext {
        facts: &facts,
        policies: Cow::Owned(PolicySet::new(Vec::new(), Policy::standalone())),
        excluded: &[],
        registered: None,
        custom: &[],
    };
    let mirror = annotated(bound("mirror"), Some(("win-1", "u1")));
    let looked = evaluate_stored(&eval_context, Kind::Pod, &mirror.to_string()).unwrap();
    assert!(
        matches!(looked, Evaluated::Passed(SkipReason::Mirror)),
        "{looked:?}"
    );
    for (kind, object) in [
        (Kind::Pod, annotated(bound("none"), None)),
        (Kind::Pod, annotated(bound("uid"), Some(("win-1", "u2")))),
        (Kind::Pod, annotated(bound("other"), Some(("win-2", "u1")))),
        (
            Kind::Pod,
            annotated(pod("unbound", None, json!({})), Some(("win-1", "u1"))),
        ),
        (Kind::Deployment, annotated(template("web", None, 1), None)),
        (
            Kind::Deployment,
            annotated(template("web", None, 1), Some(("win-1", "u1"))),
        ),
    ] {
        let looked = evaluate_stored(&eval_context, kind, &object.to_string()).unwrap();
        let Evaluated::Owner(owner_result) = looked else {
            panic!("{object}: {looked:?}")
        };
        assert_eq!(owner_result.outcome, OwnerOutcome::Denied, "{object}");
    }
}

#[test]
fn what_is_denied_only_for_ignored_fields_is_counted_apart() {
    let mut host_process = template("host-process", None, 1);
    host_process["spec"]["template"]["spec"]["securityContext"] =
        json!({"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}});
    // `runAsUser`, which the API server only refuses of pods with `spec.os.name: windows`.
    let ignored = template("ignored", None, 1);
    let summary = scan(&[(Kind::Deployment, host_process), (Kind::Deployment, ignored)]).summary;
    let apart = BTreeMap::from([(DenialCause::CannotRun, 1), (DenialCause::IgnoredFields, 1)]);
    assert_eq!((summary.denied, &summary.denied_for), (2, &apart));
    assert_eq!(summary.would_be_denied_for, apart);
}
