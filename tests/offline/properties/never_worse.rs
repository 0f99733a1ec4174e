//! Placement never makes a pod worse off: whatever node the scheduler would have put it on, and that runs it, is still there.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;
use transom::model::build::Build;
use transom::model::node::{BUILD_LABEL, PRIVATE_IPV4_RESOURCE};
use transom::model::os::Verdict;

use super::{cases, identities, inspected, mutate};
use crate::support::schedule::{Cluster, any_cluster, any_pod};

/// How many replicas are placed one after the other.
const REPLICAS: usize = 4;

fn label(cluster: &Cluster, name: &str) -> Option<String> {
    Some(
        cluster.node(name)["metadata"]["labels"][BUILD_LABEL]
            .as_str()?
            .to_owned(),
    )
}

/// Whether the pod asks for an address that only nodes that are new, and do not offer it yet, would not give it.
fn without_new_nodes(cluster: &Cluster, after: &Value, runnable: &BTreeSet<String>) -> BTreeSet<String> {
    let asks = after["spec"]["containers"][0]["resources"]["requests"]
        .get(PRIVATE_IPV4_RESOURCE)
        .is_some();
    let is_new = |name: &String| {
        cluster.node(name)["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T11:58:00Z"
    };
    (runnable.iter())
        .filter(|name| !(asks && is_new(name)))
        .cloned()
        .collect()
}

/// Whether the author chose the build in the nodeSelector or by a RuntimeClass; or by the affinity or the name of a node, and
/// that leaves no right node: then it is the author's choice, and another rule's finding.
fn chose(cluster: &Cluster, pod: &Value, right_before: bool) -> bool {
    let spec = &pod["spec"];
    let class = spec["runtimeClassName"]
        .as_str()
        .and_then(|name| cluster.classes.get(name));
    let by_class = class.is_some_and(|class| class.node_selector.contains_key(BUILD_LABEL));
    spec["nodeSelector"].get(BUILD_LABEL).is_some()
        || by_class
        || (!right_before
            && (spec["affinity"].to_string().contains(BUILD_LABEL)
                || spec["nodeSelector"].get("kubernetes.io/hostname").is_some()))
}

fn check(cluster: &Cluster, pod: &Value) -> Result<(), TestCaseError> {
    let facts = cluster.facts();
    let (_, operations, after) = mutate(pod, &facts, &cluster.policy);
    let patch = operations
        .map(|operations| operations.to_string())
        .unwrap_or_default();
    let patch = format!("{patch} in {}", cluster.brief());
    let again = mutate(&after, &facts, &cluster.policy).1;
    prop_assert!(again.is_none(), "placed again: {again:?} after {patch}");

    let runnable = without_new_nodes(cluster, &after, &cluster.runnable(pod));
    let mut replicas: Vec<String> = Vec::new();
    for _ in 0..REPLICAS {
        let before = cluster.feasible(pod, &replicas);
        let now = cluster.feasible(&after, &replicas);
        let lost: Vec<&String> = before
            .intersection(&runnable)
            .filter(|name| !now.contains(*name))
            .collect();
        prop_assert!(
            lost.is_empty(),
            "lost {lost:?} with replicas on {replicas:?} by {patch} of {pod}"
        );
        no_wrong_node(cluster, pod, &after, &now, &patch)?;
        let Some(next) = now.into_iter().next() else { break };
        replicas.push(next);
    }
    Ok(())
}

/// A pod whose build is certain goes to no wrong node that a label tells from the right ones; for any other a finding says so.
fn no_wrong_node(
    cluster: &Cluster,
    pod: &Value,
    after: &Value,
    now: &BTreeSet<String>,
    patch: &str,
) -> Result<(), TestCaseError> {
    let images = pod["spec"]["containers"].as_array().into_iter().flatten();
    let certain = images
        .filter_map(|container| container["image"].as_str())
        .all(|image| cluster.is_certain(image));
    let all_windows =
        cluster.runnable(&serde_json::json!({"spec": {"containers": [{"name": "c", "image": "x"}]}}));
    let right = cluster.runnable(pod);
    let free = cluster.feasible(pod, &[]);
    let right_before = free.intersection(&right).next().is_some();
    // An image for both systems does not say that the pod is for Windows.
    let is_windows = || {
        inspected(after, &cluster.facts(), &cluster.policy)
            .inference
            .verdict
            == Verdict::Windows
    };
    if !certain || chose(cluster, pod, right_before) || !is_windows() {
        return Ok(());
    }
    let right_labels: BTreeSet<String> = right.iter().filter_map(|name| label(cluster, name)).collect();
    for wrong in now
        .iter()
        .filter(|name| all_windows.contains(*name) && !right.contains(*name))
    {
        let reported = label(cluster, wrong);
        let kernel = cluster.node(wrong)["status"]["nodeInfo"]["kernelVersion"]
            .as_str()
            .unwrap_or_default();
        let own = Build::parse_kernel_version(kernel).map(|(build, _)| build.to_string());
        let is_reported = reported
            .as_ref()
            .is_some_and(|label| !right_labels.contains(label))
            && reported == own;
        // The wrong nodes may be needed as domains; then a finding says so.
        let needs_domains = pod["spec"]["topologySpreadConstraints"][0]["minDomains"].as_i64() > Some(1);
        // Images of which no release runs all: nothing is required, and a finding says so.
        let is_possible = cluster.is_possible(pod);
        prop_assert!(
            !is_reported || needs_domains || !is_possible,
            "{wrong} is wrong, and its label says so: {patch} {pod}"
        );
        let open = identities(inspected(after, &cluster.facts(), &cluster.policy).open());
        let is_mentioned = open.iter().any(|(rule, _)| ["TSM702", "TSM601"].contains(rule));
        prop_assert!(is_mentioned, "nothing is said of {wrong}: {open:?} {pod} {patch}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_pod_keeps_every_node_that_runs_it_and_goes_to_no_wrong_one(cluster in any_cluster(), pod in any_pod()) {
        check(&cluster, &pod)?;
    }
}
