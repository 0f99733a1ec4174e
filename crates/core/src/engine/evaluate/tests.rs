//! What the policy does with ignored fields: in pods, in templates, and together with other fields.

use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::model::cluster::facts::NamespaceFacts;
use crate::model::cluster::policy::{Exemption, IgnoredFields, PlacementField, PlacementMode};
use crate::model::cluster::severity::Severity;
use crate::model::nodes::node::{BUILD_LABEL, Host, OS_LABEL, Taint};
use crate::model::objects::object::{ReviewContext, ReviewStage};
use crate::model::objects::workload::Kind;
use crate::model::windows::build::Build;
use crate::rules::{MOST_OF_A_RULE, Resolver};

mod registry_images;

/// A Windows pod spec with this merged into it.
fn spec(over: &Value) -> Value {
    let mut spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "web", "image": "registry.example.com/web:1"}]});
    json_patch::merge(&mut spec, over);
    spec
}

fn object(kind: Kind, spec: &Value) -> String {
    let mut object = json!({ "spec": spec });
    for field in kind.template().unwrap().iter().rev() {
        object = json!({ *field: object });
    }
    object.to_string()
}

/// The decision, the rules with open findings at Warn or above, and the rules that field removal resolves.
fn evaluated(kind: Kind, over: &Value, policy: &Policy) -> (Decision, Vec<&'static str>, Vec<&'static str>) {
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let json = object(kind, &spec(over));
    let subject = Object::parse(kind, &json, ReviewStage::Written).unwrap();
    let evaluation = evaluate(&subject, &facts, policy);
    let open = evaluation.open().filter(|finding| finding.action >= Action::Warn);
    let open = open.map(|finding| finding.rule.name).collect();
    let removed = evaluation.findings.iter();
    let removed = removed.filter(|finding| finding.resolved_by == Some(Resolver::Removal));
    (
        evaluation.decision(),
        open,
        removed.map(|finding| finding.rule.name).collect(),
    )
}

fn with(ignored_fields: IgnoredFields) -> Policy {
    Policy {
        ignored_fields,
        ..Policy::standalone()
    }
}

const KINDS: [Kind; 3] = [Kind::Pod, Kind::Deployment, Kind::DaemonSet];

/// A spec whose container has this field in its security context.
fn of_container(field: &str, value: &Value) -> Value {
    json!({"containers": [{"name": "web", "image": "registry.example.com/web:1", "securityContext": {field: value}}]})
}

/// Fields that Windows ignores, that the author loses something by, and that no API server rejects, with their rules.
fn ignored_fields() -> Vec<(Value, &'static str)> {
    let profile = json!({"type": "Localhost", "localhostProfile": "web"});
    vec![
        (of_container("privileged", &json!(true)), "privileged"),
        (of_container("runAsUser", &json!(0)), "run-as-user"),
        (
            of_container("capabilities", &json!({"add": ["NET_ADMIN"], "drop": ["ALL"]})),
            "capabilities",
        ),
        (
            of_container("readOnlyRootFilesystem", &json!(true)),
            "read-only-root-filesystem",
        ),
        (
            json!({"securityContext": {"seccompProfile": profile}}),
            "seccomp-profile",
        ),
        (of_container("appArmorProfile", &profile), "app-armor-profile"),
        (
            json!({"securityContext": {"seLinuxOptions": {"level": "s0:c1"}}}),
            "selinux-options",
        ),
        (json!({"hostPID": true}), "host-pid"),
        (json!({"hostIPC": true}), "host-ipc"),
        (json!({"securityContext": {"fsGroup": 0}}), "fs-group"),
        (
            json!({"securityContext": {"supplementalGroups": [1]}}),
            "supplemental-groups",
        ),
        (of_container("procMount", &json!("Unmasked")), "proc-mount"),
        (json!({"shareProcessNamespace": true}), "share-process-namespace"),
        (
            json!({"hostUsers": false, "securityContext": {"runAsNonRoot": true}}),
            "host-users",
        ),
    ]
}

/// Values of such fields that request nothing, with their rules.
fn harmless_values() -> Vec<(Value, &'static str)> {
    let of_pod = |field: &str, value: Value| json!({"securityContext": {field: value}});
    let default = json!({"type": "RuntimeDefault"});
    vec![
        (of_container("privileged", &json!(false)), "privileged"),
        (
            of_container("allowPrivilegeEscalation", &json!(false)),
            "allow-privilege-escalation",
        ),
        (
            of_container("allowPrivilegeEscalation", &json!(true)),
            "allow-privilege-escalation",
        ),
        (
            of_container("readOnlyRootFilesystem", &json!(false)),
            "read-only-root-filesystem",
        ),
        (of_container("capabilities", &json!({})), "capabilities"),
        (
            of_container("capabilities", &json!({"add": [], "drop": ["ALL"]})),
            "capabilities",
        ),
        (of_container("seccompProfile", &default), "seccomp-profile"),
        (of_container("appArmorProfile", &default), "app-armor-profile"),
        (
            of_pod("seccompProfile", json!({"type": "Unconfined"})),
            "seccomp-profile",
        ),
        (
            of_pod("appArmorProfile", json!({"type": "Unconfined"})),
            "app-armor-profile",
        ),
        (of_pod("seLinuxOptions", json!({"level": ""})), "selinux-options"),
        (of_pod("supplementalGroups", json!([])), "supplemental-groups"),
        (
            of_pod("supplementalGroupsPolicy", json!("Merge")),
            "supplemental-groups-policy",
        ),
        (
            of_pod("seLinuxChangePolicy", json!("MountOption")),
            "selinux-change-policy",
        ),
        (
            of_pod("fsGroupChangePolicy", json!("OnRootMismatch")),
            "fs-group-change-policy",
        ),
        (of_container("procMount", &json!("Default")), "proc-mount"),
        (json!({"shareProcessNamespace": false}), "share-process-namespace"),
        (json!({"hostUsers": true}), "host-users"),
        (json!({"resources": {}}), "pod-level-resources"),
    ]
}

