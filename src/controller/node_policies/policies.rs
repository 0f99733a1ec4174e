//! Stored node policies, converted into the desired state of each node: which policy applies, and what is wrong with
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::nodes::ownership::NodeOwnership;
use super::nodes::plan::DesiredNode;
use crate::api::{
    DeclaredPools, NoExecute, TaintEffect, TaintMode, WindowsNodePolicy, in_one_line, node_selector,
};
use crate::cluster::cache::UNREADABLE_ANNOTATION;
use crate::cluster::node::NodeView;
use crate::model::label_selector::LabelSelector;
use crate::model::node::Taint;

/// The longest description of a selector's problem, in bytes.
const LONGEST_PROBLEM: usize = 4096;

/// A node policy, parsed.
#[derive(Clone, Debug)]
pub struct NodePolicy {
    /// The stored object.
    pub stored: Arc<WindowsNodePolicy>,
    /// Its name.
    pub name: String,
    /// Its generation.
    pub generation: i64,
    /// The taints that it may request.
    pub taints: Vec<Taint>,
    /// Why its selector cannot be used; then Transom neither sets nor reverts anything for it.
    pub unusable: Option<String>,
    /// The parts of it that are ignored, and why.
    pub left_out: Vec<String>,
    selector: LabelSelector,
}

impl NodePolicy {
    /// Reads a stored policy; `None` for one that is being deleted.
    pub fn of(stored: &Arc<WindowsNodePolicy>) -> Option<Self> {
        let meta = &stored.metadata;
        if meta.deletion_timestamp.is_some() {
            return None;
        }
        let unreadable = meta
            .annotations
            .as_ref()
            .and_then(|all| all.get(UNREADABLE_ANNOTATION));
        let (selector, unusable) = match (node_selector(&stored.spec.node_selector), unreadable) {
            (_, Some(why)) => (LabelSelector::default(), Some(why.clone())),
            (Ok(selector), None) => (selector, None),
            // An invalid label would select no node, and Transom would revert its changes on every node.
            (Err(wrong), None) => (
                LabelSelector::default(),
                Some(in_one_line(&wrong, LONGEST_PROBLEM)),
            ),
        };
        let spec = &stored.spec.taints;
        let mut left_out = Vec::new();
        let mut taints: Vec<Taint> = Vec::new();
        for taint in &spec.required {
            let required = Taint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.as_str().to_owned(),
            };
            // The API server rejects both; a policy may have been stored before its schema did.
            if taint.effect == TaintEffect::NoExecute && spec.no_execute == NoExecute::Forbidden {
                left_out.push(format!(
                    "spec.taints.required: {required} is ignored, because NoExecute evicts running pods: set \
                     spec.taints.noExecute: Allowed if that is what you want"
                ));
            } else if taints
                .iter()
                .any(|t| t.key == required.key && t.effect == required.effect)
            {
                left_out.push(format!(
                    "spec.taints.required: {required} is ignored, because a node can carry only one taint of each key and effect"
                ));
            } else {
                taints.push(required);
            }
        }
        let pools = DeclaredPools::of(&stored.spec).problems.into_iter();
        left_out.extend(pools.map(|problem| problem.message));
        Some(NodePolicy {
            name: meta.name.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            stored: Arc::clone(stored),
            taints,
            unusable,
            left_out,
            selector,
        })
    }

    /// Whether its selector selects a node with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.unusable.is_none() && self.selector.selects(labels)
    }

    /// The desired state of a node. `cleared`: the taints that may be set on it if it lacks them.
    pub fn desired(&self, cleared: BTreeSet<Taint>) -> DesiredNode {
        let spec = &self.stored.spec;
        DesiredNode {
            policy: self.name.clone(),
            generation: self.generation,
            labels: spec.labels.clone(),
            mode: spec.taints.mode,
            taints: self.taints.clone(),
            cleared: if spec.taints.mode == TaintMode::Apply {
                cleared
            } else {
                BTreeSet::new()
            },
            inherits: false,
        }
    }
}

/// Every node policy, ordered by descending priority and then by name: the first one that selects a node applies to
/// it.
#[derive(Clone, Debug, Default)]
pub struct NodePolicies(Vec<NodePolicy>);

/// Which policy applies to a node.
#[derive(Clone, Copy, Debug)]
pub enum SelectedPolicy<'p> {
    /// This one.
    Policy(&'p NodePolicy),
    /// None: what Transom owns is removed.
    NoPolicy,
    /// The policy named by the node's annotation cannot be read, so it is unknown whether it selects the node.
    /// Nothing is changed until it can be read, even if another policy selects the node.
    Held,
}

impl NodePolicies {
    /// Reads the stored policies.
    pub fn of(stored: &BTreeMap<String, Arc<WindowsNodePolicy>>) -> Self {
        let mut policies: Vec<NodePolicy> = stored.values().filter_map(NodePolicy::of).collect();
        policies.sort_by_key(|policy| std::cmp::Reverse(policy.stored.spec.priority));
        NodePolicies(policies)
    }

