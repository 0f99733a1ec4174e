//! Pods with and without problems, on a cluster of plain data.

use std::borrow::Cow;

use jiff::civil::date;
use serde_json::{Value, json};

use super::*;
use crate::cluster::node::NodeView;
use crate::engine::policy_set::PolicySet;
use crate::model::cluster::facts::{Facts, RuntimeClassFacts};
use crate::model::nodes::node::Host;
use crate::model::objects::object::ReviewStage;
use crate::model::objects::workload::Kind;

const NOW: &str = "2026-06-01T12:00:00Z";

/// Nodes: `old` (2019) and `new` (2022), both tainted os=windows, `lin`.
struct TestCluster {
    facts: Facts,
    nodes: BTreeMap<String, Arc<NodeView>>,
    policy: Policy,
    knows_nodes: bool,
}

fn windows(name: &str, build: &str) -> NodeView {
    NodeView {
        name: name.to_owned(),
        operating_system: "windows".to_owned(),
        kernel_version: format!("{build}.1"),
        labels: Arc::new(
            [
                ("kubernetes.io/os", "windows"),
                ("node.kubernetes.io/windows-build", build),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ),
        taints: serde_json::from_value(json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]))
            .unwrap(),
        runtime_handlers: vec!["runhcs-wcow-process".to_owned()],
        ..NodeView::default()
    }
}

impl TestCluster {
    fn new() -> Self {
        let nodes = [windows("old", "10.0.17763"), windows("new", "10.0.20348")];
        let mut cluster = TestCluster {
            facts: Facts::new(36, date(2026, 6, 1)),
            nodes: nodes.map(|node| (node.name.clone(), Arc::new(node))).into(),
            policy: Policy::cluster_default(),
            knows_nodes: true,
        };
        cluster.class(
            "hyperv",
            "runhcs-wcow-hypervisor",
            &[("kubernetes.io/os", "windows")],
        );
        cluster.class("nowhere", "runhcs-wcow-process", &[("pool", "gone")]);
        cluster
    }

    fn class(&mut self, name: &str, handler: &str, selector: &[(&str, &str)]) {
        let selector = selector
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let class = RuntimeClassFacts {
            handler: handler.to_owned(),
            node_selector: selector.collect(),
            ..RuntimeClassFacts::default()
        };
        self.facts.runtime_classes.insert(name.to_owned(), class);
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut NodeView)) {
        change(Arc::make_mut(self.nodes.get_mut(node).unwrap()));
    }

    fn trouble(&self, pod: &Value) -> Option<PodFinding> {
        let json = pod.to_string();
        let subject = Object::parse(Kind::Pod, &json, ReviewStage::Stored).unwrap();
        let eval_context = EvalContext {
            facts: &self.facts,
            policies: Cow::Owned(PolicySet::new(Vec::new(), self.policy.clone())),
            excluded: &[],
            registered: None,
            custom: &[],
        };
        let pod_context = PodContext {
            eval_context: &eval_context,
            nodes: self.knows_nodes.then_some(&self.nodes),
            is_other: &|name| name == "lin",
            knows_classes: true,
        };
        trouble(&subject, &json, None, &pod_context, NOW.parse().unwrap())
    }

    fn problem(&self, pod: &Value) -> Option<PodProblem> {
        self.trouble(pod).map(|trouble| trouble.problem)
    }
}

const TAINT: &str = r#"[{"key": "os", "value": "windows", "effect": "NoSchedule"}]"#;

#[allow(clippy::needless_pass_by_value)] // by value, so that callers can pass json!
fn pod(spec: Value, status: Value) -> Value {
    json!({
        "metadata": {"name": "web-1", "namespace": "shop", "creationTimestamp": "2026-06-01T11:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true}]},
        "spec": spec,
        "status": status,
    })
}

fn windows_pod(more: Value, status: Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": serde_json::from_str::<Value>(TAINT).unwrap(),
        "containers": [{"name": "web", "image": "web:1"}],
    });
    let (Value::Object(spec_map), Value::Object(more)) = (&mut spec, more) else {
        unreachable!()
    };
    spec_map.extend(more);
    pod(spec, status)
}

