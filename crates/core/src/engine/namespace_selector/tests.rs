use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::engine::policy_set::StoredPolicy;
use crate::engine::{AdmissionStage, Decision, evaluate};
use crate::model::nodes::namespace_selector::StatedSelectors;
use crate::model::nodes::node::Host;
use crate::model::nodes::node_affinity::Match;
use crate::model::objects::object::ReviewStage;
use crate::model::objects::workload::Kind;
use crate::model::windows::os::EvidenceKind;

const WINDOWS: &str = "kubernetes.io/os=windows";
const LINUX: &str = "kubernetes.io/os=linux";
const SERVERCORE: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";

fn selector(pairs: &[(&str, &str)]) -> NodeSelector {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// The facts of a cluster with the namespace `shop`, before anything is resolved.
fn facts(namespace: NamespaceFacts) -> Facts {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 6, 1));
    facts.namespaces = Arc::new([("shop".to_owned(), namespace)].into());
    facts
}

fn with_plugin(stated: &str, shows_selector: bool) -> NamespaceFacts {
    NamespaceFacts {
        stated_selectors: StatedSelectors {
            plugin: Some(stated.to_owned()),
            openshift: None,
        },
        shows_selector,
        ..NamespaceFacts::default()
    }
}

fn with_openshift(stated: Option<&str>) -> NamespaceFacts {
    NamespaceFacts {
        stated_selectors: StatedSelectors {
            plugin: None,
            openshift: stated.map(str::to_owned),
        },
        ..NamespaceFacts::default()
    }
}

fn resolved(mut facts: Facts, policy: &Policy) -> Facts {
    let set = PolicySet::new(
        vec![StoredPolicy::for_all(policy.clone())],
        Policy::cluster_default(),
    );
    resolve(&mut facts, &set);
    facts
}

/// The verdict and the decision for an object in the namespace `shop`.
fn decided(kind: Kind, image: &str, more: &Value, facts: &Facts) -> (Verdict, Decision, Vec<EvidenceKind>) {
    let mut spec = json!({"containers": [{"name": "app", "image": image}]});
    json_patch::merge(&mut spec, more);
    let spec = if kind == Kind::Pod {
        spec
    } else {
        json!({"template": {"spec": spec}})
    };
    let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}).to_string();
    let subject = Object::parse(kind, &object, ReviewStage::Stored).unwrap();
    let evaluation = evaluate(&subject, facts, &Policy::standalone());
    let evidence = evaluation.inference.evidence.iter().map(|it| it.kind);
    (
        evaluation.inference.verdict,
        evaluation.decision(),
        evidence.collect(),
    )
}

fn as_root() -> Value {
    json!({"securityContext": {"runAsUser": 0}})
}

#[test]
fn a_template_is_denied_by_the_selector_of_its_namespace() {
    let facts = resolved(facts(with_plugin(WINDOWS, true)), &Policy::standalone());
    let (verdict, decision, evidence) = decided(Kind::Deployment, "app", &as_root(), &facts);
    assert_eq!((verdict, decision), (Verdict::Windows, Decision::Deny));
    assert_eq!(evidence, [EvidenceKind::NamespaceNodeSelector]);
    assert!(evidence[0].is_strong());
    // A pod carries it when admission sees it.
    let (verdict, ..) = decided(Kind::Pod, "app", &as_root(), &facts);
    assert_eq!(verdict, Verdict::Unknown);
}

#[test]
fn a_windows_image_in_a_namespace_for_linux_is_not_denied() {
    let facts = resolved(facts(with_plugin(LINUX, true)), &Policy::standalone());
    let (verdict, decision, _) = decided(Kind::Deployment, SERVERCORE, &as_root(), &facts);
    assert_eq!((verdict, decision), (Verdict::Linux, Decision::Allow));
}

