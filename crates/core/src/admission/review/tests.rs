//! What is evaluated in each phase, and when an ownerReference is trusted.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::config::ClusterConfig;
use crate::model::cluster::facts::{Facts, NamespaceFacts};
use crate::model::objects::requester::ListedController;
use crate::model::windows::image_facts::{ImageFacts, ImageVariant};

/// The content of an answer.
#[derive(Debug)]
struct AnswerSummary {
    denial: Option<String>,
    /// The messages and fields of its causes.
    causes: Vec<String>,
    patch: Vec<Value>,
    warnings: Vec<String>,
    /// The values of the audit annotations.
    annotations: Vec<String>,
    owner: Option<String>,
    owner_trusted: Option<String>,
    denied_by: Option<String>,
    decision: &'static str,
}

fn decide(phase: Phase, object: &Value) -> AnswerSummary {
    ruling_of(phase, "alice", object, Policy::standalone())
}

/// The same, for a user and a policy.
fn ruling_of(phase: Phase, user: &str, object: &Value, policy: Policy) -> AnswerSummary {
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    ruling_in(&facts, phase, user, object, policy)
}

/// The same under the built-in policy, in a cluster whose administrators list these controllers.
fn ruling_with(listed: &[ListedController], phase: Phase, user: &str, object: &Value) -> AnswerSummary {
    ruling_in(&listing(listed), phase, user, object, Policy::standalone())
}

fn listing(controllers: &[ListedController]) -> Facts {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    facts.set_config(Arc::new(ClusterConfig {
        controllers: controllers.to_vec(),
        ..ClusterConfig::default()
    }));
    facts
}

/// The same, in a cluster.
fn ruling_in(facts: &Facts, phase: Phase, user: &str, object: &Value, policy: Policy) -> AnswerSummary {
    let kind = json!({"group": "", "version": "v1", "kind": object["kind"]});
    let kind = if object["kind"] == "Pod" {
        kind
    } else {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        json!({"group": group, "version": version, "kind": object["kind"]})
    };
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": kind, "namespace": "default", "userInfo": {"username": user},
        "operation": "CREATE", "object": object,
    }});
    answer_to(facts, phase, &review, policy)
}

/// The answer to a review.
fn answer_to(facts: &Facts, phase: Phase, review: &Value, policy: Policy) -> AnswerSummary {
    let review = review.to_string();
    let context = AdmissionContext {
        facts,
        policies: &PolicySet::new(Vec::new(), policy),
    };
    let answer = crate::admission::review(phase, review.as_bytes(), &context).unwrap();
    let answer_record = answer.record;
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let response = &answer["response"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    assert_eq!(response["allowed"] == true, response["status"].is_null());
    AnswerSummary {
        denial: text(&response["status"]["message"]),
        patch: text(&response["patch"]).map_or_else(Vec::new, |patch| {
            serde_json::from_slice(&BASE64_STANDARD.decode(patch).unwrap()).unwrap()
        }),
        causes: texts(&response["status"]["details"]["causes"]),
        warnings: texts(&response["warnings"]),
        annotations: texts(&response["auditAnnotations"]),
        decision: answer_record.labels.decision,
        owner: text(&response["auditAnnotations"]["owner"]),
        owner_trusted: text(&response["auditAnnotations"]["owner-trusted"]),
        denied_by: text(&response["auditAnnotations"]["denied-by"]),
    }
}

/// Every text in a value.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// What `/mutate` does with a pod whose author wrote these fields; admission added the others.
fn patch(written: &Value, pod: &Value) -> Vec<Value> {
    let fields = json!([{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": written}}]);
    let metadata = json!({"name": "web", "managedFields": fields});
    let ruling = decide(
        Phase::Mutate,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}),
    );
    assert!(ruling.denial.is_none(), "{:?}", ruling.denial);
    ruling.patch
}

/// A pod after placement, with the sidecar that a later webhook added.
fn with_sidecar(security: &Value) -> Value {
    json!({
        "os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
        "containers": [{"name": "web", "image": "web"}, {"name": "proxy", "image": "proxy", "securityContext": security}],
    })
}

#[test]
fn an_os_name_that_no_author_wrote_is_taken_back_where_the_api_server_would_refuse_the_pod_for_it() {
    let written = json!({"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}});
    let linux = with_sidecar(&json!({"runAsUser": 1337}));
    assert_eq!(
        patch(&written, &linux),
        [json!({"op": "remove", "path": "/spec/os"})]
    );
    // A second call changes nothing.
    let mut taken_back = linux;
    taken_back.as_object_mut().unwrap().remove("os");
    assert_eq!(patch(&written, &taken_back), Vec::<Value>::new());
}

#[test]
fn an_os_name_stays_where_its_author_wrote_it_or_nothing_stands_in_its_way() {
    let none = Vec::<Value>::new();
    let written = json!({"f:os": {"f:name": {}}, "f:containers": {"k:{\"name\":\"web\"}": {}}});
    assert_eq!(patch(&written, &with_sidecar(&json!({"runAsUser": 1337}))), none);
    let without = json!({"f:containers": {"k:{\"name\":\"web\"}": {}}});
    assert_eq!(
        patch(&without, &with_sidecar(&json!({"runAsNonRoot": true}))),
        none
    );
    // Only the OS name identifies the pod as Windows: it is removed only because the selector is added.
    let mut unselective = with_sidecar(&json!({"runAsUser": 1337}));
    unselective.as_object_mut().unwrap().remove("nodeSelector");
    let edits = patch(&without, &unselective);
    assert!(
        edits.iter().any(|edit| edit["path"] == "/spec/nodeSelector"),
        "{edits:?}"
    );
}

#[test]
fn what_kubectl_writes_to_debug_a_node_is_warned_of_and_what_cannot_run_there_is_refused() {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "node-debugger-win-1-x7k2p", "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}},
        "spec": {
            "nodeName": "win-1", "hostPID": true, "hostIPC": true, "hostNetwork": true, "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "debugger", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}],
        },
    });
    let debugger = decide(Phase::Validate, &pod);
    assert!(debugger.denial.is_none(), "{:?}", debugger.denial);
    assert_eq!(debugger.warnings.len(), 3, "{debugger:?}");
    // A field that no profile writes is the author's.
    let mut with_user = pod.clone();
    with_user["spec"]["securityContext"] = json!({"runAsUser": 0});
    let denied = decide(Phase::Validate, &with_user);
    assert_eq!(denied.denied_by.as_deref(), Some("run-as-user"), "{denied:?}");
    // A container that another webhook added does not hide what kubectl wrote; a second container of the author does.
    let mut with_sidecar = pod.clone();
    with_sidecar["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "sidecar", "image": "sidecar:1", "securityContext": {"privileged": true}}));
    assert!(
        decide(Phase::Validate, &with_sidecar)
            .denied_by
            .unwrap()
            .contains("host-pid")
    );
    with_sidecar["metadata"]["managedFields"] = json!([{"manager": "kubectl-debug", "operation": "Update",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:hostPID": {}, "f:hostIPC": {}, "f:hostNetwork": {},
            "f:containers": {"k:{\"name\":\"debugger\"}": {}}}}}]);
    let injected = decide(Phase::Validate, &with_sidecar);
    assert_eq!(injected.denied_by.as_deref(), Some("privileged"), "{injected:?}");
    // The label alone does not bypass the rules: without a node, the pod is evaluated like any other.
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    assert!(decide(Phase::Validate, &pod).denial.is_some());
    pod["spec"]["nodeName"] = json!("win-1");
    pod["spec"]["hostname"] = json!("debugger");
    pod["spec"]["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
    pod["spec"]["hostNetwork"] = json!(false);
    assert!(
        decide(Phase::Validate, &pod).denial.is_some(),
        "the API server refuses it anyway"
    );
}

/// An object of a kind with a Windows pod with hostPID, with this metadata.
fn with_metadata(kind: Kind, node: &str, metadata: &Value) -> Value {
    let mut spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
        "containers": [{"name": "a", "image": "a"}]});
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    let mut object = json!({"metadata": metadata, "spec": spec});
    for field in kind.template().unwrap().iter().rev() {
        object = json!({*field: object});
    }
    object["metadata"] = metadata.clone();
    let group = kind.group();
    object["apiVersion"] = if group.is_empty() {
        "v1".into()
    } else {
        format!("{group}/v1").into()
    };
    object["kind"] = kind.as_str().into();
    object
}

