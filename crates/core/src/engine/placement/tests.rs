//! The taints reported as tolerated after placement are exactly those that the edits of an evaluation make tolerated.

use std::sync::Arc;

use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::engine::{AdmissionStage, PodsToSchedule, evaluate, infer_os};
use crate::model::cluster::config::ClusterConfig;
use crate::model::cluster::facts::{Facts, NamespaceFacts, RuntimeClassFacts};
use crate::model::cluster::policy::{LinuxPods, PlacementField, PlacementMode, Policy};
use crate::model::nodes::extended_resources::OfferedResources;
use crate::model::nodes::node::{HOSTNAME_LABEL, Host, OS_SKU_LABEL};
use crate::model::objects::object::{Object, ReviewStage};
use crate::model::objects::pod::Toleration;
use crate::model::objects::workload::Kind;
use crate::model::syntax::edit::to_json_patch;
use crate::model::syntax::json_types::Quantity;
use crate::model::windows::image_facts::{ImageFacts, ImageVariant};

/// Taints that nodes may have.
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
        labels: [(OS_LABEL.to_owned(), "windows".to_owned())].into(),
        ..Host::default()
    });
    let namespace = NamespaceFacts {
        tolerations_whitelist: whitelist.map(str::to_owned),
        ..NamespaceFacts::default()
    };
    Arc::make_mut(&mut facts.namespaces).insert("web".into(), namespace);
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
    off.placement = PlacementMode::Disabled;
    let mut without = Policy::standalone();
    (without.placed).retain(|field| *field != PlacementField::Tolerations);
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
fn the_whitelist_of_the_cluster_limits_placement_where_the_namespace_has_none() {
    let allowed: Vec<Toleration<'static>> = serde_json::from_str::<Vec<Toleration<'_>>>(
        r#"[{"key": "node.kubernetes.io/os", "operator": "Exists"}]"#,
    )
    .unwrap()
    .iter()
    .map(Toleration::detached)
    .collect();
    let config = Arc::new(ClusterConfig {
        allowed_tolerations: allowed,
        ..ClusterConfig::default()
    });
    let os = Taint::no_schedule("os", "windows");
    for (whitelist, expected) in [
        (None, false),
        (Some("[]"), false),
        (Some(r#"[{"key": "os", "operator": "Exists"}]"#), true),
    ] {
        let tolerates = |config: &Arc<ClusterConfig>| {
            let mut facts = facts(whitelist);
            facts.set_config(Arc::clone(config));
            AddableTolerations::of("web", &facts, &Policy::standalone()).tolerates(&os)
        };
        assert_eq!(tolerates(&config), expected, "{whitelist:?}");
        assert!(tolerates(&Arc::default()), "{whitelist:?}");
    }
}

#[test]
fn a_taint_that_a_node_policy_requires_or_a_declared_pool_has_is_tolerated_if_it_means_windows() {
    let (os, sku) = (
        Taint::no_schedule("os", "windows"),
        Taint::no_schedule("sku", "windows"),
    );
    let team = Taint::no_schedule("team", "blue");
    let listing = |taints: &[&Taint]| {
        let mut policy = Policy::standalone();
        policy.explicit.taints = true;
        policy.taints = taints.iter().map(|taint| (*taint).clone()).collect();
        policy
    };
    let (default, none, blue) = (Policy::standalone(), listing(&[]), listing(&[&team]));
    let both = [&sku, &team];
    for (policy, required, of_pool, expected) in [
        (&default, &[][..], &[][..], &[&os][..]),
        (&default, &[&team], &[&team], &[&os]),
        (&default, &both, &[], &[&sku]),
        (&default, &[], &both, &[&sku]),
        (&none, &[], &[], &[]),
        (&none, &[&os], &both, &[&os, &sku]),
        (&blue, &[&sku], &[], &[&team, &sku]),
    ] {
        let cloned = |taints: &[&Taint]| -> Vec<Taint> { taints.iter().map(|it| (*it).clone()).collect() };
        let mut facts = facts(None);
        facts.required_taints = cloned(required);
        facts.pools = vec![windows("pool", 20348, &[], &cloned(of_pool))];
        let stated: Vec<&Taint> = AddableTolerations::stated(policy, &facts).collect();
        assert_eq!(stated, expected, "{required:?} {of_pool:?}");
    }
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
                let subject = Object::parse(Kind::Pod, &text, ReviewStage::Written).unwrap();
                let inference = infer_os(&subject, &facts, policy);
                let pods = PodsToSchedule {
                    subject: &subject,
                    inference: &inference,
                    policy,
                    admission: AdmissionStage::Placed,
                };
                let message = pods.untolerated(&all, &facts);
                let edits = evaluate(&subject, &facts, policy).edits;
                assert_eq!(
                    message,
                    left(&pod, &edits, &facts, class, &all),
                    "{whitelist:?} {tolerations} {policy:?}"
                );
                seen += usize::from(!edits.is_empty());
            }
        }
    }
    assert!(seen > 50, "placement did something in {seen} cases only");
}

