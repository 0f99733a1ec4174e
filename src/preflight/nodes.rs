//! Findings about nodes: the Windows nodes by build, what the rules report of them, their runtimes, where Transom's own pods can
//! run, and the RuntimeClasses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm_values::HelmValues;
use super::{ClusterInput, PreflightFinding, plan_hint};
use crate::cluster::environment::AnyNode;
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::Snapshot;
use crate::engine::runtime_class_findings;
use crate::model::cluster::facts::{Runtime, RuntimeClassFacts};
use crate::model::nodes::node::{BUILD_LABEL, NodeSigns as _, OS_LABEL, Taint};
use crate::model::syntax::text::{count, list};
use crate::model::windows::build::{Build, Release};
use crate::plan::UpgradePlan;

/// The Windows nodes.
pub fn windows(snapshot: &Snapshot) -> impl Iterator<Item = &NodeView> {
    let nodes = snapshot.cache.nodes.values().map(|node| &**node);
    nodes.filter(|node| node.has_windows())
}

/// The names of nodes.
pub fn names<'n>(nodes: impl Iterator<Item = &'n NodeView>) -> Vec<&'n str> {
    nodes.map(|node| node.name.as_str()).collect()
}

/// The findings about nodes, with those about their taints. Adds to the values the tolerations that Transom's own pods need.
pub fn findings(
    input: ClusterInput<'_>,
    plan: Option<&UpgradePlan>,
    taints: Vec<PreflightFinding>,
    values: &mut HelmValues,
) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    if !input.could_list("nodes") {
        all.push(PreflightFinding::act(
            "not known (not read): nodes, and their builds, taints and labels",
            "run this again with an account that may list nodes",
        ));
        return all;
    }
    if windows(input.snapshot).next().is_none() {
        all.push(PreflightFinding::fine("there is no Windows node now"));
    }
    all.extend(builds(input));
    all.extend(plan_hint(input, plan));
    all.extend(of_rules(input));
    all.extend(taints);
    all.extend(os_label(input));
    if input.snapshot.facts.runtime == Runtime::Docker {
        let nodes = windows(input.snapshot).map(|node| format!("{} ({})", node.name, node.container_runtime));
        all.push(
            PreflightFinding::act(
                "the Windows nodes run Docker, which no supported Kubernetes release can use",
                "move them to containerd 1.7 or later",
            )
            .on_nodes(nodes),
        );
    }
    all.push(own_pods(input, values));
    all
}

fn builds(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let mut by_build: BTreeMap<Build, Vec<&NodeView>> = BTreeMap::new();
    let mut silent = Vec::new();
    for node in windows(input.snapshot) {
        match node.build() {
            Some(build) => by_build.entry(build).or_default().push(node),
            None => silent.push(&node.name),
        }
    }
    let mut all = Vec::new();
    for (build, nodes) in by_build {
        let finding = of_build(build, &nodes);
        all.push(finding.on_nodes(names(nodes.into_iter())));
    }
    if !silent.is_empty() {
        let text = format!("{} Windows nodes do not report their build", silent.len());
        let remedy = "check that their kubelets run: placement cannot use the builds of these nodes";
        all.push(PreflightFinding::act(text, remedy).on_nodes(silent));
    }
    all
}

/// How many nodes have a build, and until when Microsoft supports it. The rules report what is wrong with it.
fn of_build(build: Build, nodes: &[&NodeView]) -> PreflightFinding {
    let release = build.release();
    let product = release.map_or("a build that Transom does not know", |release| release.product);
    let end = release.and_then(Release::end_of_support);
    let until = end.map(|end| format!(", serviced until {end}"));
    PreflightFinding::fine(format!(
        "{} with {build} ({product}){}",
        count(nodes.len(), "node"),
        until.unwrap_or_default()
    ))
}

/// What the rules report of the nodes, in the words of `transom check`.
fn of_rules(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let findings = input.snapshot.node_findings().into_iter().map(|found| {
        let message = format!("{} {}", found.message, found.source());
        let finding = if found.is_possible_fault() {
            PreflightFinding {
                remedy: Some(found.remedy),
                ..PreflightFinding::fine(message)
            }
        } else {
            PreflightFinding::act(message, found.remedy)
        };
        finding.on_nodes(found.nodes)
    });
    findings.collect()
}

/// A build and its product, if it is known.
pub fn build_text(build: Build) -> String {
    let release = build.release().map(|release| format!(" ({})", release.product));
    format!("{build}{}", release.unwrap_or_default())
}

/// The nodes without the label of the operating system, which no rule reports.
fn os_label(input: ClusterInput<'_>) -> Option<PreflightFinding> {
    let lacks = |node: &&NodeView| node.label(OS_LABEL) != Some("windows");
    let lacking = names(windows(input.snapshot).filter(lacks));
    let text = format!(
        "{} without the right label {OS_LABEL}",
        count(lacking.len(), "Windows node")
    );
    let remedy = "the kubelet writes it when it registers the node: find out why it has not";
    (!lacking.is_empty()).then(|| PreflightFinding::act(text, remedy).on_nodes(lacking))
}

