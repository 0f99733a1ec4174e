//! The policy values that nodes, RuntimeClasses and autoscalers require, before any workload is evaluated.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::ClusterInput;
use super::autoscaler::{groups, scaled};
use super::helm_values::ValuesEntry;
use super::nodes::{is_for_windows, lasting_taints, windows};
use crate::api::{
    API_VERSION, DeclaredPools, POD_POLICY, PoolLabelSpec, WindowsNodePolicySpec, read_policies,
};
use crate::model::build::{Build, ContainerIsolation};
use crate::model::facts::Facts;
use crate::model::node::{BUILD_LABEL, NodeSigns as _, POOL_LABELS, PoolLabel, Taint, pool_of};
use crate::model::policy::{Mode, Policy};
use crate::model::text::list;

/// The maximum number of entries that the policies accept in these lists.
const MOST_TAINTS: usize = 64;
const MOST_POOLS: usize = 128;
/// The maximum number of pool label values. The API server's cost limit allows 64, including those of the
/// platform.
pub const MOST_LABELS: usize = 48;

/// The path of the values for placement.
const PLACEMENT: [&str; 3] = ["policy", "spec", "placement"];
/// The path of the values that describe nodes.
const NODE_POLICY_SPEC: [&str; 2] = ["nodePolicy", "spec"];

