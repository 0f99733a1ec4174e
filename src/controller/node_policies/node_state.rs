//! The state of nodes: which policy applies to each, what to write, and what is wrong. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::nodes::plan::{DesiredNode, LabelUse, NodePlan, plan};
use crate::cluster::node::{NodeView, taint_of};
use crate::cluster::stored_node_policies::{NodePolicies, NodePolicy, SelectedPolicy};
use crate::engine::node_findings;
use crate::model::cluster::facts::Facts;
use crate::model::knowledge::FaultsById;
use crate::model::nodes::node::{NodeSigns as _, ReportedOs, Taint};
use crate::model::windows::build::Build;

/// Taints, each with the uids of some nodes. Only surveyed nodes are included: a node that joined later was not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaintsOfNodes(BTreeMap<Taint, BTreeSet<String>>);

impl TaintsOfNodes {
    /// Adds a taint of a node.
    pub fn add(&mut self, taint: &Taint, node: &NodeView) {
        self.0.entry(taint.clone()).or_default().insert(node.uid.clone());
    }

    /// Whether a taint of a node is included.
    pub fn has(&self, taint: &Taint, node: &NodeView) -> bool {
        self.0.get(taint).is_some_and(|nodes| nodes.contains(&node.uid))
    }

    /// The taints of a node.
    pub fn on(&self, node: &NodeView) -> BTreeSet<Taint> {
        let taints = self.0.keys().filter(|taint| self.has(taint, node));
        taints.cloned().collect()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let both = self.0.iter().filter_map(|(taint, nodes)| {
            let nodes: BTreeSet<String> = nodes.intersection(other.0.get(taint)?).cloned().collect();
            (!nodes.is_empty()).then(|| (taint.clone(), nodes))
        });
        TaintsOfNodes(both.collect())
    }

    /// Drops results of the guard that expire. NoExecute is surveyed each time, because it evicts what runs on the node at that
    /// time. Nodes that are gone are dropped, and nodes that carry the taint: if the taint is removed later, it is
    /// not set again from an old survey.
    pub fn age<'n>(&mut self, nodes: impl IntoIterator<Item = &'n NodeView>) {
        self.retain(nodes, |node, taint| {
            taint.effect != "NoExecute" && !carries(node, taint)
        });
    }

    /// Keeps the taints that the nodes still carry.
    pub fn keep_carried<'n>(&mut self, nodes: impl IntoIterator<Item = &'n NodeView>) {
        self.retain(nodes, carries);
    }

    fn retain<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n NodeView>,
        stays: impl Fn(&NodeView, &Taint) -> bool,
    ) {
        if self.0.is_empty() {
            return;
        }
        let there: BTreeMap<&str, &NodeView> = nodes.into_iter().map(|node| (&*node.uid, node)).collect();
        self.0.retain(|taint, surveyed| {
            surveyed.retain(|uid| there.get(&**uid).is_some_and(|node| stays(node, taint)));
            !surveyed.is_empty()
        });
    }
}

fn carries(node: &NodeView, taint: &Taint) -> bool {
    node.taints.iter().any(|now| taint_of(now) == *taint)
}

/// The policies, and which missing taints may be set for each of them.
#[derive(Clone, Debug, Default)]
pub struct PolicyResolver {
    pub policies: NodePolicies,
    /// The taints that affect no workload, by policy.
    pub approved: BTreeMap<String, TaintsOfNodes>,
    /// The taints of Transom's that are removed although the policy requires them, because they keep workloads off the nodes
    /// on which they run, by policy.
    pub withdrawn: BTreeMap<String, TaintsOfNodes>,
    /// Whether policies not in `policies` are known to be deleted, so that their labels and taints may be removed.
    pub others_are_gone: bool,
    /// Whether a template selects nodes by a label that is to be removed.
    pub label_use: LabelUse,
}

