//! Findings about nodes: the Windows nodes by build, their taints, labels and runtimes, where Transom's own
//! pods can run, and the RuntimeClasses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm_values::HelmValues;
use super::{ClusterInput, PreflightFinding, plan_hint};
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::Snapshot;
use crate::model::build::{Build, supported_on};
use crate::model::facts::{Runtime, RuntimeClassFacts};
use crate::model::node::{BUILD_LABEL, NodeSigns as _, OS_LABEL, Taint};
use crate::model::text::{count, list};
use crate::plan::UpgradePlan;

/// The Windows nodes.
pub fn windows(snapshot: &Snapshot) -> impl Iterator<Item = &NodeView> {
    let nodes = snapshot.view.nodes.values().map(|node| &**node);
    nodes.filter(|node| node.is_windows())
}

/// The findings about nodes. Adds to the values the tolerations that Transom's own pods need.
pub fn findings(
    input: ClusterInput<'_>,
    plan: Option<&UpgradePlan>,
    values: &mut HelmValues,
) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    if !input.could_list(&["nodes"]) {
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
    all.extend(taints(input));
    all.extend(labels(input));
    if input.snapshot.facts.runtime == Runtime::Docker {
        let by =
            windows(input.snapshot).map(|node| format!("node {} ({})", node.name, node.container_runtime));
        all.push(
            PreflightFinding::act(
                "the Windows nodes run Docker, which no supported Kubernetes release can use",
                "move them to containerd 1.7 or later",
            )
            .by(by),
        );
    }
    all.push(own_pods(input, values));
    all
}

fn builds(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let mut by_build: BTreeMap<Build, Vec<&str>> = BTreeMap::new();
    let mut silent = Vec::new();
    for node in windows(input.snapshot) {
        match node.build() {
            Some(build) => by_build.entry(build).or_default().push(&node.name),
            None => silent.push(&node.name),
        }
    }
    let facts = &input.snapshot.facts;
    let mut all = Vec::new();
    for (build, nodes) in by_build {
        let release = build.release();
        let product = release.map_or("a build that Transom does not know", |release| release.product);
        let what = format!("{} with {build} ({product})", count(nodes.len(), "node"));
        let by = nodes.iter().map(|name| format!("node {name}"));
        let end = release.and_then(crate::model::build::Release::end_of_support);
        let support = supported_on(facts.kubernetes);
        all.push(if support.is_some_and(|support| support.lacks(build)) {
            let text = format!("{what}, which Kubernetes 1.{} does not support", facts.kubernetes);
            PreflightFinding::act(text, "move their workloads to nodes of a supported build").by(by)
        } else {
            match end {
                Some(end) if end < facts.today => PreflightFinding::act(
                    format!("{what}, serviced until {end}"),
                    "move their workloads to nodes of a build that is serviced",
                )
                .by(by),
                Some(end) => PreflightFinding::fine(format!("{what}, serviced until {end}")).by(by),
                None => PreflightFinding::fine(what).by(by),
            }
        });
    }
    if !silent.is_empty() {
        let text = format!("{} Windows nodes do not report their build", silent.len());
        all.push(
            PreflightFinding::act(
                text,
                "check that their kubelets run: placement cannot use the builds of these nodes",
            )
            .by(silent.iter().map(|name| format!("node {name}"))),
        );
    }
    all
}

/// The lasting taints, with the nodes that have each.
pub fn lasting_taints(snapshot: &Snapshot) -> BTreeMap<Taint, Vec<&str>> {
    let mut all: BTreeMap<Taint, Vec<&str>> = BTreeMap::new();
    for node in windows(snapshot) {
        for taint in node.taints().into_iter().filter(Taint::lasts) {
            all.entry(taint).or_default().push(&node.name);
        }
    }
    all
}

