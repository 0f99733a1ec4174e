//! What to write to one node, decided from the node and its policy. Pure: no clock, no client.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint as NodeTaint;

use super::labels::LABELS;
use super::ownership::NodeOwnership;
use super::patch::Released;
pub use super::patch::{LabelUse, NodeChange, NodePlan};
use crate::api::{NodeLabels, TaintMode};
use crate::cluster::node::{NodeView, taint_of};
pub use crate::cluster::node_ownership::MOST_REVERSALS;
use crate::model::node::{ARCH_LABEL, NodeSigns as _, OS_LABEL, ReportedOs, Taint};

/// The desired state of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DesiredNode {
    /// The policy's name.
    pub policy: String,
    /// Its generation: a new generation resets the count of reversals.
    pub generation: i64,
    /// Which labels are kept correct.
    pub labels: NodeLabels,
    /// Whether taints are set or only reported.
    pub mode: TaintMode,
    /// The taints that the node should carry.
    pub taints: Vec<Taint>,
    /// Which of them may be set on this node if it lacks them: the guard found that they affect no workload.
    pub cleared: BTreeSet<Taint>,
    /// Whether the policy that set Transom's taints no longer selects the node: then they are removed, even if this
    /// policy only reports.
    pub inherits: bool,
}

/// Decides what to write to a node. `desired` is `None` if no policy selects it any longer.
///
/// Only what the owner annotation records as Transom's is removed; what existed before Transom is not Transom's.
pub fn plan(node: &NodeView, desired: Option<&DesiredNode>, in_use: &LabelUse) -> NodePlan {
    if node.deleting {
        return NodePlan::default();
    }
    let read = NodeOwnership::of(node);
    let before = read.clone().unwrap_or_else(|_| NodeOwnership::unmistakable(node));
    match (desired, node.reported_os()) {
        (None, ReportedOs::Windows) => revert(node, &before, read.as_ref(), KeepOptions::default(), in_use),
        (None, _) => revert(
            node,
            &before,
            read.as_ref(),
            KeepOptions::default(),
            &LabelUse::Unused,
        ),
        (Some(desired), ReportedOs::Other) => {
            let keep = KeepOptions::default();
            let mut plan = revert(node, &before, read.as_ref(), keep, &LabelUse::Unused);
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
        (Some(desired), ReportedOs::Windows) => in_force(node, desired, &before, read.as_ref(), in_use),
    }
}

/// What stays on a node when everything else of Transom's is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepOptions {
    /// Keeps the labels that are otherwise removed.
    pub labels: bool,
    /// Keeps the taints.
    pub taints: bool,
}

/// Plans to remove everything of Transom's from a node except what `keep` names; that no longer belongs to Transom.
pub fn plan_revert(node: &NodeView, keep: KeepOptions) -> NodePlan {
    let read = NodeOwnership::of(node);
    let before = read.clone().unwrap_or_else(|_| NodeOwnership::unmistakable(node));
    revert(node, &before, read.as_ref(), keep, &LabelUse::Unused)
}

