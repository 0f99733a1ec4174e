//! Windows DaemonSets that do not tolerate the taints that node policies require: once their nodes have the taints, they are
//! denied by `missing-windows-toleration` and have no pods. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::context::EvalContext;
use crate::cluster::node::NodeView;
use crate::cluster::snapshot::Snapshot;
use crate::cluster::stored_node_policies::SelectedPolicy;
use crate::engine::infer_os;
use crate::engine::scheduling::{AdmissionStage, constraints};
use crate::model::nodes::node::{NodeSigns as _, Taint};
use crate::model::nodes::node_affinity::Match;
use crate::model::objects::object::Object;
use crate::model::windows::os::Verdict;

/// The taints that Windows nodes lack, by the node policy that requires them.
pub type LackingTaints = BTreeMap<String, BTreeSet<Taint>>;

/// The Windows nodes that lack taints that their node policies require.
#[derive(Debug, Default)]
pub struct RequiredTaints<'n> {
    /// The node, its policy, and the taints.
    nodes: Vec<(&'n NodeView, String, Vec<Taint>)>,
}

impl<'n> RequiredTaints<'n> {
    /// The nodes of a cluster.
    pub fn of(snapshot: &'n Snapshot) -> Self {
        let windows = snapshot.cache.nodes.values().filter(|node| node.has_windows());
        let nodes = windows.filter_map(|node| {
            let SelectedPolicy::Policy(policy) = snapshot.node_policies.choose(node) else {
                return None;
            };
            let present = node.taints();
            let mut lacking = policy.taints.clone();
            lacking.retain(|taint| taint.keeps_off() && !present.contains(taint));
            (!lacking.is_empty()).then(|| (&**node, policy.name.clone(), lacking))
        });
        RequiredTaints {
            nodes: nodes.collect(),
        }
    }

    /// All that nodes lack.
    pub fn lacking(&self) -> LackingTaints {
        let mut all = LackingTaints::new();
        for (_, policy, taints) in &self.nodes {
            all.entry(policy.clone())
                .or_default()
                .extend(taints.iter().cloned());
        }
        all
    }

    /// The taints that the pods of a Windows DaemonSet do not tolerate, of nodes that it selects. Its controller reads the
    /// template, so placement of its pods is too late.
    pub fn untolerated(&self, context: &EvalContext<'_>, subject: &Object<'_>) -> LackingTaints {
        let mut all = LackingTaints::new();
        if !subject.kind.is_daemon_set() || self.nodes.is_empty() {
            return all;
        }
        let policy = context.policy_in(&subject.namespace);
        let is_windows = infer_os(subject, context.facts, &policy).verdict == Verdict::Windows;
        let constraints = constraints(subject, context.facts, AdmissionStage::AsWritten);
        let Some(constraints) = constraints.filter(|_| is_windows) else {
            return all;
        };
        for (node, policy, taints) in &self.nodes {
            if constraints.matches(*node) == Match::Yes {
                let lacking = constraints.untolerated(taints).cloned();
                let lacking: BTreeSet<Taint> = lacking.collect();
                if !lacking.is_empty() {
                    all.entry(policy.clone()).or_default().extend(lacking);
                }
            }
        }
        all
    }
}
