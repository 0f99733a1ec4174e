//! Tests of each section and of the values, with plain data.

use std::sync::Arc;

use jiff::civil::date;
use serde_json::{Value, json};

mod capacity;
mod controllers;

use super::*;
use crate::cluster::cache::ClusterCache;
use crate::cluster::custom_lists::CustomLists;
use crate::cluster::environment::{AnyNode, NodeGroupResource, WebhookPresence};
use crate::cluster::node::{NodeView, WatchedNode};
use crate::cluster::snapshot::SnapshotBuilder;
use crate::manifest::parse;
use crate::model::cluster::facts::Facts;
use crate::model::nodes::node::Taint;
use crate::model::objects::workload::Kind;
use crate::model::windows::build::Build;

/// A cluster with these nodes, as `(name, system, kernel, taints)`.
struct PreflightCluster {
    view: ClusterCache,
    environment: ClusterEnvironment,
}

impl PreflightCluster {
    fn of(nodes: &[(&str, &str, &str, &[Taint])]) -> Self {
        let mut world = PreflightCluster {
            view: ClusterCache {
                kubernetes: 36,
                ..ClusterCache::default()
            },
            environment: ClusterEnvironment {
                version: "v1.36.2".into(),
                ..ClusterEnvironment::default()
            },
        };
        for (name, os, kernel, taints) in nodes {
            let written: Vec<Value> = (taints.iter())
                .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect}))
                .collect();
            let labels = json!({"kubernetes.io/os": os});
            let stored = json!({
                "metadata": {"name": name, "labels": labels}, "spec": {"taints": written},
                "status": {"nodeInfo": {"operatingSystem": os, "kernelVersion": kernel},
                    "runtimeHandlers": [{"name": "runhcs-wcow-process"}]}});
            (world.environment.nodes).push(AnyNode::read(&stored.to_string()).unwrap());
            let node = NodeView::from(serde_json::from_value::<WatchedNode>(stored).unwrap());
            if *os == "windows" {
                world.view.nodes.insert((*name).to_owned(), Arc::new(node));
            }
        }
        world
    }

    /// Puts Windows nodes into pools, as `(node, pool)`.
    fn in_pools(mut self, pools: &[(&str, &str)]) -> Self {
        for (node, pool) in pools {
            let node = Arc::make_mut(self.view.nodes.get_mut(*node).unwrap());
            Arc::make_mut(&mut node.labels).insert("agentpool".to_owned(), (*pool).to_owned());
        }
        self
    }

    fn report(self, objects: &[(Kind, Value)]) -> Preflight {
        self.report_without(&[], &[], objects)
    }

    /// The report if these resources, and these workloads, could not be listed.
    fn report_without(self, unread: &[&str], not_listed: &[&str], objects: &[(Kind, Value)]) -> Preflight {
        self.report_of([unread, not_listed], None, objects, |_| ())
    }

    /// The report of a cluster that serves these custom resources. `finish`: what follows after the objects.
    fn report_with(
        self,
        custom: &CustomLists,
        objects: &[(Kind, Value)],
        finish: impl FnOnce(&mut WorkloadFindings<'_>),
    ) -> Preflight {
        self.report_of([&[], &[]], Some(custom), objects, finish)
    }

    fn report_of(
        self,
        [unread, not_listed]: [&[&str]; 2],
        custom: Option<&CustomLists>,
        objects: &[(Kind, Value)],
        finish: impl FnOnce(&mut WorkloadFindings<'_>),
    ) -> Preflight {
        let owned =
            |names: &[&str]| -> BTreeSet<String> { names.iter().map(|it| (*it).to_owned()).collect() };
        let unread = &owned(unread);
        let today = date(2026, 1, 1);
        let snapshot = SnapshotBuilder::new(Facts::new(36, today), []).take(
            &Arc::new(self.view),
            None,
            jiff::Timestamp::UNIX_EPOCH,
        );
        let platform = Platform::of(&self.environment);
        let input = ClusterInput {
            snapshot: &snapshot,
            environment: &self.environment,
            platform: &platform,
            unread,
        };
        let facts = facts(input);
        let mut workloads = WorkloadFindings::new(input, &facts, &[]);
        if let Some(custom) = custom {
            workloads = workloads.listing(custom);
        }
        for (kind, object) in objects {
            workloads.visit(*kind, &object.to_string());
        }
        workloads.not_listed = owned(not_listed);
        finish(&mut workloads);
        Preflight::new(
            input,
            workloads,
            None,
            Vec::new(),
            "2026-01-01T00:00:00Z".parse().unwrap(),
        )
    }
}

fn mark() -> Taint {
    Taint::no_schedule("os", "windows")
}

fn workload(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "registry.example/app:1"}]);
    }
    json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": {"spec": spec}}})
}

