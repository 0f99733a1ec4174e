//! Pools at zero nodes: nodes that an autoscaler could create, of which the cluster has no example.

use std::collections::BTreeSet;

use super::autoscaler::{self, AutoscalerGroup, scaled};
use super::workloads::WorkloadFindings;
use super::{ClusterInput, PreflightFinding};
use crate::cluster::environment::{AUTOSCALER_STATUS, NodeGroupResource};
use crate::model::nodes::node::Taint;
use crate::model::syntax::text::count;

/// The autoscaler's groups without a ready node; an error if they cannot be determined.
fn groups(input: ClusterInput<'_>) -> Result<Vec<AutoscalerGroup>, &'static str> {
    let Some(text) = &input.environment.autoscaler else {
        return Ok(Vec::new());
    };
    let groups = autoscaler::groups(text);
    let mut groups = groups.ok_or("its status has a format that Transom does not know")?;
    groups.retain(|group| group.ready == 0);
    Ok(groups)
}

/// The findings about these pools.
pub fn findings(input: ClusterInput<'_>, workloads: &WorkloadFindings<'_>) -> Vec<PreflightFinding> {
    let mut all: Vec<PreflightFinding> = scaled(input).map(of_resource).collect();
    all.extend(scaled(input).filter_map(|(pool, _)| ungated(input, pool)));
    all.extend(gated_in_vain(input));
    all.extend(unlabelled(input));
    all.extend(of_groups(input));
    for ((key, value), by) in &workloads.missing {
        let text = format!("workloads for Windows select {key}={value}, and no node has this label");
        let remedy = "if it is a pool at zero nodes, name it in nodePools with this label; otherwise they wait forever";
        all.push(PreflightFinding::act(text, remedy).by(by));
    }
    let makers = [
        "API groups",
        "nodes",
        "nodepools",
        "machinesets",
        "machinedeployments",
        AUTOSCALER_STATUS,
    ];
    let unread = input
        .unread(&makers)
        .chain(workloads.not_listed.iter().map(String::as_str));
    let ending = PreflightFinding::ending(&all, unread, "none is seen");
    all.extend(ending);
    all
}

/// A resource that creates Windows nodes, and whether it has none now.
fn of_resource((pool, is_at_zero): (&NodeGroupResource, bool)) -> PreflightFinding {
    let source = &pool.source;
    let build = pool
        .build
        .map_or_else(String::new, |build| format!(" of build {build}"));
    let finding = if is_at_zero {
        let add_build = if pool.build.is_some() {
            ""
        } else {
            "; add its build there"
        };
        PreflightFinding::act(
            format!("{source} creates Windows nodes{build}, and has none now"),
            format!("the values below name it in nodePools{add_build}"),
        )
    } else {
        PreflightFinding::fine(format!("{source} creates Windows nodes{build}"))
    };
    finding.by([source])
}

/// A resource that creates Windows nodes without the startup taint, although others have it or a policy waits for it.
fn ungated(input: ClusterInput<'_>, pool: &NodeGroupResource) -> Option<PreflightFinding> {
    if !input.gates_nodes() || pool.sets_startup_taint() {
        return None;
    }
    let source = &pool.source;
    let text = format!(
        "{source} creates Windows nodes without the startup taint {}: their pods do not wait for images",
        Taint::STARTUP_KEY
    );
    let remedy = "add it to the startupTaints of a NodePool of Karpenter, or to --register-with-taints of the kubelet; or set \
                  startup.admissionPolicy of the chart on Kubernetes 1.36";
    Some(PreflightFinding::act(text, remedy).by([source]))
}

/// Nodes and resources with the startup taint, although no policy waits for anything.
fn gated_in_vain(input: ClusterInput<'_>) -> Option<PreflightFinding> {
    let cache = &input.snapshot.cache;
    let mut policies = cache.node_policies.values();
    if policies.any(|policy| policy.spec.startup.is_some()) {
        return None;
    }
    let nodes = cache.nodes.values().filter(|node| node.is_gated());
    let nodes = nodes.map(|node| format!("node {}", node.name));
    let pools = (input.environment.scaled.iter()).filter(|pool| pool.sets_startup_taint());
    let all: BTreeSet<String> = nodes.chain(pools.map(|pool| pool.source.clone())).collect();
    let text = format!(
        "the startup taint {} is set, and no WindowsNodePolicy has startup: nothing waits for images, and only Transom removes the \
         taint, if it may write to nodes",
        Taint::STARTUP_KEY
    );
    let remedy =
        "set nodePolicies.default.spec.startup in the values of the chart, or remove the taint from the pool";
    (!all.is_empty()).then(|| PreflightFinding::act(text, remedy).by(&all))
}

/// Nodes of which nothing is known once an autoscaler has removed the last of them.
fn unlabelled(input: ClusterInput<'_>) -> Option<PreflightFinding> {
    let snapshot = input.snapshot;
    let labels = snapshot.facts.stated_node_labels();
    let nodes = snapshot.pools.undeclared(&snapshot.cache.nodes, &labels);
    let text = format!(
        "{} without a pool label, which an autoscaler may remove: with the last one, Transom forgets its build",
        count(nodes.len(), "Windows node")
    );
    let remedy = "declare a pool in nodePools, or name one of their labels in cluster.nodeLabels";
    (!nodes.is_empty()).then(|| PreflightFinding::act(text, remedy).on_nodes(nodes))
}

/// The groups of the cluster autoscaler.
fn of_groups(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let status = ["ConfigMap kube-system/cluster-autoscaler-status"];
    let groups = match groups(input) {
        Ok(groups) => groups,
        Err(why) => {
            let text = format!("the node groups of the cluster autoscaler are not known: {why}");
            let remedy = "name Windows pools that may be at zero nodes in nodePools";
            return vec![PreflightFinding::act(text, remedy).by(status)];
        }
    };
    let (windows, others): (Vec<_>, Vec<_>) = groups.iter().partition(|group| group.sounds_like_windows());
    let windows = windows.into_iter().map(|group| {
        let text = format!(
            "the node group {} has no ready node (it may have {} to {}); by its name it is for Windows",
            group.name, group.min, group.max
        );
        let remedy = "name it in nodePools with its build and a label that the autoscaler knows; the status contains \
                      neither";
        PreflightFinding::act(text, remedy).by(status)
    });
    let mut all: Vec<PreflightFinding> = windows.collect();
    let others: BTreeSet<&str> = others.iter().map(|group| group.name.as_str()).collect();
    if !others.is_empty() {
        let text = format!(
            "{} more node groups have no ready node; the status does not show their operating system",
            others.len()
        );
        all.push(PreflightFinding::fine(text).by(others));
    }
    all
}
