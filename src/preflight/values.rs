//! The values to install with: each with what was seen that asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::nodes::{is_for_windows, lasting_taints, windows};
use super::pools::scaled;
use super::workloads::Workloads;
use super::{Platform, Sight, count};
use crate::api::{API_VERSION, POD_POLICY, read_policies};
use crate::model::build::{Build, Isolation};
use crate::model::node::{BUILD_LABEL, NodeSigns as _, POOL_LABELS, Taint};
use crate::model::policy::{Policy, PoolLabel};
use crate::model::text::{list, one_line};
use crate::registration::{BY_DEFAULT, NEVER};
use crate::render::yaml;

/// The most entries of these lists that the policy takes.
const MOST_TAINTS: usize = 64;
const MOST_POOLS: usize = 128;
const MOST_LABELS: usize = 64;

/// One value, and why.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Where it stands in the values.
    pub path: Vec<&'static str>,
    /// What it is.
    pub value: Value,
    /// What was seen.
    pub why: String,
}

/// The values to install with, for a file after that of the platform.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Values {
    /// The file of the platform, which comes before.
    pub platform: String,
    /// The values, in the order in which they are written.
    pub entries: Vec<Entry>,
}

impl Values {
    /// What was seen asks for these.
    pub fn new(sight: Sight<'_>, workloads: &Workloads<'_>) -> Self {
        let mut values = Values {
            platform: format!("charts/transom/platforms/{}.yaml", sight.platform.name),
            entries: Vec::new(),
        };
        values.modes(workloads);
        values.entries.extend(of_cluster(sight));
        let marking: BTreeMap<_, _> = workloads.marking.iter().take(MOST_LABELS).collect();
        if !marking.is_empty() {
            let mut labels = sight.platform.list("poolLabels");
            let seen = marking
                .keys()
                .map(|(key, value)| json!({"key": key, "value": value}));
            labels.extend(seen);
            let by = marking.values().filter_map(|by| by.first());
            values.add(
                &["policy", "spec", "evidence", "poolLabels"],
                Value::from(labels),
                format!(
                    "only Windows nodes have these labels, and workloads select them: {}",
                    list(by, 5)
                ),
            );
        }
        values.node_taints(sight);
        values.exclusions(sight, workloads);
        values
    }