#[track_caller]
fn finding<'r>(report: &'r Preflight, part: &str) -> &'r PreflightFinding {
    let mut all = report.sections.iter().flat_map(|section| &section.findings);
    all.find(|finding| finding.message.contains(part))
        .unwrap_or_else(|| panic!("{part:?} is not said: {:#?}", report.sections))
}

fn has_finding(report: &Preflight, part: &str) -> bool {
    let mut all = report.sections.iter().flat_map(|section| &section.findings);
    all.any(|finding| finding.message.contains(part))
}

#[test]
fn where_nothing_would_be_denied_or_changed_the_values_enforce() {
    let world = PreflightCluster::of(&[
        ("l1", "linux", "6.1", &[]),
        ("w1", "windows", "10.0.26100.1", &[mark()]),
    ]);
    let report = world.report(&[(
        Kind::Deployment,
        workload(&json!({"nodeSelector": {"kubernetes.io/os": "linux"}})),
    )]);
    let values = report.values.json();
    assert_eq!(values["mode"], json!("Enforce"));
    assert_eq!((report.summary.denied, report.summary.objects), (0, 1));
    assert!(
        values["tolerations"].is_null() && values["webhooks"].is_null(),
        "{values}"
    );
    assert!(has_finding(&report, "none known to conflict"));
    assert!(!has_finding(&report, "there is a newer build"));
}

#[test]
fn what_could_not_be_listed_is_not_known_and_enforces_nothing() {
    let nodes = [
        ("l1", "linux", "6.1", &[][..]),
        ("w1", "windows", "10.0.26100.1", &[mark()][..]),
    ];
    let report = PreflightCluster::of(&nodes).report_without(&[], &["deployments"], &[]);
    assert_eq!(report.values.json()["mode"], "Audit");
    assert!(
        report
            .values
            .yaml()
            .contains("# not known: deployments could not be listed"),
        "{}",
        report.values.yaml()
    );
    let mut out = Vec::new();
    text::write(&report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("Not known whether anything would be denied: workloads could not be read."),
        "{text}"
    );
    let all = [
        "nodes",
        "runtimeclasses",
        "namespaces",
        "mutatingwebhookconfigurations",
    ];
    let report = PreflightCluster::of(&[]).report_without(&all, &["daemonsets"], &[]);
    assert_eq!(report.values.json()["mode"], "Audit");
    for claim in [
        "there is no Linux node",
        "there is no Windows node",
        "there is no RuntimeClass",
        "none known to conflict",
        "each DaemonSet selects",
        "none is seen",
    ] {
        assert!(!has_finding(&report, claim), "{claim}: {:#?}", report.sections);
    }
    let sections = report.sections.iter().filter(|section| {
        let mut message = section.findings.iter();
        message.any(|it| it.message.contains("not known (not read)"))
    });
    assert_eq!(sections.count(), report.sections.len(), "{:#?}", report.sections);
}

#[test]
fn the_history_and_the_pods_of_an_owner_that_is_not_evaluated_count_once() {
    let owned = |kind: &str, name: &str, replicas: u32, spec: &str| {
        let of = "ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, controller: true}]";
        let pod = format!(
            "{{hostPID: true, nodeSelector: {{kubernetes.io/os: windows}}, containers: [{{name: a, image: '{spec}'}}]}}"
        );
        let spec = match kind {
            "Pod" => pod,
            _ => format!("{{replicas: {replicas}, template: {{spec: {pod}}}}}"),
        };
        let yaml = format!("{{metadata: {{name: {name}, namespace: shop, {of}}}, spec: {spec}}}");
        let yaml = format!("{{apiVersion: v1, kind: Pod, {}", &yaml[1..]);
        serde_json::from_str::<Value>(parse(yaml.into_bytes()).documents[0].json()).unwrap()
    };
    let objects = [
        (Kind::ReplicaSet, owned("ReplicaSet", "web-1", 0, "app:1")),
        (Kind::ReplicaSet, owned("ReplicaSet", "web-2", 0, "app:2")),
        (Kind::ReplicaSet, owned("ReplicaSet", "web-3", 2, "app:3")),
        (Kind::Pod, owned("Pod", "web-3-a", 0, "app:3")),
        (Kind::Pod, owned("Pod", "web-3-b", 0, "app:3")),
    ];
    let report = PreflightCluster::of(&[("w1", "windows", "10.0.26100.1", &[mark()])]).report(&objects);
    let denied: Vec<&str> = report.denied.iter().map(|owner| owner.name.as_str()).collect();
    assert!(denied.contains(&"web-3"), "{denied:?}");
    for none in ["web-1", "web-2", "web-3-b"] {
        assert!(!denied.contains(&none), "{denied:?}");
    }
}