/// The values that nodes, RuntimeClasses and autoscalers require.
pub fn of_cluster(input: ClusterInput<'_>) -> Vec<ValuesEntry> {
    let mut all = Vec::new();
    let mut add = |above: &[&'static str], field: &'static str, value: Value, why: String| {
        let mut path = above.to_vec();
        path.push(field);
        all.push(ValuesEntry {
            path,
            value,
            reason: why,
        });
    };
    let known = input.platform.list("toleratedTaints");
    let seen: Vec<(Value, String)> = (observed_taints(input).iter())
        .map(|taint| (taint_value(taint), taint.to_string()))
        .filter(|(value, _)| !known.contains(value))
        .collect();
    if !seen.is_empty() {
        let why = format!(
            "Windows nodes carry {}",
            list(seen.iter().map(|(_, shown)| shown), 10)
        );
        let mut all = known;
        all.extend(seen.into_iter().map(|(value, _)| value));
        all.truncate(MOST_TAINTS);
        add(&PLACEMENT, "toleratedTaints", Value::from(all), why);
    }
    let (pools, by) = pools(input);
    if !pools.is_empty() {
        let mut all = input.platform.list("pools");
        for pool in pools {
            if !all.iter().any(|known| known["name"] == pool["name"]) {
                all.push(pool);
            }
        }
        all.truncate(MOST_POOLS);
        add(
            &NODE_POLICY_SPEC,
            "pools",
            Value::from(all),
            format!("these may be at zero nodes: {}", list(by, 10)),
        );
    }
    let classes = runtime_classes(input);
    if !classes.is_empty() {
        let classes: Vec<Value> = (classes.into_iter())
            .map(|(release, name)| json!({"release": release, "name": name}))
            .collect();
        let why = "these RuntimeClasses exist, each for the nodes of one release";
        add(&PLACEMENT, "runtimeClasses", Value::from(classes), why.to_owned());
    }
    all
}

/// The taints of Windows nodes that a Windows pod can safely tolerate.
pub fn observed_taints(input: ClusterInput<'_>) -> Vec<Taint> {
    let taints = lasting_taints(input.snapshot).into_keys();
    taints.filter(|taint| is_for_windows(taint, input)).collect()
}

/// A taint in the format of the policies.
pub fn taint_value(taint: &Taint) -> Value {
    json!({"key": taint.key, "value": taint.value, "effect": taint.effect})
}

fn pool(name: &str, labels: &BTreeMap<String, String>, build: Option<Build>, taints: &[Taint]) -> Value {
    let mut pool = json!({"name": name});
    if let Some(build) = build {
        pool["build"] = Value::from(build.to_string());
    }
    if !labels.is_empty() {
        pool["labels"] = json!(labels);
    }
    if !taints.is_empty() {
        pool["taints"] = taints.iter().map(taint_value).collect();
    }
    pool
}

/// The Windows pools that may be at zero nodes, and the evidence for them.
fn pools(input: ClusterInput<'_>) -> (Vec<Value>, Vec<String>) {
    let (mut all, mut by) = (Vec::new(), Vec::new());
    for (found, is_at_zero) in scaled(input) {
        // Karpenter can scale every pool to zero; a MachineSet specifies a number.
        if is_at_zero || found.replicas.is_none() {
            let mut labels = found.labels.clone();
            labels.retain(|key, _| key != BUILD_LABEL);
            all.push(pool(&found.name, &labels, found.build, &found.taints));
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
        let Some((key, name)) = pool_of(|key| node.label(key)) else {
            continue;
        };
        let group = to_zero.iter().find(|group| group.name.contains(name));
        if let Some(group) = group.filter(|_| done.insert((key, name))) {
            let labels = BTreeMap::from([(key.to_owned(), name.to_owned())]);
            let taints: Vec<Taint> = { node.taints() }
                .into_iter()
                .filter(|taint| is_for_windows(taint, input))
                .collect();
            all.push(pool(name, &labels, node.build(), &taints));
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
    let mut known = PoolLabel::well_known();
    known.extend(declared(&[], &input.platform.list("poolLabels")).labels);
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

/// The pool labels of the platform's values file plus these. A key has one entry, with either values or a
/// prefix.
pub fn pool_labels<'l>(
    input: ClusterInput<'_>,
    more: impl IntoIterator<Item = &'l (String, String)>,
) -> Vec<Value> {
    let of_platform = input.platform.list("poolLabels").into_iter();
    let mut all: Vec<PoolLabelSpec> = { of_platform }
        .filter_map(|label| serde_json::from_value(label).ok())
        .collect();
    for (key, value) in more {
        match all.iter_mut().find(|known| known.key == *key) {
            Some(known) => {
                if let Some(prefix) = known.value_prefix.take() {
                    known.values = values_on_windows_nodes(input, key, &prefix);
                }
                if !known.values.contains(value) {
                    known.values.push(value.clone());
                }
            }
            None => all.push(PoolLabelSpec {
                key: key.clone(),
                values: vec![value.clone()],
                value_prefix: None,
            }),
        }
    }
    all.iter().map(|label| json!(label)).collect()
}

/// The values of a label on Windows nodes that start with the prefix.
fn values_on_windows_nodes(input: ClusterInput<'_>, key: &str, prefix: &str) -> Vec<String> {
    let nodes = input.environment.nodes.iter().filter(|node| node.is_windows);
    let values: BTreeSet<&String> = nodes
        .filter_map(|node| node.labels.get(key))
        .filter(|value| value.starts_with(prefix))
        .collect();
    values.into_iter().cloned().collect()
}

/// What a node policy with these pools and pool labels declares.
fn declared(pools: &[Value], labels: &[Value]) -> DeclaredPools {
    // The API server accepted these values on nodes, so they are valid in a policy too; if not, nothing is
    // declared.
    let spec = serde_json::from_value::<WindowsNodePolicySpec>(json!({"pools": pools, "poolLabels": labels}));
    spec.map(|spec| DeclaredPools::of(&spec)).unwrap_or_default()
}

/// The facts of the cluster, plus what the node policy of these values declares.
pub fn facts(input: ClusterInput<'_>) -> Facts {
    let mut pools = input.platform.list("pools");
    for entry in of_cluster(input) {
        if let (["nodePolicy", "spec", "pools"], Value::Array(wanted)) = (&entry.path[..], entry.value) {
            pools = wanted;
        }
    }
    let mut facts = input.snapshot.facts.clone();
    let labels = pool_labels(input, &candidates(input));
    declared(&pools, &labels).add_to(&mut facts);
    facts
}

/// The policy of these values with denying and placement enabled: stored objects are evaluated against it.
pub fn policy(input: ClusterInput<'_>) -> Policy {
    let mut spec = json!({"mode": Mode::Enforce.as_str()});
    spec["placement"]["toleratedTaints"] = Value::from(input.platform.list("toleratedTaints"));
    for entry in of_cluster(input) {
        if let ["policy", "spec", "placement", field] = entry.path[..] {
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