/// The taints that keep an edited pod away after the API server merged its class.
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
fn a_build_is_required_only_by_a_label_that_every_right_node_carries() {
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
    let required = "10.0.17763";
    let excluded = "NotIn";
    for (nodes, declared, requires) in [
        (vec![node(20348, true), node(17763, true)], false, Some(required)),
        // The right node does not have the label: the wrong nodes are excluded by their labels.
        (vec![node(20348, true), node(17763, false)], false, Some(excluded)),
        (
            vec![node(20348, true), node(17763, false), node(17763, true)],
            false,
            Some(excluded),
        ),
        // The label does not distinguish nodes: the right node must not be lost.
        (vec![node(20348, false), node(17763, false)], false, None),
        // The kubelets of a pool at zero will write it; none of the existing nodes did.
        (vec![node(20348, true)], true, Some(required)),
        (vec![node(20348, true), node(17763, false)], true, Some(excluded)),
        // A short declaration without labels.
        (vec![node(20348, true), in_short()], false, Some(required)),
        // No node runs the image: the pod waits for one, regardless of the labels of the others.
        (vec![node(20348, false)], false, Some(required)),
    ] {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        for node in &nodes {
            let text = node.to_string();
            facts.learn(&Object::parse(Kind::Node, &text, ReviewStage::Written).unwrap());
        }
        let policy = Policy::standalone();
        facts.pools.extend(declared.then(|| pool.clone()));
        let text = pod.to_string();
        let subject = Object::parse(Kind::Pod, &text, ReviewStage::Written).unwrap();
        let evaluation = evaluate(&subject, &facts, &policy);
        let edits = to_json_patch(&evaluation.edits).to_string();
        assert_eq!(
            edits.contains("windows-build"),
            requires.is_some(),
            "{nodes:?} {declared}: {edits}"
        );
        assert!(
            requires.is_none_or(|text| edits.contains(text)),
            "{nodes:?} {declared}: {edits}"
        );
        let open: Vec<_> = evaluation.open().map(|finding| finding.rule.name).collect();
        assert_eq!(
            open.contains(&"missing-build-selector"),
            requires.is_none(),
            "{nodes:?} {declared}: {open:?}"
        );
    }
}

/// EKS' own webhook runs before Transom and reads only the nodeSelector: Transom must request the address for pods that
/// it places.
#[test]
fn a_windows_pod_asks_for_an_address_where_nodes_give_one() {
    const IP: &str = PRIVATE_IPV4_RESOURCE;
    let node = |offers: &Value| {
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": offers,
            "nodeInfo": {"operatingSystem": "windows", "kernelVersion": "10.0.20348.1"}}});
        let text = node.to_string();
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        facts.learn(&Object::parse(Kind::Node, &text, ReviewStage::Written).unwrap());
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
        let subject = Object::parse(Kind::Pod, &text, ReviewStage::Written).unwrap();
        let edits = evaluate(&subject, facts, &Policy::standalone()).edits;
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
        // Already requested, by the author or by the other webhook.
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

