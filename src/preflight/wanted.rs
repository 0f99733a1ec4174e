//! What nodes, RuntimeClasses and autoscalers ask of the policy, before any workload was looked at.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::autoscaler::{groups, scaled};
use super::nodes::{is_for_windows, lasting_taints, windows};
use super::values::Entry;
use super::{Platform, Sight};
use crate::api::{API_VERSION, POD_POLICY, read_policies};
use crate::model::build::{Build, Isolation};
use crate::model::node::{BUILD_LABEL, NodeSigns as _, POOL_LABELS, Taint};
use crate::model::node::PoolLabel;
use crate::model::policy::Policy;
use crate::model::text::list;

/// The most entries of these lists that the policy takes.
const MOST_TAINTS: usize = 64;
const MOST_POOLS: usize = 128;
/// The same of labels of pools.
pub const MOST_LABELS: usize = 64;

/// What nodes, RuntimeClasses and autoscalers ask of the policy.
pub fn of_cluster(sight: Sight<'_>) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut add = |field: &'static str, value: Value, why: String| {
        all.push(Entry {
            path: vec!["policy", "spec", field],
            value,
            why,
        });
    };
    let known = sight.platform.list("tolerations");
    let seen: Vec<(Value, String)> = (seen_taints(sight).iter())
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
        add("tolerations", Value::from(all), why);
    }
    let (pools, by) = pools(sight);
    if !pools.is_empty() {
        let mut all = sight.platform.list("pools");
        for pool in pools {
            if !all.iter().any(|known| known["name"] == pool["name"]) {
                all.push(pool);
            }
        }
        all.truncate(MOST_POOLS);
        add(
            "pools",
            Value::from(all),
            format!("these may be at zero nodes: {}", list(by, 10)),
        );
    }
    let classes = runtime_classes(sight);
    if !classes.is_empty() {
        let why = "these RuntimeClasses are there, each for the nodes of one release";
        add("runtimeClasses", json!(classes), why.to_owned());
    }
    all
}

/// The taints of Windows nodes that a Windows pod may well tolerate.
pub fn seen_taints(sight: Sight<'_>) -> Vec<Taint> {
    let taints = lasting_taints(sight.snapshot).into_keys();
    taints.filter(|taint| is_for_windows(taint, sight)).collect()
}

/// A taint as policies write it.
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

/// The Windows pools that may be at zero nodes, and what says so.
fn pools(sight: Sight<'_>) -> (Vec<Value>, Vec<String>) {
    let (mut all, mut by) = (Vec::new(), Vec::new());
    for (found, is_at_zero) in scaled(sight) {
        // Karpenter takes every pool to zero; a MachineSet says a number.
        if is_at_zero || found.replicas.is_none() {
            let mut labels = found.labels.clone();
            labels.retain(|key, _| key != BUILD_LABEL);
            all.push(pool(&found.name, &labels, found.build, &found.taints));
            by.push(found.source.clone());
        }
    }
    // Pools with nodes, whose group the autoscaler may take to zero.
    let status = sight.around.autoscaler.as_deref().and_then(groups);
    let to_zero: Vec<_> = status
        .into_iter()
        .flatten()
        .filter(|group| group.min == 0)
        .collect();
    let mut done = BTreeSet::new();
    for node in windows(sight.snapshot) {
        let label = POOL_LABELS
            .iter()
            .find_map(|key| Some((*key, node.labels.get(*key)?)));
        let Some((key, name)) = label else { continue };
        let group = to_zero.iter().find(|group| group.name.contains(name.as_str()));
        if let Some(group) = group.filter(|_| done.insert((key, name))) {
            let labels = BTreeMap::from([(key.to_owned(), name.clone())]);
            let taints: Vec<Taint> = { node.taints() }
                .into_iter()
                .filter(|taint| is_for_windows(taint, sight))
                .collect();
            all.push(pool(name, &labels, node.build(), &taints));
            by.push(format!("node group {}", group.name));
        }
    }
    (all, by)
}

/// RuntimeClasses by release: those that select its nodes, isolate by process and bring no overhead, where there is one only.
fn runtime_classes(sight: Sight<'_>) -> BTreeMap<&'static str, String> {
    let mut found: BTreeMap<&'static str, Vec<&String>> = BTreeMap::new();
    for (name, class) in &sight.snapshot.facts.runtime_classes {
        let build = class.node_selector.get(BUILD_LABEL);
        let release = build.and_then(|build| Build::parse_label(build)?.release());
        if let Some(release) =
            release.filter(|_| class.isolation() == Isolation::Process && !class.has_overhead)
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

/// The labels of pools that only Windows nodes have, and that are no evidence by themselves.
pub fn candidates(sight: Sight<'_>) -> BTreeSet<(String, String)> {
    let mut known = PoolLabel::well_known();
    known.extend(of_platform(sight.platform));
    let labels = |windows: bool| -> BTreeSet<(String, String)> {
        let nodes = sight
            .around
            .nodes
            .iter()
            .filter(|node| node.is_windows() == windows);
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

fn of_platform(platform: &Platform) -> impl Iterator<Item = PoolLabel> {
    let labels = platform.list("poolLabels").into_iter();
    labels.filter_map(|label| {
        Some(PoolLabel::exact(label["key"].as_str()?, label["value"].as_str()?))
    })
}

/// The policy that these values make, as it denies and places: what is stored is judged by it.
pub fn policy(sight: Sight<'_>, candidates: &BTreeSet<(String, String)>) -> Policy {
    let mut spec = json!({});
    for field in ["tolerations", "pools"] {
        let list = sight.platform.list(field);
        if !list.is_empty() {
            spec[field] = Value::from(list);
        }
    }
    for entry in of_cluster(sight) {
        if let Some(field) = entry.path.last() {
            spec[*field] = entry.value;
        }
    }
    let mut labels = sight.platform.list("poolLabels");
    labels.extend(
        candidates
            .iter()
            .map(|(key, value)| json!({"key": key, "value": value})),
    );
    spec["evidence"] = json!({"poolLabels": labels});
    let object =
        json!({"apiVersion": API_VERSION, "kind": POD_POLICY, "metadata": {"name": "default"}, "spec": spec});
    let compiled = read_policies(object.to_string().into_bytes()).ok();
    // What nodes carry was taken by the API server, so it is valid in a policy too; if it is not, the defaults judge.
    let stored = compiled.and_then(|all| all.pod_policies.into_iter().next());
    stored.map_or_else(Policy::standalone, |stored| stored.policy)
}