#[test]
fn what_would_be_denied_or_changed_begins_with_audit() {
    let world = PreflightCluster::of(&[("w1", "windows", "10.0.26100.1", &[mark()])]);
    let windows = json!({"kubernetes.io/os": "windows"});
    let report = world.report(&[
        (
            Kind::Deployment,
            workload(&json!({"nodeSelector": windows, "hostPID": true})),
        ),
        (Kind::StatefulSet, workload(&json!({"nodeSelector": windows}))),
        (
            Kind::Deployment,
            json!({"metadata": {"name": "odd"}, "spec": {"template": {"spec": {"containers": 5}}}}),
        ),
    ]);
    assert_eq!(report.values.json()["mode"], json!("Audit"));
    let summary = &report.summary;
    assert_eq!((summary.denied, summary.patched, summary.unreadable), (1, 1, 1));
    assert_eq!(report.denied[0].title(), "Deployment shop/web");
    assert!(!report.denied[0].rules.is_empty());
    assert_eq!(report.gaps[0].resource, "Deployment /odd");
    assert!(
        finding(&report, "placement would change")
            .evidence
            .contains(&"tolerations in 1".to_owned())
    );
    // No node accepts the chart's own pods.
    assert_eq!(
        finding(&report, "there is no Linux node").status,
        FindingStatus::ActionRequired
    );
}

#[test]
fn where_placement_would_change_pods_and_nothing_is_denied_the_values_begin_with_audit() {
    let world = PreflightCluster::of(&[
        ("l1", "linux", "6.1", &[]),
        ("w1", "windows", "10.0.20348.1", &[mark()]),
    ]);
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let report = world.report(&[(Kind::Deployment, workload(&spec))]);
    assert_eq!((report.summary.denied, report.summary.patched), (0, 1));
    assert_eq!(report.values.json()["mode"], json!("Audit"));
}

#[test]
fn where_only_ignored_fields_would_be_denied_the_values_enforce_and_warn_of_these() {
    let world = PreflightCluster::of(&[
        ("l1", "linux", "6.1", &[]),
        ("w1", "windows", "10.0.20348.1", &[]),
    ]);
    let tolerates = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerates,
        "securityContext": {"seLinuxOptions": {"level": "s0"}}});
    let report = world.report(&[(Kind::Deployment, workload(&spec))]);
    assert_eq!(
        (
            report.summary.denied,
            report.summary.denied_only_for_ignored_fields
        ),
        (1, 1)
    );
    assert_eq!(report.values.json()["mode"], "Enforce");
    assert_eq!(
        report.values.json()["podPolicies"]["default"]["spec"],
        json!({"validation": {"ignoredFields": "Warn"}})
    );
    let mut out = Vec::new();
    text::write(&report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (first, _) = text.split_once("\n\n").unwrap();
    assert!(
        first
            .replace('\n', " ")
            .contains("Install with the values below, which warn of these fields."),
        "{text}"
    );
}

/// The keys and values of the taints that the values tolerate and require.
fn taints_of(report: &Preflight) -> [Vec<String>; 2] {
    let values = report.values.json();
    [
        "/podPolicies/default/spec/placement/toleratedTaints",
        "/nodePolicies/default/spec/taints/required",
    ]
    .map(|path| {
        let list = values.pointer(path).and_then(Value::as_array);
        let text = |taint: &Value, field: &str| taint[field].as_str().unwrap().to_owned();
        (list.into_iter().flatten())
            .map(|taint| {
                format!(
                    "{}={}:{}",
                    text(taint, "key"),
                    text(taint, "value"),
                    text(taint, "effect")
                )
            })
            .collect()
    })
}

#[test]
fn a_taint_with_different_values_on_the_nodes_is_required_of_none() {
    let evicting = Taint {
        effect: "NoExecute".into(),
        ..mark()
    };
    let world = PreflightCluster::of(&[
        ("w1", "windows", "10.0.20348.1", &[mark()]),
        (
            "w2",
            "windows",
            "10.0.20348.1",
            &[Taint::no_schedule("os", "Windows")],
        ),
        ("w3", "windows", "10.0.20348.1", &[evicting]),
    ]);
    let report = world.in_pools(&[("w2", "b"), ("w3", "c")]).report(&[]);
    assert_eq!(
        report.values.json()["nodePolicies"]["default"]["spec"]["taints"]["mode"],
        "Audit"
    );
    let [_, required] = taints_of(&report);
    assert!(
        matches!(&required[..], [only] if only.ends_with("NoSchedule")),
        "{required:?}"
    );
}