/// AKS encodes the build of a pool in its name, and the name of a node implies its build.
#[test]
fn a_pool_or_a_node_that_says_its_build_needs_no_other_requirement() {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for (name, build, sku) in [("w19", 17763, "Windows2019"), ("w22", 20348, "Windows2022")] {
        let labels = [
            (OS_LABEL, "windows".to_owned()),
            (HOSTNAME_LABEL, name.to_owned()),
            (OS_SKU_LABEL, sku.to_owned()),
            (BUILD_LABEL, Build::new(build).to_string()),
        ];
        facts.add_host(Host {
            name: name.into(),
            build: Some(Build::new(build)),
            labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
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
        // No known node is like this, so no node is known to be wrong.
        (json!({"nodeSelector": {sku: "WindowsAnnual"}}), false, false),
        (json!({"nodeSelector": {host: "w22"}}), false, false),
        (json!({"nodeSelector": {host: "w19"}}), false, true),
        (json!({"nodeSelector": {host: "another"}}), false, false),
        (affinity(sku, &["Windows2022", "Windows2025"]), false, false),
        (affinity(sku, &["Windows2022", "WindowsAnnual"]), false, false),
        (affinity(sku, &["Windows2022", "Windows2019"]), true, false),
        (affinity(host, &["w22"]), false, false),
        (affinity(host, &["w19"]), false, true),
        (affinity("zone", &["a"]), false, false),
        (affinity(OS_LABEL, &["windows"]), true, false),
    ] {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"},
            "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}});
        json_patch::merge(&mut pod["spec"], &over);
        let text = pod.to_string();
        let subject = Object::parse(Kind::Pod, &text, ReviewStage::Written).unwrap();
        let evaluation = evaluate(&subject, &facts, &Policy::standalone());
        let edits = to_json_patch(&evaluation.edits).to_string();
        assert_eq!(edits.contains("windows-build"), requires, "{over}: {edits}");
        let refused = evaluation
            .denials()
            .any(|finding| finding.rule.name == "image-build-mismatch");
        assert_eq!(refused, unfit, "{over}: {:?}", evaluation.findings);
    }
}

#[test]
fn linux_pods_are_kept_off_by_nodes_and_pools_that_may_be_there() {
    let untainted = Host::default();
    let at_zero = Host {
        may_be_at_zero: true,
        ..Host::default()
    };
    let named = Host {
        labels: [("agentpool".to_owned(), "win".to_owned())].into(),
        ..at_zero.clone()
    };
    let guards = |host: Option<&Host>, declared: Option<&Host>| {
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        host.into_iter().cloned().for_each(|host| facts.add_host(host));
        facts.pools.extend(declared.cloned());
        let policy = Policy {
            linux_pods: LinuxPods::Apply,
            ..Policy::standalone()
        };
        let pod = r#"{"spec": {"containers": [{"name": "c", "image": "c"}]}}"#;
        let subject = Object::parse(Kind::Pod, pod, ReviewStage::Written).unwrap();
        !evaluate(&subject, &facts, &policy).edits.is_empty()
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

/// A Windows node with these additional labels, and these taints.
fn windows(name: &str, build: u32, labels: &[(&str, &str)], taints: &[Taint]) -> Host {
    let build = Build::new(build);
    let mut all: std::collections::BTreeMap<String, String> = [(OS_LABEL, "windows"), (HOSTNAME_LABEL, name)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    all.insert(BUILD_LABEL.to_owned(), build.to_string());
    for (key, value) in labels {
        match *value {
            "" => _ = all.remove(*key),
            value => _ = all.insert((*key).to_owned(), value.to_owned()),
        }
    }
    Host {
        name: name.to_owned(),
        build: Some(build),
        taints: taints.to_vec(),
        labels: all.into(),
        is_settled: true,
        ..Host::default()
    }
}

/// The edits of a pod with these fields, in a cluster of these nodes.
fn edits(hosts: &[Host], policy: &Policy, class: Option<RuntimeClassFacts>, spec: &Value) -> String {
    edits_beside(hosts, &[], policy, class, spec)
}

/// The same with pools that node policies declare.
fn edits_beside(
    hosts: &[Host],
    pools: &[Host],
    policy: &Policy,
    class: Option<RuntimeClassFacts>,
    spec: &Value,
) -> String {
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    facts.pools = pools.to_vec();
    hosts.iter().cloned().for_each(|host| facts.add_host(host));
    facts
        .runtime_classes
        .extend(class.map(|class| ("windows-2022".to_owned(), class)));
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"},
        "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "corp.example/app"}]}});
    json_patch::merge(&mut pod["spec"], spec);
    let text = pod.to_string();
    let subject = Object::parse(Kind::Pod, &text, ReviewStage::Written).unwrap();
    to_json_patch(&evaluate(&subject, &facts, policy).edits).to_string()
}

fn image(image: &str) -> Value {
    json!({"containers": [{"name": "c", "image": image}]})
}

const LTSC2019: &str = "mcr.microsoft.com/windows/servercore:ltsc2019";
const LTSC2022: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";

/// A request excludes every node that does not offer the resource: a single node, which may be wrong, must not cause
/// that.
#[test]
fn an_address_is_requested_only_when_every_settled_node_that_the_pod_reaches_offers_one() {
    let offering = |mut host: Host| {
        host.offered = OfferedResources::of_pool([PRIVATE_IPV4_RESOURCE]);
        host
    };
    let new = |mut host: Host| {
        host.is_settled = false;
        host
    };
    let node = |name: &str, labels: &[(&str, &str)]| windows(name, 20348, labels, &[]);
    let pool = Host {
        may_be_at_zero: true,
        ..offering(Host::default())
    };
    let policy = Policy::standalone();
    let (declared, plain) = ([pool.clone()], []);
    let (declared, plain) = (&declared[..], &plain[..]);
    let (a, b) = (node("a", &[]), node("b", &[]));
    let elsewhere = node("b", &[("disk", "nvme")]);
    let ssd = json!({"nodeSelector": {"disk": "ssd"}});
    for (hosts, pools, spec, requests) in [
        (vec![offering(a.clone())], plain, json!({}), true),
        (
            vec![offering(a.clone()), offering(b.clone())],
            plain,
            json!({}),
            true,
        ),
        (vec![offering(a.clone()), b.clone()], plain, json!({}), false),
        // A new node does not offer it yet, and what it offers is not trusted yet.
        (vec![offering(a.clone()), new(b.clone())], plain, json!({}), true),
        (vec![new(offering(a.clone()))], plain, json!({}), false),
        // Nodes that the pod cannot reach.
        (
            vec![offering(node("a", &[("disk", "ssd")])), elsewhere],
            plain,
            ssd.clone(),
            true,
        ),
        (vec![offering(a.clone())], plain, ssd, false),
        // A declared pool, and a remembered one.
        (vec![], declared, json!({}), true),
        (vec![b], declared, json!({}), false),
        (vec![pool], plain, json!({}), false),
    ] {
        let edits = edits_beside(&hosts, pools, &policy, None, &spec);
        assert_eq!(
            edits.contains(PRIVATE_IPV4_RESOURCE),
            requests,
            "{hosts:?} {spec}: {edits}"
        );
    }
}

/// A GPU pool of one build and plain nodes of another: the pod's selectors match both, the GPU decides.
#[test]
fn an_extended_resource_decides_which_nodes_a_pod_reaches() {
    const DIRECTX: &str = "microsoft.com/directx";
    let amount = |amount: &'static str| {
        let allocatable = [("cpu", "4"), (DIRECTX, amount)].map(|(name, n)| (name, Quantity(n.into())));
        OfferedResources::of_node(
            allocatable
                .into_iter()
                .filter(|(name, n)| *name == "cpu" || !n.0.is_empty()),
        )
    };
    let node = |name: &str, build, offered: &'static str| Host {
        offered: amount(offered),
        ..windows(name, build, &[], &[])
    };
    let gpu = |mut spec: Value| {
        spec["containers"][0]["resources"] = json!({"limits": {DIRECTX: "1"}});
        spec
    };
    let policy = Policy::standalone();
    let needs_build = |hosts: &[Host], spec: &Value| {
        edits_beside(hosts, &[], &policy, None, spec).contains("windows-build")
    };
    let plain = node("w19", 17763, "");
    let both = [plain.clone(), node("g22", 20348, "1")];
    assert!(needs_build(&both, &image(LTSC2022)));
    assert!(
        !needs_build(&both, &gpu(image(LTSC2022))),
        "only the right node has one"
    );
    // A device plugin that restarts, and a node that is new, may offer it soon.
    for hosts in [
        [node("w19", 17763, "0"), both[1].clone()],
        [
            Host {
                is_settled: false,
                ..plain
            },
            both[1].clone(),
        ],
    ] {
        assert!(needs_build(&hosts, &gpu(image(LTSC2022))), "{hosts:?}");
    }
}

#[test]
fn a_build_is_required_by_the_nodes_that_the_pod_reaches() {
    let policy = Policy::standalone();
    let unlabelled = windows("w19", 17763, &[("disk", "nvme"), (BUILD_LABEL, "")], &[]);
    let labelled = windows("w22", 20348, &[("disk", "ssd")], &[]);
    let hosts = [unlabelled, labelled];
    let mut pinned = image(LTSC2019);
    pinned["nodeSelector"] = json!({"disk": "nvme"});
    let edits_of = |spec: &Value| edits(&hosts, &policy, None, spec);
    assert!(
        !edits_of(&pinned).contains("windows-build"),
        "{}",
        edits_of(&pinned)
    );
    let free = edits_of(&image(LTSC2019));
    assert!(
        free.contains(r#""operator":"NotIn","values":["10.0.20348"]"#),
        "{free}"
    );
    // An author's own tag names a build that no node has: a guess requires nothing.
    let guess = edits_of(&image("corp.example/mssql:windows-2016"));
    assert!(!guess.contains("windows-build"), "{guess}");
    let known = edits_of(&image("corp.example/app:1.0-ltsc2022"));
    assert!(known.contains("10.0.20348"), "{known}");
}

#[test]
fn a_toleration_never_opens_wrong_nodes_to_a_pod_that_has_right_ones() {
    let policy = Policy::standalone();
    let tainted = [Taint::no_schedule("os", "windows")];
    let hosts = |label: &'static str| {
        [
            windows("w19", 17763, &[(label, "")], &[]),
            windows("w22", 20348, &[(label, "")], &tainted),
            windows("w25", 26100, &[(label, "")], &tainted),
        ]
    };
    let not_2016 = |mut spec: Value| {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": BUILD_LABEL, "operator": "NotIn", "values": ["10.0.14393"]}]}]}}});
        spec
    };
    // Labels exclude the wrong nodes, and the toleration opens only right ones.
    let kept = edits(&hosts("none"), &policy, None, &not_2016(image(LTSC2019)));
    assert!(
        kept.contains(r#""operator":"In","values":["10.0.17763"]"#) || kept.contains("10.0.17763"),
        "{kept}"
    );
    // Without labels only the taint excludes them.
    let bare = edits(&hosts(BUILD_LABEL), &policy, None, &not_2016(image(LTSC2019)));
    assert!(!bare.contains("tolerations"), "{bare}");
    let unknown = edits(&hosts("none"), &policy, None, &image("corp.example/app:1"));
    assert!(!unknown.contains("tolerations"), "{unknown}");
    // All nodes are tainted: without the toleration the pod could land nowhere.
    let nowhere = &hosts("none")[1..];
    let only = edits(nowhere, &policy, None, &image("corp.example/app:1"));
    assert!(only.contains("tolerations"), "{only}");
}

/// A domain that a toleration adds has no replica yet, and all others wait for it.
#[test]
fn no_toleration_is_added_that_adds_a_domain_to_a_spread_that_honors_taints() {
    let tainted = [Taint::no_schedule("os", "windows")];
    let hosts = [
        windows("a", 20348, &[("zone", "a")], &[]),
        windows("b", 20348, &[("zone", "b")], &tainted),
    ];
    let spread = |policy: &str| {
        let mut spec = image(LTSC2022);
        spec["topologySpreadConstraints"] = json!([{"topologyKey": "zone", "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": policy}]);
        spec
    };
    let policy = Policy::standalone();
    for (taints, hosts, tolerates) in [
        ("Honor", &hosts[..], false),
        ("Ignore", &hosts, true),
        ("Honor", &hosts[1..], true),
    ] {
        let edits = edits(hosts, &policy, None, &spread(taints));
        assert_eq!(edits.contains("tolerations"), tolerates, "{taints}: {edits}");
    }
}

/// A policy that gives pods for Server 2022 a RuntimeClass, and that class, which selects nodes by labels.
fn class_of_2022(labels: &[(&str, &str)]) -> (Policy, RuntimeClassFacts) {
    let mut policy = Policy::standalone();
    policy
        .runtime_classes
        .insert("ltsc2022".into(), "windows-2022".into());
    let labels = labels.iter();
    let class = RuntimeClassFacts {
        handler: "runhcs-wcow-process".into(),
        node_selector: labels
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..RuntimeClassFacts::default()
    };
    (policy, class)
}

/// It is temporary: no pod tolerates it, and no pod is refused or placed elsewhere because of it.
#[test]
fn the_startup_taint_of_new_nodes_and_of_pools_at_zero_changes_nothing() {
    let gate = Taint::no_schedule(Taint::STARTUP_KEY, "");
    let (os, other) = (
        Taint::no_schedule("os", "windows"),
        Taint::no_schedule("example.com/other", ""),
    );
    let (policy, mut class) = class_of_2022(&[]);
    let toleration = r#"{"key": "example.com/other", "operator": "Exists"}"#;
    class.tolerations = vec![serde_json::from_str(toleration).unwrap()];
    let evaluated = |spec: &Value, is_gated: bool, may_be_at_zero: bool| {
        let taints = |own: &Taint| {
            let gate = is_gated.then(|| gate.clone());
            gate.into_iter().chain([own.clone()]).collect::<Vec<Taint>>()
        };
        let host = |name: &str, build: u32, own: &Taint| Host {
            may_be_at_zero,
            ..windows(name, build, &[("pool", name)], &taints(own))
        };
        let hosts = [host("a", 20348, &os), host("b", 17763, &other)];
        let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
        if may_be_at_zero {
            facts.pools = hosts.to_vec();
        } else {
            for host in hosts {
                facts.add_host(host);
            }
        }
        let class = ("windows-2022".to_owned(), class.clone());
        facts.runtime_classes.extend([class]);
        let pod = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
        let subject = Object::parse(Kind::Pod, &pod, ReviewStage::Written).unwrap();
        let evaluation = evaluate(&subject, &facts, &policy);
        let edits = to_json_patch(&evaluation.edits).to_string();
        (edits, format!("{:?}", evaluation.findings))
    };
    let mut edited = 0;
    for image in [LTSC2019, LTSC2022, "corp.example/app"] {
        for more in [
            json!({}),
            json!({"nodeSelector": {"kubernetes.io/os": "windows", "pool": "a"}}),
            json!({"tolerations": [{"key": "os", "operator": "Exists"}]}),
        ] {
            let mut spec = json!({"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
                "containers": [{"name": "c", "image": image}]});
            json_patch::merge(&mut spec, &more);
            for at_zero in [false, true] {
                let with = evaluated(&spec, true, at_zero);
                assert_eq!(with, evaluated(&spec, false, at_zero), "{image} {more} {at_zero}");
                assert!(!with.0.contains(Taint::STARTUP_KEY), "{}", with.0);
                edited += usize::from(with.0.contains("tolerations"));
            }
        }
    }
    assert!(edited > 5, "{edited}");
}

#[test]
fn a_runtime_class_that_contradicts_the_affinity_is_not_given() {
    let (policy, class) = class_of_2022(&[("disk", "nvme")]);
    let hosts = [
        windows("a", 20348, &[("disk", "nvme")], &[]),
        windows("b", 20348, &[("disk", "ssd")], &[]),
    ];
    let term = |term: Value| {
        let mut spec = image(LTSC2022);
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term]}}});
        spec
    };
    let of_disk =
        |disk: &str| term(json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]}));
    let of_name = |name: &str| {
        term(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}))
    };
    for (hosts, spec, given) in [
        (&hosts[..1], image(LTSC2022), true),
        (&hosts[..], of_disk("nvme"), true),
        (&hosts, of_name("a"), true),
        // It would exclude node b.
        (&hosts, image(LTSC2022), false),
        (&hosts, of_disk("ssd"), false),
        (&hosts, of_name("b"), false),
        // No node is known: the class and the affinity still contradict each other.
        (&[], of_disk("ssd"), false),
        (&[], of_disk("nvme"), true),
    ] {
        let edits = edits(hosts, &policy, Some(class.clone()), &spec);
        assert_eq!(edits.contains("runtimeClassName"), given, "{spec}: {edits}");
    }
}