#[test]
fn the_annotation_of_mirror_pods_counts_only_if_the_kubelet_of_the_node_asks() {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
    let metadata = |owners: Value| {
        json!({"name": "web", "ownerReferences": owners,
        "annotations": {"kubernetes.io/config.mirror": "hash"}})
    };
    let (mirror, win_1) = (metadata(owner("Node", "win-1")), "system:node:win-1");
    let asks = |user: &str, groups: &[&str], object: &Value, operation: &str| {
        let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .rsplit_once('/')
            .unwrap_or(("", "v1"));
        let old = object
            .to_string()
            .replace(r#""hostPID":true"#, r#""hostPID":false"#);
        let old: Value = serde_json::from_str(&old).unwrap();
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": group, "version": version, "kind": object["kind"]}, "namespace": "default",
            "userInfo": {"username": user, "groups": groups}, "operation": operation, "object": object, "oldObject": old,
        }})
        .to_string();
        let policies = PolicySet::new(Vec::new(), Policy::standalone());
        let context = AdmissionContext {
            facts: &facts,
            policies: &policies,
        };
        let answer = crate::admission::review(Phase::Validate, review.as_bytes(), &context).unwrap();
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        answer["response"]["allowed"] == true
    };
    let kubelet = &["system:nodes", "system:authenticated"][..];
    let pod = with_metadata(Kind::Pod, "win-1", &mirror);
    assert!(asks(win_1, kubelet, &pod, "CREATE"));
    assert!(asks(win_1, kubelet, &pod, "UPDATE"));
    for (user, groups) in [
        ("alice", &["system:masters"][..]),
        ("system:node:win-2", kubelet),
        (win_1, &["system:authenticated"]),
        ("system:kube-controller-manager", &[]),
    ] {
        for operation in ["CREATE", "UPDATE"] {
            assert!(!asks(user, groups, &pod, operation), "{user} {operation}");
        }
    }
    for (node, metadata) in [
        ("", &mirror),
        ("win-1", &metadata(Value::Null)),
        ("win-1", &metadata(owner("Node", "win-2"))),
        ("win-1", &metadata(owner("ReplicaSet", "win-1"))),
    ] {
        let pod = with_metadata(Kind::Pod, node, metadata);
        assert!(!asks(win_1, kubelet, &pod, "CREATE"), "{pod}");
    }
    for kind in Kind::ALL
        .into_iter()
        .filter(|kind| kind.has_pod() && *kind != Kind::Pod && !kind.is_custom())
    {
        let workload = with_metadata(kind, "win-1", &mirror);
        for user in ["alice", win_1] {
            assert!(!asks(user, kubelet, &workload, "CREATE"), "{kind} by {user}");
            assert!(!asks(user, kubelet, &workload, "UPDATE"), "{kind} by {user}");
        }
    }
}