#[test]
fn a_template_that_contradicts_the_namespace_is_denied() {
    let facts = resolved(facts(with_plugin(LINUX, true)), &Policy::standalone());
    let selects = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let (verdict, decision, evidence) = decided(Kind::Deployment, "app", &selects, &facts);
    assert_eq!((verdict, decision), (Verdict::Conflicting, Decision::Deny));
    assert_eq!(
        evidence,
        [EvidenceKind::NodeSelector, EvidenceKind::NamespaceNodeSelector]
    );
}

#[test]
fn an_annotation_alone_is_not_in_effect() {
    let facts = resolved(facts(with_plugin(WINDOWS, false)), &Policy::standalone());
    let (verdict, decision, _) = decided(Kind::Deployment, "app", &as_root(), &facts);
    assert_eq!((verdict, decision), (Verdict::Unknown, Decision::Allow));
}

#[test]
fn the_cluster_config_says_whether_the_plugin_is_on_and_what_its_configuration_file_adds() {
    use PodNodeSelector::{Detected, Disabled, Enabled};
    let config = |pod_node_selector, default: &[(&str, &str)]| ClusterConfig {
        pod_node_selector,
        default_node_selector: selector(default),
        ..ClusterConfig::default()
    };
    let windows: &[_] = &[("kubernetes.io/os", "windows")];
    let pool: &[_] = &[("pool", "a")];
    for (namespace, stated, expected) in [
        (with_plugin(WINDOWS, false), config(Enabled, &[]), windows),
        (with_plugin(WINDOWS, true), config(Disabled, &[]), &[]),
        (with_plugin(WINDOWS, true), config(Detected, &[]), windows),
        (with_plugin("not a selector", false), config(Enabled, &[]), &[]),
        (NamespaceFacts::default(), config(Detected, pool), pool),
        (NamespaceFacts::default(), config(Enabled, pool), pool),
        (NamespaceFacts::default(), config(Disabled, pool), &[]),
        // The file is for namespaces without the annotation. That there is one shows that the plug-in is on.
        (with_plugin(WINDOWS, false), config(Detected, pool), windows),
        (with_plugin("", false), config(Detected, pool), &[]),
    ] {
        let mut facts = facts(namespace.clone());
        facts.set_config(Arc::new(stated.clone()));
        let facts = resolved(facts, &Policy::standalone());
        let found = &facts.namespaces["shop"].node_selector;
        assert_eq!(*found, selector(expected), "{namespace:?} {stated:?}");
    }
}

#[test]
fn what_placement_may_have_added_shows_nothing() {
    let shown = |stated: &str, policy: Policy| {
        let facts = resolved(facts(with_plugin(stated, true)), &policy);
        !facts.namespaces["shop"].node_selector.is_empty()
    };
    let by_registry = || Policy {
        image_evidence: ImageEvidence::Registry,
        ..Policy::standalone()
    };
    let by_default = Policy {
        default_os: Some(Os::Windows),
        ..Policy::standalone()
    };
    let linux_pods = Policy {
        linux_pods: LinuxPods::Apply,
        ..Policy::standalone()
    };
    assert!(shown(WINDOWS, Policy::standalone()));
    assert!(!shown(WINDOWS, by_registry()));
    assert!(!shown(WINDOWS, by_default));
    assert!(!shown(LINUX, linux_pods));
    // Placement never writes the label of a pool.
    assert!(shown("pool=a", by_registry()));
}

#[test]
fn openshift_adds_the_annotation_or_its_default_only_on_openshift() {
    for (has_scc, stated, default, expected) in [
        (true, Some(WINDOWS), "", Verdict::Windows),
        (false, Some(WINDOWS), "", Verdict::Unknown),
        (true, None, WINDOWS, Verdict::Windows),
        (true, Some(""), WINDOWS, Verdict::Unknown),
        (true, Some(LINUX), WINDOWS, Verdict::Linux),
        (true, None, "", Verdict::Unknown),
        (false, None, WINDOWS, Verdict::Unknown),
    ] {
        let mut facts = facts(with_openshift(stated));
        facts.has_scc = has_scc;
        facts.default_node_selector = default.to_owned();
        let facts = resolved(facts, &Policy::standalone());
        let (verdict, ..) = decided(Kind::StatefulSet, "app", &json!({}), &facts);
        assert_eq!(verdict, expected, "{has_scc} {stated:?} {default:?}");
    }
    let mut facts = facts(with_plugin(LINUX, false));
    facts.has_scc = true;
    facts.default_node_selector = WINDOWS.to_owned();
    let facts = resolved(facts, &Policy::standalone());
    assert!(facts.namespaces["shop"].node_selector.is_empty());
}