#[test]
fn a_runtime_class_that_excludes_a_right_pool_is_not_given() {
    let (policy, class) = class_of_2022(&[(OS_LABEL, "windows"), (BUILD_LABEL, "10.0.20348")]);
    let pool = |build: u32| Host {
        name: build.to_string(),
        build: Some(Build::new(build)),
        may_be_at_zero: true,
        ..Host::default()
    };
    let node = |build: u32| windows("node", build, &[], &[]);
    // The nodes and remembered pools, the declared pools, and whether the pod gets the class. Server 2025 runs the image.
    for (hosts, declared, given) in [
        (vec![], vec![pool(20348)], true),
        (vec![], vec![pool(26100)], false),
        (vec![], vec![pool(20348), pool(26100)], false),
        (vec![node(20348)], vec![pool(26100)], false),
        (vec![node(17763)], vec![pool(26100)], false),
        (vec![pool(20348)], vec![], true),
        (vec![pool(26100)], vec![], false),
        (vec![node(17763), pool(26100)], vec![], false),
        // A remembered pool may no longer exist.
        (vec![node(20348), pool(26100)], vec![], true),
        // A pool that does not run the image.
        (vec![], vec![pool(17763), pool(20348)], true),
    ] {
        let edits = edits_beside(&hosts, &declared, &policy, Some(class.clone()), &image(LTSC2022));
        assert_eq!(
            edits.contains("runtimeClassName"),
            given,
            "{hosts:?} {declared:?}: {edits}"
        );
    }
}

