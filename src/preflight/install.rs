//! Derives the Helm values from the findings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::helm_values::HelmValues;
use super::workloads::WorkloadFindings;
use super::{ClusterInput, recommendations, taints};
use crate::model::cluster::policy::{IgnoredFields, Mode};
use crate::model::syntax::text::{count, list};
use crate::registration::{BY_DEFAULT, NEVER};

/// The values for this cluster.
pub fn values(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> HelmValues {
    let mut values = HelmValues {
        platform: input.platform.file(),
        entries: Vec::new(),
    };
    modes(&mut values, workloads);
    values.entries.extend(recommendations::of_cluster(input));
    let marking = workloads.marking.iter().take(recommendations::MOST_LABELS);
    let marking: BTreeMap<_, _> = marking.collect();
    if !marking.is_empty() {
        let by = marking.values().filter_map(|by| by.first());
        values.add(
            &["cluster", "nodeLabels"],
            Value::from(recommendations::node_labels(input, marking.keys().copied())),
            format!(
                "only Windows nodes have these labels, and workloads select them: {}",
                list(by, 5)
            ),
        );
    }
    node_taints(&mut values, input);
    excluded_namespaces(&mut values, input, workloads);
    values
}

/// Enforce, if it is known that no stored object would be denied or changed; otherwise Audit.
fn modes(values: &mut HelmValues, workloads: &WorkloadFindings<'_>) {
    let (denied, only_ignored_fields) = (workloads.denied_count(), workloads.denied_only_for_ignored_fields);
    let patched = workloads.all_patched();
    let (mode, why) = if denied > only_ignored_fields {
        let why = format!(
            "{} would be denied; continue with Warn and Enforce when they are fixed",
            count(denied, "workload")
        );
        (Mode::Audit, why)
    } else if let Some(not_known) = workloads.not_known() {
        let why = format!("not known: {not_known}; continue with Warn and Enforce when this is known");
        (Mode::Audit, why)
    } else if patched > 0 {
        let why = format!(
            "placement would change the pods of {}; continue with Warn and Enforce when you have seen how",
            count(patched, "workload")
        );
        (Mode::Audit, why)
    } else if only_ignored_fields > 0 {
        let why = "no stored workload would be denied for more than fields that Windows ignores";
        (Mode::Enforce, why.to_owned())
    } else {
        (
            Mode::Enforce,
            "no stored workload would be denied or changed".to_owned(),
        )
    };
    values.add(&["mode"], Value::from(mode.as_str()), why);
    if mode == Mode::Enforce && only_ignored_fields > 0 {
        values.add(
            &["podPolicies", "default", "spec", "validation", "ignoredFields"],
            Value::from(IgnoredFields::Warn.as_str()),
            format!(
                "{} would be denied only for fields that Windows ignores",
                count(only_ignored_fields, "workload")
            ),
        );
    }
}

/// The taints that the values require of Windows nodes, and that nodes have too with another value for the same key and
/// effect: a node policy requires one value.
fn node_taints(values: &mut HelmValues, input: ClusterInput<'_>) {
    let (required, differing) = taints::requirable(input);
    if required.is_empty() {
        return;
    }
    if !differing.is_empty() {
        let why = format!(
            "Windows nodes carry {} too, so no taint is right for all of them",
            list(&differing, 10)
        );
        values.add(
            &["nodePolicies", "default", "spec", "taints", "mode"],
            Value::from("Audit"),
            why,
        );
    }
    let taints: Vec<Value> = required.iter().map(taints::taint_value).collect();
    let why = "the taints that Windows nodes have; a node without one is reported, and with taints.mode Reconcile tainted";
    values.add(
        &["nodePolicies", "default", "spec", "taints", "required"],
        Value::from(taints),
        why,
    );
}

/// The namespaces of webhooks that pod creation waits for, in which no Windows workload was seen, each with one of these
/// webhooks. Transom does not exclude them by default.
pub fn webhook_namespaces<'s>(
    input: ClusterInput<'s>,
    workloads: &WorkloadFindings<'_>,
) -> BTreeMap<&'s str, &'s str> {
    let mut by: BTreeMap<&str, &str> = BTreeMap::new();
    for hooks in input.environment.hooks.iter().filter(|hooks| hooks.sees_pods) {
        for namespace in &hooks.namespaces {
            let known = NEVER.contains(&namespace.as_str()) || BY_DEFAULT.contains(&namespace.as_str());
            if !known && !workloads.in_namespaces.contains_key(namespace) {
                by.entry(namespace).or_insert(&hooks.name);
            }
        }
    }
    by
}

/// Excludes the namespaces of webhooks, if it is known that they contain no Windows workloads.
fn excluded_namespaces(values: &mut HelmValues, input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) {
    let by = webhook_namespaces(input, workloads);
    if by.is_empty() || workloads.not_known().is_some() {
        return;
    }
    let namespaces: Vec<&str> = BY_DEFAULT.iter().copied().chain(by.keys().copied()).collect();
    let hooks: BTreeSet<&str> = by.values().copied().collect();
    values.add(
        &["webhooks", "excludedNamespaces"],
        json!(namespaces),
        format!(
            "the chart's defaults, and the namespaces of webhooks that pod creation waits for, which contain no Windows workloads: {}",
            list(hooks, 10)
        ),
    );
}