#[test]
fn a_value_that_requests_nothing_is_a_warning_unless_the_api_server_rejects_it() {
    let is_admitted = |decision| matches!(decision, Decision::Allow | Decision::Patch);
    for kind in KINDS {
        for (over, rule) in harmless_values() {
            let case = format!("{kind} {over}");
            let (decision, open, _) = evaluated(kind, &over, &with(IgnoredFields::Deny));
            assert!(
                is_admitted(decision) && open == [rule],
                "{case}: {decision} {open:?}"
            );
            let (decision, open, _) = evaluated(kind, &over, &with(IgnoredFields::Audit));
            assert!(
                is_admitted(decision) && open.is_empty(),
                "{case}: {decision} {open:?}"
            );

            let mut refused = over.clone();
            json_patch::merge(&mut refused, &json!({"os": {"name": "windows"}}));
            let (decision, open, _) = evaluated(kind, &refused, &with(IgnoredFields::Warn));
            assert_eq!((decision, open), (Decision::Deny, vec![rule]), "{case}");

            let id = rules::find(rule).unwrap().id;
            let explicit = Policy {
                actions: [(id, Action::Deny)].into(),
                ..with(IgnoredFields::Warn)
            };
            assert_eq!(evaluated(kind, &over, &explicit).0, Decision::Deny, "{case}");
        }
    }
}

/// `spec.os.name` is still not set as long as such a field stays.
#[test]
fn a_value_that_requests_nothing_withholds_the_os_name() {
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for (over, rule) in harmless_values() {
        let json = object(Kind::Pod, &spec(&over));
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
        let evaluation = evaluate(&subject, &facts, &with(IgnoredFields::Deny));
        let edits = |evaluation: &Evaluation| {
            evaluation
                .edits
                .iter()
                .any(|edit| edit.path().to_string() == "spec.os")
        };
        assert!(evaluation.withheld.len() == 1 && !edits(&evaluation), "{rule}");
    }
}

#[test]
fn what_a_hostprocess_pod_has_anyway_is_advice() {
    let host_process = json!({"hostNetwork": true, "securityContext": {"windowsOptions":
        {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}});
    for (over, rule) in [
        (json!({"hostPID": true}), "host-pid"),
        (json!({"hostIPC": true}), "host-ipc"),
        (json!({"shareProcessNamespace": true}), "share-process-namespace"),
        (of_container("privileged", &json!(true)), "privileged"),
        (
            of_container("capabilities", &json!({"add": ["NET_ADMIN"]})),
            "capabilities",
        ),
    ] {
        let severity = |over: &Value| {
            let found = findings(Facts::KUBERNETES, &spec(over), &with(IgnoredFields::Deny));
            found.iter().find(|found| found.0 == rule).map(|found| found.1)
        };
        assert_eq!(severity(&over), Some(Severity::Error), "{over}");
        let mut on_node = over.clone();
        json_patch::merge(&mut on_node, &host_process);
        assert_eq!(severity(&on_node), Some(Severity::Advice), "{over}");
        json_patch::merge(&mut on_node, &json!({"os": {"name": "windows"}}));
        assert_eq!(severity(&on_node), Some(Severity::Error), "{over}");
    }
}

/// It cannot be removed without a decision: the author keeps something there that must not be on disk.
#[test]
fn a_memory_backed_volume_follows_ignored_fields_and_is_never_removed() {
    let over = json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]});
    for kind in KINDS {
        for (ignored_fields, denied, reported) in [
            (IgnoredFields::Deny, true, true),
            (IgnoredFields::Remove, true, true),
            (IgnoredFields::Warn, false, true),
            (IgnoredFields::Audit, false, false),
        ] {
            let (decision, open, removed) = evaluated(kind, &over, &with(ignored_fields));
            let case = format!("{kind} {ignored_fields}");
            assert_eq!(decision == Decision::Deny, denied, "{case}");
            assert_eq!(open.contains(&"empty-dir-memory"), reported, "{case}");
            assert!(removed.is_empty(), "{case}");
        }
    }
}

#[test]
fn one_word_says_what_becomes_of_fields_that_windows_ignores() {
    for kind in KINDS {
        for (over, rule) in ignored_fields() {
            let case = format!("{kind} {over}");
            let (decision, open, _) = evaluated(kind, &over, &with(IgnoredFields::Deny));
            assert_eq!((decision, open), (Decision::Deny, vec![rule]), "{case}");
            let passes = if kind == Kind::Pod {
                Decision::Patch
            } else {
                Decision::Allow
            };
            // Findings that are only recorded are not printed.
            for (let_be, reported) in [(IgnoredFields::Warn, vec![rule]), (IgnoredFields::Audit, vec![])] {
                let (decision, open, _) = evaluated(kind, &over, &with(let_be));
                assert_eq!((decision, open), (passes, reported), "{case} {let_be}");
            }
            let (decision, open, removed) = evaluated(kind, &over, &with(IgnoredFields::Remove));
            // The controller of a DaemonSet reads os.name from the template: without it Pod Security may require the field.
            let stays = kind == Kind::DaemonSet && ["capabilities", "seccomp-profile"].contains(&rule);
            let (left, gone) = if stays {
                (vec![rule], vec![])
            } else {
                (vec![], vec![rule])
            };
            assert_eq!((decision, open, removed), (passes, left, gone), "{case}");
        }
    }
}

/// Fields that fail anyway: at the API server, at the kubelet, or because the author depends on them.
#[test]
fn what_stops_a_pod_and_what_its_author_counts_on_is_denied_as_before() {
    for (over, rule) in [
        (json!({"hostNetwork": true}), "host-network"),
        (
            json!({"securityContext": {"sysctls": [{"name": "a", "value": "1"}]}}),
            "sysctls",
        ),
        (
            json!({"resources": {"limits": {"memory": "1Gi"}}}),
            "pod-level-resources",
        ),
        (
            json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}}),
            "supplemental-groups-policy",
        ),
        (
            json!({"os": {"name": "windows"}, "shareProcessNamespace": false}),
            "share-process-namespace",
        ),
    ] {
        for kind in KINDS {
            let (decision, open, _) = evaluated(kind, &over, &with(IgnoredFields::Warn));
            assert_eq!((decision, open), (Decision::Deny, vec![rule]), "{kind} {over}");
        }
    }
}