/// The edits of a pod with this image, of which a registry reports these Windows versions, in a cluster of three builds.
fn edits_by_registry(policy: &Policy, class: Option<RuntimeClassFacts>, versions: &[&str]) -> String {
    let image = "corp.example/app:1.0-ltsc2019";
    let mut facts = Facts::new(Facts::KUBERNETES, date(2026, 1, 1));
    for build in [17763, 20348, 26100] {
        facts.add_host(windows(&format!("w{build}"), build, &[], &[]));
    }
    facts
        .runtime_classes
        .extend(class.map(|class| ("windows-2022".to_owned(), class)));
    let variants = versions
        .iter()
        .map(|version| ImageVariant::new("windows", "amd64", version));
    let linux = ImageVariant::new("linux", "amd64", "");
    let known = ImageFacts::of(variants.chain([linux]).collect(), jiff::Timestamp::UNIX_EPOCH);
    facts.images.insert(image.to_owned(), Arc::new(known));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"os": {"name": "windows"},
        "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": image}]}});
    let text = pod.to_string();
    let subject = Object::parse(Kind::Pod, &text, ReviewStage::Written).unwrap();
    to_json_patch(&evaluate(&subject, &facts, policy).edits).to_string()
}

/// The tag names Server 2019 in all of these.
#[test]
fn the_builds_of_all_variants_that_a_registry_lists_are_required() {
    let policy = Policy::standalone();
    for (versions, required, not) in [
        (&["10.0.17763.6532"][..], &["10.0.17763"][..], &["10.0.20348"][..]),
        (
            &["10.0.20348.2700"],
            &["10.0.20348", "10.0.26100"],
            &["10.0.17763"],
        ),
        (
            &["10.0.17763.6532", "10.0.26100.1"],
            &["10.0.17763", "10.0.26100"],
            &["10.0.20348"],
        ),
        // Each node runs one of the variants, or containerd pulls one for it.
        (&["10.0.17763.6532", "10.0.20348.2700"], &[], &["windows-build"]),
        (&["10.0.17763.6532", ""], &[], &["windows-build"]),
        (&[""], &[], &["windows-build"]),
        // For Linux only: another rule reports it.
        (&[], &[], &["windows-build"]),
    ] {
        let edits = edits_by_registry(&policy, None, versions);
        assert!(
            required.iter().all(|build| edits.contains(build)),
            "{versions:?}: {edits}"
        );
        assert!(
            !not.iter().any(|build| edits.contains(build)),
            "{versions:?}: {edits}"
        );
    }
}

