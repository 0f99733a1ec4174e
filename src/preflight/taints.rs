//! The taints of Windows nodes: those that mean Windows, which the values may name, and those that only the operator
//! can judge, because they may be for some workloads only.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::nodes::windows;
use super::{ClusterInput, PreflightFinding};
use crate::cluster::node::NodeView;
use crate::model::nodes::node::{NodeSigns as _, Taint};

/// A lasting taint of Windows nodes.
#[derive(Debug)]
pub struct ObservedTaint<'n> {
    pub taint: Taint,
    /// The nodes that have it.
    nodes: Vec<&'n str>,
    /// Whether every Windows node has it.
    is_of_all: bool,
    /// Whether every Windows node of one pool has it; nodes without a pool label count as one pool.
    is_of_pool: bool,
    /// Whether it means Windows.
    is_mark: bool,
}

impl ObservedTaint<'_> {
    /// Whether every Windows pod may tolerate it.
    pub fn is_tolerable(&self) -> bool {
        self.is_mark && self.is_of_pool
    }

    /// Whether every Windows node may be required to have it. Requiring `NoExecute` would evict running pods, and a taint
    /// that names a release is right for the nodes of that release only.
    pub fn is_requirable(&self) -> bool {
        let names_release = self
            .taint
            .windows_release()
            .is_some_and(|release| !release.is_empty());
        self.is_tolerable() && self.taint.effect != "NoExecute" && (self.is_of_all || !names_release)
    }

    fn finding(&self, windows_nodes: usize) -> PreflightFinding {
        let on = format!(
            "{} on {} of {windows_nodes} Windows nodes",
            self.taint,
            self.nodes.len()
        );
        let value = written(&self.taint);
        let finding = if !self.taint.keeps_off() {
            PreflightFinding::fine(format!("the taint {on}: it keeps no pods off"))
        } else if self.is_requirable() || self.is_tolerable() && self.taint.effect == "NoExecute" {
            PreflightFinding::fine(format!("the taint {on}: it keeps Linux pods off"))
        } else if self.is_mark {
            PreflightFinding::act(
                format!(
                    "the taint {on} keeps Linux pods off, and the values do not require it of other Windows nodes"
                ),
                format!(
                    "if every Windows node must have it, add {value} to nodePolicies.default.spec.taints.required"
                ),
            )
        } else {
            PreflightFinding::act(
                format!(
                    "the taint {on} keeps Linux pods off, and may be for some workloads only: the values do not tolerate or \
                     require it"
                ),
                format!(
                    "if every Windows pod may run there, add {value} to podPolicies.default.spec.placement.toleratedTaints"
                ),
            )
        };
        finding.on_nodes(&self.nodes)
    }
}

/// A taint in the format of the policies.
pub fn taint_value(taint: &Taint) -> Value {
    json!({"key": taint.key, "value": taint.value, "effect": taint.effect})
}

/// A taint as one line of YAML, which is also JSON.
fn written(taint: &Taint) -> String {
    taint_value(taint).to_string()
}

/// Whether a taint means Windows: by its key and value, or because the values file of the platform lists it.
fn is_mark(taint: &Taint, input: ClusterInput<'_>) -> bool {
    let is_of_platform = || input.platform.states(&taint_value(taint));
    taint.keeps_off() && (taint.means_windows() || is_of_platform())
}

/// The lasting taints of Windows nodes.
pub fn observed(input: ClusterInput<'_>) -> Vec<ObservedTaint<'_>> {
    let mut pools: BTreeMap<Option<(&str, &str)>, Vec<&NodeView>> = BTreeMap::new();
    let mut by_taint: BTreeMap<Taint, Vec<&str>> = BTreeMap::new();
    for node in windows(input.snapshot) {
        pools.entry(node.pool()).or_default().push(node);
        for taint in node.taints().into_iter().filter(Taint::lasts) {
            by_taint.entry(taint).or_default().push(&node.name);
        }
    }
    let has_all = |nodes: &[&NodeView], taint: &Taint| nodes.iter().all(|node| node.taints().contains(taint));
    let observed = by_taint.into_iter().map(|(taint, nodes)| ObservedTaint {
        is_of_all: pools.values().all(|pool| has_all(pool, &taint)),
        is_of_pool: pools.values().any(|pool| has_all(pool, &taint)),
        is_mark: is_mark(&taint, input),
        taint,
        nodes,
    });
    observed.collect()
}

/// The taints that can be required of all Windows nodes, one value for each key and effect; and the others that only differ in
/// their value.
pub fn requirable(input: ClusterInput<'_>) -> (Vec<Taint>, Vec<String>) {
    let mut required: Vec<Taint> = Vec::new();
    let mut differing = Vec::new();
    let observed = observed(input).into_iter();
    for taint in observed
        .filter(ObservedTaint::is_requirable)
        .map(|seen| seen.taint)
    {
        let mut known = required.iter();
        if known.any(|known| (&known.key, &known.effect) == (&taint.key, &taint.effect)) {
            differing.push(taint.to_string());
        } else {
            required.push(taint);
        }
    }
    (required, differing)
}

/// The taints that all Windows nodes have in the end: those that the values require, or the file of the platform.
pub fn planned(input: ClusterInput<'_>) -> Vec<Taint> {
    let (required, _) = requirable(input);
    if !required.is_empty() {
        return required;
    }
    let of_platform = input.platform.list("required").into_iter();
    of_platform
        .filter_map(|taint| serde_json::from_value(taint).ok())
        .collect()
}

/// The lasting taints that every Windows node with this pool label has.
pub fn of_pool(input: ClusterInput<'_>, pool: (&str, &str)) -> Vec<Taint> {
    let nodes = windows(input.snapshot).filter(|node| node.pool() == Some(pool));
    let taints = nodes.map(|node| {
        node.taints()
            .into_iter()
            .filter(Taint::lasts)
            .collect::<BTreeSet<Taint>>()
    });
    let common = taints.reduce(|all, more| &all & &more);
    common.unwrap_or_default().into_iter().collect()
}

/// The findings about the taints of Windows nodes.
pub fn findings(input: ClusterInput<'_>) -> Vec<PreflightFinding> {
    let count = windows(input.snapshot).count();
    let observed = observed(input).into_iter();
    observed.map(|taint| taint.finding(count)).collect()
}
