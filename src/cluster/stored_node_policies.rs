//! Stored node policies: which one applies to a node, and what is wrong with it. The leader writes what it requires, and
//! the facts of reviews expect it; pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::UNREADABLE_ANNOTATION;
use super::node::NodeView;
use crate::api::{WindowsNodePolicy, in_one_line, node_selector};
use crate::model::nodes::node::Taint;
use crate::model::objects::label_selector::LabelSelector;

/// The longest description of a selector's problem, in bytes.
const LONGEST_PROBLEM: usize = 4096;

/// A node policy, parsed.
#[derive(Clone, Debug)]
pub struct NodePolicy {
    pub stored: Arc<WindowsNodePolicy>,
    pub name: String,
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
        let (taints, left_out) = stored.spec.required_taints();
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
}

/// Every node policy, ordered by descending priority and then by name: the first one that selects a node applies to
/// it. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct NodePolicies(Arc<[NodePolicy]>);

/// Which policy applies to a node.
#[derive(Clone, Copy, Debug)]
pub enum SelectedPolicy<'p> {
    Policy(&'p NodePolicy),
    /// None: what Transom owns is removed.
    NoPolicy,
    /// It is unknown whether a policy that cannot be read selects the node. Nothing is changed on the node until it
    /// can be read, even if another policy selects the node.
    Held(HeldNode<'p>),
}

/// Why nothing is changed on a node.
#[derive(Clone, Copy, Debug)]
pub struct HeldNode<'p> {
    /// The policy that cannot be read.
    pub unusable: &'p NodePolicy,
    /// The policy that would apply if that one did not select the node. `None`: no other policy selects the node, or
    /// it already belonged to that one, which takes precedence.
    pub waiting: Option<&'p NodePolicy>,
}

impl NodePolicies {
    /// Reads the stored policies.
    pub fn of(stored: &BTreeMap<String, Arc<WindowsNodePolicy>>) -> Self {
        let mut policies: Vec<NodePolicy> = stored.values().filter_map(NodePolicy::of).collect();
        policies.sort_by_key(|policy| std::cmp::Reverse(policy.stored.spec.priority));
        NodePolicies(policies.into())
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
    ///
    /// A policy that cannot be read may select any node, so no node is handed to a policy that comes after it, and its
    /// own nodes to no policy. A node that already belongs to the policy that would apply keeps it: the other policy
    /// did not select the node when it could be read.
    pub fn choose(&self, node: &NodeView) -> SelectedPolicy<'_> {
        let owner = &*node.claimed().policy;
        let unusable_owner = self.get(owner).filter(|owner| owner.unusable.is_some());
        let (mut unusable, mut is_owner_first) = (None, false);
        let mut first = None;
        for policy in self.0.iter() {
            if policy.unusable.is_some() {
                unusable = unusable.or(Some(policy));
                is_owner_first |= policy.name == owner;
            } else if policy.selects(&node.labels) {
                first = Some(policy);
                break;
            }
        }
        match (first, unusable_owner.or(unusable)) {
            (Some(policy), Some(_)) if policy.name == owner => SelectedPolicy::Policy(policy),
            (first, Some(unusable)) => SelectedPolicy::Held(HeldNode {
                unusable,
                waiting: first.filter(|_| !is_owner_first),
            }),
            (Some(policy), None) => SelectedPolicy::Policy(policy),
            (None, None) => SelectedPolicy::NoPolicy,
        }
    }

