//! What the policy's word for inert fields does, in pods, in templates, and beside what is no inert field.

use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::model::policy::{Inert, Switch};
use crate::model::subject::Stage;
use crate::model::workload::Kind;
use crate::rules::Resolver;

/// A pod spec that is for Windows, with this laid over it.
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

/// Decision, the rules that are open at Warn or above, and those that repair resolves.
fn judged(kind: Kind, over: &Value, policy: &Policy) -> (Decision, Vec<&'static str>, Vec<&'static str>) {
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let json = object(kind, &spec(over));
    let subject = Subject::parse(kind, &json, Stage::Written).unwrap();
    let inspection = inspect(&subject, &facts, policy);
    let open = inspection.open().filter(|finding| finding.action >= Action::Warn);
    let open = open.map(|finding| finding.rule.name).collect();
    let repaired = inspection.findings.iter();
    let repaired = repaired.filter(|finding| finding.resolved_by == Some(Resolver::Repair));
    (
        inspection.decision(),
        open,
        repaired.map(|finding| finding.rule.name).collect(),
    )
}

fn with(inert: Inert) -> Policy {
    Policy {
        inert,
        ..Policy::standalone()
    }
}

const KINDS: [Kind; 3] = [Kind::Pod, Kind::Deployment, Kind::DaemonSet];

/// Fields that Windows ignores and no API server refuses, with their rules.
fn inert_fields() -> Vec<(Value, &'static str)> {
    let of_container = |field: &str, value: Value| {
        json!({"containers": [{"name": "web", "image": "registry.example.com/web:1",
            "securityContext": {field: value}}]})
    };
    vec![
        (of_container("privileged", json!(false)), "privileged"),
        (of_container("runAsUser", json!(1000)), "run-as-user"),
        (
            of_container("capabilities", json!({"drop": ["ALL"]})),
            "capabilities",
        ),
        (
            of_container("readOnlyRootFilesystem", json!(true)),
            "read-only-root-filesystem",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
            "seccomp-profile",
        ),
        (json!({"securityContext": {"fsGroup": 0}}), "fs-group"),
        (json!({"shareProcessNamespace": false}), "share-process-namespace"),
        (
            json!({"dnsPolicy": "ClusterFirstWithHostNet"}),
            "dns-cluster-first-with-host-net",
        ),
    ]
}

#[test]
fn one_word_says_what_becomes_of_fields_that_windows_ignores() {
    for kind in KINDS {
        for (over, rule) in inert_fields() {
            let case = format!("{kind} {over}");
            for inert in [Inert::Deny, Inert::DryRun] {
                let (decision, open, _) = judged(kind, &over, &with(inert));
                assert_eq!((decision, open), (Decision::Deny, vec![rule]), "{case} {inert}");
            }
            let (decision, open, _) = judged(kind, &over, &with(Inert::Warn));
            assert_eq!((decision, open), (Decision::Allow, vec![rule]), "{case}");
            let (decision, open, repaired) = judged(kind, &over, &with(Inert::Repair));
            assert_eq!(
                (decision, open, repaired),
                (Decision::Allow, vec![], vec![rule]),
                "{case}"
            );
        }
    }
}

/// What fails all the same, at the API server, at the kubelet, or because the author counts on it.
#[test]
fn what_stops_a_pod_and_what_its_author_counts_on_is_denied_as_before() {
    for (over, rule) in [
        (json!({"hostNetwork": true}), "host-network"),
        (json!({"hostPID": true}), "host-pid"),
        (json!({"hostIPC": true}), "host-ipc"),
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
            json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}),
            "empty-dir-memory",
        ),
        (
            json!({"os": {"name": "windows"}, "shareProcessNamespace": false}),
            "share-process-namespace",
        ),
    ] {
        for kind in KINDS {
            let (decision, open, _) = judged(kind, &over, &with(Inert::Warn));
            assert_eq!((decision, open), (Decision::Deny, vec![rule]), "{kind} {over}");
        }
    }
}