impl PolicyResolver {
    /// Plans the writes for a node.
    pub fn decide(&self, node: &NodeView) -> NodePlan {
        let selected = self.policies.choose(node);
        let owner = self.owner(node, selected);
        let may_be_there = owner == OwnerState::Unknown && !self.others_are_gone;
        match selected {
            SelectedPolicy::Held(_) => NodePlan::default(),
            _ if node.is_marked() && may_be_there => NodePlan::default(),
            SelectedPolicy::NoPolicy => plan(node, None, &self.label_use),
            SelectedPolicy::Policy(policy) => {
                let approved = self.approved.get(&policy.name);
                let approved = approved.map(|approved| approved.on(node)).unwrap_or_default();
                let withdrawn = self.withdrawn.get(&policy.name);
                let withdrawn = withdrawn.map(|withdrawn| withdrawn.on(node));
                let mut desired = DesiredNode::of(policy, approved);
                desired.withdrawn = withdrawn.unwrap_or_default();
                desired.inherits = owner != OwnerState::Selects;
                plan(node, Some(&desired), &self.label_use)
            }
        }
    }

    /// The relation of a node to the policy that its annotation names.
    fn owner(&self, node: &NodeView, selected: SelectedPolicy<'_>) -> OwnerState {
        let owner = &node.claimed().policy;
        match self.policies.get(owner) {
            // An annotation that cannot be read owns nothing, and is replaced.
            None if owner.is_empty() && matches!(selected, SelectedPolicy::Policy(_)) => OwnerState::Selects,
            None => OwnerState::Unknown,
            Some(policy) if policy.selects(&node.labels) => OwnerState::Selects,
            Some(_) => OwnerState::LetGo,
        }
    }

    /// Whether a node carries labels or taints that Transom set for a policy that is not known.
    pub fn is_orphan(&self, node: &NodeView) -> bool {
        node.is_marked() && self.owner(node, self.policies.choose(node)) == OwnerState::Unknown
    }
}

/// The relation of a node to the policy that set its labels and taints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    /// It selects the node.
    Selects,
    /// It exists, and no longer selects the node.
    LetGo,
    /// It is not among the known policies.
    Unknown,
}

/// The nodes of one policy.
#[derive(Clone, Debug, Default)]
pub struct NodesOfPolicy {
    /// The number of Windows nodes to which it applies.
    pub nodes: usize,
    /// The number of nodes by build.
    pub builds: BTreeMap<Build, usize>,
    /// Deviations from the desired state, by node.
    pub drift: BTreeMap<String, Vec<String>>,
    /// The number of nodes that wait for a write.
    pub unwritten: usize,
    /// The number of nodes whose annotation names the policy as the owner of something, whether it selects them or not.
    pub owned: usize,
    /// The nodes with missing taints that wait for the guard.
    pub waiting: BTreeMap<String, Vec<Taint>>,
    /// The nodes with contested taints.
    pub contested: BTreeMap<String, Vec<Taint>>,
    /// Other policies of the same priority that select a node of this policy, with one such node.
    pub overlapping: BTreeMap<String, String>,
    /// The policies with precedence that apply to Windows nodes which this policy selects, too.
    pub outranked_by: BTreeSet<String>,
    /// The Windows nodes that wait for this policy, by the policy that cannot be read and may select them.
    pub held: BTreeMap<String, BTreeSet<String>>,
    /// Nodes with builds that Kubernetes does not support.
    pub unsupported: BTreeMap<Build, usize>,
    /// The known faults of its nodes.
    pub known_faults: FaultsById,
    /// The other findings of the rules on its nodes, and the nodes that have each: by message and remedy.
    pub findings: BTreeMap<(String, String), BTreeSet<String>>,
}

/// The nodes of every policy, by policy name.
pub type NodesByPolicy = BTreeMap<String, NodesOfPolicy>;

/// The taints that nodes lack and that wait for the guard: by policy, by node.
pub type WaitingTaints = BTreeMap<String, BTreeMap<String, Vec<Taint>>>;

/// What to write to each node.
#[derive(Debug)]
pub struct NodePlans<'n>(Vec<(&'n Arc<NodeView>, NodePlan)>);