    /// Adds one.
    pub fn add(&mut self, path: &[&'static str], value: Value, why: impl Into<String>) {
        self.entries.push(Entry {
            path: path.to_vec(),
            value,
            why: why.into(),
        });
    }

    fn modes(&mut self, workloads: &Workloads<'_>) {
        let denied = workloads.denied.len();
        let (validation, why) = if denied > 0 {
            let why = format!(
                "{} would be denied; go on to Warn and Deny when they are mended",
                count(denied, "workload")
            );
            ("Audit", why)
        } else {
            ("Deny", "no workload that is stored would be denied".to_owned())
        };
        self.add(&["validation"], Value::from(validation), why);
        let changed = workloads.changed;
        let (placement, why) = if denied > 0 || changed > 0 {
            let why = format!(
                "the pods of {} would be changed; go on to Apply when you have seen how",
                count(changed, "workload")
            );
            ("DryRun", why)
        } else {
            (
                "Apply",
                "no pod of a workload that is stored would be changed".to_owned(),
            )
        };
        self.add(&["placement"], Value::from(placement), why);
        let softened = workloads.softened();
        let (inert, why) = if softened > 0 {
            (
                "Warn",
                format!(
                    "{} would be denied only for fields that Windows ignores",
                    count(softened, "workload")
                ),
            )
        } else {
            (
                "Deny",
                "no workload is refused for fields that Windows ignores alone".to_owned(),
            )
        };
        self.add(&["inert"], Value::from(inert), why);
    }

    fn node_taints(&mut self, sight: Sight<'_>) {
        let taints: Vec<Value> = seen_taints(sight).iter().map(taint_value).collect();
        if !taints.is_empty() {
            let spec = json!({"mode": "Report", "taints": taints});
            let why =
                "the taints that Windows nodes have; they are reported where one is missing, and not set";
            self.add(&["nodePolicy", "spec", "taints"], spec, why);
        }
    }

    fn exclusions(&mut self, sight: Sight<'_>, workloads: &Workloads<'_>) {
        let mut by: BTreeMap<&str, &str> = BTreeMap::new();
        for hooks in sight.around.hooks.iter().filter(|hooks| hooks.sees_pods) {
            for namespace in &hooks.namespaces {
                let known = NEVER.contains(&namespace.as_str()) || BY_DEFAULT.contains(&namespace.as_str());
                if !known && !workloads.in_namespaces.contains_key(namespace) {
                    by.entry(namespace).or_insert(&hooks.name);
                }
            }
        }
        if by.is_empty() {
            return;
        }
        let namespaces: Vec<&str> = BY_DEFAULT.iter().copied().chain(by.keys().copied()).collect();
        let hooks: BTreeSet<&str> = by.values().copied().collect();
        self.add(
            &["exclusions", "namespaces"],
            json!(namespaces),
            format!(
                "the chart's own, and those of webhooks that pods wait for, which hold nothing for Windows: {}",
                list(hooks, 10)
            ),
        );
    }

    /// All of them as one value, as Helm reads the file.
    pub fn json(&self) -> Value {
        let mut all = Value::Object(Map::new());
        for entry in &self.entries {
            let mut at = &mut all;
            for key in &entry.path {
                at = &mut at[*key];
            }
            *at = entry.value.clone();
        }
        all
    }

    /// The file: YAML with a comment above each value.
    pub fn yaml(&self) -> String {
        let mut out = format!(
            "# Values for helm install, after those of the platform: --values {} --values THIS-FILE\n\
             # Written by transom preflight. Helm replaces lists, so each list is whole.\n",
            self.platform
        );
        let entries: Vec<&Entry> = self.entries.iter().collect();
        write(&mut out, &entries, 0);
        out
    }
}

/// Writes entries that share the first `depth` parts of their paths, in the order in which their keys came first.
fn write(out: &mut String, entries: &[&Entry], depth: usize) {
    let indent = "  ".repeat(depth);
    let mut done: Vec<&str> = Vec::new();
    for entry in entries {
        let Some(key) = entry.path.get(depth).copied() else {
            continue;
        };
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        if entry.path.len() == depth + 1 {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{indent}# {}", one_line(&entry.why));
            for line in yaml(&json!({key: entry.value})).lines() {
                let _ = writeln!(out, "{indent}{line}");
            }
        } else {
            let _ = writeln!(out, "{indent}{key}:");
            let below: Vec<&Entry> = (entries.iter().copied())
                .filter(|entry| entry.path.get(depth) == Some(&key))
                .collect();
            write(out, &below, depth + 1);
        }
    }
}

/// What nodes, RuntimeClasses and autoscalers ask of the policy.
fn of_cluster(sight: Sight<'_>) -> Vec<Entry> {
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
fn seen_taints(sight: Sight<'_>) -> Vec<Taint> {
    let taints = lasting_taints(sight.snapshot).into_keys();
    taints.filter(|taint| is_for_windows(taint, sight)).collect()
}

fn taint_value(taint: &Taint) -> Value {
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
    let status = sight
        .around
        .autoscaler
        .as_deref()
        .and_then(super::autoscaler::groups);
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
    let mut known = Policy::well_known_pool_labels();
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
        Some(PoolLabel {
            key: label["key"].as_str()?.to_owned(),
            value: label["value"].as_str()?.to_owned(),
        })
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
    let stored = compiled.and_then(|all| all.into_iter().next());
    stored.map_or_else(Policy::standalone, |stored| stored.policy)
}