fn listed(user: &str, kinds: &[&str]) -> ListedController {
    ListedController {
        username: user.to_owned(),
        kinds: kinds.iter().map(ToString::to_string).collect(),
    }
}

/// An object for Windows with hostPID and a privileged container, controlled by this owner.
fn owned(kind: &str, owner: &str) -> Value {
    let pod = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true,
        "containers": [{"name": "a", "image": "a", "securityContext": {"privileged": true}}]});
    let (version, spec) = match kind {
        "Pod" => ("v1", pod),
        "Job" => ("batch/v1", json!({"template": {"spec": pod}})),
        _ => ("apps/v1", json!({"template": {"spec": pod}})),
    };
    let (group, owner) = owner.rsplit_once('/').unwrap();
    json!({"apiVersion": version, "kind": kind, "spec": spec, "metadata": {"name": "web", "ownerReferences":
        [{"apiVersion": group, "kind": owner, "name": "o", "uid": "u", "controller": true}]}})
}

#[test]
fn an_owner_that_any_author_can_write_changes_nothing_for_its_author() {
    for (kind, owner) in [
        ("Pod", "apps/v1/ReplicaSet"),
        ("Pod", "apps/v1/StatefulSet"),
        ("Pod", "apps/v1/DaemonSet"),
        ("Pod", "batch/v1/Job"),
        ("Pod", "v1/ReplicationController"),
        ("ReplicaSet", "apps/v1/Deployment"),
        ("Job", "batch/v1/CronJob"),
    ] {
        for user in ["alice", "", "system:serviceaccount:web:replicaset-controller"] {
            let forged = ruling_of(Phase::Validate, user, &owned(kind, owner), Policy::standalone());
            let denial = forged
                .denial
                .as_ref()
                .unwrap_or_else(|| panic!("{kind} of {owner} by {user}"));
            assert!(
                denial.contains("cluster.controllers of the chart's values"),
                "{denial}"
            );
            assert_eq!(
                forged.owner_trusted.as_deref(),
                Some("false"),
                "{kind} of {owner}"
            );
        }
        let made = ruling_of(
            Phase::Validate,
            "system:kube-controller-manager",
            &owned(kind, owner),
            Policy::standalone(),
        );
        assert!(
            made.denial.is_none() && made.warnings.is_empty(),
            "{kind} of {owner}: {made:?}"
        );
        assert_eq!(made.owner_trusted, None);
    }
}

#[test]
fn what_a_controller_made_of_an_owner_that_is_not_evaluated_is_evaluated_itself() {
    for (kind, owner) in [
        ("ReplicaSet", "example.com/v1/Rollout"),
        ("Pod", "argoproj.io/v1alpha1/CronWorkflow"),
        ("Job", "jobset.x-k8s.io/v1alpha2/JobSet"),
        ("Pod", "tekton.dev/v1/PipelineRun"),
        ("Pod", "apps.kruise.io/v1beta1/StatefulSet"),
        ("Pod", "apps/v1/Deployment"),
    ] {
        let kinds = [
            "Rollout.argoproj.io",
            "CronWorkflow.argoproj.io",
            "PipelineRun.tekton.dev",
            "Deployment.apps",
        ];
        let controllers = vec![listed("system:serviceaccount:argo:argo", &kinds)];
        for user in [
            "system:kube-controller-manager",
            "system:serviceaccount:argo:argo",
        ] {
            let reviewed = ruling_with(&controllers, Phase::Validate, user, &owned(kind, owner));
            assert!(reviewed.denial.is_some(), "{kind} of {owner} by {user}");
            assert_eq!(reviewed.owner_trusted, None);
        }
    }
}

#[test]
fn the_cluster_config_names_the_users_that_a_platform_has_for_controllers() {
    let user = "platform:replicasets";
    let pod = owned("Pod", "apps/v1/ReplicaSet");
    assert!(
        ruling_of(Phase::Validate, user, &pod, Policy::standalone())
            .denial
            .is_some()
    );
    let denial = |kinds: &[&str]| ruling_with(&[listed(user, kinds)], Phase::Validate, user, &pod).denial;
    assert!(denial(&["ReplicaSet.apps"]).is_none());
    let of_another = denial(&["Rollout.argoproj.io", "ReplicaSet.example.com"]).unwrap();
    assert!(
        of_another.contains("with the kind ReplicaSet.apps"),
        "{of_another}"
    );
}

#[test]
fn a_policy_that_only_looks_reports_an_owner_that_will_not_be_trusted() {
    let pod = owned("Pod", "apps/v1/ReplicaSet");
    let looking = ruling_of(
        Phase::Validate,
        "platform:replicasets",
        &pod,
        Policy::cluster_default(),
    );
    assert!(looking.denial.is_none());
    assert_eq!(looking.owner_trusted.as_deref(), Some("false"));
}

