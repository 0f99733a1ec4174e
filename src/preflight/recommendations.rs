//! The policy values that nodes, RuntimeClasses and autoscalers require, before any workload is evaluated.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::autoscaler::{groups, scaled};
use super::helm_values::ValuesEntry;
use super::nodes::windows;
use super::taints::taint_value;
use super::{ClusterInput, taints};
use crate::api::{API_VERSION, NodeLabelSpec, POD_POLICY, WindowsNodePoolSpec, read_policies};
use crate::model::cluster::facts::Facts;
use crate::model::cluster::policy::{Mode, Policy};
use crate::model::nodes::node::{BUILD_LABEL, NodeLabel, NodeSigns as _, POOL_LABELS, Taint, pool_of};
use crate::model::syntax::dns::object_name;
use crate::model::syntax::text::list;
use crate::model::windows::build::{Build, ContainerIsolation};

/// The maximum number of entries that the policies accept in these lists.
const MOST_TAINTS: usize = 64;
const MOST_POOLS: usize = 128;
/// The maximum number of node label values. The API server's cost limit allows 64, including those of the
/// platform.
pub const MOST_LABELS: usize = 48;

/// The path of the values for placement.
const PLACEMENT: [&str; 4] = ["podPolicies", "default", "spec", "placement"];

/// The values that nodes, RuntimeClasses and autoscalers require.
pub fn of_cluster(input: ClusterInput<'_>) -> Vec<ValuesEntry> {
    let all = [tolerated_taints(input), pool_values(input), class_values(input)];
    all.into_iter().flatten().collect()
}