#[test]
fn a_node_label_of_the_platform_keeps_what_it_stood_for_beside_new_values() {
    let mut world = PreflightCluster::of(&[
        ("l1", "linux", "6.1", &[]),
        ("w1", "windows", "10.0.20348.1", &[mark()]),
        ("w2", "windows", "10.0.20348.1", &[mark()]),
    ]);
    for (node, group) in [(1, "windows-a"), (2, "team-b")] {
        let labels = &mut world.environment.nodes[node].labels;
        labels.insert("eks.amazonaws.com/nodegroup".to_owned(), group.to_owned());
    }
    let spec = json!({"nodeSelector": {"eks.amazonaws.com/nodegroup": "team-b"}});
    let report = world.report(&[(Kind::Deployment, workload(&spec))]);
    assert_eq!(
        report.values.json()["cluster"]["nodeLabels"],
        json!([{"key": "eks.amazonaws.com/nodegroup", "values": ["team-b"], "valuePrefixes": ["windows"]}])
    );
}

#[test]
fn a_taint_that_may_be_for_some_workloads_only_is_neither_tolerated_nor_required_and_is_a_decision() {
    let special = [
        Taint::no_schedule("kubernetes.azure.com/scalesetpriority", "spot"),
        Taint::no_schedule("preview", "windows2025"),
        Taint::no_schedule("team", "windows-team"),
        Taint::no_schedule("gpu", "windows2025-gpu"),
        Taint::no_schedule("sku", "windows2025-gpu"),
        Taint::no_schedule("os", "windows-team"),
    ];
    let with_mark = |taint: &Taint| [mark(), taint.clone()];
    for taint in &special {
        // On one node of a pool, and on the only node of one.
        for pool in ["a", "special"] {
            let taints = with_mark(taint);
            let world = PreflightCluster::of(&[
                ("w1", "windows", "10.0.20348.1", &[mark()]),
                ("w2", "windows", "10.0.26100.1", &taints),
            ]);
            let report = world.in_pools(&[("w1", "a"), ("w2", pool)]).report(&[]);
            let [tolerated, required] = taints_of(&report);
            assert_eq!(
                tolerated,
                Vec::<String>::new(),
                "the platform tolerates the mark already"
            );
            assert_eq!(required, ["os=windows:NoSchedule"], "{taint}");
            let decision = finding(&report, &format!("the taint {taint} on 1 of 2 Windows nodes"));
            assert_eq!(decision.status, FindingStatus::ActionRequired);
            assert_eq!(decision.evidence, ["node w2"]);
            let remedy = decision.remedy.as_deref().unwrap();
            assert!(
                remedy.contains(&taint.key)
                    && remedy.contains("podPolicies.default.spec.placement.toleratedTaints"),
                "{remedy}"
            );
        }
    }
}

#[test]
fn a_taint_that_means_windows_is_required_if_a_whole_pool_has_it_and_it_names_no_release() {
    let own = Taint::no_schedule("sku", "windows");
    let of_release = Taint::no_schedule("os", "win2019");
    let (own, of_release) = (&[own][..], &[of_release][..]);
    let of = |first: &[Taint], second: &[Taint], pool: &str| {
        let kernel = "10.0.17763.1";
        let world = PreflightCluster::of(&[
            ("w1", "windows", kernel, first),
            ("w2", "windows", kernel, second),
        ]);
        let report = world.in_pools(&[("w1", "a"), ("w2", pool)]).report(&[]);
        let [tolerated, required] = taints_of(&report);
        (tolerated.len(), required.len())
    };
    assert_eq!(of(own, &[], "b"), (0, 1), "what is required is tolerated");
    assert_eq!(of(own, &[], "a"), (0, 0), "one node of its pool only");
    assert_eq!(of(of_release, &[], "b"), (1, 0), "right for one pool only");
    assert_eq!(of(of_release, of_release, "b"), (0, 1));
}

#[test]
fn linux_nodes_that_are_all_tainted_ask_for_tolerations_and_the_control_plane_is_the_last_choice() {
    let control = Taint::no_schedule("node-role.kubernetes.io/control-plane", "");
    let world = PreflightCluster::of(&[
        ("cp", "linux", "6.1", &[control]),
        (
            "l1",
            "linux",
            "6.1",
            &[
                Taint::no_schedule("cattle.io/os", "linux"),
                Taint::no_schedule("tier", "x"),
            ],
        ),
    ]);
    let report = world.report(&[]);
    let tolerations = &report.values.json()["tolerations"];
    assert_eq!(tolerations[0]["key"], "cattle.io/os", "{tolerations}");
    assert_eq!(tolerations[1]["key"], "tier", "{tolerations}");
}