/// The API server validates a template like a pod: it would reject the workload before any field of a pod could be changed.
#[test]
fn removal_resolves_nothing_in_a_template_that_the_api_server_refuses() {
    let over = json!({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1000}});
    for kind in KINDS {
        let expected = if kind == Kind::Pod {
            Decision::Patch
        } else {
            Decision::Deny
        };
        assert_eq!(
            evaluated(kind, &over, &with(IgnoredFields::Remove)).0,
            expected,
            "{kind}"
        );
    }
}

#[test]
fn a_rule_with_a_word_of_its_own_goes_by_that() {
    let over = json!({"securityContext": {"runAsUser": 1000}});
    for (action, word, decision) in [
        (Action::Deny, IgnoredFields::Warn, Decision::Deny),
        (Action::Audit, IgnoredFields::Warn, Decision::Allow),
        (Action::Audit, IgnoredFields::Deny, Decision::Allow),
    ] {
        let policy = Policy {
            actions: [("TSM204", action)].into(),
            ..with(word)
        };
        assert_eq!(
            evaluated(Kind::Deployment, &over, &policy).0,
            decision,
            "{action} {word}"
        );
    }
    let audit = Policy {
        validation: Action::Audit,
        ..with(IgnoredFields::Warn)
    };
    assert_eq!(
        evaluated(Kind::Pod, &over, &audit),
        (Decision::Patch, vec![], vec![])
    );
}

/// The DaemonSet controller compares placement fields: tolerations may be added, the rest of placement must be in the
/// template.
#[test]
fn ignored_fields_are_removed_from_pods_of_a_daemonset_and_their_template_is_not_placed() {
    let over = json!({"shareProcessNamespace": false});
    let pod = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]},
        "spec": spec(&over)})
    .to_string();
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let subject = Object::parse(Kind::Pod, &pod, ReviewStage::Written).unwrap();
    let evaluation = evaluate(&subject, &facts, &with(IgnoredFields::Remove));
    let paths: Vec<String> = evaluation
        .edits
        .iter()
        .map(|edit| edit.path().to_string())
        .collect();
    assert_eq!(paths, ["spec.shareProcessNamespace", "spec.tolerations"]);
    assert_eq!(evaluation.removed.len(), 1);

    let template = object(Kind::DaemonSet, &spec(&over));
    let subject = Object::parse(Kind::DaemonSet, &template, ReviewStage::Written).unwrap();
    for placement in PlacementMode::ALL {
        let policy = Policy {
            placement,
            ..with(IgnoredFields::Remove)
        };
        let evaluation = evaluate(&subject, &facts, &policy);
        assert!(evaluation.edits.is_empty() && evaluation.would_edit.is_empty());
        let by_placement = |finding: &&Finding| finding.resolved_by == Some(Resolver::Placement);
        assert_eq!(
            evaluation.findings.iter().find(by_placement).map(|f| f.rule.name),
            None
        );
    }
}

