//! The taints of one node: which ones to set, to remove, and to report. Those of other writers stay, in their order. Pure.

use k8s_openapi::api::core::v1::Taint as NodeTaint;

use super::desired::DesiredNode;
use super::patch::{NodeChange, NodePlan};
use crate::api::PartMode;
use crate::cluster::node::taint_of;
use crate::cluster::node_ownership::{MOST_REVERSALS, NodeOwnership, RequiredTaint};
use crate::model::nodes::node::Taint;

/// The taints of a node while they are planned.
pub(super) struct TaintPlanner<'p> {
    desired: &'p DesiredNode,
    /// What Transom owned before.
    before: &'p NodeOwnership,
    owned: &'p mut NodeOwnership,
    plan: &'p mut NodePlan,
    /// Those before the plan.
    present: Vec<Taint>,
    /// Those after it.
    now: Vec<NodeTaint>,
    has_changed: bool,
}

impl<'p> TaintPlanner<'p> {
    pub(super) fn new(
        node: &[NodeTaint],
        desired: &'p DesiredNode,
        before: &'p NodeOwnership,
        owned: &'p mut NodeOwnership,
        plan: &'p mut NodePlan,
    ) -> Self {
        TaintPlanner {
            desired,
            before,
            owned,
            plan,
            present: node.iter().map(taint_of).collect(),
            now: node.to_vec(),
            has_changed: false,
        }
    }

    pub(super) fn run(mut self) {
        let (desired, before) = (self.desired, self.before);
        if !before.is_of(&desired.policy, desired.generation) {
            self.owned.reversals.clear();
        }
        let is_desired = |text: &String| desired.taints.iter().any(|taint| taint.to_string() == *text);
        self.owned.reversals.retain(|text, _| is_desired(text));
        for taint in before.taints.iter().filter(|it| !desired.taints.contains(it)) {
            self.release(taint);
        }
        for taint in &desired.taints {
            self.require(taint);
        }
        self.owned.generation = if self.owned.reversals.is_empty() {
            0
        } else {
            desired.generation
        };
        if self.has_changed {
            self.plan.taints = Some(self.now);
        }
    }

    /// Removes a taint of Transom's that is no longer desired; drops the record of one that is no longer Transom's.
    fn release(&mut self, taint: &Taint) {
        if self.present.contains(taint) && self.before.may_take_taint(taint) {
            if self.desired.mode == PartMode::Audit && !self.desired.inherits {
                return self.plan.remains.push(format!(
                    "it carries the taint {taint}, which Transom set and the policy no longer names: set taints.mode \
                     to Reconcile to remove it"
                ));
            }
            // The taint that the policy wants instead replaces it in the same write.
            let same = |other: &&Taint| other.key == taint.key && other.effect == taint.effect;
            let successor = self.desired.taints.iter().find(same);
            let waits = successor.is_some_and(|successor| !self.desired.approved.contains(successor));
            if waits && !self.desired.withdrawn.contains(taint) {
                return;
            }
            self.remove(taint, NodeChange::TaintTaken);
        }
        self.owned.taints.retain(|ours| ours != taint);
    }

    /// Removes a desired taint of Transom's if it keeps workloads off the node. It is not counted as a reversal, and is set
    /// again when the guard finds that it affects no workload.
    fn withdraw(&mut self, taint: &Taint) {
        let applies = self.desired.mode == PartMode::Reconcile && self.desired.withdrawn.contains(taint);
        if applies && self.before.may_take_taint(taint) {
            self.remove(taint, NodeChange::TaintWithdrawn);
            self.owned.taints.retain(|ours| ours != taint);
        }
    }

    fn remove(&mut self, taint: &Taint, change: impl FnOnce(Taint) -> NodeChange) {
        self.now.retain(|now| taint_of(now) != *taint);
        self.has_changed = true;
        self.plan.changes.push(change(taint.clone()));
    }

    /// Sets a desired taint if it is missing and may be set; otherwise notes why it is not set.
    fn require(&mut self, taint: &Taint) {
        let desired = self.desired;
        let required = (self.before).required(taint, &self.present, &desired.policy, desired.generation);
        if !matches!(required, RequiredTaint::Protected | RequiredTaint::Present) {
            self.count_reversal(taint);
        }
        let remains = match required {
            RequiredTaint::Protected => {
                format!(
                    "the taint {taint} belongs to Kubernetes or to an autoscaler: Transom does not set it"
                )
            }
            RequiredTaint::Present => return self.withdraw(taint),
            RequiredTaint::Replaced(other) => format!(
                "it carries the taint {other}, which Transom did not set, instead of {taint}: name {other} in the policy, or \
                 change it at its source"
            ),
            RequiredTaint::Contested => {
                self.plan.contested.push(taint.clone());
                format!(
                    "another client removed the taint {taint} {MOST_REVERSALS} times: set it where that client reads it \
                     (the node pool), or change the policy to try again"
                )
            }
            RequiredTaint::Missing if desired.mode == PartMode::Audit => {
                format!("it lacks the taint {taint} (taints.mode is Audit)")
            }
            RequiredTaint::Missing if desired.approved.contains(taint) => return self.set(taint),
            RequiredTaint::Missing => {
                self.plan.waiting.push(taint.clone());
                format!("it lacks the taint {taint}")
            }
        };
        self.plan.remains.push(remains);
    }

    /// Counts a missing taint that was Transom's: another writer has removed it.
    fn count_reversal(&mut self, taint: &Taint) {
        if !self.before.taints.contains(taint) {
            return;
        }
        self.owned.taints.retain(|ours| ours != taint);
        if self.desired.mode == PartMode::Reconcile {
            *self.owned.reversals.entry(taint.to_string()).or_default() += 1;
        }
    }

    fn set(&mut self, taint: &Taint) {
        self.now.push(NodeTaint {
            key: taint.key.clone(),
            value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
            effect: taint.effect.clone(),
            time_added: None,
        });
        self.has_changed = true;
        self.owned.taints.push(taint.clone());
        self.plan.changes.push(NodeChange::TaintSet(taint.clone()));
    }
}