#[test]
fn a_rule_that_a_policy_raises_to_deny_is_not_passed_by_with_an_owner() {
    let mut pod = owned("Pod", "apps/v1/DaemonSet");
    pod["spec"] =
        json!({"containers": [{"name": "a", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]});
    let policy = || Policy {
        actions: ["missing-os-selector", "run-as-administrator"]
            .map(|name| (crate::rules::find(name).unwrap().id, Action::Deny))
            .into(),
        placement: PlacementMode::Disabled,
        ..Policy::standalone()
    };
    let forged = ruling_of(Phase::Validate, "alice", &pod, policy())
        .denial
        .unwrap();
    for rule in ["missing-os-selector", "run-as-administrator"] {
        assert!(forged.contains(rule), "{forged}");
    }
    let user = "system:serviceaccount:kube-system:daemon-set-controller";
    assert!(ruling_of(Phase::Validate, user, &pod, policy()).denial.is_none());
}

/// The object before its kind, or another operation: parsed in place or from its text, the answer is the same.
#[test]
fn an_object_is_evaluated_the_same_wherever_it_stands_in_the_review() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"a": "\u{e9}\\\""}},
        "spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "hostPID": true, "containers": [{"name": "a", "image": "a"}]},
    });
    let answers = |object: &str| {
        let kind = r#""kind": {"version": "v1", "kind": "Pod"}"#;
        let orders = [
            format!(r#""uid": "u", {kind}, "operation": "CREATE", "object": {object}"#),
            format!(r#""object": {object}, "operation": "CREATE", {kind}, "uid": "u""#),
            format!(r#"{kind}, "object": {object}, "uid": "u", "operation": "CREATE""#),
        ];
        let context = AdmissionContext {
            facts: &Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
            policies: &PolicySet::new(Vec::new(), Policy::standalone()),
        };
        let answered = orders.map(|request| {
            let review = format!(
                r#"{{"request": {{{request}}}, "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}}"#
            );
            let answer = |phase| crate::admission::review(phase, review.as_bytes(), &context).unwrap().body;
            [answer(Phase::Mutate), answer(Phase::Validate)].map(|body| String::from_utf8(body).unwrap())
        });
        assert_eq!(answered[0], answered[1], "{object}");
        assert_eq!(answered[0], answered[2], "{object}");
        answered[0].concat()
    };
    assert!(answers(&pod.to_string()).contains("host-pid"));
    assert!(answers("null").contains("the request has no object"));
    let misread = answers(r#"{"spec": {"containers": [{"name": 7}]}}"#);
    assert!(misread.contains(
        "spec.containers[0].name: invalid type: integer `7`, expected a string; write it in quotes"
    ));
    assert!(answers("[]").contains("transom cannot read this Pod"));
}

/// A Windows pod after SecurityContextConstraints, in a namespace with these labels. `written`: what its author wrote
/// below `spec`.
fn after_scc(written: &Value, labels: &[(&str, &str)], owner: &Value, policy: Policy) -> Vec<String> {
    let metadata = json!({"name": "web", "annotations": {"openshift.io/scc": "restricted-v2"}, "ownerReferences": owner,
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": written}}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
        "securityContext": {"fsGroup": 1_000_650_000, "seLinuxOptions": {"level": "s0:c26,c0"}},
        "containers": [{"name": "web", "image": "web",
            "securityContext": {"runAsUser": 1_000_650_000, "runAsNonRoot": true}}],
    }});
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let namespace = NamespaceFacts {
        labels: labels.collect(),
        ..NamespaceFacts::default()
    };
    std::sync::Arc::make_mut(&mut facts.namespaces).insert("default".to_owned(), namespace);
    let ruling = ruling_in(&facts, Phase::Mutate, "alice", &pod, policy);
    let patch: json_patch::Patch = serde_json::from_value(json!(ruling.patch)).unwrap();
    json_patch::patch(&mut pod.clone(), &patch).unwrap();
    let operations = ruling.patch.iter().map(|operation| json!(operation));
    let text = |operation: &Value, field: &str| operation[field].as_str().unwrap().to_owned();
    let mut operations: Vec<String> = operations
        .map(|operation| format!("{} {}", text(&operation, "op"), text(&operation, "path")))
        .collect();
    operations.sort();
    operations
}

#[test]
fn what_openshift_wrote_into_a_windows_pod_is_taken_out_so_that_it_can_say_windows() {
    let by_author =
        json!({"f:securityContext": {}, "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}});
    let by_author_too = json!({"f:securityContext": {"f:fsGroup": {}}, "f:containers": {}});
    let restricted = [("pod-security.kubernetes.io/enforce", "restricted")];
    let restricted_for_all = [
        restricted[0],
        ("pod-security.kubernetes.io/enforce-version", "v1.24"),
    ];
    let baseline = [("pod-security.kubernetes.io/enforce", "baseline")];
    let agent = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]);
    let removing = || Policy {
        ignored_fields: IgnoredFields::Remove,
        ..Policy::standalone()
    };
    let all = [
        "add /spec/os",
        "remove /spec/containers/0/securityContext/runAsNonRoot",
        "remove /spec/containers/0/securityContext/runAsUser",
        "remove /spec/securityContext/fsGroup",
        "remove /spec/securityContext/seLinuxOptions",
    ];
    let without_non_root: Vec<&str> = all
        .into_iter()
        .filter(|edit| !edit.ends_with("NonRoot"))
        .collect();
    for policy in [Policy::standalone(), removing()] {
        let after = |written, labels, owner| after_scc(written, labels, owner, policy.clone());
        assert_eq!(after(&by_author, &baseline, &Value::Null), all);
        // Pod Security also requires it of a Windows pod, and may do so without a label.
        for labels in [&restricted[..], &[]] {
            assert_eq!(
                after(&by_author, labels, &Value::Null),
                without_non_root,
                "{labels:?}"
            );
        }
        // This profile exempts no Windows pod: only what it does not require is removed, if the policy removes fields.
        let expected: &[&str] = match policy.ignored_fields {
            IgnoredFields::Remove => &without_non_root,
            _ => &[],
        };
        assert_eq!(after(&by_author, &restricted_for_all, &Value::Null), expected);
        // Its pods do not say Windows, and the constraints will require what they added.
        assert_eq!(after(&by_author, &[], &agent), [""; 0], "{policy:?}");
    }
    // The author's fields stay, and so does the rest: the pod cannot say Windows, and the constraints will require it.
    assert_eq!(
        after_scc(&by_author_too, &[], &Value::Null, Policy::standalone()),
        [""; 0]
    );
    // Field removal also removes what the author wrote, so that the pod can say Windows.
    assert_eq!(
        after_scc(&by_author_too, &[], &Value::Null, removing()),
        without_non_root
    );
    let off = Policy {
        placement: PlacementMode::Disabled,
        ..removing()
    };
    assert_eq!(after_scc(&by_author, &[], &Value::Null, off), [""; 0]);
}

/// Characters that would start a line, command a CI system, move a cursor or change the writing direction.
const EVIL: &str = "x\n::error ::y\r\u{1b}[31m\u{202e}z\u{2028}##vso[a]##[b]";

/// A pod with it in every field that its author may write.
fn evil_pod() -> Value {
    let fields = json!([{"manager": EVIL, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": EVIL, "generateName": EVIL, "namespace": EVIL, "annotations": {EVIL: EVIL}, "managedFields": fields,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": EVIL, "controller": true}]},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows", EVIL: EVIL}, "hostPID": true,
            "runtimeClassName": EVIL, "serviceAccountName": EVIL, "hostname": EVIL, "priorityClassName": EVIL,
            "securityContext": {"sysctls": [{"name": EVIL, "value": EVIL}]},
            "tolerations": [{"key": EVIL, "operator": EVIL}],
            "volumes": [{"name": EVIL, "hostPath": {"path": EVIL}}],
            "containers": [{
                "name": EVIL, "image": EVIL, "workingDir": EVIL, "command": [EVIL], "args": [EVIL],
                "env": [{"name": EVIL, "value": EVIL}],
                "volumeMounts": [{"name": EVIL, "mountPath": EVIL, "subPath": EVIL}],
                "resources": {"limits": {EVIL: "1"}},
                "securityContext": {"runAsUser": 1, "windowsOptions": {"runAsUserName": EVIL, "gmsaCredentialSpecName": EVIL}},
                "livenessProbe": {"exec": {"command": [EVIL]}},
            }],
        },
    })
}

