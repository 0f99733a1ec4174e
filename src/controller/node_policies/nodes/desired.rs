//! What a policy requires of one node.

use std::collections::BTreeSet;

use crate::api::{PartMode, WindowsNodePolicySpec};
use crate::cluster::stored_node_policies::NodePolicy;
use crate::model::nodes::node::Taint;

/// The desired state of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DesiredNode {
    pub policy: String,
    /// Its generation: a new generation resets the count of reversals.
    pub generation: i64,
    /// What is done about each of [`LABELS`](super::labels::LABELS).
    pub labels: DesiredLabels,
    /// What is done about taints.
    pub mode: PartMode,
    /// The taints that the node should carry.
    pub taints: Vec<Taint>,
    /// Which of them may be set on this node if it lacks them: the guard found that they affect no workload.
    pub approved: BTreeSet<Taint>,
    /// Which of Transom's are removed all the same: the guard found that they keep workloads off the node.
    pub withdrawn: BTreeSet<Taint>,
    /// Whether the policy that set Transom's taints no longer selects the node: then they are removed, even if this
    /// policy only reports.
    pub inherits: bool,
}

/// What is done about the labels of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DesiredLabels {
    /// About node.kubernetes.io/windows-build.
    pub kubelet: PartMode,
    /// About the mirror of it.
    pub node_restriction: PartMode,
}

impl DesiredLabels {
    fn of(spec: &WindowsNodePolicySpec) -> Self {
        DesiredLabels {
            kubelet: spec.kubelet_label_mode(),
            node_restriction: spec.restricted_label_mode(),
        }
    }
}

impl DesiredNode {
    /// What a policy requires of a node. `approved`: the taints that may be set on it if it lacks them.
    pub fn of(policy: &NodePolicy, approved: BTreeSet<Taint>) -> Self {
        let spec = &policy.stored.spec;
        let mode = spec.taints_mode();
        DesiredNode {
            policy: policy.name.clone(),
            generation: policy.generation,
            labels: DesiredLabels::of(spec),
            mode,
            taints: policy.taints.clone(),
            approved: match mode {
                PartMode::Reconcile => approved,
                PartMode::Audit | PartMode::Disabled => BTreeSet::new(),
            },
            withdrawn: BTreeSet::new(),
            inherits: false,
        }
    }
}