fn unschedulable() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "lastTransitionTime": "2026-06-01T11:30:00Z"}]})
}

fn waiting(message: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{"name": "web", "state":
        {"waiting": {"reason": "RunContainerError", "message": message}}}]})
}

const MISMATCH: &str = "failed to create containerd task: failed to create shim task: hcs::CreateComputeSystem web: The \
                        container operating system does not match the host operating system.: unknown";
const NO_IMAGE: &str = "failed to pull and unpack image \"docker.io/library/alpine:3\": no match for platform in manifest: \
                        not found";

#[test]
fn a_pod_on_a_node_of_the_other_operating_system_is_reported() {
    let cluster = TestCluster::new();
    let windows = |node: &str| windows_pod(json!({"nodeName": node}), json!({"phase": "Pending"}));
    let reported = cluster.trouble(&windows("lin")).unwrap();
    assert_eq!(reported.problem, PodProblem::OperatingSystem);
    assert_eq!(
        reported.message,
        "a Windows pod on lin, which is not a Windows node"
    );
    assert_eq!(
        reported.remedy,
        "change the template of the ReplicaSet web: select kubernetes.io/os: windows"
    );
    assert_eq!(
        (reported.owner.as_deref(), reported.node.as_deref()),
        (Some("ReplicaSet web"), Some("lin"))
    );
    assert_eq!(cluster.problem(&windows("new")), None);
    assert_eq!(cluster.problem(&windows("made-since-the-nodes-were-read")), None);
    let linux = pod(
        json!({"nodeName": "new", "nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "a"}]}),
        json!({}),
    );
    assert_eq!(cluster.problem(&linux), Some(PodProblem::OperatingSystem));
}

#[test]
fn an_image_of_a_windows_only_repository_on_a_linux_node_is_reported_before_its_kubelet_fails() {
    let cluster = TestCluster::new();
    let of = |image: &str, status: Value| {
        pod(
            json!({"nodeName": "lin", "containers": [{"name": "a", "image": image}]}),
            status,
        )
    };
    let pulling = || json!({"phase": "Pending"});
    let base = "mcr.microsoft.com/windows/servercore:ltsc2022";
    assert_eq!(
        cluster.problem(&of(base, pulling())),
        Some(PodProblem::OperatingSystem)
    );
    assert_eq!(
        cluster.problem(&of("registry.example/web:ltsc2022", pulling())),
        None
    );
    assert_eq!(
        cluster.problem(&of("registry.example/web:ltsc2022", waiting(NO_IMAGE))),
        Some(PodProblem::OperatingSystem)
    );
}

#[test]
fn an_agent_for_every_operating_system_is_left_alone_until_its_kubelet_says_that_it_cannot_run() {
    let cluster = TestCluster::new();
    let agent = |status| {
        pod(
            json!({"nodeName": "new", "tolerations": [{"operator": "Exists"}], "containers": [{"name": "a", "image": "agent:1"}]}),
            status,
        )
    };
    assert_eq!(cluster.problem(&agent(json!({"phase": "Pending"}))), None);
    assert_eq!(
        cluster.problem(&agent(waiting("back-off 5m0s restarting failed container"))),
        None
    );
    assert_eq!(
        cluster.problem(&agent(waiting(NO_IMAGE))),
        Some(PodProblem::OperatingSystem)
    );
}

#[test]
fn a_pod_that_is_ready_or_has_ended_runs_where_it_is() {
    let cluster = TestCluster::new();
    let on_linux = |status| windows_pod(json!({"nodeName": "lin"}), status);
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(cluster.problem(&on_linux(ready)), None);
    assert_eq!(cluster.problem(&on_linux(json!({"phase": "Failed"}))), None);
    let mut leaving = on_linux(json!({}));
    leaving["metadata"]["deletionTimestamp"] = json!(NOW);
    assert_eq!(cluster.problem(&leaving), None);
}

#[test]
fn a_pod_on_a_build_that_does_not_run_its_image_is_reported() {
    let cluster = TestCluster::new();
    let on = |node: &str, image: &str, more: Value, status: Value| {
        let mut pod = windows_pod(
            json!({"nodeName": node, "containers": [{"name": "web", "image": image}]}),
            status,
        );
        let (Value::Object(spec), Value::Object(more)) = (&mut pod["spec"], more) else {
            unreachable!()
        };
        spec.extend(more);
        pod
    };
    let nano = "mcr.microsoft.com/windows/nanoserver:ltsc2022";
    let reported = cluster.trouble(&on("old", nano, json!({}), json!({}))).unwrap();
    assert_eq!(reported.problem, PodProblem::Build);
    assert_eq!(
        reported.message,
        "its image mcr.microsoft.com/windows/nanoserver:ltsc2022 is for 10.0.20348, which old (10.0.17763, Windows Server \
         2019) does not run"
    );
    assert_eq!(cluster.problem(&on("new", nano, json!({}), json!({}))), None);
    let host_process = json!({"securityContext": {"windowsOptions": {"hostProcess": true}}});
    assert_eq!(
        cluster.problem(&on("old", nano, host_process, waiting(MISMATCH))),
        None
    );
    let mut hyperv = cluster;
    hyperv.change("new", |node| {
        node.runtime_handlers.push("runhcs-wcow-hypervisor".to_owned());
    });
    let old_image = "mcr.microsoft.com/windows/nanoserver:1809";
    let of = |class: Value| on("new", old_image, class, json!({}));
    assert_eq!(hyperv.problem(&of(json!({}))), Some(PodProblem::Build));
    assert_eq!(hyperv.problem(&of(json!({"runtimeClassName": "hyperv"}))), None);
    // The tag of another repository is reported only if the kubelet confirms it.
    let own = |status| on("old", "registry.example/web:ltsc2022", json!({}), status);
    assert_eq!(hyperv.problem(&own(json!({}))), None);
    assert_eq!(hyperv.problem(&own(waiting(MISMATCH))), Some(PodProblem::Build));
    assert_eq!(
        hyperv.problem(&on("old", "web:1", json!({}), waiting(MISMATCH))),
        Some(PodProblem::Build)
    );
}

#[test]
fn a_bound_pod_without_its_runtime_class_or_handler_is_reported() {
    let cluster = TestCluster::new();
    let of = |class: &str| windows_pod(json!({"nodeName": "new", "runtimeClassName": class}), json!({}));
    let reported = cluster.trouble(&of("gone")).unwrap();
    assert_eq!(reported.problem, PodProblem::WaitsForRuntimeClass);
    assert_eq!(
        reported.message,
        "there is no RuntimeClass gone, which the pod names"
    );
    let reported = cluster.trouble(&of("hyperv")).unwrap();
    assert_eq!(
        reported.message,
        "the node new has no handler runhcs-wcow-hypervisor, which the RuntimeClass hyperv requires"
    );
    let mut silent = cluster;
    silent.change("new", |node| node.runtime_handlers.clear());
    assert_eq!(silent.problem(&of("hyperv")), None);
}

#[test]
fn a_pod_that_waits_is_reported_with_why_no_windows_node_takes_it() {
    let cluster = TestCluster::new();
    for (more, wrong, message) in [
        (json!({}), None, ""),
        (
            json!({"nodeSelector": {"kubernetes.io/os": "Windows"}}),
            Some(PodProblem::WaitsForOs),
            "no Windows node has kubernetes.io/os: Windows",
        ),
        (
            json!({"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.26100"}}),
            Some(PodProblem::WaitsForBuild),
            "it requires build 10.0.26100, which no Windows node has; there is 10.0.17763 (1), 10.0.20348 (1)",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.26100"]}]}]}}}}),
            Some(PodProblem::WaitsForBuild),
            "it requires build 10.0.26100, which no Windows node has; there is 10.0.17763 (1), 10.0.20348 (1)",
        ),
        (
            json!({"tolerations": []}),
            Some(PodProblem::WaitsForToleration),
            "the Windows nodes that it may run on carry os=windows:NoSchedule, which it does not tolerate",
        ),
        (
            json!({"runtimeClassName": "gone"}),
            Some(PodProblem::WaitsForRuntimeClass),
            "there is no RuntimeClass gone, which the pod names",
        ),
        (
            json!({"runtimeClassName": "nowhere", "nodeSelector": {"kubernetes.io/os": "windows", "pool": "gone"}}),
            Some(PodProblem::WaitsForRuntimeClass),
            "the RuntimeClass nowhere selects pool=gone, which no Windows node has",
        ),
        (
            json!({"runtimeClassName": "hyperv"}),
            Some(PodProblem::WaitsForRuntimeClass),
            "the node old has no handler runhcs-wcow-hypervisor, which the RuntimeClass hyperv requires",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}}),
            Some(PodProblem::WaitsForAffinity),
            "its required node affinity matches no node: an empty term matches none",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "NotIn",
                    "values": ["10.0.17763", "10.0.20348"]}]}]}}}}),
            Some(PodProblem::WaitsForBuild),
            "it excludes build 10.0.17763 and 10.0.20348, and no Windows node is left; there is 10.0.17763 (1), 10.0.20348 (1)",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "NotIn", "values": ["10.0.17763"]}]}]}}},
                "tolerations": []}),
            Some(PodProblem::WaitsForToleration),
            "the Windows nodes that it may run on carry os=windows:NoSchedule, which it does not tolerate",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{},
                {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]}]}}}}),
            None,
            "",
        ),
        // Transom does not check labels other than those of operating systems and builds.
        (
            json!({"nodeSelector": {"kubernetes.io/os": "windows", "zone": "z"}, "tolerations": []}),
            None,
            "",
        ),
        // Another node than the one that cannot run the image may accept the pod.
        (
            json!({"containers": [{"name": "web", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}),
            None,
            "",
        ),
        (
            json!({"containers": [{"name": "web", "image": "mcr.microsoft.com/windows/nanoserver:ltsc2025"}]}),
            Some(PodProblem::WaitsForBuild),
            "its image mcr.microsoft.com/windows/nanoserver:ltsc2025 is for 10.0.26100, which none of the nodes that it may \
             run on runs; there is 10.0.17763 (1), 10.0.20348 (1)",
        ),
    ] {
        let reported = cluster.trouble(&windows_pod(more.clone(), unschedulable()));
        assert_eq!(
            reported.as_ref().map(|reported| reported.problem),
            wrong,
            "{more}"
        );
        assert_eq!(
            reported.map(|reported| reported.message).unwrap_or_default(),
            message,
            "{more}"
        );
    }
}