    /// The names of the policies with the same priority between which only the name decides on a node, if there is
    /// more than one.
    pub fn overlapping(&self, node: &NodeView) -> Option<BTreeSet<&str>> {
        let mut selecting = (self.0.iter()).filter(|policy| policy.selects(&node.labels));
        let first = selecting.next()?;
        let priority = first.stored.spec.priority;
        let same = selecting.take_while(|policy| policy.stored.spec.priority == priority);
        let names: BTreeSet<&str> = (std::iter::once(first).chain(same))
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
                "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!(spec)),
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
    fn of_two_policies_of_one_priority_the_first_by_name_counts_and_both_are_named() {
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
        let gpu = json!({"matchLabels": {"pool": "gpu"}});
        let higher = policies(&[
            ("a", json!({})),
            ("b", json!({"priority": 1, "nodeSelector": gpu})),
            ("c", json!({})),
        ]);
        let of_gpu = node(&[("pool", "gpu")]);
        assert!(matches!(higher.choose(&of_gpu), SelectedPolicy::Policy(policy) if policy.name == "b"));
        assert_eq!(higher.overlapping(&of_gpu), None, "the priority decides");
        assert_eq!(higher.overlapping(&node(&[])), Some(["a", "c"].into()));
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
        for owner in ["", "bad", "gone"] {
            ours.owned = owned_by(owner).map(Into::into);
            let held = policies.choose(&ours);
            assert!(matches!(held, SelectedPolicy::Held(_)), "{owner}: {held:?}");
        }
    }

    fn owned_by(policy: &str) -> Option<String> {
        let annotation = json!({"policy": policy, "labels": {"a": "b"}}).to_string();
        Some(annotation).filter(|_| !policy.is_empty())
    }

    #[test]
    fn no_node_gets_another_policy_while_one_that_may_select_it_cannot_be_read() {
        let (all, pool) = (json!({}), json!({"matchLabels": {"pool": "win"}}));
        let bad = json!({"priority": 1, "nodeSelector": {"matchLabels": {"Example.com/pool": "win"}}});
        let with = |others: &[(&str, serde_json::Value)]| {
            let mut specs = vec![("bad", bad.clone())];
            specs.extend(others.iter().cloned());
            policies(&specs)
        };
        let after = with(&[("all", all.clone()), ("pool", json!({"nodeSelector": pool}))]);
        let before = with(&[("first", json!({"priority": 2, "nodeSelector": pool}))]);
        let higher = with(&[
            ("all", all),
            ("new", json!({"priority": 1, "nodeSelector": pool})),
        ]);
        // The policies, the owner of a node of the pool, the policy that applies to it or, after a "!", the one that
        // waits for it.
        let cases = [
            (&after, "", "!all"),
            // Its own node: the other policies never had it.
            (&after, "bad", "!"),
            (&after, "gone", "!all"),
            // It would go to another policy, which may not be the right one.
            (&after, "pool", "!all"),
            (&after, "all", "all"),
            // What comes before the unreadable policy applies in any case, except to that policy's own nodes.
            (&before, "", "first"),
            (&before, "gone", "first"),
            (&before, "bad", "!first"),
            (&higher, "all", "!new"),
            (&higher, "new", "new"),
        ];
        for (number, (policies, owner, expected)) in cases.into_iter().enumerate() {
            let mut node = node(&[("pool", "win")]);
            node.owned = owned_by(owner).map(Into::into);
            let chosen = match policies.choose(&node) {
                SelectedPolicy::Policy(policy) => policy.name.clone(),
                SelectedPolicy::NoPolicy => String::new(),
                SelectedPolicy::Held(held) => {
                    assert_eq!(held.unusable.name, "bad");
                    format!("!{}", held.waiting.map_or("", |policy| &policy.name))
                }
            };
            assert_eq!(chosen, expected, "case {number}");
        }
    }

    #[test]
    fn no_execute_is_left_out_unless_it_is_allowed() {
        let spec = |allow: bool| {
            json!({"taints": {"mode": "Reconcile", "noExecute": if allow { "Allowed" } else { "Forbidden" },
                "required": [{"key": "os", "value": "windows", "effect": "NoExecute"}]}})
        };
        let policies = policies(&[("allowed", spec(true)), ("not", spec(false))]);
        assert_eq!(policies.get("allowed").unwrap().taints.len(), 1);
        let not = policies.get("not").unwrap();
        assert!(not.taints.is_empty() && not.left_out[0].contains("noExecute: Allowed"));
    }
}