/// A controller creates its pods and does not read warnings: what is known in advance is reported on the workload.
#[test]
fn a_gmsa_name_that_nothing_will_resolve_is_reported_at_the_workload() {
    let account = json!({"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "web"}}});
    for (kind, has_gmsa, stage, expected) in [
        (Kind::Deployment, Some(false), ReviewStage::Stored, true),
        (Kind::DaemonSet, Some(false), ReviewStage::Stored, true),
        (Kind::Deployment, Some(true), ReviewStage::Stored, false),
        (Kind::Deployment, None, ReviewStage::Stored, false),
        (Kind::Pod, Some(true), ReviewStage::Stored, true),
        // The webhook may still fill it in.
        (Kind::Pod, Some(false), ReviewStage::Written, false),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        facts.has_gmsa = has_gmsa;
        let json = object(kind, &spec(&account));
        let subject = Object::parse(kind, &json, stage).unwrap();
        let evaluation = evaluate(&subject, &facts, &Policy::standalone());
        let mut open = evaluation.open();
        let found = open.find(|finding| finding.rule.name == "gmsa-name-unresolved");
        assert_eq!(
            found.map(|finding| finding.action),
            expected.then_some(Action::Warn),
            "{kind} {has_gmsa:?}"
        );
    }
}

/// The constraints of OpenShift run before placement, and may reject the pods of a template without `spec.os.name`.
#[test]
fn on_openshift_a_template_has_to_say_windows_itself() {
    for (kind, has_scc, states, expected) in [
        (Kind::Deployment, true, false, true),
        (Kind::DaemonSet, true, false, true),
        (Kind::Deployment, true, true, false),
        (Kind::Deployment, false, false, false),
        (Kind::DaemonSet, false, false, false),
        // Placement sets it.
        (Kind::Pod, true, false, false),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        facts.has_scc = has_scc;
        let over = if states {
            json!({"os": {"name": "windows"}})
        } else {
            json!({})
        };
        let json = object(kind, &spec(&over));
        let subject = Object::parse(kind, &json, ReviewStage::Written).unwrap();
        let evaluation = evaluate(&subject, &facts, &Policy::standalone());
        let mut warned = evaluation.open().filter(|finding| finding.action == Action::Warn);
        let warned = warned.any(|finding| finding.rule.name == "os-name-missing");
        assert_eq!(warned, expected, "{kind} {has_scc} {states}");
    }
}

/// The findings of a pod on a release of Kubernetes: rule, severity and class, in their order.
fn findings(kubernetes: u32, spec: &Value, policy: &Policy) -> Vec<(&'static str, Severity, Class)> {
    let facts = Facts::new(kubernetes, date(2026, 1, 1));
    let json = object(Kind::Pod, spec);
    let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
    let evaluation = evaluate(&subject, &facts, policy);
    let findings = evaluation.open().map(|f| (f.rule.name, f.severity, f.class));
    findings.collect()
}

#[test]
fn a_certain_linux_image_in_a_certain_windows_pod_is_an_error_and_comes_first() {
    let policy = Policy::standalone();
    let pod = |image: &str| {
        spec(&json!({
            "securityContext": {"sysctls": [{"name": "a", "value": "1"}]},
            "containers": [
                {"name": "web", "image": "registry.example.com/web:1", "securityContext": {"runAsUser": 1}},
                {"name": "other", "image": image},
            ],
        }))
    };
    let name = "linux-image-on-windows-pod";
    for image in [
        "nginx:1.29-alpine",
        "docker.io/bitnami/redis:7.2.4-debian-12-r9",
        "registry.example.com/web:linux-1.0",
        "registry.example.com/web:1.0-linux-amd64",
    ] {
        let found = findings(Facts::KUBERNETES, &pod(image), &policy);
        assert_eq!(
            found.first().map(|f| (f.0, f.1)),
            Some((name, Severity::Error)),
            "{image}"
        );
        assert!(found.len() > 2, "{image}: {found:?}");
    }
    for image in [
        "registry.example.com/web:1.0-alpine",
        "nginx:1.29",
        "registry.example.com/redis:7-debian-12-r9",
    ] {
        let found = findings(Facts::KUBERNETES, &pod(image), &policy);
        let this = found.iter().position(|f| f.0 == name).unwrap();
        let last_error = found.iter().rposition(|f| f.1 == Severity::Error).unwrap();
        assert!(
            found[this].1 == Severity::Warning && this > last_error,
            "{image}: {found:?}"
        );
    }
    // The name of an image alone does not make the pod certainly Windows.
    let both = json!({"containers": [
        {"name": "a", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"},
        {"name": "b", "image": "nginx:1.29-alpine"},
    ]});
    let mixed = |spec: &Value| {
        let found = findings(Facts::KUBERNETES, spec, &policy);
        found.iter().find(|f| f.0 == "mixed-os-images").map(|f| f.1)
    };
    assert_eq!(mixed(&both), Some(Severity::Warning));
    let mut selected = both.clone();
    selected["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
    assert_eq!(mixed(&selected), Some(Severity::Error));
}

/// The findings of one rule in an object with this pod spec.
fn of_rule(
    kind: Kind,
    labels: &Value,
    spec: &Value,
    facts: &Facts,
    policy: &Policy,
    rule: &str,
) -> Vec<(Severity, Class)> {
    let mut object = json!({"metadata": {"labels": labels}, "spec": spec});
    if kind != Kind::Pod {
        object = json!({"spec": {"template": object}});
    }
    let json = object.to_string();
    let subject = Object::parse(kind, &json, ReviewStage::Stored).unwrap();
    let findings = evaluate(&subject, facts, policy).findings.into_iter();
    findings
        .filter(|finding| finding.rule.name == rule)
        .map(|finding| (finding.severity, finding.class))
        .collect()
}

#[test]
fn a_label_that_contradicts_a_guess_denies_nothing() {
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let by_default = |os| Policy {
        default_os: Some(os),
        ..Policy::standalone()
    };
    let pod = |image: &str| json!({"nodeSelector": {"agentpool": "win1"}, "containers": [{"name": "web", "image": image}]});
    let private = pod("registry.example.com/web:1");
    let core = pod("mcr.microsoft.com/windows/servercore:ltsc2022");
    let selected = spec(&json!({}));
    let warning = vec![(Severity::Warning, Class::BestPractice)];
    for (label, spec, policy, expected) in [
        ("windows", &private, by_default(Os::Linux), vec![]),
        ("linux", &private, by_default(Os::Windows), vec![]),
        ("linux", &core, Policy::standalone(), warning.clone()),
        ("linux", &core, by_default(Os::Linux), warning),
        (
            "linux",
            &selected,
            by_default(Os::Linux),
            vec![(Severity::Error, Class::Admit)],
        ),
    ] {
        for kind in [Kind::Pod, Kind::Deployment] {
            let labels = json!({"kubernetes.io/os": label});
            let found = of_rule(kind, &labels, spec, &facts, &policy, "pod-os-label-mismatch");
            assert_eq!(found, expected, "{kind} {label} {spec} {policy:?}");
        }
    }
}

#[test]
fn a_prediction_assumes_the_labels_that_a_node_policy_only_audits_and_a_placement_does_not() {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for build in [17763, 20348].map(Build::new) {
        facts.add_host(Host {
            name: format!("w{build}"),
            build: Some(build),
            labels: [(OS_LABEL.to_owned(), "windows".to_owned())].into(),
            audited_labels: vec![(BUILD_LABEL, build.to_string())],
            ..Host::default()
        });
    }
    let facts = facts.with_predictions();
    let image = "mcr.microsoft.com/windows/servercore:ltsc2022";
    let pod = object(
        Kind::Pod,
        &spec(&json!({"containers": [{"name": "web", "image": image}]})),
    );
    let subject = Object::parse(Kind::Pod, &pod, ReviewStage::Written).unwrap();
    let by_label = |edits: &[Edit]| {
        let edits = json!(edits).to_string();
        edits.contains(BUILD_LABEL) && edits.contains("10.0.20348")
    };
    let predicted = evaluate(&subject, &facts, &Policy::cluster_default());
    assert!(by_label(&predicted.would_edit), "{:?}", predicted.would_edit);
    let placed = evaluate(&subject, &facts, &Policy::standalone());
    assert!(!by_label(&placed.edits), "{:?}", placed.edits);
}

#[test]
fn a_daemonset_is_denied_only_for_a_wrong_node_that_it_certainly_reaches() {
    let host = |build: u32, taint: Option<&str>| Host {
        name: format!("w{build}"),
        build: Some(Build::new(build)),
        taints: taint
            .map(|key| Taint::no_schedule(key, "blue"))
            .into_iter()
            .collect(),
        labels: [(OS_LABEL.to_owned(), "windows".to_owned())].into(),
        ..Host::default()
    };
    let pool = |build: u32, labels: &[(&str, &str)]| Host {
        may_be_at_zero: true,
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..host(build, None)
    };
    let image = |over: Value| {
        let mut spec = spec(
            &json!({"containers": [{"name": "web", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]}),
        );
        json_patch::merge(&mut spec, &over);
        spec
    };
    let plain = image(json!({}));
    let tolerant = image(json!({"tolerations": [{"key": "team", "operator": "Exists"}]}));
    let of_pool = image(json!({"nodeSelector": {"agentpool": "win"}}));
    let of_class = image(json!({"runtimeClassName": "unknown"}));
    let (none, warning, error) = (None, Some(Severity::Warning), Some(Severity::Error));
    let win = &[("agentpool", "win")][..];
    for (hosts, declared, spec, expected) in [
        (vec![host(17763, None)], vec![], &plain, error),
        (vec![host(17763, Some("team"))], vec![], &plain, none),
        (vec![host(17763, Some("team"))], vec![], &tolerant, error),
        // The controller tolerates it itself, or it does not last.
        (
            vec![host(17763, Some("node.kubernetes.io/unschedulable"))],
            vec![],
            &plain,
            error,
        ),
        // A remembered pool may no longer exist; a declared one does.
        (vec![pool(17763, &[])], vec![], &plain, warning),
        (vec![pool(17763, &[]), host(17763, None)], vec![], &plain, error),
        (vec![], vec![pool(17763, &[])], &plain, error),
        // Whether its nodes have the label is not known.
        (vec![], vec![pool(17763, &[])], &of_pool, warning),
        (vec![], vec![pool(17763, win)], &of_pool, error),
        (vec![host(17763, None)], vec![], &of_class, none),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        hosts.iter().cloned().for_each(|host| facts.add_host(host));
        facts.pools.clone_from(&declared);
        let found = of_rule(
            Kind::DaemonSet,
            &json!({}),
            spec,
            &facts,
            &Policy::standalone(),
            "daemonset-spans-builds",
        );
        let severities: Vec<Severity> = found.into_iter().map(|(severity, _)| severity).collect();
        assert_eq!(
            severities,
            Vec::from_iter(expected),
            "{hosts:?} {declared:?} {spec}"
        );
    }
}

#[test]
fn a_daemonset_without_the_toleration_is_denied_only_if_all_its_nodes_and_pools_are_tainted() {
    let host = |name: &str, is_tainted: bool| Host {
        name: name.to_owned(),
        build: Some(Build::new(20348)),
        taints: is_tainted
            .then(|| Taint::no_schedule("os", "windows"))
            .into_iter()
            .collect(),
        labels: [(OS_LABEL.to_owned(), "windows".to_owned())].into(),
        ..Host::default()
    };
    let pool = |is_tainted: bool| Host {
        may_be_at_zero: true,
        ..host("pool", is_tainted)
    };
    let (none, warning, error) = (None, Some(Severity::Warning), Some(Severity::Error));
    for (hosts, declared, over, of_daemon_set, of_deployment) in [
        (vec![host("a", true)], vec![], json!({}), error, warning),
        (
            vec![host("a", true), host("b", true)],
            vec![pool(true)],
            json!({}),
            error,
            warning,
        ),
        (
            vec![host("a", true), host("b", false)],
            vec![],
            json!({}),
            warning,
            warning,
        ),
        (
            vec![host("a", true)],
            vec![pool(false)],
            json!({}),
            warning,
            warning,
        ),
        (vec![host("a", false)], vec![], json!({}), none, none),
        (
            vec![host("a", true)],
            vec![],
            json!({"tolerations": [{"key": "os", "operator": "Exists"}]}),
            none,
            none,
        ),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        hosts.iter().cloned().for_each(|host| facts.add_host(host));
        facts.pools.clone_from(&declared);
        for (kind, expected) in [
            (Kind::DaemonSet, of_daemon_set),
            (Kind::Deployment, of_deployment),
        ] {
            let found = of_rule(
                kind,
                &json!({}),
                &spec(&over),
                &facts,
                &Policy::standalone(),
                "missing-windows-toleration",
            );
            let severities: Vec<Severity> = found.into_iter().map(|(severity, _)| severity).collect();
            assert_eq!(
                severities,
                Vec::from_iter(expected),
                "{kind} {hosts:?} {declared:?} {over}"
            );
        }
    }
}

#[test]
fn a_daemonset_with_a_selector_that_is_not_known_is_not_denied() {
    let term = |key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
    let affinity = |terms: &[Value]| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}}})
    };
    let group = "eks.amazonaws.com/nodegroup";
    let host_process =
        json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}});
    let os = json!({"os": {"name": "windows"}});
    let (warning, error) = (vec![Severity::Warning], vec![Severity::Error]);
    for (over, expected) in [
        (json!({}), &error),
        (json!({"nodeSelector": {group: "win-ng"}}), &warning),
        (affinity(&[term(group, &["win-ng"])]), &warning),
        (
            affinity(&[term(group, &["win-ng"]), term(OS_LABEL, &["windows"])]),
            &warning,
        ),
        (
            affinity(&[term(group, &["win-ng"]), term(OS_LABEL, &["linux", "windows"])]),
            &error,
        ),
        (affinity(&[term(OS_LABEL, &["linux", "windows"])]), &error),
    ] {
        for signs in [&host_process, &os] {
            let mut spec = json!({"containers": [{"name": "web", "image": "registry.example.com/web:1"}]});
            json_patch::merge(&mut spec, signs);
            json_patch::merge(&mut spec, &over);
            for nodes in [0, 1] {
                let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
                (0..nodes).for_each(|_| facts.add_host(Host::default()));
                let policy = Policy::standalone();
                let rule = "daemonset-template-unselective";
                let found = of_rule(Kind::DaemonSet, &json!({}), &spec, &facts, &policy, rule);
                let severities: Vec<Severity> = found.into_iter().map(|(severity, _)| severity).collect();
                assert_eq!(&severities, expected, "{spec}");
            }
        }
    }
}