impl<'n> NodePlans<'n> {
    /// Plans the writes of all nodes.
    pub fn of(nodes: &'n [Arc<NodeView>], resolver: &PolicyResolver) -> Self {
        NodePlans(nodes.iter().map(|node| (node, resolver.decide(node))).collect())
    }

    /// The nodes to write.
    pub fn due(&self) -> Vec<Arc<NodeView>> {
        let due = self.0.iter().filter(|(_, plan)| !plan.is_empty());
        due.map(|(node, _)| Arc::clone(node)).collect()
    }

    /// Whether a node keeps a label only because a template may select nodes by it.
    pub fn keep_labels(&self) -> bool {
        self.0.iter().any(|(_, plan)| plan.keeps_label)
    }

    /// The taints that wait for the guard.
    pub fn waiting(&self, policies: &NodePolicies) -> WaitingTaints {
        let mut waiting = WaitingTaints::new();
        for (node, plan) in self.0.iter().filter(|(_, plan)| !plan.waiting.is_empty()) {
            if let SelectedPolicy::Policy(policy) = policies.choose(node) {
                let of_policy = waiting.entry(policy.name.clone()).or_default();
                of_policy.insert(node.name.clone(), plan.waiting.clone());
            }
        }
        waiting
    }

    /// Assesses all nodes, for the statuses of their policies.
    pub fn assess(self, policies: &NodePolicies, facts: &Facts) -> NodesByPolicy {
        let names = policies.iter().map(|policy| policy.name.clone());
        let mut all: NodesByPolicy = names.map(|name| (name, NodesOfPolicy::default())).collect();
        for (node, plan) in self.0 {
            note_owner(&mut all, node);
            let is_windows = node.reported_os() == ReportedOs::Windows && !node.deleting;
            if is_windows && let Some(names) = policies.overlapping(node) {
                note_overlap(&mut all, &names, node);
            }
            match policies.choose(node) {
                SelectedPolicy::Policy(policy) => {
                    let state = all.entry(policy.name.clone()).or_default();
                    if is_windows {
                        state.count(node, facts);
                    }
                    note(state, node, plan);
                    if is_windows {
                        note_outranked(&mut all, policy, policies, node);
                    }
                }
                SelectedPolicy::Held(held) => {
                    if let Some(waiting) = held.waiting.filter(|_| is_windows) {
                        let state = all.entry(waiting.name.clone()).or_default();
                        let nodes = state.held.entry(held.unusable.name.clone()).or_default();
                        nodes.insert(node.name.clone());
                    }
                }
                SelectedPolicy::NoPolicy => (),
            }
        }
        all
    }
}

/// Counts a node for the policy that it is annotated with.
fn note_owner(all: &mut NodesByPolicy, node: &NodeView) {
    let claimed = node.claimed();
    if let Some(state) = all.get_mut(&claimed.policy) {
        state.owned += usize::from(!claimed.labels.is_empty() || !claimed.taints.is_empty());
    }
}

/// Notes the other policies that select a node.
fn note_outranked(all: &mut NodesByPolicy, applies: &NodePolicy, policies: &NodePolicies, node: &NodeView) {
    let others = policies.iter().filter(|policy| policy.name != applies.name);
    for other in others.filter(|policy| policy.selects(&node.labels)) {
        let state = all.entry(other.name.clone()).or_default();
        if !state.outranked_by.contains(&applies.name) {
            state.outranked_by.insert(applies.name.clone());
        }
    }
}

/// Notes a node that several policies of the same priority select.
fn note_overlap(all: &mut NodesByPolicy, names: &BTreeSet<&str>, node: &NodeView) {
    for name in names {
        let state = all.entry((*name).to_owned()).or_default();
        for other in names.iter().filter(|other| *other != name) {
            let first = state.overlapping.entry((*other).to_owned());
            first.or_insert_with(|| node.name.clone());
        }
    }
}