#[test]
fn windows_nodes_that_may_go_and_whose_pool_nothing_names_are_named() {
    let kernel = "10.0.20348.1";
    let mut world = PreflightCluster::of(&[
        ("static", "windows", kernel, &[]),
        ("machine", "windows", kernel, &[]),
        ("pooled", "windows", kernel, &[]),
    ]);
    for (name, labels) in [
        ("machine", &[("node.kubernetes.io/instance-type", "m5.large")][..]),
        (
            "pooled",
            &[
                ("node.kubernetes.io/instance-type", "m5.large"),
                ("agentpool", "win"),
            ],
        ),
    ] {
        let labels: serde_json::Map<String, Value> = (labels.iter())
            .map(|(key, value)| ((*key).to_owned(), (*value).into()))
            .collect();
        let stored = json!({"metadata": {"name": name, "labels": labels},
            "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": kernel}}});
        let node = NodeView::from(serde_json::from_value::<WatchedNode>(stored).unwrap());
        world.view.nodes.insert(name.to_owned(), Arc::new(node));
    }
    let report = world.report(&[]);
    let found = finding(&report, "without a pool label");
    assert_eq!(found.evidence, ["node machine"]);
}

#[test]
fn a_node_pool_without_nodes_is_named_in_the_values() {
    let mut world = PreflightCluster::of(&[("l1", "linux", "6.1", &[])]);
    world.environment.scaled.push(NodeGroupResource {
        source: "NodePool win".into(),
        name: "win".into(),
        labels: [("karpenter.sh/nodepool".to_owned(), "win".to_owned())].into(),
        taints: vec![mark()],
        is_windows: true,
        build: Some(Build::new(20348)),
        ..NodeGroupResource::default()
    });
    let report = world.report(&[]);
    assert_eq!(
        finding(&report, "creates Windows nodes").evidence,
        ["NodePool win"]
    );
    assert_eq!(
        report.values.json()["nodePools"],
        json!({"win": {"spec": {"nodeSelector": {"matchLabels": {"karpenter.sh/nodepool": "win"}},
            "template": {"build": "10.0.20348", "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]}}}})
    );
}

#[test]
fn where_nodes_are_gated_daemon_sets_and_pools_without_the_startup_taint_are_named() {
    let agent = |tolerations: &Value| {
        let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations});
        (Kind::DaemonSet, workload(&spec))
    };
    let pool = |name: &str, startup_taints: Vec<String>| NodeGroupResource {
        source: format!("NodePool {name}"),
        name: name.to_owned(),
        is_windows: true,
        startup_taints,
        ..NodeGroupResource::default()
    };
    let report = |taints: &[Taint], tolerations: &Value, gated: Vec<String>| {
        let mut world = PreflightCluster::of(&[("w1", "windows", "10.0.20348.1", taints)]);
        world.environment.scaled = vec![pool("with", gated), pool("without", Vec::new())];
        let report = world.report(&[agent(tolerations)]);
        let findings = report.sections.into_iter().flat_map(|section| section.findings);
        let gate = findings.filter(|finding| finding.message.contains("startup taint"));
        gate.map(|finding| finding.message).collect::<Vec<String>>()
    };
    let all = json!([{"operator": "Exists"}]);
    assert_eq!(report(&[], &json!([]), Vec::new()), Vec::<String>::new());
    let gate = [Taint::no_schedule(Taint::STARTUP_KEY, "")];
    let by_node = report(&gate, &json!([]), Vec::new());
    let names = |findings: &[String], part: &str| findings.iter().any(|text| text.contains(part));
    assert!(
        names(&by_node, "it does not tolerate the startup taint"),
        "{by_node:?}"
    );
    let by_pool = report(&[], &all, vec![Taint::STARTUP_KEY.to_owned()]);
    let [pool, in_vain] = &by_pool[..] else {
        panic!("{by_pool:?}")
    };
    assert!(pool.starts_with("NodePool without creates"), "{pool}");
    let part = "no WindowsNodePolicy has startup: nothing waits for images";
    assert!(in_vain.contains(part) && names(&by_node, part), "{in_vain}");
}

#[test]
fn a_runtime_class_is_held_against_the_nodes() {
    let mut world = PreflightCluster::of(&[("w1", "windows", "10.0.20348.1", &[mark()])]);
    let class = |handler: &str, selector: Value| {
        let class = json!({"metadata": {}, "handler": handler, "scheduling": {"nodeSelector": selector}});
        Arc::new(serde_json::from_value(class).unwrap())
    };
    let of_build = |build: &str| json!({"node.kubernetes.io/windows-build": build});
    world.view.runtime_classes = [
        (
            "good".to_owned(),
            class("runhcs-wcow-process", of_build("10.0.20348")),
        ),
        (
            "gone".to_owned(),
            class("runhcs-wcow-process", of_build("10.0.17763")),
        ),
        (
            "odd".to_owned(),
            class("runhcs-wcow-hypervisor", json!({"kubernetes.io/os": "windows"})),
        ),
        ("open".to_owned(), class("runhcs-wcow-process", json!({}))),
        ("gvisor".to_owned(), class("runsc", json!({}))),
    ]
    .into();
    let report = world.report(&[]);
    finding(&report, "gone selects the build 10.0.17763, and no node has it");
    finding(
        &report,
        "no Windows node reports the handler runhcs-wcow-hypervisor of odd",
    );
    finding(
        &report,
        "open: only Windows nodes have the handler runhcs-wcow-process, but the class does not select them [TSM911",
    );
    finding(
        &report,
        "odd: the RuntimeClass for Hyper-V isolation has no overhead [TSM914",
    );
    assert!(!has_finding(&report, "gvisor"));
    let classes =
        &report.values.json()["podPolicies"]["default"]["spec"]["placement"]["runtimeClasses"]["names"];
    assert_eq!(
        *classes,
        json!([{"release": "ltsc2019", "name": "gone"}, {"release": "ltsc2022", "name": "good"}])
    );
}

#[test]
fn daemon_sets_are_evaluated_as_they_are_written() {
    let nodes = [
        ("l1", "linux", "6.1", &[][..]),
        ("w1", "windows", "10.0.20348.1", &[mark()][..]),
    ];
    for (spec, expected) in [
        (
            json!({"tolerations": [{"operator": "Exists"}]}),
            Some("DaemonSet shop/web names no operating system, and creates pods for Windows nodes: w1"),
        ),
        (json!({}), None),
        (
            json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"operator": "Exists"}]}),
            None,
        ),
        (
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
            Some("does not tolerate os=windows:NoSchedule"),
        ),
        (
            json!({"os": {"name": "windows"}, "tolerations": [{"operator": "Exists"}]}),
            Some("creates them for Linux nodes too: l1"),
        ),
        // The tag of an image is not certain evidence, but reason enough not to send its pods to Linux nodes.
        (
            json!({"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "fluent/fluent-bit:windows-2022"}]}),
            Some("creates them for Linux nodes too: l1"),
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
                "tolerations": [{"operator": "Exists"}]}),
            None,
        ),
        (
            json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"operator": "Exists"}]}),
            None,
        ),
    ] {
        let report = PreflightCluster::of(&nodes).report(&[(Kind::DaemonSet, workload(&spec))]);
        match expected {
            Some(text) => assert_eq!(finding(&report, text).evidence, ["DaemonSet shop/web"], "{spec}"),
            None => assert!(
                has_finding(&report, "each DaemonSet selects"),
                "{spec}: {:#?}",
                report.sections
            ),
        }
    }
}