/// Where Transom's two pods can run: Linux nodes, with the chart's default tolerations, which are none.
fn own_pods(input: ClusterInput<'_>, values: &mut HelmValues) -> PreflightFinding {
    let nodes = input.environment.nodes.iter();
    let linux = nodes.filter(|node| node.labels.get(OS_LABEL).is_some_and(|os| os == "linux"));
    let linux: Vec<(&AnyNode, BTreeSet<&Taint>)> = linux.map(|node| (node, keeping_off(node))).collect();
    let open = linux.iter().filter(|(_, taints)| taints.is_empty());
    let open: Vec<&str> = open.map(|(node, _)| node.name.as_str()).collect();
    // Prefers nodes outside the control plane, then nodes with fewer taints.
    let least = linux
        .iter()
        .min_by_key(|(_, taints)| (is_control_plane(taints), taints.len()));
    match (open.as_slice(), least) {
        ([], Some((node, taints))) => {
            let node = &node.name;
            let shown = list(taints.iter().map(ToString::to_string), 10);
            let tolerations: Vec<Value> = taints.iter().map(|taint| toleration(taint)).collect();
            let why = format!(
                "all Linux nodes are tainted, node {node} with {shown}: Transom's own pods would wait"
            );
            values.add(&["tolerations"], Value::from(tolerations), why);
            PreflightFinding::act(
                format!(
                    "all {} Linux nodes are tainted: Transom's own pods would not be scheduled",
                    linux.len()
                ),
                format!("the values below tolerate {shown}, as on node {node}"),
            )
            .on_nodes(linux.iter().map(|(node, _)| &node.name))
        }
        ([], None) => PreflightFinding::act(
            "there is no Linux node: Transom's own pods would not be scheduled",
            "Transom is a Linux program; add a node with the label kubernetes.io/os: linux",
        ),
        ([only], _) => PreflightFinding::fine(
            "both of Transom's own pods would run on the one Linux node that is open to them",
        )
        .on_nodes([only]),
        _ => PreflightFinding::fine(format!(
            "Transom's own pods can run on {} Linux nodes",
            open.len()
        )),
    }
}

/// The lasting taints that keep pods off a node.
fn keeping_off(node: &AnyNode) -> BTreeSet<&Taint> {
    let taints = node.taints.iter();
    taints.filter(|taint| taint.keeps_ordinary_pods_off()).collect()
}

fn is_control_plane(taints: &BTreeSet<&Taint>) -> bool {
    const KEYS: [&str; 2] = [
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    ];
    taints.iter().any(|taint| KEYS.contains(&taint.key.as_str()))
}

fn toleration(taint: &Taint) -> Value {
    if taint.value.is_empty() {
        json!({"key": taint.key, "operator": "Exists", "effect": taint.effect})
    } else {
        json!({"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect})
    }
}

/// Whether a RuntimeClass is for Windows, by its handler or its node selector.
pub fn is_windows_class(name: &str, class: &RuntimeClassFacts) -> bool {
    let selects = class
        .node_selector
        .get(OS_LABEL)
        .is_some_and(|os| os == "windows");
    selects || class.node_selector.contains_key(BUILD_LABEL) || class.is_for_windows_by_handler(name)
}

/// The findings about RuntimeClasses.
pub fn classes(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    if !input.could_list("runtimeclasses") {
        return vec![PreflightFinding::fine("not known (not read): RuntimeClasses")];
    }
    let classes = input.snapshot.facts.runtime_classes.iter();
    let classes = classes.filter(|(name, class)| is_windows_class(name, class));
    let mut all: Vec<PreflightFinding> = classes
        .flat_map(|(name, class)| {
            let title = format!("RuntimeClass {name}");
            let findings = of_class(input, name, class).into_iter();
            findings.map(move |finding| finding.by([&title]))
        })
        .collect();
    if all.is_empty() {
        all.push(PreflightFinding::fine(
            "there is no RuntimeClass for Windows; none is needed",
        ));
    }
    all
}

fn of_class(input: ClusterInput<'_>, name: &str, class: &RuntimeClassFacts) -> Vec<PreflightFinding> {
    let handler = &class.handler;
    let build = class.node_selector.get(BUILD_LABEL);
    let build = build.and_then(|build| Build::parse_label(build));
    let of_build = build.map_or_else(String::new, |build| format!(", for {}", build_text(build)));
    let text = format!("{name} is for Windows: handler {handler}{of_build}");
    let mut all = vec![PreflightFinding::fine(text)];
    let stored = input.snapshot.cache.runtime_classes.get(name);
    let json = stored.and_then(|stored| serde_json::to_string(&**stored).ok());
    for found in runtime_class_findings(&json.unwrap_or_default(), &input.snapshot.facts) {
        let text = format!(
            "{name}: {} [{} {}]",
            found.message, found.rule.id, found.rule.name
        );
        all.push(PreflightFinding::act(text, found.remedy));
    }
    let mut handlers = windows(input.snapshot)
        .flat_map(|node| &node.runtime_handlers)
        .peekable();
    if handlers.peek().is_some() && !handlers.any(|known| known == handler) && input.could_list("nodes") {
        let text = format!("no Windows node reports the handler {handler} of {name}");
        let remedy = "configure it in containerd on the nodes, or correct the class";
        all.push(PreflightFinding::act(text, remedy));
    }
    let has_nodes = windows(input.snapshot).next().is_some();
    let is_missing = |build: &Build| has_nodes && !input.snapshot.facts.builds().contains(build);
    if let Some(build) = build.filter(is_missing) {
        let text = format!("{name} selects the build {build}, and no node has it");
        let remedy = "if its pool is at zero nodes, name the pool in nodePools; otherwise delete the class";
        all.push(PreflightFinding::act(text, remedy));
    }
    all
}