#[test]
fn run_as_user_stops_the_pod_at_kubelets_of_old_releases() {
    let of_pod = json!({"securityContext": {"runAsUser": 1000}});
    let container = |user: bool| {
        let mut container = json!({"name": "web", "image": "registry.example.com/web:1"});
        if user {
            container["securityContext"] = json!({"runAsUser": 1000});
        }
        container
    };
    let one = json!({"containers": [container(true), container(false)]});
    let all = json!({"containers": [container(true), container(true)]});
    let class = |kubernetes, over: &Value, policy: &Policy| {
        let found = findings(kubernetes, &spec(over), policy);
        found.iter().find(|f| f.0 == "run-as-user").map(|f| f.2)
    };
    let deny = with(IgnoredFields::Deny);
    for (kubernetes, over, expected) in [
        (30, &of_pod, Class::Run),
        (21, &of_pod, Class::Run),
        (30, &all, Class::Run),
        // The kubelet gives the token to a user only if all containers have it.
        (30, &one, Class::Api),
        (31, &of_pod, Class::Api),
        (20, &of_pod, Class::Api),
    ] {
        assert_eq!(
            class(kubernetes, over, &deny),
            Some(expected),
            "{kubernetes}: {over}"
        );
    }
    // The API server rejects such a pod before any kubelet sees it.
    let states = json!({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1000}});
    assert_eq!(class(30, &states, &deny), Some(Class::Api));
    assert_eq!(class(30, &of_pod, &with(IgnoredFields::Remove)), None);
    for (kubernetes, expected) in [(30, Decision::Deny), (31, Decision::Patch)] {
        let json = object(Kind::Pod, &spec(&of_pod));
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
        let facts = Facts::new(kubernetes, date(2026, 1, 1));
        let evaluation = evaluate(&subject, &facts, &with(IgnoredFields::Warn));
        assert_eq!(evaluation.decision(), expected, "{kubernetes}");
    }
}

