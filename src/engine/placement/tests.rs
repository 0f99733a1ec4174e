//! What is said to be tolerated after placement is exactly what the edits of an inspection make tolerated.

use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::engine::inspect;
use crate::model::edit::to_json_patch;
use crate::model::facts::{NamespaceFacts, RuntimeClassFacts};
use crate::model::node::Host;
use crate::model::policy::ReverseGuard;
use crate::model::subject::{Editable, Stage};
use crate::model::workload::Kind;

/// Taints that nodes may carry.
fn taints() -> Vec<Taint> {
    let of = |effect: &str| Taint {
        effect: effect.into(),
        ..Taint::no_schedule("os", "windows")
    };
    vec![
        of("NoSchedule"),
        of("NoExecute"),
        of("PreferNoSchedule"),
        Taint::no_schedule("sku", "Windows"),
        Taint::no_schedule("team", "blue"),
        Taint::no_schedule("node.kubernetes.io/unschedulable", ""),
    ]
}

fn facts(whitelist: Option<&str>) -> Facts {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    facts.add_host(Host {
        name: "w".into(),
        taints: taints(),
        ..Host::default()
    });
    let namespace = NamespaceFacts {
        tolerations_whitelist: whitelist.map(str::to_owned),
        ..NamespaceFacts::default()
    };
    std::sync::Arc::make_mut(&mut facts.namespaces).insert("web".into(), namespace);
    let class = RuntimeClassFacts {
        handler: "runhcs-wcow-process".into(),
        tolerations: serde_json::from_str(r#"[{"key": "sku", "operator": "Exists"}]"#).unwrap(),
        ..RuntimeClassFacts::default()
    };
    facts.runtime_classes.insert("win".into(), class);
    facts
}

fn policies() -> Vec<Policy> {
    let mut off = Policy::standalone();
    off.placement = Switch::Off;
    let mut without = Policy::standalone();
    without.parts.tolerations = false;
    let mut blue = Policy::standalone();
    blue.taints.push(Taint::no_schedule("team", "blue"));
    let mut none = Policy::standalone();
    none.taints.clear();
    vec![
        Policy::standalone(),
        Policy::cluster_default(),
        off,
        without,
        blue,
        none,
    ]
}

#[test]
fn what_is_tolerated_after_placement_is_what_the_edits_make_tolerated() {
    let whitelists = [
        None,
        Some("[]"),
        Some("x"),
        Some(r#"[{"operator": "Exists"}]"#),
        Some(r#"[{"key": "os", "operator": "Exists"}]"#),
        Some(r#"[{"key": "team", "value": "blue"}]"#),
    ];
    let tolerations = [
        json!([]),
        json!([{"operator": "Exists"}]),
        json!([{"key": "os", "operator": "Exists"}]),
        json!([{"key": "team", "value": "blue", "effect": "NoSchedule"}]),
    ];
    let (all, mut seen) = (taints(), 0);
    for whitelist in whitelists {
        let facts = facts(whitelist);
        for (policy, tolerations) in policies()
            .iter()
            .flat_map(|p| tolerations.iter().map(move |t| (p, t)))
        {
            for class in [None, Some("win")] {
                let mut spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations,
                    "containers": [{"name": "c", "image": "x"}]});
                if let Some(class) = class {
                    spec["runtimeClassName"] = json!(class);
                }
                let pod = json!({"metadata": {"namespace": "web", "name": "p"}, "spec": spec});
                let text = pod.to_string();
                let mut subject = Subject::parse(Kind::Pod, &text, Stage::Written).unwrap();
                subject.editable = Editable::Pod;
                let said = untolerated(&subject, &all, &facts, policy, Admission::Placed);
                let edits = inspect(&subject, &facts, policy).edits;
                assert_eq!(
                    said,
                    left(&pod, &edits, &facts, class, &all),
                    "{whitelist:?} {tolerations} {policy:?}"
                );
                seen += usize::from(!edits.is_empty());
            }
        }
    }
    assert!(seen > 50, "placement did something in {seen} cases only");
}

/// The taints that keep a pod away which was edited so, and into which the API server merged its class.
fn left<'t>(
    pod: &Value,
    edits: &[Edit],
    facts: &Facts,
    class: Option<&str>,
    taints: &'t [Taint],
) -> Vec<&'t Taint> {
    let mut pod = pod.clone();
    let patch = to_json_patch(edits);
    json_patch::patch(&mut pod, &patch).unwrap();
    let text = pod["spec"]["tolerations"].to_string();
    let mut all: Vec<Toleration<'_>> = serde_json::from_str(&text).unwrap();
    all.extend(
        class
            .into_iter()
            .flat_map(|class| facts.runtime_classes[class].tolerations.clone()),
    );
    let keeps_off =
        |taint: &&Taint| taint.effect != "PreferNoSchedule" && !all.iter().any(|t| taint.is_tolerated_by(t));
    taints.iter().filter(keeps_off).collect()
}