#[test]
fn nothing_that_an_author_writes_begins_a_line_or_moves_a_terminals_cursor() {
    let mut seen = (0, 0, 0);
    let mut unreadable = evil_pod();
    unreadable["spec"]["hostPID"] = json!(EVIL);
    for pod in [evil_pod(), unreadable] {
        for phase in [Phase::Mutate, Phase::Validate] {
            for validation in [Action::Deny, Action::Warn, Action::Audit] {
                let exemption = crate::model::cluster::policy::Exemption {
                    rules: vec!["TSM202"],
                    note: EVIL.into(),
                    ..Default::default()
                };
                let policy = Policy {
                    name: EVIL.into(),
                    validation,
                    exemptions: vec![exemption],
                    ..Policy::standalone()
                };
                let ruling = ruling_of(phase, EVIL, &pod, policy);
                seen.0 += usize::from(ruling.denial.is_some());
                let denied = ruling.denial.iter().flat_map(|message| message.lines());
                let denied = denied.chain(ruling.causes.iter().map(String::as_str));
                let annotations = ruling.annotations.iter().map(String::as_str);
                let warnings = ruling.warnings.iter().map(String::as_str);
                seen.1 += ruling.warnings.len();
                seen.2 += ruling.annotations.len();
                for text in denied.chain(annotations).chain(warnings) {
                    assert_eq!(one_line(text), text, "{phase:?} {validation:?}");
                    assert!(!text.trim_start().starts_with("::"), "{text}");
                }
            }
        }
    }
    assert!(seen.0 > 1 && seen.1 > 2 && seen.2 > 5, "{seen:?}");
}

#[test]
fn nothing_of_a_request_begins_a_line_of_the_audit_log() {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": EVIL, "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": EVIL, "name": EVIL,
        "subResource": EVIL, "userInfo": {"username": EVIL}, "operation": EVIL, "object": evil_pod(),
    }});
    for (operation, subresource) in [(EVIL, EVIL), ("CREATE", "")] {
        let mut review = review.clone();
        review["request"]["operation"] = json!(operation);
        review["request"]["subResource"] = json!(subresource);
        let review = review.to_string();
        let context = AdmissionContext {
            facts: &Facts::new(Facts::KUBERNETES, date(2026, 1, 1)),
            policies: &PolicySet::new(
                Vec::new(),
                Policy {
                    name: EVIL.into(),
                    ..Policy::standalone()
                },
            ),
        };
        let record = crate::admission::review(Phase::Validate, review.as_bytes(), &context)
            .unwrap()
            .record;
        let AuditRecord {
            uid,
            subresource,
            namespace,
            name,
            user,
            policy,
            annotations,
            ..
        } = &record;
        let fields = [uid, subresource, namespace, name, user, policy];
        for text in fields
            .into_iter()
            .chain(annotations.iter().map(|(_, value)| value))
        {
            assert_eq!(one_line(text), text.as_str());
        }
        assert!(name.contains("error ::y"), "{name}");
    }
}

#[test]
fn what_would_be_denied_is_counted_as_such() {
    let pod = |os: &str, host_pid: bool| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "nodeSelector": {"kubernetes.io/os": os}, "hostPID": host_pid, "containers": [{"name": "a", "image": "a"}]}})
    };
    for (pod, validation, phase, decision) in [
        (pod("windows", true), Action::Deny, Phase::Validate, "deny"),
        (pod("windows", true), Action::Warn, Phase::Validate, "would-deny"),
        (pod("windows", true), Action::Audit, Phase::Validate, "would-deny"),
        (pod("windows", true), Action::Disabled, Phase::Validate, "allow"),
        (pod("windows", false), Action::Audit, Phase::Validate, "allow"),
        (pod("linux", true), Action::Audit, Phase::Validate, "allow"),
        // What `/validate` will see is reported there.
        (pod("windows", true), Action::Audit, Phase::Mutate, "patch"),
    ] {
        let policy = Policy {
            validation,
            ..Policy::standalone()
        };
        assert_eq!(
            ruling_of(phase, "alice", &pod, policy).decision,
            decision,
            "{pod} {validation}"
        );
    }
}