#[test]
fn a_runtime_class_is_set_for_the_only_build_that_a_registry_lists() {
    let mut policy = Policy::standalone();
    policy
        .runtime_classes
        .insert("ltsc2022".into(), "windows-2022".into());
    let class = RuntimeClassFacts {
        handler: "runhcs-wcow-process".into(),
        ..RuntimeClassFacts::default()
    };
    for (versions, given) in [
        (&["10.0.20348.2700"][..], true),
        (&["10.0.20348.2700", "10.0.26100.1"], false),
        (&["10.0.20348.2700", ""], false),
        (&["10.0.17763.6532"], false),
    ] {
        let edits = edits_by_registry(&policy, Some(class.clone()), versions);
        assert_eq!(edits.contains("runtimeClassName"), given, "{versions:?}: {edits}");
    }
}

#[test]
fn host_process_pods_get_the_toleration_of_every_build() {
    let tainted = [Taint::no_schedule("os", "windows")];
    let hosts = [
        windows("w19", 17763, &[], &[]),
        windows("w22", 20348, &[], &tainted),
    ];
    let spec = json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true,
        "runAsUserName": "NT AUTHORITY\\SYSTEM"}}});
    let edits = edits(&hosts, &Policy::standalone(), None, &spec);
    assert!(edits.contains("tolerations"), "{edits}");
}