fn revert(
    node: &NodeView,
    before: &NodeOwnership,
    read: Result<&NodeOwnership, &String>,
    keep: KeepOptions,
    in_use: &LabelUse,
) -> NodePlan {
    let mut plan = NodePlan::default();
    if !node.is_marked() {
        return plan;
    }
    let mut owned = NodeOwnership::default();
    for row in LABELS.iter().filter(|_| !keep.labels) {
        let Some(value) = node.labels.get(row.key) else {
            continue;
        };
        if before.may_take_label(row.key, value) && plan.release_label(node, row.key, in_use) == Released::No
        {
            owned.policy.clone_from(&before.policy);
            owned.labels.insert(row.key.to_owned(), value.clone());
        }
    }
    if !keep.taints {
        let ours = |taint: &Taint| before.may_take_taint(taint);
        plan.taints = without(&node.taints, ours, &mut plan.changes);
    }
    plan.settle_annotation(node, &owned, read);
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

fn in_force(
    node: &NodeView,
    desired: &DesiredNode,
    before: &NodeOwnership,
    read: Result<&NodeOwnership, &String>,
    in_use: &LabelUse,
) -> NodePlan {
    let mut plan = NodePlan::default();
    let mut owned = before.clone();
    owned.policy.clone_from(&desired.policy);
    report_kubelet_labels(node, &mut plan);
    labels(node, desired, &mut owned, &mut plan, in_use);
    taints(node, desired, before, &mut owned, &mut plan);
    if owned.is_empty() {
        owned = NodeOwnership::default();
    }
    plan.settle_annotation(node, &owned, read);
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
        if !(row.is_wanted)(&desired.labels) {
            let may_take = now.is_some_and(|value| owned.may_take_label(row.key, value));
            if !may_take || plan.release_label(node, row.key, in_use) == Released::Yes {
                owned.labels.remove(row.key);
            }
            continue;
        }
        match (row.value)(node) {
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

fn taints(
    node: &NodeView,
    desired: &DesiredNode,
    before: &NodeOwnership,
    owned: &mut NodeOwnership,
    plan: &mut NodePlan,
) {
    if before.generation != desired.generation || before.policy != desired.policy {
        owned.reversals.clear();
    }
    owned
        .reversals
        .retain(|text, _| desired.taints.iter().any(|taint| taint.to_string() == *text));
    let mut list = TaintList {
        now: node.taints.clone(),
        changed: false,
    };
    release_undesired(desired, before, owned, &mut list, plan);
    for taint in &desired.taints {
        one_taint(taint, desired, before, owned, &mut list, plan);
    }
    owned.generation = if owned.reversals.is_empty() {
        0
    } else {
        desired.generation
    };
    if list.changed {
        plan.taints = Some(list.now);
    }
}

/// The taints of a node while they are changed: those of other writers stay, in their order.
struct TaintList {
    now: Vec<NodeTaint>,
    changed: bool,
}

impl TaintList {
    fn has(&self, taint: &Taint) -> bool {
        self.now.iter().any(|now| taint_of(now) == *taint)
    }

    /// The taint with the same key and effect, which are unique on a node.
    fn in_its_place(&self, taint: &Taint) -> Option<Taint> {
        let same = |now: &&NodeTaint| now.key == taint.key && now.effect == taint.effect;
        self.now.iter().find(same).map(taint_of)
    }

    fn remove(&mut self, taint: &Taint) {
        self.now.retain(|now| taint_of(now) != *taint);
        self.changed = true;
    }

    fn add(&mut self, taint: &Taint) {
        self.now.push(NodeTaint {
            key: taint.key.clone(),
            value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
            effect: taint.effect.clone(),
            time_added: None,
        });
        self.changed = true;
    }
}

/// Removes Transom's taints that are no longer desired; drops the record of taints that are no longer Transom's.
fn release_undesired(
    desired: &DesiredNode,
    before: &NodeOwnership,
    owned: &mut NodeOwnership,
    list: &mut TaintList,
    plan: &mut NodePlan,
) {
    for taint in &before.taints {
        if desired.taints.contains(taint) {
            continue;
        }
        // The taint that the policy wants instead replaces it in the same write.
        let successor = desired
            .taints
            .iter()
            .find(|t| t.key == taint.key && t.effect == taint.effect);
        if list.has(taint) && before.may_take_taint(taint) {
            if desired.mode == TaintMode::Report && !desired.inherits {
                plan.remains.push(format!(
                    "it carries the taint {taint}, which Transom set and the policy no longer names: set taints.mode \
                     to Apply to remove it"
                ));
                continue;
            }
            if successor.is_some_and(|successor| !desired.cleared.contains(successor)) {
                continue;
            }
            list.remove(taint);
            plan.changes.push(NodeChange::TaintTaken(taint.clone()));
        }
        owned.taints.retain(|ours| ours != taint);
    }
}

fn one_taint(
    taint: &Taint,
    desired: &DesiredNode,
    before: &NodeOwnership,
    owned: &mut NodeOwnership,
    list: &mut TaintList,
    plan: &mut NodePlan,
) {
    if taint.is_protected() {
        let text =
            format!("the taint {taint} belongs to Kubernetes or to an autoscaler: Transom does not set it");
        plan.remains.push(text);
        return;
    }
    if list.has(taint) {
        return;
    }
    let text = taint.to_string();
    // It was Transom's, and another writer has removed it.
    if before.taints.contains(taint) {
        owned.taints.retain(|ours| ours != taint);
        if desired.mode == TaintMode::Apply {
            *owned.reversals.entry(text.clone()).or_default() += 1;
        }
    }
    if let Some(other) = list
        .in_its_place(taint)
        .filter(|other| !owned.taints.contains(other))
    {
        plan.remains.push(format!(
            "it carries the taint {other}, which Transom did not set, instead of {taint}: name {other} in the policy, or \
             change it at its source"
        ));
        return;
    }
    if owned
        .reversals
        .get(&text)
        .is_some_and(|count| *count >= MOST_REVERSALS)
    {
        plan.remains.push(format!(
            "another client removed the taint {taint} {MOST_REVERSALS} times: set it where that client reads it \
             (the node pool), or change the policy to try again"
        ));
        plan.contested.push(taint.clone());
    } else if desired.mode == TaintMode::Report {
        plan.remains
            .push(format!("it lacks the taint {taint} (taints.mode is Report)"));
    } else if desired.cleared.contains(taint) {
        list.add(taint);
        owned.taints.push(taint.clone());
        plan.changes.push(NodeChange::TaintSet(taint.clone()));
    } else {
        plan.remains.push(format!("it lacks the taint {taint}"));
        plan.waiting.push(taint.clone());
    }
}

#[cfg(test)]
mod tests;
