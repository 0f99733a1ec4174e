//! Whether a new node joins nodes of its policy that already carry a taint. A workload that does not tolerate the taint
//! then runs on none of them, so a tenant who creates one later must not keep the taint off new nodes. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{Span, Timestamp, ToSpan as _};

use crate::cluster::node::{NodeView, taint_of};
use crate::cluster::stored_node_policies::{NodePolicies, NodePolicy, SelectedPolicy};
use crate::model::nodes::node::{NodeReadiness, NodeSigns as _, ReportedOs, Taint};

/// Nodes that were created within this time join together: none of them is expected to carry the taint before the
/// others.
fn together() -> Span {
    10.minutes()
}

/// The Ready Windows nodes of a policy.
pub(super) struct PolicyPeers<'n>(Vec<&'n NodeView>);

impl<'n> PolicyPeers<'n> {
    pub(super) fn of(policy: &NodePolicy, policies: &NodePolicies, nodes: &'n [Arc<NodeView>]) -> Self {
        let is_peer = |node: &&NodeView| {
            let is_chosen =
                matches!(policies.choose(node), SelectedPolicy::Policy(chosen) if chosen.name == policy.name);
            is_chosen
                && !node.deleting
                && node.reported_os() == ReportedOs::Windows
                && matches!(node.readiness, NodeReadiness::Since(_))
        };
        PolicyPeers(nodes.iter().map(AsRef::as_ref).filter(is_peer).collect())
    }

    /// The nodes of the pools of these nodes.
    pub(super) fn in_pools_of(&self, nodes: &[&NodeView]) -> BTreeSet<&'n str> {
        let pools: BTreeSet<_> = nodes.iter().map(|node| pool(node)).collect();
        let peers = self.0.iter().filter(|peer| pools.contains(&pool(peer)));
        peers.map(|peer| peer.name.as_str()).collect()
    }

    /// Whether every older node of the same pool carries a taint, and there is one. Without a pool label, the policy is
    /// the pool.
    pub(super) fn is_joined_by(&self, node: &NodeView, taint: &Taint) -> bool {
        let Some(newest): Option<Timestamp> = node
            .created
            .and_then(|created| created.checked_sub(together()).ok())
        else {
            return false;
        };
        let own = pool(node);
        let mut older = (self.0.iter())
            .filter(|peer| peer.uid != node.uid && peer.created.is_none_or(|created| created <= newest))
            .filter(|peer| pool(peer) == own)
            .peekable();
        older.peek().is_some() && older.all(|peer| peer.taints.iter().any(|now| taint_of(now) == *taint))
    }
}

/// The label that names the pool of a node, and the name.
fn pool(node: &NodeView) -> Option<(&'static str, String)> {
    node.pool().map(|(key, name)| (key, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::nodes::node::POOL_LABELS;

    fn node(name: &str, created: &str, pool: &str, tainted: bool) -> Arc<NodeView> {
        let labels = [(POOL_LABELS[0].to_owned(), pool.to_owned())];
        let taint = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
        Arc::new(NodeView {
            name: name.into(),
            uid: name.into(),
            created: format!("2026-01-01T{created}:00Z").parse().ok(),
            labels: Arc::new(labels.into_iter().filter(|(_, pool)| !pool.is_empty()).collect()),
            operating_system: "windows".into(),
            readiness: NodeReadiness::Since(None),
            taints: if tainted {
                serde_json::from_value(taint).unwrap()
            } else {
                Vec::new()
            },
            ..NodeView::default()
        })
    }

    #[test]
    fn a_node_joins_older_ones_of_its_pool_that_all_carry_the_taint() {
        let stored = serde_json::from_value(
            json!({"apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": "p"}, "spec": crate::api::reconciling(&serde_json::json!({}))}),
        );
        let policies = NodePolicies::of(&[("p".to_owned(), Arc::new(stored.unwrap()))].into());
        let joins = |others: &[Arc<NodeView>], new: &NodeView| {
            let peers = PolicyPeers::of(policies.get("p").unwrap(), &policies, others);
            peers.is_joined_by(new, &Taint::no_schedule("os", "windows"))
        };
        let new = node("new", "12:00", "", false);
        let (tainted, bare) = (node("a", "08:00", "", true), node("b", "08:00", "", false));
        assert!(joins(&[Arc::clone(&tainted), Arc::clone(&new)], &new));
        assert!(!joins(&[Arc::clone(&new)], &new), "there is no other node");
        assert!(
            !joins(&[Arc::clone(&tainted), bare.clone()], &new),
            "one lacks the taint"
        );
        assert!(!joins(std::slice::from_ref(&tainted), &bare), "it is as old");
        let second = node("c", "11:55", "", false);
        assert!(joins(&[tainted.clone(), second], &new), "they join together");
        let (of_a, of_b) = (node("d", "08:00", "a", true), node("e", "08:00", "b", false));
        assert!(joins(
            &[of_a.clone(), of_b.clone()],
            &node("f", "12:00", "a", false)
        ));
        assert!(!joins(&[of_a, of_b], &node("f", "12:00", "b", false)));
        let mut unready = (*bare).clone();
        unready.readiness = NodeReadiness::NotReady;
        assert!(joins(&[tainted, Arc::new(unready)], &new));
    }
}