    /// All policies, in order.
    pub fn iter(&self) -> impl Iterator<Item = &NodePolicy> {
        self.0.iter()
    }

    /// Finds a policy by name.
    pub fn get(&self, name: &str) -> Option<&NodePolicy> {
        self.0.iter().find(|policy| policy.name == name)
    }

    /// The policy that applies to a node.
    pub fn choose(&self, node: &NodeView) -> SelectedPolicy<'_> {
        let owner = NodeOwnership::parse(node.owned.as_deref())
            .unwrap_or_default()
            .policy;
        if self.get(&owner).is_some_and(|owner| owner.unusable.is_some()) {
            return SelectedPolicy::Held;
        }
        let first = self.0.iter().find(|policy| policy.selects(&node.labels));
        first.map_or(SelectedPolicy::NoPolicy, SelectedPolicy::Policy)
    }

    /// The names of all policies that select a node, if there is more than one.
    pub fn overlapping(&self, node: &NodeView) -> Option<BTreeSet<&str>> {
        let names: BTreeSet<&str> = (self.0.iter())
            .filter(|policy| policy.selects(&node.labels))
            .map(|policy| policy.name.as_str())
            .collect();
        (names.len() > 1).then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policies(specs: &[(&str, serde_json::Value)]) -> NodePolicies {
        let stored = specs.iter().map(|(name, spec)| {
            let policy = serde_json::from_value(json!({
                "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                "metadata": {"name": name, "generation": 1}, "spec": spec,
            }));
            ((*name).to_owned(), Arc::new(policy.unwrap()))
        });
        NodePolicies::of(&stored.collect())
    }

    fn node(labels: &[(&str, &str)]) -> NodeView {
        NodeView {
            labels: Arc::new(
                labels
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
            ),
            ..NodeView::default()
        }
    }

    #[test]
    fn of_two_policies_the_first_by_name_counts_and_both_are_named() {
        let both = policies(&[
            ("b", json!({})),
            ("a", json!({"nodeSelector": {"matchLabels": {"pool": "win"}}})),
        ]);
        let counts = |labels: &[(&str, &str)]| match both.choose(&node(labels)) {
            SelectedPolicy::Policy(policy) => policy.name.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(counts(&[("pool", "win")]), "a");
        assert_eq!(counts(&[]), "b");
        assert_eq!(
            both.overlapping(&node(&[("pool", "win")])),
            Some(["a", "b"].into())
        );
        assert_eq!(both.overlapping(&node(&[])), None);
        let higher = policies(&[("a", json!({})), ("b", json!({"priority": 1}))]);
        assert!(matches!(higher.choose(&node(&[])), SelectedPolicy::Policy(policy) if policy.name == "b"));
    }

    #[test]
    fn a_selector_that_cannot_be_read_selects_nothing_and_takes_nothing_back() {
        let selectors = [
            json!({"matchExpressions": [{"key": "pool", "operator": "Is", "values": ["a"]}]}),
            json!({"matchExpressions": [{"key": "pool", "operator": "In"}]}),
            json!({"matchLabels": {"not a key!": "x"}}),
        ];
        for selector in selectors {
            let policies = policies(&[("bad", json!({"nodeSelector": selector}))]);
            let why = policies.get("bad").unwrap().unusable.clone().unwrap();
            assert!(why.starts_with("spec.nodeSelector.match"), "{why}");
            holds_what_it_has(&policies);
        }
    }

    fn holds_what_it_has(policies: &NodePolicies) {
        let mut ours = node(&[]);
        assert!(matches!(policies.choose(&ours), SelectedPolicy::NoPolicy));
        ours.owned = Some(r#"{"policy": "bad", "labels": {"a": "b"}}"#.to_owned());
        assert!(matches!(policies.choose(&ours), SelectedPolicy::Held));
        ours.owned = Some(r#"{"policy": "gone", "labels": {"a": "b"}}"#.to_owned());
        assert!(matches!(policies.choose(&ours), SelectedPolicy::NoPolicy));
    }

    #[test]
    fn no_execute_is_left_out_unless_it_is_allowed() {
        let spec = |allow: bool| {
            json!({"taints": {"mode": "Apply", "noExecute": if allow { "Allowed" } else { "Forbidden" },
                "required": [{"key": "os", "value": "windows", "effect": "NoExecute"}]}})
        };
        let policies = policies(&[("allowed", spec(true)), ("not", spec(false))]);
        assert_eq!(policies.get("allowed").unwrap().taints.len(), 1);
        let not = policies.get("not").unwrap();
        assert!(not.taints.is_empty() && not.left_out[0].contains("noExecute: Allowed"));
    }
}