#[test]
fn the_annotations_name_the_workload_and_the_rules_that_denied_and_a_linux_pod_has_none() {
    let mut pod = owned("Pod", "apps/v1/ReplicaSet");
    pod["metadata"]["labels"] = json!({"pod-template-hash": "5d4f8c7b9"});
    pod["metadata"]["ownerReferences"][0]["name"] = "web-5d4f8c7b9".into();
    for phase in [Phase::Mutate, Phase::Validate] {
        let reported = decide(phase, &pod);
        assert_eq!(reported.owner.as_deref(), Some("Deployment web"), "{phase:?}");
        assert!(reported.annotations.contains(&"v1".to_owned()), "{reported:?}");
    }
    let denied_by = decide(Phase::Validate, &pod).denied_by.unwrap();
    assert!(denied_by.split(',').any(|rule| rule == "host-pid"), "{denied_by}");
    assert!(
        !denied_by.contains("missing-"),
        "advice denies nothing: {denied_by}"
    );
    let linux = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"},
        "spec": {"containers": [{"name": "a", "image": "a"}]}});
    assert_eq!(decide(Phase::Validate, &linux).annotations, Vec::<String>::new());
}

#[test]
fn a_denial_names_the_containers_of_a_problem_in_one_line_and_denying_lines_come_first() {
    let container = |name: String| json!({"name": name, "image": "a", "securityContext": {"runAsUser": 0}});
    let containers: Vec<Value> = (0..11).map(|index| container(format!("c{index}"))).collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
        "os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
        "initContainers": [container("setup".to_owned())], "containers": containers,
    }});
    let denial = decide(Phase::Validate, &pod).denial.unwrap();
    let lines: Vec<&str> = denial.lines().collect();
    assert!(
        lines[0].starts_with("12 problems with Pod default/web for Windows:"),
        "{denial}"
    );
    assert!(
        lines[1].starts_with(
            "spec.initContainers[setup].securityContext.runAsUser, spec.containers[c0, c1, c2, c3, c4, c5, c6, c7 and 3 \
             more].securityContext.runAsUser: "
        ),
        "{denial}"
    );
    let warnings = lines.iter().position(|line| line.starts_with("(warning)"));
    let denies = lines.iter().rposition(|line| line.starts_with("spec."));
    assert!(warnings.is_none_or(|first| Some(first) > denies), "{denial}");
}

#[test]
fn the_controller_of_a_custom_resource_is_known_only_if_the_cluster_config_names_its_user() {
    for (kind, owner, account) in [
        (
            "ReplicaSet",
            "argoproj.io/v1alpha1/Rollout",
            "argo-rollouts:argo-rollouts",
        ),
        ("Job", "keda.sh/v1alpha1/ScaledJob", "keda:keda-operator"),
        (
            "Pod",
            "apps.kruise.io/v1alpha1/CloneSet",
            "kruise-system:kruise-manager",
        ),
        (
            "Pod",
            "apps.kruise.io/v1alpha1/DaemonSet",
            "kruise-system:kruise-manager",
        ),
        ("Pod", "argoproj.io/v1alpha1/Workflow", "argo:argo"),
        (
            "Pod",
            "tekton.dev/v1/TaskRun",
            "tekton-pipelines:tekton-pipelines-controller",
        ),
    ] {
        let own = format!("system:serviceaccount:{account}");
        let reviewed = |user: &str, kinds: &[&str]| {
            ruling_with(&[listed(&own, kinds)], Phase::Validate, user, &owned(kind, owner))
        };
        let (version, name) = owner.rsplit_once('/').unwrap();
        let (group, _) = version.split_once('/').unwrap();
        let of_owner = format!("{name}.{group}");
        assert!(
            reviewed(&own, &[&of_owner]).denial.is_none(),
            "{kind} of {owner} by {own}"
        );
        assert!(
            reviewed("system:serviceaccount:team:look-alike", &[&of_owner])
                .denial
                .is_some(),
            "{kind} of {owner}"
        );
        for user in [
            // A tenant may own the namespace of a project that is not installed.
            own.as_str(),
            "alice",
            "system:kube-controller-manager",
            "system:serviceaccount:kube-system:replicaset-controller",
            "system:serviceaccount:default:argo-rollouts",
        ] {
            assert!(
                reviewed(user, &["Job.batch", "ReplicaSet.apps"]).denial.is_some(),
                "{kind} of {owner} by {user}"
            );
        }
    }
}

#[test]
fn the_products_of_knative_are_evaluated_whoever_creates_them() {
    let user = "system:serviceaccount:knative-serving:controller";
    let object = owned("Deployment", "serving.knative.dev/v1/Revision");
    let listed = [listed(user, &["Service.serving.knative.dev"])];
    assert!(
        ruling_with(&listed, Phase::Validate, user, &object)
            .denial
            .is_some()
    );
}