/// Containers of an image, each with this security context.
fn containers(prefix: &str, count: usize, image: &str, context: &Value) -> Vec<Value> {
    let each = |n| json!({"name": format!("{prefix}{n}"), "image": image, "securityContext": context});
    (0..count).map(each).collect()
}

fn evaluation_of(over: &Value, policy: &Policy, origin: Origin) -> Evaluation {
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let json = object(Kind::Pod, &spec(over));
    let read = Object::parse(Kind::Pod, &json, ReviewStage::Stored).unwrap();
    let context = ReviewContext {
        origin,
        ..read.context
    };
    let subject = Object { context, ..read };
    evaluate(&subject, &facts, policy)
}

fn count(evaluation: &Evaluation, rule: &str) -> usize {
    let of_rule = evaluation.findings.iter().filter(|found| found.rule.name == rule);
    of_rule.count()
}

#[test]
fn many_findings_of_one_rule_hide_no_other_rule() {
    let items: Vec<Value> = (0..100)
        .map(|n| json!({"key": format!("k{n}"), "path": format!("p{n}"), "mode": 493}))
        .collect();
    let volumes: Vec<Value> = (0..101)
        .map(|n| json!({"name": format!("v{n}"), "configMap": {"name": "c", "items": items}}))
        .collect();
    let advice = json!({ "volumes": volumes });
    let plain = evaluation_of(&advice, &Policy::standalone(), Origin::Author);
    assert_eq!(plain.decision(), Decision::Allow);
    assert!(plain.findings.len() < 1_000, "{}", plain.findings.len());
    let cut: Vec<_> = (plain.findings.iter())
        .filter(|finding| !finding.over_limit.is_empty())
        .collect();
    let [cut] = cut[..] else { panic!("{cut:?}") };
    let more = 101 * 100 - MOST_OF_A_RULE;
    assert_eq!(cut.over_limit.len(), more);
    assert!(
        cut.message
            .ends_with(&format!("(and {} more places that are not listed)", more - 1)),
        "{}",
        cut.message
    );
    // One rule before the volume rule, and one after it.
    let latest = json!([{"name": "a", "image": "mcr.microsoft.com/windows/servercore:latest"}]);
    for bad in [
        json!({"volumes": volumes, "hostPID": true}),
        json!({"volumes": volumes, "containers": latest}),
    ] {
        let denied = evaluation_of(&bad, &Policy::standalone(), Origin::Author);
        assert_eq!(denied.decision(), Decision::Deny);
    }
}

#[test]
fn of_the_findings_that_are_too_many_the_one_that_does_most_is_kept() {
    let many = MOST_OF_A_RULE + 50;
    let mut advice = containers("a", many, "registry.example.com/app", &Value::Null);
    let allowed = evaluation_of(
        &json!({ "containers": advice }),
        &Policy::standalone(),
        Origin::Author,
    );
    assert_eq!(allowed.decision(), Decision::Allow);
    let error = json!({"name": "error", "image": "mcr.microsoft.com/windows/servercore:latest"});
    for at in [0, MOST_OF_A_RULE - 1, MOST_OF_A_RULE, MOST_OF_A_RULE + 1, many] {
        advice.insert(at, error.clone());
        let denied = evaluation_of(
            &json!({ "containers": advice }),
            &Policy::standalone(),
            Origin::Author,
        );
        assert_eq!(denied.decision(), Decision::Deny, "{at}");
        assert_eq!(
            count(&denied, "image-untagged-or-latest"),
            MOST_OF_A_RULE + 1,
            "{at}"
        );
        let first = &denied.findings[0];
        assert_eq!(
            (first.rule.name, first.severity),
            ("image-untagged-or-latest", Severity::Error)
        );
        advice.remove(at);
    }
}

