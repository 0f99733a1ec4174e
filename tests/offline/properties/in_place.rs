//! The plan of an upgrade in place, and where the scheduler could put pods on the same nodes with the new build.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use transom::engine::policy_set::PolicySet;
use transom::model::nodes::node::{BUILD_LABEL, PRIVATE_IPV4_RESOURCE};
use transom::model::objects::workload::Kind;
use transom::model::windows::build::Build;
use transom::model::windows::os::Verdict;
use transom::plan::{BlockedBy, PlanOptions, Planner, UpgradeClass, WorkloadPlan};

use super::{cases, inspected, mutate};
use crate::support::schedule::{Cluster, any_cluster, any_pod};

fn build_of(node: &Value) -> Option<Build> {
    let kernel = node["status"]["nodeInfo"]["kernelVersion"].as_str()?;
    Build::parse_kernel_version(kernel).map(|(build, _)| build)
}

/// The same cluster once the nodes of a build have another one. Without the taint of cordoned nodes, which passes.
fn upgraded(cluster: &Cluster, from: Build, to: Build) -> Cluster {
    let mut after = cluster.clone();
    for node in &mut after.nodes {
        if build_of(node) != Some(from) {
            continue;
        }
        node["status"]["nodeInfo"]["kernelVersion"] = format!("{to}.1").into();
        let labels = node["metadata"]["labels"].as_object_mut().expect("labels");
        if let Some(label) = labels.get_mut(BUILD_LABEL) {
            *label = to.to_string().into();
        }
    }
    after
}

/// Without pools at zero nodes, and without what a plan does not evaluate: cordons, topology spread, requests that placement adds
/// for addresses, and images of other architectures.
fn plain(mut cluster: Cluster, pod: &Value) -> (Cluster, Value) {
    for node in &mut cluster.nodes {
        if let Some(taints) = node["spec"]["taints"].as_array_mut() {
            taints.retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
        }
        if let Some(allocatable) = node["status"]["allocatable"].as_object_mut() {
            allocatable.remove(PRIVATE_IPV4_RESOURCE);
        }
    }
    (cluster.declared, cluster.remembered) = (Vec::new(), Vec::new());
    cluster.images.retain(|_, facts| match &mut facts.found {
        Some(found) => {
            found.variants.retain(|variant| variant.architecture == "amd64");
            // The scheduler's model does not know that an image may need a newer update than the node has.
            for version in found.variants.iter_mut().filter_map(|it| it.os_version.as_mut()) {
                version.revision = None;
            }
            !found.variants.is_empty()
        }
        None => true,
    });
    // A HostProcess container runs any image for Windows.
    if !pod["spec"]["securityContext"]["windowsOptions"]["hostProcess"].is_null() {
        cluster.images.clear();
    }
    let mut pod = pod.clone();
    let spec = pod["spec"].as_object_mut().expect("a pod spec");
    spec.remove("topologySpreadConstraints");
    (cluster, pod)
}

/// What the plan says about a Deployment of these pods; `None` if it is not for Windows.
fn planned(cluster: &Cluster, pod: &Value, from: Build, to: Build) -> Option<WorkloadPlan> {
    let (facts, policies) = (
        cluster.facts(),
        PolicySet::new(Vec::new(), cluster.policy.clone()),
    );
    let options = PlanOptions::upgrade(to, &[from.to_string()]);
    let mut planner = Planner::new(&facts, &policies, options);
    for node in &cluster.nodes {
        planner.visit(Kind::Node, &node.to_string()).expect("a node");
    }
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod["spec"]}}});
    planner
        .visit(Kind::Deployment, &deployment.to_string())
        .expect("a Deployment");
    let plan = planner.plan().expect("the build exists").expect("an upgrade");
    plan.workloads.into_iter().next()
}

/// Whether the plan leaves open what happens, or names what the scheduler does not know.
fn is_open(plan: &WorkloadPlan) -> bool {
    let is_open = |class, cause| match (class, cause) {
        // The revisions of images and nodes.
        (UpgradeClass::Unknown, _) | (UpgradeClass::Blocked, None | Some(BlockedBy::HostProcess)) => true,
        _ => false,
    };
    let mut findings = plan.findings.iter();
    findings.any(|finding| finding.blocks && is_open(finding.class, finding.cause))
}

fn check(cluster: &Cluster, pod: &Value, from: Build, to: Build) -> Result<(), TestCaseError> {
    let (cluster, pod) = plain(cluster.clone(), pod);
    let class = pod["spec"]["runtimeClassName"].as_str();
    let has_class = class.is_none_or(|class| cluster.classes.contains_key(class));
    if from == to || !has_class || !cluster.nodes.iter().any(|node| build_of(node) == Some(from)) {
        return Ok(());
    }
    let Some(plan) = planned(&cluster, &pod, from, to).filter(|plan| plan.affected && !is_open(plan)) else {
        return Ok(());
    };
    let after = upgraded(&cluster, from, to);
    let facts = after.facts();
    if inspected(&pod, &facts, &after.policy).inference.verdict != Verdict::Windows {
        return Ok(());
    }
    let (_, _, placed) = mutate(&pod, &facts, &after.policy);
    let feasible = after.feasible(&placed, &[]);
    let runnable = after.runnable(&pod);
    let taken: BTreeSet<&String> = feasible.intersection(&runnable).collect();
    prop_assert!(
        plan.can_move != taken.is_empty(),
        "from {from} to {to}: can run: {}, nodes {taken:?} of {feasible:?}: {:#?}\n{pod}\n{}",
        plan.can_move,
        plan.findings,
        cluster.brief()
    );
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_plan_in_place_says_what_the_scheduler_does_afterwards(
        cluster in any_cluster(),
        pod in any_pod(),
        from in select(vec![14393, 17763, 20348, 26100]),
        to in select(vec![20348, 26100]),
    ) {
        check(&cluster, &pod, Build::new(from), Build::new(to))?;
    }
}