#[test]
fn a_pod_that_waits_only_for_what_passes_is_not_reported() {
    let mut cluster = TestCluster::new();
    for node in ["old", "new"] {
        cluster.change(node, |node| {
            node.taints = serde_json::from_value(
                json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
            )
            .unwrap();
        });
    }
    let untolerating = windows_pod(json!({"tolerations": []}), unschedulable());
    assert_eq!(cluster.problem(&untolerating), None);
    let gated = windows_pod(
        json!({"tolerations": [], "schedulingGates": [{"name": "quota"}]}),
        unschedulable(),
    );
    assert_eq!(TestCluster::new().problem(&gated), None);
    assert_eq!(
        TestCluster::new().problem(&untolerating),
        Some(PodProblem::WaitsForToleration)
    );
}

#[test]
fn a_pod_without_a_word_of_the_scheduler_is_reported_after_a_minute_and_whatever_the_clock_does() {
    let cluster = TestCluster::new();
    for (created, reported) in [
        ("2026-06-01T11:58:59Z", true),
        ("2026-06-01T11:59:30Z", false),
        ("2026-06-02T12:00:00Z", false),
    ] {
        let mut silent = windows_pod(json!({"tolerations": []}), json!({"phase": "Pending"}));
        silent["metadata"]["creationTimestamp"] = json!(created);
        assert_eq!(cluster.problem(&silent).is_some(), reported, "{created}");
    }
}