#[test]
fn daemon_sets_that_a_taint_would_deny_are_named_before_nodes_have_it() {
    let agent = |tolerations: Value| {
        let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations});
        (Kind::DaemonSet, workload(&spec))
    };
    let world = || {
        PreflightCluster::of(&[
            ("w1", "windows", "10.0.20348.1", &[]),
            ("w2", "windows", "10.0.20348.1", &[]),
        ])
    };
    let text = "once all nodes have the taint os=windows:NoSchedule, it would be denied (TSM701)";
    let report = world().report(&[agent(json!([]))]);
    assert_eq!(finding(&report, text).evidence, ["DaemonSet shop/web"]);
    let tolerating = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    assert!(!has_finding(&world().report(&[agent(tolerating)]), text));
    // A node has it already: it is reported for that.
    let mixed = PreflightCluster::of(&[
        ("w1", "windows", "10.0.20348.1", &[mark()]),
        ("w2", "windows", "10.0.20348.1", &[]),
    ]);
    let report = mixed.report(&[agent(json!([]))]);
    assert!(
        has_finding(
            &report,
            "does not tolerate os=windows:NoSchedule of Windows nodes"
        ) && !has_finding(&report, text)
    );
}

#[test]
fn azure_npm_on_windows_nodes_has_an_end_of_support() {
    let nodes = [("w1", "windows", "10.0.20348.1", &[mark()][..])];
    let npm = |os: &str| {
        let spec = json!({"nodeSelector": {"kubernetes.io/os": os}, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "npm", "image": "mcr.microsoft.com/containernetworking/azure-npm:v1.5.45"}]});
        PreflightCluster::of(&nodes).report(&[(Kind::DaemonSet, workload(&spec))])
    };
    let text = "Azure Network Policy Manager enforces the NetworkPolicies of Windows pods";
    assert_eq!(finding(&npm("windows"), text).evidence, ["DaemonSet shop/web"]);
    assert!(!has_finding(&npm("linux"), text));
}