#[test]
fn only_findings_that_no_exemption_lifts_are_too_many() {
    let mut policy = Policy::standalone();
    policy.exemptions.push(crate::model::cluster::policy::Exemption {
        rules: vec!["TSM214"],
        images: vec!["registry.example.com/exempt*".to_owned()],
        note: "exempt".to_owned(),
    });
    let privileged = json!({"privileged": true});
    let exempt = containers(
        "e",
        MOST_OF_A_RULE * 2,
        "registry.example.com/exempt:1",
        &privileged,
    );
    let allowed = evaluation_of(&json!({ "containers": exempt }), &policy, Origin::Author);
    assert_eq!(allowed.decision(), Decision::Allow);
    let other = containers("o", 1, "registry.example.com/other:1", &privileged);
    let both = [exempt, other].concat();
    let denied = evaluation_of(&json!({ "containers": both }), &policy, Origin::Author);
    assert_eq!(denied.decision(), Decision::Deny);
    assert_eq!(count(&denied, "privileged"), 1);
    // An object that its owner's controller created was evaluated at the owner.
    let of_controller = evaluation_of(&json!({ "containers": both }), &policy, Origin::Controller);
    assert_eq!(of_controller.decision(), Decision::Allow);
}

#[test]
fn removal_leaves_no_finding_behind_that_was_too_many_to_keep() {
    let many = containers(
        "a",
        MOST_OF_A_RULE * 2,
        "registry.example.com/web:1",
        &json!({"privileged": true}),
    );
    let subject = object(Kind::Pod, &spec(&json!({ "containers": many })));
    let subject = Object::parse(Kind::Pod, &subject, ReviewStage::Written).unwrap();
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let evaluation = evaluate(&subject, &facts, &with(IgnoredFields::Remove));
    let open: Vec<_> = evaluation
        .open()
        .filter(|found| found.rule.name == "privileged")
        .collect();
    let [open] = open[..] else { panic!("{open:?}") };
    assert_eq!(open.over_limit.len(), MOST_OF_A_RULE);
}

/// Removes the fields of a pod that the restricted profile requires of Linux pods, in a namespace with these labels. Returns
/// the removed fields, whether the pod says Windows afterwards, and the rules that warn or deny.
fn of_restricted(
    kind: Kind,
    over: &Value,
    labels: &[(&str, &str)],
    policy: &Policy,
) -> (Vec<String>, bool, Vec<(&'static str, Action)>) {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let labels = labels
        .iter()
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), (*value).to_owned()));
    let namespace = NamespaceFacts {
        labels: labels.collect(),
        ..NamespaceFacts::default()
    };
    std::sync::Arc::make_mut(&mut facts.namespaces).insert("shop".to_owned(), namespace);
    let mut all = spec(&json!({
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 1, "runAsNonRoot": true},
        "containers": [{"name": "web", "image": "registry.example.com/web:1", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}));
    json_patch::merge(&mut all, over.get("spec").unwrap_or(&json!({})));
    let mut json: Value = serde_json::from_str(&object(kind, &all)).unwrap();
    json["metadata"] = over["metadata"].clone();
    json["metadata"]["namespace"] = "shop".into();
    let json = json.to_string();
    let subject = Object::parse(kind, &json, ReviewStage::Written).unwrap();
    let evaluation = evaluate(&subject, &facts, policy);
    let removed = evaluation
        .removed
        .iter()
        .filter_map(|path| Some(path.to_string().rsplit_once('.')?.1.to_owned()));
    let says_windows = evaluation
        .edits
        .iter()
        .any(|edit| edit.path().to_string().ends_with("spec.os"));
    let open = evaluation.open().filter(|finding| finding.action >= Action::Warn);
    (
        removed.collect(),
        says_windows,
        open.map(|finding| (finding.rule.name, finding.action)).collect(),
    )
}

/// Source: kubernetes, pod-security-admission: the restricted profile requires three fields, except with
/// `spec.os.name: windows`, and of that since 1.25.
#[test]
#[allow(clippy::too_many_lines)] // one table of cases
fn what_pod_security_may_require_stays_in_a_pod_that_does_not_say_windows() {
    let three = ["allowPrivilegeEscalation", "capabilities", "seccompProfile"];
    let (none, profile) = (json!({}), |profile| vec![("enforce", profile)]);
    let of_daemon_set = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]}});
    let sysctls = json!({"spec": {"securityContext": {"sysctls": [{"name": "a", "value": "1"}]}}});
    let old = vec![("enforce", "restricted"), ("enforce-version", "v1.24")];
    let new = vec![("enforce", "restricted"), ("enforce-version", "v1.25")];
    let without_os_name = PlacementField::ALL
        .into_iter()
        .filter(|field| *field != PlacementField::OsName);
    let withheld = with(IgnoredFields::Remove);
    let no_os_name = Policy {
        placed: without_os_name.collect(),
        ..withheld.clone()
    };
    let unplaced = Policy {
        placement: PlacementMode::Disabled,
        ..withheld.clone()
    };
    let dry = Policy {
        placement: PlacementMode::Audit,
        ..withheld.clone()
    };
    for (case, kind, over, labels, policy, says_windows, stays) in [
        (
            "placed",
            Kind::Pod,
            &none,
            profile("restricted"),
            &withheld,
            true,
            false,
        ),
        ("placed, 1.25", Kind::Pod, &none, new, &withheld, true, false),
        ("placed, 1.24", Kind::Pod, &none, old, &withheld, false, true),
        (
            "placed by its pods",
            Kind::Deployment,
            &none,
            profile("restricted"),
            &withheld,
            false,
            false,
        ),
        (
            "of a DaemonSet",
            Kind::Pod,
            &of_daemon_set,
            profile("restricted"),
            &withheld,
            false,
            true,
        ),
        (
            "of a DaemonSet, default profile",
            Kind::Pod,
            &of_daemon_set,
            vec![],
            &withheld,
            false,
            true,
        ),
        (
            "of a DaemonSet, unknown value",
            Kind::Pod,
            &of_daemon_set,
            profile("Baseline"),
            &withheld,
            false,
            true,
        ),
        (
            "of a DaemonSet, baseline",
            Kind::Pod,
            &of_daemon_set,
            profile("baseline"),
            &withheld,
            false,
            false,
        ),
        (
            "of a DaemonSet, privileged",
            Kind::Pod,
            &of_daemon_set,
            profile("privileged"),
            &withheld,
            false,
            false,
        ),
        (
            "DaemonSet",
            Kind::DaemonSet,
            &none,
            profile("restricted"),
            &withheld,
            false,
            true,
        ),
        (
            "no OSName",
            Kind::Pod,
            &none,
            profile("restricted"),
            &no_os_name,
            false,
            true,
        ),
        (
            "no OSName",
            Kind::Deployment,
            &none,
            profile("restricted"),
            &no_os_name,
            false,
            true,
        ),
        (
            "withheld",
            Kind::Pod,
            &sysctls,
            profile("restricted"),
            &withheld,
            false,
            true,
        ),
        (
            "no placement",
            Kind::Pod,
            &none,
            profile("restricted"),
            &unplaced,
            false,
            true,
        ),
        (
            "dry placement",
            Kind::Pod,
            &none,
            profile("restricted"),
            &dry,
            false,
            true,
        ),
    ] {
        let case = format!("{case}: {kind}");
        let (mut removed, says, open) = of_restricted(kind, over, &labels, policy);
        removed.sort();
        assert_eq!(says, says_windows, "{case}");
        assert!(removed.contains(&"fsGroup".to_owned()), "{case}: {removed:?}");
        let found: Vec<&str> = removed
            .iter()
            .map(String::as_str)
            .filter(|field| three.contains(field))
            .collect();
        assert_eq!(found, if stays { &[][..] } else { &three[..] }, "{case}");
        // What stays is ignored by Windows: the pod is not denied for it.
        let of_three = open.into_iter().filter(|(rule, _)| {
            ["allow-privilege-escalation", "capabilities", "seccomp-profile"].contains(rule)
        });
        let of_three: Vec<Action> = of_three.map(|(_, action)| action).collect();
        assert_eq!(
            of_three,
            if stays { vec![Action::Warn; 3] } else { vec![] },
            "{case}"
        );
    }
}