#[test]
fn a_look_up_that_ends_between_the_phases_denies_no_pod_that_the_first_one_would_have_changed() {
    let image = "corp.example/app:1";
    let windows = ImageVariant::new("windows", "amd64", "10.0.20348.2700");
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let known = ImageFacts::of(vec![windows], jiff::Timestamp::UNIX_EPOCH);
    facts.images.insert(image.to_owned(), Arc::new(known));
    let pod = |spec: Value| {
        let mut pod = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "securityContext": {"runAsUser": 1000}, "containers": [{"name": "web", "image": image}]}});
        json_patch::merge(&mut pod["spec"], &spec);
        pod
    };
    let of = |pod: &Value, policy: Policy| {
        let answer = ruling_in(&facts, Phase::Validate, "alice", pod, policy);
        (answer.decision, answer.warnings.len())
    };
    let removes = || Policy {
        ignored_fields: IgnoredFields::Remove,
        ..Policy::standalone()
    };
    let unplaced = pod(json!({}));
    for policy in [Policy::standalone(), removes()] {
        let (decision, warnings) = of(&unplaced, policy);
        assert_eq!(decision, "allow");
        assert!(warnings > 0, "it is said");
    }
    // What says Windows in another way was seen by both phases.
    let selected = pod(json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    assert_eq!(of(&selected, Policy::standalone()).0, "deny");
    // Without placement, no phase changes a pod, and both decide alike.
    let unchanging = Policy {
        placement: PlacementMode::Disabled,
        ..Policy::standalone()
    };
    assert_eq!(of(&unplaced, unchanging).0, "deny");
}

/// The answer to an update of an object.
fn update(phase: Phase, sub_resource: &str, old: &Value, new: &Value) -> AnswerSummary {
    update_by("alice", phase, sub_resource, old, new)
}

/// The answer to a user's update of an object.
fn update_by(user: &str, phase: Phase, sub_resource: &str, old: &Value, new: &Value) -> AnswerSummary {
    let facts = listing(&[listed(
        "platform:queue",
        &["Pod", "Job.batch", "Rollout.argoproj.io"],
    )]);
    let version = new["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": group, "version": version, "kind": new["kind"]}, "namespace": "default",
        "userInfo": {"username": user}, "operation": "UPDATE", "subResource": sub_resource,
        "object": new, "oldObject": old,
    }});
    answer_to(&facts, phase, &review, Policy::standalone())
}

/// A pod that does not say what it is for, with fields that Windows ignores.
fn without_a_sign(over: &Value) -> Value {
    let mut pod = json!({
        "nodeSelector": {"agentpool": "win"}, "securityContext": {"fsGroup": 1000},
        "containers": [{"name": "web", "image": "registry.example.com/web:1",
            "securityContext": {"allowPrivilegeEscalation": false}}],
    });
    json_patch::merge(&mut pod, over);
    pod
}

/// The account of Kueue.
const KUEUE: &str = "system:serviceaccount:kueue-system:kueue-controller-manager";

#[expect(clippy::needless_pass_by_value, reason = "the calls are easier to read")]
fn pod_of(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}, "spec": spec})
}

#[expect(clippy::needless_pass_by_value, reason = "the calls are easier to read")]
fn workload_of(kind: Kind, spec: Value) -> Value {
    let version = format!("{}/v1", kind.group());
    json!({"apiVersion": version, "kind": kind.as_str(), "metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}})
}

/// A container that `kubectl debug` adds.
fn debug_container(context: &Value) -> Value {
    json!({"ephemeralContainers": [{"name": "debugger", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022",
        "securityContext": context}]})
}

#[test]
fn a_debug_container_that_shows_what_a_pod_is_for_is_not_denied_for_what_the_pod_already_had() {
    let running = pod_of(without_a_sign(&json!({})));
    let debugged = |context: Value| pod_of(without_a_sign(&debug_container(&context)));
    for phase in [Phase::Mutate, Phase::Validate] {
        let answer = update(phase, "ephemeralcontainers", &running, &debugged(json!({})));
        assert_eq!(answer.denial, None, "{answer:?}");
    }
    // What the update adds is new.
    let worse = debugged(json!({"privileged": true}));
    let answer = update(Phase::Validate, "ephemeralcontainers", &running, &worse);
    assert_eq!(answer.denied_by.as_deref(), Some("privileged"), "{answer:?}");
}

#[test]
fn what_an_update_turns_into_a_finding_by_adding_the_evidence_is_new() {
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]}]}}}});
    let image = json!({"containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022",
        "securityContext": {"allowPrivilegeEscalation": false}}]});
    let gate = json!({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]});
    let with = |one: &Value, other: &Value| {
        let mut both = one.clone();
        json_patch::merge(&mut both, other);
        without_a_sign(&both)
    };
    let nothing = json!({});
    let debugger = debug_container(&nothing);
    for (kind, before, after) in [
        (Kind::Pod, with(&gate, &nothing), with(&windows, &nothing)),
        (Kind::Pod, with(&gate, &nothing), with(&gate, &affinity)),
        (Kind::Job, with(&nothing, &nothing), with(&windows, &nothing)),
        (Kind::Job, with(&linux, &nothing), with(&windows, &nothing)),
        (Kind::Job, with(&nothing, &nothing), with(&affinity, &nothing)),
        (
            Kind::Deployment,
            with(&nothing, &nothing),
            with(&windows, &nothing),
        ),
        // The image of a running pod is one of the few fields that can change.
        (Kind::Pod, with(&nothing, &nothing), with(&image, &nothing)),
        // A debug container in between makes nothing known.
        (Kind::Pod, with(&gate, &debugger), with(&windows, &debugger)),
    ] {
        let unqueued = |spec: &Value| match kind {
            Kind::Pod => pod_of(spec.clone()),
            _ => workload_of(kind, spec.clone()),
        };
        let object = |spec: &Value| {
            let mut object = unqueued(spec);
            object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "default"});
            object
        };
        // Kueue changes nothing that is in no queue: another client has its account.
        let (old, new) = (unqueued(&before), unqueued(&after));
        assert!(update_by(KUEUE, Phase::Validate, "", &old, &new).denial.is_some());
        let (before, after) = (object(&before), object(&after));
        let answer = update(Phase::Validate, "", &before, &after);
        assert!(answer.denial.is_some(), "{before}\n{after}");
        // Kueue, and whom the policy lists, must not be stuck with what others wrote: the owner's report has it.
        for user in [KUEUE, "platform:queue"] {
            let answer = update_by(user, Phase::Validate, "", &before, &after);
            assert_eq!(
                answer.denial.is_some(),
                kind == Kind::Deployment,
                "{user}: {answer:?}"
            );
        }
        let other = "system:serviceaccount:kueue-system:default";
        assert!(
            update_by(other, Phase::Validate, "", &before, &after)
                .denial
                .is_some()
        );
    }
}

