//! What to write to one node, decided from the node and its policy. Pure: no clock, no client.

use k8s_openapi::api::core::v1::Taint as NodeTaint;

pub use super::desired::DesiredNode;
use super::labels::LABELS;
use super::ownership::OwnedNode;
use super::patch::Released;
pub use super::patch::{LabelUse, NodeChange, NodePlan};
use super::taints::TaintPlanner;
use crate::api::PartMode;
use crate::cluster::node::{NodeView, taint_of};
use crate::cluster::node_ownership::NodeOwnership;
use crate::model::nodes::node::{ARCH_LABEL, NodeSigns as _, OS_LABEL, ReportedOs, Taint};

/// Decides what to write to a node. `desired` is `None` if no policy selects it any longer.
///
/// Only what the owner annotation records as Transom's is removed; what existed before Transom is not Transom's.
pub fn plan(node: &NodeView, desired: Option<&DesiredNode>, in_use: &LabelUse) -> NodePlan {
    if node.deleting {
        return NodePlan::default();
    }
    let owned = OwnedNode::of(node);
    let keep = KeepOptions::default();
    match (desired, node.reported_os()) {
        (None, ReportedOs::Windows) => revert(&owned, keep, in_use),
        (None, _) | (Some(_), ReportedOs::Virtual) => revert(&owned, keep, &LabelUse::Unused),
        (Some(desired), ReportedOs::Other) => {
            let mut plan = revert(&owned, keep, &LabelUse::Unused);
            if node.labels.get(OS_LABEL).is_some_and(|os| os == "windows") {
                plan.remains.push(format!(
                    "its label {OS_LABEL} is \"windows\", but its kubelet reports \"{}\": restart the kubelet, which \
                     writes the label (policy {})",
                    node.operating_system, desired.policy
                ));
            }
            plan
        }
        (Some(_), ReportedOs::Silent) => NodePlan {
            remains: vec![
                "its kubelet has not reported status.nodeInfo yet: its build is unknown".to_owned(),
            ],
            ..NodePlan::default()
        },
        (Some(desired), ReportedOs::Windows) => in_force(&owned, desired, in_use),
    }
}

/// What stays on a node when everything else of Transom's is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepOptions {
    /// Keeps the labels that are otherwise removed.
    pub labels: bool,
    pub taints: bool,
}

/// Plans to remove everything of Transom's from a node except what `keep` names; that no longer belongs to Transom. The
/// startup taint is always removed: nothing else would remove it.
pub fn plan_revert(node: &NodeView, keep: KeepOptions) -> NodePlan {
    let mut plan = revert(&OwnedNode::of(node), keep, &LabelUse::Unused);
    plan.remove_startup_taint(node);
    plan
}

/// Plans to remove the startup taint, and nothing else.
pub fn plan_release(node: &NodeView) -> NodePlan {
    let mut plan = NodePlan::default();
    if !node.deleting {
        plan.remove_startup_taint(node);
    }
    plan
}

fn revert(of: &OwnedNode<'_>, keep: KeepOptions, in_use: &LabelUse) -> NodePlan {
    let mut plan = NodePlan::default();
    let (node, before) = (of.node, &*of.before);
    if !node.is_marked() {
        return plan;
    }
    let mut owned = NodeOwnership::default();
    for row in LABELS.iter().filter(|_| !keep.labels) {
        let Some(value) = node.labels.get(row.key) else {
            continue;
        };
        if row.may_take(before, value) && plan.release_label(node, row.key, in_use) == Released::No {
            owned.policy.clone_from(&before.policy);
            owned.labels.insert(row.key.to_owned(), value.clone());
        }
    }
    if !keep.taints {
        let ours = |taint: &Taint| before.may_take_taint(taint);
        plan.taints = without(&node.taints, ours, &mut plan.changes);
    }
    plan.settle_annotation(of, &owned);
    plan
}

/// The taints without those that match; `None` if all stay.
fn without(
    taints: &[NodeTaint],
    gone: impl Fn(&Taint) -> bool,
    changes: &mut Vec<NodeChange>,
) -> Option<Vec<NodeTaint>> {
    let mut kept = Vec::with_capacity(taints.len());
    for taint in taints {
        let known = taint_of(taint);
        if gone(&known) {
            changes.push(NodeChange::TaintTaken(known));
        } else {
            kept.push(taint.clone());
        }
    }
    (kept.len() < taints.len()).then_some(kept)
}

fn in_force(of: &OwnedNode<'_>, desired: &DesiredNode, in_use: &LabelUse) -> NodePlan {
    let mut plan = NodePlan::default();
    let (node, before) = (of.node, &*of.before);
    let mut owned = before.clone();
    owned.policy.clone_from(&desired.policy);
    report_kubelet_labels(node, &mut plan);
    labels(node, desired, &mut owned, &mut plan, in_use);
    TaintPlanner::new(&node.taints, desired, before, &mut owned, &mut plan).run();
    if owned.is_empty() {
        owned = NodeOwnership::default();
    }
    plan.settle_annotation(of, &owned);
    plan
}

/// The kubelet owns the labels of os and architecture and rewrites them, so Transom only reports them.
fn report_kubelet_labels(node: &NodeView, plan: &mut NodePlan) {
    for (key, reported) in [(OS_LABEL, "windows"), (ARCH_LABEL, node.architecture.as_str())] {
        let label = node.labels.get(key).map_or("", String::as_str);
        if !reported.is_empty() && label != reported {
            plan.remains.push(format!(
                "its label {key} is \"{label}\", but its kubelet reports \"{reported}\": restart the kubelet, which writes \
                 the label"
            ));
        }
    }
}

fn labels(
    node: &NodeView,
    desired: &DesiredNode,
    owned: &mut NodeOwnership,
    plan: &mut NodePlan,
    in_use: &LabelUse,
) {
    for row in &LABELS {
        let now = node.labels.get(row.key);
        let mode = (row.mode)(&desired.labels);
        if mode == PartMode::Disabled {
            let may_take = now.is_some_and(|value| row.may_take(owned, value));
            if !may_take || plan.release_label(node, row.key, in_use) == Released::Yes {
                owned.labels.remove(row.key);
            }
            continue;
        }
        match (row.value)(node) {
            Ok(value) if now != Some(&value) && mode == PartMode::Audit => {
                plan.remains.push(row.difference(now, &value));
            }
            Ok(value) if now != Some(&value) => {
                owned.labels.insert(row.key.to_owned(), value.clone());
                plan.set_label(node, row.key, Some(value));
                continue;
            }
            Err(why) if !plan.remains.contains(&why) => plan.remains.push(why),
            _ => {}
        }
        // If another writer has written the label since, it is not Transom's, even if it has the same value.
        if owned.labels.get(row.key) != now {
            owned.labels.remove(row.key);
        }
    }
}

#[cfg(test)]
mod tests;