#[test]
fn where_placement_would_give_the_toleration_the_remedy_is_to_make_the_pod_anew() {
    let mut cluster = TestCluster::new();
    let untolerating = windows_pod(json!({"tolerations": []}), unschedulable());
    let reported = cluster.trouble(&untolerating).unwrap();
    assert_eq!(
        reported.remedy,
        "change the template of the ReplicaSet web: tolerate {key: os, operator: Equal, value: windows, effect: NoSchedule}"
    );
    assert_eq!(reported.since, "2026-06-01T11:30:00Z".parse().ok());
    cluster.policy = Policy::standalone();
    let reported = cluster.trouble(&untolerating).unwrap();
    assert_eq!(
        reported.remedy,
        "delete the pod: placement gives the next one the toleration"
    );
}

#[test]
fn without_a_windows_node_the_pools_at_zero_are_named() {
    let mut cluster = TestCluster::new();
    cluster.nodes.clear();
    let waiting = windows_pod(json!({}), unschedulable());
    let reported = cluster.trouble(&waiting).unwrap();
    assert_eq!(reported.problem, PodProblem::WaitsForOs);
    assert_eq!(reported.remedy, "add a pool of Windows nodes to the cluster");
    cluster.facts.add_host(Host {
        name: "of the pool agentpool=win (at zero nodes)".to_owned(),
        may_be_at_zero: true,
        ..Host::default()
    });
    let reported = cluster.trouble(&waiting).unwrap();
    assert!(
        reported
            .remedy
            .ends_with("of the pool agentpool=win (at zero nodes)"),
        "{}",
        reported.remedy
    );
    cluster.knows_nodes = false;
    assert_eq!(cluster.trouble(&waiting), None);
}

