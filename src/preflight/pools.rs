//! Pools at zero nodes: nodes that an autoscaler could create, of which the cluster has no example.

use std::collections::BTreeSet;

use super::autoscaler::{self, AutoscalerGroup, scaled};
use super::workloads::WorkloadFindings;
use super::{ClusterInput, PreflightFinding};
use crate::cluster::pool_history::undeclared;
use crate::model::text::count;

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
    let mut all = Vec::new();
    for (pool, is_at_zero) in scaled(input) {
        let build = pool
            .build
            .map_or_else(String::new, |build| format!(" of build {build}"));
        all.push(if is_at_zero {
            let text = format!("{} creates Windows nodes{build}, and has none now", pool.source);
            let remedy = if pool.build.is_some() {
                "the values below name it in nodePolicy.spec.pools"
            } else {
                "the values below name it in nodePolicy.spec.pools; add its build there"
            };
            PreflightFinding::act(text, remedy).by([&pool.source])
        } else {
            PreflightFinding::fine(format!("{} creates Windows nodes{build}", pool.source)).by([&pool.source])
        });
    }
    let undeclared = undeclared(&input.snapshot.view.nodes, &input.snapshot.facts);
    if !undeclared.is_empty() {
        let text = format!(
            "{} without a pool label, which an autoscaler may remove: with the last one, Transom forgets its build",
            count(undeclared.len(), "Windows node")
        );
        let remedy = "declare a pool in nodePolicy.spec.pools, or name one of their labels in nodePolicy.spec.poolLabels";
        all.push(
            PreflightFinding::act(text, remedy).by(undeclared.iter().map(|name| format!("node {name}"))),
        );
    }
    let status = ["ConfigMap kube-system/cluster-autoscaler-status"];
    match groups(input) {
        Ok(groups) => {
            let (windows, others): (Vec<_>, Vec<_>) =
                groups.iter().partition(|group| group.sounds_like_windows());
            for group in windows {
                let text = format!(
                    "the node group {} has no ready node (it may have {} to {}); by its name it is for Windows",
                    group.name, group.min, group.max
                );
                let remedy = "name it in nodePolicy.spec.pools with its build and a label that the autoscaler knows; the status contains \
                            neither";
                all.push(PreflightFinding::act(text, remedy).by(status));
            }
            let others: BTreeSet<&str> = others.iter().map(|group| group.name.as_str()).collect();
            if !others.is_empty() {
                let text = format!(
                    "{} more node groups have no ready node; the status does not show their operating system",
                    others.len()
                );
                all.push(PreflightFinding::fine(text).by(others));
            }
        }
        Err(why) => all.push(
            PreflightFinding::act(
                format!("the node groups of the cluster autoscaler are not known: {why}"),
                "name Windows pools that may be at zero nodes in nodePolicy.spec.pools",
            )
            .by(status),
        ),
    }
    for ((key, value), by) in &workloads.missing {
        let text = format!("workloads for Windows select {key}={value}, and no node has this label");
        let remedy = "if it is a pool at zero nodes, name it in nodePolicy.spec.pools with this label; otherwise they wait forever";
        all.push(PreflightFinding::act(text, remedy).by(by));
    }
    let makers = [
        "API groups",
        "nodes",
        "nodepools",
        "machinesets",
        "machinedeployments",
    ];
    let unread: Vec<&str> = (makers.into_iter())
        .filter(|resource| !input.could_list(&[resource]))
        .chain(workloads.not_listed.iter().map(String::as_str))
        .collect();
    if !unread.is_empty() {
        let text = format!("not known (not read): {}", unread.join(", "));
        all.push(PreflightFinding::fine(text));
    } else if all.is_empty() {
        all.push(PreflightFinding::fine("none is seen"));
    }
    all
}