/// Whether a taint keeps Linux pods off Windows nodes: by its usual key and value, or by the operator's own.
pub fn is_for_windows(taint: &Taint, input: ClusterInput<'_>) -> bool {
    let reported = |text: &str| text.to_ascii_lowercase().contains("windows");
    let on_linux = || {
        let linux = input.environment.nodes.iter().filter(|node| !node.is_windows);
        linux.flat_map(|node| &node.taints).any(|other| other == taint)
    };
    taint.marks_windows()
        || (taint.keeps_off() && (reported(&taint.key) || reported(&taint.value)) && !on_linux())
}

fn taints(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    let count = windows(input.snapshot).count();
    for (taint, nodes) in lasting_taints(input.snapshot) {
        let by = nodes.iter().map(|name| format!("node {name}"));
        let on = format!("{taint} on {} of {count} Windows nodes", nodes.len());
        all.push(if is_for_windows(&taint, input) {
            PreflightFinding::fine(format!("the taint {on}: it keeps Linux pods off")).by(by)
        } else if !taint.keeps_off() {
            PreflightFinding::fine(format!("the taint {on}: it keeps no pods off")).by(by)
        } else {
            let text = format!("the taint {on} is not only for Windows: placement will not tolerate it");
            let remedy =
                "if every Windows pod may run there, add it to policy.spec.placement.toleratedTaints";
            PreflightFinding::act(text, remedy).by(by)
        });
    }
    let bare: Vec<String> = windows(input.snapshot)
        .filter(|node| !node.taints().iter().any(|taint| is_for_windows(taint, input)))
        .map(|node| format!("node {}", node.name))
        .collect();
    if !bare.is_empty() {
        let text = format!(
            "{} of {count} Windows nodes {} no taint that keeps Linux pods off",
            bare.len(),
            if bare.len() == 1 { "has" } else { "have" }
        );
        let remedy = "taint them at their pool; or, after policy.spec.mode: Enforce, set nodePolicy.spec.taints.mode: \
                      Apply, and Transom sets the taint";
        all.push(PreflightFinding::act(text, remedy).by(bare));
    }
    all
}

fn labels(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let mut all = Vec::new();
    for label in [OS_LABEL, BUILD_LABEL] {
        let lacks = |node: &&NodeView| match label {
            BUILD_LABEL => node.build().map(|build| build.to_string()).as_deref() != node.label(label),
            _ => node.label(label) != Some("windows"),
        };
        let lacking: Vec<String> = windows(input.snapshot)
            .filter(lacks)
            .map(|node| format!("node {}", node.name))
            .collect();
        if !lacking.is_empty() {
            let text = format!(
                "{} without the right label {label}",
                count(lacking.len(), "Windows node")
            );
            let remedy = if label == BUILD_LABEL {
                "with nodePolicy.spec.labels.kubelet: Correct, Transom maintains it"
            } else {
                "the kubelet writes it when it registers the node: find out why it has not"
            };
            all.push(PreflightFinding::act(text, remedy).by(lacking));
        }
    }
    all
}

