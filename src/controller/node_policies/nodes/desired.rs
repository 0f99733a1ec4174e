//! What a policy requires of one node.

use std::collections::BTreeSet;

use crate::api::{NodeLabels, TaintMode};
use crate::cluster::node_policies::NodePolicy;
use crate::model::nodes::node::Taint;

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
    /// Which of Transom's are removed all the same: the guard found that they keep workloads off the node.
    pub withdrawn: BTreeSet<Taint>,
    /// Whether the policy that set Transom's taints no longer selects the node: then they are removed, even if this
    /// policy only reports.
    pub inherits: bool,
}

impl DesiredNode {
    /// What a policy requires of a node. `cleared`: the taints that may be set on it if it lacks them.
    pub fn of(policy: &NodePolicy, cleared: BTreeSet<Taint>) -> Self {
        let spec = &policy.stored.spec;
        let applies = spec.taints.mode == TaintMode::Reconcile;
        DesiredNode {
            policy: policy.name.clone(),
            generation: policy.generation,
            labels: spec.labels.clone(),
            mode: spec.taints.mode,
            taints: policy.taints.clone(),
            cleared: if applies { cleared } else { BTreeSet::new() },
            withdrawn: BTreeSet::new(),
            inherits: false,
        }
    }
}