#[test]
fn pods_that_are_created_while_a_taint_is_rolled_out_tolerate_it() {
    let taint = [Taint::no_schedule("os", "windows")];
    let expected = |mut host: Host| {
        host.planned_taints = Some(taint.to_vec());
        host
    };
    let (w19, w22) = (windows("w19", 17763, &[], &[]), windows("w22", 20348, &[], &[]));
    let has_it = windows("w19", 17763, &[], &taint);
    let spread = json!({"topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}]});
    for (hosts, tolerates) in [
        (vec![expected(w19.clone()), expected(w22.clone())], true),
        (vec![has_it, expected(w22.clone())], true),
        // Another client contests it on one pool, so an untested build stays open.
        (vec![w19, expected(w22)], false),
    ] {
        for spec in [json!({}), spread.clone()] {
            let edits = edits(&hosts, &Policy::standalone(), None, &spec);
            assert_eq!(edits.contains("tolerations"), tolerates, "{hosts:?}: {edits}");
        }
    }
}

#[test]
fn pods_that_are_created_before_a_wrong_node_opens_keep_the_right_one() {
    let new = Taint::no_schedule("os", "win");
    let old = Taint {
        effect: "NoExecute".to_owned(),
        ..Taint::no_schedule("os", "windows")
    };
    let planned = |mut host: Host| {
        host.planned_taints = Some(vec![new.clone()]);
        host
    };
    // The old taint keeps the pod off the wrong node until the new one replaces it.
    let hosts = [
        planned(windows("w22", 20348, &[], &[])),
        windows("w22-b", 20348, &[], &[]),
        planned(windows("w16", 14393, &[], &[old])),
    ];
    let edits = edits(&hosts, &Policy::standalone(), None, &image(LTSC2022));
    assert!(
        edits.contains("windows-build") && edits.contains(r#""value":"win""#),
        "{edits}"
    );
}