impl NodesOfPolicy {
    /// Counts a Windows node of the policy, with what the rules report of it.
    fn count(&mut self, node: &Arc<NodeView>, facts: &Facts) {
        self.nodes += 1;
        let build = node.kernel_build();
        if let Some(build) = build {
            *self.builds.entry(build).or_default() += 1;
        }
        for found in node_findings([Arc::clone(node) as _], facts) {
            if found.is_unsupported_build() {
                if let Some(build) = build {
                    *self.unsupported.entry(build).or_default() += 1;
                }
                continue;
            }
            if found.is_known_fault() {
                continue;
            }
            let remedy = format!("{} {}", found.remedy, found.source());
            let nodes = self.findings.entry((found.message, remedy)).or_default();
            nodes.insert(node.name.clone());
        }
        let faults = facts.knowledge.faults_of_node(&**node);
        self.known_faults.add(&node.name, faults);
    }
}

fn note(state: &mut NodesOfPolicy, node: &NodeView, plan: NodePlan) {
    let mut what: Vec<String> = plan.remains.clone();
    what.extend(
        plan.changes
            .iter()
            .map(|change| format!("{change} (not written yet)")),
    );
    if !what.is_empty() {
        state.drift.insert(node.name.clone(), what);
    }
    state.unwritten += usize::from(!plan.is_empty());
    if !plan.waiting.is_empty() {
        state.waiting.insert(node.name.clone(), plan.waiting);
    }
    if !plan.contested.is_empty() {
        state.contested.insert(node.name.clone(), plan.contested);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node_ownership::{NodeOwnership, PROOF_LABEL};

    #[test]
    fn a_taint_is_approved_for_the_nodes_that_were_surveyed_and_for_no_other() {
        let node = |uid: &str| NodeView {
            name: "same".into(),
            uid: uid.into(),
            operating_system: "windows".into(),
            kernel_version: "10.0.20348.1".into(),
            ..NodeView::default()
        };
        let policy = serde_json::from_value(serde_json::json!({
            "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
            "metadata": {"name": "p", "generation": 1},
            "spec": crate::api::reconciling(&serde_json::json!({"taints": {"mode": "Reconcile", "noExecute": "Allowed", "required": [
                {"key": "os", "value": "windows", "effect": "NoSchedule"},
                {"key": "os", "value": "windows", "effect": "NoExecute"}]}})),
        }));
        let mut resolver = PolicyResolver {
            policies: NodePolicies::of(&[("p".to_owned(), Arc::new(policy.unwrap()))].into()),
            ..PolicyResolver::default()
        };
        let schedule = Taint::no_schedule("os", "windows");
        let execute = Taint {
            effect: "NoExecute".into(),
            ..schedule.clone()
        };
        let (old, new) = (node("1"), node("2"));
        let both = vec![schedule.clone(), execute.clone()];
        assert_eq!(resolver.decide(&old).waiting, both);
        let approved = resolver.approved.entry("p".to_owned()).or_default();
        approved.add(&schedule, &old);
        assert_eq!(resolver.decide(&old).waiting, std::slice::from_ref(&execute));
        assert_eq!(resolver.decide(&new).waiting, both);
        let approved = resolver.approved.entry("p".to_owned()).or_default();
        approved.add(&execute, &old);
        assert_eq!(resolver.decide(&old).waiting, []);
        // The next pass surveys NoExecute again.
        let approved = resolver.approved.entry("p".to_owned()).or_default();
        approved.age([&old]);
        assert_eq!(resolver.decide(&old).waiting, [execute]);
        // So is every taint that the node has carried since.
        let approved = resolver.approved.entry("p".to_owned()).or_default();
        approved.add(&schedule, &old);
        let carrying = NodeView {
            taints: vec![k8s_openapi::api::core::v1::Taint {
                key: "os".into(),
                value: Some("windows".into()),
                effect: "NoSchedule".into(),
                time_added: None,
            }],
            ..old.clone()
        };
        approved.age([&carrying]);
        assert_eq!(resolver.decide(&old).waiting, both);
        let approved = resolver.approved.entry("p".to_owned()).or_default();
        approved.add(&schedule, &old);
        // A node that was created again under the same name was not surveyed either.
        let approved = resolver.approved.entry("p".to_owned()).or_default();
        approved.age([&new]);
        assert_eq!(resolver.decide(&old).waiting, both);
    }

    #[test]
    fn nothing_is_taken_back_for_a_policy_that_may_only_not_be_seen_yet() {
        let owned = NodeOwnership {
            policy: "late".into(),
            taints: vec![Taint::no_schedule("os", "windows")],
            ..NodeOwnership::default()
        };
        let node = NodeView {
            operating_system: "windows".into(),
            kernel_version: "10.0.20348.1".into(),
            resource_version: "1".into(),
            labels: Arc::new([(PROOF_LABEL.to_owned(), owned.proof().unwrap())].into()),
            owned: owned.to_annotation().map(Into::into),
            ..NodeView::default()
        };
        let mut resolver = PolicyResolver::default();
        assert!(resolver.is_orphan(&node) && resolver.decide(&node).is_empty());
        resolver.others_are_gone = true;
        assert!(!resolver.decide(&node).is_empty());
    }

    #[test]
    fn what_a_policy_set_goes_with_it_though_the_next_one_only_reports() {
        let policy = |name: &str, spec: serde_json::Value| {
            let stored = serde_json::json!({
                "apiVersion": "transom.dev/v1alpha1", "kind": "WindowsNodePolicy",
                "metadata": {"name": name, "generation": 1}, "spec": crate::api::reconciling(&serde_json::json!(spec)),
            });
            (name.to_owned(), Arc::new(serde_json::from_value(stored).unwrap()))
        };
        let pool = |pool: &str| serde_json::json!({"nodeSelector": {"matchLabels": {"pool": pool}}});
        let report = || policy("default", serde_json::json!({}));
        let ours = Taint::no_schedule("sku", "windows");
        let owned = NodeOwnership {
            policy: "a-pool".into(),
            taints: vec![ours.clone()],
            ..NodeOwnership::default()
        };
        let labels = [(PROOF_LABEL, owned.proof().unwrap()), ("pool", "a".to_owned())];
        let node = NodeView {
            operating_system: "windows".into(),
            kernel_version: "10.0.20348.1".into(),
            resource_version: "1".into(),
            labels: Arc::new(labels.map(|(key, value)| (key.to_owned(), value)).into()),
            owned: owned.to_annotation().map(Into::into),
            taints: vec![k8s_openapi::api::core::v1::Taint {
                key: "sku".into(),
                value: Some("windows".into()),
                effect: "NoSchedule".into(),
                time_added: None,
            }],
            ..NodeView::default()
        };
        let unreadable = serde_json::json!({"nodeSelector": {"matchLabels": {"not a key!": "x"}}});
        // The existing policies, whether others are known to be deleted, whether the taint is removed, whether
        // anything is done.
        let cases = [
            (vec![report()], true, true, true),
            (vec![report()], false, false, false),
            (vec![policy("a-pool", pool("b")), report()], false, true, true),
            (vec![policy("a-pool", pool("a")), report()], false, false, true),
            (
                vec![policy("a-pool", unreadable.clone()), report()],
                true,
                false,
                false,
            ),
            (
                vec![policy("a-typo", unreadable.clone()), report()],
                true,
                false,
                false,
            ),
            (vec![policy("z-typo", unreadable), report()], true, true, true),
        ];
        for (number, (policies, others_are_gone, goes, acts)) in cases.into_iter().enumerate() {
            let resolver = PolicyResolver {
                policies: NodePolicies::of(&policies.into_iter().collect()),
                others_are_gone,
                ..PolicyResolver::default()
            };
            let plan = resolver.decide(&node);
            let gone = plan.patch(&node).is_some_and(|patch| {
                patch
                    .pointer("/spec/taints")
                    .is_some_and(serde_json::Value::is_null)
            });
            assert_eq!((gone, !plan.is_empty()), (goes, acts), "case {number}: {plan:?}");
            let has_owner = resolver.policies.get("a-pool").is_some();
            assert_eq!(resolver.is_orphan(&node), !has_owner, "case {number}");
        }
    }
}