#[test]
fn kueue_may_add_selectors_to_custom_resources() {
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let rollout = |spec: &Value, labels: &Value| {
        let template = json!({"spec": without_a_sign(spec)});
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web", "labels": labels},
            "spec": {"template": template}})
    };
    let queued = json!({"kueue.x-k8s.io/queue-name": "default"});
    let (before, after) = (rollout(&json!({}), &queued), rollout(&windows, &queued));
    for (user, is_denied) in [("alice", true), (KUEUE, false), ("platform:queue", false)] {
        let answer = update_by(user, Phase::Validate, "", &before, &after);
        assert_eq!(answer.denial.is_some(), is_denied, "{user}: {answer:?}");
    }
    let (before, after) = (rollout(&json!({}), &json!({})), rollout(&windows, &json!({})));
    assert!(
        update_by(KUEUE, Phase::Validate, "", &before, &after)
            .denial
            .is_some()
    );
}

#[test]
fn an_update_that_adds_no_evidence_breaks_no_running_windows_pod() {
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let edit = json!({"tolerations": [{"key": "spot", "operator": "Exists"}], "activeDeadlineSeconds": 60});
    let image = json!({"containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022",
        "securityContext": {"allowPrivilegeEscalation": false}}]});
    let nothing = json!({});
    for before in [&windows, &image, &debug_container(&nothing), &nothing] {
        let mut after = before.clone();
        json_patch::merge(&mut after, &edit);
        let (before, after) = (pod_of(without_a_sign(before)), pod_of(without_a_sign(&after)));
        let answer = update(Phase::Validate, "", &before, &after);
        assert_eq!(answer.denial, None, "{answer:?}");
    }
    // More evidence for the same system is not a reason either: the findings were there before.
    let mut both = image.clone();
    json_patch::merge(&mut both, &windows);
    let (before, after) = (pod_of(without_a_sign(&image)), pod_of(without_a_sign(&both)));
    assert_eq!(update(Phase::Validate, "", &before, &after).denial, None);
}

#[test]
fn an_update_of_metadata_passes_though_the_kubelet_rejects_the_label() {
    let windows = without_a_sign(&json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    let before = pod_of(windows);
    let mut after = before.clone();
    after["metadata"]["labels"] = json!({"kubernetes.io/os": "linux"});
    let answer = update(Phase::Validate, "", &before, &after);
    assert_eq!((answer.denial, answer.patch), (None, Vec::new()));
    // The same label in a new pod is denied.
    let denied_by = decide(Phase::Validate, &after).denied_by.unwrap_or_default();
    assert!(denied_by.contains("pod-os-label-mismatch"), "{denied_by}");
}

#[test]
fn an_update_that_makes_the_evidence_contradict_itself_is_denied() {
    let pod = |spec: &Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": without_a_sign(spec)});
    let linux = json!({"os": {"name": "linux"}, "schedulingGates": [{"name": "example.com/gate"}]});
    let both = json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "windows"}});
    let answer = update(Phase::Validate, "", &pod(&linux), &pod(&both));
    assert_eq!(
        answer.denied_by.as_deref(),
        Some("mixed-os-contradiction"),
        "{answer:?}"
    );
}

#[test]
fn a_denial_links_to_the_first_rules_if_they_are_documented() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
        "os": {"name": "windows"}, "hostPID": true, "hostIPC": true, "shareProcessNamespace": true,
        "securityContext": {"runAsUser": 1, "runAsGroup": 1}, "containers": [{"name": "web", "image": "a"}],
    }});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "default",
        "userInfo": {"username": "alice"}, "operation": "CREATE", "object": pod,
    }})
    .to_string();
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let context = AdmissionContext {
        facts: &facts,
        policies: &PolicySet::new(Vec::new(), Policy::standalone()),
    };
    let message = |documentation: Option<&DocumentationUrl>| {
        let review = Review::new(crate::admission::decode(review.as_bytes()).unwrap(), &context);
        let answer = review.documented(documentation).answer(Phase::Validate, &facts);
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        answer["response"]["status"]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let published = DocumentationUrl::parse("https://transom.example.com/docs").unwrap();
    let linked = message(Some(&published));
    let last = linked.lines().last().unwrap();
    let links: Vec<&str> = last.strip_prefix("See ").unwrap().split(' ').collect();
    assert_eq!(links.len(), 3, "{linked}");
    for (link, line) in links.iter().zip(linked.lines().skip(1)) {
        let (_, id) = link
            .split_once("https://transom.example.com/docs/reference/rules.md#")
            .unwrap();
        assert!(
            line.contains(&format!("[{} ", id.to_uppercase())),
            "{link}: {line}"
        );
    }
    let plain = message(None);
    assert_eq!(linked, format!("{plain}\n{last}"));
}