#[test]
fn a_webhook_in_a_namespace_with_windows_workloads_takes_it_out_of_nothing() {
    let mut world = PreflightCluster::of(&[("l1", "linux", "6.1", &[])]);
    let hooks = |name: &str, namespace: &str| WebhookPresence {
        is_mutating: true,
        name: name.into(),
        namespaces: [namespace.to_owned()].into(),
        sees_pods: true,
    };
    world.environment.hooks = vec![
        hooks("istio-sidecar-injector", "istio-system"),
        hooks("own", "shop"),
        hooks("zzz", "kube-system"),
    ];
    let report = world.report(&[(
        Kind::Deployment,
        workload(&json!({"nodeSelector": {"kubernetes.io/os": "windows"}})),
    )]);
    assert_eq!(
        report.values.json()["webhooks"]["excludedNamespaces"],
        json!([
            "calico-system",
            "tigera-operator",
            "gatekeeper-system",
            "istio-system"
        ])
    );
    assert_eq!(
        finding(&report, "sidecar injectors").evidence,
        ["MutatingWebhookConfiguration istio-sidecar-injector"]
    );
    finding(&report, "zzz is called after zz-transom");
    finding(&report, "own changes pods; what");
    assert!(!has_finding(
        &report,
        "not known whether the namespaces of webhooks"
    ));
}

#[test]
fn no_namespace_is_excluded_if_its_workloads_could_not_be_read() {
    let mut world = PreflightCluster::of(&[("l1", "linux", "6.1", &[])]);
    world.environment.hooks = vec![WebhookPresence {
        is_mutating: true,
        name: "own".into(),
        namespaces: ["shop".to_owned()].into(),
        sees_pods: true,
    }];
    let report = world.report_without(&[], &["deployments"], &[]);
    assert!(
        report.values.json()["webhooks"].is_null(),
        "{}",
        report.values.yaml()
    );
    let finding = finding(&report, "not known whether the namespaces of webhooks");
    assert!(finding.message.contains("(deployments could not be listed)"));
    assert_eq!(finding.status, FindingStatus::ActionRequired);
    assert_eq!(finding.evidence, ["namespace shop"]);
}

#[test]
fn nothing_that_was_seen_leaves_its_comment_or_its_quotes() {
    let mut values = HelmValues {
        platform: "p".into(),
        entries: Vec::new(),
    };
    values.add(
        &["a", "b"],
        json!({"x: #": ["- y", "{{ z }}", "n"]}),
        "one\nmode: Enforce\r\u{85}\u{2028}two",
    );
    values.add(&["c"], json!("yes"), "w");
    values.add(&["a", "d"], json!([]), "v");
    let text = values.yaml();
    let parsed = crate::manifest::parse(text.clone().into_bytes());
    let read: Value = serde_json::from_str(parsed.documents[0].json()).unwrap();
    assert_eq!(read, values.json(), "{text}");
    assert_eq!(
        text.lines()
            .filter(|line| line.trim_start().starts_with('#'))
            .count(),
        5,
        "{text}"
    );
}

#[test]
fn the_text_begins_with_what_it_adds_up_to_and_ends_in_the_values() {
    let world = PreflightCluster::of(&[("w1", "windows", "10.0.20348.1", &[])]);
    let bad = workload(&json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "hostNetwork": true}));
    let report = world.report(&[(Kind::Deployment, bad)]);
    let mut out = Vec::new();
    text::write(&report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("1 workload would be denied; 1 is stored for Windows."),
        "{text}"
    );
    assert!(
        text.contains("\n  ! ") && text.contains("    see: transom plan --to ltsc2025"),
        "{text}"
    );
    assert!(text.ends_with(&report.values.yaml()), "{text}");
    let denied = text.find("would be denied at the next create").unwrap();
    assert!(
        text.find("Deployment shop/web: host-network").unwrap() > denied,
        "{text}"
    );
    let (report, _) = text.split_once("\nValues\n").unwrap();
    let long = report.lines().find(|line| line.chars().count() > 120);
    assert_eq!(long, None);
}

/// Five pools, as `(name, kernel, kubelet, runtime, label)`.
const FIVE_POOLS: [(&str, &str, &str, &str, &str); 5] = [
    (
        "a-1",
        "10.0.17763.6893",
        "v1.37.1",
        "containerd://1.7.33",
        "kubernetes.azure.com/cluster",
    ),
    (
        "b-1",
        "10.0.20348.2582",
        "v1.37.1",
        "containerd://1.7.33",
        "kubernetes.azure.com/cluster",
    ),
    (
        "c-1",
        "10.0.25398.1",
        "v1.37.1",
        "containerd://1.7.33",
        "kubernetes.azure.com/cluster",
    ),
    (
        "d-1",
        "10.0.20348.4297",
        "v1.37.1",
        "containerd://1.7.33",
        "eks.amazonaws.com/nodegroup",
    ),
    (
        "e-1",
        "10.0.26100.6899",
        "v1.37.1",
        "containerd://2.1.9",
        "kubernetes.azure.com/cluster",
    ),
];