#[test]
fn a_build_is_required_only_by_a_label_that_some_node_of_it_carries() {
    let node = |build: u32, labelled: bool| {
        let build = Build::new(build);
        let labels = if labelled {
            json!({BUILD_LABEL: build.to_string()})
        } else {
            json!({BUILD_LABEL: "10.0.14393"})
        };
        json!({"metadata": {"name": "n", "labels": labels},
            "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": format!("{build}.1")}}})
    };
    let in_short = || {
        let mut node = node(17763, true);
        node["metadata"] = json!({"name": "n"});
        node
    };
    let pool = Host {
        build: Some(Build::new(17763)),
        may_be_at_zero: true,
        ..Host::default()
    };
    let pod = json!({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"},
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2019"}]}});
    for (nodes, declared, requires) in [
        (vec![node(20348, true), node(17763, true)], false, true),
        (vec![node(20348, true), node(17763, false)], false, false),
        (
            vec![node(20348, true), node(17763, false), node(17763, true)],
            false,
            true,
        ),
        // Of a pool at zero the kubelets will write it; of the nodes that are there, none did.
        (vec![node(20348, true)], true, true),
        (vec![node(20348, true), node(17763, false)], true, false),
        // Written down in short, without any label.
        (vec![node(20348, true), in_short()], false, true),
        // No node runs the image: the pod waits for one, whatever the others carry.
        (vec![node(20348, false)], false, true),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        for node in &nodes {
            let text = node.to_string();
            facts.learn(&Subject::parse(Kind::Node, &text, Stage::Written).unwrap());
        }
        let mut policy = Policy::standalone();
        policy.pools.extend(declared.then(|| pool.clone()));
        let text = pod.to_string();
        let subject = Subject::parse(Kind::Pod, &text, Stage::Written).unwrap();
        let inspection = inspect(&subject, &facts, &policy);
        let edits = to_json_patch(&inspection.edits).to_string();
        assert_eq!(
            edits.contains("windows-build"),
            requires,
            "{nodes:?} {declared}: {edits}"
        );
        let open: Vec<_> = inspection.open().map(|finding| finding.rule.name).collect();
        assert_eq!(
            open.contains(&"missing-build-selector"),
            !requires,
            "{nodes:?} {declared}: {open:?}"
        );
    }
}

/// EKS' own webhook is called before us and looks at the nodeSelector only: what we place has to ask by itself.
#[test]
fn a_windows_pod_asks_for_an_address_where_nodes_give_one() {
    const IP: &str = PRIVATE_IPV4_RESOURCE;
    let node = |offers: &Value| {
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": offers,
            "nodeInfo": {"operatingSystem": "windows", "kernelVersion": "10.0.20348.1"}}});
        let text = node.to_string();
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        facts.learn(&Subject::parse(Kind::Node, &text, Stage::Written).unwrap());
        facts
    };
    let (on_eks, elsewhere) = (node(&json!({IP: "14", "cpu": "4"})), node(&json!({"cpu": "4"})));
    let one = json!({"limits": {IP: "1"}, "requests": {IP: "1"}});
    let both = |of: Value| json!({"limits": of, "requests": of});
    let asks = |facts: &Facts, over: &Value| {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"},
            "containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]}});
        json_patch::merge(&mut pod, over);
        let text = pod.to_string();
        let subject = Subject::parse(Kind::Pod, &text, Stage::Written).unwrap();
        let edits = inspect(&subject, facts, &Policy::standalone()).edits;
        json_patch::patch(&mut pod, &to_json_patch(&edits)).unwrap();
        let containers = pod["spec"]["containers"].as_array().unwrap().clone();
        [
            containers[0]["resources"].clone(),
            containers[1]["resources"].clone(),
        ]
    };
    let with = |resources: &Value| {
        json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": resources},
            {"name": "d", "image": "x"}]}})
    };
    let daemonset = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "controller": true}]}});
    let memory = json!({"limits": {"memory": "1Gi"}});
    let second = json!({"spec": {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x", "resources": one}]}});
    for (over, first) in [
        (json!({}), one.clone()),
        (daemonset, one.clone()),
        (with(&json!({})), one.clone()),
        (
            with(&memory),
            json!({"limits": {"memory": "1Gi", IP: "1"}, "requests": {IP: "1"}}),
        ),
        (
            with(&both(json!({"cpu": "1"}))),
            both(json!({"cpu": "1", IP: "1"})),
        ),
        // Asked for already, by the author or by the other webhook.
        (with(&one), one.clone()),
        (second, Value::Null),
        (
            json!({"spec": {"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}}}),
            Value::Null,
        ),
        (json!({"spec": {"os": {"name": "linux"}}}), Value::Null),
    ] {
        assert_eq!(asks(&on_eks, &over)[0], first, "{over}");
    }
    assert_eq!(
        asks(&on_eks, &json!({}))[1],
        Value::Null,
        "one address for each pod"
    );
    assert_eq!(asks(&elsewhere, &json!({}))[0], Value::Null);
}

/// AKS says the build of a pool by its name, and the name of a node says the build of the node.
#[test]
fn a_pool_or_a_node_that_says_its_build_needs_no_other_requirement() {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for (name, build) in [("w19", 17763), ("w22", 20348)] {
        facts.add_host(Host {
            name: name.into(),
            hostname: name.into(),
            build: Some(Build::new(build)),
            ..Host::default()
        });
    }
    let affinity = |key: &str, values: &[&str]| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}}}})
    };
    let sku = "kubernetes.azure.com/os-sku";
    let host = "kubernetes.io/hostname";
    for (over, requires, unfit) in [
        (json!({"nodeSelector": {sku: "Windows2022"}}), false, false),
        (json!({"nodeSelector": {sku: "Windows2025"}}), false, false),
        (json!({"nodeSelector": {sku: "Windows2019"}}), false, true),
        (json!({"nodeSelector": {sku: "WindowsAnnual"}}), true, false),
        (json!({"nodeSelector": {host: "w22"}}), false, false),
        (json!({"nodeSelector": {host: "w19"}}), false, true),
        (json!({"nodeSelector": {host: "another"}}), true, false),
        (affinity(sku, &["Windows2022", "Windows2025"]), false, false),
        (affinity(sku, &["Windows2022", "WindowsAnnual"]), true, false),
        (affinity(host, &["w22"]), false, false),
        (affinity(host, &["w19"]), false, true),
        (affinity("zone", &["a"]), true, false),
    ] {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"},
            "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}});
        json_patch::merge(&mut pod["spec"], &over);
        let text = pod.to_string();
        let subject = Subject::parse(Kind::Pod, &text, Stage::Written).unwrap();
        let inspection = inspect(&subject, &facts, &Policy::standalone());
        let edits = to_json_patch(&inspection.edits).to_string();
        assert_eq!(edits.contains("windows-build"), requires, "{over}: {edits}");
        let refused = inspection
            .denials()
            .any(|finding| finding.rule.name == "image-build-mismatch");
        assert_eq!(refused, unfit, "{over}: {:?}", inspection.findings);
    }
}

#[test]
fn the_reverse_guard_goes_by_nodes_and_pools_that_may_be_there() {
    let untainted = Host::default();
    let at_zero = Host {
        may_be_at_zero: true,
        ..Host::default()
    };
    let named = Host {
        template: [("agentpool".to_owned(), "win".to_owned())].into(),
        ..at_zero.clone()
    };
    let guards = |host: Option<&Host>, declared: Option<&Host>| {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        host.into_iter().cloned().for_each(|host| facts.add_host(host));
        let policy = Policy {
            reverse_guard: ReverseGuard::Apply,
            pools: declared.into_iter().cloned().collect(),
            ..Policy::standalone()
        };
        let pod = r#"{"spec": {"containers": [{"name": "c", "image": "c"}]}}"#;
        let subject = Subject::parse(Kind::Pod, pod, Stage::Written).unwrap();
        !inspect(&subject, &facts, &policy).edits.is_empty()
    };
    assert!(guards(Some(&untainted), None));
    assert!(guards(Some(&named), None));
    assert!(guards(None, Some(&at_zero)), "the policy says that there is one");
    assert!(
        !guards(Some(&at_zero), None),
        "it may be the look of a pool before its taint"
    );
    assert!(!guards(None, None));
}