/// The API server asks the template what it asks a pod: it would refuse the workload before any pod could be repaired.
#[test]
fn repair_resolves_nothing_in_a_template_that_the_api_server_refuses() {
    let over = json!({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1000}});
    for kind in KINDS {
        let expected = if kind == Kind::Pod {
            Decision::Allow
        } else {
            Decision::Deny
        };
        assert_eq!(judged(kind, &over, &with(Inert::Repair)).0, expected, "{kind}");
    }
}

#[test]
fn a_rule_with_a_word_of_its_own_goes_by_that() {
    let over = json!({"securityContext": {"runAsUser": 1000}});
    for (action, inert, decision) in [
        (Action::Deny, Inert::Warn, Decision::Deny),
        (Action::Audit, Inert::Warn, Decision::Allow),
        (Action::Audit, Inert::Deny, Decision::Allow),
    ] {
        let policy = Policy {
            actions: [("TSM204", action)].into(),
            ..with(inert)
        };
        assert_eq!(
            judged(Kind::Deployment, &over, &policy).0,
            decision,
            "{action} {inert}"
        );
    }
    let audit = Policy {
        validation: Action::Audit,
        ..with(Inert::Warn)
    };
    assert_eq!(
        judged(Kind::Pod, &over, &audit),
        (Decision::Allow, vec![], vec![])
    );
}

/// Its controller compares what places a pod: tolerations may be added, the rest of placement stands in the template.
#[test]
fn pods_of_a_daemonset_are_repaired_and_their_template_is_not_placed() {
    let over = json!({"shareProcessNamespace": false});
    let pod = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]},
        "spec": spec(&over)})
    .to_string();
    let facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    let subject = Subject::parse(Kind::Pod, &pod, Stage::Written).unwrap();
    let inspection = inspect(&subject, &facts, &with(Inert::Repair));
    let paths: Vec<String> = inspection
        .edits
        .iter()
        .map(|edit| edit.path().to_string())
        .collect();
    assert_eq!(paths, ["spec.shareProcessNamespace", "spec.tolerations"]);
    assert_eq!(inspection.repaired.len(), 1);

    let template = object(Kind::DaemonSet, &spec(&over));
    let subject = Subject::parse(Kind::DaemonSet, &template, Stage::Written).unwrap();
    for placement in Switch::ALL {
        let policy = Policy {
            placement,
            ..with(Inert::Repair)
        };
        let inspection = inspect(&subject, &facts, &policy);
        assert!(inspection.edits.is_empty() && inspection.would_edit.is_empty());
        let by_placement = |finding: &&Finding| finding.resolved_by == Some(Resolver::Placement);
        assert_eq!(
            inspection.findings.iter().find(by_placement).map(|f| f.rule.name),
            None
        );
    }
}

/// The constraints of OpenShift are asked before placement, and may refuse the pods of a template that says nothing.
#[test]
fn on_openshift_a_template_has_to_say_windows_itself() {
    for (kind, has_scc, says, expected) in [
        (Kind::Deployment, true, false, true),
        (Kind::DaemonSet, true, false, true),
        (Kind::Deployment, true, true, false),
        (Kind::Deployment, false, false, false),
        (Kind::DaemonSet, false, false, false),
        // Placement says it.
        (Kind::Pod, true, false, false),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        facts.has_scc = has_scc;
        let over = if says {
            json!({"os": {"name": "windows"}})
        } else {
            json!({})
        };
        let json = object(kind, &spec(&over));
        let subject = Subject::parse(kind, &json, Stage::Written).unwrap();
        let inspection = inspect(&subject, &facts, &Policy::standalone());
        let mut warned = inspection.open().filter(|finding| finding.action == Action::Warn);
        let warned = warned.any(|finding| finding.rule.name == "os-name-missing");
        assert_eq!(warned, expected, "{kind} {has_scc} {says}");
    }
}