/// The sections on nodes and their support of a cluster with [`FIVE_POOLS`] and this minor release.
fn outlook_of(minor: u32, today: &str) -> Vec<String> {
    let mut world = PreflightCluster::of(&[("l1", "linux", "6.1", &[])]);
    world.view.kubernetes = minor;
    for (name, kernel, kubelet, runtime, label) in FIVE_POOLS {
        let stored: WatchedNode = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows", label: "x"},
                "annotations": {"projectcalico.org/IPv4Address": "10.0.0.4/24"}},
            "status": {"nodeInfo": {"operatingSystem": "windows", "kernelVersion": kernel,
                "kubeletVersion": kubelet, "containerRuntimeVersion": runtime}}}))
        .unwrap();
        world
            .view
            .nodes
            .insert(name.to_owned(), Arc::new(NodeView::from(stored)));
    }
    let mut snapshot = SnapshotBuilder::new(Facts::new(minor, date(2026, 1, 1)), []).take(
        &Arc::new(world.view),
        None,
        jiff::Timestamp::UNIX_EPOCH,
    );
    snapshot.facts.today = today.parse().unwrap();
    let platform = Platform::of(&world.environment);
    let input = ClusterInput {
        snapshot: &snapshot,
        environment: &world.environment,
        platform: &platform,
        unread: &BTreeSet::new(),
    };
    let line = |it: PreflightFinding| format!("{} {} {}", it.status, it.evidence.join(", "), it.message);
    let mut values = HelmValues {
        platform: String::new(),
        entries: Vec::new(),
    };
    let nodes = nodes::findings(input, None, Vec::new(), &mut values);
    nodes
        .into_iter()
        .chain(outlook::findings(input))
        .map(line)
        .collect()
}

#[test]
fn the_outlook_names_ends_what_the_next_release_takes_away_and_faults() {
    let has = |all: &[String], part: &str| {
        assert!(
            all.iter().any(|line| line.contains(part)),
            "{part:?} is missing: {all:#?}"
        );
    };
    let lacks = |all: &[String], part: &str| {
        assert!(
            !all.iter().any(|line| line.contains(part)),
            "{part:?} is there: {all:#?}"
        );
    };
    let at_34 = outlook_of(34, "2026-11-23");
    has(
        &at_34,
        "action-required node a-1 2026-03-01: end of support for Windows Server 2019 on AKS (https",
    );
    has(
        &at_34,
        "action-required node a-1 2027-04-01: removal of the node images",
    );
    has(
        &at_34,
        "ok node b-1 2028-06-30: end of support for Windows Server 2022 on AKS, in 585 days",
    );
    has(
        &at_34,
        "action-required node a-1 the next release, Kubernetes 1.35, does not support Windows Server 2019",
    );
    has(
        &at_34,
        "action-required node b-1 10.0.20348.2582: pods reach nothing",
    );
    // Possible faults need no action.
    let is_possible = |line: &&String| line.starts_with("ok node") && line.contains("[TSM912");
    assert!(at_34.iter().any(|line| is_possible(&line)), "{at_34:#?}");
    lacks(&at_34, "1.36:");
    let at_35 = outlook_of(35, "2026-11-23");
    has(
        &at_35,
        "from Kubernetes 1.36: new Windows pools get Windows Server 2025",
    );
    lacks(&at_35, "does not support Windows Server 2022");
    let at_36 = outlook_of(36, "2025-01-01");
    has(
        &at_36,
        "action-required node b-1 AKS does not support Windows Server 2022 with the next release, Kubernetes 1.37",
    );
    has(
        &at_36,
        "ok node a-1 2026-03-01: end of support for Windows Server 2019 on AKS, in 424 days",
    );
    let at_37 = outlook_of(37, "2026-11-23");
    has(
        &at_37,
        "action-required node a-1, node b-1, node c-1, node d-1 from Kubernetes 1.38: the kubelet drops",
    );
}

#[test]
fn a_webhook_that_nothing_answers_is_named_with_its_service() {
    let mut world = PreflightCluster::of(&[("w1", "windows", "10.0.26100.6899", &[mark()])]);
    world
        .environment
        .unanswered
        .push(crate::cluster::environment::UnansweredWebhook {
            configuration: "gmsa".into(),
            namespace: "gmsa".into(),
            service: "windows-gmsa".into(),
        });
    let report = world.report(&[]);
    let found = finding(&report, "the webhook gmsa refuses pods");
    assert_eq!(found.status, FindingStatus::ActionRequired);
    assert!(found.message.contains("gmsa/windows-gmsa"), "{}", found.message);
}