#[test]
fn the_selector_of_the_namespace_keeps_pods_off_nodes() {
    let facts = resolved(facts(with_plugin("pool=a", true)), &Policy::standalone());
    let object = |kind: &str, spec: Value| json!({"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    let node = |pool: &str| Host {
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..Host::default()
    };
    let pod = json!({"containers": [{"name": "app", "image": "app"}]});
    for (kind, spec, stage, other) in [
        (
            Kind::Deployment,
            json!({"template": {"spec": pod}}),
            AdmissionStage::Merged,
            Match::No,
        ),
        // The controller of a DaemonSet reads its template only.
        (
            Kind::DaemonSet,
            json!({"template": {"spec": pod}}),
            AdmissionStage::AsWritten,
            Match::Yes,
        ),
        (Kind::Pod, pod.clone(), AdmissionStage::Merged, Match::Yes),
    ] {
        let json = object(kind.as_str(), spec).to_string();
        let subject = Object::parse(kind, &json, ReviewStage::Stored).unwrap();
        let constraints = crate::engine::scheduling::constraints(&subject, &facts, stage).unwrap();
        assert_eq!(constraints.matches(&node("a")), Match::Yes, "{kind}");
        assert_eq!(constraints.matches(&node("b")), other, "{kind}");
    }
}

fn is_added(spec: &Value, owned: &Value, added: &[(&str, &str)]) -> bool {
    let managed =
        json!([{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": owned}}]);
    let pod = json!({"metadata": {"name": "a", "managedFields": managed}, "spec": spec}).to_string();
    let pod = Object::parse(Kind::Pod, &pod, ReviewStage::Stored).unwrap();
    is_added_to(&pod, &selector(added), &facts(NamespaceFacts::default()))
}

#[test]
fn a_selector_that_nobody_owns_was_added_in_admission() {
    let windows = [("kubernetes.io/os", "windows")];
    let pool = [("pool", "a"), ("kubernetes.io/os", "windows")];
    let spec = |labels: Value, image: &str| json!({"nodeSelector": labels, "containers": [{"name": "app", "image": image}]});
    let plain = spec(json!({"kubernetes.io/os": "windows"}), "app");
    let (nobody, author) = (
        json!({"f:containers": {}}),
        json!({"f:containers": {}, "f:nodeSelector": {}}),
    );
    assert!(is_added(&plain, &nobody, &windows));
    assert!(!is_added(&plain, &author, &windows), "the template has it");
    assert!(
        !is_added(&spec(json!({}), "app"), &nobody, &windows),
        "the plug-in is off"
    );
    assert!(!is_added(&plain, &nobody, &pool), "only a part of it");
    let of_pool = spec(json!({"kubernetes.io/os": "windows", "pool": "a"}), SERVERCORE);
    assert!(is_added(&of_pool, &nobody, &pool));
    assert!(
        !is_added(&of_pool, &nobody, &windows),
        "placement adds it to a pod that selects a pool"
    );
    let by_image = spec(json!({"kubernetes.io/os": "windows"}), SERVERCORE);
    assert!(!is_added(&by_image, &nobody, &windows), "placement adds it");
    let mut with_os = plain.clone();
    with_os["os"] = json!({"name": "windows"});
    assert!(
        is_added(&with_os, &nobody, &windows),
        "placement adds spec.os to what the plug-in marked"
    );
    let mut of_class = plain;
    of_class["runtimeClassName"] = json!("windows");
    assert!(
        !is_added(&of_class, &nobody, &windows),
        "the RuntimeClass adds it"
    );
}
