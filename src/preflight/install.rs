//! From everything that was seen to the values to install with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::values::Values;
use super::workloads::Workloads;
use super::{Sight, count, wanted};
use crate::model::text::list;
use crate::registration::{BY_DEFAULT, NEVER};

/// The values that all of this asks for.
pub fn values(sight: Sight<'_>, workloads: &Workloads<'_>) -> Values {
    let mut values = Values {
        platform: format!("charts/transom/platforms/{}.yaml", sight.platform.name),
        entries: Vec::new(),
    };
    modes(&mut values, sight, workloads);
    values.entries.extend(wanted::of_cluster(sight));
    let marking: BTreeMap<_, _> = workloads.marking.iter().take(wanted::MOST_LABELS).collect();
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
    node_taints(&mut values, sight);
    excluded_namespaces(&mut values, sight, workloads);
    values
}

fn modes(values: &mut Values, sight: Sight<'_>, workloads: &Workloads<'_>) {
    let denied = workloads.denied_count();
    let not_known = workloads.not_known(sight);
    let (validation, why) = if let (0, Some(not_known)) = (denied, &not_known) {
        (
            "Audit",
            format!("not known: {not_known}; go on to Warn and Deny when it is known"),
        )
    } else if denied > 0 {
        let why = format!(
            "{} would be denied; go on to Warn and Deny when they are mended",
            count(denied, "workload")
        );
        ("Audit", why)
    } else {
        ("Deny", "no workload that is stored would be denied".to_owned())
    };
    values.add(&["validation"], Value::from(validation), why);
    let changed = workloads.changed;
    let (placement, why) = if let (0, Some(not_known)) = (denied.max(changed), &not_known) {
        (
            "DryRun",
            format!("not known: {not_known}; go on to Apply when it is known"),
        )
    } else if denied > 0 || changed > 0 {
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
    values.add(&["placement"], Value::from(placement), why);
    let softened = workloads.softened();
    let (inert, why) = if softened > 0 {
        (
            "Warn",
            format!(
                "{} would be denied only for fields that Windows ignores",
                count(softened, "workload")
            ),
        )
    } else if not_known.is_some() {
        (
            "Deny",
            "no workload that was read is refused for fields that Windows ignores alone".to_owned(),
        )
    } else {
        (
            "Deny",
            "no workload is refused for fields that Windows ignores alone".to_owned(),
        )
    };
    values.add(&["inert"], Value::from(inert), why);
}

fn node_taints(values: &mut Values, sight: Sight<'_>) {
    let taints: Vec<Value> = wanted::seen_taints(sight)
        .iter()
        .map(wanted::taint_value)
        .collect();
    if !taints.is_empty() {
        let spec = json!({"mode": "Report", "taints": taints});
        let why = "the taints that Windows nodes have; they are reported where one is missing, and not set";
        values.add(&["nodePolicy", "spec", "taints"], spec, why);
    }
}

fn excluded_namespaces(values: &mut Values, sight: Sight<'_>, workloads: &Workloads<'_>) {
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
    values.add(
        &["webhooks", "excludedNamespaces"],
        json!(namespaces),
        format!(
            "the chart's own, and those of webhooks that pods wait for, which hold nothing for Windows: {}",
            list(hooks, 10)
        ),
    );
}