/// Where Transom's two pods can run: Linux nodes, with the chart's default tolerations, which are none.
fn own_pods(input: ClusterInput<'_>, values: &mut HelmValues) -> PreflightFinding {
    let nodes = input.environment.nodes.iter();
    let linux: Vec<_> = nodes
        .filter(|node| node.labels.get(OS_LABEL).is_some_and(|os| os == "linux"))
        .collect();
    let keeping = |taints: &[Taint]| -> BTreeSet<Taint> {
        let lasting = taints.iter().filter(|taint| taint.lasts() && taint.keeps_off());
        lasting.cloned().collect()
    };
    let mut open = Vec::new();
    // Prefers nodes outside the control plane, then nodes with fewer taints.
    let mut least: Option<(bool, BTreeSet<Taint>, &str)> = None;
    for node in &linux {
        let taints = keeping(&node.taints);
        if taints.is_empty() {
            open.push(&node.name);
            continue;
        }
        let is_control_plane = (taints.iter()).any(|taint| {
            matches!(
                taint.key.as_str(),
                "node-role.kubernetes.io/control-plane" | "node-role.kubernetes.io/master"
            )
        });
        let better = least
            .as_ref()
            .is_none_or(|(control, least, _)| (is_control_plane, taints.len()) < (*control, least.len()));
        if better {
            least = Some((is_control_plane, taints, &node.name));
        }
    }
    match (open.len(), least) {
        (0, Some((_, taints, node))) => {
            let tolerations: Vec<Value> = taints.iter().map(toleration).collect();
            let shown = list(taints.iter().map(ToString::to_string), 10);
            values.add(
                &["tolerations"],
                Value::from(tolerations),
                format!(
                    "all Linux nodes are tainted, node {node} with {shown}: Transom's own pods would wait"
                ),
            );
            let text = format!(
                "all {} Linux nodes are tainted: Transom's own pods would not be scheduled",
                linux.len()
            );
            let remedy = format!("the values below tolerate {shown}, as on node {node}");
            PreflightFinding::act(text, remedy).by(linux.iter().map(|node| format!("node {}", node.name)))
        }
        (0, None) => PreflightFinding::act(
            "there is no Linux node: Transom's own pods would not be scheduled",
            "Transom is a Linux program; add a node with the label kubernetes.io/os: linux",
        ),
        (1, _) => PreflightFinding::fine(
            "both of Transom's own pods would run on the one Linux node that is open to them",
        )
        .by(open.iter().map(|name| format!("node {name}"))),
        (count, _) => PreflightFinding::fine(format!("Transom's own pods can run on {count} Linux nodes")),
    }
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
    let facts = &input.snapshot.facts;
    let handlers: BTreeSet<&str> = windows(input.snapshot)
        .flat_map(|node| node.runtime_handlers.iter().map(String::as_str))
        .collect();
    let mut all = Vec::new();
    if !input.could_list(&["runtimeclasses"]) {
        all.push(PreflightFinding::fine("not known (not read): RuntimeClasses"));
        return all;
    }
    for (name, class) in &facts.runtime_classes {
        if !is_windows_class(name, class) {
            continue;
        }
        let by = [format!("RuntimeClass {name}")];
        let build = class
            .node_selector
            .get(BUILD_LABEL)
            .and_then(|build| Build::parse_label(build));
        let of_build = build.map_or_else(String::new, |build| {
            let release = build.release().map(|release| format!(" ({})", release.product));
            format!(", for {build}{}", release.unwrap_or_default())
        });
        all.push(
            PreflightFinding::fine(format!(
                "{name} is for Windows: handler {}{of_build}",
                class.handler
            ))
            .by(&by),
        );
        if class.node_selector.is_empty() {
            let text = format!("{name} selects no nodes: pods that name it can go to Linux nodes");
            all.push(
                PreflightFinding::act(text, "give it scheduling.nodeSelector kubernetes.io/os: windows")
                    .by(&by),
            );
        }
        if input.could_list(&["nodes"]) && !handlers.is_empty() && !handlers.contains(class.handler.as_str())
        {
            let text = format!("no Windows node reports the handler {} of {name}", class.handler);
            all.push(
                PreflightFinding::act(
                    text,
                    "configure it in containerd on the nodes, or correct the class",
                )
                .by(&by),
            );
        }
        let is_there = |build| facts.builds().contains(&build) || windows(input.snapshot).next().is_none();
        if let Some(build) = build.filter(|build| !is_there(*build)) {
            let text = format!("{name} selects the build {build}, and no node has it");
            let remedy = "if its pool is at zero nodes, name the pool in nodePolicy.spec.pools; otherwise delete the class";
            all.push(PreflightFinding::act(text, remedy).by(&by));
        }
    }
    if all.is_empty() {
        all.push(PreflightFinding::fine(
            "there is no RuntimeClass for Windows; none is needed",
        ));
    }
    all
}