fn entry(above: &[&'static str], field: &'static str, value: Value, reason: String) -> ValuesEntry {
    ValuesEntry {
        path: above.iter().copied().chain([field]).collect(),
        value,
        reason,
    }
}

fn tolerated_taints(input: ClusterInput<'_>) -> Option<ValuesEntry> {
    let mut all = input.platform.list("toleratedTaints");
    let planned = taints::planned(input);
    let seen = taints::observed(input).into_iter();
    let seen = seen
        .filter(taints::ObservedTaint::is_tolerable)
        .map(|seen| seen.taint);
    // What all nodes are required to have is tolerated, if it means Windows.
    let is_derived = |taint: &Taint| taint.marks_windows() && planned.contains(taint);
    let seen: Vec<Taint> = seen
        .filter(|taint| !is_derived(taint) && !all.contains(&taint_value(taint)))
        .collect();
    let shown = list(seen.iter().map(ToString::to_string), 10);
    all.extend(seen.iter().map(taint_value));
    all.truncate(MOST_TAINTS);
    let why = format!("Windows nodes carry {shown}");
    (!seen.is_empty()).then(|| entry(&PLACEMENT, "toleratedTaints", all.into(), why))
}

fn pool_values(input: ClusterInput<'_>) -> Option<ValuesEntry> {
    let (pools, by) = pools(input);
    if pools.is_empty() {
        return None;
    }
    // Helm adds them to those of the platform's file.
    let of_platform = input.platform.pools();
    let mut new = serde_json::Map::new();
    for (name, pool) in pools {
        if of_platform.len() + new.len() < MOST_POOLS && !of_platform.contains_key(&name) {
            new.entry(name).or_insert(pool);
        }
    }
    let why = format!("these may be at zero nodes: {}", list(by, 10));
    (!new.is_empty()).then(|| entry(&[], "nodePools", new.into(), why))
}

fn class_values(input: ClusterInput<'_>) -> Option<ValuesEntry> {
    let classes: Vec<Value> = (runtime_classes(input).into_iter())
        .map(|(release, name)| json!({"release": release, "name": name}))
        .collect();
    let why = "these RuntimeClasses exist, each for the nodes of one release";
    let path = ["podPolicies", "default", "spec", "placement", "runtimeClasses"];
    (!classes.is_empty()).then(|| entry(&path, "names", classes.into(), why.to_owned()))
}

/// A pool by its name, in the format of the chart's `nodePools`; `None` without a label that selects its nodes.
fn pool(
    name: &str,
    mut labels: BTreeMap<String, String>,
    build: Option<Build>,
    taints: &[Taint],
) -> Option<(String, Value)> {
    let of_pool = pool_of(|key| labels.get(key).map(String::as_str));
    let of_pool = of_pool.map(|(key, value)| BTreeMap::from([(key.to_owned(), value.to_owned())]));
    let selected = of_pool.unwrap_or_else(|| labels.clone());
    if selected.is_empty() {
        return None;
    }
    labels.retain(|key, _| !selected.contains_key(key));
    let mut template = json!({});
    if let Some(build) = build {
        template["build"] = Value::from(build.to_string());
    }
    if !labels.is_empty() {
        template["labels"] = json!(labels);
    }
    if !taints.is_empty() {
        template["taints"] = taints.iter().map(taint_value).collect();
    }
    let spec = json!({"nodeSelector": {"matchLabels": selected}, "template": template});
    Some((object_name(name), json!({"spec": spec})))
}

/// The Windows pools that may be at zero nodes, and the evidence for them.
fn pools(input: ClusterInput<'_>) -> (Vec<(String, Value)>, Vec<String>) {
    let (mut all, mut by) = (Vec::new(), Vec::new());
    for (found, is_at_zero) in scaled(input) {
        // Karpenter can scale every pool to zero; a MachineSet specifies a number.
        if is_at_zero || found.replicas.is_none() {
            let mut labels = found.labels.clone();
            labels.retain(|key, _| key != BUILD_LABEL);
            all.extend(pool(&found.name, labels, found.build, &found.taints));
            by.push(found.source.clone());
        }
    }
    // Pools with nodes, whose group the autoscaler may scale to zero.
    let status = input.environment.autoscaler.as_deref().and_then(groups);
    let to_zero: Vec<_> = status
        .into_iter()
        .flatten()
        .filter(|group| group.min == 0)
        .collect();
    let mut done = BTreeSet::new();
    for node in windows(input.snapshot) {
        let Some((key, name)) = node.pool() else {
            continue;
        };
        let group = to_zero.iter().find(|group| group.name.contains(name));
        if let Some(group) = group.filter(|_| done.insert((key, name))) {
            let labels = BTreeMap::from([(key.to_owned(), name.to_owned())]);
            let taints = taints::of_pool(input, (key, name));
            all.extend(pool(name, labels, node.build(), &taints));
            by.push(format!("node group {}", group.name));
        }
    }
    (all, by)
}

/// RuntimeClasses by release: those that select its nodes, use process isolation and add no overhead, if
/// there is exactly one.
fn runtime_classes(input: ClusterInput<'_>) -> BTreeMap<&'static str, String> {
    let mut found: BTreeMap<&'static str, Vec<&String>> = BTreeMap::new();
    for (name, class) in &input.snapshot.facts.runtime_classes {
        let build = class.node_selector.get(BUILD_LABEL);
        let release = build.and_then(|build| Build::parse_label(build)?.release());
        if let Some(release) =
            release.filter(|_| class.isolation() == ContainerIsolation::Process && !class.has_overhead)
        {
            found.entry(release.name).or_default().push(name);
        }
    }
    let only = |(release, names): (&'static str, Vec<&String>)| match names.as_slice() {
        [name] => Some((release, (*name).clone())),
        _ => None,
    };
    found.into_iter().filter_map(only).collect()
}

/// The pool labels that only Windows nodes have, and that are not evidence by default.
pub fn candidates(input: ClusterInput<'_>) -> BTreeSet<(String, String)> {
    let mut known = NodeLabel::well_known();
    known.extend(
        label_specs(&input.platform.list("nodeLabels"))
            .iter()
            .flat_map(NodeLabelSpec::labels),
    );
    let labels = |windows: bool| -> BTreeSet<(String, String)> {
        let nodes = input
            .environment
            .nodes
            .iter()
            .filter(|node| node.is_windows == windows);
        let labels = nodes.flat_map(|node| &node.labels);
        let pools = labels.filter(|(key, _)| POOL_LABELS.contains(&key.as_str()));
        pools.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let linux = labels(false);
    let new = |(key, value): &(String, String)| !known.iter().any(|label| label.matches(key, value));
    (labels(true).into_iter())
        .filter(|label| !linux.contains(label) && new(label))
        .take(MOST_LABELS)
        .collect()
}

/// The node labels of the platform's values file plus these.
pub fn node_labels<'l>(
    input: ClusterInput<'_>,
    more: impl IntoIterator<Item = &'l (String, String)>,
) -> Vec<Value> {
    let mut all = label_specs(&input.platform.list("nodeLabels"));
    for (key, value) in more {
        match all.iter_mut().find(|known| known.key == *key) {
            Some(known) if known.values.contains(value) => {}
            Some(known) => known.values.push(value.clone()),
            None => all.push(NodeLabelSpec {
                key: key.clone(),
                values: vec![value.clone()],
                value_prefixes: Vec::new(),
            }),
        }
    }
    all.iter().map(|label| json!(label)).collect()
}

/// Entries of `cluster.nodeLabels`. The API server accepted these values on nodes, so they are valid.
fn label_specs(labels: &[Value]) -> Vec<NodeLabelSpec> {
    let labels = labels.iter().cloned();
    labels
        .filter_map(|label| serde_json::from_value(label).ok())
        .collect()
}

/// The facts of the cluster, plus the node labels and pools of these values.
pub fn facts(input: ClusterInput<'_>) -> Facts {
    let mut pools = input.platform.pools();
    for entry in of_cluster(input) {
        if let (["nodePools"], Value::Object(new)) = (&entry.path[..], entry.value) {
            pools.extend(new);
        }
    }
    let mut facts = input.snapshot.facts.clone();
    facts.required_taints = taints::planned(input);
    let labels = label_specs(&node_labels(input, &candidates(input)));
    let labels: Vec<NodeLabel> = labels.iter().flat_map(NodeLabelSpec::labels).collect();
    facts.add_node_labels(&labels);
    for (name, pool) in pools {
        let spec = serde_json::from_value::<WindowsNodePoolSpec>(pool["spec"].clone());
        if let Ok(spec) = spec {
            facts.add_pool(spec.host(&name).0);
        }
    }
    facts
}

/// The policy of these values with denying and placement enabled: stored objects are evaluated against it.
pub fn policy(input: ClusterInput<'_>) -> Policy {
    let mut spec = json!({"mode": Mode::Enforce.as_str()});
    spec["placement"]["toleratedTaints"] = Value::from(input.platform.list("toleratedTaints"));
    for entry in of_cluster(input) {
        if let ["podPolicies", "default", "spec", "placement", field] = entry.path[..] {
            spec["placement"][field] = entry.value;
        }
    }
    let object =
        json!({"apiVersion": API_VERSION, "kind": POD_POLICY, "metadata": {"name": "default"}, "spec": spec});
    let file = read_policies(object.to_string().into_bytes()).ok();
    // The API server accepted these values on nodes, so they are valid in a policy too; if not, the defaults
    // apply.
    let stored = file.and_then(|file| file.pod_policies.into_iter().next());
    stored.map_or_else(Policy::standalone, |stored| stored.policy)
}