/// In a user namespace the restricted profile accepts root.
#[test]
fn a_user_namespace_that_pod_security_relies_on_stays() {
    let restricted = [("enforce", "restricted")];
    let removed_by = |over: Value, policy: &Policy| {
        let over = json!({ "spec": over });
        of_restricted(Kind::Pod, &over, &restricted, policy)
            .0
            .contains(&"hostUsers".to_owned())
    };
    let removed = |over| removed_by(over, &with(IgnoredFields::Remove));
    assert!(removed(
        json!({"hostUsers": true, "securityContext": {"runAsNonRoot": null}})
    ));
    assert!(removed(json!({"hostUsers": false})));
    assert!(!removed(
        json!({"hostUsers": false, "securityContext": {"runAsNonRoot": null}})
    ));
    // The same review removes the field that relies on it, unless the policy keeps that field.
    let root = json!({"hostUsers": false, "securityContext": {"runAsUser": 0}});
    assert!(removed(root.clone()));
    let mut keeps_user = with(IgnoredFields::Remove);
    keeps_user.actions.insert("TSM204", Action::Disabled);
    assert!(!removed_by(root, &keeps_user));
}

/// The selector that placement adds leads the pod to nodes whose taint it may not tolerate.
#[test]
fn a_taint_that_only_the_placed_pod_meets_is_predicted() {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    facts.add_host(Host {
        name: "w".to_owned(),
        labels: ["kubernetes.io/os", "beta.kubernetes.io/os"]
            .map(|label| (label.to_owned(), "windows".to_owned()))
            .into(),
        taints: vec![Taint::no_schedule("os", "windows")],
        ..Host::default()
    });
    let namespace = NamespaceFacts {
        tolerations_whitelist: Some(r#"[{"key": "tenant"}]"#.to_owned()),
        ..NamespaceFacts::default()
    };
    std::sync::Arc::make_mut(&mut facts.namespaces).insert("shop".to_owned(), namespace);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}, "spec": {
        "nodeSelector": {"beta.kubernetes.io/os": "Windows"}, "containers": [{"name": "a", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}});
    let open = |policy: &Policy| {
        let json = pod.to_string();
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap();
        let evaluation = evaluate(&subject, &facts, policy);
        let taints: Vec<Action> = (evaluation.open().filter(|it| it.rule.id == "TSM701"))
            .map(|it| it.action)
            .collect();
        let exempted = evaluation.exempted.iter().flat_map(|(_, exempted)| exempted);
        (taints, exempted.filter(|it| it.rule.id == "TSM701").count())
    };
    let mut policy = Policy::standalone();
    assert_eq!(open(&policy), (vec![Action::Warn], 0));
    policy.exemptions = vec![Exemption {
        rules: vec!["TSM701"],
        ..Exemption::default()
    }];
    assert_eq!(open(&policy), (vec![], 1));
}

#[test]
fn a_remedy_promises_only_what_the_profile_of_the_namespace_grants() {
    let over = json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}});
    let json = object(Kind::Pod, &spec(&over));
    let subject = Object {
        namespace: "shop".into(),
        ..Object::parse(Kind::Pod, &json, ReviewStage::Written).unwrap()
    };
    let remedy = |version: &str, kubernetes: u32| {
        let labels = [("enforce", "restricted"), ("enforce-version", version)];
        let labels =
            labels.map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value.to_owned()));
        let mut facts = Facts::new(kubernetes, date(2026, 1, 1));
        let namespace = NamespaceFacts {
            labels: labels.into(),
            ..NamespaceFacts::default()
        };
        std::sync::Arc::make_mut(&mut facts.namespaces).insert("shop".to_owned(), namespace);
        let evaluation = evaluate(&subject, &facts, &Policy::standalone());
        let mut findings = evaluation.findings.into_iter();
        let finding = findings.find(|finding| finding.rule.name == "seccomp-profile");
        finding.unwrap().remedy.into_owned()
    };
    let exempts = "remove it; with spec.os.name: windows, Pod Security does not require it";
    for version in ["latest", "v1.25"] {
        assert_eq!(remedy(version, Facts::KUBERNETES), exempts);
    }
    let requires = "remove it; Pod Security's restricted profile requires it of every pod before v1.25: enforce a later version";
    assert_eq!(remedy("v1.24", Facts::KUBERNETES), requires);
    assert_eq!(remedy("latest", 24), requires);
}