#[test]
fn a_windows_pod_that_was_relabelled_after_its_owner_created_it_is_reported() {
    let cluster = TestCluster::new();
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let on_node = json!({"nodeName": "new"});
    let labelled = |mut pod: Value, os: &str| {
        pod["metadata"]["labels"] = json!({"kubernetes.io/os": os});
        pod
    };
    let running = windows_pod(on_node.clone(), ready.clone());
    let relabelled = labelled(running.clone(), "linux");
    let reported = cluster.trouble(&relabelled).unwrap();
    assert_eq!(reported.problem, PodProblem::OsLabel);
    assert_eq!(
        reported.message,
        "its label kubernetes.io/os is \"linux\", so its kubelet rejects it, at the latest when the kubelet restarts"
    );
    assert_eq!(reported.owner.as_deref(), Some("ReplicaSet web"));
    let json = relabelled.to_string();
    let object = Object::parse(Kind::Pod, &json, ReviewStage::Stored).unwrap();
    assert!(may_have_trouble(&object, &json));

    assert_eq!(cluster.trouble(&running), None);
    assert_eq!(cluster.trouble(&labelled(running.clone(), "windows")), None);
    let ended = labelled(
        windows_pod(on_node.clone(), json!({"phase": "Succeeded"})),
        "linux",
    );
    assert_eq!(cluster.trouble(&ended), None);
    // Without an owner it is evaluated itself, which finds the label.
    let mut bare = relabelled;
    bare["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(cluster.trouble(&bare), None);
    // What is wrong with its place comes first.
    let misplaced = labelled(
        windows_pod(json!({"nodeName": "lin"}), json!({"phase": "Pending"})),
        "linux",
    );
    assert_eq!(cluster.problem(&misplaced), Some(PodProblem::OperatingSystem));
}
